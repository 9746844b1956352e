//! The mode with tmux: every action of the contract, done by the engine.

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::http::StatusCode;
use tokio::time::timeout;

use super::{
    answer::{Object, Refusal},
    backend::{Done, made_up_name, sorted},
    js::Text,
    own_program,
    pattern::Pool,
    request::{Action, Request},
    settings::Settings,
    sight::{Shape, Sights, View},
};
use crate::{
    api::{Error, ErrorCode, NewSessionRequest, Result, SpawnRequest},
    config, daemon,
    engine::{Caller, Engine, EngineOptions, Host, Pane},
    tmux::{CoverageMode, Program, SessionRow, is_absent, is_unanswered},
};

/// A new session's size.
const SIZE: (u16, u16) = (80, 24);
/// How often a session is made whose server goes away meanwhile.
const TRIES: u32 = 3;
/// How long the engine may take to let go of tmux.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// An engine of the bridge's own, and what it is asked through.
pub struct Live {
    pub(super) engine: Engine,
    socket: PathBuf,
    version: String,
    /// How long tmux may take for a command.
    pub(super) limit: Duration,
    pub(super) sights: Sights,
    pub(super) pool: Pool,
    environment: std::collections::BTreeMap<String, String>,
    directory: Option<String>,
}

/// A session that is there.
pub(super) struct Found {
    /// As tmux calls it.
    pub(super) name: String,
    /// Its id.
    id: String,
    /// Its active pane.
    pub(super) pane: Arc<Pane>,
}

impl Live {
    /// Looks for tmux and begins to follow the server, if it runs. Error: why there is no tmux.
    pub async fn start(settings: &Settings, common: &config::Settings) -> std::result::Result<Self, String> {
        let own = own_program()?;
        let program = Program {
            tmux: common.tmux.clone(),
            config: Some("/dev/null".into()),
            limit: settings.command_timeout,
            prefix: Vec::new(),
        };
        let version = program.version().await.map_err(|error| format!("tmux binary not available: {error}"))?;
        settings.make_socket_dirs()?;
        let engine = Engine::new(EngineOptions {
            program,
            coverage: CoverageMode::Auto,
            ring_bytes: common.ring_bytes,
            budget_bytes: common.budget_bytes,
            allowed: common.allowed,
            audit: daemon::audit(common).map_err(|error| error.message)?,
            // Nobody asks a bridge for agents.
            agents: Arc::default(),
        });
        let live = Self {
            engine,
            socket: settings.socket.clone(),
            version,
            limit: settings.command_timeout,
            sights: Sights::default(),
            pool: Pool::new(own),
            environment: whole_environment(),
            directory: std::env::current_dir().ok().map(|directory| directory.display().to_string()),
        };
        // Followed from now on, so that the first request finds it so.
        live.host().map_err(|refusal| refusal.message.lossy())?;
        Ok(live)
    }

    /// What `/health` says.
    pub async fn health(&self) -> Result<String, Refusal> {
        let sessions = self.list().await?.len();
        let health = Object::new().bool("ok", true).string("mode", "tmux").string("backend", "tmux");
        let health = health.string("tmuxVersion", &self.version);
        Ok(health.string("socketPath", &self.socket.display().to_string()).number("sessions", sessions).finish())
    }

    /// Does what this page asks.
    pub async fn act(&self, request: &Request, origin: &str) -> Result<Done, Refusal> {
        let engine = self.engine.with_caller(Caller { face: "bridge", who: origin.to_owned() });
        match request.action {
            Action::ListSessions => Ok(Done::Sessions(self.list().await?)),
            Action::CreateSession => self.create(&engine, request).await,
            Action::KillSession => self.kill(&engine, &request.session).await,
            Action::SendKeys => {
                let found = self.find(&request.session).await?;
                self.type_in(&engine, &found, request).await?;
                Ok(Done::session(&found.name))
            }
            Action::CapturePane => {
                let found = self.find(&request.session).await?;
                self.capture(&found, request).await
            }
            Action::SendAndCapture => {
                let found = self.find(&request.session).await?;
                let before = self.type_in(&engine, &found, request).await?;
                match &request.wait_for {
                    Some(pattern) => self.wait(found, request, pattern, before).await,
                    None => self.capture(&found, request).await,
                }
            }
        }
    }

    /// Lets go of tmux.
    pub async fn stop(&self) {
        if timeout(STOP_LIMIT, self.engine.stop()).await.is_err() {
            tracing::warn!("not everything let go of tmux in time");
        }
    }

    pub(super) fn host(&self) -> Result<Arc<Host>, Refusal> {
        self.engine.host(&self.socket).map_err(|_| Refusal::stopping())
    }

    /// A step that asks tmux, within its limit.
    pub(super) async fn within<T>(&self, step: impl Future<Output = Result<T>>) -> Result<Result<T>, Refusal> {
        timeout(self.limit, step).await.map_err(|_| self.timed_out())
    }

    fn timed_out(&self) -> Refusal {
        let message = format!("tmux command timed out after {}ms.", self.limit.as_millis());
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// The engine's errors as the contract tells them: tmux's own words where they are tmux's.
    pub(super) fn refusal(&self, error: &Error) -> Refusal {
        let message = error.message.strip_prefix("tmux: ").unwrap_or(&error.message);
        match error.code {
            ErrorCode::NotFound => Refusal::new(StatusCode::NOT_FOUND, message),
            ErrorCode::Conflict => Refusal::new(StatusCode::CONFLICT, message),
            ErrorCode::ReadOnly => Refusal::new(StatusCode::FORBIDDEN, message),
            // The engine knows before the limit is over that tmux hangs: from what was asked earlier.
            ErrorCode::TmuxUnavailable if is_unanswered(error) => self.timed_out(),
            // As everywhere in muxtap: 5xx would say that muxtap itself has failed.
            ErrorCode::TmuxUnavailable => Refusal::new(StatusCode::FAILED_DEPENDENCY, message),
            ErrorCode::InvalidArgument | ErrorCode::InvalidTarget | ErrorCode::ResourceLimit => Refusal::bad(message),
            _ => {
                tracing::error!("{}: {}", error.code.as_str(), error.message);
                Refusal::unexpected()
            }
        }
    }

    async fn list(&self) -> Result<Vec<String>, Refusal> {
        let host = self.host()?;
        match self.within(self.engine.sessions(&host)).await? {
            Ok(list) => Ok(sorted(list.sessions.into_iter().map(|session| session.name).collect())),
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// The session of this name, exactly, in one of its two spellings.
    pub(super) async fn find(&self, name: &str) -> Result<Found, Refusal> {
        let host = self.host()?;
        let pick = |sessions: &[SessionRow]| named(sessions, name).cloned();
        match self.within(self.engine.pane_of_session(&host, pick)).await? {
            Ok((session, pane)) => Ok(Found { name: session.name, id: session.id.to_string(), pane }),
            Err(error) if is_gone(&error) => Err(missing(name)),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// The name of the session that has this name in one of its spellings.
    async fn there(&self, name: &str) -> Result<Option<String>, Refusal> {
        let sessions = self.list().await?;
        Ok(sessions.iter().find(|there| *there == name || as_kept(there) == as_kept(name)).cloned())
    }

    async fn create(&self, engine: &Engine, request: &Request) -> Result<Done, Refusal> {
        let name = if request.session.is_empty() { made_up_name() } else { request.session.clone() };
        if let Some(there) = self.there(&name).await? {
            return Err(Refusal::new(StatusCode::CONFLICT, format!("duplicate session: {there}")));
        }
        let host = self.host()?;
        let cwd = request.cwd.as_ref().map(|cwd| cwd.display().to_string()).or_else(|| self.directory.clone());
        let wanted = NewSessionRequest {
            name: Some(name.clone()),
            width: Some(SIZE.0),
            height: Some(SIZE.1),
            spawn: SpawnRequest { cwd, caller_env: Some(self.environment.clone()), ..SpawnRequest::default() },
        };
        let mut tries = 1;
        loop {
            let made = self.within(engine.new_unmanaged_session(&host, &wanted)).await?;
            let error = match made {
                Ok(made) => return Ok(Done::session(&made.session_name)),
                Err(error) => error,
            };
            // With its last session a server goes, and who asks it meanwhile gets no answer.
            if error.code != ErrorCode::TmuxUnavailable || is_unanswered(&error) || tries == TRIES {
                return Err(self.refusal(&error));
            }
            if let Some(there) = self.there(&name).await? {
                // It was made, and only the answer lost.
                return Ok(Done::session(&there));
            }
            tries += 1;
        }
    }

    async fn kill(&self, engine: &Engine, name: &str) -> Result<Done, Refusal> {
        let found = self.find(name).await?;
        let host = self.host()?;
        let Err(error) = self.within(engine.kill_session(&host, &found.id)).await? else {
            return Ok(Done::session(&found.name));
        };
        if is_gone(&error) {
            return Err(missing(name));
        }
        match self.find(name).await {
            // It was there, and is not any more: only the answer was lost.
            Err(gone) if error.code == ErrorCode::TmuxUnavailable && gone.status == StatusCode::NOT_FOUND => {
                Ok(Done::session(&found.name))
            }
            _ => Err(self.refusal(&error)),
        }
    }

    /// The text, the keys, Enter: together, whatever others type there. Answers the cursor from before.
    async fn type_in(&self, engine: &Engine, found: &Found, request: &Request) -> Result<String, Refusal> {
        let host = self.host()?;
        let text = request.text.as_ref().map(Text::lossy).unwrap_or_default();
        let keys: Vec<_> = request.keys.iter().cloned().chain(request.enter.then(|| "Enter".to_owned())).collect();
        let pane = found.pane.id().to_string();
        match self.within(engine.text_and_keys(&host, &pane, &text, &keys)).await? {
            Ok(typed) => Ok(typed.cursor),
            Err(error) if is_gone(&error) => Err(missing(&request.session)),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    async fn capture(&self, found: &Found, request: &Request) -> Result<Done, Refusal> {
        let host = self.host()?;
        let view = self.within(View::of(&self.engine, &host, &found.pane, Shape::of(request))).await?;
        match view {
            Ok(view) => Ok(Done::output(&found.name, view.json())),
            Err(error) if is_gone(&error) => Err(missing(&request.session)),
            Err(error) => Err(self.refusal(&error)),
        }
    }
}

impl Shape {
    /// How a request looks at its pane.
    pub fn of(request: &Request) -> Self {
        Self { lines: request.lines, join: request.join_wrapped }
    }
}

/// A session's name as tmux before 3.8 keeps it: `.` and `:` would be read as parts of a target.
fn as_kept(name: &str) -> String {
    name.replace(['.', ':'], "_")
}

/// The session of this name; of those that only another spelling makes so, the only one.
fn named<'a>(sessions: &'a [SessionRow], name: &str) -> Option<&'a SessionRow> {
    if let Some(session) = sessions.iter().find(|session| session.name == name) {
        return Some(session);
    }
    let mut spelled = sessions.iter().filter(|session| as_kept(&session.name) == as_kept(name));
    spelled.next().filter(|_| spelled.next().is_none())
}

/// What was asked about is not there, or the whole server is not.
pub(super) fn is_gone(error: &Error) -> bool {
    error.code == ErrorCode::NotFound || is_absent(error)
}

/// There is no such session; it is named as the client named it.
pub(super) fn missing(name: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("can't find session: {name}"))
}

/// This process's environment, as far as it is text.
fn whole_environment() -> std::collections::BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
