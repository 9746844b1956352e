//! The seal of a snapshot that was saved here: an HMAC of its file with a key of the store.
//!
//! A restore does not set the variables of a file from elsewhere without `run`
//! (`docs/snapshots.md`), and such a file must not pass for a saved one: it can contain anything
//! but a valid seal. The key is beside the folder of the snapshots, not in it, and only the user
//! can read it: a folder that is unpacked over this one brings no key. A file that came by another
//! way than `save`, was changed, or has the name of another one, has no valid seal.

use std::{
    io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::files::{self, Existing, SecretError};
use serde_json::Value;
use sha2::Sha256;

use super::file::OWN;

/// The key of the seal in muxtap's part of a file.
const SEAL: &str = "seal";
/// The number of random bytes in the store's key.
const KEY_BYTES: usize = 32;
/// The maximum size of the key's file, in bytes.
const KEY_FILE_BYTES: u64 = 4096;

/// Returns the path of the key for a folder of snapshots.
fn key_file(folder: &Path) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push("-seal.key");
    path.into()
}

/// Seals a file as saved here. The first call creates the key.
///
/// Error: `CONFLICT` if others can access the key.
pub(super) fn seal(folder: &Path, name: &str, file: &mut Value) -> Result<()> {
    let path = key_file(folder);
    let refuse = |why: &dyn std::fmt::Display| {
        Error::new(ErrorCode::Conflict, format!("the key for snapshots, {}, {why}", path.display()))
    };
    if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        let mut random = [0; KEY_BYTES];
        getrandom::fill(&mut random).map_err(|error| Error::internal(format!("cannot get random bytes: {error}")))?;
        let written = files::write_secret(&path, &URL_SAFE_NO_PAD.encode(random), Existing::Keep);
        written.map_err(|error| refuse(&format_args!("cannot be written: {error}")))?;
    }
    let key = read_key(&path).map_err(|why| refuse(&why))?;
    let mark = URL_SAFE_NO_PAD.encode(mac(key, name, file).finalize().into_bytes());
    if let Some(own) = file.get_mut(OWN).and_then(Value::as_object_mut) {
        own.insert(SEAL.into(), mark.into());
    }
    Ok(())
}

/// Removes the seal from a file. Returns whether the file was saved here and has not changed.
pub(super) fn unseal(folder: &Path, name: &str, file: &mut Value) -> bool {
    let Some(own) = file.get_mut(OWN).and_then(Value::as_object_mut) else { return false };
    let Some(Value::String(mark)) = own.remove(SEAL) else { return false };
    let Ok(mark) = URL_SAFE_NO_PAD.decode(mark) else { return false };
    match read_key(&key_file(folder)) {
        Ok(key) => mac(key, name, file).verify_slice(&mark).is_ok(),
        Err(why) => {
            tracing::warn!("the key for snapshots, {}, {why}", key_file(folder).display());
            false
        }
    }
}

/// Returns the HMAC of a snapshot's name and its file without the seal.
fn mac(mut key: Hmac<Sha256>, name: &str, file: &Value) -> Hmac<Sha256> {
    // A name contains no NUL.
    key.update(name.as_bytes());
    key.update(&[0]);
    key.update(file.to_string().as_bytes());
    key
}

fn read_key(path: &Path) -> std::result::Result<Hmac<Sha256>, String> {
    let (text, _) = files::read_secret(path, KEY_FILE_BYTES).map_err(|error| match error {
        SecretError::Open(why) => format!("{why}: remove it, and save again"),
        SecretError::Foreign(why) | SecretError::Unreadable(why) => why,
    })?;
    let bytes = URL_SAFE_NO_PAD.decode(text.trim()).ok().filter(|bytes| bytes.len() == KEY_BYTES);
    let key = bytes.and_then(|bytes| Hmac::new_from_slice(&bytes).ok());
    key.ok_or_else(|| "holds no key: remove it, and save again".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use serde_json::json;

    use super::*;

    #[test]
    fn a_seal_is_valid_only_for_the_locally_saved_file() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("here"), dir.path().join("there"));
        let plain = json!({ "session_name": "a", "environment": { "B": "c" }, OWN: { "version": 1 } });
        let mut sealed = plain.clone();
        seal(&here, "a", &mut sealed).unwrap();
        assert_eq!(fs::metadata(key_file(&here)).unwrap().permissions().mode() & 0o777, 0o600);
        let read = |text: &Value, folder: &Path| {
            let mut file: Value = serde_json::from_str(&serde_json::to_string_pretty(text).unwrap()).unwrap();
            let is_own = unseal(folder, "a", &mut file);
            (is_own, file)
        };
        assert_eq!(read(&sealed, &here), (true, plain.clone()));
        // Another store's, an unsealed one, a changed one, a malformed seal, and one without its
        // key.
        let mut other = plain.clone();
        seal(&there, "a", &mut other).unwrap();
        let mut changed = sealed.clone();
        changed["environment"]["PROMPT_COMMAND"] = "id".into();
        let mut odd = sealed.clone();
        odd[OWN][SEAL] = json!(["x"]);
        for (file, folder) in [(&other, &here), (&plain, &here), (&changed, &here), (&odd, &here), (&sealed, &there)] {
            assert!(!read(file, folder).0, "{file}");
        }
        assert!(!unseal(&here, "b", &mut sealed.clone()), "a file under another one's name");
        assert!(!key_file(&here).starts_with(&here), "a folder from elsewhere would bring its key");
        fs::set_permissions(key_file(&here), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!read(&sealed, &here).0);
        assert!(seal(&here, "a", &mut plain.clone()).unwrap_err().message.contains("save again"));
        fs::remove_file(key_file(&here)).unwrap();
        assert!(!read(&sealed, &here).0);
    }
}
