//! The spreadsheet bridge: contract v1 over HTTP, for an add-in that types into terminals
//! (`docs/bridge.md`).
//!
//! The bridge is a separate foreground process, beside the daemon, with its own engine for one tmux
//! server. A request passes through `handler` (access checks, in the contract's order), `request`
//! (validation), and a backend: `live` uses the engine, `stub` keeps lines in memory. `pattern`
//! implements JavaScript's regular expressions.

mod capture_cache;
mod handler;
mod host;
mod js;
mod json;
mod live;
mod pattern;
mod request;
mod response;
pub mod settings;
mod stub;
pub mod tls;
mod wait;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use axum::Router;
use muxtap_engine::{Options, audit::Audit};
use muxtap_net::token::Token;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{
    handler::{Backend, BridgeState, Secret},
    live::Live,
    pattern::PatternCache,
    settings::{Mode, Settings, TokenSource},
    stub::Stub,
};

/// Serves until a signal arrives. `options`: the user's settings for an engine. `audit` opens the
/// engine's audit log, if there is an engine. Error: the reason why the bridge could not start.
pub async fn serve(
    settings: &Settings,
    options: Options,
    audit: impl FnOnce() -> muxtap_api::Result<Option<Arc<Audit>>>,
) -> Result<(), String> {
    let secret = secret(&settings.token)?;
    let acceptor = tls::acceptor(&settings.tls, &settings.host, &|name| std::env::var_os(name))?;
    let hangup = if hangup_is_ignored() { SignalKind::terminate() } else { SignalKind::hangup() };
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), hangup].map(signal);
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = signals else {
        return Err("cannot listen for signals".into());
    };
    let backend = match settings.mode {
        Mode::Stub => Backend::Stub(Stub::new(own_program()?)),
        Mode::Tmux => {
            let live = Live::start(settings, options, audit).await;
            Backend::Live(Box::new(live.map_err(|error| format!("Failed to initialize tmux backend: {error}"))?))
        }
    };
    let listeners = listen(&settings.host, settings.port).await;
    let listeners = match listeners {
        Ok(listeners) => listeners,
        Err(error) => {
            backend.stop().await;
            return Err(error);
        }
    };
    let port =
        listeners.first().and_then(|listener| listener.local_addr().ok()).map_or(settings.port, |addr| addr.port());
    let owners_told = listeners.iter().all(muxtap_net::owner::is_told);
    let state = Arc::new(BridgeState {
        backend,
        origins: settings.origins.clone(),
        secret,
        host: settings.host.clone(),
        owners_told,
        refusal_logged: AtomicBool::new(false),
        patterns: PatternCache::default(),
    });
    let router = Router::new().fallback(handler::handle).with_state(state.clone());
    let stop = CancellationToken::new();
    let mut serving = JoinSet::new();
    for listener in listeners {
        let listener = match &acceptor {
            Some(acceptor) => muxtap_net::Listener::Tls(listener, acceptor.clone()),
            None => muxtap_net::Listener::Tcp(listener),
        };
        serving.spawn(muxtap_net::serve(
            listener,
            router.clone(),
            muxtap_net::Limits::TCP,
            tokio::runtime::Handle::current(),
            muxtap_net::OpenConnections::default(),
            stop.clone(),
        ));
    }
    // The parent process may have closed this one's stdout.
    let _ = io::stdout().write_all(started(settings, port).as_bytes()).and_then(|()| io::stdout().flush());
    for line in weaknesses(settings, owners_told) {
        let _ = writeln!(io::stderr(), "{line}");
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
    tracing::info!("stopping");
    stop.cancel();
    // Open waits get their responses when the engine stops; then their connections end.
    let ((), ()) = tokio::join!(state.backend.stop(), async { while serving.join_next().await.is_some() {} });
    Ok(())
}

/// Returns the required bearer token; creates it if `--token` is set and the token is missing.
fn secret(source: &TokenSource) -> Result<Secret, String> {
    Ok(match source {
        TokenSource::None => Secret::None,
        TokenSource::Given(token) => Secret::Given(token.clone()),
        TokenSource::File(path) => {
            let remedy = "remove it; the next start of the bridge creates a new one";
            Secret::File(Token::open_of(path, remedy).map_err(|error| error.message)?)
        }
    })
}

/// Returns the startup lines about what contract v1, or this system, leaves weaker than possible.
fn weaknesses(settings: &Settings, owners_told: bool) -> Vec<String> {
    let has_token = settings.token != TokenSource::None;
    let mut lines = Vec::new();
    if !owners_told && !has_token {
        lines.push(
            "warning: this system does not report which user connects, so every user of this machine can type into \
             these sessions; `muxtap bridge --token` requires a token"
                .to_owned(),
        );
    } else if !has_token {
        lines.push(
            "note: contract v1 requires no token and checks no content type; programs of this user and of root, and \
             pages of the allowed origins, can type into these sessions; `muxtap bridge --token` requires a token"
                .to_owned(),
        );
    }
    if settings.origins.iter().any(|origin| origin == "null") {
        lines.push(
            "warning: ALLOWED_ORIGINS contains `null`, the origin of files and sandboxed frames: every web page can \
             show such a frame"
                .to_owned(),
        );
    }
    lines
}

/// Returns the path of this program, which also serves as the worker process that matches patterns.
fn own_program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find muxtap's own program: {error}"))?;
    // Names the same program even if its file is replaced in the meantime.
    Ok(if cfg!(target_os = "linux") { PathBuf::from("/proc/self/exe") } else { own })
}

/// Returns whether SIGHUP is ignored (`nohup`), so that the bridge does not end with its terminal.
/// Known on Linux only.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is signal 1.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Listens on every address of the host: `localhost` has two.
async fn listen(host: &str, port: u16) -> Result<Vec<TcpListener>, String> {
    let unable = |error: io::Error| format!("cannot listen on {host}:{port}: {error}");
    let mut addrs: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await.map_err(unable)?.collect();
    addrs.sort_by_key(|addr| (addr.is_ipv6(), *addr));
    addrs.dedup();
    let mut listeners: Vec<TcpListener> = Vec::new();
    for mut addr in addrs {
        // All addresses use the port of the first one.
        if let Some(first) = listeners.first() {
            addr.set_port(first.local_addr().map_err(unable)?.port());
        }
        match TcpListener::bind(addr).await {
            Ok(listener) => listeners.push(listener),
            // This machine has no IPv6.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable && addr.is_ipv6() => {}
            Err(error) => return Err(unable(error)),
        }
    }
    if listeners.is_empty() {
        return Err(format!("cannot listen on {host}:{port}: no address found"));
    }
    Ok(listeners)
}

/// Returns the lines that announce the address, mode and origins.
fn started(settings: &Settings, port: u16) -> String {
    let scheme = if settings.tls == settings::Tls::Off { "http" } else { "https" };
    let host = match settings.host.parse() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => settings.host.clone(),
    };
    let url = format!("{scheme}://{host}:{port}");
    let mut lines = format!(
        "tmux bridge listening on {url}\nmode: {}\nhealth: {url}/health\nendpoint: {url}/v1/tmux\n\
         allowed origins: {}\n",
        settings.mode.as_str(),
        settings.origins.join(", ")
    );
    match &settings.token {
        TokenSource::None => {}
        TokenSource::Given(_) => lines.push_str("auth: bearer token required (TMUX_BRIDGE_TOKEN)\n"),
        TokenSource::File(path) => {
            lines.push_str("auth: bearer token required (in ");
            lines.push_str(&path.display().to_string());
            lines.push_str(")\n");
        }
    }
    if settings.mode == Mode::Tmux {
        lines.push_str("tmux socket: ");
        lines.push_str(&settings.socket.display().to_string());
        lines.push('\n');
    }
    lines
}

/// Matches patterns until the end of input, if this process was started as a worker of a bridge.
/// `None`: this process is not a worker.
pub fn run_if_worker(args: impl IntoIterator<Item = OsString>) -> Option<std::process::ExitCode> {
    pattern::run_if_worker(args)
}
