//! A process that outlives a daemon which is killed, and ends the agents that it leaves.
//!
//! Nothing runs in a daemon that gets SIGKILL. This one reads a pipe of the daemon's, which the kernel closes then, and
//! kills every process that has a mark of that daemon's agents in its environment, whatever started it and wherever it
//! has gone. A signal of the kernel's own at the parent's end (`PR_SET_PDEATHSIG`) would reach the agent alone, and not
//! what that has started.

use std::{
    ffi::OsString,
    io::Read as _,
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitCode, Stdio},
    time::Instant,
};

use super::process::{SWEEP_LIMIT, began, mark_of, sweep_until};

/// The argument that makes the program a guard; what follows is the beginning of the daemon's marks.
const ARGUMENT: &str = "__agent-guard";

/// The guard of this daemon; it works when the daemon has ended.
#[derive(Debug)]
pub(super) struct Guard {
    /// With the end of the pipe that is never written to.
    _process: Child,
}

impl Guard {
    /// Starts the guard of the agents whose marks begin so.
    pub(super) fn start(marks: &str) -> std::io::Result<Self> {
        let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
        let mut command = Command::new(program);
        command.args([ARGUMENT, marks]).env_clear().current_dir("/").process_group(0);
        let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { _process: process })
    }
}

/// Runs as the guard if the arguments ask for it: waits for the daemon's end, and ends what its agents have left.
/// `None`: they ask for something else.
pub fn run_if_guard(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    arguments.next().filter(|first| first == ARGUMENT).map(|_| run(arguments))
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(marks) = arguments.next().and_then(|marks| marks.into_string().ok()).filter(|marks| !marks.is_empty())
    else {
        return ExitCode::FAILURE;
    };
    // Before any agent began.
    let since = began(std::process::id()).unwrap_or(0);
    let (mut input, mut read) = (std::io::stdin().lock(), [0; 64]);
    while !matches!(input.read(&mut read), Ok(0)) {}
    sweep_until(mark_of(&marks).as_bytes(), since, Instant::now() + SWEEP_LIMIT);
    ExitCode::SUCCESS
}
