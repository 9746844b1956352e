//! `capture-pane` prints what `tmux capture-pane -p` prints, byte for byte.

use crate::common::{World, eventually};

/// Sets of flags that both programs have.
const FLAGS: [&[&str]; 16] = [
    &[],
    &["-e"],
    &["-J"],
    &["-N"],
    &["-e", "-J"],
    &["-e", "-N"],
    &["-J", "-N"],
    &["-S", "-"],
    &["-S", "-", "-E", "-"],
    &["-S", "-5"],
    &["-S", "-5", "-E", "3"],
    &["-S", "2", "-E", "4"],
    &["-S", "4", "-E", "2"],
    &["-S", "-", "-J", "-e"],
    &["-S", "-10", "-E", "-2", "-N"],
    &["-S", "-100000", "-E", "100000", "-e"],
];

/// Compares the captures of a pane that does not change.
fn same(world: &World, pane: &str, what: &str) {
    for flags in FLAGS {
        let by_tmux = crate::common::run(
            world.tmux_command(world.socket()).args([&["capture-pane", "-p", "-t", pane], flags].concat()),
        );
        let ours = world.muxtap(&[&["capture-pane", "-t", pane], flags].concat());
        assert_eq!((by_tmux.status, ours.status), (0, 0), "{what} {flags:?}: {ours:?}");
        assert_eq!(ours.text(), by_tmux.text(), "{what} {flags:?}");
        assert_eq!(ours.stdout, by_tmux.stdout, "{what} {flags:?}");
    }
}

/// Creates a pane that shows a shell script's output.
fn shows(script: &str) -> (World, String) {
    let world = World::new();
    let full = format!("{script}\nprintf '\\033]2;shown\\007'; exec sleep 1000");
    let pane = world.ok(&["new-session", "-x", "60", "-y", "15", "--", "sh", "-c", &full]);
    world.ok(&["wait-for", "-t", &pane, "--title", "^shown$", "--since", "start"]);
    (world, pane)
}

#[test]
fn plain_colourful_and_wrapped_text() {
    for (what, script) in [
        ("nothing", ""),
        ("lines", "printf 'one\\ntwo  \\n\\n\\tfour'"),
        (
            "colours",
            "printf '\\033[1;31mred\\033[44m on blue\\033[m \\033[38;5;208m256\\033[38;2;1;2;3mrgb\\033[0m\\033[7minv\\033[27m \\033[4:3mcurly\\033[m\\n'",
        ),
        ("background to the end", "printf '\\033[42m\\033[K green line\\n\\033[m'"),
        ("wrapped", "printf '%0150d\\nshort\\n' 7"),
        ("exactly a line", "printf '%060d\\n%060dx\\n' 1 2"),
        ("wide", "printf 'äöü 漢字かな交じり文 🎉👍 e\\314\\201\\n'"),
        ("wide at the edge", "printf '%059d漢字\\n' 1"),
        ("history", "seq 1 100"),
        (
            "colourful history",
            "for i in $(seq 1 60); do printf '\\033[3%sm%s colour %070d\\033[m\\n' $((i % 8)) $i $i; done",
        ),
        ("cursor moves", "printf '\\033[5;20Hhere\\033[2;2Hthere\\033[10;1H'"),
        ("line drawing", "printf '\\033(0lqqk\\033(B\\n'"),
        ("hyperlink", "printf '\\033]8;;http://example.org\\033\\\\link\\033]8;;\\033\\\\\\n'"),
        ("alternate screen", "seq 1 30; printf '\\033[?1049h\\033[Halternate'"),
        ("looks like the protocol", "printf '%%end 1 2 1\\n%%output %%0 x\\n%%exit\\n'"),
    ] {
        let (world, pane) = shows(script);
        same(&world, &pane, what);
    }
}

#[test]
fn programs_that_draw() {
    for (program, leaves) in [
        (&["less"][..], "q"),
        (&["less", "-N"], "q"),
        (&["vi"], ":q!"),
        (&["vim", "-u", "NONE"], ":q!"),
        // It must not redraw between two captures.
        (&["top", "-d", "3600"], "q"),
    ] {
        if std::process::Command::new(program[0]).arg("--version").output().is_err() {
            eprintln!("{program:?} is not there: not tested");
            continue;
        }
        let world = World::new();
        // Each has its own file: vim asks what to do with a file that two programs edit at once.
        let file = world.path("drawn");
        std::fs::copy("/etc/passwd", &file).unwrap();
        let shown = if program[0] == "top" { None } else { file.to_str() };
        let command = program.iter().copied().chain(shown);
        let pane =
            world.ok(&["new-session", "-x", "60", "-y", "15", "--"].into_iter().chain(command).collect::<Vec<_>>());
        world.ok(&["wait-for", "-t", &pane, "--screen", r"\w", "--stable", "0.3"]);
        same(&world, &pane, program[0]);
        // Left like people do: a vim that gets SIGHUP writes its swap file first, which can take
        // long.
        let keys = [leaves, "Enter"];
        world.ok(&[&["send-keys", "-t", &pane][..], if leaves == "q" { &keys[..1] } else { &keys }].concat());
        world.ok(&["wait-for", "-t", &pane, "--exit"]);
    }
}

#[test]
fn after_a_resize() {
    let (world, pane) = shows("printf '%0150d\\nshort\\n' 7; seq 1 40");
    for (width, height) in [("40", "10"), ("100", "30"), ("17", "5")] {
        world.ok(&["resize-window", "-t", &pane, "-x", width, "-y", height]);
        same(&world, &pane, width);
    }
}

#[test]
fn in_a_pane_of_somebody_else() {
    let world = World::with_server();
    world.ok(&["send-keys", "-t", "main", "printf '\\033[31mguest\\033[m\\n'; seq 1 50; echo do''ne", "Enter"]);
    world.ok(&["wait-for", "-t", "main", "-p", "^done$", "--settle", "0.1"]);
    same(&world, "main", "guest");
}

#[test]
fn answers_name_their_source_and_point_in_the_stream() {
    let (world, pane) = shows("echo hello");
    let answer = world.json(&["capture-pane", "-t", &pane]);
    assert!(answer["text"].as_str().unwrap().starts_with("hello\n"));
    assert!(["tmux", "model"].contains(&answer["source"].as_str().unwrap()), "{answer}");
    assert_eq!((&answer["size"]["width"], &answer["size"]["height"]), (&60.into(), &15.into()));
    let rest = world.json(&["read", "-t", &pane, "--since", answer["cursor"].as_str().unwrap()]);
    assert_eq!(rest["text"], "", "{rest}");
}

/// Returns whether screens of the tmux under test are followed in memory, by its version.
fn followed_in_memory(world: &World) -> bool {
    let version = crate::common::run(std::process::Command::new(crate::common::tmux_program()).arg("-V")).text();
    let followed = ["3.2a", "3.3a", "3.4", "3.5a", "3.6b", "3.7c", "3.8"];
    // 3.2a prints its file name first.
    let followed = version.split_whitespace().next_back().is_some_and(|version| followed.contains(&version));
    let pane = world.window("exec cat");
    assert_eq!(world.json(&["capture-pane", "-t", &pane])["source"] == "model", followed, "{version}");
    followed
}

#[test]
fn a_pane_that_has_ended_keeps_its_last_screen() {
    for keep in [&["--keep"][..], &[]] {
        let world = World::new();
        world.ok(&["new-session", "--", "sh"]);
        let pane = world.ok(&[
            &["new-session", "-x", "60", "-y", "15"],
            keep,
            &["--", "sh", "-c", "seq 1 40; printf 'last words'"],
        ]
        .concat());
        world.ok(&["wait-for", "-t", &pane, "--exit"]);
        let screen = world.muxtap(&["capture-pane", "-t", &pane]);
        assert_eq!(screen.status, 0, "{keep:?} {screen:?}");
        let wanted: String = (27..=40).map(|n| format!("{n}\n")).collect();
        assert_eq!(screen.text(), format!("{wanted}last words\n"), "{keep:?}");
        if keep.is_empty() {
            // The pane is closed just after its end is reported.
            eventually("it is closed", || world.json(&["capture-pane", "-t", &pane])["source"] == "kept");
            let with_history = world.ok(&["capture-pane", "-t", &pane, "-S", "-3"]);
            assert_eq!(with_history, format!("24\n25\n26\n{wanted}last words\n").trim_end());
            for flags in [&["-e"][..], &["-J"], &["-N"]] {
                let args = [&["capture-pane", "-t", &pane], flags].concat();
                if followed_in_memory(&world) {
                    // From 3.4 on -N prints all existing cells.
                    let lines: Vec<String> = world.ok(&args).lines().map(|line| line.trim_end().to_owned()).collect();
                    assert_eq!(lines.join("\n"), screen.text().trim_end());
                } else {
                    world.error("UNSUPPORTED_CAPTURE_MODE", &args);
                }
            }
        }
    }
}

#[test]
fn bad_requests() {
    let (world, pane) = shows("echo x");
    world.error("NOT_FOUND", &["capture-pane", "-t", "%99"]);
    for value in ["x", "1.5", "1;kill-server", "99999999999999"] {
        world.error("INVALID_ARGUMENT", &["capture-pane", "-t", &pane, &format!("-S{value}")[..]]);
    }
}

/// Changes of a screen without output are detected by what tmux announces within a second.
#[test]
fn screen_changes_without_output_are_detected() {
    let (world, pane) = shows("seq 1 60; printf '\\033[31mred\\033[0m\\n'");
    let followed = followed_in_memory(&world);
    let settled = |what: &str| {
        eventually(what, || {
            let flags = ["-e", "-S", "-", "-t", &pane];
            let question = [&["capture-pane", "-p"], &flags[..]].concat();
            let theirs = crate::common::run(world.tmux_command(world.socket()).args(question));
            let ours = world.json(&[&["capture-pane"], &flags[..]].concat());
            ours["text"] == theirs.text() && (ours["source"] == "model") == followed
        });
        same(&world, &pane, what);
    };
    settled("the beginning");
    world.tmux(&["clear-history", "-t", &pane]);
    settled("a history that was cleared");
    world.tmux(&["resize-window", "-t", &pane, "-x", "33", "-y", "9"]);
    settled("another size");
    world.tmux(&["send-keys", "-R", "-t", &pane]);
    settled("a reset");
    world.tmux(&["respawn-pane", "-k", "-t", &pane, "echo another; exec cat"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^another$", "--since", "start"]);
    settled("another program");
    let verified = world.muxtap(&["--json", "capture-pane", "-t", &pane, "--verify"]);
    if followed {
        assert_eq!((verified.status, &verified.json()["verified"]["same"]), (0, &true.into()), "{verified:?}");
        assert!(world.muxtap(&["doctor", "--verify"]).text().contains("2 of 2 match tmux"));
        assert!(world.metric("muxtap_screen_doubts_total{reason=\"resized\"}") > 0);
    } else {
        assert_eq!(verified.error()["code"], "CONFLICT", "{verified:?}");
    }
}

/// tmux's report of a pane omits what its program set before. A screen drawn with such settings
/// comes from tmux, until tmux has reported it again.
#[test]
fn screens_begun_before_muxtap_are_captured_as_in_tmux() {
    for (what, before, after, streamed) in [
        ("a colour", r"\033[31mbefore", r"after\n", None),
        ("a background", r"\033[1;44mbefore\n", r"after\033[K\n\n", None),
        ("a background and a gap", r"\033[44m\033[Kbefore", r"\033[12Gafter\n", None),
        ("line drawing", r"\033(0before\n", r"lqqk\n", None),
        ("the other set", r"\033)0\016before\n", r"lqqk\n", None),
        ("what is repeated", "before", r"\033[3b after\n", None),
        ("a saved cursor", r"\033[5;9H\033[32m\0337\033[Hbefore", r"\0338after\n", None),
        ("a cut character", r"before \346\274", r"\242 after\n", Some("before 漢 after")),
        ("a character cut behind its first byte", r"before \360", r"\237\230\200 after\n", Some("before 😀 after")),
    ] {
        let world = World::with_server();
        let script = format!("stty -echo; printf '{before}'; read go; printf '{after}end'; exec sleep 1000");
        let pane = world.window(&script);
        eventually("the beginning", || world.tmux(&["capture-pane", "-p", "-t", &pane]).contains("before"));
        world.json(&["capture-pane", "-e", "-t", &pane]);
        world.tmux(&["send-keys", "-t", &pane, "Enter"]);
        world.await_output(&pane, "end");
        same(&world, &pane, what);
        if followed_in_memory(&world) {
            let capture = ["capture-pane", "-e", "-S", "-", "-t", &pane];
            eventually(what, || world.json(&capture)["source"] == "model");
            same(&world, &pane, what);
            assert!(streamed.is_none_or(|text| world.read_all(&pane).contains(text)), "{}", world.read_all(&pane));
        }
    }
}

/// tmux 3.3 forgets a joiner at the end of each of its reads, which the stream does not show.
#[test]
fn joiners_in_a_flood_are_captured_as_in_tmux() {
    let family = "👨\u{200d}👩\u{200d}👧\u{200d}👦";
    let (world, pane) = shows(&format!("awk 'BEGIN {{ for (i = 0; i < 3000; i++) printf \"{family} \" }}'"));
    same(&world, &pane, "families");
    if followed_in_memory(&world) {
        let capture = ["capture-pane", "-S", "-", "-t", &pane];
        eventually("from memory", || world.json(&capture)["source"] == "model");
        same(&world, &pane, "families, read anew");
    }
}

/// A screen that becomes uncertain in the middle of a flood is known again before the flood is
/// over, beside another one that tmux must report as well.
#[test]
fn an_uncertain_screen_is_known_again_while_the_flood_continues() {
    let world = World::new().with_floods_followed();
    // Each line sets its colors and has multibyte characters.
    let script = r#"awk 'BEGIN { while (1) printf "\033[%dmline %d é漢\033[1m\n", 31 + i++ % 6, i }'"#;
    let pane = world.ok(&["new-session", "-x", "60", "-y", "15", "--", "cat"]);
    let beside = world.ok(&["new-window", "-t", &pane, "--", "sh", "-c", &format!("exec {script}")]);
    if !followed_in_memory(&world) {
        return;
    }
    let from_memory = |what: &str| {
        eventually(what, || world.json(&["capture-pane", "-t", &pane])["source"] == "model");
    };
    world.tmux(&["respawn-pane", "-k", "-t", &pane, &format!("exec {script}")]);
    world.ok(&["wait-for", "-t", &pane, "-p", "line [0-9]{4,} ", "--since", "start"]);
    from_memory("a program that prints without a rest from its begin");
    world.tmux(&["resize-window", "-t", &pane, "-x", "47", "-y", "9"]);
    from_memory("another size while it prints");
    world.tmux(&["clear-history", "-t", &pane]);
    from_memory("a history that was cleared while it prints");
    let doubts = || world.metric("muxtap_screen_doubts_total{reason=\"restarted\"}");
    assert!(doubts() > 0);
    eventually("the check is refused while the program prints", || {
        let answer = world.muxtap(&["--json", "capture-pane", "-t", &pane, "--verify"]);
        if answer.status == 0 {
            // A program without processor time is at rest, and its screen is compared.
            assert_eq!(answer.json()["verified"]["same"], true, "{answer:?}");
            return false;
        }
        assert_eq!(answer.error()["code"], "CONFLICT", "{answer:?}");
        answer.stderr.contains("keeps changing")
    });
    // At rest nothing needs correction. (tmux continues a stopped program, but not a stopped
    // terminal.)
    for pane in [&pane, &beside] {
        world.tmux(&["send-keys", "-t", pane, "C-s"]);
    }
    // The arrival of earlier output takes as long as a busy machine needs.
    let rests = |pane: &str| {
        let mut verified = serde_json::Value::Null;
        eventually("it rests", || {
            let answer = world.muxtap(&["--json", "capture-pane", "-e", "-S", "-", "-t", pane, "--verify"]);
            if answer.status != 0 && answer.stderr.contains("keeps changing") {
                return false;
            }
            // Any other status is a failure, above all that the two differ.
            assert_eq!(answer.status, 0, "{answer:?}");
            verified = answer.json();
            true
        });
        assert_eq!((&verified["source"], &verified["verified"]["same"]), (&"model".into(), &true.into()), "{verified}");
    };
    let differences = || world.metric("muxtap_screen_differences_total");
    rests(&pane);
    rests(&beside);
    // Corrections up to this point may come from the doubt in the flood.
    let corrected = differences();
    rests(&pane);
    rests(&beside);
    assert_eq!(differences(), corrected);
}

/// Changes of panes that are not in use are not tracked, so the first use asks tmux.
#[test]
fn changes_to_an_unused_pane_are_known_at_its_next_use() {
    let world = World::with_server();
    let pane = world.window("seq 1 60; exec sleep 1000");
    world.ok(&["wait-for", "-t", &pane, "-p", "^60$", "--since", "start"]);
    world.tmux(&["clear-history", "-t", &pane]);
    world.tmux(&["select-pane", "-t", &pane, "-T", "set by a command"]);
    // The first use; it waits for nothing.
    world.ok(&["wait-for", "-t", &pane, "--title", "^set by a command$", "-T", "0"]);
    same(&world, &pane, "a history that was cleared");
    let pane = world.window("seq 1 60; exec sleep 1000");
    world.ok(&["wait-for", "-t", &pane, "-p", "^60$", "--since", "start"]);
    world.tmux(&["send-keys", "-R", "-t", &pane]);
    same(&world, &pane, "a terminal that was reset");
}

/// Cells that memory alone cannot know from 3.4 on (S12): links, a run that ends at a quarter of
/// the columns, and images.
#[test]
fn what_memory_does_not_know_tmux_tells() {
    let (world, pane) = shows(
        "printf '\\033]8;;http://x/\\007link\\033]8;;\\007 more\\n\\033[31mfifteen letters\\n\\033[0;44m\\033[K\\n'\n\
         printf '\\033Pq~~~\\033\\\\after an image\\n'; seq 1 20; printf '\\033]8;;y\\033\\\\the last line'",
    );
    same(&world, &pane, "links and an image");
    if followed_in_memory(&world) {
        let capture = || world.json(&["capture-pane", "-t", &pane])["source"] == "model";
        eventually("the screen is known again after the image", capture);
        same(&world, &pane, "known again");
    }
}

/// A redrawn row is named in the event, and can be captured.
#[test]
fn events_name_the_rows_that_changed() {
    let world = World::with_server();
    let draws = "stty -echo; echo ready; while read -r go; do printf '\\033[7;1H%s' \"$go\"; done";
    let pane = world.window(draws);
    world.await_output(&pane, "^ready");
    if !followed_in_memory(&world) {
        eprintln!("screens of this tmux are not followed: no events of them");
        return;
    }
    let mut events = world.spawn(&["events", "-t", &pane, "--types", "screen"]);
    // It keeps drawing until an event arrives: nothing announces that the stream has started.
    let seen = std::sync::atomic::AtomicBool::new(false);
    let event = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                turn += 1;
                world.ok(&["send-keys", "-t", &pane, "-l", &format!("turn {turn}\n")]);
            }
        });
        let line = events.line_where("row 6", |line| line.contains("\"rows\":[6]"));
        seen.store(true, std::sync::atomic::Ordering::Relaxed);
        line
    });
    let event: serde_json::Value = serde_json::from_str(&event).unwrap();
    assert_eq!(
        (&event["type"], &event["pane"], &event["cursor_y"]),
        (&"screen".into(), &pane.as_str().into(), &6.into())
    );
    assert!(world.ok(&["capture-pane", "-t", &pane, "-S", "6", "-E", "6"]).starts_with("turn "));
}
