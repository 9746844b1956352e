//! The state of the link to a server, and the pauses before it is tried again.

use std::{path::Path, time::Duration};

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
    /// Returns the number by which cursors know this server (`Epoch::server`). Process ids begin
    /// anew: the time tells two servers of one id apart.
    pub fn epoch(&self) -> u64 {
        (u64::from(self.pid) << 40) ^ self.started
    }
}

/// The state of the link to a server.
#[derive(Clone, Debug)]
pub enum LinkState {
    /// An attempt is under way.
    Connecting,
    /// Control clients are attached.
    Connected(ServerIdentity),
    /// There is no connection.
    Down {
        /// Why.
        error: Error,
        /// Whether the server that was followed no longer runs, or has no session any more.
        ended: bool,
        /// Attempts made so far; by this a waiter knows whether its own attempt is over.
        attempts: u64,
    },
}

/// Why there is no connection.
pub enum NoLink {
    /// No server runs there.
    Absent(Error),
    /// A server runs there without a session to attach to (`exit-empty off`), but for these, which
    /// are other programs' hubs.
    Empty(Error, Vec<SessionId>),
    /// The server could not be reached though it may run.
    Failed(Error),
}

/// The beginning of the error of [`NoLink::Absent`].
const ABSENT: &str = "no tmux server runs on ";

/// Returns the error that no server runs on this socket.
pub(super) fn absent(socket: &Path) -> Error {
    Error::unavailable(format!("{ABSENT}{}; `muxtap new-session` starts one", socket.display()))
}

/// The beginning of the error of [`NoLink::Empty`].
const EMPTY: &str = "no session is on the tmux server ";

/// Returns the error that the server on this socket has no session.
pub(super) fn empty(socket: &Path) -> Error {
    Error::unavailable(format!("{EMPTY}{}; `muxtap new-session` makes one", socket.display()))
}

/// Returns the error that another server answers on this socket than before.
pub(super) fn replaced(socket: &Path, other: u32) -> Error {
    Error::unavailable(format!("another tmux server (process {other}) is on {} now; ask again", socket.display()))
}

/// Whether the error says that no server runs, or none with a session, as opposed to one that could
/// not be reached.
pub fn is_absent(error: &Error) -> bool {
    error.code == ErrorCode::TmuxUnavailable && [ABSENT, EMPTY].iter().any(|start| error.message.starts_with(start))
}

/// Returns the error about a pane of a server in whose place another one runs on this socket.
pub(super) fn ended_with_server(socket: &Path) -> Error {
    Error::not_found(format!("the pane ended with the tmux server that ran on {}", socket.display()))
}

/// Returns the error that the answer to a command is not one: the server has an alias even for the
/// spelling that muxtap uses ([`names`]).
pub fn unreadable(command: &str) -> Error {
    let spelling = names::spelled(command);
    let message = format!(
        "unreadable answer of tmux to `{spelling}`: it is not in the format that was asked for; is `{spelling}` in \
         `command-alias`? See `tmux show-options -s command-alias`; no alias of that name may be set"
    );
    Error::unavailable(message)
}

/// The beginning of the error where tmux does not answer in time, for every caller.
pub(super) const UNANSWERED: &str = "tmux does not answer: ";

/// Whether the error says that a server may run and does not answer.
pub fn is_unanswered(error: &Error) -> bool {
    error.code == ErrorCode::TmuxUnavailable && error.message.starts_with(UNANSWERED)
}

/// Returns the channel on which a link's state is published.
pub(super) fn link_channel() -> watch::Sender<LinkState> {
    watch::Sender::new(LinkState::Connecting)
}
