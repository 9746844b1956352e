//! The daemon is replaced (`docs/upgrade.md`): the requests that ask for it, and what becomes of the
//! other requests meanwhile.
//!
//! New requests are held back while the engine is handed over, and open ones are finished before. What
//! takes long and can be resumed (waits, event streams) continues: this process asks the daemon that
//! has taken over for the rest, and passes it on.

mod passed_on;
mod turns;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    body::{Body, HttpBody as _},
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use muxtap_api::{
    Error, ErrorCode, UpgradeAnswer, UpgradeRequest, WaitAnswer, WaitOutcome,
    wire::{FORCE, RELAY, REPLACE_PROTOCOL},
};
use muxtap_engine::{Engine, limits::POLL_LONGEST};
use muxtap_net::{Peer, Streaming, unix_socket};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
};

use self::{passed_on::may_be_passed_on, turns::Turns};
use super::{
    App,
    error::{Body as Requested, Failure, Result},
    mcp::StoredMcpSessions,
    openapi_parts::Failures,
};

/// How long open requests may take to finish before the daemon is replaced.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);
/// How long a connection may take to be switched to the conversation of two daemons.
const SWITCH_LIMIT: Duration = Duration::from_secs(10);

/// The value of the header `RELAY` for a caller whose answer marks no match.
pub(super) const READS_ONLY: &str = "reads-only";
/// The most bytes of an error.
const ERROR_BYTES: usize = 64 * 1024;
/// The most bytes of a wait's result: it has a screen's last lines, and captures.
const RESULT_BYTES: usize = 4 * 1024 * 1024;

/// A request to replace the daemon.
pub struct Replacement {
    /// The daemon that is to take over.
    pub by: By,
    /// Whether what cannot be handed over may end.
    pub force: bool,
    /// The engine for the caller, to record the outcome: the old daemon's log closes with it.
    pub caller: Engine,
    /// Gets the outcome.
    pub answer: oneshot::Sender<muxtap_api::Result<UpgradeAnswer>>,
}

/// A daemon that is to take over.
#[derive(Debug)]
pub enum By {
    /// One to be started, from this program; `None`: from the daemon's own.
    Program(Option<PathBuf>),
    /// The process at the other end of a connection.
    Process(u32, UnixStream),
}

impl By {
    /// Returns the name of the daemon that is to take over, for the audit log.
    fn name(&self) -> String {
        match self {
            Self::Program(program) => program.as_ref().map(|program| program.display().to_string()).unwrap_or_default(),
            Self::Process(process, _) => format!("process {process}"),
        }
    }
}

/// Whether requests are carried out here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Here,
    /// They are held back.
    Held,
    /// Another daemon has taken over.
    Elsewhere,
}

#[derive(Debug, Default)]
struct Requests {
    phase: Phase,
    /// The open requests.
    open: BTreeMap<u64, Open>,
    last: u64,
}

/// The requests of a daemon, and those to replace it. Clones share them.
#[derive(Clone, Debug)]
pub struct Replacing(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    requests: watch::Sender<Requests>,
    asks: mpsc::Sender<Replacement>,
    asked: Mutex<Option<mpsc::Receiver<Replacement>>>,
    /// The turns in which the daemon that has taken over is asked for the rest of what is relayed.
    turns: Turns,
}

impl Default for Replacing {
    fn default() -> Self {
        Self::new(Turns::default())
    }
}

/// An open request. Dropped, it is finished.
#[derive(Debug)]
pub(super) struct Turn {
    requests: Replacing,
    number: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.requests.0.requests.send_modify(|requests| drop(requests.open.remove(&self.number)));
    }
}

/// A request's turn, for a handler whose work another daemon can continue.
#[derive(Clone, Debug)]
pub struct OwnTurn(Replacing, u64);

impl OwnTurn {
    /// The request need not be finished before the daemon is replaced: the next one continues it.
    pub fn continues(&self) {
        self.0.0.requests.send_modify(|requests| {
            if let Some(open) = requests.open.get_mut(&self.1) {
                open.continues = true;
            }
        });
    }
}

/// An open request.
#[derive(Debug)]
struct Open {
    route: String,
    begun: Instant,
    /// Whether the next daemon continues it.
    continues: bool,
    /// Whether it is held back instead of awaited.
    begins_anew: bool,
}

/// Requests are held back. Dropped, they are carried out here again.
#[derive(Debug)]
pub struct HeldRequests(Option<Replacing>);

impl HeldRequests {
    /// Lets the daemon that has taken over carry out the requests.
    pub fn pass_on(mut self) {
        if let Some(replacing) = self.0.take() {
            replacing.0.requests.send_modify(|requests| requests.phase = Phase::Elsewhere);
        }
    }
}

impl Drop for HeldRequests {
    fn drop(&mut self) {
        if let Some(replacing) = self.0.take() {
            replacing.0.requests.send_modify(|requests| requests.phase = Phase::Here);
        }
    }
}

impl Replacing {
    fn new(turns: Turns) -> Self {
        let (asks, asked) = mpsc::channel(1);
        let asked = Mutex::new(Some(asked));
        Self(Arc::new(Shared { requests: watch::Sender::default(), asks, asked, turns }))
    }

    /// Takes the receiver of requests to replace the daemon, once.
    pub fn take_asked(&self) -> Option<mpsc::Receiver<Replacement>> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Holds new requests back, and waits for those that are open; some are held back, too, because they
    /// can begin anew. `force`: leaves those that do not end in time. Error: the requests that are open.
    pub async fn settle(&self, force: bool) -> muxtap_api::Result<HeldRequests> {
        let slow = self.routes(|open| !open.begins_anew && open.begun.elapsed() > SETTLE_LIMIT);
        if !slow.is_empty() && !force {
            return Err(open(&slow));
        }
        self.0.requests.send_modify(|requests| requests.phase = Phase::Held);
        let held = HeldRequests(Some(self.clone()));
        let mut requests = self.0.requests.subscribe();
        // The sender lives as long as `self`.
        let done = requests.wait_for(|requests| requests.open.values().all(|open| open.continues));
        let in_time = tokio::time::timeout(SETTLE_LIMIT, done).await.is_ok();
        if in_time || force { Ok(held) } else { Err(open(&self.routes(|_| true))) }
    }

    fn routes(&self, is_meant: impl Fn(&Open) -> bool) -> Vec<String> {
        let requests = self.0.requests.borrow();
        let meant = requests.open.values().filter(|open| !open.continues && is_meant(open));
        let mut routes: Vec<_> = meant.map(|open| open.route.clone()).collect();
        routes.sort();
        routes.dedup();
        routes
    }

    /// Resolves when another daemon has taken over.
    pub async fn taken_over(&self) {
        let _ = self.0.requests.subscribe().wait_for(|requests| requests.phase == Phase::Elsewhere).await;
    }

    /// Resolves when requests are held back, or when another daemon has taken over.
    async fn held(&self) {
        let _ = self.0.requests.subscribe().wait_for(|requests| requests.phase != Phase::Here).await;
    }

    /// Resolves when requests are not held back. Returns whether another daemon has taken over.
    pub(super) async fn decided(&self) -> bool {
        let mut requests = self.0.requests.subscribe();
        let decided = requests.wait_for(|requests| requests.phase != Phase::Held).await;
        decided.is_ok_and(|requests| requests.phase == Phase::Elsewhere)
    }

    /// Returns the turn of a request; `None`: another daemon has taken over.
    async fn enter(&self, begins_anew: bool, route: impl Fn() -> String) -> Option<Turn> {
        loop {
            let mut number = None;
            let mut is_elsewhere = false;
            self.0.requests.send_if_modified(|requests| {
                is_elsewhere = requests.phase == Phase::Elsewhere;
                if requests.phase == Phase::Here {
                    requests.last += 1;
                    let open = Open { route: route(), begun: Instant::now(), continues: false, begins_anew };
                    requests.open.insert(requests.last, open);
                    number = Some(requests.last);
                }
                false
            });
            match number {
                Some(number) => return Some(Turn { requests: self.clone(), number }),
                None if is_elsewhere => return None,
                None => drop(self.decided().await),
            }
        }
    }
}

fn open(routes: &[String]) -> Error {
    let message = format!(
        "open requests cannot be handed over: {}; end them, or upgrade with --force, which ends them",
        routes.join(", ")
    );
    Error::new(ErrorCode::Conflict, message)
}

/// The routes that replace the daemon: they wait for the end of the others.
const OWN: [&str; 2] = ["/v1/upgrade", "/v1/replace"];

/// Holds a request back while the daemon is replaced, and passes it on afterwards.
pub(super) async fn gate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("unknown route", MatchedPath::as_str);
    if OWN.contains(&path) {
        return next.run(request).await;
    }
    let method = request.method().clone();
    let begins_anew = begins_anew(&method, path) && request.body().is_end_stream();
    loop {
        let Some(turn) = app.daemon.replacing.enter(begins_anew, || format!("{method} {path}")).await else {
            return pass_on(&app, request, may_be_passed_on(&method, path)).await;
        };
        if !begins_anew {
            request.extensions_mut().insert(OwnTurn(turn.requests.clone(), turn.number));
            return next.run(request).await;
        }
        let (parts, body) = request.into_parts();
        let copy = Request::from_parts(parts.clone(), Body::empty());
        tokio::select! {
            biased;
            response = next.clone().run(Request::from_parts(parts, body)) => return response,
            () = app.daemon.replacing.held() => request = copy,
        }
    }
}

/// Returns whether a request without a body can be dropped before its response begins, and be carried out
/// anew: it changes nothing, and may take long to begin. It is held back instead of awaited.
fn begins_anew(method: &Method, path: &str) -> bool {
    method == Method::GET && path == "/v1/events"
}

/// Passes a request on to the daemon that has taken over. Callers over TCP have to connect to it
/// themselves: it must authenticate them. So do those whose process may count (not `may_pass_on`).
async fn pass_on(app: &App, request: Request, may_pass_on: bool) -> Response {
    if request.headers().contains_key(RELAY) {
        return moved();
    }
    let is_user = matches!(request.extensions().get::<Peer>(), Some(Peer::Unix { .. }));
    if !is_user || !may_pass_on || request.headers().contains_key(header::UPGRADE) {
        let error = Error::unavailable("another muxtap daemon has taken over: send the request again");
        let mut response = Failure::from(error).into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    ask(Path::new(&app.daemon.about.socket), request).await.unwrap_or_else(|error| Failure::from(error).into_response())
}

/// Returns the response to another replaced daemon, which asks this one's successor itself.
pub(super) fn moved() -> Response {
    let error = Error::unavailable("another muxtap daemon has taken over: send the request again");
    let mut response = Failure::from(error).into_response();
    response.headers_mut().insert(RELAY, HeaderValue::from_static("1"));
    response
}

/// Sends a request to the daemon on this socket.
async fn ask(socket: &Path, mut request: Request) -> muxtap_api::Result<Response> {
    let lost = |error: &dyn std::fmt::Display| {
        Error::unavailable(format!(
            "cannot reach the muxtap daemon that has taken over: {error}; nothing was done: send the request again"
        ))
    };
    let stream = UnixStream::connect(socket).await.map_err(|error| lost(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost(&error))?;
    tokio::spawn(connection);
    // Each response has a connection of its own.
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    request.headers_mut().entry(header::HOST).or_insert(HeaderValue::from_static("muxtap"));
    let response = sender.send_request(request).await.map_err(|error| lost_later(&error))?;
    let is_stream = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    let mut response = response.map(Body::new);
    if is_stream {
        response.extensions_mut().insert(Streaming);
    }
    Ok(response)
}

/// Returns the error of a request whose response did not arrive.
fn lost_later(error: &dyn std::fmt::Display) -> Error {
    Error::unavailable(format!(
        "lost the muxtap daemon that has taken over: {error}; the request may have been carried out, and text typed"
    ))
}

/// Returns the error in a response.
pub(super) async fn error_of(response: Response) -> Error {
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), ERROR_BYTES).await.unwrap_or_default();
    serde_json::from_slice(&body)
        .unwrap_or_else(|_| Error::internal(format!("the daemon that has taken over responded with {status}")))
}

impl App {
    /// Resolves when the daemon that has taken over has responded to a request.
    async fn elsewhere_responds(&self) {
        let request = Request::builder().uri("/health").header(RELAY, "1").body(Body::empty());
        let Ok(request) = request else { return };
        let asked = ask(Path::new(&self.daemon.about.socket), request);
        // The requests themselves report a failure.
        let _ = asked.await;
    }

    /// Sends a request to the daemon that has taken over, in its turn. `body`: JSON, or empty.
    pub(super) async fn ask_elsewhere(
        &self,
        method: &Method,
        uri: &str,
        headers: &[(&'static str, &str)],
        body: &Bytes,
    ) -> muxtap_api::Result<Response> {
        self.turn(None).await;
        self.ask_at_once(method, uri, headers, body).await
    }

    /// Waits for a turn to ask the daemon that has taken over, or until `most` has passed.
    async fn turn(&self, most: Option<Duration>) {
        let turn = self.daemon.replacing.0.turns.take(self.elsewhere_responds());
        let _ = tokio::time::timeout(most.unwrap_or(Duration::MAX), turn).await;
    }

    /// Sends a request to the daemon that has taken over, whose turn has come.
    async fn ask_at_once(
        &self,
        method: &Method,
        uri: &str,
        headers: &[(&'static str, &str)],
        body: &Bytes,
    ) -> muxtap_api::Result<Response> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.clone())).map_err(|error| Error::internal(error.to_string()))?;
        ask(Path::new(&self.daemon.about.socket), request).await
    }

    /// Sends a request to the daemon that has taken over, and that has not been replaced.
    pub(super) async fn ask_elsewhere_at_last(
        &self,
        method: &Method,
        uri: &str,
        headers: &[(&'static str, &str)],
        body: &Bytes,
    ) -> muxtap_api::Result<Response> {
        loop {
            let response = self.ask_elsewhere(method, uri, headers, body).await?;
            if !response.headers().contains_key(RELAY) {
                return Ok(response);
            }
        }
    }

    /// Sends `GET uri` to the daemon that has taken over, and that has not been replaced.
    pub(super) async fn get_elsewhere_at_last(
        &self,
        uri: &str,
        headers: &[(&'static str, &str)],
    ) -> muxtap_api::Result<Response> {
        self.ask_elsewhere_at_last(&Method::GET, uri, headers, &Bytes::new()).await
    }

    /// Waits in the daemon that has taken over for the end of a wait, or for `hold` at most.
    /// `reads_only`: the caller's answer marks no match.
    pub(super) async fn wait_elsewhere(
        &self,
        id: &str,
        hold: Option<Duration>,
        reads_only: bool,
    ) -> muxtap_api::Result<Response> {
        let begun = Instant::now();
        let left = || hold.map(|hold| hold.saturating_sub(begun.elapsed()));
        loop {
            // A turn is part of the time.
            self.turn(left()).await;
            let timeout = left().map_or(POLL_LONGEST, |left| left.min(POLL_LONGEST)).as_millis();
            let uri = format!("/v1/waits/{}?timeout_ms={timeout}", muxtap_api::url::encode(id));
            let headers = [(RELAY, if reads_only { READS_ONLY } else { "1" })];
            let response = self.ask_at_once(&Method::GET, &uri, &headers, &Bytes::new()).await?;
            // That daemon was also replaced.
            if response.headers().contains_key(RELAY) {
                continue;
            }
            if !response.status().is_success() {
                return Ok(response);
            }
            let body = axum::body::to_bytes(response.into_body(), RESULT_BYTES).await;
            let answer: WaitAnswer = body
                .map_err(|error| lost_later(&error))
                .and_then(|body| serde_json::from_slice(&body).map_err(|error| lost_later(&error)))?;
            if answer.outcome != WaitOutcome::Pending || hold.is_some_and(|hold| hold <= begun.elapsed()) {
                return Ok(Json(answer).into_response());
            }
        }
    }

    /// Returns the sessions of MCP over HTTP, for the daemon that takes over.
    pub fn stored_mcp_sessions(&self) -> StoredMcpSessions {
        self.daemon.mcp_sessions.stored()
    }

    /// Takes the sessions of MCP over HTTP of an earlier daemon.
    pub fn restore_mcp_sessions(&self, stored: StoredMcpSessions) {
        self.daemon.mcp_sessions.restore(stored);
    }

    /// Returns the requests of the daemon, and those to replace it.
    pub fn replacing(&self) -> &Replacing {
        &self.daemon.replacing
    }

    /// Asks the daemon to let another one take over.
    async fn replace(&self, by: By, force: bool) -> muxtap_api::Result<UpgradeAnswer> {
        let (answer, answered) = oneshot::channel();
        let asks = &self.daemon.replacing.0.asks;
        let busy = || Error::new(ErrorCode::Conflict, "the daemon is being replaced already, or stops");
        let (name, caller) = (by.name(), self.engine.clone());
        let answer = match asks.try_send(Replacement { by, force, caller, answer }) {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(busy())),
            Err(_) => Err(busy()),
        };
        // A success is recorded before this daemon leaves its log.
        answer.inspect_err(|_| self.engine.record_about("upgrade", &name, "refused"))
    }

    /// Checks that the caller may choose the daemon's program: it runs with the user's rights.
    fn check_may_replace(&self, peer: Peer) -> muxtap_api::Result<()> {
        self.engine.check_user("replacing the daemon", "run `muxtap upgrade` on the daemon's machine")?;
        // The router of a peer on another host, and the command line there, come over this socket, too.
        match peer {
            Peer::Unix { .. } => Ok(()),
            Peer::Tcp { .. } | Peer::Fleet => {
                Err(Error::new(ErrorCode::Unauthorized, "not available on a TCP port, nor to a fleet"))
            }
        }
    }
}

/// Replaces the daemon by a new one, which takes over what this one has.
///
/// On the Unix socket. Panes, cursors, waits and event streams continue. If the new daemon cannot take
/// over, this one continues as before, and the error says why. `program` is started with the daemon's
/// rights: an absolute path.
#[utoipa::path(
    post, path = "/v1/upgrade", operation_id = "upgrade_daemon", tag = "daemon",
    request_body = UpgradeRequest,
    responses((status = 200, description = "Another daemon has taken over", body = UpgradeAnswer), Failures)
)]
pub async fn upgrade(
    Extension(peer): Extension<Peer>,
    app: App,
    Requested(request): Requested<UpgradeRequest>,
) -> Result<Json<UpgradeAnswer>> {
    app.check_may_replace(peer)?;
    let program = request.program.map(PathBuf::from);
    if let Some(program) = program.as_ref().filter(|program| !program.is_absolute()) {
        return Err(Error::invalid(format!("program: {} is not an absolute path", program.display())).into());
    }
    Ok(Json(app.replace(By::Program(program), request.force).await?))
}

/// Hands the daemon over to the process at the other end of this connection.
///
/// For `muxtap serve --replace`, on the Unix socket.
#[utoipa::path(
    get, path = "/v1/replace", operation_id = "replace_daemon", tag = "daemon",
    responses(
        (status = 101, description = "The connection now carries the conversation of both daemons"),
        (status = 400, description = "The header `Upgrade: muxtap-replace-1` is missing", body = Error),
        (status = 401, description = "Not available on a TCP port", body = Error)
    )
)]
pub async fn replace(Extension(peer): Extension<Peer>, app: App, mut request: Request) -> Result<Response> {
    app.check_may_replace(peer)?;
    if request.headers().get(header::UPGRADE).is_none_or(|asked| asked != REPLACE_PROTOCOL) {
        let message = format!("expected the header `Upgrade: {REPLACE_PROTOCOL}`; `muxtap serve --replace` sends it");
        return Err(Error::invalid(message).into());
    }
    let Peer::Unix { pid: Some(pid), .. } = peer else {
        return Err(Error::new(ErrorCode::Unauthorized, "this system does not name the caller's process").into());
    };
    let process = u32::try_from(pid).map_err(|_| Error::internal("the caller's process has no id"))?;
    let force = request.headers().contains_key(FORCE);
    let upgrade = hyper::upgrade::on(&mut request);
    app.engine.spawn({
        let app = app.clone();
        async move {
            let socket = async {
                let upgraded = tokio::time::timeout(SWITCH_LIMIT, upgrade).await??;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(unix_socket(upgraded)?)
            };
            match socket.await {
                Ok(socket) => {
                    if let Err(error) = app.replace(By::Process(process, socket), force).await {
                        tracing::warn!("process {process} has not taken over: {error}");
                    }
                }
                Err(error) => tracing::debug!("the connection of process {process} ended: {error}"),
            }
        }
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(REPLACE_PROTOCOL));
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

#[cfg(test)]
mod tests;
