//! What the log knows of each shell, and of the mark at hand.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    super::{Family, Line},
    Moment,
};

/// The kinds of marks that may begin and end a command, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sources(u8);

impl Sources {
    pub(super) const CONTEXT: Self = Self(8);

    pub(super) fn of(family: Family, is_trusted: bool) -> Self {
        Self(match (family, is_trusted) {
            (_, true) => 1,
            (Family::Osc133, false) => 2,
            (Family::Osc633, false) => 4,
        })
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A shell, or another context in which shells run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Level {
    pub(super) is_trusted: bool,
    /// The shell's id in OSC 133.
    pub(super) aid: Option<String>,
    /// The id of the context in OSC 3008.
    pub(super) context: Option<String>,
    /// The offset at which the command line begins.
    pub(super) input: Option<u64>,
    /// The kind of shell, if it reported it with the command line's begin.
    pub(super) shell: Option<String>,
    /// The command line that was reported before the command (OSC 633 `E`).
    pub(super) line: Option<Arc<Line>>,
    pub(super) running: Option<Running>,
}

impl Level {
    /// Returns whether the shell waits for a command line.
    pub(super) fn waits(&self) -> bool {
        self.running.is_none() && self.input.is_some()
    }
}

/// The command that a level runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) number: u64,
    /// The kinds of marks that began it.
    pub(super) sources: Sources,
    /// The run of marks in which it began.
    pub(super) run: u64,
    /// The id of the command in OSC 3008.
    pub(super) context: Option<String>,
    /// The run and the offset of a claimed end of this trusted command. It counts only as the place
    /// where the output ended, and only if a trusted end follows without a byte between.
    pub(super) claimed_end: Option<(u64, u64)>,
}

/// The last command that ended, for ends of other integrations.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) number: u64,
    pub(super) sources: Sources,
    pub(super) run: u64,
}

/// The place and time of a mark, and whether it is trusted.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) now: Moment,
    pub(super) is_trusted: bool,
    pub(super) source: Sources,
}
