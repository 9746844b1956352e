//! Links between members of a fleet, over a real NATS server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

mod nats;

use std::{path::PathBuf, sync::Arc, time::Duration};

use muxtap_api::{ErrorCode, Tier};
use muxtap_fleet::{Fleet, Offered, Settings, State};
use nats::Nats;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

struct Member {
    fleet: Fleet,
    links: mpsc::UnboundedReceiver<Offered>,
    _end: tokio_util::sync::DropGuard,
}

fn settings(nats: &Nats, name: &str, offer: &[Tier]) -> Settings {
    Settings {
        url: nats.url(),
        name: name.into(),
        offer: offer.to_vec(),
        version: "0.1.0".into(),
        labels: vec!["role=test".into()],
        ..Settings::default()
    }
}

fn member_by(settings: Settings) -> Member {
    let end = CancellationToken::new();
    let (opened, links) = mpsc::unbounded_channel();
    let fleet = Fleet::join(settings, move |link| drop(opened.send(link)), |_| {}, end.clone()).unwrap();
    Member { fleet, links, _end: end.drop_guard() }
}

async fn joined(fleet: &Fleet) {
    fleet.state().wait_for(|state| matches!(state, State::Joined)).await.unwrap();
}

async fn member(nats: &Nats, name: &str, offer: &[Tier]) -> Member {
    let member = member_by(settings(nats, name, offer));
    joined(&member.fleet).await;
    member
}

/// Writes numbers to one side, and checks them on the other.
async fn carry(
    mut from: impl tokio::io::AsyncWrite + Unpin + Send + 'static,
    mut to: impl tokio::io::AsyncRead + Unpin,
    bytes: usize,
) {
    let byte = |at: usize| u8::try_from(at % 251).unwrap();
    let writer = tokio::spawn(async move {
        let all: Vec<u8> = (0..bytes).map(byte).collect();
        for chunk in all.chunks(70_001) {
            from.write_all(chunk).await.unwrap();
        }
        from.shutdown().await.unwrap();
        from
    });
    let mut all = Vec::new();
    to.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), bytes);
    assert!(all.iter().enumerate().all(|(at, got)| *got == byte(at)));
    drop(writer.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_carries_bytes_in_both_directions() {
    let nats = Nats::start("");
    let mut host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let opened = amy.fleet.open("web-1", Tier::Read).await.unwrap();
    let served = host.links.recv().await.unwrap();
    assert_eq!((&*served.member, served.tier), ("amy", Tier::Read));
    assert_eq!((opened.version.as_str(), opened.takes_keys), ("0.1.0", true));
    let (there, back) = (tokio::io::split(opened.pipe), tokio::io::split(served.pipe));
    tokio::join!(carry(there.1, back.0, 20_000_000), carry(back.1, there.0, 20_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_holds_its_sender_and_no_other_link() {
    let nats = Nats::start("");
    let mut host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let mut stalled = amy.fleet.open("web-1", Tier::Read).await.unwrap().pipe;
    let mut unread = host.links.recv().await.unwrap().pipe;
    let mut sent = 0;
    // The window, and the buffers on both sides.
    let chunk = vec![b'x'; 64 << 10];
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(1), stalled.write(&chunk)).await {
        sent += written.unwrap();
        assert!(sent < 4 << 20, "the sender was not held");
    }
    let other = amy.fleet.open("web-1", Tier::Read).await.unwrap().pipe;
    let served = host.links.recv().await.unwrap().pipe;
    carry(other, served, 5_000_000).await;
    // The reader goes on, and nothing is missing.
    let reader = tokio::spawn(async move {
        let mut all = Vec::new();
        unread.read_to_end(&mut all).await.unwrap();
        all.len()
    });
    stalled.write_all(&chunk).await.unwrap();
    drop(stalled);
    assert_eq!(reader.await.unwrap(), sent + chunk.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_host_and_a_tier_that_is_not_offered_are_told_at_once() {
    let nats = Nats::start("");
    let _host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let absent = amy.fleet.open("web-2", Tier::Read).await.unwrap_err();
    assert_eq!(absent.code, ErrorCode::TmuxUnavailable);
    assert_eq!(absent.message, "host web-2: its daemon is not connected to the fleet, or offers nothing");
    let refused = amy.fleet.open("web-1", Tier::Input).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ReadOnly);
    assert_eq!(refused.message, "host web-1: it does not offer `input` to the fleet, only: read");
    assert!(amy.fleet.find("web-2").await.unwrap().is_none());
    assert!(amy.fleet.find("a.*").await.unwrap().is_none());
    let found = amy.fleet.find("web-1").await.unwrap().unwrap();
    assert_eq!((found.labels, found.offer), (vec!["role=test".to_owned()], vec![Tier::Read]));
    // A host that joins later announces itself.
    let (met, mut hosts) = mpsc::unbounded_channel();
    let settings = settings(&nats, "cat", &[]);
    let cat = Fleet::join(settings, |_| {}, move |host| drop(met.send(host.name.clone())), CancellationToken::new());
    let cat = cat.unwrap();
    assert_eq!(hosts.recv().await.as_deref(), Some("web-1"));
    joined(&cat).await;
    let _later = member(&nats, "web-0", &[Tier::Read]).await;
    assert_eq!(hosts.recv().await.as_deref(), Some("web-0"));
    assert!(cat.known("web-0").is_some() && cat.known("amy").is_none());
    let hosts: Vec<_> = amy.fleet.hosts().await.unwrap().into_iter().map(|host| host.name).collect();
    assert_eq!(hosts, ["web-0", "web-1"], "a member that offers nothing is not a host");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_that_is_not_offered() {
    let nats = Nats::start("");
    let _amy = member(&nats, "amy", &[]).await;
    let bob = member(&nats, "bob", &[]).await;
    for tier in Tier::ALL {
        assert!(bob.fleet.open("amy", tier).await.unwrap_err().message.contains("nothing"), "{tier}");
    }
    let raw = async_nats::connect(nats.url()).await.unwrap();
    let asked = raw.request("muxtap.v1.amy.read.open", "{}".into()).await.unwrap_err();
    assert_eq!(asked.kind(), async_nats::RequestErrorKind::NoResponders);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_daemons_with_one_name_the_first_remains() {
    let nats = Nats::start("");
    let first = member(&nats, "web-1", &[Tier::Read]).await;
    let second = member_by(settings(&nats, "web-1", &[Tier::Read]));
    let is_out = |state: &State| matches!(state, State::Out(_));
    let State::Out(error) = second.fleet.state().wait_for(is_out).await.unwrap().clone() else { unreachable!() };
    assert_eq!(error.code, ErrorCode::Conflict);
    assert!(error.message.starts_with("name: web-1 is taken in the fleet by the daemon on "), "{error}");
    assert!(matches!(*first.fleet.state().borrow(), State::Joined));
    // When the first one leaves, the second one takes its place.
    drop(first);
    joined(&second.fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_daemons_that_start_together_with_one_name_exactly_one_joins() {
    let nats = Nats::start("");
    let all: Vec<_> = (0..4).map(|_| member_by(settings(&nats, "web-1", &[Tier::Read]))).collect();
    let mut states: Vec<_> = all.iter().map(|member| member.fleet.state()).collect();
    let is_decided = |states: &mut Vec<watch::Receiver<State>>| {
        let now: Vec<_> = states.iter_mut().map(|state| state.borrow_and_update().clone()).collect();
        let joined = now.iter().filter(|state| matches!(state, State::Joined)).count();
        let out = now.iter().filter(|state| matches!(state, State::Out(_))).count();
        (joined, out) == (1, 3)
    };
    while !is_decided(&mut states) {
        let changes = states.iter_mut().map(|state| Box::pin(state.changed()));
        futures_util::future::select_all(changes).await.0.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_ends_links_on_both_sides_and_is_replaced() {
    let mut nats = Nats::start("");
    let mut host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let mut pipe = amy.fleet.open("web-1", Tier::Read).await.unwrap().pipe;
    let mut served = host.links.recv().await.unwrap().pipe;
    pipe.write_all(b"before").await.unwrap();
    let mut text = [0; 6];
    served.read_exact(&mut text).await.unwrap();
    nats.stop();
    for side in [&mut pipe, &mut served] {
        let error = side.read_u8().await.unwrap_err();
        assert_eq!(error.to_string(), "the connection to NATS was lost");
    }
    let lost = |state: &State| matches!(state, State::Disconnected(_));
    amy.fleet.state().wait_for(lost).await.unwrap();
    assert_eq!(amy.fleet.open("web-1", Tier::Read).await.unwrap_err().code, ErrorCode::TmuxUnavailable);
    nats.restart();
    joined(&amy.fleet).await;
    joined(&host.fleet).await;
    let again = loop {
        // The host's subscriptions may arrive a moment after those of its caller.
        if let Ok(opened) = amy.fleet.open("web-1", Tier::Read).await {
            break opened.pipe;
        }
        tokio::task::yield_now().await;
    };
    let served = host.links.recv().await.unwrap().pipe;
    carry(again, served, 1_000_000).await;
}

/// Opens a link, and again while the members' connections or the routes between servers are being
/// replaced.
async fn open_again(amy: &Member, host: &mut Member) -> (muxtap_fleet::Pipe, muxtap_fleet::Pipe) {
    loop {
        joined(&amy.fleet).await;
        joined(&host.fleet).await;
        if let Ok(opened) = amy.fleet.open("web-1", Tier::Read).await {
            let mut pipe = opened.pipe;
            // A link of an earlier attempt, whose caller has not received the reply, is not counted.
            let mut served = host.links.recv().await.unwrap().pipe;
            let _ = pipe.write_all(b"x").await;
            let is_open = tokio::select! {
                read = served.read_u8() => read.is_ok_and(|byte| byte == b'x'),
                _ = pipe.read_u8() => false,
            };
            if is_open {
                return (pipe, served);
            }
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_carries_on_without_any_one_of_its_servers() {
    let port = || std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let routes = [port(), port(), port()];
    let all = routes.map(|port| format!("\"nats://127.0.0.1:{port}\"")).join(", ");
    let config = |port: u16| format!("cluster {{ name: test, listen: \"127.0.0.1:{port}\", routes: [{all}] }}");
    let mut servers = routes.map(|port| Nats::start(&config(port)));
    let url = servers.each_ref().map(Nats::url).join(",");
    let by_all = |name, offer| Settings { url: url.clone(), ..settings(&servers[0], name, offer) };
    let mut host = member_by(by_all("web-1", &[Tier::Read]));
    let amy = member_by(by_all("amy", &[]));
    let (mut pipe, mut served) = open_again(&amy, &mut host).await;
    for server in &mut servers {
        server.stop();
        // The link is over if a member was connected to that server; then both sides hear of it.
        let _ = pipe.write_all(b"y").await;
        let goes_on = tokio::select! {
            read = served.read_u8() => read.is_ok_and(|byte| byte == b'y'),
            // Nothing is sent there.
            _ = pipe.read_u8() => false,
        };
        if !goes_on {
            (pipe, served) = open_again(&amy, &mut host).await;
        }
        let other = open_again(&amy, &mut host).await;
        carry(other.0, other.1, 1_000_000).await;
        server.restart();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_cannot_be_reached_at_first_is_joined_later() {
    let mut nats = Nats::start("");
    nats.stop();
    let member = member_by(settings(&nats, "web-1", &[]));
    let is_out = |state: &State| matches!(state, State::Out(_));
    member.fleet.state().wait_for(is_out).await.unwrap();
    let error = member.fleet.open("web-2", Tier::Read).await.unwrap_err();
    assert!(error.message.contains(&nats.url()), "{error}");
    nats.restart();
    joined(&member.fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_no_frame_ends_the_link() {
    let nats = Nats::start("");
    let mut host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let raw = async_nats::connect(nats.url()).await.unwrap();
    let mut all = raw.subscribe("muxtap.v1.web-1.read.link.*").await.unwrap();
    raw.flush().await.unwrap();
    let mut pipe = amy.fleet.open("web-1", Tier::Read).await.unwrap().pipe;
    let mut served = host.links.recv().await.unwrap().pipe;
    pipe.write_all(b"x").await.unwrap();
    assert_eq!(served.read_u8().await.unwrap(), b'x');
    let first = futures_util::StreamExt::next(&mut all).await.unwrap();
    // A server repeats the message.
    raw.publish(first.subject, first.payload).await.unwrap();
    assert_eq!(served.read_u8().await.unwrap_err().to_string(), "NATS repeated one of its messages");
    assert_eq!(pipe.read_u8().await.unwrap_err().to_string(), "the other side has cut it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_names_another_members_inbox_opens_nothing() {
    let nats = Nats::start("");
    let mut host = member(&nats, "web-1", &[Tier::Read]).await;
    let raw = async_nats::ConnectOptions::new().custom_inbox_prefix("_INBOX.eve").connect(nats.url()).await.unwrap();
    let ask = |body: &'static str| raw.request("muxtap.v1.web-1.read.open", body.into());
    for (body, why) in [
        (r#"{"protocol":1,"version":"x","inbox":"_INBOX.amy.x"}"#, "inbox: "),
        (r#"{"protocol":1,"version":"x","inbox":"muxtap.v1.web-1.read.open"}"#, "inbox: "),
        (r#"{"protocol":9,"version":"x","inbox":"_INBOX.eve.x"}"#, "protocol 9: "),
        ("nonsense", "invalid request: "),
    ] {
        let answer: serde_json::Value = serde_json::from_slice(&ask(body).await.unwrap().payload).unwrap();
        assert!(answer["error"].as_str().unwrap().starts_with(why), "{answer}");
        assert_eq!(answer["id"], "");
    }
    assert!(host.links.try_recv().is_err());
}

/// NATS does not check that a reply subject is the sender's.
#[tokio::test(flavor = "multi_thread")]
async fn links_that_are_asked_for_in_a_members_name_cut_none_of_its_own() {
    let nats = Nats::start("");
    let mut host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let pipe = amy.fleet.open("web-1", Tier::Read).await.unwrap().pipe;
    let served = host.links.recv().await.unwrap().pipe;
    let eve = async_nats::connect(nats.url()).await.unwrap();
    let mut answers = eve.subscribe("_INBOX.amy.forged").await.unwrap();
    let ask = |body: String| eve.publish_with_reply("muxtap.v1.web-1.read.open", "_INBOX.amy.forged", body.into());
    let body = r#"{"protocol":1,"version":"x","inbox":"_INBOX.amy.forged"}"#;
    // Too long: it gets no reply.
    ask(format!("{body}{}", " ".repeat(4096))).await.unwrap();
    for _ in 0..100 {
        ask(body.into()).await.unwrap();
    }
    for _ in 0..100 {
        let answer = futures_util::StreamExt::next(&mut answers).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
        assert!(!answer["id"].as_str().unwrap().is_empty(), "{answer}");
    }
    carry(pipe, served, 100_000).await;
    assert!(host.links.try_recv().is_err(), "a link that no frame has proved");
    assert!(futures_util::FutureExt::now_or_never(futures_util::StreamExt::next(&mut answers)).is_none());
    // Other links are opened as before.
    let again = amy.fleet.open("web-1", Tier::Read).await.unwrap().pipe;
    carry(again, host.links.recv().await.unwrap().pipe, 100_000).await;
}

/// The servers of a cluster learn of a host's subscriptions one after another.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_seen_before_it_serves_is_asked_again() {
    let nats = Nats::start("");
    let amy = member(&nats, "amy", &[]).await;
    let host = async_nats::ConnectOptions::new().custom_inbox_prefix("_INBOX.web-1").connect(nats.url()).await.unwrap();
    let mut asked = host.subscribe("$SRV.INFO.muxtap.web-1").await.unwrap();
    // NATS has read the subscription when it says that another subject has no responder.
    host.request("_INBOX.web-1.none", "".into()).await.unwrap_err();
    let serving = tokio::spawn(async move {
        let info = serde_json::json!({
            "name": "muxtap", "id": "web-1", "version": "0.1.0",
            "metadata": {"offer": "read", "instance": "1", "since_ms": "1"},
        });
        let question = futures_util::StreamExt::next(&mut asked).await.unwrap();
        let mut opened = host.subscribe("muxtap.v1.web-1.read.open").await.unwrap();
        host.publish(question.reply.unwrap(), info.to_string().into()).await.unwrap();
        let open = futures_util::StreamExt::next(&mut opened).await.unwrap();
        host.publish(open.reply.unwrap(), r#"{"id":"1","version":"0.1.0"}"#.into()).await.unwrap();
        host.flush().await.unwrap();
    });
    let opened = amy.fleet.open("web-1", Tier::Read).await.unwrap();
    assert_eq!((opened.version.as_str(), opened.takes_keys), ("0.1.0", false));
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_leaves_cuts_its_links() {
    let nats = Nats::start("");
    let mut host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let mut pipe = amy.fleet.open("web-1", Tier::Read).await.unwrap().pipe;
    let _served = host.links.recv().await.unwrap().pipe;
    let Member { _end: end, .. } = host;
    drop(end);
    assert_eq!(pipe.read_u8().await.unwrap_err().to_string(), "the other side has cut it");
}

/// Each host sees the inbox for a list's replies.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_host_has_is_not_remembered() {
    let nats = Nats::start("");
    let eve = async_nats::connect(nats.url()).await.unwrap();
    let mut asked = eve.subscribe("$SRV.INFO.muxtap").await.unwrap();
    eve.flush().await.unwrap();
    let forging = tokio::spawn(async move {
        while let Some(question) = futures_util::StreamExt::next(&mut asked).await {
            for name in ["amy", "ghost", "web-1"] {
                let forged = serde_json::json!({
                    "name": "muxtap", "id": name, "version": "forged",
                    "metadata": {"offer": "kill", "instance": "0", "since_ms": "1"},
                });
                eve.publish(question.reply.clone().unwrap(), forged.to_string().into()).await.unwrap();
            }
        }
    });
    let _host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let hosts = amy.fleet.hosts().await.unwrap();
    assert_eq!(hosts.iter().map(|host| (&*host.name, &*host.version)).collect::<Vec<_>>(), [("web-1", "0.1.0")]);
    assert!(amy.fleet.known("ghost").is_none());
    assert_eq!(amy.fleet.known("web-1").unwrap().offer, [Tier::Read]);
    forging.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_opens_many_links_loses_its_oldest() {
    let nats = Nats::start("");
    let mut host = member(&nats, "web-1", &[Tier::Read]).await;
    let amy = member(&nats, "amy", &[]).await;
    let mut pipes = Vec::new();
    let mut served = Vec::new();
    for _ in 0..9 {
        pipes.push(amy.fleet.open("web-1", Tier::Read).await.unwrap().pipe);
        served.push(host.links.recv().await.unwrap().pipe);
    }
    assert!(pipes[0].read_u8().await.is_err());
    pipes[1].write_all(b"x").await.unwrap();
    assert_eq!(served[1].read_u8().await.unwrap(), b'x');
}

/// Writes a member's seed. Returns its path, and a user of the server's configuration.
fn credentials(folder: &std::path::Path, name: &str, permissions: &str) -> (PathBuf, String) {
    let key = nkeys::KeyPair::new_user();
    let path = folder.join(format!("{name}.nk"));
    let existing = muxtap_base::files::Existing::Replace;
    muxtap_base::files::write_secret(&path, &key.seed().unwrap(), existing).unwrap();
    (path, format!("{{ nkey: {}, permissions: {{ {permissions} }} }}", key.public_key()))
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_permits_the_tiers_of_each_member() {
    let folder = tempfile::tempdir().unwrap();
    let may = |name: &str, publish: &str| {
        let subscribe = format!(r#""_INBOX.{name}.>", "$SRV.>", "muxtap.v1.{name}.>""#);
        format!(r#"publish: [ "$SRV.>", "_INBOX.>", {publish} ], subscribe: [ {subscribe} ]"#)
    };
    let (web, web_user) = credentials(folder.path(), "web-1", &may("web-1", ""));
    let (amy, amy_user) = credentials(folder.path(), "amy", &may("amy", r#""muxtap.v1.*.read.>""#));
    let nats = Nats::start(&format!("authorization {{ users: [ {web_user}, {amy_user} ] }}"));
    let by = |name: &str, path: &PathBuf, offer: &[Tier]| Settings {
        credentials: Some(path.clone()),
        ..settings(&nats, name, offer)
    };
    let mut host = member_by(by("web-1", &web, &Tier::ALL));
    let amy_member = member_by(by("amy", &amy, &[]));
    joined(&host.fleet).await;
    joined(&amy_member.fleet).await;
    let opened = amy_member.fleet.open("web-1", Tier::Read).await.unwrap().pipe;
    let served = host.links.recv().await.unwrap();
    assert_eq!(served.member, Arc::from("amy"));
    carry(opened, served.pipe, 100_000).await;
    let refused = amy_member.fleet.open("web-1", Tier::Input).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unauthorized);
    assert!(
        refused.message.starts_with("host web-1: NATS does not permit `input` on it to the member amy"),
        "{refused}"
    );
    // A member that NATS does not know.
    let (eve, _) = credentials(folder.path(), "eve", "");
    let eve = member_by(by("eve", &eve, &[]));
    let is_out = |state: &State| matches!(state, State::Out(_));
    let State::Out(error) = eve.fleet.state().wait_for(is_out).await.unwrap().clone() else { unreachable!() };
    assert_eq!(error.code, ErrorCode::Unauthorized);
}
