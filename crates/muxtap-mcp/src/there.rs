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

/// The tools whose calls are forwarded. Another one uses what belongs to the daemon itself.
const FORWARDED: [&str; 15] = [
    "list",
    "capture_pane",
    "read_since",
    "wait_for",
    "run",
    "send_keys",
    "create",
    "kill",
    "rename",
    "resize",
    "select",
    "respawn",
    "change",
    "search",
    "watch",
];

/// Returns whether calls of a tool are forwarded to a host that they name.
pub fn is_forwarded(name: &str) -> bool {
    let named = JsonObject::new();
    FORWARDED.contains(&name) && ToolCall::parse(name, named).is_some()
}

/// Forwards a call to the host's muxtap, if it has one. `None`: the call is handled locally.
pub(super) async fn call(
    call: &CallContext,
    host: &str,
    name: &str,
    asked: &mut ToolCall,
) -> Result<Option<ToolOutput>> {
    let Some(Remote { operation, again }) = asked.remote() else { return Ok(None) };
    let Some(peer) = call.rooms.peers.of(&call.engine, host, operation.tier()) else { return Ok(None) };
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
    let Some(answer) = answered.map_err(|error| error_on_host(error, host))? else {
        if let Some(server) = asked.server() {
            *server = named;
        }
        return Ok(None);
    };
    let unreadable = |error: serde_json::Error| Error::internal(format!("host {host}: {error}"));
    let ToolCallAnswer { text, mut answer, .. } = serde_json::from_value(answer).map_err(unreadable)?;
    let text = match name_pending(&mut answer, host) {
        Some((id, named)) => text_with_id(&text, &id, &named),
        None => text,
    };
    Ok(Some(ToolOutput { text, answer, is_error: false }))
}

/// Prefixes the id of a wait or a run with its host. Returns the id and the prefixed one.
fn name_pending(answer: &mut Value, host: &str) -> Option<(String, String)> {
    let Some(Value::String(id)) = answer.get_mut("id") else { return None };
    if id.starts_with(['%', '@', '$']) {
        return None;
    }
    let named = format!("{host}/{id}");
    Some((std::mem::replace(id, named.clone()), named))
}

/// Replaces the id in the line that says how to continue, the first or the last one: lines between
/// them are a pane's.
fn text_with_id(text: &str, id: &str, named: &str) -> String {
    let (asks, meant) = (format!("id: {id:?}"), format!("id: {named:?}"));
    let (first, rest) = text.split_once('\n').map_or((text, None), |(first, rest)| (first, Some(rest)));
    let first = first.replace(&asks, &meant);
    let Some(rest) = rest else { return first };
    match rest.rsplit_once('\n') {
        Some((between, last)) => format!("{first}\n{between}\n{}", last.replace(&asks, &meant)),
        None => format!("{first}\n{}", rest.replace(&asks, &meant)),
    }
}

/// Returns an error of another host with ids as named from this host.
fn error_on_host(mut error: Error, host: &str) -> Error {
    if let Some(details) = &mut error.details
        && let Some((id, named)) = name_pending(details, host)
    {
        error.message = error.message.replace(&format!("id: {id:?}"), &format!("id: {named:?}"));
    }
    error
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_muxtaps_own_lines_get_the_prefixed_id() {
        let printed = "id: \"r1\"";
        for (text, meant) in [
            ("pending: with id: \"r1\" to continue", "pending: with id: \"far/r1\" to continue".to_owned()),
            ("pending: id: \"r1\"\nx", "pending: id: \"far/r1\"\nx".to_owned()),
            (
                &format!("one\n{printed}\n[pending: run with id: \"r1\"]"),
                format!("one\n{printed}\n[pending: run with id: \"far/r1\"]"),
            ),
        ] {
            assert_eq!(text_with_id(text, "r1", "far/r1"), meant);
        }
    }
}
