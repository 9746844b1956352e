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

use muxtap_tmux::{DEFAULT_SOCKET, PeerChoice};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

pub use self::{forward::Question, link::PeerHost};
use muxtap_engine::Engine;

use muxtap_api::{PeerInfo, Result};

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

    /// Lists what is on a host's default server by the muxtap there. `None`: there is no muxtap, or it is not to be
    /// used. `field`: the list's name, in its path and in its answer; `targets`: those that it is asked for.
    ///
    /// Error: the host cannot be reached.
    pub async fn list<T: DeserializeOwned>(
        &self,
        engine: &Engine,
        host: &str,
        (field, targets): (&str, &[String]),
    ) -> Result<Option<Vec<T>>> {
        let Some(peer) = self.of(engine, host) else { return Ok(None) };
        let targets = utf8_percent_encode(&targets.join(","), NON_ALPHANUMERIC).to_string();
        peer.list(format!("/v1/{field}?socket={DEFAULT_SOCKET}&targets={targets}"), field).await
    }

    /// Returns what is known of the muxtap of a host. `None`: it was not asked for.
    pub fn info(&self, host: &str) -> Option<PeerInfo> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(host)?.info()
    }
}
