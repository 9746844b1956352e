//! Streaming regex search on a pane's output text: every byte is examined once, however long the
//! history.
//!
//! *Match text* is the decoder's text with one `\n` for each line end. `\n`, `\r\n`, and a `\r`
//! alone each end a line (a run of `\r` is one); so do cursor movement to another line, a full
//! clear and a reset, unless the current line is empty. Backspace does nothing: a match cannot be
//! taken back.
//!
//! For each pattern, the result is that of `regex::Regex::find` (multi-line) on the whole match
//! text, however it was split into chunks. A match is returned at the end of the first chunk after
//! which no further text can change it. A match that could still grow, or that depends on a `$` at
//! the very end, is returned when the stream rests ([`Matcher::rest`]). `docs/waits.md` numbers the
//! guarantees.
//!
//! One automaton watches for all patterns of a set (a single pattern needs no such automaton). When
//! it sees a match of a pattern end, that pattern gets an automaton of its own, which determines
//! where the leftmost-first match ends; the window of recent text then supplies its start and
//! captures.

use super::{
    patterns::PatternSet,
    text::{Control, TextSink},
};
use automaton::{Steps, Stop};
use serde::{Deserialize, Serialize};
use slot::{Phase, Slot, take_over};
use window::Window;

pub use hit::Hit;

pub(crate) mod automaton;
pub(crate) mod bounds;
mod hit;
mod sample;
mod slot;
mod window;

/// The owner's decision about a hit of its matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The hit counts; the pattern is latched and no longer searched.
    Accept,
    /// The hit does not count (it is the echo of typed input); the search continues after its end.
    Reject,
    /// Not decided yet: the same hit is passed again at the next end of a chunk or rest.
    Later,
}

/// Searches one stream of match text for the patterns of a set, from the matcher's creation on.
///
/// Feed it through [`TextSink`], in pieces of at most some 64 KiB of raw output, and call
/// [`Matcher::end_of_chunk`] after each.
#[derive(Debug)]
pub struct Matcher {
    set: PatternSet,
    window: Window,
    watch: Option<Steps>,
    /// Whether `watch` is being stepped, and its position.
    watching: bool,
    watched: u64,
    slots: Vec<Slot>,
    rested: bool,
}

/// The state of a [`Matcher`], without its patterns.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredMatcher {
    window: Window,
    slots: Vec<Slot>,
    rested: bool,
}

impl Matcher {
    /// Makes a matcher that begins with an empty text: `^` matches at its very beginning.
    pub fn new(set: PatternSet) -> Self {
        let watched = |index| set.prefilter().is_some_and(|prefilter| prefilter.members.contains(&index));
        let slots = (0..set.len())
            .map(|index| Slot {
                from: 0,
                phase: if watched(index) { Phase::Watched } else { Phase::Own },
                search: None,
                found: None,
                open: false,
            })
            .collect();
        Self { set, window: Window::default(), watch: None, watching: false, watched: 0, slots, rested: true }
    }

    /// Ends a chunk: passes each match that has become certain to `judge`, in the order of their
    /// ends. Returns those that it accepted.
    pub fn end_of_chunk(&mut self, judge: &mut dyn FnMut(&Hit) -> Verdict) -> Vec<Hit> {
        self.pass(false, judge)
    }

    /// Records that the stream rests (no byte for some 30 ms): a `$` and a `\b` at its end hold, a
    /// `\r` at its end is a line end, and a match that more output could extend is returned in its
    /// present form. Repeated calls without new text find nothing new.
    pub fn rest(&mut self, judge: &mut dyn FnMut(&Hit) -> Verdict) -> Vec<Hit> {
        self.window.release();
        let accepted = self.pass(true, judge);
        self.rested = true;
        accepted
    }

    /// Returns whether [`Matcher::rest`] may find a match that [`Matcher::end_of_chunk`] could not.
    /// A rest makes this false until more text arrives; a hit whose verdict was [`Verdict::Later`]
    /// does not make it true.
    pub fn wants_rest(&self) -> bool {
        !self.rested && !self.is_done() && (self.window.holds_return() || self.slots.iter().any(|slot| slot.open))
    }

    /// Returns whether no pattern is searched any more.
    pub fn is_done(&self) -> bool {
        self.slots.iter().all(|slot| slot.phase.is_over())
    }

    /// Returns whether a pattern was accepted.
    pub fn is_latched(&self, pattern: usize) -> bool {
        self.slots.get(pattern).is_some_and(|slot| slot.phase == Phase::Latched)
    }

    /// Returns the patterns that are searched.
    pub fn patterns(&self) -> &PatternSet {
        &self.set
    }

    /// Returns the number of bytes that this matcher holds, without the set that it shares.
    pub fn memory(&self) -> usize {
        let searches = self.slots.iter().filter_map(|slot| slot.search.as_ref()).map(|search| search.steps.memory());
        self.window.memory()
            + self.watch.as_ref().map_or(0, Steps::memory)
            + searches.sum::<usize>()
            + size_of_val(self.slots.as_slice())
    }

    /// Drops the states that its searches have built. With the next text, they search the kept text
    /// once more, with the same result.
    pub fn shed(&mut self) {
        let floor = self.window.floor();
        if self.watch.take().is_some() {
            self.watching = false;
            self.watched = floor;
        }
        for slot in &mut self.slots {
            *slot = slot.shed(floor);
        }
    }

    /// Returns the matcher's state, for another process that continues its search.
    pub fn store(&self) -> StoredMatcher {
        let floor = self.window.floor();
        let slots = self.slots.iter().map(|slot| slot.shed(floor)).collect();
        StoredMatcher { window: self.window.clone(), slots, rested: self.rested }
    }

    /// Continues a search for the same patterns. It finds what the stored one would have found.
    ///
    /// Error: the state is that of a search for other patterns.
    pub fn restore(set: PatternSet, stored: StoredMatcher) -> crate::Result<Self> {
        let StoredMatcher { window, slots, rested } = stored;
        if slots.len() != set.len() {
            return Err(crate::Error::invalid("the search has other patterns"));
        }
        let watched = window.floor();
        Ok(Self { set, window, watch: None, watching: false, watched, slots, rested })
    }

    fn pass(&mut self, rest: bool, judge: &mut dyn FnMut(&Hit) -> Verdict) -> Vec<Hit> {
        let mut accepted = Vec::new();
        // The next text drops the data with which a pattern was found: the matcher's owner must get
        // it first.
        for slot in self.slots.iter_mut().filter(|slot| slot.phase.is_over()) {
            slot.search = None;
        }
        self.watch(rest);
        for found in self.slots.iter_mut().filter_map(|slot| slot.found.as_mut()) {
            found.deferred = false;
        }
        loop {
            for (slot, (index, pattern)) in self.slots.iter_mut().zip(self.set.patterns().iter().enumerate()) {
                let limit = self.set.limits().window_bytes as u64;
                slot.settle(index, pattern, &self.window, rest, limit);
            }
            let next = self.slots.iter_mut().filter(|slot| slot.found.as_ref().is_some_and(|found| !found.deferred));
            let Some(slot) = next.min_by_key(|slot| slot.found.as_ref().map(|found| found.end)) else { break };
            let Some(mut found) = slot.found.take() else { break };
            match judge(&found.hit) {
                Verdict::Accept => {
                    slot.phase = Phase::Latched;
                    accepted.push(found.hit);
                }
                Verdict::Reject => slot.begin_at(found.end),
                Verdict::Later => {
                    found.deferred = true;
                    slot.found = Some(found);
                }
            }
        }
        self.hand_back();
        self.forget();
        accepted
    }

    /// Steps the set's automaton over the new text and gives each pattern that it reports an
    /// automaton of its own.
    fn watch(&mut self, rest: bool) {
        let from = std::mem::replace(&mut self.watched, self.window.end());
        let Some(prefilter) = self.set.prefilter() else { return };
        let mut left = self.slots.iter().filter(|slot| slot.phase == Phase::Watched).count();
        if left == 0 {
            self.watching = false;
            return;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.phase == Phase::Watched) {
            slot.open = false;
        }
        let behind = self.window.behind(from);
        let steps = match &mut self.watch {
            Some(steps) if self.watching => Some(steps),
            Some(steps) => steps.restart(&prefilter.automaton, behind).then_some(steps),
            empty => Steps::new(&prefilter.automaton, behind).map(|steps| empty.insert(steps)),
        };
        self.watching = steps.is_some();
        if let Some(steps) = steps {
            let mut at = self.window.index(from);
            while left > 0 {
                let (stop, reached) = steps.run(&prefilter.automaton, self.window.bytes(), at);
                at = reached;
                let end = self.window.position(at).saturating_sub(1);
                match stop {
                    Stop::Match => {
                        for pattern in steps.matches(&prefilter.automaton) {
                            let Some(&index) = prefilter.members.get(pattern.as_usize()) else { continue };
                            left -= usize::from(take_over(&mut self.slots, &self.set, index, &self.window, end, true));
                        }
                    }
                    Stop::End => {
                        for pattern in steps.matches_at_end(&prefilter.automaton) {
                            let Some(&index) = prefilter.members.get(pattern.as_usize()) else { continue };
                            let end = self.window.end();
                            left -= usize::from(take_over(&mut self.slots, &self.set, index, &self.window, end, rest));
                        }
                        break;
                    }
                    Stop::Dead => break,
                    Stop::Lost => {
                        self.watching = false;
                        break;
                    }
                }
            }
        }
        self.watching &= left > 0;
        if !self.watching && left > 0 {
            // The automaton gave up (it has no reason to): each pattern continues alone.
            for slot in self.slots.iter_mut().filter(|slot| slot.phase == Phase::Watched) {
                slot.begin_at(slot.from.max(self.window.floor()));
            }
        }
    }

    /// Returns patterns without a pending match to the set's automaton.
    fn hand_back(&mut self) {
        let Some(prefilter) = self.set.prefilter() else { return };
        let end = self.window.end();
        let behind = self.window.behind(end);
        let open = self.slots.iter().filter(|slot| !slot.phase.is_over()).count();
        if open < 2
            || (self.watching && !self.watch.as_mut().is_some_and(|steps| steps.is_fresh(&prefilter.automaton, behind)))
        {
            return;
        }
        for &index in &prefilter.members {
            let (Some(slot), Some(pattern)) = (self.slots.get_mut(index), self.set.get(index)) else { continue };
            if slot.phase != Phase::Own || slot.found.is_some() || slot.open {
                continue;
            }
            // Every match that was pending when the set's automaton stopped is dead or pending in
            // this search too, and this search has none.
            let fresh = slot.search.as_mut().is_some_and(|search| {
                search.at == end && search.end.is_none() && search.steps.is_fresh(&pattern.automaton, behind)
            });
            if fresh {
                slot.phase = Phase::Watched;
            }
        }
    }

    /// Drops text in which no match can begin any more.
    fn forget(&mut self) {
        let end = self.window.end();
        let limit = self.set.limits().window_bytes;
        let mut keep = self.window.line().min(end.saturating_sub(self.set.reach() as u64));
        for (slot, pattern) in self.slots.iter().zip(self.set.patterns()) {
            keep = keep.min(slot.needs(pattern, &self.window));
        }
        if self.is_done() {
            keep = end;
        }
        self.window.trim(keep.max(end.saturating_sub(limit as u64)));
    }
}

impl TextSink for Matcher {
    fn text(&mut self, offset: u64, text: &[u8]) {
        self.rested = false;
        self.window.text(offset, text);
    }
    fn control(&mut self, offset: u64, control: Control) {
        self.rested = false;
        self.window.control(offset, control);
    }
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::stream::patterns::{Limits, PatternSpec};

    fn matcher(patterns: &[&str]) -> Matcher {
        let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
        Matcher::new(PatternSet::new(&specs, &Limits::default()).unwrap())
    }
    /// Feeds chunks as the decoder would, and returns the hits that each of them accepted.
    fn feed(matcher: &mut Matcher, offset: u64, chunk: &str) -> Vec<String> {
        oracle::feed(matcher, offset, chunk);
        whole(&matcher.end_of_chunk(&mut |_| Verdict::Accept))
    }
    fn rest(matcher: &mut Matcher) -> Vec<String> {
        whole(&matcher.rest(&mut |_| Verdict::Accept))
    }
    fn whole(hits: &[Hit]) -> Vec<String> {
        hits.iter().map(|hit| hit.captures.first().cloned().flatten().unwrap_or_default()).collect()
    }
    const NONE: &[&str] = &[];

    #[test]
    fn w3_a_certain_match_is_given_without_a_line_end() {
        for patterns in [&["DONE"][..], &["DONE", "x"], &["DONE", r"\bx"], &[r"\bDONE"]] {
            let mut matcher = matcher(patterns);
            assert_eq!(feed(&mut matcher, 0, "building DO"), NONE);
            assert!(!matcher.wants_rest());
            assert_eq!(feed(&mut matcher, 11, "NE"), ["DONE"], "{patterns:?}");
        }
    }

    #[test]
    fn w3_a_match_that_can_grow_waits_for_what_ends_it() {
        let mut matcher = matcher(&["error: .*", "zzz"]);
        assert_eq!(feed(&mut matcher, 0, "error: no"), NONE);
        assert!(matcher.wants_rest());
        assert_eq!(feed(&mut matcher, 9, " such file"), NONE);
        assert_eq!(feed(&mut matcher, 19, "\r\n"), ["error: no such file"]);
    }

    #[test]
    fn w3_a_match_gives_way_to_one_that_begins_earlier() {
        let mut matcher = matcher(&["abcd|bc"]);
        assert_eq!(feed(&mut matcher, 0, "abc"), NONE);
        assert_eq!(feed(&mut matcher, 3, "d"), ["abcd"]);
        let mut matcher = self::matcher(&["abcd|bc"]);
        assert_eq!(feed(&mut matcher, 0, "abc"), NONE);
        assert_eq!(feed(&mut matcher, 3, "x"), ["bc"]);
    }

    #[test]
    fn w4_a_rest_settles_what_hangs_on_the_end() {
        let mut matcher = matcher(&[r"\$ $", "error: .*", r"ready\b", r"100%\n"]);
        assert_eq!(feed(&mut matcher, 0, "user@host:~$ "), NONE);
        assert!(matcher.wants_rest());
        assert_eq!(rest(&mut matcher), ["$ "]);
        assert!(!matcher.wants_rest(), "a rest is not asked for twice");
        assert_eq!(feed(&mut matcher, 13, "error: x"), NONE);
        assert_eq!(rest(&mut matcher), ["error: x"]);
        assert_eq!(feed(&mut matcher, 21, "ready"), NONE);
        assert_eq!(rest(&mut matcher), ["ready"]);
        assert_eq!(feed(&mut matcher, 26, "100%\r"), NONE);
        assert!(matcher.wants_rest());
        assert_eq!(rest(&mut matcher), ["100%\n"]);
        assert!(matcher.is_done());
    }

    #[test]
    fn w4_a_prompt_in_the_middle_of_a_line_is_no_prompt() {
        let mut matcher = matcher(&[r"\$ $"]);
        assert_eq!(feed(&mut matcher, 0, "cost: 5$ "), NONE);
        assert_eq!(feed(&mut matcher, 9, "each\n"), NONE);
        assert_eq!(rest(&mut matcher), NONE);
    }

    #[test]
    fn w2_every_kind_of_line_end_is_one_newline() {
        for text in ["a\nb", "a\r\nb", "a\rb", "a\r\r\nb", "a\x1b[3;1Hb", "a\x1b[2Jb", "a\r\x1b[Ab", "a\r\x1b[0K\nb"] {
            let mut matcher = matcher(&["^a\n^b"]);
            assert_eq!(feed(&mut matcher, 0, text), ["a\nb"], "{text:?}");
        }
        for text in ["ab\x1b[K", "a\x08b", "\x1b[Hab", "a\x1b[Jb"] {
            let mut matcher = matcher(&["^ab"]);
            assert_eq!(feed(&mut matcher, 0, text), ["ab"], "{text:?}");
        }
    }

    #[test]
    fn w2_a_line_end_cut_in_two_is_one() {
        let mut matcher = matcher(&["a\n\n"]);
        assert_eq!(feed(&mut matcher, 0, "a\r"), NONE);
        assert_eq!(rest(&mut matcher), NONE);
        assert_eq!(feed(&mut matcher, 2, "\n"), NONE);
        assert_eq!(feed(&mut matcher, 3, "\n"), ["a\n\n"]);
    }

    #[test]
    fn w5_a_rejected_match_is_followed_by_the_next() {
        let mut matcher = matcher(&["OK", "never"]);
        let mut seen = Vec::new();
        oracle::feed(&mut matcher, 0, "$ echo OK\r\nOK\r\n");
        let hits = matcher.end_of_chunk(&mut |hit| {
            seen.push(hit.start);
            if hit.start < 10 { Verdict::Reject } else { Verdict::Accept }
        });
        assert_eq!(seen, [7, 11]);
        assert_eq!((hits[0].start, hits[0].end, hits[0].line.as_str()), (11, 13, "OK"));
        assert!(matcher.is_latched(0) && !matcher.is_latched(1));
    }

    #[test]
    fn w5_a_match_put_off_is_shown_again() {
        let mut matcher = matcher(&["OK"]);
        oracle::feed(&mut matcher, 0, "OK");
        assert_eq!(matcher.end_of_chunk(&mut |_| Verdict::Later), []);
        assert!(!matcher.wants_rest());
        oracle::feed(&mut matcher, 2, " OK");
        let mut starts = Vec::new();
        let hits = matcher.end_of_chunk(&mut |hit| {
            starts.push(hit.start);
            if hit.start == 0 { Verdict::Reject } else { Verdict::Later }
        });
        assert!(hits.is_empty());
        assert_eq!(starts, [0, 3]);
        assert_eq!(matcher.rest(&mut |_| Verdict::Accept)[0].start, 3);
    }

    #[test]
    fn hits_come_in_the_order_in_which_they_end() {
        let mut matcher = matcher(&["third", "first", "second"]);
        assert_eq!(feed(&mut matcher, 0, "first second third"), ["first", "second", "third"]);
    }

    #[test]
    fn a_hit_tells_line_and_groups() {
        let mut matcher = matcher(&[r"(?P<passed>\d+) passed(?:; (?P<failed>\d+) failed)?!"]);
        oracle::feed(&mut matcher, 100, "\x1b[1mresult\x1b[0m: 12 passed! in 3s\r\n");
        let hit = matcher.end_of_chunk(&mut |_| Verdict::Accept).remove(0);
        assert_eq!(hit.line, "result: 12 passed! in 3s");
        assert_eq!(hit.captures, [Some("12 passed!".to_owned()), Some("12".to_owned()), None]);
        assert_eq!(hit.groups, BTreeMap::from([("passed".to_owned(), "12".to_owned())]));
        assert_eq!((hit.start, hit.end, hit.truncated), (116, 126, false));
    }

    #[test]
    fn w6_a_word_boundary_in_text_that_is_not_ascii() {
        let mut matcher = matcher(&[r"\bfin\b", r"\bé\b"]);
        assert_eq!(feed(&mut matcher, 0, "éfin finé "), NONE);
        assert_eq!(feed(&mut matcher, 12, "fin. é"), NONE);
        assert!(matcher.wants_rest());
        assert_eq!(feed(&mut matcher, 19, "\n"), ["fin", "é"]);
        let mut matcher = self::matcher(&[r"fin\b"]);
        assert_eq!(feed(&mut matcher, 0, "fin\né"), ["fin"]);
    }

    #[test]
    fn w7_a_match_longer_than_the_window_is_told_without_its_beginning() {
        let limits = Limits { window_bytes: 256, ..Limits::default() };
        for patterns in [
            &["(?s)BEGIN.*?END"][..],
            &["(?s)BEGIN.*?END", "never"],
            &["BEGIN.*?END", "never"],
            &[r"(?s)\A.*?END", "never"],
        ] {
            let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
            let mut matcher = Matcher::new(PatternSet::new(&specs, &limits).unwrap());
            let mut offset = 0;
            for chunk in ["BEGIN "].into_iter().chain([". . . . . "; 200]) {
                assert_eq!(feed(&mut matcher, offset, chunk), NONE);
                offset += chunk.len() as u64;
            }
            assert!(matcher.window.bytes().len() < 1024);
            oracle::feed(&mut matcher, offset, "END");
            let mut hits = matcher.end_of_chunk(&mut |_| Verdict::Accept);
            assert!(hits.len() == 1 || matcher.wants_rest());
            hits.extend(matcher.rest(&mut |_| Verdict::Accept));
            let hit = hits.remove(0);
            assert!(hit.truncated && hit.start < offset, "{patterns:?}");
            assert_eq!(hit.end, offset + 3);
        }
    }

    #[test]
    fn w7_a_match_that_never_stops_growing_is_given_at_half_a_window() {
        let limits = Limits { window_bytes: 256, ..Limits::default() };
        let mut matcher = Matcher::new(PatternSet::new(&[PatternSpec::new("(?s)BEGIN.*")], &limits).unwrap());
        let given = (0..100).find(|&index| {
            !feed(&mut matcher, index * 10, if index == 0 { "BEGIN 6789" } else { "0123456789" }).is_empty()
        });
        assert_eq!(given, Some(13));
    }

    #[test]
    fn w7_an_idle_matcher_is_small() {
        let mut matcher = matcher(&["error: .*", "BUILD (OK|FAILED)", r"\$ $", r"\d+ passed"]);
        for line in 0..20_000 {
            oracle::feed(&mut matcher, line * 40, "   Compiling some-crate v1.2.3 (#10)\r\n");
            assert!(matcher.end_of_chunk(&mut |_| Verdict::Accept).is_empty());
        }
        assert!(matcher.memory() < 32 << 10, "{} bytes", matcher.memory());
    }

    #[test]
    fn a_pattern_bound_to_the_beginning_is_over_when_that_is() {
        let mut matcher = matcher(&[r"\Aabc"]);
        assert_eq!(feed(&mut matcher, 0, "ab"), NONE);
        assert_eq!(feed(&mut matcher, 2, "x abc"), NONE);
        assert!(matcher.is_done() && !matcher.is_latched(0));
    }
}
