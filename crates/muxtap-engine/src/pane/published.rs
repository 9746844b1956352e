//! A pane's newest state in atomics. Reading it takes no lock, so frequent readers delay no writer.

use std::sync::atomic::Ordering;

use super::LockedPane;
use crate::sync::{AtomicBool, AtomicU64};

/// A pane's newest state in numbers. Each number is published only after the data that it describes
/// can be read.
#[derive(Debug, Default)]
pub(super) struct PublishedState {
    end: AtomicU64,
    generation: AtomicU64,
    /// One more than the offset of the last bell; 0 before the first bell.
    bell: AtomicU64,
    ended: AtomicBool,
}

/// The published state at one time. Two equal snapshots mean that nothing happened in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The stream's end.
    pub(crate) end: u64,
    /// How often the screen became stale or was replaced.
    pub(crate) generation: u64,
    /// The offset of the last bell.
    pub(crate) bell: Option<u64>,
    /// Whether the process has ended.
    pub(crate) ended: bool,
}

impl PublishedState {
    pub(super) fn publish(&self, locked: &LockedPane) {
        self.generation.store(locked.output.screen.generation(), Ordering::Release);
        self.bell.store(locked.output.shell_marks.bell.map_or(0, |at| at + 1), Ordering::Release);
        self.ended.store(locked.process.has_ended(), Ordering::Release);
        self.end.store(locked.output.ring.end(), Ordering::Release);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            end: self.end.load(Ordering::Acquire),
            generation: self.generation.load(Ordering::Acquire),
            bell: self.bell.load(Ordering::Acquire).checked_sub(1),
            ended: self.ended.load(Ordering::Acquire),
        }
    }
}
