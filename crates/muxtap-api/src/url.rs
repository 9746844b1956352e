//! URL encoding of paths and queries.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::Value;

/// All characters but RFC 3986's unreserved ones.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes the characters that are special in a path or a query.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Encodes a request type's fields as a query. Omits absent and false fields, which are the types'
/// defaults.
pub fn query(request: &impl Serialize) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(request) else { return String::new() };
    let pairs = fields.iter().filter_map(|(name, value)| match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(format!("{name}={}", encode(text))),
        other => Some(format!("{name}={other}")),
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns a path, which may have a query, with a request's fields in the query.
pub fn with_query(path: &str, request: &impl Serialize) -> String {
    let query = query(request);
    if query.is_empty() { path.to_owned() } else { joined(path, &query, "") }
}

/// Returns a path, which may have a query, with two additional parts of a query. The last part may be
/// empty.
pub fn joined(path: &str, own: &str, query: &str) -> String {
    let mark = if path.contains('?') { "&" } else { "?" };
    let and = if query.is_empty() { "" } else { "&" };
    format!("{path}{mark}{own}{and}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CaptureRequest, ReadFormat, ReadRequest};

    #[test]
    fn targets_survive_a_path() {
        assert_eq!(encode("%3"), "%253");
        assert_eq!(encode("work:a b.0/ü"), "work%3Aa%20b.0%2F%C3%BC");
    }

    #[test]
    fn parts_of_a_query_are_joined() {
        let plain = with_query("/v1/panes", &CaptureRequest::default());
        assert_eq!(joined(&plain, "socket=a", ""), "/v1/panes?socket=a");
        let joins = with_query("/v1/panes", &CaptureRequest { join: true, ..CaptureRequest::default() });
        assert_eq!(joined(&joins, "socket=a", "x=1"), "/v1/panes?join=true&socket=a&x=1");
    }

    #[test]
    fn a_request_becomes_a_query_without_its_defaults() {
        let request = CaptureRequest { start: Some("-".to_owned()), join: true, ..CaptureRequest::default() };
        assert_eq!(query(&request), "join=true&start=-");
        let request = ReadRequest { format: ReadFormat::Raw, wait_ms: Some(5), ..ReadRequest::default() };
        assert_eq!(query(&request), "format=raw&wait_ms=5");
    }
}
