//! The search for one pattern of a set.

use regex_automata::util::captures::Captures;
use serde::{Deserialize, Serialize};

use super::{
    automaton::{Steps, Stop},
    hit::FoundMatch,
    window::Window,
};
use crate::stream::patterns::{Pattern, PatternSet};

/// A pattern of a set and the progress of its search.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    /// The lowest position at which a match may begin.
    pub(super) from: u64,
    pub(super) phase: Phase,
    #[serde(skip)]
    pub(super) search: Option<Search>,
    pub(super) found: Option<FoundMatch>,
    /// Whether a match exists that may still change.
    pub(super) open: bool,
}

/// The automaton that searches a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// The set's automaton.
    Watched,
    /// The pattern's own automaton.
    Own,
    /// No automaton; the text from this position on is searched again with each chunk.
    Again(u64),
    /// The pattern was accepted.
    Latched,
    /// The pattern can match only at the beginning of the text, which has passed.
    Hopeless,
}

impl Phase {
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Latched | Self::Hopeless)
    }
}

/// The search by a pattern's own automaton.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) steps: Steps,
    /// The position at which it began, and the current one.
    base: u64,
    pub(super) at: u64,
    /// The ends of the first and the best match that were seen.
    first: Option<u64>,
    pub(super) end: Option<u64>,
    /// The end of a certain match that begins before the kept text.
    beyond: Option<u64>,
}

/// Gives a watched pattern its own search, because a match of it ends at `end`; `sure`: regardless
/// of the following text.
pub(super) fn take_over(
    slots: &mut [Slot],
    set: &PatternSet,
    index: usize,
    window: &Window,
    end: u64,
    sure: bool,
) -> bool {
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
    if let Some(search) = slot.search.as_mut().filter(|_| from < floor) {
        let stop = search.advance(pattern, window);
        if sure {
            search.beyond = Some(end);
        } else if search.end.is_none()
            && (stop != Stop::End || search.steps.matches_at_end(&pattern.automaton).is_empty())
        {
            // The match's beginning was dropped, so only the set's automaton has seen the match:
            // the next byte or a rest makes it certain.
            slot.phase = Phase::Watched;
            slot.open = true;
            return false;
        }
    }
    true
}

impl Slot {
    /// Returns the slot without the states that its search has built. The search begins anew in the
    /// text from `floor` on, with the same result.
    pub(super) fn shed(&self, floor: u64) -> Self {
        let Self { from, phase, found, open, .. } = self;
        let mut shed = Self { from: *from, phase: *phase, search: None, found: found.clone(), open: *open };
        if shed.phase == Phase::Own && shed.found.is_none() {
            shed.begin_at(shed.from.max(floor));
            shed.open = *open;
        }
        shed
    }

    /// Continues the search from a position, as if no match had been found before it.
    pub(super) fn begin_at(&mut self, from: u64) {
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

    /// Returns the position from which to search the text again after the automaton gave up at
    /// `at`.
    fn again_from(&self, pattern: &Pattern, window: &Window, at: u64) -> u64 {
        let from = if pattern.crosses { window.floor() } else { window.line_of(at).max(window.floor()) };
        from.max(self.from)
    }

    /// Returns the position from which this search needs the text, beyond the needs of every
    /// search: for a match that is known and not settled yet, or for the text after a deferred one.
    pub(super) fn needs(&self, pattern: &Pattern, window: &Window) -> u64 {
        match (&self.found, self.phase, &self.search) {
            (Some(found), ..) => found.end,
            (None, Phase::Again(from), _) => from,
            (None, Phase::Own, Some(Search { base, first: Some(first), .. })) => {
                let longest = pattern.longest.map_or(0, |longest| first.saturating_sub(longest as u64));
                let line = if pattern.crosses { 0 } else { window.line_of(*first) };
                line.max(longest).max(*base)
            }
            _ => u64::MAX,
        }
    }

    /// Advances the pattern's search to the end of the text.
    pub(super) fn settle(&mut self, index: usize, pattern: &Pattern, window: &Window, rest: bool, limit: u64) {
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

    /// Settles by the pattern's own automaton; false when this text offers nothing more to do.
    fn settle_own(&mut self, index: usize, pattern: &Pattern, window: &Window, rest: bool, limit: u64) -> bool {
        let Some(search) = &mut self.search else { return false };
        let stop = search.advance(pattern, window);
        let here = stop == Stop::End && !search.steps.matches_at_end(&pattern.automaton).is_empty();
        let certain = match stop {
            Stop::Dead if search.end.is_none() && search.beyond.is_none() => {
                // Only a pattern that is bound to the beginning of the text gets here.
                self.phase = Phase::Hopeless;
                self.open = false;
                return false;
            }
            Stop::Dead => true,
            Stop::Lost => {
                // A match may be known whose end is not certain yet.
                let at = search.first.unwrap_or(search.at);
                self.phase = Phase::Again(self.again_from(pattern, window, at));
                return true;
            }
            Stop::Match | Stop::End => {
                let grown = search.first.is_some_and(|first| window.end() - first > limit / 2);
                rest || grown
                    || (pattern.foresees && search.steps.is_final(&pattern.automaton, search.end.is_some(), here))
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
        self.found = Some(FoundMatch::look_up(index, pattern, window, search.base, end));
        true
    }

    /// Settles by searching the recent text again; false when this text offers nothing more to do.
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
        let span = captures.as_ref().and_then(Captures::get_match);
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
            self.found = Some(FoundMatch::look_up(index, pattern, window, from, end));
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
