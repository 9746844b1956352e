//! `/v1/devices/ws`: the connection of a device. `docs/devices.md` describes its messages.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Bytes,
    extract::ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    response::{IntoResponse as _, Response},
};
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use muxtap_base::clock;
use muxtap_devices::{
    BoundDevice, Caller, DeviceSessions, Outbox, Relay, Session,
    relay::{Beat, Flow, HELLO_TIME},
    wire::{self, Hello},
};
use muxtap_net::{ConnectionPermit, Peer};
use tokio::{
    sync::Notify,
    time::{sleep_until, timeout},
};

use super::{Asking, agents::AgentPlane, bound, log_in_first, no_websocket};

use muxtap_api::{DeviceScope, Error, ErrorCode, Result, Tier};

use crate::{App, error::Failure};

/// The longest message that is read, in bytes; a longer one closes the connection. A snapshot above
/// the limit for storing gets an error that names the limit.
const READ_MOST: usize = 4 << 20;
/// The number of bytes read at once. A buffer of this size is cleared before each read: the usual
/// 128 KiB cost more than everything else that is done for a message.
const READ_BUFFER: usize = 4 << 10;
/// The number of bytes of messages that are written at once.
const WRITE_BUFFER: usize = 16 << 10;
/// How long a device may take to receive a message.
const SLOW_READER: Duration = Duration::from_secs(10);

/// Opens a device's connection.
///
/// Each text frame is a JSON object, `type` first; the device begins with `hello`.
#[utoipa::path(
    get, path = "/v1/devices/ws", operation_id = "open_device", tag = "devices",
    responses(
        (status = 101, description = "The WebSocket is open"),
        (status = 426, description = "Not a WebSocket request", body = muxtap_api::Error),
        super::super::openapi_parts::Failures
    )
)]
pub async fn open(
    app: App,
    Asking(caller): Asking,
    peer: Option<Extension<Peer>>,
    permit: Option<Extension<ConnectionPermit>>,
    bound_device: Option<Extension<BoundDevice>>,
    page: Option<Extension<muxtap_page::PageSession>>,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    if let Err(error) = app.engine.authorize(Tier::Read) {
        return Failure::from(error).into_response();
    }
    let Ok(upgrade) = upgrade else { return no_websocket() };
    // A page's cookie authorizes as the user, like the Unix socket.
    let is_page = page.is_some_and(|Extension(page)| !page.reads_only);
    let at = Place {
        over_tcp: matches!(peer, Some(Extension(Peer::Tcp { .. } | Peer::Fleet))) && !is_page,
        reads_only: app.engine.authorize(Tier::Create).is_err(),
        has_terminals: bound_device.is_none_or(|Extension(device)| device.has(DeviceScope::Terminals)),
    };
    // A browser sends its token as another subprotocol (`guard`).
    let upgrade = upgrade.protocols(["muxtap"]).max_message_size(READ_MOST).max_frame_size(READ_MOST);
    let upgrade = upgrade.read_buffer_size(READ_BUFFER).write_buffer_size(WRITE_BUFFER);
    upgrade.on_upgrade(async move |socket| {
        let streams = app.daemon.streams.clone();
        let (runtime, cut) = (streams.engine_runtime.clone(), app.cut());
        let devices = app.rooms().devices.clone();
        let mut stop = app.daemon.stop.subscribe();
        let session = async move {
            // The device counts as a connection while it is connected.
            let _permit = permit;
            tokio::select! {
                () = serve(socket, app, devices.relay, devices.sessions, caller, at) => {}
                () = cut => {}
                // The sender lives as long as the daemon.
                _ = stop.wait_for(|stop| *stop) => {}
            }
        };
        streams.open.spawn_on(session, &runtime);
    })
}

/// Facts about a connection.
#[derive(Clone, Copy)]
struct Place {
    over_tcp: bool,
    /// Whether this muxtap allows no changes: a device may then request none from others.
    reads_only: bool,
    /// Whether the connection may use terminals and agents, apart from a token in its `hello`.
    has_terminals: bool,
}

/// Serves a device to its end.
async fn serve(mut socket: WebSocket, app: App, relay: Relay, sessions: DeviceSessions, caller: Caller, at: Place) {
    let begun = match timeout(HELLO_TIME, socket.next()).await {
        Ok(Some(Ok(Message::Text(text)))) => begin(&relay, &sessions, caller, at, &text),
        Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return,
        Ok(Some(Ok(_))) => Err(Error::invalid("expected `hello` as the first message, in a text frame")),
        Err(_) => Err(Error::new(ErrorCode::Timeout, "no `hello` received in time")),
    };
    match begun {
        Ok((session, has_terminals)) => {
            tracing::debug!("device {} connected", session.device());
            let agents = AgentPlane::new(app, session.outbox().clone(), has_terminals);
            run(&mut socket, session, &agents).await;
        }
        Err(error) => {
            let _ = send(&mut socket, Message::Text(wire::error(&error).as_ref().into())).await;
        }
    }
    let _ = send(&mut socket, Message::Close(None)).await;
}

/// Begins a device's connection with its `hello`. Also returns whether it may use terminals and
/// agents.
fn begin(relay: &Relay, sessions: &DeviceSessions, caller: Caller, at: Place, text: &str) -> Result<(Session, bool)> {
    let mut has_terminals = at.has_terminals;
    let hello = Hello::parse(text)?;
    let mut caller = match &hello.token {
        Some(token) => {
            let device = sessions.verify(token, clock::now_ms());
            let device = device.ok_or_else(|| Error::new(ErrorCode::Unauthorized, "token: invalid or expired"))?;
            // A token of another principal is rejected: it cannot change the caller's identity.
            if device.principal != caller.principal {
                return Err(Error::new(ErrorCode::Unauthorized, "token: belongs to another principal"));
            }
            has_terminals = device.has(DeviceScope::Terminals);
            bound(&device)
        }
        None if at.over_tcp && caller.device.is_none() => return Err(log_in_first()),
        None => caller,
    };
    caller.read_only = at.reads_only;
    let session = relay.connect(&caller, &hello)?;
    // The session may have been revoked during connection setup.
    if caller.family.as_ref().is_some_and(|family| !sessions.has(family)) {
        return Err(Error::new(ErrorCode::Unauthorized, "token: no longer valid"));
    }
    Ok((session, has_terminals))
}

/// Passes messages in both directions until either end closes. The device's messages are read even
/// while it is slow to receive.
async fn run(socket: &mut WebSocket, session: Session, agents: &AgentPlane) {
    let (mut sink, mut stream) = socket.split();
    let (outbox, ping) = (session.outbox().clone(), Notify::new());
    let mut writing = std::pin::pin!(write(&mut sink, &outbox, &ping));
    let flow = tokio::select! {
        () = &mut writing => return,
        flow = read(&mut stream, session, agents, &ping) => flow,
    };
    // Queued messages are sent before the connection ends.
    if flow == Some(Flow::End) {
        writing.await;
    }
}

/// Sends a device's queued messages, and pings, until no more may come or the device accepts none.
async fn write<S: Sink<Message> + Unpin>(sink: &mut S, outbox: &Outbox, ping: &Notify) {
    let mut batch = Vec::new();
    loop {
        let more = tokio::select! {
            more = outbox.next_batch(&mut batch) => more,
            () = ping.notified() => {
                if send(sink, Message::Ping(Bytes::new())).await.is_err() {
                    return;
                }
                continue;
            }
        };
        if send_all(sink, &mut batch).await.is_err() || !more {
            return;
        }
    }
}

/// Handles a device's messages until it disconnects (`None`) or its connection must end.
async fn read<E>(
    stream: &mut (impl Stream<Item = std::result::Result<Message, E>> + Unpin),
    mut session: Session,
    agents: &AgentPlane,
    ping: &Notify,
) -> Option<Flow> {
    let mut beat = std::pin::pin!(sleep_until(session.next_beat()));
    loop {
        tokio::select! {
            message = stream.next() => match message {
                Some(Ok(Message::Text(text))) if agents.take(&text) => session.heard(),
                Some(Ok(Message::Text(text))) => {
                    if session.receive(&text).await == Flow::End {
                        return Some(Flow::End);
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => session.heard(),
            },
            () = &mut beat => {
                match session.beat() {
                    Beat::Quiet => {}
                    Beat::Ping => ping.notify_one(),
                    Beat::End => return None,
                }
                beat.as_mut().reset(session.next_beat());
            }
        }
    }
}

/// Sends messages together. Error: the device does not accept them.
async fn send_all<S: Sink<Message> + Unpin>(sink: &mut S, batch: &mut Vec<Arc<str>>) -> std::result::Result<(), ()> {
    for text in batch.drain(..) {
        let fed = timeout(SLOW_READER, sink.feed(Message::Text(text.as_ref().into()))).await;
        fed.map_err(|_| ())?.map_err(|_| ())?;
    }
    timeout(SLOW_READER, sink.flush()).await.map_err(|_| ())?.map_err(|_| ())
}

/// Sends a message. Error: the device does not accept it.
async fn send<S: Sink<Message> + Unpin>(sink: &mut S, message: Message) -> std::result::Result<(), ()> {
    match timeout(SLOW_READER, sink.send(message)).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(()),
    }
}
