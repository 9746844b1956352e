//! Callers without a token, and callers with read access only, can use little of a daemon's
//! resources.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::{
    common::{LIMIT, World, eventually},
    http_port::{ask, asked, serving, token},
};

const MIB: u64 = 1 << 20;

/// Returns the bytes of a process that are in memory.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Returns whether the system has a `/proc` with a process's memory.
fn is_measured() -> bool {
    let is_there = fs::exists("/proc/self/status").unwrap_or(false);
    if !is_there {
        eprintln!("this system has no /proc: memory is not measured");
    }
    is_there
}

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends a request's head, and reads the response until the connection is closed.
fn answer_to(addr: &str, head: &str, body: impl FnOnce(&mut TcpStream)) -> String {
    let mut stream = connect(addr);
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    body(&mut stream);
    let mut answer = Vec::new();
    // The connection may be reset after the response, with an unread body.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).to_lowercase()
}

/// S3: a login of 96 MiB without a token, from twelve connections, took 1.2 GiB.
#[test]
fn without_a_token_a_body_has_at_most_4_kib() {
    let world = World::new();
    let (daemon, addr) = serving(&world, &[]);
    let before = resident(daemon.pid());
    let login = format!("POST /v1/page/login HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\n");
    // Rejected by the head, before any of the body.
    for (method, path) in [
        ("POST", "/v1/page/login"),
        ("POST", "/api/device-sessions/refresh"),
        ("GET", "/health"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/"),
        ("GET", "/page/page.js"),
        ("POST", "/page/none"),
    ] {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-length: 100663296\r\n");
        let answer = answer_to(&addr, &head, |_| {});
        assert!(answer.starts_with("http/1.1 413 ") && answer.contains("resource_limit"), "{path}: {answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    for (method, path) in [
        ("POST", "/api/device-sessions"),
        ("DELETE", "/api/device-sessions/current"),
        ("PUT", "/v1/devices/x/workspace"),
        ("POST", "/v1/panes/0/input"),
        ("POST", "/mcp"),
        ("POST", "/nowhere"),
    ] {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-length: 100663296\r\n");
        let answer = answer_to(&addr, &head, |_| {});
        assert!(answer.starts_with("http/1.1 401 ") && answer.contains("connection: close"), "{path}: {answer}");
    }
    // Counted if no length is given.
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let answer = answer_to(&addr, &format!("{login}transfer-encoding: chunked\r\n"), |stream| {
        stream.write_all(chunk.repeat(2).as_bytes()).unwrap();
    });
    assert!(answer.starts_with("http/1.1 413 "), "{answer}");
    // A small body is read.
    let body = json!({"code": "x".repeat(1000)}).to_string();
    let head = format!("{login}connection: close\r\ncontent-length: {}\r\n", body.len());
    let answer = answer_to(&addr, &head, |stream| stream.write_all(body.as_bytes()).unwrap());
    assert!(answer.starts_with("http/1.1 401 "), "{answer}");
    // A caller that sends it anyway fills no memory.
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let piece = vec![b' '; 1 << 20];
                answer_to(&addr, &format!("{login}content-length: 100663296\r\n"), |stream| {
                    for _ in 0..96 {
                        if stream.write_all(&piece).is_err() {
                            return;
                        }
                    }
                });
            });
        }
    });
    if is_measured() {
        let grown = resident(daemon.pid()).saturating_sub(before);
        assert!(grown < 32 * MIB, "{} MiB", grown / MIB);
    }
    assert_eq!(asked(&addr, &token(&world), "GET", "/v1/status", None).status, 200);
}

/// S4: refused logins rotated the audit log.
#[test]
fn wrong_credentials_are_limited_not_audited_and_block_no_valid_caller() {
    let world = World::with_server();
    let (daemon, addr) = serving(&world, &[]);
    let token = token(&world);
    world.ok(&["send-keys", "-t", "%0", "x"]);
    let audit = world.path("m.sock.audit.jsonl");
    let recorded = || fs::read_to_string(&audit).unwrap_or_default();
    eventually("the input is recorded", || recorded().contains("\"input\""));
    let before = recorded();
    let host = format!("host: {addr}");
    let login = |code: &str| {
        let body = json!({ "code": code }).to_string();
        ask(&addr, "POST", "/v1/page/login", &[&host, "content-type: application/json"], body.as_bytes())
    };
    let wrong = |path: &str, header: &str| ask(&addr, "GET", path, &[&host, header], b"");
    let mut answers: Vec<(u16, String)> = Vec::new();
    for number in 0..60 {
        for (answer, head) in [
            login(&format!("wrong{number}")),
            wrong("/v1/status", "authorization: Bearer wrong"),
            wrong("/v1/devices", "authorization: Bearer mxd_a.b"),
            wrong("/v1/panes", "cookie: muxtap_page=wrong"),
        ] {
            answers.push((answer.status, head));
        }
    }
    assert!(answers[..60].iter().all(|(status, _)| *status == 401), "{:?}", answers[0]);
    let limited: Vec<_> = answers.iter().filter(|(status, _)| *status == 429).collect();
    assert!(limited.len() > 60 && limited.len() + 60 <= answers.len(), "{}", limited.len());
    assert!(limited.iter().all(|(_, head)| head.contains("retry-after: ")), "{}", limited[0].1);
    // A caller with a token, and one with a link, get in while others try.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    login("wrong");
                }
            });
        }
        for _ in 0..5 {
            assert_eq!(asked(&addr, &token, "GET", "/v1/status", None).status, 200);
            let link = world.http("POST", "/v1/page/codes", Some(&json!({}))).json();
            let (answer, head) = login(link["code"].as_str().unwrap());
            assert!(answer.status == 200 && head.contains("set-cookie: muxtap_page="), "{head}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(world.metric(r#"muxtap_http_refused_total{reason="rate"}"#) >= 60);
    // On a slow machine some attempts are allowed again by now.
    assert!((0..120).any(|_| login("wrong").0.status == 429));
    world.ok(&["stop"]);
    // Everything due to be written is written by now.
    let after = recorded();
    assert!(after.starts_with(&before) && !after.contains("UNAUTHORIZED"), "{after}");
    assert_eq!(after.matches("page-login").count(), 5, "{after}");
    let log = daemon.finish().stderr;
    assert!(log.matches("wrong credentials").count() <= 1, "{log}");
    assert!(log.lines().count() < 40, "{log}");
}

/// Raises this process's limit of open files.
fn raise_open_files(number: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    let wanted = Rlimit { current: Some(number.min(most)), maximum: limit.maximum };
    let is_raised = limit.current.is_none_or(|now| now >= number) || setrlimit(Resource::Nofile, wanted).is_ok();
    is_raised && most >= number
}

/// S11: a caller with a token waited seven seconds for 4,225 half-sent requests.
#[test]
fn half_sent_requests_delay_no_caller_with_a_token() {
    const HALF_SENT: usize = 4225;
    if !raise_open_files(HALF_SENT as u64 + 1000) {
        eprintln!("this process may not open enough files: not tested");
        return;
    }
    let world = World::with_server();
    let (_daemon, addr) = serving(&world, &[]);
    let token = token(&world);
    // A stream that was opened before continues.
    let mut events = connect(&addr);
    let (query, bearer) = (world.query(), format!("authorization: Bearer {token}"));
    write!(events, "GET /v1/events{query} HTTP/1.1\r\nhost: {addr}\r\n{bearer}\r\n\r\n").unwrap();
    let mut read = vec![0; 64];
    events.read_exact(&mut read).unwrap();
    let mut half_sent: Vec<TcpStream> = Vec::new();
    for number in 0..HALF_SENT {
        let mut stream = connect(&addr);
        // The oldest are closed meanwhile.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: ");
        half_sent.push(stream);
        if number == 600 {
            // Its place was given to a newer one, long before the 30 s of a head are over: there
            // are 512.
            let oldest = &mut half_sent[0];
            oldest.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let end = oldest.read(&mut [0; 9]);
            let is_closed =
                end.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |read| *read == 0);
            assert!(is_closed, "{end:?}");
        }
        if number % 500 == 499 {
            assert_eq!(asked(&addr, &token, "GET", "/v1/status", None).status, 200);
        }
    }
    assert_eq!(asked(&addr, &token, "GET", "/v1/panes", None).status, 200);
    // The oldest half-sent one was closed for that, long before its own time limit; the newest was
    // not.
    let mut rest = Vec::new();
    let _ = half_sent[0].read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    let newest = half_sent.last_mut().unwrap();
    write!(newest, "localhost\r\nconnection: close\r\n\r\n").unwrap();
    newest.read_to_end(&mut rest).unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&rest));
    let opened = format!("\"id\":\"{}\"", world.window("sleep 600"));
    let mut told = String::new();
    while !told.contains(&opened) {
        let length = events.read(&mut read).unwrap();
        assert!(length > 0, "the stream has ended: {told}");
        told += &String::from_utf8_lossy(&read[..length]);
    }
}

/// S11: `[::1].evil.com` passed for an address of this machine.
#[test]
fn a_host_that_only_starts_with_the_daemons_name_is_refused() {
    let world = World::new();
    let (_daemon, addr) = serving(&world, &[]);
    let port = addr.rsplit(':').next().unwrap();
    let get = |target: &str, hosts: &str| {
        answer_to(&addr, &format!("GET {target} HTTP/1.1\r\n{hosts}connection: close\r\n"), |_| {})
    };
    for host in [
        "[::1].evil.com",
        "[::1]garbage",
        "[::1]:80@x",
        "[::1]:",
        "[127.0.0.1]",
        "127.0.0.1:80@x",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:99999",
        "x@127.0.0.1",
        "localhost:",
        "localhost/",
        "localhost..",
        "localhost evil.example",
        "",
    ] {
        let answer = get("/health", &format!("host: {host}\r\n"));
        assert!(answer.starts_with("http/1.1 403 ") && answer.contains("\"host\""), "{host}: {answer}");
    }
    // Two headers: a proxy may have checked the other one.
    let both = format!("host: localhost:{port}\r\nhost: evil.example\r\n");
    assert!(get("/health", &both).starts_with("http/1.1 403 "));
    assert!(get("/health", "").starts_with("http/1.1 403 "));
    for target in ["http://evil.example/health", "http://user@localhost/health", "http://localhost:x/health"] {
        let answer = get(target, "host: localhost\r\n");
        assert!(answer.starts_with("http/1.1 403 ") || answer.starts_with("http/1.1 400 "), "{target}: {answer}");
    }
    for host in ["localhost", "[::1]", "127.0.0.1", "LOCALHOST."] {
        assert!(get("/health", &format!("host: {host}:{port}\r\n")).starts_with("http/1.1 200 "), "{host}");
    }
}

/// S11: panes' output was sent without a header that says it is not a page.
#[test]
fn no_response_is_interpreted_as_a_page_or_stored() {
    let world = World::with_server();
    let (_daemon, addr) = serving(&world, &[]);
    let (query, bearer) = (world.query(), format!("authorization: Bearer {}", token(&world)));
    let get = |request: &str, headers: &str| {
        answer_to(&addr, &format!("{request} HTTP/1.1\r\nconnection: close\r\n{headers}"), |_| {})
    };
    let (host, full) = (format!("host: {addr}\r\n"), format!("host: {addr}\r\n{bearer}\r\n"));
    let json = format!("{full}content-type: application/json\r\n");
    for (status, request, headers) in [
        (200, format!("GET /v1/panes/0/capture{query}"), &full),
        (200, format!("GET /v1/panes/0/output{query}"), &full),
        (200, "GET /metrics".into(), &full),
        (200, "GET /health".into(), &host),
        (200, "GET /docs".into(), &host),
        (200, "GET /openapi.json".into(), &host),
        (200, "GET /".into(), &host),
        (401, "GET /v1/status".into(), &host),
        (403, "GET /v1/status".into(), &"host: evil.example\r\n".into()),
        (404, "GET /nowhere".into(), &full),
        (404, "GET /page/none".into(), &host),
        (405, "PUT /health".into(), &full),
        (426, "GET /v1/stream".into(), &full),
        (400, "POST /v1/waits".into(), &json),
        (413, "POST /health".into(), &format!("{host}content-length: 9999\r\n")),
        (405, "PUT /mcp".into(), &full),
    ] {
        let answer = get(&request, headers);
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{request}: {head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{request}: {head}");
        let is_file = request == "GET /";
        assert!(head.contains(if is_file { "cache-control: no-cache" } else { "cache-control: no-store" }), "{head}");
    }
    let mut events = connect(&addr);
    write!(events, "GET /v1/events{query} HTTP/1.1\r\n{full}\r\n").unwrap();
    let mut head = String::new();
    while !head.contains("\r\n\r\n") {
        let mut read = [0; 512];
        let length = events.read(&mut read).unwrap();
        head += &String::from_utf8_lossy(&read[..length]).to_lowercase();
    }
    assert!(head.contains("x-content-type-options: nosniff") && head.contains("cache-control: no-store"), "{head}");
}

/// S7: forty waits of a reader took 800 MiB; the allowed number would have taken 41 GiB.
/// `docs/limits.md` has the limits of one caller.
#[test]
fn a_readers_large_patterns_take_at_most_the_documented_memory() {
    let world = World::with_server();
    let (daemon, addr) = serving(&world, &["--read-only"]);
    let token = token(&world);
    let begin = |pattern: &str| {
        let body = json!({"panes": ["main:0.0"], "patterns": [pattern], "detach": true, "timeout_ms": 600_000});
        asked(&addr, &token, "POST", &format!("/v1/waits{}", world.query()), Some(&body))
    };
    let first = begin("DONE");
    assert_eq!(first.status, 200, "{}", first.json());
    let before = resident(daemon.pid());
    let mut opened: Vec<Value> = Vec::new();
    let refused = (0..100).find_map(|number| {
        let answer = begin(&format!(r"(?:\w{{50}}){{8}}N{number}"));
        if answer.status == 200 {
            opened.push(answer.json());
            return None;
        }
        Some(answer)
    });
    let refused = refused.expect("a hundred of them are refused").json();
    assert!(!opened.is_empty());
    assert_eq!(refused["code"], "RESOURCE_LIMIT", "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("this caller") && message.contains("end some"), "{message}");
    // Equal patterns share the compiled form, and each has its own search.
    let large = r"(?:\w{50}){8}N0";
    let equal = (0..100).take_while(|_| begin(large).status == 200).count();
    assert!(equal < 100, "{equal}");
    // Others, on the Unix socket, have their own share.
    let own = json!({"panes": ["main:0.0"], "patterns": [large], "detach": true, "timeout_ms": 600_000});
    assert_eq!(world.http("POST", &format!("/v1/waits{}", world.query()), Some(&own)).status, 200);
    if is_measured() {
        let grown = resident(daemon.pid()).saturating_sub(before);
        // 64 MiB of one caller, a search of the other, and memory that the C library keeps after
        // compiling.
        assert!(grown < 160 * MIB, "{} MiB", grown / MIB);
    }
    // A wait's memory is free when it has ended.
    for wait in &opened {
        let id = wait["id"].as_str().unwrap();
        assert_eq!(asked(&addr, &token, "DELETE", &format!("/v1/waits/{id}"), None).status, 200);
    }
    eventually("there is place again", || begin(r"(?:\w{50}){7}again").status == 200);
    assert_eq!(begin("still small").status, 200);
}

/// S7: 5,000 sessions of MCP over HTTP took 280 MiB.
#[test]
fn mcp_sessions_are_bounded_and_idle_ones_are_evicted() {
    let world = World::with_server();
    let (daemon, addr) = serving(&world, &["--read-only"]);
    let token = token(&world);
    let host = format!("host: {addr}");
    let bearer = format!("authorization: Bearer {token}");
    let say = |session: Option<&str>, message: &Value| {
        let session = session.map_or("x: y".to_owned(), |session| format!("mcp-session-id: {session}"));
        let headers =
            [&host, &bearer, &session, "content-type: application/json", "accept: application/json, text/event-stream"];
        ask(&addr, "POST", "/mcp", &headers.map(|line| line as &str), message.to_string().as_bytes())
    };
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    });
    let session = || {
        let (answer, head) = say(None, &hello);
        assert_eq!(answer.status, 200, "{head}");
        head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned()
    };
    let is_open =
        |id: &str| say(Some(id), &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).0.status == 202;
    // A session in use stays, regardless of the number of others opened.
    let used = session();
    assert!(is_open(&used));
    let mut sessions: Vec<String> = (0..63).map(|_| session()).collect();
    let before = resident(daemon.pid());
    for _ in 0..500 {
        sessions.push(session());
    }
    let open: Vec<_> = sessions.iter().map(|id| is_open(id)).collect();
    assert!(open[..500].iter().all(|open| !open) && open[500..].iter().all(|open| *open), "{open:?}");
    assert!(is_open(&used));
    // Each was used a short time ago: none of them ends for a new one.
    assert_eq!(say(None, &hello).0.status, 429);
    if is_measured() {
        let grown = resident(daemon.pid()).saturating_sub(before);
        assert!(grown < 16 * MIB, "{} MiB", grown / MIB);
    }
    // A session with a stream does not end either.
    let _streams: Vec<TcpStream> = sessions[500..]
        .iter()
        .map(|id| {
            let mut stream = connect(&addr);
            let head = format!(
                "GET /mcp HTTP/1.1\r\n{host}\r\n{bearer}\r\nmcp-session-id: {id}\r\naccept: text/event-stream\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let (answer, head) = say(None, &hello);
    let refused = answer.json();
    assert_eq!((answer.status, &refused["code"]), (429, &"RESOURCE_LIMIT".into()), "{head}");
    assert!(head.contains("retry-after: "), "{head}");
    assert!(is_open(sessions.last().unwrap()));
}
