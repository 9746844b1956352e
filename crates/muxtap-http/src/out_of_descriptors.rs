//! Requests on connections that use a file descriptor of the reserve.

use axum::{
    Json,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use muxtap_base::descriptors;
use muxtap_net::OutOfDescriptors;

/// Routes that need no further descriptor and respond at once.
const ANSWERED: [&str; 5] = ["/health", "/metrics", "/v1/config", "/v1/status", "/v1/stop"];
/// The number of seconds after which a client may retry.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Rejects requests that could hold a descriptor of the reserve or need another one.
pub(super) async fn refuse(request: Request, next: Next) -> Response {
    let is_out_of_descriptors = request.extensions().get::<OutOfDescriptors>().is_some();
    if !is_out_of_descriptors || ANSWERED.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    // Not 429: the caller did not send too many requests; muxtap itself cannot continue.
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, Json(descriptors::error())).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    response
}
