//! The ids that tmux gives to panes (`%3`), windows (`@1`) and sessions (`$0`).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema},
};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $sigil:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The character before the number.
            pub const SIGIL: char = $sigil;

            /// Reads the id from the start of `bytes`; the whole slice must be the id.
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                let digits = bytes.strip_prefix(&[Self::SIGIL as u8])?;
                // `u32::from_str` would accept a leading `+`.
                if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                    return None;
                }
                std::str::from_utf8(digits).ok()?.parse().ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::SIGIL, self.0)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;
            fn from_str(text: &str) -> Result<Self, NotAnId> {
                Self::from_bytes(text.as_bytes()).ok_or(NotAnId)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(|_| {
                    D::Error::custom(format!("expected an id ({} and a number), got {text:?}", Self::SIGIL))
                })
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                String::schema()
            }
        }

        impl ToSchema for $name {}
    };
}

id!(
    /// A pane's id, written `%3`. Unique for the life of a tmux server, which never reuses it.
    PaneId, '%'
);
id!(
    /// A window's id, written `@1`. Unique for the life of a tmux server, which never reuses it.
    WindowId, '@'
);
id!(
    /// A session's id, written `$0`. Unique for the life of a tmux server, which never reuses it.
    SessionId, '$'
);

/// The error for a text that is not an id of the requested kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a tmux id")]
pub struct NotAnId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_sigil_and_a_number() {
        assert_eq!("%12".parse(), Ok(PaneId(12)));
        assert_eq!(PaneId(12).to_string(), "%12");
        for bad in ["", "%", "12", "%+1", "%1 ", "@1", "%4294967296"] {
            assert_eq!(bad.parse::<PaneId>(), Err(NotAnId), "{bad:?}");
        }
    }
}
