//! Permissions over TCP, and of agents.

use std::{fs, net::TcpStream};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest as _};

use super::{Page, hello, page};
use crate::{
    common::{Background, LIMIT, World, eventually},
    http_port::{asked, token},
    mcp::Client,
};

/// Over TCP the daemon's token logs devices in, and a device's token is valid for that device only.
#[test]
fn over_tcp_a_device_logs_in_and_acts_only_for_itself() {
    let world = World::with_server();
    let mut command = world.plain_muxtap_command();
    let _daemon = Background::start(command.args(["serve", "--http", "127.0.0.1:0"]));
    eventually("the daemon answers", || world.daemon_pid().is_some());
    let status = world.http("GET", "/v1/status", None).json();
    let addr = status["http"][0].as_str().unwrap().split("://").nth(1).unwrap().to_owned();
    let bootstrap = token(&world);
    let login = |device: &str, scopes: &Value| {
        let body = json!({"deviceId": device, "deviceLabel": device, "deviceType": "browser", "scopes": scopes});
        let answer = asked(&addr, &bootstrap, "POST", "/api/device-sessions", Some(&body));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let open = |token: &str, hello: &Value| {
        let stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut request = format!("ws://{addr}/v1/devices/ws").into_client_request().unwrap();
        let bearer = format!("muxtap, bearer.{token}").parse().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", bearer);
        let (socket, _) = tungstenite::client::client(request, stream).unwrap();
        let mut page = Page { socket, id: hello["deviceId"].as_str().unwrap().into() };
        page.say(hello);
        let first = page.next();
        (page, first)
    };
    let session = login("laptop", &json!([]));
    let own = session["token"].as_str().unwrap();
    assert!(session["expiresAt"].is_u64() && session["scopes"] == json!(["layout-write"]), "{session}");
    // The daemon's token is not a device's; a device's token is not another device's.
    assert_eq!(open(&bootstrap, &hello("laptop")).1["code"], "UNAUTHORIZED");
    assert_eq!(open(own, &hello("phone")).1["code"], "UNAUTHORIZED");
    let mut claimed = hello("laptop");
    claimed["token"] = "mxd_forged.forged".into();
    assert_eq!(open(&bootstrap, &claimed).1["code"], "UNAUTHORIZED");
    claimed["token"] = own.into();
    assert_eq!(open(&bootstrap, &claimed).1["type"], "welcome");
    let (mut laptop, welcome) = open(own, &hello("laptop"));
    assert_eq!(welcome["type"], "welcome");
    // An agent runs what a terminal runs.
    laptop.say(&json!({"type": "sdk.create", "requestId": "s", "cwd": "/"}));
    let refused = laptop.next_of("error");
    assert_eq!((&refused["code"], &refused["requestId"]), (&json!("UNAUTHORIZED"), &json!("s")), "{refused}");
    // A device's token opens only the devices' routes, issues no tokens, and sends no requests to
    // another device.
    let code = |token: &str, method: &str, path: &str, body: Option<&Value>| {
        let answer = asked(&addr, token, method, path, body);
        (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned())
    };
    let unauthorized = (401, "UNAUTHORIZED".to_owned());
    assert_eq!(code(own, "GET", "/v1/devices", None).0, 200);
    assert_eq!(code(own, "GET", "/v1/status", None), unauthorized);
    let body = json!({"deviceId": "thief", "deviceLabel": "t", "deviceType": "cli"});
    assert_eq!(code(own, "POST", "/api/device-sessions", Some(&body)), unauthorized);
    let mut phone = page(&world, "phone");
    let ask = |caller: &str| {
        json!({"callerDeviceId": caller, "command": "select-tab", "args": {"target": "tab:t1"},
                                    "expectedRevision": 1})
    };
    for (token, caller) in [(own, "laptop"), (own, "phone"), (bootstrap.as_str(), "laptop")] {
        assert_eq!(code(token, "POST", "/v1/devices/phone/rpc", Some(&ask(caller))), unauthorized, "{caller}");
    }
    let publish = json!({"deviceLabel": "x", "deviceType": "cli", "snapshot": {"workspaceRevision": 1, "capturedAt": 1,
                         "tabs": [], "panes": []}});
    assert_eq!(code(own, "PUT", "/v1/devices/phone/workspace", Some(&publish)), unauthorized);
    assert_eq!(code(own, "PUT", "/v1/devices/laptop/workspace", Some(&publish)).0, 200);
    phone.say(&json!({"type": "nothing"}));
    while phone.next()["type"] != "error" {}
    // With the scopes it does.
    let able = login("tablet", &json!(["remote-control", "terminals"]));
    let able = able["token"].as_str().unwrap();
    assert_eq!(code(able, "GET", "/v1/status", None).0, 200);
    let asking = std::thread::scope(|scope| {
        let asking = scope.spawn(|| asked(&addr, able, "POST", "/v1/devices/phone/rpc", Some(&ask("tablet"))));
        phone.answers("select-tab", &json!({}), 2);
        asking.join().unwrap()
    });
    assert_eq!(asking.json()["appliedRevision"], 2, "{asking:?}");
    // A refresh token works once; reuse ends the family, its connection too.
    let refresh = |session: &Value| {
        let body = json!({"refreshToken": session["refreshToken"]});
        asked(&addr, &bootstrap, "POST", "/api/device-sessions/refresh", Some(&body))
    };
    let next = refresh(&session);
    assert_eq!(next.status, 200, "{next:?}");
    assert_eq!(code(own, "GET", "/v1/devices", None), unauthorized);
    assert_eq!(refresh(&session).status, 401);
    let next = next.json();
    assert_eq!(code(next["token"].as_str().unwrap(), "GET", "/v1/devices", None), unauthorized);
    assert_eq!(refresh(&next).status, 401);
    assert_eq!(laptop.next_of("error")["code"], "UNAUTHORIZED");
    assert_eq!(laptop.next(), Value::Null);
    // Logs out.
    assert_eq!(code(able, "DELETE", "/api/device-sessions/current", None).0, 200);
    assert_eq!(code(able, "GET", "/v1/devices", None), unauthorized);
    assert_eq!(code(&bootstrap, "DELETE", "/api/device-sessions/current", None), unauthorized);
    // Tokens are in none of the daemon's files.
    let kept = fs::read_to_string(world.path("m.sock.devices/sessions.json")).unwrap();
    assert!(!kept.contains(&own[own.len() - 20..]));
}

#[test]
fn agents_see_devices_and_change_workspaces_by_two_tools() {
    let world = World::with_server();
    let mut laptop = page(&world, "laptop");
    let mut agent = Client::started(world.spawn(&["mcp", "--tools", "devices"]));
    let listed = agent.ask("tools/list", &json!({}))["result"]["tools"].clone();
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["devices", "workspace"]);
    assert!(listed.to_string().len() < 3_000, "{}", listed.to_string().len());
    assert_eq!(agent.call("devices", &json!({}))["devices"][0]["deviceId"], "laptop");
    let open = json!({"device": "laptop", "command": "open-browser", "args": {"target": "pane:p1", "url": "http://a/"},
                      "expected_revision": 4});
    let answered = std::thread::spawn(move || {
        let request = laptop.answers("open-browser", &json!({"pane": {"id": "p1"}}), 5);
        (laptop, request)
    });
    let changed = agent.call("workspace", &open);
    let (laptop, request) = answered.join().unwrap();
    assert_eq!((&changed["appliedRevision"], &request["callerLabel"]), (&json!(5), &json!("an agent (MCP)")));
    agent.fails("NOT_FOUND", "workspace", &json!({"device": "nobody"}));
    drop(laptop);
    eventually("it is gone", || agent.call("devices", &json!({}))["devices"][0]["online"] == false);
    agent.fails("DEVICE_OFFLINE", "workspace", &open);
    agent.fails("DEVICE_OFFLINE", "workspace", &json!({"device": "laptop"}));
}

/// A read-only muxtap returns workspaces and changes none.
#[test]
fn a_read_only_muxtap_relays_no_change() {
    let world = World::with_server();
    let mut command = world.plain_muxtap_command();
    let _daemon = Background::start(command.args(["serve", "--allow", "read"]));
    eventually("the daemon answers", || world.daemon_pid().is_some());
    let (mut laptop, mut phone) = (page(&world, "laptop"), page(&world, "phone"));
    let ask =
        json!({"callerDeviceId": "cli", "command": "select-tab", "args": {"target": "tab:t1"}, "expectedRevision": 1});
    let refused = world.http("POST", "/v1/devices/laptop/rpc", Some(&ask));
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("READ_ONLY")));
    phone.say(&json!({"type": "layout.rpc.request", "requestId": "r1", "callerDeviceId": "phone",
                      "targetDeviceId": "laptop", "command": "select-tab", "args": {"target": "tab:t1"},
                      "expectedRevision": 1}));
    assert_eq!(phone.next_of("layout.rpc.result")["error"]["code"], "UNAUTHORIZED");
    // Nor does it keep what a device publishes, by any way.
    phone.publishes(2);
    assert_eq!(phone.next_of("error")["code"], "READ_ONLY");
    let publish = json!({"deviceLabel": "x", "deviceType": "cli", "snapshot": {"workspaceRevision": 1, "capturedAt": 1,
                         "tabs": [], "panes": []}});
    assert_eq!(world.http("PUT", "/v1/devices/phone/workspace", Some(&publish)).json()["code"], "READ_ONLY");
    assert!(!world.path("m.sock.devices/snapshots").exists());
    let reading = std::thread::scope(|scope| {
        let reading = scope.spawn(|| world.http("GET", "/v1/devices/laptop/workspace", None));
        let empty = json!({"workspaceRevision": 3, "capturedAt": 1, "tabs": [], "panes": []});
        laptop.answers("get-workspace", &empty, 3);
        reading.join().unwrap()
    });
    assert_eq!((&reading.json()["source"], &reading.json()["workspaceRevision"]), (&json!("live"), &json!(3)));
}
