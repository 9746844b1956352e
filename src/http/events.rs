//! `/v1/events`: Server-Sent Events, resumable by `Last-Event-ID`.

use std::{convert::Infallible, time::Duration};

use axum::{
    http::HeaderMap,
    response::{
        Sse,
        sse::{Event as Message, KeepAlive},
    },
};
use futures_util::{Stream, stream};

use super::{App, described::Failures, error::Params, host};
use crate::{
    api::{Event, EventsRequest, Result, ServerQuery},
    engine::Subscription,
};

/// A comment is sent to a quiet stream this often, so that a reader that has gone is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Streams events.
///
/// Server-Sent Events: `event` is the event's type, `data` the event, and `id` (on `output`) a place to come back to: a
/// reader that sends it as `Last-Event-ID` goes on there.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(ServerQuery, EventsRequest, ("Last-Event-ID" = Option<String>, Header, description = "The last `id` seen")),
    responses((status = 200, description = "A stream of events", body = Event, content_type = "text/event-stream"), Failures)
)]
pub async fn stream(
    app: App,
    Params(server): Params<ServerQuery>,
    Params(request): Params<EventsRequest>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Message, Infallible>>>> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let subscription = app.engine.subscribe(&host(&app, &server)?, &request, last).await?;
    let messages = stream::unfold(subscription, |mut subscription: Subscription| async move {
        let (event, id) = subscription.next().await?;
        Some((Ok(message(&event, id)), subscription))
    });
    Ok(Sse::new(messages).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

fn message(event: &Event, id: Option<String>) -> Message {
    // The type stands in the JSON too; `event:` is for readers that dispatch on it.
    let data = serde_json::to_string(event).unwrap_or_default();
    let message = Message::default().event(kind(event)).data(data);
    match id.filter(|id| !id.is_empty()) {
        Some(id) => message.id(id),
        None => message,
    }
}

const fn kind(event: &Event) -> &'static str {
    match event {
        Event::Output { .. } => "output",
        Event::Screen { .. } => "screen",
        Event::PaneOpened { .. } => "pane-opened",
        Event::PaneExited { .. } => "pane-exited",
        Event::Bell { .. } => "bell",
        Event::Title { .. } => "title",
        Event::Agent(_) => "agent",
        Event::Topology { .. } => "topology",
        Event::Gap { .. } => "gap",
        Event::Server { .. } => "server",
    }
}
