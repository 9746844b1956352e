//! A pane in one of tmux's modes: a person scrolls in it, or looks at a tree. Input bypasses the
//! mode and reaches the program, or is refused; the mode stays unchanged.

use crate::common::World;

/// Keys that open tmux's own prompts in copy mode, which block the control client that pressed
/// them.
const OPENS_PROMPTS: &str = "f F t T g : / ?";

/// The modes and the commands that enter them.
const MODES: [(&str, &[&str]); 5] = [
    ("copy-mode", &["copy-mode", "-t"]),
    ("tree-mode", &["choose-tree", "-t"]),
    ("clock-mode", &["clock-mode", "-t"]),
    ("options-mode", &["customize-mode", "-t"]),
    ("view-mode", &[]),
];

/// Creates a pane with a history that runs this program, and another pane.
fn panes(world: &World, program: &str) -> (String, String) {
    let other = world.session("main");
    let pane = world.window(&format!("seq 1 200; exec {program}"));
    crate::common::eventually("it has printed", || world.tmux(&["capture-pane", "-p", "-t", &pane]).contains("200"));
    (pane, other)
}

/// Returns the mode of a pane and its scroll position.
fn mode(world: &World, pane: &str) -> String {
    world.tmux(&["display-message", "-p", "-t", pane, "#{pane_mode} #{scroll_position}"])
}

/// Scrolls up in copy mode like the wheel does.
fn scroll(world: &World, pane: &str) -> String {
    world.tmux(&["copy-mode", "-t", pane]);
    world.tmux(&["send-keys", "-t", pane, "-X", "-N", "7", "scroll-up"]);
    let before = mode(world, pane);
    assert_eq!(before, "copy-mode 7");
    before
}

/// Asserts that another pane of the server responds immediately: tmux still reads muxtap's
/// requests.
fn answers(world: &World, other: &str, word: &str) {
    world.ok(&["send-keys", "-t", other, &format!("echo {word}''-there"), "Enter"]);
    world.ok(&["wait-for", "-t", other, "-p", &format!("(?m)^{word}-there$"), "-T", "10"]);
}

#[test]
fn text_reaches_the_program_and_the_scroll_position_stays() {
    let world = World::new();
    let (pane, other) = panes(&world, "cat");
    let before = scroll(&world, &pane);
    for (number, how) in ["-l", "--submit", "--"].iter().enumerate() {
        let text = format!("{number} {OPENS_PROMPTS}");
        world.ok(&["send-keys", "-t", &pane, how, &text]);
        if *how != "--submit" {
            world.ok(&["send-keys", "-t", &pane, "Enter"]);
        }
        let line = text.replace('?', "\\?");
        world.await_output(&pane, &format!("(?m)^{line}\n{line}$"));
        assert_eq!(mode(&world, &pane), before, "{how:?}");
        answers(&world, &other, &format!("w{number}"));
    }
    let hex: Vec<String> = format!("hex {OPENS_PROMPTS}\r").bytes().map(|byte| format!("{byte:02x}")).collect();
    let words: Vec<&str> = hex.iter().map(String::as_str).collect();
    world.ok(&[&["send-keys", "-t", &pane, "-H"], words.as_slice()].concat());
    world.await_output(&pane, "(?m)^hex f F t T g : / \\?\nhex");
    assert_eq!(mode(&world, &pane), before);
    assert_eq!(world.tmux(&["list-buffers"]), "", "no buffer is left");
}

#[test]
fn every_mode_is_passed_and_stays() {
    let world = World::new();
    let (pane, other) = panes(&world, "cat");
    for (name, enter) in MODES {
        if name == "view-mode" {
            world.tmux(&["run-shell", "-t", &pane, "echo seen"]);
        } else {
            world.tmux(&[enter, &[pane.as_str()]].concat());
        }
        let before = mode(&world, &pane);
        assert!(before.starts_with(name), "{before}");
        world.ok(&["send-keys", "-t", &pane, "--", &format!("{name} {OPENS_PROMPTS}"), "Enter"]);
        world.await_output(&pane, &format!("(?m)^{name} f F t T g : / .\n{name} f"));
        assert_eq!(mode(&world, &pane), before);
        answers(&world, &other, name);
        // Nested modes are left one by one.
        for _ in 0..3 {
            world.tmux(&["copy-mode", "-q", "-t", &pane]);
        }
        let left = world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_in_mode}"]);
        if left != "0" {
            world.tmux(&["send-keys", "-t", &pane, "q"]);
        }
    }
}

#[test]
fn what_cannot_pass_a_mode_is_refused_with_its_name() {
    let world = World::new();
    let (pane, other) = panes(&world, "cat");
    let before = scroll(&world, &pane);
    for keys in [&["x", "Up"][..], &["F1"], &["M-f"], &["--paste", "--", "f F"], &["-H", "66", "00"]] {
        let message = world.error("CONFLICT", &[&["send-keys", "-t", &pane], keys].concat());
        assert!(message.contains("copy-mode") && message.contains("nothing was sent"), "{message}");
        assert_eq!(mode(&world, &pane), before, "{keys:?}");
        answers(&world, &other, &format!("k{}", keys[0].replace('-', "")));
    }
    world.tmux(&["copy-mode", "-q", "-t", &pane]);
    world.ok(&["send-keys", "-t", &pane, "after", "Enter"]);
    world.await_output(&pane, "(?m)^after\nafter$");
}

#[test]
fn a_command_is_run_past_a_mode() {
    let world = World::new();
    let (pane, other) = panes(&world, "bash --norc");
    let before = scroll(&world, &pane);
    for _ in 0..2 {
        let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", "echo 'f F t T g : /'; false"]);
        assert_eq!((answer.text().as_str(), answer.status), ("f F t T g : /\n", 1), "{answer:?}");
        assert_eq!(mode(&world, &pane), before);
        answers(&world, &other, "ran");
    }
}

#[test]
fn control_characters_of_a_large_text_arrive_as_they_are() {
    let world = World::new();
    std::fs::write(
        world.path("work/count.py"),
        "import os, tty\ntty.setraw(0)\nos.write(1, b'ready\\r\\n')\nn = e = 0\nwhile n < 40000:\n    got = os.read(0, 65536)\n    n += len(got)\n    \
         e += got.count(27)\nos.write(1, b'counted %d\\r\\n' % e)\n",
    )
    .unwrap();
    let pane = world.ok(&["new-session", "--", "python3", "count.py"]);
    world.await_output(&pane, "(?m)^ready$");
    let text = b"\x1b[A3456789".repeat(4000);
    let answer = world.muxtap_with_stdin(&["send-keys", "-t", &pane, "-l", "-"], &text);
    assert_eq!(answer.status, 0, "{answer:?}");
    world.await_output(&pane, "(?m)^counted 4000$");
}
