//! The lock of a pane, which counts its writers.

use std::{
    ops::{Deref, DerefMut},
    sync::PoisonError,
};

use super::{LockedPane, PaneState};
use crate::sync::MutexGuard;

/// A pane's changing parts, and how often they may have changed.
pub(in crate::pane) struct Counted {
    pub(in crate::pane) pane: LockedPane,
    /// How often something got the means to change the pane. While it stays the same, so does the pane: no
    /// part has interior mutability that is stored.
    pub(in crate::pane) writes: u64,
}

/// A pane under its lock. Access for writing is counted, whether it changes something or not.
pub(in super::super) struct PaneGuard<'a>(pub(in crate::pane) MutexGuard<'a, Counted>);

impl Counted {
    pub(in crate::pane) fn new(pane: LockedPane) -> Self {
        Self { pane, writes: 0 }
    }
}

impl PaneState {
    pub(in super::super) fn lock(&self) -> PaneGuard<'_> {
        PaneGuard(self.locked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PaneGuard<'_> {
    /// Returns how often something may have changed the pane.
    pub(in crate::pane) fn writes(&self) -> u64 {
        self.0.writes
    }

    /// Returns the pane for changes of its form in memory alone: a copy from before is as good.
    pub(in crate::pane) fn uncounted(&mut self) -> &mut LockedPane {
        &mut self.0.pane
    }
}

impl Deref for PaneGuard<'_> {
    type Target = LockedPane;

    fn deref(&self) -> &LockedPane {
        &self.0.pane
    }
}

impl DerefMut for PaneGuard<'_> {
    fn deref_mut(&mut self) -> &mut LockedPane {
        let Counted { pane, writes } = &mut *self.0;
        *writes = writes.wrapping_add(1);
        pane
    }
}
