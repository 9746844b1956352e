//! Pane metadata that tmux reports besides the output: title, command, directory, process and size.

use muxtap_api::Size;
use muxtap_tmux::{PaneRow, Value};

use super::{
    MemoryDelta, PaneState, State,
    screen_model::{CursorReport, Staleness},
};

use crate::limits;

/// A pane's title, command, directory, terminal, process and size, as tmux reports them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaneMetadata {
    pub(crate) title: String,
    pub(crate) command: String,
    pub(crate) path: String,
    pub(crate) tty: String,
    pub(crate) pid: u32,
    pub(crate) size: Size,
}

impl From<&PaneRow> for PaneMetadata {
    fn from(row: &PaneRow) -> Self {
        Self {
            title: row.title.clone(),
            command: row.command.clone(),
            path: row.path.clone(),
            tty: row.tty.clone(),
            pid: row.pid,
            size: row.size,
        }
    }
}

/// Result of an update of a pane's metadata.
#[must_use]
pub(crate) struct MetadataUpdate {
    /// Whether the title changed.
    pub(crate) retitled: bool,
    /// Whether the screen needs a resync.
    pub(crate) needs_resync: bool,
    pub(crate) memory: MemoryDelta,
}

/// When to resync a screen with tmux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resync {
    /// Now, and again when the pane rests if it prints meanwhile.
    Now,
    /// When the pane rests.
    AtRest,
}

impl PaneState {
    /// Updates the metadata from a row of tmux's list.
    pub(crate) fn update_metadata(&self, row: &PaneRow) -> MetadataUpdate {
        let mut state = self.lock();
        let before = state.held_bytes();
        // A process that has just ended has no pid any more, and is still the same one (N62).
        let pid = if row.pid == 0 { state.metadata.pid } else { row.pid };
        let was_listed = state.metadata.size.width != 0;
        let mut needs_resync = was_listed && state.metadata.pid != pid && state.screen.mark_stale(Staleness::Restarted);
        needs_resync |= state.screen.resize(screen_size(row.size));
        let metadata = &mut state.metadata;
        let retitled = metadata.title != row.title;
        let other_program = metadata.pid != pid || metadata.command != row.command;
        metadata.title.clone_from(&row.title);
        metadata.command.clone_from(&row.command);
        metadata.path.clone_from(&row.path);
        metadata.tty.clone_from(&row.tty);
        metadata.pid = pid;
        metadata.size = row.size;
        if !row.dead && state.exit_pid.is_some_and(|ended| ended != pid) {
            // A program was started in place of the one that ended.
            state.exit = None;
            state.exit_pid = None;
            self.published.publish(&state);
        }
        if other_program {
            state.agent_signals.program_changed();
        }
        if retitled {
            state.notify_title(&row.title);
        }
        MetadataUpdate { retitled, needs_resync, memory: state.memory_since(before) }
    }

    /// Records a resize by tmux. Returns whether the screen needs a resync.
    pub(crate) fn resize(&self, size: Size) -> (bool, MemoryDelta) {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.metadata.size = size;
        let needs_resync = state.screen.resize(screen_size(size));
        let memory = state.memory_since(before);
        self.notify_changed(state);
        (needs_resync, memory)
    }

    /// Applies a value that tmux pushed. Returns when the screen needs a resync, if it does.
    pub(crate) fn set_value(&self, value: Value) -> Option<Resync> {
        let mut state = self.lock();
        let mut resync = None;
        match value {
            Value::Place(value) => {
                if state.is_elsewhere(&value) {
                    // While the pane prints, tmux is ahead of the output that has arrived here: the
                    // position proves nothing now, but may when the pane rests.
                    let rests = state.last_output.elapsed() >= limits::REST;
                    resync = Some(if rests { Resync::Now } else { Resync::AtRest });
                    if rests {
                        state.screen.mark_stale(Staleness::Moved);
                    }
                }
            }
            Value::PlaceHere(value) => {
                // All that the pane printed before is here. What it printed after may be too, while
                // other panes flood (N27): then tmux is asked once too often.
                if state.is_elsewhere(&value) && state.screen.mark_stale(Staleness::Moved) {
                    resync = Some(Resync::Now);
                }
            }
            Value::Title(title) => {
                state.metadata.title.clone_from(&title);
                state.notify_title(&title);
            }
            Value::Command(command) => {
                state.metadata.command = command;
                state.agent_signals.program_changed();
            }
            Value::Path(path) => state.metadata.path = path,
        }
        let end = state.ring.end();
        drop(state);
        self.changed.send_replace(end);
        resync
    }
}

impl State {
    /// Returns whether the pane was made without a process. Commands of tmux put text there, of
    /// which no output tells (N100).
    pub(crate) fn has_no_process(&self) -> bool {
        self.metadata.pid == 0 && self.metadata.size.width != 0 && self.exit.is_none()
    }

    /// Returns whether tmux reports another cursor position or history size than the screen has.
    fn is_elsewhere(&self, report: &str) -> bool {
        let report = CursorReport::parse(report).filter(|_| self.exit.is_none());
        report.is_some_and(|report| self.screen.has_moved(report))
    }
}

fn screen_size(size: Size) -> muxtap_core::screen::Size {
    muxtap_core::screen::Size { columns: size.width.max(1), rows: size.height.max(1) }
}
