//! Finds a `screen` predicate on a screen, in its lines or across them.

use regex::{Captures, Regex};

use super::{core::Latch, spec::Predicate};
use crate::screen::{CaptureOptions, Changes, Screen};

/// Returns where the predicate is satisfied on the screen, if it is. A predicate that stands within
/// a line is looked for only in the lines that changed.
pub(super) fn find(
    predicate: &Predicate,
    screen: &Screen,
    changes: Option<&Changes>,
    offset: u64,
    before: bool,
) -> Option<Latch> {
    let regex = predicate.regex.as_ref()?;
    if !predicate.within_line {
        let text = screen.capture(&CaptureOptions::default());
        return in_text(&String::from_utf8_lossy(&text), regex, offset, before);
    }
    (0..screen.size().rows)
        .filter(|row| changes.is_none_or(|changes| changes.row(*row)))
        .find_map(|row| in_text(&screen.row_text(row), regex, offset, before))
}

/// Returns where the predicate is satisfied in a text, if it is.
pub(super) fn in_text(text: &str, regex: &Regex, offset: u64, before: bool) -> Option<Latch> {
    regex.captures(text).map(|found| latch(text, &found, regex, offset, before))
}

fn latch(text: &str, found: &Captures<'_>, regex: &Regex, offset: u64, before: bool) -> Latch {
    let (start, end) = found.get(0).map_or((0, 0), |whole| (whole.start(), whole.end()));
    let line_start = text.get(..start).and_then(|head| head.rfind('\n')).map_or(0, |at| at + 1);
    let line_end = text.get(end..).and_then(|tail| tail.find('\n')).map_or(text.len(), |at| end + at);
    let groups = regex.capture_names().flatten();
    Latch {
        offset: Some(offset),
        line: text.get(line_start..line_end).map(str::to_owned),
        captures: found.iter().map(|group| group.map(|group| group.as_str().to_owned())).collect(),
        groups: groups.filter_map(|name| Some((name.to_owned(), found.name(name)?.as_str().to_owned()))).collect(),
        before,
        ..Latch::default()
    }
}
