//! `/v1/page/ws`: a page's connection. `docs/page.md` describes its messages.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code, rejection::WebSocketUpgradeRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures_util::{SinkExt as _, StreamExt as _, stream::SplitSink, stream::SplitStream};
use muxtap_net::{ConnectionPermit, Peer};
use tokio::{sync::mpsc, time::Instant};

use super::pages;

use muxtap_api::{Error, Tier};
use muxtap_engine::Engine;
use muxtap_mcp::call_tool;
use muxtap_page::{Answer, CallTool, Connection, PageSession};

use crate::{App, error::Failure, openapi_parts::Failures};

/// The protocol's name.
const PROTOCOL: &str = "muxtap-page-1";
/// The longest message of a page, in bytes.
const READ_MOST: usize = 1 << 20;
/// The longest message of a page that may not type, in bytes.
const READER_READ_MOST: usize = 64 << 10;
/// The number of bytes read from a page at once, and the number of bytes of messages collected
/// before they are written.
const READ_BYTES: usize = 8 * 1024;
const WRITE_BYTES: usize = 32 * 1024;
/// The number of messages that wait for the socket. Few: a message that is created late is more
/// recent.
const WAITING: usize = 4;
/// The number of a page's messages that wait to be handled. Few: a parsed message takes many times
/// its bytes.
const READ_AHEAD: usize = 4;
/// How long a page may be silent before a ping, and how long the reply may take.
const PING: Duration = Duration::from_secs(30);
const SILENT: Duration = Duration::from_secs(75);

/// Opens a page's connection.
///
/// Each text frame is a JSON object, `type` first; the page begins with `hello`.
#[utoipa::path(
    get, path = "/v1/page/ws", operation_id = "open_page", tag = "page",
    responses(
        (status = 101, description = "The WebSocket is open"),
        (status = 426, description = "Not a WebSocket request", body = muxtap_api::Error),
        Failures
    )
)]
pub async fn open(
    app: App,
    peer: Option<Extension<Peer>>,
    session: Option<Extension<PageSession>>,
    permit: Option<Extension<ConnectionPermit>>,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    if let Err(error) = app.engine.authorize(Tier::Read) {
        return Failure::from(error).into_response();
    }
    let Ok(upgrade) = upgrade else {
        let error = Error::invalid("/v1/page/ws requires a WebSocket upgrade (RFC 6455)");
        let mut response = (StatusCode::UPGRADE_REQUIRED, Json(error)).into_response();
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        return response;
    };
    let session = session.map(|Extension(session)| session);
    let is_local = matches!(peer, Some(Extension(Peer::Unix { .. })));
    let may_all = session.as_ref().map_or(is_local, |session| !session.reads_only);
    let may_type = app.engine.tiers().any(|tier| tier == Tier::Input);
    let most = if may_type { READ_MOST } else { READER_READ_MOST };
    let upgrade = upgrade.protocols([PROTOCOL]).max_message_size(most).max_frame_size(most);
    let upgrade = upgrade.read_buffer_size(READ_BYTES).write_buffer_size(WRITE_BYTES);
    upgrade.on_upgrade(async move |socket| {
        let streams = app.daemon.streams.clone();
        let (writers, cut) = (streams.writers.clone(), app.cut());
        let pages = pages(&app).clone();
        let mut stop = app.daemon.stop.subscribe();
        let served = async move {
            // The page counts as a connection while it is open.
            let _permit = permit;
            let (out, messages) = mpsc::channel(WAITING);
            let (rooms, context) = (app.rooms().clone(), app.daemon.about.agents.clone());
            let approvals = rooms.approvals.clone();
            let call_tool: CallTool = Arc::new(move |engine, name, arguments| {
                let context = (rooms.clone(), context.clone());
                Box::pin(async move { call_tool(&engine, context, (&name, arguments), None, None).await })
            });
            let connection = Connection::new(pages, app.engine.clone(), approvals, call_tool, may_all, out);
            tokio::select! {
                () = serve(socket, connection, messages, &app.engine) => {}
                () = cut => {}
                // The sender lives as long as the daemon.
                _ = stop.wait_for(|stop| *stop) => {}
            }
        };
        streams.open.spawn_on(served, &writers);
    })
}

/// Passes messages in both directions until either end closes.
async fn serve(socket: WebSocket, connection: Connection, out: mpsc::Receiver<Answer>, engine: &Engine) {
    let (writer, reader) = socket.split();
    let (incoming, messages) = mpsc::channel(READ_AHEAD);
    let (say, said) = mpsc::channel(1);
    let connection = connection.serve(messages);
    let reading = read(reader, incoming, say, engine);
    let writing = write(writer, out, said);
    // The connection ends when the page closes (`reading` ends), and the writer after the last
    // message.
    tokio::join!(connection, reading, writing);
}

/// Reads messages until the page closes, or sends an invalid one; then gives the reason for
/// closing.
async fn read(
    mut reader: SplitStream<WebSocket>,
    incoming: mpsc::Sender<serde_json::Value>,
    say: mpsc::Sender<Message>,
    engine: &Engine,
) {
    let mut heard = Instant::now();
    let close = |code, reason: &'static str| Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let why = loop {
        let message = tokio::select! {
            message = reader.next() => message,
            () = tokio::time::sleep(PING), if !incoming.is_closed() => {
                if heard.elapsed() >= SILENT {
                    break None;
                }
                // An unwritten ping still counts as one.
                let _ = say.try_send(Message::Ping(axum::body::Bytes::new()));
                continue;
            }
            () = incoming.closed() => break Some(close(ended(engine), "")),
        };
        heard = Instant::now();
        match message {
            Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                Ok(message) => {
                    if incoming.send(message).await.is_err() {
                        break Some(close(ended(engine), ""));
                    }
                }
                Err(_) => break Some(close(close_code::INVALID, "expected a JSON object")),
            },
            Some(Ok(Message::Binary(_))) => break Some(close(close_code::INVALID, "expected a text message")),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Err(error)) if is_too_long(&error) => {
                let why = "message too long: at most 1 MiB, or 64 KiB from a page that is not allowed to type";
                break Some(close(close_code::SIZE, why));
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => break None,
        }
    };
    if let Some(why) = why {
        let _ = say.send(why).await;
    }
}

/// Returns the code with which a connection ends that the page did not end.
fn ended(engine: &Engine) -> u16 {
    if engine.waits_have_left() { close_code::RESTART } else { close_code::NORMAL }
}

fn is_too_long(error: &axum::Error) -> bool {
    use std::error::Error as _;
    let source = error.source().and_then(|source| source.downcast_ref::<tokio_tungstenite::tungstenite::Error>());
    matches!(source, Some(tokio_tungstenite::tungstenite::Error::Capacity(_)))
}

/// Writes messages until none are left, or the socket accepts none.
async fn write(
    mut writer: SplitSink<WebSocket, Message>,
    mut out: mpsc::Receiver<Answer>,
    mut said: mpsc::Receiver<Message>,
) {
    loop {
        // The share counts until the socket has accepted the message.
        let (message, _share) = tokio::select! {
            biased;
            answer = out.recv() => match answer {
                Some(Answer { text, share }) => (Message::Text(text.into()), share),
                // The connection has ended: the reader's reason comes last.
                None => match said.recv().await {
                    Some(message) => (message, None),
                    None => break,
                },
            },
            Some(message) = said.recv() => (message, None),
        };
        if writer.send(message).await.is_err() {
            return;
        }
    }
    let _ = writer.close().await;
}
