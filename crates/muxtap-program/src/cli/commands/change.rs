//! Commands that change or end sessions, windows and panes.

use clap::{ArgGroup, Args};

use super::{
    Caller, Outcome,
    create::{Integration, MAX_CELLS, Spawn},
    list::format_query,
    output, path_named,
};
use crate::api::{DoneAnswer, FormatAnswer, PatchRequest, RespawnRequest};

/// Kill a pane and its process
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap kill-pane -t %3")]
pub(in crate::cli) struct KillPane {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
}

/// Kill a window and its panes
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap kill-window -t work:logs")]
pub(in crate::cli) struct KillWindow {
    /// The window (default: the caller's)
    #[arg(short = 't', value_name = "WINDOW")]
    target: Option<String>,
}

/// Kill a session and its windows
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap kill-session -t work")]
pub(in crate::cli) struct KillSession {
    /// The session (default: the caller's)
    #[arg(short = 't', value_name = "SESSION")]
    target: Option<String>,
}

/// Restart a pane's program, or start another one
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap respawn-pane -t %3                      run the previous command again in an ended pane
  muxtap respawn-pane -k -t %3 -- make test      end the running program first")]
pub(in crate::cli) struct RespawnPane {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// End the running process first; without -k a pane in use is rejected
    #[arg(short = 'k')]
    kill: bool,
    #[command(flatten)]
    integration: Integration,
    #[command(flatten)]
    spawn: Spawn,
}

/// Rename a session
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap rename-session -t work play")]
pub(in crate::cli) struct RenameSession {
    /// The session (default: the caller's)
    #[arg(short = 't', value_name = "SESSION")]
    target: Option<String>,
    /// The new name
    #[arg(value_name = "NAME")]
    name: String,
}

/// Rename a window
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap rename-window -t work:1 logs")]
pub(in crate::cli) struct RenameWindow {
    /// The window (default: the caller's)
    #[arg(short = 't', value_name = "WINDOW")]
    target: Option<String>,
    /// The new name
    #[arg(value_name = "NAME")]
    name: String,
}

/// Resize a pane within its window
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("size").args(["width", "height", "zoom"]).required(true).multiple(true)),
    after_long_help = "Examples:
  muxtap resize-pane -t %3 -x 120
  muxtap resize-pane -Z -t %3"
)]
pub(in crate::cli) struct ResizePane {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// Width in columns
    #[arg(short = 'x', value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(1..=MAX_CELLS))]
    width: Option<u16>,
    /// Height in rows
    #[arg(short = 'y', value_name = "ROWS", value_parser = clap::value_parser!(u16).range(1..=MAX_CELLS))]
    height: Option<u16>,
    /// Toggle zoom: fill the window, or restore the pane's size
    #[arg(short = 'Z', conflicts_with_all = ["width", "height"])]
    zoom: bool,
}

/// Leave copy mode or another mode of a pane
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap copy-mode -q -t %3")]
pub(in crate::cli) struct CopyMode {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// Leave the mode; muxtap never enters one
    #[arg(short = 'q', required = true)]
    quit: bool,
}

/// Resize a window
///
/// tmux then keeps that size for all clients until `tmux resize-window -A`.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("size").args(["width", "height"]).required(true).multiple(true)),
    after_long_help = "Example:
  muxtap resize-window -t work:1 -x 200 -y 50"
)]
pub(in crate::cli) struct ResizeWindow {
    /// The window (default: the caller's)
    #[arg(short = 't', value_name = "WINDOW")]
    target: Option<String>,
    /// Width in columns
    #[arg(short = 'x', value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(1..=MAX_CELLS))]
    width: Option<u16>,
    /// Height in rows
    #[arg(short = 'y', value_name = "ROWS", value_parser = clap::value_parser!(u16).range(1..=MAX_CELLS))]
    height: Option<u16>,
}

/// Select a window
///
/// Makes the window the current one of its session. -n, -p and -l refer to the caller's session.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("which").args(["target", "next", "previous", "last"])),
    after_long_help = "Examples:
  muxtap select-window -t work:logs
  muxtap select-window -n"
)]
pub(in crate::cli) struct SelectWindow {
    /// The window (default: the caller's)
    #[arg(short = 't', value_name = "WINDOW")]
    target: Option<String>,
    /// Select the next window
    #[arg(short = 'n')]
    next: bool,
    /// Select the previous window
    #[arg(short = 'p')]
    previous: bool,
    /// Select the previously current window
    #[arg(short = 'l')]
    last: bool,
}

/// Select a pane, or set its title
///
/// Makes the pane the active one of its window. -L, -R, -U, -D and -l refer to the caller's window.
// Reasons: each is a flag of the command line, and so a switch by nature.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("which").args(["target", "left", "right", "up", "down", "last"])),
    after_long_help = "Examples:
  muxtap select-pane -t work:1.2
  muxtap select-pane -t %3 -T 'the build'        set the title; keep the active pane
  muxtap select-pane -L"
)]
pub(in crate::cli) struct SelectPane {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// Select the pane to the left
    #[arg(short = 'L')]
    left: bool,
    /// Select the pane to the right
    #[arg(short = 'R')]
    right: bool,
    /// Select the pane above
    #[arg(short = 'U')]
    up: bool,
    /// Select the pane below
    #[arg(short = 'D')]
    down: bool,
    /// Select the previously active pane
    #[arg(short = 'l')]
    last: bool,
    /// Set the pane's title instead
    #[arg(short = 'T', value_name = "TITLE")]
    title: Option<String>,
}

/// Arrange a window's panes
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap select-layout -t work:1 tiled
  muxtap select-layout -t @1 \"$(muxtap list-windows --json | jq -r '.windows[0].layout')\"")]
pub(in crate::cli) struct SelectLayout {
    /// The window (default: the caller's)
    #[arg(short = 't', value_name = "WINDOW")]
    target: Option<String>,
    /// even-horizontal, even-vertical, main-horizontal, main-vertical, tiled, or a layout from
    /// list-windows --json
    #[arg(value_name = "LAYOUT")]
    layout: String,
}

impl KillPane {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        kill(caller, "panes", self.target).await
    }
}

impl KillWindow {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        kill(caller, "windows", self.target).await
    }
}

impl KillSession {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        kill(caller, "sessions", self.target).await
    }
}

impl RespawnPane {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        // The pane keeps its directory, as in tmux.
        let mut spawn = self.spawn.request(false, caller.place(self.target.as_deref()))?;
        spawn.shell_integration = self.integration.shell_integration;
        let respawn = RespawnRequest { kill: self.kill, spawn };
        let change = PatchRequest { respawn: Some(respawn), ..PatchRequest::default() };
        patch(caller, "panes", self.target, &change).await
    }
}

impl RenameSession {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let change = PatchRequest { name: Some(self.name), ..PatchRequest::default() };
        patch(caller, "sessions", self.target, &change).await
    }
}

impl RenameWindow {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let change = PatchRequest { name: Some(self.name), ..PatchRequest::default() };
        patch(caller, "windows", self.target, &change).await
    }
}

impl ResizePane {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = caller.target(self.target)?;
        let mut change = PatchRequest { width: self.width, height: self.height, ..PatchRequest::default() };
        if self.zoom {
            let path = format!("{}/format", path_named("panes", &target)?);
            let answer: FormatAnswer = caller.client().await?.get(&path, &format_query(IS_ZOOMED)).await?;
            change.zoom = Some(answer.lines != ["1"]);
        }
        patch(caller, "panes", Some(target), &change).await
    }
}

/// Whether a pane fills its window.
const IS_ZOOMED: &str = "#{&&:#{window_zoomed_flag},#{pane_active}}";

impl CopyMode {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let change = PatchRequest { leave_mode: self.quit, ..PatchRequest::default() };
        patch(caller, "panes", self.target, &change).await
    }
}

impl ResizeWindow {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let change = PatchRequest { width: self.width, height: self.height, ..PatchRequest::default() };
        patch(caller, "windows", self.target, &change).await
    }
}

impl SelectLayout {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let change = PatchRequest { layout: Some(self.layout), ..PatchRequest::default() };
        patch(caller, "windows", self.target, &change).await
    }
}

impl SelectWindow {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let place = [(self.next, ":+"), (self.previous, ":-"), (self.last, ":!")];
        let target = self.target.or_else(|| named_place(&place));
        let change = PatchRequest { select: true, ..PatchRequest::default() };
        patch(caller, "windows", target, &change).await
    }
}

impl SelectPane {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let place = [
            (self.left, "{left-of}"),
            (self.right, "{right-of}"),
            (self.up, "{up-of}"),
            (self.down, "{down-of}"),
            (self.last, ".!"),
        ];
        let target = self.target.or_else(|| named_place(&place));
        // As in tmux: either sets the title, or selects the pane.
        let change = PatchRequest { select: self.title.is_none(), name: self.title, ..PatchRequest::default() };
        patch(caller, "panes", target, &change).await
    }
}

/// Returns the target that a flag means.
fn named_place(flags: &[(bool, &str)]) -> Option<String> {
    flags.iter().find(|(given, _)| *given).map(|(_, place)| (*place).to_owned())
}

async fn kill(caller: &Caller, kind: &str, target: Option<String>) -> Outcome {
    let target = caller.target(target)?;
    let done = caller.client().await?.delete(&path_named(kind, &target)?).await?;
    print_done(caller, &done)
}

pub(super) async fn patch(caller: &Caller, kind: &str, target: Option<String>, change: &PatchRequest) -> Outcome {
    let target = caller.target(target)?;
    let done = caller.client().await?.patch(&path_named(kind, &target)?, change).await?;
    print_done(caller, &done)
}

fn print_done(caller: &Caller, done: &DoneAnswer) -> Outcome {
    if caller.json {
        output::print_json(done)?;
    }
    Ok(0)
}
