//! Devices and their workspaces; docs/devices.md specifies them.
//!
//! A device owns its layout. The relay forwards requests to the device and keeps what it published
//! last.

pub mod audit;
mod cache;
pub mod hybrid;
pub mod local;
pub mod names;
mod outbox;
pub mod relay;
pub mod sessions;
pub mod wire;
pub mod workspace;

use std::path::{Path, PathBuf};

pub use self::{
    outbox::Outbox,
    relay::{Caller, Relay, Session, Times},
    sessions::{BoundDevice, DeviceSessions},
};

/// The relay and the device sessions of a daemon; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// The relay.
    pub relay: Relay,
    /// The sessions of devices.
    pub sessions: DeviceSessions,
}

impl Devices {
    /// Keeps the files of both in this folder, which may be missing, and reads the existing ones.
    pub fn in_dir(dir: &Path) -> Self {
        let audit = audit::Audit::new(Some(freshell_audit), Some(dir.join("audit/remote-control.jsonl")));
        Self {
            relay: Relay::new(Some(dir.join("snapshots")), audit, Times::default()),
            sessions: DeviceSessions::open(Some(dir.join("sessions.json"))),
        }
    }
}

/// The folder of `freshell`, in the user's home directory.
pub const FRESHELL_DIR: &str = ".freshell";

/// Returns the path of the audit log in `freshell`'s folder, if that folder exists.
fn freshell_audit() -> Option<PathBuf> {
    let dir = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())?.join(FRESHELL_DIR);
    dir.is_dir().then(|| dir.join("audit/remote-control.jsonl"))
}
