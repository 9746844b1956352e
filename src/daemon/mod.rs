//! The process that holds the engine: how it is found, started and kept single.

mod activation;
mod endpoints;
pub(crate) mod log;
pub mod start;

use std::{path::PathBuf, sync::Arc, time::Duration};

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
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::endpoints::TcpEndpoint;
use crate::{
    api::{Error, ErrorCode, Result},
    config::{
        HostSettings, Settings,
        paths::{self, Paths},
    },
};

/// Runs the daemon until it is stopped, by `muxtap stop`, SIGTERM, SIGINT or SIGHUP. `background`:
/// a command started it and waits for `ready` on its stdout ([`start::report_ready`]).
pub fn serve(settings: &Settings, background: bool) -> Result<()> {
    let paths = Paths::from_env()?;
    descriptors::prepare();
    let claim = start::claim(&paths, background)?;
    // Dropped last, outside of the runtime.
    let _traces = log::to_stderr(&settings.log_level, settings.log_format, settings.otlp.as_deref())?;
    metrics::install();
    keep_freed_memory();
    let endpoints = endpoints::bind_all(settings, &paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // The C library keeps the memory that each thread has freed. The jobs of these threads are
        // short.
        .max_blocking_threads(4)
        .build()
        .map_err(|error| Error::internal(format!("cannot start the runtime: {error}")))?;
    let writers = writers().map_err(|error| Error::internal(format!("cannot start threads: {error}")))?;
    let result =
        runtime.block_on(run(settings, &paths, claim.listener, endpoints, writers.handle().clone(), background));
    // A task that hangs in the kernel must not keep the daemon alive.
    writers.shutdown_timeout(http::CLOSE_LIMIT);
    runtime.shutdown_timeout(STOP_LIMIT);
    drop(claim.guard);
    result
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
fn rooms(settings: &Settings, paths: &Paths) -> Rooms {
    let approvals = Approvals::default();
    Rooms {
        sessions: agent_sessions(settings, &approvals),
        approvals: Some(approvals),
        capability: Capability::default(),
        devices: Devices::in_dir(&paths.devices_dir()),
        peers: Peers::sharing(&paths.socket),
        recordings: Recordings::in_dir(paths.recordings_dir()),
        snapshots: Some(Store { snapshots: paths.snapshots_dir(), layouts: paths.layouts_dir() }),
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

/// Returns the engine that the settings describe.
fn engine(settings: &Settings, paths: &Paths) -> Result<Engine> {
    Ok(Engine::new(Options {
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
        audit: audit(settings)?,
        agents: Arc::new(agents(settings)?),
        shell_integration: settings.shell_integration,
        shell_folder: Some(paths.shell_dir()),
    }))
}

/// Listens for the signals that end the daemon.
fn signals() -> Result<[Signal; 3]> {
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [Ok(terminate), Ok(interrupt), Ok(hangup)] = signals else {
        return Err(Error::internal("cannot listen for signals"));
    };
    Ok([terminate, interrupt, hangup])
}

async fn run(
    settings: &Settings,
    paths: &Paths,
    listener: std::os::unix::net::UnixListener,
    endpoints: Vec<TcpEndpoint>,
    writers: tokio::runtime::Handle,
    background: bool,
) -> Result<()> {
    let unable =
        |error: std::io::Error| Error::internal(format!("cannot serve on {}: {error}", paths.socket.display()));
    let listener = tokio::net::UnixListener::from_std(listener).map_err(unable)?;
    let engine = engine(settings, paths)?;
    let rooms = Arc::new(rooms(settings, paths));
    let pages = pages(settings, paths, &engine);
    let mut wanted_ports = pages.open_requests();
    let about = http::DaemonInfo {
        socket: paths.socket.display().to_string(),
        http: endpoints.iter().map(|endpoint| endpoint.url.clone()).collect(),
        log: log::is_stderr(&paths.log).then(|| paths.log.display().to_string()),
        problem: Some(log::problem),
        config: settings.answer(),
        files: settings.files().to_vec(),
        rooms: rooms.clone(),
        agents: surroundings(settings),
        page: pages.clone(),
    };
    let app = http::App::with_streams(engine.clone(), about, http::Streams::new(writers.clone(), &engine));
    let router = http::daemon_router(app.clone());
    let [mut terminate, mut interrupt, mut hangup] = signals()?;
    let stop = CancellationToken::new();
    let mut served = tokio::task::JoinSet::new();
    let open = net::OpenConnections::default();
    // A daemon that was started on purpose, or that must be reachable on a port, stays.
    let idle_end = settings.idle_end.filter(|_| background && endpoints.is_empty());
    let serve_endpoint = |served: &mut tokio::task::JoinSet<()>, mut endpoint: TcpEndpoint| {
        tracing::info!("listening on {}", endpoint.url);
        endpoint.guard.sessions = Some(rooms.devices.sessions.clone());
        endpoint.guard.pages = Some(pages.sessions.clone());
        let (listener, guard) = endpoint.into_listener().map_err(unable)?;
        served.spawn(net::serve(
            listener,
            http::with_guard(router.clone(), guard),
            net::Limits::TCP,
            writers.clone(),
            open.clone(),
            stop.clone(),
        ));
        Ok::<_, Error>(())
    };
    for endpoint in endpoints {
        serve_endpoint(&mut served, endpoint)?;
    }
    let (listener, local) = (net::Listener::Unix(listener), router.clone());
    served.spawn(net::serve(listener, local, net::Limits::LOCAL, writers.clone(), open.clone(), stop.clone()));
    tracing::info!("muxtap {} listening on {}", env!("CARGO_PKG_VERSION"), paths.socket.display());
    if background {
        start::report_ready(log::problem().as_deref());
    } else {
        activation::ready().await;
    }
    let is_idle = || engine.is_idle() && rooms.sessions.is_idle();
    // A page needs a port if none was configured.
    let ports = async {
        while let Some(answer) = wanted_ports.recv().await {
            let opened = endpoints::bind_loopback(settings).and_then(|endpoint| {
                let url = endpoint.url.clone();
                serve_endpoint(&mut served, endpoint).map(|()| url)
            });
            let _ = answer.send(opened);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = app.stop_asked() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv(), if !background => {}
        () = idle(is_idle, &open, idle_end) => tracing::info!("exiting: idle"),
        () = ports => {}
        () = activation::keep_watchdog(), if !background => {}
    }
    if !background {
        activation::stopping().await;
    }
    tracing::info!("stopping");
    rooms.sessions.stop().await;
    pages.end().await;
    // Open waits and streams end with the engine; then their connections do.
    if tokio::time::timeout(STOP_LIMIT, engine.stop()).await.is_err() {
        tracing::warn!("timeout while detaching from tmux");
    }
    stop.cancel();
    let served = async { while served.join_next().await.is_some() {} };
    tokio::join!(app.streams().ended(), served);
    Ok(())
}

/// Resolves when nothing is followed and no connection was open for this long. `None`: never.
async fn idle(is_idle: impl Fn() -> bool, open: &net::OpenConnections, long: Option<Duration>) {
    let Some(long) = long else { return std::future::pending().await };
    loop {
        open.none_for(long).await;
        if is_idle() {
            return;
        }
    }
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
pub(crate) fn audit(settings: &Settings) -> Result<Option<Arc<Audit>>> {
    let Some(path) = &settings.audit else { return Ok(None) };
    match Audit::open(path, settings.audit_bytes) {
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
