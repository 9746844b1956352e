//! Arguments by the names that models give them. They are in no schema, which every model reads.

use muxtap_api::{Error, Result};
use muxtap_core::duration;
use rmcp::model::JsonObject;
use serde_json::Value;

/// What a model writes, and what it means: the first of these that the tool has.
const NAMES: &[(&str, &[&str])] = &[
    ("cmd", &["command"]),
    ("context_lines", &["context"]),
    ("cursor", &["since"]),
    ("dir", &["cwd"]),
    ("directory", &["cwd"]),
    ("enter", &["submit"]),
    ("environment", &["env"]),
    ("history_lines", &["history"]),
    ("key", &["keys"]),
    ("limit", &["max_lines"]),
    ("lines", &["history", "max_lines"]),
    ("max_results", &["max_lines"]),
    ("pane", &["target"]),
    ("pane_id", &["target"]),
    ("panes", &["targets", "target"]),
    ("press_enter", &["submit"]),
    ("query", &["pattern"]),
    ("regex", &["patterns", "pattern"]),
    ("regexes", &["patterns"]),
    ("scrollback", &["history"]),
    ("session", &["target"]),
    ("session_id", &["target"]),
    ("session_name", &["target"]),
    ("target_pane", &["target"]),
    ("window", &["target"]),
    ("window_id", &["target"]),
    ("workdir", &["cwd"]),
    ("working_directory", &["cwd"]),
];

/// The endings of arguments in seconds.
const SECONDS: [&str; 4] = ["_s", "_sec", "_secs", "_seconds"];
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
        let meant = NAMES.iter().find(|(written, _)| *written == name).and_then(|(_, meant)| {
            let real = meant.iter().find(|real| known.contains(real))?;
            Some((*real).to_owned())
        });
        if let Some(real) = meant {
            move_to(arguments, &name, real, Some);
        } else if let Some(real) = time_of(&name).filter(|real| known.contains(&real.as_str())) {
            let given = arguments.get(&name).cloned().unwrap_or_default();
            if let Some(milliseconds) = milliseconds(&name, &given)? {
                move_to(arguments, &name, real, |_| Some(milliseconds.into()));
            }
        } else if name == "lines" && known.contains(&"since") {
            move_to(arguments, &name, "since".to_owned(), |lines| Some(format!("lines:{}", lines.as_u64()?).into()));
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

/// Returns the argument in milliseconds that a time would be: `timeout_ms` for `timeout_s` and
/// `timeout`.
fn time_of(name: &str) -> Option<String> {
    let base = SECONDS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    (!base.is_empty()).then(|| format!("{base}_ms"))
}

/// Returns a time in milliseconds. `None`: not a time.
fn milliseconds(name: &str, given: &Value) -> Result<Option<u64>> {
    let text = match given {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Ok(None),
    };
    let has_unit = SECONDS.iter().any(|end| name.ends_with(end)) || text.ends_with(|c: char| c.is_ascii_alphabetic());
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
        rename(&mut arguments, known).map(|()| Value::Object(arguments)).map_err(|error| error.message)
    }

    #[test]
    fn what_models_write_is_understood() {
        for (tool, given, meant) in [
            ("capture_pane", json!({"pane_id": "%0", "lines": 50}), json!({"target": "%0", "history": 50})),
            ("read_since", json!({"target": "%0", "lines": 50}), json!({"target": "%0", "since": "lines:50"})),
            ("read_since", json!({"cursor": "c1", "wait_s": 1.5}), json!({"since": "c1", "wait_ms": 1500})),
            ("wait_for", json!({"regex": "x", "timeout_s": 60}), json!({"patterns": "x", "timeout_ms": 60_000})),
            ("wait_for", json!({"timeout": 60}), json!({"timeout_ms": 60_000})),
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
