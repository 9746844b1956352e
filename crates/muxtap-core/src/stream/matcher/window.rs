//! The recent part of the match text, and its place in the raw stream.

use memchr::memrchr;
use serde::{Deserialize, Serialize};

use crate::stream::text::{Control, TextSink};

/// A run of match text and the raw bytes that it represents.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Run {
    /// The position of its first byte.
    at: u64,
    /// The raw offset of its first byte.
    raw: u64,
    /// The number of raw bytes that the whole run represents, where that is not one for each byte.
    width: Option<u8>,
}

/// Match text from some position on. Positions count bytes of match text since the matcher's
/// creation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Window {
    #[serde(with = "crate::stored::bytes")]
    bytes: Vec<u8>,
    base: u64,
    runs: Vec<Run>,
    line: u64,
    /// The raw offset of the last `\r` of a run: it may be the beginning of a `\r\n`.
    held: Option<u64>,
    /// Whether a `\r` was passed on as a line end before the next byte was known.
    released: bool,
}

/// The bytes of context that are kept before the first position at which a search may begin: a
/// whole character.
const BEHIND: u64 = 4;
/// The replacement character; alone in a call, it represents one raw byte or more.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

impl Window {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Returns the position after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }
    /// Returns the position at which the current line begins.
    pub(super) fn line(&self) -> u64 {
        self.line
    }
    /// Returns the index of a position, or of the nearest existing one if the position was dropped
    /// or does not exist yet.
    pub(super) fn index(&self, position: u64) -> usize {
        (position.saturating_sub(self.base) as usize).min(self.bytes.len())
    }
    pub(super) fn position(&self, index: usize) -> u64 {
        self.base + index as u64
    }
    /// Returns the byte before a position; `None` at the start.
    pub(super) fn behind(&self, position: u64) -> Option<u8> {
        self.index(position).checked_sub(1).and_then(|index| self.bytes.get(index)).copied()
    }
    /// Returns the first position at which a search has the context before it.
    pub(super) fn floor(&self) -> u64 {
        if self.base == 0 {
            return 0;
        }
        let first = self.bytes.iter().skip(1).position(|byte| !(0x80..0xc0).contains(byte));
        self.base + first.map_or(self.bytes.len(), |rest| rest + 1) as u64
    }
    /// Returns the start of the line that contains the byte before `end`.
    pub(super) fn line_of(&self, end: u64) -> u64 {
        let index = self.index(end);
        let before = self.bytes.get(..index).unwrap_or_default();
        memrchr(b'\n', before).map_or(self.base, |found| self.position(found + 1))
    }
    pub(super) fn holds_return(&self) -> bool {
        self.held.is_some()
    }
    /// Records that the stream rests: a `\r` at its end counts as a line end; a later `\n` belongs
    /// to that line end.
    pub(super) fn release(&mut self) {
        if self.held.is_some() {
            self.flush();
            self.released = true;
        }
    }

    /// Drops the text before `keep`, except for one character, when that is worth the copy.
    pub(super) fn trim(&mut self, keep: u64) {
        let mut cut = self.index(keep.saturating_sub(BEHIND));
        while cut > 0 && self.bytes.get(cut).is_some_and(|byte| (0x80..0xc0).contains(byte)) {
            cut -= 1;
        }
        if cut == 0 || cut < self.bytes.len() / 2 {
            return;
        }
        self.bytes.drain(..cut);
        self.base += cut as u64;
        let before = self.runs.partition_point(|run| run.at <= self.base);
        self.runs.drain(..before.saturating_sub(1));
        // Frees the memory of a burst.
        if self.bytes.capacity() > 8 << 10 && self.bytes.len() < self.bytes.capacity() / 4 {
            self.bytes.shrink_to(self.bytes.len().max(4 << 10));
        }
        if self.runs.capacity() > 256 && self.runs.len() < self.runs.capacity() / 4 {
            self.runs.shrink_to(self.runs.len().max(64));
        }
    }

    fn run_at(&self, position: u64) -> Option<&Run> {
        self.runs.get(self.runs.partition_point(|run| run.at <= position).checked_sub(1)?)
    }
    /// Returns the raw offset of the byte at a position.
    pub(super) fn raw_start(&self, position: u64) -> u64 {
        self.run_at(position)
            .map_or(0, |run| if run.width.is_some() { run.raw } else { run.raw + position.saturating_sub(run.at) })
    }
    /// Returns the raw offset just after the byte before a position.
    pub(super) fn raw_end(&self, position: u64) -> u64 {
        let last = position.saturating_sub(1);
        self.run_at(last).map_or(0, |run| match run.width {
            Some(width) => run.raw + u64::from(width),
            None => run.raw + last.saturating_sub(run.at) + 1,
        })
    }

    fn push(&mut self, raw: u64, text: &[u8], width: Option<u8>) {
        let at = self.end();
        let follows = width.is_none()
            && self.runs.last().is_some_and(|run| run.width.is_none() && run.raw + (at - run.at) == raw);
        if !follows {
            self.runs.push(Run { at, raw, width });
        }
        self.bytes.extend_from_slice(text);
    }
    fn end_line(&mut self, raw: u64, width: Option<u8>) {
        self.push(raw, b"\n", width);
        self.line = self.end();
    }
    fn flush(&mut self) {
        if let Some(raw) = self.held.take() {
            self.end_line(raw, None);
        }
    }

    /// Returns the number of bytes held.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.runs.capacity() * size_of::<Run>()
    }
}

impl TextSink for Window {
    fn text(&mut self, offset: u64, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        self.flush();
        self.released = false;
        self.push(offset, text, (text == REPLACEMENT).then_some(1));
    }

    fn control(&mut self, offset: u64, control: Control) {
        match control {
            Control::CarriageReturn => {
                if !self.released {
                    self.held = Some(offset);
                }
            }
            Control::LineFeed => {
                self.held = None;
                if !std::mem::take(&mut self.released) {
                    self.end_line(offset, None);
                }
            }
            Control::Csi(b'A' | b'B' | b'E' | b'F' | b'H' | b'f' | b'd' | b'e', ..)
            | Control::Csi(b'J', 2.., _)
            | Control::Reset => {
                self.flush();
                self.released = false;
                if self.line < self.end() {
                    // This line end represents no raw byte: a read from its end on gets the whole
                    // sequence.
                    self.end_line(offset, Some(0));
                }
            }
            // A match cannot be taken back.
            Control::Backspace | Control::Csi(..) => {}
        }
    }
}
