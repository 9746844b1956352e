//! The audit log: one JSON object a line for everything that changed a terminal, or was refused.
//!
//! The file is the user's alone (0600) and is rotated when it is full. A thread of its own writes
//! it, so that a disk that hangs delays no caller. What cannot be written is counted and logged,
//! and hinders nobody.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, mpsc},
    time::Duration,
};

use rustix::fs::{FlockOperation, OFlags};
use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    api::{Error, ErrorCode, Result},
    metrics,
};

/// Size at which the file is rotated, unless configured otherwise.
pub const AUDIT_BYTES: u64 = 10 * 1024 * 1024;
/// Rotated files that are kept: `audit.jsonl.1` is the youngest.
pub const AUDIT_FILES: usize = 3;
/// Entries that wait for the disk; of more, the newest are lost (and counted).
const QUEUE: usize = 4096;
/// How long the disk may take when the log is closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A record of one action.
#[derive(Serialize)]
pub struct Entry<'a> {
    /// The face the caller came by.
    pub face: &'a str,
    /// The caller.
    pub who: &'a str,
    /// The tmux server's socket; empty for an action that belongs to none.
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
    /// How many bytes were typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// SHA-256 of those bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// How long the action took, in milliseconds.
    pub ms: u64,
}

#[derive(Serialize)]
struct Stamped<'a> {
    at: String,
    #[serde(flatten)]
    entry: &'a Entry<'a>,
}

/// The open log. Dropping it writes what waits.
#[derive(Debug)]
pub struct Audit {
    queue: Option<mpsc::SyncSender<Vec<u8>>>,
    written: Mutex<mpsc::Receiver<()>>,
}

impl Audit {
    /// Opens the log, or creates it. Error: `CONFLICT` where the file is not the user's alone or
    /// cannot be written.
    pub fn open(path: &Path, most: u64) -> Result<Self> {
        let file = LogFile::open(path, most).map_err(|error| {
            Error::new(ErrorCode::Conflict, format!("cannot write the audit log {}: {error}", path.display()))
        })?;
        let (queue, lines) = mpsc::sync_channel(QUEUE);
        let (tell, written) = mpsc::channel();
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || {
                write_all(file, &lines);
                drop(tell);
            })
            .map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?;
        Ok(Self { queue: Some(queue), written: Mutex::new(written) })
    }

    /// Adds an entry.
    pub fn record(&self, entry: &Entry<'_>) {
        let at = OffsetDateTime::now_utc();
        let at = at.replace_millisecond(at.millisecond()).unwrap_or(at).format(&Rfc3339).unwrap_or_default();
        let Ok(mut line) = serde_json::to_vec(&Stamped { at, entry }) else { return };
        line.push(b'\n');
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(line).is_err()) {
            metrics::AUDIT_LOST.increment(1);
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.queue = None;
        // Disconnected: the thread has ended.
        let _ = self.written.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(CLOSE_LIMIT);
    }
}

fn write_all(mut file: LogFile, lines: &mpsc::Receiver<Vec<u8>>) {
    let mut failing = false;
    while let Ok(line) = lines.recv() {
        match file.write(&line) {
            Ok(()) => failing = false,
            Err(error) => {
                metrics::AUDIT_LOST.increment(1);
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!("cannot write the audit log {}: {error}", file.path.display());
                }
            }
        }
    }
}

struct LogFile {
    path: PathBuf,
    file: File,
    length: u64,
    most: u64,
}

impl LogFile {
    fn open(path: &Path, most: u64) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
        let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(no_follow).open(path)?;
        let found = file.metadata()?;
        if found.uid() != rustix::process::getuid().as_raw() {
            return Err(io::Error::other(format!("it belongs to user {}", found.uid())));
        }
        if found.mode().trailing_zeros() < 6 {
            return Err(io::Error::other(format!(
                "it is open to others (mode {:04o}): chmod 600 it",
                found.mode() & 0o7777
            )));
        }
        // Two processes that rotate one file would throw away each other's lines.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::other("another muxtap writes it: audit_file names another place"))?;
        Ok(Self { path: path.to_owned(), length: found.len(), file, most })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let full = self.length > 0 && self.length + line.len() as u64 > self.most;
        if full && let Err(error) = self.turn() {
            tracing::warn!("cannot turn the audit log {}: {error}; it grows on", self.path.display());
            // Rotation is tried again when as much has been written once more.
            self.length = 0;
        }
        let before = self.file.metadata()?.len();
        let written = self.file.write_all(line);
        if written.is_err() {
            // A full disk takes half a line: that half must not spoil the next one.
            let _ = self.file.set_len(before);
        } else {
            self.length += line.len() as u64;
        }
        written
    }

    /// Rotates the files: this one becomes the youngest old one, the oldest goes.
    fn turn(&mut self) -> io::Result<()> {
        let old = |number: usize| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
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
        *self = Self::open(&self.path, self.most)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn entry(action: &str) -> Entry<'_> {
        Entry {
            face: "unix",
            who: "uid 1",
            server: "/tmp/s",
            target: Some("work"),
            pane: Some("%1"),
            action,
            result: "ok",
            bytes: None,
            sha256: None,
            ms: 1,
        }
    }

    #[test]
    fn entries_are_lines_in_order_in_a_private_file_that_turns() {
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

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Audit::open(&path, 4096).unwrap_err().message.contains("chmod 600"));
    }

    #[test]
    fn a_full_disk_is_counted_and_hinders_nobody() {
        let path = Path::new("/dev/full");
        if !path.exists() {
            eprintln!("this system has no /dev/full: not tested");
            return;
        }
        let file = OpenOptions::new().append(true).open(path).unwrap();
        let mut file = LogFile { path: path.to_owned(), file, length: 0, most: 4096 };
        assert!(file.write(b"line\n").is_err());
        assert_eq!(file.length, 0);
    }
}
