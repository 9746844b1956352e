//! Remote hosts: listing and adding them, and requests whose targets name one.

use axum::{
    Json,
    body::{Body, Bytes, HttpBody, to_bytes},
    extract::{Query, Request, State},
    http::{HeaderValue, Uri},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use muxtap_engine::{
    Server,
    elsewhere::{TakenHost, default_server, is_on},
};
use muxtap_tmux::{PeerChoice, Transport};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    App, BODY_BYTES,
    error::{Body as Requested, Failure, Params, Result},
    openapi_parts::Failures,
};

use muxtap_api::{
    AddHostAnswer, AddHostRequest, Error, ErrorCode, EverywhereQuery, HostInfo, HostList, HostsQuery, ServerQuery,
    Tier, wire,
};

/// The host that a request's targets named; its path still contains `HOST/`.
#[derive(Clone)]
pub(super) struct OnHost(pub(super) String);

/// Lists the known remote hosts.
#[utoipa::path(
    get, path = "/v1/hosts", operation_id = "list_hosts", tag = "servers",
    params(HostsQuery),
    responses((status = 200, description = "The answer", body = HostList), Failures)
)]
pub async fn list(app: App, Params(query): Params<HostsQuery>) -> Result<Json<HostList>> {
    app.engine.authorize(Tier::Read)?;
    #[cfg(feature = "daemon")]
    if query.look {
        super::peer::look(&app).await;
    }
    let hosts = if query.look { app.engine.look_elsewhere().await } else { app.engine.hosts_elsewhere() };
    #[cfg(feature = "daemon")]
    let hosts = hosts.into_iter().map(|host| super::peer::with_info(&app, host)).collect();
    Ok(Json(HostList { hosts }))
}

/// Makes a remote host's tmux servers reachable until the daemon exits.
#[utoipa::path(
    post, path = "/v1/hosts", operation_id = "add_host", tag = "servers",
    request_body = AddHostRequest,
    responses((status = 200, description = "The answer", body = AddHostAnswer), Failures)
)]
pub async fn add(app: App, Requested(request): Requested<AddHostRequest>) -> Result<Json<AddHostAnswer>> {
    app.engine.authorize(Tier::Create)?;
    // This runs a command of the caller's choice, with the daemon's rights.
    app.engine.check_user("adding a host", "[host.NAME] in config.toml adds one, too")?;
    let (before, command) = Transport::split_name(&request.via);
    let name = match request.name.as_deref().or(before) {
        Some(name) => name.to_owned(),
        None => Transport::name_of(command)?,
    };
    let tmux = request.tmux.unwrap_or_else(|| "tmux".into());
    let peer = if request.peer.unwrap_or(true) { PeerChoice::Found } else { PeerChoice::Never };
    app.engine.add_transport(Transport::parse(&name, command, tmux)?.with_peer(peer))?;
    app.engine.record("add-host", "ok");
    Ok(Json(AddHostAnswer { name }))
}

/// Lists something of a server, and of the default servers of all other hosts if requested; also
/// returns the hosts that returned nothing.
///
/// `field`: the list's name, in its path and in its response; `targets`: the targets that select
/// its entries.
pub(super) async fn everywhere<T: DeserializeOwned + Send + 'static, F>(
    app: &App,
    at: &ServerQuery,
    all: EverywhereQuery,
    (field, targets): (&'static str, &[String]),
    list: impl Fn(Server) -> F,
) -> muxtap_api::Result<(Vec<T>, Vec<HostInfo>)>
where
    F: Future<Output = muxtap_api::Result<Vec<T>>> + Send,
{
    let server = super::server(app, at)?;
    if !all.everywhere {
        return Ok((list(server).await?, Vec::new()));
    }
    let list = &list;
    let there = |host: String| async move {
        match list_by_peer(app, &host, field, targets).await? {
            Some(items) => Ok(items),
            None => list(app.engine.server_named(Some(&default_server(&host)))?).await,
        }
    };
    app.engine.list_everywhere(server, list, there).await
}

/// Removes the host from the targets of a request, `NAME/%3`, in its path, its query and its body,
/// and selects that host's server for the request.
pub(super) async fn route(State(app): State<App>, request: Request, next: Next) -> Response {
    if !app.engine.knows_hosts() {
        return next.run(request).await;
    }
    match taken(&app, request).await {
        Ok((request, Some(host))) => {
            let mut response = match by_peer(&app, &host, request).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(request)) => next.run(request).await,
                Err(error) => Failure::from(error).into_response(),
            };
            if let Ok(host) = HeaderValue::from_str(&host) {
                response.headers_mut().insert(wire::HOST, host);
            }
            response
        }
        Ok((request, None)) => next.run(request).await,
        Err(error) => Failure::from(error).into_response(),
    }
}

#[cfg(feature = "daemon")]
use super::peer::{forward as by_peer, list as list_by_peer};

/// Returns nothing: the list is made locally.
#[cfg(not(feature = "daemon"))]
async fn list_by_peer<T>(_: &App, _: &str, _: &str, _: &[String]) -> muxtap_api::Result<Option<Vec<T>>> {
    Ok(None)
}

/// Returns the request: it is handled locally.
#[cfg(not(feature = "daemon"))]
async fn by_peer(_: &App, _: &str, request: Request) -> muxtap_api::Result<std::result::Result<Response, Request>> {
    Ok(Err(request))
}

async fn taken(app: &App, request: Request) -> muxtap_api::Result<(Request, Option<String>)> {
    let (mut parts, body) = request.into_parts();
    let mut pairs: Vec<(String, String)> =
        Query::try_from_uri(&parts.uri).map(|Query(pairs)| pairs).unwrap_or_default();
    let mut taken = TakenHost::default();
    // The capability's panes are those of its own sandbox, whatever they are named.
    let has_targets = parts.uri.path() != "/v1/capability";
    let mut segments = parts.uri.path().strip_prefix("/v1/").unwrap_or_default().split('/');
    if matches!(segments.next(), Some("panes" | "windows" | "sessions" | "waits"))
        && let Some(target) = segments.next()
    {
        let mut target = percent_decode_str(target).decode_utf8_lossy().into_owned();
        app.engine.take_from(&mut target, &mut taken);
    }
    for (name, value) in pairs.iter_mut().filter(|_| has_targets) {
        if matches!(name.as_str(), "targets" | "panes" | "target" | "pane" | "session") {
            app.engine.take_from(value, &mut taken);
        }
    }
    let mut bytes = Bytes::new();
    if !body_is_empty(&body) {
        let whole = to_bytes(body, BODY_BYTES).await;
        bytes = whole.map_err(|_| Error::new(ErrorCode::ResourceLimit, "the request's body is too large"))?;
        // The handler rejects anything but an object.
        if has_targets
            && memchr::memchr(b'/', &bytes).is_some()
            && let Ok(Value::Object(mut fields)) = serde_json::from_slice(&bytes)
            && app.engine.take_hosts_of(&mut fields, &mut taken)
        {
            bytes = serde_json::to_vec(&fields).map_err(|error| Error::internal(error.to_string()))?.into();
        }
    }
    let socket = pairs.iter().find(|(name, _)| name == "socket").map(|(_, socket)| socket.clone());
    let Some(host) = taken.one()? else {
        let named = socket.as_deref().and_then(|socket| socket.split_once('/')).map(|(host, _)| host.to_owned());
        let host = named.filter(|host| !host.is_empty());
        return Ok((Request::from_parts(parts, Body::from(bytes)), host));
    };
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

fn with_query(uri: &Uri, pairs: &[(String, String)]) -> muxtap_api::Result<Uri> {
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
