//! Snapshots that devices publish of their workspaces, and reading them.

use muxtap_api::{DeviceType, Error, ErrorCode, RemoteControl, Result, RpcRequest, WorkspaceAnswer, WorkspaceSource};
use muxtap_base::{clock, nonce};
use serde_json::Value;

use super::{Caller, Device, Relay, presence::Connects, unknown};

use crate::{
    cache::{Head, SNAPSHOT_BYTES, SNAPSHOTS},
    names,
    workspace::GET_WORKSPACE,
};

/// A device that publishes without a connection.
#[derive(Clone, Debug)]
pub struct Publisher {
    /// The device's label.
    pub label: String,
    /// The device's type.
    pub kind: DeviceType,
}

impl Relay {
    /// Stores a device's snapshot of `bytes` bytes. `publisher`: the device has no connection.
    ///
    /// Errors: `UNAUTHORIZED` if the device belongs to another principal; `READ_ONLY`;
    /// `INVALID_ARGUMENT` if the snapshot is malformed, or one of its entities lacks
    /// `ownerDeviceId`; `RESOURCE_LIMIT`.
    pub async fn publish(
        &self,
        caller: &Caller,
        device: &str,
        publisher: Option<Publisher>,
        mut snapshot: Value,
        bytes: usize,
    ) -> Result<()> {
        if caller.read_only {
            return Err(Error::new(ErrorCode::ReadOnly, "this daemon is read-only: it stores no snapshots"));
        }
        if bytes > SNAPSHOT_BYTES {
            return Err(Error::new(
                ErrorCode::ResourceLimit,
                format!("snapshot too large: {bytes} bytes; at most {SNAPSHOT_BYTES}"),
            ));
        }
        if caller.device.as_ref().is_some_and(|bound| bound != device) {
            let message = format!("this caller is not authorized for the device {device}");
            return Err(Error::new(ErrorCode::Unauthorized, message));
        }
        let (revision, captured) = check(&snapshot, device)?;
        if let Some(snapshot) = snapshot.as_object_mut() {
            snapshot.remove("type");
        }
        let head = self.note(caller, device, publisher, revision, captured)?;
        let (relay, text, device) = (self.clone(), snapshot.to_string(), device.to_owned());
        let kept = tokio::task::spawn_blocking(move || {
            // A newer snapshot may have come meanwhile.
            let still = || {
                let state = relay.state();
                state.devices.get(&device).is_some_and(|known| known.kept == Some((revision, captured)))
            };
            relay.0.cache.save(&head, &text, still)?;
            relay.forget_oldest();
            Ok(())
        });
        kept.await.unwrap_or_else(|error| Err(Error::internal(error.to_string())))
    }

    /// Updates what is known of a device.
    fn note(
        &self,
        caller: &Caller,
        id: &str,
        publisher: Option<Publisher>,
        revision: u64,
        captured: u64,
    ) -> Result<Head> {
        let mut forgotten = None;
        let mut state = self.state();
        if let Some(publisher) = publisher {
            names::check(id, &publisher.label)?;
            forgotten = state.make_room(id)?;
            let known = state.devices.entry(id.to_owned()).or_insert_with(|| Device {
                label: publisher.label.clone(),
                kind: publisher.kind,
                principal: caller.principal.clone(),
                last_seen_ms: 0,
                revision,
                remote_control: RemoteControl::default(),
                kept: None,
                connects: Connects::none(),
                online: None,
            });
            if known.principal == caller.principal {
                (known.label, known.kind) = (publisher.label, publisher.kind);
            }
        }
        let device = state.devices.get_mut(id).ok_or_else(|| unknown(id))?;
        if device.principal != caller.principal {
            return Err(Error::new(ErrorCode::Unauthorized, format!("the device {id} belongs to another principal")));
        }
        if device.kept.is_some_and(|(known, at)| known > revision && at >= captured) {
            return Err(Error::new(ErrorCode::Conflict, "a newer snapshot is already stored"));
        }
        device.last_seen_ms = clock::now_ms();
        (device.revision, device.kept) = (revision, Some((revision, captured)));
        let head = Head {
            device_id: id.to_owned(),
            device_label: device.label.clone(),
            device_type: device.kind,
            principal: device.principal.clone(),
            last_seen_at: device.last_seen_ms,
            workspace_revision: revision,
            captured_at: captured,
        };
        let info = device.info(id);
        state.broadcast(&info, &head.principal, "updated");
        drop(state);
        self.forget(forgotten);
        Ok(head)
    }

    /// Forgets the oldest snapshots beyond the limit. Removes files.
    fn forget_oldest(&self) {
        loop {
            let mut state = self.state();
            let kept = || state.devices.iter().filter(|(_, device)| device.kept.is_some());
            if kept().count() <= SNAPSHOTS {
                return;
            }
            let oldest = kept().min_by_key(|(_, device)| (device.online.is_some(), device.last_seen_ms));
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else { return };
            if let Some(device) = state.devices.get_mut(&oldest) {
                device.kept = None;
            }
            drop(state);
            self.forget(Some(oldest));
        }
    }

    /// Removes the snapshot of a forgotten device, unless the device has published again meanwhile.
    /// Removes a file.
    pub(super) fn forget(&self, device: Option<String>) {
        let Some(device) = device else { return };
        let still = || self.state().devices.get(&device).is_none_or(|known| known.kept.is_none());
        self.0.cache.remove(&device, still);
    }

    /// Reads a workspace from its owner; with `allow_stale`, a disconnected owner's last published
    /// state.
    ///
    /// Errors: as a request's; `NOT_FOUND` if nothing was published.
    pub async fn workspace(
        &self,
        caller: &Caller,
        caller_device: &str,
        id: &str,
        allow_stale: bool,
    ) -> Result<WorkspaceAnswer> {
        let info = self.get(caller, id)?;
        if !info.online && allow_stale {
            return self.published(caller, id).await;
        }
        let request = RpcRequest {
            request_id: format!("read_{}", nonce::hex64()),
            caller_device_id: caller_device.to_owned(),
            target_device_id: id.to_owned(),
            command: GET_WORKSPACE.into(),
            ..RpcRequest::default()
        };
        let said = match self.request(caller, request).await {
            // The owner disconnected meanwhile, or its connection is open but silent.
            Err(error) if allow_stale && matches!(error.code, ErrorCode::DeviceOffline | ErrorCode::RpcTimeout) => {
                return self.published(caller, id).await;
            }
            said => said?,
        };
        // The response has updated the device's presence.
        let info = self.get(caller, id)?;
        let captured = said.result.get("capturedAt").and_then(Value::as_u64).unwrap_or_else(clock::now_ms);
        answer(said.result, WorkspaceSource::Live, captured, &info)
    }
}

impl Relay {
    /// Reads what a device published last. Error: `NOT_FOUND` if it has published nothing.
    async fn published(&self, caller: &Caller, id: &str) -> Result<WorkspaceAnswer> {
        let info = self.get(caller, id)?;
        let (relay, device) = (self.clone(), id.to_owned());
        let loaded = tokio::task::spawn_blocking(move || relay.0.cache.load(&device)).await;
        let loaded = loaded.map_err(|error| Error::internal(error.to_string()))?;
        let (head, snapshot) =
            loaded.ok_or_else(|| Error::not_found(format!("the device {id} has published no workspace")))?;
        answer(snapshot, WorkspaceSource::Cache, head.captured_at, &info)
    }
}

/// Builds a response about a workspace.
fn answer(
    mut snapshot: Value,
    source: WorkspaceSource,
    captured_at: u64,
    owner: &muxtap_api::DeviceInfo,
) -> Result<WorkspaceAnswer> {
    let mut list = |name: &str| match snapshot.get_mut(name).map(Value::take) {
        Some(Value::Array(entities)) => Ok(entities),
        _ => Err(Error::new(ErrorCode::InconsistentState, format!("the device's workspace has no {name}"))),
    };
    Ok(WorkspaceAnswer {
        tabs: list("tabs")?,
        panes: list("panes")?,
        device_id: owner.device_id.clone(),
        workspace_revision: snapshot.get("workspaceRevision").and_then(Value::as_u64).unwrap_or_default(),
        active_tab_id: snapshot.get("activeTabId").and_then(Value::as_str).map(str::to_owned),
        source,
        captured_at,
        owner_online: owner.online,
        owner_last_seen_at: owner.last_seen_at,
    })
}

/// Returns a snapshot's revision and time. Errors: `INVALID_ARGUMENT`, `UNAUTHORIZED`.
fn check(snapshot: &Value, device: &str) -> Result<(u64, u64)> {
    let said = snapshot.get("deviceId").and_then(Value::as_str);
    if said.is_some_and(|said| said != device) {
        return Err(Error::new(ErrorCode::Unauthorized, "deviceId: the snapshot belongs to another device"));
    }
    let number = |name: &str| {
        let number = snapshot.get(name).and_then(Value::as_u64);
        number.ok_or_else(|| Error::invalid(format!("{name}: expected a number")))
    };
    for name in ["tabs", "panes"] {
        let entities = snapshot.get(name).and_then(Value::as_array);
        let entities = entities.ok_or_else(|| Error::invalid(format!("{name}: expected a list")))?;
        for entity in entities {
            if entity.get("ownerDeviceId").and_then(Value::as_str) != Some(device) {
                return Err(Error::invalid(format!("{name}: expected ownerDeviceId {device} in each entry")));
            }
            if entity.get("id").and_then(Value::as_str).is_none_or(str::is_empty) {
                return Err(Error::invalid(format!("{name}: expected an id in each entry")));
            }
        }
    }
    Ok((number("workspaceRevision")?, number("capturedAt")?))
}
