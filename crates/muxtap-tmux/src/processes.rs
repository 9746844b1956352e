//! The processes on a pane's terminal, read from the kernel (local servers on Linux).

use std::path::PathBuf;

use super::probe::Proc;

/// A process on a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its arguments, the program first.
    pub args: Vec<String>,
    /// Whether it was stopped, by Ctrl-Z say.
    pub stopped: bool,
}

/// The maximum number of processes that are read for one terminal, or one chain of ancestors.
#[cfg(target_os = "linux")]
const MOST: usize = 256;

/// A process among the ancestors of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relative {
    /// Its id.
    pub pid: u32,
    /// Its process group.
    pub group: u32,
    /// Its controlling terminal, as the kernel numbers it; 0 if it has none.
    pub terminal: i64,
    /// Its arguments, the program first.
    pub args: Vec<String>,
}

/// The terminal of a process, and the processes on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// The process group in its foreground.
    pub foreground: u32,
    /// The process itself, then its descendants on the same terminal, parents before children; at
    /// most 256.
    pub processes: Vec<Process>,
}

#[cfg(target_os = "linux")]
impl Proc {
    /// Returns the terminal of process `pid`; `None` if it is unknown. Reads three small files for
    /// each process on it.
    pub fn terminal_of(&self, pid: u32) -> Option<Terminal> {
        let first = self.stat(pid)?;
        let (foreground, terminal) = (first.foreground, first.terminal);
        let mut processes = Vec::new();
        let mut queue = std::collections::VecDeque::from([(pid, Some(first))]);
        // A foreground process whose parent has gone since has no parent in this tree.
        let mut orphan = (foreground != pid).then_some((foreground, None));
        let mut seen = std::collections::HashSet::new();
        while let Some((next, stat)) = queue.pop_front().or_else(|| orphan.take()) {
            if processes.len() >= MOST || !seen.insert(next) {
                continue;
            }
            let stat = stat.or_else(|| self.stat(next));
            let Some(stat) = stat.filter(|stat| stat.terminal == terminal) else { continue };
            queue.extend(self.children(next).into_iter().map(|child| (child, None)));
            let args = self.args_of(next).unwrap_or_default();
            if !args.is_empty() {
                processes.push(Process { pid: next, args, stopped: matches!(stat.state, 'T' | 't') });
            }
        }
        Some(Terminal { foreground, processes })
    }

    /// Returns process `pid` and its ancestors, itself first. Empty if it is unknown.
    pub fn ancestors_of(&self, pid: u32) -> Vec<Relative> {
        let mut chain = Vec::new();
        let mut next = pid;
        // The first process of the system is an ancestor of every process.
        while next > 1 && chain.len() < MOST {
            let Some(stat) = self.stat(next) else { break };
            let args = self.args_of(next).unwrap_or_default();
            chain.push(Relative { pid: next, group: stat.group, terminal: stat.terminal, args });
            next = stat.parent;
        }
        chain
    }

    /// Returns the controlling terminal of process `pid`, as the kernel numbers it; `None` if the
    /// process is unknown or has no terminal.
    pub fn terminal_number(&self, pid: u32) -> Option<i64> {
        self.stat(pid).map(|stat| stat.terminal).filter(|terminal| *terminal != 0)
    }

    /// Returns whether process `pid` is there, and neither stopped nor at its end.
    pub fn runs(&self, pid: u32) -> bool {
        self.stat(pid).is_some_and(|stat| !matches!(stat.state, 'T' | 't' | 'Z' | 'X' | 'x'))
    }

    /// Returns the current directory of process `pid`.
    pub fn directory(&self, pid: u32) -> Option<PathBuf> {
        std::fs::read_link(self.root().join(pid.to_string()).join("cwd")).ok()
    }

    /// Returns whether process `pid` finds the same files under the same names as this process, and
    /// may read those of this process's user. False if that is unknown.
    pub fn shares_files(&self, pid: u32) -> bool {
        let same = |link: &str| {
            let of = |who: &str| std::fs::read_link(self.root().join(who).join(link)).ok();
            of("self").is_some() && of("self") == of(&pid.to_string())
        };
        let user = |who: &str| {
            let status = std::fs::read_to_string(self.root().join(who).join("status")).ok()?;
            // Real, effective, saved and file-system ids.
            let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
            ids.split_whitespace().nth(3)?.parse::<u32>().ok()
        };
        let theirs = user(&pid.to_string());
        same("root") && same("ns/mnt") && (theirs == Some(0) || theirs.is_some() && theirs == user("self"))
    }

    /// Returns the process group in the foreground of the terminal of process `pid`; `None` if it
    /// is unknown.
    pub fn foreground_group(&self, pid: u32) -> Option<u32> {
        self.stat(pid).map(|stat| stat.foreground)
    }

    pub(super) fn stat(&self, pid: u32) -> Option<Stat> {
        // One read returns all of it, and it is never longer: 52 numbers and a name.
        let mut stat = [0; 2048];
        let file = std::fs::File::open(self.of(pid, "stat")).ok()?;
        let length = std::io::Read::read(&mut &file, &mut stat).ok()?;
        Stat::parse(&String::from_utf8_lossy(stat.get(..length)?))
    }

    /// Returns a process's children. Every thread can start processes, and the kernel lists them by
    /// thread.
    pub(super) fn children(&self, pid: u32) -> Vec<u32> {
        let threads = std::fs::read_dir(self.of(pid, "task")).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
    }
}

/// The fields in use of `/proc/PID/stat` (proc(5)).
#[cfg(target_os = "linux")]
pub(super) struct Stat {
    state: char,
    pub(super) parent: u32,
    /// Its process group.
    pub(super) group: u32,
    terminal: i64,
    /// The process group in its terminal's foreground; 0 if it has none.
    pub(super) foreground: u32,
    /// When it began, in ticks since the system booted.
    pub(super) began: u64,
    name: String,
}

#[cfg(target_os = "linux")]
impl Stat {
    fn parse(stat: &str) -> Option<Self> {
        // The command's name is in parentheses and may contain anything; the rest begins after the
        // last one.
        let (name, rest) = stat.rsplit_once(')')?;
        let name = name.split_once('(').map(|(_, name)| name.to_owned()).unwrap_or_default();
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        // After the parent: pgrp, session, tty_nr, tpgid.
        let group = fields.next()?.parse().ok()?;
        let terminal = fields.nth(1)?.parse().ok()?;
        let foreground: i64 = fields.next()?.parse().ok()?;
        // After tpgid: 13 more, then starttime.
        let began = fields.nth(13)?.parse().ok()?;
        let foreground = u32::try_from(foreground).unwrap_or_default();
        Some(Self { state, parent, group, terminal, foreground, began, name })
    }

    /// Returns whether its terminal is a pseudo-terminal: majors 136 to 143 of devices (Linux,
    /// devices.txt).
    pub(super) fn is_on_pty(&self) -> bool {
        (136..=143).contains(&(self.terminal >> 8 & 0xfff))
    }

    /// Returns whether its program has this name, or gave it to itself.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }
}

#[cfg(not(target_os = "linux"))]
impl Proc {
    /// Returns `None`: this system does not report it.
    pub fn terminal_of(&self, _: u32) -> Option<Terminal> {
        None
    }

    /// Returns nothing: this system does not report it.
    pub fn ancestors_of(&self, _: u32) -> Vec<Relative> {
        Vec::new()
    }

    /// Returns `None`: this system does not report it.
    pub fn terminal_number(&self, _: u32) -> Option<i64> {
        None
    }

    /// Returns false: this system does not report it.
    pub fn runs(&self, _: u32) -> bool {
        false
    }

    /// Returns `None`: this system does not report it.
    pub fn directory(&self, _: u32) -> Option<PathBuf> {
        None
    }

    /// Returns false: this system does not report it.
    pub fn shares_files(&self, _: u32) -> bool {
        false
    }

    /// Returns `None`: this system does not report it.
    pub fn foreground_group(&self, _: u32) -> Option<u32> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        process::Stdio,
    };

    use super::*;

    #[test]
    fn a_process_stands_before_what_it_started() {
        let mut cat = std::process::Command::new("cat");
        let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It has its arguments when it replies, not as soon as it exists.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let found = Proc::system().terminal_of(std::process::id()).unwrap().processes;
        let at = |pid| found.iter().position(|process| process.pid == pid);
        assert_eq!(at(std::process::id()), Some(0));
        assert!(at(child.id()).is_some_and(|at| at > 0));
        child.kill().unwrap();
        child.wait().unwrap();
        let left = Proc::system().terminal_of(std::process::id()).unwrap().processes;
        assert!(left.iter().all(|process| process.pid != child.id()));
        assert_eq!(Proc::system().terminal_of(u32::MAX), None);
    }
}
