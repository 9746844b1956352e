//! The relay of devices: 1000 of them connected, quiet, and then asking each other 10,000 times a second.

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::UnixStream, time::MissedTickBehavior};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::{
    process::{cpu, resident},
    stage::Daemon,
    table::{Goal, figure, part},
    times::Times,
};

const DEVICES: usize = 1000;
/// How long devices are quiet, and how long they ask.
const SPAN: Duration = Duration::from_secs(10);
/// Each device asks another one this often.
const PACE: Duration = Duration::from_millis(100);
const MIB: f64 = 1024.0 * 1024.0;

type Socket = WebSocketStream<UnixStream>;

pub fn run() {
    part("1000 devices: quiet, and with 10,000 requests a second from one to another, each with its ack and result");
    let daemon = Daemon::new(&[]);
    let before = resident(daemon.pid());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut sockets = Vec::new();
        for number in 0..DEVICES {
            sockets.push(connected(&daemon.socket(), number).await);
        }
        let grown = resident(daemon.pid()).saturating_sub(before) as f64 / DEVICES as f64 / 1024.0;
        let (sockets, quiet) = quiet(sockets, &daemon).await;
        let begun = (Instant::now(), cpu(daemon.pid()));
        let asking = sockets.into_iter().enumerate().map(|(number, socket)| tokio::spawn(ask(socket, number)));
        let (mut times, mut unanswered) = (Times::default(), 0);
        for asked in asking.collect::<Vec<_>>() {
            let (some, open) = asked.await.expect("a device");
            times.append(some);
            unanswered += open;
        }
        let (took, used) = (begun.0.elapsed().as_secs_f64(), cpu(daemon.pid()).saturating_sub(begun.1).as_secs_f64());
        figure("memory of a device", grown, "KiB", Goal::None);
        figure("quiet devices, CPU of the daemon", quiet * 100.0, "%", Goal::None);
        figure("requests answered a second", times.len() as f64 / took, "", Goal::AtLeast(9_500.0));
        figure("from the request to its result, p50", times.p50() / 1e3, "ms", Goal::None);
        figure("from the request to its result, p99", times.p99() / 1e3, "ms", Goal::AtMost(5.0));
        figure("without a result at the end", f64::from(unanswered), "", Goal::None);
        figure("CPU of the daemon", used / took * 100.0, "%", Goal::AtMost(100.0));
        figure("memory of the daemon at the end", resident(daemon.pid()) as f64 / MIB, "MiB", Goal::None);
    });
}

fn name(number: usize) -> String {
    format!("d{}", number % DEVICES)
}

/// Connects a device and says hello.
async fn connected(daemon: &Path, number: usize) -> Socket {
    let stream = UnixStream::connect(daemon).await.expect("the daemon answers");
    let (mut socket, _) =
        tokio_tungstenite::client_async("ws://muxtap/v1/devices/ws", stream).await.expect("a WebSocket");
    let hello = json!({
        "type": "hello", "deviceId": name(number), "deviceLabel": "bench", "deviceType": "browser",
        "workspaceRevision": 1, "remoteControl": "always",
        "capabilities": {"layoutOwnershipV1": true, "layoutRpcV1": true, "devicePresenceV1": true},
    });
    socket.send(Message::text(hello.to_string())).await.expect("it reads");
    let welcome = socket.next().await.expect("an answer").expect("a message");
    assert!(welcome.to_text().is_ok_and(|text| text.contains("welcome")), "{welcome}");
    socket
}

/// Lets the devices answer heartbeats alone. Returns them, and the part of a core that the daemon needed.
async fn quiet(sockets: Vec<Socket>, daemon: &Daemon) -> (Vec<Socket>, f64) {
    let listening = |span: Duration, sockets: Vec<Socket>| async move {
        let end = tokio::time::Instant::now() + span;
        let all = sockets.into_iter().map(|mut socket| {
            tokio::spawn(async move {
                while let Ok(message) = tokio::time::timeout_at(end, socket.next()).await {
                    message.expect("it goes on").expect("a message");
                }
                socket
            })
        });
        let mut sockets = Vec::new();
        for socket in all.collect::<Vec<_>>() {
            sockets.push(socket.await.expect("a device"));
        }
        sockets
    };
    // First what each was told of the others.
    let sockets = listening(Duration::from_secs(2), sockets).await;
    let before = cpu(daemon.pid());
    let sockets = listening(SPAN, sockets).await;
    (sockets, cpu(daemon.pid()).saturating_sub(before).as_secs_f64() / SPAN.as_secs_f64())
}

/// Asks the next device again and again, and answers the one before. Returns how long each request took, and how many
/// had no result.
async fn ask(mut socket: Socket, number: usize) -> (Times, u32) {
    let (mut times, mut open) = (Times::default(), HashMap::new());
    // Not all at once.
    let begin = tokio::time::Instant::now() + PACE.mul_f64(number as f64 / DEVICES as f64);
    let mut pace = tokio::time::interval_at(begin, PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (end, over) = (begin + SPAN, begin + SPAN + Duration::from_secs(2));
    let mut count = 0;
    loop {
        let message = tokio::select! {
            _ = pace.tick(), if tokio::time::Instant::now() < end => {
                count += 1;
                let id = format!("r{number}-{count}");
                let request = json!({
                    "type": "layout.rpc.request", "requestId": id, "callerDeviceId": name(number),
                    "targetDeviceId": name(number + 1), "command": "select-tab", "args": {"target": "tab:t1"},
                    "expectedRevision": 1,
                });
                open.insert(id, Instant::now());
                socket.send(Message::text(request.to_string())).await.expect("it reads");
                continue;
            }
            message = socket.next() => message.expect("it goes on").expect("a message"),
            () = tokio::time::sleep_until(over) => break,
        };
        let Ok(text) = message.to_text() else { continue };
        let Ok(said) = serde_json::from_str::<Value>(text) else { continue };
        let id = said["requestId"].as_str().unwrap_or_default();
        match said["type"].as_str().unwrap_or_default() {
            "layout.rpc.request" => {
                let ack = json!({"type": "layout.rpc.ack", "requestId": id});
                let result = json!({
                    "type": "layout.rpc.result", "requestId": id, "ok": true, "result": {}, "appliedRevision": 2,
                });
                for answer in [ack, result] {
                    socket.feed(Message::text(answer.to_string())).await.expect("it reads");
                }
                socket.flush().await.expect("it reads");
            }
            "layout.rpc.result" => {
                assert_eq!(said["ok"], true, "{said}");
                if let Some(asked) = open.remove(id) {
                    times.push(asked.elapsed());
                }
            }
            _ => {}
        }
    }
    (times, u32::try_from(open.len()).unwrap_or(u32::MAX))
}
