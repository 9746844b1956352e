//! Attaching control clients: a guest in each session, or a hub.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    connection::{Connection, Request, SILENCE_LIMIT},
    coverage::Inner,
    launch::{self, FLAGS, PLACEHOLDER, StartServer},
    link::{NoLink, ServerIdentity, absent, empty, is_unanswered},
    model::Covering,
    program::{CallOutput, CoverageMode, ServerSpec},
    topology::{HUB_MARK, HUB_NAME},
};
use crate::{
    api::{Error, ErrorCode, Result, Unreachable},
    descriptors, nonce,
    protocol::{
        command::{Command, CommandLine},
        ids::{SessionId, WindowId},
        version::Version,
    },
};

/// The server option that marks a server that muxtap started.
const OWN_MARK: &str = "@muxtap-server";
/// Time that a client has to attach.
const ATTACH_LIMIT: Duration = Duration::from_secs(10);

/// A row of `list-sessions`, as read before any client is attached.
struct ListedSession {
    activity: u64,
    id: SessionId,
    own: bool,
    hub: bool,
    default: bool,
}

impl Inner {
    /// Finds the server (or starts it, where that was asked for) and attaches.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<ServerIdentity, NoLink> {
        match self.attempt().await {
            Err(NoLink::Failed(error)) if !is_unanswered(&error) => {
                Err(NoLink::Failed(self.spec.explained(error).await))
            }
            attempt => attempt,
        }
    }

    async fn attempt(self: &Arc<Self>) -> Result<ServerIdentity, NoLink> {
        self.spec.file.review(&self.spec.socket);
        self.spec.find_own_program().await;
        // Elsewhere each question is a connection; the server says its version to the first client.
        if self.spec.is_local() {
            self.check_program().await.map_err(NoLink::Failed)?;
        }
        let question = ["list-sessions", "-F", LIST, ";", "display-message", "-p", DEFAULT];
        let printed = self.spec.ask_first(SILENCE_LIMIT, &question).await;
        let printed = printed.map_err(NoLink::Failed)?;
        let found = if printed.ok { parse(&printed.stdout) } else { Vec::new() };
        // Elsewhere no program was asked for its version; a control client of an old one would say nothing of it.
        if let Some(error) = version_of(&printed.stdout).and_then(|version| self.spec.program.too_old(version)) {
            return Err(NoLink::Failed(error));
        }
        // The order stays for the next attempt: its caller withdraws it, and gets the error of this
        // one.
        let start = self.lock().starts.first().cloned();
        // What only hubs hold is about to go.
        let users = found.iter().any(|session| !session.hub);
        if found.is_empty() || !users && start.is_none() {
            return match start {
                Some(start) => {
                    if !self.spec.is_local() {
                        self.check_program().await.map_err(NoLink::Failed)?;
                    }
                    let connection = self.start(&start).await.map_err(NoLink::Failed)?;
                    // One that runs without a session was not started by this.
                    let started = !(printed.ok && found.is_empty());
                    self.become_hub(&connection, started).await.map_err(NoLink::Failed)?;
                    self.greet(&connection).await.map_err(NoLink::Failed)
                }
                None if printed.ok => {
                    let hubs = found.iter().map(|session| session.id).collect();
                    Err(NoLink::Empty(empty(&self.spec.socket), hubs))
                }
                None => Err(no_server(&self.spec, &printed)),
            };
        }
        let hub = match self.spec.coverage {
            CoverageMode::Hub => true,
            CoverageMode::Sessions => false,
            CoverageMode::Auto => found.iter().any(|session| session.own),
        };
        let mut users: Vec<_> = found.into_iter().filter(|session| !session.hub).collect();
        // tmux reports the activity in seconds; of those that were used within one the default is
        // the last, the others come as they were made.
        users.sort_by_key(|session| (session.activity, session.default, session.id));
        let connection = if hub {
            let name = hub_name();
            let args = ["-C", "new-session", "-E", "-f", FLAGS, "-s", &name, "-n", "muxtap", PLACEHOLDER];
            let connection = self.open(&args, None).await.map_err(NoLink::Failed)?;
            self.become_hub(&connection, false).await.map_err(NoLink::Failed)?;
            self.bump(&users).await.map_err(NoLink::Failed)?;
            connection
        } else {
            let mut first = None;
            for session in &users {
                // A session that has gone meanwhile is no failure of the others.
                let asked = Instant::now();
                match self.attach(session.id).await {
                    Ok(connection) => first = first.or(Some(connection)),
                    // A server that has stopped answers no other client either.
                    Err(error) if asked.elapsed() >= ATTACH_LIMIT => return Err(NoLink::Failed(error)),
                    Err(error) => tracing::info!("cannot attach to session {}: {error}", session.id),
                }
            }
            first.ok_or_else(|| NoLink::Failed(Error::unavailable("every session refused a control client")))?
        };
        self.greet_by_any(connection).await.map_err(NoLink::Failed)
    }

    /// Learns who the server is over this connection, and over another one where that ends with its
    /// session.
    async fn greet_by_any(self: &Arc<Self>, mut connection: Connection) -> Result<ServerIdentity> {
        loop {
            let greeted = self.greet(&connection).await;
            let other = self.connection_of(None).filter(|_| greeted.is_err() && !connection.is_open());
            match other {
                Some(other) => connection = other,
                None => return greeted,
            }
        }
    }

    /// Refuses a tmux that is too old before it is asked for what it does not know; once is enough.
    async fn check_program(&self) -> Result<()> {
        if let Some(own) = self.spec.own.get() {
            return self.spec.program.supports(own.version);
        }
        if self.lock().program_checked {
            return Ok(());
        }
        let printed = self.spec.call(&["-V"]).await?;
        if let Ok(version) = Version::parse(&printed.stdout) {
            self.spec.program.supports(version)?;
        }
        self.lock().program_checked = true;
        Ok(())
    }

    /// Starts a server and attaches to the session that is to be its hub.
    async fn start(self: &Arc<Self>, start: &StartServer) -> Result<Connection> {
        launch::make_socket_dir(&self.spec);
        let name = hub_name();
        let started = launch::start(&self.spec, start, &name).await?;
        if !started.ok {
            return Err(Error::unavailable(format!("tmux could not start a server: {}", started.stderr)));
        }
        let target = format!("={name}");
        let attached = self.open(&["-C", "attach-session", "-E", "-f", FLAGS, "-t", &target], None).await;
        if attached.is_err() {
            // Where this fails too, it ends by itself.
            let _ = self.spec.call(&["kill-session", "-t", &target]).await;
        }
        attached
    }

    /// Attaches a guest to one session.
    async fn attach(self: &Arc<Self>, session: SessionId) -> Result<Connection> {
        // `-E`: an attach would otherwise rewrite the session's environment from ours (F34).
        let target = session.to_string();
        self.open(&["-C", "attach-session", "-E", "-f", FLAGS, "-t", &target], Some(session)).await
    }

    /// Attaches a guest to a session that came later, after a pause.
    pub(super) async fn attach_later(
        self: &Arc<Self>,
        session: SessionId,
        attempt: u64,
        pause: Duration,
    ) -> Result<()> {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.cancel.cancelled() => return Ok(()),
        }
        if self.lock().is_attaching(session, attempt) {
            self.attach(session).await?;
        }
        Ok(())
    }

    /// Opens a client and waits until it is attached (F25).
    async fn open(self: &Arc<Self>, args: &[&str], session: Option<SessionId>) -> Result<Connection> {
        // One after the other: the order in which guests arrive is that of their sessions' activity
        // (F35).
        let _arrival = self.arrivals.acquire().await;
        let client = self.spec.client(args);
        let client = client.map_err(|error| {
            if descriptors::are_out(&error) {
                return descriptors::error();
            }
            Error::unavailable(format!("cannot make a socket on which a control client arrives: {error}"))
        })?;
        let (ready, attached) = oneshot::channel();
        let id = {
            let mut model = self.lock();
            // Two ways lead to a session that came while no client was left.
            let there = session.and_then(|session| model.guest_of(session)).filter(|guest| guest.is_serving());
            if let Some(connection) = there.and_then(|guest| guest.connection.clone()) {
                return Ok(connection);
            }
            let id = model.next_connection;
            model.next_connection += 1;
            model.covering.insert(id, Covering::new(session, ready));
            id
        };
        let connection = match Connection::open(id, client, self.clone(), &self.tasks) {
            Ok(connection) => connection,
            Err(error) => {
                self.lock().drop_connection(id, &error.to_string());
                return Err(self.spec.cannot_run(&error));
            }
        };
        tracing::debug!("{} begins for {session:?} on {}", connection.name(), self.spec.socket.display());
        if let Some(covering) = self.lock().covering.get_mut(&id) {
            covering.connection = Some(connection.clone());
        }
        // Whoever lets all clients leave knows of this one from here on, or has looked already.
        if self.cancel.is_cancelled() {
            connection.close();
        }
        match tokio::time::timeout(ATTACH_LIMIT, attached).await {
            Ok(Ok(Ok(()))) => Ok(connection),
            Ok(Ok(Err(message))) => Err(Error::unavailable(format!("tmux refused a control client: {message}"))),
            Ok(Err(_)) | Err(_) => {
                connection.close();
                Err(Error::unavailable(format!(
                    "no control client could attach to {} within {} s",
                    self.spec.socket.display(),
                    ATTACH_LIMIT.as_secs()
                )))
            }
        }
    }

    /// Marks the session of a fresh connection as this muxtap's hub, and a server that was
    /// `started` for it as muxtap's own. It vanishes with its client (F4).
    pub(super) async fn become_hub(&self, connection: &Connection, started: bool) -> Result<()> {
        // An attached client has a session; one that has ended is not known any more.
        let session = self.lock().covering.get(&connection.id()).and_then(|covering| covering.session);
        let gone = || Error::unavailable("the tmux server ended while muxtap's own session was made on it");
        let session = session.ok_or_else(gone)?;
        let target = session.to_string();
        let mark = started.then(|| Command::new("set-option").flag("-s").arg(OWN_MARK).arg("1"));
        let line = CommandLine::of(mark.into_iter().chain([
            Command::new("set-option").opt("-t", &target).arg(HUB_MARK).arg(std::process::id().to_string()),
            Command::new("set-option").opt("-t", &target).arg("destroy-unattached").arg("on"),
            Command::new("display-message").flag("-p").opt("-t", format!("{target}:")).format("#{window_id}"),
        ]));
        let inconsistent = |message| Error::new(ErrorCode::InconsistentState, message);
        let bodies = connection.ask(Request::Plain(line)).await?;
        let bodies = bodies.map_err(|message| inconsistent(format!("tmux refused the hub's options: {message}")))?;
        let window = bodies.last().and_then(|body| WindowId::from_bytes(body.trim_ascii_end()));
        let window = window.ok_or_else(|| inconsistent("tmux did not tell the hub's window".into()))?;
        if let Some(covering) = self.lock().covering.get_mut(&connection.id()) {
            covering.hub = Some(window);
        }
        Ok(())
    }

    /// Makes the hub the least recently active session: a short-lived client visits the others in
    /// their order (F33).
    async fn bump(self: &Arc<Self>, users: &[ListedSession]) -> Result<()> {
        let Some((first, rest)) = users.split_first() else { return Ok(()) };
        let target = first.id.to_string();
        let args = ["-C", "attach-session", "-E", "-f", "ignore-size,no-output", "-t", &target];
        let visitor = self.open(&args, None).await?;
        if let Some(covering) = self.lock().covering.get_mut(&visitor.id()) {
            covering.visitor = true;
        }
        for session in rest {
            let line = CommandLine::of([Command::new("switch-client").flag("-E").opt("-t", session.id.to_string())]);
            // A session that has gone meanwhile needs no visit.
            let _ = visitor.ask(Request::Plain(line)).await?;
        }
        visitor.close();
        visitor.closed().await;
        Ok(())
    }

    /// Asks the server for its process, start time and version, and reads its sessions, windows and
    /// panes.
    async fn greet(self: &Arc<Self>, connection: &Connection) -> Result<ServerIdentity> {
        let question = Command::new("display-message").flag("-p").format("#{pid} #{start_time} #{version}");
        let answer = connection.ask(Request::Framed(vec![question])).await?;
        let answer = answer.map_err(Error::unavailable)?;
        let text = answer.first().map(|body| String::from_utf8_lossy(body).into_owned()).unwrap_or_default();
        let mut words = text.split_whitespace();
        let (Some(pid), Some(start)) = (words.next(), words.next()) else {
            return Err(Error::new(ErrorCode::InconsistentState, "tmux did not say who it is"));
        };
        let version = Version::parse(words.next().unwrap_or_default().as_bytes()).unwrap_or(Version::UNKNOWN);
        if !version.is_supported() {
            connection.close();
            if let Some(error) = self.spec.program.too_old(version) {
                return Err(error);
            }
            return Err(Error::unavailable(format!(
                "the tmux server on {} is version {version}; muxtap needs {} or later",
                self.spec.socket.display(),
                Version::MINIMUM
            )));
        }
        self.sweep(connection).await;
        let identity = ServerIdentity {
            pid: pid.parse().unwrap_or_default(),
            started: start.parse().unwrap_or_default(),
            version,
        };
        if self.spec.is_local() {
            self.spec.file.hold(&self.spec.socket, identity.pid);
        }
        self.identified(&identity);
        self.fresh().await?;
        Ok(identity)
    }
}

const LIST: &str = "#{session_activity} #{session_id} #{@muxtap-server} #{session_name}";
/// The session that a command without a target means.
pub(super) const DEFAULT: &str = "default #{session_id} #{version}";

/// Reads the version of a server from what it answers to [`DEFAULT`]. `None`: it says none.
pub(super) fn version_of(stdout: &[u8]) -> Option<Version> {
    let text = String::from_utf8_lossy(stdout);
    let words = text.lines().find_map(|line| line.strip_prefix("default "))?.split_once(' ')?.1;
    Version::parse(words.trim().as_bytes()).ok()
}

fn parse(stdout: &[u8]) -> Vec<ListedSession> {
    let text = String::from_utf8_lossy(stdout);
    let default = text.lines().find_map(|line| line.strip_prefix("default "));
    let default = default.and_then(|line| line.split_once(' ')).and_then(|(id, _)| id.parse().ok());
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(4, ' ');
            let activity = fields.next()?.parse().ok()?;
            let id = fields.next()?.parse().ok()?;
            let own = !fields.next()?.is_empty();
            let hub = fields.next()?.starts_with(HUB_NAME);
            Some(ListedSession { activity, id, own, hub, default: Some(id) == default })
        })
        .collect()
}

/// Returns why a server gave no list of its sessions.
pub(super) fn no_server(spec: &ServerSpec, printed: &CallOutput) -> NoLink {
    let socket = spec.socket.display();
    let why = &printed.stderr;
    if let Some(transport) = &spec.program.transport
        && let Some(reason) = transport.reason(why)
    {
        let error = transport.error(reason, why);
        // With its container a server has ended.
        return match reason {
            Unreachable::ContainerStopped | Unreachable::NoContainer => NoLink::Absent(error),
            _ => NoLink::Failed(error),
        };
    }
    if why.contains("ermission denied") {
        return NoLink::Failed(Error::unavailable(format!(
            "cannot reach the tmux server on {socket}: permission denied; the socket belongs to another user"
        )));
    }
    if why.contains("no server running") || why.contains("No such file") || why.contains("no sessions") {
        return NoLink::Absent(absent(&spec.socket));
    }
    NoLink::Failed(Error::unavailable(format!("cannot reach the tmux server on {socket}: {why}")))
}

/// Makes a name for a hub that no other hub has. The leading underscore sorts it away from names
/// people type.
fn hub_name() -> String {
    format!("{HUB_NAME}{}", nonce::hex32())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_with_their_marks() {
        let found = parse(b"17 $0 1 work\n16 $1 1 _muxtap-0a1b2c3d\n15 $2  two words\ndefault $0 3.3a\n");
        let marks: Vec<_> =
            found.iter().map(|session| (session.activity, session.own, session.hub, session.default)).collect();
        assert_eq!(marks, [(17, true, false, true), (16, true, true, false), (15, false, false, false)]);
    }
}
