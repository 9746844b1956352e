//! What callers of agent sessions wait for, in this daemon or in the one that takes over
//! (`docs/upgrade.md`).

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    body::Body,
    http::{Method, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures_util::stream;
use muxtap_api::{
    AgentEvent, AgentEventsAnswer, AgentEventsQuery, AgentWaitRequest, Error, ErrorCode, PromptAnswer, PromptOutcome,
    PromptRequest, Tier, url, wire,
};
use muxtap_engine::Engine;
use muxtap_net::Streaming;
use muxtap_sessions::{EventReader, accepted_elsewhere};

use super::sessions;
use crate::{
    App,
    error::{Result, last_event_id},
    guard::is_revocable,
    replace::{error_of, moved},
    stream::Later,
    waits::continues,
};

/// How often a comment is sent on a quiet stream, to detect a reader that has disconnected.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The default timeout of a wait.
const WAIT: Duration = Duration::from_secs(30);
/// How long a page of events waits for its first event, at most.
const PAGE_WAIT: Duration = Duration::from_secs(60);
/// The most bytes of a page of events: the events that a session retains, twice.
const PAGE_BYTES: usize = 16 << 20;

/// A request that waits for an agent.
struct Waiting<'a> {
    app: &'a App,
    parts: &'a Parts,
    begun: Instant,
}

impl<'a> Waiting<'a> {
    /// Begins. The daemon may be replaced before the request is finished.
    fn begin(app: &'a App, parts: &'a Parts) -> Self {
        continues(parts);
        Self { app, parts, begun: Instant::now() }
    }

    /// Returns the answer. `None`: another daemon has taken over, which has it.
    async fn here<T>(&self, answer: impl Future<Output = muxtap_api::Result<T>>) -> muxtap_api::Result<Option<T>> {
        let replacing = self.app.replacing();
        tokio::select! {
            // First: the session is not this daemon's any more.
            biased;
            () = replacing.taken_over() => Ok(None),
            answer = answer => match answer {
                Err(error) if !replacing.decided().await => Err(error),
                Err(_) => Ok(None),
                answer => answer.map(Some),
            },
        }
    }

    /// Returns the time that is left of a caller's.
    fn left(&self, time: Duration) -> u64 {
        u64::try_from(time.saturating_sub(self.begun.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }

    /// Checks that this daemon may pass the rest on. `Some`: the response to another replaced daemon.
    fn check_may_relay(&self) -> muxtap_api::Result<Option<Response>> {
        if self.parts.headers.contains_key(wire::RELAY) {
            return Ok(Some(moved()));
        }
        if is_revocable(self.parts) {
            return Err(taken_over());
        }
        Ok(None)
    }

    /// Sends a request to the daemon that has taken over, and that has not been replaced. `request`: its
    /// path and its body, with the time that is left.
    async fn elsewhere(
        &self,
        method: &Method,
        mut request: impl FnMut() -> muxtap_api::Result<(String, Vec<u8>)>,
    ) -> muxtap_api::Result<Response> {
        let headers = [(wire::RELAY, "1"), ("content-type", "application/json")];
        loop {
            let (uri, body) = request()?;
            let response = self.app.ask_elsewhere(method, &uri, &headers, &Bytes::from(body)).await?;
            if !response.headers().contains_key(wire::RELAY) {
                return Ok(response);
            }
        }
    }
}

fn taken_over() -> Error {
    Error::unavailable("another muxtap daemon has taken over: send the request again")
}

/// Returns a cursor for the place that a request names: a word may mean another place later. A cursor
/// stays, with the gap before it.
fn placed(app: &App, id: &str, since: Option<&str>, default: &str) -> muxtap_api::Result<String> {
    match since.unwrap_or(default) {
        word @ ("now" | "prompt") => Ok(sessions(app).attach(&app.engine, id, Some(word))?.cursor().to_string()),
        place => Ok(place.to_owned()),
    }
}

/// Waits for an agent. If another daemon takes over meanwhile, it waits from the same place, and this one
/// passes its response on.
pub(super) async fn wait(app: &App, parts: &Parts, id: &str, mut request: AgentWaitRequest) -> Result<Response> {
    // Before another daemon is asked, which does not know the caller.
    app.engine.authorize(Tier::Read)?;
    let since = placed(app, id, request.since.as_deref(), "prompt")?;
    let waiting = Waiting::begin(app, parts);
    if let Some(answer) = waiting.here(sessions(app).wait(&app.engine, id, &request)).await? {
        return Ok(Json(answer).into_response());
    }
    if let Some(moved) = waiting.check_may_relay()? {
        return Ok(moved);
    }
    let timeout = request.timeout_ms.map_or(WAIT, Duration::from_millis);
    request.since = Some(since);
    let with_rest = || {
        request.timeout_ms = Some(waiting.left(timeout));
        let body = serde_json::to_vec(&request).map_err(|error| Error::internal(error.to_string()))?;
        Ok((parts.uri.path().to_owned(), body))
    };
    Ok(waiting.elsewhere(&Method::POST, with_rest).await?)
}

/// Reads a page of events. If another daemon takes over meanwhile, its page is passed on.
pub(super) async fn events(app: &App, parts: &Parts, id: &str, mut query: AgentEventsQuery) -> Result<Response> {
    app.engine.authorize(Tier::Read)?;
    let since = placed(app, id, query.since.as_deref(), "start")?;
    let waiting = Waiting::begin(app, parts);
    if let Some(answer) = waiting.here(sessions(app).events(&app.engine, id, &query)).await? {
        return Ok(Json(answer).into_response());
    }
    if let Some(moved) = waiting.check_may_relay()? {
        return Ok(moved);
    }
    query.since = Some(since);
    let wait = query.wait_ms.map(Duration::from_millis);
    let with_rest = || {
        query.wait_ms = wait.map(|wait| waiting.left(wait));
        Ok((url::with_query(parts.uri.path(), &query), Vec::new()))
    };
    Ok(waiting.elsewhere(&Method::GET, with_rest).await?)
}

/// Sends a prompt, and waits for its outcome if the caller wants to. If another daemon takes over
/// meanwhile, its events have the outcome.
pub(super) async fn prompt(app: &App, parts: &Parts, id: &str, request: PromptRequest) -> Result<Response> {
    let begun: OnceLock<PromptAnswer> = OnceLock::new();
    let accepted = |accepted: &PromptAnswer| {
        let _ = begun.set(accepted.clone());
        continues(parts);
    };
    let waiting = Waiting { app, parts, begun: Instant::now() };
    {
        let mut answer = std::pin::pin!(sessions(app).prompt_accepted(&app.engine, id, request, accepted));
        if let Some(answer) = waiting.here(&mut answer).await? {
            return Ok(Json(answer).into_response());
        }
    }
    // With `force`, it may not have been accepted.
    let mut answer = begun.into_inner().ok_or_else(taken_over)?;
    // From here on the caller must not send it again.
    if !matches!(waiting.check_may_relay(), Ok(None)) {
        return Err(was_accepted(&answer).into());
    }
    (answer.outcome, answer.error) = waiting.outcome(&answer).await?;
    Ok(Json(answer).into_response())
}

/// Returns the error for a caller whose prompt was accepted, and whose outcome this daemon does not have.
fn was_accepted(answer: &PromptAnswer) -> Error {
    accepted_elsewhere(answer.prompt.unwrap_or_default(), Some(answer.cursor))
}

impl Waiting<'_> {
    /// Waits in the daemon that has taken over for an accepted prompt's outcome.
    async fn outcome(&self, answer: &PromptAnswer) -> muxtap_api::Result<(Option<PromptOutcome>, Option<String>)> {
        let path = format!("/v1/agent-sessions/{}/events", url::encode(&answer.session.to_string()));
        let mut since = answer.cursor.to_string();
        loop {
            let wait_ms = u64::try_from(PAGE_WAIT.as_millis()).ok();
            let query = AgentEventsQuery { since: Some(since), wait_ms, ..AgentEventsQuery::default() };
            let lost = |error: &dyn std::fmt::Display| {
                let Error { code, message, .. } = was_accepted(answer);
                Error::new(code, format!("{message} ({error})"))
            };
            let request = || Ok((url::with_query(&path, &query), Vec::new()));
            let response = self.elsewhere(&Method::GET, request).await.map_err(|error| lost(&error))?;
            if !response.status().is_success() {
                let error = error_of(response).await;
                // The session was not handed over, and its agent was ended.
                if error.code == ErrorCode::NotFound {
                    return Ok((Some(PromptOutcome::AgentExited), None));
                }
                return Err(lost(&error));
            }
            let body = axum::body::to_bytes(response.into_body(), PAGE_BYTES).await.map_err(|error| lost(&error))?;
            let page: AgentEventsAnswer = serde_json::from_slice(&body).map_err(|error| lost(&error))?;
            for entry in page.events {
                if let AgentEvent::Outcome { prompt, outcome, error } = entry.event
                    && Some(prompt) == answer.prompt
                {
                    return Ok((Some(outcome), error));
                }
            }
            if page.gap.is_some() {
                let prompt = answer.prompt.unwrap_or_default();
                let message = format!(
                    "prompt {prompt} was accepted, and its outcome may be among the events that were dropped; see \
                     the events of the session"
                );
                return Err(Error::unavailable(message));
            }
            if page.ended && !page.more {
                return Ok((Some(PromptOutcome::AgentExited), None));
            }
            since = page.cursor.to_string();
        }
    }
}

/// Streams a session's events, from this daemon and then from the one that takes over.
pub(super) fn stream(app: App, parts: &Parts, id: &str, since: Option<String>) -> Result<Response> {
    let since = last_event_id(&parts.headers)?.or(since);
    let reader = sessions(&app).attach(&app.engine, id, since.as_deref())?;
    let last = reader.cursor().to_string();
    let follower = Follower {
        reader: Some(reader),
        first: Some(format!("id: {last}\n\n").into()),
        last,
        later: Later::of(&app, parts, &[]),
        engine: app.engine,
    };
    let body = Body::from_stream(stream::unfold(follower, Follower::step));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONNECTION, "close"),
    ];
    Ok((Extension(Streaming), headers, body).into_response())
}

/// A reader of a session's events, here or in the daemon that takes over.
struct Follower {
    /// `None`: another daemon has taken over.
    reader: Option<EventReader>,
    /// The bytes to write before the first event.
    first: Option<Bytes>,
    /// The position after the last event.
    last: String,
    later: Later,
    engine: Engine,
}

impl Follower {
    async fn step(mut self) -> Option<(std::result::Result<Bytes, axum::Error>, Self)> {
        if let Some(first) = self.first.take() {
            return Some((Ok(first), self));
        }
        if self.later.has_begun().await {
            self.reader = None;
            let piece = self.later.next(&mut self.last).await?;
            return Some((piece, self));
        }
        let reader = self.reader.as_mut()?;
        let entry = tokio::select! {
            biased;
            // The next step continues elsewhere.
            () = self.later.taken_over() => None,
            entry = reader.next() => match entry {
                Some(entry) => Some(entry),
                // The session left just before.
                None if self.later.has_begun().await => None,
                None => return None,
            },
            () = self.engine.stopping() => return None,
            () = tokio::time::sleep(HEARTBEAT) => None,
        };
        let Some(entry) = entry else { return Some((Ok(Bytes::from_static(b":\n\n")), self)) };
        self.last = entry.cursor.to_string();
        let data = serde_json::to_string(&entry).unwrap_or_default();
        let piece = format!("id: {}\ndata: {data}\n\n", self.last);
        Some((Ok(piece.into()), self))
    }
}
