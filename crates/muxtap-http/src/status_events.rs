//! `/v1/status/events`: the daemon's status after each change.

use std::{convert::Infallible, time::Duration};

use axum::response::{
    IntoResponse as _, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::stream;
use muxtap_engine::Changes;

use super::{App, error::Result, openapi_parts::Failures, routes::status_now};

use muxtap_api::{Error, StatusAnswer};

/// How long changes are collected before they are sent as one.
const BETWEEN: Duration = Duration::from_millis(100);

/// Streams the daemon's status after each change.
///
/// Server-Sent Events: `data` is the response of `GET /v1/status`, sent at once and whenever a
/// server, its sessions, windows or panes, or the open waits have changed.
#[utoipa::path(
    get, path = "/v1/status/events", operation_id = "watch_status", tag = "daemon",
    responses(
        (status = 200, description = "A stream of states", body = StatusAnswer, content_type = "text/event-stream"),
        Failures
    )
)]
pub async fn stream(app: App) -> Result<Response> {
    // If a stream ended at once, its reader would reconnect at once.
    if app.engine.is_stopping() {
        return Err(Error::unavailable("muxtap is stopping").into());
    }
    let watcher = Watcher { changes: app.engine.changes(), app, begun: false };
    let states = stream::unfold(watcher, |mut watcher| async move {
        let status = watcher.next().await?;
        let event = Event::default().data(serde_json::to_string(&status).unwrap_or_default());
        Some((Ok::<_, Infallible>(event), watcher))
    });
    Ok(Sse::new(states).keep_alive(KeepAlive::default()).into_response())
}

struct Watcher {
    app: App,
    changes: Changes,
    begun: bool,
}

impl Watcher {
    async fn next(&mut self) -> Option<StatusAnswer> {
        if std::mem::replace(&mut self.begun, true) {
            self.changes.next().await?;
            tokio::select! {
                () = tokio::time::sleep(BETWEEN) => {}
                () = self.app.engine.stopping() => return None,
            }
            self.changes.forget();
        }
        Some(status_now(&self.app, None))
    }
}
