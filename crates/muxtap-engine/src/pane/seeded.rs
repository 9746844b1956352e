//! Applies seeds to a pane: the first one, one after a gap, the last one, and one that resyncs a
//! stale screen.

use tokio::time::Instant;

use muxtap_api::{Gap, GapReason};
use muxtap_base::metrics;
use muxtap_core::{
    screen::Rules,
    stream::join::{self, Joined},
};
use muxtap_tmux::{Exit, Seed};

use super::{LockedPane, MemoryDelta, PaneState, PushOutcome, Revision, output::Output};

use crate::pane::{managed::OnExit, resync::ResyncOutcome, screen_model::Reconciled};

impl PaneState {
    /// Applies the first seed: what the pane showed before muxtap followed it.
    pub(crate) fn seed_first(&self, seed: &Seed, rules: Option<Rules>) -> MemoryDelta {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        locked.feed(&seed.text, false);
        locked.feed(&seed.pending, false);
        // The time of this content is unknown; it is only known to be older.
        locked.output.note_time(Instant::now());
        locked.adopt(seed, rules, !seed.dead);
        // tmux may learn how a process ended a turn after it learned that it did (N16); the end is
        // recorded then.
        if seed.dead && (seed.exit_status.is_some() || seed.exit_signal.is_some()) {
            locked.process.end(Exit { status: seed.exit_status, signal: seed.exit_signal });
        }
        let memory = locked.memory_since(before);
        self.notify_changed(locked);
        memory
    }

    /// Applies a seed after output may have been lost. Marks the gap, and adds what the seed shows
    /// and the stream lacks.
    pub(crate) fn seed_after_gap(&self, seed: &Seed, rules: Option<Rules>, reason: GapReason) -> MemoryDelta {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        locked.release(&[]);
        let joined = locked.join(seed);
        locked.output.arrive(Instant::now());
        locked.push_gap(reason);
        // The missing output may have contained further marks.
        locked.output.shell_marks.forget_prompts();
        // The seed also contains the screen: output that is added to the stream must not be drawn
        // as well.
        locked.output.screen.adopt(None, None, true);
        match joined {
            Joined::Missing(text) => {
                locked.feed(&text, false);
                locked.feed(&seed.pending, false);
            }
            Joined::Unrelated => {
                // Nothing of the known text is shown any more, so all of the seed is new.
                locked.feed(b"\r\n", false);
                locked.feed(&seed.text, false);
                locked.feed(&seed.pending, false);
            }
        }
        locked.adopt(seed, rules, !seed.dead);
        let memory = locked.memory_since(before);
        self.notify_changed(locked);
        memory
    }

    /// Resumes the stream when another connection carries the pane.
    ///
    /// Continues with `output`, which came over that connection, if it is exactly what the stream
    /// lacks of the seed. A pane that came back to a client may have printed before its output
    /// flowed on that client again (N60). Then the stream continues with the lines that tmux shows
    /// in addition, if they explain everything that tmux shows. Returns `None` if neither applies.
    pub(crate) fn resume(&self, seed: &Seed, rules: Option<Rules>, output: &[u8]) -> Option<PushOutcome> {
        let mut locked = self.lock();
        locked.release(&[]);
        let screens = seed.screen.as_ref().zip(rules);
        let shown =
            if locked.is_whole_with(output, seed, rules) { None } else { Some(locked.shown_more(seed, rules)?) };
        let output = shown.as_deref().unwrap_or(output);
        let before = locked.held_bytes();
        if shown.is_some() {
            // Lines of the screen have no marks.
            locked.output.commands.log.interrupt();
        }
        if !output.is_empty() {
            locked.output.arrive(Instant::now());
            locked.feed(output, false);
        }
        match screens.filter(|_| locked.output.screen.is_proven()) {
            // The screen keeps its knowledge beyond what tmux reports.
            Some((seed, rules)) => {
                locked.output.screen.reconcile(seed, rules);
                locked.notify_redrawn();
            }
            None => locked.adopt(seed, rules, !seed.dead),
        }
        let memory = locked.memory_since(before);
        let wrapper_exit = locked.take_wrapper_exit();
        let string_due = locked.output.watch_string();
        let has_command_changes = locked.has_command_changes();
        self.notify_changed(locked);
        // The seed has reconciled the screen.
        Some(PushOutcome {
            memory,
            wrapper_exit,
            staleness: None,
            string_due,
            is_unsure: false,
            is_compressible: false,
            has_command_changes,
        })
    }

    /// Restarts the stream for another program, and closes whatever the last program left open.
    /// Returns whether the screen needs a resync. `ran`: the last program was killed for the new
    /// one, and its last output may be missing.
    pub(crate) fn restart(&self, ran: bool) -> (bool, MemoryDelta) {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        locked.release(&[]);
        let needs_resync = locked.output.screen.restart();
        let is_open = !locked.output.resting_line().is_empty();
        locked.output.ring.restart();
        locked.end_commands(Exit::default());
        if is_open {
            locked.feed(b"\r\n", false);
        }
        if ran {
            locked.push_gap(GapReason::Paused);
        }
        locked.process.begin_anew();
        // Plain tmux respawns the previous command line, including its exit wrapper.
        let LockedPane { process, output: Output { shell_marks, .. }, .. } = &mut *locked;
        if let Some(wrapper) = process.managed.as_mut().and_then(|managed| managed.wrapper.as_mut()) {
            shell_marks.unregister_nonce(&wrapper.nonce);
            shell_marks.register_nonce(&wrapper.nonce);
            wrapper.is_awaited = true;
        }
        locked.watchers.agent_signals.program_changed();
        let memory = locked.memory_since(before);
        self.notify_changed(locked);
        (needs_resync, memory)
    }

    /// Stores the last screen of a pane whose wrapped command has ended. If tmux cannot be kept
    /// from drawing a row of its own into a pane that remains, this stays the pane's screen.
    pub(crate) fn keep_screen(&self, seed: &Seed, rules: Option<Rules>) -> MemoryDelta {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        locked.adopt(seed, rules, false);
        let stays = locked.process.managed.as_ref().is_some_and(|managed| managed.on_exit == OnExit::Keep);
        if stays && !seed.dead && rules.is_some_and(|rules| rules.always_draws_at_death()) {
            locked.output.screen.keep();
        }
        locked.process.note_ended(seed.pid);
        locked.memory_since(before)
    }

    /// Applies the last seed: the process has ended, and this is all of its output that tmux kept
    /// (F9, N10). Adds what tmux did not send. The end is recorded next
    /// ([`PaneState::mark_exited`]).
    pub(crate) fn seed_last(&self, seed: &Seed, rules: Option<Rules>) -> MemoryDelta {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        locked.release(&[]);
        if locked.process.has_ended() {
            // The exit wrapper has reported that everything arrived.
            if !locked.output.screen.is_kept() {
                locked.adopt(seed, rules, false);
            }
            locked.process.note_ended(seed.pid);
            return locked.memory_since(before);
        }
        locked.output.screen.adopt(None, None, true);
        // If the program draws its screen, the stream and the seed do not join, and nothing is
        // added.
        if let Joined::Missing(text) = locked.join(seed) {
            locked.feed(&text, false);
        }
        locked.adopt(seed, rules, false);
        locked.process.note_ended(seed.pid);
        let memory = locked.memory_since(before);
        self.notify_changed(locked);
        memory
    }

    /// Reconciles the screen with a seed that was requested at revision `since`. Returns `Moving`
    /// if the screen became stale since then, or if the pane printed and nothing proves yet where
    /// the seed belongs.
    pub(crate) fn reconcile(&self, since: Revision, seed: &Seed, rules: Rules) -> (ResyncOutcome, MemoryDelta) {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        let outcome = match &seed.screen {
            // There was held-back output: the screen is compared with the next reply.
            Some(seed) if locked.complete(seed, rules) => ResyncOutcome::Moving,
            Some(_) if locked.output.screen.generation() != since.generation => ResyncOutcome::Moving,
            Some(seed) if locked.output.screen.can_reconcile() => {
                let outcome = if locked.revision() == since {
                    locked.output.screen.reconcile(seed, rules)
                } else {
                    locked.output.screen.reconcile_moving(seed, rules)
                };
                if outcome != Reconciled::Unsettled {
                    locked.notify_redrawn();
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
        let memory = locked.memory_since(before);
        self.notify_changed(locked);
        (outcome, memory)
    }

    /// Suspends the screen: the pane's output is no longer followed until it is seeded again.
    pub(crate) fn suspend_screen(&self) {
        self.lock().output.screen.suspend();
    }

    /// Marks the pane as held, until the next seed.
    pub(crate) fn hold_screen(&self) {
        self.lock().output.screen.hold();
    }
}

impl LockedPane {
    /// Returns the time since which the pane has been quiet. A held pane counts as printing.
    pub(crate) fn quiet_since(&self) -> Instant {
        if self.output.screen.is_held() { Instant::now() } else { self.output.last() }
    }

    /// Marks a gap: bytes may be missing here.
    fn push_gap(&mut self, reason: GapReason) {
        let gap = Gap::new(reason, None);
        metrics::gap(reason);
        self.output.ring.push_gap(gap);
        self.output.echo.interrupt();
        self.output.commands.log.interrupt();
        self.watchers.record_gap(gap);
    }

    /// Marks that the last output of a process that ended may be missing.
    pub(super) fn mark_possible_loss(&mut self) {
        self.push_gap(GapReason::ProcessEnded);
    }

    /// Replaces the screen with what tmux shows.
    fn adopt(&mut self, seed: &Seed, rules: Option<Rules>, live: bool) {
        self.output.screen.adopt(seed.screen.as_ref(), rules, live);
        self.notify_redrawn();
    }

    /// Returns whether the stream followed by `output` equals what tmux shows: the whole screen if
    /// it is followed, otherwise the text.
    fn is_whole_with(&self, output: &[u8], seed: &Seed, rules: Option<Rules>) -> bool {
        let screens = seed.screen.as_ref().zip(rules);
        let agrees = screens.and_then(|(seed, rules)| self.output.screen.agrees_after(output, seed, rules));
        agrees.unwrap_or_else(|| join::is_whole_with(&self.output.ring, output, &seed.text, &seed.pending))
    }

    /// Returns the lines that tmux shows and the stream lacks, if they explain everything that tmux
    /// shows. Lines with styles do not, because the output that made them is unknown.
    fn shown_more(&self, seed: &Seed, rules: Option<Rules>) -> Option<Vec<u8>> {
        let Joined::Missing(mut lines) = self.join(seed) else { return None };
        if seed.alternate || !join::ends_plainly(&seed.text, &lines) {
            return None;
        }
        lines.extend_from_slice(&seed.pending);
        self.is_whole_with(&lines, seed, rules).then_some(lines)
    }

    fn join(&self, seed: &Seed) -> Joined {
        join::join(&self.output.ring, &seed.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use muxtap_api::Epoch;
    use muxtap_core::protocol::{ids::PaneId, version::Version};

    #[test]
    fn a_gap_makes_prompt_marks_unknown() {
        let pane = PaneState::new(PaneId(1), Epoch::default(), 1 << 20);
        // The command's output begins (C); the next prompt (A) falls into the gap.
        pane.lock().feed(b"\x1b]133;C\x07working\r\n", false);
        assert!(pane.lock().output.shell_marks.prompt.is_some_and(|(_, shown)| !shown));
        let seed = Seed { text: b"working\r\n$ ".to_vec(), ..Seed::default() };
        let _ = pane.seed_after_gap(&seed, None, GapReason::Paused);
        let locked = pane.lock();
        let marks = &locked.output.shell_marks;
        assert_eq!((marks.prompt, marks.output_began, marks.output_ended), (None, None, None));
    }

    /// A resync that is asked on a connection that no longer carries the pane shows output that the
    /// stream lacks. It is no proof that the stream is whole.
    #[test]
    fn a_screen_that_a_resync_has_corrected_does_not_prove_the_stream() {
        let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
        let shown = |lines: &[&str]| {
            let (row, rows) = (lines.len(), 6);
            let fields = format!("0|{row}|0|{rows}|0|0|||7|20|2000|4294967295|4294967295|0|1|0|0|1|1|\n");
            let text = format!("{}{}", lines.join("\n"), "\n".repeat(rows - lines.len() + 1));
            let parts = [&text, "\n", &fields, &text, "\n"].map(|part| Bytes::copy_from_slice(part.as_bytes()));
            Seed::parse(&parts).unwrap()
        };
        let resumed = |resync: &[&str], then: &[&str]| {
            let pane = PaneState::new(PaneId(1), Epoch::default(), 1 << 20);
            let _ = pane.seed_first(&shown(&["one"]), Some(rules));
            assert_eq!(pane.reconcile(pane.revision(), &shown(resync), rules).0, ResyncOutcome::Different);
            pane.suspend_screen();
            assert!(pane.resume(&shown(then), Some(rules), b"").is_some(), "{then:?}");
            let locked = pane.lock();
            let screen = locked.output.screen.followed().unwrap();
            let rows: Vec<_> = (0..3).map(|row| screen.row_text(row)).collect();
            (String::from_utf8(locked.output.ring.bytes(0, locked.output.ring.end())).unwrap(), rows)
        };
        let whole = ("one\r\ntwo\r\nthree\r\n".to_owned(), ["one", "two", "three"].map(String::from).to_vec());
        assert_eq!(resumed(&["one", "two"], &["one", "two", "three"]), whole);
        assert_eq!(resumed(&["one", "two", "three"], &["one", "two", "three"]), whole);
    }

    #[test]
    fn a_held_pane_is_not_quiet() {
        let pane = PaneState::new(PaneId(1), Epoch::default(), 1 << 20);
        let begun = Instant::now();
        pane.lock().output.arrive(begun);
        assert_eq!(pane.lock().quiet_since(), begun);
        pane.hold_screen();
        let held = Instant::now();
        assert!(pane.lock().quiet_since() >= held);
        // The next reading ends the hold.
        let _ = pane.seed_after_gap(&Seed::default(), None, GapReason::Paused);
        let read = pane.lock().output.last();
        assert_eq!(pane.lock().quiet_since(), read);
    }
}
