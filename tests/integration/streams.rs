//! Output of panes: none is lost and none is repeated, at any pace, and it stays available when
//! they have ended.

use std::{fmt::Write as _, fs, os::unix::fs::PermissionsExt as _};

use crate::common::{Background, World, eventually};
use serde_json::Value;

/// Reads on from a cursor until nothing more is available; returns the text, the gaps and the next
/// cursor.
pub fn read_on(world: &World, pane: &str, since: &str, wait: &str) -> (String, Vec<Value>, String) {
    let (mut text, mut gaps, mut since) = (String::new(), Vec::new(), since.to_owned());
    loop {
        let answer = world.json(&["read", "-t", pane, "--since", &since, "--wait", wait]);
        text.push_str(answer["text"].as_str().unwrap());
        gaps.extend(answer.get("gap").filter(|gap| !gap.is_null()).cloned());
        answer["cursor"].as_str().unwrap().clone_into(&mut since);
        if answer["more"] != true {
            return (text, gaps, since);
        }
    }
}

fn numbered(text: &str) -> Vec<u64> {
    text.lines().filter_map(|line| line.strip_prefix("line ")?.parse().ok()).collect()
}

/// A program that ends right after its last output: tmux itself loses that in a good part of all
/// attempts (F9).
#[test]
fn hundreds_of_panes_that_print_and_end_lose_nothing() {
    const PANES: usize = 200;
    let world = World::new();
    let world = &world;
    world.ok(&["new-session", "-s", "base"]);
    let worker = |worker: usize| {
        move || {
            let mut panes = Vec::new();
            for number in (worker..PANES).step_by(8) {
                let line = format!("seq 1 300; echo DONE-{number}; exit {}", 3 + number % 7);
                let pane = if number % 2 == 0 {
                    world.ok(&["new-window", "-t", "base", "--", &line])
                } else {
                    world.ok(&["new-session", "-s", &format!("s{number}"), "--", &line])
                };
                panes.push((number, pane));
            }
            for (number, pane) in panes {
                let wait = world.muxtap(&["--json", "wait-for", "-t", &pane, "--exit", "--since", "start", "-T", "40"]);
                assert_eq!(wait.status, 0, "{number} {pane}: {wait:?}");
                assert_eq!(wait.json()["exit_status"], 3 + number % 7, "{number} {pane}: {wait:?}");
                let mut wanted = String::new();
                for line in 1..=300 {
                    writeln!(wanted, "{line}").unwrap();
                }
                writeln!(wanted, "DONE-{number}").unwrap();
                assert_eq!(world.read_all(&pane), wanted, "{number} {pane}");
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(worker(number))).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    // None of them remains.
    assert_eq!(world.sessions(), ["base"]);
    assert_eq!(world.panes().len(), 1);
}

/// The wrapper that holds a kept pane until everything was read is released by a signal, which may
/// arrive before the shell has continued.
#[test]
fn a_kept_pane_ends_with_its_commands_own_status() {
    let mut world = World::new();
    let slow = "#!/bin/bash\n[ \"$3\" = muxtap-hold ] || exec /bin/sh \"$@\"\nline=$2\nshift 3\ntrap 'sleep 0.1' DEBUG\neval \"$line\"\n";
    fs::create_dir(world.path("bin")).unwrap();
    fs::write(world.path("bin/sh"), slow).unwrap();
    fs::set_permissions(world.path("bin/sh"), fs::Permissions::from_mode(0o755)).unwrap();
    world.set("PATH", format!("{}:{}", world.path("bin").display(), std::env::var("PATH").unwrap()));
    world.ok(&["new-session", "-s", "base"]);
    for line in [&["echo over; exit 7"][..], &["/bin/sh", "-c", "echo over; exit 7"]] {
        let pane = world.ok(&[&["new-window", "-t", "base", "--keep", "--"], line].concat());
        let wait = world.json(&["wait-for", "-t", &pane, "--exit", "--since", "start", "-T", "40"]);
        assert_eq!((&wait["exit_status"], &wait["exit_signal"]), (&7.into(), &Value::Null), "{wait}");
        // That is the mark's status; tmux's own follows.
        eventually("the pane is dead", || tmux_says(&world, &pane, "#{pane_dead}") == "1");
        // tmux 3.3a may never learn it (N15).
        let theirs = tmux_says(&world, &pane, "#{pane_dead_status}|#{pane_dead_signal}");
        assert!(theirs == "7|" || theirs == "|", "{theirs}");
        let read = world.json(&["read", "-t", &pane, "--since", "start"]);
        assert_eq!((&read["text"], &read["exit_status"]), (&"over\n".into(), &7.into()), "{read}");
    }
}

fn tmux_says(world: &World, pane: &str, format: &str) -> String {
    world.tmux(&["display-message", "-p", "-t", pane, format])
}

#[test]
fn an_ended_pane_is_readable_with_its_status_and_kept_where_that_was_asked_for() {
    let world = World::new();
    world.ok(&["new-session", "-s", "base"]);
    let goes = world.ok(&["new-window", "-t", "base", "--", "echo gone; exit 7"]);
    let stays = world.ok(&["new-window", "-t", "base", "--keep", "--", "echo kept; exit 8"]);
    let killed = world.ok(&["new-window", "-t", "base", "--keep", "--", "sh", "-c", "echo killed; kill -9 $$"]);
    for (pane, text, status) in [(&goes, "gone\n", 7), (&stays, "kept\n", 8)] {
        world.ok(&["wait-for", "-t", pane, "--exit", "--since", "start", "-T", "20"]);
        let answer = world.json(&["read", "-t", pane, "--since", "start"]);
        assert_eq!(
            (&answer["text"], &answer["exited"], &answer["exit_status"]),
            (&text.into(), &true.into(), &status.into())
        );
    }
    world.ok(&["wait-for", "-t", &killed, "--exit", "--since", "start", "-T", "20"]);
    let answer = world.json(&["read", "-t", &killed, "--since", "start"]);
    assert!(answer["text"].as_str().unwrap().starts_with("killed\n"), "{answer}");
    // A shell in between turns the signal into a status (N11).
    assert!(answer["exit_signal"] == 9 || answer["exit_status"] == 137, "{answer}");
    let listed = world.tmux(&["list-panes", "-a", "-F", "#{pane_id}"]);
    assert!(listed.contains(&stays) && listed.contains(&killed) && !listed.contains(&goes), "{listed}");
    assert_eq!(world.ok(&["capture-pane", "-t", &stays]).trim_end(), "kept");
    assert_eq!(world.ok(&["capture-pane", "-t", &goes]).trim_end(), "gone");
    let panes = world.json(&["list-panes"]);
    let dead: Vec<_> = panes["panes"].as_array().unwrap().iter().filter(|pane| pane["dead"] == true).collect();
    assert_eq!(dead.len(), 3, "{panes}");
}

#[test]
fn floods_keep_their_last_mebibyte_complete_and_delay_no_caller() {
    const LINES: usize = 400_000;
    let world = World::with_server().with_floods_followed();
    let quiet = world.window("stty -echo; echo ready; exec cat");
    world.await_output(&quiet, "^ready");
    let flood = format!("seq -f 'line %.0f' 1 {LINES}; echo END; exec cat");
    let floods: Vec<String> = (0..3).map(|_| world.window(&flood)).collect();
    let ends: Vec<Background> = floods
        .iter()
        .map(|pane| world.spawn(&["wait-for", "-t", pane, "-p", "^END", "--since", "start", "-T", "50"]))
        .collect();
    // Requests for another pane get responses meanwhile.
    for turn in 0..10 {
        world.ok(&["send-keys", "-t", &quiet, "-l", &format!("turn {turn}\n")]);
        world.ok(&["wait-for", "-t", &quiet, "-p", &format!("^turn {turn}$"), "-T", "10"]);
    }
    for end in ends {
        let answer = end.finish();
        assert_eq!(answer.status, 0, "{answer:?}");
    }
    for pane in &floods {
        let text = world.read_all(pane);
        let lines = numbered(&text);
        assert_eq!(lines.last(), Some(&(LINES as u64)), "{pane}");
        assert!(text.len() > 900_000, "{pane}: only {} bytes are kept", text.len());
        let broken = lines.windows(2).find(|pair| pair[1] != pair[0] + 1);
        assert_eq!(broken, None, "{pane}");
    }
}

#[test]
fn a_reader_that_follows_cursors_sees_each_line_once() {
    let world = World::with_server();
    let noisy =
        "echo ready; read -r go; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo \"line $i\"; done; echo END; exec cat";
    let pane = world.window(noisy);
    // Of the output before it was followed only what tmux kept is available.
    world.await_output(&pane, "^ready");
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    let (mut all, mut since) = (String::new(), "start".to_owned());
    while !all.contains("END\n") {
        let (text, gaps, next) = read_on(&world, &pane, &since, "20");
        assert_eq!(gaps, Vec::<Value>::new());
        all.push_str(&text);
        since = next;
    }
    assert_eq!(numbered(&all), (1..=3000).collect::<Vec<_>>());
}

#[test]
fn what_was_trimmed_is_told_once() {
    let world = World::with_server().with_floods_followed();
    let pane = world.window("echo first; read -r x; seq -f 'line %.0f' 1 300000; echo END; exec cat");
    world.await_output(&pane, "^first");
    let early = world.json(&["read", "-t", &pane, "--since", "start"])["cursor"].as_str().unwrap().to_owned();
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    world.await_output(&pane, "^END");
    let answer = world.json(&["read", "-t", &pane, "--since", &early, "--max-bytes", "64K"]);
    assert_eq!(answer["gap"]["reason"], "trimmed", "{}", answer["gap"]);
    assert!(answer["gap"]["bytes"].as_u64().unwrap() > 1_000_000, "{}", answer["gap"]);
    let (rest, gaps, _) = read_on(&world, &pane, answer["cursor"].as_str().unwrap(), "0");
    assert_eq!(gaps, Vec::<Value>::new());
    let text = format!("{}{rest}", answer["text"].as_str().unwrap());
    let lines = numbered(&text);
    assert_eq!(lines.last(), Some(&300_000));
    assert!(lines.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[test]
fn start_lines_and_now_are_where_they_say() {
    let world = World::with_server();
    let pane = world.window("seq -f 'line %.0f' 1 50; echo END; exec cat");
    world.await_output(&pane, "^END");
    let read = |since: &str| world.json(&["read", "-t", &pane, "--since", since]);
    assert_eq!(numbered(read("start")["text"].as_str().unwrap()).len(), 50);
    assert_eq!(read("lines:3")["text"], "line 49\nline 50\nEND\n");
    assert_eq!(read("now")["text"], "");
    world.error("INVALID_ARGUMENT", &["read", "-t", &pane, "--since", "yesterday"]);
}

#[test]
fn a_long_poll_answers_when_something_comes_and_not_before() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; exec cat");
    world.await_output(&pane, "^ready");
    let path = format!("/v1/panes/{}/output{}", &pane[1..], world.query());
    let now = world.http("GET", &format!("{path}&since=now"), None).json()["cursor"].as_str().unwrap().to_owned();
    // Nothing arrives: it lasts for the given time.
    let start = std::time::Instant::now();
    let nothing = world.http("GET", &format!("{path}&since={now}&wait_ms=150"), None).json();
    assert_eq!((&nothing["text"], &nothing["cursor"]), (&"".into(), &now.as_str().into()));
    assert!(start.elapsed() >= std::time::Duration::from_millis(150));
    let mut poll = world.http_send("GET", &format!("{path}&since={now}&wait_ms=30000"), None);
    world.tmux(&["send-keys", "-t", &pane, "-l", "hello\n"]);
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut poll, &mut answer).unwrap();
    assert!(answer.contains(r#""text":"hello\n""#), "{answer}");
}

#[test]
fn every_byte_passes_unchanged_in_both_directions() {
    let world = World::with_server();
    // The terminal is raw, so that it neither changes nor drops anything; each byte comes back as
    // its number.
    let pane = world.window("stty raw -echo; echo ready; exec od -An -v -tu1 -w1");
    world.await_output(&pane, "ready");
    let hex: String = (0..=255_u8).fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    // od writes when its buffer or a line is full, so enough bytes follow.
    let padding = "41".repeat(8192);
    world.ok(&["send-keys", "-t", &pane, "--hex", &hex, &padding]);
    world.ok(&["wait-for", "-t", &pane, "-p", r"\b255\b", "--since", "start", "-T", "20"]);
    let text = world.read_all(&pane);
    let numbers: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers.get(..256), Some(&(0..=255).collect::<Vec<u32>>()[..]));
    // The other direction: bytes that are not UTF-8, NULs among them, and a character in two
    // pieces. It prints when it is followed: of earlier output tmux keeps neither NULs nor invalid
    // bytes, nor half a character.
    let out = world.window(
        r"stty raw -echo; echo ready; head -c 1 >/dev/null; printf 'a\000b\377\376c\303'; printf '\251d\n'; echo END; exec cat",
    );
    world.await_output(&out, "^ready");
    world.ok(&["send-keys", "-t", &out, "-l", "x"]);
    world.await_output(&out, "^END");
    let raw = world.muxtap(&["read", "-t", &out, "--since", "start", "--format", "raw"]).stdout;
    let printed = b"a\0b\xff\xfec\xc3\xa9d\n";
    assert!(raw.windows(printed.len()).any(|bytes| bytes == printed), "{raw:?}");
    let text = world.read_all(&out);
    assert!(text.contains("c\u{e9}d\nEND\n"), "{text:?}");
}

#[test]
fn ten_megabytes_of_input_arrive() {
    const BYTES: usize = 10_000_000;
    let world = World::with_server();
    let file = world.path("got");
    let program = format!("stty raw -echo; echo ready; head -c {BYTES} >{}; echo END; exec cat", file.display());
    let pane = world.window(&program);
    world.await_output(&pane, "ready");
    let text: Vec<u8> = (0..BYTES).map(|at| b"abcdefghijklmnopqrstuvwxyz 0123456789"[at % 37]).collect();
    let sent = world.muxtap_with_stdin(&["send-keys", "-t", &pane, "-l", "-"], &text);
    assert_eq!(sent.status, 0, "{sent:?}");
    world.ok(&["wait-for", "-t", &pane, "-p", "END", "--since", "start", "-T", "50"]);
    assert!(std::fs::read(&file).unwrap() == text, "what arrived is not what was sent");
}
