//! Recordings go on in the daemon that takes over (`docs/upgrade.md`).
#![cfg(target_os = "linux")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use asciicast_rs::v3;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{World, eventually, signal, type_line},
    record::{cast, last_text, markers},
};

/// Prints lines with colors, wide characters and secrets, in pieces.
const PRINTS: &str = r"stty -echo; echo ready; read go; i=0; while [ $i -lt 400 ]; do i=$((i+1));
printf 'line %s \033[3' $i; printf '1mred\033[0m \346\274'; printf '\242 pw-ab'; printf 'c%s\tend\r\n' $i;
done; echo over; exec cat";

/// Starts a recording, and returns its id.
fn start(world: &World, request: &Value) -> String {
    let answer = world.http("POST", &format!("/v1/recordings{}", world.query()), Some(request));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn info(world: &World, id: &str) -> Value {
    world.http("GET", &format!("/v1/recordings/{id}"), None).json()
}

fn stop(world: &World, id: &str) -> Value {
    let ended = world.http("DELETE", &format!("/v1/recordings/{id}"), None).json();
    assert_eq!(ended["state"], "stopped", "{ended}");
    ended
}

/// Waits until a recording has all of the pane's output.
fn caught_up(world: &World, id: &str, pane: &str) {
    eventually("the recording has caught up", || {
        info(world, id)["cursor"].as_str().unwrap() == world.ok(&["cursor", "-t", pane]).trim()
    });
}

/// Returns the output after the screen with which a file begins.
fn output(path: &Path) -> String {
    let cast = cast(path);
    let mut events = cast.events.iter().filter_map(v3::Event::as_output);
    assert!(events.next().unwrap().contains("ready"));
    events.collect()
}

fn files(info: &Value) -> Vec<PathBuf> {
    info["files"].as_array().unwrap().iter().map(|file| PathBuf::from(file.as_str().unwrap())).collect()
}

/// T26: another daemon, which is not replaced, records the same pane.
#[test]
fn a_recording_is_what_it_would_have_been_without_upgrades() {
    let mut world = World::with_server();
    let pane = world.window(PRINTS);
    world.await_output(&pane, "^ready");
    let (own, other) = (world.daemon_socket(), world.path("other.sock"));
    let [own, other] = [own, other].map(|path| path.display().to_string());
    let path = |name: &str| world.path(name).display().to_string();
    let request = |name: &str, format: &str| {
        let redact = json!(["pw-[a-z]+[0-9]+"]);
        json!({ "pane": pane, "file": path(name), "format": format, "redact": redact })
    };
    let kinds = ["v2", "v3", "text"];
    let requests = kinds.map(|kind| [request(&format!("own.{kind}"), kind), request(&format!("other.{kind}"), kind)]);
    let plain = json!({ "pane": pane, "file": path("plain.cast"), "format": "v3" });
    let rotating = json!({ "pane": pane, "dir": path("rotating"), "format": "v3", "max_bytes": 6000 });
    let mut ids: Vec<_> = requests.iter().map(|[request, _]| start(&world, request)).collect();
    ids.extend([start(&world, &plain), start(&world, &rotating)]);
    world.set("MUXTAP_SOCKET", other.clone());
    world.ok(&["list-panes"]);
    let others: Vec<_> = requests.iter().map(|[_, request]| start(&world, request)).collect();
    world.set("MUXTAP_SOCKET", own.clone());
    type_line(&world, &pane, "go");
    for _ in 0..3 {
        world.ok(&["upgrade"]);
    }
    world.await_output(&pane, "^over");
    world.ok(&["upgrade"]);
    for id in &ids {
        caught_up(&world, id, &pane);
    }
    let ended: Vec<_> = ids.iter().map(|id| stop(&world, id)).collect();
    world.set("MUXTAP_SOCKET", other);
    for id in &others {
        caught_up(&world, id, &pane);
        stop(&world, id);
    }
    world.ok(&["stop"]);
    world.set("MUXTAP_SOCKET", own);
    for ended in &ended {
        assert_eq!((&ended["gaps"], ended["error"].as_str()), (&json!(0), None), "{ended}");
    }
    for kind in ["v2", "v3"] {
        let (own, other) = (world.path(&format!("own.{kind}")), world.path(&format!("other.{kind}")));
        assert_eq!(output(&own), output(&other), "{kind}");
        assert_eq!(last_text(&cast(&own)), last_text(&cast(&other)), "{kind}");
    }
    let texts = ["own.text", "other.text"].map(|name| fs::read_to_string(world.path(name)).unwrap());
    assert_eq!(texts[0], texts[1]);
    assert!(texts[0].contains("line 400 red \u{6f22} **") && !texts[0].contains("pw-"), "{}", texts[0]);
    // Each file of the last one plays alone, and all of them have each line once.
    let files = files(&ended[4]);
    assert!(files.len() > 3, "{files:?}");
    let mut all = String::new();
    for file in &files {
        all.extend(cast(file).events.iter().filter_map(v3::Event::as_output).skip(1));
    }
    let lines: Vec<_> = all.lines().filter(|line| line.starts_with("line ")).collect();
    let plain = output(&world.path("plain.cast"));
    let expected: Vec<_> = plain.lines().filter(|line| line.starts_with("line ")).collect();
    assert!(expected.len() == 400 && lines == expected, "{} lines, {} expected", lines.len(), expected.len());
}

/// T27.
#[test]
fn a_secret_that_is_cut_by_an_upgrade_is_in_no_file() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; while read -r line; do eval \"$line\"; done");
    world.await_output(&pane, "^ready");
    let (file, text) = (world.path("cut.cast"), world.path("cut.txt"));
    let request = |file: &Path, format: &str| {
        let redact = json!(["hunter2-[a-z]+-horse"]);
        json!({ "pane": pane, "file": file, "format": format, "redact": redact, "input": true })
    };
    let ids = [start(&world, &request(&file, "v3")), start(&world, &request(&text, "text"))];
    let does = |line: &str, says: &str| {
        type_line(&world, &pane, line);
        world.await_output(&pane, says);
    };
    // A secret; a title; a sequence and a character without a secret.
    does(r"printf 'a hunter2-\033[1mcor'", "hunter2-cor");
    world.ok(&["upgrade"]);
    does(r"printf 'rect-horse b\033]2;hunter2-correct'", "rect-horse b");
    world.ok(&["upgrade"]);
    does(r"printf -- '-horse\007 c \033[3'", " c ");
    world.ok(&["upgrade"]);
    does(r"printf '1mred\346\274'", "red");
    world.ok(&["upgrade"]);
    does(r"printf '\242 end\n'", " end");
    // What is held back is written if nothing follows.
    does(r"printf 'hunter2-cor'", "hunter2-cor$");
    world.ok(&["upgrade"]);
    for id in &ids {
        let ended = stop(&world, id);
        assert_eq!((&ended["gaps"], ended["error"].as_str()), (&json!(0), None), "{ended}");
    }
    let text = fs::read_to_string(text).unwrap();
    assert!(text.contains("a ********************* b c red\u{6f22} end\nhunter2-cor"), "{text}");
    let all = output(&file);
    assert!(!all.contains("rect") && !all.contains("hunter2-\u{1b}"), "{all:?}");
    assert!(all.contains(" b\u{1b}]2;*********************\u{7} c \u{1b}[31mred\u{6f22} end\r\n"), "{all:?}");
}

/// T28.
#[test]
fn a_recording_ends_with_its_command_and_its_limits_also_after_upgrades() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; exec cat");
    world.await_output(&pane, "^ready");
    let path = |name: &str| world.path(name).display().to_string();
    let killed = world.spawn(&["record", "-t", &pane, "-o", &path("killed.cast")]);
    let interrupted = world.spawn(&["record", "-t", &pane, "-o", &path("interrupted.cast")]);
    eventually("both record", || ["killed.cast", "interrupted.cast"].iter().all(|name| world.path(name).exists()));
    let stays = start(&world, &json!({ "pane": pane, "file": path("stays.cast"), "max_bytes": 4096 }));
    world.ok(&["upgrade"]);
    world.ok(&["upgrade"]);
    type_line(&world, &pane, "after");
    world.await_output(&pane, "^after");
    let all = || world.http("GET", "/v1/recordings", None).json()["recordings"].as_array().unwrap().clone();
    let of = |name: &str| all().into_iter().find(|one| one["files"][0] == path(name).as_str()).unwrap();
    for name in ["killed.cast", "interrupted.cast", "stays.cast"] {
        caught_up(&world, of(name)["id"].as_str().unwrap(), &pane);
        assert_eq!(of(name)["state"], "recording");
    }
    killed.kill();
    eventually("it ends with its command", || of("killed.cast")["state"] == "stopped");
    signal(interrupted.pid(), Signal::INT);
    let answer = interrupted.finish();
    assert_eq!(answer.status, 130, "{answer:?}");
    assert_eq!(of("interrupted.cast")["state"], "stopped");
    for name in ["killed.cast", "interrupted.cast"] {
        assert!(output(&world.path(name)).contains("after\r\n"), "{name}");
    }
    assert_eq!(info(&world, &stays)["state"], "recording");
    // The next one has a number of its own.
    let next = start(&world, &json!({ "pane": pane, "file": path("next.cast") }));
    assert_eq!(all().iter().filter(|one| one["id"] == next.as_str()).count(), 1);
    type_line(&world, &pane, &"x".repeat(3000));
    eventually("its limit counts from before", || info(&world, &stays)["state"] == "limit");
}

/// Returns a program that takes over up to a message, and then ends.
pub fn leaves_after(world: &World, name: &str, last: &str) -> String {
    let path = world.path(name);
    let script = format!(
        r#"#!/bin/sh
msg() {{ n=$(dd bs=1 count=4 2>/dev/null | od -An -tu4); dd bs=1 count=$((n)) 2>/dev/null | od -An -tu1; }}
say() {{ printf "\001\000\000\000\\0$1" >&0; }}
files() {{ dd bs=1 count=1 >/dev/null 2>&1; }}
msg >/dev/null; say 02
msg >/dev/null; files; say 10
msg >/dev/null
{last}
exit 7
"#
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// T26, T8.
#[test]
fn a_recording_goes_on_if_the_next_daemon_does_not_take_over() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; exec cat");
    world.await_output(&pane, "^ready");
    let file = world.path("stays.cast");
    let id = start(&world, &json!({ "pane": pane, "file": file }));
    let pid = world.daemon_pid();
    let types = |line: &str| {
        type_line(&world, &pane, line);
        world.await_output(&pane, &format!("^{line}"));
        caught_up(&world, &id, &pane);
    };
    types("one");
    let before = leaves_after(&world, "before", "");
    let answer = world.muxtap(&["upgrade", "--program", &before]);
    assert!(answer.stderr.contains("exit status: 7"), "{answer:?}");
    types("two");
    assert_eq!(info(&world, &id)["gaps"], 0);
    // It may have read: the clients are replaced, with a gap.
    let after = leaves_after(&world, "after", "files; say 04; msg >/dev/null");
    let answer = world.muxtap(&["upgrade", "--program", &after]);
    assert!(answer.stderr.contains("exit status: 7"), "{answer:?}");
    assert_eq!(world.daemon_pid(), pid);
    types("three");
    stop(&world, &id);
    let played = cast(&file);
    for line in ["one", "two", "three"] {
        assert_eq!(last_text(&played).iter().filter(|row| *row == line).count(), 1, "{line}");
    }
    let gaps = markers(&played).iter().filter(|marker| marker.contains("missing")).count();
    assert!(gaps <= 1, "{gaps}");
}
