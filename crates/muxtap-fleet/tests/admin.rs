//! A fleet's folder with a real nats-server: what its files let members do, and what not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are not marked as tests"
)]

mod configured;

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, time::Duration};

use futures_util::{FutureExt as _, StreamExt as _};
use muxtap_api::Tier::{self, Create, Input, Kill, Read};
use muxtap_fleet::admin::{self, Description, Folder, Level};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use self::configured::{Fleet, is_installed};

/// The longest that something may take which happens at once.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn the_files_are_private_valid_and_never_overwritten() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.add("web-1", &[Read, Input], &[], &[]);
    fleet.add("amy", &[], &[Read], &["web-*"]);
    fleet.add("both", &[Read], &[Read, Kill], &["*"]);
    let told = fleet.check_configuration();
    assert!(told.contains("is valid") || told.is_empty(), "{told}");
    let mut folders = vec![fleet.folder.path().to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700, "{folder:?}");
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                files += 1;
                assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
            }
        }
    }
    assert!(files > 10, "{files}");
    let before = fs::read(fleet.folder.authority()).unwrap();
    let again = Folder::init(fleet.folder.path(), &fleet.folder.description().unwrap()).unwrap_err();
    assert!(again.message.contains("not empty"), "{again}");
    assert_eq!(before, fs::read(fleet.folder.authority()).unwrap());
    assert!(fs::read_to_string(fleet.folder.seed_file("amy")).unwrap().starts_with("SU"));
}

#[test]
fn a_file_that_was_edited_is_not_rewritten() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.add("web-1", &[Read], &[], &[]);
    let conf = fleet.folder.path().join("members.conf");
    let edited = fs::read_to_string(&conf).unwrap().replace("muxtap.v1.web-1.read.>", "muxtap.v1.>");
    fs::write(&conf, &edited).unwrap();
    let error = fleet.try_add("web-2", &[Read], &[], &[]).unwrap_err();
    assert!(error.contains("was edited by hand"), "{error}");
    assert!(fleet.folder.revoke("web-1").is_err());
    assert_eq!(fs::read_to_string(&conf).unwrap(), edited);
    assert!(!fleet.folder.seed_file("web-2").exists());
}

#[test]
fn members_that_are_added_at_the_same_time_are_all_kept() {
    let Some(fleet) = Fleet::new() else { return };
    std::thread::scope(|scope| {
        for number in 0..8 {
            let fleet = &fleet;
            scope.spawn(move || fleet.add(&format!("web-{number}"), &[Read], &[], &[]));
        }
    });
    assert_eq!(fleet.folder.members().unwrap().iter().count(), 9);
}

#[test]
fn a_name_is_one_token_and_no_path() {
    let Some(fleet) = Fleet::new() else { return };
    for name in ["a.b", "*", ">", "a*", "", "../x", "-a", "a b", "a\n", "$SYS", "ä", &"x".repeat(65)] {
        let error = fleet.try_add(name, &[Read], &[], &[]).unwrap_err();
        assert!(error.starts_with("name: invalid name"), "{error}");
        assert!(fleet.folder.seed(name).is_err() && fleet.folder.revoke(name).is_err());
    }
    for pattern in ["a.b", ">", "web-1.>", "\"", ""] {
        let error = fleet.try_add("amy", &[], &[Read], &[pattern]).unwrap_err();
        assert!(error.starts_with("invalid pattern for hosts"), "{error}");
    }
    for (name, offer, uses, hosts) in [
        ("amy", &[][..], &[][..], &[][..]),
        ("amy", &[Read], &[], &["*"]),
        ("amy", &[], &[Read], &[]),
        ("admin", &[Read], &[], &[]),
        ("ADMIN", &[Read], &[], &[]),
    ] {
        fleet.try_add(name, offer, uses, hosts).unwrap_err();
    }
    assert_eq!(fleet.folder.members().unwrap().iter().count(), 1);
}

/// A caller with `read` on two of three hosts, against everything else.
#[tokio::test]
async fn a_caller_may_open_links_of_its_tiers_and_nothing_else() {
    let Some(fleet) = Fleet::new() else { return };
    for host in ["web-1", "web-2", "db"] {
        fleet.add(host, &Tier::ALL, &[], &[]);
    }
    fleet.add("amy", &[], &[Read], &["web-*"]);
    let server = fleet.start();
    let mut amy = fleet.connect(&server, "amy").await.unwrap();
    let allowed =
        ["muxtap.v1.web-1.read.open", "muxtap.v1.web-2.read.link.k3", "$SRV.INFO.muxtap", "$SRV.INFO.muxtap.web-1"];
    let refused = [
        "muxtap.v1.web-1.input.open",
        "muxtap.v1.web-1.create.open",
        "muxtap.v1.web-1.kill.open",
        "muxtap.v1.web-1.kill.link.k3",
        "muxtap.v1.web-1.open",
        "muxtap.v1.db.read.open",
        "muxtap.v1.amy.read.open",
        "muxtap.v2.web-1.read.open",
        "_INBOX.admin.x",
        "_INBOX.web-1.x",
        "_INBOX.amy.x",
        "$SRV.INFO",
        "$SRV.PING",
        "$SRV.PING.muxtap",
        "$KV.muxtap_hosts.web-1",
        "$KV.muxtap_hosts.amy",
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.KV_muxtap_hosts",
        "$JS.API.STREAM.MSG.GET.KV_muxtap_hosts",
        "$JS.API.STREAM.INFO.muxtap_doctor",
        "muxtap.doctor.mark",
        "$SRV.HELLO.muxtap.amy",
        "$SRV.HELLO.muxtap.web-1",
        "$JS.API.STREAM.CREATE.KV_muxtap_hosts",
        "$JS.API.STREAM.CREATE.evil",
        "$JS.API.STREAM.UPDATE.KV_muxtap_hosts",
        "$JS.API.STREAM.DELETE.KV_muxtap_hosts",
        "$JS.API.STREAM.PURGE.KV_muxtap_hosts",
        "$JS.API.STREAM.MSG.DELETE.KV_muxtap_hosts",
        "$JS.API.STREAM.NAMES",
        "$JS.API.CONSUMER.CREATE.KV_muxtap_hosts",
        "$JS.API.CONSUMER.CREATE.KV_muxtap_hosts.c1.$KV.muxtap_hosts.>",
        "$JS.API.CONSUMER.DURABLE.CREATE.KV_muxtap_hosts.c1",
        "$JS.API.DIRECT.GET.KV_muxtap_hosts",
        "$JS.API.DIRECT.GET.KV_muxtap_hosts.$KV.muxtap_hosts.web-1",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$JS.ACK.KV_muxtap_hosts.c1.1",
        "$JS.FC.KV_muxtap_hosts.x",
    ];
    let tried = allowed.into_iter().chain(refused);
    assert_eq!(amy.refused_publishing(tried).await, refused.into_iter().map(str::to_owned).collect());
    let refused = [
        ">",
        "*",
        "muxtap.>",
        "muxtap.v1.web-1.>",
        "muxtap.v1.web-1.read.open",
        "muxtap.v1.amy.>",
        "_INBOX.>",
        "_INBOX.*.>",
        "_INBOX.web-1.>",
        "_INBOX.admin.x",
        "$SRV.INFO",
        "$SRV.INFO.muxtap.web-1",
        "$KV.>",
        "$JS.>",
        "$SYS.>",
    ];
    let tried = ["_INBOX.amy.>", "_INBOX.amy.x", "$SRV.HELLO.muxtap.*"].into_iter().chain(refused);
    assert_eq!(amy.refused_subscribing(tried).await, refused.into_iter().map(str::to_owned).collect());
}

#[tokio::test]
async fn a_host_may_serve_and_announce_its_own_name() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.add("web-1", &[Read, Input], &[], &[]);
    fleet.add("web-2", &[Read], &[], &[]);
    let server = fleet.start();
    let mut host = fleet.connect(&server, "web-1").await.unwrap();
    let refused = [
        "muxtap.v1.web-1.read.open",
        "muxtap.v1.web-2.read.open",
        "muxtap.v1.web-2.kill.open",
        "$SRV.HELLO.muxtap.web-2",
        "$KV.muxtap_hosts.web-1",
        "$KV.muxtap_hosts.web-2",
        "$SRV.INFO",
        "$JS.API.STREAM.CREATE.KV_muxtap_hosts",
        "$JS.API.STREAM.PURGE.KV_muxtap_hosts",
        "$JS.API.CONSUMER.CREATE.KV_muxtap_hosts",
        "$JS.API.DIRECT.GET.KV_muxtap_hosts.$KV.muxtap_hosts.web-1",
    ];
    // Not prevented: a host publishes to any inbox, if it guesses its random part.
    let allowed = ["_INBOX.amy.x", "_INBOX.web-2.x", "$SRV.HELLO.muxtap.web-1"];
    let tried = allowed.into_iter().chain(refused);
    assert_eq!(host.refused_publishing(tried).await, refused.into_iter().map(str::to_owned).collect());
    let refused = [
        "muxtap.v1.web-1.>",
        "muxtap.v1.web-1.kill.open",
        "muxtap.v1.web-1.create.link.k3",
        "muxtap.v1.web-2.>",
        "muxtap.v1.web-2.read.open",
        "muxtap.v1.*.read.open",
        "_INBOX.web-2.>",
        "$SRV.INFO.muxtap.web-2",
        "$SRV.>",
        ">",
    ];
    let allowed = [
        "muxtap.v1.web-1.read.>",
        "muxtap.v1.web-1.input.link.k3",
        "$SRV.PING",
        "$SRV.INFO.muxtap",
        "$SRV.STATS.muxtap.web-1",
    ];
    let tried = allowed.into_iter().chain(refused);
    assert_eq!(host.refused_subscribing(tried).await, refused.into_iter().map(str::to_owned).collect());
}

/// NATS does not check reply subjects: the server, or another member, publishes there.
#[tokio::test]
async fn a_reply_subject_is_not_a_way_around_permissions() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.add("victim", &Tier::ALL, &[], &[]);
    fleet.add("naive", &Tier::ALL, &[], &[]);
    fleet.add("evil", &[Read], &[Read], &["*"]);
    let server = fleet.start();
    let (victim, mut naive) =
        (fleet.connect(&server, "victim").await.unwrap(), fleet.connect(&server, "naive").await.unwrap());
    let evil = fleet.connect(&server, "evil").await.unwrap();
    let mut received = victim.client.subscribe("muxtap.v1.victim.kill.open").await.unwrap();
    victim.sync().await;
    let mut questions = naive.client.subscribe("$SRV.INFO.muxtap").await.unwrap();
    naive.sync().await;

    // A host that replies to whatever subject is given publishes with its own permissions.
    evil.client.publish_with_reply("$SRV.INFO.muxtap", "muxtap.v1.victim.kill.open", "".into()).await.unwrap();
    let question = tokio::time::timeout(LIMIT, questions.next()).await.unwrap().unwrap();
    let reply = question.reply.unwrap().to_string();
    assert_eq!(naive.refused_publishing([reply.as_str()]).await, BTreeSet::from([reply]));

    // The only response that a caller can send there is the server's, that a subject has no subscriber.
    evil.client.publish_with_reply("$SRV.INFO.muxtap.absent", "muxtap.v1.victim.kill.open", "x".into()).await.unwrap();
    evil.sync().await;
    victim.sync().await;
    assert!(received.next().now_or_never().flatten().is_none(), "the server replies to the sender alone");
}

#[tokio::test]
async fn a_revoked_member_loses_its_connection_at_the_reload() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.add("web-1", &[Read], &[], &[]);
    fleet.add("web-2", &[Read], &[], &[]);
    let mut server = fleet.start();
    let seed = fleet.folder.seed("web-1").unwrap().unwrap();
    let mut revoked = fleet.connect(&server, "web-1").await.unwrap();
    let stays = fleet.connect(&server, "web-2").await.unwrap();
    let member = fleet.folder.revoke("web-1").unwrap();
    assert!(!fleet.folder.seed_file("web-1").exists());
    let archive = fs::read_to_string(fleet.folder.path().join("revoked.jsonl")).unwrap();
    assert!(
        archive.contains(&member.key) && archive.contains("muxtap.v1.web-1.read.>") && archive.lines().count() == 1
    );
    server.reload();
    revoked.closed().await;
    let error = fleet.connect_with(&server, "web-1", seed.clone()).await.err().unwrap();
    assert_eq!(error.kind(), async_nats::ConnectErrorKind::AuthorizationViolation, "{error}");
    stays.sync().await;

    // The name may be used again; the old key stays revoked.
    fleet.add("web-1", &[Read], &[], &[]);
    server.reload();
    fleet.connect(&server, "web-1").await.unwrap().sync().await;
    assert!(fleet.connect_with(&server, "web-1", seed).await.is_err());

    // The admin gets another key in the same way.
    fleet.folder.revoke("admin").unwrap();
    assert!(admin::status(&fleet.folder).await.unwrap_err().message.contains("no seed of member `admin`"));
    fleet.add("admin", &[], &[], &[]);
    server.reload();
    admin::status(&fleet.folder).await.unwrap();
}

#[tokio::test]
async fn a_connection_needs_tls_and_a_key() {
    let Some(fleet) = Fleet::new() else { return };
    let server = fleet.start();
    let mut plain = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    plain.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n").await.unwrap();
    let mut text = Vec::new();
    // The server closes the connection, perhaps before everything was read.
    let _ = tokio::time::timeout(LIMIT, plain.read_to_end(&mut text)).await.unwrap();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("\"tls_required\":true") && !text.contains("PONG"), "{text}");
    let stranger = nkeys::KeyPair::new_user().seed().unwrap();
    let error = fleet.connect_with(&server, "admin", stranger).await.err().unwrap();
    assert_eq!(error.kind(), async_nats::ConnectErrorKind::AuthorizationViolation, "{error}");
    // Without a key, and with a certificate of another authority.
    let options = async_nats::ConnectOptions::new().add_root_certificates(fleet.folder.authority());
    assert!(options.connect(server.url()).await.is_err());
    let other = Fleet::new().unwrap();
    let options = async_nats::ConnectOptions::new().add_root_certificates(other.folder.authority());
    let error = options.nkey(fleet.folder.admin_seed().unwrap()).connect(server.url()).await.err().unwrap();
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
}

#[tokio::test]
async fn status_shows_who_is_connected_and_what_they_offer() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.add("web-1", &[Read, Create], &[], &[]);
    fleet.add("web-2", &[Read], &[], &[]);
    fleet.add("amy", &[], &[Read], &["*"]);
    let server = fleet.start();
    let host = fleet.connect(&server, "web-1").await.unwrap();
    let mut asked = host.client.subscribe("$SRV.INFO.muxtap").await.unwrap();
    host.sync().await;
    let client = host.client.clone();
    let answers = tokio::spawn(async move {
        while let Some(question) = asked.next().await {
            let Some(reply) = question.reply else { continue };
            for answer in [
                // A name of another host: shown as that host's, as `docs/fleet.md` says.
                "{}",
                "not JSON",
                r#"{"name":"muxtap","id":"stranger","version":"1","endpoints":[]}"#,
                r#"{"name":"muxtap","id":"web-1","version":"0.1.0\u001b[2J","metadata":{"machine":"box"},
                    "endpoints":[{"subject":"muxtap.v1.web-1.read.open"},{"subject":"muxtap.v1.web-2.kill.open"}]}"#,
            ] {
                client.publish(reply.clone(), answer.into()).await.unwrap();
            }
        }
    });
    let status = admin::status(&fleet.folder).await.unwrap();
    answers.abort();
    let names: Vec<_> = status.members.iter().map(|member| (member.member.name.as_str(), member.connected)).collect();
    assert_eq!(names, [("admin", None), ("amy", None), ("web-1", Some(true)), ("web-2", Some(false))]);
    let web = &status.members[2].instances;
    assert_eq!(web.len(), 1);
    assert_eq!((web[0].offer.as_slice(), web[0].machine.as_deref()), (&[Read][..], Some("box")));
    assert!(!web[0].version.contains('\u{1b}'));
}

#[tokio::test]
async fn doctor_names_what_is_wrong_and_what_to_do() {
    let Some(fleet) = Fleet::new() else { return };
    fleet.add("web-1", &[Read], &[], &[]);
    fleet.add("amy", &[], &[Read], &["web-1"]);
    let problems = async || {
        let findings = admin::doctor(&fleet.folder).await.unwrap();
        let problems = findings.into_iter().filter(|finding| finding.status != Level::Ok);
        problems.map(|finding| (finding.name, finding.message)).collect::<Vec<_>>()
    };
    let found = problems().await;
    assert!(matches!(&found[..], [("server", why)] if why.contains("cannot be reached")), "{found:?}");
    let mut server = fleet.start();
    assert_eq!(problems().await, []);

    // A member that the server does not know yet.
    fleet.add("bob", &[], &[Read], &["*"]);
    let found = problems().await;
    assert!(matches!(&found[..], [("credentials", why)] if why.contains("bob")), "{found:?}");
    server.reload();
    assert_eq!(problems().await, []);

    // Permissions of the server that are not those of the file.
    let conf = fleet.folder.path().join("members.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, text.replace("muxtap.v1.web-1.read.>", "muxtap.v1.>")).unwrap();
    server.reload();
    let found = problems().await;
    assert!(matches!(&found[..], [("members", why)] if why.contains("edited by hand")), "{found:?}");
    fs::write(&conf, text).unwrap();
    let found = problems().await;
    assert!(
        matches!(&found[..], [("permissions", why)] if why.contains("`amy`") && why.contains(".kill.open")),
        "{found:?}"
    );
    server.reload();

    // Files that others can read, and an invalid configuration.
    let seed = fleet.folder.seed_file("admin");
    fs::set_permissions(&seed, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(problems().await.iter().any(|(name, why)| *name == "files" && why.contains("admin.nk")));
    fs::set_permissions(&seed, fs::Permissions::from_mode(0o600)).unwrap();
    let nats = fs::read_to_string(fleet.folder.server()).unwrap();
    fs::write(fleet.folder.server(), format!("{nats}\nlisten: \"nowhere\"\n")).unwrap();
    assert!(problems().await.iter().any(|(name, why)| *name == "configuration" && why.contains("nats.conf")));
}

#[tokio::test]
async fn a_renewed_certificate_needs_no_change_at_members() {
    let Some(fleet) = Fleet::new() else { return };
    let mut server = fleet.start();
    let before = fs::read(fleet.folder.certificate()).unwrap();
    let authority = fs::read(fleet.folder.authority()).unwrap();
    fleet.folder.renew(&["localhost".into(), "nats.example.org".into()]).unwrap();
    assert_ne!(before, fs::read(fleet.folder.certificate()).unwrap());
    assert_eq!(authority, fs::read(fleet.folder.authority()).unwrap());
    server.reload();
    fleet.connect(&server, "admin").await.unwrap().sync().await;
    let found = admin::doctor(&fleet.folder).await.unwrap();
    let certificate = found.iter().find(|finding| finding.name == "certificate").unwrap();
    assert!(certificate.status == Level::Ok && certificate.message.contains("nats.example.org"), "{certificate:?}");
}

#[test]
fn a_folder_of_another_kind_is_refused() {
    if !is_installed() {
        return;
    }
    let top = tempfile::tempdir().unwrap();
    assert!(Folder::open(top.path()).unwrap_err().message.contains("no fleet in"));
    let description = Description::new("127.0.0.1:4222".parse().unwrap(), vec!["localhost".into()]);
    let odd = top.path().join("a\"b");
    assert!(Folder::init(&odd, &description).unwrap_err().message.starts_with("invalid folder"));
    let open = top.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Folder::init(&open, &description).unwrap_err().message.contains("can be written by others"));
}
