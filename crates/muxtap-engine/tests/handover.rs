//! The state and the control clients of an engine, handed over to another one (`docs/upgrade.md`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use muxtap_api::{ErrorCode, GapReason};
use muxtap_engine::{
    Engine, Options, Pane, Since,
    handover::{PausedEngine, Prepared, take_over},
};
use muxtap_tmux::Floods;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

/// Longer than any wait of a test that does not fail.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the tmux under test.
fn tmux_program() -> String {
    std::env::var("MUXTAP_TEST_TMUX").unwrap_or_else(|_| "tmux".into())
}

/// A tmux server on a private socket, which ends with it.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn with_server() -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        world.tmux(&["new-session", "-d", "-x", "80", "-y", "24", "exec cat"]);
        world
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(tmux_program());
        command.env_remove("TMUX").arg("-f/dev/null").arg("-u").arg("-S").arg(self.socket()).args(args);
        command
    }

    /// Calls tmux; it must succeed. Returns stdout without its last newline.
    fn tmux(&self, args: &[&str]) -> String {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
    }

    /// Creates a window that runs this command; returns its pane.
    fn window(&self, command: &str) -> String {
        self.tmux(&["new-window", "-d", "-P", "-F", "#{pane_id}", command])
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).stderr(Stdio::null()).status();
    }
}

/// Polls until a condition holds that no event announces to a test.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn options() -> Options {
    // All output is followed, so a byte that is missing is missing from the handover. How much a flood
    // prints depends on the machine; the last mebibytes of it are retained.
    Options::default().tmux(tmux_program()).floods(Floods::Follow).ring_bytes(8 << 20).budget_bytes(1 << 30)
}

async fn pane(engine: &Engine, world: &World, id: &str) -> Pane {
    engine.server(world.socket()).await.unwrap().pane(id).await.unwrap()
}

/// Creates a window that runs cat, and an engine that follows it.
async fn followed_cat(world: &World) -> (Engine, Pane) {
    let id = world.window("echo ready; exec cat");
    let engine = Engine::start(options()).unwrap();
    let pane = pane(&engine, world, &id).await;
    pane.wait().pattern("ready").unwrap().since(Since::Start).timeout(LIMIT).await.unwrap();
    (engine, pane)
}

/// Continues a paused engine.
async fn taken_over(mut paused: PausedEngine) -> Engine {
    let descriptors = paused.take_descriptors();
    let prepared = Prepared::read(options(), paused.state(), descriptors).unwrap();
    let engine = prepared.start();
    paused.leave().await;
    engine
}

/// Creates a window that prints numbers after Enter, until [`check_flood`]. Returns its pane.
///
/// Some hundred kilobytes a second: tmux keeps what an engine has not read yet without a bound, so one
/// that gets less of a full machine than `seq` would never get a reply behind the flood.
fn flooding_window(world: &World) -> String {
    let stop = world.dir.path().join("stop");
    let print = "seq $i $((i+999)); i=$((i+1000)); sleep 0.02";
    world.window(&format!("read go; i=0; until [ -e {} ]; do {print}; done; echo the end; exec cat", stop.display()))
}

/// Returns all output of a pane, and the gaps in it.
async fn all(pane: &Pane) -> (String, Vec<GapReason>) {
    let (mut text, mut gaps) = (Vec::new(), Vec::new());
    let mut since = Since::Start;
    loop {
        let output = pane.read().since(since).at_most(8 << 20).await.unwrap();
        gaps.extend(output.gap.map(|gap| gap.reason));
        text.extend_from_slice(output.bytes());
        if !output.more() {
            return (String::from_utf8(text).unwrap().replace("\r\n", "\n"), gaps);
        }
        since = output.cursor.into();
    }
}

/// Begins a flood, and waits until it prints.
async fn begin_flood(pane: &Pane, world: &World) {
    world.tmux(&["send-keys", "-t", &pane.id().to_string(), "Enter"]);
    pane.wait().pattern("^2000$").unwrap().since(Since::Start).timeout(LIMIT).await.unwrap();
}

/// Ends a flood. Checks that the pane's output is what was printed, and its screen what tmux shows.
async fn check_flood(pane: &Pane, world: &World) {
    std::fs::write(world.dir.path().join("stop"), "").unwrap();
    pane.wait().pattern("the end").unwrap().since(Since::Start).timeout(LIMIT).await.unwrap();
    let (text, gaps) = all(pane).await;
    assert_eq!(gaps, []);
    // The first line that is retained may be cut.
    let mut printed = text.lines().skip_while(|line| line.parse::<u64>().is_err()).skip(1).peekable();
    let first: u64 = printed.peek().and_then(|line| line.parse().ok()).unwrap();
    let mut count = 0;
    let after = printed.find(|line| {
        count += 1;
        *line != (first + count - 1).to_string()
    });
    assert_eq!((after, printed.next()), (Some("the end"), None), "after {count} lines");
    assert!(count > 1000);
    let shown = world.tmux(&["capture-pane", "-p", "-t", &pane.id().to_string()]);
    assert_eq!(pane.capture().await.unwrap().text.trim_end(), shown.trim_end());
}

/// Returns the processes of the attached clients.
fn clients(world: &World) -> String {
    world.tmux(&["list-clients", "-F", "#{client_pid}"])
}

// The engine runs while the test waits for tmux.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn output_across_handovers_equals_what_was_printed() {
    let world = World::with_server();
    let id = flooding_window(&world);
    let mut engine = Engine::start(options()).unwrap();
    let first = pane(&engine, &world, &id).await;
    let attached = clients(&world);
    assert_eq!(attached.lines().count(), 1);
    begin_flood(&first, &world).await;
    let mut ends = vec![first.place(&Since::Now).unwrap().0];
    drop(first);
    let mut while_it_flooded = 0;
    while while_it_flooded < 20 {
        engine = taken_over(engine.pause(LIMIT).await.unwrap()).await;
        let pane = pane(&engine, &world, &id).await;
        let (end, gap) = pane.place(&Since::Now).unwrap();
        assert_eq!(gap, None);
        // A cursor of an earlier engine is one of this engine. A flood may have passed it meanwhile.
        let last = *ends.last().unwrap();
        match pane.place(&last.into()).unwrap() {
            (at, None) => assert_eq!(at, last),
            (at, Some(gap)) => assert!(gap.reason == GapReason::Trimmed && at.offset > last.offset, "{gap:?}"),
        }
        while_it_flooded += u32::from(end.offset > last.offset);
        ends.push(end);
    }
    let last = pane(&engine, &world, &id).await;
    check_flood(&last, &world).await;
    assert_eq!(clients(&world), attached, "the client has stayed");
    // The client does what it did before.
    last.type_text("a line\n").await.unwrap();
    last.wait().pattern("a line").unwrap().since(ends[0]).timeout(LIMIT).await.unwrap();
    engine.stop().await;
    assert_eq!(clients(&world), "");
    let client = Path::new("/proc").join(attached);
    // This process is still the parent that has started it.
    eventually("the client has ended", || {
        std::fs::read_to_string(client.join("stat")).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_engine_goes_on_if_nothing_takes_over() {
    let world = World::with_server();
    let id = flooding_window(&world);
    let engine = Engine::start(options()).unwrap();
    let pane = pane(&engine, &world, &id).await;
    let attached = clients(&world);
    begin_flood(&pane, &world).await;
    for attempt in 0..20 {
        let mut paused = engine.pause(LIMIT).await.unwrap();
        let end = pane.place(&Since::Now).unwrap();
        let mut descriptors = paused.take_descriptors();
        match attempt % 4 {
            // Nothing starts.
            0 => drop(descriptors),
            // The next one cannot read the state.
            1 => assert!(Prepared::read(options(), &paused.state()[..100], descriptors).is_err()),
            // It lacks a descriptor.
            2 => {
                descriptors.pop();
                assert!(Prepared::read(options(), paused.state(), descriptors).is_err());
            }
            // It ends before it begins.
            _ => drop(Prepared::read(options(), paused.state(), descriptors).unwrap()),
        }
        assert_eq!(pane.place(&Since::Now).unwrap(), end, "nothing is read meanwhile");
        drop(paused);
    }
    check_flood(&pane, &world).await;
    assert_eq!(clients(&world), attached);
    pane.type_text("a line\n").await.unwrap();
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_does_not_reply_is_named_and_goes_on() {
    let world = World::with_server();
    let (engine, pane) = followed_cat(&world).await;
    let server = world.tmux(&["display-message", "-p", "#{pid}"]).parse().unwrap();
    let signal = |signal| {
        rustix::process::kill_process(rustix::process::Pid::from_raw(server).unwrap(), signal).unwrap();
    };
    signal(rustix::process::Signal::STOP);
    let typing = pane.clone();
    let typed = tokio::spawn(async move { typing.type_text("typed\n").await });
    // Sent before the pause: the pause waits for its reply.
    eventually("the input is marked", || pane.place(&Since::Input).unwrap().0.offset > 0);
    let error = engine.pause(Duration::from_millis(500)).await.err().unwrap();
    signal(rustix::process::Signal::CONT);
    assert!(error.message.contains(&world.socket().display().to_string()), "{error}");
    typed.await.unwrap().unwrap();
    pane.wait().pattern("typed").unwrap().since(Since::Start).timeout(LIMIT).await.unwrap();
    // The next attempt succeeds.
    let engine = taken_over(engine.pause(LIMIT).await.unwrap()).await;
    let pane = self::pane(&engine, &world, &pane.id().to_string()).await;
    assert_eq!(all(&pane).await.1, []);
    engine.stop().await;
    eventually("the client has gone", || clients(&world).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_engine_takes_over_by_a_socket() {
    let world = World::with_server();
    let id = flooding_window(&world);
    let mut engine = Engine::start(options()).unwrap();
    let first = pane(&engine, &world, &id).await;
    let attached = clients(&world);
    begin_flood(&first, &world).await;
    drop(first);
    for _ in 0..20 {
        let (old, new) = UnixStream::pair().unwrap();
        let (handed_over, taken_over) = tokio::join!(engine.hand_over(old), take_over(options(), new));
        // One end's error is often that the other one left.
        assert!(handed_over.is_ok(), "{handed_over:?}, {:?}", taken_over.err());
        engine = taken_over.unwrap();
    }
    check_flood(&pane(&engine, &world, &id).await, &world).await;
    assert_eq!(clients(&world), attached);
    engine.stop().await;
}

/// Plays the process that should take over: sends these messages, each after it has received
/// something, and ends.
async fn play(mut socket: UnixStream, messages: &[&[u8]]) {
    say(&mut socket, messages).await;
    let _ = socket.read(&mut [0; 4096]).await;
}

async fn say(socket: &mut UnixStream, messages: &[&[u8]]) {
    let mut received = [0; 4096];
    for message in messages {
        assert!(socket.read(&mut received).await.unwrap() > 0);
        let length = u32::try_from(message.len()).unwrap().to_le_bytes();
        socket.write_all(&[&length, *message].concat()).await.unwrap();
    }
}

const ACCEPTED: &[u8] = &[2];
const COPIED: &[u8] = &[10];
const READY: &[u8] = &[4];
const GO: &[u8] = &[5];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_failure_of_the_new_process_leaves_the_old_one_running() {
    let world = World::with_server();
    let id = flooding_window(&world);
    let engine = Engine::start(options()).unwrap();
    let pane = pane(&engine, &world, &id).await;
    let attached = clients(&world);
    begin_flood(&pane, &world).await;
    let cases: [(&[&[u8]], &str); 5] = [
        (&[], "ended"),
        (&[b"\x01\x07no room"], "no room"),
        (&[b"nonsense"], "the other daemon"),
        (&[READY], "unexpected"),
        (&[ACCEPTED], "ended"),
    ];
    for (messages, expected) in cases {
        let (old, new) = UnixStream::pair().unwrap();
        let (handed_over, ()) = tokio::join!(engine.hand_over(old), play(new, messages));
        let error = handed_over.unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict);
        // A process that has ended may be noticed in writing.
        let is_named = error.message.contains(expected) || expected == "ended" && error.message.contains("Broken pipe");
        assert!(is_named, "{messages:?}: {error}");
    }
    check_flood(&pane, &world).await;
    assert_eq!(clients(&world), attached);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process_that_may_have_read_and_ended_leaves_a_gap() {
    let world = World::with_server();
    let (engine, pane) = followed_cat(&world).await;
    let attached = clients(&world);
    let (old, mut new) = UnixStream::pair().unwrap();
    let played = async {
        // The panes are copied twice at least.
        say(&mut new, &[ACCEPTED, COPIED, COPIED, READY]).await;
        let mut received = Vec::new();
        while !received.ends_with(GO) {
            received.push(new.read_u8().await.unwrap());
        }
        drop(new);
    };
    let (handed_over, ()) = tokio::join!(engine.hand_over(old), played);
    assert!(handed_over.unwrap_err().message.contains("ended"));
    eventually("another client is attached", || !clients(&world).is_empty() && clients(&world) != attached);
    pane.type_text("typed\n").await.unwrap();
    pane.wait().pattern("typed").unwrap().since(Since::Start).timeout(LIMIT).await.unwrap();
    let (text, gaps) = all(&pane).await;
    assert_eq!(gaps, [GapReason::Reconnected], "{text}");
    engine.stop().await;
}

#[tokio::test]
async fn a_state_of_another_version_is_refused_before_anything_is_let_go() {
    let (mut old, new) = UnixStream::pair().unwrap();
    let offer = async {
        let offer = b"\0\x63\x059.8.7";
        old.write_all(&[&u32::try_from(offer.len()).unwrap().to_le_bytes()[..], offer].concat()).await.unwrap();
        let mut refused = Vec::new();
        old.read_to_end(&mut refused).await.unwrap();
        String::from_utf8_lossy(&refused).into_owned()
    };
    let (taken_over, refused) = tokio::join!(take_over(options(), new), offer);
    let error = taken_over.err().unwrap();
    for part in ["9.8.7", env!("CARGO_PKG_VERSION"), "version 99", "muxtap stop"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert!(refused.contains(&error.message), "the other side gets the same reason");
}
