//! A pane's side of a resync of its screen: what came of it, and when the pane rests.

use std::time::Instant;

use super::PaneState;
use crate::limits;

/// Result of a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResyncOutcome {
    /// tmux's screen was the same.
    Same,
    /// tmux's screen was another one, which has been adopted.
    Different,
    /// The pane printed meanwhile, or became stale once more.
    Moving,
    /// tmux did not reply, or there is nothing to compare.
    Nothing,
}

/// Resolves when the pane has printed nothing for [`limits::REST`].
pub(crate) async fn until_rest(pane: &PaneState) {
    let mut changes = pane.changes();
    loop {
        changes.borrow_and_update();
        let due = pane.lock().last_output + limits::REST;
        if Instant::now() >= due {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            _ = changes.changed() => {}
        }
    }
}
