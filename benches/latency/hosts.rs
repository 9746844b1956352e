//! Other hosts: the cost of a wait through a host's muxtap, the time of connecting over ssh, and
//! the capability's reads from a container, beside a process for each request.

use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    container::Container,
    http::Http,
    places::{Proxy, Sshd},
    stage::{Daemon, Tmux},
    table::{Goal, figure, part},
    times::Times,
    wait::wait_for_marker,
};

const ROUNDS: usize = 20;
const SAMPLES: usize = 25;
/// The number of attachments of each kind.
const ATTACHMENTS: usize = 10;
/// The bytes of a wait's response, as sent over a link.
const ANSWER: usize = 400;
/// The pause between two of them: as between two waits, processes on the way go to sleep.
const PAUSE: Duration = Duration::from_millis(2);
/// The delay of a byte in each direction when round trips are counted.
const DELAY: Duration = Duration::from_millis(25);

pub fn run() {
    let dir = TempDir::new().expect("a directory");
    waits(dir.path());
    capability();
}

/// Adds a host with this command to a daemon.
fn add_host(http: &mut Http, name: &str, via: &str, peer: bool) {
    http.send("POST", "/v1/hosts", &json!({"via": via, "name": name, "peer": peer}).to_string());
    let added: Value = serde_json::from_slice(&http.receive()).expect("JSON");
    assert_eq!(added["name"], name, "{added}");
}

fn server_on(host: &str, tmux: &Tmux) -> PathBuf {
    format!("{host}/{}", tmux.socket().display()).into()
}

/// Returns a `PATH` with the measured program.
fn path() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_muxtap"));
    format!("{}:{}", program.parent().expect("a directory").display(), std::env::var("PATH").expect("PATH"))
}

fn waits(dir: &Path) {
    part("A wait on another host by its muxtap, beside the same wait there (Unix socket)");
    let (tmux, fifo) = Tmux::playing("marker");
    let (near, far) = (Daemon::new(&[]), Daemon::new(&[]));
    let mut local = far.follow(&tmux, 1);
    let socket = far.socket().display().to_string();
    let sshd = Sshd::start(dir, &[("MUXTAP_SOCKET", &socket), ("PATH", &path())]);
    let mut ways = vec![("a pipe", format!("env MUXTAP_SOCKET={socket} PATH={}", path()), Times::default())];
    ways.extend(sshd.as_ref().map(|sshd| ("ssh", sshd.via("user", None), Times::default())));
    let mut connections = Vec::new();
    for (at, (_, via, _)) in ways.iter().enumerate() {
        let mut http = near.http(&tmux);
        add_host(&mut http, &format!("way{at}"), via, true);
        let mut http = Http::new(&near.socket(), &server_on(&format!("way{at}"), &tmux));
        let panes = http.get("/v1/panes");
        assert_eq!(panes["panes"][0]["host"], format!("way{at}"), "{panes}");
        connections.push(http);
    }
    let mut there = Times::default();
    for round in 0..ROUNDS {
        for sample in 0..SAMPLES {
            there.push(wait_for_marker(&mut local, &fifo, "%0", &format!("l{round}-{sample}")));
        }
        for ((at, (_, _, times)), http) in ways.iter_mut().enumerate().zip(&mut connections) {
            for sample in 0..SAMPLES {
                times.push(wait_for_marker(http, &fifo, "%0", &format!("w{at}-{round}-{sample}")));
            }
        }
    }
    figure(&format!("there p50 ({} samples)", there.len()), there.p50(), "us", Goal::None);
    figure("there p99", there.p99(), "us", Goal::None);
    for (name, _, times) in &ways {
        figure(&format!("by its muxtap, over {name}, p50"), times.p50(), "us", Goal::None);
        figure(&format!("by its muxtap, over {name}, p99"), times.p99(), "us", Goal::None);
        figure(&format!("over {name} / there, p50"), times.p50() / there.p50(), "x", Goal::AtMost(1.5));
    }
    if let Some(sshd) = &sshd {
        let own = one_way(sshd);
        figure("one way of `ssh HOST cat`, half of there and back, p50", own, "us", Goal::None);
        if let Some((_, _, times)) = ways.last() {
            figure("over ssh, less that / there, p50", (times.p50() - own) / there.p50(), "x", Goal::AtMost(1.5));
        }
        attach(sshd, &near, &tmux);
    } else {
        println!("  no sshd is installed: nothing is measured over ssh");
    }
}

/// Returns the time that ssh itself needs for a response of a wait's length: half of a round trip,
/// in microseconds.
fn one_way(sshd: &Sshd) -> f64 {
    let via = sshd.via("user", None);
    let mut words = via.split(' ');
    let mut ssh = Command::new(words.next().expect("ssh"));
    let mut ssh = ssh.args(words).arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ssh runs");
    let (mut to, mut from) = (ssh.stdin.take().expect("a pipe"), ssh.stdout.take().expect("a pipe"));
    let mut times = Times::default();
    let (sent, mut back) = ([b'x'; ANSWER], [0; ANSWER]);
    for _ in 0..ROUNDS * SAMPLES {
        std::thread::sleep(PAUSE);
        let begun = Instant::now();
        to.write_all(&sent).expect("ssh reads");
        from.read_exact(&mut back).expect("ssh answers");
        times.push(begun.elapsed());
    }
    drop(to);
    ssh.wait().expect("ssh ends");
    times.p50() / 2.0
}

/// Measures the first list of panes over a connection with long round trips, beside
/// `ssh HOST true`.
fn attach(sshd: &Sshd, near: &Daemon, tmux: &Tmux) {
    let trip = DELAY * 2;
    part(&format!(
        "The first list of a host over ssh with round trips of {} ms, beside `ssh HOST true`",
        trip.as_millis()
    ));
    let proxy = Proxy::delaying(sshd.port(), DELAY);
    let via = sshd.via_proxy("user", &proxy);
    let (mut alone, mut by_peer, mut by_tmux) = (Times::default(), Times::default(), Times::default());
    for round in 0..ATTACHMENTS {
        let begun = Instant::now();
        let mut words = via.split(' ');
        let mut ssh = Command::new(words.next().expect("ssh"));
        assert!(ssh.args(words).arg("true").stdin(Stdio::null()).status().expect("ssh runs").success());
        alone.push(begun.elapsed());
        for (times, peer) in [(&mut by_peer, true), (&mut by_tmux, false)] {
            let name = format!("a{round}{peer}");
            add_host(&mut near.http(tmux), &name, &via, peer);
            let mut http = Http::new(&near.socket(), &server_on(&name, tmux));
            let begun = Instant::now();
            let panes = http.get("/v1/panes");
            times.push(begun.elapsed());
            assert_eq!(panes["panes"][0]["host"], name, "{panes}");
        }
    }
    let trips = |times: &Times| (times.p50() - alone.p50()) / (trip.as_secs_f64() * 1e6);
    figure("`ssh HOST true`, p50", alone.p50() / 1e3, "ms", Goal::None);
    figure("by its muxtap, p50", by_peer.p50() / 1e3, "ms", Goal::None);
    figure("by its muxtap, round trips more than ssh", trips(&by_peer), "", Goal::AtMost(2.0));
    figure("by its tmux, p50", by_tmux.p50() / 1e3, "ms", Goal::None);
    figure("by its tmux, round trips more than ssh", trips(&by_tmux), "", Goal::None);
}

/// Measures the capability's reads from a pane in a container.
fn capability() {
    part("The capability's `read` of a pane in a container, beside a process in it for each request");
    let dir = TempDir::new().expect("a directory");
    let container = Container::start(dir.path(), Some("tmux"));
    let daemon = Daemon::new(&[]);
    let mut http = Http::new(&daemon.socket(), Path::new(&format!("{}/default", container.name)));
    let ask = |http: &mut Http, action: Value| -> Value {
        http.send("POST", "/v1/capability", &action.to_string());
        serde_json::from_slice(&http.receive()).expect("JSON")
    };
    http.send("POST", "/v1/hosts", &json!({"via": container.via(), "name": container.name}).to_string());
    http.receive();
    let made = ask(&mut http, json!({"action": "init"}));
    assert_eq!(made["success"], true, "{made}");
    ask(&mut http, json!({"action": "send", "command": "seq 200"}));
    let (mut memory, mut process) = (Times::default(), Times::default());
    for _ in 0..ROUNDS {
        for _ in 0..SAMPLES {
            let begun = Instant::now();
            let read = ask(&mut http, json!({"action": "read"}));
            memory.push(begun.elapsed());
            assert_eq!(read["success"], true, "{read}");
        }
        let begun = Instant::now();
        let captured = container.exec(&["tmux", "-u", "capture-pane", "-p", "-S", "-100", "-t", "artie"]);
        process.push(begun.elapsed());
        assert!(!captured.is_empty());
    }
    let in_process = read_in_process(&container);
    let samples = in_process.len();
    figure(
        &format!("capability `read` in the process, p50 ({samples} samples)"),
        in_process.p50(),
        "us",
        Goal::AtMost(1000.0),
    );
    figure("capability `read` in the process, p99", in_process.p99(), "us", Goal::None);
    figure(&format!("the same over HTTP, p50 ({} samples)", memory.len()), memory.p50(), "us", Goal::None);
    figure("the same over HTTP, p99", memory.p99(), "us", Goal::None);
    figure(
        &format!("`docker exec … tmux capture-pane`, p50 ({} samples)", process.len()),
        process.p50(),
        "us",
        Goal::None,
    );
    figure("a process for each request / over HTTP, p50", process.p50() / memory.p50(), "x", Goal::None);
}

/// Reads the same pane by an engine of this process, whose routes are called as functions.
fn read_in_process(container: &Container) -> Times {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let engine = muxtap::Engine::start(muxtap::Options::default()).expect("an engine");
        engine.add_host(&container.name, container.via().split(' ')).expect("a host");
        let router = TowerToHyperService::new(muxtap::http::router(&engine));
        let path = format!("/v1/capability?socket={}%2Fdefault", container.name);
        let mut times = Times::default();
        // The first ones attach and seed.
        for sample in 0..ROUNDS * SAMPLES + 10 {
            let begun = Instant::now();
            let request = axum::http::Request::post(&path).header("content-type", "application/json");
            let request = request.body(axum::body::Body::from(r#"{"action": "read"}"#)).expect("a request");
            let answer = router.call(request).await.expect("an answer").into_body();
            let answer = axum::body::to_bytes(answer, usize::MAX).await.expect("a body");
            if sample >= 10 {
                times.push(begun.elapsed());
            }
            let read: Value = serde_json::from_slice(&answer).expect("JSON");
            assert_eq!(read["success"], true, "{read}");
        }
        engine.stop().await;
        times
    })
}
