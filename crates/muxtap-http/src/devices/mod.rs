//! Devices over HTTP: the list of devices, workspaces, requests to their owners, and the devices'
//! sessions.

mod agents;
pub mod socket;

use axum::{
    Extension, Json,
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use muxtap_approvals::approvals::process_shown;
use muxtap_base::{clock, nonce};
use muxtap_devices::{BoundDevice, Caller, Devices, relay::Publisher, workspace::GET_WORKSPACE};
use muxtap_net::Peer;

use super::{
    App,
    error::{Body, Failure, Params, PathWord, Result},
    openapi_parts::{Failures, PathDevice},
};

use muxtap_api::{
    DeviceInfo, DeviceList, DeviceScope, DeviceSession, DeviceSessionRequest, DoneAnswer, Error, ErrorCode,
    PublishRequest, RefreshRequest, RpcRequest, RpcResponse, Tier, WorkspaceAnswer, WorkspaceQuery,
};

type Answer<T> = Result<Json<T>>;

/// The principal of the daemon's own user, over every interface.
const USER: &str = "user";

/// The caller of a request, as the relay sees it.
pub struct Asking(pub Caller);

impl FromRequestParts<App> for Asking {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self> {
        if let Some(device) = parts.extensions.get::<BoundDevice>() {
            return Ok(Self(bound(device)));
        }
        if parts.extensions.get::<muxtap_page::PageSession>().is_some_and(|page| !page.reads_only) {
            // The page's user created its link on the Unix socket.
            let (principal, label) = (USER.to_owned(), "a page".into());
            let (token_ends, read_only) = (None, false);
            return Ok(Self(Caller {
                principal,
                device: None,
                remote_control: true,
                label,
                program: "a page that `muxtap open` has let in".into(),
                family: None,
                token_ends,
                read_only,
            }));
        }
        let own = rustix::process::getuid().as_raw();
        let (principal, remote_control, label) = match parts.extensions.get::<Peer>() {
            Some(Peer::Unix { uid, .. }) if *uid == own => (USER.to_owned(), true, "a program of this user"),
            Some(Peer::Unix { uid, .. }) => (format!("uid {uid}"), true, "a program of another user"),
            // The daemon's token logs devices in; it belongs to no device.
            Some(Peer::Tcp { .. }) => (USER.to_owned(), false, "a program"),
            Some(Peer::Fleet) => ("fleet".to_owned(), false, "a member of the fleet"),
            None => ("application".to_owned(), false, "a program"),
        };
        let (token_ends, read_only) = (None, false);
        Ok(Self(Caller {
            principal,
            device: None,
            remote_control,
            program: program(parts.extensions.get::<Peer>()),
            label: label.into(),
            family: None,
            token_ends,
            read_only,
        }))
    }
}

/// Returns a caller in words, as the system knows it.
fn program(peer: Option<&Peer>) -> String {
    match peer {
        Some(Peer::Unix { pid: Some(pid), .. }) => process_shown(u32::try_from(*pid).unwrap_or_default()),
        Some(Peer::Unix { pid: None, .. }) => "a process of this machine".into(),
        Some(Peer::Tcp { addr, .. }) => format!("a program at {addr}"),
        Some(Peer::Fleet) => "a member of the fleet".into(),
        None => "a program in the daemon's process".into(),
    }
}

/// Returns the caller for a device that has logged in.
fn bound(device: &BoundDevice) -> Caller {
    Caller {
        principal: device.principal.clone(),
        device: Some(device.device_id.clone()),
        remote_control: device.has(DeviceScope::RemoteControl),
        label: device.device_label.clone(),
        program: "a device that has logged in over TCP".into(),
        family: Some(device.family.clone()),
        token_ends: Some(device.token_ends),
        read_only: false,
    }
}

fn devices(app: &App) -> &Devices {
    &app.rooms().devices
}

/// Lists devices.
#[utoipa::path(
    get, path = "/v1/devices", operation_id = "list_devices", tag = "devices",
    responses((status = 200, description = "The answer", body = DeviceList), Failures)
)]
pub async fn list(app: App, Asking(caller): Asking) -> Answer<DeviceList> {
    app.engine.authorize(Tier::Read)?;
    Ok(Json(devices(&app).relay.list(&caller)))
}

/// Returns one device.
#[utoipa::path(
    get, path = "/v1/devices/{id}", operation_id = "get_device", tag = "devices",
    params(PathDevice),
    responses((status = 200, description = "The answer", body = DeviceInfo), Failures)
)]
pub async fn one(app: App, Asking(caller): Asking, PathWord(id): PathWord) -> Answer<DeviceInfo> {
    app.engine.authorize(Tier::Read)?;
    Ok(Json(devices(&app).relay.get(&caller, &id)?))
}

/// Reads a device's workspace from its owner.
#[utoipa::path(
    get, path = "/v1/devices/{id}/workspace", operation_id = "get_workspace", tag = "devices",
    params(PathDevice, WorkspaceQuery),
    responses((status = 200, description = "The answer", body = WorkspaceAnswer), Failures)
)]
pub async fn workspace(
    app: App,
    Asking(caller): Asking,
    PathWord(id): PathWord,
    Params(query): Params<WorkspaceQuery>,
) -> Answer<WorkspaceAnswer> {
    app.engine.authorize(Tier::Read)?;
    let reader = caller.device.clone().unwrap_or_else(|| "reader".into());
    Ok(Json(devices(&app).relay.workspace(&caller, &reader, &id, query.allow_stale).await?))
}

/// Publishes the workspace of a device without a connection.
#[utoipa::path(
    put, path = "/v1/devices/{id}/workspace", operation_id = "publish_workspace", tag = "devices",
    params(PathDevice),
    request_body = PublishRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn publish(
    app: App,
    Asking(caller): Asking,
    PathWord(id): PathWord,
    Body(request): Body<PublishRequest>,
) -> Answer<DoneAnswer> {
    app.engine.authorize(Tier::Create)?;
    if caller.device.is_none() && !caller.remote_control {
        return Err(log_in_first().into());
    }
    let bytes = serde_json::to_string(&request.snapshot).map_or(usize::MAX, |text| text.len());
    let publisher = Publisher { label: request.device_label, kind: request.device_type };
    devices(&app).relay.publish(&caller, &id, Some(publisher), request.snapshot, bytes).await?;
    Ok(Json(DoneAnswer { ok: true }))
}

/// Sends a request to the owner of a workspace, and waits for its response.
#[utoipa::path(
    post, path = "/v1/devices/{id}/rpc", operation_id = "ask_device", tag = "devices",
    params(PathDevice),
    request_body = RpcRequest,
    responses((status = 200, description = "The owner's answer", body = RpcResponse), Failures)
)]
pub async fn rpc(
    app: App,
    Asking(caller): Asking,
    PathWord(id): PathWord,
    Body(mut request): Body<RpcRequest>,
) -> Answer<RpcResponse> {
    app.engine.authorize(if request.command == GET_WORKSPACE { Tier::Read } else { Tier::Create })?;
    if request.target_device_id.is_empty() {
        request.target_device_id.clone_from(&id);
    }
    if request.target_device_id != id {
        return Err(Error::invalid(format!("targetDeviceId: expected {id}, as in the path")).into());
    }
    if request.request_id.is_empty() {
        request.request_id = format!("req_{}", nonce::hex64());
    }
    Ok(Json(devices(&app).relay.request(&caller, request).await?))
}

/// Logs a device in, and returns a token that is bound to it.
#[utoipa::path(
    post, path = "/api/device-sessions", operation_id = "begin_device_session", tag = "devices",
    request_body = DeviceSessionRequest,
    responses((status = 200, description = "The session", body = DeviceSession), Failures)
)]
pub async fn login(
    app: App,
    Asking(caller): Asking,
    Body(request): Body<DeviceSessionRequest>,
) -> Answer<DeviceSession> {
    if caller.device.is_some() {
        let why = "a device's token cannot log in another device: use the daemon's token";
        return Err(Error::new(ErrorCode::Unauthorized, why).into());
    }
    let Devices { relay, sessions } = devices(&app).clone();
    let begun = blocking(move || {
        let (session, ended) = sessions.begin(&caller.principal, &request, clock::now_ms())?;
        for family in ended {
            relay.end_family(&family);
        }
        Ok(session)
    });
    Ok(Json(begun.await?))
}

/// Exchanges a refresh token, which works once, for the next tokens.
#[utoipa::path(
    post, path = "/api/device-sessions/refresh", operation_id = "refresh_device_session", tag = "devices",
    request_body = RefreshRequest,
    responses((status = 200, description = "The session", body = DeviceSession), Failures)
)]
pub async fn refresh(app: App, Body(request): Body<RefreshRequest>) -> Answer<DeviceSession> {
    let (sessions, relay) = (devices(&app).sessions.clone(), devices(&app).relay.clone());
    let renewed = blocking(move || {
        sessions.refresh(&request.refresh_token, clock::now_ms()).map_err(|(error, ended)| {
            if let Some(family) = ended {
                relay.end_family(&family);
            }
            error
        })
    });
    Ok(Json(renewed.await?))
}

/// Ends the session of the presented token.
#[utoipa::path(
    delete, path = "/api/device-sessions/current", operation_id = "end_device_session", tag = "devices",
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn logout(
    app: App,
    device: Option<Extension<BoundDevice>>,
    headers: axum::http::HeaderMap,
) -> Answer<DoneAnswer> {
    let Devices { relay, sessions } = devices(&app).clone();
    // On the Unix socket no guard has checked the token.
    let presented = || {
        let token = headers.get(axum::http::header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?;
        sessions.verify(token.trim(), clock::now_ms())
    };
    let Some(device) = device.map(|Extension(device)| device).or_else(presented) else {
        return Err(Error::new(ErrorCode::Unauthorized, "expected the token of the session to end").into());
    };
    blocking(move || {
        let ended = sessions.end(&device.family);
        // In memory the session has ended, even if that could not be written.
        relay.end_family(&device.family);
        ended
    })
    .await?;
    Ok(Json(DoneAnswer { ok: true }))
}

/// Returns the error for a caller that has only the daemon's token.
fn log_in_first() -> Error {
    let why = "the daemon's token belongs to no device: POST /api/device-sessions returns a token for one";
    Error::new(ErrorCode::Unauthorized, why)
}

/// Runs a function that reads or writes files on a thread where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> muxtap_api::Result<T> + Send + 'static,
) -> muxtap_api::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Error::internal(error.to_string())))
}

/// Returns the response to a request without a WebSocket upgrade.
pub(super) fn no_websocket() -> axum::response::Response {
    use axum::response::IntoResponse as _;
    let error = Error::invalid("/v1/devices/ws requires a WebSocket upgrade (RFC 6455)");
    let mut response = (StatusCode::UPGRADE_REQUIRED, Json(error)).into_response();
    let websocket = axum::http::HeaderValue::from_static("websocket");
    response.headers_mut().insert(axum::http::header::UPGRADE, websocket);
    response
}
