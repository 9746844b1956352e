//! A connection's cache of where output goes, so that output of a followed pane takes no lock of
//! the model.
//!
//! [`super::followed`] decides under the model's lock what becomes of a pane's output. While the
//! pane is followed on one connection the decision stays the same, and the state alone holds the
//! [`Route`] of that decision. The draining task keeps a weak reference: a state that is left (a
//! seed, another owner, the pane's end, another server) drops the route, and the next output finds
//! none in the cache and uses the model. Upgrading the reference is one step on the route's
//! reference count, like the lookup under the lock before: output comes before a change of the
//! state or after it.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use muxtap_core::protocol::ids::PaneId;

use super::followed::Route;

/// The routes of the panes whose output came over one connection.
#[derive(Default)]
pub struct Routes(HashMap<PaneId, Remembered>);

struct Remembered {
    route: Weak<Route>,
    /// Whether the pane is held if it floods.
    holds: bool,
}

impl Routes {
    /// Returns the route of a pane that is still followed on this connection, and whether the pane
    /// is held if it floods.
    pub(super) fn find(&self, pane: PaneId) -> Option<(Arc<Route>, bool)> {
        let remembered = self.0.get(&pane)?;
        Some((remembered.route.upgrade()?, remembered.holds))
    }

    /// Caches the route that the model gave for a pane's output.
    pub(super) fn remember(&mut self, pane: PaneId, route: &Arc<Route>, holds: bool) {
        if self.0.len() == self.0.capacity() {
            // Before the table grows, stale entries make space: ids of panes are never used again.
            self.0.retain(|_, remembered| remembered.route.strong_count() > 0);
        }
        self.0.insert(pane, Remembered { route: Arc::downgrade(route), holds });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
