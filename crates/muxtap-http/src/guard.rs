//! The checks before the routes of a TCP port: any program of this machine can connect to it, and
//! any web page can make a browser do so.
//!
//! 1. `Host` must be a name of this daemon, so a page cannot reach it under the page's own name
//!    (DNS rebinding).
//! 2. `Origin`, if a browser sends it, must be this daemon's own or a listed one.
//! 3. A listed origin's preflight gets a response (CORS).
//! 4. The token must be valid, except for routes that reveal nothing (`/health` and the description
//!    of the routes), and those whose body has a credential of its own: a page's login, and the
//!    refresh of a device's tokens.
//!
//! Before a caller has authenticated, a request may use little: a body of a few KiB, one of few
//! places for connections ([`muxtap_net::places`]), and no line in a log. Wrong credentials are
//! limited in rate; a right one is always accepted.

mod answers;
mod bodies;
mod failures;
mod host;

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
#[cfg(feature = "daemon")]
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, Limited};
use muxtap_api::{Error, ErrorCode, wire};
use muxtap_base::metrics;
use muxtap_net::{ConnectionPermit, Credential, Peer, token::Token};
use tower_http::{
    cors::{AllowOrigin, CorsLayer},
    timeout::RequestBodyTimeoutLayer,
};

use self::{answers::Answers, bodies::Bodies, failures::Failures, host::Host};
use super::error::Failure;

/// How long a request's body may pause.
const BODY_PAUSE: Duration = Duration::from_secs(30);
/// The number of bytes in a request's body on routes without a token, and of callers that may only
/// read.
const OPEN_BODY_BYTES: usize = 4 * 1024;
/// How long such a body may take to arrive.
const OPEN_BODY_TIME: Duration = Duration::from_secs(10);
/// How long a browser may cache a preflight's result.
const PREFLIGHT_LIFE: Duration = Duration::from_secs(600);
/// Routes without a token: the daemon's health, and the description of the routes.
pub(super) const UNAUTHENTICATED: [&str; 3] = ["/health", "/openapi.json", "/docs"];
/// The route whose credential is the refresh token in its body.
pub(super) const REFRESH: &str = "/api/device-sessions/refresh";
/// The prefix of a subprotocol that has the token: a browser cannot set a header on a WebSocket,
/// but can name a subprotocol.
pub(super) const TOKEN_PROTOCOL: &str = "bearer.";

/// The rules for callers over TCP.
pub struct Guard {
    /// The token that callers must send.
    pub token: Token,
    /// Names of this daemon in addition to this machine's own.
    pub names: Vec<String>,
    /// Web origins whose pages may send requests.
    pub origins: Vec<String>,
    /// Whether callers reach the daemon by an address of the machine, which then counts as a name.
    pub beyond_loopback: bool,
    /// Whether the port is encrypted.
    pub tls: bool,
    /// The sessions of devices, whose tokens authorize the devices' routes.
    #[cfg(feature = "daemon")]
    pub sessions: Option<muxtap_devices::DeviceSessions>,
    /// The sessions of pages, whose cookies authorize what the token does.
    #[cfg(feature = "daemon")]
    pub pages: Option<muxtap_page::PageSessions>,
}

/// Puts the guard's checks before the routes.
pub fn with_guard(router: Router, guard: Guard) -> Router {
    let listed: Vec<HeaderValue> = guard.origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::list(listed))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, HeaderName::from_static(wire::LAST_EVENT_ID)])
        .expose_headers([HeaderName::from_static(wire::VERSION)])
        .max_age(PREFLIGHT_LIFE);
    let guard = Arc::new(Guarding { guard, failures: Failures::default() });
    router
        .layer(middleware::from_fn_with_state(Bodies::default(), bodies::count))
        .layer(middleware::from_fn_with_state(Answers::default(), answers::count))
        .layer(RequestBodyTimeoutLayer::new(BODY_PAUSE))
        .layer(middleware::from_fn_with_state(guard.clone(), check_token))
        .layer(cors)
        .layer(middleware::from_fn_with_state(guard, check_host_and_origin))
        .layer(middleware::map_response(super::harden))
}

/// The state of a guard.
struct Guarding {
    guard: Guard,
    failures: Failures,
}

async fn check_host_and_origin(State(guarding): State<Arc<Guarding>>, request: Request, next: Next) -> Response {
    let guard = &guarding.guard;
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let named = request.uri().authority().map_or(host, axum::http::uri::Authority::as_str);
    // With two names, a proxy may have checked the other one.
    let is_one = headers.get_all(header::HOST).iter().nth(1).is_none();
    if !is_one || !guard.is_name(host) || !guard.is_name(named) {
        return refuse(
            "host",
            &format!("unknown host name {named:?}; `http_names` in the configuration adds names of this daemon"),
        );
    }
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or("?");
        let own = guard.own_origin(host);
        if origin != own && !guard.origins.iter().any(|listed| listed == origin) {
            let message =
                format!("origin {origin:?} is not allowed; `http_origins` in the configuration lists allowed origins");
            return refuse("origin", &message);
        }
    }
    next.run(request).await
}

async fn check_token(State(guarding): State<Arc<Guarding>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let path = request.uri().path();
    // On these routes, credentials are in bodies, and wrong ones are also 401.
    let takes_credentials = is_open(path) || is_of_devices(path);
    let response = let_in(&guarding.guard, request, next).await;
    match response {
        Ok(response) if takes_credentials => guarding.failures.judge(peer, response),
        Ok(response) => response,
        Err(refused) => guarding.failures.judge(peer, refused),
    }
}

/// Passes on a request whose caller has authenticated, or that needs no token. Error: the response
/// that rejects it.
async fn let_in(guard: &Guard, mut request: Request, next: Next) -> Result<Response, Response> {
    let is_open = is_open(request.uri().path());
    if is_open {
        request = with_small_body(request).await?;
    }
    #[cfg(feature = "daemon")]
    if let Some(token) = guard.device(&request) {
        keep_place(&request, || Credential::Login(token.device.family.clone())).map_err(|refused| *refused)?;
        request.extensions_mut().insert(token.device.clone());
        if is_of_devices(request.uri().path()) {
            // A logout gets a response, and a device's connection is notified itself.
            return Ok(next.run(request).await);
        }
        return Ok(run_as_long_as(Login::Device(token), request, next).await);
    }
    #[cfg(feature = "daemon")]
    match guard.page(&request) {
        Ok(Some(session)) => {
            keep_place(&request, || Credential::Login(session.id().to_owned())).map_err(|refused| *refused)?;
            if session.reads_only && !is_open {
                request = with_small_body(request).await?;
            }
            request.extensions_mut().insert(session.clone());
            let Some(sessions) = guard.pages.clone() else { return Ok(next.run(request).await) };
            return Ok(run_as_long_as(Login::Page { sessions, session }, request, next).await);
        }
        Ok(None) => {}
        Err(error) => {
            metrics::refused("page");
            return Err(unread(Failure::from(error).into_response(), &request));
        }
    }
    if presented_token(request.headers()).is_some_and(|token| guard.token.matches(token)) {
        keep_place(&request, || Credential::Token).map_err(|refused| *refused)?;
        return Ok(next.run(request).await);
    }
    if is_open {
        return Ok(next.run(request).await);
    }
    metrics::refused("token");
    let lacks_scope = guard.lacks_scope(&request);
    let why = if lacks_scope {
        "missing scope: terminals; log in again with `muxtap workspace auth login --terminals` (the scope `terminals`)"
    } else {
        "missing or invalid token; expected the header `Authorization: Bearer TOKEN` (`muxtap token` prints it)"
    };
    let mut error = Error::new(ErrorCode::Unauthorized, why);
    if lacks_scope {
        // A client must not renew its token for that.
        error = error.with_details(serde_json::json!({ "missingScope": "terminals" }));
    }
    let mut response = unread(Failure::from(error).into_response(), &request);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(response)
}

/// Returns whether a route needs no token.
fn is_open(path: &str) -> bool {
    #[cfg(feature = "daemon")]
    if is_page_file(path) || path == REFRESH {
        return true;
    }
    UNAUTHENTICATED.contains(&path)
}

/// Notes that a connection's caller has authenticated: the connection keeps its place. Error: the
/// response that rejects a connection over the limit.
fn keep_place(request: &Request, credential: impl FnOnce() -> Credential) -> Result<(), Box<Response>> {
    let permit = request.extensions().get::<ConnectionPermit>();
    if permit.is_none_or(|permit| permit.authenticate(credential())) {
        return Ok(());
    }
    metrics::refused("connections");
    let error = Error::new(
        ErrorCode::ResourceLimit,
        "too many open connections with this token or login; close some, or send requests one after the other",
    );
    let mut response = Failure::from(error).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Err(Box::new(response))
}

/// Returns the id of the login that authorized a request. `None`: the token did, or none was
/// needed.
fn login_of(request: &Request) -> Option<String> {
    #[cfg(feature = "daemon")]
    if let Some(device) = request.extensions().get::<muxtap_devices::BoundDevice>() {
        return Some(device.family.clone());
    }
    #[cfg(feature = "daemon")]
    if let Some(page) = request.extensions().get::<muxtap_page::PageSession>() {
        return Some(page.id().to_owned());
    }
    let _ = request;
    None
}

/// Reads the body of a request that needs no token or may only read: a small one, within a short
/// time. Error: the response that rejects it.
async fn with_small_body(request: Request) -> Result<Request, Response> {
    let refuse = |request: &Request| {
        metrics::refused("body");
        let message = format!(
            "the request's body is too large: at most {OPEN_BODY_BYTES} bytes without a token or with read-only access"
        );
        let error = Json(Error::new(ErrorCode::ResourceLimit, message));
        unread((StatusCode::PAYLOAD_TOO_LARGE, error).into_response(), request)
    };
    if request.body().size_hint().lower() > OPEN_BODY_BYTES as u64 {
        return Err(refuse(&request));
    }
    if request.body().is_end_stream() {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(OPEN_BODY_TIME, Limited::new(body, OPEN_BODY_BYTES).collect()).await;
    let request = |body| Request::from_parts(parts, body);
    match read {
        Ok(Ok(body)) => Ok(request(Body::from(body.to_bytes()))),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(refuse(&request(Body::empty()))),
        Ok(Err(_)) | Err(_) => {
            let error = Error::invalid("body: incomplete, or not received in time");
            Err(unread(Failure::from(error).into_response(), &request(Body::empty())))
        }
    }
}

/// Closes the connection after a response to a request whose body was not read.
fn unread(mut response: Response, request: &Request) -> Response {
    let has_body = request.headers().contains_key(header::TRANSFER_ENCODING)
        || request.headers().get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_body {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Passes on a request that a login has authorized.
#[cfg(feature = "daemon")]
async fn run_as_long_as(login: Login, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(login.clone());
    // A change always gets its response, however late: its caller would not know whether it was
    // done.
    let is_cut = matches!(*request.method(), Method::GET | Method::HEAD) || request.uri().path() == "/v1/waits";
    let answer = next.run(request);
    if is_cut { login.answer(answer).await } else { answer.await }
}

/// Returns the token of a request.
fn presented_token(headers: &HeaderMap) -> Option<&str> {
    if let Some(token) = headers.get(header::AUTHORIZATION) {
        return token.to_str().ok()?.strip_prefix("Bearer ").map(str::trim);
    }
    let protocols =
        headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|protocols| protocols.to_str().ok());
    protocols
        .flat_map(|protocols| protocols.split(','))
        .find_map(|protocol| protocol.trim().strip_prefix(TOKEN_PROTOCOL))
}

fn refuse(stage: &'static str, message: &str) -> Response {
    metrics::refused(stage);
    let error = Error::new(ErrorCode::Unauthorized, message).at_stage(stage);
    (StatusCode::FORBIDDEN, Json(error)).into_response()
}

/// Returns whether a page needs this route before it has a cookie.
#[cfg(feature = "daemon")]
fn is_page_file(path: &str) -> bool {
    path == "/" || path.starts_with("/page/") || path == "/v1/page/login"
}

impl Guard {
    /// Returns the page whose cookie a request has. Error: the page may not send this request.
    #[cfg(feature = "daemon")]
    fn page(&self, request: &Request) -> muxtap_api::Result<Option<muxtap_page::PageSession>> {
        use super::page::{is_from_page, only_looks, presented_cookie};
        let headers = request.headers();
        if presented_token(headers).is_some() {
            return Ok(None);
        }
        let cookie = self.pages.as_ref().zip(presented_cookie(headers));
        let session = cookie.and_then(|(pages, cookie)| pages.verify(cookie, muxtap_base::clock::now_ms()));
        let Some(session) = session else { return Ok(None) };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !is_from_page(request.method(), headers, &self.own_origin(host)) {
            // A route without a token works all the same, without the cookie.
            return Ok(None);
        }
        if session.reads_only
            && !only_looks(request.method(), request.uri().path())
            && !is_page_file(request.uri().path())
        {
            return Err(Error::new(ErrorCode::ReadOnly, "this link is read-only: `muxtap open` creates others"));
        }
        Ok(Some(session))
    }

    /// Returns the origin of the daemon's own pages.
    fn own_origin(&self, host: &str) -> String {
        format!("{}://{host}", if self.tls { "https" } else { "http" })
    }

    /// Returns the device whose token a request has, if that is valid for the route.
    #[cfg(feature = "daemon")]
    fn device(&self, request: &Request) -> Option<DeviceToken> {
        let token = presented_token(request.headers())?;
        let sessions = self.sessions.clone()?;
        let device = sessions.verify(token, muxtap_base::clock::now_ms())?;
        (is_of_devices(request.uri().path()) || device.has(muxtap_api::DeviceScope::Terminals))
            .then_some(DeviceToken { sessions, device })
    }

    /// Returns whether a request has the valid token of a device, which is not valid for the route.
    fn lacks_scope(&self, request: &Request) -> bool {
        #[cfg(feature = "daemon")]
        if let (Some(token), Some(sessions)) = (presented_token(request.headers()), &self.sessions) {
            return sessions.verify(token, muxtap_base::clock::now_ms()).is_some();
        }
        let _ = request;
        false
    }

    /// Returns whether a `Host` (`localhost:7717`, `[::1]`) names this daemon.
    fn is_name(&self, host: &str) -> bool {
        match Host::parse(host) {
            // A rebound name arrives as that name, never as a number.
            Some(Host::Address(addr)) => addr.is_loopback() || self.beyond_loopback,
            Some(Host::Name(name)) => {
                name.eq_ignore_ascii_case("localhost")
                    || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
            }
            None => false,
        }
    }
}

/// Returns whether a route is the devices' own.
fn is_of_devices(path: &str) -> bool {
    ["/v1/devices", "/api/device-sessions"]
        .iter()
        .any(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// A device's token that authorized a request.
#[cfg(feature = "daemon")]
#[derive(Clone)]
pub(super) struct DeviceToken {
    sessions: muxtap_devices::DeviceSessions,
    device: muxtap_devices::BoundDevice,
}

/// A login that authorized a request and can end before the response.
#[cfg(feature = "daemon")]
#[derive(Clone)]
pub(super) enum Login {
    /// A device's token.
    Device(DeviceToken),
    /// A page's cookie.
    Page { sessions: muxtap_page::PageSessions, session: muxtap_page::PageSession },
}

/// Returns whether a caller's access can be revoked while its request is open. Only the daemon that has
/// everything learns of that: a replaced one must not pass anything on to such a caller.
#[cfg(feature = "daemon")]
pub(super) fn is_revocable(parts: &axum::http::request::Parts) -> bool {
    parts.extensions.get::<Login>().is_some() || matches!(parts.extensions.get::<Peer>(), Some(Peer::Fleet))
}

#[cfg(feature = "daemon")]
impl Login {
    /// Resolves when the login has ended.
    pub(super) async fn ended(&self) {
        match self {
            Self::Device(token) => token.sessions.until_ended(&token.device).await,
            Self::Page { sessions, session } => sessions.until_ended(session).await,
        }
    }

    /// Returns the next step for a caller whose login has ended.
    fn after_its_end(&self) -> &'static str {
        match self {
            Self::Device(_) => "the token is no longer valid: refresh it and retry",
            Self::Page { .. } => "this page's login has ended: `muxtap open` creates a new link",
        }
    }

    /// Returns the response to a read or a wait, which ends with the login: a pending request is
    /// rejected, and a stream is cut.
    async fn answer(self, answer: impl Future<Output = Response>) -> Response {
        let response = tokio::select! {
            response = answer => response,
            () = self.ended() => {
                return Failure::from(Error::new(ErrorCode::Unauthorized, self.after_its_end())).into_response();
            }
        };
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        let ended = async move { self.ended().await };
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(ended))))
    }
}

#[cfg(test)]
mod tests {
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    fn guard(beyond_loopback: bool) -> (tempfile::TempDir, Guard) {
        let dir = tempfile::tempdir().unwrap();
        let token = Token::open(&dir.path().join("token")).unwrap();
        let guard = Guard {
            token,
            names: vec!["box.lan".into()],
            origins: Vec::new(),
            beyond_loopback,
            tls: false,
            #[cfg(feature = "daemon")]
            sessions: None,
            #[cfg(feature = "daemon")]
            pages: None,
        };
        (dir, guard)
    }

    #[test]
    fn only_the_daemons_own_host_names_are_accepted() {
        let (_dir, local) = guard(false);
        for name in
            ["localhost", "LOCALHOST:7717", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "[::1]", "Box.lan:1", "localhost."]
        {
            assert!(local.is_name(name), "{name}");
        }
        for name in
            ["", ":80", "evil.example", "localhost.evil.example", "10.0.0.1", "[fe80::1]", "127.0.0.1.evil.example"]
        {
            assert!(!local.is_name(name), "{name}");
        }
        let (_dir, open) = guard(true);
        assert!(open.is_name("10.0.0.1:7717") && !open.is_name("evil.example"));
        for name in host::tests::MALFORMED {
            assert!(!local.is_name(name) && !open.is_name(name), "{name}");
        }
    }

    #[test]
    fn a_token_comes_in_a_header_or_as_a_subprotocol() {
        let headers = |name: HeaderName, value: &str| HeaderMap::from_iter([(name, value.parse().unwrap())]);
        assert_eq!(presented_token(&headers(header::AUTHORIZATION, "Bearer  abc ")), Some("abc"));
        assert_eq!(presented_token(&headers(header::AUTHORIZATION, "Basic abc")), None);
        assert_eq!(presented_token(&headers(header::SEC_WEBSOCKET_PROTOCOL, "muxtap, bearer.abc")), Some("abc"));
        assert_eq!(presented_token(&HeaderMap::new()), None);
    }

    /// A caller that sends half of a body and then nothing.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_halfway_is_dropped() {
        let (dir, guard) = guard(false);
        let token = std::fs::read_to_string(dir.path().join("token")).unwrap();
        let read = |body: axum::body::Bytes| async move { body.len().to_string() };
        let router = with_guard(Router::new().route("/read", axum::routing::post(read)), guard);
        let router = TowerToHyperService::new(router);
        let pieces = |count: u32, pause: Duration| {
            let pieces = futures_util::stream::unfold(0, move |sent| async move {
                tokio::time::sleep(pause * u32::from(sent > 0)).await;
                (sent < count).then_some((Ok::<_, std::io::Error>("piece"), sent + 1))
            });
            Request::post("/read")
                .header(header::HOST, "localhost")
                .header(header::AUTHORIZATION, format!("Bearer {}", token.trim()))
                .body(axum::body::Body::from_stream(pieces))
                .unwrap()
        };
        let answered = async |request: Request| {
            let asked = tokio::time::Instant::now();
            let answer = router.call(request).await.unwrap();
            (answer.status(), asked.elapsed())
        };
        // The total time does not count while data arrives.
        let (status, _) = answered(pieces(10, BODY_PAUSE.mul_f64(0.9))).await;
        assert_eq!(status, StatusCode::OK);
        let (status, after) = answered(pieces(2, BODY_PAUSE * 2)).await;
        assert!(status.is_client_error(), "{status}");
        assert_eq!(after.as_secs(), BODY_PAUSE.as_secs());
    }
}
