//! Output text: what a pane printed, without its escape sequences.

/// Receives the events that [`TextDecoder`](super::decoder::TextDecoder) finds in a pane's bytes.
/// Offsets are absolute raw offsets in the pane's stream.
pub trait TextSink {
    /// Receives printable text, a slice of the input wherever possible. `offset` is the raw offset
    /// of its first byte, and byte `i` of `text` is at raw offset `offset + i` (a replacement
    /// character for invalid bytes comes in a call of its own). `text` is valid UTF-8 as a whole
    /// and contains neither `\n` nor `\r`; tabs are kept, other C0 controls are not text.
    fn text(&mut self, offset: u64, text: &[u8]);
    /// Receives a control character or sequence that moves the cursor within or between lines, or
    /// rewrites the line.
    fn control(&mut self, offset: u64, control: Control);
    /// Receives an event that is not text: a bell, a title, a shell's mark, any other OSC.
    fn mark(&mut self, _start: u64, _end: u64, _mark: Mark<'_>) {}
    /// Receives the number of the cursor's line before a mark, if a screen is fed with the same
    /// output ([`Ring::push_and_draw`](super::ring::Ring::push_and_draw)); `None` on the alternate
    /// screen.
    fn line(&mut self, _line: Option<u64>) {}
}

/// A control that moves the cursor or rewrites a line, limited to those that text reads need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// `\n` (and VT, FF). `\r\n` arrives as `CarriageReturn` then `LineFeed`.
    LineFeed,
    /// A `\r`.
    CarriageReturn,
    /// `\x08`.
    Backspace,
    /// A CSI sequence with its final byte and first two parameters (0 where absent); private and
    /// intermediate forms are not reported.
    Csi(u8, u16, u16),
    /// A screen-clearing full reset (`ESC c`).
    Reset,
}

/// An event in the output that is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark<'a> {
    /// BEL outside of a sequence.
    Bell,
    /// OSC 0 or 2, or `ESC k … ST`: the new title, raw bytes.
    Title(&'a [u8]),
    /// OSC 133: the bytes after `133;`, raw (`A`, `B`, `C`, `D;0` …).
    Prompt(&'a [u8]),
    /// Any other OSC: the whole payload.
    Osc(&'a [u8]),
    /// The beginning of an OSC that is longer than
    /// [`PAYLOAD_LIMIT`](super::decoder::PAYLOAD_LIMIT) and no title. The rest is skipped.
    Long(&'a [u8]),
}

/// A sink that drops everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl TextSink for NullSink {
    fn text(&mut self, _offset: u64, _text: &[u8]) {}
    fn control(&mut self, _offset: u64, _control: Control) {}
}
