//! `/v1/stream`: a WebSocket (RFC 6455) with many subscriptions, and input. `docs/http.md`
//! describes the protocol.

mod session;

use axum::{
    Extension, Json,
    extract::ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use muxtap_api::{Error, ServerQuery};
use muxtap_net::ConnectionPermit;

use crate::{App, error::Params};

/// The longest request that is handled, in bytes; a longer one is rejected.
const MESSAGE_BYTES: usize = 1024 * 1024;
/// The longest message that is read at all, in bytes; a longer one closes the connection, even
/// while its client is still writing.
const READ_MOST: usize = 4 * 1024 * 1024;
/// The number of bytes read from a client at once.
const READ_BYTES: usize = 8 * 1024;
/// The number of bytes of messages that are collected before they are written.
const WRITE_BYTES: usize = 32 * 1024;

/// Opens a WebSocket.
///
/// Each text frame is a JSON object: a `StreamRequest` from the client, a `StreamMessage` from the
/// daemon.
#[utoipa::path(
    get, path = "/v1/stream", operation_id = "open_stream", tag = "events",
    params(("socket" = Option<String>, Query, description = "The tmux server of messages without a `socket`")),
    responses(
        (status = 101, description = "The WebSocket is open"),
        (status = 400, description = "A malformed WebSocket upgrade (RFC 6455)", body = muxtap_api::Error),
        (status = 426, description = "Not a WebSocket request", body = muxtap_api::Error)
    )
)]
pub async fn stream(
    app: App,
    Params(server): Params<ServerQuery>,
    permit: Option<Extension<ConnectionPermit>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return refused(&headers, &rejection),
    };
    // A browser sends its token as a further subprotocol (`guard`), and needs to know which was
    // selected.
    let upgrade = upgrade.protocols(["muxtap"]);
    let upgrade = upgrade.max_message_size(READ_MOST).max_frame_size(READ_MOST);
    let upgrade = upgrade.read_buffer_size(READ_BYTES).write_buffer_size(WRITE_BYTES);
    upgrade.on_upgrade(async move |socket| {
        let streams = app.daemon.streams.clone();
        let (writers, cut) = (streams.writers.clone(), app.cut());
        let session = async move {
            // The session counts as a connection while it lasts.
            let _permit = permit;
            tokio::select! {
                () = session::run(socket, app, server) => {}
                () = cut => {}
            }
        };
        streams.open.spawn_on(session, &writers);
    })
}

fn refused(headers: &HeaderMap, rejection: &WebSocketUpgradeRejection) -> Response {
    let asked = headers.contains_key(header::UPGRADE) || headers.contains_key(header::SEC_WEBSOCKET_KEY);
    let status = if asked { StatusCode::BAD_REQUEST } else { StatusCode::UPGRADE_REQUIRED };
    let error = Error::invalid(format!("/v1/stream requires a WebSocket upgrade (RFC 6455): {}", missing(rejection)));
    let mut response = (status, Json(error)).into_response();
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

/// Returns what is missing in a request for a WebSocket.
fn missing(rejection: &WebSocketUpgradeRejection) -> &'static str {
    match rejection {
        WebSocketUpgradeRejection::MethodNotGet(_) | WebSocketUpgradeRejection::MethodNotConnect(_) => {
            "expected the method GET"
        }
        WebSocketUpgradeRejection::InvalidConnectionHeader(_) => "expected the header `Connection: upgrade`",
        WebSocketUpgradeRejection::InvalidUpgradeHeader(_) => "expected the header `Upgrade: websocket`",
        WebSocketUpgradeRejection::InvalidWebSocketVersionHeader(_) => {
            "expected the header `Sec-WebSocket-Version: 13`"
        }
        WebSocketUpgradeRejection::WebSocketKeyHeaderMissing(_) => "expected the header `Sec-WebSocket-Key`",
        _ => "this connection cannot be upgraded; use HTTP/1.1",
    }
}
