//! What tmux tells of a pane all at once: the first seed, the one after a gap, the last one, and the one that settles a doubt.

use std::time::Instant;

use super::{Kept, Pane, Point, State};
use crate::{
    api::{Gap, GapReason},
    engine::{look::Looked, view::Settled},
    metrics,
    pane::join::{self, Joined},
    screen::Rules,
    tmux::{Exit, Seed},
};

impl Pane {
    /// The first seed: what stood there before muxtap came.
    pub(in crate::engine) fn begin(&self, seed: &Seed, rules: Option<Rules>) -> Kept {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.feed(&seed.text, false);
        state.feed(&seed.pending, false);
        state.adopt(seed, rules, !seed.dead);
        if seed.dead {
            state.exit = Some((Exit { status: seed.exit_status, signal: seed.exit_signal }, Instant::now()));
        }
        let kept = state.kept_since(before);
        self.announce(state);
        kept
    }

    /// Output may have been lost: what the seed shows and the stream has not is added, and the gap is marked.
    pub(in crate::engine) fn catch_up(&self, seed: &Seed, rules: Option<Rules>, reason: GapReason) -> Kept {
        let mut state = self.lock();
        let before = state.held_bytes();
        let joined = state.join(seed);
        state.last_output = Instant::now();
        metrics::gap(reason);
        state.ring.push_gap(Gap { reason, bytes: None });
        state.echo.interrupt();
        for watcher in &state.watchers {
            watcher.gap(Gap { reason, bytes: None });
        }
        // The seed says what the screen shows; what is added to the stream must not be drawn as well.
        state.view.adopt(None, None, true);
        match joined {
            Joined::Missing(text) => {
                state.feed(&text, false);
                state.feed(&seed.pending, false);
            }
            Joined::Unrelated => {
                // Nothing of what was known stands there any more: all of it is new.
                state.feed(b"\r\n", false);
                state.feed(&seed.text, false);
                state.feed(&seed.pending, false);
            }
        }
        state.adopt(seed, rules, !seed.dead);
        let kept = state.kept_since(before);
        self.announce(state);
        kept
    }

    /// What stands in the pane of a command whose end its hold has told.
    pub(in crate::engine) fn keep_screen(&self, seed: &Seed, rules: Option<Rules>) -> Kept {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.adopt(seed, rules, false);
        state.exit_pid = Some(seed.pid);
        state.kept_since(before)
    }

    /// The process has ended and this is all it printed (F9): what tmux did not send is added.
    pub(in crate::engine) fn finish(&self, seed: &Seed, rules: Option<Rules>) -> Kept {
        let mut state = self.lock();
        let before = state.held_bytes();
        if state.exit.is_some() {
            // Its hold has told that everything arrived.
            state.adopt(seed, rules, false);
            state.exit_pid = Some(seed.pid);
            return state.kept_since(before);
        }
        state.view.adopt(None, None, true);
        match state.join(seed) {
            Joined::Missing(text) => {
                state.feed(&text, false);
            }
            // A program that draws its screen: nobody can tell whether its last bytes came.
            Joined::Unrelated => {
                let gap = Gap { reason: GapReason::ProcessEnded, bytes: None };
                metrics::gap(gap.reason);
                state.ring.push_gap(gap);
            }
        }
        state.adopt(seed, rules, false);
        state.exit_pid = Some(seed.pid);
        let kept = state.kept_since(before);
        self.announce(state);
        kept
    }

    /// What tmux had somewhere between `since` and now, if that can be told from what it has become since.
    pub(in crate::engine) fn settle(&self, since: Point, seed: &Seed, rules: Rules) -> (Looked, Kept) {
        let mut state = self.lock();
        let before = state.held_bytes();
        let looked = match &seed.screen {
            Some(_) if state.point() != since => Looked::Moving,
            Some(seed) if state.view.can_settle() => {
                let settled = state.view.settle(seed, rules);
                state.show_all();
                match settled {
                    Settled::Same => Looked::Same,
                    Settled::Different => {
                        metrics::SCREEN_DIFFERENCES.increment(1);
                        Looked::Different
                    }
                    Settled::Unknown => Looked::Different,
                }
            }
            _ => Looked::Nothing,
        };
        let kept = state.kept_since(before);
        self.announce(state);
        (looked, kept)
    }

    /// Its output is not followed until it is seeded.
    pub(in crate::engine) fn unfollowed(&self) {
        self.lock().view.suspend();
    }
}

impl State {
    /// tmux has this on its screen.
    fn adopt(&mut self, seed: &Seed, rules: Option<Rules>, live: bool) {
        self.view.adopt(seed.screen.as_ref(), rules, live);
        self.show_all();
    }

    fn join(&self, seed: &Seed) -> Joined {
        join::join(&self.ring, &seed.text)
    }
}
