//! HTTP on a TCP port: access, and the permissions of each caller. The clients are plain sockets
//! and curl.

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::Command,
};

use crate::common::{Background, Http, LIMIT, World, eventually, run};
use serde_json::{Value, json};

/// Starts a daemon that listens on a free port; returns it and its address.
pub fn serving(world: &World, flags: &[&str]) -> (Background, String) {
    let mut command = world.plain_muxtap_command();
    command.args(["serve", "--http", "127.0.0.1:0"]).args(flags);
    let daemon = Background::start(&mut command);
    eventually("the daemon answers", || world.daemon_pid().is_some());
    if world.socket().exists() {
        // Callers over TCP can name only known servers.
        world.sessions();
    }
    let status = world.http("GET", "/v1/status", None).json();
    let url = status["http"][0].as_str().unwrap();
    (daemon, url.split("://").nth(1).unwrap().to_owned())
}

pub fn token(world: &World) -> String {
    world.ok(&["token"])
}

/// Sends a request over TCP with these header lines.
pub fn ask(addr: &str, method: &str, path: &str, headers: &[&str], body: &[u8]) -> (Http, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for header in headers {
        write!(head, "{header}\r\n").unwrap();
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    // It may refuse before it has read everything.
    let _ = stream.write_all(body);
    let answer = Http::read(stream);
    let head = answer.head.to_lowercase();
    (answer, head)
}

/// Sends a request over TCP with the token.
pub fn asked(addr: &str, token: &str, method: &str, path: &str, body: Option<&Value>) -> Http {
    let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
    let bearer = format!("authorization: Bearer {token}");
    ask(addr, method, path, &[&format!("host: {addr}"), &bearer, "content-type: application/json"], &body).0
}

fn code(answer: &Http) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_routes_serve_only_callers_with_the_token() {
    let world = World::with_server();
    let (_daemon, addr) = serving(&world, &[]);
    let token = token(&world);
    let file = world.path("m.sock.token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let panes = asked(&addr, &token, "GET", &format!("/v1/panes{}", world.query()), None).json();
    assert_eq!(panes["panes"][0]["session"], "main");
    let path = format!("/v1/panes/0/run{}", world.query());
    let ran = asked(&addr, &token, "POST", &path, Some(&json!({"command": "echo over tcp"}))).json();
    assert_eq!((&ran["output"], &ran["exit_status"]), (&"over tcp\n".into(), &0.into()), "{ran}");

    let host = format!("host: {addr}");
    for wrong in ["", "authorization: Bearer wrong", "authorization: Basic eDp5", &format!("authorization: {token}")] {
        let (answer, head) = ask(
            &addr,
            "GET",
            "/v1/status",
            &[&host, wrong].map(|line| if line.is_empty() { "x: y" } else { line }),
            b"",
        );
        assert_eq!(code(&answer), (401, "UNAUTHORIZED".into()), "{wrong}");
        assert!(head.contains("www-authenticate: bearer"), "{head}");
    }
    for open in ["/health", "/openapi.json", "/docs"] {
        assert_eq!(ask(&addr, "GET", open, &[&host], b"").0.status, 200, "{open}");
    }
    // A new token is valid immediately.
    let new = world.ok(&["token", "--new"]);
    assert_eq!(asked(&addr, &token, "GET", "/v1/status", None).status, 401);
    assert_eq!(asked(&addr, &new, "GET", "/v1/status", None).status, 200);
    assert!(world.metric(r#"muxtap_http_refused_total{reason="token"}"#) >= 5);
    // A token that others can read is not valid.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(asked(&addr, &new, "GET", "/v1/status", None).status, 401);
}

/// With a token programs can work in panes; it is not enough to approve in a human's place.
#[test]
fn questions_to_a_person_can_be_answered_only_on_the_unix_socket() {
    let world = World::new();
    let (_daemon, addr) = serving(&world, &[]);
    let token = token(&world);
    let answer = json!({ "answer": "approved" });
    for (method, path, body) in [
        ("GET", "/v1/approvals", None),
        ("GET", "/v1/approvals/events", None),
        ("POST", "/v1/approvals/3fa9c1", Some(&answer)),
    ] {
        assert_eq!(code(&asked(&addr, &token, method, path, body)), (401, "UNAUTHORIZED".into()), "{method} {path}");
    }
    assert_eq!(world.http("GET", "/v1/approvals", None).json(), json!({ "approvals": [] }));
    assert_eq!(code(&world.http("POST", "/v1/approvals/3fa9c1", Some(&answer))), (404, "NOT_FOUND".into()));
}

#[test]
fn web_pages_of_unlisted_origins_do_not_reach_the_daemon() {
    let world = World::with_server();
    let (_daemon, addr) = serving(&world, &["--http-origins", "https://good.example", "--http-names", "box.lan"]);
    let bearer = format!("authorization: Bearer {}", token(&world));
    let port = addr.rsplit(':').next().unwrap();
    let status = |headers: &[&str]| ask(&addr, "GET", "/v1/status", &[headers, &[&bearer]].concat(), b"").0;
    for host in
        [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("box.lan:{port}"), "localhost".into()]
    {
        assert_eq!(status(&[&format!("host: {host}")]).status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.nip.io"] {
        let answer = status(&[&format!("host: {host}")]);
        assert_eq!(
            (code(&answer), answer.json()["stage"].clone()),
            ((403, "UNAUTHORIZED".into()), "host".into()),
            "{host}"
        );
    }
    let host = format!("host: localhost:{port}");
    for origin in [format!("http://localhost:{port}"), "https://good.example".into()] {
        assert_eq!(status(&[&host, &format!("origin: {origin}")]).status, 200, "{origin}");
    }
    for origin in
        ["https://evil.example", "null", "https://good.example.evil.example", "http://good.example", "http://localhost"]
    {
        let answer = status(&[&host, &format!("origin: {origin}")]);
        assert_eq!((answer.status, &answer.json()["stage"]), (403, &"origin".into()), "{origin}");
    }
    // CORS: an allowed origin's preflight gets a response without a token, and no other request
    // does.
    let preflight = |origin: &str| {
        let headers = [
            &host,
            &format!("origin: {origin}"),
            "access-control-request-method: POST",
            "access-control-request-headers: authorization,content-type",
        ];
        ask(&addr, "OPTIONS", "/v1/waits", &headers.map(|line| line as &str), b"")
    };
    let (answer, head) = preflight("https://good.example");
    assert_eq!(answer.status, 200);
    assert!(
        head.contains("access-control-allow-origin: https://good.example") && head.contains("authorization"),
        "{head}"
    );
    let (answer, head) = preflight("https://evil.example");
    assert_eq!(answer.status, 403);
    assert!(!head.contains("access-control-allow-origin"), "{head}");
}

#[test]
fn connections_are_encrypted_with_a_generated_certificate() {
    let world = World::with_server();
    let (_daemon, addr) = serving(&world, &["--tls", "--http", "[::1]:0"]);
    let urls = world.http("GET", "/v1/status", None).json()["http"].clone();
    let port = addr.rsplit(':').next().unwrap();
    let authority = world.path("m.sock.tls/ca.pem");
    let bearer = format!("authorization: Bearer {}", token(&world));
    let curl = |args: &[&str], url: &str| {
        run(Command::new("curl")
            .args(["-sS", "--max-time", "20", "-H", &bearer])
            .args(args)
            .arg(format!("{url}/v1/status")))
    };
    let trust = ["--cacert", authority.to_str().unwrap()];
    let six = urls[1].as_str().unwrap();
    for url in [&format!("https://localhost:{port}"), &format!("https://127.0.0.1:{port}"), six] {
        let answer = curl(&trust, url);
        assert_eq!(
            (answer.status, &answer.json()["pid"]),
            (0, &world.daemon_pid().unwrap().into()),
            "{url}: {answer:?}"
        );
    }
    assert_ne!(curl(&[], &format!("https://localhost:{port}")).status, 0, "nobody else trusts it");
    // The authority signs nothing else: its key is not stored.
    let kept: Vec<_> =
        fs::read_dir(world.path("m.sock.tls")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(kept.len(), 4, "{kept:?}");
    // Plain HTTP on that port fails, and affects no other caller.
    let mut plain = TcpStream::connect(&addr).unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(curl(&trust, &format!("https://localhost:{port}")).status, 0);
}

#[test]
fn only_tls_is_served_beyond_loopback() {
    let world = World::new();
    let refused = run(world.plain_muxtap_command().args(["--json", "serve", "--http", "0.0.0.0:0"]));
    assert_eq!((refused.status, &refused.error()["code"]), (2, &"INVALID_ARGUMENT".into()), "{refused:?}");
    assert!(refused.error()["message"].as_str().unwrap().contains("tls"), "{refused:?}");
    for (flags, says) in [
        (&["--http", "localhost"][..], "http (from --http)"),
        (
            &["--http", "127.0.0.1:0", "--tls", "--tls-cert", "/nonexistent.pem", "--tls-key", "/nonexistent.pem"],
            "/nonexistent.pem",
        ),
        (&["--http", "127.0.0.1:0", "--tls-cert", "/x"], "must be set together"),
        (&["--allow", "write"], "expected one of read"),
        (&["--config", "/nonexistent.toml"], "cannot read the configuration"),
    ] {
        let refused = run(world.plain_muxtap_command().args([&["--json", "serve"], flags].concat()));
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        let status = if refused.error()["code"] == "INVALID_ARGUMENT" { 2 } else { 1 };
        assert!(refused.status == status && message.contains(says), "{flags:?}: {refused:?}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let refused = run(world.plain_muxtap_command().args(["--json", "serve", "--http", &addr]));
    assert_eq!((refused.status, &refused.error()["code"]), (1, &"CONFLICT".into()), "{refused:?}");
}

#[test]
fn tiers_apply_on_every_interface_and_refusals_are_recorded() {
    let world = World::with_server();
    let (daemon, addr) = serving(&world, &["--deny", "kill,create"]);
    let token = token(&world);
    let query = world.query();
    let kill = |path: &str| asked(&addr, &token, "DELETE", &format!("{path}{query}"), None);
    for path in ["/v1/panes/0", "/v1/windows/@0", "/v1/sessions/main"] {
        assert_eq!(code(&kill(path)), (403, "READ_ONLY".into()), "{path}");
    }
    world.error("READ_ONLY", &["kill-pane", "-t", "%0"]);
    world.error("READ_ONLY", &["new-session", "-s", "more"]);
    world.error("READ_ONLY", &["rename-session", "-t", "main", "more"]);
    assert_eq!(code(&asked(&addr, &token, "POST", "/v1/stop", None)), (403, "READ_ONLY".into()));
    let secret = "a secret that was typed";
    world.ok(&["send-keys", "-t", "%0", "-l", secret]);
    assert_eq!(world.sessions(), ["main"]);
    world.ok(&["stop"]);
    daemon.finish();

    let (daemon, _) = serving(&world, &["--read-only"]);
    for args in
        [&["send-keys", "-t", "%0", "x"][..], &["run", "-t", "%0", "--", "true"], &["kill-session", "-t", "main"]]
    {
        world.error("READ_ONLY", args);
    }
    world.ok(&["capture-pane", "-t", "%0"]);
    world.ok(&["stop"]);
    daemon.finish();

    let log = world.path("m.sock.audit.jsonl");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains(secret), "{text}");
    let acts: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |action: &str, result: &str| {
        acts.iter().filter(|act| act["action"] == action && act["result"] == result).count()
    };
    assert_eq!(of("kill-pane", "READ_ONLY"), 2, "{text}");
    assert_eq!(
        (of("kill-session", "READ_ONLY"), of("new-session", "READ_ONLY"), of("change-session", "READ_ONLY")),
        (2, 1, 1)
    );
    let typed = acts.iter().find(|act| act["result"] == "ok").unwrap();
    assert_eq!((&typed["action"], &typed["pane"], &typed["face"]), (&"input".into(), &"%0".into(), &"unix".into()));
    assert_eq!(typed["bytes"], secret.len());
    assert!(typed["sha256"].is_null() && typed["hmac"].as_str().unwrap().len() == 64, "{typed}");
    assert_eq!(acts.iter().filter(|act| act["face"] == "http" && act["who"] == "127.0.0.1").count(), 4);
    assert_eq!((of("kill", "READ_ONLY"), of("stop", "ok")), (1, 2), "{text}");
}

/// By the command and by the recipe of `docs/access.md`, and not without the key.
#[test]
fn typed_text_is_found_in_the_audit_log_only_with_the_key() {
    let world = World::with_server();
    let (log, key) = (world.path("m.sock.audit.jsonl"), world.path("m.sock.audit.jsonl.key"));
    let check = |text: &str| {
        let answer = world.muxtap_with_stdin(&["--json", "audit-check"], text.as_bytes());
        let found = answer.json()["found"].as_array().unwrap().clone();
        assert_eq!(answer.status == 0, !found.is_empty(), "{answer:?}");
        found
    };
    world.ok(&["send-keys", "-t", "%0", "-l", "hunter2"]);
    world.ok(&["send-keys", "-t", "%0", "correct horse", "Enter"]);
    for daemon in [true, false] {
        // The line end comes from `echo`.
        for text in ["hunter2", "hunter2\n", "correct horse"] {
            let found = check(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!((&found[0]["action"], &found[0]["pane"]), (&"input".into(), &"%0".into()), "{found:?}");
        }
        for text in ["hunter", "hunter22", "Enter", ""] {
            assert!(check(text).is_empty(), "{text}");
        }
        if daemon {
            world.ok(&["stop"]);
        }
    }
    let plain = world.muxtap_with_stdin(&["audit-check"], b"hunter2");
    assert!(plain.text().contains("%0") && plain.text().contains("unix"), "{plain:?}");
    let page = include_str!("../../docs/access.md");
    let recipe = page.lines().find(|line| line.contains("openssl dgst")).unwrap();
    let recipe = recipe.replace("~/.local/state/muxtap/audit.jsonl.key", key.to_str().unwrap());
    let said = run(world.command("sh").args(["-c", &recipe])).text();
    let hash = said.trim().rsplit(' ').next().unwrap();
    assert!(hash.len() == 64 && fs::read_to_string(&log).unwrap().contains(hash), "{said}");
    // Without the key, or with another one, nothing is found.
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&key).unwrap();
    let without = world.muxtap_with_stdin(&["audit-check"], b"hunter2");
    assert!(without.status == 1 && without.stderr.contains("audit.jsonl.key"), "{without:?}");
    world.ok(&["send-keys", "-t", "%0", "-l", "more"]);
    assert!(check("hunter2").is_empty() && check("more").len() == 1);

    // A key that others can read prevents the start of a daemon whose log was configured, and
    // recording by any other.
    world.ok(&["stop"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let mut chosen = world.muxtap_command(&["ls"]);
    let chosen = run(chosen.env("MUXTAP_AUDIT_FILE", &log));
    assert!(chosen.status == 1 && chosen.stderr.contains("open to others (mode 0644)"), "{chosen:?}");
    let length = fs::metadata(&log).unwrap().len();
    world.ok(&["send-keys", "-t", "%0", "-l", "unrecorded"]);
    world.ok(&["stop"]);
    assert_eq!(fs::metadata(&log).unwrap().len(), length);
    let told = fs::read_to_string(world.path("m.sock.log")).unwrap();
    assert!(told.contains("open to others (mode 0644)") && told.contains("no audit log is written"), "{told}");
}

/// A browser can set no header on a WebSocket: it names the token as a subprotocol, and continues
/// only if the response names the accepted one.
#[test]
fn a_page_opens_a_websocket_with_the_token_as_a_subprotocol() {
    let world = World::with_server();
    let (_daemon, addr) = serving(&world, &[]);
    let token = token(&world);
    let open = |protocols: &str| {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = format!(
            "GET /v1/stream HTTP/1.1\r\nhost: {addr}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             sec-websocket-protocol: {protocols}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        String::from_utf8(answer).unwrap().to_lowercase()
    };
    let answer = open(&format!("muxtap, bearer.{token}"));
    assert!(answer.starts_with("http/1.1 101"), "{answer}");
    assert!(answer.contains("sec-websocket-protocol: muxtap\r\n") && !answer.contains("bearer"), "{answer}");
    assert!(open("muxtap, bearer.wrong").starts_with("http/1.1 401"));
}

#[test]
fn hostile_requests_are_rejected_or_closed_and_delay_no_caller() {
    let world = World::with_server();
    let (_daemon, addr) = serving(&world, &[]);
    let token = token(&world);
    // A caller that closes its write side has left: it may get a response, or none.
    let say = |bytes: &[u8], leaves: bool| {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = stream.write_all(bytes);
        if leaves {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    let long = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(1_000_000));
    for bytes in [
        &b"\0\x01\x02\r\n\r\n"[..],
        b"GET",
        b"GET / HTTP/9.9\r\n\r\n",
        long.as_bytes(),
        b"POST /v1/waits HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{",
    ] {
        let status = say(bytes, true);
        assert!(status.is_empty() || status.contains(" 4"), "{status}: {:?}", &bytes[..bytes.len().min(60)]);
    }
    let evil = b"GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(say(evil, false).contains(" 403"));
    let host = format!("host: {addr}");
    let bearer = format!("authorization: Bearer {token}");
    let json = "content-type: application/json";
    let waits = format!("/v1/waits{}", world.query());
    for body in [&b"{"[..], b"[]", b"\xff\xfe", b"{\"panes\": 1}", br#"{"panes":["%0"],"patterns":["("]}"#] {
        let (answer, _) = ask(&addr, "POST", &waits, &[&host, &bearer, json], body);
        assert_eq!(answer.status, 400, "{:?}: {answer:?}", String::from_utf8_lossy(body));
    }
    let (answer, _) = ask(&addr, "PUT", "/v1/waits", &[&host, &bearer], b"");
    assert_eq!(answer.status, 405);
    assert_eq!(asked(&addr, &token, "GET", "/v1/status", None).status, 200);
}

#[test]
fn open_waits_get_a_response_when_the_daemon_stops() {
    let world = World::with_server();
    let (daemon, addr) = serving(&world, &[]);
    let token = token(&world);
    let waits: Vec<_> = (0..20)
        .map(|_| {
            let (addr, token, path) = (addr.clone(), token.clone(), format!("/v1/waits{}", world.query()));
            let wait = json!({"panes": ["%0"], "patterns": ["never"], "timeout_ms": 60_000});
            std::thread::spawn(move || asked(&addr, &token, "POST", &path, Some(&wait)))
        })
        .collect();
    eventually("the waits are open", || world.json(&["status"])["waits"] == 20);
    world.ok(&["stop"]);
    for wait in waits {
        let answer = wait.join().unwrap();
        assert_eq!((answer.status, &answer.json()["outcome"]), (200, &"cancelled".into()), "{answer:?}");
    }
    assert_eq!(daemon.finish().status, 0);
}

#[test]
fn what_is_in_force_is_told_with_its_source() {
    let mut world = World::new();
    let file = world.path("config.toml");
    fs::write(&file, "deny = [\"kill\"]\nring_bytes = \"2M\"\n").unwrap();
    world.set("MUXTAP_CONFIG", file.to_str().unwrap());
    world.set("MUXTAP_RING_BYTES", "3M");
    let shown = || {
        let config = world.json(&["config"]);
        let of =
            |key: &str| config["settings"].as_array().unwrap().iter().find(|one| one["key"] == key).unwrap().clone();
        (of("deny"), of("ring_bytes"), of("coverage"))
    };
    let (deny, ring, _) = shown();
    assert_eq!((&deny["value"], &deny["source"]), (&json!(["kill"]), &file.to_str().unwrap().into()));
    assert_eq!((&ring["value"], &ring["source"]), (&"3M".into(), &"$MUXTAP_RING_BYTES".into()));
    // A running daemon reports its own settings.
    let (_daemon, _) = serving(&world, &["--coverage", "sessions"]);
    let (deny, _, coverage) = shown();
    assert_eq!((&coverage["value"], &coverage["source"]), (&"sessions".into(), &"--coverage".into()));
    assert_eq!(deny["value"], json!(["kill"]));
    assert!(world.ok(&["config"]).contains("--coverage"));
}
