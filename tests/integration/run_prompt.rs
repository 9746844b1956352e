//! `run` and the prompt that it finds: text that was typed at it is not run with the command, and
//! nothing of the line that `run` types remains.

use std::time::Duration;

use serde_json::json;

use crate::common::{World, eventually, is_installed};

/// The shells, started without start-up files, and how they list their history.
const SHELLS: [(&str, &str, &str); 4] = [
    ("sh", "dash", "true"),
    ("bash", "bash --norc", "history"),
    ("zsh", "zsh -f", "fc -l 1"),
    ("fish", "fish --no-config", "history | cat"),
];

/// Runs a test for each installed shell, in a world where plain tmux runs it in a pane of this
/// size, with a prompt on screen.
fn each_shell_at(columns: &str, rows: &str, test: impl Fn(&World, &str, &str)) {
    for (name, program, _) in SHELLS {
        let installed = program.split(' ').next().unwrap();
        if !is_installed(installed) {
            continue;
        }
        let world = World::new();
        let pane = world.tmux(&[
            "new-session",
            "-d",
            "-s",
            "main",
            "-x",
            columns,
            "-y",
            rows,
            "-P",
            "-F",
            "#{pane_id}",
            program,
        ]);
        world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
        test(&world, &pane, name);
    }
}

fn each_shell(test: impl Fn(&World, &str, &str)) {
    each_shell_at("80", "24", test);
}

/// Types by plain tmux, like a person, and waits until the text is displayed.
fn types(world: &World, pane: &str, text: &str) {
    world.tmux(&["send-keys", "-t", pane, "-l", text]);
    let shown = text.trim_end().to_owned();
    crate::common::eventually("what is typed shows", || screen(world, pane).contains(&shown));
}

/// Erases the typed text and requests a new prompt, like a person. Not by Ctrl-C: in fish, one that
/// comes while its prompt is made leaves it without a prompt until Enter (N73).
fn starts_anew(world: &World, pane: &str) {
    world.tmux(&["send-keys", "-t", pane, "C-e", "C-u", "Enter"]);
    let waited = world.muxtap(&["wait-for", "-t", pane, "--prompt", "-T", "20"]);
    assert_eq!(waited.status, 0, "no prompt: {}", screen(world, pane));
}

fn screen(world: &World, pane: &str) -> String {
    world.tmux(&["capture-pane", "-p", "-J", "-S", "-", "-t", pane])
}

fn last_line(world: &World, pane: &str) -> String {
    screen(world, pane).trim_end().lines().last().unwrap_or_default().to_owned()
}

/// Runs a command; returns its output and status.
fn ran(world: &World, pane: &str, flags: &[&str], command: &str) -> (String, i32) {
    let answer = world.muxtap(&[&["run", "-t", pane, "-T", "30"], flags, &["--", command]].concat());
    assert_eq!(answer.stderr, "", "{command}: {answer:?}");
    (answer.text(), answer.status)
}

fn says(output: &str, status: i32) -> (String, i32) {
    (output.to_owned(), status)
}

/// Half a line that ends as prompts end is not entered: neither its last row nor, before any command, its last word.
#[test]
fn typed_text_that_looks_like_a_prompt_is_no_prompt() {
    each_shell_at("60", "24", |world, pane, name| {
        let (prompt, sign) = match name {
            "fish" => ("function fish_prompt; echo -n '> '; end", "> "),
            "zsh" => ("PS1='> '", "> "),
            _ => ("PS1='$ '", "$ "),
        };
        if name == "sh" {
            return;
        }
        types(world, pane, prompt);
        world.tmux(&["send-keys", "-t", pane, "Enter"]);
        world.ok(&["wait-for", "-t", pane, "--stable", "0.3", "-T", "20"]);
        assert_eq!(ran(world, pane, &[], "echo known"), says("known\n", 0), "{name}");
        // The last row is the sign alone, as the known prompt; a word and the sign; or the only row.
        let full = format!("{:x<58}", "echo >made ");
        for typed in [format!("{full}{sign}"), format!("{full}word {sign}"), format!("echo >made {sign}")] {
            // `run` returns when its command ends: text typed before the prompt appears is echoed twice.
            world.ok(&["wait-for", "-t", pane, "--prompt", "-T", "20"]);
            world.tmux(&["send-keys", "-t", pane, "-l", &typed]);
            eventually("it shows", || {
                let screen = screen(world, pane);
                screen.contains("echo >made") && screen.trim_end().ends_with(sign.trim_end())
            });
            let shown = || screen(world, pane).lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
            let before = shown();
            let answer = world.muxtap(&["run", "-t", pane, "-T", "10", "--", "echo ran >made"]);
            assert_eq!((answer.status, shown()), (1, before), "{name}: {answer:?}");
            starts_anew(world, pane);
        }
        assert!(!world.path("work/made").exists(), "{name}");
    });
}

/// busybox moves to the next row itself, and tmux does not know that the line goes on there.
#[test]
fn a_line_of_busybox_in_two_rows_is_no_prompt() {
    if !is_installed("busybox") {
        return;
    }
    let world = World::new();
    let shell = "PS1='me@host:~/src$ ' exec busybox ash";
    let pane = world.tmux(&["new-session", "-d", "-x", "60", "-y", "24", "-P", "-F", "#{pane_id}", shell]);
    eventually("the prompt shows", || last_line(&world, &pane).trim_end() == "me@host:~/src$");
    let full = format!("{:b<45}", "echo >made ");
    for known in [false, true] {
        for row in ["~/src $ ", "$ ", "/y $ ", "me@host:~/src$ "] {
            world.tmux(&["send-keys", "-t", &pane, "-l", &format!("{full}{row}")]);
            let shown = format!("{full}\n{}", row.trim_end());
            eventually("it shows", || screen(&world, &pane).trim_end().ends_with(&shown));
            let answer = world.muxtap(&["run", "-t", &pane, "-T", "10", "--", "echo ran >made"]);
            assert!(answer.status == 1 && answer.stderr.contains("nothing was run"), "{known}, {row}: {answer:?}");
            starts_anew(&world, &pane);
        }
        assert_eq!(ran(&world, &pane, &[], "echo known"), says("known\n", 0));
    }
    assert!(!world.path("work/made").exists());
}

/// The same before any command, at the prompts of distributions.
#[test]
fn half_a_line_at_a_common_prompt_is_no_prompt() {
    each_shell_at("60", "24", |world, pane, name| {
        let (prompt, shown) = match name {
            "fish" => ("function fish_prompt; echo -n 'me@host ~> '; end", "me@host ~> "),
            "zsh" => ("PS1='me@host dir %% '", "me@host dir % "),
            "bash" => ("PS1='me@host:~$ '", "me@host:~$ "),
            _ => return,
        };
        types(world, pane, prompt);
        world.tmux(&["send-keys", "-t", pane, "Enter"]);
        eventually("the prompt shows", || last_line(world, pane).trim_end() == shown.trim_end());
        // The last cell of the row is a blank that is typed.
        let wrapped = format!("{:a<width$} date +% ", "echo >made ", width = 59 - shown.len());
        for typed in ["ls # ", "./x /y $ ", "echo >made > ", "date +%", "date +% ", &wrapped] {
            world.tmux(&["send-keys", "-t", pane, "-l", typed]);
            let end = typed.split_whitespace().next_back().unwrap();
            eventually("it shows", || screen(world, pane).trim_end().ends_with(end));
            let answer = world.muxtap(&["run", "-t", pane, "-T", "10", "--", "echo ran >made"]);
            assert_eq!(answer.status, 1, "{name}: {typed}: {answer:?}");
            assert!(answer.stderr.contains("nothing was run"), "{name}: {typed}: {answer:?}");
            starts_anew(world, pane);
        }
        // What follows the cursor is no right prompt.
        world.tmux(&["send-keys", "-t", pane, "-l", "  echo >made"]);
        eventually("it shows", || last_line(world, pane).trim_end().ends_with("made"));
        world.tmux(&["send-keys", "-t", pane, "C-a"]);
        world.error("CONFLICT", &["run", "-t", pane, "-T", "10", "--", "echo ran >made"]);
        starts_anew(world, pane);
        assert_eq!(ran(world, pane, &[], "ls"), says("", 0), "{name}");
    });
}

/// What cannot be known without a key is refused: the terminal prints nothing.
#[test]
fn nothing_is_typed_to_find_out() {
    each_shell(|world, pane, name| {
        let prompt = if name == "fish" { "function fish_prompt; echo -n 'words '; end" } else { "PS1='words '" };
        types(world, pane, prompt);
        world.tmux(&["send-keys", "-t", pane, "Enter"]);
        eventually("the prompt shows", || last_line(world, pane).trim_end() == "words");
        let end = || world.muxtap(&["--json", "read", "-t", pane, "--since", "now"]).json()["cursor"].clone();
        let (before, shown) = (end(), screen(world, pane));
        let message = world.error("CONFLICT", &["run", "-t", pane, "-T", "20", "--", "touch ran"]);
        assert!(message.contains("cannot tell whether `words ` in pane"), "{name}: {message}");
        assert_eq!((end(), screen(world, pane)), (before, shown), "{name}");
        assert_eq!(ran(world, pane, &["--clear-line"], "echo cleared"), says("cleared\n", 0), "{name}");
        assert_eq!(ran(world, pane, &[], "ls"), says("", 0), "{name}: the prompt is known now");
    });
}

#[test]
fn what_is_typed_already_is_shown_and_stays_and_nothing_is_run() {
    each_shell(|world, pane, name| {
        for (by_muxtap, text) in [(false, "touch mixed1 "), (true, "touch mixed2 "), (false, "touch mixed3")] {
            // `run` returns when its command ends; text typed before the prompt appears is echoed
            // before it.
            world.ok(&["wait-for", "-t", pane, "--prompt"]);
            if by_muxtap {
                world.ok(&["send-keys", "-t", pane, "-l", text]);
                crate::common::eventually("it shows", || screen(world, pane).contains(text.trim_end()));
            } else {
                types(world, pane, text);
            }
            let answer = world.muxtap(&["--json", "run", "-t", pane, "--", "touch ran"]);
            let error = answer.error();
            assert_eq!(
                (&error["code"], &error["details"]["typed"]),
                (&"CONFLICT".into(), &text.into()),
                "{name}: {error}"
            );
            assert!(error["message"].as_str().unwrap().contains(text), "{name}: {error}");
            assert!(last_line(world, pane).ends_with(text.trim_end()), "{name}: {}", screen(world, pane));
            for file in ["mixed1", "mixed2", "mixed3", "ran"] {
                assert!(!world.path("work").join(file).exists(), "{name}: {file}");
            }
            assert_eq!(ran(world, pane, &["--clear-line"], "echo cleared"), says("cleared\n", 0), "{name}");
            assert_eq!(ran(world, pane, &[], "ls"), says("", 0), "{name}");
        }
    });
}

#[test]
fn a_cursor_in_the_middle_of_a_line_is_put_back() {
    each_shell(|world, pane, name| {
        if name == "sh" {
            return;
        }
        types(world, pane, "echo one two");
        world.tmux(&["send-keys", "-t", pane, "Left", "Left", "Left", "Left"]);
        world.error("CONFLICT", &["run", "-t", pane, "--", "touch ran"]);
        types(world, pane, "X");
        assert!(last_line(world, pane).contains("echo oneX two"), "{name}: {}", screen(world, pane));
        world.tmux(&["send-keys", "-t", pane, "Home", "C-a"]);
        world.error("CONFLICT", &["run", "-t", pane, "--", "touch ran"]);
        assert!(!world.path("work/ran").exists());
    });
}

#[test]
fn the_rest_of_a_command_is_not_what_run_types() {
    each_shell(|world, pane, name| {
        let text = if name == "fish" { "for i in 1 2" } else { "echo 'open" };
        types(world, pane, text);
        let row = || world.tmux(&["display-message", "-p", "-t", pane, "#{cursor_y}"]);
        let before = row();
        world.tmux(&["send-keys", "-t", pane, "Enter"]);
        // fish shows no prompt: it indents the next line.
        crate::common::eventually("the shell asks for the rest", || {
            row() != before && (name == "fish" || last_line(world, pane).ends_with('>'))
        });
        let answer = world.muxtap(&["--json", "run", "-t", pane, "-T", "20", "--", "touch ran"]);
        assert_eq!(answer.error()["code"], "CONFLICT", "{name}: {answer:?}");
        assert_eq!(ran(world, pane, &["--clear-line"], "echo cleared"), says("cleared\n", 0), "{name}");
        assert!(!world.path("work/ran").exists(), "{name}");
    });
}

/// Custom prompts for the rest of a command: any in bash, with colors too.
#[test]
fn a_prompt_for_the_rest_is_known_whatever_it_shows() {
    for (program, prompt) in [
        ("bash --norc", "PS2='more: '"),
        ("bash --norc", r"PS2='\[\e[1;33m\]more $ \[\e[0m\]'"),
        ("dash", "PS2='more: '"),
    ] {
        for (half, ended) in
            [("for i in 1 2; do", "echo again$i; done"), ("touch half &&", "true"), ("echo 'open", "closed'")]
        {
            let world = World::new();
            let pane = world.ok(&["new-session", "-x", "100", "--", "sh", "-c", &format!("exec {program}")]);
            world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
            assert_eq!(ran(&world, &pane, &[], prompt).1, 0);
            types(&world, &pane, half);
            world.tmux(&["send-keys", "-t", &pane, "Enter"]);
            crate::common::eventually("the shell asks for the rest", || {
                last_line(&world, &pane).contains("more") && !last_line(&world, &pane).contains(half)
            });
            let refused = |flags: &[&str]| {
                world.error("CONFLICT", &[&["run", "-t", &pane, "-T", "20"], flags, &["--", "touch ran"]].concat());
                assert!(!world.path("work/ran").exists() && !world.path("work/half").exists(), "{program} {half}");
            };
            refused(&[]);
            refused(&[]);
            // The incomplete command is still there and can be completed.
            world.tmux(&["send-keys", "-t", &pane, "-l", ended]);
            world.tmux(&["send-keys", "-t", &pane, "Enter"]);
            let done = || match half {
                "for i in 1 2; do" => screen(&world, &pane).contains("again2"),
                "touch half &&" => world.path("work/half").exists(),
                _ => screen(&world, &pane).lines().any(|line| line.trim_end() == "closed"),
            };
            crate::common::eventually(&format!("{program}: {half} {}", screen(&world, &pane)), done);
            std::fs::remove_file(world.path("work/half")).ok();
            world.ok(&["wait-for", "-t", &pane, "--prompt", "--settle", "0.3", "-T", "20"]);
            assert_eq!(ran(&world, &pane, &[], "echo on"), says("on\n", 0), "{program} {half}");
            types(&world, &pane, half);
            world.tmux(&["send-keys", "-t", &pane, "Enter"]);
            crate::common::eventually("the shell asks for the rest", || !last_line(&world, &pane).contains(half));
            assert_eq!(ran(&world, &pane, &["--clear-line"], "echo cleared"), says("cleared\n", 0), "{program} {half}");
            assert!(!world.path("work/half").exists(), "{program}: a mixture was run");
        }
    }
}

/// Its echo is above the prompt, which is empty.
#[test]
fn what_was_typed_while_a_command_ran_is_seen() {
    each_shell(|world, pane, name| {
        let go = world.path("go").display().to_string();
        let wait = format!("sh -c 'echo begun; until test -e {go}; do sleep 0.1; done; echo end''ed'");
        world.tmux(&["send-keys", "-t", pane, &wait, "Enter"]);
        world.await_output(pane, "(?m)^begun$");
        world.tmux(&["send-keys", "-t", pane, "-l", "touch mixed "]);
        crate::common::eventually("it shows", || screen(world, pane).contains("touch mixed"));
        std::fs::write(&go, "").unwrap();
        world.await_output(pane, "(?m)ended\r?$");
        let answer = world.muxtap(&["--json", "run", "-t", pane, "-T", "20", "--", "touch ran"]);
        let error = answer.error();
        assert_eq!(
            (&error["code"], &error["details"]["typed"]),
            (&"CONFLICT".into(), &"touch mixed ".into()),
            "{name}: {error}"
        );
        for file in ["mixed", "ran"] {
            assert!(!world.path("work").join(file).exists(), "{name}: {file}");
        }
    });
}

#[test]
fn somebody_who_types_while_it_starts() {
    each_shell(|world, pane, name| {
        for round in 0..8_u64 {
            let running = world.spawn(&["run", "-t", pane, "-T", "20", "--", "echo clean"]);
            std::thread::sleep(Duration::from_millis(round * 4));
            for letter in ["touch", " mixed", " "] {
                world.tmux(&["send-keys", "-t", pane, "-l", letter]);
            }
            let answer = running.finish();
            if answer.status == 0 {
                // Text typed while the command runs is echoed within its output, before or after
                // what it prints.
                let text = answer.text();
                let (before, after) = text.split_once("clean\n").unwrap_or_else(|| panic!("{name}: {answer:?}"));
                assert!("touch mixed ".contains(&[before, after].concat()), "{name}: {answer:?}");
            } else {
                let told = ["already contains", "is typing", "cannot tell"];
                assert!(told.iter().any(|told| answer.stderr.contains(told)), "{name}: {answer:?}");
            }
            starts_anew(world, pane);
            let left: Vec<_> =
                std::fs::read_dir(world.path("work")).unwrap().map(|file| file.unwrap().file_name()).collect();
            assert!(left.is_empty(), "{name}: a mixture was run: {left:?} {}", screen(world, pane));
        }
    });
}

#[test]
fn vi_keys_are_understood() {
    for (program, on) in [
        ("bash --norc", "set -o vi"),
        ("zsh -f", "bindkey -v"),
        // Without its configuration its vi mode has no key bindings.
        ("fish", "fish_vi_key_bindings"),
    ] {
        let world = World::new();
        let pane = world.ok(&["new-session", "-x", "100", "--", "sh", "-c", &format!("exec {program}")]);
        world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
        ran(&world, &pane, &[], on);
        assert_eq!(ran(&world, &pane, &[], "echo vi"), says("vi\n", 0), "{program}");
        types(&world, &pane, "touch mixed ");
        let answer = world.muxtap(&["--json", "run", "-t", &pane, "--", "echo no"]);
        let shown = screen(&world, &pane);
        assert_eq!(answer.error()["details"]["typed"], "touch mixed ", "{program}: {answer:?} {shown}");
        assert_eq!(ran(&world, &pane, &["--clear-line"], "echo yes"), says("yes\n", 0), "{program}");
        assert!(!world.path("work/mixed").exists(), "{program}");
    }
}

#[test]
fn the_screen_shows_the_prompt_the_command_and_its_output() {
    // In the last size the typed line takes several rows, at the bottom of the screen.
    for (columns, rows) in [("80", "24"), ("200", "24"), ("61", "12"), ("40", "14")] {
        each_shell_at(columns, rows, |world, pane, name| {
            let shown = || {
                let screen = screen(world, pane);
                screen.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
            };
            let before = shown();
            let prompt = before.lines().last().unwrap_or_default().to_owned();
            let mut wanted = before.strip_suffix(&prompt).unwrap().to_owned();
            for command in ["echo one", "seq 1 12", "printf '%s\\n' \"it's\" äöü", "true"] {
                let (output, status) = ran(world, pane, &[], command);
                assert_eq!(status, 0, "{name}: {command}");
                wanted.extend([&prompt, " ", command, "\n", &output]);
            }
            wanted.push_str(&prompt);
            crate::common::eventually(&format!("{name} {columns}x{rows}"), || shown() == wanted.trim_end());
            let captured = world.ok(&["capture-pane", "-t", pane, "-S", "-"]);
            assert!(!captured.contains("7717") && !captured.contains("_muxtap"), "{name}: {captured}");
        });
    }
}

#[test]
fn the_history_holds_no_line_of_muxtap() {
    for (name, _, history) in SHELLS {
        each_shell(|world, pane, this| {
            if this != name || name == "sh" {
                return;
            }
            world.ok(&["send-keys", "-t", pane, "echo by''-hand", "Enter"]);
            world.await_output(pane, "(?m)^by-hand$");
            world.ok(&["wait-for", "-t", pane, "--prompt"]);
            for command in ["echo one", "echo 'it''s'\necho two", "cd ."] {
                assert_eq!(ran(world, pane, &[], command).1, 0);
            }
            let (listed, _) = ran(world, pane, &[], history);
            assert!(listed.contains("by''-hand"), "{name}: what was there stays: {listed}");
            assert!(!listed.contains("7717") && !listed.contains("muxtap"), "{name}: {listed}");
            world.ok(&["send-keys", "-t", pane, history, "Enter"]);
            world.ok(&["wait-for", "-t", pane, "--prompt"]);
            let shown = screen(world, pane);
            assert!(!shown.contains("7717") && !shown.contains("muxtap"), "{name}: {shown}");
        });
    }
}

#[test]
fn a_history_that_forgets_lines_with_a_space_loses_nothing() {
    let mut world = World::new();
    world.set("HISTCONTROL", "ignoreboth");
    let pane = world.ok(&["new-session", "--", "bash", "--norc"]);
    world.ok(&["send-keys", "-t", &pane, "echo by''-hand", "Enter"]);
    world.await_output(&pane, "(?m)^by-hand$");
    ran(&world, &pane, &[], "echo one");
    let (listed, _) = ran(&world, &pane, &[], "history");
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["1", "echo", "by''-hand"]);
}

#[test]
fn the_shells_own_end_is_seen() {
    each_shell(|world, pane, name| {
        // A shell within the shell: the pane continues when it ends.
        let program = SHELLS.iter().find(|(known, ..)| *known == name).unwrap().1;
        world.ok(&["send-keys", "-t", pane, program, "Enter"]);
        world.ok(&["wait-for", "-t", pane, "--prompt", "--settle", "0.3"]);
        // The timeout is too long for this test: an unnoticed end is a hang.
        let answer = world.muxtap(&["--json", "run", "-t", pane, "-T", "3600", "--", "echo bye; exit 3"]);
        let told = answer.json();
        assert_eq!(
            (&told["shell_ended"], &told["exit_status"]),
            (&true.into(), &serde_json::Value::Null),
            "{name}: {told}"
        );
        assert!(told["output"].as_str().unwrap().starts_with("bye\n"), "{name}: {told}");
        // The pane's own shell, killed.
        let kill = if name == "fish" { "kill -9 $fish_pid" } else { "kill -9 $$" };
        let answer = world.muxtap(&["--json", "run", "-t", pane, "-T", "3600", "--", kill]);
        // tmux may have dropped all its output: then it is unknown whether the command ran, which
        // is not a success.
        let told = if answer.stdout.is_empty() { answer.error()["details"].clone() } else { answer.json() };
        assert_eq!(told["shell_ended"], true, "{name}: {answer:?}");
    });
}

#[test]
fn the_command_that_is_shown_is_no_answer_to_a_wait() {
    each_shell(|world, pane, name| {
        let running =
            world.spawn(&["run", "-t", pane, "-T", "30", "--", "sh -c 'echo begun; read x; echo BAN''ANA BANANA'"]);
        world.await_output(pane, "(?m)^begun$");
        let early = world.muxtap(&["wait-for", "-t", pane, "-p", "BANANA", "-T", "0.4"]);
        assert_eq!(early.status, 124, "{name}: the command was taken for its output: {early:?}");
        let waiting = world.spawn(&["--json", "wait-for", "-t", pane, "-p", "BANANA.*", "-T", "20"]);
        world.tmux(&["send-keys", "-t", pane, "Enter"]);
        let answer = waiting.finish();
        assert_eq!(answer.json()["predicates"][0]["line"], "BANANA BANANA", "{name}: {answer:?}");
        assert_eq!(running.finish().status, 0, "{name}");
    });
}

#[test]
fn wide_characters_are_gone_over_one_by_one() {
    each_shell(|world, pane, name| {
        // If the locale lacks such characters, a line editor shows bytes.
        if name == "sh" {
            return;
        }
        types(world, pane, "echo 日本語x");
        world.tmux(&["send-keys", "-t", pane, "Left", "Left", "Left"]);
        world.error("CONFLICT", &["run", "-t", pane, "--", "touch ran"]);
        types(world, pane, "X");
        assert!(last_line(world, pane).contains("echo 日X本語x"), "{name}: {}", screen(world, pane));
    });
}

#[test]
fn a_command_that_is_interrupted_in_the_pane_is_no_time_out() {
    each_shell(|world, pane, name| {
        if name == "sh" || name == "fish" {
            return;
        }
        // Neither the command nor its timeout ends by itself in this test.
        let running = world.spawn(&["--json", "run", "-t", pane, "-T", "3600", "--", "echo begun; sleep 3600"]);
        world.await_output(pane, "(?m)^begun$");
        // An earlier Ctrl-C would be for the shell and not for the command.
        crate::common::eventually("it runs", || {
            world.tmux(&["display-message", "-p", "-t", pane, "#{pane_current_command}"]) == "sleep"
        });
        world.tmux(&["send-keys", "-t", pane, "C-c"]);
        let answer = running.finish();
        assert_ne!(answer.status, 124, "{name}: {answer:?}");
        assert_eq!(ran(world, pane, &[], "echo on"), says("on\n", 0), "{name}");
    });
}

#[test]
fn a_caller_that_goes_away_leaves_nothing_on_the_line() {
    let world = World::new();
    let pane = world.ok(&["new-session", "--", "bash", "--norc"]);
    world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
    let before = last_line(&world, &pane);
    for pause in [20, 60, 120, 200] {
        let running = world.spawn(&["run", "-t", &pane, "-T", "20", "--", "true"]);
        std::thread::sleep(Duration::from_millis(pause));
        running.kill();
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(last_line(&world, &pane), before, "{}", screen(&world, &pane));
    }
}

/// A running program in the pane ends first, within the timeout.
#[test]
fn what_runs_is_awaited() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "main"]);
    world.ok(&["send-keys", "-t", &pane, "cat", "Enter"]);
    world.ok(&["send-keys", "-t", &pane, "here", "Enter"]);
    world.await_output(&pane, "^here\nhere|^here$");
    let refused = world.muxtap(&["run", "-t", &pane, "-T", "2", "echo no"]);
    assert!(refused.status == 1 && refused.stderr.contains("`cat` is running"), "{refused:?}");
    let run = world.spawn(&["run", "-t", &pane, "-T", "30", "echo y'e's"]);
    world.ok(&["send-keys", "-t", &pane, "still", "Enter"]);
    world.await_output(&pane, "^still");
    world.ok(&["send-keys", "-t", &pane, "C-d"]);
    let run = run.finish();
    assert_eq!((run.status, run.text().as_str()), (0, "yes\n"), "{run:?}");
}

/// Ctrl-C at `run` reaches the command.
#[test]
fn a_run_is_interrupted_as_at_its_own_terminal() {
    each_shell(|world, pane, name| {
        let run = world.spawn(&["run", "-t", pane, "-T", "3600", "echo begun; sleep 3600"]);
        world.ok(&["wait-for", "-t", pane, "-p", "^begun$", "--since", "start", "-T", "20"]);
        crate::common::eventually("it sleeps", || {
            world.tmux(&["display-message", "-p", "-t", pane, "#{pane_current_command}"]) == "sleep"
        });
        crate::common::signal(run.pid(), rustix::process::Signal::INT);
        let run = run.finish();
        assert!(run.status == 130 && run.stderr.contains("interrupted"), "{name}: {run:?}");
        world.ok(&["run", "-t", pane, "-T", "20", "true"]);
    });
}

/// A pager waits for a person; a caller without a timeout gets its name.
#[test]
fn a_pager_or_question_that_waits_is_named() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "main"]);
    let late = world.muxtap(&["run", "-t", &pane, "-T", "2", "less /etc/services"]);
    assert!(late.status == 124 && late.stderr.contains("less"), "{late:?}");
    world.ok(&["send-keys", "-t", &pane, "q"]);
    let late = world.muxtap(&["run", "-t", &pane, "-T", "2", "printf 'Overwrite? '; read answer"]);
    assert!(late.status == 124 && late.stderr.contains("its last line is `Overwrite?`"), "{late:?}");
}

/// A shell that reads a key (`read -n1`) looks like one at its prompt: whatever is typed to find
/// out would be the answer.
#[test]
fn a_question_of_the_shell_is_answered_by_its_user_only() {
    for (program, ask) in [
        ("bash --norc", "read -n1 -p 'Install? ' a; echo \"<$a>\""),
        ("bash --norc", "read -sn1 -p 'Install? ' a; echo \"<$a>\""),
        ("zsh -f", "read -k1 'a?Install? '; echo \"<$a>\""),
        ("zsh -f", "read -q 'a?Install? '; echo \"<$a>\""),
        ("zsh -f", "read -sk1 'a?Install? '; echo \"<$a>\""),
    ] {
        if !is_installed(program.split(' ').next().unwrap()) {
            continue;
        }
        let world = World::new();
        let pane = world.tmux(&["new-session", "-d", "-s", "main", "-P", "-F", "#{pane_id}", program]);
        world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
        world.tmux(&["send-keys", "-t", &pane, "-l", ask]);
        world.tmux(&["send-keys", "-t", &pane, "Enter"]);
        world.ok(&["wait-for", "-t", &pane, "--screen", "(?m)^Install\\? *$", "-T", "20"]);
        let before = screen(&world, &pane);
        let path = format!("/v1/panes/{}/run{}", pane.replace('%', "%25"), world.query());
        for clear in [false, true] {
            // The question is not waited for; the timeout is far.
            let run = json!({"command": "echo hi", "prompt_ms": 0, "timeout_ms": 60_000, "clear_line": clear});
            let refused = world.http("POST", &path, Some(&run));
            let message = refused.json()["message"].to_string();
            assert!(refused.status == 409 && message.contains("answer to a question"), "{ask}: {message}");
        }
        assert_eq!(screen(&world, &pane), before, "{ask}");
        world.tmux(&["send-keys", "-t", &pane, "y"]);
        crate::common::eventually("the answer is the user's", || screen(&world, &pane).contains("<y>"));
        assert_eq!(world.ok(&["run", "-t", &pane, "-T", "20", "echo hi"]), "hi", "{ask}");
    }
}
