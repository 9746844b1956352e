//! Names of agent sessions, and positions in their events.

use std::{fmt, str::FromStr};

use muxtap_core::token;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

use super::{Error, ErrorCode, Result};

/// The name of an agent session, `session:PROVIDER:ID`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionName {
    /// The provider, as the configuration names it.
    pub provider: String,
    /// The agent's own id of the session.
    pub id: String,
}

/// The maximum number of bytes in a session's id.
pub const SESSION_ID_BYTES: usize = 128;

impl SessionName {
    /// Returns whether the text can be part of a session's name: letters, digits, `-`, `_` and `.`.
    pub fn is_part(text: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !text.is_empty() && text.len() <= SESSION_ID_BYTES && text.bytes().all(fits)
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session:{}:{}", self.provider, self.id)
    }
}

impl FromStr for SessionName {
    type Err = Error;

    /// Parses `session:PROVIDER:ID` or `PROVIDER:ID`.
    fn from_str(text: &str) -> Result<Self> {
        let named = text.strip_prefix("session:").unwrap_or(text);
        match named.split_once(':') {
            Some((provider, id)) if Self::is_part(provider) && Self::is_part(id) => {
                Ok(Self { provider: provider.into(), id: id.into() })
            }
            _ => {
                let shown: String = text.chars().take(80).collect();
                Err(Error::new(
                    ErrorCode::InvalidTarget,
                    format!("`{shown}` is not an agent session; expected session:PROVIDER:ID, as the list shows it"),
                ))
            }
        }
    }
}

impl Serialize for SessionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SessionName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| D::Error::custom(error.message))
    }
}

impl PartialSchema for SessionName {
    fn schema() -> RefOr<Schema> {
        String::schema()
    }
}

impl ToSchema for SessionName {}

/// A position in a session's events: everything before it has been read.
///
/// The text form is one token with check digits, like a pane's cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventCursor {
    /// Distinguishes runs of the daemon, and agents within a run.
    pub run: u64,
    /// The number of events before it.
    pub offset: u64,
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&token::write("e1", &[self.run, self.offset]))
    }
}

impl FromStr for EventCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let shown = || text.chars().take(80).collect::<String>();
        match token::read("e1", text).as_deref() {
            Some(&[run, offset]) => Ok(Self { run, offset }),
            _ => Err(Error::invalid(format!(
                "`{}` is not an event cursor; pass one exactly as an earlier response returned it",
                shown()
            ))),
        }
    }
}

impl Serialize for EventCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| D::Error::custom(error.message))
    }
}

impl PartialSchema for EventCursor {
    fn schema() -> RefOr<Schema> {
        String::schema()
    }
}

impl ToSchema for EventCursor {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let name: SessionName = "session:claude:01a2-b".parse().unwrap();
        assert_eq!((name.provider.as_str(), name.id.as_str()), ("claude", "01a2-b"));
        assert_eq!(name.to_string().parse::<SessionName>().unwrap(), name);
        assert_eq!("claude:01a2-b".parse::<SessionName>().unwrap(), name);
        for wrong in ["", "claude", "session:claude", "claude:", ":x", "a:b:c", "a:b/c", "a:b c", "pane:p1:x"] {
            assert_eq!(wrong.parse::<SessionName>().unwrap_err().code.as_str(), "INVALID_TARGET", "{wrong}");
        }
        assert!(format!("a:{}", "x".repeat(129)).parse::<SessionName>().is_err());
    }

    #[test]
    fn a_cursor_of_events_is_one_spelling() {
        let cursor = EventCursor { run: 77, offset: 123_456 };
        let text = cursor.to_string();
        assert_eq!(text.parse::<EventCursor>().unwrap(), cursor);
        let cut = [text.get(1..).unwrap(), text.get(..text.len() - 1).unwrap()];
        for wrong in cut.into_iter().chain(["e1.0.0", "", "c1.1.1.1.1.abc"]) {
            assert!(wrong.parse::<EventCursor>().is_err(), "{wrong}");
        }
        assert!(text.replace("2n9c", "2nc9").parse::<EventCursor>().is_err() && text.contains("2n9c"));
    }
}
