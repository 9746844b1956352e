//! The relay: which devices are there, requests from one to another, and what each published last. It holds no layout
//! truth, no queue, and answers for nobody.

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
};
use super::{
    audit::{Asked, Audit},
    cache::Cache,
    outbox::Outbox,
};
use muxtap_api::{DeviceInfo, DeviceList, DeviceType, Error, RemoteControl, Result};

/// Devices that are known at once; of more, those that were heard longest ago and are not connected go.
pub const DEVICES: usize = 4096;
/// Connections of one device within [`CONNECTS_TIME`]: each is told to all others of its principal.
pub const CONNECTS: u32 = 32;
/// The time in which connections of a device are counted.
pub const CONNECTS_TIME: Duration = Duration::from_secs(10);
/// Requests that an owner has not answered yet.
pub const PENDING: usize = 256;
/// Requests of one connection that are not answered yet.
pub const ASKED: usize = 64;
/// Ended requests of an owner whose late results are recognised.
pub const ENDED: usize = 256;
/// Bytes of a request's arguments.
pub const ARGS_BYTES: usize = 64 << 10;
/// How long a device that is silent counts as connected.
const PRESENCE_TIME: Duration = Duration::from_secs(15);
/// How often a device is asked whether it is there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long an owner may take to say that it took a request.
const ACK_TIME: Duration = Duration::from_secs(2);
/// How long an owner may take for a request that does not say.
const RESULT_TIME: Duration = Duration::from_secs(10);
/// How long a request can give its owner.
const RESULT_LONGEST: Duration = Duration::from_secs(60);
/// How long an owner that asks its person may take in all.
const WAITING_TIME: Duration = Duration::from_secs(35);

/// The relay's times; tests have shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long a device that is silent counts as connected.
    pub presence: Duration,
    /// How often a device is asked whether it is there.
    pub heartbeat: Duration,
    /// How long an owner may take to say that it took a request.
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
    /// The principal, as whom the connection was authenticated.
    pub principal: String,
    /// The device to which that is bound; `None`: it may speak for any device of the principal's.
    pub device: Option<String>,
    /// Whether it may ask other devices for changes.
    pub remote_control: bool,
    /// Its name for people, where its device has none.
    pub label: String,
    /// The family of its token.
    pub family: Option<String>,
    /// When its token ends, in milliseconds since 1970.
    pub token_ends: Option<u64>,
    /// Whether this muxtap changes nothing for it: it asks others for no change and publishes nothing.
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
    /// Tells this relay's requests from those of the relays before it.
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

/// A device that is known.
#[derive(Debug)]
struct Device {
    label: String,
    kind: DeviceType,
    principal: String,
    last_seen_ms: u64,
    revision: u64,
    remote_control: RemoteControl,
    /// The revision and the time of the snapshot that is kept.
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
    /// Requests that were sent to it, by the relay's ids of them.
    pending: HashMap<String, Pending>,
    ended: VecDeque<(String, Asked)>,
    /// Cancelled when it has ended, or another one took its place.
    gone: CancellationToken,
}

impl Relay {
    /// Creates a relay that keeps snapshots in this folder. Reads whose are there.
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

    /// Ends the connections that were authenticated by a family of tokens.
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
