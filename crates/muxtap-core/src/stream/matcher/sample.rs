//! A text that a pattern matches, generated from the pattern: input for rehearsing its automaton
//! before speed matters.

use regex_syntax::hir::{Class, ClassBytesRange, ClassUnicodeRange, Hir, HirKind};

/// The maximum number of bytes of a sample.
const LONGEST: usize = 512;

/// Returns a text that matches, in a line of its own. Without searching, this is a best guess:
/// lookarounds may forbid it.
pub(super) fn sample(hir: &Hir) -> Vec<u8> {
    let mut text = Vec::new();
    append(hir, &mut text);
    text.truncate(LONGEST);
    text.push(b'\n');
    text
}

fn append(hir: &Hir, text: &mut Vec<u8>) {
    if text.len() > LONGEST {
        return;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.extend_from_slice(&literal.0),
        HirKind::Class(class) => member(class, text),
        HirKind::Repetition(repetition) => {
            // Twice where allowed: the second repetition takes another path through the automaton
            // than the first.
            let times = repetition.max.unwrap_or(u32::MAX).min(repetition.min.max(2)).min(LONGEST as u32);
            for _ in 0..times {
                append(&repetition.sub, text);
            }
        }
        HirKind::Capture(capture) => append(&capture.sub, text),
        HirKind::Concat(parts) => parts.iter().for_each(|part| append(part, text)),
        HirKind::Alternation(choices) => {
            if let Some(first) = choices.first() {
                append(first, text);
            }
        }
    }
}

/// Appends a character of a class, a printable ASCII one if the class has one.
fn member(class: &Class, text: &mut Vec<u8>) {
    match class {
        Class::Unicode(class) => {
            let within =
                |from: char, to: char| class.ranges().iter().find(|range| range.start() <= to && from <= range.end());
            let printable = within('a', 'z').map(|range| range.start().max('a'));
            let printable = printable.or_else(|| within('!', '~').map(|range| range.start().max('!')));
            if let Some(one) = printable.or_else(|| class.ranges().first().map(ClassUnicodeRange::start)) {
                text.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        Class::Bytes(class) => text.extend(class.ranges().first().map(ClassBytesRange::start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_matches_its_pattern() {
        for pattern in
            [r"<w1 (\d+)>", r"BUILD (OK|FAILED)", r"[A-Za-z_]\w*:", "(?i)error", r"^\$ $", "é{3}x?", r"a{2,4}b"]
        {
            let hir = regex_syntax::parse(pattern).unwrap();
            let text = String::from_utf8(sample(&hir)).unwrap();
            assert!(regex::Regex::new(&format!("(?m){pattern}")).unwrap().is_match(&text), "{pattern}: {text:?}");
        }
    }

    #[test]
    fn a_sample_is_short_whatever_the_pattern() {
        let hir = regex_syntax::parse("((a{100}){100}){10}").unwrap();
        assert!(sample(&hir).len() <= LONGEST + 1);
    }
}
