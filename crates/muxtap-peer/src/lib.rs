//! Peers: muxtap on other hosts. Where a host has it, its daemon answers for the tmux servers there, over one link,
//! so streams, cursors and waits stay there and outlive the link. `docs/hosts.md` says what that means.

mod events;
mod forward;
mod link;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use muxtap_tmux::PeerChoice;

pub use self::{forward::Question, link::PeerHost};
use muxtap_engine::Engine;

use muxtap_api::PeerInfo;

/// The hosts whose muxtap was asked for.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    hosts: Arc<Mutex<BTreeMap<String, Arc<PeerHost>>>>,
    /// The beginning of the paths of sockets of ssh.
    sockets: Option<Arc<Path>>,
}

impl Peers {
    /// Returns no hosts yet. `sockets`: the path before `.ssh-HOST`, by which the connection to a host is shared.
    pub fn sharing(sockets: &Path) -> Self {
        Self { hosts: Arc::default(), sockets: Some(sockets.into()) }
    }

    /// Returns the way to the muxtap of a host. Nothing is run yet. `None`: there is no such host, or its muxtap is not
    /// to be used.
    pub fn of(&self, engine: &Engine, host: &str) -> Option<Arc<PeerHost>> {
        let transport = engine.transport(host).ok()?;
        if *transport.peer_choice() == PeerChoice::Never {
            return None;
        }
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(PeerHost::new(engine.clone(), transport, self.sockets.as_deref()));
        Some(hosts.entry(host.into()).or_insert_with(new).clone())
    }

    /// Returns what is known of the muxtap of a host. `None`: it was not asked for.
    pub fn info(&self, host: &str) -> Option<PeerInfo> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(host)?.info()
    }
}
