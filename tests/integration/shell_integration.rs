//! The marks that real shells print in a pane with `muxtap shell-integration`, compared with each shell's own log.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::common::{World, eventually, is_installed, run};

/// What is typed at a prompt.
enum Typed {
    /// A command: its text, the text that `C` has (`None`: the same), its status, and the statuses in its pipeline.
    Line(&'static str, Option<&'static str>, i32, &'static str),
    Empty,
    /// A text, and Ctrl-C.
    Interrupt,
}

use Typed::{Empty, Interrupt, Line};

/// What every shell with a hook before commands is given.
const COMMON: [Typed; 8] = [
    Line("true", None, 0, "0"),
    Line("false | true", None, 0, "1 0"),
    Empty,
    Line("cd 'ö b'", None, 0, "0"),
    Line(r#"echo "é ü'x" \\ 100%"#, None, 0, "0"),
    Line("echo \"a\nb\"", None, 0, "0"),
    Interrupt,
    Line("echo -n no-newline", None, 0, "0"),
];

/// Not with `set -e`, which would end the shell.
const FAILING: &[Typed] = &[Line("sh -c 'exit 7'", None, 7, "7"), Line("echo s=$?", None, 0, "0")];

/// A shell in a pane, with its output in a file.
struct Pane<'a> {
    world: &'a World,
    id: String,
    output: PathBuf,
}

impl<'a> Pane<'a> {
    /// Starts a program whose every byte is in the file.
    fn start(world: &'a World, name: &str, program: &str, env: &[(&str, &str)]) -> Self {
        let (output, gate) = (world.path(&format!("{name}.out")), world.path(&format!("{name}.go")));
        mkfifoat(CWD, &gate, Mode::RUSR | Mode::WUSR).unwrap();
        let mut command = format!("read -r _ < {}; exec env", gate.display());
        for (name, value) in env {
            let _ = write!(command, " {name}='{value}'");
        }
        let work = world.path("work").display().to_string();
        let command = format!("{command} {program}");
        let id = world.tmux(&["new-window", "-d", "-c", &work, "-P", "-F", "#{pane_id}", &command]);
        world.tmux(&["pipe-pane", "-O", "-t", &id, &format!("cat > {}", output.display())]);
        eventually("the output is in a file", || output.exists());
        std::fs::write(gate, "\n").unwrap();
        Self { world, id, output }
    }

    fn keys(&self, keys: &[&str]) {
        self.world.tmux(&[&["send-keys", "-t", &self.id], keys].concat());
    }

    fn screen(&self) -> String {
        self.world.tmux(&["capture-pane", "-p", "-S", "-", "-t", &self.id])
    }

    /// Returns the marks: `A`, `D;7`, `cd PATH`, without the host.
    fn marks(&self) -> Vec<String> {
        let bytes = std::fs::read(&self.output).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut marks = Vec::new();
        for part in text.split("\x1b]").skip(1) {
            let Some(end) = part.find(['\x07', '\x1b']) else { continue };
            if let Some(mark) = part[..end].strip_prefix("133;") {
                // `B` says which shell it is; `run_behind` depends on that.
                let names = ["bash", "zsh", "fish", "sh", "dash"].map(|name| format!("B;shell={name}"));
                let name = names.iter().find(|name| mark.starts_with(name.as_str()));
                marks.push(name.map_or_else(|| mark.to_owned(), |name| mark.replacen(name.as_str(), "B", 1)));
            } else if let Some((_, path)) = part[..end].strip_prefix("7;file://").and_then(|url| url.split_once('/')) {
                marks.push(format!("cd /{path}"));
            }
        }
        marks
    }

    /// Waits until a number of prompts is complete.
    fn prompts(&self, count: usize) {
        let is = |mark: &String, kind: &str| mark == kind || mark.starts_with(&format!("{kind};"));
        eventually(&format!("prompt {count}: {:?}\n{}", self.marks(), self.screen()), || {
            let marks = self.marks();
            let mut begins = marks.iter().enumerate().filter(|(_, mark)| is(mark, "A"));
            begins.nth(count - 1).is_some_and(|(at, _)| marks[at..].iter().any(|mark| is(mark, "B")))
        });
    }

    /// Types at a prompt; returns once the next one is complete.
    fn type_in(&self, typed: &Typed, prompts: usize) {
        match typed {
            Line(text, ..) => {
                for line in text.split('\n') {
                    self.keys(&["-l", line]);
                    self.keys(&["Enter"]);
                }
            }
            Empty => self.keys(&["Enter"]),
            Interrupt => {
                self.keys(&["-l", "unfinished"]);
                eventually("it is displayed", || self.screen().contains("unfinished"));
                // fish loses a Ctrl-C that comes while it draws its prompt once more (N73).
                let size = || std::fs::metadata(&self.output).unwrap().len();
                eventually("it draws nothing more", || {
                    let before = size();
                    std::thread::sleep(std::time::Duration::from_millis(300));
                    size() == before
                });
                self.keys(&["C-c"]);
            }
        }
        self.prompts(prompts + 1);
    }
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'~' | b'-' => all.push(byte.into()),
            _ => write!(all, "%{byte:02X}").unwrap(),
        }
        all
    })
}

/// Returns the marks of prompts and commands, with an option on each that is not a directory.
fn expected(world: &World, typed: &[&Typed], option: &str) -> Vec<String> {
    let mut directory = world.path("work").display().to_string();
    let mut marks = Vec::new();
    for typed in typed {
        marks.push(format!("cd {directory}"));
        marks.extend(["A", "B"].map(|mark| format!("{mark}{option}")));
        match typed {
            Line(text, recorded, status, _) => {
                marks.push(format!("C;cmdline_url={}{option}", encoded(recorded.unwrap_or(text))));
                marks.push(format!("D;{status}{option}"));
                if text.starts_with("cd ") {
                    directory.push_str("/%C3%B6%20b");
                }
            }
            Empty | Interrupt => marks.push(format!("D{option}")),
        }
    }
    marks.push(format!("cd {directory}"));
    marks.extend(["A", "B"].map(|mark| format!("{mark}{option}")));
    marks
}

/// A shell under test.
struct Shell {
    name: &'static str,
    /// The command line; `RC` is its startup file.
    program: &'static str,
    /// How the startup file reads the integration from `SCRIPT`.
    eval: &'static str,
    /// Lines of the startup file that set a prompt.
    prompt: &'static str,
    /// Lines that log `$?` and the pipeline's statuses at each prompt.
    log: &'static str,
    failing: &'static [Typed],
    /// What is typed besides [`COMMON`].
    own: &'static [Typed],
}

/// Runs a shell with lines of its startup file before and after the integration. `NONCE`: with a nonce.
fn variant(world: &World, shell: &Shell, name: &str, before: &str, after: &str) {
    let file = |suffix: &str| world.path(&format!("{name}.{suffix}"));
    let log = file("log").display().to_string();
    let is_logged = before.contains("LOG") || after.contains("LOG");
    let filled = |text: &str| {
        let text = text.replace("LOG", &shell.log.replace("LOG", &log)).replace("EVAL", shell.eval);
        text.replace("SCRIPT", &world.path("script").display().to_string())
    };
    let rc = format!("{}\n{}\n{}\n{}\n", shell.prompt, filled(before), filled("EVAL"), filled(after));
    home(&file("home"));
    let rc_path = file("home").join(".zshrc");
    std::fs::write(&rc_path, rc).unwrap();
    let home = file("home").display().to_string();
    let mut env = vec![("HOME", home.as_str()), ("ZDOTDIR", home.as_str()), ("HISTFILE", "/dev/null")];
    let option = if name.contains("nonce") { ";muxtap=Nonce.1" } else { "" };
    if !option.is_empty() {
        env.push(("MUXTAP_SHELL_NONCE", "Nonce.1"));
    }
    let pane = Pane::start(world, name, &shell.program.replace("RC", &rc_path.display().to_string()), &env);
    let failing = if after.contains("set -e") { &[] } else { shell.failing };
    let typed: Vec<&Typed> = COMMON.iter().chain(failing).chain(shell.own).collect();
    pane.prompts(1);
    for (at, typed) in typed.iter().enumerate() {
        pane.type_in(typed, at + 1);
    }
    let (mut marks, screen) = (pane.marks(), pane.screen());
    if shell.name == "fish" {
        // fish draws a prompt again after some keys.
        marks.dedup();
    }
    assert_eq!(marks, expected(world, &typed, option), "{name}\n{screen}");
    assert!(failing.is_empty() || screen.contains("\ns=7"), "{name}\n{screen}");
    // Nothing that the shell prints itself is between a command's output and `D` but ST, for open strings.
    let output = String::from_utf8_lossy(&std::fs::read(&pane.output).unwrap()).into_owned();
    assert!(output.contains("no-newline\x1b\\\x1b]133;D;0"), "{name}\n{output:?}");
    // A DEBUG trap of zsh sees the names of the hooks.
    assert!(!screen.contains("muxtap") || name.contains("zsh-debug"), "{name}\n{screen}");
    let end = if name == "ps0-st" { "\x1b\\" } else { "\x07" };
    assert!(!name.starts_with("ps0") || output.contains(&format!("\x1b]3008;start=1{end}\x1b]133;C;")), "{output:?}");
    if is_logged {
        let logged = std::fs::read_to_string(&log).unwrap();
        let mut logged = logged.lines().skip(1);
        for typed in &typed {
            let line = match typed {
                // fish draws this prompt without its event.
                Interrupt if shell.name == "fish" => continue,
                _ => logged.next().unwrap_or_else(|| panic!("{name}: no line in the log")),
            };
            if let Line(text, _, status, pipeline) = typed {
                assert_eq!(line, format!("{status} {pipeline}"), "{name}: {text}");
            }
        }
    }
    if !option.is_empty() {
        pane.keys(&["-l", "env > env.txt; echo do''ne"]);
        pane.keys(&["Enter"]);
        pane.prompts(typed.len() + 2);
        let seen = std::fs::read_to_string(world.path("work/ö b/env.txt")).unwrap();
        assert!(!seen.contains("Nonce.1"), "{name}: {seen}");
    }
    world.tmux(&["kill-window", "-t", &pane.id]);
}

/// Creates a home in which fish does not begin to read all manual pages.
fn home(path: &Path) {
    std::fs::create_dir_all(path.join(".local/share/fish/generated_completions")).unwrap();
}

/// Creates a world with a server, the integration of a shell and a directory to enter.
fn world(shell: &str) -> World {
    let world = World::new();
    std::fs::create_dir(world.path("work/ö b")).unwrap();
    home(&world.path("home"));
    let script = run(world.plain_muxtap_command().args(["shell-integration", shell]));
    assert_eq!((script.status, script.stderr.as_str()), (0, ""));
    std::fs::write(world.path("script"), script.stdout).unwrap();
    world.tmux(&["new-session", "-d", "-s", "main", "-x", "100", "-y", "40", "exec cat"]);
    world.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    world
}

const EVAL: &str = "eval \"$(cat SCRIPT)\"";

const BASH: Shell = Shell {
    name: "bash",
    program: "bash --noprofile --rcfile RC -i",
    eval: EVAL,
    prompt: "PS1='$ '",
    log: r#"'echo "$? ${PIPESTATUS[*]}" >> LOG'"#,
    failing: FAILING,
    own: &[
        // bash joins the lines in its history.
        Line("for i in 1 2; do\necho $i\ndone", Some("for i in 1 2; do echo $i; done"), 0, "0"),
        Line("cat <<X\nhi $HOME\nX", None, 0, "0"),
        Line("echo 'last'", None, 0, "0"),
    ],
};

#[test]
fn bash_marks_each_command() {
    if !is_installed("bash") {
        return;
    }
    let world = world("bash");
    let newer = "((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501))";
    let is_older = !std::process::Command::new("bash").args(["-c", newer]).status().unwrap().success();
    for (name, before, after) in [
        ("plain", "", ""),
        ("nonce", "", ""),
        ("nonce-exported", "set -a", "export PS1 PS0"),
        ("twice", "", "EVAL"),
        ("string", "PROMPT_COMMAND=LOG", ""),
        ("array", "PROMPT_COMMAND=('true' LOG 'false')", ""),
        ("later", "", r#"PROMPT_COMMAND="${PROMPT_COMMAND[0]-}; "LOG"#),
        ("new-prompt", "PROMPT_COMMAND=\"PS1='> '\"", ""),
        ("ps0", r#"PS0='\e]3008;start=1\a'; PROMPT_COMMAND+=('printf "\e]3008;end=1\a"')"#, ""),
        ("ps0-st", r"PS0='\e]3008;start=1\e\\'", ""),
        ("debug", "trap 'echo D:$BASH_COMMAND' DEBUG; trap 'echo E' ERR; PROMPT_COMMAND=LOG", ""),
        ("xu", "PROMPT_COMMAND=LOG", "set -x -u"),
        ("e", "", "set -e"),
        ("pipefail-functrace", "", "set -TE"),
        ("vi", "bind 'set show-mode-in-prompt on'; set -o vi", ""),
        ("two-lines", "PS1='top\\n$ '", ""),
        ("alias", "alias printf=false builtin=false history=false local=false set=false return=false", ""),
        ("ignoreboth", "HISTCONTROL=ignoreboth", ""),
    ] {
        // Before bash 5.1 there is one entry.
        if is_older && before.contains('(') && before.contains("PROMPT_COMMAND") {
            continue;
        }
        variant(&world, &BASH, name, before, after);
    }
}

const ZSH: Shell = Shell {
    name: "zsh",
    program: "zsh -i",
    eval: EVAL,
    prompt: "PS1='$ '",
    log: r#"{ echo "$? $pipestatus" >> LOG }"#,
    failing: FAILING,
    own: &[
        Line("for i in 1 2; do\necho $i\ndone", None, 0, "0"),
        Line("cat <<X\nhi $HOME\nX", None, 0, "0"),
        Line("echo 'last'", None, 0, "0"),
    ],
};

#[test]
fn zsh_marks_each_command() {
    if !is_installed("zsh") {
        return;
    }
    let world = world("zsh");
    for (name, before, after) in [
        ("plain", "", ""),
        ("nonce", "", ""),
        ("nonce-exported", "setopt all_export prompt_subst", ""),
        ("twice", "", "EVAL"),
        ("precmd", "precmd() LOG", ""),
        ("array", "", "mine() LOG\nprecmd_functions+=(mine); preexec_functions+=(true)"),
        ("new-prompt", "precmd() { PS1='> ' }", ""),
        ("zsh-debug", "trap 'echo D' DEBUG; trap 'echo E' ERR", ""),
        ("xu", "precmd() LOG", "set -x -u"),
        ("percent", "PS1=%", ""),
        ("e", "", "set -e"),
        ("vi", "bindkey -v", ""),
        ("two-lines", "PS1=$'top\\n$ '", ""),
        ("right", "RPS1=right", ""),
        ("alias", "alias printf=false builtin=false print=false typeset=false; alias -g if=false fi=false", ""),
        ("no-prompt-sp", "setopt no_prompt_sp", ""),
        ("eol-mark", "PROMPT_EOL_MARK=", ""),
        ("options", "setopt ksh_arrays sh_word_split glob_subst no_unset", ""),
    ] {
        variant(&world, &ZSH, name, before, after);
    }
}

const FISH: Shell = Shell {
    name: "fish",
    program: "fish -i -C \"source RC\"",
    eval: "source SCRIPT",
    prompt: "set -g fish_greeting; function fish_prompt; set -l s $status; echo -n \"[$s]\\$ \"; end",
    log: "function logged --on-event fish_prompt; echo \"$status $pipestatus\" >> LOG; end",
    failing: &[Line("sh -c 'exit 7'", None, 7, "7"), Line("echo s=$status", None, 0, "0")],
    own: &[Line("for i in 1 2\necho $i\nend", None, 0, "0"), Line("echo 'last'", None, 0, "0")],
};

#[test]
fn fish_marks_each_command() {
    if !is_installed("fish") {
        return;
    }
    let world = world("fish");
    let version = run(world.command("fish").arg("--version")).text();
    if !version.contains(" 3.") {
        eprintln!("skipped: {} prints marks of its own", version.trim());
        return;
    }
    for (name, before, after) in [
        ("plain", "", ""),
        ("nonce", "", ""),
        ("twice", "", "EVAL"),
        ("event", "LOG", ""),
        ("new-prompt", "", "function fish_prompt; echo '> '; end"),
        ("vi", "fish_vi_key_bindings", ""),
        ("two-lines", "function fish_prompt; echo top; echo -n '$ '; end", ""),
        ("right", "function fish_right_prompt; echo right; end", ""),
        ("alias", "alias printf=false", ""),
    ] {
        variant(&world, &FISH, name, before, after);
    }
}

/// These shells have no hook before a command, so they print no `C`.
#[test]
fn posix_shells_mark_their_prompts() {
    let world = world("sh");
    for (name, program, shell) in [
        ("dash", "dash", "dash -i"),
        ("ash", "busybox", "busybox ash -i"),
        ("mksh", "mksh", "mksh -i"),
        ("ksh", "ksh", "ksh -i"),
        ("sh-bash", "bash", "bash --posix -i"),
    ] {
        if !is_installed(program) {
            continue;
        }
        for (variant, before, after) in [
            ("plain", "", ""),
            ("twice", "", EVAL),
            ("nonce-exported", "set -a", "export PS1"),
            ("xu", "set -u", "set -x"),
            ("alias", "alias printf=false test=false", ""),
        ] {
            let name = format!("{name}-{variant}");
            let rc = world.path(&name);
            let text = format!("PS1='[$?]$ '\n{before}\n{EVAL}\n{after}\n");
            std::fs::write(&rc, text.replace("SCRIPT", &world.path("script").display().to_string())).unwrap();
            let rc = rc.display().to_string();
            let nonce = if variant.contains("nonce") { "Nonce.1" } else { "" };
            let option = if nonce.is_empty() { "" } else { ";muxtap=Nonce.1" };
            let env = [("ENV", rc.as_str()), ("MUXTAP_SHELL_NONCE", nonce), ("HISTFILE", "/dev/null")];
            let pane = Pane::start(&world, &name, shell, &env);
            pane.prompts(1);
            let typed = ["true", "sh -c 'exit 7'", "echo s=$?", "cd 'ö b'", "env > env.txt"];
            let mut marks = Vec::new();
            for (at, status) in [0, 0, 7, 0, 0, 0].into_iter().enumerate() {
                let directory = world.path(if at < 4 { "work" } else { "work/ö b" }).display().to_string();
                marks.extend([format!("D;{status}{option}"), format!("cd {directory}")]);
                marks.extend([format!("A{option}"), format!("B{option}")]);
                if let Some(line) = typed.get(at) {
                    pane.type_in(&Line(line, None, 0, ""), at + 1);
                }
            }
            let decoded =
                |mark: &String| percent_encoding::percent_decode_str(mark).decode_utf8().unwrap().into_owned();
            let screen = pane.screen();
            assert_eq!(pane.marks().iter().map(decoded).collect::<Vec<_>>(), marks, "{name}\n{screen}");
            assert!(screen.contains("\ns=7") && !screen.contains("__muxtap"), "{name}\n{screen}");
            // The prompt sees the status.
            assert!(screen.contains("[7]$ echo s="), "{name}\n{screen}");
            let output = String::from_utf8_lossy(&std::fs::read(&pane.output).unwrap()).into_owned();
            assert!(output.contains("\x1b\\\x1b]133;D;7"), "{name}\n{output:?}");
            // Only dash has no line editor.
            let expected = if program == "dash" { "B;shell=dash" } else { "B;shell=sh" };
            assert!(output.contains(&format!("{expected}{option}\x07")), "{name}\n{output:?}");
            let seen = std::fs::read_to_string(world.path("work/ö b/env.txt")).unwrap();
            assert!(!seen.contains("Nonce.1"), "{name}: {seen}");
            world.tmux(&["kill-window", "-t", &pane.id]);
        }
    }
}

#[test]
fn an_exported_prompt_has_its_marks_once_in_a_shell_within_a_shell() {
    let world = world("sh");
    for (program, shell) in [("dash", "dash -i"), ("mksh", "mksh -i"), ("ksh", "ksh -i")] {
        if !is_installed(program) {
            continue;
        }
        let rc = world.path(&format!("{program}.rc"));
        let text = format!("case $PS1 in *own*) ;; *) PS1='own$ ' ;; esac\nexport PS1\n{EVAL}\n");
        std::fs::write(&rc, text.replace("SCRIPT", &world.path("script").display().to_string())).unwrap();
        let rc = rc.display().to_string();
        let pane = Pane::start(&world, program, shell, &[("ENV", rc.as_str()), ("HISTFILE", "/dev/null")]);
        pane.prompts(1);
        pane.type_in(&Line(shell, None, 0, ""), 1);
        pane.type_in(&Line(shell, None, 0, ""), 2);
        let directory = format!("cd {}", world.path("work").display());
        let prompt = ["D;0", directory.as_str(), "A", "B"];
        assert_eq!(pane.marks(), prompt.repeat(3), "{program}\n{}", pane.screen());
    }
}

/// `activate.fish` copies the prompt, defines its own, which calls the copy, and restores the copy at the end.
#[test]
fn a_python_environment_and_its_end_leave_the_prompt_of_fish() {
    if !is_installed("fish") {
        return;
    }
    let world = world("fish");
    let activate = "
        functions -c fish_prompt _old_fish_prompt
        function fish_prompt
            set -l old_status $status
            printf '(venv) '
            echo \"exit $old_status\" | source
            _old_fish_prompt
        end
        function deactivate
            functions -e fish_prompt
            functions -c _old_fish_prompt fish_prompt
            functions -e _old_fish_prompt
        end
    ";
    std::fs::write(world.path("work/activate.fish"), activate).unwrap();
    let (rc, script) = (world.path("home/rc.fish"), world.path("script").display().to_string());
    std::fs::write(&rc, format!("{}\nsource {script}\n", FISH.prompt)).unwrap();
    let pane = Pane::start(&world, "venv", &FISH.program.replace("RC", &rc.display().to_string()), &[]);
    let shows = |prompt: &str| eventually(prompt, || pane.screen().trim_end().ends_with(prompt));
    shows("[0]$");
    for (line, prompt) in [
        ("source activate.fish", "(venv) [0]$"),
        ("false", "(venv) [1]$"),
        ("deactivate", "\n[0]$"),
        ("false", "\n[1]$"),
        ("source activate.fish", "(venv) [0]$"),
        ("deactivate", "\n[0]$"),
    ] {
        pane.keys(&["-l", line]);
        pane.keys(&["Enter"]);
        shows(prompt);
    }
}

#[test]
fn a_restricted_shell_prints_no_marks_and_no_errors() {
    for (shell, program) in [(&BASH, "bash --noprofile --rcfile RC -r -i"), (&ZSH, "zsh -r -i")] {
        if !is_installed(shell.name) {
            continue;
        }
        let world = world(shell.name);
        let eval = EVAL.replace("SCRIPT", &world.path("script").display().to_string());
        let rc = world.path("home/.zshrc");
        std::fs::write(&rc, format!("PS1='$ '\n{eval}\n")).unwrap();
        let rc = rc.display().to_string();
        let pane = Pane::start(&world, shell.name, &program.replace("RC", &rc), &[]);
        pane.keys(&["-l", "true; echo do''ne"]);
        pane.keys(&["Enter"]);
        eventually("the command has run", || pane.screen().contains("\ndone\n$"));
        assert!(!pane.screen().contains("restricted"), "{}", pane.screen());
        assert_eq!(pane.marks(), Vec::<String>::new());
    }
}

#[test]
fn a_line_that_is_too_long_or_not_in_the_history_is_left_out() {
    for (shell, eval, own) in [("bash", &BASH, "HISTCONTROL=ignorespace"), ("zsh", &ZSH, ""), ("fish", &FISH, "")] {
        if !is_installed(shell) {
            continue;
        }
        let world = world(shell);
        let script = world.path("script").display().to_string();
        let rc = world.path("home/.zshrc");
        std::fs::write(&rc, format!("{}\n{own}\n{}\n", eval.prompt, eval.eval.replace("SCRIPT", &script))).unwrap();
        let rc = rc.display().to_string();
        let pane = Pane::start(&world, shell, &eval.program.replace("RC", &rc), &[]);
        pane.prompts(1);
        let long = format!("true {}", "ö".repeat(700));
        pane.keys(&["-l", &long]);
        pane.keys(&["Enter"]);
        pane.prompts(2);
        if shell == "bash" {
            pane.type_in(&Line(" secret=1", None, 0, ""), 2);
        }
        let marks = pane.marks();
        let lines: Vec<_> = marks.iter().filter(|mark| mark.starts_with('C')).collect();
        let expected = if version_has_own_marks(&marks) { return } else { "C" };
        assert!(lines.iter().all(|mark| *mark == expected) && !lines.is_empty(), "{shell}: {marks:?}");
    }
}

/// fish 4 prints `A` with options.
fn version_has_own_marks(marks: &[String]) -> bool {
    marks.iter().any(|mark| mark.starts_with("A;"))
}

#[test]
fn without_tmux_or_a_person_nothing_is_set_up() {
    for (shell, program, args, eval, is_on) in [
        ("bash", "bash", &["--norc", "-ic"][..], BASH.eval, "echo ${__muxtap_on-}"),
        ("zsh", "zsh", &["-fic"], ZSH.eval, "echo ${__muxtap_on-}"),
        ("fish", "fish", &["--no-config", "-ic"], FISH.eval, "echo $__muxtap_on"),
        ("sh", "dash", &["-ic"], EVAL, "echo ${__muxtap_on-}"),
    ] {
        if !is_installed(program) {
            continue;
        }
        let world = world(shell);
        let eval = eval.replace("SCRIPT", &world.path("script").display().to_string());
        std::fs::write(world.path("lines"), format!("{eval}\n{is_on}\n")).unwrap();
        for (tmux, term, interactive, terminal, expected) in [
            ("export TMUX=x", "tmux-256color", true, true, "1"),
            ("unset TMUX", "tmux-256color", true, true, "1"),
            ("unset TMUX", "screen", true, true, "1"),
            ("unset TMUX", "xterm-256color", true, true, ""),
            ("export TMUX=x", "dumb", true, true, ""),
            ("export TMUX=x", "tmux-256color", false, true, ""),
            ("export TMUX=x", "tmux-256color", true, false, ""),
        ] {
            let name = format!("{program} {tmux} {term} {interactive} {terminal}");
            let args = if interactive { args.join(" ") } else { args.join(" ").replace("ic", "c") };
            let (script, answer) = (world.path("script.sh"), world.path("answer"));
            let (lines, part) = (world.path("lines"), world.path("part"));
            let shell = format!("{program} {args} \"$(cat {})\" > {} 2>/dev/null", lines.display(), part.display());
            let end = format!("mv {} {}", part.display(), answer.display());
            std::fs::write(&script, format!("{tmux}\nexport TERM={term}\n{shell}\n{end}\n")).unwrap();
            let command = format!("sh {}", script.display());
            // A job of tmux has no terminal.
            if terminal {
                world.tmux(&["new-window", "-d", &command]);
            } else {
                world.tmux(&["run-shell", &command]);
            }
            eventually(&name, || answer.exists());
            assert_eq!(std::fs::read_to_string(&answer).unwrap().trim(), expected, "{name}");
            std::fs::remove_file(&answer).unwrap();
        }
    }
}

#[test]
fn another_integration_is_left_alone() {
    for (shell, own) in [(&BASH, "declare -A _ksi_prompt=([sourced]=y)"), (&ZSH, "_ksi_state=1")] {
        if !is_installed(shell.name) {
            continue;
        }
        let world = world(shell.name);
        let eval = EVAL.replace("SCRIPT", &world.path("script").display().to_string());
        let rc = world.path("home/.zshrc");
        std::fs::write(&rc, format!("PS1='$ '\n{eval}\n{own}\n")).unwrap();
        let rc = rc.display().to_string();
        let pane = Pane::start(&world, shell.name, &shell.program.replace("RC", &rc), &[]);
        pane.keys(&["-l", "true; echo do''ne"]);
        pane.keys(&["Enter"]);
        eventually("the command has run", || pane.screen().contains("\ndone"));
        assert_eq!(pane.marks(), Vec::<String>::new());
    }
}

#[test]
fn each_shell_accepts_its_script() {
    for (shell, check) in [("bash", "bash -n"), ("zsh", "zsh -n"), ("fish", "fish --no-execute"), ("sh", "dash -n")] {
        let mut words = check.split(' ');
        let program = words.next().unwrap();
        if is_installed(program) {
            let world = world(shell);
            assert_eq!(run(world.command(program).args(words).arg(world.path("script"))).status, 0, "{check}");
        }
    }
    let world = World::new();
    assert_eq!(world.muxtap(&["shell-integration", "csh"]).status, 2);
}

/// An empty line is no command of nushell, whose own marks count it as one.
#[test]
fn the_commands_of_nushell_are_listed() {
    let program = std::env::var("MUXTAP_TEST_NU").unwrap_or_else(|_| "nu".into());
    if !Path::new(&program).is_file() && !is_installed(&program) {
        return;
    }
    for nonce in ["", "Nonce.1"] {
        let world = world("nu");
        let config = world.path("home/nushell");
        std::fs::create_dir(&config).unwrap();
        std::fs::write(config.join("env.nu"), "").unwrap();
        let script = std::fs::read_to_string(world.path("script")).unwrap();
        std::fs::write(config.join("config.nu"), format!("$env.config.show_banner = false\n{script}")).unwrap();
        let mut env = vec![("HOME", world.path("home").display().to_string())];
        env.push(("XDG_CONFIG_HOME", world.path("home").display().to_string()));
        if !nonce.is_empty() {
            env.push(("MUXTAP_SHELL_NONCE", nonce.to_owned()));
        }
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let pane = Pane::start(&world, "nu", &program, &env);
        world.ok(&["wait-for", "-t", &pane.id, "--stable", "0.5", "-T", "30"]);
        // From now on, muxtap follows the pane.
        let typed = ["print hi", "", "^sh -c 'exit 3'", "", "sleep 300ms", "^printf 'é ü'", "  "];
        let prompts = || pane.marks().iter().filter(|mark| mark.starts_with('A')).count();
        for line in typed {
            let before = prompts();
            pane.keys(&["-l", line]);
            pane.keys(&["Enter"]);
            eventually(&format!("a prompt after {line:?}: {:?}", pane.marks()), || prompts() > before);
        }
        pane.keys(&["-l", "unfinished"]);
        eventually("it is displayed", || pane.screen().contains("unfinished"));
        let before = prompts();
        pane.keys(&["C-c"]);
        eventually("a prompt after Ctrl-C", || prompts() > before);
        let mut listed = serde_json::Value::Null;
        eventually("all commands have ended", || {
            listed = world.json(&["commands", "-t", &pane.id]);
            listed["commands"]
                .as_array()
                .is_some_and(|all| all.len() >= 4 && all.iter().all(|it| it["status"].is_i64()))
        });
        let commands = listed["commands"].as_array().unwrap();
        let seen: Vec<_> =
            commands.iter().map(|it| (it["line"].as_str().unwrap(), it["status"].as_i64().unwrap())).collect();
        let lines = [("print hi", 0), ("^sh -c 'exit 3'", 3), ("sleep 300ms", 0), ("^printf 'é ü'", 0)];
        assert_eq!(seen, lines, "{nonce}: {listed}");
        // The time between the arrivals of two marks.
        assert!(commands[2]["duration_ms"].as_u64().unwrap() >= 200, "{listed}");
        for (number, output) in [("-4", "hi"), ("-3", ""), ("-1", "é ü")] {
            assert_eq!(world.ok(&["read", "-t", &pane.id, "--command", number]), output, "{number}");
        }
        if nonce.is_empty() {
            continue;
        }
        assert!(pane.marks().iter().all(|mark| mark.starts_with("cd ") || mark.ends_with(";muxtap=Nonce.1")));
    }
}

/// Starts a shell in which a person types lines, and reads the integration after the first `before` of them.
fn integrated(program: &str, kind: &str, lines: &[&str], before: usize) -> Option<(World, String)> {
    if !is_installed(program.split(' ').next().unwrap()) {
        return None;
    }
    let world = World::new();
    let pane = world.tmux(&["new-session", "-d", "-x", "100", "-y", "30", "-P", "-F", "#{pane_id}", program]);
    world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
    let muxtap = env!("CARGO_BIN_EXE_muxtap");
    let eval = match kind {
        "fish" => format!("{muxtap} shell-integration fish | source"),
        kind => format!("eval \"$({muxtap} shell-integration {kind})\""),
    };
    let mut all = lines.to_vec();
    all.insert(before, &eval);
    for line in all {
        typed(&world, &pane, line);
    }
    Some((world, pane))
}

/// Types a line like a person, and waits until the shell has read it.
fn typed(world: &World, pane: &str, line: &str) {
    world.tmux(&["send-keys", "-t", pane, "-l", line]);
    world.tmux(&["send-keys", "-t", pane, "Enter"]);
    world.ok(&["wait-for", "-t", pane, "--stable", "0.5", "-T", "30"]);
}

fn shown(world: &World, pane: &str) -> String {
    world.tmux(&["capture-pane", "-p", "-t", pane]).trim_end().to_owned()
}

/// Before 5.1, bash records lines of `PROMPT_COMMAND` if the history is switched on there. A later bash does not,
/// and CI has no earlier one: run it by hand with bash 4.4 or 5.0 in `PATH`.
#[test]
fn the_history_of_bash_is_what_was_typed() {
    for before in [0, 1] {
        let lines = [r"PROMPT_COMMAND=$'true\ntrue first\ntrue last'"];
        let Some((world, pane)) = integrated("bash --norc", "bash", &lines, before) else { return };
        typed(&world, &pane, "echo one");
        typed(&world, &pane, "clear; history");
        let screen = shown(&world, &pane);
        let entries: Vec<_> = screen.lines().filter(|row| row.starts_with("    ")).collect();
        assert_eq!(entries.len(), 4, "{screen}");
        assert!(entries[2].ends_with("echo one") && entries[3].ends_with("clear; history"), "{screen}");
    }
}

/// A string that is assigned to `PROMPT_COMMAND` replaces the first entry, as without the integration; one that
/// contains the old value does not.
#[test]
fn a_prompt_command_that_is_assigned_later_replaces_the_first() {
    for (lines, then, counts) in [
        // It still runs at the prompt after the assignment.
        (&["PROMPT_COMMAND='a+=x'"][..], "PROMPT_COMMAND='b+=x'", [3, 3, 0]),
        (&["PROMPT_COMMAND=('a+=x' 'c+=x')"], "PROMPT_COMMAND='b+=x'", [3, 3, 5]),
        (&["PROMPT_COMMAND='a+=x'"], "PROMPT_COMMAND=\"b+=x; $PROMPT_COMMAND\"", [5, 3, 0]),
        (&[], "PROMPT_COMMAND='b+=x'", [0, 3, 0]),
    ] {
        let lines: Vec<_> = lines.iter().copied().chain(["a= b= c="]).collect();
        let Some((world, pane)) = integrated("bash --norc", "bash", &lines, lines.len()) else { return };
        let commands = || world.json(&["commands", "-t", &pane])["commands"].as_array().unwrap().len();
        for line in ["a= b= c=", "true", then, "true", "true"] {
            typed(&world, &pane, line);
        }
        typed(&world, &pane, "clear; echo ${#a} ${#b} ${#c}");
        let screen = shown(&world, &pane);
        let [a, b, c] = counts;
        assert!(screen.contains(&format!("{a} {b} {c}")), "{lines:?}, {then}: {screen}");
        assert_eq!(commands(), 6, "{lines:?}, {then}");
    }
}

/// Konsole, Windows Terminal and foot document the first three.
#[test]
fn a_command_of_bash_is_one_whatever_is_in_ps0() {
    for ps0 in [r"\[\e]133;C\a\]", r"\[\e]133;C\e\\\]", r"\e]133;C\e\\", "costs $", r"b\", r"\[\e]0;t\a\]x"] {
        for before in [0, 2] {
            let lines = ["PS1='P '", &format!("PS0='{ps0}'")];
            let Some((world, pane)) = integrated("bash --norc", "bash", &lines, before) else { return };
            typed(&world, &pane, "echo one");
            let commands = world.json(&["commands", "-t", &pane]);
            let commands = commands["commands"].as_array().unwrap_or_else(|| panic!("{commands}"));
            let last = commands.last().unwrap();
            assert_eq!((&last["line"], &last["status"]), (&"echo one".into(), &0.into()), "{ps0}: {commands:?}");
            // A `PS0` that was there first has marked the line that read the integration.
            let is_twice = commands.iter().skip(1).any(|command| command["status"].is_null());
            assert!(!is_twice, "{ps0}: {commands:?}");
            assert_eq!(world.ok(&["read", "-t", &pane, "--command", "-1"]).trim_end(), "one", "{ps0}");
            assert!(!shown(&world, &pane).contains("__muxtap"), "{ps0}: {}", shown(&world, &pane));
        }
    }
}

#[test]
fn a_backslash_or_percent_at_the_end_of_a_prompt_stays() {
    for (program, kind, prompt, ends) in [
        ("bash --norc", "bash", r"PS1='dir\'", r"dir\"),
        ("bash --norc", "bash", r"PS1='dir\\'", r"dir\"),
        ("zsh -f", "zsh", "PS1='dir%'", "dir"),
        ("zsh -f", "zsh", "PS1='dir%%'", "dir%"),
    ] {
        let Some((world, pane)) = integrated(program, kind, &[prompt], 1) else { continue };
        let screen = shown(&world, &pane);
        assert_eq!(screen.lines().last(), Some(ends), "{prompt}: {screen}");
    }
}

/// A command sees the person's own prompt: it may save it.
#[test]
fn the_prompt_of_fish_is_the_persons_while_a_command_runs() {
    let prompt = r"function fish_prompt; printf 'dir %s\n\n' (count $argv); end";
    for before in [0, 1] {
        let Some((world, pane)) = integrated("fish --no-config", "fish", &[prompt], before) else { return };
        for _ in 0..2 {
            typed(&world, &pane, "functions fish_prompt");
            let own = world.ok(&["read", "-t", &pane, "--command", "-1"]);
            assert!(own.contains("printf 'dir") && !own.contains("__muxtap"), "{own}");
        }
        typed(&world, &pane, "clear");
        // The line is in the row below the prompt's first.
        assert_eq!(shown(&world, &pane), "dir 0");
        typed(&world, &pane, "echo one");
        assert_eq!(shown(&world, &pane), "dir 0\necho one\none\ndir 0");
        typed(
            &world,
            &pane,
            "function fish_prompt; if contains -- --final-rendering $argv; echo 'T> '; else; echo 'L> '; end; end",
        );
        typed(&world, &pane, "set -g fish_transient_prompt 1");
        typed(&world, &pane, "echo two");
        let version = world.ok(&["run", "-t", &pane, "-T", "20", "--", "echo $version"]);
        let is_final =
            version.trim().split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>() >= vec![4, 1];
        assert_eq!(shown(&world, &pane).contains("T> echo two"), is_final, "{version}: {}", shown(&world, &pane));
    }
}
