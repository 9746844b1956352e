//! The load of a busy machine for a minute, or for `LOAD_SECONDS`: a thousand panes of which 50
//! print a hundred lines a second, 500 waits and 50 readers of event streams.
//!
//! Beside it, in turns: another server of the same size with the same output and a bare control
//! client, then with a loop that captures each printing pane.

mod others;
mod waits;

use std::time::Duration;

use serde_json::json;

use self::waits::Waits;
use super::{
    actors::now,
    process,
    stage::{Daemon, Fifo, Tmux},
    streams::{Clients, Plan},
    table::{Goal, figure, part},
    times::Times,
};

const PANES: usize = 1000;
const PRINTING: usize = 50;
/// The waits on each printing pane for text that is never printed. One more is for a marker.
const WATCHING: usize = 4;
/// The waits on quiet panes, one for each.
const QUIET: usize = 250;
const WAITS: usize = PRINTING * (1 + WATCHING) + QUIET;
const READERS: usize = 50;
/// The lines of a pane in a second; one of them is a marker.
const LINES: u64 = 100;
const TURNS: u64 = 3;
/// The time after a turn for output to arrive.
const GRACE: Duration = Duration::from_millis(500);
/// The lines that fill a pane's ring and tmux's history.
const FILLING: u64 = 15_000;
/// The responses of ended waits that the daemon keeps.
const ENDED_WAITS: usize = 8192;
const MIB: f64 = 1024.0 * 1024.0;

/// The cost of a way to wait, and the markers' ages when they were seen.
#[derive(Default)]
struct Cost {
    tmux: Duration,
    own: Duration,
    ages: Times,
}

/// A server of the bench's size.
struct Server {
    tmux: Tmux,
    pid: u32,
    printers: Vec<Fifo>,
    /// The markers requested from each printing pane so far.
    marks: u64,
}

impl Server {
    fn new() -> Self {
        let printers: Vec<Fifo> = (0..PRINTING).map(|_| Fifo::new()).collect();
        let tmux = Tmux::new(&printers[0].command("printer"));
        for (number, printer) in printers.iter().enumerate().skip(1) {
            assert_eq!(tmux.window(&printer.command("printer")), format!("%{number}"));
        }
        tmux.windows(PANES - PRINTING);
        let pid = tmux.pid();
        Self { tmux, pid, printers, marks: 0 }
    }

    /// Makes the printing panes print until everything bounded is full.
    fn fill(&self) {
        for printer in &self.printers {
            printer.tell(&format!("{FILLING} 0 0 {LINES}"));
        }
        let last = format!("{:08} ", FILLING - 1);
        for pane in 0..PRINTING {
            while !self.tmux.ask(&["capture-pane", "-p", "-t", &format!("%{pane}")]).contains(&last) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Makes the printing panes print for a turn; returns its start. The panes print one after the
    /// other, and so do their markers arrive.
    fn print(&mut self, seconds: u64) -> Duration {
        const PAUSE: u64 = 1_000_000_000 / LINES;
        let begin = now() + Duration::from_millis(300);
        for (number, printer) in (0..).zip(&self.printers) {
            let phase = begin.as_nanos() as u64 + number * PAUSE / PRINTING as u64;
            let mark = number * LINES / PRINTING as u64;
            printer.tell(&format!("{} {PAUSE} {phase} {mark}", seconds * LINES));
        }
        self.marks += seconds;
        begin
    }

    fn cpu(&self) -> Duration {
        process::cpu(self.pid)
    }
}

pub fn run() {
    let seconds = std::env::var("LOAD_SECONDS").map_or(60, |seconds| seconds.parse().expect("LOAD_SECONDS: a number"));
    let turn = (seconds / TURNS).max(2);
    let seconds = turn * TURNS;
    part(&format!(
        "{PANES} panes, {PRINTING} of them printing {LINES} lines a second, {WAITS} waits, {READERS} readers of \
         events, for {seconds} s ({TURNS} turns)"
    ));
    let mut followed = Followed::new();
    let mut other = Server::new();
    other.fill();
    let (mut bare, mut polled) = (Cost::default(), Cost::default());
    for _ in 0..TURNS {
        followed.turn(turn);
        others::bare(&mut other, turn, &mut bare);
        others::poll(&mut other, turn, &mut polled);
    }
    let by_muxtap = followed.figures(turn);
    let marks = (turn * TURNS) as usize * PRINTING;
    let percent = |cpu: Duration| cpu.as_secs_f64() / seconds as f64 * 100.0;
    for (name, cost) in [("bare control client", &bare), ("loop of capture-pane", &polled)] {
        figure(&format!("{name}: CPU of tmux, of one core"), percent(cost.tmux), "%", Goal::None);
        figure(&format!("{name}: its own"), percent(cost.own), "%", Goal::None);
        let seen = cost.ages.len() as f64 / marks as f64;
        ages(&format!("{name}: from the write to the client"), &cost.ages, Goal::None);
        figure(&format!("{name}: markers seen"), seen * 100.0, "%", Goal::None);
    }
    let both = |cost: &Cost| (cost.tmux + cost.own).as_secs_f64();
    figure("CPU of tmux and client: muxtap / bare", both(&by_muxtap) / both(&bare), "x", Goal::None);
    figure("CPU of tmux and client: loop / muxtap", both(&polled) / both(&by_muxtap), "x", Goal::None);
}

fn ages(name: &str, ages: &Times, goal: Goal) {
    figure(&format!("{name}, p50"), ages.p50() / 1e3, "ms", Goal::None);
    figure(&format!("the same, p99 ({} of them)", ages.len()), ages.p99() / 1e3, "ms", goal);
    figure("the same, the longest", ages.quantile(1.0) / 1e3, "ms", Goal::None);
}

/// A server that muxtap follows, with its clients. Fields are in the order of dropping: clients,
/// daemon, server.
struct Followed {
    clients: Clients,
    waits: Waits,
    daemon: Daemon,
    server: Server,
    cost: Cost,
    /// The resident memory, each second of the turns.
    resident: Vec<u64>,
}

impl Followed {
    fn new() -> Self {
        let server = Server::new();
        let daemon = Daemon::new(&[]);
        let mut http = daemon.follow(&server.tmux, PANES as u64);
        let socket = server.tmux.socket();
        let plan = |pane| Plan { daemon: daemon.socket(), server: socket.to_owned(), pane, websocket: pane % 2 == 1 };
        let clients = Clients::new((0..READERS).map(plan).collect(), Some(u64::MAX));
        let waits = Waits::open(&daemon.socket(), socket);
        while http.metric("muxtap_waits_active") < WAITS as f64 {
            std::thread::sleep(Duration::from_millis(5));
        }
        server.fill();
        let wait = json!({"panes": ["%0"], "patterns": [r"(\d+)   Compiling"], "since": "start", "timeout_ms": 60_000});
        for _ in 0..ENDED_WAITS {
            http.send("POST", "/v1/waits", &wait.to_string());
            http.receive();
        }
        Self { clients, waits, daemon, server, cost: Cost::default(), resident: Vec::new() }
    }

    fn turn(&mut self, seconds: u64) {
        let cpu = |this: &Self| (this.server.cpu(), process::cpu_with_children(this.daemon.pid()));
        let before = cpu(self);
        let begin = self.server.print(seconds);
        for second in 0..=seconds {
            std::thread::sleep((begin + Duration::from_secs(second)).saturating_sub(now()));
            self.resident.push(process::resident(self.daemon.pid()));
        }
        std::thread::sleep(GRACE);
        let after = cpu(self);
        self.cost.tmux += after.0.saturating_sub(before.0);
        self.cost.own += after.1.saturating_sub(before.1);
    }

    /// Ends the clients and prints the measurements.
    fn figures(mut self, turn: u64) -> Cost {
        let marks = turn * TURNS;
        let percent = |cpu: Duration| cpu.as_secs_f64() / marks as f64 * 100.0;
        let tmux = percent(self.cost.tmux);
        figure("muxtap: CPU of tmux, of one core", tmux, "%", Goal::None);
        figure("muxtap: its own", percent(self.cost.own), "%", Goal::AtMost(tmux));
        self.cost.ages = self.waits.close();
        ages("muxtap: from the write to a wait's answer", &self.cost.ages, Goal::AtMost(20.0));
        let answered = self.cost.ages.len() as f64 / (marks as usize * PRINTING) as f64 * 100.0;
        figure("muxtap: markers whose wait was answered", answered, "%", Goal::AtLeast(100.0));
        let seen = self.clients.stop();
        let whole = seen.iter().filter(|seen| seen.marks == marks).count();
        let mut read = Times::default();
        for seen in seen {
            read.append(seen.ages);
        }
        ages("muxtap: from the write to a reader", &read, Goal::None);
        figure("muxtap: readers that got each marker once", whole as f64, "", Goal::AtLeast(READERS as f64));
        let resident = |at: usize| self.resident[at.min(self.resident.len() - 1)] as f64 / MIB;
        let (begin, end) = (resident(0), resident(usize::MAX));
        figure("muxtap: resident memory after the warm-up", begin, "MiB", Goal::None);
        figure("muxtap: the same, in the middle", resident(self.resident.len() / 2), "MiB", Goal::None);
        let most = self.resident.iter().max().copied().unwrap_or(0) as f64 / MIB;
        figure("muxtap: the same, the most of all seconds", most, "MiB", Goal::None);
        figure("muxtap: the same, at the end", end, "MiB", Goal::AtMost(begin * 1.02));
        self.cost
    }
}
