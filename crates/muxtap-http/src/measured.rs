//! Measures requests by their routes, and gives each a span.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request},
    http::Method,
    middleware::Next,
    response::Response,
};
use muxtap_base::{metrics, spans};
use tracing::{Instrument as _, Span, field::Empty};

/// Records how long a request takes until its response begins: a wait until its end, an event stream
/// until it is open.
pub(super) async fn measure(request: Request, next: Next) -> Response {
    // A path without a route is a caller's text, and has no series of its own.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let (method, begun) = (name(request.method()), Instant::now());
    let span = span(method, &route, &request);
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    metrics::http_request(method, route, status.as_u16(), begun.elapsed());
    response
}

/// Begins a request's span, within the trace that the caller names.
fn span(method: &'static str, route: &str, request: &Request) -> Span {
    let span = tracing::info_span!(
        target: spans::TARGET,
        "request",
        otel.name = format_args!("{method} {route}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        otel.status_code = Empty,
    );
    if !span.is_disabled() {
        spans::adopt(&span, request.headers().get("traceparent").and_then(|value| value.to_str().ok()));
    }
    span
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
