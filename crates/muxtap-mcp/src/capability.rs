//! The tool `tmux`, of the set `capability`: the tmux capability of an assistant's sandbox.

use std::sync::LazyLock;

use muxtap_capability::{CONTAINER_VARIABLE, CapabilityAnswer, CapabilityRequest, CapabilitySettings};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    CallContext,
    accepted::fields_of,
    output::ToolOutput,
    synonyms,
    tools::{Effect, tool},
};

use muxtap_api::Result;

/// The name of the tool.
pub const NAME: &str = "tmux";

/// Arguments of `tmux`, as the model sees them; the capability defines their meaning.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Arguments {
    /// `init`, `send`, `read`, `split`, `list`, `kill` or `window`
    pub action: String,
    /// `0.1`: window 0, pane 1 (default `0.0`)
    pub pane: Option<String>,
    /// For `send`: typed, then Enter. Returns at once: read later
    pub command: Option<String>,
    /// For `send`: clear the screen first
    pub clear: Option<bool>,
    /// For `read`: the last lines (default 100)
    pub lines: Option<u32>,
    /// For `read`: the whole history
    pub all: Option<bool>,
    /// For `read`: only output since the last read
    pub since: Option<bool>,
    /// For `split` (default 0) and `kill`
    pub window: Option<u32>,
    /// For `split`: `horizontal` (side by side) or `vertical`
    pub direction: Option<String>,
    /// For `split`
    pub title: Option<String>,
    /// For `split` and `window`
    pub cwd: Option<String>,
    /// For `window`
    pub name: Option<String>,
}

/// The tools of the set.
pub static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![tool::<Arguments, CapabilityAnswer>(
        NAME,
        "Persistent shells in the sandbox: panes that keep running between calls.",
        Effect::Types,
    )]
});

/// Reads JSON that a model gives as text, such as `"\"0.1\""` or `"50"`, as the value it denotes; free
/// text is kept unchanged.
fn read_text(name: &str, value: &mut Value) {
    if matches!(name, "command" | "title" | "cwd" | "name") {
        return;
    }
    let Some(text) = value.as_str() else { return };
    match serde_json::from_str::<Value>(text) {
        // A number loses its spelling: pane 0.10 is not 0.1.
        Ok(Value::Number(_)) if name == "pane" => {}
        Ok(read @ (Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null)) => *value = read,
        _ => {}
    }
}

/// Carries out an action.
pub async fn call(call: &CallContext, mut arguments: JsonObject) -> Result<ToolOutput> {
    synonyms::rename(&mut arguments, fields_of::<Arguments>())?;
    arguments.iter_mut().for_each(|(name, value)| read_text(name, value));
    let client = &call.client;
    let var = |name: &str| client.env.as_ref().and_then(|env| env.get(name).cloned());
    let settings = CapabilitySettings {
        socket: client.capability_socket.clone(),
        container: var(CONTAINER_VARIABLE),
        ..CapabilitySettings::default()
    };
    let request = CapabilityRequest::parse(&arguments);
    if let Ok(request) = &request {
        let action = arguments.get("action").and_then(Value::as_str).unwrap_or_default();
        call.confirm(request.tier(), &format!("{action} in the sandbox")).await?;
    }
    // The client's user chose this set of tools.
    let answer = call.rooms.capability.run(&call.engine, &settings, true, request).await;
    let text = serde_json::to_string(&answer).unwrap_or_default();
    Ok(ToolOutput { is_error: !answer.success, ..ToolOutput::new(text, &answer) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_given_as_text_is_read_but_in_a_free_text() {
        for (name, given, meant) in [
            ("pane", json!("\"0.1\""), json!("0.1")),
            ("pane", json!("0.10"), json!("0.10")),
            ("lines", json!("50"), json!(50)),
            ("since", json!("true"), json!(true)),
            ("window", json!("null"), Value::Null),
            ("action", json!("\"list\""), json!("list")),
            ("command", json!("true"), json!("true")),
            ("title", json!("\"x\""), json!("\"x\"")),
        ] {
            let mut value = given.clone();
            read_text(name, &mut value);
            assert_eq!(value, meant, "{name} {given}");
        }
    }
}
