//! `GET /v1/stream`: many subscriptions and input over one WebSocket, and peers that break every
//! rule.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    thread,
};

use serde_json::{Value, json};

use crate::{
    common::{World, eventually},
    stream_screens::{DRAWS, STEPS, followed_in_memory, is_what_tmux_prints},
    stream_sse::{bursts, bursts_on_demand},
    subscribers::{Drawn, End, Numbered, Ws, raw, speak},
};

fn cat(world: &World) -> String {
    let pane = world.window("stty -echo; echo ready; exec cat");
    world.await_output(&pane, "^ready");
    pane
}

#[test]
fn one_connection_has_many_subscriptions_each_with_its_own_panes_types_and_format() {
    let world = World::with_server();
    let (one, two) = (cat(&world), cat(&world));
    let mut ws = Ws::open(&world);
    let socket = world.socket().display().to_string();
    let begun = ws.subscribe(1, &json!({"socket": socket, "panes": [one], "types": ["output"], "since": "start"}));
    assert_eq!(begun["panes"], json!([one]));
    // A message without a server uses the one that the request named.
    ws.subscribe(2, &json!({"panes": [one, two], "types": ["output", "pane-exited"], "format": "raw"}));
    ws.subscribe(3, &json!({"panes": ["main:*"], "types": ["pane-opened"]}));
    let first = ws.event();
    assert_eq!((&first["sub"], &first["event"]["text"]), (&json!(1), &json!("ready\n")));
    world.ok(&["send-keys", "-t", &one, "-l", "hé\n"]);
    let told: BTreeMap<u64, Value> =
        [ws.event(), ws.event()].map(|message| (message["sub"].as_u64().unwrap(), message["event"].clone())).into();
    assert_eq!(told[&1]["text"], "hé\n");
    assert_eq!(raw(&told[&2]), "hé\r\n".as_bytes());
    let new = world.window("exec cat");
    let opened = ws.event();
    assert_eq!((&opened["sub"], &opened["event"]["pane"]["id"]), (&json!(3), &json!(new)));
    // No event of it comes after the response.
    assert_eq!(ws.ok(&json!({"id": 1, "op": "unsubscribe"})), json!({}));
    ws.error(&json!({"id": 1, "op": "unsubscribe"}), "NOT_FOUND");
    world.ok(&["send-keys", "-t", &one, "-l", "more\n"]);
    assert_eq!(ws.event()["sub"], 2);
    // Its number is free again.
    ws.subscribe(1, &json!({"panes": [two], "types": ["output"]}));
    world.ok(&["kill-pane", "-t", &one]);
    // Its last output may be missing.
    let lost = ws.event();
    assert_eq!((&lost["sub"], &lost["event"]["gap"]["reason"]), (&json!(2), &json!("process-ended")), "{lost}");
    let ended = ws.event();
    assert_eq!((&ended["sub"], &ended["event"]["type"]), (&json!(2), &json!("pane-exited")));
    assert_eq!(world.metric("muxtap_streams"), 1);
}

#[test]
fn input_arrives_in_the_order_in_which_it_was_sent() {
    const LINES: usize = 300;
    let world = World::with_server();
    let pane = cat(&world);
    let mut ws = Ws::open(&world);
    ws.subscribe(1, &json!({"panes": [pane], "types": ["output"]}));
    // All at once, without awaiting a response.
    for line in 0..LINES {
        ws.send(&json!({"id": line + 100, "op": "input", "pane": pane, "text": format!("line {line}\n")}));
    }
    let (mut answers, mut text) = (Vec::new(), String::new());
    while answers.len() < LINES || text.lines().count() < LINES {
        let (message, _) = ws.message();
        match message["id"].as_u64() {
            Some(id) => {
                assert_eq!(message["ok"]["pane"], pane, "{message}");
                answers.push(id);
            }
            None => text.push_str(message["event"]["text"].as_str().unwrap()),
        }
    }
    assert_eq!(answers, (100..100 + LINES as u64).collect::<Vec<_>>());
    let wanted = (0..LINES).fold(String::new(), |text, line| text + &format!("line {line}\n"));
    assert_eq!(text, wanted);
    // A wait continues after the typed text: the cursor is from before it.
    let typed = ws.ok(&json!({"id": 1, "op": "input", "pane": pane, "keys": ["x", "Enter"]}));
    world.ok(&["wait-for", "-t", &pane, "-p", "^x$", "--since", typed["cursor"].as_str().unwrap(), "-T", "20"]);
    // A request without a number gets a response without one.
    ws.send(&json!({"op": "input", "pane": pane, "hex": "79 0a"}));
    let answer = ws.find(|message| message.get("sub").is_none());
    assert!(answer.get("id").is_none() && answer["ok"]["cursor"].is_string(), "{answer}");
}

#[test]
fn waits_of_a_connection_give_their_results_and_end_with_it() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut ws = Ws::open(&world);
    let wait = |id: u64, pattern: &str| json!({"id": id, "op": "wait", "panes": [pane], "patterns": [pattern]});
    let open = || {
        let waits = world.http("GET", "/v1/waits", None).json()["waits"].clone();
        waits.as_array().unwrap().iter().map(|wait| wait["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let one = ws.ok(&wait(1, "^one$"))["wait"].as_str().unwrap().to_owned();
    let two = ws.ok(&wait(2, "^two$"))["wait"].as_str().unwrap().to_owned();
    assert_eq!(open(), [one.clone(), two.clone()]);
    assert!(ws.error(&wait(2, "^other$"), "CONFLICT").contains("wait 2"));
    // Other requests get responses meanwhile, and text is typed over the same connection.
    assert_eq!(ws.ok(&json!({"op": "ping", "id": 7})), json!({}));
    ws.ok(&json!({"id": 3, "op": "input", "pane": pane, "text": "two\n"}));
    let (told, _) = ws.message();
    assert_eq!((&told["wait"], &told["result"]["id"]), (&json!(2), &json!(two)), "{told}");
    assert_eq!((&told["result"]["outcome"], &told["result"]["pane"]), (&json!("matched"), &json!(pane)), "{told}");
    assert_eq!(told["result"]["predicates"][0]["line"], "two", "{told}");
    // It equals the response of `GET /v1/waits/{id}`.
    assert_eq!(world.http("GET", &format!("/v1/waits/{two}"), None).json(), told["result"]);
    // Its number is free again.
    let mut late = wait(2, "^never$");
    late["timeout_ms"] = json!(0);
    ws.ok(&late);
    assert_eq!(ws.message().0["result"]["outcome"], "timeout");
    assert!(ws.error(&json!({"id": 2, "op": "cancel"}), "NOT_FOUND").contains("no open wait has the id 2"));
    // A cancelled wait has a result as well.
    assert_eq!(ws.ok(&json!({"id": 1, "op": "cancel"})), json!({}));
    let (told, _) = ws.message();
    assert_eq!((&told["wait"], &told["result"]["outcome"]), (&json!(1), &json!("cancelled")), "{told}");
    ws.error(&json!({"id": 1, "op": "wait", "panes": ["%999"], "exit": true}), "NOT_FOUND");
    // Waits that are open when the connection ends are cancelled; other callers' waits continue.
    let theirs = json!({"panes": [pane], "patterns": ["^never$"], "detach": true});
    let theirs = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&theirs)).json()["id"].clone();
    let own = ws.ok(&wait(1, "^never$"))["wait"].as_str().unwrap().to_owned();
    assert_eq!(open().len(), 2);
    drop(ws);
    let ended = world.http("GET", &format!("/v1/waits/{own}?timeout_ms=40000"), None).json();
    assert_eq!(ended["outcome"], "cancelled", "{ended}");
    assert_eq!(open(), [theirs.as_str().unwrap()]);
}

#[test]
fn what_is_no_request_is_answered_with_an_error_and_the_connection_stays() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut ws = Ws::open(&world);
    for (text, id, says) in [
        ("", Value::Null, "message: "),
        ("{", Value::Null, "message: "),
        ("[]", Value::Null, "message: "),
        ("7", Value::Null, "message: "),
        ("null", Value::Null, "message: "),
        ("{\"id\":1} {\"id\":2}", Value::Null, "invalid JSON at line 1, byte 10: "),
        (&"[".repeat(100_000), Value::Null, "invalid JSON at line 1, byte 12"),
        (r#"{"id":4}"#, json!(4), "op: expected one of subscribe, "),
        (
            r#"{"id":4,"op":"shout"}"#,
            json!(4),
            "op: expected one of subscribe, unsubscribe, input, wait, cancel, ping, got \"shout\"",
        ),
        (r#"{"id":4,"op":7}"#, json!(4), "got 7"),
        (r#"{"id":"four","op":"ping"}"#, Value::Null, "id: expected a whole number, 0 or more, got \"four\""),
        (r#"{"op":"subscribe"}"#, Value::Null, "id: required field is missing"),
        (r#"{"id":4,"op":"subscribe","pane":"%0"}"#, json!(4), "pane: no such field"),
        (r#"{"id":4,"op":"subscribe","types":["noise"]}"#, json!(4), "types[0]: expected one of output, "),
        (r#"{"id":4,"op":"input","keys":["x"]}"#, json!(4), "pane: required field is missing"),
        (r#"{"id":4,"op":"subscribe","since":"yesterday"}"#, json!(4), "since"),
        (r#"{"id":4,"op":"subscribe","resume":"yesterday"}"#, json!(4), "resume"),
        (r#"{"id":4,"op":"subscribe","binary":true}"#, json!(4), "binary"),
        (r#"{"id":4,"op":"subscribe","socket":"sub/relative"}"#, json!(4), "absolute"),
        (r#"{"op":"wait","panes":["%0"],"exit":true}"#, Value::Null, "id: required field is missing"),
        (r#"{"id":4,"op":"wait","panes":["%0"]}"#, json!(4), "nothing to wait for"),
        (
            r#"{"id":4,"op":"wait","panes":["%0"],"patern":["x"]}"#,
            json!(4),
            "patern: no such field (did you mean `patterns`?); valid fields: panes, ",
        ),
        (r#"{"id":4,"op":"wait","panes":["%0"],"exit":true,"detach":true}"#, json!(4), "detach: "),
        (r#"{"id":4,"op":"cancel","wait":4}"#, json!(4), "wait: no such field; valid fields: id"),
        (r#"{"id":4,"op":"input","pane":"main","keys":["x"],"text":"y"}"#, json!(4), "exactly one"),
    ] {
        ws.send_text(text);
        let (answer, _) = ws.message();
        let error = &answer["error"];
        assert_eq!((&answer["id"], &error["code"]), (&id, &json!("INVALID_ARGUMENT")), "{text}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(says), "{text}: {answer}");
    }
    ws.send_binary(&[0, 159, 146, 150]);
    assert_eq!(ws.message().0["error"]["code"], "INVALID_ARGUMENT");
    ws.error(&json!({"id": 4, "op": "subscribe", "panes": ["nowhere:1"]}), "NOT_FOUND");
    ws.error(&json!({"id": 4, "op": "input", "pane": "%999", "keys": ["x"]}), "NOT_FOUND");
    let many: Vec<String> = (0..257).map(|number| format!("%{number}")).collect();
    ws.error(&json!({"id": 4, "op": "subscribe", "panes": many}), "RESOURCE_LIMIT");
    // None of it used the number, or a place.
    for id in 0..64 {
        ws.subscribe(id, &json!({"panes": [pane], "types": ["bell"]}));
    }
    ws.error(&json!({"id": 64, "op": "subscribe"}), "RESOURCE_LIMIT");
    ws.error(&json!({"id": 63, "op": "subscribe"}), "CONFLICT");
    assert_eq!(ws.ok(&json!({"id": 99, "op": "ping"})), json!({}));
    ws.send(&json!({"op": "ping"}));
    assert_eq!(ws.message().0, json!({"ok": {}}));
}

#[test]
fn peers_that_break_the_protocol_get_an_error_and_are_disconnected() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let limit = 1 << 20;
    let mut large = Ws::open(&world);
    // The largest accepted message.
    let padding = " ".repeat(limit - r#"{"op":"ping"}"#.len());
    large.send_text(&format!(r#"{{"op":"ping"}}{padding}"#));
    assert_eq!(large.message().0, json!({"ok": {}}));
    large.send_text(&" ".repeat(limit + 1));
    assert_eq!(large.message().0["error"]["code"], "RESOURCE_LIMIT");
    // Its head alone announces more than is ever accepted.
    let mut huge = Ws::open_bare(&world);
    huge.write_all(&[0x81, 0xff, 0, 0, 0, 0, 0, 0x40, 0, 1, 0, 0, 0, 0, b'{']).unwrap();
    let end = speak(huge).end();
    assert!(matches!(end, End::Closed(1009, _)), "{end:?}");
    drop(large);
    // A text frame that is not UTF-8, masked with zeros.
    let mut text = Ws::open_bare(&world);
    text.write_all(&[0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28]).unwrap();
    assert!(matches!(speak(text).end(), End::Closed(1007, _)));
    for broken in [
        // Not masked; reserved bits; an unknown opcode; a fragmented ping; a ping that is too long;
        // nothing like a frame.
        &[0x81_u8, 2, b'{', b'}'][..],
        &[0xf1, 0x80, 0, 0, 0, 0],
        &[0x83, 0x80, 0, 0, 0, 0],
        &[0x09, 0x80, 0, 0, 0, 0],
        &[0x89, 0xfe, 0x01, 0x00, 0, 0, 0, 0],
        b"GET / HTTP/1.1\r\nhost: m\r\n\r\n",
    ] {
        let mut stream = Ws::open_bare(&world);
        // As many bytes as each of them announces.
        stream.write_all(&[broken, &[0; 300]].concat()).unwrap();
        let end = speak(stream).end();
        assert!(matches!(end, End::Closed(1002, _)), "{broken:?}: {end:?}");
    }
    // A length that is never fulfilled reserves nothing.
    let mut lies = Ws::open_bare(&world);
    lies.write_all(&[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).unwrap();
    assert!(matches!(speak(lies).end(), End::Closed(1002 | 1009, _)));
    eventually("all are let go", || world.metric("muxtap_streams") == 0);
    assert_eq!(world.http("GET", "/health", None).status, 200);
}

#[test]
fn a_request_that_asks_for_no_websocket_is_told_so() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let plain = world.http("GET", "/v1/stream", None);
    assert_eq!((plain.status, &plain.json()["code"]), (426, &json!("INVALID_ARGUMENT")));
    assert_eq!(world.http("POST", "/v1/stream", Some(&json!({}))).status, 405);
    for headers in [
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n",
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 8\r\n",
        "connection: upgrade\r\nupgrade: h2c\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n",
    ] {
        let mut stream = UnixStream::connect(world.daemon_socket()).unwrap();
        write!(stream, "GET /v1/stream HTTP/1.1\r\nhost: m\r\n{headers}\r\n").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 400", "{headers}");
    }
}

/// Binary frames over connections that are lost again and again: together they are the pane's
/// output.
#[test]
fn who_comes_back_gets_every_byte_once_in_binary_frames() {
    let world = World::with_server();
    let pane = world.window(&bursts(60, 1000));
    world.await_output(&pane, "^ready");
    let subscribe = |world: &World, resume: Option<&str>| {
        let mut ws = Ws::open(world);
        let fields = json!({
            "panes": [pane], "types": ["output"], "format": "raw", "binary": true, "since": "start", "resume": resume
        });
        let begun = ws.subscribe(1, &fields)["resume"].as_str().unwrap().to_owned();
        (ws, begun)
    };
    let (mut ws, mut place) = subscribe(&world, None);
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    let (mut bytes, mut turns) = (Vec::new(), 0);
    while !bytes.ends_with(b"END\r\n") {
        for _ in 0..=turns % 5 {
            let (message, frame) = ws.message();
            assert!(message["event"].get("data").is_none() && message["event"].get("gap").is_none(), "{message}");
            bytes.extend(frame.expect("a binary frame"));
            message["resume"].as_str().expect("a place").clone_into(&mut place);
            if bytes.ends_with(b"END\r\n") {
                break;
            }
        }
        turns += 1;
        ws = subscribe(&world, Some(&place)).0;
    }
    assert!(turns > 10, "only {turns} connections");
    let kept = world.muxtap(&["read", "-t", &pane, "--since", "start", "--format", "raw"]).stdout;
    assert_eq!(bytes.len(), kept.len());
    assert!(bytes == kept, "what was told is not what is kept");
}

#[test]
fn a_slow_client_meets_gaps_and_is_answered_while_others_lose_nothing() {
    let world = World::with_server().with_floods_followed();
    let pane = world.window(&bursts_on_demand(100, 5000));
    world.await_output(&pane, "^ready");
    let fields = json!({"panes": [pane], "types": ["output"]});
    let (mut slow, mut fast) = (Ws::open(&world), Ws::open(&world));
    slow.subscribe(1, &fields);
    fast.subscribe(1, &fields);
    let read = |ws: &mut Ws, mut asked: u64| {
        let mut lines = Numbered::default();
        while lines.others.last().is_none_or(|line| line != "END") {
            if lines.lines == asked && asked < 500_000 {
                world.tmux(&["send-keys", "-t", &pane, "Enter"]);
                asked += 5000;
            }
            let message = ws.find(|message| message["event"].is_object());
            assert!(
                message["event"]["gap"].is_null() || message["event"]["gap"]["reason"] == "slow-reader",
                "{message}"
            );
            lines.event(&message["event"]);
        }
        lines
    };
    let lines = read(&mut fast, 0);
    assert_eq!((lines.lines, lines.gaps), (500_000, 0), "the fast one");
    // Its requests are handled although it reads nothing; the response comes after what was written
    // before.
    slow.send(&json!({"op": "input", "pane": pane, "text": "still here\n"}));
    world.await_output(&pane, "still here");
    // Everything was requested.
    let late = read(&mut slow, 500_000);
    assert!(late.gaps > 0 && late.lines < 500_000, "{} gaps, {} lines", late.gaps, late.lines);
}

#[test]
fn a_stopped_daemon_says_goodbye() {
    let world = World::with_server().with_floods_followed();
    let flood = world.window("while :; do seq 1 10000; done");
    world.await_output(&flood, "^1000$");
    let mut idle = Ws::open(&world);
    let mut busy = Ws::open(&world);
    let mut stuck = Ws::open(&world);
    for ws in [&mut busy, &mut stuck] {
        ws.subscribe(1, &json!({"panes": [flood], "types": ["output"]}));
    }
    let before = world.metric("muxtap_output_bytes_total");
    let reader = thread::spawn(move || busy.end());
    eventually("one is stuck", || world.metric("muxtap_output_bytes_total") > before + 5_000_000);
    // It has read nothing by the time the daemon has stopped.
    world.ok(&["stop"]);
    let goodbye = End::Closed(1001, "muxtap is stopping".into());
    assert_eq!(idle.end(), goodbye);
    assert_eq!(reader.join().unwrap(), goodbye);
    assert_eq!(stuck.end(), End::Cut);
}

#[test]
fn clients_that_go_or_give_up_half_of_their_connection_are_let_go() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut clients: Vec<Ws> = (0..4).map(|_| Ws::open(&world)).collect();
    for ws in &mut clients {
        ws.subscribe(1, &json!({"panes": [pane], "types": ["output"]}));
    }
    assert_eq!(world.metric("muxtap_streams"), 4);
    clients[0].half_close();
    assert_eq!(clients[0].end(), End::Cut);
    clients.remove(1);
    clients[1].close();
    assert_eq!(clients[1].end(), End::Closed(1000, String::new()));
    eventually("three have gone", || world.metric("muxtap_streams") == 1);
    world.ok(&["send-keys", "-t", &pane, "-l", "hello\n"]);
    assert_eq!(clients[2].event()["event"]["text"], "hello\n");
}

#[test]
fn a_client_can_draw_a_pane_and_type_into_it() {
    let world = World::with_server();
    let pane = world.window(DRAWS);
    world.await_output(&pane, "^ready");
    if !followed_in_memory(&world) {
        eprintln!("screens of this tmux are not followed: no events of them");
        return;
    }
    let mut ws = Ws::open(&world);
    for (id, screen) in [(0, "text"), (1, "ansi")] {
        ws.subscribe(id, &json!({"panes": [pane], "types": ["screen"], "screen": screen}));
    }
    let mut drawn = [Drawn::default(), Drawn::default()];
    for step in 0..STEPS {
        ws.send(&json!({"op": "input", "pane": pane, "keys": ["Enter"]}));
        let mark = format!("step {step} done");
        while !drawn.iter().all(|drawn| drawn.rows.last().is_some_and(|row| row.contains(&mark))) {
            let (message, _) = ws.message();
            if let Some(sub) = message["sub"].as_u64() {
                drawn[usize::try_from(sub).unwrap()].event(&message["event"]);
            }
        }
        is_what_tmux_prints(&world, &pane, &drawn[0], &drawn[1]);
    }
}
