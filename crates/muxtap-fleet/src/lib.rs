//! Fleets: the daemons of many hosts reach each other over NATS (`docs/fleet.md`).
//!
//! NATS carries byte streams between two daemons; what these streams carry is the HTTP of a peer
//! (`muxtap-peer`), as over ssh.

pub mod admin;
pub mod audit;
pub mod frame;
mod join;
mod known;
mod links;
mod pipe;
mod service;
pub mod settings;
pub mod subject;

pub use self::{
    join::{Fleet, State},
    links::{Offered, Opened},
    pipe::Pipe,
    service::Member,
    settings::Settings,
};
