//! How a session is opened: `initialize`, then `session/new` or `session/load`, then its mode.

use muxtap_api::{Error, ErrorCode, Result, SessionName};
use serde_json::{Value, json};

use super::{Asked, Session, State, acp};

impl Session {
    /// Returns the request that opens the session, after `initialize`.
    pub(super) fn open_session(&self, state: &mut State, result: &Value) -> Result<Option<Vec<u8>>> {
        let conflict = |message: String| Error::new(ErrorCode::Conflict, message);
        let version = result.get("protocolVersion").and_then(Value::as_u64).unwrap_or_default();
        if version != acp::PROTOCOL_VERSION {
            return Err(conflict(format!("unsupported ACP version: the agent speaks {version}, muxtap speaks 1")));
        }
        let cwd = self.about.cwd.display().to_string();
        let (method, params) = match &self.about.resume {
            Some(id) => {
                let loads = result.pointer("/agentCapabilities/loadSession").and_then(Value::as_bool);
                if loads != Some(true) {
                    return Err(conflict("this agent cannot resume an earlier session".into()));
                }
                ("session/load", json!({ "sessionId": id, "cwd": cwd, "mcpServers": [] }))
            }
            None => ("session/new", json!({ "cwd": cwd, "mcpServers": [] })),
        };
        let request = state.turns.request();
        state.asked.insert(request, Asked::Open);
        Ok(Some(acp::request(request, method, &params)))
    }

    /// Takes the session's id from the response; returns the request that sets its mode, if needed.
    pub(super) fn take_session(&self, state: &mut State, result: &Value) -> Result<Option<Vec<u8>>> {
        let id = match &self.about.resume {
            Some(id) => id.as_str(),
            None => result.get("sessionId").and_then(Value::as_str).unwrap_or_default(),
        };
        if !SessionName::is_part(id) {
            return Err(Error::new(ErrorCode::Conflict, "the agent returned an unusable session id"));
        }
        let name = SessionName { provider: self.about.provider.clone(), id: id.to_owned() };
        // The name is set only once: `Asked::Open` is sent once.
        let _ = self.name.set(name);
        let mode = result.pointer("/modes/currentModeId").and_then(Value::as_str);
        state.mode = mode.map(str::to_owned);
        let Some(mode) = self.about.mode.as_ref().filter(|mode| state.mode.as_ref() != Some(*mode)) else {
            return Ok(None);
        };
        let request = state.turns.request();
        state.asked.insert(request, Asked::Mode);
        Ok(Some(acp::request(request, "session/set_mode", &json!({ "sessionId": id, "modeId": mode }))))
    }
}

/// ACP's code for an agent that requires a login.
const AUTH_REQUIRED: i64 = -32000;

/// Builds the error for a request that the agent refused.
pub(super) fn refused(asked: Asked, error: &acp::RpcError) -> Error {
    let words = error.text();
    let message = match asked {
        _ if error.code == AUTH_REQUIRED => {
            format!("the agent requires a login ({words}): log in with its own program, then try again")
        }
        Asked::Initialize => format!("the agent failed to initialize: {words}"),
        Asked::Mode => format!("the agent rejected the mode: {words}"),
        Asked::Open | Asked::Prompt => format!("the agent opened no session: {words}"),
    };
    Error::new(ErrorCode::Conflict, message)
}
