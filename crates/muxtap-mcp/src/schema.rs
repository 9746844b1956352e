//! Schemas of tools' arguments and results, kept small: a model reads them in every session.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::{Map, Value};
use utoipa::{PartialSchema, ToSchema};

/// Fields whose names need no description.
pub const SELF_EXPLANATORY: [&str; 6] = ["width", "height", "cwd", "env", "panes", "device"];
/// Descriptions that add nothing to the field's name.
const ADDS_NOTHING: [&str; 3] = ["A pane", "New name", "Page size"];

/// Fields of results that only calls for several hosts have.
const OF_SEVERAL_HOSTS: [&str; 2] = ["host", "unreachable"];

/// Returns the schema of a tool's arguments: descriptions stay, and null is not a value of an optional
/// field.
pub fn input<T: ToSchema>() -> Arc<JsonObject> {
    let mut schema = with_refs_inlined::<T>();
    prune(&mut schema, &PruneOptions { descriptions: true });
    if let Some(fields) = schema.pointer_mut("/properties").and_then(Value::as_object_mut) {
        let description =
            |field: &Value| field.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        // Every tool takes it; the first one's schema says so.
        fields.retain(|_, field| description(field) != "As in list");
        for (name, field) in fields {
            let needless = ADDS_NOTHING.contains(&description(field).as_str());
            if let Some(field) = field.as_object_mut().filter(|_| needless || SELF_EXPLANATORY.contains(&name.as_str()))
            {
                field.remove("description");
            }
        }
    }
    object(schema)
}

/// Returns the schema of a tool's result: names and types of its fields. `docs/http.md` explains
/// them.
pub fn output<T: ToSchema>() -> Arc<JsonObject> {
    let mut schema = with_refs_inlined::<T>();
    prune(&mut schema, &PruneOptions { descriptions: false });
    let mut schema = (*object(schema)).clone();
    schema.remove("required");
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        fields.retain(|name, _| !OF_SEVERAL_HOSTS.contains(&name.as_str()));
        fields.values_mut().for_each(shallow);
    }
    Arc::new(schema)
}

/// Removes the inner structure of a field: a model sees it in the result.
fn shallow(field: &mut Value) {
    let Value::Object(field) = field else { return };
    if let Some(choices) = field.remove("oneOf") {
        let one = choices.as_array().into_iter().flatten().find(|choice| choice["type"] != "null").cloned();
        *field = one.and_then(|one| one.as_object().cloned()).unwrap_or_default();
    }
    // An absent field is absent, never null.
    if let Some(Value::Array(kinds)) = field.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [one] = kinds.as_slice() {
            let one = one.clone();
            field.insert("type".into(), one);
        }
    }
    for inner in ["properties", "required", "items"] {
        field.remove(inner);
    }
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(mut schema) => {
            // The type's own description is useless to a model.
            schema.remove("description");
            Arc::new(schema)
        }
        _ => Arc::default(),
    }
}

/// Returns the schema with each reference replaced by its target.
fn with_refs_inlined<T: PartialSchema + ToSchema>() -> Value {
    let mut parts = Vec::new();
    T::schemas(&mut parts);
    let parts: Map<String, Value> =
        parts.into_iter().map(|(name, part)| (name, serde_json::to_value(part).unwrap_or_default())).collect();
    let mut schema = serde_json::to_value(T::schema()).unwrap_or_default();
    inline(&mut schema, &parts, 0);
    schema
}

/// The deepest nesting of references: recursive types would have no end.
const MAX_DEPTH: usize = 8;

fn inline(value: &mut Value, parts: &Map<String, Value>, depth: usize) {
    if let Some(name) = value.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next())
        && let Some(part) = parts.get(name)
        && depth < MAX_DEPTH
    {
        let description = value.get("description").cloned();
        *value = part.clone();
        if let (Some(description), Some(object)) = (description, value.as_object_mut()) {
            object.insert("description".into(), description);
        }
        return inline(value, parts, depth + 1);
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| inline(item, parts, depth)),
        Value::Object(fields) => fields.values_mut().for_each(|field| inline(field, parts, depth)),
        _ => {}
    }
}

struct PruneOptions {
    descriptions: bool,
}

fn prune(value: &mut Value, kept: &PruneOptions) {
    let Value::Object(fields) = value else {
        if let Value::Array(items) = value {
            for item in items {
                prune(item, kept);
            }
        }
        return;
    };
    // Bounds of integers and the like are not worth their length: a wrong value is an error that
    // states them.
    for noise in ["format", "minimum", "default", "additionalProperties", "propertyNames", "title", "example"] {
        fields.remove(noise);
    }
    if !kept.descriptions {
        fields.remove("description");
    }
    if kept.descriptions {
        if let Some(Value::Array(kinds)) = fields.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [one] = kinds.as_slice() {
                let one = one.clone();
                fields.insert("type".into(), one);
            }
        }
        unwrap_nullable(fields);
    }
    for (name, field) in fields.iter_mut() {
        match field {
            Value::Object(properties) if name == "properties" => {
                properties.values_mut().for_each(|property| prune(property, kept));
            }
            field => prune(field, kept),
        }
    }
}

/// Replaces `null or this` with `this`.
fn unwrap_nullable(fields: &mut JsonObject) {
    let Some(Value::Array(choices)) = fields.get("oneOf") else { return };
    let real: Vec<_> = choices.iter().filter(|choice| choice.get("type").is_none_or(|kind| kind != "null")).collect();
    if let ([Value::Object(one)], true) = (real.as_slice(), real.len() < choices.len()) {
        let one = one.clone();
        fields.remove("oneOf");
        for (name, value) in one {
            // The field's own description takes precedence over its type's.
            fields.entry(name).or_insert(value);
        }
    }
}
