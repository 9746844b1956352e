//! Measures requests by their routes.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request},
    http::Method,
    middleware::Next,
    response::Response,
};
use muxtap_base::metrics;

/// Records how long a request takes until its response begins: a wait until its end, an event stream
/// until it is open.
pub(super) async fn measure(request: Request, next: Next) -> Response {
    // A path without a route is a caller's text, and has no series of its own.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let (method, begun) = (name(request.method()), Instant::now());
    let response = next.run(request).await;
    metrics::http_request(method, route, response.status().as_u16(), begun.elapsed());
    response
}

/// Returns a method's name. HTTP allows any word; those that no route has are one.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
