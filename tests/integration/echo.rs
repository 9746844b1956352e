//! The echo trap: the terminal or the program's line editor shows what is typed, and that is not a
//! response.
//!
//! In each test the pattern also matches the typed text, and the response comes only when the test
//! releases it.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
};

use crate::common::{Background, World, is_installed};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

/// Programs that echo typed text in different ways: the first by the terminal itself, the others by
/// a line editor.
const PROGRAMS: [(&str, &[&str]); 5] = [
    ("sh", &["sh"]),
    ("bash", &["bash", "--norc"]),
    ("zsh", &["zsh", "-f"]),
    ("fish", &["fish", "--no-config"]),
    ("python3", &["python3", "-q"]),
];

fn each(columns: &str, test: impl Fn(&World, &str, &str)) {
    for (name, program) in PROGRAMS {
        if !is_installed(name) {
            continue;
        }
        let world = World::new();
        let pane = world.ok(&[&["new-session", "-x", columns, "-y", "20", "--"], program].concat());
        world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start"]);
        test(&world, &pane, name);
    }
}

/// A gate at which the world's programs wait until released: each reads a line from a named pipe.
struct Gate(File);

impl Gate {
    fn new(world: &World, name: &str) -> Self {
        let path = world.path("work").join(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        // Open at both ends, so that neither side waits for the other to open it and no line is
        // lost in between.
        Self(OpenOptions::new().read(true).write(true).open(&path).unwrap())
    }

    fn open(&mut self) {
        self.0.write_all(b"go\n").unwrap();
    }
}

/// Returns a line that waits at the gate `go` and then prints the word `BANANA`, which the line
/// contains too.
fn held(name: &str) -> &'static str {
    match name {
        "python3" => "_ = open('go').readline(); print('BANANA', 40 + 2)",
        _ => "read x <go; echo BANANA 42",
    }
}

/// Returns the only match of a wait.
fn hit(waiting: Background, what: &str) -> Value {
    let answer = waiting.finish();
    assert_eq!(answer.status, 0, "{what}: {answer:?}");
    answer.json()["predicates"][0].clone()
}

/// Sends text line by line, then Enter after the last line.
fn send(world: &World, pane: &str, text: &str) {
    world.ok(&["send-keys", "-t", pane, "-l", "--", &format!("{text}\n").replace('\n', "\r")]);
}

/// Sends the held line, checks that nothing matches, releases it, and checks the match.
fn trapped(world: &World, pane: &str, name: &str, gate: &mut Gate) {
    send(world, pane, held(name));
    let early = world.muxtap(&["wait-for", "-t", pane, "-p", "BANANA", "-T", "0.4"]);
    assert_eq!(early.status, 124, "{name}: the echo was taken for an answer: {early:?}");
    let waiting = world.spawn(&["--json", "wait-for", "-t", pane, "-p", "BANANA", "-T", "20"]);
    gate.open();
    let hit = hit(waiting, name);
    assert_eq!(hit["line"], "BANANA 42", "{name}: {hit}");
}

#[test]
fn the_echo_is_not_the_answer() {
    each("100", |world, pane, name| {
        let mut gate = Gate::new(world, "go");
        for _ in 0..3 {
            trapped(world, pane, name, &mut gate);
        }
    });
}

#[test]
fn nor_in_a_narrow_pane() {
    each("20", |world, pane, name| trapped(world, pane, name, &mut Gate::new(world, "go")));
}

#[test]
fn an_answer_that_comes_at_once_is_not_missed() {
    each("80", |world, pane, name| {
        for n in 0..10 {
            let typed = if name == "python3" { format!("print('ANSWER', {n})") } else { format!("echo ANSWER {n}") };
            world.ok(&["send-keys", "-t", pane, &typed, "Enter"]);
            let waiting = world.spawn(&["--json", "wait-for", "-t", pane, "-p", &format!("ANSWER.* {n}"), "-T", "10"]);
            assert_eq!(hit(waiting, name)["line"], format!("ANSWER {n}"), "{name}");
        }
    });
}

#[test]
fn an_answer_that_is_the_very_same_text() {
    let world = World::new();
    let pane = world.ok(&["new-session", "--", "cat"]);
    for word in ["same", "again", "same"] {
        let sent = world.json(&["send-keys", "-t", &pane, word, "Enter"]);
        let answer = world.json(&["wait-for", "-t", &pane, "-p", word, "-T", "10"]);
        let both = format!("{word}\n{word}\n");
        world.ok(&["wait-for", "-t", &pane, "-p", &both, "--since", sent["cursor"].as_str().unwrap()]);
        let rest = world.json(&["read", "-t", &pane, "--since", answer["cursor"].as_str().unwrap()]);
        assert!(!rest["text"].as_str().unwrap().contains(word), "the match was the echo: {rest}");
    }
}

#[test]
fn a_program_that_does_not_echo_loses_nothing() {
    let world = World::new();
    let source = "import os, tty\ntty.setraw(0)\nos.write(1, b'ready\\r\\n')\nwhile True:\n    got = b''\n    while not got.endswith(b'\\r'):\n        got += os.read(0, 1)\n    os.write(1, b'got: ' + got[:-1] + b'\\r\\n')\n";
    std::fs::write(world.path("work/quiet.py"), source).unwrap();
    let pane = world.ok(&["new-session", "--", "python3", "quiet.py"]);
    world.await_output(&pane, "ready");
    for word in ["word", "a longer text", "word"] {
        world.ok(&["send-keys", "-t", &pane, word, "Enter"]);
        let waiting = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", word, "-T", "10"]);
        assert_eq!(hit(waiting, word)["line"], format!("got: {word}"));
    }
}

#[test]
fn what_is_typed_ahead_is_echoed_twice() {
    for (name, program) in &PROGRAMS[..4] {
        let world = World::new();
        let pane = world.ok(&[&["new-session", "--"], *program].concat());
        world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start"]);
        let (mut first, mut gate) = (Gate::new(&world, "first"), Gate::new(&world, "go"));
        world.ok(&["send-keys", "-t", &pane, "printf 'bu''sy\\n'; read x <first", "Enter"]);
        world.await_output(&pane, "(?m)^busy$");
        // The terminal echoes the line now; the line editor draws it again when it reads it.
        send(&world, &pane, held(name));
        let waiting = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "BANANA", "-T", "20"]);
        first.open();
        let early = world.muxtap(&["wait-for", "-t", &pane, "-p", "BANANA", "-T", "0.5"]);
        assert_eq!(early.status, 124, "{name}: an echo was taken for an answer: {early:?}");
        gate.open();
        // A shell without a line editor prints its prompt before the response to a line typed
        // ahead.
        let line = hit(waiting, name)["line"].as_str().unwrap().to_owned();
        assert!(line.ends_with("BANANA 42") && !line.contains("echo"), "{name}: {line}");
    }
}

#[test]
fn several_lines_at_once() {
    each("80", |world, pane, name| {
        let line = |n| if name == "python3" { format!("print('LINE', {n})") } else { format!("echo LINE {n}") };
        send(world, pane, &[line(1), line(2), line(3)].join("\n"));
        for n in 1..=3 {
            let waiting = world.spawn(&["--json", "wait-for", "-t", pane, "-p", &format!("LINE.* {n}"), "-T", "10"]);
            // A shell without a line editor prints its prompts before the responses to lines typed
            // ahead.
            let line = hit(waiting, name)["line"].as_str().unwrap().to_owned();
            assert!(line.ends_with(&format!("LINE {n}")) && !line.contains("echo"), "{name}: {line}");
        }
    });
}

#[test]
fn a_pattern_with_an_anchor_needs_no_filter() {
    each("80", |world, pane, name| {
        let typed = if name == "python3" { "print('ANCHOR')" } else { "echo ANCHOR" };
        world.ok(&["send-keys", "-t", pane, typed, "Enter"]);
        let waiting = world.spawn(&["--json", "wait-for", "-t", pane, "-p", "^ANCHOR$", "-T", "10"]);
        assert_eq!(hit(waiting, name)["line"], "ANCHOR", "{name}");
    });
}

#[test]
fn the_echo_of_a_fail_pattern_fails_nothing() {
    each("80", |world, pane, name| {
        let typed = if name == "python3" { "print('FINE')  # error" } else { "echo FINE; : error" };
        world.ok(&["send-keys", "-t", pane, typed, "Enter"]);
        let waiting = world.spawn(&["--json", "wait-for", "-t", pane, "-p", "^FINE$", "--fail", "error", "-T", "10"]);
        assert_eq!(hit(waiting, name)["latched"], json!(true), "{name}");
    });
}

/// A `run` draws its command over the line that was typed for it, and the cursor stays above: the
/// next output is not at the position of that line.
#[test]
fn what_is_answered_below_a_run_is_an_answer() {
    let mut world = World::new();
    world.set("PS1", "$ ");
    let pane = world.tmux(&["new-session", "-d", "-s", "main", "-P", "-F", "#{pane_id}", "exec dash"]);
    world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start"]);
    world.ok(&["send-keys", "-t", &pane, "true", "Enter"]);
    world.ok(&["run", "-t", &pane, "true"]);
    for (typed, answer) in
        [(r#"echo f""in"#, "fin"), ("printf '%s\\n' do''ne", "done"), ("echo o''ne; echo tw''o", "two")]
    {
        // dash prints its prompt before the response to a line typed ahead: `$ fin`.
        world.ok(&["wait-for", "-t", &pane, "--prompt"]);
        world.ok(&["send-keys", "-t", &pane, typed, "Enter"]);
        for since in ["input", "start"] {
            let pattern = format!("^{answer}$");
            assert_eq!(
                world.ok(&["wait-for", "-t", &pane, "-p", &pattern, "--since", since]),
                answer,
                "{typed} {since}"
            );
        }
    }
}
