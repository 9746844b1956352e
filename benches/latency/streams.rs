//! Many readers of event streams: their cost to tmux, the engine and each other, on a flood and on
//! a pane that prints steadily.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::{mpsc, watch},
};

use super::{
    actors::now,
    http::Http,
    process,
    stage::{Daemon, Fifo, Tmux},
    table::{Goal, figure, part},
    times::Times,
    wait::matched_stamp,
};

const ROUNDS: usize = 3;
const READERS: usize = 50;
/// The pause between two markers in the other pane.
const SIDE_PAUSE: Duration = Duration::from_millis(10);
/// The delay of a marker after its request.
const SIDE_DELAY_US: u64 = 4000;
/// The interval of a WebSocket's pongs.
const PONG: Duration = Duration::from_secs(10);
const MIB: f64 = 1024.0 * 1024.0;

/// A client to be connected.
#[derive(Clone)]
pub struct Plan {
    pub daemon: PathBuf,
    pub server: PathBuf,
    /// The pane to follow.
    pub pane: usize,
    pub websocket: bool,
}

/// Clients in a separate thread. They read until dropped, or until each has seen `last`.
pub struct Clients {
    open: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
    seen: thread::JoinHandle<Vec<Seen>>,
}

/// The counters of one client's output, and its age.
#[derive(Default)]
pub struct Seen {
    bytes: u64,
    gaps: u64,
    /// The number of markers `<NUMBER NANOSECONDS>`.
    pub marks: u64,
    /// The age of the newest marker at each read.
    pub ages: Times,
}

impl Plan {
    /// Subscribes to all output of its pane, from now on.
    async fn connect(&self) -> UnixStream {
        let mut stream = UnixStream::connect(&self.daemon).await.expect("the daemon answers");
        let socket = self.server.display();
        if self.websocket {
            let upgrade = format!(
                "GET /v1/stream?socket={socket} HTTP/1.1\r\nhost: bench\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            stream.write_all(upgrade.as_bytes()).await.expect("the daemon reads");
            head(&mut stream).await;
            let subscribe =
                json!({"id": 1, "op": "subscribe", "panes": [format!("%{}", self.pane)], "types": ["output"]})
                    .to_string();
            // Masked with zeros.
            let mut frame = vec![0x81, 0x80 | u8::try_from(subscribe.len()).expect("short"), 0, 0, 0, 0];
            frame.extend(subscribe.as_bytes());
            stream.write_all(&frame).await.expect("the daemon reads");
        } else {
            let path = format!("/v1/events?socket={socket}&panes=%25{}&types=output", self.pane);
            let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("the daemon reads");
            head(&mut stream).await;
        }
        // The first event is the subscription's begin.
        let mut begin = [0; 4096];
        let read = stream.read(&mut begin).await.expect("the daemon answers");
        assert!(memchr::memmem::find(&begin[..read], b"r1.").is_some(), "{}", String::from_utf8_lossy(&begin[..read]));
        stream
    }
}

/// Reads a response's head.
async fn head(stream: &mut UnixStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the daemon answers"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101") || head.starts_with(b"HTTP/1.1 200"));
}

impl Clients {
    /// Connects the clients. `marks`: each client ends when it has seen this many markers.
    pub fn new(plans: Vec<Plan>, marks: Option<u64>) -> Self {
        let open = Arc::new(AtomicUsize::new(0));
        let (stop, stopped) = watch::channel(false);
        let (counted, wanted) = (open.clone(), plans.len());
        let seen = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let (done, mut all) = mpsc::unbounded_channel();
                for plan in plans {
                    let (counted, stopped, done) = (counted.clone(), stopped.clone(), done.clone());
                    tokio::spawn(async move {
                        let stream = plan.connect().await;
                        counted.fetch_add(1, Ordering::Relaxed);
                        let _ = done.send(read(stream, plan.websocket, stopped, marks).await);
                    });
                }
                drop(done);
                let mut seen = Vec::new();
                while let Some(one) = all.recv().await {
                    seen.push(one);
                }
                seen
            })
        });
        while open.load(Ordering::Relaxed) < wanted {
            thread::sleep(Duration::from_millis(1));
        }
        Self { open, stop, seen }
    }

    pub fn stop(self) -> Vec<Seen> {
        let _ = self.stop.send(true);
        assert!(self.open.load(Ordering::Relaxed) > 0 || self.seen.is_finished());
        self.seen.join().expect("the clients")
    }

    fn join(self) -> Vec<Seen> {
        self.seen.join().expect("the clients")
    }
}

/// Reads until it is stopped or has seen enough.
async fn read(mut stream: UnixStream, websocket: bool, mut stopped: watch::Receiver<bool>, marks: Option<u64>) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = vec![0; 256 * 1024];
    let mut pong = tokio::time::interval(PONG);
    loop {
        let read = tokio::select! {
            read = stream.read(&mut buffer) => Some(read.expect("the daemon writes")),
            _ = pong.tick(), if websocket => None,
            _ = stopped.wait_for(|stop| *stop) => return seen,
        };
        let Some(read) = read else {
            // Masked with zeros. An unsolicited pong replaces a reply to pings (RFC 6455, 5.5.3).
            stream.write_all(&[0x8a, 0x80, 0, 0, 0, 0]).await.expect("the daemon reads");
            continue;
        };
        assert!(read > 0, "the daemon ended the stream");
        let bytes = &buffer[..read];
        seen.bytes += read as u64;
        if let Some(marks) = marks {
            // A marker that is split between events is counted by its beginning. A bracket before a
            // brace is the length in a frame's head.
            let next = bytes.iter().skip(1).chain([&b' ']);
            seen.marks += bytes.iter().zip(next).filter(|pair| *pair.0 == b'<' && *pair.1 != b'{').count() as u64;
            if let Some(nanos) = newest(bytes) {
                seen.ages.push(now().saturating_sub(Duration::from_nanos(nanos)));
            }
            if seen.marks >= marks {
                return seen;
            }
        } else {
            seen.gaps += memchr::memmem::find_iter(bytes, b"slow-reader").count() as u64;
        }
    }
}

/// Returns the time in the last whole marker.
fn newest(bytes: &[u8]) -> Option<u64> {
    let end = memchr::memrchr(b'>', bytes)?;
    let begin = memchr::memrchr(b'<', &bytes[..end])?;
    std::str::from_utf8(&bytes[begin + 1..end]).ok()?.split_once(' ')?.1.parse().ok()
}

/// The cost of a flood, and its readers' counters.
#[derive(Default)]
struct Cost {
    /// Until the program had written everything: tmux takes only what it can pass on.
    written: Times,
    /// Until the wait for its last line got its response.
    answered: Times,
    side: Times,
    tmux: Times,
    daemon: Times,
    seen: Vec<Seen>,
}

pub fn run() {
    flood();
    steady();
}

fn plans(daemon: &Path, server: &Path, count: usize) -> Vec<Plan> {
    let plan =
        |number| Plan { daemon: daemon.to_owned(), server: server.to_owned(), pane: 0, websocket: number % 2 == 1 };
    (0..count).map(plan).collect()
}

fn flood() {
    part("60 MB from one pane with 50 readers of its text (25 SSE, 25 WebSocket) and with none, in turns");
    let (tmux, fifo) = Tmux::playing("flood");
    let side = Fifo::new();
    assert_eq!(tmux.window(&side.command("marker")), "%1");
    let daemon = Daemon::new(&[]);
    daemon.follow(&tmux, 2);
    let (mut none, mut many) = (Cost::default(), Cost::default());
    for round in 0..ROUNDS {
        measure(&tmux, &fifo, &side, &daemon, 0, &format!("n{round}"), &mut none);
        measure(&tmux, &fifo, &side, &daemon, READERS, &format!("m{round}"), &mut many);
    }
    let seconds = |times: &Times| times.p50() / 1e6;
    figure("no readers: until tmux had taken all, median", seconds(&none.written), "s", Goal::None);
    figure("50 readers: until tmux had taken all, median", seconds(&many.written), "s", Goal::None);
    figure("tmux, 50 readers / none", many.written.p50() / none.written.p50(), "x", Goal::AtMost(1.15));
    figure(
        "wait for the last line, 50 readers / none",
        many.answered.p50() / none.answered.p50(),
        "x",
        Goal::AtMost(1.15),
    );
    figure("no readers: wait on another pane meanwhile, p50", none.side.p50() / 1e3, "ms", Goal::None);
    figure(&format!("no readers: the same, p99 ({} waits)", none.side.len()), none.side.p99() / 1e3, "ms", Goal::None);
    figure("50 readers: wait on another pane meanwhile, p50", many.side.p50() / 1e3, "ms", Goal::None);
    figure(
        &format!("50 readers: the same, p99 ({} waits)", many.side.len()),
        many.side.p99() / 1e3,
        "ms",
        Goal::AtMost(100.0),
    );
    figure("CPU of tmux, no readers", seconds(&none.tmux), "s", Goal::None);
    figure("CPU of tmux, 50 readers", seconds(&many.tmux), "s", Goal::None);
    figure("CPU of the daemon, no readers", seconds(&none.daemon), "s", Goal::None);
    figure("CPU of the daemon, 50 readers", seconds(&many.daemon), "s", Goal::None);
    let bytes: Vec<u64> = many.seen.iter().map(|seen| seen.bytes).collect();
    let (least, most) = (bytes.iter().min().copied().unwrap_or(0), bytes.iter().max().copied().unwrap_or(0));
    figure("read by all readers in a round", bytes.iter().sum::<u64>() as f64 / ROUNDS as f64 / MIB, "MiB", Goal::None);
    figure("least read / most read by a reader", least as f64 / most as f64, "x", Goal::None);
    let gaps = many.seen.iter().map(|seen| seen.gaps).sum::<u64>();
    figure("gaps for a reader in a round, mean", gaps as f64 / many.seen.len() as f64, "", Goal::None);
    figure("daemon's memory, peak RSS", process::resident_peak(daemon.pid()) as f64 / MIB, "MiB", Goal::AtMost(150.0));
}

fn measure(tmux: &Tmux, fifo: &Fifo, side: &Fifo, daemon: &Daemon, readers: usize, id: &str, cost: &mut Cost) {
    let clients = Clients::new(plans(&daemon.socket(), tmux.socket(), readers), None);
    let over = AtomicBool::new(false);
    let (tmux_pid, daemon_pid) = (tmux.pid(), daemon.pid());
    thread::scope(|scope| {
        let mut http = daemon.http(tmux);
        let wait =
            json!({"panes": ["%0"], "patterns": [format!(r"<{id} (\d+)>")], "since": "now", "timeout_ms": 300_000});
        http.send("POST", "/v1/waits", &wait.to_string());
        while daemon.http(tmux).get("/v1/status")["waits"] != 1 {
            thread::sleep(Duration::from_millis(1));
        }
        let before = (process::cpu(tmux_pid), process::cpu(daemon_pid));
        let (started, start) = (Instant::now(), now());
        fifo.tell(id);
        let others = scope.spawn(|| {
            let mut http = daemon.http(tmux);
            let mut times = Times::default();
            let mut since = http.get("/v1/panes/%251/output?since=now")["cursor"].clone();
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (age, cursor) = side_marker(&mut http, side, &format!("{id}s{number}"), &since);
                times.push(age);
                since = cursor;
                thread::sleep(SIDE_PAUSE);
            }
            times
        });
        let answer: Value = serde_json::from_slice(&http.receive()).expect("JSON");
        cost.answered.push(started.elapsed());
        cost.written.push(Duration::from_nanos(matched_stamp(&answer)).saturating_sub(start));
        cost.tmux.push(process::cpu(tmux_pid).saturating_sub(before.0));
        cost.daemon.push(process::cpu(daemon_pid).saturating_sub(before.1));
        over.store(true, Ordering::Relaxed);
        cost.side.append(others.join().expect("the other pane's waits"));
    });
    cost.seen.extend(clients.stop());
}

/// Waits for a marker in the other pane. Returns the marker's age when its wait got the response,
/// and the cursor at which that wait ended. A late wait finds the marker too.
fn side_marker(http: &mut Http, side: &Fifo, id: &str, since: &Value) -> (Duration, Value) {
    let wait = json!({"panes": ["%1"], "patterns": [format!(r"<{id} (\d+)>")], "since": since, "timeout_ms": 60_000});
    http.send("POST", "/v1/waits", &wait.to_string());
    side.tell(&format!("{id} {SIDE_DELAY_US}"));
    let answer = http.receive();
    let read_at = now();
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    (read_at.saturating_sub(Duration::from_nanos(matched_stamp(&answer))), answer["cursor"].clone())
}

/// Measures a pane that prints steadily, and 1 and 200 SSE readers of every line.
fn steady() {
    const LINES: u64 = 5000;
    for readers in [1, 200] {
        part(&format!("{LINES} lines of one pane, ten each 10 ms, and {readers} SSE readers"));
        let (tmux, fifo) = Tmux::playing("steady");
        let daemon = Daemon::new(&[]);
        daemon.follow(&tmux, 1);
        let plan = |_| Plan { daemon: daemon.socket(), server: tmux.socket().to_owned(), pane: 0, websocket: false };
        let clients = Clients::new((0..readers).map(plan).collect(), Some(LINES));
        let before = process::cpu(daemon.pid());
        let started = Instant::now();
        fifo.tell(&format!("{LINES} 10 10000"));
        let seen = clients.join();
        let took = started.elapsed();
        let whole = seen.iter().filter(|seen| seen.marks == LINES).count();
        figure("readers that got every line once", whole as f64, "", Goal::AtLeast(f64::from(readers)));
        let mut ages = Times::default();
        for seen in seen {
            ages.append(seen.ages);
        }
        figure("from the pane's write to a reader, p50", ages.p50() / 1e3, "ms", Goal::None);
        figure(&format!("the same, p99 ({} reads)", ages.len()), ages.p99() / 1e3, "ms", Goal::None);
        let cpu = process::cpu(daemon.pid()).saturating_sub(before);
        figure("CPU of the daemon", cpu.as_secs_f64() / took.as_secs_f64() * 100.0, "%", Goal::None);
    }
}
