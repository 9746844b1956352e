//! Peers: muxtap on other hosts (`docs/hosts.md`).
//!
//! If a host has muxtap, its daemon answers for that host's tmux servers over one link, so streams,
//! cursors and waits are kept on the remote host and outlive the link.

mod dial;
mod events;
mod forward;
mod link;
mod several;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use muxtap_tmux::{DEFAULT_SOCKET, PeerChoice};
use serde::de::DeserializeOwned;

pub use self::dial::{Boxed, Fleet, FleetStream, Stream};
use self::dial::{Dial, InFleet, Process};
pub use self::{forward::Question, link::PeerHost, several::Several};
use muxtap_engine::Engine;

use muxtap_api::{ListQuery, PeerInfo, PeerState, Result, ServerQuery, Tier, url};

/// The hosts whose muxtap was requested.
#[derive(Clone, Default)]
pub struct Peers {
    hosts: Arc<Mutex<Hosts>>,
    /// The fleet that this daemon is a member of.
    fleet: Arc<OnceLock<Arc<dyn Fleet>>>,
    /// The prefix of the paths of ssh's sockets.
    sockets: Option<Arc<Path>>,
    /// The waits on several hosts that a request awaits, by the ids that their keys give.
    several: Arc<Mutex<BTreeMap<String, Several>>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("hosts", &self.hosts()).finish_non_exhaustive()
    }
}

/// The connections to a host: one, or in a fleet one for each tier.
type Hosts = BTreeMap<String, BTreeMap<Option<&'static str>, Arc<PeerHost>>>;

impl Peers {
    /// Creates an empty set of hosts. `sockets`: the path before `.ssh-HOST`, the socket by which
    /// the connection to a host is shared.
    pub fn sharing(sockets: &Path) -> Self {
        Self { sockets: Some(sockets.into()), ..Self::default() }
    }

    /// Sets the fleet that this daemon is a member of, once.
    pub fn set_fleet(&self, fleet: Arc<dyn Fleet>) {
        let _ = self.fleet.set(fleet);
    }

    /// Returns the fleet that this daemon is a member of.
    pub fn fleet(&self) -> Option<&Arc<dyn Fleet>> {
        self.fleet.get()
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection to the muxtap of a host for requests of a tier, without running
    /// anything. `None`: the host is unknown, or its muxtap is disabled.
    pub fn of(&self, engine: &Engine, host: &str, tier: Tier) -> Option<Arc<PeerHost>> {
        let transport = engine.transport(host).ok()?;
        if *transport.peer_choice() == PeerChoice::Never {
            return None;
        }
        let (tier, dial): (_, Box<dyn Dial>) = if transport.is_in_fleet() {
            let fleet = self.fleet.get()?.clone();
            (Some(tier.as_str()), Box::new(InFleet::new(fleet, host, tier)))
        } else {
            (None, Box::new(Process::new(engine.clone(), transport, self.sockets.as_deref())))
        };
        let mut hosts = self.hosts();
        let links = hosts.entry(host.into()).or_default();
        let link = links.entry(tier).or_insert_with(|| Arc::new(PeerHost::new(engine.clone(), dial)));
        Some(link.clone())
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
        let Some(peer) = self.of(engine, host, Tier::Read) else { return Ok(None) };
        let server = ServerQuery { socket: Some(DEFAULT_SOCKET.into()), from: None };
        let path = url::with_query(&format!("/v1/{field}"), &server);
        let list = ListQuery { targets: (!targets.is_empty()).then(|| targets.join(",")) };
        peer.list(url::with_query(&path, &list), field).await
    }

    /// Forgets a host. Its link ends once no request uses it.
    pub fn forget(&self, host: &str) {
        self.hosts().remove(host);
    }

    /// Returns the state of a host's muxtap. `None`: it was not requested yet.
    pub fn info(&self, host: &str) -> Option<PeerInfo> {
        let hosts = self.hosts();
        let mut links = hosts.get(host)?.values().filter_map(|link| link.info());
        let first = links.next()?;
        if first.state == PeerState::Connected {
            return Some(first);
        }
        Some(links.find(|info| info.state == PeerState::Connected).unwrap_or(first))
    }
}
