//! Codes that work once, and the cookies that they are traded for. Only hashes are stored.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::files::{self, Existing, SecretError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

/// How long a code is valid.
pub const CODE_TIME: Duration = Duration::from_secs(60);
/// The maximum number of codes; one more replaces the oldest.
pub const CODES: usize = 64;
/// How long a cookie is valid after its last use.
pub const COOKIE_TIME: Duration = Duration::from_secs(30 * 86_400);
/// The maximum number of cookies; one more replaces the one that was used longest ago.
pub const COOKIES: usize = 64;
/// The minimum time between two uses of a cookie that are written to the file.
const NOTED: Duration = Duration::from_secs(3600);
/// The maximum size of the file, in bytes.
const FILE_BYTES: u64 = 1 << 20;

/// A page with a valid cookie: an extension of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSession {
    /// Whether the page is read-only.
    pub reads_only: bool,
    /// The hash of its cookie.
    hash: String,
}

impl PageSession {
    /// Returns the id of this page's login: the hash of its cookie, which grants no access.
    pub fn id(&self) -> &str {
        &self.hash
    }
}

/// Codes and cookies; clones share them.
#[derive(Clone, Debug, Default)]
pub struct PageSessions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The file of the cookies. `None`: they end with the process.
    file: Option<PathBuf>,
    codes: Mutex<Vec<Code>>,
    cookies: Mutex<Vec<Cookie>>,
    /// Counts revocations.
    ended: watch::Sender<u64>,
}

/// A code that works once.
#[derive(Debug)]
pub struct Code {
    hash: [u8; 32],
    made: Instant,
    reads_only: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cookie {
    /// SHA-256 of the cookie.
    hash: String,
    reads_only: bool,
    /// When the cookie was last used, in milliseconds since 1970.
    used: u64,
}

impl PageSessions {
    /// Reads the cookies of this file, which may be missing.
    ///
    /// An unusable file is logged, and its cookies have ended.
    pub fn open(file: Option<PathBuf>) -> Self {
        let cookies = file.as_ref().filter(|file| file.exists()).map(|file| {
            let why = match files::read_secret(file, FILE_BYTES) {
                Ok((text, _)) => match serde_json::from_str(&text) {
                    Ok(cookies) => return cookies,
                    Err(error) => format!("has no valid cookies: {error}"),
                },
                Err(SecretError::Open(why)) => format!("{why}: its cookies are no longer valid; chmod 600 it"),
                Err(SecretError::Foreign(why) | SecretError::Unreadable(why)) => why,
            };
            tracing::warn!("the page cookie file {} {why}", file.display());
            Vec::new()
        });
        let cookies = Mutex::new(cookies.unwrap_or_default());
        Self(Arc::new(Shared { file, codes: Mutex::default(), cookies, ended: watch::Sender::default() }))
    }

    /// Creates a code, which works once.
    pub fn code(&self, reads_only: bool) -> Result<String> {
        let code = secret::<16>()?;
        let mut codes = self.codes();
        codes.retain(|code| code.made.elapsed() < CODE_TIME);
        if codes.len() >= CODES {
            codes.remove(0);
        }
        codes.push(Code { hash: digest(&code), made: Instant::now(), reads_only });
        Ok(code)
    }

    /// Redeems a code, which does not work again. Error: `UNAUTHORIZED`.
    pub fn redeem(&self, code: &str) -> Result<Code> {
        let given = digest(code);
        let found = {
            let mut codes = self.codes();
            codes.retain(|code| code.made.elapsed() < CODE_TIME);
            let at = codes.iter().position(|code| code.hash.ct_eq(&given).into());
            at.map(|at| codes.remove(at))
        };
        let none = || {
            Error::new(
                ErrorCode::Unauthorized,
                "this link was already used, or is older than a minute: `muxtap open` creates a new one",
            )
        };
        found.ok_or_else(none)
    }

    /// Creates a cookie for a redeemed code. Writes a file.
    pub fn log_in(&self, code: &Code, now_ms: u64) -> Result<String> {
        let cookie = secret::<32>()?;
        let mut cookies = self.cookies();
        cookies.retain(|cookie| !is_over(cookie, now_ms));
        while cookies.len() >= COOKIES {
            let oldest = cookies.iter().enumerate().min_by_key(|(_, cookie)| cookie.used).map(|(at, _)| at);
            cookies.remove(oldest.unwrap_or_default());
        }
        cookies.push(Cookie { hash: hex(&digest(&cookie)), reads_only: code.reads_only, used: now_ms });
        self.write(&cookies)?;
        Ok(cookie)
    }

    /// Returns the page with this cookie. `None`: the cookie is invalid or expired. May write a
    /// file.
    pub fn verify(&self, cookie: &str, now_ms: u64) -> Option<PageSession> {
        let given = hex(&digest(cookie));
        let mut cookies = self.cookies();
        let found = cookies.iter_mut().find(|cookie| cookie.hash.as_bytes().ct_eq(given.as_bytes()).into())?;
        if is_over(found, now_ms) {
            return None;
        }
        let session = PageSession { reads_only: found.reads_only, hash: given };
        if now_ms.saturating_sub(found.used) >= NOTED.as_millis() as u64 {
            found.used = now_ms;
            if let Err(error) = self.write(&cookies) {
                tracing::warn!("{error}");
            }
        }
        Some(session)
    }

    /// Revokes a page's cookie. Writes a file.
    pub fn end(&self, session: &PageSession) -> Result<()> {
        let mut cookies = self.cookies();
        cookies.retain(|cookie| cookie.hash != session.hash);
        self.0.ended.send_modify(|ended| *ended += 1);
        self.write(&cookies)
    }

    /// Revokes all cookies and codes. Returns the number of cookies. Writes a file.
    pub fn revoke(&self) -> Result<usize> {
        self.codes().clear();
        let mut cookies = self.cookies();
        let count = cookies.len();
        cookies.clear();
        self.0.ended.send_modify(|ended| *ended += 1);
        self.write(&cookies)?;
        Ok(count)
    }

    /// Resolves when a page's cookie has been revoked.
    pub async fn until_ended(&self, session: &PageSession) {
        let mut ended = self.0.ended.subscribe();
        // A revocation is announced while the cookies are locked. `is_valid` takes that lock only
        // after `changed` has released its own.
        while self.is_valid(session) && ended.changed().await.is_ok() {}
    }

    /// Returns whether a page's cookie is still valid.
    pub fn is_valid(&self, session: &PageSession) -> bool {
        self.cookies().iter().any(|cookie| cookie.hash == session.hash)
    }

    fn write(&self, cookies: &[Cookie]) -> Result<()> {
        let Some(file) = &self.0.file else { return Ok(()) };
        let text = serde_json::to_string(cookies).map_err(|error| Error::internal(error.to_string()))?;
        files::write_secret(file, &text, Existing::Replace).map_err(|error| {
            Error::new(ErrorCode::Conflict, format!("cannot write page cookies to {}: {error}", file.display()))
        })
    }

    fn codes(&self) -> MutexGuard<'_, Vec<Code>> {
        self.0.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cookies(&self) -> MutexGuard<'_, Vec<Cookie>> {
        self.0.cookies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(cookie: &Cookie, now_ms: u64) -> bool {
    now_ms.saturating_sub(cookie.used) >= COOKIE_TIME.as_millis() as u64
}

/// Creates a secret of this many random bytes.
pub(super) fn secret<const BYTES: usize>() -> Result<String> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random).map_err(|error| Error::internal(format!("cannot get random bytes: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(random))
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PageSessions {
        fn login(&self, code: &str, now_ms: u64) -> Result<String> {
            self.log_in(&self.redeem(code)?, now_ms)
        }
    }

    #[test]
    fn a_code_works_once_and_a_cookie_until_it_expires_or_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("page-sessions.json");
        let sessions = PageSessions::open(Some(file.clone()));
        let code = sessions.code(true).unwrap();
        assert!(sessions.login("another", 1).is_err());
        let cookie = sessions.login(&code, 1).unwrap();
        assert!(sessions.login(&code, 1).is_err());
        assert!(sessions.verify(&cookie, 2).unwrap().reads_only && sessions.verify("x", 2).is_none());
        // It stays valid while it is used, also across restarts, and is not in the file.
        let day = 86_400_000;
        assert!(sessions.verify(&cookie, 29 * day).is_some());
        let again = PageSessions::open(Some(file.clone()));
        assert!(again.verify(&cookie, 58 * day).is_some() && again.verify(&cookie, 89 * day).is_none());
        assert!(!std::fs::read_to_string(&file).unwrap().contains(&cookie));
        let other = again.login(&again.code(false).unwrap(), 58 * day).unwrap();
        let session = again.verify(&other, 58 * day).unwrap();
        assert!(!session.reads_only && again.is_valid(&session));
        again.end(&session).unwrap();
        assert!(again.verify(&other, 58 * day).is_none() && !again.is_valid(&session));
        let code = again.code(false).unwrap();
        assert_eq!(again.revoke().unwrap(), 1);
        assert!(again.verify(&cookie, 58 * day).is_none() && again.login(&code, 58 * day).is_err());
    }

    #[test]
    fn there_are_so_many_and_the_oldest_go() {
        let sessions = PageSessions::default();
        let first = sessions.login(&sessions.code(false).unwrap(), 1).unwrap();
        for number in 0..COOKIES as u64 {
            sessions.login(&sessions.code(false).unwrap(), 2 + number).unwrap();
        }
        assert!(sessions.verify(&first, 100).is_none());
        let code = sessions.code(false).unwrap();
        (0..CODES).for_each(|_| drop(sessions.code(false)));
        assert!(sessions.login(&code, 100).is_err());
    }
}
