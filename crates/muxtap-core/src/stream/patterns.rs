//! The caller's patterns, validated and compiled once, and shared by every wait that uses them.

use std::{
    collections::HashMap,
    error::Error,
    ops::Range,
    sync::{Arc, OnceLock},
};

use regex_automata::{
    Input, MatchKind, PatternID,
    meta::Regex,
    nfa::thompson::{self, backtrack::BoundedBacktracker},
    util::captures::Captures,
};
use regex_syntax::{
    ParserBuilder, ast,
    hir::{Class, Hir, HirKind, Look, translate::Translator},
};

use super::matcher::automaton::{Automaton, Kind};
pub use super::matcher::bounds::Limits;

/// A pattern and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternSpec {
    /// The name by which errors refer to it (`patterns[1]`, `--fail`). Absent: its number in the
    /// set, counted from 1.
    pub name: Option<String>,
    /// The regex, in the syntax of the `regex` crate; `^` and `$` are line anchors.
    pub text: String,
}

impl PatternSpec {
    /// Makes a pattern to which errors refer by its number.
    pub fn new(text: impl Into<String>) -> Self {
        Self { name: None, text: text.into() }
    }
    /// Makes a pattern to which errors refer by a name.
    pub fn named(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: Some(name.into()), text: text.into() }
    }
}

/// Compiled patterns, for any number of [`Matcher`](super::matcher::Matcher)s. A clone is another
/// handle to the same set.
#[derive(Clone, Debug)]
pub struct PatternSet {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    patterns: Vec<Pattern>,
    prefilter: Option<Prefilter>,
    limits: Limits,
    reach: usize,
}

/// A single automaton that reports the patterns of the set that may have begun to match.
#[derive(Debug)]
pub(super) struct Prefilter {
    pub(super) automaton: Automaton,
    /// The index in the set of each of the automaton's patterns.
    pub(super) members: Vec<usize>,
}

/// A pattern, in the forms in which it is searched.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Finds the end of the first match, byte by byte.
    pub(super) automaton: Automaton,
    /// Finds the whole match once its end is known. Nothing has to be built for that, because this
    /// search runs between a byte's arrival and the wait's response.
    finder: BoundedBacktracker,
    /// Searches text that is too long for `finder`, and patterns that the automaton cannot handle.
    /// Most patterns never need it; it is kept only for patterns that may need it repeatedly.
    regex: OnceLock<Option<Regex>>,
    /// The number of bytes to count for `regex`; `None` where it is not kept.
    regex_bytes: Option<usize>,
    hir: Hir,
    limits: Limits,
    /// Whether a match can contain a line end.
    pub(super) crosses: bool,
    /// The number of bytes of the longest match, if bounded.
    pub(super) longest: Option<usize>,
    /// Whether the automaton can determine that no further text changes a match.
    pub(super) foresees: bool,
}

impl PatternSet {
    /// Validates and compiles patterns.
    ///
    /// `INVALID_ARGUMENT`, with a message that names the pattern and the remedy: for a pattern that
    /// does not parse, that can match the empty string (it would match at once) or can never match,
    /// that is too long or too large when compiled, and for an empty set or one with too many
    /// patterns.
    pub fn new(specs: &[PatternSpec], limits: &Limits) -> crate::Result<Self> {
        if specs.is_empty() {
            return Err(crate::Error::invalid("no patterns; give at least one"));
        }
        if specs.len() > limits.patterns {
            return Err(crate::Error::invalid(format!(
                "too many patterns: {}; at most {} are allowed; join some with `|`",
                specs.len(),
                limits.patterns
            )));
        }
        let names: Vec<String> = specs.iter().enumerate().map(|(index, spec)| describe(index, spec)).collect();
        let mut hirs = Vec::with_capacity(specs.len());
        let mut classes = 0;
        for (spec, name) in specs.iter().zip(&names) {
            let hir = parse(&spec.text, name, limits, &mut classes)?;
            match hir.properties().minimum_len() {
                Some(0) => {
                    return Err(crate::Error::invalid(format!(
                        "{name} can match the empty string, so it would match at once; make some part of it required \
                         (`+` in place of `*` or `?`)"
                    )));
                }
                None => {
                    return Err(crate::Error::invalid(format!(
                        "{name} can never match; does it contain an empty character class?"
                    )));
                }
                Some(_) => hirs.push(hir),
            }
        }
        let searched: Vec<Hir> =
            hirs.iter().map(|hir| if has_unicode_words(hir) { ascii_words(hir) } else { hir.clone() }).collect();
        let members: Vec<usize> =
            (0..hirs.len()).filter(|&index| hirs.get(index).is_some_and(|hir| !has_unicode_words(hir))).collect();
        // The whole set is compiled first, whichever automaton searches for it: one limit then
        // bounds everything that is compiled below.
        let mut whole =
            Some(nfa(&searched, limits).map_err(|error| too_large(error.as_ref(), &names.join(", "), limits))?);
        let prefilter = if members.len() < 2 {
            None
        } else {
            let watched: Vec<&Hir> = members.iter().filter_map(|&index| searched.get(index)).collect();
            let nfa = match whole.take() {
                Some(whole) if members.len() == hirs.len() => whole,
                _ => nfa(&watched, limits).map_err(|error| too_large(error.as_ref(), &names.join(", "), limits))?,
            };
            Some(Prefilter { automaton: Automaton::new(nfa, &watched, Kind::Every, limits, "the patterns")?, members })
        };
        let mut patterns = Vec::with_capacity(hirs.len());
        for ((hir, form), name) in hirs.iter().zip(&searched).zip(&names) {
            // A single pattern is the whole set.
            let compiled = match whole.take() {
                Some(whole) if hirs.len() == 1 => whole,
                _ => nfa(&[form], limits).map_err(|error| too_large(error.as_ref(), name, limits))?,
            };
            let kind = if has_unicode_words(hir) { Kind::FirstAscii } else { Kind::First };
            let finder = finder(hir, limits).map_err(|error| too_large(error.as_ref(), name, limits))?;
            let nfa_bytes = finder.get_nfa().memory_usage();
            let is_kept = has_unicode_words(hir) && nfa_bytes <= KEPT_REGEX;
            patterns.push(Pattern {
                automaton: Automaton::new(compiled, &[form], kind, limits, name)?,
                regex: OnceLock::new(),
                // Forward and reverse, each with the states that it has built, and the slots of the
                // groups.
                regex_bytes: is_kept
                    .then(|| 3 * nfa_bytes + 2 * cache_bytes(nfa_bytes, limits) + slots_bytes(finder.get_nfa())),
                finder,
                hir: hir.clone(),
                limits: *limits,
                crosses: holds_line_end(hir),
                longest: hir.properties().maximum_len(),
                foresees: !has_unicode_words(hir) || !needs_unicode(hir),
            });
        }
        let reach = patterns
            .iter()
            .filter(|pattern| pattern.crosses)
            .map(|pattern| pattern.longest.unwrap_or(usize::MAX))
            .max();
        Ok(Self { inner: Arc::new(Inner { patterns, prefilter, limits: *limits, reach: reach.unwrap_or(0) }) })
    }

    /// Returns the number of bytes that the set occupies, including what it may build later.
    pub fn memory(&self) -> usize {
        let prefilter = self.inner.prefilter.as_ref().map_or(0, |prefilter| prefilter.automaton.memory());
        let patterns = self.inner.patterns.iter().map(|pattern| {
            size_of::<Pattern>()
                + pattern.automaton.memory()
                + pattern.finder.get_nfa().memory_usage()
                + pattern.regex_bytes.unwrap_or_default()
                + hir_bytes(&pattern.hir)
        });
        prefilter + patterns.sum::<usize>()
    }
    /// Returns the number of bytes with which a search for the set begins, for each stream.
    pub fn search_memory(&self) -> usize {
        let watched = |index: usize| self.prefilter().is_some_and(|prefilter| prefilter.members.contains(&index));
        let alone = self.inner.patterns.iter().enumerate().filter(|(index, _)| !watched(*index));
        self.prefilter().map_or(0, |prefilter| prefilter.automaton.search_memory())
            + alone.map(|(_, pattern)| pattern.automaton.search_memory()).sum::<usize>()
    }
    /// Returns the number of patterns, which are numbered from 0 in the given order.
    pub fn len(&self) -> usize {
        self.inner.patterns.len()
    }
    /// Returns false: a set has at least one pattern.
    pub fn is_empty(&self) -> bool {
        self.inner.patterns.is_empty()
    }
    /// Returns the limits with which the set was compiled.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }
    pub(super) fn get(&self, index: usize) -> Option<&Pattern> {
        self.inner.patterns.get(index)
    }
    pub(super) fn patterns(&self) -> &[Pattern] {
        &self.inner.patterns
    }
    pub(super) fn prefilter(&self) -> Option<&Prefilter> {
        self.inner.prefilter.as_ref()
    }
    /// Returns the distance from the text's end within which a match that crosses lines may begin.
    pub(super) fn reach(&self) -> usize {
        self.inner.reach
    }
}

impl Pattern {
    /// Returns the leftmost-first match in `bytes` that begins at `from` or later; the bytes before
    /// `from` are context.
    pub(super) fn find(&self, bytes: &[u8], from: usize) -> Option<Captures> {
        // A span outside of the haystack would panic.
        if from > bytes.len() {
            return None;
        }
        let make =
            || regex(&self.hir, cache_bytes(self.finder.get_nfa().memory_usage(), &self.limits), &self.limits).ok();
        let made;
        let regex = if self.regex_bytes.is_some() {
            self.regex.get_or_init(make).as_ref()?
        } else {
            made = make()?;
            &made
        };
        let mut captures = regex.create_captures();
        regex.search_captures(&Input::new(bytes).span(from..bytes.len()), &mut captures);
        captures.is_match().then_some(captures)
    }

    /// Returns a match that is known to exist.
    pub(super) fn look_up(&self, bytes: &[u8], from: usize) -> Option<Captures> {
        if bytes.len().checked_sub(from)? <= self.finder.max_haystack_len() {
            let (mut cache, mut captures) = (self.finder.create_cache(), self.finder.create_captures());
            let input = Input::new(bytes).span(from..bytes.len());
            if self.finder.try_captures(&mut cache, input, &mut captures).is_ok() {
                return captures.is_match().then_some(captures);
            }
        }
        self.find(bytes, from)
    }
}

/// Checks that a text is a regex, with the messages and limits of [`PatternSet::new`]. Errors refer
/// to it by `name`.
pub fn check(name: &str, text: &str) -> crate::Result<()> {
    parse(text, &describe(0, &PatternSpec::named(name, text)), &Limits::default(), &mut 0).map(drop)
}

/// Compiles a regex to search fixed text (a screen, a title), with the messages and limits of
/// [`PatternSet::new`]. It may match the empty string: a screen can be empty. `^` and `$` are line
/// anchors. Errors refer to it by `name`.
pub fn compile_one(name: &str, text: &str, limits: &Limits) -> crate::Result<TextPattern> {
    let name = describe(0, &PatternSpec::named(name, text));
    let hir = parse(text, &name, limits, &mut 0)?;
    let nfa = nfa(&[&hir], limits).map_err(|error| too_large(error.as_ref(), &name, limits))?;
    let cache = cache_bytes(nfa.memory_usage(), limits);
    let regex = regex(&hir, cache, limits).map_err(|error| too_large(error.as_ref(), &name, limits))?;
    let memory = regex.memory_usage() + regex.create_cache().memory_usage() + 2 * cache + text.len();
    Ok(TextPattern { regex, memory })
}

/// A regex to search fixed text. A clone is another handle to the same regex.
#[derive(Clone, Debug)]
pub struct TextPattern {
    regex: Regex,
    memory: usize,
}

impl TextPattern {
    /// Returns the number of bytes that the regex occupies, including what its searches may build.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns whether the text has a match.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Returns the first match.
    pub fn find<'t>(&self, text: &'t str) -> Option<TextMatch<'t>> {
        let mut found = self.regex.create_captures();
        self.regex.captures(text, &mut found);
        found.is_match().then_some(TextMatch { text, found })
    }
}

/// A match of a [`TextPattern`].
#[derive(Clone, Debug)]
pub struct TextMatch<'t> {
    text: &'t str,
    found: Captures,
}

impl<'t> TextMatch<'t> {
    /// Returns the range of the match in the text.
    pub fn range(&self) -> Range<usize> {
        self.found.get_match().map_or(0..0, |whole| whole.range())
    }

    /// Returns the whole match, then its groups.
    pub fn groups(&self) -> impl Iterator<Item = Option<&'t str>> {
        self.found.iter().map(|span| span.and_then(|span| self.text.get(span.start..span.end)))
    }

    /// Returns the named groups that participated.
    pub fn named(&self) -> impl Iterator<Item = (&str, &'t str)> {
        let names = self.found.group_info().pattern_names(PatternID::ZERO);
        names.zip(self.groups()).filter_map(|(name, group)| Some((name?, group?)))
    }
}

/// Returns whether a pattern that [`compile_one`] accepted can match only within one line, and does
/// not refer to the text's beginning or end: then lines can be searched one by one.
pub fn stays_within_line(text: &str) -> bool {
    ParserBuilder::new().multi_line(true).build().parse(text).is_ok_and(|hir| {
        let looks = hir.properties().look_set();
        !holds_line_end(&hir) && !looks.contains(Look::Start) && !looks.contains(Look::End)
    })
}

fn describe(index: usize, spec: &PatternSpec) -> String {
    const SHOWN: usize = 60;
    let mut text: String = spec.text.chars().take(SHOWN).collect();
    if text.len() < spec.text.len() {
        text.push('…');
    }
    match &spec.name {
        Some(name) => format!("{name} `{text}`"),
        None => format!("pattern {} `{text}`", index + 1),
    }
}

/// Parses a pattern. `classes` is the number of bytes of the character classes of the previously
/// parsed patterns of its set; the pattern's own are added.
fn parse(text: &str, name: &str, limits: &Limits, classes: &mut usize) -> crate::Result<Hir> {
    if text.len() > limits.pattern_bytes {
        return Err(crate::Error::invalid(format!(
            "{name} is too long: {} bytes; at most {} are allowed; match a shorter part of the text",
            text.len(),
            limits.pattern_bytes
        )));
    }
    // Before the whole pattern is parsed: each `\w` in the text takes 6 KiB then.
    *classes += class_bytes(text, limits.compiled_bytes);
    if *classes > limits.compiled_bytes {
        return Err(too_large_for(&format!("its character classes take {classes} bytes or more"), name, limits));
    }
    let hir = ParserBuilder::new().multi_line(true).build().parse(text).map_err(|error| {
        let (what, column) = match &error {
            regex_syntax::Error::Parse(error) => (error.kind().to_string(), Some(error.span().start.column)),
            regex_syntax::Error::Translate(error) => (error.kind().to_string(), Some(error.span().start.column)),
            other => (other.to_string(), None),
        };
        let place = column.map(|column| format!(" at column {column}")).unwrap_or_default();
        crate::Error::invalid(format!(
            "{name} is not a valid regex: {what}{place}; to match a character literally, put `\\` before any of \
             \\ . + * ? ( ) | [ ] {{ }} ^ $"
        ))
    })?;
    // Before it is compiled: compilation would allocate all that memory first, and the C library
    // keeps freed memory.
    let least = least_bytes(&hir);
    if least > limits.compiled_bytes as u64 {
        return Err(too_large_for(&format!("its repetitions take {least} bytes or more"), name, limits));
    }
    Ok(hir)
}

/// Returns the number of bytes that the character classes of a pattern take when parsed: up to the
/// first one above `most`; zero for a pattern that cannot be parsed.
fn class_bytes(text: &str, most: usize) -> usize {
    /// Sums the classes of a pattern. Equal ones are examined once.
    struct Classes<'a> {
        text: &'a str,
        known: HashMap<&'a str, usize>,
        bytes: usize,
        most: usize,
    }

    impl<'a> Classes<'a> {
        /// Adds a class; the error is a sum above the maximum.
        fn add(&mut self, span: &ast::Span, class: impl FnOnce() -> ast::Ast) -> Result<(), usize> {
            let text: &'a str = self.text;
            let written = text.get(span.start.offset..span.end.offset).unwrap_or_default();
            self.bytes += *self.known.entry(written).or_insert_with(|| {
                let hir = Translator::new().translate(written, &class());
                hir.map_or(0, |hir| hir_bytes(&hir))
            });
            if self.bytes > self.most { Err(self.bytes) } else { Ok(()) }
        }
    }

    impl ast::Visitor for Classes<'_> {
        type Output = usize;
        type Err = usize;

        fn finish(self) -> Result<usize, usize> {
            Ok(self.bytes)
        }

        fn visit_pre(&mut self, ast: &ast::Ast) -> Result<(), usize> {
            match ast {
                ast::Ast::ClassPerl(_) | ast::Ast::ClassUnicode(_) => self.add(ast.span(), || ast.clone()),
                _ => Ok(()),
            }
        }

        fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), usize> {
            match item {
                ast::ClassSetItem::Perl(class) => self.add(&class.span, || ast::Ast::class_perl(class.clone())),
                ast::ClassSetItem::Unicode(class) => self.add(&class.span, || ast::Ast::class_unicode(class.clone())),
                _ => Ok(()),
            }
        }
    }

    let parsed = ast::parse::Parser::new().parse(text);
    let classes = Classes { text, known: HashMap::new(), bytes: 0, most };
    parsed.map_or(0, |ast| ast::visit(&ast, classes).unwrap_or_else(|above| above))
}

/// Returns the approximate number of bytes that a parsed pattern takes.
fn hir_bytes(hir: &Hir) -> usize {
    /// The bytes of a node, with its properties.
    const NODE: usize = 128;
    NODE + match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) => size_of_val(class.ranges()),
        HirKind::Class(Class::Bytes(class)) => size_of_val(class.ranges()),
        HirKind::Repetition(repetition) => hir_bytes(&repetition.sub),
        HirKind::Capture(capture) => hir_bytes(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(hir_bytes).sum(),
    }
}

/// The largest NFA, in bytes, whose regex is kept for the next search.
const KEPT_REGEX: usize = 1 << 20;
/// The bytes of the states of a small regex.
const SMALL_CACHE: usize = 64 << 10;

/// Returns the maximum number of bytes of the states of a regex: enough for its size, but little
/// for each of many small ones.
fn cache_bytes(nfa_bytes: usize, limits: &Limits) -> usize {
    nfa_bytes
        .saturating_mul(16)
        .clamp(SMALL_CACHE.min(limits.cache_bytes), limits.cache_bytes.max(nfa_bytes.saturating_mul(4)))
}

/// Returns the number of bytes of the slots that a search without an automaton keeps for each
/// state.
fn slots_bytes(nfa: &thompson::NFA) -> usize {
    2 * nfa.states().len() * (nfa.group_info().slot_len() + 4) * size_of::<usize>()
}

/// Returns a lower bound for the bytes that a compiled pattern takes.
fn least_bytes(hir: &Hir) -> u64 {
    /// The bytes of a state of the automaton, one for each byte or class.
    const STATE: u64 = 24;
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => STATE.saturating_mul(literal.0.len() as u64),
        HirKind::Class(_) => STATE,
        // Each counted repetition is a copy.
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min.max(1));
            least_bytes(&repetition.sub).saturating_mul(copies.into())
        }
        HirKind::Capture(capture) => least_bytes(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(least_bytes).fold(0, u64::saturating_add),
        // Branches may share states.
        HirKind::Alternation(parts) => parts.iter().map(least_bytes).max().unwrap_or(0),
    }
}

fn too_large(error: &dyn Error, name: &str, limits: &Limits) -> crate::Error {
    let mut cause = error.to_string();
    if let Some(source) = error.source() {
        cause = source.to_string();
    }
    too_large_for(&cause, name, limits)
}

fn too_large_for(cause: &str, name: &str, limits: &Limits) -> crate::Error {
    crate::Error::invalid(format!(
        "{name} is too large when compiled ({cause}; at most {} bytes); use smaller repetition counts, or ASCII \
         classes such as [0-9] and [A-Za-z] in place of \\d and \\w",
        limits.compiled_bytes
    ))
}

fn nfa<H: std::borrow::Borrow<Hir>>(hirs: &[H], limits: &Limits) -> Result<thompson::NFA, Box<dyn Error>> {
    let config = thompson::Config::new()
        .which_captures(thompson::WhichCaptures::None)
        .nfa_size_limit(Some(limits.compiled_bytes));
    thompson::Compiler::new().configure(config).build_many_from_hir(hirs).map_err(Into::into)
}

fn finder(hir: &Hir, limits: &Limits) -> Result<BoundedBacktracker, Box<dyn Error>> {
    let config = thompson::Config::new().nfa_size_limit(Some(limits.compiled_bytes));
    let nfa = thompson::Compiler::new().configure(config).build_from_hir(hir)?;
    Ok(BoundedBacktracker::new_from_nfa(nfa)?)
}

fn regex(hir: &Hir, cache: usize, limits: &Limits) -> Result<Regex, Box<dyn Error>> {
    let config = Regex::config()
        .match_kind(MatchKind::LeftmostFirst)
        .nfa_size_limit(Some(limits.compiled_bytes))
        .hybrid_cache_capacity(cache)
        .dfa(false)
        .onepass(false);
    Regex::builder().configure(config).build_from_hir(hir).map_err(Into::into)
}

fn has_unicode_words(hir: &Hir) -> bool {
    hir.properties().look_set().contains_word_unicode()
}

/// Returns the pattern with ASCII word boundaries: an automaton can follow those byte by byte, but
/// not the Unicode ones.
fn ascii_words(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Look(look) => Hir::look(match look {
            Look::WordUnicode => Look::WordAscii,
            Look::WordUnicodeNegate => Look::WordAsciiNegate,
            Look::WordStartUnicode => Look::WordStartAscii,
            Look::WordEndUnicode => Look::WordEndAscii,
            Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
            Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
            other => *other,
        }),
        HirKind::Repetition(repetition) => Hir::repetition(repetition.with(ascii_words(&repetition.sub))),
        HirKind::Capture(capture) => {
            let mut capture = capture.clone();
            capture.sub = Box::new(ascii_words(&capture.sub));
            Hir::capture(capture)
        }
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(ascii_words).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(ascii_words).collect()),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => hir.clone(),
    }
}

/// Returns whether some part of the pattern matches word characters beyond ASCII but none in ASCII.
/// An automaton that knows only ASCII words assumes that no such character can follow a `\b`; a
/// part that also matches ASCII shows it that the match can continue.
fn needs_unicode(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => !literal.0.is_ascii(),
        HirKind::Class(class) => {
            let has_word = |start: u32, end: u32| {
                (start..=end.min(0x7f))
                    .any(|code| code == 0x5f || u8::try_from(code).is_ok_and(|byte| byte.is_ascii_alphanumeric()))
            };
            match class {
                Class::Unicode(class) => {
                    class.ranges().last().is_some_and(|range| !range.end().is_ascii())
                        && !class.ranges().iter().any(|range| has_word(range.start() as u32, range.end() as u32))
                }
                Class::Bytes(_) => false,
            }
        }
        HirKind::Repetition(repetition) => needs_unicode(&repetition.sub),
        HirKind::Capture(capture) => needs_unicode(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(needs_unicode),
        HirKind::Empty | HirKind::Look(_) => false,
    }
}

fn holds_line_end(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.contains(&b'\n'),
        HirKind::Class(Class::Unicode(class)) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&'\n'))
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&b'\n'))
        }
        HirKind::Repetition(repetition) => holds_line_end(&repetition.sub),
        HirKind::Capture(capture) => holds_line_end(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(holds_line_end),
        HirKind::Empty | HirKind::Look(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(patterns: &[&str]) -> String {
        let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
        let error = PatternSet::new(&specs, &Limits::default()).unwrap_err();
        assert_eq!(error.code, crate::ErrorCode::InvalidArgument);
        error.message
    }

    #[test]
    fn w8_a_bad_pattern_is_refused_at_once_and_by_name() {
        assert_eq!(
            refusal(&["ok", "foo("]),
            "pattern 2 `foo(` is not a valid regex: unclosed group at column 4; to match a character literally, \
             put `\\` before any of \\ . + * ? ( ) | [ ] { } ^ $"
        );
        assert!(refusal(&["a(?=b)"]).contains("look-around"));
        assert!(refusal(&[r"(a)\1"]).contains("backreferences"));
        assert!(refusal(&[r"[\s&&\S]x"]).contains("can never match"));
        let named = PatternSet::new(&[PatternSpec::named("--fail", "[")], &Limits::default()).unwrap_err();
        assert!(named.message.starts_with("--fail `[` is not a valid regex: unclosed character class"));
        assert!(refusal(&[]).contains("give at least one"));
        assert!(refusal(&["x"; 65]).contains("64 are allowed"));
    }

    #[test]
    fn w8_a_pattern_that_matches_nothing_at_all_is_refused() {
        for pattern in ["", "a*", "$", r"\b", "^", "(a|)", "(?:foo)?$"] {
            assert!(refusal(&[pattern]).contains("can match the empty string"), "{pattern}");
        }
    }

    #[test]
    fn w8_what_is_too_large_is_refused() {
        assert!(refusal(&[&"x".repeat(65 << 10)]).contains("too long: 66560 bytes; at most 65536 are allowed"));
        assert!(refusal(&[r"\w{9999}"]).contains("too large when compiled"));
        assert!(refusal(&["((a{100}){100}){100}"]).contains("too large when compiled (its repetitions"));
        assert!(refusal(&["(a|[bc]{9}){1000}{1000}"]).contains("too large when compiled (its repetitions"));
        assert!(refusal(&["ok", &r"\pL{40}".repeat(64)]).contains("too large when compiled"));
    }

    #[test]
    fn w8_a_catastrophic_pattern_is_harmless() {
        assert!(PatternSet::new(&[PatternSpec::new("(a|a)*(a+)+$")], &Limits::default()).is_ok());
    }

    #[test]
    fn some_patterns_reach_over_lines() {
        for within in ["error", "^a.*b$", r"(?i)x\d+", r"\bword\b"] {
            assert!(stays_within_line(within), "{within}");
        }
        for beyond in [r"a\nb", r"a\s+b", r"\Aa", r"a\z", "(?s)a.b", "[^x]"] {
            assert!(!stays_within_line(beyond), "{beyond}");
        }
    }

    /// S7: a pattern is rejected before it takes the memory for which it is rejected.
    #[test]
    fn w8_character_classes_are_counted_before_they_are_built() {
        let many = r"\w".repeat(30_000);
        assert!(class_bytes(&many, usize::MAX) > 100 << 20 && class_bytes(&many, 10 << 20) < 11 << 20);
        for many in [many.clone(), format!("[{many}]"), r"\pL".repeat(20_000)] {
            assert!(refusal(&[&many]).contains("its character classes take"));
        }
        // All patterns of a set count together.
        let some = format!("x{}", r"\w".repeat(300));
        assert!(class_bytes(&some, usize::MAX) < 10 << 20);
        assert!(refusal(&[some.as_str(); 64]).contains("its character classes take"));
        assert!(compile_one("screen[0]", &many, &Limits::default()).is_err());
    }

    /// S7: the memory of a set is known, including what it builds later.
    #[test]
    fn w7_a_pattern_set_reports_its_memory() {
        let set = |text: &str| PatternSet::new(&[PatternSpec::new(text)], &Limits::default()).unwrap();
        let (small, large) = (set("DONE"), set(r"(?:\w{50}){8}N"));
        assert!(small.memory() < 32 << 10, "{}", small.memory());
        assert!(large.memory() > 10 << 20, "{}", large.memory());
        assert!(small.search_memory() < 16 << 10 && large.search_memory() > 1 << 20, "{}", large.search_memory());
        let two: Vec<_> = ["one", "two"].map(PatternSpec::new).into();
        let two = PatternSet::new(&two, &Limits::default()).unwrap();
        assert!(two.search_memory() < 2 * small.search_memory() + (16 << 10));
        let screen = compile_one("screen[0]", r"(?:\w{50}){2}N", &Limits::default()).unwrap();
        assert!(screen.memory() > 5 << 20 && screen.is_match(&format!("{}N", "x".repeat(100))));
    }

    #[test]
    fn a_screen_pattern_has_the_same_messages_and_may_be_empty() {
        let limits = Limits::default();
        assert!(compile_one("screen[0]", "^$", &limits).unwrap().is_match("x\n\ny"));
        let error = compile_one("title", "a{2,1}", &limits).unwrap_err();
        assert!(error.message.starts_with("title `a{2,1}` is not a valid regex: invalid repetition count range"));
        assert!(
            compile_one("screen[0]", r"\w{9999}", &limits).unwrap_err().message.contains("too large when compiled")
        );
    }
}
