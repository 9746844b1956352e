//! The text of a session, line by line, for waits.

use muxtap_api::{AgentCondition, AgentEvent, Error, Result};
use muxtap_core::stream::patterns::{Limits, TextPattern, compile_one};
use regex_syntax::hir::Look;

/// The number of last bytes that are kept of an unfinished line.
pub(super) const LINE_BYTES: usize = 64 << 10;
/// The maximum size of a compiled pattern, in bytes.
const PATTERN_BYTES: usize = 1 << 20;

/// A splitter of an agent's messages and its tools' output into lines.
///
/// A message comes in parts; its last line is open until something else follows. If the agent gives
/// messages ids, a tool's output does not end a message, and another id does.
#[derive(Debug, Default)]
pub(super) struct TextLines {
    open: String,
    /// The id of the open line's message.
    id: Option<String>,
}

impl TextLines {
    /// Processes an event, and passes on its lines, and whether each is finished.
    pub(super) fn feed(&mut self, event: &AgentEvent, mut line: impl FnMut(&str, bool)) {
        match event {
            AgentEvent::Message { text, message_id } => {
                if *message_id != self.id {
                    self.close(&mut line);
                    self.id.clone_from(message_id);
                }
                let mut parts = text.split('\n').peekable();
                while let Some(part) = parts.next() {
                    self.open.push_str(part);
                    if parts.peek().is_some() {
                        line(self.open.trim_end_matches('\r'), true);
                        self.open.clear();
                    }
                }
                if self.open.len() > LINE_BYTES {
                    let surplus = self.open.len() - LINE_BYTES;
                    let from = (surplus..=self.open.len()).find(|at| self.open.is_char_boundary(*at));
                    self.open.drain(..from.unwrap_or_default());
                }
                if !self.open.is_empty() {
                    line(&self.open, false);
                }
            }
            AgentEvent::Tool { title, text, .. } => {
                if self.id.is_none() {
                    self.close(&mut line);
                }
                title.iter().flat_map(|title| title.lines()).chain(text.lines()).for_each(|text| line(text, true));
            }
            // These may come between the parts of a message.
            AgentEvent::Thought { .. }
            | AgentEvent::Update { .. }
            | AgentEvent::Fault { .. }
            | AgentEvent::Options { .. }
            | AgentEvent::Plan { .. }
            | AgentEvent::Usage { .. }
            | AgentEvent::Title { .. } => {}
            _ => self.close(&mut line),
        }
    }

    fn close(&mut self, line: &mut impl FnMut(&str, bool)) {
        if !self.open.is_empty() {
            line(&std::mem::take(&mut self.open), true);
        }
    }
}

/// A pattern that stays matched once it has matched.
#[derive(Debug)]
pub(super) struct Pattern {
    regex: TextPattern,
    /// Whether more text after a match can undo it: the pattern looks at what follows.
    looks_behind_itself: bool,
}

impl Pattern {
    /// Compiles a pattern. Error: `INVALID_ARGUMENT`, with the reason.
    pub(super) fn new(text: &str) -> Result<Self> {
        let limits = Limits { compiled_bytes: PATTERN_BYTES, ..Limits::default() };
        let regex = compile_one("pattern", text, &limits)?;
        let hir = regex_syntax::parse(text).map_err(|error| Error::invalid(format!("pattern: {error}")))?;
        let looks = hir.properties().look_set();
        let looks_behind_itself = looks.iter().any(|look| !matches!(look, Look::Start | Look::StartLF));
        Ok(Self { regex, looks_behind_itself })
    }

    /// Returns the memory that the pattern uses, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.regex.memory()
    }

    /// Searches a line for the pattern.
    ///
    /// A match that reaches the end of an unfinished line counts only if more text cannot undo it.
    pub(super) fn find(&self, line: &str, finished: bool, condition: &mut AgentCondition) {
        let Some(hit) = self.regex.find(line) else { return };
        let reaches_end = hit.range().end == line.len();
        if !finished && reaches_end && self.looks_behind_itself {
            return;
        }
        condition.met = true;
        condition.line = Some(super::acp::cut(line.to_owned(), super::acp::DETAIL_BYTES));
        condition.captures = hit.groups().map(|group| group.map(str::to_owned)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> AgentEvent {
        AgentEvent::Message { text: text.into(), message_id: None }
    }

    fn lines(events: &[AgentEvent]) -> Vec<String> {
        let (mut text, mut lines) = (TextLines::default(), Vec::new());
        for event in events {
            text.feed(event, |line, finished| lines.push(format!("{line}{}", if finished { "." } else { "…" })));
        }
        lines
    }

    #[test]
    fn a_message_that_comes_in_parts_is_one_text() {
        let end = AgentEvent::Started { prompt: 1 };
        assert_eq!(lines(&[message("one\ntw"), message("o"), end.clone()]), ["one.", "tw…", "two…", "two."]);
        let thought = AgentEvent::Thought { text: "hm".into(), message_id: None };
        assert_eq!(lines(&[message("a"), thought, message("b")]), ["a…", "ab…"]);
        let tool = AgentEvent::Tool {
            id: "t".into(),
            title: Some("Run x".into()),
            kind: None,
            status: None,
            text: "1\n2\n".into(),
        };
        assert_eq!(lines(&[message("a"), tool, message("b")]), ["a…", "a.", "Run x.", "1.", "2.", "b…"]);
    }

    #[test]
    fn another_id_begins_another_message_and_the_same_id_continues_one() {
        let part = |id: &str, text: &str| AgentEvent::Message { text: text.into(), message_id: Some(id.into()) };
        assert_eq!(lines(&[part("1", "a"), part("2", "b")]), ["a…", "a.", "b…"]);
        let tool = AgentEvent::Tool {
            id: "t".into(),
            title: Some("Run".into()),
            kind: None,
            status: None,
            text: String::new(),
        };
        assert_eq!(lines(&[part("1", "a"), tool, part("1", "b")]), ["a…", "Run.", "ab…"]);
        assert_eq!(lines(&[part("1", "a"), message("b"), message("c")]), ["a…", "a.", "b…", "bc…"]);
    }

    #[test]
    fn an_unfinished_line_is_bounded() {
        let mut text = TextLines::default();
        for _ in 0..100 {
            text.feed(&message(&"ü".repeat(5_000)), |line, _| assert!(line.len() <= LINE_BYTES));
        }
    }

    #[test]
    fn a_match_counts_at_once_unless_more_text_can_undo_it() {
        let met = |pattern: &str, line: &str, finished| {
            let mut condition = AgentCondition::new("pattern", None);
            Pattern::new(pattern).unwrap().find(line, finished, &mut condition);
            condition.met
        };
        assert!(met("^done", "done", false) && met("(\\d+) passed", "3 passed", false));
        assert!(!met("done$", "done", false) && met("done$", "done", true));
        assert!(!met(r"\bcat\b", "cat", false) && met(r"\bcat\b", "cat sat", false));
        assert!(Pattern::new("(").is_err() && Pattern::new(&"(a{1000}){1000}".repeat(3)).is_err());
    }
}
