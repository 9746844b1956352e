//! Keeps open questions in a folder, for a human at a terminal.
//!
//! A question is a file `ID.json` (0600) in a folder of the user's own (0700); its answer is a
//! field of it. Files are used and not the daemon, because the asking process may run without one,
//! and a question must survive neither of them. Invariants:
//! - A1: every change is made under the lock of `.lock`, so a question gets one answer: a second
//!   one is refused.
//! - A2: the asker holds a lock on `ID.alive` as long as it waits. Where no process holds it the
//!   asker has died; the question is swept away and never shown.
//! - A3: at the deadline the asker looks under the lock whether the question was answered; so a
//!   human who was shown `approved` has approved.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::{fs::FlockOperation, io::Errno};
use serde::{Deserialize, Serialize};

use super::{Decision, Request};
use crate::{
    nonce,
    supervise::store::{lock_file, now, replace_file},
};

/// A question as it stands in its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// The question's id: six hexadecimal digits.
    pub id: String,
    /// The kind of spawn: `session` or `window`.
    pub kind: String,
    /// The name of what is to be spawned.
    pub name: String,
    /// The prompt that Claude is to be given.
    pub prompt: String,
    /// The directory in which Claude is to work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The session that gets a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The time at which it was asked, ISO 8601.
    pub asked_at: String,
    /// The time at which it lapses, ISO 8601.
    pub until: String,
    /// The process that asks.
    pub pid: u32,
    /// A human's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Verdict>,
}

/// The answers that a human can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Yes.
    Approved,
    /// No.
    Denied,
}

/// Why an answer did not count.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// No question of this id is open.
    #[error("no question {0} is open; `muxtap approvals` lists those that are")]
    Unknown(String),
    /// The question was answered already.
    #[error("question {0} has been answered already")]
    Answered(String),
    /// The folder cannot be used.
    #[error("cannot use the folder of questions: {0}")]
    Unusable(#[from] io::Error),
}

/// The folder of questions. Every function reads and locks files: not for a thread that must not
/// block.
#[derive(Clone, Debug)]
pub struct Approvals {
    dir: PathBuf,
}

/// A question that this process asks. Dropping it takes the question away.
#[derive(Debug)]
pub struct AskedQuestion {
    folder: Approvals,
    id: String,
    /// The lock that says that the asker lives (A2).
    _alive: File,
}

/// Says that a terminal watches for questions, until it is dropped.
#[derive(Debug)]
pub struct WatchGuard {
    _lock: File,
}

impl Approvals {
    /// Makes a handle to the questions in this folder; nothing is made yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Returns the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a question. `until`: when it lapses, ISO 8601.
    pub fn ask(&self, request: &Request, until: String) -> io::Result<AskedQuestion> {
        let _lock = self.lock()?;
        let (id, alive) = loop {
            let id = new_id();
            if !self.file(&id).exists() {
                let alive = lock_file(&self.alive_file(&id))?;
                break (id, alive);
            }
        };
        let open = OpenQuestion {
            id: id.clone(),
            kind: request.kind().into(),
            name: request.name.clone(),
            prompt: request.prompt.clone(),
            working_dir: request.directory.clone(),
            session: request.session.clone(),
            asked_at: now(),
            until,
            pid: std::process::id(),
            answer: None,
        };
        replace_file(&self.file(&id), &serde_json::to_vec_pretty(&open)?)?;
        Ok(AskedQuestion { folder: self.clone(), id, _alive: alive })
    }

    /// Returns the questions that wait for an answer, oldest first. Those of askers that have died
    /// are swept away.
    pub fn open_questions(&self) -> io::Result<Vec<OpenQuestion>> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let Some(id) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json").map(str::to_owned))
            else {
                continue;
            };
            if self.is_abandoned(&id)? {
                self.sweep(&id);
                continue;
            }
            // A question that cannot be read cannot be answered.
            if let Ok(open) = serde_json::from_slice::<OpenQuestion>(&fs::read(&path)?)
                && open.answer.is_none()
                && open.id == id
            {
                found.push(open);
            }
        }
        found.sort_by(|one, other| (&one.asked_at, &one.id).cmp(&(&other.asked_at, &other.id)));
        Ok(found)
    }

    /// Answers a question. When this succeeds the asker acts on it, unless it dies.
    pub fn answer(&self, id: &str, word: Verdict) -> Result<(), AnswerError> {
        let unknown = || AnswerError::Unknown(id.to_owned());
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) || !self.dir.exists() {
            return Err(unknown());
        }
        let _lock = self.lock()?;
        let mut open = self.read(id)?.ok_or_else(unknown)?;
        if self.is_abandoned(id)? {
            self.sweep(id);
            return Err(unknown());
        }
        if open.answer.is_some() {
            return Err(AnswerError::Answered(id.to_owned()));
        }
        open.answer = Some(word);
        replace_file(&self.file(id), &serde_json::to_vec_pretty(&open).map_err(io::Error::from)?)?;
        Ok(())
    }

    /// Says that a terminal watches from now on.
    pub fn watch(&self) -> io::Result<WatchGuard> {
        let _lock = self.lock()?;
        let lock = open_file(&self.watchers_file())?;
        rustix::fs::flock(&lock, FlockOperation::LockShared)?;
        Ok(WatchGuard { _lock: lock })
    }

    /// Returns whether a terminal watches.
    pub fn is_watched(&self) -> io::Result<bool> {
        if !self.watchers_file().exists() {
            return Ok(false);
        }
        // A look locks for a moment; another look in that moment must not take it for a terminal
        // that watches.
        let _turn = self.lock()?;
        is_locked(&self.watchers_file())
    }

    fn file(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    fn alive_file(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.alive"))
    }

    fn watchers_file(&self) -> PathBuf {
        self.dir.join(".watchers")
    }

    /// Locks the folder. Makes it where it is missing; it must be the user's own.
    fn lock(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let found = fs::symlink_metadata(&self.dir)?;
        if !found.is_dir() || found.uid() != rustix::process::getuid().as_raw() || found.mode() & 0o022 != 0 {
            let why = format!("{} must be a folder of yours that nobody else can write to", self.dir.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        lock_file(&self.dir.join(".lock"))
    }

    fn read(&self, id: &str) -> io::Result<Option<OpenQuestion>> {
        match fs::read(self.file(id)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_abandoned(&self, id: &str) -> io::Result<bool> {
        match is_locked(&self.alive_file(id)) {
            Ok(held) => Ok(!held),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn sweep(&self, id: &str) {
        // What cannot be removed is swept the next time.
        let _ = fs::remove_file(self.file(id));
        let _ = fs::remove_file(self.alive_file(id));
    }
}

impl AskedQuestion {
    /// Returns the question's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the answer so far.
    pub fn answer(&self) -> io::Result<Option<Decision>> {
        let open = self.folder.read(&self.id)?;
        Ok(open.and_then(|open| open.answer).map(Verdict::decision))
    }

    /// Takes the question away, and returns the answer up to now. After this it cannot be answered
    /// (A3).
    pub fn close(self) -> io::Result<Option<Decision>> {
        let _lock = self.folder.lock()?;
        let answer = self.answer();
        self.folder.sweep(&self.id);
        answer
    }
}

impl Drop for AskedQuestion {
    fn drop(&mut self) {
        self.folder.sweep(&self.id);
    }
}

impl Verdict {
    const fn decision(self) -> Decision {
        match self {
            Self::Approved => Decision::Approved,
            Self::Denied => Decision::Denied,
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// Returns whether some process holds the lock of this file.
fn is_locked(path: &Path) -> io::Result<bool> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn new_id() -> String {
    format!("{:06x}", nonce::number() & 0x00ff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request { name: "n".into(), prompt: "p".into(), directory: None, session: None }
    }

    fn folder() -> (tempfile::TempDir, Approvals) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Approvals::new(dir.path().join("approvals"));
        (dir, folder)
    }

    #[test]
    fn a_question_is_answered_once() {
        let (_dir, folder) = folder();
        assert!(folder.open_questions().unwrap().is_empty());
        let asked = folder.ask(&request(), "later".into()).unwrap();
        let open = folder.open_questions().unwrap();
        assert_eq!((open.len(), open[0].id.as_str(), open[0].kind.as_str()), (1, asked.id(), "session"));
        assert_eq!(asked.answer().unwrap(), None);
        folder.answer(asked.id(), Verdict::Denied).unwrap();
        assert!(matches!(folder.answer(asked.id(), Verdict::Approved), Err(AnswerError::Answered(_))));
        assert!(folder.open_questions().unwrap().is_empty());
        let id = asked.id().to_owned();
        assert_eq!(asked.close().unwrap(), Some(Decision::Denied));
        assert!(matches!(folder.answer(&id, Verdict::Approved), Err(AnswerError::Unknown(_))));
    }

    #[test]
    fn a_question_whose_asker_has_died_is_swept_away() {
        let (_dir, folder) = folder();
        let asked = folder.ask(&request(), String::new()).unwrap();
        let id = asked.id().to_owned();
        let text = fs::read(folder.file(&id)).unwrap();
        drop(asked);
        // As a killed asker leaves it: the files are there and no process holds the lock.
        fs::write(folder.file(&id), text).unwrap();
        fs::write(folder.alive_file(&id), "").unwrap();
        assert!(matches!(folder.answer(&id, Verdict::Approved), Err(AnswerError::Unknown(_))));
        assert!(!folder.file(&id).exists() && !folder.alive_file(&id).exists());
    }

    #[test]
    fn whoever_watches_is_seen_while_they_do() {
        let (_dir, folder) = folder();
        assert!(!folder.is_watched().unwrap());
        let (one, other) = (folder.watch().unwrap(), folder.watch().unwrap());
        drop(one);
        assert!(folder.is_watched().unwrap());
        drop(other);
        assert!(!folder.is_watched().unwrap());
    }

    #[test]
    fn a_folder_of_others_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_dir, folder) = folder();
        drop(folder.ask(&request(), String::new()).unwrap());
        fs::set_permissions(folder.dir(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(folder.ask(&request(), String::new()).is_err());
    }

    #[test]
    fn a_name_is_never_a_path() {
        let (_dir, folder) = folder();
        let _asked = folder.ask(&request(), String::new()).unwrap();
        for id in ["", "../x", "a/b", "."] {
            assert!(matches!(folder.answer(id, Verdict::Approved), Err(AnswerError::Unknown(_))), "{id}");
        }
    }
}
