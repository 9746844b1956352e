//! Silent connections: which callers get an error, and whether the client is replaced.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use muxtap_base::clock::jittered;

use super::{
    connection::{Connection, Lost, SILENCE_LIMIT},
    coverage::Inner,
    link::{FIRST_PAUSE, LONGEST_PAUSE},
};

/// Time that a silent connection has to send something after its server replied to another client.
const JUDGED_AFTER: Duration = Duration::from_millis(500);

impl Inner {
    /// Ends the requests of callers on a connection that became silent with an error.
    pub(super) fn fell_silent(self: &Arc<Self>, connection: u64) {
        {
            let mut model = self.lock();
            if model.refresh.by.as_ref().is_some_and(|by| by.id() == connection) {
                // Callers that wait for the model get an error; it is read all the same when the
                // server continues.
                model.refresh.now.clear();
                model.refresh.next.clear();
            }
            for followed in model.panes.values_mut().filter(|followed| followed.owner() == Some(connection)) {
                drop(followed.take_waiters());
            }
        }
        self.judge();
    }

    /// Determines the meaning of a silent connection. If the server replies to a client of its own,
    /// it is alive, so the connection is dead and given up. If not, the server is stopped or busy:
    /// the connection stays, and continues when the server does.
    async fn judge_silence(self: Arc<Self>) {
        let silent = || {
            let model = self.lock();
            let all = model.covering.values().filter_map(|covering| covering.connection.clone());
            all.filter(Connection::is_silent).collect::<Vec<_>>()
        };
        let mut pause = FIRST_PAUSE;
        while !silent().is_empty() {
            let answers = self.spec.call_within(SILENCE_LIMIT, &["list-sessions", "-F", ""]).await.is_ok();
            if answers {
                // The server's output on the connection was sent before, but may not have been read
                // or counted yet: a connection counts as silent until the next tick that finds
                // something read.
                let before: Vec<_> = silent().into_iter().map(|connection| (connection.reads(), connection)).collect();
                tokio::time::sleep(JUDGED_AFTER).await;
                for (reads, connection) in before {
                    if !connection.is_silent() || connection.reads() != reads {
                        continue;
                    }
                    tracing::warn!("{} is silent although its server responds; replacing it", connection.name());
                    connection.give_up(Lost::Unanswered);
                    connection.closed().await;
                }
                break;
            }
            let spoken = async {
                for connection in silent() {
                    connection.speaks().await;
                }
            };
            let _ = tokio::time::timeout(jittered(pause), spoken).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.judging.store(false, Ordering::Relaxed);
        if !silent().is_empty() {
            self.judge();
        }
    }

    /// Starts to determine the meaning of a connection's silence, unless that is in progress.
    fn judge(self: &Arc<Self>) {
        if self.judging.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = self.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = this.clone().judge_silence() => {}
                () = this.cancel.cancelled() => {}
            }
        });
    }
}
