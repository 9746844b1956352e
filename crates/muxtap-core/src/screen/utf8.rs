//! The decoder for a character whose bytes arrive one by one, with tmux's rules.

use serde::{Deserialize, Serialize};

/// The result of a completed sequence of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A character.
    Character(char),
    /// Bytes that would encode a character beyond U+10FFFF.
    Beyond([u8; 4]),
    /// Bytes that do not encode a character.
    Invalid,
}

/// The bytes of the character so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Utf8 {
    bytes: [u8; 4],
    have: u8,
    size: u8,
    bad: bool,
}

impl Utf8 {
    pub(super) fn started(self) -> bool {
        self.size != 0
    }

    pub(super) fn reset(&mut self) {
        self.size = 0;
    }

    /// Adds a byte with the top bit set; returns the character if this was its last byte.
    ///
    /// An invalid sequence takes the number of bytes that its first byte announced.
    pub(super) fn take(&mut self, byte: u8) -> Option<Decoded> {
        if self.size == 0 {
            self.size = match byte {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => return Some(Decoded::Invalid),
            };
            self.have = 0;
            self.bad = false;
        } else if byte & 0xc0 != 0x80 {
            self.bad = true;
        }
        if let Some(slot) = self.bytes.get_mut(usize::from(self.have)) {
            *slot = byte;
        }
        self.have += 1;
        if self.have < self.size {
            return None;
        }
        self.size = 0;
        if self.bad {
            return Some(Decoded::Invalid);
        }
        let bytes = self.bytes.get(..usize::from(self.have))?;
        match (std::str::from_utf8(bytes), self.bytes) {
            (Ok(text), _) => text.chars().next().map(Decoded::Character),
            (Err(_), [0xf4, 0x90..=0xbf, ..]) => Some(Decoded::Beyond(self.bytes)),
            (Err(_), _) => Some(Decoded::Invalid),
        }
    }
}

/// The complete characters of more than one byte at the start of some bytes.
pub(super) struct Characters<'a>(pub(super) &'a [u8]);

impl Iterator for Characters<'_> {
    type Item = char;

    #[inline]
    fn next(&mut self) -> Option<char> {
        let (character, length) = whole_character(self.0)?;
        self.0 = self.0.get(length..)?;
        Some(character)
    }
}

/// Returns a complete character of more than one byte at the start, with its length.
#[inline]
pub(super) fn whole_character(bytes: &[u8]) -> Option<(char, usize)> {
    let continued = |at: usize| bytes.get(at).filter(|byte| **byte & 0xc0 == 0x80).map(|byte| u32::from(byte & 0x3f));
    let (code, length, least) = match *bytes.first()? {
        lead @ 0xc2..=0xdf => (u32::from(lead & 0x1f) << 6 | continued(1)?, 2, 0x80),
        lead @ 0xe0..=0xef => (u32::from(lead & 0x0f) << 12 | continued(1)? << 6 | continued(2)?, 3, 0x800),
        lead @ 0xf0..=0xf4 => {
            let high = u32::from(lead & 7) << 18 | continued(1)? << 12;
            (high | continued(2)? << 6 | continued(3)?, 4, 0x1_0000)
        }
        _ => return None,
    };
    Some((char::from_u32(code).filter(|_| code >= least)?, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> String {
        let mut utf8 = Utf8::default();
        let taken = bytes.iter().filter_map(|byte| utf8.take(*byte));
        taken
            .filter_map(|taken| match taken {
                Decoded::Character(character) => Some(character),
                Decoded::Beyond(_) => Some('+'),
                Decoded::Invalid => None,
            })
            .collect()
    }

    #[test]
    fn what_is_no_character_takes_the_bytes_that_it_promised() {
        assert_eq!(read("é漢😀".as_bytes()), "é漢😀");
        assert_eq!(read(b"\xe2\xe2\xe2\xc3\xa9"), "é");
        assert_eq!(read(b"\xc0\xaf\xff\xc3\xa9"), "é");
        assert_eq!(read(b"\xed\xa0\x80\xc3\xa9"), "é");
        assert_eq!(read(b"\xf4\xa9\xb2\xbf\xc3\xa9"), "+é");
    }
}
