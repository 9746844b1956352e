//! `new-session`, `new-window`, `split-window`.

use std::collections::BTreeMap;

use clap::{ArgAction, Args};
use muxtap_engine::is_number;

use super::{Caller, Client, Outcome, list::format_query, output, path_of, variable};

use crate::{
    api::{
        CreatedAnswer, Error, FormatAnswer, NewSessionRequest, NewWindowRequest, Result, SpawnRequest, SplitRequest,
    },
    cli::{
        caller::{Place, whole_environment},
        client::shown,
    },
};

/// The largest window that tmux makes, in cells.
pub(super) const MAX_CELLS: i64 = 10_000;

/// The program that runs in a new pane.
#[derive(Debug, Args)]
pub(in crate::cli) struct Spawn {
    /// Working directory (default: the caller's, as in tmux)
    #[arg(short = 'c', value_name = "DIR")]
    pub(super) cwd: Option<String>,
    /// Set an environment variable of the pane; repeatable
    #[arg(short = 'e', value_name = "NAME=VALUE", value_parser = variable)]
    pub(super) env: Vec<(String, String)>,
    /// Keep the pane when its process has ended, as tmux's remain-on-exit (the output stays
    /// readable for ten minutes either way)
    #[arg(long)]
    pub(super) keep: bool,
    /// The command (default: the shell): one word is a shell command line, several are a program
    /// and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(in crate::cli) command: Vec<String>,
}

impl Spawn {
    /// Builds the request. Without a named directory, `here` selects the caller's. `place`: where the
    /// new pane may be.
    pub(super) fn request(self, here: bool, place: Place) -> Result<SpawnRequest> {
        let cwd = match self.cwd {
            Some(dir) if place == Place::PerhapsElsewhere => Some(dir),
            // A relative directory is the caller's, not the daemon's.
            Some(dir) => Some(absolute(&dir)?),
            None => None,
        };
        let own = || std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok());
        Ok(SpawnRequest {
            command: (!self.command.is_empty()).then_some(self.command),
            caller_cwd: if here && cwd.is_none() { own() } else { None },
            cwd,
            env: self.env.into_iter().collect::<BTreeMap<_, _>>(),
            keep: self.keep,
            caller_env: None,
            shell_integration: None,
        })
    }
}

/// Whether the shell in a new pane marks its commands.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Integration {
    /// Make the shell mark its commands, as with `muxtap shell-integration`; no file of yours changes
    /// (default: the daemon's setting of this name)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) shell_integration: Option<bool>,
}

fn absolute(dir: &str) -> Result<String> {
    let path = std::path::absolute(dir).map_err(|error| Error::invalid(format!("-c {dir}: {error}")))?;
    // tmux would silently run the command in another directory.
    let is_there = path.metadata().is_ok_and(|found| found.is_dir());
    if !is_there {
        return Err(Error::invalid(format!("-c {dir}: no such directory")));
    }
    path.into_os_string()
        .into_string()
        .map_err(|_| Error::invalid(format!("-c {dir}: the directory's path is not valid UTF-8")))
}

/// Create a session; print its pane's id
///
/// Does not attach. Starts the tmux server if none is running, with the caller's environment and
/// directory.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap new-session -s work
  pane=$(muxtap new-session -s build -c ~/src/app --keep -- make -j4)")]
pub(in crate::cli) struct NewSession {
    /// The session's name (default: a number from tmux)
    #[arg(short = 's', value_name = "NAME")]
    name: Option<String>,
    /// The window's name (default: tmux's, after the running program)
    #[arg(short = 'n', value_name = "NAME")]
    window_name: Option<String>,
    /// Width in columns
    #[arg(short = 'x', value_name = "COLUMNS", default_value_t = 80,
          value_parser = clap::value_parser!(u16).range(1..=MAX_CELLS))]
    width: u16,
    /// Height in rows
    #[arg(short = 'y', value_name = "ROWS", default_value_t = 24,
          value_parser = clap::value_parser!(u16).range(1..=MAX_CELLS))]
    height: u16,
    /// If a session of that name exists, print its active pane and create nothing
    #[arg(short = 'A', requires = "name")]
    or_existing: bool,
    /// Do not attach; the default, as muxtap never attaches
    #[arg(short = 'd')]
    detached: bool,
    #[command(flatten)]
    printed: Printed,
    #[command(flatten)]
    integration: Integration,
    #[command(flatten)]
    pub(in crate::cli) spawn: Spawn,
}

/// Create a window; print its pane's id
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap new-window -t work -n logs -- tail -F /var/log/syslog
  muxtap new-window -t work --keep 'make 2>&1 | tee build.log'")]
pub(in crate::cli) struct NewWindow {
    /// The session: a name, `$0`, or any of its panes or windows (default: the caller's); an index,
    /// as in `work:9`, sets the window's position
    #[arg(short = 't', value_name = "SESSION")]
    target: Option<String>,
    /// The window's name (default: tmux's, after the running program)
    #[arg(short = 'n', value_name = "NAME")]
    name: Option<String>,
    /// Make the window the session's current one (default: the focus does not change)
    #[arg(long)]
    select: bool,
    /// Do not change the focus; the default
    #[arg(short = 'd', conflicts_with = "select")]
    detached: bool,
    #[command(flatten)]
    printed: Printed,
    #[command(flatten)]
    integration: Integration,
    #[command(flatten)]
    spawn: Spawn,
}

/// Split a pane; print the new pane's id
///
/// As in tmux, -h means side by side; only --help prints this help.
// Reasons: each is a flag of the command line, and so a switch by nature.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_long_help = "Examples:
  muxtap split-window -t work
  muxtap split-window -h -l 30% -t work:1 -- htop"
)]
pub(in crate::cli) struct SplitWindow {
    /// The pane to split (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// Split side by side
    #[arg(short = 'h')]
    pub(in crate::cli) horizontal: bool,
    /// Split one above the other; the default
    #[arg(short = 'v', conflicts_with = "horizontal")]
    vertical: bool,
    /// Put the new pane first: to the left, or above
    #[arg(short = 'b')]
    before: bool,
    /// Give the new pane the window's whole height or width
    #[arg(short = 'f')]
    full: bool,
    /// Size of the new pane: cells, or a percentage as in `30%` (default: half)
    #[arg(short = 'l', value_name = "SIZE")]
    size: Option<String>,
    /// Size of the new pane as a percentage, as in older versions of tmux
    #[arg(short = 'p', value_name = "PERCENTAGE", conflicts_with = "size",
          value_parser = clap::value_parser!(u8).range(1..=100))]
    percentage: Option<u8>,
    /// Make the new pane active (default: the focus does not change)
    #[arg(long)]
    select: bool,
    /// Do not change the focus; the default
    #[arg(short = 'd', conflicts_with = "select")]
    detached: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    #[command(flatten)]
    printed: Printed,
    #[command(flatten)]
    integration: Integration,
    #[command(flatten)]
    pub(in crate::cli) spawn: Spawn,
}

impl NewSession {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let mut spawn = self.spawn.request(true, caller.place(None))?;
        spawn.caller_env = Some(whole_environment());
        spawn.shell_integration = self.integration.shell_integration;
        let request = NewSessionRequest {
            name: self.name,
            window_name: self.window_name,
            spawn,
            width: Some(self.width),
            height: Some(self.height),
            or_existing: self.or_existing,
        };
        let mut client = caller.client().await?;
        let created = client.post("/v1/sessions", &request).await?;
        self.printed.print(caller, &mut client, &created, "#{session_name}:").await
    }
}

impl NewWindow {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = caller.target(self.target)?;
        if is_number(&target) {
            // In tmux's `new-window`, `-t 1` is the new window's index.
            return Err(Error::bare_number(&target, &[format!(":{target}"), format!("{target}:")]).into());
        }
        let place = caller.place(Some(&target));
        let (session, index) = with_index(target);
        let session = if session.is_empty() { caller.target(None)? } else { session };
        let mut spawn = self.spawn.request(true, place)?;
        spawn.shell_integration = self.integration.shell_integration;
        let request = NewWindowRequest { session, index, name: self.name, spawn, select: self.select };
        let mut client = caller.client().await?;
        let created = client.post("/v1/windows", &request).await?;
        self.printed.print(caller, &mut client, &created, PANE_PLACE).await
    }
}

impl SplitWindow {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let pane = caller.target(self.target)?;
        let mut spawn = self.spawn.request(true, caller.place(Some(&pane)))?;
        spawn.shell_integration = self.integration.shell_integration;
        let request = SplitRequest {
            pane,
            horizontal: self.horizontal,
            before: self.before,
            full: self.full,
            size: self.size.or_else(|| self.percentage.map(|share| format!("{share}%"))),
            spawn,
            select: self.select,
        };
        let mut client = caller.client().await?;
        let created = client.post("/v1/panes", &request).await?;
        self.printed.print(caller, &mut client, &created, PANE_PLACE).await
    }
}

/// Takes the index of a new window from its target: `work:9`, `:9`, `$1:9`.
fn with_index(target: String) -> (String, Option<u32>) {
    let parts = target.rsplit_once(':').and_then(|(session, index)| Some((session, index.parse().ok()?)));
    match parts {
        Some((session, index)) => (session.to_owned(), Some(index)),
        None => (target, None),
    }
}

/// The form in which a new pane is printed.
#[derive(Debug, Args)]
struct Printed {
    /// Print the pane's place, `work:1.0`, instead of its id
    #[arg(short = 'P')]
    place: bool,
    /// Print a tmux format, as in `#{pane_pid}`, instead of the pane's id
    #[arg(short = 'F', value_name = "FORMAT")]
    format: Option<String>,
}

impl Printed {
    /// Prints the created pane. `place`: the format of `-P` without `-F`.
    async fn print(self, caller: &Caller, client: &mut Client, created: &CreatedAnswer, place: &str) -> Outcome {
        let Some(format) = self.format.or_else(|| self.place.then(|| place.to_owned())).filter(|_| !caller.json) else {
            if caller.json {
                output::print_json(created)?;
            } else {
                output::print(format!("{}\n", shown(created.pane)))?;
            }
            return Ok(0);
        };
        let path = format!("{}/format", path_of("panes", &created.pane.to_string()));
        let answer = client.get::<FormatAnswer>(&path, &format_query(&format)).await;
        let answer = answer.map_err(|mut error| {
            error.message = format!("pane {} was created, but not printed: {}", shown(created.pane), error.message);
            error
        })?;
        output::print(format!("{}\n", answer.lines.join("\n")))?;
        Ok(0)
    }
}

/// A pane's place, as tmux prints it.
const PANE_PLACE: &str = "#{session_name}:#{window_index}.#{pane_index}";
