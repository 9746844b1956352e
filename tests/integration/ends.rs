//! The ends of processes: the text that a wait prints, gaps in output, and the panes that remain.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::{
    common::{Background, World, names},
    mcp::Client,
    streams::read_on,
};

/// Creates four kept panes in the session `t`, of which three end: with statuses 0, 1 and 2.
fn three_of_four(world: &World) -> Vec<String> {
    world.ok(&["new-session", "-s", "t", "-n", "base", "--", "exec cat"]);
    let mut panes = Vec::new();
    for number in 0..3 {
        let line = format!("exit {number}");
        let pane = world.ok(&["new-window", "-t", "t", "-n", &format!("s{number}"), "--keep", "--", &line]);
        world.ok(&["wait-for", "-t", &pane, "--exit"]);
        panes.push(pane);
    }
    panes.push(world.ok(&["new-window", "-t", "t", "-n", "s3", "--keep", "--", "read x; exit 3"]));
    panes
}

#[test]
fn a_wait_for_the_ends_of_all_that_fit_has_those_that_have_ended() {
    let world = World::new();
    let panes = three_of_four(&world);
    let all = ["wait-for", "-t", "t:s*", "--all", "--exit"];
    let wait = json!({ "panes": ["t:s*"], "mode": "all", "exit": true });
    let open = world.spawn(&all);
    // The wait is for the fourth.
    let asked = world.http_send("POST", &format!("/v1/waits{}", world.query()), Some(&wait));
    crate::common::eventually("both wait", || {
        world.http("GET", "/v1/waits", None).json()["waits"].as_array().is_some_and(|waits| waits.len() == 2)
    });
    world.ok(&["send-keys", "-t", &panes[3], "Enter"]);
    let told: String = (0..4).map(|number| format!("{} ended (status {number})\n", panes[number])).collect();
    let ended = open.finish();
    assert_eq!((ended.status, ended.text()), (0, told.clone()));
    let statuses = |answer: &Value| -> Vec<i64> {
        let reports = answer["predicates"].as_array().unwrap().iter();
        reports.map(|report| report["exit_status"].as_i64().unwrap()).collect()
    };
    let answer = crate::common::Http::read(asked).json();
    assert_eq!((&answer["outcome"], statuses(&answer)), (&json!("matched"), vec![0, 1, 2, 3]), "{answer}");
    assert_eq!(names(&answer["predicates"], "pane"), panes);
    // All have ended.
    assert_eq!(world.ok(&all), told.trim_end());
    let mut mcp = Client::new(&world);
    let said = mcp.says("wait_for", &json!({ "panes": ["t:s*"], "all": true, "exit": true }));
    assert!(said.contains(&format!("{} exit: yes, exit status 2\n", panes[2])), "{said}");
    // A wait for future output refuses a pane that can print none.
    let message = world.error("NOT_FOUND", &["wait-for", "-t", "t:s*", "-p", "x"]);
    assert!(message.starts_with("no running pane matches t:s*: 4 have ended"), "{message}");
}

#[test]
fn a_wait_for_an_end_prints_it_and_exits_with_it_if_asked() {
    let world = World::with_server();
    let ended = |line: &str, args: &[&str]| {
        let pane = world.ok(&["new-window", "-t", "main", "--", line]);
        let answer = world.muxtap(&[&["wait-for", "-t", &pane, "--exit"], args].concat());
        (answer.text().replace(&pane, "%"), answer.status)
    };
    assert_eq!(ended("exit 7", &[]), ("% ended (status 7)\n".into(), 0));
    assert_eq!(ended("exit 7", &["--propagate"]), ("% ended (status 7)\n".into(), 7));
    assert_eq!(ended("true", &["--propagate"]), ("% ended (status 0)\n".into(), 0));
    // The shell that holds the pane reports a signal as shells do.
    assert_eq!(ended("kill -9 $$", &["--propagate"]).1, 137);
    assert_eq!(ended("exec cat", &["--propagate", "-T", "0.1"]).1, 124);
    let pane = world.tmux(&["new-window", "-d", "-P", "-F", "#{pane_id}", "exec cat"]);
    world.tmux(&["set-option", "-p", "-t", &pane, "remain-on-exit", "on"]);
    let pid = world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_pid}"]);
    let open = world.spawn(&["wait-for", "-t", &pane, "--exit", "--propagate"]);
    world.ok(&["wait-for", "-t", &pane, "--stable", "0.1"]);
    crate::common::signal(pid.parse().unwrap(), rustix::process::Signal::KILL);
    let answer = open.finish();
    assert_eq!((answer.text(), answer.status), (format!("{pane} ended (signal 9)\n"), 137));
    assert_eq!(world.muxtap(&["wait-for", "-t", &pane, "--stable", "1", "--propagate"]).status, 2);
}

/// tmux drops the last output of a process that ends after it (F9, N10).
#[test]
fn what_plain_tmux_may_have_dropped_at_an_end_is_a_gap() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let line = "echo start; read x; echo bye; exit 5";
    let panes: Vec<String> = (0..12).map(|_| world.window(line)).collect();
    for pane in &panes {
        world.await_output(pane, "^start$");
    }
    for pane in &panes {
        world.tmux(&["send-keys", "-t", pane, "Enter"]);
    }
    for pane in &panes {
        let wait = world.json(&["wait-for", "-t", pane, "--exit", "--since", "start"]);
        assert_eq!(wait["gap"]["reason"], "process-ended", "{wait}");
        let (text, gaps, _) = read_on(&world, pane, "start", "0");
        assert_eq!((gaps.len(), &gaps[0]["reason"]), (1, &json!("process-ended")), "{text} {gaps:?}");
        assert!(text.starts_with("start\n"), "{text}");
        let tail = world.muxtap(&["tail", "-t", pane, "-n", "10"]);
        assert_eq!(tail.status, 0, "{tail:?}");
    }
    // The same for a pane that is kept, and for one that is killed.
    world.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    let (kept, killed) = (world.window(line), world.window("echo start; exec cat"));
    for pane in [&kept, &killed] {
        world.await_output(pane, "^start$");
    }
    world.tmux(&["send-keys", "-t", &kept, "Enter"]);
    world.tmux(&["kill-pane", "-t", &killed]);
    for pane in [&kept, &killed] {
        world.ok(&["wait-for", "-t", pane, "--exit", "--since", "start"]);
        let (text, gaps, _) = read_on(&world, pane, "start", "0");
        assert_eq!((gaps.len(), &gaps[0]["reason"]), (1, &json!("process-ended")), "{text} {gaps:?}");
    }
    // The output of a pane that muxtap holds is complete.
    let held = world.ok(&["new-window", "-t", "main", "--", "echo start; echo bye; exit 5"]);
    world.ok(&["wait-for", "-t", &held, "--exit"]);
    let read = world.json(&["read", "-t", &held, "--since", "start"]);
    assert_eq!((&read["text"], read.get("gap")), (&json!("start\nbye\n"), None), "{read}");
}

/// The user's options also apply to panes that muxtap creates.
#[test]
fn a_pane_of_muxtap_stays_at_its_end_as_one_of_tmux_does() {
    let world = World::with_server();
    let is_dead = |pane: &str| {
        let panes = world.tmux(&["list-panes", "-a", "-F", "#{pane_id} #{pane_dead} #{pane_dead_status}"]);
        panes.lines().find_map(|line| Some(line.strip_prefix(pane)?.strip_prefix(' ')?.to_owned()))
    };
    let made = |args: &[&str], line: &str| {
        let pane = world.ok(&[args, &["--", line]].concat());
        world.ok(&["wait-for", "-t", &pane, "--exit"]);
        pane
    };
    let places: [&[&str]; 3] = [&["new-window", "-t", "main"], &["split-window", "-t", "main"], &["new-session"]];
    for value in ["off", "on", "failed"] {
        world.tmux(&["set-option", "-g", "remain-on-exit", value]);
        for args in places {
            for (line, stays) in [("echo end; exit 3", value != "off"), ("echo end", value == "on")] {
                let pane = made(args, line);
                let wanted = stays.then(|| if line == "echo end" { "1 0".to_owned() } else { "1 3".to_owned() });
                let what = format!("{value} {args:?} {line}");
                crate::common::eventually(&what, || is_dead(&pane) == wanted);
                assert_eq!(world.read_all(&pane), "end\n", "{what}");
                if stays {
                    let options = world.tmux(&["show-options", "-p", "-t", &pane]);
                    assert_eq!(options, "", "{what}: the pane has options of its own");
                    world.tmux(&["kill-pane", "-t", &pane]);
                }
            }
            let kept = made(&[args, &["--keep"]].concat(), "exit 4");
            crate::common::eventually("it is kept", || is_dead(&kept).as_deref() == Some("1 4"));
            world.tmux(&["kill-pane", "-t", &kept]);
        }
    }
    // A shell's pane too.
    world.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    let pane = world.ok(&["new-window", "-t", "main"]);
    world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start"]);
    world.ok(&["send-keys", "-t", &pane, "exit 5", "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "--exit"]);
    crate::common::eventually("the shell's pane stays", || is_dead(&pane).as_deref() == Some("1 5"));
    assert_eq!(world.tmux(&["show-options", "-p", "-t", &pane]), "");
}

/// `tail -f … | head -1` on a pane that falls silent.
#[test]
fn what_goes_on_printing_ends_when_its_reader_has_gone() {
    let world = World::with_server();
    let pane = world.ok(&["new-window", "-t", "main", "-n", "w", "--", "echo one; exec cat"]);
    world.await_output(&pane, "^one$");
    let streams: [&[&str]; 9] = [
        &["tail", "-f", "-t", &pane],
        &["tail", "-f", "main:*"],
        &["--json", "tail", "-f", "-t", &pane],
        &["events", "--types", "output", "--since", "start"],
        &["read", "-t", &pane, "--since", "now", "--wait", "300"],
        &["list-panes", "--watch", "--json"],
        &["agents", "--watch"],
        &["status", "--watch"],
        &["approvals", "--watch"],
    ];
    for args in streams {
        // It has begun to print, or has nothing to print; then its reader closes, and nothing more
        // is printed.
        let mut stream = world.spawn(args);
        if !["read", "agents", "approvals"].contains(&args[0]) {
            stream.line_where("it has begun", |_| true);
        }
        let ended = stream.finish_unread();
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{args:?}");
    }
    // The same for a socket, but not for one whose other end is only silent.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = world.muxtap_command(&["tail", "-f", "-t", &pane]);
    command.stdin(std::process::Stdio::null()).stdout(std::os::fd::OwnedFd::from(theirs));
    let mut tail = command.spawn().unwrap();
    drop(command);
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(&ours));
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    world.ok(&["send-keys", "-t", &pane, "two", "Enter"]);
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    drop(lines);
    drop(ours);
    assert!(tail.wait().unwrap().success());
}

/// `split-window -I` and `display-message -I` put text into a pane that no process printed.
#[test]
fn a_pane_without_a_process_has_not_ended_and_shows_what_tmux_puts_there() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let put = |args: &[&str], text: &str| {
        let mut command = world.tmux_command(world.socket());
        let mut process = Background::start(command.args(args));
        process.stdin().write_all(text.as_bytes()).unwrap();
        let answer = process.finish();
        assert_eq!(answer.status, 0, "{answer:?}");
        answer.text().trim_end().to_owned()
    };
    let pane = put(&["split-window", "-d", "-I", "-P", "-F", "#{pane_id}"], "first\n");
    let mut shown = "first".to_owned();
    // The last sequence leaves the cursor in its place.
    for (text, wanted) in [("", "first"), ("second\n", "first\nsecond"), ("\x1b7\x1b[HFIRST\x1b8", "FIRST\nsecond")] {
        if !text.is_empty() {
            put(&["display-message", "-I", "-t", &pane], text);
        }
        let capture = world.ok(&["capture-pane", "-p", "-t", &pane]);
        assert_eq!(capture.trim_end(), wanted, "after {text:?} on {shown:?}");
        wanted.clone_into(&mut shown);
    }
    let list = world.json(&["list-panes"]);
    let info = list["panes"].as_array().unwrap().iter().find(|info| info["id"] == pane.as_str()).unwrap();
    assert_eq!((&info["dead"], &info["pid"]), (&json!(false), &json!(0)), "{info}");
    assert_eq!(world.ok(&["wait-for", "-t", &pane, "--screen", "^FIRST$"]), "FIRST");
    let open = world.spawn(&["wait-for", "-t", &pane, "--screen", "^third$", "-T", "30"]);
    crate::common::eventually("it waits", || {
        world.http("GET", "/v1/waits", None).json()["waits"].as_array().is_some_and(|waits| !waits.is_empty())
    });
    put(&["display-message", "-I", "-t", &pane], "third\n");
    let answer = open.finish();
    assert_eq!((answer.status, answer.text().as_str()), (0, "third\n"), "{answer:?}");
    assert_eq!(world.muxtap(&["wait-for", "-t", &pane, "-p", "never", "-T", "0.2"]).status, 124);
    // A program started in the pane is followed from its beginning.
    world.ok(&["respawn-pane", "-t", &pane, "--", "echo ran; exec cat"]);
    world.await_output(&pane, "^ran$");
    let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
    assert_eq!(world.ok(&["capture-pane", "-p", "-t", &pane]).trim_end(), shown.trim_end());
    world.ok(&["send-keys", "-t", &pane, "C-d"]);
    world.ok(&["wait-for", "-t", &pane, "--exit"]);
}
