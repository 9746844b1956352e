//! Sessions of devices: tokens that are bound to one device and last 15 minutes, and the refresh
//! tokens that renew them.
//!
//! Only hashes of tokens are stored. All tokens of one login form a family. A refresh token works
//! once: a second use means that it was stolen, from its user or by the present one, and ends the
//! whole family.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use muxtap_api::{DeviceScope, DeviceSession, DeviceSessionRequest, Error, ErrorCode, Result};
use muxtap_base::{
    clock,
    files::{self, Existing, SecretError},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use super::names;

/// How long a token is valid.
pub const TOKEN_TIME: Duration = Duration::from_secs(900);
/// How long a refresh token is valid.
pub const REFRESH_TIME: Duration = Duration::from_secs(2_592_000);
/// The maximum number of families; one more replaces the family that would end first.
pub const FAMILIES: usize = 256;
/// The maximum size of the file, in bytes.
const FILE_BYTES: u64 = 1 << 20;
/// The number of random bytes in a token's secret.
const SECRET_BYTES: usize = 32;
/// The prefix of a token; its family and its secret follow.
const TOKEN: &str = "mxd_";
/// The prefix of a refresh token.
const REFRESH: &str = "mxr_";

/// The device that a valid token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundDevice {
    /// The device's id.
    pub device_id: String,
    /// The device's label.
    pub device_label: String,
    /// The principal who logged the device in.
    pub principal: String,
    /// The scopes of the token.
    pub scopes: Vec<DeviceScope>,
    /// The family of the token.
    pub family: String,
    /// When the token expires, in milliseconds since 1970.
    pub token_ends: u64,
}

impl BoundDevice {
    /// Returns whether the token has this scope.
    pub fn has(&self, scope: DeviceScope) -> bool {
        self.scopes.contains(&scope)
    }
}

/// All device sessions; clones share them.
#[derive(Clone, Debug, Default)]
pub struct DeviceSessions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The file of the sessions. `None`: they end with the process.
    file: Option<PathBuf>,
    families: Mutex<Vec<Family>>,
    /// Notifies of each change to the families.
    changed: watch::Sender<()>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Family {
    id: String,
    principal: String,
    device_id: String,
    device_label: String,
    scopes: Vec<DeviceScope>,
    /// The hash of the token.
    token: String,
    token_ends: u64,
    /// The hash of the refresh token that is valid.
    refresh: String,
    refresh_ends: u64,
}

impl DeviceSessions {
    /// Reads the sessions of this file, which may be missing.
    ///
    /// An unusable file is logged, and its sessions have ended.
    pub fn open(file: Option<PathBuf>) -> Self {
        let families = file.as_ref().filter(|file| file.exists()).map(|file| {
            let why = match files::read_secret(file, FILE_BYTES) {
                Ok((text, _)) => match serde_json::from_str(&text) {
                    Ok(families) => return families,
                    Err(error) => format!("has no valid sessions: {error}"),
                },
                Err(SecretError::Open(why)) => format!("{why}: its sessions are no longer valid; chmod 600 it"),
                Err(SecretError::Foreign(why) | SecretError::Unreadable(why)) => why,
            };
            tracing::warn!("the device session file {} {why}", file.display());
            Vec::new()
        });
        Self(Arc::new(Shared { file, families: Mutex::new(families.unwrap_or_default()), ..Shared::default() }))
    }

    /// Creates a family for a device of a principal. Writes a file.
    ///
    /// Also returns the families that were dropped for it, whose connections the caller must end.
    pub fn begin(
        &self,
        principal: &str,
        request: &DeviceSessionRequest,
        now_ms: u64,
    ) -> Result<(DeviceSession, Vec<String>)> {
        names::check(&request.device_id, &request.device_label)?;
        let mut scopes = request.scopes.clone();
        scopes.push(DeviceScope::LayoutWrite);
        scopes.sort_unstable();
        scopes.dedup();
        let mut id = [0; 16];
        fill(&mut id)?;
        let family = Family {
            id: URL_SAFE_NO_PAD.encode(id),
            principal: principal.to_owned(),
            device_id: request.device_id.clone(),
            device_label: request.device_label.clone(),
            scopes,
            token: String::new(),
            token_ends: 0,
            refresh: String::new(),
            refresh_ends: 0,
        };
        let mut families = self.families();
        families.retain(|family| family.refresh_ends > now_ms);
        if families.iter().any(|known| known.device_id == request.device_id && known.principal != principal) {
            return Err(unauthorized("this device belongs to another principal"));
        }
        let mut ended = Vec::new();
        while families.len() >= FAMILIES {
            let first = families.iter().enumerate().min_by_key(|(_, family)| family.refresh_ends);
            let Some((at, _)) = first else { break };
            ended.push(families.remove(at).id);
        }
        let mut family = family;
        let session = renew(&mut family, now_ms)?;
        families.push(family);
        self.write(&families)?;
        Ok((session, ended))
    }

    /// Exchanges a refresh token for the next tokens. Writes a file.
    ///
    /// `Err`: the token is unknown, expired, or was used before; a used one ends its family, which
    /// the error names.
    pub fn refresh(&self, token: &str, now_ms: u64) -> std::result::Result<DeviceSession, (Error, Option<String>)> {
        let unknown = || (unauthorized("this refresh token is not valid: log in again"), None);
        let (id, secret) = parts(token, REFRESH).ok_or_else(unknown)?;
        let mut families = self.families();
        let at = families.iter().position(|family| family.id == id).ok_or_else(unknown)?;
        let family = families.get_mut(at).ok_or_else(unknown)?;
        if !same(&family.refresh, secret) {
            // Only a holder of one of the family's tokens, now or earlier, knows the family's id.
            let ended = families.remove(at);
            let device = ended.device_id;
            tracing::warn!("a refresh token of the device {device} was used twice: its sessions have ended");
            let error = unauthorized("this refresh token was already used: all sessions derived from it have ended");
            let error = self.write(&families).err().unwrap_or(error);
            return Err((error, Some(ended.id)));
        }
        if family.refresh_ends <= now_ms {
            families.remove(at);
            return Err(unknown());
        }
        // On a failed write the family keeps its old tokens: the caller retries with the old
        // refresh token, which must not count as used twice.
        let before = family.clone();
        let session = renew(family, now_ms).map_err(|error| (error, None))?;
        if let Err(error) = self.write(&families) {
            if let Some(family) = families.get_mut(at) {
                *family = before;
            }
            return Err((error, None));
        }
        Ok(session)
    }

    /// Returns the device that a token is bound to. `None`: the token is invalid or expired.
    pub fn verify(&self, token: &str, now_ms: u64) -> Option<BoundDevice> {
        let (id, secret) = parts(token, TOKEN)?;
        let families = self.families();
        let family = families.iter().find(|family| family.id == id)?;
        (same(&family.token, secret) && family.token_ends > now_ms).then(|| BoundDevice {
            device_id: family.device_id.clone(),
            device_label: family.device_label.clone(),
            principal: family.principal.clone(),
            scopes: family.scopes.clone(),
            family: family.id.clone(),
            token_ends: family.token_ends,
        })
    }

    /// Resolves when the token that identified this device expires, or when its family ends.
    pub async fn until_ended(&self, device: &BoundDevice) {
        let left = Duration::from_millis(device.token_ends.saturating_sub(clock::now_ms()));
        let mut changed = self.0.changed.subscribe();
        let ended = async {
            // A change is announced while the families are locked. `has` takes that lock only after
            // `changed` has released its own.
            while self.has(&device.family) && changed.changed().await.is_ok() {}
        };
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            () = ended => {}
        }
    }

    /// Returns whether this family still exists.
    pub fn has(&self, family: &str) -> bool {
        self.families().iter().any(|known| known.id == family)
    }

    /// Ends a family. Writes a file.
    pub fn end(&self, family: &str) -> Result<()> {
        let mut families = self.families();
        families.retain(|known| known.id != family);
        self.write(&families)
    }

    fn families(&self) -> MutexGuard<'_, Vec<Family>> {
        self.0.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, families: &[Family]) -> Result<()> {
        self.0.changed.send_replace(());
        let Some(file) = &self.0.file else { return Ok(()) };
        let unable = |why: &dyn std::fmt::Display| {
            Error::new(ErrorCode::Conflict, format!("cannot write the sessions to {}: {why}", file.display()))
        };
        let text = serde_json::to_string(families).map_err(|error| unable(&error))?;
        files::write_secret(file, &text, Existing::Replace).map_err(|error| unable(&error))
    }
}

/// Issues the next tokens of a family.
fn renew(family: &mut Family, now_ms: u64) -> Result<DeviceSession> {
    let (token, refresh_token) = (secret(TOKEN, &family.id)?, secret(REFRESH, &family.id)?);
    family.token = hash(parts(&token, TOKEN).map(|(_, secret)| secret).unwrap_or_default());
    family.refresh = hash(parts(&refresh_token, REFRESH).map(|(_, secret)| secret).unwrap_or_default());
    family.token_ends = now_ms.saturating_add(TOKEN_TIME.as_millis() as u64);
    family.refresh_ends = now_ms.saturating_add(REFRESH_TIME.as_millis() as u64);
    Ok(DeviceSession {
        device_id: family.device_id.clone(),
        token,
        refresh_token,
        expires_at: family.token_ends,
        scopes: family.scopes.clone(),
    })
}

fn secret(begin: &str, family: &str) -> Result<String> {
    let mut random = [0; SECRET_BYTES];
    fill(&mut random)?;
    Ok(format!("{begin}{family}.{}", URL_SAFE_NO_PAD.encode(random)))
}

fn fill(random: &mut [u8]) -> Result<()> {
    getrandom::fill(random).map_err(|error| Error::internal(format!("cannot get random bytes: {error}")))
}

/// Splits a token into its family and its secret.
fn parts<'a>(token: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    token.strip_prefix(begin)?.split_once('.').filter(|(id, secret)| !id.is_empty() && !secret.is_empty())
}

fn hash(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret.as_bytes()))
}

fn same(hashed: &str, secret: &str) -> bool {
    hashed.as_bytes().ct_eq(hash(secret).as_bytes()).into()
}

fn unauthorized(message: &str) -> Error {
    Error::new(ErrorCode::Unauthorized, message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use muxtap_api::DeviceType;

    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn request(device: &str, scopes: &[DeviceScope]) -> DeviceSessionRequest {
        DeviceSessionRequest {
            device_id: device.into(),
            device_label: "a laptop".into(),
            device_type: DeviceType::Cli,
            scopes: scopes.to_vec(),
        }
    }

    #[test]
    fn a_token_is_bound_to_its_device_ends_and_stands_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("devices/sessions.json");
        let sessions = DeviceSessions::open(Some(file.clone()));
        let session = sessions.begin("user", &request("d", &[DeviceScope::RemoteControl]), NOW).unwrap().0;
        assert_eq!(session.scopes, [DeviceScope::LayoutWrite, DeviceScope::RemoteControl]);
        assert_eq!(session.expires_at, NOW + 900_000);
        let bound = sessions.verify(&session.token, NOW).unwrap();
        assert_eq!((bound.device_id.as_str(), bound.principal.as_str()), ("d", "user"));
        assert!(bound.has(DeviceScope::RemoteControl) && !bound.has(DeviceScope::Terminals));
        assert!(sessions.verify(&session.token, session.expires_at).is_none());
        for wrong in ["", "mxd_", "mxd_x.y", &session.refresh_token, &format!("{}x", session.token)] {
            assert!(sessions.verify(wrong, NOW).is_none(), "{wrong}");
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for token in [&session.token, &session.refresh_token] {
            assert!(!text.contains(token.split_once('.').unwrap().1));
        }
        assert!(!format!("{session:?}").contains(&session.token));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // A restarted daemon knows the sessions; a file that others can read has none.
        assert!(DeviceSessions::open(Some(file.clone())).verify(&session.token, NOW).is_some());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(DeviceSessions::open(Some(file)).verify(&session.token, NOW).is_none());
        sessions.end(&bound.family).unwrap();
        assert!(sessions.verify(&session.token, NOW).is_none());
    }

    #[test]
    fn a_refresh_token_works_once_and_its_reuse_revokes_its_family() {
        let sessions = DeviceSessions::default();
        let first = sessions.begin("user", &request("d", &[]), NOW).unwrap().0;
        let other = sessions.begin("user", &request("d", &[]), NOW).unwrap().0;
        let second = sessions.refresh(&first.refresh_token, NOW + 1).unwrap();
        assert!(sessions.verify(&first.token, NOW + 1).is_none() && sessions.verify(&second.token, NOW + 1).is_some());
        let third = sessions.refresh(&second.refresh_token, NOW + 2).unwrap();
        // The thief, or the victim, presents the used token.
        let (error, ended) = sessions.refresh(&first.refresh_token, NOW + 3).unwrap_err();
        assert_eq!((error.code, ended.is_some()), (ErrorCode::Unauthorized, true));
        assert!(sessions.verify(&third.token, NOW + 3).is_none());
        assert!(sessions.refresh(&third.refresh_token, NOW + 3).is_err());
        // Another login of the same device is another family.
        assert!(sessions.verify(&other.token, NOW + 3).is_some());
        let late = NOW + REFRESH_TIME.as_millis() as u64;
        assert!(sessions.refresh(&other.refresh_token, late).is_err());
        for wrong in ["", "mxr_a.b", &other.token] {
            assert!(sessions.refresh(wrong, NOW).unwrap_err().1.is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_device_belongs_to_one_principal_and_families_are_bounded() {
        let sessions = DeviceSessions::default();
        sessions.begin("user", &request("d", &[]), NOW).unwrap();
        let error = sessions.begin("uid 0", &request("d", &[]), NOW).unwrap_err();
        assert_eq!(error.code, ErrorCode::Unauthorized);
        assert!(sessions.begin("user", &request("../d", &[]), NOW).is_err());
        let first = sessions.begin("user", &request("e", &[]), NOW + 1).unwrap().0;
        let family = sessions.verify(&first.token, NOW + 1).unwrap().family;
        // The dropped families are returned, so that their connections end.
        let begin = |_| sessions.begin("user", &request("f", &[]), NOW + 2).unwrap().1;
        let ended: Vec<_> = (0..FAMILIES).flat_map(begin).collect();
        assert!(ended.contains(&family) && ended.len() == 2, "{ended:?}");
        assert_eq!(sessions.families().len(), FAMILIES);
        assert!(sessions.verify(&first.token, NOW + 2).is_none());
    }
}
