//! Derives the state of a Claude session from its pane's screen.

use std::sync::LazyLock;

use regex::Regex;

/// The number of last lines that determine the state.
const LAST_LINES: usize = 20;

/// Matches the command line of a Claude process, which makes its pane a Claude pane. Never `None`:
/// the pattern is a constant.
static CLAUDE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)/claude\b|^claude\b").ok());

/// The state of a Claude session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Claude works.
    Active,
    /// Claude asks for a permission.
    Waiting,
    /// Claude does neither.
    Idle,
}

impl State {
    /// Returns the state that these lines show; the last line is the newest.
    pub fn of(lines: &[&str]) -> Self {
        let last = lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default();
        let shows = |mark: &str| last.iter().any(|line| line.contains(mark));
        if shows("Do you want to proceed?") {
            Self::Waiting
        } else if shows("esc to interrupt") {
            Self::Active
        } else {
            Self::Idle
        }
    }

    /// Returns the state's name in the tool's results.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Waiting => "Waiting for permission",
            Self::Idle => "Idle",
        }
    }
}

/// Returns whether a process with this command line is a Claude.
pub(super) fn is_claude(command_line: &str) -> bool {
    CLAUDE.as_ref().is_some_and(|claude| claude.is_match(command_line))
}

/// Returns the lines of a capture without the empty ones at its end.
pub(super) fn lines_of(capture: &str) -> Vec<&str> {
    let mut lines: Vec<_> = capture.lines().collect();
    while lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_counts_before_work_and_only_in_the_last_lines() {
        assert_eq!(State::of(&["Do you want to proceed?", "esc to interrupt"]), State::Waiting);
        assert_eq!(State::of(&["* Thinking (esc to interrupt)"]), State::Active);
        assert_eq!(State::of(&["> "]), State::Idle);
        let mut lines = vec!["Do you want to proceed?"];
        lines.extend(["x"; LAST_LINES]);
        assert_eq!(State::of(&lines), State::Idle);
    }

    #[test]
    fn claude_is_known_by_any_processs_command_line() {
        for yes in ["claude", "claude -p x", "/bin/sh /opt/Claude x", "node /x/claude.js", "CLAUDE"] {
            assert!(is_claude(yes), "{yes}");
        }
        for no in ["claudette", "vim claude", "sh -c claude", "/x/claudes"] {
            assert!(!is_claude(no), "{no}");
        }
    }

    #[test]
    fn empty_lines_at_the_end_are_no_output() {
        assert_eq!(lines_of("a\n\nb\n  \n\n"), ["a", "", "b"]);
        assert!(lines_of("\n\n").is_empty());
    }
}
