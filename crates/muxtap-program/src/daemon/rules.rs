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
    use std::{io, os::fd::OwnedFd, path::Path, time::Duration};

    use muxtap_api::Result;
    use muxtap_engine::agents::Rules;
    use rustix::{
        fs::inotify::{self, CreateFlags, WatchFlags},
        io::Errno,
    };
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
    /// Changes by which a directory on the way to the file is no longer there.
    const ITSELF: WatchFlags = WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF);
    /// Changes by which a missing directory may be created.
    const PARENT: WatchFlags = WatchFlags::CREATE.union(WatchFlags::MOVED_TO).union(WatchFlags::DELETE_SELF);

    /// The pause after a change, in which further ones come, and after a failure.
    const PAUSE: Duration = Duration::from_millis(50);
    const RETRY: Duration = Duration::from_secs(5);

    /// What the file says, to compare it: an error counts as its text.
    type Content = std::result::Result<Option<String>, String>;

    pub(super) async fn follow(engine: &Engine, file: &RulesFile) {
        // The daemon has read the file once, but it may have changed before the first watch.
        let mut last: Option<Content> = None;
        let mut has_failed = false;
        loop {
            // A new watch each time: directories may have been replaced. What changed before it began is
            // read now.
            let (of, known) = (file.clone(), last.clone());
            let looked = tokio::task::spawn_blocking(move || look(&of, known.as_ref())).await;
            let (watch, content, loaded) = match looked {
                Ok(Ok(looked)) => looked,
                Ok(Err(error)) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!("cannot watch {}: {error}; trying again", file.path.display());
                    }
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
                Err(_) => return,
            };
            has_failed = false;
            if let Some(loaded) = loaded {
                apply(engine, file, loaded, last.is_none());
                last = Some(content);
            }
            // The safe constructor is deprecated because a type may lie about its descriptor; an `OwnedFd`
            // does not.
            #[allow(
                deprecated,
                reason = "the replacement is unsafe, and the reason for it does not apply to an OwnedFd"
            )]
            let watch = AsyncFd::with_interest(watch, Interest::READABLE);
            let Ok(watch) = watch else { return };
            if watch.readable().await.is_err() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Watches the file, and reads it. Its rules are returned if it says something else than it did.
    fn look(file: &RulesFile, last: Option<&Content>) -> io::Result<(OwnedFd, Content, Option<Result<Rules>>)> {
        let watch = watch(&file.path)?;
        let content = file.read().map_err(|error| error.to_string());
        let loaded = (last != Some(&content)).then(|| file.load());
        Ok((watch, content, loaded))
    }

    fn apply(engine: &Engine, file: &RulesFile, loaded: Result<Rules>, is_first: bool) {
        match loaded {
            Ok(rules) => {
                if !is_first {
                    tracing::info!("read the agent rules {}", file.path.display());
                }
                engine.set_agent_rules(rules);
            }
            Err(error) => {
                if !is_first {
                    tracing::warn!("{error}; the rules that were read before stay in effect");
                }
                let kept = Rules::clone(&engine.agent_rules());
                engine.set_agent_rules(kept.with_error(&error));
            }
        }
    }

    /// Watches the directory of the file, and that of its target if it is a link. A directory that is
    /// missing is awaited in the nearest one above; one on the way that is moved, or a link that is
    /// pointed elsewhere, is a change too.
    fn watch(path: &Path) -> io::Result<OwnedFd> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let add = |folder: &Path, flags: WatchFlags| {
            match inotify::add_watch(&queue, folder, flags | WatchFlags::ONLYDIR | WatchFlags::MASK_ADD) {
                // It has gone meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
                added => added.map(drop),
            }
        };
        let target = path.canonicalize().ok();
        for folder in [Some(path), target.as_deref()].into_iter().flatten().filter_map(Path::parent) {
            for above in folder.ancestors().filter(|above| above.parent().is_some()) {
                add(above, ITSELF)?;
                if let Some(parent) = above.parent().filter(|_| above.is_symlink()) {
                    add(parent, PARENT)?;
                }
            }
            let nearest = || folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
            let mut there = nearest();
            loop {
                add(there, if there == folder { FILE } else { PARENT })?;
                // A directory may have come before its parent was watched.
                let now = nearest();
                if now == there {
                    break;
                }
                there = now;
            }
        }
        Ok(queue)
    }
}
