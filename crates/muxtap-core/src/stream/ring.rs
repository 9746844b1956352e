//! A pane's output, kept by absolute offsets.
//!
//! The ring also decodes: pushed bytes go through a [`TextDecoder`] to a sink at once, and each
//! segment stores the decoder's state at its start, which lets text be read again from any retained
//! offset.

mod copied;

use std::{borrow::Cow, collections::VecDeque};

use serde::{Deserialize, Serialize};

pub use self::copied::{Copied, Sealed, SealedSegments, Uncopied};
pub use super::text::NullSink;
use super::{
    decoder::{DecoderState, TextDecoder},
    text::{Control, Mark, TextSink},
};
use crate::{Gap, GapReason, screen::Screen, tokens};

/// The maximum number of bytes of one segment. Decoding from an offset begins at its segment's
/// start, so this also bounds that work.
pub const SEGMENT: usize = 16 * 1024;
/// The initial capacity of a segment in bytes: an idle pane costs little.
const FIRST: usize = 256;
/// The maximum number of marked gaps. With more, the output before the second one is dropped.
const GAPS: usize = 64;
/// The maximum number of ranges that are hidden.
const HIDDEN: usize = 1024;
/// The number of bytes after which an open sequence no longer delays the end of a read.
const OPEN_LIMIT: u64 = 8 * 1024;

/// A byte ring with absolute offsets and the live decoder of one pane.
///
/// A ring retains at least its limit, unless it was trimmed further ([`Ring::trim_to`]), and at most
/// one [`SEGMENT`] more. It is independent of time and of tmux.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ring {
    segments: VecDeque<Segment>,
    /// The offset after the last byte.
    end: u64,
    /// The number of bytes held.
    len: usize,
    limit: usize,
    decoder: TextDecoder,
    #[serde(with = "crate::stored::gaps")]
    gaps: VecDeque<(u64, Gap)>,
    /// The ranges that text leaves out, in order.
    hidden: VecDeque<(u64, u64)>,
    /// The offset from which text is held back.
    held: Option<u64>,
    /// A dropped segment's memory, for the next one: a flood must not keep the allocator busy.
    #[serde(skip)]
    spare: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Segment {
    start: u64,
    /// The decoder's state before the segment's first byte.
    state: DecoderState,
    /// Whether no sequence continues into the segment: bytes are missing before it, or an open
    /// string was given up there.
    fresh: bool,
    /// Whether a string was given up at the segment's start.
    given_up: bool,
    #[serde(with = "crate::stored::bytes")]
    bytes: Vec<u8>,
}

/// Options of a read of a [`Ring`].
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The maximum number of bytes of a chunk; one longer character or sequence is still returned
    /// whole.
    pub most: u64,
    /// Whether a chunk ends where no character and no sequence is open. One that is open for more
    /// than 8 KiB does not delay the end.
    pub whole_sequences: bool,
    /// Whether the stream has ended after the last byte.
    pub at_end: bool,
}

/// Bytes read from a [`Ring`], with everything that decoding them requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The offset of the first byte: the requested one, or the first retained one after it.
    pub start: u64,
    /// The offset at which the next read begins.
    pub end: u64,
    /// The bytes from `start` to `end`.
    pub bytes: Vec<u8>,
    /// The gap just before them; the first, if several. Within the bytes, nothing is missing.
    pub gap: Option<Gap>,
    /// Whether a read from `end` on returns something at once.
    pub more: bool,
    /// The decoder's state at `start`.
    state: DecoderState,
    /// The offsets between `start` and `end` at which no sequence continues.
    fresh: Vec<u64>,
    /// The offsets from `start` to `end`, both included, at which a string was given up.
    given_up: Vec<u64>,
    /// The ranges of `start..end` that text leaves out ([`Ring::hide`]).
    hidden: Vec<(u64, u64)>,
}

impl Chunk {
    /// Returns the bytes without those that text leaves out ([`Ring::hide`]).
    pub fn shown(&self) -> Cow<'_, [u8]> {
        if self.hidden.is_empty() {
            return Cow::Borrowed(&self.bytes);
        }
        let mut shown = Vec::with_capacity(self.bytes.len());
        shown_pieces(&self.hidden, self.start, &self.bytes, |_, piece, _| shown.extend_from_slice(piece));
        Cow::Owned(shown)
    }

    /// Returns the place of an offset in [`Chunk::shown`].
    pub fn shown_place(&self, offset: u64) -> usize {
        let overlap = |(from, to): &(u64, u64)| (*to).min(offset).saturating_sub((*from).max(self.start));
        let hidden: u64 = self.hidden.iter().map(overlap).sum();
        usize::try_from(offset.saturating_sub(self.start + hidden)).unwrap_or(usize::MAX)
    }

    /// Returns the offsets from `start` to `end`, both included, at which a string was given up: a
    /// parser of the bytes must do the same there ([`Ring::give_up`]). An offset at `end` is
    /// returned again by the read that continues there.
    pub fn given_up(&self) -> &[u64] {
        &self.given_up
    }

    /// Decodes the chunk, as [`Ring::decode_from`] would.
    pub fn decode(&self, sink: &mut (impl TextSink + ?Sized)) {
        let mut decoder = TextDecoder::from(self.state);
        let mut sink = SkipBefore { from: self.start, sink };
        let mut from = self.start;
        let mut rest = &self.bytes[..];
        for to in &self.fresh {
            let (piece, later) = rest.split_at_checked((to - from) as usize).unwrap_or((rest, &[]));
            feed_shown(&self.hidden, &mut decoder, from, piece, &mut sink);
            decoder.reset();
            (from, rest) = (*to, later);
        }
        feed_shown(&self.hidden, &mut decoder, from, rest, &mut sink);
    }
}

/// Feeds the bytes from an offset on, without the hidden ranges. No sequence continues across one.
fn feed_shown<'a>(
    hidden: impl IntoIterator<Item = &'a (u64, u64)>,
    decoder: &mut TextDecoder,
    from: u64,
    bytes: &[u8],
    sink: &mut (impl TextSink + ?Sized),
) {
    shown_pieces(hidden, from, bytes, |at, piece, is_after_hidden| {
        if is_after_hidden {
            decoder.reset();
        }
        decoder.feed(at, piece, sink);
    });
}

/// Passes on the pieces of the bytes from an offset on that are in no hidden range, each with its
/// offset and whether a hidden range comes just before it.
fn shown_pieces<'a>(
    hidden: impl IntoIterator<Item = &'a (u64, u64)>,
    from: u64,
    bytes: &[u8],
    mut pass: impl FnMut(u64, &[u8], bool),
) {
    let end = from + bytes.len() as u64;
    let piece = |from: u64, to: u64, start: u64| bytes.get((from - start) as usize..(to - start) as usize);
    let (mut at, mut is_after_hidden) = (from, false);
    for (hidden_from, hidden_to) in hidden {
        if *hidden_to <= at || *hidden_from >= end {
            continue;
        }
        if *hidden_from > at {
            pass(at, piece(at, *hidden_from, from).unwrap_or_default(), is_after_hidden);
        }
        (at, is_after_hidden) = ((*hidden_to).min(end), true);
    }
    if at < end {
        pass(at, piece(at, end, from).unwrap_or_default(), is_after_hidden);
    }
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
    /// Returns the segment's bytes between two offsets.
    fn between(&self, from: u64, to: u64) -> &[u8] {
        let index = |offset: u64| (offset.saturating_sub(self.start) as usize).min(self.bytes.len());
        self.bytes.get(index(from)..index(to)).unwrap_or_default()
    }
}

impl Ring {
    /// Makes an empty ring that keeps at least the last `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            segments: VecDeque::new(),
            end: 0,
            len: 0,
            limit,
            decoder: TextDecoder::default(),
            gaps: VecDeque::new(),
            hidden: VecDeque::new(),
            held: None,
            spare: Vec::new(),
        }
    }

    /// Returns the offset of the first byte that is retained.
    pub fn start(&self) -> u64 {
        self.end - self.len as u64
    }
    /// Returns the offset of the byte that comes next.
    pub fn end(&self) -> u64 {
        self.end
    }
    /// Returns the number of bytes that are retained.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Returns whether no byte is retained.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Returns the minimum number of last bytes that are kept.
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// Sets the minimum number of last bytes that are kept.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.trim_front(limit, false);
    }
    /// Returns its size on the heap, in bytes.
    pub fn memory(&self) -> usize {
        let held: usize = self.segments.iter().map(|segment| segment.bytes.capacity()).sum();
        held + self.spare.capacity()
            + self.segments.capacity() * size_of::<Segment>()
            + self.gaps.capacity() * size_of::<(u64, Gap)>()
            + self.hidden.capacity() * size_of::<(u64, u64)>()
            + self.decoder.memory()
    }

    /// Appends bytes and passes the decoded events to `sink`.
    pub fn push(&mut self, bytes: &[u8], sink: &mut (impl TextSink + ?Sized)) {
        self.append(bytes, |decoder, offset, piece| decoder.feed(offset, piece, sink));
    }

    /// Appends bytes, passes the decoded events to `sink` and feeds the bytes to `screen`, with the
    /// same effect as [`Ring::push`] and then [`Screen::feed`]; most bytes are parsed only once.
    pub fn push_and_draw(&mut self, bytes: &[u8], sink: &mut (impl TextSink + ?Sized), screen: &mut Screen) {
        self.append(bytes, |decoder, offset, piece| tokens::feed(offset, piece, decoder, sink, screen));
    }

    /// Appends bytes in pieces that fit into segments.
    fn append(&mut self, mut bytes: &[u8], mut feed: impl FnMut(&mut TextDecoder, u64, &[u8])) {
        while !bytes.is_empty() {
            let room = self.segments.back().map_or(0, |last| SEGMENT - last.bytes.len().min(SEGMENT));
            if room == 0 {
                self.grow(false);
                continue;
            }
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            if let Some(last) = self.segments.back_mut() {
                let needed = last.bytes.len() + now.len();
                if needed > last.bytes.capacity() {
                    // By doubling, but never beyond the segment's limit.
                    let wanted = needed.max(last.bytes.capacity() * 2).clamp(FIRST, SEGMENT);
                    last.bytes.reserve_exact(wanted - last.bytes.len());
                }
                last.bytes.extend_from_slice(now);
            }
            // The counts are updated before the bytes are parsed, so a parser that panics leaves a consistent
            // ring.
            let offset = self.end;
            self.end += now.len() as u64;
            self.len += now.len();
            feed(&mut self.decoder, offset, now);
            bytes = later;
        }
        self.trim_front(self.limit, false);
    }

    /// Gives up an open string at the stream's end, as tmux does after five seconds
    /// ([`TextDecoder::give_up`]), and records the place: later reads from the ring decode it the
    /// same way. Returns whether a string was open.
    pub fn give_up(&mut self) -> bool {
        let open = self.decoder.give_up();
        if open {
            if let Some(last) = self.segments.back_mut() {
                // A program may cause this every five seconds; the cost must not be a segment's
                // initial capacity.
                last.bytes.shrink_to_fit();
            }
            self.begin_fresh();
            if let Some(last) = self.segments.back_mut() {
                last.given_up = true;
            }
        }
        open
    }

    /// Returns the offset at which the string that is open at the stream's end began.
    pub fn string_start(&self) -> Option<u64> {
        self.decoder.state().string_start()
    }

    /// Ends any open sequence or character at the stream's end: another program begins there.
    pub fn restart(&mut self) {
        self.decoder.reset();
        self.begin_fresh();
    }

    /// Begins a segment into which no sequence continues.
    fn begin_fresh(&mut self) {
        match self.segments.back_mut() {
            Some(last) if last.bytes.is_empty() => (last.state, last.fresh) = (DecoderState::default(), true),
            _ => self.grow(true),
        }
    }

    /// Returns the offsets between two others (exclusive) at which no sequence continues.
    fn fresh_between(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let segments = self.segments.range(self.segment_of(from)..);
        segments
            .filter(move |segment| segment.fresh && segment.start > from)
            .map(|segment| segment.start)
            .take_while(move |start| *start < to)
    }

    /// Returns the offsets from one to another (both included) at which a string was given up.
    fn given_up_within(&self, from: u64, to: u64) -> Vec<u64> {
        // The offset at `from` may belong to an empty segment or to the segment that begins there.
        let first = self.segment_of(from.saturating_sub(1));
        let segments = self.segments.range(first..).take_while(|segment| segment.start <= to);
        segments.filter(|segment| segment.given_up && segment.start >= from).map(|segment| segment.start).collect()
    }

    /// Marks that bytes are missing from here on, and ends any open sequence or character before
    /// that.
    pub fn push_gap(&mut self, gap: Gap) {
        self.restart();
        if self.gaps.back().is_some_and(|(at, _)| *at == self.end) {
            // The first gap at a place is the one that is reported.
            return;
        }
        self.gaps.push_back((self.end, gap));
        // No gap is forgotten while output before it is retained: otherwise a reader would pass it
        // without notice.
        if self.gaps.len() > GAPS
            && let Some((second, _)) = self.gaps.get(1)
        {
            self.trim_to((self.end - second) as usize);
        }
    }

    /// Returns the first marked gap at an offset of `from..to`: bytes are missing just before the
    /// byte at that offset. A reader at the end of a finished stream passes `end..end + 1`, because
    /// no byte follows the last gap.
    pub fn gap_between(&self, from: u64, to: u64) -> Option<Gap> {
        let (_, gap) = self.gaps.iter().find(|(offset, _)| (from..to).contains(offset))?;
        Some(*gap)
    }

    /// Returns the gap just before the byte at an offset.
    pub fn gap_at(&self, offset: u64) -> Option<Gap> {
        self.gap_between(offset, offset.saturating_add(1))
    }

    /// Returns the offset of the first gap after an offset.
    pub fn next_gap(&self, offset: u64) -> Option<u64> {
        self.gaps.iter().map(|(at, _)| *at).find(|at| *at > offset)
    }

    /// Holds text back from the stream's end on, until [`Ring::show`] or [`Ring::hide`]: what is
    /// printed next may have to be hidden. Reads of raw bytes go on.
    pub fn hold(&mut self) {
        self.held = Some(self.end);
    }

    /// Returns the offset from which text is held back.
    pub fn held(&self) -> Option<u64> {
        self.held
    }

    /// Holds no text back any more.
    pub fn show(&mut self) {
        self.held = None;
    }

    /// Leaves a range out of all text that is decoded from now on, and holds no text back any more.
    /// Reads of raw bytes still have it. Of more than 1,024 ranges the earliest are shown again.
    pub fn hide(&mut self, from: u64, to: u64) {
        self.held = None;
        if from >= to {
            return;
        }
        if self.hidden.len() >= HIDDEN {
            self.hidden.pop_front();
        }
        self.hidden.push_back((from, to));
    }

    /// Returns whether an offset is in a range that text leaves out.
    pub fn is_hidden(&self, offset: u64) -> bool {
        self.hidden.iter().any(|(from, to)| (*from..*to).contains(&offset))
    }

    /// Returns the nearest retained offset at or after `from` (at most [`Ring::end`]), and the gap
    /// for the bytes that were trimmed before it.
    pub fn resolve(&self, from: u64) -> (u64, Option<Gap>) {
        let start = self.start();
        if from < start {
            (start, Some(Gap { reason: GapReason::Trimmed, bytes: Some(start - from) }))
        } else {
            (from.min(self.end), None)
        }
    }

    /// Returns the next bytes from `from` on, but not across a gap: a chunk has at most one, before
    /// its bytes. A gap at the very end is reported when more output arrives, or when the stream
    /// has ended.
    pub fn read(&self, from: u64, how: Reading) -> Chunk {
        let (start, trimmed) = self.resolve(from);
        let stop = self.shown_end(how);
        let gap = self.next_gap(start).filter(|gap| *gap <= stop);
        let stop = gap.unwrap_or(stop).max(start);
        // A sequence or character that is open there will not continue.
        let closed = how.at_end || gap.is_some();
        let to = stop.min(start.saturating_add(how.most));
        let end = match self.boundary(to) {
            _ if !how.whole_sequences || to == start || closed && to == stop => to,
            boundary if boundary > start => boundary,
            // The open sequence or character exceeds the requested length.
            _ => self.completed(start, to, stop).unwrap_or(if closed { stop } else { start }),
        };
        let marked = self.gap_at(start).filter(|_| end > start || how.at_end);
        Chunk {
            start,
            end,
            bytes: self.bytes(start, end),
            gap: trimmed.or(marked),
            more: end > start && self.has_more(end, how),
            state: self.state_at(start),
            fresh: self.fresh_between(start, end).collect(),
            given_up: self.given_up_within(start, end),
            hidden: self.hidden.iter().filter(|(from, to)| *from < end && *to > start).copied().collect(),
        }
    }

    /// Returns where a reader's bytes end for now.
    fn shown_end(&self, how: Reading) -> u64 {
        self.held.filter(|_| how.whole_sequences && !how.at_end).unwrap_or(self.end)
    }

    /// Returns whether a read from an offset returns something now: bytes, or the gap at the end of
    /// a finished stream.
    pub fn has_more(&self, from: u64, how: Reading) -> bool {
        let stop = self.shown_end(how);
        if self.next_gap(from).is_some_and(|gap| gap <= stop) || from < self.start() {
            return true;
        }
        let end = if how.whole_sequences && !how.at_end { self.boundary(stop) } else { stop };
        from < end || how.at_end && self.gap_at(from).is_some()
    }

    /// Returns the first boundary after `start` at which the sequence or character that is open at
    /// `to` has ended.
    fn completed(&self, start: u64, to: u64, stop: u64) -> Option<u64> {
        let given_up = self.fresh_between(to, stop).next();
        let stop = given_up.unwrap_or(stop);
        let mut decoder = TextDecoder::from(self.state_at(to));
        let bytes = self.slices(to, stop).flatten();
        let ended = bytes.zip(to..).find_map(|(byte, at)| {
            decoder.feed(at, std::slice::from_ref(byte), &mut NullSink);
            Some(held_back(decoder.state(), at + 1)).filter(|boundary| *boundary > start)
        });
        ended.or(given_up)
    }

    /// Returns the retained bytes between two offsets, piece by piece.
    pub fn slices(&self, from: u64, to: u64) -> impl Iterator<Item = &[u8]> {
        let first = self.segment_of(from);
        let segments = self.segments.range(first..).take_while(move |segment| segment.start < to);
        segments.map(move |segment| segment.between(from, to)).filter(|slice| !slice.is_empty())
    }

    /// Returns the retained bytes between two offsets.
    pub fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(to.saturating_sub(from).min(self.len as u64) as usize);
        for slice in self.slices(from, to) {
            bytes.extend_from_slice(slice);
        }
        bytes
    }

    /// Decodes the retained bytes between two offsets. Only events that begin at `from` or later
    /// are passed on: the rest of a run of text that began before, but nothing of a sequence or a
    /// character that began before. Events that are incomplete at `to` are not passed on either: a
    /// reader that continues from there should end at [`Ring::boundary`].
    pub fn decode_from(&self, from: u64, to: u64, sink: &mut (impl TextSink + ?Sized)) {
        let mut decoder: Option<TextDecoder> = None;
        let mut sink = SkipBefore { from, sink };
        let segments = self.segments.range(self.segment_of(from)..);
        for segment in segments.take_while(|segment| segment.start < to) {
            let decoder = match &mut decoder {
                Some(decoder) if segment.fresh => {
                    decoder.reset();
                    decoder
                }
                Some(decoder) => decoder,
                None => decoder.insert(TextDecoder::from(segment.state)),
            };
            let bytes = segment.between(segment.start, to);
            if segment.start < from {
                // Most of a segment may come before `from`: that part goes to a null sink.
                let (before, after) = bytes.split_at_checked((from - segment.start) as usize).unwrap_or((bytes, &[]));
                decoder.feed(segment.start, before, &mut NullSink);
                feed_shown(&self.hidden, decoder, from, after, &mut sink);
            } else {
                feed_shown(&self.hidden, decoder, segment.start, bytes, &mut sink);
            }
        }
    }

    /// Returns the last offset at or before `to` at which a read of text can end without loss: no
    /// character and no escape sequence is open there. A sequence that is open for more than 8 KiB
    /// does not delay the end.
    pub fn boundary(&self, to: u64) -> u64 {
        let to = to.min(self.end);
        held_back(self.state_at(to), to).max(self.start())
    }

    /// Drops the oldest bytes until at most `bytes` are left, and frees their memory.
    pub fn trim_to(&mut self, bytes: usize) {
        self.trim_front(bytes, true);
        let surplus = self.len.saturating_sub(bytes);
        if surplus > 0 {
            let start = self.start() + surplus as u64;
            let state = self.state_at(start);
            if let Some(first) = self.segments.front_mut() {
                first.bytes.drain(..surplus.min(first.bytes.len()));
                first.bytes.shrink_to_fit();
                first.start = start;
                first.state = state;
                first.given_up = false;
            }
            self.len -= surplus;
            self.forget_gaps();
        }
        self.spare = Vec::new();
    }

    /// Drops whole segments while at least `keep` bytes are left (`below`: less than one segment of
    /// them may be left).
    fn trim_front(&mut self, keep: usize, below: bool) {
        let mut dropped = false;
        while let Some(first) = self.segments.front() {
            let left = self.len - first.bytes.len();
            let droppable = if below { self.len > keep && left >= keep } else { left >= keep };
            // The last segment is still being written to.
            if !droppable || self.segments.len() == 1 {
                break;
            }
            if let Some(mut first) = self.segments.pop_front() {
                first.bytes.clear();
                self.spare = first.bytes;
            }
            self.len = left;
            dropped = true;
        }
        if dropped {
            self.forget_gaps();
        }
    }

    fn forget_gaps(&mut self) {
        let start = self.start();
        self.gaps.retain(|(offset, _)| *offset >= start);
        self.hidden.retain(|(_, to)| *to > start);
    }

    fn grow(&mut self, fresh: bool) {
        let bytes = std::mem::take(&mut self.spare);
        self.segments.push_back(Segment {
            start: self.end,
            state: self.decoder.state(),
            fresh,
            given_up: false,
            bytes,
        });
    }

    /// Returns the index of the segment that contains the byte at an offset, or of the first one
    /// after it.
    fn segment_of(&self, offset: u64) -> usize {
        self.segments.partition_point(|segment| segment.end() <= offset)
    }

    fn state_at(&self, offset: u64) -> DecoderState {
        if offset >= self.end {
            return self.decoder.state();
        }
        let Some(segment) = self.segments.get(self.segment_of(offset)) else { return DecoderState::default() };
        let mut decoder = TextDecoder::from(segment.state);
        decoder.feed(segment.start, segment.between(segment.start, offset), &mut NullSink);
        decoder.state()
    }
}

/// Returns the start of the sequence or character that is open at `to`, unless that is too far
/// back.
fn held_back(state: DecoderState, to: u64) -> u64 {
    state.open_since().filter(|open| to.saturating_sub(*open) <= OPEN_LIMIT).unwrap_or(to)
}

/// Passes on events that begin at an offset or later.
struct SkipBefore<'a, S: ?Sized> {
    from: u64,
    sink: &'a mut S,
}

impl<S: TextSink + ?Sized> TextSink for SkipBefore<'_, S> {
    fn text(&mut self, offset: u64, text: &[u8]) {
        // Only the text of a character that was cut at `from` can still begin before it.
        if offset >= self.from {
            self.sink.text(offset, text);
        }
    }
    fn control(&mut self, offset: u64, control: Control) {
        if offset >= self.from {
            self.sink.control(offset, control);
        }
    }
    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        if start >= self.from {
            self.sink.mark(start, end, mark);
        }
    }
}

#[cfg(test)]
mod tests;
