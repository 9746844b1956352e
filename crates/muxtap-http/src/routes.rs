//! The routes' handlers, one function each.

use std::sync::OnceLock;

use axum::{Extension, Json, response::Response};
use muxtap_base::{descriptors, files::ReadFile, metrics as counted};
use muxtap_engine::Server;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::{
    App,
    again::Again,
    error::{Body, Params, Result},
    hosts::{everywhere, of_parts},
    openapi_parts::{Failures, PathPane, PathTarget, PathWait},
    server_request::ServerRequest,
    text, waits,
};

use muxtap_api::{
    AgentExplanation, AgentList, CaptureAnswer, CaptureRequest, CommandsAnswer, CommandsRequest, ConfigAnswer,
    ConfigFile, CreatedAnswer, DoneAnswer, EnvironmentAnswer, Fields, FormatAnswer, FormatListQuery, FormatQuery,
    InputAnswer, InputRequest, ListAllQuery, ListQuery, NewSessionRequest, NewWindowRequest, Operation, PaneInfo,
    PaneList, PatchRequest, ReadAnswer, ReadRequest, ReportAgentAnswer, ReportAgentRequest, RunAnswer, RunRequest,
    ServerList, ServerQuery, SessionInfo, SessionList, SplitRequest, StatusAnswer, Tier, WaitAnswer, WaitList,
    WaitListQuery, WaitRequest, WindowInfo, WindowList,
};
use muxtap_net::{OutOfDescriptors, Peer};

type Answer<T> = Result<Json<T>>;

/// The timeout of a request for a wait's result.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitResultQuery {
    /// How long to wait for the wait's end (default 0; at most 300,000).
    pub(super) timeout_ms: Option<u64>,
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
    #[cfg(feature = "daemon")]
    let fleet = app.rooms().peers.fleet().and_then(|fleet| fleet.problem());
    #[cfg(not(feature = "daemon"))]
    let fleet = None;
    let log = app.daemon.about.problem.and_then(|problem| problem());
    StatusAnswer {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        uptime_s: app.engine.uptime_s(),
        socket: app.daemon.about.socket.clone(),
        http: app.daemon.about.http.clone(),
        log: app.daemon.about.log.clone(),
        servers: app.engine.servers(),
        waits: app.engine.open_waits(),
        warnings: more.into_iter().chain(log).chain(fleet).collect(),
    }
}

/// Stops the daemon.
#[utoipa::path(
    post, path = "/v1/stop", operation_id = "stop_daemon", tag = "daemon",
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn stop(Extension(peer): Extension<Peer>, app: App) -> Answer<DoneAnswer> {
    // A caller on the socket is the user, who can end any process of their own.
    if !matches!(peer, Peer::Unix { .. }) {
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
pub async fn list_sessions(request: ServerRequest<Params<ListAllQuery>>) -> Response {
    request
        .respond_everywhere(|request| async move {
            let within = |server: Server, targets: Vec<String>| async move { server.sessions_within(&targets).await };
            let (sessions, unreachable) = everywhere(&request, "sessions", within).await?;
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
pub async fn get_session(request: ServerRequest) -> Response {
    request
        .respond(
            Operation::Look,
            |request| async move { Ok(Json(request.server()?.session_info(&request.target).await?)) },
        )
        .await
}

/// Creates a session.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions",
    params(ServerQuery),
    request_body = NewSessionRequest,
    responses((status = 200, description = "The answer", body = CreatedAnswer), Failures)
)]
pub async fn new_session(request: ServerRequest<Body<NewSessionRequest>>) -> Response {
    request
        .respond(Operation::NewSession, |request| async move {
            Ok(Json(request.server()?.create_session(&request.fields.0).await?))
        })
        .await
}

/// Renames or labels a session.
#[utoipa::path(
    patch, path = "/v1/sessions/{id}", tag = "sessions",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_session(request: ServerRequest<Body<PatchRequest>>) -> Response {
    let operation = Operation::of_session_patch(&request.fields.0);
    request
        .respond(operation, |request| async move {
            request.server()?.patch_session(&request.target, &request.fields.0).await?;
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
pub async fn kill_session(request: ServerRequest) -> Response {
    request
        .respond(Operation::KillSession, |request| async move {
            request.server()?.kill_session(&request.target).await?;
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
pub async fn list_windows(request: ServerRequest<Params<ListAllQuery>>) -> Response {
    request
        .respond_everywhere(|request| async move {
            let within = |server: Server, targets: Vec<String>| async move { server.windows_within(&targets).await };
            let (windows, unreachable) = everywhere(&request, "windows", within).await?;
            Ok(Json(WindowList { windows, unreachable }))
        })
        .await
}

/// Returns one window.
#[utoipa::path(
    get, path = "/v1/windows/{id}", tag = "windows",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "The answer", body = WindowInfo), Failures)
)]
pub async fn get_window(request: ServerRequest) -> Response {
    request
        .respond(
            Operation::Look,
            |request| async move { Ok(Json(request.server()?.window_info(&request.target).await?)) },
        )
        .await
}

/// Creates a window.
#[utoipa::path(
    post, path = "/v1/windows", tag = "windows",
    params(ServerQuery),
    request_body = NewWindowRequest,
    responses((status = 200, description = "The answer", body = CreatedAnswer), Failures)
)]
pub async fn new_window(request: ServerRequest<Body<NewWindowRequest>>) -> Response {
    request
        .respond(Operation::NewWindow, |request| async move {
            Ok(Json(request.server()?.create_window(&request.fields.0).await?))
        })
        .await
}

/// Renames, resizes, arranges or selects a window.
#[utoipa::path(
    patch, path = "/v1/windows/{id}", tag = "windows",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_window(request: ServerRequest<Body<PatchRequest>>) -> Response {
    request
        .respond(Operation::ChangeWindow, |request| async move {
            request.server()?.patch_window(&request.target, &request.fields.0).await?;
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
pub async fn kill_window(request: ServerRequest) -> Response {
    request
        .respond(Operation::KillWindow, |request| async move {
            request.server()?.kill_window(&request.target).await?;
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
pub async fn format_list(request: ServerRequest<Params<FormatListQuery>>) -> Response {
    request
        .respond(Operation::Format, |request| async move {
            Ok(Json(FormatAnswer { lines: request.server()?.format_list(&request.fields.0).await? }))
        })
        .await
}

/// Expands a format for a pane.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/format", operation_id = "format_pane", tag = "panes",
    params(PathPane, ServerQuery, FormatQuery),
    responses((status = 200, description = "The answer", body = FormatAnswer), Failures)
)]
pub async fn format(request: ServerRequest<Params<FormatQuery>>) -> Response {
    request
        .respond(Operation::Format, |request| async move {
            let (server, target) = request.pane().await?;
            Ok(Json(FormatAnswer { lines: server.format(&target, &request.fields.0.format).await? }))
        })
        .await
}

/// Lists panes.
#[utoipa::path(
    get, path = "/v1/panes", tag = "panes",
    params(ServerQuery, ListAllQuery),
    responses((status = 200, description = "The answer", body = PaneList), Failures)
)]
pub async fn list_panes(request: ServerRequest<Params<ListAllQuery>>) -> Response {
    request
        .respond_everywhere(|request| async move {
            let within = |server: Server, targets: Vec<String>| async move { server.panes_within(&targets).await };
            let (panes, unreachable) = everywhere(&request, "panes", within).await?;
            Ok(Json(PaneList { panes, unreachable }))
        })
        .await
}

/// Returns one pane: of a session or a window, its active one.
#[utoipa::path(
    get, path = "/v1/panes/{id}", tag = "panes",
    params(PathTarget, ServerQuery),
    responses((status = 200, description = "The answer", body = PaneInfo), Failures)
)]
pub async fn get_pane(request: ServerRequest) -> Response {
    request
        .respond(Operation::Look, |request| async move {
            let (server, target) = request.pane().await?;
            Ok(Json(server.pane_info(&target).await?))
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
pub async fn split(request: ServerRequest<Body<SplitRequest>>) -> Response {
    request
        .respond(Operation::SplitWindow, |request| async move {
            Ok(Json(request.server()?.create_split(&request.fields.0).await?))
        })
        .await
}

/// Retitles, labels, resizes, selects, zooms or respawns a pane, or leaves its mode.
#[utoipa::path(
    patch, path = "/v1/panes/{id}", tag = "panes",
    params(PathTarget, ServerQuery),
    request_body = PatchRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn patch_pane(request: ServerRequest<Body<PatchRequest>>) -> Response {
    let operation = Operation::of_pane_patch(&request.fields.0);
    request
        .respond(operation, |request| async move {
            let (server, target) = request.pane().await?;
            server.patch_pane(&target, &request.fields.0).await?;
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
pub async fn kill_pane(request: ServerRequest) -> Response {
    request
        .respond(Operation::KillPane, |request| async move {
            let (server, target) = request.pane().await?;
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
pub async fn capture(request: ServerRequest<Params<CaptureRequest>>) -> Response {
    request
        .respond(Operation::Look, |request| async move {
            let (server, target) = request.pane().await?;
            Ok(Json(server.capture(&target, &request.fields.0).await?))
        })
        .await
}

/// Reads a pane's output since a point.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/output", operation_id = "read_pane", tag = "panes",
    params(PathPane, ServerQuery, ReadRequest),
    responses((status = 200, description = "The answer", body = ReadAnswer), Failures)
)]
pub async fn output(request: ServerRequest<Params<ReadRequest>>) -> Response {
    request
        .respond(Operation::Look, |request| async move {
            let (server, target) = request.pane().await?;
            Ok(Json(server.read(&target, &request.fields.0).await?))
        })
        .await
}

/// Lists the commands that ran in a pane, as its shell's marks report them.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/commands", operation_id = "list_commands", tag = "panes",
    params(PathPane, ServerQuery, CommandsRequest),
    responses((status = 200, description = "The answer", body = CommandsAnswer), Failures)
)]
pub async fn commands(request: ServerRequest<Params<CommandsRequest>>) -> Response {
    request
        .respond(Operation::Look, |request| async move {
            let (server, target) = request.pane().await?;
            Ok(Json(server.list_commands(&target, &request.fields.0).await?))
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
pub async fn input(request: ServerRequest<Body<InputRequest>>) -> Response {
    request
        .respond(Operation::Input, |request| async move {
            let (server, target) = request.pane().await?;
            Ok(Json(server.input(&target, &request.fields.0).await?))
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
pub async fn run(request: ServerRequest<Body<RunRequest>>) -> Response {
    request
        .respond(Operation::Run, |request| async move {
            let (server, target) = request.pane().await?;
            Ok(Json(server.run(&target, &request.fields.0).await?))
        })
        .await
}

/// Lists the open waits.
#[utoipa::path(
    get, path = "/v1/waits", tag = "waits",
    params(WaitListQuery),
    responses((status = 200, description = "The answer", body = WaitList), Failures)
)]
pub async fn list_waits(request: ServerRequest<Params<WaitListQuery>>) -> Response {
    request
        .respond(Operation::Look, |request| async move {
            let engine = &request.app.engine;
            engine.authorize(Tier::Read)?;
            let kept = if request.fields.0.kept { engine.kept_waits().await? } else { Vec::new() };
            Ok(Json(WaitList { waits: engine.waits(), kept }))
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
pub async fn wait(request: ServerRequest<Body<WaitRequest>>) -> Response {
    request
        .respond(Operation::Look, |request| async move {
            let again = Again::of(&request.parts.headers)?;
            Box::pin(waits::wait(&request, &again)).await
        })
        .await
}

/// Returns a wait's state or result.
#[utoipa::path(
    get, path = "/v1/waits/{id}", operation_id = "get_wait", tag = "waits",
    params(PathWait, WaitResultQuery),
    responses((status = 200, description = "The answer", body = WaitAnswer), Failures)
)]
pub async fn wait_result(request: ServerRequest<Params<WaitResultQuery>>) -> Response {
    request.respond(Operation::Look, |request| async move { Box::pin(waits::result(&request)).await }).await
}

/// Cancels a wait.
#[utoipa::path(
    delete, path = "/v1/waits/{id}", tag = "waits",
    params(PathWait),
    responses((status = 200, description = "The answer", body = WaitAnswer), Failures)
)]
pub async fn cancel_wait(request: ServerRequest) -> Response {
    request.respond(Operation::Look, |request| async move { Ok(Json(waits::cancel(&request).await?)) }).await
}

/// Stores a state that an agent in a pane reports about itself.
///
/// A process that runs in another pane is UNAUTHORIZED.
#[utoipa::path(
    post, path = "/v1/panes/{pane}/agent", operation_id = "report_agent", tag = "agents",
    params(PathPane, ServerQuery),
    request_body = ReportAgentRequest,
    responses((status = 200, description = "The answer", body = ReportAgentAnswer), Failures)
)]
pub async fn report_agent(request: ServerRequest<Body<ReportAgentRequest>>) -> Response {
    request
        .respond(Operation::Report, |request| async move {
            let (server, target) = request.pane().await?;
            let caller = match request.parts.extensions.get::<Peer>() {
                Some(Peer::Unix { pid, .. }) => pid.and_then(|pid| u32::try_from(pid).ok()),
                _ => None,
            };
            Ok(Json(server.report_agent(&target, &request.fields.0, caller).await?))
        })
        .await
}

/// Explains the state of the agent in a pane.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/agent", operation_id = "explain_agent", tag = "agents",
    params(PathPane, ServerQuery),
    responses((status = 200, description = "The answer", body = AgentExplanation), Failures)
)]
pub async fn explain_agent(request: ServerRequest) -> Response {
    request
        .respond(Operation::Look, |request| async move {
            let (server, target) = request.pane().await?;
            Ok(Json(server.explain_agent(&target).await?))
        })
        .await
}

/// Lists the coding agents in panes.
#[utoipa::path(
    get, path = "/v1/agents", operation_id = "list_agents", tag = "agents",
    params(ServerQuery, ListQuery),
    responses((status = 200, description = "The answer", body = AgentList), Failures)
)]
pub async fn agents(request: ServerRequest<Params<ListQuery>>) -> Response {
    request
        .respond(Operation::Look, |request| async move {
            let Some(parts) = &request.several else {
                return Ok(Json(request.server()?.agents_within(&request.fields.0.items()).await?));
            };
            let own_rules = OnceLock::new();
            let within = |server: Server, targets: Vec<String>| {
                let own_rules = &own_rules;
                async move {
                    let list = server.agents_within(&targets).await?;
                    let _ = list.rules_error.map(|error| own_rules.set(error));
                    Ok(list.agents)
                }
            };
            let (agents, unreachable) = of_parts(&request.app, parts, "agents", within).await?;
            Ok(Json(AgentList { agents, rules_error: own_rules.into_inner(), unreachable }))
        })
        .await
}
