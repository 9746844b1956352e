//! Splits a terminal's output into characters, controls and whole escape sequences.

use serde::{Deserialize, Serialize};

use super::HELD_BYTES;

/// An indivisible piece of output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A character, and its bytes. Invalid UTF-8 is U+FFFD.
    Character(char, Vec<u8>),
    /// A C0 control, or DEL.
    Control(u8),
    /// An escape sequence without a text.
    Sequence(Vec<u8>),
    /// A string (OSC, title, DCS, APC, PM, SOS), complete with its beginning and end.
    Text(Vec<u8>),
}

/// The maximum size of a collected CSI sequence, in bytes; a longer one is passed on unchanged.
const SEQUENCE_BYTES: usize = 4 * 1024;

/// A splitter that holds at most one incomplete token.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tokens {
    open: Vec<u8>,
    /// Whether the open string is too long and is being left out.
    dropped: bool,
}

impl Tokens {
    /// Returns whether no token is open.
    pub(super) fn is_ground(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns whether [`Tokens::take_open`] would return something.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty() && !is_string(&self.open)
    }

    /// Drops an unterminated string: the next output is not part of it. Returns whether there was
    /// one.
    pub(super) fn give_up(&mut self) -> bool {
        let is_open = is_string(&self.open);
        if is_open {
            self.open.clear();
            self.dropped = false;
        }
        is_open
    }

    /// Returns the incomplete token. An unterminated string stays: it may contain half of a secret.
    pub(super) fn take_open(&mut self) -> Vec<u8> {
        if is_string(&self.open) {
            return Vec::new();
        }
        let open = std::mem::take(&mut self.open);
        // An incomplete character.
        if open.first().is_some_and(|first| *first >= 0x80) { "\u{fffd}".into() } else { open }
    }

    /// Returns the next token, and the bytes after it. `None`: the token is incomplete.
    pub(super) fn next<'a>(&mut self, mut bytes: &'a [u8]) -> (Option<Token>, &'a [u8]) {
        // The sequence that ended a string may be complete already.
        if let [0x1b, _] = self.open.as_slice()
            && let Some(token) = self.complete()
        {
            return (Some(token), bytes);
        }
        while let Some((byte, rest)) = bytes.split_first() {
            if self.open.is_empty() && (*byte < 0x20 && *byte != 0x1b || *byte == 0x7f) {
                return (Some(Token::Control(*byte)), rest);
            }
            if is_string(&self.open) && self.open.last() != Some(&0x1b) {
                // A long string is not searched byte by byte.
                let plain = bytes.iter().take_while(|byte| !matches!(byte, 0x07 | 0x1b | 0x18 | 0x1a)).count();
                if plain > 0 {
                    let (run, behind) = bytes.split_at(plain);
                    if self.dropped || self.open.len() + plain > HELD_BYTES {
                        self.dropped = true;
                        self.open.truncate(2);
                    } else {
                        self.open.extend_from_slice(run);
                    }
                    bytes = behind;
                    continue;
                }
            }
            if self.open.first() != Some(&0x1b) && !self.open.is_empty() && !(0x80..0xc0).contains(byte) {
                // An incomplete character.
                self.open.clear();
                return (Some(replacement()), bytes);
            }
            self.open.push(*byte);
            bytes = rest;
            if let Some(token) = self.complete() {
                return (Some(token), bytes);
            }
        }
        (None, bytes)
    }

    /// Returns the open token if it is complete.
    fn complete(&mut self) -> Option<Token> {
        let done = match self.open.as_slice() {
            [0x1b] | [0x1b, b'['] => false,
            open if is_string(open) => return self.complete_string(),
            // CAN, SUB, and another escape sequence cut it off.
            [0x1b, .., 0x18 | 0x1a | 0x1b | 0x80..] => true,
            [0x1b, b'[', .., last] => (0x40..=0x7e).contains(last) || self.open.len() > SEQUENCE_BYTES,
            [0x1b, .., last] => !(0x20..0x30).contains(last),
            open => return self.character(open.len()),
        };
        if !done {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.open);
        // The last byte begins the next token.
        if let [_, .., last @ (0x1b | 0x80..)] = *bytes {
            bytes.pop();
            self.open.push(last);
        }
        Some(Token::Sequence(bytes))
    }

    fn complete_string(&mut self) -> Option<Token> {
        let (kept, next) = match self.open.as_slice() {
            [_, _, .., 0x1b, b'\\'] | [_, _, .., 0x18 | 0x1a] | [_, b']' | b'k', .., 7] => (self.open.len(), None),
            // The next escape sequence ends it too.
            [_, _, .., 0x1b, other] => (self.open.len() - 2, Some(*other)),
            _ => return None,
        };
        let mut text = std::mem::take(&mut self.open);
        text.truncate(kept);
        if let Some(other) = next {
            self.open = vec![0x1b, other];
            text.extend_from_slice(b"\x1b\\");
        }
        if std::mem::take(&mut self.dropped) {
            text.clear();
        }
        Some(Token::Text(text))
    }

    fn character(&mut self, length: usize) -> Option<Token> {
        match std::str::from_utf8(&self.open) {
            Ok(text) => {
                let character = text.chars().next()?;
                Some(Token::Character(character, std::mem::take(&mut self.open)))
            }
            Err(error) if error.error_len().is_none() && length < 4 => None,
            Err(_) => {
                self.open.clear();
                Some(replacement())
            }
        }
    }
}

/// Returns whether output may move the cursor out of its row, other than to the next line.
pub(super) fn moves(bytes: &[u8]) -> bool {
    memchr::memchr_iter(0x1b, bytes).any(|at| {
        let sequence = bytes.get(at + 1..).unwrap_or_default();
        match sequence.split_first() {
            Some((b'[', rest)) => {
                let last = rest.iter().find(|byte| (0x40..=0x7e).contains(*byte));
                last.is_none_or(|last| !b"mnctqCDG`KXP@hl".contains(last))
                    || rest.starts_with(b"?1049")
                    || rest.starts_with(b"?1047")
                    || rest.starts_with(b"?47")
            }
            // Strings, character sets and keypad modes.
            Some((b']' | b'k' | b'P' | b'_' | b'^' | b'X' | b'\\' | b'(' | b')' | b'*' | b'+' | b'=' | b'>', _)) => {
                false
            }
            _ => true,
        }
    })
}

fn replacement() -> Token {
    Token::Character('\u{fffd}', "\u{fffd}".into())
}

fn is_string(open: &[u8]) -> bool {
    matches!(open, [0x1b, b']' | b'k' | b'P' | b'_' | b'^' | b'X', ..])
}
