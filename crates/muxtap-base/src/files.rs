//! Files that belong to the user alone, and detection of changed files.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::nonce;

/// A file's identity when it was read: if any part differs, the file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of the file at this path; `None` if it does not exist.
    pub fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|found| Self {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// A file that was read, or looked for, when a process started.
#[derive(Clone, Debug)]
pub struct ReadFile {
    path: PathBuf,
    /// `None` if it did not exist.
    stamp: Option<FileStamp>,
}

impl ReadFile {
    /// Takes a file's stamp. Must be called before the file is read: a change in between then
    /// counts as a change since.
    pub fn now(path: &Path) -> Self {
        Self { path: path.to_owned(), stamp: FileStamp::of(path) }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file existed.
    pub fn was_there(&self) -> bool {
        self.stamp.is_some()
    }

    /// Returns whether the file was written, created or removed since.
    pub fn has_changed(&self) -> bool {
        FileStamp::of(&self.path) != self.stamp
    }
}

/// The treatment of a file of the user's that others may read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenToOthers {
    /// Reject the file: other users may know its contents.
    Refused,
    /// Its mode becomes 0600.
    Closed,
    /// Its mode stays: another program also uses it.
    Kept,
}

/// The reason why a file is not used, in words that follow its path.
#[derive(Debug)]
pub enum FileError {
    /// Others may read or write it.
    Open(String),
    /// The file belongs to another user, or has another name that may be another user's.
    Foreign(String),
    /// The file cannot be opened, or the user's own directory, link or FIFO is in its place.
    Io(io::Error),
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(why) | Self::Foreign(why) => f.write_str(why),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io(error) => error,
            FileError::Open(why) | FileError::Foreign(why) => Self::new(io::ErrorKind::PermissionDenied, why),
        }
    }
}

/// The maximum number of attempts to open a file that appears or disappears meanwhile.
const TRIES: u32 = 16;

/// Opens a file that muxtap keeps: a regular file that belongs to the user and has one name. In a
/// directory that others can write to (`/tmp`), another user may have put a file, a link, a FIFO or
/// a socket in its place; such a thing is neither written to, nor read, nor waited for. `access`
/// says how the file is opened; with `CREATE` a missing file is created with mode 0600.
pub fn open_private(path: &Path, access: OFlags, others: OpenToOthers) -> Result<File, FileError> {
    // NONBLOCK: a FIFO that takes the file's place after the first check is opened at once, and
    // rejected by the second.
    let flags =
        access.difference(OFlags::CREATE) | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::open(path, flags, Mode::from_raw_mode(0o600));
    let mut tries = 0;
    let file = loop {
        tries += 1;
        let opened = match fs::symlink_metadata(path) {
            Ok(found) => {
                check_owned_file(&found)?;
                open(flags)
            }
            // EXCL: a file that appears just now is checked first.
            Err(error) if error.kind() == io::ErrorKind::NotFound && access.contains(OFlags::CREATE) => {
                open(flags | OFlags::CREATE | OFlags::EXCL)
            }
            Err(error) => return Err(FileError::Io(error)),
        };
        match opened {
            Err(Errno::NOENT | Errno::EXIST) if tries < TRIES && access.contains(OFlags::CREATE) => {}
            opened => break File::from(opened.map_err(|error| FileError::Io(error.into()))?),
        }
    };
    let found = file.metadata().map_err(FileError::Io)?;
    check_owned_file(&found)?;
    if found.mode() & 0o077 != 0 {
        match others {
            OpenToOthers::Refused => {
                return Err(FileError::Open(format!("is open to others (mode {:04o})", found.mode() & 0o7777)));
            }
            OpenToOthers::Closed => {
                file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(FileError::Io)?;
            }
            OpenToOthers::Kept => {}
        }
    }
    Ok(file)
}

/// Checks that this is a regular file of the user's with one name.
fn check_owned_file(found: &fs::Metadata) -> Result<(), FileError> {
    let kind = found.file_type();
    let what = if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_file() {
        ""
    } else {
        "a device"
    };
    let owner = found.uid();
    if !what.is_empty() {
        let of = |whose: &str| format!("is {what}{whose}, not a regular file: remove it, or choose another folder");
        // The user's own mistake is not an attack: the caller decides what is done without the file.
        return Err(if owner == own_uid() {
            FileError::Io(io::Error::other(of("")))
        } else {
            FileError::Foreign(of(&format!(" of user {owner}")))
        });
    }
    if owner != own_uid() {
        return Err(FileError::Foreign(format!("belongs to user {owner}: remove it, or choose another folder")));
    }
    // 0: it was removed after it was opened.
    if found.nlink() > 1 {
        return Err(FileError::Foreign(format!(
            "has {} names (hard links), and another user may control one of them: remove it",
            found.nlink()
        )));
    }
    Ok(())
}

/// Returns whether this path exists and belongs to the user; a link is not followed.
pub fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == own_uid())
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Creates a directory for muxtap's files, mode 0700. Checks an existing one: it belongs to the
/// user or root, so does a link to it, and no other user can rename files in it. Error: words that
/// follow the directory's path.
pub fn make_private_folder(folder: &Path) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(FileError::Io)?;
    check_private_folder(folder)
}

/// Checks a directory as [`make_private_folder`] does, and creates nothing.
pub fn check_private_folder(folder: &Path) -> Result<(), FileError> {
    let link = fs::symlink_metadata(folder).map_err(FileError::Io)?;
    let found = fs::metadata(folder).map_err(FileError::Io)?;
    let owns_link = link.is_symlink().then(|| ("is a symbolic link of", link.uid()));
    for (what, owner) in owns_link.into_iter().chain([("belongs to", found.uid())]) {
        if owner != own_uid() && owner != 0 {
            return Err(FileError::Foreign(format!("{what} user {owner}: remove it, or choose another folder")));
        }
    }
    let mode = found.mode() & 0o7777;
    if mode & others_of(&found) != 0 && mode & 0o1000 == 0 {
        return Err(FileError::Open(format!("can be written by others (mode {mode:04o}): chmod go-w it")));
    }
    Ok(())
}

/// Returns which other users decide what this path leads to, or what is in that directory, in words
/// that begin with the path at fault. `None`: only this user and root do, now and until they change
/// that.
///
/// Each step is checked as the kernel resolves it, links one by one. So at no step can another user
/// replace what was checked.
///
/// `also_new`: also counts users that can only create missing files, as in a sticky directory.
pub fn open_to_others(folder: &Path, also_new: bool) -> Option<String> {
    let Ok(path) = std::path::absolute(folder) else {
        return Some(format!("{} is not a valid path", folder.display()));
    };
    let mut walked = PathBuf::from("/");
    let mut left: VecDeque<OsString> = steps(&path);
    let mut links = 0;
    loop {
        if let Some(why) = folder_open_to_others(&walked, also_new && left.is_empty()) {
            return Some(why);
        }
        let step = left.pop_front()?;
        if step == ".." {
            walked.pop();
            continue;
        }
        let next = walked.join(step);
        let found = match fs::symlink_metadata(&next) {
            Ok(found) => found,
            Err(error) => return Some(format!("{}: {error}", next.display())),
        };
        if is_foreign(found.uid(), false) {
            let what = if found.is_symlink() { "is a symbolic link of" } else { "belongs to" };
            return Some(format!("{} {what} user {}", next.display(), found.uid()));
        }
        if !found.is_symlink() {
            walked = next;
            continue;
        }
        links += 1;
        let target = fs::read_link(&next).ok().filter(|_| links <= LINKS);
        let Some(target) = target else {
            return Some(format!("{} is a symbolic link that cannot be resolved", next.display()));
        };
        if target.is_absolute() {
            walked = PathBuf::from("/");
        }
        let mut before = steps(&target);
        before.append(&mut left);
        left = before;
    }
}

/// The maximum number of links in a path, as for the kernel.
const LINKS: usize = 40;

/// Returns the steps of a path, including `..`.
fn steps(path: &Path) -> VecDeque<OsString> {
    let steps = path.components().filter(|step| matches!(step, Component::Normal(_) | Component::ParentDir));
    steps.map(|step| step.as_os_str().to_owned()).collect()
}

/// Returns which other users can replace a file in this directory, whose path has no link.
fn folder_open_to_others(folder: &Path, also_new: bool) -> Option<String> {
    let found = match fs::symlink_metadata(folder) {
        Ok(found) => found,
        Err(error) => return Some(format!("{}: {error}", folder.display())),
    };
    let mode = found.mode() & 0o7777;
    if is_foreign(found.uid(), also_new) {
        return Some(format!("{} belongs to user {}", folder.display(), found.uid()));
    }
    let is_sticky = mode & 0o1000 != 0 && !also_new;
    let is_open = mode & others_of(&found) != 0 && !is_sticky;
    is_open.then(|| format!("{} can be written by others (mode {mode:04o})", folder.display()))
}

/// Returns whether an owner is neither this user nor root. `at_the_end`: an owner that this user
/// namespace does not know is also another user.
fn is_foreign(owner: u32, at_the_end: bool) -> bool {
    owner != own_uid() && owner != 0 && (at_the_end || !is_unmapped(owner))
}

/// Returns the bits of a mode with which other users can write. Where each user has a group of the
/// same number, the user is its only member.
fn others_of(found: &fs::Metadata) -> u32 {
    if found.gid() == own_uid() { 0o002 } else { 0o022 }
}

/// Returns whether this is how a user namespace shows owners that it does not know, such as the
/// system's root.
fn is_unmapped(owner: u32) -> bool {
    const OVERFLOW: u32 = 65534;
    let maps_all = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    owner == OVERFLOW && !fs::read_to_string("/proc/self/uid_map").map_or(true, maps_all)
}

/// Creates a file that does not exist, mode 0600. Anything in its place, even a link, is an error.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// The treatment of an existing file when a secret is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Keep the existing file.
    Keep,
    /// Replace the existing file.
    Replace,
    /// Fail.
    Refuse,
}

/// Writes a secret to a file with mode 0600, in a directory that is created if missing. Readers
/// find the old secret or the new one, never a part; of several processes that create the first
/// one, one wins. A file that another user put in its place is not replaced.
pub fn write_secret(path: &Path, secret: &str, existing: Existing) -> io::Result<()> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        make_private_folder(dir).map_err(|error| match error {
            FileError::Io(error) => error,
            why => io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", dir.display())),
        })?;
    }
    if existing == Existing::Replace
        && let Ok(found) = fs::symlink_metadata(path)
        && found.uid() != own_uid()
    {
        let why = format!("it belongs to user {}: remove it, or choose another folder", found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", nonce::hex32()));
    let fresh = PathBuf::from(fresh);
    let written = create_private(&fresh).and_then(|mut file| {
        writeln!(file, "{secret}")?;
        file.sync_all()?;
        if existing == Existing::Replace {
            return fs::rename(&fresh, path);
        }
        match rename_new(&fresh, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && existing == Existing::Keep => {
                fs::remove_file(&fresh)
            }
            renamed => renamed,
        }
    });
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Renames a file to a name that does not exist yet.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Unsupported by this file system (NFS) or this kernel.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            renamed => return Ok(renamed?),
        }
    }
    // For a moment the file has two names; a reader at that moment rejects it.
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

/// Reads a secret's file, at most `most` bytes of it. Error: words that follow the file's name.
pub fn read_secret(path: &Path, most: u64) -> Result<(String, fs::Metadata), SecretError> {
    let unreadable = |error: io::Error| SecretError::Unreadable(format!("cannot be read: {error}"));
    let file = open_private(path, OFlags::RDONLY, OpenToOthers::Refused).map_err(|error| match error {
        FileError::Open(why) => SecretError::Open(why),
        FileError::Foreign(why) => SecretError::Foreign(why),
        FileError::Io(error) => unreadable(error),
    })?;
    let found = file.metadata().map_err(unreadable)?;
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).map_err(unreadable)?;
    Ok((text, found))
}

/// The reason why a secret's file is not used.
#[derive(Debug, PartialEq, Eq)]
pub enum SecretError {
    /// Others may read or write it: the secret may be known to them.
    Open(String),
    /// Another user may have put it there.
    Foreign(String),
    /// The file is missing or cannot be read.
    Unreadable(String),
}

/// Reads a file that the user wrote for muxtap and that decides which programs muxtap runs. `most`:
/// its maximum length in bytes. Error: the file cannot be read, belongs to another user, or other
/// users can write it, replace it, or move a directory above it.
pub fn read_configuration(path: &Path, most: u64) -> io::Result<String> {
    let refuse = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let check = |found: &fs::Metadata| {
        let (owner, mode) = (found.uid(), found.mode() & 0o7777);
        if owner != own_uid() && owner != 0 {
            return Err(refuse(format!("it belongs to user {owner}: use a file of your own")));
        }
        if mode & others_of(found) != 0 {
            return Err(refuse(format!("other users can write it (mode {mode:04o}): chmod go-w it")));
        }
        Ok(())
    };
    // All checks come before the file is opened: a FIFO of another user must not block.
    let found = fs::metadata(path)?;
    check_way(&std::path::absolute(path)?, &mut 0).map_err(refuse)?;
    check(&found)?;
    let file = File::open(path)?;
    check(&file.metadata()?)?;
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("it is too large; at most {most} bytes are allowed")));
    }
    Ok(text)
}

/// Checks that only this user and root decide what an absolute path leads to: the owners of the
/// links on the way, and the users that can replace one of them, or the path's end.
fn check_way(path: &Path, links: &mut usize) -> Result<(), String> {
    for (depth, step) in path.ancestors().enumerate() {
        // A missing step is an error when the caller opens the path.
        let Ok(found) = fs::symlink_metadata(step) else { continue };
        let Some(folder) = step.parent() else { continue };
        let is_end = depth == 0;
        if found.is_symlink() {
            let owner = found.uid();
            if owner != own_uid() && owner != 0 && (is_end || !is_unmapped(owner)) {
                return Err(format!("{} is a symbolic link of user {owner}: use a file of your own", step.display()));
            }
        } else if is_end && found.uid() != own_uid() && found.uid() != 0 {
            return Err(format!("it belongs to user {}: use a file of your own", found.uid()));
        }
        if (is_end || found.is_symlink())
            && let Some(why) = open_to_others(folder, is_end)
        {
            return Err(format!("{why}, so another user could replace it: choose a folder of your own"));
        }
        if found.is_symlink()
            && let Ok(target) = fs::read_link(step)
        {
            *links += 1;
            if *links > LINKS {
                return Err(format!("more than {LINKS} symbolic links lead to it"));
            }
            check_way(&folder.join(target), links)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_another_one_when_it_was_changed_made_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let absent = ReadFile::now(&path);
        assert!(!absent.was_there() && !absent.has_changed());
        fs::write(&path, "one").unwrap();
        assert!(absent.has_changed());
        let there = ReadFile::now(&path);
        assert!(there.was_there() && !there.has_changed());
        // As editors do.
        fs::write(dir.path().join("g"), "two").unwrap();
        fs::rename(dir.path().join("g"), &path).unwrap();
        assert!(there.has_changed());
        let there = ReadFile::now(&path);
        fs::remove_file(&path).unwrap();
        assert!(there.has_changed());
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
    fn a_secret_in_a_link_a_fifo_or_a_file_open_to_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("secret"), dir.path().join("link"));
        let refused = |path: &Path| match read_secret(path, 100).unwrap_err() {
            SecretError::Open(why) | SecretError::Foreign(why) | SecretError::Unreadable(why) => why,
        };
        assert!(refused(&path).contains("cannot be read"));
        write_secret(&path, "secret", Existing::Keep).unwrap();
        symlink(&path, &link).unwrap();
        assert!(refused(&link).contains("symbolic link"));
        // A dangling link is not written through.
        let nowhere = dir.path().join("nowhere");
        symlink(dir.path().join("made"), &nowhere).unwrap();
        write_secret(&nowhere, "secret", Existing::Keep).unwrap();
        assert!(!dir.path().join("made").exists() && refused(&nowhere).contains("symbolic link"));
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert!(refused(&pipe).contains("a FIFO"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused(&path).contains("open to others (mode 0640)"));
    }
}
