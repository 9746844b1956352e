//! `/v1/events`: Server-Sent Events (WHATWG HTML, "Server-sent events"), resumable by
//! `Last-Event-ID`.

use std::time::Duration;

use axum::{
    Extension,
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use muxtap_engine::{Delivery, Subscription};

use super::{OpenStreamGauge, YIELD_BYTES, later::Later};

use muxtap_api::{Event, EventKind, EventsRequest, Operation, ServerQuery, SubscribeRequest};
use muxtap_net::Streaming;

use crate::{
    error::{Params, last_event_id},
    openapi_parts::Failures,
    server_request::ServerRequest,
};

/// How often a comment is sent on a quiet stream, to detect a reader that has disconnected.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The number of bytes above which an event is not copied together with its id.
const COPIED_BYTES: usize = 16 * 1024;

/// Streams events.
///
/// Server-Sent Events: `event` is the event's type, `data` the event, and `id` a position: a reader
/// that sends it as `Last-Event-ID` continues after that event. The first block has only an `id`.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "stream_events", tag = "events",
    params(ServerQuery, EventsRequest, ("Last-Event-ID" = Option<String>, Header, description = "The last `id` seen")),
    responses(
        (status = 200, description = "A stream of events", body = Event, content_type = "text/event-stream"),
        Failures
    )
)]
pub async fn stream(request: ServerRequest<Params<EventsRequest>>) -> Response {
    request.respond(Operation::Look, |request| async move { Ok(begin(request).await?) }).await
}

async fn begin(request: ServerRequest<Params<EventsRequest>>) -> muxtap_api::Result<impl IntoResponse> {
    let mut subscribe = SubscribeRequest::try_from(request.fields.0.clone())?;
    if let Some(last) = last_event_id(&request.parts.headers)? {
        subscribe.resume = Some(last);
    }
    let subscription = request.server()?.subscribe(&subscribe).await?;
    let later = Later::of(&request.app, &request.parts, &subscribe.panes);
    let body = Body::from_stream(stream::unfold(SseReader::new(subscription, later), SseReader::step));
    // The connection ends with its stream: no other request is handled on it.
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONNECTION, "close"),
    ];
    Ok((Extension(Streaming), headers, body))
}

/// A subscription and the state of its reader.
struct SseReader {
    /// Dropped when another daemon has taken over: it keeps panes' output.
    subscription: Option<Subscription>,
    /// The bytes to write before the next event.
    rest: Option<Bytes>,
    /// The number of bytes since the task last yielded.
    unyielded: usize,
    over: bool,
    /// The position after the last event.
    last: String,
    /// The rest of the stream, once another daemon has taken over.
    later: Later,
    _gauge: OpenStreamGauge,
}

type Piece = std::result::Result<Bytes, axum::Error>;

impl SseReader {
    fn new(mut subscription: Subscription, later: Later) -> Self {
        // A reader that loses the connection before the first event resumes at this id.
        let last = subscription.resume_token();
        let rest = Some(id_line(&last));
        Self {
            subscription: Some(subscription),
            rest,
            unyielded: 0,
            over: false,
            last,
            later,
            _gauge: OpenStreamGauge::new(),
        }
    }

    async fn step(mut self) -> Option<(Piece, Self)> {
        if self.unyielded >= YIELD_BYTES {
            self.unyielded = 0;
            tokio::task::yield_now().await;
        }
        let bytes = match self.rest.take() {
            Some(rest) => rest,
            None if self.over => return None,
            // The positions are handed over meanwhile: no event may be sent after that.
            None if self.later.has_begun().await => {
                if let Some(subscription) = self.subscription.take() {
                    self.later.note_panes(subscription.panes());
                }
                let piece = self.later.next(&mut self.last).await?;
                return Some((piece, self));
            }
            None => match self.next().await {
                // The next step may continue elsewhere.
                Err(Quiet::Long | Quiet::TakenOver) => Bytes::from_static(HEARTBEAT_COMMENT),
                Ok(None) => return None,
                Ok(Some(Ok(delivery))) => self.event(&delivery),
                Ok(Some(Err(error))) => {
                    self.over = true;
                    let data = serde_json::to_string(&error).unwrap_or_default();
                    format!("event: error\ndata: {data}\n\n").into()
                }
            },
        };
        self.unyielded += bytes.len();
        Some((Ok(bytes), self))
    }

    /// Waits for the next event.
    async fn next(&mut self) -> std::result::Result<Option<muxtap_api::Result<Delivery>>, Quiet> {
        let Some(subscription) = &mut self.subscription else { return Ok(None) };
        tokio::select! {
            biased;
            () = self.later.taken_over() => Err(Quiet::TakenOver),
            next = tokio::time::timeout(HEARTBEAT, subscription.next()) => next.map_err(|_| Quiet::Long),
        }
    }

    fn event(&mut self, delivery: &Delivery) -> Bytes {
        if let Some(resume) = &delivery.resume {
            self.last.clone_from(resume);
        }
        let frame = delivery.event.framed(frame);
        let end = delivery.resume.as_deref().map_or(Bytes::from_static(b"\n"), id_line);
        if frame.len() > COPIED_BYTES {
            self.rest = Some(end);
            return frame.clone();
        }
        [frame.as_ref(), end.as_ref()].concat().into()
    }
}

/// Why there is no event.
enum Quiet {
    /// For a long time there was none.
    Long,
    /// Another daemon has taken over.
    TakenOver,
}

/// A comment, which readers ignore.
const HEARTBEAT_COMMENT: &[u8] = b":\n\n";

/// Encodes an event without its id and its end.
fn frame(kind: EventKind, json: &[u8]) -> Bytes {
    [b"event: ", kind.as_str().as_bytes(), b"\ndata: ", json, b"\n"].concat().into()
}

/// Encodes an id and the end of its event.
fn id_line(place: &str) -> Bytes {
    format!("id: {place}\n\n").into()
}
