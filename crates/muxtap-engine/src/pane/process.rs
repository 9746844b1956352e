//! The process in a pane: when muxtap started it, and how it ended.

use tokio::time::Instant;

use muxtap_tmux::Exit;

use serde::{Deserialize, Serialize};

use super::{LockedPane, MemoryDelta, PaneState, managed::ManagedPane};

/// The process in a pane; for a pane that has ended, its last process.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Process {
    /// The stream's end when muxtap created or respawned the pane, and the time.
    #[serde(with = "muxtap_base::age")]
    started: Option<(u64, Instant)>,
    /// How the process ended, and when muxtap learned of it.
    #[serde(with = "muxtap_base::age")]
    exit: Option<(Exit, Instant)>,
    /// The pid of the ended process, once tmux has reported it.
    exit_pid: Option<u32>,
    /// Whether the pane has gone: nothing is appended any more.
    is_retired: bool,
    /// The state of the program that muxtap started in the pane, if it did.
    pub(super) managed: Option<ManagedPane>,
}

impl Process {
    pub(super) fn started(&self) -> Option<(u64, Instant)> {
        self.started
    }

    pub(super) fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    pub(super) fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// Records how the process ended.
    pub(super) fn end(&mut self, exit: Exit) {
        self.exit = Some((exit, Instant::now()));
    }

    /// Records that another program runs in the pane.
    pub(super) fn begin_anew(&mut self) {
        (self.exit, self.exit_pid) = (None, None);
    }

    /// Records the pid of the ended process, if tmux still knows it (N62).
    pub(super) fn note_ended(&mut self, pid: u32) {
        self.exit_pid = Some(pid).filter(|pid| *pid != 0).or(self.exit_pid);
    }

    /// Returns whether this is another process than the ended one.
    pub(super) fn is_another(&self, pid: u32) -> bool {
        self.exit_pid.is_some_and(|ended| ended != pid)
    }

    /// Returns whether the end of a command that muxtap started is awaited.
    pub(super) fn awaits_exit(&self) -> bool {
        let wrapper = self.managed.as_ref().and_then(|managed| managed.wrapper.as_ref());
        self.exit.is_none() && wrapper.is_some_and(|wrapper| wrapper.is_awaited)
    }
}

impl PaneState {
    /// Returns how the pane's process ended; `None` before that.
    pub fn exit(&self) -> Option<Exit> {
        self.lock().exit()
    }

    pub(crate) fn ended_at(&self) -> Option<Instant> {
        self.lock().process.exit.map(|(_, at)| at)
    }

    /// Records that muxtap has started the pane's program, whose output follows this offset.
    pub(crate) fn mark_started(&self, offset: u64) {
        self.lock().process.started = Some((offset, Instant::now()));
    }

    /// Records that the pane has gone. Its output that is still under way is dropped.
    pub(crate) fn mark_retired(&self) {
        let mut locked = self.lock();
        locked.process.is_retired = true;
        locked.watchers.agent_signals.program_changed();
    }

    /// Records that the process has ended. tmux may have dropped the last of its output (F9, N10),
    /// so the stream ends with a gap. Returns `None` if the end was already known.
    pub(crate) fn mark_exited(&self, exit: Exit) -> Option<MemoryDelta> {
        self.mark_ended(exit, LockedPane::mark_possible_loss)
    }

    /// Records that the wrapped command has ended. The wrapper's mark comes after all of the
    /// command's output. Returns whether the end was new.
    pub(crate) fn mark_command_ended(&self, exit: Exit) -> bool {
        self.mark_ended(exit, |_| {}).is_some()
    }

    fn mark_ended(&self, exit: Exit, first: impl FnOnce(&mut LockedPane)) -> Option<MemoryDelta> {
        let mut locked = self.lock();
        if locked.process.has_ended() {
            return None;
        }
        let before = locked.held_bytes();
        first(&mut locked);
        locked.process.end(exit);
        locked.end_commands(exit);
        locked.rest_watchers();
        self.note_command_changes(&mut locked);
        let _watchers = locked.watchers.pane_ended(exit);
        let memory = locked.memory_since(before);
        self.notify_changed(locked);
        Some(memory)
    }
}

impl LockedPane {
    /// Returns how the pane's process ended; `None` before that.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.process.exit.map(|(exit, _)| exit)
    }

    /// Returns whether the pane was created without a process. Commands of tmux write text into
    /// such a pane, and tmux sends no output for it (N100).
    pub(crate) fn has_no_process(&self) -> bool {
        self.metadata.pid == 0 && self.metadata.size.width != 0 && !self.process.has_ended()
    }
}
