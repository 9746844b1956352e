//! Agent sessions on a device's connection: `sdk.…` and `codingcli.…` (`docs/devices.md`).

use std::sync::Arc;

use memchr::memmem;
use muxtap_api::{AgentSessionRequest, Error, ErrorCode, PromptRequest, Result, ServerQuery};
use muxtap_devices::{Outbox, relay::push, wire};
use muxtap_sessions::EventReader;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{App, server};

/// The maximum number of concurrent requests and attachments of one connection.
const AGENT_REQUESTS: usize = 64;

/// The agent sessions, as one device's connection uses them. Its requests end with the connection;
/// the agents' work continues.
pub(super) struct AgentPlane {
    app: App,
    outbox: Arc<Outbox>,
    /// Whether its device may use agents: what they run is as powerful as a terminal.
    allowed: bool,
    open: Arc<Semaphore>,
    gone: CancellationToken,
    _end: DropGuard,
}

impl AgentPlane {
    pub(super) fn new(app: App, outbox: Arc<Outbox>, allowed: bool) -> Self {
        let gone = CancellationToken::new();
        let end = gone.clone().drop_guard();
        Self { app, outbox, allowed, open: Arc::new(Semaphore::new(AGENT_REQUESTS)), gone, _end: end }
    }

    /// Handles a message about agent sessions in a task. `false`: the message is about something
    /// else.
    pub(super) fn take(&self, text: &str) -> bool {
        // Workspaces also come this way, and are long.
        if memmem::find(text.as_bytes(), b"\"sdk.").is_none()
            && memmem::find(text.as_bytes(), b"\"codingcli.").is_none()
        {
            return false;
        }
        let Ok(Value::Object(mut message)) = serde_json::from_str(text) else { return false };
        let kind = message.remove("type").and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default();
        let Some(asked) = Asked::of(&kind) else { return false };
        let id = message.remove("requestId").and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_default();
        let permit = match (id.is_empty(), self.allowed, self.open.clone().try_acquire_owned()) {
            (true, ..) => Err(Error::invalid("requestId: missing")),
            (_, false, _) => Err(Error::new(ErrorCode::Unauthorized, "missing scope: terminals")),
            (.., Err(_)) => {
                let message = format!("too many open requests and attachments: at most {AGENT_REQUESTS}");
                Err(Error::new(ErrorCode::ResourceLimit, message))
            }
            (.., Ok(permit)) => Ok(permit),
        };
        match permit {
            Ok(permit) => {
                let request = Request { app: self.app.clone(), outbox: self.outbox.clone(), kind, id };
                let gone = self.gone.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = request.run(asked, message, permit) => {}
                        () = gone.cancelled() => {}
                    }
                });
            }
            Err(error) => refuse(&self.outbox, &id, &error),
        }
        true
    }
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Create,
    Send,
    Interrupt,
    Kill,
    Attach,
}

impl Asked {
    /// `None`: the request is not about agent sessions.
    fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "sdk.create" | "codingcli.create" => Self::Create,
            "sdk.send" | "codingcli.input" => Self::Send,
            "sdk.interrupt" => Self::Interrupt,
            "sdk.kill" | "codingcli.kill" => Self::Kill,
            "sdk.attach" => Self::Attach,
            _ => return None,
        })
    }
}

/// A request of a device.
struct Request {
    app: App,
    outbox: Arc<Outbox>,
    kind: String,
    id: String,
}

impl Request {
    async fn run(self, asked: Asked, fields: Map<String, Value>, permit: OwnedSemaphorePermit) {
        match self.answer(asked, fields).await {
            Ok((answer, events)) => {
                let mut message = Map::from_iter([
                    ("type".to_owned(), format!("{}.ok", self.kind).into()),
                    ("requestId".to_owned(), self.id.clone().into()),
                ]);
                if let Value::Object(fields) = answer {
                    message.extend(fields);
                }
                push(&self.outbox, wire::text(&message.into()));
                if let Some(events) = events {
                    self.follow(events).await;
                }
            }
            Err(error) => refuse(&self.outbox, &self.id, &error),
        }
        drop(permit);
    }

    async fn answer(&self, asked: Asked, mut fields: Map<String, Value>) -> Result<(Value, Option<EventReader>)> {
        let (sessions, engine) = (&self.app.rooms().sessions, &self.app.engine);
        let name = |fields: &Map<String, Value>| {
            let name = fields.get("session").and_then(Value::as_str).map(str::to_owned);
            name.ok_or_else(|| Error::invalid("session: missing; expected session:PROVIDER:ID"))
        };
        let answer = match asked {
            Asked::Create => {
                fields.entry("provider").or_insert_with(|| "sdk".into());
                let request: AgentSessionRequest = parsed(fields)?;
                json!(sessions.create(&server(&self.app, &ServerQuery::default())?, request, None).await?)
            }
            Asked::Send => {
                let session = name(&fields)?;
                fields.remove("session");
                json!(sessions.prompt(engine, &session, parsed::<PromptRequest>(fields)?).await?)
            }
            Asked::Interrupt => json!(sessions.interrupt(engine, &name(&fields)?)?),
            Asked::Kill => json!(sessions.kill(engine, &name(&fields)?).await?),
            Asked::Attach => {
                let since = fields.get("since").and_then(Value::as_str);
                let session = name(&fields)?;
                let events = sessions.attach(engine, &session, since)?;
                return Ok((json!({ "session": session, "cursor": events.cursor() }), Some(events)));
            }
        };
        Ok((answer, None))
    }

    /// Sends events until the agent ends, as fast as the device accepts them. A device that missed
    /// some gets a gap.
    async fn follow(&self, mut events: EventReader) {
        self.outbox.room().await;
        while let Some(entry) = events.next().await {
            let mut message = json!(entry);
            if let Some(message) = message.as_object_mut() {
                message.insert("type".into(), "session.event".into());
            }
            if !push(&self.outbox, wire::text(&message)) {
                return;
            }
            self.outbox.room().await;
        }
    }
}

fn parsed<T: serde::de::DeserializeOwned>(fields: Map<String, Value>) -> Result<T> {
    serde_json::from_value(fields.into()).map_err(|error| Error::invalid(error.to_string()))
}

fn refuse(outbox: &Outbox, id: &str, error: &Error) {
    let mut message = json!(error);
    if let Some(message) = message.as_object_mut() {
        message.insert("type".into(), "error".into());
        message.insert("requestId".into(), id.into());
    }
    push(outbox, wire::text(&message));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_the_contract_is_known_and_no_other() {
        for known in ["create", "send", "interrupt", "kill", "attach"] {
            assert!(Asked::of(&format!("sdk.{known}")).is_some(), "{known}");
        }
        for known in ["create", "input", "kill"] {
            assert!(Asked::of(&format!("codingcli.{known}")).is_some(), "{known}");
        }
        for other in ["sdk.", "sdk.list", "codingcli.attach", "layout.rpc.request"] {
            assert!(Asked::of(other).is_none(), "{other}");
        }
    }
}
