//! The matrix of `run`: shells × what a person or a crashed program left there × places.
//!
//! Each cell starts the shell in a new pane, with a startup file that makes the state. `run` then returns exactly
//! what the command printed and its status, or is refused with a reason; afterwards the pane is as it was.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use crate::common::{Answer, World, eventually, is_installed};

/// The shells of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Dash,
    Busybox,
    Mksh,
    Ksh93,
    Nu,
}

use Shell::{Bash, Busybox, Dash, Fish, Ksh93, Mksh, Nu, Zsh};

/// Where the shell runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Local,
    /// In another shell of its kind.
    InAShell,
    /// Behind another terminal, with shell integration.
    Script,
    /// As another user, who cannot read muxtap's files.
    Su,
}

/// What a cell must give.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// The output `out` and the status 1.
    Right,
    /// The same, among other lines: a trace, or output of a background job.
    Among,
    /// The same; the command ends the shell.
    Ends,
    /// An error with this in the message; nothing has run.
    Refused(&'static str),
    /// The output `out`; the shell loses the status.
    Untold,
    /// Among other lines, or an error: by the moment at which the other program prints.
    Either,
}

use Expected::{Among, Either, Ends, Refused, Right, Untold};

/// A state of a shell or of its terminal.
struct State {
    name: &'static str,
    /// The lines of the startup file that make it; `None` where a shell has no such thing.
    lines: fn(Shell) -> Option<String>,
    /// What a person types at the prompt, without Enter.
    typed: &'static str,
    expected: fn(Shell, Place) -> Expected,
}

impl State {
    const fn new(name: &'static str, lines: fn(Shell) -> Option<String>) -> Self {
        Self { name, lines, typed: "", expected: |_, _| Right }
    }

    const fn expecting(self, expected: fn(Shell, Place) -> Expected) -> Self {
        Self { expected, ..self }
    }
}

/// Sets an option of POSIX shells.
fn option(shell: Shell, name: &str) -> Option<String> {
    (shell != Fish && shell != Nu).then(|| format!("set -o {name}"))
}

/// Sets the prompt: of bash, of zsh, and of the others.
fn prompt(shell: Shell, bash: &str, zsh: &str, other: &str, fish: &str) -> Option<String> {
    Some(match shell {
        Bash => format!("PS1=$'{bash}'"),
        Zsh => format!("PS1=$'{zsh}'"),
        Fish => format!("function fish_prompt; {fish}; end"),
        Nu => return None,
        Dash | Busybox | Mksh | Ksh93 => format!("PS1=\"$(printf '{other}')\""),
    })
}

/// A prompt that the screen does not show to be one. With integration, its marks do.
fn signless(_: Shell, place: Place) -> Expected {
    if place == Place::Script { Either } else { Refused("cannot tell") }
}

/// States that a person makes.
const SHELL_STATES: &[State] = &[
    State::new("plain", |_| Some(String::new())),
    State::new("vi keys", |shell| match shell {
        Bash | Mksh | Ksh93 | Busybox => option(shell, "vi"),
        Zsh => Some("bindkey -v".into()),
        Fish => Some("fish_vi_key_bindings".into()),
        Dash | Nu => None,
    }),
    State::new("a prompt of one row", |shell| {
        prompt(shell, "me@host dir \\$ ", "me@host %1~ %# ", "me@host $ ", "echo -n 'me@host > '")
    }),
    State::new("a prompt of two rows", |shell| {
        prompt(shell, "\\w\\n\\$ ", "%~\\n%# ", "dir\\n$ ", "echo dir; echo -n '> '")
    }),
    State::new("an environment before the prompt", |shell| {
        prompt(
            shell,
            "(venv) me@host dir $ ",
            "(venv) me@host dir $ ",
            "(venv) me@host dir $ ",
            "echo -n '(venv) ~/x > '",
        )
    }),
    State::new("a prompt of several signs", |shell| match shell {
        Fish => Some("function fish_prompt; echo -n '~/src >>> '; end".into()),
        Zsh | Bash => Some("PS1='~/src >>> '".into()),
        _ => None,
    }),
    State::new("a sign that tells the status", |shell| match shell {
        Bash => Some("PS1='~/src $([ $? = 0 ] && echo ❯ || echo ✗) '".into()),
        Zsh => Some("PS1='%~ %(?.❯.✗) '".into()),
        Fish => {
            Some("function fish_prompt; if test $status = 0; echo -n '~ ❯ '; else; echo -n '~ ✗ '; end; end".into())
        }
        _ => None,
    }),
    State::new("a prompt without text", |shell| prompt(shell, "", "", "", "true")).expecting(|_, _| Either),
    State::new("a prompt without a sign", |shell| prompt(shell, "words ", "words ", "words ", "echo -n 'words '"))
        .expecting(signless),
    State::new("a right prompt", |shell| match shell {
        Zsh => Some("RPROMPT='right %T'".into()),
        Fish => Some("function fish_right_prompt; echo right; end".into()),
        _ => None,
    }),
    State::new("a transient prompt", |shell| {
        match shell {
        Zsh => Some(
            "PS1='~/long %# '; zle-line-finish () { PS1='%# '; zle reset-prompt; PS1='~/long %# ' }; zle -N zle-line-finish"
                .into(),
        ),
        Fish => Some(
            "function fish_prompt; if set -q TRANSIENT; echo -n '> '; set -e TRANSIENT; else; echo -n '~/long > '; end; \
             end; function _enter; set -g TRANSIENT 1; commandline -f repaint execute; end; bind \\r _enter"
                .into(),
        ),
        _ => None,
    }
    }),
    State::new("marks of another integration", |shell| {
        prompt(
            shell,
            "\\[\\e]133;A\\a\\]\\$ \\[\\e]133;B\\a\\]",
            "%{\\e]133;A\\a%}%# %{\\e]133;B\\a%}",
            "\\033]133;A\\007$ \\033]133;B\\007",
            "printf '\\e]133;A\\a> \\e]133;B\\a'",
        )
    }),
    State::new("a title hook", |shell| match shell {
        Bash => Some("PROMPT_COMMAND='printf \"\\e]0;%s\\a\" \"$PWD\"'; PS0='\\e]0;runs\\a'".into()),
        Zsh => Some("preexec () { print -Pn \"\\e]0;$1\\a\" }; precmd () { print -Pn '\\e]0;%~\\a' }".into()),
        Fish => Some("function fish_title; echo $argv; end".into()),
        _ => None,
    }),
    State::new("a DEBUG trap", |shell| match shell {
        Bash | Zsh | Ksh93 => Some("trap ': debug' DEBUG".into()),
        _ => None,
    })
    .expecting(|shell, _| if shell == Ksh93 { Untold } else { Right }),
    State::new("an ERR trap", |shell| match shell {
        Bash | Zsh | Ksh93 | Mksh => Some("trap ': err' ERR".into()),
        _ => None,
    }),
    State::new("set -x", |shell| option(shell, "xtrace")).expecting(|_, _| Among),
    // mksh goes on: it ends scripts only.
    State::new("set -e", |shell| option(shell, "errexit"))
        .expecting(|shell, _| if shell == Mksh { Right } else { Ends }),
    State::new("set -u", |shell| option(shell, "nounset")),
    State::new("pipefail", |shell| match shell {
        Dash => None,
        shell => option(shell, "pipefail"),
    }),
    State::new("noclobber and noglob", |shell| option(shell, "noclobber").map(|line| format!("{line}; set -f"))),
    State::new("aliases on builtins", |shell| match shell {
        Fish => Some("alias set=false; alias eval=false; alias string=false".into()),
        Nu => None,
        _ => Some("alias set=false eval=false .=false unset=false exit=false return=false".into()),
    }),
    State::new("TERM=dumb", |shell| match shell {
        Fish => Some("set -gx TERM dumb".into()),
        Nu => None,
        _ => Some("export TERM=dumb".into()),
    })
    // After output without a line end, such an editor does not show where its line begins.
    .expecting(|_, _| Either),
    State::new("LC_ALL=C", |shell| match shell {
        Fish => Some("set -gx LC_ALL C".into()),
        Nu => None,
        _ => Some("export LC_ALL=C".into()),
    }),
    State::new("a UTF-8 locale", |shell| match shell {
        Fish => Some("set -gx LC_ALL C.UTF-8; function fish_prompt; echo -n 'äöü → '; end".into()),
        Nu => None,
        _ => Some("export LC_ALL=C.UTF-8; PS1='äöü → '".into()),
    })
    .expecting(|shell, place| if shell == Dash { signless(shell, place) } else { Right }),
    State::new("a question for a key", |shell| match shell {
        Bash => Some("read -n1 -p 'Install? ' answer".into()),
        Zsh => Some("read -k1 'answer?Install? '".into()),
        Ksh93 => Some("printf 'Install? '; read -n1 answer".into()),
        _ => None,
    })
    .expecting(|_, _| Refused("")),
    State::new("a question for a line", |shell| match shell {
        Bash => Some("read -p 'Install? ' answer".into()),
        Fish => Some("read -P 'Install? ' answer".into()),
        Nu => None,
        _ => Some("printf 'Install? '; read answer".into()),
    })
    .expecting(|_, _| Refused("")),
    State {
        name: "a half typed line",
        lines: |_| Some(String::new()),
        typed: "half typed",
        expected: |_, _| Refused("half typed"),
    },
    State::new("output of a background job", |shell| match shell {
        Nu => None,
        Fish => Some("sh -c 'while sleep 0.05 && echo tick; do :; done' &".into()),
        _ => Some("while sleep 0.05 && echo tick; do :; done &".into()),
    })
    .expecting(|_, _| Either),
];

/// What a program that crashed leaves in the terminal: a name, and what it printed.
const LEFT_OVER: &[(&str, &str)] = &[
    ("bracketed paste off", "\\033[?2004l"),
    ("bracketed paste on", "\\033[?2004h"),
    ("application cursor keys", "\\033[?1h"),
    ("application keypad", "\\033="),
    ("mouse clicks", "\\033[?1000h"),
    ("mouse buttons", "\\033[?1002h"),
    ("mouse moves in SGR", "\\033[?1003h\\033[?1006h"),
    ("focus events", "\\033[?1004h"),
    ("the alternate screen", "\\033[?1049h"),
    ("the old alternate screen", "\\033[?47h"),
    ("a scroll region", "\\033[5;10r"),
    ("a scroll region and origin mode", "\\033[5;10r\\033[?6h"),
    ("insert mode", "\\033[4h"),
    ("no automatic wrap", "\\033[?7l"),
    ("shifted to G1", "\\033)0\\016"),
    ("line drawing in G0", "\\033(0"),
    ("a hidden cursor", "\\033[?25l"),
    ("reverse and bold text", "\\033[7;1m"),
    ("hidden text", "\\033[8m"),
    ("a colored background", "\\033[44m"),
    ("newline mode", "\\033[20h"),
    ("a reversed screen", "\\033[?5h"),
    ("132 columns", "\\033[?3h"),
    ("no tab stops", "\\033[3g"),
    ("keys of modifyOtherKeys", "\\033[>4;2m"),
    ("keys of kitty", "\\033[>1u"),
    ("an open OSC", "\\033]0;title"),
    ("an open DCS", "\\033Pq"),
    ("half a character", "\\303"),
    ("half a sequence", "\\033[1;"),
    ("the cursor at the top", "text\\033[H"),
    ("a saved cursor", "\\0337text\\0338"),
    ("synchronized output", "\\033[?2026h"),
    ("the cursor as a bar", "\\033[5 q"),
    ("a cleared screen", "\\033[2J\\033[3J"),
];

/// Settings that it leaves for the terminal's line.
const LINE_SETTINGS: &[&str] = &[
    "raw",
    "cbreak",
    "-icrnl",
    "inlcr",
    "igncr",
    "-ixon",
    "ixon ixany",
    "-opost",
    "-onlcr",
    "-isig",
    "erase undef kill undef",
    "rprnt undef",
    "rprnt ^A kill ^B",
    "-iexten",
    "-echo",
];

const COMMAND: &str = "printf out; false";

/// What `run` answered.
#[derive(Debug)]
enum Outcome {
    Ran {
        output: String,
        status: Option<i64>,
        has_ended: bool,
    },
    /// An error that says what happened.
    Refused(String),
    Wrong(String),
}

impl Outcome {
    fn of(answer: &Answer) -> Self {
        if let Ok(value) = serde_json::from_slice::<serde_json::Value>(&answer.stdout) {
            let output = value["output"].as_str().unwrap_or_default().to_owned();
            let has_ended = value["shell_ended"] == true;
            return Self::Ran { output, status: value["exit_status"].as_i64(), has_ended };
        }
        let error = serde_json::from_str::<serde_json::Value>(&answer.stderr).unwrap_or_default();
        let message = error["message"].as_str().unwrap_or_default();
        let reasons =
            ["nothing was run", "no idle shell", "not known", "was not typed", "did not begin the command in time"];
        if reasons.iter().any(|reason| message.contains(reason)) {
            Self::Refused(message.to_owned())
        } else {
            Self::Wrong(format!("{answer:?}"))
        }
    }
}

/// A shell in a place: the pane in which each cell starts.
struct Matrix {
    shell: Shell,
    place: Place,
    world: World,
    pane: String,
    /// A directory that the other user can read, too.
    shared: tempfile::TempDir,
    wrong: Vec<String>,
}

impl Matrix {
    /// `None` if the shell or the place is not there.
    fn new(shell: Shell, place: Place) -> Option<Self> {
        let program = match shell {
            Bash => "bash",
            Zsh => "zsh",
            Fish => "fish",
            Dash => "dash",
            Busybox => "busybox",
            Mksh => "mksh",
            Ksh93 => "ksh93",
            Nu => "nu",
        };
        let is_there = match (shell, place) {
            (Nu, _) => std::env::var("MUXTAP_TEST_NU").is_ok(),
            (_, Place::Script) => is_installed("script") && is_installed(program),
            (_, Place::Su) => rustix::process::getuid().is_root() && is_installed("su") && is_installed(program),
            _ => is_installed(program),
        };
        if !is_there {
            return None;
        }
        let shared = tempfile::Builder::new().prefix("mt-rc-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if shell == Busybox {
            let busybox = crate::common::run(std::process::Command::new("sh").args(["-c", "command -v busybox"]));
            std::os::unix::fs::symlink(busybox.text().trim(), shared.path().join("ash")).unwrap();
        }
        let mut world = World::new();
        world.set("EDITOR", "");
        let pane = world.tmux(&["new-session", "-d", "-s", "main", "-x", "150", "-y", "40", "-P", "-F", "#{pane_id}"]);
        world.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
        // Marks that were printed before muxtap read the session are not known.
        world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
        Some(Self { shell, place, world, pane, shared, wrong: Vec::new() })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.shared.path().join(name)
    }

    /// Returns the command line that starts the shell with this startup file.
    fn started_with(&self, rc: &str) -> String {
        let directory = self.shared.path().display();
        match self.shell {
            Bash => format!("bash --rcfile {directory}/{rc}"),
            Zsh => format!("env ZDOTDIR={directory}/{rc}.d zsh -d"),
            // Without its configuration, its vi mode has no keys.
            Fish => format!("fish -C 'source {directory}/{rc}'"),
            Dash => format!("env ENV={directory}/{rc} dash -i"),
            Busybox => format!("env ENV={directory}/{rc} {directory}/ash -i"),
            Mksh => format!("env ENV={directory}/{rc} mksh -i"),
            Ksh93 => format!("env ENV={directory}/{rc} ksh93 -E"),
            Nu => format!("{} --no-config-file", std::env::var("MUXTAP_TEST_NU").unwrap_or_default()),
        }
    }

    fn writes(&self, rc: &str, text: &str) {
        let path = if self.shell == Zsh {
            fs::create_dir_all(self.file(&format!("{rc}.d"))).unwrap();
            self.file(&format!("{rc}.d/.zshrc"))
        } else {
            self.file(rc)
        };
        fs::write(path, text).unwrap();
    }

    /// Starts the shell anew, with a startup file of these lines.
    fn starts(&mut self, lines: &str) {
        let program = self.world.plain_muxtap_command().get_program().to_string_lossy().into_owned();
        let (name, eval) = match self.shell {
            Bash => ("bash", true),
            Zsh => ("zsh", true),
            Fish => ("fish", false),
            _ => ("sh", true),
        };
        let integration = match (self.place, eval) {
            (Place::Script, true) => format!("eval \"$({program} shell-integration {name})\"\n"),
            (Place::Script, false) => format!("{program} shell-integration {name} | source\n"),
            _ => String::new(),
        };
        let prompt = if matches!(self.shell, Dash | Busybox | Mksh | Ksh93) { "PS1='$ '\n" } else { "" };
        self.writes("rc", &format!("{prompt}{lines}\n{integration}"));
        let shell = self.started_with("rc");
        let command = match self.place {
            Place::Local => format!("exec {shell}"),
            Place::InAShell => {
                self.writes("outer", &format!("{shell}\n"));
                format!("exec {}", self.started_with("outer"))
            }
            Place::Script => {
                fs::write(self.file("start"), format!("exec {shell}\n")).unwrap();
                format!("exec script -qc 'sh {}' /dev/null", self.file("start").display())
            }
            Place::Su => {
                fs::write(self.file("start"), format!("cd /; exec {shell}\n")).unwrap();
                format!("exec su -s /bin/sh nobody --session-command '. {}'", self.file("start").display())
            }
        };
        // muxtap cannot see that tmux forgets a string that the program before left open.
        let command = format!("printf '\\033\\\\'; {command}");
        // No respawn: with a control client that is behind, it can crash the server (N98).
        let pane = self.world.tmux(&["new-window", "-t", "main:", "-P", "-F", "#{pane_id}", &command]);
        self.ends();
        self.pane = pane;
    }

    /// Ends the pane. `script` does not end with its terminal.
    fn ends(&self) {
        let pid = self.world.tmux(&["display-message", "-p", "-t", &self.pane, "#{pane_pid}"]);
        self.world.tmux(&["kill-pane", "-t", &self.pane]);
        if let Some(pid) = pid.parse().ok().filter(|pid| *pid > 0 && self.place == Place::Script) {
            crate::common::signal(pid, rustix::process::Signal::TERM);
        }
    }

    fn screen(&self) -> String {
        self.world.tmux(&["capture-pane", "-p", "-t", &self.pane])
    }

    fn run(&self, timeout: &str, command: &str) -> Answer {
        self.world.muxtap(&["--json", "run", "-t", &self.pane, "-T", timeout, "--", command])
    }

    /// Checks one cell.
    fn check(&mut self, name: &str, lines: &str, typed: &str, expected: Expected) {
        self.starts(lines);
        let is_question = lines.contains("Install?");
        if is_question {
            eventually(&format!("{:?} asks", self.shell), || self.screen().contains("Install?"));
        } else if self.place == Place::Script && !lines.contains("tick") {
            // Only its marks show that a shell is there.
            self.world.ok(&["wait-for", "-t", &self.pane, "--stable", "0.3", "--since", "start", "-T", "30"]);
        }
        if !typed.is_empty() {
            self.world.ok(&["wait-for", "-t", &self.pane, "--stable", "0.3", "--since", "start", "-T", "30"]);
            self.world.tmux(&["send-keys", "-t", &self.pane, "-l", typed]);
            eventually("it shows", || self.screen().contains(typed));
        }
        let before = self.screen();
        let timeout = match expected {
            _ if is_question => "1",
            // A terminal that ignores Enter is waited for.
            Either => "5",
            _ => "20",
        };
        let first = Outcome::of(&self.run(timeout, COMMAND));
        let status = if self.shell == Fish { "echo on $status" } else { "echo on $?" };
        let second = match expected {
            Ends => None,
            _ => Some(Outcome::of(&self.run(timeout, status))),
        };
        let shown = self.screen();
        let mut wrong = Vec::new();
        let mut check = |is_right: bool, what: &str| {
            if !is_right {
                wrong.push(format!("{what}: {first:?}, then {second:?}"));
            }
        };
        // Behind another terminal, and where the line holds the command, each state but the plain one may be refused.
        let may_refuse =
            matches!(expected, Either) || matches!(self.place, Place::Script | Place::Su) && name != "plain";
        let is_nested = self.place != Place::Local;
        let is_right = match (&first, expected) {
            (Outcome::Ran { output, status, .. }, Right) => output == "out" && *status == Some(1),
            (Outcome::Ran { output, .. }, Untold) => output == "out",
            (Outcome::Ran { output, status, .. }, Among | Either) => output.contains("out") && *status == Some(1),
            (Outcome::Ran { output, status, has_ended }, Ends) => {
                // The prompt of the shell outside may overwrite a row without a line end. tmux may drop the last
                // output of a pane that ends, though it shows it (N9).
                let may_be_dropped = output.is_empty() && matches!(self.place, Place::Local | Place::Su);
                let is_told = (may_be_dropped || output.starts_with("out")) && *status == Some(1);
                *has_ended && (is_told || is_nested && status.is_none())
            }
            (Outcome::Ran { .. }, Refused(_)) => false,
            (Outcome::Wrong(answer), _) => {
                eprintln!("{answer}");
                false
            }
            (Outcome::Refused(message), Refused(why)) => message.contains(why),
            // tmux may drop a pane's last output, and the marks with it (N9).
            (Outcome::Refused(message), Ends) => may_refuse || message.contains("the shell has ended, and whether"),
            (Outcome::Refused(_), _) => may_refuse,
        };
        check(is_right, "wrong");
        match (&second, expected) {
            (None, _) | (Some(Outcome::Refused(_)), Refused(_)) => {}
            (Some(Outcome::Refused(_)), _) => check(may_refuse, "then refused"),
            (Some(Outcome::Ran { output, status, .. }), _) => {
                let is_among = matches!(expected, Among | Either);
                let fits = |on: &str| if is_among { output.contains(on) } else { output == on };
                // With `set -e`, the script returns 0. A line that is drawn otherwise than it was typed (in the C
                // locale, after output without a line end) is interrupted, and typed again.
                let is_kept = fits("on 1\n") || name != "plain" && (fits("on 0\n") || fits("on 130\n"));
                check(is_kept && *status == Some(0), "then wrong");
                let is_left = !is_among && !is_nested && shown.contains("muxtap");
                check(!is_left, "the typed line is left");
            }
            (Some(Outcome::Wrong(_)), _) => check(false, "then wrong"),
        }
        let is_kept = if is_question { before == shown } else { typed.is_empty() || shown.contains(typed) };
        check(is_kept || is_nested && shown.contains(before.trim()), "the screen has changed");
        self.report(name, &wrong, &shown);
    }

    fn report(&mut self, name: &str, wrong: &[String], shown: &str) {
        if !wrong.is_empty() {
            let (shell, place) = (self.shell, self.place);
            let wrong = wrong.join("; ");
            self.wrong.push(format!("{shell:?}, {place:?}, {name}: {wrong}\nscreen:\n{}", shown.trim_end()));
        }
    }
}

/// Checks all states of a shell in a place.
fn check(shell: Shell, place: Place) {
    let Some(mut matrix) = Matrix::new(shell, place) else { return };
    // mksh scrolls a long line in one row, and ksh93 draws it otherwise: it cannot be compared.
    let is_refused = matches!((place, shell), (Place::Script, Mksh | Ksh93) | (Place::Su, Mksh));
    for state in SHELL_STATES {
        if let Some(lines) = (state.lines)(shell) {
            let expected = match (state.expected)(shell, place) {
                _ if shell == Nu => Refused("is a shell in which run cannot"),
                // Behind another terminal, it is not known what precedes the text.
                Refused(_) if place == Place::Script => Refused(""),
                expected if is_refused && !matches!(expected, Refused(_) | Ends) => Either,
                expected => expected,
            };
            matrix.check(state.name, &lines, state.typed, expected);
        }
    }
    if shell != Nu {
        for (name, printed) in LEFT_OVER {
            // What tmux takes for a part of the string or the sequence is not shown, and each shell prints something
            // else first. Letters of another character set are not those that were typed.
            let is_unseen = name.starts_with("an open ") || name.starts_with("half a ");
            let is_other = matches!(*name, "shifted to G1" | "line drawing in G0");
            // Nor can these shells' prompts be told from the rows around: they erase nothing.
            let is_among_text = matches!(shell, Busybox | Mksh)
                && (name.contains("scroll region") || matches!(*name, "the cursor at the top" | "a saved cursor"));
            let expected = if is_unseen || is_other || is_among_text { Either } else { Right };
            matrix.check(name, &format!("printf '{printed}'"), "", expected);
        }
        for settings in LINE_SETTINGS {
            let expected = match *settings {
                // Some line editors switch them back on; with the others, the error says what helps.
                "-echo" | "igncr" => Either,
                // dash has no line editor that switches anything.
                _ if shell == Dash => Either,
                _ => Right,
            };
            matrix.check(&format!("stty {settings}"), &format!("stty {settings}"), "", expected);
        }
    }
    matrix.ends();
    assert!(matrix.wrong.is_empty(), "{} cells are wrong:\n{}", matrix.wrong.len(), matrix.wrong.join("\n\n"));
}

macro_rules! matrix {
    ($($(#[$attribute:meta])* $test:ident: $shell:ident, $place:ident;)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $test() {
                check($shell, Place::$place);
            }
        )*
    };
}

// Ignored rows take minutes: in each cell, something is waited for.
matrix! {
    bash_local: Bash, Local;
    ksh93_local: Ksh93, Local;
    nushell_local: Nu, Local;
    bash_in_a_shell: Bash, InAShell;
    zsh_local: Zsh, Local;
    fish_local: Fish, Local;
    #[ignore = "it takes minutes"]
    bash_in_script: Bash, Script;
    bash_of_another_user: Bash, Su;
    zsh_in_a_shell: Zsh, InAShell;
    #[ignore = "it takes minutes"]
    zsh_in_script: Zsh, Script;
    zsh_of_another_user: Zsh, Su;
    fish_in_a_shell: Fish, InAShell;
    #[ignore = "it takes minutes"]
    fish_in_script: Fish, Script;
    fish_of_another_user: Fish, Su;
    dash_local: Dash, Local;
    dash_in_a_shell: Dash, InAShell;
    #[ignore = "it takes minutes"]
    dash_in_script: Dash, Script;
    dash_of_another_user: Dash, Su;
    busybox_ash_local: Busybox, Local;
    busybox_ash_in_a_shell: Busybox, InAShell;
    #[ignore = "it takes minutes"]
    busybox_ash_in_script: Busybox, Script;
    busybox_ash_of_another_user: Busybox, Su;
    mksh_local: Mksh, Local;
    mksh_in_a_shell: Mksh, InAShell;
    #[ignore = "it takes minutes"]
    mksh_in_script: Mksh, Script;
    #[ignore = "it takes minutes"]
    mksh_of_another_user: Mksh, Su;
    ksh93_in_a_shell: Ksh93, InAShell;
    #[ignore = "it takes minutes"]
    ksh93_in_script: Ksh93, Script;
    ksh93_of_another_user: Ksh93, Su;
}
