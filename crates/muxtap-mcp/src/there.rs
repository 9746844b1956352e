//! Tool calls that are forwarded to muxtap on a remote host.

use std::{sync::Arc, time::Duration};

use muxtap_engine::Engine;
use muxtap_rooms::Rooms;
use muxtap_tmux::Address;
use rmcp::model::JsonObject;
use serde_json::Value;

use super::{
    CallContext, ClientContext,
    output::ToolOutput,
    tool_call::{Remote, ToolCall},
    tools,
};

use muxtap_api::{Error, Result, Tier, ToolCallAnswer};

/// Forwards a call to the host's muxtap, if it has one. `None`: the call is handled locally.
pub(super) async fn call(
    call: &CallContext,
    host: &str,
    name: &str,
    asked: &mut ToolCall,
) -> Result<Option<ToolOutput>> {
    let Some(Remote { operation, again }) = asked.remote() else { return Ok(None) };
    let Some(peer) = call.rooms.peers.of(&call.engine, host) else { return Ok(None) };
    if !peer.is_there().await? {
        return Ok(None);
    }
    let tier = operation.tier();
    let asks_only = tier == Tier::Read;
    if asks_only {
        call.engine.authorize(Tier::Read)?;
    } else {
        call.confirm(tier, &format!("{name} on {host} {}", asked.target())).await?;
    }
    let named = asked.server().and_then(Option::take);
    if let Some(named) = &named {
        call.engine.socket_named(named)?;
    }
    let there = match named.as_deref().map(|named| Address::parse(named.as_ref())) {
        Some(Ok(Address::Elsewhere(_, socket))) => Some(socket.to_owned()),
        _ => named.clone(),
    };
    if let Some(server) = asked.server() {
        *server = there;
    }
    let mut record = (!asks_only).then(|| call.engine.record_elsewhere(name, host));
    let answered = if let ToolCall::Wait(wait) = &*asked {
        peer.wait_tool(wait, wait.id.as_deref(), call.max_hold()).await
    } else {
        peer.tool(asked.wire_name(name), &*asked, again).await
    };
    if let Some(record) = &mut record {
        record.finish(answered.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok"));
    }
    let Some(answer) = answered? else {
        if let Some(server) = asked.server() {
            *server = named;
        }
        return Ok(None);
    };
    let unreadable = |error: serde_json::Error| Error::internal(format!("host {host}: {error}"));
    let ToolCallAnswer { text, mut answer, .. } = serde_json::from_value(answer).map_err(unreadable)?;
    if let Some(Value::String(id)) = answer.get_mut("id")
        && !id.starts_with(['%', '@', '$'])
    {
        *id = format!("{host}/{id}");
    }
    Ok(Some(ToolOutput { text, answer, is_error: false }))
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
    // The supervisor asks the person of its client, and other sets of tools are for clients that chose them.
    if name == muxtap_supervise::NAME || tools::find(&[], name).is_none() {
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
