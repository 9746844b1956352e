//! Rewrites patterns for `regress`.
//!
//! Where `regress` parses a pattern differently from JavaScript without the flag `u`, the pattern
//! is rewritten to a form that both parse alike. The differences were found by comparing some
//! 290,000 random patterns with V8:
//! - `\u{41}` is the letter `u` 41 times (`regress`: U+0041). Written `u{41}`.
//! - `\ud83d\ude00` is two units (`regress`: one character). Written as those units themselves.
//! - `\b*` is an error (`regress`: allowed).

const BACKSLASH: u16 = b'\\' as u16;
const OPEN_BRACKET: u16 = b'[' as u16;
const CLOSE_BRACKET: u16 = b']' as u16;
const OPEN_GROUP: u16 = b'(' as u16;
const GREATER: u16 = b'>' as u16;

/// Rewrites a pattern for `regress`. `None`: JavaScript rejects it.
pub fn for_regress(source: &[u16]) -> Option<Vec<u16>> {
    let has_names = has_names(source);
    let mut out = Vec::with_capacity(source.len());
    let mut in_class = false;
    let mut left = source;
    loop {
        left = match left {
            [] => return Some(out),
            [BACKSLASH, letter, rest @ ..] => match (u8::try_from(*letter), in_class) {
                (Ok(b'b' | b'B'), false) => {
                    if begins_quantifier(rest) {
                        return None;
                    }
                    out.extend([BACKSLASH, *letter]);
                    rest
                }
                (Ok(b'u'), _) => match hex(rest, 4) {
                    Some((unit @ 0xd800..=0xdfff, rest)) => {
                        out.push(unit);
                        rest
                    }
                    Some((_, after)) => {
                        out.extend([BACKSLASH, *letter]);
                        out.extend(rest.iter().take(4));
                        after
                    }
                    None => {
                        out.push(*letter);
                        rest
                    }
                },
                (Ok(b'k'), false) if has_names => copy_name(left, &mut out),
                _ => {
                    out.extend([BACKSLASH, *letter]);
                    rest
                }
            },
            [OPEN_GROUP, ..] if !in_class && begins_name(left) => copy_name(left, &mut out),
            [unit, rest @ ..] => {
                match *unit {
                    OPEN_BRACKET => in_class = true,
                    CLOSE_BRACKET => in_class = false,
                    _ => {}
                }
                out.push(*unit);
                rest
            }
        };
    }
}

/// Copies a group's name unchanged, up to its end: it may hold `\u{…}` regardless of the flags.
fn copy_name<'a>(source: &'a [u16], out: &mut Vec<u16>) -> &'a [u16] {
    let end = source.iter().position(|unit| *unit == GREATER).map_or(source.len(), |at| at + 1);
    let (name, rest) = source.split_at(end);
    out.extend_from_slice(name);
    rest
}

/// Returns whether `source` begins with a named group: `(?<name`, but not `(?<=` and `(?<!`.
fn begins_name(source: &[u16]) -> bool {
    let begins = |text: &str| text.encode_utf16().zip(source).filter(|(a, b)| a == *b).count() == text.len();
    begins("(?<") && !begins("(?<=") && !begins("(?<!")
}

/// Returns whether any group has a name; only then is `\k` a reference.
fn has_names(source: &[u16]) -> bool {
    let mut in_class = false;
    let mut left = source;
    while let [unit, rest @ ..] = left {
        match *unit {
            BACKSLASH => {
                left = rest.get(1..).unwrap_or_default();
                continue;
            }
            OPEN_BRACKET => in_class = true,
            CLOSE_BRACKET => in_class = false,
            _ if !in_class && begins_name(left) => return true,
            _ => {}
        }
        left = rest;
    }
    false
}

/// Parses this many hexadecimal digits; returns their value and the rest.
fn hex(source: &[u16], digits: usize) -> Option<(u16, &[u16])> {
    let (number, rest) = source.split_at_checked(digits)?;
    let mut value = 0;
    for unit in number {
        value = value << 4 | char::from(u8::try_from(*unit).ok()?).to_digit(16)? as u16;
    }
    Some((value, rest))
}

/// Returns whether `source` begins with a quantifier: `*`, `+`, `?`, `{n}`, `{n,}` or `{n,m}`.
/// Braces around anything else are text.
fn begins_quantifier(source: &[u16]) -> bool {
    let mut units = source.iter().map(|unit| u8::try_from(*unit).unwrap_or_default()).peekable();
    match units.next() {
        Some(b'*' | b'+' | b'?') => return true,
        Some(b'{') if units.next().is_some_and(|unit| unit.is_ascii_digit()) => {}
        _ => return false,
    }
    while units.next_if(u8::is_ascii_digit).is_some() {}
    if units.next_if_eq(&b',').is_some() {
        while units.next_if(u8::is_ascii_digit).is_some() {}
    }
    units.next() == Some(b'}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    fn rewritten(source: &str) -> Option<String> {
        for_regress(&units(source)).map(|units| String::from_utf16(&units).unwrap())
    }

    #[test]
    fn only_what_is_read_otherwise_is_rewritten() {
        for same in [
            "a.b*c[\\d-z]\\.",
            "\\u0041\\x41[\\u0041]",
            "\\b\\w+\\b",
            "[\\b]*",
            "(?<n\\u{61}>a)\\k<n\\u{61}>",
            "\\b{",
            "\\b{a}",
            "\\\\b*",
            "(?<=\\()a",
            "\\",
        ] {
            assert_eq!(rewritten(same).as_deref(), Some(same));
        }
        assert_eq!(rewritten("\\u{41}[\\u{41}]").as_deref(), Some("u{41}[u{41}]"));
        assert_eq!(rewritten("\\k<\\u{61}>").as_deref(), Some("\\k<u{61}>"), "no name, no reference");
        assert_eq!(rewritten("\\u00\\u").as_deref(), Some("u00u"));
        assert_eq!(for_regress(&units("\\ud83d\\ude00[\\ude00]")).unwrap(), [0xd83d, 0xde00, 0x5b, 0xde00, 0x5d]);
        for wrong in ["\\b*", "\\B+", "a\\b?b", "\\b{1}", "\\B{1,}?", "(\\b{1,2})"] {
            assert_eq!(rewritten(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_brace_is_a_quantifier_only_where_it_is_whole() {
        for text in ["*a", "+?a", "?", "{2}", "{2,}x", "{2,13}?x", "{99999999999}"] {
            assert!(begins_quantifier(&units(text)), "{text}");
        }
        for text in ["", "{", "{}", "{,2}", "{2", "{2,", "{2,a}", "{a}", "x*"] {
            assert!(!begins_quantifier(&units(text)), "{text}");
        }
    }
}
