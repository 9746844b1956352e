//! `commands`.

use std::collections::BTreeMap;

use clap::Args;
use muxtap_base::plain;
use muxtap_engine::is_pattern;
use regex::Regex;
use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    Caller, Outcome, duration,
    events::join_targets,
    fitting_reachable,
    label::{term, with_labels},
    list::note_unreachable,
    output::{self, Failure, Table},
    path_named,
};
use crate::{
    api::{CommandInfo, CommandsAnswer, CommandsRequest, Error, Event, EventKind, EventsRequest, SeenMarks},
    cli::{
        EXIT_ERROR,
        client::{forget_host, host},
        follow::{FollowedEvents, Recovery},
    },
    protocol::ids::PaneId,
};

/// List the commands that ran in a pane
///
/// Prints a line for each command that a shell marked while muxtap followed the pane: number,
/// exit status (`running`, a signal, or `-` if unknown), duration, start (UTC) and command line. A
/// `?` after the number: the marks are claimed, any program may have printed them. Exit status 1 if
/// no shell has printed marks.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap commands -t work                        what ran, and how it ended
  muxtap commands -t work --failed -n 1          the last command that failed
  muxtap commands -t 'work:*' --grep '^cargo'
  muxtap commands -f -t '*:*' --over 1m          then each that ends after more than a minute
  muxtap read -t work --command last-failed      what it printed")]
pub(in crate::cli) struct Commands {
    /// The panes; names may contain `*`; repeatable (default: the caller's)
    #[arg(short = 't', value_name = "PANE", num_args = 1..)]
    targets: Vec<String>,
    /// Only panes with this label, KEY=VALUE or KEY!=VALUE, in whose value `*` stands for anything;
    /// repeatable, all must match
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", conflicts_with = "targets", value_parser = term)]
    labels: Vec<String>,
    /// Print at most this many of each pane, the latest ones
    #[arg(short = 'n', value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    n: Option<u64>,
    /// Print only commands that ended with a signal or a status other than 0
    #[arg(long)]
    failed: bool,
    /// Print only commands whose line matches this regex
    #[arg(long, value_name = "REGEX")]
    grep: Option<String>,
    /// Print only commands that ended after at least this long: seconds, or `90s`, `10m`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    over: Option<u64>,
    /// Then print each command as it ends, until Ctrl-C
    #[arg(short = 'f', long)]
    follow: bool,
}

impl Commands {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.follow
    }

    pub(in crate::cli) async fn run(mut self, caller: &Caller) -> Outcome {
        self.targets = with_labels(self.targets, &self.labels);
        if self.targets.is_empty() {
            self.targets.push(caller.target(None)?);
        }
        if !self.follow {
            return self.list(caller, &mut BTreeMap::new()).await;
        }
        // First the stream, then the list: no command ends in between.
        let wanted = Wanted { failed: self.failed, over_ms: self.over, grep: self.grep.as_deref() };
        let mut ended = Ended::follow(caller, &self.targets, wanted).await?;
        self.list(caller, &mut ended.last).await?;
        ended.print(caller).await
    }

    /// Prints the list. Notes the last command of each pane that has ended.
    async fn list(&self, caller: &Caller, last: &mut BTreeMap<PaneId, u64>) -> Outcome {
        let Self { n, failed, over, .. } = *self;
        let request = CommandsRequest { n, failed, grep: self.grep.clone(), over_ms: over };
        let mut client = caller.client().await?;
        let (mut targets, mut unreachable) = (Vec::new(), Vec::new());
        let mut is_whole = true;
        for target in &self.targets {
            // Each target may be on another host.
            forget_host();
            if is_pattern(target) {
                match fitting_reachable(&mut client, target).await {
                    Ok((panes, absent)) => {
                        targets.extend(panes);
                        unreachable.extend(absent);
                    }
                    // The commands of the other targets are still listed.
                    Err(error) if self.targets.len() > 1 => {
                        report(target, error, caller.json);
                        is_whole = false;
                    }
                    Err(error) => return Err(error.into()),
                }
            } else {
                targets.push(target.clone());
            }
        }
        note_unreachable(&unreachable);
        is_whole &= unreachable.is_empty();
        let several = self.targets.len() > 1 || targets.len() > 1;
        let mut answers = Vec::new();
        for target in &targets {
            forget_host();
            let path = format!("{}/commands", path_named("panes", target)?);
            let answer: CommandsAnswer = match client.get(&path, &request).await {
                Ok(answer) => answer,
                // The commands of the other panes are still listed.
                Err(error) if several => {
                    report(target, error, caller.json);
                    is_whole = false;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if caller.json {
                output::print_json(&OfHost { host: host(), answer: &answer })?;
            }
            let ended = answer.commands.iter().filter(|command| command.end.is_some());
            last.insert(answer.pane, ended.map(|command| command.number).max().unwrap_or_default());
            answers.push((target.clone(), answer));
        }
        let is_marked = answers.iter().any(|(_, answer)| answer.marks != SeenMarks::None);
        if !caller.json {
            if answers.iter().any(|(_, answer)| !answer.commands.is_empty()) {
                output::print(table(&answers))?;
            }
            let unmarked = answers.iter().filter(|(_, answer)| answer.marks == SeenMarks::None);
            unmarked.for_each(|(target, _)| output::note(&unmarked_note(target)));
        }
        Ok(if is_marked && is_whole { 0 } else { EXIT_ERROR })
    }
}

/// Reports an error about one of several targets, with the target.
fn report(target: &str, mut error: Error, json: bool) {
    if !error.message.contains(&format!("`{target}`")) {
        error.message = format!("{target}: {error}");
    }
    output::report(&error, json);
}

/// A response, with the host that it is from.
#[derive(Serialize)]
struct OfHost<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(flatten)]
    answer: &'a CommandsAnswer,
}

/// Which of the commands that end are printed.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted<'a> {
    /// Only those that ended with a signal or a status other than 0.
    pub(super) failed: bool,
    /// Only those that ended after at least this many milliseconds.
    pub(super) over_ms: Option<u64>,
    /// Only those whose line matches this regex.
    pub(super) grep: Option<&'a str>,
}

/// The commands that end from now on.
pub(super) struct Ended {
    followed: FollowedEvents,
    request: EventsRequest,
    /// Whether the lines begin with the pane.
    names_panes: bool,
    failed: bool,
    over_ms: u64,
    grep: Option<Regex>,
    /// The last command of each pane that was printed before.
    last: BTreeMap<PaneId, u64>,
}

impl Ended {
    /// Follows panes and patterns.
    pub(super) async fn follow(caller: &Caller, targets: &[String], wanted: Wanted<'_>) -> Result<Self, Failure> {
        let Wanted { failed, over_ms, grep } = wanted;
        let over_ms = over_ms.unwrap_or_default();
        let grep = grep.map(Regex::new).transpose().map_err(|error| Error::invalid(format!("grep: {error}")))?;
        let types = Some(EventKind::CommandFinished.as_str().to_owned());
        let request = EventsRequest { panes: join_targets(targets)?, types, ..EventsRequest::default() };
        let followed = FollowedEvents::begin(caller, &request).await?;
        let names_panes = targets.len() > 1 || targets.iter().any(|target| is_pattern(target));
        Ok(Self { followed, request, names_panes, failed, over_ms, grep, last: BTreeMap::new() })
    }

    /// Prints a line for each command, with `--json` its event.
    pub(super) async fn print(mut self, caller: &Caller) -> Outcome {
        loop {
            let mut written = Ok(());
            let Self { followed, names_panes, failed, over_ms, grep, last, .. } = &mut self;
            let step = followed.next(|data| {
                // A newer daemon may send events that are unknown here.
                let Ok(Event::CommandFinished { pane, command }) = serde_json::from_slice(data) else { return };
                let line = command.line.as_deref().unwrap_or_default();
                let is_wanted = last.get(&pane).is_none_or(|last| command.number > *last)
                    && (!*failed || command.has_failed())
                    && command.took(*over_ms)
                    && grep.as_ref().is_none_or(|grep| grep.is_match(line));
                if !is_wanted || written.is_err() {
                    return;
                }
                written = if caller.json {
                    output::print_json_line(data)
                } else {
                    let pane = if *names_panes { format!("{pane}  ") } else { String::new() };
                    let row = cells(&command).map(|cell| plain::name(&cell).into_owned()).join("  ");
                    output::print(format!("{pane}{row}\n"))
                };
            });
            let step = step.await;
            written?;
            if self.followed.recover(caller, &self.request, step).await? == Recovery::DaemonEnded {
                return Ok(EXIT_ERROR);
            }
        }
    }
}

/// Says how to switch on the marks of a pane that has none.
pub(super) fn unmarked_note(pane: &str) -> String {
    format!(
        "{pane}: its shell has printed no marks since muxtap began to follow the pane; {SWITCH_ON} switches them on for \
         new bash shells (others: muxtap shell-integration --help), and `muxtap new-window --shell-integration` for a new pane"
    )
}

/// The line of a startup file that switches marks on.
pub(super) const SWITCH_ON: &str = "`eval \"$(muxtap shell-integration bash)\"` at the end of ~/.bashrc";

fn table(answers: &[(String, CommandsAnswer)]) -> String {
    let rows = answers.iter().flat_map(|(target, answer)| answer.commands.iter().map(move |one| (target, one)));
    if answers.len() == 1 {
        let mut table = Table::new(&["N", "STATUS", "TIME", "STARTED", "COMMAND"]);
        rows.for_each(|(_, command)| table.row(&cells(command)));
        return table.render();
    }
    let mut table = Table::new(&["PANE", "N", "STATUS", "TIME", "STARTED", "COMMAND"]);
    for (target, command) in rows {
        let [number, status, time, started, line] = cells(command);
        table.row(&[target.clone(), number, status, time, started, line]);
    }
    table.render()
}

/// Returns the cells of a command's row.
fn cells(command: &CommandInfo) -> [String; 5] {
    let claimed = if command.trusted { "" } else { "?" };
    [
        format!("{}{claimed}", command.number),
        status(command),
        command.duration_ms.map_or_else(|| "-".to_owned(), took),
        started(command.started_ms).unwrap_or_else(|| "-".to_owned()),
        command.one_line(),
    ]
}

fn status(command: &CommandInfo) -> String {
    match (&command.signal, command.status) {
        _ if command.end.is_none() => "running".to_owned(),
        (Some(signal), _) => signal.clone(),
        (None, Some(status)) => status.to_string(),
        (None, None) => "-".to_owned(),
    }
}

/// Formats a duration with at most two units.
fn took(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..10 => format!("{seconds}.{}s", milliseconds % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Formats a time as RFC 3339, in whole seconds: `read --since` accepts it.
fn started(milliseconds: u64) -> Option<String> {
    let seconds = i64::try_from(milliseconds / 1000).ok()?;
    OffsetDateTime::from_unix_timestamp(seconds).ok()?.format(&Rfc3339).ok()
}

/// Notes what a reader of a command's output must know: it still runs, or bytes of it are missing.
pub(super) fn note_incomplete(command: &CommandInfo, is_gap_noted: bool) {
    let number = command.number;
    if command.end.is_none() {
        output::note(&format!("command {number} still runs: its output so far"));
    }
    if !command.whole && !is_gap_noted {
        output::note(&format!("command {number}: its output is not whole"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CommandEnd;

    fn command() -> CommandInfo {
        serde_json::from_value(serde_json::json!({
            "number": 7, "line": "make\n  test", "started_ms": 1_700_000_000_999_u64, "duration_ms": 3_100,
            "status": 2, "end": "reported", "trusted": false, "bytes": 0, "whole": true,
            "output_start": cursor(), "output_end": cursor(),
        }))
        .unwrap()
    }

    fn cursor() -> crate::api::Cursor {
        crate::api::Cursor { epoch: crate::api::Epoch::default(), pane: crate::protocol::ids::PaneId(0), offset: 0 }
    }

    #[test]
    fn a_row_says_what_ran_and_how_it_ended() {
        let row = |command: &CommandInfo| cells(command).join(" ");
        assert_eq!(row(&command()), "7? 2 3.1s 2023-11-14T22:13:20Z make ⏎   test");
        let killed = CommandInfo { signal: Some("SIGKILL".into()), trusted: true, ..command() };
        assert_eq!(row(&killed), "7 SIGKILL 3.1s 2023-11-14T22:13:20Z make ⏎   test");
        let running = CommandInfo { end: None, status: None, duration_ms: None, line_cut: true, ..command() };
        assert_eq!(row(&running), "7? running - 2023-11-14T22:13:20Z make ⏎   test …");
        let unknown = CommandInfo { end: Some(CommandEnd::Unreported), status: None, line: None, ..command() };
        assert_eq!(row(&unknown), "7? - 3.1s 2023-11-14T22:13:20Z ");
    }

    #[test]
    fn a_duration_has_at_most_two_units() {
        for (milliseconds, text) in [
            (0, "0.0s"),
            (950, "0.9s"),
            (10_000, "10s"),
            (61_000, "1m01s"),
            (3_600_000, "1h00m"),
            (90_060_000, "25h01m"),
        ] {
            assert_eq!(took(milliseconds), text);
        }
    }
}
