//! The command whose end a wait awaits (`docs/commands.md`).

use std::cmp::Reverse;

use muxtap_api::StatusIs;
use muxtap_core::marks::{Command, CommandLog};

/// The `how` of a report of a command that did not end in a pane whose shell marks no commands.
pub(super) const UNMARKED: &str = "unmarked";

/// Where a wait for a command begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begin {
    /// At the request; `requested` is the stream's end at that time.
    Requested {
        requested: u64,
        /// The offset of muxtap's last input, or of the end of the last command that a wait returned,
        /// whichever is later. A command that began after it counts, although it ended before the
        /// request.
        unanswered_input: Option<u64>,
    },
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

    /// Chooses the command: the one that runs in the innermost shell; else the last one, if muxtap's
    /// last input started it; else the next. A command that ended since the request ran at the
    /// request.
    pub(super) fn new(log: &CommandLog, begin: Begin, status: Option<StatusIs>) -> Self {
        let first_ended_after = |offset: u64| {
            let awaitable = log.commands().filter(|command| log.is_awaitable(command));
            let ended = awaitable.filter_map(|command| Some((command.ended_at?, Reverse(command.number))));
            ended.filter(|(end, _)| *end > offset).min().map(|(_, Reverse(number))| number)
        };
        let number = match begin {
            Begin::At(offset) => first_ended_after(offset).unwrap_or_else(|| log.awaited()),
            Begin::Requested { requested, unanswered_input } => {
                let number = first_ended_after(requested).unwrap_or_else(|| log.awaited());
                let is_next = number == log.next_number();
                let last = log.commands().rfind(|command| log.is_awaitable(command)).filter(|_| is_next);
                let is_started = |last: &&Command| unanswered_input.is_some_and(|input| last.output.start > input);
                last.filter(is_started).map_or(number, |started| started.number)
            }
        };
        Self { number, status }
    }

    /// Awaits the command with this number.
    pub(super) fn numbered(number: u64, status: Option<StatusIs>) -> Self {
        Self { number, status }
    }

    /// Returns the number of the command.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the command that ended as wanted. Commands with another status are passed over: the
    /// next is one that began after them.
    pub(super) fn ended<'a>(&mut self, log: &'a CommandLog) -> Option<&'a Command> {
        loop {
            // A command that is no longer kept, or that does not count, is passed over.
            let mut later = log.commands_from(self.number).filter(|command| log.is_awaitable(command));
            let command = later.next()?;
            let end = command.ended_at?;
            let is_met = |status: StatusIs| status.is_met(command.status, command.signal.as_deref());
            if self.status.is_none_or(is_met) {
                return Some(command);
            }
            let next = later.find(|next| next.output.start > end);
            // Another integration in the same shell may still report the status.
            if next.is_none() && command.status.is_none() && command.signal.is_none() {
                return None;
            }
            self.number = next.map_or_else(|| log.next_number(), |next| next.number);
        }
    }
}

#[cfg(test)]
mod tests;
