//! The tmux capability over HTTP.

use axum::Json;
use muxtap_capability::{CapabilityAnswer, CapabilityRequest, CapabilitySettings, MOST_HISTORY};
use serde_json::Value;

use super::{
    App,
    error::{Body, CONTENT_TYPE, Params, Result},
};

use muxtap_api::Error;

/// Carries out an action of the tmux capability.
///
/// A failure is also a response, with `success` false, and so is one to a body that is no request.
#[utoipa::path(
    post, path = "/v1/capability", operation_id = "run_capability", tag = "capability",
    params(CapabilitySettings),
    request_body = Value,
    responses((status = 200, description = "The answer", body = CapabilityAnswer), super::openapi_parts::Failures)
)]
pub async fn run(
    app: App,
    Params(settings): Params<CapabilitySettings>,
    body: Result<Body<Value>>,
) -> Result<Json<CapabilityAnswer>> {
    if settings.history_limit.is_some_and(|lines| lines > MOST_HISTORY) {
        return Err(Error::invalid(format!("history_limit: at most {MOST_HISTORY} lines")).into());
    }
    let request = match body.map(|Body(body)| body) {
        Ok(Value::Object(fields)) => match fields.get("tag") {
            Some(Value::String(tag)) => muxtap_capability::parse_text(tag),
            _ => CapabilityRequest::parse(&fields),
        },
        Ok(_) => Err(Error::invalid("body: expected an object such as {\"action\":\"list\"}").into()),
        Err(failure) => {
            let error = failure.into_error();
            // The caller sent no JSON at all.
            if error.message.starts_with(CONTENT_TYPE) {
                return Err(error.into());
            }
            Err(error.into())
        }
    };
    // As for `POST /v1/hosts`.
    let may_add = app.engine.caller().principal.is_user();
    Ok(Json(app.rooms().capability.run(&app.engine, &settings, may_add, request).await))
}
