//! Streaming regex search on a pane's output text: every byte is looked at once, whatever the history.
//!
//! *Match text* is the decoder's text with one `\n` for each line end. `\n`, `\r\n`, and a `\r` alone each end a line (a run of `\r` is
//! one); so does cursor movement to another line, a full clear and a reset, unless the current line is empty. Backspace does nothing:
//! what has been matched cannot be taken back.
//!
//! For each pattern the result is that of `regex::Regex::find` (multi-line) on the whole match text, however it was cut into chunks.
//! A match is given at the end of the first chunk after which nothing that may come could change it; one that could still grow, or
//! hangs on a `$` at the very end, is given when the stream rests ([`Matcher::rest`]). `docs/waits.md` numbers what is promised.
//!
//! One automaton watches for all patterns of a set (a pattern alone needs none). When it sees a match of a pattern end, that pattern
//! gets an automaton of its own, which settles where the leftmost-first match ends; the window of recent text then gives its beginning
//! and captures.

use std::collections::BTreeMap;

use memchr::{memchr, memrchr};

use super::{
    patterns::{Pattern, PatternSet},
    text::{Control, TextSink},
};
use automaton::{Steps, Stop};
use window::Window;

pub(crate) mod automaton;
mod window;

/// A match. Text in it is lossy UTF-8 and cut to 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The pattern's number in its set.
    pub pattern: usize,
    /// Raw offset of the first byte.
    pub start: u64,
    /// Raw offset just after the last byte: reading on from here loses and repeats nothing.
    pub end: u64,
    /// The line in which it stands, or the lines, as far as they have been printed.
    pub line: String,
    /// The whole match, then its groups; a group that took no part is `None`.
    pub captures: Vec<Option<String>>,
    /// Named groups that took part.
    pub groups: BTreeMap<String, String>,
    /// The match began before the text that is kept ([`Limits::window_bytes`](super::patterns::Limits)): `start` is where that text
    /// begins, and there are no captures.
    pub truncated: bool,
}

/// What the owner of a matcher thinks of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts; the pattern is latched and not searched any more.
    Accept,
    /// It does not (it is the echo of what was typed); the search goes on after its end.
    Reject,
    /// It cannot be told yet: the same hit is shown again at the next end of a chunk or rest.
    Later,
}

/// Searches one stream of match text for the patterns of a set, from where it was made.
///
/// Feed it through [`TextSink`], in pieces of at most some 64 KiB of raw output, and call [`Matcher::end_of_chunk`] after each.
#[derive(Debug)]
pub struct Matcher {
    set: PatternSet,
    window: Window,
    watch: Option<Steps>,
    /// Whether `watch` is being stepped, and up to where it has come.
    watching: bool,
    watched: u64,
    slots: Vec<Slot>,
    rested: bool,
}

#[derive(Debug)]
struct Slot {
    /// A match must begin here or later.
    from: u64,
    phase: Phase,
    search: Option<Search>,
    found: Option<Found>,
    /// There is a match that may still change.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The set's automaton looks after it.
    Watched,
    /// Its own automaton does.
    Own,
    /// Its own automaton cannot; the text from this position on is searched again with each chunk.
    Again(u64),
    /// Accepted.
    Latched,
    /// It is bound to the beginning of the text, and that is over.
    Hopeless,
}

impl Phase {
    fn is_over(self) -> bool {
        matches!(self, Self::Latched | Self::Hopeless)
    }
}

/// A pattern's own automaton at work.
#[derive(Debug)]
struct Search {
    steps: Steps,
    /// Where it began, and up to where it has come.
    base: u64,
    at: u64,
    /// Where the first and the best match that were seen end.
    first: Option<u64>,
    end: Option<u64>,
    /// A match certainly ends here though it begins before the text that is kept.
    beyond: Option<u64>,
}

#[derive(Debug)]
struct Found {
    hit: Hit,
    end: u64,
    deferred: bool,
}

impl Matcher {
    /// A matcher that begins at an empty text: `^` matches at its very beginning.
    pub fn new(set: PatternSet) -> Self {
        let watched = |index| set.watcher().is_some_and(|watcher| watcher.members.contains(&index));
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

    /// Ends a chunk: `judge` is shown each match that has become certain, in the order in which they end. Gives those it accepted.
    pub fn end_of_chunk(&mut self, judge: &mut dyn FnMut(&Hit) -> Verdict) -> Vec<Hit> {
        self.pass(false, judge)
    }

    /// The stream rests (no byte for some 30 ms): a `$` and a `\b` at its end hold, a `\r` at its end is a line end, and a match that
    /// more output could extend is given as it is. May be called again; without new text it finds nothing new.
    pub fn rest(&mut self, judge: &mut dyn FnMut(&Hit) -> Verdict) -> Vec<Hit> {
        self.window.release();
        let accepted = self.pass(true, judge);
        self.rested = true;
        accepted
    }

    /// Whether [`Matcher::rest`] may find what [`Matcher::end_of_chunk`] could not. Turns false with a rest until more text comes; a hit
    /// for which the owner answered [`Verdict::Later`] does not make it true.
    pub fn wants_rest(&self) -> bool {
        !self.rested && !self.is_done() && (self.window.holds_return() || self.slots.iter().any(|slot| slot.open))
    }

    /// Whether no pattern is searched any more.
    pub fn is_done(&self) -> bool {
        self.slots.iter().all(|slot| slot.phase.is_over())
    }

    /// Whether a pattern was accepted.
    pub fn is_latched(&self, pattern: usize) -> bool {
        self.slots.get(pattern).is_some_and(|slot| slot.phase == Phase::Latched)
    }

    /// The patterns that are searched.
    pub fn patterns(&self) -> &PatternSet {
        &self.set
    }

    /// Bytes that this matcher holds, without the set that it shares.
    pub fn memory(&self) -> usize {
        let searches = self.slots.iter().filter_map(|slot| slot.search.as_ref()).map(|search| search.steps.memory());
        self.window.memory()
            + self.watch.as_ref().map_or(0, Steps::memory)
            + searches.sum::<usize>()
            + size_of_val(self.slots.as_slice())
    }

    fn pass(&mut self, rest: bool, judge: &mut dyn FnMut(&Hit) -> Verdict) -> Vec<Hit> {
        let mut accepted = Vec::new();
        self.watch();
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
                    slot.search = None;
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

    /// Steps the set's automaton over the new text and gives each pattern that it names an automaton of its own.
    fn watch(&mut self) {
        let from = std::mem::replace(&mut self.watched, self.window.end());
        let Some(watcher) = self.set.watcher() else { return };
        let mut left = self.slots.iter().filter(|slot| slot.phase == Phase::Watched).count();
        if left == 0 {
            self.watching = false;
            return;
        }
        let behind = self.window.behind(from);
        let steps = match &mut self.watch {
            Some(steps) if self.watching => Some(steps),
            Some(steps) => steps.restart(&watcher.automaton, behind).then_some(steps),
            empty => Steps::new(&watcher.automaton, behind).map(|steps| empty.insert(steps)),
        };
        self.watching = steps.is_some();
        if let Some(steps) = steps {
            let mut at = self.window.index(from);
            while left > 0 {
                let (stop, reached) = steps.run(&watcher.automaton, self.window.bytes(), at);
                at = reached;
                let end = self.window.position(at).saturating_sub(1);
                match stop {
                    Stop::Match => {
                        for pattern in steps.matches(&watcher.automaton) {
                            left -= usize::from(take_over(
                                &mut self.slots,
                                &self.set,
                                watcher.members.get(pattern.as_usize()),
                                &self.window,
                                end,
                                true,
                            ));
                        }
                    }
                    Stop::End => {
                        for pattern in steps.matches_at_end(&watcher.automaton) {
                            let end = self.window.end();
                            left -= usize::from(take_over(
                                &mut self.slots,
                                &self.set,
                                watcher.members.get(pattern.as_usize()),
                                &self.window,
                                end,
                                false,
                            ));
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
            // The automaton gave up (it has no reason to): each pattern goes on alone.
            for slot in self.slots.iter_mut().filter(|slot| slot.phase == Phase::Watched) {
                slot.begin_at(slot.from.max(self.window.floor()));
            }
        }
    }

    /// Gives patterns of which nothing is pending back to the set's automaton.
    fn hand_back(&mut self) {
        let Some(watcher) = self.set.watcher() else { return };
        let end = self.window.end();
        let behind = self.window.behind(end);
        let open = self.slots.iter().filter(|slot| !slot.phase.is_over()).count();
        if open < 2
            || (self.watching && !self.watch.as_mut().is_some_and(|steps| steps.is_fresh(&watcher.automaton, behind)))
        {
            return;
        }
        for &index in &watcher.members {
            let (Some(slot), Some(pattern)) = (self.slots.get_mut(index), self.set.get(index)) else { continue };
            if slot.phase != Phase::Own || slot.found.is_some() || slot.open {
                continue;
            }
            // Whatever was pending when the set's automaton stopped is dead or pending here too, and here is nothing.
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
        for slot in &self.slots {
            if let Some(found) = &slot.found {
                keep = keep.min(found.end);
            }
        }
        if self.is_done() {
            keep = end;
        }
        self.window.trim(keep.max(end.saturating_sub(limit as u64)));
    }
}

/// Lets a watched pattern go on alone, because a match of it ends at `end`. `sure`: whatever follows.
fn take_over(
    slots: &mut [Slot],
    set: &PatternSet,
    index: Option<&usize>,
    window: &Window,
    end: u64,
    sure: bool,
) -> bool {
    let Some(&index) = index else { return false };
    let (Some(slot), Some(pattern)) = (slots.get_mut(index), set.get(index)) else { return false };
    if slot.phase != Phase::Watched {
        return false;
    }
    let mut from = if pattern.crosses { slot.from } else { slot.from.max(window.line_of(end)) };
    if let Some(longest) = pattern.longest {
        from = from.max(end.saturating_sub(longest as u64));
    }
    let floor = window.floor();
    slot.phase = Phase::Own;
    slot.search_from(pattern, window, from.max(floor));
    if let Some(search) = slot.search.as_mut().filter(|_| sure && from < floor) {
        search.beyond = Some(end);
    }
    true
}

impl Slot {
    /// Searches on from a position, as if nothing had been found before it.
    fn begin_at(&mut self, from: u64) {
        self.from = from;
        self.phase = Phase::Own;
        self.open = false;
        if let Some(search) = &mut self.search {
            search.at = u64::MAX;
        }
    }

    /// Sets the pattern's own automaton to a position.
    fn search_from(&mut self, pattern: &Pattern, window: &Window, at: u64) {
        let behind = window.behind(at);
        let ready = match &mut self.search {
            Some(search) => {
                search.base = at;
                search.at = at;
                search.first = None;
                search.end = None;
                search.beyond = None;
                search.steps.restart(&pattern.automaton, behind)
            }
            None => Steps::new(&pattern.automaton, behind)
                .map(|steps| self.search = Some(Search { steps, base: at, at, first: None, end: None, beyond: None }))
                .is_some(),
        };
        if !ready {
            self.phase = Phase::Again(self.again_from(pattern, window, at));
        }
    }

    /// From where on the text is to be searched again when the automaton gave up at a position.
    fn again_from(&self, pattern: &Pattern, window: &Window, at: u64) -> u64 {
        let from = if pattern.crosses { window.floor() } else { window.line_of(at).max(window.floor()) };
        from.max(self.from)
    }

    /// Brings the pattern's search up to the end of the text.
    fn settle(&mut self, index: usize, pattern: &Pattern, window: &Window, rest: bool, limit: u64) {
        while self.found.is_none() {
            match self.phase {
                Phase::Watched | Phase::Latched | Phase::Hopeless => return,
                Phase::Own => {
                    if self.search.as_ref().is_none_or(|search| search.at == u64::MAX) {
                        self.search_from(pattern, window, self.from.max(window.floor()));
                        if self.phase != Phase::Own {
                            continue;
                        }
                    }
                    if !self.settle_own(index, pattern, window, rest, limit) {
                        return;
                    }
                }
                Phase::Again(from) => {
                    if !self.settle_again(index, pattern, window, rest, from, limit) {
                        return;
                    }
                }
            }
        }
        self.open = false;
    }

    /// By the pattern's own automaton; false when there is nothing more to do with this text.
    fn settle_own(&mut self, index: usize, pattern: &Pattern, window: &Window, rest: bool, limit: u64) -> bool {
        let Some(search) = &mut self.search else { return false };
        let stop = search.advance(pattern, window);
        let here = stop == Stop::End && !search.steps.matches_at_end(&pattern.automaton).is_empty();
        let certain = match stop {
            Stop::Dead if search.end.is_none() => {
                // Only a pattern that is bound to the beginning of the text comes here.
                self.phase = Phase::Hopeless;
                self.open = false;
                return false;
            }
            Stop::Dead => true,
            Stop::Lost => {
                // A match may be known that is not yet known to be whole.
                let at = search.first.unwrap_or(search.at);
                self.phase = Phase::Again(self.again_from(pattern, window, at));
                return true;
            }
            Stop::Match | Stop::End => {
                let grown = search.first.is_some_and(|first| window.end() - first > limit / 2);
                rest || grown || search.steps.is_final(&pattern.automaton, search.end.is_some(), here)
            }
        };
        let end = if here { Some(window.end()) } else { search.end };
        self.open = end.is_some() && !certain;
        let end = match end {
            Some(end) if certain => end,
            Some(_) => return false,
            None => match search.beyond {
                Some(end) => end,
                None => return false,
            },
        };
        self.found = Some(find(index, pattern, window, search.base, end));
        true
    }

    /// By searching the recent text anew; false when there is nothing more to do with this text.
    fn settle_again(
        &mut self,
        index: usize,
        pattern: &Pattern,
        window: &Window,
        rest: bool,
        from: u64,
        limit: u64,
    ) -> bool {
        let from = from.max(window.floor());
        let line = window.line();
        let captures = pattern.find(window.bytes(), window.index(from));
        let span = captures.as_ref().and_then(regex_automata::util::captures::Captures::get_match);
        let Some(span) = span else {
            self.open = false;
            if !pattern.crosses && line > from {
                // A new line: the automaton may try again.
                self.phase = Phase::Own;
                self.search_from(pattern, window, line);
                return true;
            }
            return false;
        };
        let end = window.position(span.end());
        let ended = !pattern.crosses && end < line;
        let grown = window.end() - window.position(span.start()) > limit / 2;
        if rest || ended || grown {
            self.found = Some(find(index, pattern, window, from, end));
            return true;
        }
        self.open = true;
        false
    }
}

impl Search {
    fn advance(&mut self, pattern: &Pattern, window: &Window) -> Stop {
        let mut at = window.index(self.at);
        loop {
            let (stop, reached) = self.steps.run(&pattern.automaton, window.bytes(), at);
            at = reached;
            self.at = window.position(at);
            if stop != Stop::Match {
                return stop;
            }
            self.first = self.first.or(Some(self.at - 1));
            self.end = Some(self.at - 1);
        }
    }
}

/// The match that ends at `end`, looked up in the text that is kept.
fn find(pattern_index: usize, pattern: &Pattern, window: &Window, from: u64, end: u64) -> Found {
    let floor = window.index(from.max(window.floor()));
    let captures = pattern.find(window.bytes(), floor);
    let whole = captures.as_ref().and_then(regex_automata::util::captures::Captures::get_match);
    let (start, stop) = whole.map_or((floor, window.index(end).max(floor)), |whole| (whole.start(), whole.end()));
    let text = |from: usize, to: usize| clip(window.bytes(), from, to);
    let mut hit = Hit {
        pattern: pattern_index,
        start: window.raw_start(window.position(start)),
        end: window.raw_end(window.position(stop)),
        line: line_around(window.bytes(), start, stop),
        captures: Vec::new(),
        groups: BTreeMap::new(),
        truncated: whole.is_none(),
    };
    if let Some(captures) = captures {
        hit.captures = captures.iter().map(|span| span.map(|span| text(span.start, span.end))).collect();
        for (name, group) in captures.group_info().pattern_names(regex_automata::PatternID::ZERO).zip(&hit.captures) {
            if let (Some(name), Some(group)) = (name, group) {
                hit.groups.insert(name.to_owned(), group.clone());
            }
        }
    }
    Found { hit, end: window.position(stop), deferred: false }
}

/// What a hit's text is cut to.
const SHOWN: usize = 4 << 10;
/// How much of a long line is shown before the match.
const SHOWN_BEFORE: usize = 1 << 10;

fn line_around(bytes: &[u8], start: usize, end: usize) -> String {
    let from = bytes.get(..start).and_then(|before| memrchr(b'\n', before)).map_or(0, |found| found + 1);
    let last = end.saturating_sub(1).max(start);
    let to = bytes.get(last..).and_then(|after| memchr(b'\n', after)).map_or(bytes.len(), |found| last + found);
    clip(bytes, from.max(start.saturating_sub(SHOWN_BEFORE)), to)
}

/// Bytes `from..to`, cut to whole characters.
fn clip(bytes: &[u8], mut from: usize, to: usize) -> String {
    let inside = |index: usize| bytes.get(index).is_some_and(|byte| (0x80..0xc0).contains(byte));
    let mut end = to.min(from.saturating_add(SHOWN));
    while inside(end) && end > from && end < to {
        end -= 1;
    }
    while inside(from) && from < end {
        from += 1;
    }
    String::from_utf8_lossy(bytes.get(from..end).unwrap_or_default()).into_owned()
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
    use super::*;
    use crate::pane::patterns::{Limits, PatternSpec};

    fn matcher(patterns: &[&str]) -> Matcher {
        let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
        Matcher::new(PatternSet::new(&specs, &Limits::default()).unwrap())
    }
    /// Feeds chunks as the decoder would, and gives what each of them accepted.
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
        for patterns in [&["(?s)BEGIN.*?END"][..], &["(?s)BEGIN.*?END", "never"], &["BEGIN.*?END", "never"]] {
            let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
            let mut matcher = Matcher::new(PatternSet::new(&specs, &limits).unwrap());
            let mut offset = 0;
            for chunk in ["BEGIN "].into_iter().chain([". . . . . "; 200]) {
                assert_eq!(feed(&mut matcher, offset, chunk), NONE);
                offset += chunk.len() as u64;
            }
            assert!(matcher.window.bytes().len() < 1024);
            oracle::feed(&mut matcher, offset, "END");
            let hit = matcher.end_of_chunk(&mut |_| Verdict::Accept).remove(0);
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
