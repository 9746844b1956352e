//! A search that advances character by character: which secrets may have begun, and where.

use muxtap_api::{Error, Result};
use regex_automata::nfa::thompson::{self, NFA, State, WhichCaptures};
use regex_automata::util::{look::Look, primitives::StateID};

/// The maximum size of the compiled patterns, in bytes.
const NFA_BYTES: usize = 1024 * 1024;
/// The maximum number of a recording's patterns.
const PATTERNS: usize = 64;

/// Compiled patterns.
#[derive(Debug)]
pub(super) struct Nfa {
    nfa: NFA,
    /// The bytes with which a match can begin.
    first: Box<[bool; 256]>,
}

impl Nfa {
    pub(super) fn new(patterns: &[String]) -> Result<Self> {
        if patterns.len() > PATTERNS {
            let count = patterns.len();
            return Err(Error::invalid(format!(
                "redact: {count} patterns; at most {PATTERNS} are allowed; join some with `|`"
            )));
        }
        for pattern in patterns {
            let parsed = regex_syntax::Parser::new().parse(pattern).map_err(|error| refused(pattern, &error))?;
            match parsed.properties().minimum_len() {
                Some(0) => return Err(refused(pattern, &"it matches the empty text, which is everywhere")),
                None => return Err(refused(pattern, &"it can never match")),
                Some(_) => {}
            }
        }
        let config = NFA::config().nfa_size_limit(Some(NFA_BYTES)).which_captures(WhichCaptures::None);
        let nfa = thompson::Compiler::new().configure(config).build_many(patterns);
        let nfa = nfa.map_err(|error| Error::invalid(format!("redact: {error}; use fewer or simpler patterns")))?;
        let mut compiled = Self { nfa, first: Box::new([false; 256]) };
        // A pattern that begins with `^` counts too.
        let mut search = Search::default();
        search.begin_at(&compiled, 0, true, &mut Vec::new());
        for byte in 0..=255 {
            let begins = search.open.iter().any(|(state, _)| next(compiled.nfa.state(*state), byte).is_some());
            if let Some(first) = compiled.first.get_mut(usize::from(byte)) {
                *first = begins;
            }
        }
        Ok(compiled)
    }

    /// Returns whether a match can begin with this byte.
    pub(super) fn begins(&self, byte: u8) -> bool {
        self.first.get(usize::from(byte)).copied().unwrap_or(true)
    }
}

fn refused(pattern: &str, why: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("redact: {pattern:?}: {why}"))
}

/// Returns the state after this byte.
fn next(state: &State, byte: u8) -> Option<StateID> {
    match state {
        State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
        State::Sparse(sparse) => sparse.matches_byte(byte),
        State::Dense(dense) => dense.matches_byte(byte),
        _ => None,
    }
}

/// The state of the search in a line: the matches that may have begun. Each ends where it is
/// longest.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    /// The states, each with the first place at which a match in this state may have begun.
    open: Vec<(StateID, usize)>,
    /// The states among them.
    seen: Vec<bool>,
    stack: Vec<StateID>,
}

impl Search {
    /// Returns whether no match has begun.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the beginning of the first match that may continue, or else `end`.
    pub(super) fn open_from(&self, end: usize) -> usize {
        self.open.iter().map(|(_, from)| *from).min().unwrap_or(end)
    }

    /// Reads the character at this place, and adds the matches that end with it.
    ///
    /// A match is its beginning and the place after its end.
    pub(super) fn step(&mut self, nfa: &Nfa, character: char, at: usize, found: &mut Vec<(usize, usize)>) {
        let mut bytes = [0; 4];
        for (index, byte) in character.encode_utf8(&mut bytes).bytes().enumerate() {
            if self.open.is_empty() {
                self.seen.clear();
            }
            if index == 0 && nfa.begins(byte) {
                // After the others: of two matches in one state, the older one is kept.
                self.begin_at(nfa, at, at == 0, &mut Vec::new());
            }
            if self.open.is_empty() {
                return;
            }
            let open = std::mem::take(&mut self.open);
            self.seen.clear();
            for (state, from) in &open {
                if let Some(state) = next(nfa.nfa.state(*state), byte) {
                    self.add(nfa, state, *from, false, at + 1, found);
                }
            }
        }
    }

    fn begin_at(&mut self, nfa: &Nfa, at: usize, starts: bool, found: &mut Vec<(usize, usize)>) {
        self.add(nfa, nfa.nfa.start_anchored(), at, starts, at, found);
    }

    /// Adds a state, and all states that are reachable from it without a character.
    ///
    /// `starts`: the line begins here. Conditions on the next character (`$`, `\b`) count as true:
    /// replacing too much is better than too little.
    fn add(
        &mut self,
        nfa: &Nfa,
        state: StateID,
        from: usize,
        starts: bool,
        end: usize,
        found: &mut Vec<(usize, usize)>,
    ) {
        self.stack.push(state);
        while let Some(state) = self.stack.pop() {
            if self.seen.len() <= state.as_usize() {
                self.seen.resize(nfa.nfa.states().len(), false);
            }
            let Some(seen) = self.seen.get_mut(state.as_usize()) else { continue };
            if std::mem::replace(seen, true) {
                continue;
            }
            match nfa.nfa.state(state) {
                State::Look { look, next } => {
                    if !matches!(look, Look::Start | Look::StartLF | Look::StartCRLF) || starts {
                        self.stack.push(*next);
                    }
                }
                State::Union { alternates } => self.stack.extend(alternates.iter().rev().copied()),
                State::BinaryUnion { alt1, alt2 } => self.stack.extend([*alt2, *alt1]),
                State::Capture { next, .. } => self.stack.push(*next),
                State::Fail => {}
                State::Match { .. } => found.push((from, end)),
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) => self.open.push((state, from)),
            }
        }
    }
}
