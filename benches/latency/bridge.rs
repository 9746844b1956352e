//! The spreadsheet bridge: from a pane's write to the response of `send_and_capture`, beside the
//! loop that it replaces.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    control::{Control, age_of, stamp},
    http::Http,
    process,
    stage::{self, Fifo, Tmux},
    table::{Goal, figure, part},
    times::Times,
};

const ROUNDS: usize = 10;
/// The samples of each way in a round; the loop needs more time for each.
const SAMPLES: usize = 25;
const LOOPS: usize = 5;
/// The delay of the marker after its request: by then the wait has begun.
const DELAY_US: u64 = 4000;
/// The pause of the loop, as in the first bridge.
const PAUSE: Duration = Duration::from_millis(120);
const WAITS: usize = 1000;
const CLIENTS: usize = 8;
const CAPTURING: Duration = Duration::from_secs(3);

/// A bridge with its own tmux server.
struct Bridge {
    child: Child,
    addr: String,
    dir: TempDir,
}

impl Bridge {
    fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let mut child = Command::new(env!("CARGO_BIN_EXE_muxtap"))
            .arg("bridge")
            .env("PORT", "0")
            .env("TMUX_BRIDGE_SOCKET_PATH", dir.path().join("s"))
            .env("MUXTAP_AUDIT_FILE", dir.path().join("audit"))
            .env_remove("TMUX")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("muxtap runs");
        stage::ends_with_us(dir.path().join("s"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it listens");
        let addr = line.trim().rsplit('/').next().expect("an address").to_owned();
        Self { child, addr, dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn http(&self) -> Http {
        Http::as_page(&self.addr, "https://localhost:3000")
    }

    /// Creates a session that prints the markers of `fifo`.
    fn play(&self, session: &str, fifo: &Fifo) {
        let mut http = self.http();
        ask(&mut http, &json!({"action": "create_session", "session": session}));
        ask(
            &mut http,
            &json!({"action": "send_keys", "session": session, "text": fifo.command("marker"), "enter": true}),
        );
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(self.socket()).args(args).output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        stage::end_server(Path::new(&self.socket()));
    }
}

fn ask(http: &mut Http, body: &Value) -> Value {
    http.send("POST", "/v1/tmux", &body.to_string());
    let answer: Value = serde_json::from_slice(&http.receive()).expect("JSON");
    assert_eq!(answer["ok"], true, "{body}: {answer}");
    answer
}

fn send_and_wait(session: &str, pattern: &str) -> String {
    json!({"action": "send_and_capture", "session": session, "enter": true, "wait_for": pattern, "timeout_ms": 120_000})
        .to_string()
}

pub fn run() {
    part("The bridge: pane's write to the answer of send_and_capture over HTTP, a loop of capture_pane each 120 ms");
    let bridge = Bridge::new();
    let fifo = Fifo::new();
    let mut http = bridge.http();
    bridge.play("bench", &fifo);
    let (bare, bare_fifo) = Tmux::playing("marker");
    let mut control = Control::attach(&bare);
    let (mut by_wait, mut by_loop, mut by_control) = (Times::default(), Times::default(), Times::default());
    for round in 0..ROUNDS {
        for sample in 0..SAMPLES {
            let id = format!("w{round}-{sample}");
            by_wait.push(marker(&mut http, &fifo, &id, &format!("<{id} \\d+>")));
        }
        for sample in 0..SAMPLES {
            let id = format!("b{round}-{sample}");
            bare_fifo.tell(&format!("{id} {DELAY_US}"));
            by_control.push(control.marker(&id));
        }
        for sample in 0..LOOPS {
            // Out of step with the loop.
            let delay = DELAY_US + (round * LOOPS + sample) as u64 * 7919 % 120_000;
            by_loop.push(capture_loop(&mut http, &fifo, &format!("l{round}-{sample}"), delay));
        }
    }
    let samples = by_wait.len();
    figure(&format!("bare control client p50 ({samples} samples)"), by_control.p50(), "us", Goal::None);
    figure("send_and_capture with wait_for, p50", by_wait.p50(), "us", Goal::AtMost(2000.0));
    figure("send_and_capture with wait_for, p99", by_wait.p99(), "us", Goal::None);
    figure(&format!("capture_pane each 120 ms, p50 ({} samples)", by_loop.len()), by_loop.p50(), "us", Goal::None);
    figure("the loop / wait_for, p50", by_loop.p50() / by_wait.p50(), "x", Goal::None);
    thousand_waits(&bridge);
    captures(&bridge);
}

/// Makes the bridge wait for a marker and has it printed; returns the marker's age when the whole
/// response had been read.
fn marker(http: &mut Http, fifo: &Fifo, id: &str, pattern: &str) -> Duration {
    http.send("POST", "/v1/tmux", &send_and_wait("bench", pattern));
    fifo.tell(&format!("{id} {DELAY_US}"));
    let answer = http.receive();
    age_of(stamp(&answer, id).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&answer))))
}

fn capture_loop(http: &mut Http, fifo: &Fifo, id: &str, delay: u64) -> Duration {
    fifo.tell(&format!("{id} {delay}"));
    let capture = json!({"action": "capture_pane", "session": "bench"}).to_string();
    loop {
        http.send("POST", "/v1/tmux", &capture);
        if let Some(nanos) = stamp(&http.receive(), id) {
            return age_of(nanos);
        }
        std::thread::sleep(PAUSE);
    }
}

/// A thousand waits on one pane, each with its own pattern.
fn thousand_waits(bridge: &Bridge) {
    let fifo = Fifo::new();
    bridge.play("crowd", &fifo);
    let lines = |bridge: &Bridge| {
        let place = bridge.tmux(&["display-message", "-p", "-t", "crowd", "#{history_size} #{cursor_y}"]);
        place.split(' ').map(|number| number.parse::<usize>().expect("a number")).sum::<usize>()
    };
    let before = lines(bridge);
    let asked = Instant::now();
    let mut waits: Vec<Http> = (0..WAITS)
        .map(|number| {
            let mut http = bridge.http();
            http.send("POST", "/v1/tmux", &send_and_wait("crowd", &format!("<all \\d+>(?:{number})?")));
            http
        })
        .collect();
    // Each wait has pressed Enter once.
    while lines(bridge) < before + WAITS {
        std::thread::sleep(Duration::from_millis(5));
    }
    figure("until 1000 waits had typed", asked.elapsed().as_secs_f64() * 1e3, "ms", Goal::None);
    // Now the last of them check for the first time.
    std::thread::sleep(Duration::from_millis(500));
    fifo.tell(&format!("all {DELAY_US}"));
    let ages: Vec<Duration> = waits.iter_mut().filter_map(|http| stamp(&http.receive(), "all").map(age_of)).collect();
    figure("waits open at once that were answered rightly", ages.len() as f64, "", Goal::AtLeast(WAITS as f64));
    let last = ages.iter().max().copied().unwrap_or_default();
    figure("until the last of them was", last.as_secs_f64() * 1e3, "ms", Goal::None);
}

fn captures(bridge: &Bridge) {
    let pid = bridge.child.id();
    let capture = json!({"action": "capture_pane", "session": "bench", "lines": 1}).to_string();
    let (answered, cpu, started) = (AtomicU64::new(0), process::cpu(pid), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut http = bridge.http();
                while started.elapsed() < CAPTURING {
                    http.send("POST", "/v1/tmux", &capture);
                    assert!(http.receive().len() > 50);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let captures = answered.load(Ordering::Relaxed) as f64;
    figure("captures, 8 clients at once", captures / started.elapsed().as_secs_f64(), "/s", Goal::None);
    let cpu = process::cpu(pid).saturating_sub(cpu);
    figure("captures for a second of the bridge's CPU", captures / cpu.as_secs_f64(), "/s", Goal::AtLeast(2000.0));
}
