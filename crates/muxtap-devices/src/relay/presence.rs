//! Connections of devices: how they begin and end, and which messages they send.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use muxtap_api::{DeviceInfo, Error, ErrorCode, Result, RpcRequest};
use muxtap_base::clock;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ASKED, CONNECTS, CONNECTS_TIME, Caller, Connection, DEVICES, Device, Relay, State, rpc::OwnerSays};

use crate::{
    outbox::Outbox,
    wire::{self, Answered, Head, Hello, OwnerResult},
};

/// Whether a connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The connection continues.
    Continue,
    /// The connection ends once all waiting messages are sent.
    End,
}

/// The action that a connection's timer requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Do nothing.
    Quiet,
    /// Ping the device.
    Ping,
    /// End the connection: the device was silent for too long.
    End,
}

/// A device's connection, until it is dropped.
#[derive(Debug)]
pub struct Session {
    relay: Relay,
    caller: Caller,
    device: String,
    number: u64,
    outbox: Arc<Outbox>,
    gone: CancellationToken,
    heard: Instant,
    /// When the connection is checked next.
    next_beat: Instant,
    asked: Arc<AtomicUsize>,
    reason: &'static str,
}

impl Relay {
    /// Begins a device's connection; an older one receives `replaced`, and ends.
    ///
    /// Errors: `UNAUTHORIZED` if the device belongs to another principal or the token is bound to
    /// another device; `RESOURCE_LIMIT`.
    pub fn connect(&self, caller: &Caller, hello: &Hello) -> Result<Session> {
        let id = &hello.device_id;
        if caller.device.as_ref().is_some_and(|bound| bound != id) {
            return Err(Error::new(ErrorCode::Unauthorized, format!("the token is not bound to the device {id}")));
        }
        let mut state = self.state();
        if state.devices.get(id).is_some_and(|known| known.principal != caller.principal) {
            return Err(Error::new(ErrorCode::Unauthorized, format!("the device {id} belongs to another principal")));
        }
        let connects = match state.devices.get(id) {
            Some(known) => known.connects.next(id)?,
            None => Connects::first(),
        };
        let forgotten = state.make_room(id)?;
        state.connections += 1;
        let number = state.connections;
        // The welcome comes first, whatever is sent to the device meanwhile.
        let (outbox, gone) = (Arc::new(Outbox::closed()), CancellationToken::new());
        let connection = Connection {
            number,
            outbox: outbox.clone(),
            family: caller.family.clone(),
            pending: HashMap::new(),
            ended: VecDeque::new(),
            gone: gone.clone(),
        };
        let kept = state.devices.get(id).and_then(|known| known.kept);
        let device = Device {
            label: hello.device_label.clone(),
            kind: hello.device_type,
            principal: caller.principal.clone(),
            last_seen_ms: clock::now_ms(),
            revision: hello.workspace_revision,
            remote_control: hello.remote_control,
            kept,
            connects,
            online: Some(connection),
        };
        let info = device.info(id);
        if let Some(older) = state.devices.insert(id.clone(), device).and_then(|older| older.online) {
            // Its pending requests end with it: no request is sent twice.
            older.gone.cancel();
            older.outbox.end(Some(wire::replaced()));
        }
        let own = state.devices.iter().filter(|(_, device)| device.principal == caller.principal);
        let mut devices: Vec<DeviceInfo> = own.map(|(id, device)| device.info(id)).collect();
        state.broadcast(&info, &caller.principal, "connected");
        drop(state);
        self.forget(forgotten);
        // The list of devices can be long: it is written without the lock.
        devices.sort_by(|one, other| one.device_id.cmp(&other.device_id));
        outbox.open(wire::welcome(self.0.times.presence, self.0.times.heartbeat, &devices));
        Ok(Session {
            relay: self.clone(),
            caller: Caller { device: Some(id.clone()), ..caller.clone() },
            device: id.clone(),
            number,
            outbox,
            gone,
            heard: Instant::now(),
            next_beat: Instant::now() + self.0.times.heartbeat,
            asked: Arc::default(),
            reason: "closed",
        })
    }
}

/// The connections of a device in the current period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connects {
    since: Instant,
    count: u32,
}

impl Connects {
    fn first() -> Self {
        Self { since: Instant::now(), count: 1 }
    }

    /// Creates the count of a device that has no connection.
    pub(super) fn none() -> Self {
        Self { since: Instant::now(), count: 0 }
    }

    /// Counts one more connection. Error: `RESOURCE_LIMIT` if there are too many.
    fn next(self, device: &str) -> Result<Self> {
        if self.since.elapsed() >= CONNECTS_TIME {
            return Ok(Self::first());
        }
        if self.count >= CONNECTS {
            let time = CONNECTS_TIME.as_secs();
            let message = format!("the device {device} has connected {CONNECTS} times within {time} s: retry later");
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        }
        Ok(Self { count: self.count + 1, ..self })
    }
}

impl State {
    /// Makes space for one more device.
    ///
    /// Returns the device that was dropped, whose snapshot the caller must remove. Error:
    /// `RESOURCE_LIMIT` if all are connected.
    pub(super) fn make_room(&mut self, id: &str) -> Result<Option<String>> {
        if self.devices.contains_key(id) || self.devices.len() < DEVICES {
            return Ok(None);
        }
        let offline = self.devices.iter().filter(|(_, device)| device.online.is_none());
        let oldest = offline.min_by_key(|(_, device)| (device.kept.is_some(), device.last_seen_ms));
        let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
            return Err(Error::new(ErrorCode::ResourceLimit, format!("too many connected devices: at most {DEVICES}")));
        };
        let had_snapshot = self.devices.remove(&oldest).is_some_and(|device| device.kept.is_some());
        Ok(had_snapshot.then_some(oldest))
    }

    /// Sends the presence of one device to all other devices of its principal.
    pub(super) fn broadcast(&self, about: &DeviceInfo, principal: &str, reason: &str) {
        let message = wire::presence(about, reason);
        for (id, device) in &self.devices {
            if let Some(connection) = device.online.as_ref().filter(|_| device.principal == principal)
                && *id != about.device_id
            {
                connection.outbox.presence(&about.device_id, message.clone());
            }
        }
    }
}

impl Session {
    /// Returns the queue of messages to send.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Returns the id of its device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Notes that the device sent something.
    pub fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// Returns when [`Session::beat`] is due.
    pub fn next_beat(&self) -> Instant {
        let next_beat = self.next_beat.min(self.heard + self.relay.0.times.presence);
        let left = self.caller.token_ends.map(|ends| Duration::from_millis(ends.saturating_sub(clock::now_ms())));
        left.map_or(next_beat, |left| next_beat.min(Instant::now() + left))
    }

    /// Decides what is due now. An expired token ends the connection, after an error.
    pub fn beat(&mut self) -> Beat {
        if self.caller.token_ends.is_some_and(|ends| ends <= clock::now_ms()) {
            let why = "the device's token has expired: refresh it and reconnect with the new one";
            self.outbox.end(Some(wire::error(&Error::new(ErrorCode::Unauthorized, why))));
            self.caller.token_ends = None;
            return Beat::Quiet;
        }
        let (now, heartbeat) = (Instant::now(), self.relay.0.times.heartbeat);
        if now < self.next_beat && now < self.heard + self.relay.0.times.presence {
            return Beat::Quiet;
        }
        if !self.is_present() {
            return Beat::End;
        }
        self.next_beat = now + heartbeat;
        // A device that sent something since the last check needs no ping.
        if now.saturating_duration_since(self.heard) < heartbeat { Beat::Quiet } else { Beat::Ping }
    }

    /// Returns whether the device sent something recently, and notes when.
    fn is_present(&mut self) -> bool {
        let silent = self.heard.elapsed();
        if silent >= self.relay.0.times.presence {
            self.reason = "silent";
            return false;
        }
        if let Some(device) = self.relay.state().devices.get_mut(&self.device) {
            let silent = u64::try_from(silent.as_millis()).unwrap_or_default();
            device.last_seen_ms = device.last_seen_ms.max(clock::ago_ms(silent));
        }
        true
    }

    /// Handles a message of the device.
    pub async fn receive(&mut self, text: &str) -> Flow {
        self.heard();
        match self.handle(text).await {
            Ok(()) => Flow::Continue,
            // A second `hello` ends the connection: the device has lost its state.
            Err((error, Flow::End)) => {
                self.outbox.end(Some(wire::error(&error)));
                Flow::End
            }
            Err((error, Flow::Continue)) => {
                self.send(wire::error(&error));
                Flow::Continue
            }
        }
    }

    async fn handle(&self, text: &str) -> std::result::Result<(), (Error, Flow)> {
        let go_on = |error: Error| (error, Flow::Continue);
        let Head { kind, request_id } = match serde_json::from_str(text) {
            // A JSON array would be read as the fields in their order.
            Ok(_) if !text.trim_start().starts_with('{') => return Err(go_on(Error::invalid("expected an object"))),
            Ok(head) => head,
            Err(error) if error.is_data() => return Err(go_on(Error::invalid(format!("message: {error}")))),
            Err(error) => return Err((Error::invalid(format!("invalid JSON: {error}")), Flow::End)),
        };
        let (kind, id) = (kind.unwrap_or_default(), request_id.unwrap_or_default());
        match &*kind {
            "layout.rpc.request" => match serde_json::from_str::<RpcRequest>(text) {
                Ok(request) if !request.request_id.is_empty() => self.ask(request),
                Ok(_) => return Err(go_on(Error::invalid("requestId: missing"))),
                Err(error) => self.answer(&id, &Err(Error::invalid(format!("request: {error}")))),
            },
            "layout.rpc.ack" => self.relay.owner_says(&self.device, self.number, &id, OwnerSays::Ack),
            "layout.rpc.waiting" => self.relay.owner_says(&self.device, self.number, &id, OwnerSays::Waiting),
            "layout.rpc.result" => {
                let result: OwnerResult = serde_json::from_str(text)
                    .map_err(|error| go_on(Error::invalid(format!("layout.rpc.result: {error}"))))?;
                self.relay.owner_says(&self.device, self.number, &id, OwnerSays::Result(Box::new(result)));
            }
            "layout.snapshot.updated" => {
                let message = serde_json::from_str(text)
                    .map_err(|error| go_on(Error::invalid(format!("layout.snapshot.updated: {error}"))))?;
                let published = self.relay.publish(&self.caller, &self.device, None, message, text.len()).await;
                published.map_err(go_on)?;
            }
            // The message has no content: receiving it is enough.
            "heartbeat" => {}
            "hello" => {
                return Err((Error::invalid("duplicate `hello`: expected once, as the first message"), Flow::End));
            }
            // Agent sessions are not handled by the relay.
            kind if kind.starts_with("sdk.") || kind.starts_with("codingcli.") => {
                self.send(wire::text(&json!({
                    "type": "error",
                    "code": "UNSUPPORTED",
                    "message": format!("{kind}: agent sessions are not available on this connection"),
                    "requestId": id,
                })));
            }
            _ => return Err(go_on(Error::invalid(format!("type: unknown message type {kind:?}")))),
        }
        Ok(())
    }

    /// Sends a request to another device, in a task that ends with this connection.
    fn ask(&self, request: RpcRequest) {
        let id = request.request_id.clone();
        if self.asked.fetch_add(1, Ordering::Relaxed) >= ASKED {
            self.asked.fetch_sub(1, Ordering::Relaxed);
            let error = Error::new(ErrorCode::ResourceLimit, format!("too many pending requests: at most {ASKED}"));
            return self.answer(&id, &Err(error));
        }
        let (relay, caller, outbox) = (self.relay.clone(), self.caller.clone(), self.outbox.clone());
        let (gone, asked) = (self.gone.clone(), self.asked.clone());
        tokio::spawn(async move {
            let answer = tokio::select! {
                answer = relay.ask(&caller, &request, Some(&outbox)) => Some(answer),
                () = gone.cancelled() => None,
            };
            asked.fetch_sub(1, Ordering::Relaxed);
            if let Some(answer) = answer {
                push(&outbox, wire::answer(&id, &answer));
            }
        });
    }

    fn answer(&self, id: &str, answer: &Result<Answered>) {
        self.send(wire::answer(id, answer));
    }

    fn send(&self, message: Arc<str>) {
        push(&self.outbox, message);
    }
}

/// Queues a message; a connection with a full queue ends.
pub fn push(outbox: &Outbox, message: Arc<str>) -> bool {
    let taken = outbox.push(message);
    if !taken {
        let error = Error::new(ErrorCode::ResourceLimit, "this device does not read its messages");
        outbox.end(Some(wire::error(&error)));
    }
    taken
}

impl Drop for Session {
    fn drop(&mut self) {
        self.gone.cancel();
        let mut state = self.relay.state();
        let Some(device) = state.devices.get_mut(&self.device) else { return };
        // A newer connection may have replaced this one.
        if device.online.as_ref().is_none_or(|connection| connection.number != self.number) {
            return;
        }
        // This drops its pending requests, whose callers get an error.
        device.online = None;
        if self.reason == "closed" {
            device.last_seen_ms = clock::now_ms();
        }
        let (info, principal) = (device.info(&self.device), device.principal.clone());
        state.broadcast(&info, &principal, self.reason);
    }
}

/// How long a device may take to send its `hello`.
pub const HELLO_TIME: Duration = Duration::from_secs(5);
