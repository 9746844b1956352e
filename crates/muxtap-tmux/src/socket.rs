//! The file of a followed server's socket, held open so that the server stays reachable without it.
//!
//! A Unix socket is found by the inode of its file. An `O_PATH` descriptor keeps the inode when the
//! file is removed, and `/proc/PID/fd/N` still leads to the server then (N54). It never leads to
//! another server that was started under the same name. So while a server is followed its clients
//! are started with that path: two servers are never mixed up.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// The socket's file of the followed server; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SocketFile(Arc<Mutex<Option<HeldFile>>>);

/// The server behind the socket's name, compared with the followed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// The followed server, or an unknown one.
    Same,
    /// The file is gone.
    Missing,
    /// No process listens on the file, or not yet.
    NotListening,
    /// Another server, with this process id.
    Replaced(u32),
}

#[derive(Debug)]
struct HeldFile {
    server: u32,
    /// Leads to the server while this value lives.
    #[cfg(target_os = "linux")]
    descriptor: Descriptor,
}

type Descriptor = Arc<std::os::fd::OwnedFd>;

/// A path by which clients reach a server, for as long as this value lives.
#[derive(Clone, Debug)]
pub struct SocketPath {
    path: PathBuf,
    /// The descriptor that the path goes through.
    _kept: Option<Descriptor>,
}

impl From<&Path> for SocketPath {
    /// Wraps a path, whatever it leads to.
    fn from(path: &Path) -> Self {
        Self { path: path.to_owned(), _kept: None }
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl SocketFile {
    /// Returns the path on which clients reach the server: one that certainly leads to it, or else
    /// `name`.
    pub fn path(&self, name: &Path) -> SocketPath {
        self.with(|held| held.as_ref().map(HeldFile::path)).unwrap_or_else(|| name.into())
    }

    /// Keeps the file `name` open, if `server` listens on it. Otherwise an already held file of
    /// that server stays.
    pub fn hold(&self, name: &Path, server: u32) {
        if self.with(|held| held.as_ref().is_some_and(|held| held.server == server && held.is(name))) {
            return;
        }
        let found = HeldFile::find(name, server);
        self.with(|held| {
            if found.is_some() || held.as_ref().is_some_and(|held| held.server != server) {
                *held = found;
            }
        });
    }

    /// Releases a file that no longer leads to a server, or that `name` no longer leads to.
    pub fn review(&self, name: &Path) {
        let Some(server) = self.with(|held| held.as_ref().map(|held| held.server)) else { return };
        match self.check(name) {
            SocketState::Replaced(_) => self.release(),
            SocketState::Same => self.hold(name, server),
            SocketState::Missing | SocketState::NotListening => {}
        }
        // The server may have gone, with its file left behind or not.
        if listener(self.path(name).as_ref()) == Err(rustix::io::Errno::CONNREFUSED) {
            self.release();
        }
    }

    /// Returns whether `name` is the file that is held; if none is held, whether `name` exists.
    pub fn is_named(&self, name: &Path) -> bool {
        self.with(|held| held.as_ref().map_or_else(|| name.exists(), |held| held.is(name)))
    }

    /// Releases the file.
    pub fn release(&self) {
        self.with(Option::take);
    }

    /// Returns which server `name` leads to now. A new file of the followed server is held from
    /// then on: the old one leads nowhere any more.
    pub fn check(&self, name: &Path) -> SocketState {
        let held = self.with(|held| held.as_ref().map(|held| (held.server, held.is(name))));
        let Some((server, false)) = held else { return SocketState::Same };
        match listener(name) {
            Ok(Some(pid)) if pid != server => SocketState::Replaced(pid),
            Ok(Some(_)) => {
                self.hold(name, server);
                SocketState::Same
            }
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => SocketState::Missing,
            Err(rustix::io::Errno::CONNREFUSED) => SocketState::NotListening,
            // A stopped server may not accept a connection for a check.
            Ok(_) | Err(_) => SocketState::Same,
        }
    }

    fn with<T>(&self, done: impl FnOnce(&mut Option<HeldFile>) -> T) -> T {
        done(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(target_os = "linux")]
impl HeldFile {
    fn find(name: &Path, server: u32) -> Option<Self> {
        use rustix::fs::{Mode, OFlags};
        let descriptor = rustix::fs::open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let held = Self { server, descriptor: Arc::new(descriptor) };
        // By that path: if /proc cannot be used the name has to serve.
        (listener(held.path().as_ref()) == Ok(Some(server))).then_some(held)
    }

    /// Returns whether `name` leads to this very file.
    fn is(&self, name: &Path) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let named = std::fs::metadata(name).map(|found| (found.dev(), found.ino()));
        let own = rustix::fs::fstat(&self.descriptor).map(|found| (found.st_dev, found.st_ino));
        named.is_ok_and(|named| own == Ok(named))
    }

    fn path(&self) -> SocketPath {
        use std::os::fd::AsRawFd as _;
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd()).into();
        SocketPath { path, _kept: Some(self.descriptor.clone()) }
    }
}

#[cfg(not(target_os = "linux"))]
impl HeldFile {
    fn find(_: &Path, _: u32) -> Option<Self> {
        None
    }

    fn is(&self, _: &Path) -> bool {
        false
    }

    fn path(&self) -> SocketPath {
        Path::new("").into()
    }
}

/// A process that listens on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its process id.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

impl Listener {
    /// Returns whether it is this process's user.
    pub fn is_ours(self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }
}

/// Returns the process that listens on a socket; `None` if no process does or the system does not
/// report it.
pub fn server_of(path: &Path) -> Option<Listener> {
    connect(path).ok().and_then(|socket| credentials(&socket))
}

/// Returns whether a process listens on a socket, even if it is stopped or admits no user.
pub fn listens(path: &Path) -> bool {
    use rustix::io::Errno;
    !matches!(listener(path), Err(Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED))
}

/// Returns the user whose process listens on a socket; `None` if the system does not report it. No
/// byte is sent. Error: why no process listens, or why this process may not connect.
pub fn owner_of(path: &Path) -> rustix::io::Result<Option<u32>> {
    Ok(credentials(&connect(path)?).map(|listener| listener.uid))
}

/// Returns the id of the process that listens on a socket; `None` if the system does not report it.
fn listener(path: &Path) -> rustix::io::Result<Option<u32>> {
    Ok(credentials(&connect(path)?).map(|listener| listener.pid))
}

/// Connects to a socket. Never blocks.
fn connect(path: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn credentials(socket: &std::os::fd::OwnedFd) -> Option<Listener> {
    let found = rustix::net::sockopt::socket_peercred(socket).ok()?;
    let pid = u32::try_from(found.pid.as_raw_nonzero().get()).ok()?;
    Some(Listener { pid, uid: found.uid.as_raw() })
}

#[cfg(not(target_os = "linux"))]
fn credentials(_: &std::os::fd::OwnedFd) -> Option<Listener> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_server_is_reached_without_its_file_and_never_taken_for_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("s");
        let (file, own) = (SocketFile::default(), std::process::id());
        let server = UnixListener::bind(&name).unwrap();
        assert_eq!(file.path(&name).as_ref(), name, "nothing is held yet");
        file.hold(&name, own + 1);
        assert_eq!(file.path(&name).as_ref(), name, "another process listens there");
        file.hold(&name, own);
        let held = file.path(&name);
        assert_ne!(held.as_ref(), name);
        assert_eq!(file.check(&name), SocketState::Same);

        std::fs::remove_file(&name).unwrap();
        assert_eq!(file.check(&name), SocketState::Missing);
        file.review(&name);
        assert_eq!(listener(file.path(&name).as_ref()), Ok(Some(own)), "it is reached without its file");

        // A file on which no process listens is not another server.
        drop(UnixListener::bind(&name).unwrap());
        assert_eq!(file.check(&name), SocketState::NotListening);
        file.review(&name);
        assert_eq!(file.path(&name).as_ref(), held.as_ref());

        drop(server);
        file.review(&name);
        assert_eq!(file.path(&name).as_ref(), name, "the server has gone");
        let other = UnixListener::bind(dir.path().join("other")).unwrap();
        assert_eq!(listener(held.as_ref()), Err(rustix::io::Errno::CONNREFUSED), "it never leads to another one");
        drop(other);
    }

    /// tmux creates its socket again in this way for SIGUSR1.
    #[test]
    fn a_new_file_of_the_same_server_is_held_as_soon_as_it_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("s");
        let (file, own) = (SocketFile::default(), std::process::id());
        let server = UnixListener::bind(&name).unwrap();
        file.hold(&name, own);
        std::fs::remove_file(&name).unwrap();
        drop(server);
        let _server = UnixListener::bind(&name).unwrap();
        assert!(!file.is_named(&name), "it has not been seen yet");
        assert_eq!(file.check(&name), SocketState::Same);
        assert!(file.is_named(&name));
        std::fs::remove_file(&name).unwrap();
        assert_eq!(listener(file.path(&name).as_ref()), Ok(Some(own)), "it is reached without that file too");
    }
}
