//! The time of day, and pauses between attempts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::nonce;

/// Returns the milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time so many milliseconds ago, in milliseconds since 1970.
pub(crate) fn ago_ms(ago: u64) -> u64 {
    now_ms().saturating_sub(ago)
}

/// Returns half to all of `pause`, so that many clients that lost the same server do not come back
/// in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let random = nonce::number() % 1000;
    pause / 2 + pause / 2 * random as u32 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jittered_pause_is_between_half_and_all_of_it_and_not_always_the_same() {
        let pause = Duration::from_secs(1);
        let pauses: std::collections::HashSet<_> = (0..100).map(|_| jittered(pause)).collect();
        assert!(pauses.iter().all(|jittered| (pause / 2..=pause).contains(jittered)));
        assert!(pauses.len() > 10);
    }
}
