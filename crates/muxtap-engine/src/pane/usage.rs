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
    pub(crate) watched: bool,
    /// Whether tmux has told it since.
    pub(crate) confirmed: bool,
    /// Notified when the last holder has gone.
    pub(crate) released: Arc<Notify>,
}

impl Usage {
    /// Records a use that is over at once.
    pub(crate) fn touch(&mut self) {
        self.last = Some(Instant::now());
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
