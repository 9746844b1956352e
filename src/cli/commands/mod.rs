//! The commands, a file for each group: their arguments, and how they print the answer.

pub(super) mod agents;
pub(super) mod approvals;
#[cfg(feature = "bridge")]
pub(super) mod bridge;
pub(super) mod capture;
pub(super) mod change;
pub(super) mod completions;
pub(super) mod create;
pub(super) mod daemon;
pub(super) mod demo;
pub(super) mod doctor;
pub(super) mod events;
pub(super) mod input;
pub(super) mod list;
pub(super) mod mcp;
pub(super) mod read;
pub(super) mod run;
pub(super) mod tail;
pub(super) mod wait_for;

use super::{Outcome, caller::Caller, lines, output, targets, url};
use crate::{api::Error, engine::is_number};

/// The longest time limit that a wait or a run takes: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// Reads seconds, fractions included, as milliseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=MAX_SECONDS).contains(&seconds) {
        return Err(format!("must lie between 0 and {MAX_SECONDS}"));
    }
    // In range and not negative: checked above. Rounded up, so that a very short time does not
    // become none.
    #[allow(clippy::cast_sign_loss)]
    Ok((seconds * 1000.0).ceil() as u64)
}

/// Reads `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

/// Returns the path of one session, window or pane.
fn path_of(kind: &str, target: &str) -> String {
    format!("/v1/{kind}/{}", url::encode(target))
}

/// Returns the path of a user's target. Error: a bare number where not only a session can be meant.
/// HTTP takes it for a pane's id, which tmux's own `-t` never does.
fn path_named(kind: &str, target: &str) -> Result<String, Error> {
    if kind != "sessions" && is_number(target) {
        return Err(Error::bare_number(target, &[]));
    }
    Ok(path_of(kind, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_fractions() {
        assert_eq!(seconds("1.5"), Ok(1500));
        assert_eq!(seconds("0"), Ok(0));
        assert_eq!(seconds("0.0001"), Ok(1));
        for text in ["", "-1", "nan", "inf", "86401", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_a_session_or_nothing() {
        assert_eq!(path_named("sessions", "1").unwrap(), "/v1/sessions/1");
        assert_eq!(path_named("panes", "1:").unwrap(), "/v1/panes/1%3A");
        for kind in ["panes", "windows"] {
            assert_eq!(path_named(kind, "1").unwrap_err().code.as_str(), "AMBIGUOUS_TARGET");
        }
    }

    #[test]
    fn a_variable_has_a_name() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }
}
