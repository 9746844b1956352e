//! The daemon's one thread is held by nothing that a caller may ask for.

use std::{
    io::Read as _,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{common::World, subscribers::Sse};

/// How long a small request takes.
fn ping(world: &World) -> Duration {
    let began = Instant::now();
    assert_eq!(world.http("GET", "/health", None).status, 200);
    began.elapsed()
}

#[test]
fn a_pattern_of_many_stars_is_answered_like_any_other() {
    let world = World::with_server();
    world.tmux(&["new-session", "-d", "-s", &"a".repeat(120)]);
    world.ok(&["list-panes"]);
    let stars = "*a".repeat(60) + "*b";
    let (asked, began) = (Instant::now(), Instant::now());
    thread::scope(|scope| {
        let events = scope.spawn(|| Sse::open(&world, &format!("panes={stars}&types=output")));
        while !events.is_finished() {
            assert!(ping(&world) < Duration::from_secs(5), "the daemon is held");
            assert!(began.elapsed() < Duration::from_secs(20), "no answer");
        }
        events.join().unwrap();
    });
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let long = Sse::ask(&world, &format!("panes={}", "*a".repeat(600)), None).err().unwrap();
    assert_eq!(long["code"], "INVALID_ARGUMENT", "{long}");
}

#[test]
fn patterns_that_take_long_to_compile_hold_nobody() {
    const SETS: usize = 12;
    let world = World::with_server();
    let pane = world.window("exec cat");
    world.ok(&["list-panes"]);
    let path = format!("/v1/waits{}", world.query());
    // Large, and allowed.
    let heavy = json!({ "panes": [pane], "patterns": vec![r"\pL{40}x"; 4], "since": "now", "detach": true });
    let began = Instant::now();
    assert_eq!(world.http("POST", &path, Some(&heavy)).status, 200);
    let one = began.elapsed();
    let mut pings = Vec::new();
    thread::scope(|scope| {
        let asked: Vec<_> = (0..SETS)
            .map(|_| {
                let mut stream = world.http_send("POST", &path, Some(&heavy));
                scope.spawn(move || {
                    let mut head = [0; 12];
                    stream.read_exact(&mut head).unwrap();
                    assert_eq!(&head, b"HTTP/1.1 200");
                })
            })
            .collect();
        while asked.iter().any(|asked| !asked.is_finished()) {
            pings.push(ping(&world));
        }
    });
    pings.sort_unstable();
    let median = pings[pings.len() / 2];
    // Compiled one after the other where everybody is answered, each ping would stand behind one at least.
    assert!(pings.len() > 2 * SETS && median < one / 2, "{} pings, median {median:?}; a set: {one:?}", pings.len());
}

/// A long line is shown again as it is typed, and a wait's pattern matches each of its characters.
#[test]
fn the_echo_of_a_long_line_holds_nobody() {
    let world = World::with_server();
    let pane = world.window("exec cat");
    world.ok(&["list-panes"]);
    let wait = json!({
        "panes": [pane], "patterns": ["x", "x+", "[[:alpha:]]"], "since": "now", "detach": true,
        "timeout_ms": 60_000
    });
    for body in [json!({ "text": "x x x ".repeat(600) }), json!({ "text": "x".repeat(3900) })] {
        for _ in 0..6 {
            let begun = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&wait));
            assert_eq!(begun.status, 200, "{begun:?}");
            let path = format!("/v1/panes/{}/input{}", pane.replace('%', "%25"), world.query());
            assert_eq!(world.http("POST", &path, Some(&body)).status, 200);
            let took = ping(&world);
            assert!(took < Duration::from_secs(2), "the daemon is held: {took:?}");
        }
        let enter = json!({ "keys": ["Enter"] });
        let path = format!("/v1/panes/{}/input{}", pane.replace('%', "%25"), world.query());
        assert_eq!(world.http("POST", &path, Some(&enter)).status, 200);
        assert!(ping(&world) < Duration::from_secs(2), "the daemon is held");
    }
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
        // Requests are read in the order in which they come: when this one is answered the wait's has been read.
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
