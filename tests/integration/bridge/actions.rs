//! Each action's effect on a real tmux, and its response.

use serde_json::{Value, json};

use crate::common::{World, eventually};

use super::{Bridge, CLEAR, ORIGIN, error};

#[test]
fn sessions_are_made_listed_and_ended() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    let mut client = bridge.client();
    let version = world.tmux_command(world.socket()).arg("-V").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let health = |sessions: usize| {
        format!(
            "{{\"ok\":true,\"mode\":\"tmux\",\"backend\":\"tmux\",\"tmuxVersion\":\"{}\",\"socketPath\":\"{}\",\"sessions\":{sessions}}}",
            version.trim(),
            world.socket().display()
        )
    };
    assert_eq!(client.ask("GET", "/health", &[("Origin", ORIGIN)], b"").body, health(0));
    assert!(!world.socket().exists(), "asking does not start a server");
    for (body, status, expected) in [
        (r#"{"action":"list_sessions"}"#, 200, r#"{"ok":true,"action":"list_sessions","sessions":[]}"#),
        (r#"{"action":"kill_session","session":"zeta"}"#, 404, r#"{"ok":false,"error":"can't find session: zeta"}"#),
        (
            r#"{"action":"create_session","session":"zeta"}"#,
            200,
            r#"{"ok":true,"action":"create_session","session":"zeta"}"#,
        ),
        (
            r#"{"action":"create_session","session":"Alpha","enter":true}"#,
            200,
            r#"{"ok":true,"action":"create_session","session":"Alpha"}"#,
        ),
        (
            r#"{"action":"create_session","session":"a10"}"#,
            200,
            r#"{"ok":true,"action":"create_session","session":"a10"}"#,
        ),
        (
            r#"{"action":"create_session","session":"a9"}"#,
            200,
            r#"{"ok":true,"action":"create_session","session":"a9"}"#,
        ),
        (r#"{"action":"create_session","session":"zeta"}"#, 409, r#"{"ok":false,"error":"duplicate session: zeta"}"#),
        (
            r#"{"action":"list_sessions","session":"a9"}"#,
            200,
            r#"{"ok":true,"action":"list_sessions","sessions":["Alpha","a10","a9","zeta"]}"#,
        ),
        (
            r#"{"action":"kill_session","session":" a10 "}"#,
            200,
            r#"{"ok":true,"action":"kill_session","session":"a10"}"#,
        ),
        (r#"{"action":"kill_session","session":"a10"}"#, 404, r#"{"ok":false,"error":"can't find session: a10"}"#),
        (
            r#"{"action":"list_sessions"}"#,
            200,
            r#"{"ok":true,"action":"list_sessions","sessions":["Alpha","a9","zeta"]}"#,
        ),
    ] {
        let reply = client.post(body.as_bytes());
        assert_eq!((reply.status, reply.body.as_str()), (status, expected), "{body}");
        reply.is_for(ORIGIN);
    }
    assert_eq!(client.ask("GET", "/health?x", &[("Origin", ORIGIN)], b"").body, health(3));
    // The last session ends with the server; the next one gets a new server immediately.
    for name in ["Alpha", "a9", "zeta"] {
        assert_eq!(client.act(&json!({"action": "kill_session", "session": name})).status, 200);
    }
    for round in 0..5 {
        assert_eq!(client.act(&json!({"action": "list_sessions"})).json()["sessions"], json!([]), "{round}");
        let made = client.act(&json!({"action": "create_session", "session": "again"}));
        assert_eq!(made.status, 200, "{round}: {made:?}");
        assert_eq!(client.act(&json!({"action": "kill_session", "session": "again"})).status, 200, "{round}");
    }
}

#[test]
fn a_session_without_a_name_gets_one_and_is_80_by_24() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    let mut names: Vec<String> = (0..3)
        .map(|_| bridge.ok(&json!({"action": "create_session"}))["session"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    for name in &names {
        let digits = name.strip_prefix("pi-").unwrap();
        assert!(digits.len() == 8 && u32::from_str_radix(digits, 16).is_ok() && *digits == digits.to_lowercase());
        assert_eq!(world.tmux(&["display-message", "-p", "-t", name, "#{window_width}x#{window_height}"]), "80x24");
    }
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!(names));
}

#[test]
fn a_session_begins_in_its_directory_or_in_the_bridges_own() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    let home = world.path("home").canonicalize().unwrap();
    let work = world.path("work").canonicalize().unwrap();
    let path_of = |name: &str| world.tmux(&["display-message", "-p", "-t", name, "#{pane_current_path}"]);
    bridge.ok(&json!({"action": "create_session", "session": "one", "cwd": format!(" {} ", home.display())}));
    bridge.session("two");
    eventually("one is there", || path_of("one") == home.display().to_string());
    eventually("two is there", || path_of("two") == work.display().to_string());
    std::fs::create_dir(world.path("a #{pid} \"dir\"")).unwrap();
    let odd = world.path("a #{pid} \"dir\"").canonicalize().unwrap();
    bridge.ok(&json!({"action": "create_session", "session": "three", "cwd": odd}));
    eventually("three is there", || path_of("three") == odd.display().to_string());
}

#[test]
fn the_text_the_keys_and_enter_come_in_this_order() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    bridge.session("a");
    let sent = bridge.act(&json!({"action": "send_keys", "session": "a", "text": " cat ", "enter": true}));
    assert_eq!(sent.body, r#"{"ok":true,"action":"send_keys","session":"a"}"#);
    let body = json!({"action": "send_and_capture", "session": "a", "text": "one", "keys": ["Space", "x", "BSpace", "two"],
        "enter": true, "wait_for": "^one two\\none two$"});
    assert!(bridge.ok(&body)["output"].as_str().unwrap().ends_with("cat\none two\none two"));
    bridge.ok(&json!({"action": "send_keys", "session": "a", "keys": ["C-d"]}));
    // Any text is typed literally.
    let mut seen = Vec::new();
    for text in [
        "-l",
        "-t x",
        "--",
        "echo a;",
        ";",
        "\\;",
        "a;b",
        "Enter",
        "C-c",
        "$HOME `id` \"'",
        "#{pid} #(id) %H",
        "~",
        "é€😀",
        "{",
        "-",
        "!",
    ] {
        bridge.ok(&json!({"action": "send_keys", "session": "a", "text": "cat > typed; echo $?", "enter": true}));
        bridge.ok(&json!({"action": "send_keys", "session": "a", "text": text, "enter": true}));
        bridge.ok(&json!({"action": "send_keys", "session": "a", "keys": ["C-d"]}));
        let typed = format!("{text}\n");
        eventually(text, || std::fs::read_to_string(world.path("work/typed")).is_ok_and(|found| found == typed));
        seen.push(text);
    }
    assert_eq!(seen.len(), 16);
    // A key token that is not a key is typed, and never parsed as a flag.
    for token in ["-l", "-X", "--", "-", "+", "word", "a:b"] {
        bridge.ok(&json!({"action": "send_keys", "session": "a", "text": "cat > typed", "enter": true}));
        bridge.ok(&json!({"action": "send_keys", "session": "a", "keys": [token, "Enter", "C-d"]}));
        let typed = format!("{token}\n");
        eventually(token, || std::fs::read_to_string(world.path("work/typed")).is_ok_and(|found| found == typed));
    }
}

#[test]
fn long_text_arrives_whole() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    bridge.session("a");
    // Longer than a line of a cooked terminal, and as keys longer than one line to tmux; with three
    // bytes a character it is pasted from a buffer.
    for line in ["x".repeat(99), "€".repeat(99)] {
        let text = vec![line; 80].join("\n");
        assert_eq!(text.chars().count(), 7999);
        bridge.ok(&json!({"action": "send_keys", "session": "a", "text": "cat > typed", "enter": true}));
        bridge.ok(&json!({"action": "send_keys", "session": "a", "text": text, "enter": true}));
        bridge.ok(&json!({"action": "send_keys", "session": "a", "keys": ["C-d"]}));
        eventually("it is all there", || {
            std::fs::read_to_string(world.path("work/typed")).is_ok_and(|found| found == format!("{text}\n"))
        });
    }
}

#[test]
fn a_capture_is_the_screen_and_the_history_above_it() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    bridge.session("a");
    let waited = bridge
        .ok(&json!({"action": "send_and_capture", "session": "a", "text": "seq 1 300; printf 'END  '; sleep 60",
        "enter": true, "wait_for": "^END", "lines": 5}));
    let of =
        |answer: &Value| -> Vec<String> { answer["output"].as_str().unwrap().lines().map(str::to_owned).collect() };
    let lines = of(&waited);
    // Five lines above a screen of 24.
    assert_eq!((lines.len(), lines[0].as_str(), lines[28].as_str()), (29, "273", "END"));
    let capture = |fields: Value| {
        let mut body = json!({"action": "capture_pane", "session": "a"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        of(&bridge.ok(&body))
    };
    assert_eq!(capture(json!({"lines": 1})).len(), 25);
    assert_eq!(capture(json!({})).len(), 224);
    assert_eq!(capture(json!({"lines": 5000})).len(), 302);
    // The same as tmux's own capture, trimmed.
    let own = world.tmux(&["capture-pane", "-p", "-t", "a", "-S", "-200"]);
    assert_eq!(capture(json!({})).join("\n"), own.trim_end());
    // Captured as soon as the input was sent: its effect may not be visible yet.
    let at_once = bridge.act(&json!({"action": "send_and_capture", "session": "a", "keys": ["C-c"]}));
    assert_eq!(at_once.status, 200);
    assert!(at_once.body.starts_with("{\"ok\":true,\"action\":\"send_and_capture\",\"session\":\"a\",\"output\":\""));
}

#[test]
fn wrapped_lines_are_joined_when_that_is_asked_for() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    bridge.session("a");
    let text = format!("{CLEAR}; printf '%0100d\\n' 7; printf 'a\\rb   \\n'; echo E'N'D; exec cat");
    let joined =
        json!({"action": "send_and_capture", "session": "a", "text": text, "enter": true, "wait_for": "^END$"});
    bridge.ok(&joined);
    let number = format!("{:0100}", 7);
    assert_eq!(bridge.screen("a"), format!("{}\n{}\nb\nEND", &number[..80], &number[80..]));
    let body = json!({"action": "capture_pane", "session": "a", "join_wrapped": true});
    // Joined like tmux does: blanks at a line's end are kept. 3.2a adds the cells that exist (N61),
    // and their number depends on what it read at once.
    let joined = world.tmux(&["capture-pane", "-p", "-J", "-t", "a"]);
    assert_eq!(bridge.ok(&body)["output"], joined.trim_end());
    if world.tmux(&["display-message", "-p", "#{version}"]) == "3.2a" {
        let lines: Vec<&str> = joined.trim_end().lines().map(str::trim_end).collect();
        assert_eq!(lines, [&number, "b", "END"]);
    } else {
        assert_eq!(joined.trim_end(), format!("{number}\nb   \nEND"));
    }
    let not = json!({"action": "capture_pane", "session": "a", "join_wrapped": "true"});
    assert_eq!(bridge.ok(&not)["output"], bridge.screen("a"));
}

#[test]
fn a_missing_session_is_missing_for_every_action() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    for server in [false, true] {
        if server {
            bridge.session("other");
        }
        for name in ["gone", "0", "oth", "other2", "OTHER", "a.b"] {
            for body in [
                json!({"action": "send_keys", "session": name, "text": "x"}),
                json!({"action": "capture_pane", "session": name}),
                json!({"action": "send_and_capture", "session": name, "enter": true}),
                json!({"action": "send_and_capture", "session": name, "enter": true, "wait_for": "x"}),
                json!({"action": "kill_session", "session": name}),
            ] {
                let reply = bridge.act(&body);
                assert_eq!(
                    (reply.status, &reply.body),
                    (404, &error(&format!("can't find session: {name}"))),
                    "{body}"
                );
                reply.is_for(ORIGIN);
            }
        }
    }
}

/// The bridge sees a user's changes on the server, and makes the changes that a user would.
#[test]
fn sessions_that_others_make_and_end_are_the_bridges_too() {
    let world = World::with_server();
    let bridge = Bridge::new(&world);
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!(["main"]));
    bridge.ok(&json!({"action": "send_and_capture", "session": "main", "text": "echo a$((40+2))", "enter": true, "wait_for": "a42"}));
    world.session("made-by-hand");
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!(["made-by-hand", "main"]));
    bridge.session("ours");
    world.tmux(&["kill-session", "-t", "=made-by-hand"]);
    assert_eq!(bridge.act(&json!({"action": "capture_pane", "session": "made-by-hand"})).status, 404);
    assert_eq!(bridge.ok(&json!({"action": "list_sessions"}))["sessions"], json!(["main", "ours"]));
    // The session ends with its shell.
    bridge.ok(&json!({"action": "send_keys", "session": "ours", "text": "exit", "enter": true}));
    eventually("its session has gone", || {
        bridge.ok(&json!({"action": "list_sessions"}))["sessions"] == json!(["main"])
    });
}
