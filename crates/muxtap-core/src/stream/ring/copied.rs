//! A ring whose older output was copied before the rest of it is stored.
//!
//! Only the last segment of a ring is written to. Each one before it is *sealed*: it changes only when its
//! beginning is dropped, and then it begins elsewhere. So a sealed segment that was copied is known by its
//! start and its length, and need not be stored again ([`Copied`]).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize, Serializer};

use super::{Ring, Segment};
use crate::{
    Gap,
    stream::decoder::{DecoderState, TextDecoder},
};

/// The sealed segments of one ring that were copied: where each begins, and its length.
#[derive(Debug, Default)]
pub struct Copied(BTreeMap<u64, usize>);

/// Some sealed segments of a ring, stored by themselves.
#[derive(Debug, Serialize, Deserialize)]
pub struct SealedSegments(Vec<Segment>);

/// The bytes of sealed segments that were copied, by where each begins.
#[derive(Debug, Default)]
pub struct Sealed(BTreeMap<u64, Vec<u8>>);

/// A ring to be stored without the segments that were copied.
///
/// Its form is that of a [`Ring`]; the copied segments have no bytes, which sealed ones otherwise have.
#[derive(Clone, Copy, Debug)]
pub struct Uncopied<'a> {
    ring: &'a Ring,
    copied: &'a Copied,
}

#[derive(Serialize)]
struct StoredRing<'a> {
    segments: Vec<StoredSegment<'a>>,
    end: u64,
    len: usize,
    limit: usize,
    decoder: &'a TextDecoder,
    #[serde(with = "crate::stored::gaps")]
    gaps: &'a VecDeque<(u64, Gap)>,
    hidden: &'a VecDeque<(u64, u64)>,
    held: Option<u64>,
}

#[derive(Serialize)]
struct StoredSegment<'a> {
    start: u64,
    state: DecoderState,
    fresh: bool,
    given_up: bool,
    #[serde(with = "crate::stored::bytes")]
    bytes: &'a [u8],
}

impl Serialize for Uncopied<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { ring, copied } = self;
        let last = ring.segments.len().saturating_sub(1);
        let segments = ring.segments.iter().enumerate().map(|(index, segment)| {
            let Segment { start, state, fresh, given_up, bytes } = segment;
            let is_copied = index < last && copied.0.get(start) == Some(&bytes.len());
            StoredSegment {
                start: *start,
                state: *state,
                fresh: *fresh,
                given_up: *given_up,
                bytes: if is_copied { &[] } else { bytes },
            }
        });
        let stored = StoredRing {
            segments: segments.collect(),
            end: ring.end,
            len: ring.len,
            limit: ring.limit,
            decoder: &ring.decoder,
            gaps: &ring.gaps,
            hidden: &ring.hidden,
            held: ring.held,
        };
        stored.serialize(serializer)
    }
}

impl Ring {
    /// Returns the ring to be stored without what was copied.
    pub fn without<'a>(&'a self, copied: &'a Copied) -> Uncopied<'a> {
        Uncopied { ring: self, copied }
    }

    /// Returns where the sealed segments end: the start of the last segment.
    pub fn sealed_end(&self) -> u64 {
        self.segments.back().map_or(self.end, |last| last.start)
    }

    /// Copies sealed segments that begin at `from` or later and before `to`, about `most` bytes of them,
    /// and notes them in `copied`. Returns them and where the next copy begins; `None`: there are no more.
    pub fn copy_sealed(&self, from: u64, to: u64, most: usize, copied: &mut Copied) -> Option<(SealedSegments, u64)> {
        let sealed = self.segments.len().saturating_sub(1);
        let first = self.segments.partition_point(|segment| segment.start < from);
        let (mut some, mut bytes, mut next) = (Vec::new(), 0, from);
        for segment in self.segments.range(..sealed).skip(first).take_while(|segment| segment.start < to) {
            if bytes >= most {
                break;
            }
            bytes += segment.bytes.len();
            next = segment.end();
            copied.0.insert(segment.start, segment.bytes.len());
            some.push(Segment { bytes: segment.bytes.clone(), ..*segment });
        }
        (next > from).then_some((SealedSegments(some), next))
    }

    /// Takes the bytes of the ring's sealed segments.
    pub fn take_sealed(&mut self) -> Sealed {
        let sealed = self.segments.len().saturating_sub(1);
        self.segments.drain(..sealed).map(|segment| (segment.start, segment.bytes)).collect()
    }

    /// Completes a ring that was stored without copied segments. Error: a segment is missing or does not
    /// fit.
    pub fn complete(&mut self, copied: &mut Sealed) -> Result<(), &'static str> {
        let last = self.segments.len().saturating_sub(1);
        let mut end = self.end.checked_sub(self.len as u64).ok_or("a ring is longer than its stream")?;
        for (index, segment) in self.segments.iter_mut().enumerate() {
            if index < last && segment.bytes.is_empty() {
                segment.bytes = copied.0.remove(&segment.start).ok_or("output that was copied is missing")?;
            }
            // Only the last one may be empty, before its first byte.
            if segment.start != end || (index < last && segment.bytes.is_empty()) {
                return Err("output that was copied does not fit");
            }
            end = end.checked_add(segment.bytes.len() as u64).ok_or("a ring is longer than a stream can be")?;
        }
        if end == self.end { Ok(()) } else { Err("output that was copied does not fit") }
    }
}

impl Sealed {
    /// Adds segments that were copied.
    pub fn add(&mut self, segments: SealedSegments) {
        self.0.extend(segments.0.into_iter().map(|segment| (segment.start, segment.bytes)));
    }

    /// Adds segments that were copied later.
    pub fn extend(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

impl FromIterator<(u64, Vec<u8>)> for Sealed {
    fn from_iter<T: IntoIterator<Item = (u64, Vec<u8>)>>(segments: T) -> Self {
        Self(segments.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
