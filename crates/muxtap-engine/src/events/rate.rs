//! Limits how often a subscriber wakes up.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits;

/// A token bucket for a subscriber's wake-ups. A few come at once, then one per step, so output
/// that a pane prints in small pieces is sent in fewer, larger events. One token returns after each
/// step.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// When the bucket will be full again.
    full: Instant,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self { full: Instant::now() }
    }
}

impl RateLimiter {
    /// Waits until there is a token. Only [`RateLimiter::consume`] takes it.
    pub(super) async fn ready(&self) {
        let delay = self.delay(Instant::now());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Takes a token.
    pub(super) fn consume(&mut self) {
        self.full = self.full.max(Instant::now()) + limits::PACE;
    }

    fn delay(&self, now: Instant) -> Duration {
        // With an empty bucket the first token returns after one step.
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
