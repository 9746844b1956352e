//! A running daemon is replaced by another one, which takes over what it has (`docs/upgrade.md`).
#![cfg(target_os = "linux")]

use std::{
    fs,
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    sync::mpsc,
    time::Instant,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Http, ProcessEnd, World, eventually, signal, type_line},
    http_port,
    subscribers::{Numbered, Sse},
};

/// Prints `line 1`, `line 2` and so on.
const COUNTS: &str = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.002; done";

/// Upgrades, and returns the process that has taken over.
fn upgrade(world: &World) -> u64 {
    let pid = world.json(&["upgrade"])["pid"].as_u64().unwrap();
    assert_eq!(world.json(&["status"])["pid"].as_u64(), Some(pid));
    pid
}

/// Reads numbered lines until the test asks it to end, and returns the gaps and the last line.
fn read_in_background(world: &World, pane: &str) -> (mpsc::Sender<()>, std::thread::JoinHandle<(usize, u64)>) {
    let mut events = Sse::open(world, &format!("panes={}&types=output&since=start", pane.replace('%', "%25")));
    let (end, ended) = mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let mut lines = Numbered::default();
        while let Some(event) = events.next() {
            if event.kind == "output" {
                lines.event(&event.data);
            }
            if ended.try_recv().is_ok() {
                return (lines.gaps, lines.last().unwrap());
            }
        }
        panic!("the stream ended after line {:?}", lines.last());
    });
    (end, reader)
}

#[test]
fn ten_upgrades_end_no_wait_and_leave_no_gap() {
    let world = World::with_server();
    let counting = world.window(COUNTS);
    let quiet = world.window("cat");
    world.await_output(&counting, "line 100\\b");
    let first = u64::from(world.daemon_pid().unwrap());
    let clients = world.tmux(&["list-clients", "-F", "#{client_pid}"]);
    let cursor = world.ok(&["cursor", "-t", &counting]).trim().to_owned();
    let (end, reader) = read_in_background(&world, &counting);
    let mut tail = world.spawn(&["tail", "-f", "-t", &counting]);
    let wait = world.spawn(&["--json", "wait-for", "-t", &quiet, "-p", "DONE (\\d+)", "-T", "300"]);
    let body = json!({ "panes": [quiet], "patterns": ["DONE"], "timeout_ms": 300_000 });
    let by_http = world.http_send("POST", &format!("/v1/waits{}", world.query()), Some(&body));
    eventually("both waits are open", || world.json(&["status"])["waits"] == 2);
    let mut last = first;
    for round in 0..10 {
        let pid = upgrade(&world);
        assert_ne!(pid, last, "{round}");
        last = pid;
        eventually("both waits continue", || world.json(&["status"])["waits"] == 2);
    }
    assert_eq!(world.tmux(&["list-clients", "-F", "#{client_pid}"]), clients, "the clients stay attached");
    let since = world.json(&["read", "-t", &counting, "--since", &cursor]);
    assert_eq!(since["gap"], Value::Null, "{since}");
    type_line(&world, &quiet, "DONE 10");
    let ended = wait.finish();
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(ended.json()["outcome"], "matched", "{ended:?}");
    assert_eq!(Http::read(by_http).json()["outcome"], "matched");
    let number = |line: &str| line.trim().strip_prefix("line ").and_then(|number| number.parse::<u64>().ok());
    let before = number(&tail.line_where("a line", |line| number(line).is_some())).unwrap();
    let mut expected = before;
    let target = before + 500;
    while expected < target {
        expected += 1;
        let Some(line) = tail.line() else { panic!("tail ended before line {expected}: {:?}", tail.finish()) };
        assert_eq!(number(&line), Some(expected));
    }
    tail.kill();
    end.send(()).unwrap();
    let (gaps, line) = reader.join().unwrap();
    assert!(gaps == 0 && line > 100, "{gaps} gaps until line {line}");
    // It is the one daemon.
    let second = world.muxtap(&["serve"]);
    assert!(second.status != 0 && second.stderr.contains(&format!("process {last}")), "{second:?}");
    eventually("those that were replaced have left", || {
        world.processes().iter().filter(|(_, command)| command.contains("serve")).count() == 1
    });
    world.ok(&["stop"]);
    assert!(!world.daemon_socket().exists());
    assert_eq!(world.muxtap(&["status"]).status, 1);
    assert!(world.muxtap(&["upgrade"]).status == 1, "there is nothing to upgrade");
}

#[test]
fn a_program_that_does_not_take_over_leaves_everything() {
    let world = World::with_server();
    let counting = world.window(COUNTS);
    let quiet = world.window("cat");
    world.await_output(&counting, "line 10\\b");
    let pid = world.daemon_pid();
    let (end, reader) = read_in_background(&world, &counting);
    let wait = world.spawn(&["wait-for", "-t", &quiet, "-p", "DONE", "-T", "300"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    let program = |name: &str, script: &str| {
        let path = world.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let fails = |args: &[&str], expected: &str| {
        let answer = world.muxtap(&[&["upgrade"], args].concat());
        assert!(answer.status == 1 && answer.stderr.contains(expected), "{args:?}: {answer:?}");
        assert_eq!(world.daemon_pid(), pid);
    };
    fails(&["--program", &program("fails", "exit 7")], "exit status: 7");
    fails(&["--program", &program("hangs", "exec sleep 1000")], "sent nothing for 30 s");
    // It refuses before and after it has accepted.
    let refuses = "printf '\\012\\000\\000\\000\\001\\010too old!' >&0; exec cat >/dev/null";
    fails(&["--program", &program("refuses", refuses)], "too old!");
    let leaves = "printf '\\001\\000\\000\\000\\002' >&0";
    fails(&["--program", &program("leaves", leaves)], "exit status: 0");
    let dir = world.dir().display().to_string();
    fails(&["--program", &dir], "cannot start");
    // Settings that the new program refuses.
    let config = world.path("config.toml");
    fs::write(&config, "ring_bytes = \"much\"\n").unwrap();
    let mut broken = world.muxtap_command(&["serve", "--replace", "--config"]);
    let broken = crate::common::run(broken.arg(&config));
    assert!(broken.status != 0 && broken.stderr.contains("ring_bytes"), "{broken:?}");
    assert_eq!(world.daemon_pid(), pid);
    // A port that is taken is refused when the daemon has accepted, before anything stops.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|at| (taken, at.to_string())).unwrap();
    let refused = world.muxtap(&["serve", "--replace", "--http", &taken.1]);
    assert!(refused.status != 0 && refused.stderr.contains("cannot listen"), "{refused:?}");
    assert_eq!(world.daemon_pid(), pid);
    type_line(&world, &quiet, "DONE");
    assert_eq!(wait.finish().status, 0);
    end.send(()).unwrap();
    assert_eq!(reader.join().unwrap().0, 0, "gaps");
}

#[test]
fn a_started_daemon_replaces_the_running_one() {
    let world = World::with_server();
    let counting = world.window(COUNTS);
    world.await_output(&counting, "line 10\\b");
    let (end, reader) = read_in_background(&world, &counting);
    let service = world.spawn(&["serve", "--replace", "--read-only"]);
    eventually("it has taken over", || world.daemon_pid() == Some(service.pid()));
    world.error("READ_ONLY", &["send-keys", "-t", &counting, "x"]);
    end.send(()).unwrap();
    assert_eq!(reader.join().unwrap().0, 0, "gaps");
    world.ok(&["stop"]);
    assert_eq!(service.finish().status, 0);
    // Without a daemon it is the first one.
    let service = world.spawn(&["serve", "--replace"]);
    eventually("it runs", || world.daemon_pid() == Some(service.pid()));
    world.ok(&["stop"]);
    assert_eq!(service.finish().status, 0);
}

#[test]
fn what_cannot_be_handed_over_is_named() {
    let world = World::with_server();
    let pane = world.window("exec sh");
    let run = world.spawn(&["run", "-t", &pane, "echo begun; sleep 1000"]);
    world.await_output(&pane, "^begun");
    let pid = world.daemon_pid();
    let refused = world.error("CONFLICT", &["upgrade"]);
    assert!(refused.contains("/run") && refused.contains("--force"), "{refused}");
    assert_eq!(world.daemon_pid(), pid);
    world.ok(&["upgrade", "--force"]);
    assert_ne!(world.daemon_pid(), pid);
    assert_ne!(run.finish().status, 0);
}

#[test]
fn ports_are_handed_over_and_only_the_user_replaces_the_daemon() {
    let world = World::new();
    let (service, addr) = http_port::serving(&world, &[]);
    let token = http_port::token(&world);
    let body = json!({ "program": "/bin/false" });
    eventually("it runs", || world.daemon_pid() == Some(service.pid()));
    for (path, method) in [("/v1/upgrade", "POST"), ("/v1/replace", "GET")] {
        let refused = http_port::asked(&addr, &token, method, path, (method == "POST").then_some(&body));
        assert_eq!((refused.status, refused.json()["code"].as_str()), (401, Some("UNAUTHORIZED")), "{refused:?}");
    }
    assert_eq!(world.daemon_pid(), Some(service.pid()));
    let end = ProcessEnd::of(service.pid());
    let pid = upgrade(&world);
    // Nothing is left to relay.
    end.wait();
    assert_eq!(world.json(&["status"])["http"], json!([format!("http://{addr}")]));
    let status = http_port::asked(&addr, &token, "GET", "/v1/status", None).json();
    assert_eq!(status["pid"].as_u64(), Some(pid), "{status}");
    world.ok(&["stop"]);
    assert_eq!(service.finish().status, 0);
    assert!(TcpStream::connect(&addr).is_err());
}

/// A program that becomes the next daemon once [`Late::begin`] is called.
struct Late {
    program: String,
    fifo: std::path::PathBuf,
    /// The program has started while this is open.
    held: Option<fs::File>,
}

impl Late {
    fn new(world: &World) -> Self {
        let (program, fifo) = (world.path("late"), world.path("late.fifo"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        let muxtapd = world.muxtapd();
        let script = format!("#!/bin/sh\ncat {} >/dev/null\nexec {} \"$@\"\n", fifo.display(), muxtapd.display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { program: program.display().to_string(), fifo, held: None }
    }

    /// Waits until the program has started.
    fn await_start(&mut self) {
        self.held = Some(fs::File::options().write(true).open(&self.fifo).unwrap());
    }

    fn begin(&mut self) {
        self.held = None;
    }
}

#[test]
fn of_two_upgrades_at_once_one_succeeds_and_the_old_daemon_leaves() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let end = ProcessEnd::of(world.daemon_pid().unwrap());
    let mut late = Late::new(&world);
    let first = world.http_send("POST", "/v1/upgrade", Some(&json!({ "program": late.program })));
    late.await_start();
    let second = world.http_send("POST", "/v1/upgrade", Some(&json!({})));
    // The daemon takes requests in their order.
    assert_eq!(world.http("GET", "/v1/status", None).status, 200);
    late.begin();
    let (first, second) = (Http::read(first), Http::read(second));
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!((second.status, second.json()["code"].as_str()), (409, Some("CONFLICT")), "{second:?}");
    end.wait();
    assert_eq!(world.json(&["status"])["pid"], first.json()["pid"]);
    // It is recorded before the old daemon leaves its log, which closes then.
    let log = fs::read_to_string(format!("{}.audit.jsonl", world.daemon_socket().display())).unwrap();
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let upgrades: Vec<_> = entries.filter(|entry| entry["action"] == "upgrade").collect();
    let done: Vec<_> = upgrades.iter().filter(|entry| entry["result"] == "ok").collect();
    assert!(done.len() == 1 && done[0]["target"] == late.program.as_str(), "{upgrades:?}");
}

#[test]
fn a_daemon_that_is_stopped_while_it_hands_over_stops() {
    for by_signal in [true, false] {
        let world = World::with_server();
        world.ok(&["list-panes"]);
        let pid = world.daemon_pid().unwrap();
        let end = ProcessEnd::of(pid);
        let mut late = Late::new(&world);
        let upgrade = world.http_send("POST", "/v1/upgrade", Some(&json!({ "program": late.program })));
        late.await_start();
        if by_signal {
            signal(pid, Signal::TERM);
        } else {
            assert_eq!(world.http("POST", "/v1/stop", None).status, 200);
        }
        let refused = Http::read(upgrade);
        assert!(refused.status == 409 && String::from_utf8_lossy(&refused.body).contains("stops"), "{refused:?}");
        end.wait();
        late.begin();
        assert_eq!(world.daemon_pid(), None);
        eventually("the program has ended", || !world.processes().iter().any(|(_, line)| line.contains("take-over")));
    }
}

#[test]
fn a_process_that_stalls_before_it_takes_over_is_killed() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let pid = world.daemon_pid();
    let certificate = world.path("certificate.fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &certificate, rustix::fs::Mode::RWXU).unwrap();
    let certificate = certificate.display().to_string();
    let files = ["--tls", "--tls-cert", &certificate, "--tls-key", &certificate];
    // It has the lock file when it reads the certificate.
    let stalled = world.spawn(&[&["serve", "--replace", "--http", "127.0.0.1:0"], &files[..]].concat());
    assert_ne!(stalled.finish().status, 0);
    assert_eq!(world.daemon_pid(), pid);
    world.ok(&["stop"]);
    world.ok(&["list-panes"]);
}

#[test]
fn the_first_process_of_a_container_is_not_replaced() {
    let world = World::new();
    let mut probe = world.command("unshare");
    if crate::common::run(probe.args(["--pid", "--fork", "true"])).status != 0 {
        eprintln!("skipped: no PID namespaces");
        return;
    }
    let mut command = world.command("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(world.muxtapd()).arg("serve");
    let service = crate::common::Background::start(&mut command);
    eventually("it serves", || UnixStream::connect(world.daemon_socket()).is_ok());
    let refused = world.http("POST", "/v1/upgrade", Some(&json!({ "force": true })));
    assert!(refused.status == 409 && refused.json()["message"].as_str().unwrap().contains("container"), "{refused:?}");
    assert_eq!(world.http("POST", "/v1/stop", None).status, 200);
    assert_eq!(service.finish().status, 0);
}

#[test]
fn a_detached_wait_and_two_requests_for_one_wait_go_on() {
    let world = World::with_server();
    let pane = world.window("cat");
    world.ok(&["list-panes"]);
    let path = format!("/v1/waits{}", world.query());
    let detached = json!({ "panes": [pane], "patterns": ["DONE"], "timeout_ms": 300_000, "detach": true });
    let detached = world.http("POST", &path, Some(&detached)).json();
    let body = json!({ "panes": [pane], "patterns": ["DONE"], "timeout_ms": 300_000 });
    let send = || world.http_send_with("idempotency-key: 0123456789abcdef\r\n", "POST", &path, Some(&body));
    let both = [send(), send()];
    eventually("the waits are open", || world.json(&["status"])["waits"] == 2);
    upgrade(&world);
    let third = send();
    upgrade(&world);
    assert_eq!(world.json(&["status"])["waits"], 2);
    type_line(&world, &pane, "DONE");
    for one in both.into_iter().chain([third]) {
        let ended = Http::read(one).json();
        assert_eq!((&ended["id"], &ended["outcome"]), (&json!("w-0123456789abcdef"), &json!("matched")));
    }
    let path = format!("/v1/waits/{}{}&timeout_ms=60000", detached["id"].as_str().unwrap(), world.query());
    let ended = world.http("GET", &path, None).json();
    assert_eq!((&ended["id"], &ended["outcome"]), (&detached["id"], &json!("matched")));
}

/// T19, in whole processes.
#[test]
fn waits_of_every_kind_go_on() {
    let world = World::with_server();
    let marked = r"read go; printf '\033]133;C\007runs'; cat; printf '\033]133;D;4\007'; exec cat";
    let (first, second) = (world.window("cat"), world.window("cat"));
    let command = world.window(marked);
    let dies = world.window("read line; exit 7");
    world.ok(&["list-panes"]);
    let path = format!("/v1/waits{}", world.query());
    let begin = |mut body: Value| {
        body["timeout_ms"] = json!(300_000);
        world.http_send("POST", &path, Some(&body))
    };
    let both = json!([first, second]);
    let mut waits = vec![
        ("two patterns", begin(json!({ "panes": [first], "patterns": ["one (\\d)", "two"] }))),
        ("all panes", begin(json!({ "panes": both, "mode": "all", "patterns": ["one (\\d)"] }))),
        ("any pane, and quiet", begin(json!({ "panes": both, "patterns": ["two"], "settle_ms": 50 }))),
        ("quiet", begin(json!({ "panes": [second], "patterns": ["one"], "stable_ms": 50 }))),
        ("the screen", begin(json!({ "panes": [second], "screen": ["one \\d"], "gone": ["nothing"] }))),
        ("a bell and a title", begin(json!({ "panes": [second], "bell": true, "title": "new" }))),
        ("a command", begin(json!({ "panes": [command], "status": "4" }))),
        ("an exit", begin(json!({ "panes": [dies], "exit": true }))),
    ];
    let fails = begin(json!({ "panes": [second], "patterns": ["never"], "fail": ["one"] }));
    eventually("the waits are open", || world.json(&["status"])["waits"] == 9);
    // It latches the first pattern, and on the first pane of both.
    type_line(&world, &first, "one 1");
    world.await_output(&first, "one 1");
    type_line(&world, &command, "go");
    world.await_output(&command, "runs");
    upgrade(&world);
    upgrade(&world);
    assert_eq!(world.json(&["status"])["waits"], 9);
    type_line(&world, &first, "two");
    type_line(&world, &second, "\u{7}\u{1b}]2;new\u{7}one 2");
    world.ok(&["send-keys", "-t", &command, "C-d"]);
    type_line(&world, &dies, "end");
    let (_, two) = waits.remove(0);
    let two = Http::read(two).json();
    assert_eq!((two["outcome"].as_str(), &two["predicates"][0]["captures"]), (Some("matched"), &json!(["one 1", "1"])));
    let (_, all) = waits.remove(0);
    let all = Http::read(all).json();
    let captured: Vec<_> = (0..2).map(|at| all["predicates"][at]["captures"][1].as_str().unwrap().to_owned()).collect();
    assert_eq!((all["outcome"].as_str(), captured), (Some("matched"), vec!["1".to_owned(), "2".to_owned()]));
    for (what, wait) in waits {
        let ended = Http::read(wait).json();
        assert_eq!(ended["outcome"], "matched", "{what}: {ended}");
    }
    assert_eq!(Http::read(fails).json()["outcome"], "failed");
}

#[test]
fn waits_and_streams_by_a_name_keep_their_pane() {
    let world = World::with_server();
    let pane = world.window("cat");
    world.tmux(&["rename-window", "-t", &pane, "build"]);
    let session = world.tmux(&["display-message", "-p", "-t", &pane, "#{session_name}"]);
    world.ok(&["list-panes"]);
    let target = format!("{session}:build");
    let wait = world.spawn(&["--json", "wait-for", "-t", &target, "-p", "DONE", "-T", "300"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    let mut stream = Sse::open(&world, &format!("panes={}&types=output", target.replace(':', "%3A")));
    type_line(&world, &pane, "before");
    stream.find("the stream has begun", |event| event.data["text"].to_string().contains("before"));
    // Another pane has the name now.
    world.tmux(&["rename-window", "-t", &pane, "other"]);
    let second = world.window("cat");
    world.tmux(&["rename-window", "-t", &second, "build"]);
    upgrade(&world);
    eventually("the wait continues", || world.json(&["status"])["waits"] == 1);
    type_line(&world, &pane, "DONE");
    let ended = wait.finish().json();
    assert_eq!((ended["outcome"].as_str(), ended["pane"].as_str()), (Some("matched"), Some(&*pane)), "{ended}");
    stream.find("the stream continues", |event| event.data["text"].to_string().contains("DONE"));
}

#[test]
fn the_duration_of_a_wait_counts_from_before_the_upgrade() {
    let world = World::with_server();
    let pane = world.window("cat");
    world.ok(&["list-panes"]);
    let before = Instant::now();
    let wait = world.spawn(&["wait-for", "-t", &pane, "-p", "never", "-T", "3"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    upgrade(&world);
    let ended = wait.finish();
    assert_eq!(ended.status, 124, "{ended:?}");
    let after = ended.stderr.split_once("timeout after ").and_then(|(_, rest)| rest.split_once(" s"));
    let after: f64 = after.unwrap().0.parse().unwrap();
    assert!(after > 2.5 && after <= before.elapsed().as_secs_f64() + 0.1, "{ended:?}");
}

#[test]
fn a_program_behind_a_link_is_started_by_the_link() {
    let world = World::with_server();
    let link = world.path("muxtap");
    let program = world.plain_muxtap_command().get_program().to_owned();
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let call = |args: &[&str]| {
        let answer = crate::common::run(world.command(&link).arg("-S").arg(world.socket()).args(args));
        assert_eq!(answer.status, 0, "{args:?}: {answer:?}");
    };
    // It starts the daemon.
    call(&["list-panes"]);
    let started = world.path("started");
    let next = world.path("next");
    let script = format!("#!/bin/sh\n: >{}\nexec {} \"$@\"\n", started.display(), world.muxtapd().display());
    fs::write(&next, script).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&next, &link).unwrap();
    upgrade(&world);
    assert!(started.exists(), "the program to which the link leads now");
}
