//! Facts about a pane that only tmux knows: requested when a use begins, pushed while it lasts.
//!
//! No output contains a title set by `select-pane -T`, a history cleared by `clear-history` or a
//! terminal reset by `send-keys -R`. tmux reports them if it checks once a second, which it does
//! for each subscription whether anything happens or not. So it does this only for panes in use.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Host, PaneState, limits, pane::PaneUse};

impl Host {
    /// Begins a use of the facts about a pane that only tmux knows. Facts that differ are applied
    /// as soon as tmux replies, and within a second of each change for as long as the use lasts.
    pub(crate) fn use_values(self: &Arc<Self>, pane: &Arc<PaneState>) -> PaneUse {
        let held = PaneUse::begin(pane);
        drop(self.ask_first(pane));
        held
    }

    /// Waits until the known facts about a pane are tmux's: at once if the pane is in use, and
    /// after one request if it was unused. If tmux does not reply, no command changes the facts
    /// either.
    pub(crate) async fn confirm_values(self: &Arc<Self>, pane: &Arc<PaneState>) {
        pane.lock().usage().touch();
        if let Some(confirmed) = self.ask_first(pane) {
            // An error: there was no reply.
            let _ = confirmed.await;
        }
    }

    /// Queries tmux unless it has reported the facts since the use began. Returns a receiver that
    /// resolves with the reply.
    fn ask_first(self: &Arc<Self>, pane: &Arc<PaneState>) -> Option<oneshot::Receiver<()>> {
        if !self.server().asks_for_values() {
            return None;
        }
        let begins = {
            let mut locked = pane.lock();
            if locked.exit().is_some() || locked.usage().is_confirmed() {
                return None;
            }
            locked.usage().begin_watch()
        };
        if begins && let Some(shared) = self.shared() {
            shared.tasks.spawn(leave_when_unused(Arc::downgrade(self), pane.clone(), self.cancel.clone()));
        }
        let (sender, receiver) = oneshot::channel();
        let asked = Arc::downgrade(pane);
        self.server().use_values(pane.id(), move |known| {
            if let Some(pane) = asked.upgrade().filter(|_| known) {
                pane.lock().usage().confirm();
            }
            // The caller may not wait for the reply.
            let _ = sender.send(());
        });
        Some(receiver)
    }
}

/// Ends the pushing once the pane has been unused for [`limits::IN_USE`].
async fn leave_when_unused(host: Weak<Host>, pane: Arc<PaneState>, cancel: CancellationToken) {
    let released = pane.lock().usage().released();
    loop {
        let due = {
            let Some(host) = host.upgrade() else { return };
            let mut locked = pane.lock();
            let due = locked.usage().idle_since().map(|since| since + limits::IN_USE);
            if due.is_some_and(|due| due <= Instant::now()) {
                locked.usage().end_watch();
                // Under the lock: the request of a use that begins now comes after this.
                host.server().leave_values(pane.id());
                return;
            }
            due
        };
        let due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => released.notified().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = cancel.cancelled() => return,
        }
    }
}
