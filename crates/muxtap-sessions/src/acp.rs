//! The part of the Agent Client Protocol, version 1, that sessions use: JSON-RPC 2.0, one message
//! per line.
//!
//! The fields that are read are declared here. The crate that has all of them would add some twenty
//! others, two of them derives built on `syn`, for six methods.

use muxtap_api::{AgentCost, AgentEvent, AgentPlanEntry, AgentUsage, PermissionOption, PromptOutcome};
use muxtap_approvals::consent;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::setup::options_of;

/// The version of the protocol.
pub(super) const PROTOCOL_VERSION: u64 = 1;
/// JSON-RPC's code for an unknown method.
pub(super) const NO_METHOD: i64 = -32601;
/// JSON-RPC's code for invalid parameters.
pub(super) const WRONG_PARAMS: i64 = -32602;
/// JSON-RPC's code for an internal error: the request could not be carried out.
pub(super) const CANNOT: i64 = -32603;
/// The protocol's code for a file, or something else, that does not exist.
pub(super) const NOT_FOUND: i64 = -32002;
/// The protocol's code for a request that its sender withdrew (`$/cancel_request`).
pub(super) const WITHDRAWN: i64 = -32800;

/// The maximum size of an event's text, in bytes; the rest is cut.
pub(super) const EVENT_TEXT_BYTES: usize = 256 << 10;
/// The maximum size of an update of an unknown kind, in bytes; of a larger one only the kind is
/// kept.
pub(super) const UPDATE_BYTES: usize = 64 << 10;
/// The maximum size of a title or an error's text, in bytes.
pub(super) const DETAIL_BYTES: usize = 4 << 10;

/// A message from the agent.
#[derive(Debug)]
pub(super) enum Message {
    /// A request; `id` is verbatim.
    Request { id: Box<RawValue>, method: String, params: Value },
    /// A notification.
    Notification { method: String, params: Value },
    /// A response to the request with this number.
    Reply { id: u64, result: Result<Value, RpcError> },
}

/// A JSON-RPC error.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RpcError {
    #[serde(default)]
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    data: Value,
}

impl RpcError {
    /// Returns the error in words, with its data if they are text.
    pub(super) fn text(&self) -> String {
        let data =
            self.data.as_str().or_else(|| ["message", "details"].iter().find_map(|name| self.data.get(name)?.as_str()));
        let text = match data {
            Some(data) => format!("{}: {data}", self.message),
            None if self.message.is_empty() => format!("error {}", self.code),
            None => self.message.clone(),
        };
        cut(text, DETAIL_BYTES)
    }
}

impl Message {
    /// Parses a line. Error: what is wrong with it.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            method: Option<String>,
            #[serde(default)]
            params: Value,
            #[serde(default)]
            result: Value,
            error: Option<RpcError>,
        }
        let text = std::str::from_utf8(line).map_err(|_| "a line that is not UTF-8".to_owned())?;
        let raw: Raw<'_> = serde_json::from_str(text).map_err(|_| "a line that is not a message".to_owned())?;
        match (raw.id, raw.method) {
            (Some(id), Some(method)) => Ok(Self::Request { id: id.to_owned(), method, params: raw.params }),
            (None, Some(method)) => Ok(Self::Notification { method, params: raw.params }),
            (Some(id), None) => match id.get().parse() {
                Ok(id) => Ok(Self::Reply { id, result: raw.error.map_or(Ok(raw.result), Err) }),
                Err(_) => Err("a reply without a request".to_owned()),
            },
            (None, None) => Err("a message without a method".to_owned()),
        }
    }

    /// Returns whether an overlong line begins like an update, which needs no response.
    pub(super) fn is_update(head: &[u8]) -> bool {
        let head: String =
            String::from_utf8_lossy(head).chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
        head.contains("\"method\":\"session/update\"") && !head.contains("\"id\":")
    }
}

/// Builds a request's line.
pub(super) fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// Builds a notification's line.
pub(super) fn notification(method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

/// Builds the line of a response to the agent's request.
pub(super) fn reply(id: &RawValue, result: Result<Value, (i64, String)>) -> Vec<u8> {
    line(&match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, message)) => json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }),
    })
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Returns the outcome in a response to `session/prompt`; `None` for an unknown reason.
pub(super) fn outcome(result: &Value) -> Option<PromptOutcome> {
    Some(match result.get("stopReason")?.as_str()? {
        "end_turn" => PromptOutcome::EndTurn,
        "refusal" => PromptOutcome::Refusal,
        "max_tokens" => PromptOutcome::MaxTokens,
        "max_turn_requests" => PromptOutcome::MaxTurns,
        "cancelled" => PromptOutcome::Cancelled,
        _ => return None,
    })
}

/// The parameters of `session/request_permission`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PermissionRequest {
    #[serde(default)]
    tool_call: Value,
    options: Vec<RawOption>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawOption {
    option_id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: String,
}

/// The maximum number of a question's options.
const MOST_OPTIONS: usize = 32;

impl PermissionRequest {
    /// Returns the tool call that the request is about.
    pub(super) fn tool_call(&self) -> &Value {
        &self.tool_call
    }

    /// Returns the possible answers.
    pub(super) fn into_options(self) -> Vec<PermissionOption> {
        let options = self.options.into_iter().take(MOST_OPTIONS);
        options
            .map(|option| PermissionOption {
                id: cut(option.option_id, 256),
                name: cut(consent::title(&option.name), 256),
                kind: cut(option.kind, 64),
            })
            .collect()
    }
}

/// Returns the response to a request that the agent withdrew.
pub(super) fn withdrawn() -> (i64, String) {
    (WITHDRAWN, "Request cancelled".into())
}

/// Returns the result of `session/request_permission`; `None` means cancelled.
pub(super) fn permission(option: Option<&str>) -> Value {
    match option {
        Some(option) => json!({ "outcome": { "outcome": "selected", "optionId": option } }),
        None => json!({ "outcome": { "outcome": "cancelled" } }),
    }
}

/// Converts an update to an event.
pub(super) fn event(update: Value) -> AgentEvent {
    let kind = update.get("sessionUpdate").and_then(Value::as_str).unwrap_or_default();
    let chunk = || cut(content_text(update.get("content").unwrap_or(&Value::Null)), EVENT_TEXT_BYTES);
    let text = |name: &str| update.get(name).and_then(Value::as_str).map(|text| cut(text.to_owned(), DETAIL_BYTES));
    match kind {
        "agent_message_chunk" => AgentEvent::Message { text: chunk(), message_id: text("messageId") },
        "agent_thought_chunk" => AgentEvent::Thought { text: chunk(), message_id: text("messageId") },
        "user_message_chunk" => AgentEvent::User { text: chunk(), message_id: text("messageId") },
        "tool_call" | "tool_call_update" => AgentEvent::Tool {
            id: text("toolCallId").unwrap_or_default(),
            title: text("title"),
            kind: text("kind"),
            status: text("status"),
            text: cut(tool_text(update.get("content").unwrap_or(&Value::Null)), EVENT_TEXT_BYTES),
        },
        "current_mode_update" => AgentEvent::Mode { mode: text("currentModeId").unwrap_or_default() },
        "config_option_update" => {
            AgentEvent::Options { options: options_of(update.get("configOptions").unwrap_or(&Value::Null)) }
        }
        "plan" => AgentEvent::Plan { entries: plan(update.get("entries").unwrap_or(&Value::Null)) },
        "usage_update" if usage(&update).is_some() => AgentEvent::Usage { usage: usage(&update).unwrap_or_default() },
        "session_info_update" if update.get("title").is_some() => {
            AgentEvent::Title { title: text("title").map(|text| consent::title(&text)) }
        }
        _ => {
            let bytes = serde_json::to_string(&update).map_or(0, |text| text.len());
            if bytes > UPDATE_BYTES {
                let kind = text("sessionUpdate");
                return AgentEvent::Update { update: json!({ "sessionUpdate": kind, "bytes": bytes }) };
            }
            AgentEvent::Update { update }
        }
    }
}

/// Reads a plan's entries, the first ones of a very long plan.
fn plan(entries: &Value) -> Vec<AgentPlanEntry> {
    let mut bytes = 0;
    let text = |entry: &Value, name: &str, most| {
        cut(entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned(), most)
    };
    let read = |entry: &Value| AgentPlanEntry {
        content: text(entry, "content", DETAIL_BYTES),
        priority: text(entry, "priority", 64),
        status: text(entry, "status", 64),
    };
    let entries = entries.as_array().into_iter().flatten().map(read);
    let fits = |entry: &AgentPlanEntry| {
        bytes += entry.content.len() + 128;
        bytes <= EVENT_TEXT_BYTES
    };
    entries.take_while(fits).collect()
}

/// Reads the use of a session's context. `None`: the figures are missing.
fn usage(update: &Value) -> Option<AgentUsage> {
    let number = |name: &str| update.get(name).and_then(Value::as_u64);
    let cost = update.get("cost").and_then(|cost| {
        let amount = cost.get("amount").and_then(Value::as_f64)?;
        let currency = cost.get("currency").and_then(Value::as_str)?;
        Some(AgentCost { amount, currency: cut(consent::title(currency), 64) })
    });
    Some(AgentUsage { used: number("used")?, size: number("size")?, cost })
}

/// Returns the text of a content block, or the kind of a block without text.
pub(super) fn content_text(block: &Value) -> String {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    match block.get("type").and_then(Value::as_str) {
        Some("text") => text(block, "text").unwrap_or_default(),
        Some("resource_link") => text(block, "uri").unwrap_or_default(),
        Some("resource") => block.get("resource").and_then(|resource| text(resource, "text")).unwrap_or_default(),
        Some(kind) => format!("[{kind}]"),
        None => String::new(),
    }
}

/// Returns the text of a tool's content.
fn tool_text(content: &Value) -> String {
    let mut text = String::new();
    for part in content.as_array().into_iter().flatten() {
        let more = match part.get("type").and_then(Value::as_str) {
            Some("content") => content_text(part.get("content").unwrap_or(&Value::Null)),
            Some("diff") => {
                part.get("path").and_then(Value::as_str).map(|path| format!("diff {path}")).unwrap_or_default()
            }
            _ => continue,
        };
        if !text.is_empty() && !more.is_empty() {
            text.push('\n');
        }
        text.push_str(&more);
        if text.len() > EVENT_TEXT_BYTES {
            break;
        }
    }
    text
}

/// Cuts a text to at most this many bytes, at a character boundary.
pub(super) fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let request = Message::parse(br#"{"jsonrpc":"2.0","id":"a-1","method":"fs/read","params":{"path":"/x"}}"#);
        assert!(
            matches!(request, Ok(Message::Request { id, method, .. }) if id.get() == "\"a-1\"" && method == "fs/read")
        );
        assert!(matches!(
            Message::parse(br#"{"method":"session/update","params":{}}"#),
            Ok(Message::Notification { .. })
        ));
        assert!(matches!(
            Message::parse(br#"{"id":3,"result":null}"#),
            Ok(Message::Reply { id: 3, result: Ok(Value::Null) })
        ));
        let Ok(Message::Reply { result: Err(error), .. }) = Message::parse(
            br#"{"id":3,"error":{"code":-32603,"message":"Internal error","data":{"message":"no model"}}}"#,
        ) else {
            panic!("no reply")
        };
        assert_eq!(error.text(), "Internal error: no model");
        for garbage in
            [&b"hello"[..], b"{}", b"[1]", b"\xff\xfe", b"{\"id\":\"x\",\"result\":1}", b"{\"id\":null}", b"{\"id\":1"]
        {
            assert!(Message::parse(garbage).is_err(), "{garbage:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(Message::parse(format!("{{\"method\":\"x\",\"params\":{deep}").as_bytes()).is_err());
    }

    #[test]
    fn an_update_that_is_too_long_is_known_by_its_beginning() {
        assert!(Message::is_update(br#"{"jsonrpc": "2.0", "method": "session/update", "params": {"upda"#));
        assert!(!Message::is_update(br#"{"jsonrpc":"2.0","id":3,"result":{"#));
        assert!(!Message::is_update(br#"{"id":1,"method":"session/update"#));
    }

    #[test]
    fn updates_become_events() {
        let text = |update: Value| match event(update) {
            AgentEvent::Message { text, .. } | AgentEvent::Tool { text, .. } => text,
            other => panic!("{other:?}"),
        };
        let block = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(text(json!({"sessionUpdate": "agent_message_chunk", "content": block("hi")})), "hi");
        let tool = json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": [
            {"type": "content", "content": block("one")}, {"type": "terminal", "terminalId": "x"},
            {"type": "diff", "path": "/a", "newText": "b"}, 7]});
        assert_eq!(text(tool), "one\ndiff /a");
        let long = "ü".repeat(EVENT_TEXT_BYTES);
        assert_eq!(
            text(json!({"sessionUpdate": "agent_message_chunk", "content": block(&long)})).len(),
            EVENT_TEXT_BYTES
        );
        let odd = event(json!({"sessionUpdate": "new_kind", "x": "y".repeat(UPDATE_BYTES)}));
        assert!(matches!(odd, AgentEvent::Update { update } if update["bytes"].as_u64() > Some(UPDATE_BYTES as u64)));
        assert!(matches!(event(json!(3)), AgentEvent::Update { .. }));
    }

    #[test]
    fn plans_usage_titles_and_message_ids_are_read() {
        let entry = |content: &str| json!({"content": content, "priority": "high", "status": "pending"});
        let plan = event(json!({"sessionUpdate": "plan", "entries": [entry("one"), 7]}));
        let AgentEvent::Plan { entries } = plan else { panic!("{plan:?}") };
        assert_eq!((entries[0].content.as_str(), entries[0].priority.as_str(), entries.len()), ("one", "high", 2));
        let long = event(json!({"sessionUpdate": "plan", "entries": vec![entry(&"x".repeat(9000)); 1000]}));
        let AgentEvent::Plan { entries } = long else { panic!("{long:?}") };
        assert!(entries.len() < 100 && entries[0].content.len() == DETAIL_BYTES);
        let cost = json!({"amount": 0.5, "currency": "USD"});
        let used = event(json!({"sessionUpdate": "usage_update", "used": 7, "size": 100, "cost": cost}));
        let AgentEvent::Usage { usage } = used else { panic!("{used:?}") };
        assert_eq!((usage.used, usage.size, usage.cost.unwrap().currency.as_str()), (7, 100, "USD"));
        for odd in [json!({"used": -1, "size": 2}), json!({"used": 1})] {
            let mut update = json!({"sessionUpdate": "usage_update"});
            update.as_object_mut().unwrap().extend(odd.as_object().unwrap().clone());
            assert!(matches!(event(update), AgentEvent::Update { .. }));
        }
        let named = |title: Value| event(json!({"sessionUpdate": "session_info_update", "title": title}));
        assert!(matches!(named(json!("a\nb")), AgentEvent::Title { title: Some(title) } if !title.contains('\n')));
        assert!(matches!(named(Value::Null), AgentEvent::Title { title: None }));
        let only = event(json!({"sessionUpdate": "session_info_update", "updatedAt": "2026"}));
        assert!(matches!(only, AgentEvent::Update { .. }));
        let part = event(
            json!({"sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": {"type": "text", "text": "x"}}),
        );
        assert!(matches!(part, AgentEvent::Message { message_id: Some(id), .. } if id == "m1"));
    }

    #[test]
    fn a_stop_reason_is_an_outcome() {
        let of = |reason: &str| outcome(&json!({ "stopReason": reason }));
        assert_eq!(of("end_turn"), Some(PromptOutcome::EndTurn));
        assert_eq!(of("max_turn_requests"), Some(PromptOutcome::MaxTurns));
        assert_eq!((of("odd"), outcome(&Value::Null)), (None, None));
    }

    #[test]
    fn a_question_says_what_is_wanted() {
        let request = json!({"sessionId": "s", "toolCall": {"toolCallId": "c", "title": "Run", "kind": "execute",
            "rawInput": {"command": ["rm", "-r", "x"]}},
            "options": [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]});
        let request: PermissionRequest = serde_json::from_value(request).unwrap();
        assert_eq!(request.tool_call()["title"], "Run");
        let options = request.into_options();
        assert!(options[0].allows() && options[0].id == "y");
    }
}
