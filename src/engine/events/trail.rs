//! Where the readers of many panes have come, so that an event's `id` is short.
//!
//! A word that says for each of 600 panes how far it was told is 3.5 KB long. So it is kept here: each stream of events has a *trail*,
//! the places where it began and each step after that, and an event's `id` is how many steps there were. It is exact for each event
//! that its reader may have seen last, as long as the trail reaches back to there.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    engine::limits,
    protocol::ids::PaneId,
    stream::{
        cursor::{Cursor, Epoch},
        resume::Place,
    },
};

/// The trails of all streams, and of those that ended lately.
#[derive(Debug, Default)]
pub(in crate::engine) struct Trails {
    table: Mutex<Table>,
    /// What they take together, in steps.
    weight: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    trails: HashMap<u64, Arc<Mutex<Walk>>>,
    last: u64,
    /// Those whose streams have ended, in that order.
    ended: VecDeque<u64>,
}

/// What a trail knows of one of its points.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Where every pane was.
    Exactly(Vec<Place>),
    /// It does not reach back to there: where every pane was when it begins.
    Since(Vec<Place>),
    Nothing,
}

/// A stream's own trail. When it is dropped the stream has ended.
pub(super) struct Trail {
    trails: Arc<Trails>,
    number: u64,
    steps: Arc<Mutex<Walk>>,
}

/// A way from one place to the next, step by step.
#[derive(Debug, Default)]
struct Walk {
    /// The readers that are or were in it, by their numbers.
    readers: BTreeMap<u32, Walker>,
    /// How many steps were taken before those that are kept.
    before: u64,
    steps: VecDeque<Step>,
}

/// One reader: which pane it reads, and where it was at the trail's beginning and at its end.
#[derive(Debug)]
struct Walker {
    epoch: Epoch,
    pane: PaneId,
    first: At,
    last: At,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    reader: u32,
    to: At,
}

/// An offset; or that there is no reader (yet, or any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    offset: u64,
    state: Reads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Not,
    On,
    /// The pane's end was told.
    Ended,
}

/// Weight of a reader, in steps.
const READER_WEIGHT: usize = 4;
/// A trail that is cut keeps so many steps.
const LEAST: usize = 64;

impl Trails {
    /// A trail for a new stream.
    pub(super) fn begin(self: &Arc<Self>) -> Trail {
        let mut table = self.table();
        table.last += 1;
        let (number, steps) = (table.last, Arc::default());
        table.trails.insert(number, Arc::clone(&steps));
        Trail { trails: self.clone(), number, steps }
    }

    /// Where every pane was at a point of a stream.
    pub(super) fn look_up(&self, stream: u64, at: u64) -> Known {
        let steps = self.table().trails.get(&stream).cloned();
        steps.map_or(Known::Nothing, |steps| lock(&steps).at(at))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A trail weighs this instead of that.
    fn account(&self, before: usize, after: usize) {
        if after >= before {
            self.weight.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.weight.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    fn is_full(&self) -> bool {
        self.weight.load(Ordering::Relaxed) > limits::TRAIL_STEPS_ALL
    }

    /// Drops trails of streams that have ended, the oldest first, until all fit.
    fn drop_ended(&self) {
        let mut table = self.table();
        while table.ended.len() > limits::ENDED_TRAILS || self.is_full() {
            let Some(steps) = table.ended.pop_front().and_then(|number| table.trails.remove(&number)) else { return };
            self.account(lock(&steps).weight(), 0);
        }
    }
}

fn lock(steps: &Mutex<Walk>) -> MutexGuard<'_, Walk> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trail {
    /// The stream's number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Notes where these readers are now. Returns how many steps there were so far.
    pub(super) fn note(&self, readers: impl IntoIterator<Item = (u32, Option<Place>)>) -> u64 {
        let taken = {
            let mut steps = lock(&self.steps);
            let before = steps.weight();
            for (reader, place) in readers {
                steps.take(reader, place);
            }
            steps.cut(limits::TRAIL_STEPS);
            self.trails.account(before, steps.weight());
            steps.taken()
        };
        if self.trails.is_full() {
            self.trails.drop_ended();
        }
        if self.trails.is_full() {
            let mut steps = lock(&self.steps);
            let before = steps.weight();
            let half = steps.steps.len() / 2;
            steps.cut(half.max(LEAST));
            steps.steps.shrink_to_fit();
            self.trails.account(before, steps.weight());
        }
        taken
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        lock(&self.steps).steps.shrink_to_fit();
        self.trails.table().ended.push_back(self.number);
        self.trails.drop_ended();
    }
}

impl Walk {
    fn weight(&self) -> usize {
        self.steps.len() + READER_WEIGHT * self.readers.len()
    }

    fn taken(&self) -> u64 {
        self.before + self.steps.len() as u64
    }

    /// A reader is here now. One that stands where it stood has taken no step.
    fn take(&mut self, reader: u32, place: Option<Place>) {
        let to = At::of(place);
        let walker = match (self.readers.get_mut(&reader), place) {
            (Some(walker), _) => walker,
            (None, Some(Place { cursor, .. })) => {
                let walker = Walker { epoch: cursor.epoch, pane: cursor.pane, first: At::NOT, last: At::NOT };
                self.readers.entry(reader).or_insert(walker)
            }
            (None, None) => return,
        };
        if walker.last != to {
            walker.last = to;
            self.steps.push_back(Step { reader, to });
        }
    }

    /// Forgets all but the last steps.
    fn cut(&mut self, most: usize) {
        while self.steps.len() > most
            && let Some(Step { reader, to }) = self.steps.pop_front()
        {
            self.before += 1;
            let Some(walker) = self.readers.get_mut(&reader) else { continue };
            walker.first = to;
            // A reader is never there again once it has gone.
            if to == At::NOT {
                self.readers.remove(&reader);
            }
        }
    }

    fn at(&self, at: u64) -> Known {
        let first = || self.readers.iter().map(|(reader, walker)| (*reader, walker.first));
        if at > self.taken() {
            return Known::Nothing;
        }
        let Some(steps) = at.checked_sub(self.before) else { return Known::Since(self.places(first())) };
        let mut places: BTreeMap<u32, At> = first().collect();
        for Step { reader, to } in self.steps.range(..steps as usize) {
            places.insert(*reader, *to);
        }
        Known::Exactly(self.places(places))
    }

    fn places(&self, at: impl IntoIterator<Item = (u32, At)>) -> Vec<Place> {
        let there = at.into_iter().filter(|(_, at)| *at != At::NOT);
        let places = there.filter_map(|(reader, at)| {
            let Walker { epoch, pane, .. } = self.readers.get(&reader)?;
            let cursor = Cursor { epoch: *epoch, pane: *pane, offset: at.offset };
            Some(Place { cursor, ended: at.state == Reads::Ended })
        });
        places.collect()
    }
}

impl At {
    const NOT: Self = Self { offset: 0, state: Reads::Not };

    fn of(place: Option<Place>) -> Self {
        place.map_or(Self::NOT, |Place { cursor, ended }| Self {
            offset: cursor.offset,
            state: if ended { Reads::Ended } else { Reads::On },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(pane: u32, offset: u64, ended: bool) -> Place {
        Place { cursor: Cursor { epoch: Epoch { server: 1, engine: 2 }, pane: PaneId(pane), offset }, ended }
    }

    fn exactly(trails: &Trails, stream: u64, at: u64) -> Vec<Place> {
        match trails.look_up(stream, at) {
            Known::Exactly(places) => places,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_point_is_known_also_when_the_stream_has_ended() {
        let trails = Arc::new(Trails::default());
        let trail = trails.begin();
        let number = trail.number();
        let begun = trail.note((0..600).map(|pane| (pane, Some(place(pane, 10, false)))));
        assert_eq!(trail.note([(5, Some(place(5, 10, false)))]), begun, "it stands where it stood");
        let moved = trail.note([(5, Some(place(5, 30, true)))]);
        let gone = trail.note([(5, None)]);
        drop(trail);
        assert_eq!(exactly(&trails, number, begun).len(), 600);
        assert!(exactly(&trails, number, begun).contains(&place(5, 10, false)));
        assert!(exactly(&trails, number, moved).contains(&place(5, 30, true)));
        assert_eq!(exactly(&trails, number, gone).len(), 599);
        assert_eq!(trails.look_up(number, gone + 1), Known::Nothing);
        assert_eq!(trails.look_up(number + 1, 0), Known::Nothing);
    }

    #[test]
    fn a_trail_is_bounded_and_says_where_it_begins() {
        let trails = Arc::new(Trails::default());
        let trail = trails.begin();
        let begun = trail.note([(1, Some(place(1, 0, false)))]);
        let all = limits::TRAIL_STEPS as u64 + 100;
        for offset in 1..=all {
            trail.note([(1, Some(place(1, offset, false)))]);
        }
        let known = trails.look_up(trail.number(), begun);
        assert_eq!(known, Known::Since(vec![place(1, all - limits::TRAIL_STEPS as u64, false)]));
        assert_eq!(exactly(&trails, trail.number(), begun + all - 5), [place(1, all - 5, false)]);
        assert!(lock(&trail.steps).steps.len() <= limits::TRAIL_STEPS);
    }

    #[test]
    fn all_trails_together_are_bounded_and_what_has_ended_goes_first() {
        let trails = Arc::new(Trails::default());
        let panes = |offset| (0..1000).map(move |pane| (pane, Some(place(pane, offset, false))));
        for _ in 0..limits::ENDED_TRAILS + 10 {
            trails.begin().note(panes(1));
        }
        let ended = trails.table().trails.len();
        assert!(ended <= limits::ENDED_TRAILS && !trails.is_full(), "{ended}");
        let open: Vec<_> = (0..100).map(|_| trails.begin()).collect();
        for offset in 0..50 {
            for trail in &open {
                trail.note(panes(offset));
            }
        }
        let weight: usize = trails.table().trails.values().map(|steps| lock(steps).weight()).sum();
        assert_eq!(weight, trails.weight.load(Ordering::Relaxed));
        assert!(weight < limits::TRAIL_STEPS_ALL + 100 * 2000, "{weight}");
        assert_eq!(trails.table().trails.len(), 100, "those that have ended went first");
        drop(open);
        drop(trails.begin());
        assert!(!trails.is_full());
    }

    proptest! {
        /// Whatever is noted and cut, each point that is still known is what it was.
        #[test]
        fn points_stay_what_they_were(
            moves in proptest::collection::vec((0_u32..4, proptest::option::of((0_u64..9, any::<bool>()))), 0..60),
            most in 1_usize..20,
        ) {
            let mut steps = Walk::default();
            let mut now: BTreeMap<u32, Place> = BTreeMap::new();
            let mut gone = std::collections::HashSet::new();
            let mut points = vec![(0, Vec::new())];
            for (reader, to) in moves {
                if gone.contains(&reader) {
                    continue;
                }
                match to {
                    Some((offset, ended)) => {
                        now.insert(reader, place(reader, offset, ended));
                    }
                    None => {
                        if now.remove(&reader).is_some() {
                            gone.insert(reader);
                        }
                    }
                }
                steps.take(reader, now.get(&reader).copied());
                points.push((steps.taken(), now.values().copied().collect::<Vec<_>>()));
                steps.cut(most);
            }
            for (at, places) in points {
                match steps.at(at) {
                    Known::Exactly(known) => prop_assert_eq!(known, places),
                    Known::Since(_) => prop_assert!(at < steps.before),
                    Known::Nothing => prop_assert!(false),
                }
            }
        }
    }
}
