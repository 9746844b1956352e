//! What callers see when the daemon is replaced: MCP sessions over HTTP, logins, and waits on another
//! host (`docs/upgrade.md`).
#![cfg(target_os = "linux")]

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::{
    common::{Http, LIMIT, ProcessEnd, World, eventually, type_line},
    hosts::ok,
    page::log_in,
    peers::{Far, counting},
};

fn mcp(world: &World, session: Option<&str>, message: &Value) -> Http {
    let accept = "accept: application/json, text/event-stream\r\n";
    let headers = session.map_or_else(|| accept.to_owned(), |id| format!("{accept}mcp-session-id: {id}\r\n"));
    Http::read(world.http_send_with(&headers, "POST", "/mcp", Some(message)))
}

fn begin(world: &World) -> String {
    let about = json!({ "name": "test", "version": "1" });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about } });
    let begun = mcp(world, None, &hello);
    let id = begun.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(mcp(world, Some(&id), &initialized).status, 202);
    id
}

/// T30.
#[test]
fn an_mcp_session_over_http_goes_on_after_upgrades() {
    let world = World::with_server();
    let pane = world.window("cat");
    world.ok(&["list-panes"]);
    let (used, unused, ended) = (begin(&world), begin(&world), begin(&world));
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "list", "arguments": { "server": world.socket() } } });
    let lists = |id: &str| {
        let answer = mcp(&world, Some(id), &list);
        (answer.status, String::from_utf8_lossy(&answer.body).contains(&pane))
    };
    assert_eq!(lists(&used), (200, true));
    let accept = format!("accept: application/json, text/event-stream\r\nmcp-session-id: {ended}\r\n");
    assert_eq!(Http::read(world.http_send_with(&accept, "DELETE", "/mcp", None)).status, 204);
    world.ok(&["upgrade"]);
    assert_eq!(lists(&used), (200, true));
    // It was not named in the daemon in between.
    world.ok(&["upgrade"]);
    assert_eq!((lists(&used), lists(&unused)), ((200, true), (200, true)));
    assert_eq!((lists(&ended).0, lists("00000000-0000-0000-0000-000000000000").0), (404, 404));
}

/// T25.
#[test]
fn an_event_stream_of_a_login_ends_with_an_upgrade_and_resumes() {
    let world = World::with_server();
    let pane = world.window("cat");
    world.ok(&["list-panes"]);
    let (addr, cookie) = log_in(&world, &[]);
    let stream = |last: &str| {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let path = format!("/v1/events{}&panes={}&types=output", world.query(), pane.replace('%', "%25"));
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {addr}\r\n{cookie}\r\n{last}\r\n").unwrap();
        stream
    };
    let read_to = |stream: &mut TcpStream, text: &mut String, word: &str| {
        while !text.contains(word) {
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap();
            assert!(read > 0, "it ended: {text}");
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    };
    let (mut begun, mut text) = (stream(""), String::new());
    read_to(&mut begun, &mut text, "id: ");
    type_line(&world, &pane, "before");
    read_to(&mut begun, &mut text, "before");
    let old = ProcessEnd::of(world.daemon_pid().unwrap());
    world.ok(&["upgrade"]);
    type_line(&world, &pane, "after");
    world.await_output(&pane, "after");
    begun.read_to_string(&mut text).unwrap();
    // Nothing is left to relay.
    old.wait();
    assert!(text.starts_with("HTTP/1.1 200") && !text.contains("after"), "{text}");
    let last = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
    let (mut resumed, mut rest) = (stream(&format!("last-event-id: {last}\r\n")), String::new());
    read_to(&mut resumed, &mut rest, "after");
    assert!(rest.starts_with("HTTP/1.1 200") && !rest.contains("gap"), "{rest}");
}

/// T29.
#[test]
fn waits_on_a_host_with_muxtap_go_on_after_upgrades() {
    let world = World::with_server();
    let far = Far::new();
    far.configure(&world, "env");
    let pane = counting(&world);
    let wait = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "end 3", "-T", "300"]);
    let path = format!("/v1/waits{}", world.query());
    let body = json!({ "panes": [pane], "patterns": ["end 3"], "timeout_ms": 300_000 });
    let key = "idempotency-key: 0123456789abcdef\r\n";
    let by_key = world.http_send_with(key, "POST", &path, Some(&body));
    let detached = json!({ "panes": [pane], "patterns": ["end 3"], "timeout_ms": 300_000, "detach": true });
    let detached = world.http("POST", &path, Some(&detached)).json()["id"].as_str().unwrap().to_owned();
    let of_detached = format!("/v1/waits/{}?timeout_ms=60000", detached.replace('/', "%2F"));
    let result = world.http_send("GET", &of_detached, None);
    let open = || far.world.json(&["status"])["waits"] == 3;
    eventually("the waits are open there", open);
    world.ok(&["upgrade"]);
    world.ok(&["upgrade"]);
    assert!(open(), "none began twice: {}", far.world.json(&["status"]));
    ok(&world, &["send-keys", "-t", &pane, "3", "Enter"]);
    let ended = wait.finish();
    assert_eq!((ended.status, ended.json()["outcome"].as_str()), (0, Some("matched")), "{ended:?}");
    let by_key = Http::read(by_key).json();
    assert_eq!((&by_key["id"], &by_key["outcome"]), (&json!("far/w-0123456789abcdef"), &json!("matched")));
    let result = Http::read(result).json();
    assert_eq!((&result["id"], &result["outcome"]), (&json!(detached), &json!("matched")));
}
