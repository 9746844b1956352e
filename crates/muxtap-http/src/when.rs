//! Rules.

use axum::{Extension, Json};
use muxtap_engine::Lineage;
use muxtap_net::Peer;

use super::{
    App,
    error::{Body, Params, PathWord, Result},
    openapi_parts::{Failures, PathRule},
};

use muxtap_api::{AgentTerminal, DoneAnswer, WhenInfo, WhenList, WhenLog, WhenLogQuery, WhenRule};

/// Lists the rules, without secrets.
#[utoipa::path(
    get, path = "/v1/when", operation_id = "list_rules", tag = "rules",
    responses((status = 200, description = "The answer", body = WhenList), Failures)
)]
pub async fn list(app: App) -> Result<Json<WhenList>> {
    Ok(Json(app.rooms().when.list(&app.engine)?))
}

/// Returns whether the calling process is an agent of an agent session, or was started by one or in one of
/// its terminals: its rule would act without the agent's mark.
async fn is_agents(app: &App, peer: Option<&Peer>) -> Result<bool> {
    let Some(peer) = peer else { return Ok(false) };
    let Some(process) = super::approvals::answerer(app, peer).await else { return Ok(false) };
    if process.is_agents() {
        return Ok(true);
    }
    let sessions = app.rooms().sessions.list(&app.engine, None)?;
    let terminals = sessions.iter().flat_map(|session| &session.terminals);
    Ok(terminals.into_iter().any(|terminal| is_in(app, &process, terminal)))
}

/// Returns whether a process runs in an agent's terminal.
fn is_in(app: &App, process: &Lineage, terminal: &AgentTerminal) -> bool {
    let server = app.engine.server_at(terminal.socket.as_ref()).ok();
    let pane = server.and_then(|server| server.live_pane(terminal.pane));
    pane.map(|pane| pane.info().pid).is_some_and(|pid| pid > 0 && process.has_pid(pid))
}

/// Adds a rule, which stays until it is removed; replaces an added one of its name.
///
/// Only on the Unix socket, and not for a process that an agent has started. Otherwise UNAUTHORIZED.
#[utoipa::path(
    post, path = "/v1/when", operation_id = "add_rule", tag = "rules",
    request_body = WhenRule,
    responses((status = 200, description = "The answer", body = WhenInfo), Failures)
)]
pub async fn add(peer: Option<Extension<Peer>>, app: App, Body(rule): Body<WhenRule>) -> Result<Json<WhenInfo>> {
    let by_agent = is_agents(&app, peer.as_deref()).await?;
    Ok(Json(app.rooms().when.add(&app.engine, rule, by_agent).await?))
}

/// Removes a rule that was added. 409 for a rule of the configuration.
///
/// Only on the Unix socket, and not for a process that an agent has started. Otherwise UNAUTHORIZED.
#[utoipa::path(
    delete, path = "/v1/when/{name}", operation_id = "remove_rule", tag = "rules",
    params(PathRule),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn remove(peer: Option<Extension<Peer>>, app: App, PathWord(name): PathWord) -> Result<Json<DoneAnswer>> {
    let by_agent = is_agents(&app, peer.as_deref()).await?;
    app.rooms().when.remove(&app.engine, &name, by_agent).await?;
    Ok(Json(DoneAnswer { ok: true }))
}

/// Returns the journal: the latest firings of rules, and the result of each.
#[utoipa::path(
    get, path = "/v1/when-log", operation_id = "list_firings", tag = "rules",
    params(WhenLogQuery),
    responses((status = 200, description = "The answer", body = WhenLog), Failures)
)]
pub async fn log(app: App, Params(query): Params<WhenLogQuery>) -> Result<Json<WhenLog>> {
    Ok(Json(app.rooms().when.log(&app.engine, &query).await?))
}
