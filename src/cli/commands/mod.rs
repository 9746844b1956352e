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
#[cfg(feature = "top")]
pub(super) mod top;
pub(super) mod wait_for;

use self::events::join_targets;
use super::{Outcome, caller::Caller, client::Client, lines, output, url};
use crate::{
    api::{Error, ListQuery, PaneList},
    engine::is_number,
};

/// The longest time limit that a wait or a run takes: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// Reads a time as milliseconds: seconds, fractions included, or numbers with units (`90s`, `10m`,
/// `1h30m`, `250ms`).
fn duration(text: &str) -> Result<u64, String> {
    let seconds = if text.parse::<f64>().is_ok() { text.parse().ok() } else { with_units(text) };
    let seconds = seconds.ok_or_else(|| "not a time: write seconds, or 90s, 10m, 1h30m".to_owned())?;
    if !(0.0..=MAX_SECONDS).contains(&seconds) {
        return Err(format!("must lie between 0 and {MAX_SECONDS} s, a day"));
    }
    // In range and not negative: checked above. Rounded up, so that a very short time does not
    // become none.
    #[allow(clippy::cast_sign_loss)]
    Ok((seconds * 1000.0).ceil() as u64)
}

/// Reads numbers with units as seconds. `None`: it is something else.
fn with_units(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number: f64 = rest.strip_suffix(behind)?.parse().ok()?;
        rest = behind.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        sum += number
            * match behind.strip_suffix(rest)? {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
    }
    (!text.is_empty()).then_some(sum)
}

/// Reads `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

/// Returns the query of a list of what targets name; of none: of everything.
fn listed(targets: &[String]) -> Result<ListQuery, Error> {
    Ok(ListQuery { targets: join_targets(targets)? })
}

/// Returns the ids of the panes that a pattern fits now, ended ones left out. Error: there are none.
async fn fitting(client: &mut Client, pattern: &str) -> Result<Vec<String>, Error> {
    let list: PaneList = client.get("/v1/panes", &listed(&[pattern.to_owned()])?).await?;
    let ids: Vec<_> = list.panes.iter().filter(|pane| !pane.dead).map(|pane| pane.id.to_string()).collect();
    if ids.is_empty() {
        return Err(nothing_fits(pattern));
    }
    Ok(ids)
}

fn nothing_fits(pattern: &str) -> Error {
    Error::not_found(format!("no pane fits {pattern}; `muxtap list-panes` shows what is there"))
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
    fn a_time_has_fractions_or_units() {
        for (text, milliseconds) in [
            ("1.5", 1500),
            ("0", 0),
            ("0.0001", 1),
            ("1s", 1000),
            ("250ms", 250),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(duration(text), Ok(milliseconds), "{text}");
        }
        for text in ["", "-1", "nan", "inf", "86401", "25h", "s", "1x", "1h30", "m5", "1 h", "1.2.3s"] {
            assert!(duration(text).is_err(), "{text:?}");
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
