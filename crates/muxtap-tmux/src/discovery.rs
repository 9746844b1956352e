//! Waits for a server that can be followed: for its socket by file events of the folder, for its
//! first session by events of the server.

use std::{path::Path, process::Stdio, time::Duration};

use muxtap_base::metrics;
use muxtap_core::protocol::ids::SessionId;
use notify::{RecursiveMode, Watcher};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_util::task::TaskTracker;

use super::{
    link::{FIRST_PAUSE, LONGEST_PAUSE},
    program::{Client, ServerSpec},
    relay::RelayError,
    socket::{SocketFile, SocketState},
};

/// Time that a [`SessionWatcher`] has to reach the server and list its sessions.
const START_LIMIT: Duration = Duration::from_secs(5);

/// Resolves when something changed in `socket`'s folder (or, while that is missing, in its parent).
/// If the folder cannot be watched, resolves after a pause: then the next attempt looks again, as
/// every caller's request does.
pub async fn wait_for_socket(socket: &Path) {
    let Some(mut changes) = Changes::watch(socket) else { return tokio::time::sleep(LONGEST_PAUSE).await };
    // The socket may have appeared between the caller's check and the watch. tmux makes the file
    // before it listens on it, and listening causes no event. Or the file is a leftover.
    for _ in 0..SOCKET_TRIES {
        if !socket.exists() {
            break;
        }
        if std::os::unix::net::UnixStream::connect(socket).is_ok() {
            return;
        }
        if tokio::time::timeout(FIRST_PAUSE, changes.next()).await.is_ok() {
            return;
        }
    }
    changes.next().await;
}

/// Resolves when the name of the followed server's socket leads to another server; returns that
/// server's process.
pub async fn wait_for_replacement(name: &Path, file: &SocketFile, server: u32) -> u32 {
    loop {
        let mut changes = Changes::watch(name);
        // Another server may have appeared before the watch began.
        let mut tries = SOCKET_TRIES;
        loop {
            match file.check(name) {
                SocketState::Replaced(other) => return other,
                // tmux creates the file before it listens on it. Or the file is a leftover.
                SocketState::NotListening if tries > 0 => {
                    tries -= 1;
                    tokio::time::sleep(FIRST_PAUSE).await;
                    continue;
                }
                // On SIGUSR1 tmux creates its socket again and listens on a new file (N55).
                SocketState::Same => file.hold(name, server),
                SocketState::Missing | SocketState::NotListening => {
                    tracing::warn!("the socket {} of tmux server {server} is gone", name.display());
                }
            }
            tries = SOCKET_TRIES;
            match &mut changes {
                Some(changes) => changes.next().await,
                None => tokio::time::sleep(LONGEST_PAUSE).await,
            }
            // The folder may have come or gone, too.
            if changes.as_ref().is_none_or(|changes| !changes.is_current(name)) {
                break;
            }
        }
    }
}

/// How often a socket is checked on which no server listens yet.
const SOCKET_TRIES: u32 = 20;

/// A watch for changes of one name in its folder, or of the folder's name while that is missing.
struct Changes {
    receiver: mpsc::Receiver<()>,
    of_folder: bool,
    _watcher: notify::RecommendedWatcher,
}

impl Changes {
    /// Begins to watch. The folder may appear or disappear meanwhile, which is in no event of the
    /// watch: it begins again then.
    fn watch(socket: &Path) -> Option<Self> {
        loop {
            let changes = Self::watch_once(socket)?;
            if changes.is_current(socket) {
                return Some(changes);
            }
        }
    }

    fn watch_once(socket: &Path) -> Option<Self> {
        let folder = socket.parent()?;
        let of_folder = !folder.is_dir();
        let (place, name) = if of_folder { (folder.parent()?, folder) } else { (folder, socket) };
        let (name, place_name) = (name.file_name()?.to_owned(), place.file_name().map(std::ffi::OsStr::to_owned));
        let (sender, receiver) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let comes_or_goes = event.kind.is_create()
                || event.kind.is_remove()
                || matches!(event.kind, notify::EventKind::Modify(notify::event::ModifyKind::Name(_)));
            let is_meant = |path: &std::path::PathBuf| {
                let changed = path.file_name();
                changed == Some(&name) || event.kind.is_remove() && changed == place_name.as_deref()
            };
            if comes_or_goes && event.paths.iter().any(is_meant) {
                // A full channel means that a wake-up is already pending.
                let _ = sender.try_send(());
            }
        });
        let mut watcher = watcher.ok()?;
        watcher.watch(place, RecursiveMode::NonRecursive).ok()?;
        Some(Self { receiver, of_folder, _watcher: watcher })
    }

    async fn next(&mut self) {
        if self.receiver.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether the watched folder is still the one that the name is in.
    fn is_current(&self, socket: &Path) -> bool {
        self.of_folder != socket.parent().is_some_and(Path::is_dir)
    }
}

/// A control client that waits for a session on a server that has none to follow.
///
/// tmux announces new sessions to it too, as long as a command of it runs; `wait-for` on a channel
/// that is never signaled runs forever. It keeps neither a session nor an ending server alive
/// (N29).
pub struct SessionWatcher {
    client: Child,
    relay: Option<JoinHandle<Result<(), RelayError>>>,
    lines: Lines<BufReader<ChildStdout>>,
    sessions: Vec<SessionId>,
}

impl SessionWatcher {
    /// Starts the client and reads the existing sessions. `None`: the server has gone, or tmux
    /// cannot be started.
    pub async fn start(spec: &ServerSpec, tasks: &TaskTracker) -> Option<Self> {
        let channel = format!("muxtap-{}", std::process::id());
        let client = spec.client(["-C", "list-sessions", "-F", "= #{session_id}", ";", "wait-for", &channel]);
        let Client { mut command, relay, program: _program } = client.ok()?;
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
        let arrived = tokio::time::timeout(START_LIMIT, listed).await.unwrap_or(false);
        let watcher = Self { client, relay, lines, sessions };
        if arrived {
            return Some(watcher);
        }
        watcher.stop().await;
        None
    }

    /// Resolves to true when the server has other sessions than `known`, to false when it has gone.
    pub async fn changed(&mut self, known: &[SessionId]) -> bool {
        let mut changed = self.sessions != known;
        while !changed && let Ok(Some(line)) = self.lines.next_line().await {
            changed = line.starts_with("%sessions-changed");
        }
        changed
    }

    /// Ends the client. When this returns its process has ended and the server knows, so that no
    /// client attaches earlier.
    pub async fn stop(mut self) {
        let _ = self.client.kill().await;
        if let Some(relay) = self.relay {
            relay.abort();
            let _ = relay.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket as new_socket};

    use super::*;

    #[tokio::test]
    async fn a_socket_is_noticed_whose_folder_appears_while_a_watch_begins() {
        for round in 0..300 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("folder/t");
            let ready = Arc::new(Barrier::new(2));
            let (of_listener, name) = (ready.clone(), path.clone());
            let listener = std::thread::spawn(move || {
                of_listener.wait();
                // Each round at another moment of the watch's beginning.
                (0..round * 20).for_each(|_| std::hint::spin_loop());
                std::fs::create_dir(name.parent().unwrap()).unwrap();
                of_listener.wait();
                std::os::unix::net::UnixListener::bind(&name).unwrap()
            });
            ready.wait();
            let mut changes = Changes::watch(&path).unwrap();
            ready.wait();
            let _listener = listener.join().unwrap();
            let noticed = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
            assert!(noticed.is_ok(), "round {round}: {} was not noticed", path.display());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_is_listened_on_a_while_after_it_was_made_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let made = new_socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&made, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let listens = async {
            tokio::time::sleep(FIRST_PAUSE / 2).await;
            listen(&made, 1).unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            noticed = tokio::time::timeout(LONGEST_PAUSE, wait_for_socket(&path)) => noticed.unwrap(),
            () = listens => {}
        }
    }
}
