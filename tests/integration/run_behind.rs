//! `run` in a shell behind another terminal, where the kernel does not show it: `script`, ssh (R16).

use crate::{
    common::{World, eventually, is_installed},
    container::Container,
    places::Sshd,
};

/// Shells, and the lines that a person adds there.
const SHELLS: [(&str, &str); 4] = [
    ("bash --norc", "eval \"$(MUXTAP shell-integration bash)\""),
    ("zsh -f", "eval \"$(MUXTAP shell-integration zsh)\""),
    ("fish --no-config", "MUXTAP shell-integration fish | source"),
    ("dash", "eval \"$(MUXTAP shell-integration sh)\""),
];

/// Types a line like a person, and waits until it was read.
fn types(world: &World, pane: &str, line: &str) {
    world.tmux(&["send-keys", "-t", pane, "-l", line]);
    world.tmux(&["send-keys", "-t", pane, "Enter"]);
    world.ok(&["wait-for", "-t", pane, "--stable", "0.5", "-T", "30"]);
}

/// Starts a shell behind another terminal by this line, and returns its pane.
fn behind(world: &World, line: &str) -> String {
    let pane =
        world.tmux(&["new-session", "-d", "-x", "100", "-y", "30", "-P", "-F", "#{pane_id}", "exec bash --norc"]);
    world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
    types(world, &pane, line);
    pane
}

fn integrates(world: &World, pane: &str, line: &str) {
    let program = world.plain_muxtap_command().get_program().to_string_lossy().into_owned();
    types(world, pane, &line.replace("MUXTAP", &program));
}

/// Runs commands in the shell of a pane, and checks that everything in the way is refused.
fn check(world: &World, pane: &str, shell: &str) {
    let run = |command: &str| {
        let answer = world.muxtap(&["run", "-t", pane, "-T", "20", "--", command]);
        assert_eq!(answer.stderr, "", "{shell}: {command}");
        (answer.text(), answer.status)
    };
    let status = if shell.starts_with("fish") { "echo on $status; false" } else { "echo on $?; false" };
    assert_eq!(run("echo hi; sh -c 'exit 3'"), ("hi\n".into(), 3), "{shell}");
    // The status is the shell's, before the command and after it.
    assert_eq!(run(status), ("on 3\n".into(), 1), "{shell}");
    assert_eq!(run(status), ("on 1\n".into(), 1), "{shell}");
    assert_eq!(run("echo äöü 'and $more'"), ("äöü and $more\n".into(), 0), "{shell}");
    let refused = |what: &str, why: &str| {
        let answer = world.muxtap(&["--json", "run", "-t", pane, "-T", "2", "--", "touch ran"]);
        assert_eq!(answer.error()["code"], "CONFLICT", "{shell}, {what}: {answer:?}");
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(why), "{shell}, {what}: {message}");
    };
    // Typed text, after the prompt.
    world.ok(&["wait-for", "-t", pane, "--prompt", "--since", "now", "-T", "20"]);
    world.tmux(&["send-keys", "-t", pane, "-l", "half typed"]);
    world.ok(&["wait-for", "-t", pane, "--screen", "half typed", "-T", "20"]);
    refused("typed text", "half typed");
    for _ in 0.."half typed".len() {
        world.tmux(&["send-keys", "-t", pane, "BSpace"]);
    }
    let screen = || world.tmux(&["capture-pane", "-p", "-t", pane]);
    eventually(&format!("the text is removed from {shell}: {}", screen()), || !screen().contains("half"));
    // A program that reads its input, and shows nothing.
    types(world, pane, "sh -c 'echo as''ks; read -r answer; echo got=$answer'");
    world.ok(&["wait-for", "-t", pane, "-p", "^asks$", "-T", "30"]);
    refused("a program", "is running");
    types(world, pane, "mine");
    world.ok(&["wait-for", "-t", pane, "--screen", "got=mine", "-T", "30"]);
    // The same, typed by a run whose time is over.
    let answer = world.muxtap(&["run", "-t", pane, "-T", "1", "--", "sh -c 'read -r answer; echo got=$answer'"]);
    assert_eq!(answer.status, 124, "{shell}: {answer:?}");
    refused("a command of an earlier run", "is running");
    types(world, pane, "again");
    world.ok(&["wait-for", "-t", pane, "--screen", "got=again", "-T", "30"]);
    assert_eq!(run("echo still there"), ("still there\n".into(), 0), "{shell}");
}

#[test]
fn a_shell_behind_another_terminal_that_marks_its_prompts() {
    if !is_installed("script") {
        return;
    }
    for (shell, line) in SHELLS {
        if !is_installed(shell.split(' ').next().unwrap()) {
            continue;
        }
        let world = World::new();
        let pane = behind(&world, &format!("script -qc '{shell}' /dev/null"));
        let message = world.error("CONFLICT", &["run", "-t", &pane, "-T", "3", "--", "echo no"]);
        assert!(message.contains("`script` is running") && message.contains("shell integration"), "{message}");
        integrates(&world, &pane, line);
        check(&world, &pane, shell);
        // The shell outside is there again.
        types(&world, &pane, "exit");
        eventually("the shell outside is back", || {
            world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_current_command}"]) == "bash"
        });
        let outside = world.muxtap(&["run", "-t", &pane, "--", "echo outside"]);
        assert_eq!(outside.text(), "outside\n", "{shell}: {outside:?}");
    }
}

#[test]
fn a_shell_in_a_container_that_marks_its_prompts() {
    let world = World::new();
    let container = Container::start(world.dir(), None);
    if !container.is_real() {
        return;
    }
    // The container has no muxtap: its image has the lines.
    let lines = world.ok(&["shell-integration", "sh"]);
    std::fs::write(world.path("root/integration"), format!("PS1='box $ '\n{lines}")).unwrap();
    let pane = behind(&world, &format!("{} -t -e TERM -e ENV=/integration {} sh", container.program(), container.name));
    check(&world, &pane, "busybox");
}

/// The terminal shows text that is typed while a command runs above the prompt, and gives it to the shell with the next
/// line. Marks do not show it: the terminal is asked.
#[test]
fn text_that_was_typed_ahead_is_not_run_by_a_shell_without_an_editor() {
    if !is_installed("script") {
        return;
    }
    for (shell, options) in [("dash", ""), ("ksh93", "set -o emacs"), ("ksh93", "set +o emacs; set +o viraw")] {
        if !is_installed(shell) {
            continue;
        }
        let world = World::new();
        let pane = behind(&world, &format!("EDITOR= VISUAL= script -qc '{shell}' /dev/null"));
        integrates(&world, &pane, "eval \"$(MUXTAP shell-integration sh)\"");
        types(&world, &pane, options);
        let go = world.path("go");
        let line = format!("echo beg'un'; until [ -e {} ]; do :; done; echo do'ne'", go.display());
        world.tmux(&["send-keys", "-t", &pane, "-l", &line]);
        world.tmux(&["send-keys", "-t", &pane, "Enter"]);
        // A terminal without echo, as ksh93 has it while it reads a line, would not show the text.
        world.ok(&["wait-for", "-t", &pane, "--screen", "^begun", "-T", "20"]);
        world.tmux(&["send-keys", "-t", &pane, "-l", "half typed"]);
        world.ok(&["wait-for", "-t", &pane, "--screen", "half typed", "-T", "20"]);
        std::fs::write(&go, "").unwrap();
        world.ok(&["wait-for", "-t", &pane, "--screen", "done\\n[#$]", "-T", "20"]);
        let answer = world.muxtap(&["--json", "run", "-t", &pane, "-T", "20", "--", "touch ran"]);
        assert_eq!(answer.error()["code"], "CONFLICT", "{shell}: {answer:?}");
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("half typed"), "{shell}: {message}");
        // It is still there, and a person finishes it.
        types(&world, &pane, "");
        world.ok(&["wait-for", "-t", &pane, "--screen", "half.*not found", "-T", "20"]);
        let answer = world.muxtap(&["run", "-t", &pane, "--", "echo fine"]);
        // ksh93 may draw the line otherwise than it was typed.
        let is_refused = shell != "dash" && answer.stderr.contains("nothing was run");
        assert!(answer.text() == "fine\n" || is_refused, "{shell}: {answer:?}");
    }
}

/// Such a prompt has the marks, but the shell that prints them is another one.
#[test]
fn a_shell_that_has_an_exported_prompt_with_marks_is_unknown() {
    if !is_installed("script") {
        return;
    }
    let world = World::new();
    let pane = behind(&world, "script -qc dash /dev/null");
    integrates(&world, &pane, "eval \"$(MUXTAP shell-integration sh)\"");
    types(&world, &pane, "export PS1; dash");
    let message = world.error("CONFLICT", &["run", "-t", &pane, "-T", "3", "--", "touch ran"]);
    assert!(message.contains("no shell behind it"), "{message}");
    types(&world, &pane, "exit");
    assert_eq!(world.muxtap(&["run", "-t", &pane, "--", "echo outer"]).text(), "outer\n");
}

/// The key by which a terminal shows the line again would be text if it has another one.
#[test]
fn a_terminal_without_that_key_is_left_as_it_was() {
    if !is_installed("script") {
        return;
    }
    for settings in ["rprnt undef", "-iexten", "rprnt ^T"] {
        let world = World::new();
        let pane = behind(&world, "script -qc dash /dev/null");
        types(&world, &pane, "PS1='# '");
        integrates(&world, &pane, "eval \"$(MUXTAP shell-integration sh)\"");
        types(&world, &pane, &format!("stty {settings}"));
        let message = world.error("CONFLICT", &["run", "-t", &pane, "-T", "3", "--", "touch ran"]);
        assert!(message.contains("cannot tell whether `# `"), "{settings}: {message}");
        types(&world, &pane, "echo mi'ne'");
        let screen = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        assert!(screen.contains("# echo mi'ne'\nmine\n"), "{settings}: {screen}");
    }
}

#[test]
fn a_shell_over_ssh_that_marks_its_prompts() {
    let world = World::new();
    let Some(sshd) = Sshd::start(world.dir(), &[]) else { return };
    // `-tt` asks for a terminal.
    let pane = behind(&world, &format!("{} -tt bash --norc", sshd.via("user", None)));
    integrates(&world, &pane, SHELLS[0].1);
    check(&world, &pane, "ssh");
    // The connection ends while a command runs.
    let go = world.path("go");
    let command = format!("echo last; until [ -e {} ]; do :; done; kill -9 $PPID", go.display());
    let run = world.spawn(&["--json", "run", "-t", &pane, "-T", "60", "--", &command]);
    world.await_output(&pane, "^last");
    std::fs::write(&go, "").unwrap();
    let ended = run.finish();
    assert!(ended.json()["shell_ended"] == true, "{ended:?}");
    assert_eq!(world.muxtap(&["run", "-t", &pane, "--", "echo outside"]).text(), "outside\n");
}

/// A pager shows the marks of a file, and keys would be commands to it.
#[test]
fn nothing_is_typed_into_a_program_that_shows_a_prompts_marks() {
    let world = World::new();
    let shows = |mark: &str| format!("printf '\\033]133;A\\007$ \\033]133;{mark}\\007'; exec cat");
    // The program itself; and one behind a terminal, with marks that are not those of muxtap's integration.
    for (line, name) in
        [(shows("B;shell=bash"), "cat"), (format!("exec script -qc \"{}\" /dev/null", shows("B")), "script")]
    {
        let pane = behind(&world, &line);
        let message = world.error("CONFLICT", &["run", "-t", &pane, "-T", "3", "--", "echo no"]);
        assert!(message.contains(&format!("`{name}` is running")), "{message}");
        let screen = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        assert!(screen.lines().any(|row| row == "$") && !screen.contains("muxtap"), "{screen}");
        let raw = world.ok(&["read", "--format", "raw", "-t", &pane, "--since", "start"]);
        assert!(raw.contains("\x1b]133;B"), "{raw:?}");
    }
}
