//! JavaScript's strings, numbers and white space: the contract counts and trims like JavaScript.

use serde_json::value::{RawValue, to_raw_value};

/// A JavaScript string: UTF-16 units, possibly with unpaired surrogates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JsString(Vec<u16>);

impl JsString {
    /// Returns the length in UTF-16 units, which is JavaScript's `length`.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the UTF-16 units.
    pub fn units(&self) -> &[u16] {
        &self.0
    }

    /// Returns the string without the white space at both ends (`String.prototype.trim`).
    pub fn trimmed(&self) -> Self {
        let end = self.0.iter().rposition(|unit| !is_space(*unit)).map_or(0, |at| at + 1);
        let kept = self.0.get(..end).unwrap_or_default();
        let start = kept.iter().position(|unit| !is_space(*unit)).unwrap_or(0);
        Self(kept.get(start..).unwrap_or_default().to_vec())
    }

    /// Appends `more`.
    pub fn with(mut self, more: &Self) -> Self {
        self.0.extend_from_slice(&more.0);
        self
    }

    /// Converts to UTF-8; an unpaired surrogate becomes U+FFFD.
    pub fn lossy(&self) -> String {
        String::from_utf16_lossy(&self.0)
    }

    /// Returns whether the string equals `text`.
    pub fn is(&self, text: &str) -> bool {
        self.0.iter().copied().eq(text.encode_utf16())
    }

    /// Encodes the string as `JSON.stringify` does, quotes included.
    pub fn to_json(&self) -> Box<RawValue> {
        if let Ok(text) = String::from_utf16(&self.0) {
            return to_json(&text);
        }
        // `serde_json` writes the same as `JSON.stringify`, except for unpaired surrogates.
        let inner: String = char::decode_utf16(self.0.iter().copied())
            .map(|unit| match unit {
                Ok(character) => {
                    let quoted = to_json(character.encode_utf8(&mut [0; 4]));
                    quoted.get().get(1..quoted.get().len() - 1).unwrap_or_default().to_owned()
                }
                Err(alone) => format!("\\u{:04x}", alone.unpaired_surrogate()),
            })
            .collect();
        RawValue::from_string(format!("\"{inner}\"")).unwrap_or_default()
    }
}

impl From<Vec<u16>> for JsString {
    fn from(units: Vec<u16>) -> Self {
        Self(units)
    }
}

impl From<&str> for JsString {
    fn from(text: &str) -> Self {
        Self(text.encode_utf16().collect())
    }
}

/// Encodes a string without unpaired surrogates as `JSON.stringify` does, quotes included.
pub fn to_json(text: &str) -> Box<RawValue> {
    // Serializing a string cannot fail.
    to_raw_value(text).unwrap_or_default()
}

/// Returns whether `trim` and `\s` treat a unit as white space or a line terminator: U+FEFF is one,
/// U+0085 is not.
pub const fn is_space(unit: u16) -> bool {
    matches!(
        unit,
        0x09..=0x0d | 0x20 | 0xa0 | 0x1680 | 0x2000..=0x200a | 0x2028 | 0x2029 | 0x202f | 0x205f | 0x3000 | 0xfeff
    )
}

fn is_space_character(character: char) -> bool {
    u16::try_from(u32::from(character)).is_ok_and(is_space)
}

/// Trims like `String.prototype.trim`.
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_space_character)
}

/// Trims like `String.prototype.trimEnd`.
pub fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space_character)
}

/// Parses like `Number.parseInt(text, 10)`; `None` for NaN.
pub fn parse_int(text: &str) -> Option<i64> {
    let text = text.trim_start_matches(is_space_character);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let digits = digits.get(..length).filter(|digits| !digits.is_empty())?;
    // A value that overflows is far beyond any limit.
    Some(sign * digits.parse::<i64>().unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_javascripts() {
        assert_eq!(trim("\u{feff}\u{a0}\u{3000}\n\u{b} a b \u{2029}"), "a b");
        assert_eq!(trim("\u{85}a\u{200b}"), "\u{85}a\u{200b}");
        assert_eq!(trim_end(" a\n\n \u{feff}"), " a");
        assert!(JsString::from(" \u{feff}\t").trimmed().is_empty());
        assert_eq!(JsString::from(" a b ").trimmed(), JsString::from("a b"));
    }

    #[test]
    fn length_is_in_utf16_units() {
        assert_eq!((JsString::from("é").len(), JsString::from("😀").len()), (1, 2));
    }

    #[test]
    fn json_is_written_as_by_stringify() {
        let written = to_json("\u{8}\u{c}\n\r\t\"\\/\u{0}\u{1f}\u{7f}\u{2028}é😀");
        assert_eq!(written.get(), "\"\\b\\f\\n\\r\\t\\\"\\\\/\\u0000\\u001f\u{7f}\u{2028}é😀\"");
        let halves = JsString::from(vec![0x61, 0xd83d, 0x22, 0x0a, 0xde00, 0xd83d, 0xde00]);
        assert_eq!(halves.to_json().get(), "\"a\\ud83d\\\"\\n\\ude00😀\"");
    }

    #[test]
    fn numbers_are_read_up_to_their_first_stranger() {
        for (text, number) in [
            ("500", Some(500)),
            (" \u{a0}-7x", Some(-7)),
            ("1e4", Some(1)),
            ("600.9", Some(600)),
            ("+8", Some(8)),
            ("", None),
            ("x1", None),
            ("- 1", None),
            ("99999999999999999999", Some(i64::MAX)),
        ] {
            assert_eq!(parse_int(text), number, "{text:?}");
        }
    }
}
