//! For those who want to know which panes changed, and look when they have time.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::{protocol::ids::PaneId, screen::Changes};

/// Collects which panes changed, for someone who looks when it has time.
#[derive(Default)]
pub struct Listener {
    dirty: Mutex<HashSet<PaneId>>,
    /// What changed on their screens; `None` where nobody wants to know.
    drawn: Option<Mutex<HashMap<PaneId, Changes>>>,
    wake: Notify,
}

impl Listener {
    /// `screens`: collect what changes on screens too.
    pub(in crate::engine) fn new(screens: bool) -> Self {
        Self { drawn: screens.then(Mutex::default), ..Self::default() }
    }

    pub(super) fn drawn(&self, pane: PaneId, changes: Option<&Changes>) {
        let Some(drawn) = &self.drawn else { return };
        let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let known = drawn.entry(pane).or_default();
        match changes {
            Some(changes) => known.merge(changes),
            None => *known = Changes::everything(),
        }
    }

    /// What changed on a pane's screen since this was last asked.
    pub(in crate::engine) fn take_drawn(&self, pane: PaneId) -> Option<Changes> {
        let mut drawn = self.drawn.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        drawn.remove(&pane).filter(|changes| !changes.is_empty())
    }

    pub(in crate::engine) fn mark(&self, pane: PaneId) {
        let first = {
            let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
            dirty.insert(pane) && dirty.len() == 1
        };
        if first {
            self.wake.notify_one();
        }
    }

    /// Waits until some pane changed and takes which.
    pub(in crate::engine) async fn changed(&self) -> HashSet<PaneId> {
        loop {
            {
                let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
                if !dirty.is_empty() {
                    return std::mem::take(&mut *dirty);
                }
            }
            self.wake.notified().await;
        }
    }
}
