//! Results of tools, where they differ from HTTP's answers.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::{AgentInfo, Gap, PaneInfo, SessionInfo, WindowInfo};

/// A tool's result: a text for the model, and the same as JSON.
#[derive(Clone, Debug)]
pub struct ToolOutput {
    /// The text.
    pub text: String,
    /// All of it.
    pub answer: Value,
}

/// Answers `list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ListOutput {
    /// Sessions, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub sessions: Option<Vec<SessionInfo>>,
    /// Windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub windows: Option<Vec<WindowInfo>>,
    /// Panes; those that have ended and can still be read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub panes: Option<Vec<PaneInfo>>,
    /// Agents; those that ended lately last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub agents: Option<Vec<AgentInfo>>,
}

impl ListOutput {
    /// Formats one line for each item.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for one in self.sessions.iter().flatten() {
            let _ = writeln!(text, "{} {}: {} windows, {} attached", one.id, one.name, one.windows, one.attached);
        }
        for one in self.windows.iter().flatten() {
            let active = if one.active { " (active)" } else { "" };
            let _ =
                writeln!(text, "{} {}:{} {}, {} panes{active}", one.id, one.session, one.index, one.name, one.panes);
        }
        for one in self.panes.iter().flatten() {
            let state = match (one.dead, one.exit_status) {
                (false, _) => String::new(),
                (true, Some(status)) => format!(" (ended with {status})"),
                (true, None) => " (ended)".to_owned(),
            };
            let state = if one.earlier_server { " (ended, on an earlier server)".to_owned() } else { state };
            let place = format!("{}:{}.{}", one.session, one.window_index, one.index);
            let _ = writeln!(text, "{} {place} {} in {}{state}", one.id, one.command, one.path);
        }
        for one in self.agents.iter().flatten() {
            let place = format!("{}:{}.{}", one.session, one.window_index, one.index);
            let asks = one.question.as_deref().map(|question| format!(": {question}")).unwrap_or_default();
            let _ = writeln!(text, "{} {place} {} {}{asks}", one.pane, one.name, one.state.as_str());
        }
        if text.is_empty() { "nothing is there".to_owned() } else { text }
    }
}

/// Answers `capture_pane`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CaptureOutput {
    /// The pane.
    pub pane: String,
    /// Text it shows.
    pub text: String,
    /// Where the next `read_since` goes on.
    pub cursor: String,
    /// Characters that were cut out of the text's middle.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
}

/// Answers `read_since`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadOutput {
    /// The pane.
    pub pane: String,
    /// The text.
    pub text: String,
    /// Where the next `read_since` goes on.
    pub cursor: String,
    /// Characters that were cut out of the text's middle.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// More is there already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Something is missing before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    pub gap: Option<Gap>,
    /// The process has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exited: bool,
    /// With which status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
}

/// Answers `run`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RunOutput {
    /// The pane.
    pub pane: String,
    /// Its output.
    pub output: String,
    /// Its exit status, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// How long it took.
    pub duration_ms: u64,
    /// The end of its output.
    pub cursor: String,
    /// Characters that were cut out of the output's middle.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// The beginning of the output was dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The shell ended with the command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shell_ended: bool,
}

/// Answers `watch`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WatchOutput {
    /// The events, the output of a pane together.
    #[schema(value_type = Vec<Object>)]
    pub events: Vec<Value>,
    /// Give it to the next call: nothing in between is missed.
    pub resume: String,
}

/// Answers `search`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SearchOutput {
    /// Panes that were looked through.
    pub searched: usize,
    /// Lines that match, told or not.
    pub matches: usize,
    /// The last of them, pane by pane.
    #[schema(value_type = Vec<Object>)]
    pub lines: Vec<MatchingLine>,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MatchingLine {
    /// The pane.
    pub pane: String,
    /// Its number among the lines that are kept, from 1.
    pub number: usize,
    /// The line.
    pub line: String,
}

impl SearchOutput {
    /// Keeps the last `most` lines, so that every pane keeps some.
    pub(super) fn take_last(&mut self, of_panes: BTreeMap<String, Vec<(usize, String)>>, most: usize) {
        let with_hits = of_panes.values().filter(|lines| !lines.is_empty()).count().max(1);
        let each = most.div_ceil(with_hits);
        for (pane, lines) in of_panes {
            let from = lines.len().saturating_sub(each);
            let last = lines.into_iter().skip(from);
            self.lines.extend(last.map(|(number, line)| MatchingLine { pane: pane.clone(), number, line }));
        }
    }

    /// Formats the lines as grep prints them.
    pub fn text(&self) -> String {
        let mut text = format!("{} matching lines in {} panes\n", self.matches, self.searched);
        for MatchingLine { pane, number, line } in &self.lines {
            let _ = writeln!(text, "{pane}:{number}: {line}");
        }
        text
    }
}

/// Finds the lines that match; returns the last `most` of them, and how many match.
pub(super) fn matching_lines(pattern: &regex::Regex, text: &str, most: usize) -> (Vec<(usize, String)>, usize) {
    const LINE_CHARS: usize = 500;
    let mut found: Vec<(usize, &str)> = Vec::new();
    let mut count = 0;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| pattern.is_match(line)) {
        count += 1;
        if found.len() == 2 * most {
            found.drain(..most);
        }
        found.push((number + 1, line));
    }
    let from = found.len().saturating_sub(most);
    let cut = |line: &str| line.chars().take(LINE_CHARS).collect();
    (found.split_off(from).into_iter().map(|(number, line)| (number, cut(line))).collect(), count)
}

// Reasons: serde calls it with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_and_all_are_counted() {
        let lines: Vec<_> = (1..=1000).map(|number| format!("line {number}")).collect();
        let text = lines.join("\n");
        let (lines, count) = matching_lines(&regex::Regex::new("7$").unwrap(), &text, 3);
        assert_eq!((count, lines.len()), (100, 3));
        assert_eq!(lines.last(), Some(&(997, "line 997".to_owned())));
    }

    #[test]
    fn every_pane_keeps_some_of_its_lines() {
        let lines = |count| (1..=count).map(|number| (number, "x".to_owned())).collect();
        let mut output = SearchOutput::default();
        output
            .take_last(BTreeMap::from([("%1".into(), lines(100)), ("%2".into(), lines(1)), ("%3".into(), vec![])]), 10);
        assert_eq!(output.lines.iter().filter(|line| line.pane == "%1").count(), 5);
        assert_eq!(output.lines.last().unwrap().pane, "%2");
    }
}
