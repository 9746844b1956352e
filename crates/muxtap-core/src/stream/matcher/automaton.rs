//! Lazy DFAs that are stepped by hand, which lets their state outlive a chunk.
//!
//! A DFA reports a match one byte late: the state after the byte *behind* the match reports it.
//! Hence the probes at a chunk's end.

use std::borrow::Borrow;

use regex_automata::{
    Anchored, MatchKind, PatternID, Span,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson::NFA,
    util::{prefilter::Prefilter, start},
};
use regex_syntax::hir::Hir;

use super::{bounds::Limits, sample::sample};

/// The maximum number of a set's patterns that are rehearsed.
const REHEARSED: usize = 8;
/// The maximum number of NFA states of a pattern that is rehearsed; `\w` has some 700.
const REHEARSED_STATES: usize = 10_000;

/// The kind of end that an automaton searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The end of the leftmost-first match of one pattern.
    First,
    /// The end of the leftmost-first match of one pattern, correct while the text is ASCII.
    FirstAscii,
    /// Every end of every match of many patterns.
    Every,
}

/// A lazy DFA with the states that a search is likely to need.
#[derive(Debug)]
pub(crate) struct Automaton {
    dfa: DFA,
    /// The cache from which every search begins with a copy. States in it need not be built when
    /// the byte arrives that completes a wait.
    rehearsed: Cache,
    prefilter: Option<Prefilter>,
    ascii: bool,
    capacity: usize,
}

impl Automaton {
    pub(crate) fn new<H: Borrow<Hir>>(
        nfa: NFA,
        hirs: &[H],
        kind: Kind,
        limits: &Limits,
        name: &str,
    ) -> crate::Result<Self> {
        let match_kind = if kind == Kind::Every { MatchKind::All } else { MatchKind::LeftmostFirst };
        let prefilter = Prefilter::from_hirs_prefix(MatchKind::LeftmostFirst, hirs).filter(Prefilter::is_fast);
        let config = DFA::config().match_kind(match_kind).specialize_start_states(prefilter.is_some());
        let refuse = |error: &dyn std::error::Error| {
            crate::Error::invalid(format!("{name} cannot be searched for in a stream ({error}); use a simpler pattern"))
        };
        let minimum = config.get_minimum_cache_capacity(&nfa).map_err(|error| refuse(&error))?;
        // The minimum holds a handful of states; with a few times that, a probe fits in the last
        // quarter and never clears the cache.
        let capacity = limits.cache_bytes.max(minimum.saturating_mul(8));
        let dfa = DFA::builder()
            .configure(config.cache_capacity(capacity))
            .build_from_nfa(nfa)
            .map_err(|error| refuse(&error))?;
        let rehearsed = dfa.create_cache();
        // The states of a huge automaton take long to build, and the start of a wait must not delay
        // the other waits.
        let small = dfa.get_nfa().states().len() <= REHEARSED_STATES;
        let mut automaton = Self { dfa, rehearsed, prefilter, ascii: kind == Kind::FirstAscii, capacity };
        if small {
            automaton.rehearse(hirs);
        }
        Ok(automaton)
    }

    /// Returns the number of bytes that the automaton occupies.
    pub(crate) fn memory(&self) -> usize {
        let prefilter = self.prefilter.as_ref().map_or(0, Prefilter::memory_usage);
        self.dfa.get_nfa().memory_usage() + self.rehearsed.memory_usage() + prefilter
    }

    /// Returns the number of bytes with which a search begins.
    pub(crate) fn search_memory(&self) -> usize {
        self.rehearsed.memory_usage()
    }

    /// Searches texts that match, as a later search will, and keeps the states that were built.
    fn rehearse<H: Borrow<Hir>>(&mut self, hirs: &[H]) {
        for hir in hirs.iter().take(REHEARSED) {
            let text = sample(hir.borrow());
            let Some(mut steps) = Steps::new(self, Some(b'\n')) else { return };
            let mut at = 0;
            loop {
                let (stop, reached) = steps.run(self, &text, at);
                at = reached;
                if stop == Stop::Match {
                    steps.is_final(self, true, false);
                }
                if stop != Stop::Match {
                    let here = !steps.matches_at_end(self).is_empty();
                    steps.is_final(self, here, here);
                    break;
                }
            }
            // A set of many patterns is not worth more than a part of the memory that a search may
            // hold.
            if steps.memory() > self.capacity / 2 {
                return;
            }
            self.rehearsed = steps.cache;
        }
    }
}

/// The reason for which stepping stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The end of the text.
    End,
    /// The state after byte `at - 1` reports a match that ends at `at - 1`.
    Match,
    /// No further text can match.
    Dead,
    /// The automaton cannot determine the rest.
    Lost,
}

/// A place in a text and the automaton's state there.
#[derive(Debug)]
pub(crate) struct Steps {
    cache: Cache,
    state: LazyStateID,
}

impl Steps {
    /// Begins at a place whose preceding byte is `behind` (`None` at the start of the text).
    /// Returns `None` if the automaton cannot start there.
    pub(crate) fn new(automaton: &Automaton, behind: Option<u8>) -> Option<Self> {
        let mut cache = automaton.rehearsed.clone();
        let state = start_state(automaton, &mut cache, behind)?;
        Some(Self { cache, state })
    }

    /// Begins again with the states that were built.
    pub(crate) fn restart(&mut self, automaton: &Automaton, behind: Option<u8>) -> bool {
        match start_state(automaton, &mut self.cache, behind) {
            Some(state) => {
                self.state = state;
                true
            }
            None => false,
        }
    }

    /// Steps from byte `at` of `bytes` until there is something to report, and returns it with its
    /// position.
    pub(crate) fn run(&mut self, automaton: &Automaton, bytes: &[u8], mut at: usize) -> (Stop, usize) {
        let mut prefilter = automaton.prefilter.as_ref();
        loop {
            if at >= bytes.len() {
                return (Stop::End, bytes.len());
            }
            if self.state.is_start()
                && let Some(filter) = prefilter
            {
                let target = if let Some(span) = filter.find(bytes, Span { start: at, end: bytes.len() }) {
                    span.start
                } else {
                    // A literal may begin in this chunk and end in the next.
                    prefilter = None;
                    bytes.len().saturating_sub(filter.max_needle_len().saturating_sub(1))
                };
                if target > at {
                    at = target;
                    let behind = at.checked_sub(1).and_then(|index| bytes.get(index)).copied();
                    if !self.restart(automaton, behind) {
                        return (Stop::Lost, at);
                    }
                    if at >= bytes.len() {
                        continue;
                    }
                }
            }
            let stop = if automaton.ascii {
                self.step::<true>(automaton, bytes, &mut at)
            } else {
                self.step::<false>(automaton, bytes, &mut at)
            };
            if let Some(stop) = stop {
                return (stop, at);
            }
        }
    }

    /// Steps until the state is a special one (at least one byte); `None` where that is a start
    /// state or the end.
    fn step<const ASCII: bool>(&mut self, automaton: &Automaton, bytes: &[u8], at: &mut usize) -> Option<Stop> {
        let dfa = &automaton.dfa;
        while let Some(&byte) = bytes.get(*at) {
            if ASCII && !byte.is_ascii() {
                return Some(Stop::Lost);
            }
            let Ok(next) = dfa.next_state(&mut self.cache, self.state, byte) else { return Some(Stop::Lost) };
            self.state = next;
            *at += 1;
            if next.is_tagged() {
                return match next {
                    state if state.is_match() => Some(Stop::Match),
                    state if state.is_dead() => Some(Stop::Dead),
                    state if state.is_start() => None,
                    _ => Some(Stop::Lost),
                };
            }
            // Nearly all bytes lead from one plain state to another that is already built. This
            // loop handles only those, and so borrows the states without changing them.
            let mut state = next;
            let mut done = 0;
            for &byte in bytes.get(*at..).unwrap_or_default() {
                let next = dfa.next_state_untagged(&self.cache, state, byte);
                if next.is_tagged() || (ASCII && !byte.is_ascii()) {
                    break;
                }
                state = next;
                done += 1;
            }
            self.state = state;
            *at += done;
        }
        None
    }

    /// Returns the automaton's patterns that match according to the current state.
    pub(crate) fn matches<'a>(&'a self, automaton: &'a Automaton) -> impl Iterator<Item = PatternID> + 'a {
        matches_of(automaton, &self.cache, self.state)
    }

    /// Returns the automaton's patterns that match here if the text ends here.
    pub(crate) fn matches_at_end(&mut self, automaton: &Automaton) -> Vec<PatternID> {
        self.probe(automaton, |dfa, cache, state| {
            let Ok(end) = dfa.next_eoi_state(cache, state) else { return Vec::new() };
            if end.is_match() { matches_of(automaton, cache, end).collect() } else { Vec::new() }
        })
    }

    /// Returns whether the search is in the state of one that has just begun, after a byte
    /// `behind`.
    pub(crate) fn is_fresh(&mut self, automaton: &Automaton, behind: Option<u8>) -> bool {
        let state = self.state;
        self.probe(automaton, |_, cache, _| start_state(automaton, cache, behind)) == Some(state)
    }

    /// Returns whether no further text can change the match. `known`: a match that ends earlier was
    /// seen; `here`: one ends here if the text does.
    pub(crate) fn is_final(&mut self, automaton: &Automaton, known: bool, here: bool) -> bool {
        if !known && !here {
            return false;
        }
        let roof = automaton.capacity / 8 * 7;
        self.probe(automaton, |dfa, cache, state| {
            let mut done: Vec<LazyStateID> = Vec::new();
            for unit in dfa.byte_classes().representatives(0..=u8::MAX) {
                let Some(byte) = unit.as_u8() else { continue };
                let Ok(next) = dfa.next_state(cache, state, byte) else { return false };
                if next.is_dead() {
                    // The match stays at the place where it was seen; that place must not be this
                    // one.
                    if here || !known {
                        return false;
                    }
                } else if !here || !next.is_match() {
                    return false;
                } else if !done.contains(&next) {
                    for unit in dfa.byte_classes().representatives(0..=u8::MAX) {
                        let Some(byte) = unit.as_u8() else { continue };
                        let dead = dfa.next_state(cache, next, byte).is_ok_and(|after| after.is_dead());
                        if !dead || cache.memory_usage() > roof {
                            return false;
                        }
                    }
                    done.push(next);
                }
                if cache.memory_usage() > roof {
                    return false;
                }
            }
            true
        })
    }

    /// Looks ahead from the current state. Building states may clear a full cache, which would
    /// invalidate the current state's id; in that case, a copy is used.
    fn probe<T>(&mut self, automaton: &Automaton, look: impl FnOnce(&DFA, &mut Cache, LazyStateID) -> T) -> T {
        if self.cache.memory_usage() < automaton.capacity / 4 * 3 {
            look(&automaton.dfa, &mut self.cache, self.state)
        } else {
            look(&automaton.dfa, &mut self.cache.clone(), self.state)
        }
    }

    /// Returns the number of bytes of the states that were built.
    pub(crate) fn memory(&self) -> usize {
        self.cache.memory_usage()
    }
}

fn start_state(automaton: &Automaton, cache: &mut Cache, behind: Option<u8>) -> Option<LazyStateID> {
    if automaton.ascii && behind.is_some_and(|byte| !byte.is_ascii()) {
        return None;
    }
    let config = start::Config::new().anchored(Anchored::No).look_behind(behind);
    automaton.dfa.start_state(cache, &config).ok()
}

fn matches_of<'a>(
    automaton: &'a Automaton,
    cache: &'a Cache,
    state: LazyStateID,
) -> impl Iterator<Item = PatternID> + 'a {
    let count = if state.is_match() { automaton.dfa.match_len(cache, state) } else { 0 };
    (0..count).map(move |index| automaton.dfa.match_pattern(cache, state, index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_automata::nfa::thompson::{self, Compiler};

    fn automaton(pattern: &str, kind: Kind, limits: &Limits) -> Automaton {
        let hir = regex_syntax::parse(pattern).unwrap();
        let config = thompson::Config::new().which_captures(thompson::WhichCaptures::None);
        let nfa = Compiler::new().configure(config).build_from_hir(&hir).unwrap();
        Automaton::new(nfa, &[hir], kind, limits, "it").unwrap()
    }

    #[test]
    fn what_was_rehearsed_is_not_built_again() {
        let built = |automaton: &Automaton| {
            let mut steps = Steps::new(automaton, Some(b'\n')).unwrap();
            let before = steps.memory();
            assert_eq!(steps.run(automaton, b"<w1 4711>\n", 0), (Stop::Match, 10));
            assert!(steps.is_final(automaton, true, false));
            steps.memory() - before
        };
        let rehearsed = automaton(r"<w1 (\d+)>", Kind::First, &Limits::default());
        let cold = Automaton {
            rehearsed: rehearsed.dfa.create_cache(),
            ..automaton(r"<w1 (\d+)>", Kind::First, &Limits::default())
        };
        assert!(built(&rehearsed) * 10 < built(&cold), "{} of {}", built(&rehearsed), built(&cold));
    }

    #[test]
    fn a_rehearsal_stays_within_the_limit_of_a_search() {
        let limits = Limits { cache_bytes: 16 << 10, ..Limits::default() };
        let automaton = automaton(r"(?:\w{3,40}-){2,20}end", Kind::Every, &limits);
        assert!(automaton.rehearsed.memory_usage() <= automaton.capacity, "{}", automaton.rehearsed.memory_usage());
    }
}
