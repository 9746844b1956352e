//! The link to a peer: one process of the transport, with HTTP/2 over its pipes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use muxtap_api::{Error, PeerInfo, PeerState, Result, wire::KEYS};
use muxtap_base::plain;
use muxtap_engine::Engine;
use muxtap_tmux::{FIRST_ANSWER_LIMIT, NO_PEER, PEER_GREETING, Transport};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout},
    sync::watch,
    time::timeout,
};

/// The time for which a host is assumed to have no muxtap after an attempt found none.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// The pause after a first attempt that failed; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most bytes that a profile may print before the greeting.
const BANNER_BYTES: u64 = 1 << 20;
/// The most bytes of stderr that are kept: ssh's last lines have the reason of a failure.
const STDERR_BYTES: usize = 8 << 10;
/// The silence after which a link is pinged, and the time limit for the reply.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The time limit for ssh to print its configuration.
const CONFIGURATION_LIMIT: Duration = Duration::from_secs(5);
/// The time for which a connection may remain at the end for requests that share it.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// The longest path of a socket that ssh creates, in bytes: ssh first creates it under a longer
/// temporary name.
const CONTROL_PATH_BYTES: usize = 88;
/// The most bytes in flight for one response whose reader does not take them.
const STREAM_WINDOW: u32 = 1 << 20;
/// The most bytes in flight for all responses: a stalled reader must not delay the others.
const LINK_WINDOW: u32 = i32::MAX as u32;

type Sender = http2::SendRequest<Full<Bytes>>;
type Connection = http2::Connection<TokioIo<Pipes>, Full<Bytes>, TokioExecutor>;
type Pipes = tokio::io::Join<BufReader<ChildStdout>, ChildStdin>;

/// An open link. Clones are cheap and share one connection.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) sender: Sender,
    version: String,
    /// Whether the peer accepts idempotency keys.
    pub(super) takes_keys: bool,
}

/// The connection to the muxtap of one host.
pub struct PeerHost {
    engine: Engine,
    transport: Arc<Transport>,
    state: watch::Sender<State>,
    /// The socket by which other processes share ssh's connection, if possible.
    control: Option<PathBuf>,
    /// Whether a process of muxtap's listens on it.
    is_shared: AtomicBool,
}

#[derive(Clone, Debug)]
enum State {
    /// No request has needed the link yet.
    Unasked,
    /// An attempt is in progress.
    Connecting,
    Up(Link),
    /// The host has no muxtap.
    Absent {
        why: String,
        since: Instant,
    },
    /// The link is down. The next attempt is made on the first request after `next`.
    Down {
        error: Error,
        tries: u32,
        next: Instant,
    },
}

/// The reason why an attempt failed.
enum Failure {
    /// The host was reached, but has no usable muxtap.
    Absent(String, Option<Held>),
    /// The host was not reached.
    Down(Error),
}

/// A process whose connection others share, until it ends or its stdin is closed.
struct Held {
    child: Child,
    stdin: Option<ChildStdin>,
    control: PathBuf,
}

/// The sharing of a connection, which ends when this value is dropped.
struct Shared<'a>(&'a PeerHost);

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.0.transport.share(None);
        self.0.is_shared.store(false, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for PeerHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerHost").field("host", &self.name()).finish_non_exhaustive()
    }
}

impl PeerHost {
    pub(super) fn new(engine: Engine, transport: Arc<Transport>, sockets: Option<&Path>) -> Self {
        let control = sockets.and_then(|path| {
            let path = format!("{}.ssh-{}", path.to_str()?, transport.name());
            let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%' && byte != b'"');
            (is_plain && path.len() <= CONTROL_PATH_BYTES).then(|| path.into())
        });
        let state = watch::Sender::new(State::Unasked);
        Self { engine, transport, state, control, is_shared: AtomicBool::new(false) }
    }

    /// Spawns a task that outlives its caller.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.engine.spawn(task);
    }

    /// Returns the host's name.
    pub(crate) fn name(&self) -> &str {
        self.transport.name()
    }

    /// Returns whether the host has muxtap; connects unless that was tried recently. Error: the
    /// host cannot be reached.
    pub async fn is_there(self: &Arc<Self>) -> Result<bool> {
        Ok(self.link().await?.is_some())
    }

    /// Returns the state of the host's muxtap. `None`: unknown.
    pub(super) fn info(&self) -> Option<PeerInfo> {
        let (state, version, error) = match &*self.state.borrow() {
            State::Unasked => return None,
            State::Connecting => (PeerState::Connecting, None, None),
            State::Up(link) => (PeerState::Connected, Some(link.version.clone()), None),
            State::Absent { why, .. } => (PeerState::Absent, None, Some(why.clone())),
            State::Down { error, .. } => (PeerState::Down, None, Some(error.message.clone())),
        };
        Some(PeerInfo { state, version, error })
    }

    /// Returns the link; connects first if necessary. `None`: the host has no muxtap.
    ///
    /// Error: `TMUX_UNAVAILABLE` while the host cannot be reached.
    pub(super) async fn link(self: &Arc<Self>) -> Result<Option<Link>> {
        let mut state = self.state.subscribe();
        let end = self.engine.end();
        loop {
            if end.is_cancelled() {
                return Err(stopping());
            }
            self.connect_if_due();
            match &*state.borrow_and_update() {
                State::Up(link) if !link.sender.is_closed() => return Ok(Some(link.clone())),
                State::Absent { .. } => return Ok(None),
                State::Down { error, .. } => return Err(error.clone()),
                // The task that drives a closed link is about to update its state.
                State::Up(_) | State::Unasked | State::Connecting => {}
            }
            tokio::select! {
                // The sender lives as long as `self`.
                _ = state.changed() => {}
                () = end.cancelled() => {}
            }
        }
    }

    /// Returns the link, and waits for it while the host cannot be reached. Error: the host could
    /// not be reached until then, or no longer has muxtap.
    pub(super) async fn link_until(self: &Arc<Self>, until: Option<Instant>) -> Result<Link> {
        let end = self.engine.end();
        loop {
            let error = match self.link().await {
                Ok(Some(link)) => return Ok(link),
                Ok(None) => return Err(self.gone()),
                Err(error) => error,
            };
            // Retried by time: no event announces that a network is back.
            let next = match &*self.state.borrow() {
                State::Down { next, .. } => *next,
                _ => Instant::now(),
            };
            if until.is_some_and(|until| next >= until) {
                return Err(error);
            }
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {}
                () = end.cancelled() => return Err(stopping()),
            }
        }
    }

    fn gone(&self) -> Error {
        let why = match &*self.state.borrow() {
            State::Absent { why, .. } => why.clone(),
            _ => "it has exited".into(),
        };
        Error::unavailable(format!("host {}: muxtap is not available on it: {why}", self.name()))
    }

    fn connect_if_due(self: &Arc<Self>) {
        let mut tries = 0;
        let is_due = self.state.send_if_modified(|state| {
            tries = match state {
                State::Unasked => 0,
                State::Absent { since, .. } if since.elapsed() >= LOOK_AGAIN => 0,
                State::Down { tries, next, .. } if *next <= Instant::now() => *tries,
                _ => return false,
            };
            *state = State::Connecting;
            true
        });
        if is_due {
            let peer = self.clone();
            self.engine.spawn(async move { peer.run(tries + 1).await });
        }
    }

    /// Connects, and drives the link until it ends.
    async fn run(&self, tries: u32) {
        let end = self.engine.end();
        let connected = tokio::select! {
            connected = self.connect() => connected,
            () = end.cancelled() => Err(Failure::Down(stopping())),
        };
        let (child, link, connection) = match connected {
            Ok(connected) => connected,
            Err(Failure::Down(error)) => {
                self.state.send_replace(State::Down { error, tries, next: Instant::now() + pause(tries) });
                return;
            }
            Err(Failure::Absent(why, held)) => {
                tracing::debug!("host {}: muxtap is not available on it: {why}", self.name());
                let absent = State::Absent { why, since: Instant::now() };
                match held {
                    Some(held) => self.hold(held, absent).await,
                    None => drop(self.state.send_replace(absent)),
                }
                return;
            }
        };
        let _shared = self.control.clone().filter(|_| self.is_shared.load(Ordering::SeqCst)).map(|it| self.share(it));
        tracing::info!("host {}: linked to muxtap {}", self.name(), link.version);
        self.state.send_replace(State::Up(link));
        let why = tokio::select! {
            ended = connection => ended.err().map_or_else(|| "closed".to_owned(), |error| error.to_string()),
            () = end.cancelled() => "muxtap is stopping".to_owned(),
        };
        drop(child);
        tracing::info!("host {}: the link was lost: {why}", self.name());
        let error =
            Error::unavailable(format!("host {}: the link was lost ({why}) and is not restored yet", self.name()));
        self.state.send_replace(State::Down { error, tries: 0, next: Instant::now() });
    }

    /// Keeps the connection to a host without muxtap open for other processes, until it ends.
    async fn hold(&self, mut held: Held, absent: State) {
        let end = self.engine.end();
        let _shared = self.share(held.control.clone());
        self.state.send_replace(absent);
        let Held { child, stdin, .. } = &mut held;
        tokio::select! {
            _ = child.wait() => {}
            () = end.cancelled() => {
                // Without its stdin it ends when the processes that share its connection have
                // ended.
                drop(stdin.take());
                let _ = timeout(LEAVE_LIMIT, child.wait()).await;
                return;
            }
        }
        // The next request connects anew and shares that connection.
        self.state.send_if_modified(|state| {
            let is_absent = matches!(state, State::Absent { .. });
            if is_absent {
                *state = State::Unasked;
            }
            is_absent
        });
    }

    fn share(&self, control: PathBuf) -> Shared<'_> {
        self.transport.share(Some(control));
        Shared(self)
    }

    /// Returns the socket on which the next process listens. `None`: another process listens
    /// already, or the user's own configuration shares connections.
    async fn control_for_next(&self) -> Option<&Path> {
        let control = self.control.as_deref()?;
        if self.is_shared.load(Ordering::SeqCst) {
            return None;
        }
        let mut ssh = self.transport.ssh_configuration()?;
        let configured = timeout(CONFIGURATION_LIMIT, ssh.stdin(Stdio::null()).output()).await.ok()?.ok()?;
        let text = String::from_utf8_lossy(&configured.stdout).to_ascii_lowercase();
        let own = text.lines().any(|line| line.strip_prefix("controlpath ").is_some_and(|path| path.trim() != "none"));
        if own || !configured.status.success() {
            return None;
        }
        // A process that was killed may have left a socket.
        let _ = std::fs::remove_file(control);
        if control.symlink_metadata().is_ok() {
            tracing::warn!(
                "{} belongs to another user: remove it, or set MUXTAP_SOCKET to another path; connections to {} are \
                 not shared",
                control.display(),
                self.name()
            );
            return None;
        }
        Some(control)
    }

    async fn connect(&self) -> Result<(Child, Link, Connection), Failure> {
        let control = self.control_for_next().await;
        let Some(mut command) = self.transport.peer(control) else {
            return Err(Failure::Absent("disabled for this host".into(), None));
        };
        let unable = |error: &dyn std::fmt::Display| {
            let message = format!("host {}: cannot run `{}`: {error}", self.name(), self.transport.prefix());
            Failure::Down(Error::unavailable(message))
        };
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Failure::Down(self.transport.cannot_run(&error)))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(unable(&"the process has no pipes"));
        };
        let said = watch::Sender::new(String::new());
        let heard = said.subscribe();
        self.engine.spawn(collect(stderr, said));
        let mut stdout = BufReader::new(stdout);
        let greeted = timeout(FIRST_ANSWER_LIMIT, greeting(&mut stdout)).await;
        let (version, takes_keys) = match greeted {
            Ok(Some(Greeting::Version(version, can))) => {
                self.is_shared.fetch_or(control.is_some(), Ordering::SeqCst);
                (version, can.iter().any(|can| can == KEYS))
            }
            Ok(Some(Greeting::None)) => {
                self.is_shared.fetch_or(control.is_some(), Ordering::SeqCst);
                let held = control.map(|control| Held { child, stdin: Some(stdin), control: control.into() });
                return Err(Failure::Absent("not found".into(), held));
            }
            Ok(None) => {
                // Its message is complete when stderr has ended, a moment later.
                let mut heard = heard;
                let _ = timeout(FIRST_ANSWER_LIMIT, async { while heard.changed().await.is_ok() {} }).await;
                let said = heard.borrow().clone();
                let said = self.transport.with_state(said.trim().to_owned(), FIRST_ANSWER_LIMIT).await;
                return Err(self.failure(&said));
            }
            Err(_) => return Err(Failure::Down(self.transport.silent(FIRST_ANSWER_LIMIT))),
        };
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(LINK_WINDOW);
        let handshake = builder.handshake(TokioIo::new(tokio::io::join(stdout, stdin))).await;
        let (sender, connection) = handshake.map_err(|error| unable(&error))?;
        Ok((child, Link { sender, version, takes_keys }, connection))
    }

    /// Returns the reason why a command ended without a greeting, from its stderr.
    fn failure(&self, said: &str) -> Failure {
        use muxtap_api::Unreachable::{NoTmux, TooOld};

        match self.transport.reason(said) {
            Some(reason) if !matches!(reason, NoTmux | TooOld) => Failure::Down(self.transport.error(reason, said)),
            _ => {
                let last = said.trim().lines().last().unwrap_or("the command ended without a message");
                Failure::Absent(plain::name(last).chars().take(200).collect(), None)
            }
        }
    }
}

pub(super) fn pause(tries: u32) -> Duration {
    LONGEST_PAUSE.min(FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(10)))
}

fn stopping() -> Error {
    Error::unavailable("muxtap is stopping")
}

enum Greeting {
    /// The peer's version, and words for its capabilities.
    Version(String, Vec<String>),
    None,
}

/// Reads up to the greeting, the line that tells whether the host has muxtap. `None`: no such line
/// came.
async fn greeting(stdout: &mut (impl AsyncBufRead + Unpin)) -> Option<Greeting> {
    let mut banner = stdout.take(BANNER_BYTES);
    let mut line = Vec::new();
    loop {
        line.clear();
        if banner.read_until(b'\n', &mut line).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.ends_with(NO_PEER) {
            return Some(Greeting::None);
        }
        // A profile may have printed the beginning of the line.
        if let Some((_, words)) = text.rsplit_once(PEER_GREETING) {
            let mut words = words.split(' ').map(|word| plain::name(word).chars().take(32).collect());
            return Some(Greeting::Version(words.next().unwrap_or_default(), words.collect()));
        }
    }
}

/// Keeps the last bytes of stderr.
async fn collect(mut stderr: impl AsyncRead + Unpin, said: watch::Sender<String>) {
    let mut chunk = vec![0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        let text = String::from_utf8_lossy(chunk.get(..read).unwrap_or_default()).into_owned();
        said.send_modify(|said| {
            said.push_str(&text);
            let surplus = said.len().saturating_sub(STDERR_BYTES);
            let at = (surplus..=said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(0);
            said.drain(..at);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn greeted(printed: &str) -> String {
        match greeting(&mut printed.as_bytes()).await {
            Some(Greeting::Version(version, can)) => [version].into_iter().chain(can).collect::<Vec<_>>().join("+"),
            Some(Greeting::None) => "none".into(),
            None => "nothing".into(),
        }
    }

    #[tokio::test]
    async fn what_a_profile_prints_before_the_greeting_is_skipped() {
        assert_eq!(greeted("Welcome!\nmuxtap-peer 1 0.1.0\nPRI").await, "0.1.0");
        assert_eq!(greeted("no line end: muxtap-peer 1 0.2.0\n").await, "0.2.0");
        assert_eq!(greeted("muxtap-peer 1 0.3.0 keys more\n").await, "0.3.0+keys+more");
        assert_eq!(greeted("Welcome!\nmuxtap-peer none\n").await, "none");
        assert_eq!(greeted("muxtap-peer 2 9.0.0\n").await, "nothing", "a later protocol is none that is spoken here");
        assert_eq!(greeted("").await, "nothing");
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<_> = (1..9).map(|tries| pause(tries).as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    #[tokio::test]
    async fn the_end_of_stderr_is_kept() {
        let said = watch::Sender::new(String::new());
        let kept = said.subscribe();
        let text = format!("{}é the end", "é".repeat(STDERR_BYTES));
        collect(text.as_bytes(), said).await;
        let kept = kept.borrow();
        assert!(kept.len() <= STDERR_BYTES && kept.ends_with("é the end"), "{}", kept.len());
    }
}
