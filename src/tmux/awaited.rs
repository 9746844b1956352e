//! Waiting for what can be followed: for a tmux socket by events of its folder, for a first session by events of the server.

use std::{path::Path, process::Stdio};

use notify::{RecursiveMode, Watcher};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    sync::mpsc,
};

use super::program::ServerSpec;
use crate::{metrics, protocol::ids::SessionId};

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

/// Resolves when the server has other sessions than `known`: true. False: it has left, or does not tell. Never, where tmux cannot be started.
///
/// A control client without a session is told of new sessions too, as long as a command of it runs; `wait-for` on a channel that nobody
/// signals runs for ever. It holds neither a session nor a server that is to end (N29).
pub async fn session(spec: &ServerSpec, known: &[SessionId]) -> bool {
    let channel = format!("muxtap-{}", std::process::id());
    let mut command = spec.client(["-C", "list-sessions", "-F", "= #{session_id}", ";", "wait-for", &channel]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    metrics::PROCESS_SPAWNS.increment(1);
    let Ok(mut client) = command.spawn() else { return std::future::pending().await };
    let Some(stdout) = client.stdout.take() else { return false };
    let mut lines = BufReader::new(stdout).lines();
    let (mut listed, mut changed) = (Vec::new(), false);
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(session) = line.strip_prefix("= ") {
            listed.extend(session.parse::<SessionId>().ok());
        } else if line.starts_with("%sessions-changed") || line.starts_with("%end") && listed != known {
            changed = true;
            break;
        }
    }
    // It is ended before anything is attached, and reaped.
    let _ = client.kill().await;
    changed
}
