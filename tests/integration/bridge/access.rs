//! Access to the bridge: the peer, the page, the method, the token, in this order.

use std::net::{SocketAddr, UdpSocket};

use crate::common::World;

use super::{Bridge, Client, ORIGIN, error};

const LIST: &[u8] = b"{\"action\":\"list_sessions\"}";

#[test]
fn a_page_that_is_not_listed_learns_nothing() {
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
fn who_is_not_on_this_machine_is_refused_before_anything_else() {
    let world = World::new();
    let bridge = Bridge::with(&world, &[("TMUX_BRIDGE_MODE", "stub"), ("HOST", "0.0.0.0")]);
    // Our own address on a network: connections to it come from it. No packet is sent for this.
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
    // The first of two is the one that counts.
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

/// One connection, many requests, also several at once behind each other.
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
    // A client that goes away in the middle of a request takes nobody with it.
    let mut broken = bridge.client();
    broken.write(
        format!("POST /v1/tmux HTTP/1.1\r\nHost: x\r\nOrigin: {ORIGIN}\r\nContent-Length: 100\r\n\r\n{{").as_bytes(),
    );
    drop(broken);
    assert_eq!(client.post(LIST).status, 200);
}
