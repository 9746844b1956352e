//! Is a match an answer, or only the echo of what was typed?
use super::{
    render::RestingLine,
    text::{Control, TextSink},
};

/// What a match is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Output.
    Answer,
    /// What was typed, shown again.
    Echo,
    /// It cannot be told before more has been printed.
    Undecided,
}

/// Knows what was typed in a pane, and where it was echoed.
#[derive(Debug, Default)]
pub struct EchoFilter {}

impl EchoFilter {
    /// This was typed.
    pub fn typed(
        &mut self,
        mark: u64,
        text: &[u8],
        resting_line: impl Into<RestingLine>,
        columns: u16,
        tty_echo: bool,
    ) {
        let _ = (mark, text, resting_line.into(), columns, tty_echo);
    }
    /// Whether it need not be fed.
    pub fn is_idle(&self) -> bool {
        true
    }
    /// What the match between two raw offsets is.
    pub fn verdict(&self, _start: u64, _end: u64, _text: &str) -> Verdict {
        Verdict::Answer
    }
}

impl TextSink for EchoFilter {
    fn text(&mut self, _offset: u64, _text: &[u8]) {}
    fn control(&mut self, _offset: u64, _control: Control) {}
}
