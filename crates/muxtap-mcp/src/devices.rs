//! The tools `devices` and `workspace`, of the set `devices`: a person's screen, for an agent that
//! wants to show something.

use std::sync::LazyLock;

use muxtap_base::{nonce, plain as plain_text};
use muxtap_devices::{
    Caller,
    workspace::{RpcRead, needs_key},
};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    CallContext,
    args::parse,
    output::ToolOutput,
    quoted::push_row,
    tools::{Effect, tool},
};

use muxtap_api::{DeviceInfo, Error, Result, RpcRequest, Tier};

/// The caller id of agents' requests.
const AGENT: &str = "mcp";

/// Arguments of `devices`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDevices {}

/// Result of `devices`.
#[derive(Debug, Serialize, ToSchema)]
pub struct DevicesOutput {
    /// The devices.
    devices: Vec<DeviceInfo>,
}

/// Arguments of `workspace`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    /// The device
    pub device: String,
    /// new-tab, split-pane, open-browser, navigate, open-editor, attach-terminal, select-tab, select-pane, rename-tab,
    /// kill-tab, kill-pane, resize-pane, swap-pane; default: read tabs and panes
    pub command: Option<String>,
    /// Its target (tab:ID, pane:ID), direction, url, file, title, to, x, y, source, browser, editor
    #[serde(default, deserialize_with = "object_or_text")]
    #[schema(value_type = Option<Object>)]
    pub args: Option<Value>,
    /// The workspaceRevision you saw
    pub expected_revision: Option<u64>,
    /// For retries
    pub key: Option<String>,
    /// If offline, as last published
    #[serde(default)]
    pub allow_stale: bool,
}

/// Reads an object, or a text of JSON that is one: models write both.
fn object_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<Value>, D::Error> {
    let given = Option::<Value>::deserialize(deserializer)?;
    let object = given.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok());
    Ok(object.filter(Value::is_object).or(given).map(plain))
}

/// Returns arguments with numbers where a text of a number is given and only a number can be meant.
fn plain(mut args: Value) -> Value {
    for name in ["x", "y"] {
        if let Some(value) = args.get_mut(name)
            && let Some(number) = value.as_str().and_then(|text| text.trim().parse::<serde_json::Number>().ok())
        {
            *value = Value::Number(number);
        }
    }
    args
}

/// Result of `workspace`: a workspace, or a change to it.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceOutput {
    /// The revision that includes the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_revision: Option<u64>,
    /// The owner's response, or the workspace.
    #[schema(value_type = Object)]
    result: Value,
}

/// The tools of the set.
pub static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![
        tool::<ListDevices, DevicesOutput>("devices", "List a person's devices and which are online.", Effect::Reads),
        tool::<Workspace, WorkspaceOutput>(
            "workspace",
            "Read or change a device's tabs and panes; its person may be asked first.",
            Effect::Changes,
        ),
    ]
});

/// Returns the caller that an agent acts as: the user that started the agent.
fn caller() -> Caller {
    Caller {
        principal: "user".into(),
        device: None,
        remote_control: true,
        label: "an agent (MCP)".into(),
        program: "an agent over MCP".into(),
        family: None,
        token_ends: None,
        read_only: false,
    }
}

/// Calls the tool `devices`.
pub fn list(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let _: ListDevices = parse(arguments)?;
    call.engine.authorize(Tier::Read)?;
    let devices = call.rooms.devices.relay.list(&caller()).devices;
    Ok(ToolOutput::new(text(&devices), &DevicesOutput { devices }))
}

/// Formats one line for each device.
pub(super) fn text(devices: &[DeviceInfo]) -> String {
    let mut text = String::new();
    for one in devices {
        let state = if one.online { "online" } else { "offline" };
        let row = format!(
            "{} {} {state}, revision {}: {}",
            one.device_id,
            one.device_type.as_str(),
            one.workspace_revision,
            one.device_label
        );
        push_row(&mut text, &row);
    }
    if devices.is_empty() {
        text.push_str("no devices");
    }
    text
}

/// Calls the tool `workspace`.
pub async fn workspace(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: Workspace = parse(arguments)?;
    let relay = &call.rooms.devices.relay;
    let Some(command) = args.command else {
        call.engine.authorize(Tier::Read)?;
        let answer = relay.workspace(&caller(), AGENT, &args.device, args.allow_stale).await?;
        let result = serde_json::to_value(&answer).map_err(|error| Error::internal(error.to_string()))?;
        let text = plain_text::json(&result.to_string()).into_owned();
        return Ok(ToolOutput::new(text, &WorkspaceOutput { applied_revision: None, result }));
    };
    // An unknown device and a request that no owner can carry out are errors before a person is asked.
    relay.get(&caller(), &args.device)?;
    RpcRead::parse(&command, args.args.clone().unwrap_or_default(), None, None)?;
    call.confirm(Tier::Create, &format!("{command} on the device {}", args.device)).await?;
    let expected_revision = match args.expected_revision {
        Some(revision) => revision,
        None => relay.workspace(&caller(), AGENT, &args.device, false).await?.workspace_revision,
    };
    let key = args.key.or_else(|| needs_key(&command).then(|| format!("key_{}", nonce::hex64())));
    let request = RpcRequest {
        request_id: format!("mcp_{}", nonce::hex64()),
        caller_device_id: AGENT.into(),
        target_device_id: args.device,
        command,
        args: args.args.unwrap_or_default(),
        expected_revision: Some(expected_revision),
        idempotency_key: key,
        // A person has 30 s to answer; the call is held no longer than others.
        ..RpcRequest::default()
    };
    let said = relay.request(&caller(), request).await?;
    let mut text = format!("done, revision {}", said.applied_revision.unwrap_or_default());
    if said.result.as_object().is_some_and(|result| !result.is_empty()) {
        text.push_str(": ");
        text.push_str(&plain_text::json(&said.result.to_string()));
    }
    Ok(ToolOutput::new(text, &WorkspaceOutput { applied_revision: said.applied_revision, result: said.result }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_an_object_or_its_text() {
        let read = |args: Value| {
            let given = json!({ "device": "d", "command": "resize-pane", "args": args });
            parse::<Workspace>(given.as_object().unwrap().clone()).unwrap().args
        };
        let meant = Some(json!({ "target": "pane:p1", "x": 80 }));
        assert_eq!(read(json!({ "target": "pane:p1", "x": 80 })), meant);
        assert_eq!(read(json!("{\"target\": \"pane:p1\", \"x\": \"80\"}")), meant);
        assert_eq!(read(json!({ "title": "80" })), Some(json!({ "title": "80" })));
        assert_eq!(read(json!("no object")), Some(json!("no object")), "its error names it");
        assert_eq!(read(Value::Null), None);
    }
}
