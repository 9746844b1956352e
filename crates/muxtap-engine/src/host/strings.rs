//! The task that gives up a pane's unterminated string at its timeout (N57).

use std::sync::{Arc, Weak};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Host, PaneState};

impl Host {
    /// Schedules giving up a string that a seed may have left open.
    pub(crate) fn watch_string(self: &Arc<Self>, pane: &Arc<PaneState>) {
        if let Some(due) = pane.watch_string() {
            self.give_up_string_at(pane, due);
        }
    }

    /// Schedules giving up an open string at its timeout.
    pub(super) fn give_up_string_at(self: &Arc<Self>, pane: &Arc<PaneState>, due: Instant) {
        if let Some(shared) = self.shared() {
            let watching = give_up_strings(Arc::downgrade(self), pane.clone(), due, self.cancel.clone());
            shared.tasks.spawn(watching);
        }
    }
}

/// Waits for the timeout of a pane's open string and gives it up, for as long as there are open
/// strings.
async fn give_up_strings(host: Weak<Host>, pane: Arc<PaneState>, mut due: Instant, cancel: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            () = cancel.cancelled() => return,
        }
        let Some(host) = host.upgrade() else { return };
        let given_up = pane.give_up_string();
        host.charge(given_up.memory);
        if given_up.needs_resync {
            host.resync(&pane);
        }
        match given_up.next {
            Some(next) => due = next,
            None => return,
        }
    }
}
