//! Parses a request's body like `JSON.parse`: the last of several fields with one name counts,
//! numbers may be infinite, strings may have unpaired surrogates, and nesting has no limit.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::js::JsString;

/// The reason why a body is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The body is not JSON.
    NotJson,
    /// The body is JSON, but not an object.
    NotAnObject,
}

/// A body's JSON object.
#[derive(Debug)]
pub struct Object<'a> {
    fields: HashMap<JsString, &'a RawValue>,
}

/// A field's value.
#[derive(Debug, PartialEq)]
pub enum Value<'a> {
    /// The field is absent (`undefined`).
    Absent,
    /// `true` and `false`.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(JsString),
    /// An array.
    Array(Vec<&'a str>),
    /// `null` or an object; no field distinguishes them.
    Other,
}

impl<'a> Object<'a> {
    /// Parses a trimmed body.
    pub fn parse(body: &'a str) -> Result<Self, ParseError> {
        let whole: &RawValue = serde_json::from_str(body).map_err(|_| ParseError::NotJson)?;
        if !whole.get().starts_with('{') {
            return Err(ParseError::NotAnObject);
        }
        let fields = serde_json::from_str(whole.get()).map_err(|_| ParseError::NotJson)?;
        Ok(Self { fields })
    }

    /// Returns a field's value.
    pub fn field(&self, name: &str) -> Value<'a> {
        self.fields.get(&JsString::from(name)).map_or(Value::Absent, |raw| Value::read(raw.get()))
    }
}

impl<'de> Deserialize<'de> for JsString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| unquoted(raw.get()))
    }
}

impl<'a> Value<'a> {
    /// Reads one value that is known to be valid JSON.
    pub fn read(raw: &'a str) -> Self {
        match raw.as_bytes().first() {
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'"') => Self::Text(unquoted(raw)),
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
                Self::Array(items.into_iter().map(RawValue::get).collect())
            }
            // Rust parses all of JSON's numbers and rounds like JavaScript; too large a number is
            // infinite in both.
            Some(b'-' | b'0'..=b'9') => raw.parse().map_or(Self::Other, Self::Number),
            _ => Self::Other,
        }
    }

    /// Returns the text of a string.
    pub fn into_text(self) -> Option<JsString> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether the value is `true`.
    pub fn is_true(&self) -> bool {
        *self == Self::Bool(true)
    }
}

/// Decodes a string that is known to be valid JSON.
fn unquoted(raw: &str) -> JsString {
    let inner = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or_default();
    let mut units = Vec::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
            continue;
        }
        units.push(match characters.next() {
            Some('b') => 0x08,
            Some('t') => 0x09,
            Some('n') => 0x0a,
            Some('f') => 0x0c,
            Some('r') => 0x0d,
            Some('u') => characters
                .by_ref()
                .take(4)
                .filter_map(|digit| digit.to_digit(16))
                .fold(0, |unit, digit| unit << 4 | digit as u16),
            // `"`, `\` and `/` stand for themselves.
            other => other.map_or(0, |character| character as u16),
        });
    }
    JsString::from(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_json_and_what_is_an_object() {
        for (body, why) in [
            ("{", ParseError::NotJson),
            ("{}x", ParseError::NotJson),
            ("{'a':1}", ParseError::NotJson),
            ("{\"a\":1,}", ParseError::NotJson),
            ("{\"a\":01}", ParseError::NotJson),
            ("{\"a\":\"\n\"}", ParseError::NotJson),
            ("{\"a\":NaN}", ParseError::NotJson),
            ("\u{feff}{}", ParseError::NotJson),
            ("[]", ParseError::NotAnObject),
            ("null", ParseError::NotAnObject),
            ("\"{}\"", ParseError::NotAnObject),
            ("1e999", ParseError::NotAnObject),
        ] {
            assert_eq!(Object::parse(body).unwrap_err(), why, "{body:?}");
        }
    }

    #[test]
    fn the_last_of_two_fields_counts_and_names_may_be_escaped() {
        let object = Object::parse(r#"{"a":1,"\u0061":"x","\ud800":2,"b":1e999,"c":-0}"#).unwrap();
        assert_eq!(object.field("a"), Value::Text(JsString::from("x")));
        assert_eq!(object.field("b"), Value::Number(f64::INFINITY));
        assert_eq!(object.field("c"), Value::Number(0.0));
        assert_eq!(object.field("d"), Value::Absent);
    }

    #[test]
    fn halves_of_pairs_are_kept() {
        let object = Object::parse(r#"{"a":"\ud83d\ude00 \ud83d\u0041\/\"\\"}"#).unwrap();
        let expected = [0xd83d, 0xde00, 0x20, 0xd83d, 0x41, 0x2f, 0x22, 0x5c];
        assert_eq!(object.field("a"), Value::Text(JsString::from(expected.to_vec())));
    }

    #[test]
    fn nesting_has_no_limit() {
        let deep = format!("{{\"x\":{}{},\"a\":[[1],null]}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Object::parse(&deep).unwrap().field("a"), Value::Array(vec!["[1]", "null"]));
        let array = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Object::parse(&array).unwrap_err(), ParseError::NotAnObject);
    }
}
