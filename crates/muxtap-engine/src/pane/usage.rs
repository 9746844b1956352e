//! Whether somebody uses what tmux alone knows of a pane.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use tokio::sync::Notify;

use super::PaneState;

/// The use that is made of what tmux alone knows of a pane: its title as commands set it, and a
/// screen that a command cleared or reset.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// The number of [`PaneUse`]s.
    holders: usize,
    /// The end of the last use.
    last: Option<Instant>,
    /// Whether tmux pushes it.
    watched: bool,
    /// Whether tmux has told it since.
    confirmed: bool,
    /// Notified when the last holder has gone.
    released: Arc<Notify>,
}

impl Usage {
    /// Records a use that is over at once.
    pub(crate) fn touch(&mut self) {
        self.last = Some(Instant::now());
    }

    /// Returns whether tmux pushes it and has told it since.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.watched && self.confirmed
    }

    /// Records that tmux is asked to push it. Returns `false` if tmux does.
    pub(crate) fn begin_watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    /// Records that tmux has told it.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Records that tmux pushes it no longer.
    pub(crate) fn end_watch(&mut self) {
        (self.watched, self.confirmed) = (false, false);
    }

    /// Returns what is notified when the last holder has gone.
    pub(crate) fn released(&self) -> Arc<Notify> {
        self.released.clone()
    }

    /// Returns when the last use ended; `None` while there is one.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.last.filter(|_| self.holders == 0)
    }
}

/// A use that lasts until this is dropped.
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
