//! What an action results in, whatever backend carries it out.

use std::sync::Arc;

use super::{request::Action, response::ObjectWriter};
use crate::nonce;

/// The result of an action.
#[derive(Debug, PartialEq, Eq)]
pub enum ActionOutput {
    /// The names of all sessions, sorted.
    Sessions(Vec<String>),
    /// The session that the action was about.
    Session {
        /// Its name.
        name: String,
        /// The session's screen, where the action asks for it: a JSON string.
        output: Option<Arc<str>>,
    },
}

impl ActionOutput {
    /// Builds the result for a session without its screen.
    pub fn session(name: &str) -> Self {
        Self::Session { name: name.to_owned(), output: None }
    }

    /// Builds the result for a session with its screen, as JSON.
    pub fn output(name: &str, json: impl Into<Arc<str>>) -> Self {
        Self::Session { name: name.to_owned(), output: Some(json.into()) }
    }

    /// Returns the response's body.
    pub fn into_body(self, action: Action) -> String {
        let body = ObjectWriter::new().bool("ok", true).string("action", action.as_str());
        match self {
            Self::Sessions(names) => body.strings("sessions", &names),
            Self::Session { name, output } => {
                let body = body.string("session", &name);
                match output {
                    Some(output) => body.raw("output", &output),
                    None => body,
                }
            }
        }
        .finish()
    }
}

/// Generates a name for a session that was given none.
pub fn generate_name() -> String {
    format!("pi-{}", nonce::hex32())
}

/// Sorts names as JavaScript does: by UTF-16 units.
pub fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_by(|one, other| one.encode_utf16().cmp(other.encode_utf16()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_units() {
        let names = ["b", "\u{ff5e}", "😀", "B", "a10", "a9"].map(str::to_owned).to_vec();
        assert_eq!(sorted(names), ["B", "a10", "a9", "b", "😀", "\u{ff5e}"]);
    }

    #[test]
    fn made_up_names_are_pi_and_eight_digits() {
        let name = generate_name();
        let digits = name.strip_prefix("pi-").unwrap();
        assert!(
            digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit))
        );
    }
}
