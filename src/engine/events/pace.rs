//! How often a subscriber wakes up.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::limits;

/// Lets a subscriber wake up at once a few times, and then in steps, so that what a pane prints bit by bit is told in fewer, larger events. A
/// turn comes back after each step.
#[derive(Debug)]
pub(super) struct Pace {
    /// When all turns will have come back.
    full: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self { full: Instant::now() }
    }
}

impl Pace {
    /// Waits until there is a turn. It is only used up by [`Pace::take`].
    pub(super) async fn turn(&self) {
        let wait = self.wait(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Uses a turn up.
    pub(super) fn take(&mut self) {
        self.full = self.full.max(Instant::now()) + limits::PACE;
    }

    fn wait(&self, now: Instant) -> Duration {
        // All used up: the first comes back after one step.
        let used_up = limits::PACE * (limits::PACE_BURST - 1);
        self.full.saturating_duration_since(now).saturating_sub(used_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_turns_are_free_then_each_takes_a_step() {
        let mut pace = Pace::default();
        let began = Instant::now();
        for _ in 0..limits::PACE_BURST {
            pace.turn().await;
            pace.take();
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for step in 1..=3 {
            pace.turn().await;
            pace.take();
            assert_eq!(began.elapsed().as_millis(), u128::from(step * limits::PACE.as_millis() as u32));
        }
        tokio::time::sleep(limits::PACE * 100).await;
        let rested = Instant::now();
        for _ in 0..limits::PACE_BURST {
            pace.turn().await;
            pace.take();
        }
        assert_eq!(rested.elapsed(), Duration::ZERO);
    }
}
