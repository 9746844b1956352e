//! Peers: muxtap on other hosts (`docs/hosts.md`).
//!
//! If a host has muxtap, its daemon answers for that host's tmux servers over one link, so streams,
//! cursors and waits are kept on the remote host and outlive the link.

mod events;
mod forward;
mod link;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use muxtap_tmux::{DEFAULT_SOCKET, PeerChoice};
use serde::de::DeserializeOwned;

pub use self::{forward::Question, link::PeerHost};
use muxtap_engine::Engine;

use muxtap_api::{ListQuery, PeerInfo, Result, ServerQuery, url};

/// The hosts whose muxtap was requested.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    hosts: Arc<Mutex<BTreeMap<String, Arc<PeerHost>>>>,
    /// The prefix of the paths of ssh's sockets.
    sockets: Option<Arc<Path>>,
}

impl Peers {
    /// Creates an empty set of hosts. `sockets`: the path before `.ssh-HOST`, the socket by which
    /// the connection to a host is shared.
    pub fn sharing(sockets: &Path) -> Self {
        Self { hosts: Arc::default(), sockets: Some(sockets.into()) }
    }

    /// Returns the connection to the muxtap of a host, without running anything. `None`: the host
    /// is unknown, or its muxtap is disabled.
    pub fn of(&self, engine: &Engine, host: &str) -> Option<Arc<PeerHost>> {
        let transport = engine.transport(host).ok()?;
        if *transport.peer_choice() == PeerChoice::Never {
            return None;
        }
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(PeerHost::new(engine.clone(), transport, self.sockets.as_deref()));
        Some(hosts.entry(host.into()).or_insert_with(new).clone())
    }

    /// Lists the contents of a host's default server, from the remote muxtap. `None`: the host has
    /// no muxtap, or it is disabled. `field`: the list's name, in its path and in its response;
    /// `targets`: the targets of the request.
    ///
    /// Error: the host cannot be reached.
    pub async fn list<T: DeserializeOwned>(
        &self,
        engine: &Engine,
        host: &str,
        (field, targets): (&str, &[String]),
    ) -> Result<Option<Vec<T>>> {
        let Some(peer) = self.of(engine, host) else { return Ok(None) };
        let server = ServerQuery { socket: Some(DEFAULT_SOCKET.into()), from: None };
        let path = url::with_query(&format!("/v1/{field}"), &server);
        let list = ListQuery { targets: (!targets.is_empty()).then(|| targets.join(",")) };
        peer.list(url::with_query(&path, &list), field).await
    }

    /// Forgets a host. Its link ends once no request uses it.
    pub fn forget(&self, host: &str) {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).remove(host);
    }

    /// Returns the state of a host's muxtap. `None`: it was not requested yet.
    pub fn info(&self, host: &str) -> Option<PeerInfo> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(host)?.info()
    }
}
