//! The control clients of one tmux server, and what they report.
//!
//! [`ServerLink`] finds a tmux server, attaches as few control clients as tmux allows (one if
//! muxtap started the server, one for each session in which it is a guest), keeps a model of
//! sessions, windows and panes from what they announce, seeds every pane exactly and notifies its
//! [`Observer`] of events. Nothing in this crate is polled on a timer.

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
mod handed;
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
#[cfg(feature = "played")]
pub mod played;
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
pub use handed::{ContinuedLink, PausedLink, StoredLink};
pub use launch::{StartServer, is_secret, keeps_sessions, make_socket_dir};
pub use lineage::{AGENT_MARK, agent_marks, continue_agent_marks};
pub use lineage::{Lineage, ProcessId};
pub use link::{LinkState, ServerIdentity, is_absent, is_unanswered, unreadable};
pub use orphans::ClientName;
pub use own_program::OwnProgram;
pub use probe::{Proc, ProcessProbe, Subject};
pub use processes::{Process, Relative};
pub use program::{CoverageMode, ForeignServer, Program, ServerSpec, same_socket};
pub use seed::Seed;
pub use server::{FollowAll, ServerLink};
pub use socket::{SocketFile, server_of};
pub use surroundings::Updated;
pub use topology::{HUB_MARK, HUB_NAME, PaneRow, SessionRow, Topology, WindowRow};
pub use transport::{Address, DEFAULT_SOCKET, PeerChoice, Transport, check_name};
pub use transport::{FIRST_ANSWER_LIMIT, NO_PEER, PEER_GREETING};
pub use tty::{Foreground, LineKeys, TerminalInput};

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use muxtap_api::{GapReason, Size};
use muxtap_core::protocol::ids::PaneId;

/// A pane's exit status or signal, if tmux reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Its exit status.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// The reason why a pane was seeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeding {
    /// The pane is seen for the first time.
    First,
    /// Output may have been missed for this reason; the seed has the present content.
    Again(GapReason),
    /// The pane's process ended; the seed holds all its output (F9).
    Last,
}

/// Receives what a [`ServerLink`] reports. Calls come from the task that reads the connection, in
/// the order of the wire, and must return at once.
pub trait Observer: Send + Sync + 'static {
    /// Reports that a server was reached; called before anything is reported of its panes. If it is
    /// a different server, all that was known of panes is void.
    fn identified(&self, identity: &ServerIdentity);
    /// Reports that a pane was seeded: `seed` holds its content at exactly this point of its
    /// stream. Returns where its output goes from now on; [`DiscardOutput`] if it is not wanted.
    fn seeded(&self, pane: PaneId, seed: Seed, why: Seeding) -> Arc<dyn OutputSink>;
    /// Reports that another connection carries the pane: `output` is what came over it so far,
    /// `seed` the pane's content at exactly this point. Returns where its output goes from now on
    /// if `output` is exactly what the stream lacks of `seed`; then it is the stream's next part,
    /// and nothing was lost.
    fn moved(&self, pane: PaneId, seed: &Seed, output: &[u8]) -> Option<Arc<dyn OutputSink>>;
    /// Reports that a pane is followed that another process has followed so far, without anything
    /// missing. Returns where its output goes; `None` if the pane is not known.
    fn continued(&self, pane: PaneId) -> Option<Arc<dyn OutputSink>>;
    /// Reports that another program begins in a pane: later output belongs to it. `ran`: muxtap put
    /// it in place of a program that had not ended, whose last output may be missing.
    fn restarted(&self, pane: PaneId, ran: bool);
    /// Reports that a pane's output is not followed from now on, until it is seeded again.
    fn unfollowed(&self, pane: PaneId);
    /// Reports that the pane floods: it continues without being followed, and is seeded again now
    /// and then.
    fn held(&self, pane: PaneId);
    /// Reports that a pane has this size from about this point of its stream on.
    fn sized(&self, pane: PaneId, size: Size);
    /// Reports that the model was refreshed: `topology` is the present state.
    fn topology(&self, topology: &Topology);
    /// Reports that tmux pushed a new value of something that it does not announce otherwise.
    fn value(&self, pane: PaneId, value: Value);
    /// Reports that a pane's process ended, or that the pane was closed with it. The pane may
    /// remain on the server (`remain-on-exit`).
    fn exited(&self, pane: PaneId, exit: Exit);
    /// Reports that the pane is no longer on the server. Comes after [`Observer::exited`].
    fn closed(&self, pane: PaneId);
    /// Reports that the link to the server changed.
    fn link(&self, link: &LinkState);
}

/// Receives one pane's output. Held only while the pane may print for it: from a seed until the
/// next one, until the pane goes, or until its server turns out to be a different one.
pub trait OutputSink: Send + Sync + 'static {
    /// Takes `data`, which the pane printed. Each byte comes once, in the order of the wire, from
    /// the task that reads the connection; must return at once.
    fn output(&self, data: &[u8]);
    /// Returns whether a waiter needs output that no seed shows: the pane must not be held
    /// ([`Floods::Hold`]).
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
    /// The title (`#{pane_title}`).
    Title(String),
    /// The running command (`#{pane_current_command}`).
    Command(String),
    /// The working directory (`#{pane_current_path}`).
    Path(String),
    /// The history's size and the cursor's place (`#{history_size} #{cursor_x} #{cursor_y}`), at
    /// some moment since the last such value.
    Place(String),
    /// The place that a query returned, as of the reply's position among the pane's output.
    PlaceHere(String),
}
