//! The HTTP handler: access checks and routes, in the contract's order, and the backend that
//! carries out requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts},
};
use http_body_util::BodyExt as _;
use muxtap_net::{
    ConnectionPermit, Credential, Peer,
    owner::{Ends, Owner},
    token::Token,
};
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

use super::{
    host, js,
    live::Live,
    pattern::PatternCache,
    request::{BODY_BYTES, Request},
    response::{self, ActionOutput, Health, HttpError},
    stub::Stub,
};

/// The time limit for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// The bytes of an oversized body that are read and discarded, so that its sender stays to read the
/// response.
const DRAINED_BYTES: usize = 16 * 1024 * 1024;

/// A backend, one for each mode.
pub enum Backend {
    /// `TMUX_BRIDGE_MODE=tmux`.
    Live(Box<Live>),
    /// `TMUX_BRIDGE_MODE=stub`.
    Stub(Stub),
}

impl Backend {
    /// Builds the body of `/health`.
    pub async fn health(&self) -> Result<Health, HttpError> {
        match self {
            Self::Live(live) => live.health().await,
            Self::Stub(stub) => Ok(stub.health()),
        }
    }

    /// Carries out a request from the page `origin`.
    pub async fn execute(&self, request: &Request, origin: &str) -> Result<ActionOutput, HttpError> {
        match self {
            Self::Live(live) => live.execute(request, origin).await,
            Self::Stub(stub) => stub.execute(request).await,
        }
    }

    /// Releases all resources. tmux's sessions remain.
    pub async fn stop(&self) {
        match self {
            Self::Live(live) => live.stop().await,
            Self::Stub(stub) => stub.stop(),
        }
    }
}

/// The required bearer token.
pub enum Secret {
    /// No token is required.
    None,
    /// This text.
    Given(String),
    /// The current content of a file.
    File(Token),
}

/// The state that all requests share.
pub struct BridgeState {
    pub(super) backend: Backend,
    /// Origins whose pages may send requests.
    pub(super) origins: Vec<String>,
    /// The required bearer token.
    pub(super) secret: Secret,
    /// The host name or address on which the bridge listens.
    pub(super) host: String,
    /// Whether the system reports the user of a connection.
    pub(super) owners_told: bool,
    /// Whether a refused user was logged; only the first one is.
    pub(super) refusal_logged: AtomicBool,
    pub(super) patterns: PatternCache,
}

/// Handles one request. The contract fixes the order of the checks; the peer's user and `Host` are
/// part of its first check.
pub async fn handle(State(state): State<Arc<BridgeState>>, request: axum::extract::Request) -> Response<Body> {
    let (parts, mut body) = request.into_parts();
    let response = state.handle(&parts, &mut body).await;
    drain(body);
    response
}

impl BridgeState {
    async fn handle(&self, parts: &Parts, body: &mut Body) -> Response<Body> {
        if !is_loopback(parts) || !self.is_trusted(parts).await {
            return response::forbidden();
        }
        if !host::is_own(&parts.headers, &parts.uri, &self.host) {
            return response::forbidden();
        }
        let Some(origin) = self.origin(&parts.headers) else {
            return response::forbidden();
        };
        let mut response = if parts.method == Method::OPTIONS {
            let mut nothing = Response::new(Body::empty());
            *nothing.status_mut() = StatusCode::NO_CONTENT;
            nothing
        } else {
            self.route(parts, body, &latin1(&origin)).await.unwrap_or_else(HttpError::into_response)
        };
        add_cors_headers(response.headers_mut(), &origin, &parts.headers);
        response
    }

    async fn route(&self, parts: &Parts, body: &mut Body, origin: &str) -> Result<Response<Body>, HttpError> {
        let only = |method: Method| {
            let right = parts.method == method;
            right.then_some(()).ok_or_else(|| HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed."))
        };
        match parts.uri.path() {
            "/health" => {
                only(Method::GET)?;
                Ok(response::json(StatusCode::OK, &self.backend.health().await?))
            }
            "/v1/tmux" => {
                only(Method::POST)?;
                self.authorize(&parts.headers)?;
                // The connection keeps its place. Without a configured token, a page of an allowed
                // origin needs none.
                if let Some(permit) = parts.extensions.get::<ConnectionPermit>()
                    && !permit.authenticate(Credential::Token)
                {
                    return Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "Too many connections."));
                }
                let request = Request::parse(&read_body(body).await?, &self.patterns).await?;
                let output = self.backend.execute(&request, origin).await?;
                Ok(response::json(StatusCode::OK, &output.body(request.action.as_str())))
            }
            _ => Err(HttpError::new(StatusCode::NOT_FOUND, "Not found.")),
        }
    }

    /// Returns the request's `Origin`, if it is an allowed one.
    fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut given = headers.get_all(header::ORIGIN).iter();
        // Several `Origin` headers are one value joined by commas, which is on no list.
        let (origin, None) = (given.next()?, given.next()) else { return None };
        let text = latin1(origin);
        self.origins.contains(&text).then(|| origin.clone())
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), HttpError> {
        let given = headers.get(header::AUTHORIZATION).map(latin1);
        let shown = given.as_deref().and_then(|given| given.strip_prefix("Bearer ")).map(js::trim);
        let is_right = match &self.secret {
            Secret::None => true,
            Secret::Given(token) => shown.is_some_and(|shown| shown.as_bytes().ct_eq(token.as_bytes()).into()),
            Secret::File(token) => shown.is_some_and(|shown| token.matches(shown)),
        };
        is_right.then_some(()).ok_or_else(|| HttpError::new(StatusCode::UNAUTHORIZED, "Unauthorized."))
    }

    /// Returns whether the connection's user is the bridge's own or root. A peer that the system
    /// does not list counts as trusted if a token is required, which then decides.
    async fn is_trusted(&self, parts: &Parts) -> bool {
        if !self.owners_told || !matches!(parts.extensions.get(), Some(Peer::Tcp { .. })) {
            return true;
        }
        let owner = match parts.extensions.get::<Arc<Ends>>() {
            Some(ends) => ends.owner().await,
            None => Owner::Unlisted,
        };
        let is_trusted = match owner {
            Owner::User(user) => user == 0 || user == rustix::process::geteuid().as_raw(),
            Owner::Unlisted => !matches!(self.secret, Secret::None),
        };
        if !is_trusted && !self.refusal_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!("refused a connection from {owner}; further ones are not logged");
        }
        is_trusted
    }
}

/// Returns whether the client is on this machine. Other clients get no information at all.
fn is_loopback(parts: &Parts) -> bool {
    match parts.extensions.get::<Peer>() {
        Some(Peer::Tcp { addr, .. }) => addr.ip().to_canonical().is_loopback(),
        Some(Peer::Unix { .. }) => true,
        Some(Peer::Fleet) | None => false,
    }
}

/// Adds the CORS headers that let the page read the response.
fn add_cors_headers(headers: &mut HeaderMap, origin: &HeaderValue, asked: &HeaderMap) {
    const WHAT: HeaderName = header::ACCESS_CONTROL_ALLOW_HEADERS;
    let wanted = asked.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter().map(HeaderValue::as_bytes);
    let wanted = wanted.collect::<Vec<_>>().join(&b", "[..]);
    let wanted = HeaderValue::from_bytes(&wanted).ok().filter(|wanted| !wanted.is_empty());
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET,POST,OPTIONS"));
    headers.insert(WHAT, wanted.unwrap_or_else(|| HeaderValue::from_static("content-type,authorization")));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
}

/// Decodes a header's value as Node does: each byte is a character.
fn latin1(value: &HeaderValue) -> String {
    value.as_bytes().iter().copied().map(char::from).collect()
}

/// Reads the whole body. Error: the body is too large, too slow, or incomplete.
async fn read_body(body: &mut Body) -> Result<Vec<u8>, HttpError> {
    let mut bytes = Vec::new();
    let all = async {
        while let Some(frame) = body.frame().await {
            // An incomplete body is not JSON. Usually no client is left to read the error.
            let frame = frame.map_err(|_| HttpError::bad_request("Invalid JSON body."))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > BODY_BYTES {
                let message = format!("Request body too large (max {BODY_BYTES} bytes).");
                return Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    let slow = || HttpError::new(StatusCode::REQUEST_TIMEOUT, "The request body did not arrive in time.");
    timeout(BODY_TIME, all).await.map_err(|_| slow())??;
    Ok(bytes)
}

/// Reads and discards the rest of a body, so that its sender stays to read the response and the
/// connection can serve the next request. Ends with the connection, or at a limit of bytes or time.
fn drain(mut body: Body) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(timeout(BODY_TIME, async move {
        let mut length = 0;
        while let Some(Ok(frame)) = body.frame().await {
            length += frame.data_ref().map_or(0, Bytes::len);
            if length > DRAINED_BYTES {
                return;
            }
        }
    }));
}
