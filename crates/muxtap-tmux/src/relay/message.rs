//! The messages between a tmux client and its server.
//!
//! They are those of OpenBSD's `imsg_init(3)`: a header of 16 bytes (type, length and marks, two
//! more words), then data. Their types and contents are those of `tmux-protocol.h`.

/// The length of a message's header.
pub(super) const HEADER: usize = 16;
/// The longest message that tmux reads or writes (`MAX_IMSGSIZE`).
pub(super) const LONGEST: usize = 16 * 1024;

/// The reason why bytes cannot be messages of tmux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a message with an impossible length")]
    Length,
    #[error("an introduction without its descriptors")]
    Descriptor,
    #[error("an introduction that is too long")]
    TooLong,
}

/// The header of a message.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) kind: u32,
    /// The length of the whole message.
    pub(super) length: usize,
    pub(super) has_descriptor: bool,
}

impl Header {
    /// Reads the header at the beginning of `bytes`; `None` if it is incomplete.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(([k0, k1, k2, k3, a0, a1, b0, b1], _)) = bytes.split_first_chunk() else { return Ok(None) };
        if bytes.len() < HEADER {
            return Ok(None);
        }
        // Up to 3.5a these are two numbers, the length and marks. From 3.6 on they are one, whose
        // highest bit is the mark: if that comes first in memory the length is the second.
        let (first, second) = (u16::from_ne_bytes([*a0, *a1]), u16::from_ne_bytes([*b0, *b1]));
        let possible = |length: u16| (HEADER..=LONGEST).contains(&usize::from(length));
        let (length, marks) = if possible(first) { (first, second) } else { (second, first) };
        if !possible(length) {
            return Err(Malformed::Length);
        }
        let kind = u32::from_ne_bytes([*k0, *k1, *k2, *k3]);
        Ok(Some(Self { kind, length: length.into(), has_descriptor: marks != 0 }))
    }
}

/// Builds a message without a descriptor, as tmux up to 3.5a writes it (on little-endian machines
/// all versions do). `words`: the header's last two, which hold the protocol's version.
pub(super) fn make(kind: u32, words: &[u8], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + data.len()).unwrap_or_default();
    [&kind.to_ne_bytes()[..], &length.to_ne_bytes(), words, data].concat()
}

/// Builds a message with these marks, for tests.
#[cfg(test)]
pub(super) fn message(kind: u32, marks: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER + data.len()).unwrap();
    let words = [8_u32, 4711].map(u32::to_ne_bytes).concat();
    [&kind.to_ne_bytes()[..], &length.to_ne_bytes(), &marks.to_ne_bytes(), &words, data].concat()
}
