//! The engine for regular languages.
//! The proof that none of its searches is catastrophic: `regex-automata` looks at each character of
//! the text at most once for each state, and a search here has at most [`MAX_STEPS`] of such looks.

use std::sync::OnceLock;

use regex_automata::{
    meta,
    nfa::thompson::{self, WhichCaptures},
};

use super::parse::{self, character};

/// States times bytes of text in one search. Larger searches go to the workers.
const MAX_STEPS: usize = 8_000_000;
/// Bytes that an automaton may take before it is determinised.
const MAX_MEMORY: usize = 512 * 1024;

/// A text to search, in the form that each engine needs.
#[derive(Debug)]
pub struct Haystack {
    text: String,
    /// The text with halves of pairs in place of what is beyond U+FFFF; `None` where nothing is.
    with_halves: Option<String>,
    /// Whether the text holds line ends other than `\n`, which automata do not know.
    has_other_line_ends: bool,
    units: OnceLock<Vec<u16>>,
}

impl From<String> for Haystack {
    fn from(text: String) -> Self {
        let is_beyond = text.bytes().any(|byte| byte >= 0xf0);
        let with_halves = is_beyond.then(|| text.encode_utf16().map(character).collect());
        let has_other_line_ends = text.contains(['\r', '\u{2028}', '\u{2029}']);
        Self { text, with_halves, has_other_line_ends, units: OnceLock::new() }
    }
}

impl Haystack {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text's UTF-16 units, as JavaScript has them.
    pub fn text(&self) -> &[u16] {
        self.units.get_or_init(|| self.text.encode_utf16().collect())
    }
}

/// A pattern whose language is regular.
#[derive(Debug)]
pub struct Automaton {
    regex: meta::Regex,
    states: usize,
    has_line_ends: bool,
    has_inner_places: bool,
}

impl Automaton {
    /// Builds the automaton of a pattern that compiles. `None`: it has none, or one that is too
    /// large.
    pub fn build(units: &[u16]) -> Option<Self> {
        let language = parse::language(units)?;
        let config = thompson::Config::new().which_captures(WhichCaptures::None).nfa_size_limit(Some(MAX_MEMORY));
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(&language.hir).ok()?;
        let config = meta::Config::new()
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(2 * MAX_MEMORY))
            .hybrid_cache_capacity(MAX_MEMORY);
        let regex = meta::Builder::new().configure(config).build_from_hir(&language.hir).ok()?;
        Some(Self {
            regex,
            states: nfa.states().len(),
            has_line_ends: language.has_line_ends,
            has_inner_places: language.has_inner_places,
        })
    }

    /// Returns whether the text holds a match. `None`: only the other engine can tell in time.
    pub fn is_match(&self, haystack: &Haystack) -> Option<bool> {
        if self.has_line_ends && haystack.has_other_line_ends {
            return None;
        }
        // A search that meets such a place within a character goes on behind it, and misses what
        // begins with that character.
        if self.has_inner_places && !haystack.text.is_ascii() {
            return None;
        }
        let text = haystack.with_halves.as_ref().unwrap_or(&haystack.text);
        (self.states.saturating_mul(text.len()) <= MAX_STEPS).then(|| self.regex.is_match(text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bridge::pattern::{dialect, worker};

    const PIECES: &[&str] = &[
        "a",
        "b",
        "c",
        "1",
        "-",
        "_",
        " ",
        "\\n",
        ".",
        "*",
        "+",
        "?",
        "{1}",
        "{1,2}",
        "{0}",
        "{1,}",
        "{",
        "}",
        "]",
        "(",
        ")",
        "(?:",
        "(?<n>",
        "|",
        "^",
        "$",
        "\\d",
        "\\D",
        "\\w",
        "\\W",
        "\\s",
        "\\S",
        "\\b",
        "\\B",
        "[a-c]",
        "[^a-c]",
        "[\\d-z]",
        "[^\\w-]",
        "[]",
        "[^]",
        "[",
        "[^",
        "-z",
        "\\-",
        "\\]",
        "\\u0041",
        "\\ud83d",
        "\\ude00",
        "😀",
        "[😀]",
        "é",
        "\\xe9",
        "\\x4",
        "\\cJ",
        "\\0",
        "\u{2028}",
        "*?",
        "??",
        "[^\\ud83d]",
        "[\\s\\S]",
    ];
    const TEXTS: &[&str] = &[
        "",
        "a",
        "abc",
        "ab 12\nc_a-",
        "b\n\nab",
        "😀",
        "a😀b",
        "é\u{a0}\u{feff}",
        "a\u{2028}b",
        "]}{",
        "A\u{0}xx4",
        "\u{10ffff}",
        "aaa bbb\n$ ",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        /// Both engines give the same answer wherever both give one.
        #[test]
        fn the_automaton_says_what_the_other_engine_says(
            pieces in prop::collection::vec(prop::sample::select(PIECES), 1..7),
            own in "[ab\\n \\-_1é😀]{0,12}",
        ) {
            let source: Vec<u16> = pieces.concat().encode_utf16().collect();
            let Some(units) = dialect::for_regress(&source) else { return Ok(()) };
            let (Some(regex), Some(automaton)) = (worker::compile(&units), Automaton::build(&units)) else { return Ok(()) };
            for text in TEXTS.iter().copied().chain([own.as_str()]) {
                let haystack = Haystack::from(text.to_owned());
                if let Some(matched) = automaton.is_match(&haystack) {
                    let other = regex.find_from_ucs2(haystack.text(), 0).next().is_some();
                    prop_assert_eq!(matched, other, "{:?} in {:?}", pieces.concat(), text);
                }
            }
        }
    }

    #[test]
    fn what_would_take_long_is_left_to_the_workers() {
        let automaton = |source: &str| Automaton::build(&source.encode_utf16().collect::<Vec<_>>());
        let long = Haystack::from("x".repeat(1_000_000));
        assert_eq!(automaton("y").unwrap().is_match(&long), Some(false));
        assert_eq!(automaton("(?:a|b){20}").unwrap().is_match(&long), None);
        assert!(automaton("(?:(?:a{100}){100}){100}").is_none());
    }
}
