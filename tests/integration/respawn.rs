//! Programs that are restarted in a pane, and panes that move to another connection.

use crate::common::{Background, World, eventually};

const BURST: &str = "seq 1 3000; echo DONE; exit 3";

/// Returns the lines that a run of `BURST` prints.
fn burst() -> String {
    let lines: Vec<_> = (1..=3000).map(|line| line.to_string()).collect();
    lines.join("\n") + "\nDONE\n"
}

fn cursor(world: &World, pane: &str) -> String {
    world.json(&["read", "-t", pane, "--since", "now"])["cursor"].as_str().unwrap().to_owned()
}

/// Reads a pane's output from a cursor on; a gap is a failure.
fn since(world: &World, pane: &str, cursor: &str) -> (String, serde_json::Value) {
    let answer = world.json(&["read", "-t", pane, "--since", cursor, "--max-bytes", "1000000"]);
    assert_eq!(answer["gap"], serde_json::Value::Null, "{answer}");
    (answer["text"].as_str().unwrap().to_owned(), answer)
}

/// Attaches a user's client to a session.
fn user(world: &World, args: &[&str]) -> Background {
    let mut user = Background::start(world.tmux_command(world.socket()).args(["-C", "attach-session"]).args(args));
    user.line_where("the attach", |line| line.starts_with("%session-changed"));
    user
}

/// Asks plain tmux for a format of a pane.
fn told(world: &World, pane: &str, format: &str) -> String {
    world.tmux(&["display-message", "-p", "-t", pane, format])
}

#[test]
fn a_burst_in_a_kept_pane_is_complete_after_each_respawn() {
    let world = World::with_server();
    let pane = world.ok(&["new-window", "-t", "main", "--keep", "--", BURST]);
    world.ok(&["wait-for", "-t", &pane, "--exit"]);
    for round in 0..20 {
        let before = cursor(&world, &pane);
        // Once with the command, then without: the previous program runs again.
        let command: &[&str] = if round % 2 == 0 { &["--", BURST] } else { &[] };
        world.ok(&[&["respawn-pane", "-t", &pane, "--keep"], command].concat());
        let waited = world.muxtap(&["--json", "wait-for", "-t", &pane, "--exit", "-T", "30"]);
        assert_eq!(waited.status, 0, "round {round}: {waited:?}");
        let (text, answer) = since(&world, &pane, &before);
        assert!(
            text == burst(),
            "round {round}: {} bytes, ends {:?}",
            text.len(),
            text.get(text.len().saturating_sub(60)..)
        );
        assert_eq!((&answer["exited"], &answer["exit_status"]), (&true.into(), &3.into()), "round {round}");
    }
    eventually("it is dead", || told(&world, &pane, "#{pane_dead} #{pane_dead_status}") == "1 3");
}

#[test]
fn a_burst_in_the_place_of_what_ran_is_whole_and_its_pane_closes() {
    let world = World::with_server();
    for round in 0..20 {
        let pane = world.ok(&["new-window", "-t", "main", "--", "exec cat"]);
        let before = cursor(&world, &pane);
        world.ok(&["respawn-pane", "-k", "-t", &pane, "--", BURST]);
        world.ok(&["wait-for", "-t", &pane, "--exit", "-T", "30"]);
        // The pause may have dropped the last output of `cat`, which is reported once, as a gap.
        let first = world.json(&["read", "-t", &pane, "--since", &before, "--max-bytes", "1000000"]);
        assert_eq!(first["gap"]["reason"], "paused", "round {round}: {first}");
        assert!(first["text"].as_str().unwrap() == burst(), "round {round}");
        assert_eq!((&first["exited"], &first["exit_status"]), (&true.into(), &3.into()), "round {round}");
        eventually("it is closed", || {
            !world.tmux(&["list-panes", "-a", "-F", "#{pane_id}"]).lines().any(|id| id == pane)
        });
    }
}

#[test]
fn a_respawned_command_has_its_words_its_directory_and_its_environment() {
    let world = World::with_server();
    let dir = world.path("work").display().to_string();
    let script = "printf '%s|' \"$PWD\" \"$A\" \"$B\" \"$@\"; echo";
    let pane = world.ok(&[
        "new-window",
        "-t",
        "main",
        "-c",
        "/",
        "-e",
        "A=1",
        "--keep",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        "a  b",
        "it's;",
    ]);
    world.ok(&["wait-for", "-t", &pane, "--exit"]);
    let last = || {
        world.ok(&["wait-for", "-t", &pane, "--exit"]);
        world.read_all(&pane).trim_end().lines().last().unwrap().to_owned()
    };
    assert_eq!(last(), "/|1||a  b|it's;|");
    world.ok(&["respawn-pane", "-t", &pane]);
    assert_eq!(last(), "/|1||a  b|it's;|", "what ran before, as it ran before");
    world.ok(&["respawn-pane", "-t", &pane, "-c", &dir, "-e", "B=2"]);
    assert_eq!(last(), format!("{dir}|1|2|a  b|it's;|"));
    world.ok(&["respawn-pane", "-t", &pane, "-e", "B=3", "--", "sh", "-c", script, "sh", "other"]);
    assert_eq!(last(), format!("{dir}||3|other|"), "another command has only its own variables");
    world.ok(&["respawn-pane", "-t", &pane, "--", "echo \"$0\" one line; exit 7"]);
    assert!(last().ends_with("one line"));
    assert_eq!(world.json(&["read", "-t", &pane])["exit_status"], 7);
}

#[test]
fn what_runs_is_not_respawned_without_being_told_to_end_it() {
    let world = World::with_server();
    let pane = world.ok(&["new-window", "-t", "main", "--", "echo here; cat"]);
    world.await_output(&pane, "^here");
    let before = cursor(&world, &pane);
    world.error("CONFLICT", &["respawn-pane", "-t", &pane, "--", "echo other"]);
    world.ok(&["send-keys", "-t", &pane, "still", "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "still\\n.*still", "--since", &before]);
    // The pane was not even paused.
    since(&world, &pane, &before);
    // Its end is reported by its own hold as before.
    world.ok(&["send-keys", "-t", &pane, "C-d"]);
    let waited = world.muxtap(&["wait-for", "-t", &pane, "--exit", "-T", "20"]);
    assert_eq!(waited.status, 0, "{waited:?}");
    assert_eq!(world.json(&["read", "-t", &pane])["exit_status"], 0);
}

/// A user's pane: muxtap started its command, so none of its output is lost, and the pane is the
/// user's afterwards.
#[test]
fn a_pane_of_the_users_is_held_and_given_back() {
    let world = World::with_server();
    let options = |pane: &str| world.tmux(&["show-options", "-p", "-t", pane]);
    // With its own options: it is closed when its process has ended.
    let pane = world.window("exec cat");
    world.ok(&["respawn-pane", "-k", "-t", &pane, "--", BURST]);
    world.ok(&["wait-for", "-t", &pane, "--exit", "-T", "30"]);
    let answer = world.json(&["read", "-t", &pane, "--since", "start", "--max-bytes", "1000000"]);
    assert_eq!(answer["exit_status"], 3, "{}", answer["gap"]);
    assert!(world.read_all(&pane).ends_with(&burst()));
    eventually("tmux has closed it", || {
        !world.tmux(&["list-panes", "-a", "-F", "#{pane_id}"]).lines().any(|id| id == pane)
    });

    // A user's option keeps it, and draws its row.
    let pane = world.window("exec cat");
    world.tmux(&["set-option", "-p", "-t", &pane, "remain-on-exit", "on"]);
    let before = options(&pane);
    world.ok(&["respawn-pane", "-k", "-t", &pane, "--", "echo one; printf two; exit 4"]);
    world.ok(&["wait-for", "-t", &pane, "--exit", "-T", "30"]);
    eventually("it is dead and kept", || told(&world, &pane, "#{pane_dead} #{pane_dead_status}") == "1 4");
    assert_eq!(options(&pane), before);
    // The next one begins on a new line.
    world.ok(&["respawn-pane", "-t", &pane, "--", "echo three; exit 5"]);
    world.ok(&["wait-for", "-t", &pane, "--exit", "-T", "30"]);
    assert!(world.read_all(&pane).ends_with("one\ntwo\nthree\n"), "{:?}", world.read_all(&pane));

    // The options are restored if muxtap stops while it runs.
    let pane = world.window("exec cat");
    world.ok(&["respawn-pane", "-k", "-t", &pane, "--", "echo up; exec cat"]);
    world.await_output(&pane, "^up");
    assert!(options(&pane).contains("remain-on-exit on"));
    world.ok(&["stop"]);
    assert_eq!(options(&pane), "");
}

#[test]
fn without_a_command_what_a_daemon_that_has_gone_had_started_is_held_again() {
    let mut world = World::new();
    // A hold that is never released does not end by itself: the next respawn would find it running.
    let bin = world.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let sleep = bin.join("sleep");
    std::fs::write(&sleep, "#!/bin/sh\nPATH=${PATH#*:}\nexec sleep 3600\n").unwrap();
    std::fs::set_permissions(&sleep, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    world.session("main");
    let pane = world.ok(&["new-window", "-t", "main", "--keep", "--", BURST]);
    world.ok(&["wait-for", "-t", &pane, "--exit"]);
    eventually("it is dead", || told(&world, &pane, "#{pane_dead}") == "1");
    world.ok(&["stop"]);
    for round in 0..3 {
        let before = cursor(&world, &pane);
        world.ok(&["respawn-pane", "-t", &pane]);
        world.ok(&["wait-for", "-t", &pane, "--exit", "-T", "30"]);
        eventually("the hold is let go", || told(&world, &pane, "#{pane_dead}") == "1");
        let (text, answer) = since(&world, &pane, &before);
        // The last line of the dead pane had no line end when this daemon started.
        let text = text.trim_start_matches('\n');
        assert!(text == burst() && answer["exit_status"] == 3, "round {round}: {}", text.len());
    }
}

/// A change and the function that makes it; the returned process lives as long as the change.
type Change = (&'static str, fn(&World, &str) -> Option<Background>);

/// Respawns by plain tmux, in each of the ways in which a dead pane can have moved to another
/// connection in the meantime.
#[test]
fn a_respawned_pane_that_was_moved_or_reattached_is_followed_again() {
    let world = World::with_server();
    world.session("other");
    let changes: [Change; 3] = [
        ("nothing", |_, _| None),
        ("move-window", |world, pane| {
            world.tmux(&["move-window", "-d", "-s", pane, "-t", "other:"]);
            None
        }),
        ("attach -d", |world, _| Some(user(world, &["-d", "-t", "main"]))),
    ];
    for (what, change) in changes {
        let first = "echo first; printf unfinished; sleep 0.2; exit 3";
        let pane = world.tmux(&["new-window", "-d", "-t", "main:", "-P", "-F", "#{pane_id}", first]);
        world.tmux(&["set-option", "-p", "-t", &pane, "remain-on-exit", "on"]);
        world.await_output(&pane, "unfinished");
        world.ok(&["wait-for", "-t", &pane, "--exit", "-T", "30"]);
        let user = change(&world, &pane);
        if user.is_some() {
            let session = told(&world, &pane, "#{session_name}");
            eventually("muxtap is back", || world.tmux(&["list-clients", "-t", &session]).lines().count() == 2);
            // The daemon has also read the existing output.
            world.ok(&["list-panes"]);
        } else {
            world.ok(&["list-panes"]);
        }
        world.tmux(&["respawn-pane", "-t", &pane, "echo second; while read -r line; do echo \"got $line\"; done"]);
        world.await_output(&pane, "^second");
        world.ok(&["send-keys", "-t", &pane, "hello", "Enter"]);
        world.await_output(&pane, "^got hello");
        let text = world.read_all(&pane);
        assert!(!text.contains("Pane is dead"), "{what}: {text:?}");
        assert!(text.contains("first\nunfinished\n"), "{what}: what comes next is another line: {text:?}");
        assert_eq!(world.json(&["read", "-t", &pane])["exited"], serde_json::Value::Null, "{what}");
        world.tmux(&["kill-pane", "-t", &pane]);
    }
}

/// A pause by another client on muxtap's client is a gap. muxtap's own pauses are not, and neither
/// are those of another client for itself.
#[test]
fn only_a_pause_on_our_own_client_that_we_did_not_ask_for_is_a_gap() {
    let world = World::with_server();
    let pane = world.window("stty -echo; while read -r line; do echo \"got $line\"; done");
    world.ok(&["list-panes"]);
    let say = |line: &str| {
        world.tmux(&["send-keys", "-l", "-t", &pane, line, ";", "send-keys", "-t", &pane, "Enter"]);
        world.await_output(&pane, &format!("^got {line}$"));
    };
    say("a");
    let before = cursor(&world, &pane);
    // Another control client pauses the pane for itself, and continues it.
    let mut other = user(&world, &["-f", "ignore-size,pause-after=60", "-t", "main"]);
    {
        use std::io::Write as _;
        writeln!(other.stdin(), "refresh-client -A '{pane}:pause'").unwrap();
    }
    other.line_where("the pause", |line| line.starts_with("%pause"));
    say("b");
    let (text, _) = since(&world, &pane, &before);
    assert_eq!(text, "got b\n");
    drop(other);

    // Another client pauses it for muxtap's client.
    let client = world.tmux(&["list-clients", "-t", "main", "-F", "#{client_name}"]);
    let client = client.lines().next().unwrap().to_owned();
    let before = cursor(&world, &pane);
    world.tmux(&["refresh-client", "-t", &client, "-A", &format!("{pane}:pause")]);
    say("c");
    let answer = world.json(&["read", "-t", &pane, "--since", &before]);
    assert_eq!(answer["gap"]["reason"], "paused", "{answer}");
    say("d");
}
