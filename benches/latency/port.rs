//! HTTP over TCP: the captures that a core serves, and a thousand waits at once.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    http::Http,
    process,
    stage::{Daemon, Tmux},
    table::{Goal, figure, part},
};

const CLIENTS: usize = 8;
const CAPTURING: Duration = Duration::from_secs(4);
const WAITS: usize = 1000;

pub fn run() {
    part("HTTP over TCP with a token, keep-alive");
    let tmux = Tmux::new("seq 1 100; exec cat");
    let daemon = Daemon::new(&["--http", "127.0.0.1:0"]);
    let mut http = daemon.follow(&tmux, 1);
    let (addr, token) = daemon.port();
    let connect = || Http::over_tcp(&addr, &token, tmux.socket());

    let (answered, cpu, started) = (AtomicU64::new(0), process::cpu(daemon.pid()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut http = connect();
                while started.elapsed() < CAPTURING {
                    http.send("GET", "/v1/panes/%250/capture", "");
                    assert!(http.receive().len() > 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let captures = answered.load(Ordering::Relaxed) as f64;
    let (took, cpu) = (started.elapsed(), process::cpu(daemon.pid()).saturating_sub(cpu));
    figure(&format!("captures, {CLIENTS} clients at once"), captures / took.as_secs_f64(), "/s", Goal::None);
    let a_core = captures / cpu.as_secs_f64();
    figure("captures for a second of the daemon's CPU", a_core, "/s", Goal::AtLeast(2000.0));

    let mut waits: Vec<Http> = (0..WAITS).map(|_| connect()).collect();
    let wait = json!({"panes": ["%0"], "patterns": ["GO(NE)"], "since": "now", "timeout_ms": 60_000}).to_string();
    for http in &mut waits {
        http.send("POST", "/v1/waits", &wait);
    }
    while http.metric("muxtap_waits_active") < WAITS as f64 {
        std::thread::sleep(Duration::from_millis(5));
    }
    tmux.ask(&["send-keys", "-t", "%0", "-l", "GONE"]);
    let written = Instant::now();
    let answers = waits.iter_mut().map(|http| serde_json::from_slice::<Value>(&http.receive()).expect("JSON"));
    let is_right = |answer: &Value| answer["outcome"] == "matched" && answer["predicates"][0]["captures"][1] == "NE";
    let right = answers.filter(is_right).count();
    figure("waits open at once that were answered rightly", right as f64, "", Goal::AtLeast(WAITS as f64));
    figure("until the last of them was", written.elapsed().as_secs_f64() * 1e3, "ms", Goal::None);
}
