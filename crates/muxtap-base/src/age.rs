//! Stores moments by the system's monotonic clock, which is the same for the process that continues.
//!
//! For `#[serde(with = "muxtap_base::age")]`.

use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

use crate::clock::monotonic_us;

/// This moment on both clocks.
#[derive(Clone, Copy)]
pub struct Now(Instant, u64);

impl Now {
    /// Looks at both clocks.
    fn look() -> Self {
        Self(Instant::now(), monotonic_us())
    }
}

/// A value with moments that can be stored.
pub trait Aged: Copy {
    /// The value with microseconds in place of moments.
    type Stored: Serialize + DeserializeOwned;
    /// Returns the value to store.
    fn stored(self, now: Now) -> Self::Stored;
    /// Restores the value.
    fn restored(stored: Self::Stored, now: Now) -> Self;
}

impl Aged for Instant {
    type Stored = u64;

    fn stored(self, Now(now, us): Now) -> u64 {
        us.saturating_sub(now.saturating_duration_since(self).as_micros() as u64)
    }

    fn restored(at: u64, Now(now, us): Now) -> Self {
        // A state of an earlier boot has no moments on this clock.
        now.checked_sub(Duration::from_micros(us.saturating_sub(at))).unwrap_or(now)
    }
}

impl<T: Serialize + DeserializeOwned + Copy> Aged for (T, Instant) {
    type Stored = (T, u64);

    fn stored(self, now: Now) -> Self::Stored {
        (self.0, self.1.stored(now))
    }

    fn restored((value, at): Self::Stored, now: Now) -> Self {
        (value, Instant::restored(at, now))
    }
}

/// tokio's moments are the system's, except in tests with a clock of their own.
impl Aged for tokio::time::Instant {
    type Stored = u64;

    fn stored(self, now: Now) -> u64 {
        self.into_std().stored(now)
    }

    fn restored(at: u64, now: Now) -> Self {
        Instant::restored(at, now).into()
    }
}

impl<T: Serialize + DeserializeOwned + Copy> Aged for (T, tokio::time::Instant) {
    type Stored = (T, u64);

    fn stored(self, now: Now) -> Self::Stored {
        (self.0, self.1.stored(now))
    }

    fn restored((value, at): Self::Stored, now: Now) -> Self {
        (value, Aged::restored(at, now))
    }
}

impl<T: Aged> Aged for Option<T> {
    type Stored = Option<T::Stored>;

    fn stored(self, now: Now) -> Self::Stored {
        self.map(|value| value.stored(now))
    }

    fn restored(stored: Self::Stored, now: Now) -> Self {
        stored.map(|value| T::restored(value, now))
    }
}

/// Stores a value with moments.
pub fn serialize<T: Aged, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.stored(Now::look()).serialize(serializer)
}

/// Reads a stored value with moments.
pub fn deserialize<'de, T: Aged, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(T::restored(T::Stored::deserialize(deserializer)?, Now::look()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_same_in_the_process_that_continues() {
        let begin = Instant::now();
        let after = |secs| begin + Duration::from_secs(secs);
        // Two looks at both clocks, five seconds apart.
        let (stores, restores) = (Now(after(20), 920_000_000), Now(after(25), 925_000_000));
        for moment in [after(17), after(20)] {
            assert_eq!(Instant::restored(moment.stored(stores), restores), moment);
        }
        // A state of an earlier boot is read.
        assert_eq!(Instant::restored(u64::MAX, restores), after(25));
    }
}
