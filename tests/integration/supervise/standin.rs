//! A stand-in for a Mattermost server: the parts of its REST interface and its WebSocket that are
//! used, on one loopback port. This is not Mattermost: it records each request, in order, and does
//! what a test requests.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{broadcast, watch},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};
use tokio_util::sync::CancellationToken;

use crate::common::LIMIT;

/// A received request or WebSocket message.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// `POST /posts`, or `WS` and the action of a WebSocket's message.
    pub what: String,
    pub body: Value,
    /// The `Authorization` header.
    pub token: String,
}

/// A step of every WebSocket: an event to send, or its end.
#[derive(Clone, Debug)]
enum Tell {
    Event(String),
    /// Cuts the connection without a close frame.
    Cut,
}

#[derive(Default)]
struct Inner {
    calls: Vec<Call>,
    /// Responses instead of the usual ones: the start of a call, a status, `Retry-After`.
    instead: VecDeque<(String, u16, Option<&'static str>)>,
    /// The existing posts.
    posts: Vec<String>,
    made: usize,
    reactions: Vec<Value>,
    /// Whether every `WebSocket` is rejected.
    closed: bool,
}

struct Shared {
    inner: Mutex<Inner>,
    count: watch::Sender<usize>,
    tell: broadcast::Sender<Tell>,
    stop: CancellationToken,
}

/// The stand-in, which ends when this value is dropped.
pub struct Mattermost {
    shared: Arc<Shared>,
    url: String,
}

impl Mattermost {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            inner: Mutex::default(),
            count: watch::Sender::new(0),
            tell: broadcast::Sender::new(64),
            stop: CancellationToken::new(),
        });
        tokio::spawn(serve(listener, shared.clone()));
        Self { shared, url }
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Makes the next call with this prefix return this status.
    pub fn instead(&self, call: &str, status: u16, retry_after: Option<&'static str>) {
        self.inner().instead.push_back((call.to_owned(), status, retry_after));
    }

    /// Rejects every `WebSocket` from now on, or none any more.
    pub fn close(&self, closed: bool) {
        self.inner().closed = closed;
    }

    /// Cuts every WebSocket.
    pub fn cut(&self) {
        let _ = self.shared.tell.send(Tell::Cut);
    }

    /// Adds a reaction and reports it on every WebSocket.
    pub fn react(&self, user: &str, post: &str, emoji: &str) {
        let reaction = self.react_unseen(user, post, emoji);
        let event = json!({
            "event": "reaction_added",
            "data": { "reaction": reaction.to_string() },
            "broadcast": { "channel_id": "channel" },
            "seq": 2,
        });
        assert!(self.shared.tell.send(Tell::Event(event.to_string())).is_ok(), "no WebSocket is open");
    }

    /// Adds a reaction that no WebSocket reports.
    pub fn react_unseen(&self, user: &str, post: &str, emoji: &str) -> Value {
        let mut inner = self.inner();
        let at = inner.reactions.len() + 1;
        let reaction = json!({ "user_id": user, "post_id": post, "emoji_name": emoji, "create_at": at });
        inner.reactions.push(reaction.clone());
        reaction
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.inner().calls.clone()
    }

    /// Returns the calls so far, as text.
    pub fn words(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.what).collect()
    }

    /// Returns the existing posts.
    pub fn posts(&self) -> Vec<String> {
        self.inner().posts.clone()
    }

    /// Waits until a call with this prefix was made this many times.
    pub async fn asked(&self, call: &str, times: usize) {
        let mut count = self.shared.count.subscribe();
        let made = async {
            while self.words().iter().filter(|what| what.starts_with(call)).count() < times {
                count.changed().await.unwrap();
            }
        };
        tokio::time::timeout(LIMIT, made).await.unwrap_or_else(|_| panic!("{call}, {times} times: {:?}", self.words()));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap()
    }
}

impl Drop for Mattermost {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Shared {
    fn record(&self, what: String, body: Value, token: String) {
        self.inner.lock().unwrap().calls.push(Call { what, body, token });
        self.count.send_modify(|count| *count += 1);
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            () = shared.stop.cancelled() => return,
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, shared.clone()));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
            // Some tests are about a client that disconnects in the middle.
            let _ = connection.await;
        });
    }
}

async fn answer(mut request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Full<Bytes>>, Infallible> {
    let method = request.method().clone();
    let path = request.uri().path().strip_prefix("/api/v4").unwrap_or_default().to_owned();
    let token = request.headers().get(header::AUTHORIZATION).map(|token| token.to_str().unwrap().to_owned());
    if path == "/websocket" {
        if shared.inner.lock().unwrap().closed {
            shared.record("WS turned away".into(), Value::Null, String::new());
            return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, &json!({})));
        }
        let key = derive_accept_key(request.headers()[header::SEC_WEBSOCKET_KEY].as_bytes());
        let upgrade = hyper::upgrade::on(&mut request);
        // Subscribes now, so that no event is missed before it listens.
        let told = shared.tell.subscribe();
        tokio::spawn(async move {
            let stream = TokioIo::new(upgrade.await.unwrap());
            socket(WebSocketStream::from_raw_socket(stream, Role::Server, None).await, told, &shared).await;
        });
        let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, &json!({}));
        *response.body_mut() = Full::default();
        for (name, value) in [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-accept", &key)] {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        return Ok(response);
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    let what = format!("{method} {path}");
    let answer = respond(&method, &path, &what, &body, &shared);
    shared.record(what, body, token.unwrap_or_default());
    Ok(answer)
}

fn respond(method: &Method, path: &str, what: &str, body: &Value, shared: &Shared) -> Response<Full<Bytes>> {
    let mut inner = shared.inner.lock().unwrap();
    if inner.instead.front().is_some_and(|(call, ..)| what.starts_with(call.as_str())) {
        let (_, status, retry_after) = inner.instead.pop_front().unwrap();
        let mut response = plain(StatusCode::from_u16(status).unwrap(), &json!({ "message": "not now" }));
        if let Some(after) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, after.parse().unwrap());
        }
        return response;
    }
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["posts"]) => {
            inner.made += 1;
            let id = format!("post{}", inner.made);
            inner.posts.push(id.clone());
            let mut post = body.clone();
            post["id"] = json!(id);
            plain(StatusCode::CREATED, &post)
        }
        ("POST", ["reactions"]) => plain(StatusCode::CREATED, body),
        ("GET", ["posts", post, "reactions"]) => {
            let found: Vec<_> =
                inner.reactions.iter().filter(|reaction| reaction["post_id"] == *post).cloned().collect();
            // Like the real server.
            plain(StatusCode::OK, &if found.is_empty() { Value::Null } else { json!(found) })
        }
        ("GET", ["users", user]) => {
            plain(StatusCode::OK, &json!({ "id": user, "username": user.trim_start_matches("id-") }))
        }
        ("DELETE", ["posts", post]) => {
            inner.posts.retain(|there| there != post);
            plain(StatusCode::OK, &json!({ "status": "OK" }))
        }
        _ => plain(StatusCode::NOT_FOUND, &json!({ "message": "no such route" })),
    }
}

fn plain(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let body = if status == StatusCode::SWITCHING_PROTOCOLS { String::new() } else { body.to_string() };
    Response::builder().status(status).body(Full::new(Bytes::from(body))).unwrap()
}

async fn socket<S>(mut socket: WebSocketStream<S>, mut told: broadcast::Receiver<Tell>, shared: &Shared)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let hello = json!({ "event": "hello", "data": { "server_version": "stand-in" }, "seq": 0 });
    let _ = socket.send(Message::text(hello.to_string())).await;
    loop {
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => {
                    let body: Value = serde_json::from_str(&text).unwrap();
                    let let_in = body["data"]["token"] == "the-token";
                    shared.record(format!("WS {}", body["action"].as_str().unwrap()), body, String::new());
                    let status = if let_in { "OK" } else { "FAIL" };
                    let _ = socket.send(Message::text(json!({ "status": status, "seq_reply": 1 }).to_string())).await;
                }
                Some(Ok(_)) => {}
                _ => return,
            },
            tell = told.recv() => match tell {
                Ok(Tell::Event(event)) => { let _ = socket.send(Message::text(event)).await; }
                Ok(Tell::Cut) | Err(_) => return,
            },
            () = shared.stop.cancelled() => return,
        }
    }
}
