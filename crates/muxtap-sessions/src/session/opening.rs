//! How a session is opened: `initialize`, `authenticate` if a login is named, then `session/new`,
//! `session/resume` or `session/load`, then its mode; or `session/list` instead.

use muxtap_api::{AgentEarlier, Error, ErrorCode, Result, SessionName};
use muxtap_approvals::consent::title;
use serde_json::{Value, json};

use super::{
    super::setup::Abilities,
    {Asked, Purpose, Session, State, acp},
};

/// The maximum number of an agent's own sessions that are listed.
pub(in super::super) const LISTED_SESSIONS: usize = 1000;
/// The maximum number of pages of such a list.
const LIST_PAGES: usize = 100;

impl Session {
    /// Returns the request that follows `initialize`.
    pub(super) fn initialized(&self, state: &mut State, result: &Value) -> Result<Option<Vec<u8>>> {
        let version = result.get("protocolVersion").and_then(Value::as_u64).unwrap_or_default();
        if version != acp::PROTOCOL_VERSION {
            return Err(conflict(format!("unsupported ACP version: the agent speaks {version}, muxtap speaks 1")));
        }
        state.able = Abilities::of(result);
        match &self.about.auth {
            Some(id) => {
                let params = json!({ "methodId": state.able.login(id)? });
                Ok(Some(state.ask(Asked::Authenticate, "authenticate", &params)))
            }
            None => self.open_session(state),
        }
    }

    /// Returns the request that opens the session, or lists the agent's sessions.
    pub(super) fn open_session(&self, state: &mut State) -> Result<Option<Vec<u8>>> {
        let cwd = self.about.cwd.display().to_string();
        let (asked, method, params) = match &self.about.purpose {
            Purpose::New => (Asked::Open, "session/new", json!({ "cwd": cwd, "mcpServers": [] })),
            Purpose::Resume(id) => {
                // Resuming sends no earlier message again.
                let method = match (state.able.resume, state.able.load) {
                    (true, _) => "session/resume",
                    (_, true) => "session/load",
                    _ => return Err(conflict("this agent cannot resume an earlier session".into())),
                };
                (Asked::Open, method, json!({ "sessionId": id, "cwd": cwd, "mcpServers": [] }))
            }
            Purpose::List { .. } if !state.able.list => {
                return Err(conflict("this agent does not list its sessions".into()));
            }
            Purpose::List { all: true } => (Asked::List, "session/list", json!({})),
            Purpose::List { all: false } => (Asked::List, "session/list", json!({ "cwd": cwd })),
        };
        Ok(Some(state.ask(asked, method, &params)))
    }

    /// Takes the session's id from the response; returns the request that sets its mode, if needed.
    pub(super) fn take_session(&self, state: &mut State, result: &Value) -> Result<Option<Vec<u8>>> {
        let id = match &self.about.purpose {
            Purpose::Resume(id) => id.as_str(),
            _ => result.get("sessionId").and_then(Value::as_str).unwrap_or_default(),
        };
        if !SessionName::is_part(id) {
            return Err(Error::new(ErrorCode::Conflict, "the agent returned an unusable session id"));
        }
        let name = SessionName { provider: self.about.provider.clone(), id: id.to_owned() };
        // The name is set only once: `Asked::Open` is sent once.
        let _ = self.name.set(name);
        state.controls.take(result);
        let Some(mode) = self.about.mode.as_ref().filter(|mode| state.controls.mode.as_ref() != Some(*mode)) else {
            return Ok(None);
        };
        let (method, params) = state.controls.mode_request(id, mode)?;
        Ok(Some(state.ask(Asked::Mode, method, &params)))
    }

    /// Takes a page of the agent's sessions; returns the request for the next one.
    pub(super) fn take_list(&self, state: &mut State, result: &Value) -> Option<Vec<u8>> {
        let listed = result.get("sessions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut room = LISTED_SESSIONS.saturating_sub(state.earlier.sessions.len());
        for session in listed.iter().filter_map(earlier) {
            if room == 0 {
                state.earlier.more = true;
                return None;
            }
            room -= 1;
            state.earlier.sessions.push(session);
        }
        state.pages += 1;
        let cursor = result.get("nextCursor").and_then(Value::as_str)?;
        state.earlier.more = room == 0 || state.pages >= LIST_PAGES;
        if state.earlier.more {
            return None;
        }
        let mut params = json!({ "cursor": cursor });
        if matches!(self.about.purpose, Purpose::List { all: false }) {
            params = json!({ "cursor": cursor, "cwd": self.about.cwd.display().to_string() });
        }
        Some(state.ask(Asked::List, "session/list", &params))
    }
}

/// Reads an entry of the agent's list. `None`: a session that no name can have.
fn earlier(session: &Value) -> Option<AgentEarlier> {
    let text = |name: &str| session.get(name).and_then(Value::as_str).map(title);
    let id = session.get("sessionId").and_then(Value::as_str).filter(|id| SessionName::is_part(id))?;
    Some(AgentEarlier {
        session_id: id.to_owned(),
        cwd: text("cwd").unwrap_or_default(),
        title: text("title"),
        updated_at: text("updatedAt"),
    })
}

fn conflict(message: String) -> Error {
    Error::new(ErrorCode::Conflict, message)
}

/// ACP's code for an agent that requires a login.
const AUTH_REQUIRED: i64 = -32000;

/// Builds the error for a request that the agent refused.
pub(super) fn refused(asked: Asked, error: &acp::RpcError, able: &Abilities) -> Error {
    let words = error.text();
    let message = match asked {
        _ if error.code == AUTH_REQUIRED => format!("the agent requires a login ({words}): {}", able.way_in()),
        Asked::Initialize => format!("the agent failed to initialize: {words}"),
        Asked::Authenticate => format!("the agent's login failed: {words}"),
        Asked::Mode => format!("the agent rejected the mode: {words}"),
        Asked::List => format!("the agent did not list its sessions: {words}"),
        Asked::Call => format!("the agent rejected this: {words}"),
        Asked::Open | Asked::Prompt => format!("the agent opened no session: {words}"),
    };
    conflict(message)
}
