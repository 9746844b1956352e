//! A text that a pattern matches, made from the pattern: what its automaton is tried on before it
//! has to be quick.

use regex_syntax::hir::{Class, ClassBytesRange, ClassUnicodeRange, Hir, HirKind};

/// Bytes of a sample at most.
const LONGEST: usize = 512;

/// Returns a text that matches, as far as that can be known without searching (lookarounds may
/// forbid it), in a line of its own.
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
            // Twice where that is allowed: the second time takes another way through the automaton
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

/// Returns a character of a class, a printable ASCII one if there is one.
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
