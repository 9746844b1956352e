//! Measured times.

use std::time::Duration;

/// Measured times.
#[derive(Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Returns the time below which this part of all lie, in microseconds.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }

    pub fn p50(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn p99(&self) -> f64 {
        self.quantile(0.99)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
