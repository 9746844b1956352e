//! The tree of a request, from which a type is read.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer as _, Unexpected, Visitor},
};
use serde_json::Number;

use super::problem::{Problem, Step, What, one_of};

/// The number of characters of a wrong value that an error repeats.
pub(super) const SHOWN: usize = 40;

/// A value of a request.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    /// A text of JSON, as models write a list or a number: read as what it is if the type expects no
    /// text.
    Json(String, Box<Value>),
    /// A value of a query: read as a string, a number or a boolean, whichever the type expects.
    Word(String),
    List(Vec<Value>),
    /// The fields in their order; a name may occur twice.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Returns the value at a path, which begins at its end.
    pub(super) fn at(&self, path: &[Step]) -> Option<&Self> {
        path.iter().rev().try_fold(self, |value, step| match (value, step) {
            (Self::Object(fields), Step::Field(name)) => {
                fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
            }
            (Self::List(items), Step::Item(place)) => items.get(*place),
            (Self::Json(_, within), step) => within.at(std::slice::from_ref(step)),
            _ => None,
        })
    }

    /// Reads texts of JSON as what they are, where the type expects no text.
    pub(super) fn reading_json(self) -> Self {
        match self {
            Self::Text(text) => match serde_json::from_str::<Self>(&text) {
                Ok(Self::Null | Self::Text(_)) | Err(_) => Self::Text(text),
                Ok(value) => Self::Json(text, Box::new(value.reading_json())),
            },
            Self::List(items) => Self::List(items.into_iter().map(Self::reading_json).collect()),
            Self::Object(fields) => {
                Self::Object(fields.into_iter().map(|(name, value)| (name, value.reading_json())).collect())
            }
            other => other,
        }
    }

    /// Returns the value that a text of JSON is.
    fn within(&self) -> Option<&Self> {
        match self {
            Self::Json(_, value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value as an error shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) | Self::Word(text) | Self::Json(text, _) => shortened(text),
            Self::List(_) => "a list".into(),
            Self::Object(_) => "an object".into(),
        }
    }

    pub(super) fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Null => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Number(_) => Unexpected::Other("a number"),
            Self::Text(text) | Self::Word(text) | Self::Json(text, _) => Unexpected::Str(text),
            Self::List(_) => Unexpected::Seq,
            Self::Object(_) => Unexpected::Map,
        }
    }
}

/// Returns a text between quotes, cut off if it is long.
pub(super) fn shortened(text: &str) -> String {
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

/// Calls the visitor with a value of a query that is parsed as a number.
macro_rules! numbers {
    ($($method:ident $visit:ident $number:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Problem> {
            let Value::Word(word) = self else {
                let is_number = |inner: &&Value| matches!(inner, Value::Number(_));
                return self.within().filter(is_number).unwrap_or(self).deserialize_any(visitor);
            };
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
            Value::Text(text) | Value::Word(text) | Value::Json(text, _) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Object(fields) => visitor.visit_map(Fields { rest: fields.iter(), value: None }),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Problem> {
        let Value::Word(word) = self else {
            let is_bool = |inner: &&Value| matches!(inner, Value::Bool(_));
            return self.within().filter(is_bool).unwrap_or(self).deserialize_any(visitor);
        };
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

    /// Reads an object. serde's own readers also accept a list; a caller that sends a list meant
    /// something else.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, Problem> {
        match self.within().unwrap_or(self) {
            object @ Value::Object(_) => object.deserialize_any(visitor),
            _ => Err(Problem::new(What::Wrong("an object".into()))),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Problem> {
        let is_list = |inner: &&Value| matches!(inner, Value::List(_));
        self.within().filter(is_list).unwrap_or(self).deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> std::result::Result<V::Value, Problem> {
        let is_object = |inner: &&Value| matches!(inner, Value::Object(_));
        self.within().filter(is_object).unwrap_or(self).deserialize_any(visitor)
    }

    /// Reads a word from a fixed set; all enums in requests are such sets.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, Problem> {
        match self {
            Value::Text(text) | Value::Word(text) | Value::Json(text, _) => {
                visitor.visit_enum(text.as_str().into_deserializer())
            }
            _ => Err(Problem::new(What::Wrong(one_of(known)))),
        }
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
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
