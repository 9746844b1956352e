//! The program of a running server, taken from the server itself.
//!
//! A client of another version than its server may be thrown out ("server exited unexpectedly"): an
//! upgrade replaced the file, the server's came from Nix or a container, or the daemon began with
//! another user's `PATH`. The kernel knows the server's program: `/proc/PID/exe` leads to it, even
//! if the file has been removed since.
//!
//! Only a server of this user is trusted that far: its program is run with this user's rights.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use muxtap_core::protocol::version::Version;

type Descriptor = Arc<std::os::fd::OwnedFd>;

/// The program of the followed server; clones share it.
#[derive(Clone, Debug, Default)]
pub struct OwnProgram(Arc<Mutex<Option<HeldProgram>>>);

#[derive(Clone, Debug)]
struct HeldProgram {
    server: u32,
    /// The program; `None` if it cannot be run from this process, or is not tmux by itself.
    program: Option<ProgramPath>,
}

/// The path of a program, for as long as this value lives.
#[derive(Clone, Debug)]
pub struct ProgramPath {
    pub(super) path: PathBuf,
    pub(super) version: Version,
    _kept: Descriptor,
}

impl OwnProgram {
    /// Returns the server's own program, if this process can run it.
    pub fn get(&self) -> Option<ProgramPath> {
        self.with(|held| held.as_ref().and_then(|held| held.program.clone()))
    }

    /// Returns whether this server's program was looked for.
    pub fn is_known(&self, server: u32) -> bool {
        self.with(|held| held.as_ref().is_some_and(|held| held.server == server))
    }

    /// Records the program found for a server.
    pub fn keep(&self, server: u32, program: Option<ProgramPath>) {
        self.with(|held| *held = Some(HeldProgram { server, program }));
    }

    /// Forgets the program, since no server runs.
    pub fn forget(&self) {
        self.with(Option::take);
    }

    fn with<T>(&self, done: impl FnOnce(&mut Option<HeldProgram>) -> T) -> T {
        done(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A program that was found by its process, and not run yet.
pub struct FoundProgram {
    /// A path that leads to exactly this program.
    pub path: PathBuf,
    descriptor: Descriptor,
}

impl FoundProgram {
    /// Returns the program that process `server` runs; `None` if the system does not report it.
    #[cfg(target_os = "linux")]
    pub fn of(server: u32) -> Option<Self> {
        use std::os::fd::AsRawFd as _;

        use rustix::fs::{Mode, OFlags};
        let link = format!("/proc/{server}/exe");
        let descriptor = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // Not by the process: its number may belong to another one when the program is run.
        let path = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd()).into();
        Some(Self { path, descriptor: Arc::new(descriptor) })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn of(_: u32) -> Option<Self> {
        None
    }

    /// Returns the program if `-V` printed this. A loader that was started with tmux as its
    /// argument prints something else.
    pub fn that_printed(self, printed: &[u8]) -> Option<ProgramPath> {
        let version = printed.starts_with(b"tmux ").then(|| Version::parse(printed).ok()).flatten()?;
        Some(ProgramPath { path: self.path, version, _kept: self.descriptor })
    }
}

/// Returns the file that a process runs, for messages.
pub fn file_of(server: u32) -> Option<PathBuf> {
    std::fs::read_link(Path::new("/proc").join(server.to_string()).join("exe")).ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_process_and_stays_usable_without_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sleeper");
        std::fs::copy("/bin/sleep", &file).unwrap();
        let mut child = std::process::Command::new(&file).arg("60").spawn().unwrap();
        let found = FoundProgram::of(child.id()).unwrap();
        assert_eq!(file_of(child.id()), Some(file.clone()));
        std::fs::remove_file(&file).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let ran = std::process::Command::new(&found.path).arg("0").status().unwrap();
        assert!(ran.success());
        assert!(FoundProgram::of(u32::MAX).is_none());
        assert!(found.that_printed(b"sleep (GNU coreutils) 9.1\n").is_none());
        let own = OwnProgram::default();
        own.keep(7, FoundProgram::of(std::process::id()).unwrap().that_printed(b"tmux 3.7c\n"));
        assert!(own.is_known(7) && !own.is_known(8));
        assert_eq!(own.get().map(|program| program.version), Version::parse(b"3.7c").ok());
        own.forget();
        assert!(own.get().is_none() && !own.is_known(7));
    }
}
