//! Replaces a person's file: atomically, with its mode, behind its symbolic links.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use crate::api::{Error, ErrorCode, Result};

/// The most bytes of such a file.
const FILE_BYTES: u64 = 16 << 20;

/// What is done to a file.
pub(super) enum Change<'a> {
    /// Write this text; `keep`: the text to keep beside it.
    Write { text: &'a str, keep: Option<&'a str> },
    /// Write the text that was kept, which is then removed.
    Restore { text: &'a str },
    /// Remove the file, which did not exist before.
    Remove,
}

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

/// Reads a file; `None` if there is none.
pub(super) fn read(file: &Path) -> Result<Option<String>> {
    match fs::metadata(file) {
        Ok(about) if !about.is_file() => Err(Error::invalid(format!("{} is not a file", file.display()))),
        Ok(about) if about.len() > FILE_BYTES => Err(Error::invalid(format!("{} is too large", file.display()))),
        Ok(_) => fs::read_to_string(file).map(Some).map_err(|error| unable(file, "read", &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unable(file, "read", &error)),
    }
}

/// Returns where the text from before the installation is kept.
pub(super) fn backup_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".before-muxtap");
    file.with_file_name(name)
}

/// Changes a file whose text is `old`. Error: another program has changed it meanwhile, or the disk does
/// not take the new text; the file is as it was then.
pub(super) fn replace(file: &Path, old: Option<&str>, change: &Change<'_>) -> Result<()> {
    let backup = backup_of(file);
    let mode = fs::metadata(file).map_or(0o600, |about| about.permissions().mode() & 0o7777);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(|error| unable(folder, "create", &error))?;
    }
    if let Change::Write { keep: Some(keep), .. } = change {
        write(&backup, keep, mode)?;
    }
    if let Change::Write { text, .. } | Change::Restore { text } = change {
        let new = prepare(file, text, mode)?;
        if read(file)?.as_deref() != old {
            // Its error leaves a file beside the person's own, nothing else.
            let _ = fs::remove_file(&new);
            let message = format!("{} was changed meanwhile; try again", file.display());
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        commit(&new, file)?;
    }
    if let Change::Remove = change {
        fs::remove_file(file).map_err(|error| unable(file, "remove", &error))?;
    }
    if let Change::Restore { .. } = change {
        fs::remove_file(&backup).map_err(|error| unable(&backup, "remove", &error))?;
    }
    Ok(())
}

fn write(file: &Path, text: &str, mode: u32) -> Result<()> {
    let new = prepare(file, text, mode)?;
    commit(&new, file)
}

/// Writes a text to a new file beside `file`, down to the disk.
fn prepare(file: &Path, text: &str, mode: u32) -> Result<PathBuf> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    let written = || -> io::Result<()> {
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        out.write_all(text.as_bytes())?;
        out.set_permissions(fs::Permissions::from_mode(mode))?;
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
