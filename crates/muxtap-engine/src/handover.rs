//! The state of an engine, stored for the daemon that replaces this one (`docs/upgrade.md`).
//!
//! Stored are the panes with all that cursors rest upon, the places at which event streams resume, and
//! the waits (`wait/stored.rs`); beside them, the control clients are handed over ([`Engine::pause`], [`Prepared`]). A
//! restored engine continues the streams: cursors, offsets and event ids stay valid.

mod copy;
mod descriptors;
mod exchange;
mod steps;

use std::{
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::stored;
use muxtap_tmux::{Address, PausedLink, ProcessProbe, ServerLink, StoredLink};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::{
    copy::{CopiedPanes, Copy, StoredPane},
    steps::Steps,
};
use crate::{
    Engine, Host, Options, PaneState, Past,
    events::Trails,
    host::Reports,
    wait::{HeldWaits, PreparedWaits, StoredWaits, Waits},
};

pub use crate::authority::StoredPrincipal;
pub use exchange::{Belongings, NotTaken, Successor, decline, take_over};
pub use muxtap_tmux::death::Foreign;

/// The version of the stored state. A change of any stored type is a new version.
pub const STATE_VERSION: u32 = 5;

/// The first bytes of each stored state.
const MAGIC: &[u8] = b"muxtap state\n";

/// What precedes the state. Its form is the same in every version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    version: u32,
    /// The program that stored it.
    program: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredEngine {
    nonce: u64,
    /// Whether a wait that cannot be continued ends; else nothing is taken over.
    force: bool,
    trails: Blob,
    waits: StoredWaits,
    /// What the daemon has beside the engine, in its own form.
    beside: Blob,
    servers: Vec<StoredServer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredServer {
    #[serde(with = "stored::bytes")]
    socket: Vec<u8>,
    /// The epoch of the server process.
    epoch: u64,
    live: Vec<StoredPane>,
    ended: Vec<StoredPane>,
    /// The control clients, if they are handed over.
    link: Option<Blob>,
}

impl StoredServer {
    /// Returns about how many bytes it has.
    fn bytes(&self) -> usize {
        self.live.iter().chain(&self.ended).map(StoredPane::bytes).sum()
    }
}

/// A part that is stored by itself.
#[derive(Debug, Serialize, Deserialize)]
struct Blob(#[serde(with = "stored::bytes")] Vec<u8>);

/// A server's panes, restored.
struct Restored {
    socket: PathBuf,
    epoch: u64,
    live: Vec<Arc<PaneState>>,
    ended: Vec<Arc<PaneState>>,
    link: Option<(StoredLink, Vec<OwnedFd>)>,
}

/// Everything that a daemon hands over beside its engine, once its requests have ended.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Beside {
    /// In the daemon's own form, with their descriptors.
    pub belongings: Belongings,
    /// Whether a wait that the next daemon cannot continue ends; else it prevents the handover.
    pub force: bool,
}

/// An engine whose control clients are not read and get no requests. Dropped, it goes on.
#[doc(hidden)]
pub struct PausedEngine {
    engine: Engine,
    state: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    links: Vec<PausedLink>,
    waits: HeldWaits,
}

impl PausedEngine {
    /// Returns the engine's state.
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// Takes the descriptors that the next engine needs, in their order.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Goes on after the next engine may have read from the control clients: they are replaced, with a
    /// gap in their panes.
    fn replace_clients(self) {
        for link in self.links {
            link.replace_clients();
        }
    }

    /// Leaves the control clients and the waits to the next engine and ends this one.
    pub async fn leave(self) {
        self.waits.leave();
        for link in self.links {
            link.leave();
        }
        // First: from here on this engine must not send tmux anything.
        self.engine.shared.cancel.cancel();
        if let Some(audit) = &self.engine.shared.options.audit {
            audit.close();
        }
        self.engine.stop().await;
        // The process may relay for long: the next one has the output of these panes.
        let hosts = std::mem::take(&mut *self.engine.hosts());
        drop(hosts);
    }
}

/// A state that was read completely, with everything that is needed to continue from it.
#[doc(hidden)]
pub struct Prepared {
    options: Options,
    past: Past,
    servers: Vec<Restored>,
    waits: PreparedWaits,
    beside: Belongings,
}

impl Prepared {
    /// Reads a state. Begins nothing. Error: `CONFLICT` if this program does not read it, or if the
    /// descriptors are not those of the state.
    pub fn read(options: Options, state: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self> {
        Self::read_after(Copy::default(), options, state, descriptors)
    }

    /// Reads a state that follows this copy.
    fn read_after(mut copy: Copy, options: Options, state: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self> {
        let (engine, restored, others) = read(&mut copy, state, options.ring_bytes, descriptors)?;
        let broken = |error: postcard::Error| unreadable(&error.to_string());
        let trails = Trails::restore(&engine.trails.0).map_err(broken)?;
        let budget = copy.patterns.only_for(&engine.waits);
        let all = |server: &Restored| (server.socket.clone(), [&server.live[..], &server.ended].concat());
        let waits = engine.waits.prepare(&budget, &restored.iter().map(all).collect::<Vec<_>>(), engine.force)?;
        let past = Past { nonce: engine.nonce, trails, budget };
        let beside = Belongings { bytes: engine.beside.0, descriptors: others };
        Ok(Self { options, past, servers: restored, waits, beside })
    }

    /// Takes what the other daemon has beside the engine.
    fn take_beside(&mut self) -> Belongings {
        std::mem::take(&mut self.beside)
    }

    /// Continues from the state. Must be called within a tokio runtime.
    ///
    /// Control clients that were handed over are read from now on. Each other server whose panes are
    /// live is followed again; what a pane prints before is a gap, unless the pane shows all of it.
    pub fn start(self) -> Engine {
        let Self { options, past, servers, mut waits, beside: _ } = self;
        let engine = Engine::within(Handle::current(), options, ProcessProbe::default(), past);
        waits.register_ended(&engine);
        for server in servers {
            engine.restore_server(server, &mut waits);
        }
        waits.cancel_others(&engine);
        engine
    }
}

impl Engine {
    /// Returns the engine's state: its panes, live and ended, and the places at which event streams
    /// resume. The engine continues; what its panes print later is not in it.
    #[doc(hidden)]
    pub fn store(&self) -> Result<Vec<u8>> {
        self.store_with(&[], false, Vec::new(), &CopiedPanes::default(), &mut Steps::begin("old"))
    }

    /// Returns what changes whenever lines of the audit log were written; `None`: it is off.
    #[doc(hidden)]
    pub fn audit_changes(&self) -> Option<tokio::sync::watch::Receiver<u64>> {
        Some(self.shared.options.audit.as_ref()?.changes())
    }

    /// Returns the file of the audit log that is written now, with its lock.
    #[doc(hidden)]
    pub fn audit_file(&self) -> Option<std::fs::File> {
        self.shared.options.audit.as_ref()?.file()
    }

    /// Stops reading from all control clients, and sending to them. Nothing that panes print meanwhile
    /// is lost, and no wait times out.
    ///
    /// Error: a tmux server does not reply within `limit`; everything goes on then.
    #[doc(hidden)]
    pub async fn pause(&self, limit: Duration) -> Result<PausedEngine> {
        let steps = &mut Steps::begin("old");
        self.pause_beside(limit, async { Ok(Beside::default()) }, &CopiedPanes::default(), steps).await
    }

    /// Waits until what panes have printed was read; for `limit` at most. Nothing stops.
    async fn catch_up(&self, limit: Duration) {
        let hosts: Vec<_> = self.hosts().values().cloned().collect();
        futures_util::future::join_all(hosts.iter().map(|host| host.server().catch_up(limit))).await;
    }

    /// Pauses as [`Engine::pause`] does. `beside` is awaited when nothing is read any more. `copied`: what
    /// the state need not contain.
    async fn pause_beside(
        &self,
        limit: Duration,
        beside: impl Future<Output = Result<Beside>>,
        copied: &CopiedPanes,
        steps: &mut Steps,
    ) -> Result<PausedEngine> {
        // First: a wait that is beginning may need replies of tmux.
        let waits = Waits::hold(self, limit).await?;
        steps.ended("hold waits", 0);
        let hosts: Vec<_> = self.hosts().values().cloned().collect();
        let paused = hosts.iter().map(|host| host.server().pause(limit));
        let paused = futures_util::future::join_all(paused).await.into_iter().collect::<Result<Vec<_>>>()?;
        let mut links: Vec<_> = hosts.into_iter().zip(paused).filter_map(|(host, link)| Some((host, link?))).collect();
        // The order of the state.
        links.sort_by(|(a, _), (b, _)| a.socket().cmp(b.socket()));
        steps.ended("stop reading", 0);
        let beside = beside.await?;
        steps.ended("stop recordings", 0);
        let mut descriptors: Vec<_> = links.iter_mut().flat_map(|(_, link)| link.take_descriptors()).collect();
        descriptors.extend(beside.belongings.descriptors);
        let stored: Vec<_> = links.iter().map(|(host, link)| (host.socket(), link.state())).collect();
        let state = self.store_with(&stored, beside.force, beside.belongings.bytes, copied, steps)?;
        steps.ended("store", state.len());
        let links = links.into_iter().map(|(_, link)| link).collect();
        Ok(PausedEngine { engine: self.clone(), state, descriptors, links, waits })
    }

    fn store_with(
        &self,
        links: &[(&Path, &StoredLink)],
        force: bool,
        beside: Vec<u8>,
        copied: &CopiedPanes,
        steps: &mut Steps,
    ) -> Result<Vec<u8>> {
        let mut hosts: Vec<_> = self.hosts().values().cloned().collect();
        hosts.sort_by(|a, b| a.socket().cmp(b.socket()));
        let servers: Result<Vec<_>> = hosts.iter().map(|host| self.store_host(host, links, copied)).collect();
        let servers = servers?;
        steps.ended("store panes", servers.iter().map(StoredServer::bytes).sum());
        let trails = self.shared.trails.store().map_err(|error| cannot_store("the event streams", &error))?;
        steps.ended("store event streams", trails.len());
        // After the panes: a pane may end meanwhile.
        let waits = self.shared.waits.store_all()?;
        steps.ended("store waits", waits.bytes());
        let (nonce, trails) = (self.shared.nonce, Blob(trails));
        let engine = StoredEngine { nonce, force, trails, waits, beside: Blob(beside), servers };
        postcard::to_extend(&own_header(), MAGIC.to_vec())
            .and_then(|bytes| postcard::to_extend(&engine, bytes))
            .map_err(|error| cannot_store("the servers", &error))
    }

    fn store_host(
        &self,
        host: &Arc<Host>,
        links: &[(&Path, &StoredLink)],
        copied: &CopiedPanes,
    ) -> Result<StoredServer> {
        let store = |pane: &Arc<PaneState>| {
            copied.store(pane).map_err(|error| cannot_store(&format!("pane {}", pane.id()), &error))
        };
        let (mut live, mut ended) = (host.panes(), host.ended_panes());
        // A wait may hold a pane that ended long ago.
        for pane in self.shared.waits.panes_of(host) {
            if !live.iter().chain(&ended).any(|known| Arc::ptr_eq(known, &pane)) {
                ended.push(pane);
            }
        }
        live.sort_by_key(|pane| pane.id());
        let link = links.iter().find(|(socket, _)| *socket == host.socket());
        let link = link.map(|(_, link)| postcard::to_allocvec(link)).transpose();
        let link = link.map_err(|error| cannot_store("the control clients", &error))?;
        Ok(StoredServer {
            socket: host.socket().as_os_str().as_bytes().to_vec(),
            epoch: host.epoch().server,
            live: live.iter().map(store).collect::<Result<_>>()?,
            ended: ended.iter().map(store).collect::<Result<_>>()?,
            link: link.map(Blob),
        })
    }

    fn restore_server(&self, server: Restored, waits: &mut PreparedWaits) {
        let Restored { socket, epoch, live, ended, link } = server;
        let host = Host::new(&socket, &self.shared);
        // A host that the settings do not name any more is not followed. Its panes end with it.
        let Ok(program) = Address::parse(&socket).and_then(|address| self.program_for(address)) else { return };
        host.restore(epoch, live, ended, link.is_some());
        // Before anything more is read.
        let waits = waits.continue_on(self, &host);
        match link {
            Some((stored, descriptors)) => {
                let continued = ServerLink::continued(
                    self.server_spec(&host, program.clone()),
                    Arc::new(Reports(Arc::downgrade(&host))),
                    host.cancel().clone(),
                    &self.shared.tasks,
                    stored,
                    descriptors,
                );
                match continued {
                    Ok(continued) => {
                        host.set_server(continued.link());
                        continued.begin();
                    }
                    Err(error) => {
                        tracing::error!("{}: {error}; attaching other clients", socket.display());
                        host.panes().iter().for_each(|pane| pane.suspend_screen());
                        self.follow(&host, program);
                    }
                }
            }
            None => self.follow(&host, program),
        }
        host.begin_restored();
        self.hosts().insert(socket, host);
        for wait in waits {
            wait.begin();
        }
    }
}

/// Returns what follows the header. Error: this program does not read the state; with the versions of
/// both.
fn header(state: &[u8]) -> Result<&[u8]> {
    let stored = state.strip_prefix(MAGIC).ok_or_else(|| unreadable("it does not begin as one"))?;
    let (header, rest) = postcard::take_from_bytes::<Header>(stored).map_err(|error| unreadable(&error.to_string()))?;
    check_version(&header)?;
    Ok(rest)
}

fn own_header() -> Header {
    Header { version: STATE_VERSION, program: env!("CARGO_PKG_VERSION").to_owned() }
}

fn check_version(header: &Header) -> Result<()> {
    if header.version == STATE_VERSION {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Conflict,
        format!(
            "the daemon is muxtap {}, whose state has version {}; muxtap {} reads version {STATE_VERSION} only: stop \
             the daemon with `muxtap stop` and start this one",
            header.program,
            header.version,
            env!("CARGO_PKG_VERSION"),
        ),
    ))
}

/// Returns also the descriptors of what is beside the engine.
fn read(
    copy: &mut Copy,
    state: &[u8],
    ring_bytes: usize,
    descriptors: Vec<OwnedFd>,
) -> Result<(StoredEngine, Vec<Restored>, Vec<OwnedFd>)> {
    let broken = |error: postcard::Error| unreadable(&error.to_string());
    let (mut engine, rest) = postcard::take_from_bytes::<StoredEngine>(header(state)?).map_err(broken)?;
    if !rest.is_empty() {
        return Err(unreadable("bytes are left over"));
    }
    let mut panes = |panes: Vec<StoredPane>| -> Result<Vec<_>> {
        panes.into_iter().map(|pane| copy.restore(pane, ring_bytes)).collect()
    };
    let mut descriptors = descriptors.into_iter();
    let mut link = |link: Option<Blob>| -> Result<Option<_>> {
        let Some(Blob(bytes)) = link else { return Ok(None) };
        let link: StoredLink = postcard::from_bytes(&bytes).map_err(broken)?;
        let own: Vec<_> = descriptors.by_ref().take(link.descriptors()).collect();
        if own.len() < link.descriptors() { Err(unreadable("a descriptor is missing")) } else { Ok(Some((link, own))) }
    };
    let mut servers = Vec::new();
    for server in std::mem::take(&mut engine.servers) {
        let socket = Path::new(OsStr::from_bytes(&server.socket)).to_owned();
        let (live, ended) = (panes(server.live)?, panes(server.ended)?);
        servers.push(Restored { socket, epoch: server.epoch, live, ended, link: link(server.link)? });
    }
    let others: Vec<_> = descriptors.collect();
    if engine.beside.0.is_empty() && !others.is_empty() {
        return Err(unreadable("a descriptor is left over"));
    }
    Ok((engine, servers, others))
}

fn unreadable(why: &str) -> Error {
    Error::new(ErrorCode::Conflict, format!("the state of the daemon cannot be read: {why}"))
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("{what}: {error}"))
}

fn cannot_store(what: &str, error: &postcard::Error) -> Error {
    Error::internal(format!("cannot store {what}: {error}"))
}

#[cfg(test)]
pub(crate) mod tests;
