//! The daemon as another host's peer: a connection that carries its own HTTP, many requests at
//! once; the MCP tools as a route; and requests that are forwarded to muxtap on a remote host.

use std::time::{Duration, Instant};

use axum::{
    Extension, Json, Router,
    body::{Bytes, to_bytes},
    extract::{FromRequestParts as _, Path, Query, Request},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use futures_util::future::join_all;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use memchr::memmem;
use muxtap_engine::limits::POLL_LONGEST;
use muxtap_tmux::Address;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::UnixStream,
};
use tokio_util::sync::CancellationToken;

use super::{App, BODY_BYTES, again::Again, error::Body as Requested, error::Result, openapi_parts::Failures};

use muxtap_api::{
    Error, ErrorCode, HostInfo, HostState, Operation, PeerState, Tier, ToolCallAnswer,
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
async fn serve(io: impl AsyncRead + AsyncWrite + Unpin, router: Router, end: &CancellationToken) -> bool {
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(router)));
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
    let client = (app.rooms().clone(), app.daemon.about.agents.clone());
    Ok(Json(call_tool(&engine, client, (&name, arguments), again.id()?, again.hold).await?))
}

/// Forwards a request to a host's muxtap, if it has one; else returns the request. Hosts are
/// removed from its targets except for the one in its path.
pub(super) async fn forward(
    app: &App,
    host: &str,
    request: Request,
) -> muxtap_api::Result<std::result::Result<Response, Request>> {
    let route = Route::of(request.method(), request.uri(), host);
    let (Some(route), Some(peer)) = (route, app.rooms().peers.of(&app.engine, host)) else {
        return Ok(Err(request));
    };
    let (mut parts, body) = request.into_parts();
    let Ok(caller) = App::from_request_parts(&mut parts, app).await;
    let whole = to_bytes(body, BODY_BYTES).await;
    let body = whole.map_err(|_| Error::new(ErrorCode::ResourceLimit, "the request's body is too large"))?;
    let Some(operation) = route.operation(&body) else {
        // The handler itself reports the error.
        return Ok(Err(Request::from_parts(parts, body.into())));
    };
    // A request that is not allowed on this host is not forwarded.
    let tier = operation.tier();
    caller.engine.authorize(tier)?;
    // Checks each of them, because the other side picks one.
    for (_, socket) in pairs_of(&parts.uri).iter().filter(|(name, _)| name == "socket") {
        caller.engine.socket_named(socket)?;
    }
    if !body.is_empty() && parts.headers.get(header::CONTENT_TYPE).is_none_or(|kind| !is_json(kind)) {
        // As above.
        return Ok(Err(Request::from_parts(parts, body.into())));
    }
    let resume = parts.headers.get(wire::LAST_EVENT_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let path = route.path_there(&parts.uri)?;
    let again = Again::of(&parts.headers)?;
    let hold = again.hold.map(|hold| Instant::now() + hold.min(POLL_LONGEST));
    let question = Question::new(parts.method.clone(), path, without_caller(&body));
    let question = Question { resume, key: again.key, hold, ..question };
    if !peer.is_there().await? {
        return Ok(Err(Request::from_parts(parts, body.into())));
    }
    let mut record = (tier != Tier::Read).then(|| caller.engine.record_elsewhere(operation.name(), host));
    let answered = peer.ask(question).await;
    if let Some(record) = &mut record {
        record.finish(match &answered {
            Ok(Some(answer)) if answer.status().is_success() => "ok",
            Ok(_) => "refused",
            Err(error) => error.code.as_str(),
        });
    }
    Ok(answered?.ok_or_else(|| Request::from_parts(parts, body.into())))
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
    let peers = hosts.filter_map(|host| app.rooms().peers.of(&app.engine, &host.name));
    // The reason for a failure is stored with the peer.
    join_all(peers.map(|peer| async move { peer.is_there().await.ok() })).await;
}

/// Adds the known facts about a host's muxtap.
pub(super) fn with_info(app: &App, mut host: HostInfo) -> HostInfo {
    host.peer = app.rooms().peers.info(&host.name);
    if host.peer.as_ref().is_some_and(|peer| peer.state == PeerState::Connected) {
        (host.state, host.reason, host.error) = (HostState::Connected, None, None);
    }
    host
}

/// Returns the names and values of a query.
fn pairs_of(uri: &Uri) -> Vec<(String, String)> {
    Query::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default()
}

fn is_json(kind: &HeaderValue) -> bool {
    kind.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
}

/// Strips `caller_cwd` and `caller_env` from a request's body: the directory is meaningless on the
/// remote host, and the variables stay on this one.
fn without_caller(body: &Bytes) -> Bytes {
    // Hardly any body has these fields, or an escape that might hide them.
    if ["\"caller_", "\\u"].iter().all(|sign| memmem::find(body, sign.as_bytes()).is_none()) {
        return body.clone();
    }
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(body) else { return body.clone() };
    let known = ["caller_env", "caller_cwd"].map(|name| fields.remove(name).is_some());
    if known.contains(&true) { Value::Object(fields).to_string().into() } else { body.clone() }
}

/// The routes that are forwarded to a peer, by method, first word and action. All other requests
/// are handled locally, like those for data stored on this host (recordings, snapshots). A patch
/// may be a different operation, depending on its body, but at least this one.
const ROUTES: [(Method, &str, Option<&str>, Operation); 23] = [
    (Method::GET, "sessions", None, Operation::Look),
    (Method::POST, "sessions", None, Operation::NewSession),
    (Method::PATCH, "sessions", None, Operation::ChangeSession),
    (Method::DELETE, "sessions", None, Operation::KillSession),
    (Method::GET, "windows", None, Operation::Look),
    (Method::POST, "windows", None, Operation::NewWindow),
    (Method::PATCH, "windows", None, Operation::ChangeWindow),
    (Method::DELETE, "windows", None, Operation::KillWindow),
    (Method::GET, "panes", None, Operation::Look),
    (Method::POST, "panes", None, Operation::SplitWindow),
    (Method::PATCH, "panes", None, Operation::ChangePane),
    (Method::DELETE, "panes", None, Operation::KillPane),
    (Method::GET, "panes", Some("capture"), Operation::Look),
    (Method::GET, "panes", Some("output"), Operation::Look),
    (Method::GET, "panes", Some("format"), Operation::Format),
    (Method::POST, "panes", Some("input"), Operation::Input),
    (Method::POST, "panes", Some("run"), Operation::Run),
    (Method::GET, "format", None, Operation::Format),
    (Method::GET, "waits", None, Operation::Look),
    (Method::POST, "waits", None, Operation::Look),
    (Method::DELETE, "waits", None, Operation::Look),
    (Method::GET, "agents", None, Operation::Look),
    (Method::GET, "events", None, Operation::Look),
];

/// A route that is forwarded to a peer.
struct Route {
    /// The operation, by its line in the table.
    operation: Operation,
    /// Its first word after `/v1/`.
    what: String,
    /// The target after that, without a host.
    target: Option<String>,
    /// The rest of the path.
    action: Option<String>,
}

impl Route {
    /// Returns the route of a request. `None`: the request is handled locally.
    fn of(method: &Method, uri: &Uri, host: &str) -> Option<Self> {
        let mut segments = uri.path().strip_prefix("/v1/")?.split('/');
        let what = segments.next()?;
        let target = segments.next().map(|target| {
            let target = percent_decode_str(target).decode_utf8_lossy().into_owned();
            let stripped = target.strip_prefix(host).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned);
            stripped.unwrap_or(target)
        });
        let action = segments.next().map(str::to_owned);
        let asked = if method == Method::HEAD { &Method::GET } else { method };
        let is_asked = |(method, word, name, _): &&(Method, &str, Option<&str>, Operation)| {
            (method, *word, *name) == (asked, what, action.as_deref())
        };
        let operation = ROUTES.iter().find(is_asked)?.3;
        Some(Self { operation, what: what.into(), target, action })
    }

    /// Returns the operation of a request. `None`: its body is invalid.
    fn operation(&self, body: &[u8]) -> Option<Operation> {
        match self.operation {
            Operation::ChangePane => serde_json::from_slice(body).ok().map(|patch| Operation::of_pane_patch(&patch)),
            operation => Some(operation),
        }
    }

    /// Returns the path and the query on the remote host, with that host's name of the server.
    fn path_there(&self, uri: &Uri) -> muxtap_api::Result<String> {
        let pairs = pairs_of(uri);
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut path = format!("/v1/{}", self.what);
        for segment in [self.target.as_deref().map(encoded), self.action.clone()].into_iter().flatten() {
            path.push('/');
            path.push_str(&segment);
        }
        let mut and = '?';
        for (name, value) in &pairs {
            let value = match name.as_str() {
                // A local caller's pane does not exist on the remote host.
                "from" | "everywhere" => continue,
                "socket" => match Address::parse(value.as_ref())? {
                    Address::Elsewhere(_, socket) => encoded(socket),
                    Address::Here(_) => continue,
                },
                _ => encoded(value),
            };
            path.extend([&and.to_string(), name, "=", &value]);
            and = '&';
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(method: &Method, uri: &str, body: &str) -> Option<(String, Tier)> {
        let uri: Uri = uri.parse().unwrap();
        let route = Route::of(method, &uri, "box")?;
        Some((route.path_there(&uri).unwrap(), route.operation(body.as_bytes())?.tier()))
    }

    #[test]
    fn a_request_is_written_as_it_is_meant_over_there() {
        let found = |method, uri, body| there(&method, uri, body).unwrap();
        let get = |uri| found(Method::GET, uri, "").0;
        assert_eq!(
            get("/v1/panes/box%2F%253/capture?start=-5&socket=box%2Fdefault&from=%250"),
            "/v1/panes/%253/capture?start=%2D5&socket=default"
        );
        assert_eq!(get("/v1/panes?socket=box%2F%2Ftmp%2Fs&everywhere=true"), "/v1/panes?socket=%2Ftmp%2Fs");
        assert_eq!(
            get("/v1/waits/box%2Fw0-1?timeout_ms=5&socket=box%2Fdefault"),
            "/v1/waits/w0%2D1?timeout_ms=5&socket=default"
        );
        assert_eq!(get("/v1/sessions/boxer%2Fx?socket=box%2F"), "/v1/sessions/boxer%2Fx?socket=default");
        for here in ["/v1/recordings", "/v1/snapshots", "/v1/status", "/v1/panes/box%2F%251/alis", "/metrics"] {
            assert!(there(&Method::GET, here, "").is_none(), "{here}");
        }
    }

    #[test]
    fn the_tier_of_a_request_is_known_before_it_is_forwarded() {
        let tier = |method, uri, body| there(&method, uri, body).unwrap().1;
        assert_eq!(tier(Method::GET, "/v1/panes", ""), Tier::Read);
        for path in ["/v1/format?format=x", "/v1/panes/%250/format?format=x"] {
            assert_eq!(tier(Method::GET, path, ""), Tier::Input, "a format may run a program");
        }
        assert_eq!(there(&Method::PATCH, "/v1/panes/%250", "{\"respawn\":1}"), None, "it cannot be read");
        assert_eq!(tier(Method::POST, "/v1/waits", "{}"), Tier::Read);
        assert_eq!(tier(Method::DELETE, "/v1/waits/w0", ""), Tier::Read);
        assert_eq!(tier(Method::POST, "/v1/panes/%250/input", "{}"), Tier::Input);
        assert_eq!(tier(Method::POST, "/v1/panes/%250/run", "{}"), Tier::Input);
        assert_eq!(tier(Method::POST, "/v1/panes", "{}"), Tier::Create);
        assert_eq!(tier(Method::POST, "/v1/sessions", "{}"), Tier::Create);
        assert_eq!(tier(Method::PATCH, "/v1/panes/%250", "{\"respawn\":{}}"), Tier::Create);
        assert_eq!(tier(Method::PATCH, "/v1/panes/%250", "{\"respawn\":{\"kill\":true}}"), Tier::Kill);
        assert_eq!(tier(Method::DELETE, "/v1/windows/%401", ""), Tier::Kill);
    }

    /// Each route is either forwarded or local: a new one is in the table, or among these.
    #[test]
    fn each_route_of_a_server_is_in_the_table_or_answered_here() {
        // A WebSocket.
        const HERE: [&str; 1] = ["/v1/panes/{pane}/alis"];
        let document = &*crate::openapi::DOCUMENT;
        let mut wrong = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let word = path.split('/').nth(2).unwrap_or_default();
            for method in methods.as_object().unwrap().keys() {
                let method: Method = method.to_uppercase().parse().unwrap();
                let is_passed_on = Route::of(&method, &path.parse().unwrap(), "box").is_some();
                let is_of_a_server = ROUTES.iter().any(|(_, known, ..)| *known == word);
                if is_passed_on != (is_of_a_server && !HERE.contains(&path.as_str())) {
                    wrong.push(format!("{method} {path}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
