//! Recordings, and a pane as a live stream for asciinema's players.

use std::time::Duration;

use axum::{
    Extension, Json,
    extract::ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    response::{IntoResponse as _, Response},
};
use futures_util::StreamExt as _;
use muxtap_net::ConnectionPermit;
use muxtap_record::{ALIS, Secrets, live::Live};

use super::{
    App,
    error::{Body, Failure, Params, Result, Target},
    openapi_parts::{Failures, PathPane, PathRecording},
    server,
};

use muxtap_api::{AlisQuery, Error, RecordRequest, RecordingInfo, RecordingList, RecordingQuery, ServerQuery, Tier};

/// How long a reader of a live stream has to take a message.
const SLOW_READER: Duration = Duration::from_secs(10);

/// Lists recordings: those that go on, and the last ones that have ended.
#[utoipa::path(
    get, path = "/v1/recordings", operation_id = "list_recordings", tag = "recordings",
    responses((status = 200, description = "The answer", body = RecordingList), Failures)
)]
pub async fn list(app: App) -> Result<Json<RecordingList>> {
    app.engine.authorize(Tier::Read)?;
    Ok(Json(RecordingList { recordings: app.rooms().recordings.list() }))
}

/// Begins to record a pane. It goes on until the pane ends, a limit, or `DELETE`.
#[utoipa::path(
    post, path = "/v1/recordings", operation_id = "start_recording", tag = "recordings",
    params(ServerQuery),
    request_body = RecordRequest,
    responses((status = 200, description = "The answer", body = RecordingInfo), Failures)
)]
pub async fn start(
    app: App,
    Params(at): Params<ServerQuery>,
    Body(request): Body<RecordRequest>,
) -> Result<Json<RecordingInfo>> {
    let server = server(&app, &at)?;
    Ok(Json(app.rooms().recordings.start(&server, &request).await?))
}

/// Returns one recording.
#[utoipa::path(
    get, path = "/v1/recordings/{id}", operation_id = "get_recording", tag = "recordings",
    params(PathRecording, RecordingQuery),
    responses((status = 200, description = "The answer", body = RecordingInfo), Failures)
)]
pub async fn one(app: App, Target(id): Target, Params(query): Params<RecordingQuery>) -> Result<Json<RecordingInfo>> {
    let recordings = &app.rooms().recordings;
    if query.attach {
        // With the connection this future ends, and with that the recording.
        return Ok(Json(recordings.attach(&app.engine, &id)?.ended().await));
    }
    app.engine.authorize(Tier::Read)?;
    Ok(Json(recordings.get(&id)?))
}

/// Ends a recording, and answers when its last file is whole. One that has ended stays as it is.
#[utoipa::path(
    delete, path = "/v1/recordings/{id}", operation_id = "stop_recording", tag = "recordings",
    params(PathRecording),
    responses((status = 200, description = "The answer", body = RecordingInfo), Failures)
)]
pub async fn stop(app: App, Target(id): Target) -> Result<Json<RecordingInfo>> {
    Ok(Json(app.rooms().recordings.stop(&app.engine, &id).await?))
}

/// Opens a live stream of a pane for asciinema's players.
///
/// A WebSocket of the subprotocol `v1.alis` with binary messages: the screen as it is, then what
/// happens.
#[utoipa::path(
    get, path = "/v1/panes/{pane}/alis", operation_id = "open_alis", tag = "recordings",
    params(PathPane, ServerQuery, AlisQuery),
    responses(
        (status = 101, description = "The WebSocket is open"),
        (status = 426, description = "The request asks for no WebSocket", body = muxtap_api::Error),
        Failures
    )
)]
pub async fn alis(
    app: App,
    Target(target): Target,
    Params(at): Params<ServerQuery>,
    Params(query): Params<AlisQuery>,
    permit: Option<Extension<ConnectionPermit>>,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let begin = async {
        app.engine.authorize(Tier::Read)?;
        let server = server(&app, &at)?;
        let target = server.path_target(target).await?;
        let secrets = match query.redact {
            Some(redact) => Some(Secrets::compile(&app.engine, vec![redact]).await?),
            None => None,
        };
        Ok::<_, Error>((server.pane(&target).await?, secrets))
    };
    let (pane, secrets) = match begin.await {
        Ok(found) => found,
        Err(error) => return Failure::from(error).into_response(),
    };
    let Ok(upgrade) = upgrade else {
        let error = Error::invalid(format!("this is a WebSocket (RFC 6455) of the subprotocol {ALIS}"));
        let mut response = (axum::http::StatusCode::UPGRADE_REQUIRED, Json(error)).into_response();
        let websocket = axum::http::HeaderValue::from_static("websocket");
        response.headers_mut().insert(axum::http::header::UPGRADE, websocket);
        return response;
    };
    let upgrade = upgrade.max_message_size(SAID_BYTES).max_frame_size(SAID_BYTES);
    let upgrade = upgrade.read_buffer_size(SAID_BYTES).write_buffer_size(WRITE_BYTES);
    // A browser sends its token as another subprotocol (`guard`).
    upgrade.protocols([ALIS, "muxtap"]).on_upgrade(async move |socket| {
        let streams = app.daemon.streams.clone();
        let (writers, cut) = (streams.writers.clone(), app.cut());
        let session = async move {
            // The stream counts as a connection as long as it lasts.
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
    })
}

/// The longest message of a player, in bytes: it has nothing to say.
const SAID_BYTES: usize = 4 * 1024;
/// Bytes of messages that are gathered before they are written.
const WRITE_BYTES: usize = 32 * 1024;

/// Sends a pane's stream until one of both ends.
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
                // A player says nothing.
                Some(Ok(Message::Close(_))) | None => return Ok(()),
                Some(said) => {
                    said?;
                    continue;
                }
            },
        };
        let Some(message) = message else { break };
        // Who does not read holds up only himself; what he missed then is a gap.
        tokio::time::timeout(SLOW_READER, socket.send(Message::Binary(message.into()))).await??;
    }
    tokio::time::timeout(SLOW_READER, socket.send(Message::Close(None))).await??;
    Ok(())
}
