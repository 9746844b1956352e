//! Checks of this user's tmux servers: their sockets, and whether they accept the client program.

use std::{
    collections::BTreeSet,
    env, fs, io,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        net::UnixStream,
    },
    path::Path,
};

use muxtap_tmux::{Environment, same_socket};

use super::{Caller, Check, EnvironmentAnswer, daemon::Daemon};

use crate::{
    api::{ServerProgram, TmuxProgram},
    config::paths,
};

const NAME: &str = "tmux server";

/// Checks the selected server, those in the user's directory, and those that the daemon follows. The client program is
/// the daemon's if a daemon runs and reports it.
pub(super) fn checks(caller: &Caller, here: &EnvironmentAnswer, daemon: Option<&Daemon>) -> Vec<Check> {
    let environment = Environment { var: &|name| env::var_os(name), uid: paths::uid() };
    let there = daemon.and_then(|daemon| daemon.environment.as_ref().ok());
    let seen = there.unwrap_or(here);
    let mut sockets = BTreeSet::new();
    let mut checks = Vec::new();
    if let Ok(dir) = environment.socket_dir() {
        checks.extend(socket_dir_problem(&dir));
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        sockets.extend(entries.map(|entry| entry.path()));
    }
    sockets.extend(seen.servers.iter().map(|server| server.socket.clone().into()));
    sockets.retain(|socket| !same_socket(socket, &caller.server));
    let is_meant = |socket: &str| same_socket(Path::new(socket), &caller.server);
    let followed = daemon.and_then(|daemon| daemon.status.servers.iter().find(|followed| is_meant(&followed.socket)));
    match followed.filter(|followed| followed.state == "connected").and_then(|followed| followed.error.clone()) {
        Some(wrong) => {
            checks.push(Check::problem(NAME, wrong, "until then only muxtap reaches the server; tmux itself does not"));
        }
        None => checks.push(checked(&caller.server, seen, true)),
    }
    checks.extend(sockets.iter().map(|socket| checked(socket, seen, false)));
    checks.extend(seen.servers.iter().flat_map(noticed));
    checks
}

/// Lists a server's settings through which a person may notice muxtap.
fn noticed(server: &ServerProgram) -> impl Iterator<Item = Check> {
    const FIX: &str = "no problem: docs/unnoticed.md says what differs while a pane is in use";
    let message = |text: &String| format!("{}: {text}", server.socket);
    server.noticed.iter().map(move |text| Check::warning("in use", message(text), FIX))
}

/// Checks a server by the report about it, or else by its socket alone.
fn checked(socket: &Path, seen: &EnvironmentAnswer, meant: bool) -> Check {
    let found = seen.servers.iter().find(|server| same_socket(Path::new(&server.socket), socket));
    found.map_or_else(|| tmux_socket(socket, meant), |found| understood(found, &seen.program, meant))
}

/// Checks whether a server accepts the client program.
fn understood(server: &ServerProgram, program: &TmuxProgram, meant: bool) -> Check {
    const FIX: &str = "use the server's own program: leave own_tmux at its default (true), or set MUXTAP_TMUX to that \
                       program; then muxtap stop";
    if let Some(error) = &server.error {
        return if meant { Check::problem(NAME, error, FIX) } else { Check::warning(NAME, error, FIX) };
    }
    let version = server.version.as_ref().map_or_else(|| "unknown version".into(), |version| format!("tmux {version}"));
    let process = server.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    let message = format!("{}: {version}{process}", server.socket);
    if server.own {
        return Check::ok(NAME, format!("{message}, reached with its own program {}", server.program));
    }
    match &program.version {
        Some(speaks) if server.version.as_ref().is_some_and(|version| version != speaks) => Check::warning(
            NAME,
            format!("{message}, reached with {} of version {speaks}, which it accepts so far", server.program),
            FIX,
        ),
        _ => Check::ok(NAME, message),
    }
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

/// Checks a tmux server's socket; only the selected one (`meant`) can be a problem.
fn tmux_socket(socket: &Path, meant: bool) -> Check {
    const NAME_A_SOCKET: &str = "name a tmux server's socket with -S or -L";
    let shown = socket.display();
    let wrong = |message: String, fix: &str| {
        if meant { Check::problem(NAME, message, fix) } else { Check::warning(NAME, message, fix) }
    };
    if fs::metadata(socket).is_ok_and(|found| !found.file_type().is_socket()) {
        return wrong(format!("{shown} is not a socket"), NAME_A_SOCKET);
    }
    match UnixStream::connect(socket) {
        Ok(_) => match fs::metadata(socket) {
            Ok(found) if found.uid() != paths::uid() => {
                let message = format!("{shown} belongs to user {}", found.uid());
                Check::warning(NAME, message, "muxtap can follow it as far as the server admits this user")
            }
            _ => Check::ok(NAME, shown.to_string()),
        },
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Check::ok(NAME, format!("none on {shown} yet; muxtap new-session starts one")),
            io::ErrorKind::ConnectionRefused => {
                Check::warning(NAME, format!("{shown} is stale: no server listens on it"), format!("rm {shown}"))
            }
            io::ErrorKind::PermissionDenied => {
                wrong(format!("{shown}: permission denied"), "use the socket of your own tmux server (-S, -L)")
            }
            _ => wrong(format!("{shown}: {error}"), NAME_A_SOCKET),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::{super::Status, *};

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
    fn a_server_of_another_version_is_a_problem_only_where_it_refuses_the_program() {
        let program = TmuxProgram { version: Some("3.3a".into()), ..TmuxProgram::default() };
        let server = ServerProgram { version: Some("3.5a".into()), ..ServerProgram::default() };
        let status = |server: ServerProgram| [true, false].map(|meant| understood(&server, &program, meant).status);
        assert_eq!(status(server.clone()), [Status::Warning; 2]);
        assert_eq!(status(ServerProgram { own: true, ..server.clone() }), [Status::Ok; 2]);
        let refused = ServerProgram { error: Some("server exited unexpectedly".into()), ..server };
        assert_eq!(status(refused), [Status::Problem, Status::Warning]);
    }
}
