//! Parsing of a pattern into the regular language that it asks for, where it asks for one.
//! Everything that is not understood for certain is `None`, and goes to the other engine:
//! lookaround, backreferences, octal and odd control escapes, large counts. The pattern is known to
//! compile, so what is left out here is never an error.
//! A unit of UTF-16 that is half of a pair is the character U+100000 + its place among the halves,
//! both here and in the text ([`super::automaton::Haystack`]): automata read Unicode text, which
//! has no halves.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, Look, Repetition};

use super::dialect::{UpperBound, has_names, hex, quantifier};
use crate::bridge::js;

/// Above this count a repetition makes an automaton too large to be worth it.
const MAX_REPETITIONS: u32 = 1000;
/// The deepest nesting of groups.
const MAX_DEPTH: u32 = 64;

/// A regular language.
#[derive(Debug)]
pub struct Language {
    /// The language, as `regex-syntax` has it.
    pub hir: Hir,
    /// Whether the pattern asks where lines begin or end.
    pub has_line_ends: bool,
    /// Whether the pattern holds `\B`, which holds between the bytes of one character, too.
    pub has_inner_places: bool,
}

/// Parses a pattern that compiles. `None`: its language is not regular, or not understood for
/// certain.
pub fn language(units: &[u16]) -> Option<Language> {
    let mut parser =
        Parser { left: units, has_names: has_names(units), has_line_ends: false, has_inner_places: false, depth: 0 };
    let hir = parser.disjunction()?;
    parser.left.is_empty().then_some(Language {
        hir,
        has_line_ends: parser.has_line_ends,
        has_inner_places: parser.has_inner_places,
    })
}

/// Returns the character that stands for a unit in an automaton.
pub fn character(unit: u16) -> char {
    match unit {
        0xd800..=0xdfff => char::from_u32(0x10_0000 + u32::from(unit - 0xd800)),
        _ => char::from_u32(unit.into()),
    }
    // Every unit that is no half is a character.
    .unwrap_or(char::REPLACEMENT_CHARACTER)
}

struct Parser<'a> {
    left: &'a [u16],
    has_names: bool,
    has_line_ends: bool,
    has_inner_places: bool,
    depth: u32,
}

/// A class's item, or the meaning of a single escape.
enum Item {
    Unit(u16),
    Set(Set),
}

impl Parser<'_> {
    fn peek(&self) -> Option<u16> {
        self.left.first().copied()
    }

    fn next(&mut self) -> Option<u16> {
        let (unit, rest) = self.left.split_first()?;
        self.left = rest;
        Some(*unit)
    }

    fn skip(&mut self, text: &str) -> bool {
        let length = text.len();
        let begins = self.left.get(..length).is_some_and(|units| text.encode_utf16().eq(units.iter().copied()));
        if begins {
            self.left = self.left.get(length..).unwrap_or_default();
        }
        begins
    }

    fn disjunction(&mut self) -> Option<Hir> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut ways = vec![self.alternative()?];
        while self.skip("|") {
            ways.push(self.alternative()?);
        }
        self.depth -= 1;
        Some(Hir::alternation(ways))
    }

    fn alternative(&mut self) -> Option<Hir> {
        let mut terms = Vec::new();
        while self.peek().is_some_and(|unit| !matches!(u8::try_from(unit), Ok(b'|' | b')'))) {
            let term = self.term()?;
            terms.push(self.repeated(term)?);
        }
        Some(Hir::concat(terms))
    }

    fn repeated(&mut self, term: Hir) -> Option<Hir> {
        let Some((quantifier, rest)) = quantifier(self.left) else { return Some(term) };
        self.left = rest;
        let min = quantifier.min?;
        let max = match quantifier.max {
            UpperBound::Any => None,
            UpperBound::Times(max) => Some(max?),
        };
        if min > MAX_REPETITIONS || max.is_some_and(|max| max > MAX_REPETITIONS) {
            return None;
        }
        Some(Hir::repetition(Repetition { min, max, greedy: true, sub: Box::new(term) }))
    }

    fn term(&mut self) -> Option<Hir> {
        let unit = self.next()?;
        match u8::try_from(unit) {
            Ok(b'^') => {
                self.has_line_ends = true;
                Some(Hir::look(Look::StartLF))
            }
            Ok(b'$') => {
                self.has_line_ends = true;
                Some(Hir::look(Look::EndLF))
            }
            Ok(b'.') => Some(Set::of(&[(0x0a, 0x0a), (0x0d, 0x0d), (0x2028, 0x2029)]).inverted().into_hir()),
            Ok(b'(') => self.group(),
            Ok(b'[') => self.class(),
            Ok(b'\\') => match self.peek().map(u8::try_from) {
                Some(Ok(b'b')) => self.next().map(|_| Hir::look(Look::WordAscii)),
                Some(Ok(b'B')) => {
                    self.has_inner_places = true;
                    self.next().map(|_| Hir::look(Look::WordAsciiNegate))
                }
                _ => self.escape(false).map(Item::into_hir),
            },
            _ => Some(Item::Unit(unit).into_hir()),
        }
    }

    fn group(&mut self) -> Option<Hir> {
        if self.skip("?<") {
            if matches!(self.peek().map(u8::try_from), Some(Ok(b'=' | b'!'))) {
                return None;
            }
            while self.next()? != u16::from(b'>') {}
        } else if !self.skip("?:") && self.skip("?") {
            return None;
        }
        let inner = self.disjunction()?;
        self.skip(")").then_some(inner)
    }

    fn class(&mut self) -> Option<Hir> {
        let inverted = self.skip("^");
        let mut set = Set::default();
        loop {
            if self.skip("]") {
                return Some(if inverted { set.inverted() } else { set }.into_hir());
            }
            let first = self.class_item()?;
            let ends = |unit: Option<u16>| matches!(unit.map(u8::try_from), Some(Ok(b']')));
            if self.peek() != Some(u16::from(b'-')) || ends(self.left.get(1).copied()) {
                set.add(first);
                continue;
            }
            self.next();
            match (first, self.class_item()?) {
                (Item::Unit(from), Item::Unit(to)) => set.ranges.push((from, to)),
                // With a set at one side the dash is itself.
                (first, second) => [first, Item::Unit(b'-'.into()), second].into_iter().for_each(|item| set.add(item)),
            }
        }
    }

    fn class_item(&mut self) -> Option<Item> {
        let unit = self.next()?;
        if unit == u16::from(b'\\') { self.escape(true) } else { Some(Item::Unit(unit)) }
    }

    /// Reads an escape behind its backslash.
    fn escape(&mut self, in_class: bool) -> Option<Item> {
        let letter = self.next()?;
        Some(match u8::try_from(letter) {
            Ok(b'd') => Item::Set(Set::digits()),
            Ok(b'D') => Item::Set(Set::digits().inverted()),
            Ok(b'w') => Item::Set(Set::word()),
            Ok(b'W') => Item::Set(Set::word().inverted()),
            Ok(b's') => Item::Set(Set::spaces()),
            Ok(b'S') => Item::Set(Set::spaces().inverted()),
            Ok(b't') => Item::Unit(0x09),
            Ok(b'n') => Item::Unit(0x0a),
            Ok(b'v') => Item::Unit(0x0b),
            Ok(b'f') => Item::Unit(0x0c),
            Ok(b'r') => Item::Unit(0x0d),
            Ok(b'b') if in_class => Item::Unit(0x08),
            Ok(b'0') if !self.peek().is_some_and(|unit| (0x30..=0x39).contains(&unit)) => Item::Unit(0),
            Ok(b'0'..=b'9') => return None,
            Ok(b'k') if self.has_names => return None,
            Ok(b'c') => {
                let letter = self.next().and_then(|unit| u8::try_from(unit).ok()).filter(u8::is_ascii_alphabetic)?;
                Item::Unit(u16::from(letter % 32))
            }
            Ok(digits @ (b'x' | b'u')) => match hex(self.left, if digits == b'x' { 2 } else { 4 }) {
                Some((unit, rest)) => {
                    self.left = rest;
                    Item::Unit(unit)
                }
                None => Item::Unit(letter),
            },
            _ => Item::Unit(letter),
        })
    }
}

impl Item {
    fn into_hir(self) -> Hir {
        match self {
            Self::Unit(unit) => Hir::literal(character(unit).encode_utf8(&mut [0; 4]).as_bytes()),
            Self::Set(set) => set.into_hir(),
        }
    }
}

/// A set of units, as ranges that may overlap.
#[derive(Clone, Debug, Default)]
struct Set {
    ranges: Vec<(u16, u16)>,
}

impl Set {
    fn of(ranges: &[(u16, u16)]) -> Self {
        Self { ranges: ranges.to_vec() }
    }

    fn digits() -> Self {
        Self::of(&[(0x30, 0x39)])
    }

    fn word() -> Self {
        Self::of(&[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)])
    }

    fn spaces() -> Self {
        Self { ranges: (0..=u16::MAX).filter(|unit| js::is_space(*unit)).map(|unit| (unit, unit)).collect() }
    }

    fn add(&mut self, item: Item) {
        match item {
            Item::Unit(unit) => self.ranges.push((unit, unit)),
            Item::Set(set) => self.ranges.extend(set.ranges),
        }
    }

    fn inverted(mut self) -> Self {
        self.ranges.sort_unstable();
        let mut gaps = Vec::new();
        let mut next = Some(0);
        for (from, to) in self.ranges {
            let Some(begin) = next else { break };
            if from > begin {
                gaps.push((begin, from - 1));
            }
            next = to.checked_add(1).map(|after| after.max(begin));
        }
        gaps.extend(next.map(|begin| (begin, u16::MAX)));
        Self { ranges: gaps }
    }

    fn into_hir(self) -> Hir {
        let parts = self.ranges.into_iter().flat_map(|(from, to)| {
            // The halves of pairs are in the middle of the units, and elsewhere among the
            // characters.
            [(from, to.min(0xd7ff)), (from.max(0xd800), to.min(0xdfff)), (from.max(0xe000), to)]
        });
        let ranges = parts.filter(|(from, to)| from <= to);
        let ranges = ranges.map(|(from, to)| ClassUnicodeRange::new(character(from), character(to)));
        Hir::class(Class::Unicode(ClassUnicode::new(ranges)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_regular(source: &str) -> bool {
        language(&source.encode_utf16().collect::<Vec<_>>()).is_some()
    }

    #[test]
    fn patterns_of_every_day_are_regular() {
        for source in [
            "DONE",
            "^\\$ $",
            "PASS|FAIL",
            "(?:error|warning): .*",
            "[\\d-z]{2,5}?",
            "(?<year>\\d{4})",
            "\\bok\\b",
            "[^]*?x",
            "[]",
            "a{,2}",
            "]}",
            "\\_\\/",
            "\\cJ",
            "\\u0041\\x41",
            "\\k",
        ] {
            assert!(is_regular(source), "{source}");
        }
        for source in
            ["(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(a)\\1", "(?<n>a)\\k<n>", "\\01", "a{1001}", "\\c1", "(?i:a)"]
        {
            assert!(!is_regular(source), "{source}");
        }
    }

    #[test]
    fn the_rest_of_a_set_is_what_is_not_in_it() {
        let inverted = |ranges: &[(u16, u16)]| Set::of(ranges).inverted().ranges;
        assert_eq!(inverted(&[]), [(0, u16::MAX)]);
        assert_eq!(inverted(&[(5, 9), (0, 6), (20, 30), (22, 23)]), [(10, 19), (31, u16::MAX)]);
        assert_eq!(inverted(&[(0, u16::MAX), (7, 8)]), []);
        assert_eq!(inverted(&[(100, u16::MAX)]), [(0, 99)]);
    }
}
