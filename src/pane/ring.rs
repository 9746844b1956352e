//! A pane's recent bytes, by absolute offset.

use std::collections::VecDeque;

use super::{
    decoder::{DecoderState, TextDecoder},
    text::{Control, Mark, TextSink},
};
use crate::api::Gap;

/// Bytes of a full segment; trimming gives memory back in such pieces.
const SEGMENT: usize = 64 * 1024;
/// Bytes between two remembered decoder states.
const CHECKPOINT: u64 = 16 * 1024;
/// Gaps that are remembered; of more, the oldest are forgotten.
const GAPS: usize = 64;

/// The last bytes of a stream, at most `limit` and a segment.
///
/// Offsets count every byte ever pushed and never repeat. The ring also decodes what is pushed, once, and remembers where the decoder
/// stood every few KiB: so text can be decoded from any retained offset as if the stream had been read from its beginning.
#[derive(Debug)]
pub struct Ring {
    segments: VecDeque<Vec<u8>>,
    start: u64,
    end: u64,
    limit: usize,
    decoder: TextDecoder,
    checkpoints: VecDeque<(u64, DecoderState)>,
    gaps: VecDeque<(u64, Gap)>,
}

impl Ring {
    /// An empty ring. It takes memory as bytes come.
    pub fn new(limit: usize) -> Self {
        Self {
            segments: VecDeque::new(),
            start: 0,
            end: 0,
            limit,
            decoder: TextDecoder::default(),
            checkpoints: VecDeque::new(),
            gaps: VecDeque::new(),
        }
    }

    /// The offset of the oldest byte that is kept.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The offset just after the newest byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes are kept.
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether no byte is kept.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        self.segments.iter().map(Vec::capacity).sum::<usize>()
            + self.segments.capacity() * size_of::<Vec<u8>>()
            + self.checkpoints.capacity() * size_of::<(u64, DecoderState)>()
            + self.gaps.capacity() * size_of::<(u64, Gap)>()
            + self.decoder.memory()
    }

    /// Adds bytes, and tells `sink` what they say.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn TextSink) {
        let mut left = bytes;
        while !left.is_empty() {
            // Segments begin at multiples of their size, so the first kept byte always has a state of its own.
            if self.end.is_multiple_of(CHECKPOINT) {
                self.checkpoints.push_back((self.end, self.decoder.state()));
            }
            let room = CHECKPOINT - self.end % CHECKPOINT;
            let (now, later) = left.split_at(left.len().min(room as usize));
            self.decoder.feed(self.end, now, sink);
            self.store(now);
            left = later;
        }
        if self.len() >= self.limit.saturating_add(SEGMENT) {
            self.trim_to(self.limit);
        }
    }

    fn store(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() {
            let room = self.segments.back().map_or(0, |last| SEGMENT.saturating_sub(last.len()));
            if room == 0 {
                self.segments.push_back(Vec::new());
                continue;
            }
            let (now, later) = left.split_at(left.len().min(room));
            if let Some(last) = self.segments.back_mut() {
                last.extend_from_slice(now);
            }
            left = later;
        }
        self.end += bytes.len() as u64;
    }

    /// Drops the oldest bytes so that about `keep` remain: whole segments, so up to one segment more may stay.
    pub fn trim_to(&mut self, keep: usize) {
        while let Some(first) = self.segments.front().filter(|first| self.len() - first.len() >= keep) {
            if self.segments.len() == 1 {
                break;
            }
            self.start += first.len() as u64;
            self.segments.pop_front();
        }
        while self.checkpoints.front().is_some_and(|(offset, _)| *offset < self.start) {
            self.checkpoints.pop_front();
        }
        while self.gaps.front().is_some_and(|(offset, _)| *offset < self.start) {
            self.gaps.pop_front();
        }
    }

    /// The kept bytes from `from` up to `to`, as slices in order.
    pub fn slices(&self, from: u64, to: u64) -> impl Iterator<Item = &[u8]> {
        let from = from.clamp(self.start, self.end);
        let to = to.clamp(from, self.end);
        let mut at = self.start;
        self.segments.iter().filter_map(move |segment| {
            let begin = at;
            at += segment.len() as u64;
            let (low, high) = (from.max(begin), to.min(at));
            if low >= high {
                return None;
            }
            segment.get((low - begin) as usize..(high - begin) as usize)
        })
    }

    /// The kept bytes from `from` up to `to`.
    pub fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(to.saturating_sub(from).min(self.len() as u64) as usize);
        for slice in self.slices(from, to) {
            bytes.extend_from_slice(slice);
        }
        bytes
    }

    /// Decodes from `from` up to `to` as the whole stream's decoder would: what began before `from` is not reported.
    pub fn decode_from(&self, from: u64, to: u64, sink: &mut dyn TextSink) {
        let from = from.clamp(self.start, self.end);
        let checkpoint = self.checkpoints.iter().rev().find(|(offset, _)| *offset <= from);
        let (begin, state) = checkpoint.copied().unwrap_or((self.start, DecoderState::default()));
        let mut decoder = TextDecoder::resume(state, begin);
        let mut only = From { from, sink };
        let mut offset = begin;
        for slice in self.slices(begin, to) {
            decoder.feed(offset, slice, &mut only);
            offset += slice.len() as u64;
        }
    }

    /// Marks that bytes are missing at the stream's end as it is now.
    pub fn push_gap(&mut self, gap: Gap) {
        if self.gaps.len() >= GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back((self.end, gap));
    }

    /// What is missing just before the byte at `offset`.
    pub fn gap_at(&self, offset: u64) -> Option<Gap> {
        self.gaps.iter().find(|(at, _)| *at == offset).map(|(_, gap)| *gap)
    }

    /// Where the next gap after `offset` lies.
    pub fn next_gap(&self, offset: u64) -> Option<u64> {
        self.gaps.iter().map(|(at, _)| *at).find(|at| *at > offset)
    }
}

/// Passes on what lies at or after an offset.
struct From<'a> {
    from: u64,
    sink: &'a mut dyn TextSink,
}

impl TextSink for From<'_> {
    fn text(&mut self, offset: u64, text: &[u8]) {
        if offset >= self.from {
            return self.sink.text(offset, text);
        }
        let mut skip = (self.from - offset) as usize;
        // A character that began before is not reported.
        while text.get(skip).is_some_and(|byte| (0x80..0xc0).contains(byte)) {
            skip += 1;
        }
        if let Some(rest) = text.get(skip..).filter(|rest| !rest.is_empty() && text != "\u{fffd}".as_bytes()) {
            self.sink.text(offset + skip as u64, rest);
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

/// A sink that does not care.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unheard;

impl TextSink for Unheard {
    fn text(&mut self, _: u64, _: &[u8]) {}
    fn control(&mut self, _: u64, _: Control) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::GapReason;

    #[test]
    fn an_idle_ring_takes_next_to_nothing() {
        let ring = Ring::new(1 << 20);
        assert!(ring.memory() + size_of::<Ring>() < 1024);
    }

    /// S1: offsets are absolute; trimming changes what is kept, never what an offset means.
    #[test]
    fn offsets_stay_when_bytes_are_dropped() {
        let mut ring = Ring::new(100_000);
        for index in 0..100_u32 {
            ring.push(&[index as u8; 5000], &mut Unheard);
        }
        assert_eq!(ring.end(), 500_000);
        assert!(ring.len() >= 100_000 && ring.len() < 100_000 + SEGMENT + SEGMENT);
        assert_eq!(ring.bytes(450_000, 450_003), [90; 3]);
        assert!(ring.bytes(0, 10).is_empty());
    }

    #[test]
    fn a_gap_lies_before_the_byte_that_follows_it() {
        let mut ring = Ring::new(1000);
        ring.push(b"before", &mut Unheard);
        ring.push_gap(Gap { reason: GapReason::Paused, bytes: None });
        ring.push(b"after", &mut Unheard);
        assert_eq!(ring.gap_at(6).map(|gap| gap.reason), Some(GapReason::Paused));
        assert_eq!((ring.next_gap(0), ring.next_gap(6)), (Some(6), None));
    }

    /// Collects text by offset.
    #[derive(Default)]
    struct Text(Vec<(u64, u8)>);
    impl TextSink for Text {
        fn text(&mut self, offset: u64, text: &[u8]) {
            self.0.extend(text.iter().enumerate().map(|(index, byte)| (offset + index as u64, *byte)));
        }
        fn control(&mut self, _: u64, _: Control) {}
    }

    proptest! {
        /// S2: text decoded from any retained offset is what the whole stream's decoder gives from there on.
        #[test]
        fn decoding_can_begin_anywhere(
            pieces in proptest::collection::vec("(\u{1b}\\[[0-9;]{0,8}m|[a-z\u{e9}\u{4e2d} ]{1,40}|\r\n|\u{1b}]2;[a-z]{1,9}\u{7}){1,200}", 1..30),
            from in 0..1000_u64,
        ) {
            let mut ring = Ring::new(1 << 20);
            let mut whole = Text::default();
            for piece in &pieces {
                ring.push(piece.as_bytes(), &mut whole);
            }
            let mut from = ring.end() * from / 1000;
            // Inside a character the rest of it is skipped.
            let bytes = ring.bytes(0, ring.end());
            while bytes.get(from as usize).is_some_and(|byte| (0x80..0xc0).contains(byte)) {
                from += 1;
            }
            let mut part = Text::default();
            ring.decode_from(from, ring.end(), &mut part);
            let expected: Vec<_> = whole.0.into_iter().filter(|(offset, _)| *offset >= from).collect();
            prop_assert_eq!(part.0, expected);
        }

        /// S3: a reader that follows cursors sees each retained byte exactly once, in order.
        #[test]
        fn a_reader_that_follows_sees_every_byte_once(
            pushes in proptest::collection::vec((1..9000_usize, 0..3000_u64), 1..60),
            limit in 1000..200_000_usize,
        ) {
            let mut ring = Ring::new(limit);
            let mut all = Vec::new();
            let mut at = 0;
            for (index, (length, step)) in pushes.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|byte| (byte * 7 + index) as u8).collect();
                all.extend_from_slice(&bytes);
                ring.push(&bytes, &mut Unheard);
                at = std::cmp::max(at, ring.start());
                let to = (at + step).min(ring.end());
                prop_assert_eq!(ring.bytes(at, to), &all[at as usize..to as usize]);
                at = to;
            }
            prop_assert_eq!(ring.bytes(at, ring.end()), &all[at as usize..]);
        }
    }
}
