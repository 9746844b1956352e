//! The audit log: one line with a JSON object for each action that changed a terminal or was
//! refused.
//!
//! Only the user can access the file (0600). It is rotated when it is full. A separate thread
//! writes it, so a hanging disk delays no caller. Entries that cannot be written are counted and
//! logged, and block no request.
//!
//! The log contains a keyed hash of typed text instead of the text: with a plain hash, a reader of
//! the log could find a short password by trial. The key is a file beside the log
//! (`audit.jsonl.key`).

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::{Duration, Instant},
};

use crate::input::unhex;
use hmac::{Hmac, KeyInit as _, Mac as _};
use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::{
    files::{self, Existing, FileError, OpenToOthers, SecretError},
    metrics,
};
use rustix::fs::{FlockOperation, OFlags};
use serde::Serialize;
use sha2::Sha256;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::watch;

/// Size at which the file is rotated, unless configured otherwise.
pub const AUDIT_BYTES: u64 = 10 * 1024 * 1024;
/// Rotated files that are kept; `audit.jsonl.1` is the newest.
pub const AUDIT_FILES: usize = 3;
/// Entries that wait for the disk; beyond this limit, the newest are lost (and counted).
const QUEUE: usize = 4096;
/// How long lines are gathered after one was written.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes of lines that are written in one call.
const BATCH_BYTES: usize = 256 * 1024;
/// Refused actions that are recorded in a burst. A caller without permission to change anything
/// must not displace the records of changes.
const REFUSED: u32 = 256;
/// The interval at which further refused actions are recorded; each record counts those omitted
/// before it.
const REFUSED_PACE: Duration = Duration::from_secs(10);
/// Recorded bytes of a target.
const TARGET_BYTES: usize = 1024;
/// Random bytes of the key.
const KEY_BYTES: usize = 32;
/// The largest key file that is read, in bytes; a larger file contains no key.
const KEY_FILE_BYTES: u64 = 4096;
/// Time that the disk may take when the log is closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A record of one action.
#[derive(Serialize)]
pub struct Entry<'a> {
    /// The interface through which the caller came.
    pub face: &'a str,
    /// The caller's process or address, as far as it is known.
    pub who: &'a str,
    /// The credential of a caller over TCP: `token`, `page` or `device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'a str>,
    /// The tmux server's socket; empty for an action that belongs to no server.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub server: &'a str,
    /// The target as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<&'a str>,
    /// The id that the target resolved to: `%3`, `@1`, `$0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pane: Option<&'a str>,
    /// The action.
    pub action: &'a str,
    /// `ok`, an error's code, or `abandoned` when the caller left before the result was known.
    pub result: &'a str,
    /// The number of typed bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// HMAC-SHA-256 of the typed bytes, with the key beside the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hmac: Option<String>,
    /// How long the action took, in milliseconds.
    pub ms: u64,
}

#[derive(Serialize)]
struct Stamped<'a> {
    at: String,
    #[serde(flatten)]
    entry: &'a Entry<'a>,
    /// The number of refused actions before this one that have no line.
    #[serde(skip_serializing_if = "is_zero")]
    omitted: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Limits how many refused actions an audit log records. Otherwise a caller without permission to
/// change anything could rotate the log.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<(Option<Instant>, u64)>);

impl Refusals {
    /// Returns whether to record a refused action now: the number of unrecorded ones before it, or
    /// `None`.
    pub fn record(&self) -> Option<u64> {
        self.record_at(Instant::now())
    }

    fn record_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (full, omitted) = &mut *state;
        let next = full.map_or(now, |full| full.max(now)) + REFUSED_PACE;
        if next.saturating_duration_since(now) > REFUSED_PACE * REFUSED {
            *omitted += 1;
            return None;
        }
        *full = Some(next);
        Some(std::mem::take(omitted))
    }

    /// Returns whether an error code means that the caller lacks permission for the request.
    pub fn is_refusal(code: &str) -> bool {
        [ErrorCode::ReadOnly.as_str(), ErrorCode::Unauthorized.as_str()].contains(&code)
    }
}

/// The key of an audit log's hashes.
#[derive(Clone, Debug)]
pub struct AuditKey(Hmac<Sha256>);

impl AuditKey {
    /// Reads the key of the log at this path. Errors: `CONFLICT` if the key is missing, malformed
    /// or accessible to others; `UNAUTHORIZED` if the file is another user's.
    pub fn of(log: &Path) -> Result<Self> {
        let path = key_file(log);
        let refuse_as = |code, why: &str| Error::new(code, format!("the audit log's key, {}, {why}", path.display()));
        let refuse = |why: &str| refuse_as(ErrorCode::Conflict, why);
        let (text, _) = files::read_secret(&path, KEY_FILE_BYTES).map_err(|error| match error {
            SecretError::Foreign(why) => refuse_as(ErrorCode::Unauthorized, &why),
            SecretError::Open(why) => refuse(&format!(
                "{why}: remove it, and the next daemon creates another (earlier input can then no longer be checked)"
            )),
            SecretError::Unreadable(why) => refuse(&why),
        })?;
        let bytes = unhex(text.trim()).ok().filter(|bytes| bytes.len() == KEY_BYTES);
        let key = bytes.and_then(|bytes| Hmac::new_from_slice(&bytes).ok());
        let malformed = || refuse(&format!("contains no valid key ({} hexadecimal digits): remove it", 2 * KEY_BYTES));
        key.map(Self).ok_or_else(malformed)
    }

    /// Reads the key, and creates it first if it is missing.
    fn of_or_new(log: &Path) -> Result<Self> {
        let path = key_file(log);
        if fs::symlink_metadata(&path).is_err() {
            let mut random = [0; KEY_BYTES];
            getrandom::fill(&mut random)
                .map_err(|error| Error::internal(format!("cannot get random bytes: {error}")))?;
            files::write_secret(&path, &hex(&random), Existing::Keep).map_err(|error| {
                let path = path.display();
                Error::new(ErrorCode::Conflict, format!("cannot write the audit log's key {path}: {error}"))
            })?;
        }
        Self::of(log)
    }

    /// Returns the keyed hash of typed input, in the log's format.
    pub fn hash(&self, typed: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(typed);
        hex(&mac.finalize().into_bytes())
    }
}

/// Returns the path of the key file of the log at this path.
pub fn key_file(log: &Path) -> PathBuf {
    with_suffix(log, ".key")
}

/// Returns the files of the log at this path, from the oldest to the current one.
pub fn log_files(log: &Path) -> Vec<PathBuf> {
    let old = (1..=AUDIT_FILES).rev().map(|number| with_suffix(log, &format!(".{number}")));
    old.chain([log.to_owned()]).collect()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The open log, with the key of its hashes.
#[derive(Debug)]
pub struct Audit {
    key: AuditKey,
    log: LineLog,
    refusals: Refusals,
}

/// A log with one JSON object per line, in a file that only the user can access and that is rotated
/// when it is full. Dropping the log writes its queued lines.
#[derive(Debug)]
pub struct LineLog {
    queue: Option<mpsc::SyncSender<Vec<u8>>>,
    written: Mutex<mpsc::Receiver<()>>,
    current: Current,
    changes: watch::Receiver<u64>,
}

/// The file that is written now, for a daemon that takes over. `None`: it is closed.
type Current = Arc<Mutex<Option<File>>>;

impl Audit {
    /// Opens the log and its key, or creates them. Errors: `CONFLICT` if one of the files is
    /// accessible to others or cannot be written; `UNAUTHORIZED` if one is another user's.
    pub fn open(path: &Path, most: u64) -> Result<Self> {
        Self::continued(path, most, None)
    }

    /// Opens the log and its key as [`Self::open`] does. `handed`: the file that another daemon writes,
    /// from which this one takes over ([`Self::file`]).
    #[doc(hidden)]
    pub fn continued(path: &Path, most: u64, handed: Option<File>) -> Result<Self> {
        let log = LineLog::continued(path, most, handed)?;
        // The log's lock is held by now, so no two processes create a key.
        Ok(Self { key: AuditKey::of_or_new(path)?, log, refusals: Refusals::default() })
    }

    /// Returns the key of the log's hashes.
    pub fn key(&self) -> &AuditKey {
        &self.key
    }

    /// Returns the file that is written now, with its lock.
    #[doc(hidden)]
    pub fn file(&self) -> Option<File> {
        lock(&self.log.current).as_ref().and_then(|file| file.try_clone().ok())
    }

    /// Returns what changes whenever lines were written.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.log.changes.clone()
    }

    /// Writes the queued lines, and then no more: another daemon writes the log from now on.
    pub(crate) fn close(&self) {
        if let Some(queue) = &self.log.queue {
            // A full queue is written soon, and this thread has nothing else to do by now.
            let _ = queue.send(CLOSE.to_vec());
        }
    }

    /// Adds an entry. Beyond a limit, refused actions are counted instead of recorded.
    pub fn record(&self, entry: &Entry<'_>) {
        let is_refused = Refusals::is_refusal(entry.result);
        let Some(omitted) = (if is_refused { self.refusals.record() } else { Some(0) }) else {
            metrics::AUDIT_OMITTED.increment(1);
            return;
        };
        let target = entry.target.map(|target| shortened(target, TARGET_BYTES));
        self.log.write(&Stamped {
            at: timestamp(),
            entry: &Entry { target, hmac: entry.hmac.clone(), ..*entry },
            omitted,
        });
    }
}

/// The line after which the thread that writes ends.
const CLOSE: &[u8] = b"";

fn lock(current: &Current) -> MutexGuard<'_, Option<File>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a text cut to at most this many bytes, at the end of a character.
pub(crate) fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).filter(|end| *end < text.len());
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Returns the current time in the log's format.
pub fn timestamp() -> String {
    let at = OffsetDateTime::now_utc();
    at.replace_millisecond(at.millisecond()).unwrap_or(at).format(&Rfc3339).unwrap_or_default()
}

impl LineLog {
    /// Opens or creates the log, which is rotated at `most` bytes. Errors: `CONFLICT` if the log is
    /// accessible to others or cannot be written; `UNAUTHORIZED` if it or a rotated file is another
    /// user's.
    pub fn open(path: &Path, most: u64) -> Result<Self> {
        Self::continued(path, most, None)
    }

    fn continued(path: &Path, most: u64, handed: Option<File>) -> Result<Self> {
        let current = Current::default();
        let opened = LogFile::check_rotated(path).and_then(|()| LogFile::open(path, most, handed, current.clone()));
        let file = opened.map_err(|error| {
            let code =
                if matches!(error, FileError::Foreign(_)) { ErrorCode::Unauthorized } else { ErrorCode::Conflict };
            Error::new(code, format!("cannot write the audit log {}: {error}", path.display()))
        })?;
        let (queue, lines) = mpsc::sync_channel(QUEUE);
        let (tell, written) = mpsc::channel();
        let (batches, changes) = watch::channel(0);
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || {
                let current = file.current.clone();
                write_all(file, &lines, &batches);
                *lock(&current) = None;
                drop(tell);
            })
            .map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?;
        Ok(Self { queue: Some(queue), written: Mutex::new(written), current, changes })
    }

    /// Adds a line without waiting. If the queue is full, the line is lost and counted.
    pub fn write(&self, entry: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(entry) else { return };
        line.push(b'\n');
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(line).is_err()) {
            metrics::AUDIT_LOST.increment(1);
        }
    }
}

impl Drop for LineLog {
    fn drop(&mut self) {
        self.queue = None;
        // Disconnected: the thread has ended.
        let _ = self.written.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(CLOSE_LIMIT);
    }
}

/// Writes lines, all queued ones at once: a program with a thousand requests per second does not
/// cost a write and a wake-up for each.
fn write_all(mut file: LogFile, lines: &mpsc::Receiver<Vec<u8>>, batches: &watch::Sender<u64>) {
    let (mut failing, mut next) = (false, None);
    while let Some(first) = next.take().or_else(|| lines.recv().ok()).filter(|line| line != CLOSE) {
        let (mut length, mut batch) = (first.len(), vec![first]);
        while length < BATCH_BYTES
            && let Ok(line) = lines.try_recv()
        {
            if line == CLOSE || !file.has_room(length + line.len()) {
                next = Some(line);
                break;
            }
            length += line.len();
            batch.push(line);
        }
        let written = file.write(&batch.concat());
        // On a nearly full disk, each line may use the space that is left.
        let each = if written.is_err() { &batch[..] } else { &[] };
        for line in each {
            match file.write(line) {
                Ok(()) => failing = false,
                Err(error) => {
                    metrics::AUDIT_LOST.increment(1);
                    if !std::mem::replace(&mut failing, true) {
                        tracing::error!("cannot write the audit log {}: {error}", file.path.display());
                    }
                }
            }
        }
        failing &= written.is_err();
        batches.send_modify(|number| *number += 1);
        if next.is_none() {
            // Senders cause no wake-ups meanwhile: their lines are gathered.
            std::thread::sleep(GATHER);
        }
    }
}

struct LogFile {
    path: PathBuf,
    file: File,
    length: u64,
    most: u64,
    current: Current,
}

impl LogFile {
    fn open(path: &Path, most: u64, handed: Option<File>, current: Current) -> Result<Self, FileError> {
        if let Some(dir) = path.parent() {
            files::make_private_folder(dir)?;
        }
        let access = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let file = files::open_private(path, access, OpenToOthers::Refused).map_err(|error| match error {
            FileError::Open(why) => FileError::Open(format!("it {why}: chmod 600 it")),
            FileError::Foreign(why) => FileError::Foreign(format!("it {why}")),
            FileError::Io(error) => FileError::Io(error),
        })?;
        let found = file.metadata().map_err(FileError::Io)?;
        let is_same = |handed: &File| {
            handed.metadata().is_ok_and(|handed| (handed.dev(), handed.ino()) == (found.dev(), found.ino()))
        };
        // The lock belongs to the open file, which both processes have.
        let file = handed.filter(is_same).unwrap_or(file);
        // Two processes that rotate one file would destroy each other's lines.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| FileError::Open("another muxtap writes to it: set audit_file to another path".into()))?;
        *lock(&current) = file.try_clone().ok();
        Ok(Self { path: path.to_owned(), length: found.len(), file, most, current })
    }

    /// Checks that no other user's file takes the place of a rotated one.
    fn check_rotated(path: &Path) -> Result<(), FileError> {
        for old in log_files(path).into_iter().filter(|old| old != path) {
            match files::open_private(&old, OFlags::RDONLY, OpenToOthers::Kept) {
                Err(FileError::Foreign(why)) => return Err(FileError::Foreign(format!("{} {why}", old.display()))),
                // A missing or unreadable file does not prevent rotation.
                Ok(_) | Err(FileError::Open(_) | FileError::Io(_)) => {}
            }
        }
        Ok(())
    }

    /// Returns whether this many bytes fit before the file is rotated.
    fn has_room(&self, bytes: usize) -> bool {
        self.length + bytes as u64 <= self.most
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let full = self.length > 0 && !self.has_room(line.len());
        if full && let Err(error) = self.turn() {
            tracing::warn!("cannot rotate the audit log {}: {error}; it keeps growing", self.path.display());
            // Rotation is tried again once `most` more bytes have been written.
            self.length = 0;
        }
        let before = self.file.metadata()?.len();
        let written = self.file.write_all(line);
        if written.is_err() {
            // A full disk accepts half a line, which must not corrupt the next one.
            let _ = self.file.set_len(before);
        } else {
            self.length += line.len() as u64;
        }
        written
    }

    /// Rotates the files: the current one becomes the newest old one, and the oldest is removed.
    fn turn(&mut self) -> io::Result<()> {
        Self::check_rotated(&self.path)?;
        let old = |number: usize| with_suffix(&self.path, &format!(".{number}"));
        for number in (1..AUDIT_FILES).rev() {
            match fs::rename(old(number), old(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match fs::rename(&self.path, old(1)) {
            // The file was moved away.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        *self = Self::open(&self.path, self.most, None, self.current.clone())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn entry(action: &str) -> Entry<'_> {
        Entry {
            face: "unix",
            who: "uid 1",
            by: None,
            server: "/tmp/s",
            target: Some("work"),
            pane: Some("%1"),
            action,
            result: "ok",
            bytes: None,
            hmac: None,
            ms: 1,
        }
    }

    #[test]
    fn audit_entries_are_ordered_lines_in_a_private_rotated_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/audit.jsonl");
        let audit = Audit::open(&path, 4096).unwrap();
        let names: Vec<String> = (0..100).map(|number| format!("act-{number}")).collect();
        for name in &names {
            audit.record(&entry(name));
        }
        drop(audit);
        let mut text = String::new();
        for number in (1..=AUDIT_FILES).rev() {
            text += &fs::read_to_string(format!("{}.{number}", path.display())).unwrap();
        }
        text += &fs::read_to_string(&path).unwrap();
        let kept: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["action"].as_str().unwrap().to_owned())
            .collect();
        assert!(kept.len() > 50 && names.ends_with(&kept), "{kept:?}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::metadata(&path).unwrap().len() <= 4096);
    }

    /// S4: repeatedly refused callers displace no record of a change.
    #[test]
    fn refused_actions_do_not_rotate_the_log_and_a_long_target_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::open(&path, AUDIT_BYTES).unwrap();
        audit.record(&entry("a-real-one"));
        let long = "é".repeat(100_000);
        for result in ["READ_ONLY", "UNAUTHORIZED"] {
            for _ in 0..10_000 {
                audit.record(&Entry { result, target: Some(&long), ..entry("input") });
            }
        }
        drop(audit);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1 + REFUSED as usize);
        assert!(text.starts_with('{') && text.lines().next().unwrap().contains("a-real-one"));
        assert!(text.lines().all(|line| line.len() < TARGET_BYTES + 300), "a target of 200 kB is cut");
        assert!(!Path::new(&format!("{}.1", path.display())).exists());
    }

    #[test]
    fn unlogged_refusals_are_counted_in_the_next_entry() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        assert!((0..REFUSED).all(|_| refusals.record_at(now) == Some(0)));
        assert!((0..7).all(|_| refusals.record_at(now).is_none()));
        assert_eq!(refusals.record_at(now + REFUSED_PACE), Some(7));
        assert_eq!(refusals.record_at(now + REFUSED_PACE), None);
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Audit::open(&path, 4096).unwrap_err().message.contains("chmod 600"));
    }

    #[test]
    fn typed_text_is_hashed_with_a_key_that_is_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("audit.jsonl"), dir.path().join("other.jsonl"));
        let hash = |path: &Path| Audit::open(path, 4096).unwrap().key().hash(b"hunter2");
        let first = hash(&path);
        assert_eq!(first, hash(&path));
        assert_eq!(first, AuditKey::of(&path).unwrap().hash(b"hunter2"));
        assert_ne!(first, hash(&other), "of another log");
        assert_ne!(first, hex(&<Sha256 as sha2::Digest>::digest(b"hunter2")));
        assert_eq!(fs::metadata(key_file(&path)).unwrap().permissions().mode() & 0o777, 0o600);
        // RFC 4231, test case 2.
        let known = AuditKey(Hmac::new_from_slice(b"Jefe").unwrap()).hash(b"what do ya want for nothing?");
        assert_eq!(known, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn an_audit_key_open_to_others_malformed_or_behind_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let key = key_file(&path);
        let refused = || {
            let error = Audit::open(&path, 4096).unwrap_err();
            assert!(error.message.contains(key.to_str().unwrap()), "{error}");
            (error.code, error.message)
        };
        drop(Audit::open(&path, 4096).unwrap());
        let text = fs::read_to_string(&key).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let (code, message) = refused();
        assert!(code == ErrorCode::Conflict && message.contains("open to others (mode 0640): remove it"), "{message}");
        for wrong in ["", "xyz", &"0".repeat(63), &format!("{}00", text.trim())] {
            fs::write(&key, wrong).unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(refused().1.contains("contains no valid key (64 hexadecimal digits)"), "{wrong:?}");
        }
        fs::remove_file(&key).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        for there in [false, true] {
            if there {
                fs::write(&elsewhere, &text).unwrap();
                fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o600)).unwrap();
            }
            let _ = fs::remove_file(&key);
            std::os::unix::fs::symlink(&elsewhere, &key).unwrap();
            assert!(refused().1.contains("symbolic link"));
            assert_eq!(elsewhere.exists(), there);
        }
        fs::remove_file(&key).unwrap();
        fs::create_dir(&key).unwrap();
        assert!(refused().1.contains("is a directory"));
    }

    #[test]
    fn lines_for_a_full_disk_are_counted_as_lost() {
        let path = Path::new("/dev/full");
        if !path.exists() {
            eprintln!("this system has no /dev/full: not tested");
            return;
        }
        let file = OpenOptions::new().append(true).open(path).unwrap();
        let mut file = LogFile { path: path.to_owned(), file, length: 0, most: 4096, current: Current::default() };
        assert!(file.write(b"line\n").is_err());
        assert_eq!(file.length, 0);
        metrics::install();
        let (queue, lines) = mpsc::sync_channel(2);
        for line in [b"one\n", b"two\n"] {
            queue.send(line.to_vec()).unwrap();
        }
        drop(queue);
        write_all(file, &lines, &watch::Sender::new(0));
        assert!(metrics::render().contains("muxtap_audit_lost_total 2\n"), "{}", metrics::render());
    }
}
