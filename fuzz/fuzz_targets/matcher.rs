//! The matcher under any chunking, against `regex::Regex` on the whole text.
//!
//! The input is: a byte that selects how many hits are rejected, a byte that selects a pattern of
//! the menu or a free one, for a free one its text up to a line feed, then the stream. In it the
//! bytes 0xF5 and above, which are not UTF-8, separate chunks.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muxtap_core::stream::{
    matcher::{Hit, Matcher, Verdict},
    patterns::{Limits, PatternSet, PatternSpec},
    text::{Control, TextSink},
};

const MENU: &[&str] = &[
    "ab",
    "abcd|bc",
    "a.*b",
    "a.*?b",
    "^ab$",
    r"\bab\b",
    "a\nb",
    r"a\s+b",
    "(a)(b)?",
    "(?s)a.*c",
    "(?s)a.+?c",
    r"\$ $",
    "error: .*",
    "a{2,5}",
    r"\w+c",
    "é",
];

fuzz_target!(|data: &[u8]| {
    let [rejected, choice, stream @ ..] = data else { return };
    let rejected = usize::from(rejected % 4);
    let (pattern, stream) = match MENU.get(usize::from(choice % 32)) {
        Some(pattern) => (*pattern, stream),
        None => {
            let end = stream.iter().position(|byte| *byte == b'\n').unwrap_or(stream.len());
            let Ok(pattern) = str::from_utf8(&stream[..end]) else { return };
            (pattern, stream.get(end + 1..).unwrap_or_default())
        }
    };
    let limits = Limits { pattern_bytes: 200, compiled_bytes: 1 << 20, ..Limits::default() };
    // A second pattern involves the set's own automaton.
    for patterns in [vec![pattern], vec![pattern, "zq"]] {
        let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
        let Ok(set) = PatternSet::new(&specs, &limits) else { return };
        let mut matcher = Matcher::new(set);
        let mut hits: Vec<Hit> = Vec::new();
        let mut seen = 0;
        let mut judge = |hit: &Hit| {
            if hit.pattern != 0 {
                return Verdict::Reject;
            }
            hits.push(hit.clone());
            seen += 1;
            if seen > rejected { Verdict::Accept } else { Verdict::Reject }
        };
        let mut text = String::new();
        let mut held = false;
        let mut offset = 0;
        for chunk in stream.split(|byte| *byte >= 0xf5) {
            for piece in String::from_utf8_lossy(chunk).split_inclusive(['\n', '\r', '\x08']) {
                let (body, end) = match piece.char_indices().next_back() {
                    Some((at, last @ ('\n' | '\r' | '\x08'))) => (&piece[..at], Some(last)),
                    _ => (piece, None),
                };
                if !body.is_empty() {
                    text.push_str(if std::mem::take(&mut held) { "\n" } else { "" });
                    text.push_str(body);
                    matcher.text(offset, body.as_bytes());
                    offset += body.len() as u64;
                }
                if let Some(end) = end {
                    let control = match end {
                        '\n' => Control::LineFeed,
                        '\r' => Control::CarriageReturn,
                        _ => Control::Backspace,
                    };
                    matcher.control(offset, control);
                    offset += 1;
                    match end {
                        '\r' => held = true,
                        '\n' => {
                            held = false;
                            text.push('\n');
                        }
                        _ => {}
                    }
                }
            }
            matcher.end_of_chunk(&mut judge);
        }
        text.push_str(if held { "\n" } else { "" });
        if matcher.wants_rest() {
            matcher.rest(&mut judge);
        }
        // Longer matches are reported early: they are more than half a window.
        if text.len() > limits.window_bytes / 2 {
            return;
        }
        let regex = regex::RegexBuilder::new(pattern).multi_line(true).build().expect("the set took it");
        let expected: Vec<String> =
            regex.find_iter(&text).take(rejected + 1).map(|found| found.as_str().to_owned()).collect();
        let found: Vec<String> =
            hits.iter().map(|hit| hit.captures.first().cloned().flatten().unwrap_or_default()).collect();
        let clipped = |text: &String| text.len() > 4000;
        if !expected.iter().any(clipped) {
            assert_eq!(found, expected, "{pattern:?} in {text:?}");
        }
    }
});
