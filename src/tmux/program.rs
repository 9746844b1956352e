//! The tmux program: where it is, how it is called, and calls that end by themselves.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::Command;

use crate::{
    api::{Error, Result},
    metrics,
};

/// How long a spawned tmux may take (F32: one was seen to hang for minutes).
pub const SPAWN_LIMIT: Duration = Duration::from_secs(10);

/// Which control clients follow a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoverageMode {
    /// A hub on servers that muxtap started, guests elsewhere.
    #[default]
    Auto,
    /// One client in a session of muxtap's own, into which every window is linked.
    Hub,
    /// One client for each session; nothing is made.
    Sessions,
}

/// The tmux program and what stands in front of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// `tmux`, or a path.
    pub tmux: PathBuf,
    /// A command in front of it, as `ssh HOST` or `docker exec -i CONTAINER`; empty for a local server.
    pub prefix: Vec<String>,
    /// What starts the control clients of a local server so that they end with this process ([`super::leash`]); empty: they are started as
    /// they are.
    pub leash: Vec<OsString>,
}

/// One tmux server to follow.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// How tmux is called.
    pub program: Program,
    /// Its socket, absolute (with a prefix: a path over there).
    pub socket: PathBuf,
    /// Which control clients follow it.
    pub coverage: CoverageMode,
}

/// What a call that ended printed.
pub struct Printed {
    /// It exited with status 0.
    pub ok: bool,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, lossy, trimmed.
    pub stderr: String,
}

impl ServerSpec {
    /// Whether the server's processes and terminals are this machine's.
    pub fn is_local(&self) -> bool {
        self.program.prefix.is_empty()
    }

    /// `PREFIX… tmux -u -S SOCKET ARGS…`, with its standard streams not yet set.
    ///
    /// `-u`: without UTF-8 replies turn tabs and non-ASCII into `_` (F17). `$TMUX` is removed so that tmux does not take us for
    /// something that runs in one of its panes.
    pub fn command(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Command {
        self.command_behind(Vec::new(), args)
    }

    /// The same for a control client.
    pub fn client(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Command {
        let leash = if self.is_local() { self.program.leash.clone() } else { Vec::new() };
        self.command_behind(leash, args)
    }

    fn command_behind(&self, mut words: Vec<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Command {
        words.extend(self.program.prefix.iter().map(OsString::from));
        words.push(self.program.tmux.clone().into_os_string());
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg("-u").arg("-S").arg(&self.socket).args(args.into_iter().map(Into::into));
        command.env_remove("TMUX").env_remove("TMUX_PANE").kill_on_drop(true);
        command
    }

    /// Runs one tmux command as a process of its own and waits for its end, at most `SPAWN_LIMIT`.
    pub async fn call(&self, args: &[&str]) -> Result<Printed> {
        self.finish(self.command(args), args).await
    }

    /// The same as somebody else would call it: in this directory and, where one is given, with this environment alone.
    pub async fn call_as(
        &self,
        directory: &Path,
        environment: Option<&BTreeMap<OsString, OsString>>,
        args: &[&str],
    ) -> Result<Printed> {
        let mut command = self.command(args);
        command.current_dir(directory);
        if let Some(environment) = environment {
            command.env_clear().envs(environment).env_remove("TMUX").env_remove("TMUX_PANE");
        }
        self.finish(command, args).await
    }

    /// Whether the tmux program is there to be run, as `path` (`PATH`) finds it. With a prefix it is over there, and taken to be.
    pub fn is_installed(&self, path: Option<&OsStr>) -> bool {
        let runs = |file: &Path| {
            std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let tmux = &self.program.tmux;
        if !self.is_local() {
            return true;
        }
        if tmux.components().count() > 1 {
            return runs(tmux);
        }
        path.is_some_and(|path| std::env::split_paths(path).any(|dir| runs(&dir.join(tmux))))
    }

    async fn finish(&self, mut command: Command, args: &[&str]) -> Result<Printed> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        metrics::PROCESS_SPAWNS.increment(1);
        let child = command.spawn().map_err(|error| self.cannot_run(&error))?;
        match tokio::time::timeout(SPAWN_LIMIT, child.wait_with_output()).await {
            Ok(Ok(output)) => Ok(Printed {
                ok: output.status.success(),
                stdout: output.stdout,
                stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
            Ok(Err(error)) => Err(self.cannot_run(&error)),
            Err(_) => Err(Error::unavailable(format!(
                "`{} {}` did not end within {} s; is the tmux server on {} stopped or overloaded?",
                self.program.tmux.display(),
                args.join(" "),
                SPAWN_LIMIT.as_secs(),
                self.socket.display()
            ))),
        }
    }

    /// The error for a tmux that cannot be started at all.
    pub fn cannot_run(&self, error: &std::io::Error) -> Error {
        let name = self.program.prefix.first().map_or_else(|| self.program.tmux.display().to_string(), Clone::clone);
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "install tmux 3.2a or later, or name it with --tmux or $MUXTAP_TMUX",
            std::io::ErrorKind::PermissionDenied => "it is not executable; check its permissions",
            _ => "see `muxtap doctor`",
        };
        Error::unavailable(format!("cannot run {name}: {error}; {hint}"))
    }
}
