use std::{path::Path, sync::Arc, time::Duration};

use muxtap_api::{ErrorCode, RpcRequest, RpcResponse, WorkspaceSource};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;

use crate::{
    audit::Audit,
    outbox::{OUTBOX, Outgoing},
    wire::Hello,
};

/// Creates a relay that keeps its files in this folder.
fn relay_in(dir: &Path) -> Relay {
    Relay::new(Some(dir.join("snapshots")), Audit::new(None, Some(dir.join("audit.jsonl"))), Times::default())
}

fn caller(principal: &str) -> Caller {
    Caller {
        principal: principal.into(),
        device: None,
        remote_control: true,
        label: "a program".into(),
        program: "a test".into(),
        family: None,
        token_ends: None,
        read_only: false,
    }
}

fn hello(device: &str, remote_control: RemoteControl) -> Hello {
    Hello {
        device_id: device.into(),
        device_label: format!("label of {device}"),
        device_type: DeviceType::Browser,
        token: None,
        workspace_revision: 1,
        remote_control,
    }
}

/// Connects a device, and reads its welcome.
async fn connected(relay: &Relay, device: &str) -> Session {
    let session = relay.connect(&caller("user"), &hello(device, RemoteControl::Ask)).unwrap();
    assert_eq!(next(&session).await["type"], "welcome");
    session
}

/// Returns the next message to a device.
async fn next(session: &Session) -> Value {
    match session.outbox().next().await {
        Outgoing::Message(text) => {
            assert!(text.starts_with(r#"{"type":""#), "{text}");
            serde_json::from_str(&text).unwrap()
        }
        Outgoing::End => json!("end"),
    }
}

/// Returns the next message of this type.
async fn next_of(session: &Session, kind: &str) -> Value {
    loop {
        let message = next(session).await;
        if message == "end" || message["type"] == kind {
            return message;
        }
    }
}

async fn says(session: &mut Session, message: Value) -> Flow {
    session.receive(&message.to_string()).await
}

fn request(id: &str, from: &str, to: &str) -> RpcRequest {
    RpcRequest {
        request_id: id.into(),
        caller_device_id: from.into(),
        target_device_id: to.into(),
        command: "rename-tab".into(),
        args: json!({"target": "tab:t1", "title": "x"}),
        expected_revision: Some(1),
        ..RpcRequest::default()
    }
}

/// Returns the id by which an owner knows the next request.
async fn id_of(owner: &Session) -> Value {
    next_of(owner, "layout.rpc.request").await["requestId"].clone()
}

/// Sends a request in a task of its own.
fn asks(relay: &Relay, request: RpcRequest) -> tokio::task::JoinHandle<Result<RpcResponse>> {
    let relay = relay.clone();
    tokio::spawn(async move { relay.request(&caller("user"), request).await })
}

fn stage(answer: &Result<RpcResponse>) -> (ErrorCode, String) {
    let error = answer.as_ref().unwrap_err();
    (error.code, error.stage.clone().unwrap_or_default())
}

/// Returns the lines of the audit log, once it has no writer any more.
fn audited(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("audit.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn entity(id: &str, owner: &str) -> Value {
    json!({"id": id, "ownerDeviceId": owner})
}

fn snapshot(device: &str, revision: u64, captured: u64) -> Value {
    json!({
        "type": "layout.snapshot.updated", "deviceId": device, "workspaceRevision": revision, "capturedAt": captured,
        "tabs": [entity("t1", device)], "panes": [entity("p2", device)],
    })
}

#[tokio::test(start_paused = true)]
async fn who_is_connected_is_told_to_all_of_the_same_principal() {
    let relay = Relay::default();
    let one = connected(&relay, "one").await;
    let stranger = relay.connect(&caller("uid 0"), &hello("other", RemoteControl::Ask)).unwrap();
    let welcome = next(&stranger).await;
    assert_eq!((&welcome["presenceTtlMs"], &welcome["heartbeatMs"]), (&json!(15_000), &json!(5_000)));
    assert_eq!(welcome["devices"].as_array().unwrap().len(), 1);
    let two = connected(&relay, "two").await;
    let told = next(&one).await;
    assert_eq!(told["type"], "device.presence");
    assert_eq!(
        (&told["deviceId"], &told["online"], &told["reason"]),
        (&"two".into(), &true.into(), &"connected".into())
    );
    let ids: Vec<_> = relay.list(&caller("user")).devices.into_iter().map(|device| device.device_id).collect();
    assert_eq!(ids, ["one", "two"]);
    drop(two);
    let told = next(&one).await;
    assert_eq!((&told["online"], &told["reason"]), (&false.into(), &"closed".into()));
    assert!(!relay.get(&caller("user"), "two").unwrap().online);
    assert_eq!(relay.get(&caller("user"), "other").unwrap_err().code, ErrorCode::NotFound);
    assert!(stranger.outbox().push("nothing before this".into()));
    assert_eq!(stranger.outbox().next().await, Outgoing::Message("nothing before this".into()));
}

#[tokio::test(start_paused = true)]
async fn a_device_is_online_while_its_messages_arrive() {
    let relay = Relay::default();
    let other = connected(&relay, "other").await;
    let mut session = connected(&relay, "d").await;
    next(&other).await;
    let beat = async |session: &mut Session| {
        tokio::time::sleep_until(session.next_beat()).await;
        session.beat()
    };
    // Connecting counts as a message; the device is pinged while it is silent.
    let begun = Instant::now();
    assert_eq!((beat(&mut session).await, begun.elapsed()), (Beat::Ping, Duration::from_secs(5)));
    assert_eq!(session.beat(), Beat::Quiet, "not again at once");
    session.heard();
    tokio::time::advance(Duration::from_secs(3)).await;
    session.heard();
    assert_eq!(beat(&mut session).await, Beat::Quiet, "it was heard");
    assert_eq!((beat(&mut session).await, beat(&mut session).await), (Beat::Ping, Beat::Ping));
    // 15 s after its last message, not at the next regular check.
    assert_eq!((beat(&mut session).await, begun.elapsed()), (Beat::End, Duration::from_secs(23)));
    drop(session);
    assert_eq!(next(&other).await["reason"], "silent");
}

#[tokio::test(start_paused = true)]
async fn a_devices_newer_connection_replaces_the_older_one() {
    let relay = Relay::default();
    let older = connected(&relay, "d").await;
    let waiting = asks(&relay, request("r1", "caller", "d"));
    next_of(&older, "layout.rpc.request").await;
    let newer = connected(&relay, "d").await;
    assert_eq!(next(&older).await["type"], "replaced");
    assert_eq!(next(&older).await, "end");
    // The older connection's requests are not repeated.
    assert_eq!(stage(&waiting.await.unwrap()), (ErrorCode::RpcTimeout, "relay".into()));
    drop(older);
    assert!(relay.get(&caller("user"), "d").unwrap().online);
    assert!(newer.outbox().push("nothing before this".into()));
    assert_eq!(newer.outbox().next().await, Outgoing::Message("nothing before this".into()));
}

#[tokio::test(start_paused = true)]
async fn a_request_reaches_its_owner_once_and_its_response_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let (mut owner, mut asking) = (connected(&relay, "owner").await, connected(&relay, "asking").await);
    let asked = json!({
        "type": "layout.rpc.request", "requestId": "r1", "callerDeviceId": "asking", "targetDeviceId": "owner",
        "command": "split-pane", "args": {"target": "pane:p2", "direction": "vertical"}, "expectedRevision": 42,
        "idempotencyKey": "k",
    });
    assert_eq!(says(&mut asking, asked.clone()).await, Flow::Continue);
    let got = next_of(&owner, "layout.rpc.request").await;
    assert_eq!(got["callerLabel"], "label of asking");
    for field in ["callerDeviceId", "targetDeviceId", "command", "args", "expectedRevision"] {
        assert_eq!(got[field], asked[field], "{field}");
    }
    let id = &got["requestId"];
    says(&mut owner, json!({"type": "layout.rpc.ack", "requestId": id})).await;
    assert_eq!(next_of(&asking, "layout.rpc.ack").await["requestId"], "r1");
    let result = json!({"type": "layout.rpc.result", "requestId": id, "ok": true, "result": {"pane": {"id": "p3"}},
                        "appliedRevision": 43});
    says(&mut owner, result.clone()).await;
    let answer = next_of(&asking, "layout.rpc.result").await;
    assert_eq!(
        (&answer["requestId"], &answer["ok"], &answer["appliedRevision"], &answer["result"]["pane"]["id"]),
        (&"r1".into(), &true.into(), &43.into(), &"p3".into())
    );
    // The request has its result: further messages of the owner go nowhere.
    says(&mut owner, result).await;
    // The owner's refusal reaches the caller.
    let refused = asks(&relay, request("r2", "asking", "owner"));
    let id = id_of(&owner).await;
    let error = json!({"code": "REVISION_CONFLICT", "message": "m", "details": {"currentRevision": 43}});
    says(&mut owner, json!({"type": "layout.rpc.result", "requestId": id, "ok": false, "error": error})).await;
    let error = refused.await.unwrap().unwrap_err();
    assert_eq!((error.code, error.details), (ErrorCode::RevisionConflict, Some(json!({"currentRevision": 43}))));
    drop((owner, asking, relay));
    let lines = audited(dir.path());
    let endings: Vec<_> = lines.iter().map(|line| (&line["requestId"], &line["result"], &line["errorCode"])).collect();
    assert_eq!(
        endings,
        [(&json!("r1"), &json!("ok"), &Value::Null), (&json!("r2"), &json!("error"), &json!("REVISION_CONFLICT"))]
    );
    let fields: Vec<_> = lines[1].as_object().unwrap().keys().cloned().collect();
    let mut wanted =
        ["requestId", "callerDeviceId", "targetDeviceId", "command", "result", "errorCode", "stage", "timestamp"];
    wanted.sort_unstable();
    assert_eq!(fields, wanted);
}

/// A caller learns that repeating its request would ask the person again.
#[tokio::test(start_paused = true)]
async fn a_refusal_after_the_person_was_asked_says_so() {
    let relay = Relay::default();
    let ack = |id: &Value| json!({"type": "layout.rpc.ack", "requestId": id});
    let mut owner = connected(&relay, "d").await;
    for (waits, asked) in [(false, Value::Null), (true, json!(true))] {
        let refused = asks(&relay, request("refused", "c", "d"));
        let id = id_of(&owner).await;
        says(&mut owner, ack(&id)).await;
        if waits {
            says(&mut owner, json!({"type": "layout.rpc.waiting", "requestId": id})).await;
        }
        let error = json!({"code": "REVISION_CONFLICT", "message": "m", "details": {"currentRevision": 3}});
        says(&mut owner, json!({"type": "layout.rpc.result", "requestId": id, "ok": false, "error": error})).await;
        let error = refused.await.unwrap().unwrap_err();
        let details = error.details.unwrap_or_default();
        assert_eq!((&details["currentRevision"], &details[PERSON_ASKED]), (&json!(3), &asked));
    }
}

#[tokio::test(start_paused = true)]
async fn every_missing_response_is_reported_with_its_stage_and_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let ack = |id: &Value| json!({"type": "layout.rpc.ack", "requestId": id});
    let took = async |handle: tokio::task::JoinHandle<Result<RpcResponse>>| {
        let begun = Instant::now();
        let answer = handle.await.unwrap();
        (stage(&answer), begun.elapsed().as_secs())
    };
    let relay_stage = || (ErrorCode::RpcTimeout, "relay".to_owned());
    let owner_stage = || (ErrorCode::OwnerTimeout, "owner".to_owned());
    let mut owner = connected(&relay, "d").await;

    let silent = asks(&relay, request("silent", "c", "d"));
    next_of(&owner, "layout.rpc.request").await;
    assert_eq!(took(silent).await, (relay_stage(), 2));

    let hangs = asks(&relay, request("hangs", "c", "d"));
    let hanging = id_of(&owner).await;
    says(&mut owner, ack(&hanging)).await;
    assert_eq!(took(hangs).await, (owner_stage(), 10));

    let short = asks(&relay, RpcRequest { timeout_ms: Some(3000), ..request("short", "c", "d") });
    let id = id_of(&owner).await;
    says(&mut owner, ack(&id)).await;
    assert_eq!(took(short).await, (owner_stage(), 3));

    let asks_person = asks(&relay, request("asks", "c", "d"));
    let id = id_of(&owner).await;
    says(&mut owner, ack(&id)).await;
    says(&mut owner, json!({"type": "layout.rpc.waiting", "requestId": id})).await;
    assert_eq!(took(asks_person).await, (owner_stage(), 35));

    // A result that comes later is dropped and recorded; a result without a request is dropped.
    for id in [hanging.clone(), hanging, "nobody".into()] {
        says(&mut owner, json!({"type": "layout.rpc.result", "requestId": id, "ok": true})).await;
    }

    let after_ack = asks(&relay, request("gone", "c", "d"));
    let id = id_of(&owner).await;
    says(&mut owner, ack(&id)).await;
    drop(owner);
    assert_eq!(took(after_ack).await, (owner_stage(), 0));

    let owner = connected(&relay, "d").await;
    let before_ack = asks(&relay, request("left", "c", "d"));
    next_of(&owner, "layout.rpc.request").await;
    drop(owner);
    assert_eq!(took(before_ack).await, (relay_stage(), 0));

    let (offline, at_once) = took(asks(&relay, request("off", "c", "d"))).await;
    assert_eq!((offline, at_once), ((ErrorCode::DeviceOffline, "relay".into()), 0));
    // The request was not stored until the owner came back.
    let owner = connected(&relay, "d").await;
    assert!(owner.outbox().push("nothing before this".into()));
    assert_eq!(owner.outbox().next().await, Outgoing::Message("nothing before this".into()));
    let (unknown, _) = took(asks(&relay, request("unknown", "c", "nobody"))).await;
    assert_eq!(unknown.0, ErrorCode::NotFound);

    // A caller that leaves.
    let left = asks(&relay, request("abandoned", "c", "d"));
    next_of(&owner, "layout.rpc.request").await;
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    drop((owner, relay));
    let lines = audited(dir.path());
    let words = |line: &Value| {
        let word = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {} {}", word("requestId"), word("result"), word("errorCode"), word("stage"))
    };
    assert_eq!(
        lines.iter().map(words).collect::<Vec<_>>(),
        [
            "silent error RPC_TIMEOUT relay",
            "hangs error OWNER_TIMEOUT owner",
            "short error OWNER_TIMEOUT owner",
            "asks error OWNER_TIMEOUT owner",
            "hangs late - owner",
            "gone error OWNER_TIMEOUT owner",
            "left error RPC_TIMEOUT relay",
            "off error DEVICE_OFFLINE relay",
            "unknown error NOT_FOUND relay",
            "abandoned abandoned - relay",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_unauthorized_caller_is_rejected_and_its_request_reaches_no_device() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let owner = connected(&relay, "owner").await;
    let never = relay.connect(&caller("user"), &hello("never", RemoteControl::Never)).unwrap();
    next(&never).await;
    let refused = async |caller: &Caller, request: RpcRequest| {
        let answer = relay.request(caller, request).await;
        stage(&answer)
    };
    let unauthorized = (ErrorCode::Unauthorized, "relay".to_owned());
    assert_eq!(refused(&caller("uid 0"), request("r", "c", "owner")).await, unauthorized);
    let without = Caller { remote_control: false, ..caller("user") };
    assert_eq!(refused(&without, request("r", "c", "owner")).await, unauthorized);
    assert_eq!(refused(&caller("user"), request("r", "c", "never")).await, unauthorized);
    let bound = Caller { device: Some("c".into()), ..caller("user") };
    assert_eq!(refused(&bound, request("r", "owner2", "owner")).await, unauthorized);
    let invalid = (ErrorCode::InvalidArgument, "relay".to_owned());
    assert_eq!(refused(&caller("user"), request("r", "owner", "owner")).await, invalid);
    let without_revision = RpcRequest { expected_revision: None, ..request("r", "c", "owner") };
    assert_eq!(refused(&caller("user"), without_revision).await, invalid);
    let without_key = RpcRequest { command: "split-pane".into(), ..request("r", "c", "owner") };
    assert_eq!(refused(&caller("user"), without_key).await, invalid);
    let large = RpcRequest { args: json!({"title": "x".repeat(ARGS_BYTES)}), ..request("r", "c", "owner") };
    assert_eq!(refused(&caller("user"), large).await.0, ErrorCode::ResourceLimit);
    for wrong in ["", "a/b"] {
        assert_eq!(refused(&caller("user"), request("r", wrong, "owner")).await, invalid);
    }
    // A device with the id of another device, or of another principal's.
    let claims = |caller: &Caller, id: &str| relay.connect(caller, &hello(id, RemoteControl::Ask)).unwrap_err().code;
    assert_eq!(claims(&bound, "owner"), ErrorCode::Unauthorized);
    assert_eq!(claims(&caller("uid 0"), "owner"), ErrorCode::Unauthorized);
    for session in [&owner, &never] {
        assert!(session.outbox().push("nothing before this".into()));
        assert!(matches!(next_text(session).await.as_str(), "nothing before this"));
    }
    drop((owner, never, relay));
    // All requests with valid ids are in the log.
    assert_eq!(audited(dir.path()).len(), 8);
}

/// Returns the next message to a device except presence, as text.
async fn next_text(session: &Session) -> String {
    loop {
        match session.outbox().next().await {
            Outgoing::Message(text) if text.contains("device.presence") => {}
            Outgoing::Message(text) => return text.to_string(),
            Outgoing::End => return "end".into(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_counts_only_from_the_connection_that_got_the_request() {
    let relay = Relay::default();
    let (mut owner, mut thief) = (connected(&relay, "owner").await, connected(&relay, "thief").await);
    let waiting = asks(&relay, request("r", "c", "owner"));
    let id = id_of(&owner).await;
    let result = |word: &str| json!({"type": "layout.rpc.result", "requestId": id, "ok": true, "result": {"by": word}});
    says(&mut thief, result("thief")).await;
    says(&mut thief, json!({"type": "layout.rpc.ack", "requestId": id})).await;
    says(&mut owner, result("owner")).await;
    assert_eq!(waiting.await.unwrap().unwrap().result["by"], "owner");
}

/// Callers choose their ids, and two may choose the same one: neither gets the other's response.
#[tokio::test(start_paused = true)]
async fn two_callers_requests_with_the_same_id_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let mut owner = connected(&relay, "owner").await;
    let result =
        |id: &Value, by: &str| json!({"type": "layout.rpc.result", "requestId": id, "ok": true, "result": {"by": by}});
    // The first request times out; its response comes while another caller's request with that id
    // is pending.
    let first = asks(&relay, request("req_1", "a", "owner"));
    let late = id_of(&owner).await;
    assert_eq!(stage(&first.await.unwrap()).0, ErrorCode::RpcTimeout);
    let second = asks(&relay, request("req_1", "b", "owner"));
    let id = id_of(&owner).await;
    says(&mut owner, result(&late, "a")).await;
    assert!(!second.is_finished());
    says(&mut owner, result(&id, "b")).await;
    let answer = second.await.unwrap().unwrap();
    assert_eq!((answer.request_id.as_str(), &answer.result["by"]), ("req_1", &json!("b")));
    // Two concurrent requests, and the same one of one caller twice.
    let both = ["a", "b"].map(|caller| asks(&relay, request("req_2", caller, "owner")));
    let asked = [next_of(&owner, "layout.rpc.request").await, next_of(&owner, "layout.rpc.request").await];
    let twice = relay.request(&caller("user"), request("req_2", "a", "owner")).await;
    assert_eq!(stage(&twice), (ErrorCode::Conflict, "relay".into()));
    for one in &asked {
        says(&mut owner, result(&one["requestId"], one["callerDeviceId"].as_str().unwrap())).await;
    }
    for (caller, asking) in ["a", "b"].into_iter().zip(both) {
        assert_eq!(asking.await.unwrap().unwrap().result["by"], caller);
    }
    drop((owner, relay));
    let words: Vec<_> = audited(dir.path())
        .iter()
        .map(|line| {
            ["requestId", "callerDeviceId", "result"].map(|name| line[name].as_str().unwrap().to_owned()).join(" ")
        })
        .collect();
    assert_eq!(words[..3], ["req_1 a error", "req_1 a late", "req_1 b ok"]);
    assert!(words[3..].contains(&"req_2 b ok".to_owned()) && words.len() == 6, "{words:?}");
}

/// One device of a principal with many: its hellos are refused, and the others are notified once.
#[tokio::test(start_paused = true)]
async fn a_device_that_reconnects_too_often_is_refused_for_a_while() {
    let relay = Relay::default();
    let mut sessions = Vec::new();
    for number in 0..100 {
        sessions.push(relay.connect(&caller("user"), &hello(&format!("d{number}"), RemoteControl::Ask)).unwrap());
    }
    let other = connected(&relay, "other").await;
    let flood: Vec<_> = (0..100).map(|_| relay.connect(&caller("user"), &hello("flood", RemoteControl::Ask))).collect();
    let taken = flood.iter().filter(|one| one.is_ok()).count();
    assert_eq!(taken, CONNECTS as usize);
    let error = flood.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.code, ErrorCode::ResourceLimit);
    // The newest connection is live, and others were notified once.
    assert!(relay.get(&caller("user"), "flood").unwrap().online);
    assert_eq!(next(&other).await["deviceId"], "flood");
    assert!(other.outbox().push("nothing before this".into()));
    assert_eq!(other.outbox().next().await, Outgoing::Message("nothing before this".into()));
    drop(flood);
    tokio::time::advance(CONNECTS_TIME).await;
    let again = connected(&relay, "flood").await;
    assert!(again.outbox().push("x".into()));
}

#[tokio::test(start_paused = true)]
async fn a_stale_read_returns_the_snapshot_if_the_owner_does_not_respond() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let mut owner = connected(&relay, "d").await;
    says(&mut owner, snapshot("d", 7, 100)).await;
    let reads = |allow_stale: bool| {
        let relay = relay.clone();
        tokio::spawn(async move { relay.workspace(&caller("user"), "c", "d", allow_stale).await })
    };
    // The owner is connected and silent.
    let (stale, live) = (reads(true), reads(false));
    id_of(&owner).await;
    id_of(&owner).await;
    let stale = stale.await.unwrap().unwrap();
    assert_eq!((stale.source, stale.workspace_revision, stale.owner_online), (WorkspaceSource::Cache, 7, true));
    assert_eq!(live.await.unwrap().unwrap_err().code, ErrorCode::RpcTimeout);
    // The owner disconnects before it has taken the request.
    let (stale, live) = (reads(true), reads(false));
    id_of(&owner).await;
    id_of(&owner).await;
    drop(owner);
    let stale = stale.await.unwrap().unwrap();
    assert_eq!((stale.source, stale.workspace_revision, stale.owner_online), (WorkspaceSource::Cache, 7, false));
    assert_eq!(live.await.unwrap().unwrap_err().code, ErrorCode::RpcTimeout);
    // Once the owner has taken the request, only it may answer: it may have changed its state.
    let mut owner = connected(&relay, "d").await;
    let stale = reads(true);
    let id = id_of(&owner).await;
    says(&mut owner, json!({"type": "layout.rpc.ack", "requestId": id})).await;
    assert_eq!(stale.await.unwrap().unwrap_err().code, ErrorCode::OwnerTimeout);
}

/// A device that publishes while its snapshot is being forgotten keeps the snapshot.
#[tokio::test]
async fn a_snapshot_published_while_the_last_one_is_being_deleted_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let publisher = || Some(publish::Publisher { label: "a shell".into(), kind: DeviceType::Cli });
    relay.publish(&caller("user"), "d", publisher(), snapshot("d", 1, 1), 100).await.unwrap();
    relay.state().devices.get_mut("d").unwrap().kept = None;
    relay.publish(&caller("user"), "d", publisher(), snapshot("d", 2, 2), 100).await.unwrap();
    // The file is removed late.
    relay.forget(Some("d".into()));
    assert_eq!(relay.workspace(&caller("user"), "c", "d", true).await.unwrap().workspace_revision, 2);
    relay.state().devices.get_mut("d").unwrap().kept = None;
    relay.forget(Some("d".into()));
    assert_eq!(std::fs::read_dir(dir.path().join("snapshots")).unwrap().count(), 0);
}

#[tokio::test]
async fn the_last_snapshot_is_kept_and_read_where_that_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let mut owner = connected(&relay, "d").await;
    let refused = async |owner: &mut Session, message: Value| {
        assert_eq!(says(owner, message).await, Flow::Continue);
        let error = next_of(owner, "error").await;
        error["code"].as_str().unwrap().to_owned()
    };
    // From a client older than owners, of another device, too large, and not a snapshot.
    let mut unowned = snapshot("d", 1, 1);
    unowned["tabs"][0].as_object_mut().unwrap().remove("ownerDeviceId");
    assert_eq!(refused(&mut owner, unowned).await, "INVALID_ARGUMENT");
    let mut foreign = snapshot("d", 1, 1);
    foreign["panes"][0]["ownerDeviceId"] = "other".into();
    assert_eq!(refused(&mut owner, foreign).await, "INVALID_ARGUMENT");
    assert_eq!(refused(&mut owner, snapshot("other", 1, 1)).await, "UNAUTHORIZED");
    let mut large = snapshot("d", 1, 1);
    large["tabs"][0]["title"] = "x".repeat(1 << 20).into();
    assert_eq!(refused(&mut owner, large).await, "RESOURCE_LIMIT");
    for field in ["workspaceRevision", "capturedAt", "tabs"] {
        let mut partial = snapshot("d", 1, 1);
        partial.as_object_mut().unwrap().remove(field);
        assert_eq!(refused(&mut owner, partial).await, "INVALID_ARGUMENT", "{field}");
    }
    says(&mut owner, snapshot("d", 7, 100)).await;
    assert_eq!(relay.get(&caller("user"), "d").unwrap().workspace_revision, 7);
    // While its owner is connected, the owner is queried.
    let reading = {
        let relay = relay.clone();
        tokio::spawn(async move { relay.workspace(&caller("user"), "c", "d", true).await })
    };
    let asked = next_of(&owner, "layout.rpc.request").await;
    assert_eq!(asked["command"], "get-workspace");
    let live = json!({"type": "layout.rpc.result", "requestId": asked["requestId"], "ok": true,
                      "result": snapshot("d", 8, 200)});
    says(&mut owner, live).await;
    let live = reading.await.unwrap().unwrap();
    assert_eq!((live.source, live.workspace_revision, live.captured_at), (WorkspaceSource::Live, 8, 200));
    drop(owner);
    let refused = relay.workspace(&caller("user"), "c", "d", false).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::DeviceOffline);
    // Another daemon knows the snapshot too.
    let again = Relay::new(Some(dir.path().join("snapshots")), Audit::default(), Times::default());
    for relay in [relay.clone(), again] {
        let stale = relay.workspace(&caller("user"), "c", "d", true).await.unwrap();
        assert_eq!((stale.source, stale.workspace_revision, stale.captured_at), (WorkspaceSource::Cache, 7, 100));
        assert!(!stale.owner_online && stale.owner_last_seen_at > 0);
        assert_eq!(stale.tabs, [entity("t1", "d")]);
        assert_eq!(relay.workspace(&caller("uid 0"), "c", "d", true).await.unwrap_err().code, ErrorCode::NotFound);
    }
}

#[tokio::test]
async fn an_offline_device_can_publish_and_kept_snapshots_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let publisher = || Some(publish::Publisher { label: "a shell".into(), kind: DeviceType::Cli });
    let count = crate::cache::SNAPSHOTS + 2;
    for number in 0..count {
        let id = format!("d{number}");
        relay.publish(&caller("user"), &id, publisher(), snapshot(&id, 1, 1), 100).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.path().join("snapshots")).unwrap().count(), count - 2);
    let stranger = relay.publish(&caller("uid 0"), "d9", publisher(), snapshot("d9", 1, 1), 100).await.unwrap_err();
    assert_eq!(stranger.code, ErrorCode::Unauthorized);
    let bound = Caller { device: Some("d8".into()), ..caller("user") };
    let other = relay.publish(&bound, "d9", publisher(), snapshot("d9", 1, 1), 100).await.unwrap_err();
    assert_eq!(other.code, ErrorCode::Unauthorized);
    relay.publish(&caller("user"), "d9", publisher(), snapshot("d9", 5, 5), 100).await.unwrap();
    let older = relay.publish(&caller("user"), "d9", publisher(), snapshot("d9", 4, 4), 100).await.unwrap_err();
    assert_eq!(older.code, ErrorCode::Conflict);
    assert_eq!(relay.workspace(&caller("user"), "c", "d9", true).await.unwrap().workspace_revision, 5);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_breaks_the_rules_is_told_or_ends() {
    let relay = Relay::default();
    let mut odd = connected(&relay, "odd").await;
    for (message, code) in [
        (json!({"type": "no"}), "INVALID_ARGUMENT"),
        (json!([]), "INVALID_ARGUMENT"),
        (json!({"type": "sdk.create", "requestId": "s"}), "UNSUPPORTED"),
        (json!({"type": "codingcli.input"}), "UNSUPPORTED"),
        (json!({"type": "layout.rpc.request"}), "INVALID_ARGUMENT"),
        (json!({"type": "layout.rpc.result"}), "INVALID_ARGUMENT"),
    ] {
        assert_eq!(says(&mut odd, message.clone()).await, Flow::Continue);
        let said = next(&odd).await;
        let error = if said["type"] == "error" { &said } else { &said["error"] };
        assert_eq!(error["code"], code, "{message}: {said}");
    }
    assert_eq!(says(&mut odd, hello("odd", RemoteControl::Ask).message()).await, Flow::End);
    assert_eq!((next(&odd).await["code"].as_str(), next(&odd).await), (Some("INVALID_ARGUMENT"), json!("end")));
    let mut noise = connected(&relay, "noise").await;
    assert_eq!(noise.receive("\u{0}").await, Flow::End);
    // A connection that reads nothing ends; a request to it then fails at once.
    let deaf = connected(&relay, "deaf").await;
    for _ in 0..OUTBOX {
        assert!(deaf.outbox().push("x".into()));
    }
    let answer = relay.request(&caller("user"), request("r", "c", "deaf")).await;
    assert_eq!(stage(&answer).0, ErrorCode::DeviceOffline);
    assert_eq!((next(&deaf).await["code"].as_str(), next(&deaf).await), (Some("RESOURCE_LIMIT"), json!("end")));
}

#[tokio::test(start_paused = true)]
async fn floods_of_hellos_and_of_requests_are_bounded() {
    let relay = Relay::default();
    let mut sessions = Vec::new();
    for number in 0..DEVICES {
        let hello = hello(&format!("d{number}"), RemoteControl::Ask);
        // Each has a principal of its own: without others to notify, connecting is fast.
        sessions.push(relay.connect(&caller(&format!("p{number}")), &hello).unwrap());
    }
    let one_more = relay.connect(&caller("user"), &hello("more", RemoteControl::Ask)).unwrap_err();
    assert_eq!(one_more.code, ErrorCode::ResourceLimit);
    // A disconnected device is replaced.
    sessions.pop();
    let owner = relay.connect(&caller("user"), &hello("more", RemoteControl::Ask)).unwrap();
    assert_eq!(relay.state().devices.len(), DEVICES);
    next(&owner).await;
    let waiting: Vec<_> =
        (0..PENDING).map(|number| asks(&relay, request(&format!("r{number}"), "c", "more"))).collect();
    for _ in 0..PENDING {
        next_of(&owner, "layout.rpc.request").await;
    }
    let answer = relay.request(&caller("user"), request("r", "c", "more")).await;
    assert_eq!(stage(&answer).0, ErrorCode::ResourceLimit);
    drop(owner);
    for one in waiting {
        assert_eq!(stage(&one.await.unwrap()).0, ErrorCode::RpcTimeout);
    }
    assert!(relay.state().devices["more"].online.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_callers_requests_end_with_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let (owner, mut asking) = (connected(&relay, "owner").await, connected(&relay, "asking").await);
    let message = serde_json::to_value(request("r", "asking", "owner")).unwrap();
    let mut message = message.as_object().unwrap().clone();
    message.insert("type".into(), "layout.rpc.request".into());
    says(&mut asking, message.into()).await;
    next_of(&owner, "layout.rpc.request").await;
    drop(asking);
    while !relay.state().devices["owner"].online.as_ref().unwrap().pending.is_empty() {
        tokio::task::yield_now().await;
    }
    drop((owner, relay));
    assert_eq!(audited(dir.path())[0]["result"], "abandoned");
}

#[tokio::test]
async fn a_connection_ends_with_the_token_that_opened_it() {
    let relay = Relay::default();
    let with_token = |ends: u64| Caller { family: Some("f".into()), token_ends: Some(ends), ..caller("user") };
    let mut lasting = relay.connect(&with_token(u64::MAX), &hello("d", RemoteControl::Ask)).unwrap();
    next(&lasting).await;
    assert_eq!(lasting.beat(), Beat::Quiet);
    let now = muxtap_base::clock::now_ms();
    let mut ended = relay.connect(&with_token(now), &hello("e", RemoteControl::Ask)).unwrap();
    next(&ended).await;
    assert!(ended.next_beat() <= Instant::now());
    assert_eq!(ended.beat(), Beat::Quiet);
    let told = next(&ended).await;
    assert!(told["code"] == "UNAUTHORIZED" && told["message"].as_str().unwrap().contains("refresh"), "{told}");
    assert_eq!(next(&ended).await, "end");
    assert!(lasting.outbox().push("goes on".into()));
}

#[tokio::test]
async fn a_read_only_caller_can_neither_publish_nor_request_changes() {
    let dir = tempfile::tempdir().unwrap();
    let relay = relay_in(dir.path());
    let reader = Caller { read_only: true, ..caller("user") };
    let mut session = relay.connect(&reader, &hello("d", RemoteControl::Ask)).unwrap();
    next(&session).await;
    says(&mut session, snapshot("d", 2, 2)).await;
    assert_eq!(next(&session).await["code"], "READ_ONLY");
    assert_eq!(relay.get(&caller("user"), "d").unwrap().workspace_revision, 1);
    assert!(!dir.path().join("snapshots").exists());
    let refused = relay.request(&reader, request("r", "d", "e")).await;
    assert_eq!(refused.unwrap_err().code, ErrorCode::NotFound);
    let other = connected(&relay, "e").await;
    let refused = relay.request(&reader, request("r", "d", "e")).await;
    assert_eq!(stage(&refused), (ErrorCode::Unauthorized, "relay".into()));
    assert!(other.outbox().push("nothing before this".into()));
}

#[tokio::test]
async fn a_session_that_has_ended_ends_the_connections_of_its_token() {
    let relay = Relay::default();
    let bound = Caller { family: Some("f".into()), device: Some("d".into()), ..caller("user") };
    let session = relay.connect(&bound, &hello("d", RemoteControl::Ask)).unwrap();
    next(&session).await;
    let other = connected(&relay, "e").await;
    relay.end_family("f");
    assert_eq!((next(&session).await["code"].as_str(), next(&session).await), (Some("UNAUTHORIZED"), json!("end")));
    assert!(other.outbox().push("goes on".into()));
    let _: Arc<Outbox> = other.outbox().clone();
}
