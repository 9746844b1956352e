//! Tool calls that are forwarded to muxtap on a remote host.

use std::{sync::Arc, time::Duration};

use muxtap_engine::Engine;
use muxtap_rooms::Rooms;
use muxtap_tmux::Address;
use rmcp::model::JsonObject;
use serde_json::Value;

use super::{CallContext, ClientContext, output::ToolOutput, tools};

use muxtap_api::{Error, Operation, Result, Tier, ToolCallAnswer};

/// The tools that a peer can carry out, the operation of the lowest tier that each needs, and
/// whether a call may be repeated after the link was lost. All other tools keep state on this host.
const TOOLS: [(&str, Operation, bool); 11] = [
    ("list", Operation::Look, true),
    ("capture_pane", Operation::Look, true),
    ("read_since", Operation::Look, true),
    ("search", Operation::Look, true),
    ("wait_for", Operation::Look, false),
    ("watch", Operation::Look, false),
    ("send_keys", Operation::Input, false),
    ("run", Operation::Run, false),
    ("create", Operation::SplitWindow, false),
    ("change", Operation::ChangePane, false),
    ("kill", Operation::KillPane, false),
];

/// Returns the operation of a call. A request by id types nothing.
fn meant(operation: Operation, arguments: &JsonObject) -> Operation {
    match operation {
        Operation::Run if arguments.get("id").is_some_and(Value::is_string) => Operation::Look,
        Operation::ChangePane if arguments.get("kill") == Some(&true.into()) => Operation::Respawn { kill: true },
        operation => operation,
    }
}

/// Removes the host from the id of a wait or a run on that host, and returns it.
pub(super) fn take_from_id(call: &CallContext, arguments: &mut JsonObject) -> Option<String> {
    let Some(Value::String(id)) = arguments.get_mut("id") else { return None };
    let (host, rest) = id.split_once('/')?;
    let host = call.engine.reaches(host).then(|| host.to_owned())?;
    *id = rest.to_owned();
    Some(host)
}

/// Forwards a call to the host's muxtap, if it has one. `None`: the call is handled locally.
pub(super) async fn call(
    call: &CallContext,
    host: &str,
    name: &str,
    arguments: &JsonObject,
) -> Result<Option<ToolOutput>> {
    let Some(&(_, operation, again)) = TOOLS.iter().find(|(tool, ..)| *tool == name) else { return Ok(None) };
    let Some(peer) = call.rooms.peers.of(&call.engine, host) else { return Ok(None) };
    if !peer.is_there().await? {
        return Ok(None);
    }
    let tier = meant(operation, arguments).tier();
    let asks_only = tier == Tier::Read;
    if asks_only {
        call.engine.authorize(Tier::Read)?;
    } else {
        let target = arguments.get("target").and_then(Value::as_str).unwrap_or_default();
        call.confirm(tier, &format!("{name} on {host} {target}")).await?;
    }
    let mut arguments = arguments.clone();
    if let Some(Value::String(server)) = arguments.get("server") {
        call.engine.socket_named(server)?;
    }
    if let Some(Value::String(server)) = arguments.get_mut("server")
        && let Ok(Address::Elsewhere(_, socket)) = Address::parse(server.as_ref())
    {
        *server = socket.to_owned();
    }
    // A request by id can be repeated, however often the link is lost.
    let again = again || arguments.get("id").is_some_and(Value::is_string);
    let mut record = (!asks_only).then(|| call.engine.record_elsewhere(name, host));
    let answered = if name == "wait_for" {
        peer.wait_tool(&arguments, call.max_hold()).await
    } else {
        peer.tool(name, &arguments, again).await
    };
    if let Some(record) = &mut record {
        record.finish(answered.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok"));
    }
    let Some(answer) = answered? else { return Ok(None) };
    let unreadable = |error: serde_json::Error| Error::internal(format!("host {host}: {error}"));
    let ToolCallAnswer { text, mut answer, .. } = serde_json::from_value(answer).map_err(unreadable)?;
    if let Some(Value::String(id)) = answer.get_mut("id")
        && !id.starts_with(['%', '@', '$'])
    {
        *id = format!("{host}/{id}");
    }
    Ok(Some(ToolOutput { text, answer }))
}

/// Calls a native tool for a caller without an MCP session. `wait_id`: the id for a wait that the
/// call begins; that wait outlives the call, so the call can be repeated. `hold`: the maximum
/// duration of the call, if shorter than usual.
pub async fn call_tool(
    engine: &Engine,
    (rooms, client): (Arc<Rooms>, ClientContext),
    (name, arguments): (&str, JsonObject),
    wait_id: Option<String>,
    hold: Option<Duration>,
) -> Result<ToolCallAnswer> {
    let none = || Error::not_found(format!("unknown tool {name:?}"));
    if !TOOLS.iter().any(|(tool, ..)| *tool == name) {
        return Err(none());
    }
    let call = CallContext {
        engine: engine.clone(),
        rooms,
        client: client.into(),
        peer: None,
        progress: None,
        peer_pid: None,
        // The engine's caller carries this fact.
        over_tcp: false,
        elicitation: None,
        wait_id,
        hold,
    };
    let output = tools::call(&call, name, arguments).await.ok_or_else(none)??;
    Ok(ToolCallAnswer { text: output.text, answer: output.answer })
}
