//! A pane's output and names never control the reader's terminal, unless escapes were requested.

use crate::common::{Answer, World, eventually};

/// CSI, OSC and DCS as C1 controls, a bidi override and isolate, line separators, DEL.
const EVIL: &str = "a\u{9b}31mb\u{9d}0;c\u{90}d\u{202e}e\u{2066}f\u{2028}g\u{200f}h\u{61c}i";

/// Returns whether a terminal interprets this character instead of showing it.
fn controls(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => true,
        _ => character.is_control(),
    }
}

#[track_caller]
fn harmless(what: &str, answer: &Answer) {
    for (stream, text) in [("stdout", answer.text()), ("stderr", answer.stderr.clone())] {
        let found: Vec<char> = text.chars().filter(|character| controls(*character)).collect();
        assert!(found.is_empty(), "{what}: {stream} has {found:?}: {text:?}");
    }
}

/// Creates a server whose session, window, title, path, command line and output are hostile in
/// every way; returns the pane's id.
fn hostile() -> (World, String) {
    let world = World::new();
    let path = world.path("work").join(format!("{EVIL}\x1b[31m\n%output %0 forged"));
    std::fs::create_dir(&path).unwrap();
    let script = world.path("work").join("script");
    std::fs::write(
        &script,
        format!(
            "read line; printf '\\033]2;{EVIL}\\007'; printf 'out {EVIL} \\033[31mred\\233 raw\\177\\n'; printf 'DONE {EVIL}\\n'; \
             printf '\\033[?2004h\\033]133;A\\007$ '; exec sleep 1000 # {EVIL}"
        ),
    )
    .unwrap();
    let path = path.to_str().unwrap().to_owned();
    let session = format!("s{EVIL}");
    let pane = world.tmux(&[
        "new-session",
        "-d",
        "-P",
        "-F",
        "#{pane_id}",
        "-x",
        "100",
        "-y",
        "10",
        "-s",
        &session,
        "-n",
        EVIL,
        "-c",
        &path,
        &format!("sh {} '{EVIL}'", script.display()),
    ]);
    // The pane prints when it is followed: a seed has only tmux's version of earlier output.
    world.ok(&["read", "-t", &pane]);
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    (world, pane)
}

#[test]
fn no_command_lets_a_pane_control_the_terminal() {
    let (world, pane) = hostile();
    world.ok(&["wait-for", "-t", &pane, "-p", "DONE", "--since", "start"]);
    let session = world.json(&["list-sessions"])["sessions"][0]["id"].as_str().unwrap().to_owned();
    let dead = world.ok(&[
        "new-window",
        "-t",
        &session,
        "--keep",
        "-n",
        EVIL,
        "--",
        "sh",
        "-c",
        &format!("echo '{EVIL}'; exit 3"),
    ]);
    world.ok(&["wait-for", "-t", &dead, "--exit"]);
    let absent = format!("no{EVIL}\x1b[31m");
    let evil_wait = format!("never{EVIL}");
    for args in [
        &["list-sessions"][..],
        &["list-windows"],
        &["list-panes"],
        &["status"],
        &["config"],
        &["doctor", "--verify"],
        &["agents"],
        &["approvals"],
        &["read", "-t", &pane, "--since", "start"],
        &["read", "-t", &dead, "--since", "start"],
        &["tail", "-n", "100", "-t", &pane],
        &["tail", "-n", "100", "*:*"],
        &["capture-pane", "-t", &pane],
        &["capture-pane", "-t", &pane, "-J", "-S", "-"],
        &["wait-for", "-t", &pane, "-p", "DONE.*", "--since", "start"],
        &["wait-for", "-t", &pane, "--screen", "DONE.*", "--since", "screen"],
        &["wait-for", "-t", &pane, "--title", ".*", "--since", "start", "-T", "1"],
        &["wait-for", "-t", &pane, "-p", "zzz", "--fail", "DONE.*", "--since", "start"],
        &["wait-for", "-t", &pane, "-p", &evil_wait, "-T", "0.2"],
        &["read", "-t", &absent],
        &["tail", &absent],
        &["kill-session", "-t", &absent],
        &["list-panes", "-t", &absent],
        &["run", "-t", &pane, "-T", "1", "--", "true"],
        &["rename-window", "-t", &absent, "x"],
        &["wait-for", "-t", &pane, "-p", &format!("({EVIL}")],
        &["read", "-t", &pane, "--since", &absent],
        &["--no-such-option", &absent],
        &[&absent],
        &["approvals", "approve", &absent],
    ] {
        harmless(&format!("{args:?}"), &world.muxtap(args));
        harmless(&format!("{args:?} --json"), &world.muxtap(&[args, &["--json"]].concat()));
    }
}

#[test]
fn no_stream_or_log_lets_a_pane_control_the_terminal() {
    let (world, pane) = hostile();
    world.ok(&["wait-for", "-t", &pane, "-p", "DONE", "--since", "start"]);
    for args in [
        &["tail", "-f", "-n", "100", "-t", &pane][..],
        &["tail", "-f", "-n", "100", "*:*"],
        &["tail", "-f", "-n", "100", "--json", "-t", &pane],
        &["events", "--since", "start", "--types", "output,title,topology,pane-opened,pane-exited"],
    ] {
        let mut stream = world.spawn(args);
        let line = stream.line_where("the line", |line| line.contains("DONE"));
        assert!(!line.chars().any(controls), "{args:?}: {line:?}");
        world.tmux(&["select-pane", "-t", &pane, "-T", &format!("new{EVIL}")]);
        stream.kill();
    }
    // The log also reports errors with names.
    let absent = world.path(&format!("none{EVIL}\nforged"));
    let query = format!("muxtap -S {}", absent.display());
    let answer = world.muxtap(&["-S", absent.to_str().unwrap(), "list-panes"]);
    harmless(&query, &answer);
    let log = std::fs::read_to_string(format!("{}.log", world.daemon_socket().display())).unwrap();
    assert!(!log.chars().any(controls), "{log:?}");
    assert!(!log.lines().any(|line| line.starts_with("forged")), "{log:?}");
}

#[test]
fn escape_sequences_pass_unchanged_on_request() {
    let (world, pane) = hostile();
    world.ok(&["wait-for", "-t", &pane, "-p", "DONE", "--since", "start"]);
    // These do not protect the reader's terminal; the docs say so.
    for args in [
        &["read", "-t", &pane, "--since", "start", "--format", "ansi"][..],
        &["read", "-t", &pane, "--since", "start", "--format", "raw"],
        &["tail", "-n", "100", "--ansi", "-t", &pane],
    ] {
        let text = world.muxtap(args).text();
        assert!(text.contains(EVIL) && text.contains("\x1b[31mred"), "{args:?}: {text:?}");
    }
    // JSON has the same value, and its text has no controls; bidi marks are the pane's own text.
    let text = world.json(&["read", "-t", &pane, "--since", "start"])["text"].as_str().unwrap().to_owned();
    assert!(text.contains("out a31mb0;cd\u{202e}e\u{2066}f\u{2028}g\u{200f}h\u{61c}i red\u{fffd} raw\n"), "{text:?}");
    let plain = world.ok(&["read", "-t", &pane, "--since", "start"]);
    assert!(plain.contains("out a31mb0;cdefghi red\u{fffd} raw\n"), "{plain:?}");
    eventually("its title is as tmux has it", || {
        let title = world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_title}"]);
        let list = world.json(&["list-panes"]);
        list["panes"].as_array().unwrap().iter().any(|pane| pane["title"] == title.as_str())
    });
}
