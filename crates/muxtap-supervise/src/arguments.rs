//! The tool's definition, as MCP lists it, and its arguments.
//!
//! Arguments are read leniently: agents leave optional fields empty and write numbers as strings.

use serde_json::{Map, Value, json};

use super::ACTIONS;

/// The tool's name.
pub const NAME: &str = "manage_tmux_sessions";

/// The tool's description.
pub const DESCRIPTION: &str = "Manage Claude sessions in tmux: list, look, answer permission dialogs, type, spawn (a \
    human is asked first), kill.";

/// Returns the JSON schema of the tool's arguments.
pub fn input_schema() -> Value {
    let text = |what: &str| json!({ "type": "string", "description": what });
    json!({
        "type": "object",
        "properties": {
            "action": { "type": "string", "enum": ACTIONS },
            "target": text("session:window.pane (kill: a session); not for list, spawn"),
            "text": text("For send_input"),
            "lines": { "type": "integer", "description": "For capture (default 100)" },
            "prompt": text("For spawn: Claude's prompt"),
            "name": text("For spawn (default: generated)"),
            "working_dir": text("For spawn"),
            "session": text("For spawn: add a window to this session"),
        },
        "required": ["action"],
    })
}

/// The lines of a capture if the caller gives no number.
const LINES: u64 = 100;

/// The arguments of one call.
pub(super) struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    pub(super) fn new(arguments: &'a Map<String, Value>) -> Self {
        Self(arguments)
    }

    /// Returns the action. A value that is not a string is returned as its JSON text.
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

    #[test]
    fn only_the_action_is_required() {
        let schema = input_schema();
        assert_eq!(schema["required"], json!(["action"]));
        let mut fields: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        fields.sort();
        assert_eq!(fields, ["action", "lines", "name", "prompt", "session", "target", "text", "working_dir"]);
    }
}
