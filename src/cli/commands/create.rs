//! `new-session`, `new-window`, `split-window`.

use std::collections::BTreeMap;

use clap::{ArgAction, Args};

use super::{Caller, Outcome, output, variable};
use crate::{
    api::{CreatedAnswer, Error, NewSessionRequest, NewWindowRequest, Result, SpawnRequest, SplitRequest},
    cli::caller::whole_environment,
    engine::is_number,
};

/// The largest window that tmux makes, in cells.
pub(super) const MAX_CELLS: i64 = 10_000;

/// The program that runs in a new pane.
#[derive(Debug, Args)]
pub(in crate::cli) struct Spawn {
    /// Working directory (default: the one this is called in, as for tmux)
    #[arg(short = 'c', value_name = "DIR")]
    pub(super) cwd: Option<String>,
    /// Set an environment variable in the pane; may be given several times
    #[arg(short = 'e', value_name = "NAME=VALUE", value_parser = variable)]
    pub(super) env: Vec<(String, String)>,
    /// Keep the pane when its process has ended, as tmux's remain-on-exit (its output is readable
    /// for ten minutes either way)
    #[arg(long)]
    pub(super) keep: bool,
    /// The command to run (default: the shell): one word is a shell command line, several are a
    /// program and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(in crate::cli) command: Vec<String>,
}

impl Spawn {
    /// Builds the request. Where no directory was named and `here` is set, the caller's is used.
    pub(super) fn request(self, here: bool) -> Result<SpawnRequest> {
        let cwd = match self.cwd {
            // A relative directory is the caller's, not the daemon's.
            Some(dir) => Some(absolute(&dir)?),
            None if here => std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok()),
            None => None,
        };
        Ok(SpawnRequest {
            command: (!self.command.is_empty()).then_some(self.command),
            cwd,
            env: self.env.into_iter().collect::<BTreeMap<_, _>>(),
            keep: self.keep,
            caller_env: None,
        })
    }
}

fn absolute(dir: &str) -> Result<String> {
    let path = std::path::absolute(dir).map_err(|error| Error::invalid(format!("-c {dir}: {error}")))?;
    path.into_os_string()
        .into_string()
        .map_err(|_| Error::invalid(format!("-c {dir}: the directory's path is not UTF-8")))
}

/// Make a session, without attaching to it; prints its pane's id
///
/// Starts the tmux server where none runs, with this environment and directory.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap new-session -s work
  pane=$(muxtap new-session -s build -c ~/src/app --keep -- make -j4)")]
pub(in crate::cli) struct NewSession {
    /// The session's name (default: tmux numbers it)
    #[arg(short = 's', value_name = "NAME")]
    name: Option<String>,
    /// Columns
    #[arg(short = 'x', value_name = "COLUMNS", default_value_t = 80,
          value_parser = clap::value_parser!(u16).range(1..=MAX_CELLS))]
    width: u16,
    /// Rows
    #[arg(short = 'y', value_name = "ROWS", default_value_t = 24,
          value_parser = clap::value_parser!(u16).range(1..=MAX_CELLS))]
    height: u16,
    /// Do not attach; muxtap never does, taken for tmux's sake
    #[arg(short = 'd')]
    detached: bool,
    #[command(flatten)]
    pub(in crate::cli) spawn: Spawn,
}

/// Make a window in a session; prints its pane's id
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap new-window -t work -n logs -- tail -F /var/log/syslog
  muxtap new-window -t work --keep 'make 2>&1 | tee build.log'")]
pub(in crate::cli) struct NewWindow {
    /// The session: a name, `$0`, or any pane or window of it (default: the one this runs in)
    #[arg(short = 't', value_name = "SESSION")]
    target: Option<String>,
    /// The window's name (default: tmux names it after what runs)
    #[arg(short = 'n', value_name = "NAME")]
    name: Option<String>,
    /// Make it the session's current window (default: the focus stays where it is)
    #[arg(long)]
    select: bool,
    /// Leave the focus where it is; the default, taken for tmux's sake
    #[arg(short = 'd', conflicts_with = "select")]
    detached: bool,
    #[command(flatten)]
    spawn: Spawn,
}

/// Split a pane; prints the new pane's id
///
/// As in tmux -h means side by side here; --help is this text.
// Reasons: each is a flag of the command line, and so a switch by nature.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_long_help = "Examples:
  muxtap split-window -t %0
  muxtap split-window -h -l 30% -t work:1 -- htop"
)]
pub(in crate::cli) struct SplitWindow {
    /// The pane to split (default: the one this runs in)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// Side by side
    #[arg(short = 'h')]
    pub(in crate::cli) horizontal: bool,
    /// One above the other; the default, taken for tmux's sake
    #[arg(short = 'v', conflicts_with = "horizontal")]
    vertical: bool,
    /// Size of the new pane: cells, or a percentage as in `30%` (default: half)
    #[arg(short = 'l', value_name = "SIZE")]
    size: Option<String>,
    /// Make it the active pane (default: the focus stays where it is)
    #[arg(long)]
    select: bool,
    /// Leave the focus where it is; the default, taken for tmux's sake
    #[arg(short = 'd', conflicts_with = "select")]
    detached: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    pub(in crate::cli) spawn: Spawn,
}

impl NewSession {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let mut spawn = self.spawn.request(true)?;
        spawn.caller_env = Some(whole_environment());
        let request = NewSessionRequest { name: self.name, spawn, width: Some(self.width), height: Some(self.height) };
        let created = caller.client().await?.post("/v1/sessions", &request).await?;
        print_created(caller, &created)
    }
}

impl NewWindow {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let session = caller.target(self.target)?;
        if is_number(&session) {
            // `-t 1` of tmux's `new-window` is the index of the window that is made.
            return Err(Error::bare_number(&session, &[format!("{session}:")]).into());
        }
        let request =
            NewWindowRequest { session, name: self.name, spawn: self.spawn.request(true)?, select: self.select };
        let created = caller.client().await?.post("/v1/windows", &request).await?;
        print_created(caller, &created)
    }
}

impl SplitWindow {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let request = SplitRequest {
            pane: caller.target(self.target)?,
            horizontal: self.horizontal,
            size: self.size,
            spawn: self.spawn.request(true)?,
            select: self.select,
        };
        let created = caller.client().await?.post("/v1/panes", &request).await?;
        print_created(caller, &created)
    }
}

fn print_created(caller: &Caller, created: &CreatedAnswer) -> Outcome {
    if caller.json {
        output::print_json(created)?;
    } else {
        output::print(format!("{}\n", created.pane))?;
    }
    Ok(0)
}
