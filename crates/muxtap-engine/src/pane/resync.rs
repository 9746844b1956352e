//! A pane's side of a resync of its screen: the outcome, and the wait for the pane's rest.

use tokio::time::Instant;

use super::{PaneState, screen_model::Staleness};
use crate::limits;

/// Result of a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResyncOutcome {
    /// The screen equaled tmux's.
    Same,
    /// The screen differed from tmux's, which has been adopted.
    Different,
    /// The pane printed meanwhile, or its screen became stale again.
    Moving,
    /// tmux did not reply, or there is nothing to compare.
    Nothing,
}

impl PaneState {
    /// Begins a resync of the screen. Returns `false` if one is in progress.
    pub(crate) fn begin_resync(&self) -> bool {
        self.lock().output.screen.begin_resync()
    }

    /// Ends a resync with this outcome. Returns `false` if the screen has become stale again; then
    /// the resync goes on.
    pub(crate) fn end_resync(&self, outcome: ResyncOutcome) -> bool {
        let mut locked = self.lock();
        let is_hopeless = outcome == ResyncOutcome::Nothing;
        if is_hopeless {
            locked.release(&[]);
        }
        // The screen may have become stale again just now. If tmux does not reply, the next seed
        // corrects it.
        let is_over = is_hopeless || !locked.output.screen.is_stale();
        if is_over {
            locked.output.screen.end_resync();
        }
        if is_hopeless {
            // The stream now contains the output that was held back.
            self.notify_changed(locked);
        }
        is_over
    }

    /// Begins to await the pane's rest for a resync, if another seed would reveal more of the
    /// screen. Returns `false` if it would not, or if the rest is already awaited.
    pub(crate) fn begin_await_rest(&self) -> bool {
        self.lock().output.screen.begin_await_rest()
    }

    /// Ends the wait for the pane's rest. Returns whether a resync is due and has begun.
    pub(crate) fn end_await_rest(&self) -> bool {
        self.lock().output.screen.end_await_rest()
    }

    /// Returns when tmux may be queried next to reveal more of the screen.
    pub(crate) fn may_ask_at(&self) -> Option<Instant> {
        self.lock().output.screen.may_ask_at()
    }

    /// Sets when tmux may be queried next to reveal more of the screen.
    pub(crate) fn ask_not_before(&self, at: Instant) {
        self.lock().output.screen.ask_not_before(at);
    }

    /// Marks the screen as different from tmux's. Returns whether it needs a resync.
    pub(crate) fn mark_screen_different(&self) -> bool {
        self.lock().output.screen.mark_stale(Staleness::Different)
    }
}

/// Resolves when the pane has printed nothing for [`limits::REST`].
pub(crate) async fn until_rest(pane: &PaneState) {
    let mut changes = pane.changes();
    loop {
        changes.borrow_and_update();
        let due = pane.lock().output.last() + limits::REST;
        if Instant::now() >= due {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            _ = changes.changed() => {}
        }
    }
}
