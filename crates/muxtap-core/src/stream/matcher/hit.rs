//! A match, in the form in which it is reported.

use std::collections::BTreeMap;

use memchr::{memchr, memrchr};
use regex_automata::{PatternID, util::captures::Captures};
use serde::{Deserialize, Serialize};

use super::window::Window;
use crate::stream::patterns::Pattern;

/// A match. Its texts are lossy UTF-8, each cut to 4 KiB, all of its groups together to 16 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// The pattern's number in its set.
    pub pattern: usize,
    /// The raw offset of the first byte.
    pub start: u64,
    /// The raw offset just after the last byte: a read from here on loses and repeats nothing.
    pub end: u64,
    /// The line or lines that contain the match, as far as they have been printed.
    pub line: String,
    /// The whole match, then its groups; a group that did not participate is `None`.
    pub captures: Vec<Option<String>>,
    /// The named groups that participated.
    pub groups: BTreeMap<String, String>,
    /// Whether the match began before the kept text
    /// ([`Limits::window_bytes`](crate::stream::patterns::Limits)): then `start` is the beginning
    /// of that text, and the captures are missing.
    pub truncated: bool,
}

/// A hit that waits for its owner's verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FoundMatch {
    pub(super) hit: Hit,
    pub(super) end: u64,
    /// Whether it was passed to the owner in this pass and deferred.
    pub(super) deferred: bool,
}

impl FoundMatch {
    /// Returns the match that ends at `end`, from the kept text.
    pub(super) fn look_up(pattern_index: usize, pattern: &Pattern, window: &Window, from: u64, end: u64) -> Self {
        let floor = window.index(from.max(window.floor()));
        let captures = pattern.look_up(window.bytes(), floor);
        let whole = captures.as_ref().and_then(Captures::get_match);
        let (start, stop) = whole.map_or((floor, window.index(end).max(floor)), |whole| (whole.start(), whole.end()));
        let text = |from: usize, to: usize| clip(window.bytes(), from, to);
        let mut hit = Hit {
            pattern: pattern_index,
            start: window.raw_start(window.position(start)),
            end: window.raw_end(window.position(stop)),
            line: line_around(window.bytes(), start, stop),
            captures: Vec::new(),
            groups: BTreeMap::new(),
            truncated: whole.is_none(),
        };
        if let Some(captures) = captures {
            let mut left = GROUPS_SHOWN;
            let mut group = |from: usize, to: usize| {
                let text = text(from, to.min(from.saturating_add(left)));
                left = left.saturating_sub(text.len());
                text
            };
            hit.captures = captures.iter().map(|span| span.map(|span| group(span.start, span.end))).collect();
            for (name, group) in captures.group_info().pattern_names(PatternID::ZERO).zip(&hit.captures) {
                if let (Some(name), Some(group)) = (name, group) {
                    hit.groups.insert(name.to_owned(), group.clone());
                }
            }
        }
        Self { hit, end: window.position(stop), deferred: false }
    }
}

/// The length to which a hit's text is cut.
const SHOWN: usize = 4 << 10;
/// The total length to which the groups are cut: hundreds of them may contain the same text.
const GROUPS_SHOWN: usize = 16 << 10;
/// The part of a long line that is shown before the match.
const SHOWN_BEFORE: usize = 1 << 10;

fn line_around(bytes: &[u8], start: usize, end: usize) -> String {
    let from = bytes.get(..start).and_then(|before| memrchr(b'\n', before)).map_or(0, |found| found + 1);
    let last = end.saturating_sub(1).max(start);
    let to = bytes.get(last..).and_then(|after| memchr(b'\n', after)).map_or(bytes.len(), |found| last + found);
    clip(bytes, from.max(start.saturating_sub(SHOWN_BEFORE)), to)
}

/// Returns bytes `from..to`, cut to whole characters.
fn clip(bytes: &[u8], mut from: usize, to: usize) -> String {
    let inside = |index: usize| bytes.get(index).is_some_and(|byte| (0x80..0xc0).contains(byte));
    let mut end = to.min(from.saturating_add(SHOWN));
    while inside(end) && end > from && end < to {
        end -= 1;
    }
    while inside(from) && from < end {
        from += 1;
    }
    String::from_utf8_lossy(bytes.get(from..end).unwrap_or_default()).into_owned()
}
