//! A pane: its output, the screen it shows, and everything that follows it (echo filter, waits,
//! subscribers).
//!
//! Everything happens under one short lock, in the task that reads the connection. The byte that
//! satisfies a wait and the end of that wait are one call stack.

pub(super) mod resync;
pub(super) mod screen_model;
pub(super) mod shell_marks;

mod notifier;
mod published;
mod seeded;
mod strings;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Instant,
};

use tokio::sync::watch;

use super::{
    agents::AgentSignals,
    events::EventCache,
    limits,
    pane::{
        screen_model::{CursorReport, ScreenModel, Staleness},
        shell_marks::ShellMarks,
    },
    spawn::managed::{ManagedPane, OnExit, PaneOptions},
    wait::Watcher,
};
use crate::{
    api::Size,
    protocol::ids::PaneId,
    screen::Changes,
    stream::{
        cursor::{Cursor, Epoch},
        echo::EchoFilter,
        render,
        ring::Ring,
        text::{Control, Mark, TextSink},
    },
    tmux::{Exit, PaneRow, Value},
};

pub(super) use notifier::{DirtyFlag, Notifier};
pub(super) use published::Snapshot;
pub(super) use strings::give_up_strings;

/// A pane. Clones of the `Arc` are the same pane.
pub struct PaneState {
    id: PaneId,
    epoch: Epoch,
    state: Mutex<State>,
    /// The end of the pane's stream. Sent at every change, also when only the state changed.
    changed: watch::Sender<u64>,
    published: published::PublishedState,
    /// Events of the pane, encoded once for all of its subscribers.
    pub(super) event_cache: EventCache,
}

pub(super) struct State {
    pub(super) ring: Ring,
    pub(super) echo: EchoFilter,
    pub(super) watchers: Vec<Watcher>,
    dirty_flags: Vec<Weak<DirtyFlag>>,
    pub(super) metadata: PaneMetadata,
    pub(super) shell_marks: ShellMarks,
    /// When the last output arrived (or when the pane was first seen).
    pub(super) last_output: Instant,
    /// The stream's end when muxtap last sent input, and the time of that.
    pub(super) last_input: Option<(u64, Instant)>,
    /// The stream's end when muxtap created or respawned the pane, and the time of that.
    started: Option<(u64, Instant)>,
    /// For each pattern of a finished wait: the offset at which its last match ended.
    last_matches: HashMap<String, u64>,
    pub(super) exit: Option<(Exit, Instant)>,
    /// Whether the pane has gone: nothing is appended any more.
    is_retired: bool,
    /// The pid of the process that ended, once tmux has named it.
    exit_pid: Option<u32>,
    /// The pane's screen. For a pane that has ended: its last screen.
    pub(super) screen: ScreenModel,
    /// Set if muxtap started something in the pane.
    pub(super) managed: Option<ManagedPane>,
    /// Whether a `run` is active in the pane.
    pub(super) run_active: bool,
    /// A prompt known to be the shell's primary prompt, not its prompt for the rest of a command.
    pub(super) prompt: Option<String>,
    /// The nonce of the mark that begins the output of the command line being typed.
    pub(super) run_nonce: String,
    /// Signals for the task that follows the agent in the pane.
    pub(super) agent_signals: AgentSignals,
    /// The unterminated string (OSC, DCS …) at the stream's end: where it began, and when.
    string: Option<(u64, Instant)>,
    /// Whether a task waits for the timeout of that string.
    string_watched: bool,
}

/// An input that was recorded before it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputRecord {
    /// The stream's end at that time.
    pub(super) mark: u64,
    at: Instant,
    /// The input before this one.
    before: Option<(u64, Instant)>,
    /// Number of this input in the echo filter.
    input: u64,
}

/// A pane's title, command, directory, terminal, process and size, as tmux reports them.
#[derive(Clone, Debug, Default)]
pub(super) struct PaneMetadata {
    pub(super) title: String,
    pub(super) command: String,
    pub(super) path: String,
    pub(super) tty: String,
    pub(super) pid: u32,
    pub(super) size: Size,
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
                started: None,
                last_matches: HashMap::new(),
                exit: None,
                is_retired: false,
                exit_pid: None,
                screen: ScreenModel::default(),
                managed: None,
                run_active: false,
                prompt: None,
                run_nonce: String::new(),
                agent_signals: AgentSignals::default(),
                string: None,
                string_watched: false,
            }),
            changed: watch::Sender::new(0),
            published: published::PublishedState::default(),
            event_cache: EventCache::default(),
        })
    }

    pub(crate) fn id(&self) -> PaneId {
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

    /// Returns a channel that is notified of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
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

    pub(crate) fn exit(&self) -> Option<Exit> {
        self.lock().exit.map(|(exit, _)| exit)
    }

    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.lock().exit.map(|(_, at)| at)
    }

    /// The exit policy and wrapper of a pane in which muxtap started something.
    pub(super) fn managed(&self) -> Option<ManagedPane> {
        self.lock().managed.clone()
    }

    /// Records that muxtap has started the pane's program. Its output follows this offset.
    pub(super) fn mark_started(&self, offset: u64) {
        self.lock().started = Some((offset, Instant::now()));
    }

    /// Sets the exit policy and wrapper of the pane. The nonce of the wrapper must be registered
    /// already. Returns the exit status if the wrapper's mark has come.
    pub(super) fn set_managed(&self, managed: ManagedPane) -> Option<i32> {
        let mut state = self.lock();
        let nonce = managed.wrapper.as_ref().map(|wrapper| wrapper.nonce.clone());
        let before = state.managed.replace(managed).and_then(|managed| managed.wrapper);
        if let Some(before) = before.filter(|before| Some(&before.nonce) != nonce.as_ref()) {
            state.shell_marks.unregister_nonce(&before.nonce);
        }
        state.take_wrapper_exit()
    }

    /// Keeps a pane's original options for a later attempt, after restoring them failed. Those of a
    /// program started meanwhile take precedence.
    pub(super) fn restore_options_later(&self, options: Option<PaneOptions>) {
        if let Some(managed) = self.lock().managed.as_mut().filter(|managed| managed.on_exit == OnExit::Restore) {
            managed.before = managed.before.take().or(options);
        }
    }

    /// Registers the nonce of an exit wrapper that is about to start here.
    pub(super) fn register_nonce(&self, nonce: &str) {
        self.lock().shell_marks.register_nonce(nonce);
    }

    /// Unregisters a nonce whose wrapper was not started.
    pub(super) fn unregister_nonce(&self, nonce: &str) {
        self.lock().shell_marks.unregister_nonce(nonce);
    }

    /// Appends output. Returns `None` for a pane that has gone: its memory is accounted for.
    pub(super) fn push(&self, data: &[u8]) -> Option<PushOutcome> {
        let mut state = self.lock();
        if state.is_retired {
            return None;
        }
        let before = state.held_bytes();
        let now = Instant::now();
        let quiet = now.duration_since(state.last_output) >= limits::REST;
        state.last_output = now;
        let staleness = state.feed(data, quiet);
        let memory = state.memory_since(before);
        let wrapper_exit = state.take_wrapper_exit();
        let string_due = state.watch_string();
        self.notify_changed(state);
        Some(PushOutcome { memory, wrapper_exit, staleness, string_due })
    }

    /// Records that the pane has gone. Output of it that is still under way is dropped.
    pub(super) fn mark_retired(&self) {
        let mut state = self.lock();
        state.is_retired = true;
        state.agent_signals.program_changed();
    }

    /// Records that the process has ended. Returns whether that was new.
    pub(super) fn mark_exited(&self, exit: Exit) -> bool {
        let mut state = self.lock();
        if state.exit.is_some() {
            return false;
        }
        state.exit = Some((exit, Instant::now()));
        state.rest_watchers();
        let watchers = std::mem::take(&mut state.watchers);
        for watcher in &watchers {
            watcher.pane_ended(exit);
        }
        state.agent_signals.program_changed();
        self.notify_changed(state);
        true
    }

    /// Updates the metadata from a row of tmux's list.
    pub(super) fn update_metadata(&self, row: &PaneRow) -> MetadataUpdate {
        let mut state = self.lock();
        let before = state.held_bytes();
        // A process that has just ended has no pid any more, and is still the same one (N62).
        let pid = if row.pid == 0 { state.metadata.pid } else { row.pid };
        let mut needs_resync =
            state.metadata.pid != 0 && state.metadata.pid != pid && state.screen.mark_stale(Staleness::Restarted);
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
    pub(super) fn resize(&self, size: Size) -> (bool, MemoryDelta) {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.metadata.size = size;
        let needs_resync = state.screen.resize(screen_size(size));
        let memory = state.memory_since(before);
        self.notify_changed(state);
        (needs_resync, memory)
    }

    /// Returns the stream's end and the screen's generation. A resync is valid only if neither
    /// changed.
    pub(crate) fn revision(&self) -> Revision {
        self.lock().revision()
    }

    /// Applies a value that tmux pushed. Returns when the screen needs a resync, if it does.
    pub(super) fn set_value(&self, value: Value) -> Option<Resync> {
        let mut state = self.lock();
        let mut resync = None;
        match value {
            Value::Place(value) => {
                let elsewhere = CursorReport::parse(&value).is_some_and(|report| state.screen.has_moved(report));
                if elsewhere && state.exit.is_none() {
                    // While the pane prints, tmux is ahead of the output that has arrived here: the
                    // position proves nothing now, but may when the pane rests.
                    let rests = state.last_output.elapsed() >= limits::REST;
                    resync = Some(if rests { Resync::Now } else { Resync::AtRest });
                    if rests {
                        state.screen.mark_stale(Staleness::Moved);
                    }
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

    /// Records an input that is about to be sent. The echo and the program's reaction lie behind
    /// the returned mark (the stream's end).
    pub(super) fn record_input(&self, text: &str, tty_echo: bool) -> InputRecord {
        let mut state = self.lock();
        let mark = state.ring.end();
        let at = Instant::now();
        let before = state.last_input.replace((mark, at));
        let line = render::resting_line(&state.ring);
        let columns = state.metadata.size.width.max(1);
        state.echo.typed(mark, text.as_bytes(), line, columns, tty_echo);
        InputRecord { mark, at, before, input: state.echo.last_input() }
    }

    /// Takes back the record of an input that was not sent.
    pub(super) fn retract_input(&self, record: &InputRecord) {
        let mut state = self.lock();
        if state.last_input == Some((record.mark, record.at)) {
            state.last_input = record.before;
        }
        state.echo.not_typed(record.input);
    }

    /// Records where patterns of a finished wait matched. The next wait for the same pattern
    /// continues behind the match.
    pub(super) fn record_matches(&self, patterns: impl IntoIterator<Item = (String, u64)>) {
        let mut state = self.lock();
        for (pattern, end) in patterns {
            if state.last_matches.len() >= limits::ANSWERED_PATTERNS && !state.last_matches.contains_key(&pattern) {
                // The oldest match is the one furthest back in the stream.
                let oldest = state.last_matches.iter().min_by_key(|(_, end)| **end).map(|(pattern, _)| pattern.clone());
                if let Some(oldest) = oldest {
                    state.last_matches.remove(&oldest);
                }
            }
            let last = state.last_matches.entry(pattern).or_default();
            *last = end.max(*last);
        }
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
pub(crate) struct Revision {
    end: u64,
    generation: u64,
}

impl Revision {
    /// The stream's end in this revision.
    pub(super) fn end(self) -> u64 {
        self.end
    }
}

/// When to resync a screen with tmux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resync {
    /// Now, and again when the pane rests if it prints meanwhile.
    Now,
    /// When the pane rests.
    AtRest,
}

/// Result of an update of a pane's metadata.
#[must_use]
pub(super) struct MetadataUpdate {
    /// Whether the title changed.
    pub(super) retitled: bool,
    /// Whether the screen needs a resync.
    pub(super) needs_resync: bool,
    pub(super) memory: MemoryDelta,
}

fn screen_size(size: Size) -> crate::screen::Size {
    crate::screen::Size { columns: size.width.max(1), rows: size.height.max(1) }
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
    /// When to give up the string that began ([`Pane::give_up_string`]).
    pub(super) string_due: Option<Instant>,
}

impl State {
    /// Returns the exit status that the pane's exit wrapper reported, once.
    fn take_wrapper_exit(&mut self) -> Option<i32> {
        let wrapper = self.managed.as_mut()?.wrapper.as_mut().filter(|wrapper| wrapper.is_awaited)?;
        let (_, status) = self.shell_marks.marks(&wrapper.nonce)?.end?;
        let status = status?;
        wrapper.is_awaited = false;
        self.shell_marks.unregister_nonce(&wrapper.nonce);
        Some(status)
    }

    /// Returns where `since: input` begins, and since when: at muxtap's last input, or where muxtap
    /// created or respawned the pane, whichever is later.
    pub(super) fn since_input(&self) -> Option<(u64, Instant)> {
        self.last_input.max(self.started)
    }

    fn memory_since(&self, before: usize) -> MemoryDelta {
        MemoryDelta { before, after: self.held_bytes() }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision { end: self.ring.end(), generation: self.screen.generation() }
    }

    /// Bytes held: output and screen.
    pub(super) fn held_bytes(&self) -> usize {
        self.ring.len() + self.screen.memory()
    }

    /// Notifies followers that the screen was replaced: everything on it may be new.
    fn notify_redrawn(&mut self) {
        self.agent_signals.screen_changed(None);
        let Self { screen, watchers, ring, .. } = self;
        for watcher in watchers {
            watcher.screen_changed(screen, None, ring.end());
        }
    }

    /// Feeds output to the ring, the screen, the echo filter and the watchers. `quiet`: the pane
    /// had rested before. Returns why the screen became stale, if it did.
    fn feed(&mut self, data: &[u8], quiet: bool) -> Option<Staleness> {
        if data.is_empty() {
            return None;
        }
        let over = self.string_due().and_then(|_| self.give_up_string(Instant::now()).1);
        let echo = if self.echo.is_idle() { None } else { Some(&mut self.echo) };
        let mut tee = Tee { echo, watchers: &mut self.watchers, shell_marks: &mut self.shell_marks };
        self.ring.push(data, &mut tee);
        self.note_string();
        if let Some(title) = self.shell_marks.take_title() {
            self.notify_title(&title);
        }
        self.end_command_line();
        let Self { watchers, echo, shell_marks, .. } = self;
        // Watchers of a decided wait stay until its driver removes them. Dropping one frees many
        // small objects, and the result comes first.
        for watcher in watchers {
            watcher.end_of_chunk(echo, shell_marks);
        }
        // Patterns before the screen: a caller that waits for a pattern does not wait for drawing.
        let (changes, staleness) = self.screen.feed(data, quiet);
        self.agent_signals.screen_changed(changes.as_ref());
        if let Some(changes) = changes {
            self.notify_rows(&changes);
        }
        over.or(staleness)
    }

    /// Ends the typing of a command line once the mark that begins its output has come.
    fn end_command_line(&mut self) {
        if self.echo.command_line().is_none() {
            return;
        }
        let output = self.shell_marks.marks(&self.run_nonce).and_then(|marks| marks.begin);
        if output.is_some() {
            self.echo.command_line_ends(output);
        }
    }

    /// Notifies watchers of changed rows on the screen.
    fn notify_rows(&mut self, changes: &Changes) {
        let Self { screen, watchers, ring, .. } = self;
        for watcher in watchers {
            watcher.screen_changed(screen, Some(changes), ring.end());
        }
    }

    fn notify_title(&mut self, title: &str) {
        self.agent_signals.title_changed(title);
        for watcher in &mut self.watchers {
            watcher.title_changed(title);
        }
    }

    /// Notifies watchers that the stream rests: some matches are only certain then.
    pub(super) fn rest_watchers(&mut self) {
        let Self { watchers, echo, .. } = self;
        for watcher in watchers {
            watcher.stream_rested(echo);
        }
    }

    /// Returns where the last match of this pattern in a finished wait ended.
    pub(super) fn last_match_end(&self, pattern: &str) -> Option<u64> {
        self.last_matches.get(pattern).copied()
    }

    /// Returns the unfinished last line.
    pub(super) fn resting_line(&self) -> String {
        let end = self.ring.end();
        let from = end.saturating_sub(limits::LAST_LINE_BYTES).max(self.ring.start());
        let text = render::render_text(&self.ring, from, end);
        text.rsplit('\n').next().unwrap_or_default().to_owned()
    }
}

/// Passes the decoder's events on to echo filter, watchers and shell marks.
struct Tee<'a> {
    echo: Option<&'a mut EchoFilter>,
    watchers: &'a mut Vec<Watcher>,
    shell_marks: &'a mut ShellMarks,
}

impl TextSink for Tee<'_> {
    fn text(&mut self, offset: u64, text: &[u8]) {
        if let Some(echo) = &mut self.echo {
            echo.text(offset, text);
        }
        for watcher in self.watchers.iter_mut() {
            watcher.text(offset, text);
        }
    }

    fn control(&mut self, offset: u64, control: Control) {
        if let Some(echo) = &mut self.echo {
            echo.control(offset, control);
        }
        for watcher in self.watchers.iter_mut() {
            watcher.control(offset, control);
        }
    }

    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        self.shell_marks.mark(start, end, mark);
    }
}
