//! The parameters of a control sequence, as tmux splits them.

/// Bytes of parameters that are kept; a sequence with more is dropped.
const BYTES: usize = 63;
/// A sequence with as many parameters is dropped.
const MOST: usize = 24;
/// Intermediate bytes that are kept; a sequence with more is dropped.
const INTERMEDIATES: usize = 3;

/// What stands between two semicolons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Param<'a> {
    Missing,
    Number(i32),
    /// Has colons.
    Parts(&'a [u8]),
}

/// The bytes of a sequence so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    bytes: [u8; 32],
    more: Vec<u8>,
    length: usize,
    intermediates: [u8; INTERMEDIATES],
    intermediates_length: usize,
    /// Too much of something: the sequence does nothing.
    pub(super) discard: bool,
}

impl Collected {
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

    /// The parameters; `None` where tmux drops the sequence.
    pub(super) fn split<'a>(&self, room: &'a mut [u8; 64]) -> Option<Params<'a>> {
        let short = self.length.min(self.bytes.len());
        room.get_mut(..short)?.copy_from_slice(self.bytes.get(..short)?);
        if self.length > short {
            room.get_mut(short..self.length)?.copy_from_slice(self.more.get(..self.length - short)?);
        }
        split(room.get(..self.length)?)
    }
}

/// The parameters in a text; `None` where tmux drops the sequence.
pub(super) fn split(text: &[u8]) -> Option<Params<'_>> {
    let mut params = Params { text, list: [Slot::Missing; MOST], length: 0 };
    if text.is_empty() {
        return Some(params);
    }
    if text.len() > BYTES {
        return None;
    }
    let (mut start, mut value, mut parts) = (0, 0_i64, false);
    for (at, byte) in text.iter().chain(b";").enumerate() {
        match byte {
            // Too large a number stays too large.
            b'0'..=b'9' => value = (value * 10 + i64::from(byte - b'0')).min(i64::from(u32::MAX)),
            b':' => parts = true,
            b';' => {
                let slot = if at == start {
                    Slot::Missing
                } else if parts {
                    Slot::Parts(start as u8, at as u8)
                } else {
                    Slot::Number(i32::try_from(value).ok()?)
                };
                *params.list.get_mut(params.length)? = slot;
                params.length += 1;
                if params.length == MOST {
                    return None;
                }
                (start, value, parts) = (at + 1, 0, false);
            }
            _ => return None,
        }
    }
    Some(params)
}

/// A number up to `i32::MAX`.
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

/// A parameter as it is kept: parts by where they stand in the text.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Missing,
    Number(i32),
    Parts(u8, u8),
}

/// The parameters of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Params<'a> {
    text: &'a [u8],
    list: [Slot; MOST],
    length: usize,
}

impl<'a> Params<'a> {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn at(&self, at: usize) -> Param<'a> {
        match self.list.get(at) {
            Some(Slot::Number(number)) => Param::Number(*number),
            Some(Slot::Parts(start, end)) => {
                Param::Parts(self.text.get(usize::from(*start)..usize::from(*end)).unwrap_or_default())
            }
            _ => Param::Missing,
        }
    }

    /// A number of at least `least`; `default` where none stands; `None` for one with colons.
    pub(super) fn get(&self, at: usize, least: i32, default: i32) -> Option<i32> {
        match self.at(at) {
            Param::Missing => (default != -1).then_some(default),
            Param::Number(number) => Some(number.max(least)),
            Param::Parts(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(text: &str) -> Collected {
        let mut collected = Collected::default();
        text.bytes().for_each(|byte| collected.param(byte));
        collected
    }

    #[test]
    fn parameters_are_numbers_gaps_and_parts() {
        let mut room = [0; 64];
        let params = collected("1;;4:3;0").split(&mut room).map(|params| [0, 1, 2, 3, 4].map(|at| params.at(at)));
        let wanted = [Param::Number(1), Param::Missing, Param::Parts(b"4:3"), Param::Number(0), Param::Missing];
        assert_eq!(params, Some(wanted));
    }

    #[test]
    fn too_many_too_long_or_too_large_is_dropped() {
        let mut room = [0; 64];
        assert!(collected(&";".repeat(22)).split(&mut room).is_some());
        assert!(collected(&";".repeat(23)).split(&mut room).is_none());
        assert!(collected("2147483647").split(&mut room).is_some());
        assert!(collected("2147483648").split(&mut room).is_none());
        assert!(!collected(&"0".repeat(63)).discard);
        assert!(collected(&"0".repeat(64)).discard);
        assert_eq!(collected(&format!("{}7", "0".repeat(62))).split(&mut room).unwrap().get(0, 0, 0), Some(7));
    }
}
