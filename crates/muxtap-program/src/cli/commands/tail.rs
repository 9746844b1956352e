//! `tail`.

use std::{
    collections::{BTreeSet, HashSet},
    io::Write as _,
    str::FromStr as _,
};

use clap::Args;
use muxtap_engine::is_pattern;
use regex::Regex;

use super::{
    Caller, Outcome,
    command_list::{Ended, Wanted},
    events::join_targets,
    label::{term, with_labels},
    lines::{Lines, Style},
    listed, nothing_fits,
    output::{self, ColorChoice, Failure},
    path_named, since,
};

use crate::{
    api::{Error, Event, EventsRequest, PaneInfo, PaneList, ReadAnswer, ReadFormat, ReadRequest},
    cli::{
        EXIT_ERROR, EXIT_INTERRUPTED,
        client::{Client, ConnectionLost, DAEMON_ENDED},
        follow::{FollowedEvents, Step},
    },
    protocol::ids::PaneId,
};

/// Print the last lines of panes; -f follows them
///
/// A TARGET is a pane or a pattern: `*` in a session's, window's or pane's place stands for
/// anything, and -f also follows matching panes that appear later. With several panes each line
/// follows its pane's name. -f ends when the panes have ended (never for a pattern), when the
/// daemon is stopped, or with Ctrl-C. If the daemon is killed, -f continues with the next daemon,
/// after a note that output is missing.
// Reasons: each is a flag of the command line, and so a switch by nature.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap tail -n 50 -t work
  muxtap tail -f 'work:*'                        all panes of a session, and new ones
  muxtap tail -f build:0 build:1 'logs*:*'
  muxtap tail --since 10m --until 5m 'web-*:*'
  muxtap tail -f --commands 'work:*'             each command as it ends
  muxtap tail -f --grep 'WARN|ERROR' --timestamps '*:*'
  muxtap tail -f --exclude DEBUG --highlight 'WARN|ERROR' '*:*'")]
pub(in crate::cli) struct Tail {
    /// Follow the output from now on
    #[arg(short = 'f', long)]
    follow: bool,
    /// Print this many earlier lines of each pane
    #[arg(short = 'n', long, value_name = "LINES", default_value_t = 10)]
    lines: u64,
    /// Begin here instead: a time ago (`90s`, `10m`), a time as --timestamps prints it, `start`
    /// (all retained output), `now`, `input` (the last input), or a cursor
    #[arg(long, value_name = "TIME|start|now|input|CURSOR", conflicts_with = "lines", value_parser = since)]
    since: Option<String>,
    /// End here, as for --since; not with -f
    #[arg(long, value_name = "TIME|CURSOR", requires = "since", conflicts_with = "follow", value_parser = since)]
    until: Option<String>,
    /// Print only lines that match this regex (Rust's syntax)
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true, value_parser = Regex::from_str)]
    grep: Option<Regex>,
    /// Skip lines that match this regex
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true, value_parser = Regex::from_str)]
    exclude: Option<Regex>,
    /// Print all lines, and emphasize what matches this regex, if colors are used
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true, value_parser = Regex::from_str,
          conflicts_with = "ansi")]
    highlight: Option<Regex>,
    /// Print the time at which `tail` printed each line, in UTC; with -f
    #[arg(long, requires = "follow")]
    timestamps: bool,
    /// Print a line for each command that ends instead of the output, as `muxtap commands` does; with
    /// -f
    #[arg(long, requires = "follow", conflicts_with_all = ["since", "timestamps", "ansi", "exclude", "highlight"])]
    commands: bool,
    /// Keep the panes' colors and other escape sequences
    #[arg(long)]
    ansi: bool,
    /// Color the panes' names
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
    /// A pane or pattern, as TARGET
    #[arg(short = 't', value_name = "TARGET")]
    target: Vec<String>,
    /// Panes: %3, work:1.0, 'work:*', '*:logs'
    #[arg(value_name = "TARGET", required_unless_present_any = ["target", "labels"])]
    targets: Vec<String>,
    /// Only panes with this label, KEY=VALUE or KEY!=VALUE, in whose value `*` stands for anything;
    /// repeatable, all must match
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = term)]
    #[arg(conflicts_with_all = ["target", "targets"])]
    labels: Vec<String>,
}

impl Tail {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.follow
    }

    pub(in crate::cli) async fn run(mut self, caller: &Caller) -> Outcome {
        self.targets.append(&mut self.target);
        self.targets = with_labels(self.targets, &self.labels);
        let several = self.targets.len() > 1 || self.targets.iter().any(|target| is_pattern(target));
        if self.commands {
            let wanted = Wanted { grep: self.grep.as_ref().map(Regex::as_str), ..Wanted::default() };
            return Ended::follow(caller, &self.targets, wanted).await?.print(caller).await;
        }
        let chooses = self.grep.is_some() || self.exclude.is_some() || self.highlight.is_some();
        if caller.json && (chooses || self.timestamps) {
            let message =
                "--json prints the daemon's events; it excludes --grep, --exclude, --highlight and --timestamps";
            return Err(Error::invalid(message).into());
        }
        let style = Style {
            prefixed: several,
            color: self.color.enabled(),
            escapes: self.ansi,
            timestamps: self.timestamps,
            grep: self.grep,
            exclude: self.exclude,
            highlight: self.highlight.filter(|_| self.color.enabled()),
        };
        let format = if self.ansi { ReadFormat::Ansi } else { ReadFormat::Text };
        let lines = Lines::new(style);
        let last = || if self.lines == 0 { "now".to_owned() } else { format!("lines:{}", self.lines) };
        let since = self.since.unwrap_or_else(last);
        if self.follow {
            Follow { json: caller.json, lines, panes: Vec::new(), open: None }
                .run(caller, &self.targets, format, since)
                .await
        } else {
            let request = ReadRequest { since: Some(since), until: self.until, format, ..ReadRequest::default() };
            print_once(caller, &self.targets, &request, lines).await
        }
    }
}

async fn print_once(caller: &Caller, targets: &[String], first: &ReadRequest, mut lines: Lines) -> Outcome {
    let mut client = caller.client().await?;
    let mut wanted = Vec::new();
    for target in targets {
        if !is_pattern(target) {
            wanted.extend(resolve(&mut client, std::slice::from_ref(target)).await?);
            continue;
        }
        let fitting = panes_now(&mut client, std::slice::from_ref(target)).await?;
        if fitting.is_empty() {
            return Err(nothing_fits(target).into());
        }
        wanted.extend(fitting.iter().map(|pane| pane.id));
    }
    name(&mut lines, &panes_now(&mut client, &[]).await?, &wanted);
    let mut seen = HashSet::new();
    for target in wanted {
        // Two targets may name one pane.
        if !seen.insert(target) {
            continue;
        }
        let path = format!("{}/output", path_named("panes", &target.to_string())?);
        let mut request = first.clone();
        loop {
            let answer: ReadAnswer = client.get(&path, &request).await?;
            if caller.json {
                output::print_json(&answer)?;
            } else {
                output::print_raw(lines.feed(answer.pane, answer.text.unwrap_or_default().as_bytes()))?;
            }
            if !answer.more {
                output::print_raw(lines.flush(answer.pane))?;
                break;
            }
            request.since = Some(answer.cursor.to_string());
        }
    }
    Ok(0)
}

/// Sets the names of the printed panes: the longest name sets the column's width.
fn name(lines: &mut Lines, panes: &[PaneInfo], wanted: &[PaneId]) {
    for pane in panes.iter().filter(|pane| wanted.contains(&pane.id)) {
        lines.name(pane.id, &output::name(pane, panes));
    }
}

/// Lists the panes that can be named. An id from an earlier server may now belong to another pane.
async fn panes_now(client: &mut Client, targets: &[String]) -> Result<Vec<PaneInfo>, Error> {
    let mut panes = client.get::<PaneList>("/v1/panes", &listed(targets)?).await?.panes;
    panes.retain(|pane| !pane.earlier_server);
    Ok(panes)
}

/// The state of `tail -f`.
struct Follow {
    json: bool,
    lines: Lines,
    /// The panes seen so far, with their names.
    panes: Vec<PaneInfo>,
    /// The panes whose end was not printed yet, if no new ones can appear. The end of an already ended
    /// pane is printed, too.
    open: Option<BTreeSet<PaneId>>,
}

impl Follow {
    async fn run(mut self, caller: &Caller, targets: &[String], format: ReadFormat, since: String) -> Outcome {
        let mut client = caller.client().await?;
        let mut wanted = targets.to_vec();
        // The targets first: they determine the host.
        if targets.iter().any(|target| is_pattern(target)) {
            let fitting = panes_now(&mut client, targets).await?;
            self.panes = panes_now(&mut client, &[]).await?;
            name(&mut self.lines, &self.panes, &fitting.iter().map(|pane| pane.id).collect::<Vec<_>>());
        } else {
            let open = resolve(&mut client, targets).await?;
            self.panes = panes_now(&mut client, &[]).await?;
            name(&mut self.lines, &self.panes, &open.iter().copied().collect::<Vec<_>>());
            // Named panes stay the same, whichever panes take their place.
            wanted = open.iter().map(PaneId::to_string).collect();
            self.open = Some(open);
        }
        let request = EventsRequest {
            panes: join_targets(&wanted)?,
            types: Some("output,pane-opened,pane-exited,gap".to_owned()),
            format,
            since: Some(since),
            ..EventsRequest::default()
        };
        let mut followed = FollowedEvents::begin(caller, &request).await?;
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            let mut written = Ok(());
            let next = followed.next(|data| {
                if written.is_ok() {
                    written = self.take(data);
                }
            });
            let step = tokio::select! {
                step = next => step,
                _ = &mut interrupted => return self.interrupted(),
            };
            written?;
            if self.open.as_ref().is_some_and(BTreeSet::is_empty) {
                return Ok(0);
            }
            match step {
                Step::Continues => {}
                Step::Ended => {
                    output::print_raw(self.lines.flush_all())?;
                    output::report(&Error::unavailable(DAEMON_ENDED), caller.json);
                    return Ok(EXIT_ERROR);
                }
                Step::Lost(lost) => {
                    output::print_raw(self.lines.flush_all())?;
                    let goes_on = tokio::select! {
                        goes_on = self.go_on(caller, &mut followed, &request, lost) => goes_on?,
                        _ = &mut interrupted => return self.interrupted(),
                    };
                    if !goes_on {
                        return Ok(0);
                    }
                }
            }
        }
    }

    fn interrupted(&mut self) -> Outcome {
        output::print_raw(self.lines.flush_all())?;
        Ok(EXIT_INTERRUPTED)
    }

    /// Continues with another daemon. Returns whether a pane is left.
    async fn go_on(
        &mut self,
        caller: &Caller,
        followed: &mut FollowedEvents,
        request: &EventsRequest,
        lost: ConnectionLost,
    ) -> Result<bool, Error> {
        let place = followed.reconnect(caller, lost).await?;
        let mut request = request.clone();
        if let Some(open) = &self.open {
            // Another daemon does not know panes that ended before its start.
            let panes = caller.client().await?.get::<PaneList>("/v1/panes", &()).await?.panes;
            let (there, gone): (BTreeSet<_>, BTreeSet<_>) =
                open.iter().copied().partition(|id| panes.iter().any(|pane| pane.id == *id));
            for pane in gone {
                self.remark(pane, "ended meanwhile");
            }
            request.panes = join_targets(&there.iter().map(PaneId::to_string).collect::<Vec<_>>())?;
            self.open = Some(there);
            if request.panes.is_none() {
                return Ok(false);
            }
        }
        followed.go_on(caller, &request, place.as_deref()).await?;
        Ok(true)
    }

    fn take(&mut self, data: &[u8]) -> Result<(), Failure> {
        // A newer daemon may send events that are unknown here.
        let Ok(event) = serde_json::from_slice::<Event>(data) else { return Ok(()) };
        let exited = match &event {
            Event::PaneExited { pane, .. } => Some(*pane),
            _ => None,
        };
        if self.json {
            output::print_json_line(data)?;
        } else {
            self.show(event)?;
        }
        if let (Some(pane), Some(open)) = (exited, &mut self.open) {
            open.remove(&pane);
        }
        Ok(())
    }

    fn show(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Output { pane, text, gap, .. } => {
                if let Some(gap) = gap {
                    self.flush_and_remark(pane, &output::describe_gap(gap))?;
                }
                output::print_raw(self.lines.feed(pane, text.unwrap_or_default().as_bytes()))
            }
            Event::PaneOpened { pane } => {
                self.panes.retain(|known| known.id != pane.id);
                self.panes.push(*pane);
                if let Some(pane) = self.panes.last() {
                    self.lines.name(pane.id, &output::name(pane, &self.panes));
                }
                Ok(())
            }
            Event::PaneExited { pane, exit_status, exit_signal } => {
                self.flush_and_remark(pane, &output::ended(exit_status, exit_signal))
            }
            // The output after a gap reports the gap, too.
            _ => Ok(()),
        }
    }

    fn flush_and_remark(&mut self, pane: PaneId, text: &str) -> Result<(), Failure> {
        output::print_raw(self.lines.flush(pane))?;
        self.remark(pane, text);
        Ok(())
    }

    fn remark(&mut self, pane: PaneId, text: &str) {
        let remark = self.lines.remark(pane, text);
        // A remark is optional: ignores a closed stderr.
        let _ = std::io::stderr().write_all(remark.as_bytes());
    }
}

/// Resolves targets without a pattern to panes.
async fn resolve(client: &mut Client, targets: &[String]) -> Result<BTreeSet<PaneId>, Error> {
    let mut open = BTreeSet::new();
    for target in targets {
        // A read of nothing returns the pane that the daemon resolves the target to, or the error.
        let path = format!("{}/output", path_named("panes", target)?);
        let request = ReadRequest { since: Some("now".to_owned()), ..ReadRequest::default() };
        open.insert(client.get::<ReadAnswer>(&path, &request).await?.pane);
    }
    Ok(open)
}
