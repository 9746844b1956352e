//! Seeds applied to a pane: the first one, one after a gap, the last one, and one that resyncs a
//! stale screen.

use std::time::Instant;

use muxtap_api::{Gap, GapReason};
use muxtap_base::metrics;
use muxtap_core::{
    screen::Rules,
    stream::join::{self, Joined},
};
use muxtap_tmux::{Exit, Seed};

use super::{MemoryDelta, PaneState, PushOutcome, Revision, State};

use crate::pane::{managed::OnExit, resync::ResyncOutcome, screen_model::Reconciled};

impl PaneState {
    /// Applies the first seed: what the pane showed before muxtap came.
    pub(crate) fn seed_first(&self, seed: &Seed, rules: Option<Rules>) -> MemoryDelta {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.feed(&seed.text, false);
        state.feed(&seed.pending, false);
        // Of what stood there it is only known that it is older.
        state.note_output_time(Instant::now());
        state.adopt(seed, rules, !seed.dead);
        // How a process ended tmux may learn a turn later than that it did (N16): that is told then.
        if seed.dead && (seed.exit_status.is_some() || seed.exit_signal.is_some()) {
            state.exit = Some((Exit { status: seed.exit_status, signal: seed.exit_signal }, Instant::now()));
        }
        let memory = state.memory_since(before);
        self.notify_changed(state);
        memory
    }

    /// Applies a seed after output may have been lost. Adds what the seed shows and the stream
    /// lacks, and marks the gap.
    pub(crate) fn seed_after_gap(&self, seed: &Seed, rules: Option<Rules>, reason: GapReason) -> MemoryDelta {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.release(&[]);
        let joined = state.join(seed);
        let now = Instant::now();
        state.last_output = now;
        state.note_output_time(now);
        state.push_gap(reason);
        // The missing output may have held further marks.
        state.shell_marks.forget_prompts();
        // The seed also holds the screen: what is added to the stream must not be drawn as well.
        state.screen.adopt(None, None, true);
        match joined {
            Joined::Missing(text) => {
                state.feed(&text, false);
                state.feed(&seed.pending, false);
            }
            Joined::Unrelated => {
                // Nothing of the known text stands there any more: all of it is new.
                state.feed(b"\r\n", false);
                state.feed(&seed.text, false);
                state.feed(&seed.pending, false);
            }
        }
        state.adopt(seed, rules, !seed.dead);
        let memory = state.memory_since(before);
        self.notify_changed(state);
        memory
    }

    /// Resumes the stream where another connection carries the pane.
    ///
    /// Continues with `output`, which came over that connection, if it is exactly what the stream
    /// lacks of the seed. A pane that came back to a client may have printed before its output
    /// flowed there again (N60): then continues with the lines that tmux shows in addition, if they
    /// explain all that it shows. Returns `None` if neither holds.
    pub(crate) fn resume(&self, seed: &Seed, rules: Option<Rules>, output: &[u8]) -> Option<PushOutcome> {
        let mut state = self.lock();
        state.release(&[]);
        let screens = seed.screen.as_ref().zip(rules);
        let shown = if state.is_whole_with(output, seed, rules) { None } else { Some(state.shown_more(seed, rules)?) };
        let output = shown.as_deref().unwrap_or(output);
        let before = state.held_bytes();
        if !output.is_empty() {
            let now = Instant::now();
            state.last_output = now;
            state.note_output_time(now);
            state.feed(output, false);
        }
        match screens.filter(|_| state.screen.is_proven()) {
            // The screen keeps what it knows beyond what tmux reports.
            Some((seed, rules)) => {
                state.screen.reconcile(seed, rules);
                state.notify_redrawn();
            }
            None => state.adopt(seed, rules, !seed.dead),
        }
        let memory = state.memory_since(before);
        let wrapper_exit = state.take_wrapper_exit();
        let string_due = state.watch_string();
        self.notify_changed(state);
        // The seed has reconciled the screen.
        Some(PushOutcome { memory, wrapper_exit, staleness: None, string_due, is_unsure: false })
    }

    /// Restarts the stream for another program: closes whatever the last one left open. Returns
    /// whether the screen needs a resync. `ran`: the last program was killed for the new one, and
    /// its last output may be missing.
    pub(crate) fn restart(&self, ran: bool) -> (bool, MemoryDelta) {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.release(&[]);
        let needs_resync = state.screen.restart();
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
        // Plain tmux respawns the previous command line, with its exit wrapper.
        let State { managed, shell_marks, .. } = &mut *state;
        if let Some(wrapper) = managed.as_mut().and_then(|managed| managed.wrapper.as_mut()) {
            shell_marks.unregister_nonce(&wrapper.nonce);
            shell_marks.register_nonce(&wrapper.nonce);
            wrapper.is_awaited = true;
        }
        state.agent_signals.program_changed();
        let memory = state.memory_since(before);
        self.notify_changed(state);
        (needs_resync, memory)
    }

    /// Stores the last screen of a pane whose wrapped command has ended. Where tmux cannot be kept
    /// from drawing a row into a pane that stays, this remains its screen.
    pub(crate) fn keep_screen(&self, seed: &Seed, rules: Option<Rules>) -> MemoryDelta {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.adopt(seed, rules, false);
        let stays = state.managed.as_ref().is_some_and(|managed| managed.on_exit == OnExit::Keep);
        if stays && !seed.dead && rules.is_some_and(|rules| rules.always_draws_at_death()) {
            state.screen.keep();
        }
        state.note_ended(seed.pid);
        state.memory_since(before)
    }

    /// Applies the last seed: the process has ended and this is all of its output that tmux kept
    /// (F9, N10). Adds what tmux did not send. The end is recorded next ([`PaneState::mark_exited`]).
    pub(crate) fn seed_last(&self, seed: &Seed, rules: Option<Rules>) -> MemoryDelta {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.release(&[]);
        if state.exit.is_some() {
            // The exit wrapper has reported that everything arrived.
            if !state.screen.is_kept() {
                state.adopt(seed, rules, false);
            }
            state.note_ended(seed.pid);
            return state.memory_since(before);
        }
        state.screen.adopt(None, None, true);
        // Where the program draws its screen the two do not join, and nothing is added.
        if let Joined::Missing(text) = state.join(seed) {
            state.feed(&text, false);
        }
        state.adopt(seed, rules, false);
        state.note_ended(seed.pid);
        let memory = state.memory_since(before);
        self.notify_changed(state);
        memory
    }

    /// Reconciles the screen with a seed that was requested at revision `since`. Returns `Moving`
    /// if the pane became stale since then, or printed and nothing proves yet where the seed belongs.
    pub(crate) fn reconcile(&self, since: Revision, seed: &Seed, rules: Rules) -> (ResyncOutcome, MemoryDelta) {
        let mut state = self.lock();
        let before = state.held_bytes();
        let outcome = match &seed.screen {
            // Then it is compared with the next reply.
            Some(seed) if state.complete(seed, rules) => ResyncOutcome::Moving,
            Some(_) if state.screen.generation() != since.generation => ResyncOutcome::Moving,
            Some(seed) if state.screen.can_reconcile() => {
                let outcome = if state.revision() == since {
                    state.screen.reconcile(seed, rules)
                } else {
                    state.screen.reconcile_moving(seed, rules)
                };
                if outcome != Reconciled::Unsettled {
                    state.notify_redrawn();
                }
                match outcome {
                    Reconciled::Unsettled => ResyncOutcome::Moving,
                    Reconciled::Same => ResyncOutcome::Same,
                    Reconciled::Different => {
                        metrics::SCREEN_DIFFERENCES.increment(1);
                        ResyncOutcome::Different
                    }
                    Reconciled::Unknown => ResyncOutcome::Different,
                }
            }
            _ => ResyncOutcome::Nothing,
        };
        let memory = state.memory_since(before);
        self.notify_changed(state);
        (outcome, memory)
    }

    /// Suspends the screen: the pane's output is not followed until it is seeded.
    pub(crate) fn suspend_screen(&self) {
        self.lock().screen.suspend();
    }

    /// Marks the pane as held, until the next seed.
    pub(crate) fn hold_screen(&self) {
        self.lock().screen.hold();
    }
}

impl State {
    /// Returns since when the pane has been quiet. A held pane counts as printing.
    pub(crate) fn quiet_since(&self) -> Instant {
        if self.screen.is_held() { Instant::now() } else { self.last_output }
    }

    /// Marks a gap: bytes may be missing here.
    fn push_gap(&mut self, reason: GapReason) {
        let gap = Gap::new(reason, None);
        metrics::gap(reason);
        self.ring.push_gap(gap);
        self.echo.interrupt();
        for watcher in &self.watchers {
            watcher.record_gap(gap);
        }
    }

    /// Marks that the last output of a process that ended may be missing.
    pub(super) fn mark_possible_loss(&mut self) {
        self.push_gap(GapReason::ProcessEnded);
    }

    /// Records which process has ended, where tmux still knows (N62).
    fn note_ended(&mut self, pid: u32) {
        self.exit_pid = Some(pid).filter(|pid| *pid != 0).or(self.exit_pid);
    }

    /// Replaces the screen with what tmux shows.
    fn adopt(&mut self, seed: &Seed, rules: Option<Rules>, live: bool) {
        self.screen.adopt(seed.screen.as_ref(), rules, live);
        self.notify_redrawn();
    }

    /// Returns whether the stream followed by this output is what tmux shows: the whole screen
    /// where it is followed, else the text.
    fn is_whole_with(&self, output: &[u8], seed: &Seed, rules: Option<Rules>) -> bool {
        let screens = seed.screen.as_ref().zip(rules);
        let agrees = screens.and_then(|(seed, rules)| self.screen.agrees_after(output, seed, rules));
        agrees.unwrap_or_else(|| join::is_whole_with(&self.ring, output, &seed.text, &seed.pending))
    }

    /// Returns the lines that tmux shows and the stream lacks, if they explain all that it shows.
    /// Lines with styles do not: what was printed for them is not known.
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

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::Epoch;
    use muxtap_core::protocol::ids::PaneId;

    #[test]
    fn a_gap_makes_prompt_marks_unknown() {
        let pane = PaneState::new(PaneId(1), Epoch::default(), 1 << 20);
        // The command's output begins (C); the next prompt (A) falls into the gap.
        pane.lock().feed(b"\x1b]133;C\x07working\r\n", false);
        assert!(pane.lock().shell_marks.prompt.is_some_and(|(_, shown)| !shown));
        let seed = Seed { text: b"working\r\n$ ".to_vec(), ..Seed::default() };
        let _ = pane.seed_after_gap(&seed, None, GapReason::Paused);
        let state = pane.lock();
        let marks = &state.shell_marks;
        assert_eq!((marks.prompt, marks.output_began, marks.output_ended), (None, None, None));
    }

    #[test]
    fn a_held_pane_is_not_quiet() {
        let pane = PaneState::new(PaneId(1), Epoch::default(), 1 << 20);
        let begun = Instant::now();
        pane.lock().last_output = begun;
        assert_eq!(pane.lock().quiet_since(), begun);
        pane.hold_screen();
        let held = Instant::now();
        assert!(pane.lock().quiet_since() >= held);
        // The next reading ends it.
        let _ = pane.seed_after_gap(&Seed::default(), None, GapReason::Paused);
        let read = pane.lock().last_output;
        assert_eq!(pane.lock().quiet_since(), read);
    }
}
