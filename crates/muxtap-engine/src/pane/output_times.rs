//! The times at which a pane printed its output: marks in its stream, at most one per second, by
//! which `since: 10m` finds its offset.

use std::{collections::VecDeque, time::Duration};

use muxtap_base::clock;
use tokio::time::Instant;

use serde::{Deserialize, Serialize};

use crate::limits;

/// The shortest time between two marks.
const EVERY: Duration = Duration::from_secs(1);
/// The precision of merged marks: each spans at most its age divided by this number.
const PRECISION: u64 = 60;

/// A part of a stream, from `offset` to the next mark, and when it was printed: within `span_ms`
/// after `at_ms`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct TimeMark {
    offset: u64,
    /// Milliseconds since 1970, because people also count the time in which a machine sleeps.
    at_ms: u64,
    span_ms: u64,
}

/// Time marks in a stream: precise to a second for new output, and to a sixtieth of its age for old
/// output.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct OutputTimes {
    marks: VecDeque<TimeMark>,
    /// When the last mark was made.
    #[serde(with = "muxtap_base::age")]
    last: Option<Instant>,
}

impl OutputTimes {
    /// Notes that output at `offset` arrives `now`, unless a recent mark covers it. Output before
    /// `start` is no longer kept.
    pub(super) fn note(&mut self, now: Instant, offset: u64, start: u64) {
        let now_ms = clock::now_ms();
        // One clock can be set, and the other stops while a machine sleeps.
        let is_close = self.last.is_some_and(|last| now.saturating_duration_since(last) < EVERY)
            && self.marks.back().is_some_and(|last| now_ms < last.at_ms + EVERY.as_millis() as u64);
        if is_close {
            return;
        }
        self.last = Some(now);
        self.note_at(now_ms, offset, start);
    }

    fn note_at(&mut self, now_ms: u64, offset: u64, start: u64) {
        while self.marks.get(1).is_some_and(|next| next.offset <= start) {
            self.marks.pop_front();
        }
        // A clock that was set back must not disorder the marks.
        let at_ms = now_ms.max(self.marks.back().map_or(0, |last| last.at_ms));
        if self.marks.len() >= limits::OUTPUT_TIMES {
            self.thin_out(at_ms);
        }
        self.marks.push_back(TimeMark { offset, at_ms, span_ms: EVERY.as_millis() as u64 });
    }

    /// Merges pairs of marks where one is precise enough for their age. If too few can be merged,
    /// the oldest are dropped: the pane printed now and then, for a very long time.
    fn thin_out(&mut self, now_ms: u64) {
        let mut kept: VecDeque<TimeMark> = VecDeque::with_capacity(self.marks.len());
        for mark in self.marks.drain(..) {
            if let Some(last) = kept.back_mut() {
                let span_ms = mark.at_ms + mark.span_ms - last.at_ms;
                if span_ms <= (now_ms - last.at_ms) / PRECISION {
                    last.span_ms = span_ms;
                    continue;
                }
            }
            kept.push_back(mark);
        }
        let most = limits::OUTPUT_TIMES / 8 * 7;
        kept.drain(..kept.len().saturating_sub(most));
        self.marks = kept;
    }

    /// Returns the marks from the one that covers this offset on: offsets, and milliseconds since
    /// 1970.
    pub(super) fn from(&self, offset: u64) -> Vec<(u64, u64)> {
        let first = self.marks.partition_point(|mark| mark.offset <= offset).saturating_sub(1);
        self.marks.iter().skip(first).map(|mark| (mark.offset, mark.at_ms)).collect()
    }

    /// Returns where the output printed at this time or later begins, in a stream that ends at
    /// `end`. `None` for the stream's start: all of the output may be later.
    pub(super) fn begin(&self, at_ms: u64, end: u64) -> Option<u64> {
        let later = self.marks.partition_point(|mark| mark.at_ms <= at_ms);
        let last = self.marks.get(later.checked_sub(1)?)?;
        let next = self.marks.get(later).map_or(end, |mark| mark.offset);
        Some(if last.at_ms + last.span_ms > at_ms { last.offset } else { next })
    }

    /// Returns where the output printed until this time ends, in a stream that ends at `end`.
    pub(super) fn end(&self, at_ms: u64, end: u64) -> u64 {
        let later = self.marks.partition_point(|mark| mark.at_ms <= at_ms);
        self.marks.get(later).map_or(end, |mark| mark.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns marks with these times and offsets.
    fn times(marks: &[(u64, u64)]) -> OutputTimes {
        let mut times = OutputTimes::default();
        for (at_ms, offset) in marks {
            times.note_at(*at_ms, *offset, 0);
        }
        times
    }

    #[test]
    fn what_is_later_begins_at_the_mark_that_may_hold_it() {
        let times = times(&[(10_000, 100), (20_000, 200), (20_500, 250)]);
        assert_eq!(times.begin(9_999, 300), None, "older than all that is known");
        assert_eq!(times.begin(10_000, 300), Some(100));
        assert_eq!(times.begin(10_999, 300), Some(100), "printed within a second of the mark");
        assert_eq!(times.begin(11_000, 300), Some(200), "the pane rested");
        assert_eq!(times.begin(20_499, 300), Some(200));
        assert_eq!(times.begin(21_400, 300), Some(250));
        assert_eq!(times.begin(22_000, 300), Some(300), "nothing since then");
        assert_eq!(times.end(9_999, 300), 100);
        assert_eq!(times.end(15_000, 300), 200);
        assert_eq!(times.end(22_000, 300), 300);
    }

    #[test]
    fn a_clock_that_is_set_back_loses_nothing() {
        let times = times(&[(10_000, 100), (5_000, 200), (11_000, 300)]);
        assert_eq!(times.begin(10_500, 400), Some(200));
        assert_eq!(times.begin(9_000, 400), None);
    }

    #[test]
    fn marks_of_what_is_not_kept_go_but_for_the_one_that_covers_the_start() {
        let mut times = times(&[(1_000, 100), (3_000, 200), (5_000, 300)]);
        times.note_at(7_000, 400, 250);
        assert_eq!(times.marks.front().map(|mark| mark.offset), Some(200));
    }

    #[test]
    fn marks_are_bounded_and_stay_true() {
        // Output all the time for days, every ten minutes for months, and at odd times.
        for pause in [|_| 1_000, |_| 600_000, |number: u64| number * number % 90_000 + 1_000] {
            let mut times = OutputTimes::default();
            let mut printed = vec![0];
            for number in 1..200_000 {
                printed.push(printed.last().unwrap() + pause(number));
                times.note_at(*printed.last().unwrap(), number, 0);
            }
            assert!(times.marks.len() <= limits::OUTPUT_TIMES);
            let (now, end) = (*printed.last().unwrap(), 200_000);
            let first = times.marks.front().unwrap().offset as usize;
            for number in (first..200_000).step_by(17) {
                let at = printed[number];
                let begin = times.begin(at, end).unwrap();
                assert!(begin <= number as u64, "nothing is left out");
                let given = printed.get(begin as usize).map_or(0, |begins| at - begins);
                assert!(given <= (now - at + given) / PRECISION + 2_000, "{given} ms too much of {} ms", now - at);
            }
        }
    }
}
