//! Parses requests and explains in plain words those that do not fit: the field, the expected and
//! the given value.
//!
//! A request is parsed by serde, whose errors are written for programmers. Only when it is rejected
//! is it parsed again, into a tree ([`Node`]), and the type is read from the tree with an error of
//! our own (`Problem`), which keeps the facts that serde only prints.

mod problem;
mod value;

use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use self::{
    problem::Step,
    value::{SHOWN, Value, shortened},
};
use super::{Error, Result};

/// Parses a request from JSON. `whole` is its name in errors: `body`.
///
/// Error: `INVALID_ARGUMENT`, whose message begins with the field.
pub fn from_json<T: DeserializeOwned>(whole: &str, bytes: &[u8]) -> Result<T> {
    // serde would accept a list as an object, field by field.
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    match serde_json::from_slice(bytes) {
        Ok(request) if is_object => Ok(request),
        _ => Node::parse(whole, bytes)?.read(whole),
    }
}

/// Parses a request from the pairs of a query.
///
/// Error: `INVALID_ARGUMENT`, whose message begins with the parameter.
pub fn from_pairs<T: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<T> {
    let pairs = pairs.into_iter().map(|(name, word)| (name, Value::Word(word))).collect();
    Node { value: Value::Object(pairs) }.read("query")
}

/// Returns the error for a parameter of a query that the route does not have.
pub fn unknown_parameter(name: &str, known: &[&str]) -> Error {
    let message = problem::unknown("parameter", name, known);
    Error::invalid(format!("{name}: {message}")).with_details(serde_json::json!({ "field": name }))
}

/// Parses a request from JSON that is already parsed, as a model wrote it. `whole` is its name in
/// errors: `arguments`.
///
/// A number, a boolean, a list or an object may also be a text of JSON, in every field.
///
/// Error: `INVALID_ARGUMENT`, whose message begins with the field.
pub fn from_value<T: DeserializeOwned>(whole: &str, value: &serde_json::Value) -> Result<T> {
    match T::deserialize(value) {
        Ok(request) if value.is_object() => Ok(request),
        _ => Node { value: Node::of(whole, value)?.value.reading_json() }.read(whole),
    }
}

/// A request as it was written, before it is checked against its type.
#[derive(Clone, Debug)]
pub struct Node {
    value: Value,
}

impl Node {
    /// Parses JSON. Error: `INVALID_ARGUMENT` if it is invalid.
    pub fn parse(whole: &str, bytes: &[u8]) -> Result<Self> {
        let value = serde_json::from_slice(bytes).map_err(|error| no_json(whole, bytes, &error))?;
        Ok(Self { value })
    }

    /// Converts JSON that is already parsed.
    fn of(whole: &str, value: &serde_json::Value) -> Result<Self> {
        let value = Value::deserialize(value).map_err(|error| Error::invalid(format!("{whole}: {error}")))?;
        Ok(Self { value })
    }

    /// Removes a field from an object and returns it; `None` if it is missing.
    pub fn take(&mut self, name: &str) -> Option<Self> {
        let Value::Object(fields) = &mut self.value else { return None };
        let at = fields.iter().position(|(known, _)| known == name)?;
        Some(Self { value: fields.remove(at).1 })
    }

    /// Returns a field's number; `None` if it is missing.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.value.at(&[Step::Field(name.to_owned())])? {
            Value::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// Returns the characters of a string.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as an error shows it.
    pub fn shown(&self) -> String {
        self.value.shown()
    }

    /// Parses a request of this type. Error: `INVALID_ARGUMENT`.
    pub fn read<T: DeserializeOwned>(self, whole: &str) -> Result<T> {
        T::deserialize(&self.value).map_err(|problem| problem.into_error(whole, &self.value))
    }
}

/// Explains invalid JSON.
fn no_json(whole: &str, bytes: &[u8], error: &serde_json::Error) -> Error {
    if bytes.trim_ascii().is_empty() {
        return Error::invalid(format!("{whole}: expected a JSON object, got nothing"));
    }
    if error.classify() == Category::Eof {
        return Error::invalid(format!("{whole}: incomplete JSON: it ends in the middle of a value"));
    }
    let line = bytes.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    // The column is that of the byte that does not fit, from 1.
    let rest = line.get(error.column().saturating_sub(1)..).filter(|rest| !rest.is_empty()).unwrap_or(line);
    let rest = shortened(&String::from_utf8_lossy(rest.get(..4 * SHOWN).unwrap_or(rest)));
    let (line, byte) = (error.line(), error.column());
    Error::invalid(format!("{whole}: invalid JSON at line {line}, byte {byte}: {rest}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        CaptureRequest, InputRequest, NewSessionRequest, NewWindowRequest, PatchRequest, ReadRequest, RunRequest,
        ServerQuery, SplitRequest, WaitRequest,
    };

    fn refused<T: DeserializeOwned>(body: &str) -> String {
        from_json::<T>("body", body.as_bytes()).err().unwrap_or_else(|| panic!("it was taken: {body}")).message
    }

    fn refused_query<T: DeserializeOwned>(pairs: &[(&str, &str)]) -> String {
        let pairs = pairs.iter().map(|&(name, word)| (name.to_owned(), word.to_owned())).collect();
        from_pairs::<T>(pairs).err().unwrap().message
    }

    #[test]
    fn a_model_may_write_a_value_as_a_text_of_json() {
        let read = |value: serde_json::Value| from_value::<NewSessionRequest>("arguments", &value);
        let request = json!({
            "name": "5", "width": "80", "or_existing": "true", "env": "{\"A\": \"1\"}", "command": "[\"a\", \"b\"]",
        });
        let plain = json!({"name": "5", "width": 80, "or_existing": true, "env": {"A": "1"}, "command": ["a", "b"]});
        assert_eq!(read(request).unwrap(), read(plain).unwrap());
        for (field, value, says) in [
            ("width", json!("wide"), r#"width: expected a whole number from 0 to 65535, got "wide""#),
            ("width", json!("[1]"), r#"width: expected a whole number from 0 to 65535, got "[1]""#),
            ("width", json!("80000"), r#"width: expected a whole number from 0 to 65535, got "80000""#),
            ("or_existing", json!("1"), r#"or_existing: expected true or false, got "1""#),
            ("env", json!("{\"A\": 1}"), "env.A: expected a string, got 1"),
        ] {
            assert_eq!(read(json!({ field: value })).unwrap_err().message, says);
        }
        // HTTP is for programs.
        assert!(from_json::<NewSessionRequest>("body", br#"{"width": "80"}"#).is_err());
    }

    #[test]
    fn a_wrong_field_is_named_with_what_is_expected_and_what_was_given() {
        for (message, says) in [
            (refused::<InputRequest>(r#"{"keys":"Enter"}"#), r#"keys: expected a list, got "Enter""#),
            (refused::<InputRequest>(r#"{"keys":["a",7]}"#), "keys[1]: expected a string, got 7"),
            (refused::<InputRequest>(r#"{"text":"a","paste":1}"#), "paste: expected true or false, got 1"),
            (
                refused::<InputRequest>(r#"{"kyes":[]}"#),
                "kyes: no such field (did you mean `keys`?); valid fields: keys, text, hex, paste, submit, run",
            ),
            (refused::<RunRequest>("{}"), "command: required field is missing"),
            (refused::<RunRequest>(r#"{"command":"a","command":"b"}"#), "command: duplicate field"),
            (
                refused::<WaitRequest>(r#"{"panes":["%0"],"mode":"both"}"#),
                r#"mode: expected one of any, all, got "both""#,
            ),
            (refused::<WaitRequest>(r#"{"panes":["%0"],"mode":{}}"#), "mode: expected one of any, all, got an object"),
            (
                refused::<WaitRequest>(r#"{"panes":["%0"],"timeout_ms":-1}"#),
                "timeout_ms: expected a whole number, 0 or more, got -1",
            ),
            (
                refused::<WaitRequest>(r#"{"panes":["%0"],"timeout_ms":1.5}"#),
                "timeout_ms: expected a whole number, 0 or more, got 1.5",
            ),
            (
                refused::<PatchRequest>(r#"{"width":70000}"#),
                "width: expected a whole number from 0 to 65535, got 70000",
            ),
            (
                refused::<PatchRequest>(r#"{"respawn":{"kill":"yes"}}"#),
                r#"respawn.kill: expected true or false, got "yes""#,
            ),
        ] {
            assert_eq!(message, says);
        }
        let long = refused::<InputRequest>(&format!(r#"{{"keys":"{}"}}"#, "x".repeat(5000)));
        assert!(long.len() < 200 && long.ends_with('…'), "{long}");
        let error = from_json::<InputRequest>("body", br#"{"keys":[1]}"#).unwrap_err();
        assert_eq!(error.details, Some(json!({ "field": "keys[0]" })));
    }

    /// A request with a flattened part is read as one object ([`crate::SpawnRequest`]).
    #[test]
    fn a_wrong_field_of_a_flattened_part_is_found() {
        for (message, says) in [
            (
                refused::<NewSessionRequest>(r#"{"name":"a","command":"make"}"#),
                r#"command: expected a list, got "make""#,
            ),
            (refused::<NewSessionRequest>(r#"{"command":["a",5]}"#), "command[1]: expected a string, got 5"),
            (
                refused::<NewWindowRequest>(r#"{"session":"a","env":{"A":"1","B":2}}"#),
                "env.B: expected a string, got 2",
            ),
            (
                refused::<SplitRequest>(r#"{"pane":"%0","keep":"no","cwd":"/"}"#),
                r#"keep: expected true or false, got "no""#,
            ),
            (
                refused::<PatchRequest>(r#"{"respawn":{"command":[null]}}"#),
                "respawn.command[0]: expected a string, got null",
            ),
        ] {
            assert_eq!(message, says);
        }
    }

    #[test]
    fn what_is_no_json_is_shown_where_it_ends_to_be_some() {
        for (body, says) in [
            ("", "body: expected a JSON object, got nothing"),
            (" \n", "body: expected a JSON object, got nothing"),
            (r#"{"command":"#, "body: incomplete JSON: it ends in the middle of a value"),
            ("{\n  command: 1}", r#"body: invalid JSON at line 2, byte 3: "command: 1}""#),
            ("[]", "body: expected an object, got a list"),
            ("\"x\"", r#"body: expected an object, got "x""#),
            ("null", "body: expected an object, got null"),
        ] {
            assert_eq!(refused::<RunRequest>(body), says, "{body}");
        }
        assert!(refused::<RunRequest>(&"[".repeat(100_000)).starts_with("body: invalid JSON at line 1, byte "));
        assert!(refused::<RunRequest>(r#"{"command":"a"} {}"#).contains("invalid JSON at line 1, byte 17: \"{}\""));
    }

    #[test]
    fn a_wrong_parameter_is_named_too() {
        for (message, says) in [
            (refused_query::<CaptureRequest>(&[("join", "maybe")]), r#"join: expected true or false, got "maybe""#),
            (
                refused_query::<ReadRequest>(&[("since", "now"), ("wait_ms", "soon")]),
                r#"wait_ms: expected a whole number, 0 or more, got "soon""#,
            ),
            (
                refused_query::<ReadRequest>(&[("format", "xml")]),
                r#"format: expected one of text, ansi, raw, got "xml""#,
            ),
            (refused_query::<ServerQuery>(&[("socket", "/a"), ("socket", "/b")]), "socket: duplicate field"),
            (refused_query::<ServerQuery>(&[("from", "5")]), r#"from: expected an id (% and a number), got "5""#),
        ] {
            assert_eq!(message, says);
        }
    }

    #[test]
    fn what_fits_is_read() {
        let read: ReadRequest =
            from_pairs(vec![("wait_ms".into(), "20".into()), ("other".into(), "x".into())]).unwrap();
        assert_eq!(read.wait_ms, Some(20));
        let node = Node::parse("body", br#"{"session":"a","index":1,"env":{"A":"1"},"select":true}"#).unwrap();
        let window: NewWindowRequest = node.read("body").unwrap();
        assert!(window.select && window.spawn.env["A"] == "1");
    }
}
