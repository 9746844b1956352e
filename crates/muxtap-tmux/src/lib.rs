//! The control clients of one tmux server, and what they report.
//!
//! [`ServerLink`] finds a tmux server, attaches as few control clients as tmux allows (one where
//! muxtap started the server, one for each session where it is a guest), keeps a model of sessions,
//! windows and panes from what they announce, seeds every pane exactly and notifies its
//! [`Observer`] of what happens. Nothing here is asked on a timer.

mod attach;
mod choice;
mod connection;
mod coverage;
pub mod death;
mod discovery;
mod door;
mod ends;
mod examine;
mod flood;
mod followed;
mod launch;
mod lineage;
mod link;
mod maker;
mod model;
mod noticed;
mod orphans;
mod own_program;
mod pauses;
mod place;
mod probe;
mod processes;
mod program;
mod relay;
mod rest;
mod routes;
#[cfg(test)]
mod scripted;
pub mod seed;
mod seeding;
mod server;
mod silence;
mod socket;
mod surroundings;
mod terminals;
mod topology;
mod transport;
mod tty;
mod values;

pub use choice::{Environment, ServerChoice};
pub use connection::{Answer, Lost, Request};
pub use flood::Floods;
pub use launch::{StartServer, is_secret, keeps_sessions, make_socket_dir};
pub use lineage::{AGENT_MARK, agent_marks};
pub use lineage::{Lineage, ProcessId};
pub use link::{LinkState, ServerIdentity, is_absent, is_unanswered, unreadable};
pub use orphans::ClientName;
pub use own_program::OwnProgram;
pub use probe::{Proc, ProcessProbe, Subject};
pub use processes::Process;
pub use program::{CoverageMode, ForeignServer, Program, ServerSpec, same_socket};
pub use seed::Seed;
pub use server::{FollowAll, ServerLink};
pub use socket::{SocketFile, server_of};
pub use surroundings::Updated;
pub use topology::{HUB_MARK, HUB_NAME, PaneRow, SessionRow, Topology, WindowRow};
pub use transport::{Address, DEFAULT_SOCKET, PeerChoice, Transport, check_name};
pub use transport::{FIRST_ANSWER_LIMIT, NO_PEER, PEER_GREETING};
pub use tty::Foreground;

use std::sync::Arc;

use muxtap_api::{GapReason, Size};
use muxtap_core::protocol::ids::PaneId;

/// A pane's exit status or signal, as far as tmux reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit status.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// Why a pane was seeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeding {
    /// The pane is seen for the first time.
    First,
    /// Output may have been missed for this reason; the seed says what stands there now.
    Again(GapReason),
    /// The pane's process ended; the seed holds all that it printed (F9).
    Last,
}

/// Receives what a [`ServerLink`] reports. Calls come from the task that reads the connection, in
/// the order of the wire, and must return at once.
pub trait Observer: Send + Sync + 'static {
    /// A server was reached; called before anything is reported of its panes. If it is another
    /// server than before, what was known of panes is void.
    fn identified(&self, identity: &ServerIdentity);
    /// A pane was seeded: `seed` holds its content at exactly this point of its stream. Returns
    /// where its output goes from here on; [`DiscardOutput`] if it is not wanted.
    fn seeded(&self, pane: PaneId, seed: Seed, why: Seeding) -> Arc<dyn OutputSink>;
    /// Another connection carries the pane: `output` is what came over it so far, `seed` what
    /// stands in the pane at exactly this point. Returns where its output goes from here on if
    /// `output` is just what the stream lacks of `seed`; then it is the stream's next part, and
    /// nothing was lost.
    fn moved(&self, pane: PaneId, seed: &Seed, output: &[u8]) -> Option<Arc<dyn OutputSink>>;
    /// Another program begins in a pane: what comes from here on is its output. `ran`: muxtap put
    /// it in the place of one that had not ended, of which the last output may be missing.
    fn restarted(&self, pane: PaneId, ran: bool);
    /// From here on a pane's output is not followed, until it is seeded again.
    fn unfollowed(&self, pane: PaneId);
    /// The pane floods: it goes on without being followed, and is seeded again now and then.
    fn held(&self, pane: PaneId);
    /// A pane has this size from about this point of its stream on.
    fn sized(&self, pane: PaneId, size: Size);
    /// The model was refreshed: `topology` is what there is now.
    fn topology(&self, topology: &Topology);
    /// tmux pushed a new value of something it does not announce otherwise.
    fn value(&self, pane: PaneId, value: Value);
    /// A pane's process ended, or the pane was closed with it. The pane may remain on the server
    /// (`remain-on-exit`).
    fn exited(&self, pane: PaneId, exit: Exit);
    /// The pane is no longer on the server. Comes after [`Observer::exited`].
    fn closed(&self, pane: PaneId);
    /// The link to the server changed.
    fn link(&self, link: &LinkState);
}

/// Receives one pane's output. Held only while the pane may print what goes there: from a seed on
/// until the next one, until the pane goes, or until its server turns out to be another one.
pub trait OutputSink: Send + Sync + 'static {
    /// The pane printed `data`. Each byte comes once, in the order of the wire, from the task that
    /// reads the connection; must return at once.
    fn output(&self, data: &[u8]);
    /// Whether something in it is awaited that no seed shows: it is not to be held ([`Floods::Hold`]).
    fn needs_all(&self) -> bool {
        false
    }
}

/// A sink that drops a pane's output.
pub struct DiscardOutput;

impl OutputSink for DiscardOutput {
    fn output(&self, _: &[u8]) {}
}

/// A value that tmux pushes (F8), at most a second old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `#{pane_title}`.
    Title(String),
    /// `#{pane_current_command}`.
    Command(String),
    /// `#{pane_current_path}`.
    Path(String),
    /// `#{history_size} #{cursor_x} #{cursor_y}`, at some moment since the last such value.
    Place(String),
    /// A place that was asked for: as it is where the reply stands among the pane's output.
    PlaceHere(String),
}
