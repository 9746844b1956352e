//! Rules that stand.

use axum::Json;

use super::{
    App,
    error::{Body, Params, PathWord, Result},
    openapi_parts::{Failures, PathRule},
};

use muxtap_api::{DoneAnswer, WhenInfo, WhenList, WhenLog, WhenLogQuery, WhenRule};

/// Lists the rules, without secrets.
#[utoipa::path(
    get, path = "/v1/when", operation_id = "list_rules", tag = "rules",
    responses((status = 200, description = "The answer", body = WhenList), Failures)
)]
pub async fn list(app: App) -> Result<Json<WhenList>> {
    Ok(Json(app.rooms().when.list(&app.engine)?))
}

/// Adds a rule, which stays until it is removed; replaces an added one of its name.
///
/// Only on the Unix socket.
#[utoipa::path(
    post, path = "/v1/when", operation_id = "add_rule", tag = "rules",
    request_body = WhenRule,
    responses((status = 200, description = "The answer", body = WhenInfo), Failures)
)]
pub async fn add(app: App, Body(rule): Body<WhenRule>) -> Result<Json<WhenInfo>> {
    Ok(Json(app.rooms().when.add(&app.engine, rule).await?))
}

/// Removes a rule that was added. 409 for a rule of the configuration.
///
/// Only on the Unix socket.
#[utoipa::path(
    delete, path = "/v1/when/{name}", operation_id = "remove_rule", tag = "rules",
    params(PathRule),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn remove(app: App, PathWord(name): PathWord) -> Result<Json<DoneAnswer>> {
    app.rooms().when.remove(&app.engine, &name).await?;
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
