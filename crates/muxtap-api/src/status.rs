//! A condition on the exit status of a command.

use std::{fmt, str::FromStr};

use muxtap_core::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A condition on an exit status: equal to a number (`0`) or not (`!0`). The text form is also the
/// JSON form; a plain number is accepted, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusIs {
    status: i32,
    is_negated: bool,
}

impl StatusIs {
    /// Returns whether a command that ended this way meets the condition. A command that a signal
    /// ended has no status, so it meets only `!N`; an unknown status meets nothing.
    pub fn is_met(self, status: Option<i32>, signal: Option<&str>) -> bool {
        match status {
            Some(status) => (status == self.status) != self.is_negated,
            None => self.is_negated && signal.is_some(),
        }
    }
}

impl fmt::Display for StatusIs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negated { "!" } else { "" };
        write!(formatter, "{sign}{}", self.status)
    }
}

impl FromStr for StatusIs {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (number, is_negated) = text.strip_prefix('!').map_or((text, false), |number| (number, true));
        let status = number.trim().parse();
        let status = status.map_err(|_| Error::invalid(format!("status: `{text}` is neither a number nor `!N`")))?;
        Ok(Self { status, is_negated })
    }
}

impl Serialize for StatusIs {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StatusIs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = StatusIs;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a status such as 0 or \"!0\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<StatusIs, E> {
                text.parse().map_err(|error: Error| E::custom(error.message))
            }

            fn visit_i64<E: de::Error>(self, status: i64) -> std::result::Result<StatusIs, E> {
                let status = i32::try_from(status).map_err(E::custom)?;
                Ok(StatusIs { status, is_negated: false })
            }

            fn visit_u64<E: de::Error>(self, status: u64) -> std::result::Result<StatusIs, E> {
                self.visit_i64(i64::try_from(status).map_err(E::custom)?)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_met_by_what_it_names() {
        let is = |text: &str| text.parse::<StatusIs>().unwrap();
        assert!(is("0").is_met(Some(0), None) && !is("0").is_met(Some(1), None) && !is("0").is_met(None, None));
        assert!(is("!0").is_met(Some(1), None) && !is("!0").is_met(Some(0), None));
        assert!(is("!0").is_met(None, Some("SIGKILL")) && !is("!0").is_met(None, None));
        assert!(!is("0").is_met(None, Some("SIGKILL")));
        assert!(
            "".parse::<StatusIs>().is_err() && "!".parse::<StatusIs>().is_err() && "x".parse::<StatusIs>().is_err()
        );
    }

    #[test]
    fn a_status_is_read_as_text_and_as_a_number() {
        let read = |json: &str| serde_json::from_str::<StatusIs>(json).map(|is| is.to_string()).ok();
        assert_eq!(read("\"!0\"").as_deref(), Some("!0"));
        assert_eq!(read("3").as_deref(), Some("3"));
        assert_eq!((read("1.5"), read("99999999999"), read("\"no\"")), (None, None, None));
    }
}
