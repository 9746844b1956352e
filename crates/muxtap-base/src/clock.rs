//! The time of day, and pauses between attempts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::nonce;

/// Returns the milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the microseconds of the system's monotonic clock: the same for all processes, growing until
/// the system boots again.
pub fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1000
}

/// Returns the time this many milliseconds ago, in milliseconds since 1970.
pub fn ago_ms(ago: u64) -> u64 {
    now_ms().saturating_sub(ago)
}

/// Returns half to all of `pause`, at random: many clients that lost the same server then reconnect
/// at different times.
pub fn jittered(pause: Duration) -> Duration {
    let random = nonce::number() % 1000;
    pause / 2 + pause / 2 * random as u32 / 1000
}

/// Returns the cost of some work: this thread's processor time, the least of three attempts. Other
/// load does not count, and machines differ, so costs are only compared with each other.
#[doc(hidden)]
pub fn cost(work: impl Fn()) -> std::time::Duration {
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or_default())
    };
    let once = |_| {
        let began = now();
        work();
        now().saturating_sub(began)
    };
    (0..3).map(once).min().unwrap_or_default()
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
