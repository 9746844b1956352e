//! Options of an engine.

use std::{path::PathBuf, sync::Arc, time::Duration};

use muxtap_api::Tiers;
use muxtap_tmux::{CoverageMode, Floods, Program, Transport};

use super::{agents, audit, limits};

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tmux program, with any words that precede it.
    pub program: Program,
    /// The transports to other hosts.
    pub transports: Vec<Arc<Transport>>,
    /// Which control clients follow a server.
    pub coverage: CoverageMode,
    /// How long an unused pane is followed ([`CoverageMode::Used`]).
    pub follow_for: Duration,
    /// How flooding panes are treated before tmux 3.8.
    pub floods: Floods,
    /// Bytes of output that a pane's ring keeps.
    pub ring_bytes: usize,
    /// Memory budget: bytes of output and screens of all panes together.
    pub budget_bytes: usize,
    /// The tiers of actions that callers may perform.
    pub allowed: Tiers,
    /// The audit log, if actions are recorded.
    pub audit: Option<Arc<audit::Audit>>,
    /// The folder for results of waits whose callers did not stay for them; `None`: they end with the
    /// engine.
    pub wait_results: Option<PathBuf>,
    /// The rules that recognize agents.
    pub agents: Arc<agents::Rules>,
    /// Whether shells that are started in panes mark their commands, unless a request says otherwise.
    pub shell_integration: bool,
    /// The directory for the startup files of these shells; `None`: `muxtap-shell` in
    /// `$XDG_RUNTIME_DIR`.
    pub shell_folder: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            program: Program::default(),
            transports: Vec::new(),
            coverage: CoverageMode::Used,
            follow_for: limits::FOLLOW_FOR,
            floods: Floods::Hold,
            ring_bytes: limits::RING_BYTES,
            budget_bytes: limits::BUDGET_BYTES,
            allowed: Tiers::ALL,
            audit: None,
            wait_results: None,
            agents: Arc::new(agents::Rules::built_in()),
            shell_integration: false,
            shell_folder: None,
        }
    }
}

impl Options {
    /// Sets the tmux program: a name in `PATH`, or a path. Default: `tmux`.
    ///
    /// ```
    /// # use muxtap_engine as muxtap;
    /// let options = muxtap::Options::default().tmux("/usr/local/bin/tmux").ring_bytes(4 << 20);
    /// ```
    pub fn tmux(mut self, program: impl Into<PathBuf>) -> Self {
        self.program.tmux = program.into();
        self
    }

    /// Sets the configuration file with which servers are started (`tmux -f`). Default: tmux's own
    /// choice.
    pub fn tmux_config(mut self, file: impl Into<PathBuf>) -> Self {
        self.program.config = Some(file.into());
        self
    }

    /// Sets which control clients follow a server. Default: [`CoverageMode::Used`].
    pub fn coverage(mut self, coverage: CoverageMode) -> Self {
        self.coverage = coverage;
        self
    }

    /// Sets how long a pane is followed after its last use. Default: ten minutes. Applies to
    /// [`CoverageMode::Used`] only.
    pub fn follow_for(mut self, time: Duration) -> Self {
        self.follow_for = time;
        self
    }

    /// Sets how flooding panes are treated on servers before tmux 3.8. Default: [`Floods::Hold`].
    pub fn floods(mut self, floods: Floods) -> Self {
        self.floods = floods;
        self
    }

    /// Sets whether shells that are started in panes mark their commands. Default: no.
    pub fn shell_integration(mut self, on: bool) -> Self {
        self.shell_integration = on;
        self
    }

    /// Sets how many bytes of each pane's output are kept. Default: 1 MiB.
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Sets the memory budget for the output and screens of all panes together, in bytes. Above it
    /// the largest rings are halved first. Default: 512 MiB.
    pub fn budget_bytes(mut self, bytes: usize) -> Self {
        self.budget_bytes = bytes;
        self
    }

    /// Sets the tiers of requests that callers may make; others are rejected with `READ_ONLY`.
    /// Default: all.
    ///
    /// ```
    /// # use muxtap_engine as muxtap;
    /// use muxtap::api::Tiers;
    ///
    /// let options = muxtap::Options::default().allow(Tiers::READ_ONLY);
    /// ```
    pub fn allow(mut self, tiers: Tiers) -> Self {
        self.allowed = tiers;
        self
    }
}
