//! Daemons that join with the files of `admin`, over a server that enforces its permissions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are not marked as tests"
)]

mod configured;

use std::time::Duration;

use muxtap_api::{
    Error, ErrorCode,
    Tier::{self, Create, Input, Read},
};
use muxtap_fleet::{Fleet, Offered, Settings, State};
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
