//! Owners: their messages while they are slow to read, and the times of their snapshots.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::{freshell, page};
use crate::common::{Background, World, eventually};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Messages of a device are received even if it reads none of those that wait for it.
#[test]
fn messages_of_a_device_that_reads_slowly_are_received() {
    let world = World::with_server();
    let (mut slow, mut other) = (page(&world, "slow"), page(&world, "other"));
    // More than the socket holds.
    let large = "x".repeat(60_000);
    for number in 0..24 {
        other.say(&json!({"type": "layout.rpc.request", "requestId": format!("r{number}"), "callerDeviceId": "other",
                          "targetDeviceId": "slow", "command": "reserve", "expectedRevision": 1,
                          "idempotencyKey": "k", "args": {"shell": large}}));
    }
    for _ in 0..24 {
        assert_eq!(other.next_of("layout.rpc.result")["error"]["code"], "RPC_TIMEOUT");
    }
    // The device sends a request before it has read anything.
    slow.say(&json!({"type": "layout.rpc.request", "requestId": "mine", "callerDeviceId": "slow",
                     "targetDeviceId": "other", "command": "select-tab", "expectedRevision": 1,
                     "args": {"target": "tab:t1"}}));
    let request = loop {
        let message = other.next();
        assert_ne!(message["online"], false, "it was ended, though it spoke");
        if message["type"] == "layout.rpc.request" {
            break message;
        }
    };
    other.say(&json!({"type": "layout.rpc.ack", "requestId": request["requestId"]}));
    other.say(&json!({"type": "layout.rpc.result", "requestId": request["requestId"], "ok": true, "result": {},
                      "appliedRevision": 2}));
    // Now it reads, and every message is there in order.
    for _ in 0..24 {
        assert_eq!(slow.next_of("layout.rpc.request")["args"]["shell"], large.as_str());
    }
    assert_eq!(slow.next_of("layout.rpc.ack")["requestId"], "mine");
    assert_eq!(slow.next_of("layout.rpc.result")["appliedRevision"], 2);
}

/// A snapshot's time is when it was taken, not when the command began to wait for another one.
#[cfg(target_os = "linux")]
#[test]
fn a_snapshots_time_is_when_the_workspace_was_read() {
    let world = World::with_server();
    let mut device =
        Background::start(&mut freshell(&world, &["--json", "device", "run", "--remote-control", "always"]));
    let owner =
        serde_json::from_str::<Value>(&device.line().unwrap()).unwrap()["deviceId"].as_str().unwrap().to_owned();
    let mut asking = page(&world, "asking");
    let lock = fs::File::open(world.path("home/.freshell/cli-workspace.lock")).unwrap();
    for (command, args) in [("get-workspace", json!({})), ("new-tab", json!({"browser": "http://a/"}))] {
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        asking.say(&json!({"type": "layout.rpc.request", "requestId": command, "callerDeviceId": "asking",
                           "targetDeviceId": owner, "command": command, "args": args, "expectedRevision": 1,
                           "idempotencyKey": "k"}));
        asking.next_of("layout.rpc.ack");
        let pid = device.pid().to_string();
        eventually("it waits for the lock", || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("-> FLOCK") && line.split_whitespace().any(|word| word == pid))
        });
        let freed = now() + 1;
        while now() <= freed {
            std::hint::spin_loop();
        }
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
        let said = asking.next_of("layout.rpc.result");
        let result = &said["result"];
        let at = result["capturedAt"].as_u64().or_else(|| result["pane"]["updatedAt"].as_u64()).unwrap();
        assert!(at > freed, "{command}: {at} {freed} {said}");
    }
}
