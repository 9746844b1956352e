//! Waits: what satisfies them, where they begin, how they end, and how their results are requested
//! again.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::Shutdown,
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use crate::common::{Http, World, eventually, type_line};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Creates a world with a pane that runs `sh`, with its prompt shown.
fn world() -> (World, String) {
    let world = World::new();
    let pane = shell(&world);
    (world, pane)
}

/// Creates another such pane.
fn shell(world: &World) -> String {
    let pane = world.ok(&["new-session", "--", "sh"]);
    world.await_output(&pane, "[$#] $");
    pane
}

/// Types a line.
fn line(world: &World, pane: &str, line: &str) {
    world.ok(&["send-keys", "-t", pane, line, "Enter"]);
}

/// Runs `wait-for --json`; returns its response for any outcome.
fn waited(world: &World, args: &[&str]) -> (Value, i32) {
    let answer = world.muxtap(&[&["--json", "wait-for"], args].concat());
    assert!([0, 3, 124].contains(&answer.status), "{args:?}: {answer:?}");
    (answer.json(), answer.status)
}

/// Returns the only predicate of a wait that matched.
fn matched(world: &World, args: &[&str]) -> Value {
    let (answer, status) = waited(world, args);
    assert_eq!((status, &answer["outcome"]), (0, &json!("matched")), "{args:?}: {answer}");
    assert_eq!(answer["predicates"].as_array().unwrap().len(), 1, "{answer}");
    let predicate = answer["predicates"][0].clone();
    assert_eq!(predicate["latched"], true, "{answer}");
    predicate
}

/// Listens on a socket in front of the daemon's; counts the requests that pass.
fn counted(world: &World, name: &str) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(world.path(name)).unwrap();
    let (daemon, requests) = (world.daemon_socket(), Arc::new(AtomicUsize::new(0)));
    let count = requests.clone();
    thread::spawn(move || {
        for one in listener.incoming().map(Result::unwrap) {
            let other = UnixStream::connect(&daemon).unwrap();
            let asked = (one.try_clone().unwrap(), other.try_clone().unwrap());
            for ((mut from, mut to), counts) in [(asked, true), ((other, one), false)] {
                let count = count.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 8192];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        let begins = |method: &str| bytes[..read].starts_with(method.as_bytes());
                        if counts && ["GET /", "POST /", "DELETE /"].into_iter().any(begins) {
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                        if to.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    requests
}

#[test]
fn a_wait_that_somebody_watches_is_one_request() {
    let (world, pane) = world();
    let requests = counted(&world, "between.sock");
    let watcher = shell(&world);
    let program = world.plain_muxtap_command().get_program().to_owned();
    let (socket, program) = (world.path("between.sock"), program.to_string_lossy());
    let wait =
        format!("MUXTAP_SOCKET={} {program} wait-for -t {pane} -p '^go$' -T 120; echo over $?", socket.display());
    line(&world, &watcher, &wait);
    // Its clock has advanced by itself.
    world.ok(&["wait-for", "-t", &watcher, "--screen", "waiting [3-9] s for /\\^go\\$/ in %", "-T", "60"]);
    line(&world, &pane, "echo go");
    world.await_output(&watcher, "^over 0");
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    // Ctrl-C ends it by another request.
    line(&world, &watcher, &wait.replace("^go$", "^never$"));
    world.ok(&["wait-for", "-t", &watcher, "--screen", "waiting [2-9] s for /\\^never", "-T", "60"]);
    world.ok(&["send-keys", "-t", &watcher, "C-c"]);
    world.await_output(&watcher, "^over 130");
    assert_eq!(world.http("GET", "/v1/waits", None).json()["waits"], json!([]));
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

fn post(world: &World, body: &Value) -> Http {
    world.http("POST", &format!("/v1/waits{}", world.query()), Some(body))
}

/// Starts a wait whose result is requested later; returns its id.
fn detached(world: &World, mut body: Value) -> String {
    body["detach"] = true.into();
    let answer = post(world, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!(answer["outcome"], "pending", "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

/// Requests a wait's result, for as long as it takes.
fn result(world: &World, id: &str) -> Value {
    world.http("GET", &format!("/v1/waits/{id}?timeout_ms=30000"), None).json()
}

// What satisfies a wait.

#[test]
fn a_pattern_tells_line_captures_and_groups() {
    let (world, pane) = world();
    line(&world, &pane, "printf 'built %s in %s s\\n' 12 3.5");
    let hit = matched(&world, &["-t", &pane, "-p", r"built (?<files>\d+) (?:in|by) (\S+)( never)?"]);
    assert_eq!(hit["kind"], "pattern");
    assert_eq!(hit["line"], "built 12 in 3.5 s");
    assert_eq!(hit["captures"], json!(["built 12 in 3.5", "12", "3.5", null]));
    assert_eq!(hit["groups"], json!({ "files": "12" }));
    assert!(hit["offset"].is_u64() && hit["after_ms"].is_number());
}

#[test]
fn the_command_line_prints_the_line_that_matched() {
    let (world, pane) = world();
    line(&world, &pane, "printf 'a %s z\\n' middle");
    assert_eq!(world.ok(&["wait-for", "-t", &pane, "-p", "a middle"]), "a middle z");
}

#[test]
fn a_match_is_answered_before_its_line_ends() {
    let (world, pane) = world();
    line(&world, &pane, "printf 'now%s' NOW; read x");
    assert_eq!(matched(&world, &["-t", &pane, "-p", "nowNOW"])["captures"], json!(["nowNOW"]));
}

#[test]
fn a_dollar_at_the_very_end_counts_when_the_stream_rests() {
    let (world, pane) = world();
    line(&world, &pane, "printf 'Password%s ' :; read x");
    assert_eq!(matched(&world, &["-t", &pane, "-p", r"^Password: $"])["line"], "Password: ");
    let (answer, status) = waited(&world, &["-t", &pane, "-p", r"^Password:$", "--since", "start", "-T", "0.3"]);
    assert_eq!(status, 124, "{answer}");
}

#[test]
fn several_predicates_must_all_hold_and_each_is_remembered() {
    let (world, pane) = world();
    let id = detached(&world, json!({ "panes": [pane], "patterns": ["first=1", "second=2"], "bell": true }));
    line(&world, &pane, "echo sec''ond=2");
    world.ok(&["wait-for", "-t", &pane, "-p", "second=2"]);
    let halfway = world.http("GET", &format!("/v1/waits/{id}"), None).json();
    assert_eq!(halfway["outcome"], "pending");
    let latched: Vec<&Value> = halfway["predicates"].as_array().unwrap().iter().map(|one| &one["latched"]).collect();
    assert_eq!(latched, [false, true, false]);
    line(&world, &pane, "printf '\\a'");
    line(&world, &pane, "clear; echo fir''st=1");
    let answer = result(&world, &id);
    assert_eq!(answer["outcome"], "matched", "{answer}");
    assert!(answer["predicates"].as_array().unwrap().iter().all(|one| one["latched"] == true), "{answer}");
}

#[test]
fn what_the_screen_shows_and_no_longer_shows() {
    let (world, pane) = world();
    line(&world, &pane, "printf '\\033[2J\\033[5;10Hmid''dle\\033[12;1H'; read x");
    let hit = matched(&world, &["-t", &pane, "--screen", r"(?m)^ {9}(middle)$"]);
    assert_eq!((&hit["kind"], &hit["line"]), (&json!("screen"), &json!("         middle")));
    assert_eq!(hit["captures"][1], "middle");
    let id = detached(&world, json!({ "panes": [pane], "screen": [r"(?m)^top$"] }));
    line(&world, &pane, "");
    line(&world, &pane, "clear; echo to''p; read x");
    assert_eq!(result(&world, &id)["outcome"], "matched");
}

#[test]
fn quiet() {
    let (world, pane) = world();
    line(&world, &pane, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done; echo qui''et");
    let hit = matched(&world, &["-t", &pane, "--stable", "0.5"]);
    assert_eq!(hit["kind"], "stable");
    assert!(world.read_all(&pane).contains("\nquiet\n"), "it was not quiet yet");
}

#[test]
fn quiet_since_now_begins_now() {
    let (world, pane) = world();
    matched(&world, &["-t", &pane, "--stable", "0.3", "--since", "start"]);
    let begun = Instant::now();
    matched(&world, &["-t", &pane, "--stable", "0.4", "--since", "now"]);
    assert!(begun.elapsed().as_millis() >= 400, "{:?}", begun.elapsed());
}

#[test]
fn settle_is_quiet_after_the_match() {
    let (world, pane) = world();
    line(&world, &pane, "echo hi''t; for i in 1 2 3 4 5; do sleep 0.1; echo $i; done; echo la''st");
    matched(&world, &["-t", &pane, "-p", "(?m)^hit$", "--settle", "0.4"]);
    assert!(world.read_all(&pane).contains("\nlast\n"), "it was not quiet yet");
}

#[test]
fn the_end_of_a_pane_and_its_status() {
    let (world, pane) = world();
    let id = detached(&world, json!({ "panes": [pane], "exit": true }));
    line(&world, &pane, "exit 5");
    let answer = result(&world, &id);
    assert_eq!((&answer["outcome"], &answer["exit_status"]), (&json!("matched"), &json!(5)), "{answer}");
    assert_eq!(answer["pane"], *pane);
    // It also counts later: an ended pane stays so.
    assert_eq!(waited(&world, &["-t", &pane, "--exit"]).1, 0);
}

#[test]
fn a_pane_that_ends_first() {
    let (world, pane) = world();
    let waiting = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "never"]);
    line(&world, &pane, "echo bye; exit 4");
    let answer = waiting.finish();
    assert_eq!(answer.status, 3, "{answer:?}");
    let answer = answer.json();
    assert_eq!((&answer["outcome"], &answer["exit_status"]), (&json!("ended"), &json!(4)), "{answer}");
}

#[test]
fn the_last_words_of_a_pane_count_before_its_end() {
    for _ in 0..10 {
        let (world, pane) = world();
        let waiting = world.spawn(&["wait-for", "-t", &pane, "-p", "last words", "-T", "20"]);
        line(&world, &pane, "exec sh -c \"seq 1 500; echo last' 'words\"");
        let answer = waiting.finish();
        assert_eq!((answer.status, answer.text().trim_end()), (0, "last words"), "{answer:?}");
    }
}

#[test]
fn a_shell_prompt() {
    for program in ["sh", "bash --norc", "zsh -f", "fish --no-config", "python3 -q"] {
        let world = World::new();
        let pane = world.ok(&["new-session", "--", program]);
        let begun = matched(&world, &["-t", &pane, "--prompt", "--since", "start", "-T", "20"]);
        assert_eq!(begun["kind"], "prompt", "{program}");
        let command = if program.starts_with("python") { "import time; time.sleep(0.7)" } else { "sleep 0.7" };
        let sent = Instant::now();
        line(&world, &pane, command);
        matched(&world, &["-t", &pane, "--prompt", "-T", "20"]);
        assert!(sent.elapsed().as_millis() >= 700, "{program}: {:?} is before the prompt", sent.elapsed());
    }
}

#[test]
fn a_prompt_printed_by_a_batch_program_does_not_count() {
    let (world, pane) = world();
    line(&world, &pane, "printf 'cost: 5$ '; sleep 100");
    assert_eq!(waited(&world, &["-t", &pane, "--prompt", "-T", "0.7"]).1, 124);
}

#[test]
fn a_prompt_that_is_marked() {
    let mut world = World::new();
    world.set("PS1", r"\[\e]133;A\a\]nothing like a prompt\[\e]133;B\a\]");
    let pane = world.ok(&["new-session", "--", "bash", "--norc"]);
    let hit = matched(&world, &["-t", &pane, "--prompt", "--since", "start"]);
    assert_eq!(hit["how"], "osc133");
    let sent = Instant::now();
    line(&world, &pane, "sleep 0.5");
    assert_eq!(matched(&world, &["-t", &pane, "--prompt"])["how"], "osc133");
    assert!(sent.elapsed().as_millis() >= 500);
}

/// A shell that marks its prompts, and starts one that does not.
#[test]
fn a_prompt_of_an_inner_shell_without_marks() {
    let mut world = World::new();
    world.set("PS1", r"\[\e]133;A\a\]outer$ \[\e]133;B\a\]");
    world.set("PS0", r"\e]133;C\a");
    let pane = world.ok(&["new-session", "--", "bash", "--norc"]);
    let how = || matched(&world, &["-t", &pane, "--prompt", "-T", "20"])["how"].clone();
    matched(&world, &["-t", &pane, "--prompt", "--since", "start", "-T", "20"]);
    for inner in ["dash", "bash --norc", "script -qc 'bash --norc' /dev/null"] {
        line(&world, &pane, &format!("PS1='inner$ ' PS0= {inner}"));
        assert_eq!(how(), "rule", "{inner}");
        line(&world, &pane, "PS1='again$ '; sleep 0.3");
        assert_eq!(how(), "rule", "{inner}");
        // A program is no shell; what runs behind another terminal is not known.
        if !inner.contains("script") {
            line(&world, &pane, "printf 'cost: 5$ '; sleep 100");
            assert_eq!(waited(&world, &["-t", &pane, "--prompt", "-T", "0.7"]).1, 124, "{inner}");
            world.ok(&["send-keys", "-t", &pane, "C-c"]);
            matched(&world, &["-t", &pane, "--prompt", "-T", "20"]);
        }
        line(&world, &pane, "exit");
        assert_eq!(how(), "osc133", "{inner}");
    }
    line(&world, &pane, "read -e -p 'Pay $ ' answer");
    assert_eq!(waited(&world, &["-t", &pane, "--prompt", "-T", "0.7"]).1, 124);
}

#[test]
fn a_bell_and_not_the_end_of_a_title() {
    let (world, pane) = world();
    line(&world, &pane, "printf '\\033]2;title\\007'; read x; printf '\\a'");
    assert_eq!(waited(&world, &["-t", &pane, "--bell", "-T", "0.4"]).1, 124);
    let waiting = world.spawn(&["wait-for", "-t", &pane, "--bell"]);
    line(&world, &pane, "");
    assert_eq!(waiting.finish().status, 0);
}

#[test]
fn a_title() {
    let (world, pane) = world();
    line(&world, &pane, "printf '\\033]2;build: %s\\033\\\\' done");
    let hit = matched(&world, &["-t", &pane, "--title", "^build: (.*)$"]);
    assert_eq!((&hit["kind"], &hit["captures"][1]), (&json!("title"), &json!("done")));
}

#[test]
fn a_fail_pattern_ends_it() {
    let (world, pane) = world();
    let waiting =
        world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "success", "--fail", "error: (.*)", "--fail", "panic"]);
    line(&world, &pane, "echo err''or: no disk; echo succ''ess");
    let answer = waiting.finish();
    assert_eq!(answer.status, 3, "{answer:?}");
    let answer = answer.json();
    assert_eq!(answer["outcome"], "failed");
    let failed = answer["predicates"].as_array().unwrap().iter().find(|one| one["kind"] == "fail").unwrap().clone();
    assert_eq!((&failed["pattern"], &failed["captures"][1]), (&json!("error: (.*)"), &json!("no disk")), "{answer}");
}

// Panes.

#[test]
fn any_pane_is_enough() {
    let (world, a) = world();
    let b = shell(&world);
    let waiting = world.spawn(&["--json", "wait-for", "-t", &a, &b, "-p", "here"]);
    line(&world, &b, "echo he''re");
    let answer = waiting.finish().json();
    assert_eq!((&answer["outcome"], &answer["pane"]), (&json!("matched"), &json!(b)));
}

#[test]
fn any_pane_that_is_left_can_still_do_it() {
    let (world, a) = world();
    let b = shell(&world);
    let id = detached(&world, json!({ "panes": [a, b], "patterns": ["here"] }));
    line(&world, &a, "exit");
    world.ok(&["wait-for", "-t", &a, "--exit"]);
    line(&world, &b, "echo he''re");
    assert_eq!(result(&world, &id)["pane"], *b);
    let id = detached(&world, json!({ "panes": [a, b], "patterns": ["never"] }));
    line(&world, &b, "exit");
    assert_eq!(result(&world, &id)["outcome"], "ended");
}

#[test]
fn all_panes_must() {
    let (world, a) = world();
    let b = shell(&world);
    let id = detached(&world, json!({ "panes": [a, b], "patterns": ["here"], "mode": "all" }));
    line(&world, &b, "echo he''re");
    world.ok(&["wait-for", "-t", &b, "-p", "here"]);
    assert_eq!(world.http("GET", &format!("/v1/waits/{id}"), None).json()["outcome"], "pending");
    line(&world, &a, "echo he''re");
    let answer = result(&world, &id);
    assert_eq!(answer["outcome"], "matched");
    let panes: Vec<&Value> = answer["predicates"].as_array().unwrap().iter().map(|one| &one["pane"]).collect();
    assert_eq!(panes, [&json!(a), &json!(b)]);
    // One that has ended without a match makes the wait hopeless.
    let id = detached(&world, json!({ "panes": [a, b], "patterns": ["never"], "mode": "all" }));
    line(&world, &a, "exit");
    assert_eq!(result(&world, &id)["outcome"], "ended");
}

// Where a wait begins.

#[test]
fn an_answer_that_came_before_the_wait_is_not_missed() {
    let (world, pane) = world();
    line(&world, &pane, "echo ans''wer");
    world.await_output(&pane, "(?m)^answer\n(.*\n)*.*[$#] $");
    let hit = matched(&world, &["-t", &pane, "-p", "answer"]);
    assert_eq!((&hit["line"], &hit["before"]), (&json!("answer"), &json!(true)));
    assert_eq!(hit["after_ms"], 0.0);
}

#[test]
fn the_same_pattern_again_is_its_next_occurrence() {
    let (world, pane) = world();
    line(&world, &pane, "for i in 1 2 3; do echo tick=$i; done");
    for n in 1..=3 {
        assert_eq!(matched(&world, &["-t", &pane, "-p", r"tick=\d"])["line"], format!("tick={n}"));
    }
    assert_eq!(waited(&world, &["-t", &pane, "-p", r"tick=\d", "-T", "0.2"]).1, 124);
    // Another pattern has not matched yet.
    assert_eq!(matched(&world, &["-t", &pane, "-p", r"tick=(\d)"])["line"], "tick=1");
}

#[test]
fn an_input_begins_anew() {
    let (world, pane) = world();
    for n in 1..=5 {
        line(&world, &pane, &format!("echo round''={n}"));
        assert_eq!(matched(&world, &["-t", &pane, "-p", r"round=\d"])["line"], format!("round={n}"));
    }
    line(&world, &pane, "true");
    assert_eq!(waited(&world, &["-t", &pane, "-p", r"round=\d", "-T", "0.2"]).1, 124);
}

#[test]
fn now_start_screen_and_cursor() {
    let (world, pane) = world();
    line(&world, &pane, "echo ol''d; clear; echo sho''wn");
    world.await_output(&pane, "(?m)^shown\n(.*\n)*.*[$#] $");
    let since =
        |since: &str, pattern: &str| waited(&world, &["-t", &pane, "-p", pattern, "--since", since, "-T", "0.3"]).1;
    assert_eq!(since("now", "shown"), 124);
    assert_eq!(since("start", "(?m)^old$"), 0);
    assert_eq!(since("screen", "(?m)^shown$"), 0);
    assert_eq!(since("screen", "(?m)^old$"), 124);
    let cursor =
        world.json(&["send-keys", "-t", &pane, "echo af''ter", "Enter"])["cursor"].as_str().unwrap().to_owned();
    world.await_output(&pane, "(?m)^after$");
    line(&world, &pane, "true");
    assert_eq!(since(&cursor, "(?m)^shown$"), 124);
    assert_eq!(since(&cursor, "(?m)^after$"), 0);
    let hit = waited(&world, &["-t", &pane, "-p", "(?m)^after$", "--since", &cursor]).0;
    let rest = world.json(&["read", "-t", &pane, "--since", hit["cursor"].as_str().unwrap()]);
    assert!(!rest["text"].as_str().unwrap().contains("after"), "the cursor lies behind the match: {rest}");
    world.error("INVALID_ARGUMENT", &["wait-for", "-t", &pane, "-p", "x", "--since", "yesterday"]);
}

// How a wait ends, and how its result is requested.

#[test]
fn a_timeout_tells_progress_cursor_and_screen() {
    let (world, pane) = world();
    line(&world, &pane, "echo half''way");
    let (answer, status) = waited(&world, &["-t", &pane, "-p", "halfway", "-p", "never", "-T", "0.3"]);
    assert_eq!((status, &answer["outcome"]), (124, &json!("timeout")));
    assert_eq!(
        (&answer["predicates"][0]["latched"], &answer["predicates"][1]["latched"]),
        (&json!(true), &json!(false))
    );
    assert!(answer["cursor"].is_string(), "{answer}");
    assert!(answer["screen"].as_str().unwrap().contains("halfway"), "{answer}");
    assert!(answer["duration_ms"].as_f64().unwrap() >= 300.0);
    let answer = world.muxtap(&["wait-for", "-t", &pane, "-p", "never", "-T", "0.2"]);
    assert_eq!(answer.status, 124);
    assert!(
        answer.text().is_empty() && answer.stderr.contains("never") && answer.stderr.contains("halfway"),
        "{answer:?}"
    );
}

#[test]
fn a_wait_is_asked_for_again_by_its_id() {
    let (world, pane) = world();
    let id = detached(&world, json!({ "panes": [pane], "patterns": ["resumed"] }));
    assert_eq!(world.http("GET", &format!("/v1/waits/{id}?timeout_ms=50"), None).json()["outcome"], "pending");
    line(&world, &pane, "echo resu''med");
    let first = result(&world, &id);
    assert_eq!(first["outcome"], "matched");
    assert_eq!(result(&world, &id)["predicates"], first["predicates"]);
    // A finished wait keeps its result.
    assert_eq!(world.http("DELETE", &format!("/v1/waits/{id}"), None).json()["outcome"], "matched");
}

#[test]
fn a_caller_that_goes_away_does_not_end_its_wait() {
    let (world, pane) = world();
    let waits = || world.json(&["status"])["waits"].as_u64().unwrap();
    let body = json!({ "panes": [pane], "patterns": ["gone"], "timeout_ms": 20000 });
    let stream = world.http_send("POST", &format!("/v1/waits{}", world.query()), Some(&body));
    crate::common::eventually("the wait is open", || waits() == 1);
    drop(stream);
    line(&world, &pane, "echo go''ne");
    crate::common::eventually("the wait has ended", || waits() == 0);
}

#[test]
fn a_wait_is_cancelled() {
    let (world, pane) = world();
    let id = detached(&world, json!({ "panes": [pane], "patterns": ["never"] }));
    assert_eq!(world.http("DELETE", &format!("/v1/waits/{id}"), None).json()["outcome"], "cancelled");
    assert_eq!(result(&world, &id)["outcome"], "cancelled");
    crate::common::eventually("it is closed", || world.json(&["status"])["waits"] == 0);
    let unknown = world.http("GET", "/v1/waits/w9-000000000000", None);
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("NOT_FOUND")));
}

#[test]
fn many_waits_at_once() {
    let (world, pane) = world();
    let ids: Vec<String> = (0..200)
        .map(|n| detached(&world, json!({ "panes": [pane], "patterns": [format!(r"(?m)^number {n}$")] })))
        .collect();
    assert_eq!(world.json(&["status"])["waits"], 200);
    line(&world, &pane, "seq -f 'number %g' 0 199");
    for (n, id) in ids.iter().enumerate() {
        let answer = result(&world, id);
        assert_eq!(answer["outcome"], "matched", "{n}: {answer}");
        assert_eq!(answer["predicates"][0]["line"], format!("number {n}"));
    }
    crate::common::eventually("they are closed", || world.json(&["status"])["waits"] == 0);
}

#[test]
fn many_waiting_processes_at_once() {
    let (world, pane) = world();
    let id = detached(&world, json!({ "panes": [pane], "patterns": ["(?m)^go$"] }));
    let waiting: Vec<_> =
        (0..70).map(|_| world.spawn(&["wait-for", "-t", &pane, "-p", "(?m)^go$", "--since", "start"])).collect();
    crate::common::eventually("all wait", || world.json(&["status"])["waits"] == 71);
    line(&world, &pane, "echo g''o");
    for waiting in waiting {
        let answer = waiting.finish();
        assert_eq!((answer.status, answer.text().as_str()), (0, "go\n"), "{answer:?}");
    }
    assert_eq!(result(&world, &id)["outcome"], "matched");
}

#[test]
fn a_flood_is_searched_to_its_end() {
    let (world, pane) = world();
    line(&world, &pane, "seq 1 400000; echo en''d=$((1+1))");
    assert_eq!(matched(&world, &["-t", &pane, "-p", r"^end=\d$", "-T", "40"])["line"], "end=2");
}

// What is refused.

#[test]
fn nothing_to_wait_for() {
    let (world, pane) = world();
    let answer = post(&world, &json!({ "panes": [pane] }));
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("INVALID_ARGUMENT")));
    assert_eq!(world.muxtap(&["wait-for", "-t", &pane]).status, 2);
    for body in [
        json!({ "panes": [], "exit": true }),
        json!({ "panes": [pane], "exit": true, "timeout_ms": 86_400_001_u64 }),
        json!({ "panes": [pane], "exit": true, "unheard_of": 1 }),
        json!({ "panes": [pane], "exit": "yes" }),
        json!({ "panes": vec![pane.clone(); 257], "exit": true }),
    ] {
        let answer = post(&world, &body);
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("INVALID_ARGUMENT")), "{body}");
    }
    let answer = post(&world, &json!({ "panes": ["%99"], "exit": true }));
    assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("NOT_FOUND")));
}

#[test]
fn patterns_that_are_no_good() {
    let (world, pane) = world();
    let huge = "x".repeat(70_000);
    for pattern in
        ["(", "[a", "a{2,1}", "(?<n>a)(?<n>b)", r"\1", "(?=a)", "x*", "", &huge, "((a{100}){100}){100}", r"\pX"]
    {
        let message = world.error("INVALID_ARGUMENT", &["wait-for", "-t", &pane, "-p", pattern]);
        assert!(message.contains("-p `"), "{message}");
        assert!(message.len() < 2000, "{} bytes of message", message.len());
    }
    let message = world.error("INVALID_ARGUMENT", &["wait-for", "-t", &pane, "-p", "ok", "--fail", "("]);
    assert!(message.contains("--fail `"), "{message}");
    let message = world.error("INVALID_ARGUMENT", &["wait-for", "-t", &pane, "--screen", "("]);
    assert!(message.contains("--screen `"), "{message}");
    let message = world.error("INVALID_ARGUMENT", &["wait-for", "-t", &pane, "--title", "("]);
    assert!(message.contains("--title `"), "{message}");
}

#[test]
fn a_pattern_that_would_be_catastrophic_elsewhere() {
    let (world, pane) = world();
    let id = detached(&world, json!({ "panes": [pane], "patterns": [r"(a+)+b|(x|x?)*yz", r"^(\w+\s?)*END$"] }));
    line(
        &world,
        &pane,
        "head -c 60000 /dev/zero | tr '\\0' a; echo; head -c 60000 /dev/zero | tr '\\0' x; echo; echo EN''D",
    );
    // A catastrophic pattern does not end.
    let other = matched(&world, &["-t", &pane, "-p", "(?m)^END$"]);
    assert_eq!(other["line"], "END");
    world.http("DELETE", &format!("/v1/waits/{id}"), None);
}

#[test]
fn forged_output_of_another_pane_satisfies_no_wait() {
    let (world, a) = world();
    let b = shell(&world);
    let id = detached(&world, json!({ "panes": [b], "patterns": ["forged"], "timeout_ms": 700 }));
    let mut script = std::fs::File::create(world.path("work/forge")).unwrap();
    writeln!(script, "for n in $(seq 1 400); do printf '%%end 1 %s 1\\n%%output {b} forged\\n' $n; done").unwrap();
    line(&world, &a, "sh forge");
    world.await_output(&a, "(?s)%end 1 400 1.*[$#] $");
    world.ok(&["capture-pane", "-t", &a, "-J"]);
    assert_eq!(result(&world, &id)["outcome"], "timeout");
}

/// A wait in the background has its result for whoever asks later, over a restart of the daemon; where a
/// daemon was killed before the end, the outcome is unknown and not made up.
#[test]
fn a_result_in_the_background_outlives_the_daemon() {
    let (world, pane) = world();
    let begin = |pattern: &str| {
        let answer = world.ok(&["wait-for", "-t", &pane, "-p", pattern, "--background"]);
        answer.trim().to_owned()
    };
    let (first, lost) = (begin("first \\w+"), begin("never"));
    let pending = world.muxtap(&["result", &first, "-T", "0"]);
    assert_eq!((pending.status, pending.text().as_str()), (124, ""), "{pending:?}");
    assert!(pending.stderr.contains("has not ended"), "{pending:?}");
    line(&world, &pane, "echo first match");
    assert_eq!(world.ok(&["result", &first]).trim(), "first match");
    // One that has ended at once is kept, too.
    let at_once = world.ok(&["wait-for", "-t", &pane, "-p", "first \\w+", "--since", "start", "--background"]);
    let results = world.path("m.sock.waits");
    let stored = |id: &str| fs::read_to_string(results.join(format!("{id}.json"))).unwrap().contains("ended");
    eventually("both results", || stored(&first) && stored(at_once.trim()));
    world.kill_daemon(Signal::KILL);
    let mode = fs::metadata(results.join(format!("{first}.json"))).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for id in [&first, at_once.trim()] {
        assert_eq!(world.ok(&["result", id]).trim(), "first match");
        assert_eq!(world.json(&["result", id])["outcome"], "matched");
    }
    let told = world.error("NOT_FOUND", &["result", &lost]);
    assert!(told.contains("unknown") && told.contains("was killed"), "{told}");
    world.error("NOT_FOUND", &["result", "w0-000000000000"]);
    world.error("NOT_FOUND", &["result", "../../m.sock.log"]);
    let unwanted = begin("never");
    let pending = world.muxtap(&["--json", "result", &unwanted, "-T", "0"]);
    assert_eq!((pending.status, &pending.json()["outcome"]), (124, &json!("pending")), "{pending:?}");
    assert_eq!(world.json(&["result", &unwanted, "--cancel"])["outcome"], "cancelled");
    assert_eq!(world.json(&["result", &first, "--cancel"])["outcome"], "matched", "it has ended");
    // A daemon that stops says how its waits ended.
    let cancelled = begin("never");
    world.ok(&["stop"]);
    let answer = world.muxtap(&["--json", "result", &cancelled]);
    assert_eq!((answer.status, &answer.json()["outcome"]), (130, &json!("cancelled")), "{answer:?}");
    // A caller that stayed for its answer leaves nothing on the disk.
    let before = fs::read_dir(&results).unwrap().count();
    matched(&world, &["-t", &pane, "-p", "first \\w+", "--since", "start"]);
    assert_eq!(fs::read_dir(&results).unwrap().count(), before);
}

/// A wait in the background goes on in the daemon that takes over, under its id.
#[test]
#[cfg(target_os = "linux")]
fn a_wait_in_the_background_goes_on_after_an_upgrade() {
    let (world, pane) = world();
    let begin = |pattern: &str| {
        let begun = world.ok(&["wait-for", "-t", &pane, "-p", pattern, "--since", "now", "--background"]);
        begun.trim().to_owned()
    };
    let (id, never) = (begin("first \\w+"), begin("never"));
    let asked = world.spawn(&["--json", "result", &id, "-T", "300"]);
    for _ in 0..3 {
        world.ok(&["upgrade"]);
        let pending = world.muxtap(&["--json", "result", &id, "-T", "0"]);
        assert_eq!((pending.status, &pending.json()["outcome"]), (124, &json!("pending")), "{pending:?}");
    }
    type_line(&world, &pane, "echo fir''st one");
    // Asked before the upgrades, after them, and of a later daemon.
    assert_eq!(asked.finish().json()["outcome"], "matched");
    let matched = world.json(&["result", &id]);
    assert_eq!((&matched["id"], &matched["outcome"]), (&json!(id), &json!("matched")));
    world.ok(&["upgrade"]);
    let last = world.json(&["result", &id]);
    assert_eq!(last["predicates"], matched["predicates"]);
    world.ok(&["stop"]);
    assert_eq!(world.json(&["result", &id])["predicates"], matched["predicates"]);
    // A daemon that stops says how its waits ended, also those that it has taken over.
    let cancelled = world.muxtap(&["--json", "result", &never]);
    assert_eq!((cancelled.status, &cancelled.json()["outcome"]), (130, &json!("cancelled")), "{cancelled:?}");
}
