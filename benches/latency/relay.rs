//! The relay of devices: 1000 connected devices, first quiet, then sending each other 10,000
//! requests a second.
//!
//! The devices are one thread of the bench, which shares the machine with the daemon: they write
//! and parse their own frames, without JSON, masks and a timer for each, so that the relay is what
//! is measured.

use std::{
    cell::{Cell, RefCell},
    io::{Read as _, Write as _},
    os::unix::net::UnixStream as Connecting,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use memchr::memmem;
use tokio::{
    io::AsyncReadExt as _,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::LocalSet,
    time::MissedTickBehavior,
};

use super::{
    process::{cpu, cpu_of_this_thread, resident},
    stage::Daemon,
    table::{Goal, figure, part},
    times::Times,
};

const DEVICES: usize = 1000;
/// The duration of the quiet phase and of the requests.
const SPAN: Duration = Duration::from_secs(10);
/// The requests a second, of all devices together; they send in turns.
const RATE: u64 = 10_000;
/// The interval at which due requests are sent.
const PACE: Duration = Duration::from_millis(1);
const MIB: f64 = 1024.0 * 1024.0;
const TEXT: u8 = 0x81;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// The counters of all devices in a run.
struct Counted {
    begun: Instant,
    times: RefCell<Times>,
    /// The delay with which the client sent requests.
    late: RefCell<Times>,
    sent: Cell<u64>,
    refused: Cell<u64>,
}

pub fn run() {
    part("1000 devices: quiet, and with 10,000 requests a second from one to another, each with its ack and result");
    let daemon = Daemon::new(&[]);
    let before = resident(daemon.pid());
    let sockets: Vec<Connecting> = (0..DEVICES).map(|number| connected(&daemon.socket(), number)).collect();
    let grown = resident(daemon.pid()).saturating_sub(before) as f64 / DEVICES as f64 / 1024.0;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let counted = Rc::new(Counted {
            begun: Instant::now(),
            times: RefCell::default(),
            late: RefCell::default(),
            sent: Cell::new(0),
            refused: Cell::new(0),
        });
        let mut writers = Vec::new();
        for socket in sockets {
            socket.set_nonblocking(true).expect("it can be set");
            let (reader, writer) = UnixStream::from_std(socket).expect("a runtime").into_split();
            let writer = Rc::new(writer);
            tokio::task::spawn_local(answer(reader, writer.clone(), counted.clone()));
            writers.push(writer);
        }
        // First, each device is notified about the others.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let idle = cpu(daemon.pid());
        tokio::time::sleep(SPAN).await;
        let quiet = cpu(daemon.pid()).saturating_sub(idle).as_secs_f64() / SPAN.as_secs_f64();
        let (begun, used, own) = (Instant::now(), cpu(daemon.pid()), cpu_of_this_thread());
        ask(&writers, &counted).await;
        let took = begun.elapsed().as_secs_f64();
        let of_core = |before: Duration, now: Duration| now.saturating_sub(before).as_secs_f64() / took * 100.0;
        let (used, own) = (of_core(used, cpu(daemon.pid())), of_core(own, cpu_of_this_thread()));
        let answered = counted.times.borrow().len() as u64;
        // Waits for messages in transit.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (times, late) = (counted.times.take(), counted.late.take());
        figure("memory of a device", grown, "KiB", Goal::None);
        figure("quiet devices, CPU of the daemon", quiet * 100.0, "%", Goal::None);
        figure("requests answered a second", answered as f64 / took, "", Goal::AtLeast(9_500.0));
        figure("from the request to its result, p50", times.p50() / 1e3, "ms", Goal::None);
        figure("from the request to its result, p99", times.p99() / 1e3, "ms", Goal::AtMost(5.0));
        figure("without a result at the end", (counted.sent.get() - times.len() as u64) as f64, "", Goal::None);
        figure("refused", counted.refused.get() as f64, "", Goal::AtMost(0.0));
        figure("CPU of the daemon", used, "%", Goal::AtMost(100.0));
        figure("CPU of the devices, one thread", own, "%", Goal::None);
        figure("requests that the devices sent late, p99", late.p99() / 1e3, "ms", Goal::None);
        figure("memory of the daemon at the end", resident(daemon.pid()) as f64 / MIB, "MiB", Goal::None);
    });
}

fn name(number: usize) -> String {
    format!("d{}", number % DEVICES)
}

/// Builds a text frame of a client. Its mask is zero, so the text is unchanged.
fn frame(text: &str, to: &mut Vec<u8>) {
    to.push(TEXT);
    match u16::try_from(text.len()).expect("a short text") {
        length @ ..=125 => to.push(0x80 | length as u8),
        length => {
            to.push(0x80 | 0x7e);
            to.extend(length.to_be_bytes());
        }
    }
    to.extend([0; 4]);
    to.extend(text.as_bytes());
}

/// Connects a device and sends its hello. The response is not read.
fn connected(daemon: &Path, number: usize) -> Connecting {
    let mut stream = Connecting::connect(daemon).expect("the daemon answers");
    let request = "GET /v1/devices/ws HTTP/1.1\r\nHost: muxtap\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("it answers");
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    let hello = format!(
        r#"{{"type":"hello","deviceId":"{}","deviceLabel":"bench","deviceType":"browser","workspaceRevision":1,
        "remoteControl":"always",
        "capabilities":{{"layoutOwnershipV1":true,"layoutRpcV1":true,"devicePresenceV1":true}}}}"#,
        name(number)
    );
    let mut said = Vec::new();
    frame(&hello, &mut said);
    stream.write_all(&said).expect("it reads");
    // Devices connect one after the other: the next one is a known number of messages later.
    let mut opened = [0; 2];
    stream.read_exact(&mut opened).expect("it answers");
    assert_eq!(opened[0], TEXT, "a welcome");
    let length = match opened[1] {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length).expect("it answers");
            usize::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            stream.read_exact(&mut length).expect("it answers");
            u64::from_be_bytes(length) as usize
        }
        length => usize::from(length),
    };
    let mut welcome = vec![0; length];
    stream.read_exact(&mut welcome).expect("it answers");
    assert!(memmem::find(&welcome, br#""welcome""#).is_some(), "{}", String::from_utf8_lossy(&welcome));
    stream
}

/// Sends the requests: each device to the next one, in turns.
async fn ask(devices: &[Rc<OwnedWriteHalf>], counted: &Counted) {
    let begun = Instant::now();
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut out = Vec::new();
    while counted.sent.get() < RATE * SPAN.as_secs() {
        pace.tick().await;
        loop {
            let count = counted.sent.get();
            let due = Duration::from_nanos(count * 1_000_000_000 / RATE);
            let now = begun.elapsed();
            if now < due || count >= RATE * SPAN.as_secs() {
                break;
            }
            counted.late.borrow_mut().push(now.saturating_sub(due));
            let number = count as usize % DEVICES;
            let text = format!(
                r#"{{"type":"layout.rpc.request","requestId":"r{count}-{}","callerDeviceId":"{}","targetDeviceId":"{}","command":"select-tab","args":{{"target":"tab:t1"}},"expectedRevision":1}}"#,
                counted.begun.elapsed().as_nanos(),
                name(number),
                name(number + 1)
            );
            out.clear();
            frame(&text, &mut out);
            if let Some(device) = devices.get(number) {
                send(device, &out).await;
            }
            counted.sent.set(count + 1);
        }
    }
}

async fn send(device: &OwnedWriteHalf, mut out: &[u8]) {
    while !out.is_empty() {
        match device.try_write(out) {
            Ok(written) => out = out.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => device.writable().await.expect("it reads"),
            Err(error) => panic!("the relay reads no more: {error}"),
        }
    }
}

/// Runs a device: answers each request with an ack and a result, and records the answers to its own
/// requests.
async fn answer(mut reader: OwnedReadHalf, writer: Rc<OwnedWriteHalf>, counted: Rc<Counted>) {
    let (mut buffer, mut out) = (Vec::with_capacity(4096), Vec::new());
    loop {
        if reader.read_buf(&mut buffer).await.expect("it goes on") == 0 {
            return;
        }
        let mut read = 0;
        while let Some((kind, text, length)) = first_frame(buffer.get(read..).unwrap_or_default()) {
            take(kind, text, &mut out, &counted);
            read += length;
        }
        buffer.drain(..read);
        if !out.is_empty() {
            send(&writer, &out).await;
            out.clear();
        }
    }
}

/// Handles a message; appends the reply to `out`.
fn take(kind: u8, text: &[u8], out: &mut Vec<u8>, counted: &Counted) {
    if kind == PING {
        out.extend([PONG, 0x80, 0, 0, 0, 0]);
        return;
    }
    let has = |word: &[u8]| memmem::find(text, word).is_some();
    let id = || {
        let begin = memmem::find(text, br#""requestId":""#).map(|at| at + 13)?;
        let length = memchr::memchr(b'"', text.get(begin..)?)?;
        std::str::from_utf8(text.get(begin..begin + length)?).ok()
    };
    if has(b"layout.rpc.request") {
        let id = id().expect("a request has its id");
        frame(&format!(r#"{{"type":"layout.rpc.ack","requestId":"{id}"}}"#), out);
        let result =
            format!(r#"{{"type":"layout.rpc.result","requestId":"{id}","ok":true,"result":{{}},"appliedRevision":2}}"#);
        frame(&result, out);
    } else if has(b"layout.rpc.result") {
        if has(br#""ok":true"#) {
            let sent = id().and_then(|id| id.split_once('-')?.1.parse().ok()).map(Duration::from_nanos);
            counted.times.borrow_mut().push(counted.begun.elapsed().saturating_sub(sent.expect("its id has the time")));
        } else {
            counted.refused.set(counted.refused.get() + 1);
        }
    }
}

/// Returns the first frame's kind, its payload, and its total length.
fn first_frame(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (kind, short) = (*bytes.first()?, *bytes.get(1)?);
    let (length, begin) = match short {
        126 => (usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize, 10),
        length => (usize::from(length), 2),
    };
    Some((kind, bytes.get(begin..begin + length)?, begin + length))
}
