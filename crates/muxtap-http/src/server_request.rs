//! A request to a tmux server, parsed and routed once: handled locally, or forwarded to muxtap on
//! the host that the request names.

use axum::{
    RequestExt as _,
    body::Body as RawBody,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderValue, Uri, request::Parts},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use muxtap_api::{
    Error, ErrorCode, Fields, ListAllQuery, Operation, ServerQuery, TargetField, Tier, WaitRequest, url, wire,
};
use muxtap_engine::{Engine, Server, several::Part};
use percent_encoding::percent_decode_str;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    App,
    error::{Body, Failure, Params, Result, read_body},
};

/// A request to a tmux server. Its targets no longer name a host.
///
/// `F`: the route's own fields, [`Params`] of the query or the [`Body`]; `()` if it has none.
pub struct ServerRequest<F = ()> {
    /// Acts for the request's caller.
    pub(super) app: App,
    /// The server.
    pub(super) at: ServerQuery,
    /// The path's parameter: a target, an id or a name. Empty if the path has none.
    pub(super) target: String,
    /// The route's own fields.
    pub(super) fields: F,
    /// The method, the path and the headers.
    pub(super) parts: Parts,
    /// The host that the request names.
    host: Option<String>,
    /// The parts of a request for several hosts.
    pub(super) several: Option<Vec<Part>>,
}

/// The fields of one route.
pub trait RouteFields: Sized + Send {
    /// Reads the fields.
    fn read(parts: &mut Parts, body: RawBody) -> impl Future<Output = Result<Self>> + Send;

    /// Returns the fields, to take hosts out of them.
    fn as_fields(&mut self) -> &mut dyn Fields;

    /// Encodes the fields for another muxtap.
    fn encoded(&self) -> muxtap_api::Result<Encoded>;
}

/// The fields of a request, encoded for another muxtap.
#[derive(Default)]
pub struct Encoded {
    pub(super) query: String,
    pub(super) body: Bytes,
    /// The wait that the request begins.
    pub(super) wait: Option<WaitRequest>,
}

impl RouteFields for () {
    async fn read(_: &mut Parts, _: RawBody) -> Result<Self> {
        Ok(())
    }

    fn as_fields(&mut self) -> &mut dyn Fields {
        self
    }

    fn encoded(&self) -> muxtap_api::Result<Encoded> {
        Ok(Encoded::default())
    }
}

impl<T: Clone + Fields + Serialize + DeserializeOwned + Send> RouteFields for Params<T> {
    async fn read(parts: &mut Parts, _: RawBody) -> Result<Self> {
        Self::from_request_parts(parts, &()).await
    }

    fn as_fields(&mut self) -> &mut dyn Fields {
        &mut self.0
    }

    fn encoded(&self) -> muxtap_api::Result<Encoded> {
        let mut fields = self.0.clone();
        fields.remove_caller();
        Ok(Encoded { query: url::query(&fields), ..Encoded::default() })
    }
}

impl<T: Clone + Fields + Serialize + DeserializeOwned + Send> RouteFields for Body<T> {
    async fn read(parts: &mut Parts, body: RawBody) -> Result<Self> {
        read_body(&parts.headers, body).await
    }

    fn as_fields(&mut self) -> &mut dyn Fields {
        &mut self.0
    }

    fn encoded(&self) -> muxtap_api::Result<Encoded> {
        let mut fields = self.0.clone();
        fields.remove_caller();
        let body = serde_json::to_vec(&fields).map_err(|error| Error::internal(error.to_string()))?.into();
        Ok(Encoded { body, wait: fields.wait().cloned(), ..Encoded::default() })
    }
}

impl<F: RouteFields> FromRequest<App> for ServerRequest<F> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let (mut parts, body) = request.with_limited_body().into_parts();
        let Ok(app) = App::from_request_parts(&mut parts, app).await;
        let Params(mut at) = Params::<ServerQuery>::from_request_parts(&mut parts, &()).await?;
        let (mut target, is_target) = path_parameter(&parts.uri)?;
        let mut fields = F::read(&mut parts, body).await?;
        app.engine
            .await_hosts(&at, |visit| {
                if is_target {
                    visit(TargetField::One(&mut target));
                }
                fields.as_fields().visit_targets(visit);
            })
            .await;
        let several = match fields.as_fields().spread() {
            Some(targets) => app.engine.split(&at, &targets)?,
            None => None,
        };
        if several.is_some() {
            return Ok(Self { app, at, target, fields, parts, host: None, several });
        }
        let host = app.engine.place(&mut at, |visit| {
            if is_target {
                visit(TargetField::One(&mut target));
            }
            fields.as_fields().visit_targets(visit);
        })?;
        Ok(Self { app, at, target, fields, parts, host, several })
    }
}

/// Returns the parameter of a path, and whether it is a target or the id of a wait: both may begin
/// with a host. A router around this one has parameters of its own, so the path decides and not
/// their order.
fn path_parameter(uri: &Uri) -> Result<(String, bool)> {
    let path = uri.path();
    let mut segments = path.strip_prefix("/v1/").unwrap_or_default().split('/');
    let kind = segments.next().unwrap_or_default();
    let Some(parameter) = segments.next() else { return Ok((String::new(), false)) };
    let decoded = percent_decode_str(parameter)
        .decode_utf8()
        .map_err(|_| Error::new(ErrorCode::InvalidTarget, format!("{path}: expected percent-encoded UTF-8")))?;
    // A group has no host unless its name has one: its panes may name it.
    let is_target = match kind {
        "panes" | "windows" | "sessions" | "waits" => true,
        "groups" => decoded.contains('/'),
        _ => false,
    };
    Ok((decoded.into_owned(), is_target))
}

impl<F: RouteFields> ServerRequest<F> {
    /// Returns the tmux server.
    pub(super) fn server(&self) -> muxtap_api::Result<Server> {
        super::server(&self.app, &self.at)
    }

    /// Returns the tmux server and the pane that the path names.
    pub(super) async fn pane(&self) -> muxtap_api::Result<(Server, String)> {
        let server = self.server()?;
        let target = server.path_target(self.target.clone()).await?;
        Ok((server, target))
    }

    /// Responds by the muxtap of the host that the request names, if that host has one; else by
    /// `locally`.
    ///
    /// `operation`: the caller must be allowed to carry it out on this host before the request is
    /// forwarded; `locally` authorizes by itself.
    pub(super) async fn respond<T, R>(self, operation: Operation, locally: impl FnOnce(Self) -> R) -> Response
    where
        T: IntoResponse,
        R: Future<Output = Result<T>> + Send,
    {
        let Some(host) = self.host.clone() else { return locally(self).await.into_response() };
        let engine = self.app.engine.clone();
        let response = match forward(&self, &host, operation).await {
            Ok(Some(response)) => response,
            Ok(None) => locally(self).await.map_err(|failure| explained_of(&engine, &host, failure)).into_response(),
            Err(error) => Failure::from(error).into_response(),
        };
        with_host_header(response, &host)
    }

    /// Responds by `locally`. The request is never forwarded: this daemon keeps the result, or
    /// needs tmux itself.
    ///
    /// `tier`: the caller must have it before a server is contacted.
    pub(super) async fn respond_locally<T, R>(self, tier: Tier, locally: impl FnOnce(Self) -> R) -> Response
    where
        T: IntoResponse,
        R: Future<Output = Result<T>> + Send,
    {
        if let Err(error) = self.app.engine.authorize(tier) {
            return Failure::from(error).into_response();
        }
        let Some(host) = self.host.clone() else { return locally(self).await.into_response() };
        let engine = self.app.engine.clone();
        let response = locally(self).await.map_err(|failure| explained_of(&engine, &host, failure));
        with_host_header(response.into_response(), &host)
    }
}

impl ServerRequest<Params<ListAllQuery>> {
    /// Responds with a list: of one server as [`Self::respond`] does, or of all hosts by `locally`.
    /// Error: `INVALID_ARGUMENT` for a list of all hosts that names one.
    pub(super) async fn respond_everywhere<T, R>(self, locally: impl FnOnce(Self) -> R) -> Response
    where
        T: IntoResponse,
        R: Future<Output = Result<T>> + Send,
    {
        if self.fields.0.everywhere && (self.host.is_some() || self.several.is_some()) {
            let message = "everywhere: it lists this host and all others; leave out the host in `targets` and `socket`";
            return Failure::from(Error::invalid(message)).into_response();
        }
        self.respond(Operation::Look, locally).await
    }
}

fn explained_of(engine: &Engine, host: &str, failure: Failure) -> Failure {
    engine.explained_of(host, failure.into_error()).into()
}

/// Adds the header that names the host of a response.
fn with_host_header(mut response: Response, host: &str) -> Response {
    if let Ok(host) = HeaderValue::from_str(host) {
        response.headers_mut().insert(wire::HOST, host);
    }
    response
}

#[cfg(feature = "daemon")]
use super::peer::forward;

/// Returns `None`: the request is handled locally.
#[cfg(not(feature = "daemon"))]
async fn forward<F: RouteFields>(_: &ServerRequest<F>, _: &str, _: Operation) -> muxtap_api::Result<Option<Response>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_of_a_path_is_decoded_and_may_be_a_target() {
        let parameter = |path: &str| path_parameter(&path.parse().unwrap()).unwrap();
        assert_eq!(parameter("/v1/panes/box%2F%253/capture?start=1"), ("box/%3".into(), true));
        assert_eq!(parameter("/v1/waits/box%2Fw0"), ("box/w0".into(), true));
        assert_eq!(parameter("/v1/groups/box%2Fweb"), ("box/web".into(), true));
        assert_eq!(parameter("/v1/groups/web"), ("web".into(), false));
        assert_eq!(parameter("/v1/snapshots/a%2Fb"), ("a/b".into(), false));
        assert_eq!(parameter("/v1/panes"), (String::new(), false));
        assert!(path_parameter(&"/v1/panes/%ff".parse().unwrap()).is_err());
    }
}
