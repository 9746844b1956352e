//! One pane as one subscriber reads it.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::{
    Wanted,
    frame::{Frame, Look},
    shared::Piece,
    telling::Telling,
};
use crate::{
    api::{Event, EventKind, Gap, GapReason, ReadFormat, ScreenFormat},
    engine::{
        Pane, limits,
        pane::{Glimpse, Listener, Seat, State},
        read,
    },
    metrics,
    stream::{
        cursor::Since,
        resume::Place,
        ring::{Chunk, Reading},
    },
};

/// How far after the middle of a ring a slow reader looks for a line to go on with.
const LINE_BYTES: u64 = 4 * 1024;

/// How far a pane was read.
pub(super) struct Reader {
    pane: Arc<Pane>,
    seat: Arc<Seat>,
    /// All before it was told.
    at: u64,
    /// Missing before what is told next.
    gap: Option<Gap>,
    /// Its end was told.
    done: bool,
    /// Where the last bell stood that was told.
    bell: Option<u64>,
    /// What was there when all of it had been told.
    seen: Option<Glimpse>,
    /// What was told of its screen, and of which state.
    frame: Option<Arc<Frame>>,
    drawn: Option<(u64, u64)>,
    /// Where a gap was told behind which nothing comes.
    last_gap: Option<u64>,
    /// That it is there was told.
    pub(super) announced: bool,
    /// Its turn comes.
    pub(super) marked: bool,
}

/// Where a pane is read first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beginning {
    pub(super) since: Since,
    /// Where it was told last; it counts more.
    pub(super) place: Option<Place>,
    /// Something is missing there.
    pub(super) missing: Option<GapReason>,
}

/// Whether a pane has more to tell.
pub(super) enum Next {
    /// Not before it is marked again.
    Nothing,
    /// Perhaps: look again when others had their turn.
    Again,
    /// Its screen does, from then on.
    At(Instant),
}

/// What a read of the ring gives.
enum Read {
    Nothing,
    Piece(Piece),
    /// Something is missing here; reading goes on behind it.
    Missing(Gap, u64),
}

impl Reader {
    /// A pane from a beginning on.
    pub(super) fn new(pane: Arc<Pane>, listener: &Arc<Listener>, number: u32, begin: Beginning) -> Self {
        let Beginning { since, place: resume, missing } = begin;
        let seat = Seat::new(listener, number);
        pane.shared.enter();
        pane.listen(&seat);
        let since = resume.map_or(since, |place| Since::At(place.cursor));
        let (at, gap, bell) = {
            let state = pane.lock();
            // A cursor that is refused points behind the end: it was not made here.
            let (at, gap) = pane.begin_of(&state, &since).unwrap_or((state.ring.end(), None));
            // What rang since is news to one who comes back.
            let gap = gap.or(missing.map(|reason| Gap { reason, bytes: None }));
            (at, gap, state.signs.bell.filter(|bell| resume.is_none() || *bell < at))
        };
        let told_its_end = resume.is_some_and(|place| place.ended && place.cursor.epoch == pane.epoch());
        let done = told_its_end && pane.glimpse().ended;
        Self {
            pane,
            seat,
            at,
            gap,
            done,
            bell,
            seen: None,
            frame: None,
            drawn: None,
            last_gap: None,
            announced: resume.is_some() || missing.is_some(),
            marked: false,
        }
    }

    /// What its screen shows counts as told.
    pub(super) fn skip_screen(&mut self) {
        if let Look::At(frame) = self.pane.frame(ScreenFormat::Rows, true) {
            self.frame = Some(frame);
        }
    }

    pub(super) fn pane(&self) -> &Arc<Pane> {
        &self.pane
    }

    /// How far it was told.
    pub(super) fn place(&self) -> Place {
        Place { cursor: self.pane.cursor(self.at), ended: self.done }
    }

    /// Its end was told.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Puts what is to be told next into `out`: a bell, a screen, one piece of output with the gap before it, or the end.
    pub(super) fn next(&mut self, wanted: &Wanted, out: &mut VecDeque<Arc<Telling>>) -> Next {
        // First: what changes from here on is marked again.
        self.seat.clear();
        let glimpse = self.pane.glimpse();
        // Its program may have been started anew.
        self.done &= glimpse.ended;
        if glimpse.bell != self.bell {
            self.bell = glimpse.bell;
            if wanted.has(EventKind::Bell) && glimpse.bell.is_some() {
                out.push_back(Telling::new(&Event::Bell { pane: self.name() }));
            }
        }
        let later = self.screen(wanted, glimpse, out);
        if self.seen != Some(glimpse) && self.output(wanted, glimpse, out) {
            return Next::Again;
        }
        self.seen = Some(glimpse);
        if glimpse.ended && !self.done {
            self.done = true;
            if wanted.has(EventKind::PaneExited)
                && let Some(exit) = self.pane.exit()
            {
                let (exit_status, exit_signal) = (exit.status, exit.signal);
                out.push_back(Telling::new(&Event::PaneExited { pane: self.name(), exit_status, exit_signal }));
            }
        }
        later.map_or(Next::Nothing, Next::At)
    }

    fn name(&self) -> String {
        self.pane.id().to_string()
    }

    /// Tells what is new on the screen. Answers when to look again, if it is too early.
    fn screen(&mut self, wanted: &Wanted, glimpse: Glimpse, out: &mut VecDeque<Arc<Telling>>) -> Option<Instant> {
        let point = (glimpse.end, glimpse.turns);
        if !wanted.has(EventKind::Screen) || self.drawn == Some(point) {
            return None;
        }
        match self.pane.frame(wanted.screen, false) {
            Look::Later(due) => return Some(due),
            // It will be marked when it is known again.
            Look::Unknown => {}
            Look::At(frame) => {
                out.extend(frame.since(self.frame.as_deref(), wanted.screen, &self.pane));
                self.frame = Some(frame);
            }
        }
        self.drawn = Some(point);
        None
    }

    /// Tells one piece of output, or what is missing. Answers whether there may be more.
    fn output(&mut self, wanted: &Wanted, glimpse: Glimpse, out: &mut VecDeque<Arc<Telling>>) -> bool {
        if !wanted.has(EventKind::Output) {
            self.skip_output(wanted, glimpse, out);
            return false;
        }
        match self.read(wanted.format, glimpse) {
            Read::Nothing => false,
            Read::Piece(piece) => {
                self.at = piece.end;
                if wanted.has(EventKind::Gap)
                    && let Some(gap) = piece.gap
                {
                    out.push_back(self.gap_event(gap));
                }
                out.push_back(piece.telling);
                true
            }
            Read::Missing(gap, to) => {
                if gap.reason == GapReason::SlowReader {
                    metrics::gap(gap.reason);
                }
                self.at = to;
                if wanted.has(EventKind::Gap) {
                    out.push_back(self.gap_event(gap));
                }
                // The gap is this reader's alone; what follows it is told to others too.
                out.push_back(told(&self.pane, wanted.format, None, to, Some(gap)));
                true
            }
        }
    }

    fn gap_event(&self, gap: Gap) -> Arc<Telling> {
        Telling::new(&Event::Gap { pane: self.name(), gap })
    }

    /// Passes over output that is not told; only the gaps in it are.
    fn skip_output(&mut self, wanted: &Wanted, glimpse: Glimpse, out: &mut VecDeque<Arc<Telling>>) {
        let own = self.gap.take();
        let marked = {
            let state = self.pane.lock();
            let end = state.ring.end();
            let to = if glimpse.ended && !self.done { end + 1 } else { end };
            let mut marked = Vec::new();
            let mut from = self.at;
            while let Some(gap) = state.ring.gap_between(from, to) {
                marked.push(gap);
                let here = if state.ring.gap_at(from).is_some() { Some(from) } else { state.ring.next_gap(from) };
                from = here.map_or(to, |here| here + 1);
            }
            self.at = end;
            marked
        };
        if wanted.has(EventKind::Gap) {
            out.extend(own.into_iter().chain(marked).map(|gap| Telling::new(&Event::Gap { pane: self.name(), gap })));
        }
    }

    /// The next piece: one that was made for somebody else, or a new one.
    fn read(&mut self, format: ReadFormat, glimpse: Glimpse) -> Read {
        let over = glimpse.ended && !self.done;
        if self.gap.is_none() {
            if let Some(piece) = self.pane.shared.find(format, self.at) {
                return Read::Piece(piece);
            }
            if self.at == glimpse.end && !over {
                return Read::Nothing;
            }
        }
        // To where others stand, so that this reader is among them from there on.
        let far = self.at.saturating_add(limits::EVENT_BYTES);
        let place = self.pane.shared.places(format, self.at + 1, far).map_or(far, |(_, last)| last);
        let chunk = {
            let state = self.pane.lock();
            let to = if self.at < state.ring.start() { self.go_on(&state, format) } else { self.at };
            if to > self.at || self.gap.is_some() {
                let gap = missing(self.gap.take(), to - self.at);
                return Read::Missing(gap, to);
            }
            state.ring.read(self.at, Reading { over, ..state.reading(place - self.at, format) })
        };
        if chunk.end > chunk.start {
            let (start, end, gap) = (chunk.start, chunk.end, chunk.gap);
            let telling = told(&self.pane, format, Some(chunk), end, gap);
            let piece = Piece { format, start, end, gap, telling };
            self.pane.shared.keep(piece.clone());
            return Read::Piece(piece);
        }
        let last = chunk.gap.filter(|_| self.last_gap.replace(chunk.end) != Some(chunk.end));
        last.map_or(Read::Nothing, |gap| Read::Missing(gap, chunk.end))
    }

    /// Where a reader goes on that was overtaken. One that has read already would be overtaken again at the ring's start.
    fn go_on(&self, state: &State, format: ReadFormat) -> u64 {
        let (start, end) = (state.ring.start(), state.ring.end());
        if self.gap.is_some() {
            return start;
        }
        let middle = start + (end - start) / 2;
        if let Some((first, _)) = self.pane.shared.places(format, middle, end) {
            return first;
        }
        let bytes = state.ring.bytes(middle, (middle + LINE_BYTES).min(end));
        memchr::memchr(b'\n', &bytes).map_or(middle, |at| middle + at as u64 + 1)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.pane.shared.leave();
    }
}

/// The gap before a place to which `bytes` were passed over, with what was missing already.
fn missing(known: Option<Gap>, bytes: u64) -> Gap {
    match known {
        None => Gap { reason: GapReason::SlowReader, bytes: Some(bytes) },
        Some(gap) => Gap { bytes: gap.bytes.map(|known| known + bytes), ..gap },
    }
}

/// An output event, of nothing where there is no chunk; never under a pane's lock.
fn told(pane: &Pane, format: ReadFormat, chunk: Option<Chunk>, end: u64, gap: Option<Gap>) -> Arc<Telling> {
    let (name, cursor) = (pane.id().to_string(), pane.cursor(end).to_string());
    if format == ReadFormat::Raw {
        let bytes = chunk.map(|chunk| chunk.bytes).unwrap_or_default();
        return Telling::raw(Event::Output { pane: name, data: None, text: None, cursor, gap }, bytes.into());
    }
    let text = chunk.and_then(|chunk| read::Piece::of(&chunk, format).text).unwrap_or_default();
    Telling::new(&Event::Output { pane: name, data: None, text: Some(text), cursor, gap })
}
