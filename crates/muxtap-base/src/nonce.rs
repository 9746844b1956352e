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
