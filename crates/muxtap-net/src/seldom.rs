//! Limits log lines that any caller could cause: one per interval, with the number of events since
//! the last one.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The interval between two log lines about refused callers.
const SUMMARY: Duration = Duration::from_secs(60);

/// Counts events that would flood the log.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Counts one event. Returns the number since the last line if another line is due.
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
