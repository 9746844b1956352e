//! Since-reads: what a pane printed since a cursor, from its ring.

use std::{sync::Arc, time::Duration};

use base64::Engine as _;

use crate::engine::{Engine, Host, PaneState, limits, pane::State, query::target::Target, wait::duration};
use crate::{
    api::{Error, ErrorCode, Gap, GapReason, ReadAnswer, ReadFormat, ReadRequest, Result, Tier},
    stream::{
        cursor::{Cursor, Since},
        render,
        ring::{Chunk, Reading},
    },
};

/// A chunk of output in the format that was asked for.
pub(in crate::engine) struct FormattedChunk {
    pub(in crate::engine) data: Option<String>,
    pub(in crate::engine) text: Option<String>,
}

impl Engine {
    /// Reads what a pane printed since a cursor. With `wait_ms` and nothing new: waits for it.
    pub async fn read(&self, host: &Arc<Host>, target: &str, request: &ReadRequest) -> Result<ReadAnswer> {
        self.authorize(Tier::Read)?;
        let wait = duration("wait_ms", request.wait_ms, limits::POLL_LONGEST)?.unwrap_or(Duration::ZERO);
        let most = request.max_bytes.unwrap_or(limits::READ_DEFAULT);
        if most == 0 || most > limits::READ_MOST {
            return Err(Error::invalid(format!("max_bytes: {most}; give 1 to {}", limits::READ_MOST)));
        }
        let since = match &request.since {
            Some(since) => since.parse()?,
            None => Since::Input,
        };
        let format = request.format;
        let pane = match earlier_pane_with_output(host, target, &since) {
            Some(pane) => pane,
            None => self.pane(host, target).await?,
        };
        let (from, gap) = {
            let state = pane.lock();
            pane.resolve_since(&state, &since)?
        };
        if !wait.is_zero() {
            let mut changes = pane.changes();
            let news = async {
                loop {
                    changes.borrow_and_update();
                    {
                        let state = pane.lock();
                        let has_more = state.ring.has_more(from, state.reading(most, format));
                        if has_more || state.exit.is_some() || gap.is_some() {
                            return;
                        }
                    }
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                // When the time is over the read returns with nothing new.
                _ = tokio::time::timeout(wait, news) => {}
                () = self.stopping() => {}
            }
        }
        let (chunk, exit) = {
            let state = pane.lock();
            (state.ring.read(from, state.reading(most, format)), state.exit.map(|(exit, _)| exit))
        };
        let (end, more, gap) = (chunk.end, chunk.more, gap.or(chunk.gap));
        let exit = exit.filter(|_| !more);
        let FormattedChunk { data, text } = FormattedChunk::of_large(chunk, format).await?;
        Ok(ReadAnswer {
            pane: pane.id().to_string(),
            data,
            text,
            cursor: pane.cursor(end).to_string(),
            more,
            gap,
            exited: exit.is_some(),
            exit_status: exit.and_then(|exit| exit.status),
            exit_signal: exit.and_then(|exit| exit.signal),
        })
    }
}

/// Returns the pane of an earlier server in which a cursor stands, when it has output left to read.
/// With the next cursor the read goes over to the pane that has its id now, behind a gap.
fn earlier_pane_with_output(host: &Host, target: &str, since: &Since) -> Option<Arc<PaneState>> {
    let Since::At(cursor) = since else { return None };
    if target.parse() != Ok(Target::Pane(cursor.pane)) {
        return None;
    }
    host.earlier_pane_of(cursor).filter(|pane| cursor.offset < pane.lock().ring.end())
}

impl PaneState {
    /// Returns the offset at which a read begins, and what is missing before it.
    pub(in crate::engine) fn resolve_since(&self, state: &State, since: &Since) -> Result<(u64, Option<Gap>)> {
        Ok(match since {
            Since::Input => {
                (state.since_input().map_or(state.ring.start(), |(offset, _)| offset.max(state.ring.start())), None)
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

    /// Returns where a cursor points in this stream. For a cursor of another epoch, or one whose
    /// bytes were dropped, returns the start of the remaining output and the gap before it.
    pub(in crate::engine) fn locate(&self, state: &State, cursor: &Cursor) -> Result<(u64, Option<Gap>)> {
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
    /// Returns how a reader of this format reads.
    pub(in crate::engine) fn reading(&self, most: u64, format: ReadFormat) -> Reading {
        Reading { most, whole: format != ReadFormat::Raw, over: self.exit.is_some() }
    }

    /// Returns where the last `lines` lines begin.
    pub(in crate::engine) fn lines_back(&self, lines: u32) -> u64 {
        let (start, end) = (self.ring.start(), self.ring.end());
        let mut from = end;
        let mut left = lines;
        // Searches from the end in pieces, until there are enough line ends.
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

/// Chunks above this size are converted on another thread, so that other tasks are not delayed.
const AT_ONCE: usize = 64 * 1024;

impl FormattedChunk {
    /// Converts a chunk to the format that was asked for. Never called under a pane's lock.
    pub(in crate::engine) fn of(chunk: &Chunk, format: ReadFormat) -> Self {
        match format {
            ReadFormat::Raw => {
                Self { data: Some(base64::engine::general_purpose::STANDARD.encode(&chunk.bytes)), text: None }
            }
            ReadFormat::Ansi => Self { data: None, text: Some(String::from_utf8_lossy(&chunk.bytes).into_owned()) },
            ReadFormat::Text => Self { data: None, text: Some(render::render_chunk(chunk)) },
        }
    }

    async fn of_large(chunk: Chunk, format: ReadFormat) -> Result<Self> {
        if chunk.bytes.len() <= AT_ONCE {
            return Ok(Self::of(&chunk, format));
        }
        let made = tokio::task::spawn_blocking(move || Self::of(&chunk, format)).await;
        made.map_err(|_| Error::new(ErrorCode::InconsistentState, "the text of the read could not be made"))
    }
}
