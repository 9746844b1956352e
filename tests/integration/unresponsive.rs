//! A tmux server that does not respond, because it was stopped: no caller hangs, no refused request
//! is carried out later, and everything works when the server continues.

use std::time::Duration;

use serde_json::json;

use crate::common::{Http, Stopped, World, eventually, is_silent};

/// Longer than the time after which an unresponsive server's connection is given up.
const SILENT: Duration = Duration::from_secs(17);

/// Calls muxtap, which must report that tmux does not respond, while it does not.
fn unanswered(world: &World, args: &[&str]) -> String {
    let answer = world.muxtap(&[&["--json"], args].concat());
    assert_ne!(answer.status, 0, "{args:?}: {answer:?}");
    let error = answer.error();
    assert_eq!(error["code"], "TMUX_UNAVAILABLE", "{args:?}: {error}");
    let message = error["message"].as_str().unwrap().to_owned();
    assert!(message.contains("tmux does not respond"), "{args:?}: {message}");
    message
}

/// Creates a pane that prints its input.
fn echoing(world: &World) -> String {
    let pane = world.ok(&["new-window", "-t", "main", "--", "printf 'ready\\n'; exec cat"]);
    world.await_output(&pane, "ready");
    pane
}

#[test]
fn every_command_ends_on_a_stopped_server_and_works_after_it_continues() {
    let world = World::with_server();
    let pane = echoing(&world);
    let stopped = Stopped::new(world.server_pid());
    unanswered(&world, &["list-panes"]);
    unanswered(&world, &["list-sessions"]);
    let typed = unanswered(&world, &["send-keys", "-t", &pane, "-l", "never"]);
    assert!(typed.contains("was not sent"), "{typed}");
    unanswered(&world, &["new-window", "-t", "main"]);
    unanswered(&world, &["new-session", "-s", "other"]);
    unanswered(&world, &["kill-pane", "-t", &pane]);
    unanswered(&world, &["kill-session", "-t", "main"]);
    unanswered(&world, &["split-window", "-t", &pane]);
    unanswered(&world, &["respawn-pane", "-k", "-t", &pane]);
    unanswered(&world, &["resize-pane", "-t", &pane, "-x", "40"]);
    unanswered(&world, &["rename-session", "-t", "main", "other"]);
    unanswered(&world, &["run", "-T", "2", "-t", &pane, "true"]);
    unanswered(&world, &["wait-for", "-T", "8", "-t", "main", "-p", "x"]);
    // Requests that memory can answer still work.
    assert!(world.read_all(&pane).contains("ready"));
    world.json(&["status"]);
    drop(stopped);

    // No refused request is carried out now, and the same panes continue.
    eventually("it answers again", || world.muxtap(&["list-panes"]).status == 0);
    assert_eq!(world.sessions(), ["main"]);
    assert!(world.panes().contains(&pane), "it was not killed");
    world.ok(&["send-keys", "-t", &pane, "-l", "then"]);
    world.ok(&["send-keys", "-t", &pane, "Enter"]);
    world.await_output(&pane, "then");
    assert!(!world.read_all(&pane).contains("never"), "{}", world.read_all(&pane));
}

#[test]
fn a_wait_on_a_stopped_server_ends_at_its_timeout() {
    let world = World::with_server();
    let pane = echoing(&world);
    world.ok(&["list-panes"]);
    let stopped = Stopped::new(world.server_pid());
    // A pane's name can be resolved only by tmux.
    unanswered(&world, &["wait-for", "-T", "2", "-t", "main", "-p", "x"]);
    let known = world.muxtap(&["wait-for", "-T", "2", "-t", &pane, "-p", "x"]);
    assert_eq!(known.status, 124, "{known:?}");
    for since in ["screen", "start"] {
        let answer = world.muxtap(&["wait-for", "-T", "2", "-t", &pane, "-p", "x", "--since", since]);
        assert_ne!(answer.status, 0, "{since}: {answer:?}");
    }
    unanswered(&world, &["run", "-T", "2", "-t", &pane, "true"]);
    drop(stopped);
    // A wait that began meanwhile is not affected.
    let waiting = world.spawn(&["wait-for", "-t", &pane, "-p", "later", "-T", "30"]);
    eventually("it waits", || world.metric("muxtap_waits_active") == 1);
    world.tmux(&["send-keys", "-t", &pane, "later", "Enter"]);
    assert_eq!(waiting.finish().status, 0);
}

#[test]
fn a_stopped_server_delays_no_other_server() {
    let world = World::with_server();
    let other = world.path("other");
    world.tmux_at(&other, &["new-session", "-d", "-s", "there", "cat"]);
    let at_other = |args: &[&str]| {
        let mut command = world.plain_muxtap_command();
        command.arg("-S").arg(&other).args(args);
        crate::common::run(&mut command)
    };
    world.ok(&["list-panes"]);
    assert_eq!(at_other(&["list-panes"]).status, 0);
    let stopped = Stopped::new(world.server_pid());
    // The daemon finds all of them at once, the hanging one first.
    let daemon = Stopped::new(world.daemon_pid().unwrap());
    let hanging = world.http_send("GET", &format!("/v1/panes{}", world.query()), None);
    let input = format!("/v1/panes/there/input?socket={}", other.display());
    let hello = json!({"text": "hello\n"});
    let asked: Vec<_> = (0..3).map(|_| world.http_send("POST", &input, Some(&hello))).collect();
    drop(daemon);
    for asked in asked {
        let answer = Http::read(asked);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(is_silent(&hanging), "they were answered behind it");
    let hanging = Http::read(hanging);
    assert_eq!(hanging.json()["code"], "TMUX_UNAVAILABLE", "{hanging:?}");
    assert_eq!(at_other(&["wait-for", "-t", "there", "-p", "hello", "--since", "start", "-T", "60"]).status, 0);
    drop(stopped);
    eventually("it answers again", || world.muxtap(&["list-panes"]).status == 0);
}

#[test]
fn output_around_a_stop_of_the_server_is_complete() {
    let world = World::with_server();
    let pane = world.window("i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i; sleep 0.01; done; exec cat");
    world.await_output(&pane, "line 20\\b");
    let stopped = Stopped::new(world.server_pid());
    unanswered(&world, &["list-panes"]);
    drop(stopped);
    world.await_output(&pane, "line 300\\b");
    let text = world.read_all(&pane);
    // A seed of 3.2a has trailing blanks in its lines.
    let lines: Vec<_> = text.lines().map(str::trim_end).filter(|line| line.starts_with("line ")).collect();
    let all: Vec<_> = (1..=300).map(|number| format!("line {number}")).collect();
    assert_eq!(lines, all);
}

#[test]
fn a_daemon_stops_without_waiting_for_a_stopped_server() {
    let world = World::with_server();
    world.session("two");
    echoing(&world);
    let stopped = Stopped::new(world.server_pid());
    let stop = world.muxtap(&["stop"]);
    assert_eq!(stop.status, 0, "{stop:?}");
    eventually("the daemon has gone", || world.daemon_pid().is_none());
    drop(stopped);
    eventually("nothing of it stays behind", || world.tmux(&["list-clients"]).is_empty());
    assert_eq!(world.sessions().len(), 2);
}

/// A client's commands can be blocked forever while the server continues: by a prompt of tmux's
/// own, or by a hook that waits.
#[test]
fn a_connection_whose_commands_are_blocked_is_replaced() {
    let world = World::with_server().with_coverage("sessions");
    let pane = echoing(&world);
    world.tmux(&["set-hook", "-g", "after-rename-window", "wait-for nobody"]);
    let waiting = world.spawn(&["wait-for", "-t", &pane, "-p", "later", "-T", "40"]);
    eventually("it waits", || world.metric("muxtap_waits_active") == 1);
    world.ok(&["rename-window", "-t", &pane, "blocked"]);
    unanswered(&world, &["list-panes"]);
    eventually("another client answers", || world.muxtap(&["list-panes"]).status == 0);
    assert_eq!(world.panes().len(), 2);
    world.tmux(&["send-keys", "-t", &pane, "later", "Enter"]);
    assert_eq!(waiting.finish().status, 0, "a wait goes on over the new connection");
}

/// A server that was stopped before muxtap's first request to it.
#[test]
fn a_server_that_is_not_followed_yet_and_does_not_answer_is_said_to_be_so() {
    let world = World::with_server();
    let stopped = Stopped::new(world.server_pid());
    unanswered(&world, &["list-panes"]);
    let wait = json!({"panes": ["main"], "patterns": ["x"], "timeout_ms": 1000});
    let answer = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&wait));
    assert_eq!(answer.json()["code"], "TMUX_UNAVAILABLE", "{answer:?}");
    drop(stopped);
    eventually("it is followed", || world.muxtap(&["list-panes"]).status == 0);
}

/// Everything stops for longer than tmux's time limit and continues at once, like a machine after
/// sleep, as far as this can be simulated. (When a real machine sleeps, the clock of waits stops
/// too.)
#[test]
fn after_a_machine_slept_waits_and_panes_continue_without_a_gap() {
    let world = World::with_server();
    let pane = world.window("echo ready; read line; echo \"got $line\"; exec cat");
    world.await_output(&pane, "^ready");
    let cursor = world.ok(&["cursor", "-t", &pane]);
    let short = world.spawn(&["wait-for", "-t", &pane, "-p", "nothing", "-T", "3"]);
    let long = world.spawn(&["wait-for", "-t", &pane, "-p", "got it", "-T", "300"]);
    let mut followed = world.spawn(&["tail", "-f", "--since", "start", "-t", &pane]);
    assert_eq!(followed.line().unwrap(), "ready");
    eventually("they wait", || world.metric("muxtap_waits_active") == 2);
    // Typed by another client, and read when everything continues.
    let server = Stopped::new(world.server_pid());
    let typed = world.tmux_command(world.socket()).args(["send-keys", "-t", &pane, "it", "Enter"]).spawn().unwrap();
    let asked = world.spawn(&["display-message", "-p", "-t", &pane, "#{pane_id}"]);
    let daemon = Stopped::new(world.daemon_pid().unwrap());
    std::thread::sleep(SILENT);
    drop((server, daemon));
    let late = short.finish();
    assert_eq!(late.status, 124, "{late:?}");
    let matched = long.finish();
    assert_eq!((matched.status, matched.text().as_str()), (0, "got it\n"), "{matched:?}");
    assert_eq!(followed.line_where("what was printed", |line| line.starts_with("got")), "got it");
    let asked = asked.finish();
    assert!(asked.text() == format!("{pane}\n") || asked.stderr.contains("tmux does not respond"), "{asked:?}");
    assert!(typed.wait_with_output().unwrap().status.success());
    // The stream has no gap: nothing counted as lost.
    let read = world.json(&["read", "-t", &pane, "--since", &cursor]);
    assert!(read["gap"].is_null() && read["text"].as_str().unwrap().ends_with("got it\n"), "{read}");
    assert_eq!(world.panes().len(), 2);
}
