//! The state of the link to a server, and the pauses between attempts to reach it.

use std::{os::unix::fs::FileTypeExt as _, path::Path, time::Duration};

use muxtap_api::{Error, ErrorCode};
use muxtap_core::protocol::{ids::SessionId, names, version::Version};
use tokio::sync::watch;

/// The first pause after a failed attempt; it doubles up to [`LONGEST_PAUSE`].
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between attempts to reach a server that seems to be there.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A server's identity: another process on the same socket is another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The id of the server's process.
    pub pid: u32,
    /// When it was started, seconds since 1970.
    pub started: u64,
    /// Its version.
    pub version: Version,
}

impl ServerIdentity {
    /// Returns the number by which cursors identify this server (`Epoch::server`). Process ids are
    /// reused: the time distinguishes two servers of one id.
    pub fn epoch(&self) -> u64 {
        (u64::from(self.pid) << 40) ^ self.started
    }
}

/// The state of the link to a server.
#[derive(Clone, Debug)]
pub enum LinkState {
    /// An attempt is in progress.
    Connecting,
    /// Control clients are attached.
    Connected(ServerIdentity),
    /// No connection exists.
    Down {
        /// The reason.
        error: Error,
        /// Whether the followed server no longer runs, or has no session any more.
        ended: bool,
        /// Attempts so far; a waiter compares it to see that its own attempt is over.
        attempts: u64,
    },
}

/// The reason why no connection exists.
pub enum NoLink {
    /// No server runs on the socket.
    Absent(Error),
    /// A server runs on the socket without a session to attach to (`exit-empty off`), except these,
    /// which are other programs' hubs.
    Empty(Error, Vec<SessionId>),
    /// The server could not be reached, but may run.
    Failed(Error),
}

/// The beginning of the error of [`NoLink::Absent`].
const ABSENT: &str = "no tmux server runs on ";

/// Returns the error that no server runs on this socket, or that it is not a socket: no server can be
/// started there.
pub(super) fn absent(socket: &Path) -> Error {
    if let Ok(file) = socket.metadata()
        && !file.file_type().is_socket()
    {
        let what = if file.is_dir() { "a folder" } else { "a file" };
        return Error::invalid(format!("socket: {} is {what}, not a socket of tmux", socket.display()));
    }
    Error::unavailable(format!("{ABSENT}{}; `muxtap new-session` starts one", socket.display()))
}

/// The beginning of the error of [`NoLink::Empty`].
const EMPTY: &str = "no session is on the tmux server ";

/// Returns the error that the server on this socket has no session.
pub(super) fn empty(socket: &Path) -> Error {
    Error::unavailable(format!("{EMPTY}{}; `muxtap new-session` creates one", socket.display()))
}

/// Returns the error that a different server now listens on this socket.
pub(super) fn replaced(socket: &Path, other: u32) -> Error {
    Error::unavailable(format!("another tmux server (process {other}) is on {} now; retry", socket.display()))
}

/// Returns whether the error says that no server runs, or none with a session, in contrast to a
/// server that could not be reached.
pub fn is_absent(error: &Error) -> bool {
    error.code == ErrorCode::TmuxUnavailable && [ABSENT, EMPTY].iter().any(|start| error.message.starts_with(start))
}

/// Returns the error about a pane of a server that another one on this socket has replaced.
pub(super) fn ended_with_server(socket: &Path) -> Error {
    Error::not_found(format!("the pane ended with the tmux server that ran on {}", socket.display()))
}

/// Returns the error that the reply does not belong to the command: the server has an alias even
/// for the spelling that muxtap uses ([`names`]).
pub fn unreadable(command: &str) -> Error {
    let spelling = names::spelled(command);
    let message = format!(
        "unreadable reply from tmux to `{spelling}`: it is not in the requested format; is `{spelling}` in \
         `command-alias`? See `tmux show-options -s command-alias`, and remove any alias with that name"
    );
    Error::unavailable(message)
}

/// The beginning of the error, for every caller, that tmux sent no reply in time.
pub(super) const UNANSWERED: &str = "tmux does not respond: ";

/// Returns whether the error says that a server may run but sends no replies.
pub fn is_unanswered(error: &Error) -> bool {
    error.code == ErrorCode::TmuxUnavailable && error.message.starts_with(UNANSWERED)
}

/// Returns the channel on which a link's state is published.
pub(super) fn link_channel() -> watch::Sender<LinkState> {
    watch::Sender::new(LinkState::Connecting)
}
