//! Lines of the log that anybody could cause: one now and then, for all that happened meanwhile.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The time between two lines of the log about what was refused.
const SUMMARY: Duration = Duration::from_secs(60);

/// Counts what would fill the log.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Counts one more. Returns how many there were since the last line, where it is time for another.
    pub fn note(&self) -> Option<u64> {
        self.note_at(Instant::now())
    }

    fn note_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (logged, unlogged) = &mut *state;
        *unlogged += 1;
        if logged.is_some_and(|logged| now.saturating_duration_since(logged) < SUMMARY) {
            return None;
        }
        *logged = Some(now);
        Some(std::mem::take(unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_now_and_then() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.note_at(now), Some(1));
        assert!((0..1000).all(|_| seldom.note_at(now).is_none()));
        assert_eq!(seldom.note_at(now + SUMMARY), Some(1001));
    }
}
