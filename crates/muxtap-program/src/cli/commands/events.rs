//! `events`.

use clap::{Args, ValueEnum};

use super::{
    Caller, Outcome,
    label::{term, with_labels},
    output,
    read::Format,
    since,
};
use crate::{
    api::{Error, EventKind, EventsRequest, ScreenFormat, items},
    cli::{
        EXIT_ERROR,
        follow::{FollowedEvents, Recovery},
    },
};

/// Print events, one JSON object per line
///
/// Each has a `resume`: `--resume` continues after it.
/// Events are panes that appear, end, ring or get a title, commands, directories and notifications
/// that a pane's shell or program reports, changes of sessions and windows, gaps, and servers that
/// come and go; with --types output also the panes' output. Ends when the daemon is stopped, or with
/// Ctrl-C. If the daemon is killed, continues with the next daemon, after an event `gap`
/// (muxtap-restarted) for each pane.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap events
  muxtap events -t 'work:*' --types output,pane-exited | jq -r .text")]
pub(in crate::cli) struct Events {
    /// Print only events of these panes; names may contain `*`; repeatable (default: all)
    #[arg(short = 't', value_name = "TARGET", num_args = 1..)]
    targets: Vec<String>,
    /// Only panes with this label, KEY=VALUE or KEY!=VALUE, in whose value `*` stands for anything;
    /// repeatable, all must match
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", conflicts_with = "targets", value_parser = term)]
    labels: Vec<String>,
    #[arg(long, value_name = "TYPES", help = help_of_types())]
    types: Option<String>,
    /// Format of output
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Begin each pane's output here: `now` (default), `start`, `input`, `lines:N`, or a time ago
    /// (`90s`, `10m`); for one pane, by its id, also a cursor
    #[arg(long, value_name = "now|start|lines:N|TIME", value_parser = since)]
    since: Option<String>,
    /// Content of `screen` events: the changed rows, also their text, or also their colors
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    screen: Screen,
    /// Continue after the event that had this `resume`
    #[arg(long, value_name = "ID", conflicts_with = "since")]
    resume: Option<String>,
}

/// What an event of type `screen` holds.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Screen {
    /// The changed rows
    #[default]
    Rows,
    /// Also their text
    Text,
    /// Also their text, with escape sequences
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
            panes: join_targets(&with_labels(self.targets, &self.labels))?,
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
                .next_with_id(|data, id| {
                    if written.is_ok() {
                        written = output::print_json_line(&with_id(data, id));
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

/// Returns an event with its id as the field `resume`, as over the WebSocket.
fn with_id(data: &[u8], id: Option<&str>) -> Vec<u8> {
    match (data.strip_suffix(b"}"), id.and_then(|id| serde_json::to_string(id).ok())) {
        (Some(fields), Some(id)) => [fields, b",\"resume\":", id.as_bytes(), b"}"].concat(),
        _ => data.to_vec(),
    }
}

/// Joins targets for a query. Error: a target holds a comma, which separates them there.
pub(super) fn join_targets(targets: &[String]) -> Result<Option<String>, Error> {
    if let Some(target) = targets.iter().find(|target| items(target).count() > 1) {
        return Err(Error::invalid(format!("{target}: a name with a comma cannot be followed; use its id")));
    }
    Ok((!targets.is_empty()).then(|| targets.join(",")))
}

fn help_of_types() -> String {
    let (requested, by_default) = EventKind::ALL.split_at(EventKind::REQUESTED);
    let list = |kinds: &[EventKind]| kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ");
    format!(
        "Print only these types, separated by commas: {} (all of these by default), {}",
        list(by_default),
        list(requested)
    )
}
