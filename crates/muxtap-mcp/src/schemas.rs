//! The schemas of the tools' arguments and results as text, `schemas.json`: the code that generates them from the
//! types (`schema.rs`) is large. A test writes the text and compares it.

use std::sync::{Arc, LazyLock};

use rmcp::model::JsonObject;
use serde_json::Value;

/// The text: an object with `arguments` and `result` for each tool.
pub const TEXT: &str = include_str!("schemas.json");

static SCHEMAS: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(TEXT).unwrap_or_default());

/// Returns the schemas of a tool's arguments and of its result.
pub fn of(tool: &str) -> (Arc<JsonObject>, Arc<JsonObject>) {
    let part = |name| SCHEMAS.get(tool).and_then(|schemas| schemas.get(name)?.as_object()).cloned();
    (Arc::new(part("arguments").unwrap_or_default()), Arc::new(part("result").unwrap_or_default()))
}
