//! Timeout of unterminated strings: tmux gives up a string five seconds after it began (N57), and
//! so does muxtap.
//!
//! The layers below have no clock. A string's time begins with its first bytes. The string is given
//! up when the next bytes come after the timeout, or when the task that waits for the timeout
//! wakes; what the string held back is then shown.

use tokio::time::Instant;

use serde::{Deserialize, Serialize};

use super::{MemoryDelta, PaneState, output::Output, screen_model::Staleness};
use crate::limits;

/// The timeout of the unterminated string at the stream's end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StringTimeout {
    /// The offset at which the string began, and the time.
    #[serde(with = "muxtap_base::age")]
    open: Option<(u64, Instant)>,
    /// Whether a task waits for the timeout.
    #[serde(skip)]
    is_watched: bool,
}

impl StringTimeout {
    /// Records where the string at the stream's end begins, if one is open there.
    pub(super) fn note(&mut self, start: Option<u64>) {
        self.open = match (start, self.open) {
            (None, _) => None,
            (Some(start), Some(known)) if known.0 == start => Some(known),
            (Some(start), _) => Some((start, Instant::now())),
        };
    }
}

/// Result of giving up a string: the follow-up work for the caller.
#[must_use]
pub(crate) struct GiveUpOutcome {
    pub(crate) memory: MemoryDelta,
    /// Whether the screen needs a resync.
    pub(crate) needs_resync: bool,
    /// When to give up the next string, if another one has begun.
    pub(crate) next: Option<Instant>,
}

impl PaneState {
    /// Returns when to give up the open string, if no task waits for that yet.
    pub(crate) fn watch_string(&self) -> Option<Instant> {
        self.lock().output.watch_string()
    }

    /// Gives up the open string if its timeout has passed. The next bytes are text.
    pub(crate) fn give_up_string(&self) -> GiveUpOutcome {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        let (given_up, staleness) = locked.output.give_up_string(Instant::now());
        locked.output.string.is_watched = false;
        let next = locked.output.watch_string();
        let memory = locked.memory_since(before);
        if given_up {
            // Readers can continue behind the string.
            self.notify_changed(locked);
        }
        GiveUpOutcome { memory, needs_resync: staleness.is_some(), next }
    }
}

impl Output {
    /// Returns when to give up the open string, if no task waits for that yet. The caller starts a
    /// task.
    pub(super) fn watch_string(&mut self) -> Option<Instant> {
        let due = self.string_due().filter(|_| !self.string.is_watched)?;
        self.string.is_watched = true;
        Some(due)
    }

    /// Returns when to give up the open string. The text's and the screen's open strings differ
    /// after a seed from which only the screen was built.
    pub(super) fn string_due(&self) -> Option<Instant> {
        let text = self.string.open.map(|(_, since)| since + limits::STRING);
        text.into_iter().chain(self.screen.string_due()).min()
    }

    /// Gives up an open string whose timeout has passed. Returns whether the text had one, and the
    /// reason if the screen became stale.
    pub(super) fn give_up_string(&mut self, now: Instant) -> (bool, Option<Staleness>) {
        let over = self.string.open.is_some_and(|(_, since)| now >= since + limits::STRING);
        if over {
            self.string.open = None;
        }
        (over && self.ring.give_up(), self.screen.give_up_string(now))
    }
}
