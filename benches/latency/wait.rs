//! The time from a pane's write to a wait's response.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    control::{Control, age_of, stamp},
    http::Http,
    stage::{Daemon, Fifo, Tmux},
    table::{Goal, figure, part},
    times::Times,
};

const ROUNDS: usize = 20;
/// The samples of each way in a round; the capture loop needs more time for each.
const SAMPLES: usize = 25;
const CAPTURES: usize = 3;
/// The delay of the marker after its request: by then the wait has begun.
const DELAY_US: u64 = 4000;
/// The pause of the capturing loop.
const LOOP: Duration = Duration::from_millis(100);

pub fn run() {
    part(
        "Pane's write to the answer of a wait (Unix socket), a bare control client, a loop of `tmux capture-pane` each 100 ms",
    );
    let (followed, followed_fifo) = Tmux::playing("marker");
    let (bare, bare_fifo) = Tmux::playing("marker");
    let (polled, polled_fifo) = Tmux::playing("marker");
    let daemon = Daemon::new(&[]);
    let mut http = daemon.follow(&followed, 1);
    let mut control = Control::attach(&bare);
    let (mut by_muxtap, mut by_control, mut by_capture) = (Times::default(), Times::default(), Times::default());
    for round in 0..ROUNDS {
        for sample in 0..SAMPLES {
            by_muxtap.push(wait_for_marker(&mut http, &followed_fifo, "%0", &format!("w{round}-{sample}")));
        }
        for sample in 0..SAMPLES {
            let id = format!("b{round}-{sample}");
            bare_fifo.tell(&format!("{id} {DELAY_US}"));
            by_control.push(control.marker(&id));
        }
        for sample in 0..CAPTURES {
            let id = format!("c{round}-{sample}");
            // Out of step with the loop.
            let delay = DELAY_US + (round * CAPTURES + sample) as u64 * 7919 % 100_000;
            by_capture.push(capture_loop(&polled, &polled_fifo, &id, delay));
        }
    }
    let samples = by_muxtap.len();
    figure(&format!("bare control client p50 ({samples} samples)"), by_control.p50(), "us", Goal::None);
    figure("bare control client p99", by_control.p99(), "us", Goal::None);
    figure("muxtap wait p50", by_muxtap.p50(), "us", Goal::None);
    figure("muxtap wait p99", by_muxtap.p99(), "us", Goal::AtMost(5000.0));
    figure(&format!("capture loop p50 ({} samples)", by_capture.len()), by_capture.p50(), "us", Goal::None);
    figure("capture loop p99", by_capture.p99(), "us", Goal::None);
    figure("muxtap / bare control client, p50", by_muxtap.p50() / by_control.p50(), "x", Goal::AtMost(2.0));
    figure("muxtap / bare control client, p99", by_muxtap.p99() / by_control.p99(), "x", Goal::None);
    figure("capture loop / muxtap, p50", by_capture.p50() / by_muxtap.p50(), "x", Goal::AtLeast(50.0));
}

/// Makes muxtap wait for a marker and has it printed; returns the marker's age when the whole
/// response had been read.
pub fn wait_for_marker(http: &mut Http, fifo: &Fifo, pane: &str, id: &str) -> Duration {
    let wait = json!({"panes": [pane], "patterns": [format!(r"<{id} (\d+)>")], "since": "now", "timeout_ms": 60_000});
    http.send("POST", "/v1/waits", &wait.to_string());
    fifo.tell(&format!("{id} {DELAY_US}"));
    let answer = http.receive();
    let read_at = super::actors::now();
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    read_at.saturating_sub(Duration::from_nanos(matched_stamp(&answer)))
}

/// Returns the time in the marker that a wait matched.
pub fn matched_stamp(answer: &Value) -> u64 {
    assert_eq!(answer["outcome"], "matched", "{answer}");
    answer["predicates"][0]["captures"][1].as_str().and_then(|nanos| nanos.parse().ok()).expect("the marker's time")
}

fn capture_loop(tmux: &Tmux, fifo: &Fifo, id: &str, delay: u64) -> Duration {
    fifo.tell(&format!("{id} {delay}"));
    loop {
        let screen = tmux.ask(&["capture-pane", "-p", "-t", "%0"]);
        if let Some(nanos) = stamp(screen.as_bytes(), id) {
            return age_of(nanos);
        }
        std::thread::sleep(LOOP);
    }
}
