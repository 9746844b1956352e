//! Notes of muxtap's activity in panes, for recordings: inputs, and waits that end.

use std::{sync::Arc, time::Instant};

use muxtap_api::{Epoch, WaitOutcome};
use muxtap_core::protocol::ids::PaneId;
use tokio::sync::broadcast;

use super::{Engine, PaneState};

/// Notes that a receiver may be behind.
const BEHIND: usize = 256;

/// An input to a pane, or a wait on it that has ended.
#[derive(Clone, Debug)]
pub struct Activity {
    /// The pane.
    pub pane: PaneId,
    /// The pane's server and engine; every server has a pane `%0`.
    pub epoch: Epoch,
    /// When it was noted.
    pub at: Instant,
    /// What happened.
    pub deed: Deed,
}

/// The kinds of activity.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Input is about to be typed; another note reports its outcome.
    Begun,
    /// Input was typed: these bytes, or `None` for a terminal that does not echo.
    Input(Option<Vec<u8>>),
    /// Input was not typed.
    Refused,
    /// A wait ended, with its patterns.
    Waited(WaitOutcome, Vec<String>),
}

/// Creates the channel of activities.
pub(super) fn channel() -> broadcast::Sender<Arc<Activity>> {
    broadcast::Sender::new(BEHIND)
}

/// An input that is being typed. Dropping it notes the outcome.
pub(super) struct BegunInput<'a> {
    engine: &'a Engine,
    pane: &'a PaneState,
    at: Instant,
    /// The outcome: [`Deed::Input`] once the input was typed.
    pub(super) deed: Deed,
}

impl Drop for BegunInput<'_> {
    fn drop(&mut self) {
        let deed = std::mem::replace(&mut self.deed, Deed::Refused);
        self.engine.note_activity(self.pane, self.at, || deed);
    }
}

impl Engine {
    /// Notes that an input begins. A receiver that sees the pane's end first thereby knows that the
    /// input's outcome is still to come.
    pub(super) fn begin_input<'a>(&'a self, pane: &'a PaneState) -> BegunInput<'a> {
        let at = Instant::now();
        self.note_activity(pane, at, || Deed::Begun);
        BegunInput { engine: self, pane, at, deed: Deed::Refused }
    }

    /// Returns a receiver of all later activities, in all panes.
    pub fn activities(&self) -> broadcast::Receiver<Arc<Activity>> {
        self.shared.activity.subscribe()
    }

    /// Returns whether there is a receiver of activities.
    pub(super) fn notes_activities(&self) -> bool {
        self.shared.activity.receiver_count() > 0
    }

    /// Notes an activity if there is a receiver.
    pub(super) fn note_activity(&self, pane: &PaneState, at: Instant, deed: impl FnOnce() -> Deed) {
        if !self.notes_activities() {
            return;
        }
        let note = Activity { pane: pane.id(), epoch: pane.epoch(), at, deed: deed() };
        // The last receiver may have gone just now.
        let _ = self.shared.activity.send(Arc::new(note));
    }
}
