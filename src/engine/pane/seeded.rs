//! What tmux tells of a pane all at once: the first seed, the one after a gap, the last one, and the one that settles a doubt.

use std::time::Instant;

use super::{Kept, Pane, Point, Pushed, State};
use crate::{
    api::{Gap, GapReason},
    engine::{
        look::Looked,
        view::{Doubt, Settled},
    },
    metrics,
    screen::Rules,
    stream::join::{self, Joined},
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
        state.push_gap(reason);
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

    /// Goes on with the stream where another connection carries the pane.
    ///
    /// That is with `output`, which came over it, if that is just what the stream lacks of the seed. A pane that came back
    /// to a client may have printed before it flowed there again (N60): then with the lines that tmux shows more, if they
    /// explain all that it shows. Returns `None` if neither is so.
    pub(in crate::engine) fn go_on(&self, seed: &Seed, rules: Option<Rules>, output: &[u8]) -> Option<Pushed> {
        let mut state = self.lock();
        let screens = seed.screen.as_ref().zip(rules);
        let shown = if state.is_whole_with(output, seed, rules) { None } else { Some(state.shown_more(seed, rules)?) };
        let output = shown.as_deref().unwrap_or(output);
        let before = state.held_bytes();
        if !output.is_empty() {
            state.last_output = Instant::now();
            state.feed(output, false);
        }
        match screens.filter(|_| state.view.is_proven()) {
            // What it knows beyond what tmux tells, it keeps.
            Some((seed, rules)) => {
                state.view.settle(seed, rules);
                state.show_all();
            }
            None => state.adopt(seed, rules, !seed.dead),
        }
        let kept = state.kept_since(before);
        let held_exit = state.take_held_exit();
        let string_due = state.watch_string();
        self.announce(state);
        // The seed has settled what was doubtful.
        Some(Pushed { kept, held_exit, doubt: None, string_due })
    }

    /// Another program begins here: what the last one left open ends. Returns whether the screen is to be compared with tmux's. `ran`: the last
    /// one was ended for it, and what it printed at its end may be missing.
    pub(in crate::engine) fn restarted(&self, ran: bool) -> (bool, Kept) {
        let mut state = self.lock();
        let before = state.held_bytes();
        let look = state.view.doubt(Doubt::Restarted);
        let is_open = !state.resting_line().is_empty();
        state.ring.restart();
        if is_open {
            state.feed(b"\r\n", false);
        }
        if ran {
            state.push_gap(GapReason::Paused);
        }
        state.exit = None;
        state.exit_pid = None;
        // What plain tmux respawns is what ran before, in its hold.
        let State { ours, signs, .. } = &mut *state;
        if let Some(hold) = ours.as_mut().and_then(|ours| ours.hold.as_mut()) {
            signs.expect_no_more(&hold.nonce);
            signs.expect(&hold.nonce);
            hold.is_awaited = true;
        }
        state.tap.program();
        let kept = state.kept_since(before);
        self.announce(state);
        (look, kept)
    }

    /// What stands in the pane of a command whose end its hold has told.
    pub(in crate::engine) fn keep_screen(&self, seed: &Seed, rules: Option<Rules>) -> Kept {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.adopt(seed, rules, false);
        state.note_ended(seed.pid);
        state.kept_since(before)
    }

    /// The process has ended and this is all it printed (F9): what tmux did not send is added.
    pub(in crate::engine) fn finish(&self, seed: &Seed, rules: Option<Rules>) -> Kept {
        let mut state = self.lock();
        let before = state.held_bytes();
        if state.exit.is_some() {
            // Its hold has told that everything arrived.
            state.adopt(seed, rules, false);
            state.note_ended(seed.pid);
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
        state.note_ended(seed.pid);
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
    /// Bytes may be missing here.
    fn push_gap(&mut self, reason: GapReason) {
        let gap = Gap { reason, bytes: None };
        metrics::gap(reason);
        self.ring.push_gap(gap);
        self.echo.interrupt();
        for watcher in &self.watchers {
            watcher.gap(gap);
        }
    }

    /// Notes which process has ended, where tmux still knows (N62).
    fn note_ended(&mut self, pid: u32) {
        self.exit_pid = Some(pid).filter(|pid| *pid != 0).or(self.exit_pid);
    }

    /// tmux has this on its screen.
    fn adopt(&mut self, seed: &Seed, rules: Option<Rules>, live: bool) {
        self.view.adopt(seed.screen.as_ref(), rules, live);
        self.show_all();
    }

    /// Whether the stream with this output behind it is what tmux shows: the whole screen where it is followed, else the
    /// text.
    fn is_whole_with(&self, output: &[u8], seed: &Seed, rules: Option<Rules>) -> bool {
        let screens = seed.screen.as_ref().zip(rules);
        let agrees = screens.and_then(|(seed, rules)| self.view.agrees_after(output, seed, rules));
        agrees.unwrap_or_else(|| join::is_whole_with(&self.ring, output, &seed.text, &seed.pending))
    }

    /// The lines that tmux shows and the stream lacks, if they explain all that it shows. Lines with styles do not: what
    /// was printed for them is not known.
    fn shown_more(&self, seed: &Seed, rules: Option<Rules>) -> Option<Vec<u8>> {
        let Joined::Missing(mut lines) = self.join(seed) else { return None };
        if seed.alternate || !join::ends_plainly(&seed.text, &lines) {
            return None;
        }
        lines.extend_from_slice(&seed.pending);
        self.is_whole_with(&lines, seed, rules).then_some(lines)
    }

    fn join(&self, seed: &Seed) -> Joined {
        join::join(&self.ring, &seed.text)
    }
}
