//! A workspace: a device's tabs, each a tree of panes.
//!
//! Pure values, no I/O: the time is a parameter, and every change is made whole or not at all. One
//! revision counts the changes, from 1 on. A command that creates something carries a key: a
//! repeated key gets the first response.

mod answers;
mod change;
mod command;
mod layout;
mod model;
mod selector;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::answers::Answers;
pub use self::{
    answers::{KEY_BYTES, check_key},
    command::{Command, GET_WORKSPACE, RpcRead, needs_key},
    layout::Layout,
    model::{ContentRef, Direction, Pane, PaneKind, Reserver, Status, Tab},
    selector::{Selector, TerminalId, TerminalServer},
};
use muxtap_api::{Error, ErrorCode, Result};

/// The maximum number of tabs in a workspace.
pub const TABS: usize = 256;
/// The maximum number of panes in a workspace.
pub const PANES: usize = 1024;
/// The maximum number of splits above a pane.
pub const DEPTH: usize = 32;
/// The end of the key with which a reserved pane is finalized.
const FINALIZE: &str = ".finalize";
/// How long a reserved pane waits for its content.
pub const PENDING_TIME: std::time::Duration = std::time::Duration::from_secs(30);

/// A change to a workspace, as its owner receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The command.
    pub command: Command,
    /// The revision that the caller saw.
    pub expected_revision: Option<u64>,
    /// The key under which the response is remembered; commands that create something need it.
    pub idempotency_key: Option<String>,
}

/// The response to a change.
// Reasons: the field is called so on the wire.
#[allow(clippy::struct_field_names)]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The revision after the change.
    pub applied_revision: u64,
    /// The tab that was made or changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tab: Option<Tab>,
    /// The pane that was made or changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pane: Option<Pane>,
    /// The key under which this response is remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Whether this is the response to an earlier request with this key, and nothing was changed
    /// now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

/// A device's workspace, as its state file contains it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// The version of the format.
    version: u32,
    #[serde(flatten)]
    layout: Layout,
    #[serde(default)]
    answers: Answers,
}

/// The version of the format that is written.
const VERSION: u32 = 1;

impl Workspace {
    /// Creates an empty workspace, at revision 1.
    pub fn new(device_id: &str) -> Self {
        Self { version: VERSION, layout: Layout::new(device_id), answers: Answers::default() }
    }

    /// Parses a state. `bool`: it was in an older format, and the caller must write it again.
    ///
    /// Tabs and panes without an owner get this device as their owner, and revision 1. Error: in
    /// words that follow the file's name.
    pub fn read(text: &str, device_id: &str, now_ms: u64) -> std::result::Result<(Self, bool), String> {
        let mut state: Value =
            serde_json::from_str(text).map_err(|error| format!("is not a valid workspace: {error}"))?;
        let migrated = match state.get("version") {
            Some(version) if *version == json!(VERSION) => false,
            Some(version) => return Err(format!("has the version {version}, which this muxtap does not support")),
            None => migrate(&mut state, device_id, now_ms)?,
        };
        let workspace: Self =
            serde_json::from_value(state).map_err(|error| format!("is not a valid workspace: {error}"))?;
        workspace.layout.check().map_err(|why| format!("is not a consistent workspace: {why}"))?;
        if workspace.layout.device_id != device_id {
            return Err(format!("belongs to the device {}; this one is {device_id}", workspace.layout.device_id));
        }
        Ok((workspace, migrated))
    }

    /// Returns the layout: tabs and panes.
    #[cfg(test)]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the revision.
    pub fn revision(&self) -> u64 {
        self.layout.workspace_revision
    }

    /// Makes a change for a caller. An error changes nothing, not even the revision.
    pub fn apply(&mut self, change: &Change, caller: &str, now_ms: u64) -> Result<Applied> {
        let key = change.idempotency_key.as_deref();
        if let Some(key) = key {
            answers::check_key(key)?;
            if let Some(first) = self.answers.get(caller, key, now_ms) {
                return Ok(Applied { replayed: true, ..first.clone() });
            }
        } else if change.command.needs_key() {
            return Err(Error::invalid("idempotencyKey: missing; this command requires one"));
        }
        let expected = change.expected_revision.ok_or_else(|| {
            Error::invalid("expectedRevision: missing; expected the revision that the change is based on")
        })?;
        let current = self.revision();
        if expected != current {
            let message = format!("the workspace is at revision {current}, not {expected}; read it again");
            return Err(
                Error::new(ErrorCode::RevisionConflict, message).with_details(json!({ "currentRevision": current }))
            );
        }
        self.check_reserver(&change.command, caller, key)?;
        let mut next = self.layout.clone();
        next.workspace_revision += 1;
        let made = next.change(&change.command, now_ms)?;
        if let (Command::Reserve { .. }, Some(key), Some(pane)) = (&change.command, key, &made.pane) {
            next.pane_mut(pane)?.reserver =
                Some(Reserver { caller: caller.to_owned(), finalize_key: hash(&finalize_key(key)) });
        }
        // A bug must not reach the file.
        next.check()
            .map_err(|why| Error::internal(format!("the change would make the workspace inconsistent: {why}")))?;
        let applied = Applied {
            applied_revision: next.workspace_revision,
            tab: made.tab.and_then(|id| next.tab(&id).cloned()),
            pane: made.pane.and_then(|id| next.pane(&id).cloned()).map(|pane| Pane { reserver: None, ..pane }),
            idempotency_key: key.map(str::to_owned),
            replayed: false,
        };
        self.layout = next;
        if let Some(key) = key {
            self.answers.remember(caller, key, now_ms, applied.clone());
        }
        Ok(applied)
    }

    /// Checks that a reserved pane is filled by the command that reserved it, and released by its caller
    /// or by this device. A pane whose reserver is unknown is released by this device alone.
    fn check_reserver(&self, command: &Command, caller: &str, key: Option<&str>) -> Result<()> {
        if let (Command::Reserve { .. }, Some(key)) = (command, key)
            && finalize_key(key).len() > KEY_BYTES
        {
            let longest = KEY_BYTES - FINALIZE.len();
            return Err(Error::invalid(format!("idempotencyKey: expected at most {longest} bytes for reserve")));
        }
        let (Command::Finalize { pane, .. } | Command::Release { pane }) = command else { return Ok(()) };
        let Ok(reserved) = self.layout.find_pane(pane, None) else { return Ok(()) };
        let reserver = reserved.reserver.as_ref().filter(|reserver| reserver.caller == caller);
        let may = match command {
            Command::Finalize { .. } => {
                reserver.zip(key).is_some_and(|(reserver, key)| reserver.finalize_key == hash(key))
            }
            _ => reserver.is_some() || caller.is_empty(),
        };
        if may || reserved.status != Status::Pending {
            return Ok(());
        }
        Err(Error::new(ErrorCode::Conflict, format!("{pane} is reserved by another command")))
    }

    /// Releases reserved panes whose timeout has passed, one change each. Returns their number.
    pub fn release_overdue(&mut self, now_ms: u64) -> usize {
        let overdue: Vec<String> = self.layout.overdue(now_ms).map(|pane| pane.id.clone()).collect();
        let mut released = 0;
        for id in overdue {
            let change = Change {
                command: Command::Release { pane: format!("pane:{id}") },
                expected_revision: Some(self.revision()),
                idempotency_key: None,
            };
            released += usize::from(self.apply(&change, "", now_ms).is_ok());
        }
        released
    }

    /// Returns when the next reserved pane's timeout passes, in milliseconds since 1970.
    pub fn next_release(&self) -> Option<u64> {
        self.layout.next_release()
    }

    /// Returns the snapshot to publish.
    pub fn snapshot(&self, now_ms: u64) -> Value {
        let mut snapshot = serde_json::to_value(&self.layout).unwrap_or_default();
        if let Some(snapshot) = snapshot.as_object_mut() {
            snapshot.remove("nextId");
            let panes = snapshot.get_mut("panes").and_then(Value::as_array_mut).into_iter().flatten();
            for pane in panes.filter_map(Value::as_object_mut) {
                pane.remove("reserver");
            }
            snapshot.insert("capturedAt".into(), now_ms.into());
        }
        snapshot
    }
}

/// Returns the key with which the content of a reserved pane is given: only the command that reserved
/// it and the owner know the reservation's key.
pub fn finalize_key(reserve: &str) -> String {
    format!("{reserve}{FINALIZE}")
}

/// Returns the SHA-256 of a key, in hexadecimal digits.
fn hash(key: &str) -> String {
    Sha256::digest(key).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Migrates a state from before this version. Always returns `true`: the state has changed.
fn migrate(state: &mut Value, device_id: &str, now_ms: u64) -> std::result::Result<bool, String> {
    let Some(state) = state.as_object_mut() else {
        return Err("is not a valid workspace: expected an object".into());
    };
    state.insert("version".into(), VERSION.into());
    state.insert("deviceId".into(), device_id.into());
    state.insert("workspaceRevision".into(), 1.into());
    state.remove("answers");
    let mut most = 0;
    for list in ["tabs", "panes"] {
        let entities = state.entry(list).or_insert_with(|| json!([]));
        let Some(entities) = entities.as_array_mut() else {
            return Err(format!("is not a valid workspace: {list}: expected a list"));
        };
        for entity in entities {
            let Some(entity) = entity.as_object_mut() else {
                return Err(format!("is not a valid workspace: {list}: expected only objects"));
            };
            let owner = entity.entry("ownerDeviceId").or_insert_with(|| device_id.into());
            if owner.as_str().is_none_or(str::is_empty) {
                *owner = device_id.into();
            }
            entity.insert("layoutRevision".into(), 1.into());
            for time in ["createdAt", "updatedAt"] {
                if list == "tabs" || time == "updatedAt" {
                    entity.entry(time).or_insert_with(|| now_ms.into());
                }
            }
            entity.entry("status").or_insert_with(|| "ready".into());
            let number = entity.get("id").and_then(Value::as_str).and_then(|id| id.get(1..)?.parse::<u64>().ok());
            most = most.max(number.unwrap_or_default());
        }
    }
    state.insert("nextId".into(), (most + 1).into());
    Ok(true)
}
