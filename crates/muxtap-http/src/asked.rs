//! A request to a tmux server: parsed once, placed once, and answered here or by the muxtap of the
//! host that it names.

use axum::{
    RequestExt as _,
    body::Body as RawBody,
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    http::{HeaderValue, request::Parts},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use muxtap_api::{Error, ErrorCode, Fields, Operation, ServerQuery, TargetField, WaitRequest, url, wire};
use muxtap_engine::Server;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    App,
    error::{Body, Failure, Params, Result, read_body},
};

/// The path parameter that is no target: the name of a snapshot, a layout or a group.
const NAME: &str = "name";

/// A request to a tmux server. Its targets no longer name a host.
///
/// `P`: the request's own fields, [`Params`] of the query or the [`Body`]; `()` if it has none.
pub struct Asked<P = ()> {
    /// Acts for the request's caller.
    pub(super) app: App,
    /// The server.
    pub(super) at: ServerQuery,
    /// The path's parameter: a target, an id or a name. Empty if the path has none.
    pub(super) target: String,
    /// The request's own fields.
    pub(super) own: P,
    /// The host that the request names.
    host: Option<String>,
    /// The request as it was received.
    #[cfg_attr(not(feature = "daemon"), allow(dead_code, reason = "for peers"))]
    pub(super) parts: Parts,
}

/// The fields of a request that its route alone has.
pub trait Own: Sized + Send {
    /// Reads the fields.
    fn read(parts: &mut Parts, body: RawBody) -> impl Future<Output = Result<Self>> + Send;

    /// Returns the fields.
    fn fields(&mut self) -> &mut dyn Fields;

    /// Encodes the fields for another muxtap.
    fn encoded(&self) -> muxtap_api::Result<Encoded>;
}

/// The fields of a request, encoded for another muxtap.
#[derive(Default)]
#[cfg_attr(not(feature = "daemon"), allow(dead_code, reason = "for peers"))]
pub struct Encoded {
    pub(super) query: String,
    pub(super) body: Bytes,
    /// The wait that the request begins.
    pub(super) wait: Option<WaitRequest>,
}

impl Own for () {
    async fn read(_: &mut Parts, _: RawBody) -> Result<Self> {
        Ok(())
    }

    fn fields(&mut self) -> &mut dyn Fields {
        self
    }

    fn encoded(&self) -> muxtap_api::Result<Encoded> {
        Ok(Encoded::default())
    }
}

impl<T: Fields + Serialize + DeserializeOwned + Send> Own for Params<T> {
    async fn read(parts: &mut Parts, _: RawBody) -> Result<Self> {
        Self::from_request_parts(parts, &()).await
    }

    fn fields(&mut self) -> &mut dyn Fields {
        &mut self.0
    }

    fn encoded(&self) -> muxtap_api::Result<Encoded> {
        Ok(Encoded { query: url::query(&self.0), ..Encoded::default() })
    }
}

impl<T: Fields + Serialize + DeserializeOwned + Send> Own for Body<T> {
    async fn read(parts: &mut Parts, body: RawBody) -> Result<Self> {
        read_body(&parts.headers, body).await
    }

    fn fields(&mut self) -> &mut dyn Fields {
        &mut self.0
    }

    fn encoded(&self) -> muxtap_api::Result<Encoded> {
        let body = serde_json::to_vec(&self.0).map_err(|error| Error::internal(error.to_string()))?.into();
        Ok(Encoded { body, wait: self.0.wait().cloned(), ..Encoded::default() })
    }
}

impl<P: Own> FromRequest<App> for Asked<P> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let (mut parts, body) = request.with_limited_body().into_parts();
        let Ok(app) = App::from_request_parts(&mut parts, app).await;
        let Params(mut at) = Params::<ServerQuery>::from_request_parts(&mut parts, &()).await?;
        let (mut target, is_target) = path_parameter(&mut parts).await?;
        let mut own = P::read(&mut parts, body).await?;
        let host = app.engine.place(&mut at, |visit| {
            if is_target {
                visit(TargetField::One(&mut target));
            }
            own.fields().visit_targets(visit);
        })?;
        if host.is_some() {
            own.fields().remove_caller();
        }
        Ok(Self { app, at, target, own, host, parts })
    }
}

/// Returns the parameter of a path, and whether it is a target.
async fn path_parameter(parts: &mut Parts) -> Result<(String, bool)> {
    let parameters = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| {
        let path = parts.uri.path();
        Error::new(ErrorCode::InvalidTarget, format!("{path}: expected percent-encoded UTF-8"))
    })?;
    let parameter = parameters.iter().next();
    Ok(parameter.map_or_else(Default::default, |(name, value)| (value.to_owned(), name != NAME)))
}

impl<P: Own> Asked<P> {
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

    /// Answers the request: by the muxtap of the host that it names, if that host has one, else by
    /// `here`. `operation`: what the caller must be allowed to do before the request leaves this
    /// host; `here` authorizes by itself.
    pub(super) async fn answer<T, F>(mut self, operation: Operation, here: impl FnOnce(Self) -> F) -> Response
    where
        T: IntoResponse,
        F: Future<Output = Result<T>> + Send,
    {
        let Some(host) = self.host.take() else { return here(self).await.into_response() };
        let response = match by_peer(&self, &host, operation).await {
            Ok(Some(answer)) => answer,
            Ok(None) => here(self).await.into_response(),
            Err(error) => Failure::from(error).into_response(),
        };
        of_host(response, &host)
    }

    /// Answers the request by `here`, whatever host it names: its result is kept on this host.
    pub(super) async fn answer_here<T, F>(mut self, here: impl FnOnce(Self) -> F) -> Response
    where
        T: IntoResponse,
        F: Future<Output = Result<T>> + Send,
    {
        let host = self.host.take();
        let response = here(self).await.into_response();
        match host {
            Some(host) => of_host(response, &host),
            None => response,
        }
    }
}

/// Adds the header that names the host of a response.
fn of_host(mut response: Response, host: &str) -> Response {
    if let Ok(host) = HeaderValue::from_str(host) {
        response.headers_mut().insert(wire::HOST, host);
    }
    response
}

#[cfg(feature = "daemon")]
use super::peer::ask as by_peer;

/// Returns nothing: the request is answered locally.
#[cfg(not(feature = "daemon"))]
async fn by_peer<P: Own>(_: &Asked<P>, _: &str, _: Operation) -> muxtap_api::Result<Option<Response>> {
    Ok(None)
}
