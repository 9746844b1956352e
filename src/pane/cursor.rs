//! Cursors: where a reader stands, as an opaque word.

use std::{fmt, str::FromStr};

use crate::{api::Error, protocol::ids::PaneId};

/// Which life of which server an offset belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The tmux server's process and start.
    pub server: u64,
    /// The muxtap that counted.
    pub engine: u64,
}

/// A point in a pane's stream. Its text is opaque, needs no quoting anywhere, and holds a check against typing errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Whose offsets these are.
    pub epoch: Epoch,
    /// The pane.
    pub pane: PaneId,
    /// Bytes of output since the pane was first seen, its seed included.
    pub offset: u64,
}

impl Cursor {
    /// 16 bits over all fields: enough to refuse a word that was cut or mistyped.
    fn check(&self) -> u16 {
        let fields = [self.epoch.server, self.epoch.engine, u64::from(self.pane.0), self.offset];
        let mixed = fields.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |mixed, field| {
            (mixed ^ field).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
        });
        (mixed ^ (mixed >> 32)) as u16
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Epoch { server, engine } = self.epoch;
        write!(f, "c{server:x}.{engine:x}.{}.{}.{:04x}", self.pane.0, self.offset, self.check())
    }
}

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let fields: Vec<_> = text.strip_prefix('c').ok_or(NotACursor)?.split('.').collect();
        let [server, engine, pane, offset, _] = fields.as_slice() else { return Err(NotACursor) };
        let hex = |field: &str| u64::from_str_radix(field, 16).map_err(|_| NotACursor);
        let cursor = Self {
            epoch: Epoch { server: hex(server)?, engine: hex(engine)? },
            pane: PaneId(pane.parse().map_err(|_| NotACursor)?),
            offset: offset.parse().map_err(|_| NotACursor)?,
        };
        // One spelling each: what does not print as it was written was not made here.
        if cursor.to_string() == text { Ok(cursor) } else { Err(NotACursor) }
    }
}

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct NotACursor;

/// Where a read or a wait begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The last input that muxtap sent.
    Input,
    /// The end of what was printed so far.
    Now,
    /// All that is retained.
    Start,
    /// What stands on the screen counts.
    Screen,
    /// The last so many lines.
    Lines(u32),
    /// A cursor.
    At(Cursor),
}

impl FromStr for Since {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "input" => return Ok(Self::Input),
            "now" => return Ok(Self::Now),
            "start" => return Ok(Self::Start),
            "screen" => return Ok(Self::Screen),
            _ => {}
        }
        if let Some(lines) = text.strip_prefix("lines:").and_then(|lines| lines.parse().ok()) {
            return Ok(Self::Lines(lines));
        }
        text.parse().map(Self::At).map_err(|_| {
            Error::invalid(format!(
                "since: {text:?} is neither input, now, start, screen, lines:N nor a cursor that muxtap gave"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn since_has_words_and_cursors() {
        assert_eq!("input".parse(), Ok(Since::Input));
        assert_eq!("lines:10".parse(), Ok(Since::Lines(10)));
        assert!("yesterday".parse::<Since>().unwrap_err().message.contains("cursor"));
    }

    proptest! {
        #[test]
        fn a_cursor_reads_back_as_it_was_printed(server: u64, engine: u64, pane: u32, offset: u64) {
            let cursor = Cursor { epoch: Epoch { server, engine }, pane: PaneId(pane), offset };
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }

        /// S5: a cursor that was changed in one place is refused, not followed to somewhere else.
        #[test]
        fn a_mistyped_offset_is_refused(offset in 0..u64::MAX / 2, by in 1..1000_u64) {
            let epoch = Epoch { server: 7, engine: 9 };
            let right = Cursor { epoch, pane: PaneId(1), offset }.to_string();
            let wrong = right.replace(&format!(".{offset}."), &format!(".{}.", offset + by));
            prop_assume!(right != wrong);
            // One in 65,536 passes the check by chance; these do not.
            let other = Cursor { epoch, pane: PaneId(1), offset: offset + by };
            prop_assume!(right.rsplit('.').next() != other.to_string().rsplit('.').next());
            prop_assert_eq!(wrong.parse::<Cursor>(), Err(NotACursor));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}") {
            let _ = text.parse::<Cursor>();
        }
    }
}
