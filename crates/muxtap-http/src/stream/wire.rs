//! Encoding and decoding of the WebSocket's messages.

use axum::extract::ws::{Message, Utf8Bytes};
use bytes::{BufMut as _, Bytes, BytesMut};
use muxtap_api::{Error, StreamAnswer, StreamMessage, StreamRequest, StreamWait, decode::Node};
use muxtap_engine::Delivery;

/// The name of a request in errors.
const WHOLE: &str = "message";
/// The values of `op`.
const OPS: [&str; 6] = ["subscribe", "unsubscribe", "input", "wait", "cancel", "ping"];

/// Parses a request. Error: the message that rejects it.
pub(super) fn read(text: &str) -> Result<StreamRequest, Box<StreamMessage>> {
    let mut id = None;
    parse(text, &mut id).map_err(|error| Box::new(StreamMessage::Failed { id, error }))
}

fn parse(text: &str, id: &mut Option<u64>) -> Result<StreamRequest, Error> {
    let mut request = Node::parse(WHOLE, text.as_bytes())?;
    *id = request.number("id");
    let op = request.take("op");
    let expected = || format!("expected one of {}", OPS.join(", "));
    let Some(op) = op else {
        // Anything but an object is an error here.
        let Fields {} = request.read(WHOLE)?;
        return Err(Error::invalid(format!("op: {}, got nothing", expected())));
    };
    Ok(match op.text() {
        Some("subscribe") => StreamRequest::Subscribe(request.read(WHOLE)?),
        Some("unsubscribe") => StreamRequest::Unsubscribe(request.read(WHOLE)?),
        Some("input") => StreamRequest::Input(request.read(WHOLE)?),
        Some("wait") => StreamRequest::Wait(Box::new(read_wait(request)?)),
        Some("cancel") => StreamRequest::Cancel(request.read(WHOLE)?),
        Some("ping") => StreamRequest::Ping(request.read(WHOLE)?),
        _ => return Err(Error::invalid(format!("op: {}, got {}", expected(), op.shown()))),
    })
}

/// Reads a wait. Its fields beyond those of `POST /v1/waits` are removed first, so all others are
/// known.
fn read_wait(mut request: Node) -> Result<StreamWait, Error> {
    #[derive(serde::Deserialize)]
    struct Head {
        id: u64,
        socket: Option<String>,
    }

    let Head { id, socket } = request.clone().read(WHOLE)?;
    request.take("id");
    request.take("socket");
    let mut wait = StreamWait::default();
    (wait.id, wait.socket, wait.request) = (id, socket, request.read(WHOLE)?);
    if wait.request.detach {
        return Err(Error::invalid(
            "detach: a wait over a WebSocket ends with it; leave it out, or use POST /v1/waits",
        ));
    }
    Ok(wait)
}

/// Any object.
#[derive(serde::Deserialize)]
struct Fields {}

/// Builds the response to a request.
pub(super) fn answer(id: Option<u64>, answer: Result<StreamAnswer, Error>) -> StreamMessage {
    match answer {
        Ok(ok) => StreamMessage::Done { id, ok },
        Err(error) => StreamMessage::Failed { id, error },
    }
}

/// Encodes a message for one reader.
pub(super) fn write(message: &StreamMessage) -> Message {
    // These types can always be serialized.
    Message::Text(serde_json::to_string(message).unwrap_or_default().into())
}

/// Encodes an event of a subscription; raw output in a binary frame if requested.
pub(super) fn event(sub: u64, delivery: &Delivery, binary: bool) -> Message {
    let binary = delivery.event.binary().filter(|_| binary);
    let json = binary.map_or_else(|| delivery.event.json(), |(head, _)| head);
    let sub = sub.to_string();
    let resume = delivery.resume.as_deref();
    let length = 32 + sub.len() + json.len() + resume.map_or(0, |resume| resume.len() + 16);
    let mut text = BytesMut::with_capacity(length + binary.map_or(0, |(_, bytes)| bytes.len() + 4));
    if binary.is_some() {
        text.put_u32(0);
    }
    text.put_slice(b"{\"sub\":");
    text.put_slice(sub.as_bytes());
    text.put_slice(b",\"event\":");
    text.put_slice(json);
    if let Some(resume) = resume {
        text.put_slice(b",\"resume\":\"");
        // The token has only letters, digits, dots and underscores.
        text.put_slice(resume.as_bytes());
        text.put_slice(b"\"");
    }
    text.put_slice(b"}");
    let Some((_, bytes)) = binary else {
        return Message::Text(Utf8Bytes::try_from(Bytes::from(text)).unwrap_or_default());
    };
    let head = (text.len() - 4) as u32;
    text.iter_mut().zip(head.to_be_bytes()).for_each(|(to, from)| *to = from);
    text.put_slice(bytes);
    Message::Binary(text.into())
}
