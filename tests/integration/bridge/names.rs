//! Session names match exactly, and may have characters that tmux cannot store.

use serde_json::json;

use crate::common::World;

use super::{Bridge, error};

#[test]
fn a_prefix_is_not_a_name() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    for name in ["demo", "zeta", "7"] {
        bridge.session(name);
    }
    for name in ["dem", "d", "demo2", "zet", "zeta1", "1", "0"] {
        for action in ["capture_pane", "kill_session"] {
            let reply = bridge.act(&json!({"action": action, "session": name}));
            assert_eq!((reply.status, &reply.body), (404, &error(&format!("can't find session: {name}"))));
        }
    }
    // A name that looks like a number is a name, regardless of the existing windows and panes.
    bridge.ok(&json!({"action": "send_and_capture", "session": "7", "text": "echo se'v'en", "enter": true, "wait_for": "^seven"}));
    assert!(!bridge.screen("demo").contains("seven"));
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!(["7", "demo", "zeta"]));
}

#[test]
fn names_with_dots_and_colons_are_returned_as_in_tmux_and_both_spellings_work() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    let reply = bridge.act(&json!({"action": "create_session", "session": "a.b:c"}));
    // tmux's form of the name depends on its version.
    let kept = world.tmux(&["list-sessions", "-F", "#{session_name}", "-f", "#{m:a*,#{session_name}}"]);
    assert!(["a_b_c", "a.b:c"].contains(&kept.as_str()), "{kept}");
    let said = |action: &str| format!("{{\"ok\":true,\"action\":\"{action}\",\"session\":\"{kept}\"}}");
    assert_eq!((reply.status, &reply.body), (200, &said("create_session")));
    for name in ["a.b:c", "a_b_c", "a.b_c", "a:b:c"] {
        let again = bridge.act(&json!({"action": "create_session", "session": name}));
        assert_eq!((again.status, &again.body), (409, &error(&format!("duplicate session: {kept}"))), "{name}");
        let sent = bridge.act(&json!({"action": "send_keys", "session": name, "text": "true", "enter": true}));
        assert_eq!(sent.body, said("send_keys"), "{name}");
        let shown = bridge.ok(&json!({"action": "capture_pane", "session": name}));
        assert_eq!(shown["session"], kept);
        let body = json!({"action": "send_and_capture", "session": name, "enter": true, "wait_for": "."});
        assert_eq!(bridge.ok(&body)["session"], kept);
    }
    // As parts of a target these names would mean something else.
    bridge.session("x");
    for name in ["x:0", "x.0", "x:", "x:0.0"] {
        let reply = bridge.act(&json!({"action": "capture_pane", "session": name}));
        assert_eq!((reply.status, &reply.body), (404, &error(&format!("can't find session: {name}"))));
    }
    assert_eq!(bridge.act(&json!({"action": "kill_session", "session": "a:b.c"})).body, said("kill_session"));
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!(["x"]));
}

#[test]
fn muxtaps_own_sessions_are_neither_listed_nor_counted() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    bridge.session("a");
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!(["a"]));
    let health = bridge.client().ask("GET", "/health", &[("Origin", super::ORIGIN)], b"").json();
    assert_eq!(health["sessions"], 1);
}
