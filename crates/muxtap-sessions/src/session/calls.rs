//! Requests to the agent on behalf of callers, besides prompts: its mode, its options, its end.

use std::time::Duration;

use muxtap_api::{AgentEvent, AgentSessionPatch, Error, ErrorCode, Result};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Asked, Session, State, acp};
use crate::setup::options_of;

/// How long an agent may take to set a mode or an option.
const SET_LIMIT: Duration = Duration::from_secs(30);
/// How long an agent may take to close its session, before it is ended.
pub(crate) const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// The maximum number of a session's requests of this kind that the agent has not replied to.
const OPEN_CALLS: usize = 16;

/// A caller that sets something: its request and what follows from the response are one change.
struct Setting<'a>(&'a Session);

impl<'a> Setting<'a> {
    fn begin(session: &'a Session) -> Result<Self> {
        let mut state = session.lock();
        session.check_here()?;
        state.setting += 1;
        Ok(Self(session))
    }
}

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        self.0.lock().setting -= 1;
        self.0.rest.notify_waiters();
    }
}

impl State {
    /// Notes a request to the agent, and returns its line.
    pub(super) fn ask(&mut self, asked: Asked, method: &str, params: &Value) -> Vec<u8> {
        let request = self.turns.request();
        self.asked.insert(request, asked);
        acp::request(request, method, params)
    }
}

impl Session {
    /// Sets the mode and the options. Errors: `INVALID_ARGUMENT`, `CONFLICT`, `RESOURCE_LIMIT`,
    /// `TIMEOUT`; `TMUX_UNAVAILABLE` while another daemon takes over.
    pub(crate) async fn set(&self, patch: &AgentSessionPatch) -> Result<()> {
        let _setting = Setting::begin(self)?;
        let id = self.name().id;
        if let Some(mode) = &patch.mode {
            let (method, params) = self.lock().controls.mode_request(&id, mode)?;
            let result = self.call(method, &params, SET_LIMIT).await?;
            self.note_options(&result);
            let mut state = self.lock();
            if !state.controls.has_mode_of(&result) && state.controls.set_mode(mode) {
                state.event(AgentEvent::Mode { mode: mode.clone() });
            }
            self.announce(state);
        }
        for (option, value) in &patch.options {
            let (method, params) = self.lock().controls.option_request(&id, option, value)?;
            let result = self.call(method, &params, SET_LIMIT).await?;
            self.note_options(&result);
        }
        Ok(())
    }

    /// Takes the options from a response, which has all of them.
    fn note_options(&self, result: &Value) {
        if let Some(options) = result.get("configOptions").filter(|options| options.is_array()) {
            let mut state = self.lock();
            state.take_options(options_of(options));
            self.announce(state);
        }
    }

    /// Lets an agent that can close its session do so, for a moment; it is ended afterwards.
    pub(crate) async fn close(&self) {
        let Some(name) = self.name.get() else { return };
        if !self.lock().able.close || self.kill.is_cancelled() {
            return;
        }
        // Whatever it replies, it is ended.
        let _ = self.call("session/close", &json!({ "sessionId": name.id }), CLOSE_LIMIT).await;
    }

    /// Sends a request to the agent, and returns the result. Errors: `CONFLICT` with the agent's error,
    /// or if the agent ends; `RESOURCE_LIMIT`; `TIMEOUT`.
    async fn call(&self, method: &str, params: &Value, limit: Duration) -> Result<Value> {
        let (sender, reply) = oneshot::channel();
        let request = {
            let mut state = self.lock();
            let open = state.asked.values().filter(|asked| **asked == Asked::Call).count();
            if open >= OPEN_CALLS {
                let message = format!("too many requests that the agent has not answered: at most {OPEN_CALLS}");
                return Err(Error::new(ErrorCode::ResourceLimit, message));
            }
            let line = state.ask(Asked::Call, method, params);
            let request = state.turns.last_request();
            state.waiting.insert(request, sender);
            self.send(&mut state, line);
            request
        };
        let result = tokio::select! {
            result = reply => result.ok(),
            () = self.gone.cancelled() => None,
            () = self.kill.cancelled() => None,
            () = tokio::time::sleep(limit) => {
                self.lock().waiting.remove(&request);
                let message = format!("{method}: the agent has not replied within {} s", limit.as_secs());
                return Err(Error::new(ErrorCode::Timeout, message));
            }
        };
        let ended = || Err(Error::new(ErrorCode::Conflict, format!("{} has ended", self.name())));
        result.unwrap_or_else(ended)
    }
}
