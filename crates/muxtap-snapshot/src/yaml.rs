//! Parses YAML to values, from the events of `saphyr-parser`.
//!
//! A few bytes of YAML can expand to gigabytes through aliases of aliases, hence the budget. Keys
//! and scalars have the types of YAML 1.2's core schema.

use std::collections::HashMap;

use muxtap_api::{Error, Result};
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

use super::limits::{YAML_BYTES, YAML_DEPTH, YAML_TEXT, YAML_VALUES};

/// Parses the first document of a text. Error: `INVALID_ARGUMENT`, with the line.
pub fn read(text: &str) -> Result<Value> {
    if text.len() > YAML_BYTES {
        return Err(Error::invalid(format!("text: {} bytes of YAML; at most {YAML_BYTES}", text.len())));
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Error::invalid(format!("text: invalid YAML: {error}")))?;
        let is_last = matches!(event, Event::DocumentEnd);
        builder.event(event).map_err(|why| Error::invalid(format!("text: line {}: {why}", span.start.line())))?;
        if is_last {
            break;
        }
    }
    Ok(builder.root.unwrap_or_default())
}

/// A list or mapping that is being read, and its anchor.
enum Open {
    List(Vec<Value>, usize),
    Mapping(Map<String, Value>, Option<String>, usize),
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, (Value, Size)>,
    built: Size,
    root: Option<Value>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>) -> std::result::Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, _) => self.close(scalar(&text, style), anchor),
            Event::SequenceStart(anchor, _) => self.begin(Open::List(Vec::new(), anchor)),
            Event::MappingStart(anchor, _) => self.begin(Open::Mapping(Map::new(), None, anchor)),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(items, anchor)) => self.close(items.into(), anchor),
                Some(Open::Mapping(fields, _, anchor)) => self.close(fields.into(), anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let size = self.anchors.get(&anchor).map(|(_, size)| *size).ok_or("an alias without its anchor")?;
                // Counted before it is copied.
                self.count(size)?;
                let value = self.anchors.get(&anchor).map(|(value, _)| value.clone());
                self.add(value.unwrap_or_default())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, open: Open) -> std::result::Result<(), String> {
        if self.open.len() >= YAML_DEPTH {
            return Err(format!("nested more than {YAML_DEPTH} levels deep"));
        }
        self.open.push(open);
        Ok(())
    }

    fn count(&mut self, more: Size) -> std::result::Result<(), String> {
        self.built = self.built.and(more);
        if self.built.values > YAML_VALUES {
            return Err(format!("more than {YAML_VALUES} values"));
        }
        if self.built.bytes > YAML_TEXT {
            return Err(format!("more than {YAML_TEXT} bytes of text, with aliases expanded"));
        }
        Ok(())
    }

    /// Adds a complete value.
    fn close(&mut self, value: Value, anchor: usize) -> std::result::Result<(), String> {
        let bytes = value.as_str().map_or(0, str::len);
        self.count(Size { values: 1, bytes })?;
        if anchor > 0 {
            let size = size(&value);
            // The copy counts like any other value.
            self.count(size)?;
            self.anchors.insert(anchor, (value.clone(), size));
        }
        self.add(value)
    }

    fn add(&mut self, value: Value) -> std::result::Result<(), String> {
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List(items, _)) => items.push(value),
            Some(Open::Mapping(fields, key, _)) => match key.take() {
                Some(name) if name == "<<" => merge(fields, value),
                Some(name) => drop(fields.insert(name, value)),
                None => match value {
                    Value::String(name) => *key = Some(name),
                    Value::Array(_) | Value::Object(_) => return Err("a key that is not a string".into()),
                    other => *key = Some(other.to_string()),
                },
            },
        }
        Ok(())
    }
}

/// Merges mappings (`<<: *anchor`); existing fields take precedence.
fn merge(fields: &mut Map<String, Value>, value: Value) {
    match value {
        Value::Object(more) => {
            for (name, value) in more {
                fields.entry(name).or_insert(value);
            }
        }
        Value::Array(items) => items.into_iter().for_each(|item| merge(fields, item)),
        _ => {}
    }
}

/// The size of the values that were built.
#[derive(Clone, Copy, Default)]
struct Size {
    values: usize,
    /// The size of the texts, in bytes.
    bytes: usize,
}

impl Size {
    fn and(self, more: Self) -> Self {
        Self { values: self.values.saturating_add(more.values), bytes: self.bytes.saturating_add(more.bytes) }
    }
}

fn size(value: &Value) -> Size {
    let one = Size { values: 1, bytes: 0 };
    match value {
        Value::String(text) => Size { bytes: text.len(), ..one },
        Value::Array(items) => items.iter().map(size).fold(one, Size::and),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| size(value).and(Size { values: 0, bytes: name.len() }))
            .fold(one, Size::and),
        _ => one,
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return text.into();
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => text.parse::<i64>().map_or_else(|_| text.into(), |number| Value::Number(Number::from(number))),
    }
}
