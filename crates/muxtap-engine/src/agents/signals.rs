//! Signals from a pane to the task that follows its agent.

use std::sync::Arc;

use muxtap_api::ProgressState;
use muxtap_core::screen::Changes;
use tokio::sync::{Notify, oneshot};

use super::report::Reports;

/// The progress (OSC 9;4) and the notification (OSC 9, 99, 777) that came last in a pane, each with
/// its number: what came before an agent began does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Announced {
    progress: Option<(u64, ProgressState)>,
    notification: Option<(u64, Arc<str>)>,
    /// The number of the latest of both.
    pub(super) last: u64,
}

impl Announced {
    /// Returns the progress that came after this number.
    pub(super) fn progress_after(&self, number: u64) -> Option<ProgressState> {
        self.progress.filter(|(at, _)| *at > number).map(|(_, state)| state)
    }

    /// Returns the notification that came after this number.
    pub(super) fn notification_after(&self, number: u64) -> Option<Arc<str>> {
        self.notification.as_ref().filter(|(at, _)| *at > number).map(|(_, text)| text.clone())
    }
}

/// Edge-triggered flags that wake the follower of a pane. Setting a flag that is already set wakes
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct AgentSignals {
    wake: Arc<Notify>,
    /// Whether the screen has changed, or was replaced.
    screen: bool,
    /// The rows that changed, kept only while an agent is known to run.
    changes: Option<Changes>,
    /// Whether another program may run in the pane.
    program: bool,
    /// The title that the pane last set.
    title: Option<String>,
    /// What programs in the pane announced.
    announced: Announced,
    /// Whether the agent's reports have changed.
    reported: bool,
    /// What agents in the pane report.
    reports: Reports,
    /// Callers that wait until the pane has been examined.
    requests: Vec<oneshot::Sender<()>>,
}

impl AgentSignals {
    /// Records that the screen changed: in these rows, or in unknown ones.
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

    /// Records that another program may run in the pane.
    pub(crate) fn program_changed(&mut self) {
        if !std::mem::replace(&mut self.program, true) {
            self.wake.notify_one();
        }
    }

    /// Records that the reports have changed: the agent may be one that no rule knows.
    pub(super) fn reported(&mut self) {
        self.program = true;
        if !std::mem::replace(&mut self.reported, true) {
            self.wake.notify_one();
        }
    }

    /// Records that a process that has reported has ended.
    pub(super) fn process_ended(&mut self, pid: u32) {
        self.reports.forget(Some(pid));
        self.reported();
    }

    /// Returns what agents in the pane report.
    pub(super) fn reports(&mut self) -> &mut Reports {
        &mut self.reports
    }

    /// Returns whether the reports have changed, and clears that flag.
    pub(super) fn take_reported(&mut self) -> bool {
        std::mem::take(&mut self.reported)
    }

    /// Records the pane's title.
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

    /// Records the progress that a program in the pane reports.
    pub(crate) fn progress_changed(&mut self, state: ProgressState) {
        self.announced.last += 1;
        self.announced.progress = Some((self.announced.last, state));
        self.screen_changed(Some(&Changes::default()));
    }

    /// Records a notification of a program in the pane.
    pub(crate) fn notified(&mut self, title: &str, body: &str) {
        self.announced.last += 1;
        let text = [title, body].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
        self.announced.notification = Some((self.announced.last, text.into()));
        self.screen_changed(Some(&Changes::default()));
    }

    /// Returns what programs in the pane announced.
    pub(super) fn announced(&self) -> &Announced {
        &self.announced
    }

    /// Requests an examination of the pane. The receiver resolves after it.
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

    /// Clears the flag of a changed screen: its current content is being examined.
    pub(super) fn clear_screen_changed(&mut self) {
        self.screen = false;
    }

    /// Starts or stops recording which rows change.
    pub(super) fn track_changes(&mut self, keep: bool) {
        self.changes = keep.then(Changes::everything);
    }

    /// Returns the rows that changed since the last call.
    pub(super) fn take_changes(&mut self) -> Changes {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the title that the pane last set.
    pub(super) fn last_title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Notifies the callers of [`Self::request_check`] that the pane has been examined.
    pub(super) fn notify_checked(&mut self) {
        for request in self.requests.drain(..) {
            // The caller may have left.
            let _ = request.send(());
        }
    }
}
