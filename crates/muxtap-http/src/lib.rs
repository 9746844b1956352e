//! HTTP: the routes, on the daemon's Unix socket and, behind a guard, on TCP ports. A route parses
//! a request and formats a response; it never decides.

#![cfg_attr(
    not(feature = "daemon"),
    allow(
        dead_code,
        unused_imports,
        reason = "without the daemon's interfaces, some of their shared code has no caller"
    )
)]

mod again;
#[cfg(feature = "daemon")]
mod approvals;
mod capability;
#[cfg(feature = "daemon")]
mod devices;
mod error;
mod guard;
mod hosts;
#[cfg(feature = "daemon")]
mod mcp;
mod measured;
mod openapi;
#[cfg_attr(
    all(feature = "daemon", not(test)),
    allow(dead_code, reason = "the daemon contains the document as text: only tests generate it")
)]
mod openapi_parts;
mod out_of_descriptors;
#[cfg(feature = "daemon")]
mod page;
mod parameters;
#[cfg(feature = "daemon")]
mod peer;
mod recordings;
#[cfg(feature = "daemon")]
mod replace;
mod routes;
mod server_request;
#[cfg(feature = "daemon")]
mod sessions;
#[cfg(feature = "daemon")]
mod snapshots;
#[cfg(feature = "daemon")]
mod status_events;
mod stream;
mod waits;
#[cfg(feature = "daemon")]
mod when;

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::{DefaultBodyLimit, FromRequestParts, State},
    http::{HeaderValue, header, request::Parts},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use muxtap_api::{ConfigAnswer, ServerQuery, wire};
use muxtap_base::files::ReadFile;
use muxtap_engine::{Caller, Engine, Principal, Server};
use muxtap_net::Peer;
#[cfg(feature = "daemon")]
use muxtap_rooms::Rooms;
use tokio::sync::watch;

#[doc(hidden)]
pub use axum::Router;
pub use guard::{Guard, with_guard};
#[cfg(feature = "daemon")]
#[doc(hidden)]
pub use mcp::StoredMcpSessions;
#[cfg(feature = "daemon")]
#[doc(hidden)]
pub use peer::MemberRoutes;
#[cfg(feature = "daemon")]
#[doc(hidden)]
pub use replace::{By, HeldRequests, Replacement, Replacing};
#[doc(hidden)]
pub use stream::{CLOSE_LIMIT, Streams};

/// The maximum number of bytes in a request's body: input of
/// [`muxtap_engine::limits::INPUT_BYTES`], escaped at worst.
const BODY_BYTES: usize = 6 * muxtap_engine::limits::INPUT_BYTES;

/// The state of every route. As an extractor, its engine acts for the request's caller.
#[doc(hidden)]
#[derive(Clone)]
pub struct App {
    pub(crate) engine: Engine,
    /// One pointer: every request has its own `App`.
    pub(crate) daemon: Arc<Daemon>,
    /// The login that authorized this request, if it can end.
    #[cfg(feature = "daemon")]
    login: Option<guard::Login>,
}

/// The process that the routes run in.
pub(crate) struct Daemon {
    pub(crate) about: DaemonInfo,
    /// True after a request to stop the daemon.
    pub(crate) stop: watch::Sender<bool>,
    /// The event streams.
    pub(crate) streams: Streams,
    /// Its requests, and those to replace it.
    #[cfg(feature = "daemon")]
    pub(crate) replacing: Replacing,
    /// The sessions of MCP over HTTP.
    #[cfg(feature = "daemon")]
    pub(crate) mcp_sessions: Arc<mcp::Sessions>,
}

/// The subsystems of a router without a daemon.
#[cfg(not(feature = "daemon"))]
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    pub(crate) capability: muxtap_capability::Capability,
    pub(crate) recordings: muxtap_record::Recordings,
}

/// Facts about the daemon that its routes report.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct DaemonInfo {
    /// The path of its Unix socket.
    pub socket: String,
    /// The URLs of its TCP ports.
    pub http: Vec<String>,
    /// The path of its log.
    pub log: Option<String>,
    /// Returns the problem with that log.
    pub problem: Option<fn() -> Option<String>>,
    /// The settings in force.
    pub config: ConfigAnswer,
    /// The configuration files that the daemon read at its start.
    pub files: Vec<ReadFile>,
    /// The daemon's subsystems beside its engine.
    pub rooms: Arc<Rooms>,
    /// The context of agents over HTTP, and the settings for all agents.
    #[cfg(feature = "daemon")]
    pub agents: muxtap_mcp::ClientContext,
    /// Pages in browsers.
    #[cfg(feature = "daemon")]
    pub page: muxtap_page::Pages,
}

impl App {
    /// Creates the state. Streams are written by the engine's runtime.
    pub fn new(engine: Engine, about: DaemonInfo) -> Self {
        let streams = Streams::new(engine.runtime().clone(), &engine);
        Self::with_streams(engine, about, streams)
    }

    /// Creates the state, with streams that another runtime writes.
    pub fn with_streams(engine: Engine, about: DaemonInfo, streams: Streams) -> Self {
        let stop = watch::Sender::new(false);
        Self {
            engine,
            daemon: Arc::new(Daemon {
                about,
                stop,
                streams,
                #[cfg(feature = "daemon")]
                replacing: Replacing::default(),
                #[cfg(feature = "daemon")]
                mcp_sessions: Arc::default(),
            }),
            #[cfg(feature = "daemon")]
            login: None,
        }
    }

    /// Returns the daemon's subsystems beside its engine.
    pub(crate) fn rooms(&self) -> &Arc<Rooms> {
        &self.daemon.about.rooms
    }

    /// Returns the event streams; the caller must await their end.
    pub fn streams(&self) -> &Streams {
        &self.daemon.streams
    }

    /// Resolves when everything that this request has opened must be cut: its login has ended, or
    /// the daemon cannot wait any longer.
    pub(crate) fn cut(&self) -> impl Future<Output = ()> + Send + 'static {
        let cut = self.daemon.streams.cut.clone();
        #[cfg(feature = "daemon")]
        let login = self.login.clone();
        async move {
            #[cfg(feature = "daemon")]
            if let Some(login) = login {
                tokio::select! {
                    () = cut.cancelled() => {}
                    () = login.ended() => {}
                }
                return;
            }
            cut.cancelled().await;
        }
    }

    /// Spawns a task of the engine's.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.engine.spawn(task);
    }

    /// Resolves after a request to stop the daemon.
    pub async fn stop_asked(&self) {
        // The sender lives as long as `self`.
        let _ = self.daemon.stop.subscribe().wait_for(|stop| *stop).await;
    }
}

impl FromRequestParts<Self> for App {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Self) -> Result<Self, Infallible> {
        let caller = match parts.extensions.get::<Peer>() {
            Some(Peer::Unix { uid, pid }) => {
                let who = pid.map_or_else(|| format!("uid {uid}"), |pid| format!("process {pid}"));
                Caller { face: "unix", who, principal: Principal::User(*uid) }
            }
            Some(Peer::Tcp { addr, .. }) => {
                Caller { face: "http", who: addr.ip().to_string(), principal: logged_in(&parts.extensions) }
            }
            #[cfg(feature = "daemon")]
            Some(Peer::Fleet) => {
                let engine = parts.extensions.get::<peer::Member>().map(|member| member.engine(&app.engine));
                // A link always has its member. Without one there is no tier: one that reads only has no
                // `kill`, and one with only `kill` does not read.
                let without_rights = || {
                    let engine = app.engine.with_caller(Principal::member(&"".into()));
                    engine.reading_only().only(muxtap_api::Tier::Kill)
                };
                let engine = engine.unwrap_or_else(without_rights);
                return Ok(Self { engine, daemon: app.daemon.clone(), login: None });
            }
            #[cfg(not(feature = "daemon"))]
            Some(Peer::Fleet) => Caller { principal: Principal::Guest, ..Caller::default() },
            // The router of an embedding program authorizes callers by its own rules.
            None => Caller { principal: Principal::Guest, ..Caller::default() },
        };
        let engine = app.engine.with_caller(caller);
        #[cfg(feature = "daemon")]
        let engine = match parts.extensions.get::<muxtap_page::PageSession>() {
            Some(page) if page.reads_only => engine.reading_only(),
            _ => engine,
        };
        Ok(Self {
            engine,
            daemon: app.daemon.clone(),
            #[cfg(feature = "daemon")]
            login: parts.extensions.get().cloned(),
        })
    }
}

/// Returns the principal of a caller over TCP, by its credential.
fn logged_in(extensions: &axum::http::Extensions) -> Principal {
    #[cfg(feature = "daemon")]
    if let Some(device) = extensions.get::<muxtap_devices::BoundDevice>() {
        return Principal::Device(device.device_id.as_str().into());
    }
    #[cfg(feature = "daemon")]
    if let Some(page) = extensions.get::<muxtap_page::PageSession>() {
        return Principal::Page(page.id().into());
    }
    let _ = extensions;
    Principal::Token
}

/// Builds the router for an engine: servers, sessions, windows, panes, waits, agents, events and
/// the WebSocket `/v1/stream`, as `docs/http.md` describes them; `/health`, and the counters of
/// `/metrics` if the process has a recorder for them. May be called outside of a runtime.
///
/// All callers of this router are one caller: they share its limits (such as the number of open
/// waits), and the audit log has one name for them.
///
/// The application decides which callers to authorize: a caller of these routes can type into every
/// terminal of the servers that the engine follows ([`Engine::server`]), and of those in the
/// directory of the user's tmux sockets. [`Options::allow`](muxtap_engine::Options::allow) limits
/// what callers may do.
///
/// ```no_run
/// # mod muxtap { pub use muxtap_engine::{Engine, Options}; pub use muxtap_http as http; }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = muxtap::Engine::start(muxtap::Options::default())?;
/// let app = axum::Router::new().nest("/tmux", muxtap::http::router(&engine));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:7000").await?;
/// axum::serve(listener, app).await?;
/// # Ok(())
/// # }
/// ```
pub fn router(engine: &Engine) -> Router {
    let app = App::new(engine.clone(), DaemonInfo::default());
    checked(engine_routes()).with_state(app)
}

/// Builds the daemon's router, with every route.
#[cfg(feature = "daemon")]
pub fn daemon_router(app: App) -> Router {
    let routes = engine_routes()
        .route("/v1/snapshots", get(snapshots::list).post(snapshots::save))
        .route("/v1/snapshots/{name}", get(snapshots::show).put(snapshots::import).delete(snapshots::remove))
        .route("/v1/snapshots/{name}/restore", post(snapshots::restore))
        .route("/v1/snapshots/{name}/diff", get(snapshots::diff))
        .route("/v1/layouts", get(snapshots::list_layouts).post(snapshots::save_layout))
        .route("/v1/layouts/{name}", axum::routing::delete(snapshots::remove_layout))
        .route("/v1/layouts/{name}/restore", post(snapshots::restore_layout))
        .route("/v1/groups", get(snapshots::list_groups))
        .route("/v1/groups/{name}", axum::routing::put(snapshots::set_group).delete(snapshots::remove_group))
        .route("/v1/groups/{name}/input", post(snapshots::group_input))
        .route("/v1/when", get(when::list).post(when::add))
        .route("/v1/when/{name}", axum::routing::delete(when::remove))
        .route("/v1/when-log", get(when::log))
        .route("/v1/hosts", post(hosts::add))
        .route("/v1/hosts/{name}", axum::routing::delete(hosts::forget))
        .route("/openapi.json", get(openapi::document))
        .route("/docs", get(openapi::page))
        .route("/v1/status", get(routes::status))
        .route("/v1/status/events", get(status_events::stream))
        .route("/v1/config", get(routes::config))
        .route("/v1/environment", get(routes::environment))
        .route("/v1/stop", post(routes::stop))
        .route("/v1/upgrade", post(replace::upgrade))
        .route("/v1/replace", get(replace::replace))
        .route("/v1/approvals", get(approvals::list))
        .route("/v1/approvals/{id}", post(approvals::answer))
        .route("/v1/approvals/events", get(approvals::events))
        .route("/v1/mcp", get(mcp::stdio))
        .route("/v1/peer", get(peer::open))
        .route("/v1/tools/{name}", post(peer::tool))
        .nest_service(
            "/mcp",
            mcp::service(
                &app.engine,
                app.rooms().clone(),
                app.daemon.about.agents.clone(),
                app.daemon.mcp_sessions.clone(),
            ),
        );
    let routes = routes
        .merge(device_routes())
        .merge(session_routes())
        .merge(page_routes())
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method);
    checked(routes)
        .layer(middleware::from_fn_with_state(app.clone(), replace::gate))
        .layer(middleware::from_fn(out_of_descriptors::refuse))
        .layer(middleware::map_response(version))
        .layer(middleware::map_response(harden))
        .with_state(app)
}

#[cfg(feature = "daemon")]
fn device_routes() -> Router<App> {
    Router::new()
        .route("/v1/devices", get(devices::list))
        .route("/v1/devices/ws", get(devices::socket::open))
        .route("/v1/devices/{id}", get(devices::one))
        .route("/v1/devices/{id}/workspace", get(devices::workspace).put(devices::publish))
        .route("/v1/devices/{id}/rpc", post(devices::rpc))
        .route("/api/device-sessions", post(devices::login))
        .route("/api/device-sessions/refresh", post(devices::refresh))
        .route("/api/device-sessions/current", axum::routing::delete(devices::logout))
}

#[cfg(feature = "daemon")]
fn page_routes() -> Router<App> {
    Router::new()
        .route("/", get(page::files::index))
        .route("/page/{file}", get(page::files::file))
        .route("/v1/page/ws", get(page::socket::open))
        .route("/v1/page/files", get(page::read_file).put(page::save_file))
        .route("/v1/page/codes", post(page::code))
        .route("/v1/page/login", post(page::login))
        .route("/v1/page/logout", post(page::logout))
}

#[cfg(feature = "daemon")]
fn session_routes() -> Router<App> {
    Router::new()
        .route("/v1/agent-sessions", get(sessions::list).post(sessions::create))
        .route("/v1/agent-sessions/earlier", post(sessions::earlier))
        .route("/v1/agent-sessions/{id}", get(sessions::one).patch(sessions::set).delete(sessions::kill))
        .route("/v1/agent-sessions/{id}/prompts", post(sessions::prompt))
        .route("/v1/agent-sessions/{id}/interrupt", post(sessions::interrupt))
        .route("/v1/agent-sessions/{id}/events", get(sessions::events))
        .route("/v1/agent-sessions/{id}/stream", get(sessions::stream))
        .route("/v1/agent-sessions/{id}/wait", post(sessions::wait))
        .route("/v1/agent-sessions/{id}/questions", get(sessions::questions))
        .route("/v1/agent-sessions/{id}/questions/{question}", post(sessions::answer))
}

/// Adds the checks of every request, in the daemon and in an embedding program.
fn checked(routes: Router<App>) -> Router<App> {
    routes
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn(parameters::check))
        .layer(middleware::from_fn(measured::measure))
}

fn engine_routes() -> Router<App> {
    Router::new()
        .route("/health", get(routes::health))
        .route("/metrics", get(routes::metrics))
        .route("/v1/servers", get(routes::list_servers))
        .route("/v1/hosts", get(hosts::list))
        .route("/v1/sessions", get(routes::list_sessions).post(routes::new_session))
        .route("/v1/sessions/{id}", get(routes::get_session).patch(routes::patch_session).delete(routes::kill_session))
        .route("/v1/windows", get(routes::list_windows).post(routes::new_window))
        .route("/v1/windows/{id}", get(routes::get_window).patch(routes::patch_window).delete(routes::kill_window))
        .route("/v1/panes", get(routes::list_panes).post(routes::split))
        .route("/v1/panes/{id}", get(routes::get_pane).patch(routes::patch_pane).delete(routes::kill_pane))
        .route("/v1/format", get(routes::format_list))
        .route("/v1/panes/{pane}/format", get(routes::format))
        .route("/v1/panes/{pane}/capture", get(routes::capture))
        .route("/v1/panes/{pane}/output", get(routes::output))
        .route("/v1/panes/{pane}/commands", get(routes::commands))
        .route("/v1/panes/{pane}/input", post(routes::input))
        .route("/v1/panes/{pane}/run", post(routes::run))
        .route("/v1/panes/{pane}/agent", get(routes::explain_agent).post(routes::report_agent))
        .route("/v1/waits", get(routes::list_waits).post(routes::wait))
        .route("/v1/waits/{id}", get(routes::wait_result).delete(routes::cancel_wait))
        .route("/v1/capability", post(capability::run))
        .route("/v1/agents", get(routes::agents))
        .route("/v1/recordings", get(recordings::list).post(recordings::start))
        .route("/v1/recordings/{id}", get(recordings::one).delete(recordings::stop))
        .route("/v1/panes/{pane}/alis", get(recordings::alis))
        .route("/v1/events", get(stream::sse::stream))
        .route("/v1/stream", get(stream::ws::stream))
}

/// Adds the header that names muxtap's version.
async fn version(State(()): State<()>, mut response: Response) -> Response {
    response.headers_mut().insert(wire::VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

/// Adds the headers that keep a browser from misinterpreting a response, or from storing panes'
/// output, and a proxy from collecting events.
async fn harden(mut response: Response) -> Response {
    let is_stream = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_stream || !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if is_stream {
        // A proxy in front (nginx) would collect events until its buffer is full.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    }
    response
}

/// Returns the tmux server that a request selects.
fn server(app: &App, query: &ServerQuery) -> muxtap_api::Result<Server> {
    Ok(seen(app.engine.server_named(query.socket.as_deref())?, query.from))
}

/// Returns a server as seen from the caller's own pane.
fn seen(server: Server, from: Option<muxtap_core::protocol::ids::PaneId>) -> Server {
    match from {
        Some(pane) => server.seen_from(pane),
        None => server,
    }
}

/// Builds a text response with a content type.
fn text(kind: &'static str, body: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, kind)], body.into()).into_response()
}
