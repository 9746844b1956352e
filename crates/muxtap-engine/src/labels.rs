//! Changing the labels of panes and sessions.

use std::collections::BTreeMap;

use muxtap_api::{Error, ErrorCode, LABELS_OPTION, Labels, Result, SESSION_LABELS_OPTION};
use muxtap_core::protocol::{
    command::Command,
    ids::{PaneId, SessionId},
};

use super::Server;

impl Server {
    /// Changes a pane's own labels. Callers take turns: each reads what the one before has written.
    pub(crate) async fn label(&self, id: PaneId, changes: &BTreeMap<String, String>) -> Result<()> {
        check_any(changes)?;
        let host = &self.host;
        // The semaphore is never closed.
        let _turn = host.label_turn().acquire().await;
        let gone = || Error::not_found(format!("no pane {id}"));
        // A handle's pane, or the one with this id: the next server has panes with the same ids.
        let pane = self.bound_pane(&id.to_string()).cloned().or_else(|| host.live_pane(id));
        let link = pane.as_deref().map_or_else(|| host.server().clone(), |pane| host.server_of(pane));
        let topology = link.fresh().await?;
        let row = topology.pane(id).ok_or_else(gone)?;
        let before = &row.own_labels;
        let labels = before.with(changes)?;
        if let Some(key) = inherited(changes, before, &row.labels) {
            let why = format!(
                "labels: {key}: not a label of the pane {id} but of its session; remove it there, or set another value"
            );
            return Err(Error::new(ErrorCode::Conflict, why));
        }
        if labels == *before {
            // What is its window's stays the window's, and a person's text stays as it is.
            return Ok(());
        }
        self.order(pane.as_deref(), [set(Some("-p"), &id.to_string(), LABELS_OPTION, &labels)]).await?;
        if link.fresh().await?.pane(id).ok_or_else(gone)?.own_labels == labels {
            return Ok(());
        }
        let levels = "the window, the session or the server";
        Err(prevailed(&format!("pane {id}"), LABELS_OPTION, levels))
    }

    /// Changes a session's labels, in turn as for panes.
    pub(crate) async fn label_session(&self, id: SessionId, changes: &BTreeMap<String, String>) -> Result<()> {
        check_any(changes)?;
        let _turn = self.host.label_turn().acquire().await;
        let gone = || Error::not_found(format!("no session {id}"));
        let link = self.host.server();
        let before = link.fresh().await?.session(id).ok_or_else(gone)?.labels.clone();
        let labels = before.with(changes)?;
        if labels == before {
            return Ok(());
        }
        self.order(None, [set(None, &id.to_string(), SESSION_LABELS_OPTION, &labels)]).await?;
        if link.fresh().await?.session(id).ok_or_else(gone)?.labels == labels {
            return Ok(());
        }
        Err(prevailed(&format!("session {id}"), SESSION_LABELS_OPTION, "a pane, a window or the server"))
    }
}

/// Checks that there is a change. Error: `INVALID_ARGUMENT`.
fn check_any(changes: &BTreeMap<String, String>) -> Result<()> {
    if changes.is_empty() {
        return Err(Error::invalid("labels: empty; expected at least one key"));
    }
    Ok(())
}

/// Returns a key whose removal would change nothing, since the pane has the label from its session alone.
fn inherited<'a>(changes: &'a BTreeMap<String, String>, own: &Labels, all: &Labels) -> Option<&'a str> {
    let removed = changes.iter().filter(|(_, value)| value.is_empty()).map(|(key, _)| key.as_str());
    removed.into_iter().find(|key| own.get(key).is_none() && all.get(key).is_some())
}

/// Returns the command that sets an option to these labels, or unsets it without any.
fn set(level: Option<&'static str>, target: &str, option: &str, labels: &Labels) -> Command {
    let set = Command::new("set-option");
    let set = level.into_iter().chain(labels.is_empty().then_some("-u")).fold(set, Command::flag);
    let set = set.opt("-t", target).end_of_flags().arg(option);
    if labels.is_empty() { set } else { set.arg(labels.to_string()) }
}

fn prevailed(what: &str, option: &str, levels: &str) -> Error {
    Error::new(
        ErrorCode::Conflict,
        format!(
            "labels: {what} has other labels than those that were set; another program changed {option}, or it is \
             also set for {levels}"
        ),
    )
}
