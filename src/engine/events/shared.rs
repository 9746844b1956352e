//! What the subscribers of one pane are told, made once for all of them.
//!
//! Readers that follow a pane stand at the same places again and again: where one's event ended, the next one's begins. The first that
//! comes to a place reads the ring there, and makes text and JSON of it; the others find it. A reader that fell behind ends its event where a
//! known one begins, so that it is among the others from then on.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{frame::Frames, telling::Telling};
use crate::{
    api::{Gap, ReadFormat},
    engine::limits,
};

/// Pieces kept at most, whatever their size: they are looked through one by one.
const PIECES: usize = 64;

/// A part of a pane's output as an event.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Piece {
    pub(super) format: ReadFormat,
    /// The stream's offsets from and to which it goes.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Missing before it, for everybody.
    pub(super) gap: Option<Gap>,
    pub(super) telling: Arc<Telling>,
}

/// What was made for subscribers of a pane.
#[derive(Debug, Default)]
pub(in crate::engine) struct Shared {
    pieces: Mutex<Pieces>,
    pub(super) frames: Frames,
}

#[derive(Debug, Default)]
struct Pieces {
    /// How many subscribers there are.
    readers: usize,
    list: VecDeque<Piece>,
    bytes: usize,
}

impl Shared {
    /// One more subscriber.
    pub(super) fn enter(&self) {
        self.pieces().readers += 1;
    }

    /// One less; for nobody nothing is kept.
    pub(super) fn leave(&self) {
        let mut pieces = self.pieces();
        pieces.readers = pieces.readers.saturating_sub(1);
        if pieces.readers == 0 {
            *pieces = Pieces::default();
            self.frames.clear();
        }
    }

    /// The piece that begins here.
    pub(super) fn find(&self, format: ReadFormat, start: u64) -> Option<Piece> {
        // Mostly one of the last is wanted.
        self.pieces().list.iter().rev().find(|piece| piece.start == start && piece.format == format).cloned()
    }

    /// The first and the last place in `from..=to` at which a known piece begins or ends.
    pub(super) fn places(&self, format: ReadFormat, from: u64, to: u64) -> Option<(u64, u64)> {
        let pieces = self.pieces();
        let places = pieces.list.iter().filter(|piece| piece.format == format);
        let places = places.flat_map(|piece| [piece.start, piece.end]).filter(|place| (from..=to).contains(place));
        places.map(|place| (place, place)).reduce(|(first, last), (place, _)| (first.min(place), last.max(place)))
    }

    /// Keeps a piece for those who come to its place next.
    pub(super) fn keep(&self, piece: Piece) {
        let mut pieces = self.pieces();
        pieces.bytes += piece.telling.len();
        pieces.list.push_back(piece);
        while pieces.list.len() > PIECES || pieces.bytes > limits::SHARED_BYTES {
            let Some(old) = pieces.list.pop_front() else { return };
            pieces.bytes -= old.telling.len();
        }
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Event;

    fn piece(format: ReadFormat, start: u64, end: u64) -> Piece {
        let text = Some("x".repeat((end - start) as usize));
        let event = Event::Output { pane: "%0".into(), text, data: None, cursor: "c".into(), gap: None };
        Piece { format, start, end, gap: None, telling: Telling::new(&event) }
    }

    #[test]
    fn a_piece_is_found_by_where_it_begins_and_how_it_is_written() {
        let shared = Shared::default();
        shared.enter();
        shared.keep(piece(ReadFormat::Text, 0, 10));
        shared.keep(piece(ReadFormat::Text, 10, 15));
        assert_eq!(shared.find(ReadFormat::Text, 10).unwrap().end, 15);
        assert!(shared.find(ReadFormat::Raw, 10).is_none() && shared.find(ReadFormat::Text, 5).is_none());
        assert_eq!(shared.places(ReadFormat::Text, 5, 100), Some((10, 15)));
        assert_eq!(shared.places(ReadFormat::Text, 5, 12), Some((10, 10)));
        assert_eq!(shared.places(ReadFormat::Text, 16, 100), None);
        shared.leave();
        assert!(shared.find(ReadFormat::Text, 10).is_none(), "nobody reads");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let shared = Shared::default();
        for at in 0..1000 {
            shared.keep(piece(ReadFormat::Text, at * 50_000, (at + 1) * 50_000));
            let pieces = shared.pieces();
            assert!(pieces.bytes <= limits::SHARED_BYTES && pieces.list.len() <= PIECES);
        }
        assert!(shared.find(ReadFormat::Text, 999 * 50_000).is_some());
        for at in 0..100 {
            shared.keep(piece(ReadFormat::Raw, at, at + 1));
        }
        assert_eq!(shared.pieces().list.len(), PIECES);
    }
}
