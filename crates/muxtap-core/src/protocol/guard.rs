//! The guard lines around a reply: `%begin TIME NUMBER FLAGS`, then `%end` or `%error` with the
//! same three fields.

use super::field::{boundary, number};
use nom::{Parser, bytes::complete::tag, sequence::terminated};
use std::fmt;

/// The fields of `%begin`, `%end` and `%error` (F22, tmux(1) CONTROL MODE). Both ends of a block
/// have the same three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The time at which the command ran, by the server's clock, in seconds since the epoch.
    pub time: u64,
    /// The command's number, unique for each block of a server.
    pub number: u64,
    /// 1 for a reply to a command from this client's standard input, 0 otherwise (F14).
    pub flags: u32,
}

impl Guard {
    /// Reads `TIME NUMBER FLAGS`.
    pub fn parse(arguments: &[u8]) -> Option<Self> {
        let (_, (time, number, flags, ())) =
            (terminated(number, tag(" ")), terminated(number, tag(" ")), number, boundary).parse(arguments).ok()?;
        Some(Self { time, number, flags })
    }

    /// Returns whether the block is a reply to a command of this client (F14).
    pub fn is_reply(&self) -> bool {
        self.flags & 1 != 0
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.time, self.number, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_three_numbers() {
        let guard = Guard { time: 1_700_000_000, number: 271, flags: 1 };
        assert_eq!(Guard::parse(b"1700000000 271 1"), Some(guard));
        assert_eq!(guard.to_string(), "1700000000 271 1");
        assert!(guard.is_reply());
        assert_eq!(Guard::parse(b"1 2 0").map(|guard| guard.is_reply()), Some(false));
    }

    #[test]
    fn anything_else_is_not_a_guard() {
        for bad in ["", "1", "1 2", "1 2 ", "1  2 1", "-1 2 1", "1 2 x", "1 2 1x", " 1 2 1", "99999999999999999999 1 1"]
        {
            assert_eq!(Guard::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
