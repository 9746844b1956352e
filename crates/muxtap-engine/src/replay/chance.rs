//! Choices that a seed determines.

use muxtap_base::nonce::Sequence;

/// Choices by a sequence of numbers that a seed determines.
pub(super) struct Chance(Sequence);

impl Chance {
    /// Begins the sequence of a seed.
    pub(super) fn of(seed: u64) -> Self {
        Self(Sequence(seed))
    }

    /// Returns a number below `end`, which must not be 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.draw() % end as u64).unwrap()
    }

    /// Returns a number from `low` to `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.draw() % (high - low + 1)
    }

    /// Returns one of these; `None` of an empty list.
    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        if all.is_empty() { None } else { Some(all[self.below(all.len())]) }
    }
}
