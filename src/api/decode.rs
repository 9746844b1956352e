//! Requests that cannot be read, explained in plain words: the field, what is expected there, what was given.
//!
//! A request is read by serde, whose errors are written for programmers. Only when it is refused is it
//! read again, into a tree ([`Node`]), and the type is asked once more with an error of our own
//! ([`Problem`]), which keeps the facts that serde only prints.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, Expected, IntoDeserializer as _, Unexpected, Visitor},
};
use serde_json::{Number, error::Category, json};

use super::{Error, Result};

/// The longest request, in bytes, in which a wrong field is sought by leaving out one after the other.
const SEARCHED_BYTES: usize = 16 * 1024;
/// Fields or items that are left out at each level of such a search.
const SEARCHED_FIELDS: usize = 64;
/// Levels of such a search.
const SEARCHED_LEVELS: usize = 4;
/// Characters of a wrong value that an error repeats.
const SHOWN: usize = 40;

/// Reads a request from JSON. `whole` is what an error calls it: `body`.
///
/// Error: `INVALID_ARGUMENT`, whose message begins with the field.
pub(crate) fn from_json<T: DeserializeOwned>(whole: &str, bytes: &[u8]) -> Result<T> {
    // serde would take a list for an object, field by field.
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    match serde_json::from_slice(bytes) {
        Ok(request) if is_object => Ok(request),
        _ => Node::parse(whole, bytes)?.read(whole),
    }
}

/// Reads a request from the pairs of a query.
///
/// Error: `INVALID_ARGUMENT`, whose message begins with the parameter.
pub(crate) fn from_pairs<T: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<T> {
    let length = pairs.iter().map(|(name, word)| name.len() + word.len()).sum();
    let pairs = pairs.into_iter().map(|(name, word)| (name, Value::Word(word))).collect();
    Node { value: Value::Object(pairs), length }.read("query")
}

/// A request as it was written, before it is known whether it fits its type.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    value: Value,
    /// Bytes of the request.
    length: usize,
}

impl Node {
    /// Reads JSON. Error: `INVALID_ARGUMENT` for what is no JSON.
    pub(crate) fn parse(whole: &str, bytes: &[u8]) -> Result<Self> {
        let value = serde_json::from_slice(bytes).map_err(|error| no_json(whole, bytes, &error))?;
        Ok(Self { value, length: bytes.len() })
    }

    /// Takes a field out of an object; `None` where there is none.
    pub(crate) fn take(&mut self, name: &str) -> Option<Self> {
        let Value::Object(fields) = &mut self.value else { return None };
        let at = fields.iter().position(|(known, _)| known == name)?;
        Some(Self { value: fields.remove(at).1, length: self.length })
    }

    /// Returns a field's number; `None` where there is none.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.value.at(&[Step::Field(name.to_owned())])? {
            Value::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// Returns a text's characters.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as an error shows it.
    pub(crate) fn shown(&self) -> String {
        self.value.shown()
    }

    /// Reads a request of this type. Error: `INVALID_ARGUMENT`.
    pub(crate) fn read<T: DeserializeOwned>(mut self, whole: &str) -> Result<T> {
        let problem = match T::deserialize(&self.value) {
            Ok(request) => return Ok(request),
            Err(problem) => problem,
        };
        let problem = if self.length <= SEARCHED_BYTES { self.narrow::<T>(problem) } else { problem };
        Err(problem.into_error(whole, &self.value))
    }

    /// Finds the place of a wrong value that serde does not name, since it stands in a flattened part: the field without
    /// which the request has another problem, or none.
    fn narrow<T: DeserializeOwned>(&mut self, problem: Problem) -> Problem {
        let mut path = problem.path.clone();
        for _ in 0..SEARCHED_LEVELS {
            if !matches!(problem.what, What::Wrong(_) | What::Other(_)) {
                break;
            }
            let Some(step) = self.wrong_part::<T>(&path, &problem) else { break };
            // Paths begin at their end.
            path.insert(0, step);
        }
        Problem { path, ..problem }
    }

    /// Returns the first field or item of the value at `path` that causes the problem.
    fn wrong_part<T: DeserializeOwned>(&mut self, path: &[Step], problem: &Problem) -> Option<Step> {
        let whole = self.value.at_mut(path)?.clone();
        let count = whole.len().min(SEARCHED_FIELDS);
        let mut solves = |part: Value| {
            *self.value.at_mut(path)? = part;
            match T::deserialize(&self.value) {
                Ok(_) => Some(()),
                // Without a field that is needed nothing else is known.
                Err(other) => (other != *problem && !matches!(other.what, What::Missing(_))).then_some(()),
            }
        };
        let mut place = (0..count).find(|place| solves(whole.without(*place..place + 1)).is_some());
        if place.is_none() {
            // Of several wrong ones the first: the one that is left when nothing behind it is.
            place = (0..count).rev().find(|place| solves(whole.without(*place..whole.len())).is_some());
        }
        *self.value.at_mut(path)? = whole;
        self.value.at(path)?.step(place?)
    }
}

/// Explains what is no JSON.
fn no_json(whole: &str, bytes: &[u8], error: &serde_json::Error) -> Error {
    if bytes.trim_ascii().is_empty() {
        return Error::invalid(format!("{whole}: expected a JSON object, got nothing"));
    }
    if error.classify() == Category::Eof {
        return Error::invalid(format!("{whole}: this is no whole JSON: it ends in the middle of a value"));
    }
    let line = bytes.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    // The column is that of the byte which does not fit, from 1.
    let rest = line.get(error.column().saturating_sub(1)..).filter(|rest| !rest.is_empty()).unwrap_or(line);
    let rest = shortened(&String::from_utf8_lossy(rest.get(..4 * SHOWN).unwrap_or(rest)));
    let (line, byte) = (error.line(), error.column());
    Error::invalid(format!("{whole}: this is no JSON from line {line}, byte {byte} on: {rest}"))
}

/// A value of a request.
#[derive(Clone, Debug)]
enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    /// A value of a query: a text, a number, true or false, whichever is wanted.
    Word(String),
    List(Vec<Value>),
    /// The fields in their order; a name may stand there twice.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Returns the value at a path, which begins at its end.
    fn at_mut(&mut self, path: &[Step]) -> Option<&mut Self> {
        path.iter().rev().try_fold(self, |value, step| match (value, step) {
            (Self::Object(fields), Step::Field(name)) => {
                fields.iter_mut().find(|(known, _)| known == name).map(|(_, value)| value)
            }
            (Self::List(items), Step::Item(place)) => items.get_mut(*place),
            _ => None,
        })
    }

    fn at(&self, path: &[Step]) -> Option<&Self> {
        path.iter().rev().try_fold(self, |value, step| match (value, step) {
            (Self::Object(fields), Step::Field(name)) => {
                fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
            }
            (Self::List(items), Step::Item(place)) => items.get(*place),
            _ => None,
        })
    }

    /// Returns how many fields or items it has.
    fn len(&self) -> usize {
        match self {
            Self::Object(fields) => fields.len(),
            Self::List(items) => items.len(),
            _ => 0,
        }
    }

    /// Returns the value without some of its fields or items.
    fn without(&self, places: Range<usize>) -> Self {
        match self {
            Self::Object(fields) => {
                let kept = fields.iter().enumerate().filter(|(place, _)| !places.contains(place));
                Self::Object(kept.map(|(_, field)| field.clone()).collect())
            }
            Self::List(items) => {
                let kept = items.iter().enumerate().filter(|(place, _)| !places.contains(place));
                Self::List(kept.map(|(_, item)| item.clone()).collect())
            }
            other => other.clone(),
        }
    }

    /// Returns the step to a field or an item.
    fn step(&self, place: usize) -> Option<Step> {
        match self {
            Self::Object(fields) => fields.get(place).map(|(name, _)| Step::Field(name.clone())),
            Self::List(items) => (place < items.len()).then_some(Step::Item(place)),
            _ => None,
        }
    }

    /// Returns the value as an error shows it.
    fn shown(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) | Self::Word(text) => shortened(text),
            Self::List(_) => "a list".into(),
            Self::Object(_) => "an object".into(),
        }
    }

    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Null => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Number(_) => Unexpected::Other("a number"),
            Self::Text(text) | Self::Word(text) => Unexpected::Str(text),
            Self::List(_) => Unexpected::Seq,
            Self::Object(_) => Unexpected::Map,
        }
    }
}

/// Returns a text between quotes, without its end where it is long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Tree;

        impl<'de> Visitor<'de> for Tree {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_unit<E>(self) -> std::result::Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
                Ok(Value::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
                Ok(Value::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
                Ok(Value::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
                Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<Value, E> {
                Ok(Value::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> std::result::Result<Value, E> {
                Ok(Value::Text(text))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::List(list))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Value, A::Error> {
                let mut object = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    object.push(field);
                }
                Ok(Value::Object(object))
            }
        }

        deserializer.deserialize_any(Tree)
    }
}

/// A step on the way to a value.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Item(usize),
}

/// A reason why a request does not fit its type.
#[derive(Debug, PartialEq)]
struct Problem {
    /// The way to the value, from its end to its beginning.
    path: Vec<Step>,
    what: What,
}

#[derive(Debug, PartialEq)]
enum What {
    /// Another value is expected.
    Wrong(String),
    Missing(&'static str),
    Unknown {
        name: String,
        known: &'static [&'static str],
    },
    Twice(&'static str),
    /// Words of the type itself.
    Other(String),
}

impl Problem {
    fn new(what: What) -> Self {
        Self { path: Vec::new(), what }
    }

    fn below(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    fn into_error(mut self, whole: &str, request: &Value) -> Error {
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
            What::Missing(_) => "this field is needed, and is not there".into(),
            What::Unknown { known: [], .. } => "no such field; there are none here".into(),
            What::Unknown { known, .. } => format!("no such field; there are {}", known.join(", ")),
            What::Twice(_) => "this field is there twice".into(),
            What::Other(message) => message.clone(),
        };
        if field.is_empty() {
            return Error::invalid(format!("{whole}: {message}"));
        }
        Error::invalid(format!("{field}: {message}")).with_details(json!({ "field": field }))
    }

    /// Writes the way to the value: `env.PATH`, `keys[2]`.
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

/// Returns the words for what serde calls a type.
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
        "a string" | "a borrowed string" | "str" => "a text".into(),
        "a sequence" => "a list".into(),
        "a map" => "an object".into(),
        _ if expected.starts_with("struct ") => "an object".into(),
        _ => expected.to_owned(),
    }
}

fn one_of(known: &[&str]) -> String {
    match known {
        [only] => (*only).to_owned(),
        _ => format!("one of {}", known.join(", ")),
    }
}

/// Calls the visitor with a value of a query that is to be a number.
macro_rules! numbers {
    ($($method:ident $visit:ident $number:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Problem> {
            let Value::Word(word) = self else { return self.deserialize_any(visitor) };
            match word.parse::<$number>() {
                Ok(number) => visitor.$visit(number),
                Err(_) => Err(de::Error::invalid_value(self.unexpected(), &visitor)),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for &'de Value {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Problem> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., number) => visitor.visit_f64(number.unwrap_or_default()),
            },
            Value::Text(text) | Value::Word(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Object(fields) => visitor.visit_map(Fields { rest: fields.iter(), value: None }),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Problem> {
        let Value::Word(word) = self else { return self.deserialize_any(visitor) };
        match word.parse() {
            Ok(value) => visitor.visit_bool(value),
            Err(_) => Err(de::Error::invalid_value(self.unexpected(), &visitor)),
        }
    }

    numbers! {
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Problem> {
        match self {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> std::result::Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    /// Reads an object. serde's own readers take a list for one too; a caller that sends a list meant something else.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, Problem> {
        match self {
            Value::Object(_) => self.deserialize_any(visitor),
            _ => Err(Problem::new(What::Wrong("an object".into()))),
        }
    }

    /// Reads a word of a list of words; all enums in requests are such.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, Problem> {
        match self {
            Value::Text(text) | Value::Word(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => Err(Problem::new(What::Wrong(one_of(known)))),
        }
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The items of a list.
struct Items<'a>(std::iter::Enumerate<std::slice::Iter<'a, Value>>);

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = Problem;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> std::result::Result<Option<T::Value>, Problem> {
        let Some((place, item)) = self.0.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|problem| problem.below(Step::Item(place)))
    }
}

/// The fields of an object.
struct Fields<'a> {
    rest: std::slice::Iter<'a, (String, Value)>,
    value: Option<&'a (String, Value)>,
}

impl<'de> de::MapAccess<'de> for Fields<'de> {
    type Error = Problem;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> std::result::Result<Option<K::Value>, Problem> {
        self.value = self.rest.next();
        let Some((name, _)) = self.value else { return Ok(None) };
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> std::result::Result<V::Value, Problem> {
        let (name, value) =
            self.value.take().ok_or_else(|| Problem::new(What::Other("a field has no value".into())))?;
        seed.deserialize(value).map_err(|problem| problem.below(Step::Field(name.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        CaptureRequest, InputRequest, NewSessionRequest, NewWindowRequest, PatchRequest, ReadRequest, RunRequest,
        ServerQuery, SplitRequest, WaitRequest,
    };

    fn refused<T: DeserializeOwned>(body: &str) -> String {
        from_json::<T>("body", body.as_bytes()).err().unwrap_or_else(|| panic!("it was taken: {body}")).message
    }

    fn refused_query<T: DeserializeOwned>(pairs: &[(&str, &str)]) -> String {
        let pairs = pairs.iter().map(|&(name, word)| (name.to_owned(), word.to_owned())).collect();
        from_pairs::<T>(pairs).err().unwrap().message
    }

    #[test]
    fn a_wrong_field_is_named_with_what_is_expected_and_what_was_given() {
        for (message, says) in [
            (refused::<InputRequest>(r#"{"keys":"Enter"}"#), r#"keys: expected a list, got "Enter""#),
            (refused::<InputRequest>(r#"{"keys":["a",7]}"#), "keys[1]: expected a text, got 7"),
            (refused::<InputRequest>(r#"{"text":"a","paste":1}"#), "paste: expected true or false, got 1"),
            (
                refused::<InputRequest>(r#"{"kyes":[]}"#),
                "kyes: no such field; there are keys, text, hex, paste, submit",
            ),
            (refused::<RunRequest>("{}"), "command: this field is needed, and is not there"),
            (refused::<RunRequest>(r#"{"command":"a","command":"b"}"#), "command: this field is there twice"),
            (
                refused::<WaitRequest>(r#"{"panes":["%0"],"mode":"both"}"#),
                r#"mode: expected one of any, all, got "both""#,
            ),
            (refused::<WaitRequest>(r#"{"panes":["%0"],"mode":{}}"#), "mode: expected one of any, all, got an object"),
            (
                refused::<WaitRequest>(r#"{"panes":["%0"],"timeout_ms":-1}"#),
                "timeout_ms: expected a whole number, 0 or more, got -1",
            ),
            (
                refused::<WaitRequest>(r#"{"panes":["%0"],"timeout_ms":1.5}"#),
                "timeout_ms: expected a whole number, 0 or more, got 1.5",
            ),
            (
                refused::<PatchRequest>(r#"{"width":70000}"#),
                "width: expected a whole number from 0 to 65535, got 70000",
            ),
            (
                refused::<PatchRequest>(r#"{"respawn":{"kill":"yes"}}"#),
                r#"respawn.kill: expected true or false, got "yes""#,
            ),
        ] {
            assert_eq!(message, says);
        }
        let long = refused::<InputRequest>(&format!(r#"{{"keys":"{}"}}"#, "x".repeat(5000)));
        assert!(long.len() < 200 && long.ends_with('…'), "{long}");
        let error = from_json::<InputRequest>("body", br#"{"keys":[1]}"#).unwrap_err();
        assert_eq!(error.details, Some(json!({ "field": "keys[0]" })));
    }

    /// serde keeps no path to what stands in a flattened part.
    #[test]
    fn a_wrong_field_of_a_flattened_part_is_found() {
        for (message, says) in [
            (
                refused::<NewSessionRequest>(r#"{"name":"a","command":"make"}"#),
                r#"command: expected a list, got "make""#,
            ),
            (refused::<NewSessionRequest>(r#"{"command":["a",5]}"#), "command[1]: expected a text, got 5"),
            (refused::<NewWindowRequest>(r#"{"session":"a","env":{"A":"1","B":2}}"#), "env.B: expected a text, got 2"),
            (
                refused::<SplitRequest>(r#"{"pane":"%0","keep":"no","cwd":"/"}"#),
                r#"keep: expected true or false, got "no""#,
            ),
            (
                refused::<PatchRequest>(r#"{"respawn":{"command":[null]}}"#),
                "respawn.command[0]: expected a text, got null",
            ),
        ] {
            assert_eq!(message, says);
        }
    }

    #[test]
    fn what_is_no_json_is_shown_where_it_ends_to_be_some() {
        for (body, says) in [
            ("", "body: expected a JSON object, got nothing"),
            (" \n", "body: expected a JSON object, got nothing"),
            (r#"{"command":"#, "body: this is no whole JSON: it ends in the middle of a value"),
            ("{\n  command: 1}", r#"body: this is no JSON from line 2, byte 3 on: "command: 1}""#),
            ("[]", "body: expected an object, got a list"),
            ("\"x\"", r#"body: expected an object, got "x""#),
            ("null", "body: expected an object, got null"),
        ] {
            assert_eq!(refused::<RunRequest>(body), says, "{body}");
        }
        assert!(refused::<RunRequest>(&"[".repeat(100_000)).starts_with("body: this is no JSON from line 1, byte "));
        assert!(refused::<RunRequest>(r#"{"command":"a"} {}"#).contains("no JSON from line 1, byte 17 on: \"{}\""));
    }

    #[test]
    fn a_wrong_parameter_is_named_too() {
        for (message, says) in [
            (refused_query::<CaptureRequest>(&[("join", "maybe")]), r#"join: expected true or false, got "maybe""#),
            (
                refused_query::<ReadRequest>(&[("since", "now"), ("wait_ms", "soon")]),
                r#"wait_ms: expected a whole number, 0 or more, got "soon""#,
            ),
            (
                refused_query::<ReadRequest>(&[("format", "xml")]),
                r#"format: expected one of text, ansi, raw, got "xml""#,
            ),
            (refused_query::<ServerQuery>(&[("socket", "/a"), ("socket", "/b")]), "socket: this field is there twice"),
            (refused_query::<ServerQuery>(&[("from", "5")]), r#"from: "5" is no id: % and a number are expected"#),
        ] {
            assert_eq!(message, says);
        }
    }

    #[test]
    fn what_fits_is_read() {
        let read: ReadRequest =
            from_pairs(vec![("wait_ms".into(), "20".into()), ("other".into(), "x".into())]).unwrap();
        assert_eq!(read.wait_ms, Some(20));
        let node = Node::parse("body", br#"{"session":"a","width":1,"env":{"A":"1"},"select":true}"#).unwrap();
        let window: NewWindowRequest = node.read("body").unwrap();
        assert!(window.select && window.spawn.env["A"] == "1");
    }
}
