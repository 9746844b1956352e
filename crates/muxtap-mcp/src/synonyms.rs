//! Arguments by the names that models give them. They are in no schema, which every model reads.

use muxtap_api::{Error, Result};
use muxtap_core::duration;
use rmcp::model::JsonObject;
use serde_json::Value;

/// What a model writes, and what it means: the first of these that the tool has.
const NAMES: &[(&str, &[&str])] = &[
    ("after", &["since"]),
    ("bash", &["command"]),
    ("cmd", &["command"]),
    ("cmdline", &["command"]),
    ("columns", &["width"]),
    ("cols", &["width"]),
    ("context_lines", &["context"]),
    ("cursor", &["since"]),
    ("dir", &["cwd"]),
    ("directory", &["cwd"]),
    ("enter", &["submit"]),
    ("content", &["text"]),
    ("environment", &["env"]),
    ("history_lines", &["history"]),
    ("from", &["since"]),
    ("input", &["text"]),
    ("key", &["keys"]),
    ("kind", &["what"]),
    ("limit", &["max_lines"]),
    ("lines", &["history", "max_lines"]),
    ("max_characters", &["max_chars"]),
    ("max_results", &["max_lines"]),
    ("name", &["target"]),
    ("new_name", &["name"]),
    ("pane", &["target"]),
    ("pane_id", &["target", "panes"]),
    ("panes", &["targets", "target"]),
    ("parent", &["target"]),
    ("press_enter", &["submit"]),
    ("path", &["cwd"]),
    ("query", &["pattern"]),
    ("regex", &["patterns", "pattern"]),
    ("regexes", &["patterns"]),
    ("rows", &["height"]),
    ("script", &["command"]),
    ("scrollback", &["history"]),
    ("session", &["target", "panes"]),
    ("session_id", &["target", "panes"]),
    ("session_name", &["target", "panes"]),
    ("shell_command", &["command"]),
    ("start_directory", &["cwd"]),
    ("string", &["text"]),
    ("target_pane", &["target", "panes"]),
    ("type", &["what", "types"]),
    ("window", &["target", "panes"]),
    ("window_id", &["target", "panes"]),
    ("workdir", &["cwd"]),
    ("working_dir", &["cwd"]),
    ("working_directory", &["cwd"]),
];

/// What a model writes to a tool for which it may mean several things: the right argument, and what
/// it is for.
const HINTS: &[(&str, &str, &str)] = &[
    ("text", "patterns", "regexes on the output"),
    ("text", "pattern", "a regex"),
    ("text", "command", "a command line; send_keys types text"),
    ("keys", "command", "a command line; send_keys presses keys"),
    ("command", "text", "typed literally, with submit: true; or call run"),
    ("cmd", "text", "typed literally, with submit: true; or call run"),
];

/// The endings of arguments in seconds.
const SECONDS: [&str; 4] = ["_s", "_sec", "_secs", "_seconds"];
/// The endings of arguments in milliseconds.
const MILLISECONDS: [&str; 4] = ["_ms", "_millis", "_msec", "_milliseconds"];
/// Other names for the timeout of a wait.
const TIMES: [&str; 6] = ["timeout", "wait", "max_wait", "wait_time", "duration", "deadline"];
/// Arguments that are named only by their unit, seconds.
const ALONE: [&str; 3] = ["seconds", "secs", "timeout_in_seconds"];
/// A time without a unit up to this is in seconds: so few milliseconds are no time to wait.
const SURELY_SECONDS: f64 = 600.0;
/// A time without a unit from this on is in milliseconds: hours otherwise.
const SURELY_MILLISECONDS: f64 = 10_000.0;

/// Renames arguments that the tool does not have and whose meaning is clear. `known`: the arguments
/// that the tool has.
///
/// Error: `INVALID_ARGUMENT` for a time whose unit is unclear.
pub(super) fn rename(arguments: &mut JsonObject, known: &[&str]) -> Result<()> {
    let unknown: Vec<String> = arguments.keys().filter(|name| !known.contains(&name.as_str())).cloned().collect();
    for name in unknown {
        // A new session is named; another place is a target.
        let names_new = ["session", "session_name"].contains(&name.as_str())
            && known.contains(&"or_existing")
            && arguments.get("what").is_none_or(|what| what == "session");
        if names_new {
            move_to(arguments, &name, "name".to_owned(), Some);
            continue;
        }
        let meant = NAMES.iter().find(|(written, _)| *written == name).and_then(|(_, meant)| {
            let real = meant.iter().find(|real| known.contains(real))?;
            Some((*real).to_owned())
        });
        if let Some(real) = meant {
            move_to(arguments, &name, real, Some);
        } else if let Some(real) = time_of(&name, known) {
            let given = arguments.get(&name).cloned().unwrap_or_default();
            if let Some(milliseconds) = milliseconds(&name, &given)? {
                move_to(arguments, &name, real, |_| Some(milliseconds.into()));
            }
        } else if ["lines", "last", "tail"].contains(&name.as_str()) && known.contains(&"since") {
            move_to(arguments, &name, "since".to_owned(), |lines| Some(format!("lines:{}", lines.as_u64()?).into()));
        }
    }
    Ok(())
}

/// Error: `INVALID_ARGUMENT` with the right name for an argument that the tool does not have, and that
/// may mean several things.
pub(super) fn check(arguments: &JsonObject, known: &[&str]) -> Result<()> {
    for name in arguments.keys().filter(|name| !known.contains(&name.as_str())) {
        let hint = HINTS.iter().find(|(written, real, _)| written == name && known.contains(real));
        if let Some((_, real, what)) = hint {
            return Err(Error::invalid(format!("{name}: no such field; expected `{real}`: {what}")));
        }
    }
    Ok(())
}

/// Moves a value to another name, unless that is given, too.
fn move_to(arguments: &mut JsonObject, name: &str, real: String, value: impl FnOnce(Value) -> Option<Value>) {
    if arguments.contains_key(&real) {
        return;
    }
    if let Some(value) = arguments.get(name).cloned().and_then(value) {
        arguments.remove(name);
        arguments.insert(real, value);
    }
}

/// Returns the argument in milliseconds that a time would be: `timeout_ms` for `timeout_s`,
/// `timeout` and `seconds`. A tool with one time takes it by each name.
fn time_of(name: &str, known: &[&str]) -> Option<String> {
    let end = SECONDS.iter().chain(&MILLISECONDS).find_map(|end| name.strip_suffix(end));
    let base = end.unwrap_or(name);
    let exact = format!("{base}_ms");
    if !base.is_empty() && known.contains(&exact.as_str()) {
        return Some(exact);
    }
    let of_a_wait = TIMES.contains(&base) || ALONE.contains(&name);
    let meant = ["timeout_ms", "wait_ms"].into_iter().find(|real| known.contains(real));
    meant.filter(|_| of_a_wait).map(str::to_owned)
}

/// Returns a time in milliseconds. `None`: not a time.
fn milliseconds(name: &str, given: &Value) -> Result<Option<u64>> {
    let text = match given {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Ok(None),
    };
    if MILLISECONDS.iter().any(|end| name.ends_with(end)) {
        return Ok(text.parse().ok());
    }
    let in_seconds = SECONDS.iter().any(|end| name.ends_with(end)) || ALONE.contains(&name);
    let has_unit = in_seconds || text.ends_with(|c: char| c.is_ascii_alphabetic());
    if let Ok(number) = text.parse::<f64>()
        && !has_unit
        && number > SURELY_SECONDS
    {
        if number < SURELY_MILLISECONDS {
            let message =
                format!("{name}: unclear unit: {text}; give {name}_ms in milliseconds, or {name}_s in seconds");
            return Err(Error::invalid(message));
        }
        return Ok(text.parse().ok());
    }
    Ok(duration::parse(&text).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::accepted::accepted_arguments;

    fn renamed(tool: &str, given: &Value) -> std::result::Result<Value, String> {
        let tools = accepted_arguments();
        let (_, known) = tools.iter().find(|(name, _)| *name == tool).unwrap();
        let mut arguments = given.as_object().unwrap().clone();
        let read = rename(&mut arguments, known).and_then(|()| check(&arguments, known));
        read.map(|()| Value::Object(arguments)).map_err(|error| error.message)
    }

    #[test]
    fn what_models_write_is_understood() {
        for (tool, given, meant) in [
            ("capture_pane", json!({"pane_id": "%0", "lines": 50}), json!({"target": "%0", "history": 50})),
            ("read_since", json!({"target": "%0", "lines": 50}), json!({"target": "%0", "since": "lines:50"})),
            ("read_since", json!({"cursor": "c1", "wait_s": 1.5}), json!({"since": "c1", "wait_ms": 1500})),
            ("wait_for", json!({"regex": "x", "timeout_s": 60}), json!({"patterns": "x", "timeout_ms": 60_000})),
            ("wait_for", json!({"timeout": 60}), json!({"timeout_ms": 60_000})),
            ("wait_for", json!({"seconds": 60}), json!({"timeout_ms": 60_000})),
            ("wait_for", json!({"wait_seconds": 60}), json!({"timeout_ms": 60_000})),
            ("wait_for", json!({"timeout_millis": 900}), json!({"timeout_ms": 900})),
            ("run", json!({"wait_ms": 5000}), json!({"timeout_ms": 5000})),
            ("watch", json!({"timeout_ms": 5000}), json!({"wait_ms": 5000})),
            ("read_since", json!({"timeout": 5}), json!({"wait_ms": 5000})),
            ("wait_for", json!({"pane_id": "%0"}), json!({"target": "%0"})),
            (
                "send_keys",
                json!({"target": "%0", "input": "x", "enter": true}),
                json!({"target": "%0", "text": "x", "submit": true}),
            ),
            ("create", json!({"session_name": "a", "path": "/"}), json!({"name": "a", "cwd": "/"})),
            ("create", json!({"what": "window", "session": "a"}), json!({"what": "window", "target": "a"})),
            ("rename", json!({"pane": "%0", "new_name": "x"}), json!({"target": "%0", "name": "x"})),
            (
                "resize",
                json!({"target": "a", "cols": 90, "rows": 30}),
                json!({"target": "a", "width": 90, "height": 30}),
            ),
            ("kill", json!({"type": "session", "name": "a"}), json!({"what": "session", "target": "a"})),
            ("list", json!({"type": "agents"}), json!({"what": "agents"})),
            ("read_since", json!({"target": "%0", "tail": 50}), json!({"target": "%0", "since": "lines:50"})),
            ("wait_for", json!({"timeout": "2m"}), json!({"timeout_ms": 120_000})),
            ("wait_for", json!({"timeout": 60_000, "stable": 2}), json!({"timeout_ms": 60_000, "stable_ms": 2000})),
            ("run", json!({"pane": "%0", "cmd": "ls"}), json!({"pane": "%0", "command": "ls"})),
            ("run", json!({"timeout_seconds": "90"}), json!({"timeout_ms": 90_000})),
            ("kill", json!({"pane": "%0"}), json!({"target": "%0"})),
            ("kill", json!({"what": "session", "session": "a"}), json!({"what": "session", "target": "a"})),
            ("watch", json!({"panes": ["%0"]}), json!({"targets": ["%0"]})),
            ("search", json!({"query": "x", "limit": 5}), json!({"pattern": "x", "max_lines": 5})),
            ("create", json!({"workdir": "/", "environment": {"A": "1"}}), json!({"cwd": "/", "env": {"A": "1"}})),
        ] {
            assert_eq!(renamed(tool, &given), Ok(meant), "{tool} {given}");
        }
    }

    #[test]
    fn what_is_unclear_or_given_twice_stays() {
        let unclear = renamed("wait_for", &json!({"timeout": 5000})).unwrap_err();
        assert_eq!(unclear, "timeout: unclear unit: 5000; give timeout_ms in milliseconds, or timeout_s in seconds");
        for (tool, given, says) in [
            ("wait_for", json!({"text": "x"}), "text: no such field; expected `patterns`: regexes on the output"),
            (
                "run",
                json!({"keys": ["x"]}),
                "keys: no such field; expected `command`: a command line; send_keys presses keys",
            ),
            (
                "send_keys",
                json!({"command": "ls"}),
                "command: no such field; expected `text`: typed literally, with submit: true; or call run",
            ),
        ] {
            assert_eq!(renamed(tool, &given), Err(says.to_owned()), "{tool} {given}");
        }
        for (tool, given) in [
            ("wait_for", json!({"timeout": 60, "timeout_ms": 5})),
            ("wait_for", json!({"timeout": "soon"})),
            ("wait_for", json!({"timeout": null})),
            ("capture_pane", json!({"lines": 5, "history": 6})),
            ("capture_pane", json!({"_s": 5, "colour": true})),
        ] {
            assert_eq!(renamed(tool, &given), Ok(given.clone()), "{tool} {given}");
        }
    }
}
