//! Shells that muxtap starts with its shell integration: real shells, with a user's startup files.

use std::fs;

use serde_json::Value;

use crate::common::{World, eventually, is_installed};

/// A shell, and a user's startup files: each notes that it was read.
struct Shell {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// Whether it marks commands, not only prompts.
    marks_commands: bool,
}

const SHELLS: [Shell; 4] = [
    Shell {
        name: "bash",
        files: &[
            (".bashrc", "PS1='ready$ '; unset HISTCONTROL HISTIGNORE"),
            (".bash_profile", ". ~/.bashrc; shopt -q login_shell && echo login-shell >>~/log"),
            (".profile", ""),
        ],
        marks_commands: true,
    },
    Shell {
        name: "zsh",
        files: &[
            (".zshenv", "skip_global_compinit=1"),
            (".zprofile", ""),
            (".zshrc", "PS1='ready$ '"),
            (".zlogin", ""),
        ],
        marks_commands: true,
    },
    Shell {
        name: "fish",
        files: &[("fish/config.fish", "set fish_greeting; function fish_prompt; echo -n 'ready$ '; end")],
        marks_commands: true,
    },
    Shell {
        name: "dash",
        files: &[(".profile", "export ENV=~/.shinit"), (".shinit", "PS1='ready$ '")],
        marks_commands: false,
    },
];

/// Creates a world with a tmux server and the startup files of a user.
fn world(shell: &Shell) -> World {
    let world = World::new();
    let home = world.path("home");
    fs::create_dir_all(home.join("fish")).unwrap();
    fs::create_dir_all(home.join(".local/share/fish/generated_completions")).unwrap();
    for (name, contents) in shell.files {
        let note = format!("echo {name} >>~/log; env | grep MUXTAP_SHELL_NONCE >>~/log\n{contents}\n");
        // fish reads its files with the variable.
        let note = if shell.name == "fish" { format!("echo {name} >>~/log\n{contents}\n") } else { note };
        fs::write(home.join(name), note).unwrap();
    }
    world.tmux(&["new-session", "-d", "-s", "main", "exec cat"]);
    world.tmux(&["set-option", "-g", "default-shell", &program(shell.name)]);
    world
}

/// Returns the path of a program.
fn program(name: &str) -> String {
    let path = std::env::var_os("PATH").unwrap();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(name)).filter(|path| path.is_file());
    found.next().unwrap().display().to_string()
}

fn listed(world: &World, pane: &str) -> Value {
    world.muxtap(&["--json", "commands", "-t", pane]).json()
}

/// Creates a window whose shell is at its first prompt; returns its pane, and which startup files were read.
fn start(world: &World, args: &[&str]) -> (String, String) {
    let log = world.path("home/log");
    let _ = fs::remove_file(&log);
    let pane = world.ok(&[&["new-window", "-t", "main"], args].concat());
    world.await_output(&pane, "[$#] ");
    let read = fs::read_to_string(log).unwrap_or_default();
    // A zsh that starts a command line reads `.zshenv` too.
    let mut lines: Vec<_> = read.lines().collect();
    lines.dedup();
    (pane, lines.join("\n"))
}

/// Returns a shell's environment, without what differs in each pane and between programs.
fn environment(world: &World, pane: &str) -> Vec<String> {
    let file = world.path("environment");
    let _ = fs::remove_file(&file);
    let line = format!("env >{0}.new; mv {0}.new {0}", file.display());
    world.ok(&["send-keys", "-t", pane, &line, "Enter"]);
    eventually("the environment is written", || file.exists());
    let of_pane = ["TMUX_PANE=", "_=", "OLDPWD="];
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<String> =
        text.lines().filter(|line| !of_pane.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Types a command at the prompt, and checks that it is listed as the shell reports it.
fn check_command(world: &World, pane: &str, shell: &Shell) {
    // It is known as a shell that waits for a line.
    let run = world.muxtap(&["run", "-t", pane, "-T", "30", "--", "sh -c 'exit 5'"]);
    assert_eq!(run.status, 5, "{} {run:?}", shell.name);
    let list = listed(world, pane);
    assert_eq!(list["marks"], "trusted", "{}: {list}", shell.name);
    if !shell.marks_commands {
        return;
    }
    let line = "sh -c 'echo done; exit 7'";
    world.ok(&["send-keys", "-t", pane, line, "Enter"]);
    let found = || {
        let list = listed(world, pane);
        list["commands"].as_array().unwrap().iter().find(|one| one["line"] == line).cloned()
    };
    eventually("the command has ended", || found().is_some_and(|one| one["end"] == "reported"));
    let command = found().unwrap();
    assert_eq!((&command["status"], &command["trusted"]), (&7.into(), &true.into()), "{}: {command}", shell.name);
    let number = command["number"].to_string();
    assert_eq!(world.ok(&["read", "-t", pane, "--command", &number]), "done", "{}", shell.name);
}

fn check(name: &str) {
    let shell = SHELLS.iter().find(|shell| shell.name == name).unwrap();
    if !is_installed(name) {
        return;
    }
    let world = world(shell);
    // A login shell, as tmux starts it; and a command.
    for command in [&[][..], &["--", name]] {
        let args = |flag| [&[flag], command].concat();
        let (plain, read_plain) = start(&world, &args("--shell-integration=false"));
        let (marked, read) = start(&world, &args("--shell-integration"));
        assert_eq!(read, read_plain, "{name} {command:?}: the startup files and their order");
        // A dash that is no login shell has no file.
        assert!(!read.is_empty() || name == "dash" && !command.is_empty());
        // fish 4 marks its commands by itself.
        assert_ne!(listed(&world, &plain)["marks"], "trusted");
        assert_eq!(environment(&world, &marked), environment(&world, &plain), "{name} {command:?}");
        check_command(&world, &marked, shell);
    }
    let session = world.tmux(&["show-environment", "-t", "main"]);
    assert!(!session.contains("MUXTAP"), "later panes do not inherit the nonce: {session}");
}

#[test]
fn bash_is_started_with_the_integration() {
    check("bash");
}

#[test]
fn zsh_is_started_with_the_integration() {
    check("zsh");
}

#[test]
fn fish_is_started_with_the_integration() {
    check("fish");
}

#[test]
fn dash_is_started_with_the_integration() {
    check("dash");
}

/// The variables by which zsh and POSIX shells are started are those of the user afterwards.
#[test]
fn the_users_own_zdotdir_and_env_are_kept() {
    for (name, variable, file) in [("zsh", "ZDOTDIR", ".zshrc"), ("dash", "ENV", "rc")] {
        if !is_installed(name) {
            continue;
        }
        let world = world(SHELLS.iter().find(|shell| shell.name == name).unwrap());
        let own = world.path("own");
        fs::create_dir(&own).unwrap();
        fs::write(own.join(file), "PS1='ready$ own$ '\n").unwrap();
        let value = if name == "zsh" { own.clone() } else { own.join(file) };
        let value = format!("{variable}={}", value.display());
        let (pane, _) = start(&world, &["--shell-integration", "-e", &value, "--", name]);
        world.await_output(&pane, "own[$] ");
        let environment = environment(&world, &pane);
        assert!(environment.contains(&value), "{environment:?}");
        assert_eq!(listed(&world, &pane)["marks"], "trusted");
    }
}

/// The setting applies to shells only, and only to those that muxtap starts.
#[test]
fn the_setting_applies_to_the_shells_of_new_panes() {
    let shell = &SHELLS[0];
    let mut world = world(shell);
    world.set("MUXTAP_SHELL_INTEGRATION", "true");
    let (pane, _) = start(&world, &[]);
    check_command(&world, &pane, shell);
    // The same shell again: its marks are trusted too.
    world.ok(&["respawn-pane", "-k", "-t", &pane]);
    let before = listed(&world, &pane)["commands"].as_array().unwrap().len();
    world.ok(&["send-keys", "-t", &pane, "echo again", "Enter"]);
    let last = || listed(&world, &pane)["commands"].as_array().unwrap().get(before).cloned();
    eventually("the command has ended", || last().is_some_and(|last| last["end"] == "reported"));
    assert_eq!((&last().unwrap()["line"], &last().unwrap()["trusted"]), (&"echo again".into(), &true.into()));
    let (off, _) = start(&world, &["--shell-integration=false"]);
    assert_eq!(listed(&world, &off)["marks"], "none");
    // A pane that tmux creates, and another program.
    let guest = world.tmux(&["new-window", "-d", "-P", "-F", "#{pane_id}"]);
    world.await_output(&guest, "ready[$] ");
    let program = world.ok(&["new-window", "-t", "main", "--", "sh", "-c", "env; echo ready; exec cat"]);
    world.await_output(&program, "ready");
    assert!(!world.read_all(&program).contains("MUXTAP_SHELL_NONCE"), "a nonce is for shells alone");
    for pane in [&guest, &program] {
        assert_eq!(listed(&world, pane)["marks"], "none");
    }
    // Another pane of a session whose first pane has the integration.
    let first = world.ok(&["new-session", "-s", "second"]);
    world.await_output(&first, "ready[$] ");
    check_command(&world, &first, shell);
    assert!(!world.tmux(&["show-environment", "-t", "second"]).contains("MUXTAP"));
    let split = world.ok(&["split-window", "-t", &first]);
    world.await_output(&split, "ready[$] ");
    check_command(&world, &split, shell);
}

#[test]
fn a_command_that_is_no_shell_is_rejected_with_the_flag_and_runs_with_the_setting() {
    let world = world(&SHELLS[0]);
    for command in ["vim", "bash -c true"] {
        let error =
            world.error("INVALID_ARGUMENT", &["new-window", "-t", "main", "--shell-integration", "--", command]);
        assert!(error.contains("--shell-integration") && error.contains(command), "{error}");
    }
    let made = world.http(
        "POST",
        &format!("/v1/windows{}", world.query()),
        Some(&serde_json::json!({"session": "main", "shell_integration": true})),
    );
    let pane = made.json()["pane"].as_str().unwrap().to_owned();
    world.await_output(&pane, "ready[$] ");
    check_command(&world, &pane, &SHELLS[0]);
}

/// A pane is respawned by tmux with the same words; its files may be gone by then.
#[test]
fn without_its_files_the_shell_starts_without_the_integration() {
    let world = world(&SHELLS[0]);
    let (pane, read) = start(&world, &["--shell-integration"]);
    assert!(read.contains("login-shell"), "{read}");
    fs::remove_dir_all(world.path("m.sock.shell")).unwrap();
    let log = world.path("home/log");
    fs::remove_file(&log).unwrap();
    world.tmux(&["respawn-pane", "-k", "-t", &pane]);
    eventually("the shell has read its files", || {
        fs::read_to_string(&log).is_ok_and(|read| read.contains("login-shell"))
    });
}
