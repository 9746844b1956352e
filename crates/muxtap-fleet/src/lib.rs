//! Fleets: the daemons of many hosts reach each other over NATS (`docs/fleet.md`).
//!
//! NATS carries byte streams between two daemons; what these streams carry is the HTTP of a peer
//! (`muxtap-peer`), as over ssh.

pub mod frame;
pub mod subject;
