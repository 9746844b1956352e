//! Waiting for what can be followed: for a tmux socket by events of its folder, for a first session by events of the server.

use std::{path::Path, process::Stdio, time::Duration};

use notify::{RecursiveMode, Watcher};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_util::task::TaskTracker;

use super::{
    program::{Client, ServerSpec},
    relay::NotArrived,
};
use crate::{metrics, protocol::ids::SessionId};

/// How long a listener may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(5);

/// Resolves when something changed in `socket`'s folder (or, while that is missing, in its parent). Never, where that
/// cannot be watched: then the next caller's request looks again.
pub async fn socket(socket: &Path) {
    let (sender, mut receiver) = mpsc::channel(1);
    let folder = socket.parent().filter(|folder| folder.is_dir());
    let missing_folder = folder.is_none();
    let awaited = if missing_folder { socket.parent() } else { Some(socket) };
    let name = awaited.and_then(Path::file_name).map(std::ffi::OsStr::to_owned);
    let Some(place) = folder.or_else(|| socket.parent().and_then(Path::parent).filter(|place| place.is_dir())) else {
        return std::future::pending().await;
    };
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        if event.kind.is_create() && event.paths.iter().any(|path| path.file_name() == name.as_deref()) {
            // Full means that a wake-up is under way already.
            let _ = sender.try_send(());
        }
    });
    let Ok(mut watcher) = watcher else { return std::future::pending().await };
    if watcher.watch(place, RecursiveMode::NonRecursive).is_err() {
        return std::future::pending().await;
    }
    // It may have come between the caller's look and the watch.
    if !missing_folder && socket.exists() && std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return;
    }
    receiver.recv().await;
    drop(watcher);
}

/// A control client that waits for a session on a server that has none to follow.
///
/// It is told of new sessions too, as long as a command of it runs; `wait-for` on a channel that nobody signals runs for ever. It holds neither
/// a session nor a server that is to end (N29).
pub struct Listener {
    client: Child,
    relay: Option<JoinHandle<Result<(), NotArrived>>>,
    lines: Lines<BufReader<ChildStdout>>,
    sessions: Vec<SessionId>,
}

impl Listener {
    /// Starts one and reads what sessions there are. `None`: the server has left, or tmux cannot be started.
    pub async fn arrive(spec: &ServerSpec, tasks: &TaskTracker) -> Option<Self> {
        let channel = format!("muxtap-{}", std::process::id());
        let client = spec.client(["-C", "list-sessions", "-F", "= #{session_id}", ";", "wait-for", &channel]);
        let Client { mut command, relay } = client.ok()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        metrics::PROCESS_SPAWNS.increment(1);
        let mut client = command.spawn().ok()?;
        let relay = relay.map(|relay| tasks.spawn(relay.run()));
        let mut lines = BufReader::new(client.stdout.take()?).lines();
        let mut sessions = Vec::new();
        let listed = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(session) = line.strip_prefix("= ") {
                    sessions.extend(session.parse::<SessionId>().ok());
                } else if line.starts_with("%end") {
                    return true;
                }
            }
            false
        };
        let arrived = tokio::time::timeout(ARRIVAL, listed).await.unwrap_or(false);
        let listener = Self { client, relay, lines, sessions };
        if arrived {
            return Some(listener);
        }
        listener.leave().await;
        None
    }

    /// Resolves when the server has other sessions than `known`: true. False: it has left.
    pub async fn changed(&mut self, known: &[SessionId]) -> bool {
        let mut changed = self.sessions != known;
        while !changed && let Ok(Some(line)) = self.lines.next_line().await {
            changed = line.starts_with("%sessions-changed");
        }
        changed
    }

    /// Ends the listener. When this returns its process has ended and the server knows, so that nothing is attached before.
    pub async fn leave(mut self) {
        let _ = self.client.kill().await;
        if let Some(relay) = self.relay {
            relay.abort();
            let _ = relay.await;
        }
    }
}
