//! Caches the events of one pane's output, made once for all of the pane's subscribers.
//!
//! Readers that follow a pane meet at the same offsets again and again: where one's event ended,
//! the next one's begins. The first reader at an offset reads the ring and makes text of the
//! output; the others find it in this cache. A reader that fell behind ends its event where a
//! cached one begins, and is in step with the others from then on.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError},
};

use muxtap_api::{Gap, ReadFormat};

use super::{frame::FrameCache, shared_event::SharedEvent};

use crate::{
    limits,
    sync::{Mutex, MutexGuard},
};

/// The most outputs that are kept, whatever their size, because a lookup scans them.
const MAX_OUTPUTS: usize = 64;

/// A part of a pane's output as an event.
#[derive(Clone, Debug)]
pub(crate) struct CachedOutput {
    pub(crate) format: ReadFormat,
    /// The stream's offsets at which the output begins and ends.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The gap before the output, which is the same for all subscribers.
    pub(crate) gap: Option<Gap>,
    pub(crate) event: Arc<SharedEvent>,
}

/// The events and frames made for subscribers of a pane.
#[derive(Debug, Default)]
pub(crate) struct EventCache {
    outputs: Mutex<Outputs>,
    pub(crate) frames: FrameCache,
}

#[derive(Debug, Default)]
struct Outputs {
    /// The number of readers.
    readers: usize,
    list: VecDeque<CachedOutput>,
    bytes: usize,
}

impl EventCache {
    /// Counts one more reader.
    pub(crate) fn add_reader(&self) {
        self.outputs().readers += 1;
    }

    /// Returns whether anything reads the pane's events.
    pub(crate) fn has_readers(&self) -> bool {
        self.outputs().readers > 0
    }

    /// Counts one reader less. The cache is cleared with the last one.
    pub(crate) fn remove_reader(&self) {
        let mut outputs = self.outputs();
        outputs.readers = outputs.readers.saturating_sub(1);
        if outputs.readers == 0 {
            *outputs = Outputs::default();
            self.frames.clear();
        }
    }

    /// Returns the output that begins at this offset.
    pub(crate) fn find(&self, format: ReadFormat, start: u64) -> Option<CachedOutput> {
        // Usually one of the last outputs is wanted.
        self.outputs().list.iter().rev().find(|output| output.start == start && output.format == format).cloned()
    }

    /// Returns the first and the last offset in `from..=to` at which a cached output begins or
    /// ends.
    pub(crate) fn boundaries(&self, format: ReadFormat, from: u64, to: u64) -> Option<(u64, u64)> {
        let outputs = self.outputs();
        let places = outputs.list.iter().filter(|output| output.format == format);
        let places = places.flat_map(|output| [output.start, output.end]).filter(|place| (from..=to).contains(place));
        places.map(|place| (place, place)).reduce(|(first, last), (place, _)| (first.min(place), last.max(place)))
    }

    /// Caches an output for readers that reach its offset later.
    pub(crate) fn insert(&self, output: CachedOutput) {
        let mut outputs = self.outputs();
        outputs.bytes += output.event.len();
        outputs.list.push_back(output);
        while outputs.list.len() > MAX_OUTPUTS || outputs.bytes > limits::SHARED_BYTES {
            let Some(old) = outputs.list.pop_front() else { return };
            outputs.bytes -= old.event.len();
        }
    }

    fn outputs(&self) -> MutexGuard<'_, Outputs> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::Event;

    use muxtap_api::{Cursor, Epoch};
    use muxtap_core::protocol::ids::PaneId;

    fn output(format: ReadFormat, start: u64, end: u64) -> CachedOutput {
        let text = Some("x".repeat((end - start) as usize));
        let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(0), offset: end };
        let event = Event::Output { pane: PaneId(0), text, data: None, cursor, gap: None };
        CachedOutput { format, start, end, gap: None, event: SharedEvent::new(event) }
    }

    #[test]
    fn a_piece_is_found_by_where_it_begins_and_how_it_is_written() {
        let cache = EventCache::default();
        cache.add_reader();
        cache.insert(output(ReadFormat::Text, 0, 10));
        cache.insert(output(ReadFormat::Text, 10, 15));
        assert_eq!(cache.find(ReadFormat::Text, 10).unwrap().end, 15);
        assert!(cache.find(ReadFormat::Raw, 10).is_none() && cache.find(ReadFormat::Text, 5).is_none());
        assert_eq!(cache.boundaries(ReadFormat::Text, 5, 100), Some((10, 15)));
        assert_eq!(cache.boundaries(ReadFormat::Text, 5, 12), Some((10, 10)));
        assert_eq!(cache.boundaries(ReadFormat::Text, 16, 100), None);
        cache.remove_reader();
        assert!(cache.find(ReadFormat::Text, 10).is_none(), "nobody reads");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let cache = EventCache::default();
        for at in 0..100 {
            cache.insert(output(ReadFormat::Text, at * 50_000, (at + 1) * 50_000));
            let outputs = cache.outputs();
            assert!(outputs.bytes <= limits::SHARED_BYTES && outputs.list.len() <= MAX_OUTPUTS);
        }
        assert!(cache.find(ReadFormat::Text, 99 * 50_000).is_some());
        for at in 0..100 {
            cache.insert(output(ReadFormat::Raw, at, at + 1));
        }
        assert_eq!(cache.outputs().list.len(), MAX_OUTPUTS);
    }
}
