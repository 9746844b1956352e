//! The turns in which a replaced daemon asks the next one for the rest of what it relays.
//!
//! All waits and event streams that a daemon has open continue at the same moment. The next daemon serves
//! connections in the order in which they come, so other callers' requests would come behind all of
//! them. So a few are sent at a time: the next ones follow when the daemon has responded to a
//! request that was sent behind them.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::Semaphore;

/// The most requests that are sent before the next daemon has responded to one behind them.
pub(super) const AT_ONCE: usize = 8;
/// The longest that turns are taken until the next daemon has responded.
const TURN_LIMIT: Duration = Duration::from_secs(1);

/// The turns of requests, in the order in which they come.
#[derive(Debug)]
pub(super) struct Turns {
    free: Semaphore,
    taken: AtomicUsize,
    /// The longest wait for a response.
    limit: Duration,
}

impl Default for Turns {
    fn default() -> Self {
        Self::new(TURN_LIMIT)
    }
}

/// Frees the next turns when it is dropped, also with a request whose caller has gone.
struct FreesTurns<'a>(&'a Semaphore);

impl Drop for FreesTurns<'_> {
    fn drop(&mut self) {
        self.0.add_permits(AT_ONCE);
    }
}

impl Turns {
    /// `limit`: the longest that turns are taken until the next daemon has responded.
    pub(super) fn new(limit: Duration) -> Self {
        Self { free: Semaphore::new(AT_ONCE), taken: AtomicUsize::new(0), limit }
    }

    /// Waits for a turn. `responds`: resolves when the next daemon has responded to a request that is sent
    /// now.
    pub(super) async fn take(&self, responds: impl Future<Output = ()>) {
        // The semaphore is never closed.
        let Ok(turn) = self.free.acquire().await else { return };
        turn.forget();
        if self.taken.fetch_add(1, Ordering::Relaxed) % AT_ONCE == AT_ONCE - 1 {
            let _frees = FreesTurns(&self.free);
            let _ = tokio::time::timeout(self.limit, responds).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Poll};

    use futures_util::{future::BoxFuture, poll};

    use super::*;

    /// Takes a turn for each of these requests that can have one. Returns those that wait.
    async fn taken(waiting: Vec<BoxFuture<'_, ()>>) -> Vec<BoxFuture<'_, ()>> {
        let mut still = Vec::new();
        for mut one in waiting {
            if matches!(poll!(&mut one), Poll::Pending) {
                still.push(one);
            }
        }
        still
    }

    /// T48.
    #[tokio::test]
    async fn a_few_are_sent_before_the_next_daemon_has_responded() {
        const ALL: usize = 4 * AT_ONCE;
        let (turns, responses) = (Turns::new(Duration::MAX), Arc::new(Semaphore::new(0)));
        let take = || {
            let responses = responses.clone();
            Box::pin(turns.take(async move { responses.acquire().await.unwrap().forget() })) as BoxFuture<'_, ()>
        };
        let all: Vec<_> = (0..ALL).map(|_| take()).collect();
        let waiting = taken(all).await;
        assert_eq!(waiting.len(), ALL - (AT_ONCE - 1), "the last of them waits for the response");
        let waiting = taken(waiting).await;
        assert_eq!(waiting.len(), ALL - (AT_ONCE - 1), "without a response there are no more");
        responses.add_permits(1);
        let mut waiting = taken(waiting).await;
        assert_eq!(waiting.len(), ALL - (2 * AT_ONCE - 1));
        // The caller of the request that waits for the response has gone.
        drop(waiting.remove(0));
        let waiting = taken(waiting).await;
        assert_eq!(waiting.len(), ALL - (3 * AT_ONCE - 1));
        responses.add_permits(2);
        assert!(taken(waiting).await.is_empty());
    }
}
