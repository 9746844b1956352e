//! Snapshots, layouts and groups (`docs/snapshots.md`).

use axum::{Json, response::Response};
use muxtap_snapshot::{
    Store,
    answers::{
        DiffAnswer, DiffQuery, GroupAnswer, GroupInputAnswer, GroupList, GroupRequest, ImportRequest, LayoutAnswer,
        LayoutList, LayoutRequest, LayoutRestoreRequest, RestoreAnswer, RestoreRequest, SaveRequest, SavedAnswer,
        ShowQuery, SnapshotList,
    },
    groups, layouts,
};

use super::{
    App,
    error::{Body, Params, PathWord, Result},
    openapi_parts::{Failures, PathName},
    server_request::ServerRequest,
};

use muxtap_api::{DoneAnswer, Error, InputRequest, ServerQuery, Tier};

type Answer<T> = Result<Json<T>>;

const DONE: Json<DoneAnswer> = Json(DoneAnswer { ok: true });

/// Returns the store of snapshots, for a caller with this tier.
fn store(app: &App, tier: Tier) -> Result<Store> {
    app.engine.authorize(tier)?;
    let none = || Error::internal("the daemon has no snapshot directory; this is a bug in muxtap");
    Ok(app.rooms().snapshots.clone().ok_or_else(none)?)
}

/// Lists the snapshots.
#[utoipa::path(
    get, path = "/v1/snapshots", operation_id = "list_snapshots", tag = "snapshots",
    responses((status = 200, description = "The answer", body = SnapshotList), Failures)
)]
pub async fn list(app: App) -> Answer<SnapshotList> {
    Ok(Json(store(&app, Tier::Read)?.list().await?))
}

/// Saves sessions.
#[utoipa::path(
    post, path = "/v1/snapshots", operation_id = "save_snapshot", tag = "snapshots",
    params(ServerQuery),
    request_body = SaveRequest,
    responses((status = 200, description = "The answer", body = SavedAnswer), Failures)
)]
pub async fn save(request: ServerRequest<Body<SaveRequest>>) -> Response {
    request
        .respond_locally(Tier::Create, |request| async move {
            let store = store(&request.app, Tier::Create)?;
            Ok(Json(store.save(&request.server()?, &request.fields.0).await?))
        })
        .await
}

/// Returns a snapshot's file: tmuxp's format, with more under the key `muxtap`.
#[utoipa::path(
    get, path = "/v1/snapshots/{name}", operation_id = "get_snapshot", tag = "snapshots",
    params(PathName, ShowQuery),
    responses((status = 200, description = "The file", body = Object), Failures)
)]
pub async fn show(app: App, PathWord(name): PathWord, Params(query): Params<ShowQuery>) -> Answer<serde_json::Value> {
    Ok(Json(store(&app, Tier::Read)?.show(&name, &query).await?))
}

/// Imports a file of tmuxp, tmuxinator, smug or tmux-resurrect as a snapshot.
#[utoipa::path(
    put, path = "/v1/snapshots/{name}", operation_id = "import_snapshot", tag = "snapshots",
    params(PathName),
    request_body = ImportRequest,
    responses((status = 200, description = "The answer", body = SavedAnswer), Failures)
)]
pub async fn import(app: App, PathWord(name): PathWord, Body(request): Body<ImportRequest>) -> Answer<SavedAnswer> {
    Ok(Json(store(&app, Tier::Create)?.import(&name, &request).await?))
}

/// Removes a snapshot.
#[utoipa::path(
    delete, path = "/v1/snapshots/{name}", operation_id = "remove_snapshot", tag = "snapshots",
    params(PathName),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn remove(app: App, PathWord(name): PathWord) -> Answer<DoneAnswer> {
    store(&app, Tier::Create)?.forget(&name).await?;
    Ok(DONE)
}

/// Creates the sessions of a snapshot.
#[utoipa::path(
    post, path = "/v1/snapshots/{name}/restore", operation_id = "restore_snapshot", tag = "snapshots",
    params(PathName, ServerQuery),
    request_body = RestoreRequest,
    responses((status = 200, description = "The answer", body = RestoreAnswer), Failures)
)]
pub async fn restore(request: ServerRequest<Body<RestoreRequest>>) -> Response {
    request
        .respond_locally(Tier::Create, |request| async move {
            let store = store(&request.app, Tier::Create)?;
            Ok(Json(store.restore(&request.server()?, &request.target, &request.fields.0).await?))
        })
        .await
}

/// Compares a snapshot with another one, or with the current state.
#[utoipa::path(
    get, path = "/v1/snapshots/{name}/diff", operation_id = "diff_snapshot", tag = "snapshots",
    params(PathName, DiffQuery, ServerQuery),
    responses((status = 200, description = "The answer", body = DiffAnswer), Failures)
)]
pub async fn diff(request: ServerRequest<Params<DiffQuery>>) -> Response {
    request
        .respond_locally(Tier::Read, |request| async move {
            let store = store(&request.app, Tier::Read)?;
            Ok(Json(store.diff(&request.server()?, &request.target, &request.fields.0).await?))
        })
        .await
}

/// Lists the layouts.
#[utoipa::path(
    get, path = "/v1/layouts", operation_id = "list_layouts", tag = "snapshots",
    responses((status = 200, description = "The answer", body = LayoutList), Failures)
)]
pub async fn list_layouts(app: App) -> Answer<LayoutList> {
    Ok(Json(layouts::list(&store(&app, Tier::Read)?).await?))
}

/// Saves a window's layout.
#[utoipa::path(
    post, path = "/v1/layouts", operation_id = "save_layout", tag = "snapshots",
    params(ServerQuery),
    request_body = LayoutRequest,
    responses((status = 200, description = "The answer", body = LayoutAnswer), Failures)
)]
pub async fn save_layout(request: ServerRequest<Body<LayoutRequest>>) -> Response {
    request
        .respond_locally(Tier::Create, |request| async move {
            let store = store(&request.app, Tier::Create)?;
            Ok(Json(layouts::save(&store, &request.server()?, &request.fields.0).await?))
        })
        .await
}

/// Removes a layout.
#[utoipa::path(
    delete, path = "/v1/layouts/{name}", operation_id = "remove_layout", tag = "snapshots",
    params(PathName),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn remove_layout(app: App, PathWord(name): PathWord) -> Answer<DoneAnswer> {
    layouts::remove(&store(&app, Tier::Create)?, &name).await?;
    Ok(DONE)
}

/// Applies a layout to a window.
#[utoipa::path(
    post, path = "/v1/layouts/{name}/restore", operation_id = "restore_layout", tag = "snapshots",
    params(PathName, ServerQuery),
    request_body = LayoutRestoreRequest,
    responses((status = 200, description = "The answer", body = LayoutAnswer), Failures)
)]
pub async fn restore_layout(request: ServerRequest<Body<LayoutRestoreRequest>>) -> Response {
    request
        .respond_locally(Tier::Create, |request| async move {
            let store = store(&request.app, Tier::Create)?;
            Ok(Json(layouts::restore(&store, &request.server()?, &request.target, &request.fields.0).await?))
        })
        .await
}

/// Lists the groups of panes of a server.
#[utoipa::path(
    get, path = "/v1/groups", operation_id = "list_groups", tag = "snapshots",
    params(ServerQuery),
    responses((status = 200, description = "The answer", body = GroupList), Failures)
)]
pub async fn list_groups(request: ServerRequest) -> Response {
    request
        .respond_locally(Tier::Read, |request| async move { Ok(Json(groups::list(&request.server()?).await?)) })
        .await
}

/// Sets the panes of a group.
#[utoipa::path(
    put, path = "/v1/groups/{name}", operation_id = "set_group", tag = "snapshots",
    params(PathName, ServerQuery),
    request_body = GroupRequest,
    responses((status = 200, description = "The answer", body = GroupAnswer), Failures)
)]
pub async fn set_group(request: ServerRequest<Body<GroupRequest>>) -> Response {
    request
        .respond_locally(Tier::Create, |request| async move {
            Ok(Json(groups::set(&request.server()?, &request.target, &request.fields.0).await?))
        })
        .await
}

/// Removes a group; its panes stay.
#[utoipa::path(
    delete, path = "/v1/groups/{name}", operation_id = "remove_group", tag = "snapshots",
    params(PathName, ServerQuery),
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn remove_group(request: ServerRequest) -> Response {
    request
        .respond_locally(Tier::Create, |request| async move {
            groups::remove(&request.server()?, &request.target).await?;
            Ok(DONE)
        })
        .await
}

/// Types into all panes of a group.
#[utoipa::path(
    post, path = "/v1/groups/{name}/input", operation_id = "send_group_input", tag = "snapshots",
    params(PathName, ServerQuery),
    request_body = InputRequest,
    responses((status = 200, description = "Each pane took it", body = GroupInputAnswer), Failures)
)]
pub async fn group_input(request: ServerRequest<Body<InputRequest>>) -> Response {
    request
        .respond_locally(Tier::Input, |request| async move {
            Ok(Json(groups::input(&request.server()?, &request.target, &request.fields.0).await?))
        })
        .await
}
