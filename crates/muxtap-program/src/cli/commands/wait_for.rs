//! `wait-for`.

mod at_once;
mod result;

use std::{
    convert::Infallible,
    io::{IsTerminal as _, Write as _},
    time::Duration,
};

use clap::{ArgGroup, Args};
use muxtap_base::{nonce, plain};
use signal_hook::low_level;

use super::{
    Caller, Outcome, duration,
    label::{term, with_labels},
    list::note_unreachable,
    output, since,
};
use crate::{
    api::{
        Error, ErrorCode, PredicateKind, PredicateReport, StandsBefore, StatusIs, WaitAnswer, WaitMode, WaitOutcome,
        WaitRequest,
    },
    cli::{
        EXIT_ERROR, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TIMEOUT, caller::host_of, notify, output::Failure,
        quick::Words, url,
    },
};
pub(in crate::cli) use result::WaitResult;

/// The default timeout of a wait in the background: the longest.
const BACKGROUND_TIMEOUT_MS: u64 = 24 * 3_600_000;
/// Waits shorter than this show no progress.
const PATIENCE: Duration = Duration::from_secs(2);

/// Wait until panes print, show or do something
///
/// Ends when every condition has been met once. By default a wait begins at muxtap's last
/// input to the pane, or where muxtap created the pane: output between the input and this command
/// counts, and another wait for the same pattern waits for the next match. The echo of typed text
/// does not count. Prints the line that matched; with --exit, how each pane ended.
///
/// Exit status: 0 all conditions were met; 3 a --fail pattern matched or the pane ended first; 124
/// timeout; 2 an invalid argument; 1 another error. With --propagate the status of the process that ended.
// Reasons: each is a flag of the command line, and so a switch by nature.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("ending").multiple(true).args(["exit", "command", "status"])),
    group(ArgGroup::new("predicate").required(true).multiple(true)
        .args(["patterns", "screen", "gone", "stable", "exit", "prompt", "bell", "title", "command", "status"])),
    after_long_help = "Examples:
  muxtap wait-for -t work -p 'tests? passed' --fail 'error|FAILED' -T 600
  muxtap wait-for -t work --prompt               until the shell waits for a command again
  muxtap wait-for -t work --command --propagate  until the command that runs, or the next, has ended
  muxtap wait-for -t a:1 -t a:2 --status '!0'    until a command fails
  muxtap wait-for -t work --exit --propagate     until the process has ended; exit with its status
  muxtap wait-for -t a:1 -t a:2 --all --exit     until both have ended; print how
  muxtap wait-for -t work --gone 'Building'      until it is no longer on the screen
  muxtap wait-for -t work --stable 1.5           until nothing was printed for 1.5 seconds
  muxtap wait-for -t work --exit --background    print an id for `muxtap result`"
)]
pub(in crate::cli) struct WaitFor {
    /// The panes; repeatable
    #[arg(short = 't', value_name = "PANE", required_unless_present = "labels", num_args = 1..)]
    targets: Vec<String>,
    /// Only panes with this label, KEY=VALUE or KEY!=VALUE, in whose value `*` stands for anything;
    /// repeatable, all must match
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", conflicts_with = "targets", value_parser = term)]
    labels: Vec<String>,
    /// Wait until one pane meets all conditions; the default
    #[arg(long, conflicts_with = "all")]
    any: bool,
    /// Wait until every pane meets all conditions
    #[arg(long)]
    all: bool,
    /// Wait until a line of the output matches this regex (Rust's syntax); repeatable, each must
    /// match
    #[arg(short = 'p', long = "pattern", value_name = "REGEX", allow_hyphen_values = true)]
    patterns: Vec<String>,
    /// Wait until the screen matches this regex, even if it was drawn earlier; repeatable
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    screen: Vec<String>,
    /// Wait until nothing on the screen matches this regex; repeatable
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    gone: Vec<String>,
    /// Wait until nothing was printed for this long: seconds (`1.5`), or with a unit
    #[arg(long, value_name = "TIME", value_parser = duration)]
    stable: Option<u64>,
    /// Wait until the pane's process has ended, and print its status
    #[arg(long)]
    exit: bool,
    /// With --exit, --command or --status: return the status of what ended (128+N after signal N),
    /// with --all the first that is not 0
    #[arg(long, requires = "ending")]
    propagate: bool,
    /// Wait until a command has ended, and print it with its status: the one that runs; else the one
    /// that muxtap's last input started; else the next. Needs a shell that marks its commands
    /// (`muxtap shell-integration`)
    #[arg(long)]
    command: bool,
    /// Wait until a command has ended with this status (`0`), or with any other (`'!0'`)
    #[arg(long, value_name = "N|!N", value_parser = status_is, allow_hyphen_values = true)]
    status: Option<StatusIs>,
    /// Wait until a shell waits for a command
    #[arg(long)]
    prompt: bool,
    /// Wait until the bell rings
    #[arg(long)]
    bell: bool,
    /// Wait until the pane's title matches this regex
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    title: Option<String>,
    /// Fail with exit status 3 when the output matches this regex; repeatable
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    fail: Vec<String>,
    /// Begin here: `input` (the last input, where muxtap created the pane, or the last match of the
    /// same pattern; the default), `now`, `start` (all retained output), `screen` (the current
    /// screen counts), a time ago (`90s`, `10m`), or a cursor
    #[arg(long, value_name = "input|now|start|screen|TIME|CURSOR", value_parser = since)]
    since: Option<String>,
    /// After all conditions, also wait until nothing was printed for this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    settle: Option<u64>,
    /// Time out after this long, with exit status 124: seconds, or `90s`, `10m`, `1h30m` (default:
    /// 30s)
    #[arg(short = 'T', long, value_name = "TIME", value_parser = duration)]
    timeout: Option<u64>,
    /// Show a desktop notification when the wait ends for any reason; falls back to the bell
    #[arg(long)]
    notify: bool,
    /// Run this shell command line when the wait ends, with `MUXTAP_OUTCOME` (`matched`, `timeout`,
    /// `failed`, `ended`, `cancelled`), `MUXTAP_PANE` and `MUXTAP_LINE`
    #[arg(long, value_name = "COMMAND")]
    on_end: Option<String>,
    /// Return at once, and print the wait's id: `muxtap result ID` waits for its end, and has its
    /// result for 24 hours (default timeout: 24h)
    #[arg(long, conflicts_with_all = ["propagate", "notify", "on_end"])]
    background: bool,
}

impl WaitFor {
    /// Returns what the words of a plain command line say. `None`: a value is invalid, or the words
    /// contradict each other.
    pub(in crate::cli) fn plain(words: &mut Words) -> Option<Self> {
        let mut time = |word: &str| words.long_value(word).map(|time| duration(&time)).transpose().ok();
        let (stable, settle, timeout) = (time("stable")?, time("settle")?, time("timeout")?);
        let short_timeout = words.value('T').map(|time| duration(&time)).transpose().ok()?;
        let wait = Self {
            targets: words.values('t'),
            labels: Vec::new(),
            any: words.has_long("any"),
            all: words.has_long("all"),
            patterns: words.values('p'),
            screen: words.long_values("screen"),
            gone: words.long_values("gone"),
            stable,
            exit: words.has_long("exit"),
            propagate: words.has_long("propagate"),
            prompt: words.has_long("prompt"),
            bell: words.has_long("bell"),
            command: words.has_long("command"),
            status: words.long_value("status").map(|status| status.parse()).transpose().ok()?,
            title: words.long_value("title"),
            fail: words.long_values("fail"),
            since: words.long_value("since").map(|begin| since(&begin)).transpose().ok()?,
            settle,
            timeout: timeout.or(short_timeout),
            notify: false,
            on_end: None,
            background: false,
        };
        let has_condition = !(wait.patterns.is_empty() && wait.screen.is_empty() && wait.gone.is_empty())
            || wait.stable.is_some()
            || wait.title.is_some()
            || wait.exit
            || wait.prompt
            || wait.bell
            || wait.command
            || wait.status.is_some();
        let is_valid = has_condition
            && !wait.targets.is_empty()
            && !(wait.any && wait.all)
            && (wait.exit || wait.command || wait.status.is_some() || !wait.propagate)
            && !(timeout.is_some() && short_timeout.is_some());
        is_valid.then_some(wait)
    }

    pub(in crate::cli) async fn run(mut self, caller: &Caller) -> Outcome {
        self.targets = with_labels(self.targets, &self.labels);
        if self.background {
            return self.leave(caller).await;
        }
        let Some(answer) = ask(caller, &self.request()).await? else { return Ok(EXIT_INTERRUPTED) };
        print(&answer, caller.json)?;
        let Self { notify, on_end, propagate, targets, .. } = self;
        let lines = matched_lines(&answer);
        let text = lines.lines().next().map(str::to_owned).or_else(|| failure_reason(&answer)).unwrap_or_default();
        if notify {
            let of = answer.named_pane().unwrap_or_else(|| targets.join(" "));
            notify::desktop(&format!("{of}: {}", outcome(answer.outcome)), text.lines().next().unwrap_or_default())
                .await;
        }
        if let Some(line) = on_end {
            let pane = answer.named_pane().unwrap_or_default();
            let ended = ("MUXTAP_OUTCOME", outcome(answer.outcome).to_owned());
            notify::command(&line, &[ended, ("MUXTAP_PANE", pane), ("MUXTAP_LINE", text)]).await?;
        }
        Ok(status(&answer, propagate))
    }

    /// Leaves the wait to the daemon, and prints its id.
    async fn leave(self, caller: &Caller) -> Outcome {
        let timeout_ms = self.timeout.or(Some(BACKGROUND_TIMEOUT_MS));
        let request = WaitRequest { detach: true, timeout_ms, ..self.request() };
        let answer = caller.client().await?.wait(&nonce::hex64(), &request).await.map_err(Error::from)??;
        if caller.json {
            output::print_json(&answer)?;
        } else {
            output::print(format!("{}\n", answer.id))?;
            note_unreachable(&answer.unreachable);
        }
        if let Some(why) = &answer.not_kept {
            output::note(&format!("the result of this wait will not outlive the daemon: {}", plain::name(why)));
        }
        Ok(0)
    }

    fn request(&self) -> WaitRequest {
        WaitRequest {
            panes: self.targets.clone(),
            mode: if self.all { WaitMode::All } else { WaitMode::Any },
            patterns: self.patterns.clone(),
            screen: self.screen.clone(),
            gone: self.gone.clone(),
            stable_ms: self.stable,
            exit: self.exit,
            prompt: self.prompt,
            bell: self.bell,
            command: self.command,
            status: self.status,
            title: self.title.clone(),
            fail: self.fail.clone(),
            since: self.since.clone(),
            settle_ms: self.settle,
            timeout_ms: self.timeout,
            detach: false,
        }
    }
}

/// Parses the status of a command.
fn status_is(text: &str) -> Result<StatusIs, String> {
    text.parse().map_err(|_| "expected a number, or `!` and a number".to_owned())
}

/// Prints how a wait ended.
fn print(answer: &WaitAnswer, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(answer);
    }
    output::print(matched_lines(answer))?;
    note_unreachable(&answer.unreachable);
    if let Some(why) = failure_reason(answer) {
        output::note(&why);
    }
    Ok(())
}

/// Returns the exit status of a wait that has ended.
fn status(answer: &WaitAnswer, propagate: bool) -> u8 {
    match answer.outcome {
        WaitOutcome::Matched if propagate => propagated(answer),
        WaitOutcome::Matched => 0,
        WaitOutcome::Failed | WaitOutcome::Ended => EXIT_FAILED,
        WaitOutcome::Timeout | WaitOutcome::Pending => EXIT_TIMEOUT,
        WaitOutcome::Cancelled => EXIT_INTERRUPTED,
    }
}

/// Waits by one request, and shows the elapsed time on a terminal. `None`: Ctrl-C ended the wait.
pub(super) async fn ask(caller: &Caller, request: &WaitRequest) -> crate::api::Result<Option<WaitAnswer>> {
    let (key, conditions) = (nonce::hex64(), conditions(request));
    let mut client = caller.client().await?;
    tokio::select! {
        answer = client.wait(&key, request) => {
            answer.map_err(|lost| lost_wait(lost.into(), &conditions))?.map(Some)
        }
        never = show_progress(&conditions) => match never {},
        _ = tokio::signal::ctrl_c() => end(caller, &format!("w-{key}"), &request.panes).await.map(|()| None),
    }
}

/// Cancels a wait for these panes: in this daemon, or in the muxtap of their host.
async fn end(caller: &Caller, id: &str, panes: &[String]) -> crate::api::Result<()> {
    // The first connection is in the middle of a request.
    let Some(mut client) = caller.running().await? else { return Ok(()) };
    for id in ids_of(caller, id, panes) {
        match client.delete::<WaitAnswer>(&format!("/v1/waits/{}", url::encode(&id))).await {
            Err(error) if error.code == ErrorCode::NotFound => {}
            ended => return ended.map(drop),
        }
    }
    // The wait had just ended, or had not begun.
    Ok(())
}

/// Returns the ids that a wait for these panes may have: that of their host first. A wait on several
/// hosts has its id in this daemon.
fn ids_of(caller: &Caller, id: &str, panes: &[String]) -> Vec<String> {
    let hosts = || panes.iter().map(|pane| host_of(pane));
    if hosts().any(|host| host != hosts().next().flatten()) {
        return vec![id.to_owned()];
    }
    let named = panes.iter().find_map(|pane| host_of(pane));
    let elsewhere = caller.server.to_str().filter(|_| caller.server.is_relative());
    let host = named.or_else(|| Some(elsewhere?.split_once('/')?.0));
    host.map(|host| format!("{host}/{id}")).into_iter().chain([id.to_owned()]).collect()
}

/// Builds the error for a wait whose daemon has exited. A new wait by another daemon could miss what
/// this one would have seen.
fn lost_wait(mut error: Error, conditions: &str) -> Error {
    error.message = format!(
        "{error}; the wait has ended, and its outcome is unknown: it was for {conditions}; to count what is there by \
         now, wait again with --since start or --since screen"
    );
    error
}

/// Returns whether the progress line is shown: stderr is a terminal.
fn shows_progress() -> bool {
    std::io::stderr().is_terminal()
}

/// Shows the elapsed time of a wait if stderr is a terminal.
async fn show_progress(conditions: &str) -> Infallible {
    if !shows_progress() {
        return std::future::pending().await;
    }
    let begun = tokio::time::Instant::now();
    let mut progress = Progress { shown: false };
    let mut ticks = tokio::time::interval_at(begun + PATIENCE, Duration::from_secs(1));
    loop {
        ticks.tick().await;
        progress.show(&progress_line(conditions, begun.elapsed()));
    }
}

/// The line on stderr that shows the elapsed time of a long wait. It is erased when the wait ends in
/// any way.
struct Progress {
    shown: bool,
}

impl Progress {
    fn show(&mut self, line: &str) {
        let line: String = line.chars().take(terminal_width().saturating_sub(1)).collect();
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        self.shown = true;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn terminal_width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    // A terminal without a known size reports 0.
    if columns == 0 { 80 } else { columns }
}

fn progress_line(conditions: &str, elapsed: Duration) -> String {
    format!("waiting {} s for {conditions}", elapsed.as_secs())
}

/// Describes the conditions of a request.
fn conditions(request: &WaitRequest) -> String {
    let named = |kind: PredicateKind, patterns: &[String]| -> Vec<String> {
        patterns.iter().map(|pattern| condition(kind, Some(pattern))).collect()
    };
    let plain = |kind: PredicateKind, is_asked: bool| is_asked.then(|| condition(kind, None));
    let mut all = named(PredicateKind::Pattern, &request.patterns);
    all.extend(named(PredicateKind::Screen, &request.screen));
    all.extend(named(PredicateKind::Gone, &request.gone));
    all.extend(named(PredicateKind::Title, request.title.as_slice()));
    all.extend(plain(PredicateKind::Stable, request.stable_ms.is_some()));
    all.extend(plain(PredicateKind::Exit, request.exit));
    all.extend(plain(PredicateKind::Prompt, request.prompt));
    all.extend(plain(PredicateKind::Bell, request.bell));
    let status = request.status.map(|status| status.to_string());
    if request.command || status.is_some() {
        all.push(condition(PredicateKind::Command, status.as_deref()));
    }
    let panes: Vec<String> = request.panes.iter().map(|pane| plain::name(pane).to_string()).collect();
    let or = if request.mode == WaitMode::All { " and " } else { " or " };
    format!("{} in {}", all.join(", "), panes.join(or))
}

fn condition(kind: PredicateKind, pattern: Option<&str>) -> String {
    let pattern = plain::name(pattern.unwrap_or_default());
    match kind {
        PredicateKind::Pattern => format!("/{pattern}/"),
        PredicateKind::Screen => format!("screen /{pattern}/"),
        PredicateKind::Gone => format!("the end of /{pattern}/ on the screen"),
        PredicateKind::Title => format!("title /{pattern}/"),
        PredicateKind::Fail => format!("failure /{pattern}/"),
        PredicateKind::Stable => "quiet".to_owned(),
        PredicateKind::Exit => "exit".to_owned(),
        PredicateKind::Prompt => "a prompt".to_owned(),
        PredicateKind::Bell => "the bell".to_owned(),
        PredicateKind::Command if pattern.to_string().is_empty() => "the end of a command".to_owned(),
        PredicateKind::Command => format!("the end of a command with status {pattern}"),
    }
}

fn describe(report: &PredicateReport) -> String {
    format!("{} in {}", condition(report.kind, report.pattern.as_deref()), report.named_pane())
}

/// Returns the remark that a match was there before the wait, and how to count it; or that the pane's
/// shell marks no commands.
fn remark(report: &PredicateReport) -> String {
    if report.kind == PredicateKind::Command && report.how.as_deref() == Some("unmarked") {
        return " (its shell marks no commands: see `muxtap shell-integration`)".to_owned();
    }
    let Some(StandsBefore { line, since, .. }) = &report.stands_before else { return String::new() };
    format!(" (it was there before the wait: `{}`; --since {since} counts it)", plain::name(line.trim()))
}

/// Returns the lines that met the wait's conditions, each once.
pub(super) fn matched_lines(answer: &WaitAnswer) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for report in &answer.predicates {
        let decided = is_of_decision(answer, report);
        if answer.outcome == WaitOutcome::Matched
            && report.latched
            && !matches!(report.kind, PredicateKind::Fail | PredicateKind::Command)
            && decided
            && let Some(line) = &report.line
            && !lines.contains(&line.as_str())
        {
            lines.push(line);
        }
    }
    let ended = |report: &PredicateReport| match &report.command {
        Some(command) => format!("{} {}", report.named_pane(), plain::name(&command.summary())),
        None => format!("{} {}", report.named_pane(), output::ended(report.exit_status, report.exit_signal)),
    };
    let exits: Vec<_> = exits(answer).map(ended).collect();
    lines.into_iter().chain(exits.iter().map(String::as_str)).flat_map(|line| [line, "\n"]).collect()
}

/// Returns whether a report is of the pane that decided the wait, if one did.
fn is_of_decision(answer: &WaitAnswer, report: &PredicateReport) -> bool {
    answer.pane.is_none_or(|pane| pane == report.pane && answer.host == report.host)
}

/// Returns the ends of processes and commands that met the wait: of the deciding pane, else of all.
fn exits(answer: &WaitAnswer) -> impl Iterator<Item = &PredicateReport> {
    let is_matched = answer.outcome == WaitOutcome::Matched;
    answer.predicates.iter().filter(move |report| {
        let decided = is_of_decision(answer, report);
        let is_end = matches!(report.kind, PredicateKind::Exit | PredicateKind::Command);
        is_matched && decided && is_end && report.latched
    })
}

/// Returns the exit status of the processes and commands that ended: the first that is not 0.
fn propagated(answer: &WaitAnswer) -> u8 {
    let status = |report: &PredicateReport| {
        let (status, signal) = match &report.command {
            Some(command) => (command.status, command.signal.as_deref().and_then(signal_number)),
            None => (report.exit_status, report.exit_signal),
        };
        output::exit_code(status, signal).unwrap_or_else(|| {
            let what = if report.command.is_some() { "the command in " } else { "" };
            output::note(&format!("the exit status of {what}{} is unknown", report.named_pane()));
            EXIT_ERROR
        })
    };
    exits(answer).map(status).find(|status| *status != 0).unwrap_or(0)
}

/// Returns the number of a signal that a shell names: `9`, `KILL` or `SIGKILL`.
fn signal_number(name: &str) -> Option<i32> {
    let is_named = |signal: &i32| {
        let known = low_level::signal_name(*signal);
        known.is_some_and(|known| known == name || known.strip_prefix("SIG") == Some(name))
    };
    let mut signals = 1..=64;
    name.parse().ok().filter(|signal| signals.contains(signal)).or_else(|| signals.find(is_named))
}

/// Returns the name of how a wait ended, as in JSON.
fn outcome(outcome: WaitOutcome) -> &'static str {
    match outcome {
        WaitOutcome::Matched => "matched",
        WaitOutcome::Failed => "failed",
        WaitOutcome::Ended => "ended",
        WaitOutcome::Timeout => "timeout",
        WaitOutcome::Pending => "pending",
        WaitOutcome::Cancelled => "cancelled",
    }
}

/// Returns why the wait did not match.
fn failure_reason(answer: &WaitAnswer) -> Option<String> {
    let pane = answer.named_pane().unwrap_or_else(|| "the pane".to_owned());
    match answer.outcome {
        WaitOutcome::Matched => None,
        WaitOutcome::Failed => {
            let fail = answer.predicates.iter().find(|report| report.kind == PredicateKind::Fail && report.latched);
            let line = fail.and_then(|report| report.line.as_deref()).unwrap_or_default();
            Some(format!("{} matched: {line}", fail.map_or_else(|| "a failure".to_owned(), describe)))
        }
        WaitOutcome::Ended => Some(format!("{pane} {} first", output::ended(answer.exit_status, answer.exit_signal))),
        WaitOutcome::Timeout | WaitOutcome::Pending => {
            let open: Vec<String> = answer
                .predicates
                .iter()
                .filter(|report| !report.latched && report.kind != PredicateKind::Fail)
                .map(|report| describe(report) + &remark(report))
                .collect();
            let mut why = format!("timeout after {:.1} s; not met: {}", answer.duration_ms / 1000.0, open.join(", "));
            if let Some(screen) = answer.screen.as_deref().map(str::trim_end).filter(|screen| !screen.is_empty()) {
                why.push_str("; the screen ends:\n");
                why.push_str(screen);
            }
            Some(why)
        }
        WaitOutcome::Cancelled => Some("the wait was cancelled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: &str, pane: &str, line: Option<&str>) -> serde_json::Value {
        serde_json::json!({"kind": kind, "pane": pane, "latched": line.is_some(), "pattern": "x", "line": line})
    }

    fn answer(outcome: &str, predicates: &[serde_json::Value]) -> WaitAnswer {
        serde_json::from_value(serde_json::json!({
            "id": "w1", "outcome": outcome, "pane": "%0", "predicates": predicates, "duration_ms": 1500.0,
            "screen": "a\nb\n\n",
        }))
        .unwrap()
    }

    #[test]
    fn the_lines_of_the_pane_that_decided_are_printed_once() {
        let answer = answer(
            "matched",
            &[
                report("pattern", "%0", Some("hit")),
                report("screen", "%0", Some("hit")),
                report("pattern", "%1", Some("no")),
            ],
        );
        assert_eq!(matched_lines(&answer), "hit\n");
        assert_eq!(failure_reason(&answer), None);
    }

    #[test]
    fn ends_are_told_and_propagated() {
        let exit = |pane: &str, status: Option<i32>, signal: Option<i32>| {
            let mut report = report("exit", pane, Some(""));
            (report["line"], report["exit_status"], report["exit_signal"]) =
                (serde_json::Value::Null, status.into(), signal.into());
            report
        };
        let one = answer("matched", &[exit("%0", Some(3), None), exit("%1", Some(0), None)]);
        assert_eq!((matched_lines(&one).as_str(), propagated(&one)), ("%0 ended (status 3)\n", 3));
        let mut all = answer("matched", &[exit("%0", Some(0), None), exit("%1", None, Some(9))]);
        all.pane = None;
        assert_eq!(matched_lines(&all), "%0 ended (status 0)\n%1 ended (signal 9)\n");
        assert_eq!(propagated(&all), 137);
        assert_eq!(propagated(&answer("matched", &[exit("%0", None, None)])), EXIT_ERROR);
        assert_eq!(propagated(&answer("matched", &[exit("%0", Some(0), None)])), 0);
    }

    #[test]
    fn what_did_not_come_is_said() {
        let timeout = answer("timeout", &[report("pattern", "%0", None), report("bell", "%0", Some(""))]);
        assert_eq!(
            failure_reason(&timeout).unwrap(),
            "timeout after 1.5 s; not met: /x/ in %0; the screen ends:\na\nb"
        );
        assert_eq!(matched_lines(&timeout), "");
        let mut stands = report("pattern", "%0", None);
        stands["stands_before"] = serde_json::json!({"line": "now x", "since": "start"});
        assert_eq!(
            failure_reason(&answer("timeout", &[stands])).unwrap(),
            "timeout after 1.5 s; not met: /x/ in %0 (it was there before the wait: `now x`; --since start counts it); \
             the screen ends:\na\nb"
        );
        let failed = answer("failed", &[report("pattern", "%0", None), report("fail", "%0", Some("error: 7"))]);
        assert_eq!(failure_reason(&failed).unwrap(), "failure /x/ in %0 matched: error: 7");
        assert_eq!(failure_reason(&answer("ended", &[])).unwrap(), "%0 ended first");
    }

    #[test]
    fn progress_says_what_is_waited_for_and_for_how_long() {
        let request = WaitRequest {
            panes: vec!["%0".into(), "work:1".into()],
            patterns: vec!["a\u{1b}b".into()],
            stable_ms: Some(100),
            ..WaitRequest::default()
        };
        let line = progress_line(&conditions(&request), Duration::from_secs(3));
        assert!(line.starts_with("waiting 3 s for /a") && line.ends_with("b/, quiet in %0 or work:1"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn every_flag_reaches_the_request() {
        use clap::Parser;
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            wait: WaitFor,
        }
        let line = "wait-for -t %0 %1 --all -p a -p -b --screen s --gone g --stable 0.5 --exit --prompt --bell --command \
                    --status !0 --title t --fail f --since start --settle 1 -T 2.5";
        let request = Only::try_parse_from(line.split_whitespace()).unwrap().wait.request();
        let expected = serde_json::json!({
            "panes": ["%0", "%1"], "mode": "all", "patterns": ["a", "-b"], "screen": ["s"], "gone": ["g"], "stable_ms": 500,
            "exit": true, "prompt": true, "bell": true, "command": true, "status": "!0", "title": "t", "fail": ["f"],
            "since": "start",
            "settle_ms": 1000, "timeout_ms": 2500,
        });
        assert_eq!(serde_json::to_value(request).unwrap(), expected);
    }
}
