//! The folder of a fleet: its files, and every change to them.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, File},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use muxtap_api::{Error, ErrorCode, Result, Tier};
use muxtap_base::{
    clock,
    files::{self, Existing, FileError, OpenToOthers, SecretError},
};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;

use crate::subject;

use super::{
    certificate,
    member::{ADMIN, Member, Members},
    server::{self, Description},
};

/// The longest file that is read, in bytes: `members.conf` of 10,000 members is shorter.
const FILE_BYTES: u64 = 64 << 20;
/// The subfolders, which are private too.
const FOLDERS: [&str; 3] = ["tls", "members", "jetstream"];
/// The file of the configuration for NATS.
const SERVER: &str = "nats.conf";
/// The file of the members.
const MEMBERS: &str = "members.conf";
/// The file of the description, written last: a folder without it is incomplete.
const DESCRIPTION: &str = "fleet.json";
/// The records of revoked members, one JSON object a line.
const REVOKED: &str = "revoked.jsonl";

/// A fleet's folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// The rights and labels of a new member.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its name.
    pub name: &'a str,
    /// The tiers that its daemon offers.
    pub offer: &'a [Tier],
    /// The tiers that it may use.
    pub uses: &'a [Tier],
    /// The hosts that it may use, as names or patterns.
    pub hosts: &'a [String],
    /// Whether it may copy its audit log to the server.
    pub audit: bool,
}

/// A line of `revoked.jsonl`.
#[derive(Serialize)]
struct Revoked<'a> {
    at_ms: u64,
    member: &'a Member,
    publish: Vec<String>,
    subscribe: Vec<String>,
}

impl Folder {
    /// Opens the folder of a fleet that `init` created.
    pub fn open(path: &Path) -> Result<Self> {
        let absolute = std::path::absolute(path)
            .map_err(|error| Error::invalid(format!("invalid folder {}: {error}", path.display())))?;
        let folder = Self { path: absolute };
        if !folder.file(DESCRIPTION).exists() {
            let what = format!(
                "no fleet in {}: the file {DESCRIPTION} is missing; --dir names a fleet's folder",
                folder.display()
            );
            return Err(Error::not_found(what));
        }
        files::check_private_folder(&folder.path)
            .map_err(|why| conflict(format!("the folder {} {}", folder.display(), words(&why))))?;
        Ok(folder)
    }

    /// Creates a fleet: the server's configuration, certificates, and the member `admin`. The
    /// folder must be missing or empty.
    pub fn init(path: &Path, description: &Description) -> Result<Self> {
        let folder = Self::empty(path)?;
        let text = folder.path.to_str().filter(|path| server::is_plain_path(path));
        let Some(text) = text else {
            return Err(Error::invalid(format!(
                "invalid folder: {:?}; expected a path of UTF-8 without `\"`, `\\` and control characters",
                folder.path.to_string_lossy()
            )));
        };
        let authority = certificate::authority()?;
        let certificate = certificate::server(&authority, &description.certificate_names())?;
        let key = nkeys::KeyPair::new_user();
        let mut members = Members::default();
        members.add(Member::admin(key.public_key()))?;
        for (name, text) in [
            ("tls/ca.key", authority.key.as_str()),
            ("tls/ca.pem", &authority.cert),
            ("tls/server.key", &certificate.key),
            ("tls/server.pem", &certificate.chain),
            ("members/admin.nk", &seed_of(&key)?),
            (SERVER, &server::render(text, description.listen)),
            (MEMBERS, &members.render()),
            ("README", README),
            (DESCRIPTION, &json(description)),
        ] {
            folder.write(name, text, Existing::Refuse)?;
        }
        Ok(folder)
    }

    /// Creates the folder and its subfolders, or uses an empty folder.
    fn empty(path: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| conflict(format!("cannot create the folder {}: {error}", path.display()));
        let path = std::path::absolute(path).map_err(failed)?;
        files::make_private_folder(&path)
            .map_err(|why| conflict(format!("the folder {} {}", path.display(), words(&why))))?;
        // The names of links would have to be checked too, at each use.
        let path = path.canonicalize().map_err(failed)?;
        if fs::read_dir(&path).map_err(failed)?.next().is_some() {
            return Err(conflict(format!(
                "the folder {} is not empty; a fleet is never overwritten: choose another folder",
                path.display()
            )));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        for folder in FOLDERS {
            DirBuilder::new().mode(0o700).create(path.join(folder)).map_err(failed)?;
        }
        Ok(Self { path })
    }

    /// Adds a member with a new key. Returns the member, and the file of its seed.
    pub fn add(&self, request: Request<'_>) -> Result<(Member, PathBuf)> {
        let _lock = self.lock()?;
        let mut members = self.members()?;
        let key = nkeys::KeyPair::new_user();
        let member = Member {
            name: request.name.to_owned(),
            key: key.public_key(),
            offer: request.offer.to_vec(),
            uses: request.uses.to_vec(),
            hosts: request.hosts.to_vec(),
            audit: if request.audit { subject::audit_token(&seed_of(&key)?) } else { None },
        };
        members.add(member)?;
        let Some(member) = members.get(request.name).cloned() else {
            return Err(Error::internal("the new member is missing"));
        };
        // A seed that is left of an interrupted command is not in `members.conf`: replacing it loses
        // nothing.
        let name = format!("members/{}.nk", member.name);
        self.write(&name, &seed_of(&key)?, Existing::Replace)?;
        self.write(MEMBERS, &members.render(), Existing::Replace)?;
        Ok((member, self.file(&name)))
    }

    /// Removes a member, appends it to the archive, and removes its seed.
    pub fn revoke(&self, name: &str) -> Result<Member> {
        let _lock = self.lock()?;
        let before = self.members()?;
        let mut members = before.clone();
        let member = members.revoke(name)?;
        let permissions = before.permissions(&member);
        let (publish, subscribe) = (permissions.publish, permissions.subscribe);
        self.archive(&Revoked { at_ms: clock::now_ms(), member: &member, publish, subscribe })?;
        self.write(MEMBERS, &members.render(), Existing::Replace)?;
        match fs::remove_file(self.seed_file(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let file = self.seed_file(name);
                Err(conflict(format!("the member is revoked, but {} stays: {error}; remove it", file.display())))
            }
            _ => Ok(member),
        }
    }

    fn archive(&self, revoked: &Revoked<'_>) -> Result<()> {
        let path = self.file(REVOKED);
        let failed = |error: std::io::Error| conflict(format!("cannot write {}: {error}", path.display()));
        let access = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let mut file = files::open_private(&path, access, OpenToOthers::Refused)
            .map_err(|why| conflict(format!("{} {}", path.display(), words(&why))))?;
        file.write_all(format!("{}\n", json(revoked)).as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)
    }

    /// Generates a new certificate for the server, for other names if any are given.
    pub fn renew(&self, names: &[String]) -> Result<Description> {
        let _lock = self.lock()?;
        let mut description = self.description()?;
        if !names.is_empty() {
            names.clone_into(&mut description.names);
        }
        let authority = certificate::Authority { cert: self.read("tls/ca.pem")?, key: self.read("tls/ca.key")? };
        let certificate = certificate::server(&authority, &description.certificate_names())?;
        // NATS reads both when it reloads. A crash between the two leaves a pair that the server
        // rejects at its next start, and that another renewal replaces.
        self.write("tls/server.key", &certificate.key, Existing::Replace)?;
        self.write("tls/server.pem", &certificate.chain, Existing::Replace)?;
        self.write(DESCRIPTION, &json(&description), Existing::Replace)?;
        Ok(description)
    }

    /// Returns its members. Error: the file was edited by hand.
    pub fn members(&self) -> Result<Members> {
        Members::parse(&self.read(MEMBERS)?).map_err(|error| {
            let file = self.file(MEMBERS);
            conflict(format!(
                "unexpected contents of {}: {}; only muxtap writes this file: undo the edit, and put your own \
                 accounts in {SERVER}",
                file.display(),
                error.message
            ))
        })
    }

    /// Returns the subjects of the copies of audit logs: of members, and of those that were revoked.
    pub(super) fn audit_subjects(&self) -> Result<HashSet<String>> {
        let members = self.members()?;
        let current = members.iter().filter_map(|member| Some((member.name.clone(), member.audit.clone()?)));
        let revoked = if self.file(REVOKED).exists() { self.read(REVOKED)? } else { String::new() };
        let revoked = revoked.lines().filter_map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).ok()?;
            let field = |name: &str| Some(record.get("member")?.get(name)?.as_str()?.to_owned());
            Some((field("name")?, field("audit")?))
        });
        Ok(current.chain(revoked).map(|(name, token)| subject::audit(&name, &token)).collect())
    }

    /// Returns its description.
    pub fn description(&self) -> Result<Description> {
        Description::parse(&self.read(DESCRIPTION)?)
    }

    /// Returns a member's seed. `None`: it is not in the folder.
    pub fn seed(&self, name: &str) -> Result<Option<String>> {
        crate::settings::check_name(name)?;
        if !self.seed_file(name).exists() {
            return Ok(None);
        }
        Ok(Some(self.read(&format!("members/{name}.nk"))?.trim().to_owned()))
    }

    /// Returns the admin's seed.
    pub fn admin_seed(&self) -> Result<String> {
        let missing =
            || Error::not_found(format!("no seed of member `{ADMIN}`: {} is missing", self.seed_file(ADMIN).display()));
        self.seed(ADMIN)?.ok_or_else(missing)
    }

    /// Returns the path of a member's seed.
    pub fn seed_file(&self, name: &str) -> PathBuf {
        self.file(&format!("members/{name}.nk"))
    }

    /// Returns the path of the authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.file("tls/ca.pem")
    }

    /// Returns the path of the server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.file("tls/server.pem")
    }

    /// Returns the path of the server's configuration.
    pub fn server(&self) -> PathBuf {
        self.file(SERVER)
    }

    /// Returns the path of the server's process id.
    pub fn pid_file(&self) -> PathBuf {
        self.file("nats.pid")
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the files with secrets, and the files that decide who may what.
    pub(super) fn private_files(&self) -> Vec<PathBuf> {
        let fixed = [SERVER, MEMBERS, DESCRIPTION, "tls/ca.key", "tls/server.key"].map(|name| self.file(name));
        let seeds = fs::read_dir(self.file("members")).into_iter().flatten().flatten().map(|entry| entry.path());
        fixed.into_iter().chain(seeds).collect()
    }

    /// Returns the folders that must be private.
    pub(super) fn private_folders(&self) -> impl Iterator<Item = PathBuf> {
        [".", "tls", "members", "jetstream"].into_iter().map(|name| self.file(name))
    }

    fn file(&self, name: &str) -> PathBuf {
        if name == "." { self.path.clone() } else { self.path.join(name) }
    }

    fn display(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = self.file(name);
        files::read_secret(&path, FILE_BYTES).map(|(text, _)| text).map_err(|error| {
            let (SecretError::Open(why) | SecretError::Foreign(why) | SecretError::Unreadable(why)) = error;
            conflict(format!("{} {why}", path.display()))
        })
    }

    fn write(&self, name: &str, text: &str, existing: Existing) -> Result<()> {
        let path = self.file(name);
        files::write_secret(&path, text.trim_end(), existing)
            .map_err(|error| conflict(format!("cannot write {}: {error}", path.display())))
    }

    /// Excludes other commands that change the folder, until the file is dropped.
    fn lock(&self) -> Result<File> {
        let path = self.file("lock");
        let file = files::open_private(&path, OFlags::RDWR | OFlags::CREATE, OpenToOthers::Closed)
            .map_err(|why| conflict(format!("{} {}", path.display(), words(&why))))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| conflict(format!("cannot lock {}: {error}", path.display())))?;
        Ok(file)
    }
}

const README: &str = "\
The folder of a fleet (docs/fleet.md of muxtap). Only its owner may read it.

nats.conf         the configuration of the NATS server; yours to edit
members.conf      the members' public keys and permissions; only muxtap writes it
fleet.json        the server's address and names, for `muxtap fleet`
tls/ca.pem        the authority that members trust: copy it to each machine
tls/ca.key        the authority's key: its holder can pretend to be the server. Keep it here, and in a backup
tls/server.*      the server's certificate and its key; `muxtap fleet renew` replaces them
members/NAME.nk   a member's secret key: move it to that member's machine
revoked.jsonl     the members that were revoked, with their former permissions
jetstream         what the server stores
";

fn seed_of(key: &nkeys::KeyPair) -> Result<String> {
    key.seed().map_err(|error| Error::internal(format!("cannot generate a key: {error}")))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn words(why: &FileError) -> String {
    why.to_string()
}

fn conflict(message: String) -> Error {
    Error::new(ErrorCode::Conflict, message)
}
