//! `demo`: demonstrates waits with a private tmux server and daemon.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fmt::Write as _,
    fs::{self, DirBuilder},
    io::{self, IsTerminal as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use futures_util::future::join_all;
use muxtap_tmux::{death, server_of};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    Caller, Client, Outcome,
    lines::{Lines, Style},
    output::{self, ColorChoice, Failure},
};
use crate::{
    api::{
        CreatedAnswer, Error, ErrorCode, Event, EventsRequest, NewSessionRequest, NewWindowRequest, Result,
        SpawnRequest, WaitAnswer, WaitOutcome, WaitRequest,
    },
    cli::{EXIT_ERROR, EXIT_INTERRUPTED, caller::whole_environment},
    config::{Settings, paths::Paths},
    daemon::start,
    protocol::ids::PaneId,
    protocol::names::spelled,
};

const SESSION: &str = "demo";
/// How long the demo may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How long `tmux kill-server` (F32), then the server, then the daemon may take before each is killed.
const END_LIMIT: Duration = Duration::from_secs(5);
/// The maximum length of a temporary directory's path; beyond it a socket's path is too long.
const LONGEST_DIR: usize = 60;

/// Demonstrate waits with three builds in panes
///
/// Starts a private daemon and a private tmux server, on which three panes run builds and one
/// fails. Prints their output, and for each wait how long after the pane's last line the result
/// arrived. Takes a few seconds, leaves nothing behind, and does not touch your tmux servers,
/// daemon and configuration.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap demo")]
pub(in crate::cli) struct Demo {
    /// Color the panes' names
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
}

/// A build that a pane pretends to run.
struct Build {
    name: &'static str,
    steps: &'static [&'static str],
    fails: bool,
}

const BUILDS: [Build; 3] = [
    Build {
        name: "parser",
        steps: &["cc lexer.c", "cc grammar.c", "cc ast.c", "cc resolve.c", "ar libparser.a"],
        fails: false,
    },
    Build {
        name: "server",
        steps: &[
            "fetch deps",
            "cc main.c",
            "cc http.c",
            "cc tls.c",
            "cc pool.c",
            "cc log.c",
            "ld server",
            "strip server",
        ],
        fails: false,
    },
    Build { name: "docs", steps: &["scan *.md", "render 40 pages", "check links"], fails: true },
];

impl Build {
    /// Returns a shell script that runs the steps with pauses and ends with a line that contains the
    /// time of writing.
    fn script(&self, random: &mut Random) -> String {
        let mut script = String::new();
        let count = self.steps.len();
        for (number, step) in self.steps.iter().enumerate() {
            // Writing to a String cannot fail; also below.
            let _ = writeln!(script, "sleep 0.{:03}; echo '[{}/{count}] {step}'", 250 + random.below(500), number + 1);
        }
        let (word, status) = if self.fails { ("FAILED", 2) } else { ("DONE", 0) };
        let mark = format!("{word} {}", self.name);
        // The printing program reads the clock. Before macOS 14 `date` had no nanoseconds.
        let _ = writeln!(
            script,
            "case $(date +%N) in *N*) perl -MTime::HiRes=time -e 'printf \"{mark} %.0f\\n\", time * 1e9';; *) date \
             '+{mark} %s%N';; esac\nsleep 0.1; exit {status}"
        );
        script
    }
}

/// A random number generator whose numbers only need to differ between runs.
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(nanoseconds_now() as u64 | 1)
    }
    fn below(&mut self, below: u64) -> u64 {
        // Xorshift (Marsaglia 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn nanoseconds_now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos())
}

/// A directory for everything that the demo starts and writes, removed on drop.
struct PrivateDir(PathBuf);

impl PrivateDir {
    fn new() -> Result<Self> {
        let temp = Some(env::temp_dir()).filter(|dir| dir.as_os_str().len() <= LONGEST_DIR);
        let dir = temp.unwrap_or_else(|| "/tmp".into()).join(format!("muxtap-demo-{}", std::process::id()));
        let failed =
            |error: io::Error| Error::new(ErrorCode::Conflict, format!("cannot create {}: {error}", dir.display()));
        DirBuilder::new().mode(0o700).create(&dir).map_err(failed)?;
        let made = Self(dir.clone());
        for file in [made.config(), made.agents()] {
            fs::write(file, "").map_err(failed)?;
        }
        Ok(made)
    }

    fn tmux_socket(&self) -> PathBuf {
        self.0.join("tmux")
    }

    fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    fn agents(&self) -> PathBuf {
        self.0.join("agents.toml")
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Demo {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        // Before anything is created that could be left behind; in effect until the end.
        let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else {
            return Err(Error::internal("cannot listen for signals").into());
        };
        let settings = Settings::load(&caller.paths, &Vec::new(), &|name| env::var_os(name), None);
        // Of the user's settings only the tmux program is used; errors in the others do not matter.
        let tmux = settings.map_or_else(|_| super::doctor::named_program(), |settings| settings.tmux);
        let dir = PrivateDir::new()?;
        let caller = caller.with_private(Paths::in_dir(&dir.0), dir.tmux_socket());
        let (config, agents) = (dir.config(), dir.agents());
        let daemon = start::spawn_private(
            &caller.paths,
            &[
                ("MUXTAP_TMUX", tmux.as_os_str()),
                ("MUXTAP_CONFIG", config.as_os_str()),
                ("MUXTAP_AGENTS_FILE", agents.as_os_str()),
            ],
        )?;
        let shown = async {
            // Must not be interrupted: a server that is starting could not be ended.
            let panes = in_time(begin(&caller, &dir.0)).await?;
            tokio::select! {
                shown = in_time(show(&caller, &panes, self.color)) => shown,
                _ = interrupt.recv() => Ok(EXIT_INTERRUPTED),
                _ = terminate.recv() => Ok(EXIT_INTERRUPTED),
                _ = hangup.recv() => Ok(EXIT_INTERRUPTED),
            }
        };
        let shown = shown.await;
        // The daemon first: it would search for the ended server.
        end_daemon(daemon).await;
        end_server(tmux.as_os_str(), &caller.server).await;
        shown
    }
}

/// Connects to the demo's own daemon.
async fn connect(caller: &Caller) -> Result<Client> {
    caller.running().await?.ok_or_else(|| Error::internal("the demo's own daemon has exited"))
}

async fn in_time<T>(shown: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(LIMIT, shown).await.unwrap_or_else(|_| {
        let message = format!("timeout: the demo did not finish in {} s", LIMIT.as_secs());
        Err(Error::new(ErrorCode::Timeout, message).into())
    })
}

/// Prints an introduction and starts the builds; returns their panes.
async fn begin(caller: &Caller, home: &Path) -> Result<Vec<PaneId>, Failure> {
    if !caller.json {
        output::print(format!(
            "Three builds in three panes of a private tmux server ({}).\nEach has its own wait; nothing \
             polls.\n\n",
            caller.server.display()
        ))?;
    }
    Ok(start_builds(caller, home).await?)
}

async fn show(caller: &Caller, panes: &[PaneId], color: ColorChoice) -> Outcome {
    let begun = Instant::now();
    let mut lines = Lines::new(Style { prefixed: true, color: color.enabled(), ..Style::default() });
    for (pane, build) in panes.iter().copied().zip(&BUILDS) {
        lines.name(pane, build.name);
    }
    let waits = join_all(panes.iter().copied().zip(&BUILDS).map(|(pane, build)| wait(caller, pane, build)));
    let (followed, waited) = tokio::join!(follow(caller, lines), waits);
    followed?;
    let results = waited.into_iter().collect::<Result<Vec<_>>>()?;
    if caller.json {
        output::print_json(
            &serde_json::json!({ "waits": results.iter().map(WaitResult::to_json).collect::<Vec<_>>() }),
        )?;
    } else {
        output::print(summary(&results, begun.elapsed()))?;
    }
    let as_planned = results.iter().zip(&BUILDS).all(|(result, build)| result.as_planned(build));
    Ok(if as_planned { 0 } else { EXIT_ERROR })
}

/// Starts a pane for each build; returns their ids.
async fn start_builds(caller: &Caller, home: &Path) -> Result<Vec<PaneId>> {
    let mut client = connect(caller).await?;
    let mut random = Random::new();
    let mut panes = Vec::new();
    for build in &BUILDS {
        let spawn = SpawnRequest {
            command: Some(vec!["sh".to_owned(), "-c".to_owned(), build.script(&mut random)]),
            keep: true,
            ..SpawnRequest::default()
        };
        let created: CreatedAnswer = if panes.is_empty() {
            let mut caller_env: BTreeMap<_, _> =
                whole_environment().into_iter().filter(|(name, _)| !name.starts_with("TMUX")).collect();
            // The server reads no user configuration, and its panes run no user shell.
            let home = home.display().to_string();
            let of_its_own = [("HOME", home.clone()), ("XDG_CONFIG_HOME", home), ("SHELL", "/bin/sh".into())];
            caller_env.extend(of_its_own.map(|(name, value)| (name.to_owned(), value)));
            let spawn = SpawnRequest { caller_env: Some(caller_env), ..spawn };
            let request = NewSessionRequest {
                name: Some(SESSION.to_owned()),
                window_name: None,
                spawn,
                width: Some(100),
                height: Some(30),
                or_existing: false,
            };
            client.post("/v1/sessions", &request).await?
        } else {
            let name = Some(build.name.to_owned());
            let request = NewWindowRequest { session: SESSION.to_owned(), index: None, name, spawn, select: false };
            client.post("/v1/windows", &request).await?
        };
        panes.push(created.pane);
    }
    Ok(panes)
}

/// Prints the panes' output, until each has printed its last line.
async fn follow(caller: &Caller, mut lines: Lines) -> Result<(), Failure> {
    let request = EventsRequest {
        panes: Some(format!("{SESSION}:*")),
        types: Some("output".to_owned()),
        since: Some("start".to_owned()),
        ..EventsRequest::default()
    };
    let mut stream = connect(caller).await?.events("/v1/events", &request, None).await?;
    let mut open = BUILDS.len();
    while open > 0 {
        let mut printed = Vec::new();
        let goes_on = stream
            .next(|data| {
                if let Ok(Event::Output { pane, text: Some(text), .. }) = serde_json::from_slice(data) {
                    printed.extend(lines.feed(pane, text.as_bytes()));
                }
            })
            .await
            .map_err(Error::from)?;
        let text = String::from_utf8_lossy(&printed);
        open =
            open.saturating_sub(text.lines().filter(|line| line.contains("DONE ") || line.contains("FAILED ")).count());
        if !caller.json {
            output::print_raw(&printed)?;
        }
        if !goes_on {
            return Err(Error::internal("the daemon ended in the middle of the demo").into());
        }
    }
    Ok(())
}

/// The result of a wait.
struct WaitResult {
    name: &'static str,
    outcome: WaitOutcome,
    /// Milliseconds from the time that the pane wrote to the response's arrival.
    latency_ms: Option<f64>,
}

impl WaitResult {
    fn as_planned(&self, build: &Build) -> bool {
        self.outcome == if build.fails { WaitOutcome::Failed } else { WaitOutcome::Matched }
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "name": self.name, "outcome": self.outcome, "latency_ms": self.latency_ms })
    }
}

async fn wait(caller: &Caller, pane: PaneId, build: &Build) -> Result<WaitResult> {
    let request = WaitRequest {
        panes: vec![pane.to_string()],
        patterns: vec![format!(r"^DONE {} (\d+)", build.name)],
        fail: vec![format!(r"^FAILED {} (\d+)", build.name)],
        // The build began before the wait; its output so far counts.
        since: Some("start".to_owned()),
        timeout_ms: Some(LIMIT.as_millis() as u64),
        ..WaitRequest::default()
    };
    let mut client = connect(caller).await?;
    let answer: WaitAnswer = client.post("/v1/waits", &request).await?;
    let arrived = nanoseconds_now();
    let line = answer.predicates.iter().filter(|report| report.latched).find_map(|report| report.line.as_deref());
    Ok(WaitResult {
        name: build.name,
        outcome: answer.outcome,
        latency_ms: line.and_then(|line| latency(line, arrived)),
    })
}

/// Returns the milliseconds from the time at the line's end to `arrived`.
fn latency(line: &str, arrived: u128) -> Option<f64> {
    let written: u128 = line.split_whitespace().next_back()?.parse().ok()?;
    let nanoseconds = u32::try_from(arrived.checked_sub(written)?).ok()?;
    Some(f64::from(nanoseconds) / 1e6)
}

fn summary(results: &[WaitResult], took: Duration) -> String {
    let mut text = String::from("\n");
    let plain = !std::io::stdout().is_terminal();
    for result in results {
        let (mark, what) = match result.outcome {
            WaitOutcome::Matched => (if plain { "ok " } else { "✓" }, "done"),
            WaitOutcome::Failed => (if plain { "no " } else { "✗" }, "failed (as planned)"),
            _ => ("?", "no result"),
        };
        let latency = result
            .latency_ms
            .map_or_else(String::new, |ms| format!("the wait returned {ms:.2} ms after the pane wrote it"));
        let _ = writeln!(text, "{mark} {:<7} {what:<20} {latency}", result.name);
    }
    let _ = writeln!(
        text,
        "\nA loop that captures the pane every 100 ms would have been 50 ms late on average. ({:.1} s in all)",
        took.as_secs_f64()
    );
    text
}

/// Ends the private tmux server, if running, and returns when it has exited.
async fn end_server(tmux: &OsStr, socket: &Path) {
    // Before the request to end: afterwards the socket no longer leads to the process.
    let process = server_of(socket).map(|server| server.pid);
    let ends = process.and_then(death::watch);
    let mut kill = tokio::process::Command::new(tmux);
    kill.arg("-N").arg("-S").arg(socket).arg(spelled("kill-server")).env_remove("TMUX").kill_on_drop(true);
    let _ = tokio::time::timeout(END_LIMIT, kill.output()).await;
    let Some(ends) = ends else { return };
    if tokio::time::timeout(END_LIMIT, ends).await.is_err() {
        kill_with(process, Signal::KILL);
    }
}

/// Ends the private daemon, and returns when it has exited.
async fn end_daemon(mut daemon: Child) {
    // The process has not been reaped, so its id is still valid.
    let process = Some(daemon.id());
    kill_with(process, Signal::TERM);
    let mut gone = tokio::task::spawn_blocking(move || daemon.wait());
    if tokio::time::timeout(END_LIMIT, &mut gone).await.is_err() {
        kill_with(process, Signal::KILL);
        let _ = gone.await;
    }
}

fn kill_with(process: Option<u32>, signal: Signal) {
    let pid = process.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, signal));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_read_from_the_lines_end() {
        assert_eq!(latency("DONE parser 1000000000", 1_002_500_000), Some(2.5));
        assert_eq!(latency("DONE parser 1000000000", 999), None);
        assert_eq!(latency("DONE parser", 999), None);
    }

    #[test]
    fn the_scripts_end_with_a_time_and_a_status() {
        for build in &BUILDS {
            // Without the pauses: the test checks the output.
            let script = build.script(&mut Random(7)).replace("sleep 0.", "true 0.");
            let output = std::process::Command::new("sh").arg("-c").arg(&script).output().unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            let last = stdout.lines().last().unwrap();
            assert_eq!(output.status.success(), !build.fails, "{stdout}");
            assert!(last.starts_with(if build.fails { "FAILED " } else { "DONE " }), "{last}");
            assert!(latency(last, nanoseconds_now()).is_some(), "{last}");
            assert_eq!(stdout.lines().count(), build.steps.len() + 1);
        }
    }

    #[test]
    fn the_demo_is_short() {
        let longest = BUILDS.iter().map(|build| build.steps.len() * 750).max().unwrap();
        assert!(longest < 7_000, "milliseconds");
    }
}
