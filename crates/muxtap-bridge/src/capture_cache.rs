//! Captures of a pane, shared by all waits that need the same one.
//!
//! A thousand waits on one pane wake at each change. The first one captures, and the first one with
//! a given pattern matches it; the others reuse the result.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Instant,
};

use muxtap_engine::{PaneState, Revision, Server};
use serde_json::value::RawValue;
use tokio::sync::OnceCell;

use super::{
    js::{self, JsString},
    pattern::{Pattern, Pool},
};

use muxtap_api::{CaptureRequest, CaptureSource, Result};

/// Which part of a pane is captured, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CaptureSpec {
    /// Lines of history above the screen.
    pub lines: u32,
    /// Whether wrapped lines are joined.
    pub join: bool,
}

/// A pane's screen and history at one time.
pub struct Capture {
    text: String,
    units: OnceLock<JsString>,
    json: OnceLock<Arc<RawValue>>,
    /// The time at which the capture was requested.
    asked: Instant,
    /// The revision of the pane that the capture shows, if known.
    point: Option<Revision>,
    matches: Mutex<HashMap<usize, MatchCell>>,
}

/// Whether a pattern matches, computed once. The pattern is held so that its address is not reused.
type MatchCell = (Arc<Pattern>, Arc<OnceCell<bool>>);

/// The last capture of one pane in one form.
pub struct CaptureCache {
    pane: Arc<PaneState>,
    spec: CaptureSpec,
    last: tokio::sync::Mutex<Option<Arc<Capture>>>,
}

/// All captures in use.
#[derive(Default)]
pub struct CaptureCaches {
    caches: Mutex<HashMap<(usize, CaptureSpec), Weak<CaptureCache>>>,
}

impl CaptureCaches {
    /// Returns the cache of a pane and form, shared with its other users.
    pub fn get(&self, pane: &Arc<PaneState>, spec: CaptureSpec) -> Arc<CaptureCache> {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        // A cache holds its pane, so no other pane has that address.
        let key = (Arc::as_ptr(pane) as usize, spec);
        if let Some(cache) = caches.get(&key).and_then(Weak::upgrade) {
            return cache;
        }
        caches.retain(|_, cache| cache.strong_count() > 0);
        let cache = Arc::new(CaptureCache { pane: pane.clone(), spec, last: tokio::sync::Mutex::default() });
        caches.insert(key, Arc::downgrade(&cache));
        cache
    }
}

impl CaptureCache {
    /// Returns the pane.
    pub fn pane(&self) -> &Arc<PaneState> {
        &self.pane
    }

    /// Returns the pane's screen and history at the call or later.
    pub async fn capture(&self, server: &Server) -> Result<Arc<Capture>> {
        let called = Instant::now();
        let mut last = self.last.lock().await;
        let serves = |capture: &&Arc<Capture>| capture.asked >= called || capture.point == Some(self.pane.revision());
        if let Some(capture) = last.as_ref().filter(serves) {
            return Ok(capture.clone());
        }
        let capture = Arc::new(Capture::take(server, &self.pane, self.spec).await?);
        *last = Some(capture.clone());
        Ok(capture)
    }
}

impl Capture {
    /// Captures a pane.
    pub async fn take(server: &Server, pane: &Arc<PaneState>, spec: CaptureSpec) -> Result<Self> {
        let request =
            CaptureRequest { start: Some(format!("-{}", spec.lines)), join: spec.join, ..CaptureRequest::default() };
        let asked = Instant::now();
        let point = pane.revision();
        let answer = server.capture(&pane.id().to_string(), &request).await?;
        // A capture from tmux may be newer than the revision before the request, and memory gives
        // no notice when it changes.
        let is_known = answer.source == CaptureSource::Model && pane.revision() == point;
        let mut text = answer.text;
        text.retain(|character| character != '\r');
        text.truncate(js::trim_end(&text).len());
        Ok(Self {
            text,
            units: OnceLock::new(),
            json: OnceLock::new(),
            asked,
            point: is_known.then_some(point),
            matches: Mutex::default(),
        })
    }

    /// Returns the text as JSON.
    pub fn json(&self) -> Arc<RawValue> {
        self.json.get_or_init(|| js::to_json(&self.text).into()).clone()
    }

    /// Returns whether the pattern matches anywhere in the capture.
    pub async fn is_match(&self, pattern: &Arc<Pattern>, pool: &Pool) -> bool {
        let cell = {
            let mut matches = self.matches.lock().unwrap_or_else(PoisonError::into_inner);
            let key = Arc::as_ptr(pattern) as usize;
            matches.entry(key).or_insert_with(|| (pattern.clone(), Arc::default())).1.clone()
        };
        // If the caller that computes it is cancelled, the next one starts over.
        let text = self.units.get_or_init(|| JsString::from(self.text.as_str()));
        *cell.get_or_init(|| pool.is_match(pattern, text)).await
    }
}
