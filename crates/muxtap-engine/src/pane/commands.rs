//! The commands of a pane, from the marks that its shells print (`docs/commands.md`).

use std::{sync::Arc, time::Duration};

use muxtap_api::{CommandChoice, CommandEnd, CommandInfo, CommandLineSource, Cursor, SeenMarks};
use muxtap_base::{clock, metrics};
use muxtap_core::{
    marks::{Change, Command, CommandLog, End, LineSource, Moment, Seen},
    stream::{
        render,
        ring::{Chunk, Reading, Ring},
        text::Mark,
    },
};
use muxtap_tmux::Exit;
use tokio::time::Instant;

use serde::{Deserialize, Serialize};

use super::{LockedPane, PaneState, command_lines::CommandLines, noted::NotedChanges};

/// The most raw bytes between a prompt and a command's output that are read as its line.
const TYPED_BYTES: u64 = 64 * 1024;
/// The most lines that are read from the output of one chunk; the lines of earlier commands in it
/// stay unknown.
const SCREEN_LINES: usize = 2;

/// The least number of characters of a nonce: a shorter one could be guessed.
pub(crate) const LEAST_NONCE: usize = 16;

/// A pane's command log with the clock that it needs.
#[derive(Serialize, Deserialize)]
pub(super) struct Commands {
    pub(super) log: CommandLog,
    /// The lines of the screen at which commands begin.
    pub(super) lines: CommandLines,
    /// The moment from which times are measured.
    #[serde(with = "muxtap_base::age")]
    began: Instant,
    /// The latest changes, for subscribers.
    pub(super) noted: NotedChanges,
    /// The changes that the host has not taken.
    #[serde(skip)]
    pub(super) pending: Vec<(Change, Option<Arc<PaneCommand>>)>,
}

/// A command with its place in the pane's stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PaneCommand {
    /// The command. Its range is whole if no byte of it is known to be missing and the pane still
    /// has its beginning.
    pub command: Command,
    /// The begin of its output.
    pub start: Cursor,
    /// The end of its output; while it runs, the end of the stream so far.
    pub end: Cursor,
}

impl Commands {
    pub(super) fn new() -> Self {
        Self {
            log: CommandLog::default(),
            lines: CommandLines::default(),
            began: Instant::now(),
            noted: NotedChanges::default(),
            pending: Vec::new(),
        }
    }

    fn now(&self) -> Moment {
        Moment { unix_ms: clock::now_ms(), monotonic: self.began.elapsed() }
    }

    /// Takes a mark of the stream.
    pub(super) fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        // Bells and titles are frequent and take no clock.
        let now = if matches!(mark, Mark::Bell | Mark::Title(_)) { Moment::default() } else { self.now() };
        let next = self.log.next_number();
        if let Some(kind) = self.log.mark(start, end, mark, now) {
            metrics::mark(kind);
            if kind.starts_with("osc-") {
                self.lines.mark(mark);
            }
        }
        if self.log.next_number() > next {
            self.lines.begins(next);
        }
    }

    /// Reads the lines of new claimed commands from the output if the shell did not report them.
    pub(super) fn read_lines(&mut self, ring: &Ring) {
        let lineless = self.log.take_lineless().into_iter().rev();
        let kept = lineless.filter(|(_, typed)| typed.start >= ring.start() && typed.end - typed.start <= TYPED_BYTES);
        for (number, typed) in kept.take(SCREEN_LINES) {
            self.log.set_line(number, &render::render_text(ring, typed.start, typed.end));
            self.lines.changed();
        }
    }

    /// Ends all commands, because the pane's process ended at this offset.
    pub(super) fn process_ended(&mut self, end: u64, exit: Exit) {
        let now = self.now();
        self.log.process_ended(end, exit.status, exit.signal.map(|signal| signal.to_string()), now);
        self.lines.changed();
    }
}

impl PaneState {
    /// Trusts the marks of a shell that was given this nonce. Returns false for a nonce that is too
    /// short.
    pub fn trust_shell(&self, nonce: String) -> bool {
        let is_long = nonce.chars().count() >= LEAST_NONCE;
        if is_long {
            self.lock().output.commands.log.trust(nonce);
        }
        is_long
    }

    /// Returns the commands, the earliest first.
    pub(crate) fn commands(&self) -> Vec<PaneCommand> {
        let locked = self.lock();
        locked.output.commands.log.commands().map(|command| self.placed(&locked, command)).collect()
    }

    /// Returns the commands from this number on, the earliest first.
    pub(crate) fn commands_from(&self, number: u64) -> Vec<PaneCommand> {
        let locked = self.lock();
        let latest = locked.output.commands.log.commands().rev().take_while(|command| command.number >= number);
        let mut commands: Vec<_> = latest.map(|command| self.placed(&locked, command)).collect();
        commands.reverse();
        commands
    }

    /// Returns the latest `most` commands whose line on the screen is known, each with that line,
    /// the earliest first.
    pub(crate) fn commands_by_line(&self, most: usize) -> Vec<(u64, PaneCommand)> {
        let locked = self.lock();
        let Commands { log, lines, .. } = &locked.output.commands;
        let known = lines.of(locked.screen().numbering());
        let placed = known.rev().filter_map(|(number, line)| Some((line, self.placed(&locked, log.command(number)?))));
        let mut commands: Vec<_> = placed.take(most).collect();
        commands.reverse();
        commands
    }

    /// Returns the command with this number.
    pub(crate) fn command(&self, number: u64) -> Option<PaneCommand> {
        let locked = self.lock();
        let command = locked.output.commands.log.command(number)?;
        Some(self.placed(&locked, command))
    }

    /// Returns the command of a choice, if the pane has it.
    pub(crate) fn chosen_command(&self, locked: &LockedPane, choice: CommandChoice) -> Option<PaneCommand> {
        let log = &locked.output.commands.log;
        let command = match choice {
            CommandChoice::Number(number) => log.command(number),
            CommandChoice::FromEnd(place) => {
                let skipped = usize::try_from(place.checked_sub(1)?).ok()?;
                log.commands().rev().nth(skipped)
            }
            CommandChoice::LastFailed => log.commands().rev().find(|command| command.has_failed()),
        };
        command.map(|command| self.placed(locked, command))
    }

    /// Takes the changes of commands since the last call, each with its command if that is still
    /// kept.
    pub(crate) fn take_command_changes(&self) -> Vec<(Change, Option<Arc<PaneCommand>>)> {
        std::mem::take(&mut self.lock().output.commands.pending)
    }

    /// Places a command in the stream that may no longer be in the log.
    pub(crate) fn place_command(&self, command: &Command) -> PaneCommand {
        self.placed(&self.lock(), command)
    }

    /// Returns the next output of a command from an offset on, up to a gap; `None` at its end.
    pub(crate) fn command_chunk(&self, command: &PaneCommand, from: u64) -> Option<Chunk> {
        let locked = self.lock();
        let ring = locked.ring();
        let end = command.end.offset.min(ring.end());
        let from = from.max(ring.start());
        if from >= end {
            return None;
        }
        let chunk = ring.read(from, Reading { most: end - from, whole_sequences: false, at_end: false });
        (chunk.end > from).then_some(chunk)
    }

    pub(super) fn placed(&self, locked: &LockedPane, command: &Command) -> PaneCommand {
        let ring = locked.ring();
        let mut command = command.clone();
        command.output.is_whole &= command.output.start >= ring.start();
        let end = command.output.end.unwrap_or(ring.end());
        PaneCommand { start: self.cursor(command.output.start), end: self.cursor(end), command }
    }
}

impl LockedPane {
    /// Ends all commands, because the pane's process ended.
    pub(super) fn end_commands(&mut self, exit: Exit) {
        let end = self.output.ring.end();
        self.output.commands.process_ended(end, exit);
    }

    /// Returns the commands of the pane.
    pub(crate) fn command_log(&self) -> &CommandLog {
        &self.output.commands.log
    }

    /// Returns how often the commands with a line on the screen may have changed.
    pub(crate) fn command_changes(&self) -> u64 {
        self.output.commands.lines.changes()
    }

    /// Returns the best marks of shells that were seen.
    pub(crate) fn seen_marks(&self) -> SeenMarks {
        match self.output.commands.log.seen() {
            Seen::Nothing => SeenMarks::None,
            Seen::Claimed => SeenMarks::Claimed,
            Seen::Trusted => SeenMarks::Trusted,
        }
    }

    /// Returns the numbers of the first and the last command that is kept.
    pub(crate) fn kept_commands(&self) -> Option<(u64, u64)> {
        let mut numbers = self.output.commands.log.commands().map(|command| command.number);
        let first = numbers.next()?;
        Some((first, numbers.next_back().unwrap_or(first)))
    }

    /// Returns whether marks caused changes that were not noted yet.
    pub(super) fn has_command_changes(&self) -> bool {
        self.output.commands.log.has_changes()
    }
}

impl From<&PaneCommand> for CommandInfo {
    fn from(placed: &PaneCommand) -> Self {
        let PaneCommand { command, start, end } = placed;
        let line = command.line.as_deref();
        Self {
            number: command.number,
            parent: command.parent,
            line: line.map(|line| line.text.clone()),
            line_source: line.map(|line| match line.source {
                LineSource::Shell => CommandLineSource::Shell,
                LineSource::Screen => CommandLineSource::Screen,
            }),
            line_cut: line.is_some_and(|line| line.is_cut),
            directory: command.directory.as_ref().map(|directory| directory.path.clone()),
            started_ms: command.started_ms,
            duration_ms: command.duration.map(|ran| u64::try_from(ran.as_millis()).unwrap_or(u64::MAX)),
            status: command.status,
            signal: command.signal.clone(),
            end: command.end.map(|end| match end {
                End::Reported => CommandEnd::Reported,
                End::Unreported => CommandEnd::Unreported,
                End::ShellGone => CommandEnd::ShellGone,
                End::ProcessEnded => CommandEnd::ProcessEnded,
            }),
            trusted: command.is_trusted,
            output_start: *start,
            output_end: *end,
            bytes: end.offset.saturating_sub(start.offset),
            whole: command.output.is_whole,
        }
    }
}

impl PaneCommand {
    /// Returns how long the command ran; `None` while it runs.
    pub fn duration(&self) -> Option<Duration> {
        self.command.duration
    }
}

#[cfg(test)]
mod tests;
