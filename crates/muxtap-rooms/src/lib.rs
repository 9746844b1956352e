//! The rooms of one daemon, as a value that its faces share.

use muxtap_approvals::approvals::Approvals;
use muxtap_capability::Capability;
use muxtap_devices::Devices;
use muxtap_peer::Peers;
use muxtap_record::Recordings;
use muxtap_sessions::AgentSessions;
use muxtap_snapshot::Store;

/// What a daemon has beside its engine. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    /// The questions to a person at a terminal (`muxtap approvals`).
    pub approvals: Option<Approvals>,
    /// The capability, and what it remembers.
    pub capability: Capability,
    /// The devices.
    pub devices: Devices,
    /// The muxtap of other hosts.
    pub peers: Peers,
    /// The recordings that go on, and those that have ended.
    pub recordings: Recordings,
    /// The agent sessions.
    pub sessions: AgentSessions,
    /// Where snapshots and layouts are kept.
    pub snapshots: Option<Store>,
}
