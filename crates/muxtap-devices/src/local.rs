//! A command line's own device: its identity, its workspace and its tokens, in files that only the
//! user can read.
//!
//! A change holds a lock from reading the workspace to writing it: of two concurrent commands,
//! neither is lost.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, SystemTime},
};

use muxtap_api::{DeviceSession, Error, ErrorCode, RemoteControl, Result};
use muxtap_base::{
    files::{self, Existing, OpenToOthers, SecretError},
    nonce,
};
use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::workspace::{Applied, Change, Workspace};

/// How long a command waits for one other command that changes the workspace. While others take
/// turns, it waits for its own.
pub const LOCK_TIME: Duration = Duration::from_secs(10);
/// The maximum size of the workspace's file, in bytes.
pub const STATE_BYTES: u64 = 8 << 20;
/// The maximum size of the identity's and the tokens' files, in bytes.
const SMALL_BYTES: u64 = 64 << 10;
/// The maximum number of devices that may change the workspace.
pub const ALLOWED: usize = 256;

/// The identity of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The device's id; it never changes.
    pub device_id: String,
    /// The device's label: host, user and a suffix.
    pub device_label: String,
    /// Whether other devices may change the workspace.
    #[serde(default)]
    pub remote_control: RemoteControl,
    /// The devices that `ask` permits, since a command line has no person to ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

/// The tokens of a login, and the daemon that they are for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Login {
    /// The address of a daemon on another machine; `None`: the user's own daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The tokens.
    #[serde(flatten)]
    pub session: DeviceSession,
}

/// The folder of a command line's files.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
}

/// The workspace, locked until this value is dropped.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    workspace: Workspace,
    /// Whether opening changed the workspace: an older format was migrated, or reserved panes were
    /// released.
    pub changed: bool,
    _lock: File,
}

/// The lock of the tokens, released when this value is dropped.
#[derive(Debug)]
pub struct AuthLock(#[expect(dead_code, reason = "dropping it unlocks")] File);

/// The turn of a command among those that change another device's workspace, until it is dropped.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "dropping it unlocks")] File);

impl Home {
    /// Uses this folder, which is created when it is needed.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns the path of the tokens' file.
    pub fn auth_file(&self) -> PathBuf {
        self.dir.join("cli-auth.json")
    }

    /// Creates the folder, and checks that only the user can read it and the tokens in it.
    ///
    /// Error: `CONFLICT`, with the remedy.
    pub fn check(&self) -> Result<()> {
        let refuse = |why: String| Error::new(ErrorCode::Conflict, format!("{} {why}", self.dir.display()));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(|error| refuse(format!("cannot be created: {error}")))?;
        let found = fs::symlink_metadata(&self.dir).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        if !found.is_dir() {
            return Err(refuse("is not a directory: move it away".into()));
        }
        if found.uid() != rustix::process::getuid().as_raw() {
            return Err(refuse(format!("belongs to user {}", found.uid())));
        }
        let mode = found.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(refuse(format!("is open to others (mode {mode:04o}): chmod 700 {}", self.dir.display())));
        }
        self.auth().map(drop)
    }

    /// Returns this command line's identity; the first call creates it.
    pub fn identity(&self) -> Result<Identity> {
        let path = self.dir.join("cli-device.json");
        if fs::symlink_metadata(&path).is_err() {
            write_json(&path, &new_identity(), Existing::Keep)?;
        }
        read_json(&path, SMALL_BYTES)?.ok_or_else(|| Error::internal(format!("{} no longer exists", path.display())))
    }

    /// Changes this command line's identity, except for its id.
    pub fn change_identity(&self, change: impl FnOnce(&mut Identity) -> Result<()>) -> Result<Identity> {
        let _lock = self.lock()?;
        let mut identity = self.identity()?;
        change(&mut identity)?;
        if identity.allowed.len() > ALLOWED {
            return Err(Error::new(ErrorCode::ResourceLimit, format!("too many allowed devices: at most {ALLOWED}")));
        }
        write_json(&self.dir.join("cli-device.json"), &identity, Existing::Replace)?;
        Ok(identity)
    }

    /// Returns the tokens. `None`: not logged in.
    pub fn auth(&self) -> Result<Option<Login>> {
        read_json(&self.auth_file(), SMALL_BYTES)
    }

    /// Writes the tokens.
    pub fn set_auth(&self, login: &Login) -> Result<()> {
        write_json(&self.auth_file(), login, Existing::Replace)
    }

    /// Removes the tokens.
    pub fn forget_auth(&self) -> Result<()> {
        match fs::remove_file(self.auth_file()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::new(ErrorCode::Conflict, format!("{}: {error}", self.auth_file().display())))
            }
            _ => Ok(()),
        }
    }

    /// Returns the workspace as it is published, if it is readable. Nothing is locked, created or
    /// written.
    pub fn look(&self) -> Option<Value> {
        let identity: Identity = read_json(&self.dir.join("cli-device.json"), SMALL_BYTES).ok()??;
        let text = read_text(&self.dir.join("cli-workspace.json"), STATE_BYTES).ok()??;
        let now = muxtap_base::clock::now_ms();
        Some(Workspace::read(&text, &identity.device_id, now).ok()?.0.snapshot(now))
    }

    /// Opens the workspace, after waiting for other commands that change it.
    ///
    /// A state from before this version is migrated, and the old file is kept beside it. Error:
    /// `CONFLICT` names an unreadable file, which stays unchanged.
    pub fn open(&self, device_id: &str, now_ms: u64) -> Result<Opened> {
        let lock = self.lock()?;
        let path = self.dir.join("cli-workspace.json");
        let text = read_text(&path, STATE_BYTES)?;
        let (mut workspace, migrated) = match &text {
            None => (Workspace::new(device_id), false),
            Some(text) => Workspace::read(text, device_id, now_ms).map_err(|why| {
                Error::new(ErrorCode::Conflict, format!("{} {why}; the file was not changed", path.display()))
            })?,
        };
        if let (true, Some(text)) = (migrated, &text) {
            let old = self.dir.join("cli-workspace.json.before-v1");
            files::write_secret(&old, text.trim_end(), Existing::Keep).map_err(|error| unwritable(&old, &error))?;
        }
        let released = workspace.release_overdue(now_ms);
        let mut opened = Opened { path, workspace, changed: migrated || released > 0, _lock: lock };
        if opened.changed {
            opened.save()?;
        }
        Ok(opened)
    }

    /// Locks the tokens against other commands until this value is dropped.
    ///
    /// Of two concurrent refreshes, the second finds the first one's result: using a refresh token
    /// twice ends its family.
    pub fn lock_auth(&self) -> Result<AuthLock> {
        self.lock_file("cli-auth.lock").map(AuthLock)
    }

    /// Waits for this user's other commands that change the workspace of another device, at most as
    /// long as for a lock; then the command takes its chance.
    pub fn take_turn(&self, device_id: &str) -> Option<Turn> {
        self.lock_file(&format!("turn-{device_id}.lock")).ok().map(Turn)
    }

    /// Locks the folder's files against other commands until the file is dropped.
    fn lock(&self) -> Result<File> {
        self.lock_file("cli-workspace.lock")
    }

    fn lock_file(&self, name: &str) -> Result<File> {
        let path = self.dir.join(name);
        lock_within(&path, LOCK_TIME, || since(&path))
    }
}

/// Locks a file, unless one holder has it for `limit`. `since` returns since when its holder has it.
fn lock_within(path: &Path, limit: Duration, since: impl Fn() -> Option<SystemTime>) -> Result<File> {
    let unable = |error: &dyn std::fmt::Display| {
        Error::new(ErrorCode::Conflict, format!("cannot lock {}: {error}", path.display()))
    };
    let file = files::open_private(path, OFlags::RDWR | OFlags::CREATE, OpenToOthers::Closed);
    let file = file.map_err(|error| unable(&error))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        return Ok(taken(file));
    }
    let mut holder = since();
    // `flock` has no timeout: a thread waits for it.
    let (done, locked) = mpsc::channel();
    std::thread::spawn(move || {
        let result = rustix::fs::flock(&file, FlockOperation::LockExclusive).map(|()| taken(file));
        // After the timeout the send fails, which closes the file and releases its lock.
        let _ = done.send(result);
    });
    loop {
        match locked.recv_timeout(limit) {
            Ok(Ok(file)) => return Ok(file),
            Ok(Err(error)) => return Err(unable(&error)),
            Err(_) => {}
        }
        let now = since();
        if now == holder {
            return Err(unable(&format!("another command has held it for {} s", limit.as_secs())));
        }
        holder = now;
    }
}

/// Marks a locked file: the time of its change says since when its holder has the lock.
fn taken(file: File) -> File {
    // Without the mark, those that wait count this holder's time to the one before.
    let _ = file.set_modified(SystemTime::now());
    file
}

/// Returns since when a lock's holder has it.
fn since(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}

impl Opened {
    /// Returns the workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Makes a change and writes it. Without an expected revision, the current one is used.
    pub fn apply(&mut self, change: &Change, caller: &str, now_ms: u64) -> Result<Applied> {
        let change = Change {
            expected_revision: change.expected_revision.or(Some(self.workspace.revision())),
            ..change.clone()
        };
        let before = self.workspace.clone();
        let applied = self.workspace.apply(&change, caller, now_ms)?;
        if self.workspace.revision() != before.revision() {
            if let Err(error) = self.save() {
                self.workspace = before;
                return Err(error);
            }
            self.changed = true;
        }
        Ok(applied)
    }

    /// Returns the snapshot to publish.
    pub fn snapshot(&self, now_ms: u64) -> Value {
        self.workspace.snapshot(now_ms)
    }

    fn save(&mut self) -> Result<()> {
        let text = serde_json::to_string(&self.workspace).map_err(|error| Error::internal(error.to_string()))?;
        if text.len() as u64 >= STATE_BYTES {
            return Err(Error::new(
                ErrorCode::ResourceLimit,
                format!("the workspace is too large: at most {STATE_BYTES} bytes"),
            ));
        }
        files::write_secret(&self.path, &text, Existing::Replace).map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("cannot write {}: {error}", path.display()))
}

/// Reads a file that only the user can read. `None`: the file is missing. Error: `CONFLICT`, with
/// the remedy.
fn read_text(path: &Path, most: u64) -> Result<Option<String>> {
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let (text, found) = files::read_secret(path, most).map_err(|error| {
        let at = path.display();
        Error::new(
            ErrorCode::Conflict,
            match error {
                SecretError::Open(why) => format!("{at} {why}: chmod 600 {at}"),
                SecretError::Foreign(why) | SecretError::Unreadable(why) => format!("{at} {why}"),
            },
        )
    })?;
    if found.len() > most {
        return Err(Error::new(ErrorCode::Conflict, format!("{} is larger than {most} bytes", path.display())));
    }
    Ok(Some(text))
}

fn write_json(path: &Path, value: &impl Serialize, existing: Existing) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|error| Error::internal(error.to_string()))?;
    files::write_secret(path, &text, existing).map_err(|error| unwritable(path, &error))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path, most: u64) -> Result<Option<T>> {
    let Some(text) = read_text(path, most)? else { return Ok(None) };
    let parsed = serde_json::from_str(&text);
    parsed.map(Some).map_err(|error| {
        Error::new(ErrorCode::Conflict, format!("{} cannot be read: {error}; the file was not changed", path.display()))
    })
}

fn new_identity() -> Identity {
    let suffix = nonce::hex32();
    let plain = |text: &str| -> String { text.chars().filter(|letter| !letter.is_control()).take(48).collect() };
    let host = plain(&rustix::system::uname().nodename().to_string_lossy());
    let named = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME"));
    let user = plain(&user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string()));
    Identity {
        device_id: format!("cli_{}", nonce::hex64()),
        device_label: format!("{host} {user} {suffix}"),
        remote_control: RemoteControl::default(),
        allowed: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::workspace::Command;

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn a_lock_is_waited_for_while_its_holders_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = lock_within(&path, LOCK_TIME, || None).unwrap();
        let first = since(&path).unwrap();
        let looks = std::cell::Cell::new(0);
        // Three other holders, and then one that stays.
        let refused = lock_within(&path, Duration::from_millis(1), || {
            looks.set(looks.get() + 1);
            Some(first + Duration::from_secs(looks.get().min(4)))
        });
        assert_eq!((refused.unwrap_err().code, looks.get()), (ErrorCode::Conflict, 5));
        drop(held);
        drop(lock_within(&path, LOCK_TIME, || since(&path)).unwrap());
        assert!(since(&path).unwrap() >= first, "each holder marks it");
    }

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("freshell"));
        home.check().unwrap();
        (dir, home)
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn new_tab(key: &str) -> Change {
        let command = Command::NewTab { title: None, browser: None, editor: None };
        Change { command, expected_revision: None, idempotency_key: Some(key.into()) }
    }

    #[test]
    fn concurrent_callers_create_one_lasting_identity() {
        let (_dir, home) = home();
        let made: Vec<Identity> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| home.identity().unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().all(|identity| *identity == made[0]), "{made:?}");
        assert!(made[0].device_id.starts_with("cli_") && made[0].device_label.split(' ').count() >= 3);
        let allow = |identity: &mut Identity| {
            identity.allowed.push("laptop".into());
            Ok(())
        };
        let changed = home.change_identity(allow).unwrap();
        assert_eq!(
            (changed.device_id.as_str(), home.identity().unwrap()),
            (made[0].device_id.as_str(), changed.clone())
        );
    }

    #[test]
    fn files_open_to_others_are_refused_and_the_error_names_the_fix() {
        let (_dir, home) = home();
        let id = home.identity().unwrap().device_id;
        home.open(&id, NOW).unwrap().apply(&new_tab("k"), "c", NOW).unwrap();
        let session: DeviceSession = serde_json::from_value(serde_json::json!({
            "deviceId": id, "token": "t", "refreshToken": "r", "expiresAt": 1, "scopes": ["layout-write"]
        }))
        .unwrap();
        home.set_auth(&Login { url: None, session }).unwrap();
        let mode = |name: &str| fs::metadata(home.dir.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            ["cli-device.json", "cli-workspace.json", "cli-auth.json", "."].map(mode),
            [0o600, 0o600, 0o600, 0o700]
        );
        for name in ["cli-device.json", "cli-workspace.json", "cli-auth.json"] {
            let path = home.dir.join(name);
            chmod(&path, 0o644);
            let refused = home.check().err().or(home.identity().err()).or(home.open(&id, NOW).err()).unwrap();
            assert_eq!(refused.message, format!("{0} is open to others (mode 0644): chmod 600 {0}", path.display()));
            chmod(&path, 0o600);
        }
        chmod(&home.dir, 0o750);
        let refused = home.check().unwrap_err();
        assert!(refused.message.ends_with(&format!("chmod 700 {}", home.dir.display())), "{refused}");
    }

    #[test]
    fn concurrent_changes_are_all_kept() {
        let (_dir, home) = home();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let home = &home;
                scope.spawn(move || {
                    for number in 0..8 {
                        let key = format!("{thread}-{number}");
                        home.open("d", NOW).unwrap().apply(&new_tab(&key), "c", NOW).unwrap();
                    }
                });
            }
        });
        let opened = home.open("d", NOW).unwrap();
        assert_eq!((opened.workspace().layout().tabs.len(), opened.workspace().revision()), (32, 33));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_and_never_overwritten() {
        let (_dir, home) = home();
        let path = home.dir.join("cli-workspace.json");
        for text in ["", "{", "{\"version\":9}", "[]"] {
            files::write_secret(&path, text, Existing::Replace).unwrap();
            let error = home.open("d", NOW).unwrap_err();
            assert!(error.message.starts_with(path.to_str().unwrap()), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), text);
        }
    }

    #[test]
    fn an_old_state_is_migrated_completely_and_a_copy_is_kept() {
        let (_dir, home) = home();
        let path = home.dir.join("cli-workspace.json");
        let old = r#"{"activeTabId":"t1","tabs":[{"id":"t1","title":"old","activePaneId":"p2","layout":{"pane":"p2"}}],
                      "panes":[{"id":"p2","tabId":"t1","kind":"picker"}]}"#;
        files::write_secret(&path, old, Existing::Replace).unwrap();
        let opened = home.open("d", NOW).unwrap();
        assert!(opened.changed);
        assert_eq!(
            (opened.workspace().revision(), opened.workspace().layout().tabs[0].owner_device_id.as_str()),
            (1, "d")
        );
        drop(opened);
        assert_eq!(fs::read_to_string(home.dir.join("cli-workspace.json.before-v1")).unwrap().trim_end(), old);
        assert!(!home.open("d", NOW).unwrap().changed);
    }
}
