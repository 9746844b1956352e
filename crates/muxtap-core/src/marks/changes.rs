//! The changes that marks caused, until they are taken.

use std::{collections::VecDeque, mem::discriminant, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Directory, Notification, Progress};

/// The changes that are kept until they are taken; with more, the earliest are dropped, the claimed
/// ones first.
pub(super) const CHANGES: usize = 256;

/// A change that a mark caused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// The command with this number began.
    Started(u64),
    /// The command with this number ended.
    Finished(u64),
    /// The pane's directory is another one.
    Directory(Arc<Directory>),
    /// A program reports progress.
    Progress(Progress),
    /// A program shows a notification.
    Notification(Notification),
}

impl Change {
    /// Returns whether a later change of the same kind replaces this one.
    fn is_state(&self) -> bool {
        matches!(self, Self::Directory(_) | Self::Progress(_))
    }
}

/// A change that was not taken yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    change: Change,
    /// Whether a trusted command began or ended.
    is_trusted: bool,
}

/// The changes that were not taken yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Changes(VecDeque<Noted>);

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.0).into_iter().map(|noted| noted.change).collect()
    }

    /// Notes that the begin of a command is trusted after all.
    pub(super) fn trust_start(&mut self, number: u64) {
        let started = self.0.iter_mut().rev().find(|noted| noted.change == Change::Started(number));
        if let Some(started) = started {
            started.is_trusted = true;
        }
    }

    /// Keeps a change until it is taken. A claimed change displaces no trusted one (K3).
    pub(super) fn note(&mut self, change: Change, is_trusted: bool) {
        if change.is_state() {
            // At the end of the queue, there is at most one directory and one progress.
            let mut run = self.0.iter().rev().take_while(|noted| noted.change.is_state());
            let replaced = run.position(|noted| discriminant(&noted.change) == discriminant(&change));
            if let Some(back) = replaced {
                self.0.remove(self.0.len() - 1 - back);
            }
        }
        if self.0.len() >= CHANGES {
            match self.0.iter().position(|noted| !noted.is_trusted) {
                Some(claimed) => drop(self.0.remove(claimed)),
                None if is_trusted => drop(self.0.pop_front()),
                None => return,
            }
        }
        self.0.push_back(Noted { change, is_trusted });
    }
}
