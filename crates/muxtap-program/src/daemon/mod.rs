//! The process that holds the engine: how it is found, started and kept single.

mod activation;
mod endpoints;
#[cfg(feature = "fleet")]
mod fleet;
pub(crate) mod log;
mod rules;
mod serving;
pub mod start;
pub mod upgrade;

use std::{net::TcpListener, path::PathBuf, sync::Arc, time::Duration};

use muxtap_approvals::approvals::Approvals;
use muxtap_base::{descriptors, metrics};
use muxtap_capability::Capability;
use muxtap_devices::Devices;
use muxtap_engine::{Engine, Options, agents::Rules, audit::Audit};
use muxtap_http as http;
use muxtap_mcp::ClientContext;
use muxtap_net as net;
use muxtap_peer::Peers;
use muxtap_record::Recordings;
use muxtap_rooms::Rooms;
use muxtap_snapshot::Store;
use muxtap_tmux::{ClientName, PeerChoice, Program, Transport};
use tokio_util::sync::CancellationToken;

pub use self::upgrade::Begin;
use self::{
    endpoints::TcpEndpoint,
    serving::Serving,
    start::{Claim, ClaimGuard},
    upgrade::Doors,
};
use crate::{
    api::{Error, ErrorCode, Result},
    config::{
        HostSettings, Settings,
        paths::{self, Paths},
    },
};

/// Runs the daemon until it is stopped, by `muxtap stop`, SIGTERM, SIGINT or SIGHUP. `background`:
/// a command started it and waits for `ready` on its stdout ([`start::report_ready`]). `begin`:
/// whether it takes over from another daemon.
pub fn serve(settings: &Settings, background: bool, begin: Begin) -> Result<()> {
    let (paths, program) = (Paths::from_env()?, upgrade::own_program());
    descriptors::prepare();
    let daemon = Daemon { settings, paths: &paths, program: &program, background };
    let Some(predecessor) = begin.connect(&paths)? else {
        let mut claim = start::claim(&paths, background)?;
        let runtimes = daemon.prepare()?;
        let is_used = |(is_page, port): &(bool, _)| *is_page || endpoints::is_named(settings, port);
        let (stored, stale): (Vec<_>, Vec<_>) = std::mem::take(&mut claim.ports).into_iter().partition(is_used);
        // First: the settings may name one of their numbers on another address.
        for (_, port) in &stale {
            activation::close(port);
        }
        let (ports, unused) = daemon.open_ports(stored)?;
        unused.iter().for_each(activation::close);
        let writers = runtimes.writers();
        return runtimes.run(daemon.run_alone(claim, ports, writers));
    };
    let copy = predecessor.try_clone();
    let runtimes = daemon.prepare().inspect_err(|error| {
        if let Ok(copy) = copy {
            upgrade::refuse(copy, error);
        }
    })?;
    let writers = runtimes.writers();
    runtimes.run(daemon.take_over(predecessor, writers))
}

/// Ports to be served; whether each is the page's.
type Endpoints = Vec<(bool, TcpEndpoint)>;

/// What a daemon is started with.
struct Daemon<'a> {
    settings: &'a Settings,
    paths: &'a Paths,
    /// This process's program, where it was when the process began.
    program: &'a std::path::Path,
    background: bool,
}

/// The runtime of the engine, and the threads that write event streams.
struct Runtimes {
    /// Dropped outside of the runtimes.
    traces: log::Traces,
    engine: tokio::runtime::Runtime,
    writers: tokio::runtime::Runtime,
}

impl Runtimes {
    fn writers(&self) -> tokio::runtime::Handle {
        self.writers.handle().clone()
    }

    fn run(self, daemon: impl Future<Output = Result<()>>) -> Result<()> {
        let Self { traces: _traces, engine, writers } = self;
        let result = engine.block_on(daemon);
        // A task that hangs in the kernel must not keep the daemon alive.
        writers.shutdown_timeout(http::CLOSE_LIMIT);
        engine.shutdown_timeout(STOP_LIMIT);
        result
    }
}

impl Daemon<'_> {
    fn prepare(&self) -> Result<Runtimes> {
        #[cfg(feature = "fleet")]
        if let Some(fleet) = &self.settings.fleet {
            fleet.check_files().map_err(|error| Error::new(error.code, format!("[fleet] {error}")))?;
        }
        let traces = log::to_stderr(&self.settings.log_level, self.settings.log_format, self.settings.otlp.as_deref())?;
        metrics::install();
        keep_freed_memory();
        let engine = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // The C library keeps the memory that each thread has freed. The jobs of these threads are
            // short.
            .max_blocking_threads(4)
            .build()
            .map_err(|error| Error::internal(format!("cannot start the runtime: {error}")))?;
        let writers = writers().map_err(|error| Error::internal(format!("cannot start threads: {error}")))?;
        Ok(Runtimes { traces, engine, writers })
    }

    async fn run_alone(
        &self,
        claim: Claim,
        ports: Vec<(bool, TcpEndpoint)>,
        writers: tokio::runtime::Handle,
    ) -> Result<()> {
        let engine = Engine::new(options(self.settings, self.paths, None)?);
        let doors = OpenDoors::new(claim, ports).map_err(|error| self.cannot_serve(&error))?;
        Serving::run(self, (engine, None), doors, writers).await
    }

    /// Takes over from the daemon at the other end of a socket. Error: that one continues, with the
    /// reason.
    async fn take_over(
        &self,
        predecessor: std::os::unix::net::UnixStream,
        writers: tokio::runtime::Handle,
    ) -> Result<()> {
        let (successor, received) = upgrade::receive(predecessor, self.paths, self.background).await?;
        let prepared = self.prepare_doors(received);
        let (options, doors, unused) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                successor.leave(&error).await;
                return Err(error);
            }
        };
        let begin = || doors.guard.reclaim(&doors.doors.local);
        let (engine, beside) = successor.take_over(options, upgrade::Beside::read, begin).await?;
        unused.iter().for_each(activation::close);
        Serving::run(self, (engine, Some(beside)), doors, writers).await
    }

    fn prepare_doors(&self, received: upgrade::Received) -> Result<(Options, OpenDoors, Vec<TcpListener>)> {
        let (ports, unused) = self.open_ports(received.ports)?;
        let options = options(self.settings, self.paths, received.audit)?;
        let doors = OpenDoors::new(received.claim, ports).map_err(|error| self.cannot_serve(&error))?;
        Ok((options, doors, unused))
    }

    /// Opens the ports of the settings, and continues the page's. `handed`: the ports that listen already;
    /// whether each is the page's. Also returns those that the settings no longer name.
    fn open_ports(&self, handed: Vec<(bool, TcpListener)>) -> Result<(Endpoints, Vec<TcpListener>)> {
        let (pages, others): (Vec<_>, Vec<_>) = handed.into_iter().partition(|(is_page, _)| *is_page);
        let mut handed = others.into_iter().map(|(_, port)| port).collect();
        let configured = endpoints::bind_all(self.settings, self.paths, &mut handed)?;
        let pages = pages.into_iter().map(|(_, port)| endpoints::continue_loopback(port, self.settings));
        let pages = pages.collect::<Result<Vec<_>>>()?;
        let configured = configured.into_iter().map(|endpoint| (false, endpoint));
        Ok((configured.chain(pages.into_iter().map(|endpoint| (true, endpoint))).collect(), handed))
    }

    fn cannot_serve(&self, error: &std::io::Error) -> Error {
        Error::internal(format!("cannot serve on {}: {error}", self.paths.socket.display()))
    }
}

/// The listening sockets of a daemon, ready to accept, and its lock.
struct OpenDoors {
    guard: ClaimGuard,
    /// Copies, to be handed over.
    doors: Doors,
    local: tokio::net::UnixListener,
    ports: Vec<Port>,
}

/// A port that is ready to accept.
struct Port {
    is_page: bool,
    url: String,
    listener: net::Listener,
    guard: http::Guard,
}

impl OpenDoors {
    fn new(claim: Claim, endpoints: Vec<(bool, TcpEndpoint)>) -> std::io::Result<Self> {
        let mut doors = Doors { local: claim.listener.try_clone()?, ports: Vec::new() };
        let local = tokio::net::UnixListener::from_std(claim.listener)?;
        let ports = endpoints.into_iter().map(|(is_page, endpoint)| doors.open(is_page, endpoint));
        let ports = ports.collect::<std::io::Result<_>>()?;
        Ok(Self { guard: claim.guard, doors, local, ports })
    }
}

impl Doors {
    fn open(&mut self, is_page: bool, endpoint: TcpEndpoint) -> std::io::Result<Port> {
        self.ports.push((is_page, endpoint.listening()?));
        let url = endpoint.url.clone();
        let (listener, guard) = endpoint.into_listener()?;
        Ok(Port { is_page, url, listener, guard })
    }
}

/// Creates the threads that write event streams; they sleep while no stream is open.
fn writers() -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = cores.saturating_sub(1).clamp(1, WRITERS);
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).thread_name("streams").enable_all().build()
}

/// The number of threads that write event streams. One core is left to the engine, unless the
/// machine has only one.
const WRITERS: usize = 4;

/// Time that the daemon has to release tmux and its clients.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Serves the daemon's routes on a socket until `stop`, with these questions for a human: a daemon
/// without its lock, log and TCP ports. Public only for tests, which run the daemon in this way to
/// see its questions and to end it step by step.
#[doc(hidden)]
pub async fn serve_routes(
    listener: tokio::net::UnixListener,
    engine: Engine,
    approvals: Approvals,
    stop: CancellationToken,
) {
    let rooms = Arc::new(Rooms { approvals: Some(approvals), ..Rooms::default() });
    let app = http::App::new(engine, http::DaemonInfo { rooms, ..http::DaemonInfo::default() });
    let (router, writers) = (http::daemon_router(app), tokio::runtime::Handle::current());
    let open = net::OpenConnections::default();
    net::serve(net::Listener::Unix(listener), router, net::Limits::LOCAL, writers, open, stop).await;
}

/// Returns what the feature crates keep for this daemon, beside its engine.
fn rooms(settings: &Settings, paths: &Paths, engine: &Engine) -> Rooms {
    let approvals = Approvals::default();
    let places = muxtap_when::Places {
        journal: paths.when_journal_file(),
        added: paths.when_added_file(),
        server: own_socket_dir().join("default"),
    };
    Rooms {
        sessions: agent_sessions(settings, &approvals),
        approvals: Some(approvals),
        capability: Capability::default(),
        devices: Devices::in_dir(&paths.devices_dir()),
        peers: Peers::sharing(&paths.socket),
        recordings: Recordings::in_dir(paths.recordings_dir()),
        snapshots: Some(Store { snapshots: paths.snapshots_dir(), layouts: paths.layouts_dir() }),
        when: muxtap_when::When::start(engine, &settings.when, places),
    }
}

/// Returns the context of agents over HTTP, with the rules for all agents.
fn surroundings(settings: &Settings) -> ClientContext {
    ClientContext {
        server: Some(own_socket_dir().join("default")),
        sockets: Some(own_socket_dir()),
        confirm: settings.confirm.clone(),
        hold: Some(settings.mcp_hold),
        ..ClientContext::default()
    }
}

/// Returns the pages of this daemon. Windows that an earlier daemon left with a page's size get
/// their own size back.
fn pages(settings: &Settings, paths: &Paths, engine: &Engine) -> muxtap_page::Pages {
    engine.spawn(engine.clone().give_back_orphaned_fits());
    muxtap_page::Pages::new(paths.page_sessions_file(), &settings.page_folders, own_socket_dir())
}

/// Returns the engine's options. `handed`: the file of the audit log, from another daemon.
fn options(settings: &Settings, paths: &Paths, handed: Option<std::fs::File>) -> Result<Options> {
    Ok(Options {
        transports: transports(settings)?.into_iter().map(Arc::new).collect(),
        program: Program {
            tmux: settings.tmux.clone(),
            own: settings.own_tmux,
            name: ClientName::of_daemon(&paths.socket),
            foreign: settings.foreign_servers.clone().into(),
            ..Program::default()
        },
        coverage: settings.coverage,
        follow_for: settings.follow_for,
        floods: settings.floods,
        ring_bytes: settings.ring_bytes,
        budget_bytes: settings.budget_bytes,
        allowed: settings.allowed,
        audit: continued_audit(settings, handed)?,
        wait_results: Some(paths.waits_dir()),
        agents: Arc::new(agents(settings)?),
        shell_integration: settings.shell_integration,
        shell_folder: Some(paths.shell_dir()),
    })
}

/// Returns the folder of this user's named tmux sockets, for callers whose environment is not
/// known.
fn own_socket_dir() -> PathBuf {
    let base = std::env::var_os("TMUX_TMPDIR").filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/tmp".into());
    let base = std::fs::canonicalize(base).unwrap_or_else(|_| "/tmp".into());
    base.join(format!("tmux-{}", paths::uid()))
}

/// Checks whether a daemon could open the ports that the settings name. Creates no file and leaves
/// nothing open. Error: the one with which the daemon would refuse to start.
pub(crate) fn check_ports(settings: &Settings) -> Result<()> {
    endpoints::check(settings)
}

/// Returns the transports to the configured hosts.
pub(crate) fn transports(settings: &Settings) -> Result<Vec<Transport>> {
    let transport = |host: &HostSettings| {
        let tmux = host.tmux.as_deref().unwrap_or("tmux");
        let peer = match &host.muxtap {
            _ if host.no_peer => PeerChoice::Never,
            Some(program) => PeerChoice::Program(program.clone()),
            None => PeerChoice::Found,
        };
        Ok(Transport::new(&host.name, host.via.clone(), tmux)?.with_peer(peer))
    };
    settings.hosts.iter().map(transport).collect()
}

/// Returns the agent sessions of a daemon with these settings: an empty set at first.
fn agent_sessions(settings: &Settings, approvals: &Approvals) -> muxtap_sessions::AgentSessions {
    let providers = settings.agents.iter().map(|agent| muxtap_sessions::Provider {
        name: agent.name.clone(),
        command: agent.command.clone(),
        is_default: agent.default,
    });
    let elsewhere = muxtap_sessions::Elsewhere::new(Some(approvals.clone()), &|name| std::env::var(name).ok());
    muxtap_sessions::AgentSessions::new(muxtap_sessions::with_built_in(providers.collect()), elsewhere)
}

/// Opens the audit log. A place that the user chose must be usable; the built-in one may be
/// missing. A foreign file in its place is an error, so another user cannot turn off the recording.
#[cfg(feature = "bridge")]
pub(crate) fn audit(settings: &Settings) -> Result<Option<Arc<Audit>>> {
    continued_audit(settings, None)
}

/// `handed`: the log's file, from a daemon that writes it until this one takes over.
fn continued_audit(settings: &Settings, handed: Option<std::fs::File>) -> Result<Option<Arc<Audit>>> {
    let Some(path) = &settings.audit else { return Ok(None) };
    match Audit::continued(path, settings.audit_bytes, handed) {
        Ok(audit) => Ok(Some(Arc::new(audit))),
        Err(error) if settings.audit_is_chosen() || error.code == ErrorCode::Unauthorized => Err(error),
        Err(error) => {
            tracing::warn!("{error}; no audit log is written");
            Ok(None)
        }
    }
}

/// Loads the rules of agents. A file that the user named must be usable.
fn agents(settings: &Settings) -> Result<Rules> {
    let Some(file) = &settings.agents_file else { return Ok(Rules::built_in()) };
    match file.load() {
        Err(error) if !file.named => {
            tracing::warn!("{error}; your rules for agents are not in effect");
            Ok(Rules::built_in_with_error(&error))
        }
        loaded => loaded,
    }
}

/// Makes the C library keep the end of its heap.
///
/// By default it returns 128 KiB of free memory at the end to the kernel and requests them again
/// with the next wait: between a pane's byte and a response that was the largest single cost. What
/// it keeps is twice the largest mapping that it ever freed (mallopt(3), `M_MMAP_THRESHOLD`). Other
/// allocators start this program slower than all that a short command does.
fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(FREED_KEPT / 2)));
}

/// Free bytes that stay at the end of the heap.
const FREED_KEPT: usize = 4 << 20;
