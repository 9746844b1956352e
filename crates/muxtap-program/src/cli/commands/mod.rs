//! The commands, one file for each group: their arguments and the output of their responses.

pub(super) mod agent_session;
pub(super) mod agents;
pub(super) mod approvals;
pub(super) mod attach;
pub(super) mod audit_check;
#[cfg(feature = "bridge")]
pub(super) mod bridge;
pub(super) mod capability;
pub(super) mod capture;
pub(super) mod change;
pub(super) mod command_list;
pub(super) mod completions;
pub(super) mod create;
pub(super) mod daemon;
pub(super) mod demo;
pub(super) mod doctor;
pub(super) mod events;
#[cfg(feature = "fleet")]
pub(super) mod fleet;
pub(super) mod group;
pub(super) mod hosts;
pub(super) mod input;
pub(super) mod label;
pub(super) mod layout;
pub(super) mod list;
pub(super) mod mcp;
pub(super) mod open;
pub(super) mod read;
pub(super) mod record;
pub(super) mod report_agent;
pub(super) mod run;
pub(super) mod search;
pub(super) mod shell_integration;
pub(super) mod snapshot;
pub(super) mod status_line;
pub(super) mod stdio;
pub(super) mod tail;
#[cfg(feature = "top")]
pub(super) mod top;
pub(super) mod wait_for;
pub(super) mod when;
pub(super) mod workspace;

use muxtap_core::duration::parse as duration;
use muxtap_engine::is_number;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use self::{events::join_targets, list::note_unreachable};
use super::{Outcome, caller::Caller, client::Client, lines, output, url};
use crate::api::{Error, HostInfo, ListQuery, PaneInfo, PaneList, Since};

/// Parses where output begins or ends: a time as `--timestamps` prints it becomes seconds since 1970.
fn since(text: &str) -> Result<String, String> {
    match OffsetDateTime::parse(text, &Rfc3339) {
        Ok(at) if at > OffsetDateTime::now_utc() => Err(format!("{text} is in the future")),
        Ok(at) => {
            let milliseconds = u64::try_from(at.unix_timestamp_nanos() / 1_000_000);
            let since = milliseconds.map(Since::Time).map_err(|_| format!("{text} is before 1970"))?;
            Ok(since.to_string())
        }
        // The daemon's error lists the other forms.
        Err(_) => Ok(text.to_owned()),
    }
}

/// Parses `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Returns the query of a list for targets; without targets, for everything.
fn listed(targets: &[String]) -> Result<ListQuery, Error> {
    Ok(ListQuery { targets: join_targets(targets)? })
}

/// Returns the ids of the live panes that match a pattern. Errors: no pane matches; not all hosts that
/// the pattern names can be reached, and a part of the panes is not what it means.
async fn fitting(client: &mut Client, pattern: &str) -> Result<Vec<String>, Error> {
    let (ids, unreachable) = fitting_reachable(client, pattern).await?;
    match unreachable.into_iter().next() {
        Some(host) => Err(Error::unavailable(host.error.unwrap_or(host.name))),
        None => Ok(ids),
    }
}

/// Returns the ids of the live panes that match a pattern, and the hosts that cannot be reached. Error:
/// no pane matches; the hosts that cannot be reached are reported before.
async fn fitting_reachable(client: &mut Client, pattern: &str) -> Result<(Vec<String>, Vec<HostInfo>), Error> {
    let list: PaneList = client.get("/v1/panes", &listed(&[pattern.to_owned()])?).await?;
    let ids: Vec<_> = list.panes.iter().filter(|pane| !pane.dead).map(id_of).collect();
    if ids.is_empty() {
        note_unreachable(&list.unreachable);
        return Err(nothing_fits(pattern));
    }
    Ok((ids, list.unreachable))
}

/// Returns a pane's id in the form that can be used as a target, with its host.
fn id_of(pane: &PaneInfo) -> String {
    pane.host.as_ref().map_or_else(|| pane.id.to_string(), |host| format!("{host}/{}", pane.id))
}

fn nothing_fits(pattern: &str) -> Error {
    Error::not_found(format!("no pane matches `{pattern}`; `muxtap list-panes` shows what is there"))
}

/// Returns the path of one session, window or pane.
fn path_of(kind: &str, target: &str) -> String {
    format!("/v1/{kind}/{}", url::encode(target))
}

/// Returns the path of a user's target. Error: a bare number that could mean more than a session:
/// HTTP takes it as a pane's id, which tmux's own `-t` never does.
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
