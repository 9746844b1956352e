//! The mode without tmux.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{World, eventually};

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
            r#"{"action":"send_and_capture","session":"a.b:c","text":"\"\\\u0001é\u2028😀","wait_for":"é.😀$","timeout_ms":100}"#,
            408,
            r#"{"ok":false,"error":"wait_for regex did not match before timeout (100ms)."}"#,
        ),
        (
            r#"{"action":"send_and_capture","session":"a.b:c","text":"x","wait_for":"^\"[^]*😀$","timeout_ms":30000}"#,
            200,
            "{\"ok\":true,\"action\":\"send_and_capture\",\"session\":\"a.b:c\",\"output\":\"\\\"\\\\\\u0001é\u{2028}😀\\nx\"}",
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
    // Many pipelined, so that a busy machine does not wait for itself 5003 times.
    for batch in (0..5003).collect::<Vec<_>>().chunks(250) {
        for number in batch {
            client.begin(&json!({"action": "send_keys", "session": "a", "text": format!("line {number}")}));
        }
        for _ in batch {
            assert_eq!(client.receive().expect("an answer").status, 200);
        }
    }
    let all = client.act(&json!({"action": "capture_pane", "session": "a", "lines": 5000})).json();
    let lines: Vec<&str> = all["output"].as_str().unwrap().lines().collect();
    assert_eq!((lines.len(), lines[0], lines[4999]), (5000, "line 3", "line 5002"));
    let some = client.act(&json!({"action": "capture_pane", "session": "a"})).json();
    assert_eq!(some["output"].as_str().unwrap().lines().count(), 200);
    assert_eq!(client.act(&json!({"action": "kill_session", "session": "b"})).body, error("Session not found: b"));
}

/// A wait's pattern must match the output that would be returned, which only another call can
/// change.
#[test]
fn a_wait_in_stub_mode_ends_when_its_pattern_matches_or_its_time_is_up() {
    let world = World::new();
    let bridge = Bridge::stub(&world);
    let mut client = bridge.client();
    client.act(&json!({"action": "create_session", "session": "a"}));
    client.act(&json!({"action": "create_session", "session": "h"}));
    let sent = |text: &str, wait_for: &str| json!({"action": "send_and_capture", "session": "a", "text": text, "wait_for": wait_for, "timeout_ms": 150});
    let late = error("wait_for regex did not match before timeout (150ms).");
    let begun = Instant::now();
    let reply = client.act(&sent("ls", "DONE"));
    assert_eq!((reply.status, &reply.body), (408, &late));
    assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
    // The input was sent and counts like a pane's screen. The time limit is long, so that a busy
    // machine can match immediate output.
    let patient = |text: &str, wait_for: &str| {
        let mut body = sent(text, wait_for);
        body["timeout_ms"] = 30_000.into();
        body
    };
    let reply = client.act(&patient("x", "^ls$"));
    assert_eq!((reply.status, reply.json()["output"].as_str()), (200, Some("ls\nx")));
    // A lookahead is matched in a worker process, and unpaired surrogates are kept.
    assert_eq!(client.act(&patient("y", "l(?=s)")).status, 200);
    let half = client.post(
        br#"{"action":"send_and_capture","session":"h","text":"h\ud83d","wait_for":"h\\ud83d$","timeout_ms":30000}"#,
    );
    assert_eq!(half.status, 200, "{half:?}");
    // Only input sent with this call or later.
    let mut after = sent("z", "^ls$");
    after["wait_from"] = "send".into();
    let reply = client.act(&after);
    assert_eq!((reply.status, &reply.body), (408, &late));
    // Another client's input during the wait counts, and a session that is killed no longer exists.
    for (act, status) in [
        (json!({"action": "send_keys", "session": "a", "text": "DONE"}), 200),
        (json!({"action": "kill_session", "session": "a"}), 404),
    ] {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut long = sent("w", "^(DONE|never)$");
                long["timeout_ms"] = 60_000.into();
                long["wait_from"] = "send".into();
                bridge.client().act(&long)
            });
            let lines = || client.act(&json!({"action": "capture_pane", "session": "a"})).json()["output"].clone();
            let mut lines = lines;
            eventually("its line is there", || lines().as_str().is_some_and(|lines| lines.ends_with('w')));
            assert_eq!(client.act(&act).status, 200);
            assert_eq!(waiting.join().unwrap().status, status);
        });
    }
}
