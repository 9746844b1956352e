//! The OpenAPI document as text, `document.json`, which a test writes and compares.

use serde_json::{Map, Value};

/// The member of an operation's responses that stands for the failures of most operations, which the text has once.
const FAILURES: &str = "failures";

/// Returns the document.
pub(super) fn document() -> Value {
    read(include_str!("document.json"))
}

/// Reads a document from its text: each operation gets the failures that it shares with others, and the version is
/// this build's.
fn read(text: &str) -> Value {
    let mut stored: Value = serde_json::from_str(text).unwrap_or_default();
    let failures = stored.get_mut(FAILURES).map(Value::take).unwrap_or_default();
    let mut document = stored.get_mut("document").map(Value::take).unwrap_or_default();
    for responses in responses(&mut document) {
        if let (Some(_), Some(failures)) = (responses.remove(FAILURES), failures.as_object()) {
            responses.extend(failures.clone());
        }
    }
    if let Some(info) = document.get_mut("info").and_then(Value::as_object_mut) {
        info.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    }
    document
}

/// Returns the responses of each operation.
fn responses(document: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    let operations = paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    operations.filter_map(|operation| operation.get_mut("responses")?.as_object_mut())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use utoipa::IntoResponses as _;

    use super::*;
    use crate::{openapi::generated, openapi_parts::Failures};

    /// Returns the text of a document: what [`read`] adds is left out.
    fn written(mut document: Value) -> String {
        let failures = serde_json::to_value(Failures::responses()).unwrap();
        for responses in responses(&mut document) {
            let shared = failures.as_object().unwrap();
            if shared.iter().all(|(status, failure)| responses.get(status) == Some(failure)) {
                responses.retain(|status, _| !shared.contains_key(status));
                responses.insert(FAILURES.into(), true.into());
            }
        }
        document["info"].as_object_mut().unwrap().remove("version");
        let mut text = String::new();
        in_lines(&mut text, &json!({ "document": document, FAILURES: failures }), 0);
        text.push('\n');
        text
    }

    /// Writes each operation and each schema in a line of its own: then a change of the document is readable.
    fn in_lines(text: &mut String, value: &Value, depth: usize) {
        match value {
            Value::Object(members) if depth < 4 => {
                for (at, (name, member)) in members.iter().enumerate() {
                    text.push_str(if at == 0 { "{\n" } else { ",\n" });
                    text.push_str(&json!(name).to_string());
                    text.push_str(": ");
                    in_lines(text, member, depth + 1);
                }
                text.push_str(if members.is_empty() { "{}" } else { "\n}" });
            }
            value => text.push_str(&value.to_string()),
        }
    }

    /// The text is written anew with `MUXTAP_WRITE_SCHEMAS=1`.
    #[test]
    fn the_stored_document_is_the_generated_one() {
        let generated = generated::document();
        let text = written(generated.clone());
        if std::env::var_os("MUXTAP_WRITE_SCHEMAS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/openapi/document.json");
            std::fs::write(path, &text).unwrap();
        } else {
            let help = "document.json is out of date: run this test with MUXTAP_WRITE_SCHEMAS=1";
            assert!(include_str!("document.json") == text, "{help}");
        }
        assert_eq!(read(&text), generated);
    }
}
