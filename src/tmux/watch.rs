//! Waiting for a tmux socket to appear, by events of its folder.

use std::path::Path;

use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// Resolves when something changed in `socket`'s folder (or, while that is missing, in its parent). Never, where that
/// cannot be watched: then the next caller's request looks again.
pub async fn appears(socket: &Path) {
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
