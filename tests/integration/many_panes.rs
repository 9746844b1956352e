//! Many panes at once: their names, their programs, their ends.

use std::time::Duration;

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::common::{World, eventually, names};

/// Returns the table of `list-panes`, a row for each pane, as (id, name, command).
fn rows(world: &World) -> Vec<(String, String, String)> {
    let table = world.ok(&["list-panes"]);
    let heads = table.lines().next().unwrap();
    let at = |name: &str| heads.find(name).unwrap();
    let cell = |line: &str, from: usize, to: usize| line.get(from..to.min(line.len())).unwrap_or("").trim().to_owned();
    let row = |line: &str| {
        (cell(line, 0, at("PANE")), cell(line, at("NAME"), at("COMMAND")), cell(line, at("COMMAND"), at("PID")))
    };
    table.lines().skip(1).map(row).collect()
}

#[test]
fn panes_have_their_windows_names_and_say_what_runs() {
    let world = World::new();
    world.ok(&["new-session", "-s", "dev", "--", "exec cat"]);
    world.ok(&["rename-window", "-t", "dev:0", "sh"]);
    let server = world.ok(&["new-window", "-t", "dev", "-n", "srv", "--", "sleep 1000"]);
    let twin = world.ok(&["new-window", "-t", "dev", "-n", "twin", "--", "sleep", "1000"]);
    let other = world.ok(&["new-window", "-t", "dev", "-n", "twin"]);
    let split = world.ok(&["split-window", "-t", &server, "--", "head -c 1"]);
    let shown = |pane: &str| {
        let (_, name, command) = rows(&world).into_iter().find(|(id, ..)| id == pane).unwrap();
        format!("{name} {command}")
    };
    for (pane, expected) in
        [(&server, "dev:srv.0 sleep"), (&split, "dev:srv.1 head"), (&twin, "dev:2 sleep"), (&other, "dev:3 sh")]
    {
        eventually(expected, || shown(pane) == expected);
    }
    assert_eq!(shown(&world.panes()[0]), "dev:sh cat");
    // An ended pane has no index.
    world.ok(&["kill-pane", "-t", &split]);
    world.ok(&["wait-for", "-t", &split, "--exit", "--since", "start", "-T", "30"]);
    assert_eq!(shown(&server), "dev:srv sleep");
    let ended = world.ok(&["list-panes"]);
    assert!(!ended.contains(":0.0  ") || ended.matches(":0.0").count() == 1, "{ended}");
}

#[test]
fn what_was_printed_at_a_time_is_found() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo old; exec cat");
    world.await_output(&pane, "^old");
    let cursor = world.ok(&["cursor", "-t", &pane]);
    // Times have a resolution of a second: later ones can be distinguished.
    std::thread::sleep(Duration::from_millis(1100));
    let between = OffsetDateTime::now_utc().format(&Rfc3339).unwrap();
    world.ok(&["send-keys", "-t", &pane, "new", "Enter"]);
    world.await_output(&pane, "^new");
    assert_eq!(world.ok(&["tail", "--since", &between, "-t", &pane]), "new");
    assert_eq!(world.ok(&["tail", "--since", "1h", "--until", &between, "-t", &pane]), "old");
    assert_eq!(world.ok(&["read", "--since", "start", "--until", &cursor, "-t", &pane]), "old");
    assert_eq!(world.ok(&["read", "--since", &cursor, "--until", &cursor, "-t", &pane]), "");
    assert_eq!(world.ok(&["read", "--since", &between, "--until", "2h", "-t", &pane]), "");
    let read = world.json(&["read", "--json", "--since", "start", "--until", &cursor, "-t", &pane]);
    assert_eq!(read["cursor"], cursor, "the next read goes on there: {read}");
    assert!(read["more"].is_null() && read["exited"].is_null(), "{read}");
    // The lines that a wait counts, and the line at which a follower begins.
    assert_eq!(world.ok(&["wait-for", "-t", &pane, "-p", "old", "--since", "1h"]), "old");
    for since in [between.as_str(), &cursor, "1h"] {
        let mut follow = world.spawn(&["tail", "-f", "--since", since, "-t", &pane]);
        assert_eq!(follow.line().unwrap(), if since == "1h" { "old" } else { "new" }, "{since}");
    }
    for (args, said) in [
        (&["tail", "--since", "10", &pane][..], "an age with a unit"),
        (&["tail", "--since", "yesterday", &pane], "an age with a unit"),
        (&["tail", "--until", "10m", &pane], "--since"),
        (&["tail", "--since", "2999-01-01T00:00:00Z", &pane], "in the future"),
        (&["tail", "-f", "--since", "start", "--until", "10m", &pane], "cannot be used with"),
        (&["events", "-t", "main:*", "--since", &cursor], "works only with that pane"),
    ] {
        let wrong = world.muxtap(args);
        assert!(wrong.status != 0 && wrong.stderr.contains(said), "{args:?}: {wrong:?}");
    }
    let path = format!("/v1/panes/%25{}/output{}&until=1h&wait_ms=10", &pane[1..], world.query());
    assert!(world.http("GET", &path, None).json()["message"].as_str().unwrap().contains("leave out until or wait_ms"));
}

#[test]
fn tail_calls_panes_by_name_and_chooses_lines() {
    let world = World::new();
    let line = "echo one; echo WARN two; echo three; exec cat";
    let first = world.ok(&["new-session", "-s", "dev", "--", line]);
    world.ok(&["rename-window", "-t", "dev:0", "sh"]);
    let second = world.ok(&["new-window", "-t", "dev", "-n", "srv", "--", line]);
    for pane in [&first, &second] {
        world.await_output(pane, "^three");
    }
    let mut printed: Vec<_> = world.ok(&["tail", "--grep", "WARN", "dev:*"]).lines().map(str::to_owned).collect();
    printed.sort_unstable();
    assert_eq!(printed, ["dev:sh  │ WARN two", "dev:srv │ WARN two"]);
    let cursor = world.ok(&["cursor", "-t", &first]);
    world.ok(&["send-keys", "-t", &first, "later", "Enter"]);
    world.await_output(&first, "^later\nlater");
    assert_eq!(world.ok(&["tail", "--since", &cursor, "-t", &first]), "later\nlater");
    assert_eq!(world.ok(&["tail", "--since", "start", "--grep", "^t", "-t", &first]), "three");
    let mut follow = world.spawn(&["tail", "-f", "--timestamps", "--since", "start", "--grep", "WARN", "-t", &second]);
    let stamped = follow.line().unwrap();
    let (time, text) = stamped.split_once(' ').unwrap();
    assert!(text == "WARN two" && time.ends_with('Z') && time.len() == 24, "{stamped}");
    // An ended pane has the same last lines, without muxtap's own marks.
    let ended = world.ok(&["new-window", "-t", "dev", "--", "seq 5"]);
    world.ok(&["wait-for", "-t", &ended, "--exit", "--since", "start", "-T", "30"]);
    assert_eq!(world.ok(&["tail", "-n", "1", "-t", &ended]), "5");
    assert_eq!(world.ok(&["read", "--since", "lines:2", "-t", &ended]), "4\n5");
    for wrong in [
        &["tail", "--timestamps", &first][..],
        &["tail", "--grep", "(", &first],
        &["tail", "-n", "3", "--since", "now", &first],
    ] {
        assert_eq!(world.muxtap(wrong).status, 2, "{wrong:?}");
    }
}

#[test]
fn all_ends_are_told_each_with_its_status() {
    let world = World::new();
    world.ok(&["new-session", "-s", "tests"]);
    let panes: Vec<_> =
        (0..3).map(|number| world.ok(&["new-window", "-t", "tests", "--", &format!("exit {number}")])).collect();
    let targets: Vec<_> = panes.iter().map(String::as_str).collect();
    let args = [&["wait-for", "--all", "--exit", "--since", "start", "-T", "40", "-t"], targets.as_slice()].concat();
    let expected: Vec<_> =
        panes.iter().enumerate().map(|(number, pane)| format!("{pane} ended (status {number})")).collect();
    assert_eq!(world.ok(&args).lines().collect::<Vec<_>>(), expected);
    let told = world.json(&args);
    assert_eq!(names(&told["predicates"], "pane"), panes);
    let statuses: Vec<_> = told["predicates"].as_array().unwrap().iter().map(|one| &one["exit_status"]).collect();
    assert_eq!(statuses, [0, 1, 2]);
}

#[test]
fn a_wait_ends_when_something_is_gone() {
    let world = World::new();
    let pane = world.ok(&[
        "new-session",
        "-s",
        "main",
        "--",
        "stty -echo; echo Building; read x; printf '\\033[2J'; exec cat",
    ]);
    world.await_output(&pane, "^Building");
    // The text is absent and always was.
    world.ok(&["wait-for", "-t", &pane, "--gone", "Testing", "-T", "30"]);
    let late = world.muxtap(&["wait-for", "-t", &pane, "--gone", "Build", "-T", "0.3"]);
    assert!(late.status == 124 && late.stderr.contains("/Build/"), "{late:?}");
    let wait =
        world.spawn(&["--json", "wait-for", "-t", &pane, "--gone", "Building", "--gone", "(?s)B.*g", "-T", "30"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    world.ok(&["send-keys", "-t", &pane, "Enter"]);
    let wait = wait.finish();
    assert_eq!((wait.status, &wait.json()["predicates"][0]["kind"]), (0, &"gone".into()), "{wait:?}");
    assert!(world.error("INVALID_ARGUMENT", &["wait-for", "-t", &pane, "--gone", "("]).contains("--gone `"));
}

/// A pane's text reaches the command as a variable, and is never a part of it.
#[test]
fn whoever_waits_is_told_by_a_command_or_the_desktop() {
    let mut world = World::new();
    let bin = world.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\nprintf '%s|' \"$@\" >{}\n", world.path("shown").display());
    std::fs::write(bin.join("notify-send"), script).unwrap();
    std::fs::set_permissions(bin.join("notify-send"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let pane = world.ok(&["new-session", "-s", "main", "--", "echo 'it is $(touch x) `done`'; exec cat"]);
    let told = r#"printf '%s/%s/%s' "$MUXTAP_OUTCOME" "$MUXTAP_PANE" "$MUXTAP_LINE" > told; echo heard"#;
    let wait = &["wait-for", "-t", &pane, "-p", "done", "--since", "start", "-T", "30", "--notify", "--on-end", told];
    let answer = world.muxtap(wait);
    assert_eq!((answer.status, answer.text().as_str()), (0, "it is $(touch x) `done`\n"), "{answer:?}");
    assert!(answer.stderr.contains("heard"), "{answer:?}");
    let read = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    assert_eq!(read("work/told"), format!("matched/{pane}/it is $(touch x) `done`"));
    assert_eq!(read("shown"), format!("--app-name|muxtap|--|{pane}: matched|it is $(touch x) `done`|"));
    assert!(!world.path("work/x").exists());
    let late = world.muxtap(&["wait-for", "-t", &pane, "-p", "never", "-T", "0.1", "--on-end", "exit 3"]);
    assert!(late.status == 1 && late.stderr.contains("--on-end exit 3"), "{late:?}");
}
