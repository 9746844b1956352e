//! The files of snapshots and layouts: one each, which only their user can read.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::files::{Existing, FileError, OpenToOthers, check_private_folder, open_private, write_secret};
use rustix::fs::OFlags;
use serde_json::Value;

use super::limits::{FILE_BYTES, NAME_BYTES};

/// The folders of a user's snapshots and layouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// `NAME.json` for each snapshot.
    pub snapshots: PathBuf,
    /// `NAME.json` for each layout.
    pub layouts: PathBuf,
}

/// The kind of a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Snapshot,
    Layout,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Layout => "layout",
        }
    }
}

/// Checks the name of a snapshot, layout or group. Error: `INVALID_ARGUMENT`.
///
/// A name becomes part of a file's or an option's name, and follows `-t %`.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let invalid = |why: &str| Err(Error::invalid(format!("name: {name:?} {why}")));
    match name.chars().next() {
        None => return invalid("is empty"),
        Some('.' | '-') => return invalid("begins with a dot or a dash"),
        Some(_) => {}
    }
    if name.len() > NAME_BYTES {
        return invalid(&format!("has more than {NAME_BYTES} bytes"));
    }
    if let Some(other) = name.chars().find(|&each| !each.is_alphanumeric() && !matches!(each, '-' | '_' | '.')) {
        return invalid(&format!("has the invalid character {other:?}; expected letters, digits, `-`, `_` and `.`"));
    }
    Ok(())
}

impl Store {
    /// Reads or writes files on another thread: a file system that hangs delays only the caller.
    pub async fn run<T: Send + 'static>(&self, look: impl FnOnce(&Self) -> Result<T> + Send + 'static) -> Result<T> {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || look(&store)).await;
        done.unwrap_or_else(|error| Err(Error::internal(format!("files of snapshots: {error}"))))
    }

    fn dir(&self, kind: Kind) -> &Path {
        match kind {
            Kind::Snapshot => &self.snapshots,
            Kind::Layout => &self.layouts,
        }
    }

    fn path(&self, kind: Kind, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.dir(kind).join(format!("{name}.json")))
    }

    /// Returns the names of the stored files, sorted.
    pub(crate) fn names(&self, kind: Kind) -> Result<Vec<String>> {
        let dir = self.dir(kind);
        match check_private_folder(dir) {
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(FileError::Io(_)) | Ok(()) => {}
            Err(why) => return Err(Error::new(ErrorCode::Conflict, format!("{} {why}", dir.display()))),
        }
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(dir, "read", &error)),
        };
        let name = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?.strip_suffix(".json")?.to_owned();
            check_name(&name).is_ok().then_some(name)
        };
        let mut names: Vec<_> = entries.flatten().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Reads a file.
    ///
    /// Errors: `NOT_FOUND`; `CONFLICT` for a file that is not the user's; `INCONSISTENT_STATE` for
    /// a damaged one.
    pub(crate) fn read(&self, kind: Kind, name: &str) -> Result<Value> {
        let path = self.path(kind, name)?;
        let unreadable = |error: io::Error| self.unreadable(kind, name, &path, &error);
        check_private_folder(self.dir(kind)).map_err(|error| match error {
            FileError::Io(error) => unreadable(error),
            why => Error::new(ErrorCode::Conflict, format!("{} {why}", self.dir(kind).display())),
        })?;
        let file = open_private(&path, OFlags::RDONLY, OpenToOthers::Kept).map_err(|error| unreadable(error.into()))?;
        let length = file.metadata().map_err(unreadable)?.len();
        if length > FILE_BYTES {
            let message = format!("{} has {length} bytes; at most {FILE_BYTES}", path.display());
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES).read_to_end(&mut text).map_err(unreadable)?;
        serde_json::from_slice(&text).map_err(|error| {
            let message = format!("{} is corrupt ({error}); remove it and save it again", path.display());
            Error::new(ErrorCode::InconsistentState, message)
        })
    }

    fn unreadable(&self, kind: Kind, name: &str, path: &Path, error: &io::Error) -> Error {
        if error.kind() != io::ErrorKind::NotFound {
            return failed(path, "read", error);
        }
        let word = kind.word();
        let names = self.names(kind).unwrap_or_default();
        let known = if names.is_empty() { "none exists".to_owned() } else { format!("existing: {}", names.join(", ")) };
        Error::not_found(format!("no {word} {name:?}; {known}"))
    }

    /// Writes a file, whole or not at all. Error: `CONFLICT` if the name exists and `replace` is
    /// false.
    pub(crate) fn write(&self, kind: Kind, name: &str, value: &Value, replace: bool) -> Result<PathBuf> {
        let path = self.path(kind, name)?;
        let text = serde_json::to_string_pretty(value).map_err(|error| Error::internal(format!("{error}")))?;
        if text.len() as u64 > FILE_BYTES {
            let message = format!("the {} has {} bytes; at most {FILE_BYTES}", kind.word(), text.len());
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        }
        let existing = if replace { Existing::Replace } else { Existing::Refuse };
        match write_secret(&path, &text, existing) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let word = kind.word();
                let message = format!("{word} {name:?} already exists; replace it (--replace), or use another name");
                Err(Error::new(ErrorCode::Conflict, message))
            }
            Err(error) => Err(failed(&path, "written", &error)),
        }
    }

    /// Removes a file. Error: `NOT_FOUND`.
    pub(crate) fn remove(&self, kind: Kind, name: &str) -> Result<()> {
        let path = self.path(kind, name)?;
        fs::remove_file(&path).map_err(|error| self.unreadable(kind, name, &path, &error))
    }
}

fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("{} cannot be {what}: {error}", path.display()))
}
