//! The files of a recording: new, private to the user, and always complete up to their last line.

use std::{
    fs::{DirBuilder, File},
    io::{self, Seek as _, SeekFrom, Write as _},
    os::{fd::OwnedFd, unix::fs::DirBuilderExt as _},
    path::{Path, PathBuf},
};

use muxtap_api::{Error, ErrorCode, RecordFormat, Result};
use muxtap_base::files::create_private;
use serde::{Deserialize, Serialize};

/// The destination of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// One file. The recording ends at a limit.
    File(#[serde(with = "super::stored::path")] PathBuf),
    /// Files in this folder whose names begin so. At a limit the next file begins.
    Files(#[serde(with = "super::stored::path")] PathBuf, String),
}

/// The files of a recording, stored for the daemon that replaces this one, which gets the current file's
/// descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredFiles {
    place: Place,
    number: u32,
    #[serde(with = "super::stored::path")]
    path: PathBuf,
    length: u64,
}

/// The files of a recording, of which the last is being written.
#[derive(Debug)]
pub(super) struct Files {
    place: Place,
    suffix: &'static str,
    number: u32,
    file: File,
    path: PathBuf,
    /// The size of the file in bytes: complete lines.
    length: u64,
}

impl Files {
    /// Creates the first file.
    ///
    /// Errors: `CONFLICT` if the file exists, `INVALID_ARGUMENT` if it cannot be created.
    pub(super) fn begin(place: Place, format: RecordFormat) -> Result<Self> {
        let suffix = suffix_of(format);
        if let Place::Files(dir, _) = &place {
            make_dir(dir)?;
        }
        let (mut number, path) = (1, path_of(&place, suffix, 1));
        let mut made = make(&path);
        let mut path = path;
        // Two recordings that start in the same second have the same name.
        while matches!(place, Place::Files(..)) && number < 1000 && is_there(&made) {
            number += 1;
            path = path_of(&place, suffix, number);
            made = make(&path);
        }
        let file = made.map_err(|error| refused(&path, &error))?;
        Ok(Self { place, suffix, number, file, path, length: 0 })
    }

    /// Stores the files for another process. It gets the same open file, not the path: another file may
    /// have that name by then.
    pub(super) fn store(&self) -> io::Result<(StoredFiles, OwnedFd)> {
        let Self { place, number, path, length, .. } = self;
        let stored = StoredFiles { place: place.clone(), number: *number, path: path.clone(), length: *length };
        Ok((stored, self.file.try_clone()?.into()))
    }

    /// Continues the files of another process.
    pub(super) fn restore(stored: StoredFiles, file: OwnedFd, format: RecordFormat) -> Self {
        let StoredFiles { place, number, path, length } = stored;
        Self { place, suffix: suffix_of(format), number, file: File::from(file), path, length }
    }

    /// Goes on after another process had the file, and ended. What it wrote is cut off: its output is
    /// recorded here.
    pub(super) fn take_back(&mut self) -> Result<()> {
        let taken_back = || -> io::Result<()> {
            if self.file.metadata()?.len() > self.length {
                self.file.set_len(self.length)?;
                (&self.file).seek(SeekFrom::Start(self.length))?;
            }
            Ok(())
        };
        let path = self.path.display();
        taken_back().map_err(|error| Error::new(ErrorCode::ResourceLimit, format!("cannot continue {path}: {error}")))
    }

    /// Returns whether another file follows this one at a limit.
    pub(super) fn rotates(&self) -> bool {
        matches!(self.place, Place::Files(..))
    }

    /// Returns the path of the current file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the current file, in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Ends this file and creates the next one.
    pub(super) fn rotate(&mut self) -> Result<()> {
        loop {
            self.number += 1;
            let path = path_of(&self.place, self.suffix, self.number);
            let made = make(&path);
            if is_there(&made) {
                continue;
            }
            self.file = made.map_err(|error| refused(&path, &error))?;
            (self.path, self.length) = (path, 0);
            return Ok(());
        }
    }

    /// Writes complete lines. On an error the file is as it was before.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<()> {
        match self.file.write_all(lines) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                let cut = self.file.set_len(self.length);
                let left = if cut.is_ok() { "; the recording up to this point is intact" } else { "" };
                let path = self.path.display();
                Err(Error::new(ErrorCode::ResourceLimit, format!("cannot write {path}: {error}{left}")))
            }
        }
    }
}

fn suffix_of(format: RecordFormat) -> &'static str {
    if format == RecordFormat::Text { "txt" } else { "cast" }
}

/// Creates a missing directory that only the user can access.
fn make_dir(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| refused(dir, &error))
}

fn path_of(place: &Place, suffix: &str, number: u32) -> PathBuf {
    match place {
        Place::File(path) => path.clone(),
        Place::Files(dir, stem) => dir.join(format!("{stem}.{number:04}.{suffix}")),
    }
}

/// Creates a new file that only the user can access. A link in its place is not followed.
fn make(path: &Path) -> io::Result<File> {
    create_private(path)
}

fn is_there(made: &io::Result<File>) -> bool {
    made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
}

fn refused(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Error::new(ErrorCode::Conflict, format!("{path} already exists; use another name, or move it away"));
    }
    Error::invalid(format!("cannot create {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn files_are_made_new_and_for_the_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.cast");
        let mut files = Files::begin(Place::File(path.clone()), RecordFormat::V3).unwrap();
        files.write(b"one\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Files::begin(Place::File(path.clone()), RecordFormat::V3).unwrap_err();
        assert_eq!(again.code, ErrorCode::Conflict);
        std::os::unix::fs::symlink(dir.path().join("made"), dir.path().join("link")).unwrap();
        assert!(Files::begin(Place::File(dir.path().join("link")), RecordFormat::V3).is_err());
        assert!(!dir.path().join("made").exists());
        assert!(Files::begin(Place::File(dir.path().join("no/dir")), RecordFormat::V3).is_err());
    }

    #[test]
    fn a_file_that_was_handed_over_and_taken_back_has_nothing_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.cast");
        let mut files = Files::begin(Place::File(path.clone()), RecordFormat::V3).unwrap();
        files.write(b"one\n").unwrap();
        let (stored, file) = files.store().unwrap();
        let mut next = Files::restore(stored, file, RecordFormat::V3);
        next.write(b"two\n").unwrap();
        files.take_back().unwrap();
        files.write(b"two again\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo again\n");
        // The name is another file's now.
        let (stored, file) = files.store().unwrap();
        fs::rename(&path, dir.path().join("b.cast")).unwrap();
        fs::write(&path, b"another").unwrap();
        Files::restore(stored, file, RecordFormat::V3).write(b"three\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"another");
        assert_eq!(fs::read(dir.path().join("b.cast")).unwrap(), b"one\ntwo again\nthree\n");
    }

    #[test]
    fn files_in_a_directory_follow_each_other_and_replace_none() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Files(dir.path().join("deep"), "s".into());
        let mut one = Files::begin(place.clone(), RecordFormat::Text).unwrap();
        assert_eq!(fs::metadata(dir.path().join("deep")).unwrap().permissions().mode() & 0o777, 0o700);
        let other = Files::begin(place, RecordFormat::Text).unwrap();
        assert_eq!(other.path().file_name().unwrap(), "s.0002.txt");
        one.write(b"x\n").unwrap();
        one.rotate().unwrap();
        assert_eq!((one.path().file_name().unwrap().to_str().unwrap(), one.length()), ("s.0003.txt", 0));
    }
}
