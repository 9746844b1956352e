//! A string (OSC, DCS, APC, title) that a program begins and never ends: tmux discards it after
//! five seconds, and so do reads, waits and screens.

use std::{thread::sleep, time::Duration};

use crate::common::{World, eventually};

/// The time after which tmux has discarded a string and muxtap has noticed.
const OVER: &str = "5.5";

/// Creates a pane that runs a script.
fn pane(world: &World, script: &str) -> String {
    let pane = world.ok(&["new-session", "-x", "60", "-y", "15", "--", "sh"]);
    world.await_output(&pane, "[$#] $");
    let file = world.path(&format!("script{pane}"));
    std::fs::write(&file, script).unwrap();
    world.ok(&["send-keys", "-t", &pane, &format!("exec sh {}", file.display()), "Enter"]);
    pane
}

#[test]
fn output_after_an_abandoned_string_can_be_read_and_matched() {
    let world = World::new();
    let strings = [("osc", r"\033]2;never"), ("dcs", r"\033Pq"), ("apc", r"\033_x"), ("name", r"\033kx")];
    // All at once: each takes more than five seconds.
    let panes = strings.map(|(what, string)| {
        let script = format!(
            "printf 'before {string} swallowed'; sleep {OVER}; printf 'aft'; printf 'er\\n'; sleep 1; echo more; exec sleep 1000"
        );
        (what, pane(&world, &script))
    });
    for (what, pane) in panes {
        let wait = world.muxtap(&["wait-for", "-t", &pane, "-p", "^before after$", "--since", "input", "-T", "20"]);
        assert_eq!((wait.status, wait.text().as_str()), (0, "before after\n"), "{what}: {wait:?}");
        world.ok(&["wait-for", "-t", &pane, "-p", "^more$", "--since", "input", "-T", "20"]);
        let text = world.read_all(&pane);
        assert!(text.contains("before after\nmore"), "{what}: {text:?}");
        assert!(!text.contains("swallowed") && !text.contains("never"), "{what}: {text:?}");
        let all = world.json(&["read", "-t", &pane, "--since", "start"]);
        assert!(all["gap"].is_null(), "nothing is missing: {all}");
        // The same in pieces of any size.
        let (mut since, mut pieces) = ("start".to_owned(), String::new());
        loop {
            let piece = world.json(&["read", "-t", &pane, "--since", &since, "--max-bytes", "7"]);
            pieces += piece["text"].as_str().unwrap();
            if piece["more"].as_bool() != Some(true) {
                break;
            }
            let cursor = piece["cursor"].as_str().unwrap().to_owned();
            assert_ne!(cursor, since, "{piece}");
            since = cursor;
        }
        assert_eq!(pieces, all["text"].as_str().unwrap(), "{what}");
        // The point of discarding is part of the stream: tmux shows the same.
        let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        assert!(shown.contains("before after\nmore"), "{what}: {shown}");
    }
}

#[test]
fn a_string_that_keeps_growing_is_abandoned_midway() {
    let world = World::new();
    let script = "printf 'before \\033]2;never'; for i in 1 2 3 4 5 6 7; do sleep 0.95; printf $i; done; echo .; exec sleep 1000";
    let pane = pane(&world, script);
    let wait = world.muxtap(&["wait-for", "-t", &pane, "-p", r"^before .*\.$", "--since", "input", "-T", "20"]);
    assert_eq!((wait.status, wait.text().as_str()), (0, "before 67.\n"), "{wait:?}");
    assert!(world.tmux(&["capture-pane", "-p", "-t", &pane]).contains("before 67."));
}

#[test]
fn the_screen_is_known_again_when_tmux_has_given_up() {
    let world = World::new();
    let script = format!("printf '\\033[31mred\\033]2;never'; sleep {OVER}; printf 'plain\\n'; exec sleep 1000");
    let pane = pane(&world, &script);
    world.ok(&["wait-for", "-t", &pane, "-p", "^redplain$", "--since", "input", "-T", "20"]);
    let captured = world.muxtap(&["capture-pane", "-t", &pane, "-e", "--verify", "--json"]);
    if captured.stderr.contains("the screens of this version of tmux are not followed in memory") {
        return;
    }
    let captured = captured.json();
    assert_eq!(captured["verified"]["same"], true, "{captured}");
    let metrics = String::from_utf8(world.http("GET", "/metrics", None).body).unwrap();
    assert!(!metrics.contains(r#"reason="open-string""#), "it is known, and was never doubted: {metrics}");
}

#[test]
fn a_string_that_was_open_when_the_pane_was_first_seen_ends_too() {
    let world = World::new();
    world.session("main");
    let script = "printf 'early \\033]2;never'; sleep 7; echo late; exec sleep 1000";
    let pane = world.window(&format!("sh -c {}", shell(script)));
    sleep(Duration::from_millis(500));
    // tmux reports the pending sequence.
    eventually("the string is begun", || world.tmux(&["capture-pane", "-p", "-t", &pane]).contains("early"));
    let wait = world.muxtap(&["wait-for", "-t", &pane, "-p", "^early late$", "--since", "start", "-T", "20"]);
    assert_eq!(wait.status, 0, "{wait:?}");
}

/// Quotes a script for a shell.
fn shell(script: &str) -> String {
    format!("'{}'", script.replace('\'', r"'\''"))
}
