//! Files that belong to the user alone, and files that are compared with what they were.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::nonce;

/// A file as it was when it was read: it is another one when any of this differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of the file on this path; `None` where there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|found| Self {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// A file that was read, or looked for, when a process began.
#[derive(Clone, Debug)]
pub(crate) struct ReadFile {
    path: PathBuf,
    /// `None`: it was not there.
    stamp: Option<FileStamp>,
}

impl ReadFile {
    /// Takes a file's stamp. Called before the file is read: a change in between is a change since.
    pub(crate) fn now(path: &Path) -> Self {
        Self { path: path.to_owned(), stamp: FileStamp::of(path) }
    }

    /// Returns what has become of it.
    pub(crate) fn answer(&self) -> crate::api::ConfigFile {
        crate::api::ConfigFile {
            path: self.path.display().to_string(),
            read: self.stamp.is_some(),
            changed: FileStamp::of(&self.path) != self.stamp,
        }
    }
}

/// Whether there is a file already that a secret must not replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Keep,
    Replace,
    /// A file that is there is an error.
    Refuse,
}

/// Writes a secret to a file with mode 0600, in a folder that is made where it is missing. Readers find the old
/// secret or the new one, never a part; of several processes that make the first one, one wins.
pub(crate) fn write_secret(path: &Path, secret: &str, existing: Existing) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", nonce::hex32()));
    let fresh = PathBuf::from(fresh);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).and_then(|mut file| {
        writeln!(file, "{secret}")?;
        file.sync_all()?;
        if existing == Existing::Replace {
            return fs::rename(&fresh, path);
        }
        match fs::hard_link(&fresh, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || existing == Existing::Refuse => Err(error),
            _ => fs::remove_file(&fresh),
        }
    });
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Reads a secret's file, of which `most` bytes are looked at. Error: in words that follow the file's name.
pub(crate) fn read_secret(path: &Path, most: u64) -> Result<(String, fs::Metadata), SecretError> {
    let unreadable = |error: io::Error| SecretError::Unreadable(format!("cannot be read: {error}"));
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(SecretError::Unreadable("is a symbolic link: remove it".into()));
    }
    // The link may come just now. Not to be held up by a pipe: it opens at once.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(SecretError::Unreadable("is no file: remove it".into()));
    }
    if found.uid() != rustix::process::getuid().as_raw() {
        return Err(SecretError::Unreadable(format!("belongs to user {}: remove it", found.uid())));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SecretError::Open(format!("is open to others (mode {mode:04o})")));
    }
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).map_err(unreadable)?;
    Ok((text, found))
}

/// Why a secret's file is not used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SecretError {
    /// Others may read or write it: the secret may be known to them.
    Open(String),
    /// No file there, or not the user's.
    Unreadable(String),
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_another_one_when_it_was_changed_made_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let absent = ReadFile::now(&path);
        assert!(!absent.answer().read && !absent.answer().changed);
        fs::write(&path, "one").unwrap();
        assert!(absent.answer().changed);
        let there = ReadFile::now(&path);
        assert!(there.answer().read && !there.answer().changed);
        // As editors do.
        fs::write(dir.path().join("g"), "two").unwrap();
        fs::rename(dir.path().join("g"), &path).unwrap();
        assert!(there.answer().changed);
        let there = ReadFile::now(&path);
        fs::remove_file(&path).unwrap();
        assert!(there.answer().changed);
    }

    #[test]
    fn a_secret_is_made_once_by_one_of_many_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/secret");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || write_secret(path, &format!("secret {number}"), Existing::Keep).unwrap());
            }
        });
        let (first, found) = read_secret(&path, 100).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        write_secret(&path, "another", Existing::Keep).unwrap();
        assert_eq!(read_secret(&path, 100).unwrap().0, first);
        write_secret(&path, "another", Existing::Replace).unwrap();
        assert_eq!(read_secret(&path, 100).unwrap().0, "another\n");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_a_pipe_and_a_file_that_is_open_to_others_hold_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("secret"), dir.path().join("link"));
        let refused = |path: &Path| match read_secret(path, 100).unwrap_err() {
            SecretError::Open(why) | SecretError::Unreadable(why) => why,
        };
        assert!(refused(&path).contains("cannot be read"));
        write_secret(&path, "secret", Existing::Keep).unwrap();
        symlink(&path, &link).unwrap();
        assert!(refused(&link).contains("symbolic link"));
        // A link that leads nowhere is not written through.
        let nowhere = dir.path().join("nowhere");
        symlink(dir.path().join("made"), &nowhere).unwrap();
        write_secret(&nowhere, "secret", Existing::Keep).unwrap();
        assert!(!dir.path().join("made").exists() && refused(&nowhere).contains("symbolic link"));
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert!(refused(&pipe).contains("no file"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused(&path).contains("open to others (mode 0640)"));
    }
}
