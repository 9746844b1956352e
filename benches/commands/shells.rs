//! Random commands in real shells: lines, statuses and output by muxtap's log, compared with the
//! shell's own log and with what was printed.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap::{CommandChange, CommandEvent, Engine, Options, Pane, PaneCommand, stream::render::render_bytes};
use tokio::sync::broadcast::Receiver;

use super::{
    EndServer,
    places::Sshd,
    table::{Goal, figure, part},
};

/// The number of commands in each shell, unless an argument says another one.
const COMMANDS: usize = 200;
const LIMIT: Duration = Duration::from_secs(60);
/// How many wrong commands are printed.
const SHOWN: usize = 5;

/// A shell, and the startup file by which it keeps its own log. `p NUMBER STATUS` prints a file.
struct Shell {
    name: &'static str,
    /// Its program, and the language of its commands.
    program: &'static str,
    file: &'static str,
    /// The lines of the startup file, in parts.
    rc: &'static [&'static str],
    place: Place,
}

/// Where a shell runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// muxtap starts it with its integration.
    Integrated,
    /// The startup file has the integration.
    Own,
    /// The same, at the other end of ssh.
    Ssh,
}

/// bash's own log.
const BASH: &str = r#"PS1='$ '
p() { cat "$LOG/in.$1"; return "$2"; }
own_log() { local status=$?; printf '%s\t%s\0' "$status" "$(HISTTIMEFORMAT= history 1)" >>"$LOG/own"; return "$status"; }
PROMPT_COMMAND=own_log
unset HISTCONTROL HISTIGNORE
HISTFILE= HISTSIZE=100
shopt -s cmdhist lithist
"#;

/// A prompt of several rows, as starship's: an empty one, where it is, and the sign.
const TWO_LINES: &str = r"PS1='\n\[\e[1;36m\]\w\[\e[0m\] on \[\e[1;35m\]main\[\e[0m\] took 2s\n\[\e[32m\]$\[\e[0m\] '
";

/// Contexts as systemd's script for bash prints them.
const OSC_3008: &str = r#"PS0='\e]3008;start=5f3c;type=command;cwd=/tmp\e\\'
PROMPT_COMMAND='own_log; printf "\033]3008;end=5f3c;exit=success\033\\\\"; printf "\033]3008;start=77aa;type=shell;cwd=/tmp\033\\\\"'
"#;

const INTEGRATION: &str = include_str!("../../crates/muxtap-engine/src/shell/bash.sh");

const SHELLS: [Shell; 7] = [
    Shell { name: "bash", program: "bash", file: ".bashrc", rc: &[BASH], place: Place::Integrated },
    Shell {
        name: "bash-two-lines",
        program: "bash",
        file: ".bashrc",
        rc: &[BASH, TWO_LINES],
        place: Place::Integrated,
    },
    Shell { name: "bash-3008", program: "bash", file: ".bashrc", rc: &[BASH, OSC_3008], place: Place::Integrated },
    Shell { name: "bash-ssh", program: "bash", file: ".bashrc", rc: &[BASH, INTEGRATION], place: Place::Ssh },
    Shell {
        name: "zsh",
        program: "zsh",
        file: ".zshrc",
        place: Place::Integrated,
        rc: &[r#"PS1='$ '
p() { cat "$LOG/in.$1"; return "$2" }
preexec() { own_line=$1 }
precmd() { local code=$?; [[ -z ${own_line-} ]] || printf '%s\t1  %s\0' $code "$own_line" >>$LOG/own; own_line= }
"#],
    },
    Shell {
        name: "fish",
        program: "fish",
        file: ".config/fish/config.fish",
        place: Place::Integrated,
        rc: &[r#"set fish_greeting
set -g fish_history ''
function fish_prompt; echo -n '$ '; end
function fish_title; end
function p; cat $LOG/in.$argv[1]; return $argv[2]; end
function own_log --on-event fish_postexec; set code $status; printf '%s\t1  %s\0' $code "$argv[1]" >>$LOG/own; end
"#],
    },
    Shell {
        name: "nu",
        program: "nu",
        file: ".config/nushell/config.nu",
        place: Place::Own,
        rc: &[
            r#"$env.config.show_banner = false
$env.PROMPT_COMMAND = {|| "$ " }
$env.PROMPT_COMMAND_RIGHT = {|| "" }
$env.PROMPT_INDICATOR = ""
def p [slot: int, status: int] { ^sh -c $"cat ($env.LOG)/in.($slot); exit ($status)" }
$env.config.hooks.pre_execution = [{|| $env.own_line = (commandline) }]
$env.config.hooks.pre_prompt = [{||
    if ($env.own_line? | default "") != "" {
        $"($env.LAST_EXIT_CODE)\t1  ($env.own_line)(char --integer 0)" | save --append --raw $"($env.LOG)/own"
        $env.own_line = ""
    }
}]
"#,
            include_str!("../../crates/muxtap-engine/src/shell/nu.nu"),
        ],
    },
];

/// The nonce of a shell that has the integration in its startup file.
const NONCE: &str = "bench-nonce-0123456789";

/// Returns the program of a shell.
fn program(name: &str) -> String {
    let own = std::env::var("MUXTAP_TEST_NU").ok().filter(|_| name == "nu");
    own.unwrap_or_else(|| name.to_owned())
}

/// Numbers that look random, the same in each run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Writes a random text for `p`, with forged marks, and returns it.
fn text(random: &mut Random, path: &Path) -> String {
    let mut text = String::new();
    for _ in 0..random.below(12) {
        match random.below(12) {
            0 => text.push_str("\x1b[31mred\x1b[0m "),
            1 => text.push_str("\x1b[?1049hon another screen\x1b[2J\x1b[?1049l"),
            2 => text.push_str("\x1b[H\x1b[2J"),
            3 => text.push_str("10%\r20%\r100%\n"),
            4 => text.push_str("\u{fc}\u{4e2d}\u{1f600}\n"),
            5 => text.push_str("\x1b]2;a title\x07"),
            6 => text.push_str(&"long ".repeat(random.below(400) as usize)),
            7 => text.push_str("\x1b]133;D;0\x07\x1b]133;A\x07$ \x1b]133;B\x07ls\n\x1b]133;C;cmdline=x\x1b\\"),
            8 => text.push_str("\x1b]133;D;9;muxtap=other\x07\x1b]633;C\x07\x1b]3008;end=x\x07"),
            _ => {
                let _ = writeln!(text, "line {}", random.below(1_000_000));
            }
        }
    }
    if random.below(4) == 0 {
        text.push_str("no end of line");
    }
    fs::write(path, &text).unwrap();
    text
}

/// Returns the next random command: what is typed, and what it prints.
fn command(shell: &str, random: &mut Random, folder: &Path, number: usize) -> (String, String) {
    let status = random.below(256);
    match random.below(10) {
        0 => (format!("sh -c 'exit {status}'"), String::new()),
        1 if shell == "nu" => ("^printf '\\033[H\\033[2J'".to_owned(), "\x1b[H\x1b[2J".to_owned()),
        1 => ("printf '\\033[H\\033[2J'".to_owned(), "\x1b[H\x1b[2J".to_owned()),
        2 if shell == "bash" => {
            ("cat <<E\nin a here-document\nof two lines\nE".to_owned(), "in a here-document\nof two lines\n".into())
        }
        3 if !matches!(shell, "fish" | "nu") => {
            let message =
                if shell == "bash" { "bash: no_such: command not found" } else { "zsh: command not found: no_such" };
            ("no_such".to_owned(), format!("{message}\n"))
        }
        4 if shell != "nu" => {
            let text = text(random, &folder.join("in.0"));
            (format!("p 0 {status} | cat"), text)
        }
        _ => {
            let slot = number % 64;
            let text = text(random, &folder.join(format!("in.{slot}")));
            (format!("p {slot} {status}"), text)
        }
    }
}

async fn finished(events: &mut Receiver<Arc<CommandEvent>>) -> Option<PaneCommand> {
    let next = async {
        loop {
            let event = events.recv().await.expect("no event is missed");
            if let CommandChange::Finished(command) = &event.change
                && command.command.is_trusted
            {
                return (**command).clone();
            }
        }
    };
    tokio::time::timeout(LIMIT, next).await.ok()
}

/// Returns the shell's own log: statuses and lines.
fn own_log(folder: &Path) -> Vec<(i32, String)> {
    let log = fs::read_to_string(folder.join("own")).unwrap_or_default();
    let mut own: Vec<(i32, String)> = Vec::new();
    for entry in log.split_terminator('\0') {
        let (status, line) = entry.split_once('\t').unwrap();
        // The number of the history's entry; none before the first command.
        let Some((_, line)) = line.trim_start().split_once("  ") else { continue };
        own.push((status.parse().unwrap(), line.to_owned()));
    }
    own
}

/// Runs random commands in a shell. Returns how many of muxtap's entries were right in everything.
async fn run_in(shell: &Shell, count: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let rc = path.join(shell.file);
    fs::create_dir_all(rc.parent().unwrap()).unwrap();
    fs::write(rc, shell.rc.concat()).unwrap();
    let mut options = Options::default().tmux_config("/dev/null");
    options.shell_folder = Some(path.join("shell"));
    let engine = Engine::start(options).unwrap();
    let socket = path.join("socket");
    let _end = EndServer(socket.clone());
    let server = engine.server_at(&socket).unwrap();
    let mut events = server.command_events().unwrap();
    let home = path.display().to_string();
    let session = server.new_session().size(80, 24).env("LOG", &home).env("HOME", &home).env("ZDOTDIR", &home);
    let session = session.env("XDG_CONFIG_HOME", format!("{home}/.config")).env("XDG_DATA_HOME", &home);
    let program = program(shell.program);
    let mut sshd = None;
    let pane = match shell.place {
        Place::Integrated => session.shell_integration(true).shell_command(&program).await.unwrap(),
        Place::Own => session.env("MUXTAP_SHELL_NONCE", NONCE).shell_command(&program).await.unwrap(),
        Place::Ssh => {
            // What tmux gives the programs in its panes, for the shell at the other end.
            let env = [("HOME", &*home), ("LOG", &home), ("MUXTAP_SHELL_NONCE", NONCE), ("TMUX", "ssh")];
            let Some(started) = Sshd::start(path, &env) else { return 0 };
            let line = format!("exec {} -tt {program} -i", started.via("user", None));
            sshd = Some(started);
            session.shell_command(&line).await.unwrap()
        }
    };
    if shell.place != Place::Integrated {
        pane.trust_shell(NONCE).unwrap();
    }
    pane.wait().pattern(r"\$ ").unwrap().since(muxtap::Since::Start).timeout(LIMIT).await.unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut seen = Vec::new();
    for number in 0..count {
        let (line, printed) = command(shell.program, &mut random, path, number);
        for part in line.split('\n') {
            pane.type_text(part).await.unwrap();
            pane.send_keys(["Enter"]).await.unwrap();
        }
        let Some(ended) = finished(&mut events).await else {
            println!("  {}: command {number} never ended: {line:?}", shell.name);
            break;
        };
        let output = pane.command_output(&ended).await.unwrap();
        let expected = render_bytes(printed.replace('\n', "\r\n").as_bytes());
        let is_right = output.text == expected && output.is_whole && ended.command.is_trusted;
        if !is_right {
            println!("  {} {number}: {line:?} printed {expected:?}, muxtap has {:?}", shell.name, output.text);
        }
        let shown = ended.command.line.as_ref().map(|line| line.text.clone());
        seen.push((ended.command.status, shown, line, is_right));
        prompt(&pane, &ended).await;
    }
    let own = own_log(path);
    let mut wrong = 0;
    let mut right = 0;
    for (at, (status, shown, line, is_right)) in seen.iter().enumerate() {
        let logged = own.get(at).map(|(status, line)| (Some(*status), Some(line.clone())));
        if *is_right && logged == Some((*status, shown.clone())) && shown.as_ref() == Some(line) {
            right += 1;
        } else {
            wrong += 1;
            if wrong <= SHOWN {
                println!("  {} {at}: {line:?}: the shell has {logged:?}, muxtap has {status:?} {shown:?}", shell.name);
            }
        }
    }
    engine.stop().await;
    drop(sshd);
    right
}

/// Waits for the prompt after a command: what is typed before would be echoed by the terminal too.
async fn prompt(pane: &Pane, ended: &PaneCommand) {
    let wait = pane.wait().pattern(r"\$ ").unwrap().since(ended.end).timeout(LIMIT);
    wait.await.unwrap();
}

pub async fn run(args: &[String]) {
    let count = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(COMMANDS);
    let named: Vec<_> = args.iter().filter(|arg| arg.parse::<usize>().is_err()).collect();
    part("Random commands, some of which print forged marks: line, status, output and trust, by the shell's own log");
    for shell in SHELLS.iter().filter(|shell| named.is_empty() || named.iter().any(|name| *name == shell.name)) {
        if Command::new(program(shell.program)).arg("--version").output().is_err() {
            println!("  {} is not installed", shell.name);
            continue;
        }
        let start = Instant::now();
        let right = run_in(shell, count).await;
        println!("  {}: {right} of {count} right, in {:.0} s", shell.name, start.elapsed().as_secs_f64());
        figure(&format!("{}: part that is right", shell.name), right as f64 / count as f64, "", Goal::AtLeast(1.0));
    }
}
