//! The tool's name, description and schema, as it is listed.

use serde_json::{Value, json};

use super::ACTIONS;

/// The tool's name.
pub const NAME: &str = "manage_tmux_sessions";

/// The tool's description.
pub const DESCRIPTION: &str = "Manage Claude sessions in tmux: list, look, answer permission dialogs, type, spawn (a human is asked first), kill.";

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
            "prompt": text("For spawn: what Claude is told"),
            "name": text("For spawn (default: generated)"),
            "working_dir": text("For spawn"),
            "session": text("For spawn: add a window to this session"),
        },
        "required": ["action"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_action_is_required() {
        let schema = input_schema();
        assert_eq!(schema["required"], json!(["action"]));
        let mut fields: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        fields.sort();
        assert_eq!(fields, ["action", "lines", "name", "prompt", "session", "target", "text", "working_dir"]);
    }
}
