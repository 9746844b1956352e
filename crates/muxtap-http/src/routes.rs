//! The routes' handlers, one function each.

use axum::{Extension, Json, response::Response};
use muxtap_base::{descriptors, files::ReadFile, metrics as counted};
use muxtap_engine::Server;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    App,
    again::Again,
    error::{Body, Params, Result, Target},
    hosts::everywhere,
    openapi_parts::{Failures, PathPane, PathTarget, PathWait},
    server, text,
};

use muxtap_api::{
    AgentList, CaptureAnswer, CaptureRequest, ConfigAnswer, ConfigFile, CreatedAnswer, DoneAnswer, EnvironmentAnswer,
    EverywhereQuery, FormatAnswer, FormatListQuery, FormatQuery, InputAnswer, InputRequest, ListQuery,
    NewSessionRequest, NewWindowRequest, PaneList, PatchRequest, ReadAnswer, ReadRequest, RunAnswer, RunRequest,
    ServerList, ServerQuery, SessionInfo, SessionList, SplitRequest, StatusAnswer, Tier, WaitAnswer, WaitList,
    WaitRequest, WindowList,
};
use muxtap_net::{OutOfDescriptors, Peer};

type Answer<T> = Result<Json<T>>;

/// The timeout of a request for a wait's result.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitResultQuery {
    /// How long to wait for the wait's end (default 0; at most 300,000).
    timeout_ms: Option<u64>,
}

/// The response of a request that has no other result.
const DONE: Json<DoneAnswer> = Json(DoneAnswer { ok: true });

/// Returns the tmux server and the pane that a path names.
async fn pane_at(app: &App, at: &ServerQuery, target: String) -> Result<(Server, String)> {
    let server = server(app, at)?;
    let target = server.path_target(target).await?;
    Ok((server, target))
}

/// Reports that the daemon is alive.
#[utoipa::path(
    get, path = "/health", tag = "daemon",
    responses((status = 200, description = "Done", body = DoneAnswer))
)]
pub async fn health() -> Json<DoneAnswer> {
    Json(DoneAnswer { ok: true })
}

/// Returns the metrics in Prometheus' text format.
#[utoipa::path(
    get, path = "/metrics", tag = "daemon",
    responses((status = 200, description = "The metrics", body = String, content_type = "text/plain"))
)]
pub async fn metrics() -> Response {
    text("text/plain; version=0.0.4", counted::render())
}

/// Returns the daemon's status.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "get_status", tag = "daemon",
    responses((status = 200, description = "The answer", body = StatusAnswer))
)]
pub async fn status(out_of_descriptors: Option<Extension<OutOfDescriptors>>, app: App) -> Json<StatusAnswer> {
    let out_of_descriptors = out_of_descriptors.map(|_| descriptors::error().message);
    Json(status_now(&app, out_of_descriptors))
}

/// Returns the daemon's status, with its problems. `more`: a further problem.
pub(super) fn status_now(app: &App, more: Option<String>) -> StatusAnswer {
    StatusAnswer {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        uptime_s: app.engine.uptime_s(),
        socket: app.daemon.about.socket.clone(),
        http: app.daemon.about.http.clone(),
        log: app.daemon.about.log.clone(),
        servers: app.engine.servers(),
        waits: app.engine.open_waits(),
        warnings: more.into_iter().chain(app.daemon.about.problem.and_then(|problem| problem())).collect(),
    }
}

/// Stops the daemon.
#[utoipa::path(
    post, path = "/v1/stop", operation_id = "stop_daemon", tag = "daemon",
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn stop(Extension(peer): Extension<Peer>, app: App) -> Answer<DoneAnswer> {
    // A caller on the socket is the user, who can end any process of their own.
    if matches!(peer, Peer::Tcp { .. }) {
        app.engine.authorize(Tier::Kill)?;
    }
    app.engine.record("stop", "ok");
    app.daemon.stop.send_replace(true);
    Ok(Json(DoneAnswer { ok: true }))
}

/// Returns the daemon's settings, and the source of each.
#[utoipa::path(
    get, path = "/v1/config", operation_id = "get_config", tag = "daemon",
    responses((status = 200, description = "The answer", body = ConfigAnswer))
)]
pub async fn config(app: App) -> Json<ConfigAnswer> {
    Json(app.daemon.about.config.clone())
}

/// Returns the environment as the daemon sees it.
///
/// This is its PATH, its tmux program, its files and the tmux servers.
#[utoipa::path(
    get, path = "/v1/environment", operation_id = "get_environment", tag = "daemon", params(ServerQuery),
    responses((status = 200, description = "The answer", body = EnvironmentAnswer), Failures)
)]
pub async fn environment(Params(at): Params<ServerQuery>, app: App) -> Answer<EnvironmentAnswer> {
    app.engine.authorize(Tier::Read)?;
    let mut answer = app.engine.environment(at.socket.as_deref()).await?;
    // On a file system that hangs, only this request blocks.
    let files = app.daemon.about.files.clone();
    let looked = tokio::task::spawn_blocking(move || files.iter().map(config_file).collect()).await;
    answer.files = looked.map_err(|error| muxtap_api::Error::internal(format!("configuration files: {error}")))?;
    Ok(Json(answer))
}

/// Returns the current state of a file that the daemon read at its start.
fn config_file(file: &ReadFile) -> ConfigFile {
    ConfigFile { path: file.path().display().to_string(), read: file.was_there(), changed: file.has_changed() }
}

/// Lists the known tmux servers.
#[utoipa::path(
    get, path = "/v1/servers", tag = "servers",
    responses((status = 200, description = "The answer", body = ServerList), Failures)
)]
pub async fn list_servers(app: App) -> Answer<ServerList> {
    app.engine.authorize(Tier::Read)?;
    Ok(Json(ServerList { servers: app.engine.servers() }))
}

/// Lists sessions.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions",
    params(ServerQuery, ListQuery, EverywhereQuery),
    responses((status = 200, description = "The answer", body = SessionList), Failures)
)]
pub async fn list_sessions(
    app: App,
    Params(at): Params<ServerQuery>,
    Params(list): Params<ListQuery>,
    Params(all): Params<EverywhereQuery>,
) -> Answer<SessionList> {
    let targets = &list.items();
    let within = |server: Server| async move { server.sessions_within(targets).await };
    let (sessions, unreachable) = everywhere(&app, &at, all, ("sessions", targets), within).await?;
    Ok(Json(SessionList { sessions, unreachable }))
}

/// Returns one session.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "The answer", body = SessionInfo), Failures)
)]
pub async fn get_session(app: App, Target(target): Target, Params(at): Params<ServerQuery>) -> Answer<SessionInfo> {
    Ok(Json(server(&app, &at)?.session_info(&target).await?))
}

/// Creates a session.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions",
    params(ServerQuery),
    request_body = NewSessionRequest,
    responses((status = 200, description = "The answer", body = CreatedAnswer), Failures)
)]
pub async fn new_session(
    app: App,
    Params(at): Params<ServerQuery>,
    Body(request): Body<NewSessionRequest>,
) -> Answer<CreatedAnswer> {
    Ok(Json(server(&app, &at)?.create_session(&request).await?))
}

/// Renames a session.
#[utoipa::path(
    patch, path = "/v1/sessions/{id}", tag = "sessions",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_session(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Body(patch): Body<PatchRequest>,
) -> Answer<DoneAnswer> {
    server(&app, &at)?.patch_session(&target, &patch).await?;
    Ok(DONE)
}

/// Ends a session.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn kill_session(app: App, Target(target): Target, Params(at): Params<ServerQuery>) -> Answer<DoneAnswer> {
    server(&app, &at)?.kill_session(&target).await?;
    Ok(DONE)
}

/// Lists windows.
#[utoipa::path(
    get, path = "/v1/windows", tag = "windows",
    params(ServerQuery, ListQuery, EverywhereQuery),
    responses((status = 200, description = "The answer", body = WindowList), Failures)
)]
pub async fn list_windows(
    app: App,
    Params(at): Params<ServerQuery>,
    Params(list): Params<ListQuery>,
    Params(all): Params<EverywhereQuery>,
) -> Answer<WindowList> {
    let targets = &list.items();
    let within = |server: Server| async move { server.windows_within(targets).await };
    let (windows, unreachable) = everywhere(&app, &at, all, ("windows", targets), within).await?;
    Ok(Json(WindowList { windows, unreachable }))
}

/// Creates a window.
#[utoipa::path(
    post, path = "/v1/windows", tag = "windows",
    params(ServerQuery),
    request_body = NewWindowRequest,
    responses((status = 200, description = "The answer", body = CreatedAnswer), Failures)
)]
pub async fn new_window(
    app: App,
    Params(at): Params<ServerQuery>,
    Body(request): Body<NewWindowRequest>,
) -> Answer<CreatedAnswer> {
    Ok(Json(server(&app, &at)?.create_window(&request).await?))
}

/// Renames, resizes, arranges or selects a window.
#[utoipa::path(
    patch, path = "/v1/windows/{id}", tag = "windows",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_window(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Body(patch): Body<PatchRequest>,
) -> Answer<DoneAnswer> {
    server(&app, &at)?.patch_window(&target, &patch).await?;
    Ok(DONE)
}

/// Ends a window.
#[utoipa::path(
    delete, path = "/v1/windows/{id}", tag = "windows",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn kill_window(app: App, Target(target): Target, Params(at): Params<ServerQuery>) -> Answer<DoneAnswer> {
    server(&app, &at)?.kill_window(&target).await?;
    Ok(DONE)
}

/// Expands a format for each session, window or pane.
#[utoipa::path(
    get, path = "/v1/format", tag = "panes",
    params(ServerQuery, FormatListQuery),
    responses((status = 200, description = "The answer", body = FormatAnswer), Failures)
)]
pub async fn format_list(
    app: App,
    Params(at): Params<ServerQuery>,
    Params(query): Params<FormatListQuery>,
) -> Answer<FormatAnswer> {
    Ok(Json(FormatAnswer { lines: server(&app, &at)?.format_list(&query).await? }))
}

/// Expands a format for a pane.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/format", operation_id = "format_pane", tag = "panes",
    params(PathPane, ServerQuery, FormatQuery),
    responses((status = 200, description = "The answer", body = FormatAnswer), Failures)
)]
pub async fn format(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Params(query): Params<FormatQuery>,
) -> Answer<FormatAnswer> {
    let (server, target) = pane_at(&app, &at, target).await?;
    Ok(Json(FormatAnswer { lines: server.format(&target, &query.format).await? }))
}

/// Lists panes.
#[utoipa::path(
    get, path = "/v1/panes", tag = "panes",
    params(ServerQuery, ListQuery, EverywhereQuery),
    responses((status = 200, description = "The answer", body = PaneList), Failures)
)]
pub async fn list_panes(
    app: App,
    Params(at): Params<ServerQuery>,
    Params(list): Params<ListQuery>,
    Params(all): Params<EverywhereQuery>,
) -> Answer<PaneList> {
    let targets = &list.items();
    let within = |server: Server| async move { server.panes_within(targets).await };
    let (panes, unreachable) = everywhere(&app, &at, all, ("panes", targets), within).await?;
    Ok(Json(PaneList { panes, unreachable }))
}

/// Splits a pane.
#[utoipa::path(
    post, path = "/v1/panes", operation_id = "split_pane", tag = "panes",
    params(ServerQuery),
    request_body = SplitRequest,
    responses((status = 200, description = "The answer", body = CreatedAnswer), Failures)
)]
pub async fn split(
    app: App,
    Params(at): Params<ServerQuery>,
    Body(request): Body<SplitRequest>,
) -> Answer<CreatedAnswer> {
    Ok(Json(server(&app, &at)?.create_split(&request).await?))
}

/// Retitles, resizes, selects, zooms or respawns a pane, or leaves its mode.
#[utoipa::path(
    patch, path = "/v1/panes/{id}", tag = "panes",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_pane(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Body(patch): Body<PatchRequest>,
) -> Answer<DoneAnswer> {
    let (server, target) = pane_at(&app, &at, target).await?;
    server.patch_pane(&target, &patch).await?;
    Ok(DONE)
}

/// Ends a pane.
#[utoipa::path(
    delete, path = "/v1/panes/{id}", tag = "panes",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn kill_pane(app: App, Target(target): Target, Params(at): Params<ServerQuery>) -> Answer<DoneAnswer> {
    let (server, target) = pane_at(&app, &at, target).await?;
    server.kill_pane(&target).await?;
    Ok(DONE)
}

/// Captures a pane: the output of `tmux capture-pane -p`.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/capture", operation_id = "capture_pane", tag = "panes",
    params(PathPane, ServerQuery, CaptureRequest),
    responses((status = 200, description = "The answer", body = CaptureAnswer), Failures)
)]
pub async fn capture(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Params(request): Params<CaptureRequest>,
) -> Answer<CaptureAnswer> {
    let (server, target) = pane_at(&app, &at, target).await?;
    Ok(Json(server.capture(&target, &request).await?))
}

/// Reads a pane's output since a point.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/output", operation_id = "read_pane", tag = "panes",
    params(PathPane, ServerQuery, ReadRequest),
    responses((status = 200, description = "The answer", body = ReadAnswer), Failures)
)]
pub async fn output(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Params(request): Params<ReadRequest>,
) -> Answer<ReadAnswer> {
    let (server, target) = pane_at(&app, &at, target).await?;
    Ok(Json(server.read(&target, &request).await?))
}

/// Types into a pane.
#[utoipa::path(
    post, path = "/v1/panes/{pane}/input", operation_id = "send_input", tag = "panes",
    params(PathPane, ServerQuery),
    request_body = InputRequest,
    responses((status = 200, description = "The answer", body = InputAnswer), Failures)
)]
pub async fn input(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Body(request): Body<InputRequest>,
) -> Answer<InputAnswer> {
    let (server, target) = pane_at(&app, &at, target).await?;
    Ok(Json(server.input(&target, &request).await?))
}

/// Runs a command in a pane's idle shell.
#[utoipa::path(
    post, path = "/v1/panes/{pane}/run", operation_id = "run_command", tag = "panes",
    params(PathPane, ServerQuery),
    request_body = RunRequest,
    responses((status = 200, description = "The answer", body = RunAnswer), Failures)
)]
pub async fn run(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Body(request): Body<RunRequest>,
) -> Answer<RunAnswer> {
    let (server, target) = pane_at(&app, &at, target).await?;
    Ok(Json(server.run(&target, &request).await?))
}

/// Lists the open waits.
#[utoipa::path(
    get, path = "/v1/waits", tag = "waits",
    responses((status = 200, description = "The answer", body = WaitList), Failures)
)]
pub async fn list_waits(app: App) -> Answer<WaitList> {
    app.engine.authorize(Tier::Read)?;
    Ok(Json(WaitList { waits: app.engine.waits() }))
}

/// Waits for conditions on panes.
#[utoipa::path(
    post, path = "/v1/waits", operation_id = "begin_wait", tag = "waits",
    params(
        ServerQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "16 to 64 random letters, digits, `-` and `_`. A \
        request with a used key returns the same wait and begins no other. Its id is `w-KEY`"),
        ("Prefer" = Option<String>, Header, description = "`wait=SECONDS`: a wait with `detach` responds when it has \
        ended, or after this time")
    ),
    request_body = WaitRequest,
    responses((status = 200, description = "The answer", body = WaitAnswer), Failures)
)]
pub async fn wait(
    app: App,
    again: Again,
    Params(at): Params<ServerQuery>,
    Body(request): Body<WaitRequest>,
) -> Answer<WaitAnswer> {
    Ok(Json(server(&app, &at)?.await_again(&request, again.id()?, again.hold).await?))
}

/// Returns a wait's state or result.
#[utoipa::path(
    get, path = "/v1/waits/{id}", operation_id = "get_wait", tag = "waits",
    params(PathWait, WaitResultQuery),
    responses((status = 200, description = "The answer", body = WaitAnswer), Failures)
)]
pub async fn wait_result(app: App, Target(id): Target, Params(look): Params<WaitResultQuery>) -> Answer<WaitAnswer> {
    Ok(Json(app.engine.wait_result(&id, look.timeout_ms).await?))
}

/// Cancels a wait.
#[utoipa::path(
    delete, path = "/v1/waits/{id}", tag = "waits",
    params(PathWait),
    responses((status = 200, description = "The answer", body = WaitAnswer), Failures)
)]
pub async fn cancel_wait(app: App, Target(id): Target) -> Answer<WaitAnswer> {
    Ok(Json(app.engine.cancel_wait(&id).await?))
}

/// Lists the coding agents in panes.
#[utoipa::path(
    get, path = "/v1/agents", operation_id = "list_agents", tag = "agents",
    params(ServerQuery, ListQuery),
    responses((status = 200, description = "The answer", body = AgentList), Failures)
)]
pub async fn agents(app: App, Params(at): Params<ServerQuery>, Params(list): Params<ListQuery>) -> Answer<AgentList> {
    Ok(Json(server(&app, &at)?.agents_within(&list.items()).await?))
}
