//! `wait_for`: what counts as a match, the time of the response, and the outcome without a match.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{World, eventually};

use super::{Bridge, CLEAR, Client, error};

fn wait(text: &str, wait_for: &str) -> Value {
    json!({"action": "send_and_capture", "session": "a", "text": text, "enter": true, "wait_for": wait_for, "timeout_ms": 30_000})
}

fn with_session(world: &World) -> Bridge<'_> {
    let bridge = Bridge::new(world);
    bridge.session("a");
    bridge.ok(&wait(&format!("{CLEAR}; echo re'a'dy"), "^ready$"));
    bridge
}

#[test]
fn what_stands_there_and_the_echo_of_what_was_typed_count() {
    let world = World::new();
    let bridge = with_session(&world);
    // No test waits for the sleeps to finish: they end after each request's timeout. The pattern
    // matches the existing screen.
    let shown = bridge.ok(&wait("sleep 3600", "^ready$"));
    assert!(shown["output"].as_str().unwrap().starts_with("ready"));
    bridge.ok(&json!({"action": "send_keys", "session": "a", "keys": ["C-c"]}));
    // The pattern matches the typed text.
    let shown = bridge.ok(&wait("sleep 3600; echo DONE", "echo DONE"));
    assert!(shown["output"].as_str().unwrap().ends_with("sleep 3600; echo DONE"));
    bridge.ok(&json!({"action": "send_keys", "session": "a", "keys": ["C-c"]}));
}

#[test]
fn patterns_are_javascripts() {
    let world = World::new();
    let bridge = with_session(&world);
    // Only the whole output tells how many lines begin with a number.
    let shown = bridge.ok(&wait("echo a1; sleep 0.1; echo b22; echo 'c 33'", "^c \\d+$"));
    assert_eq!(shown["output"].as_str().unwrap().lines().next(), Some("ready"));
    for pattern in [
        "(?<=b)22(?!3)",
        "^(?<word>b)(\\d)\\2$",
        "(?<n>\\d)\\k<n>",
        "^a1\\nb22$",
        "a1[^]*c",
        "(?:^|\\s)33$",
        "\\bb22\\b",
        "\\x61\\u0031",
        "[\\d-z]{2}",
        "c\\u{2}|\\_|b22",
        "(?!.*zzz)b2",
    ] {
        let shown = bridge.act(&wait("", pattern));
        assert_eq!(shown.status, 200, "{pattern}: {shown:?}");
    }
    for pattern in ["^b$", "a1.b22", "(?<!b)22", "DONE", "(\\d)\\1\\1", "^$[^]", "(?i:B22)x"] {
        let body = json!({"action": "send_and_capture", "session": "a", "enter": true, "wait_for": pattern, "timeout_ms": 150});
        let reply = bridge.act(&body);
        assert_eq!(reply.body, error("wait_for regex did not match before timeout (150ms)."), "{pattern}");
        assert_eq!(reply.status, 408);
    }
}

#[test]
fn a_wait_in_vain_ends_at_its_time_and_leaves_the_input_sent() {
    let world = World::new();
    let bridge = with_session(&world);
    let body = |ms: u32| {
        json!({"action": "send_and_capture", "session": "a", "text": format!("echo m{ms}a > m{ms}"), "enter": true,
            "wait_for": "NEVER", "timeout_ms": ms})
    };
    for ms in [100, 700] {
        let begun = Instant::now();
        let reply = bridge.act(&body(ms));
        let took = begun.elapsed();
        assert_eq!(reply.status, 408);
        assert_eq!(reply.body, error(&format!("wait_for regex did not match before timeout ({ms}ms).")));
        assert!(took >= Duration::from_millis(ms.into()), "{took:?}");
        let file = world.path(&format!("work/m{ms}"));
        eventually("it was typed", || std::fs::read_to_string(&file).is_ok_and(|text| text == format!("m{ms}a\n")));
    }
}

#[test]
fn a_catastrophic_pattern_ends_at_its_timeout_and_delays_no_other_caller() {
    let world = World::new();
    let bridge = with_session(&world);
    bridge.ok(&wait("echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "^a{60}$"));
    let evil = |number: usize| {
        json!({"action": "send_and_capture", "session": "a", "enter": true, "wait_for": format!("(?=a)(a|a)+[{number}]{{9}}$"),
            "timeout_ms": 45_000})
    };
    let mut held: Vec<_> = (0..20)
        .map(|number| {
            let mut client = bridge.client();
            client.begin(&evil(number));
            client
        })
        .collect();
    // Other clients are served meanwhile; how many depends on how busy the machine is.
    let mut served = 0;
    while served < 5 {
        bridge.ok(&wait("echo qu'i'ck", "^quick$"));
        assert_eq!(bridge.client().ask("GET", "/health", &[("Origin", super::ORIGIN)], b"").status, 200);
        if !held.iter().all(Client::is_silent) {
            break;
        }
        served += 1;
    }
    assert!(served > 0, "nobody was served while they were at work");
    bridge.ok(&wait("echo lo'o'k", "(?<=^lo)ok$"));
    for client in &mut held {
        let reply = client.receive().unwrap();
        assert_eq!((reply.status, reply.body), (408, error("wait_for regex did not match before timeout (45000ms).")));
    }
    // No worker keeps matching for an abandoned wait.
    eventually("the workers rest", || {
        let busy = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R'))
        };
        let workers = world.processes();
        !workers.iter().any(|(pid, line)| line.contains("__bridge-match") && busy(pid))
    });
    assert!(world.processes().iter().filter(|(_, line)| line.contains("__bridge-match")).count() <= 4);
    let pid = bridge.process.pid();
    assert_eq!(bridge.stop().status, 0);
    eventually("the workers are gone", || {
        !world.processes().iter().any(|(other, line)| *other == pid || line.contains("__bridge-match"))
    });
}

#[cfg(target_os = "linux")]
#[test]
fn workers_end_with_a_bridge_that_is_killed() {
    let world = World::new();
    let bridge = with_session(&world);
    bridge.ok(&wait("echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "^a{60}$"));
    let mut client = bridge.client();
    client.begin(&wait("", "(?=a)(a|a)+[b]{9}$"));
    let workers = || world.processes().into_iter().filter(|(_, line)| line.contains("__bridge-match")).count();
    eventually("a worker is at work", || workers() > 0);
    bridge.process.kill();
    eventually("it is gone", || workers() == 0);
}

#[test]
fn a_thousand_waits_are_open_at_once() {
    let world = World::new();
    // tmux processes a thousand inputs, with enough time for a slow machine.
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_COMMAND_TIMEOUT_MS", "60000")]);
    bridge.session("a");
    bridge.ok(&wait(&format!("{CLEAR}; echo re'a'dy"), "^ready$"));
    let mut clients: Vec<_> = (0..1000)
        .map(|number| {
            let mut client = bridge.client();
            // Different patterns, some with a lookbehind.
            let pattern = if number % 50 == 0 { format!("(?<=g)o{number}!") } else { format!("go(?:{number})?!$") };
            let body = json!({"action": "send_and_capture", "session": "a", "keys": ["x", "BSpace"], "wait_for": pattern,
                "timeout_ms": 120_000, "lines": 50});
            client.begin(&body);
            client
        })
        .collect();
    // Each has typed when the pane has received all keys; then the shell prints what they wait for.
    let print = "printf 'g%s!\\n' o; i=0; while [ $i -lt 1000 ]; do printf 'g%s%d! ' o $i; i=$((i+50)); done";
    let mut body = wait(print, "go950!");
    body["timeout_ms"] = 120_000.into();
    bridge.ok(&body);
    for (number, client) in clients.iter_mut().enumerate() {
        let reply = client.receive().unwrap();
        assert_eq!(reply.status, 200, "{number}: {reply:?}");
    }
}

#[test]
fn with_wait_from_send_only_later_output_counts() {
    let world = World::new();
    let bridge = with_session(&world);
    bridge.ok(&wait("echo DO'N'E", "^DONE$"));
    // The output has enough time for a slow machine.
    let body = |text: &str, from: Value, timeout_ms: u64| {
        json!({"action": "send_and_capture", "session": "a", "text": text, "enter": true, "wait_for": "^DONE$",
            "timeout_ms": timeout_ms, "wait_from": from})
    };
    assert_eq!(bridge.act(&body("true", json!("send"), 400)).status, 408, "the old one does not count");
    assert_eq!(bridge.act(&body("true", json!("screen"), 30_000)).status, 200, "anything else is as without");
    assert_eq!(bridge.act(&body("true", Value::Null, 30_000)).status, 200);
    let shown = bridge.ok(&body("echo DO'N'E", json!("send"), 30_000));
    assert!(shown["output"].as_str().unwrap().starts_with("ready"), "the answer shows the whole screen: {shown}");
    // More than is searched in one piece, with the match in the middle.
    bridge.ok(&body("seq 1 60000; echo DO'N'E; seq 1 60000", json!("send"), 50_000));
}

#[test]
fn a_session_that_ends_is_not_waited_for() {
    let world = World::new();
    let bridge = with_session(&world);
    bridge.session("b");
    for end in [&["kill-session", "-t", "=a"][..], &["kill-server"]] {
        let session = if end.len() > 1 { "a" } else { "b" };
        let mut client = bridge.client();
        client.begin(&json!({"action": "send_and_capture", "session": session, "text": "echo w'a'its", "enter": true,
            "wait_for": "NEVER", "timeout_ms": 60_000}));
        eventually("it waits", || bridge.screen(session).lines().any(|line| line == "waits"));
        world.tmux(end);
        let reply = client.receive().unwrap();
        assert_eq!((reply.status, reply.body), (404, error(&format!("can't find session: {session}"))));
    }
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!([]));
}

/// A wait stays with the pane that it typed into, and continues in the session's other pane when
/// that one ends.
#[test]
fn a_wait_follows_its_pane() {
    let world = World::new();
    let bridge = with_session(&world);
    let mut client = bridge.client();
    client.begin(&wait("echo w'a'its; read x; exit", "^(first|second)$"));
    eventually("it waits", || bridge.screen("a").lines().any(|line| line == "waits"));
    let other = world.tmux(&["split-window", "-t", "=a:", "-P", "-F", "#{pane_id}", "exec cat"]);
    let first = world.tmux(&["list-panes", "-t", "=a:", "-F", "#{pane_id}"]);
    let first = first.lines().find(|pane| *pane != other).unwrap();
    world.tmux(&["send-keys", "-t", first, "Enter"]);
    eventually("it has ended", || world.tmux(&["list-panes", "-t", "=a:", "-F", "#{pane_id}"]) == other);
    world.tmux(&["send-keys", "-t", &other, "second", "Enter"]);
    let reply = client.receive().unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.json()["output"].as_str().unwrap().starts_with("second"));
}

/// A pane that its owner keeps after its end can be captured; a wait in it times out.
#[test]
fn a_pane_that_is_kept_when_it_has_ended_can_be_looked_at() {
    let world = World::new();
    let bridge = with_session(&world);
    world.tmux(&["set-option", "-w", "-t", "=a:", "remain-on-exit", "on"]);
    let mut body = wait("echo la's't; exit", "^never$");
    body["timeout_ms"] = 1500.into();
    assert_eq!(bridge.act(&body).status, 408);
    assert!(bridge.screen("a").contains("last"));
}

/// A wait does not outlive its client's connection.
#[test]
fn a_client_that_leaves_takes_its_wait_along() {
    let world = World::new();
    let bridge = with_session(&world);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", bridge.process.pid())).unwrap().count();
    let before = descriptors();
    for number in 0..50 {
        let mut client = bridge.client();
        client.begin(&json!({"action": "send_and_capture", "session": "a", "keys": ["Enter"], "wait_for": format!("NEVER{number}"),
            "timeout_ms": 120_000}));
        drop(client);
    }
    eventually("their connections are closed", || descriptors() <= before + 1);
    bridge.ok(&wait("echo st'i'll", "^still$"));
}
