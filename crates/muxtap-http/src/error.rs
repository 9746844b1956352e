//! Errors on the wire: the engine's, and those of requests that never reached the engine.

use axum::{
    Json, RequestExt as _,
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Response},
};
use http_body_util::LengthLimitError;
use muxtap_api::{Error, ErrorCode, decode, wire, words};
use serde::de::DeserializeOwned;

/// A response, or the engine's error with its status.
pub type Result<T> = std::result::Result<T, Failure>;

/// The engine's error as a response.
#[derive(Debug)]
pub struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl Failure {
    /// Returns the engine's error.
    pub fn into_error(self) -> Error {
        self.0
    }
}

impl IntoResponse for Failure {
    fn into_response(mut self) -> Response {
        self.0.message = words::for_programs(&self.0.message);
        let status = StatusCode::from_u16(self.0.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.0)).into_response()
    }
}

/// Returns the id after which a stream continues, if the request has one.
pub fn last_event_id(headers: &HeaderMap) -> muxtap_api::Result<Option<String>> {
    let id = headers.get(wire::LAST_EVENT_ID).map(|id| id.to_str().map(str::to_owned)).transpose();
    id.map_err(|_| Error::invalid("Last-Event-ID: expected the id of an event"))
}

/// Builds the error for a path without a route.
pub async fn no_route(uri: Uri) -> Failure {
    Error::not_found(format!("unknown route {}; /openapi.json lists all routes", uri.path())).into()
}

/// Builds the response for a method that the path does not have.
pub async fn no_method(uri: Uri) -> Response {
    let error = Error::invalid(format!("{} does not support this method; see /openapi.json", uri.path()));
    (StatusCode::METHOD_NOT_ALLOWED, Json(error)).into_response()
}

/// A JSON body whose errors are the engine's.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let (parts, body) = request.with_limited_body().into_parts();
        read_body(&parts.headers, body).await
    }
}

/// Reads a JSON body, whose size is already limited.
pub async fn read_body<T: DeserializeOwned>(headers: &HeaderMap, body: axum::body::Body) -> Result<Body<T>> {
    // A page of another origin may send any other type without a preflight (CORS).
    check_content_type(headers)?;
    let bytes = to_bytes(body, usize::MAX).await.map_err(|error| {
        if is_too_long(&error) {
            return Error::new(ErrorCode::ResourceLimit, "the request's body is too large");
        }
        Error::invalid("body: incomplete")
    })?;
    Ok(Body(decode::from_json("body", &bytes)?))
}

/// Returns whether a body was cut at its limit.
fn is_too_long(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(<dyn std::error::Error>::is::<LengthLimitError>)
}

/// How the error for another content type begins.
pub(super) const CONTENT_TYPE: &str = "content-type: ";

/// Error: `INVALID_ARGUMENT` for a body whose content type is not JSON.
fn check_content_type(headers: &HeaderMap) -> std::result::Result<(), Error> {
    let given = headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let kind = given.as_deref().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json") {
        return Ok(());
    }
    let given = given.map_or_else(|| "none".into(), |given| format!("{given:?}"));
    Err(Error::invalid(format!("{CONTENT_TYPE}expected application/json, got {given}")))
}

/// A query whose errors are the engine's.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        if let Ok(Query(params)) = Query::<T>::try_from_uri(&parts.uri) {
            return Ok(Self(params));
        }
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map(|Query(pairs)| pairs);
        Ok(Self(decode::from_pairs(pairs.unwrap_or_default())?))
    }
}

/// The parameter of a path.
pub struct PathWord(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathWord {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(word)| Self(word)).map_err(|_| {
            let path = parts.uri.path();
            Error::new(ErrorCode::InvalidTarget, format!("{path}: expected percent-encoded UTF-8")).into()
        })
    }
}
