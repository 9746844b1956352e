//! Resync: the task that compares a stale screen with tmux's and corrects it.

use std::sync::Arc;

use muxtap_tmux::{Request, Seed};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::{
    Host, PaneState, limits,
    pane::{
        Resync,
        resync::{ResyncOutcome, until_rest},
    },
};

impl Host {
    /// Compares a pane's screen with tmux's and corrects it: now, and, if the pane prints
    /// meanwhile, repeatedly until two replies agree or the pane rests. Until then the pane's
    /// captures come from tmux.
    pub(crate) fn resync(self: &Arc<Self>, pane: &Arc<PaneState>) {
        self.resync_when(pane, Resync::Now);
    }

    /// Resyncs a pane's screen, now or when the pane rests.
    pub(crate) fn resync_when(self: &Arc<Self>, pane: &Arc<PaneState>, when: Resync) {
        let Some(shared) = self.shared() else { return };
        if !pane.begin_resync() {
            return;
        }
        let (host, pane) = (self.clone(), pane.clone());
        let cancel = shared.cancel.clone();
        shared.tasks.spawn(async move {
            tokio::select! {
                () = host.resync_until_reconciled(&pane, when) => {}
                () = cancel.cancelled() => {}
            }
        });
    }

    /// Reads a pane's screen again when the pane rests, if another seed would reveal more of it. A
    /// long history is work for tmux, so these resyncs take a small part of tmux's time.
    pub(crate) fn resync_unsure(self: &Arc<Self>, pane: &Arc<PaneState>) {
        let Some(shared) = self.shared() else { return };
        if !pane.begin_await_rest() {
            return;
        }
        let (host, pane) = (self.clone(), pane.clone());
        let cancel = shared.cancel.clone();
        shared.tasks.spawn(async move {
            tokio::select! {
                () = host.resync_at_rest(&pane) => {}
                () = cancel.cancelled() => {}
            }
        });
    }

    async fn resync_at_rest(self: &Arc<Self>, pane: &Arc<PaneState>) {
        if let Some(may_ask) = pane.may_ask_at() {
            tokio::time::sleep_until(may_ask).await;
        }
        until_rest(pane).await;
        if pane.end_await_rest() {
            let begun = Instant::now();
            self.resync_until_reconciled(pane, Resync::Now).await;
            let now = Instant::now();
            pane.ask_not_before(now + (now - begun) * limits::RESYNC_PAUSE_MOST);
        }
    }

    async fn resync_until_reconciled(self: &Arc<Self>, pane: &Arc<PaneState>, when: Resync) {
        if when == Resync::AtRest {
            until_rest(pane).await;
        }
        let mut pause = limits::RESYNC_PAUSE;
        loop {
            let begun = Instant::now();
            let outcome = self.resync_once(pane).await;
            if outcome == ResyncOutcome::Moving {
                // A long history is work for tmux: while a user drags a border, resyncs take at
                // most half of tmux's time; for a pane that keeps printing, less and less.
                let took = begun.elapsed();
                tokio::time::sleep(took).await;
                let _ = tokio::time::timeout(took.max(limits::REST) * pause, until_rest(pane)).await;
                pause = (pause * 2).min(limits::RESYNC_PAUSE_MOST);
                continue;
            }
            if pane.end_resync(outcome) {
                return;
            }
        }
    }

    /// Requests the screen from tmux now.
    ///
    /// The reply is proof by itself if the pane printed nothing between request and reply: all
    /// output from before the request comes ahead of the reply, so there was none. Otherwise the
    /// screen, or the last reply with the output since, must agree with it
    /// ([`PaneState::reconcile`]).
    pub(crate) async fn resync_once(self: &Arc<Self>, pane: &Arc<PaneState>) -> ResyncOutcome {
        let Some(rules) = self.rules() else { return ResyncOutcome::Nothing };
        let since = pane.revision();
        let (sender, receiver) = oneshot::channel();
        let (host, at) = (self.clone(), pane.clone());
        let question = Request::Framed(Seed::question(pane.id(), Some(rules)));
        self.server_of(pane).submit(Some(pane.id()), question, move |answer| {
            let seed = answer.ok().and_then(Result::ok).and_then(|parts| Seed::parse(&parts));
            let outcome = seed.map_or(ResyncOutcome::Nothing, |seed| {
                let (outcome, memory) = at.reconcile(since, &seed, rules);
                host.charge(memory);
                host.watch_string(&at);
                outcome
            });
            // The caller may have gone.
            let _ = sender.send(outcome);
        });
        receiver.await.unwrap_or(ResyncOutcome::Nothing)
    }
}
