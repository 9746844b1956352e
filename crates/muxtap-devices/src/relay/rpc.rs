//! Requests from one device to another.
//!
//! A request is sent to one connection, once; its caller gets exactly one response.

use std::{io, sync::Arc, time::Duration};

use muxtap_api::{Error, ErrorCode, RemoteControl, Result, RpcRequest, RpcResponse};
use muxtap_base::nonce;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{ARGS_BYTES, Caller, ENDED, PENDING, RESULT_LONGEST, RESULT_TIME, Relay, presence::push, unknown};

use crate::{
    audit::{Asked, Ending},
    names,
    outbox::Outbox,
    wire::{self, Answered, OwnerResult},
    workspace::{GET_WORKSPACE, RpcRead, check_key, needs_key},
};

/// The detail of an owner's error whose person was asked before.
pub const PERSON_ASKED: &str = "personAsked";
/// The maximum length of a request's id, in bytes.
const ID_BYTES: usize = 128;

/// A message of an owner about a request.
#[derive(Debug)]
pub(super) enum OwnerSays {
    /// The owner took the request.
    Ack,
    /// The owner is asking its person.
    Waiting,
    /// The request is done, or refused.
    Result(Box<OwnerResult>),
}

/// A request that its owner has not answered yet.
#[derive(Debug)]
pub(super) struct Pending {
    says: mpsc::Sender<OwnerSays>,
    caller: String,
    /// The caller's id of the request.
    request_id: String,
}

/// A request in progress. Dropping it removes it from the pending ones and writes its outcome to
/// the log.
struct OnItsWay<'a> {
    relay: &'a Relay,
    asked: Asked,
    /// The number of the connection that received the request, and the relay's id of it.
    sent_to: Option<(u64, String)>,
    ending: Ending,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if let Some((number, id)) = self.sent_to.take() {
            let mut state = self.relay.state();
            let device = state.devices.get_mut(&self.asked.target);
            let connection = device.and_then(|device| device.online.as_mut()).filter(|one| one.number == number);
            if let Some(connection) = connection
                && connection.pending.remove(&id).is_some()
            {
                if connection.ended.len() >= ENDED {
                    connection.ended.pop_front();
                }
                connection.ended.push_back((id, self.asked.clone()));
            }
        }
        self.relay.0.audit.write(&self.asked, self.ending);
    }
}

impl Relay {
    /// Sends a request to the owner of a workspace, and waits for the response.
    ///
    /// An error's stage tells how far the request came: `relay` (`NOT_FOUND`, `UNAUTHORIZED`,
    /// `DEVICE_OFFLINE`, `RPC_TIMEOUT`) or `owner` (`OWNER_TIMEOUT`, and the owner's own errors).
    pub async fn request(&self, caller: &Caller, request: RpcRequest) -> Result<RpcResponse> {
        let answered = self.ask(caller, &request, None).await?;
        let (result, applied_revision) = (answered.result()?, answered.applied_revision);
        Ok(RpcResponse { request_id: request.request_id, ok: true, result, applied_revision })
    }

    /// Sends a request to the owner of a workspace, as [`Relay::request`] does.
    ///
    /// `events` is notified when the owner takes the request or asks its person.
    pub(super) async fn ask(
        &self,
        caller: &Caller,
        request: &RpcRequest,
        events: Option<&Arc<Outbox>>,
    ) -> Result<Answered> {
        let asked = Asked {
            request_id: request.request_id.clone(),
            caller: request.caller_device_id.clone(),
            target: request.target_device_id.clone(),
            command: request.command.clone(),
        };
        check_ids(request).map_err(|error| error.at_stage("relay"))?;
        let mut on_its_way = OnItsWay { relay: self, asked, sent_to: None, ending: Ending::Abandoned };
        let sent = check(request).and_then(|()| self.send(caller, request, &mut on_its_way));
        let answer = match sent {
            Ok(says) => self.answer(request, says, events).await,
            Err(error) => Err(error.at_stage("relay")),
        };
        on_its_way.ending = match &answer {
            Ok(_) => Ending::Done,
            Err(error) => {
                Ending::Failed(error.code, if error.stage.as_deref() == Some("owner") { "owner" } else { "relay" })
            }
        };
        drop(on_its_way);
        answer
    }

    /// Sends a request to its owner, if the caller is authorized.
    fn send(
        &self,
        caller: &Caller,
        request: &RpcRequest,
        on_its_way: &mut OnItsWay<'_>,
    ) -> Result<mpsc::Receiver<OwnerSays>> {
        let refuse = |why: String| Err(Error::new(ErrorCode::Unauthorized, why));
        let target = &request.target_device_id;
        if caller.device.as_ref().is_some_and(|bound| *bound != request.caller_device_id) {
            return refuse(format!("callerDeviceId: not authorized for the device {}", request.caller_device_id));
        }
        if request.caller_device_id == *target {
            return Err(Error::invalid("targetDeviceId: expected another device than callerDeviceId"));
        }
        let mut state = self.state();
        // Two callers may choose the same id, and a caller may use an id again. The owner therefore
        // identifies the request by an id that is never reused.
        state.requests += 1;
        let epoch = self.0.epoch.get_or_init(nonce::hex64);
        let id = format!("rpc_{epoch}_{}", state.requests);
        let label = state.devices.get(&request.caller_device_id).map(|device| device.label.clone());
        let device = state.devices.get_mut(target).ok_or_else(|| unknown(target))?;
        if device.principal != caller.principal {
            return refuse(format!("the device {target} belongs to another principal"));
        }
        let changes = request.command != GET_WORKSPACE;
        if changes && caller.read_only {
            return refuse("this daemon is read-only".into());
        }
        if changes && !caller.remote_control {
            return refuse("missing scope: remote-control".into());
        }
        if changes && device.remote_control == RemoteControl::Never {
            return refuse(format!("the device {target} does not allow other devices to change its workspace"));
        }
        let Some(connection) = &mut device.online else {
            return Err(Error::new(ErrorCode::DeviceOffline, format!("the device {target} is not connected"))
                .with_details(json!({ "lastSeenAt": device.last_seen_ms })));
        };
        if connection.pending.len() >= PENDING {
            return Err(Error::new(
                ErrorCode::ResourceLimit,
                format!("too many pending requests for the device {target}: at most {PENDING}"),
            ));
        }
        let is_it = |one: &Pending| one.caller == request.caller_device_id && one.request_id == request.request_id;
        if connection.pending.values().any(is_it) {
            return Err(Error::new(ErrorCode::Conflict, "a request with this id is already pending for that device"));
        }
        let offline =
            || Error::new(ErrorCode::DeviceOffline, format!("the device {target} does not read its messages"));
        let label = label.as_deref().unwrap_or(&caller.label);
        if !push(&connection.outbox, wire::request(request, &id, label, &caller.program)) {
            return Err(offline());
        }
        // An owner sends at most three messages about a request.
        let (says, said) = mpsc::channel(4);
        let (caller, request_id) = (request.caller_device_id.clone(), request.request_id.clone());
        connection.pending.insert(id.clone(), Pending { says, caller, request_id });
        on_its_way.sent_to = Some((connection.number, id));
        Ok(said)
    }

    /// Waits for the owner's response.
    async fn answer(
        &self,
        request: &RpcRequest,
        mut says: mpsc::Receiver<OwnerSays>,
        events: Option<&Arc<Outbox>>,
    ) -> Result<Answered> {
        let times = self.0.times;
        let target = &request.target_device_id;
        let tell = |kind: &str| {
            if let Some(outbox) = events {
                push(outbox, wire::progress(kind, &request.request_id));
            }
        };
        let time = request.timeout_ms.map_or(RESULT_TIME, |time| Duration::from_millis(time).min(RESULT_LONGEST));
        let sent = Instant::now();
        let (mut taken, mut asked, mut deadline) = (false, false, sent + times.ack);
        loop {
            let why = match tokio::time::timeout_at(deadline, says.recv()).await {
                Ok(Some(OwnerSays::Ack)) => {
                    if !std::mem::replace(&mut taken, true) {
                        deadline = Instant::now() + time;
                        tell("layout.rpc.ack");
                    }
                    continue;
                }
                Ok(Some(OwnerSays::Waiting)) => {
                    (taken, asked) = (true, true);
                    deadline = deadline.max(sent + times.waiting);
                    tell("layout.rpc.waiting");
                    continue;
                }
                Ok(Some(OwnerSays::Result(result))) if result.ok => {
                    let OwnerResult { result, applied_revision, .. } = *result;
                    return Ok(Answered { result, applied_revision });
                }
                Ok(Some(OwnerSays::Result(result))) => {
                    let mut error = result.into_error();
                    // A caller that repeats such a request would ask the person again.
                    if asked && let Value::Object(details) = error.details.get_or_insert_with(|| json!({})) {
                        details.insert(PERSON_ASKED.into(), true.into());
                    }
                    return Err(error);
                }
                Ok(None) => "disconnected",
                Err(_) => "did not respond in time",
            };
            let (code, stage, message) = if taken {
                let message = format!("the device {target} accepted the request and {why}: check before you retry");
                (ErrorCode::OwnerTimeout, "owner", message)
            } else {
                (ErrorCode::RpcTimeout, "relay", format!("the device {target} {why} and did not accept the request"))
            };
            return Err(Error::new(code, message).at_stage(stage));
        }
    }

    /// Handles an owner's message about a request. Only the connection that received the request
    /// counts.
    pub(super) fn owner_says(&self, device: &str, number: u64, id: &str, says: OwnerSays) {
        let mut state = self.state();
        let connection = state.devices.get_mut(device).and_then(|device| device.online.as_mut());
        let Some(connection) = connection.filter(|connection| connection.number == number) else { return };
        let is_result = matches!(says, OwnerSays::Result(_));
        if let Some(pending) = connection.pending.get(id) {
            // More messages than the channel holds are dropped.
            let _ = pending.says.try_send(says);
            if is_result {
                connection.pending.remove(id);
            }
            return;
        }
        let ended = connection.ended.iter().position(|(ended, _)| ended == id);
        if let Some((_, asked)) = ended.filter(|_| is_result).and_then(|at| connection.ended.remove(at)) {
            drop(state);
            self.0.audit.write(&asked, Ending::Late);
        }
    }
}

/// Checks the ids of a request. Error: `INVALID_ARGUMENT`.
///
/// A request that fails here is not in the log.
fn check_ids(request: &RpcRequest) -> Result<()> {
    names::check_id(&request.caller_device_id)?;
    names::check_id(&request.target_device_id)?;
    if request.request_id.is_empty()
        || request.request_id.len() > ID_BYTES
        || request.request_id.chars().any(char::is_control)
    {
        return Err(Error::invalid(format!("requestId: expected 1 to {ID_BYTES} visible bytes")));
    }
    if request.command.is_empty() || request.command.len() > 64 || request.command.chars().any(char::is_control) {
        return Err(Error::invalid("command: expected 1 to 64 visible bytes"));
    }
    Ok(())
}

/// Checks a request before its owner, and the owner's person, get it. Errors: `INVALID_ARGUMENT`,
/// `INVALID_TARGET`, `RESOURCE_LIMIT`.
fn check(request: &RpcRequest) -> Result<()> {
    if !matches!(request.args, Value::Null | Value::Object(_)) {
        return Err(Error::invalid("args: expected an object"));
    }
    let mut length = Length(0);
    if serde_json::to_writer(&mut length, &request.args).is_err() || length.0 > ARGS_BYTES {
        return Err(Error::new(ErrorCode::ResourceLimit, format!("args: more than {ARGS_BYTES} bytes")));
    }
    if request.command != GET_WORKSPACE && request.expected_revision.is_none() {
        return Err(Error::invalid("expectedRevision: missing; expected the revision that the change is based on"));
    }
    if needs_key(&request.command) && request.idempotency_key.is_none() {
        return Err(Error::invalid(format!("idempotencyKey: missing; {} requires one", request.command)));
    }
    request.idempotency_key.as_deref().map_or(Ok(()), check_key)?;
    RpcRead::parse(&request.command, request.args.clone(), None, None).map(drop)
}

/// A writer that counts bytes.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
