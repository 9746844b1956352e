//! Examines a tmux program and a server before their first use: what `muxtap doctor` reports.
//!
//! An examination attaches no client, starts no server, and ends by itself.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

use muxtap_api::{Error, ServerProgram, TmuxProgram};
use muxtap_core::protocol::version::Version;
use rustix::fs::Access;

use super::{
    attach::{DEFAULT, no_server, version_of},
    link::NoLink,
    own_program::{self, OwnProgram},
    program::{Program, ServerSpec},
    socket::{self, SocketFile},
};

/// Time limit of each call of an examination (F32).
const EXAMINE_LIMIT: Duration = Duration::from_secs(5);
/// The search path for programs without a `PATH` (confstr(3), `_CS_PATH`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

impl Program {
    /// Returns the program that this process would run, and its version as printed.
    pub async fn examine(&self) -> TmuxProgram {
        let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let program = self.tmux.clone();
        // A folder of PATH may be on a file system that hangs.
        let found = tokio::task::spawn_blocking(move || find_program(&program, &path)).await;
        let file = found.ok().flatten();
        let version = self.limited().version().await;
        let (version, error) = match version {
            Ok(version) => (Some(version.trim_start_matches("tmux ").to_owned()), None),
            Err(error) => (None, Some(error.message)),
        };
        TmuxProgram {
            name: self.tmux.display().to_string(),
            file: file.map(|file| file.display().to_string()),
            version,
            error,
        }
    }

    fn limited(&self) -> Self {
        Self { limit: EXAMINE_LIMIT.min(self.limit), ..self.clone() }
    }
}

impl ServerSpec {
    /// Returns the program that speaks to the server on this socket, and whether the server
    /// understands it; `None` if no server listens on it.
    pub async fn examine(&self) -> Option<ServerProgram> {
        if !socket::listens(&self.socket) {
            return None;
        }
        let spec = Self {
            program: self.program.limited(),
            file: SocketFile::default(),
            own: OwnProgram::default(),
            ..self.clone()
        };
        spec.find_own_program().await;
        let answer = spec.ask_version().await;
        let mut found = spec.spoken_to_by(socket::server_of(&self.socket).map(|server| server.pid));
        match answer {
            Ok(version) => {
                found.version = version;
                found.noticed = spec.noticed().await;
            }
            Err(error) => found.error = Some(spec.explained(error).await.message),
        }
        Some(found)
    }

    /// Returns whether a server on another host runs, without attaching a client. Error: why it
    /// cannot be reached.
    pub async fn look_elsewhere(&self) -> Result<bool, Error> {
        let question = ["list-sessions", ";", "display-message", "-p", DEFAULT];
        let printed = self.ask_first(EXAMINE_LIMIT, &question).await?;
        if printed.ok {
            let old = version_of(&printed.stdout).and_then(|version| self.program.too_old(version));
            return old.map_or(Ok(true), Err);
        }
        match no_server(self, &printed) {
            NoLink::Failed(error) => Err(error),
            NoLink::Absent(error) if error.details.is_some() => Err(error),
            // The version of the program that would start a server.
            NoLink::Absent(_) | NoLink::Empty(..) => self.program.version().await.map(|_| false),
        }
    }

    /// Returns the program that speaks to this server, whose process is `pid`.
    pub fn spoken_to_by(&self, pid: Option<u32>) -> ServerProgram {
        let own = self.own.get();
        let file = pid.filter(|_| own.is_some()).and_then(own_program::file_of);
        ServerProgram {
            socket: self.socket.display().to_string(),
            pid,
            version: own.as_ref().map(|own| own.version.to_string()),
            program: file.unwrap_or_else(|| self.program.tmux.clone()).display().to_string(),
            own: own.is_some(),
            noticed: Vec::new(),
            error: None,
        }
    }

    /// Queries the server for its version, as any client would.
    async fn ask_version(&self) -> Result<Option<String>, Error> {
        let asked = self.call_within(EXAMINE_LIMIT, &["-N", "display-message", "-p", "#{version}"]).await?;
        if !asked.ok {
            let said = if asked.stderr.is_empty() { "nothing" } else { &asked.stderr };
            return Err(Error::unavailable(format!(
                "the tmux server on {} rejects clients of {}, which reports {said:?}",
                self.socket.display(),
                self.spoken_to_by(None).program,
            )));
        }
        Ok(Version::parse(asked.stdout.trim_ascii()).ok().map(|version| version.to_string()))
    }
}

/// Finds a program as `execvp` does; a file that cannot be executed only if there is no better one.
fn find_program(program: &Path, path: &OsStr) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let runs = |file: &PathBuf| rustix::fs::access(file, Access::EXEC_OK).is_ok();
    let files: Vec<_> = env::split_paths(path).map(|dir| dir.join(program)).filter(|file| file.is_file()).collect();
    files.iter().find(|file| runs(file)).or_else(|| files.first()).cloned()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

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
        assert_eq!(find_program(Path::new("tmux"), &path), Some(second.join("tmux")));
        assert_eq!(find_program(Path::new("tmux"), first.as_os_str()), Some(first.join("tmux")));
        assert_eq!(find_program(Path::new("other"), &path), None);
        assert_eq!(find_program(&first.join("tmux"), OsStr::new("")), Some(first.join("tmux")));
    }

    #[tokio::test]
    async fn a_program_says_its_version_or_what_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let examine = async |name: &str, script: &str, mode| {
            let tmux = dir.path().join(name);
            fs::write(&tmux, script).unwrap();
            fs::set_permissions(&tmux, fs::Permissions::from_mode(mode)).unwrap();
            Program { tmux, ..Program::default() }.examine().await
        };
        let good = examine("good", "#!/bin/sh\necho tmux 3.3a\n", 0o755).await;
        assert_eq!((good.version.as_deref(), good.error), (Some("3.3a"), None));
        for (name, script, mode, says) in [
            ("old", "#!/bin/sh\necho tmux 3.2\n", 0o755, "3.2a or later"),
            ("other", "#!/bin/sh\necho hello; exit 1\n", 0o755, "failed"),
            ("plain", "#!/bin/sh\n", 0o644, "not executable"),
        ] {
            let wrong = examine(name, script, mode).await;
            assert!(wrong.version.is_none() && wrong.error.as_ref().unwrap().contains(says), "{wrong:?}");
        }
        let none = Program { tmux: "muxtap-knows-no-such-tmux".into(), ..Program::default() }.examine().await;
        assert!(none.file.is_none() && none.error.unwrap().contains("install tmux"));
    }
}
