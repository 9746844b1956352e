//! Records the positions of the readers of many panes, which keeps an event's `id` short.
//!
//! A token that names the position in each of 600 panes is 3.5 KB long, so the positions are stored
//! here instead. Each stream of events has a *trail*: the positions at its beginning, and each step
//! after that. An event's `id` is the number of steps so far. It is exact for each event that a
//! reader may have seen last, for as long as the trail reaches back to that event.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use muxtap_api::{Cursor, Epoch};
use muxtap_core::{protocol::ids::PaneId, stream::resume::Place};

use serde::{Deserialize, Serialize};

use crate::limits;

/// The trails of all streams, and of those that ended recently.
#[derive(Debug, Default)]
pub(crate) struct Trails {
    table: Mutex<Table>,
    /// The weight of all trails together, in steps.
    weight: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    trails: HashMap<u64, Arc<Mutex<StepLog>>>,
    last: u64,
    /// The numbers of ended streams, in the order of their ends.
    ended: VecDeque<u64>,
}

/// The result of looking up a point of a trail.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The position of every pane at that point.
    Exact(Vec<Place>),
    /// The trail does not reach back to that point: the position of every pane at the trail's
    /// beginning.
    Since(Vec<Place>),
    /// The stream or the point is unknown.
    Unknown,
}

/// The trail of an open stream. Dropping it ends the stream.
pub(crate) struct Trail {
    trails: Arc<Trails>,
    number: u64,
    steps: Arc<Mutex<StepLog>>,
}

/// The steps of a trail, and the readers that took them.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StepLog {
    /// The readers that are or were in the trail, by their numbers.
    readers: BTreeMap<u32, ReaderSteps>,
    /// The number of steps that were dropped from the front.
    before: u64,
    steps: VecDeque<Step>,
}

/// A reader's pane, and its positions at the trail's beginning and end.
#[derive(Debug, Serialize, Deserialize)]
struct ReaderSteps {
    epoch: Epoch,
    pane: PaneId,
    first: Position,
    last: Position,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Step {
    reader: u32,
    to: Position,
}

/// A reader's offset and state. [`Self::ABSENT`] means that there is no reader yet, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    offset: u64,
    state: ReaderState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ReaderState {
    Absent,
    Active,
    /// The pane's end was sent.
    Ended,
}

/// The weight of a reader, in steps.
const READER_WEIGHT: usize = 4;
/// The minimum number of steps that a truncated trail keeps.
const MIN_STEPS: usize = 64;

impl Trails {
    /// Begins the trail of a new stream.
    pub(crate) fn begin(self: &Arc<Self>) -> Trail {
        let mut table = self.table();
        table.last += 1;
        let (number, steps) = (table.last, Arc::default());
        table.trails.insert(number, Arc::clone(&steps));
        Trail { trails: self.clone(), number, steps }
    }

    /// Returns the number of the last stream and the trails of all, the one that ends up first to be
    /// dropped first.
    pub(crate) fn store(&self) -> postcard::Result<Vec<u8>> {
        let table = self.table();
        let open = table.trails.keys().filter(|number| !table.ended.contains(number));
        let mut open: Vec<_> = open.copied().collect();
        open.sort_unstable();
        let numbers = table.ended.iter().copied().chain(open);
        let trails: Vec<_> = numbers.filter_map(|number| Some((number, table.trails.get(&number)?.clone()))).collect();
        let last = table.last;
        drop(table);
        let locked: Vec<_> = trails.iter().map(|(number, steps)| (number, lock(steps))).collect();
        let trails: Vec<_> = locked.iter().map(|(number, steps)| (number, &**steps)).collect();
        postcard::to_allocvec(&(last, trails))
    }

    /// Returns a stored trail with a step and a reader, by the names of its parts.
    #[cfg(test)]
    pub(crate) fn stored_as_json() -> serde_json::Value {
        let position = Position { offset: 1, state: ReaderState::Active };
        let reader = ReaderSteps { epoch: Epoch::default(), pane: PaneId(1), first: position, last: position };
        let steps = [Step { reader: 1, to: position }].into();
        let log = StepLog { readers: [(1, reader)].into(), before: 0, steps };
        serde_json::to_value((1, [(1, log)])).unwrap_or_default()
    }

    /// Restores the trails of [`Self::store`]. Their streams have ended; readers resume on others.
    pub(crate) fn restore(bytes: &[u8]) -> postcard::Result<Self> {
        let (last, stored): (u64, Vec<(u64, StepLog)>) = postcard::from_bytes(bytes)?;
        let weight = stored.iter().map(|(_, steps)| steps.weight()).sum();
        let ended = stored.iter().map(|(number, _)| *number).collect();
        let trails = stored.into_iter().map(|(number, steps)| (number, Arc::new(Mutex::new(steps)))).collect();
        Ok(Self { table: Mutex::new(Table { trails, last, ended }), weight: AtomicUsize::new(weight) })
    }

    /// Looks up the position of every pane at a point of a stream.
    pub(super) fn look_up(&self, stream: u64, at: u64) -> Lookup {
        let steps = self.table().trails.get(&stream).cloned();
        steps.map_or(Lookup::Unknown, |steps| lock(&steps).at(at))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adjusts the weight of all trails by the change of one of them.
    fn adjust_weight(&self, before: usize, after: usize) {
        if after >= before {
            self.weight.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.weight.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    fn is_full(&self) -> bool {
        self.weight.load(Ordering::Relaxed) > limits::TRAIL_STEPS_ALL
    }

    /// Drops trails of ended streams, the oldest first, until all fit.
    fn drop_ended(&self) {
        let mut table = self.table();
        while table.ended.len() > limits::ENDED_TRAILS || self.is_full() {
            let Some(steps) = table.ended.pop_front().and_then(|number| table.trails.remove(&number)) else { return };
            self.adjust_weight(lock(&steps).weight(), 0);
        }
    }
}

fn lock(steps: &Mutex<StepLog>) -> MutexGuard<'_, StepLog> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trail {
    /// Returns the stream's number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Records the current positions of these readers. Returns the number of steps so far.
    pub(super) fn record(&self, readers: impl IntoIterator<Item = (u32, Option<Place>)>) -> u64 {
        let taken = {
            let mut steps = lock(&self.steps);
            let before = steps.weight();
            for (reader, place) in readers {
                steps.record(reader, place);
            }
            steps.truncate(limits::TRAIL_STEPS);
            self.trails.adjust_weight(before, steps.weight());
            steps.count()
        };
        if self.trails.is_full() {
            self.trails.drop_ended();
        }
        if self.trails.is_full() {
            let mut steps = lock(&self.steps);
            let before = steps.weight();
            let half = steps.steps.len() / 2;
            steps.truncate(half.max(MIN_STEPS));
            steps.steps.shrink_to_fit();
            self.trails.adjust_weight(before, steps.weight());
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

impl StepLog {
    fn weight(&self) -> usize {
        self.steps.len() + READER_WEIGHT * self.readers.len()
    }

    fn count(&self) -> u64 {
        self.before + self.steps.len() as u64
    }

    /// Records a reader's position. A reader that has not moved takes no step.
    fn record(&mut self, reader: u32, place: Option<Place>) {
        let to = Position::of(place);
        let of_reader = match (self.readers.get_mut(&reader), place) {
            (Some(of_reader), _) => of_reader,
            (None, Some(Place { cursor, .. })) => {
                let of_reader = ReaderSteps {
                    epoch: cursor.epoch,
                    pane: cursor.pane,
                    first: Position::ABSENT,
                    last: Position::ABSENT,
                };
                self.readers.entry(reader).or_insert(of_reader)
            }
            (None, None) => return,
        };
        if of_reader.last != to {
            of_reader.last = to;
            self.steps.push_back(Step { reader, to });
        }
    }

    /// Drops all but the last `most` steps.
    fn truncate(&mut self, most: usize) {
        while self.steps.len() > most
            && let Some(Step { reader, to }) = self.steps.pop_front()
        {
            self.before += 1;
            let Some(of_reader) = self.readers.get_mut(&reader) else { continue };
            of_reader.first = to;
            // A reader that has gone never comes back.
            if to == Position::ABSENT {
                self.readers.remove(&reader);
            }
        }
    }

    fn at(&self, at: u64) -> Lookup {
        let first = || self.readers.iter().map(|(reader, of_reader)| (*reader, of_reader.first));
        if at > self.count() {
            return Lookup::Unknown;
        }
        let Some(steps) = at.checked_sub(self.before) else { return Lookup::Since(self.places(first())) };
        let mut places: BTreeMap<u32, Position> = first().collect();
        for Step { reader, to } in self.steps.range(..steps as usize) {
            places.insert(*reader, *to);
        }
        Lookup::Exact(self.places(places))
    }

    fn places(&self, at: impl IntoIterator<Item = (u32, Position)>) -> Vec<Place> {
        let there = at.into_iter().filter(|(_, at)| *at != Position::ABSENT);
        let places = there.filter_map(|(reader, at)| {
            let ReaderSteps { epoch, pane, .. } = self.readers.get(&reader)?;
            let cursor = Cursor { epoch: *epoch, pane: *pane, offset: at.offset };
            Some(Place { cursor, ended: at.state == ReaderState::Ended })
        });
        places.collect()
    }
}

impl Position {
    const ABSENT: Self = Self { offset: 0, state: ReaderState::Absent };

    fn of(place: Option<Place>) -> Self {
        place.map_or(Self::ABSENT, |Place { cursor, ended }| Self {
            offset: cursor.offset,
            state: if ended { ReaderState::Ended } else { ReaderState::Active },
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
            Lookup::Exact(places) => places,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_point_is_known_also_when_the_stream_has_ended() {
        let trails = Arc::new(Trails::default());
        let trail = trails.begin();
        let number = trail.number();
        let begun = trail.record((0..600).map(|pane| (pane, Some(place(pane, 10, false)))));
        assert_eq!(trail.record([(5, Some(place(5, 10, false)))]), begun, "it stands where it stood");
        let moved = trail.record([(5, Some(place(5, 30, true)))]);
        let gone = trail.record([(5, None)]);
        drop(trail);
        assert_eq!(exactly(&trails, number, begun).len(), 600);
        assert!(exactly(&trails, number, begun).contains(&place(5, 10, false)));
        assert!(exactly(&trails, number, moved).contains(&place(5, 30, true)));
        assert_eq!(exactly(&trails, number, gone).len(), 599);
        assert_eq!(trails.look_up(number, gone + 1), Lookup::Unknown);
        assert_eq!(trails.look_up(number + 1, 0), Lookup::Unknown);
    }

    #[test]
    fn a_restored_trail_is_known_until_others_need_the_room() {
        let trails = Arc::new(Trails::default());
        let (first, second) = (trails.begin(), trails.begin());
        let points = [&first, &second].map(|trail| {
            trail.record([(1, Some(place(1, 10, false)))]);
            (trail.number(), trail.record([(1, Some(place(1, 20 + trail.number(), false)))]))
        });
        drop(second);
        let restored = Arc::new(Trails::restore(&trails.store().unwrap()).unwrap());
        for (number, at) in points {
            assert_eq!(exactly(&restored, number, at), [place(1, 20 + number, false)]);
        }
        assert!(points.iter().all(|(number, _)| *number < restored.begin().number()));
        assert_eq!(restored.weight.load(Ordering::Relaxed), trails.weight.load(Ordering::Relaxed));
    }

    #[test]
    fn a_trail_is_bounded_and_says_where_it_begins() {
        let trails = Arc::new(Trails::default());
        let trail = trails.begin();
        let begun = trail.record([(1, Some(place(1, 0, false)))]);
        let all = limits::TRAIL_STEPS as u64 + 100;
        for offset in 1..=all {
            trail.record([(1, Some(place(1, offset, false)))]);
        }
        let known = trails.look_up(trail.number(), begun);
        assert_eq!(known, Lookup::Since(vec![place(1, all - limits::TRAIL_STEPS as u64, false)]));
        assert_eq!(exactly(&trails, trail.number(), begun + all - 5), [place(1, all - 5, false)]);
        assert!(lock(&trail.steps).steps.len() <= limits::TRAIL_STEPS);
    }

    #[test]
    fn all_trails_together_are_bounded_and_what_has_ended_goes_first() {
        let trails = Arc::new(Trails::default());
        let panes = |count, offset| (0..count).map(move |pane| (pane, Some(place(pane, offset, false))));
        for _ in 0..limits::ENDED_TRAILS + 10 {
            trails.begin().record(panes(10, 1));
        }
        let ended = trails.table().trails.len();
        assert!(ended <= limits::ENDED_TRAILS && !trails.is_full(), "{ended}");
        let open: Vec<_> = (0..40).map(|_| trails.begin()).collect();
        for offset in 0..60 {
            for trail in &open {
                trail.record(panes(1000, offset));
            }
        }
        let weight: usize = trails.table().trails.values().map(|steps| lock(steps).weight()).sum();
        assert_eq!(weight, trails.weight.load(Ordering::Relaxed));
        assert!(weight < limits::TRAIL_STEPS_ALL + 40 * 2000, "{weight}");
        assert_eq!(trails.table().trails.len(), 40, "those that have ended went first");
        drop(open);
        drop(trails.begin());
        assert!(!trails.is_full());
    }

    proptest! {
        /// After any records and truncations, each point that is still known is unchanged.
        #[test]
        fn points_stay_what_they_were(
            moves in proptest::collection::vec((0_u32..4, proptest::option::of((0_u64..9, any::<bool>()))), 0..60),
            most in 1_usize..20,
        ) {
            let mut steps = StepLog::default();
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
                steps.record(reader, now.get(&reader).copied());
                points.push((steps.count(), now.values().copied().collect::<Vec<_>>()));
                steps.truncate(most);
            }
            for (at, places) in points {
                match steps.at(at) {
                    Lookup::Exact(known) => prop_assert_eq!(known, places),
                    Lookup::Since(_) => prop_assert!(at < steps.before),
                    Lookup::Unknown => prop_assert!(false),
                }
            }
        }
    }
}
