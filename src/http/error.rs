//! Errors on the wire: the engine's, and those of requests that never reached it.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, rejection::JsonRejection},
    http::{StatusCode, Uri, request::Parts},
    response::{IntoResponse, Response},
};
use serde::de::DeserializeOwned;

use crate::api::{Error, ErrorCode};

/// An answer, or the engine's error with its status.
pub type Result<T> = std::result::Result<T, Failure>;

/// The engine's error as a response.
#[derive(Debug)]
pub struct Failure(Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.0)).into_response()
    }
}

/// Builds the error for a path without a route.
pub async fn no_route(uri: Uri) -> Failure {
    Error::not_found(format!("no route {}; /openapi.json lists what there is", uri.path())).into()
}

/// Builds the response for a method that the path does not have.
pub async fn no_method(uri: Uri) -> Response {
    let error = Error::invalid(format!("{} does not answer this method; see /openapi.json", uri.path()));
    (StatusCode::METHOD_NOT_ALLOWED, Json(error)).into_response()
}

/// A JSON body whose errors are the engine's.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(JsonRejection::BytesRejection(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(Error::new(ErrorCode::ResourceLimit, "the request's body is too large").into())
            }
            Err(rejection) => Err(Error::invalid(rejection.body_text()).into()),
        }
    }
}

/// A query whose errors are the engine's.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(params)| Self(params)).map_err(|rejection| Error::invalid(rejection.body_text()).into())
    }
}

/// The target in a path.
pub struct Target(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(target)| Self(target))
            .map_err(|rejection| Error::new(ErrorCode::InvalidTarget, rejection.body_text()).into())
    }
}
