//! The latest changes that marks caused in a pane, for its subscribers.

use std::{collections::VecDeque, sync::Arc};

use muxtap_api::{CommandInfo, Event, EventKind, ProgressState};
use muxtap_core::{
    marks::{self, Change, Command, End},
    protocol::ids::PaneId,
};

use serde::{Deserialize, Serialize};

use super::{LockedPane, PaneState, commands::PaneCommand};

/// The changes that are kept for subscribers. A subscriber that is further behind misses the earliest,
/// the claimed ones first.
pub(crate) const NOTED: usize = 256;
/// The bytes of notifications and directories among the changes that are kept for subscribers.
pub(crate) const NOTED_BYTES: usize = 256 * 1024;

/// A change that a mark caused, with its place in the stream.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Noted {
    number: u64,
    /// The offset in the stream after the mark, or a later one. A subscriber gets the change once it was
    /// sent the output up to there.
    pub(crate) offset: u64,
    change: Change,
    command: Option<Arc<PaneCommand>>,
}

/// The latest changes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NotedChanges {
    list: VecDeque<Arc<Noted>>,
    bytes: usize,
    /// The number of the next change.
    next: u64,
}

impl NotedChanges {
    fn add(&mut self, offset: u64, change: Change, command: Option<Arc<PaneCommand>>) {
        let noted = Noted { number: self.next, offset, change, command };
        self.next += 1;
        self.bytes += noted.bytes();
        self.list.push_back(Arc::new(noted));
        while self.list.len() > NOTED || self.bytes > NOTED_BYTES {
            // A claimed change displaces no trusted one (K3).
            let claimed = self.list.iter().position(|noted| !noted.is_trusted()).unwrap_or_default();
            let Some(dropped) = self.list.remove(claimed) else { return };
            self.bytes -= dropped.bytes();
        }
    }

    fn clear(&mut self) {
        (self.list, self.bytes) = (VecDeque::new(), 0);
    }
}

impl Noted {
    fn is_trusted(&self) -> bool {
        self.command.as_ref().is_some_and(|command| command.command.is_trusted)
    }

    /// Returns the bytes of its own texts. Those of a command belong to the pane's log.
    fn bytes(&self) -> usize {
        match &self.change {
            Change::Notification(notification) => notification.title.len() + notification.body.len(),
            Change::Directory(directory) => directory.path.len(),
            _ => 0,
        }
    }

    /// Returns the kind of its event.
    pub(crate) fn kind(&self) -> EventKind {
        match self.change {
            Change::Started(_) => EventKind::CommandStarted,
            Change::Finished(_) => EventKind::CommandFinished,
            Change::Directory(_) => EventKind::Cwd,
            Change::Progress(_) => EventKind::Progress,
            Change::Notification(_) => EventKind::Notification,
        }
    }

    /// Makes the event. `None` if the command was no longer kept.
    pub(crate) fn event(&self, pane: PaneId) -> Option<Event> {
        let command = || Some(Box::new(CommandInfo::from(self.command.as_deref()?)));
        Some(match &self.change {
            Change::Started(_) => Event::CommandStarted { pane, command: command()? },
            Change::Finished(_) => Event::CommandFinished { pane, command: command()? },
            Change::Directory(directory) => {
                Event::Cwd { pane, path: directory.path.clone(), host: directory.host.clone() }
            }
            Change::Progress(progress) => {
                Event::Progress { pane, state: progress_state(progress.state), percent: progress.percent }
            }
            Change::Notification(notification) => {
                let (title, body) = (notification.title.clone(), notification.body.clone());
                Event::Notification { pane, title, body }
            }
        })
    }
}

fn progress_state(state: marks::ProgressState) -> ProgressState {
    match state {
        marks::ProgressState::Ended => ProgressState::Ended,
        marks::ProgressState::Running => ProgressState::Running,
        marks::ProgressState::Failed => ProgressState::Failed,
        marks::ProgressState::Unknown => ProgressState::Unknown,
        marks::ProgressState::Paused => ProgressState::Paused,
    }
}

impl PaneState {
    /// Takes the changes that marks caused, notifies the watchers, and keeps the changes for
    /// subscribers and for [`Self::take_command_changes`].
    pub(super) fn note_command_changes(&self, locked: &mut LockedPane) {
        if !locked.has_command_changes() {
            return;
        }
        let has_readers = self.event_cache.has_readers();
        let mut changes = Vec::new();
        // The place of a change that is not about a command: at the latest, that of the next one.
        let mut before = locked.output.ring.end();
        for change in locked.output.commands.log.take_changes().into_iter().rev() {
            let command = match &change {
                Change::Started(number) | Change::Finished(number) => {
                    let command = locked.output.commands.log.command(*number);
                    command.map(|command| Arc::new(self.placed(locked, command)))
                }
                _ => None,
            };
            before = match (&change, &command) {
                (Change::Started(_), Some(command)) => before.min(command.command.output.start),
                (Change::Finished(_), Some(command)) => before.min(command.command.ended_at.unwrap_or(before)),
                _ => before,
            };
            changes.push((before, change, command));
        }
        for (_, change, _) in changes.iter().rev() {
            match change {
                Change::Progress(progress) => {
                    locked.agent_signals().progress_changed(progress_state(progress.state));
                }
                Change::Notification(notification) => {
                    locked.agent_signals().notified(&notification.title, &notification.body);
                }
                _ => {}
            }
        }
        let LockedPane { output, watchers, .. } = locked;
        for (offset, change, command) in changes.into_iter().rev() {
            if has_readers {
                output.commands.noted.add(offset, change.clone(), command.clone());
            }
            output.commands.pending.push((change, command));
        }
        watchers.commands_changed(&output.commands.log);
    }

    /// Returns the changes from a number on, up to an offset of the stream, and the number of the next
    /// change.
    pub(crate) fn noted_changes(&self, from: u64, offset: u64) -> (Vec<Arc<Noted>>, u64) {
        let locked = self.lock();
        let noted = &locked.output.commands.noted;
        let first = noted.list.partition_point(|noted| noted.number < from);
        let changes: Vec<_> = noted.list.range(first..).take_while(|noted| noted.offset <= offset).cloned().collect();
        let next = noted.list.get(first + changes.len()).map_or(noted.next, |noted| noted.number);
        (changes, next)
    }

    /// Drops the changes that are kept for subscribers.
    pub(crate) fn drop_noted(&self) {
        // Subscribers are dropped in any state of the pane.
        self.lock().output.commands.noted.clear();
    }
}

impl LockedPane {
    /// Returns the number of the next change.
    pub(crate) fn next_noted(&self) -> u64 {
        self.output.commands.noted.next
    }

    /// Returns the begins and ends of commands after an offset, from the log. `saw_end`: the end of the
    /// pane's process counts as seen.
    pub(crate) fn noted_after(&self, pane: &PaneState, offset: u64, saw_end: bool) -> Vec<Noted> {
        let note = |command: &Command, offset: u64, change: Change| Noted {
            number: 0,
            offset,
            change,
            command: Some(Arc::new(pane.placed(self, command))),
        };
        let mut noted = Vec::new();
        for command in self.output.commands.log.commands() {
            if command.output.start > offset {
                noted.push(note(command, command.output.start, Change::Started(command.number)));
            }
            let is_process = command.end == Some(End::ProcessEnded);
            let is_new = |end: &u64| *end > offset || *end == offset && is_process && !saw_end;
            if let Some(end) = command.ended_at.filter(is_new) {
                noted.push(note(command, end, Change::Finished(command.number)));
            }
        }
        // Of commands that ended together, the innermost ended first.
        noted.sort_by_key(|noted| (noted.offset, std::cmp::Reverse(noted.ended_number())));
        noted
    }
}

impl Noted {
    /// Returns the number of the command that ended; 0 for another change.
    fn ended_number(&self) -> u64 {
        if let Change::Finished(number) = self.change { number } else { 0 }
    }
}

#[cfg(test)]
mod tests;
