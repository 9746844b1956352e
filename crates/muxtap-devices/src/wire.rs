//! The messages of a device's WebSocket: JSON objects, `type` first.

use std::{borrow::Cow, sync::Arc, time::Duration};

use muxtap_api::{DeviceInfo, DeviceType, Error, ErrorCode, RemoteControl, Result, RpcRequest};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json, value::RawValue};

use super::names;

/// The capabilities that a device must declare.
pub const CAPABILITIES: [&str; 3] = ["layoutOwnershipV1", "layoutRpcV1", "devicePresenceV1"];

/// The first message of a device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// The device's id.
    pub device_id: String,
    /// The device's label.
    pub device_label: String,
    /// The device's type.
    pub device_type: DeviceType,
    /// The device's token, if the connection itself brings none.
    #[serde(default)]
    pub token: Option<String>,
    /// The revision of the device's workspace.
    pub workspace_revision: u64,
    /// Whether other devices may change the workspace.
    #[serde(default)]
    pub remote_control: RemoteControl,
}

impl Hello {
    /// Parses the first message of a device.
    ///
    /// Errors: `UNSUPPORTED_CLIENT` names the missing capabilities; `INVALID_ARGUMENT`.
    pub fn parse(text: &str) -> Result<Self> {
        let message: Value =
            serde_json::from_str(text).map_err(|error| Error::invalid(format!("hello: invalid JSON: {error}")))?;
        if message.get("type").and_then(Value::as_str) != Some("hello") {
            return Err(Error::invalid("expected `hello` as the first message"));
        }
        let has = |name: &&str| message.get("capabilities").and_then(|all| all.get(name)) == Some(&json!(true));
        let missing: Vec<&str> = CAPABILITIES.iter().filter(|name| !has(name)).copied().collect();
        if !missing.is_empty() {
            return Err(Error::new(
                ErrorCode::UnsupportedClient,
                format!("this client is too old; missing capabilities: {}", missing.join(", ")),
            )
            .with_details(json!({ "missing": missing })));
        }
        let hello: Self = serde_json::from_value(message).map_err(|error| Error::invalid(format!("hello: {error}")))?;
        names::check(&hello.device_id, &hello.device_label)?;
        Ok(hello)
    }

    /// Writes the first message of a device with all required capabilities.
    pub fn message(&self) -> Value {
        json!({
            "type": "hello",
            "deviceId": self.device_id,
            "deviceLabel": self.device_label,
            "deviceType": self.device_type,
            "token": self.token,
            "workspaceRevision": self.workspace_revision,
            "remoteControl": self.remote_control,
            "capabilities": { "layoutOwnershipV1": true, "layoutRpcV1": true, "devicePresenceV1": true },
        })
    }
}

/// The type of a device's message, and the request that the message is about.
///
/// The rest is parsed once the type is known.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head<'a> {
    /// The message's type.
    #[serde(rename = "type", borrow, default)]
    pub kind: Option<Cow<'a, str>>,
    /// The request's id.
    #[serde(borrow, default)]
    pub request_id: Option<Cow<'a, str>>,
}

/// An owner's response, as the owner sends it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerResult {
    /// The request's id.
    pub request_id: String,
    /// Whether the request succeeded.
    pub ok: bool,
    /// The owner's result. It may be large: the relay forwards it unparsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Why the request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// The workspace's revision after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_revision: Option<u64>,
}

impl OwnerResult {
    /// Returns the error of a failed request.
    pub fn into_error(self) -> Error {
        let said = self.error.unwrap_or_default();
        let word = said.get("code").and_then(Value::as_str).unwrap_or("INTERNAL_ERROR");
        let code = serde_json::from_value(json!(word)).unwrap_or(ErrorCode::InternalError);
        let message = said.get("message").and_then(Value::as_str).unwrap_or("the owner gave no reason");
        let mut error = Error::new(code, message).at_stage("owner");
        error.details = said.get("details").filter(|details| !details.is_null()).cloned();
        if code.as_str() != word {
            error.details = Some(json!({ "code": word, "details": error.details }));
        }
        error
    }
}

/// Writes the response to `hello`.
pub fn welcome(ttl: Duration, heartbeat: Duration, devices: &[DeviceInfo]) -> Arc<str> {
    text(&json!({
        "type": "welcome",
        "serverVersion": env!("CARGO_PKG_VERSION"),
        "presenceTtlMs": ttl.as_millis() as u64,
        "heartbeatMs": heartbeat.as_millis() as u64,
        "devices": devices,
    }))
}

/// Writes a request for its owner, which responds with this id.
///
/// `caller_label`: what the calling device calls itself; `caller_program`: the caller, as the daemon
/// knows it.
pub fn request(request: &RpcRequest, id: &str, caller_label: &str, caller_program: &str) -> Arc<str> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Message<'a> {
        r#type: &'static str,
        request_id: &'a str,
        caller_device_id: &'a str,
        caller_label: &'a str,
        caller_program: &'a str,
        target_device_id: &'a str,
        command: &'a str,
        args: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        expected_revision: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    }
    written(&Message {
        r#type: "layout.rpc.request",
        request_id: id,
        caller_device_id: &request.caller_device_id,
        caller_label,
        caller_program,
        target_device_id: &request.target_device_id,
        command: &request.command,
        args: &request.args,
        expected_revision: request.expected_revision,
        idempotency_key: request.idempotency_key.as_deref(),
        timeout_ms: request.timeout_ms,
    })
}

/// Writes that the owner took a request, or that it is asking its person.
pub fn progress(kind: &str, request_id: &str) -> Arc<str> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Message<'a> {
        r#type: &'a str,
        request_id: &'a str,
    }
    written(&Message { r#type: kind, request_id })
}

/// Writes the response to a request, for the device that sent it.
pub fn answer(request_id: &str, answer: &Result<Answered>) -> Arc<str> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Done<'a> {
        r#type: &'static str,
        request_id: &'a str,
        ok: bool,
        result: Option<&'a RawValue>,
        applied_revision: Option<u64>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Failed<'a> {
        r#type: &'static str,
        request_id: &'a str,
        ok: bool,
        error: &'a Error,
    }
    let r#type = "layout.rpc.result";
    match answer {
        Ok(Answered { result, applied_revision }) => {
            let (result, applied_revision) = (result.as_deref(), *applied_revision);
            written(&Done { r#type, request_id, ok: true, result, applied_revision })
        }
        Err(error) => written(&Failed { r#type, request_id, ok: false, error }),
    }
}

/// An owner's successful response.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// The owner's result, unparsed.
    pub result: Option<Box<RawValue>>,
    /// The workspace's revision after the change.
    pub applied_revision: Option<u64>,
}

impl Answered {
    /// Returns the owner's result. Error: `INCONSISTENT_STATE` if it is not valid JSON.
    pub fn result(&self) -> Result<Value> {
        let read = self.result.as_deref().map(|result| serde_json::from_str(result.get())).transpose();
        read.map(Option::unwrap_or_default).map_err(|error| {
            Error::new(ErrorCode::InconsistentState, format!("the owner's result is not valid JSON: {error}"))
                .at_stage("owner")
        })
    }
}

/// Writes a device's presence, and the reason for the message.
pub fn presence(device: &DeviceInfo, reason: &str) -> Arc<str> {
    text(&json!({
        "type": "device.presence",
        "deviceId": device.device_id,
        "deviceLabel": device.device_label,
        "deviceType": device.device_type,
        "online": device.online,
        "lastSeenAt": device.last_seen_at,
        "workspaceRevision": device.workspace_revision,
        "reason": reason,
    }))
}

/// Writes an error.
pub fn error(error: &Error) -> Arc<str> {
    let mut message = serde_json::to_value(error).unwrap_or_default();
    if let Some(message) = message.as_object_mut() {
        message.insert("type".into(), "error".into());
    }
    text(&message)
}

/// Writes that a newer connection of the device has replaced this one.
pub fn replaced() -> Arc<str> {
    text(&json!({ "type": "replaced", "message": "a newer connection of this device has replaced this one" }))
}

/// Serializes a message, its type first.
pub fn text(message: &Value) -> Arc<str> {
    struct TypeFirst<'a>(&'a Map<String, Value>);
    impl Serialize for TypeFirst<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            let rest = self.0.iter().filter(|(name, _)| *name != "type");
            serializer.collect_map(self.0.get_key_value("type").into_iter().chain(rest))
        }
    }
    match message {
        Value::Object(fields) => written(&TypeFirst(fields)),
        other => written(other),
    }
}

fn written(message: &impl Serialize) -> Arc<str> {
    serde_json::to_string(message).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            device_id: "d".into(),
            device_label: "a laptop".into(),
            device_type: DeviceType::Browser,
            token: None,
            workspace_revision: 4,
            remote_control: RemoteControl::Always,
        }
    }

    #[test]
    fn a_hello_without_its_identity_or_capabilities_is_rejected() {
        assert_eq!(Hello::parse(&hello().message().to_string()).unwrap(), hello());
        let without = |change: &dyn Fn(&mut Value)| {
            let mut message = hello().message();
            change(&mut message);
            Hello::parse(&message.to_string()).unwrap_err()
        };
        let error = without(&|message| message["capabilities"]["layoutRpcV1"] = json!(false));
        assert_eq!(error.code, ErrorCode::UnsupportedClient);
        assert!(error.message.contains("layoutRpcV1") && !error.message.contains("layoutOwnershipV1"), "{error}");
        let error = without(&|message| drop(message.as_object_mut().unwrap().remove("capabilities")));
        assert!(CAPABILITIES.iter().all(|name| error.message.contains(name)), "{error}");
        for wrong in [json!("layoutRpcV1"), json!([true]), json!({"layoutRpcV1": "true"})] {
            assert_eq!(without(&|message| message["capabilities"] = wrong.clone()).code, ErrorCode::UnsupportedClient);
        }
        for (field, wrong) in [
            ("type", json!("layout.rpc.request")),
            ("deviceId", json!("")),
            ("deviceId", json!("a/b")),
            ("deviceId", json!("x".repeat(65))),
            ("deviceLabel", json!("a\u{1b}b")),
            ("deviceType", json!("phone")),
            ("workspaceRevision", json!(-1)),
            ("remoteControl", json!("sometimes")),
        ] {
            let error = without(&|message| message[field] = wrong.clone());
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{field} {wrong}");
        }
        assert!(Hello::parse("hello").is_err() && Hello::parse("[]").is_err());
    }

    #[test]
    fn an_owners_error_is_passed_on_and_an_unknown_one_is_told() {
        let of = |error: Value| {
            let result = json!({"requestId": "r", "ok": false, "error": error});
            serde_json::from_value::<OwnerResult>(result).unwrap().into_error()
        };
        let conflict = of(json!({"code": "REVISION_CONFLICT", "message": "m", "details": {"currentRevision": 4}}));
        assert_eq!((conflict.code, conflict.message.as_str()), (ErrorCode::RevisionConflict, "m"));
        assert_eq!(conflict.details, Some(json!({"currentRevision": 4})));
        assert_eq!(conflict.stage.as_deref(), Some("owner"));
        assert_eq!(of(json!({"code": "ODD", "message": "m"})).details.unwrap()["code"], "ODD");
        assert_eq!(of(json!("no")).code, ErrorCode::InternalError);
    }
}
