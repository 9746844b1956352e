//! `workspace`, and the same program called `freshell`: this command line as a device, and the
//! workspaces of other devices.

mod auth;
mod device;
mod layout;
mod output;
mod owner;
mod serve;
mod sessions;
mod terminals;
mod times;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

pub(in crate::cli) use self::terminals::id_of;
use super::{Caller, Outcome, duration};
use muxtap_devices::{
    FRESHELL_DIR,
    local::{Home, Identity},
    workspace::Direction,
};

use crate::{
    api::{Error, ErrorCode, Result},
    cli::{EXIT_ERROR, EXIT_TIMEOUT, output as print, output::Failure},
};

/// The program name that selects this command.
pub(in crate::cli) const FRESHELL: &str = "freshell";

/// Control tabs and panes of a page or command line
///
/// A workspace belongs to a device: this command line, or a page in a browser. Another device is
/// reached through the daemon and must be online. Terminals (`terminal:%3`) are tmux panes and
/// belong to no device. Targets are tab:ID, tab-name:NAME, tab-index:N, pane:ID, pane-index:N (with
/// --tab) and terminal:ID. The same program named `freshell` is this command.
#[derive(Debug, Args)]
#[command(
    subcommand_value_name = "COMMAND",
    subcommand_help_heading = "Commands",
    after_long_help = "Examples:
  muxtap workspace new-tab -n build --shell 'make; exec sh'
  muxtap workspace list-panes --json
  muxtap workspace send-keys --target pane:p2 'make test' Enter
  muxtap workspace split-pane --device laptop --target pane:p2 --direction vertical --browser http://localhost:3000
  muxtap workspace device run                    stay available to other devices until Ctrl-C

Exit status: 0; 1 error; 2 usage; 124 timeout. An error is an object {code, message, details, stage} on
stderr; with --json on stdout."
)]
pub(in crate::cli) struct WorkspaceArgs {
    #[command(subcommand)]
    command: WorkspaceCommand,
}

/// The selected device.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct DeviceArg {
    /// The device that owns the workspace (default: this command line)
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

/// The arguments of every change.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ChangeArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// Reject the change unless the workspace is at this revision (default: the current one)
    #[arg(long, value_name = "N")]
    expected_revision: Option<u64>,
    /// Repeat the first result for the same key, for ten minutes (default: a new key, printed)
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// A pane, and the arguments of every change.
#[derive(Clone, Debug, Args)]
pub(super) struct PaneArgs {
    /// The pane: pane:ID, or pane-index:N with --tab
    #[arg(short = 't', long, value_name = "PANE")]
    target: String,
    /// The tab of pane-index:N
    #[arg(long, value_name = "TAB")]
    tab: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// A tab, and the arguments of every change.
#[derive(Clone, Debug, Args)]
pub(super) struct TabArgs {
    /// The tab: tab:ID, tab-name:NAME or tab-index:N
    #[arg(short = 't', long, value_name = "TAB")]
    target: String,
    #[command(flatten)]
    change: ChangeArgs,
}

/// A terminal, or a pane that shows one.
#[derive(Clone, Debug, Args)]
pub(super) struct TerminalArgs {
    /// The terminal: terminal:ID, or pane:ID for the terminal that its device shows there
    #[arg(short = 't', long, value_name = "TERMINAL")]
    target: String,
    #[command(flatten)]
    device: DeviceArg,
}

#[derive(Debug, Subcommand)]
enum WorkspaceCommand {
    #[command(flatten)]
    Layout(layout::LayoutCommand),
    #[command(flatten)]
    Terminal(terminals::TerminalCommand),
    #[command(flatten)]
    Device(device::DeviceCommand),
    #[command(flatten)]
    Session(sessions::SessionCommand),
}

impl WorkspaceCommand {
    /// Returns whether the command fails without its daemon. Others use this device's file alone, at
    /// most publish a change of it, or connect by themselves.
    fn needs_daemon(&self) -> bool {
        match self {
            Self::Layout(command) => command.needs_daemon(),
            Self::Device(device::DeviceCommand::Device(_) | device::DeviceCommand::Allow { .. }) => false,
            Self::Device(_) | Self::Terminal(_) | Self::Session(_) => true,
        }
    }
}

/// The direction of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SplitDirection {
    /// Side by side.
    Horizontal,
    /// One above the other.
    Vertical,
}

impl From<SplitDirection> for Direction {
    fn from(direction: SplitDirection) -> Self {
        match direction {
            SplitDirection::Horizontal => Self::Horizontal,
            SplitDirection::Vertical => Self::Vertical,
        }
    }
}

/// This device and its daemon.
pub(super) struct Context<'a> {
    caller: &'a Caller,
    home: Home,
    identity: Identity,
}

impl WorkspaceArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        match self.dispatch(caller).await {
            Err(Failure::Error(error)) => {
                if caller.json {
                    print::print_json(&error)?;
                } else {
                    print::report(&error, true);
                }
                Ok(if error.code == ErrorCode::Timeout { EXIT_TIMEOUT } else { EXIT_ERROR })
            }
            outcome => outcome,
        }
    }

    async fn dispatch(self, caller: &Caller) -> Outcome {
        let home = Home::new(folder(caller, is_freshell(std::env::args_os().next().as_deref()))?);
        home.check()?;
        let identity = home.identity()?;
        // A login's own commands choose the daemon themselves.
        let elsewhere = match &self.command {
            WorkspaceCommand::Device(device::DeviceCommand::Auth(_)) => None,
            command => {
                let renew = if command.needs_daemon() { auth::Renew::Due } else { auth::Renew::Never };
                auth::logged_in(caller, &home, renew).await?
            }
        };
        let context = Context { caller: elsewhere.as_ref().unwrap_or(caller), home, identity };
        match self.command {
            WorkspaceCommand::Layout(command) => command.run(&context).await,
            WorkspaceCommand::Terminal(command) => command.run(&context).await,
            WorkspaceCommand::Device(command) => command.run(&context).await,
            WorkspaceCommand::Session(command) => command.run(context.caller).await,
        }
    }
}

/// Returns whether the program was called `freshell`.
pub(in crate::cli) fn is_freshell(program: Option<&std::ffi::OsStr>) -> bool {
    program.map(std::path::Path::new).and_then(std::path::Path::file_name).is_some_and(|name| name == FRESHELL)
}

/// Returns the folder of this device's files: that of `freshell` or of `muxtap`.
pub(in crate::cli) fn folder(caller: &Caller, freshell: bool) -> Result<PathBuf> {
    if !freshell {
        return Ok(caller.paths.devices_dir());
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.map(|home| home.join(FRESHELL_DIR))
        .ok_or_else(|| Error::invalid("HOME is not set; freshell keeps its files there"))
}

impl Context<'_> {
    /// Prints a response: as JSON, or in words.
    fn print(&self, answer: &Value, words: impl FnOnce(&Value) -> String) -> Outcome {
        if self.caller.json {
            print::print_json(answer)?;
        } else {
            print::print(words(answer))?;
        }
        Ok(0)
    }
}

/// Returns a field's string, or an empty string.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
