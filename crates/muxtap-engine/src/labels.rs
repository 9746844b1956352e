//! Changing the labels of panes and sessions.

use std::collections::BTreeMap;

use muxtap_api::{Error, ErrorCode, LABELS_OPTION, Labels, Result, SESSION_LABELS_OPTION, check_label_changes};
use muxtap_core::protocol::{
    command::Command,
    ids::{PaneId, SessionId},
    octal,
};
use muxtap_tmux::{LinkState, Request, SessionRow};

use super::{Server, query::targets::Target, spawn::create::tmux_error};

/// The effect of removing a label that a pane only inherits from its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// The removal fails with `CONFLICT`.
    Refused,
    /// The removal does nothing.
    Left,
}

impl Server {
    /// Changes a pane's own labels, together with `others`: commands that are sent if the labels are valid,
    /// in one command line with them. Callers take turns: each reads what the one before has written.
    pub(crate) async fn label(
        &self,
        id: PaneId,
        changes: &BTreeMap<String, String>,
        removed: Inherited,
        mut others: Vec<Command>,
    ) -> Result<()> {
        check_label_changes(changes)?;
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
        if removed == Inherited::Refused
            && let Some(key) = inherited(changes, before, &row.labels)
        {
            let session = topology.label_giver(id).map_or_else(String::new, |session| format!(" {session}"));
            let why = format!(
                "labels: {key}: not a label of the pane {id} but of its session{session}; remove it there, or set \
                 another value"
            );
            return Err(Error::new(ErrorCode::Conflict, why));
        }
        // A window's labels stay the window's, and a person's text stays unchanged.
        let is_change = labels != *before;
        if is_change {
            others.push(set(Some("-p"), &id.to_string(), LABELS_OPTION, &labels));
        }
        if !others.is_empty() {
            self.order(pane.as_deref(), others).await?;
        }
        if !is_change || link.fresh().await?.pane(id).ok_or_else(gone)?.own_labels == labels {
            return Ok(());
        }
        let levels = "the window, the session or the server";
        Err(prevailed(&format!("pane {id}"), LABELS_OPTION, levels))
    }

    /// Changes a session's labels, together with other commands and in turn, as for panes.
    pub(crate) async fn label_session(
        &self,
        id: SessionId,
        changes: &BTreeMap<String, String>,
        mut others: Vec<Command>,
    ) -> Result<()> {
        check_label_changes(changes)?;
        let _turn = self.host.label_turn().acquire().await;
        let before = self.own_labels(id).await?;
        let labels = before.with(changes)?;
        if labels != before {
            others.push(set(None, &id.to_string(), SESSION_LABELS_OPTION, &labels));
        }
        if !others.is_empty() {
            self.order(None, others).await?;
        }
        let topology = self.host.server().fresh().await?;
        let listed = &topology.session(id).ok_or_else(|| Error::not_found(format!("no session {id}")))?.labels;
        let is_listed = |(key, value): (&String, &String)| listed.get(key).unwrap_or_default() == value;
        if changes.iter().all(is_listed) {
            return Ok(());
        }
        Err(prevailed(&format!("session {id}"), SESSION_LABELS_OPTION, "a pane, a window or the server"))
    }

    /// Returns the labels that a session itself sets. A list also shows those of its pane, of its window
    /// or of the server, which are not to be written into the session.
    async fn own_labels(&self, id: SessionId) -> Result<Labels> {
        let show = Command::new("show-options").flag("-q").flag("-v").opt("-t", id.to_string());
        let show = show.arg(SESSION_LABELS_OPTION);
        let answer = self.host.server().read(None, || Request::Framed(vec![show.clone()])).await?;
        let bodies = answer.map_err(|message| tmux_error(&message))?;
        let mut text = bodies.first().map(|body| body.to_vec()).unwrap_or_default();
        if let LinkState::Connected(identity) = self.host.server().state()
            && identity.version.lists_are_octal_encoded()
        {
            let length = octal::decode_in_place(&mut text);
            text.truncate(length);
        }
        Ok(Labels::parse(String::from_utf8_lossy(&text).trim_end_matches('\n')))
    }

    /// Finds a target's session. For a pane: the session from which it inherits labels.
    pub(crate) async fn labeled_session(&self, target: &str) -> Result<SessionRow> {
        if !matches!(target.parse()?, Target::Pane(_) | Target::Labels(_)) {
            return self.session(target).await;
        }
        let pane = self.locate_pane(target).await?;
        let topology = self.host.server().fresh().await?;
        let session = topology.label_giver(pane).and_then(|id| topology.session(id));
        session.cloned().ok_or_else(|| Error::not_found(format!("no session has the pane {pane}")))
    }
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
