//! Whole runs that a seed determines: the engine in one thread, with simulated time, against a tmux
//! that is played ([docs/replay.md](../../../docs/replay.md)).
//!
//! `MUXTAP_SEED=7` plays one seed and prints its trace, `MUXTAP_SEEDS=0..5000` plays many.

mod answers;
mod chance;
mod end;
#[allow(clippy::string_slice, reason = "formats of muxtap's own: a panic fails the test")]
mod format;
mod grid;
mod oracle;
mod tmux;
mod wire;

use std::{
    cell::Cell,
    collections::BTreeMap,
    env,
    fmt::Write as _,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt as _;
use muxtap_api::{Cursor, Result as Answered, Since, WaitAnswer};
use muxtap_base::nonce;
use muxtap_tmux::Transport;
use tokio::time::Instant;

use self::{
    chance::Chance,
    end::Seen,
    oracle::{Part, Position},
    tmux::{Played, Tmux},
};
use crate::{CoverageMode, Engine, Options, Pane, Server};

/// The number of seeds that each run of the tests plays.
const SEEDS: u64 = 60;
/// The number of things that happen in one run.
const STEPS: usize = 150;
/// The most panes at a time.
const PANES: usize = 6;
/// The size of a ring: floods trim it.
const RING: usize = 24 * 1024;
/// The readers of each pane.
const READERS: usize = 2;
/// The engine is idle after this many turns of the runtime without anything to read or write.
const QUIET_TURNS: usize = 6;

/// Seeds that once found a failure, one each line; they are played first.
const FAILED: &str = include_str!("replay/failed-seeds.txt");

thread_local! {
    static IS_REPLAYED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread replays a run.
pub(crate) fn is_replayed() -> bool {
    IS_REPLAYED.get()
}

/// What tasks of a run report, in the order of their numbers.
#[derive(Default)]
struct Reports {
    lookups: BTreeMap<usize, Vec<Answered<Pane>>>,
    waits: BTreeMap<usize, Vec<(Instant, Answered<WaitAnswer>)>>,
    /// What a read found wrong.
    failed: Option<String>,
}

/// A pane that the engine knows, and its readers.
struct Known {
    pane: Pane,
    readers: [Position; READERS],
}

/// A wait of the run.
struct Begun {
    pane: u32,
    token: String,
    timeout: Duration,
    from: Cursor,
    at: Instant,
    /// The end of the stream when it was looked at last before the timeout.
    seen: u64,
    has_ended: bool,
}

/// One run.
struct Run {
    chance: Chance,
    tmux: Arc<Played>,
    engine: Engine,
    server: Server,
    begun: Instant,
    reports: Arc<Mutex<Reports>>,
    known: BTreeMap<u32, Known>,
    /// The pane of each lookup, and whether it has ended.
    lookups: Vec<(u32, bool)>,
    waits: Vec<Begun>,
    lines: BTreeMap<u32, usize>,
    seen: Seen,
}

/// Plays a seed. Returns the trace, and what was seen or what failed.
fn play(seed: u64) -> (String, Result<Seen, String>) {
    nonce::replay(Some(seed));
    IS_REPLAYED.set(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let played = runtime.block_on(async {
        let tmux = Arc::new(Played::default());
        let transport = Arc::new(Transport::to_played("far", tmux.clone()).unwrap());
        let options = Options { transports: vec![transport], coverage: CoverageMode::Sessions, ..Options::default() };
        let engine = Engine::new(options.ring_bytes(RING));
        let mut chance = Chance::of(seed);
        {
            let mut tmux = tmux.lock();
            tmux.history_limit = chance.one_of(&[40, 2000]).unwrap();
            for _ in 0..chance.between(1, 3) {
                tmux.new_session();
            }
        }
        let server = engine.server_at(Path::new("far/")).unwrap();
        let mut run = Run {
            chance,
            tmux: tmux.clone(),
            engine,
            server,
            begun: Instant::now(),
            reports: Arc::default(),
            known: BTreeMap::new(),
            lookups: Vec::new(),
            waits: Vec::new(),
            lines: BTreeMap::new(),
            seen: Seen::default(),
        };
        let ended = run.play().await.map(|()| run.seen);
        if let Err(why) = &ended {
            tmux.lock().note(&format!("FAILED: {why}"));
        }
        let trace = tmux.lock().trace.join("\n");
        (trace, ended)
    });
    drop(runtime);
    IS_REPLAYED.set(false);
    nonce::replay(None);
    played
}

impl Run {
    async fn play(&mut self) -> Result<(), String> {
        self.pass(Duration::from_millis(10)).await?;
        for _ in 0..STEPS {
            self.step();
            let pause = match self.chance.below(20) {
                0 => self.chance.between(500, 8000),
                1..6 => self.chance.between(10, 300),
                6..14 => self.chance.between(0, 10),
                _ => 0,
            };
            self.pass(Duration::from_millis(pause)).await?;
        }
        self.end().await
    }

    fn note(&self, line: &str) {
        self.tmux.lock().note(line);
    }

    /// Lets time pass, in small parts, and all happen that is due meanwhile.
    async fn pass(&mut self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        loop {
            self.settle().await;
            self.collect()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::advance(left.min(Duration::from_millis(25))).await;
        }
    }

    /// Runs the engine until it is idle.
    async fn settle(&self) {
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            tokio::task::yield_now().await;
            let mut tmux = self.tmux.lock();
            tmux.now = u64::try_from(self.begun.elapsed().as_millis()).unwrap();
            quiet = if tmux.pump() { 0 } else { quiet + 1 };
        }
    }

    /// Does one thing, by chance.
    fn step(&mut self) {
        let tmux = self.tmux.clone();
        let mut tmux = tmux.lock();
        let panes: Vec<u32> = tmux.panes.keys().copied().collect();
        let windows: Vec<u32> = tmux.windows.keys().copied().collect();
        let sessions: Vec<u32> = tmux.sessions.keys().copied().collect();
        let clients: Vec<u64> = tmux.clients.keys().copied().collect();
        let now = tmux.now;
        let Some(pane) = self.chance.one_of(&panes) else { return };
        let client = self.chance.one_of(&clients);
        match (self.chance.below(100), client) {
            (0..40, _) => {
                let lines = self.chance.between(1, 4);
                self.print(&mut tmux, pane, lines);
            }
            (40..44, _) => {
                let lines = self.chance.between(100, 900);
                self.print(&mut tmux, pane, lines);
            }
            (44..52, _) => self.print_token(&mut tmux),
            (52..64, _) => {
                drop(tmux);
                self.begin_wait(pane);
            }
            (64..78, _) => {
                drop(tmux);
                self.adopt(pane);
            }
            (78..80, _) if panes.len() < PANES => {
                tmux.new_pane(self.chance.one_of(&windows).unwrap());
            }
            (80..82, _) if panes.len() < PANES => {
                tmux.new_window(self.chance.one_of(&sessions).unwrap());
            }
            (82, _) if panes.len() < PANES => {
                tmux.new_session();
            }
            (83..85, _) if panes.len() > 1 => tmux.kill_pane(pane),
            (85..90, _) => tmux.move_pane(pane, self.chance.one_of(&windows).unwrap()),
            (90..92, Some(id)) => tmux.pause(id, pane),
            (92..95, Some(id)) => {
                let until = now + self.chance.between(1, 20_000);
                tmux.note(&format!("client {id} is read again at {until}"));
                tmux.clients.get_mut(&id).unwrap().deaf_until = until;
            }
            (95..98, Some(id)) => {
                let until = now + self.chance.between(1, 20_000);
                tmux.note(&format!("client {id} is written to again at {until}"));
                tmux.clients.get_mut(&id).unwrap().mute_until = until;
            }
            (98.., Some(id)) => tmux.cut(id),
            _ => {}
        }
    }

    /// Makes a pane print lines, in pieces of any size; the last may stay open.
    fn print(&mut self, tmux: &mut Tmux, pane: u32, lines: u64) {
        let mut text = String::new();
        let number = self.lines.entry(pane).or_default();
        for _ in 0..lines {
            let _ = write!(text, "p{pane}.{number} {}\r\n", "x".repeat(self.chance.below(40)));
            *number += 1;
        }
        if self.chance.below(4) == 0 {
            let _ = write!(text, "p{pane}.{number} open ");
            *number += 1;
        }
        self.print_text(tmux, pane, &text);
    }

    fn print_text(&mut self, tmux: &mut Tmux, pane: u32, text: &str) {
        // A line that is open may be as long as it was when it was printed last.
        let open = tmux.panes[&pane].cursor().0;
        let text = if open > 30 { format!("\r\n{text}") } else { text.to_owned() };
        tmux.note(&format!("%{pane} prints {} bytes", text.len()));
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let most = if rest.len() > 400 { 2000 } else { 40 };
            let (piece, behind) = rest.split_at(rest.len().min(1 + self.chance.below(most)));
            tmux.print(pane, piece);
            rest = behind;
        }
    }

    /// Prints what an open wait waits for.
    fn print_token(&mut self, tmux: &mut Tmux) {
        let open: Vec<usize> = (0..self.waits.len()).filter(|number| !self.waits[*number].has_ended).collect();
        let Some(number) = self.chance.one_of(&open) else { return };
        let Begun { pane, token, .. } = &self.waits[number];
        let (pane, text) = (*pane, format!("{token}\r\n"));
        if tmux.panes.contains_key(&pane) {
            self.print_text(tmux, pane, &text);
        }
    }

    /// Makes the engine know a pane, and then reads it.
    fn adopt(&mut self, pane: u32) {
        if !self.known.contains_key(&pane) {
            let (server, reports, number) = (self.server.clone(), self.reports.clone(), self.lookups.len());
            self.note(&format!("a caller looks for %{pane}"));
            self.lookups.push((pane, false));
            self.engine.spawn(async move {
                let found = server.pane(format!("%{pane}")).await;
                reports.lock().unwrap().lookups.entry(number).or_default().push(found);
            });
            return;
        }
        // The second reader is slow.
        let reader = usize::from(self.chance.below(8) == 0);
        let most = self.chance.one_of(&[1, 100, 4096, 256 * 1024]).unwrap();
        let read = self.read(pane, reader, most);
        if let Err(why) = read {
            self.reports.lock().unwrap().failed.get_or_insert(why);
        }
    }

    /// Reads a pane once. Returns whether there is more.
    fn read(&mut self, pane: u32, reader: usize, most: u64) -> Result<bool, String> {
        let known = self.known.get_mut(&pane).unwrap();
        let position = &mut known.readers[reader];
        let cursor = known.pane.cursor();
        let since = position.offset.map_or(Since::Start, |offset| Since::At(Cursor { offset, ..cursor }));
        let read = known.pane.read().since(since).at_most(most).into_future().now_or_never();
        let output = read.ok_or("a read from memory waits")?.map_err(|error| format!("read: {}", error.message))?;
        let (start, end, gap, bytes) = (output.start(), output.cursor.offset, output.gap, output.bytes());
        let mut tmux = self.tmux.lock();
        if start != end || gap.is_some() {
            tmux.note(&format!(
                "reader {reader} of %{pane}: {start}..{end}{}",
                gap.map_or(String::new(), |gap| { format!(" behind a gap {} {:?}", gap.reason.as_str(), gap.bytes) })
            ));
        }
        self.seen.bytes += bytes.len();
        self.seen.gaps += usize::from(gap.is_some());
        let printed = tmux.panes.get(&pane).or_else(|| tmux.killed.get(&pane)).unwrap();
        let checked = position.check(&Part { start, end, gap, bytes }, &printed.log);
        checked.map_err(|why| format!("reader {reader} of %{pane}: {why}"))?;
        Ok(output.more())
    }

    /// Begins a wait for something that the pane has not printed yet.
    fn begin_wait(&mut self, pane: u32) {
        let Some(known) = self.known.get(&pane) else { return };
        let number = self.waits.len();
        let token = format!("token{number}end");
        let timeout = Duration::from_millis(self.chance.between(1, 30_000));
        self.note(&format!("wait {number} on %{pane} for {} ms", timeout.as_millis()));
        let wait = known.pane.wait().pattern(token.clone()).unwrap().since(Since::Now).timeout(timeout);
        self.waits.push(Begun {
            pane,
            token,
            timeout,
            from: known.pane.cursor(),
            at: Instant::now(),
            seen: known.pane.cursor().offset,
            has_ended: false,
        });
        let reports = self.reports.clone();
        self.engine.spawn(async move {
            let ended = wait.await;
            reports.lock().unwrap().waits.entry(number).or_default().push((Instant::now(), ended));
        });
    }

    /// Takes what tasks have reported, and checks it.
    fn collect(&mut self) -> Result<(), String> {
        let Reports { lookups, waits, failed } = std::mem::take(&mut *self.reports.lock().unwrap());
        if let Some(why) = failed {
            return Err(why);
        }
        for (number, ends) in lookups {
            for found in ends {
                self.looked(number, found).map_err(|why| format!("lookup {number}: {why}"))?;
            }
        }
        for (number, ends) in waits {
            for (at, answer) in ends {
                self.ended(number, at, answer).map_err(|why| format!("wait {number}: {why}"))?;
            }
        }
        let now = Instant::now();
        for wait in self.waits.iter_mut().filter(|wait| !wait.has_ended && now < wait.at + wait.timeout) {
            wait.seen = self.known[&wait.pane].pane.cursor().offset;
        }
        Ok(())
    }
}

#[test]
fn whole_runs_keep_the_promises() {
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    if let Ok(seed) = env::var("MUXTAP_SEED") {
        let (trace, ended) = play(number(&seed));
        println!("{trace}");
        println!("{ended:?}");
        assert!(ended.is_ok());
        return;
    }
    let kept = FAILED.lines().filter_map(|line| line.split('#').next()).filter(|line| !line.trim().is_empty());
    let chosen = env::var("MUXTAP_SEEDS").ok();
    let seeds: Vec<u64> = match &chosen {
        Some(seeds) => seeds.split_once("..").map(|(from, to)| (number(from)..number(to)).collect()).unwrap(),
        None => kept.map(number).chain(0..SEEDS).collect(),
    };
    let (mut all, mut failed) = (Seen::default(), Vec::new());
    for seed in seeds {
        match play(seed).1 {
            Ok(seen) => all.add(seen),
            Err(why) => failed.push(format!("seed {seed}: {why}")),
        }
        if failed.len() == 20 {
            break;
        }
    }
    println!("{all:?}");
    assert!(failed.is_empty(), "{}\nMUXTAP_SEED=… prints the trace of one", failed.join("\n"));
    assert!(chosen.is_some() || all.is_complete(), "not all was seen that is checked: {all:?}");
}

#[test]
fn a_seed_gives_the_same_trace_each_time() {
    for seed in 0..3 {
        let (first, second) = (play(seed).0, play(seed).0);
        let differs = first.lines().zip(second.lines()).find(|(one, other)| one != other);
        assert_eq!((differs, first.lines().count()), (None, second.lines().count()), "seed {seed}");
        assert!(first.lines().count() > STEPS);
    }
    assert_ne!(play(0).0, play(1).0);
}
