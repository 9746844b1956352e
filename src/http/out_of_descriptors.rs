//! What is answered when no file descriptors are left.

use axum::{
    Json,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use crate::{descriptors, net::OutOfDescriptors};

/// Routes that need no further descriptor and are answered at once.
const ANSWERED: [&str; 5] = ["/health", "/metrics", "/v1/config", "/v1/status", "/v1/stop"];
/// Seconds after which asking again may help.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Refuses, on a connection that was accepted with a descriptor of the reserve, what could keep it or need another one.
pub(super) async fn refuse(request: Request, next: Next) -> Response {
    let is_scarce = request.extensions().get::<OutOfDescriptors>().is_some();
    if !is_scarce || ANSWERED.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    // Not 429: the caller asked nothing too often. muxtap itself cannot go on.
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, Json(descriptors::error())).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    response
}
