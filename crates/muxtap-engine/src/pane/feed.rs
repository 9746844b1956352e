//! The path of output through a pane: ring, echo filter, watchers, screen.

use tokio::time::Instant;

use muxtap_core::screen::{self, Rules};

use super::{LockedPane, output::Completed, screen_model::Staleness};

impl LockedPane {
    /// Notifies followers that the screen was replaced: everything on it may be new.
    pub(super) fn notify_redrawn(&mut self) {
        let Self { output, watchers, .. } = self;
        watchers.agent_signals.screen_changed(None);
        watchers.screen_changed(&output.screen, None, output.ring.end());
    }

    /// Feeds output to the ring, the screen, the echo filter and the watchers. `quiet`: the pane
    /// had rested before. Returns the reason if the screen became stale.
    pub(super) fn feed(&mut self, data: &[u8], quiet: bool) -> Option<Staleness> {
        if data.is_empty() {
            return None;
        }
        let Self { output, watchers, input, .. } = self;
        let over = output.string_due().and_then(|_| output.give_up_string(Instant::now()).1);
        let (changes, staleness) = output.append(data, quiet, watchers);
        if let Some(title) = output.shell_marks.take_title() {
            watchers.title_changed(&title);
        }
        output.end_command_line(input.run_nonce(), input.run_command());
        watchers.end_of_chunk(&output.echo, &output.shell_marks);
        // Patterns before the changed rows: a caller that waits for a pattern does not wait for those.
        watchers.agent_signals.screen_changed(changes.as_ref());
        if changes.is_some() {
            watchers.screen_changed(&output.screen, changes.as_ref(), output.ring.end());
        }
        over.or(staleness)
    }

    /// Takes output of the pane. Feeds it, unless it begins with the end of a character whose
    /// beginning came before the seed; such output is held back until tmux has shown the character.
    pub(super) fn take(&mut self, data: &[u8], quiet: bool) -> Option<Staleness> {
        if let Some(is_too_much) = self.output.hold_back_more(data) {
            if is_too_much {
                self.release(&[]);
            }
            return None;
        }
        if self.output.hold_back_if_cut(data) {
            return Some(Staleness::Untold);
        }
        self.feed(data, quiet)
    }

    /// Completes the held-back output with the beginning that tmux's screen shows, or gives up
    /// after some tries. Returns whether output was held back.
    pub(super) fn complete(&mut self, seed: &screen::Seed, rules: Rules) -> bool {
        match self.output.complete(seed, rules) {
            Completed::Nothing => return false,
            Completed::Later => {}
            Completed::Now(beginning) => self.release(&beginning),
        }
        true
    }

    /// Feeds the held-back output behind `beginning`.
    pub(super) fn release(&mut self, beginning: &[u8]) {
        if let Some(held_back) = self.output.take_held_back() {
            self.feed(&[beginning, &held_back].concat(), false);
        }
    }
}
