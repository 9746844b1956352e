//! Daemons that join with the files of `admin`, over a server that enforces its permissions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are not marked as tests"
)]

mod configured;

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use muxtap_api::{
    Error, ErrorCode,
    Tier::{self, Create, Input, Read},
};
use muxtap_fleet::{Fleet, Offered, Settings, State, admin::Copies, audit::Log};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::configured::Server;

/// The longest that something may take which happens at once.
const LIMIT: Duration = Duration::from_secs(30);

struct Daemon {
    fleet: Fleet,
    links: mpsc::UnboundedReceiver<Offered>,
    _end: DropGuard,
}

impl Daemon {
    /// Joins with the settings that `fleet add` prints. `added`: the name that the credentials are for.
    fn join(fleet: &configured::Fleet, server: &Server, added: &str, name: &str, offer: &[Tier]) -> Self {
        let settings = Settings {
            url: server.url(),
            credentials: Some(fleet.folder.seed_file(added)),
            tls_ca: Some(fleet.folder.authority()),
            name: name.into(),
            offer: offer.to_vec(),
            version: "0.1.0".into(),
            ..Settings::default()
        };
        let end = CancellationToken::new();
        let (opened, links) = mpsc::unbounded_channel();
        let fleet = Fleet::join(settings, move |link| drop(opened.send(link)), |_| {}, end.clone()).unwrap();
        Self { fleet, links, _end: end.drop_guard() }
    }

    async fn joined(&self) {
        self.fleet.state().wait_for(|state| matches!(state, State::Joined)).await.unwrap();
    }

    /// Waits until NATS refuses this daemon.
    async fn refused(&self) -> Error {
        let is_refused = |state: &State| matches!(state, State::Out(error) if error.code == ErrorCode::Unauthorized);
        match self.fleet.state().wait_for(is_refused).await.unwrap().clone() {
            State::Out(error) => error,
            state => panic!("{state:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_the_files_of_admin_use_each_other_and_nats_refuses_nothing() {
    let Some(fleet) = configured::Fleet::new() else { return };
    fleet.add("web-1", &[Read, Input], &[], &[]);
    fleet.add("web-2", &[Read], &[Read, Input], &["web-*"]);
    fleet.add("amy", &[], &[Read, Input], &["*"]);
    let server = fleet.start();
    let mut host = Daemon::join(&fleet, &server, "web-1", "web-1", &[Input, Read, Read]);
    let other = Daemon::join(&fleet, &server, "web-2", "web-2", &[Read]);
    let caller = Daemon::join(&fleet, &server, "amy", "amy", &[]);
    for daemon in [&host, &other, &caller] {
        daemon.joined().await;
    }
    for from in [&other, &caller] {
        for tier in [Read, Input] {
            let mut pipe = from.fleet.open("web-1", tier).await.unwrap().pipe;
            let mut served = host.links.recv().await.unwrap();
            assert_eq!((&*served.member, served.tier), (from.fleet.name(), tier));
            pipe.write_all(b"there").await.unwrap();
            served.pipe.write_all(b"back!").await.unwrap();
            let (mut there, mut back) = ([0; 5], [0; 5]);
            served.pipe.read_exact(&mut there).await.unwrap();
            pipe.read_exact(&mut back).await.unwrap();
            assert_eq!((&there, &back), (b"there", b"back!"));
        }
    }
    let hosts = caller.fleet.hosts().await.unwrap();
    let offers: Vec<_> = hosts.iter().map(|host| (&*host.name, &*host.offer)).collect();
    assert_eq!(offers, [("web-1", &[Read, Input][..]), ("web-2", &[Read][..])]);
    let log = server.end();
    assert!(!log.contains("Violation"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_or_a_tier_that_the_credentials_are_not_for_is_reported() {
    let Some(fleet) = configured::Fleet::new() else { return };
    fleet.add("web-1", &[Read], &[], &[]);
    fleet.add("amy", &[], &[Read], &["*"]);
    let server = fleet.start();
    for (added, name, offer, subject) in [
        ("amy", "bob", &[][..], "_INBOX.bob."),
        ("web-1", "web-2", &[Read], "_INBOX.web-2."),
        ("amy", "amy", &[Read], "muxtap.v1.amy.read.open"),
        ("web-1", "web-1", &[Read, Create], "muxtap.v1.web-1.create.open"),
    ] {
        let error = Daemon::join(&fleet, &server, added, name, offer).refused().await;
        assert!(error.message.starts_with(&format!("name: {name}: ")) && error.message.contains(subject), "{error}");
    }
}

/// `members.conf` is not as muxtap writes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_may_not_announce_itself_is_reported() {
    let Some(fleet) = configured::Fleet::new() else { return };
    fleet.add("web-1", &[Read], &[], &[]);
    let file = fleet.folder.server().with_file_name("members.conf");
    let permitted = fs::read_to_string(&file).unwrap();
    for (subject, what) in [("$SRV.HELLO.muxtap.web-1", "announcement"), ("$SRV.HELLO.muxtap.*", "subscription")] {
        let edited = permitted.replace(subject, "$SRV.HELLO.muxtap.other");
        assert_ne!(edited, permitted);
        fs::write(&file, edited).unwrap();
        let server = fleet.start();
        let host = Daemon::join(&fleet, &server, "web-1", "web-1", &[Read]);
        let said = |state: &State| match state {
            State::Out(error) if error.code == ErrorCode::Unauthorized => Some(error.message.clone()),
            // The reason that is given if NATS' error is not recognized.
            State::Out(error) if error.message.contains("did not come back") => Some(error.message.clone()),
            _ => None,
        };
        let message = said(&host.fleet.state().wait_for(|state| said(state).is_some()).await.unwrap()).unwrap();
        assert!(message.contains(&format!("does not permit its {what} to {subject};")), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_reported_and_a_new_one_is_read() {
    let Some(fleet) = configured::Fleet::new() else { return };
    fleet.add("web-1", &[Read], &[], &[]);
    let mut server = fleet.start();
    let host = Daemon::join(&fleet, &server, "web-1", "web-1", &[Read]);
    host.joined().await;
    fleet.folder.revoke("web-1").unwrap();
    server.reload();
    host.fleet.state().wait_for(|state| matches!(state, State::Out(_))).await.unwrap();
    fleet.add("web-1", &[Read], &[], &[]);
    server.reload();
    host.joined().await;
}

/// A log of a daemon, which has one older file.
struct AuditLog {
    folder: tempfile::TempDir,
    written: tokio::sync::watch::Sender<u64>,
}

impl AuditLog {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), written: tokio::sync::watch::Sender::new(0) }
    }

    fn files(path: &Path) -> Vec<PathBuf> {
        vec![path.with_extension("jsonl.1"), path.to_owned()]
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    fn log(&self) -> Log {
        Log { files: Self::files, path: self.path(), written: self.written.subscribe() }
    }

    fn append(&self, lines: &str) {
        let mut file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(self.path()).unwrap();
        file.write_all(lines.as_bytes()).unwrap();
        self.written.send_modify(|written| *written += 1);
    }

    fn rotate(&self) {
        let [old, current] = Self::files(&self.path()).try_into().unwrap();
        fs::rename(current, old).unwrap();
    }
}

async fn copy_of(fleet: &configured::Fleet, name: Option<&str>) -> String {
    let mut copies = Copies::open(&fleet.folder, name).await.unwrap();
    let mut all = String::new();
    while let Some(lines) = copies.next().await.unwrap() {
        all += &lines;
    }
    all
}

/// Waits until the copy is as long as `all`, and returns it.
async fn complete_copy(fleet: &configured::Fleet, all: &str) -> String {
    loop {
        let copy = copy_of(fleet, Some("web-1-audited")).await;
        if copy.len() >= all.len() {
            return copy;
        }
        // No event says that another member's message was stored.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// NATS is killed while lines are copied, and once while the log is rotated.
#[tokio::test(flavor = "multi_thread")]
async fn a_copied_audit_log_equals_the_local_one_after_outages() {
    let Some(fleet) = configured::Fleet::new() else { return };
    fleet.add("web-1-audited", &[Read], &[], &[]);
    let mut server = fleet.start();
    assert_eq!(copy_of(&fleet, None).await, "");
    let host = Daemon::join(&fleet, &server, "web-1-audited", "web-1-audited", &[Read]);
    let log = AuditLog::new();
    host.fleet.copy_audit(log.log());
    let mut all = String::new();
    for outage in 0..4 {
        host.joined().await;
        for line in 0..50 {
            let line = format!("{{\"at\":\"{outage}.{line}\",\"target\":\"{}\"}}\n", "x".repeat(2_000));
            log.append(&line);
            all += &line;
        }
        if outage == 2 {
            complete_copy(&fleet, &all).await;
        }
        let log_of_server = server.end();
        assert!(!log_of_server.contains("Violation"), "{log_of_server}");
        let line = format!("{{\"at\":\"{outage}\",\"during\":\"the outage\"}}\n");
        log.append(&line);
        all += &line;
        if outage == 2 {
            log.rotate();
        }
        server = fleet.start();
    }
    assert_eq!(complete_copy(&fleet, &all).await, all);
    let named = copy_of(&fleet, None).await;
    assert!(named.starts_with("{\"host\":\"web-1-audited\",\"at\":\"0.0\",\"target\":\"xxx"), "{named:.80}");
    assert_eq!(named.lines().count(), all.lines().count());
}

/// Returns the subject of a member's copy.
fn copied_to(fleet: &configured::Fleet, name: &str) -> String {
    let token = fleet.folder.members().unwrap().get(name).unwrap().audit.clone().unwrap();
    format!("muxtap.audit.{name}.{token}")
}

/// JetStream replies to whatever subject a message names, as the server. What it says to another
/// member's stream must remove nothing, and add nothing to another member's copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_changes_no_copy_of_others_by_the_replies_of_nats() {
    let Some(fleet) = configured::Fleet::new() else { return };
    for name in ["eve-audited", "web-1-audited"] {
        fleet.add(name, &[Read], &[], &[]);
    }
    fleet.add("web-2", &[Read], &[], &[]);
    let server = fleet.start();
    assert_eq!(copy_of(&fleet, None).await, "");
    let [own, other] = ["eve-audited", "web-1-audited"].map(|name| copied_to(&fleet, name));
    let victim = fleet.connect(&server, "web-1-audited").await.unwrap();
    for _ in 0..5 {
        victim.client.publish(other.clone(), "{\"a\":1}\n".into()).await.unwrap();
    }
    victim.client.flush().await.unwrap();
    victim.sync().await;
    let mut eve = fleet.connect(&server, "eve-audited").await.unwrap();
    let replies = ["PURGE", "MSG.DELETE", "DELETE", "UPDATE", "CREATE", "SNAPSHOT"];
    let replies = replies.map(|what| format!("$JS.API.STREAM.{what}.muxtap_audit")).into_iter();
    // Without the token nothing there is stored.
    let to_copies = ["muxtap.audit.web-1-audited", "muxtap.audit.web-1-audited.>", "muxtap.audit.web-1-audited.*"];
    for reply in replies.chain(to_copies.map(str::to_owned)) {
        for _ in 0..3 {
            eve.client.publish_with_reply(own.clone(), reply.clone(), "{}\n".into()).await.unwrap();
        }
    }
    eve.sync().await;
    // Its messages are stored one after the other: the last one is there when this one is.
    eve.client.request(own.clone(), "{}\n".into()).await.unwrap();
    assert_eq!(copy_of(&fleet, Some("web-1-audited")).await, "{\"a\":1}\n".repeat(5));
    let of_eve = copy_of(&fleet, Some("eve-audited")).await;
    assert!(of_eve.lines().count() >= 19 && of_eve.lines().all(|line| line == "{}"), "{of_eve}");
    assert_eq!(eve.refused_publishing([&*other]).await, [other.clone()].into());
    let mut plain = fleet.connect(&server, "web-2").await.unwrap();
    let without = "muxtap.audit.web-2.00";
    assert_eq!(plain.refused_publishing([without]).await, [without.to_owned()].into());
    let refused = Copies::open(&fleet.folder, Some("web-2")).await.map(drop).unwrap_err();
    assert!(refused.message.contains("without --audit"), "{refused}");
    let refused = Copies::open(&fleet.folder, Some("wbe-1")).await.map(drop).unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound, "{refused}");
}

/// A member that lies in its copy changes no terminal and no other member's lines.
#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_copy_are_named_by_nats_and_not_by_themselves() {
    let Some(fleet) = configured::Fleet::new() else { return };
    fleet.add("eve-audited", &[Read], &[], &[]);
    let server = fleet.start();
    assert_eq!(copy_of(&fleet, None).await, "");
    let eve = fleet.connect(&server, "eve-audited").await.unwrap();
    let text = "{\"host\":\"web-1\"}\nno json\n{}\n";
    eve.client.request(copied_to(&fleet, "eve-audited"), text.into()).await.unwrap();
    let named = copy_of(&fleet, None).await;
    let hosts: Vec<serde_json::Value> = named.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(hosts.len(), 3);
    assert!(hosts.iter().all(|line| line["host"] == "eve-audited" && line["line"].is_string()), "{named}");
}
