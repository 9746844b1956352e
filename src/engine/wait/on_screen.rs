//! Predicates about a screen, looked for in its lines or across them.

use regex::{Captures, Regex};

use super::{core::Latch, spec::Predicate};
use crate::{
    api::PredicateKind,
    screen::{CaptureOptions, Changes, Screen},
};

/// Returns where the predicate is satisfied on the screen, if it is. One that stands within a line is
/// looked for only in the lines that changed; that it is gone, in all of them.
pub(super) fn find(
    predicate: &Predicate,
    screen: &Screen,
    changes: Option<&Changes>,
    offset: u64,
    before: bool,
) -> Option<Latch> {
    let regex = predicate.regex.as_ref()?;
    let is_gone = predicate.kind == PredicateKind::Gone;
    if !predicate.within_line {
        let text = screen.capture(&CaptureOptions::default());
        return in_text(&String::from_utf8_lossy(&text), predicate, offset, before);
    }
    if is_gone {
        let stands = (0..screen.size().rows).any(|row| regex.is_match(&screen.row_text(row)));
        return (!stands).then(|| gone(offset, before));
    }
    (0..screen.size().rows)
        .filter(|row| changes.is_none_or(|changes| changes.row(*row)))
        .find_map(|row| in_text(&screen.row_text(row), predicate, offset, before))
}

/// Returns where the predicate is satisfied in a text, if it is.
pub(super) fn in_text(text: &str, predicate: &Predicate, offset: u64, before: bool) -> Option<Latch> {
    let regex = predicate.regex.as_ref()?;
    let found = regex.captures(text);
    if predicate.kind == PredicateKind::Gone {
        return found.is_none().then(|| gone(offset, before));
    }
    found.map(|found| latch(text, &found, regex, offset, before))
}

fn gone(offset: u64, before: bool) -> Latch {
    Latch { offset: Some(offset), before, ..Latch::default() }
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
