//! Screen predicates, searched for in the screen's lines or across them.

use muxtap_api::PredicateKind;
use muxtap_core::{
    screen::{CaptureOptions, Changes, Screen},
    stream::patterns::TextMatch,
};

use super::{core::Latch, spec::Predicate};

use crate::audit::shortened;

/// Returns where the screen satisfies the predicate, or `None`. A pattern that stays within a line
/// is searched for only in the changed lines; for `gone`, all lines are searched.
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

/// Returns where a text satisfies the predicate, or `None`.
pub(super) fn in_text(text: &str, predicate: &Predicate, offset: u64, before: bool) -> Option<Latch> {
    let regex = predicate.regex.as_ref()?;
    let found = regex.find(text);
    if predicate.kind == PredicateKind::Gone {
        return found.is_none().then(|| gone(offset, before));
    }
    found.map(|found| latch(text, &found, offset, before))
}

fn gone(offset: u64, before: bool) -> Latch {
    Latch { offset: Some(offset), before, ..Latch::default() }
}

fn latch(text: &str, found: &TextMatch<'_>, offset: u64, before: bool) -> Latch {
    let at = found.range();
    let line_start = text.get(..at.start).and_then(|head| head.rfind('\n')).map_or(0, |at| at + 1);
    let line_end = text.get(at.end..).and_then(|tail| tail.find('\n')).map_or(text.len(), |end| at.end + end);
    let line = text.get(line_start..line_end).map(|line| cut(line, &mut SHOWN.clone()));
    let mut left = SHOWN;
    let captures = found.groups().map(|group| group.map(|group| cut(group, &mut left))).collect();
    let mut left = SHOWN;
    let groups = found.named().map(|(name, group)| (name.to_owned(), cut(group, &mut left))).collect();
    Latch { offset: Some(offset), line, captures, groups, before, ..Latch::default() }
}

/// Maximum bytes kept of a line and of all groups of a match: a screen may have a megabyte.
const SHOWN: usize = 16 * 1024;

/// Cuts a text to the remaining bytes.
fn cut(text: &str, left: &mut usize) -> String {
    let text = shortened(text, *left);
    *left -= text.len();
    text.to_owned()
}
