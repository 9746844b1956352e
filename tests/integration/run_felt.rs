//! `run` is not felt: options, hooks, prompts and traces of the shell neither disturb it nor notice it.

use crate::common::{World, is_installed};

/// A shell that was prepared, and what a command in it prints and returns.
struct Case {
    /// What it is about.
    name: &'static str,
    /// The shell.
    shell: &'static str,
    /// What a person typed before; each line by itself.
    typed: &'static [&'static str],
    command: &'static str,
    output: &'static str,
    status: i32,
}

const BASH: &str = "bash --norc";
const ZSH: &str = "zsh -f";
const FISH: &str = "fish --no-config";

/// Prepares a shell in a pane and waits for its prompt. `None` if the shell is not installed.
fn prepared(shell: &str, typed: &[&str]) -> Option<(World, String)> {
    if !is_installed(shell.split(' ').next().unwrap()) {
        return None;
    }
    let mut world = World::new();
    world.set("EDITOR", "");
    let pane =
        world.tmux(&["new-session", "-d", "-s", "main", "-x", "100", "-y", "30", "-P", "-F", "#{pane_id}", shell]);
    // ksh93's own line editor is not known as one.
    let begun: &[&str] = if shell == "ksh93" { &["--stable", "0.5"] } else { &["--prompt", "--since", "start"] };
    world.ok(&[&["wait-for", "-t", &pane, "-T", "30"], begun].concat());
    for line in typed {
        types(&world, &pane, line);
    }
    Some((world, pane))
}

/// Types a line like a person, and waits until the shell has read it.
fn types(world: &World, pane: &str, line: &str) {
    world.tmux(&["send-keys", "-t", pane, "-l", line]);
    world.tmux(&["send-keys", "-t", pane, "Enter"]);
    world.ok(&["wait-for", "-t", pane, "--stable", "0.3", "-T", "20"]);
}

fn screen(world: &World, pane: &str) -> String {
    world.tmux(&["capture-pane", "-p", "-t", pane])
}

impl Case {
    fn check(&self) {
        let Some((world, pane)) = prepared(self.shell, self.typed) else { return };
        let what = format!("{} in {}", self.name, self.shell);
        let before = screen(&world, &pane);
        let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", self.command]);
        let shown = screen(&world, &pane);
        assert_eq!((answer.text().as_str(), answer.status), (self.output, self.status), "{what}: {answer:?}\n{shown}");
        // Rows that were there before are still there.
        let rows = before.trim_end().lines().rev().skip(1).collect::<Vec<_>>();
        assert!(rows.iter().all(|row| shown.contains(row.trim_end())), "{what}:\n{before}\nthen\n{shown}");
        // The status is the command's for the shell, too.
        let status = if self.shell == FISH { "echo is $status" } else { "echo is $?" };
        let next = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", status]);
        assert!(next.text().ends_with(&format!("is {}\n", self.status)), "{what}: {next:?}");
        for read in [
            &["read", "-t", &pane, "--since", "start"][..],
            &["read", "--format", "ansi", "-t", &pane, "--since", "start"],
        ] {
            let text = world.ok(read);
            assert!(!text.contains("muxtap") && !text.contains("7717"), "{what}: {text}");
            assert!(text.contains(self.command.lines().next().unwrap()), "{what}: {text}");
        }
        let raw = world.ok(&["read", "--format", "raw", "-t", &pane, "--since", "start"]);
        assert!(raw.contains("muxtap-"), "{what}: the raw output has all of it");
    }
}

/// R2 to R8: what a person set.
#[test]
fn options_hooks_and_traces_do_not_matter() {
    const X: &[&str] = &["set -x"];
    for case in [
        Case { name: "a trace", shell: BASH, typed: X, command: "echo hi", output: "+ echo hi\nhi\n", status: 0 },
        Case { name: "a trace", shell: "dash", typed: X, command: "echo hi", output: "+ echo hi\nhi\n", status: 0 },
        Case {
            name: "a trace",
            shell: ZSH,
            typed: X,
            command: "echo hi",
            output: "+(eval):1> echo hi\nhi\n",
            status: 0,
        },
        Case {
            name: "aliases",
            shell: BASH,
            typed: &["alias history='history 20' printf=false eval=false .=false set=false unset=false"],
            command: "echo hi; (exit 3)",
            output: "hi\n",
            status: 3,
        },
        Case {
            name: "functions",
            shell: BASH,
            typed: &["exit() { echo mine; }; printf() { echo mine; }; return() { echo mine; }; eval() { echo mine; }"],
            command: "echo hi; (builtin exit 3)",
            output: "hi\n",
            status: 3,
        },
        Case {
            name: "functions",
            shell: ZSH,
            typed: &["exit () { echo mine }; printf () { echo mine }; .() { echo mine }; alias print=false"],
            command: "echo \"hi $0\"; (builtin exit 3)",
            output: "hi zsh\n",
            status: 3,
        },
        Case {
            name: "options",
            shell: BASH,
            typed: &["set -efuC; shopt -s failglob; IFS=/t"],
            command: "echo hi; ! true || true",
            output: "hi\n",
            status: 0,
        },
        Case { name: "options", shell: "dash", typed: &["set -efuC"], command: "echo hi", output: "hi\n", status: 0 },
        Case {
            name: "options",
            shell: ZSH,
            typed: &["setopt sh_word_split ksh_arrays no_unset no_clobber err_exit; IFS=/t"],
            command: "echo hi",
            output: "hi\n",
            status: 0,
        },
        Case {
            name: "print_exit_value",
            shell: ZSH,
            typed: &["setopt print_exit_value"],
            command: "echo hi; false",
            output: "hi\n",
            status: 1,
        },
        Case {
            name: "a title hook that prints the line",
            shell: ZSH,
            typed: &["preexec () { print -Pn \"\\e]0;$1 [%~]\\a\" }"],
            command: "sleep 0.1; echo hi",
            output: "hi\n",
            status: 0,
        },
        Case {
            name: "traps",
            shell: BASH,
            typed: &["trap 'echo D >/dev/null' DEBUG; trap 'echo R >/dev/null' RETURN"],
            command: "echo hi; false",
            output: "hi\n",
            status: 1,
        },
        Case {
            name: "a dumb terminal",
            shell: BASH,
            typed: &["export TERM=dumb"],
            command: "echo hi",
            output: "hi\n",
            status: 0,
        },
        Case { name: "vi keys", shell: BASH, typed: &["set -o vi"], command: "echo hi", output: "hi\n", status: 0 },
        Case { name: "vi keys", shell: ZSH, typed: &["bindkey -v"], command: "echo hi", output: "hi\n", status: 0 },
        Case {
            name: "a prompt in JSON",
            shell: BASH,
            typed: &["PS1='{\"cwd\":\"\\w\"} '"],
            command: "echo hi",
            output: "hi\n",
            status: 0,
        },
        Case {
            name: "two rows",
            shell: BASH,
            typed: &["PS1='\\w (main)\\n$ '"],
            command: "echo hi",
            output: "hi\n",
            status: 0,
        },
        Case {
            name: "an empty last row",
            shell: ZSH,
            typed: &["PS1=$'%~\\n'"],
            command: "echo hi",
            output: "hi\n",
            status: 0,
        },
        Case {
            name: "a right prompt",
            shell: ZSH,
            typed: &["RPROMPT='%T right'"],
            command: "echo hi",
            output: "hi\n",
            status: 0,
        },
        Case {
            name: "a prompt that changes when a line is entered",
            shell: ZSH,
            typed: &[
                "PS1=$'%~ first row\\n%# '",
                "zle-line-finish () { PS1='%# '; zle reset-prompt; PS1=$'%~ first row\\n%# ' }; zle -N zle-line-finish",
                "echo earlier output",
            ],
            command: "echo hi",
            output: "hi\n",
            status: 0,
        },
        Case {
            name: "an option",
            shell: FISH,
            typed: &["set -g fish_greeting x"],
            command: "echo hi; false",
            output: "hi\n",
            status: 1,
        },
    ] {
        case.check();
    }
}

/// R6: both ways.
#[test]
fn the_status_before_is_the_shells() {
    for (shell, status) in
        [(BASH, "$?"), (ZSH, "$?"), ("dash", "$?"), ("mksh", "$?"), ("ksh93", "$?"), (FISH, "$status")]
    {
        let Some((world, pane)) = prepared(shell, &["sh -c 'exit 7'"]) else { continue };
        let command = format!("echo {status}; sh -c 'exit 9'");
        let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", &command]);
        assert_eq!((answer.text().as_str(), answer.status), ("7\n", 9), "{shell}: {answer:?}");
        types(&world, &pane, &format!("echo typed {status}"));
        assert!(screen(&world, &pane).contains("typed 9"), "{shell}: {}", screen(&world, &pane));
    }
}

/// R5: zsh's and bash's normal mode, in which letters are commands.
#[test]
fn letters_are_no_commands_of_an_editor() {
    for (shell, vi) in [(ZSH, "bindkey -v"), (BASH, "set -o vi"), ("fish", "fish_vi_key_bindings")] {
        let Some((world, pane)) = prepared(shell, &[vi, "echo earlier"]) else { continue };
        assert_eq!(world.ok(&["run", "-t", &pane, "-T", "20", "echo one"]), "one", "{shell}");
        world.tmux(&["send-keys", "-t", &pane, "Escape"]);
        world.ok(&["wait-for", "-t", &pane, "--stable", "0.6", "-T", "20"]);
        let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "echo two"]);
        assert_eq!((answer.text().as_str(), answer.status), ("two\n", 0), "{shell}: {}", screen(&world, &pane));
    }
}

/// R10: a program that was killed left the terminal without echo.
#[test]
fn a_terminal_without_echo_is_named() {
    let Some((world, pane)) = prepared(BASH, &["stty -echo"]) else { return };
    let message = world.error("CONFLICT", &["run", "-t", &pane, "-T", "20", "--", "touch ran"]);
    assert!(message.contains("stty sane"), "{message}");
    types(&world, &pane, "stty sane");
    assert_eq!(world.ok(&["run", "-t", &pane, "-T", "20", "ls"]), "");
}

/// R1: questions that are read with the shell's line editor.
#[test]
fn a_question_of_the_line_editor_is_not_answered() {
    for (shell, ask) in [
        (BASH, "read -e -p 'Install? [Y/n] ' a; echo \"<$a>\""),
        (BASH, "read -e -p 'Password: ' a; echo \"<$a>\""),
        (ZSH, "a=; vared -p 'Install? ' a; echo \"<$a>\""),
        (FISH, "read a; echo \"<$a>\""),
    ] {
        let Some((world, pane)) = prepared(shell, &[ask]) else { continue };
        let before = screen(&world, &pane);
        let message = world.error("CONFLICT", &["run", "-t", &pane, "-T", "2", "--", "touch ran"]);
        assert!(message.contains("answer"), "{shell}: {message}");
        assert_eq!(screen(&world, &pane), before, "{shell}");
        types(&world, &pane, "mine");
        assert!(screen(&world, &pane).contains("<mine>"), "{shell}: {}", screen(&world, &pane));
    }
}

/// In a shell that marks its commands, the list has the command, not the line that was typed.
#[test]
fn the_list_of_commands_has_the_command() {
    let Some((world, pane)) = prepared(BASH, &[]) else { return };
    let integration = format!("eval \"$({} shell-integration bash)\"", env!("CARGO_BIN_EXE_muxtap"));
    types(&world, &pane, &integration);
    for (command, status) in [("echo hi; false", 1), ("printf 'no line end'", 0)] {
        assert_eq!(world.muxtap(&["run", "-t", &pane, "-T", "20", "--", command]).status, status);
    }
    let mut listed = serde_json::Value::Null;
    crate::common::eventually("the shell marks the end", || {
        listed = world.json(&["commands", "-t", &pane, "-n", "2"]);
        listed["commands"][1]["status"] == 0
    });
    assert_eq!(
        (&listed["commands"][0]["line"], &listed["commands"][0]["status"]),
        (&"echo hi; false".into(), &1.into())
    );
    assert_eq!(listed["commands"][1]["line"], "printf 'no line end'", "{listed}");
    assert_eq!(world.ok(&["read", "-t", &pane, "--command", "-2"]), "hi");
    assert_eq!(world.ok(&["read", "-t", &pane, "--command", "-1"]), "no line end");
}

/// R11.
#[test]
fn a_long_command_runs_at_once() {
    let text: String = (0..2500).map(|number| format!("line {number:04}\n")).collect();
    let command = format!("cat <<'END'\n{text}END");
    for shell in [BASH, ZSH, "dash"] {
        let Some((world, pane)) = prepared(shell, &[]) else { continue };
        let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", &command]);
        assert!(answer.text() == text && answer.status == 0, "{shell}: {} bytes, {answer:?}", answer.text().len());
    }
}

/// R13.
#[test]
fn a_command_that_ends_the_shell_has_its_output_and_status() {
    for (command, output, status) in [("echo bye; exit 3", "bye\n", 3), ("set -e; echo bye; false", "bye\n", 1)] {
        for shell in [BASH, ZSH, "dash"] {
            if !is_installed(shell.split(' ').next().unwrap()) {
                continue;
            }
            let world = World::new();
            let pane = world.ok(&[&["new-session", "--"], &shell.split(' ').collect::<Vec<_>>()[..]].concat());
            world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
            let answer = world.muxtap(&["--json", "run", "-t", &pane, "-T", "20", "--", command]);
            let told = answer.json();
            assert_eq!((&told["output"], &told["shell_ended"]), (&output.into(), &true.into()), "{shell}: {answer:?}");
            assert_eq!(told["exit_status"], status, "{shell}: {answer:?}");
        }
    }
}

/// The shell cannot read muxtap's files: the line holds the command.
#[test]
fn a_shell_of_another_user_is_given_the_command_in_its_line() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let Some((world, pane)) = prepared(BASH, &["su -s /bin/bash nobody --session-command 'bash --norc'"]) else {
        return;
    };
    world.ok(&["wait-for", "-t", &pane, "--prompt", "-T", "20"]);
    let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", "id -un; (exit 4)"]);
    assert_eq!((answer.text().as_str(), answer.status), ("nobody\n", 4), "{}", screen(&world, &pane));
    let text = world.ok(&["read", "-t", &pane, "--since", "start"]);
    assert!(!text.contains("muxtap") && text.contains("id -un"), "{text}");
}

/// What other programs print while the line is typed is not hidden: a hook delays the command for as
/// long as they print.
#[test]
fn output_of_a_background_job_is_never_hidden() {
    let go = "until test -e go; do sleep 0.05; done";
    let hook = "trap 'case $BASH_COMMAND in *muxtap*) touch go; sleep 1;; esac' DEBUG";
    let job = format!("({go}; for line in run 1 . rev builtin; do echo $line; done) & disown");
    let Some((world, pane)) = prepared(BASH, &[hook, &job, "clear"]) else { return };
    let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", "echo done"]);
    assert_eq!((answer.text().as_str(), answer.status), ("done\n", 0), "{answer:?}");
    let text = world.ok(&["read", "-t", &pane, "--since", "start", "--until", "now"]);
    for line in ["run", "1", ".", "rev", "builtin"] {
        assert!(text.lines().any(|row| row == line || row.ends_with(&format!("r{line}"))), "{line}: {text}");
    }
}

/// Text to the right of the cursor and below it is typed text, too.
#[test]
fn text_after_the_cursor_is_not_run() {
    for shell in [BASH, ZSH, FISH] {
        let Some((world, pane)) = prepared(shell, &[]) else { continue };
        for _ in 0..2 {
            world.tmux(&["send-keys", "-t", &pane, "-l", "   ; touch ran"]);
            world.tmux(&["send-keys", "-t", &pane, "C-a"]);
            world.ok(&["wait-for", "-t", &pane, "--stable", "0.3", "-T", "20"]);
            world.error("CONFLICT", &["run", "-t", &pane, "-T", "20", "--", "echo no"]);
            assert!(screen(&world, &pane).contains("; touch ran"), "{shell}: {}", screen(&world, &pane));
            assert!(!world.path("work/ran").exists(), "{shell}");
            assert_eq!(world.ok(&["run", "-t", &pane, "-T", "20", "--clear-line", "--", "echo yes"]), "yes", "{shell}");
        }
    }
}

/// What a person types next to `run` keeps its letters in their order.
#[test]
fn letters_that_are_typed_meanwhile_stay_in_order() {
    for shell in [BASH, ZSH, FISH] {
        let Some((world, pane)) = prepared(shell, &[]) else { continue };
        assert_eq!(world.ok(&["run", "-t", &pane, "-T", "20", "echo", "first"]), "first", "{shell}");
        for letter in ["a", "b", "c", "d"] {
            world.tmux(&["send-keys", "-t", &pane, "-l", letter]);
        }
        let refused = world.spawn(&["run", "-t", &pane, "-T", "20", "touch", "ran"]);
        for letter in ["e", "f", "g", "h", "i", "j", "k", "l"] {
            // As fast as a person, so that the shell is quiet in between.
            std::thread::sleep(std::time::Duration::from_millis(90));
            world.tmux(&["send-keys", "-t", &pane, "-l", letter]);
        }
        let refused = refused.finish();
        assert_eq!(refused.status, 1, "{shell}: {refused:?}");
        crate::common::eventually("all letters are there", || screen(&world, &pane).contains("abcdefghijkl"));
        assert!(!world.path("work/ran").exists(), "{shell}");
    }
}

/// A shell without a line editor that reports no end: its prompt says so.
#[test]
fn a_command_without_an_end_is_noticed_in_sh() {
    let Some((world, pane)) = prepared("dash", &[]) else { return };
    let answer = world.muxtap(&["run", "-t", &pane, "-T", "60", "--", "echo hi; return 3"]);
    assert!(answer.status == 1 && answer.stderr.contains("no status"), "{answer:?}");
    assert_eq!(world.ok(&["run", "-t", &pane, "-T", "20", "echo", "on"]), "on");
}

/// A run that waits for its turn: Ctrl-C is not for the command that runs.
#[test]
fn an_interrupt_of_a_run_that_waits_reaches_no_other_command() {
    let Some((world, pane)) = prepared(BASH, &[]) else { return };
    let first = world.spawn(&["run", "-t", &pane, "-T", "3600", "--", "echo begun; read answer; echo \"got $answer\""]);
    world.await_output(&pane, "(?m)^begun\\r?$");
    let second = world.spawn(&["run", "-t", &pane, "-T", "3600", "--", "touch ran"]);
    // Before the process handles the signal, the signal ends it.
    crate::common::eventually("the signal is handled", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", second.pid())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 2 != 0)
    });
    crate::common::signal(second.pid(), rustix::process::Signal::INT);
    let second = second.finish();
    assert_eq!(second.status, 130, "{second:?}");
    world.ok(&["send-keys", "-t", &pane, "yes", "Enter"]);
    let first = first.finish();
    assert_eq!((first.text().as_str(), first.status), ("begun\nyes\ngot yes\n", 0), "{first:?}");
    assert_eq!(world.ok(&["run", "-t", &pane, "-T", "20", "ls"]), "");
}

/// The history shows times, whose digits follow an entry's number.
#[test]
fn times_in_the_history_do_not_matter() {
    for format in ["%F %T ", "%d/%m/%y %T ", "", "9"] {
        let Some((world, pane)) = prepared(BASH, &[&format!("HISTTIMEFORMAT='{format}'")]) else { return };
        let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", "echo hi; (exit 3)"]);
        assert_eq!((answer.text().as_str(), answer.status), ("hi\n", 3), "{format}: {answer:?}");
        let history = world.ok(&["run", "-t", &pane, "-T", "20", "--", "history"]);
        assert!(history.contains("HISTTIMEFORMAT=") && !history.contains("builtin ."), "{format}: {history}");
    }
}

/// After a command without output, the row above ends in the right prompt, too.
#[test]
fn a_right_prompt_may_be_in_the_row_above() {
    let prompts = ["function fish_prompt; echo 'P> '; end", "function fish_right_prompt; echo RR; end", "true"];
    let Some((world, pane)) = prepared(FISH, &prompts) else { return };
    for _ in 0..3 {
        let answer = world.muxtap(&["run", "-t", &pane, "-T", "20", "--", "true"]);
        assert_eq!((answer.text().as_str(), answer.status), ("", 0), "{answer:?}\n{}", screen(&world, &pane));
    }
}
