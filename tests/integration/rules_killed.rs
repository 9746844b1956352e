//! Rules over many ends of the daemon: each firing happens once, or the journal names it.
//!
//! The long run, with its figures (100 kills, more than 100,000 firings):
//! `MUXTAP_KILLS=100 cargo nextest run --workspace --run-ignored only -E 'test(each_firing_of_100)' --no-capture`

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{LIMIT, World, eventually};

const PANES: usize = 10;
const RULES: usize = 120;
/// The firings of a round: each rule fires once in each pane.
const FIRINGS: usize = PANES * RULES;
/// Of so many kills, one comes while the rules fire; the others when all of a round have fired.
const EARLY: usize = 10;
/// Less than a line of the journal that begins a firing, in bytes.
const LINE: usize = 200;

/// The ids that a server has received, with the number of times.
type Received = Arc<Mutex<BTreeMap<String, usize>>>;

/// Starts an HTTP server that counts the ids in the bodies that it receives; returns its URL.
fn counting(received: &Received) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let received = received.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let received = received.clone();
            std::thread::spawn(move || count(stream, &received));
        }
    });
    url
}

/// Counts the id in a request. A daemon that was killed may have sent a part of it.
fn count(mut stream: TcpStream, received: &Received) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    *received.lock().unwrap().entry(body["id"].as_str()?.to_owned()).or_default() += 1;
    stream.write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").ok()
}

/// The journal's lines.
#[derive(Default)]
struct Journal {
    path: PathBuf,
    /// The file that was read last, and how much of it.
    read: (u64, u64),
    /// The firings, by id: the rule and the pane.
    begun: BTreeMap<String, (String, String)>,
    /// Whether each that has ended was done.
    ended: BTreeMap<String, bool>,
    lost: usize,
}

impl Journal {
    /// Adds the lines that were written since the last call. The file is rotated at most once meanwhile.
    fn read(&mut self) {
        let Ok(file) = fs::File::open(&self.path) else { return };
        let inode = file.metadata().unwrap().ino();
        if inode != self.read.0 {
            if self.read.0 != 0 {
                let older = fs::File::open(self.path.with_extension("jsonl.1")).unwrap();
                assert_eq!(older.metadata().unwrap().ino(), self.read.0, "rotated twice");
                self.read_rest(older);
            }
            self.read = (inode, 0);
        }
        self.read_rest(file);
    }

    /// Adds the whole lines of a file that were not read.
    fn read_rest(&mut self, mut file: fs::File) {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.read.1)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return };
        self.read.1 += end as u64 + 1;
        for line in bytes[..end].split(|byte| *byte == b'\n') {
            // The last line of a killed daemon may be torn.
            let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
            let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
            match line["t"].as_str() {
                // A new file begins with the open firings of the one before.
                Some("begin") => drop(self.begun.insert(text("id"), (text("rule"), text("pane")))),
                Some("end") => assert_eq!(self.ended.insert(text("id"), line["ok"] == true), None, "ended twice"),
                _ => self.lost += 1,
            }
        }
    }

    fn length(&self) -> usize {
        fs::metadata(&self.path).map_or(0, |file| usize::try_from(file.len()).unwrap())
    }

    /// Waits until the file has grown by so many bytes, without a pause: what is written in between counts.
    fn await_growth(&self, bytes: usize) {
        let (before, began) = (self.length(), Instant::now());
        // It is shorter after a rotation.
        while (before..before + bytes).contains(&self.length()) {
            assert!(began.elapsed() < LIMIT, "no rule has fired");
            std::thread::yield_now();
        }
    }
}

/// The rules' configuration: each fires in each pane that prints a new line.
fn configure(world: &World, url: &str) {
    let mut rules = String::new();
    for rule in 0..RULES {
        writeln!(rules, "[[when]]\nname='r{rule}'\noutput='^go [0-9]'\nevery='100ms'\npost={{url='{url}'}}\n").unwrap();
    }
    fs::create_dir_all(world.path("home/muxtap")).unwrap();
    fs::write(world.path("home/muxtap/config.toml"), rules).unwrap();
}

#[test]
#[ignore = "it takes minutes"]
fn each_firing_of_100_killed_daemons_happens_once_or_is_named() {
    let kills: usize = std::env::var("MUXTAP_KILLS").map_or(10, |kills| kills.parse().unwrap());
    let world = World::with_server();
    let received = Received::default();
    configure(&world, &counting(&received));
    let program = "stty -echo; echo ready; while read -r line; do echo \"go $line\"; done";
    let panes: Vec<_> = (0..PANES).map(|_| world.window(program)).collect();
    for pane in &panes {
        world.await_output(pane, "^ready");
    }
    let socket = world.socket().display().to_string();
    let mut journal = Journal { path: world.path("m.sock.when.jsonl"), ..Journal::default() };
    let (began, mut firing, mut unseen) = (Instant::now(), Duration::ZERO, 0);
    for kill in 0..kills {
        // Names the server to the new daemon.
        world.ok(&["list-panes"]);
        eventually("the server is watched", || {
            let list = world.json(&["when", "list"]);
            list["servers"].as_array().unwrap().iter().any(|server| *server == *socket)
        });
        let (begun, ended) = (journal.begun.len(), journal.ended.len());
        let earlier: HashSet<_> = journal.begun.keys().cloned().collect();
        let line = kill.to_string();
        let keys: Vec<_> = panes.iter().flat_map(|pane| ["send-keys", "-t", pane, &line, "Enter", ";"]).collect();
        let is_early = kill % EARLY == EARLY - 1;
        let typed = Instant::now();
        std::thread::scope(|scope| {
            let typing = scope.spawn(|| world.tmux(keys.split_last().unwrap().1));
            if is_early {
                journal.await_growth(FIRINGS * LINE * (kill + 1) / (kills + 1));
                world.kill_daemon(Signal::KILL);
            }
            typing.join().unwrap();
        });
        if is_early {
            // The next daemon must not see this round's lines.
            for pane in &panes {
                eventually("the pane has printed", || {
                    world.tmux(&["capture-pane", "-p", "-S", "-", "-t", pane]).contains(&format!("go {line}\n"))
                });
            }
        } else {
            // From the moment in which all have fired to the one in which all are done.
            let until = FIRINGS * kill / kills;
            eventually("the rules have fired", || {
                journal.read();
                journal.begun.len() == begun + FIRINGS && journal.ended.len() >= ended + until
            });
            world.kill_daemon(Signal::KILL);
            firing += typed.elapsed();
        }
        journal.read();
        let of_round: Vec<_> =
            journal.begun.iter().filter(|(id, _)| !earlier.contains(*id)).map(|(_, of)| of).collect();
        assert_eq!(of_round.len(), of_round.iter().collect::<HashSet<_>>().len(), "a rule fired twice in a pane");
        assert!(is_early || of_round.len() == FIRINGS, "each rule fires in each pane");
        // The journal's line is the first trace of a firing: it does not show whether the daemon
        // had seen an event without a line.
        unseen += FIRINGS - of_round.len();
    }
    // Requests whose daemon was killed may still be on their way to the server.
    eventually("all that is done has arrived", || {
        let received = received.lock().unwrap();
        journal.ended.iter().filter(|(_, done)| **done).all(|(id, _)| received.contains_key(id))
    });
    let received = received.lock().unwrap();
    let done = journal.ended.values().filter(|done| **done).count();
    let failed = journal.ended.len() - done;
    let not_known: Vec<_> = journal.begun.keys().filter(|id| !journal.ended.contains_key(*id)).collect();
    let happened = not_known.iter().filter(|id| received.contains_key(**id)).count();
    println!(
        "{} firings, {kills} kills, {:.0} s ({:.0} s of it from typing to the kill): {done} done, {failed} failed, \
         {} not known (of which {happened} happened), {} lost; {unseen} events \
         without a line, of daemons that were killed as they came",
        journal.begun.len(),
        began.elapsed().as_secs_f64(),
        firing.as_secs_f64(),
        not_known.len(),
        journal.lost,
    );
    assert_eq!((journal.begun.len(), journal.lost, failed), (kills * FIRINGS - unseen, 0, 0));
    assert!(received.values().all(|times| *times == 1), "a firing happened twice");
    assert!(received.keys().all(|id| journal.begun.contains_key(id)), "a firing is not in the journal");
    assert_eq!(received.len(), done + happened);
    // What the next daemon says.
    world.ok(&["list-panes"]);
    let log = world.json(&["when", "log", "-n", "1000"]);
    let states: HashSet<_> =
        log["firings"].as_array().unwrap().iter().map(|firing| firing["state"].to_string()).collect();
    assert!(states.is_subset(&["\"done\"".to_owned(), "\"not-known\"".to_owned()].into()), "{states:?}");
}
