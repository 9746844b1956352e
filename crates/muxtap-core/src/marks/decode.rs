//! Escapes within marks: percent encoding, shell quotes, backslashes, base64.
//!
//! Every function accepts any bytes. An escape that is malformed or cut off stays as it is.

use std::borrow::Cow;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use crate::tokens::printable_len;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns a text for display: at most `limit` bytes of it, without characters that control a
/// terminal or reorder a line. `lines`: line ends and tabs stay, else each becomes a space.
pub(super) fn clean(text: &[u8], limit: usize, lines: bool) -> String {
    if text.len() <= limit && printable_len(text) == text.len() {
        return String::from_utf8_lossy(text).into_owned();
    }
    let mut clean = String::new();
    for character in String::from_utf8_lossy(text).chars() {
        let character = match character {
            '\n' | '\t' if lines => character,
            '\n' | '\t' => ' ',
            _ if is_hidden(character) => continue,
            _ => character,
        };
        if clean.len() + character.len_utf8() > limit {
            break;
        }
        clean.push(character);
    }
    clean
}

/// Returns whether a terminal may act on a character (C0, DEL, C1), or reorder a line by it.
pub(super) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

/// Returns a name (an id, a nonce, a signal) if it is short printable ASCII.
pub(super) fn name(text: &[u8], limit: usize) -> Option<&str> {
    let fits = !text.is_empty() && text.len() <= limit && text.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(text).ok().filter(|_| fits)
}

/// Parses a decimal number.
pub(super) fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Splits at the first `separator`; without one, the second part is `None`.
pub(super) fn split(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(separator, text).and_then(|at| text.split_at_checked(at)) {
        Some((first, rest)) => (first, rest.get(1..)),
        None => (text, None),
    }
}

fn hex(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [high, low] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
        }
        _ => None,
    }
}

/// Decodes `%41` to `A`.
pub(super) fn percent(text: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(text).into()
}

/// Decodes `\x41` to `A` and `\\` to a backslash. systemd's own script writes `\x5x` for a
/// backslash (`80-systemd-osc-context.sh`), which is decoded too.
pub(super) fn backslashes(mut text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let (byte, used) = match (first, rest) {
            (b'\\', [b'\\', ..]) => (b'\\', 1),
            (b'\\', [b'x' | b'X', b'5', b'x', ..]) => (b'\\', 3),
            (b'\\', [b'x' | b'X', high, low, ..]) => hex(&[*high, *low]).map_or((b'\\', 0), |byte| (byte, 3)),
            _ => (*first, 0),
        };
        decoded.push(byte);
        text = rest.get(used..).unwrap_or_default();
    }
    decoded
}

/// Removes a shell's quotes, as `printf %q` and `${line@Q}` write them, up to a `;` outside of
/// quotes. Returns the text and the bytes from that `;` on.
pub(super) fn unquote(mut text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut plain = Vec::new();
    loop {
        text = match text {
            [] | [b';', ..] => return (plain, text),
            [b'$', b'\'', rest @ ..] => ansi_c(rest, &mut plain),
            [b'\'', rest @ ..] => {
                let (quoted, rest) = split(rest, b'\'');
                plain.extend_from_slice(quoted);
                rest.unwrap_or_default()
            }
            [b'"', rest @ ..] => double_quoted(rest, &mut plain),
            [b'\\', escaped, rest @ ..] => {
                plain.push(*escaped);
                rest
            }
            [byte, rest @ ..] => {
                plain.push(*byte);
                rest
            }
        }
    }
}

fn double_quoted<'a>(mut text: &'a [u8], plain: &mut Vec<u8>) -> &'a [u8] {
    loop {
        text = match text {
            [] => return text,
            [b'"', rest @ ..] => return rest,
            [b'\\', escaped @ (b'$' | b'`' | b'"' | b'\\'), rest @ ..] => {
                plain.push(*escaped);
                rest
            }
            [byte, rest @ ..] => {
                plain.push(*byte);
                rest
            }
        }
    }
}

/// Decodes the inside of `$'…'`. Returns what follows the closing quote.
fn ansi_c<'a>(mut text: &'a [u8], plain: &mut Vec<u8>) -> &'a [u8] {
    loop {
        text = match text {
            [] => return text,
            [b'\'', rest @ ..] => return rest,
            [b'\\', b'x', rest @ ..] => coded(rest, 16, 2, plain),
            [b'\\', b'u', rest @ ..] => coded(rest, 16, 4, plain),
            [b'\\', b'U', rest @ ..] => coded(rest, 16, 8, plain),
            [b'\\', b'0'..=b'7', ..] => coded(text.get(1..).unwrap_or_default(), 8, 3, plain),
            [b'\\', escaped, rest @ ..] => {
                plain.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'e' | b'E' => 0x1b,
                    b'f' => 0x0c,
                    b'v' => 0x0b,
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                plain.push(*byte);
                rest
            }
        }
    }
}

/// Decodes up to `most` digits: a byte for at most two hexadecimal or three octal ones, else a
/// character.
fn coded<'a>(text: &'a [u8], radix: u32, most: usize, plain: &mut Vec<u8>) -> &'a [u8] {
    let digits: Vec<u32> = text.iter().take(most).map_while(|byte| char::from(*byte).to_digit(radix)).collect();
    let value = digits.iter().fold(0_u32, |value, digit| value.wrapping_mul(radix).wrapping_add(*digit));
    if most <= 3 {
        plain.push((value & 0xff) as u8);
    } else {
        let character = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
        plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    text.get(digits.len()..).unwrap_or_default()
}

/// Decodes base64, with or without padding. `None` for any other text.
pub(super) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_lines_are_what_the_shell_had() {
        let cases: [(&[u8], &[u8], &[u8]); 9] = [
            (br"echo\ a\;\ b", b"echo a; b", b""),
            (b"'echo a; b';aid=3", b"echo a; b", b";aid=3"),
            (br"'it'\''s'", b"it's", b""),
            (br"$'a\nb\tc\'d'", b"a\nb\tc'd", b""),
            (br"$'\303\274\xc3\xbc\u00fc'", "\u{fc}\u{fc}\u{fc}".as_bytes(), b""),
            (br#""a\"b$c";x"#, br#"a"b$c"#, b";x"),
            (b"'open; end", b"open; end", b""),
            (b"", b"", b""),
            (b"\\", b"\\", b""),
        ];
        for (quoted, plain, rest) in cases {
            assert_eq!(unquote(quoted), (plain.to_vec(), rest), "{}", String::from_utf8_lossy(quoted));
        }
    }

    #[test]
    fn malformed_escapes_stay() {
        assert_eq!(*percent(b"a%20b%zz%4"), *b"a b%zz%4");
        assert_eq!(backslashes(br"a\x3bb\x5xc\x5cd\\e\xzz\x4"), br"a;b\c\d\e\xzz\x4");
    }

    #[test]
    fn base64_needs_no_padding_and_rejects_other_text() {
        assert_eq!(base64(b"aGVsbG8=").unwrap(), b"hello");
        assert_eq!(base64(b"aGVsbG8").unwrap(), b"hello");
        assert_eq!(base64(b"aGVsbG8h").unwrap(), b"hello!");
        assert_eq!(base64(b"").unwrap(), b"");
        assert_eq!(base64(b"a b"), None);
        assert_eq!(base64(b"aGVsb"), None);
    }

    #[test]
    fn shown_text_has_no_controls_and_is_bounded() {
        assert_eq!(clean(b"a\x1b[31mb\x07\nc\td\xc2\x9be\xff", 100, false), "a[31mb c de\u{fffd}");
        assert_eq!(clean("a\nb\u{202e}c".as_bytes(), 100, true), "a\nbc");
        assert_eq!(clean("\u{fc}\u{fc}\u{fc}".as_bytes(), 5, false), "\u{fc}\u{fc}");
    }
}
