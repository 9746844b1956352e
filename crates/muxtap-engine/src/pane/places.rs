//! Places in a pane's stream: the offset of a cursor, a time or a number of lines.

use muxtap_api::{Cursor, Error, Gap, GapReason, ReadFormat, Result, Since};
use muxtap_base::clock;
use muxtap_core::{
    screen::{self, Screen},
    stream::{render, ring::Reading},
};

use super::{LockedPane, PaneState, metadata::screen_size};

use crate::limits::{self, REDRAWN_BYTES};

impl PaneState {
    /// Returns the offset at which a read begins, and the gap before it.
    pub(crate) fn resolve_since(&self, locked: &LockedPane, since: &Since) -> Result<(u64, Option<Gap>)> {
        let start = locked.output.ring.start();
        Ok(match since {
            Since::Input => (locked.since_input().map_or(start, |(offset, _)| offset.max(start)), None),
            Since::Now => (locked.output.ring.end(), None),
            Since::Start => (start, None),
            Since::Lines(lines) => (locked.lines_back(*lines), None),
            Since::Ago(ago) => (locked.output.printed_since(clock::ago_ms(*ago)), None),
            Since::Time(at) => (locked.output.printed_since(*at), None),
            Since::At(cursor) => self.locate(locked, cursor)?,
            Since::Screen => {
                return Err(Error::invalid(
                    "since: a read accepts input, start, now, lines:N, an age (10m) or a cursor; \
                     for the screen use capture",
                ));
            }
        })
    }

    /// Returns the offset at which a read ends.
    pub(crate) fn resolve_until(&self, locked: &LockedPane, until: &Since) -> Result<u64> {
        match until {
            Since::Ago(ago) => return Ok(locked.output.printed_until(clock::ago_ms(*ago))),
            Since::Time(at) => return Ok(locked.output.printed_until(*at)),
            _ => {}
        }
        match self.resolve_since(locked, until).map_err(of_until)? {
            (offset, None | Some(Gap { reason: GapReason::Trimmed, .. })) => Ok(offset),
            _ => Err(Error::invalid(
                "until: this cursor belongs to another run of muxtap or tmux, whose output is not in this stream",
            )),
        }
    }

    /// Returns the offset of a cursor in this stream. For a cursor of another epoch, or one whose
    /// bytes were dropped, returns the start of the remaining output and the gap before it.
    pub(crate) fn locate(&self, locked: &LockedPane, cursor: &Cursor) -> Result<(u64, Option<Gap>)> {
        let start = locked.output.ring.start();
        if cursor.pane != self.id() {
            return Err(Error::invalid(format!(
                "since: this cursor belongs to pane {}, not to {}",
                cursor.pane,
                self.id()
            )));
        }
        let epoch = self.epoch();
        if cursor.epoch.server != epoch.server {
            return Ok((start, Some(Gap::new(GapReason::ServerRestarted, None))));
        }
        if cursor.epoch.engine != epoch.engine {
            return Ok((start, Some(Gap::new(GapReason::MuxtapRestarted, None))));
        }
        if cursor.offset > locked.output.ring.end() {
            return Err(Error::invalid(
                "since: this cursor points past the end of the stream; this muxtap did not issue it",
            ));
        }
        if cursor.offset < start {
            return Ok((start, Some(Gap::new(GapReason::Trimmed, Some(start - cursor.offset)))));
        }
        Ok((cursor.offset, None))
    }
}

/// Output of a command that may have moved up to rewrite its own lines.
pub(crate) struct Redrawable {
    output: Vec<u8>,
    size: screen::Size,
}

impl Redrawable {
    /// Returns the text that the output leaves on the screen, if it rewrites its own lines. Never called under a pane's
    /// lock.
    pub(crate) fn text(&self) -> Option<String> {
        screen::redrawn(&self.output, self.size)
    }
}

impl LockedPane {
    /// Returns the way in which a reader of this format reads.
    pub(crate) fn reading(&self, most: u64, format: ReadFormat) -> Reading {
        Reading { most, whole_sequences: format != ReadFormat::Raw, at_end: self.process.has_ended() }
    }

    /// Returns complete output of a command for [`Redrawable::text`]. `None` if a part of it is missing, or the pane's
    /// size has changed since its beginning.
    pub(crate) fn redrawable(&self, from: u64, to: u64) -> Option<Redrawable> {
        let ring = &self.output.ring;
        if from < ring.start() || from < self.output.resized_at || to.saturating_sub(from) > REDRAWN_BYTES {
            return None;
        }
        let chunk = ring.read(from, Reading { most: to - from, whole_sequences: false, at_end: false });
        let is_whole = chunk.start == from && chunk.end == to && chunk.gap.is_none();
        is_whole.then(|| Redrawable { output: chunk.shown().into_owned(), size: self.size() })
    }

    /// Returns the pane's size.
    pub(crate) fn size(&self) -> screen::Size {
        self.output.screen.last().map_or_else(|| screen_size(self.metadata.size), Screen::size)
    }

    /// Returns when the output from this offset on was printed: offsets, and milliseconds since
    /// 1970.
    pub(crate) fn output_times(&self, from: u64) -> Vec<(u64, u64)> {
        self.output.times_from(from)
    }

    /// Returns where the output printed at a time or later begins; the time in milliseconds since
    /// 1970.
    pub(crate) fn printed_since(&self, at_ms: u64) -> u64 {
        self.output.printed_since(at_ms)
    }

    /// Returns the unfinished last line.
    pub(crate) fn resting_line(&self) -> String {
        self.output.resting_line()
    }

    /// Returns where the last `lines` lines begin.
    pub(crate) fn lines_back(&self, lines: u32) -> u64 {
        let (start, end) = (self.output.ring.start(), self.output.ring.end());
        let mut from = end;
        let mut left = lines;
        // Searches backward from the end in pieces, until there are enough line ends.
        let mut last = true;
        while from > start {
            let to = from;
            from = from.saturating_sub(4096).max(start);
            let bytes = self.output.ring.bytes(from, to);
            for (index, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
                if self.output.ring.is_hidden(from + index as u64) {
                    continue;
                }
                // A line end followed by nothing visible (the mark of an exit wrapper, a reset of
                // colors) belongs to the last line.
                if std::mem::take(&mut last) && self.shows_nothing(from + index as u64 + 1) {
                    continue;
                }
                if left <= 1 {
                    return if lines == 0 { end } else { from + index as u64 + 1 };
                }
                left -= 1;
            }
        }
        if lines == 0 { end } else { start }
    }

    /// Returns whether the output from this offset to the end shows no character.
    fn shows_nothing(&self, from: u64) -> bool {
        let end = self.output.ring.end();
        end - from <= limits::LAST_LINE_BYTES && render::render_text(&self.output.ring, from, end).is_empty()
    }
}

/// Turns an error about `since` into one about `until`, which takes the same values.
pub(crate) fn of_until(mut error: Error) -> Error {
    error.message = error.message.replacen("since:", "until:", 1);
    error
}
