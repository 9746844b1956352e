//! Reads the tool's arguments leniently: agents leave optional fields empty and write numbers as
//! text.

use serde_json::{Map, Value};

/// The lines of a capture where none are named.
const LINES: u64 = 100;

/// The arguments of one call.
pub(super) struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    pub(super) fn new(arguments: &'a Map<String, Value>) -> Self {
        Self(arguments)
    }

    /// Returns the action. A value that is no text is returned as it was written.
    pub(super) fn action(&self) -> Option<String> {
        match self.0.get("action")? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            other => Some(other.to_string()),
        }
    }

    pub(super) fn target(&self) -> Option<String> {
        self.non_blank("target")
    }

    /// Returns the text to type. Empty text presses only Enter.
    pub(super) fn text(&self) -> Option<String> {
        self.text_of("text")
    }

    /// Returns how many lines to show, at least one.
    pub(super) fn lines(&self) -> u64 {
        let lines = match self.0.get("lines") {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        #[allow(clippy::cast_sign_loss, reason = "it is at least one by then")]
        lines.map_or(LINES, |lines| lines.max(1.0) as u64)
    }

    pub(super) fn prompt(&self) -> Option<String> {
        self.non_blank("prompt")
    }

    pub(super) fn name(&self) -> Option<String> {
        self.non_blank("name")
    }

    pub(super) fn working_dir(&self) -> Option<String> {
        self.non_blank("working_dir")
    }

    pub(super) fn session(&self) -> Option<String> {
        self.non_blank("session")
    }

    fn non_blank(&self, field: &str) -> Option<String> {
        self.text_of(field).filter(|text| !text.trim().is_empty())
    }

    fn text_of(&self, field: &str) -> Option<String> {
        match self.0.get(field)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with<T>(arguments: &Value, ask: impl FnOnce(&Arguments<'_>) -> T) -> T {
        ask(&Arguments::new(arguments.as_object().unwrap()))
    }

    #[test]
    #[allow(
        clippy::redundant_closure_for_method_calls,
        reason = "the method alone is not general enough in its lifetime"
    )]
    fn lines_are_at_least_one() {
        for (lines, meant) in
            [(json!(5), 5), (json!(0), 1), (json!(-3), 1), (json!("7"), 7), (json!(null), 100), (json!("x"), 100)]
        {
            assert_eq!(with(&json!({ "lines": lines }), |given| given.lines()), meant, "{lines}");
        }
        assert_eq!(with(&json!({}), |given| given.lines()), 100);
    }

    #[test]
    fn blank_is_missing_but_for_text() {
        let given = json!({ "target": " ", "text": "", "name": "", "prompt": "\n", "action": "" });
        with(&given, |given| {
            assert_eq!((given.target(), given.name(), given.prompt(), given.action()), (None, None, None, None));
            assert_eq!(given.text().as_deref(), Some(""));
        });
    }
}
