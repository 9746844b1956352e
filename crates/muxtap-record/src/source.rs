//! The events of one pane in recorded order: output with its time, sizes, inputs, markers, the end.
//!
//! The source follows the pane through its handle, as any program can.

mod stored;

use std::{
    collections::VecDeque,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use super::commands::CommandMarkers;
use muxtap_api::{AgentState, Cursor, Event, Gap, GapReason, Result, Since, Size};
use muxtap_base::clock;
use muxtap_core::{
    protocol::version::Version,
    screen::{Rules, Screen, Settings},
};
use muxtap_engine::{
    Exit, Pane,
    activity::{Activity, Deed},
    sync::watch,
};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, error::TryRecvError};

pub(super) use stored::StoredSource;

/// The maximum size of one piece of output, in bytes.
const PIECE_BYTES: u64 = 64 * 1024;
/// The minimum time between two reads of a pane that prints; the output in between is one piece.
const PACE: Duration = Duration::from_millis(5);
/// How long the end of a recording waits for the notes on the last input.
const LAST_NOTES: Duration = Duration::from_secs(1);
/// How often the beginning is postponed to the next output, because an escape sequence is
/// incomplete.
const PUT_OFF: u32 = 50;

/// One event in a pane. Times count from the beginning of the recording.
#[derive(Debug)]
pub(super) enum Item {
    /// Output, the gap before it, and the places in it where tmux gave up a string.
    Output { at: Duration, bytes: Vec<u8>, gap: Option<Gap>, given_up: Vec<usize> },
    /// The screen after a gap or a new size, once all output has been read: the missing output may
    /// have drawn on it, and tmux may show other lines than a player.
    Redrawn { at: Duration, screen: Box<Screen> },
    /// The pane has a new size.
    Resized { at: Duration, size: Size },
    /// muxtap typed input. `None`: the terminal does not echo it.
    Input { at: Duration, bytes: Option<Vec<u8>> },
    /// Something that deserves a marker.
    Marker { at: Duration, label: String },
    /// The pane's program has ended; no event follows.
    Ended { at: Duration, exit: Exit },
    /// The time until which the caller wanted to wait has come.
    Due { at: Duration },
}

/// The beginning of a recording.
pub(super) struct Start {
    /// The screen at that place.
    pub(super) screen: Screen,
    pub(super) size: Size,
    /// When the recording begins, in milliseconds since 1970.
    pub(super) began_ms: u64,
    /// The gap at the beginning.
    pub(super) gap: Option<Gap>,
}

/// An event beside the output.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Note {
    /// See [`Item::Input`].
    Input(Duration, Option<Vec<u8>>),
    /// See [`Item::Marker`].
    Marker(Duration, String),
}

impl From<Note> for Item {
    fn from(note: Note) -> Self {
        match note {
            Note::Input(at, bytes) => Self::Input { at, bytes },
            Note::Marker(at, label) => Self::Marker { at, label },
        }
    }
}

/// The reader of a pane.
pub(super) struct Source {
    pane: Pane,
    cursor: Cursor,
    changes: watch::Receiver<u64>,
    activities: broadcast::Receiver<Arc<Activity>>,
    events: broadcast::Receiver<(Arc<Path>, Event)>,
    /// The markers of the pane's commands.
    commands: CommandMarkers,
    /// The events that are waiting to be returned.
    notes: VecDeque<Note>,
    size: Size,
    /// Whether a player may show another screen, after a gap or a new size.
    is_unlike: bool,
    /// The place of the last string given up that was returned.
    given_up: Option<u64>,
    /// When past output was printed: offsets, and times since the recording's beginning.
    past: VecDeque<(u64, Duration)>,
    /// The end of the output when the recording began, while older output is read, which has the
    /// times of its marks.
    past_end: Option<u64>,
    /// How long before `now` the recording begins; below, the time at which reading began.
    lead: Duration,
    now: Instant,
    last_read: Option<Instant>,
    /// The maximum size of one piece of output, in bytes.
    piece: u64,
    /// The last state of the pane's agent that was returned.
    agent: Option<AgentState>,
    /// The number of inputs that were begun and have no further note.
    inputs: u32,
    /// How the pane's program ended, and when that was noticed.
    ended: Option<(Exit, Instant)>,
}

impl Source {
    /// Starts to follow a pane at this place.
    ///
    /// `file_bytes`: a file's size limit, of which a piece of output is a small part. Error:
    /// `INVALID_ARGUMENT` for an invalid place.
    pub(super) async fn begin(pane: Pane, since: &Since, file_bytes: Option<u64>) -> Result<(Self, Start)> {
        let mut changes = pane.changes();
        let (activities, events) = (pane.server().engine().activities(), pane.server().announcements());
        let (place, gap) = pane.place(since)?;
        let live = matches!(since, Since::Now);
        let (mut screen, mut cursor) = match pane.screen().filter(|_| live) {
            Some(found) => found,
            None => replay(&pane, place).await?,
        };
        // A screen within an incomplete escape sequence cannot begin a file.
        for _ in 0..PUT_OFF {
            if !live || screen.at_rest() || pane.exit().is_some() {
                break;
            }
            let more = tokio::time::timeout(muxtap_engine::limits::STRING, changes.changed()).await;
            match pane.screen().filter(|_| more.is_ok()) {
                Some(found) => (screen, cursor) = found,
                None => break,
            }
        }
        let now_ms = clock::now_ms();
        let times = if live { Vec::new() } else { pane.output_times(&cursor) };
        let began_ms = times.first().map_or(now_ms, |(_, at)| *at).min(now_ms);
        let since_begin = |at: u64| Duration::from_millis(at.saturating_sub(began_ms));
        let past = times.into_iter().map(|(offset, at)| (offset, since_begin(at))).collect();
        let (size, began_at) = (pane.size(), pane.cursor().offset);
        let shown = muxtap_core::screen::Size { columns: size.width.max(1), rows: size.height.max(1) };
        if screen.size() != shown {
            screen.resize(shown);
        }
        // A string that has begun is given up later.
        let given_up = screen.at_rest().then_some(cursor.offset);
        let start = Start { screen, size, began_ms, gap };
        let commands = CommandMarkers::begin(&pane, cursor.offset);
        let source = Self {
            pane,
            commands,
            cursor,
            changes,
            activities,
            events,
            notes: VecDeque::new(),
            size,
            is_unlike: false,
            given_up,
            past,
            past_end: (!live).then_some(began_at),
            lead: since_begin(now_ms),
            now: Instant::now(),
            last_read: None,
            piece: file_bytes.map_or(PIECE_BYTES, |bytes| (bytes / 64).min(PIECE_BYTES)),
            agent: None,
            inputs: 0,
            ended: None,
        };
        Ok((source, start))
    }

    /// Returns the end of the output that was read.
    pub(super) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Returns the drawing rules of the pane's tmux.
    pub(super) fn rules(&self) -> Rules {
        self.pane.rules().unwrap_or_else(newest)
    }

    /// Returns the current time, or while past output is read, the time of the last read.
    pub(super) fn now(&self) -> Duration {
        self.past_time().unwrap_or_else(|| self.time_of(Instant::now()))
    }

    /// Returns the time of the past output that is being read.
    fn past_time(&self) -> Option<Duration> {
        self.past_end.and(self.past.front()).map(|(_, at)| *at)
    }

    fn time_of(&self, at: Instant) -> Duration {
        self.lead + at.saturating_duration_since(self.now)
    }

    /// Returns the next event; [`Item::Due`] if none comes until then. `None`: the engine stops,
    /// or all events were returned. Cancel safe: nothing is lost.
    pub(super) async fn next(&mut self, until: Option<Instant>) -> Result<Option<Item>> {
        loop {
            if self.pane.server().engine().is_stopping() {
                return Ok(None);
            }
            if let Some((exit, seen)) = self.ended {
                self.commands.look(&self.pane);
                if let Some(item) = self.command_marker().or_else(|| self.noted()) {
                    return Ok(Some(item));
                }
                // The notes on the last input may come a moment later.
                let until = seen + LAST_NOTES;
                if self.inputs == 0 || until <= Instant::now() {
                    return Ok(Some(Item::Ended { at: self.now(), exit }));
                }
                if let Ok(Ok(note)) = tokio::time::timeout_at(until.into(), self.activities.recv()).await {
                    self.take_note(&note);
                }
                continue;
            }
            self.changes.borrow_and_update();
            if let Some(item) = self.command_marker() {
                return Ok(Some(item));
            }
            // Current events come after all past output.
            if self.past_end.is_some()
                && let Some(item) = self.read().await?
            {
                return Ok(Some(item));
            }
            let size = self.pane.size();
            if size != self.size && size.width > 0 && size.height > 0 {
                self.size = size;
                // tmux takes rows from its history, and wraps lines again; players do otherwise.
                self.is_unlike |= self.past_end.is_none();
                return Ok(Some(Item::Resized { at: self.now(), size }));
            }
            if let Some(item) = self.noted() {
                return Ok(Some(item));
            }
            let paced = self.last_read.map(|last| last + PACE).filter(|due| *due > Instant::now());
            if paced.is_none()
                && let Some(item) = self.read().await?
            {
                return Ok(Some(item));
            }
            if self.ended.is_some() {
                continue;
            }
            if let Some(screen) = self.redrawn() {
                return Ok(Some(Item::Redrawn { at: self.now(), screen }));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(Some(Item::Due { at: self.now() }));
            }
            let due = [paced, until].into_iter().flatten().min();
            tokio::select! {
                changed = self.changes.changed(), if paced.is_none() => {
                    if changed.is_err() {
                        return Ok(None);
                    }
                }
                note = self.activities.recv() => {
                    if let Ok(note) = note {
                        self.take_note(&note);
                    }
                }
                event = self.events.recv() => {
                    if let Ok((socket, event)) = event {
                        self.take_event(&socket, event);
                    }
                }
                () = at(due) => {}
                () = self.pane.server().engine().stopping() => return Ok(None),
            }
        }
    }

    /// Returns the next marker of a command whose place in the output was read.
    fn command_marker(&mut self) -> Option<Item> {
        let label = self.commands.take_until(self.cursor.offset)?;
        Some(Item::Marker { at: self.now(), label })
    }

    /// Returns the screen after a gap or a new size, if it is known and all output before it was read.
    fn redrawn(&mut self) -> Option<Box<Screen>> {
        if !self.is_unlike || !self.pane.look(|pane| pane.is_followed) {
            return None;
        }
        let (screen, cursor) = self.pane.screen()?;
        let is_here = cursor.offset == self.cursor.offset && screen.at_rest();
        self.is_unlike &= !is_here;
        is_here.then(|| Box::new(screen))
    }

    /// Reads the pane's new output.
    async fn read(&mut self) -> Result<Option<Item>> {
        // Past output has the times of its marks: each piece ends where the next mark begins.
        while self.past.get(1).is_some_and(|(offset, _)| *offset <= self.cursor.offset) {
            self.past.pop_front();
        }
        let next = self.past.get(1).map(|(offset, _)| offset - self.cursor.offset);
        // No piece contains a command's begin or end: its marker comes between two pieces. Output that
        // comes meanwhile may have marks that are not known yet.
        let known = self.pane.cursor().offset;
        self.commands.look(&self.pane);
        let ends = [self.commands.next_after(self.cursor.offset), Some(known)].into_iter().flatten();
        let most = ends.map(|end| end.saturating_sub(self.cursor.offset)).chain(next).min().unwrap_or(self.piece);
        let most = most.clamp(1, self.piece);
        if self.past_end.is_some_and(|end| self.cursor.offset >= end) {
            self.past_end = None;
        }
        let output = self.pane.read().since(self.cursor).at_most(most).await?;
        let at = self.now();
        self.cursor = output.cursor;
        self.is_unlike |= output.gap.is_some();
        self.ended = output.exit.map(|exit| (exit, Instant::now()));
        let told = self.given_up;
        let given_up: Vec<u64> =
            output.given_up().iter().copied().filter(|at| told.is_none_or(|told| *at > told)).collect();
        self.given_up = given_up.last().copied().or(told);
        if output.bytes().is_empty() && output.gap.is_none() && given_up.is_empty() {
            // The last past output may end in an incomplete sequence.
            self.past_end = None;
            return Ok(None);
        }
        if !output.more() {
            self.last_read = Some(Instant::now());
        }
        let given_up = given_up.into_iter().map(|offset| output.shown_place(offset)).collect();
        Ok(Some(Item::Output { at, bytes: output.shown().into_owned(), gap: output.gap, given_up }))
    }

    /// Returns the next event other than output.
    fn noted(&mut self) -> Option<Item> {
        self.take_notes();
        self.notes.pop_front().map(Item::from)
    }

    /// Takes the events other than output that have happened.
    fn take_notes(&mut self) {
        // A lagging receiver loses the oldest notes, and continues with the next ones.
        loop {
            match self.activities.try_recv() {
                Ok(note) => self.take_note(&note),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        loop {
            match self.events.try_recv() {
                Ok((socket, event)) => self.take_event(&socket, event),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
    }

    fn take_note(&mut self, note: &Activity) {
        if note.pane != self.pane.id() || note.epoch != self.cursor.epoch {
            return;
        }
        let at = self.time_of(note.at);
        match note.deed {
            Deed::Begun => self.inputs += 1,
            Deed::Input(_) | Deed::Refused => self.inputs = self.inputs.saturating_sub(1),
            Deed::Waited(..) => {}
        }
        self.notes.push_back(match &note.deed {
            Deed::Begun | Deed::Refused => return,
            Deed::Input(bytes) => Note::Input(at, bytes.clone()),
            Deed::Waited(outcome, patterns) => {
                let outcome = format!("{outcome:?}").to_lowercase();
                let patterns = if patterns.is_empty() { String::new() } else { format!(": {}", patterns.join(" ")) };
                Note::Marker(at, format!("wait {outcome}{patterns}"))
            }
        });
    }

    fn take_event(&mut self, socket: &Path, event: Event) {
        let Event::Agent(agent) = event else { return };
        // Every server has a pane %0.
        if socket != self.pane.server().socket() || agent.pane != self.pane.id() {
            return;
        }
        if self.agent.replace(agent.state) != Some(agent.state) {
            let state = format!("{:?}", agent.state).to_lowercase();
            let question = agent
                .question
                .as_ref()
                .map(|question| format!(": {}", question.replace('\n', " ⏎ ")))
                .unwrap_or_default();
            let label = format!("{} {state}{question}", agent.name);
            self.notes.push_back(Note::Marker(self.now(), label));
        }
    }
}

/// Draws the pane's output up to this place, as far as it is retained.
async fn replay(pane: &Pane, place: Cursor) -> Result<(Screen, Cursor)> {
    let size = pane.size();
    let size = muxtap_core::screen::Size { columns: size.width.max(1), rows: size.height.max(1) };
    let settings = Settings { history_limit: 0, ..Settings::default() };
    let mut screen = Screen::new(size, pane.rules().unwrap_or_else(newest), settings);
    let (mut at, _) = pane.place(&Since::Start)?;
    while at.offset < place.offset {
        let output = pane.read().since(at).at_most((place.offset - at.offset).min(PIECE_BYTES)).await?;
        if output.cursor == at {
            break;
        }
        let places = output.given_up().iter().map(|at| usize::try_from(at - output.start()).unwrap_or(usize::MAX));
        for (piece, given_up) in pieces(output.bytes(), places) {
            screen.feed(piece);
            if given_up {
                screen.give_up();
            }
        }
        at = output.cursor;
    }
    // A read may continue to the end of a sequence.
    Ok((screen, if at.offset > place.offset { at } else { place }))
}

/// Splits output where tmux gave up a string. Returns with each piece whether such a place follows
/// it.
pub(super) fn pieces(bytes: &[u8], places: impl IntoIterator<Item = usize>) -> Vec<(&[u8], bool)> {
    let (mut pieces, mut rest, mut from) = (Vec::new(), bytes, 0);
    for place in places {
        let (piece, behind) = rest.split_at_checked(place.saturating_sub(from)).unwrap_or((rest, &[]));
        pieces.push((piece, true));
        (rest, from) = (behind, place);
    }
    pieces.push((rest, false));
    pieces
}

/// Returns the rules of the newest tmux, for a pane whose version is unknown.
fn newest() -> Rules {
    Rules::for_version(Version { major: 3, minor: 6, suffix: None, is_preview: false })
}

/// Describes a gap in words.
pub(super) fn describe(gap: Gap) -> String {
    let reason = match gap.reason {
        GapReason::Trimmed => "trimmed: the recording was too slow, or begins before the retained output",
        other => other.as_str(),
    };
    gap.bytes.map_or_else(
        || format!("output is missing here ({reason})"),
        |bytes| format!("{bytes} bytes are missing here ({reason})"),
    )
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
