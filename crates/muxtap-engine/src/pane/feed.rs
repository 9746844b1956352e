//! The way of output through a pane: ring, echo filter, watchers, screen.

use std::time::Instant;

use muxtap_core::{
    screen::{self, Changes, Rules},
    stream::{
        echo::EchoFilter,
        text::{Control, Mark, TextSink},
    },
};

use super::{State, screen_model::Staleness, shell_marks::ShellMarks, watch::Watch};

use crate::limits;

impl State {
    /// Notifies followers that the screen was replaced: everything on it may be new.
    pub(super) fn notify_redrawn(&mut self) {
        self.agent_signals.screen_changed(None);
        let Self { screen, watchers, ring, .. } = self;
        for watcher in watchers {
            watcher.screen_changed(screen, None, ring.end());
        }
    }

    /// Feeds output to the ring, the screen, the echo filter and the watchers. `quiet`: the pane
    /// had rested before. Returns why the screen became stale, if it did.
    pub(super) fn feed(&mut self, data: &[u8], quiet: bool) -> Option<Staleness> {
        if data.is_empty() {
            return None;
        }
        let over = self.string_due().and_then(|_| self.give_up_string(Instant::now()).1);
        let echo = if self.echo.is_idle() { None } else { Some(&mut self.echo) };
        let mut tee = Tee { echo, watchers: &mut self.watchers, shell_marks: &mut self.shell_marks };
        let ring = &mut self.ring;
        // Text and screen in one parse: on a single thread an answer leaves only when both are done.
        let (changes, staleness) = self.screen.feed_with(data, quiet, |screen| match screen {
            Some(screen) => ring.push_and_draw(data, &mut tee, screen),
            None => ring.push(data, &mut tee),
        });
        self.note_string();
        if let Some(title) = self.shell_marks.take_title() {
            self.notify_title(&title);
        }
        self.end_command_line();
        let Self { watchers, echo, shell_marks, .. } = self;
        // Watchers of a decided wait stay until its driver removes them. Dropping one frees many
        // small objects, and the result comes first.
        for watcher in watchers {
            watcher.end_of_chunk(echo, shell_marks);
        }
        // Patterns before the changed rows: a caller that waits for a pattern does not wait for those.
        self.agent_signals.screen_changed(changes.as_ref());
        if let Some(changes) = changes {
            self.notify_rows(&changes);
        }
        over.or(staleness)
    }

    /// Takes output of the pane: feeds it, unless it begins with the end of a character of which the
    /// beginning came before the seed. That is held back until tmux has shown the character.
    pub(super) fn take(&mut self, data: &[u8], quiet: bool) -> Option<Staleness> {
        if let Some(cut) = &mut self.cut {
            cut.bytes.extend_from_slice(data);
            if cut.bytes.len() > limits::CUT_BYTES {
                self.release(&[]);
            }
            return None;
        }
        if self.screen.begins_within_character(data) {
            self.cut = Some(CutOutput { bytes: data.to_vec(), left: limits::CUT_TRIES });
            return Some(Staleness::Untold);
        }
        self.feed(data, quiet)
    }

    /// Completes what is held back with the beginning that tmux's screen shows, or gives it up after some
    /// tries. Returns whether something was held back.
    pub(super) fn complete(&mut self, seed: &screen::Seed, rules: Rules) -> bool {
        let Some(cut) = &mut self.cut else { return false };
        cut.left = cut.left.saturating_sub(1);
        match self.screen.beginning_of(&cut.bytes, seed, rules) {
            Some(beginning) => self.release(&beginning),
            None if cut.left == 0 => self.release(&[]),
            None => {}
        }
        true
    }

    /// Feeds what is held back, behind this.
    pub(crate) fn release(&mut self, beginning: &[u8]) {
        if let Some(cut) = self.cut.take() {
            self.feed(&[beginning, &cut.bytes].concat(), false);
        }
    }

    /// Ends the typing of a command line once the mark that begins its output has come.
    fn end_command_line(&mut self) {
        if self.echo.command_line().is_none() {
            return;
        }
        let output = self.shell_marks.marks(&self.run_nonce).and_then(|marks| marks.begin);
        if output.is_some() {
            self.echo.command_line_ends(output);
        }
    }

    /// Notifies watchers of changed rows on the screen.
    fn notify_rows(&mut self, changes: &Changes) {
        let Self { screen, watchers, ring, .. } = self;
        for watcher in watchers {
            watcher.screen_changed(screen, Some(changes), ring.end());
        }
    }

    pub(super) fn notify_title(&mut self, title: &str) {
        self.agent_signals.title_changed(title);
        for watcher in &mut self.watchers {
            watcher.title_changed(title);
        }
    }

    /// Notifies watchers that the stream rests: some matches are only certain then.
    pub(crate) fn rest_watchers(&mut self) {
        let Self { watchers, echo, .. } = self;
        for watcher in watchers {
            watcher.stream_rested(echo);
        }
    }
}

/// Output that begins with the end of a character.
pub(super) struct CutOutput {
    /// All that came since the seed.
    bytes: Vec<u8>,
    /// Replies of tmux that may still show the character.
    left: u8,
}

impl CutOutput {
    /// Bytes held back.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Passes the decoder's events on to echo filter, watchers and shell marks.
struct Tee<'a> {
    echo: Option<&'a mut EchoFilter>,
    watchers: &'a mut Vec<Box<dyn Watch>>,
    shell_marks: &'a mut ShellMarks,
}

impl TextSink for Tee<'_> {
    fn text(&mut self, offset: u64, text: &[u8]) {
        if let Some(echo) = &mut self.echo {
            echo.text(offset, text);
        }
        for watcher in self.watchers.iter_mut() {
            watcher.text(offset, text);
        }
    }

    fn control(&mut self, offset: u64, control: Control) {
        if let Some(echo) = &mut self.echo {
            echo.control(offset, control);
        }
        for watcher in self.watchers.iter_mut() {
            watcher.control(offset, control);
        }
    }

    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        self.shell_marks.mark(start, end, mark);
    }
}
