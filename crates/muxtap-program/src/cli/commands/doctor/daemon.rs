//! Checks of the daemon: whether it runs and responds, and what it was started with.

use std::{path::PathBuf, time::Duration};

use muxtap_engine::audit::{AuditKey, key_file};
use serde::de::DeserializeOwned;

use super::{Caller, Check, EnvironmentAnswer, Error, ErrorCode, Result, Settings, StatusAnswer};

use crate::{
    api::{ConfigAnswer, ConfigFile, Setting},
    cli::{client::Client, commands::daemon::reachable},
    config::paths::Paths,
    daemon::{check_ports, start},
};

/// How long the daemon may take to report its own state.
const STATUS_LIMIT: Duration = Duration::from_secs(5);
/// How long the daemon may take to examine tmux programs and servers; each of its calls has its own limit.
const ENVIRONMENT_LIMIT: Duration = Duration::from_secs(25);

const NAME: &str = "daemon";
const RESTART: &str = "muxtap stop: the next command starts a daemon that reads it";

/// A running daemon and its reports about itself.
pub(super) struct Daemon {
    pub(super) status: StatusAnswer,
    pub(super) environment: Result<EnvironmentAnswer>,
    config: Result<ConfigAnswer>,
}

impl Daemon {
    /// Queries the running daemon; does not start one. `None`: no daemon is running.
    pub(super) async fn ask(caller: &Caller) -> Result<Option<Self>> {
        let Some(mut client) = reachable(caller).await? else { return Ok(None) };
        let status = ask(&mut client, "/v1/status", STATUS_LIMIT).await?;
        let config = ask(&mut client, "/v1/config", STATUS_LIMIT).await;
        let environment = ask(&mut client, "/v1/environment", ENVIRONMENT_LIMIT).await;
        Ok(Some(Self { status, environment, config }))
    }
}

async fn ask<T: DeserializeOwned>(client: &mut Client, path: &str, limit: Duration) -> Result<T> {
    let answer = tokio::time::timeout(limit, client.get_from_same_daemon(path, &())).await;
    let late = || Error::new(ErrorCode::Timeout, format!("no response to {path} in {} s", limit.as_secs()));
    answer.map_err(|_| late())?.unwrap_or_else(|lost| Err(lost.into()))
}

/// Checks the key of the audit log that a daemon started now would use, if it exists.
fn audit_key(settings: &Settings) -> Option<Check> {
    const NAME: &str = "audit log";
    let log = settings.audit.as_ref()?;
    key_file(log).symlink_metadata().ok()?;
    let wrong = AuditKey::of(log).err()?.message;
    Some(if settings.audit_is_chosen() {
        Check::problem(NAME, wrong, "fix this: no daemon starts with it")
    } else {
        Check::warning(NAME, wrong, "fix this: until then no audit log is written")
    })
}

/// Looks for daemons on the sockets that other shells of this user choose: they remember other inputs
/// and output, and write the same log.
pub(super) fn others(paths: &Paths, sockets: Vec<PathBuf>) -> Vec<Check> {
    let runs = |socket: &PathBuf| matches!(start::connect(&paths.on(socket.clone())), Ok(Some(_)));
    let warned = sockets.into_iter().filter(runs).map(|socket| {
        let (own, other) = (paths.socket.display(), socket.display());
        Check::warning(
            NAME,
            format!("another daemon of yours runs on {other}; this shell uses {own}"),
            format!(
                "set XDG_RUNTIME_DIR, or MUXTAP_SOCKET, to the same value in all shells; `MUXTAP_SOCKET={other} muxtap \
                 stop` stops the other one"
            ),
        )
    });
    warned.collect()
}

/// Checks whether the daemon responds, and whether its environment matches the current one.
pub(super) fn checks(
    caller: &Caller,
    daemon: Result<&Option<Daemon>, &Error>,
    settings: Result<&Settings, &Error>,
) -> Vec<Check> {
    let daemon = match daemon {
        Ok(Some(daemon)) => daemon,
        Ok(None) => {
            let mut checks = vec![Check::ok(NAME, "not running; the first command starts it")];
            checks.extend(settings.ok().and_then(audit_key));
            let refused = settings.ok().and_then(|settings| check_ports(settings).err());
            let fix = "fix this: no daemon starts with it";
            checks.extend(refused.map(|error| Check::problem("http", error.message, fix)));
            return checks;
        }
        Err(error) => return vec![unanswered(caller, error)],
    };
    let mut checks = vec![answers(daemon)];
    checks.extend(daemon.status.warnings.iter().map(warning));
    match &daemon.environment {
        Ok(there) => {
            checks.extend(there.files.iter().filter_map(changed));
            checks.extend(settings.ok().and_then(|settings| other_file(settings, &there.files)));
            checks.extend(other_sockets(caller, there));
        }
        Err(error) => checks.push(unanswered(caller, error)),
    }
    if let (Ok(settings), Ok(config)) = (settings, &daemon.config) {
        checks.extend(other_settings(&settings.answer(), config));
    }
    checks
}

fn unanswered(caller: &Caller, error: &Error) -> Check {
    if error.code == ErrorCode::Timeout {
        return Check::problem(
            NAME,
            &error.message,
            format!("see {}, then kill the process", caller.paths.log.display()),
        );
    }
    Check::problem(NAME, &error.message, "muxtap stop; if that does not help, see its log")
}

fn answers(Daemon { status, environment, .. }: &Daemon) -> Check {
    let mut message = format!("muxtap {}, process {}", status.version, status.pid);
    if let Ok(there) = environment {
        message += &there.path.as_ref().map_or_else(|| ", no PATH".into(), |path| format!(", PATH={path}"));
        message += &there.tmux_tmpdir.as_ref().map_or_else(String::new, |dir| format!(", TMUX_TMPDIR={dir}"));
    }
    if status.version == env!("CARGO_PKG_VERSION") {
        Check::ok(NAME, message)
    } else {
        Check::warning(NAME, message, format!("this is {}: muxtap stop", env!("CARGO_PKG_VERSION")))
    }
}

/// Converts a warning of the daemon into a check.
fn warning(message: &String) -> Check {
    Check::warning(NAME, message, "the daemon continues; what is missing returns when resources are available again")
}

/// Checks a file that the daemon read, or looked for, at its start.
fn changed(file: &ConfigFile) -> Option<Check> {
    let ConfigFile { path, read, changed } = file;
    let message = match (changed, read) {
        (false, _) => return None,
        (true, true) => format!("{path} has changed since the daemon read it"),
        (true, false) => format!("{path} was created after the daemon's start and has not been read"),
    };
    Some(Check::warning("config", message, RESTART))
}

/// Checks whether the daemon has read this shell's configuration file.
fn other_file(settings: &Settings, known: &[ConfigFile]) -> Option<Check> {
    let file = settings.answer().file?;
    if known.iter().any(|known| known.path == file) {
        return None;
    }
    let read: Vec<_> = known.iter().filter(|file| file.read).map(|file| file.path.as_str()).collect();
    let read = if read.is_empty() { "none".to_owned() } else { read.join(", ") };
    Some(Check::warning("config", format!("the daemon has not read {file}; files it has read: {read}"), RESTART))
}

/// Checks whether a name of a tmux server means the same to the daemon as to this shell.
fn other_sockets(caller: &Caller, there: &EnvironmentAnswer) -> Option<Check> {
    let here = caller.sockets.as_ref()?.display().to_string();
    let theirs = there.socket_dir.as_ref().filter(|theirs| **theirs != here)?;
    let by = there
        .tmux_tmpdir
        .as_ref()
        .map_or_else(|| "it has no TMUX_TMPDIR".into(), |dir| format!("its TMUX_TMPDIR is {dir}"));
    Some(Check::warning(
        "tmux sockets",
        format!("the daemon looks for servers by name in {theirs} ({by}), this shell in {here}"),
        "commands use this shell's; agents and programs over HTTP that give a name or nothing use the daemon's: \
         muxtap stop, and the next command starts it with the TMUX_TMPDIR of its shell",
    ))
}

/// Checks whether the daemon has the settings that variables of this shell give.
fn other_settings(here: &ConfigAnswer, there: &ConfigAnswer) -> Vec<Check> {
    let of_daemon = |key: &str| there.settings.iter().find(|setting| setting.key == key);
    // The program is compared by its file.
    let given = here.settings.iter().filter(|setting| setting.source.starts_with('$') && setting.key != "tmux");
    let differ = given.filter_map(|here| {
        let there = of_daemon(&here.key).filter(|there| there.value != here.value)?;
        let Setting { value, source, .. } = there;
        let variable = here.source.trim_start_matches('$');
        Some(Check::warning(
            "config",
            format!("{variable} is {} here; the daemon has {} = {value} ({source})", here.value, here.key),
            "muxtap stop: the next command starts a daemon with the variables of its shell",
        ))
    });
    differ.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_daemon_of_another_shell_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let [own, other, stale] = ["own", "other", "stale"].map(|name| dir.path().join(name));
        let listener = std::os::unix::net::UnixListener::bind(&other).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
        let paths = Paths::in_dir(&own);
        let checks = others(&paths, vec![other.clone(), stale, dir.path().join("none")]);
        let [check] = checks.as_slice() else { panic!("{checks:?}") };
        assert!(check.message.contains(other.to_str().unwrap()), "{check:?}");
        assert!(check.fix.as_ref().unwrap().contains("XDG_RUNTIME_DIR"), "{check:?}");
        drop(listener);
        assert!(others(&paths, vec![other]).is_empty());
    }

    fn config(settings: &[(&str, &str, &str)]) -> ConfigAnswer {
        let settings: Vec<_> = settings
            .iter()
            .map(|(key, value, source)| json!({ "key": key, "value": value, "source": source }))
            .collect();
        serde_json::from_value(json!({ "settings": settings })).unwrap()
    }

    #[test]
    fn variables_that_the_daemon_does_not_have_are_named() {
        let here = config(&[
            ("ring_bytes", "4M", "$MUXTAP_RING_BYTES"),
            ("log_level", "info", "$MUXTAP_LOG"),
            ("coverage", "hub", "default"),
        ]);
        let there = config(&[
            ("ring_bytes", "1M", "default"),
            ("log_level", "info", "default"),
            ("coverage", "used", "default"),
        ]);
        let told: Vec<_> = other_settings(&here, &there).into_iter().map(|check| check.message).collect();
        assert_eq!(told, [r#"MUXTAP_RING_BYTES is "4M" here; the daemon has ring_bytes = "1M" (default)"#]);
        assert!(other_settings(&there, &here).is_empty(), "what no variable gives is not compared");
    }

    #[test]
    fn a_file_that_is_another_one_since_is_named() {
        let file = |read, changed| serde_json::from_value(json!({ "path": "/c", "read": read, "changed": changed }));
        let told = |read, changed| super::changed(&file(read, changed).unwrap()).map(|check| check.message);
        assert_eq!((told(true, false), told(false, false)), (None, None));
        assert!(told(true, true).unwrap().contains("has changed"));
        assert!(told(false, true).unwrap().contains("was created after"));
    }
}
