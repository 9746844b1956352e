//! The latest changes that marks caused in a pane, for its subscribers.

use std::{collections::VecDeque, sync::Arc};

use muxtap_api::{CommandInfo, Event, EventKind, ProgressState};
use muxtap_core::{
    marks::{self, Change, Command, CommandLog, End},
    protocol::ids::PaneId,
};

use super::{LockedPane, PaneState, commands::PaneCommand};

/// The changes that are kept for subscribers; one that is more behind misses the earliest.
pub(crate) const NOTED: usize = 256;

/// A change that a mark caused, with its place in the stream.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    /// The offset in the stream. A subscriber gets the change after the output up to there.
    pub(crate) offset: u64,
    change: Change,
    command: Option<Arc<PaneCommand>>,
}

/// The latest changes. A subscriber remembers the number of the next one that it lacks.
#[derive(Debug, Default)]
pub(super) struct NotedChanges {
    list: VecDeque<Noted>,
    /// The number of the next change.
    next: u64,
}

impl NotedChanges {
    fn add(&mut self, noted: Noted) {
        if self.list.len() >= NOTED {
            self.list.pop_front();
        }
        self.list.push_back(noted);
        self.next += 1;
    }

    /// Returns the changes from a number on.
    fn since(&self, number: u64) -> impl Iterator<Item = (u64, &Noted)> {
        let first = self.next - self.list.len() as u64;
        let skipped = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
        (first..).zip(&self.list).skip(skipped)
    }
}

impl Noted {
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
    /// Takes the changes that marks caused, and keeps them for subscribers and for
    /// [`Self::take_command_changes`].
    pub(super) fn note_command_changes(&self, locked: &mut LockedPane) {
        if !locked.has_command_changes() {
            return;
        }
        let has_readers = self.event_cache.has_readers();
        let end = locked.output.ring.end();
        for change in locked.output.commands.log.take_changes() {
            let command = match &change {
                Change::Started(number) | Change::Finished(number) => {
                    let command = locked.output.commands.log.command(*number);
                    command.map(|command| Arc::new(self.placed(locked, command)))
                }
                _ => None,
            };
            if has_readers {
                let offset = match (&change, &command) {
                    (Change::Started(_), Some(command)) => command.start.offset,
                    (Change::Finished(_), Some(command)) => command.end.offset,
                    _ => end,
                };
                locked.output.commands.noted.add(Noted { offset, change: change.clone(), command: command.clone() });
            }
            locked.output.commands.pending.push((change, command));
        }
        if !has_readers {
            locked.output.commands.noted.list.clear();
        }
    }

    /// Returns the changes from a number on, up to an offset of the stream, and the number of the next
    /// change.
    pub(crate) fn noted_changes(&self, from: u64, offset: u64) -> (Vec<Noted>, u64) {
        let locked = self.lock();
        let noted = &locked.output.commands.noted;
        let mut next = from.max(noted.next - noted.list.len() as u64);
        let mut changes = Vec::new();
        for (number, change) in noted.since(from) {
            if change.offset > offset {
                break;
            }
            changes.push(change.clone());
            next = number + 1;
        }
        (changes, next)
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
        let log: &CommandLog = &self.output.commands.log;
        let note = |command: &Command, offset: u64, change: Change| Noted {
            offset,
            change,
            command: Some(Arc::new(pane.placed(self, command))),
        };
        let mut noted = Vec::new();
        for command in log.commands() {
            if command.output.start > offset {
                noted.push(note(command, command.output.start, Change::Started(command.number)));
            }
            let is_new = |end: &u64| *end > offset || command.end == Some(End::ProcessEnded) && !saw_end;
            if let Some(end) = command.output.end.filter(is_new) {
                noted.push(note(command, end, Change::Finished(command.number)));
            }
        }
        noted.sort_by_key(|noted| noted.offset);
        noted
    }
}
