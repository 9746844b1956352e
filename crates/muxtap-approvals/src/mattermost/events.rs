//! The chat's WebSocket: receives reactions as they happen.

use std::{io, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use super::rest::Reaction;
use muxtap_net::remote::{Address, Wire};

/// The time limit for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The interval between pings.
const PING_EVERY: Duration = Duration::from_secs(30);
/// The time without any message, replies to pings included, after which a connection counts as
/// lost.
const SILENCE: Duration = Duration::from_secs(75);
/// The longest accepted message, in bytes.
const MESSAGE_BYTES: usize = 1 << 20;

/// A connection that is authenticated, or is being authenticated.
pub(super) struct Events {
    socket: WebSocketStream<Box<dyn Wire>>,
    ping: Interval,
    last_received: Instant,
}

/// A message from the server: an event, or a reply to a message that was sent (`seq_reply`).
#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    /// The reaction, as JSON in a string.
    #[serde(default)]
    reaction: Option<String>,
}

impl Events {
    /// Connects and sends the token.
    pub(super) async fn connect(address: &Address, token: &str) -> io::Result<Self> {
        let connect = async {
            let wire = address.connect().await?;
            let mut limits = WebSocketConfig::default();
            limits.max_message_size = Some(MESSAGE_BYTES);
            limits.max_frame_size = Some(MESSAGE_BYTES);
            let (mut socket, _) = client_async_with_config(address.websocket("/api/v4/websocket"), wire, Some(limits))
                .await
                .map_err(io::Error::other)?;
            let challenge = json!({ "seq": 1, "action": "authentication_challenge", "data": { "token": token } });
            socket.send(Message::text(challenge.to_string())).await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(socket)
        };
        let socket = tokio::time::timeout(CONNECT_LIMIT, connect)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "timeout: the WebSocket did not open"))??;
        let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { socket, ping, last_received: Instant::now() })
    }

    /// Returns the next reaction to any post. Error: the connection is lost.
    pub(super) async fn next(&mut self) -> io::Result<Reaction> {
        loop {
            let message = tokio::select! {
                message = self.socket.next() => message,
                _ = self.ping.tick() => {
                    if self.last_received.elapsed() > SILENCE {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "timeout: no data from the WebSocket"));
                    }
                    self.socket.send(Message::Ping(Vec::new().into())).await.map_err(io::Error::other)?;
                    continue;
                }
            };
            let lost = || io::Error::new(io::ErrorKind::UnexpectedEof, "the WebSocket was closed");
            let message = message.ok_or_else(lost)?.map_err(io::Error::other)?;
            self.last_received = Instant::now();
            match message {
                Message::Text(text) => {
                    if let Some(reaction) = read(&text)? {
                        return Ok(reaction);
                    }
                }
                Message::Close(_) => return Err(lost()),
                // The library replies to pings.
                _ => {}
            }
        }
    }
}

/// Returns the reaction in a message, if it has one. Error: the server rejects the token.
fn read(text: &str) -> io::Result<Option<Reaction>> {
    let Ok(frame) = serde_json::from_str::<Frame>(text) else { return Ok(None) };
    if frame.status.as_deref() == Some("FAIL") {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the WebSocket rejected the token"));
    }
    if frame.event.as_deref() != Some("reaction_added") {
        return Ok(None);
    }
    Ok(frame.data.reaction.and_then(|reaction| serde_json::from_str(&reaction).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reactions_are_read() {
        let reaction = json!({ "user_id": "u", "post_id": "p", "emoji_name": "+1", "create_at": 5 }).to_string();
        let event = json!({ "event": "reaction_added", "data": { "reaction": reaction }, "seq": 3 }).to_string();
        let read_one = read(&event).unwrap().unwrap();
        assert_eq!((read_one.user_id.as_str(), read_one.post_id.as_str(), read_one.create_at), ("u", "p", 5));
        for other in [
            r#"{"event":"hello","data":{"server_version":"9"},"seq":0}"#,
            r#"{"status":"OK","seq_reply":1}"#,
            r#"{"event":"reaction_added","data":{"reaction":"{"}}"#,
            r#"{"event":"reaction_added","data":{"reaction":{"user_id":"u"}}}"#,
            r#"{"event":"posted","data":null}"#,
            "[",
        ] {
            assert!(read(other).unwrap().is_none(), "{other}");
        }
        assert!(read(r#"{"status":"FAIL","error":{"id":"x"},"seq_reply":1}"#).is_err());
    }
}
