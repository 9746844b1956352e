//! The parameters of a control sequence, split by tmux's rules.

use serde::{Deserialize, Serialize};

/// The maximum number of bytes of parameters; a sequence with more is dropped.
const BYTES: usize = 63;
/// The number of parameters from which a sequence is dropped.
const MOST: usize = 24;
/// The maximum number of intermediate bytes; a sequence with more is dropped.
const INTERMEDIATES: usize = 3;

/// A parameter: the text between two semicolons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Param<'a> {
    Missing,
    Number(i32),
    /// A parameter with colons.
    Parts(&'a [u8]),
}

/// The bytes of a sequence so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RawParams {
    bytes: [u8; 32],
    #[serde(with = "crate::stored::bytes")]
    more: Vec<u8>,
    length: usize,
    intermediates: [u8; INTERMEDIATES],
    intermediates_length: usize,
    /// Whether a limit was exceeded: the sequence has no effect.
    pub(super) discard: bool,
}

impl RawParams {
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.intermediates_length = 0;
        self.discard = false;
    }

    pub(super) fn param(&mut self, byte: u8) {
        if self.length == BYTES {
            self.discard = true;
            return;
        }
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
        } else {
            self.more.truncate(self.length - self.bytes.len());
            self.more.push(byte);
        }
        self.length += 1;
    }

    pub(super) fn intermediate(&mut self, byte: u8) {
        let Some(slot) = self.intermediates.get_mut(self.intermediates_length) else {
            self.discard = true;
            return;
        };
        *slot = byte;
        self.intermediates_length += 1;
    }

    pub(super) fn intermediates(&self) -> &[u8] {
        self.intermediates.get(..self.intermediates_length).unwrap_or_default()
    }

    /// Returns the parameters; `None` where tmux drops the sequence.
    pub(super) fn split<'a>(&self, room: &'a mut ParamBuffer) -> Option<Params<'a>> {
        let ParamBuffer { text, numbers } = room;
        let short = self.length.min(self.bytes.len());
        text.get_mut(..short)?.copy_from_slice(self.bytes.get(..short)?);
        if self.length > short {
            text.get_mut(short..self.length)?.copy_from_slice(self.more.get(..self.length - short)?);
        }
        read(text.get(..self.length)?, numbers).filter(|(_, length)| *length == self.length).map(|(params, _)| params)
    }
}

/// The parameters of a sequence that arrives byte by byte.
pub(super) struct ParamBuffer {
    text: [u8; 64],
    numbers: Numbers,
}

impl Default for ParamBuffer {
    fn default() -> Self {
        Self { text: [0; 64], numbers: NO_NUMBERS }
    }
}

/// Parameters in stored form: a number as it is, a missing one as [`MISSING`], parts as [`PARTS`]
/// plus their position in the text.
///
/// They are filled in place. Returning a new array of enums took half of the time of full-screen
/// output.
pub(crate) type Numbers = [u32; MOST];

pub(crate) const NO_NUMBERS: Numbers = [0; MOST];

const MISSING: u32 = u32::MAX;
const PARTS: u32 = 1 << 31;

/// Parses the parameters at the start of a text, and returns their length; `None` if tmux drops the
/// sequence.
pub(crate) fn read<'a>(text: &'a [u8], numbers: &'a mut Numbers) -> Option<(Params<'a>, usize)> {
    let (mut start, mut value, mut parts, mut length) = (0, 0_u32, false, 0);
    let mut at = 0;
    loop {
        let byte = text.get(at).copied();
        match byte {
            // A number that is too large stays too large.
            Some(digit @ b'0'..=b'9') => value = value.saturating_mul(10).saturating_add(u32::from(digit - b'0')),
            Some(b':') => parts = true,
            _ if at > BYTES => return None,
            _ if at == 0 && byte != Some(b';') => break,
            _ => {
                *numbers.get_mut(length)? = match at - start {
                    0 => MISSING,
                    _ if parts => PARTS | (start << 8 | at) as u32,
                    _ if value < PARTS => value,
                    _ => return None,
                };
                length += 1;
                if byte != Some(b';') {
                    break;
                }
                (start, value, parts) = (at + 1, 0, false);
            }
        }
        at += 1;
    }
    // With the maximum number of parameters, the sequence is dropped.
    Some((Params { text, numbers: numbers.get(..length).filter(|_| length < MOST)? }, at))
}

/// Parses a number up to `i32::MAX`.
pub(super) fn number(digits: &[u8]) -> Option<i32> {
    let mut value: i32 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i32::from(digit - b'0'))?;
    }
    Some(value)
}

/// The parameters of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params<'a> {
    text: &'a [u8],
    numbers: &'a [u32],
}

impl<'a> Params<'a> {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn at(&self, at: usize) -> Param<'a> {
        match self.numbers.get(at).copied().unwrap_or(MISSING) {
            number @ ..PARTS => Param::Number(number.cast_signed()),
            MISSING => Param::Missing,
            place => {
                let [end, start, ..] = place.to_le_bytes();
                Param::Parts(self.text.get(usize::from(start)..usize::from(end)).unwrap_or_default())
            }
        }
    }

    /// Returns the first two numbers as far as they fit, 0 if absent; `None` if a parameter has
    /// colons.
    #[inline]
    pub(crate) fn first_two(&self) -> Option<[u16; 2]> {
        let mut two = [0; 2];
        for (at, number) in self.numbers.iter().enumerate() {
            match *number {
                number @ ..PARTS => {
                    if let Some(slot) = two.get_mut(at) {
                        *slot = number.min(u32::from(u16::MAX)) as u16;
                    }
                }
                MISSING => {}
                _ => return None,
            }
        }
        Some(two)
    }

    /// Returns a number of at least `least`, or `default` if absent; `None` for a parameter with
    /// colons.
    pub(super) fn get(&self, at: usize, least: i32, default: i32) -> Option<i32> {
        match self.numbers.get(at).copied().unwrap_or(MISSING) {
            number @ ..PARTS => Some(number.cast_signed().max(least)),
            MISSING => (default != -1).then_some(default),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(text: &str) -> RawParams {
        let mut collected = RawParams::default();
        text.bytes().for_each(|byte| collected.param(byte));
        collected
    }

    #[test]
    fn parameters_are_numbers_gaps_and_parts() {
        let mut room = ParamBuffer::default();
        let params = collected("1;;4:3;0").split(&mut room).map(|params| [0, 1, 2, 3, 4].map(|at| params.at(at)));
        let wanted = [Param::Number(1), Param::Missing, Param::Parts(b"4:3"), Param::Number(0), Param::Missing];
        assert_eq!(params, Some(wanted));
    }

    #[test]
    fn parameters_end_at_the_first_other_byte() {
        let mut numbers = NO_NUMBERS;
        let mut read = |text: &[u8]| read(text, &mut numbers).map(|(params, length)| (params.len(), length));
        assert_eq!(read(b"m1"), Some((0, 0)));
        assert_eq!(read(b"12;m"), Some((2, 3)));
        assert_eq!(read(b";1"), Some((2, 2)));
        assert_eq!(read(b"4:3?"), Some((1, 3)));
        // Bytes that arrived one by one are the whole sequence, or it is dropped.
        assert!(collected("1?").split(&mut ParamBuffer::default()).is_none());
    }

    #[test]
    fn too_many_too_long_or_too_large_is_dropped() {
        let mut room = ParamBuffer::default();
        assert!(collected(&";".repeat(22)).split(&mut room).is_some());
        assert!(collected(&";".repeat(23)).split(&mut room).is_none());
        assert!(collected("2147483647").split(&mut room).is_some());
        assert!(collected("2147483648").split(&mut room).is_none());
        assert!(!collected(&"0".repeat(63)).discard);
        assert!(collected(&"0".repeat(64)).discard);
        assert_eq!(collected(&format!("{}7", "0".repeat(62))).split(&mut room).unwrap().get(0, 0, 0), Some(7));
    }
}
