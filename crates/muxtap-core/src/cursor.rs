//! Cursors: places in a pane's stream, as callers hold them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

use crate::{Error, Result, duration, protocol::ids::PaneId};

/// The tmux server run and muxtap run to which offsets belong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// Distinguishes runs of tmux servers.
    pub server: u64,
    /// Distinguishes runs of muxtap.
    pub engine: u64,
}

/// A place in a pane's output: all bytes before `offset` have been read.
///
/// The text form is one opaque token of letters, digits and dots, which needs no quoting in a URL
/// or a shell. The token ends in check digits, and only the spelling that [`fmt::Display`] writes
/// is accepted: a cut or mistyped token is rejected, not misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The epoch to which the offset belongs.
    pub epoch: Epoch,
    /// The pane.
    pub pane: PaneId,
    /// Bytes of output since the engine first saw the pane in this epoch.
    pub offset: u64,
}

impl Cursor {
    fn body(&self) -> String {
        let Epoch { server, engine } = self.epoch;
        format!("c1.{}.{}.{}.{}", base36(server), base36(engine), self.pane.0, self.offset)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body();
        write!(f, "{body}.{}", check(&body))
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let shown: String = text.chars().take(80).collect();
            Error::invalid(format!("`{shown}` is not a cursor; pass one exactly as an earlier response returned it"))
        };
        let mut parts = text.split('.');
        let mut part = || parts.next().ok_or_else(refused);
        if part()? != "c1" {
            return Err(refused());
        }
        let number = |part: &str, radix| u64::from_str_radix(part, radix).map_err(|_| refused());
        let epoch = Epoch { server: number(part()?, 36)?, engine: number(part()?, 36)? };
        let pane = u32::try_from(number(part()?, 10)?).map_err(|_| refused())?;
        let cursor = Self { epoch, pane: PaneId(pane), offset: number(part()?, 10)? };
        // A token in any other spelling (a sign, leading zeros, capitals, wrong check digits) does
        // not come from muxtap.
        if cursor.to_string() == text { Ok(cursor) } else { Err(refused()) }
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| D::Error::custom(error.message))
    }
}

impl PartialSchema for Cursor {
    fn schema() -> RefOr<Schema> {
        String::schema()
    }
}

impl ToSchema for Cursor {}

pub(crate) fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit((number % 36) as u32, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// Returns three check digits (FNV-1a, folded). They change with any single character and with any
/// swap of two characters.
pub(crate) fn check(body: &str) -> String {
    let hash = body
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let folded = base36((hash ^ (hash >> 32)) % (36 * 36 * 36));
    format!("{folded:0>3}")
}

/// The place at which to begin with a pane's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// From the latest of these: muxtap's last input to the pane; the place where muxtap created or
    /// restarted the pane; for a wait also the last match of the same pattern that was returned for
    /// the pane. Without any of these, a read begins at the first retained byte and a wait begins
    /// now.
    #[default]
    Input,
    /// From the stream's end.
    Now,
    /// From the first byte that is retained.
    Start,
    /// From the stream's end, with the screen's present content as well.
    Screen,
    /// From this number of lines before the end.
    Lines(u32),
    /// From the output of this many milliseconds ago, precise to about a second. The age of output
    /// that was in the pane before muxtap attached is unknown: it counts as just before that.
    Ago(u64),
    /// From the output of this time, in milliseconds since 1970; otherwise like [`Since::Ago`].
    Time(u64),
    /// From a cursor.
    At(Cursor),
}

impl From<Cursor> for Since {
    fn from(cursor: Cursor) -> Self {
        Self::At(cursor)
    }
}

impl FromStr for Since {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "input" => return Ok(Self::Input),
            "now" => return Ok(Self::Now),
            "start" => return Ok(Self::Start),
            "screen" => return Ok(Self::Screen),
            _ => {}
        }
        if let Some(lines) = text.strip_prefix("lines:") {
            let digits = !lines.is_empty() && lines.bytes().all(|byte| byte.is_ascii_digit());
            if let Some(lines) = lines.parse().ok().filter(|_| digits) {
                return Ok(Self::Lines(lines));
            }
        } else if text.starts_with("c1.") {
            return text.parse().map(Self::At);
        } else if let Some(seconds) = text.strip_prefix('@') {
            if let Some(at) = duration::parse_seconds(seconds) {
                return Ok(Self::Time(at));
            }
        } else if let Some(ago) = duration::parse_ago(text) {
            return Ok(Self::Ago(ago));
        }
        let shown: String = text.chars().take(80).collect();
        Err(Error::invalid(format!(
            "since: `{shown}` is not valid; expected input, now, start, screen, lines:N (such as lines:10), an age \
             with a unit (90s, 10m, 1h30m), @ and seconds since 1970, or a cursor from an earlier response"
        )))
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => f.write_str("input"),
            Self::Now => f.write_str("now"),
            Self::Start => f.write_str("start"),
            Self::Screen => f.write_str("screen"),
            Self::Lines(lines) => write!(f, "lines:{lines}"),
            Self::Ago(milliseconds) => write!(f, "{milliseconds}ms"),
            Self::Time(milliseconds) => write!(f, "@{}.{:03}", milliseconds / 1000, milliseconds % 1000),
            Self::At(cursor) => cursor.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ErrorCode;

    fn cursor(server: u64, engine: u64, pane: u32, offset: u64) -> Cursor {
        Cursor { epoch: Epoch { server, engine }, pane: PaneId(pane), offset }
    }

    #[test]
    fn a_cursor_needs_no_quoting() {
        let text = cursor(u64::MAX, 1_700_000_000, 3, 4096).to_string();
        assert!(text.starts_with("c1.3w5e11264sgsf.") && text.contains(".3.4096."), "{text}");
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'), "{text}");
    }

    #[test]
    fn a_cursor_that_was_changed_is_refused() {
        let text = cursor(77, 99, 12, 345).to_string();
        let wrong = [
            text.replace(".345.", ".346."),
            text.replace(".345.", ".435."),
            text.replace(".345.", ".0345."),
            text.replace(".345.", ".+345."),
            text.to_uppercase(),
            text.replacen("c1", "c2", 1),
            text.strip_suffix(|_| true).unwrap().to_owned(),
            format!("{text}.0"),
            format!(" {text}"),
            String::new(),
        ];
        for wrong in wrong {
            let error = wrong.parse::<Cursor>().unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{wrong}");
        }
    }

    #[test]
    fn since_says_what_it_accepts() {
        for (text, since) in [
            ("input", Since::Input),
            ("now", Since::Now),
            ("start", Since::Start),
            ("screen", Since::Screen),
            ("lines:10", Since::Lines(10)),
            ("90000ms", Since::Ago(90_000)),
            ("@1795263374.123", Since::Time(1_795_263_374_123)),
        ] {
            assert_eq!(text.parse::<Since>(), Ok(since));
            assert_eq!(since.to_string(), text);
        }
        for bad in ["", "Input", "lines:", "lines:+1", "lines:99999999999", "c2.1", "5"] {
            let error = bad.parse::<Since>().unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument);
            assert!(error.message.contains("lines:N") && error.message.contains("cursor"), "{}", error.message);
        }
        assert_eq!("1h30m".parse::<Since>(), Ok(Since::Ago(5_400_000)));
        assert!("c1.1.1.1.1.zzz".parse::<Since>().unwrap_err().message.contains("is not a cursor"));
    }

    proptest! {
        /// S7: a cursor survives the way to text and back.
        #[test]
        fn a_cursor_survives_its_text(server: u64, engine: u64, pane: u32, offset: u64) {
            let cursor = cursor(server, engine, pane, offset);
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
            prop_assert_eq!(cursor.to_string().parse(), Ok(Since::At(cursor)));
        }
    }
}
