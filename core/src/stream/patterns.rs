//! Patterns as a caller writes them, checked and compiled once, shared by every wait that uses
//! them.

use std::{
    error::Error,
    sync::{Arc, OnceLock},
};

use regex_automata::{
    Input, MatchKind,
    meta::Regex,
    nfa::thompson::{self, backtrack::BoundedBacktracker},
    util::captures::Captures,
};
use regex_syntax::{
    ParserBuilder,
    hir::{Class, Hir, HirKind, Look},
};

use super::matcher::automaton::{Automaton, Kind};
pub use super::matcher::bounds::Limits;

/// A pattern and what its caller knows it as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternSpec {
    /// The name that errors use for it (`patterns[1]`, `--fail`). Absent: its number in the set,
    /// counted from 1.
    pub name: Option<String>,
    /// The regex, in the syntax of the `regex` crate; `^` and `$` are line anchors.
    pub text: String,
}

impl PatternSpec {
    /// Makes a pattern that errors call by its number.
    pub fn new(text: impl Into<String>) -> Self {
        Self { name: None, text: text.into() }
    }
    /// Makes a pattern that errors call by a name.
    pub fn named(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: Some(name.into()), text: text.into() }
    }
}

/// Compiled patterns, for any number of [`Matcher`](super::matcher::Matcher)s. A clone is another
/// handle on the same.
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

/// A single automaton that finds which patterns of the set may have begun to match.
#[derive(Debug)]
pub(super) struct Prefilter {
    pub(super) automaton: Automaton,
    /// Which pattern of the set each of the automaton's patterns is.
    pub(super) members: Vec<usize>,
}

/// A pattern, in the forms in which it is searched.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Finds where the first match ends, byte by byte.
    pub(super) automaton: Automaton,
    /// Finds the whole match once its end is known. Nothing has to be built for that: it is what
    /// stands between a byte and its wait's answer.
    finder: BoundedBacktracker,
    /// Searches what is too long for that, and what the automaton cannot do. Most patterns never
    /// need it.
    regex: OnceLock<Option<Regex>>,
    hir: Hir,
    limits: Limits,
    /// Whether a match can hold a line end.
    pub(super) crosses: bool,
    /// Bytes of the longest match, when it has one.
    pub(super) longest: Option<usize>,
    /// Whether the automaton knows when nothing that comes changes a match.
    pub(super) foresees: bool,
}

impl PatternSet {
    /// Checks and compiles patterns.
    ///
    /// `INVALID_ARGUMENT`, with a message that says which pattern and what to do: a pattern that
    /// does not parse, that can match the empty string (it would match at once) or nothing at all,
    /// that is too long or too large when compiled, and a set of none or too many.
    pub fn new(specs: &[PatternSpec], limits: &Limits) -> crate::Result<Self> {
        if specs.is_empty() {
            return Err(crate::Error::invalid("no pattern; give at least one"));
        }
        if specs.len() > limits.patterns {
            return Err(crate::Error::invalid(format!(
                "{} patterns, {} are allowed; join some with `|`",
                specs.len(),
                limits.patterns
            )));
        }
        let names: Vec<String> = specs.iter().enumerate().map(|(index, spec)| describe(index, spec)).collect();
        let mut hirs = Vec::with_capacity(specs.len());
        for (spec, name) in specs.iter().zip(&names) {
            let hir = parse(&spec.text, name, limits)?;
            match hir.properties().minimum_len() {
                Some(0) => {
                    return Err(crate::Error::invalid(format!(
                        "{name} can match the empty string, so it would match at once; make some part of it obligatory \
                         (`+` in place of `*` or `?`)"
                    )));
                }
                None => {
                    return Err(crate::Error::invalid(format!("{name} can never match; an empty character class?")));
                }
                Some(_) => hirs.push(hir),
            }
        }
        let searched: Vec<Hir> =
            hirs.iter().map(|hir| if has_unicode_words(hir) { ascii_words(hir) } else { hir.clone() }).collect();
        let members: Vec<usize> =
            (0..hirs.len()).filter(|&index| hirs.get(index).is_some_and(|hir| !has_unicode_words(hir))).collect();
        // The whole set is compiled first, whatever searches by it: one limit then bounds all that
        // is compiled below.
        let whole = nfa(&searched, limits).map_err(|error| too_large(error.as_ref(), &names.join(", "), limits))?;
        let prefilter = if members.len() < 2 {
            None
        } else {
            let watched: Vec<&Hir> = members.iter().filter_map(|&index| searched.get(index)).collect();
            let nfa = if members.len() == hirs.len() {
                whole
            } else {
                nfa(&watched, limits).map_err(|error| too_large(error.as_ref(), &names.join(", "), limits))?
            };
            Some(Prefilter { automaton: Automaton::new(nfa, &watched, Kind::Every, limits, "the patterns")?, members })
        };
        let mut patterns = Vec::with_capacity(hirs.len());
        for ((hir, form), name) in hirs.iter().zip(&searched).zip(&names) {
            let compiled = nfa(&[form], limits).map_err(|error| too_large(error.as_ref(), name, limits))?;
            let kind = if has_unicode_words(hir) { Kind::FirstAscii } else { Kind::First };
            patterns.push(Pattern {
                automaton: Automaton::new(compiled, &[form], kind, limits, name)?,
                finder: finder(hir, limits).map_err(|error| too_large(error.as_ref(), name, limits))?,
                regex: OnceLock::new(),
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

    /// Returns the number of patterns; they are numbered from 0 in the order in which they were
    /// given.
    pub fn len(&self) -> usize {
        self.inner.patterns.len()
    }
    /// Returns false: a set has at least one pattern.
    pub fn is_empty(&self) -> bool {
        self.inner.patterns.is_empty()
    }
    /// Returns the limits with which it was compiled.
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
    /// Returns how far back of the text's end a match that crosses lines may begin.
    pub(super) fn reach(&self) -> usize {
        self.inner.reach
    }
}

impl Pattern {
    /// Returns the leftmost-first match in `bytes` that begins at `from` or later; what stands
    /// before `from` is context.
    pub(super) fn find(&self, bytes: &[u8], from: usize) -> Option<Captures> {
        // A span that does not lie in the haystack would panic.
        if from > bytes.len() {
            return None;
        }
        let regex = self.regex.get_or_init(|| regex(&self.hir, &self.limits).ok()).as_ref()?;
        let mut captures = regex.create_captures();
        regex.search_captures(&Input::new(bytes).span(from..bytes.len()), &mut captures);
        captures.is_match().then_some(captures)
    }

    /// Looks up a match that is known to be there.
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

/// Checks that a text is a regex, with the messages and limits of [`PatternSet::new`]. `name` is
/// what an error calls it.
pub fn check(name: &str, text: &str) -> crate::Result<()> {
    parse(text, &describe(0, &PatternSpec::named(name, text)), &Limits::default()).map(drop)
}

/// Compiles a regex that is searched in text that stands still (a screen, a title), with the
/// messages and limits of [`PatternSet::new`]. It may match the empty string: a screen can be
/// empty. `^` and `$` are line anchors. `name` is what an error calls it.
pub fn compile_one(name: &str, text: &str, limits: &Limits) -> crate::Result<regex::Regex> {
    let name = describe(0, &PatternSpec::named(name, text));
    parse(text, &name, limits)?;
    regex::RegexBuilder::new(text)
        .multi_line(true)
        .size_limit(limits.compiled_bytes)
        .build()
        .map_err(|error| too_large(&error, &name, limits))
}

/// Whether a pattern that [`compile_one`] took can only match within one line, and does not ask
/// where the text begins or ends: then lines can be searched one by one.
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

fn parse(text: &str, name: &str, limits: &Limits) -> crate::Result<Hir> {
    if text.len() > limits.pattern_bytes {
        return Err(crate::Error::invalid(format!(
            "{name} is {} bytes long, {} are allowed; wait for a shorter part of the text",
            text.len(),
            limits.pattern_bytes
        )));
    }
    let hir = ParserBuilder::new().multi_line(true).build().parse(text).map_err(|error| {
        let (what, column) = match &error {
            regex_syntax::Error::Parse(error) => (error.kind().to_string(), Some(error.span().start.column)),
            regex_syntax::Error::Translate(error) => (error.kind().to_string(), Some(error.span().start.column)),
            other => (other.to_string(), None),
        };
        let place = column.map(|column| format!(" at column {column}")).unwrap_or_default();
        crate::Error::invalid(format!(
            "{name} is not a valid regex: {what}{place}; to mean a character literally, put `\\` before any of \
             \\ . + * ? ( ) | [ ] {{ }} ^ $"
        ))
    })?;
    // Before it is compiled: all that memory would be asked for first, and the C library keeps what
    // was freed.
    let least = least_bytes(&hir);
    if least > limits.compiled_bytes as u64 {
        return Err(too_large_for(&format!("its repetitions take {least} bytes or more"), name, limits));
    }
    Ok(hir)
}

/// Returns a lower bound of the bytes that a compiled pattern takes.
fn least_bytes(hir: &Hir) -> u64 {
    /// A state of the automaton, one for each byte or class.
    const STATE: u64 = 24;
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => STATE.saturating_mul(literal.0.len() as u64),
        HirKind::Class(_) => STATE,
        // Each repetition that is counted is a copy.
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

fn regex(hir: &Hir, limits: &Limits) -> Result<Regex, Box<dyn Error>> {
    let config = Regex::config()
        .match_kind(MatchKind::LeftmostFirst)
        .nfa_size_limit(Some(limits.compiled_bytes))
        .hybrid_cache_capacity(limits.cache_bytes)
        .dfa(false)
        .onepass(false);
    Regex::builder().configure(config).build_from_hir(hir).map_err(Into::into)
}

fn has_unicode_words(hir: &Hir) -> bool {
    hir.properties().look_set().contains_word_unicode()
}

/// Returns the pattern with word boundaries as they are in ASCII text: those can be followed byte
/// by byte, the Unicode ones cannot.
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

/// Whether some part of the pattern matches word characters beyond ASCII, and none in ASCII. An
/// automaton that knows ASCII words only thinks that no such character can follow a `\b`; where a
/// part also matches ASCII, that shows it that the match can go on.
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
            "pattern 2 `foo(` is not a valid regex: unclosed group at column 4; to mean a character literally, \
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
        assert!(refusal(&[&"x".repeat(65 << 10)]).contains("66560 bytes long, 65536 are allowed"));
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
