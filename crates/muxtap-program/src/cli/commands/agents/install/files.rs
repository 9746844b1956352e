//! Replaces a person's file: atomically, with its mode, behind its symbolic links.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::api::{Error, ErrorCode, Result};

/// The most bytes of such a file.
const FILE_BYTES: u64 = 16 << 20;

/// What is done to a file.
pub(super) enum Change<'a> {
    /// Write this text; `keep`: the text to keep beside it.
    Write { text: &'a str, keep: Option<&'a str> },
    /// Write the text that was kept, which is then removed.
    Restore { text: &'a str },
    /// Remove the file, which did not exist before; `keep`: the text to keep.
    Remove { keep: Option<&'a str> },
}

/// Whose a file is, and who may use it.
#[derive(Clone, Copy)]
struct Owned {
    mode: u32,
    /// The user and the group; `None`: this process's own.
    owner: Option<(u32, u32)>,
}

/// A file that only this process's user may read.
const PRIVATE: Owned = Owned { mode: 0o600, owner: None };

/// Returns the file behind symbolic links. Error: a link leads nowhere.
pub(super) fn resolve(file: &Path) -> Result<PathBuf> {
    match fs::canonicalize(file) {
        Ok(found) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::symlink_metadata(file) {
            Ok(_) => Err(Error::invalid(format!("{} is a symbolic link that leads nowhere", file.display()))),
            Err(_) => Ok(file.to_owned()),
        },
        Err(error) => Err(unable(file, "read", &error)),
    }
}

/// Reads a file; `None` if it does not exist.
pub(super) fn read(file: &Path) -> Result<Option<String>> {
    match fs::metadata(file) {
        Ok(about) if !about.is_file() => Err(Error::invalid(format!("{} is not a file", file.display()))),
        Ok(about) if about.len() > FILE_BYTES => Err(Error::invalid(format!("{} is too large", file.display()))),
        Ok(_) => fs::read_to_string(file).map(Some).map_err(|error| unable(file, "read", &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unable(file, "read", &error)),
    }
}

/// Returns where the text of a project's file from before the installation is kept: among muxtap's own
/// files. Error: neither `XDG_STATE_HOME` nor `HOME` is set.
pub(super) fn project_backup_of(file: &Path) -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| Error::invalid("neither XDG_STATE_HOME nor HOME is set"))?;
    // The path as it is may be too long for a name.
    let hash = Sha256::digest(file.as_os_str().as_encoded_bytes());
    let hash = hash.iter().take(8).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let name = backup_of(file).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(state.join("muxtap/agent-hooks").join(format!("{hash}-{name}")))
}

/// Returns where the text of a user's file from before the installation is kept.
pub(super) fn backup_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".before-muxtap");
    file.with_file_name(name)
}

/// Changes a file whose text is `old`. Error: another program has changed it meanwhile, or the disk does
/// not take the new text; the file is as it was then.
pub(super) fn replace(file: &Path, old: Option<&str>, backup: &Path, change: &Change<'_>) -> Result<()> {
    let owned = owned(file)?;
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(|error| unable(folder, "create", &error))?;
    }
    if let Change::Write { keep: Some(keep), .. } | Change::Remove { keep: Some(keep) } = change {
        keep_text(file, backup, keep, owned)?;
    }
    if let Change::Write { text, .. } | Change::Restore { text } = change {
        let new = prepare(file, text, owned)?;
        if read(file)?.as_deref() != old {
            // Its error leaves a file beside the person's own, nothing else.
            let _ = fs::remove_file(&new);
            let message = format!("{} was changed meanwhile; try again", file.display());
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        commit(&new, file)?;
    }
    if let Change::Remove { .. } = change {
        fs::remove_file(file).map_err(|error| unable(file, "remove", &error))?;
    }
    if let Change::Restore { .. } = change {
        fs::remove_file(backup).map_err(|error| unable(backup, "remove", &error))?;
    }
    Ok(())
}

/// Returns the owner of a file, or of the file that would be created. Error: it is protected from its own
/// user, or a new one would be another user's than its directory.
fn owned(file: &Path) -> Result<Owned> {
    let own = rustix::process::geteuid().as_raw();
    let Ok(about) = fs::metadata(file) else {
        let folder = file.ancestors().skip(1).find_map(|folder| fs::metadata(folder).ok());
        return match folder {
            Some(about) if about.uid() != own => {
                let message =
                    format!("{} would be in a directory of another user: run this as that user", file.display());
                Err(Error::invalid(message))
            }
            _ => Ok(PRIVATE),
        };
    };
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o200 == 0 {
        let message = format!("{} is write-protected: its mode is {mode:03o}", file.display());
        return Err(Error::new(ErrorCode::Conflict, message));
    }
    Ok(Owned { mode, owner: Some((about.uid(), about.gid())) })
}

/// Keeps a text: beside its file as the file is, elsewhere for this user alone.
fn keep_text(file: &Path, backup: &Path, text: &str, owned: Owned) -> Result<()> {
    let is_beside = backup.parent() == file.parent();
    if let Some(folder) = backup.parent().filter(|_| !is_beside) {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| unable(folder, "create", &error))?;
    }
    let new = prepare(backup, text, if is_beside { owned } else { PRIVATE })?;
    commit(&new, backup)
}

/// Writes a text to a new file beside `file`, down to the disk.
fn prepare(file: &Path, text: &str, owned: Owned) -> Result<PathBuf> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    let written = || -> io::Result<()> {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        out.write_all(text.as_bytes())?;
        if let Some((user, group)) = owned.owner {
            let about = out.metadata()?;
            if (about.uid(), about.gid()) != (user, group) {
                fchown(&out, Some(user), Some(group))?;
            }
        }
        // After the change of owner, which clears bits.
        out.set_permissions(fs::Permissions::from_mode(owned.mode))?;
        out.sync_all()
    };
    written().map_err(|error| {
        // A file that another process made with this name stays.
        if error.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(&new);
        }
        unable(&new, "write", &error)
    })?;
    Ok(new)
}

fn commit(new: &Path, file: &Path) -> Result<()> {
    fs::rename(new, file).map_err(|error| {
        let _ = fs::remove_file(new);
        unable(file, "replace", &error)
    })?;
    // A system that cannot sync a folder keeps the rename all the same.
    if let Some(folder) = file.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}

fn unable(file: &Path, what: &str, error: &io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("cannot {what} {}: {error}", file.display()))
}
