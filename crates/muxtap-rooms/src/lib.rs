//! The subsystems of one daemon beside its engine, as a value that its interfaces share.

use muxtap_approvals::approvals::Approvals;
use muxtap_capability::Capability;
use muxtap_devices::Devices;
use muxtap_peer::Peers;
use muxtap_record::Recordings;
use muxtap_sessions::AgentSessions;
use muxtap_snapshot::Store;
use muxtap_when::When;

/// The subsystems of a daemon beside its engine. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    /// The questions to a person at a terminal (`muxtap approvals`).
    pub approvals: Option<Approvals>,
    /// The capability and its state.
    pub capability: Capability,
    /// The devices.
    pub devices: Devices,
    /// The connections to muxtap on remote hosts.
    pub peers: Peers,
    /// The active and the ended recordings.
    pub recordings: Recordings,
    /// The agent sessions.
    pub sessions: AgentSessions,
    /// The store of snapshots and layouts.
    pub snapshots: Option<Store>,
    /// The rules.
    pub when: When,
}
