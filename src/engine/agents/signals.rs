//! What a pane tells the one who follows its agent.

use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use crate::screen::Changes;

/// A pane's end of it. Until something is taken, more of the same wakes nobody.
#[derive(Debug, Default)]
pub(in crate::engine) struct AgentSignals {
    wake: Arc<Notify>,
    /// It printed, or its screen is another one.
    screen: bool,
    /// What changed on its screen; kept only where an agent is known to run.
    changes: Option<Changes>,
    /// Another program may run in it.
    program: bool,
    /// The title that it set last.
    title: Option<String>,
    /// Those who want to be told when it was looked at.
    requests: Vec<oneshot::Sender<()>>,
}

impl AgentSignals {
    /// It printed: these rows changed, or nobody knows which.
    pub(in crate::engine) fn screen_changed(&mut self, changes: Option<&Changes>) {
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

    /// Another program may run in it.
    pub(in crate::engine) fn program_changed(&mut self) {
        if !std::mem::replace(&mut self.program, true) {
            self.wake.notify_one();
        }
    }

    /// It has this title.
    pub(in crate::engine) fn title_changed(&mut self, title: &str) {
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

    /// Somebody asks what runs in it.
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

    /// Whether it printed.
    pub(super) fn is_screen_changed(&self) -> bool {
        self.screen
    }

    /// Whether another program may run in it, once.
    pub(super) fn take_program_changed(&mut self) -> bool {
        std::mem::take(&mut self.program)
    }

    /// What it printed so far is being looked at.
    pub(super) fn clear_screen_changed(&mut self) {
        self.screen = false;
    }

    /// From now on changes are kept, or not any more.
    pub(super) fn track_changes(&mut self, keep: bool) {
        self.changes = keep.then(Changes::everything);
    }

    /// What changed since this was last asked.
    pub(super) fn take_changes(&mut self) -> Changes {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The title that it set last.
    pub(super) fn last_title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// It was looked at.
    pub(super) fn notify_checked(&mut self) {
        for request in self.requests.drain(..) {
            // Whoever asked may be gone.
            let _ = request.send(());
        }
    }
}
