//! `doctor`.

mod daemon;
mod program;
mod sockets;

use std::{collections::BTreeSet, env, fmt::Write as _, path::Path};

use clap::Args;
use muxtap_base::plain;
use muxtap_engine::{elsewhere::look_at_hosts, environment::environment};
use muxtap_tmux::Program;
use rustix::fs::Access;
use serde::Serialize;

use self::daemon::Daemon;
use super::{Caller, Outcome, command_list::SWITCH_ON, listed, output, path_named, path_of};
use crate::{
    api::{
        AgentInfo, AgentList, AgentState, CaptureAnswer, CaptureRequest, CommandsAnswer, CommandsRequest,
        EnvironmentAnswer, Error, ErrorCode, HostInfo, HostList, HostState, HostsQuery, PaneList, PeerState, Result,
        SeenMarks, StatusAnswer, Verified,
    },
    cli::EXIT_ERROR,
    config::Settings,
    daemon::transports,
    protocol::version::Version,
    screen::{Proof, Rules},
};

/// Report problems and how to fix them
///
/// Checks the tmux program as the daemon finds it, or as a daemon started now would; the daemon's
/// socket, log, health and configuration; the tmux servers, and whether they accept that program.
/// Changes and starts nothing. Exit status 1 if a problem was found.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap doctor
  muxtap doctor --verify                         compare every screen in memory with what tmux has
  muxtap doctor -t work                          does the pane's shell mark its commands?
  muxtap doctor --json | jq -r '.checks[] | select(.status == \"problem\") | .fix'")]
pub(in crate::cli) struct Doctor {
    /// Also compare the screen and history of every pane at rest with tmux's
    #[arg(long)]
    verify: bool,
    /// Also check whether the shells of these panes mark their commands; repeatable
    #[arg(short = 't', value_name = "PANE", num_args = 1..)]
    targets: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// Worth knowing; muxtap works.
    Warning,
    Problem,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    message: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Check {
    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, message: message.into(), fix: None }
    }
    fn warning(name: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Warning, message: message.into(), fix: Some(fix.into()) }
    }
    fn problem(name: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Status::Problem, message: message.into(), fix: Some(fix.into()) }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
}

impl Doctor {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let settings = Settings::load(&caller.paths, &Vec::new(), &|name| env::var_os(name), None);
        let program = settings.as_ref().map_or_else(
            // A daemon would not start with them; the other checks are still possible.
            |_| Program { tmux: named_program(), ..Program::default() },
            |settings| Program { tmux: settings.tmux.clone(), own: settings.own_tmux, ..Program::default() },
        );
        let (here, daemon) = tokio::join!(environment(&program, Some(&caller.server)), Daemon::ask(caller));
        let daemon = daemon.as_ref();
        let running = daemon.ok().and_then(Option::as_ref);
        let mut checks = program::checks(&here, running);
        checks.extend([socket_directory(caller), log(caller)]);
        checks.extend(daemon::checks(caller, daemon, settings.as_ref()));
        checks.extend(daemon::others(&caller.paths, caller.paths.of_other_shells()));
        checks.extend(agent_rules(settings.as_ref()));
        checks.extend(untested_agents(caller).await);
        checks.extend(running.iter().flat_map(|daemon| captures(&daemon.status)));
        checks.extend(sockets::checks(caller, &here, running));
        checks.extend(hosts(caller, settings.as_ref()).await);
        if self.verify {
            checks.extend(screens(caller).await);
        }
        for target in &self.targets {
            checks.push(shell_marks(caller, target).await);
        }
        let report = Report { ok: checks.iter().all(|check| check.status != Status::Problem), checks };
        if caller.json {
            output::print_json(&report)?;
        } else {
            output::print(render(&report))?;
        }
        Ok(if report.ok { 0 } else { EXIT_ERROR })
    }
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let mark = match check.status {
            Status::Ok => "ok     ",
            Status::Warning => "note   ",
            Status::Problem => "PROBLEM",
        };
        // Writing to a String cannot fail; also below.
        let _ = writeln!(text, "{mark}  {:<13}  {}", check.name, plain::name(&check.message));
        if let Some(fix) = &check.fix {
            let _ = writeln!(text, "{:24}-> {}", "", plain::name(fix));
        }
    }
    text.push_str(if report.ok { "\nmuxtap is ready.\n" } else { "\nFix each PROBLEM, then run doctor again.\n" });
    text
}

/// Returns the tmux program that this process's environment names, ignoring configuration files.
pub(super) fn named_program() -> std::path::PathBuf {
    env::var_os("MUXTAP_TMUX").filter(|program| !program.is_empty()).unwrap_or_else(|| "tmux".into()).into()
}

fn socket_directory(caller: &Caller) -> Check {
    const NAME: &str = "socket";
    let socket = caller.paths.socket.display();
    match caller.paths.check() {
        Ok(()) => Check::ok(NAME, socket.to_string()),
        Err(error) if error.code == ErrorCode::NotFound => {
            Check::ok(NAME, format!("{socket} (the daemon creates its directory)"))
        }
        Err(error) => Check::problem(NAME, error.message, "or set MUXTAP_SOCKET to a path in your own directory"),
    }
}

fn log(caller: &Caller) -> Check {
    const NAME: &str = "log";
    let log = &caller.paths.log;
    // The nearest directory that exists decides whether the rest can be created.
    let existing = log.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    match rustix::fs::access(existing, Access::WRITE_OK) {
        Ok(()) => Check::ok(NAME, log.display().to_string()),
        Err(error) => Check::warning(
            NAME,
            format!("{} cannot be written: {}: {error}", log.display(), existing.display()),
            "the daemon runs without a log; to have one, set XDG_STATE_HOME to your own directory",
        ),
    }
}

/// Checks the user's rules for agents, as a daemon started now would read them.
fn agent_rules(settings: Result<&Settings, &Error>) -> Option<Check> {
    const NAME: &str = "agents";
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => {
            return Some(Check::problem("config", &error.message, "correct it; the daemon does not start with it"));
        }
    };
    let file = settings.agents_file.as_ref()?;
    match file.load() {
        Ok(_) if !file.path.exists() => None,
        Ok(rules) => Some(Check::ok(NAME, format!("{}: {}", file.path.display(), rules.ids().join(", ")))),
        Err(error) if file.named => {
            Some(Check::problem(NAME, error.message, "correct it; the daemon does not start with it"))
        }
        Err(error) => {
            let how = if cfg!(target_os = "linux") {
                "correct it; a running daemon reads it when it changes"
            } else {
                "correct it, then muxtap stop: the next daemon reads it"
            };
            Some(Check::warning(NAME, error.message, how))
        }
    }
}

/// Checks whether agents run whose screens may differ from all by which the rules were tested.
async fn untested_agents(caller: &Caller) -> Vec<Check> {
    let Ok(Some(mut client)) = caller.running().await else { return Vec::new() };
    let Ok(query) = listed(&[]) else { return Vec::new() };
    let Ok(list) = client.get::<AgentList>("/v1/agents", &query).await else { return Vec::new() };
    let untested = list.agents.into_iter().filter(|agent| agent.untested && agent.state != AgentState::Ended);
    let check = |agent: AgentInfo| {
        let AgentInfo { name, pane, version, agent: id, .. } = agent;
        let version = version.unwrap_or_default();
        Check::warning(
            "agents",
            format!(
                "{name} {version} in {pane} is newer than any with which muxtap was tested: its state may be wrong"
            ),
            format!("see `muxtap agents explain -t {pane}`; rules for `{id}` in agents.toml mend it"),
        )
    };
    untested.map(check).collect()
}

/// Checks whether each remote host can be reached: from the running daemon, else as a daemon started here would.
async fn hosts(caller: &Caller, settings: Result<&Settings, &Error>) -> Vec<Check> {
    const NAME: &str = "host";
    let hosts = if let Ok(Some(mut client)) = caller.running().await {
        match client.get::<HostList>("/v1/hosts", &HostsQuery { look: true }).await {
            Ok(list) => list.hosts,
            Err(error) => return vec![Check::warning(NAME, error.message, "see the log")],
        }
    } else {
        let Ok(settings) = settings else { return Vec::new() };
        match transports(settings) {
            Ok(transports) => look_at_hosts(transports).await,
            Err(error) => {
                return vec![Check::problem(NAME, error.message, "correct it; the daemon does not start with it")];
            }
        }
    };
    let check = |host: HostInfo| {
        let name = host.name;
        let unused = host.peer.as_ref().filter(|peer| peer.state == PeerState::Absent && host.error.is_none());
        if let Some(why) = unused.and_then(|peer| peer.error.as_ref()) {
            return Check::ok(NAME, format!("{name}, with {}; its muxtap: {why}", host.command));
        }
        if let Some(fleet) = host.fleet {
            let offered = fleet.offer.iter().map(|tier| tier.as_str()).collect::<Vec<_>>().join(", ");
            return Check::ok(NAME, format!("{name}, in the fleet with muxtap {}, offers {offered}", fleet.version));
        }
        let peer = host.peer.filter(|peer| peer.state == PeerState::Connected).and_then(|peer| peer.version);
        match (host.state, host.error) {
            _ if peer.is_some() => {
                Check::ok(NAME, format!("{name}, with its muxtap {}: {}", peer.unwrap_or_default(), host.command))
            }
            (HostState::Down, Some(error)) => Check::warning(NAME, error, "only this host is unreachable"),
            (_, Some(note)) => Check::ok(NAME, format!("{name}: {note}")),
            _ => Check::ok(NAME, format!("{name}, with {}", host.command)),
        }
    };
    hosts.into_iter().map(check).collect()
}

/// Checks where captures of the tmux servers come from: one line for each version.
fn captures(status: &StatusAnswer) -> Vec<Check> {
    let versions: BTreeSet<_> = status.servers.iter().filter_map(|server| server.version.as_deref()).collect();
    versions.into_iter().filter_map(captures_of).collect()
}

fn captures_of(version: &str) -> Option<Check> {
    const NAME: &str = "captures";
    const FIX: &str = "no problem: a capture takes a little longer; a later muxtap may follow this version";
    let proof = Rules::for_version(Version::parse(version.as_bytes()).ok()?).proof();
    let text = format!("of tmux {version} come from");
    Some(match proof {
        Proof::Compared => Check::ok(NAME, format!("{text} memory, tested against this version")),
        Proof::ByChanges => Check::ok(NAME, format!("{text} memory: its screens equal those of a tested version")),
        Proof::None => {
            Check::warning(NAME, format!("{text} tmux: screens of this version are not followed in memory"), FIX)
        }
    })
}

/// Compares every pane of the selected tmux server, with history and colors.
async fn screens(caller: &Caller) -> Vec<Check> {
    const NAME: &str = "screens";
    const FIX: &str = "muxtap reads it from tmux again; if it differs again, report what ran in the pane";
    let request =
        CaptureRequest { start: Some("-".to_owned()), escapes: true, verify: true, ..CaptureRequest::default() };
    let problem = |error: Error| vec![Check::problem(NAME, error.message, "see the log")];
    let mut client = match caller.running().await {
        Ok(Some(client)) => client,
        Ok(None) => return vec![Check::ok(NAME, "no daemon is running, so nothing is in memory")],
        Err(error) => return problem(error),
    };
    let list: PaneList = match client.get("/v1/panes", &()).await {
        Ok(list) => list,
        Err(error) => return problem(error),
    };
    let mut checks = Vec::new();
    let mut same = 0;
    for pane in list.panes.iter().filter(|pane| !pane.window_id.is_empty()) {
        let path = format!("{}/capture", path_of("panes", &pane.id.to_string()));
        match client.get::<CaptureAnswer>(&path, &request).await.map(|answer| answer.verified) {
            Ok(Some(Verified { same: false, line, model, tmux })) => {
                let line = line.unwrap_or_default();
                let (model, tmux) = (model.unwrap_or_default(), tmux.unwrap_or_default());
                let message = format!("{} line {line}: memory has {model:?}, tmux has {tmux:?}", pane.id);
                checks.push(Check::problem(NAME, message, FIX));
            }
            Ok(_) => same += 1,
            Err(error) => checks.push(Check::warning(NAME, error.message, "captures of this pane come from tmux")),
        }
    }
    checks.push(Check::ok(NAME, format!("{same} of {} match tmux", same + checks.len())));
    checks
}

/// Checks whether the shell of a pane marks its commands.
async fn shell_marks(caller: &Caller, target: &str) -> Check {
    let asked = async {
        let path = format!("{}/commands", path_named("panes", target)?);
        let Some(mut client) = caller.running().await? else { return Ok(None) };
        let request = CommandsRequest { n: Some(1), ..CommandsRequest::default() };
        client.get::<CommandsAnswer>(&path, &request).await.map(Some)
    };
    marks_of(target, asked.await.map(|answer| answer.map(|answer| answer.marks)))
}

fn marks_of(target: &str, marks: Result<Option<SeenMarks>>) -> Check {
    const NAME: &str = "commands";
    match marks {
        Ok(Some(SeenMarks::Trusted)) => Check::ok(NAME, format!("{target}: marked by muxtap's integration, trusted")),
        Ok(Some(SeenMarks::Claimed)) => {
            Check::ok(NAME, format!("{target}: marked by an integration without muxtap's nonce, claimed"))
        }
        Ok(Some(SeenMarks::None)) => Check::warning(
            NAME,
            format!("{target}: its shell has printed no marks since muxtap began to follow the pane"),
            format!("{SWITCH_ON}, for new shells; for others see muxtap shell-integration --help"),
        ),
        Ok(None) => Check::ok(NAME, format!("{target}: no daemon is running, so no pane is followed")),
        Err(error) => Check::warning(NAME, error.message, "muxtap list-panes shows the panes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_says_where_its_captures_come_from() {
        let check = |version| captures_of(version).map(|check| (check.status, check.message));
        let (status, message) = check("3.3a").unwrap();
        assert_eq!((status, message.contains("memory, tested")), (Status::Ok, true), "{message}");
        assert_eq!(check("3.5").unwrap().0, Status::Ok);
        let (status, message) = check("99.1").unwrap();
        assert_eq!((status, message.contains("from tmux")), (Status::Warning, true), "{message}");
        assert!(check("what").is_none());
    }

    #[test]
    fn a_pane_says_who_marks_its_commands() {
        let check = |marks| marks_of("%0", marks);
        assert_eq!(check(Ok(Some(SeenMarks::Trusted))).status, Status::Ok);
        let claimed = check(Ok(Some(SeenMarks::Claimed)));
        assert_eq!((claimed.status, claimed.message.contains("claimed")), (Status::Ok, true));
        let none = check(Ok(Some(SeenMarks::None)));
        assert_eq!(none.status, Status::Warning);
        assert!(none.fix.unwrap().contains("muxtap shell-integration bash"));
        assert_eq!(check(Ok(None)).status, Status::Ok);
        assert_eq!(check(Err(Error::not_found("no pane %9"))).status, Status::Warning);
    }

    #[test]
    fn the_report_says_what_to_do() {
        let checks = vec![Check::ok("tmux", "fine"), Check::problem("socket", "bad", "do this")];
        let text = render(&Report { ok: false, checks });
        assert_eq!(
            text,
            "ok       tmux           fine\nPROBLEM  socket         bad\n                        -> do this\n\nFix each \
             PROBLEM, then run doctor again.\n"
        );
    }
}
