//! The paths of the daemon's socket, log and other files.
//!
//! The socket is `$MUXTAP_SOCKET`, else `$XDG_RUNTIME_DIR/muxtap/muxtap.sock`, else
//! `/tmp/muxtap-UID/muxtap.sock`. A process that can write to the socket can type into every
//! terminal of the user, so its directory belongs to the user alone.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use muxtap_base::files::{self, FileError, OpenToOthers};
use rustix::fs::OFlags;

use crate::api::{Error, ErrorCode, Result};

/// The daemon's socket and log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The Unix socket on which the daemon listens; absolute.
    pub socket: PathBuf,
    /// The log file; absolute.
    pub log: PathBuf,
    /// Whether `MUXTAP_SOCKET` chose the socket's place: the user decides about its directory,
    /// within limits.
    is_custom: bool,
}

impl Paths {
    /// Returns the paths for this process's user and environment.
    pub fn from_env() -> Result<Self> {
        Self::resolve(&|name| std::env::var_os(name), uid())
    }

    fn resolve(env: &dyn Fn(&str) -> Option<OsString>, uid: u32) -> Result<Self> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(socket) = set("MUXTAP_SOCKET") {
            let socket = std::path::absolute(&socket)
                .map_err(|error| Error::invalid(format!("MUXTAP_SOCKET={}: {error}", socket.display())))?;
            let log = with_suffix(&socket, ".log");
            return Ok(Self { socket, log, is_custom: true });
        }
        let dir = match set("XDG_RUNTIME_DIR").filter(|dir| dir.is_absolute() && belongs_to(dir, uid)) {
            Some(runtime) => runtime.join("muxtap"),
            // `su` and containers leave a runtime directory in the environment that is missing or
            // another user's.
            None => PathBuf::from(format!("/tmp/muxtap-{uid}")),
        };
        let socket = dir.join("muxtap.sock");
        let state = set("XDG_STATE_HOME")
            .filter(|dir| dir.is_absolute())
            .or_else(|| set("HOME").filter(|home| home.is_absolute()).map(|home| home.join(".local/state")));
        let log = state.map_or_else(|| with_suffix(&socket, ".log"), |state| state.join("muxtap/muxtap.log"));
        Ok(Self { socket, log, is_custom: false })
    }

    /// Returns the paths of a daemon with all its files in this directory, as with `MUXTAP_SOCKET`.
    pub(crate) fn in_dir(dir: &Path) -> Self {
        let socket = dir.join("muxtap.sock");
        Self { log: with_suffix(&socket, ".log"), socket, is_custom: true }
    }

    /// Returns the sockets that other shells of this user choose: those with a runtime directory, and
    /// those without. None if `MUXTAP_SOCKET` is set: then another daemon is intended.
    pub(crate) fn of_other_shells(&self) -> Vec<PathBuf> {
        if self.is_custom {
            return Vec::new();
        }
        let uid = uid();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).into_iter();
        let runtime = runtime.chain([PathBuf::from(format!("/run/user/{uid}"))]);
        let runtime = runtime.filter(|dir| dir.is_absolute() && belongs_to(dir, uid)).map(|dir| dir.join("muxtap"));
        let sockets = runtime.chain([PathBuf::from(format!("/tmp/muxtap-{uid}"))]).map(|dir| dir.join("muxtap.sock"));
        let mut others: Vec<PathBuf> = sockets.filter(|socket| *socket != self.socket).collect();
        others.dedup();
        others
    }

    /// Returns the paths of a daemon on another socket of this user.
    pub(crate) fn on(&self, socket: PathBuf) -> Self {
        Self { socket, ..self.clone() }
    }

    /// Returns the file whose lock the running daemon holds.
    pub fn lock_file(&self) -> PathBuf {
        with_suffix(&self.socket, ".lock")
    }

    /// Returns the file whose lock is held while the daemon is started or stopped.
    pub fn start_file(&self) -> PathBuf {
        with_suffix(&self.socket, ".start")
    }

    /// Returns the directory of the startup files of shells that muxtap starts.
    pub fn shell_dir(&self) -> PathBuf {
        with_suffix(&self.socket, ".shell")
    }

    /// Returns the file of the token for callers over TCP.
    pub fn token_file(&self) -> PathBuf {
        self.state_file("token")
    }

    /// Returns the audit log's file.
    pub fn audit_file(&self) -> PathBuf {
        self.state_file("audit.jsonl")
    }

    /// Returns the folder of generated certificates.
    pub fn tls_dir(&self) -> PathBuf {
        self.state_file("tls")
    }

    /// Returns the folder of snapshots of sessions.
    pub fn snapshots_dir(&self) -> PathBuf {
        self.state_file("snapshots")
    }

    /// Returns the folder of layouts of windows.
    pub fn layouts_dir(&self) -> PathBuf {
        self.state_file("layouts")
    }

    /// Returns the folder of the results of waits in the background.
    pub fn waits_dir(&self) -> PathBuf {
        self.state_file("waits")
    }

    /// Returns the journal of the rules that stand.
    pub fn when_journal_file(&self) -> PathBuf {
        self.state_file("when.jsonl")
    }

    /// Returns the file of the rules that were added to those of the configuration.
    pub fn when_added_file(&self) -> PathBuf {
        self.state_file("when.json")
    }

    /// Returns the default directory of recordings.
    pub fn recordings_dir(&self) -> PathBuf {
        self.state_file("recordings")
    }

    /// Returns the folder of devices: their identity, workspaces, sessions and audit log.
    pub fn devices_dir(&self) -> PathBuf {
        self.state_file("devices")
    }

    /// Returns the path of the file that leads a browser to the page.
    pub fn page_link_file(&self) -> PathBuf {
        self.state_file("page-open.html")
    }

    /// Returns the path of the file with the pages' cookies.
    pub fn page_sessions_file(&self) -> PathBuf {
        self.state_file("page-sessions.json")
    }

    /// Returns the path of a file that outlives the daemon, beside the log.
    fn state_file(&self, name: &str) -> PathBuf {
        if self.log == with_suffix(&self.socket, ".log") {
            return with_suffix(&self.socket, &format!(".{name}"));
        }
        self.log.with_file_name(name)
    }

    /// Returns the directory of the socket.
    pub fn dir(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }

    /// Creates the socket's directory if it is missing and checks that it is safe. Error:
    /// `CONFLICT`, with the way out.
    pub fn prepare(&self) -> Result<()> {
        let dir = self.dir();
        if let Err(error) = fs::symlink_metadata(dir) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(refuse(dir, &error.to_string()));
            }
            let made = DirBuilder::new().recursive(self.is_custom).mode(0o700).create(dir);
            if let Err(error) = made
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(refuse(dir, &format!("cannot be created: {error}")));
            }
        }
        self.check()
    }

    /// Checks the socket's directory and changes nothing. Error: `CONFLICT`, with the way out;
    /// `NOT_FOUND` if it is missing.
    pub fn check(&self) -> Result<()> {
        let dir = self.dir();
        // A directory that the user named may be reached by a link (`/tmp` is one on macOS);
        // muxtap's own may not.
        let found = if self.is_custom { fs::metadata(dir) } else { fs::symlink_metadata(dir) };
        let found = found.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::not_found(format!("{} does not exist yet", dir.display())),
            _ => refuse(dir, &error.to_string()),
        })?;
        if found.is_symlink() {
            return Err(refuse(dir, "is a symbolic link: remove it"));
        }
        if !found.is_dir() {
            return Err(refuse(dir, "is not a directory: move it away"));
        }
        let (mode, owner) = (found.mode() & 0o7777, found.uid());
        if self.is_custom {
            let sticky = mode & 0o1000 != 0;
            let link = fs::symlink_metadata(dir).map_or(owner, |link| link.uid());
            if link != uid() && link != 0 {
                return Err(refuse(
                    dir,
                    &format!("is a symbolic link of user {link}: choose another place for MUXTAP_SOCKET"),
                ));
            }
            if owner != uid() && owner != 0 {
                return Err(refuse(dir, &format!("belongs to user {owner}: choose another place for MUXTAP_SOCKET")));
            }
            if mode & 0o022 != 0 && !sticky {
                return Err(refuse(dir, &format!("can be written by others (mode {mode:04o}): chmod go-w it")));
            }
            return Ok(());
        }
        if owner != uid() {
            return Err(refuse(dir, &format!("belongs to user {owner}: remove it, or set MUXTAP_SOCKET")));
        }
        if mode & 0o077 != 0 {
            return Err(refuse(dir, &format!("is open to others (mode {mode:04o}): chmod 700 it")));
        }
        Ok(())
    }

    /// Opens the log for appending. Creates it and its directories, readable by the user alone, if
    /// they are missing. Error: `UNAUTHORIZED` if another user put a file, or what looks like one,
    /// in its place; `CONFLICT` if it cannot be written.
    pub fn open_log(&self) -> Result<File> {
        let made = self.log.parent().map_or(Ok(()), files::make_private_folder);
        let access = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        made.and_then(|()| files::open_private(&self.log, access, OpenToOthers::Closed)).map_err(|error| match error {
            FileError::Foreign(why) => {
                Error::new(ErrorCode::Unauthorized, format!("the log {} {why}", self.log.display()))
            }
            error => Error::new(ErrorCode::Conflict, format!("cannot write the log {}: {error}", self.log.display())),
        })
    }
}

/// Returns the user that this process runs as.
pub fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn belongs_to(dir: &Path, uid: u32) -> bool {
    fs::metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == uid)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn refuse(dir: &Path, why: &str) -> Error {
    Error::new(ErrorCode::Conflict, format!("the directory of muxtap's socket, {}, {why}", dir.display()))
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn other_shells_have_other_sockets_unless_one_is_chosen() {
        let own = PathBuf::from(format!("/tmp/muxtap-{}/muxtap.sock", uid()));
        let paths = Paths { socket: own.clone(), log: PathBuf::new(), is_custom: false };
        assert!(!paths.of_other_shells().contains(&own));
        let elsewhere = paths.on("/elsewhere/muxtap.sock".into());
        assert!(elsewhere.of_other_shells().contains(&own));
        assert!(Paths { is_custom: true, ..elsewhere }.of_other_shells().is_empty());
    }

    fn resolve(vars: &[(&str, &str)]) -> Paths {
        let vars: HashMap<_, _> = vars.iter().map(|&(name, value)| (name.to_owned(), OsString::from(value))).collect();
        Paths::resolve(&|name| vars.get(name).cloned(), uid()).unwrap()
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn muxtap_socket_wins_and_takes_the_log_with_it() {
        let paths =
            resolve(&[("MUXTAP_SOCKET", "/x/mine"), ("XDG_RUNTIME_DIR", "/run/user/1"), ("HOME", "/home/someone")]);
        assert_eq!(paths.socket, Path::new("/x/mine"));
        assert_eq!(paths.log, Path::new("/x/mine.log"));
        assert_eq!(paths.lock_file(), Path::new("/x/mine.lock"));
    }

    #[test]
    fn the_runtime_directory_is_used_when_it_is_the_users() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = dir.path().to_str().unwrap();
        let paths = resolve(&[("XDG_RUNTIME_DIR", runtime), ("HOME", "/home/someone")]);
        assert_eq!(paths.socket, dir.path().join("muxtap/muxtap.sock"));
        assert_eq!(paths.log, Path::new("/home/someone/.local/state/muxtap/muxtap.log"));
    }

    #[test]
    fn a_missing_or_relative_runtime_directory_is_passed_over() {
        for runtime in ["/nonexistent/run", "relative", ""] {
            let paths = resolve(&[("XDG_RUNTIME_DIR", runtime), ("XDG_STATE_HOME", "/state")]);
            assert_eq!(paths.socket, PathBuf::from(format!("/tmp/muxtap-{}/muxtap.sock", uid())));
            assert_eq!(paths.log, Path::new("/state/muxtap/muxtap.log"));
        }
    }

    #[test]
    fn without_a_home_the_log_stands_next_to_the_socket() {
        let paths = resolve(&[]);
        assert_eq!(paths.log, PathBuf::from(format!("/tmp/muxtap-{}/muxtap.sock.log", uid())));
    }

    #[test]
    fn the_directory_is_made_private() {
        let dir = tempfile::tempdir().unwrap();
        let paths = resolve(&[("XDG_RUNTIME_DIR", dir.path().to_str().unwrap())]);
        assert_eq!(paths.check().unwrap_err().code, ErrorCode::NotFound);
        paths.prepare().unwrap();
        assert_eq!(fs::metadata(paths.dir()).unwrap().mode() & 0o777, 0o700);
        paths.prepare().unwrap();
    }

    #[test]
    fn a_directory_open_to_others_or_reached_by_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let paths = resolve(&[("XDG_RUNTIME_DIR", dir.path().to_str().unwrap())]);
        paths.prepare().unwrap();
        chmod(paths.dir(), 0o750);
        let error = paths.prepare().unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict);
        assert!(error.message.contains("chmod 700"), "{error}");

        fs::remove_dir(paths.dir()).unwrap();
        std::os::unix::fs::symlink(dir.path(), paths.dir()).unwrap();
        assert!(paths.prepare().unwrap_err().message.contains("symbolic link"));
    }

    #[test]
    fn a_chosen_socket_may_be_in_a_sticky_directory_but_not_a_world_writable_one() {
        let dir = tempfile::tempdir().unwrap();
        let paths = resolve(&[("MUXTAP_SOCKET", dir.path().join("s").to_str().unwrap())]);
        chmod(dir.path(), 0o1777);
        paths.prepare().unwrap();
        chmod(dir.path(), 0o777);
        assert!(paths.prepare().unwrap_err().message.contains("chmod go-w"));
    }

    #[test]
    fn the_log_is_private_and_never_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let paths = resolve(&[("XDG_STATE_HOME", dir.path().join("deep/state").to_str().unwrap())]);
        paths.open_log().unwrap();
        assert_eq!(fs::metadata(&paths.log).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(&paths.log).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &paths.log).unwrap();
        assert!(paths.open_log().is_err());
    }
}
