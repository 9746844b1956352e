//! `device run`: makes this command line available to other devices.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use muxtap_base::clock;
use muxtap_devices::{
    local::{Home, Identity},
    wire::{self, Hello, OwnerResult},
    workspace::RpcRead,
};
use muxtap_net::remote::Wire;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Message, client::IntoClientRequest as _, http::StatusCode},
};

use super::{
    Context,
    auth::{self, Renew},
    text,
};

use crate::{
    api::{DeviceType, Error, ErrorCode, RemoteControl, Result, RpcRequest},
    cli::{EXIT_INTERRUPTED, Outcome, caller::Caller, output},
};

/// The route of a device's connection.
const ROUTE: &str = "/v1/devices/ws";
/// The pause before reconnecting to the daemon; it doubles with each failure.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest such pause.
const AGAIN_LONGEST: Duration = Duration::from_secs(10);

type Socket = WebSocketStream<Box<dyn Wire>>;

/// How a connection ended.
enum Ended {
    /// Another process has taken over this device.
    Replaced,
    /// The daemon has exited.
    Lost,
}

/// Serves other devices until Ctrl-C, or until another process takes over this device.
pub(super) async fn run(context: &Context<'_>, remote_control: Option<RemoteControl>) -> Outcome {
    let identity = context.home.change_identity(|identity| {
        identity.remote_control = remote_control.unwrap_or(identity.remote_control);
        Ok(())
    })?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|error| Error::internal(format!("signals: {error}")))?;
    let serving = async {
        let (mut pause, mut reported) = (AGAIN, None);
        loop {
            match connect(context, &identity).await {
                Ok(mut socket) => match serve(context, &identity, &mut socket).await? {
                    Ended::Replaced => {
                        return Err(Error::new(ErrorCode::Conflict, "another process has taken over this device"));
                    }
                    Ended::Lost => {
                        output::note("lost the daemon; reconnecting");
                        (pause, reported) = (AGAIN, None);
                    }
                },
                Err(error) if error.code == ErrorCode::TmuxUnavailable => {
                    if reported.as_ref() != Some(&error.message) {
                        output::note(&format!("{}; retrying", error.message));
                    }
                    reported = Some(error.message);
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(clock::jittered(pause)).await;
            if reported.is_some() {
                pause = (pause * 2).min(AGAIN_LONGEST);
            }
            context.caller.reconnect().await?;
        }
    };
    tokio::select! {
        ended = serving => ended.map(|()| 0).map_err(Into::into),
        _ = tokio::signal::ctrl_c() => Ok(EXIT_INTERRUPTED),
        _ = terminate.recv() => Ok(0),
    }
}

async fn connect(context: &Context<'_>, identity: &Identity) -> Result<Socket> {
    // The token of the last connection may have expired.
    let elsewhere = auth::logged_in(context.caller, &context.home, Renew::Due).await?;
    match opening(context, elsewhere.as_ref()).await {
        Err(error) if error.code == ErrorCode::Unauthorized => {
            let Some(elsewhere) = elsewhere else { return Err(error) };
            let renewed = auth::logged_in(&elsewhere, &context.home, Renew::Rejected).await?;
            greet(context, identity, opening(context, renewed.as_ref()).await?).await
        }
        socket => greet(context, identity, socket?).await,
    }
}

/// Opens a connection. Error: `UNAUTHORIZED` if the daemon rejects the token.
async fn opening(context: &Context<'_>, elsewhere: Option<&Caller>) -> Result<Socket> {
    let lost = |error: &dyn std::fmt::Display| Error::unavailable(format!("cannot talk to the daemon: {error}"));
    let at = elsewhere.and_then(|caller| caller.remote.as_ref());
    let (request, wire): (_, Box<dyn Wire>) = if let Some((remote, token)) = at {
        let mut request = remote.websocket(ROUTE).into_client_request().map_err(|error| lost(&error))?;
        let bearer = format!("Bearer {token}").parse().map_err(|_| Error::internal("malformed token"))?;
        request.headers_mut().insert("authorization", bearer);
        (request, remote.connect().await?)
    } else if context.caller.remote.is_some() {
        return Err(Error::new(ErrorCode::Unauthorized, "this device has logged out meanwhile"));
    } else {
        let stream = context.caller.stream()?;
        stream.set_nonblocking(true).map_err(|error| lost(&error))?;
        let stream = UnixStream::from_std(stream).map_err(|error| lost(&error))?;
        let request = format!("ws://muxtap{ROUTE}").into_client_request().map_err(|error| lost(&error))?;
        (request, Box::new(stream))
    };
    let handshake = tokio_tungstenite::client_async(request, wire);
    let opened = match at {
        Some((remote, _)) => remote.in_time(handshake).await?,
        None => handshake.await,
    };
    let (socket, _) = opened.map_err(|error| match error {
        tungstenite::Error::Http(response) if response.status() == StatusCode::UNAUTHORIZED => {
            Error::new(ErrorCode::Unauthorized, "the daemon rejects this device's token: `auth login` logs in again")
        }
        error => lost(&error),
    })?;
    Ok(socket)
}

/// Introduces this device.
async fn greet(context: &Context<'_>, identity: &Identity, mut socket: Socket) -> Result<Socket> {
    let lost = |error: &dyn std::fmt::Display| Error::unavailable(format!("cannot talk to the daemon: {error}"));
    let revision = opened(&context.home, &identity.device_id).await?.0;
    let hello = Hello {
        device_id: identity.device_id.clone(),
        device_label: identity.device_label.clone(),
        device_type: DeviceType::Cli,
        token: None,
        workspace_revision: revision,
        remote_control: identity.remote_control,
    };
    send(&mut socket, &hello.message()).await.map_err(|error| lost(&error))?;
    Ok(socket)
}

/// Serves requests until the connection ends.
async fn serve(context: &Context<'_>, identity: &Identity, socket: &mut Socket) -> Result<Ended> {
    let id = &identity.device_id;
    let (_, mut release, snapshot) = opened(&context.home, id).await?;
    if publish(socket, snapshot).await.is_err() {
        return Ok(Ended::Lost);
    }
    loop {
        let overdue = async {
            match release {
                Some(at) => tokio::time::sleep(Duration::from_millis(at.saturating_sub(clock::now_ms()) + 1)).await,
                None => std::future::pending().await,
            }
        };
        let message = tokio::select! {
            message = socket.next() => message,
            () = overdue => {
                let (_, next, snapshot) = opened(&context.home, id).await?;
                release = next;
                if publish(socket, snapshot).await.is_err() {
                    return Ok(Ended::Lost);
                }
                continue;
            }
        };
        let message: Value = match message {
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).unwrap_or_default(),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(Ended::Lost),
            Some(Ok(_)) => continue,
        };
        match text(&message, "type") {
            "welcome" => {
                if context.caller.json {
                    output::print_json(&json!({ "deviceId": id, "online": true }))
                        .map_err(|_| Error::internal("cannot write to stdout"))?;
                } else {
                    output::note(&format!("{id} is available to other devices; Ctrl-C ends it"));
                }
            }
            "replaced" => return Ok(Ended::Replaced),
            "error" => {
                let code = serde_json::from_value(message.get("code").cloned().unwrap_or_default());
                let error = Error::new(code.unwrap_or(ErrorCode::InternalError), text(&message, "message"));
                if error.code == ErrorCode::Unauthorized && context.caller.remote.is_some() {
                    // The token has expired. If the login has ended, connecting again reports it.
                    return Ok(Ended::Lost);
                }
                if matches!(error.code, ErrorCode::Unauthorized | ErrorCode::UnsupportedClient) {
                    return Err(error);
                }
                output::note(&error.message);
            }
            "layout.rpc.request" => {
                let ack = json!({ "type": "layout.rpc.ack", "requestId": text(&message, "requestId") });
                if send(socket, &ack).await.is_err() {
                    return Ok(Ended::Lost);
                }
                let home = context.home.clone();
                let done = tokio::task::spawn_blocking(move || answer(&home, message)).await;
                let (result, snapshot) = done.map_err(|error| Error::internal(error.to_string()))?;
                let mut said = serde_json::to_value(&result).unwrap_or_default();
                if let Some(said) = said.as_object_mut() {
                    said.insert("type".into(), "layout.rpc.result".into());
                }
                if send(socket, &said).await.is_err() {
                    return Ok(Ended::Lost);
                }
                if let Some((next, snapshot)) = snapshot {
                    release = next;
                    if publish(socket, snapshot).await.is_err() {
                        return Ok(Ended::Lost);
                    }
                }
            }
            _ => {}
        }
    }
}

/// A changed workspace: the time of its next release of a reserved pane, and its snapshot.
type Changed = (Option<u64>, Value);

/// Handles a request to this device. Reads and writes files.
fn answer(home: &Home, message: Value) -> (OwnerResult, Option<Changed>) {
    let request_id = text(&message, "requestId").to_owned();
    match done(home, message) {
        Ok((result, applied_revision, changed)) => {
            let result = serde_json::value::to_raw_value(&result).ok();
            (OwnerResult { request_id, ok: true, result, error: None, applied_revision }, changed)
        }
        Err(error) => {
            let error = serde_json::to_value(&error).ok();
            (OwnerResult { request_id, error, ..OwnerResult::default() }, None)
        }
    }
}

fn done(home: &Home, mut message: Value) -> Result<(Value, Option<u64>, Option<Changed>)> {
    if let Some(fields) = message.as_object_mut() {
        fields.remove("callerLabel");
        fields.remove("callerProgram");
    }
    let request: RpcRequest =
        serde_json::from_value(message).map_err(|error| Error::invalid(format!("request: {error}")))?;
    let RpcRequest { caller_device_id: caller, command, args, expected_revision, idempotency_key, .. } = request;
    let read = RpcRead::parse(&command, args, expected_revision, idempotency_key)?;
    // The workspace may have changed since this began.
    let identity = home.identity()?;
    let change = match read {
        RpcRead::Snapshot => {
            let opened = home.open(&identity.device_id, clock::now_ms())?;
            // Another command may have held the lock until now: the snapshot must be current.
            let now = clock::now_ms();
            let changed = opened.changed.then(|| (opened.workspace().next_release(), opened.snapshot(now)));
            return Ok((opened.snapshot(now), None, changed));
        }
        RpcRead::Change(change) => *change,
    };
    let allowed = identity.remote_control == RemoteControl::Always
        || identity.remote_control == RemoteControl::Ask && identity.allowed.contains(&caller);
    if !allowed {
        let message =
            format!("{} does not let {caller} change its workspace: run `allow {caller}` there", identity.device_id);
        return Err(Error::new(ErrorCode::Unauthorized, message));
    }
    if change.expected_revision.is_none() {
        return Err(Error::invalid("expectedRevision: missing; expected the revision that the change is based on"));
    }
    let mut opened = home.open(&identity.device_id, clock::now_ms())?;
    let now = clock::now_ms();
    let applied = opened.apply(&change, &caller, now)?;
    let changed = opened.changed.then(|| (opened.workspace().next_release(), opened.snapshot(now)));
    let result = json!({
        "tab": applied.tab,
        "pane": applied.pane,
        "idempotencyKey": applied.idempotency_key,
        "replayed": applied.replayed,
    });
    Ok((result, Some(applied.applied_revision), changed))
}

/// Opens the workspace for reading: its revision, the next release, and the snapshot.
async fn opened(home: &Home, id: &str) -> Result<(u64, Option<u64>, Value)> {
    let (home, id) = (home.clone(), id.to_owned());
    let look = move || {
        let opened = home.open(&id, clock::now_ms())?;
        let now = clock::now_ms();
        Ok((opened.workspace().revision(), opened.workspace().next_release(), opened.snapshot(now)))
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_else(|error| Err(Error::internal(error.to_string())))
}

async fn publish(socket: &mut Socket, mut snapshot: Value) -> std::result::Result<(), tungstenite::Error> {
    if let Some(snapshot) = snapshot.as_object_mut() {
        snapshot.insert("type".into(), "layout.snapshot.updated".into());
    }
    send(socket, &snapshot).await
}

async fn send(socket: &mut Socket, message: &Value) -> std::result::Result<(), tungstenite::Error> {
    socket.send(Message::text(wire::text(message).as_ref())).await
}
