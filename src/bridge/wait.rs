//! `wait_for`: look, match, sleep until the pane changes. Nothing is asked on a timer.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use tokio::{sync::watch, time::timeout};

use super::{
    answer::Refusal,
    backend::Done,
    live::{Found, Live, is_gone},
    pattern::{Haystack, Pattern},
    request::Request,
    sight::{Shape, Sight},
};
use crate::{
    api::{ReadFormat, ReadRequest, Result},
    engine::Pane,
};

/// How long a match that is sought in what a pane showed may go on when the pane shows something else by now.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of output after the input in which one match must lie.
const OUTPUT_BYTES: u64 = 256 * 1024;

/// What became of a look at a pane.
enum Look {
    /// It matches; this is what the pane shows, as JSON.
    Matched(Arc<str>),
    /// Not yet.
    NotYet,
    /// The pane is not there any more.
    Gone,
}

/// The answer to a `wait_for` that did not match in time.
pub(super) fn too_late(request: &Request) -> Refusal {
    let message = format!("wait_for regex did not match before timeout ({}ms).", request.timeout.as_millis());
    Refusal::new(StatusCode::REQUEST_TIMEOUT, message)
}

impl Live {
    /// Waits until what the session shows matches. `before`: where its output stood before the input.
    pub(super) async fn wait(
        &self,
        found: Found,
        request: &Request,
        pattern: &Arc<Pattern>,
        before: String,
    ) -> Result<Done, Refusal> {
        let watched = self.watch(found, request, pattern, before);
        tokio::select! {
            watched = timeout(request.timeout, watched) => watched.unwrap_or_else(|_| Err(too_late(request))),
            () = self.engine.stopping() => Err(Refusal::stopping()),
        }
    }

    async fn watch(
        &self,
        mut found: Found,
        request: &Request,
        pattern: &Arc<Pattern>,
        before: String,
    ) -> Result<Done, Refusal> {
        let mut since = request.from_send.then_some(before);
        loop {
            let mut changes = found.pane.changes();
            let looked = self.until_matched(&found.pane, request, pattern, &mut since, &mut changes).await?;
            if let Some(json) = looked {
                return Ok(Done::output(&found.name, json));
            }
            // The session may have another pane, and in it what is waited for.
            let next = self.find(&request.session).await?;
            if Arc::ptr_eq(&next.pane, &found.pane) {
                // tmux is about to close it, or keeps it for its owner to see.
                self.host()?.until_unlisted(next.pane.id()).await;
            } else if since.is_some() {
                // All that this one prints is from after the input.
                since = Some("start".to_owned());
            }
            found = next;
        }
    }

    /// What the pane shows when it matches; `None` when the pane has ended.
    async fn until_matched(
        &self,
        pane: &Arc<Pane>,
        request: &Request,
        pattern: &Arc<Pattern>,
        since: &mut Option<String>,
        changes: &mut watch::Receiver<u64>,
    ) -> Result<Option<Arc<str>>, Refusal> {
        // Kept from look to look, with what it knows.
        let sight = self.sights.of(pane, Shape::of(request));
        loop {
            changes.borrow_and_update();
            let ended = pane.exit().is_some();
            let looked = {
                let mut seen = changes.clone();
                let impatience = async {
                    // The sender lives as long as the pane.
                    let _ = seen.changed().await;
                    tokio::time::sleep(PATIENCE).await;
                };
                tokio::select! {
                    looked = self.look(&sight, pattern, since) => looked?,
                    () = impatience => Look::NotYet,
                }
            };
            match looked {
                Look::Matched(json) => return Ok(Some(json)),
                Look::Gone => return Ok(None),
                Look::NotYet if ended => return Ok(None),
                Look::NotYet => {}
            }
            if changes.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    async fn look(&self, sight: &Sight, pattern: &Arc<Pattern>, since: &mut Option<String>) -> Result<Look, Refusal> {
        if let Some(since) = since
            && !self.is_in_output(sight.pane(), pattern, since).await?
        {
            return Ok(Look::NotYet);
        }
        let host = self.host()?;
        let view = match self.within(sight.look(&self.engine, &host)).await? {
            Ok(view) => view,
            Err(error) if is_gone(&error) => return Ok(Look::Gone),
            Err(error) => return Err(self.refusal(&error)),
        };
        let matched = since.is_some() || view.is_match(pattern, &self.pool).await;
        Ok(if matched { Look::Matched(view.json()) } else { Look::NotYet })
    }

    /// Whether the output after `since` matches. Of much output the older part is looked at once and then left behind.
    async fn is_in_output(&self, pane: &Arc<Pane>, pattern: &Pattern, since: &mut String) -> Result<bool, Refusal> {
        let host = self.host()?;
        loop {
            let request = ReadRequest {
                since: Some(since.clone()),
                format: ReadFormat::Text,
                max_bytes: Some(OUTPUT_BYTES),
                wait_ms: None,
            };
            let read = match self.within(self.engine.read(&host, &pane.id().to_string(), &request)).await? {
                Ok(read) => read,
                // It has gone; whoever looks at what it shows finds out.
                Err(error) if is_gone(&error) => return Ok(false),
                Err(error) => return Err(self.refusal(&error)),
            };
            if pattern.is_match(&Haystack::from(read.text.unwrap_or_default()), &self.pool).await {
                return Ok(true);
            }
            if !read.more {
                return Ok(false);
            }
            *since = read.cursor;
        }
    }
}
