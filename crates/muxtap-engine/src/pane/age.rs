//! Stores moments as their age: the monotonic clock has no other meaning in a stored state.

use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};

/// A value with moments that can be stored.
pub(super) trait Aged: Copy {
    /// The value with ages in place of moments.
    type Stored: Serialize + DeserializeOwned;
    /// Returns the value as of `now`.
    fn stored(self, now: Instant) -> Self::Stored;
    /// Restores the value, whose ages are as of `now`.
    fn restored(stored: Self::Stored, now: Instant) -> Self;
}

impl Aged for Instant {
    type Stored = Duration;

    fn stored(self, now: Instant) -> Duration {
        now.saturating_duration_since(self)
    }

    fn restored(age: Duration, now: Instant) -> Self {
        // The clock cannot show a moment from before the machine started.
        now.checked_sub(age).unwrap_or(now)
    }
}

impl<T: Serialize + DeserializeOwned + Copy> Aged for (T, Instant) {
    type Stored = (T, Duration);

    fn stored(self, now: Instant) -> Self::Stored {
        (self.0, self.1.stored(now))
    }

    fn restored((value, age): Self::Stored, now: Instant) -> Self {
        (value, Instant::restored(age, now))
    }
}

impl<T: Aged> Aged for Option<T> {
    type Stored = Option<T::Stored>;

    fn stored(self, now: Instant) -> Self::Stored {
        self.map(|value| value.stored(now))
    }

    fn restored(stored: Self::Stored, now: Instant) -> Self {
        stored.map(|value| T::restored(value, now))
    }
}

pub(super) fn serialize<T: Aged, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.stored(Instant::now()).serialize(serializer)
}

pub(super) fn deserialize<'de, T: Aged, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(T::restored(T::Stored::deserialize(deserializer)?, Instant::now()))
}
