//! A pane's output and what follows from it alone: ring, echo filter, marks, screen and times.

use tokio::time::Instant;

use muxtap_core::{
    screen::{self, Changes, Rules},
    stream::{
        echo::EchoFilter,
        render,
        ring::Ring,
        text::{Control, Mark, TextSink},
    },
};

use serde::{Deserialize, Serialize};

use super::{
    Revision,
    commands::Commands,
    output_times::OutputTimes,
    screen_model::{ScreenModel, Staleness},
    shell_marks::{FoundMark, ShellMarks},
    strings::StringTimeout,
    watchers::Watchers,
};

use crate::{input::command_line::TypedLine, limits};

/// A pane's output, and the screen that follows from it.
#[derive(Serialize, Deserialize)]
pub(super) struct Output {
    /// Stored by itself: most of it may have been copied before.
    #[serde(skip, default = "no_ring")]
    pub(super) ring: Ring,
    pub(super) echo: EchoFilter,
    pub(super) shell_marks: ShellMarks,
    /// The commands that the marks of shells tell of.
    pub(super) commands: Commands,
    /// The pane's screen. For a pane that has ended: its last screen.
    pub(super) screen: ScreenModel,
    /// The stream's end at the last change of the pane's size.
    pub(super) resized_at: u64,
    /// The timeout of the unterminated string (OSC, DCS …) at the stream's end.
    pub(super) string: StringTimeout,
    /// When the last output arrived (or when the pane was first seen).
    #[serde(with = "muxtap_base::age")]
    last: Instant,
    /// The times at which the pane printed its output.
    times: OutputTimes,
    /// The generation of the sink whose output is taken. Each seed begins a new one.
    sink_generation: u64,
    /// Output that is held back because it begins with the end of a character.
    cut: Option<CutOutput>,
    /// The line that `run` types.
    typed_line: TypedLine,
}

/// Returns the ring of an output whose own one follows.
fn no_ring() -> Ring {
    Ring::new(0)
}

/// The number of bytes before a typed line in which its prompt is looked for.
const PROMPT_BYTES: u64 = 4096;

/// Output that begins with the end of a character.
#[derive(Serialize, Deserialize)]
struct CutOutput {
    /// All output since the seed.
    #[serde(with = "muxtap_core::stored::bytes")]
    bytes: Vec<u8>,
    /// The number of tmux's replies that may still show the character.
    left: u8,
}

/// The result of comparing held-back output with tmux's screen.
pub(super) enum Completed {
    /// No output was held back.
    Nothing,
    /// A later reply may complete the held-back output.
    Later,
    /// This beginning completes the held-back output; it is empty after the last try.
    Now(Vec<u8>),
}

impl Output {
    pub(super) fn new(ring_bytes: usize) -> Self {
        Self {
            ring: Ring::new(ring_bytes),
            echo: EchoFilter::default(),
            shell_marks: ShellMarks::default(),
            commands: Commands::new(),
            screen: ScreenModel::default(),
            resized_at: 0,
            string: StringTimeout::default(),
            last: Instant::now(),
            times: OutputTimes::default(),
            sink_generation: 0,
            cut: None,
            typed_line: TypedLine::default(),
        }
    }

    /// Returns the number of bytes held: output, screen and commands.
    pub(super) fn held_bytes(&self) -> usize {
        self.ring.len()
            + self.screen.memory()
            + self.commands.log.memory()
            + self.commands.lines.memory()
            + self.cut.as_ref().map_or(0, |cut| cut.bytes.len())
    }

    pub(super) fn revision(&self) -> Revision {
        Revision { end: self.ring.end(), generation: self.screen.generation() }
    }

    /// Begins a new generation of output and returns it.
    pub(super) fn begin_generation(&mut self) -> u64 {
        self.sink_generation += 1;
        self.sink_generation
    }

    /// Returns the generation of output that is accepted.
    pub(super) fn sink_generation(&self) -> u64 {
        self.sink_generation
    }

    /// Returns whether output of this generation is accepted.
    pub(super) fn takes(&self, generation: u64) -> bool {
        self.sink_generation == generation
    }

    /// Returns when the last output arrived (or when the pane was first seen).
    pub(super) fn last(&self) -> Instant {
        self.last
    }

    /// Notes that the output appended next arrives now. Returns whether the pane had rested before.
    pub(super) fn arrive(&mut self, now: Instant) -> bool {
        let quiet = now.duration_since(self.last) >= limits::REST;
        self.last = now;
        self.note_time(now);
        quiet
    }

    /// Notes that all output up to the stream's end was printed by now.
    pub(super) fn note_time(&mut self, now: Instant) {
        let (start, end) = (self.ring.start(), self.ring.end());
        self.times.note(now, end, start);
    }

    /// Returns when the output from this offset on was printed: offsets, and milliseconds since
    /// 1970.
    pub(super) fn times_from(&self, from: u64) -> Vec<(u64, u64)> {
        self.times.from(from)
    }

    /// Returns where the output printed at a time or later begins; the time in milliseconds since
    /// 1970.
    pub(super) fn printed_since(&self, at_ms: u64) -> u64 {
        self.times.begin(at_ms, self.ring.end()).unwrap_or(0).max(self.ring.start())
    }

    /// Returns where the output printed until a time ends; the time in milliseconds since 1970.
    pub(super) fn printed_until(&self, at_ms: u64) -> u64 {
        self.times.end(at_ms, self.ring.end())
    }

    /// Returns the unfinished last line.
    pub(super) fn resting_line(&self) -> String {
        let end = self.ring.end();
        let from = end.saturating_sub(limits::LAST_LINE_BYTES).max(self.ring.start());
        let text = render::render_text(&self.ring, from, end);
        text.rsplit('\n').next().unwrap_or_default().to_owned()
    }

    /// Appends output to the ring and feeds it to the screen; echo filter, marks and watchers get its text. `quiet`:
    /// the pane had rested before. Returns what changed on the screen, and why it became stale, if it did.
    ///
    /// Text and screen in one parse: on a single thread an answer leaves only when both are done.
    pub(super) fn append(
        &mut self,
        data: &[u8],
        quiet: bool,
        watchers: &mut Watchers,
    ) -> (Option<Changes>, Option<Staleness>) {
        let Self { ring, echo, shell_marks, commands, screen, .. } = self;
        let echo = if echo.is_idle() { None } else { Some(echo) };
        commands.lines.begin(screen.numbering());
        let mut tee = Tee { echo, watchers, shell_marks, commands };
        let drawn = screen.feed_with(data, quiet, |screen| match screen {
            Some(screen) => ring.push_and_draw(data, &mut tee, screen),
            None => ring.push(data, &mut tee),
        });
        self.string.note(self.ring.string_start());
        for mark in self.shell_marks.take_found() {
            self.hide(mark);
        }
        self.commands.read_lines(&self.ring);
        drawn
    }

    /// Leaves a mark of muxtap's out of the text, and with the mark that ends the line that `run`
    /// typed, that line.
    fn hide(&mut self, mark: FoundMark) {
        let FoundMark { start, end, ends_line } = mark;
        let from = self.ring.held().filter(|_| ends_line);
        if from.is_some_and(|from| self.shows_only_the_line(from, start, true)) {
            self.ring.hide(from.unwrap_or(start), end);
        } else {
            // Text that something else printed meanwhile is never hidden.
            self.ring.hide(start, end);
        }
    }

    /// Returns whether the output between two offsets shows the line that `run` typed, prompts that
    /// were there before, and nothing else. `entered`: the line was entered.
    fn shows_only_the_line(&self, from: u64, to: u64, entered: bool) -> bool {
        let before = render::render_text(&self.ring, from.saturating_sub(PROMPT_BYTES).max(self.ring.start()), from);
        let printed = render::render_text(&self.ring, from, to);
        self.typed_line.is_all_of(&printed, &before, entered)
    }

    /// Records the line that `run` is about to type: text is held back until the line has ended.
    pub(super) fn begin_command_line(&mut self, line: &TypedLine) -> u64 {
        let mark = self.ring.end();
        line.clone_into(&mut self.typed_line);
        self.ring.hold();
        self.echo.command_line_begins(mark);
        mark
    }

    /// Ends the typing of a command line once the mark with `nonce`, which begins the command's
    /// output, has come.
    pub(super) fn end_command_line(&mut self, nonce: &str, command: &str) {
        let Some(typed) = self.echo.command_line() else { return };
        if let Some(output) = self.shell_marks.marks(nonce).and_then(|marks| marks.begin) {
            self.echo.command_line_ends(Some(output));
            self.commands.log.set_given_line(typed, output, command);
            self.commands.lines.changed();
        }
    }

    /// Records that no command line is being typed. `is_removed`: the line was removed again.
    pub(super) fn forget_command_line(&mut self, is_removed: bool) {
        let end = self.ring.end();
        match self.ring.held() {
            Some(from) if is_removed && self.shows_only_the_line(from, end, false) => self.ring.hide(from, end),
            _ => self.ring.show(),
        }
        self.echo.command_line_ends(None);
    }

    /// Appends output to the held-back output. Returns whether that is too much now; `None` if no
    /// output is held back.
    pub(super) fn hold_back_more(&mut self, data: &[u8]) -> Option<bool> {
        let cut = self.cut.as_mut()?;
        cut.bytes.extend_from_slice(data);
        Some(cut.bytes.len() > limits::CUT_BYTES)
    }

    /// Holds output back if it begins with the end of a character whose beginning came before the
    /// seed. Returns whether it does.
    pub(super) fn hold_back_if_cut(&mut self, data: &[u8]) -> bool {
        let is_cut = self.screen.begins_within_character(data);
        if is_cut {
            self.cut = Some(CutOutput { bytes: data.to_vec(), left: limits::CUT_TRIES });
        }
        is_cut
    }

    /// Compares the held-back output with tmux's screen.
    pub(super) fn complete(&mut self, seed: &screen::Seed, rules: Rules) -> Completed {
        let Some(cut) = &mut self.cut else { return Completed::Nothing };
        cut.left = cut.left.saturating_sub(1);
        match self.screen.beginning_of(&cut.bytes, seed, rules) {
            Some(beginning) => Completed::Now(beginning),
            None if cut.left == 0 => Completed::Now(Vec::new()),
            None => Completed::Later,
        }
    }

    /// Takes the held-back output.
    pub(super) fn take_held_back(&mut self) -> Option<Vec<u8>> {
        self.cut.take().map(|cut| cut.bytes)
    }
}

/// Passes the decoder's events to echo filter, watchers, shell marks and commands.
struct Tee<'a> {
    echo: Option<&'a mut EchoFilter>,
    watchers: &'a mut Watchers,
    shell_marks: &'a mut ShellMarks,
    commands: &'a mut Commands,
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
        self.commands.mark(start, end, mark);
    }

    fn line(&mut self, line: Option<u64>) {
        self.commands.lines.at(line);
    }
}
