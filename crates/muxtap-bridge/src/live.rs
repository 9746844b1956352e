//! The mode with tmux: the engine carries out each action of the contract.

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::http::StatusCode;
use muxtap_engine::{Caller, Engine, Options, PaneState, Principal, Server, audit::Audit};
use muxtap_tmux::{CoverageMode, Program, SessionRow, is_absent, is_secret, is_unanswered};
use tokio::time::timeout;

use super::{
    capture_cache::{Capture, CaptureCaches, CaptureSpec},
    js::JsString,
    own_program,
    pattern::Pool,
    request::{Action, Request},
    response::{ActionOutput, Health, HttpError, TmuxHealth, generate_name, sorted},
    settings::Settings,
};

use muxtap_api::{Error, ErrorCode, NewSessionRequest, Result, SpawnRequest};

/// A new session's size.
const SIZE: (u16, u16) = (80, 24);
/// The attempts to create a session if its server goes away in the meantime.
const TRIES: u32 = 3;
/// The time limit for the engine to release tmux.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The tmux backend: its own engine for one server.
pub struct Live {
    pub(super) engine: Engine,
    socket: PathBuf,
    version: String,
    /// The time limit for one tmux command.
    pub(super) limit: Duration,
    pub(super) caches: CaptureCaches,
    pub(super) pool: Pool,
    environment: std::collections::BTreeMap<String, String>,
    directory: Option<String>,
}

/// A session found by its name.
pub(super) struct FoundSession {
    /// The session's name in tmux.
    pub(super) name: String,
    /// The session's id.
    id: String,
    /// The session's active pane.
    pub(super) pane: Arc<PaneState>,
}

impl Live {
    /// Checks the tmux program and starts to follow the server, if one runs. `options`: the user's
    /// settings for an engine, except its audit log, which is opened last. Error: the reason why
    /// tmux is not available.
    pub async fn start(
        settings: &Settings,
        options: Options,
        audit: impl FnOnce() -> Result<Option<Arc<Audit>>>,
    ) -> std::result::Result<Self, String> {
        let own = own_program()?;
        let program = Program { config: Some("/dev/null".into()), limit: settings.command_timeout, ..options.program };
        let version = program.version().await.map_err(|error| format!("tmux binary not available: {error}"))?;
        settings.make_socket_dirs()?;
        let engine = Engine::new(Options {
            program,
            transports: Vec::new(),
            coverage: CoverageMode::default(),
            audit: audit().map_err(|error| error.message)?,
            // The bridge has no route for agents.
            agents: Arc::default(),
            ..options
        });
        let live = Self {
            engine,
            socket: settings.socket.clone(),
            version,
            limit: settings.command_timeout,
            caches: CaptureCaches::default(),
            pool: Pool::new(own),
            environment: whole_environment(),
            directory: std::env::current_dir().ok().map(|directory| directory.display().to_string()),
        };
        // The server is followed from now on, so that the first request finds it followed.
        live.server().map_err(|refusal| refusal.message.lossy())?;
        Ok(live)
    }

    /// Builds the body of `/health`.
    pub async fn health(&self) -> Result<Health, HttpError> {
        let sessions = self.list().await?.len();
        let tmux = TmuxHealth { version: self.version.clone(), socket: self.socket.display().to_string() };
        Ok(Health { ok: true, mode: "tmux", backend: "tmux", tmux: Some(tmux), sessions })
    }

    /// Carries out a request from the page `origin`.
    pub async fn execute(&self, request: &Request, origin: &str) -> Result<ActionOutput, HttpError> {
        let server =
            self.server()?.called_by(Caller { face: "bridge", who: origin.to_owned(), principal: Principal::Guest });
        match request.action {
            Action::ListSessions => Ok(ActionOutput::Sessions(self.list().await?)),
            Action::CreateSession => self.create(&server, request).await,
            Action::KillSession => self.kill(&server, &request.session).await,
            Action::SendKeys => {
                let found = self.find(&request.session).await?;
                self.send_input(&server, &found, request).await?;
                Ok(ActionOutput::session(&found.name))
            }
            Action::CapturePane => {
                let found = self.find(&request.session).await?;
                self.capture(&found, request).await
            }
            Action::SendAndCapture => {
                let found = self.find(&request.session).await?;
                let before = self.send_input(&server, &found, request).await?;
                match &request.wait_for {
                    Some(pattern) => self.wait(found, request, pattern, before).await,
                    None => self.capture(&found, request).await,
                }
            }
        }
    }

    /// Stops the engine.
    pub async fn stop(&self) {
        if timeout(STOP_LIMIT, self.engine.stop()).await.is_err() {
            tracing::warn!("the engine did not stop in time");
        }
    }

    pub(super) fn server(&self) -> Result<Server, HttpError> {
        self.engine.server_at(&self.socket).map_err(|_| HttpError::stopping())
    }

    /// Runs a step that calls tmux, with a time limit.
    pub(super) async fn with_timeout<T>(&self, step: impl Future<Output = Result<T>>) -> Result<Result<T>, HttpError> {
        timeout(self.limit, step).await.map_err(|_| self.timed_out())
    }

    fn timed_out(&self) -> HttpError {
        let message = format!("tmux command timed out after {}ms.", self.limit.as_millis());
        HttpError::new(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// Converts an engine's error to the contract's. An error of tmux's keeps tmux's message.
    pub(super) fn refusal(&self, error: &Error) -> HttpError {
        let message = error.message.strip_prefix("tmux: ").unwrap_or(&error.message);
        match error.code {
            ErrorCode::NotFound => HttpError::new(StatusCode::NOT_FOUND, message),
            ErrorCode::Conflict => HttpError::new(StatusCode::CONFLICT, message),
            ErrorCode::ReadOnly => HttpError::new(StatusCode::FORBIDDEN, message),
            // From earlier requests the engine may know before the limit that tmux hangs.
            ErrorCode::TmuxUnavailable if is_unanswered(error) => self.timed_out(),
            // As elsewhere in muxtap: 5xx would mean that muxtap itself failed.
            ErrorCode::TmuxUnavailable => HttpError::new(StatusCode::FAILED_DEPENDENCY, message),
            ErrorCode::InvalidArgument | ErrorCode::InvalidTarget | ErrorCode::ResourceLimit => {
                HttpError::bad_request(message)
            }
            _ => {
                tracing::error!("{}: {}", error.code.as_str(), error.message);
                HttpError::internal()
            }
        }
    }

    async fn list(&self) -> Result<Vec<String>, HttpError> {
        let server = self.server()?;
        match self.with_timeout(server.sessions()).await? {
            Ok(list) => Ok(sorted(list.into_iter().map(|session| session.name).collect())),
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// Finds the session with exactly this name, in one of its two spellings.
    pub(super) async fn find(&self, name: &str) -> Result<FoundSession, HttpError> {
        let server = self.server()?;
        let pick = |sessions: &[SessionRow]| find_by_name(sessions, name).cloned();
        match self.with_timeout(server.pane_of_session(pick)).await? {
            Ok((session, pane)) => Ok(FoundSession { name: session.name, id: session.id.to_string(), pane }),
            Err(error) if is_gone(&error) => Err(no_such_session(name)),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// Returns the name of the session that has this name in one of its spellings.
    async fn existing_name(&self, name: &str) -> Result<Option<String>, HttpError> {
        let sessions = self.list().await?;
        Ok(sessions.iter().find(|there| *there == name || stored_name(there) == stored_name(name)).cloned())
    }

    async fn create(&self, server: &Server, request: &Request) -> Result<ActionOutput, HttpError> {
        let name = if request.session.is_empty() { generate_name() } else { request.session.clone() };
        if let Some(there) = self.existing_name(&name).await? {
            return Err(HttpError::new(StatusCode::CONFLICT, format!("duplicate session: {there}")));
        }
        let cwd = request.cwd.as_ref().map(|cwd| cwd.display().to_string()).or_else(|| self.directory.clone());
        let wanted = NewSessionRequest {
            name: Some(name.clone()),
            window_name: None,
            width: Some(SIZE.0),
            height: Some(SIZE.1),
            spawn: SpawnRequest { cwd, caller_env: Some(self.environment.clone()), ..SpawnRequest::default() },
            or_existing: false,
        };
        let mut tries = 1;
        loop {
            let made = self.with_timeout(server.create_unmanaged_session(&wanted)).await?;
            let error = match made {
                Ok(made) => return Ok(ActionOutput::session(&made.session_name)),
                Err(error) => error,
            };
            // A server ends with its last session, and a request at that moment gets no reply.
            if error.code != ErrorCode::TmuxUnavailable || is_unanswered(&error) || tries == TRIES {
                return Err(self.refusal(&error));
            }
            if let Some(there) = self.existing_name(&name).await? {
                // The session was created; only the reply was lost.
                return Ok(ActionOutput::session(&there));
            }
            tries += 1;
        }
    }

    async fn kill(&self, server: &Server, name: &str) -> Result<ActionOutput, HttpError> {
        let found = self.find(name).await?;
        let Err(error) = self.with_timeout(server.kill_session(&found.id)).await? else {
            return Ok(ActionOutput::session(&found.name));
        };
        if is_gone(&error) {
            return Err(no_such_session(name));
        }
        match self.find(name).await {
            // The session existed and has ended: only the reply was lost.
            Err(gone) if error.code == ErrorCode::TmuxUnavailable && gone.status == StatusCode::NOT_FOUND => {
                Ok(ActionOutput::session(&found.name))
            }
            _ => Err(self.refusal(&error)),
        }
    }

    /// Types the text, the keys and Enter at once, so that no other input comes between them.
    /// Returns the cursor before the input.
    async fn send_input(&self, server: &Server, found: &FoundSession, request: &Request) -> Result<String, HttpError> {
        let text = request.text.as_ref().map(JsString::lossy).unwrap_or_default();
        let keys: Vec<_> = request.keys.iter().cloned().chain(request.enter.then(|| "Enter".to_owned())).collect();
        let pane = found.pane.id().to_string();
        match self.with_timeout(server.text_and_keys(&pane, &text, &keys)).await? {
            Ok(typed) => Ok(typed.cursor.to_string()),
            Err(error) if is_gone(&error) => Err(no_such_session(&request.session)),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    async fn capture(&self, found: &FoundSession, request: &Request) -> Result<ActionOutput, HttpError> {
        let server = self.server()?;
        let capture = self.with_timeout(Capture::take(&server, &found.pane, CaptureSpec::of(request))).await?;
        match capture {
            Ok(capture) => Ok(ActionOutput::output(&found.name, capture.json())),
            Err(error) if is_gone(&error) => Err(no_such_session(&request.session)),
            Err(error) => Err(self.refusal(&error)),
        }
    }
}

impl CaptureSpec {
    /// Returns the capture that a request needs.
    pub fn of(request: &Request) -> Self {
        Self { lines: request.lines, join: request.join_wrapped }
    }
}

/// Returns a session's name as tmux before 3.8 stores it: `.` and `:` would be parsed as parts of a
/// target.
fn stored_name(name: &str) -> String {
    name.replace(['.', ':'], "_")
}

/// Finds the session with this name; if no session has exactly this name, the only one with the
/// same other spelling.
fn find_by_name<'a>(sessions: &'a [SessionRow], name: &str) -> Option<&'a SessionRow> {
    if let Some(session) = sessions.iter().find(|session| session.name == name) {
        return Some(session);
    }
    let mut spelled = sessions.iter().filter(|session| stored_name(&session.name) == stored_name(name));
    spelled.next().filter(|_| spelled.next().is_none())
}

/// Returns whether the error means that the target, or the whole server, does not exist.
pub(super) fn is_gone(error: &Error) -> bool {
    error.code == ErrorCode::NotFound || is_absent(error)
}

/// Builds the error for a missing session, with the name that the client gave.
pub(super) fn no_such_session(name: &str) -> HttpError {
    HttpError::new(StatusCode::NOT_FOUND, format!("can't find session: {name}"))
}

/// Returns this process's environment, without values that are not UTF-8 and without long-lived
/// tokens.
fn whole_environment() -> std::collections::BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !is_secret(name))
        .collect()
}
