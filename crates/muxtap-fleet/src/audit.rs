//! The copy of a daemon's audit log in NATS: each byte once and in order (`docs/fleet.md`).
//!
//! The local files are the truth. A message holds whole lines and is published only if the last
//! message of this member is the one that it expects, so a message whose outcome is not known can
//! be sent again. Before it is sent, what it holds is noted in a file beside the log.

use std::{
    convert::Infallible,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_nats::{Client, HeaderMap, Request, RequestErrorKind};
use muxtap_api::{Error, Result};
use muxtap_base::files::{self, Existing, OpenToOthers, SecretError};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};

use super::join::{Connection, Fleet, Inner, State};

/// The most bytes of lines in one message.
const MESSAGE_BYTES: u64 = 64 << 10;
/// The longest first line of a file by which it is recognized, in bytes.
const LINE_BYTES: u64 = 16 << 10;
/// The longest file that notes how far the copy is, in bytes: a first line with each byte escaped.
const NOTE_BYTES: u64 = 128 << 10;
/// How long lines are gathered after a message.
const GATHER: Duration = Duration::from_secs(1);
/// How long NATS may take to store a message.
const STORE_LIMIT: Duration = Duration::from_secs(10);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(60);
/// How often the files are opened while they are renamed.
const TRIES: usize = 16;
/// The header that names the last message of this member.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// JetStream's code of the error that another message is the last one.
const WRONG_LAST: u64 = 10_071;

/// The line in a copy before which lines may be missing, and after which lines may be repeated.
pub const ANEW: &str = "{\"copy\":\"begins anew\"}\n";

/// The audit log of a daemon.
#[derive(Clone, Debug)]
pub struct Log {
    /// Returns the log's files, from the oldest to the current one.
    pub files: fn(&Path) -> Vec<PathBuf>,
    /// The current file.
    pub path: PathBuf,
    /// Changes when lines were written.
    pub written: watch::Receiver<u64>,
}

/// A file of the log, which keeps this identity when it is renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    inode: u64,
    first: String,
}

/// How far the copy is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// The file that is copied. `None`: the oldest.
    file: Option<Identity>,
    /// Bytes of it in the copy.
    offset: u64,
    /// The number of this member's last message in the stream; 0: it has none.
    last: u64,
    /// Whether [`ANEW`] comes next.
    is_anew: bool,
    /// The number of this member's last message when the stream had none any more. [`ANEW`] with a higher
    /// one is in the same stream, which has pushed it out; else the stream is another one.
    before: Option<u64>,
    /// The bytes of the next message, if it was sent and its outcome is not known.
    sent: Option<u64>,
}

/// The outcome of publishing.
#[derive(Clone, Copy, Debug)]
enum Stored {
    /// It is in the stream, with this number.
    As(u64),
    /// Another message than the expected one is the last of this member.
    NotAfter(u64),
}

impl Fleet {
    /// Copies the audit log, whenever this daemon is a member, until the fleet ends. Must be called
    /// within a runtime.
    pub fn copy_audit(&self, log: Log) {
        tokio::spawn(run(self.0.clone(), log));
    }
}

async fn run(fleet: Arc<Inner>, mut log: Log) {
    let mut state = fleet.state.subscribe();
    let mut last_problem = String::new();
    loop {
        let joined = async {
            loop {
                let _ = state.wait_for(|state| matches!(state, State::Joined)).await;
                if let Some(connection) = fleet.joined.borrow().clone() {
                    return connection;
                }
                // The connection has just ended, and the state will change.
                let _ = state.changed().await;
            }
        };
        let connection = tokio::select! {
            connection = joined => connection,
            () = fleet.end.cancelled() => return,
        };
        let Err(error) = tokio::select! {
            ended = copy(&fleet, &connection, &mut log) => ended,
            () = connection.lost.cancelled() => continue,
        };
        // The same problem is reported once.
        if last_problem != error.message {
            tracing::warn!("fleet: the audit log is not copied: {error}");
            last_problem = error.message;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = connection.lost.cancelled() => {}
        }
    }
}

/// Copies what is missing in the copy, and then each line that is written. Returns with an error alone.
async fn copy(fleet: &Inner, connection: &Connection, log: &mut Log) -> Result<Infallible> {
    let path = log.path.clone();
    let mut position = blocking(move || Position::read(&path)).await?;
    let settings = fleet.settings.clone();
    let to = blocking(move || settings.audit_subject()).await?;
    loop {
        log.written.mark_unchanged();
        let (copied, from) = (log.clone(), position.clone());
        let (text, next) = blocking(move || copied.next(from)).await?;
        let Some(length) = next.sent else {
            if log.written.changed().await.is_err() {
                // The log is closed: this daemon ends, or another one has taken over.
                std::future::pending::<()>().await;
            }
            continue;
        };
        let is_repeated = position.sent == Some(length);
        let is_full = length > MESSAGE_BYTES / 2;
        let (path, noted) = (log.path.clone(), next.clone());
        blocking(move || noted.note(&path)).await?;
        let stored = publish(fleet, &connection.client, &to, text, next.last).await?;
        position = next.after(stored, is_repeated);
        let (path, noted) = (log.path.clone(), position.clone());
        blocking(move || noted.note(&path)).await?;
        if !is_full {
            tokio::time::sleep(GATHER).await;
        }
    }
}

/// Does what may wait for a disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal(error.to_string()))?
}

impl Position {
    /// Returns the position after a message. `is_repeated`: it may have been stored before.
    fn after(self, stored: Stored, is_repeated: bool) -> Self {
        let sent = self.sent.unwrap_or_default();
        match stored {
            // No other member knows the subject: it is the message that was sent before.
            Stored::NotAfter(last) if is_repeated && last > self.last => self.stored(sent, last),
            // What is known about this member's last message is wrong, or the stream has none any more.
            Stored::NotAfter(last) => {
                let before = (last < self.last).then_some(self.last);
                Self { last, is_anew: true, before: self.before.or(before), sent: None, ..self }
            }
            Stored::As(last) => self.stored(sent, last),
        }
    }

    fn stored(self, sent: u64, last: u64) -> Self {
        let is_another_stream = self.is_anew && self.before.is_some_and(|before| last <= before);
        let (file, offset) = if is_another_stream { (None, 0) } else { (self.file, self.offset + sent) };
        Self { file, offset, last, is_anew: false, before: None, sent: None }
    }

    /// Returns the file that notes the position in the copy of this log.
    fn file(log: &Path) -> PathBuf {
        let mut name = log.as_os_str().to_owned();
        name.push(".copied");
        PathBuf::from(name)
    }

    /// Reads the position. Without a file: the beginning.
    fn read(log: &Path) -> Result<Self> {
        let path = Self::file(log);
        if !path.exists() {
            return Ok(Self::default());
        }
        let (text, _) = files::read_secret(&path, NOTE_BYTES).map_err(|error| {
            let (SecretError::Open(why) | SecretError::Foreign(why) | SecretError::Unreadable(why)) = error;
            Error::unavailable(format!("{} {why}", path.display()))
        })?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Writes the position: it is on the disk when this returns.
    fn note(&self, log: &Path) -> Result<()> {
        let path = Self::file(log);
        let text = serde_json::to_string(self).map_err(|error| Error::internal(error.to_string()))?;
        files::write_secret(&path, &text, Existing::Replace)
            .map_err(|error| Error::unavailable(format!("{}: {error}", path.display())))
    }
}

/// A file of a log that is read.
struct Open {
    identity: Identity,
    file: File,
    /// Whether lines are added to it.
    is_current: bool,
}

impl Log {
    /// Reads the next message: its text, and the position with its length; without one, the copy is
    /// complete.
    fn next(&self, from: Position) -> Result<(Vec<u8>, Position)> {
        let failed = |error: io::Error| Error::unavailable(format!("{}: {error}", self.path.display()));
        let anew = |last| {
            let position = Position { last, is_anew: true, sent: Some(0), ..Position::default() };
            Ok((ANEW.into(), position))
        };
        if from.is_anew {
            return Ok((ANEW.into(), Position { sent: Some(0), ..from }));
        }
        let files = self.open().map_err(failed)?;
        let at = match &from.file {
            None => Some(0),
            Some(file) => files.iter().position(|open| open.identity == *file),
        };
        // The file was removed, also by too many lines during an outage.
        let Some(at) = at else { return anew(from.last) };
        let (mut offset, mut length) = (from.offset, from.sent);
        for mut open in files.into_iter().skip(at) {
            if open.file.metadata().map_err(failed)?.len() < offset {
                return anew(from.last);
            }
            let text = open.read(offset, length).map_err(failed)?;
            if !text.is_empty() {
                let sent = Some(text.len() as u64);
                return Ok((text, Position { file: Some(open.identity), offset, sent, ..from }));
            }
            (offset, length) = (0, None);
        }
        Ok((Vec::new(), Position { sent: None, ..from }))
    }

    /// Opens the files that have lines, from the oldest to the current one.
    fn open(&self) -> io::Result<Vec<Open>> {
        for _ in 0..TRIES {
            let opened = self.open_each()?;
            let again = self.open_each()?;
            // Else the files were renamed meanwhile.
            if opened.iter().map(|open| &open.identity).eq(again.iter().map(|open| &open.identity)) {
                return Ok(opened);
            }
        }
        Err(io::Error::other("its files are renamed all the time"))
    }

    fn open_each(&self) -> io::Result<Vec<Open>> {
        let mut opened = Vec::new();
        for path in (self.files)(&self.path) {
            let file = match files::open_private(&path, OFlags::RDONLY, OpenToOthers::Refused) {
                Ok(file) => file,
                Err(files::FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io::Error::other(format!("{} {error}", path.display()))),
            };
            let mut first = Vec::new();
            BufReader::new(&file).take(LINE_BYTES).read_until(b'\n', &mut first)?;
            let is_whole = first.ends_with(b"\n") || first.len() as u64 == LINE_BYTES;
            if first.is_empty() || !is_whole && path == self.path {
                continue;
            }
            let identity =
                Identity { inode: file.metadata()?.ino(), first: String::from_utf8_lossy(&first).into_owned() };
            opened.push(Open { identity, file, is_current: path == self.path });
        }
        Ok(opened)
    }
}

impl Open {
    /// Reads a message that begins here: `length` bytes, or as many whole lines as it can have.
    fn read(&mut self, offset: u64, length: Option<u64>) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.file.seek(SeekFrom::Start(offset))?;
        (&self.file).take(length.unwrap_or(MESSAGE_BYTES)).read_to_end(&mut text)?;
        let is_full = text.len() as u64 == MESSAGE_BYTES;
        // The end of an older file is that of its last line.
        if length.is_none() && (is_full || self.is_current) {
            match text.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => text.truncate(end + 1),
                None if is_full => {}
                None => text.clear(),
            }
        }
        Ok(text)
    }
}

/// The part of JetStream's response that is used.
#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    seq: u64,
    error: Option<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// Publishes a message that follows `last`, and waits until it is stored.
async fn publish(fleet: &Inner, client: &Client, to: &str, text: Vec<u8>, last: u64) -> Result<Stored> {
    let mut refused = fleet.refused.subscribe();
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED, last.to_string().as_str());
    let request = Request::new().headers(headers).payload(text.into()).timeout(Some(STORE_LIMIT));
    let is_refused = async {
        let quoted = format!("\"{to}\"");
        loop {
            match refused.recv().await {
                Ok(text) if text.contains(&quoted) => return,
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    let response = tokio::select! {
        response = client.send_request(to.to_owned(), request) => response,
        () = is_refused => {
            let message = "NATS does not permit the copy; expected a member that was added with --audit";
            return Err(Error::new(muxtap_api::ErrorCode::Unauthorized, message));
        }
    };
    let response = response.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => Error::unavailable("no stream takes the copies of audit logs"),
        _ => Error::unavailable(error.to_string()),
    })?;
    let read: Response = serde_json::from_slice(&response.payload)
        .map_err(|error| Error::unavailable(format!("the response of NATS cannot be read: {error}")))?;
    match read.error {
        None => Ok(Stored::As(read.seq)),
        // `wrong last sequence: 7`
        Some(Refused { err_code: WRONG_LAST, description }) => {
            let number = description.rsplit(' ').next().and_then(|number| number.parse().ok());
            number.map(Stored::NotAfter).ok_or_else(|| Error::unavailable(muxtap_base::plain::name(&description)))
        }
        Some(Refused { description, .. }) => Err(Error::unavailable(muxtap_base::plain::name(&description))),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::OpenOptionsExt as _};

    use super::*;

    fn files(path: &Path) -> Vec<PathBuf> {
        [".2", ".1", ""].map(|suffix| PathBuf::from(format!("{}{suffix}", path.display()))).into()
    }

    fn log(folder: &Path) -> Log {
        Log { files, path: folder.join("audit.jsonl"), written: watch::channel(0).1 }
    }

    fn append(path: &Path, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path).unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }

    /// Takes messages until the copy is complete.
    fn copy(log: &Log, position: &mut Position, copied: &mut String) {
        loop {
            let (text, next) = log.next(position.clone()).unwrap();
            if next.sent.is_none() {
                return;
            }
            copied.push_str(std::str::from_utf8(&text).unwrap());
            let last = position.last + 1;
            *position = next.after(Stored::As(last), false);
        }
    }

    #[test]
    fn each_byte_is_copied_once_over_rotations_and_long_lines() {
        let folder = tempfile::tempdir().unwrap();
        let (log, mut position, mut copied, mut all) =
            (log(folder.path()), Position::default(), String::new(), String::new());
        let [oldest, old, current] = files(&log.path).try_into().unwrap();
        for round in 0..40 {
            let length = [10, 0, 3_000, 100_000][round % 4];
            let line = format!("{{\"at\":{round}}}{}\n", "x".repeat(length));
            append(&current, &line);
            all += &line;
            // Half a line is not there yet.
            append(&current, "half");
            if round % 3 == 0 {
                copy(&log, &mut position, &mut copied);
                assert_eq!(copied, all, "{round}");
            }
            append(&current, " a line\n");
            all += "half a line\n";
            if round % 5 == 4 {
                copy(&log, &mut position, &mut copied);
                let _ = fs::rename(&old, &oldest);
                fs::rename(&current, &old).unwrap();
            }
        }
        copy(&log, &mut position, &mut copied);
        assert_eq!(copied, all);
        assert!(position.last > 10 && !position.is_anew);
    }

    #[test]
    fn what_was_removed_before_it_was_copied_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (log, mut position, mut copied) = (log(folder.path()), Position::default(), String::new());
        append(&log.path, "one\n");
        copy(&log, &mut position, &mut copied);
        fs::remove_file(&log.path).unwrap();
        copy(&log, &mut position, &mut copied);
        append(&log.path, "two\n");
        copy(&log, &mut position, &mut copied);
        assert_eq!(copied, format!("one\n{ANEW}two\n"));
        // The file was cut, and has the same first line.
        append(&log.path, "three\n");
        copy(&log, &mut position, &mut copied);
        fs::File::options().write(true).open(&log.path).unwrap().set_len(4).unwrap();
        copy(&log, &mut position, &mut copied);
        assert_eq!(copied, format!("one\n{ANEW}two\nthree\n{ANEW}two\n"));
    }

    #[test]
    fn a_message_whose_outcome_is_not_known_is_sent_again_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path());
        append(&log.path, "one\n");
        let (text, sent) = log.next(Position { last: 7, ..Position::default() }).unwrap();
        append(&log.path, "two\n");
        sent.note(&log.path).unwrap();
        let read = Position::read(&log.path).unwrap();
        assert_eq!(read, sent);
        let (again, next) = log.next(read).unwrap();
        assert_eq!((&again, &next), (&text, &sent));
        // It was stored the first time, or is now.
        for stored in [Stored::NotAfter(9), Stored::As(9)] {
            let after = next.clone().after(stored, true);
            assert_eq!((after.offset, after.last, after.sent, after.is_anew), (4, 9, None, false), "{stored:?}");
            assert_eq!(log.next(after).unwrap().0, b"two\n");
        }
        // It was never sent, and another message is there: the copy goes on behind a marker.
        let after = next.clone().after(Stored::NotAfter(9), false);
        assert_eq!(anew(&log, after, 10), "one\ntwo\n");
        let copied = Position { offset: 4, sent: None, ..next.clone() };
        let (_, next) = log.next(copied).unwrap();
        let after = next.clone().after(Stored::NotAfter(9), false);
        assert_eq!(anew(&log, after, 10), "two\n");
        // The stream has none any more. It is the same one, or another one.
        for (number, rest) in [(10, "two\n"), (1, "one\ntwo\n")] {
            let after = next.clone().after(Stored::NotAfter(0), true);
            assert_eq!(anew(&log, after, number), rest, "{number}");
        }
    }

    /// Publishes the marker, which gets this number. Returns what is copied next.
    fn anew(log: &Log, position: Position, number: u64) -> String {
        assert!(position.is_anew && position.sent.is_none());
        let (text, next) = log.next(position).unwrap();
        assert_eq!(text, ANEW.as_bytes());
        let (text, _) = log.next(next.after(Stored::As(number), false)).unwrap();
        String::from_utf8(text).unwrap()
    }
}
