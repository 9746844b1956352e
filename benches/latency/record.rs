//! A pane that prints 60 MB, with and without a recording of it, in turns.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    http::Http,
    stage::{Daemon, Fifo, Tmux},
    table::{Goal, figure, part},
    times::Times,
};

const ROUNDS: usize = 7;
const MIB: f64 = 1024.0 * 1024.0;

pub fn run() {
    part("60 MB from one pane that is recorded");
    let (tmux, flood) = Tmux::playing("flood");
    let daemon = Daemon::new(&[]);
    let mut http = daemon.follow(&tmux, 1);
    let file = std::env::temp_dir().join(format!("muxtap-bench-{}.cast", std::process::id()));
    let (mut plain, mut recorded) = (Times::default(), Times::default());
    let (mut bytes, mut gaps) = (0, 0);
    // The first round of each is not counted: the ring grows.
    for round in 0..=ROUNDS {
        let alone = flooded(&mut http, &flood, &format!("p{round}"));
        let body = json!({"pane": "%0", "file": file}).to_string();
        let recording = asked(&mut http, "POST", "/v1/recordings", &body);
        let id = recording["id"].as_str().expect("an id").to_owned();
        let both = flooded(&mut http, &flood, &format!("r{round}"));
        let ended = asked(&mut http, "DELETE", &format!("/v1/recordings/{id}"), "");
        let _ = fs::remove_file(&file);
        if round > 0 {
            plain.push(alone);
            recorded.push(both);
            bytes += ended["bytes"].as_u64().unwrap_or_default();
            gaps += ended["gaps"].as_u64().unwrap_or_default();
        }
    }
    figure("alone, from start to the answer of the wait for its end, median", plain.p50() / 1e6, "s", Goal::None);
    figure("recorded, median", recorded.p50() / 1e6, "s", Goal::None);
    figure("recorded / alone", recorded.p50() / plain.p50(), "x", Goal::AtMost(1.05));
    figure("file of a round", bytes as f64 / ROUNDS as f64 / MIB, "MiB", Goal::None);
    figure(&format!("places without output in {ROUNDS} recordings"), gaps as f64, "", Goal::None);
}

fn asked(http: &mut Http, method: &str, path: &str, body: &str) -> Value {
    http.send(method, path, body);
    serde_json::from_slice(&http.receive()).expect("JSON")
}

/// Measures the flood for a caller that waits for its last line.
pub fn flooded(http: &mut Http, flood: &Fifo, id: &str) -> Duration {
    let pattern = format!(r"<{id} (\d+)>");
    let wait = json!({"panes": ["%0"], "patterns": [pattern], "since": "now", "timeout_ms": 300_000, "detach": true});
    let wait = asked(http, "POST", "/v1/waits", &wait.to_string());
    let started = Instant::now();
    flood.tell(id);
    let path = format!("/v1/waits/{}", wait["id"].as_str().expect("an id"));
    let ended = asked(http, "GET", &format!("{path}?timeout_ms=300000"), "");
    assert_eq!(ended["outcome"], "matched", "{ended}");
    started.elapsed()
}
