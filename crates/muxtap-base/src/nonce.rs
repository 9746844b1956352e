//! Nonces: names and marks that are not guessed by accident.
//!
//! A nonce serves for a thing that must not coincide with an existing one (a session's name, a
//! file's, the mark after a command's output), and for a thing that a program cannot have printed
//! before its creation. Nonces are not secrets: their keys come from the operating system once per
//! thread and are counted up from that ([`RandomState::new`]). Tokens come from `getrandom`. A
//! value that must be recomputed from the same input is a keyed hash, not a nonce
//! (`protocol/frame.rs`).

use std::hash::{BuildHasher as _, RandomState};

/// Returns 64 bits that differ from call to call, process to process.
pub fn number() -> u64 {
    #[cfg(feature = "replay")]
    if let Some(number) = replayed::next() {
        return number;
    }
    RandomState::new().hash_one(0)
}

/// Returns 64 bits as 16 hexadecimal digits.
pub fn hex64() -> String {
    format!("{:016x}", number())
}

/// Returns 32 bits as 8 hexadecimal digits.
pub fn hex32() -> String {
    format!("{:08x}", number() as u32)
}

#[cfg(feature = "replay")]
mod replayed {
    use std::cell::Cell;

    thread_local! {
        /// The thread's sequence; `None`: its nonces are not replayed.
        static SEQUENCE: Cell<Option<Sequence>> = const { Cell::new(None) };
    }

    /// A sequence of numbers that a seed determines (`SplitMix64`). The seed is the field.
    #[derive(Clone, Copy, Debug)]
    pub struct Sequence(pub u64);

    impl Sequence {
        /// Returns the next number.
        pub fn draw(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }
    }

    /// Returns the next number of the thread's sequence, if it has one.
    pub(super) fn next() -> Option<u64> {
        let mut sequence = SEQUENCE.get()?;
        let number = sequence.draw();
        SEQUENCE.set(Some(sequence));
        Some(number)
    }

    /// Makes this thread's nonces a sequence that `seed` determines; `None`: random again.
    pub fn replay(seed: Option<u64>) {
        SEQUENCE.set(seed.map(Sequence));
    }
}

#[cfg(feature = "replay")]
pub use replayed::{Sequence, replay};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_have_their_length_and_differ() {
        let mut made = std::collections::HashSet::new();
        for _ in 0..100 {
            let (long, short) = (hex64(), hex32());
            assert_eq!((long.len(), short.len()), (16, 8));
            assert!(long.chars().chain(short.chars()).all(|digit| matches!(digit, '0'..='9' | 'a'..='f')));
            made.insert(long);
        }
        assert_eq!(made.len(), 100);
    }
}
