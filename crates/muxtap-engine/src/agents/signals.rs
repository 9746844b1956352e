//! Signals from a pane to the task that follows its agent.

use std::sync::Arc;

use muxtap_core::screen::Changes;
use tokio::sync::{Notify, oneshot};

/// Edge-triggered flags that wake the follower of a pane. A flag that is set already wakes nothing
/// when it is set again.
#[derive(Debug, Default)]
pub(crate) struct AgentSignals {
    wake: Arc<Notify>,
    /// Whether the screen has changed, or is another one.
    screen: bool,
    /// The rows that changed, kept only while an agent is known to run.
    changes: Option<Changes>,
    /// Whether another program may run in the pane.
    program: bool,
    /// The title that the pane set last.
    title: Option<String>,
    /// Callers that wait until the pane has been looked at.
    requests: Vec<oneshot::Sender<()>>,
}

impl AgentSignals {
    /// Notes that the screen changed: in these rows, or in unknown ones.
    pub(crate) fn screen_changed(&mut self, changes: Option<&Changes>) {
        if let Some(known) = &mut self.changes {
            match changes {
                Some(changes) => known.merge(changes),
                None => *known = Changes::everything(),
            }
        }
        if !std::mem::replace(&mut self.screen, true) {
            self.wake.notify_one();
        }
    }

    /// Notes that another program may run in the pane.
    pub(crate) fn program_changed(&mut self) {
        if !std::mem::replace(&mut self.program, true) {
            self.wake.notify_one();
        }
    }

    /// Notes the pane's title.
    pub(crate) fn title_changed(&mut self, title: &str) {
        if self.title.as_deref() == Some(title) {
            return;
        }
        self.title = Some(title.to_owned());
        if self.changes.is_none() {
            // A program that sets a title may be a new one.
            self.program_changed();
        }
        self.screen_changed(Some(&Changes::default()));
    }

    /// Requests a look at the pane. The receiver resolves when it has happened.
    pub(super) fn request_check(&mut self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.requests.push(sender);
        self.program = true;
        self.wake.notify_one();
        receiver
    }

    pub(super) fn waker(&self) -> Arc<Notify> {
        self.wake.clone()
    }

    /// Returns whether the screen has changed.
    pub(super) fn is_screen_changed(&self) -> bool {
        self.screen
    }

    /// Returns whether another program may run in the pane, and clears that flag.
    pub(super) fn take_program_changed(&mut self) -> bool {
        std::mem::take(&mut self.program)
    }

    /// Clears the flag of a changed screen: what it shows so far is being looked at.
    pub(super) fn clear_screen_changed(&mut self) {
        self.screen = false;
    }

    /// Starts or stops keeping which rows change.
    pub(super) fn track_changes(&mut self, keep: bool) {
        self.changes = keep.then(Changes::everything);
    }

    /// Returns the rows that changed since the last call.
    pub(super) fn take_changes(&mut self) -> Changes {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the title that the pane set last.
    pub(super) fn last_title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Notifies the callers of [`Self::request_check`] that the pane has been looked at.
    pub(super) fn notify_checked(&mut self) {
        for request in self.requests.drain(..) {
            // The caller may have gone.
            let _ = request.send(());
        }
    }
}
