//! No request can block the daemon's one thread.

use std::io::Read as _;

use serde_json::json;

use crate::{
    common::{Http, Stopped, World, is_silent, ticks},
    subscribers::Sse,
};

/// Sends a small request, which must get a response.
fn ping(world: &World) {
    assert_eq!(world.http("GET", "/health", None).status, 200);
}

#[test]
fn a_pattern_of_many_stars_is_answered_like_any_other() {
    let world = World::with_server();
    world.tmux(&["new-session", "-d", "-s", &"a".repeat(120)]);
    world.ok(&["list-panes"]);
    let stars = "*a".repeat(60) + "*b";
    // If each way to place the stars were tried, neither of the two would get a response.
    Sse::open(&world, &format!("panes={stars}&types=output"));
    ping(&world);
    let long = Sse::ask(&world, &format!("panes={}", "*a".repeat(600)), None).err().unwrap();
    assert_eq!(long["code"], "INVALID_ARGUMENT", "{long}");
}

#[test]
fn patterns_that_compile_slowly_delay_no_caller() {
    const SETS: usize = 12;
    let world = World::with_server();
    let pane = world.window("exec cat");
    world.ok(&["list-panes"]);
    let path = format!("/v1/waits{}", world.query());
    // Large, and allowed. No two are equal: those would be compiled once.
    let heavy = |number: usize| {
        let patterns = vec![format!(r"\pL{{40}}x{number}"); 4];
        json!({ "panes": [pane], "patterns": patterns, "since": "now", "detach": true })
    };
    assert_eq!(world.http("POST", &path, Some(&heavy(SETS))).status, 200);
    // The daemon finds all of them at once, and the small request behind them. If they were
    // compiled on the thread that handles requests, its response would come after the last set.
    let daemon = Stopped::new(world.daemon_pid().unwrap());
    let asked: Vec<_> = (0..SETS).map(|number| world.http_send("POST", &path, Some(&heavy(number)))).collect();
    let small = world.http_send("GET", "/health", None);
    drop(daemon);
    assert_eq!(Http::read(small).status, 200);
    assert!(asked.iter().any(is_silent), "it was answered behind all sets");
    for mut asked in asked {
        let mut head = [0; 12];
        asked.read_exact(&mut head).unwrap();
        // It was compiled; one caller may not keep that many.
        assert!(head.starts_with(b"HTTP/1.1 200") || head.starts_with(b"HTTP/1.1 429"));
    }
}

/// A long line is redrawn as it is typed, and a wait's pattern matches each of its characters. The
/// cost is compared with that of the same input without a wait: both in the daemon's own processor
/// time, which does not depend on how busy the machine is.
#[cfg(target_os = "linux")]
#[test]
fn the_echo_of_a_long_line_holds_nobody() {
    let used = |patterns: &[&str]| {
        let world = World::with_server();
        let pane = world.window("exec cat");
        world.ok(&["list-panes"]);
        let daemon = world.daemon_pid().unwrap();
        let before = ticks(daemon);
        let wait = json!({
            "panes": [pane], "patterns": patterns, "since": "now", "detach": true, "timeout_ms": 600_000
        });
        let path = format!("/v1/panes/{}/input{}", pane.replace('%', "%25"), world.query());
        for body in [json!({ "text": "x x x ".repeat(600) }), json!({ "text": "x".repeat(3900) })] {
            for _ in 0..6 {
                let begun = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&wait));
                assert_eq!(begun.status, 200, "{begun:?}");
                assert_eq!(world.http("POST", &path, Some(&body)).status, 200);
                ping(&world);
            }
            assert_eq!(world.http("POST", &path, Some(&json!({ "keys": ["Enter"] }))).status, 200);
            ping(&world);
        }
        ticks(daemon) - before
    };
    let (without, with) = (used(&["nothing of that"]), used(&["x", "x+", "[[:alpha:]]"]));
    println!("processor time: {without} ticks where nothing matches, {with} where each character does");
    // Matching again for each character took hundreds of times as much.
    assert!(with < 20 * without.max(10), "{without} and {with} ticks");
}

/// Output that is printed while the patterns compile belongs to the wait.
#[test]
fn a_wait_begins_when_it_is_asked_for_however_long_its_patterns_compile() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; exec cat");
    world.await_output(&pane, "^ready");
    let mut patterns = vec![r"^DONE [0-9]+$".to_owned()];
    patterns.extend(vec![r"\pL{40}x".to_owned(); 4]);
    for number in 0..5 {
        let wait = json!({
            "panes": [pane], "since": "now", "patterns": ["^nothing$"], "fail": patterns, "timeout_ms": 20_000
        });
        let mut answer = world.http_send("POST", &format!("/v1/waits{}", world.query()), Some(&wait));
        // Requests are read in order: a response to this one means that the wait's has been read.
        ping(&world);
        world.ok(&["send-keys", "-t", &pane, "-l", &format!("DONE {number}\n")]);
        let mut text = String::new();
        while !text.contains(&format!("DONE {number}\"")) {
            let mut bytes = [0; 4096];
            let read = answer.read(&mut bytes).unwrap();
            assert!(read > 0, "{text}");
            text += &String::from_utf8_lossy(&bytes[..read]);
        }
    }
}
