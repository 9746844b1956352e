//! Access to the bridge: the peer, the page, the method, the token, in this order.

use std::{
    net::{SocketAddr, UdpSocket},
    os::unix::fs::PermissionsExt as _,
};

use serde_json::json;

use crate::common::{Answer, World, run};

use super::{Bridge, Client, ORIGIN, command, error};

const LIST: &[u8] = b"{\"action\":\"list_sessions\"}";

#[test]
fn a_page_of_an_unlisted_origin_learns_nothing() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("TMUX_BRIDGE_TOKEN", "s")]);
    let mut client = bridge.client();
    let origins: [&[(&str, &str)]; 11] = [
        &[],
        &[("Origin", "")],
        &[("Origin", "null")],
        &[("Origin", "*")],
        &[("Origin", "https://evil.example")],
        &[("Origin", "http://localhost:3000")],
        &[("Origin", "https://localhost:3000/")],
        &[("Origin", "https://LOCALHOST:3000")],
        &[("Origin", "https://localhost:30000")],
        &[("Origin", ORIGIN), ("Origin", ORIGIN)],
        &[("Referer", ORIGIN)],
    ];
    for headers in origins {
        for (method, path) in [
            ("GET", "/health"),
            ("POST", "/v1/tmux"),
            ("OPTIONS", "/v1/tmux"),
            ("PUT", "/v1/tmux"),
            ("GET", "/nothing"),
        ] {
            let reply = client.ask(method, path, headers, b"");
            assert_eq!((reply.status, reply.body.as_str()), (403, "forbidden"), "{method} {path} {headers:?}");
            assert_eq!(reply.header("content-type"), Some("text/plain"));
            assert!(!reply.headers.iter().any(|(name, _)| name.starts_with("access-control-") || name == "vary"));
        }
    }
}

#[test]
fn every_listed_page_may_ask_and_is_named_in_the_answer() {
    let world = World::new();
    let listed = " http://a.example , https://b.example:8443,,x";
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("ALLOWED_ORIGINS", listed)]);
    let mut client = bridge.client();
    for origin in ["http://a.example", "https://b.example:8443", "x"] {
        let reply = client.ask("GET", "/health", &[("origin", origin)], b"");
        reply.is_for(origin);
        assert_eq!(reply.body, r#"{"ok":true,"mode":"stub","backend":"stub","sessions":0}"#);
    }
    assert_eq!(client.ask("GET", "/health", &[("Origin", ORIGIN)], b"").status, 403, "the list replaces the defaults");
    let world = World::new();
    let bridge = Bridge::stub(&world);
    for origin in [ORIGIN, "https://pi-for-excel.vercel.app"] {
        bridge.client().ask("GET", "/health", &[("ORIGIN", origin)], b"").is_for(origin);
    }
}

#[test]
fn a_client_on_another_machine_is_refused_before_anything_else() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("HOST", "0.0.0.0")]);
    // Finds this machine's address on a network: connections to it come from it. No packet is sent
    // for this.
    let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
    if probe.connect("192.0.2.1:9").is_err() {
        println!("this machine has no address but loopback: nothing to try");
        return;
    }
    let mut client = Client::connect(SocketAddr::new(probe.local_addr().unwrap().ip(), bridge.port));
    for (method, path) in [("GET", "/health"), ("OPTIONS", "/"), ("POST", "/v1/tmux")] {
        let reply = client.ask(method, path, &[("Origin", ORIGIN)], LIST);
        assert_eq!((reply.status, reply.body.as_str()), (403, "forbidden"), "{method} {path}");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    assert_eq!(bridge.client().ask("GET", "/health", &[("Origin", ORIGIN)], b"").status, 200);
}

#[test]
fn preflights_are_answered_on_any_path_without_a_token() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("TMUX_BRIDGE_TOKEN", "s")]);
    let mut client = bridge.client();
    for path in ["/health", "/v1/tmux", "/", "/nothing/here?x", "*"] {
        let reply = client.ask("OPTIONS", path, &[("Origin", ORIGIN), ("Access-Control-Request-Method", "POST")], b"");
        assert_eq!((reply.status, reply.body.as_str()), (204, ""), "{path}");
        assert_eq!(reply.header("content-type"), None);
        assert_eq!(reply.header("access-control-allow-headers"), Some("content-type,authorization"));
    }
    for (asked, allowed) in [
        ("x-one", "x-one"),
        ("X-One, authorization,content-type", "X-One, authorization,content-type"),
        (" x ", "x"),
        ("", "content-type,authorization"),
    ] {
        for (method, path) in [("OPTIONS", "/v1/tmux"), ("GET", "/health"), ("GET", "/nothing")] {
            let headers = [("Origin", ORIGIN), ("Access-Control-Request-Headers", asked)];
            let reply = client.ask(method, path, &headers, b"");
            assert_eq!(reply.header("access-control-allow-headers"), Some(allowed), "{method} {path} {asked:?}");
        }
    }
}

#[test]
fn paths_and_methods_are_looked_at_before_the_token() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("TMUX_BRIDGE_TOKEN", "s")]);
    let mut client = bridge.client();
    for method in ["POST", "PUT", "DELETE", "PATCH", "HEAD"] {
        let reply = client.ask(method, "/health", &[("Origin", ORIGIN)], b"");
        assert_eq!(reply.status, 405, "{method} /health");
        if method != "HEAD" {
            assert_eq!(reply.body, error("Method not allowed."), "{method} /health");
            reply.is_for(ORIGIN);
        }
    }
    for method in ["GET", "PUT", "DELETE", "PATCH", "HEAD"] {
        let reply = client.ask(method, "/v1/tmux?x=1", &[("Origin", ORIGIN)], b"");
        assert_eq!(reply.status, 405, "{method} /v1/tmux");
    }
    for path in
        ["/", "/health/", "/Health", "/healthz", "/v1", "/v1/", "/v1/tmux/", "/v1/TMUX", "/v1/tmux/x", "/v2/tmux"]
    {
        for method in ["GET", "POST", "PUT"] {
            let reply = client.ask(method, path, &[("Origin", ORIGIN)], LIST);
            assert_eq!((reply.status, &reply.body), (404, &error("Not found.")), "{method} {path}");
            reply.is_for(ORIGIN);
        }
    }
    for path in ["/health", "/health?", "/health?a=b&c", "/health?/v1/tmux"] {
        assert_eq!(client.ask("GET", path, &[("Origin", ORIGIN)], b"").status, 200, "{path}");
    }
}

#[test]
fn the_token_is_looked_at_before_the_body() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("TMUX_BRIDGE_TOKEN", " s3cret token ")]);
    let mut client = bridge.client();
    let mut ask = |headers: &[(&str, &str)], body: &[u8]| {
        client.ask("POST", "/v1/tmux?q", &[&[("Origin", ORIGIN)], headers].concat(), body)
    };
    for wrong in [
        &[][..],
        &[("Authorization", "")],
        &[("Authorization", "Bearer")],
        &[("Authorization", "Bearer ")],
        &[("Authorization", "bearer s3cret token")],
        &[("Authorization", "BEARER s3cret token")],
        &[("Authorization", "Bearer\ts3cret token")],
        &[("Authorization", "Basic s3cret token")],
        &[("Authorization", "s3cret token")],
        &[("Authorization", "Bearer s3cret")],
        &[("Authorization", "Bearer s3cret token2")],
        &[("Authorization", "Bearer S3CRET TOKEN")],
        &[("Authorization", "Bearer s3cret  token")],
        &[("Authorization", "Bearer x"), ("Authorization", "Bearer s3cret token")],
        &[("X-Authorization", "Bearer s3cret token")],
    ] {
        for body in [LIST, b"", b"not json", &vec![b' '; 300_000]] {
            let reply = ask(wrong, body);
            assert_eq!((reply.status, &reply.body), (401, &error("Unauthorized.")), "{wrong:?}");
            reply.is_for(ORIGIN);
        }
    }
    for right in ["Bearer s3cret token", "Bearer   s3cret token  ", "Bearer \ts3cret token"] {
        assert_eq!(ask(&[("authorization", right)], LIST).status, 200, "{right:?}");
    }
    // The first of two headers counts.
    let two = [("Authorization", "Bearer s3cret token"), ("Authorization", "Bearer x")];
    assert_eq!(ask(&two, LIST).status, 200);
    assert_eq!(ask(&[("Authorization", "Bearer s3cret token")], b"{").status, 400);
    assert_eq!(bridge.client().ask("GET", "/health", &[("Origin", ORIGIN)], b"").status, 200, "health needs none");
}

#[test]
fn without_a_token_none_is_needed_and_the_content_type_does_not_matter() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("TMUX_BRIDGE_TOKEN", "  ")]);
    let mut client = bridge.client();
    for headers in
        [&[][..], &[("Content-Type", "text/plain")], &[("Authorization", "Bearer x")], &[("Content-Type", "")]]
    {
        let headers = [&[("Origin", ORIGIN)], headers].concat();
        assert_eq!(client.ask("POST", "/v1/tmux", &headers, LIST).status, 200, "{headers:?}");
    }
}

/// One connection carries many requests, also several pipelined ones.
#[test]
fn connections_are_kept() {
    let world = World::new();
    let bridge = Bridge::stub(&world);
    let mut client = bridge.client();
    for _ in 0..20 {
        client.send("POST", "/v1/tmux", &[("Origin", ORIGIN)], LIST);
        client.send("GET", "/health", &[], b"");
    }
    for _ in 0..20 {
        assert_eq!(client.receive().unwrap().status, 200);
        assert_eq!(client.receive().unwrap().status, 403);
    }
    // A client that disconnects in the middle of a request affects no other client.
    let mut broken = bridge.client();
    broken.write(
        format!("POST /v1/tmux HTTP/1.1\r\nHost: x\r\nOrigin: {ORIGIN}\r\nContent-Length: 100\r\n\r\n{{").as_bytes(),
    );
    drop(broken);
    assert_eq!(client.post(LIST).status, 200);
}

/// Sends one request by bash: with `wait` it prints the response's head, otherwise it closes
/// immediately.
const SENDER: &str = r#"
exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 9
body='{"action":"create_session","session":"stolen"}'
printf 'POST /v1/tmux HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\nContent-Length: %s\r\n\r\n%s' "$2" "${#body}" "$body" >&3
[ "$3" = wait ] || exit 0
while IFS= read -r line <&3; do printf '%s\n' "$line"; [ "$line" != $'\r' ] || break; done
head -c 9 <&3
"#;

/// Sends a request as this world's user, or, by `setpriv`, as another user.
fn sends(world: &World, port: u16, is_other: bool, how: &str) -> Answer {
    let mut sender = if is_other {
        let mut setpriv = world.command("setpriv");
        setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash"]);
        setpriv
    } else {
        world.command("bash")
    };
    run(sender.current_dir("/").args(["-c", SENDER, "-", &port.to_string(), ORIGIN, how]))
}

fn can_play_another_user() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("not tested: only root can play another user");
    }
    is_root
}

/// A bridge with default settings accepts nothing from another user of this machine.
#[test]
#[cfg(target_os = "linux")]
fn another_user_of_this_machine_is_refused() {
    if !can_play_another_user() {
        return;
    }
    let world = World::new();
    for vars in [&[][..], &[("TMUX_BRIDGE_MODE", "stub")], &[("HOST", "::"), ("TMUX_BRIDGE_MODE", "stub")]] {
        let bridge = Bridge::with(&world, vars);
        let sessions = || bridge.ok(&json!({"action": "list_sessions"}))["sessions"].clone();
        let theirs = sends(&world, bridge.port, true, "wait");
        let answer = theirs.text();
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("forbidden"), "{vars:?}: {theirs:?}");
        assert!(answer.contains("text/plain") && !answer.to_lowercase().contains("access-control"), "{answer}");
        assert_eq!(sessions(), json!([]), "{vars:?}");
        // The attack itself works.
        let own = sends(&world, bridge.port, false, "wait");
        assert!(own.text().starts_with("HTTP/1.1 200 "), "{vars:?}: {own:?}");
        assert_eq!(sessions(), json!(["stolen"]), "{vars:?}");
        bridge.ok(&json!({"action": "kill_session", "session": "stolen"}));
    }
}

/// A closed socket is listed as one of user 0.
#[test]
#[cfg(target_os = "linux")]
fn a_client_that_sends_and_closes_at_once_does_not_pass_for_root() {
    if !can_play_another_user() {
        return;
    }
    let world = World::new();
    let bridge = Bridge::stub(&world);
    for _ in 0..20 {
        assert_eq!(sends(&world, bridge.port, true, "leave").status, 0);
        let health = bridge.client().ask("GET", "/health", &[("Origin", ORIGIN)], b"");
        assert!(health.body.contains(r#""sessions":0}"#), "{health:?}");
    }
    // Connections whose lookup is pending when the bridge ends have no effect either.
    assert_eq!(bridge.stop().status, 0);
}

/// Another user's connection is refused with the token too.
#[test]
#[cfg(target_os = "linux")]
fn a_token_does_not_admit_another_user() {
    if !can_play_another_user() {
        return;
    }
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("TMUX_BRIDGE_TOKEN", "s3cret")]);
    assert!(sends(&world, bridge.port, true, "wait").text().starts_with("HTTP/1.1 403 "));
    assert!(sends(&world, bridge.port, false, "wait").text().starts_with("HTTP/1.1 401 "));
}

/// A page whose own name resolves to this machine sends that name.
#[test]
fn a_host_name_of_another_machine_is_refused() {
    let world = World::new();
    let bridge = Bridge::stub(&world);
    let mut client = bridge.client();
    let port = bridge.port;
    let mut ask = |hosts: &[&str], path: &str| {
        let mut headers = vec![("Origin", ORIGIN)];
        headers.extend(hosts.iter().map(|host| ("Host", *host)));
        client.ask("POST", path, &headers, LIST)
    };
    for host in ["localhost", &format!("LOCALHOST:{port}"), &format!("127.0.0.1:{port}"), &format!("[::1]:{port}")] {
        assert_eq!(ask(&[host], "/v1/tmux").status, 200, "{host}");
    }
    for host in ["", "x", "evil.example", "[::1].evil.com", "localhost.evil.com", "u@localhost", "localhost:3341x"] {
        let reply = ask(&[host], "/v1/tmux");
        assert_eq!((reply.status, reply.body.as_str()), (403, "forbidden"), "{host}");
        assert_eq!(reply.header("access-control-allow-origin"), None, "{host}");
    }
    assert_eq!(ask(&["localhost", "evil.example"], "/v1/tmux").status, 403);
    assert_eq!(ask(&["localhost"], "http://evil.example/v1/tmux").status, 403);
    drop(bridge);
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("HOST", "0.0.0.0")]);
    let named = [("Origin", ORIGIN), ("Host", "0.0.0.0:1")];
    assert_eq!(bridge.client().ask("POST", "/v1/tmux", &named, LIST).status, 200, "where it listens");
}

/// `--token` is enough: the token is created once, kept private, and never printed.
#[test]
fn the_token_flag_creates_a_private_token() {
    let world = World::new();
    let file = world.path("state/muxtap/bridge-token");
    let started = |vars: &[(&str, &str)]| {
        let mut bridge = Bridge::start(&world, command(&world, vars).arg("--token"));
        let auth = bridge.process.line().unwrap();
        (bridge, auth)
    };
    let asks = |bridge: &Bridge<'_>, token: &str| {
        let token = format!("Bearer {token}");
        bridge.client().ask("POST", "/v1/tmux", &[("Origin", ORIGIN), ("Authorization", &token)], LIST).status
    };
    let (bridge, auth) = started(&[]);
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(auth, format!("auth: bearer token required (in {})", file.display()));
    assert_eq!((asks(&bridge, &token), asks(&bridge, "x"), asks(&bridge, "")), (200, 401, 401));
    let stopped = bridge.stop();
    assert!(!stopped.stderr.contains(&token) && !stopped.stderr.contains("--token"), "{}", stopped.stderr);
    // The token stays the same until it is removed.
    let (bridge, _) = started(&[]);
    assert_eq!(asks(&bridge, &token), 200);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(asks(&bridge, &token), 401);
    drop(bridge);
    // A token in the environment wins, and none is created.
    let (bridge, auth) = started(&[("TMUX_BRIDGE_TOKEN", "given")]);
    assert_eq!(auth, "auth: bearer token required (TMUX_BRIDGE_TOKEN)");
    assert_eq!((asks(&bridge, "given"), file.exists()), (200, false));
    drop(bridge);
    // A file that others can read is not used.
    std::fs::write(&file, "sixteen-or-more-visible").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = run(command(&world, &[]).arg("--token"));
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stderr.contains("open to others") && !refused.stderr.contains("muxtap token"), "{refused:?}");
}

/// What contract v1 leaves open is reported once, beside the contract's own lines.
#[test]
fn weaknesses_of_the_contract_are_reported_at_startup() {
    let world = World::new();
    let said = |vars: &[(&str, &str)]| Bridge::with(&world, vars).stop().stderr;
    let plain = said(&[]);
    assert!(plain.contains("requires no token") && plain.contains("`muxtap bridge --token`"), "{plain}");
    let with_token = said(&[("TMUX_BRIDGE_TOKEN", "s3cret")]);
    assert!(!with_token.contains("requires no token"), "{with_token}");
    let framed = said(&[("ALLOWED_ORIGINS", "https://a.example,null")]);
    assert!(framed.contains("ALLOWED_ORIGINS contains `null`"), "{framed}");
}

/// The token is not in the environment of programs that a page starts.
#[test]
fn the_token_does_not_reach_the_terminals() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_TOKEN", "s3cret"), ("OTHER", "there")]);
    let headers = [("Origin", ORIGIN), ("Authorization", "Bearer s3cret")];
    let act = |body: serde_json::Value| {
        let reply = bridge.client().ask("POST", "/v1/tmux", &headers, body.to_string().as_bytes());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    act(json!({"action": "create_session", "session": "a"}));
    let text = "echo \"<$OTHER$TMUX_BRIDGE_TOKEN>\"";
    let shown = act(json!({"action": "send_and_capture", "session": "a", "text": text, "enter": true,
        "wait_for": "^<there.*>$", "timeout_ms": 20000}));
    let output = shown["output"].as_str().unwrap().to_owned();
    assert!(output.contains("<there>"), "{output}");
    let environment = world.tmux(&["show-environment", "-g"]);
    assert!(!environment.contains("s3cret"), "{environment}");
}
