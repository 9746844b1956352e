//! Pauses of panes that muxtap itself requests from tmux.
//!
//! tmux announces each pause on the client that it concerns. One that muxtap requested is expected;
//! any other means that output was dropped. A pane that is paused already is not announced again,
//! so an expectation ends with the command that requested the pause, announced or not.

use std::collections::{HashMap, VecDeque};

use muxtap_core::protocol::ids::PaneId;

/// A pause that was requested.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an expectation that is never over hides a real pause"]
pub struct ExpectedPause {
    connection: u64,
    pane: PaneId,
    number: u64,
}

/// The pauses that were requested and not announced yet, by connection and pane.
#[derive(Default)]
pub struct Pauses {
    expected: HashMap<(u64, PaneId), VecDeque<u64>>,
    next: u64,
}

impl Pauses {
    /// Expects a pause of `pane` on `connection`, until [`Pauses::end`].
    pub fn ask(&mut self, connection: u64, pane: PaneId) -> ExpectedPause {
        self.next += 1;
        self.expected.entry((connection, pane)).or_default().push_back(self.next);
        ExpectedPause { connection, pane, number: self.next }
    }

    /// Returns whether a pause that tmux announces was requested. Each expectation serves for one.
    pub fn announced(&mut self, connection: u64, pane: PaneId) -> bool {
        let Some(asked) = self.expected.get_mut(&(connection, pane)) else { return false };
        asked.pop_front();
        if asked.is_empty() {
            self.expected.remove(&(connection, pane));
        }
        true
    }

    /// Ends an expectation. Call it when a block has ended that tmux created *after* the pause's:
    /// up to 3.7c a pause is announced within its block, later behind it, but before the next one
    /// (F12, N48).
    pub fn end(&mut self, pause: &ExpectedPause) {
        let at = (pause.connection, pause.pane);
        let Some(asked) = self.expected.get_mut(&at) else { return };
        asked.retain(|number| *number != pause.number);
        if asked.is_empty() {
            self.expected.remove(&at);
        }
    }

    /// Drops the expectations of a connection that has gone.
    pub fn forget(&mut self, connection: u64) {
        self.expected.retain(|(on, _), _| *on != connection);
    }

    /// Drops all expectations.
    pub fn clear(&mut self) {
        self.expected.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANE: PaneId = PaneId(3);

    #[test]
    fn a_pause_on_another_connection_or_of_another_pane_is_not_ours() {
        let mut pauses = Pauses::default();
        let asked = pauses.ask(1, PANE);
        assert!(!pauses.announced(2, PANE) && !pauses.announced(1, PaneId(4)));
        assert!(pauses.announced(1, PANE), "nobody else used it up");
        assert!(!pauses.announced(1, PANE), "once");
        pauses.end(&asked);
        assert!(pauses.expected.is_empty());
    }

    #[test]
    fn one_that_was_never_announced_hides_no_later_one() {
        let mut pauses = Pauses::default();
        let (first, second) = (pauses.ask(1, PANE), pauses.ask(1, PANE));
        pauses.end(&first);
        assert!(pauses.announced(1, PANE), "the second is still to come");
        pauses.end(&second);
        assert!(!pauses.announced(1, PANE), "a real one");
    }

    #[test]
    fn the_end_of_one_that_was_announced_leaves_the_others() {
        let mut pauses = Pauses::default();
        let (first, second) = (pauses.ask(1, PANE), pauses.ask(1, PANE));
        assert!(pauses.announced(1, PANE));
        pauses.end(&first);
        assert!(pauses.announced(1, PANE));
        pauses.end(&second);
        assert!(pauses.expected.is_empty());
    }

    #[test]
    fn a_connection_that_has_gone_leaves_nothing() {
        let mut pauses = Pauses::default();
        let (gone, stays) = (pauses.ask(1, PANE), pauses.ask(2, PANE));
        pauses.forget(1);
        assert!(!pauses.announced(1, PANE) && pauses.announced(2, PANE));
        pauses.end(&gone);
        pauses.end(&stays);
    }
}
