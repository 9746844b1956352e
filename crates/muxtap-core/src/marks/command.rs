//! A command of a pane, and the commands that are kept.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Directory, Line};

/// The commands of a pane that are kept; with more, the earliest that ended are dropped (K6), the
/// claimed ones first.
pub const COMMANDS: usize = 1000;
/// The bytes of lines and directories of a pane's commands; with more, the earliest commands that
/// ended are dropped, the claimed ones first.
pub const COMMAND_TEXT_BYTES: usize = 1 << 20;

/// A command that ran, or runs, in a pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The number in its pane, from 1.
    pub number: u64,
    /// The number of the command in which it runs: a shell, ssh, a container.
    pub parent: Option<u64>,
    /// The command line; `None` if neither the shell nor the screen showed it. A line from the
    /// screen ([`LineSource::Screen`](super::LineSource::Screen)) is always a claim: a trusted command has none.
    pub line: Option<Arc<Line>>,
    /// The directory that was last reported before it began. Always a claim, and absent if the
    /// directories of many commands exceed [`COMMAND_TEXT_BYTES`].
    pub directory: Option<Arc<Directory>>,
    /// The time of its begin, in milliseconds since 1970.
    pub started_ms: u64,
    /// How long it ran; `None` while it runs.
    pub duration: Option<Duration>,
    /// The exit status, if one was reported.
    pub status: Option<i32>,
    /// The name of the signal that ended it, if one was reported.
    pub signal: Option<String>,
    /// How its end became known; `None` while it runs.
    pub end: Option<End>,
    /// Whether its marks carried a nonce of muxtap's; otherwise any program may have printed them.
    pub is_trusted: bool,
    /// Where its output is in the pane's stream.
    pub output: Output,
    /// The offset after the mark that ended it, or at which its process ended; `None` while it runs.
    /// This is the place of the command's end in the stream: its output may end before.
    pub ended_at: Option<u64>,
    /// The offsets between the end of the prompt and the begin of the output: what was typed.
    pub(super) typed: Option<Range<u64>>,
    pub(super) began: Duration,
}

impl Command {
    /// Returns whether the command ended with a signal or a status other than 0.
    pub fn has_failed(&self) -> bool {
        self.end.is_some() && (self.signal.is_some() || self.status.is_some_and(|status| status != 0))
    }

    /// Returns whether the screen may give this command its line.
    pub(super) fn lacks_line(&self) -> bool {
        self.line.is_none() && !self.is_trusted
    }
}

/// The range of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The offset of the first byte.
    pub start: u64,
    /// The offset after the last byte; `None` while the command runs.
    pub end: Option<u64>,
    /// Whether no byte is known to be missing within the range.
    pub is_whole: bool,
}

/// How a command's end became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Its shell reported the end.
    Reported,
    /// Its shell began something else without reporting the end: a prompt, or the next command. The
    /// status is unknown.
    Unreported,
    /// Its shell is gone: a shell outside of it continued. The status is unknown.
    ShellGone,
    /// The pane's process ended. Status and signal are those of the process.
    ProcessEnded,
}

/// The sizes of commands that are kept. What is claimed counts apart: it displaces nothing trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    trusted_commands: usize,
    /// The bytes of the lines and signals of trusted commands.
    trusted_bytes: usize,
    /// The bytes of all directories, and of the lines and signals of claimed commands.
    claimed_bytes: usize,
}

impl Held {
    pub(super) fn of(command: &Command) -> Self {
        let directory = command.directory.as_ref();
        let directory = directory.map_or(0, |named| named.path.len() + named.host.as_ref().map_or(0, String::len));
        let reported =
            command.line.as_ref().map_or(0, |line| line.text.len()) + command.signal.as_ref().map_or(0, String::len);
        if command.is_trusted {
            Self { trusted_commands: 1, trusted_bytes: reported, claimed_bytes: directory }
        } else {
            Self { trusted_commands: 0, trusted_bytes: 0, claimed_bytes: directory + reported }
        }
    }

    pub(super) fn bytes(self) -> usize {
        self.trusted_bytes + self.claimed_bytes
    }

    pub(super) fn add(&mut self, other: Self) {
        self.trusted_commands += other.trusted_commands;
        self.trusted_bytes += other.trusted_bytes;
        self.claimed_bytes += other.claimed_bytes;
    }

    fn subtract(&mut self, other: Self) {
        self.trusted_commands -= other.trusted_commands;
        self.trusted_bytes -= other.trusted_bytes;
        self.claimed_bytes -= other.claimed_bytes;
    }
}

/// The commands that are kept, the earliest first. Those that ended are dropped with time, the claimed
/// ones first (K3, K6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptCommands {
    commands: VecDeque<Command>,
    last_number: u64,
    pub(super) held: Held,
    /// The numbers of the trusted commands that ended, in this order.
    ended_trusted: VecDeque<u64>,
    /// The numbers of the claimed commands that ended, in this order.
    ended_claimed: VecDeque<u64>,
}

impl KeptCommands {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Command> + ExactSizeIterator {
        self.commands.iter()
    }

    pub(super) fn from(&self, number: u64) -> impl DoubleEndedIterator<Item = &Command> {
        self.commands.range(self.commands.partition_point(|command| command.number < number)..)
    }

    pub(super) fn last_number(&self) -> u64 {
        self.last_number
    }

    pub(super) fn get(&self, number: u64) -> Option<&Command> {
        let at = self.position(number)?;
        self.commands.get(at)
    }

    /// Adds a command, which gets the next number. Returns the number.
    pub(super) fn add(&mut self, mut command: Command) -> u64 {
        self.last_number += 1;
        command.number = self.last_number;
        self.held.add(Held::of(&command));
        self.commands.push_back(command);
        self.drop_old();
        self.last_number
    }

    /// Notes that a command ended: it may be dropped. Returns whether it is trusted.
    pub(super) fn ended(&mut self, number: u64) -> bool {
        let is_trusted = self.get(number).is_some_and(|command| command.is_trusted);
        let ended = if is_trusted { &mut self.ended_trusted } else { &mut self.ended_claimed };
        ended.push_back(number);
        is_trusted
    }

    /// Returns the number of bytes held.
    pub(super) fn memory(&self) -> usize {
        let numbers = (self.ended_trusted.len() + self.ended_claimed.len()) * size_of::<u64>();
        self.held.bytes() + self.commands.len() * size_of::<Command>() + numbers
    }

    /// Changes a command, if it is kept.
    pub(super) fn change(&mut self, number: u64, change: impl FnOnce(&mut Command)) {
        if let Some(at) = self.position(number)
            && let Some(command) = self.commands.get_mut(at)
        {
            self.held.subtract(Held::of(command));
            change(command);
            self.held.add(Held::of(command));
        }
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.commands.binary_search_by_key(&number, |command| command.number).ok()
    }

    /// Drops the earliest commands that ended. Those that run are few ([`LEVELS`]). Nothing claimed,
    /// a directory included, displaces a trusted command (K3).
    fn drop_old(&mut self) {
        while self.held.trusted_commands > COMMANDS || self.held.trusted_bytes > COMMAND_TEXT_BYTES {
            let Some(number) = self.ended_trusted.pop_front() else { break };
            self.drop_command(number);
        }
        loop {
            let is_long = self.held.bytes() > COMMAND_TEXT_BYTES;
            if !is_long && self.commands.len() <= COMMANDS {
                return;
            }
            if let Some(number) = self.ended_claimed.pop_front() {
                self.drop_command(number);
            } else if !is_long || !self.drop_directory() {
                return;
            }
        }
    }

    fn drop_command(&mut self, number: u64) {
        let dropped = self.position(number).and_then(|at| self.commands.remove(at));
        if let Some(dropped) = dropped {
            self.held.subtract(Held::of(&dropped));
        }
    }

    /// Drops the directory of the earliest command that has one. Returns whether there is one.
    fn drop_directory(&mut self) -> bool {
        let Some(command) = self.commands.iter().find(|command| command.directory.is_some()) else { return false };
        let number = command.number;
        self.change(number, |command| command.directory = None);
        true
    }
}
