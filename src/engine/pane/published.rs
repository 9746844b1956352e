//! What changed last in a pane, for those who look often: it takes no lock, so nobody is held up by being asked whether something is new.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::State;

/// A pane's newest state in numbers. Each is published after what it tells of can be read.
#[derive(Debug, Default)]
pub(super) struct PublishedState {
    end: AtomicU64,
    generation: AtomicU64,
    /// One more than where the last bell stood; 0: none rang.
    bell: AtomicU64,
    ended: AtomicBool,
}

/// The same at one time. Two that are equal mean that nothing happened in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Snapshot {
    /// The stream's end.
    pub(in crate::engine) end: u64,
    /// How often its screen was doubted or made anew.
    pub(in crate::engine) generation: u64,
    /// Where the last bell stood.
    pub(in crate::engine) bell: Option<u64>,
    /// Its process has ended.
    pub(in crate::engine) ended: bool,
}

impl PublishedState {
    pub(super) fn publish(&self, state: &State) {
        self.generation.store(state.screen.generation(), Ordering::Release);
        self.bell.store(state.shell_marks.bell.map_or(0, |at| at + 1), Ordering::Release);
        self.ended.store(state.exit.is_some(), Ordering::Release);
        self.end.store(state.ring.end(), Ordering::Release);
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
