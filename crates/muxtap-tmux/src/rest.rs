//! A server at rest: reached and known, without a control client of muxtap's.
//!
//! tmux treats a client in a user's session like a person: it is focused, it keeps a session
//! attached and hooks run for it. So a server is left alone while nothing on it is in use
//! ([`CoverageMode::Used`](super::CoverageMode::Used)): requests are made by plain tmux clients,
//! which have no session and leave with their reply. A use ([`Model::want`]) brings a client into
//! one session of the pane, and the client leaves when the use is over.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use muxtap_api::{Error, Result};
use muxtap_base::{metrics, nonce};
use muxtap_core::protocol::{
    command::{Command, CommandError, CommandLine},
    ids::{PaneId, SessionId},
    version::Version,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{
    connection::{ANSWER_LIMIT, Answer, Lost, Request, SILENCE_LIMIT},
    coverage::Inner,
    death,
    launch::{self, StartServer, keeps_sessions},
    link::{NoLink, ServerIdentity, unreadable},
    model::Model,
    program::CallOutput,
    socket,
    topology::{self, Topology},
};

/// The format that identifies a server.
pub(super) const IDENTITY: &str = "#{pid} #{start_time} #{version} #{session_id}";

/// The listings of a server at rest. One runs at a time, and its result serves all callers that
/// came before it began.
pub(super) struct Listings {
    turn: Semaphore,
}

impl Default for Listings {
    fn default() -> Self {
        Self { turn: Semaphore::new(1) }
    }
}

/// What is in use on a server, and whether the server is at rest while nothing is.
#[derive(Default)]
pub struct RestState {
    /// Whether plain clients query the server while no control client is attached.
    pub(super) active: bool,
    /// The number of listings that plain clients have begun.
    pub(super) listings_begun: u64,
    /// Panes in use, and the time of each one's last use.
    pub(super) wanted: HashMap<PaneId, Instant>,
    /// Sessions whose panes are or were in use, and the time of the last use.
    pub(super) sessions: HashMap<SessionId, Instant>,
    /// The number of uses of all panes of the server, including panes to come.
    pub(super) wants_all: usize,
    /// Whether a user's client was listed.
    pub(super) visited: bool,
}

/// The reason why a listing gave no topology.
enum NoListing {
    /// The server has gone, has no session any more, or is a different one.
    Left,
    /// The server sent no reply.
    Failed(Error),
}

impl Model {
    /// Records a use of a pane that ends now. Returns whether the pane was not in use before.
    pub(super) fn want(&mut self, pane: PaneId) -> bool {
        self.rest.wanted.insert(pane, Instant::now()).is_none()
    }

    /// Forgets the panes whose last use was `keep` ago, except those still `in_use`. Returns
    /// whether it forgot one, and when the next one is due.
    pub(super) fn unwant(&mut self, keep: Duration, in_use: &dyn Fn(PaneId) -> bool) -> (bool, Option<Instant>) {
        let now = Instant::now();
        let uses = |rest: &RestState| rest.wanted.len() + rest.sessions.len();
        let before = uses(&self.rest);
        self.rest.wanted.retain(|pane, used| {
            if now.duration_since(*used) < keep {
                return true;
            }
            *used = now;
            in_use(*pane)
        });
        // A session of panes still in use is used by them.
        self.rest.sessions.retain(|_, used| now.duration_since(*used) < keep);
        let next = self.rest.wanted.values().chain(self.rest.sessions.values()).min();
        (uses(&self.rest) < before, next.map(|used| *used + keep))
    }
}

impl Inner {
    /// Records a use of a pane. Returns whether the pane was not in use before, and this brings a
    /// client to it.
    pub(super) fn want(&self, pane: PaneId) -> bool {
        self.spec.rests() && self.lock().want(pane)
    }

    /// Returns whether the server is reached and may be queried without a client of its own.
    pub(super) fn is_at_rest(&self) -> bool {
        self.lock().rest.active
    }

    /// Begins a rest: identifies the server, and reads its sessions, windows and panes.
    pub(super) async fn begin_rest(self: &Arc<Self>) -> Result<ServerIdentity, NoLink> {
        let (identity, topology) = self.look().await.map_err(|failed| match failed {
            NoListing::Left => NoLink::Failed(Error::unavailable("the tmux server ended while it was queried")),
            NoListing::Failed(error) => NoLink::Failed(error),
        })?;
        if let Some(error) = self.spec.program.supports(identity.version).err() {
            return Err(NoLink::Failed(error));
        }
        self.spec.file.hold(&self.spec.socket, identity.pid);
        self.identified_at_rest(&identity);
        self.listed(topology);
        Ok(identity)
    }

    fn identified_at_rest(&self, identity: &ServerIdentity) {
        {
            let mut model = self.lock();
            model.recognize(identity);
            model.rest.active = true;
        }
        self.observer.identified(identity);
    }

    /// Ends the rest: the server has gone, or a new search for it is due.
    pub(super) fn leave_rest(&self) {
        self.lock().rest.active = false;
        self.announce_loss();
    }

    /// Resolves when no client is left on a server that needs one, or when the process of one that
    /// may rest has ended.
    pub(super) async fn link_ended(&self, pid: u32) {
        let ended = async {
            match death::watch(pid).filter(|_| self.spec.rests()) {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.all_lost() => {}
            () = ended => self.leave_rest(),
        }
    }

    /// Returns the model, as read after this call by a client of its own.
    pub(super) fn fresh_at_rest(self: &Arc<Self>) -> BoxFuture<'_, Result<Arc<Topology>>> {
        Box::pin(self.fresh_at_rest_here())
    }

    async fn fresh_at_rest_here(self: &Arc<Self>) -> Result<Arc<Topology>> {
        let before = self.lock().rest.listings_begun;
        // The semaphore is never closed.
        let _turn = self.listings.turn.acquire().await;
        {
            let mut model = self.lock();
            if !model.rest.active {
                return Err(Lost::Ended.into());
            }
            if model.rest.listings_begun > before {
                return Ok(model.topology.clone());
            }
            model.rest.listings_begun += 1;
        }
        match self.look().await {
            Ok((identity, topology)) => {
                let same = self.lock().identity.as_ref().is_some_and(|known| known.epoch() == identity.epoch());
                if same {
                    self.listed(topology);
                    return Ok(self.lock().topology.clone());
                }
            }
            Err(NoListing::Left) => {}
            Err(NoListing::Failed(error)) => return Err(error),
        }
        self.leave_rest();
        Err(Lost::Ended.into())
    }

    /// Reads the model without a waiting caller.
    pub(super) fn refresh_at_rest(self: &Arc<Self>) {
        let this = self.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                // The next caller sees a failure.
                _ = this.fresh_at_rest() => {}
                () = this.cancel.cancelled() => {}
            }
        });
    }

    async fn look(&self) -> Result<(ServerIdentity, Topology), NoListing> {
        let (list, separator) = topology::question();
        let identify = Command::new("display-message").flag("-p").format(IDENTITY);
        let asked = self.ask_plainly(&[identify.clone(), list], SILENCE_LIMIT).await.map_err(NoListing::Failed)?;
        let Ok(parts) = asked else {
            // A server that has a session does not refuse to list its panes, except because of an
            // alias.
            let asked = self.ask_plainly(&[identify], SILENCE_LIMIT).await.map_err(NoListing::Failed)?;
            let refuses = asked.is_ok_and(|parts| parts.first().is_some_and(|identity| names_session(identity)));
            return Err(if refuses { NoListing::Failed(unreadable("list-panes")) } else { NoListing::Left });
        };
        let [identity, rows] = parts.as_slice() else { return Err(NoListing::Left) };
        let has_sessions = names_session(identity);
        let identity = identity_of(identity).ok_or_else(|| NoListing::Failed(unreadable("display-message")))?;
        let topology = Topology::parse(rows, &separator, identity.version.lists_are_octal_encoded());
        if topology.sessions.is_empty() && has_sessions {
            return Err(NoListing::Failed(unreadable("list-panes")));
        }
        if topology.sessions.iter().all(|session| session.hub) {
            return Err(NoListing::Left);
        }
        Ok((identity, topology))
    }

    /// Sends a request by a tmux of its own, which has no session and leaves with its reply.
    pub(super) async fn ask_at_rest(&self, request: Request) -> Result<Answer> {
        match &request {
            Request::Plain(line) => self.ask_plainly(line.commands(), ANSWER_LIMIT).await,
            Request::Framed(commands) => self.ask_plainly(commands, ANSWER_LIMIT).await,
        }
    }

    pub(super) fn ask_plainly<'a>(&'a self, commands: &'a [Command], limit: Duration) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(self.ask_plainly_here(commands, limit))
    }

    async fn ask_plainly_here(&self, commands: &[Command], limit: Duration) -> Result<Answer> {
        let line = match PlainLine::of(commands) {
            Ok(line) => line,
            Err(error) => return Ok(Err(error.to_string())),
        };
        metrics::TMUX_COMMANDS.increment(commands.len() as u64);
        let sent = std::time::Instant::now();
        let replied = self.spec.call_within(limit, &line.words()).await?;
        metrics::tmux_command(commands.first().map_or("none", Command::name), sent.elapsed());
        line.read(replied)
    }

    /// Creates the first session of a server, and starts the server for it if none runs.
    pub(super) fn start_at_rest<'a>(
        &'a self,
        start: &'a StartServer,
        command: &'a Command,
    ) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(self.start_at_rest_here(start, command))
    }

    async fn start_at_rest_here(&self, start: &StartServer, command: &Command) -> Result<Answer> {
        // One at a time: the second caller finds the server of the first one.
        let _turn = self.arrivals.acquire().await;
        if socket::listens(&self.spec.socket) {
            return self.ask_plainly(std::slice::from_ref(command), ANSWER_LIMIT).await;
        }
        self.spec.check_owner()?;
        self.check_program().await?;
        let keeps = Command::new("show-options").flag("-g").flag("-q").flag("-v").arg("destroy-unattached");
        let line = match PlainLine::of(&[keeps, command.clone()]) {
            Ok(line) => line,
            Err(error) => return Ok(Err(error.to_string())),
        };
        launch::make_socket_dir(&self.spec);
        let args = [&["start-server", ";"][..], &line.words()].concat();
        let started = launch::start(&self.spec, start, &args).await?;
        if !started.ok && started.stdout.is_empty() {
            return Err(Error::unavailable(format!("tmux could not start a server: {}", started.stderr)));
        }
        let made = line.read(started)?;
        if let Ok(parts) = &made
            && let Some(value) = parts.first()
        {
            keeps_sessions(&String::from_utf8_lossy(value))?;
        }
        Ok(made.map(|parts| parts.into_iter().skip(1).collect()))
    }
}

/// Commands for a plain client. A line that is new each time separates their outputs.
struct PlainLine {
    text: String,
    mark: String,
    commands: usize,
}

impl PlainLine {
    fn of(commands: &[Command]) -> Result<Self, CommandError> {
        let mark = nonce::hex64();
        let say = || Command::new("display-message").flag("-p").arg(&mark);
        let line = CommandLine::of(commands.iter().flat_map(|command| [command.clone(), say()])).render()?;
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        Ok(Self { text, mark: mark + "\n", commands: commands.len() })
    }

    /// Returns the arguments of `tmux`. The line is parsed like the lines of a control client.
    fn words(&self) -> [&str; 4] {
        ["if-shell", "-F", "1", &self.text]
    }

    /// Reads what the client printed. Error: `TMUX_UNAVAILABLE` for output without the separating
    /// lines.
    fn read(&self, printed: CallOutput) -> Result<Answer> {
        if !printed.ok {
            return Ok(Err(printed.stderr));
        }
        let mut rest = printed.stdout.as_slice();
        let mut parts = Vec::with_capacity(self.commands);
        while let Some(at) = memchr::memmem::find(rest, self.mark.as_bytes()) {
            let (part, next) = rest.split_at(at);
            parts.push(Bytes::copy_from_slice(part));
            rest = next.get(self.mark.len()..).unwrap_or_default();
        }
        if parts.len() == self.commands { Ok(Ok(parts)) } else { Err(unreadable("display-message")) }
    }
}

/// Returns whether the output of [`IDENTITY`] names a session: the server has one.
fn names_session(identity: &[u8]) -> bool {
    String::from_utf8_lossy(identity).split_whitespace().nth(3).is_some()
}

/// Reads the output of [`IDENTITY`].
pub(super) fn identity_of(text: &[u8]) -> Option<ServerIdentity> {
    let text = String::from_utf8_lossy(text);
    let mut words = text.split_whitespace();
    let (pid, started) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let version = Version::parse(words.next().unwrap_or_default().as_bytes()).unwrap_or(Version::UNKNOWN);
    Some(ServerIdentity { pid, started, version })
}
