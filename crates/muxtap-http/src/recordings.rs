//! Recordings, and live streams of panes for asciinema's players.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    http::request::Parts,
    response::{IntoResponse as _, Response},
};
use futures_util::StreamExt as _;
use muxtap_net::ConnectionPermit;
use muxtap_record::{ALIS, Secrets, live::Live};

use super::{
    App,
    error::{Body, Params, PathWord, Result},
    openapi_parts::{Failures, PathPane, PathRecording},
    server_request::ServerRequest,
};
#[cfg(feature = "daemon")]
use super::{
    guard::is_revocable,
    replace::{OwnTurn, moved},
};

#[cfg(feature = "daemon")]
use muxtap_api::wire;
use muxtap_api::{AlisQuery, Error, RecordRequest, RecordingInfo, RecordingList, RecordingQuery, ServerQuery, Tier};

/// How long a reader of a live stream may take to receive a message.
const SLOW_READER: Duration = Duration::from_secs(10);

/// Lists recordings: the active ones, and the last ones that have ended.
#[utoipa::path(
    get, path = "/v1/recordings", operation_id = "list_recordings", tag = "recordings",
    responses((status = 200, description = "The answer", body = RecordingList), Failures)
)]
pub async fn list(app: App) -> Result<Json<RecordingList>> {
    app.engine.authorize(Tier::Read)?;
    Ok(Json(RecordingList { recordings: app.rooms().recordings.list() }))
}

/// Starts recording a pane. The recording continues until the pane ends, a limit, or `DELETE`.
#[utoipa::path(
    post, path = "/v1/recordings", operation_id = "start_recording", tag = "recordings",
    params(ServerQuery),
    request_body = RecordRequest,
    responses((status = 200, description = "The answer", body = RecordingInfo), Failures)
)]
pub async fn start(request: ServerRequest<Body<RecordRequest>>) -> Response {
    request
        .respond_locally(Tier::Read, |request| async move {
            let server = request.server()?;
            Ok(Json(request.app.rooms().recordings.start(&server, &request.fields.0).await?))
        })
        .await
}

/// Returns one recording.
#[utoipa::path(
    get, path = "/v1/recordings/{id}", operation_id = "get_recording", tag = "recordings",
    params(PathRecording, RecordingQuery),
    responses((status = 200, description = "The answer", body = RecordingInfo), Failures)
)]
pub async fn one(
    app: App,
    PathWord(id): PathWord,
    Params(query): Params<RecordingQuery>,
    parts: Parts,
) -> Result<Response> {
    if query.attach {
        return attached(&app, &id, &parts).await;
    }
    app.engine.authorize(Tier::Read)?;
    Ok(Json(app.rooms().recordings.get(&id)?).into_response())
}

/// Waits for a recording's end. When the connection ends, the future is dropped, and the recording
/// ends with it.
#[cfg(not(feature = "daemon"))]
async fn attached(app: &App, id: &str, _parts: &Parts) -> Result<Response> {
    Ok(Json(app.rooms().recordings.attach(&app.engine, id)?.ended().await).into_response())
}

/// Waits for a recording's end. When the connection ends, the future is dropped, and the recording
/// ends with it.
///
/// If another daemon takes over meanwhile, it continues the recording, and its response is passed on.
#[cfg(feature = "daemon")]
async fn attached(app: &App, id: &str, parts: &Parts) -> Result<Response> {
    let attached = app.rooms().recordings.attach(&app.engine, id)?;
    if let Some(turn) = parts.extensions.get::<OwnTurn>() {
        turn.continues();
    }
    tokio::select! {
        ended = attached.ended() => return Ok(Json(ended).into_response()),
        () = app.replacing().taken_over() => {}
    }
    if parts.headers.contains_key(wire::RELAY) {
        return Ok(moved());
    }
    if is_revocable(parts) {
        let path = format!("/v1/recordings/{id}?attach=true");
        let message = format!(
            "another muxtap daemon has taken over and continues recording {id} for ten seconds: request `GET {path}`"
        );
        return Err(Error::unavailable(message).into());
    }
    let uri = format!("/v1/recordings/{}?attach=true", muxtap_api::url::encode(id));
    Ok(app.get_elsewhere_at_last(&uri, &[(wire::RELAY, "1")]).await?)
}

/// Ends a recording.
///
/// The response arrives when its last file is complete. A recording that has ended stays as it is.
#[utoipa::path(
    delete, path = "/v1/recordings/{id}", operation_id = "stop_recording", tag = "recordings",
    params(PathRecording),
    responses((status = 200, description = "The answer", body = RecordingInfo), Failures)
)]
pub async fn stop(app: App, PathWord(id): PathWord) -> Result<Json<RecordingInfo>> {
    Ok(Json(app.rooms().recordings.stop(&app.engine, &id).await?))
}

/// Opens a live stream of a pane for asciinema's players.
///
/// A WebSocket with the subprotocol `v1.alis` and binary messages: the current screen, then each
/// event.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/alis", operation_id = "open_alis", tag = "recordings",
    params(PathPane, ServerQuery, AlisQuery),
    responses(
        (status = 101, description = "The WebSocket is open"),
        (status = 426, description = "Not a WebSocket request", body = muxtap_api::Error),
        Failures
    )
)]
pub async fn alis(
    permit: Option<Extension<ConnectionPermit>>,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: ServerRequest<Params<AlisQuery>>,
) -> Response {
    request.respond_locally(Tier::Read, |request| async move { Ok(open(request, permit, upgrade).await?) }).await
}

async fn open(
    request: ServerRequest<Params<AlisQuery>>,
    permit: Option<Extension<ConnectionPermit>>,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> muxtap_api::Result<Response> {
    request.app.engine.authorize(Tier::Read)?;
    let (server, target) = request.pane().await?;
    let ServerRequest { app, fields: Params(query), .. } = request;
    let secrets = match query.redact {
        Some(redact) => Some(Secrets::compile(&app.engine, vec![redact]).await?),
        None => None,
    };
    let pane = server.pane(&target).await?;
    let Ok(upgrade) = upgrade else {
        let message = format!("this route requires a WebSocket upgrade (RFC 6455) with the subprotocol {ALIS}");
        let error = Error::invalid(message);
        let mut response = (axum::http::StatusCode::UPGRADE_REQUIRED, Json(error)).into_response();
        let websocket = axum::http::HeaderValue::from_static("websocket");
        response.headers_mut().insert(axum::http::header::UPGRADE, websocket);
        return Ok(response);
    };
    let upgrade = upgrade.max_message_size(SAID_BYTES).max_frame_size(SAID_BYTES);
    let upgrade = upgrade.read_buffer_size(SAID_BYTES).write_buffer_size(WRITE_BYTES);
    // A browser sends its token as another subprotocol (`guard`).
    Ok(upgrade.protocols([ALIS, "muxtap"]).on_upgrade(async move |socket| {
        let streams = app.daemon.streams.clone();
        let (writers, cut) = (streams.writers.clone(), app.cut());
        let session = async move {
            // The stream counts as a connection while it lasts.
            let _permit = permit;
            tokio::select! {
                ended = play(socket, pane, secrets) => {
                    if let Err(error) = ended {
                        tracing::debug!("a live stream ended: {error}");
                    }
                }
                () = cut => {}
            }
        };
        streams.open.spawn_on(session, &writers);
    }))
}

/// The longest message of a player, in bytes: it needs to send nothing.
const SAID_BYTES: usize = 4 * 1024;
/// The number of bytes of messages that are collected before they are written.
const WRITE_BYTES: usize = 32 * 1024;

/// Sends a pane's stream until either end closes.
async fn play(
    mut socket: WebSocket,
    pane: muxtap_engine::Pane,
    secrets: Option<Secrets>,
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut live = Live::begin(pane, secrets).await?;
    loop {
        let message = tokio::select! {
            message = live.next() => message?,
            heard = socket.next() => match heard {
                // A player sends nothing.
                Some(Ok(Message::Close(_))) | None => return Ok(()),
                Some(said) => {
                    said?;
                    continue;
                }
            },
        };
        let Some(message) = message else { break };
        // A slow reader delays only itself; output that it misses is a gap.
        tokio::time::timeout(SLOW_READER, socket.send(Message::Binary(message.into()))).await??;
    }
    tokio::time::timeout(SLOW_READER, socket.send(Message::Close(None))).await??;
    Ok(())
}
