//! The owner of a workspace: this process for this device, else another device, through the daemon.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use muxtap_base::{clock, nonce};
use muxtap_devices::{
    hybrid::{Changed, Owner},
    names,
    relay::PERSON_ASKED,
    workspace::{Change, Command, Layout, needs_key},
};
use serde_json::{Value, json};

use super::Context;

use crate::{
    api::{
        DeviceType, DoneAnswer, Error, ErrorCode, PublishRequest, Result, RpcRequest, RpcResponse, WorkspaceAnswer,
        WorkspaceQuery, WorkspaceSource,
    },
    cli::{commands::path_of, output},
};

/// How long a change without a revision is repeated while others change the workspace of another
/// device.
const CONFLICT_TIME: Duration = Duration::from_secs(20);
/// The pause before such a repetition.
const CONFLICT_PAUSE: Duration = Duration::from_millis(20);

/// The owner that a command uses.
pub(super) struct Reached<'a> {
    pub(super) context: &'a Context<'a>,
    /// `None`: this device.
    other: Option<String>,
    /// The revision after this command's last change of another device: most likely the current one.
    last: Cell<Option<u64>>,
}

impl<'a> Context<'a> {
    /// Returns the owner of the workspace that a command selects.
    pub(super) fn owner(&'a self, device: Option<&str>) -> Result<Reached<'a>> {
        if let Some(device) = device {
            names::check_id(device)?;
        }
        let other = device.filter(|device| *device != self.identity.device_id).map(str::to_owned);
        Ok(Reached { context: self, other, last: Cell::default() })
    }

    /// Publishes this device's workspace. If the daemon rejects it, prints a note without an error: the
    /// change was applied.
    pub(super) async fn publish(&self, snapshot: Value) {
        let request =
            PublishRequest { device_label: self.identity.device_label.clone(), device_type: DeviceType::Cli, snapshot };
        let path = format!("{}/workspace", path_of("devices", &self.identity.device_id));
        let published = async { self.caller.client().await?.put::<DoneAnswer>(&path, &request).await };
        match published.await {
            // Another command has already published a later change.
            Err(error) if error.code == ErrorCode::Conflict => {}
            Err(error) => output::note(&format!("the workspace was changed, but not published: {error}")),
            Ok(_) => {}
        }
    }
}

impl Reached<'_> {
    /// Returns the id of the device.
    pub(super) fn device(&self) -> &str {
        self.other.as_deref().unwrap_or(&self.context.identity.device_id)
    }

    /// Reads the workspace.
    pub(super) async fn read(&self, allow_stale: bool) -> Result<WorkspaceAnswer> {
        let now = clock::now_ms();
        let Some(other) = &self.other else {
            let opened = self.context.home.open(self.device(), now)?;
            // Another command may have held the lock until now.
            let now = clock::now_ms();
            let (changed, snapshot) = (opened.changed, opened.snapshot(now));
            drop(opened);
            if changed {
                self.context.publish(snapshot.clone()).await;
            }
            let list = |name: &str| snapshot.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
            let answer = json!({
                "deviceId": self.device(),
                "workspaceRevision": snapshot.get("workspaceRevision"),
                "activeTabId": snapshot.get("activeTabId"),
                "tabs": list("tabs"),
                "panes": list("panes"),
                "source": WorkspaceSource::Live,
                "capturedAt": now,
                "ownerOnline": true,
                "ownerLastSeenAt": now,
            });
            return serde_json::from_value(answer).map_err(|error| Error::internal(error.to_string()));
        };
        if allow_stale {
            // The relay knows better than this process whether the owner responds.
            let path = format!("{}/workspace", path_of("devices", other));
            let query = WorkspaceQuery { allow_stale: true };
            return self.context.caller.client().await?.get(&path, &query).await;
        }
        let said = self.rpc("get-workspace".into(), json!({}), None, None).await?;
        let mut answer = said.result;
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("source".into(), json!(WorkspaceSource::Live));
            fields.insert("ownerOnline".into(), true.into());
            fields.insert("ownerLastSeenAt".into(), now.into());
            fields.entry("capturedAt").or_insert_with(|| now.into());
            fields.insert("deviceId".into(), other.as_str().into());
        }
        serde_json::from_value(answer).map_err(|error| {
            Error::new(ErrorCode::InconsistentState, format!("cannot parse the workspace of {other}: {error}"))
        })
    }

    /// Reads the workspace's layout, which resolves selectors.
    pub(super) async fn layout(&self) -> Result<Layout> {
        let answer = self.read(false).await?;
        let layout = serde_json::to_value(&answer).and_then(serde_json::from_value);
        layout.map_err(|error| {
            let device = self.device();
            Error::new(ErrorCode::InconsistentState, format!("cannot parse the workspace of {device}: {error}"))
        })
    }

    /// Applies a change. Without a revision it applies to the current one, whatever others change
    /// meanwhile. A command that no owner can carry out is rejected here.
    pub(super) async fn change(
        &self,
        command: Command,
        expected_revision: Option<u64>,
        key: Option<String>,
    ) -> Result<Changed> {
        command.check()?;
        let now = clock::now_ms();
        let Some(_) = &self.other else {
            let id = &self.context.identity.device_id;
            let mut opened = self.context.home.open(id, now)?;
            // Another command may have held the lock until now.
            let now = clock::now_ms();
            let change = Change { command, expected_revision, idempotency_key: key };
            let applied = opened.apply(&change, id, now);
            let (changed, snapshot) = (opened.changed, opened.snapshot(now));
            // The next command does not need to wait for the daemon.
            drop(opened);
            if changed {
                self.context.publish(snapshot).await;
            }
            let applied = applied?;
            let value = |entity: serde_json::Result<Value>| entity.ok().filter(|value| !value.is_null());
            return Ok(Changed {
                applied_revision: applied.applied_revision,
                tab: value(serde_json::to_value(applied.tab)),
                pane: value(serde_json::to_value(applied.pane)),
                replayed: applied.replayed,
            });
        };
        // Many commands at once would each meet the conflicts of all others.
        let _turn = if expected_revision.is_none() { self.context.home.take_turn(self.device()) } else { None };
        let has_places = command.has_places();
        let mut command = command;
        let mut expected = match expected_revision.or(self.last.get().filter(|_| !has_places)) {
            Some(revision) => revision,
            None if has_places => {
                let layout = self.layout().await?;
                // If that fails, the owner reports it.
                command = command.with_ids(&layout).unwrap_or(command);
                layout.workspace_revision
            }
            None => self.read(false).await?.workspace_revision,
        };
        // At another revision an index or a name can mean another tab.
        let is_fixed = expected_revision.is_none() && !command.has_places();
        let (name, args) = command.to_rpc();
        let until = Instant::now() + CONFLICT_TIME;
        let mut said = loop {
            let said = self.rpc(name.clone(), args.clone(), Some(expected), key.clone()).await;
            match said {
                // Another device was faster. Each conflict means that one of its changes was applied.
                Err(error)
                    if is_fixed
                        && error.code == ErrorCode::RevisionConflict
                        && !was_asked(&error)
                        && Instant::now() < until =>
                {
                    expected = current_revision(&error).ok_or(error)?;
                    tokio::time::sleep(clock::jittered(CONFLICT_PAUSE)).await;
                }
                said => break said?,
            }
        };
        self.last.set(said.applied_revision);
        let mut entity = |name: &str| said.result.get_mut(name).map(Value::take).filter(Value::is_object);
        let (tab, pane) = (entity("tab"), entity("pane"));
        let replayed = said.result.get("replayed").and_then(Value::as_bool).unwrap_or_default();
        Ok(Changed { applied_revision: said.applied_revision.unwrap_or_default(), tab, pane, replayed })
    }

    async fn rpc(
        &self,
        command: String,
        args: Value,
        expected_revision: Option<u64>,
        idempotency_key: Option<String>,
    ) -> Result<RpcResponse> {
        let mut request = RpcRequest::default();
        request.caller_device_id.clone_from(&self.context.identity.device_id);
        self.device().clone_into(&mut request.target_device_id);
        request.request_id = format!("req_{}", nonce::hex64());
        (request.command, request.args) = (command, args);
        (request.expected_revision, request.idempotency_key) = (expected_revision, idempotency_key);
        let path = format!("{}/rpc", path_of("devices", self.device()));
        self.context.caller.client().await?.post(&path, &request).await
    }
}

impl Owner for Reached<'_> {
    async fn ask(&mut self, command: Command, expected_revision: Option<u64>, key: Option<String>) -> Result<Changed> {
        self.change(command, expected_revision, key).await
    }
}

/// Returns whether the owner asked its person before it refused. The same question is not repeated.
fn was_asked(error: &Error) -> bool {
    error.details.as_ref().and_then(|details| details.get(PERSON_ASKED)).is_some_and(|asked| asked == true)
}

/// Returns the current revision that a conflict names.
fn current_revision(conflict: &Error) -> Option<u64> {
    conflict.details.as_ref()?.get("currentRevision")?.as_u64()
}

/// Returns the key of a command that requires one.
pub(super) fn key_of(command: &str, given: Option<String>) -> Option<String> {
    given.or_else(|| needs_key(command).then(|| format!("key_{}", nonce::hex64())))
}
