//! The last snapshot of each device, in files that only the user can read.
//!
//! The first line of a file describes the device, the second is the snapshot.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use muxtap_api::{DeviceType, Error, ErrorCode, Result};
use muxtap_base::files::{self, Existing, FileError, OpenToOthers};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The maximum size of a snapshot, in bytes.
pub const SNAPSHOT_BYTES: usize = 1 << 20;
/// The maximum number of snapshots; one more replaces that of a disconnected device first.
///
/// Among those, the device that was seen longest ago loses its snapshot.
pub const SNAPSHOTS: usize = 256;
/// The maximum length of a file's first line, in bytes.
const HEAD_BYTES: u64 = 4096;

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The device's id.
    pub device_id: String,
    /// The device's label.
    pub device_label: String,
    /// The device's type.
    pub device_type: DeviceType,
    /// The principal that the device belongs to.
    pub principal: String,
    /// When the device was last seen, in milliseconds since 1970.
    pub last_seen_at: u64,
    /// The snapshot's revision.
    pub workspace_revision: u64,
    /// When the snapshot was taken, in milliseconds since 1970.
    pub captured_at: u64,
}

/// The folder of snapshots. Its functions read and write files, and block.
#[derive(Debug, Default)]
pub struct Cache {
    /// The folder. `None`: nothing is stored.
    dir: Option<PathBuf>,
    /// Held while a file is written: of two snapshots of a device, the newer one stays.
    writing: Mutex<()>,
}

impl Cache {
    /// Uses this folder, which may be missing.
    pub fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, writing: Mutex::default() }
    }

    /// Lists the snapshots by their first lines. An unusable file stays, and is logged.
    pub fn heads(&self) -> Vec<Head> {
        let Some(dir) = &self.dir else { return Vec::new() };
        if let Err(why @ (FileError::Foreign(_) | FileError::Open(_))) = files::check_private_folder(dir) {
            tracing::warn!("the snapshot directory {} {why}", dir.display());
            return Vec::new();
        }
        let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let snapshots = paths.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
        let read = snapshots.take(2 * SNAPSHOTS).filter_map(|path| match read_head(&path) {
            Ok(head) => Some(head),
            Err(why) => {
                tracing::warn!("the snapshot {} {why}", path.display());
                None
            }
        });
        read.collect()
    }

    /// Writes a snapshot if `still` returns true once the lock is held.
    ///
    /// Error: `CONFLICT` if the folder or the file is not writable.
    pub fn save(&self, head: &Head, snapshot: &str, still: impl FnOnce() -> bool) -> Result<()> {
        let Some(path) = self.path(&head.device_id) else { return Ok(()) };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if !still() {
            return Ok(());
        }
        let unable = |why: &dyn std::fmt::Display| {
            Error::new(ErrorCode::Conflict, format!("cannot save the snapshot {}: {why}", path.display()))
        };
        let head = serde_json::to_string(head).map_err(|error| unable(&error))?;
        files::write_secret(&path, &format!("{head}\n{snapshot}"), Existing::Replace).map_err(|error| unable(&error))
    }

    /// Returns a device's snapshot. `None`: it is missing or unusable.
    pub fn load(&self, device: &str) -> Option<(Head, serde_json::Value)> {
        let path = self.path(device)?;
        // The first line, the snapshot, and two line ends.
        let (text, _) = files::read_secret(&path, HEAD_BYTES + SNAPSHOT_BYTES as u64 + 2).ok()?;
        let (head, snapshot) = text.split_once('\n')?;
        let head: Head = serde_json::from_str(head).ok().filter(|head: &Head| head.device_id == device)?;
        Some((head, serde_json::from_str(snapshot).ok()?))
    }

    /// Removes a device's snapshot if `still` returns true. A snapshot that is written meanwhile
    /// stays.
    pub fn remove(&self, device: &str, still: impl FnOnce() -> bool) {
        let Some(path) = self.path(device) else { return };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if still() {
            let _ = fs::remove_file(path);
        }
    }

    /// Returns the path of a device's file. The name is a hash: an id never becomes part of a path.
    fn path(&self, device: &str) -> Option<PathBuf> {
        let digest = Sha256::digest(device.as_bytes());
        let name = URL_SAFE_NO_PAD.encode(digest);
        self.dir.as_ref().map(|dir| dir.join(format!("{name}.json")))
    }
}

fn read_head(path: &Path) -> std::result::Result<Head, String> {
    let file = files::open_private(path, OFlags::RDONLY, OpenToOthers::Refused).map_err(|error| match error {
        FileError::Open(why) => format!("{why}: chmod 600 it"),
        FileError::Foreign(why) => why,
        FileError::Io(error) => format!("cannot be read: {error}"),
    })?;
    if file.metadata().is_ok_and(|found| found.size() > 2 * SNAPSHOT_BYTES as u64) {
        return Err("is too large: remove it".into());
    }
    let mut line = String::new();
    let read = BufReader::new(file.take(HEAD_BYTES)).read_line(&mut line);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    serde_json::from_str(&line).map_err(|error| format!("does not name its device: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn head(device: &str) -> Head {
        Head {
            device_id: device.into(),
            device_label: "a laptop".into(),
            device_type: DeviceType::Browser,
            principal: "user".into(),
            last_seen_at: 1,
            workspace_revision: 2,
            captured_at: 3,
        }
    }

    #[test]
    fn a_snapshot_is_private_and_is_found_again_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("deep/snapshots");
        let cache = Cache::new(Some(at.clone()));
        assert!(cache.heads().is_empty() && cache.load("d").is_none());
        cache.save(&head("d"), "{\"tabs\":[]}", || true).unwrap();
        cache.save(&head("../../e"), "{}", || true).unwrap();
        cache.save(&head("d"), "{}", || false).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&at), 0o700);
        let files: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.iter().map(|path| mode(path)).collect::<Vec<_>>(), [0o600, 0o600]);
        let again = Cache::new(Some(at));
        let mut heads = again.heads();
        heads.sort_by(|one, other| one.device_id.cmp(&other.device_id));
        assert_eq!(heads, [head("../../e"), head("d")]);
        assert_eq!(again.load("d").unwrap(), (head("d"), serde_json::json!({"tabs": []})));
        again.remove("d", || false);
        assert!(again.load("d").is_some());
        again.remove("d", || true);
        assert!(again.load("d").is_none());
        // A file that others could have written does not count.
        fs::set_permissions(files.iter().find(|path| path.exists()).unwrap(), fs::Permissions::from_mode(0o644))
            .unwrap();
        assert!(again.heads().is_empty() && again.load("../../e").is_none());
        assert!(Cache::default().save(&head("d"), "{}", || true).is_ok());
    }
}
