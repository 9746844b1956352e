//! The mode without tmux: sessions are lists of lines in memory, and nothing is run.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum::http::StatusCode;

use super::{
    answer::{Object, Refusal},
    backend::{Done, made_up_name, sorted},
    js::Text,
    request::{Action, Request},
};

/// Lines that a session keeps.
const LINES: usize = 5000;

/// Sessions in memory.
#[derive(Debug, Default)]
pub struct Stub {
    sessions: Mutex<BTreeMap<String, VecDeque<Text>>>,
}

impl Stub {
    /// What `/health` says.
    pub fn health(&self) -> String {
        let health = Object::new().bool("ok", true).string("mode", "stub").string("backend", "stub");
        health.number("sessions", self.sessions().len()).finish()
    }

    /// Does what is asked.
    pub fn act(&self, request: &Request) -> Result<Done, Refusal> {
        let name = &request.session;
        match request.action {
            Action::ListSessions => Ok(Done::Sessions(sorted(self.sessions().keys().cloned().collect()))),
            Action::CreateSession => self.create(name),
            Action::SendKeys => self.with(name, |lines| type_in(lines, request)).map(|()| Done::session(name)),
            Action::CapturePane => {
                self.with(name, |lines| capture(lines, request)).map(|text| Done::output(name, text))
            }
            Action::SendAndCapture => {
                let captured = self.with(name, |lines| {
                    type_in(lines, request);
                    capture(lines, request)
                });
                captured.map(|text| Done::output(name, text))
            }
            Action::KillSession => match self.sessions().remove(name) {
                Some(_) => Ok(Done::session(name)),
                None => Err(missing(name)),
            },
        }
    }

    fn create(&self, name: &str) -> Result<Done, Refusal> {
        let mut sessions = self.sessions();
        let name = if name.is_empty() { made_up_name() } else { name.to_owned() };
        if sessions.contains_key(&name) {
            return Err(Refusal::new(StatusCode::CONFLICT, format!("Session already exists: {name}")));
        }
        sessions.insert(name.clone(), VecDeque::new());
        Ok(Done::session(&name))
    }

    fn with<T>(&self, name: &str, what: impl FnOnce(&mut VecDeque<Text>) -> T) -> Result<T, Refusal> {
        self.sessions().get_mut(name).map(what).ok_or_else(|| missing(name))
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, VecDeque<Text>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn missing(name: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("Session not found: {name}"))
}

/// One call is one line.
fn type_in(lines: &mut VecDeque<Text>, request: &Request) {
    let keys = request.keys.iter().map(|key| Text::from(format!("<{key}>").as_str()));
    let enter = request.enter.then(|| Text::from("<Enter>"));
    if lines.len() == LINES {
        lines.pop_front();
    }
    lines.push_back(joined(request.text.iter().cloned().chain(keys).chain(enter), " "));
}

fn capture(lines: &VecDeque<Text>, request: &Request) -> String {
    let from = lines.len().saturating_sub(request.lines as usize);
    joined(lines.iter().skip(from).cloned(), "\n").to_json()
}

fn joined(parts: impl Iterator<Item = Text>, separator: &str) -> Text {
    parts.reduce(|joined, part| joined.with(&Text::from(separator)).with(&part)).unwrap_or_default()
}
