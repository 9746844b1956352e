//! `run`: a command's own output and exit status, in a shell that a person may watch.

use crate::common::{World, is_installed};

/// The shells that `run` supports, started without start-up files.
const SHELLS: [(&str, &[&str]); 4] =
    [("sh", &["sh"]), ("bash", &["bash", "--norc"]), ("zsh", &["zsh", "-f"]), ("fish", &["fish", "--no-config"])];

/// Creates a pane that runs this shell.
fn shell(world: &World, program: &[&str]) -> String {
    world.ok(&[&["new-session", "-x", "80", "-y", "24", "--"], program].concat())
}

/// Runs a test for each installed shell, with a world and its pane. Missing shells are printed.
fn each_shell(test: impl Fn(&World, &str, &str)) {
    for (name, program) in SHELLS {
        if !is_installed(name) {
            continue;
        }
        let world = World::new();
        let pane = shell(&world, program);
        test(&world, &pane, name);
    }
}

/// Runs a command line; returns its output and status.
fn ran(world: &World, pane: &str, command: &str) -> (String, i32) {
    let answer = world.muxtap(&["run", "-t", pane, "-T", "30", "--", command]);
    assert_eq!(answer.stderr, "", "{command}: {answer:?}");
    (answer.text(), answer.status)
}

fn says(output: &str, status: i32) -> (String, i32) {
    (output.to_owned(), status)
}

/// R15: a build that draws its lines again has as many lines as the screen shows.
#[test]
fn lines_that_are_redrawn_are_printed_as_the_screen_ends_with_them() {
    let redraw = "sh -c 'echo begin; for i in $(seq 100); do [ $i = 1 ] || printf \"\\033[5A\"; \
                  for l in a b c d e; do echo \"$l $i\"; done; done; echo end'";
    let last = "begin\na 100\nb 100\nc 100\nd 100\ne 100\nend\n";
    each_shell(|world, pane, name| {
        assert_eq!(ran(world, pane, redraw), says(last, 0), "{name}");
    });
}

#[test]
fn output_and_status_are_the_commands_own() {
    each_shell(|world, pane, name| {
        for (command, output, status) in [
            ("echo hello", "hello\n", 0),
            ("true", "", 0),
            ("false", "", 1),
            ("sh -c 'exit 7'", "", 7),
            ("printf 'no newline'", "no newline", 0),
            ("printf 'a\\n\\n\\nb\\n'", "a\n\n\nb\n", 0),
            ("echo one; echo two >&2; sh -c 'exit 3'", "one\ntwo\n", 3),
            ("seq 1 5 | wc -l | tr -d ' '", "5\n", 0),
            ("echo äöü 漢字 🎉", "äöü 漢字 🎉\n", 0),
            ("printf '\\033[31mred\\033[m\\n'", "red\n", 0),
            ("echo '  spaces  kept  '", "  spaces  kept  \n", 0),
            ("sh -c 'no-such-command-here 2>/dev/null'", "", 127),
            ("echo last # a comment", "last\n", 0),
        ] {
            assert_eq!(ran(world, pane, command), says(output, status), "{name}: {command}");
        }
    });
}

#[test]
fn every_kind_of_quote_arrives() {
    each_shell(|world, pane, name| {
        for (command, output) in [
            (r#"echo "it's""#, "it's\n"),
            (r#"echo 'say "hi"'"#, "say \"hi\"\n"),
            (r"printf '%s\n' 'back\slash'", "back\\slash\n"),
            (r#"printf '%s\n' "two\\slashes""#, "two\\slashes\n"),
            (r#"printf '%s\n' "a ; b && c | d > e < f""#, "a ; b && c | d > e < f\n"),
            (r"printf '%s\n' '#{pid} %H %% ~ $HOME `id` !! *'", "#{pid} %H %% ~ $HOME `id` !! *\n"),
            (r#"printf '%s|' a\ b 'c d' "e f"; echo"#, "a b|c d|e f|\n"),
            ("printf '%s\\n' 'a\tb'", "a\tb\n"),
            ("printf '%s\\n' ';' '-n' '--' ';'", ";\n-n\n--\n;\n"),
        ] {
            let got = ran(world, pane, command);
            assert_eq!(got, says(output, 0), "{name}: {command:?}");
        }
    });
}

#[test]
fn several_words_reach_the_command_as_they_are() {
    each_shell(|world, pane, name| {
        for word in
            ["it's", r"\", r"a\\'b", "$HOME `id` \"x\"", "a\nb", "*", "~", "!!", "#x", "ü", "=ls", "%1", "", "a;b"]
        {
            let answer = world.muxtap(&["run", "-t", pane, "--", "printf", "[%s]", word]);
            assert_eq!((answer.text(), answer.status), (format!("[{word}]"), 0), "{name}: {word:?}: {answer:?}");
        }
    });
}

#[test]
fn several_lines_are_one_command() {
    each_shell(|world, pane, name| {
        let (lines, heredoc) = if name == "fish" {
            ("for i in 1 2 3\n    echo $i\nend\nfalse", None)
        } else {
            ("for i in 1 2 3\ndo\n\techo $i\ndone\nfalse", Some("cat <<'EOF'\n  $HOME 'x'\n\ttab\nEOF\n"))
        };
        assert_eq!(ran(world, pane, lines), says("1\n2\n3\n", 1), "{name}");
        if let Some(heredoc) = heredoc {
            assert_eq!(ran(world, pane, heredoc), says("  $HOME 'x'\n\ttab\n", 0), "{name}");
        }
    });
}

#[test]
fn what_a_command_changes_in_its_shell_stays() {
    each_shell(|world, pane, name| {
        let cd = ran(world, pane, "cd /usr");
        assert_eq!(cd, says("", 0), "{name}");
        assert_eq!(ran(world, pane, "pwd"), says("/usr\n", 0), "{name}");
    });
}

#[test]
fn a_syntax_error_is_the_shells_own_and_the_next_command_runs() {
    each_shell(|world, pane, name| {
        let (output, status) = ran(world, pane, "if true; then (");
        assert!(status != 0 && !output.is_empty(), "{name}: {status} {output:?}");
        assert_eq!(ran(world, pane, "echo after"), says("after\n", 0), "{name}");
    });
}

#[test]
fn exit_in_the_shell_ends_the_pane_with_its_status() {
    each_shell(|world, pane, name| {
        let (output, status) = ran(world, pane, "echo bye; exit 3");
        // An interactive bash prints `exit`.
        assert_eq!((output.trim_end_matches("exit\n"), status), ("bye\n", 3), "{name}");
    });
}

#[test]
fn a_command_of_more_lines_than_the_screen_has_is_whole() {
    each_shell(|world, pane, name| {
        let wanted: String = (1..=3000).map(|n| format!("{n}\n")).collect();
        assert_eq!(ran(world, pane, "seq 1 3000"), (wanted, 0), "{name}");
    });
}

#[test]
fn long_lines_are_not_cut_where_the_screen_ends() {
    each_shell(|world, pane, name| {
        let long = "x".repeat(700);
        assert_eq!(ran(world, pane, &format!("echo {long}")), (format!("{long}\n"), 0), "{name}");
    });
}

#[test]
fn output_beyond_the_ring_is_told_as_truncated_and_its_end_is_there() {
    let world = World::new();
    let pane = shell(&world, &["sh"]);
    let answer = world.json(&["run", "-t", &pane, "--", "seq 1 300000"]);
    assert_eq!(answer["truncated"], true);
    let output = answer["output"].as_str().unwrap();
    assert!(output.ends_with("\n299999\n300000\n"), "{:?}", output.get(output.len() - 40..));
    assert!(output.len() > 500_000, "{}", output.len());
    assert_eq!(answer["exit_status"], 0);
}

#[test]
fn a_command_that_reads_is_given_its_input_meanwhile() {
    each_shell(|world, pane, name| {
        let running =
            world.spawn(&["run", "-t", pane, "--", "sh -c 'echo ready; read line; echo \"got $line\"; exit 4'"]);
        world.await_output(pane, "(?m)^ready$");
        world.ok(&["send-keys", "-t", pane, "an answer", "Enter"]);
        let answer = running.finish();
        assert_eq!(answer.status, 4, "{name}: {answer:?}");
        assert!(answer.text().ends_with("got an answer\n"), "{name}: {answer:?}");
    });
}

#[test]
fn a_command_that_does_not_end_is_a_timeout_with_what_it_printed_and_goes_on() {
    let world = World::new();
    let pane = shell(&world, &["bash", "--norc"]);
    let answer = world.muxtap(&["run", "-t", &pane, "-T", "1", "--", "echo begun; read line; echo later $line"]);
    assert_eq!((answer.status, answer.text().as_str()), (124, "begun\n"), "{answer:?}");
    assert!(!answer.stderr.is_empty());
    world.ok(&["send-keys", "-t", &pane, "on", "Enter"]);
    world.await_output(&pane, "(?m)^later on$");
    assert_eq!(ran(&world, &pane, "echo free again"), says("free again\n", 0));

    let answer = world.muxtap(&["--json", "run", "-t", &pane, "-T", "0.5", "--", "echo x; read line"]);
    assert_eq!(answer.status, 124);
    let error = answer.error();
    assert_eq!((&error["code"], &error["details"]["output"]), (&"TIMEOUT".into(), &"x\n".into()), "{error}");
    assert!(error["details"]["cursor"].is_string());
    // A status that no client treats as a reason to retry by itself, which would type again.
    world.ok(&["send-keys", "-t", &pane, "on", "Enter"]);
    assert_eq!(ran(&world, &pane, "echo free again"), says("free again\n", 0));
    let request = serde_json::json!({"command": "read line", "timeout_ms": 100});
    let path = format!("/v1/panes/{}/run{}", pane.replace('%', "%25"), world.query());
    let answer = world.http("POST", &path, Some(&request));
    assert_eq!((answer.status, &answer.json()["code"]), (424, &"TIMEOUT".into()));
}

#[test]
fn the_status_is_the_commands_though_nobody_reads_its_output() {
    let world = World::new();
    let pane = shell(&world, &["sh"]);
    let status = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        world.muxtap_command(args).stdout(writer).stderr(std::process::Stdio::null()).status().unwrap().code()
    };
    assert_eq!(status(&["run", "-t", &pane, "-T", "30", "--", "echo x; (exit 7)"]), Some(7));
    assert_eq!(status(&["--json", "run", "-t", &pane, "-T", "30", "--", "echo x; (exit 8)"]), Some(8));
    assert_eq!(status(&["run", "-t", &pane, "-T", "1", "--", "echo x; read line"]), Some(124));
}

#[test]
fn where_no_shell_rests_it_is_refused() {
    let world = World::new();
    // Some are scripts that start other programs before they become what their name says (pyenv's
    // python3): their output is awaited.
    for (program, shows) in [
        (&["sleep", "100"][..], ""),
        (&["cat"], ""),
        (&["python3", "-q"], ">>> "),
        (&["sh", "-c", "read x; read y"], ""),
        (&["vi"], "~"),
        (&["less", "/etc/passwd"], "root"),
    ] {
        if !is_installed(program[0]) {
            continue;
        }
        let pane = shell(&world, program);
        if !shows.is_empty() {
            world.await_output(&pane, shows);
        }
        let before = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        let message = world.error("CONFLICT", &["run", "-t", &pane, "-T", "2", "--", "echo no"]);
        assert!(message.contains(program[0]), "{message}");
        let after = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        assert!(!after.contains("echo no"), "{program:?}: {before:?} {after:?}");
    }
}

#[test]
fn a_program_in_a_shells_foreground_is_no_shell() {
    let world = World::new();
    let pane = shell(&world, &["bash", "--norc"]);
    world.ok(&["send-keys", "-t", &pane, "echo sta''rts; sleep 100", "Enter"]);
    world.await_output(&pane, "(?m)^starts$");
    let message = world.error("CONFLICT", &["run", "-t", &pane, "-T", "2", "--", "echo no"]);
    assert!(message.contains("sleep"), "{message}");
    world.ok(&["send-keys", "-t", &pane, "C-c"]);
    world.ok(&["wait-for", "-t", &pane, "--prompt"]);
    assert_eq!(ran(&world, &pane, "echo yes"), says("yes\n", 0));
}

/// It would be awaited for a day otherwise. The shell is a program with its name.
#[test]
fn a_shell_of_another_language_is_refused_at_once() {
    let world = World::new();
    let pane = shell(&world, &["bash", "-c", "exec -a nu sleep 1000"]);
    world.ok(&["wait-for", "-t", &pane, "--stable", "0.2"]);
    let message = world.error("CONFLICT", &["run", "-t", &pane, "--", "echo no"]);
    assert!(message.contains("`nu` is a shell in which run cannot run commands"), "{message}");
}

#[test]
fn runs_in_one_pane_wait_for_each_other() {
    let world = World::new();
    let pane = shell(&world, &["sh"]);
    let first = world.spawn(&["run", "-t", &pane, "--", "echo first; read x"]);
    // A shell that has just started may print its prompt before it.
    world.await_output(&pane, "(?m)first$");
    let message = world.error("TIMEOUT", &["run", "-t", &pane, "-T", "0.3", "--", "echo too late"]);
    assert!(message.contains("another run"), "{message}");
    let more: Vec<_> = (0..8)
        .map(|number| (number, world.spawn(&["run", "-t", &pane, "--", &format!("echo {number}; (exit {number})")])))
        .collect();
    world.ok(&["send-keys", "-t", &pane, "Enter"]);
    assert_eq!(first.finish().status, 0);
    for (number, run) in more {
        let answer = run.finish();
        assert_eq!((answer.text(), answer.status), (format!("{number}\n"), number), "{answer:?}");
    }
    assert!(!world.ok(&["read", "-t", &pane, "--since", "start"]).contains("too late"));
}

#[test]
fn a_run_whose_caller_goes_away_lets_the_pane_go() {
    let world = World::new();
    let pane = shell(&world, &["sh"]);
    let first = world.spawn(&["run", "-t", &pane, "--", "echo first; read x"]);
    // A shell that has just started may print its prompt before it.
    world.await_output(&pane, "(?m)first$");
    first.kill();
    world.ok(&["send-keys", "-t", &pane, "Enter"]);
    crate::common::eventually("the pane is free", || world.muxtap(&["run", "-t", &pane, "--", "true"]).status == 0);
}

#[test]
fn right_after_the_pane_was_made() {
    for _ in 0..3 {
        each_shell(|world, _, name| {
            let program = SHELLS.iter().find(|(known, _)| *known == name).unwrap().1;
            let pane = shell(world, program);
            assert_eq!(ran(world, &pane, "echo at once"), says("at once\n", 0), "{name}");
        });
    }
}

#[test]
fn in_a_shell_within_a_shell() {
    let world = World::new();
    let pane = shell(&world, &["bash", "--norc"]);
    for inner in ["sh", "zsh -f", "fish --no-config", "bash --norc"] {
        world.ok(&["send-keys", "-t", &pane, inner, "Enter"]);
        world.ok(&["wait-for", "-t", &pane, "--prompt"]);
        assert_eq!(ran(&world, &pane, "echo inner; sh -c 'exit 5'"), says("inner\n", 5), "{inner}");
    }
}

#[test]
fn a_shell_of_another_users_making_is_as_good() {
    let world = World::with_server();
    assert_eq!(ran(&world, "main", "echo guest; sh -c 'exit 9'"), says("guest\n", 9));
}

#[test]
fn many_runs_in_many_panes_at_once() {
    let world = World::new();
    let panes: Vec<String> = (0..8).map(|n| shell(&world, SHELLS[n % 4].1)).collect();
    let running: Vec<_> = panes
        .iter()
        .enumerate()
        .map(|(n, pane)| world.spawn(&["run", "-t", pane, "--", &format!("seq 1 {}; sh -c 'exit {n}'", 100 * (n + 1))]))
        .collect();
    for (n, running) in running.into_iter().enumerate() {
        let answer = running.finish();
        let wanted: String = (1..=100 * (n + 1)).map(|n| format!("{n}\n")).collect();
        assert_eq!((answer.status, answer.text()), (i32::try_from(n).unwrap(), wanted), "{}", answer.stderr);
    }
}

#[test]
fn a_prompt_of_two_lines_and_colours_is_not_output() {
    let mut world = World::new();
    world.set("PS1", "\\e[1;32m\\w\\e[0m\n$ ");
    let pane = shell(&world, &["bash", "--norc"]);
    assert_eq!(ran(&world, &pane, "printf x"), says("x", 0));
    assert_eq!(ran(&world, &pane, "echo y"), says("y\n", 0));
}

#[test]
fn a_narrow_pane_breaks_nothing() {
    for (name, program) in SHELLS {
        let world = World::new();
        // fish 4.0 shows only the end of a line with more rows than the pane.
        let rows = if name == "fish" { "9" } else { "6" };
        let pane = world.ok(&[&["new-session", "-x", "20", "-y", rows, "--"], program].concat());
        let long = "0123456789".repeat(8);
        assert_eq!(ran(&world, &pane, &format!("echo {long}")), (format!("{long}\n"), 0), "{name}");
    }
}

#[test]
fn shells_that_mark_their_prompts() {
    let mut world = World::new();
    // Like the shell integrations of terminals: OSC 133 A and B around the prompt, C before the
    // output, D after it.
    world.set("PS0", r"\e]133;C\a");
    world.set("PS1", r"\[\e]133;A\a\]$ \[\e]133;B\a\]");
    world.set("PROMPT_COMMAND", r#"printf '\033]133;D;%s\007' "$?""#);
    let pane = shell(&world, &["bash", "--norc"]);
    for _ in 0..2 {
        let answer = world.muxtap(&["--json", "run", "-t", &pane, "--", "echo marked; (exit 6)"]).json();
        assert_eq!((&answer["output"], &answer["exit_status"]), (&"marked\n".into(), &6.into()), "{answer}");
    }
    assert_eq!(world.json(&["run", "-t", &pane, "--", "printf x"])["method"], "sentinel");
    assert_eq!(ran(&world, &pane, "echo a\necho b"), says("a\nb\n", 0));
}

#[test]
fn bad_requests() {
    let world = World::new();
    let pane = shell(&world, &["sh"]);
    world.error("INVALID_ARGUMENT", &["run", "-t", &pane, "--", "  "]);
    world.error("NOT_FOUND", &["run", "-t", "%99", "--", "true"]);
    let path = format!("/v1/panes/{}/run{}", pane.replace('%', "%25"), world.query());
    let long = world.http("POST", &path, Some(&serde_json::json!({ "command": "x".repeat(300_000) })));
    assert_eq!((long.status, &long.json()["code"]), (400, &"INVALID_ARGUMENT".into()));
    assert_eq!(world.muxtap(&["run", "-t", &pane]).status, 2);
}
