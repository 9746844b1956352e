//! The daemon that holds its lock, also where its socket was removed or replaced.

use std::fs::File;
#[cfg(target_os = "linux")]
use std::{fs, os::unix::fs::MetadataExt as _};

use muxtap_base::files::{OpenToOthers, open_private};
use rustix::fs::{FlockOperation, OFlags};

use super::LockRecord;
use crate::{
    api::{Error, ErrorCode, Result},
    config::paths::Paths,
};

/// A daemon that holds the right to be it.
#[derive(Debug)]
pub struct Holder {
    /// `None`: it has only begun, or could not write its lock file.
    pid: Option<u32>,
    lock: File,
}

/// Returns the daemon that holds the right to be it. A socket alone does not show that: systemd may
/// listen on it, and would start a daemon for a connection.
pub fn holder(paths: &Paths) -> Option<Holder> {
    // Another user's FIFO in its place must not block, and its content means nothing.
    let mut lock = open_private(&paths.lock_file(), OFlags::RDONLY, OpenToOthers::Kept).ok()?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let pid = LockRecord::read(&mut lock).map(|record| record.pid);
    Some(Holder { pid, lock })
}

impl Holder {
    /// Returns whether the process that listens on the daemon's socket, `peer`, is another one.
    pub fn is_cut_off(&self, peer: u32) -> bool {
        self.pid.is_some_and(|pid| pid != peer && self.is_open_in(pid))
    }

    /// Returns whether the daemon has written which process it is: from then on it listens.
    pub fn has_begun(&self) -> bool {
        self.pid.is_some()
    }

    /// Returns the error about a daemon whose socket leads elsewhere.
    pub fn cut_off(&self, paths: &Paths) -> Error {
        let process = self.pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        let message = format!(
            "a muxtap daemon{process} runs, but not on {}: it is exiting, or its socket was removed or replaced; \
             `muxtap stop` stops it",
            paths.socket.display()
        );
        Error::new(ErrorCode::Conflict, message)
    }

    /// Sends the daemon SIGTERM. Error: `CONFLICT` if it cannot be found.
    #[cfg(target_os = "linux")]
    pub fn terminate(&self, paths: &Paths) -> Result<()> {
        use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
        let Some(pid) = self.pid else { return Err(self.not_found(paths)) };
        let Some(raw) = raw_pid(pid) else { return Err(self.not_found(paths)) };
        let sent = pidfd_open(raw, PidfdFlags::empty()).and_then(|process| {
            // By now the number could be another process's; the descriptor's process is the checked one.
            if self.is_open_in(pid) { pidfd_send_signal(&process, Signal::TERM) } else { Err(rustix::io::Errno::SRCH) }
        });
        sent.map_err(|_| self.not_found(paths))
    }

    /// Sends the daemon SIGTERM. Error: `CONFLICT` if it cannot be found.
    #[cfg(not(target_os = "linux"))]
    pub fn terminate(&self, paths: &Paths) -> Result<()> {
        let raw = self.pid.and_then(raw_pid);
        let sent = raw.and_then(|raw| rustix::process::kill_process(raw, rustix::process::Signal::TERM).ok());
        sent.ok_or_else(|| self.not_found(paths))
    }

    fn not_found(&self, paths: &Paths) -> Error {
        let lock = paths.lock_file();
        let process = self.pid.map_or_else(|| "an unknown process".to_owned(), |pid| format!("process {pid}"));
        let message = format!(
            "a muxtap daemon holds {lock}, but {process} cannot be stopped from here and its socket leads elsewhere: \
             find it with `fuser {lock}`, then end it with `kill`",
            lock = lock.display()
        );
        Error::new(ErrorCode::Conflict, message)
    }

    /// Returns whether the process has the lock file open: the file's number for it may be another
    /// container's, or that of a process that came later.
    #[cfg(target_os = "linux")]
    fn is_open_in(&self, pid: u32) -> bool {
        let Ok(own) = self.lock.metadata() else { return false };
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let is_own = |found: fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        open.flatten().any(|entry| fs::metadata(entry.path()).is_ok_and(is_own))
    }

    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self, reason = "on Linux it is used")]
    fn is_open_in(&self, _: u32) -> bool {
        true
    }
}

fn raw_pid(pid: u32) -> Option<rustix::process::Pid> {
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{super::claim, *};

    #[test]
    fn a_daemon_without_its_socket_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::in_dir(dir.path());
        let _claim = claim(&paths, true).unwrap();
        let own = std::process::id();
        let holder = holder(&paths).unwrap();
        assert!(holder.has_begun() && !holder.is_cut_off(own));
        let text = holder.cut_off(&paths).message;
        assert!(text.contains(&format!("process {own}")) && text.contains("muxtap stop"), "{text}");
        if cfg!(target_os = "linux") {
            assert!(holder.is_cut_off(1), "another process listens");
            // A number from another container: who listens may be the daemon.
            let other = Holder { pid: Some(u32::MAX), lock: holder.lock };
            assert!(!other.is_cut_off(1));
            assert!(other.terminate(&paths).unwrap_err().message.contains("fuser"));
        }
    }

    #[test]
    fn a_pipe_in_place_of_the_lock_file_blocks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::in_dir(dir.path());
        let made = Command::new("mkfifo").arg(paths.lock_file()).status().unwrap();
        assert!(made.success());
        assert!(holder(&paths).is_none());
    }
}
