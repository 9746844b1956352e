//! Meanings of targets, compared with tmux's.

use serde_json::json;

use crate::common::{World, run};

/// Creates sessions with tmux's own names, `0` and `1`, with the panes `%0` to `%4`: window 0 and 1
/// in each, two panes in `1:1`.
fn numbered() -> World {
    let world = World::new();
    for session in ["0", "1"] {
        world.session(session);
        world.tmux(&["new-window", "-d", "-t", &format!("{session}:")]);
    }
    world.tmux(&["split-window", "-d", "-t", "1:1"]);
    world
}

#[test]
fn a_bare_number_acts_on_nothing_that_it_may_not_mean() {
    let world = numbered();
    let all = world.panes();
    assert_eq!(all.len(), 5);
    for args in [
        &["kill-pane", "-t", "1"][..],
        &["kill-window", "-t", "1"],
        &["respawn-pane", "-k", "-t", "1"],
        &["send-keys", "-t", "1", "x"],
        &["run", "-t", "1", "true"],
        &["read", "-t", "1"],
        &["capture-pane", "-t", "1"],
        &["split-window", "-t", "1"],
        &["new-window", "-t", "1"],
        &["rename-window", "-t", "1", "x"],
        &["wait-for", "-t", "1", "-p", "x", "-T", "1"],
        &["list-panes", "-t", "1"],
        &["tail", "1"],
        &["events", "-t", "1"],
        &["agents", "-t", "1"],
    ] {
        let message = world.error("AMBIGUOUS_TARGET", args);
        assert!(message.contains("1:"), "{args:?}: {message}");
    }
    // A daemon that knows the server lists the existing names.
    let waits = format!("/v1/waits{}", world.query());
    let refused = world.http("POST", &waits, Some(&json!({"panes": ["1"], "patterns": ["x"]})));
    assert_eq!(refused.status, 409, "{refused:?}");
    assert_eq!(refused.json()["details"]["candidates"], json!(["%1", "1:", "0:1", "1:1"]));
    // In a path, where `%` must be encoded, a number is an id, unless a session has that name.
    let path = |pane: &str| format!("/v1/panes/{pane}{}", world.query());
    let refused = world.http("DELETE", &path("1"), None);
    assert_eq!((refused.status, &refused.json()["code"]), (409, &"AMBIGUOUS_TARGET".into()), "{refused:?}");
    assert_eq!(world.http("DELETE", &format!("/v1/windows/1{}", world.query()), None).status, 409);
    assert_eq!((world.panes(), world.tmux(&["list-windows", "-a", "-F", "x"]).lines().count()), (all, 4));
    assert_eq!(world.http("DELETE", &path("4"), None).status, 200);
    assert!(!world.panes().contains(&"%4".to_owned()));
    // A target that can only be a session is taken as one, and `1:` is the session everywhere.
    let listed = |args: &[&str]| crate::common::names(&world.json(args)["panes"], "id");
    let of_one = world.tmux(&["list-panes", "-s", "-t", "1:", "-F", "#{pane_id}"]);
    for args in [&["list-panes", "-s", "-t", "1"], &["list-panes", "-s", "-t", "1:"]] {
        let mut live = listed(args);
        live.retain(|id| id != "%4");
        assert_eq!(live, of_one.lines().collect::<Vec<_>>(), "{args:?}");
    }
    assert_eq!(world.json(&["read", "-t", "1:"])["pane"], world.tmux(&["display-message", "-p", "-t", "1:", "#D"]));
    world.ok(&["kill-session", "-t", "1"]);
    assert_eq!(world.sessions(), ["0"]);
}

#[test]
fn offsets_count_from_what_is_current_in_their_session() {
    let world = World::new();
    world.session("w");
    for _ in 0..3 {
        world.tmux(&["new-window", "-d", "-t", "w:"]);
    }
    world.tmux(&["new-window", "-d", "-t", "w:7", "-n", "+1"]);
    world.tmux(&["split-window", "-d", "-t", "w:1"]);
    world.tmux(&["split-window", "-t", "w:1"]);
    for current in ["0", "1", "7"] {
        world.tmux(&["select-window", "-t", &format!("w:{current}")]);
        for target in ["w:+1", "w:-1", "w:+", "w:-", "w:+2", "w:-3", "w:+7", "w:+1.0"] {
            let expected = world.tmux(&["display-message", "-p", "-t", target, "#{pane_id}"]);
            assert_eq!(world.json(&["read", "-t", target])["pane"], expected, "{target} at {current}");
        }
    }
    // tmux's window before the current one, not the one with the index 1.
    world.tmux(&["select-window", "-t", "w:3"]);
    world.ok(&["kill-window", "-t", "w:-1"]);
    assert_eq!(world.tmux(&["list-windows", "-t", "w", "-F", "#I"]), "0\n1\n3\n7");
    // With several sessions none is current for a caller outside of all panes.
    world.session("other");
    for target in ["+1", "-1", ":+1", ":1", "!", "{last}", ".1", ":"] {
        let message = world.error("INVALID_TARGET", &["kill-window", &format!("-t{target}")]);
        assert!(message.contains("w:, other:") || message.contains("other:, w:"), "{target}: {message}");
    }
    for target in ["w:{nowhere}", "w:.{start}", "{mouse}"] {
        let message = world.error("INVALID_TARGET", &["kill-window", &format!("-t{target}")]);
        assert!(message.contains("expected"), "{target}: {message}");
    }
    assert_eq!(world.tmux(&["list-windows", "-t", "w", "-F", "#I"]), "0\n1\n3\n7");
}

/// Every relative target means the same as to tmux in that pane.
#[test]
fn in_a_pane_targets_mean_the_same_as_to_tmux() {
    let world = World::new();
    world.session("w");
    world.session("other");
    for name in ["logs", "build"] {
        world.tmux(&["new-window", "-t", "w:", "-n", name]);
        world.tmux(&["split-window", "-t", &format!("w:{name}")]);
        world.tmux(&["split-window", "-h", "-t", &format!("w:{name}")]);
    }
    world.tmux(&["new-window", "-d", "-t", "other:", "-n", "alone"]);
    world.tmux(&["select-pane", "-m", "-t", "other:0.0"]);
    let targets = [
        ":",
        ":0",
        ":1",
        ":logs",
        ":build",
        ":logs.1",
        ":build.2",
        ":2.0",
        ".0",
        ".1",
        ".2",
        "logs",
        "build",
        "logs.1",
        "+",
        "-",
        "+1",
        "-2",
        "{next}",
        "{previous}",
        ".+",
        ".-",
        ":+",
        ":-",
        ":+1",
        ":{next}",
        ":^",
        ":$",
        ":!",
        ":{last}.1",
        ":{start}",
        ":{end}",
        "!",
        "{last}",
        "{top}",
        "{bottom}",
        "{left}",
        "{right}",
        "{top-left}",
        "{top-right}",
        "{bottom-left}",
        "{bottom-right}",
        ".{top}",
        ":build.{bottom-right}",
        "w:{last}",
        "~",
        "{marked}",
        "{up-of}",
        "{down-of}",
        "{left-of}",
        "{right-of}",
        "other",
        "other:",
        "w:build",
        "w:+1",
        "alone",
    ];
    let inside = |mut command: std::process::Command, pane: &str| {
        command.env("TMUX", format!("{},{},0", world.socket().display(), world.server_pid())).env("TMUX_PANE", pane);
        command
    };
    let panes = world.tmux(&["list-panes", "-s", "-t", "w:", "-F", "#D"]);
    for pane in panes.lines() {
        // tmux counts from the active pane, muxtap from the caller's pane.
        world.tmux(&["select-window", "-t", pane]);
        world.tmux(&["select-pane", "-t", pane]);
        for target in targets {
            let mut tmux = inside(world.tmux_command(world.socket()), pane);
            let found =
                run(tmux.args(["capture-pane", "-p", "-t", target, ";", "display-message", "-p", "-t", target, "#D"]));
            let told =
                run(inside(world.muxtap_command(&["--json", "read", "-t", target]), pane).args(["--since", "now"]));
            // tmux finds no window of another session by its name alone.
            let expected = match target {
                "alone" => Some(world.tmux(&["display-message", "-p", "-t", "other:alone", "#D"])),
                _ => (found.status == 0).then(|| found.text().lines().last().unwrap_or_default().to_owned()),
            };
            match expected {
                // If several panes touch it, tmux takes the most recently used one.
                Some(expected) if target.ends_with("-of}") && told.status != 0 => {
                    let error = told.error();
                    let candidates = error["details"]["candidates"].as_array().unwrap();
                    assert!(
                        candidates.len() > 1 && candidates.contains(&expected.into()),
                        "{target} in {pane}: {told:?}"
                    );
                }
                Some(expected) => assert_eq!(told.json()["pane"], expected, "{target} in {pane}: {told:?}"),
                None => assert_eq!(told.status, 1, "{target} in {pane}: {told:?} {found:?}"),
            }
        }
        // Without -t it is the pane itself, and for commands on a window or a session the pane's
        // own.
        let own = run(inside(world.muxtap_command(&["--json", "list-panes", "-t", ":"]), pane).args(["-s"])).json();
        assert_eq!(crate::common::names(&own["panes"], "id"), panes.lines().collect::<Vec<_>>());
    }
    // A script in the background means its own window, regardless of the active one.
    world.tmux(&["select-window", "-t", "w:build"]);
    for (target, expected) in [(".1", "w:logs.1"), (":+", "w:build"), ("w:+", "w:0"), (":", "w:build")] {
        let command = world.muxtap_command(&["--json", "read", "--since", "now", "-t", target]);
        let told = run(&mut inside(command, &world.tmux(&["display-message", "-p", "-t", "w:logs.2", "#D"])));
        assert_eq!(told.json()["pane"], world.tmux(&["display-message", "-p", "-t", expected, "#D"]), "{target}");
    }
    // A missing target is not looked for elsewhere. Behind a window that only tmux finds, tmux would count
    // `{up-of}` from another window (N88).
    for target in [":9", ".9", "{up-of}x", "nobody", ":nobody", "9.9", ":{last}.{up-of}"] {
        let told = run(inside(world.muxtap_command(&["read", "-t", target]), "%0").args(["--since", "now"]));
        assert_eq!(told.status, 1, "{target}: {told:?}");
    }
}

#[test]
fn target_patterns_match_the_existing_panes() {
    let world = World::new();
    let _ = world.muxtap(&["list-sessions"]);
    for session in ["web-1", "web-2", "db"] {
        world.tmux(&["new-session", "-d", "-s", session, "cat"]);
    }
    let waits = world.spawn(&["--json", "wait-for", "-t", "web-*", "--all", "-p", "hello", "-T", "30"]);
    crate::common::eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    let typed = world.ok(&["--json", "send-keys", "-t", "web-*", "hello", "Enter"]);
    assert_eq!(typed.lines().count(), 2, "{typed}");
    let ended = waits.finish().json();
    assert_eq!(ended["outcome"], "matched", "{ended}");
    assert!(!world.read_all("db").contains("hello"));
    for args in [
        &["wait-for", "-t", "nope-*", "-p", "x", "-T", "5"][..],
        &["send-keys", "-t", "nope-*", "x"],
        &["tail", "nope-*"],
    ] {
        let message = world.error("NOT_FOUND", args);
        assert!(message.contains("no pane") && message.contains("nope-*"), "{message}");
    }
}

#[test]
fn panes_of_an_earlier_server_are_not_mistaken_for_the_new_servers() {
    let world = World::new();
    let tell = |name: &str| format!("echo I am {name}; exec cat");
    world.tmux(&["new-session", "-d", "-s", "main", &tell("old zero")]);
    world.tmux(&["new-window", "-d", &tell("old one")]);
    world.await_output("%0", "I am old zero");
    world.await_output("%1", "I am old one");
    let pid = |pane: &str| world.tmux(&["display-message", "-p", "-t", pane, "#{pane_pid}"]).parse::<u64>().unwrap();
    let old = [pid("%0"), pid("%1")];
    let wait = world.spawn(&["wait-for", "-t", "%0", "%1", "--all", "--exit", "-T", "30"]);
    crate::common::eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    world.tmux(&["kill-server"]);
    assert_eq!(wait.finish().status, 0);
    // While no other server runs, ids mean the last one's panes.
    assert_eq!(world.read_all("%1"), "I am old one\n");
    world.tmux(&["new-session", "-d", "-s", "main", &tell("new zero")]);
    world.await_output("%0", "I am new zero");
    let new = pid("%0");
    let listed = world.json(&["list-panes"])["panes"].clone();
    let rows: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|pane| {
            (
                pane["id"].as_str().unwrap(),
                pane["pid"].as_u64().unwrap(),
                pane["dead"] == true,
                pane["earlier_server"] == true,
            )
        })
        .collect();
    let mut expected = [("%0", old[0], true, true), ("%1", old[1], true, true)];
    let mut ended = rows[1..].to_vec();
    ended.sort_unstable();
    expected.sort_unstable();
    assert_eq!((rows[0], ended.as_slice()), (("%0", new, false, false), &expected[..]), "{listed}");
    let table = world.ok(&["list-panes"]);
    assert_eq!(table.matches("earlier server").count(), 2, "{table}");
    // An id means a pane of the running server; for one of the earlier server's the error explains
    // how to read it.
    assert_eq!(world.read_all("%0"), "I am new zero\n");
    for args in [&["read", "-t", "%1"][..], &["capture-pane", "-t", "%1"], &["kill-pane", "-t", "%1"]] {
        let message = world.error("NOT_FOUND", args);
        assert!(message.contains("server that ran there before"), "{message}");
    }
    let error = world.muxtap(&["--json", "read", "-t", "%1"]).error();
    let since = error["details"]["start"].as_str().unwrap();
    let read = world.json(&["read", "-t", "%1", "--since", since]);
    assert_eq!((&read["text"], &read["exited"]), (&"I am old one\n".into(), &true.into()), "{read}");
    // The rest of an earlier server's pane comes first, then a gap and the pane that has its id
    // now.
    let epoch_of_one = since.split('.').nth(1).unwrap().to_owned();
    let zero = listed.as_array().unwrap().iter().find(|pane| pane["pid"] == old[0]).unwrap();
    let end = zero["cursor"].as_str().unwrap();
    assert_eq!(end.split('.').nth(1).unwrap(), epoch_of_one);
    let next = world.json(&["read", "-t", "%0", "--since", end]);
    assert_eq!(
        (&next["gap"]["reason"], &next["text"]),
        (&"server-restarted".into(), &"I am new zero\n".into()),
        "{next}"
    );
    // Searching and following by name do not confuse them.
    let tail = world.ok(&["tail", "*"]);
    assert!(tail.contains("I am new zero") && !tail.contains("old"), "{tail}");
}
