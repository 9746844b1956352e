//! How the tool is listed.

use serde_json::{Value, json};

use super::ACTIONS;

/// The tool's name.
pub const NAME: &str = "manage_tmux_sessions";

/// What the tool is for.
pub const DESCRIPTION: &str = "Manage Claude sessions running in tmux. List sessions, capture output, check status, approve or deny \
    permission dialogs, send input, spawn new sessions (a human is asked first), or kill sessions.";

/// The JSON schema of its arguments.
pub fn input_schema() -> Value {
    let text = |what: &str| json!({ "type": "string", "description": what });
    json!({
        "type": "object",
        "properties": {
            "action": { "type": "string", "enum": ACTIONS, "description": "What to do" },
            "target": text("Tmux pane target, as session:window.pane (for kill: a session). Required for all actions but list and spawn"),
            "text": text("Text to send (send_input)"),
            "lines": { "type": "integer", "description": "How many lines to capture (capture; default 100)" },
            "prompt": text("Prompt for the new Claude session (spawn)"),
            "name": text("Name of the new session or window (spawn; default: generated)"),
            "working_dir": text("Directory of the new session (spawn)"),
            "session": text("Existing tmux session to add a window to, instead of a new session (spawn)"),
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
