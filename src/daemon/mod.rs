//! The process that holds the engine: where it is found, how it starts, how it stays single.

pub mod paths;
pub mod start;

use std::{path::PathBuf, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    api::{Error, Result},
    engine::{Engine, EngineOptions},
    http, metrics,
    tmux::{CoverageMode, Program},
};

/// Bytes of output kept for each pane unless told otherwise.
pub const DEFAULT_RING_BYTES: u64 = 1 << 20;
/// Bytes of output kept for all panes together unless told otherwise.
pub const DEFAULT_BUDGET_BYTES: u64 = 512 << 20;

/// How control clients are spread over a tmux server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CoverageChoice {
    /// A hub on servers that muxtap started, one client per session elsewhere.
    #[default]
    Auto,
    /// One client on a session of muxtap's own, into which every window is linked.
    Hub,
    /// One client per session; nothing is created on the server.
    Sessions,
}

/// What `muxtap serve` was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// A command started it and waits for `ready` on its stdout ([`start::report_ready`]).
    pub background: bool,
    /// The tmux program: a path, or a name that is looked for in `PATH`.
    pub tmux: PathBuf,
    /// How control clients are spread.
    pub coverage: CoverageChoice,
    /// Bytes of output kept for each pane.
    pub ring_bytes: u64,
    /// Bytes of output kept for all panes together.
    pub budget_bytes: u64,
    /// What goes to the log, in the words of `tracing`'s filter (`info`, `muxtap=debug`).
    pub log_level: String,
}

/// Runs the daemon until it is stopped, by `muxtap stop`, SIGTERM, SIGINT or SIGHUP.
pub fn serve(options: &ServeOptions) -> Result<()> {
    let paths = paths::Paths::from_env()?;
    let claim = start::claim(&paths)?;
    log_to(&paths, options)?;
    metrics::install();
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("cannot start the runtime: {error}")))?;
    let writers = writers().map_err(|error| Error::internal(format!("cannot start threads: {error}")))?;
    let result = runtime.block_on(answer(options, &paths, claim.listener, writers.handle().clone()));
    // A task that hangs in the kernel must not keep the daemon.
    writers.shutdown_timeout(http::CLOSE_LIMIT);
    runtime.shutdown_timeout(STOP_LIMIT);
    drop(claim.guard);
    result
}

/// The threads that write event streams; they sleep while there are none.
fn writers() -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = cores.saturating_sub(1).clamp(1, WRITERS);
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).thread_name("streams").enable_all().build()
}

/// Threads that write event streams: one core is left to the engine, but for a machine that has only one.
const WRITERS: usize = 4;

/// How long the daemon may take to let go of everything.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Clients end with the daemon where the system can do that. `/proc/self/exe` is this program even when its file was replaced meanwhile.
fn leash() -> Vec<std::ffi::OsString> {
    if cfg!(target_os = "linux") { crate::tmux::leash::words("/proc/self/exe".as_ref()) } else { Vec::new() }
}

async fn answer(
    options: &ServeOptions,
    paths: &paths::Paths,
    listener: std::os::unix::net::UnixListener,
    writers: tokio::runtime::Handle,
) -> Result<()> {
    let unable =
        |error: std::io::Error| Error::internal(format!("cannot answer on {}: {error}", paths.socket.display()));
    let listener = tokio::net::UnixListener::from_std(listener).map_err(unable)?;
    let engine = Engine::new(EngineOptions {
        program: Program { tmux: options.tmux.clone(), prefix: Vec::new(), leash: leash() },
        coverage: options.coverage.into(),
        ring_bytes: usize::try_from(options.ring_bytes).unwrap_or(usize::MAX),
        budget_bytes: usize::try_from(options.budget_bytes).unwrap_or(usize::MAX),
    });
    let app = http::App::new(engine.clone(), paths.socket.display().to_string(), Some(paths.log.display().to_string()));
    let app = app.with_streams(http::Streams::new(writers));
    let router = http::router(app.clone());
    let background = options.background;
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = signals else {
        return Err(Error::internal("cannot listen for signals"));
    };
    if options.background {
        start::report_ready();
    }
    tracing::info!("muxtap {} answers on {}", env!("CARGO_PKG_VERSION"), paths.socket.display());
    let streams = app.streams.clone();
    let stopping = {
        let engine = engine.clone();
        async move {
            tokio::select! {
                () = app.stop_asked() => {}
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv(), if !background => {}
            }
            tracing::info!("stopping");
            // Open waits and streams end with the engine; then their connections do.
            if tokio::time::timeout(STOP_LIMIT, engine.stop()).await.is_err() {
                tracing::warn!("not everything let go of tmux in time");
            }
        }
    };
    http::serve(listener, router, streams, stopping).await;
    Ok(())
}

/// Logs go to stderr; in the background that is the log file, opened by the one who started this process.
fn log_to(paths: &paths::Paths, options: &ServeOptions) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&options.log_level)
        .map_err(|error| Error::invalid(format!("--log-level {:?}: {error}", options.log_level)))?;
    let _ = paths;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A second subscriber in one process (a test) is no failure of the daemon.
    let _ = subscriber.try_init();
    Ok(())
}

/// Every pane's process is watched by a descriptor of its own.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // The lower limit serves too, for fewer panes.
        let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
    }
}

impl From<CoverageChoice> for CoverageMode {
    fn from(choice: CoverageChoice) -> Self {
        match choice {
            CoverageChoice::Auto => Self::Auto,
            CoverageChoice::Hub => Self::Hub,
            CoverageChoice::Sessions => Self::Sessions,
        }
    }
}
