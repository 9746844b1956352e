//! The ancestors of a process: they distinguish the process that asks a question from the one that
//! answers it.

use std::{collections::HashSet, sync::OnceLock};

#[cfg(target_os = "linux")]
use std::io::Read as _;

use muxtap_base::nonce;

#[cfg(target_os = "linux")]
use super::probe::Proc;

/// The variable that marks everything that an agent of a daemon has started. It is not secret.
pub const AGENT_MARK: &str = "MUXTAP_AGENT_SESSION";
/// Bytes of a process's environment that are searched: more than a program can be started with (6
/// MiB).
#[cfg(target_os = "linux")]
const ENVIRONMENT_BYTES: u64 = 8 << 20;

static MARKS: OnceLock<String> = OnceLock::new();

/// Returns the prefix of the values of [`AGENT_MARK`] for the agents of this process.
pub fn agent_marks() -> &'static str {
    MARKS.get_or_init(|| format!("{}-", nonce::hex64()))
}

/// Continues with the prefix of the process that this one replaces. Returns whether the prefix is that
/// one now: it is not if [`agent_marks`] was called before.
pub fn continue_agent_marks(marks: &str) -> bool {
    // Only these two functions set it.
    let _ = MARKS.set(marks.to_owned());
    agent_marks() == marks
}

/// The maximum number of ancestors that are read.
#[cfg(target_os = "linux")]
const MOST: usize = 256;

/// A process, and when it began: an id is reused, the pair is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// Its id.
    pub pid: u32,
    /// When it began, in ticks since the system booted.
    pub began: u64,
}

/// A process and its ancestors, itself first, as they were at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage(Vec<Ancestor>);

#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own about one process")]
struct Ancestor {
    id: ProcessId,
    /// Whether it is the first process of a pane that is followed.
    is_pane: bool,
    /// Whether it has a pseudo-terminal: a pane, a window of a terminal, a login.
    on_pty: bool,
    /// Whether it is the process that a system or a user's session begins with.
    is_manager: bool,
    /// Whether its environment has the mark of an agent of this daemon.
    is_agents: bool,
}

impl Lineage {
    /// Returns the processes that count as the author of a request: the process itself and what it
    /// runs in. For a process that this daemon has started, these are all up to the one that it
    /// started; for an agent that an earlier daemon has started, in a pane, or in another terminal, all
    /// up to its first process. Otherwise they are the process and its parent: further ancestors may
    /// have started everything that the user sees.
    pub fn asker(&self) -> Vec<ProcessId> {
        let own = std::process::id();
        let chain = &self.0;
        let length = if let Some(daemon) = chain.iter().position(|one| one.id.pid == own) {
            daemon
        } else if let Some(agent) = chain.iter().rposition(|one| one.is_agents) {
            agent + 1
        } else if let Some(root) = chain.iter().rposition(|one| one.is_pane) {
            root + 1
        } else if let Some(first) = chain.iter().rposition(|one| one.on_pty) {
            first + 1
        } else {
            1 + usize::from(chain.get(1).is_some_and(|parent| !parent.is_manager))
        };
        chain.iter().take(length).map(|one| one.id).collect()
    }

    /// Returns whether one of these processes is this one or an ancestor of it.
    pub fn descends_from(&self, processes: &[ProcessId]) -> bool {
        self.0.iter().any(|one| processes.contains(&one.id))
    }

    /// Returns whether this process or an ancestor of it was started by an agent of this daemon,
    /// even if its parents have gone. A process that has changed its environment is not recognized.
    pub fn is_agents(&self) -> bool {
        self.0.iter().any(|one| one.is_agents)
    }

    /// Returns whether a process with this id is this one or an ancestor of it.
    pub fn has_pid(&self, pid: u32) -> bool {
        self.0.iter().any(|one| one.id.pid == pid)
    }
}

#[cfg(target_os = "linux")]
impl Proc {
    /// Returns the process with this id and its ancestors; `None` if it has ended. `panes`: the
    /// first processes of panes. Reads a small file for each.
    pub fn lineage_of(&self, pid: u32, panes: &HashSet<u32>) -> Option<Lineage> {
        let mut chain = Vec::new();
        let mut next = pid;
        // The first process of the system is an ancestor of every process.
        while next > 1 && chain.len() < MOST {
            let Some(stat) = self.stat(next) else { break };
            chain.push(Ancestor {
                id: ProcessId { pid: next, began: stat.began },
                is_pane: panes.contains(&next),
                on_pty: stat.is_on_pty(),
                is_manager: stat.parent <= 1 && stat.is_named("systemd"),
                is_agents: self.is_agents(next),
            });
            next = stat.parent;
        }
        (!chain.is_empty()).then_some(Lineage(chain))
    }

    /// Returns whether a process's environment has the mark of an agent of this daemon.
    fn is_agents(&self, pid: u32) -> bool {
        let mut environment = Vec::new();
        let file = std::fs::File::open(self.of(pid, "environ"));
        // Bytes read before an error count.
        let _ = file.and_then(|file| file.take(ENVIRONMENT_BYTES).read_to_end(&mut environment));
        let mark = format!("{AGENT_MARK}={}", agent_marks());
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
    }
}

#[cfg(not(target_os = "linux"))]
impl super::probe::Proc {
    /// Returns `None`: this system does not report it.
    pub fn lineage_of(&self, _: u32, _: &HashSet<u32>) -> Option<Lineage> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a lineage of processes, each with whether it has a terminal and is a session's
    /// manager. 77 is a pane's.
    fn chain(of: &[(u32, bool, bool)]) -> Lineage {
        let chain = of.iter().map(|&(pid, on_pty, is_manager)| Ancestor {
            id: ProcessId { pid, began: u64::from(pid) },
            is_pane: pid == 77,
            on_pty,
            is_manager,
            is_agents: false,
        });
        Lineage(chain.collect())
    }

    fn asker(of: &[(u32, bool, bool)]) -> Vec<u32> {
        chain(of).asker().into_iter().map(|one| one.pid).collect()
    }

    #[test]
    fn the_asking_process_includes_its_whole_terminal_but_not_its_launcher() {
        let own = std::process::id();
        // In a pane: `muxtap mcp`, an agent, the shell; then the tmux server.
        assert_eq!(asker(&[(90, true, false), (80, true, false), (70, true, false), (60, false, false)]), [90, 80, 70]);
        // A process that has left the terminal, or created another one, still is in the pane.
        assert_eq!(asker(&[(90, false, false), (80, true, false), (60, false, false)]), [90, 80]);
        assert_eq!(asker(&[(90, true, false), (80, false, false), (70, true, false)]), [90, 80, 70]);
        // The end of a followed pane's chain is known.
        assert_eq!(asker(&[(90, true, false), (77, true, false), (60, false, false), (50, true, false)]), [90, 77]);
        // A program of the desktop, and one that the session's manager started.
        assert_eq!(asker(&[(90, false, false), (80, false, false), (70, false, true)]), [90, 80]);
        assert_eq!(asker(&[(90, false, false), (70, false, true)]), [90]);
        // An agent of this daemon's.
        let agent = [(90, false, false), (80, false, false), (85, false, false), (own, true, false), (70, true, false)];
        assert_eq!(asker(&agent), [90, 80, 85]);
        // One that another daemon has handed over to this one.
        let mut handed_over = chain(&[(90, false, false), (80, false, false), (85, false, false), (60, false, true)]);
        handed_over.0.iter_mut().take(3).for_each(|one| one.is_agents = true);
        assert_eq!(handed_over.asker().iter().map(|one| one.pid).collect::<Vec<_>>(), [90, 80, 85]);
        // One whose daemon was started in a pane: the agent's processes, and not the pane's.
        let mut in_pane = chain(&[(90, false, false), (85, false, false), (60, false, false), (77, true, false)]);
        in_pane.0.iter_mut().take(2).for_each(|one| one.is_agents = true);
        assert_eq!(in_pane.asker().iter().map(|one| one.pid).collect::<Vec<_>>(), [90, 85]);
        // One in a pane that the agent has opened: what it runs in up to the agent's terminal.
        let mut terminal = chain(&[(90, true, false), (77, true, false), (60, false, false)]);
        terminal.0.iter_mut().take(2).for_each(|one| one.is_agents = true);
        assert_eq!(terminal.asker().iter().map(|one| one.pid).collect::<Vec<_>>(), [90, 77]);
    }

    #[test]
    fn a_process_id_that_is_used_again_is_another_process() {
        let answers = chain(&[(90, true, false), (80, true, false)]);
        assert!(answers.descends_from(&[ProcessId { pid: 80, began: 80 }]));
        assert!(!answers.descends_from(&[ProcessId { pid: 80, began: 81 }]));
        assert!(!answers.descends_from(&[]));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_descends_from_its_parents() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (own, of_child) = (Proc::system().lineage_of(std::process::id(), &HashSet::new()).unwrap(), {
            Proc::system().lineage_of(child.id(), &HashSet::new()).unwrap()
        });
        let first = own.0.first().unwrap();
        assert_eq!(first.id.pid, std::process::id());
        assert!(of_child.descends_from(&[first.id]) && !own.descends_from(&[of_child.0.first().unwrap().id]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Proc::system().lineage_of(child.id(), &HashSet::new()), None);
    }
}
