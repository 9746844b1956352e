//! The OpenAPI document, made from the types.

use axum::{Json, response::Response};
use serde_json::{Value, json};

use super::text;

/// The document.
pub async fn document() -> Json<Value> {
    Json(json!({}))
}

/// A page that shows it.
pub async fn page() -> Response {
    text("text/html; charset=utf-8", "")
}
