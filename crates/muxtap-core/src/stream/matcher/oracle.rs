//! A comparison of the matcher with `regex::Regex` on the whole text.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::{Hit, Matcher, Verdict};
use crate::stream::{
    patterns::{Limits, PatternSet, PatternSpec},
    text::{Control, TextSink},
};

/// Makes the decoder's calls for a chunk that cuts no character and no escape sequence.
pub(super) fn feed(sink: &mut impl TextSink, offset: u64, chunk: &str) {
    for (at, token) in tokens(chunk) {
        let offset = offset + at as u64;
        match token.as_bytes() {
            b"\n" => sink.control(offset, Control::LineFeed),
            b"\r" => sink.control(offset, Control::CarriageReturn),
            b"\x08" => sink.control(offset, Control::Backspace),
            [0x1b, b'[', parameters @ .., last] => {
                let first = parameters.first().map_or(0, |digit| u16::from(digit - b'0'));
                sink.control(offset, Control::Csi(*last, first, 0));
            }
            text => sink.text(offset, text),
        }
    }
}

fn tokens(text: &str) -> Vec<(usize, &str)> {
    static TOKEN: LazyLock<regex::Regex> =
        LazyLock::new(|| regex::Regex::new("\\n|\\r|\x08|\x1b\\[[0-9;]*[A-Za-z]|[^\\n\\r\x08\x1b]+").unwrap());
    TOKEN.find_iter(text).map(|found| (found.start(), found.as_str())).collect()
}

/// Returns the match text of a finished stream, and the raw bytes that each of its bytes
/// represents.
fn flat(raw: &str) -> (String, Vec<(u64, u64)>) {
    let (mut text, mut places) = (String::new(), Vec::new());
    let mut pending = None;
    for (at, token) in tokens(raw) {
        let at = at as u64;
        let clears = |token: &str| token.ends_with(['A', 'B', 'E', 'F', 'H', 'f']) || token == "\x1b[2J";
        match token {
            "\r" => pending = Some(at),
            "\n" => {
                pending = None;
                text.push('\n');
                places.push((at, at + 1));
            }
            "\x08" => {}
            token if token.starts_with('\x1b') && !clears(token) => {}
            token => {
                if let Some(at) = pending.take() {
                    text.push('\n');
                    places.push((at, at + 1));
                }
                if !token.starts_with('\x1b') {
                    text.push_str(token);
                    places.extend((at..).take(token.len()).map(|at| (at, at + 1)));
                } else if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                    places.push((at, at));
                }
            }
        }
    }
    if let Some(at) = pending {
        text.push('\n');
        places.push((at, at + 1));
    }
    (text, places)
}

/// The first `rejected + 1` matches of a pattern: their raw places and groups.
type Expected = Vec<(u64, u64, Vec<Option<String>>)>;

fn expected(pattern: &str, raw: &str, rejected: usize) -> Expected {
    let (text, places) = flat(raw);
    let regex = regex::RegexBuilder::new(pattern).multi_line(true).build().unwrap();
    let groups = |captures: regex::Captures<'_>| {
        captures.iter().map(|group| group.map(|group| group.as_str().to_owned())).collect()
    };
    let found = regex.captures_iter(&text).take(rejected + 1);
    found
        .map(|captures| {
            (places[captures.get_match().start()].0, places[captures.get_match().end() - 1].1, groups(captures))
        })
        .collect()
}

/// Runs the stream in chunks. Each hit is deferred `put_off` times; each pattern's first `rejected`
/// hits are rejected.
fn run(matcher: &mut Matcher, chunks: &[&str], put_off: usize, rejected: usize) -> Vec<Vec<Hit>> {
    run_between(matcher, chunks, put_off, rejected, Between::Nothing)
}

/// What happens to a matcher between two chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    Shed,
    /// Another process continues it.
    Restored,
}

fn restored(matcher: &Matcher) -> Matcher {
    let stored = postcard::to_allocvec(&matcher.store()).unwrap();
    let restored = Matcher::restore(matcher.patterns().clone(), postcard::from_bytes(&stored).unwrap()).unwrap();
    assert_eq!((restored.wants_rest(), restored.is_done()), (matcher.wants_rest(), matcher.is_done()));
    restored
}

fn run_between(
    matcher: &mut Matcher,
    chunks: &[&str],
    put_off: usize,
    rejected: usize,
    between: Between,
) -> Vec<Vec<Hit>> {
    let mut hits: Vec<Vec<Hit>> = vec![Vec::new(); matcher.patterns().len()];
    let mut shown = vec![0; hits.len()];
    let mut judge = |hit: &Hit| {
        shown[hit.pattern] += 1;
        if shown[hit.pattern] <= put_off {
            return Verdict::Later;
        }
        shown[hit.pattern] = 0;
        let seen = &mut hits[hit.pattern];
        seen.push(hit.clone());
        if seen.len() > rejected { Verdict::Accept } else { Verdict::Reject }
    };
    let mut offset = 0;
    for chunk in chunks {
        feed(matcher, offset, chunk);
        offset += chunk.len() as u64;
        matcher.end_of_chunk(&mut judge);
        match between {
            Between::Nothing => {}
            Between::Shed => matcher.shed(),
            Between::Restored => *matcher = restored(matcher),
        }
    }
    for _ in 0..=put_off * (rejected + 2) {
        if put_off > 0 || matcher.wants_rest() {
            matcher.rest(&mut judge);
        }
    }
    hits
}

const PATTERNS: &[&str] = &[
    "a",
    "ab",
    "abc|b",
    "abcd|bc",
    "b+",
    "a*b",
    "a.*b",
    "a.*?b",
    "[ab]c",
    "[^a\n]c",
    "^a",
    "b$",
    "^ab$",
    r"\bab",
    r"ab\b",
    r"\Bb",
    r"\bé\b",
    "é",
    ".c",
    "a{2}",
    "(?:ab){1,3}",
    "a\nb",
    "a\n+b",
    r"a\s+b",
    "(a)(b)?",
    "(?P<x>a|ab)(c|bcd)?",
    "(?s)a.*c",
    "(?s)a.+?c",
    r"\Aa",
    r"c\z",
    "(?i)AB",
    r"\w+c",
    r"\d+ (?:ok|no)",
    r"\$ $",
    "error: .*",
    "^c.*$",
    "[a-c]+é",
    r"(?-u:\b)b",
    "\n\n",
    "c\n",
    r"b\b.*a",
    r"(?s)\bb.*\bc",
    "..",
    "^$\na",
    r"b (?:\bé)?",
    "a(?:b$)?",
    r"[ .](?:\b[.é])?",
];
const PIECES: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "ab",
    "abc",
    "bcd",
    " ",
    "\n",
    "\r\n",
    "\r",
    "\r\r\n",
    "é",
    "12 ok",
    "error: ",
    "$ ",
    "\x1b[m",
    "\x1b[3;1H",
    "\x1b[2J",
    "\x1b[K",
    "\x1b[A",
    "\x08",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "\u{fffe}",
    "_",
];

fn streams() -> impl Strategy<Value = (Vec<&'static str>, Vec<usize>)> {
    (prop::collection::vec(prop::sample::select(PIECES), 0..24), prop::collection::vec(1..5_usize, 24))
}

proptest! {
    /// W1, W2, W5: the hits are those of a search of the whole text, whatever the chunks.
    #[test]
    fn w1_hits_equal_those_of_a_search_of_the_whole_text(
        patterns in prop::collection::vec(prop::sample::select(PATTERNS), 1..5),
        (pieces, sizes) in streams(),
        rejected in 0..3_usize,
        put_off in 0..3_usize,
        cache in prop::sample::select(&[0_usize, 1 << 18]),
        between in prop::sample::select(&[Between::Nothing, Between::Shed, Between::Restored]),
    ) {
        let mut chunks = Vec::new();
        let mut left = pieces.as_slice();
        for size in sizes.into_iter().cycle() {
            if left.is_empty() { break; }
            let (chunk, rest) = left.split_at(size.min(left.len()));
            chunks.push(chunk.concat());
            left = rest;
        }
        let raw = chunks.concat();
        let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
        let limits = Limits { cache_bytes: cache, ..Limits::default() };
        let mut matcher = Matcher::new(PatternSet::new(&specs, &limits).unwrap());
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        let hits = run_between(&mut matcher, &chunks, put_off, rejected, between);
        for (pattern, hits) in patterns.iter().zip(&hits) {
            let found: Expected = hits.iter().map(|hit| (hit.start, hit.end, hit.captures.clone())).collect();
            prop_assert_eq!(&found, &expected(pattern, &raw, rejected), "{:?} in {:?}", pattern, &chunks);
            prop_assert!(hits.iter().all(|hit| !hit.truncated));
        }
    }

    /// W7: a window of a few bytes breaks nothing, and memory stays bounded.
    #[test]
    fn w7_a_tiny_window_is_only_less_exact(
        patterns in prop::collection::vec(prop::sample::select(PATTERNS), 1..5),
        (pieces, _) in streams(),
        window in 0..40_usize,
    ) {
        let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
        let limits = Limits { window_bytes: window, ..Limits::default() };
        let mut matcher = Matcher::new(PatternSet::new(&specs, &limits).unwrap());
        for hits in run(&mut matcher, &pieces, 0, 3) {
            prop_assert!(hits.iter().all(|hit| hit.start <= hit.end));
        }
        prop_assert!(matcher.window.bytes().len() <= 2 * window + 64);
    }
}

/// W1, W7: lookaheads at the end of each chunk do not disturb a search whose states do not fit in
/// their cache.
#[test]
fn w7_a_full_cache_does_not_change_the_hits() {
    let pattern = "a.{9}c$";
    let limits = Limits { cache_bytes: 0, ..Limits::default() };
    let mut seed = 1_u32;
    let mut random = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ["a", "x", "é"][(seed >> 20) as usize % 3]
    };
    let text: String = (0..600).map(|_| (0..101).map(&mut random).collect::<String>() + "c\n").collect();
    for patterns in [&[pattern][..], &[pattern, "never"]] {
        let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
        let mut matcher = Matcher::new(PatternSet::new(&specs, &limits).unwrap());
        let chunks: Vec<&str> = text.split_inclusive(|_| true).collect();
        let found: Expected = run(&mut matcher, &chunks, 0, 1000)[0]
            .iter()
            .map(|hit| (hit.start, hit.end, hit.captures.clone()))
            .collect();
        assert_eq!(found, expected(pattern, &text, 1000));
        assert!(found.len() > 5);
    }
}
