//! The relay: the connected devices, the requests between them, and what each published last.
//!
//! The relay never changes a layout, never queues a request, and never answers for an owner.

mod presence;
mod publish;
mod rpc;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

pub use self::presence::push;
use self::{presence::Connects, rpc::Pending};
pub use self::{
    presence::{Beat, Flow, HELLO_TIME, Session},
    publish::Publisher,
    rpc::PERSON_ASKED,
};
use super::{
    audit::{Asked, Audit},
    cache::Cache,
    outbox::Outbox,
};
use muxtap_api::{DeviceInfo, DeviceList, DeviceType, Error, RemoteControl, Result};

/// The maximum number of known devices; one more replaces a disconnected one.
///
/// Devices without a stored snapshot go first, then the one that was seen longest ago.
pub const DEVICES: usize = 4096;
/// The maximum number of connections of one device within [`CONNECTS_TIME`].
///
/// Each is announced to all other devices of its principal.
pub const CONNECTS: u32 = 32;
/// The period in which the connections of a device are counted.
pub const CONNECTS_TIME: Duration = Duration::from_secs(10);
/// The maximum number of unanswered requests to one owner.
pub const PENDING: usize = 256;
/// The maximum number of unanswered requests from one connection.
pub const ASKED: usize = 64;
/// The number of an owner's ended requests whose late results are still recognized.
pub const ENDED: usize = 256;
/// The maximum size of a request's arguments, in bytes.
pub const ARGS_BYTES: usize = 64 << 10;
/// How long a silent device counts as connected.
const PRESENCE_TIME: Duration = Duration::from_secs(15);
/// How often a silent device is pinged.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long an owner may take to acknowledge a request.
const ACK_TIME: Duration = Duration::from_secs(2);
/// The default time for an owner's result.
const RESULT_TIME: Duration = Duration::from_secs(10);
/// The maximum time for an owner's result that a request may set.
const RESULT_LONGEST: Duration = Duration::from_secs(60);
/// How long an owner that asks its person may take in all.
const WAITING_TIME: Duration = Duration::from_secs(35);

/// The relay's timeouts; tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long a silent device counts as connected.
    pub presence: Duration,
    /// How often a silent device is pinged.
    pub heartbeat: Duration,
    /// How long an owner may take to acknowledge a request.
    pub ack: Duration,
    /// How long an owner that asks its person may take in all.
    pub waiting: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { presence: PRESENCE_TIME, heartbeat: HEARTBEAT, ack: ACK_TIME, waiting: WAITING_TIME }
    }
}

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The principal that authenticated the connection.
    pub principal: String,
    /// The device that the connection is bound to. `None`: it may speak for any device of the
    /// principal.
    pub device: Option<String>,
    /// Whether the caller may request changes from other devices.
    pub remote_control: bool,
    /// The caller's name for people, if its device has no label.
    pub label: String,
    /// The caller as the daemon knows it, for people: nothing that the caller has chosen.
    pub program: String,
    /// The family of the caller's token.
    pub family: Option<String>,
    /// When the caller's token expires, in milliseconds since 1970.
    pub token_ends: Option<u64>,
    /// Whether this muxtap is read-only for the caller: no requests for changes, no publishing.
    pub read_only: bool,
}

/// The relay; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Relay(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    cache: Arc<Cache>,
    audit: Audit,
    times: Times,
    /// Distinguishes this relay's requests from those of earlier relays.
    epoch: OnceLock<String>,
}

#[derive(Debug, Default)]
struct State {
    devices: HashMap<String, Device>,
    /// The number of the last connection.
    connections: u64,
    /// The number of the last request that was sent to an owner.
    requests: u64,
}

/// A known device.
#[derive(Debug)]
struct Device {
    label: String,
    kind: DeviceType,
    principal: String,
    last_seen_ms: u64,
    revision: u64,
    remote_control: RemoteControl,
    /// The revision and the time of the stored snapshot.
    kept: Option<(u64, u64)>,
    connects: Connects,
    online: Option<Connection>,
}

/// A device's connection.
#[derive(Debug)]
struct Connection {
    number: u64,
    outbox: Arc<Outbox>,
    family: Option<String>,
    /// The requests sent to this connection, by the relay's ids.
    pending: HashMap<String, Pending>,
    ended: VecDeque<(String, Asked)>,
    /// Cancelled when the connection has ended or was replaced.
    gone: CancellationToken,
}

impl Relay {
    /// Creates a relay that stores snapshots in this folder, and reads the existing ones' first
    /// lines.
    pub fn new(snapshots: Option<PathBuf>, audit: Audit, times: Times) -> Self {
        let cache = Cache::new(snapshots);
        let known = cache.heads().into_iter().map(|head| {
            let device = Device {
                label: head.device_label,
                kind: head.device_type,
                principal: head.principal,
                last_seen_ms: head.last_seen_at,
                revision: head.workspace_revision,
                remote_control: RemoteControl::default(),
                kept: Some((head.workspace_revision, head.captured_at)),
                connects: Connects::none(),
                online: None,
            };
            (head.device_id, device)
        });
        let state = State { devices: known.collect(), ..State::default() };
        let (state, cache) = (Mutex::new(state), Arc::new(cache));
        Self(Arc::new(Shared { state, cache, audit, times, epoch: OnceLock::new() }))
    }

    /// Lists the devices of the caller's principal.
    pub fn list(&self, caller: &Caller) -> DeviceList {
        let state = self.state();
        let own = state.devices.iter().filter(|(_, device)| device.principal == caller.principal);
        let mut devices: Vec<DeviceInfo> = own.map(|(id, device)| device.info(id)).collect();
        devices.sort_by(|one, other| one.device_id.cmp(&other.device_id));
        DeviceList { devices }
    }

    /// Returns a device of the caller's principal. Error: `NOT_FOUND`.
    pub fn get(&self, caller: &Caller, id: &str) -> Result<DeviceInfo> {
        let state = self.state();
        let own = state.devices.get(id).filter(|device| device.principal == caller.principal);
        own.map(|device| device.info(id)).ok_or_else(|| unknown(id))
    }

    /// Ends the connections that a family of tokens authenticated.
    pub fn end_family(&self, family: &str) {
        let state = self.state();
        let connections = state.devices.values().filter_map(|device| device.online.as_ref());
        for connection in connections.filter(|connection| connection.family.as_deref() == Some(family)) {
            let error = Error::new(muxtap_api::ErrorCode::Unauthorized, "the device's session has ended");
            connection.outbox.end(Some(super::wire::error(&error)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device {
    fn info(&self, id: &str) -> DeviceInfo {
        DeviceInfo {
            device_id: id.to_owned(),
            device_label: self.label.clone(),
            device_type: self.kind,
            online: self.online.is_some(),
            last_seen_at: self.last_seen_ms,
            workspace_revision: self.revision,
        }
    }
}

fn unknown(id: &str) -> Error {
    Error::not_found(format!("no device {id}; list-devices shows what is there"))
}
