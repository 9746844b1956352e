//! The two transports of MCP: `/mcp` (streamable HTTP), and the connection to which `muxtap mcp`
//! relays its stdio.

mod sessions;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse as _, Response},
};
use hyper_util::rt::TokioIo;
use muxtap_api::{Error, ErrorCode, McpHello, wire::MCP_PROTOCOL};
use muxtap_engine::{Caller, Engine, Principal, limits::WAIT_LONGEST};
use muxtap_mcp::{ClientContext, Mcp};
use muxtap_net::Peer;
use muxtap_rooms::Rooms;
use rmcp::{
    ServiceExt as _,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufStream};

use self::sessions::Kept;
pub(super) use self::sessions::Sessions;
pub use self::sessions::StoredMcpSessions;
use super::{App, error::Result};

/// The number of bytes in a request to `/mcp`: as a JSON value it takes up to 70 times as much
/// memory.
const REQUEST_BYTES: usize = 1 << 20;
/// How long a client may take to send its first line.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of bytes in the first line: it contains the caller's environment.
const HELLO_BYTES: u64 = 4 << 20;

/// Creates the streamable HTTP service. Its sessions end with the engine at the latest.
pub(super) fn service(engine: &Engine, rooms: Arc<Rooms>, about: ClientContext, sessions: Arc<Sessions>) -> Router {
    let mut config = StreamableHttpServerConfig::default();
    // The guard has checked both.
    config.allowed_hosts = Vec::new();
    config.allowed_origins = Vec::new();
    config.max_request_body_bytes = REQUEST_BYTES;
    config.cancellation_token = engine.end();
    let engine = engine.clone();
    let stop = engine.end();
    config.session_store = Some(Arc::new(Kept(sessions.clone())));
    let server: Option<Arc<Path>> = about.server.as_deref().map(Arc::from);
    let make = move || {
        let principal = sessions::principal().unwrap_or_else(|| Principal::agent(about.server.as_deref()));
        let caller = Caller { face: "mcp", who: "http".into(), principal };
        Ok(Mcp::new(engine.with_caller(caller), rooms.clone(), about.clone(), stop.clone()))
    };
    Router::new()
        .fallback_service(StreamableHttpService::new(make, sessions.clone(), config))
        .layer(middleware::from_fn_with_state((sessions, server), sessions::count))
}

/// Switches this connection to MCP.
///
/// For `muxtap mcp`, on the Unix socket: a line that describes the caller, then the protocol, line
/// by line, in both directions.
#[utoipa::path(
    get, path = "/v1/mcp", operation_id = "open_mcp", tag = "mcp",
    responses(
        (status = 101, description = "The connection now carries MCP"),
        (status = 400, description = "The header `Upgrade: muxtap-mcp-stdio` is missing", body = Error),
        (status = 401, description = "Not available on a TCP port; use `/mcp` there", body = Error)
    )
)]
pub async fn stdio(Extension(peer): Extension<Peer>, app: App, mut request: Request) -> Result<Response> {
    let Peer::Unix { pid, .. } = peer else {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            "this route is for `muxtap mcp` on the Unix socket; use /mcp over TCP",
        )
        .into());
    };
    if request.headers().get(header::UPGRADE).is_none_or(|asked| asked != MCP_PROTOCOL) {
        let message = format!("expected the header `Upgrade: {MCP_PROTOCOL}`; `muxtap mcp` sends it");
        return Err(Error::invalid(message).into());
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let engine = app.engine.clone();
    // Determined now: the client's parent processes may have exited when it asks a question.
    let process = app.engine.lineage(pid).await;
    let rooms = app.rooms().clone();
    let common = ClientContext { process, ..app.daemon.about.agents.clone() };
    app.engine.spawn(async move {
        let served = async {
            let started = async {
                let mut connection = BufStream::new(TokioIo::new(upgrade.await?));
                let hello = tokio::time::timeout(HELLO_LIMIT, read_hello(&mut connection)).await??;
                Ok::<_, BoxError>((connection, hello))
            };
            let stop = engine.end();
            let (connection, hello) = tokio::select! {
                started = started => started?,
                () = stop.cancelled() => return Ok(()),
            };
            let (read, write) = tokio::io::split(connection);
            Box::pin(serve_client(&engine, (rooms, common), hello, read, write)).await
        };
        if let Err(error) = served.await {
            tracing::debug!("the connection of an MCP client ended: {error}");
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(MCP_PROTOCOL)),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connection = BufStream<TokioIo<hyper::upgrade::Upgraded>>;

async fn read_hello(connection: &mut Connection) -> std::result::Result<McpHello, BoxError> {
    let mut line = String::new();
    connection.take(HELLO_BYTES).read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}

async fn serve_client(
    engine: &Engine,
    (rooms, common): (Arc<Rooms>, ClientContext),
    hello: McpHello,
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
) -> std::result::Result<(), BoxError> {
    // The user selected this server in the agent's configuration; the agent selects the others.
    let principal = Principal::agent(Some(Path::new(&hello.server)));
    let caller = Caller { face: "mcp", principal, ..engine.caller().clone() };
    let about = ClientContext {
        server: Some(PathBuf::from(&hello.server)),
        pane: hello.pane.map(|(server, pane)| (PathBuf::from(server), pane)),
        cwd: hello.cwd,
        env: hello.env,
        sockets: hello.sockets.map(PathBuf::from),
        capability_socket: hello.server_is_named.then(|| hello.server.clone()),
        tools: hello.tools,
        hold: hello.hold_ms.map(Duration::from_millis).map(|hold| hold.min(WAIT_LONGEST)).or(common.hold),
        ..common
    };
    let stop = engine.end();
    let mcp = Mcp::new(engine.with_caller(caller), rooms, about, stop.clone());
    let started = mcp.serve((read, write));
    let running = tokio::select! {
        started = started => started?,
        () = stop.cancelled() => return Ok(()),
    };
    let end = running.cancellation_token();
    let mut waiting = std::pin::pin!(running.waiting());
    tokio::select! {
        ended = &mut waiting => drop(ended?),
        () = stop.cancelled() => {
            end.cancel();
            // Pending requests get their responses before the client's process exits.
            drop(tokio::time::timeout(super::CLOSE_LIMIT, waiting).await??);
        }
    }
    Ok(())
}
