//! A pane: its output, the screen it shows, and everything that follows it (echo filter, waits,
//! subscribers).
//!
//! Everything happens under one short lock, in the task that reads the connection. The byte that
//! satisfies a wait and the end of that wait are one call stack.

pub(super) mod event_cache;
pub(super) mod frame;
pub(super) mod managed;
pub(super) mod resync;
pub(super) mod screen_model;
pub(super) mod shell_marks;

mod command_lines;
mod commands;
mod compression;
mod feed;
mod guard;
mod input;
mod metadata;
mod noted;
mod notifier;
mod output;
mod output_times;
mod places;
mod process;
mod published;
mod seeded;
mod shared_event;
mod stored;
mod strings;
mod usage;
mod watchers;

use std::sync::Arc;

use muxtap_api::{Cursor, Epoch, Size};
use muxtap_core::{
    protocol::ids::PaneId,
    stream::{echo::EchoFilter, ring::Ring},
};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::{
    event_cache::EventCache,
    guard::{Counted, PaneGuard},
    input::Input,
    output::Output,
    process::Process,
    screen_model::{ScreenModel, Staleness},
    shell_marks::ShellMarks,
    usage::Usage,
    watchers::Watchers,
};
use super::sync::{
    Mutex,
    watch::{Receiver, Sender},
};

pub(crate) use commands::LEAST_NONCE;
pub use commands::PaneCommand;
pub(super) use input::Typing;
pub(super) use metadata::{PaneMetadata, Resync};
pub(super) use noted::Noted;
pub(super) use notifier::{DirtyFlag, Notifier};
pub(super) use places::of_until;
pub(super) use published::Snapshot;
pub use shared_event::SharedEvent;
pub(crate) use stored::{CopiedPane, PaneParts};
pub(super) use usage::PaneUse;
pub(super) use watchers::Watch;

/// A pane. Clones of the `Arc` are the same pane.
pub struct PaneState {
    id: PaneId,
    epoch: Epoch,
    locked: Mutex<Counted>,
    /// The end of the pane's stream. Sent at every change, even one of the state alone, while there
    /// are receivers.
    changed: Sender<u64>,
    published: published::PublishedState,
    /// Events of the pane, encoded once for all of its subscribers.
    pub(super) event_cache: EventCache,
    /// The queue of runs: one at a time has the pane.
    run_turns: Arc<Semaphore>,
}

/// A pane under its lock: all that changes. Each part has its own file; code outside this folder
/// only reads the parts, and changes them by methods.
pub(super) struct LockedPane {
    output: Output,
    input: Input,
    process: Process,
    metadata: PaneMetadata,
    /// Use of the facts about the pane that only tmux knows.
    usage: Usage,
    watchers: Watchers,
}

impl PaneState {
    pub(super) fn new(id: PaneId, epoch: Epoch, ring_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            id,
            epoch,
            locked: Mutex::new(Counted::new(LockedPane {
                output: Output::new(ring_bytes),
                input: Input::default(),
                process: Process::default(),
                metadata: PaneMetadata::default(),
                usage: Usage::default(),
                watchers: Watchers::default(),
            })),
            changed: Sender::new(0),
            published: published::PublishedState::default(),
            event_cache: EventCache::default(),
            run_turns: Arc::new(Semaphore::new(1)),
        })
    }

    /// Returns the queue of runs.
    pub(super) fn run_turns(&self) -> Arc<Semaphore> {
        self.run_turns.clone()
    }

    /// Returns the pane's id on its server.
    pub fn id(&self) -> PaneId {
        self.id
    }

    /// Returns a cursor at this offset.
    pub(super) fn cursor(&self, offset: u64) -> Cursor {
        Cursor { epoch: self.epoch, pane: self.id, offset }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns a cursor at the stream's end.
    pub(super) fn end_cursor(&self) -> Cursor {
        self.cursor(self.lock().output.ring.end())
    }

    /// Returns the offset of the stream's end.
    pub(super) fn end_offset(&self) -> u64 {
        self.lock().output.ring.end()
    }

    /// Returns cursors at the start of the retained output and at the stream's end.
    pub(super) fn retained_cursors(&self) -> (Cursor, Cursor) {
        let locked = self.lock();
        (self.cursor(locked.output.ring.start()), self.cursor(locked.output.ring.end()))
    }

    /// Resolves when the pane has printed something after `offset`, or has ended.
    pub(super) async fn until_output(&self, offset: u64) {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            {
                let locked = self.lock();
                if locked.output.ring.end() > offset || locked.process.has_ended() {
                    return;
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns a channel that is notified of every change; its value is the stream's end.
    pub fn changes(&self) -> Receiver<u64> {
        // Under the lock: an earlier change is seen by a look from now on, and a later one finds
        // the receiver.
        let locked = self.lock();
        let receiver = self.changed.subscribe();
        // Earlier changes had no receiver, so they were not sent.
        self.changed.send_if_modified(|end| {
            *end = locked.output.ring.end();
            false
        });
        receiver
    }

    /// Returns whether something needs the pane's output to be followed: a wait, a subscription, a
    /// recording, a sleeping reader, or the end of a command that muxtap started.
    pub(super) fn is_in_use(&self) -> bool {
        let LockedPane { watchers, input, process, .. } = &*self.lock();
        self.changed.receiver_count() > 0
            || !watchers.is_empty()
            || watchers.has_subscribers()
            || input.is_exclusive()
            || process.awaits_exit()
    }

    /// Returns the number of bytes held for the pane: output and screen.
    pub(super) fn held_bytes(&self) -> usize {
        self.lock().held_bytes()
    }

    /// Returns the number of bytes of output in the ring.
    pub(super) fn ring_len(&self) -> usize {
        self.lock().output.ring.len()
    }

    /// Drops the older half of the retained output. Returns how many bytes were dropped.
    pub(super) fn halve_output(&self) -> usize {
        let ring = &mut self.lock().output.ring;
        let before = ring.len();
        ring.trim_to(before / 2);
        before - ring.len()
    }

    /// Drops the oldest output until this many bytes are left.
    #[cfg(test)]
    pub(super) fn trim_output(&self, bytes: usize) {
        self.lock().output.ring.trim_to(bytes);
    }

    /// Drops the screen. Returns how many bytes were dropped.
    pub(super) fn drop_screen(&self) -> usize {
        let output = &mut self.lock().output;
        let before = output.held_bytes();
        output.screen.drop_screen();
        before - output.held_bytes()
    }

    pub(super) fn metadata(&self) -> PaneMetadata {
        self.lock().metadata.clone()
    }

    pub(super) fn size(&self) -> Size {
        self.lock().metadata.size
    }

    pub(super) fn title(&self) -> String {
        self.lock().metadata.title.clone()
    }

    /// Appends output. Returns `None` for a pane that has gone, whose memory is already accounted
    /// for, and for output of an earlier generation: another connection took over the pane while
    /// that output was under way, and the connection's seed or own output contains its bytes.
    pub(super) fn push(&self, generation: u64, data: &[u8]) -> Option<PushOutcome> {
        let mut locked = self.lock();
        if locked.process.is_retired() || !locked.output.takes(generation) {
            return None;
        }
        let before = locked.held_bytes();
        let quiet = locked.output.arrive(Instant::now());
        let staleness = locked.take(data, quiet);
        // Watched by a wait, a view or a recording. Readers of output and events need no screen.
        let is_watched = !locked.watchers.is_empty() || self.changed.receiver_count() > 0;
        let is_unsure = is_watched && locked.output.screen.is_unsure();
        let memory = locked.memory_since(before);
        let wrapper_exit = locked.take_wrapper_exit();
        let string_due = locked.output.watch_string();
        let has_command_changes = locked.has_command_changes();
        let is_compressible = locked.output.screen.is_compressible();
        self.notify_changed(locked);
        Some(PushOutcome {
            memory,
            wrapper_exit,
            staleness,
            string_due,
            is_unsure,
            is_compressible,
            has_command_changes,
        })
    }

    /// Begins a new generation of output, before the seed that starts it is applied. Returns it.
    pub(super) fn begin_generation(&self) -> u64 {
        self.lock().output.begin_generation()
    }

    /// Returns the generation of output that is accepted.
    pub(super) fn generation(&self) -> u64 {
        self.lock().output.sink_generation()
    }

    /// Returns the stream's end and the screen's generation. A resync's reply proves something by
    /// itself only if neither has changed since the request.
    pub fn revision(&self) -> Revision {
        self.lock().revision()
    }

    /// Returns the newest published state, without a lock.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.published.snapshot()
    }

    /// Notifies all followers of the pane, after releasing the lock.
    fn notify_changed(&self, mut locked: PaneGuard<'_>) {
        self.note_command_changes(&mut locked);
        self.published.publish(&locked);
        locked.watchers.set_dirty_flags();
        self.wake_readers(locked);
    }

    /// Notifies the receivers of [`Self::changes`], after releasing the lock.
    fn wake_readers(&self, locked: PaneGuard<'_>) {
        let end = locked.output.ring.end();
        let has_readers = self.changed.receiver_count() > 0;
        drop(locked);
        // Sending takes locks of the channel's own, even without a receiver.
        if has_readers {
            self.changed.send_replace(end);
        }
    }
}

/// A version of a pane's content: the stream's end and the screen's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    end: u64,
    generation: u64,
}

impl Revision {
    /// Returns the stream's end in this revision.
    pub(super) fn end(self) -> u64 {
        self.end
    }
}

/// Bytes held for a pane before and after a change, for the memory budget.
#[derive(Clone, Copy)]
#[must_use]
pub(super) struct MemoryDelta {
    /// Bytes held before.
    pub(super) before: usize,
    /// Bytes held after.
    pub(super) after: usize,
}

/// Result of appending output: the follow-up work for the caller.
#[derive(Clone, Copy)]
#[must_use]
pub(super) struct PushOutcome {
    pub(super) memory: MemoryDelta,
    /// The exit status of the pane's wrapped command. All of its output has arrived.
    pub(super) wrapper_exit: Option<i32>,
    /// Why the screen became stale, if it did: it needs a resync.
    pub(super) staleness: Option<Staleness>,
    /// When to give up the string that began ([`PaneState::give_up_string`]).
    pub(super) string_due: Option<Instant>,
    /// Whether the screen is watched and another seed would reveal more of it.
    pub(super) is_unsure: bool,
    /// Whether a part of the screen's history can be compressed, and no task awaits that.
    pub(super) is_compressible: bool,
    /// Whether commands changed ([`PaneState::take_command_changes`]).
    pub(super) has_command_changes: bool,
}

impl LockedPane {
    fn memory_since(&self, before: usize) -> MemoryDelta {
        MemoryDelta { before, after: self.held_bytes() }
    }

    pub(super) fn revision(&self) -> Revision {
        self.output.revision()
    }

    /// Returns the number of bytes held: output and screen.
    pub(super) fn held_bytes(&self) -> usize {
        self.output.held_bytes()
    }

    /// Returns the retained output.
    pub(super) fn ring(&self) -> &Ring {
        &self.output.ring
    }

    /// Returns the echo filter of the output.
    pub(super) fn echo(&self) -> &EchoFilter {
        &self.output.echo
    }

    pub(super) fn shell_marks(&self) -> &ShellMarks {
        &self.output.shell_marks
    }

    pub(super) fn screen(&self) -> &ScreenModel {
        &self.output.screen
    }

    /// Returns when the last output arrived (or when the pane was first seen).
    pub(super) fn last_output(&self) -> Instant {
        self.output.last()
    }

    pub(super) fn metadata(&self) -> &PaneMetadata {
        &self.metadata
    }

    /// Returns the use of the facts about the pane that only tmux knows.
    pub(super) fn usage(&mut self) -> &mut Usage {
        &mut self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes are sent only where something receives them.
    #[tokio::test]
    async fn a_receiver_that_comes_late_has_the_streams_end() {
        let pane = PaneState::new(PaneId(1), Epoch::default(), 1000);
        let _ = pane.push(0, b"one");
        let mut changes = pane.changes();
        assert_eq!(*changes.borrow_and_update(), 3);
        let _ = pane.push(0, b"two");
        assert!(changes.changed().await.is_ok());
        assert_eq!(*changes.borrow_and_update(), 6);
    }
}
