//! Keeps the rules for agents as their file says: it is read anew when it changes.
//!
//! The kernel reports changes (inotify); nothing polls. A file that cannot be used leaves the rules
//! that are in effect, and its error is reported where the rules are.

use muxtap_engine::{Engine, agents::RulesFile};

/// Reads the file again whenever it changes, until the engine stops.
///
/// Only Linux reports changes: elsewhere the next daemon reads the file.
pub(super) async fn keep_current(engine: Engine, file: RulesFile) {
    #[cfg(target_os = "linux")]
    tokio::select! {
        () = engine.stopping() => {}
        () = linux::follow(&engine, &file) => {}
    }
    #[cfg(not(target_os = "linux"))]
    drop((engine, file));
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        collections::BTreeSet,
        io,
        os::fd::OwnedFd,
        path::{Path, PathBuf},
    };

    use muxtap_api::Result;
    use muxtap_engine::agents::Rules;
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use tokio::io::{Interest, unix::AsyncFd};

    use super::{Engine, RulesFile};

    /// Changes by which a file's content, name or permissions may differ.
    const FILE: WatchFlags = WatchFlags::CLOSE_WRITE
        .union(WatchFlags::CREATE)
        .union(WatchFlags::MOVED_TO)
        .union(WatchFlags::MOVED_FROM)
        .union(WatchFlags::DELETE)
        .union(WatchFlags::ATTRIB)
        .union(WatchFlags::DELETE_SELF)
        .union(WatchFlags::MOVE_SELF);
    /// Changes by which a missing directory may come into being.
    const PARENT: WatchFlags = WatchFlags::CREATE.union(WatchFlags::MOVED_TO).union(WatchFlags::DELETE_SELF);

    pub(super) async fn follow(engine: &Engine, file: &RulesFile) {
        let mut last = read(file);
        loop {
            // A new watch each time: directories may have been replaced.
            let watch = match watch(&file.path) {
                Ok(watch) => watch,
                Err(error) => {
                    tracing::warn!("cannot watch {}: {error}; changes need a new daemon", file.path.display());
                    return;
                }
            };
            // What changed before the watch began is read now.
            let now = read(file);
            if now != last {
                last.clone_from(&now);
                apply(engine, file, file.load());
            }
            if watch.readable().await.is_err() {
                return;
            }
        }
    }

    /// Returns what the file says, to compare it: an error counts as its text.
    fn read(file: &RulesFile) -> std::result::Result<Option<String>, String> {
        file.read().map_err(|error| error.to_string())
    }

    fn apply(engine: &Engine, file: &RulesFile, loaded: Result<Rules>) {
        match loaded {
            Ok(rules) => {
                tracing::info!("read the agent rules {}", file.path.display());
                engine.set_agent_rules(rules);
            }
            Err(error) => {
                tracing::warn!("{error}; the rules that were read before stay in effect");
                let kept = Rules::clone(&engine.agent_rules());
                engine.set_agent_rules(kept.with_error(&error));
            }
        }
    }

    /// Watches the directory of the file, and that of its target if it is a link. A directory that is
    /// missing is awaited in the nearest one above.
    fn watch(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let own = path.parent().map(Path::to_path_buf);
        let target = path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf));
        for folder in own.iter().chain(&target).cloned().collect::<BTreeSet<PathBuf>>() {
            let there = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
            let flags = if there == folder { FILE } else { PARENT };
            inotify::add_watch(&queue, there, flags | WatchFlags::ONLYDIR)?;
        }
        // The safe constructor is deprecated because a type may lie about its descriptor; an `OwnedFd`
        // does not.
        #[allow(deprecated, reason = "the replacement is unsafe, and the reason for it does not apply to an OwnedFd")]
        AsyncFd::with_interest(queue, Interest::READABLE)
    }
}
