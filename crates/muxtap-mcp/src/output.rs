//! Results of tools that differ from HTTP's responses.

use std::{
    collections::VecDeque,
    fmt::{self, Write as _},
};

use muxtap_api::{
    AgentInfo, AgentOption, CommandInfo, Error, ErrorCode, Gap, HostInfo, PaneInfo, SeenMarks, SessionInfo, SubmitSeen,
    Verified, WindowInfo,
};
use muxtap_base::plain;
use muxtap_engine::RunReport;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    args::ListKind,
    quoted::{push_quoted, push_row},
    truncate::PAGE_CHARS,
};

/// A tool's result: a text for the model, and the same as JSON.
#[derive(Clone, Debug)]
pub struct ToolOutput {
    /// The text.
    pub text: String,
    /// The complete result.
    pub answer: Value,
    /// Whether the result says that the tool could not do what was requested.
    pub is_error: bool,
}

/// Fields that contain the id of a pane, a window or a session.
const IDS: [&str; 8] = ["id", "pane", "panes", "window", "session", "window_id", "session_id", "pane_id"];

impl ToolOutput {
    /// Returns the output with ids as named from this host, `HOST/%3`. The text gives the host
    /// once: it may contain a pane's output.
    pub fn on_host(mut self, host: &str) -> Self {
        name_ids(&mut self.answer, host);
        let _ = write!(self.text, "\n{}", host_note(host));
        self
    }
}

/// Returns an error of a call about a host with ids as named from this host, and a note that names
/// the host.
pub(super) fn error_on_host(mut error: Error, host: &str) -> Error {
    let is_named = error.details.as_ref().is_some_and(|details| details.get("host").is_some());
    // What this host itself refuses is not about the other one.
    if is_named || matches!(error.code, ErrorCode::ReadOnly | ErrorCode::Unauthorized) {
        return error;
    }
    if let Some(details) = &mut error.details {
        name_ids(details, host);
    }
    let _ = write!(error.message, " {}", host_note(host));
    error
}

fn host_note(host: &str) -> String {
    format!("(on host {host}: its ids are {host}/%3, {host}/@1, {host}/$0 here)")
}

/// Prefixes the ids of each item of a list with the host that the item names.
pub(super) fn name_ids_of_items(answer: &mut Value) {
    let lists = answer.as_object_mut().into_iter().flat_map(|fields| fields.values_mut());
    for item in lists.filter_map(Value::as_array_mut).flatten() {
        if let Some(host) = item.get("host").and_then(Value::as_str).map(str::to_owned) {
            name_ids(item, &host);
        }
    }
}

fn name_ids(value: &mut Value, host: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| name_ids(item, host)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(id) if IDS.contains(&name.as_str()) && is_id(id) => *id = format!("{host}/{id}"),
                    Value::Array(items) if IDS.contains(&name.as_str()) => {
                        for item in items {
                            match item {
                                Value::String(id) if is_id(id) => *id = format!("{host}/{id}"),
                                item => name_ids(item, host),
                            }
                        }
                    }
                    value => name_ids(value, host),
                }
            }
        }
        _ => {}
    }
}

fn is_id(text: &str) -> bool {
    let digits = text.strip_prefix(['%', '@', '$']);
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The result of `list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ListOutput {
    /// Sessions, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub sessions: Option<Vec<SessionInfo>>,
    /// Windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub windows: Option<Vec<WindowInfo>>,
    /// Panes; ended ones that can still be read come last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub panes: Option<Vec<PaneInfo>>,
    /// Agents; those that ended recently come last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub agents: Option<Vec<AgentInfo>>,
    /// Commands of a pane, the earliest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>, required = false)]
    pub commands: Option<Vec<CommandInfo>>,
    /// With commands: the marks that the pane's shells have printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub marks: Option<SeenMarks>,
    /// With `everywhere`: the hosts that returned nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    pub unreachable: Vec<HostInfo>,
}

impl ListOutput {
    /// Returns an empty list.
    pub(super) fn empty(what: ListKind) -> Self {
        let mut empty = Self::default();
        match what {
            ListKind::Sessions => empty.sessions = Some(Vec::new()),
            ListKind::Windows => empty.windows = Some(Vec::new()),
            ListKind::Panes => empty.panes = Some(Vec::new()),
            ListKind::Agents => empty.agents = Some(Vec::new()),
            ListKind::Commands => empty.commands = Some(Vec::new()),
        }
        empty
    }

    /// Formats one line for each item. `everywhere`: ids begin with the item's host.
    pub fn text(&self, everywhere: bool) -> String {
        let mut text = String::new();
        let at = |host: &Option<String>| match host {
            Some(host) if everywhere => format!("{host}/"),
            _ => String::new(),
        };
        // Writing to a String cannot fail.
        for one in self.sessions.iter().flatten() {
            let (at, windows) = (at(&one.host), counted(&one.windows, "window"));
            push_row(&mut text, &format!("{at}{} {}: {windows}, {} attached", one.id, one.name, one.attached));
        }
        for one in self.windows.iter().flatten() {
            let active = if one.active { " (active)" } else { "" };
            let (at, panes) = (at(&one.host), counted(&one.panes, "pane"));
            let place = format!("{}:{}", one.session, one.index);
            push_row(&mut text, &format!("{at}{} {place} {}, {panes}{active}", one.id, one.name));
        }
        let panes = || self.panes.iter().flatten();
        // tmux's default is the host's name, which every pane has then.
        let common = panes().next().map(|one| &one.title).filter(|_| panes().count() > 1);
        let common = common.filter(|title| panes().all(|one| one.title == **title));
        for one in panes() {
            let state = match (one.dead, one.exit_status) {
                (false, _) => String::new(),
                (true, Some(status)) => format!(" (ended with {status})"),
                (true, None) => " (ended)".to_owned(),
            };
            let state = if one.earlier_server { " (ended, on an earlier server)".to_owned() } else { state };
            // A pane that has ended is in no window.
            let place = match one.session.as_str() {
                "" => String::new(),
                session => format!("{session}:{}.{} ", one.window_index, one.index),
            };
            let active = if one.active { " (active)" } else { "" };
            let is_told = !one.title.is_empty() && common.is_none();
            let title = if is_told { format!(", title {:?}", one.title) } else { String::new() };
            let at = at(&one.host);
            push_row(
                &mut text,
                &format!("{at}{} {place}{} in {}{active}{state}{title}", one.id, one.command, one.path),
            );
        }
        for one in self.agents.iter().flatten() {
            push_agent(&mut text, one, &at(&one.host));
        }
        for one in self.commands.iter().flatten() {
            push_row(&mut text, &command_line(one));
        }
        if text.is_empty() && self.marks == Some(SeenMarks::None) {
            return "no commands are known: the pane's shell has printed no marks since muxtap began to follow the pane; \
                    create with shell_integration: true starts a shell that does"
                .to_owned();
        }
        for host in &self.unreachable {
            let error = host.error.as_deref().unwrap_or_default();
            push_row(&mut text, &format!("host {} was not listed: {error}", host.name));
        }
        if text.is_empty() { "nothing found".to_owned() } else { text }
    }
}

/// Formats a count: `1 pane`, `2 panes`.
fn counted<N: fmt::Display + PartialEq + From<u8>>(count: &N, noun: &str) -> String {
    let plural = if *count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Adds an agent: its state, and its question with the answers. `at`: what its pane's id begins with,
/// the host.
pub(super) fn push_agent(to: &mut String, one: &AgentInfo, at: &str) {
    let (pane, place) = (format!("{at}{}", one.pane), format!("{}:{}.{}", one.session, one.window_index, one.index));
    push_row(to, &format!("{pane} {place} {} {}", one.name, one.state.as_str()));
    push_quoted(to, &plain::message(one.question.as_deref().unwrap_or_default()));
    push_options(to, &one.options);
    if let Some(id) = &one.question_id {
        // Writing to a String cannot fail.
        let _ = writeln!(to, "  [send_keys with target: {pane:?}, question_id: {id:?} and answer]");
    }
}

/// Adds the answers of a question, one a line.
fn push_options(to: &mut String, options: &[AgentOption]) {
    for option in options {
        let mark = if option.selected { '>' } else { ' ' };
        let detail = option.detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        push_row(to, &format!("  {mark} {}: {}{detail}", option.key, option.label));
    }
}

/// Formats the answers of the question in an error's details, if it has any.
pub(super) fn options_of(error: &Error) -> String {
    let options = error.details.as_ref().and_then(|details| details.get("options"));
    let options: Vec<AgentOption> = options.and_then(|options| Vec::deserialize(options).ok()).unwrap_or_default();
    let mut text = String::new();
    if !options.is_empty() {
        text.push('\n');
        push_options(&mut text, &options);
    }
    text
}

/// Formats a command as one line: number, trust, end and line.
fn command_line(command: &CommandInfo) -> String {
    let claimed = if command.trusted { "" } else { " (claimed)" };
    format!("{}{claimed} {}", command.number, command.summary())
}

/// The result of `capture_pane`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CaptureOutput {
    /// The pane.
    pub pane: String,
    /// The captured text.
    pub text: String,
    /// Where the next `read_since` continues.
    pub cursor: String,
    /// The number of characters before the text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// With `verify`: the comparison with tmux's own capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub verified: Option<Verified>,
}

/// The result of `read_since`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadOutput {
    /// The pane.
    pub pane: String,
    /// The text: its end, or with `max_chars` a page.
    pub text: String,
    /// Where the next `read_since` continues.
    pub cursor: String,
    /// The number of characters before the text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// Where those begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_since: Option<String>,
    /// Whether more output is available.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The output that is missing before the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    pub gap: Option<Gap>,
    /// The command whose output was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    pub command: Option<Box<CommandInfo>>,
    /// Whether the process has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exited: bool,
    /// The exit status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
}

impl ReadOutput {
    /// Formats the text, followed by the other facts.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(gap) = &self.gap {
            let reason = serde_json::to_value(gap.reason).ok();
            let reason = reason.as_ref().and_then(Value::as_str).unwrap_or_default();
            let _ = writeln!(text, "[output is missing here: {reason}]");
        }
        if let Some(since) = &self.cut_since {
            let _ = writeln!(text, "{}", the_rest("before this", self.cut, since));
        }
        let nothing = if self.command.is_some() { "(no output)" } else { "(nothing new)" };
        push_lines(&mut text, if self.text.is_empty() && !self.more { nothing } else { &self.text });
        if let Some(command) = &self.command {
            let missing = if command.whole { "" } else { "; its output is not whole" };
            push_row(&mut text, &format!("[command {}{missing}]", command_line(command)));
        }
        let more = if self.more { "; more is available: call read_since with it" } else { "" };
        let ended = match (self.exited, self.exit_status) {
            (false, _) => String::new(),
            (true, Some(status)) => format!("; the pane ended with exit status {status}"),
            (true, None) => "; the pane ended".to_owned(),
        };
        let _ = write!(text, "[cursor {}{more}{ended}]", self.cursor);
        text
    }
}

/// Adds a text and, if missing, its line end.
fn push_lines(to: &mut String, text: &str) {
    to.push_str(text);
    if !text.is_empty() && !text.ends_with('\n') {
        to.push('\n');
    }
}

/// The result of `run`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RunOutput {
    /// The outcome: `ended` or `pending`.
    pub outcome: String,
    /// The id of a pending run, for the next call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The pane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pane: Option<String>,
    /// The command's output, from its beginning.
    pub output: String,
    /// The end of `output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Whether `output` is incomplete: `read_since` with the cursor returns the rest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The last lines of the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
    /// The number of characters between output and tail.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// The exit status, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The duration.
    pub duration_ms: u64,
    /// Whether the beginning of the output was dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Whether the shell ended with the command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shell_ended: bool,
}

impl RunOutput {
    /// Converts a report.
    pub(super) fn of(id: &str, report: RunReport) -> Self {
        let RunReport { pending, pane, text, exit_status, duration_ms, shell_ended } = report;
        Self {
            outcome: if pending { "pending" } else { "ended" }.to_owned(),
            id: pending.then(|| id.to_owned()),
            pane: pane.map(|pane| pane.to_string()),
            output: text.output,
            cursor: text.cursor.map(|cursor| cursor.to_string()),
            more: text.tail.is_some(),
            tail: text.tail,
            cut: text.cut,
            exit_status,
            duration_ms,
            truncated: text.truncated,
            shell_ended,
        }
    }

    /// Formats both ends of the output, followed by how it ended.
    pub fn text(&self) -> String {
        let mut text = if self.truncated { "[the beginning was dropped]\n".to_owned() } else { String::new() };
        let cursor = self.cursor.as_deref().unwrap_or_default();
        push_output(&mut text, &self.output, self.tail.as_deref(), self.cut, cursor);
        if let Some(id) = &self.id {
            let _ = write!(text, "[pending after {} ms: call run with id: {id:?} for the result]", self.duration_ms);
            return text;
        }
        let status = self.exit_status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        let shell = if self.shell_ended { "; the shell ended with the command" } else { "" };
        let _ = write!(text, "[exit status {status}{shell}]");
        text
    }
}

/// Formats the output in an error's details, if it has any.
pub(super) fn output_so_far(error: &Error) -> String {
    let Some(details) = &error.details else { return String::new() };
    let text = |field: &str| details.get(field).and_then(Value::as_str);
    let Some(output) = text("output") else { return String::new() };
    let cut = details.get("cut").and_then(Value::as_u64).and_then(|cut| usize::try_from(cut).ok());
    let mut so_far = "\nIts output so far:\n".to_owned();
    if output.is_empty() {
        so_far.push_str("(none)\n");
    }
    push_output(&mut so_far, output, text("tail"), cut.unwrap_or_default(), text("cursor").unwrap_or_default());
    // The last line is muxtap's: the output can contain one that looks like it.
    match text("id") {
        Some(id) => {
            let _ = write!(so_far, "[still running: call run with id: {id:?}]");
        }
        None => so_far.push_str("[end of its output]"),
    }
    so_far
}

/// Says how many characters are not shown, and how to read them.
pub(super) fn the_rest(place: &str, cut: usize, since: &str) -> String {
    format!("[… {cut} characters {place}: read_since with since: {since:?}, max_chars: {PAGE_CHARS} …]")
}

/// Adds both ends of an output, and between them the length of the cut and where to read it.
fn push_output(to: &mut String, output: &str, tail: Option<&str>, cut: usize, cursor: &str) {
    push_lines(to, output);
    let Some(tail) = tail else { return };
    if cut > 0 {
        let _ = writeln!(to, "{}", the_rest("here", cut, cursor));
    }
    push_lines(to, tail);
}

/// The result of `send_keys`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SendOutput {
    /// The pane.
    pub pane: String,
    /// The end of the output before the input.
    pub cursor: String,
    /// The observations of a submit: its echo, and a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    pub submit: Option<SubmitSeen>,
    /// The selected answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<String>,
    /// Whether the question has disappeared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<bool>,
}

/// The result of `watch`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WatchOutput {
    /// The events; output of one pane is joined.
    #[schema(value_type = Vec<Object>)]
    pub events: Vec<Value>,
    /// The token for the next call, which misses nothing in between.
    pub resume: String,
}

/// The result of `search`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SearchOutput {
    /// The number of searched panes.
    pub searched: usize,
    /// The number of matching lines, on this page or not.
    pub matches: usize,
    /// A page of the matching lines, pane by pane.
    #[schema(value_type = Vec<Object>)]
    pub lines: Vec<MatchingLine>,
    /// The page with earlier matches, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page: Option<usize>,
}

/// A matching line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MatchingLine {
    /// The pane.
    pub pane: String,
    /// Its number among the retained lines, from 1.
    pub number: usize,
    /// The line.
    pub line: String,
    /// The lines before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The lines after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// The last matching lines of a pane, and the number of all its matching lines.
pub(super) type Matches = (Vec<MatchingLine>, usize);

impl SearchOutput {
    /// Takes a page of at most `most` lines, counted from the last ones, with some lines of every
    /// pane.
    pub(super) fn take_page(&mut self, of_panes: Vec<Matches>, most: usize, page: usize) {
        let with_hits = of_panes.iter().filter(|(_, count)| *count > 0).count().max(1);
        let each = most.div_ceil(with_hits);
        let skipped = each.saturating_mul(page);
        let mut more = false;
        for (lines, count) in of_panes {
            more |= count > skipped.saturating_add(each);
            let to = lines.len().saturating_sub(skipped);
            let from = to.saturating_sub(each);
            self.lines.extend(lines.into_iter().take(to).skip(from));
        }
        self.next_page = (more && page < super::tools::MOST_PAGES).then_some(page + 1);
    }

    /// Formats the lines as grep prints them.
    pub fn text(&self) -> String {
        let (lines, panes) = (counted(&self.matches, "matching line"), counted(&self.searched, "pane"));
        let mut text = format!("{lines} in {panes}\n");
        let mut last: Option<(&str, usize)> = None;
        for MatchingLine { pane, number, line, before, after } in &self.lines {
            // Context that was already printed is not repeated.
            let told = last.filter(|(of, _)| of == pane).map_or(0, |(_, to)| to);
            for (at, line) in (number - before.len()..).zip(before).filter(|(at, _)| *at > told) {
                let _ = writeln!(text, "{pane}-{at}- {line}");
            }
            if *number > told {
                let _ = writeln!(text, "{pane}:{number}: {line}");
            }
            let told = told.max(*number);
            for (at, line) in (number + 1..).zip(after).filter(|(at, _)| *at > told) {
                let _ = writeln!(text, "{pane}-{at}- {line}");
            }
            last = Some((pane, told.max(number + after.len())));
        }
        if let Some(page) = self.next_page {
            let _ = writeln!(text, "[page: {page} has earlier matches]");
        }
        text
    }
}

/// Finds the matching lines of a pane; returns the last `most` of them, with `context` lines before
/// and after each, and the number of matching lines.
pub(super) fn matching_lines(pane: &str, pattern: &regex::Regex, text: &str, most: usize, context: usize) -> Matches {
    const LINE_CHARS: usize = 500;
    let lines: Vec<&str> = text.lines().collect();
    let mut found = VecDeque::new();
    let mut count = 0;
    for (index, _) in lines.iter().enumerate().filter(|(_, line)| pattern.is_match(line)) {
        count += 1;
        if found.len() == most {
            found.pop_front();
        }
        found.push_back(index);
    }
    let cut = |line: &&str| line.chars().take(LINE_CHARS).collect::<String>();
    let between = |from: usize, to: usize| lines.get(from..to.min(lines.len())).unwrap_or_default().iter().map(cut);
    let line = |index: usize| MatchingLine {
        pane: pane.to_owned(),
        number: index + 1,
        line: between(index, index + 1).collect(),
        before: between(index.saturating_sub(context), index).collect(),
        after: between(index + 1, index + 1 + context).collect(),
    };
    (found.into_iter().map(line).collect(), count)
}

// Reasons: serde calls it with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pane: &str, count: usize) -> Matches {
        let text: Vec<_> = (1..=count).map(|number| format!("line {number}\n")).collect();
        matching_lines(pane, &regex::Regex::new("line").unwrap(), &text.concat(), 1000, 0)
    }

    #[test]
    fn the_last_lines_are_found_and_all_are_counted() {
        let lines: Vec<_> = (1..=1000).map(|number| format!("line {number}")).collect();
        let text = lines.join("\n");
        let (lines, count) = matching_lines("%1", &regex::Regex::new("7$").unwrap(), &text, 3, 2);
        assert_eq!((count, lines.len()), (100, 3));
        let last = lines.last().unwrap();
        assert_eq!((last.number, last.line.as_str()), (997, "line 997"));
        assert_eq!(
            (last.before.join(","), last.after.join(",")),
            ("line 995,line 996".into(), "line 998,line 999".into())
        );
    }

    #[test]
    fn every_pane_keeps_some_of_its_lines() {
        let mut output = SearchOutput::default();
        output.take_page(vec![lines("%1", 100), lines("%2", 1), lines("%3", 0)], 10, 0);
        assert_eq!(output.lines.iter().filter(|line| line.pane == "%1").count(), 5);
        assert_eq!((output.lines.last().unwrap().pane.as_str(), output.next_page), ("%2", Some(1)));
    }

    #[test]
    fn pages_are_together_all_lines() {
        let (mut told, mut page) = (Vec::new(), 0);
        loop {
            let mut output = SearchOutput::default();
            output.take_page(vec![lines("%1", 23), lines("%2", 4)], 6, page);
            told.extend(output.lines.iter().map(|line| (line.pane.clone(), line.number)));
            match output.next_page {
                Some(next) => page = next,
                None => break,
            }
        }
        told.sort();
        told.dedup();
        assert_eq!((told.len(), page), (27, 7));
    }

    #[test]
    fn context_stands_there_once() {
        let text = "a\nhit 1\nb\nhit 2\nc\n";
        let (lines, matches) = matching_lines("%1", &regex::Regex::new("hit").unwrap(), text, 10, 1);
        let output = SearchOutput { searched: 1, matches, lines, next_page: None };
        assert_eq!(output.text(), "2 matching lines in 1 pane\n%1-1- a\n%1:2: hit 1\n%1-3- b\n%1:4: hit 2\n%1-5- c\n");
    }
}
