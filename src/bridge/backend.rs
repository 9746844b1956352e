//! What does the work: tmux, or memory.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use super::{
    live::Live,
    request::{Action, Request},
    response::{HttpError, ObjectWriter},
    stub::Stub,
};

/// One of the two modes.
pub enum Backend {
    /// `TMUX_BRIDGE_MODE=tmux`.
    Live(Box<Live>),
    /// `TMUX_BRIDGE_MODE=stub`.
    Stub(Stub),
}

/// What was done.
#[derive(Debug, PartialEq, Eq)]
pub enum ActionOutput {
    /// These are there, sorted.
    Sessions(Vec<String>),
    /// Something was done to this session.
    Session {
        /// Its name.
        name: String,
        /// What it shows, where that was asked for: a string as JSON has it.
        output: Option<Arc<str>>,
    },
}

impl Backend {
    /// The body of `/health`.
    pub async fn health(&self) -> Result<String, HttpError> {
        match self {
            Self::Live(live) => live.health().await,
            Self::Stub(stub) => Ok(stub.health()),
        }
    }

    /// Does what this page asks.
    pub async fn execute(&self, request: &Request, origin: &str) -> Result<ActionOutput, HttpError> {
        match self {
            Self::Live(live) => live.execute(request, origin).await,
            Self::Stub(stub) => stub.execute(request).await,
        }
    }

    /// Lets go of everything. Sessions of tmux live on.
    pub async fn stop(&self) {
        match self {
            Self::Live(live) => live.stop().await,
            Self::Stub(stub) => stub.stop(),
        }
    }
}

impl ActionOutput {
    /// This session, and nothing to show.
    pub fn session(name: &str) -> Self {
        Self::Session { name: name.to_owned(), output: None }
    }

    /// What this session shows, as JSON.
    pub fn output(name: &str, json: impl Into<Arc<str>>) -> Self {
        Self::Session { name: name.to_owned(), output: Some(json.into()) }
    }

    /// The answer's body.
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

/// A name for a session that was given none.
pub fn generate_name() -> String {
    format!("pi-{:08x}", RandomState::new().hash_one(0) as u32)
}

/// Names as JavaScript sorts them: by UTF-16 units.
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
