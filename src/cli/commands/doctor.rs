//! `doctor`.

use std::{
    collections::BTreeSet,
    env,
    fmt::Write as _,
    fs, io,
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use rustix::fs::Access;
use serde::Serialize;

use super::{Caller, Outcome, output, path_of};
use crate::{
    api::{CaptureAnswer, CaptureRequest, Error, ErrorCode, PaneList, StatusAnswer, Verified},
    cli::EXIT_ERROR,
    config::{Settings, paths},
    plain,
    protocol::version::Version,
    screen::{Proof, Rules},
    socket::Environment,
};

/// How long `tmux -V` may take (F32).
const TMUX_LIMIT: Duration = Duration::from_secs(5);

/// Check what muxtap needs, and say what to fix
///
/// The tmux program and its version, the daemon's socket, log and health, the sockets of this
/// user's tmux servers. Changes nothing and starts nothing. Exits with 1 when something is wrong.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap doctor
  muxtap doctor --verify                         compare every screen in memory with what tmux has
  muxtap doctor --json | jq -r '.checks[] | select(.status == \"problem\") | .fix'")]
pub(in crate::cli) struct Doctor {
    /// Also compare the screen and history of every pane at rest with what tmux has
    #[arg(long)]
    verify: bool,
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
        let mut checks = vec![tmux_program().await, socket_directory(caller), log(caller)];
        let status = daemon_status(caller).await;
        checks.push(daemon(caller, &status));
        let status = status.ok().flatten();
        checks.extend(status.iter().flat_map(|status| &status.warnings).map(warning));
        checks.extend(agent_rules(caller));
        checks.extend(status.iter().flat_map(captures));
        checks.extend(tmux_sockets(caller, status.as_ref()));
        if self.verify {
            checks.extend(screens(caller).await);
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
        // Writing to a String cannot fail; here and below.
        let _ = writeln!(text, "{mark}  {:<13}  {}", check.name, plain::name(&check.message));
        if let Some(fix) = &check.fix {
            let _ = writeln!(text, "{:24}-> {}", "", plain::name(fix));
        }
    }
    text.push_str(if report.ok { "\nmuxtap is ready.\n" } else { "\nFix what is marked PROBLEM, then ask again.\n" });
    text
}

const TMUX: &str = "tmux";

async fn tmux_program() -> Check {
    let named = env::var_os("MUXTAP_TMUX").filter(|program| !program.is_empty()).map(PathBuf::from);
    let install = "install tmux 3.2a or later (Debian, Ubuntu: apt install tmux; Fedora: dnf install tmux; macOS: brew \
                   install tmux), or name the program in MUXTAP_TMUX";
    let program = named.unwrap_or_else(|| TMUX.into());
    let Some(program) = find_program(&program, env::var_os("PATH").as_deref()) else {
        return Check::problem(TMUX, format!("no program {} in PATH", program.display()), install);
    };
    if let Err(error) = rustix::fs::access(&program, Access::EXEC_OK) {
        let fix = format!("chmod +x {}, or name another one in MUXTAP_TMUX", program.display());
        return Check::problem(TMUX, format!("{} cannot be executed: {error}", program.display()), fix);
    }
    let run = tokio::process::Command::new(&program).arg("-V").kill_on_drop(true).output();
    let output = match tokio::time::timeout(TMUX_LIMIT, run).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Check::problem(TMUX, format!("{} -V: {error}", program.display()), install),
        Err(_) => {
            let message = format!("{} -V does not answer in {} s", program.display(), TMUX_LIMIT.as_secs());
            return Check::problem(TMUX, message, install);
        }
    };
    judge_version(&program, &output.stdout)
}

fn judge_version(program: &Path, answer: &[u8]) -> Check {
    let program = program.display();
    match Version::parse(answer) {
        Ok(version) if version.is_supported() => {
            Check::ok(TMUX, format!("{} ({program})", String::from_utf8_lossy(answer).trim()))
        }
        Ok(version) => {
            let minimum = Version::MINIMUM;
            let message = format!("{program} is tmux {version}; muxtap needs {minimum} or later");
            Check::problem(TMUX, message, format!("install tmux {minimum} or later, or name one in MUXTAP_TMUX"))
        }
        Err(error) => Check::problem(TMUX, format!("{program} -V: {error}"), "name the tmux program in MUXTAP_TMUX"),
    }
}

/// Finds a program as `execvp` does; a file that cannot be executed only when there is no better
/// one.
fn find_program(program: &Path, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let found = || env::split_paths(path?).map(|dir| dir.join(program)).find(|program| program.is_file());
    let usable = |path| {
        env::split_paths(path)
            .map(|dir| dir.join(program))
            .find(|program| program.is_file() && rustix::fs::access(program, Access::EXEC_OK).is_ok())
    };
    path.and_then(usable).or_else(found)
}

fn socket_directory(caller: &Caller) -> Check {
    const NAME: &str = "socket";
    let socket = caller.paths.socket.display();
    match caller.paths.check() {
        Ok(()) => Check::ok(NAME, socket.to_string()),
        Err(error) if error.code == ErrorCode::NotFound => {
            Check::ok(NAME, format!("{socket} (its directory is made when the daemon starts)"))
        }
        Err(error) => Check::problem(NAME, error.message, "or set MUXTAP_SOCKET to a path in a directory of yours"),
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
            "the daemon runs without a log; set XDG_STATE_HOME to a directory of yours to have one",
        ),
    }
}

/// Returns the daemon's status; `None` where no daemon runs.
async fn daemon_status(caller: &Caller) -> Result<Option<StatusAnswer>, Error> {
    let answer = async {
        match caller.running().await? {
            Some(mut client) => client.get::<StatusAnswer>("/v1/status", &()).await.map(Some),
            None => Ok(None),
        }
    };
    tokio::time::timeout(TMUX_LIMIT, answer).await.unwrap_or_else(|_| {
        let message = format!("it does not answer in {} s", TMUX_LIMIT.as_secs());
        Err(Error::new(ErrorCode::Timeout, message))
    })
}

fn daemon(caller: &Caller, status: &Result<Option<StatusAnswer>, Error>) -> Check {
    const NAME: &str = "daemon";
    match status {
        Ok(Some(status)) => {
            let message = format!("muxtap {}, process {}", status.version, status.pid);
            if status.version == env!("CARGO_PKG_VERSION") {
                Check::ok(NAME, message)
            } else {
                Check::warning(NAME, message, format!("this is {}: muxtap stop", env!("CARGO_PKG_VERSION")))
            }
        }
        Ok(None) => Check::ok(NAME, "not running; the first command starts it"),
        Err(error) if error.code == ErrorCode::Timeout => {
            Check::problem(NAME, &error.message, format!("see {}, then end the process", caller.paths.log.display()))
        }
        Err(error) => Check::problem(NAME, &error.message, "muxtap stop; if that does not help, see its log"),
    }
}

/// Converts a warning of the daemon into a check.
fn warning(message: &String) -> Check {
    Check::warning("daemon", message, "the daemon goes on; what it says is missing comes back when there is room again")
}

/// Checks the user's rules of agents, as a daemon that is started here and now would read them.
fn agent_rules(caller: &Caller) -> Option<Check> {
    const NAME: &str = "agents";
    let settings = match Settings::load(&caller.paths, &Vec::new(), &|name| env::var_os(name), None) {
        Ok(settings) => settings,
        Err(error) => {
            return Some(Check::problem("config", error.message, "correct it; the daemon does not start with it"));
        }
    };
    let file = settings.agents_file?;
    match file.load() {
        Ok(_) if !file.path.exists() => None,
        Ok(rules) => Some(Check::ok(NAME, format!("{}: {}", file.path.display(), rules.ids().join(", ")))),
        Err(error) if file.named => {
            Some(Check::problem(NAME, error.message, "correct it; the daemon does not start with it"))
        }
        Err(error) => {
            Some(Check::warning(NAME, error.message, "correct it, then muxtap stop: the next command starts with it"))
        }
    }
}

/// Checks where captures of the tmux servers come from: one line for each version.
fn captures(status: &StatusAnswer) -> Vec<Check> {
    let versions: BTreeSet<_> = status.servers.iter().filter_map(|server| server.version.as_deref()).collect();
    versions.into_iter().filter_map(captures_of).collect()
}

fn captures_of(version: &str) -> Option<Check> {
    const NAME: &str = "captures";
    const FIX: &str = "nothing is wrong: a capture takes a little longer; a later muxtap may follow this version";
    let proof = Rules::for_version(Version::parse(version.as_bytes()).ok()?).proof();
    let text = format!("of tmux {version} come from");
    Some(match proof {
        Proof::Compared => Check::ok(NAME, format!("{text} memory, as compared with this version")),
        Proof::ByChanges => {
            Check::ok(NAME, format!("{text} memory: its screens are those of a version that was compared"))
        }
        Proof::None => {
            Check::warning(NAME, format!("{text} tmux: screens of this version are not followed in memory"), FIX)
        }
    })
}

/// Compares every pane of the tmux server that is meant, with its history and its colours.
async fn screens(caller: &Caller) -> Vec<Check> {
    const NAME: &str = "screens";
    const FIX: &str = "muxtap reads it anew from tmux now; if it differs again, report what the pane ran";
    let request =
        CaptureRequest { start: Some("-".to_owned()), escapes: true, verify: true, ..CaptureRequest::default() };
    let problem = |error: Error| vec![Check::problem(NAME, error.message, "see the log")];
    let mut client = match caller.running().await {
        Ok(Some(client)) => client,
        Ok(None) => return vec![Check::ok(NAME, "no daemon runs, so there is nothing in memory")],
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
            Err(error) => checks.push(Check::warning(NAME, error.message, "tmux answers captures of this pane")),
        }
    }
    checks.push(Check::ok(NAME, format!("{same} of {} are as tmux has them", same + checks.len())));
    checks
}

fn tmux_sockets(caller: &Caller, status: Option<&StatusAnswer>) -> Vec<Check> {
    let environment = Environment { var: &|name| env::var_os(name), uid: paths::uid() };
    let mut sockets = BTreeSet::new();
    let mut checks = Vec::new();
    if let Ok(dir) = environment.socket_dir() {
        checks.extend(socket_dir_problem(&dir));
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        sockets.extend(entries.map(|entry| entry.path()));
    }
    sockets.remove(&caller.server);
    let server = caller.server.to_string_lossy();
    let followed = status.and_then(|status| status.servers.iter().find(|followed| followed.socket == server));
    match followed.filter(|followed| followed.state == "connected").and_then(|followed| followed.error.clone()) {
        Some(wrong) => {
            checks.push(Check::problem(
                "tmux server",
                wrong,
                "until then only muxtap reaches it; tmux itself does not",
            ));
        }
        None => checks.push(tmux_socket(&caller.server, true)),
    }
    checks.extend(sockets.iter().map(|socket| tmux_socket(socket, false)));
    checks
}

/// Checks the directory of tmux's sockets: tmux refuses to use one that is not the user's alone.
fn socket_dir_problem(dir: &Path) -> Option<Check> {
    const NAME: &str = "tmux sockets";
    let found = fs::metadata(dir).ok()?;
    if found.uid() != paths::uid() {
        let message = format!("{} belongs to user {}", dir.display(), found.uid());
        return Some(Check::problem(NAME, message, "remove it, or set TMUX_TMPDIR to a directory of yours"));
    }
    let mode = found.mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        let message = format!("{} is open to others (mode {mode:03o}); tmux refuses that", dir.display());
        Check::problem(NAME, message, format!("chmod 700 {}", dir.display()))
    })
}

/// Checks a tmux server's socket; only the one that is `meant` can be a problem.
fn tmux_socket(socket: &Path, meant: bool) -> Check {
    const NAME: &str = "tmux server";
    let shown = socket.display();
    let wrong = |message: String, fix: &str| {
        if meant { Check::problem(NAME, message, fix) } else { Check::warning(NAME, message, fix) }
    };
    match UnixStream::connect(socket) {
        Ok(_) => match fs::metadata(socket) {
            Ok(found) if found.uid() != paths::uid() => {
                let message = format!("{shown} belongs to user {}", found.uid());
                Check::warning(NAME, message, "muxtap can follow it as far as that server lets this user in")
            }
            _ => Check::ok(NAME, shown.to_string()),
        },
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Check::ok(NAME, format!("none on {shown} yet; muxtap new-session starts it")),
            io::ErrorKind::ConnectionRefused => {
                Check::warning(NAME, format!("{shown} is left over: no server listens there"), format!("rm {shown}"))
            }
            io::ErrorKind::PermissionDenied => {
                wrong(format!("{shown}: permission denied"), "use the socket of a tmux server of yours (-S, -L)")
            }
            _ => wrong(format!("{shown}: {error}"), "name a tmux server's socket with -S or -L"),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::PermissionsExt as _, net::UnixListener};

    use super::*;

    #[test]
    fn an_old_tmux_is_named_with_the_minimum() {
        let program = Path::new("/usr/bin/tmux");
        assert_eq!(judge_version(program, b"tmux 3.3a\n").status, Status::Ok);
        let old = judge_version(program, b"tmux 3.2\n");
        assert_eq!(old.status, Status::Problem);
        assert!(old.message.contains("tmux 3.2;") && old.message.contains("3.2a"), "{}", old.message);
        assert_eq!(judge_version(program, b"hello").status, Status::Problem);
    }

    #[test]
    fn a_version_says_where_its_captures_come_from() {
        let check = |version| captures_of(version).map(|check| (check.status, check.message));
        let (status, message) = check("3.3a").unwrap();
        assert_eq!((status, message.contains("memory, as compared")), (Status::Ok, true), "{message}");
        assert_eq!(check("3.5").unwrap().0, Status::Ok);
        let (status, message) = check("99.1").unwrap();
        assert_eq!((status, message.contains("from tmux")), (Status::Warning, true), "{message}");
        assert!(check("what").is_none());
    }

    #[test]
    fn a_program_is_looked_for_as_the_shell_does() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        for (dir, mode) in [(&first, 0o644), (&second, 0o755)] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("tmux"), "").unwrap();
            fs::set_permissions(dir.join("tmux"), fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = env::join_paths([&first, &second]).unwrap();
        assert_eq!(find_program(Path::new("tmux"), Some(&path)), Some(second.join("tmux")));
        assert_eq!(find_program(Path::new("tmux"), Some(first.as_os_str())), Some(first.join("tmux")));
        assert_eq!(find_program(Path::new("other"), Some(&path)), None);
        assert_eq!(find_program(&first.join("tmux"), None), Some(first.join("tmux")));
    }

    #[test]
    fn sockets_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        assert_eq!(tmux_socket(&socket, true).status, Status::Ok, "a server that is not there yet");
        let listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(tmux_socket(&socket, true).status, Status::Ok);
        drop(listener);
        let stale = tmux_socket(&socket, true);
        assert_eq!((stale.status, stale.fix), (Status::Warning, Some(format!("rm {}", socket.display()))));
    }

    #[test]
    fn the_report_says_what_to_do() {
        let checks = vec![Check::ok("tmux", "fine"), Check::problem("socket", "bad", "do this")];
        let text = render(&Report { ok: false, checks });
        assert_eq!(
            text,
            "ok       tmux           fine\nPROBLEM  socket         bad\n                        -> do this\n\nFix what \
             is marked PROBLEM, then ask again.\n"
        );
    }
}
