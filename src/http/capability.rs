//! The tmux capability over HTTP.

use axum::Json;
use serde_json::{Map, Value};

use super::{
    App,
    error::{Body, Params},
};
use crate::capability::{CapabilityAnswer, CapabilityRequest, CapabilitySettings};

/// Carries out an action of the tmux capability. What goes wrong is an answer, too, with `success` false.
#[utoipa::path(
    post, path = "/v1/capability", operation_id = "run_capability", tag = "capability",
    params(CapabilitySettings),
    request_body = Object,
    responses((status = 200, description = "The answer", body = CapabilityAnswer), super::openapi_parts::Failures)
)]
pub async fn run(
    app: App,
    Params(settings): Params<CapabilitySettings>,
    Body(fields): Body<Map<String, Value>>,
) -> Json<CapabilityAnswer> {
    let request = match fields.get("tag") {
        Some(Value::String(tag)) => crate::capability::parse_line(tag),
        _ => CapabilityRequest::parse(&fields),
    };
    Json(app.daemon.capability.run(&app.engine, &settings, request).await)
}
