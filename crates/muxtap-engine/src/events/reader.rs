//! Reads one pane for one subscriber.

use std::{collections::VecDeque, sync::Arc};

use muxtap_api::{Event, EventKind, Gap, GapReason, ReadFormat, ScreenFormat, Since};
use muxtap_base::metrics;
use muxtap_core::stream::{
    resume::Place,
    ring::{Chunk, Reading},
};

use super::Filter;
use tokio::time::Instant;

use crate::{
    PaneState, limits,
    pane::{
        DirtyFlag, LockedPane, Noted, Notifier, PaneUse, SharedEvent, Snapshot,
        event_cache::CachedOutput,
        frame::{Frame, FrameResult},
    },
    query::read,
};

/// How many bytes after the middle of a ring a slow reader searches for the end of a line, to
/// continue after it.
const LINE_BYTES: u64 = 4 * 1024;

/// A subscriber's position in one pane, and what it has been sent of the pane.
pub(super) struct Reader {
    pane: Arc<PaneState>,
    dirty_flag: Arc<DirtyFlag>,
    /// The stream's offset up to which output was sent.
    offset: u64,
    /// The gap before the next output.
    gap: Option<Gap>,
    /// Whether the pane's end was sent.
    end_sent: bool,
    /// The offset of the last bell that was sent.
    bell: Option<u64>,
    /// Begins and ends of commands between the place at which reading began and the end of the stream
    /// at that time.
    earlier: VecDeque<Noted>,
    /// The number of the next change of the pane's marks.
    next_noted: u64,
    /// The pane's state when all of its events had been sent.
    last_state: Option<Snapshot>,
    /// The frame that was sent last.
    frame: Option<Arc<Frame>>,
    /// The point of the stream at which the screen was last read.
    frame_point: Option<(u64, u64)>,
    /// The offset of the last gap that was sent without output after it.
    last_gap: Option<u64>,
    /// Whether `pane-opened` was sent.
    pub(super) announced: bool,
    /// Whether the reader is queued in its subscription.
    pub(super) queued: bool,
    /// Held if the subscriber is sent facts about the pane that only tmux knows.
    pub(super) in_use: Option<PaneUse>,
}

/// Where reading of a pane begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StartPoint {
    pub(super) since: Since,
    /// The position at which the pane was left. It takes precedence over `since`.
    pub(super) place: Option<Place>,
    /// The reason, if output is missing at the beginning.
    pub(super) missing: Option<GapReason>,
}

/// When to read a pane again.
pub(super) enum Next {
    /// When the pane notifies again.
    Idle,
    /// After other panes had their turn: there may be more.
    Again,
    /// At this time, for the screen.
    At(Instant),
}

/// The result of one read of the ring.
enum Read {
    Nothing,
    Output(CachedOutput),
    /// A gap, and the offset after it at which reading continues.
    Missing(Gap, u64),
}

impl Reader {
    /// Begins to read a pane.
    ///
    /// `commands`: the subscriber gets events of commands.
    pub(super) fn new(
        pane: Arc<PaneState>,
        notifier: &Arc<Notifier>,
        number: u32,
        start: StartPoint,
        commands: bool,
    ) -> Self {
        let StartPoint { since, place: resume, missing } = start;
        let dirty_flag = DirtyFlag::new(notifier, number);
        pane.event_cache.add_reader();
        pane.add_dirty_flag(&dirty_flag);
        let since = resume.map_or(since, |place| Since::At(place.cursor));
        let saw_end = resume.is_some_and(|place| place.ended && place.cursor.epoch == pane.epoch());
        let (at, gap, bell, earlier, next_noted) = {
            let locked = pane.lock();
            // A rejected cursor points beyond the end, so muxtap did not create it.
            let (at, gap) = pane.resolve_since(&locked, &since).unwrap_or((locked.ring().end(), None));
            // To a subscriber that resumes, a bell since then is new.
            let gap = gap.or(missing.map(|reason| Gap::new(reason, None)));
            let bell = locked.shell_marks().bell.filter(|bell| resume.is_none() || *bell < at);
            let earlier = if commands && (resume.is_some() || at < locked.ring().end()) {
                // The output from there may no longer be kept, the commands may.
                let place = resume.map(|place| place.cursor).filter(|cursor| cursor.epoch == pane.epoch());
                locked.noted_after(&pane, place.map_or(at, |cursor| cursor.offset.min(at)), saw_end)
            } else {
                Vec::new()
            };
            (at, gap, bell, earlier, locked.next_noted())
        };
        let end_sent = saw_end && pane.snapshot().ended;
        Self {
            pane,
            dirty_flag,
            offset: at,
            gap,
            end_sent,
            bell,
            earlier: earlier.into(),
            next_noted,
            last_state: None,
            frame: None,
            frame_point: None,
            last_gap: None,
            announced: resume.is_some() || missing.is_some(),
            queued: false,
            in_use: None,
        }
    }

    /// Counts the current screen as sent.
    pub(super) fn skip_current_screen(&mut self) {
        if let FrameResult::Ready(frame) = self.pane.frame(ScreenFormat::Rows, true) {
            self.frame = Some(frame);
        }
    }

    pub(super) fn pane(&self) -> &Arc<PaneState> {
        &self.pane
    }

    /// Returns the position up to which the pane was sent.
    pub(super) fn position(&self) -> Place {
        Place { cursor: self.pane.cursor(self.offset), ended: self.end_sent }
    }

    /// Returns whether the pane's end was sent.
    pub(super) fn is_end_sent(&self) -> bool {
        self.end_sent
    }

    /// Appends the next events to `out`: a bell, a screen, one piece of output with the gap before
    /// it, or the end.
    pub(super) fn next(&mut self, filter: &Filter, out: &mut VecDeque<Arc<SharedEvent>>) -> Next {
        // Cleared first, so later changes notify again.
        self.dirty_flag.clear();
        let snapshot = self.pane.snapshot();
        // The program may have been restarted.
        self.end_sent &= snapshot.ended;
        if snapshot.bell != self.bell {
            self.bell = snapshot.bell;
            if filter.includes(EventKind::Bell) && snapshot.bell.is_some() {
                out.push_back(SharedEvent::new(Event::Bell { pane: self.pane.id() }));
            }
        }
        let later = self.read_screen(filter, snapshot, out);
        if self.last_state != Some(snapshot) {
            let is_more = self.read_output(filter, snapshot, out);
            self.read_noted(filter, out);
            if is_more {
                return Next::Again;
            }
        }
        self.last_state = Some(snapshot);
        if snapshot.ended && !self.end_sent {
            self.end_sent = true;
            if filter.includes(EventKind::PaneExited)
                && let Some(exit) = self.pane.exit()
            {
                let (exit_status, exit_signal) = (exit.status, exit.signal);
                out.push_back(SharedEvent::new(Event::PaneExited { pane: self.pane.id(), exit_status, exit_signal }));
            }
        }
        later.map_or(Next::Idle, Next::At)
    }

    /// Sends what is new on the screen. Returns when to try again if it is too early.
    fn read_screen(
        &mut self,
        filter: &Filter,
        snapshot: Snapshot,
        out: &mut VecDeque<Arc<SharedEvent>>,
    ) -> Option<Instant> {
        let point = (snapshot.end, snapshot.generation);
        if !filter.includes(EventKind::Screen) || self.frame_point == Some(point) {
            return None;
        }
        match self.pane.frame(filter.screen, false) {
            FrameResult::TooEarly(due) => return Some(due),
            // The pane notifies when the screen is known again.
            FrameResult::Unknown => {}
            FrameResult::Ready(frame) => {
                out.extend(frame.diff_since(self.frame.as_deref(), filter.screen, &self.pane));
                self.frame = Some(frame);
            }
        }
        self.frame_point = Some(point);
        None
    }

    /// Sends one piece of output, or a gap. Returns whether there may be more.
    fn read_output(&mut self, filter: &Filter, snapshot: Snapshot, out: &mut VecDeque<Arc<SharedEvent>>) -> bool {
        if !filter.includes(EventKind::Output) {
            self.skip_output(filter, snapshot, out);
            return false;
        }
        match self.next_output(filter.format, snapshot) {
            Read::Nothing => false,
            Read::Output(cached) => {
                self.offset = cached.end;
                if filter.includes(EventKind::Gap)
                    && let Some(gap) = cached.gap
                {
                    out.push_back(self.gap_event(gap));
                }
                out.push_back(cached.event);
                true
            }
            Read::Missing(gap, to) => {
                if gap.reason == GapReason::SlowReader {
                    metrics::gap(gap.reason);
                }
                self.offset = to;
                if filter.includes(EventKind::Gap) {
                    out.push_back(self.gap_event(gap));
                }
                // The gap belongs to this reader only; the output after it is sent to others too.
                out.push_back(output_event(&self.pane, filter.format, None, to, Some(gap)));
                true
            }
        }
    }

    /// Sends the changes that marks caused, up to the place at which the output was sent.
    fn read_noted(&mut self, filter: &Filter, out: &mut VecDeque<Arc<SharedEvent>>) {
        if !filter.includes_marks() {
            return;
        }
        let (at, pane) = (self.offset, self.pane.id());
        let mut send = |noted: &Noted| {
            if filter.includes(noted.kind())
                && let Some(event) = noted.event(pane)
            {
                out.push_back(SharedEvent::new(event));
            }
        };
        let count = self.earlier.partition_point(|earlier| earlier.offset <= at);
        for earlier in self.earlier.drain(..count) {
            send(&earlier);
        }
        let (latest, next) = self.pane.noted_changes(self.next_noted, at);
        self.next_noted = next;
        for noted in &latest {
            send(noted);
        }
    }

    fn gap_event(&self, gap: Gap) -> Arc<SharedEvent> {
        SharedEvent::new(Event::Gap { pane: self.pane.id(), gap })
    }

    /// Skips output that the filter excludes, and sends only the gaps in it.
    fn skip_output(&mut self, filter: &Filter, snapshot: Snapshot, out: &mut VecDeque<Arc<SharedEvent>>) {
        let own = self.gap.take();
        let gaps = {
            let locked = self.pane.lock();
            let end = locked.ring().end();
            let to = if snapshot.ended && !self.end_sent { end + 1 } else { end };
            let mut gaps = Vec::new();
            let mut from = self.offset;
            while let Some(gap) = locked.ring().gap_between(from, to) {
                gaps.push(gap);
                let here = if locked.ring().gap_at(from).is_some() { Some(from) } else { locked.ring().next_gap(from) };
                from = here.map_or(to, |here| here + 1);
            }
            self.offset = end;
            gaps
        };
        if filter.includes(EventKind::Gap) {
            out.extend(
                own.into_iter().chain(gaps).map(|gap| SharedEvent::new(Event::Gap { pane: self.pane.id(), gap })),
            );
        }
    }

    /// Returns the next output: a cached one, or a new one.
    fn next_output(&mut self, format: ReadFormat, snapshot: Snapshot) -> Read {
        let over = snapshot.ended && !self.end_sent;
        if self.gap.is_none() {
            if let Some(cached) = self.pane.event_cache.find(format, self.offset) {
                return Read::Output(cached);
            }
            if self.offset == snapshot.end && !over {
                return Read::Nothing;
            }
        }
        // Reads up to an offset of other readers, to be in step with them from there on.
        let far = self.offset.saturating_add(limits::EVENT_BYTES);
        let place = self.pane.event_cache.boundaries(format, self.offset + 1, far).map_or(far, |(_, last)| last);
        let chunk = {
            let locked = self.pane.lock();
            let to =
                if self.offset < locked.ring().start() { self.catch_up_offset(&locked, format) } else { self.offset };
            if to > self.offset || self.gap.is_some() {
                let gap = skipped_gap(self.gap.take(), to - self.offset);
                return Read::Missing(gap, to);
            }
            locked.ring().read(self.offset, Reading { at_end: over, ..locked.reading(place - self.offset, format) })
        };
        if chunk.end > chunk.start {
            let (start, end, gap) = (chunk.start, chunk.end, chunk.gap);
            let event = output_event(&self.pane, format, Some(chunk), end, gap);
            let cached = CachedOutput { format, start, end, gap, event };
            self.pane.event_cache.insert(cached.clone());
            return Read::Output(cached);
        }
        let last = chunk.gap.filter(|_| self.last_gap.replace(chunk.end) != Some(chunk.end));
        last.map_or(Read::Nothing, |gap| Read::Missing(gap, chunk.end))
    }

    /// Returns where a reader continues after its output has left the ring. At the ring's start, a
    /// reader that has read before would be overtaken again.
    fn catch_up_offset(&self, locked: &LockedPane, format: ReadFormat) -> u64 {
        let (start, end) = (locked.ring().start(), locked.ring().end());
        if self.gap.is_some() {
            return start;
        }
        let middle = start + (end - start) / 2;
        if let Some((first, _)) = self.pane.event_cache.boundaries(format, middle, end) {
            return first;
        }
        let bytes = locked.ring().bytes(middle, (middle + LINE_BYTES).min(end));
        memchr::memchr(b'\n', &bytes).map_or(middle, |at| middle + at as u64 + 1)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.pane.event_cache.remove_reader();
        if !self.pane.event_cache.has_readers() {
            self.pane.drop_noted();
        }
    }
}

/// Returns the gap for `bytes` that were skipped, joined with a gap that was already known.
fn skipped_gap(known: Option<Gap>, bytes: u64) -> Gap {
    match known {
        None => Gap::new(GapReason::SlowReader, Some(bytes)),
        Some(gap) => Gap::new(gap.reason, gap.bytes.map(|known| known + bytes)),
    }
}

/// Creates an output event; without a chunk, an empty one. Never called under a pane's lock.
fn output_event(
    pane: &PaneState,
    format: ReadFormat,
    chunk: Option<Chunk>,
    end: u64,
    gap: Option<Gap>,
) -> Arc<SharedEvent> {
    let (name, cursor) = (pane.id(), pane.cursor(end));
    if format == ReadFormat::Raw {
        let bytes = chunk.map(|chunk| chunk.bytes).unwrap_or_default();
        return SharedEvent::raw(Event::Output { pane: name, data: None, text: None, cursor, gap }, bytes.into());
    }
    let text = chunk.and_then(|chunk| read::FormattedChunk::of(&chunk, format).text).unwrap_or_default();
    SharedEvent::new(Event::Output { pane: name, data: None, text: Some(text), cursor, gap })
}
