//! Remote hosts: listing and adding them; lists over all hosts.

use axum::Json;
use muxtap_engine::{Server, elsewhere::default_server, several::Part};
use muxtap_tmux::{PeerChoice, Transport};
use serde::de::DeserializeOwned;

use super::{
    App,
    error::{Body as Requested, Params, Result},
    openapi_parts::Failures,
    server_request::ServerRequest,
};

#[cfg(feature = "daemon")]
use super::error::PathWord;
#[cfg(feature = "daemon")]
use muxtap_api::DoneAnswer;
use muxtap_api::{AddHostAnswer, AddHostRequest, HostInfo, HostList, HostsQuery, ListAllQuery, Tier};

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

/// Forgets a remote host that a request added.
///
/// Its tmux servers stay as they are. 409 for a host of the configuration, and while a wait or a stream
/// uses its panes.
#[cfg(feature = "daemon")]
#[utoipa::path(
    delete, path = "/v1/hosts/{name}", operation_id = "forget_host", tag = "servers",
    params(("name" = String, Path, description = "The host's name")),
    responses((status = 200, description = "It is forgotten", body = DoneAnswer), Failures)
)]
pub async fn forget(app: App, PathWord(name): PathWord) -> Result<Json<DoneAnswer>> {
    app.engine.authorize(Tier::Create)?;
    app.engine.check_user("forgetting a host", "`muxtap hosts forget` on the daemon's machine does it, too")?;
    app.engine.forget_host(&name).await?;
    app.rooms().peers.forget(&name);
    app.engine.record("forget-host", "ok");
    Ok(Json(DoneAnswer { ok: true }))
}

/// Lists something of a server, or of the hosts that the targets name, or of the default servers of
/// all hosts if requested; also returns the hosts that returned nothing.
///
/// `field`: the list's name, in its path and in its response; `list`: lists what these targets
/// select.
pub(super) async fn everywhere<T: DeserializeOwned + Send + 'static, F>(
    request: &ServerRequest<Params<ListAllQuery>>,
    field: &'static str,
    list: impl Fn(Server, Vec<String>) -> F,
) -> muxtap_api::Result<(Vec<T>, Vec<HostInfo>)>
where
    F: Future<Output = muxtap_api::Result<Vec<T>>> + Send,
{
    let app = &request.app;
    if let Some(parts) = &request.several {
        return of_parts(app, parts, field, list).await;
    }
    let list = &list;
    let (server, targets) = (request.server()?, &request.fields.0.items());
    if !request.fields.0.everywhere {
        return Ok((list(server, targets.clone()).await?, Vec::new()));
    }
    let there = |host: String| async move {
        match list_by_peer(app, &host, field, targets).await? {
            Some(items) => Ok(items),
            None => list(app.engine.server_named(Some(&default_server(&host)))?, targets.clone()).await,
        }
    };
    app.engine.list_everywhere(server, |server| list(server, targets.clone()), there).await
}

/// Lists something of several hosts by the parts of a request; also returns the hosts that returned
/// nothing. `field` and `list`: as for [`everywhere`].
pub(super) async fn of_parts<T: DeserializeOwned + Send + 'static, F>(
    app: &App,
    parts: &[Part],
    field: &'static str,
    list: impl Fn(Server, Vec<String>) -> F,
) -> muxtap_api::Result<(Vec<T>, Vec<HostInfo>)>
where
    F: Future<Output = muxtap_api::Result<Vec<T>>> + Send,
{
    app.engine.authorize(Tier::Read)?;
    let list = &list;
    let of_part = |part: Part| async move {
        if let Some(host) = &part.host
            && let Some(items) = list_by_peer(app, host, field, &part.targets).await?
        {
            return Ok(items);
        }
        list(super::server(app, &part.at)?, part.targets).await
    };
    app.engine.list_parts(parts.to_vec(), of_part).await
}

#[cfg(feature = "daemon")]
use super::peer::list as list_by_peer;

/// Returns nothing: the list is made locally.
#[cfg(not(feature = "daemon"))]
async fn list_by_peer<T>(_: &App, _: &str, _: &str, _: &[String]) -> muxtap_api::Result<Option<Vec<T>>> {
    Ok(None)
}
