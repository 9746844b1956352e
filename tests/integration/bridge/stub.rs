//! The mode without tmux.

use serde_json::json;

use crate::common::World;

use super::{Bridge, Client, ORIGIN, error};

fn says(client: &mut Client, body: &str, status: u16, expected: &str) {
    let reply = client.post(body.as_bytes());
    assert_eq!((reply.status, reply.body.as_str()), (status, expected), "{body}");
    reply.is_for(ORIGIN);
}

#[test]
fn a_session_is_a_list_of_lines() {
    let world = World::new();
    let bridge = Bridge::stub(&world);
    assert_eq!(bridge.lines[1], "mode: stub");
    let client = &mut bridge.client();
    for (body, status, expected) in [
        (
            r#"{"action":"create_session","session":"demo"}"#,
            200,
            r#"{"ok":true,"action":"create_session","session":"demo"}"#,
        ),
        (
            r#"{"action":"create_session","session":" demo "}"#,
            409,
            r#"{"ok":false,"error":"Session already exists: demo"}"#,
        ),
        (
            r#"{"action":"create_session","session":"a.b:c"}"#,
            200,
            r#"{"ok":true,"action":"create_session","session":"a.b:c"}"#,
        ),
        (
            r#"{"action":"create_session","session":"B","cwd":"/tmp"}"#,
            200,
            r#"{"ok":true,"action":"create_session","session":"B"}"#,
        ),
        (
            r#"{"action":"list_sessions"}"#,
            200,
            r#"{"ok":true,"action":"list_sessions","sessions":["B","a.b:c","demo"]}"#,
        ),
        (
            r#"{"action":"capture_pane","session":"demo"}"#,
            200,
            r#"{"ok":true,"action":"capture_pane","session":"demo","output":""}"#,
        ),
        (
            r#"{"action":"send_keys","session":"demo","text":"ls -l","enter":true}"#,
            200,
            r#"{"ok":true,"action":"send_keys","session":"demo"}"#,
        ),
        (
            r#"{"action":"send_keys","session":"demo","keys":["C-c"," Tab ",""]}"#,
            200,
            r#"{"ok":true,"action":"send_keys","session":"demo"}"#,
        ),
        (
            r#"{"action":"send_keys","session":"demo","text":" t ","keys":["Tab"],"enter":true}"#,
            200,
            r#"{"ok":true,"action":"send_keys","session":"demo"}"#,
        ),
        (
            r#"{"action":"send_keys","session":"demo","enter":true}"#,
            200,
            r#"{"ok":true,"action":"send_keys","session":"demo"}"#,
        ),
        (
            r#"{"action":"capture_pane","session":"demo"}"#,
            200,
            r#"{"ok":true,"action":"capture_pane","session":"demo","output":"ls -l <Enter>\n<C-c> <Tab>\nt <Tab> <Enter>\n<Enter>"}"#,
        ),
        (
            r#"{"action":"capture_pane","session":"demo","lines":2}"#,
            200,
            r#"{"ok":true,"action":"capture_pane","session":"demo","output":"t <Tab> <Enter>\n<Enter>"}"#,
        ),
        (
            r#"{"action":"send_and_capture","session":"demo","text":"x","lines":1}"#,
            200,
            r#"{"ok":true,"action":"send_and_capture","session":"demo","output":"x"}"#,
        ),
        (
            r#"{"action":"send_and_capture","session":"a.b:c","text":"\"\\\u0001é\u2028😀","wait_for":"never","timeout_ms":100}"#,
            200,
            "{\"ok\":true,\"action\":\"send_and_capture\",\"session\":\"a.b:c\",\"output\":\"\\\"\\\\\\u0001é\u{2028}😀\"}",
        ),
        (
            r#"{"action":"send_and_capture","session":"B","text":"a\nb \ud800"}"#,
            200,
            r#"{"ok":true,"action":"send_and_capture","session":"B","output":"a\nb \ud800"}"#,
        ),
        (
            r#"{"action":"kill_session","session":"demo"}"#,
            200,
            r#"{"ok":true,"action":"kill_session","session":"demo"}"#,
        ),
        (r#"{"action":"list_sessions"}"#, 200, r#"{"ok":true,"action":"list_sessions","sessions":["B","a.b:c"]}"#),
        (r#"{"action":"kill_session","session":"demo"}"#, 404, r#"{"ok":false,"error":"Session not found: demo"}"#),
        (r#"{"action":"capture_pane","session":"demo"}"#, 404, r#"{"ok":false,"error":"Session not found: demo"}"#),
        (
            r#"{"action":"send_keys","session":"demo","text":"x"}"#,
            404,
            r#"{"ok":false,"error":"Session not found: demo"}"#,
        ),
        (
            r#"{"action":"send_and_capture","session":"demo","text":"x"}"#,
            404,
            r#"{"ok":false,"error":"Session not found: demo"}"#,
        ),
        (r#"{"action":"capture_pane","session":"a.b"}"#, 404, r#"{"ok":false,"error":"Session not found: a.b"}"#),
        (r#"{"action":"capture_pane","session":"a_b_c"}"#, 404, r#"{"ok":false,"error":"Session not found: a_b_c"}"#),
    ] {
        says(client, body, status, expected);
    }
    let health = client.ask("GET", "/health", &[("Origin", ORIGIN)], b"");
    assert_eq!(health.body, r#"{"ok":true,"mode":"stub","backend":"stub","sessions":2}"#);
    let named = client.act(&json!({"action": "create_session", "session": " "})).json();
    let digits = named["session"].as_str().unwrap().strip_prefix("pi-").unwrap().to_owned();
    assert!(digits.len() == 8 && u32::from_str_radix(&digits, 16).is_ok(), "{named}");
    let stopped = bridge.stop();
    assert_eq!(stopped.status, 0);
    assert!(!world.socket().exists(), "nothing is run");
}

#[test]
fn five_thousand_lines_are_kept() {
    let world = World::new();
    let bridge = Bridge::stub(&world);
    let mut client = bridge.client();
    client.act(&json!({"action": "create_session", "session": "a"}));
    for number in 0..5003 {
        let sent = client.act(&json!({"action": "send_keys", "session": "a", "text": format!("line {number}")}));
        assert_eq!(sent.status, 200);
    }
    let all = client.act(&json!({"action": "capture_pane", "session": "a", "lines": 5000})).json();
    let lines: Vec<&str> = all["output"].as_str().unwrap().lines().collect();
    assert_eq!((lines.len(), lines[0], lines[4999]), (5000, "line 3", "line 5002"));
    let some = client.act(&json!({"action": "capture_pane", "session": "a"})).json();
    assert_eq!(some["output"].as_str().unwrap().lines().count(), 200);
    assert_eq!(client.act(&json!({"action": "kill_session", "session": "b"})).body, error("Session not found: b"));
}
