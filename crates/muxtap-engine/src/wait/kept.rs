//! Results of waits that their callers have left, in files: they outlive the daemon.
//!
//! A wait gets a file when the response to its caller is `pending`. The file first says that the wait has
//! begun, then how it ended. If the file has no end and the wait is not open, the daemon was killed: the
//! outcome is unknown, and the response says so.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use muxtap_api::{Error, Result, WaitAnswer};
use muxtap_base::files::{Existing, check_private_folder, read_secret, write_secret};
use serde::{Deserialize, Serialize};

use crate::limits;

/// What a file says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kept {
    Begun,
    Ended(Box<WaitAnswer>),
}

/// The waits whose results are kept in a folder; none without a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptWaits {
    folder: Option<Arc<Path>>,
    /// The ids of the waits that have a file.
    ids: Arc<Mutex<BTreeSet<String>>>,
}

impl KeptWaits {
    /// Continues a folder, which need not exist.
    pub(crate) fn in_folder(folder: Option<&Path>) -> Self {
        let kept = Self { folder: folder.map(Into::into), ids: Arc::default() };
        let known = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
        let ids = known.filter_map(|file| Some(id_in(&file.ok()?.path())?.to_owned()));
        kept.ids().extend(ids);
        kept.prune(&BTreeSet::new(), SystemTime::now());
        kept
    }

    /// Returns whether a wait was noted.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids().contains(id)
    }

    /// Notes that a wait continues without its caller. A wait that cannot be noted continues all the
    /// same. `open`: the ids of all open waits, whose files stay.
    pub(super) async fn begin(&self, id: &str, open: BTreeSet<String>) {
        let Some(path) = self.path(id) else { return };
        if !self.ids().insert(id.to_owned()) {
            return;
        }
        let store = self.clone();
        self.write(id, move || {
            store.prune(&open, SystemTime::now());
            // A result that is there already stays.
            store_file(&path, &Kept::Begun, Existing::Keep)
        })
        .await;
    }

    /// Stores how a wait ended, if it was noted.
    pub(super) async fn end(&self, id: &str, answer: impl FnOnce() -> WaitAnswer) {
        // Most waits have a caller that stays: they cost one look into the set.
        if !self.contains(id) {
            return;
        }
        let Some(path) = self.path(id) else { return };
        let kept = Kept::Ended(Box::new(answer()));
        self.write(id, move || store_file(&path, &kept, Existing::Replace)).await;
    }

    /// Returns how a wait ended that a caller names again by its key, if that is kept.
    pub(super) async fn result_of_key(&self, id: &str) -> Option<WaitAnswer> {
        if self.contains(id) { self.result(id).await.ok() } else { None }
    }

    /// Returns how a wait ended.
    ///
    /// Error: `NOT_FOUND` if nothing is known of it, or not its end.
    pub(super) async fn result(&self, id: &str) -> Result<WaitAnswer> {
        let hours = limits::KEEP_LEFT_WAITS.as_secs() / 3600;
        let minutes = limits::KEEP.as_secs() / 60;
        let unknown = || {
            Error::not_found(format!(
                "no wait {id}; a result is kept for {minutes} minutes, and for {hours} hours in the background"
            ))
        };
        let path = self.path(id).ok_or_else(unknown)?;
        // Another daemon may have stored it.
        let read = tokio::task::spawn_blocking(move || {
            check_private_folder(path.parent()?).ok()?;
            let (text, about) = read_secret(&path, limits::LEFT_WAIT_BYTES).ok()?;
            (!is_old(about.modified().ok()?, SystemTime::now())).then_some(text)
        });
        let text = read.await.ok().flatten().ok_or_else(unknown)?;
        match serde_json::from_str(&text) {
            Ok(Kept::Ended(answer)) => Ok(*answer),
            Ok(Kept::Begun) => Err(Error::not_found(format!(
                "the outcome of wait {id} is unknown: the daemon that watched its panes was killed; to count what is \
                 there by now, wait again with `since` `start` or `screen`"
            ))),
            Err(error) => Err(Error::internal(format!("the result of wait {id} cannot be read: {error}"))),
        }
    }

    async fn write(&self, id: &str, work: impl FnOnce() -> io::Result<()> + Send + 'static) {
        if let Ok(Err(error)) = tokio::task::spawn_blocking(work).await {
            tracing::warn!("the result of wait {id} will not outlive this daemon: {error}");
            self.ids().remove(id);
        }
    }

    /// Drops the files of waits that ended, or began, too long ago, and the oldest ones beyond the limit;
    /// not those of open waits.
    fn prune(&self, open: &BTreeSet<String>, now: SystemTime) {
        let Some(folder) = self.folder.as_ref().filter(|folder| check_private_folder(folder).is_ok()) else { return };
        let files = fs::read_dir(&**folder).into_iter().flatten().flatten();
        let aged = files.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())));
        let is_open = |path: &Path| id_in(path).is_some_and(|id| open.contains(id));
        let mut aged: Vec<(SystemTime, PathBuf)> = aged.filter(|(_, path)| !is_open(path)).collect();
        aged.sort();
        let over = aged.len().saturating_sub(limits::LEFT_WAITS);
        for (place, (at, path)) in aged.iter().enumerate() {
            if place < over || is_old(*at, now) {
                let _ = fs::remove_file(path);
                if let Some(id) = id_in(path) {
                    self.ids().remove(id);
                }
            }
        }
    }

    /// Returns the file of a wait. `None`: nothing is kept, or the id is not one of a wait.
    fn path(&self, id: &str) -> Option<PathBuf> {
        let is_plain =
            !id.is_empty() && id.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
        let is_id = is_plain && id.len() <= limits::WAIT_ID_BYTES;
        self.folder.as_ref().filter(|_| is_id).map(|folder| folder.join(format!("{id}.json")))
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the id of the wait whose file this is.
fn id_in(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(".json")
}

fn is_old(at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(at).unwrap_or(Duration::ZERO) >= limits::KEEP_LEFT_WAITS
}

fn store_file(path: &Path, kept: &Kept, existing: Existing) -> io::Result<()> {
    let text = serde_json::to_string(kept)?;
    if text.len() as u64 >= limits::LEFT_WAIT_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long"));
    }
    write_secret(path, &text, existing)
}

#[cfg(test)]
mod tests {
    use muxtap_api::WaitOutcome;
    use serde_json::json;

    use super::*;

    fn answer(id: &str) -> WaitAnswer {
        let text = json!({
            "id": id, "outcome": "matched", "duration_ms": 1.0, "pane": "%1", "predicates": [],
        });
        serde_json::from_value(text).unwrap()
    }

    #[tokio::test]
    async fn a_result_outlives_its_daemon_and_a_killed_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("waits");
        let first = KeptWaits::in_folder(Some(&folder));
        first.begin("w1", BTreeSet::new()).await;
        first.begin("w2", BTreeSet::new()).await;
        first.end("w1", || answer("w1")).await;
        // A wait whose caller did not leave has no file.
        first.end("w3", || answer("w3")).await;
        let next = KeptWaits::in_folder(Some(&folder));
        for known in [&first, &next] {
            assert_eq!(known.result("w1").await.unwrap().outcome, WaitOutcome::Matched);
            assert!(known.result("w2").await.unwrap_err().message.contains("was killed"));
            assert!(known.result("w3").await.unwrap_err().message.contains("no wait w3"));
        }
        // The end may be stored before the begin.
        next.begin("w4", BTreeSet::new()).await;
        next.end("w4", || answer("w4")).await;
        next.ids().remove("w4");
        next.begin("w4", BTreeSet::new()).await;
        assert_eq!(next.result("w4").await.unwrap().id, "w4");
    }

    #[tokio::test]
    async fn files_are_private_bounded_in_age_and_named_only_by_ids() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptWaits::in_folder(Some(dir.path()));
        kept.begin("w1", BTreeSet::new()).await;
        let mode = fs::metadata(dir.path().join("w1.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for id in ["../w", "a/b", "", "w.json", &"w".repeat(200)] {
            kept.begin(id, BTreeSet::new()).await;
            assert!(kept.result(id).await.is_err());
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let later = SystemTime::now() + limits::KEEP_LEFT_WAITS + Duration::from_secs(1);
        kept.prune(&BTreeSet::from(["w1".to_owned()]), later);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the wait is open");
        kept.prune(&BTreeSet::new(), later);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(kept.result("w1").await.is_err());
        KeptWaits::in_folder(None).begin("w1", BTreeSet::new()).await;
    }
}
