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

mod encoded_event;
mod feed;
mod input;
mod metadata;
mod notifier;
mod output_times;
mod published;
mod seeded;
mod strings;
mod usage;
mod watch;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, Weak},
    time::Instant,
};

use muxtap_api::{Cursor, Epoch, Error, ErrorCode, Size};
use muxtap_core::{
    protocol::ids::PaneId,
    stream::{echo::EchoFilter, render, ring::Ring},
};
use muxtap_tmux::Exit;

use self::{
    event_cache::EventCache,
    feed::CutOutput,
    managed::ManagedPane,
    output_times::OutputTimes,
    screen_model::{ScreenModel, Staleness},
    shell_marks::ShellMarks,
};
use super::{
    agents::AgentSignals,
    limits,
    sync::{
        Mutex, MutexGuard,
        watch::{Receiver, Sender},
    },
};

pub use encoded_event::EncodedEvent;
pub(super) use metadata::{PaneMetadata, Resync};
pub(super) use notifier::{DirtyFlag, Notifier};
pub(super) use published::Snapshot;
pub(super) use usage::PaneUse;
pub(super) use watch::Watch;

/// A pane. Clones of the `Arc` are the same pane.
pub struct PaneState {
    id: PaneId,
    epoch: Epoch,
    state: Mutex<State>,
    /// The end of the pane's stream. Sent at every change, also when only the state changed.
    changed: Sender<u64>,
    published: published::PublishedState,
    /// Events of the pane, encoded once for all of its subscribers.
    pub(super) event_cache: EventCache,
}

/// A request that has a pane to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Typing {
    /// A `run`.
    Run,
    /// An answer to an agent's question.
    Answer,
}

impl Typing {
    /// Returns why another one is refused.
    pub(super) fn refusal(self, pane: PaneId) -> Error {
        let message = match self {
            Self::Run => format!("another run is under way in pane {pane}"),
            Self::Answer => format!("an agent's question is being answered in pane {pane}"),
        };
        Error::new(ErrorCode::Conflict, message)
    }
}

pub(super) struct State {
    pub(super) ring: Ring,
    pub(super) echo: EchoFilter,
    watchers: Vec<Box<dyn Watch>>,
    dirty_flags: Vec<Weak<DirtyFlag>>,
    pub(super) metadata: PaneMetadata,
    pub(super) shell_marks: ShellMarks,
    /// When the last output arrived (or when the pane was first seen).
    pub(super) last_output: Instant,
    /// The stream's end when muxtap last sent input, and the time of that.
    pub(super) last_input: Option<(u64, Instant)>,
    /// When it printed what.
    output_times: OutputTimes,
    /// The stream's end when muxtap created or respawned the pane, and the time of that.
    started: Option<(u64, Instant)>,
    /// For each pattern of a finished wait: the offset at which its last match ended.
    last_matches: HashMap<String, u64>,
    pub(super) exit: Option<(Exit, Instant)>,
    /// Whether the pane has gone: nothing is appended any more.
    is_retired: bool,
    /// The generation of the sink whose output is taken. Each seed begins a new one.
    sink_generation: u64,
    /// The pid of the process that ended, once tmux has named it.
    exit_pid: Option<u32>,
    /// The pane's screen. For a pane that has ended: its last screen.
    pub(super) screen: ScreenModel,
    /// Set if muxtap started something in the pane.
    pub(super) managed: Option<ManagedPane>,
    /// The request that types several keys in the pane and looks in between; one at a time.
    pub(super) typing: Option<Typing>,
    /// A prompt known to be the shell's primary prompt, not its prompt for the rest of a command.
    pub(super) prompt: Option<String>,
    /// The nonce of the mark that begins the output of the command line being typed.
    pub(super) run_nonce: String,
    /// The use that is made of what tmux alone knows of the pane.
    pub(super) usage: usage::Usage,
    /// Signals for the task that follows the agent in the pane.
    pub(super) agent_signals: AgentSignals,
    /// The unterminated string (OSC, DCS …) at the stream's end: where it began, and when.
    string: Option<(u64, Instant)>,
    /// Whether a task waits for the timeout of that string.
    string_watched: bool,
    /// Output that is held back: it begins with the end of a character.
    cut: Option<CutOutput>,
}

impl PaneState {
    pub(super) fn new(id: PaneId, epoch: Epoch, ring_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            id,
            epoch,
            state: Mutex::new(State {
                ring: Ring::new(ring_bytes),
                echo: EchoFilter::default(),
                watchers: Vec::new(),
                dirty_flags: Vec::new(),
                metadata: PaneMetadata::default(),
                shell_marks: ShellMarks::default(),
                last_output: Instant::now(),
                last_input: None,
                output_times: OutputTimes::default(),
                started: None,
                last_matches: HashMap::new(),
                exit: None,
                is_retired: false,
                sink_generation: 0,
                exit_pid: None,
                screen: ScreenModel::default(),
                managed: None,
                typing: None,
                prompt: None,
                run_nonce: String::new(),
                usage: usage::Usage::default(),
                agent_signals: AgentSignals::default(),
                string: None,
                string_watched: false,
                cut: None,
            }),
            changed: Sender::new(0),
            published: published::PublishedState::default(),
            event_cache: EventCache::default(),
        })
    }

    /// Returns its id on its server.
    pub fn id(&self) -> PaneId {
        self.id
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.cursor(self.lock().ring.end())
    }

    /// Returns the offset of the stream's end.
    pub(super) fn end_offset(&self) -> u64 {
        self.lock().ring.end()
    }

    /// Returns cursors at the start of the retained output and at the stream's end.
    pub(super) fn retained_cursors(&self) -> (Cursor, Cursor) {
        let state = self.lock();
        (self.cursor(state.ring.start()), self.cursor(state.ring.end()))
    }

    /// Resolves when the pane printed something after `offset`, or ended.
    pub(super) async fn until_output(&self, offset: u64) {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            {
                let state = self.lock();
                if state.ring.end() > offset || state.exit.is_some() {
                    return;
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns a channel that is notified of every change.
    pub fn changes(&self) -> Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether something needs the pane's output to be followed: a wait, a subscription, a recording, a reader that sleeps,
    /// or the end of a command that muxtap started.
    pub(super) fn is_in_use(&self) -> bool {
        let state = self.lock();
        let awaits_exit = || {
            let wrapper = state.managed.as_ref().and_then(|managed| managed.wrapper.as_ref());
            state.exit.is_none() && wrapper.is_some_and(|wrapper| wrapper.is_awaited)
        };
        self.changed.receiver_count() > 0
            || !state.watchers.is_empty()
            || state.dirty_flags.iter().any(|flag| flag.strong_count() > 0)
            || state.typing.is_some()
            || awaits_exit()
    }

    /// Bytes held for the pane: output and screen.
    pub(super) fn held_bytes(&self) -> usize {
        self.lock().held_bytes()
    }

    /// Bytes of output in the ring.
    pub(super) fn ring_len(&self) -> usize {
        self.lock().ring.len()
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

    /// Returns how its process ended, once it has.
    pub fn exit(&self) -> Option<Exit> {
        self.lock().exit.map(|(exit, _)| exit)
    }

    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.lock().exit.map(|(_, at)| at)
    }

    /// Appends output. Returns `None` for a pane that has gone: its memory is accounted for.
    /// Output of an earlier generation is dropped too: another connection took the pane over while it
    /// was under way, and its seed or its own output has those bytes.
    pub(super) fn push(&self, generation: u64, data: &[u8]) -> Option<PushOutcome> {
        let mut state = self.lock();
        if state.is_retired || state.sink_generation != generation {
            return None;
        }
        let before = state.held_bytes();
        let now = Instant::now();
        let quiet = now.duration_since(state.last_output) >= limits::REST;
        state.last_output = now;
        state.note_output_time(now);
        let staleness = state.take(data, quiet);
        // By a wait, a view or a recording. Who reads output and events needs no screen.
        let is_watched = !state.watchers.is_empty() || self.changed.receiver_count() > 0;
        let is_unsure = is_watched && state.screen.is_unsure();
        let memory = state.memory_since(before);
        let wrapper_exit = state.take_wrapper_exit();
        let string_due = state.watch_string();
        self.notify_changed(state);
        Some(PushOutcome { memory, wrapper_exit, staleness, string_due, is_unsure })
    }

    /// Begins a new generation of output, before the seed that starts it is applied. Returns it.
    pub(super) fn begin_generation(&self) -> u64 {
        let mut state = self.lock();
        state.sink_generation += 1;
        state.sink_generation
    }

    /// Records that the pane has gone. Output of it that is still under way is dropped.
    pub(super) fn mark_retired(&self) {
        let mut state = self.lock();
        state.is_retired = true;
        state.agent_signals.program_changed();
    }

    /// Records that the process has ended. tmux may have dropped the last of its output (F9, N10):
    /// the stream ends with a gap. Returns `None` if the end was known.
    pub(super) fn mark_exited(&self, exit: Exit) -> Option<MemoryDelta> {
        self.mark_ended(exit, State::mark_possible_loss)
    }

    /// Records that the wrapped command has ended. Its mark stands behind all of its output.
    /// Returns whether that was new.
    pub(super) fn mark_command_ended(&self, exit: Exit) -> bool {
        self.mark_ended(exit, |_| {}).is_some()
    }

    fn mark_ended(&self, exit: Exit, first: impl FnOnce(&mut State)) -> Option<MemoryDelta> {
        let mut state = self.lock();
        if state.exit.is_some() {
            return None;
        }
        let before = state.held_bytes();
        first(&mut state);
        state.exit = Some((exit, Instant::now()));
        state.rest_watchers();
        let watchers = std::mem::take(&mut state.watchers);
        for watcher in &watchers {
            watcher.pane_ended(exit);
        }
        state.agent_signals.program_changed();
        let memory = state.memory_since(before);
        self.notify_changed(state);
        Some(memory)
    }

    /// Returns the stream's end and the screen's generation. A resync is valid only if neither
    /// changed.
    pub fn revision(&self) -> Revision {
        self.lock().revision()
    }

    /// Returns the newest published state, without a lock.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.published.snapshot()
    }

    /// Adds a flag that is set at every change of the pane, as long as the flag lives.
    pub(super) fn add_dirty_flag(&self, flag: &Arc<DirtyFlag>) {
        let mut state = self.lock();
        state.dirty_flags.retain(|flag| flag.strong_count() > 0);
        state.dirty_flags.push(Arc::downgrade(flag));
        self.published.publish(&state);
    }

    /// Notifies all followers of the pane, after releasing the lock.
    fn notify_changed(&self, mut state: MutexGuard<'_, State>) {
        self.published.publish(&state);
        state.dirty_flags.retain(|flag| match flag.upgrade() {
            Some(flag) => {
                flag.notify();
                true
            }
            None => false,
        });
        let end = state.ring.end();
        drop(state);
        self.changed.send_replace(end);
    }
}

/// A version of a pane's content: the stream's end and the screen's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    end: u64,
    generation: u64,
}

impl Revision {
    /// The stream's end in this revision.
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
    /// Whether the screen is watched and another seed would tell more of it.
    pub(super) is_unsure: bool,
}

impl State {
    fn memory_since(&self, before: usize) -> MemoryDelta {
        MemoryDelta { before, after: self.held_bytes() }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision { end: self.ring.end(), generation: self.screen.generation() }
    }

    /// Bytes held: output and screen.
    pub(super) fn held_bytes(&self) -> usize {
        self.ring.len() + self.screen.memory() + self.cut.as_ref().map_or(0, CutOutput::len)
    }

    /// Notes that what is appended next arrives now.
    fn note_output_time(&mut self, now: Instant) {
        let (start, end) = (self.ring.start(), self.ring.end());
        self.output_times.note(now, end, start);
    }

    /// Returns when what stands from this offset on was printed: offsets, and milliseconds since 1970.
    pub(crate) fn output_times(&self, from: u64) -> Vec<(u64, u64)> {
        self.output_times.from(from)
    }

    /// Returns where what was printed at a time or later begins; milliseconds since 1970.
    pub(crate) fn printed_since(&self, at_ms: u64) -> u64 {
        self.output_times.begin(at_ms, self.ring.end()).unwrap_or(0).max(self.ring.start())
    }

    /// Returns where what was printed until a time ends; milliseconds since 1970.
    pub(crate) fn printed_until(&self, at_ms: u64) -> u64 {
        self.output_times.end(at_ms, self.ring.end())
    }

    /// Returns the unfinished last line.
    pub(super) fn resting_line(&self) -> String {
        let end = self.ring.end();
        let from = end.saturating_sub(limits::LAST_LINE_BYTES).max(self.ring.start());
        let text = render::render_text(&self.ring, from, end);
        text.rsplit('\n').next().unwrap_or_default().to_owned()
    }
}
