//! Metadata of a pane that tmux reports besides the output: title, command, directory, process and
//! size.

use muxtap_api::Size;
use muxtap_tmux::{PaneRow, Value};

use serde::{Deserialize, Serialize};

use super::{
    LockedPane, MemoryDelta, PaneState,
    screen_model::{CursorReport, Staleness},
};

use crate::limits;

/// A pane's title, command, directory, terminal, process and size, as tmux reports them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

/// The time for a resync of a screen with tmux.
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
        let mut locked = self.lock();
        let before = locked.held_bytes();
        // A process that has just ended no longer has a pid, and is still the same process (N62).
        let pid = if row.pid == 0 { locked.metadata.pid } else { row.pid };
        let is_other = locked.metadata.size.width != 0 && locked.metadata.pid != pid;
        locked.note_size(row.size);
        let screen = &mut locked.output.screen;
        let mut needs_resync = is_other && screen.mark_stale(Staleness::Restarted);
        needs_resync |= screen.resize(screen_size(row.size));
        let metadata = &mut locked.metadata;
        let retitled = metadata.title != row.title;
        let other_program = metadata.pid != pid || metadata.command != row.command;
        metadata.title.clone_from(&row.title);
        metadata.command.clone_from(&row.command);
        metadata.path.clone_from(&row.path);
        metadata.tty.clone_from(&row.tty);
        metadata.pid = pid;
        metadata.size = row.size;
        if !row.dead && locked.process.is_another(pid) {
            // A program was started in place of the one that ended.
            locked.process.begin_anew();
            self.published.publish(&locked);
        }
        if other_program {
            locked.watchers.agent_signals.program_changed();
        }
        if retitled {
            locked.watchers.title_changed(&row.title);
        }
        MetadataUpdate { retitled, needs_resync, memory: locked.memory_since(before) }
    }

    /// Records a resize by tmux. Returns whether the screen needs a resync.
    pub(crate) fn resize(&self, size: Size) -> (bool, MemoryDelta) {
        let mut locked = self.lock();
        let before = locked.held_bytes();
        locked.note_size(size);
        locked.metadata.size = size;
        let needs_resync = locked.output.screen.resize(screen_size(size));
        let memory = locked.memory_since(before);
        self.notify_changed(locked);
        (needs_resync, memory)
    }

    /// Applies a value that tmux pushed. Returns when the screen needs a resync, if it does.
    pub(crate) fn set_value(&self, value: Value) -> Option<Resync> {
        let mut locked = self.lock();
        let mut resync = None;
        match value {
            Value::Place(value) => {
                if locked.is_elsewhere(&value) {
                    // While the pane prints, tmux is ahead of the output that has arrived. The
                    // position proves nothing now, but may when the pane rests.
                    let rests = locked.output.last().elapsed() >= limits::REST;
                    resync = Some(if rests { Resync::Now } else { Resync::AtRest });
                    if rests {
                        locked.output.screen.mark_stale(Staleness::Moved);
                    }
                }
            }
            Value::PlaceHere(value) => {
                // All output from before the report has arrived. While other panes flood, later
                // output may have arrived too (N27); then tmux is queried once too often.
                if locked.is_elsewhere(&value) && locked.output.screen.mark_stale(Staleness::Moved) {
                    resync = Some(Resync::Now);
                }
            }
            Value::Title(title) => {
                locked.metadata.title.clone_from(&title);
                locked.watchers.title_changed(&title);
            }
            Value::Command(command) => {
                locked.metadata.command = command;
                locked.watchers.agent_signals.program_changed();
            }
            Value::Path(path) => locked.metadata.path = path,
        }
        self.wake_readers(locked);
        resync
    }
}

impl LockedPane {
    /// Notes where in the stream the pane's size changes.
    fn note_size(&mut self, size: Size) {
        if self.metadata.size.width != 0 && self.metadata.size != size {
            self.output.resized_at = self.output.ring.end();
        }
    }

    /// Returns whether tmux reports another cursor position or history size than the screen has.
    fn is_elsewhere(&self, report: &str) -> bool {
        let report = CursorReport::parse(report).filter(|_| !self.process.has_ended());
        report.is_some_and(|report| self.output.screen.has_moved(report))
    }
}

pub(super) fn screen_size(size: Size) -> muxtap_core::screen::Size {
    muxtap_core::screen::Size { columns: size.width.max(1), rows: size.height.max(1) }
}
