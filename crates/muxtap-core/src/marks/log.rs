//! Commands of a pane, made of the marks that its shells print.
//!
//! Shells form a stack of *levels*: the shell of the pane, a shell started in it, a shell on another
//! host in that one. Each level runs at most one command. Two kinds of levels never mix: *trusted*
//! ones, whose marks carry a nonce of muxtap's, and *claimed* ones. A claimed mark changes no
//! trusted level (K3).
//!
//! Several integrations may mark the same command. Marks without a byte between them belong to one
//! *run*: two begins in one run are one command.

mod level;

use std::{ops::Range, sync::Arc, time::Duration};

use level::{At, Ended, Level, Running, Sources};

use serde::{Deserialize, Serialize};

use super::{
    Change, Command, ContextEnd, ContextKind, ContextStart, Directory, End, Line, LineSource, Output, ShellMark, Sign,
    Step,
    changes::{CHANGES, Changes},
    command::KeptCommands,
    notification::Joiner,
    parse,
};

use crate::stream::text::Mark;

/// The shells in shells that the log tells apart.
pub const LEVELS: usize = 16;
/// The nonces that a pane trusts at once; with more, the earliest is forgotten.
const NONCES: usize = 16;

/// A time on two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// The time since any fixed moment, by a clock that never jumps.
    pub monotonic: Duration,
}

/// The marks of shells that were seen in a pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Seen {
    /// None.
    #[default]
    Nothing,
    /// Marks without a nonce of muxtap's: any program may have printed them.
    Claimed,
    /// Marks with a nonce of muxtap's.
    Trusted,
}

/// The command line of a shell that waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLine<'a> {
    /// The offset at which it begins.
    pub start: u64,
    /// Whether a trusted shell reported it.
    pub is_trusted: bool,
    /// The kind of shell, if muxtap's integration reported it: `bash`, `zsh`, `fish`, `sh`, or `dash`
    /// for a sh without a line editor.
    pub shell: Option<&'a str>,
}

/// The commands of one pane. Its memory is bounded (K6).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CommandLog {
    commands: KeptCommands,
    levels: Vec<Level>,
    nonces: Vec<String>,
    directory: Option<Arc<Directory>>,
    /// The run in which the directory was reported.
    directory_run: u64,
    joiner: Joiner,
    changes: Changes,
    seen: Seen,
    /// Claimed commands that began and whose line the shell did not report.
    lineless: Vec<u64>,
    last_ended: Option<Ended>,
    /// Whether a command that had ended got a status or signal since the changes were taken.
    is_completed: bool,
    /// The offset at which the current run of marks began, and its end.
    run: u64,
    run_end: Option<u64>,
}

impl CommandLog {
    /// Trusts marks with this nonce from now on.
    pub fn trust(&mut self, nonce: String) {
        if self.nonces.contains(&nonce) {
            return;
        }
        if self.nonces.len() >= NONCES {
            self.nonces.remove(0);
        }
        self.nonces.push(nonce);
    }

    /// Returns the commands, the earliest first.
    pub fn commands(&self) -> impl DoubleEndedIterator<Item = &Command> + ExactSizeIterator {
        self.commands.iter()
    }

    /// Returns the command with this number.
    pub fn command(&self, number: u64) -> Option<&Command> {
        self.commands.get(number)
    }

    /// Returns the innermost command that runs.
    pub fn running(&self) -> Option<&Command> {
        let running = self.levels.iter().rev().find_map(|level| level.running.as_ref())?;
        self.command(running.number)
    }

    /// Returns the number of the command that the innermost shell runs; if it runs none, that of the
    /// next command. While a trusted shell is there, only trusted shells count (K3).
    pub fn awaited(&self) -> u64 {
        let innermost = self.top_trusted(|_| true).or_else(|| self.levels.len().checked_sub(1));
        let running = innermost.and_then(|index| self.running_at(index));
        running.map_or_else(|| self.next_number(), |running| running.number)
    }

    /// Returns whether a wait may be for this command: a claimed one only while no trusted shell is
    /// there (K3).
    pub fn is_awaitable(&self, command: &Command) -> bool {
        command.is_trusted || self.top_trusted(|_| true).is_none()
    }

    /// Returns the commands from a number on, the earliest first.
    pub fn commands_from(&self, number: u64) -> impl DoubleEndedIterator<Item = &Command> {
        self.commands.from(number)
    }

    /// Returns the number of the next command.
    pub fn next_number(&self) -> u64 {
        self.commands.last_number() + 1
    }

    /// Returns the best marks of shells that were seen so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// Returns the directory that was reported last.
    pub fn directory(&self) -> Option<&Directory> {
        self.directory.as_deref()
    }

    /// Returns the number of bytes held.
    pub fn memory(&self) -> usize {
        self.commands.memory() + self.joiner.memory()
    }

    /// Returns whether there are changes to take.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty() || self.is_completed
    }

    /// Takes the changes since the last call. Of directories and progress without another change
    /// between, only the last is kept. Of very many changes, only the latest are kept, and those of
    /// trusted commands before all others.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.is_completed = false;
        self.changes.take()
    }

    /// Takes the claimed commands whose line the shell did not report, with the offsets of what was
    /// typed. A trusted command is never among them: any program can print what the screen shows.
    pub fn take_lineless(&mut self) -> Vec<(u64, Range<u64>)> {
        let numbers = std::mem::take(&mut self.lineless);
        let wanted = |number: u64| {
            let command = self.command(number).filter(|command| command.lacks_line())?;
            Some((number, command.typed.clone()?))
        };
        numbers.into_iter().filter_map(wanted).collect()
    }

    /// Returns the command line of the innermost shell, if that shell waits for one.
    pub fn open_line(&self) -> Option<OpenLine<'_>> {
        let innermost = self.levels.last().filter(|level| level.waits())?;
        Some(OpenLine { start: innermost.input?, is_trusted: innermost.is_trusted, shell: innermost.shell.as_deref() })
    }

    /// Sets the line of the command that began between `typed` and `output`: a program made the shell
    /// read it from elsewhere. Its output begins at `output`.
    pub fn set_given_line(&mut self, typed: u64, output: u64, line: &str) {
        let began = |command: &&Command| (typed..=output).contains(&command.output.start);
        let Some(number) = self.commands.iter().rev().find(began).map(|command| command.number) else { return };
        let line = Line::of(line.as_bytes(), LineSource::Shell, false).map(Arc::new);
        self.commands.change(number, |command| {
            (command.line, command.typed) = (line, None);
            command.output.start = output.min(command.output.end.unwrap_or(output));
        });
    }

    /// Sets the line of a claimed command, as the screen showed it, unless the shell reported it.
    pub fn set_line(&mut self, number: u64, text: &str) {
        let line = Line::of(text.as_bytes(), LineSource::Screen, false).map(Arc::new);
        self.commands.change(number, |command| {
            if command.lacks_line() {
                command.line = line;
            }
        });
    }

    /// Adds a mark of the pane's stream, from offset `start` to `end`. Returns the name of its kind
    /// if it has a meaning. Marks must come in the order of the stream.
    pub fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>, now: Moment) -> Option<&'static str> {
        if mark == Mark::Bell {
            return None;
        }
        if self.run_end != Some(start) {
            self.run = start;
        }
        self.run_end = Some(end);
        let sign = parse(mark)?;
        let kind = sign.kind();
        let at = At { start, end, now, is_trusted: false, source: Sources::CONTEXT };
        match sign {
            Sign::Shell(mark) => self.shell(at, mark),
            Sign::ContextStart(context) => self.context_started(at, context),
            Sign::ContextEnd(context) => self.context_ended(at, context),
            Sign::Directory(directory) => {
                self.directory_run = self.run;
                self.set_directory(Arc::new(directory));
            }
            Sign::Progress(progress) => self.changes.note(Change::Progress(progress), false),
            Sign::Notification(part) => {
                for notification in self.joiner.add(part) {
                    self.changes.note(Change::Notification(notification), false);
                }
            }
        }
        Some(kind)
    }

    /// Notes that output is missing at this point of the stream: marks may be, too.
    pub fn interrupt(&mut self) {
        self.run_end = None;
        let mut running = Vec::new();
        for level in &mut self.levels {
            (level.input, level.line) = (None, None);
            running.extend(level.running.as_ref().map(|running| running.number));
        }
        for number in running {
            self.commands.change(number, |command| command.output.is_whole = false);
        }
    }

    /// Ends every command, because the pane's process ended at this offset. The outermost command
    /// was ended by `exit` or replaced its shell by `exec`, and gets the status of the process.
    pub fn process_ended(&mut self, offset: u64, status: Option<i32>, signal: Option<String>, now: Moment) {
        let at = At { start: offset, end: offset, now, is_trusted: false, source: Sources::default() };
        self.run_end = None;
        // The lowest levels may run nothing: a shell at its prompt within another context.
        if let Some(number) = self.levels.iter().find_map(|level| Some(level.running.as_ref()?.number)) {
            self.commands.change(number, |command| (command.status, command.signal) = (status, signal));
        }
        while !self.levels.is_empty() {
            self.pop(at, End::ProcessEnded);
        }
    }

    fn set_directory(&mut self, directory: Arc<Directory>) {
        if self.directory.as_ref() != Some(&directory) {
            self.directory = Some(Arc::clone(&directory));
            self.changes.note(Change::Directory(directory), false);
        }
    }

    /// Returns the index of the topmost trusted level that fits.
    fn top_trusted(&self, fits: impl Fn(&Level) -> bool) -> Option<usize> {
        self.levels.iter().rposition(|level| level.is_trusted && fits(level))
    }

    /// Returns the index of the lowest level that a mark may find: a claimed one finds none below a
    /// trusted level.
    fn floor(&self, is_trusted: bool) -> usize {
        if is_trusted { 0 } else { self.top_trusted(|_| true).map_or(0, |at| at + 1) }
    }

    /// Returns the level that a prompt or a command of this shell belongs to, if there is one.
    fn find(&self, at: At, aid: Option<&str>) -> Option<usize> {
        let floor = self.floor(at.is_trusted);
        let levels = || self.levels.iter().enumerate().skip(floor).rev().filter(|(_, l)| l.is_trusted == at.is_trusted);
        if let Some(aid) = aid {
            let named = levels().find(|(_, level)| level.aid.as_deref() == Some(aid));
            // A shell that ran nothing is gone, or its id was not known yet.
            let other = || levels().next().filter(|(_, level)| level.running.is_none());
            return named.or_else(other).map(|(index, _)| index);
        }
        levels().next().map(|(index, _)| index)
    }

    /// Adds a level on top. With too many, the topmost one makes room; a claimed level displaces no
    /// trusted one (K3). The first trusted level replaces all claimed ones: a mark that a program or
    /// a startup file printed before it does not count as a shell around it.
    fn push(&mut self, at: At) -> usize {
        if at.is_trusted && self.top_trusted(|_| true).is_none() {
            while let Some(top) = self.levels.len().checked_sub(1) {
                self.finish(top, at, End::ShellGone, None, None);
                self.levels.truncate(top);
            }
        }
        let displaced = self.levels.last().is_some_and(|top| at.is_trusted || !top.is_trusted);
        if self.levels.len() >= LEVELS && displaced {
            self.pop(at, End::ShellGone);
        }
        self.levels.push(Level { is_trusted: at.is_trusted, ..Level::default() });
        self.levels.len() - 1
    }

    /// Removes the topmost level.
    fn pop(&mut self, at: At, end: End) {
        let Some(top) = self.levels.len().checked_sub(1) else { return };
        self.finish(top, at, end, None, None);
        self.levels.truncate(top);
        // The directory was that of the shell that is gone, unless the shell outside of it has
        // reported its own already.
        let around = self.parent_of(top).and_then(|number| self.command(number));
        if let Some(around) = around
            && self.directory_run != self.run
        {
            match around.directory.clone() {
                Some(directory) => self.set_directory(directory),
                None => self.directory = None,
            }
        }
    }

    fn pop_above(&mut self, index: usize, at: At) {
        while self.levels.len() > index + 1 {
            self.pop(at, End::ShellGone);
        }
    }

    fn running_at(&self, index: usize) -> Option<&Running> {
        self.levels.get(index)?.running.as_ref()
    }

    fn shell(&mut self, at: At, mark: ShellMark<'_>) {
        let is_trusted = mark.nonce.is_some_and(|nonce| self.nonces.iter().any(|known| known == nonce));
        self.seen = self.seen.max(if is_trusted { Seen::Trusted } else { Seen::Claimed });
        let at = At { is_trusted, source: Sources::of(mark.family, is_trusted), ..at };
        let aid = mark.aid;
        match mark.step {
            Step::PromptPart => {}
            Step::Prompt => {
                let index = self.find(at, aid);
                self.prompt(index, at);
                self.name_top(aid);
            }
            Step::Input => {
                let index = match self.find(at, aid) {
                    Some(index) if self.running_at(index).is_some() => return,
                    Some(index) => index,
                    // fish 4 adds its own mark to that of a trusted prompt.
                    None if self.levels.last().is_some_and(|top| top.is_trusted && top.waits()) => return,
                    None => self.push(at),
                };
                self.pop_above(index, at);
                if let Some(level) = self.levels.get_mut(index) {
                    // A second mark of the same prompt, without a name, is of the same shell.
                    let known = if level.waits() { level.shell.take() } else { None };
                    (level.input, level.shell) = (Some(at.end), mark.shell.map(str::to_owned).or(known));
                }
                self.name_top(aid);
            }
            Step::Line(line) => self.line(at, line),
            Step::Output { line } => self.output(at, aid, line),
            Step::End { status } => self.ended(at, aid, status),
        }
    }

    fn name_top(&mut self, aid: Option<&str>) {
        if let (Some(level), Some(aid)) = (self.levels.last_mut(), aid) {
            level.aid = Some(aid.to_owned());
        }
    }

    /// Begins a prompt in the level found for it, or in a new one.
    fn prompt(&mut self, index: Option<usize>, at: At) {
        let index = match index {
            // Another integration marks within a running command: a shell in a shell.
            Some(index) if self.running_at(index).is_some_and(|running| !running.sources.contains(at.source)) => None,
            index => index,
        };
        let index = index.unwrap_or_else(|| self.push(at));
        self.pop_above(index, at);
        self.finish(index, at, End::Unreported, None, None);
        if let Some(level) = self.levels.get_mut(index) {
            (level.input, level.line) = (None, None);
        }
    }

    fn line(&mut self, at: At, line: Line) {
        let index = self.find(at, None).unwrap_or_else(|| self.push(at));
        let run = self.run;
        let line = Arc::new(line);
        let Some(level) = self.levels.get_mut(index) else { return };
        match level.running.as_ref().filter(|running| running.run == run).map(|running| running.number) {
            Some(number) => self.commands.change(number, |command| {
                if command.line.as_ref().is_none_or(|line| line.source == LineSource::Screen) {
                    command.line = Some(line);
                }
            }),
            None => level.line = Some(line),
        }
    }

    /// Begins a command of a shell, or joins it with the command that another integration began in
    /// the same run.
    fn output(&mut self, at: At, aid: Option<&str>, line: Option<Line>) {
        if !at.is_trusted && self.joins_trusted(at, None) {
            return;
        }
        let line = line.map(Arc::new);
        let found = self.find(at, aid);
        let claimed = if at.is_trusted { self.take_claimed(found, line.as_deref()) } else { None };
        let index = found.unwrap_or_else(|| self.push(at));
        self.pop_above(index, at);
        if let Some(running) = claimed {
            self.finish(index, at, End::Unreported, None, None);
            self.upgrade(index, running, at, line);
        } else {
            self.begin(index, at, line, None, None);
        }
        self.name_top(aid);
    }

    /// Joins a claimed begin with the trusted command that began in the same run. Returns whether
    /// there is one.
    fn joins_trusted(&mut self, at: At, context: Option<&str>) -> bool {
        let run = self.run;
        let Some(index) = self.top_trusted(|level| level.running.as_ref().is_some_and(|running| running.run == run))
        else {
            return false;
        };
        self.join(index, at, context);
        true
    }

    fn join(&mut self, index: usize, at: At, context: Option<&str>) {
        let Some(running) = self.levels.get_mut(index).and_then(|level| level.running.as_mut()) else { return };
        running.sources.add(at.source);
        if let Some(context) = context {
            running.context = Some(context.to_owned());
        }
        let number = running.number;
        self.commands.change(number, |command| command.output.start = at.end);
    }

    /// Takes the claimed command above a level that began in this run: the trusted begin is of the same
    /// command. fish 4.0 prints sequences without text between the two; so a command with the same line
    /// that began while the trusted shell waited for one is the same, too.
    fn take_claimed(&mut self, below: Option<usize>, line: Option<&Line>) -> Option<Running> {
        let run = self.run;
        let waited = below.and_then(|index| self.levels.get(index)).filter(|level| level.waits());
        let input = waited.and_then(|level| level.input);
        let commands = &self.commands;
        let is_same = |running: &Running| {
            let command = commands.get(running.number);
            let claimed = command.filter(|command| input.is_some_and(|input| input <= command.output.start));
            let claimed = claimed.and_then(|command| command.line.as_deref());
            claimed.zip(line).is_some_and(|(claimed, line)| claimed.text == line.text)
        };
        let mut above = self.levels.iter_mut().skip(below.map_or(0, |index| index + 1));
        above.find_map(|level| {
            level.running.take_if(|running| !level.is_trusted && (running.run == run || is_same(running)))
        })
    }

    /// Makes a claimed command a trusted one. Nothing claimed stays in it but the directory.
    fn upgrade(&mut self, index: usize, mut running: Running, at: At, line: Option<Arc<Line>>) {
        running.sources.add(at.source);
        running.run = self.run;
        let number = running.number;
        let parent = self.parent_of(index);
        let Some(level) = self.levels.get_mut(index) else { return };
        let typed = level.input.take().map(|input| input..at.start);
        level.running = Some(running);
        self.commands.change(number, |command| {
            (command.is_trusted, command.line, command.typed) = (true, line, typed);
            (command.output.start, command.parent) = (at.end, parent);
            (command.started_ms, command.began) = (at.now.unix_ms, at.now.monotonic);
        });
        self.changes.trust_start(number);
    }

    fn parent_of(&self, index: usize) -> Option<u64> {
        let below = self.levels.iter().take(index).rev();
        below.filter_map(|level| level.running.as_ref()).map(|running| running.number).next()
    }

    fn want_line(&mut self, number: u64) {
        if self.lineless.len() < CHANGES && self.command(number).is_some_and(Command::lacks_line) {
            self.lineless.push(number);
        }
    }

    /// Begins a command in a level, or joins it with the one that began there in the same run.
    fn begin(
        &mut self,
        index: usize,
        at: At,
        line: Option<Arc<Line>>,
        directory: Option<Arc<Directory>>,
        context: Option<&str>,
    ) {
        if let Some(running) = self.running_at(index) {
            let number = running.number;
            if running.run == self.run {
                self.join(index, at, context);
                self.commands.change(number, |command| {
                    command.line = command.line.take().or(line);
                    command.directory = directory.or(command.directory.take());
                });
                return;
            }
            if !running.sources.contains(at.source) {
                let index = self.push(at);
                return self.begin(index, at, line, directory, context);
            }
            self.finish(index, at, End::Unreported, None, None);
        }
        let parent = self.parent_of(index);
        let Some(level) = self.levels.get_mut(index) else { return };
        let reported = level.line.take();
        let typed = level.input.take().map(|input| input..at.start);
        let command = Command {
            // The next one, from `add`.
            number: 0,
            parent,
            line: line.or(reported),
            directory: directory.or_else(|| self.directory.clone()),
            started_ms: at.now.unix_ms,
            duration: None,
            status: None,
            signal: None,
            end: None,
            is_trusted: at.is_trusted,
            output: Output { start: at.end, end: None, is_whole: true },
            ended_at: None,
            typed,
            began: at.now.monotonic,
        };
        let number = self.commands.add(command);
        let begun = Running {
            number,
            sources: at.source,
            run: self.run,
            context: context.map(str::to_owned),
            claimed_end: None,
        };
        if let Some(level) = self.levels.get_mut(index) {
            level.running = Some(begun);
        }
        self.changes.note(Change::Started(number), at.is_trusted);
        self.want_line(number);
    }

    /// Ends the command of a shell.
    fn ended(&mut self, at: At, aid: Option<&str>, status: Option<i32>) {
        let is_same_shell = |level: &Level| aid.is_none_or(|aid| level.aid.as_deref().is_none_or(|known| known == aid));
        self.end_matching(at, status, None, |level, running| {
            running.sources.contains(at.source) && is_same_shell(level)
        });
    }

    /// Ends the topmost running command that fits and that this mark may end (K3).
    fn end_matching(
        &mut self,
        at: At,
        status: Option<i32>,
        signal: Option<String>,
        fits: impl Fn(&Level, &Running) -> bool,
    ) {
        // No claimed mark ends what runs below a trusted command.
        let guard = self.top_trusted(|level| level.running.is_some());
        let floor = if at.is_trusted { 0 } else { guard.map_or(0, |index| index + 1) };
        let fits_here = |level: &Level| {
            level.is_trusted == at.is_trusted && level.running.as_ref().is_some_and(|running| fits(level, running))
        };
        let found = self.levels.iter().skip(floor).rposition(fits_here).map(|index| index + floor);
        if let Some(index) = found {
            self.pop_above(index, at);
            self.finish(index, at, End::Reported, status, signal);
            return;
        }
        if !at.is_trusted
            && let Some(level) = guard.and_then(|index| self.levels.get_mut(index))
            && level.running.as_ref().is_some_and(|running| fits(level, running))
        {
            let place = (self.run, at.start);
            if let Some(running) = &mut level.running
                && running.claimed_end.is_none_or(|(run, _)| run != self.run)
            {
                running.claimed_end = Some(place);
            }
            return;
        }
        self.complete(at, status, signal);
    }

    /// Adds what another integration reports about the command that ended in this run.
    fn complete(&mut self, at: At, status: Option<i32>, signal: Option<String>) {
        let Some(ended) = self.last_ended.filter(|ended| ended.run == self.run && ended.sources.contains(at.source))
        else {
            return;
        };
        self.is_completed = true;
        self.commands.change(ended.number, |command| {
            if !command.is_trusted || at.is_trusted {
                command.status = command.status.or(status);
                command.signal = command.signal.take().or(signal);
            }
        });
    }

    /// Ends the command that a level runs, if it runs one.
    fn finish(&mut self, index: usize, at: At, end: End, status: Option<i32>, signal: Option<String>) {
        let Some(running) = self.levels.get_mut(index).and_then(|level| level.running.take()) else { return };
        let claimed = running.claimed_end.filter(|(run, _)| *run == self.run).map(|(_, offset)| offset);
        self.commands.change(running.number, |command| {
            command.end = Some(end);
            command.status = status.or(command.status);
            command.signal = signal.or(command.signal.take());
            command.duration = Some(at.now.monotonic.saturating_sub(command.began));
            command.output.end = Some(claimed.unwrap_or(at.start).max(command.output.start));
            command.ended_at = Some(at.end);
        });
        self.last_ended = Some(Ended { number: running.number, sources: running.sources, run: self.run });
        let is_trusted = self.commands.ended(running.number);
        self.changes.note(Change::Finished(running.number), is_trusted);
    }

    fn context_started(&mut self, at: At, context: ContextStart) {
        if matches!(context.kind, ContextKind::Command | ContextKind::Shell) {
            self.seen = self.seen.max(Seen::Claimed);
        }
        if context.kind == ContextKind::Command {
            if self.joins_trusted(at, Some(&context.id)) {
                return;
            }
            let index = self.find(at, None).unwrap_or_else(|| self.push(at));
            let (line, directory) = (context.line.map(Arc::new), context.directory.map(Arc::new));
            self.begin(index, at, line, directory, Some(&context.id));
            return;
        }
        let floor = self.floor(false);
        let named = self.levels.iter().skip(floor).position(|level| level.context.as_ref() == Some(&context.id));
        let index = match named.map(|index| index + floor) {
            Some(index) => Some(index),
            // The same shell may mark with OSC 133, too.
            None if context.kind == ContextKind::Shell => self.find(at, None).filter(|index| {
                self.levels.get(*index).is_some_and(|level| level.running.is_none() && level.context.is_none())
            }),
            None => None,
        };
        self.prompt(index, at);
        if let Some(level) = self.levels.last_mut() {
            level.context = Some(context.id);
        }
        if let Some(directory) = context.directory {
            self.directory_run = self.run;
            self.set_directory(Arc::new(directory));
        }
    }

    fn context_ended(&mut self, at: At, context: ContextEnd) {
        // A shell or a container, unless it is below a trusted level.
        let floor = self.floor(false);
        let named = self.levels.iter().skip(floor).position(|level| level.context.as_ref() == Some(&context.id));
        if let Some(index) = named.map(|index| index + floor) {
            self.pop_above(index, at);
            self.pop(at, End::ShellGone);
            return;
        }
        self.end_matching(at, context.status, context.signal, |_, running| {
            running.context.as_ref() == Some(&context.id)
        });
    }
}

#[cfg(test)]
mod tests;
