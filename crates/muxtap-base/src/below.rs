//! Access to files below a directory, and to no others: an agent's files below its session's
//! directory, a page's below the configured folders.
//!
//! A path is opened from the directory's own descriptor, and the kernel keeps it below the
//! directory (openat2(2), `RESOLVE_BENEATH`); where the kernel lacks openat2, no link is followed
//! at all.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use crate::nonce;

/// The maximum number of bytes of a file's text that are read or written at once.
pub const FILE_BYTES: u64 = 4 << 20;
/// The maximum number of bytes of a file that are skipped to find the requested lines.
pub const SCAN_BYTES: u64 = 64 << 20;
/// The flags for every open: a FIFO or a terminal must not block the caller.
const SAFE: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// A directory below which files are read and written.
#[derive(Debug)]
pub struct Below {
    root: OwnedFd,
    /// Its path as given, and its path without links.
    paths: [PathBuf; 2],
}

impl Below {
    /// Opens the directory.
    pub fn open(cwd: &Path) -> std::io::Result<Self> {
        let real = std::fs::canonicalize(cwd)?;
        let root = rustix::fs::open(&real, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root, paths: [cwd.to_owned(), real] })
    }

    /// Continues with the descriptor and the paths of a directory ([`Self::parts`]).
    pub fn of(root: OwnedFd, paths: [PathBuf; 2]) -> Self {
        Self { root, paths }
    }

    /// Returns a descriptor of the directory, and its paths: as given, and without links.
    pub fn parts(&self) -> std::io::Result<(OwnedFd, [PathBuf; 2])> {
        Ok((self.root.try_clone()?, self.paths.clone()))
    }

    /// Reads a file's text, from this line (the first is 1), and at most this many lines. Error: a
    /// message for the caller.
    pub fn read(&self, path: &str, line: Option<u64>, limit: Option<u64>) -> Result<String, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let file = self.open_at(&self.relative(path)?, OFlags::RDONLY).map_err(|error| wrong(&error))?;
        let file = File::from(file);
        let found = file.metadata().map_err(|error| wrong(&error))?;
        if !found.is_file() {
            return Err(wrong(&"not a regular file"));
        }
        let too_large = || wrong(&format_args!("longer than {FILE_BYTES} bytes; request some of its lines"));
        let mut bytes = Vec::new();
        if line.is_none() && limit.is_none() {
            file.take(FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| wrong(&error))?;
            if bytes.len() as u64 > FILE_BYTES {
                return Err(too_large());
            }
        } else {
            let mut reader = BufReader::new(file.take(SCAN_BYTES));
            for _ in 1..line.unwrap_or(1) {
                if reader.skip_until(b'\n').map_err(|error| wrong(&error))? == 0 {
                    break;
                }
            }
            for _ in 0..limit.unwrap_or(u64::MAX) {
                if reader.read_until(b'\n', &mut bytes).map_err(|error| wrong(&error))? == 0 {
                    break;
                }
                if bytes.len() as u64 > FILE_BYTES {
                    return Err(too_large());
                }
            }
            // If the limit ended the read, the file continues.
            if reader.buffer().is_empty() && reader.get_ref().limit() == 0 {
                return Err(wrong(&format_args!("the requested lines are not within the first {SCAN_BYTES} bytes")));
            }
        }
        String::from_utf8(bytes).map_err(|_| wrong(&"not valid UTF-8"))
    }

    /// Writes a file: readers find the old text or the new one, never a part. Missing directories
    /// are created. Error: a message for the caller.
    pub fn write(&self, path: &str, text: &str) -> Result<(), String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        if text.len() as u64 > FILE_BYTES {
            return Err(wrong(&format_args!("too long to write; at most {FILE_BYTES} bytes are allowed")));
        }
        let relative = self.relative(path)?;
        let name = relative.file_name().ok_or_else(|| wrong(&"not the path of a file"))?;
        let dir = self.folder(relative.parent().unwrap_or(Path::new(""))).map_err(|error| wrong(&error))?;
        let mode = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => Some(Mode::from_raw_mode(found.st_mode & 0o777)),
                FileType::Symlink => return Err(wrong(&"a symbolic link; write to its target instead")),
                _ => return Err(wrong(&"not a regular file")),
            },
            Err(Errno::NOENT) => None,
            Err(error) => return Err(wrong(&error)),
        };
        let fresh = format!(".muxtap-{}", nonce::hex64());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | SAFE;
        let opened = rustix::fs::openat(&dir, &fresh, flags, mode.unwrap_or(Mode::from_raw_mode(0o666)));
        let mut file = File::from(opened.map_err(|error| wrong(&error))?);
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| match mode {
                // The mode stays as it was, whatever the daemon's umask is.
                Some(mode) => Ok(rustix::fs::fchmod(&file, mode)?),
                None => Ok(()),
            })
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(rustix::fs::renameat(&dir, &fresh, &dir, name)?));
        if written.is_err() {
            // An incomplete file is not left behind.
            let _ = rustix::fs::unlinkat(&dir, &fresh, AtFlags::empty());
        }
        written.map_err(|error| wrong(&error))
    }

    /// Returns whether a path, as written, is below the directory.
    pub fn holds(&self, path: &str) -> bool {
        self.relative(path).is_ok()
    }

    /// Returns whether a path exists.
    pub fn has(&self, path: &str) -> bool {
        self.relative(path).is_ok_and(|relative| !matches!(self.open_at(&relative, OFlags::RDONLY), Err(Errno::NOENT)))
    }

    /// Returns whether [`Self::write`] may write this existing file.
    pub fn is_writable(&self, path: &str) -> bool {
        self.relative(path).is_ok_and(|relative| self.open_without_links(&relative, OFlags::WRONLY, false).is_ok())
    }

    /// Returns a path's part below the directory. Error: the path is not absolute, not below the
    /// directory, or contains `..`.
    fn relative(&self, path: &str) -> Result<PathBuf, String> {
        let given = Path::new(path);
        if !given.is_absolute() || path.contains('\0') {
            return Err(format!("{path:?} is not an absolute path"));
        }
        let below = self.paths.iter().find_map(|root| given.strip_prefix(root).ok());
        let outside = || format!("{path}: not below {}, so not accessible", self.paths[0].display());
        let below = below.ok_or_else(outside)?;
        let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        if is_plain { Ok(below.components().collect()) } else { Err(outside()) }
    }

    /// Opens an existing path below the directory.
    fn open_at(&self, relative: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{ResolveFlags, openat2};
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let path = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
            // A concurrent rename makes the kernel unsure; it then returns EAGAIN.
            for _ in 0..8 {
                match openat2(&self.root, path, flags | SAFE, Mode::empty(), resolve) {
                    Err(Errno::AGAIN) => {}
                    Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => break,
                    // EACCES describes this error best.
                    Err(Errno::XDEV) => return Err(Errno::ACCESS),
                    opened => return opened,
                }
            }
        }
        self.open_without_links(relative, flags, false)
    }

    /// Opens a subdirectory; creates its missing parts.
    fn folder(&self, relative: &Path) -> rustix::io::Result<OwnedFd> {
        match self.open_at(relative, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => self.open_without_links(relative, OFlags::RDONLY | OFlags::DIRECTORY, true),
            opened => opened,
        }
    }

    /// Opens a path part by part without following links; creates missing directories if requested.
    fn open_without_links(&self, relative: &Path, flags: OFlags, make: bool) -> rustix::io::Result<OwnedFd> {
        let mut at = self
            .root
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?;
        let mut parts = relative.components().peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            let flags = if is_last { flags } else { OFlags::RDONLY | OFlags::DIRECTORY };
            if make {
                match rustix::fs::mkdirat(&at, part.as_os_str(), Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
            }
            at = rustix::fs::openat(&at, part.as_os_str(), flags | OFlags::NOFOLLOW | SAFE, Mode::empty())?;
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    struct Place {
        _dir: tempfile::TempDir,
        root: PathBuf,
        below: Below,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        fs::create_dir(&root).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        let below = Below::open(&root).unwrap();
        Place { _dir: dir, root, below }
    }

    impl Place {
        fn at(&self, name: &str) -> String {
            self.root.join(name).display().to_string()
        }
    }

    #[test]
    fn lines_are_read_as_they_were_asked_for() {
        let place = place();
        let read = |line, limit| place.below.read(&place.at("a.txt"), line, limit).unwrap();
        assert_eq!(read(None, None), "one\ntwo\nthree\n");
        assert_eq!(
            (read(Some(2), Some(1)), read(Some(3), None), read(Some(9), None)),
            ("two\n".into(), "three\n".into(), String::new())
        );
        fs::write(place.root.join("bytes"), [0xff, 0xfe]).unwrap();
        assert!(place.below.read(&place.at("bytes"), None, None).unwrap_err().contains("UTF-8"));
        fs::write(place.root.join("long"), vec![b'x'; FILE_BYTES as usize + 1]).unwrap();
        assert!(place.below.read(&place.at("long"), None, None).is_err());
        assert!(place.below.read(&place.at("long"), Some(1), Some(1)).is_err());
    }

    #[test]
    fn a_file_is_written_whole_with_its_folders_and_its_mode() {
        let place = place();
        place.below.write(&place.at("new/folder/b.txt"), "b").unwrap();
        assert_eq!(fs::read_to_string(place.at("new/folder/b.txt")).unwrap(), "b");
        fs::set_permissions(place.at("a.txt"), fs::Permissions::from_mode(0o750)).unwrap();
        place.below.write(&place.at("a.txt"), "new").unwrap();
        let found = fs::metadata(place.at("a.txt")).unwrap();
        assert_eq!((found.permissions().mode() & 0o777, found.len()), (0o750, 3));
        assert!(place.below.write(&place.at("new"), "x").is_err());
        let names: Vec<_> = fs::read_dir(&place.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "nothing else is left: {names:?}");
    }

    #[test]
    fn paths_outside_the_directory_are_neither_read_nor_written() {
        let place = place();
        symlink("../secret", place.root.join("out")).unwrap();
        symlink("..", place.root.join("up")).unwrap();
        symlink(place.root.parent().unwrap().join("secret"), place.root.join("far")).unwrap();
        symlink("a.txt", place.root.join("in")).unwrap();
        for path in ["out", "up/secret", "far", "../secret", "up/x", "missing/../../secret"] {
            assert!(place.below.read(&place.at(path), None, None).is_err(), "{path}");
            assert!(place.below.write(&place.at(path), "x").is_err(), "{path}");
        }
        for path in ["/etc/hostname", "a.txt", "", "/"] {
            assert!(place.below.read(path, None, None).is_err() && place.below.write(path, "x").is_err(), "{path}");
        }
        let secret = fs::read_to_string(place.root.parent().unwrap().join("secret")).unwrap();
        assert_eq!(secret, "secret");
        assert!(!place.root.parent().unwrap().join("x").exists());
        // A link that stays below is followed for reading if the kernel has openat2, and never for
        // writing.
        assert!(
            place.below.read(&place.at("in"), None, None).is_ok_and(|text| text.starts_with("one"))
                || cfg!(not(target_os = "linux"))
        );
        assert!(place.below.write(&place.at("in"), "x").unwrap_err().contains("link"));
        // Without openat2 no link is followed at all.
        let read = |path: &str| place.below.open_without_links(Path::new(path), OFlags::RDONLY, false);
        assert!(read("a.txt").is_ok() && read("in").is_err() && read("up/secret").is_err());
    }

    #[test]
    fn a_fifo_holds_nobody_up() {
        let place = place();
        let made = std::process::Command::new("mkfifo").arg(place.at("fifo")).status().unwrap();
        assert!(made.success());
        assert!(place.below.read(&place.at("fifo"), None, None).unwrap_err().contains("regular"));
        assert!(place.below.write(&place.at("fifo"), "x").is_err());
    }
}
