//! The daemon as another host's peer: a connection that carries its own HTTP, many requests at
//! once; the MCP tools as a route; and requests that are forwarded to muxtap on a remote host.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension, Json, Router,
    extract::{Path, Request},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures_util::future::join_all;
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use muxtap_base::nonce;
use muxtap_engine::{Engine, Principal, id_of_key, limits::POLL_LONGEST};
use muxtap_tmux::Address;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::UnixStream,
};
use tokio_util::sync::CancellationToken;

use super::{
    App,
    again::Again,
    error::{Body as Requested, Result, last_event_id},
    openapi_parts::Failures,
    replace::moved,
    server_request::{Encoded, RouteFields, ServerRequest},
    waits,
};

use muxtap_api::{
    Error, ErrorCode, HostInfo, HostState, Operation, PeerInfo, PeerState, Tier, ToolCallAnswer, url,
    wire::{self, HAND_OVER, KEYS, PEER_PROTOCOL},
};
use muxtap_mcp::call_tool;
use muxtap_net::{
    ConnectionPermit, Peer,
    handed::{self, READY},
    unix_socket,
};
use muxtap_peer::Question;

/// The maximum time to hand stdin and stdout over.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(10);
/// The number of concurrent requests on one connection: each open wait is one.
const STREAMS: u32 = 8192;
/// The route whose responses continue after `Last-Event-ID`.
const EVENTS: &str = "/v1/events";
/// How long a connection may be silent before a ping, and how long the reply may take.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Switches this connection to HTTP/2.
///
/// For `muxtap stdio`, on the Unix socket: the same routes, for muxtap on another host. With
/// `Muxtap-Peer: hand-over` in the request and in the response, this connection does not carry
/// HTTP/2 itself; HTTP/2 uses the two descriptors that arrive over it (`SCM_RIGHTS`) after a byte
/// from the daemon.
#[utoipa::path(
    get, path = "/v1/peer", operation_id = "open_peer", tag = "daemon",
    responses(
        (status = 101, description = "The connection now carries HTTP/2"),
        (status = 400, description = "The header `Upgrade: muxtap-peer-1` is missing", body = Error),
        (status = 401, description = "Not available on a TCP port", body = Error)
    )
)]
pub async fn open(
    Extension(peer): Extension<Peer>,
    permit: Option<Extension<ConnectionPermit>>,
    app: App,
    mut request: Request,
) -> Result<Response> {
    if !matches!(peer, Peer::Unix { .. }) {
        return Err(Error::new(ErrorCode::Unauthorized, "this route is for `muxtap stdio` on the Unix socket").into());
    }
    if request.headers().get(header::UPGRADE).is_none_or(|asked| asked != PEER_PROTOCOL) {
        let message = format!("expected the header `Upgrade: {PEER_PROTOCOL}`; `muxtap stdio` sends it");
        return Err(Error::invalid(message).into());
    }
    let is_own = matches!(peer, Peer::Unix { uid, .. } if uid == rustix::process::getuid().as_raw());
    let hands_over = is_own && request.headers().get(wire::PEER).is_some_and(|offered| offered == HAND_OVER);
    let upgrade = hyper::upgrade::on(&mut request);
    let end = app.engine.end();
    let router = super::daemon_router(app.clone()).layer(Extension(peer));
    let router = match &permit {
        Some(permit) => router.layer(permit.clone()),
        None => router,
    };
    let router = TowerToHyperService::new(router);
    app.engine.spawn(async move {
        // The daemon is in use while a peer is connected.
        let _permit = permit;
        let served = async {
            let upgraded = tokio::select! {
                upgraded = upgrade => upgraded?,
                () = end.cancelled() => return Ok(()),
            };
            if !hands_over {
                serve(TokioIo::new(upgraded), router, &end).await;
                return Ok(());
            }
            let taken = tokio::time::timeout(HAND_OVER_LIMIT, take_over(upgraded)).await??;
            let (mut socket, stdin, stdout) = taken;
            tokio::select! {
                // The other side's process has exited.
                _ = socket.read_u8() => return Ok(()),
                is_over = serve(tokio::io::join(stdin, stdout), router, &end) => if !is_over { return Ok(()) },
            }
            socket.write_u8(READY).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        };
        if let Err(error) = served.await {
            tracing::debug!("the connection of a peer ended: {error}");
        }
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PEER_PROTOCOL));
    headers.insert(wire::PEER, HeaderValue::from_static(KEYS));
    if hands_over {
        headers.append(wire::PEER, HeaderValue::from_static(HAND_OVER));
    }
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

/// Receives stdin and stdout of `muxtap stdio`. The daemon owns them until either ends, or the
/// socket is closed.
async fn take_over(upgraded: hyper::upgrade::Upgraded) -> std::io::Result<(UnixStream, handed::Stdin, handed::Stdout)> {
    let mut socket = unix_socket(upgraded)?;
    socket.write_u8(READY).await?;
    let (stdin, stdout) = handed::receive(&socket).await?;
    socket.write_u8(READY).await?;
    Ok((socket, stdin, stdout))
}

/// Serves HTTP/2 until the other side leaves, or the end. Returns whether it left.
async fn serve<S>(io: impl AsyncRead + AsyncWrite + Unpin, routes: S, end: &CancellationToken) -> bool
where
    S: Service<hyper::Request<Incoming>, Response = Response, Error = Infallible, Future: Send + 'static>,
{
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), routes));
    tokio::select! {
        _ = connection.as_mut() => return true,
        () = end.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(super::CLOSE_LIMIT, connection).await;
    false
}

/// Calls an MCP tool.
///
/// The body is the tool's arguments, including `server`. This route cannot ask a person for
/// consent, so tiers that the configuration lists in `confirm` are rejected. `Idempotency-Key` and
/// `Prefer: wait=SECONDS` are for `wait_for`, as for `POST /v1/waits`; with a key, its wait does
/// not end with the connection.
#[utoipa::path(
    post, path = "/v1/tools/{name}", operation_id = "call_tool", tag = "mcp",
    params(
        ("name" = String, Path, description = "A native tool's name, such as `read_since`"),
        ("Idempotency-Key" = Option<String>, Header, description = "As for `POST /v1/waits`; for `wait_for`"),
        ("Prefer" = Option<String>, Header, description = "`wait=SECONDS`: the longest time until the response")
    ),
    request_body = Map<String, Value>,
    responses((status = 200, description = "The answer", body = ToolCallAnswer), Failures)
)]
pub async fn tool(
    app: App,
    again: Again,
    Path(name): Path<String>,
    Requested(arguments): Requested<Map<String, Value>>,
) -> Result<Json<ToolCallAnswer>> {
    let engine = app.engine.by_face("mcp");
    if !may_call(&engine, &name) {
        let message = format!("{name}: a fleet's members cannot call this tool");
        return Err(Error::new(ErrorCode::Unauthorized, message).into());
    }
    let client = (app.rooms().clone(), app.daemon.about.agents.clone());
    Ok(Json(call_tool(&engine, client, (&name, arguments), again.id()?, again.hold).await?))
}

/// Returns whether the caller may call a tool: a member of the fleet only those that are forwarded.
fn may_call(engine: &Engine, name: &str) -> bool {
    !matches!(engine.caller().principal, Principal::Fleet(_)) || muxtap_mcp::is_forwarded(name)
}

/// A member of the fleet, an extension of its requests.
#[derive(Clone, Debug)]
pub(super) struct Member {
    name: Arc<str>,
    tier: Tier,
}

impl Member {
    /// Returns the engine for the member's requests.
    pub(super) fn engine(&self, engine: &Engine) -> Engine {
        engine.with_caller(Principal::member(&self.name)).only(self.tier)
    }
}

/// The routes for members of the fleet, built once for all links.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct MemberRoutes {
    routes: TowerToHyperService<Router>,
    end: CancellationToken,
}

impl MemberRoutes {
    /// Builds the routes.
    pub fn new(app: App) -> Self {
        let end = app.engine.end();
        let router = super::daemon_router(app).layer(axum::middleware::from_fn(check_member));
        Self { routes: TowerToHyperService::new(router), end }
    }

    /// Serves a link: the requests of one tier, of one member.
    pub async fn serve(self, io: impl AsyncRead + AsyncWrite + Unpin, member: Arc<str>, tier: Tier) {
        tracing::debug!("fleet: {member} has opened a link for `{tier}`");
        let (routes, member) = (self.routes, Member { name: member, tier });
        let of_link = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(member.clone());
            request.extensions_mut().insert(Peer::Fleet);
            routes.call(request)
        });
        serve(io, of_link, &self.end).await;
    }
}

/// Refuses every request that a peer does not forward: this daemon's own affairs are its user's.
async fn check_member(request: Request, next: axum::middleware::Next) -> Response {
    if is_for_members(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let message = format!("{} {} is not available to a fleet", request.method(), request.uri().path());
    super::error::Failure::from(Error::new(ErrorCode::Unauthorized, message)).into_response()
}

/// Returns whether a member of the fleet may send a request: those to tmux servers that
/// [`ServerRequest::respond`] forwards, and calls of tools.
fn is_for_members(method: &Method, path: &str) -> bool {
    let Some(path) = path.strip_prefix("/v1/") else { return false };
    let segments: Vec<_> = path.split('/').collect();
    match segments.as_slice() {
        ["sessions" | "windows" | "panes"] => matches!(*method, Method::GET | Method::POST),
        ["sessions" | "windows" | "panes", _] => matches!(*method, Method::GET | Method::PATCH | Method::DELETE),
        ["servers" | "format" | "events" | "agents"] | ["panes", _, "format" | "capture" | "output" | "commands"] => {
            method == Method::GET
        }
        ["panes", _, "agent"] => matches!(*method, Method::GET | Method::POST),
        ["panes", _, "input" | "run"] | ["tools", _] => method == Method::POST,
        ["waits"] => matches!(*method, Method::GET | Method::POST),
        ["waits", _] => matches!(*method, Method::GET | Method::DELETE),
        _ => false,
    }
}

/// Forwards a request to a host's muxtap. `None`: the host has no muxtap.
pub(super) async fn forward<F: RouteFields>(
    request: &ServerRequest<F>,
    host: &str,
    operation: Operation,
) -> muxtap_api::Result<Option<Response>> {
    let app = &request.app;
    let Some(peer) = app.rooms().peers.of(&app.engine, host, operation.tier()) else { return Ok(None) };
    // A request that is not allowed on this host does not leave it.
    app.engine.authorize(operation.tier())?;
    if let Some(socket) = &request.at.socket {
        app.engine.socket_named(socket)?;
    }
    let mut question = question(request)?;
    if !peer.is_there().await? {
        return Ok(None);
    }
    if peer.takes_keys().await?
        && let Some(again) = Reopened::of(request, host, &mut question)?
    {
        return tokio::select! {
            biased;
            () = app.replacing().taken_over() => again.ask(request).await.map(Some),
            answered = peer.ask(question) => answered,
        };
    }
    let mut record = (operation.tier() != Tier::Read).then(|| app.engine.record_elsewhere(operation.name(), host));
    let answered = peer.ask(question).await;
    if let Some(record) = &mut record {
        record.finish(match &answered {
            Ok(Some(answer)) if answer.status().is_success() => "ok",
            Ok(_) => "refused",
            Err(error) => error.code.as_str(),
        });
    }
    answered
}

/// A request that waits on a host, as the daemon that takes over gets it.
pub(super) struct Reopened {
    method: Method,
    uri: String,
    body: bytes::Bytes,
    key: Option<String>,
    /// The wait's id on this host.
    id: String,
}

impl Reopened {
    /// Notes that another daemon opens this request again if it takes over: the host finds the wait by
    /// its key. `None`: the request does not wait.
    fn of<F: RouteFields>(
        request: &ServerRequest<F>,
        host: &str,
        question: &mut Question,
    ) -> muxtap_api::Result<Option<Self>> {
        let parts = &request.parts;
        let is_result = parts.method == Method::GET && parts.uri.path().starts_with("/v1/waits/");
        let again = if question.wait.is_some() {
            let key = question.key.get_or_insert_with(nonce::hex64).clone();
            let id = format!("{host}/{}", id_of_key(&key)?);
            // The targets do not name the host any more. The server does.
            let uri = url::joined("/v1/waits", &url::query(&request.at), "");
            Self { method: Method::POST, uri, body: question.body.clone(), key: Some(key), id }
        } else if is_result {
            let uri = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
            let id = format!("{host}/{}", request.target);
            Self { method: Method::GET, uri, body: bytes::Bytes::new(), key: None, id }
        } else {
            return Ok(None);
        };
        waits::continues(parts);
        Ok(Some(again))
    }

    /// Notes that another daemon opens this wait on several hosts again if it takes over.
    pub(super) fn of_several<F: RouteFields>(request: &ServerRequest<F>, key: &str) -> muxtap_api::Result<Self> {
        let parts = &request.parts;
        let uri = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let body = request.fields.encoded()?.body;
        Ok(Self { method: Method::POST, uri, body, key: Some(key.to_owned()), id: id_of_key(key)? })
    }

    /// Opens the request again in the daemon that has taken over.
    pub(super) async fn ask<F>(self, request: &ServerRequest<F>) -> muxtap_api::Result<Response> {
        let headers = &request.parts.headers;
        if headers.contains_key(wire::RELAY) {
            return Ok(moved());
        }
        waits::check_may_relay(&request.parts, &self.id)?;
        let prefers = headers.get(wire::PREFER).and_then(|prefers| prefers.to_str().ok());
        let headers = [
            (wire::RELAY, Some("1")),
            (wire::IDEMPOTENCY_KEY, self.key.as_deref()),
            (wire::PREFER, prefers),
            ("content-type", (!self.body.is_empty()).then_some("application/json")),
        ];
        let headers: Vec<_> = headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        request.app.ask_elsewhere_at_last(&self.method, &self.uri, &headers, &self.body).await
    }
}

/// Writes a request for the host that it names.
fn question<F: RouteFields>(request: &ServerRequest<F>) -> muxtap_api::Result<Question> {
    let Encoded { query, body, wait } = request.fields.encoded()?;
    let (path, headers) = (request.parts.uri.path(), &request.parts.headers);
    let again = Again::of(headers)?;
    let there = path_there(path, &request.target, request.at.socket.as_deref(), &query)?;
    Ok(Question {
        resume: if path == EVENTS { last_event_id(headers)? } else { None },
        key: again.key,
        hold: again.hold.map(|hold| Instant::now() + hold.min(POLL_LONGEST)),
        wait,
        ..Question::new(request.parts.method.clone(), there, body)
    })
}

/// Returns the path and the query of a request on the host that it names. `target`: the path's
/// parameter without its host; `server`: the address of the server, of which only the host's own
/// part is sent; `query`: the query of the request's own fields.
fn path_there(path: &str, target: &str, server: Option<&str>, query: &str) -> muxtap_api::Result<String> {
    let mut segments = path.splitn(5, '/').skip(2);
    let mut there = format!("/v1/{}", segments.next().unwrap_or_default());
    if segments.next().is_some() {
        there.extend(["/", &url::encode(target)]);
    }
    if let Some(action) = segments.next() {
        there.extend(["/", action]);
    }
    let socket = match server.map(|server| Address::parse(server.as_ref())).transpose()? {
        Some(Address::Elsewhere(_, socket)) => format!("socket={}", url::encode(socket)),
        _ => String::new(),
    };
    let queries = [query, &socket].into_iter().filter(|query| !query.is_empty());
    Ok(queries.fold(there, |path, query| url::joined(&path, query, "")))
}

/// Lists the contents of a host's default server through its muxtap. `None`: the list is made
/// locally.
pub(super) async fn list<T: DeserializeOwned>(
    app: &App,
    host: &str,
    field: &str,
    targets: &[String],
) -> muxtap_api::Result<Option<Vec<T>>> {
    app.rooms().peers.list(&app.engine, host, (field, targets)).await
}

/// Looks for muxtap on each host.
pub(super) async fn look(app: &App) {
    let hosts = app.engine.hosts_elsewhere().into_iter();
    if let Some(fleet) = app.rooms().peers.fleet() {
        // A host that is found is stored with the fleet.
        fleet.look().await;
    }
    // In a fleet a host says by itself that it is there.
    let hosts = hosts.filter(|host| host.fleet.is_none());
    let peers = hosts.filter_map(|host| app.rooms().peers.of(&app.engine, &host.name, Tier::Read));
    // The reason for a failure is stored with the peer.
    join_all(peers.map(|peer| async move { peer.is_there().await.ok() })).await;
}

/// Adds the known facts about a host's muxtap.
pub(super) fn with_info(app: &App, mut host: HostInfo) -> HostInfo {
    let peers = &app.rooms().peers;
    host.peer = peers.info(&host.name);
    if let (Some(about), Some(known)) = (&mut host.fleet, peers.fleet().and_then(|fleet| fleet.known(&host.name))) {
        *about = known;
    }
    // The host itself was not reached, so its tmux was not tried.
    if let Some(PeerInfo { state: PeerState::Down, error: Some(error), .. }) = &host.peer
        && host.state == HostState::Unasked
    {
        (host.state, host.error) = (HostState::Down, Some(error.clone()));
    }
    if host.peer.as_ref().is_some_and(|peer| peer.state == PeerState::Connected) {
        (host.state, host.reason, host.error) = (HostState::Connected, None, None);
    }
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_the_fleet_reaches_tmux_and_nothing_of_the_daemon() {
        for (method, path) in [
            (Method::GET, "/v1/panes"),
            (Method::GET, "/v1/panes/%250/output"),
            (Method::POST, "/v1/panes/%250/input"),
            (Method::DELETE, "/v1/sessions/work%2Fx"),
            (Method::DELETE, "/v1/waits/w1"),
            (Method::POST, "/v1/tools/read_since"),
            (Method::GET, "/v1/events"),
        ] {
            assert!(is_for_members(&method, path), "{method} {path}");
        }
        for (method, path) in [
            (Method::POST, "/v1/stop"),
            (Method::POST, "/v1/upgrade"),
            (Method::GET, "/v1/replace"),
            (Method::GET, "/v1/peer"),
            (Method::GET, "/v1/mcp"),
            (Method::POST, "/mcp"),
            (Method::GET, "/v1/config"),
            (Method::GET, "/v1/environment"),
            (Method::GET, "/v1/status"),
            (Method::GET, "/v1/hosts"),
            (Method::POST, "/v1/hosts"),
            (Method::DELETE, "/v1/hosts/box"),
            (Method::GET, "/v1/when"),
            (Method::POST, "/v1/when"),
            (Method::GET, "/v1/approvals"),
            (Method::POST, "/v1/approvals/a1"),
            (Method::GET, "/v1/stream"),
            (Method::POST, "/v1/recordings"),
            (Method::GET, "/v1/panes/%250/alis"),
            (Method::GET, "/v1/snapshots"),
            (Method::POST, "/v1/capability"),
            (Method::GET, "/v1/devices"),
            (Method::POST, "/v1/agent-sessions"),
            (Method::PUT, "/v1/page/files"),
            (Method::POST, "/v1/page/codes"),
            (Method::GET, "/metrics"),
            (Method::GET, "/"),
            (Method::PUT, "/v1/panes"),
            (Method::POST, "/v1/panes/%250"),
            (Method::POST, "/v1/events"),
        ] {
            assert!(!is_for_members(&method, path), "{method} {path}");
        }
        assert!(muxtap_mcp::is_forwarded("read_since") && muxtap_mcp::is_forwarded("run"));
        for tool in ["record", "snapshot", "devices", "workspace", "capability", "manage_tmux_sessions", "unknown"] {
            assert!(!muxtap_mcp::is_forwarded(tool), "{tool}");
        }
    }

    #[test]
    fn a_request_is_written_as_the_host_means_it() {
        let there = |path, target, server, query| path_there(path, target, server, query).unwrap();
        assert_eq!(
            there("/v1/panes/box%2F%253/capture", "%3", Some("box/default"), "start=-5"),
            "/v1/panes/%253/capture?start=-5&socket=default"
        );
        assert_eq!(there("/v1/panes", "", Some("box//tmp/s"), ""), "/v1/panes?socket=%2Ftmp%2Fs");
        assert_eq!(there("/v1/sessions/boxer%2Fx", "boxer/x", None, ""), "/v1/sessions/boxer%2Fx");
    }
}
