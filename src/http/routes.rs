//! One function a route.

use std::{path::Path, sync::Arc};

use axum::{Json, extract::State, response::Response};
use serde::Deserialize;

use super::{
    App,
    error::{Body, Params, Target},
    text,
};
use crate::{
    api::{
        CaptureAnswer, CaptureRequest, CreatedAnswer, DoneAnswer, Error, InputAnswer, InputRequest, NewSessionRequest,
        NewWindowRequest, PaneList, PatchRequest, ReadAnswer, ReadRequest, Result, RunAnswer, RunRequest, ServerQuery,
        SessionList, SplitRequest, StatusAnswer, WaitAnswer, WaitRequest, WindowList,
    },
    engine::Host,
    metrics as counted,
};

type Answer<T> = Result<Json<T>>;

/// How long a look at a wait may last.
#[derive(Debug, Default, Deserialize)]
pub struct LookQuery {
    timeout_ms: Option<u64>,
}

/// The tmux server that a request means.
pub(super) fn host(app: &App, query: &ServerQuery) -> Result<Arc<Host>> {
    let socket = query
        .socket
        .as_deref()
        .ok_or_else(|| Error::invalid("socket: say which tmux server is meant by the absolute path of its socket"))?;
    app.engine.host(Path::new(socket))
}

/// The daemon lives.
pub async fn health() -> Json<DoneAnswer> {
    Json(DoneAnswer { ok: true })
}

/// Prometheus' text form.
pub async fn metrics() -> Response {
    text("text/plain; version=0.0.4", counted::render())
}

/// What the daemon follows.
pub async fn status(State(app): State<App>) -> Json<StatusAnswer> {
    Json(StatusAnswer {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        uptime_s: app.engine.uptime_s(),
        socket: app.socket.clone(),
        log: app.log.clone(),
        servers: app.engine.servers(),
        waits: app.engine.open_waits(),
    })
}

/// Ends the daemon.
pub async fn stop(State(app): State<App>) -> Json<DoneAnswer> {
    app.stop.send_replace(true);
    Json(DoneAnswer { ok: true })
}

/// Lists sessions.
pub async fn list_sessions(State(app): State<App>, Params(server): Params<ServerQuery>) -> Answer<SessionList> {
    app.engine.sessions(&host(&app, &server)?).await.map(Json)
}

/// Makes a session.
pub async fn new_session(
    State(app): State<App>,
    Params(server): Params<ServerQuery>,
    Body(request): Body<NewSessionRequest>,
) -> Answer<CreatedAnswer> {
    app.engine.new_session(&host(&app, &server)?, &request).await.map(Json)
}

/// Renames a session.
pub async fn patch_session(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
    Body(patch): Body<PatchRequest>,
) -> Answer<DoneAnswer> {
    app.engine.patch_session(&host(&app, &server)?, &target, &patch).await.map(Json)
}

/// Ends a session.
pub async fn kill_session(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
) -> Answer<DoneAnswer> {
    app.engine.kill_session(&host(&app, &server)?, &target).await.map(Json)
}

/// Lists windows.
pub async fn list_windows(State(app): State<App>, Params(server): Params<ServerQuery>) -> Answer<WindowList> {
    app.engine.windows(&host(&app, &server)?).await.map(Json)
}

/// Makes a window.
pub async fn new_window(
    State(app): State<App>,
    Params(server): Params<ServerQuery>,
    Body(request): Body<NewWindowRequest>,
) -> Answer<CreatedAnswer> {
    app.engine.new_window(&host(&app, &server)?, &request).await.map(Json)
}

/// Renames, resizes or lays out a window.
pub async fn patch_window(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
    Body(patch): Body<PatchRequest>,
) -> Answer<DoneAnswer> {
    app.engine.patch_window(&host(&app, &server)?, &target, &patch).await.map(Json)
}

/// Ends a window.
pub async fn kill_window(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
) -> Answer<DoneAnswer> {
    app.engine.kill_window(&host(&app, &server)?, &target).await.map(Json)
}

/// Lists panes.
pub async fn list_panes(State(app): State<App>, Params(server): Params<ServerQuery>) -> Answer<PaneList> {
    app.engine.panes(&host(&app, &server)?).await.map(Json)
}

/// Splits a pane.
pub async fn split(
    State(app): State<App>,
    Params(server): Params<ServerQuery>,
    Body(request): Body<SplitRequest>,
) -> Answer<CreatedAnswer> {
    app.engine.split(&host(&app, &server)?, &request).await.map(Json)
}

/// Retitles, resizes or respawns a pane.
pub async fn patch_pane(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
    Body(patch): Body<PatchRequest>,
) -> Answer<DoneAnswer> {
    app.engine.patch_pane(&host(&app, &server)?, &target, &patch).await.map(Json)
}

/// Ends a pane.
pub async fn kill_pane(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
) -> Answer<DoneAnswer> {
    app.engine.kill_pane(&host(&app, &server)?, &target).await.map(Json)
}

/// What `tmux capture-pane -p` prints.
pub async fn capture(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
    Params(request): Params<CaptureRequest>,
) -> Answer<CaptureAnswer> {
    app.engine.capture(&host(&app, &server)?, &target, &request).await.map(Json)
}

/// What a pane printed since a point.
pub async fn output(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
    Params(request): Params<ReadRequest>,
) -> Answer<ReadAnswer> {
    app.engine.read(&host(&app, &server)?, &target, &request).await.map(Json)
}

/// Types into a pane.
pub async fn input(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
    Body(request): Body<InputRequest>,
) -> Answer<InputAnswer> {
    app.engine.input(&host(&app, &server)?, &target, &request).await.map(Json)
}

/// Runs a command in a pane's shell.
pub async fn run(
    State(app): State<App>,
    Target(target): Target,
    Params(server): Params<ServerQuery>,
    Body(request): Body<RunRequest>,
) -> Answer<RunAnswer> {
    app.engine.run(&host(&app, &server)?, &target, &request).await.map(Json)
}

/// Waits.
pub async fn wait(
    State(app): State<App>,
    Params(server): Params<ServerQuery>,
    Body(request): Body<WaitRequest>,
) -> Answer<WaitAnswer> {
    app.engine.wait(&host(&app, &server)?, &request).await.map(Json)
}

/// Looks at a wait.
pub async fn wait_result(
    State(app): State<App>,
    Target(id): Target,
    Params(look): Params<LookQuery>,
) -> Answer<WaitAnswer> {
    app.engine.wait_result(&id, look.timeout_ms).await.map(Json)
}

/// Ends a wait.
pub async fn cancel_wait(State(app): State<App>, Target(id): Target) -> Answer<WaitAnswer> {
    app.engine.cancel_wait(&id).await.map(Json)
}
