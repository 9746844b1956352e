//! Failures of the daemon, each seen from outside: no file descriptor is left, the disk is full, it
//! is killed.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    process::Stdio,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, Signal};
use serde_json::{Value, json};

use crate::common::{Background, LIMIT, World, eventually, is_alive, run, signal};

/// Starts a daemon in the foreground, as a user does.
fn served(world: &World) -> Background {
    let daemon = Background::start(world.plain_muxtap_command().arg("serve"));
    eventually("the daemon answers", || world.daemon_pid() == Some(daemon.pid()));
    daemon
}

fn daemons(world: &World) -> Vec<u32> {
    world.processes().into_iter().filter(|(_, line)| line.contains(" serve")).map(|(pid, _)| pid).collect()
}

#[cfg(target_os = "linux")]
mod descriptors {
    use std::{io::PipeWriter, path::Path, thread::JoinHandle};

    use rustix::event::{PollFd, PollFlags};

    use super::*;
    use crate::common::ticks;

    fn open(pid: u32) -> u64 {
        fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64
    }

    fn limit(pid: u32, current: u64) {
        let process = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let new = Rlimit { current: Some(current), maximum: Some(current.max(20_000)) };
        let hard = rustix::process::prlimit(Some(process), Resource::Nofile, new);
        // Without root the existing hard limit is kept.
        let _ = hard.or_else(|_| {
            let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
            rustix::process::prlimit(Some(process), Resource::Nofile, Rlimit { maximum, ..new })
        });
    }

    /// Sends a request on an open connection; returns the response's status and body.
    fn ask(stream: &mut UnixStream, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: muxtap\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    /// Callers that send nothing and reconnect whenever they are turned away: they take each
    /// descriptor that becomes free.
    struct Crowd {
        thread: Option<JoinHandle<()>>,
        leave: Option<PipeWriter>,
    }

    impl Crowd {
        fn of(callers: usize, socket: &Path) -> Self {
            let socket = socket.to_owned();
            let connect = move || UnixStream::connect(&socket).unwrap();
            let (left, leave) = std::io::pipe().unwrap();
            let mut there: Vec<UnixStream> = (0..callers).map(|_| connect()).collect();
            let thread = std::thread::spawn(move || {
                loop {
                    let mut fds = vec![PollFd::new(&left, PollFlags::IN)];
                    fds.extend(there.iter().map(|stream| PollFd::new(stream, PollFlags::IN)));
                    rustix::event::poll(&mut fds, None).unwrap();
                    let turned: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
                    if turned[0] {
                        return;
                    }
                    for (stream, _) in there.iter_mut().zip(&turned[1..]).filter(|(_, turned)| **turned) {
                        *stream = connect();
                    }
                }
            });
            Self { thread: Some(thread), leave: Some(leave) }
        }
    }

    impl Drop for Crowd {
        fn drop(&mut self) {
            drop(self.leave.take());
            self.thread.take().unwrap().join().unwrap();
        }
    }

    #[test]
    fn without_free_descriptors_only_status_works_until_some_are_free_again() {
        let world = World::with_server();
        let pane = world.panes().remove(0);
        let daemon = world.daemon_pid().unwrap();
        let mut before = UnixStream::connect(world.daemon_socket()).unwrap();
        before.set_read_timeout(Some(LIMIT)).unwrap();
        eventually("it is accepted", || world.daemon_pid() == Some(daemon));
        let free = open(daemon);
        limit(daemon, free + 12);
        let silent = Crowd::of(24, &world.daemon_socket());

        // The first of them take all free descriptors; further callers get reserve descriptors.
        eventually("it is out of descriptors", || !world.json(&["status"])["warnings"].is_null());
        let status = world.json(&["status"]);
        let warning = status["warnings"][0].as_str().unwrap();
        assert!(warning.contains("out of file descriptors") && warning.contains("ulimit -n"), "{warning}");
        assert!(world.ok(&["status"]).contains("out of file descriptors"));
        assert!(world.muxtap(&["doctor"]).text().contains("out of file descriptors"));
        let refused = world.error("RESOURCE_LIMIT", &["list-panes"]);
        assert!(refused.contains("out of file descriptors") && refused.contains("raise the limit"), "{refused}");
        let told = world.http("GET", &format!("/v1/panes{}", world.query()), None);
        assert_eq!((told.status, &told.json()["code"]), (503, &"RESOURCE_LIMIT".into()), "{told:?}");

        // A request that needs its own descriptors gets an error while there are none.
        let other = format!("/v1/sessions?socket={}", world.path("other").display());
        let (status, error) = ask(&mut before, "POST", &other, &json!({"name": "work"}));
        assert_eq!((status, &error["code"]), (429, &"RESOURCE_LIMIT".into()), "{error}");
        assert!(error["message"].as_str().unwrap().contains("out of file descriptors"), "{error}");

        // A queue of callers that cannot be accepted causes no busy loop.
        let used = ticks(daemon);
        std::thread::sleep(Duration::from_secs(1));
        let busy = ticks(daemon) - used;
        assert!(busy < 30, "{busy} ticks of its processor's time");

        // Each session needs a control client, and a client needs descriptors: if these are
        // missing, the error says so.
        drop(silent);
        eventually("the callers have gone", || open(daemon) < free + 3);
        // Wherever the last one is taken, there is one answer.
        let made = |spare: u64| {
            limit(daemon, open(daemon) + spare);
            let answer = world.muxtap(&["--json", "new-session", "-s", &format!("with-{spare}"), "sleep 1000"]);
            if answer.status == 0 {
                return true;
            }
            let error = answer.error();
            assert_eq!(error["code"], "RESOURCE_LIMIT", "{spare} to spare: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("out of file descriptors"), "{spare} to spare: {message}");
            false
        };
        let made: Vec<bool> = (0..20).map(made).collect();
        assert!(made.contains(&false), "{made:?}");

        // The sessions that were made need some, too.
        limit(daemon, free + 2000);
        eventually("there are descriptors again", || world.json(&["status"])["warnings"].is_null());
        world.tmux(&["send-keys", "-t", &pane, "echo al''ive", "Enter"]);
        world.await_output(&pane, "^alive");
        let made = world.ok(&["new-session", "-s", "more", "echo made"]);
        world.await_output(&made, "^made");
        assert!(world.json(&["status"])["warnings"].is_null());
    }
}

#[cfg(target_os = "linux")]
mod full_disk {
    use super::*;

    fn full() -> Stdio {
        OpenOptions::new().write(true).open("/dev/full").unwrap().into()
    }

    #[test]
    fn the_daemon_runs_with_an_unwritable_log_and_reports_it() {
        for background in [false, true] {
            let world = World::with_server();
            let mut command = world.plain_muxtap_command();
            command.arg("serve").args(background.then_some("--background"));
            let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full()).spawn().unwrap();
            if background {
                let mut ready = String::new();
                daemon.stdout.as_mut().unwrap().read_to_string(&mut ready).unwrap();
                assert!(ready.starts_with("ready, but the log cannot be written: No space left"), "{ready:?}");
            } else {
                eventually("the daemon answers", || world.daemon_pid() == Some(daemon.id()));
            }
            assert_eq!(world.panes().len(), 1);
            let warning = world.json(&["status"])["warnings"][0].as_str().unwrap().to_owned();
            assert!(warning.starts_with("the log cannot be written: No space left on device"), "{warning}");
            assert!(world.muxtap(&["doctor"]).text().contains(&warning));
            world.ok(&["stop"]);
            assert_eq!(daemon.wait().unwrap().code(), Some(0));
        }
    }

    /// Under a limit on the size of files a write ends half way, as on a full disk.
    #[test]
    fn a_full_disk_leaves_no_partial_token_or_certificate() {
        // In units of 512 bytes: no certificate fits into one.
        for (blocks, names) in [("0", "token"), ("1", "certificate")] {
            let world = World::new();
            let started = run(world
                .command("sh")
                .args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", blocks])
                .arg(world.plain_muxtap_command().get_program())
                .args(["serve", "--http", "127.0.0.1:0"])
                .args((names == "certificate").then_some("--tls")));
            assert_ne!(started.status, 0);
            let said = format!("cannot write {}", if names == "token" { "the token to" } else { "a certificate to" });
            assert!(started.stderr.contains(&said) && started.stderr.contains("File too large"), "{started:?}");
            let folder = |path: &std::path::Path| -> Vec<String> {
                let entries = std::fs::read_dir(path).into_iter().flatten();
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
            };
            let tokens: Vec<String> =
                folder(world.dir()).into_iter().filter(|name| name.starts_with("m.sock.token")).collect();
            assert!(tokens.is_empty(), "{tokens:?}");
            // Files that were written completely may remain; without the record none of them is
            // used.
            let made = folder(&world.path("m.sock.tls"));
            assert!(made.iter().all(|name| name == "ca.pem" || name == "cert.pem"), "{made:?}");

            // With free space it starts again and creates what is missing.
            let mut daemon =
                Background::start(world.plain_muxtap_command().args(["serve", "--tls", "--http", "127.0.0.1:0"]));
            eventually("the daemon answers", || world.daemon_pid() == Some(daemon.pid()));
            assert_eq!(folder(&world.path("m.sock.tls")).len(), 4);
            daemon.close_stdin();
            world.ok(&["stop"]);
            assert_eq!(daemon.finish().status, 0);
        }
    }

    /// Output that cannot be written is a failure; a reader that closes early is not.
    #[test]
    fn a_full_stdout_is_an_error_and_a_closed_one_is_quiet() {
        let world = World::with_server();
        let pane = world.panes().remove(0);
        world.tmux(&["send-keys", "-t", &pane, "echo so''me", "Enter"]);
        world.await_output(&pane, "^some");
        let commands: [&[&str]; 16] = [
            &["--help"],
            &["--version"],
            &["status"],
            &["doctor"],
            &["config"],
            &["list-panes"],
            &["--json", "list-sessions"],
            &["list-windows"],
            &["capture-pane", "-t", &pane],
            &["read", "-t", &pane, "--since", "start"],
            &["tail", "-t", &pane],
            &["tail", "-f", "-t", &pane],
            &["wait-for", "-t", &pane, "-p", "^some", "--since", "start"],
            &["run", "-t", &pane, "echo out"],
            &["completions", "bash"],
            &["agents", "--json"],
        ];
        for args in commands {
            let answer = world.muxtap_command(args).stdin(Stdio::null()).stdout(full()).output().unwrap();
            let said = String::from_utf8_lossy(&answer.stderr);
            assert_eq!(answer.status.code(), Some(1), "{args:?}: {said}");
            assert!(said.contains("cannot write to stdout: No space left on device"), "{args:?}: {said}");

            let (read, write) = std::io::pipe().unwrap();
            drop(read);
            let answer = world.muxtap_command(args).stdin(Stdio::null()).stdout(write).output().unwrap();
            let said = String::from_utf8_lossy(&answer.stderr);
            assert_eq!((answer.status.code(), said.as_ref()), (Some(0), ""), "{args:?}");
        }
        // An error that cannot be printed makes no difference either.
        let answer = world.muxtap_command(&["read", "-t", "%99"]).stdout(full()).stderr(full()).output().unwrap();
        assert_eq!(answer.status.code(), Some(1));
    }
}

#[test]
fn waits_reads_and_runs_cut_off_by_a_killed_daemon_explain_themselves() {
    let world = World::with_server();
    let pane = world.panes().remove(0);
    let daemon = world.daemon_pid().unwrap();
    let line = ["--json", "wait-for", "-t", &pane, "-p", "ready", "--exit", "--all", "-T", "50"];
    // The second form of the command runs in `muxtapd`.
    let waits = [world.spawn(&line), world.spawn(&[&line[..], &["--on-end", "true"]].concat())];
    let quiet = world.window("exec sleep 1000");
    let read = world.spawn(&["read", "-t", &quiet, "--since", "now", "--wait", "50"]);
    let ran = world.spawn(&["--json", "run", "-t", &pane, "-T", "50", "sleep 30"]);
    eventually("the waits are open", || world.json(&["status"])["waits"] == 2);
    eventually("the command runs", || {
        world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_current_command}"]) == "sleep"
    });
    world.kill_daemon(Signal::KILL);
    let (waits, read, ran) = (waits.map(Background::finish), read.finish(), ran.finish());
    let killed = format!("the muxtap daemon (process {daemon}) was killed or crashed");
    for answer in waits.iter().chain([&read, &ran]) {
        assert_eq!((answer.status, answer.text().as_str()), (1, ""), "{answer:?}");
        assert!(answer.stderr.contains(&killed), "{answer:?}");
    }
    for wait in waits {
        let said = wait.error()["message"].as_str().unwrap().to_owned();
        assert!(said.contains(&format!("for /ready/, exit in {pane}")) && said.contains("has ended"), "{said}");
        assert!(said.contains("--since start"), "what to do: {said}");
    }
    assert!(read.stderr.contains("the read has ended"), "{read:?}");
    assert!(ran.error()["message"].as_str().unwrap().contains("the run in"), "{ran:?}");
    // None of them starts another daemon, which would know nothing of them.
    assert_eq!(daemons(&world), [0; 0]);
    // A read from a cursor continues with another daemon, and reports what is missing.
    assert!(world.json(&["read", "-t", &pane, "--since", "start"])["text"].as_str().unwrap().contains("sleep 30"));
}

#[test]
fn a_wait_whose_daemon_hangs_ends_at_the_second_ctrl_c() {
    let world = World::with_server();
    let pane = world.panes().remove(0);
    let daemon = world.daemon_pid().unwrap();
    let wait = world.spawn(&["wait-for", "-t", &pane, "-p", "never", "-T", "50"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    signal(daemon, Signal::STOP);
    eventually("it ends", || {
        signal(wait.pid(), Signal::INT);
        !is_alive(wait.pid())
    });
    signal(daemon, Signal::CONT);
    let answer = wait.finish();
    assert_eq!((answer.status, answer.text().as_str(), answer.stderr.as_str()), (130, "", ""));
}

#[test]
fn tail_and_events_continue_after_a_gap_when_the_daemon_was_killed() {
    let world = World::with_server();
    let pane = world.tmux(&["new-window", "-d", "-P", "-F", "#{pane_id}", "stty -echo; echo ready; cat"]);
    let goes = world.window("exec sleep 1000");
    world.await_output(&pane, "^ready");
    let say = |text: &str| world.tmux(&["send-keys", "-l", "-t", &pane, text, ";", "send-keys", "-t", &pane, "Enter"]);
    let mut tail = world.spawn(&["tail", "-f", "--color", "never", "-t", &pane]);
    let mut both = world.spawn(&["tail", "-f", "--color", "never", &pane, &goes]);
    let mut all = world.spawn(&["tail", "-f", "-n", "0", "--color", "never", "main:*"]);
    let mut events = world.spawn(&["events", "-t", &pane, "--types", "output,gap"]);
    tail.line_where("what was there", |line| line == "ready");
    both.line_where("what was there", |line| line.ends_with("ready"));
    eventually("all four are there", || world.metric("muxtap_streams") == 4);
    say("before");
    tail.line_where("a line", |line| line == "before");
    all.line_where("a line", |line| line.ends_with("before"));
    events.line_where("a line", |line| line.contains("before"));

    // In the meantime one pane ends, another one prints.
    let daemon = world.daemon_pid().unwrap();
    let stopped: Vec<u32> = [&tail, &both, &all, &events].map(Background::pid).into();
    for pid in &stopped {
        signal(*pid, Signal::STOP);
    }
    world.kill_daemon(Signal::KILL);
    say("meanwhile");
    world.tmux(&["kill-pane", "-t", &goes]);
    for pid in &stopped {
        signal(*pid, Signal::CONT);
    }
    for follower in [&mut tail, &mut both, &mut all] {
        follower.line_where("what was printed meanwhile", |line| line.ends_with("meanwhile"));
    }
    let gap = events.line_where("a gap", |line| line.contains("\"gap\""));
    let gap: Value = serde_json::from_str(&gap).unwrap();
    assert_eq!(gap["gap"]["reason"], "muxtap-restarted", "{gap}");
    events.line_where("what was printed meanwhile", |line| line.contains("meanwhile"));
    let next = world.daemon_pid().unwrap();
    assert_ne!(next, daemon);
    assert_eq!(daemons(&world), [next], "four that go on start one daemon");
    say("after");
    tail.line_where("a line", |line| line == "after");
    events.line_where("a line", |line| line.contains("after"));

    // A daemon that is stopped is different: the readers end.
    world.ok(&["stop"]);
    for (name, follower, gaps) in [("tail", tail, 1), ("both", both, 1), ("all", all, 2), ("events", events, 0)] {
        let ended = follower.finish();
        assert_eq!(ended.status, 1, "{name}: {ended:?}");
        assert!(ended.stderr.contains(&format!("daemon (process {daemon}) was killed")), "{name}: {ended:?}");
        assert!(ended.stderr.ends_with("the daemon has ended\n"), "{name}: {ended:?}");
        let remarks = ended.stderr.matches("output is missing (muxtap-restarted)").count();
        assert_eq!(remarks, gaps, "{name}: {ended:?}");
        assert_eq!(ended.stderr.contains("ended meanwhile"), name == "both", "{name}: {ended:?}");
    }
    assert_eq!(daemons(&world), [0; 0]);
}

/// A supervisor, such as systemd or launchd, restarts a killed daemon.
#[test]
fn no_second_daemon_is_started_beside_a_supervisors() {
    let world = World::with_server();
    let first = served(&world);
    let pane = world.panes().remove(0);
    let mut tail = world.spawn(&["tail", "-f", "-n", "0", "-t", &pane]);
    eventually("tail is there", || world.metric("muxtap_streams") == 1);
    first.kill();
    let asked = world.spawn(&["--json", "list-panes"]);
    // The command whose turn it is decides whether a daemon is started.
    eventually("a command has its turn", || {
        File::open(world.path("m.sock.start"))
            .is_ok_and(|turn| rustix::fs::flock(turn, rustix::fs::FlockOperation::NonBlockingLockShared).is_err())
    });
    assert_eq!(daemons(&world), [0; 0], "the commands wait for the supervisor's");
    let second = served(&world);
    let answer = asked.finish();
    assert_eq!((answer.status, answer.stderr.as_str()), (0, ""), "{answer:?}");
    eventually("tail is back", || world.metric("muxtap_streams") == 1);
    world.tmux(&["send-keys", "-t", &pane, "echo ba''ck", "Enter"]);
    tail.line_where("a line", |line| line == "back");
    assert_eq!(daemons(&world), [second.pid()]);

    // If no supervisor restarts it, a command does, and reports that.
    tail.kill();
    second.kill();
    let answer = world.muxtap(&["list-panes"]);
    assert_eq!(answer.status, 0, "{answer:?}");
    assert!(answer.stderr.contains("was killed and did not return"), "{answer:?}");
    assert_eq!(daemons(&world).len(), 1);
    // A daemon that commands start is restarted immediately.
    let pid = world.daemon_pid().unwrap();
    world.kill_daemon(Signal::KILL);
    let answer = world.muxtap(&["list-panes"]);
    assert_eq!((answer.status, answer.stderr.as_str()), (0, ""), "nobody was waited for: {answer:?}");
    assert!(!is_alive(pid));
}

/// After an orderly end no command waits for a restart.
#[test]
fn a_daemon_that_was_stopped_is_not_waited_for() {
    let world = World::with_server();
    let daemon = served(&world);
    world.ok(&["stop"]);
    assert_eq!(daemon.finish().status, 0);
    assert_eq!(File::open(world.path("m.sock.lock")).unwrap().metadata().unwrap().len(), 0);
    let answer = world.muxtap(&["list-panes"]);
    assert_eq!((answer.status, answer.stderr.as_str()), (0, ""), "nobody was waited for: {answer:?}");
}

/// A daemon that a command started ends when it is idle; one that follows a server or has a caller
/// stays.
#[test]
fn a_daemon_with_nothing_to_do_ends_by_itself() {
    let mut world = World::new();
    world.set("MUXTAP_IDLE_END", "1");
    // A caller that stays connected, without a server.
    let caller = world.spawn(&["approvals", "--watch"]);
    eventually("the daemon answers", || world.daemon_pid().is_some());
    let daemon = world.daemon_pid().unwrap();
    // A separate process's clock: longer than the daemon would stay.
    let clock = |world: &World| run(world.command("sleep").arg("3"));
    clock(&world);
    assert!(is_alive(daemon), "it has a caller");
    let end = crate::common::ProcessEnd::of(daemon);
    caller.kill();
    end.wait();
    // The next command starts another daemon, which has a server to follow.
    world.session("main");
    world.ok(&["list-panes"]);
    let daemon = world.daemon_pid().unwrap();
    clock(&world);
    assert_eq!(world.daemon_pid(), Some(daemon), "it follows a server");
}
