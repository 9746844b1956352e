//! How long each step of a handover takes, in the log of both processes.

use std::time::{Duration, Instant};

/// Logs each step of a handover at the level `debug`, with how long it took and how long the handover has
/// taken so far, in milliseconds.
#[derive(Debug)]
pub(super) struct Steps {
    /// Which process this is.
    side: &'static str,
    begun: Instant,
    last: Instant,
}

impl Steps {
    pub(super) fn begin(side: &'static str) -> Self {
        let now = Instant::now();
        Self { side, begun: now, last: now }
    }

    /// Logs a step that has ended now. `bytes`: how many were sent or read in it.
    pub(super) fn ended(&mut self, step: &'static str, bytes: usize) {
        let now = Instant::now();
        let (took, so_far) = (ms(now - self.last), ms(now - self.begun));
        self.last = now;
        tracing::debug!(side = self.side, step, ms = took, so_far_ms = so_far, bytes, "handover");
    }
}

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}
