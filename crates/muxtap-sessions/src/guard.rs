//! A process that ends the agents of a daemon that was killed.
//!
//! SIGKILL leaves a daemon no time to act. The guard reads a pipe of the daemon's, which the kernel
//! closes when the daemon ends. It then kills every process that has a mark of the daemon's agents
//! in its environment, whatever its parent and its group. The kernel's own signal at the parent's
//! end (`PR_SET_PDEATHSIG`) would reach the agent alone, and not the processes that the agent
//! started.

use std::{
    ffi::OsString,
    io::Read as _,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    process::{Command, ExitCode, Stdio},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use super::process::{SWEEP_LIMIT, began, mark_of, sweep_until};

/// The argument that makes the program a guard; the prefix of the daemon's marks follows.
const ARGUMENT: &str = "__agent-guard";

/// The guard of this daemon; it acts when the daemon has ended.
#[derive(Debug)]
pub(super) struct Guard {
    /// The pipe's write end, to which nothing is ever written. `None`: another daemon has it.
    pipe: Mutex<Option<OwnedFd>>,
}

impl Guard {
    /// Starts the guard of the agents whose marks have this prefix.
    pub(super) fn start(marks: &str) -> std::io::Result<Self> {
        let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
        let mut command = Command::new(program);
        command.args([ARGUMENT, marks]).env_clear().current_dir("/").process_group(0);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = process.stdin.take().ok_or_else(|| std::io::Error::other("its pipe is missing"))?;
        Ok(Self::continued(pipe.into()))
    }

    /// Continues with the guard of the daemon that this one replaces.
    pub(super) fn continued(pipe: OwnedFd) -> Self {
        Self { pipe: Mutex::new(Some(pipe)) }
    }

    /// Returns the pipe for another daemon. `None`: another daemon has it already.
    pub(super) fn pipe(&self) -> Option<std::io::Result<OwnedFd>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(OwnedFd::try_clone)
    }

    /// Leaves the guard to the daemon that has the pipe.
    pub(super) fn leave(&self) {
        let pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(pipe);
    }
}

/// Runs as the guard if the arguments say so: waits for the daemon's end, then ends what its agents
/// have left.
///
/// `None`: the arguments are not a guard's.
pub fn run_if_guard(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    arguments.next().filter(|first| first == ARGUMENT).map(|_| run(arguments))
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(marks) = arguments.next().and_then(|marks| marks.into_string().ok()).filter(|marks| !marks.is_empty())
    else {
        return ExitCode::FAILURE;
    };
    // No agent has started yet.
    let since = began(std::process::id()).unwrap_or(0);
    let (mut input, mut read) = (std::io::stdin().lock(), [0; 64]);
    while !matches!(input.read(&mut read), Ok(0)) {}
    sweep_until(mark_of(&marks).as_bytes(), since, Instant::now() + SWEEP_LIMIT);
    ExitCode::SUCCESS
}
