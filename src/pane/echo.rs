//! stub
use super::text::{Control, TextSink};
/// x
#[derive(Debug, Default)]
pub struct EchoFilter {}
/// x
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// x
    Answer,
    /// x
    Echo,
    /// x
    Undecided,
}
impl EchoFilter {
    /// x
    pub fn is_idle(&self) -> bool {
        true
    }
    /// x
    pub fn typed(&mut self, _mark: u64, _text: &[u8], _line: String, _columns: u16, _echo: bool) {}
    /// x
    pub fn verdict(&self, _start: u64, _end: u64, _text: &str) -> Verdict {
        Verdict::Answer
    }
}
impl TextSink for EchoFilter {
    fn text(&mut self, _: u64, _: &[u8]) {}
    fn control(&mut self, _: u64, _: Control) {}
}
