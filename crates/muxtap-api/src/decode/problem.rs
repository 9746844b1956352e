//! Reasons why a request does not fit its type: the facts that serde only prints, and their
//! wording.

use std::fmt;

use serde::de::{self, Expected, Unexpected};
use serde_json::json;

use super::value::Value;
use crate::Error;

/// A step on the path to a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Field(String),
    Item(usize),
}

/// A reason why a request does not fit its type.
#[derive(Debug, PartialEq)]
pub(super) struct Problem {
    /// The path to the value, innermost step first.
    pub(super) path: Vec<Step>,
    pub(super) what: What,
}

#[derive(Debug, PartialEq)]
pub(super) enum What {
    /// Another value is expected.
    Wrong(String),
    Missing(&'static str),
    Unknown {
        name: String,
        known: &'static [&'static str],
    },
    Twice(&'static str),
    /// The type's own message.
    Other(String),
}

impl Problem {
    pub(super) fn new(what: What) -> Self {
        Self { path: Vec::new(), what }
    }

    pub(super) fn below(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    pub(super) fn into_error(mut self, whole: &str, request: &Value) -> Error {
        let given = request.at(&self.path).map(Value::shown);
        let name = match &self.what {
            What::Missing(name) | What::Twice(name) => Some((*name).to_owned()),
            What::Unknown { name, .. } => Some(name.clone()),
            What::Wrong(_) | What::Other(_) => None,
        };
        if let Some(name) = name {
            self.path.insert(0, Step::Field(name));
        }
        let field = self.place();
        let message = match &self.what {
            What::Wrong(expected) => {
                format!("expected {expected}, got {}", given.unwrap_or_else(|| "something else".into()))
            }
            What::Missing(_) => "required field is missing".into(),
            What::Unknown { name, known } => unknown("field", name, known),
            What::Twice(_) => "duplicate field".into(),
            What::Other(message) => message.clone(),
        };
        if field.is_empty() {
            return Error::invalid(format!("{whole}: {message}"));
        }
        Error::invalid(format!("{field}: {message}")).with_details(json!({ "field": field }))
    }

    /// Writes the path to the value: `env.PATH`, `keys[2]`.
    fn place(&self) -> String {
        let mut place = String::new();
        for step in self.path.iter().rev() {
            match step {
                Step::Field(name) if place.is_empty() => place.push_str(name),
                Step::Field(name) => place.extend([".", name]),
                Step::Item(at) => place.extend(["[", &at.to_string(), "]"]),
            }
        }
        place
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.what)
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(What::Other(message.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(What::Wrong(plain(&expected.to_string())))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(What::Wrong(plain(&expected.to_string())))
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::new(What::Wrong(plain(&expected.to_string())))
    }

    fn unknown_variant(_: &str, known: &'static [&'static str]) -> Self {
        Self::new(What::Wrong(one_of(known)))
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::new(What::Unknown { name: name.to_owned(), known })
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(What::Missing(name))
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::new(What::Twice(name))
    }
}

/// How similar a field's name must be (Jaro-Winkler, of 1) to be suggested.
const LIKE: f64 = 0.8;

/// Says that a name is unknown, and which one was probably meant. `what`: a field, a parameter.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    if known.is_empty() {
        return format!("no such {what}; none are accepted here");
    }
    let perhaps = nearest(name, known).map_or_else(String::new, |known| format!(" (did you mean `{known}`?)"));
    format!("no such {what}{perhaps}; valid {what}s: {}", known.join(", "))
}

/// Returns the field that was probably meant.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let likeness = |known: &'k str| (strsim::jaro_winkler(&name.to_lowercase(), known), known);
    let alike = known.iter().map(|known| likeness(known)).filter(|(likeness, _)| *likeness >= LIKE);
    let nearest = alike.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, known)| known);
    nearest.or_else(|| known.iter().find(|known| is_short_for(name, known)).copied())
}

/// Returns whether a name leaves out letters of another one: `cmd` of `command`.
fn is_short_for(name: &str, known: &str) -> bool {
    let mut letters = known.chars();
    name.len() > 2 && name.chars().next() == known.chars().next() && name.chars().all(|one| letters.any(|c| c == one))
}

/// Returns the plain words for a type that serde names.
fn plain(expected: &str) -> String {
    let whole = |least: i128, most: i128| format!("a whole number from {least} to {most}");
    match expected {
        "u8" => whole(0, u8::MAX.into()),
        "u16" => whole(0, u16::MAX.into()),
        "u32" => whole(0, u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more".into(),
        "i32" => whole(i32::MIN.into(), i32::MAX.into()),
        "i64" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a borrowed string" | "str" => "a string".into(),
        "a sequence" => "a list".into(),
        "a map" => "an object".into(),
        _ if expected.starts_with("struct ") => "an object".into(),
        _ => expected.to_owned(),
    }
}

pub(super) fn one_of(known: &[&str]) -> String {
    match known {
        [only] => (*only).to_owned(),
        _ => format!("one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_that_was_meant_is_named_if_there_is_one_like_it() {
        let known = ["panes", "patterns", "timeout_ms", "since", "prompt", "command"];
        for (name, meant) in [
            ("pane", Some("panes")),
            ("timeout", Some("timeout_ms")),
            ("timeoutMs", Some("timeout_ms")),
            ("Since", Some("since")),
            ("patern", Some("patterns")),
            ("cmd", Some("command")),
            ("dmc", None),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), meant, "{name}");
        }
    }
}
