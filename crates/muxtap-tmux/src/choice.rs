//! The choice of the tmux server, made as tmux makes it (`tmux.c`: `-S`, `-L`, `$TMUX`,
//! `TMUX_TMPDIR`).

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use muxtap_api::{Error, Result};

use crate::{Address, same_socket};

/// A caller's choice of the tmux server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerChoice {
    /// The socket's path (`-S`); wins over the name.
    pub path: Option<OsString>,
    /// The server's name (`-L`).
    pub name: Option<OsString>,
}

/// A caller's environment; a value, so that tests can supply their own.
pub struct Environment<'a> {
    /// Looks up a variable; `None` if it is not set.
    pub var: &'a dyn Fn(&str) -> Option<OsString>,
    /// The caller's user ID; tmux names its socket directory `tmux-UID`.
    pub uid: u32,
}

impl Environment<'_> {
    fn set(&self, name: &str) -> Option<OsString> {
        (self.var)(name).filter(|value| !value.is_empty())
    }

    /// Returns the socket of the server whose pane the caller runs in: `$TMUX` up to its first
    /// comma.
    fn own_socket(&self) -> Option<PathBuf> {
        let tmux = self.set("TMUX")?;
        let path = tmux.as_bytes().split(|&byte| byte == b',').next().filter(|path| !path.is_empty())?;
        Some(PathBuf::from(OsStr::from_bytes(path)))
    }

    /// Returns the directory in which tmux keeps the sockets that have names.
    pub fn socket_dir(&self) -> Result<PathBuf> {
        let bases = [self.set("TMUX_TMPDIR").map(PathBuf::from), Some(PathBuf::from("/tmp"))];
        // tmux takes the first directory that exists, with its links resolved.
        let base = bases.into_iter().flatten().find_map(|base| fs::canonicalize(base).ok());
        let none = || Error::invalid("no directory for tmux's sockets: neither $TMUX_TMPDIR nor /tmp exists");
        let base = base.ok_or_else(none)?;
        Ok(base.join(format!("tmux-{}", self.uid)))
    }

    /// Returns the absolute path of the socket that `choice` means for this caller. Error:
    /// `INVALID_ARGUMENT`.
    pub fn resolve(&self, choice: &ServerChoice) -> Result<PathBuf> {
        let path = match choice {
            ServerChoice { path: Some(path), .. } if path.is_empty() => {
                return Err(Error::invalid("-S requires the path of a tmux socket, got an empty string"));
            }
            ServerChoice { path: Some(path), .. } => PathBuf::from(path),
            // `HOST/NAME`: a server on another host.
            ServerChoice { path: None, name: Some(name) } if is_address(name) => return Ok(name.into()),
            ServerChoice { path: None, name: Some(name) } => self.socket_dir()?.join(name),
            ServerChoice { path: None, name: None } => match self.own_socket() {
                Some(path) => path,
                None => self.socket_dir()?.join("default"),
            },
        };
        std::path::absolute(&path).map_err(|error| Error::invalid(format!("tmux socket {}: {error}", path.display())))
    }

    /// Returns the socket of the server whose pane the caller runs in, and that pane.
    pub fn runs_in(&self) -> Option<(String, String)> {
        let socket = std::path::absolute(self.own_socket()?).ok()?;
        Some((socket.to_str()?.to_owned(), self.set("TMUX_PANE")?.into_string().ok()?))
    }

    /// Returns the caller's pane if it belongs to the server at `socket`.
    pub fn own_pane(&self, socket: &Path) -> Option<String> {
        let own = std::path::absolute(self.own_socket()?).ok()?;
        if !same_socket(&own, socket) {
            return None;
        }
        self.set("TMUX_PANE")?.into_string().ok()
    }
}

/// Returns whether a name is the address of a server on another host.
fn is_address(name: &OsStr) -> bool {
    matches!(Address::parse(Path::new(name)), Ok(Address::Elsewhere(..)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn with<T>(vars: &[(&str, &str)], ask: impl FnOnce(&Environment<'_>) -> T) -> T {
        let vars: HashMap<_, _> = vars.iter().map(|&(name, value)| (name.to_owned(), OsString::from(value))).collect();
        ask(&Environment { var: &|name| vars.get(name).cloned(), uid: 42 })
    }

    fn choice(path: Option<&str>, name: Option<&str>) -> ServerChoice {
        ServerChoice { path: path.map(OsString::from), name: name.map(OsString::from) }
    }

    fn resolve(vars: &[(&str, &str)], path: Option<&str>, name: Option<&str>) -> PathBuf {
        with(vars, |environment| environment.resolve(&choice(path, name)).unwrap())
    }

    fn tmp() -> PathBuf {
        fs::canonicalize("/tmp").unwrap()
    }

    #[test]
    fn a_path_wins_over_a_name_and_both_over_the_environment() {
        let inside = [("TMUX", "/tmp/tmux-42/here,123,0")];
        assert_eq!(resolve(&inside, Some("/x/s"), Some("name")), Path::new("/x/s"));
        assert_eq!(resolve(&inside, None, Some("name")), tmp().join("tmux-42/name"));
        assert_eq!(resolve(&inside, None, None), Path::new("/tmp/tmux-42/here"));
        assert_eq!(resolve(&[], None, None), tmp().join("tmux-42/default"));
    }

    #[test]
    fn an_empty_tmux_variable_means_outside() {
        for tmux in ["", ",123,0"] {
            assert_eq!(resolve(&[("TMUX", tmux)], None, None), tmp().join("tmux-42/default"));
        }
    }

    #[test]
    fn a_relative_path_is_made_absolute_here_not_in_the_daemon() {
        assert_eq!(resolve(&[], Some("sub/s"), None), std::env::current_dir().unwrap().join("sub/s"));
    }

    #[test]
    fn tmux_tmpdir_counts_where_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let vars = [("TMUX_TMPDIR", dir.path().to_str().unwrap())];
        assert_eq!(resolve(&vars, None, None), base.join("tmux-42/default"));
        assert_eq!(resolve(&vars, None, Some("a")), base.join("tmux-42/a"));
        assert_eq!(resolve(&[("TMUX_TMPDIR", "/nonexistent")], None, None), tmp().join("tmux-42/default"));
    }

    #[test]
    fn an_empty_path_is_refused() {
        assert!(with(&[], |environment| environment.resolve(&choice(Some(""), None))).is_err());
    }

    #[test]
    fn the_callers_pane_counts_only_on_its_own_server() {
        let inside = [("TMUX", "/tmp/tmux-42/here,123,0"), ("TMUX_PANE", "%7")];
        let pane = |socket: &str| with(&inside, |environment| environment.own_pane(Path::new(socket)));
        assert_eq!(pane("/tmp/tmux-42/here").as_deref(), Some("%7"));
        assert_eq!(pane("/tmp/tmux-42/other"), None);
        assert_eq!(with(&[], |environment| environment.own_pane(Path::new("/x"))), None);
    }

    #[test]
    fn two_spellings_of_one_socket_are_one_server() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, link) = (dir.path().join("s"), dir.path().join("link"));
        fs::write(&socket, "").unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let inside = [("TMUX", link.to_str().unwrap()), ("TMUX_PANE", "%7")];
        assert_eq!(with(&inside, |environment| environment.own_pane(&socket)).as_deref(), Some("%7"));
    }
}
