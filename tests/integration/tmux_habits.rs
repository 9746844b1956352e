//! Commands and flags that tmux's users type out of habit, with tmux's own results beside muxtap's.

use crate::common::{World, eventually, run};

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Asks plain tmux about a pane.
fn says(world: &World, target: &str, format: &str) -> String {
    world.tmux(&["display-message", "-p", "-t", target, "--", format])
}

/// Calls muxtap inside of a pane; it must succeed. Returns its output.
fn in_pane(world: &World, pane: &str, args: &[&str]) -> String {
    let mut inside = world.plain_muxtap_command();
    inside.env("TMUX", format!("{},1,0", world.socket().display())).env("TMUX_PANE", pane);
    let answer = run(inside.args(args));
    assert_eq!(answer.status, 0, "{args:?}: {answer:?}");
    answer.text()
}

/// 3.4 would crash (N89).
#[test]
fn a_zoomed_window_that_is_killed_takes_no_server_along() {
    let world = World::with_server();
    for kill in ["kill-session", "kill-window"] {
        let pane = world.ok(&["new-session", "-s", "zoomed", "--", "cat"]);
        world.ok(&["split-window", "-t", &pane, "--", "cat"]);
        world.tmux(&["resize-pane", "-Z", "-t", &pane]);
        world.ok(&[kill, "-t", "zoomed"]);
        assert_eq!(world.sessions(), ["main"], "{kill}");
    }
}

/// 3.3a would crash (N90).
#[test]
fn what_is_no_layout_is_refused_before_tmux_sees_it() {
    let world = World::with_server();
    world.ok(&["split-window", "-t", "main:0", "--", "cat"]);
    let now = world.tmux(&["display-message", "-p", "-t", "main:0", "#{window_layout}"]);
    for wrong in ["nonsense", "b25d,80x24", "1234,80x24,0,0,0", "main-nowhere", "{", " "] {
        let refused = world.muxtap(&["select-layout", "-t", "main:0", wrong]);
        assert_eq!(refused.status, 2, "{wrong}: {refused:?}");
        assert_eq!(world.sessions(), ["main"], "{wrong}");
    }
    for right in ["even-horizontal", "tiled", "even-v", &now] {
        world.ok(&["select-layout", "-t", "main:0", right]);
    }
    assert_eq!(world.tmux(&["display-message", "-p", "-t", "main:0", "#{window_layout}"]), now);
}

#[test]
fn lists_print_tmuxs_formats() {
    let world = World::new();
    world.ok(&["new-session", "-s", "one"]);
    world.ok(&["new-window", "-t", "one", "-n", "two words"]);
    world.tmux(&["new-session", "-d", "-s", "oth|er", "-n", "#(touch x)"]);
    // In both sessions, and in muxtap's own.
    world.tmux(&["link-window", "-d", "-s", "one:two words", "-t", "oth|er:7"]);
    let without_hub =
        |text: String| text.lines().filter(|line| !line.contains("_muxtap")).map(str::to_owned).collect::<Vec<_>>();
    for (muxtap, tmux, format) in [
        ("list-sessions", &["list-sessions"][..], "#{session_name}: #{session_windows}"),
        ("list-windows", &["list-windows", "-a"], "#{session_name}:#{window_index} #{window_name} %d 100%"),
    ] {
        let theirs = without_hub(world.tmux(&[tmux, &["-F", format]].concat()));
        assert_eq!(lines(&world.ok(&[muxtap, "-F", format])), theirs);
    }
    let format = "#{session_name}:#{window_index}.#{pane_index} #{pane_id}";
    let mut theirs = without_hub(world.tmux(&["list-panes", "-a", "-F", format]));
    // Each pane once.
    let ours = world.ok(&["list-panes", "-F", format]);
    theirs.retain(|line| lines(&ours).contains(&line.as_str()));
    assert_eq!(lines(&ours), theirs);
    assert_eq!(ours.lines().count(), 3);
    assert_eq!(world.ok(&["list-panes", "-t", "one", "-F", "x"]), "x\nx");
    world.ok(&["rename-window", "-t", "one:0", "sh"]);
    assert_eq!(world.ok(&["lsw", "-t", "one", "-F", "#{window_name}"]), "sh\ntwo words");
    // A value with line breaks is complete.
    let pane = &world.panes()[0];
    world.tmux(&["set-option", "-p", "-t", pane, "@note", "first\nsecond"]);
    assert_eq!(world.ok(&["list-panes", "-t", pane, "-F", "#{pane_id} #{@note}"]), format!("{pane} first\nsecond"));
    let json = world.json(&["list-panes", "-t", pane, "-F", "#{pane_id}"]);
    assert_eq!(json["lines"], serde_json::json!([pane]));
    // An error is not an empty list.
    for args in [["list-panes", "-t", "nosuch"], ["list-windows", "-t", "nosuch"]] {
        let message = world.error("NOT_FOUND", &args);
        assert!(message.contains("nosuch"), "{message}");
    }
}

/// `#(…)` runs a program.
#[test]
fn a_format_is_input() {
    let mut world = World::new();
    world.set("MUXTAP_READ_ONLY", "1");
    world.session("main");
    for args in [&["list-panes", "-F", "x"][..], &["display-message", "-p", "-t", "main", "x"]] {
        assert!(world.error("READ_ONLY", args).contains("input"), "{args:?}");
    }
}

#[test]
fn display_message_prints_a_panes_format() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "one"]);
    for format in
        ["#{pane_id} #{session_name}", "-x #{window_index}", "a  b", "#{?pane_active,yes,no} \u{e4}", "#{l:#{x}}"]
    {
        assert_eq!(
            world.ok(&["display-message", "-p", "-t", &pane, "--", format]),
            says(&world, &pane, format),
            "{format}"
        );
    }
    world.ok(&["rename-window", "-t", "one:0", "sh"]);
    assert_eq!(world.ok(&["display", "-p", "-t", "one"]), "[one] 0:sh, current pane 0");
    assert_eq!(world.muxtap(&["display-message", "-t", &pane, "x"]).status, 2, "nothing is shown in a status line");
}

#[test]
fn has_session_says_it_by_its_status() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "one"]);
    for target in ["one", "=one", "$0", &pane, "one:0"] {
        let answer = world.muxtap(&["has-session", "-t", target]);
        assert_eq!((answer.status, answer.text().as_str()), (0, ""), "{target}: {answer:?}");
    }
    let answer = world.muxtap(&["has", "-t", "on"]);
    assert_eq!((answer.status, answer.text().as_str()), (1, ""), "{answer:?}");
    assert!(answer.stderr.contains("on"), "{answer:?}");
}

#[test]
fn new_session_a_makes_it_once() {
    let world = World::new();
    let first = world.ok(&["new-session", "-A", "-s", "one"]);
    let second = world.ok(&["split-window", "-t", &first, "--select"]);
    assert_eq!(world.ok(&["new-session", "-A", "-s", "one"]), second, "its active pane");
    assert_eq!(world.panes().len(), 2);
    assert!(world.error("CONFLICT", &["new-session", "-s", "one"]).contains("duplicate"));
    assert_eq!(world.muxtap(&["new-session", "-A"]).status, 2);
    // Of many at once one creates it.
    let all: Vec<_> = (0..8).map(|_| world.spawn(&["new-session", "-A", "-s", "two"])).collect();
    let mut panes: Vec<_> = all.into_iter().map(|one| one.finish().text()).collect();
    panes.dedup();
    assert_eq!(panes.len(), 1, "{panes:?}");
    assert_eq!(world.sessions(), ["one", "two"]);
}

#[test]
fn a_new_pane_is_printed_as_tmux_prints_it() {
    let world = World::new();
    assert_eq!(world.ok(&["new-session", "-s", "one", "-P"]), "one:");
    assert_eq!(world.ok(&["new-window", "-t", "one", "-P"]), "one:1.0");
    assert_eq!(world.ok(&["split-window", "-t", "one:1", "-P"]), "one:1.1");
    // The program's own, and not that of the process before it.
    let printed = world.ok(&["new-window", "-t", "one", "-PF", "#{pane_id} #{pane_pid}", "--", "exec cat"]);
    let (pane, pid) = printed.split_once(' ').unwrap();
    assert_eq!(pid, says(&world, pane, "#{pane_pid}"));
}

#[test]
fn a_window_goes_where_it_is_told() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "one"]);
    world.ok(&["new-session", "-s", "two"]);
    let ninth = world.ok(&["new-window", "-t", "one:9"]);
    assert_eq!(says(&world, &ninth, "#{session_name}:#{window_index}"), "one:9");
    assert!(world.error("CONFLICT", &["new-window", "-t", "one:9"]).contains("index 9"));
    // From inside a pane.
    let made = in_pane(&world, &pane, &["new-window", "-t", ":5"]);
    assert_eq!(says(&world, made.trim(), "#{session_name}:#{window_index}"), "one:5");
}

#[test]
fn a_split_comes_first_or_takes_all() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "one", "-x", "100", "-y", "41"]);
    let before = world.ok(&["split-window", "-t", &pane, "-b", "-p", "25"]);
    assert_eq!(
        (says(&world, &before, "#{pane_top} #{pane_height}"), says(&world, &pane, "#{pane_top}")),
        ("0 10".into(), "11".into())
    );
    let full = world.ok(&["split-window", "-t", &pane, "-h", "-f", "-l", "20"]);
    assert_eq!(says(&world, &full, "#{pane_width}x#{pane_height}"), "20x41");
    assert_eq!(world.muxtap(&["split-window", "-t", &pane, "-p", "20", "-l", "3"]).status, 2);
}

#[test]
fn windows_and_panes_are_selected() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "one"]);
    // A fixed name: tmux names the window after the program that runs when it checks.
    world.ok(&["rename-window", "-t", "one:0", "sh"]);
    world.ok(&["new-window", "-t", "one", "-n", "logs"]);
    let below = world.ok(&["split-window", "-t", &pane]);
    let current = || says(&world, "one:", "#{window_name}");
    let active = || says(&world, "one:0", "#{pane_id}");
    assert_eq!((current().as_str(), active()), ("sh", pane.clone()));
    world.ok(&["select-window", "-t", "one:logs"]);
    assert_eq!(current(), "logs");
    world.ok(&["select-pane", "-t", &below]);
    assert_eq!((active(), current().as_str()), (below.clone(), "logs"), "the window stays");
    // Neighbors are relative to the caller's place.
    for (args, is_current, is_active) in [
        (&["select-window", "-l"][..], "sh", &below),
        (&["select-window", "-n"], "logs", &below),
        (&["select-window", "-p"], "logs", &below),
        (&["select-window", "-t", ":0"], "sh", &below),
        (&["select-pane", "-U"], "sh", &pane),
        // Wraps around the end.
        (&["select-pane", "-D"], "sh", &pane),
        (&["select-pane", "-l"], "sh", &below),
        (&["select-pane"], "sh", &below),
    ] {
        in_pane(&world, &below, args);
        assert_eq!((current().as_str(), &active()), (is_current, is_active), "{args:?}");
    }
    world.ok(&["select-pane", "-t", &pane, "-T", "a title"]);
    assert_eq!((says(&world, &pane, "#{pane_title}"), active()), ("a title".into(), below));
    eventually("muxtap knows", || world.json(&["list-panes", "-t", &pane])["panes"][0]["title"] == "a title");
}

#[test]
fn a_pane_is_zoomed_and_unzoomed_and_leaves_copy_mode() {
    let world = World::with_server();
    let pane = world.session("one");
    let below = world.ok(&["split-window", "-t", &pane]);
    let zoomed = |pane: &str| says(&world, pane, "#{window_zoomed_flag}#{pane_active}");
    for (target, expected) in [(&below, "11"), (&below, "01"), (&below, "11"), (&pane, "11")] {
        world.ok(&["resize-pane", "-Z", "-t", target]);
        assert_eq!(zoomed(target), expected, "{target}");
    }
    assert_eq!(world.muxtap(&["resize-pane", "-t", &pane]).status, 2, "neither a size nor -Z");
    world.tmux(&["copy-mode", "-t", &pane]);
    assert_eq!(says(&world, &pane, "#{pane_mode}"), "copy-mode");
    world.ok(&["copy-mode", "-q", "-t", &pane]);
    assert_eq!(says(&world, &pane, "#{pane_in_mode}"), "0");
}

#[test]
fn a_list_has_only_what_its_target_names_and_an_empty_one_is_an_error() {
    let world = World::with_server();
    world.session("web-1");
    world.session("web-2");
    world.session("7");
    let names = |target: &str| world.ok(&["list-sessions", "-t", target, "-F", "#{session_name}"]);
    assert_eq!((names("web-*"), names("7"), names("main")), ("web-1\nweb-2".into(), "7".into(), "main".into()));
    let json = world.json(&["list-sessions", "-t", "web-2"]);
    assert_eq!(json["sessions"].as_array().unwrap().len(), 1, "{json}");
    for list in ["list-sessions", "list-windows", "list-panes"] {
        for format in [&[][..], &["-F", "#{session_name}"]] {
            let args = [&[list, "-t", "absent-*"][..], format].concat();
            let message = world.error("NOT_FOUND", &args);
            assert!(message.contains("absent-*"), "{args:?}: {message}");
        }
    }
}
