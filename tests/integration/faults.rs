//! Faults that no other file of this folder causes: `docs/reliability.md` names the test of each
//! promise.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Background, Stopped, World, answering, eventually, run, say, signal, type_line};

fn cursor(world: &World, pane: &str) -> String {
    world.json(&["read", "-t", pane, "--since", "start"])["cursor"].as_str().unwrap().to_owned()
}

/// Reads from a cursor to the end of the stream, which must have no gap; returns the responses in
/// order.
fn answers_without_a_gap(world: &World, pane: &str, since: &str) -> Vec<String> {
    let answer = world.json(&["read", "-t", pane, "--since", since]);
    assert!(answer["gap"].is_null() && answer["more"] != true, "{answer}");
    let text = answer["text"].as_str().unwrap();
    text.lines().filter_map(|line| line.strip_prefix("got ")).map(str::to_owned).collect()
}

/// Returns muxtap's control clients, as tmux lists them.
fn clients(world: &World) -> Vec<u32> {
    let listed = world.tmux(&["list-clients", "-F", "#{client_pid}"]);
    listed.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Reads on from a cursor until this line has arrived; the output between two gaps is one part,
/// with the reason of the gap before it.
fn parts_until(world: &World, pane: &str, since: &str, last: &str) -> Vec<(Option<String>, String)> {
    let mut parts = vec![(None, String::new())];
    let mut since = since.to_owned();
    while !parts.last().unwrap().1.contains(last) {
        let answer = world.json(&["read", "-t", pane, "--since", &since, "--wait", "20"]);
        if let Some(reason) = answer["gap"]["reason"].as_str() {
            parts.push((Some(reason.to_owned()), String::new()));
        }
        parts.last_mut().unwrap().1.push_str(answer["text"].as_str().unwrap());
        answer["cursor"].as_str().unwrap().clone_into(&mut since);
    }
    parts
}

/// Returns the numbers of whole lines `line N`.
fn numbered(text: &str) -> Vec<u64> {
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    whole.lines().filter_map(|line| line.trim_end().strip_prefix("line ")?.parse().ok()).collect()
}

#[track_caller]
fn assert_consecutive(numbers: &[u64]) {
    let broken = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
    assert_eq!(broken, None, "between gaps nothing is missing and nothing comes twice");
}

#[test]
fn control_clients_that_are_killed_during_output_are_replaced() {
    let world = World::with_server();
    let pane = world.window(
        "stty -echo; echo ready; read -r go; i=0; while [ $i -lt 6000 ]; do i=$((i+1)); echo \"line $i\"; \
         [ $((i % 50)) -ne 0 ] || sleep 0.02; done; echo END; while read -r line; do echo \"got $line\"; done",
    );
    world.await_output(&pane, "^ready");
    let since = cursor(&world, &pane);
    let wait = world.spawn(&["wait-for", "-t", &pane, "-p", "^got late$", "-T", "50"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    type_line(&world, &pane, "go");
    world.await_output(&pane, "^line 50$");
    let before = clients(&world);
    assert!(!before.is_empty());
    for client in &before {
        signal(*client, Signal::KILL);
    }
    eventually("others are there", || {
        let now = clients(&world);
        now.len() == before.len() && now.iter().all(|client| !before.contains(client))
    });
    // A reader gets each line once and in order, or a gap with its reason.
    let parts = parts_until(&world, &pane, &since, "END");
    for (_, text) in &parts {
        assert_consecutive(&numbered(text));
    }
    assert!(parts[1..].iter().all(|(gap, _)| gap.as_deref() == Some("reconnected")), "{parts:?}");
    assert_eq!(numbered(&parts.last().unwrap().1).last(), Some(&6000));
    say(&world, &pane, "late");
    assert_eq!(wait.finish().status, 0, "a wait goes on over the new client");
}

#[test]
fn control_clients_that_are_stopped_and_continued_lose_nothing() {
    let world = World::with_server();
    let pane = answering(&world, &["new-window", "-t", "main"]);
    say(&world, &pane, "0");
    let since = cursor(&world, &pane);
    let clients = clients(&world);
    let stopped: Vec<Stopped> = clients.iter().map(|client| Stopped::new(*client)).collect();
    for line in ["1", "2"] {
        type_line(&world, &pane, line);
        eventually("it has answered", || {
            world.tmux(&["capture-pane", "-p", "-t", &pane]).contains(&format!("got {line}"))
        });
    }
    drop(stopped);
    say(&world, &pane, "3");
    assert_eq!(answers_without_a_gap(&world, &pane, &since), ["1", "2", "3"]);
}

/// tmux itself writes to the process that started the client.
#[test]
fn a_control_client_that_stays_stopped_delays_no_caller() {
    let world = World::with_server();
    let pane = answering(&world, &["new-window", "-t", "main"]);
    say(&world, &pane, "0");
    let since = cursor(&world, &pane);
    let wait = world.spawn(&["wait-for", "-t", &pane, "-p", "^got 2$", "-T", "50"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    let stopped: Vec<Stopped> = clients(&world).into_iter().map(Stopped::new).collect();
    // The first request may fail because tmux does not reply.
    eventually("it answers", || world.muxtap(&["rename-window", "-t", &pane, "renamed"]).status == 0);
    say(&world, &pane, "1");
    say(&world, &pane, "2");
    assert_eq!(wait.finish().status, 0);
    assert_eq!(world.ok(&["run", "-t", "main:0", "-T", "30", "echo ran"]), "ran");
    drop(stopped);
    say(&world, &pane, "3");
    assert_eq!(answers_without_a_gap(&world, &pane, &since), ["1", "2", "3"]);
}

#[test]
fn a_daemon_killed_under_load_ends_its_waits_and_old_cursors_get_a_gap() {
    let world = World::with_server();
    let flood = "i=0; while :; do i=$((i+1)); echo \"line $i\"; done";
    let panes: Vec<String> = (0..3).map(|_| world.window(flood)).collect();
    let cursors: Vec<String> = panes
        .iter()
        .map(|pane| {
            world.await_output(pane, "^line [0-9]+$");
            world.json(&["read", "-t", pane, "--since", "now"])["cursor"].as_str().unwrap().to_owned()
        })
        .collect();
    let waits: Vec<Background> = (0..9)
        .map(|wait| world.spawn(&["--json", "wait-for", "-t", &panes[wait % 3], "-p", "never", "-T", "50"]))
        .collect();
    eventually("the waits are open", || world.json(&["status"])["waits"] == 9);
    let killed = format!("the muxtap daemon (process {}) was killed or crashed", world.daemon_pid().unwrap());
    world.kill_daemon(Signal::KILL);
    for wait in waits {
        let answer = wait.finish();
        assert_eq!((answer.status, answer.text().as_str()), (1, ""), "{answer:?}");
        assert!(answer.error()["message"].as_str().unwrap().contains(&killed), "{answer:?}");
    }
    for (pane, old) in panes.iter().zip(&cursors) {
        let answer = world.json(&["read", "-t", pane, "--since", old]);
        assert_eq!(answer["gap"]["reason"], "muxtap-restarted", "{answer}");
        // Reported once. The following output is complete.
        let next = answer["cursor"].as_str().unwrap();
        let go_on = world.json(&["read", "-t", pane, "--since", next, "--wait", "20"]);
        assert!(go_on["gap"].is_null() || go_on["gap"]["reason"] == "trimmed", "{}", go_on["gap"]);
        assert_consecutive(&numbered(answer["text"].as_str().unwrap()));
        assert_consecutive(&numbered(go_on["text"].as_str().unwrap()));
    }
    for pane in &panes {
        world.tmux(&["kill-pane", "-t", pane]);
    }
}

#[test]
fn a_window_that_is_linked_and_unlinked_continues_without_a_gap() {
    let world = World::with_server().with_coverage("sessions");
    let pane = answering(&world, &["new-session", "-s", "one"]);
    world.tmux(&["new-window", "-d", "-t", "one:5", "exec cat"]);
    world.session("two");
    say(&world, &pane, "0");
    let since = cursor(&world, &pane);
    let steps: [&[&str]; 5] = [
        &["link-window", "-d", "-s", "one:0", "-t", "two:7"],
        &["unlink-window", "-t", "one:0"],
        &["link-window", "-d", "-s", "two:7", "-t", "main:3"],
        &["move-window", "-d", "-s", "two:7", "-t", "one:9"],
        &["unlink-window", "-t", "main:3"],
    ];
    for (step, args) in steps.iter().enumerate() {
        world.tmux(args);
        say(&world, &pane, &format!("{}", step + 1));
    }
    assert_eq!(answers_without_a_gap(&world, &pane, &since), ["1", "2", "3", "4", "5"]);
    assert_eq!(world.tmux(&["list-panes", "-t", "one:9", "-F", "#{pane_id}"]), pane);
}

#[test]
fn a_grouped_sessions_window_delivers_each_byte_once_and_survives_one_session() {
    let world = World::with_server();
    let pane = answering(&world, &["new-session", "-s", "one"]);
    world.tmux(&["new-session", "-d", "-t", "one", "-s", "two"]);
    assert_eq!(world.sessions(), ["main", "one", "two"]);
    say(&world, &pane, "grouped");
    let later = answering(&world, &["new-window", "-t", "two:"]);
    world.tmux(&["rename-session", "-t", "two", "three"]);
    say(&world, &later, "renamed");
    world.tmux(&["kill-session", "-t", "one"]);
    say(&world, &pane, "alone");
    say(&world, &later, "alone");
    assert_eq!(world.sessions(), ["main", "three"]);
    let got = |pane: &str| -> Vec<String> {
        let text = world.read_all(pane);
        text.lines().filter_map(|line| line.strip_prefix("got ")).map(str::to_owned).collect()
    };
    assert_eq!(got(&pane), ["grouped", "alone"]);
    assert_eq!(got(&later), ["renamed", "alone"]);
}

#[test]
fn a_zoomed_pane_continues_without_a_gap() {
    let world = World::with_server();
    let pane = answering(&world, &["new-window", "-t", "main"]);
    let hidden = answering(&world, &["split-window", "-h", "-t", &pane]);
    let width = |pane: &str| {
        let panes = world.json(&["list-panes"]);
        let found = panes["panes"].as_array().unwrap().iter().find(|listed| listed["id"] == pane);
        found.unwrap()["size"]["width"].as_u64().unwrap()
    };
    let (narrow, since, hidden_since) = (width(&pane), cursor(&world, &pane), cursor(&world, &hidden));
    for (line, zoomed) in [("1", true), ("2", false), ("3", true)] {
        world.tmux(&["resize-pane", "-Z", "-t", &pane]);
        say(&world, &pane, line);
        say(&world, &hidden, line);
        eventually("it has its new size", || (width(&pane) > narrow) == zoomed);
        let theirs = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        assert_eq!(world.ok(&["capture-pane", "-t", &pane]).trim_end(), theirs.trim_end());
    }
    assert_eq!(answers_without_a_gap(&world, &pane, &since), ["1", "2", "3"]);
    assert_eq!(answers_without_a_gap(&world, &hidden, &hidden_since), ["1", "2", "3"]);
}

#[test]
fn clear_history_removes_nothing_from_a_stream() {
    let world = World::with_server();
    let pane = answering(&world, &["new-window", "-t", "main"]);
    for line in 1..=40 {
        type_line(&world, &pane, &line.to_string());
    }
    say(&world, &pane, "41");
    let since = cursor(&world, &pane);
    world.tmux(&["clear-history", "-t", &pane]);
    say(&world, &pane, "42");
    assert_eq!(answers_without_a_gap(&world, &pane, &since), ["42"]);
    let all = world.read_all(&pane);
    let all: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("got ")).collect();
    assert_eq!(all, (1..=42).map(|line| line.to_string()).collect::<Vec<_>>());
    let cleared = world.ok(&["capture-pane", "-t", &pane, "-S", "-"]);
    assert!(!cleared.contains("got 1\n"), "a capture is what tmux has: {cleared}");
}

/// tmux forgets lines beyond `history-limit`; a stream keeps bytes, regardless of that option.
#[test]
fn a_small_history_limit_removes_nothing_from_a_stream() {
    let world = World::with_server();
    for limit in ["0", "5"] {
        world.tmux(&["set-option", "-g", "history-limit", limit]);
        let pane = world.window("stty -echo; echo ready; read -r go; seq -f 'line %.0f' 1 3000; echo END; exec cat");
        world.await_output(&pane, "^ready");
        let since = cursor(&world, &pane);
        type_line(&world, &pane, "go");
        let parts = parts_until(&world, &pane, &since, "END");
        assert_eq!(parts.len(), 1, "no gap");
        assert_eq!(numbered(&parts[0].1), (1..=3000).collect::<Vec<_>>());
        let kept = world.tmux(&["display-message", "-p", "-t", &pane, "#{history_size}"]);
        assert!(kept.parse::<u32>().unwrap() <= 5, "{kept}");
    }
}

#[test]
fn three_hundred_sessions_created_and_killed_in_a_loop_leave_nothing_behind() {
    let world = World::with_server();
    let pane = answering(&world, &["new-window", "-t", "main"]);
    let since = cursor(&world, &pane);
    let (server, daemon) = (world.server_pid(), world.daemon_pid().unwrap());
    let descriptors = || fs::read_dir(format!("/proc/{daemon}/fd")).map_or(0, Iterator::count);
    eventually("one client", || world.metric("muxtap_control_clients") == 1);
    let before = descriptors();
    let tmux = format!("{} -f/dev/null -S {}", crate::common::tmux_program(), world.socket().display());
    // Each session lives only for a moment: some guests attach in time, some too late.
    for batch in 0..6 {
        let script = format!(
            "i=0; while [ $i -lt 50 ]; do i=$((i+1)); {tmux} new-session -d -s b{batch}-$i 'exec cat' && \
             {tmux} kill-session -t b{batch}-$i || exit 1; done"
        );
        let made = run(world.command("sh").args(["-c", &script]));
        assert_eq!(made.status, 0, "{made:?}");
        say(&world, &pane, &batch.to_string());
    }
    assert_eq!((world.server_pid(), world.daemon_pid()), (server, Some(daemon)));
    assert_eq!(world.sessions(), ["main"]);
    assert_eq!(world.panes().len(), 2);
    eventually("one client is left", || world.metric("muxtap_control_clients") == 1 && clients(&world).len() == 1);
    eventually("descriptors are given back", || descriptors() <= before + 4);
    assert_eq!(answers_without_a_gap(&world, &pane, &since), ["0", "1", "2", "3", "4", "5"]);
}

/// Adds the number in the target of the link `$CLOCK_LINK` to the time of day, and leaves the
/// monotonic clock unchanged.
#[cfg(target_os = "linux")]
const CLOCK: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jumped(void) {
    char text[32];
    const char *link = getenv("CLOCK_LINK");
    int was = errno;
    ssize_t length = link ? readlink(link, text, sizeof text) : -1;
    errno = was;
    long seconds = 0;
    for (ssize_t at = text[0] == '-'; at < length; at++) seconds = seconds * 10 + text[at] - '0';
    return length > 0 && text[0] == '-' ? -seconds : seconds;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += jumped();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The time of day of muxtap, tmux and the panes' programs jumps ten years forward, then twenty
/// back.
#[test]
#[cfg(target_os = "linux")]
fn clock_jumps_neither_end_nor_delay_a_wait() {
    const YEAR: i64 = 366 * 24 * 3600;
    let mut world = World::new();
    let (source, library) = (world.path("clock.c"), world.path("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let compiled = world.command("cc").args(["-shared", "-fPIC", "-O", "-o"]).arg(&library).arg(&source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("not tested: no C compiler");
        return;
    }
    world.set("LD_PRELOAD", library.display().to_string());
    world.set("CLOCK_LINK", world.path("clock").display().to_string());
    let set_clock = |seconds: i64| {
        let new = world.path("clock.new");
        std::os::unix::fs::symlink(seconds.to_string(), &new).unwrap();
        fs::rename(new, world.path("clock")).unwrap();
    };
    set_clock(0);
    world.session("main");
    let pane = answering(&world, &["new-window", "-t", "main"]);
    let since = cursor(&world, &pane);
    let year = || -> i64 {
        world.ok(&["send-keys", "-t", &pane, "Enter"]);
        let mut year = 0;
        eventually("the input is recorded", || {
            let log = fs::read_to_string(world.path("m.sock.audit.jsonl")).unwrap_or_default();
            let last = log.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
            year = last.and_then(|last| last["at"].as_str()?.get(..4)?.parse().ok()).unwrap_or(0);
            year > 0
        });
        year
    };
    let today = year();
    for (turn, jump) in [10 * YEAR, -10 * YEAR].into_iter().enumerate() {
        let wait = |pattern: &str, time: u32| {
            let body = serde_json::json!({"panes": [pane], "patterns": [pattern], "timeout_ms": time, "detach": true});
            let begun = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&body)).json();
            assert_eq!(begun["outcome"], "pending", "{begun}");
            begun["id"].as_str().unwrap().to_owned()
        };
        let outcome =
            |id: &str| world.http("GET", &format!("/v1/waits/{id}?timeout_ms=40000"), None).json()["outcome"].clone();
        let (matched, in_vain) = (wait(&format!("^got turn{turn}$"), 55_000), wait("never", 4000));
        set_clock(jump);
        say(&world, &pane, &format!("turn{turn}"));
        assert_eq!(outcome(&matched), "matched", "its time is not up");
        assert_eq!(outcome(&in_vain), "timeout", "its time is up as if nothing had happened");
        assert_eq!(world.ok(&["run", "-t", "main:0", "-T", "30", "echo ran"]), "ran");
        assert_eq!(world.muxtap(&["list-sessions"]).status, 0);
        eventually("muxtap has the new time", || {
            let years = year() - today;
            (if jump > 0 { 9..=11 } else { -11..=-9 }).contains(&years)
        });
    }
    let answers = answers_without_a_gap(&world, &pane, &since);
    let turns: Vec<_> = answers.iter().filter(|line| line.starts_with("turn")).collect();
    assert_eq!(turns, ["turn0", "turn1"]);
}
