//! The tmux capability over HTTP.

use axum::Json;
use muxtap_capability::{CapabilityAnswer, CapabilityRequest, CapabilitySettings, MOST_HISTORY};
use serde_json::Value;

use super::{
    App,
    error::{Body, Params, Result},
};

use muxtap_api::Error;

/// Carries out an action of the tmux capability.
///
/// A failure is also a response, with `success` false.
#[utoipa::path(
    post, path = "/v1/capability", operation_id = "run_capability", tag = "capability",
    params(CapabilitySettings),
    request_body = Object,
    responses((status = 200, description = "The answer", body = CapabilityAnswer), super::openapi_parts::Failures)
)]
pub async fn run(
    app: App,
    Params(settings): Params<CapabilitySettings>,
    Body(fields): Body<Value>,
) -> Result<Json<CapabilityAnswer>> {
    let Value::Object(fields) = fields else {
        return Err(Error::invalid("body: expected an object such as {\"action\":\"list\"}").into());
    };
    if settings.history_limit.is_some_and(|lines| lines > MOST_HISTORY) {
        return Err(Error::invalid(format!("history_limit: at most {MOST_HISTORY} lines")).into());
    }
    let request = match fields.get("tag") {
        Some(Value::String(tag)) => muxtap_capability::parse_line(tag),
        _ => CapabilityRequest::parse(&fields),
    };
    // As for `POST /v1/hosts`.
    let may_add = app.engine.caller().principal.is_user();
    Ok(Json(app.rooms().capability.run(&app.engine, &settings, may_add, request).await))
}
