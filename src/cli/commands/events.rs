//! `events`.

use clap::{Args, ValueEnum};

use super::{Caller, Outcome, output, read::Format, since};
use crate::{
    api::{Error, EventsRequest, ScreenFormat},
    cli::{
        EXIT_ERROR,
        follow::{FollowedEvents, Recovery},
    },
};

/// Print what happens, one JSON object a line
///
/// Panes that appear, end, ring or get a title, changes of sessions and windows, gaps, servers that
/// come and go; with --types output also what panes print. Ends when the daemon is stopped or with
/// Ctrl-C. When the daemon was killed it goes on with the next one, with an event `gap`
/// (muxtap-restarted) for each pane.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap events
  muxtap events -t 'work:*' --types output,pane-exited | jq -r .text")]
pub(in crate::cli) struct Events {
    /// Only of these panes; names may hold `*`; may be given several times (default: all)
    #[arg(short = 't', value_name = "TARGET", num_args = 1..)]
    targets: Vec<String>,
    /// Only these types, separated by commas: output, screen, pane-opened, pane-exited, bell,
    /// title, agent, topology, gap, server
    /// (default: all but output and screen)
    #[arg(long, value_name = "TYPES")]
    types: Option<String>,
    /// How to give output
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Where each pane's output begins: `now` (default), `start`, `input`, `lines:N`, or how long ago
    /// (`90s`, `10m`); of one pane, by its id, also a cursor
    #[arg(long, value_name = "now|start|lines:N|TIME", value_parser = since)]
    since: Option<String>,
    /// What events of type `screen` hold: which rows changed, also their text, or also their colors
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    screen: Screen,
    /// Go on after the event that had this `id` over HTTP
    #[arg(long, value_name = "ID", conflicts_with = "since")]
    resume: Option<String>,
}

/// What an event of type `screen` holds.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Screen {
    /// Which rows changed
    #[default]
    Rows,
    /// Their text, too
    Text,
    /// Their text with its escape sequences
    Ansi,
}

impl From<Screen> for ScreenFormat {
    fn from(screen: Screen) -> Self {
        match screen {
            Screen::Rows => Self::Rows,
            Screen::Text => Self::Text,
            Screen::Ansi => Self::Ansi,
        }
    }
}

impl Events {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let request = EventsRequest {
            panes: join_targets(&self.targets)?,
            types: self.types,
            format: self.format.into(),
            screen: self.screen.into(),
            since: self.since,
            resume: self.resume,
        };
        let mut followed = FollowedEvents::begin(caller, &request).await?;
        loop {
            let mut written = Ok(());
            let step = followed
                .next(|data| {
                    if written.is_ok() {
                        written = output::print_json_line(data);
                    }
                })
                .await;
            written?;
            if followed.recover(caller, &request, step).await? == Recovery::DaemonEnded {
                return Ok(EXIT_ERROR);
            }
        }
    }
}

/// Joins targets for a query. Error: a target holds a comma, which separates them there.
pub(super) fn join_targets(targets: &[String]) -> Result<Option<String>, Error> {
    if let Some(target) = targets.iter().find(|target| target.contains(',')) {
        return Err(Error::invalid(format!("{target}: a name with a comma cannot be followed; use its id")));
    }
    Ok((!targets.is_empty()).then(|| targets.join(",")))
}
