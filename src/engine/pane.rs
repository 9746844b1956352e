//! A pane's stream with all that hangs on it: ring, echoes, waits, listeners.
//!
//! Everything happens under one short lock, in the task that reads the connection: the byte that satisfies a wait and the answer to
//! that wait are one call apart.

mod edge;
mod listener;
mod seeded;
mod strings;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Instant,
};

use tokio::sync::watch;

use super::{
    agents::Tap,
    events::Shared,
    limits,
    managed::{AtEnd, ManagedPane, PaneOptions},
    signs::Signs,
    view::{Doubt, Place, View},
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

pub(super) use edge::Glimpse;
pub(super) use listener::{Listener, Seat};
pub(super) use strings::give_up_strings;

/// A pane; clones of the `Arc` are the same pane.
pub struct Pane {
    id: PaneId,
    epoch: Epoch,
    state: Mutex<State>,
    /// The stream's end; sent at every change, also when only the state changed.
    changed: watch::Sender<u64>,
    edge: edge::Edge,
    /// What subscribers are told of it, made once for all of them.
    pub(super) shared: Shared,
}

pub(super) struct State {
    pub(super) ring: Ring,
    pub(super) echo: EchoFilter,
    pub(super) watchers: Vec<Watcher>,
    seats: Vec<Weak<Seat>>,
    pub(super) about: About,
    pub(super) signs: Signs,
    /// When the last byte came (or the pane was first seen).
    pub(super) last_output: Instant,
    /// The stream's end when muxtap last sent input, and when that was.
    pub(super) last_input: Option<(u64, Instant)>,
    /// The stream's end when muxtap made the pane or respawned it, and when that was.
    made: Option<(u64, Instant)>,
    /// Where the last match ended with which a pattern was answered.
    answered: HashMap<String, u64>,
    pub(super) exit: Option<(Exit, Instant)>,
    /// The process that ended, once tmux has named it.
    exit_pid: Option<u32>,
    /// Its screen; of a pane that has ended the last one.
    pub(super) view: View,
    /// muxtap started something in it.
    pub(super) ours: Option<ManagedPane>,
    /// A `run` is under way.
    pub(super) runs: bool,
    /// A prompt that is known to be the shell's own, and not one for the rest of a command.
    pub(super) prompt: Option<String>,
    /// The nonce of the mark that begins the output of the command line that is being typed.
    pub(super) announced: String,
    /// For the one who follows the agent in it.
    pub(super) tap: Tap,
    /// Where the string (OSC, DCS …) that is open at the stream's end began, and when that came.
    string: Option<(u64, Instant)>,
    /// A task waits for that string's time to be over.
    string_watched: bool,
}

/// An input that was noted before it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// The stream's end.
    pub(super) mark: u64,
    at: Instant,
    /// The input before it.
    before: Option<(u64, Instant)>,
    /// Its number among the echoes that are expected.
    input: u64,
}

/// What tmux tells about a pane.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) title: String,
    pub(super) command: String,
    pub(super) path: String,
    pub(super) tty: String,
    pub(super) pid: u32,
    pub(super) size: Size,
}

impl Pane {
    pub(super) fn new(id: PaneId, epoch: Epoch, ring_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            id,
            epoch,
            state: Mutex::new(State {
                ring: Ring::new(ring_bytes),
                echo: EchoFilter::default(),
                watchers: Vec::new(),
                seats: Vec::new(),
                about: About::default(),
                signs: Signs::default(),
                last_output: Instant::now(),
                last_input: None,
                made: None,
                answered: HashMap::new(),
                exit: None,
                exit_pid: None,
                view: View::default(),
                ours: None,
                runs: false,
                prompt: None,
                announced: String::new(),
                tap: Tap::default(),
                string: None,
                string_watched: false,
            }),
            changed: watch::Sender::new(0),
            edge: edge::Edge::default(),
            shared: Shared::default(),
        })
    }

    pub(crate) fn id(&self) -> PaneId {
        self.id
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cursor at this offset.
    pub(super) fn cursor(&self, offset: u64) -> Cursor {
        Cursor { epoch: self.epoch, pane: self.id, offset }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A cursor at the stream's end.
    pub(super) fn end_cursor(&self) -> Cursor {
        self.cursor(self.lock().ring.end())
    }

    /// The stream's end.
    pub(super) fn end_offset(&self) -> u64 {
        self.lock().ring.end()
    }

    /// Cursors at the beginning of what is kept and at the stream's end.
    pub(super) fn kept_cursors(&self) -> (Cursor, Cursor) {
        let state = self.lock();
        (self.cursor(state.ring.start()), self.cursor(state.ring.end()))
    }

    /// Wakes at every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Bytes held for it: output and screen.
    pub(super) fn held_bytes(&self) -> usize {
        self.lock().held_bytes()
    }

    /// Bytes of output that are kept.
    pub(super) fn ring_len(&self) -> usize {
        self.lock().ring.len()
    }

    pub(super) fn about(&self) -> About {
        self.lock().about.clone()
    }

    pub(super) fn size(&self) -> Size {
        self.lock().about.size
    }

    pub(super) fn title(&self) -> String {
        self.lock().about.title.clone()
    }

    pub(crate) fn exit(&self) -> Option<Exit> {
        self.lock().exit.map(|(exit, _)| exit)
    }

    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.lock().exit.map(|(_, at)| at)
    }

    /// What was promised of it, where muxtap made it or started something in it.
    pub(super) fn ours(&self) -> Option<ManagedPane> {
        self.lock().ours.clone()
    }

    /// Notes that muxtap has started the pane's program: what it prints follows this offset.
    pub(super) fn made_at(&self, offset: u64) {
        self.lock().made = Some((offset, Instant::now()));
    }

    /// Promises this of it from now on. The mark of its hold must be expected already. Returns the status that the mark told, if it has come.
    pub(super) fn set_ours(&self, ours: ManagedPane) -> Option<i32> {
        let mut state = self.lock();
        let nonce = ours.hold.as_ref().map(|hold| hold.nonce.clone());
        let before = state.ours.replace(ours).and_then(|ours| ours.hold);
        if let Some(before) = before.filter(|before| Some(&before.nonce) != nonce.as_ref()) {
            state.signs.expect_no_more(&before.nonce);
        }
        state.take_held_exit()
    }

    /// Notes the options that a pane had, after giving them back failed. Those of a program started meanwhile count more.
    pub(super) fn owes_options(&self, options: Option<PaneOptions>) {
        if let Some(ours) = self.lock().ours.as_mut().filter(|ours| ours.at_end == AtEnd::AsBefore) {
            ours.before = ours.before.take().or(options);
        }
    }

    /// A command is about to be held here with this mark.
    pub(super) fn expect_mark(&self, nonce: &str) {
        self.lock().signs.expect(nonce);
    }

    /// It is not after all.
    pub(super) fn expect_no_mark(&self, nonce: &str) {
        self.lock().signs.expect_no_more(nonce);
    }

    /// Output came.
    pub(super) fn push(&self, data: &[u8]) -> Pushed {
        let mut state = self.lock();
        let before = state.held_bytes();
        let now = Instant::now();
        let quiet = now.duration_since(state.last_output) >= limits::REST;
        state.last_output = now;
        let doubt = state.feed(data, quiet);
        let kept = state.kept_since(before);
        let held_exit = state.take_held_exit();
        let string_due = state.watch_string();
        self.announce(state);
        Pushed { kept, held_exit, doubt, string_due }
    }

    /// The process has ended. Answers whether this was news.
    pub(super) fn end(&self, exit: Exit) -> bool {
        let mut state = self.lock();
        if state.exit.is_some() {
            return false;
        }
        state.exit = Some((exit, Instant::now()));
        state.rest_watchers();
        let watchers = std::mem::take(&mut state.watchers);
        for watcher in &watchers {
            watcher.ended(exit);
        }
        state.tap.program();
        self.announce(state);
        true
    }

    /// tmux lists it like this.
    pub(super) fn describe(&self, row: &PaneRow) -> Described {
        let mut state = self.lock();
        let before = state.held_bytes();
        // A process that has just ended has no number any more, and is still the same one (N62).
        let pid = if row.pid == 0 { state.about.pid } else { row.pid };
        let mut look = state.about.pid != 0 && state.about.pid != pid && state.view.doubt(Doubt::Restarted);
        look |= state.view.resize(screen_size(row.size));
        let about = &mut state.about;
        let retitled = about.title != row.title;
        let other_program = about.pid != pid || about.command != row.command;
        about.title.clone_from(&row.title);
        about.command.clone_from(&row.command);
        about.path.clone_from(&row.path);
        about.tty.clone_from(&row.tty);
        about.pid = pid;
        about.size = row.size;
        if !row.dead && state.exit_pid.is_some_and(|ended| ended != pid) {
            // A program was started in the place of the one that ended.
            state.exit = None;
            state.exit_pid = None;
            self.edge.publish(&state);
        }
        if other_program {
            state.tap.program();
        }
        if retitled {
            state.tell_title(&row.title);
        }
        Described { retitled, look, kept: state.kept_since(before) }
    }

    /// tmux has resized it. Answers whether its screen has to be compared with tmux's.
    pub(super) fn sized(&self, size: Size) -> (bool, Kept) {
        let mut state = self.lock();
        let before = state.held_bytes();
        state.about.size = size;
        let look = state.view.resize(screen_size(size));
        let kept = state.kept_since(before);
        self.announce(state);
        (look, kept)
    }

    /// The stream's end and the screen's turns so far: what a look must find unchanged to mean anything.
    pub(crate) fn point(&self) -> Point {
        self.lock().point()
    }

    /// tmux pushed a value. Answers whether its screen has to be compared with tmux's.
    pub(super) fn set_value(&self, value: Value) -> Option<Look> {
        let mut state = self.lock();
        let mut look = None;
        match value {
            Value::Place(place) => {
                let elsewhere = Place::parse(&place).is_some_and(|place| state.view.is_elsewhere(place));
                if elsewhere && state.exit.is_none() {
                    // While the pane prints, more is on its way than is here: then it says nothing, but may when the pane rests.
                    let rests = state.last_output.elapsed() >= limits::REST;
                    look = Some(if rests { Look::Now } else { Look::AtRest });
                    if rests {
                        state.view.doubt(Doubt::Moved);
                    }
                }
            }
            Value::Title(title) => {
                state.about.title.clone_from(&title);
                state.tell_title(&title);
            }
            Value::Command(command) => {
                state.about.command = command;
                state.tap.program();
            }
            Value::Path(path) => state.about.path = path,
        }
        let end = state.ring.end();
        drop(state);
        self.changed.send_replace(end);
        look
    }

    /// muxtap is about to send input. Answers the stream's end, before which nothing can answer it.
    pub(super) fn typed(&self, text: &str, tty_echo: bool) -> Noted {
        let mut state = self.lock();
        let mark = state.ring.end();
        let at = Instant::now();
        let before = state.last_input.replace((mark, at));
        let line = render::resting_line(&state.ring);
        let columns = state.about.size.width.max(1);
        state.echo.typed(mark, text.as_bytes(), line, columns, tty_echo);
        Noted { mark, at, before, input: state.echo.last_input() }
    }

    /// Takes the note of an input back that was not sent.
    pub(super) fn not_typed(&self, noted: &Noted) {
        let mut state = self.lock();
        if state.last_input == Some((noted.mark, noted.at)) {
            state.last_input = noted.before;
        }
        state.echo.not_typed(noted.input);
    }

    /// A wait was answered with these patterns; the next one for the same pattern goes on after the match.
    pub(super) fn answered(&self, patterns: impl IntoIterator<Item = (String, u64)>) {
        let mut state = self.lock();
        for (pattern, end) in patterns {
            if state.answered.len() >= limits::ANSWERED_PATTERNS && !state.answered.contains_key(&pattern) {
                // The oldest answer is the one furthest back in the stream.
                let oldest = state.answered.iter().min_by_key(|(_, end)| **end).map(|(pattern, _)| pattern.clone());
                if let Some(oldest) = oldest {
                    state.answered.remove(&oldest);
                }
            }
            let last = state.answered.entry(pattern).or_default();
            *last = end.max(*last);
        }
    }

    /// What changed last.
    pub(super) fn glimpse(&self) -> Glimpse {
        self.edge.glimpse()
    }

    /// The seat is marked whenever the pane changes, for as long as it lives.
    pub(super) fn listen(&self, seat: &Arc<Seat>) {
        let mut state = self.lock();
        state.seats.retain(|seat| seat.strong_count() > 0);
        state.seats.push(Arc::downgrade(seat));
        self.edge.publish(&state);
    }

    /// Wakes everybody who follows the pane, outside the lock.
    fn announce(&self, mut state: MutexGuard<'_, State>) {
        self.edge.publish(&state);
        state.seats.retain(|seat| match seat.upgrade() {
            Some(seat) => {
                seat.mark();
                true
            }
            None => false,
        });
        let end = state.ring.end();
        drop(state);
        self.changed.send_replace(end);
    }
}

/// A point of a pane's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    end: u64,
    turns: u64,
}

impl Point {
    /// The stream's end there.
    pub(super) fn end(self) -> u64 {
        self.end
    }
}

/// When a screen is to be compared with tmux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// At once, and again when the pane rests if it prints meanwhile.
    Now,
    /// When the pane rests.
    AtRest,
}

/// What a new description of a pane said.
#[must_use]
pub(super) struct Described {
    /// Its title is another one.
    pub(super) retitled: bool,
    /// Its screen has to be compared with tmux's.
    pub(super) look: bool,
    pub(super) kept: Kept,
}

fn screen_size(size: Size) -> crate::screen::Size {
    crate::screen::Size { columns: size.width.max(1), rows: size.height.max(1) }
}

/// How many bytes are held for a pane, for the budget.
#[derive(Clone, Copy)]
#[must_use]
pub(super) struct Kept {
    /// Bytes kept before.
    pub(super) before: usize,
    /// Bytes kept after.
    pub(super) after: usize,
}

/// What a push did.
#[derive(Clone, Copy)]
#[must_use]
pub(super) struct Pushed {
    pub(super) kept: Kept,
    /// The pane's command has ended with this status and all it printed is here.
    pub(super) held_exit: Option<i32>,
    /// Its screen has to be compared with tmux's.
    pub(super) doubt: Option<Doubt>,
    /// A string began; at this time it is to be given up ([`Pane::give_up_string`]).
    pub(super) string_due: Option<Instant>,
}

impl State {
    /// The status told by the hold of this pane's command, once.
    fn take_held_exit(&mut self) -> Option<i32> {
        let hold = self.ours.as_mut()?.hold.as_mut().filter(|hold| hold.is_awaited)?;
        let (_, status) = self.signs.marks(&hold.nonce)?.end?;
        let status = status?;
        hold.is_awaited = false;
        self.signs.expect_no_more(&hold.nonce);
        Some(status)
    }

    /// Where `since: input` begins, and since when: at muxtap's last input, or where muxtap made or respawned the pane,
    /// whichever is later.
    pub(super) fn origin(&self) -> Option<(u64, Instant)> {
        self.last_input.max(self.made)
    }

    fn kept_since(&self, before: usize) -> Kept {
        Kept { before, after: self.held_bytes() }
    }

    pub(super) fn point(&self) -> Point {
        Point { end: self.ring.end(), turns: self.view.turns() }
    }

    /// Bytes held: output and screen.
    pub(super) fn held_bytes(&self) -> usize {
        self.ring.len() + self.view.memory()
    }

    /// The screen is another one: everything on it may be new.
    fn show_all(&mut self) {
        self.tap.drawn(None);
        let Self { view, watchers, ring, .. } = self;
        for watcher in watchers {
            watcher.shown(view, None, ring.end());
        }
    }

    /// Bytes go into the ring and onto the screen, and what they say to everyone who wants to know. `quiet`: after a rest. Answers
    /// whether the screen is doubted from now on.
    fn feed(&mut self, data: &[u8], quiet: bool) -> Option<Doubt> {
        if data.is_empty() {
            return None;
        }
        let over = self.string_due().and_then(|_| self.give_up_string(Instant::now()).1);
        let echo = if self.echo.is_idle() { None } else { Some(&mut self.echo) };
        let mut fan = Fan { echo, watchers: &mut self.watchers, signs: &mut self.signs };
        self.ring.push(data, &mut fan);
        self.note_string();
        if let Some(title) = self.signs.take_title() {
            self.tell_title(&title);
        }
        self.end_command_line();
        let Self { watchers, echo, signs, .. } = self;
        // Watchers whose wait is over stay until its driver takes them away: dropping one frees many small things, and the answer
        // comes first.
        for watcher in watchers {
            watcher.end_of_chunk(echo, signs);
        }
        // Patterns first: whoever waits for one waits for nothing that is drawn.
        let (changes, doubt) = self.view.feed(data, quiet);
        self.tap.drawn(changes.as_ref());
        if let Some(changes) = changes {
            self.show(&changes);
        }
        over.or(doubt)
    }

    /// The typing of a command line is over when its output is announced.
    fn end_command_line(&mut self) {
        if self.echo.command_line().is_none() {
            return;
        }
        let output = self.signs.marks(&self.announced).and_then(|marks| marks.begin);
        if output.is_some() {
            self.echo.command_line_ends(output);
        }
    }

    /// Some rows of the screen are new.
    fn show(&mut self, changes: &Changes) {
        let Self { view, watchers, ring, .. } = self;
        for watcher in watchers {
            watcher.shown(view, Some(changes), ring.end());
        }
    }

    fn tell_title(&mut self, title: &str) {
        self.tap.title(title);
        for watcher in &mut self.watchers {
            watcher.title(title);
        }
    }

    /// The stream rests: what only its end can satisfy is looked at.
    pub(super) fn rest_watchers(&mut self) {
        let Self { watchers, echo, .. } = self;
        for watcher in watchers {
            watcher.rest(echo);
        }
    }

    /// Where the last match of this pattern ended that was answered.
    pub(super) fn answered_at(&self, pattern: &str) -> Option<u64> {
        self.answered.get(pattern).copied()
    }

    /// The line that has begun and not ended.
    pub(super) fn resting_line(&self) -> String {
        let end = self.ring.end();
        let from = end.saturating_sub(limits::LAST_LINE_BYTES).max(self.ring.start());
        let text = render::render_text(&self.ring, from, end);
        text.rsplit('\n').next().unwrap_or_default().to_owned()
    }
}

/// Hands the decoder's events to all who are interested.
struct Fan<'a> {
    echo: Option<&'a mut EchoFilter>,
    watchers: &'a mut Vec<Watcher>,
    signs: &'a mut Signs,
}

impl TextSink for Fan<'_> {
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
        self.signs.mark(start, end, mark);
    }
}
