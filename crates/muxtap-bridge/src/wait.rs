//! `wait_for`: capture, match, sleep until the pane changes. Nothing is polled.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use muxtap_engine::{PaneState, sync::watch::Receiver};
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{
    capture_cache::{CaptureCache, CaptureSpec},
    js::JsString,
    live::{FoundSession, Live, is_gone},
    pattern::Pattern,
    request::Request,
    response::{ActionOutput, HttpError},
};

use muxtap_api::{ReadFormat, ReadRequest, Result};

/// The time that a slow match may continue on a capture that is outdated because the pane changed.
const OUTDATED_LIMIT: Duration = Duration::from_secs(1);
/// The bytes of output after the input that one match may span.
const OUTPUT_BYTES: u64 = 256 * 1024;

/// The result of one check.
enum CheckOutcome {
    /// The pattern matches; the capture, as JSON.
    Matched(Arc<RawValue>),
    /// No match yet.
    NotYet,
    /// The pane no longer exists.
    Gone,
}

/// Builds the error for a `wait_for` that timed out.
pub(super) fn wait_timed_out(request: &Request) -> HttpError {
    let message = format!("wait_for regex did not match before timeout ({}ms).", request.timeout.as_millis());
    HttpError::new(StatusCode::REQUEST_TIMEOUT, message)
}

impl Live {
    /// Waits until the session's screen matches. `before`: the cursor before the input.
    pub(super) async fn wait(
        &self,
        found: FoundSession,
        request: &Request,
        pattern: &Arc<Pattern>,
        before: String,
    ) -> Result<ActionOutput, HttpError> {
        let watched = self.watch(found, request, pattern, before);
        tokio::select! {
            watched = timeout(request.timeout, watched) => watched.unwrap_or_else(|_| Err(wait_timed_out(request))),
            () = self.engine.stopping() => Err(HttpError::stopping()),
        }
    }

    async fn watch(
        &self,
        mut found: FoundSession,
        request: &Request,
        pattern: &Arc<Pattern>,
        before: String,
    ) -> Result<ActionOutput, HttpError> {
        let mut since = request.from_send.then_some(before);
        loop {
            let mut changes = found.pane.changes();
            let outcome = self.until_matched(&found.pane, request, pattern, &mut since, &mut changes).await?;
            if let Some(json) = outcome {
                return Ok(ActionOutput::output(&found.name, json));
            }
            // The session may have another active pane, which may match.
            let next = self.find(&request.session).await?;
            if Arc::ptr_eq(&next.pane, &found.pane) {
                // tmux is about to close the pane, or keeps it open for its owner
                // (`remain-on-exit`).
                self.server()?.host().until_unlisted(next.pane.id()).await;
            } else if since.is_some() {
                // All output of this pane comes after the input.
                since = Some("start".to_owned());
            }
            found = next;
        }
    }

    /// Returns the capture that matches; `None` if the pane has ended.
    async fn until_matched(
        &self,
        pane: &Arc<PaneState>,
        request: &Request,
        pattern: &Arc<Pattern>,
        since: &mut Option<String>,
        changes: &mut Receiver<u64>,
    ) -> Result<Option<Arc<RawValue>>, HttpError> {
        // Held between checks, together with its computed results.
        let cache = self.caches.get(pane, CaptureSpec::of(request));
        loop {
            changes.borrow_and_update();
            let ended = pane.exit().is_some();
            let outcome = self.check(&cache, pattern, since, changes.clone()).await?;
            match outcome {
                CheckOutcome::Matched(json) => return Ok(Some(json)),
                CheckOutcome::Gone => return Ok(None),
                CheckOutcome::NotYet if ended => return Ok(None),
                CheckOutcome::NotYet => {}
            }
            if changes.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    async fn check(
        &self,
        cache: &CaptureCache,
        pattern: &Arc<Pattern>,
        since: &mut Option<String>,
        mut changes: Receiver<u64>,
    ) -> Result<CheckOutcome, HttpError> {
        if let Some(since) = since
            && !self.is_in_output(cache.pane(), pattern, since).await?
        {
            return Ok(CheckOutcome::NotYet);
        }
        let server = self.server()?;
        let capture = match self.with_timeout(cache.capture(&server)).await? {
            Ok(capture) => capture,
            Err(error) if is_gone(&error) => return Ok(CheckOutcome::Gone),
            Err(error) => return Err(self.refusal(&error)),
        };
        let outdated = async {
            // The sender lives as long as the pane.
            let _ = changes.changed().await;
            tokio::time::sleep(OUTDATED_LIMIT).await;
            pattern.until_slow().await;
        };
        let matched = since.is_some()
            || tokio::select! {
                matched = capture.is_match(pattern, &self.pool) => matched,
                () = outdated => false,
            };
        Ok(if matched { CheckOutcome::Matched(capture.json()) } else { CheckOutcome::NotYet })
    }

    /// Returns whether the output after `since` matches. The older part of long output is searched
    /// once and then skipped.
    async fn is_in_output(
        &self,
        pane: &Arc<PaneState>,
        pattern: &Pattern,
        since: &mut String,
    ) -> Result<bool, HttpError> {
        let server = self.server()?;
        loop {
            let request = ReadRequest {
                since: Some(since.clone()),
                format: ReadFormat::Text,
                max_bytes: Some(OUTPUT_BYTES),
                ..ReadRequest::default()
            };
            let read = match self.with_timeout(server.read(&pane.id().to_string(), &request)).await? {
                Ok(read) => read,
                // The pane has ended; the capture will report that.
                Err(error) if is_gone(&error) => return Ok(false),
                Err(error) => return Err(self.refusal(&error)),
            };
            let text = JsString::from(read.text.unwrap_or_default().as_str());
            if self.pool.is_match(pattern, &text).await {
                return Ok(true);
            }
            if !read.more {
                return Ok(false);
            }
            *since = read.cursor.to_string();
        }
    }
}
