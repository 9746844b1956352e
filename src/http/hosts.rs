//! Other hosts: listing and adding them, and requests whose targets name one.

use axum::{
    Extension, Json,
    body::{Body, Bytes, HttpBody, to_bytes},
    extract::{Query, Request, State},
    http::{HeaderName, HeaderValue, Uri},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{
    App, BODY_BYTES,
    error::{Body as Requested, Failure, Result},
    openapi_parts::Failures,
};
use crate::{
    api::{AddHostAnswer, AddHostRequest, Error, ErrorCode, HostList, Tier},
    engine::elsewhere::{default_server, is_on},
    net::Peer,
    tmux::Transport,
};

/// The header of an answer that names the host on which its ids are.
pub(crate) const HOST_HEADER: HeaderName = HeaderName::from_static("muxtap-host");

/// The host that a request's targets named; `HOST/` still stands in its path.
#[derive(Clone)]
pub(super) struct OnHost(pub(super) String);

/// Lists the hosts that are known besides this one.
#[utoipa::path(
    get, path = "/v1/hosts", operation_id = "list_hosts", tag = "servers",
    responses((status = 200, description = "The answer", body = HostList), Failures)
)]
pub async fn list(app: App) -> Result<Json<HostList>> {
    app.engine.authorize(Tier::Read)?;
    Ok(Json(HostList { hosts: app.engine.hosts_elsewhere() }))
}

/// Makes the tmux servers of another host reachable, until the daemon ends.
#[utoipa::path(
    post, path = "/v1/hosts", operation_id = "add_host", tag = "servers",
    request_body = AddHostRequest,
    responses((status = 200, description = "The answer", body = AddHostAnswer), Failures)
)]
pub async fn add(
    Extension(peer): Extension<Peer>,
    app: App,
    Requested(request): Requested<AddHostRequest>,
) -> Result<Json<AddHostAnswer>> {
    app.engine.authorize(Tier::Create)?;
    // It runs a command of the caller's choice, with the daemon's rights.
    if matches!(peer, Peer::Tcp { .. }) {
        let message = "a host is added in config.toml, or over the daemon's own socket, not over TCP";
        return Err(Error::new(ErrorCode::Unauthorized, message).into());
    }
    let name = match request.name {
        Some(name) => name,
        None => Transport::name_of(&request.via)?,
    };
    let tmux = request.tmux.unwrap_or_else(|| "tmux".into());
    app.engine.add_transport(Transport::parse(&name, &request.via, tmux)?)?;
    app.engine.record("add-host", "ok");
    Ok(Json(AddHostAnswer { name }))
}

/// Takes the host from the targets of a request, `NAME/%3`, in its path, its query and its body, and has the
/// request mean the server there.
pub(super) async fn route(State(app): State<App>, request: Request, next: Next) -> Response {
    if !app.engine.knows_hosts() {
        return next.run(request).await;
    }
    match taken(&app, request).await {
        Ok((request, Some(host))) => {
            let mut response = next.run(request).await;
            if let Ok(host) = HeaderValue::from_str(&host) {
                response.headers_mut().insert(HOST_HEADER, host);
            }
            response
        }
        Ok((request, None)) => next.run(request).await,
        Err(error) => Failure::from(error).into_response(),
    }
}

async fn taken(app: &App, request: Request) -> crate::api::Result<(Request, Option<String>)> {
    let (mut parts, body) = request.into_parts();
    let mut pairs: Vec<(String, String)> =
        Query::try_from_uri(&parts.uri).map(|Query(pairs)| pairs).unwrap_or_default();
    let mut hosts = Vec::new();
    if let Some(target) = parts.uri.path().strip_prefix("/v1/").and_then(|path| path.split('/').nth(1)) {
        let mut target = percent_decode_str(target).decode_utf8_lossy().into_owned();
        hosts.extend(app.engine.take_host_of(&mut target)?);
    }
    for (name, value) in &mut pairs {
        if matches!(name.as_str(), "targets" | "panes" | "target" | "pane" | "session") {
            hosts.extend(app.engine.take_host_of(value)?);
        }
    }
    let mut bytes = Bytes::new();
    if !body_is_empty(&body) {
        let whole = to_bytes(body, BODY_BYTES).await;
        bytes = whole.map_err(|_| Error::new(ErrorCode::ResourceLimit, "the request's body is too large"))?;
        // What is no object is the handler's to refuse.
        if memchr::memchr(b'/', &bytes).is_some()
            && let Ok(Value::Object(mut fields)) = serde_json::from_slice(&bytes)
            && let Some(host) = app.engine.take_host(&mut fields)?
        {
            hosts.push(host);
            bytes = serde_json::to_vec(&fields).map_err(|error| Error::internal(error.to_string()))?.into();
        }
    }
    let socket = pairs.iter().find(|(name, _)| name == "socket").map(|(_, socket)| socket.clone());
    let Some(host) = hosts.pop() else {
        let named = socket.as_deref().and_then(|socket| socket.split_once('/')).map(|(host, _)| host.to_owned());
        let host = named.filter(|host| !host.is_empty());
        return Ok((Request::from_parts(parts, Body::from(bytes)), host));
    };
    if hosts.iter().any(|other| *other != host) {
        return Err(Error::invalid(format!("one request is for one host: not all of these targets are on {host}")));
    }
    if socket.is_none_or(|socket| !is_on(socket.as_ref(), &host)) {
        pairs.retain(|(name, _)| !matches!(name.as_str(), "socket" | "from"));
        pairs.push(("socket".into(), default_server(&host)));
    }
    parts.uri = with_query(&parts.uri, &pairs)?;
    parts.headers.remove(axum::http::header::CONTENT_LENGTH);
    parts.extensions.insert(OnHost(host.clone()));
    Ok((Request::from_parts(parts, Body::from(bytes)), Some(host)))
}

fn body_is_empty(body: &Body) -> bool {
    HttpBody::is_end_stream(body)
}

fn with_query(uri: &Uri, pairs: &[(String, String)]) -> crate::api::Result<Uri> {
    let query: Vec<_> = pairs
        .iter()
        .map(|(name, value)| {
            let encoded = percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC);
            format!("{name}={encoded}")
        })
        .collect();
    let path = format!("{}?{}", uri.path(), query.join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(|error| Error::internal(format!("{path}: {error}")))?);
    Uri::from_parts(parts).map_err(|error| Error::internal(error.to_string()))
}
