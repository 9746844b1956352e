//! What a connection's draining task remembers of where output goes, so that output of a followed pane takes no lock of
//! the model.
//!
//! [`super::followed`] decides under the model's lock what becomes of a pane's output. As long as the pane is followed on
//! one connection the decision stays the same, and the state alone holds the [`Route`] that says so. The draining task
//! keeps a weak reference: a state that is left (a seed, another owner, the pane's end, another server) drops the route, and
//! the next output finds none here and asks the model. Getting hold of a route is one step on its count of references, as
//! was the look under the lock: output comes before a change of the state or after it.

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
    /// Whether the pane is held where it floods.
    holds: bool,
}

impl Routes {
    /// Returns the route of a pane that is still followed on this connection, and whether the pane is held where it
    /// floods.
    pub(super) fn find(&self, pane: PaneId) -> Option<(Arc<Route>, bool)> {
        let remembered = self.0.get(&pane)?;
        Some((remembered.route.upgrade()?, remembered.holds))
    }

    /// Remembers the route that the model gave for a pane's output.
    pub(super) fn remember(&mut self, pane: PaneId, route: &Arc<Route>, holds: bool) {
        if self.0.len() == self.0.capacity() {
            // Before the table grows, what has gone makes room: ids of panes are never used again.
            self.0.retain(|_, remembered| remembered.route.strong_count() > 0);
        }
        self.0.insert(pane, Remembered { route: Arc::downgrade(route), holds });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
