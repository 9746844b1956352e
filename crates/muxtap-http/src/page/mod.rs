//! The page: its files, its authorization, and its connection (`docs/page.md`).

pub mod files;
pub mod socket;

use axum::{
    Extension, Json,
    http::{HeaderMap, HeaderValue, Method, header},
    response::{IntoResponse as _, Response},
};
use muxtap_base::clock;
use muxtap_net::Peer;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    App,
    error::{Body, Params, Result},
    openapi_parts::Failures,
};

use muxtap_api::{DoneAnswer, Error, ErrorCode, PageCode, PageCodeRequest, PageLogin, ServerQuery, Tier};
use muxtap_page::{PageFile, PageFileRequest, PageFileSaved, PageSession, Pages};

/// The name of the page's cookie.
const COOKIE: &str = "muxtap_page";
/// How long a browser keeps the cookie, in seconds. The daemon ends it sooner.
const COOKIE_AGE: u32 = 400 * 86_400;

fn pages(app: &App) -> &Pages {
    &app.daemon.about.page
}

/// Creates a link to the page.
///
/// Only on the Unix socket. If the daemon has no TCP port, it opens one on a loopback address.
#[utoipa::path(
    post, path = "/v1/page/codes", operation_id = "make_page_code", tag = "page",
    params(ServerQuery),
    request_body = PageCodeRequest,
    responses((status = 200, description = "The link", body = PageCode), Failures)
)]
pub async fn code(
    Extension(peer): Extension<Peer>,
    app: App,
    Params(at): Params<ServerQuery>,
    Body(request): Body<PageCodeRequest>,
) -> Result<Json<PageCode>> {
    if !matches!(peer, Peer::Unix { .. }) {
        let why = "this route is for `muxtap open` on the Unix socket; it is not available over TCP";
        return Err(Error::new(ErrorCode::Unauthorized, why).into());
    }
    let pages = pages(&app);
    if request.revoke {
        let sessions = pages.sessions.clone();
        let revoked = blocking(move || sessions.revoke()).await?;
        app.engine.record("page-revoke", "ok");
        return Ok(Json(PageCode { code: String::new(), urls: Vec::new(), revoked }));
    }
    // The caller's server is followed from now on, so the page shows its panes.
    super::server(&app, &at)?;
    let mut urls = app.daemon.about.http.clone();
    if urls.is_empty() {
        urls.push(pages.open_port().await?);
    }
    let code = pages.sessions.code(request.read_only)?;
    app.engine.record(if request.read_only { "page-code-read-only" } else { "page-code" }, "ok");
    Ok(Json(PageCode { code, urls, revoked: 0 }))
}

/// Exchanges a code for the page's cookie.
#[utoipa::path(
    post, path = "/v1/page/login", operation_id = "log_page_in", tag = "page",
    request_body = PageLogin,
    responses((status = 200, description = "Done; the cookie is in `Set-Cookie`", body = DoneAnswer), Failures)
)]
pub async fn login(Extension(peer): Extension<Peer>, app: App, Body(login): Body<PageLogin>) -> Result<Response> {
    let sessions = pages(&app).sessions.clone();
    // A wrong code costs a comparison: no thread, no file, and no line of the audit log, which any
    // caller could fill.
    let code = sessions.redeem(&login.code)?;
    let cookie = blocking(move || sessions.log_in(&code, clock::now_ms())).await;
    app.engine.record("page-login", result_of(&cookie));
    Ok(with_cookie(&peer, &cookie?, COOKIE_AGE))
}

/// Invalidates the page's cookie.
#[utoipa::path(
    post, path = "/v1/page/logout", operation_id = "log_page_out", tag = "page",
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn logout(
    Extension(peer): Extension<Peer>,
    app: App,
    session: Option<Extension<PageSession>>,
) -> Result<Response> {
    let Some(Extension(session)) = session else {
        return Err(Error::new(ErrorCode::Unauthorized, "missing page cookie: no session to end").into());
    };
    let sessions = pages(&app).sessions.clone();
    blocking(move || sessions.end(&session)).await?;
    Ok(with_cookie(&peer, "", 0))
}

/// Selects a file.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageFileQuery {
    /// An absolute path.
    pub path: String,
}

/// Reads a file for an editor of the page.
///
/// The file must be on this machine, below one of the folders of `page_folders`; needs the tier
/// `create`.
#[utoipa::path(
    get, path = "/v1/page/files", operation_id = "read_page_file", tag = "page",
    params(PageFileQuery),
    responses((status = 200, description = "The file", body = PageFile), Failures)
)]
pub async fn read_file(app: App, Params(asked): Params<PageFileQuery>) -> Result<Json<PageFile>> {
    app.engine.authorize(Tier::Create)?;
    let (files, path) = (pages(&app).files.clone(), asked.path.clone());
    let read = blocking(move || files.read(&path)).await;
    app.engine.record_about("page-file-read", &asked.path, result_of(&read));
    Ok(Json(read?))
}

/// Saves a file for an editor of the page.
///
/// A file that has changed since it was opened is left as it is (`CONFLICT`), unless the request
/// has no version.
#[utoipa::path(
    put, path = "/v1/page/files", operation_id = "save_page_file", tag = "page",
    request_body = PageFileRequest,
    responses((status = 200, description = "It is saved", body = PageFileSaved), Failures)
)]
pub async fn save_file(app: App, Body(request): Body<PageFileRequest>) -> Result<Json<PageFileSaved>> {
    app.engine.authorize(Tier::Create)?;
    let (files, path) = (pages(&app).files.clone(), request.path.clone());
    let saved = blocking(move || files.save(request)).await;
    app.engine.record_about("page-file-save", &path, result_of(&saved));
    Ok(Json(saved?))
}

/// Returns a result as the audit log shows it.
fn result_of<T>(result: &muxtap_api::Result<T>) -> &str {
    result.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok")
}

fn with_cookie(peer: &Peer, value: &str, age: u32) -> Response {
    let secure = if matches!(peer, Peer::Tcp { tls: true, .. }) { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}");
    let mut response = Json(DoneAnswer { ok: true }).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns the page's cookie in a request.
pub(super) fn presented_cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE && !value.is_empty()).then_some(value)
    })
}

/// Returns whether a browser states that a request comes from the page itself, if it changes
/// something or opens a WebSocket; for a mere read, whether the browser does not state otherwise.
/// `own`: the daemon's own origin.
pub(super) fn is_from_page(method: &Method, headers: &HeaderMap, own: &str) -> bool {
    let said = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let only_reads = matches!(*method, Method::GET | Method::HEAD) && !headers.contains_key(header::UPGRADE);
    match (said(header::ORIGIN), said(header::HeaderName::from_static("sec-fetch-site"))) {
        (Some(origin), site) => origin == own && site.is_none_or(|site| site == "same-origin"),
        (None, Some("same-origin")) => true,
        (None, Some("none") | None) => only_reads,
        (None, Some(_)) => false,
    }
}

/// Returns whether a read-only page may send this request.
pub(super) fn only_looks(method: &Method, path: &str) -> bool {
    // These routes accept further requests on a connection that GET opens.
    let opens = ["/mcp", "/v1/mcp", "/v1/peer", "/v1/stream", "/v1/devices/ws", "/v1/environment", "/v1/config"];
    let is_of = |prefix: &&str| path.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match *method {
        Method::GET | Method::HEAD => !opens.iter().any(is_of),
        Method::POST => path == "/v1/page/logout",
        _ => false,
    }
}

/// Runs a function that writes files on a thread where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> muxtap_api::Result<T> + Send + 'static,
) -> muxtap_api::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Error::internal(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let cookie = |text: &str| presented_cookie(&headers(&[("cookie", text)])).map(str::to_owned);
        assert_eq!(cookie("a=b; muxtap_page=xyz; c=d").as_deref(), Some("xyz"));
        assert_eq!(cookie("xmuxtap_page=xyz"), None);
        assert_eq!(cookie("muxtap_page="), None);
    }

    #[test]
    fn only_requests_from_the_page_itself_are_accepted() {
        let own = "http://127.0.0.1:7717";
        let from = |method, pairs: &[(&'static str, &str)]| is_from_page(&method, &headers(pairs), own);
        assert!(from(Method::POST, &[("origin", own)]));
        assert!(from(Method::POST, &[("sec-fetch-site", "same-origin")]));
        assert!(!from(Method::POST, &[]) && !from(Method::POST, &[("sec-fetch-site", "none")]));
        // Another port of this machine is the same site, and gets the same cookies.
        for other in [
            &[("origin", "http://127.0.0.1:3000")][..],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site")],
            &[("origin", own), ("sec-fetch-site", "same-site")],
        ] {
            assert!(!from(Method::POST, other) && !from(Method::GET, other), "{other:?}");
        }
        assert!(from(Method::GET, &[]) && from(Method::GET, &[("sec-fetch-site", "none")]));
        assert!(!from(Method::GET, &[("upgrade", "websocket")]));
        assert!(from(Method::GET, &[("upgrade", "websocket"), ("origin", own)]));
    }

    #[test]
    fn a_read_only_viewer_reaches_no_endpoint_that_takes_requests() {
        for path in ["/v1/panes", "/v1/page/ws", "/v1/panes/%253/capture", "/v1/events"] {
            assert!(only_looks(&Method::GET, path), "{path}");
            assert!(!only_looks(&Method::POST, path) && !only_looks(&Method::DELETE, path), "{path}");
        }
        for path in ["/mcp", "/mcp/x", "/v1/stream", "/v1/devices/ws", "/v1/mcp", "/v1/peer"] {
            assert!(!only_looks(&Method::GET, path), "{path}");
        }
        assert!(only_looks(&Method::POST, "/v1/page/logout"));
    }
}
