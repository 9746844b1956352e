//! The routes' handlers, one function each.

use axum::{Extension, Json, response::Response};
use muxtap_base::{descriptors, files::ReadFile, metrics as counted};
use muxtap_engine::Server;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{
    App,
    again::Again,
    asked::Asked,
    error::{Body, Params, Result},
    hosts::everywhere,
    openapi_parts::{Failures, PathPane, PathTarget, PathWait},
    text,
};

use muxtap_api::{
    AgentList, CaptureAnswer, CaptureRequest, ConfigAnswer, ConfigFile, CreatedAnswer, DoneAnswer, EnvironmentAnswer,
    Fields, FormatAnswer, FormatListQuery, FormatQuery, InputAnswer, InputRequest, ListAllQuery, ListQuery,
    NewSessionRequest, NewWindowRequest, Operation, PaneList, PatchRequest, ReadAnswer, ReadRequest, RunAnswer,
    RunRequest, ServerList, ServerQuery, SessionInfo, SessionList, SplitRequest, StatusAnswer, Tier, WaitAnswer,
    WaitList, WaitRequest, WindowList,
};
use muxtap_net::{OutOfDescriptors, Peer};

type Answer<T> = Result<Json<T>>;

/// The timeout of a request for a wait's result.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitResultQuery {
    /// How long to wait for the wait's end (default 0; at most 300,000).
    timeout_ms: Option<u64>,
}

impl Fields for WaitResultQuery {}

/// The response of a request that has no other result.
const DONE: Json<DoneAnswer> = Json(DoneAnswer { ok: true });

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
    params(ServerQuery, ListAllQuery),
    responses((status = 200, description = "The answer", body = SessionList), Failures)
)]
pub async fn list_sessions(asked: Asked<Params<ListAllQuery>>) -> Response {
    asked
        .answer(Operation::Look, |asked| async move {
            let targets = &asked.own.0.items();
            let within = |server: Server| async move { server.sessions_within(targets).await };
            let (sessions, unreachable) = everywhere(&asked, ("sessions", targets), within).await?;
            Ok(Json(SessionList { sessions, unreachable }))
        })
        .await
}

/// Returns one session.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "The answer", body = SessionInfo), Failures)
)]
pub async fn get_session(asked: Asked) -> Response {
    asked
        .answer(Operation::Look, |asked| async move { Ok(Json(asked.server()?.session_info(&asked.target).await?)) })
        .await
}

/// Creates a session.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions",
    params(ServerQuery),
    request_body = NewSessionRequest,
    responses((status = 200, description = "The answer", body = CreatedAnswer), Failures)
)]
pub async fn new_session(asked: Asked<Body<NewSessionRequest>>) -> Response {
    asked
        .answer(
            Operation::NewSession,
            |asked| async move { Ok(Json(asked.server()?.create_session(&asked.own.0).await?)) },
        )
        .await
}

/// Renames a session.
#[utoipa::path(
    patch, path = "/v1/sessions/{id}", tag = "sessions",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_session(asked: Asked<Body<PatchRequest>>) -> Response {
    asked
        .answer(Operation::ChangeSession, |asked| async move {
            asked.server()?.patch_session(&asked.target, &asked.own.0).await?;
            Ok(DONE)
        })
        .await
}

/// Ends a session.
#[utoipa::path(
    delete, path = "/v1/sessions/{id}", tag = "sessions",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn kill_session(asked: Asked) -> Response {
    asked
        .answer(Operation::KillSession, |asked| async move {
            asked.server()?.kill_session(&asked.target).await?;
            Ok(DONE)
        })
        .await
}

/// Lists windows.
#[utoipa::path(
    get, path = "/v1/windows", tag = "windows",
    params(ServerQuery, ListAllQuery),
    responses((status = 200, description = "The answer", body = WindowList), Failures)
)]
pub async fn list_windows(asked: Asked<Params<ListAllQuery>>) -> Response {
    asked
        .answer(Operation::Look, |asked| async move {
            let targets = &asked.own.0.items();
            let within = |server: Server| async move { server.windows_within(targets).await };
            let (windows, unreachable) = everywhere(&asked, ("windows", targets), within).await?;
            Ok(Json(WindowList { windows, unreachable }))
        })
        .await
}

/// Creates a window.
#[utoipa::path(
    post, path = "/v1/windows", tag = "windows",
    params(ServerQuery),
    request_body = NewWindowRequest,
    responses((status = 200, description = "The answer", body = CreatedAnswer), Failures)
)]
pub async fn new_window(asked: Asked<Body<NewWindowRequest>>) -> Response {
    asked
        .answer(
            Operation::NewWindow,
            |asked| async move { Ok(Json(asked.server()?.create_window(&asked.own.0).await?)) },
        )
        .await
}

/// Renames, resizes, arranges or selects a window.
#[utoipa::path(
    patch, path = "/v1/windows/{id}", tag = "windows",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_window(asked: Asked<Body<PatchRequest>>) -> Response {
    asked
        .answer(Operation::ChangeWindow, |asked| async move {
            asked.server()?.patch_window(&asked.target, &asked.own.0).await?;
            Ok(DONE)
        })
        .await
}

/// Ends a window.
#[utoipa::path(
    delete, path = "/v1/windows/{id}", tag = "windows",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn kill_window(asked: Asked) -> Response {
    asked
        .answer(Operation::KillWindow, |asked| async move {
            asked.server()?.kill_window(&asked.target).await?;
            Ok(DONE)
        })
        .await
}

/// Expands a format for each session, window or pane.
#[utoipa::path(
    get, path = "/v1/format", tag = "panes",
    params(ServerQuery, FormatListQuery),
    responses((status = 200, description = "The answer", body = FormatAnswer), Failures)
)]
pub async fn format_list(asked: Asked<Params<FormatListQuery>>) -> Response {
    asked
        .answer(Operation::Format, |asked| async move {
            Ok(Json(FormatAnswer { lines: asked.server()?.format_list(&asked.own.0).await? }))
        })
        .await
}

/// Expands a format for a pane.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/format", operation_id = "format_pane", tag = "panes",
    params(PathPane, ServerQuery, FormatQuery),
    responses((status = 200, description = "The answer", body = FormatAnswer), Failures)
)]
pub async fn format(asked: Asked<Params<FormatQuery>>) -> Response {
    asked
        .answer(Operation::Format, |asked| async move {
            let (server, target) = asked.pane().await?;
            Ok(Json(FormatAnswer { lines: server.format(&target, &asked.own.0.format).await? }))
        })
        .await
}

/// Lists panes.
#[utoipa::path(
    get, path = "/v1/panes", tag = "panes",
    params(ServerQuery, ListAllQuery),
    responses((status = 200, description = "The answer", body = PaneList), Failures)
)]
pub async fn list_panes(asked: Asked<Params<ListAllQuery>>) -> Response {
    asked
        .answer(Operation::Look, |asked| async move {
            let targets = &asked.own.0.items();
            let within = |server: Server| async move { server.panes_within(targets).await };
            let (panes, unreachable) = everywhere(&asked, ("panes", targets), within).await?;
            Ok(Json(PaneList { panes, unreachable }))
        })
        .await
}

/// Splits a pane.
#[utoipa::path(
    post, path = "/v1/panes", operation_id = "split_pane", tag = "panes",
    params(ServerQuery),
    request_body = SplitRequest,
    responses((status = 200, description = "The answer", body = CreatedAnswer), Failures)
)]
pub async fn split(asked: Asked<Body<SplitRequest>>) -> Response {
    asked
        .answer(
            Operation::SplitWindow,
            |asked| async move { Ok(Json(asked.server()?.create_split(&asked.own.0).await?)) },
        )
        .await
}

/// Retitles, resizes, selects, zooms or respawns a pane, or leaves its mode.
#[utoipa::path(
    patch, path = "/v1/panes/{id}", tag = "panes",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_pane(asked: Asked<Body<PatchRequest>>) -> Response {
    let operation = Operation::of_pane_patch(&asked.own.0);
    asked
        .answer(operation, |asked| async move {
            let (server, target) = asked.pane().await?;
            server.patch_pane(&target, &asked.own.0).await?;
            Ok(DONE)
        })
        .await
}

/// Ends a pane.
#[utoipa::path(
    delete, path = "/v1/panes/{id}", tag = "panes",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn kill_pane(asked: Asked) -> Response {
    asked
        .answer(Operation::KillPane, |asked| async move {
            let (server, target) = asked.pane().await?;
            server.kill_pane(&target).await?;
            Ok(DONE)
        })
        .await
}

/// Captures a pane: the output of `tmux capture-pane -p`.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/capture", operation_id = "capture_pane", tag = "panes",
    params(PathPane, ServerQuery, CaptureRequest),
    responses((status = 200, description = "The answer", body = CaptureAnswer), Failures)
)]
pub async fn capture(asked: Asked<Params<CaptureRequest>>) -> Response {
    asked
        .answer(Operation::Look, |asked| async move {
            let (server, target) = asked.pane().await?;
            Ok(Json(server.capture(&target, &asked.own.0).await?))
        })
        .await
}

/// Reads a pane's output since a point.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/output", operation_id = "read_pane", tag = "panes",
    params(PathPane, ServerQuery, ReadRequest),
    responses((status = 200, description = "The answer", body = ReadAnswer), Failures)
)]
pub async fn output(asked: Asked<Params<ReadRequest>>) -> Response {
    asked
        .answer(Operation::Look, |asked| async move {
            let (server, target) = asked.pane().await?;
            Ok(Json(server.read(&target, &asked.own.0).await?))
        })
        .await
}

/// Types into a pane.
#[utoipa::path(
    post, path = "/v1/panes/{pane}/input", operation_id = "send_input", tag = "panes",
    params(PathPane, ServerQuery),
    request_body = InputRequest,
    responses((status = 200, description = "The answer", body = InputAnswer), Failures)
)]
pub async fn input(asked: Asked<Body<InputRequest>>) -> Response {
    asked
        .answer(Operation::Input, |asked| async move {
            let (server, target) = asked.pane().await?;
            Ok(Json(server.input(&target, &asked.own.0).await?))
        })
        .await
}

/// Runs a command in a pane's idle shell.
#[utoipa::path(
    post, path = "/v1/panes/{pane}/run", operation_id = "run_command", tag = "panes",
    params(PathPane, ServerQuery),
    request_body = RunRequest,
    responses((status = 200, description = "The answer", body = RunAnswer), Failures)
)]
pub async fn run(asked: Asked<Body<RunRequest>>) -> Response {
    asked
        .answer(Operation::Run, |asked| async move {
            let (server, target) = asked.pane().await?;
            Ok(Json(server.run(&target, &asked.own.0).await?))
        })
        .await
}

/// Lists the open waits.
#[utoipa::path(
    get, path = "/v1/waits", tag = "waits",
    responses((status = 200, description = "The answer", body = WaitList), Failures)
)]
pub async fn list_waits(asked: Asked) -> Response {
    asked
        .answer(Operation::Look, |asked| async move {
            asked.app.engine.authorize(Tier::Read)?;
            Ok(Json(WaitList { waits: asked.app.engine.waits() }))
        })
        .await
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
pub async fn wait(asked: Asked<Body<WaitRequest>>) -> Response {
    asked
        .answer(Operation::Look, |asked| async move {
            let again = Again::of(&asked.parts.headers)?;
            Ok(Json(asked.server()?.await_again(&asked.own.0, again.id()?, again.hold).await?))
        })
        .await
}

/// Returns a wait's state or result.
#[utoipa::path(
    get, path = "/v1/waits/{id}", operation_id = "get_wait", tag = "waits",
    params(PathWait, WaitResultQuery),
    responses((status = 200, description = "The answer", body = WaitAnswer), Failures)
)]
pub async fn wait_result(asked: Asked<Params<WaitResultQuery>>) -> Response {
    asked
        .answer(Operation::Look, |asked| async move {
            Ok(Json(asked.app.engine.wait_result(&asked.target, asked.own.0.timeout_ms).await?))
        })
        .await
}

/// Cancels a wait.
#[utoipa::path(
    delete, path = "/v1/waits/{id}", tag = "waits",
    params(PathWait),
    responses((status = 200, description = "The answer", body = WaitAnswer), Failures)
)]
pub async fn cancel_wait(asked: Asked) -> Response {
    asked
        .answer(Operation::Look, |asked| async move { Ok(Json(asked.app.engine.cancel_wait(&asked.target).await?)) })
        .await
}

/// Lists the coding agents in panes.
#[utoipa::path(
    get, path = "/v1/agents", operation_id = "list_agents", tag = "agents",
    params(ServerQuery, ListQuery),
    responses((status = 200, description = "The answer", body = AgentList), Failures)
)]
pub async fn agents(asked: Asked<Params<ListQuery>>) -> Response {
    asked
        .answer(
            Operation::Look,
            |asked| async move { Ok(Json(asked.server()?.agents_within(&asked.own.0.items()).await?)) },
        )
        .await
}
