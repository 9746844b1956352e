//! Results of waits that their callers have left, in files: they outlive the daemon.
//!
//! A wait gets a file when the response to its caller is `pending`. The file first says that the wait has
//! begun, then how it ended. If the file has no end and the wait is not open, the daemon was killed: the
//! outcome is unknown, and the response says so.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use muxtap_api::{Error, KeptWait, Result, WaitAnswer};
use muxtap_base::files::{Existing, check_private_folder, read_secret, write_secret};
use serde::{Deserialize, Serialize};

use crate::{Caller, Principal, limits};

/// The stage of the error for a wait that ended with its daemon.
pub const UNKNOWN_OUTCOME: &str = "outcome-unknown";

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
    /// The ids of the waits that have a file, each with its caller; `None`: of an earlier daemon.
    ids: Arc<Mutex<BTreeMap<String, Option<Caller>>>>,
    /// Held while the files are listed: a listing reads all of them.
    listing: Arc<tokio::sync::Mutex<()>>,
}

impl KeptWaits {
    /// Continues a folder, which need not exist.
    pub(crate) fn in_folder(folder: Option<&Path>) -> Self {
        let kept = Self { folder: folder.map(Into::into), ..Self::default() };
        let known = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
        let ids = known.filter_map(|file| Some((id_in(&file.ok()?.path())?.to_owned(), None)));
        kept.ids().extend(ids);
        kept.prune(&BTreeSet::new(), SystemTime::now());
        kept
    }

    /// Returns whether a wait was noted.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids().contains_key(id)
    }

    /// Returns whether this caller left a wait to this daemon.
    pub(super) fn is_of(&self, id: &str, caller: &Caller) -> bool {
        self.ids().get(id).is_some_and(|known| *known == Some(keeper(caller)))
    }

    /// Notes that a wait continues without its caller. A wait that cannot be noted continues all the
    /// same. `open`: the ids of all open waits, whose files stay.
    ///
    /// Error: why the result will not outlive this daemon.
    pub(super) async fn begin(
        &self,
        id: &str,
        caller: &Caller,
        open: BTreeSet<String>,
    ) -> std::result::Result<(), String> {
        let Some(path) = self.path(id) else { return Err("this daemon keeps no results".to_owned()) };
        if let Some(known) = self.ids().get_mut(id) {
            // Of a wait from before this daemon, the file does not name the caller.
            known.get_or_insert_with(|| keeper(caller));
            return Ok(());
        }
        self.ids().insert(id.to_owned(), Some(keeper(caller)));
        let store = self.clone();
        self.write(id, move || {
            store.prune(&open, SystemTime::now());
            // A result that is there already stays.
            store_file(&path, &Kept::Begun, Existing::Keep)
        })
        .await
    }

    /// Leaves a wait to another daemon, which stores its result.
    pub(super) fn leave(&self, id: &str) {
        self.ids().remove(id);
    }

    /// Stores how a wait ended, if it was noted.
    pub(super) async fn end(&self, id: &str, answer: impl FnOnce() -> WaitAnswer) {
        // Most waits have a caller that stays: they cost one look into the set.
        if !self.contains(id) {
            return;
        }
        let Some(path) = self.path(id) else { return };
        let kept = Kept::Ended(Box::new(answer()));
        // A failure is in the log.
        let _ = self.write(id, move || store_file(&path, &kept, Existing::Replace)).await;
    }

    /// Lists the ended waits that have a file, the latest first. `here`: the ids of this daemon's waits,
    /// whose outcome is known even where it is not in the file yet. One listing reads at a time.
    pub(super) async fn list(&self, here: BTreeSet<String>) -> Vec<KeptWait> {
        let store = self.clone();
        let turn = self.listing.clone().lock_owned().await;
        let listed = tokio::task::spawn_blocking(move || {
            // Until the files are read, even if the caller leaves.
            let _turn = turn;
            let aged = store.aged(&BTreeSet::new());
            let kept = aged.iter().rev().filter_map(|(at, path)| kept_wait(*at, path));
            kept.filter(|wait| wait.outcome.is_some() || !here.contains(&wait.id)).collect()
        });
        listed.await.unwrap_or_default()
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
            ))
            .at_stage(UNKNOWN_OUTCOME)),
            Err(error) => Err(Error::internal(format!("the result of wait {id} cannot be read: {error}"))),
        }
    }

    async fn write(
        &self,
        id: &str,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> std::result::Result<(), String> {
        let Ok(Err(error)) = tokio::task::spawn_blocking(work).await else { return Ok(()) };
        tracing::warn!("the result of wait {id} will not outlive this daemon: {error}");
        self.ids().remove(id);
        Err(error.to_string())
    }

    /// Returns the files of waits that are not open, the oldest first.
    fn aged(&self, open: &BTreeSet<String>) -> Vec<(SystemTime, PathBuf)> {
        let folder = self.folder.as_ref().filter(|folder| check_private_folder(folder).is_ok());
        let files = folder.and_then(|folder| fs::read_dir(&**folder).ok()).into_iter().flatten().flatten();
        let aged = files.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())));
        let mut aged: Vec<_> = aged.filter(|(_, path)| id_in(path).is_some_and(|id| !open.contains(id))).collect();
        aged.sort();
        aged
    }

    /// Drops the files of waits that ended, or began, too long ago, and those beyond the limits: the oldest
    /// of the caller that has most. Not those of open waits.
    fn prune(&self, open: &BTreeSet<String>, now: SystemTime) {
        let mut of_callers: HashMap<Option<Caller>, VecDeque<PathBuf>> = HashMap::new();
        let mut over = Vec::new();
        for (at, path) in self.aged(open) {
            if is_old(at, now) {
                over.push(path);
                continue;
            }
            let caller = id_in(&path).and_then(|id| self.ids().get(id).cloned().flatten());
            of_callers.entry(caller).or_default().push_back(path);
        }
        loop {
            let kept: usize = of_callers.values().map(VecDeque::len).sum();
            let Some((caller, own)) = of_callers.iter_mut().max_by_key(|(_, own)| own.len()) else { break };
            if kept <= limits::LEFT_WAITS && (caller.is_none() || own.len() <= limits::CALLER_LEFT_WAITS) {
                break;
            }
            over.extend(own.pop_front());
        }
        for path in over {
            let _ = fs::remove_file(&path);
            if let Some(id) = id_in(&path) {
                self.ids().remove(id);
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

    fn ids(&self) -> MutexGuard<'_, BTreeMap<String, Option<Caller>>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the caller to which a kept result counts: all processes of a user are one.
fn keeper(caller: &Caller) -> Caller {
    let counted = caller.counted();
    let who = if let Principal::User(_) = counted.principal { String::new() } else { counted.who };
    Caller { who, ..counted }
}

/// Returns what a file says about its wait. `None`: it cannot be read.
fn kept_wait(at: SystemTime, path: &Path) -> Option<KeptWait> {
    let (text, _) = read_secret(path, limits::LEFT_WAIT_BYTES).ok()?;
    let since_1970 = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ended_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
    let kept = KeptWait { id: id_in(path)?.to_owned(), outcome: None, pane: None, line: None, ended_ms };
    Some(match serde_json::from_str(&text).ok()? {
        Kept::Begun => kept,
        Kept::Ended(answer) => KeptWait {
            outcome: Some(answer.outcome),
            pane: answer.pane,
            line: answer.predicates.into_iter().filter(|one| one.latched).find_map(|one| one.line),
            ..kept
        },
    })
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

    impl KeptWaits {
        async fn note(&self, id: &str) {
            self.begin(id, &Caller::default(), BTreeSet::new()).await.unwrap();
        }
    }

    fn caller(principal: Principal, who: &str) -> Caller {
        Caller { face: "unix", who: who.to_owned(), principal }
    }

    /// Writes the files of waits that this caller has left, each a second younger than the one before.
    fn leave(kept: &KeptWaits, caller: Option<&Caller>, ids: impl Iterator<Item = String>, begin: SystemTime) {
        for (second, id) in ids.enumerate() {
            store_file(&kept.path(&id).unwrap(), &Kept::Begun, Existing::Keep).unwrap();
            let file = fs::File::options().write(true).open(kept.path(&id).unwrap()).unwrap();
            file.set_modified(begin + Duration::from_secs(second as u64)).unwrap();
            kept.ids().insert(id, caller.map(keeper));
        }
    }

    #[test]
    fn a_caller_displaces_its_own_results_and_not_those_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptWaits::in_folder(Some(dir.path()));
        let now = SystemTime::now();
        let ago = |hours: u64| now - Duration::from_secs(hours * 3600);
        let (user, device) = (caller(Principal::User(7), "process 1"), caller(Principal::Device("d".into()), "::1"));
        // The oldest are those of the caller that has few.
        leave(&kept, Some(&user), (0..3).map(|at| format!("user{at}")), ago(20));
        leave(&kept, Some(&device), (0..=limits::CALLER_LEFT_WAITS).map(|at| format!("device{at}")), ago(2));
        kept.prune(&BTreeSet::new(), now);
        let count = |start: &str| kept.ids().keys().filter(|id| id.starts_with(start)).count();
        assert_eq!((count("user"), count("device")), (3, limits::CALLER_LEFT_WAITS));
        assert!(!kept.contains("device0") && kept.contains("device1"), "the oldest goes");
        // Files of an earlier daemon have no caller; they count as one, and share the rest.
        leave(&kept, None, (0..limits::LEFT_WAITS).map(|at| format!("earlier{at}")), ago(10));
        kept.prune(&BTreeSet::new(), now);
        assert!(count("user") == 3 && count("device") >= (limits::LEFT_WAITS - 3) / 2, "{}", count("device"));
        assert_eq!(kept.ids().len(), limits::LEFT_WAITS);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), limits::LEFT_WAITS);
    }

    #[test]
    fn all_processes_of_a_user_are_one_caller() {
        let of = |principal: &Principal, who: &str| keeper(&caller(principal.clone(), who));
        assert_eq!(of(&Principal::User(7), "process 1"), of(&Principal::User(7), "process 2"));
        assert_ne!(of(&Principal::User(7), "process 1"), of(&Principal::User(0), "process 1"));
        assert_ne!(of(&Principal::Token, "10.0.0.1"), of(&Principal::Token, "10.0.0.2"));
    }

    #[tokio::test]
    async fn one_listing_reads_the_files_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptWaits::in_folder(Some(dir.path()));
        kept.note("w1").await;
        let turn = kept.listing.lock().await;
        let mut listed = std::pin::pin!(kept.list(BTreeSet::new()));
        assert!(futures_util::poll!(&mut listed).is_pending());
        // It has not begun: it sees what is noted now.
        kept.note("w2").await;
        drop(turn);
        assert_eq!(listed.await.len(), 2);
    }

    #[tokio::test]
    async fn kept_results_are_listed_the_latest_first() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptWaits::in_folder(Some(dir.path()));
        leave(
            &kept,
            None,
            ["open", "killed"].map(str::to_owned).into_iter(),
            SystemTime::now() - Duration::from_secs(9),
        );
        kept.note("w1").await;
        kept.end("w1", || answer("w1")).await;
        fs::write(dir.path().join("w2.json"), "{").unwrap();
        fs::write(dir.path().join("notes.txt"), "not a wait").unwrap();
        let listed = kept.list(BTreeSet::from(["open".to_owned()])).await;
        let said: Vec<_> = listed.iter().map(|one| (one.id.as_str(), one.outcome)).collect();
        assert_eq!(said, [("w1", Some(WaitOutcome::Matched)), ("killed", None)]);
    }

    #[tokio::test]
    async fn a_result_that_cannot_be_kept_is_an_error_that_says_why() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("waits"), "not a folder").unwrap();
        let kept = KeptWaits::in_folder(Some(&dir.path().join("waits")));
        let why = kept.begin("w1", &Caller::default(), BTreeSet::new()).await.unwrap_err();
        assert!(!why.is_empty() && !kept.contains("w1"), "{why}");
    }

    #[tokio::test]
    async fn a_result_outlives_its_daemon_and_a_killed_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("waits");
        let first = KeptWaits::in_folder(Some(&folder));
        first.note("w1").await;
        first.note("w2").await;
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
        next.note("w4").await;
        next.end("w4", || answer("w4")).await;
        next.ids().remove("w4");
        next.note("w4").await;
        assert_eq!(next.result("w4").await.unwrap().id, "w4");
    }

    #[tokio::test]
    async fn files_are_private_bounded_in_age_and_named_only_by_ids() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptWaits::in_folder(Some(dir.path()));
        kept.note("w1").await;
        let mode = fs::metadata(dir.path().join("w1.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for id in ["../w", "a/b", "", "w.json", &"w".repeat(200)] {
            assert!(kept.begin(id, &Caller::default(), BTreeSet::new()).await.is_err());
            assert!(kept.result(id).await.is_err());
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let later = SystemTime::now() + limits::KEEP_LEFT_WAITS + Duration::from_secs(1);
        kept.prune(&BTreeSet::from(["w1".to_owned()]), later);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the wait is open");
        kept.prune(&BTreeSet::new(), later);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(kept.result("w1").await.is_err());
        let none = KeptWaits::in_folder(None);
        assert!(none.begin("w1", &Caller::default(), BTreeSet::new()).await.is_err());
    }
}
