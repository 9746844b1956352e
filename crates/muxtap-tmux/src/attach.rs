//! Attaching control clients: a guest in each session, or a hub.

use std::{io, sync::Arc, time::Duration};

use muxtap_api::{Error, ErrorCode, Result, Unreachable};
use muxtap_base::nonce;
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::{SessionId, WindowId},
    names,
    version::Version,
};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Connection, Request, SILENCE_LIMIT},
    coverage::Inner,
    flood::Floods,
    launch::{self, FLAGS, FLAGS_OF_THE_FRAIL, PLACEHOLDER, StartServer},
    link::{NoLink, ServerIdentity, absent, empty, is_unanswered, unreadable},
    model::Covering,
    program::{CallOutput, Client, CoverageMode, ServerSpec},
    rest::{IDENTITY, identity_of},
    topology::{HUB_MARK, HUB_NAME},
    transport::FIRST_ANSWER_LIMIT,
};

/// The session option that counts the heartbeats of a hub's daemon.
const BEAT_MARK: &str = "@muxtap-beat";
/// The interval between heartbeats of a hub's daemon.
const BEAT: Duration = Duration::from_secs(5);
/// The time after the last heartbeat at which tmux itself ends the hub, so that a hung daemon keeps
/// no window alive.
const BEAT_LIMIT: Duration = Duration::from_secs(20);
/// Time that a client has to attach to a server of this machine.
const ATTACH_LIMIT: Duration = Duration::from_secs(10);

/// Time in which tmux announces an attach, unless a hook holds its notifications back.
const ANNOUNCED_LIMIT: Duration = Duration::from_millis(250);

/// A row of `list-sessions`, as read before any client is attached.
struct ListedSession {
    activity: u64,
    id: SessionId,
    hub: bool,
    default: bool,
}

impl Inner {
    /// Finds the server (or starts it, if a caller requested that) and attaches.
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
        self.spec.check_owner().map_err(NoLink::Failed)?;
        self.spec.find_own_program().await;
        // On another host each query costs a connection; the server reports its version to the
        // first client.
        if self.spec.is_local() {
            self.check_program().await.map_err(NoLink::Failed)?;
        }
        let question = ["list-sessions", "-F", LIST, ";", "display-message", "-p", DEFAULT];
        let printed = self.spec.ask_first(SILENCE_LIMIT, &question).await;
        let printed = printed.map_err(NoLink::Failed)?;
        let found = if printed.ok { parse(&printed.stdout).map_err(NoLink::Failed)? } else { Vec::new() };
        // On another host no program was run for its version, and a control client of an old one
        // would not report it.
        if let Some(error) = version_of(&printed.stdout).and_then(|version| self.spec.program.too_old(version)) {
            return Err(NoLink::Failed(error));
        }
        // The order stays for the next attempt: its caller withdraws it, and gets the error of this
        // one.
        let start = self.lock().starts.first().cloned();
        // Sessions that only hubs hold are about to end.
        let users = found.iter().any(|session| !session.hub);
        if found.is_empty() || !users && start.is_none() {
            return match start {
                Some(start) => {
                    if !self.spec.is_local() {
                        self.check_program().await.map_err(NoLink::Failed)?;
                    }
                    let connection = self.start(&start).await.map_err(NoLink::Failed)?;
                    self.become_hub(&connection).await.map_err(NoLink::Failed)?;
                    self.greet(&connection).await.map_err(NoLink::Failed)
                }
                None if printed.ok => {
                    let hubs = found.iter().map(|session| session.id).collect();
                    Err(NoLink::Empty(empty(&self.spec.socket), hubs))
                }
                None => Err(no_server(&self.spec, &printed)),
            };
        }
        if self.spec.rests() {
            return self.begin_rest().await;
        }
        let hub = self.spec.coverage == CoverageMode::Hub;
        let mut users: Vec<_> = found.into_iter().filter(|session| !session.hub).collect();
        // tmux reports the activity in seconds. Of the sessions used within the same second the
        // default is the last; the others keep the order of their creation.
        users.sort_by_key(|session| (session.activity, session.default, session.id));
        let connection = if hub {
            let name = hub_name();
            let args = ["-C", "new-session", "-E", "-f", self.flags(), "-s", &name, "-n", "muxtap", PLACEHOLDER];
            let connection = self.open(&args, None).await.map_err(NoLink::Failed)?;
            self.become_hub(&connection).await.map_err(NoLink::Failed)?;
            self.bump(&users).await.map_err(NoLink::Failed)?;
            connection
        } else {
            let (mut first, mut refused) = (None, None);
            for session in &users {
                // A session that has gone meanwhile does not fail the others.
                let asked = Instant::now();
                match self.attach(session.id).await {
                    Ok(connection) => {
                        first = first.or(Some(connection));
                        // On another host each client is a connection of its own: one is enough to
                        // begin, the others follow.
                        if !self.spec.is_local() {
                            break;
                        }
                    }
                    // A stopped server does not reply to another client either.
                    Err(error) if asked.elapsed() >= ATTACH_LIMIT => return Err(NoLink::Failed(error)),
                    Err(error) => {
                        tracing::info!("cannot attach to session {}: {error}", session.id);
                        refused = Some(error);
                    }
                }
            }
            first.ok_or_else(|| NoLink::Failed(refused_by_all(refused)))?
        };
        self.greet_by_any(connection).await.map_err(NoLink::Failed)
    }

    /// Identifies the server over this connection, or over another one if this one ends with its
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

    /// Refuses a tmux that is too old, before muxtap sends commands that it does not have; checks
    /// once.
    pub(super) async fn check_program(&self) -> Result<()> {
        if let Some(own) = self.spec.own.get() {
            return self.spec.program.supports(own.version);
        }
        if self.lock().program_checked {
            return Ok(());
        }
        let printed = self.spec.program.print_version().await?;
        if let Ok(version) = Version::parse(&printed.stdout) {
            self.spec.program.supports(version)?;
        }
        self.lock().program_checked = true;
        Ok(())
    }

    /// Starts a server and attaches to the session that becomes its hub.
    async fn start(self: &Arc<Self>, start: &StartServer) -> Result<Connection> {
        launch::make_socket_dir(&self.spec);
        let name = hub_name();
        let started = launch::start_with_hub(&self.spec, start, &name).await?;
        if !started.ok {
            return Err(Error::unavailable(format!("tmux could not start a server: {}", started.stderr)));
        }
        let target = format!("={name}");
        let attached = self.open(&["-C", "attach-session", "-E", "-f", self.flags(), "-t", &target], None).await;
        if attached.is_err() {
            // If this fails too, the session ends by itself.
            let _ = self.spec.call(&["kill-session", "-t", &target]).await;
        }
        attached
    }

    /// Returns the flags of a control client.
    fn flags(&self) -> &'static str {
        let known = self.lock().identity.as_ref().map(|known| known.version);
        let version = known.or_else(|| Some(self.spec.own.get()?.version));
        // A version that is not known yet may be an old one. Over a slow link a seed alone may take
        // longer.
        let is_frail = version.map_or(self.spec.floods == Floods::Hold, |version| self.spec.holds_floods(version));
        if is_frail && self.spec.is_local() { FLAGS_OF_THE_FRAIL } else { FLAGS }
    }

    /// Attaches a guest to one session.
    async fn attach(self: &Arc<Self>, session: SessionId) -> Result<Connection> {
        // `-E`: an attach would otherwise rewrite the session's environment from muxtap's (F34).
        let door = self.door_into(session).await?;
        let target = door.as_ref().map_or_else(|| session.to_string(), |door| format!("={door}"));
        let args = ["-C", "attach-session", "-E", "-f", self.flags(), "-t", &target];
        self.open_through(&args, Some(session), door.is_some()).await
    }

    /// Attaches a guest to a session that appeared later, after a pause.
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
            let connection = self.attach(session).await?;
            // The first attach after the server was at rest: the socket may lead to another server
            // by now.
            if !self.lock().greeted {
                self.greet(&connection).await?;
            }
        }
        Ok(())
    }

    /// Opens a client and waits until it is attached (F25).
    async fn open(self: &Arc<Self>, args: &[&str], session: Option<SessionId>) -> Result<Connection> {
        self.open_through(args, session, false).await
    }

    async fn open_through(
        self: &Arc<Self>,
        args: &[&str],
        session: Option<SessionId>,
        by_door: bool,
    ) -> Result<Connection> {
        // One at a time: the order in which guests arrive is that of their sessions' activity
        // (F35).
        let _turn = self.guests.acquire().await;
        let _arrival = self.arrivals.acquire().await;
        // In the same line, so that none of the held panes' output reaches this client in between.
        let held = self.held_panes();
        let pauses: Vec<String> = held.iter().map(|pane| format!("{pane}:pause")).collect();
        let pause = pauses.iter().flat_map(|pause| [";", "refresh-client", "-A", pause]);
        let args: Vec<&str> = args.iter().copied().chain(pause).collect();
        let client = self.spec.client(&args);
        let client = client.map_err(|error| ServerSpec::cannot_relay(&error))?;
        let (ready, attached) = oneshot::channel();
        let id = {
            let mut model = self.lock();
            // A session that appeared while no client was left may be attached to in two ways at
            // once.
            let there = session.and_then(|session| model.guest_of(session)).filter(|guest| guest.is_serving());
            if let Some(connection) = there.and_then(|guest| guest.connection.clone()) {
                return Ok(connection);
            }
            let id = model.next_connection;
            model.next_connection += 1;
            let mut covering = Covering::new(session, ready);
            covering.by_door = by_door;
            model.covering.insert(id, covering);
            for pane in &held {
                if let Some(followed) = model.panes.get_mut(pane) {
                    followed.hold_on_others(std::iter::once(id));
                }
            }
            id
        };
        let connection = match self.begin_client(id, client) {
            Ok(connection) => connection,
            Err(error) => {
                let error = self.spec.cannot_run(&error);
                self.lock().drop_connection(id, error.clone());
                return Err(error);
            }
        };
        tracing::debug!("{} begins for {session:?} on {}", connection.name(), self.spec.socket.display());
        if let Some(covering) = self.lock().covering.get_mut(&id) {
            covering.connection = Some(connection.clone());
        }
        // A shutdown lets this client leave too: it either sees the client from here on, or
        // cancelled before this check.
        if self.cancel.is_cancelled() {
            connection.close();
        }
        let announced = async {
            tokio::pin!(attached);
            if let Ok(ready) = tokio::time::timeout(ANNOUNCED_LIMIT, &mut attached).await {
                return ready;
            }
            self.ask_whether_attached(&connection);
            attached.await
        };
        // A client on another host has a connection of its own.
        let limit = if self.spec.is_local() { ATTACH_LIMIT } else { FIRST_ANSWER_LIMIT };
        match tokio::time::timeout(limit, announced).await {
            Ok(Ok(Ok(()))) => Ok(connection),
            Ok(Ok(Err(error))) if error.code == ErrorCode::ResourceLimit => Err(error),
            Ok(Ok(Err(error))) => Err(Error::unavailable(format!("tmux refused a control client: {}", error.message))),
            Ok(Err(_)) | Err(_) => {
                connection.close();
                Err(Error::unavailable(format!(
                    "no control client could attach to {} within {} s",
                    self.spec.socket.display(),
                    limit.as_secs()
                )))
            }
        }
    }

    /// Starts a control client.
    fn begin_client(self: &Arc<Self>, id: u64, client: Client) -> io::Result<Connection> {
        #[cfg(feature = "played")]
        if let Some(played) = self.spec.program.transport.as_ref().and_then(|transport| transport.played()) {
            let opened = super::played::attach(played, &client.command)?;
            return Ok(Connection::over(id, opened, self.clone(), &self.tasks));
        }
        Connection::open(id, client, self.clone(), &self.tasks)
    }

    /// Queries a client for its session. A user's hook that waits in the server's own queue
    /// (`session-created`, `window-linked` …) holds all notifications back, including that of an
    /// attach (`notify_callback`). A client's own commands have a queue of their own.
    fn ask_whether_attached(self: &Arc<Self>, connection: &Connection) {
        if !self.spec.is_local() {
            // The client's name on another host is unknown.
            return;
        }
        // A client without a session yet gets another client's values.
        let question = Command::new("display-message").flag("-p").format("#{client_name} #{session_id}");
        let (this, asked) = (self.clone(), connection.clone());
        connection.submit(Request::Framed(vec![question]), move |answer| {
            let Ok(Ok(parts)) = answer else { return };
            let said = parts.first().map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default();
            let session = said.trim_end().strip_prefix(asked.name()).and_then(|id| id.trim_start().parse().ok());
            if let Some(session) = session {
                this.session_changed(&asked, session);
            }
        });
    }

    /// Marks the session of a fresh connection as this muxtap's hub. It vanishes with its client
    /// (F4).
    pub(super) async fn become_hub(self: &Arc<Self>, connection: &Connection) -> Result<()> {
        // An attached client has a session; a client that has ended is no longer in the map.
        let session = self.lock().covering.get(&connection.id()).and_then(|covering| covering.session);
        let gone = || Error::unavailable("the tmux server ended while muxtap's own session was being created");
        let session = session.ok_or_else(gone)?;
        let target = session.to_string();
        let line = CommandLine::of([
            Command::new("set-option").opt("-t", &target).arg(HUB_MARK).arg(std::process::id().to_string()),
            Command::new("set-option").opt("-t", &target).arg("destroy-unattached").arg("on"),
            Command::new("display-message").flag("-p").opt("-t", format!("{target}:")).format("#{window_id}"),
        ]);
        let inconsistent = |message| Error::new(ErrorCode::InconsistentState, message);
        let bodies = connection.ask(Request::Plain(line)).await?;
        let bodies = bodies.map_err(|message| inconsistent(format!("tmux refused the hub's options: {message}")))?;
        let window = bodies.last().and_then(|body| WindowId::from_bytes(body.trim_ascii_end()));
        let window = window.ok_or_else(|| inconsistent("tmux did not report the hub's window".into()))?;
        if let Some(covering) = self.lock().covering.get_mut(&connection.id()) {
            covering.hub = Some(window);
        }
        self.tasks.spawn(keep_hub(connection.clone(), session, self.cancel.clone()));
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

    /// Queries the server for its process, start time and version, and reads its sessions, windows
    /// and panes.
    async fn greet(self: &Arc<Self>, connection: &Connection) -> Result<ServerIdentity> {
        let question = Command::new("display-message").flag("-p").format(IDENTITY);
        let answer = connection.ask(Request::Framed(vec![question])).await?;
        let answer = answer.map_err(Error::unavailable)?;
        let Some(identity) = answer.first().and_then(|body| identity_of(body)) else {
            return Err(unreadable("display-message"));
        };
        let version = identity.version;
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
        if self.spec.is_local() {
            self.spec.file.hold(&self.spec.socket, identity.pid);
        }
        self.identified(&identity);
        self.fresh().await?;
        Ok(identity)
    }
}

/// Returns the error when no session took a control client. `last`: what the last attempt failed
/// with.
fn refused_by_all(last: Option<Error>) -> Error {
    match last {
        Some(error) if error.code == ErrorCode::ResourceLimit => error,
        Some(error) => {
            Error::unavailable(format!("every session refused a control client; the last: {}", error.message))
        }
        None => Error::unavailable("every session refused a control client"),
    }
}

/// Sends heartbeats for a hub as long as its client is attached. tmux ends a hub whose daemon sends
/// none.
pub(super) async fn keep_hub(connection: Connection, hub: SessionId, cancel: CancellationToken) {
    // Another process, from which this one has taken over, may have marked the hub: its last timer must
    // not take this one's marks for its own.
    let nonce = nonce::hex32();
    for beat in 1_u64.. {
        let mark = format!("{nonce}-{beat}");
        // `run-shell` expands its formats at once; this one must be expanded when it runs (N87).
        let is_last = format!("##{{==:##{{{BEAT_MARK}}},{mark}}}");
        let end = format!("if-shell -F -t '{hub}:' '{is_last}' 'kill-session -t {hub}'");
        let mark = Command::new("set-option").opt("-t", hub.to_string()).arg(BEAT_MARK).arg(mark);
        let limit = BEAT_LIMIT.as_secs().to_string();
        let later = Command::new("run-shell").flag("-b").opt("-d", limit).opt("-C", end);
        connection.submit(Request::Plain(CommandLine::of([mark, later])), |_| {});
        tokio::select! {
            () = tokio::time::sleep(BEAT) => {}
            () = connection.closed() => return,
            () = cancel.cancelled() => return,
        }
    }
}

const LIST: &str = "#{session_activity} #{session_id} #{session_name}";
/// The format that reports the session that a command without a target means.
pub(super) const DEFAULT: &str = "default #{session_id} #{version}";

/// Reads the version of a server from its reply to [`DEFAULT`]; `None` if the reply has none.
pub(super) fn version_of(stdout: &[u8]) -> Option<Version> {
    let text = String::from_utf8_lossy(stdout);
    let words = text.lines().find_map(|line| line.strip_prefix("default "))?.split_once(' ')?.1;
    Version::parse(words.trim().as_bytes()).ok()
}

fn parse(stdout: &[u8]) -> Result<Vec<ListedSession>> {
    let text = String::from_utf8_lossy(stdout);
    let default = text.lines().find_map(|line| line.strip_prefix("default "));
    let default: SessionId = match default.and_then(|line| line.split_once(' ')) {
        Some((id, _)) if !id.is_empty() => id.parse().map_err(|_| unreadable("display-message"))?,
        // A server without a session.
        Some(_) => return Ok(Vec::new()),
        None => return Err(unreadable("display-message")),
    };
    let found: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ' ');
            let activity = fields.next()?.parse().ok()?;
            let id = fields.next()?.parse().ok()?;
            let hub = fields.next()?.starts_with(HUB_NAME);
            Some(ListedSession { activity, id, hub, default: id == default })
        })
        .collect();
    if found.is_empty() { Err(unreadable("list-sessions")) } else { Ok(found) }
}

/// Returns why a server did not list its sessions.
pub(super) fn no_server(spec: &ServerSpec, printed: &CallOutput) -> NoLink {
    let socket = spec.socket.display();
    let why = &printed.stderr;
    if let Some(transport) = &spec.program.transport
        && let Some(reason) = transport.reason(why)
    {
        let error = transport.error(reason, why);
        // A server ends with its container.
        return match reason {
            Unreachable::ContainerStopped | Unreachable::NoContainer => NoLink::Absent(error),
            _ => NoLink::Failed(error),
        };
    }
    if let Some(transport) = spec.program.transport.as_ref().filter(|_| why.is_empty()) {
        let prefix = transport.prefix();
        return NoLink::Failed(Error::unavailable(format!(
            "cannot reach the tmux server on {socket}: `{prefix}` failed and printed nothing; does `{prefix} true` work?"
        )));
    }
    if why.contains("ermission denied") {
        return NoLink::Failed(Error::unavailable(format!(
            "cannot reach the tmux server on {socket}: permission denied; the socket belongs to another user"
        )));
    }
    if why.contains("no server running") || why.contains("No such file") || why.contains("no sessions") {
        return NoLink::Absent(absent(&spec.socket));
    }
    // The server parses the command: an alias has replaced it by another one.
    if ["command ", "usage: ", "unknown command: ", "ambiguous command: "].iter().any(|start| why.starts_with(start)) {
        let [list, tell] = ["list-sessions", "display-message"].map(names::spelled);
        return NoLink::Failed(Error::unavailable(format!(
            "the tmux server on {socket} rejects `{list}` or `{tell}`: {why}; is one of them in `command-alias`? See \
             `tmux show-options -s command-alias`, and remove any alias with that name"
        )));
    }
    NoLink::Failed(Error::unavailable(format!("cannot reach the tmux server on {socket}: {why}")))
}

/// Returns a hub name that no other hub has. The leading underscore sorts it away from names people
/// type.
pub(super) fn hub_name() -> String {
    format!("{HUB_NAME}{}", nonce::hex32())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_with_their_marks() {
        let found = parse(b"17 $0 work\n16 $1 _muxtap-0a1b2c3d\n15 $2 two words\ndefault $0 3.3a\n").unwrap();
        let marks: Vec<_> = found.iter().map(|session| (session.activity, session.hub, session.default)).collect();
        assert_eq!(marks, [(17, false, true), (16, true, false), (15, false, false)]);
        assert!(parse(b"default  3.3a\n").unwrap().is_empty(), "a server may have no session");
        let said = |stdout: &[u8]| parse(stdout).err().unwrap().message;
        assert!(said(b"work: 1 windows\ndefault $0 3.3a\n").contains("`list-sessio`"));
        assert!(said(b"17 $0 work\nanother answer\n").contains("`display-messag`"));
    }
}
