//! The daemon is replaced by another one, which takes over what this one has (`docs/upgrade.md`).

use std::{
    ffi::OsString,
    fs::File,
    io,
    net::TcpListener,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
    time::Duration,
};

use muxtap_core::stored;
use muxtap_engine::{
    Engine,
    handover::{self, Belongings, NotTaken, PausedEngine, Successor, decline},
};
use muxtap_http::{By, HeldRequests, StoredMcpSessions};
use muxtap_net::OpenConnections;
use muxtap_page::{HeldPages, Pages, StoredPages};
use muxtap_record::{HeldRecordings, PreparedRecordings};
use muxtap_rooms::Rooms;
use muxtap_sessions::{HeldSessions, PreparedSessions};
use muxtap_tmux::death::Foreign;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{
    activation,
    start::{self, Claim, ClaimGuard},
};
use crate::{
    api::{Error, ErrorCode, Result, WaitInfo, wire},
    config::paths::Paths,
};

/// The flag of a daemon that takes over from the one at the other end of its stdin.
pub(crate) const TAKE_OVER: &str = "--take-over";
/// The flag of a daemon that asks the running one to hand over to it.
const REPLACE: &str = "--replace";
/// What systemd passes to one process alone.
const OF_ONE_PROCESS: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"];
/// How long the daemon may take to begin the conversation.
const BEGIN_LIMIT: Duration = Duration::from_secs(10);
/// How long what pages have typed may take to reach tmux. Nothing else has stopped meanwhile.
const TYPE_LIMIT: Duration = Duration::from_secs(10);
/// The most things that an error names.
const MOST_NAMED: usize = 8;
/// How long a process that has failed may take to exit by itself.
const EXIT_LIMIT: Duration = Duration::from_millis(500);
/// The same, for one that another process has started: it says why first, to a person.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// How a daemon begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// As the only one.
    Alone,
    /// It takes over from the daemon at the other end of its stdin, which has started it.
    TakeOver,
    /// It asks the running daemon to hand over to it. `force`: what cannot be handed over may end.
    Replace {
        /// See above.
        force: bool,
    },
}

impl Begin {
    /// Connects to the daemon from which this one takes over. `None`: from none.
    pub(super) fn connect(self, paths: &Paths) -> Result<Option<UnixStream>> {
        match self {
            Self::Alone => Ok(None),
            Self::TakeOver => own_stdin().map(Some),
            Self::Replace { force } => match start::connect(paths)? {
                Some(stream) => ask(stream, force).map(Some),
                // There is nothing to replace.
                None => Ok(None),
            },
        }
    }
}

/// Takes the socket that is this process's stdin.
fn own_stdin() -> Result<UnixStream> {
    let taken = || -> io::Result<UnixStream> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::net::sockopt::socket_type(&socket)?;
        let null = File::options().read(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        Ok(UnixStream::from(socket))
    };
    taken().map_err(|error| Error::invalid(format!("{TAKE_OVER} is for `muxtap upgrade` alone: stdin: {error}")))
}

/// Asks the daemon at the other end of a connection to hand over to this process.
fn ask(mut stream: UnixStream, force: bool) -> Result<UnixStream> {
    use std::io::{Read as _, Write as _};

    let mut talk = || -> io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(BEGIN_LIMIT))?;
        let force = if force { format!("{}: 1\r\n", wire::FORCE) } else { String::new() };
        write!(
            stream,
            "GET /v1/replace HTTP/1.1\r\nhost: muxtap\r\nconnection: upgrade\r\nupgrade: {}\r\n{force}\r\n",
            wire::REPLACE_PROTOCOL
        )?;
        let mut head = Vec::new();
        // Byte by byte: what follows the head belongs to the conversation.
        while !head.ends_with(b"\r\n\r\n") && head.len() < 4096 {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        stream.set_read_timeout(None)?;
        Ok(head)
    };
    let head = talk().map_err(|error| Error::unavailable(format!("cannot ask the running daemon: {error}")))?;
    if head.starts_with(b"HTTP/1.1 101 ") {
        return Ok(stream);
    }
    let status = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    Err(Error::new(
        ErrorCode::Conflict,
        format!("the running daemon does not hand over ({status}); `muxtap stop` stops it"),
    ))
}

/// What a daemon hands over beside its engine. The descriptors are in the order of the fields.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Description {
    /// The socket's device and inode; `None`: it is systemd's.
    identity: Option<(u64, u64)>,
    /// Whether the file of the audit log follows the socket and the lock file.
    audit: bool,
    /// The ports; whether each is the page's.
    ports: Vec<bool>,
}

/// The listening sockets of a daemon, and its other files.
pub(super) struct Doors {
    pub(super) local: UnixListener,
    /// The ports; whether each is the page's.
    pub(super) ports: Vec<(bool, TcpListener)>,
}

impl Doors {
    fn belongings(&self, guard: &ClaimGuard, engine: &Engine) -> io::Result<Belongings> {
        let audit = engine.audit_file();
        let description = Description {
            identity: guard.identity(),
            audit: audit.is_some(),
            ports: self.ports.iter().map(|(is_page, _)| *is_page).collect(),
        };
        let mut descriptors = vec![self.local.as_fd().try_clone_to_owned()?, guard.lock().try_clone_to_owned()?];
        descriptors.extend(audit.map(OwnedFd::from));
        for (_, port) in &self.ports {
            descriptors.push(port.as_fd().try_clone_to_owned()?);
        }
        Ok(Belongings { bytes: serde_json::to_vec(&description).map_err(io::Error::other)?, descriptors })
    }
}

/// What a daemon has got from the one from which it takes over.
pub(super) struct Received {
    pub(super) claim: Claim,
    pub(super) audit: Option<File>,
    /// The ports; whether each is the page's.
    pub(super) ports: Vec<(bool, TcpListener)>,
}

/// Begins to take over. Error: nothing was taken over, and the other daemon has got the reason.
pub(super) async fn receive(socket: UnixStream, paths: &Paths, background: bool) -> Result<(Successor, Received)> {
    let unable = |error: io::Error| Error::internal(format!("cannot talk to the running daemon: {error}"));
    socket.set_nonblocking(true).map_err(unable)?;
    let socket = tokio::net::UnixStream::from_std(socket).map_err(unable)?;
    let (successor, belongings) = Successor::begin(socket).await?;
    match read(belongings, paths, background) {
        Ok(received) => Ok((successor, received)),
        Err(error) => {
            successor.leave(&error).await;
            Err(error)
        }
    }
}

fn read(belongings: Belongings, paths: &Paths, background: bool) -> Result<Received> {
    let missing = || Error::new(ErrorCode::Conflict, "the running daemon handed over fewer descriptors than it said");
    let description: Description = serde_json::from_slice(&belongings.bytes).map_err(|error| {
        Error::new(ErrorCode::Conflict, format!("cannot read what the running daemon hands over: {error}"))
    })?;
    let mut descriptors = belongings.descriptors.into_iter();
    let local = UnixListener::from(descriptors.next().ok_or_else(missing)?);
    let lock = File::from(descriptors.next().ok_or_else(missing)?);
    let audit = if description.audit { Some(File::from(descriptors.next().ok_or_else(missing)?)) } else { None };
    let ports = description.ports.iter().map(|is_page| {
        let port = descriptors.next().ok_or_else(missing)?;
        Ok((*is_page, TcpListener::from(port)))
    });
    let ports = ports.collect::<Result<_>>()?;
    let claim = start::continued_claim(paths, local, lock, description.identity, background)?;
    Ok(Received { claim, audit, ports })
}

/// Sends the daemon from which this process should take over the reason why it cannot.
pub(crate) fn refuse(socket: UnixStream, error: &Error) {
    let refused = || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            socket.set_nonblocking(true)?;
            Successor::refuse(tokio::net::UnixStream::from_std(socket)?, error).await;
            Ok(())
        })
    };
    if let Err(error) = refused() {
        tracing::debug!("cannot say why: {error}");
    }
}

/// Sends the daemon that has started this process, if one has, the reason why it cannot take over.
pub(crate) fn refuse_to_take_over(error: &Error) {
    if let Ok(socket) = own_stdin() {
        refuse(socket, error);
    }
}

/// A daemon that can hand over.
pub(super) struct Predecessor<'a> {
    pub(super) engine: &'a Engine,
    pub(super) app: &'a muxtap_http::App,
    pub(super) rooms: &'a Rooms,
    pub(super) pages: &'a Pages,
    pub(super) open: &'a OpenConnections,
    /// This process's program, where it was when the process began.
    pub(super) program: &'a Path,
    pub(super) background: bool,
}

/// A daemon that has handed over, and has to leave.
pub(super) struct Left {
    pub(super) engine: PausedEngine,
    pub(super) held: Held,
    /// The process that has taken over.
    pub(super) pid: u32,
    /// The same process.
    pub(super) process: Foreign,
    /// The program that was started, or the process that asked.
    pub(super) by: String,
}

/// What is held while it is handed over. Dropped, it goes on here.
pub(super) struct Held {
    pub(super) requests: HeldRequests,
    /// Until the connections of pages have ended.
    pub(super) pages: HeldPages,
    pub(super) recordings: HeldRecordings,
    pub(super) sessions: HeldSessions,
}

/// The parts of a daemon beside its engine, stored for the next one. The descriptors are in the order of the fields.
#[derive(Debug, Serialize, Deserialize)]
struct StoredBeside {
    /// As JSON.
    pages: String,
    /// As JSON.
    mcp_sessions: String,
    #[serde(with = "stored::bytes")]
    recordings: Vec<u8>,
    /// Whether a recording or session that cannot be continued ends; else nothing is taken over.
    force: bool,
}

/// The agent sessions of a daemon; follows [`StoredBeside`]. A daemon that had none may not have sent it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredSessions {
    /// The number of their descriptors, which are the last ones.
    descriptors: usize,
    #[serde(with = "stored::bytes")]
    sessions: Vec<u8>,
}

/// The parts of another daemon beside its engine.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) pages: StoredPages,
    pub(super) mcp_sessions: StoredMcpSessions,
    pub(super) recordings: PreparedRecordings,
    pub(super) sessions: PreparedSessions,
}

impl Beside {
    /// Reads what another daemon has; begins nothing.
    pub(super) fn read(belongings: Belongings) -> Result<Self> {
        let unreadable = |why: &str| {
            Error::new(ErrorCode::Conflict, format!("cannot read what the running daemon has beside its engine: {why}"))
        };
        let broken = |error: postcard::Error| unreadable(&error.to_string());
        let Belongings { bytes, mut descriptors } = belongings;
        let (stored, rest) = postcard::take_from_bytes::<StoredBeside>(&bytes).map_err(broken)?;
        let sessions: StoredSessions =
            if rest.is_empty() { StoredSessions::default() } else { postcard::from_bytes(rest).map_err(broken)? };
        let others = descriptors.len().checked_sub(sessions.descriptors);
        let of_sessions = descriptors.split_off(others.ok_or_else(|| unreadable("descriptors are missing"))?);
        let sessions = if rest.is_empty() {
            PreparedSessions::default()
        } else {
            PreparedSessions::read(&sessions.sessions, of_sessions, stored.force)?
        };
        let (pages, mcp_sessions) = (or_anew("pages", &stored.pages), or_anew("MCP sessions", &stored.mcp_sessions));
        let recordings = PreparedRecordings::read(&stored.recordings, descriptors, stored.force)?;
        Ok(Self { pages, mcp_sessions, recordings, sessions })
    }
}

/// Reads a state whose owners can begin anew. If it cannot be read, they do.
fn or_anew<T: Default + for<'a> Deserialize<'a>>(what: &str, json: &str) -> T {
    serde_json::from_str(json).unwrap_or_else(|error| {
        tracing::warn!("cannot read the {what} of the earlier daemon: {error}");
        T::default()
    })
}

/// What a handover needs beside the engine.
#[derive(Clone, Copy)]
pub(super) struct Handover<'a> {
    /// Whether what cannot be handed over may end.
    pub(super) force: bool,
    pub(super) doors: &'a Doors,
    pub(super) guard: &'a ClaimGuard,
    /// Cancels the handover, until the other process gets everything.
    pub(super) stop: &'a CancellationToken,
}

impl Predecessor<'_> {
    /// Lets another daemon take over. Error: this one continues as if nothing had happened.
    pub(super) async fn hand_over(&self, by: By, to: Handover<'_>) -> Result<Left> {
        let checked = may_leave(std::process::id()).and_then(|()| if to.force { Ok(()) } else { self.check() });
        match by {
            By::Program(program) => {
                checked?;
                self.start(program.as_deref().unwrap_or(self.program), to).await
            }
            By::Process(pid, socket) => match checked.and_then(|()| process(pid, to.guard)) {
                Ok(process) => self.give_to_caller(process, pid, socket, to).await,
                Err(error) => {
                    decline(socket, &error).await;
                    Err(error)
                }
            },
        }
    }

    /// Hands over to a process that another one has started.
    async fn give_to_caller(
        &self,
        process: Foreign,
        pid: u32,
        socket: tokio::net::UnixStream,
        to: Handover<'_>,
    ) -> Result<Left> {
        let NotTaken { error, has_refused } = match self.give(&process, pid, socket, to).await {
            Ok((engine, held)) => return Ok(Left { engine, held, pid, process, by: format!("process {pid}") }),
            Err(not_taken) => not_taken,
        };
        // It has the lock file, and its lock: while it hangs, no daemon could be started.
        if !has_refused && tokio::time::timeout(LEAVE_LIMIT, process.ended()).await.is_err() {
            tracing::warn!("killing process {pid}, which has neither taken over nor ended");
            process.kill();
        }
        Err(error)
    }

    /// Checks that nothing is open that cannot be handed over.
    fn check(&self) -> Result<()> {
        let mut open: Vec<_> = self.engine.bound_waits().iter().map(named).collect();
        let more = open.len().saturating_sub(MOST_NAMED);
        if more > 0 {
            open.truncate(MOST_NAMED);
            open.push(format!("{more} more"));
        }
        if open.is_empty() {
            return Ok(());
        }
        let message = format!(
            "open {} cannot be handed over; end them, or upgrade with --force, which ends them",
            open.join(", ")
        );
        Err(Error::new(ErrorCode::Conflict, message))
    }

    async fn start(&self, program: &Path, to: Handover<'_>) -> Result<Left> {
        let unable =
            |error: io::Error| Error::new(ErrorCode::Conflict, format!("cannot start {}: {error}", program.display()));
        let (own, theirs) = UnixStream::pair().map_err(unable)?;
        own.set_nonblocking(true).map_err(unable)?;
        let own = tokio::net::UnixStream::from_std(own).map_err(unable)?;
        let mut command = tokio::process::Command::new(program);
        // A closure, so that this process's copy of the other end is closed once the process runs.
        let mut child = {
            command.args(arguments(std::env::args_os().skip(1))).stdin(Stdio::from(OwnedFd::from(theirs)));
            for name in OF_ONE_PROCESS {
                command.env_remove(name);
            }
            command.spawn().map_err(unable)
        }?;
        drop(command);
        let pid = child.id().unwrap_or_default();
        let handed_over = match Foreign::open(pid).map_err(unable) {
            Ok(process) => match self.give(&process, pid, own, to).await {
                Ok((engine, held)) => Ok(Left { engine, held, pid, process, by: program.display().to_string() }),
                Err(not_taken) => Err(not_taken.error),
            },
            Err(error) => Err(error),
        };
        match handed_over {
            Ok(left) => {
                // This process is its parent while it relays.
                tokio::spawn(async move { child.wait().await });
                Ok(left)
            }
            Err(error) => {
                // One that refuses exits by itself.
                let status = tokio::time::timeout(EXIT_LIMIT, child.wait()).await;
                let _ = child.kill().await;
                let status = match status {
                    Ok(Ok(status)) => format!("{status}"),
                    _ => "killed".to_owned(),
                };
                let program = program.display();
                Err(Error::new(error.code, format!("{program} has not taken over ({status}): {}", error.message)))
            }
        }
    }

    async fn give(
        &self,
        process: &Foreign,
        pid: u32,
        socket: tokio::net::UnixStream,
        to: Handover<'_>,
    ) -> std::result::Result<(PausedEngine, Held), NotTaken> {
        let Handover { force, doors, guard, stop } = to;
        let failed = |message: String| NotTaken { error: Error::internal(message), has_refused: false };
        let belongings = doors
            .belongings(guard, self.engine)
            .map_err(|error| failed(format!("cannot duplicate the listening sockets: {error}")))?;
        let held = OnceLock::new();
        // First what takes longest, while all else is served: the replies of tmux to what pages have typed.
        let settle = async {
            let pages = tokio::time::timeout(TYPE_LIMIT, self.pages.hold()).await.map_err(|_| {
                Error::new(ErrorCode::Conflict, "tmux does not accept what a page types; try again, or close the page")
            })?;
            let held = &held;
            Ok(async move {
                self.open.pause();
                let requests = self.app.replacing().settle(force).await?;
                // Some may have begun meanwhile.
                if !force {
                    self.check()?;
                }
                // Before control clients stop: what an agent has asked for may need tmux.
                let (sessions, stored_sessions, of_sessions) = self.rooms.sessions.hold(force).await?;
                Ok(async move {
                    // Readers of panes stop when no output comes any more, and miss none.
                    let (recordings, recorded, mut descriptors) = self.rooms.recordings.hold(force).await?;
                    let stored = self.pages.stored(&pages);
                    let _ = held.set(Held { requests, pages, recordings, sessions });
                    let failed =
                        |error: &dyn std::fmt::Display| Error::internal(format!("cannot store the pages: {error}"));
                    let pages = serde_json::to_string(&stored).map_err(|error| failed(&error))?;
                    let mcp_sessions = serde_json::to_string(&self.app.stored_mcp_sessions());
                    let mcp_sessions = mcp_sessions.map_err(|error| failed(&error))?;
                    let beside = StoredBeside { pages, mcp_sessions, recordings: recorded, force };
                    let sessions = StoredSessions { descriptors: of_sessions.len(), sessions: stored_sessions };
                    descriptors.extend(of_sessions);
                    let bytes = postcard::to_allocvec(&(beside, sessions));
                    let belongings = Belongings { bytes: bytes.map_err(|error| failed(&error))?, descriptors };
                    Ok(handover::Beside { belongings, force })
                })
            })
        };
        let handed_over = Box::pin(self.engine.hand_over_to(process, socket, belongings, settle, stop)).await;
        match (handed_over, held.into_inner()) {
            (Ok(engine), Some(held)) => {
                tracing::info!("process {pid} has taken over");
                if !self.background {
                    activation::replaced_by(pid).await;
                }
                Ok((engine, held))
            }
            (Ok(_), None) => Err(failed("the requests were not held back".to_owned())),
            (Err(not_taken), held) => {
                guard.reclaim(&doors.local);
                drop(held);
                self.open.resume();
                tracing::warn!("process {pid} has not taken over: {}", not_taken.error);
                Err(not_taken)
            }
        }
    }
}

/// Checks that this process, which has this id, may end while another one is the daemon.
fn may_leave(pid: u32) -> Result<()> {
    // The kernel kills all processes of a PID namespace when its first one ends (pid_namespaces(7)).
    if pid == 1 {
        let message = "the daemon is process 1, with which its container ends: it cannot be replaced while the \
                       container runs; start a container with the new version";
        return Err(Error::new(ErrorCode::Conflict, message));
    }
    Ok(())
}

/// Returns the name of a wait that cannot be handed over.
fn named(wait: &WaitInfo) -> String {
    let panes: Vec<_> = wait.panes.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    let who = if wait.who.is_empty() { "an unknown caller" } else { &wait.who };
    format!("wait {} of {who} on {}", wait.id, panes.join(" "))
}

/// Opens the process that asks to take over. Error: `CONFLICT` if it must not.
fn process(pid: u32, guard: &ClaimGuard) -> Result<Foreign> {
    if guard.identity().is_none() {
        let message = format!(
            "process {pid} cannot take over: systemd started this daemon and has its socket; \
             `systemctl --user reload muxtapd` replaces it"
        );
        return Err(Error::new(ErrorCode::Conflict, message));
    }
    Foreign::open(pid).map_err(|error| Error::internal(format!("cannot open the process {pid}: {error}")))
}

/// Returns the arguments of the next daemon: this one's, and the flag.
fn arguments(own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    own.filter(|argument| argument != TAKE_OVER && argument != REPLACE).chain([TAKE_OVER.into()]).collect()
}

/// Returns the path of this process's program, for the next daemon: the one by which it was called, which
/// may be a link. Call it early: a program that is replaced has another name here.
pub(super) fn own_program() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    start::called_as(&program).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_container_does_not_leave() {
        let refused = may_leave(1).unwrap_err();
        assert!(refused.code == ErrorCode::Conflict && refused.message.contains("container"), "{refused}");
        assert!(may_leave(2).is_ok());
    }

    #[test]
    fn the_next_daemon_has_the_arguments_of_this_one() {
        let next = |own: &[&str]| arguments(own.iter().map(OsString::from));
        assert_eq!(next(&["serve", "--read-only"]), ["serve", "--read-only", "--take-over"]);
        assert_eq!(next(&["serve", "--take-over", "--tls"]), ["serve", "--tls", "--take-over"]);
        assert_eq!(next(&["--json", "serve", "--replace"]), ["--json", "serve", "--take-over"]);
    }
}
