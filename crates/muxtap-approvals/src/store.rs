//! The file `tmux_sessions.json`: spawned sessions, their callers and their prompts.
//!
//! Invariants:
//! - A reader sees the file as one writer left it, never a part: it is written to a temporary file,
//!   synced and renamed.
//! - Of two processes that write at once neither loses the other's changes: each reads, changes and
//!   writes while it holds the lock of `tmux_sessions.json.lock`.
//! - A file that cannot be read is kept as `tmux_sessions.json.corrupt.YYYYmmddHHMMSS`, never
//!   overwritten.
//! - Only the owner has access (0600): prompts may hold secrets.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use muxtap_base::files::{FileError, OpenToOthers, create_private, open_private};
use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The record of a spawned session or window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The session's or window's name, which is also the entry's key.
    pub name: String,
    /// The channel of the caller that requested it.
    pub channel_id: Option<String>,
    /// The thread of the caller that requested it.
    pub thread_id: Option<String>,
    /// The directory in which it started.
    pub working_dir: Option<String>,
    /// The prompt for Claude.
    pub prompt: Option<String>,
    /// The time of its creation, ISO 8601.
    pub created_at: Option<String>,
    /// Fields that other programs wrote.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A value of the file: an entry, or another program's value, which is kept unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredValue {
    Entry(Box<Entry>),
    Other(Value),
}

type Entries = BTreeMap<String, StoredValue>;

/// A handle to the file. Clones refer to the same file.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// Creates a handle to the store at this path, without reading or creating the file.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Adds an entry, or replaces the one with the same name.
    pub async fn put(&self, entry: Entry) -> io::Result<()> {
        self.change(move |entries| {
            entries.insert(entry.name.clone(), StoredValue::Entry(Box::new(entry)));
            true
        })
        .await
    }

    /// Removes the entries with these names.
    pub async fn remove(&self, names: Vec<String>) -> io::Result<()> {
        self.change(move |entries| {
            let before = entries.len();
            entries.retain(|name, _| !names.contains(name));
            entries.len() < before
        })
        .await
    }

    /// Reads, changes and writes the file while no other process does. Skips writing if `change`
    /// returns `false`.
    async fn change(&self, change: impl FnOnce(&mut Entries) -> bool + Send + 'static) -> io::Result<()> {
        let path = self.path.clone();
        // Another process may hold the lock for any length of time.
        tokio::task::spawn_blocking(move || {
            let folder = path.parent().unwrap_or(Path::new("/"));
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let _lock = lock_file(&sibling(&path, ".lock"))?;
            let mut entries = read(&path)?;
            if change(&mut entries) { write(&path, &entries) } else { Ok(()) }
        })
        .await
        .map_err(io::Error::other)?
    }
}

/// Returns the current time in the format of entries: ISO 8601 in UTC, to the second.
pub fn now() -> String {
    iso(OffsetDateTime::now_utc())
}

/// Formats a time in the format of entries.
pub(super) fn iso(time: OffsetDateTime) -> String {
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_else(|_| "9999-12-31T23:59:59Z".into())
}

/// Returns the current time in the format of file names: `YYYYmmddHHMMSS`.
pub fn compact_timestamp() -> String {
    now().chars().filter(char::is_ascii_digit).collect()
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Locks a file until the returned handle is dropped. Waits for the lock.
pub(super) fn lock_file(path: &Path) -> io::Result<File> {
    let file = open_private(path, OFlags::RDWR | OFlags::CREATE, OpenToOthers::Closed)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Reads the file. A corrupt one is renamed and counts as empty.
fn read(path: &Path) -> io::Result<Entries> {
    let mut bytes = Vec::new();
    // Another program writes the file too and may have created it readable by others.
    match open_private(path, OFlags::RDONLY, OpenToOthers::Kept) {
        Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(Entries::new()),
        file => file?.read_to_end(&mut bytes)?,
    };
    if let Ok(entries) = serde_json::from_slice(&bytes) {
        return Ok(entries);
    }
    let mut aside = sibling(path, &format!(".corrupt.{}", compact_timestamp()));
    let mut number = 1;
    while aside.exists() {
        aside = sibling(path, &format!(".corrupt.{}.{number}", compact_timestamp()));
        number += 1;
    }
    tracing::warn!("cannot read {}; keeping it as {}", path.display(), aside.display());
    fs::rename(path, &aside)?;
    Ok(Entries::new())
}

/// Writes the file atomically: a crash leaves the old file or the new one.
fn write(path: &Path, entries: &Entries) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(entries)?;
    replace_file(path, &text)
}

/// Replaces a file by writing a temporary one and renaming it; mode 0600. The caller holds the lock
/// that excludes other writers of this file.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // One name is enough, since the writer holds the lock: the next write replaces what a crash
    // left.
    let temporary = sibling(path, ".muxtap-tmp");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = create_private(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    // The rename survives a crash of the machine only if the directory is synced too; some file
    // systems do not support that.
    let _ = path.parent().map(File::open).transpose().map(|folder| folder.map(|folder| folder.sync_all()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn entry(name: &str) -> Entry {
        Entry {
            name: name.into(),
            channel_id: Some("c".into()),
            thread_id: None,
            working_dir: Some("/w".into()),
            prompt: Some("p".into()),
            created_at: Some(now()),
            rest: Map::new(),
        }
    }

    fn content(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn an_entry_is_pretty_printed_with_ordered_fields_and_mode_0600() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/tmux_sessions.json");
        let store = Store::new(&path);
        store.put(Entry { created_at: Some("T".into()), ..entry("a") }).await.unwrap();
        let written = fs::read_to_string(&path).unwrap();
        let expected = "{\n  \"a\": {\n    \"name\": \"a\",\n    \"channel_id\": \"c\",\n    \"thread_id\": null,\n    \
                        \"working_dir\": \"/w\",\n    \"prompt\": \"p\",\n    \"created_at\": \"T\"\n  }\n}";
        assert_eq!(written, expected);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        store.remove(vec!["a".into(), "b".into()]).await.unwrap();
        assert_eq!(content(&path), json!({}));
    }

    #[tokio::test]
    async fn what_others_wrote_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tmux_sessions.json");
        fs::write(&path, r#"{"x":{"name":"x","extra":[1]},"odd":7}"#).unwrap();
        Store::new(&path).put(entry("a")).await.unwrap();
        let content = content(&path);
        assert_eq!(content["x"]["extra"], json!([1]));
        assert_eq!(content["odd"], json!(7));
        assert_eq!(content["a"]["name"], json!("a"));
    }

    #[tokio::test]
    async fn a_corrupt_file_is_put_aside_and_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tmux_sessions.json");
        let store = Store::new(&path);
        for corrupt in ["{\"a\": {", "[]", ""] {
            fs::write(&path, corrupt).unwrap();
            store.put(entry("a")).await.unwrap();
            assert_eq!(content(&path)["a"]["name"], json!("a"));
        }
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut aside: Vec<_> = names.filter(|name| name.contains(".corrupt.")).collect();
        aside.sort();
        assert_eq!(aside.len(), 3, "{aside:?}");
        let stamp = aside[0].strip_prefix("tmux_sessions.json.corrupt.").unwrap();
        assert!(stamp.len() == 14 && stamp.bytes().all(|byte| byte.is_ascii_digit()), "{stamp}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_writers_none_loses_anything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tmux_sessions.json");
        let writers: Vec<_> = (0..20)
            .map(|number| {
                // A separate store opens the lock anew, as another process does.
                let store = Store::new(&path);
                tokio::spawn(async move { store.put(entry(&format!("s{number}"))).await.unwrap() })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(content(&path).as_object().unwrap().len(), 20);
    }
}
