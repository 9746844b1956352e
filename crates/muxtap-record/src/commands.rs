//! The markers of the commands that run in a recorded pane, each at its place in the output.

use std::collections::{BTreeMap, BTreeSet};

use muxtap_core::marks::Command;
use muxtap_engine::{Pane, PaneCommand};
use serde::{Deserialize, Serialize};

/// A marker's place: its offset, the command's number, and whether it is the command's end.
type Place = (u64, u64, bool);

/// The markers of a pane's commands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CommandMarkers {
    /// The labels that were not returned yet.
    #[serde(with = "pairs")]
    due: BTreeMap<Place, String>,
    /// The number of the last command that was seen.
    last: u64,
    /// The commands that run.
    running: BTreeSet<u64>,
}

/// Stores a map as its pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Place;

    pub(super) fn serialize<S: Serializer>(due: &BTreeMap<Place, String>, serializer: S) -> Result<S::Ok, S::Error> {
        due.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Place, String>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
impl CommandMarkers {
    /// Returns markers with a value in each place.
    pub(super) fn sample() -> Self {
        Self { due: [((5, 1, false), "$ make".to_owned())].into(), last: 1, running: [1].into() }
    }
}

impl CommandMarkers {
    /// Takes the pane's commands at the beginning of a recording; those before `from` have no marker.
    pub(super) fn begin(pane: &Pane, from: u64) -> Self {
        let mut markers = Self::default();
        markers.look(pane);
        markers.due.retain(|(offset, ..), _| *offset >= from);
        markers
    }

    /// Takes what changed. Must be called with the pane's output known up to some offset: then every
    /// mark before that offset is known.
    pub(super) fn look(&mut self, pane: &Pane) {
        for number in std::mem::take(&mut self.running) {
            if let Ok(Some(command)) = pane.command(number) {
                self.ended(&command.command);
            }
        }
        for PaneCommand { command, .. } in pane.commands_from(self.last + 1).unwrap_or_default() {
            self.last = command.number;
            self.due.insert((command.output.start, command.number, false), begin_label(&command));
            self.ended(&command);
        }
    }

    fn ended(&mut self, command: &Command) {
        match command.ended_at {
            Some(at) => drop(self.due.insert((at, command.number, true), end_label(command))),
            None => drop(self.running.insert(command.number)),
        }
    }

    /// Returns the label of the next marker up to this offset.
    pub(super) fn take_until(&mut self, offset: u64) -> Option<String> {
        let next = self.due.first_entry()?;
        (next.key().0 <= offset).then(|| next.remove())
    }

    /// Returns the offset of the next marker after this one.
    pub(super) fn next_after(&self, offset: u64) -> Option<u64> {
        self.due.keys().map(|(at, ..)| *at).find(|at| *at > offset)
    }
}

fn begin_label(command: &Command) -> String {
    line(command).map_or_else(|| "command".to_owned(), |line| format!("$ {line}"))
}

fn end_label(command: &Command) -> String {
    let how = match (&command.signal, command.status) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(status)) => format!("status {status}"),
        (None, None) => "ended".to_owned(),
    };
    line(command).map_or_else(|| how.clone(), |line| format!("{how}: {line}"))
}

/// Returns a command's line, with several lines in one.
fn line(command: &Command) -> Option<String> {
    Some(command.line.as_ref()?.text.replace('\n', " ⏎ "))
}
