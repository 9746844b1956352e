//! Use of the facts about a pane that only tmux knows.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::PaneState;

/// The use of the facts about a pane that only tmux knows: the title that a command set, and a
/// screen that a command cleared or reset.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// The number of [`PaneUse`]s.
    holders: usize,
    /// When the last use began or ended.
    last: Option<Instant>,
    /// Whether tmux pushes the facts.
    watched: bool,
    /// Whether tmux has reported the facts since it pushes them.
    confirmed: bool,
    /// Notified when the last holder is dropped.
    released: Arc<Notify>,
}

impl Usage {
    /// Records a use that ends at once.
    pub(crate) fn touch(&mut self) {
        self.last = Some(Instant::now());
    }

    /// Returns whether tmux pushes the facts and has reported them since.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.watched && self.confirmed
    }

    /// Records that tmux is requested to push the facts. Returns `false` if it was already.
    pub(crate) fn begin_watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    /// Records that tmux has reported the facts.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Records that tmux no longer pushes the facts.
    pub(crate) fn end_watch(&mut self) {
        (self.watched, self.confirmed) = (false, false);
    }

    /// Returns the notification of the last holder's end.
    pub(crate) fn released(&self) -> Arc<Notify> {
        self.released.clone()
    }

    /// Returns when the last use ended; `None` during a use.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.last.filter(|_| self.holders == 0)
    }
}

/// A use that lasts until this value is dropped.
#[derive(Debug)]
pub(crate) struct PaneUse {
    pane: Weak<PaneState>,
}

impl PaneUse {
    /// Begins a use.
    pub(crate) fn begin(pane: &Arc<PaneState>) -> Self {
        let usage = &mut pane.lock().usage;
        usage.touch();
        usage.holders += 1;
        Self { pane: Arc::downgrade(pane) }
    }
}

impl Drop for PaneUse {
    fn drop(&mut self) {
        let Some(pane) = self.pane.upgrade() else { return };
        let usage = &mut pane.lock().usage;
        usage.holders -= 1;
        usage.touch();
        if usage.holders == 0 {
            usage.released.notify_one();
        }
    }
}
