//! Failures in the middle of hybrid commands, with real owners, relays and engines: everything left
//! is named.

use std::{fs, os::unix::net::UnixStream};

use serde_json::{Value, json};

use super::{Page, failed, own_id, page, pane_of, refused, workspace};
use crate::common::{Answer, Background, Stopped, World, eventually, signal};

/// Returns the terminals of this device's session, as `list-terminals` prints them.
fn made(world: &World) -> Vec<String> {
    let session = format!("device-{}", own_id(world));
    let listed = workspace(world, &["list-terminals"]);
    let own = listed["terminals"].as_array().unwrap().iter().filter(|one| one["session"] == session.as_str());
    own.map(|one| one["terminalId"].as_str().unwrap().to_owned()).collect()
}

/// Returns a command that splits the pane of a new tab, and that tab's terminal.
fn split(world: &World) -> (Vec<String>, String) {
    let first = workspace(world, &["new-tab", "--shell", "exec cat"]);
    let pane = format!("pane:{}", first["pane"]["id"].as_str().unwrap());
    let words = ["--json", "workspace", "split-pane", "-t", &pane, "--direction", "vertical", "--shell", "exec cat"];
    (words.map(str::to_owned).into(), first["terminalId"].as_str().unwrap().to_owned())
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Checks a response for which it is unknown whether a terminal was created, and that the reserved
/// pane is gone.
fn names_the_session(world: &World, error: &Value) {
    let session = format!("device-{}", own_id(world));
    let details = &error["details"];
    assert_eq!(details["session"], session.as_str(), "{error}");
    assert!(error["message"].as_str().unwrap().contains(&session), "{error}");
    assert_eq!(details["look"], "list-terminals", "{error}");
    for name in ["attach", "kill"] {
        assert!(details[name].as_str().unwrap().contains("terminal:"), "{error}");
    }
    assert_eq!(workspace(world, &["list-panes"])["panes"].as_array().unwrap().len(), 1, "{error}");
}

/// Step 2, with a tmux that creates the window and then stops responding.
#[test]
fn if_tmux_hangs_no_second_terminal_is_created_and_the_first_is_reported() {
    let world = World::with_server();
    let (split, first) = split(&world);
    assert_eq!(made(&world), [first.as_str()]);
    let pid = world.server_pid();
    world.tmux(&["set-hook", "-g", "after-new-window", &format!("run-shell 'kill -STOP {pid}'")]);
    let answer = world.spawn(&words(&split)).finish();
    signal(pid, rustix::process::Signal::CONT);
    world.tmux(&["set-hook", "-gu", "after-new-window"]);
    let error = failed(&answer, "INCONSISTENT_STATE");
    assert_eq!(error["details"]["cause"]["code"], "TMUX_UNAVAILABLE", "{error}");
    names_the_session(&world, &error);
    eventually("it goes on", || world.muxtap(&["list-panes"]).status == 0);
    // The terminal left is the one that the response means, and no other.
    let left: Vec<_> = made(&world).into_iter().filter(|one| *one != first).collect();
    assert!(left.len() <= 1, "{left:?}");
    for one in &left {
        let named = &error["details"]["terminalId"];
        assert!(named.is_null() || named == one.as_str(), "{error} {left:?}");
        workspace(&world, &["kill-terminal", "-t", &format!("terminal:{one}")]);
    }
    assert_eq!(made(&world), [first]);
}

/// Step 2, with a daemon that is killed after the window was created and before the response.
#[test]
fn a_terminal_left_by_a_daemon_killed_during_creation_is_reported() {
    let world = World::with_server();
    let (split, first) = split(&world);
    // The server is held after it has created the window.
    world.tmux(&["set-hook", "-g", "after-set-option", "wait-for held"]);
    let panes = || world.tmux(&["list-panes", "-a", "-F", "#{pane_id}"]).lines().count();
    let before = panes();
    let asking = world.spawn(&words(&split));
    eventually("the window is there", || panes() > before);
    world.kill_daemon(rustix::process::Signal::KILL);
    let error = failed(&asking.finish(), "INCONSISTENT_STATE");
    world.tmux(&["set-hook", "-gu", "after-set-option"]);
    world.tmux(&["wait-for", "-S", "held"]);
    names_the_session(&world, &error);
    // After the restart the terminal is where the response says, and can be ended.
    let left: Vec<_> = made(&world).into_iter().filter(|one| *one != first).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    workspace(&world, &["kill-terminal", "-t", &format!("terminal:{}", left[0])]);
    assert_eq!(made(&world), [first]);
}

/// A command that splits a page's pane.
const SPLIT: [&str; 13] = [
    "--json",
    "workspace",
    "split-pane",
    "--device",
    "laptop",
    "-t",
    "pane:p1",
    "--direction",
    "vertical",
    "--shell",
    "exec cat",
    "--expected-revision",
    "7",
];

/// Receives the next request and only acknowledges it.
fn acks(owner: &mut Page<UnixStream>, command: &str) {
    let request = owner.next_of("layout.rpc.request");
    assert_eq!(request["command"], command, "{request}");
    owner.say(&json!({"type": "layout.rpc.ack", "requestId": request["requestId"]}));
}

/// The owner receives a step's request and disconnects.
#[test]
fn an_owner_that_disconnects_after_its_ack_leaves_nothing_unreported() {
    let world = World::with_server();
    let pane = json!({"pane": {"id": "p9", "status": "pending"}});
    let before = world.panes();
    // Step 1: the owner releases its reservation, if it made one.
    let mut owner = page(&world, "laptop");
    let asking = world.spawn(&SPLIT);
    acks(&mut owner, "reserve");
    drop(owner);
    assert_eq!(failed(&asking.finish(), "OWNER_TIMEOUT")["stage"], "owner");
    assert_eq!(world.panes(), before);
    // The undo of step 2.
    let mut owner = page(&world, "laptop");
    let mut elsewhere = world.plain_muxtap_command();
    let asking = Background::start(elsewhere.arg("-S").arg(world.path("no/such/t")).args(SPLIT));
    owner.answers("reserve", &pane, 8);
    acks(&mut owner, "release");
    drop(owner);
    let error = failed(&asking.finish(), "INCONSISTENT_STATE");
    assert_eq!(error["details"]["paneId"], "p9", "{error}");
    assert!(error["details"]["release"].as_str().unwrap().contains("pane:p9"), "{error}");
    // Step 3.
    let mut owner = page(&world, "laptop");
    let asking = world.spawn(&SPLIT);
    owner.answers("reserve", &pane, 8);
    acks(&mut owner, "finalize");
    drop(owner);
    let error = failed(&asking.finish(), "INCONSISTENT_STATE");
    let terminal = error["details"]["terminalId"].as_str().unwrap_or_else(|| panic!("{error}"));
    let made: Vec<_> = world.panes().into_iter().filter(|pane| !before.contains(pane)).collect();
    assert_eq!(made, [pane_of(terminal)], "{error}");
    let kill = error["details"]["kill"].as_str().unwrap();
    workspace(&world, &kill.split(' ').collect::<Vec<_>>());
    assert_eq!(world.panes(), before);
}

/// The relay disconnects in step 1, and between steps 1 and 2.
#[test]
fn a_relay_lost_during_or_after_the_reservation_leaves_nothing_unreported() {
    let world = World::with_server();
    let before = world.panes();
    let mut owner = page(&world, "laptop");
    let asking = world.spawn(&SPLIT);
    assert_eq!(owner.next_of("layout.rpc.request")["command"], "reserve");
    world.kill_daemon(rustix::process::Signal::KILL);
    let error = failed(&asking.finish(), "TMUX_UNAVAILABLE");
    assert!(error["message"].as_str().unwrap().contains("known"), "{error}");
    assert_eq!(world.panes(), before);
    // Its response to step 1 has arrived, and is read after the daemon has gone.
    let mut owner = page(&world, "laptop");
    let asking = world.spawn(&SPLIT);
    let request = owner.next_of("layout.rpc.request");
    let stopped = Stopped::new(asking.pid());
    owner.say(&json!({"type": "layout.rpc.result", "requestId": request["requestId"], "ok": true,
                      "result": {"pane": {"id": "p9", "status": "pending"}}, "appliedRevision": 8}));
    let log = world.path("m.sock.devices/audit/remote-control.jsonl");
    eventually("it is answered", || fs::read_to_string(&log).is_ok_and(|text| text.contains("\"result\":\"ok\"")));
    assert_eq!(world.http("GET", "/v1/status", None).status, 200);
    world.kill_daemon(rustix::process::Signal::KILL);
    drop(stopped);
    // The next daemon creates the terminal; its owner is no longer connected.
    let error = failed(&asking.finish(), "INCONSISTENT_STATE");
    let terminal = error["details"]["terminalId"].as_str().unwrap_or_else(|| panic!("{error}"));
    let made: Vec<_> = world.panes().into_iter().filter(|pane| !before.contains(pane)).collect();
    assert_eq!(made, [pane_of(terminal)], "{error}");
}

/// Creates a pane whose program records each of its starts; returns it, their number, and the words
/// that respawn it.
fn noting(world: &World) -> (Value, impl Fn() -> usize + use<>) {
    let file = world.path("begun");
    let shell = format!("echo begun >> {}; exec cat", file.display());
    let made = workspace(world, &["new-tab", "--shell", &shell]);
    let begun = move || fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    eventually("it has begun", || begun() == 1);
    (made, begun)
}

#[test]
fn concurrent_respawns_with_one_key_restart_the_program_once() {
    let world = World::with_server();
    let (made, begun) = noting(&world);
    let pane = format!("pane:{}", made["pane"]["id"].as_str().unwrap());
    let respawn = ["--json", "workspace", "respawn-pane", "-t", &pane, "--idempotency-key", "k"];
    let running: Vec<_> = (0..6).map(|_| world.spawn(&respawn)).collect();
    let answers: Vec<_> = running.into_iter().map(Background::finish).collect();
    let done: Vec<Value> = answers.iter().filter(|one| one.status == 0).map(Answer::json).collect();
    assert!(!done.is_empty(), "{answers:?}");
    for one in answers.iter().filter(|one| one.status != 0) {
        assert!(failed(one, "CONFLICT")["message"].as_str().unwrap().contains("in progress"), "{one:?}");
    }
    assert!(done.iter().all(|one| one["appliedRevision"] == done[0]["appliedRevision"]), "{done:?}");
    eventually("it has begun again", || begun() == 2);
    // Later callers get the first response.
    let later = workspace(&world, &respawn[2..]);
    assert_eq!(later["appliedRevision"], done[0]["appliedRevision"]);
    workspace(&world, &["capture-pane", "-t", &pane]);
    assert_eq!(begun(), 2);
}

/// The engine refuses: the key has no response yet, and can be used for the next attempt.
#[test]
fn a_respawn_that_the_engine_refused_runs_when_it_is_retried() {
    let world = World::with_server();
    let (made, begun) = noting(&world);
    let pane = format!("pane:{}", made["pane"]["id"].as_str().unwrap());
    let number = pane_of(made["terminalId"].as_str().unwrap());
    let key = "k".repeat(128);
    let respawn = ["respawn-pane", "-t", &pane, "--idempotency-key", &key];
    world.tmux(&["kill-server"]);
    for _ in 0..2 {
        let error = refused(&world, "TMUX_UNAVAILABLE", &respawn);
        assert_eq!(error["stage"], "engine", "{error}");
    }
    // A server that has a pane with that number again.
    world.session("main");
    let again = format!("echo begun >> {}; exec cat", world.path("begun").display());
    assert_eq!(world.window(&again), number);
    eventually("it has begun there", || begun() == 2);
    let done = workspace(&world, &respawn);
    assert_eq!(done["terminalId"], made["terminalId"]);
    eventually("it has begun again", || begun() == 3);
    assert_eq!(workspace(&world, &respawn)["appliedRevision"], done["appliedRevision"]);
    assert_eq!(begun(), 3);
}

/// Keys are valid up to the owners' limit, also for commands with several steps.
#[test]
fn a_key_of_the_maximum_length_creates_a_terminal() {
    let world = World::with_server();
    let key = "k".repeat(128);
    let tab = ["new-tab", "--shell", "exec cat", "--idempotency-key", &key];
    let made = workspace(&world, &tab);
    assert_eq!(made["pane"]["status"], "ready", "{made}");
    assert_eq!(workspace(&world, &tab)["terminalId"], made["terminalId"]);
}
