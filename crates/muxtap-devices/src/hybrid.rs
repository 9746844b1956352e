//! Commands that need a workspace's owner and the engine.
//!
//! A pane is reserved, its terminal is made, and the pane receives the terminal. A failed step is
//! undone if possible; otherwise the error names what is left.

use std::future::Future;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use muxtap_api::{Error, ErrorCode, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::workspace::{Command, ContentRef, KEY_BYTES, finalize_key};

/// An owner's response to a change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changed {
    /// The revision after the change.
    pub applied_revision: u64,
    /// The tab that was made or changed.
    pub tab: Option<Value>,
    /// The pane that was made or changed.
    pub pane: Option<Value>,
    /// Whether this is the response to an earlier request with the same key.
    pub replayed: bool,
}

/// The owner of a workspace, local or remote.
pub trait Owner {
    /// Requests a change to the workspace at this revision; without one, at its current revision,
    /// whatever others change meanwhile.
    fn ask(
        &mut self,
        command: Command,
        expected_revision: Option<u64>,
        key: Option<String>,
    ) -> impl Future<Output = Result<Changed>>;
}

/// A factory of terminals.
pub trait Terminals {
    /// Makes a terminal, and returns its id.
    fn make(&mut self) -> impl Future<Output = std::result::Result<String, NotMade>>;
}

/// The failure to make a terminal.
#[derive(Clone, Debug, PartialEq)]
pub enum NotMade {
    /// No terminal was made.
    Refused(Error),
    /// Whether a terminal was made is unknown.
    Unknown {
        /// The error that came instead of a response.
        cause: Error,
        /// The tmux session that would contain the terminal.
        session: String,
        /// The terminal's id, where known.
        terminal: Option<String>,
    },
}

/// A pane with a new terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// The owner's last response.
    pub changed: Changed,
    /// The terminal's id.
    pub terminal: String,
}

/// Reserves a pane with this command, makes its terminal, and puts the terminal into the pane.
///
/// Errors: the owner's if nothing happened; the engine's if the pane was released again;
/// `INCONSISTENT_STATE` if something is left, or may be. The details name it, with the commands
/// that attach or end it.
pub async fn make_terminal(
    owner: &mut impl Owner,
    terminals: &mut impl Terminals,
    reserve: Command,
    expected_revision: Option<u64>,
    key: &str,
) -> Result<Made> {
    let first = reserve_key(key);
    let reserved = owner.ask(reserve, expected_revision, Some(first.clone())).await?;
    let pane = id_of(reserved.pane.as_ref());
    let pane = pane.ok_or_else(|| inconsistent("the owner reserved no pane", &json!({})))?;
    let selector = format!("pane:{pane}");
    // The pane is the caller's alone from here on: other changes to the workspace are no conflict.
    let terminal = match terminals.make().await {
        Ok(terminal) => terminal,
        Err(not_made) => {
            let release = Command::Release { pane: selector };
            let released = owner.ask(release, None, Some(derived(key, "release"))).await;
            return Err(match (not_made, released) {
                (NotMade::Refused(error), Ok(_)) => error.at_stage("engine"),
                (NotMade::Refused(error), Err(second)) => inconsistent(
                    &format!("no terminal was created ({error}), and the pane {pane} is still reserved ({second})"),
                    &json!({ "paneId": pane, "cause": error, "release": release_of(&pane) }),
                ),
                (NotMade::Unknown { cause, session, terminal }, released) => {
                    perhaps(&cause, &session, terminal.as_deref(), released.is_err().then_some(&pane))
                }
            });
        }
    };
    let finalize = Command::Finalize { pane: selector, content_ref: ContentRef::TerminalId(terminal.clone()) };
    match owner.ask(finalize, None, Some(finalize_key(&first))).await {
        Ok(changed) => Ok(Made { changed, terminal }),
        Err(error) => Err(left(&terminal, &pane, &error)),
    }
}

/// Returns the key of the reservation for a request with this key: the key that finalizes it is longer.
pub fn reserve_key(key: &str) -> String {
    if finalize_key(key).len() > KEY_BYTES { derived(key, "reserve") } else { key.to_owned() }
}

/// Returns the error for a terminal that lives without a pane.
fn left(terminal: &str, pane: &str, cause: &Error) -> Error {
    inconsistent(
        &format!("the terminal {terminal} was created, but not assigned to the pane {pane}: {cause}"),
        &json!({
            "terminalId": terminal,
            "paneId": pane,
            "cause": cause,
            "attach": format!("attach-terminal --target terminal:{terminal} --to pane:ID"),
            "kill": format!("kill-terminal --target terminal:{terminal}"),
        }),
    )
}

/// Returns the error for a terminal that may live, without a pane.
fn perhaps(cause: &Error, session: &str, terminal: Option<&str>, reserved: Option<&String>) -> Error {
    let id = terminal.unwrap_or("ID");
    let mut details = json!({
        "session": session,
        "terminalId": terminal,
        "cause": cause,
        "look": "list-terminals",
        "attach": format!("attach-terminal --target terminal:{id} --to pane:ID"),
        "kill": format!("kill-terminal --target terminal:{id}"),
    });
    if let (Some(pane), Some(details)) = (reserved, details.as_object_mut()) {
        details.insert("paneId".into(), pane.as_str().into());
        details.insert("release".into(), release_of(pane).into());
    }
    let which = terminal.map(|terminal| format!(" {terminal}")).unwrap_or_default();
    inconsistent(
        &format!(
            "the terminal{which} may have been created ({cause}): if so, it is in the tmux session {session} and in no \
             pane; list-terminals shows it"
        ),
        &details,
    )
}

fn release_of(pane: &str) -> String {
    format!("kill-pane --target pane:{pane}; the owner releases it after 30 s")
}

/// Returns the key of a later step. Its length does not depend on the first step's key.
pub fn derived(key: &str, step: &str) -> String {
    format!("{step}_{}", URL_SAFE_NO_PAD.encode(Sha256::digest(key.as_bytes())))
}

/// Returns an entity's id.
pub fn id_of(entity: Option<&Value>) -> Option<String> {
    entity?.get("id")?.as_str().map(str::to_owned)
}

fn inconsistent(message: &str, details: &Value) -> Error {
    Error::new(ErrorCode::InconsistentState, message).with_details(details.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Change, Status, Workspace};

    const NOW: u64 = 1_700_000_000_000;

    /// An owner that fails from a given step on, and whose person changes something between two
    /// steps.
    struct Injured {
        workspace: Workspace,
        fails: Option<&'static str>,
        busy: bool,
        asked: Vec<String>,
    }

    impl Owner for Injured {
        async fn ask(&mut self, command: Command, expected: Option<u64>, key: Option<String>) -> Result<Changed> {
            let name = command.to_rpc().0;
            self.asked.push(name.clone());
            if self.fails == Some(name.as_str()) {
                return Err(Error::new(ErrorCode::OwnerTimeout, "gone").at_stage("owner"));
            }
            let expected_revision = expected.or(Some(self.workspace.revision()));
            let applied =
                self.workspace.apply(&Change { command, expected_revision, idempotency_key: key }, "c", NOW)?;
            if std::mem::take(&mut self.busy) {
                let select = Command::SelectTab { target: "tab-index:0".into() };
                let expected_revision = Some(self.workspace.revision());
                let change = Change { command: select, expected_revision, idempotency_key: None };
                self.workspace.apply(&change, "person", NOW)?;
            }
            Ok(Changed {
                applied_revision: applied.applied_revision,
                tab: applied.tab.map(|tab| serde_json::to_value(tab).unwrap()),
                pane: applied.pane.map(|pane| serde_json::to_value(pane).unwrap()),
                replayed: applied.replayed,
            })
        }
    }

    struct Engine(std::result::Result<String, NotMade>, usize);

    impl Terminals for Engine {
        async fn make(&mut self) -> std::result::Result<String, NotMade> {
            self.1 += 1;
            self.0.clone()
        }
    }

    fn owner(fails: Option<&'static str>) -> Injured {
        let mut workspace = Workspace::new("d");
        let tab = Command::NewTab { title: None, browser: None, editor: None };
        let change = Change { command: tab, expected_revision: Some(1), idempotency_key: Some("first".into()) };
        workspace.apply(&change, "c", NOW).unwrap();
        Injured { workspace, fails, busy: false, asked: Vec::new() }
    }

    fn split() -> Command {
        let target = Some("pane:p2".into());
        Command::Reserve { target, tab: None, direction: None, title: None, shell: None, cwd: None }
    }

    async fn made(owner: &mut Injured, engine: &mut Engine) -> Result<Made> {
        make_terminal(owner, engine, split(), Some(2), "k").await
    }

    /// An owner accepts keys of 128 bytes; the keys of the later steps must not be longer.
    #[tokio::test]
    async fn the_longest_key_is_as_good_as_any() {
        let key = "k".repeat(128);
        let (mut owner, mut engine) = (owner(None), Engine(Ok("%7".into()), 0));
        let made = make_terminal(&mut owner, &mut engine, split(), Some(2), &key).await.unwrap();
        assert_eq!(made.terminal, "%7");
        engine.0 = Err(NotMade::Refused(Error::unavailable("no tmux")));
        let other = format!("{}x", "k".repeat(127));
        let error = make_terminal(&mut owner, &mut engine, split(), None, &other).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::TmuxUnavailable, "{error}");
        assert_eq!(owner.workspace.layout().panes.len(), 2);
    }

    #[tokio::test]
    async fn a_creation_with_unknown_outcome_names_its_session_and_releases_the_pane() {
        let cause = Error::unavailable("tmux does not respond").with_details(json!({"sent": true}));
        for (fails, terminal) in [(None, None), (None, Some("%7")), (Some("release"), None)] {
            let not_made = NotMade::Unknown {
                cause: cause.clone(),
                session: "device-d".into(),
                terminal: terminal.map(str::to_owned),
            };
            let (mut owner, mut engine) = (owner(fails), Engine(Err(not_made), 0));
            let error = made(&mut owner, &mut engine).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::InconsistentState);
            assert!(error.message.contains("device-d"), "{error}");
            let details = error.details.unwrap();
            assert_eq!((&details["session"], &details["terminalId"]), (&json!("device-d"), &json!(terminal)));
            assert_eq!(details["cause"]["details"]["sent"], true);
            let kill = format!("kill-terminal --target terminal:{}", terminal.unwrap_or("ID"));
            assert_eq!(details["kill"], kill.as_str());
            assert_eq!(details.get("paneId"), fails.map(|_| json!("p3")).as_ref());
            assert_eq!(owner.workspace.layout().panes.len(), if fails.is_some() { 2 } else { 1 });
            assert_eq!(engine.1, 1, "it is not asked again");
        }
    }

    #[tokio::test]
    async fn a_pane_is_reserved_then_the_terminal_made_then_it_is_given() {
        let (mut owner, mut engine) = (owner(None), Engine(Ok("%7".into()), 0));
        owner.busy = true;
        let made = made(&mut owner, &mut engine).await.unwrap();
        assert_eq!(
            (made.terminal.as_str(), &made.changed.pane.unwrap()["contentRef"]),
            ("%7", &json!({"terminalId": "%7"}))
        );
        // The owner's person changed something meanwhile, which is no conflict.
        assert_eq!(owner.asked, ["reserve", "finalize"]);
        assert_eq!(owner.workspace.layout().panes.len(), 2);
    }

    #[tokio::test]
    async fn where_the_owner_does_not_reserve_nothing_happens() {
        let (mut owner, mut engine) = (owner(Some("reserve")), Engine(Ok("%7".into()), 0));
        let before = owner.workspace.clone();
        assert_eq!(made(&mut owner, &mut engine).await.unwrap_err().code, ErrorCode::OwnerTimeout);
        assert_eq!((owner.workspace, engine.1), (before, 0));
    }

    #[tokio::test]
    async fn where_the_engine_refuses_the_pane_is_released() {
        let (mut owner, mut engine) = (owner(None), Engine(Err(NotMade::Refused(Error::unavailable("no tmux"))), 0));
        owner.busy = true;
        let error = made(&mut owner, &mut engine).await.unwrap_err();
        assert_eq!((error.code, error.stage.as_deref()), (ErrorCode::TmuxUnavailable, Some("engine")));
        assert_eq!(owner.workspace.layout().panes.len(), 1);
        assert_eq!(owner.asked, ["reserve", "release"]);
    }

    #[tokio::test]
    async fn where_it_cannot_be_released_the_pane_is_named_and_goes_by_itself() {
        let (mut owner, mut engine) =
            (owner(Some("release")), Engine(Err(NotMade::Refused(Error::unavailable("no tmux"))), 0));
        let error = made(&mut owner, &mut engine).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InconsistentState);
        let details = error.details.unwrap();
        assert_eq!((&details["paneId"], &details["cause"]["code"]), (&json!("p3"), &json!("TMUX_UNAVAILABLE")));
        assert_eq!(owner.workspace.layout().pane("p3").unwrap().status, Status::Pending);
        assert_eq!(owner.workspace.release_overdue(NOW + 30_000), 1);
    }

    #[tokio::test]
    async fn if_the_pane_cannot_be_finalized_the_error_names_the_terminal_and_the_fix() {
        let (mut owner, mut engine) = (owner(Some("finalize")), Engine(Ok("%7".into()), 0));
        let error = made(&mut owner, &mut engine).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InconsistentState);
        let details = error.details.unwrap();
        assert_eq!((&details["terminalId"], &details["paneId"]), (&json!("%7"), &json!("p3")));
        assert_eq!(details["kill"], "kill-terminal --target terminal:%7");
        assert!(details["attach"].as_str().unwrap().starts_with("attach-terminal --target terminal:%7 --to pane:"));
        assert!(!owner.asked.contains(&"release".to_owned()));
    }
}
