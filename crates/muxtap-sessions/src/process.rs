//! The agent's process, and everything that it starts.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use muxtap_api::{Error, Result};
use muxtap_base::nonce;
use muxtap_engine::{AGENT_MARK as MARK, handover::Foreign, is_secret};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe,
    process::{Child, Command},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

/// How long an agent has to end by itself before it is killed.
pub(super) const END_GRACE: Duration = Duration::from_millis(500);
/// How long a killed process may take to disappear.
pub(super) const REAP_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait before a process without a program is checked again; below, how often.
const EXEC_PAUSE: Duration = Duration::from_millis(2);
const EXEC_LOOKS: u32 = 100;
/// How long to search for what an agent has left.
pub(super) const SWEEP_LIMIT: Duration = Duration::from_secs(5);
/// The number of last bytes of an agent's stderr that are kept, for the error if it fails to start.
pub(super) const STDERR_BYTES: usize = 4 << 10;

/// A process of an agent.
pub(super) struct Agent {
    process: Process,
    about: StoredProcess,
    stdout: pipe::Receiver,
    /// Its stderr, for another daemon; a task of its own reads it.
    stderr: OwnedFd,
    /// Whether another daemon continues with it.
    is_left: bool,
}

/// The facts about an agent's process that another daemon needs, beside the descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredProcess {
    pid: u32,
    mark: String,
    /// When the agent's process started, as in `/proc`.
    began: u64,
}

/// The descriptors of an agent that another daemon needs.
#[derive(Debug)]
pub(super) struct AgentDescriptors {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// The process.
    pub(super) process: OwnedFd,
}

enum Process {
    Child(Child),
    /// An earlier daemon has started it.
    Foreign(Foreign),
}

/// An agent has ended, with this status, if it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended(Option<ExitStatus>);

impl Process {
    async fn ended(&mut self) -> Ended {
        match self {
            Self::Child(child) => Ended(child.wait().await.ok()),
            Self::Foreign(process) => {
                process.ended().await;
                Ended(None)
            }
        }
    }

    fn kill(&mut self) {
        match self {
            Self::Child(child) => drop(child.start_kill()),
            Self::Foreign(process) => process.kill(),
        }
    }
}

impl Drop for Agent {
    /// Kills the process, unless another daemon continues with it. One that has ended is not affected.
    fn drop(&mut self) {
        if !self.is_left {
            self.process.kill();
        }
    }
}

/// Returns whether an agent must not get this variable of the daemon.
///
/// These are muxtap's own settings and tokens, and its place in tmux.
fn is_private(name: &str) -> bool {
    // The last three are systemd's, for the daemon alone.
    let own = ["TMUX", "TMUX_PANE", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];
    name.starts_with("MUXTAP_") || is_secret(name) || own.contains(&name)
}

impl Agent {
    /// Starts an agent whose mark has the prefix `marks`. Returns it, its stdin, and its stderr.
    ///
    /// Error: `CONFLICT` if it cannot be started.
    pub(super) fn start(
        command: &[String],
        cwd: &Path,
        env: &BTreeMap<String, String>,
        marks: &str,
    ) -> Result<(Self, pipe::Sender, pipe::Receiver)> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| Error::invalid("the agent's command is empty"))?;
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(muxtap_api::ErrorCode::Conflict, format!("cannot start the agent `{program}`: {error}"))
        };
        let mark = format!("{marks}{}", nonce::hex64());
        let mut start = Command::new(program);
        start.args(arguments).current_dir(cwd).process_group(0);
        // See `Agent::drop`.
        start.kill_on_drop(false);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_private)) {
            start.env_remove(name);
        }
        start.envs(env).env(MARK, &mark);
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = start.spawn().map_err(|error| failed(&error))?;
        let pid = child.id().unwrap_or_default();
        let about = StoredProcess { pid, mark, began: began(pid).unwrap_or(0) };
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut process = Process::Child(child);
        let pipes = || -> io::Result<_> {
            let lost = || io::Error::other("its pipes are missing");
            let stdin = stdin.ok_or_else(lost)?.into_owned_fd()?;
            Ok((stdin, stdout.ok_or_else(lost)?.into_owned_fd()?, stderr.ok_or_else(lost)?.into_owned_fd()?))
        };
        match pipes() {
            Ok((stdin, stdout, stderr)) => {
                Self::over(process, about, stdin, stdout, stderr).map_err(|error| failed(&error))
            }
            Err(error) => {
                process.kill();
                Err(failed(&error))
            }
        }
    }

    /// Continues with an agent that another daemon has started. Returns it, its stdin, and its stderr.
    pub(super) fn continued(
        about: StoredProcess,
        stdin: OwnedFd,
        descriptors: AgentDescriptors,
    ) -> io::Result<(Self, pipe::Sender, pipe::Receiver)> {
        let AgentDescriptors { stdout, stderr, process } = descriptors;
        Self::over(Process::Foreign(Foreign::of(process)?), about, stdin, stdout, stderr)
    }

    /// Ends an agent that another daemon has started, and what it has started, by its mark alone: it cannot
    /// be continued.
    pub(super) fn end_marked(about: StoredProcess) {
        let end = move || sweep_until(mark_of(&about.mark).as_bytes(), about.began, Instant::now() + SWEEP_LIMIT);
        // On a thread of its own: reading a process's files may hang.
        if let Err(error) = std::thread::Builder::new().name("agent-sweep".into()).spawn(end) {
            tracing::error!("cannot end an agent of the earlier daemon: {error}");
        }
    }

    fn over(
        mut process: Process,
        about: StoredProcess,
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> io::Result<(Self, pipe::Sender, pipe::Receiver)> {
        let pipes = || -> io::Result<_> {
            let other = stderr.try_clone()?;
            let (stdin, stdout) = (pipe::Sender::from_owned_fd(stdin)?, pipe::Receiver::from_owned_fd(stdout)?);
            Ok((stdin, stdout, pipe::Receiver::from_owned_fd(stderr)?, other))
        };
        match pipes() {
            Ok((stdin, stdout, errors, stderr)) => {
                Ok((Self { process, about, stdout, stderr, is_left: false }, stdin, errors))
            }
            Err(error) => {
                process.kill();
                Err(error)
            }
        }
    }

    /// Returns what another daemon needs to continue with the agent, which must not have been awaited.
    pub(super) fn store(&self) -> io::Result<(StoredProcess, AgentDescriptors)> {
        let process = match &self.process {
            // Not awaited: its id cannot mean another process.
            Process::Child(_) => Foreign::open(self.about.pid)?.descriptor()?,
            Process::Foreign(process) => process.descriptor()?,
        };
        let stdout = self.stdout.as_fd().try_clone_to_owned()?;
        Ok((self.about.clone(), AgentDescriptors { stdout, stderr: self.stderr.try_clone()?, process }))
    }

    /// Leaves the agent to another daemon.
    pub(super) fn leave(mut self) {
        self.is_left = true;
    }

    /// Returns the process id.
    pub(super) fn pid(&self) -> u32 {
        self.about.pid
    }

    /// Returns a future of the agent's end, which it reports at once (by a pidfd), and its output.
    pub(super) fn parts(&mut self) -> (impl Future<Output = Ended>, &mut pipe::Receiver) {
        let Self { process, stdout, .. } = self;
        (process.ended(), stdout)
    }

    /// Reads what is in the pipe now, without blocking: all output that precedes the agent's end.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let mut chunk = vec![0; 64 << 10];
        // Processes that the agent started may hold the pipe and keep writing: a pipe holds at most
        // 1 MiB.
        for _ in 0..64 {
            match rustix::io::read(&self.stdout, &mut chunk) {
                Ok(read) if read > 0 => take(chunk.get(..read).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
    }

    /// Ends the agent and everything that it started. Returns its exit status, if known.
    pub(super) async fn end(mut self, known: Option<Ended>) -> Option<ExitStatus> {
        let mut ended = known;
        if ended.is_none() {
            self.signal_group(Signal::TERM);
            ended = tokio::time::timeout(END_GRACE, self.process.ended()).await.ok();
        }
        self.signal_group(Signal::KILL);
        if ended.is_none() {
            // The process itself as well: it may have left its group.
            self.process.kill();
            ended = tokio::time::timeout(REAP_LIMIT, self.process.ended()).await.ok();
        }
        sweep(mark_of(&self.about.mark), self.about.began).await;
        ended.and_then(|Ended(status)| status)
    }

    /// Sends a signal to the agent's process group, which has the agent's pid and exists until its
    /// last member ends.
    fn signal_group(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.about.pid).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

/// Kills every process with this mark in its environment, and waits for a limited time until they
/// have ended.
async fn sweep(mark: String, since: u64) {
    let (done, swept) = oneshot::channel();
    // On a thread of its own: reading a process's files may hang.
    let thread = std::thread::Builder::new().name("agent-sweep".into());
    let begun = thread.spawn(move || {
        sweep_until(mark.as_bytes(), since, Instant::now() + SWEEP_LIMIT);
        let _ = done.send(());
    });
    let in_time = begun.is_ok() && tokio::time::timeout(SWEEP_LIMIT, swept).await.is_ok();
    if !in_time {
        tracing::warn!("timeout while searching for processes that an agent left behind");
    }
}

/// Returns the environment entry of an agent with this mark; for a prefix of marks, the entry's
/// prefix.
pub(super) fn mark_of(mark: &str) -> String {
    format!("{MARK}={mark}")
}

/// Kills every process with an environment variable that starts with `mark`, until none is left or
/// time is up.
pub(super) fn sweep_until(mark: &[u8], since: u64, until: Instant) {
    let mut looks = 0;
    while Instant::now() < until {
        let Swept { killed, unsure } = kill_marked(mark, since, until);
        if killed {
            continue;
        }
        // The start of a program cannot be awaited, and some processes never have an environment.
        while looks < EXEC_LOOKS && !unsure.is_empty() && unsure.iter().all(|pid| is_bare(*pid)) {
            looks += 1;
            std::thread::sleep(EXEC_PAUSE);
        }
        if unsure.is_empty() || looks >= EXEC_LOOKS {
            break;
        }
    }
}

/// The remaining processes of an agent, as one search found them.
#[derive(Debug, Default)]
struct Swept {
    /// Whether processes were found and killed; they may have started others.
    killed: bool,
    /// Processes without an environment: a process has none for a moment while it starts a program.
    unsure: Vec<u32>,
}

/// Returns whether a process exists and has no environment.
fn is_bare(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| environment.is_empty())
        && began(pid).is_some()
}

/// Kills every process with an environment variable that starts with `mark`, and waits for their
/// ends until `until`.
///
/// `since`: when the agent started, as in `/proc`.
#[cfg(target_os = "linux")]
fn kill_marked(mark: &[u8], since: u64, until: Instant) -> Swept {
    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        process::{PidfdFlags, pidfd_open, pidfd_send_signal},
    };

    let (mut killed, mut unsure) = (Vec::new(), Vec::new());
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // The pidfd is opened before the check: the pid cannot come to mean another process.
        let held = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let Some(Ok(held)) = held.filter(|_| pid != own) else { continue };
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        if environment.is_empty() {
            unsure.extend(began(pid).filter(|began| *began >= since).map(|_| pid));
        } else if environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark))
            && pidfd_send_signal(&held, Signal::KILL).is_ok()
        {
            killed.push(held);
        }
    }
    for held in &killed {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(limit) = Timespec::try_from(left) else { break };
        // A process that cannot die is left to the kernel.
        let _ = poll(&mut [PollFd::new(held, PollFlags::IN)], Some(&limit));
    }
    Swept { killed: !killed.is_empty(), unsure }
}

/// Returns when a process started, in ticks since boot.
///
/// `None` for a process that has ended, and for a kernel thread (`PF_KTHREAD`): proc(5),
/// `/proc/PID/stat`.
#[cfg(target_os = "linux")]
pub(super) fn began(pid: u32) -> Option<u64> {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let is_live = !matches!(*fields.first()?, "Z" | "X") && number(6)? & KERNEL_THREAD == 0;
    if is_live { number(19) } else { None }
}

/// Kills nothing: on this system only the process group of what an agent started is known.
#[cfg(not(target_os = "linux"))]
fn kill_marked(_: &[u8], _: u64, _: Instant) -> Swept {
    Swept::default()
}

/// Returns `None`: unknown on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn began(_: u32) -> Option<u64> {
    None
}

/// Reads a pipe to its end, and keeps the last bytes.
pub(super) async fn keep_tail(mut pipe: pipe::Receiver, tail: &std::sync::Mutex<Vec<u8>>, end: CancellationToken) {
    let mut chunk = vec![0; STDERR_BYTES];
    loop {
        let read = tokio::select! {
            read = pipe.read(&mut chunk) => read.unwrap_or(0),
            () = end.cancelled() => 0,
        };
        if read == 0 {
            return;
        }
        let mut tail = tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tail.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let surplus = tail.len().saturating_sub(STDERR_BYTES);
        tail.drain(..surplus);
    }
}
