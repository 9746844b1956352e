//! The command whose end a wait awaits (`docs/commands.md`).

use muxtap_api::StatusIs;
use muxtap_core::marks::{Command, CommandLog};

/// The `how` of a report of a command that did not end in a pane without marks.
pub(super) const UNMARKED: &str = "unmarked";

/// Where a wait for a command begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begin {
    /// At the request, which found this end of the stream. A command that muxtap's last input
    /// started and that no wait has answered yet counts, although it ended before: `unanswered_input`
    /// is the offset of that input.
    Requested { requested: u64, unanswered_input: Option<u64> },
    /// At an offset that the caller named: the first command that ended after it.
    At(u64),
}

/// The command whose end a wait awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AwaitedCommand {
    /// The command's number; it may not have begun.
    number: u64,
    status: Option<StatusIs>,
}

impl AwaitedCommand {
    /// The name under which a pane stores where the last command of a wait ended. No regex has this
    /// text.
    pub(super) const ANSWERED: &str = "(?command)";

    /// Chooses the command: the one that runs in the innermost shell; else the one that the last
    /// input started; else the next. What happened after the request counts as if it came now.
    pub(super) fn new(log: &CommandLog, begin: Begin, status: Option<StatusIs>) -> Self {
        let first_ended_from = |offset: u64| {
            let ended = log.commands().filter_map(|command| Some((command.output.end?, command.number)));
            ended.filter(|(end, _)| *end >= offset).min().map(|(_, number)| number)
        };
        let is_next = |number: u64| number == log.next_number();
        let number = match begin {
            Begin::At(offset) => first_ended_from(offset).unwrap_or_else(|| log.awaited()),
            Begin::Requested { requested, unanswered_input } => {
                let number = first_ended_from(requested).unwrap_or_else(|| log.awaited());
                let last = log.commands().next_back().filter(|_| is_next(number));
                let started = last.filter(|last| unanswered_input.is_some_and(|input| last.output.start >= input));
                started.map_or(number, |started| started.number)
            }
        };
        Self { number, status }
    }

    /// Returns the command that ended as wanted. Commands with another status are passed over: the
    /// next is one that began after them.
    pub(super) fn ended<'a>(&mut self, log: &'a CommandLog) -> Option<&'a Command> {
        loop {
            let Some(command) = log.command(self.number) else {
                // It has not begun, or is no longer kept.
                self.number = log.commands().find(|later| later.number > self.number)?.number;
                continue;
            };
            let end = command.output.end?;
            if self.status.is_none_or(|status| status.is_met(command.status, command.signal.as_deref())) {
                return Some(command);
            }
            let after = |later: &&Command| later.number > command.number && later.output.start >= end;
            self.number = log.commands().find(after).map_or_else(|| log.next_number(), |next| next.number);
        }
    }
}

#[cfg(test)]
mod tests;
