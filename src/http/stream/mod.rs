//! Streams of events: `GET /v1/events` (Server-Sent Events) and `GET /v1/stream` (a WebSocket). `docs/http.md` says what they tell.
//!
//! They are written on threads of their own, so that however many readers there are, the thread that reads tmux and answers waits does
//! nothing for them but mark what changed.

pub mod sse;
mod wire;
pub mod ws;

use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::metrics;

/// Bytes written for one reader before the others have their turn.
const YIELD_BYTES: usize = 256 * 1024;
/// A stream that is ended has so long to say so, and its reader to hear it.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Where streams are written, and which are open; clones are the same.
#[derive(Clone, Debug)]
pub struct Streams {
    /// The threads that write them.
    pub(super) writers: Handle,
    /// The thread of everything else: what a stream asks of the engine is asked there.
    pub(super) engine_runtime: Handle,
    /// The sessions of `/v1/stream`.
    pub(super) open: TaskTracker,
    /// Ends them whatever they do.
    pub(super) cut: CancellationToken,
}

impl Streams {
    /// Streams that are written there. Must be made within the runtime of the engine.
    pub fn new(writers: Handle) -> Self {
        Self { writers, engine_runtime: Handle::current(), open: TaskTracker::new(), cut: CancellationToken::new() }
    }

    /// Waits until all have ended; those that do not end in time are cut.
    pub(crate) async fn ended(&self) {
        self.open.close();
        if tokio::time::timeout(CLOSE_LIMIT, self.open.wait()).await.is_err() {
            self.cut.cancel();
            self.open.wait().await;
        }
    }
}

/// A stream that is open: it counts for as long as this lives.
#[derive(Debug)]
struct OpenStreamGauge(());

impl OpenStreamGauge {
    fn new() -> Self {
        metrics::STREAMS.increment(1.0);
        Self(())
    }
}

impl Drop for OpenStreamGauge {
    fn drop(&mut self) {
        metrics::STREAMS.decrement(1.0);
    }
}
