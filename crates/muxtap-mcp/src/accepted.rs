//! The arguments that tools accept, including rare ones, by the names in their types.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
    forward_to_deserialize_any,
};

use super::{args, record::Record, snapshot::Snapshot};

/// Returns each tool that corresponds to HTTP requests, with every argument that it takes. Some
/// names are aliases: `pane` of `target`.
pub fn accepted_arguments() -> [(&'static str, &'static [&'static str]); 16] {
    [
        ("list", fields_of::<args::List>()),
        ("capture_pane", fields_of::<args::Capture>()),
        ("read_since", fields_of::<args::Read>()),
        ("wait_for", fields_of::<args::Wait>()),
        ("run", fields_of::<args::Run>()),
        ("send_keys", fields_of::<args::Send>()),
        ("create", fields_of::<args::Create>()),
        ("kill", fields_of::<args::Kill>()),
        ("rename", fields_of::<args::Rename>()),
        ("resize", fields_of::<args::Resize>()),
        ("select", fields_of::<args::Select>()),
        ("respawn", fields_of::<args::Respawn>()),
        ("search", fields_of::<args::Search>()),
        ("watch", fields_of::<args::Watch>()),
        ("record", fields_of::<Record>()),
        ("snapshot", fields_of::<Snapshot>()),
    ]
}

/// Returns the fields that a type requests from its deserializer.
pub(super) fn fields_of<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    T::deserialize(AskedFields).map_or_else(|Asked(fields)| fields, |_| &[])
}

/// A deserializer that yields nothing, and whose error lists the requested fields.
struct AskedFields;

/// The fields of a struct.
#[derive(Debug)]
struct Asked(&'static [&'static str]);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Asked {}

impl de::Error for Asked {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for AskedFields {
    type Error = Asked;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
        Err(Asked(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Asked> {
        Err(Asked(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
