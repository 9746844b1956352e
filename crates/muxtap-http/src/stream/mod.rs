//! Event streams: `GET /v1/events` (Server-Sent Events) and `GET /v1/stream` (a WebSocket).
//! `docs/http.md` describes their protocols.
//!
//! Streams are written on threads of their own. However many readers are connected, the thread that
//! reads tmux and decides waits only marks the changes for them.

mod later;
#[cfg(feature = "daemon")]
pub(crate) use later::Later;
pub mod sse;
mod wire;
pub mod ws;

use std::time::Duration;

use muxtap_base::metrics;
use muxtap_engine::Engine;
use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The number of bytes written for one reader before the task yields to others.
const YIELD_BYTES: usize = 256 * 1024;
/// How long an ended stream has to send its end and its reader to receive it.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// The open streams and the threads that write them; clones share them.
#[derive(Clone, Debug)]
pub struct Streams {
    /// The threads that write streams.
    pub(super) writers: Handle,
    /// The runtime of the engine: streams send their requests to it.
    pub(super) engine_runtime: Handle,
    /// The sessions of `/v1/stream`.
    pub(super) open: TaskTracker,
    /// Cancelled to cut streams, whatever their state.
    pub(super) cut: CancellationToken,
}

impl Streams {
    /// Creates an engine's streams, written by `writers`.
    pub fn new(writers: Handle, engine: &Engine) -> Self {
        let engine_runtime = engine.runtime().clone();
        Self { writers, engine_runtime, open: TaskTracker::new(), cut: CancellationToken::new() }
    }

    /// Waits until all streams have ended; cuts those that do not end in time.
    pub async fn ended(&self) {
        self.open.close();
        if tokio::time::timeout(CLOSE_LIMIT, self.open.wait()).await.is_err() {
            self.cut.cancel();
            self.open.wait().await;
        }
    }
}

/// Counts an open stream in the metrics for as long as it lives.
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
