//! The link to a peer: a byte stream with HTTP/2 over it, made when a request needs it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use muxtap_api::{Error, PeerInfo, PeerState, Result};
use muxtap_engine::Engine;
use tokio::sync::watch;

use super::dial::{Dial, Failure, Line, Stream};

/// The time for which a host is assumed to have no muxtap after an attempt found none.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// The pause after a first attempt that failed; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The silence after which a link is pinged, and the time limit for the reply.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The most bytes in flight for one response whose reader does not take them.
const STREAM_WINDOW: u32 = 1 << 20;
/// The most bytes in flight for all responses: a stalled reader must not delay the others.
const LINK_WINDOW: u32 = i32::MAX as u32;

type Sender = http2::SendRequest<Full<Bytes>>;
type Connection = http2::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>, TokioExecutor>;

/// An open link. Clones are cheap and share one connection.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) sender: Sender,
    version: String,
    /// Whether the peer accepts idempotency keys.
    pub(super) takes_keys: bool,
    /// Counts the requests that use the link.
    users: Arc<()>,
}

/// The connection to the muxtap of one host; in a fleet, for requests of one tier.
pub struct PeerHost {
    engine: Engine,
    dial: Box<dyn Dial>,
    state: watch::Sender<State>,
    /// When a request last asked for the link.
    used: Mutex<Instant>,
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

impl std::fmt::Debug for PeerHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerHost").field("host", &self.name()).finish_non_exhaustive()
    }
}

impl PeerHost {
    pub(super) fn new(engine: Engine, dial: Box<dyn Dial>) -> Self {
        Self { engine, dial, state: watch::Sender::new(State::Unasked), used: Mutex::new(Instant::now()) }
    }

    /// Spawns a task that outlives its caller.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.engine.spawn(task);
    }

    /// Returns the host's name.
    pub(crate) fn name(&self) -> &str {
        self.dial.host()
    }

    /// Returns whether the host has muxtap; connects unless that was tried recently. Error: the
    /// host cannot be reached.
    pub async fn is_there(self: &Arc<Self>) -> Result<bool> {
        Ok(self.link().await?.is_some())
    }

    /// Returns whether a wait on the host is found again by its key, over another link. Error: the host
    /// cannot be reached.
    pub async fn takes_keys(self: &Arc<Self>) -> Result<bool> {
        Ok(self.link().await?.is_some_and(|link| link.takes_keys))
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
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
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
        let (link, connection, kept) = match connected {
            Ok(connected) => connected,
            Err(Failure::Down(error)) => {
                let pause = pause(tries).min(self.dial.longest_pause());
                self.state.send_replace(State::Down { error, tries, next: Instant::now() + pause });
                return;
            }
            Err(Failure::Absent(why, held)) => {
                tracing::debug!("host {}: muxtap is not available on it: {why}", self.name());
                self.state.send_replace(State::Absent { why, since: Instant::now() });
                if let Some(held) = held {
                    held.await;
                    // The next request connects anew and shares that connection.
                    self.state.send_if_modified(|state| {
                        let is_absent = matches!(state, State::Absent { .. }) && !end.is_cancelled();
                        if is_absent {
                            *state = State::Unasked;
                        }
                        is_absent
                    });
                }
                return;
            }
        };
        tracing::info!("host {}: linked to muxtap {}", self.name(), link.version);
        let users = Arc::downgrade(&link.users);
        self.state.send_replace(State::Up(link));
        let why = tokio::select! {
            ended = connection => ended.err().map_or_else(|| "closed".to_owned(), |error| reason(&error)),
            () = self.idle(&users) => {
                tracing::debug!("host {}: the link was closed: no request used it", self.name());
                return;
            }
            () = end.cancelled() => "muxtap is stopping".to_owned(),
        };
        drop(kept);
        tracing::info!("host {}: the link was lost: {why}", self.name());
        let error =
            Error::unavailable(format!("host {}: the link was lost ({why}) and is not restored yet", self.name()));
        self.state.send_replace(State::Down { error, tries: 0, next: Instant::now() });
    }

    /// Resolves when no request has used the link for a while. The next one makes another.
    async fn idle(&self, users: &std::sync::Weak<()>) {
        let Some(limit) = self.dial.idle_limit() else { return std::future::pending().await };
        let mut busy_until = Instant::now();
        loop {
            // The state itself has one.
            if users.strong_count() > 1 {
                busy_until = Instant::now();
            }
            let used = (*self.used.lock().unwrap_or_else(PoisonError::into_inner)).max(busy_until);
            if used.elapsed() >= limit {
                // A request that has the link by now keeps it.
                let is_idle = self.state.send_if_modified(|state| {
                    let is_idle = users.strong_count() <= 1 && matches!(state, State::Up(_));
                    if is_idle {
                        *state = State::Unasked;
                    }
                    is_idle
                });
                if is_idle {
                    return;
                }
                busy_until = Instant::now();
            }
            tokio::time::sleep(limit.saturating_sub(used.elapsed()).max(limit / 60)).await;
        }
    }

    async fn connect(&self) -> Result<(Link, Connection, Box<dyn std::any::Any + Send>), Failure> {
        let Line { io, version, takes_keys, kept } = self.dial.dial().await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(LINK_WINDOW);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(|error| {
            let message = format!("host {}: the link was lost ({})", self.name(), reason(&error));
            Failure::Down(Error::unavailable(message))
        })?;
        Ok((Link { sender, version, takes_keys, users: Arc::default() }, connection, kept))
    }
}

/// Returns an error with its cause, if it has one.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

/// Returns the pause after a number of failed attempts.
pub(super) fn pause(tries: u32) -> Duration {
    LONGEST_PAUSE.min(FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(10)))
}

fn stopping() -> Error {
    Error::unavailable("muxtap is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<_> = (1..9).map(|tries| pause(tries).as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
