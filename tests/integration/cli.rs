//! The command line: each command once, its JSON, its exit status, and its side effects.

use std::io::Read as _;

use crate::common::{Background, World, eventually, names, run};
use serde_json::{Value, json};

/// Creates a world with a session `work` of muxtap's own, whose pane runs `sh`.
fn world() -> (World, String) {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "work", "--", "sh"]);
    world.await_output(&pane, "[$#] $");
    (world, pane)
}

#[test]
fn sessions_windows_and_panes_are_made_listed_changed_and_closed() {
    let (world, first) = world();
    let made = world.json(&["new-window", "-t", "work", "-n", "logs", "-c", "/usr", "-e", "COLOUR=blue", "--", "sh"]);
    assert_eq!(made["session_name"], "work");
    let second = made["pane"].as_str().unwrap().to_owned();
    assert_eq!(world.ok(&["run", "-t", &second, "--", "echo $COLOUR $PWD"]), "blue /usr");
    let third = world.ok(&["split-window", "-t", &second, "-h", "-l", "30", "--", "cat"]);
    assert_eq!(
        names(&world.json(&["list-panes", "-t", "work"])["panes"], "id"),
        [first.clone(), second.clone(), third.clone()]
    );
    assert_eq!(names(&world.json(&["list-windows", "-t", "work"])["windows"], "id").len(), 2);
    // A pane's id does not name a window, not even the lowest id.
    for pane in ["%0", first.as_str()] {
        world.error("NOT_FOUND", &["list-windows", "-t", pane]);
    }
    assert_eq!(names(&world.json(&["ls"])["sessions"], "name"), ["work"]);
    for list in ["list-sessions", "list-windows", "list-panes"] {
        assert!(world.ok(&[list]).contains("work"), "{list}");
    }

    let width = |pane: &str| {
        let list = world.json(&["list-panes", "-t", pane]);
        list["panes"][0]["size"]["width"].as_u64().unwrap()
    };
    assert_eq!(width(&third), 30);
    world.ok(&["resize-pane", "-t", &third, "-x", "20"]);
    eventually("the pane is narrower", || width(&third) == 20);
    world.ok(&["resize-window", "-t", "work:logs", "-x", "100", "-y", "30"]);
    eventually("the window is wider", || {
        world.tmux(&["display-message", "-p", "-t", &third, "#{window_width}"]) == "100"
    });
    world.ok(&["select-layout", "-t", "work:logs", "even-vertical"]);
    eventually("they stand above each other", || width(&third) == 100);

    world.ok(&["rename-window", "-t", "work:logs", "a name: with; marks"]);
    eventually("the window is renamed", || {
        names(&world.json(&["list-windows"])["windows"], "name").contains(&"a name: with; marks".to_owned())
    });
    world.ok(&["rename-session", "-t", "work", "play"]);
    eventually("the session is renamed", || world.sessions() == ["play"]);

    world.ok(&["kill-pane", "-t", &third]);
    eventually("the pane is gone", || !world.panes().contains(&third));
    let window = made["window"].as_str().unwrap();
    world.ok(&["kill-window", "-t", window]);
    eventually("the window is gone", || world.panes() == [first.clone()]);
    world.ok(&["new-session", "-s", "other", "--", "cat"]);
    world.ok(&["kill-session", "-t", "play"]);
    eventually("the session is gone", || world.sessions() == ["other"]);
    world.error("NOT_FOUND", &["kill-session", "-t", "play"]);
}

#[test]
fn every_answer_is_json_when_asked() {
    let (world, pane) = world();
    for args in [
        &["status"][..],
        &["list-sessions"],
        &["list-windows", "-a"],
        &["list-panes", "-a"],
        &["new-window", "-t", "work", "--", "cat"],
        &["split-window", "-t", &pane, "--", "cat"],
        &["rename-window", "-t", "work:0", "x"],
        &["send-keys", "-t", &pane, "true", "Enter"],
        &["capture-pane", "-t", &pane],
        &["read", "-t", &pane],
        &["wait-for", "-t", &pane, "--stable", "0.1"],
        &["run", "-t", &pane, "--", "true"],
        &["resize-pane", "-t", &pane, "-y", "8"],
        &["select-layout", "-t", "work:0", "tiled"],
        &["kill-window", "-t", "work:1"],
        &["stop"],
    ] {
        assert!(world.json(args).is_object(), "{args:?}");
    }
}

#[test]
fn errors_are_one_line_or_one_object() {
    let (world, _) = world();
    for args in [&["read", "-t", "%99"][..], &["capture-pane", "-t", "nowhere"], &["kill-pane", "-t", "wor"]] {
        let answer = world.muxtap(args);
        assert_eq!((answer.status, answer.text().as_str(), answer.stderr.lines().count()), (1, "", 1), "{answer:?}");
        let message = world.error("NOT_FOUND", args);
        assert!(answer.stderr.contains(&message), "{answer:?} {message}");
    }
    for target in ["%", "%x", "a:b:c:d", ""] {
        assert_eq!(world.muxtap(&["read", "-t", target]).status, 1, "{target:?}");
    }
}

#[test]
fn a_wrong_command_line_is_status_2_and_help_is_0() {
    let world = World::new();
    for args in [
        &["nope"][..],
        &[],
        &["read"],
        &["read", "--nope"],
        &["wait-for", "-t", "x"],
        &["wait-for", "-t", "%0", "-p", "x", "-T", "soon"],
    ] {
        let answer = world.muxtap(args);
        // `read` needs no `-t`, so this is not a usage error.
        let wanted = if args == ["read"] { 1 } else { 2 };
        assert_eq!(answer.status, wanted, "{args:?}: {answer:?}");
        assert!(answer.stdout.is_empty() && !answer.stderr.is_empty(), "{args:?}: {answer:?}");
    }
    let help = world.ok(&["--help"]);
    let groups =
        help.lines().skip_while(|line| !line.starts_with("Watch and wait:")).take_while(|line| *line != "Options:");
    let names: Vec<&str> = groups
        .filter(|line| line.starts_with("  "))
        .filter_map(|line| line.split([' ', ',']).find(|word| !word.is_empty()))
        .collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        assert!(world.ok(&[name, "--help"]).contains("Usage:"), "{name}");
    }
    assert!(world.ok(&["--version"]).starts_with("muxtap "));
    assert!(!world.daemon_socket().exists(), "none of this needs a daemon");
}

#[test]
fn status_stop_and_the_daemon_that_starts_by_itself() {
    let world = World::with_server();
    assert_eq!(world.muxtap(&["status"]).status, 1);
    assert!(!world.daemon_socket().exists(), "status starts none");
    assert_eq!(world.sessions(), ["main"]);
    let status = world.json(&["status"]);
    assert_eq!(status["servers"][0]["sessions"], 1, "{status}");
    let pid = world.daemon_pid().unwrap();
    world.ok(&["stop"]);
    assert!(!crate::common::is_alive(pid), "its process is gone when `stop` returns");
    assert_eq!(world.muxtap(&["status"]).status, 1);
    assert_eq!(world.tmux(&["list-sessions", "-F", "#{session_name}"]), "main");
    assert_eq!(world.sessions(), ["main"]);
}

#[test]
fn many_first_commands_start_one_daemon() {
    let world = World::with_server();
    let all: Vec<Background> = (0..10).map(|_| world.spawn(&["--json", "list-panes"])).collect();
    for one in all {
        let answer = one.finish();
        assert_eq!(answer.status, 0, "{answer:?}");
        assert_eq!(answer.json()["panes"].as_array().unwrap().len(), 1);
    }
    let daemons = world.processes().into_iter().filter(|(_, line)| line.contains("serve")).count();
    assert_eq!(daemons, 1, "{:?}", world.processes());
}

#[test]
fn doctor_says_what_is_there_and_what_is_wrong() {
    let mut world = World::with_server();
    world.sessions();
    let answer = world.muxtap(&["doctor"]);
    assert_eq!(answer.status, 0, "{answer:?}");
    assert!(answer.text().contains("tmux"), "{answer:?}");
    assert_eq!(world.muxtap(&["--json", "doctor"]).status, 0);
    assert!(world.json(&["doctor"]).is_object());
    world.set("MUXTAP_TMUX", "/nowhere/tmux");
    world.ok(&["stop"]);
    let answer = world.muxtap(&["doctor"]);
    assert_eq!(answer.status, 1, "{answer:?}");
    assert!(answer.text().contains("/nowhere/tmux"), "{answer:?}");
}

#[test]
fn completions_for_each_shell() {
    let world = World::new();
    for (shell, word, asks) in [
        ("bash", "complete -F", "muxtap __complete bash"),
        ("zsh", "#compdef", "muxtap __complete zsh"),
        ("fish", "complete -k -c", "muxtap __complete fish"),
        ("elvish", "edit:", "wait-for"),
        ("powershell", "Register", "wait-for"),
    ] {
        let script = world.ok(&["completions", shell]);
        assert!(script.contains(word) && script.contains(asks), "{shell}");
    }
    let bash = world.path("work/bash");
    std::fs::write(&bash, world.ok(&["completions", "bash"])).unwrap();
    assert_eq!(run(world.command("bash").arg("-n").arg(&bash)).status, 0);
    assert_eq!(world.muxtap(&["completions", "csh"]).status, 2);
}

#[test]
fn events_tell_what_happens() {
    let (world, pane) = world();
    let mut events = world.spawn(&["events", "--types", "output,pane-opened,pane-exited,bell,title,topology"]);
    let mut next = |kind: &str, world: &World, act: &dyn Fn(&World)| -> Value {
        act(world);
        let wanted = format!("\"type\":\"{kind}\"");
        serde_json::from_str(&events.line_where(kind, |line| line.contains(&wanted))).unwrap()
    };
    // It keeps ringing until an event arrives: nothing announces that the stream has started.
    let ring = |world: &World| {
        drop(world.ok(&["send-keys", "-t", &pane, "while ! test -e go; do printf '\\a'; sleep 0.05; done", "Enter"]));
    };
    assert_eq!(next("bell", &world, &ring)["pane"], *pane);
    std::fs::write(world.path("work/go"), "").unwrap();
    let title = |world: &World| drop(world.ok(&["send-keys", "-t", &pane, "printf '\\033]2;new title\\007'", "Enter"]));
    assert_eq!(next("title", &world, &title)["title"], "new title");
    let opened = next("pane-opened", &world, &|world| {
        drop(world.ok(&["new-window", "-t", "work", "--", "sh", "-c", "read x; exit 6"]));
    });
    let id = opened["pane"]["id"].as_str().unwrap().to_owned();
    let exited = next("pane-exited", &world, &|world| drop(world.ok(&["send-keys", "-t", &id, "Enter"])));
    assert_eq!((&exited["pane"], &exited["exit_status"]), (&json!(id), &json!(6)));
}

#[test]
fn tail_prints_the_last_lines() {
    let (world, pane) = world();
    world.ok(&["run", "-t", &pane, "--", "seq 1 50"]);
    let answer = world.ok(&["tail", "-n", "4", &pane]);
    // The prompt that follows is an incomplete line and may be missing yet.
    assert!(answer.contains("48\n49\n50") && !answer.contains("46"), "{answer:?}");
    assert_eq!(world.muxtap(&["tail", "%99"]).status, 1);
}

#[test]
fn tail_follows_panes_that_fit_and_new_ones() {
    let (world, pane) = world();
    let mut tail = world.spawn(&["tail", "-f", "-n", "0", "--color", "never", "work:*"]);
    // It keeps ticking until a line arrives: nothing announces that the tail has started.
    world.ok(&["send-keys", "-t", &pane, "while ! test -e go; do sleep 0.05; echo tick; done", "Enter"]);
    tail.line_where("the first pane", |line| line.ends_with("tick"));
    let second = world.ok(&["new-window", "-t", "work", "-n", "two", "--", "sh", "-c", "echo from the second; read x"]);
    let line = tail.line_where("the second pane", |line| line.contains("from the second"));
    assert!(line.len() > "from the second".len(), "it says which pane: {line:?}");
    world.ok(&["new-session", "-s", "elsewhere", "--", "sh", "-c", "echo not this one; read x"]);
    world.ok(&["send-keys", "-t", &second, "Enter"]);
    std::fs::write(world.path("work/go"), "").unwrap();
    world.ok(&["send-keys", "-t", &pane, "echo la''st line", "Enter"]);
    let mut seen = Vec::new();
    tail.line_where("the last line", |line| {
        seen.push(line.to_owned());
        line.ends_with("last line")
    });
    assert!(!seen.iter().any(|line| line.contains("not this one")), "{seen:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (world, pane) = world();
    world.ok(&["run", "-t", &pane, "--", "seq 1 100000"]);
    for args in [&["read", "-t", &pane, "--since", "start"][..], &["--json", "list-panes"], &["--help"]] {
        let mut child = world
            .muxtap_command(args)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut byte = [0];
        out.read_exact(&mut byte).unwrap();
        drop(out);
        let done = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        assert!(stderr.is_empty(), "{args:?}: {stderr}");
    }
}

#[test]
fn the_server_is_chosen_as_tmux_does() {
    let world = World::new();
    let socket = world.path("other");
    world.tmux_at(&socket, &["new-session", "-d", "-s", "here"]);
    let at = |env: &[(&str, String)], args: &[&str]| {
        let mut command = world.plain_muxtap_command();
        command.envs(env.iter().map(|(name, value)| (*name, value))).args(args);
        run(&mut command)
    };
    let path = socket.display().to_string();
    for (env, args) in [
        (vec![], vec!["-S", &path, "ls"]),
        (vec![], vec!["ls", "-S", &path]),
        (vec![("TMUX", format!("{path},1,0"))], vec!["ls"]),
    ] {
        let answer = at(&env, &args);
        assert!(answer.status == 0 && answer.text().contains("here"), "{args:?}: {answer:?}");
    }
    let none = at(&[], &["-L", "nobody", "ls"]);
    assert_eq!(none.status, 1, "{none:?}");
    assert_eq!(none.stderr.lines().count(), 1, "{none:?}");
}

#[test]
fn read_in_all_its_forms() {
    let (world, pane) = world();
    world.ok(&["run", "-t", &pane, "--", "printf '\\033[31mred\\033[m\\nsecond\\n'"]);
    assert!(world.ok(&["read", "-t", &pane, "--since", "start"]).contains("red\nsecond\n"));
    assert!(world.ok(&["read", "-t", &pane, "--since", "start", "--format", "ansi"]).contains("\u{1b}[31mred"));
    let raw = world.muxtap(&["read", "-t", &pane, "--since", "start", "--format", "raw"]);
    assert!(raw.text().contains("red\u{1b}[m\r\nsecond\r\n"), "{raw:?}");
    let small = world.json(&["read", "-t", &pane, "--since", "start", "--max-bytes", "3"]);
    assert_eq!(small["more"], true, "{small}");
    let none = world.json(&["read", "-t", &pane, "--since", "now"]);
    assert_eq!(none["text"], "");
    let waiting = world.spawn(&["read", "-t", &pane, "--since", "now", "--wait", "20"]);
    eventually("it reads", || {
        world.ok(&["send-keys", "-t", &pane, "Enter"]);
        !crate::common::is_alive(waiting.pid())
    });
    assert!(!waiting.finish().stdout.is_empty());
}
