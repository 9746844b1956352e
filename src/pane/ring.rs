//! A pane's output, kept by absolute offsets.
//!
//! The ring also decodes: what is pushed goes through a [`TextDecoder`] to a sink at once, and each segment remembers the decoder's
//! state at its start, so that text can be read again from any offset that is retained.

use std::collections::VecDeque;

pub use super::text::Unheard;
use super::{
    decoder::{DecoderState, TextDecoder},
    text::{Control, Mark, TextSink},
};
use crate::api::{Gap, GapReason};

/// Bytes of one segment at most. Decoding from an offset begins at its segment's start, so this also bounds that work.
pub const SEGMENT: usize = 16 * 1024;
/// Bytes a segment has room for at first: an idle pane costs little.
const FIRST: usize = 256;
/// Marked gaps that are kept, besides the earliest.
const GAPS: usize = 64;
/// A sequence that is open for more bytes than this no longer holds back where a read may end.
const OPEN_LIMIT: u64 = 8 * 1024;

/// A byte ring with absolute offsets and the live decoder of one pane.
///
/// It retains at least its limit and at most one [`SEGMENT`] more. Nothing in it knows time or tmux.
#[derive(Debug)]
pub struct Ring {
    segments: VecDeque<Segment>,
    /// The offset behind the last byte.
    end: u64,
    /// Bytes held.
    len: usize,
    limit: usize,
    decoder: TextDecoder,
    gaps: VecDeque<(u64, Gap)>,
    /// A dropped segment's memory, for the next one: a flood must not keep the allocator busy.
    spare: Vec<u8>,
}

#[derive(Debug)]
struct Segment {
    start: u64,
    /// The decoder before its first byte.
    state: DecoderState,
    /// Bytes are missing before it: no sequence reaches into it.
    fresh: bool,
    bytes: Vec<u8>,
}

/// How a [`Ring`] is read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Bytes of a chunk at most; one character or sequence that is longer comes whole nevertheless.
    pub most: u64,
    /// A chunk ends where no character and no sequence is open. One that is open for more than 8 KiB holds nothing back.
    pub whole: bool,
    /// Nothing will follow the last byte.
    pub over: bool,
}

/// Bytes read from a [`Ring`], with all that is needed to decode them without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where they begin: what was asked for, or the first retained byte after it.
    pub start: u64,
    /// Where the next read begins.
    pub end: u64,
    /// The bytes from `start` to `end`.
    pub bytes: Vec<u8>,
    /// What is missing just before them; the first, if more is. Nothing is missing within.
    pub gap: Option<Gap>,
    /// A read from `end` on gives something at once.
    pub more: bool,
    /// The decoder at `start`.
    state: DecoderState,
}

impl Chunk {
    /// Decodes it, as [`Ring::decode_from`] would.
    pub fn decode(&self, sink: &mut (impl TextSink + ?Sized)) {
        TextDecoder::from(self.state).feed(self.start, &self.bytes, &mut Onward { from: self.start, sink });
    }
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
    /// The bytes between two offsets, as far as it has them.
    fn between(&self, from: u64, to: u64) -> &[u8] {
        let index = |offset: u64| (offset.saturating_sub(self.start) as usize).min(self.bytes.len());
        self.bytes.get(index(from)..index(to)).unwrap_or_default()
    }
}

impl Ring {
    /// An empty ring that keeps at least the last `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            segments: VecDeque::new(),
            end: 0,
            len: 0,
            limit,
            decoder: TextDecoder::default(),
            gaps: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// The offset of the first byte that is retained.
    pub fn start(&self) -> u64 {
        self.end - self.len as u64
    }
    /// The offset of the byte that comes next.
    pub fn end(&self) -> u64 {
        self.end
    }
    /// How many bytes are retained.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether no byte is retained.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The least number of last bytes that are kept.
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// What it costs on the heap, in bytes.
    pub fn memory(&self) -> usize {
        let held: usize = self.segments.iter().map(|segment| segment.bytes.capacity()).sum();
        held + self.spare.capacity()
            + self.segments.capacity() * size_of::<Segment>()
            + self.gaps.capacity() * size_of::<(u64, Gap)>()
            + self.decoder.memory()
    }

    /// Appends bytes and tells `sink` what they mean.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut (impl TextSink + ?Sized)) {
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
                    // By doubling, but never beyond the segment.
                    let wanted = needed.max(last.bytes.capacity() * 2).clamp(FIRST, SEGMENT);
                    last.bytes.reserve_exact(wanted - last.bytes.len());
                }
                last.bytes.extend_from_slice(now);
            }
            self.decoder.feed(self.end, now, sink);
            self.end += now.len() as u64;
            self.len += now.len();
            bytes = later;
        }
        self.trim_front(self.limit, false);
    }

    /// Bytes are missing from here on: marks the place, and lets no open sequence or character reach over it.
    pub fn push_gap(&mut self, gap: Gap) {
        self.decoder.reset();
        match self.segments.back_mut() {
            Some(last) if last.bytes.is_empty() => (last.state, last.fresh) = (DecoderState::default(), true),
            _ => self.grow(true),
        }
        if self.gaps.len() > GAPS {
            // The earliest stays: it is what a reader that comes from before it has to know first.
            self.gaps.remove(1);
        }
        self.gaps.push_back((self.end, gap));
    }

    /// The first marked gap at an offset of `from..to`: bytes are missing just before the byte at that offset. A reader that has come to
    /// the end of a stream that is over asks for `end..end + 1`, for no byte follows the last gap.
    pub fn gap_between(&self, from: u64, to: u64) -> Option<Gap> {
        let (_, gap) = self.gaps.iter().find(|(offset, _)| (from..to).contains(offset))?;
        Some(*gap)
    }

    /// What is missing just before the byte at an offset.
    pub fn gap_at(&self, offset: u64) -> Option<Gap> {
        self.gap_between(offset, offset.saturating_add(1))
    }

    /// Where the first gap behind an offset lies.
    pub fn next_gap(&self, offset: u64) -> Option<u64> {
        self.gaps.iter().map(|(at, _)| *at).find(|at| *at > offset)
    }

    /// The nearest retained offset at or after `from` (at most [`Ring::end`]), and what was trimmed before it.
    pub fn resolve(&self, from: u64) -> (u64, Option<Gap>) {
        let start = self.start();
        if from < start {
            (start, Some(Gap { reason: GapReason::Trimmed, bytes: Some(start - from) }))
        } else {
            (from.min(self.end), None)
        }
    }

    /// The next bytes from `from` on, but not across a gap: a chunk has at most one, before it. A gap behind which nothing came yet is told
    /// when something comes, or when the stream is over.
    pub fn read(&self, from: u64, how: Reading) -> Chunk {
        let (start, trimmed) = self.resolve(from);
        let gap = self.next_gap(start);
        let stop = gap.unwrap_or(self.end);
        // Nothing that is open there will be continued.
        let closed = how.over || gap.is_some();
        let to = stop.min(start.saturating_add(how.most));
        let end = match self.boundary(to) {
            _ if !how.whole || to == start || closed && to == stop => to,
            boundary if boundary > start => boundary,
            // More is open than was asked for.
            _ => self.completed(start, to, stop).unwrap_or(if closed { stop } else { start }),
        };
        let marked = self.gap_at(start).filter(|_| end > start || how.over);
        Chunk {
            start,
            end,
            bytes: self.bytes(start, end),
            gap: trimmed.or(marked),
            more: end > start && self.has_more(end, how),
            state: self.state_at(start),
        }
    }

    /// Whether a read from an offset gives something now: bytes, or the gap at the end of a stream that is over.
    pub fn has_more(&self, from: u64, how: Reading) -> bool {
        if self.next_gap(from).is_some() || from < self.start() {
            return true;
        }
        let end = if how.whole && !how.over { self.boundary(self.end) } else { self.end };
        from < end || how.over && self.gap_at(from).is_some()
    }

    /// The first boundary behind `start` where what is open at `to` has ended.
    fn completed(&self, start: u64, to: u64, stop: u64) -> Option<u64> {
        let mut decoder = TextDecoder::from(self.state_at(to));
        let bytes = self.slices(to, stop).flatten();
        bytes.zip(to..).find_map(|(byte, at)| {
            decoder.feed(at, std::slice::from_ref(byte), &mut Unheard);
            Some(held_back(decoder.state(), at + 1)).filter(|boundary| *boundary > start)
        })
    }

    /// The retained bytes between two offsets, piece by piece.
    pub fn slices(&self, from: u64, to: u64) -> impl Iterator<Item = &[u8]> {
        let first = self.segment_of(from);
        let segments = self.segments.range(first..).take_while(move |segment| segment.start < to);
        segments.map(move |segment| segment.between(from, to)).filter(|slice| !slice.is_empty())
    }

    /// The retained bytes between two offsets.
    pub fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(to.saturating_sub(from).min(self.len as u64) as usize);
        for slice in self.slices(from, to) {
            bytes.extend_from_slice(slice);
        }
        bytes
    }

    /// Decodes what is retained between two offsets. Only what begins at `from` or later is told: of a run of text that began before,
    /// the rest; of a sequence or a character that began before, nothing. What is not complete at `to` is not told either: a reader that
    /// goes on from there should end at [`Ring::boundary`].
    pub fn decode_from(&self, from: u64, to: u64, sink: &mut (impl TextSink + ?Sized)) {
        let mut decoder: Option<TextDecoder> = None;
        let mut sink = Onward { from, sink };
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
                // Most of a segment may lie before `from`: nobody listens to that part.
                let (before, after) = bytes.split_at_checked((from - segment.start) as usize).unwrap_or((bytes, &[]));
                decoder.feed(segment.start, before, &mut Unheard);
                decoder.feed(from, after, &mut sink);
            } else {
                decoder.feed(segment.start, bytes, &mut sink);
            }
        }
    }

    /// The last offset at or before `to` at which a read of text loses nothing when it ends there: where no character and no escape
    /// sequence is open. A sequence that is open for more than 8 KiB holds nothing back.
    pub fn boundary(&self, to: u64) -> u64 {
        let to = to.min(self.end);
        held_back(self.state_at(to), to).max(self.start())
    }

    /// Drops the oldest bytes until at most `bytes` are left, and gives their memory back.
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
            }
            self.len -= surplus;
            self.forget_gaps();
        }
        self.spare = Vec::new();
    }

    /// Drops whole segments for as long as at least `keep` bytes are left (`below`: less than one segment may be left of them).
    fn trim_front(&mut self, keep: usize, below: bool) {
        let mut dropped = false;
        while let Some(first) = self.segments.front() {
            let left = self.len - first.bytes.len();
            let droppable = if below { self.len > keep && left >= keep } else { left >= keep };
            // The last one is being written to.
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
    }

    fn grow(&mut self, fresh: bool) {
        let bytes = std::mem::take(&mut self.spare);
        self.segments.push_back(Segment { start: self.end, state: self.decoder.state(), fresh, bytes });
    }

    /// The index of the segment that holds the byte at an offset, or the first one behind it.
    fn segment_of(&self, offset: u64) -> usize {
        self.segments.partition_point(|segment| segment.end() <= offset)
    }

    fn state_at(&self, offset: u64) -> DecoderState {
        if offset >= self.end {
            return self.decoder.state();
        }
        let Some(segment) = self.segments.get(self.segment_of(offset)) else { return DecoderState::default() };
        let mut decoder = TextDecoder::from(segment.state);
        decoder.feed(segment.start, segment.between(segment.start, offset), &mut Unheard);
        decoder.state()
    }
}

/// Where what is open at `to` began, unless that is too long ago.
fn held_back(state: DecoderState, to: u64) -> u64 {
    state.open_since().filter(|open| to.saturating_sub(*open) <= OPEN_LIMIT).unwrap_or(to)
}

/// Passes on what begins at an offset or later.
struct Onward<'a, S: ?Sized> {
    from: u64,
    sink: &'a mut S,
}

impl<S: TextSink + ?Sized> TextSink for Onward<'_, S> {
    fn text(&mut self, offset: u64, text: &[u8]) {
        // A character that was cut at `from` is the only text that can still begin before it.
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pane::decoder::tests::{Event, Events, terminal_bytes};

    fn ring(limit: usize, bytes: &[u8]) -> Ring {
        let mut ring = Ring::new(limit);
        ring.push(bytes, &mut Unheard);
        ring
    }
    fn held(ring: &Ring) -> Vec<u8> {
        ring.slices(ring.start(), ring.end()).flatten().copied().collect()
    }
    fn events(ring: &Ring, from: u64, to: u64) -> Vec<Event> {
        let mut events = Events::default();
        ring.decode_from(from, to, &mut events);
        events.0
    }
    fn gap(reason: GapReason) -> Gap {
        Gap { reason, bytes: None }
    }

    fn raw(most: u64) -> Reading {
        Reading { most, whole: false, over: false }
    }
    fn text(most: u64) -> Reading {
        Reading { most, whole: true, over: false }
    }

    #[test]
    fn an_idle_pane_costs_less_than_a_kibibyte() {
        assert!(ring(1 << 20, b"$ ").memory() < 1024, "{}", ring(1 << 20, b"$ ").memory());
        assert_eq!(Ring::new(1 << 20).memory(), 0);
    }

    /// S11
    #[test]
    fn it_keeps_its_limit_and_at_most_a_segment_more() {
        let mut ring = Ring::new(100_000);
        for _ in 0..1000 {
            ring.push(&[b'x'; 1234], &mut Unheard);
            assert!(ring.len() <= 100_000 + SEGMENT && ring.len() as u64 >= ring.end().min(100_000));
        }
        assert!(ring.memory() < 100_000 + 4 * SEGMENT, "{}", ring.memory());
        assert_eq!(ring.end(), 1_234_000);
    }

    #[test]
    fn trimming_gives_memory_back_and_keeps_the_last_bytes() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        let mut ring = ring(1 << 20, &bytes);
        for keep in [70_001, 20_000, 16_384, 5, 0] {
            ring.trim_to(keep);
            assert_eq!(held(&ring), bytes[bytes.len() - keep..]);
            assert_eq!(ring.start(), (bytes.len() - keep) as u64);
            assert!(ring.memory() < keep + 2 * SEGMENT, "{}", ring.memory());
        }
        ring.push(b"more", &mut Unheard);
        assert_eq!((held(&ring), ring.start()), (b"more".to_vec(), 100_000));
    }

    #[test]
    fn a_read_from_what_was_trimmed_says_how_much_is_missing() {
        let mut ring = ring(1 << 20, b"0123456789");
        ring.trim_to(4);
        let missing = Gap { reason: GapReason::Trimmed, bytes: Some(4) };
        let state = DecoderState::default();
        let first = Chunk { start: 6, end: 9, bytes: b"678".to_vec(), gap: Some(missing), more: true, state };
        assert_eq!(ring.read(2, raw(3)), first);
        let second = Chunk { start: 9, end: 10, bytes: b"9".to_vec(), gap: None, more: false, state };
        assert_eq!(ring.read(9, raw(100)), second);
        assert_eq!(ring.read(99, raw(1)).start, 10, "an offset that is still to come is the end");
    }

    /// S5, S6
    #[test]
    fn a_gap_is_told_to_the_reader_that_reads_over_it_once() {
        let mut ring = ring(1 << 20, b"before\x1b[");
        ring.push_gap(gap(GapReason::Paused));
        let first = ring.read(0, text(99));
        assert_eq!((first.end, first.gap, first.more), (8, None, false), "what the gap cut off holds nothing back");
        assert_eq!(ring.read(8, text(99)).gap, None, "nothing lies behind it yet");
        let over = Reading { over: true, ..text(99) };
        assert!(ring.read(0, over).more, "at the end of a stream that is over it is told");
        let last = ring.read(8, over);
        assert_eq!((last.end, last.gap, last.more), (8, Some(gap(GapReason::Paused)), false));
        ring.push(b"after", &mut Unheard);
        assert!(ring.has_more(8, text(1)));
        assert_eq!(ring.read(8, text(2)).gap, Some(gap(GapReason::Paused)));
        assert_eq!(ring.read(10, text(99)).gap, None);
        assert!(ring.read(0, raw(8)).more, "a read ends before a gap");
        assert_eq!(ring.read(0, raw(99)).end, 8);
    }

    /// S8: an answer that is as good as empty must not look like one that has more.
    #[test]
    fn what_has_only_begun_is_left_for_the_next_read() {
        for begun in [&b"\xc3"[..], b"\xe2\x82", b"\xf0\x9f\x98", b"\x1b", b"\x1b[31", b"\x1b]0;title"] {
            let mut ring = ring(1 << 20, b"ab");
            ring.push(begun, &mut Unheard);
            let chunk = ring.read(0, text(99));
            assert_eq!((chunk.bytes.as_slice(), chunk.more), (&b"ab"[..], false), "{begun:?}");
            let nothing = ring.read(2, text(99));
            assert_eq!((nothing.end, nothing.more, ring.has_more(2, text(99))), (2, false, false), "{begun:?}");
            let over = Reading { over: true, ..text(99) };
            assert_eq!(ring.read(2, over).bytes, begun, "nothing will complete it");
            assert_eq!(ring.read(2, raw(99)).bytes, begun);
        }
        for whole in ["\u{2713}", "\u{1b}[31m", "\u{1b}]0;title\u{7}"] {
            let ring = ring(1 << 20, format!("{whole}z").as_bytes());
            let chunk = ring.read(0, text(1));
            assert_eq!((chunk.bytes.as_slice(), chunk.more), (whole.as_bytes(), true), "a limit cuts nothing in two");
        }
    }

    #[test]
    fn gaps_are_bounded_and_the_earliest_stays() {
        let mut ring = Ring::new(1 << 20);
        for index in 0..1000_u64 {
            ring.push_gap(Gap { reason: GapReason::Paused, bytes: Some(index) });
            ring.push(b"x", &mut Unheard);
        }
        assert_eq!(ring.gaps.len(), GAPS + 1);
        assert_eq!(ring.gap_between(0, 1000).unwrap().bytes, Some(0));
        assert_eq!(ring.gap_between(1, 1000).unwrap().bytes, Some(1000 - GAPS as u64));
    }

    /// S6
    #[test]
    fn nothing_reaches_over_a_gap() {
        let mut ring = Ring::new(1 << 20);
        let mut live = Events::default();
        ring.push(b"a\x1b]0;tit", &mut live);
        ring.push_gap(gap(GapReason::Paused));
        ring.push(b"le\x07\xe2\x9c", &mut live);
        ring.push_gap(gap(GapReason::Paused));
        ring.push(b"\x93b", &mut live);
        assert_eq!(live.0, events(&ring, 0, ring.end()));
        let text: String = live
            .0
            .iter()
            .filter_map(|event| if let Event::Text(_, text) = event { Some(text.as_str()) } else { None })
            .collect();
        assert_eq!(text, "ale\u{fffd}b");
    }

    #[test]
    fn decoding_begins_with_the_first_whole_thing() {
        let ring = ring(1 << 20, "ab\u{2713}c\u{1b}[1Cd".as_bytes());
        let text = |offset, text: &str| Event::Text(offset, text.to_owned());
        assert_eq!(events(&ring, 1, 6), [text(1, "b\u{2713}c")]);
        assert_eq!(events(&ring, 3, 6), [text(5, "c")]);
        assert_eq!(events(&ring, 7, 11), [text(10, "d")]);
        assert_eq!(ring.boundary(4), 2, "not inside a character");
        assert_eq!(ring.boundary(8), 6, "nor inside a sequence");
        assert_eq!(ring.boundary(10), 10);
    }

    #[test]
    fn a_sequence_that_never_ends_holds_nothing_back_for_ever() {
        let mut ring = ring(1 << 20, b"ab\x1b_");
        ring.push(&[b'x'; 100], &mut Unheard);
        assert_eq!(ring.boundary(ring.end()), 2);
        ring.push(&[b'x'; 9000], &mut Unheard);
        assert_eq!(ring.boundary(ring.end()), ring.end());
    }

    /// Bytes that go over several segments, with sequences and characters on their edges.
    fn long_stream() -> impl Strategy<Value = Vec<u8>> {
        (terminal_bytes(), 0..40_usize, SEGMENT - 60..SEGMENT + 20, any::<bool>()).prop_map(
            |(bytes, repeat, filler, text)| {
                let filler = if text { "\u{2713}x".as_bytes().repeat(filler / 4) } else { vec![b'y'; filler] };
                [filler.clone(), bytes.repeat(repeat), filler, bytes].concat()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// S2: what is read again from an offset is what was told live from there on.
        #[test]
        fn decoding_again_gives_what_was_told_live(
            bytes in long_stream(),
            chunk in 900..40_000_usize,
            from: prop::sample::Index,
            to: prop::sample::Index,
            trim: prop::sample::Index,
        ) {
            let mut ring = Ring::new(1 << 20);
            let mut live = Events::default();
            for chunk in bytes.chunks(chunk) {
                ring.push(chunk, &mut live);
            }
            ring.trim_to(trim.index(bytes.len() + 1));
            prop_assert_eq!(held(&ring), &bytes[ring.start() as usize..]);
            let from = ring.start() + from.index(ring.len() + 1) as u64;
            let to = ring.boundary(from + to.index((ring.end() - from) as usize + 1) as u64).max(from);
            // A payload that is ended by the ESC of the next sequence is only known to have ended when that is read.
            let known = |end: u64| end < to || (end == to && matches!(bytes[end as usize - 1], 0x07 | b'\\'));
            let within = |event: &Event| match event {
                Event::Text(at, _) | Event::Control(at, _) | Event::Bell(at) => from <= *at && *at < to,
                Event::Title(start, end, _) | Event::Prompt(start, end, _) | Event::Osc(start, end, _) => from <= *start && known(*end),
            };
            let mut again = Events::default();
            ring.decode_from(from, to, &mut again);
            let expected: Vec<Event> = live.characters().into_iter().filter(within).collect();
            let again: Vec<Event> = again.characters().into_iter().filter(within).collect();
            prop_assert_eq!(again, expected);
        }

        /// S3, S4: a reader that follows cursors over a ring that is trimmed sees each byte that it can still get exactly once, and is told
        /// exactly how many it could not.
        #[test]
        fn a_reader_that_follows_cursors_sees_each_retained_byte_once(
            steps in prop::collection::vec((0..6000_usize, 1..30_000_u64, any::<bool>(), 0..50_000_usize), 1..40),
            whole: bool,
        ) {
            let mut ring = Ring::new(20_000);
            let mut stream: Vec<u8> = Vec::new();
            let (mut cursor, mut read, mut missing) = (0, Vec::new(), 0);
            for (push, most, trims, keep) in steps {
                let bytes: Vec<u8> = (stream.len()..stream.len() + push).map(|at| (at % 253) as u8).collect();
                ring.push(&bytes, &mut Unheard);
                stream.extend(&bytes);
                if trims {
                    ring.trim_to(keep);
                }
                let how = Reading { most, whole, over: false };
                let chunk = ring.read(cursor, how);
                let trimmed = chunk.gap.and_then(|gap| gap.bytes).unwrap_or(0);
                prop_assert_eq!(chunk.start, cursor + trimmed);
                prop_assert_eq!(&chunk.bytes, &stream[chunk.start as usize..chunk.end as usize]);
                prop_assert!(!chunk.more || ring.read(chunk.end, how).end > chunk.end, "more is there when it says so");
                missing += trimmed;
                read.extend(chunk.bytes);
                cursor = chunk.end;
            }
            prop_assert_eq!(read.len() as u64 + missing, cursor);
        }

        /// S3, S6, S8: whatever the limits of its reads, a reader of text is told what was told live, each gap included.
        #[test]
        fn reads_that_follow_each_other_give_what_one_read_gives(
            steps in prop::collection::vec((terminal_bytes(), any::<bool>(), prop::collection::vec(1..40_u64, 0..6)), 1..12),
        ) {
            let mut ring = Ring::new(1 << 20);
            let (mut live, mut again) = (Events::default(), Events::default());
            let (mut cursor, mut gaps, mut told) = (0, 0, 0);
            let mut read = |ring: &Ring, how: Reading| {
                let chunk = ring.read(cursor, how);
                chunk.decode(&mut again);
                told += usize::from(chunk.gap.is_some());
                cursor = chunk.end;
                chunk.more
            };
            for (bytes, lost, reads) in steps {
                if lost && ring.gap_at(ring.end()).is_none() {
                    ring.push_gap(gap(GapReason::Paused));
                    gaps += 1;
                }
                ring.push(&bytes, &mut live);
                for most in reads {
                    read(&ring, text(most));
                }
            }
            while read(&ring, Reading { over: true, ..text(7) }) {}
            prop_assert_eq!(cursor, ring.end());
            prop_assert_eq!(told, gaps);
            prop_assert_eq!(again.characters(), live.characters());
        }
    }
}
