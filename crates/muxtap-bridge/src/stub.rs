//! The mode without tmux: sessions are lists of lines in memory; no program runs.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::http::StatusCode;
use tokio::{sync::watch, time::timeout};

use super::{
    js::JsString,
    pattern::{Pattern, Pool},
    request::{Action, Request},
    response::{ActionOutput, Health, HttpError, generate_name, sorted},
    wait::wait_timed_out,
};

/// The number of lines kept for each session.
const LINES: usize = 5000;

/// Sessions in memory.
pub struct Stub {
    sessions: Mutex<BTreeMap<String, Lines>>,
    /// Notified when a session's lines have changed; true when the bridge stops.
    changed: watch::Sender<bool>,
    pool: Pool,
}

/// A session's lines.
#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<JsString>,
    /// The number of lines dropped before those that are kept.
    dropped: usize,
}

impl Stub {
    /// Creates a backend without sessions. `program`: muxtap's own, which matches patterns in
    /// worker processes.
    pub fn new(program: PathBuf) -> Self {
        Self { sessions: Mutex::default(), changed: watch::Sender::new(false), pool: Pool::new(program) }
    }

    /// Ends open waits.
    pub fn stop(&self) {
        self.changed.send_replace(true);
    }

    /// Builds the body of `/health`.
    pub fn health(&self) -> Health {
        Health { ok: true, mode: "stub", backend: "stub", tmux: None, sessions: self.sessions().len() }
    }

    /// Carries out a request.
    pub async fn execute(&self, request: &Request) -> Result<ActionOutput, HttpError> {
        let name = &request.session;
        match request.action {
            Action::ListSessions => Ok(ActionOutput::Sessions(sorted(self.sessions().keys().cloned().collect()))),
            Action::CreateSession => self.create(name),
            Action::SendKeys => {
                self.with_session(name, |lines| send_input(lines, request))?;
                self.changed.send_modify(|_| {});
                Ok(ActionOutput::session(name))
            }
            Action::CapturePane => self
                .with_session(name, |lines| capture(lines, request))
                .map(|text| ActionOutput::output(name, text.to_json())),
            Action::SendAndCapture => {
                let mut changes = self.changed.subscribe();
                let (before, text) = self.with_session(name, |lines| {
                    let before = lines.dropped + lines.kept.len();
                    send_input(lines, request);
                    (before, capture(lines, request))
                })?;
                self.changed.send_modify(|_| {});
                match &request.wait_for {
                    None => Ok(ActionOutput::output(name, text.to_json())),
                    Some(pattern) => {
                        let waited = self.wait(request, pattern, before, &mut changes);
                        timeout(request.timeout, waited).await.unwrap_or_else(|_| Err(wait_timed_out(request)))
                    }
                }
            }
            Action::KillSession => {
                let killed = self.sessions().remove(name);
                self.changed.send_modify(|_| {});
                killed.map(|_| ActionOutput::session(name)).ok_or_else(|| no_such_session(name))
            }
        }
    }

    /// Waits until the response would match; only other clients' input can change the lines.
    /// `before`: the session's number of lines before the input.
    async fn wait(
        &self,
        request: &Request,
        pattern: &Arc<Pattern>,
        before: usize,
        changes: &mut watch::Receiver<bool>,
    ) -> Result<ActionOutput, HttpError> {
        loop {
            if *changes.borrow_and_update() {
                return Err(HttpError::stopping());
            }
            let name = &request.session;
            let (shown, since) = self.with_session(name, |lines| {
                let since = lines.kept.iter().skip(before.saturating_sub(lines.dropped)).cloned();
                (capture(lines, request), request.from_send.then(|| joined(since, "\n")))
            })?;
            if self.pool.is_match(pattern, since.as_ref().unwrap_or(&shown)).await {
                return Ok(ActionOutput::output(name, shown.to_json()));
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn create(&self, name: &str) -> Result<ActionOutput, HttpError> {
        let mut sessions = self.sessions();
        let name = if name.is_empty() { generate_name() } else { name.to_owned() };
        if sessions.contains_key(&name) {
            return Err(HttpError::new(StatusCode::CONFLICT, format!("Session already exists: {name}")));
        }
        sessions.insert(name.clone(), Lines::default());
        Ok(ActionOutput::session(&name))
    }

    fn with_session<T>(&self, name: &str, what: impl FnOnce(&mut Lines) -> T) -> Result<T, HttpError> {
        self.sessions().get_mut(name).map(what).ok_or_else(|| no_such_session(name))
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Lines>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_such_session(name: &str) -> HttpError {
    HttpError::new(StatusCode::NOT_FOUND, format!("Session not found: {name}"))
}

/// Appends the input as one line.
fn send_input(lines: &mut Lines, request: &Request) {
    let keys = request.keys.iter().map(|key| JsString::from(format!("<{key}>").as_str()));
    let enter = request.enter.then(|| JsString::from("<Enter>"));
    if lines.kept.len() == LINES {
        lines.kept.pop_front();
        lines.dropped += 1;
    }
    lines.kept.push_back(joined(request.text.iter().cloned().chain(keys).chain(enter), " "));
}

fn capture(lines: &Lines, request: &Request) -> JsString {
    let from = lines.kept.len().saturating_sub(request.lines as usize);
    joined(lines.kept.iter().skip(from).cloned(), "\n")
}

fn joined(parts: impl Iterator<Item = JsString>, separator: &str) -> JsString {
    parts.reduce(|joined, part| joined.with(&JsString::from(separator)).with(&part)).unwrap_or_default()
}
