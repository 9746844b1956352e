//! Links over a process of the transport, such as `ssh HOST muxtap stdio`.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use muxtap_api::{Error, wire::KEYS};
use muxtap_base::plain;
use muxtap_engine::Engine;
use muxtap_tmux::{FIRST_ANSWER_LIMIT, NO_PEER, PEER_GREETING, Transport};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    process::{Child, ChildStdin},
    sync::watch,
    time::timeout,
};

use super::{Boxed, Dial, Failure, Line};

/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most bytes that a profile may print before the greeting.
const BANNER_BYTES: u64 = 1 << 20;
/// The most bytes of stderr that are kept: ssh's last lines have the reason of a failure.
const STDERR_BYTES: usize = 8 << 10;
/// The time limit for ssh to print its configuration.
const CONFIGURATION_LIMIT: Duration = Duration::from_secs(5);
/// The time for which a connection may remain at the end for requests that share it.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// The longest path of a socket that ssh creates, in bytes: ssh first creates it under a longer
/// temporary name.
const CONTROL_PATH_BYTES: usize = 88;

/// The way to a host by processes of its transport.
pub(in super::super) struct Process {
    engine: Engine,
    transport: Arc<Transport>,
    /// The socket by which other processes share ssh's connection, if possible.
    control: Option<PathBuf>,
    /// Whether a process of muxtap's listens on it.
    is_shared: Arc<AtomicBool>,
}

/// A process whose connection others share, until it ends or its stdin is closed.
struct Held {
    child: Child,
    stdin: Option<ChildStdin>,
    shared: Shared,
    engine: Engine,
}

/// The sharing of a connection, which ends when this value is dropped.
struct Shared {
    transport: Arc<Transport>,
    is_shared: Arc<AtomicBool>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.transport.share(None);
        self.is_shared.store(false, Ordering::SeqCst);
    }
}

impl Held {
    /// Keeps the connection to a host without muxtap open for other processes, until it ends.
    async fn hold(mut self) {
        let end = self.engine.end();
        let _shared = self.shared;
        tokio::select! {
            _ = self.child.wait() => {}
            () = end.cancelled() => {
                // Without its stdin it ends when the processes that share its connection have
                // ended.
                drop(self.stdin.take());
                let _ = timeout(LEAVE_LIMIT, self.child.wait()).await;
            }
        }
    }
}

impl Dial for Process {
    fn host(&self) -> &str {
        self.transport.name()
    }

    fn dial(&self) -> Boxed<'_, Result<Line, Failure>> {
        Box::pin(self.connect())
    }

    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }

    fn idle_limit(&self) -> Option<Duration> {
        None
    }
}

impl Process {
    pub(in super::super) fn new(engine: Engine, transport: Arc<Transport>, sockets: Option<&Path>) -> Self {
        let control = sockets.and_then(|path| {
            let path = format!("{}.ssh-{}", path.to_str()?, transport.name());
            let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%' && byte != b'"');
            (is_plain && path.len() <= CONTROL_PATH_BYTES).then(|| path.into())
        });
        Self { engine, transport, control, is_shared: Arc::default() }
    }

    fn share(&self, control: &Path) -> Shared {
        self.transport.share(Some(control.to_owned()));
        Shared { transport: self.transport.clone(), is_shared: self.is_shared.clone() }
    }

    /// Returns the socket on which the next process listens. `None`: another process listens
    /// already, or the user's own configuration shares connections.
    async fn control_for_next(&self) -> Option<&Path> {
        let control = self.control.as_deref()?;
        if self.is_shared.load(Ordering::SeqCst) {
            return None;
        }
        let mut ssh = self.transport.ssh_configuration()?;
        let configured = timeout(CONFIGURATION_LIMIT, ssh.stdin(Stdio::null()).output()).await.ok()?.ok()?;
        let text = String::from_utf8_lossy(&configured.stdout).to_ascii_lowercase();
        let own = text.lines().any(|line| line.strip_prefix("controlpath ").is_some_and(|path| path.trim() != "none"));
        if own || !configured.status.success() {
            return None;
        }
        // A process that was killed may have left a socket.
        let _ = std::fs::remove_file(control);
        if control.symlink_metadata().is_ok() {
            tracing::warn!(
                "{} belongs to another user: remove it, or set MUXTAP_SOCKET to another path; connections to {} are \
                 not shared",
                control.display(),
                self.transport.name()
            );
            return None;
        }
        Some(control)
    }

    async fn connect(&self) -> Result<Line, Failure> {
        let control = self.control_for_next().await;
        let Some(mut command) = self.transport.peer(control) else {
            return Err(Failure::Absent("disabled for this host".into(), None));
        };
        let unable = |error: &dyn std::fmt::Display| {
            let message = format!("host {}: cannot run `{}`: {error}", self.transport.name(), self.transport.prefix());
            Failure::Down(Error::unavailable(message))
        };
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Failure::Down(self.transport.cannot_run(&error)))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(unable(&"the process has no pipes"));
        };
        let said = watch::Sender::new(String::new());
        let heard = said.subscribe();
        self.engine.spawn(collect(stderr, said));
        let mut stdout = BufReader::new(stdout);
        let greeted = timeout(FIRST_ANSWER_LIMIT, greeting(&mut stdout)).await;
        let (version, takes_keys) = match greeted {
            Ok(Some(Greeting::Version(version, can))) => {
                self.is_shared.fetch_or(control.is_some(), Ordering::SeqCst);
                (version, can.iter().any(|can| can == KEYS))
            }
            Ok(Some(Greeting::None)) => {
                self.is_shared.fetch_or(control.is_some(), Ordering::SeqCst);
                let held = control.map(|control| {
                    let (shared, engine) = (self.share(control), self.engine.clone());
                    let held = Held { child, stdin: Some(stdin), shared, engine };
                    Box::pin(held.hold()) as Boxed<'static, ()>
                });
                return Err(Failure::Absent("not found".into(), held));
            }
            Ok(None) => {
                // Its message is complete when stderr has ended, a moment later.
                let mut heard = heard;
                let _ = timeout(FIRST_ANSWER_LIMIT, async { while heard.changed().await.is_ok() {} }).await;
                let said = heard.borrow().clone();
                let said = self.transport.with_state(said.trim().to_owned(), FIRST_ANSWER_LIMIT).await;
                return Err(self.failure(&said));
            }
            Err(_) => return Err(Failure::Down(self.transport.silent(FIRST_ANSWER_LIMIT))),
        };
        let shared = self.control.as_deref().filter(|_| self.is_shared.load(Ordering::SeqCst)).map(|it| self.share(it));
        let io = Box::new(tokio::io::join(stdout, stdin));
        Ok(Line { io, version, takes_keys, kept: Box::new((child, shared)) })
    }

    /// Returns the reason why a command ended without a greeting, from its stderr.
    fn failure(&self, said: &str) -> Failure {
        use muxtap_api::Unreachable::{NoTmux, TooOld};

        match self.transport.reason(said) {
            Some(reason) if !matches!(reason, NoTmux | TooOld) => Failure::Down(self.transport.error(reason, said)),
            _ => {
                let last = said.trim().lines().last().unwrap_or("the command ended without a message");
                Failure::Absent(plain::name(last).chars().take(200).collect(), None)
            }
        }
    }
}

enum Greeting {
    /// The peer's version, and words for its capabilities.
    Version(String, Vec<String>),
    None,
}

/// Reads up to the greeting, the line that tells whether the host has muxtap. `None`: no such line
/// came.
async fn greeting(stdout: &mut (impl AsyncBufRead + Unpin)) -> Option<Greeting> {
    let mut banner = stdout.take(BANNER_BYTES);
    let mut line = Vec::new();
    loop {
        line.clear();
        if banner.read_until(b'\n', &mut line).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if text.ends_with(NO_PEER) {
            return Some(Greeting::None);
        }
        // A profile may have printed the beginning of the line.
        if let Some((_, words)) = text.rsplit_once(PEER_GREETING) {
            let mut words = words.split(' ').map(|word| plain::name(word).chars().take(32).collect());
            return Some(Greeting::Version(words.next().unwrap_or_default(), words.collect()));
        }
    }
}

/// Keeps the last bytes of stderr.
async fn collect(mut stderr: impl AsyncRead + Unpin, said: watch::Sender<String>) {
    let mut chunk = vec![0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        let text = String::from_utf8_lossy(chunk.get(..read).unwrap_or_default()).into_owned();
        said.send_modify(|said| {
            said.push_str(&text);
            let surplus = said.len().saturating_sub(STDERR_BYTES);
            let at = (surplus..=said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(0);
            said.drain(..at);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn greeted(printed: &str) -> String {
        match greeting(&mut printed.as_bytes()).await {
            Some(Greeting::Version(version, can)) => [version].into_iter().chain(can).collect::<Vec<_>>().join("+"),
            Some(Greeting::None) => "none".into(),
            None => "nothing".into(),
        }
    }

    #[tokio::test]
    async fn what_a_profile_prints_before_the_greeting_is_skipped() {
        assert_eq!(greeted("Welcome!\nmuxtap-peer 1 0.1.0\nPRI").await, "0.1.0");
        assert_eq!(greeted("no line end: muxtap-peer 1 0.2.0\n").await, "0.2.0");
        assert_eq!(greeted("muxtap-peer 1 0.3.0 keys more\n").await, "0.3.0+keys+more");
        assert_eq!(greeted("Welcome!\nmuxtap-peer none\n").await, "none");
        assert_eq!(greeted("muxtap-peer 2 9.0.0\n").await, "nothing", "a later protocol is not supported");
        assert_eq!(greeted("").await, "nothing");
    }

    #[tokio::test]
    async fn the_end_of_stderr_is_kept() {
        let said = watch::Sender::new(String::new());
        let kept = said.subscribe();
        let text = format!("{}é the end", "é".repeat(STDERR_BYTES));
        collect(text.as_bytes(), said).await;
        let kept = kept.borrow();
        assert!(kept.len() <= STDERR_BYTES && kept.ends_with("é the end"), "{}", kept.len());
    }
}
