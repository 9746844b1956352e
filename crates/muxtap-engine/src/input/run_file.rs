//! The private file from which a shell reads the command of a `run`.

use std::{
    fs::DirBuilder,
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Once,
};

use muxtap_base::{files, nonce, quoting::is_plain_path};

/// The beginning of the directory's name; the process's id and a random part follow.
const PREFIX: &str = "muxtap-r";
/// The name of the file in its directory.
const NAME: &str = "r";
/// Whether the files of other processes were looked for.
static SWEPT: Once = Once::new();
/// The number of characters of a directory's random part.
const RANDOM: usize = 8;

/// A place for a file in a directory of its own, mode 0700, which only this user can replace. Both
/// are removed when this is dropped: a shell that has not read the file by then never runs it.
#[derive(Debug)]
pub(crate) struct RunFile {
    directory: PathBuf,
    /// The file's path, of characters that no shell interprets.
    path: String,
}

impl RunFile {
    /// Makes the directory, in the first of these that only this user and root decide about:
    /// `$XDG_RUNTIME_DIR`, `$TMPDIR`, `/tmp`. `None` if all are missing.
    pub(crate) fn place() -> Option<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let random: String = nonce::hex64().chars().take(RANDOM).collect();
        let bases = runtime.into_iter().chain([std::env::temp_dir(), "/tmp".into()]);
        bases.into_iter().find_map(|base| Self::place_in(&base, &random))
    }

    fn place_in(base: &Path, random: &str) -> Option<Self> {
        let directory = base.join(format!("{PREFIX}{}-{random}", std::process::id()));
        let path = directory.join(NAME).to_str()?.to_owned();
        if !is_plain_path(&path) || files::open_to_others(base, false).is_some() {
            return None;
        }
        SWEPT.call_once(|| sweep(base));
        DirBuilder::new().mode(0o700).create(&directory).ok()?;
        Some(Self { directory, path })
    }

    /// Returns the file's path.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Writes the file, mode 0600.
    pub(crate) fn write(&self, script: &str) -> io::Result<()> {
        files::create_private(Path::new(&self.path))?.write_all(script.as_bytes())
    }
}

/// Removes the files of processes that were killed: they may have a secret.
fn sweep(base: &Path) {
    let own = std::fs::read_dir(base).into_iter().flatten().flatten().filter(|entry| files::is_own(&entry.path()));
    for entry in own {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
        if pid.is_some_and(|pid| Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{pid}")).exists()) {
            let directory = entry.path();
            drop(RunFile { path: directory.join(NAME).to_string_lossy().into_owned(), directory });
        }
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // What is no longer there needs no removal.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_its_user_can_read_it_and_nothing_is_left() {
        let base = tempfile::tempdir().unwrap();
        let place = RunFile::place_in(base.path(), "12345678").unwrap();
        place.write("echo hi").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&place.directory), mode(Path::new(place.path()))), (0o700, 0o600));
        assert!(RunFile::place_in(base.path(), "12345678").is_none(), "a directory that is there is not used");
        drop(place);
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let base = tempfile::tempdir().unwrap();
        // No process has this id (kernel.pid_max).
        let (gone, other) = (base.path().join("muxtap-r4194305-12345678"), base.path().join("muxtap-rr"));
        for directory in [&gone, &other] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("r"), "secret").unwrap();
        }
        let here = RunFile::place_in(base.path(), "12345678").unwrap();
        sweep(base.path());
        assert!(!gone.exists() && other.join("r").exists() && here.directory.exists());
    }

    #[test]
    fn a_directory_that_others_can_write_to_holds_no_file() {
        let base = tempfile::tempdir().unwrap();
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(RunFile::place_in(base.path(), "12345678").is_none());
        let odd = base.path().join("a b");
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::create_dir(&odd).unwrap();
        assert!(RunFile::place_in(&odd, "12345678").is_none(), "a shell would split this path");
    }
}
