//! A pane that prints 60 MB as fast as it can, and its effect on other panes.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use base64::Engine as _;
use serde_json::{Value, json};

use super::{
    actors::{FLOOD_BYTES, LINE},
    control::{Control, age_of, stamp},
    http::Http,
    process,
    stage::{Daemon, Fifo, Tmux},
    table::{Goal, figure, part},
    times::Times,
    wait::{matched_stamp, wait_for_marker},
};

const ROUNDS: usize = 3;
/// The pause between two markers in the other pane.
const SIDE_PAUSE: Duration = Duration::from_millis(10);
const MIB: f64 = 1024.0 * 1024.0;

/// A server with a pane that floods and one that prints markers.
struct Flooded {
    tmux: Tmux,
    flood: Fifo,
    side: Fifo,
}

impl Flooded {
    fn new() -> Self {
        let (tmux, flood) = Tmux::playing("flood");
        let side = Fifo::new();
        assert_eq!(tmux.window(&side.command("marker")), "%1");
        Self { tmux, flood, side }
    }
}

pub fn run() {
    part("60 MB from one pane, while another pane prints markers");
    let (followed, bare) = (Flooded::new(), Flooded::new());
    let daemon = Daemon::new(&[]);
    let mut http = daemon.follow(&followed.tmux, 2);
    let mut control = Control::attach(&bare.tmux);
    let (mut by_muxtap, mut by_control) = (Times::default(), Times::default());
    let (mut side_muxtap, mut side_control) = (Times::default(), Times::default());
    let mut end_age = Times::default();
    for round in 0..ROUNDS {
        let id = format!("f{round}");
        by_control.push(flood_control(&bare, &mut control, &id, &mut side_control));
        let (took, age) = flood_muxtap(&followed, &daemon, &mut http, &id, &mut side_muxtap);
        by_muxtap.push(took);
        end_age.push(age);
    }
    let seconds = |times: &Times| times.p50() / 1e6;
    figure("bare control client, from start to last line seen, median", seconds(&by_control), "s", Goal::None);
    figure("muxtap, from start to the answer of the wait for it", seconds(&by_muxtap), "s", Goal::None);
    figure("muxtap / bare control client", by_muxtap.p50() / by_control.p50(), "x", Goal::AtMost(1.15));
    figure("daemon's memory, peak RSS", process::resident_peak(daemon.pid()) as f64 / MIB, "MiB", Goal::AtMost(150.0));
    figure("wait on the other pane meanwhile, p50", side_muxtap.p50() / 1e3, "ms", Goal::None);
    figure(
        &format!("wait on the other pane meanwhile, p99 ({} waits)", side_muxtap.len()),
        side_muxtap.p99() / 1e3,
        "ms",
        Goal::AtMost(100.0),
    );
    figure("the same for the bare control client, p99", side_control.p99() / 1e3, "ms", Goal::None);
    figure("last line written to its wait answered, median", end_age.p50() / 1e3, "ms", Goal::None);
    let (kept, whole) = read_back(&mut http);
    holds(
        "the last 1 MiB is whole",
        whole && kept >= 1 << 20,
        &format!("{kept} bytes read back, lines numbered without a hole"),
    );
}

/// Measures the flood with a bare control client.
fn flood_control(stage: &Flooded, control: &mut Control, id: &str, side: &mut Times) -> Duration {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let started = Instant::now();
        stage.flood.tell(id);
        scope.spawn(|| {
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                stage.side.tell(&format!("s{number} 0"));
                thread::sleep(SIDE_PAUSE);
            }
        });
        let end = format!("<{id} ");
        let mut number = 0;
        control.lines(|line| {
            if line.len() < 200
                && let Some(nanos) = stamp(line, &format!("s{number}"))
            {
                side.push(age_of(nanos));
                number += 1;
            }
            // Searched only at the end of a line: the last output is short.
            memchr::memmem::find(line.get(line.len().saturating_sub(400)..).unwrap_or(line), end.as_bytes()).is_some()
        });
        over.store(true, Ordering::Relaxed);
        started.elapsed()
    })
}

/// Measures the flood for a caller of muxtap. Returns its duration, and the age of its last line
/// when the wait for it got its response.
fn flood_muxtap(stage: &Flooded, daemon: &Daemon, http: &mut Http, id: &str, side: &mut Times) -> (Duration, Duration) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let wait =
            json!({"panes": ["%0"], "patterns": [format!(r"<{id} (\d+)>")], "since": "now", "timeout_ms": 300_000});
        http.send("POST", "/v1/waits", &wait.to_string());
        while daemon.http(&stage.tmux).get("/v1/status")["waits"] != 1 {
            thread::sleep(Duration::from_millis(1));
        }
        let started = Instant::now();
        stage.flood.tell(id);
        let others = scope.spawn(|| {
            let mut http = daemon.http(&stage.tmux);
            let mut times = Times::default();
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                times.push(wait_for_marker(&mut http, &stage.side, "%1", &format!("{id}s{number}")));
                thread::sleep(SIDE_PAUSE);
            }
            times
        });
        let answer = http.receive();
        let took = started.elapsed();
        over.store(true, Ordering::Relaxed);
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let age = age_of(matched_stamp(&answer));
        side.append(others.join().expect("the other pane's waits"));
        (took, age)
    })
}

/// Reads the retained part of the flood; returns its bytes, and whether it is complete up to the
/// last line.
fn read_back(http: &mut Http) -> (usize, bool) {
    let mut bytes = Vec::new();
    let mut since = "start".to_owned();
    loop {
        let answer = http.get(&format!("/v1/panes/%250/output?since={since}&format=raw&max_bytes=8388608"));
        let data = answer["data"].as_str().expect("raw bytes");
        bytes.extend(base64::engine::general_purpose::STANDARD.decode(data).expect("base64"));
        if answer["more"] != true {
            break;
        }
        answer["cursor"].as_str().expect("a cursor").clone_into(&mut since);
    }
    let text = String::from_utf8_lossy(&bytes);
    // The first line is cut; the last one is the marker.
    let numbers: Vec<usize> = text.lines().skip(1).filter_map(|line| line.get(..10)?.parse().ok()).collect();
    let whole = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1])
        && numbers.last() == Some(&(FLOOD_BYTES / LINE - 1))
        && numbers.len() + 3 > bytes.len() / (LINE + 1);
    (bytes.len(), whole)
}

/// Prints whether a condition holds.
fn holds(name: &str, holds: bool, what: &str) {
    println!("{} {name:<58} {what}", if holds { '+' } else { '-' });
}
