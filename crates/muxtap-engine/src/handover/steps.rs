//! How long each step of a handover takes, in the log of both processes.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Logs each step of a handover at the level `debug`, with how long it took, for how long this thread ran
/// meanwhile, and how long the handover has taken so far, in milliseconds.
#[derive(Debug)]
pub(super) struct Steps {
    /// Which process this is.
    side: &'static str,
    begun: Instant,
    last: Instant,
    /// For how long this thread had run then.
    ran: Duration,
}

impl Steps {
    pub(super) fn begin(side: &'static str) -> Self {
        let now = Instant::now();
        Self { side, begun: now, last: now, ran: thread_ran() }
    }

    /// Logs a step that has ended now. `bytes`: how many were sent or read in it.
    pub(super) fn ended(&mut self, step: &'static str, bytes: usize) {
        let (now, ran) = (Instant::now(), thread_ran());
        let (took, so_far) = (ms(now - self.last), ms(now - self.begun));
        // On another thread it may be less.
        let cpu = ms(ran.saturating_sub(self.ran));
        (self.last, self.ran) = (now, ran);
        tracing::debug!(side = self.side, step, ms = took, cpu_ms = cpu, so_far_ms = so_far, bytes, "handover");
    }
}

/// Returns for how long this thread has run: on a busy machine that is less than the time that has passed.
fn thread_ran() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}
