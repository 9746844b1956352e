//! The foreground of a pane's terminal, read from the kernel (local servers on Linux).

use super::probe::Proc;

/// The foreground of a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreground {
    /// The process group that owns the terminal.
    pub group: u32,
    /// The arguments of its leader.
    pub args: Vec<String>,
    /// Whether it is still the process that tmux forked, before its `exec`.
    pub forked: bool,
    /// How input arrives at the program.
    pub input: TerminalInput,
    /// Whether the terminal echoes typed text (`ECHO`).
    pub echo: bool,
    /// What edits a line that the terminal collects.
    pub keys: LineKeys,
}

/// The characters by which a line is edited that the terminal collects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineKeys {
    /// Erases the line (`VKILL`).
    pub kill: Option<u8>,
    /// Shows the line again (`VREPRINT`).
    pub reprint: Option<u8>,
}

/// How a terminal's input arrives at its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalInput {
    /// The terminal collects lines (`ICANON`): no program edits the line.
    Lines,
    /// Each key arrives, as line editors want it: they echo by themselves, and have the terminal
    /// translate neither carriage return nor line feed (readline, fish, ksh), or both (zsh).
    Edited,
    /// Each key arrives and nothing is echoed, but carriage returns are translated: busybox's line
    /// editor, and `read -s` of single keys in bash and zsh.
    Silent,
    /// Each key arrives and is echoed: a `read` of single keys. No line editor leaves `ECHO` set.
    Keys,
}

/// Opens a terminal to ask about it. Reads nothing from it.
#[cfg(target_os = "linux")]
fn open(tty: &str) -> Option<rustix::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(tty, flags, Mode::empty()).ok()
}

#[cfg(target_os = "linux")]
impl Proc {
    /// Returns the foreground of the terminal `tty`, whose session leader is `pid`; `None` if it is
    /// unknown.
    pub fn foreground(&self, pid: u32, tty: &str) -> Option<Foreground> {
        use rustix::termios::{InputModes, LocalModes, SpecialCodeIndex};
        let stat = self.stat(pid)?;
        let group = Some(stat.foreground).filter(|group| *group > 0)?;
        let args = self.args_of(group)?;
        let forked = group == pid && self.args_of(stat.parent).is_some_and(|parent| parent == args);
        let terminal = open(tty)?;
        let settings = rustix::termios::tcgetattr(&terminal).ok()?;
        let (modes, input) = (settings.local_modes, settings.input_modes);
        let key = |index| Some(settings.special_codes[index]).filter(|key| *key != 0);
        let is_editors = input.contains(InputModes::ICRNL) == input.contains(InputModes::INLCR);
        Some(Foreground {
            group,
            args,
            forked,
            input: match (modes.contains(LocalModes::ICANON), modes.contains(LocalModes::ECHO)) {
                (true, _) => TerminalInput::Lines,
                (false, true) => TerminalInput::Keys,
                (false, false) if is_editors => TerminalInput::Edited,
                (false, false) => TerminalInput::Silent,
            },
            echo: modes.contains(LocalModes::ECHO),
            keys: LineKeys {
                kill: key(SpecialCodeIndex::VKILL),
                reprint: key(SpecialCodeIndex::VREPRINT)
                    .filter(|_| modes.contains(LocalModes::IEXTEN | LocalModes::ECHO)),
            },
        })
    }

    /// Returns whether keys (or whole lines, where the terminal collects lines) wait in the terminal `tty` that no
    /// program has read.
    pub fn has_unread_input(&self, tty: &str) -> bool {
        open(tty).is_some_and(|terminal| rustix::io::ioctl_fionread(&terminal).is_ok_and(|unread| unread > 0))
    }

    /// Returns a process's first child and its arguments; `None` if it has none or that is unknown.
    pub fn child(&self, pid: u32) -> Option<(u32, Vec<String>)> {
        let children = std::fs::read_to_string(self.of(pid, &format!("task/{pid}/children"))).ok()?;
        let child = children.split_whitespace().next()?.parse().ok()?;
        Some((child, self.args_of(child)?))
    }

    /// Returns the arguments of each program of a pipeline, in order, by the id of its process group.
    /// `None`: it is not a pipeline, or one that cannot be started again as it is: with a part that
    /// is no program, or a redirection, also of standard error.
    pub fn pipeline(&self, group: u32) -> Option<Vec<Vec<String>>> {
        let parent = self.stat(group)?.parent;
        let mut parts: Vec<u32> = self
            .children(parent)
            .into_iter()
            .filter(|pid| self.stat(*pid).is_some_and(|stat| stat.group == group))
            .collect();
        parts.sort_unstable();
        let shell = self.args_of(parent);
        let end = |pid: u32, descriptor: &str| std::fs::read_link(self.of(pid, "fd").join(descriptor)).ok();
        let joined = parts.windows(2).all(|two| {
            let [one, other] = two else { return false };
            let pipe = end(*one, "1");
            pipe.is_some() && pipe == end(*other, "0")
        });
        let (first, last) = (parts.first()?, parts.last()?);
        let terminal = end(*first, "0");
        let is_whole = joined
            && first != last
            && terminal.is_some()
            && terminal == end(*last, "1")
            && parts.iter().all(|pid| end(*pid, "2") == terminal);
        let parts: Option<Vec<_>> = parts.iter().map(|pid| self.args_of(*pid)).collect();
        parts.filter(|parts| is_whole && parts.iter().all(|args| !args.is_empty() && Some(args) != shell.as_ref()))
    }

    /// Returns whether this system reports processes at all.
    pub fn is_there(&self) -> bool {
        self.root().join("self/stat").exists()
    }

    pub(super) fn args_of(&self, pid: u32) -> Option<Vec<String>> {
        let args = std::fs::read(self.of(pid, "cmdline")).ok()?;
        // Each argument ends with a NUL, and may be empty. A program that shows a title has one
        // argument, and NULs in place of the others.
        let args = args.strip_suffix(&[0]).unwrap_or(&args);
        let mut args: Vec<&[u8]> = args.split(|byte| *byte == 0).collect();
        if args.iter().skip(1).all(|arg| arg.is_empty()) {
            args.truncate(usize::from(args.first().is_some_and(|first| !first.is_empty())));
        }
        Some(args.into_iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect())
    }
}

#[cfg(not(target_os = "linux"))]
impl Proc {
    /// Returns `None`: this system does not report it.
    pub fn foreground(&self, _: u32, _: &str) -> Option<Foreground> {
        None
    }

    /// Returns `false`: this system does not report it.
    pub fn has_unread_input(&self, _: &str) -> bool {
        false
    }

    /// Returns `None`: this system does not report it.
    pub fn child(&self, _: u32) -> Option<(u32, Vec<String>)> {
        None
    }

    /// Returns `None`: this system does not report it.
    pub fn pipeline(&self, _: u32) -> Option<Vec<Vec<String>>> {
        None
    }

    /// Returns whether this system reports processes at all.
    pub fn is_there(&self) -> bool {
        false
    }
}
