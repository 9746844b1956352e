//! Since-reads: what a pane printed since a point, from its ring.

use std::{sync::Arc, time::Duration};

use base64::Engine as _;

use super::{Engine, Host, Pane, limits, pane::State, wait::duration};
use crate::{
    api::{Error, Gap, GapReason, ReadAnswer, ReadFormat, ReadRequest, Result},
    pane::{
        cursor::{Cursor, Since},
        render,
    },
};

/// A stretch of a stream.
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) text: Option<String>,
    pub(super) end: u64,
    pub(super) gap: Option<Gap>,
    pub(super) more: bool,
}

impl Engine {
    /// What a pane printed since a point. With `wait_ms` and nothing new: waits for it.
    pub async fn read(&self, host: &Arc<Host>, target: &str, request: &ReadRequest) -> Result<ReadAnswer> {
        let wait = duration("wait_ms", request.wait_ms, limits::POLL_LONGEST)?.unwrap_or(Duration::ZERO);
        let most = request.max_bytes.unwrap_or(limits::READ_DEFAULT);
        if most == 0 || most > limits::READ_MOST {
            return Err(Error::invalid(format!("max_bytes: {most}; give 1 to {}", limits::READ_MOST)));
        }
        let since = match &request.since {
            Some(since) => since.parse()?,
            None => Since::Input,
        };
        let pane = self.pane(host, target).await?;
        let (from, gap) = {
            let state = pane.lock();
            pane.begin_of(&state, &since)?
        };
        if !wait.is_zero() {
            let mut changes = pane.changes();
            let news = async {
                loop {
                    changes.borrow_and_update();
                    {
                        let state = pane.lock();
                        if state.ring.end() > from || state.exit.is_some() || gap.is_some() {
                            return;
                        }
                    }
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                // A time that runs out answers with nothing new.
                _ = tokio::time::timeout(wait, news) => {}
                () = self.stopping() => {}
            }
        }
        let (piece, exit) = {
            let state = pane.lock();
            (state.piece(from, most, request.format, gap), state.exit.map(|(exit, _)| exit))
        };
        let exit = exit.filter(|_| !piece.more);
        let raw = request.format == ReadFormat::Raw;
        Ok(ReadAnswer {
            pane: pane.id().to_string(),
            data: raw.then(|| base64::engine::general_purpose::STANDARD.encode(&piece.bytes)),
            text: piece.text,
            cursor: pane.cursor(piece.end).to_string(),
            more: piece.more,
            gap: piece.gap,
            exited: exit.is_some(),
            exit_status: exit.and_then(|exit| exit.status),
            exit_signal: exit.and_then(|exit| exit.signal),
        })
    }
}

impl Pane {
    /// The offset at which a read begins, and what is missing before it.
    pub(super) fn begin_of(&self, state: &State, since: &Since) -> Result<(u64, Option<Gap>)> {
        Ok(match since {
            Since::Input => {
                (state.last_input.map_or(state.ring.start(), |(offset, _)| offset.max(state.ring.start())), None)
            }
            Since::Now => (state.ring.end(), None),
            Since::Start => (state.ring.start(), None),
            Since::Lines(lines) => (state.lines_back(*lines), None),
            Since::At(cursor) => self.locate(state, cursor)?,
            Since::Screen => {
                return Err(Error::invalid(
                    "since: a read takes input, start, now or a cursor; for the screen use capture",
                ));
            }
        })
    }

    /// Where a cursor points in this stream. A cursor of another epoch, or one whose bytes were dropped, is answered
    /// with what is left and the gap that lies before it.
    pub(super) fn locate(&self, state: &State, cursor: &Cursor) -> Result<(u64, Option<Gap>)> {
        let start = state.ring.start();
        if cursor.pane != self.id() {
            return Err(Error::invalid(format!(
                "since: this is a cursor of pane {}, not of {}",
                cursor.pane,
                self.id()
            )));
        }
        let epoch = self.epoch();
        if cursor.epoch.server != epoch.server {
            return Ok((start, Some(Gap { reason: GapReason::ServerRestarted, bytes: None })));
        }
        if cursor.epoch.engine != epoch.engine {
            return Ok((start, Some(Gap { reason: GapReason::MuxtapRestarted, bytes: None })));
        }
        if cursor.offset > state.ring.end() {
            return Err(Error::invalid(
                "since: this cursor points behind the end of the stream; it was not made by this muxtap",
            ));
        }
        if cursor.offset < start {
            return Ok((start, Some(Gap { reason: GapReason::Trimmed, bytes: Some(start - cursor.offset) })));
        }
        Ok((cursor.offset, None))
    }
}

impl State {
    /// Up to `most` bytes from `from` on, but not across a gap: each piece has at most one, before it.
    pub(super) fn piece(&self, from: u64, most: u64, format: ReadFormat, gap: Option<Gap>) -> Piece {
        let mut gap = gap;
        let mut from = from;
        if from < self.ring.start() {
            gap = gap.or(Some(Gap { reason: GapReason::Trimmed, bytes: Some(self.ring.start() - from) }));
            from = self.ring.start();
        }
        let end = self.ring.end();
        let mut to = from.saturating_add(most).min(end);
        if gap.is_none() {
            gap = self.ring.gap_at(from);
        }
        if let Some(next) = self.ring.next_gap(from) {
            to = to.min(next);
        }
        let before_gap = self.ring.next_gap(from) == Some(to);
        let more = to < end;
        let mut bytes = self.ring.bytes(from, to);
        if format != ReadFormat::Raw && self.exit.is_none() && !before_gap {
            // A character that is not complete is left for the next read; but where a limit cut it the reader must get on.
            let cut = incomplete_tail(&bytes);
            if !more || cut < bytes.len() {
                bytes.truncate(bytes.len() - cut);
                to -= cut as u64;
            }
        }
        let text = match format {
            ReadFormat::Raw => None,
            ReadFormat::Ansi => Some(String::from_utf8_lossy(&bytes).into_owned()),
            ReadFormat::Text => Some(render::render_text(&self.ring, from, to)),
        };
        Piece { bytes, text, end: to, gap, more }
    }

    /// Where the last `lines` lines begin.
    pub(super) fn lines_back(&self, lines: u32) -> u64 {
        let (start, end) = (self.ring.start(), self.ring.end());
        let mut from = end;
        let mut left = lines;
        // From the end in pieces, until there are enough line ends.
        let mut last = true;
        while from > start {
            let to = from;
            from = from.saturating_sub(4096).max(start);
            let bytes = self.ring.bytes(from, to);
            for (index, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
                // A line end at the very end belongs to the last line.
                if last && from + index as u64 + 1 == end {
                    last = false;
                    continue;
                }
                last = false;
                if left <= 1 {
                    return if lines == 0 { end } else { from + index as u64 + 1 };
                }
                left -= 1;
            }
        }
        if lines == 0 { end } else { start }
    }
}

/// How many bytes at the end are the beginning of a character.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let tail = bytes.get(bytes.len().saturating_sub(3)..).unwrap_or_default();
    for (index, byte) in tail.iter().enumerate().rev() {
        let have = tail.len() - index;
        let needs = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if have < needs { have } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pane::cursor::Epoch, protocol::ids::PaneId};

    /// S6.
    #[test]
    fn a_read_ends_before_a_gap_and_the_next_begins_behind_it() {
        let pane = Pane::new(PaneId(0), Epoch { server: 1, engine: 1 }, 1000);
        pane.push(b"before");
        pane.mark_gap(GapReason::Paused);
        pane.push(b"after");
        let state = pane.lock();
        let first = state.piece(0, 100, ReadFormat::Text, None);
        assert_eq!((first.text.as_deref(), first.gap, first.more), (Some("before"), None, true));
        let second = state.piece(first.end, 100, ReadFormat::Text, None);
        assert_eq!(second.text.as_deref(), Some("after"));
        assert_eq!(second.gap.map(|gap| gap.reason), Some(GapReason::Paused));
        assert!(!second.more);
    }

    /// S10.
    #[test]
    fn a_character_that_has_only_begun_is_left_for_the_next_read() {
        for (bytes, cut) in [
            (&b"abc"[..], 0),
            (b"\xc3", 1),
            (b"a\xe2\x82", 2),
            (b"\xe2\x82\xac", 0),
            (b"\xf0\x9f\x98", 3),
            (b"\x80\x80\x80\x80", 0),
            (b"", 0),
        ] {
            assert_eq!(incomplete_tail(bytes), cut, "{bytes:?}");
        }
    }
}
