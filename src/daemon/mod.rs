//! The process that holds the engine: where it is found, how it starts, how it stays single.

pub mod paths;
pub mod start;

use std::path::PathBuf;

use crate::api::{Error, Result};

/// Bytes of output kept for each pane unless told otherwise.
pub const DEFAULT_RING_BYTES: u64 = 1 << 20;
/// Bytes of output kept for all panes together unless told otherwise.
pub const DEFAULT_BUDGET_BYTES: u64 = 512 << 20;

/// How control clients are spread over a tmux server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CoverageChoice {
    /// A hub on servers that muxtap started, one client per session elsewhere.
    #[default]
    Auto,
    /// One client on a session of muxtap's own, into which every window is linked.
    Hub,
    /// One client per session; nothing is created on the server.
    Sessions,
}

/// What `muxtap serve` was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// A command started it and waits for `ready` on its stdout ([`start::report_ready`]).
    pub background: bool,
    /// The tmux program: a path, or a name that is looked for in `PATH`.
    pub tmux: PathBuf,
    /// How control clients are spread.
    pub coverage: CoverageChoice,
    /// Bytes of output kept for each pane.
    pub ring_bytes: u64,
    /// Bytes of output kept for all panes together.
    pub budget_bytes: u64,
    /// What goes to the log, in the words of `tracing`'s filter (`info`, `muxtap=debug`).
    pub log_level: String,
}

/// Runs the daemon until it is stopped.
pub fn serve(options: &ServeOptions) -> Result<()> {
    let _ = options;
    Err(Error::internal("this build of muxtap has no daemon"))
}
