//! How often a subscriber wakes up.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::limits;

/// Lets a subscriber wake up at once a few times, and then in steps, so that what a pane prints bit by bit is told in fewer, larger events. A
/// turn comes back after each step.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// When all turns will have come back.
    full: Instant,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self { full: Instant::now() }
    }
}

impl RateLimiter {
    /// Waits until there is a turn. It is only used up by [`RateLimiter::take`].
    pub(super) async fn ready(&self) {
        let delay = self.delay(Instant::now());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Uses a turn up.
    pub(super) fn consume(&mut self) {
        self.full = self.full.max(Instant::now()) + limits::PACE;
    }

    fn delay(&self, now: Instant) -> Duration {
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
        let mut rate = RateLimiter::default();
        let began = Instant::now();
        for _ in 0..limits::PACE_BURST {
            rate.ready().await;
            rate.consume();
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for step in 1..=3 {
            rate.ready().await;
            rate.consume();
            assert_eq!(began.elapsed().as_millis(), u128::from(step * limits::PACE.as_millis() as u32));
        }
        tokio::time::sleep(limits::PACE * 100).await;
        let rested = Instant::now();
        for _ in 0..limits::PACE_BURST {
            rate.ready().await;
            rate.consume();
        }
        assert_eq!(rested.elapsed(), Duration::ZERO);
    }
}
