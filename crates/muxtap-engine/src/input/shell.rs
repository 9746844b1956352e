//! The shell in a pane's foreground, and whether it is idle.

use muxtap_base::quoting::shell_word;
use muxtap_tmux::{Foreground, LineKeys, Proc, Relative, TerminalInput};

use crate::{Host, PaneState, pane::PaneMetadata};

/// Shells that `run` supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// sh, dash, ash, ksh93, mksh: quoting as in POSIX.
    Posix,
    /// bash: the same, with a history.
    Bash,
    /// zsh: the same, but its `command` does not run builtins.
    Zsh,
    /// fish.
    Fish,
}

/// A shell that waits for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleShell {
    /// The kind of shell.
    pub shell: Shell,
    /// The shell's pid, if known.
    pub pid: Option<u32>,
    /// Whether the terminal collects lines because the shell has no line editor.
    pub canonical: bool,
    /// What edits a line that the terminal collects.
    pub keys: LineKeys,
    /// Whether the shell is known to read files that only this user can read.
    pub reads_files: bool,
    /// Whether only the shell's marks show it: it is behind another terminal.
    pub is_marked: bool,
}

/// What tells the shells in a pane apart: the pid, if known, and whether the shell is behind another terminal.
pub type ShellId = (Option<u32>, bool);

impl IdleShell {
    /// Returns what tells this shell apart from others in its pane.
    pub fn id(&self) -> ShellId {
        (self.pid, self.is_marked)
    }
}

/// The usual keys of a terminal: Ctrl-U, Ctrl-R.
const USUAL: LineKeys = LineKeys { kill: Some(0x15), reprint: Some(0x12) };

/// The program in a pane's foreground.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForegroundState {
    /// A shell that waits for a line.
    Shell(IdleShell),
    /// A shell that runs something itself, or is starting.
    Busy(String),
    /// A shell that waits for a key (`read -n1`): whatever is typed answers its question.
    Question(String),
    /// Another program.
    Other(String),
}

/// Returns the program in the foreground of a pane's terminal. A pane whose program is not found in
/// time counts as busy. On systems and machines where the program cannot be found, tmux's name of
/// the command decides.
pub async fn foreground_state(host: &Host, metadata: PaneMetadata) -> ForegroundState {
    if !host.server().spec().is_local() {
        return by_command(&metadata.command);
    }
    let command = metadata.command.clone();
    let found = host.probe(metadata, |proc, metadata| match proc.foreground(metadata.pid, &metadata.tty) {
        Some(foreground) if foreground.forked => ForegroundState::Busy(metadata.command.clone()),
        Some(foreground) => classify(proc, &foreground),
        // The pane is between two processes: tmux reports the previous one's name.
        None if proc.is_there() => ForegroundState::Busy(metadata.command.clone()),
        None => by_command(&metadata.command),
    });
    found.await.unwrap_or(ForegroundState::Busy(command))
}

/// Shells whose languages `run` does not write.
pub const UNSUPPORTED: [&str; 8] = ["nu", "elvish", "xonsh", "tcsh", "csh", "pwsh", "rc", "es"];

/// Programs behind which a shell may wait in a terminal of its own. Nothing is typed into another
/// program, whatever marks it prints: a pager or a viewer shows those of the file.
pub const CARRIERS: [&str; 15] = [
    "ssh",
    "sudo",
    "doas",
    "su",
    "script",
    "docker",
    "podman",
    "kubectl",
    "nsenter",
    "chroot",
    "toolbox",
    "lxc",
    "incus",
    "machinectl",
    "systemd-run",
];

/// Returns the shell that waits for a line in a pane, or what runs there. A shell behind another terminal (ssh,
/// `sudo -i`, a container) is known by its marks alone.
pub async fn waiting_shell(host: &Host, pane: &PaneState) -> ForegroundState {
    let state = foreground_state(host, pane.metadata()).await;
    if !matches!(&state, ForegroundState::Other(name) if CARRIERS.contains(&name.as_str())) {
        return state;
    }
    pane.marked_shell().map_or(state, |MarkedShell { shell, has_editor }| {
        ForegroundState::Shell(IdleShell {
            shell,
            pid: None,
            canonical: !has_editor,
            // Which key erases the line is not known, and a wrong one would be text. A wrong Ctrl-R is removed.
            keys: LineKeys { kill: None, ..USUAL },
            reads_files: false,
            is_marked: true,
        })
    })
}

fn by_command(command: &str) -> ForegroundState {
    kind(command).map_or_else(
        || ForegroundState::Other(command.to_owned()),
        |shell| {
            ForegroundState::Shell(IdleShell {
                shell,
                pid: None,
                canonical: shell == Shell::Posix,
                keys: USUAL,
                reads_files: false,
                is_marked: false,
            })
        },
    )
}

/// Returns the name of the program that the exit wrapper in the foreground started; tmux reports
/// `sh` for such a pane. `None` if tmux's name is right.
pub fn wrapped_program(proc: &Proc, metadata: &PaneMetadata) -> Option<String> {
    let foreground = proc.foreground(metadata.pid, &metadata.tty)?;
    if !is_exit_wrapper(&foreground.args) {
        return None;
    }
    let mut wrapped = proc.child(foreground.group)?;
    while is_command_line(&wrapped.1) || is_exit_wrapper(&wrapped.1) {
        wrapped = proc.child(wrapped.0)?;
    }
    wrapped.1.first().map(|program| base_name(program).to_owned()).filter(|name| !name.is_empty())
}

/// The `$0` of a shell script that muxtap runs in a restored pane. The words after it are the
/// program.
pub const RESTORED: &str = "muxtap-restored";

/// Returns all arguments of the program in a pane's foreground, without muxtap's wrappers. `None`
/// if a shell is idle there, or the arguments are unknown.
pub fn program_args(proc: &Proc, metadata: &PaneMetadata) -> Option<Vec<String>> {
    let foreground = proc.foreground(metadata.pid, &metadata.tty)?;
    if foreground.forked {
        return None;
    }
    let mut args = foreground.args;
    if let Some(parts) = proc.pipeline(foreground.group) {
        let words = |args: &Vec<String>| args.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
        return Some(vec!["/bin/sh".into(), "-c".into(), parts.iter().map(words).collect::<Vec<_>>().join(" | ")]);
    }
    if is_exit_wrapper(&args) {
        let mut wrapped = proc.child(foreground.group)?;
        while is_exit_wrapper(&wrapped.1) {
            wrapped = proc.child(wrapped.0)?;
        }
        args = wrapped.1;
    }
    if args.get(3).is_some_and(|name| name == RESTORED) {
        args.drain(..4);
    }
    let program = args.first()?;
    let is_shell = kind(base_name(program)).is_some();
    (!is_shell || is_command_line(&args) || has_script(&args)).then_some(args)
}

fn classify(proc: &Proc, foreground: &Foreground) -> ForegroundState {
    if is_exit_wrapper(&foreground.args) {
        // The wrapped command is in the wrapper's process group: a program without job control, or
        // a shell before it has created a group of its own.
        let mut wrapped = proc.child(foreground.group);
        // A shell with `-c` is about to become, or to start, its command.
        while let Some((pid, _)) = wrapped.as_ref().filter(|(_, args)| is_command_line(args)) {
            wrapped = proc.child(*pid);
        }
        return match wrapped {
            Some((group, args)) if !is_exit_wrapper(&args) => {
                classify(proc, &Foreground { group, args, ..foreground.clone() })
            }
            _ => ForegroundState::Busy("sh".into()),
        };
    }
    let args = applet(&foreground.args);
    let name = args.first().map_or("", |program| base_name(program));
    if name.is_empty() {
        // Between two programs, or a pipeline whose first program has ended.
        return ForegroundState::Busy(String::new());
    }
    if name == "env" {
        // About to become the program that it names: `#!/usr/bin/env bash`.
        return ForegroundState::Busy(name.to_owned());
    }
    let Some(shell) = kind(name) else { return ForegroundState::Other(name.to_owned()) };
    // `bash build.sh` and `sh -c …` are programs, not shells that read commands.
    if has_script(args) {
        return ForegroundState::Other(foreground.args.join(" "));
    }
    // A shell with a line editor takes the terminal out of cooked mode only while it reads a line.
    if foreground.input == TerminalInput::Lines && matches!(name, "bash" | "zsh" | "fish") {
        return ForegroundState::Busy(name.to_owned());
    }
    match foreground.input {
        TerminalInput::Keys => return ForegroundState::Question(name.to_owned()),
        TerminalInput::Silent if matches!(name, "bash" | "zsh") => return ForegroundState::Question(name.to_owned()),
        TerminalInput::Lines | TerminalInput::Edited | TerminalInput::Silent => {}
    }
    ForegroundState::Shell(IdleShell {
        shell,
        pid: Some(foreground.group),
        canonical: foreground.input == TerminalInput::Lines,
        keys: foreground.keys,
        reads_files: !is_restricted(args) && proc.shares_files(foreground.group),
        is_marked: false,
    })
}

/// Returns the arguments from the program's name on: `ash -i` for `busybox ash -i`.
fn applet(args: &[String]) -> &[String] {
    match args {
        [program, applet @ ..] if base_name(program) == "busybox" && !applet.is_empty() => applet,
        _ => args,
    }
}

/// Returns whether a shell with these arguments runs a script or a command line.
fn has_script(args: &[String]) -> bool {
    const WITH_VALUE: [&str; 8] = ["--rcfile", "--init-file", "--init-command", "-C", "-o", "+o", "-O", "+O"];
    let mut args = args.iter().skip(1);
    while let Some(arg) = args.next() {
        if arg == "-c" || !arg.starts_with(['-', '+']) {
            return true;
        }
        if WITH_VALUE.contains(&arg.as_str()) {
            args.next();
        }
    }
    false
}

/// Returns whether these are the arguments of a shell that refuses to read a file by its path.
fn is_restricted(args: &[String]) -> bool {
    let is_restriction = |arg: &String| {
        arg == "--restricted"
            || arg.strip_prefix('-').is_some_and(|flags| !flags.starts_with('-') && flags.contains('r'))
    };
    args.iter().skip(1).any(is_restriction)
}

/// Returns whether these are the arguments of an exit wrapper ([`crate::spawn::managed`]).
fn is_exit_wrapper(args: &[String]) -> bool {
    args.get(3).is_some_and(|name| name == "muxtap-hold")
}

fn is_command_line(args: &[String]) -> bool {
    let is_shell = args.first().is_some_and(|program| kind(base_name(program)).is_some());
    is_shell && !is_exit_wrapper(args) && args.get(1).is_some_and(|flag| flag == "-c")
}

/// Returns whether these are the arguments of a shell with a given command: an exit wrapper, or a
/// shell with `-c`.
pub fn runs_given_command(args: &[String]) -> bool {
    let name = args.first().map_or("", |program| base_name(program));
    is_exit_wrapper(args)
        || kind(name).is_some()
            && args
                .iter()
                .skip(1)
                .take_while(|arg| arg.starts_with('-'))
                .any(|arg| !arg.starts_with("--") && arg.contains('c'))
}

/// Returns whether the program in the pane reads lines from its user (a shell or a REPL); true if
/// unknown.
pub async fn reads_lines(host: &Host, metadata: PaneMetadata) -> bool {
    if !host.server().spec().is_local() {
        return true;
    }
    let found = host.probe(metadata, |proc, metadata| match proc.foreground(metadata.pid, &metadata.tty) {
        // The program has a line editor, like shells and REPLs. For shells without one, the prompt
        // is the only sign.
        Some(foreground) => {
            foreground.input != TerminalInput::Lines || matches!(classify(proc, &foreground), ForegroundState::Shell(_))
        }
        None => true,
    });
    found.await.unwrap_or(true)
}

/// Returns whether the program in the pane is a shell that another shell there has started, and that waits for a line,
/// or a program behind which such a shell may be ([`CARRIERS`]); false if unknown. The pane's own shell does not count:
/// while one of its builtins asks something, it looks as at its prompt.
pub async fn is_inner_shell(host: &Host, metadata: PaneMetadata) -> bool {
    if !host.server().spec().is_local() {
        return false;
    }
    let found = host.probe(metadata, |proc, metadata| {
        let foreground = proc.foreground(metadata.pid, &metadata.tty)?;
        Some(match classify(proc, &foreground) {
            ForegroundState::Shell(_) => {
                let within = |relative: &Relative| relative.group != foreground.group;
                let chain = proc.ancestors_of(foreground.group);
                let pane = chain.iter().position(|relative| relative.pid == metadata.pid)?;
                chain
                    .iter()
                    .take(pane + 1)
                    .filter(|relative| within(relative))
                    .any(|relative| starts_shells(&relative.args))
            }
            ForegroundState::Other(name) => {
                CARRIERS.contains(&name.as_str()) && foreground.input != TerminalInput::Lines
            }
            ForegroundState::Busy(_) | ForegroundState::Question(_) => false,
        })
    });
    found.await.flatten().unwrap_or(false)
}

/// Returns whether these are the arguments of a shell that reads commands.
fn starts_shells(args: &[String]) -> bool {
    let args = applet(args);
    let is_shell = args.first().is_some_and(|program| {
        let name = base_name(program);
        kind(name).is_some() || UNSUPPORTED.contains(&name)
    });
    is_shell && !is_exit_wrapper(args) && !has_script(args)
}

/// A shell that is known by its marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MarkedShell {
    pub(crate) shell: Shell,
    /// Whether it has a line editor; otherwise, the terminal collects the line. The marks use the name `dash` only
    /// for a shell without one.
    pub(crate) has_editor: bool,
}

impl MarkedShell {
    /// Returns the shell that a mark reported by this name.
    pub(crate) fn reported(name: &str) -> Option<Self> {
        kind(name).map(|shell| Self { shell, has_editor: name != "dash" })
    }
}

fn kind(name: &str) -> Option<Shell> {
    match name {
        "sh" | "dash" | "ash" | "ksh" | "ksh93" | "mksh" | "lksh" => Some(Shell::Posix),
        "bash" => Some(Shell::Bash),
        "zsh" => Some(Shell::Zsh),
        "fish" => Some(Shell::Fish),
        _ => None,
    }
}

/// Returns a program's name without folder and login dash: `-bash` and `/bin/bash` are `bash`.
fn base_name(program: &str) -> &str {
    let program = program.strip_prefix('-').unwrap_or(program);
    program.rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muxtap_tmux::ProcessProbe;

    use super::*;
    use crate::{Engine, Options};

    /// A FIFO without a writer replaces a file of the kernel that hangs.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_process_whose_proc_files_hang_is_unknown_and_delays_no_other_check() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let proc = tempfile::tempdir().unwrap();
        for pid in ["7", "8", "self"] {
            std::fs::create_dir(proc.path().join(pid)).unwrap();
        }
        std::fs::write(proc.path().join("self/stat"), "").unwrap();
        mknodat(CWD, proc.path().join("7/stat"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let engine = Engine::with_probe(Options::default(), ProcessProbe::of(proc.path()));
        let host = engine.host(&proc.path().join("no-server")).unwrap();
        let metadata = |pid| PaneMetadata { pid, command: "bash".into(), ..PaneMetadata::default() };
        let ended = std::cell::RefCell::new(Vec::new());
        // The runtime has one thread, which continues, and so do checks of other panes.
        let other = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(foreground_state(&host, metadata(8)).await, ForegroundState::Busy("bash".into()));
            ended.borrow_mut().push("the other");
        };
        let rests = async {
            assert_eq!(foreground_state(&host, metadata(7)).await, ForegroundState::Busy("bash".into()));
            ended.borrow_mut().push("whether it rests");
        };
        let reads = async {
            assert!(reads_lines(&host, metadata(7)).await);
        };
        tokio::join!(rests, reads, other);
        assert_eq!(*ended.borrow(), ["the other", "whether it rests"]);
        // Lets the thread end.
        std::fs::write(proc.path().join("7/stat"), "").unwrap();
    }

    fn foreground(args: &[&str], canonical: bool) -> Foreground {
        Foreground {
            group: 1,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            forked: false,
            input: if canonical { TerminalInput::Lines } else { TerminalInput::Edited },
            echo: canonical,
            keys: USUAL,
        }
    }

    #[test]
    fn only_a_shell_that_waits_for_a_line_rests() {
        let classify = |foreground: &Foreground| classify(&Proc::system(), foreground);
        let reads_files = Proc::system().shares_files(1);
        let reads = |shell, canonical| {
            ForegroundState::Shell(IdleShell {
                shell,
                pid: Some(1),
                canonical,
                keys: USUAL,
                reads_files,
                is_marked: false,
            })
        };
        assert_eq!(classify(&foreground(&["-bash"], false)), reads(Shell::Bash, false));
        assert_eq!(classify(&foreground(&["/usr/bin/fish", "-l"], false)), reads(Shell::Fish, false));
        assert_eq!(classify(&foreground(&["sh"], true)), reads(Shell::Posix, true));
        assert_eq!(classify(&foreground(&["busybox", "ash", "-i"], false)), reads(Shell::Posix, false));
        assert_eq!(classify(&foreground(&["busybox", "vi"], false)), ForegroundState::Other("vi".into()));
        assert_eq!(classify(&foreground(&["busybox"], false)), ForegroundState::Other("busybox".into()));
        assert!(matches!(
            classify(&foreground(&["bash", "-r"], false)),
            ForegroundState::Shell(IdleShell { reads_files: false, .. })
        ));
        for args in [&["bash", "--rcfile", "mine"][..], &["fish", "--init-command", "echo"], &["zsh", "-o", "vi"]] {
            assert!(matches!(classify(&foreground(args, false)), ForegroundState::Shell(_)), "{args:?}");
        }
        assert_eq!(classify(&foreground(&["bash"], true)), ForegroundState::Busy("bash".into()));
        let with = |name: &str, input| classify(&Foreground { input, ..foreground(&[name], false) });
        assert_eq!(with("bash", TerminalInput::Keys), ForegroundState::Question("bash".into()));
        assert_eq!(with("zsh", TerminalInput::Silent), ForegroundState::Question("zsh".into()));
        assert_eq!(with("ash", TerminalInput::Silent), reads(Shell::Posix, false), "busybox's line editor");
        assert_eq!(classify(&foreground(&["bash", "build.sh"], false)), ForegroundState::Other("bash build.sh".into()));
        assert_eq!(classify(&foreground(&["sleep", "9"], true)), ForegroundState::Other("sleep".into()));
        assert_eq!(classify(&foreground(&["/usr/bin/env", "bash", "tool"], true)), ForegroundState::Busy("env".into()));
    }
}
