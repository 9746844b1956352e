//! What a pane shows, looked at once for all waits that want to see the same.
//!
//! A thousand waits on one pane wake at each change. The first one looks, and the first one with a pattern matches it; the others
//! take what it found.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Instant,
};

use tokio::sync::OnceCell;

use super::{
    js,
    pattern::{Haystack, Pattern, Pool},
};
use crate::{
    api::{CaptureRequest, CaptureSource, Result},
    engine::{Engine, Host, Pane, Revision},
};

/// How a pane is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Lines of history above the screen.
    pub lines: u32,
    /// Wrapped lines are one.
    pub join: bool,
}

/// What a pane showed.
pub struct View {
    text: Haystack,
    json: OnceLock<Arc<str>>,
    /// When it was asked for.
    asked: Instant,
    /// The point of the pane's life that it shows, where that is known.
    point: Option<Revision>,
    verdicts: Mutex<HashMap<usize, Verdict>>,
}

/// Whether a pattern matches, once somebody has found out. The pattern is kept so that its address stays its own.
type Verdict = (Arc<Pattern>, Arc<OnceCell<bool>>);

/// One pane in one shape.
pub struct Sight {
    pane: Arc<Pane>,
    shape: Shape,
    last: tokio::sync::Mutex<Option<Arc<View>>>,
}

/// Every sight that somebody has.
#[derive(Default)]
pub struct Sights {
    open: Mutex<HashMap<(usize, Shape), Weak<Sight>>>,
}

impl Sights {
    /// The sight of this pane in this shape, shared with whoever has it.
    pub fn of(&self, pane: &Arc<Pane>, shape: Shape) -> Arc<Sight> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // A sight keeps its pane, so no other pane has its address.
        let key = (Arc::as_ptr(pane) as usize, shape);
        if let Some(sight) = open.get(&key).and_then(Weak::upgrade) {
            return sight;
        }
        open.retain(|_, sight| sight.strong_count() > 0);
        let sight = Arc::new(Sight { pane: pane.clone(), shape, last: tokio::sync::Mutex::default() });
        open.insert(key, Arc::downgrade(&sight));
        sight
    }
}

impl Sight {
    /// Whose it is.
    pub fn pane(&self) -> &Arc<Pane> {
        &self.pane
    }

    /// What the pane shows, now or at some moment after this was called.
    pub async fn look(&self, engine: &Engine, host: &Arc<Host>) -> Result<Arc<View>> {
        let called = Instant::now();
        let mut last = self.last.lock().await;
        let serves = |view: &&Arc<View>| view.asked >= called || view.point == Some(self.pane.revision());
        if let Some(view) = last.as_ref().filter(serves) {
            return Ok(view.clone());
        }
        let view = Arc::new(View::of(engine, host, &self.pane, self.shape).await?);
        *last = Some(view.clone());
        Ok(view)
    }
}

impl View {
    /// Looks at a pane.
    pub async fn of(engine: &Engine, host: &Arc<Host>, pane: &Arc<Pane>, shape: Shape) -> Result<Self> {
        let request =
            CaptureRequest { start: Some(format!("-{}", shape.lines)), join: shape.join, ..CaptureRequest::default() };
        let asked = Instant::now();
        let point = pane.revision();
        let answer = engine.capture(host, &pane.id().to_string(), &request).await?;
        // What comes from tmux may be newer than what was known before it was asked, and memory does not tell when it changes.
        let is_known = answer.source == CaptureSource::Model && pane.revision() == point;
        let mut text = answer.text;
        text.retain(|character| character != '\r');
        text.truncate(js::trim_end(&text).len());
        Ok(Self {
            text: Haystack::from(text),
            json: OnceLock::new(),
            asked,
            point: is_known.then_some(point),
            verdicts: Mutex::default(),
        })
    }

    /// The text as JSON.
    pub fn json(&self) -> Arc<str> {
        let json = self.json.get_or_init(|| {
            let mut json = String::with_capacity(self.text.as_str().len() + 64);
            js::write_json(self.text.as_str(), &mut json);
            json.into()
        });
        json.clone()
    }

    /// Whether the pattern matches somewhere.
    pub async fn is_match(&self, pattern: &Arc<Pattern>, pool: &Pool) -> bool {
        let verdict = {
            let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
            let key = Arc::as_ptr(pattern) as usize;
            verdicts.entry(key).or_insert_with(|| (pattern.clone(), Arc::default())).1.clone()
        };
        // If the one who finds out goes away, the next one begins anew.
        *verdict.get_or_init(|| pattern.is_match(&self.text, pool)).await
    }
}
