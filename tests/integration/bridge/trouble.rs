//! A tmux that hangs, leaves or is refused; bridges that end.

use rustix::process::Signal;
use serde_json::json;

use crate::common::{Stopped, World, eventually, is_alive, signal};

use super::{Bridge, ORIGIN, error};

#[test]
fn a_tmux_that_hangs_is_answered_with_504() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_COMMAND_TIMEOUT_MS", "700")]);
    bridge.session("a");
    {
        let _stopped = Stopped::new(world.server_pid());
        for body in [
            json!({"action": "list_sessions"}),
            json!({"action": "create_session", "session": "b"}),
            json!({"action": "create_session"}),
            json!({"action": "send_keys", "session": "a", "enter": true}),
            json!({"action": "capture_pane", "session": "a"}),
            json!({"action": "send_and_capture", "session": "a", "enter": true, "wait_for": "x", "timeout_ms": 60_000}),
            json!({"action": "kill_session", "session": "a"}),
        ] {
            let reply = bridge.act(&body);
            assert_eq!((reply.status, &reply.body), (504, &error("tmux command timed out after 700ms.")), "{body}");
            reply.is_for(ORIGIN);
        }
        let health = bridge.client().ask("GET", "/health", &[("Origin", ORIGIN)], b"");
        assert_eq!((health.status, health.body), (504, error("tmux command timed out after 700ms.")));
        // An invalid request is still rejected immediately.
        assert_eq!(bridge.act(&json!({"action": "no"})).status, 400);
    }
    eventually("it is back", || bridge.act(&json!({"action": "list_sessions"})).status == 200);
}

/// The tmux program hangs, not its server.
#[test]
fn a_tmux_program_that_hangs_is_answered_with_504() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let script = world.path("tmux");
    let text = format!(
        "#!/bin/sh\ncase \" $* \" in *' -V '*) exec {} -V;; esac\nexec sleep 60\n",
        crate::common::tmux_program()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let vars = [("TMUX_BRIDGE_COMMAND_TIMEOUT_MS", "500"), ("MUXTAP_TMUX", script.to_str().unwrap())];
    let bridge = Bridge::with(&world, &vars);
    // That no server listens is known without tmux.
    assert_eq!(bridge.act(&json!({"action": "list_sessions"})).status, 200);
    let reply = bridge.act(&json!({"action": "create_session", "session": "a"}));
    assert_eq!((reply.status, reply.body), (504, error("tmux command timed out after 500ms.")));
    assert_eq!(bridge.stop().status, 0);
}

#[test]
fn sessions_outlive_the_bridge_however_it_ends() {
    let world = World::new();
    for (round, how) in [Signal::TERM, Signal::INT, Signal::HUP, Signal::KILL].into_iter().enumerate() {
        let bridge = Bridge::new(&world);
        let name = format!("s{round}");
        bridge.session(&name);
        let text = format!("echo r{round}-$((40+2))");
        bridge.ok(&json!({"action": "send_and_capture", "session": "s0", "text": text, "enter": true,
            "wait_for": format!("^r{round}-42$")}));
        let pid = bridge.process.pid();
        signal(pid, how);
        let ended = bridge.process.finish();
        assert_eq!(ended.status, if how == Signal::KILL { -1 } else { 0 }, "{how:?}: {ended:?}");
        // Nothing of the bridge remains, and everything that was created with it does.
        let sessions = || world.tmux(&["list-sessions", "-F", "#{session_name}"]);
        let expected: Vec<_> = (0..=round).map(|number| format!("s{number}")).collect();
        eventually("only they are left", || sessions() == expected.join("\n"));
    }
    let bridge = Bridge::new(&world);
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!(["s0", "s1", "s2", "s3"]));
    let shown = bridge.screen("s0");
    assert!((0..4).all(|round| shown.lines().any(|line| line == format!("r{round}-42"))), "{shown}");
    // A shell created by a killed bridge ends like any other.
    bridge.ok(&json!({"action": "send_keys", "session": "s3", "text": "exit", "enter": true}));
    eventually("it has gone", || {
        bridge.ok(&json!({"action": "list_sessions"}))["sessions"] == json!(["s0", "s1", "s2"])
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_bridge_under_nohup_outlives_its_terminal() {
    let world = World::new();
    let mut start = world.command("sh");
    start.args(["-c", "trap '' HUP; exec \"$0\" bridge"]).arg(world.plain_muxtap_command().get_program());
    start.env("PORT", "0").env("TMUX_BRIDGE_MODE", "stub");
    let bridge = Bridge::start(&world, &mut start);
    signal(bridge.process.pid(), Signal::HUP);
    for _ in 0..3 {
        assert_eq!(bridge.act(&json!({"action": "list_sessions"})).status, 200);
    }
    assert_eq!(bridge.stop().status, 0);
}

#[test]
fn open_waits_are_answered_when_the_bridge_ends() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    bridge.session("a");
    let mut waiting: Vec<_> = (0..5)
        .map(|number| {
            let mut client = bridge.client();
            client.begin(&json!({"action": "send_and_capture", "session": "a", "text": format!("echo n'{number}'"), "enter": true,
                "wait_for": "NEVER", "timeout_ms": 120_000}));
            client
        })
        .collect();
    eventually("all have typed", || {
        (0..5).all(|number| bridge.screen("a").lines().any(|line| line == format!("n{number}")))
    });
    let pid = bridge.process.pid();
    assert_eq!(bridge.stop().status, 0);
    for client in &mut waiting {
        let reply = client.receive().unwrap();
        assert_eq!((reply.status, reply.body), (503, error("The bridge is stopping.")));
        assert!(client.receive().is_none(), "and the connection is closed");
    }
    assert!(!is_alive(pid));
    assert!(world.tmux(&["list-sessions", "-F", "#{session_name}"]) == "a");
}

#[test]
fn a_bridge_ends_even_if_tmux_hangs() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    bridge.session("a");
    let _stopped = Stopped::new(world.server_pid());
    assert_eq!(bridge.stop().status, 0);
}

#[test]
fn the_bridge_applies_tiers_and_the_audit_log() {
    let world = World::with_server();
    let audit = world.path("audit.jsonl");
    let vars = [("MUXTAP_ALLOW", "read,input"), ("MUXTAP_AUDIT_FILE", audit.to_str().unwrap())];
    let bridge = Bridge::with(&world, &vars);
    for action in ["create_session", "kill_session"] {
        let reply = bridge.act(&json!({"action": action, "session": "main"}));
        let expected = if action == "create_session" { 409 } else { 403 };
        assert_eq!(reply.status, expected, "{reply:?}");
    }
    assert_eq!(bridge.act(&json!({"action": "create_session", "session": "b"})).status, 403);
    bridge.ok(&json!({"action": "send_keys", "session": "main", "text": "s3cret"}));
    assert_eq!(bridge.stop().status, 0);
    let log = std::fs::read_to_string(world.path("bridge-audit.jsonl")).unwrap();
    let entries: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(entries.iter().all(|entry| entry["face"] == "bridge" && entry["who"] == ORIGIN), "{log}");
    assert!(
        entries.iter().any(|entry| entry["action"] == "input" && entry["bytes"] == 6 && entry["result"] == "ok"),
        "{log}"
    );
    assert!(entries.iter().any(|entry| entry["action"] == "kill-session" && entry["result"] == "READ_ONLY"), "{log}");
    assert!(!log.contains("s3cret"));
}
