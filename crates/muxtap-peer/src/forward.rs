//! Requests that a peer answers. A read-only request is sent again when the link is back; a request
//! that changes something is sent once.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::{Frame, Incoming, SizeHint},
    header::{self, HeaderValue},
    http::response::Parts,
};
use memchr::memmem;
use muxtap_base::nonce;
use muxtap_engine::{
    id_of_key,
    limits::{POLL_LONGEST, WAIT_DEFAULT},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    events::Cutter,
    link::{Link, PeerHost, pause},
};

use muxtap_api::{
    Error, ErrorCode, Result, WaitAnswer, WaitOutcome, WaitRequest,
    wire::{IDEMPOTENCY_KEY, LAST_EVENT_ID, PREFER},
};
use muxtap_net::Streaming;

/// The time to wait for a response that was lost with its link; waits have their own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The route of waits, on the host's default server.
const DEFAULT_WAITS: &str = "/v1/waits?socket=default";
/// The longest response that is not a stream, in bytes.
const ANSWER_BYTES: usize = 256 << 20;

/// A request whose targets no longer name a host.
#[derive(Clone, Debug)]
pub struct Question {
    /// The HTTP method.
    pub method: Method,
    /// The path, with its query.
    pub path: String,
    /// JSON, or empty.
    pub body: Bytes,
    /// `Last-Event-ID`.
    pub resume: Option<String>,
    /// The idempotency key: with it the request may be sent again, and its action starts once.
    pub key: Option<String>,
    /// The time until which the response may be held back.
    pub hold: Option<Instant>,
    /// The wait that the request begins, which outlives the link.
    pub wait: Option<WaitRequest>,
}

/// A response's body, which keeps its link open.
struct Held {
    body: Incoming,
    _link: Link,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response that did not arrive.
enum Lost {
    /// The request was not sent.
    Unsent,
    /// The request was sent.
    Sent(String),
}

impl Lost {
    fn why(self) -> String {
        match self {
            Self::Unsent => "the request was not sent".into(),
            Self::Sent(why) => why,
        }
    }
}

/// Pauses between attempts that fail although the link is up: none before the second attempt.
#[derive(Default)]
struct Pauses(u32);

impl Pauses {
    /// Waits before the next attempt. Error: no time is left for one.
    async fn next(&mut self, until: Option<Instant>) -> std::result::Result<(), ()> {
        let pause = match self.0 {
            0 => Duration::ZERO,
            attempts => pause(attempts),
        };
        self.0 += 1;
        if until.is_some_and(|until| Instant::now() + pause >= until) {
            return Err(());
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

type Answer = (Parts, Bytes);

impl Question {
    /// Creates a read-only request.
    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    /// Creates a request. `body`: JSON, or empty.
    pub fn new(method: Method, path: String, body: Bytes) -> Self {
        Self { method, path, body, resume: None, key: None, hold: None, wait: None }
    }

    fn request(&self) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(self.method.clone()).uri(format!("http://muxtap{}", self.path));
        if !self.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(resume) = &self.resume {
            request = request.header(LAST_EVENT_ID, resume);
        }
        if let Some(key) = &self.key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(hold) = self.hold {
            let left = hold.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
            request = request.header(PREFER, format!("wait={left}"));
        }
        request.body(Full::new(self.body.clone())).map_err(|error| Error::internal(format!("{}: {error}", self.path)))
    }

    fn is(&self, method: &Method, path: &str) -> bool {
        self.method == *method && self.path.split('?').next() == Some(path)
    }

    /// Returns the longest time that the request itself takes.
    fn own_time(&self) -> Duration {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        let asked = query.split('&').find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            matches!(name, "timeout_ms" | "wait_ms").then(|| value.parse().ok())?
        });
        asked.map_or(Duration::ZERO, Duration::from_millis)
    }
}

impl PeerHost {
    /// Sends a request to the remote muxtap. `None`: the host has no muxtap.
    ///
    /// Error: the host cannot be reached, or the link was lost before a change was confirmed.
    pub async fn ask(self: &Arc<Self>, mut question: Question) -> Result<Option<Response>> {
        let Some(link) = self.link().await? else { return Ok(None) };
        let response = if question.is(&Method::GET, "/v1/events") {
            self.follow(link, question).await?
        } else if let Some(wait) = question.wait.take() {
            self.wait(link, question, wait).await?
        } else {
            self.response(self.answer(link, &question).await?)
        };
        Ok(Some(response))
    }

    /// Returns a list from the remote muxtap, a field of the response to a `GET`. `None`: the host
    /// has no muxtap.
    pub async fn list<T: DeserializeOwned>(self: &Arc<Self>, path: String, field: &str) -> Result<Option<Vec<T>>> {
        let Some(link) = self.link().await? else { return Ok(None) };
        let mut answer = self.json(self.answer(link, &Question::get(path)).await?)?;
        let items = answer.get_mut(field).map(Value::take).unwrap_or_default();
        serde_json::from_value(items).map(Some).map_err(|error| self.unreadable(&error))
    }

    /// Calls an MCP tool of the remote muxtap. `None`: the host has no muxtap. `again`: whether the
    /// tool may be called twice.
    pub async fn tool(self: &Arc<Self>, name: &str, arguments: &impl Serialize, again: bool) -> Result<Option<Value>> {
        let Some(link) = self.link().await? else { return Ok(None) };
        let body = json_bytes(arguments)?;
        let path = format!("/v1/tools/{name}");
        let question = Question::new(Method::POST, path, body);
        let answer = if again {
            self.again(link, &question, Instant::now() + PATIENCE).await?
        } else {
            self.once(link, &question).await?
        };
        self.json(answer).map(Some)
    }

    /// Calls the remote tool `wait_for`, held for at most `hold`. Its wait outlives the link and
    /// ends with this future. `asked`: the id of the wait that the call continues. `None`: the host
    /// has no muxtap.
    pub async fn wait_tool(
        self: &Arc<Self>,
        arguments: &impl Serialize,
        asked: Option<&str>,
        hold: Duration,
    ) -> Result<Option<Value>> {
        let Some(link) = self.link().await? else { return Ok(None) };
        if !link.takes_keys {
            return self.tool("wait_for", arguments, asked.is_some()).await;
        }
        let key = nonce::hex64();
        let id = asked.map_or_else(|| id_of_key(&key), |id| Ok(id.to_owned()))?;
        let hold = Instant::now() + hold;
        let question = Question::new(Method::POST, "/v1/tools/wait_for".into(), json_bytes(arguments)?);
        let question = Question { key: Some(key), hold: Some(hold), ..question };
        let mut left = CancelThere { peer: self, id: Some(id.clone()) };
        let answer = self.again(link, &question, hold + PATIENCE).await;
        // The wait is over, continues under its id, or cannot be reached.
        left.id = None;
        let answer = answer.map_err(|error| self.goes_on(error, &id))?;
        self.json(answer).map(Some)
    }

    /// Begins a wait on the host's default server, or finds the one with this key, over one link after
    /// the other. The response is held until the wait ends, or for this time at most. `None`: the
    /// host has no muxtap.
    pub(crate) async fn wait_by_key(
        self: &Arc<Self>,
        request: &WaitRequest,
        key: String,
        hold: Option<Instant>,
        until: Instant,
    ) -> Result<Option<WaitAnswer>> {
        let link = match self.link().await {
            // One that has begun is worth a new link.
            Err(_) if hold.is_some() => self.link_until(Some(until)).await?,
            link => match link? {
                Some(link) => link,
                None => return Ok(None),
            },
        };
        if !link.takes_keys {
            let message = format!("host {}: its muxtap is too old for a wait on several hosts", self.name());
            return Err(Error::unavailable(message));
        }
        let question = Question::new(Method::POST, DEFAULT_WAITS.into(), json_bytes(request)?);
        let question = Question { key: Some(key), hold, ..question };
        let answer = self.json(self.again(link, &question, until).await?)?;
        serde_json::from_value(answer).map(Some).map_err(|error| self.unreadable(&error))
    }

    /// Returns the state of a wait on the host, or cancels it, over one link after the other. `None`:
    /// the host has no muxtap.
    pub(crate) async fn wait_by_id(
        self: &Arc<Self>,
        method: Method,
        id: &str,
        look: Duration,
    ) -> Result<Option<WaitAnswer>> {
        let Some(link) = self.link().await? else { return Ok(None) };
        let query = if method == Method::GET { format!("?timeout_ms={}", look.as_millis()) } else { String::new() };
        let question = Question::new(method, format!("/v1/waits/{id}{query}"), Bytes::new());
        // Cancelling twice is cancelling once.
        let answer = self.json(self.again(link, &question, Instant::now() + look + PATIENCE).await?)?;
        serde_json::from_value(answer).map(Some).map_err(|error| self.unreadable(&error))
    }

    /// Cancels a wait on the host, without awaiting the response.
    pub fn cancel_wait(self: &Arc<Self>, id: &str) {
        drop(CancelThere { peer: self, id: Some(id.to_owned()) });
    }

    /// Adds to a lost wait's error how the wait can be resumed.
    fn goes_on(&self, mut error: Error, id: &str) -> Error {
        error.message = format!("{error}; if the wait began, it continues on that host as {}/{id}", self.name());
        error
    }

    async fn answer(self: &Arc<Self>, link: Link, question: &Question) -> Result<Answer> {
        if question.method == Method::GET {
            let until = Instant::now() + question.own_time() + PATIENCE;
            return self.again(link, question, until).await;
        }
        self.once(link, question).await
    }

    /// Waits on the remote host; the wait outlives the link, and its result is fetched over the
    /// next one.
    async fn wait(self: &Arc<Self>, link: Link, mut question: Question, wait: WaitRequest) -> Result<Response> {
        let is_detached = wait.detach;
        let limit = wait.timeout_ms.map_or(WAIT_DEFAULT, Duration::from_millis);
        let until = Instant::now() + limit + PATIENCE;
        question.body = json_bytes(&WaitRequest { detach: true, ..wait })?;
        let mut answer = if link.takes_keys {
            let key = question.key.take().unwrap_or_else(nonce::hex64);
            let id = id_of_key(&key)?;
            let hold = if is_detached { question.hold } else { Some(until) };
            question = Question { key: Some(key), hold, ..question };
            self.again(link.clone(), &question, until).await.map_err(|error| self.goes_on(error, &id))?
        } else {
            self.once(link.clone(), &question).await?
        };
        let mut link = Some(link);
        while !is_detached
            && Instant::now() < until
            && let Some(id) = pending(&answer)
        {
            let look = until.saturating_duration_since(Instant::now()).min(POLL_LONGEST).as_millis();
            let path = format!("/v1/waits/{id}?timeout_ms={look}");
            let first = match link.take() {
                Some(link) => link,
                None => self.link_until(Some(until)).await?,
            };
            let question = Question::get(path);
            answer = self.again(first, &question, until).await.map_err(|error| self.goes_on(error, &id))?;
        }
        Ok(self.response(answer))
    }

    /// Streams events, and resumes after the last one when the link is back.
    async fn follow(self: &Arc<Self>, link: Link, question: Question) -> Result<Response> {
        let sent = match self.send(link, &question).await? {
            Ok(response) => response,
            Err(_) => self.follow_again(&question, Some(Instant::now() + PATIENCE)).await?,
        };
        let (parts, body) = sent.into_parts();
        if !parts.status.is_success() {
            let bytes = collected(body).await.map_err(|why| self.lost(&why, false))?;
            return Ok(self.response((parts, bytes)));
        }
        let relay = EventRelay { peer: self.clone(), question, body: Some(body), cutter: Cutter::default() };
        let mut response = Body::from_stream(stream::unfold(relay, EventRelay::step)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        response.extensions_mut().insert(Streaming);
        Ok(response)
    }

    /// Requests a stream again. It resumes at its last event, so the link may take its time.
    async fn follow_again(
        self: &Arc<Self>,
        question: &Question,
        until: Option<Instant>,
    ) -> Result<hyper::Response<Held>> {
        let mut pauses = Pauses::default();
        loop {
            let link = self.link_until(until).await?;
            match self.send(link, question).await? {
                Ok(response) => return Ok(response),
                Err(lost) => pauses.next(until).await.map_err(|()| self.lost(&lost.why(), false))?,
            }
        }
    }

    /// Sends a request until it gets a response, over one link after the other.
    async fn again(self: &Arc<Self>, mut link: Link, question: &Question, until: Instant) -> Result<Answer> {
        let mut pauses = Pauses::default();
        loop {
            let lost = match self.send(link, question).await? {
                Ok(response) => {
                    let (parts, body) = response.into_parts();
                    match collected(body).await {
                        Ok(bytes) => return Ok((parts, bytes)),
                        Err(why) => why,
                    }
                }
                Err(lost) => lost.why(),
            };
            pauses.next(Some(until)).await.map_err(|()| self.lost(&lost, false))?;
            link = self.link_until(Some(until)).await?;
        }
    }

    /// Sends a request once. Error: the link was lost, and whether the request was carried out is
    /// unknown.
    async fn once(self: &Arc<Self>, mut link: Link, question: &Question) -> Result<Answer> {
        loop {
            match self.send(link, question).await? {
                Ok(response) => {
                    let (parts, body) = response.into_parts();
                    let bytes = collected(body).await.map_err(|why| self.lost(&why, true))?;
                    return Ok((parts, bytes));
                }
                Err(Lost::Unsent) => link = self.link_until(Some(Instant::now() + PATIENCE)).await?,
                Err(Lost::Sent(why)) => return Err(self.lost(&why, true)),
            }
        }
    }

    async fn send(&self, link: Link, question: &Question) -> Result<std::result::Result<hyper::Response<Held>, Lost>> {
        let mut sender = link.sender.clone();
        if sender.ready().await.is_err() {
            return Ok(Err(Lost::Unsent));
        }
        let sent =
            sender.try_send_request(question.request()?).await.map_err(|mut unsent| match unsent.take_message() {
                Some(_) => Lost::Unsent,
                None => Lost::Sent(unsent.into_error().to_string()),
            });
        Ok(sent.map(|response| response.map(|body| Held { body, _link: link })))
    }

    fn lost(&self, why: &str, changes: bool) -> Error {
        let known = if changes { "; the request may have been executed: check before you retry" } else { "" };
        Error::unavailable(format!("host {}: the link was lost ({why}){known}", self.name()))
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> Error {
        Error::internal(format!("host {}: invalid response from its muxtap: {error}", self.name()))
    }

    /// Returns a response's JSON. Error: the error in the response.
    fn json(&self, (parts, bytes): Answer) -> Result<Value> {
        if parts.status.is_success() {
            return serde_json::from_slice(&bytes)
                .map(|mut value| {
                    name_host(&mut value, self.name());
                    value
                })
                .map_err(|error| self.unreadable(&error));
        }
        Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            Error::new(ErrorCode::InternalError, format!("host {}: its muxtap responded {}", self.name(), parts.status))
        }))
    }

    /// Returns the response as this daemon's own, with the host added to names of servers and
    /// waits.
    fn response(&self, (parts, bytes): Answer) -> Response {
        let holds = |field: &[u8]| memmem::find(&bytes, field).is_some();
        let names = holds(b"\"socket\":") || holds(b"\"outcome\":") || holds(b"\"id\":\"");
        let bytes = match names.then(|| serde_json::from_slice::<Value>(&bytes)) {
            Some(Ok(mut value)) => {
                name_host(&mut value, self.name());
                name_wait(&mut value, self.name());
                value.to_string().into()
            }
            _ => bytes,
        };
        let kind = parts.headers.get(header::CONTENT_TYPE).cloned();
        let kind = kind.unwrap_or_else(|| HeaderValue::from_static("application/json"));
        (parts.status, [(header::CONTENT_TYPE, kind)], bytes).into_response()
    }
}

/// Cancels a remote wait whose caller has disconnected, when it is dropped.
struct CancelThere<'a> {
    peer: &'a Arc<PeerHost>,
    id: Option<String>,
}

impl Drop for CancelThere<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        self.peer.spawn(async move {
            let question = Question::new(Method::DELETE, format!("/v1/waits/{id}"), Bytes::new());
            // Without a link the wait ends at its own timeout.
            if let Ok(Some(link)) = peer.link().await {
                let _ = peer.send(link, &question).await;
            }
        });
    }
}

fn json_bytes(value: &impl Serialize) -> Result<Bytes> {
    serde_json::to_vec(value).map(Into::into).map_err(|error| Error::internal(error.to_string()))
}

async fn collected(body: Held) -> std::result::Result<Bytes, String> {
    Limited::new(body, ANSWER_BYTES)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(|why| why.to_string())
}

/// Returns the id of a wait that continues, from its response.
fn pending((parts, bytes): &Answer) -> Option<String> {
    // Rules out nearly all responses without parsing them.
    memmem::find(bytes, b"\"pending\"")?;
    let answer: Value = (parts.status == StatusCode::OK).then(|| serde_json::from_slice(bytes).ok())??;
    let goes_on = serde_json::from_value::<WaitOutcome>(answer.get("outcome")?.clone()).ok()? == WaitOutcome::Pending;
    goes_on.then(|| Some(answer.get("id")?.as_str()?.to_owned()))?
}

/// Adds the host to each session, window and pane, and to names of tmux servers.
pub(super) fn name_host(value: &mut Value, host: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| name_host(item, host)),
        Value::Object(fields) => {
            if let Some(Value::String(socket)) = fields.get_mut("socket") {
                *socket = format!("{host}/{socket}");
                fields.insert("host".into(), host.into());
            }
            if fields.get("id").and_then(Value::as_str).is_some_and(|id| id.starts_with(['%', '@', '$'])) {
                fields.insert("host".into(), host.into());
            }
            fields.values_mut().filter(|value| !value.is_string()).for_each(|value| name_host(value, host));
        }
        _ => {}
    }
}

/// Adds the host to a wait's id, so that it can be used on this host.
fn name_wait(value: &mut Value, host: &str) {
    if value.get("outcome").is_some()
        && let Some(Value::String(id)) = value.get_mut("id")
    {
        *id = format!("{host}/{id}");
    }
}

/// An event stream that continues over one link after the other.
struct EventRelay {
    peer: Arc<PeerHost>,
    question: Question,
    /// `None` once the stream has ended.
    body: Option<Held>,
    cutter: Cutter,
}

impl EventRelay {
    async fn step(mut self) -> Option<(std::result::Result<Bytes, std::convert::Infallible>, Self)> {
        loop {
            let error = match self.body.as_mut()?.frame().await {
                // The remote daemon ended it.
                None => return None,
                Some(Ok(frame)) => match self.cutter.feed(frame.data_ref()?, self.peer.name()) {
                    Ok(Some(events)) => return Some((Ok(events), self)),
                    Ok(None) => continue,
                    Err(_) => Error::new(ErrorCode::ResourceLimit, "event too long to forward"),
                },
                Some(Err(_)) => {
                    self.question.resume = self.cutter.resume().or(self.question.resume.take());
                    match self.peer.follow_again(&self.question, None).await {
                        Ok(response) if response.status().is_success() => {
                            self.body = Some(response.into_body());
                            continue;
                        }
                        Ok(response) => {
                            Error::unavailable(format!("the stream cannot be resumed: {}", response.status()))
                        }
                        Err(error) => error,
                    }
                }
            };
            self.body = None;
            let event = format!("event: error\ndata: {}\n\n", json!(error));
            return Some((Ok(event.into()), self));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_where_a_server_is() {
        let mut value = json!({"panes": [{"id": "%0", "title": "socket"}, {"pane": "%1", "socket": "/s"}]});
        name_host(&mut value, "box");
        let panes =
            json!([{"id": "%0", "host": "box", "title": "socket"}, {"pane": "%1", "socket": "box//s", "host": "box"}]);
        assert_eq!(value, json!({ "panes": panes }));
        let mut wait = json!({"id": "w0-1", "outcome": "pending", "predicates": []});
        name_wait(&mut wait, "box");
        assert_eq!(wait["id"], "box/w0-1");
    }

    #[test]
    fn a_question_says_how_long_it_takes() {
        let time = |path: &str| Question::get(path.into()).own_time();
        assert_eq!(time("/v1/waits/w0?timeout_ms=5000"), Duration::from_secs(5));
        assert_eq!(time("/v1/panes/%250/output?since=start&wait_ms=20"), Duration::from_millis(20));
        assert_eq!(time("/v1/panes"), Duration::ZERO);
    }
}
