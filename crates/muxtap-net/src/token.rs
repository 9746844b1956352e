//! The token for callers over TCP: a file of the user's, created if it is missing.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Mutex,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::files::{self, Existing, SecretError};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The daemon's environment variable with a second valid token; no terminal gets it.
pub const VARIABLE: &str = "AUTH_TOKEN";
/// The number of random bytes in a token.
const RANDOM_BYTES: usize = 32;
/// The hint how to replace the daemon's token.
const REMEDY: &str = "`muxtap token --new` creates a new one";
/// The longest file that is read, in bytes: longer ones are not tokens.
const FILE_BYTES: u64 = 4096;

/// A token in a file, which is read again after a change.
pub struct Token {
    path: PathBuf,
    cached: Mutex<CachedDigest>,
    /// The hash of another valid token.
    also: Option<[u8; 32]>,
    remedy: &'static str,
}

struct CachedDigest {
    digest: [u8; 32],
    /// The identity of the file that was read: device, inode and time of change.
    stamp: (u64, u64, i64, i64),
    /// Whether the file's problem is already logged.
    is_logged: bool,
}

impl Token {
    /// Opens the token in this file; creates one if it is missing. Error: `CONFLICT` if others have
    /// access to the file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_of(path, REMEDY)
    }

    /// Opens or creates the token like [`Token::open`]. `remedy`: the way to replace it, for
    /// errors.
    pub fn open_of(path: &Path, remedy: &'static str) -> Result<Self> {
        write(path, Existing::Keep)?;
        let cached = Mutex::new(read(path, remedy)?.1);
        Ok(Self { path: path.to_owned(), cached, also: None, remedy })
    }

    /// Accepts another token too, for the lifetime of this process: one of 16 or more visible
    /// characters.
    pub fn or(self, other: Option<String>) -> Self {
        let other = other.filter(|other| is_token(other));
        Self { also: other.map(|other| Sha256::digest(other.as_bytes()).into()), ..self }
    }

    /// Returns whether `given` is the token. The time does not depend on the position of the first
    /// difference, nor on the lengths.
    pub fn matches(&self, given: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        if self.also.is_some_and(|also| given.ct_eq(&also).into()) {
            return true;
        }
        let mut cached = self.cached.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A missing file counts as changed too: removing it revokes the token.
        if !fs::metadata(&self.path).is_ok_and(|found| stamp(&found) == cached.stamp) {
            match read(&self.path, self.remedy) {
                Ok((_, new)) => *cached = new,
                // A token that became readable by others is no longer valid. Any caller can cause
                // this error, so it is logged once.
                Err(error) => {
                    if !std::mem::replace(&mut cached.is_logged, true) {
                        tracing::warn!("{error}");
                    }
                    return false;
                }
            }
        }
        given.ct_eq(&cached.digest).into()
    }
}

/// Returns the token in the file; creates one if it is missing.
pub fn read_or_create(path: &Path) -> Result<String> {
    write(path, Existing::Keep)?;
    Ok(read(path, REMEDY)?.0)
}

/// Checks the token in the file, if it exists. Error: `CONFLICT` if others have access to the file.
pub fn check(path: &Path) -> Result<()> {
    if fs::symlink_metadata(path).is_err() { Ok(()) } else { read(path, REMEDY).map(drop) }
}

/// Replaces the token: callers with the old one are refused from now on.
pub fn renew(path: &Path) -> Result<()> {
    write(path, Existing::Replace)
}

fn write(path: &Path, existing: Existing) -> Result<()> {
    if existing == Existing::Keep && path.exists() {
        return Ok(());
    }
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| Error::internal(format!("cannot get random bytes: {error}")))?;
    files::write_secret(path, &URL_SAFE_NO_PAD.encode(random), existing).map_err(|error| {
        Error::new(ErrorCode::Conflict, format!("cannot write the token to {}: {error}", path.display()))
    })
}

fn read(path: &Path, remedy: &str) -> Result<(String, CachedDigest)> {
    let refuse = |why: &str| Error::new(ErrorCode::Conflict, format!("the token file {} {why}", path.display()));
    let (text, found) = files::read_secret(path, FILE_BYTES).map_err(|error| match error {
        SecretError::Open(why) => refuse(&format!("{why}: {remedy}")),
        SecretError::Foreign(why) | SecretError::Unreadable(why) => refuse(&why),
    })?;
    let token = text.trim().to_owned();
    if !is_token(&token) {
        return Err(refuse(&format!("has no valid token; expected 16 or more visible characters: {remedy}")));
    }
    let cached =
        CachedDigest { digest: Sha256::digest(token.as_bytes()).into(), stamp: stamp(&found), is_logged: false };
    Ok((token, cached))
}

fn is_token(text: &str) -> bool {
    text.len() >= 16 && text.chars().all(|letter| letter.is_ascii_graphic())
}

fn stamp(found: &fs::Metadata) -> (u64, u64, i64, i64) {
    (found.dev(), found.ino(), found.ctime(), found.ctime_nsec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_created_once_kept_private_and_reloaded_when_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/token");
        let token = Token::open(&path).unwrap();
        let first = read_or_create(&path).unwrap();
        assert_eq!(first, read_or_create(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(token.matches(&first));
        for wrong in ["", "x", first.trim_start_matches(|c| first.starts_with(c)), &format!("{first} ")] {
            assert!(!token.matches(wrong), "{wrong:?}");
        }
        renew(&path).unwrap();
        assert!(!token.matches(&first));
        assert!(token.matches(&read_or_create(&path).unwrap()));
        let second = read_or_create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!token.matches(&second), "a token that was taken away");
        renew(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!token.matches(&second));
        assert!(read_or_create(&path).unwrap_err().message.contains("open to others"));
    }

    #[test]
    fn another_token_counts_too_where_it_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let other = "sixteen-or-more-visible";
        let token = Token::open(&path).unwrap().or(Some(other.into()));
        assert!(token.matches(other) && token.matches(&read_or_create(&path).unwrap()) && !token.matches(""));
        for none in ["", "short", "sixteen or more, with spaces"] {
            assert!(!Token::open(&path).unwrap().or(Some(none.into())).matches(none), "{none:?}");
        }
    }

    #[test]
    fn a_file_that_holds_no_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for text in ["", "short", "sixteen or more, but with spaces"] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(read_or_create(&path).is_err(), "{text:?}");
        }
    }
}
