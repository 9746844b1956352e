//! The patterns of many rules, searched for at once.

use std::ops::Range;

use muxtap_api::{Error, Result};
use regex::{RegexSet, RegexSetBuilder};
use regex_automata::{Input, meta};
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look};

use crate::limits::{DFA_BYTES, REGEX_BYTES};

/// The patterns of a kind, and the place of each one's rule.
///
/// Two automata for all of them: `any` finds the next of many lines that may have a match, and only in
/// such a line `set` finds the patterns that match.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    set: Option<RegexSet>,
    /// Matches in each line in which a pattern matches, and perhaps in others; `None` if that would be too
    /// large.
    any: Option<meta::Regex>,
    places: Vec<usize>,
}

impl Patterns {
    /// Compiles patterns, each with the place of its rule and the rule's name. Error: `INVALID_ARGUMENT`.
    pub(crate) fn of(given: &[(usize, &str, &str)]) -> Result<Self> {
        if given.is_empty() {
            return Ok(Self::default());
        }
        let patterns = given.iter().map(|(_, _, pattern)| pattern);
        let built = RegexSetBuilder::new(patterns).size_limit(REGEX_BYTES).dfa_size_limit(DFA_BYTES).build();
        let set = built.map_err(|error| {
            // The set's error does not say which pattern is wrong.
            let own = given.iter().find_map(|(_, rule, pattern)| {
                let error = regex::RegexBuilder::new(pattern).size_limit(REGEX_BYTES).build().err()?;
                Some(Error::invalid(format!("rule {rule}: {error}")))
            });
            own.unwrap_or_else(|| Error::invalid(format!("rules: all patterns together are too large: {error}")))
        })?;
        Ok(Self { set: Some(set), any: any_of(given), places: given.iter().map(|(place, ..)| *place).collect() })
    }

    /// Returns whether no rule has such a pattern.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_none()
    }

    /// Returns the places of the rules whose patterns match in a text, in their order. It may have several
    /// lines: a notification has its title and its body.
    pub(crate) fn matching(&self, text: &str) -> Vec<usize> {
        let Some(set) = &self.set else { return Vec::new() };
        // `any` finds no match that goes beyond a line.
        if !text.contains('\n') && self.any.as_ref().is_some_and(|any| !any.is_match(text)) {
            return Vec::new();
        }
        set.matches(text).into_iter().filter_map(|pattern| self.places.get(pattern).copied()).collect()
    }

    /// Returns the next line in which a pattern may match. `lines`: lines with a `\n` after each; `from`: where
    /// one of them begins, or their end.
    pub(crate) fn next_line(&self, lines: &str, from: usize) -> Option<Range<usize>> {
        // After the last `\n` is no line.
        let lines = lines.strip_suffix('\n').filter(|lines| self.set.is_some() && from <= lines.len())?;
        let at = match &self.any {
            // A match lies within a line.
            Some(any) => any.search_half(&Input::new(lines).range(from..))?.offset(),
            None => from,
        };
        let bytes = lines.as_bytes();
        let start = bytes.get(..at)?.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let length = bytes.get(at..)?.iter().position(|byte| *byte == b'\n');
        Some(start..length.map_or(lines.len(), |length| at + length))
    }
}

/// Compiles what matches in a text where one of the patterns may match in a line of it.
fn any_of(given: &[(usize, &str, &str)]) -> Option<meta::Regex> {
    let hirs = given.iter().map(|(_, _, pattern)| Some(within_lines(&regex_syntax::parse(pattern).ok()?)));
    let hirs = hirs.collect::<Option<Vec<_>>>()?;
    let config = meta::Config::new().nfa_size_limit(Some(REGEX_BYTES)).hybrid_cache_capacity(DFA_BYTES);
    meta::Builder::new().configure(config).build_many_from_hir(&hirs).ok()
}

/// Returns a pattern that matches within a line of a text, wherever `hir` matches in that line alone.
///
/// A word boundary is left out: beside a character outside of ASCII, the fast automaton cannot find it.
fn within_lines(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => Hir::fail(),
        HirKind::Literal(literal) => Hir::literal(literal.0.clone()),
        HirKind::Class(Class::Unicode(class)) => {
            let mut class = class.clone();
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(class)) => {
            let mut class = class.clone();
            class.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Look(look) => match look {
            Look::Start | Look::StartLF => Hir::look(Look::StartLF),
            Look::End | Look::EndLF => Hir::look(Look::EndLF),
            _ => Hir::empty(),
        },
        HirKind::Repetition(repetition) => Hir::repetition(repetition.with(within_lines(&repetition.sub))),
        HirKind::Capture(capture) => within_lines(&capture.sub),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(within_lines).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(within_lines).collect()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(texts: &[&str]) -> Patterns {
        let given: Vec<_> = texts.iter().enumerate().map(|(place, text)| (place, "a", *text)).collect();
        Patterns::of(&given).unwrap()
    }

    /// Returns the lines that match, each with the places.
    fn found(patterns: &Patterns, lines: &str) -> Vec<(String, Vec<usize>)> {
        let (mut found, mut from) = (Vec::new(), 0);
        while let Some(line) = patterns.next_line(lines, from) {
            from = line.end + 1;
            let line = lines.get(line).unwrap();
            let places = patterns.matching(line);
            if !places.is_empty() {
                found.push((line.to_owned(), places));
            }
        }
        found
    }

    #[test]
    fn a_line_that_cannot_match_is_not_looked_at() {
        let patterns = patterns(&["^a+$", "(?s)b.*c", r"x\sy"]);
        let lines = "ab\nb\nc\nx\ny\naaa\nbc\n\n";
        let (mut looked_at, mut from) = (Vec::new(), 0);
        while let Some(line) = patterns.next_line(lines, from) {
            from = line.end + 1;
            looked_at.push(lines.get(line).unwrap());
        }
        assert_eq!(looked_at, ["aaa", "bc"]);
    }

    #[test]
    fn a_text_of_several_lines_is_searched_as_a_whole() {
        let patterns = patterns(&["(?s)a.*b", r"a\nb", "^b$"]);
        assert_eq!(patterns.matching("a\nb"), [0, 1]);
        assert_eq!(patterns.matching("ab"), [0]);
    }

    const PATTERNS: [&str; 16] = [
        "a", "^$", "^a", "b$", r"\Aab\z", r"\bа\b", r"a\s*b", "[^a]b", "(?s)a.b", "(?m)^b$", "\n", "(a|\n)b", r"\W$",
        "(?i)A{2}", r"(?R)^b", "é+",
    ];

    proptest! {
        /// The lines that are found, and the rules, are those that each line by itself has.
        #[test]
        fn many_lines_match_as_each_line_does(
            chosen in proptest::sample::subsequence(PATTERNS.to_vec(), 1..8),
            lines in proptest::collection::vec("[abé а]{0,4}", 0..8),
        ) {
            let patterns = patterns(&chosen);
            let each: Vec<_> = chosen.iter().map(|pattern| regex::Regex::new(pattern).unwrap()).collect();
            let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            let wanted = lines.iter().map(|line| {
                let places: Vec<_> = (0..each.len()).filter(|place| each[*place].is_match(line)).collect();
                (line.clone(), places)
            });
            let wanted: Vec<_> = wanted.filter(|(_, places)| !places.is_empty()).collect();
            prop_assert_eq!(found(&patterns, &text), wanted.clone());
            let alone = Patterns { any: None, ..patterns };
            prop_assert_eq!(found(&alone, &text), wanted);
        }
    }
}
