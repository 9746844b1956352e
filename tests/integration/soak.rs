//! Concurrent callers of all kinds for some time: valid and invalid requests, callers that
//! disconnect in the middle, a tmux server that is killed and restarted. Nothing is left behind,
//! and no failure is muxtap's.
//!
//! Signals that this test itself sends to servers: every two seconds SIGTERM or SIGKILL, in turn,
//! during requests; and SIGKILL to a server that should have ended and has not after three seconds.
//! A server that ends by any other signal has crashed, and [`World`] fails for it. One case is
//! excused: a server that gets SIGTERM ends its sessions, and one whose window has just changed
//! crashes while doing so, for every control client (N92). It was meant to end, and nothing is
//! lost.
//!
//! `MUXTAP_SOAK_SECONDS` sets the duration (default 8), `MUXTAP_SOAK_SEED` the seed.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::common::{Background, World, eventually, is_alive, run, signal};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

const CALLERS: u64 = 12;
/// The time after which a response counts as missing.
const PATIENCE: Duration = Duration::from_secs(40);

/// Xorshift: the same seed gives the same requests.
struct Luck(u64);

impl Luck {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
}

/// Returns a method, a path and a body: mostly plausible ones.
fn request(luck: &mut Luck, query: &str) -> (&'static str, String, String) {
    let pane = luck.one(&["%250", "%251", "%252", "main", "main:0", "main:0.0", "%25999", "", "%ff", "nobody", "*"]);
    let since = luck.one(&["start", "now", "input", "lines:5", "nonsense", "c0.0.0", ""]);
    let word = luck.one(&["ok", "a+", "(", "[[:alpha:]]", "\\\\b", "x{1000}{1000}", "^$"]);
    let name = luck.one(&["soak", "main", "a:b", "", "\\u0000", "änderung"]);
    match luck.below(24) {
        0 => ("GET", format!("/v1/panes{query}"), String::new()),
        1 => ("GET", format!("/v1/sessions{query}"), String::new()),
        2 => ("GET", format!("/v1/windows{query}"), String::new()),
        3 | 4 => {
            ("GET", format!("/v1/panes/{pane}/capture{query}&start=-{}&escapes=true", luck.below(3000)), String::new())
        }
        5 | 6 => {
            ("GET", format!("/v1/panes/{pane}/output{query}&since={since}&wait_ms={}", luck.below(80)), String::new())
        }
        7 | 8 => ("POST", format!("/v1/panes/{pane}/input{query}"), format!(r#"{{"keys":["echo {word}","Enter"]}}"#)),
        9 => (
            "POST",
            format!("/v1/panes/{pane}/input{query}"),
            format!(r#"{{"text":"{}"}}"#, "x".repeat(luck.below(40_000))),
        ),
        10 | 11 => {
            let body = format!(r#"{{"command":"seq {}","timeout_ms":{}}}"#, luck.below(2000), luck.below(400));
            ("POST", format!("/v1/panes/{pane}/run{query}"), body)
        }
        12..=15 => {
            let (detach, since) = (luck.below(2) == 0, luck.one(&["start", "now", "input", "screen"]));
            let body = format!(
                r#"{{"panes":["{}"],"patterns":["{word}"],"since":"{since}","detach":{detach},"timeout_ms":{}}}"#,
                pane.replace("%25", "%"),
                luck.below(300)
            );
            ("POST", format!("/v1/waits{query}"), body)
        }
        16 => ("POST", format!("/v1/windows{query}"), r#"{"session":"main","command":["sh"]}"#.into()),
        17 => (
            "POST",
            format!("/v1/windows{query}"),
            format!(r#"{{"session":"main","command":["seq {}"]}}"#, luck.below(5000)),
        ),
        18 => ("POST", format!("/v1/sessions{query}"), format!(r#"{{"name":"{name}"}}"#)),
        19 => ("DELETE", format!("/v1/panes/{pane}{query}"), String::new()),
        20 => ("PATCH", format!("/v1/panes/{pane}{query}"), format!(r#"{{"width":{},"height":5}}"#, luck.below(300))),
        21 => ("GET", format!("/v1/events{query}&types=output,screen,topology&panes={pane}"), String::new()),
        22 => ("POST", format!("/v1/waits{query}"), luck.one(&["{", "[]", "null", "{\"panes\":0}", "\u{1}"]).into()),
        _ => (
            luck.one(&["BREW", "PUT", "GET"]),
            format!("/{}", luck.one(&["", "v1", "v1/none", "metrics", "../x", "v1/status"])),
            String::new(),
        ),
    }
}

/// Sends a request, or a part of it, or stops reading. Returns the request, and the status if one
/// arrived.
fn ask(luck: &mut Luck, addr: &str, token: &str, query: &str) -> (String, Option<u16>) {
    let (method, path, body) = request(luck, query);
    let status = ask_for(luck, addr, token, method, &path, &body);
    (format!("{method} {path} {}", body.get(..200).unwrap_or(&body)), status)
}

fn ask_for(luck: &mut Luck, addr: &str, token: &str, method: &str, path: &str, body: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let bearer = if luck.below(20) == 0 { "wrong" } else { token };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {bearer}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let cut = if luck.below(12) == 0 { luck.below(head.len()) } else { head.len() };
    stream.write_all(&head.as_bytes()[..cut]).ok()?;
    // Streams do not end, and some callers do not wait for their response.
    if cut < head.len() || path.contains("/events") || luck.below(8) == 0 {
        let mut some = [0; 64];
        let listen = path.contains("/events") && cut == head.len();
        let read = if listen { stream.read(&mut some).unwrap_or(0) } else { 0 };
        return status(&some[..read]);
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer: {head}"),
        _ => status(&answer),
    }
}

fn status(answer: &[u8]) -> Option<u16> {
    String::from_utf8_lossy(answer.get(9..12)?).parse().ok()
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Returns the resident memory in MiB.
fn resident(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096 / (1 << 20)
}

/// Returns the signal that ended this child, if it has ended and was not collected before.
fn ended_by(pid: u32) -> Option<i32> {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    waitpid(pid, WaitOptions::NOHANG).ok().flatten().and_then(|(_, status)| status.terminating_signal())
}

#[test]
fn a_mixed_load_leaves_no_wait_descriptor_or_memory_behind() {
    let world = World::with_server();
    let seconds = from_env("MUXTAP_SOAK_SECONDS", 8);
    let seed = from_env("MUXTAP_SOAK_SEED", u64::from(std::process::id()));
    let mut command = world.plain_muxtap_command();
    command.args(["serve", "--http", "127.0.0.1:0"]);
    let daemon = Background::start_with(&mut command, Duration::from_secs(seconds) + Duration::from_secs(120));
    eventually("the daemon answers", || world.daemon_pid().is_some());
    let url = world.http("GET", "/v1/status", None).json()["http"][0].as_str().unwrap().to_owned();
    let (addr, token, query) = (url.trim_start_matches("http://"), world.ok(&["token"]), world.query());
    world.panes();
    let before = (descriptors(daemon.pid()), resident(daemon.pid()));

    let (asked, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let told: Mutex<BTreeMap<u16, usize>> = Mutex::default();
    let slowest: Mutex<(Duration, String)> = Mutex::default();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (asked, over, told, slowest, token, query) = (&asked, &over, &told, &slowest, &token, &query);
            scope.spawn(move || {
                let mut luck = Luck((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(caller));
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let (what, status) = ask(&mut luck, addr, token, query);
                    let mut slowest = slowest.lock().unwrap();
                    if begun.elapsed() > slowest.0 {
                        *slowest = (begun.elapsed(), what);
                    }
                    drop(slowest);
                    if let Some(status) = status {
                        *told.lock().unwrap().entry(status).or_default() += 1;
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // The callers end together with the test, in any case.
        let _over = Over(&over);
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut hard = false;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_secs(2));
            hard = !hard;
            // By tmux's own shutdown (SIGTERM) or without one (SIGKILL): requests in the meantime
            // must get a response. Callers may have started a server, or none.
            let told = run(world.tmux_command(world.socket()).args(["display-message", "-p", "#{pid}"])).text();
            if let Ok(pid) = told.trim().parse() {
                signal(pid, if hard { Signal::KILL } else { Signal::TERM });
                let told = Instant::now();
                eventually("the server has ended", || {
                    // A caller has created a session in the meantime (N28).
                    if told.elapsed() > Duration::from_secs(3) {
                        signal(pid, Signal::KILL);
                    }
                    !is_alive(pid)
                });
                if !hard && ended_by(pid) == Some(Signal::SEGV.as_raw()) {
                    println!("a server that was to end crashed instead (N92)");
                }
            }
            run(world.tmux_command(world.socket()).args(["new-session", "-d", "-s", "main", "-x", "80", "-y", "24"]));
        }
    });

    let told = told.into_inner().unwrap();
    println!("seed {seed}: {} requests in {seconds} s: {told:?}", asked.load(Ordering::Relaxed));
    let (longest, what) = slowest.into_inner().unwrap();
    println!("the slowest took {longest:?}: {what}");
    assert!(told.keys().all(|status| *status < 500), "seed {seed}: {told:?}");
    assert!(told.get(&200).is_some_and(|fine| *fine > 20), "seed {seed}: {told:?}");
    eventually("no wait is open", || world.http("GET", "/v1/status", None).json()["waits"] == 0);
    run(world.tmux_command(world.socket()).arg("kill-server"));
    // At most the server's clients and watches are left.
    eventually("descriptors are given back", || descriptors(daemon.pid()) <= before.0 + 4);
    let held = world.metric("muxtap_ring_bytes") / (1 << 20);
    let after = resident(daemon.pid());
    println!("memory: {} MiB before, {after} after, of which {held} are output that is kept", before.1);
    assert!(after <= before.1 + held + 48, "{} MiB before, {after} after, {held} are kept", before.1);
    world.ok(&["stop"]);
    let ended = daemon.finish();
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

/// Returns the peak resident memory of a process, in MiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// A pattern can match at each byte of the output before a wait, and each match has a line of 4
/// KiB.
#[test]
fn matches_that_a_wait_skips_are_not_collected() {
    let world = World::with_server();
    let pane = world.window("head -c 300000 /dev/zero | tr '\\0' x; echo; echo end; sleep 100");
    world.await_output(&pane, "^end$");
    let daemon = world.daemon_pid().unwrap();
    let before = peak(daemon);
    for _ in 0..3 {
        let missed = world.muxtap(&["--json", "wait-for", "-t", &pane, "-p", "x", "--since", "now", "-T", "0.1"]);
        assert_eq!(missed.json()["outcome"], "timeout", "{missed:?}");
    }
    let after = peak(daemon);
    println!("{before} MiB at most before, {after} MiB with it");
    assert!(after <= before + 16, "{before} MiB at most before, {after} MiB with it");
}
