//! The agent's process, and everything that it starts.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use muxtap_api::{Error, Result};
use muxtap_base::nonce;
use muxtap_engine::{AGENT_MARK as MARK, is_secret};
use rustix::process::{Pid, Signal};
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe,
    process::{Child, ChildStdin, Command},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

/// How long an agent that is to end has before it is killed.
pub(super) const END_GRACE: Duration = Duration::from_millis(500);
/// How long a process that was killed may take to be gone.
pub(super) const REAP_LIMIT: Duration = Duration::from_secs(5);
/// How long a process that runs no program yet is given before it is looked at again, and how often.
const EXEC_PAUSE: Duration = Duration::from_millis(2);
const EXEC_LOOKS: u32 = 100;
/// How long is searched for what an agent has left.
pub(super) const SWEEP_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of the end of an agent's stderr that are kept, for the error where it does not start.
pub(super) const STDERR_BYTES: usize = 4 << 10;

/// A process of an agent.
#[derive(Debug)]
pub(super) struct Agent {
    child: Child,
    pid: u32,
    mark: String,
    /// When it began, as `/proc` has it.
    began: u64,
    stdout: pipe::Receiver,
}

/// Variables of the daemon that are none of an agent's business: its own settings and tokens, and its place in tmux.
fn is_private(name: &str) -> bool {
    name.starts_with("MUXTAP_") || is_secret(name) || matches!(name, "TMUX" | "TMUX_PANE")
}

impl Agent {
    /// Starts an agent. Returns it, its stdin, and its stderr. Error: `CONFLICT` where it cannot be started.
    /// Its mark begins as `marks`.
    pub(super) fn start(
        command: &[String],
        cwd: &Path,
        env: &BTreeMap<String, String>,
        marks: &str,
    ) -> Result<(Self, ChildStdin, pipe::Receiver)> {
        let (program, arguments) = command.split_first().ok_or_else(|| Error::invalid("the agent has no command"))?;
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(muxtap_api::ErrorCode::Conflict, format!("cannot start the agent `{program}`: {error}"))
        };
        let mark = format!("{marks}{}", nonce::hex64());
        let mut start = Command::new(program);
        start.args(arguments).current_dir(cwd).process_group(0).kill_on_drop(true);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_private)) {
            start.env_remove(name);
        }
        start.envs(env).env(MARK, &mark);
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = start.spawn().map_err(|error| failed(&error))?;
        let pid = child.id().unwrap_or_default();
        let lost = || failed(&"its pipes are missing");
        let stdin = child.stdin.take().ok_or_else(lost)?;
        let stdout = child.stdout.take().ok_or_else(lost)?.into_owned_fd().map_err(|error| failed(&error))?;
        let stderr = child.stderr.take().ok_or_else(lost)?.into_owned_fd().map_err(|error| failed(&error))?;
        let receiver = |fd| pipe::Receiver::from_owned_fd(fd).map_err(|error| failed(&error));
        Ok((
            Self { child, pid, mark, began: began(pid).unwrap_or(0), stdout: receiver(stdout)? },
            stdin,
            receiver(stderr)?,
        ))
    }

    /// Returns the process's id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns its end, which is known at once (tokio holds a pidfd), and its output.
    pub(super) fn parts(&mut self) -> (impl Future<Output = Option<ExitStatus>>, &mut pipe::Receiver) {
        let Self { child, stdout, .. } = self;
        (async { child.wait().await.ok() }, stdout)
    }

    async fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Reads what is in the pipe now, without waiting: what an agent wrote before it ended is there.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let mut chunk = vec![0; 64 << 10];
        // What it has started may hold the pipe and write on: a pipe holds at most a MiB at once.
        for _ in 0..64 {
            match rustix::io::read(&self.stdout, &mut chunk) {
                Ok(read) if read > 0 => take(chunk.get(..read).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
    }

    /// Ends the agent and all that it has started. Returns how it ended, where that came to be known.
    pub(super) async fn end(mut self, known: Option<ExitStatus>) -> Option<ExitStatus> {
        let mut status = known;
        if status.is_none() {
            self.signal_group(Signal::TERM);
            status = tokio::time::timeout(END_GRACE, self.wait()).await.ok().flatten();
        }
        self.signal_group(Signal::KILL);
        if status.is_none() {
            // Itself, too: it may have left its group.
            let _ = self.child.start_kill();
            status = tokio::time::timeout(REAP_LIMIT, self.wait()).await.ok().flatten();
        }
        sweep(mark_of(&self.mark), self.began).await;
        status
    }

    /// Sends a signal to the agent's process group, which is named after it, and lives as long as one of it does.
    fn signal_group(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

/// Kills every process in whose environment this stands, and waits until they are gone, for a while.
async fn sweep(mark: String, since: u64) {
    let (done, swept) = oneshot::channel();
    // On a thread of its own: what is read of a process may hang.
    let thread = std::thread::Builder::new().name("agent-sweep".into());
    let begun = thread.spawn(move || {
        sweep_until(mark.as_bytes(), since, Instant::now() + SWEEP_LIMIT);
        let _ = done.send(());
    });
    let in_time = begun.is_ok() && tokio::time::timeout(SWEEP_LIMIT, swept).await.is_ok();
    if !in_time {
        tracing::warn!("what an agent has left could not be looked for in time");
    }
}

/// Returns the variable by which an agent with this mark is found; of the beginning of marks its own beginning.
pub(super) fn mark_of(mark: &str) -> String {
    format!("{MARK}={mark}")
}

/// Kills every process in whose environment a variable begins so, until there is none or the time is over.
pub(super) fn sweep_until(mark: &[u8], since: u64, until: Instant) {
    let mut looks = 0;
    while Instant::now() < until {
        let Swept { killed, unsure } = kill_marked(mark, since, until);
        if killed {
            continue;
        }
        // Nothing tells when a process has begun to run its program; some have no environment for good.
        while looks < EXEC_LOOKS && !unsure.is_empty() && unsure.iter().all(|pid| is_bare(*pid)) {
            looks += 1;
            std::thread::sleep(EXEC_PAUSE);
        }
        if unsure.is_empty() || looks >= EXEC_LOOKS {
            break;
        }
    }
}

/// The remains of an agent that were found.
#[derive(Debug, Default)]
struct Swept {
    /// Whether anything was, and was killed; it may have started more.
    killed: bool,
    /// Processes that have no environment, as one has for a moment when it begins to run a program.
    unsure: Vec<u32>,
}

/// Returns whether a process is there and has no environment.
fn is_bare(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| environment.is_empty())
        && began(pid).is_some()
}

/// Kills every process in whose environment a variable begins so, and waits for their ends until then. `since`: when the agent
/// began, as `/proc` has it.
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
        // Held before it is looked at: no other process is meant by then.
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
        // One that cannot die is left to the kernel.
        let _ = poll(&mut [PollFd::new(held, PollFlags::IN)], Some(&limit));
    }
    Swept { killed: !killed.is_empty(), unsure }
}

/// Returns when a process began, in ticks since the system did; `None` for one that has ended, and for the kernel's own
/// (`PF_KTHREAD`): proc(5), `/proc/PID/stat`.
#[cfg(target_os = "linux")]
pub(super) fn began(pid: u32) -> Option<u64> {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let is_live = !matches!(*fields.first()?, "Z" | "X") && number(6)? & KERNEL_THREAD == 0;
    if is_live { number(19) } else { None }
}

/// Kills nothing: here a process group is all that is known of what an agent has started.
#[cfg(not(target_os = "linux"))]
fn kill_marked(_: &[u8], _: u64, _: Instant) -> Swept {
    Swept::default()
}

/// Returns nothing: not known here.
#[cfg(not(target_os = "linux"))]
pub(super) fn began(_: u32) -> Option<u64> {
    None
}

/// Reads a pipe to its end and keeps the last of it.
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
