//! Devices and workspaces: the command line as a device, pages as real WebSocket clients, and the
//! permissions of each.

mod access;
mod hybrid;
mod owners;
mod terminals;
mod tokens;

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::PathBuf,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use crate::common::{Answer, Background, LIMIT, World, eventually, run};

/// A device that is a real WebSocket client, controlled by the test.
struct Page<S> {
    socket: WebSocket<S>,
    id: String,
}

fn hello(id: &str) -> Value {
    json!({
        "type": "hello", "deviceId": id, "deviceLabel": format!("the page {id}"), "deviceType": "browser",
        "workspaceRevision": 1, "remoteControl": "always",
        "capabilities": {"layoutOwnershipV1": true, "layoutRpcV1": true, "devicePresenceV1": true},
    })
}

/// Opens the connection without sending a message.
fn silent(world: &World, id: &str) -> Page<UnixStream> {
    // The command starts the daemon.
    world.ok(&["workspace", "health"]);
    let stream = UnixStream::connect(world.daemon_socket()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let (socket, _) = tungstenite::client::client("ws://muxtap/v1/devices/ws", stream).unwrap();
    Page { socket, id: id.into() }
}

/// Opens a page's connection and completes its handshake.
fn page(world: &World, id: &str) -> Page<UnixStream> {
    let mut page = silent(world, id);
    page.say(&hello(id));
    assert_eq!(page.next()["type"], "welcome");
    page
}

impl<S: Read + Write> Page<S> {
    fn say(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).unwrap();
    }

    /// Returns the next message; null at the end.
    fn next(&mut self) -> Value {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return serde_json::from_str(&text).unwrap(),
                Ok(Message::Close(_)) | Err(_) => return Value::Null,
                Ok(_) => {}
            }
        }
    }

    /// Returns the next message of a type.
    fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next();
            assert!(!message.is_null(), "the connection ended before {kind}");
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// Receives the next request and answers it.
    fn answers(&mut self, command: &str, result: &Value, revision: u64) -> Value {
        let request = self.next_of("layout.rpc.request");
        assert_eq!(request["command"], command, "{request}");
        let id = &request["requestId"];
        self.say(&json!({"type": "layout.rpc.ack", "requestId": id}));
        self.say(&json!({"type": "layout.rpc.result", "requestId": id, "ok": true, "result": result,
                         "appliedRevision": revision}));
        request
    }

    /// Publishes a workspace of one tab.
    fn publishes(&mut self, revision: u64) {
        let id = &self.id;
        let message = json!({
            "type": "layout.snapshot.updated", "deviceId": id, "workspaceRevision": revision, "capturedAt": revision,
            "tabs": [{"id": "t1", "ownerDeviceId": id, "title": "docs"}], "panes": [{"id": "p2", "ownerDeviceId": id}],
        });
        self.say(&message);
    }
}

/// Calls `workspace`, which must succeed. Returns its response.
fn workspace(world: &World, args: &[&str]) -> Value {
    let answer = world.muxtap(&[&["--json", "workspace"], args].concat());
    assert_eq!(answer.status, 0, "{args:?}: {answer:?}");
    answer.json()
}

/// Calls `workspace`, which must fail with this code. Returns the error.
fn refused(world: &World, code: &str, args: &[&str]) -> Value {
    failed(&world.muxtap(&[&["--json", "workspace"], args].concat()), code)
}

fn failed(answer: &Answer, code: &str) -> Value {
    let error = answer.json();
    assert_eq!(error["code"], code, "{answer:?}");
    assert_eq!(answer.status, if code == "TIMEOUT" { 124 } else { 1 }, "{answer:?}");
    assert!(error["message"].is_string() && answer.stderr.is_empty(), "{answer:?}");
    error
}

/// Builds a call of the program under the name `freshell`.
fn freshell(world: &World, args: &[&str]) -> Command {
    let link = world.path("freshell");
    if !link.exists() {
        let program = world.plain_muxtap_command().get_program().to_owned();
        std::os::unix::fs::symlink(program, &link).unwrap();
    }
    let mut command = world.command(&link);
    command.arg("-S").arg(world.socket()).args(args);
    command
}

fn id(answer: &Value, kind: &str) -> String {
    answer[kind]["id"].as_str().unwrap_or_else(|| panic!("no {kind}: {answer}")).to_owned()
}

/// Returns the pane of a terminal's id.
fn pane_of(terminal: &str) -> &str {
    terminal.rsplit('/').next().unwrap()
}

/// Returns the selector of a pane of the world's server, whose socket has no name.
fn terminal_of(world: &World, pane: &str) -> String {
    format!("terminal:{}/{pane}", world.socket().display())
}

fn own_id(world: &World) -> String {
    let file = world.path("m.sock.devices/cli-device.json");
    let identity: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    identity["deviceId"].as_str().unwrap().to_owned()
}

/// Returns the audit log's requests, once it has this many.
fn audited(file: &PathBuf, count: usize) -> Vec<Value> {
    let read = || -> Vec<Value> {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    eventually("the audit log has the lines", || read().len() >= count);
    read()
}

/// A page starts an agent, prompts it and follows it, on its own connection.
#[test]
fn a_page_talks_to_an_agent() {
    let world = World::new();
    crate::agent_sessions::configure(&world, "");
    let mut desk = page(&world, "desk");
    let request = |desk: &mut Page<UnixStream>, kind: &str, id: &str, more: &Value| {
        let mut message = json!({"type": kind, "requestId": id});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        desk.say(&message);
    };
    let work = world.path("work");
    request(&mut desk, "sdk.create", "1", &json!({"cwd": work, "env": {"ACP_ID": "one"}}));
    let made = desk.next_of("sdk.create.ok");
    assert_eq!((&made["requestId"], &made["session"]), (&json!("1"), &json!("session:scripted:one")), "{made}");
    let session = json!({"session": made["session"]});
    request(&mut desk, "sdk.attach", "2", &session);
    assert_eq!(desk.next_of("sdk.attach.ok")["requestId"], "2");
    request(&mut desk, "codingcli.input", "3", &json!({"session": made["session"], "text": "say over here"}));
    let said = loop {
        let event = desk.next_of("session.event");
        if event["event"]["type"] == "message" {
            break event;
        }
    };
    assert_eq!((&said["session"], &said["event"]["text"]), (&made["session"], &json!("over here")), "{said}");
    assert!(said["cursor"].is_string(), "{said}");
    while desk.next_of("session.event")["event"]["type"] != "outcome" {}
    request(&mut desk, "sdk.interrupt", "4", &session);
    assert_eq!(desk.next_of("sdk.interrupt.ok")["requestId"], "4");
    request(&mut desk, "sdk.send", "5", &json!({"session": "session:scripted:nobody", "text": "x"}));
    let missing = desk.next_of("error");
    assert_eq!((&missing["code"], &missing["requestId"]), (&json!("NOT_FOUND"), &json!("5")), "{missing}");
    request(&mut desk, "sdk.kill", "6", &session);
    assert_eq!(desk.next_of("sdk.kill.ok")["requestId"], "6");
    // The same session continues for other callers, regardless of this connection.
    assert!(world.ok(&["agent-session", "list"]).contains("session:scripted:one"));
}

#[test]
fn a_command_line_owns_its_workspace_and_the_engine_its_terminals() {
    let world = World::with_server();
    let made = workspace(&world, &["new-tab", "-n", "build", "--shell", "stty -echo; echo ready; exec cat"]);
    let (tab, pane) = (id(&made, "tab"), id(&made, "pane"));
    let terminal = made["terminalId"].as_str().unwrap().to_owned();
    assert_eq!(made["pane"]["contentRef"], json!({"terminalId": terminal}));
    assert!(made["idempotencyKey"].is_string() && made["appliedRevision"] == 3, "{made}");
    // The terminal is a tmux pane, in a session that is named after the device.
    let own = own_id(&world);
    let session = world.tmux(&["display-message", "-p", "-t", pane_of(&terminal), "#{session_name}"]);
    assert_eq!(session, format!("device-{own}"));
    // By its pane, which needs the owner, and by its terminal, which does not.
    let (of_pane, of_terminal) = (format!("pane:{pane}"), format!("terminal:{terminal}"));
    let ready = workspace(&world, &["wait-for", "--target", &of_terminal, "-p", "^ready", "-T", "40"]);
    assert_eq!(ready["outcome"], "matched", "{ready}");
    workspace(&world, &["send-keys", "--target", &of_pane, "hello there", "Enter"]);
    let both = ["wait-for", "--target", &of_pane, "-p", "^hello there$", "--stable", "0.1", "-T", "40"];
    assert_eq!(workspace(&world, &both)["predicates"].as_array().unwrap().len(), 2);
    let shown = workspace(&world, &["capture-pane", "--target", &of_terminal, "-S", "-"]);
    assert!(shown["text"].as_str().unwrap().contains("hello there"), "{shown}");
    let timeout = refused(&world, "TIMEOUT", &["wait-for", "-t", &of_terminal, "-p", "never", "-T", "0.2"]);
    assert_eq!(timeout["details"]["predicates"][0]["latched"], false, "{timeout}");
    refused(&world, "INVALID_ARGUMENT", &["wait-for", "-t", &of_terminal]);
    refused(&world, "INVALID_TARGET", &["send-keys", "-t", "main:0.0", "x"]);
    refused(&world, "INVALID_TARGET", &["send-keys", "-t", "%0", "x"]);
    // Splits, with their undo: the engine does not know such a server.
    let split = workspace(&world, &["split-pane", "-t", &of_pane, "--direction", "vertical", "--shell", "--json"]);
    let second = format!("pane:{}", id(&split, "pane"));
    assert_eq!(split["pane"]["kind"], "terminal", "{split}");
    let before = workspace(&world, &["list-panes"]);
    let gone = world.path("no/such/t");
    let mut elsewhere = world.plain_muxtap_command();
    elsewhere.arg("-S").arg(&gone).args(["--json", "workspace", "split-pane", "-t", &of_pane]);
    let error = run(elsewhere.args(["--direction", "horizontal", "--shell", "sh"]));
    assert_eq!((error.status, error.json()["stage"].as_str()), (1, Some("engine")), "{error:?}");
    let after = workspace(&world, &["list-panes"]);
    assert_eq!(after["panes"].as_array().unwrap().len(), before["panes"].as_array().unwrap().len());
    // Reserved and released: two changes.
    let revision = |answer: &Value| answer["workspaceRevision"].as_u64().unwrap();
    assert_eq!(revision(&after), revision(&before) + 2);
    // The layout.
    workspace(&world, &["resize-pane", "-t", &second, "-y", "30"]);
    workspace(&world, &["swap-pane", "--source", &of_pane, "-t", &second]);
    let opened = workspace(&world, &["open-browser", "-t", &second, "http://localhost:3000/"]);
    assert_eq!(opened["pane"]["kind"], "browser");
    workspace(&world, &["navigate", "-t", "pane-index:0", "--tab", "tab-name:build", "http://localhost:3000/a"]);
    refused(&world, "INVALID_ARGUMENT", &["navigate", "-t", &second, "javascript:alert(1)"]);
    workspace(&world, &["attach-terminal", "-t", &of_terminal, "--to", &second]);
    refused(&world, "NOT_FOUND", &["attach-terminal", "-t", &terminal_of(&world, "%999"), "--to", &second]);
    workspace(&world, &["rename-tab", "-t", &format!("tab:{tab}"), "made"]);
    let at = revision(&workspace(&world, &["list-tabs"])).to_string();
    workspace(&world, &["select-tab", "-t", "tab-index:0", "--expected-revision", &at]);
    let conflict =
        refused(&world, "REVISION_CONFLICT", &["select-tab", "-t", "tab-index:0", "--expected-revision", &at]);
    assert_eq!(conflict["details"]["currentRevision"].as_u64(), Some(at.parse::<u64>().unwrap() + 1));
    let words = ["display", "-p", "%deviceId %tabTitle %paneKind %terminalId%% %ownerOnline", "-t", &second];
    assert_eq!(world.ok(&[&["workspace"], &words[..]].concat()), format!("{own} made terminal {terminal}% true"));
    refused(&world, "INVALID_ARGUMENT", &["display", "-p", "%nope"]);
    // A repeated key creates no second terminal.
    let keyed = ["new-tab", "-n", "once", "--idempotency-key", "k1"];
    let (first, again) = (workspace(&world, &keyed), workspace(&world, &keyed));
    assert_eq!((&first["terminalId"], &first["pane"]["id"]), (&again["terminalId"], &again["pane"]["id"]));
    // A closed tab's terminal remains.
    workspace(&world, &["respawn-pane", "-t", &second]);
    workspace(&world, &["kill-tab", "-t", "tab-name:made"]);
    assert!(world.panes().iter().any(|pane| pane == pane_of(&terminal)));
    let listed = workspace(&world, &["list-terminals"]);
    assert!(
        listed["terminals"].as_array().unwrap().iter().any(|one| one["terminalId"] == terminal.as_str()),
        "{listed}"
    );
    workspace(&world, &["kill-terminal", "-t", &of_terminal]);
    refused(&world, "NOT_FOUND", &["kill-terminal", "-t", &of_terminal]);
    // The daemon has what the page published, although the page is disconnected.
    let stale = world.http("GET", &format!("/v1/devices/{own}/workspace?allow_stale=true"), None).json();
    assert_eq!((&stale["source"], &stale["ownerOnline"]), (&json!("cache"), &json!(false)), "{stale}");
    assert_eq!(stale["tabs"], workspace(&world, &["list-tabs"])["tabs"]);
    let offline = world.http("GET", &format!("/v1/devices/{own}/workspace"), None);
    assert_eq!((offline.status, &offline.json()["code"]), (424, &json!("DEVICE_OFFLINE")));
    assert_eq!(workspace(&world, &["device-status"])["deviceId"], own.as_str());
    assert_eq!(workspace(&world, &["health"]), json!({"ok": true}));
    assert!(workspace(&world, &["lan-info"])["socket"].is_string());
    assert_eq!(world.muxtap(&["workspace", "split-pane"]).status, 2);
    // Without --json the object is printed to stderr.
    let plain = world.muxtap(&["workspace", "select-tab", "-t", "tab:t999"]);
    assert_eq!((plain.status, plain.error()["code"].as_str()), (1, Some("NOT_FOUND")));
}

/// A terminal gets long-lived tokens neither from the command's environment nor from that of the
/// daemon, which the command starts.
#[test]
fn no_terminal_gets_a_long_lived_token() {
    let mut world = World::new();
    world.set("AUTH_TOKEN", "bootstrap-bootstrap");
    world.set("PLATFORM_TOKEN", "platform-platform");
    world.set("KEPT", "kept");
    let made = workspace(&world, &["new-tab", "--shell", "env; echo that was all; exec cat"]);
    let terminal = format!("terminal:{}", made["terminalId"].as_str().unwrap());
    workspace(&world, &["wait-for", "-t", &terminal, "-p", "^that was all", "-T", "40"]);
    let shown = workspace(&world, &["capture-pane", "-t", &terminal, "-S", "-"])["text"].as_str().unwrap().to_owned();
    assert!(shown.contains("KEPT=kept"), "{shown}");
    assert!(!shown.contains("bootstrap-bootstrap") && !shown.contains("platform-platform"), "{shown}");
    // Neither does a terminal that a page created, for which the daemon starts the server.
    let other = world.path("other");
    world.also_end(&other);
    let path = format!("/v1/sessions?socket={}", other.display());
    let made = world.http("POST", &path, Some(&json!({"name": "page"})));
    assert_eq!(made.status, 200, "{made:?}");
    let environment = world.tmux_at(&other, &["show-environment", "-g"]);
    assert!(environment.contains("PATH=") && !environment.contains("KEPT"), "{environment}");
    assert!(
        !environment.contains("bootstrap-bootstrap") && !environment.contains("platform-platform"),
        "{environment}"
    );
}

#[test]
fn concurrent_commands_are_all_applied() {
    let world = World::with_server();
    let first = workspace(&world, &["new-tab"]);
    let pane = format!("pane:{}", id(&first, "pane"));
    let split = ["workspace", "split-pane", "-t", &pane, "--direction", "vertical", "--browser", "http://a/", "--json"];
    let running: Vec<Background> = (0..8).map(|_| world.spawn(&split)).collect();
    let mut revisions: Vec<u64> = running
        .into_iter()
        .map(|command| {
            let answer = command.finish();
            assert_eq!(answer.status, 0, "{answer:?}");
            answer.json()["appliedRevision"].as_u64().unwrap()
        })
        .collect();
    revisions.sort_unstable();
    let at = first["appliedRevision"].as_u64().unwrap();
    assert_eq!(revisions, (at + 1..=at + 8).collect::<Vec<_>>());
    assert_eq!(workspace(&world, &["list-panes"])["panes"].as_array().unwrap().len(), 9);
    // The daemon has the last revision, regardless of the order of arrival.
    let own = own_id(&world);
    let stale = world.http("GET", &format!("/v1/devices/{own}/workspace?allow_stale=true"), None).json();
    assert_eq!(stale["workspaceRevision"], at + 8);
}

/// D1: a hundred processes at once, without a tmux server or a daemon before: none is lost, and
/// nothing is left over. (With 32, a command that retried five times was seldom lost.)
#[test]
fn many_new_tabs_at_once_each_get_a_tab_and_a_terminal() {
    let world = World::new();
    let count = 100;
    let command = ["--json", "workspace", "new-tab", "--shell", "exec cat"];
    let running: Vec<Background> = (0..count).map(|_| world.spawn(&command)).collect();
    let mut terminals: Vec<String> = running
        .into_iter()
        .map(|command| {
            let answer = command.finish();
            assert_eq!(answer.status, 0, "{answer:?}");
            pane_of(answer.json()["terminalId"].as_str().unwrap()).to_owned()
        })
        .collect();
    terminals.sort();
    terminals.dedup();
    let tabs = workspace(&world, &["list-tabs"]);
    let panes = workspace(&world, &["list-panes"])["panes"].as_array().unwrap().clone();
    assert_eq!((terminals.len(), tabs["tabs"].as_array().unwrap().len(), panes.len()), (count, count, count));
    assert!(panes.iter().all(|pane| pane["status"] == "ready" && pane["kind"] == "terminal"), "{panes:?}");
    let mut live = world.panes();
    live.sort();
    assert_eq!(live, terminals, "every terminal is in a tab");
    // Two changes each.
    assert_eq!(tabs["workspaceRevision"], 1 + 2 * count);
}

/// The same on a device in another process, whose workspace is changed by requests.
#[test]
fn changes_of_another_device_at_once_are_all_applied() {
    let world = World::with_server();
    run(&mut freshell(&world, &["--json", "new-tab", "-n", "first"]));
    let file = fs::read_to_string(world.path("home/.freshell/cli-device.json")).unwrap();
    let owner = serde_json::from_str::<Value>(&file).unwrap()["deviceId"].as_str().unwrap().to_owned();
    let serving = Background::start(&mut freshell(&world, &["device", "run", "--remote-control", "always"]));
    eventually("the device is online", || {
        let status = world.muxtap(&["--json", "workspace", "device-status", "--device", &owner]);
        status.status == 0 && status.json()["online"] == true
    });
    let command = ["--json", "workspace", "new-tab", "--device", &owner, "--shell", "exec cat"];
    let running: Vec<Background> = (0..8).map(|_| world.spawn(&command)).collect();
    for command in running {
        let answer = command.finish();
        assert_eq!(answer.status, 0, "{answer:?}");
    }
    let panes = workspace(&world, &["list-panes", "--device", &owner])["panes"].as_array().unwrap().clone();
    assert_eq!(panes.len(), 9);
    assert!(panes.iter().all(|pane| pane["status"] == "ready"), "{panes:?}");
    drop(serving);
}

/// D10: a program that does not exist is an error, and nothing is left of the attempt.
#[test]
fn a_terminal_without_a_program_is_an_error_and_leaves_nothing() {
    let world = World::with_server();
    let plain = world.path("work/plain");
    fs::write(&plain, "not a program").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let first = workspace(&world, &["new-tab", "--shell", "exec cat"]);
    let pane = format!("pane:{}", id(&first, "pane"));
    let (tabs, panes) = (workspace(&world, &["list-tabs"])["tabs"].clone(), world.panes());
    for shell in [
        "/nonexistent/sh",
        "/nonexistent/sh -l",
        "exec /nonexistent/sh",
        "./nonexistent",
        "no-such-program-at-all",
        "no-such-program-at-all --flag",
        "/tmp",
        plain.to_str().unwrap(),
        "./plain",
        " ",
    ] {
        let error = refused(&world, "INVALID_ARGUMENT", &["new-tab", "--shell", shell]);
        assert!(error["message"].as_str().unwrap().starts_with("--shell"), "{error}");
        let split = ["split-pane", "-t", &pane, "--direction", "vertical", "--shell", shell];
        if !shell.trim().is_empty() {
            refused(&world, "INVALID_ARGUMENT", &split);
        }
        assert_eq!(workspace(&world, &["list-tabs"])["tabs"].as_array().unwrap().len(), 1, "{shell}");
        assert_eq!(world.panes(), panes, "{shell}");
    }
    assert_eq!(tabs[0]["id"], workspace(&world, &["list-tabs"])["tabs"][0]["id"]);
    // What only a shell understands is left to the shell.
    for shell in [
        "exec sleep 60",
        "sh -c 'exec sleep 60'",
        "X=1 exec sleep 60",
        "cd / && exec sleep 60",
        ": ; exec sleep 60",
        "$SHELL",
    ] {
        assert_eq!(workspace(&world, &["new-tab", "--shell", shell])["pane"]["status"], "ready", "{shell}");
    }
}

/// C1: this process's `PATH` is not the one with which tmux starts programs.
#[test]
fn a_program_that_only_tmux_finds_is_not_missing_even_if_it_ends_at_once() {
    let world = World::with_server();
    let bin = world.path("bin-of-tmux");
    fs::create_dir(&bin).unwrap();
    for (name, status) in [("only-tmux-finds-this", 0), ("only-tmux-finds-that", 127)] {
        let program = bin.join(name);
        fs::write(&program, format!("#!/bin/sh\nexit {status}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    world.tmux(&["set-environment", "-g", "PATH", &path]);
    for shell in ["only-tmux-finds-this", "only-tmux-finds-that --flag"] {
        assert_eq!(workspace(&world, &["new-tab", "--shell", shell])["pane"]["status"], "ready", "{shell}");
    }
    let error = refused(&world, "INVALID_ARGUMENT", &["new-tab", "--shell", "no-such-program-at-all"]);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("in that of the tmux server (") && message.contains("bin-of-tmux"), "{message}");
}

/// D3, D6: what no device could carry out is refused before a device or its person gets it; and the
/// rest says what will run, and who asks.
#[test]
fn a_device_is_asked_only_what_is_possible_and_gets_what_will_run() {
    let world = World::with_server();
    let mut desk = page(&world, "desk");
    for (code, args) in [
        ("INVALID_TARGET", &["select-tab", "-t", "work:1.0"][..]),
        ("INVALID_TARGET", &["kill-tab", "-t", "pane:p1"]),
        ("INVALID_TARGET", &["kill-pane", "-t", "pane-index:0"]),
        ("INVALID_TARGET", &["select-pane", "-t", "pane:p1", "--tab", "main"]),
        ("INVALID_TARGET", &["swap-pane", "--source", "%1", "-t", "pane:p1"]),
        ("INVALID_TARGET", &["attach-terminal", "-t", "pane:p1", "--to", "pane:p1"]),
        ("INVALID_TARGET", &["attach-terminal", "-t", "terminal:%0", "--to", "main"]),
        ("INVALID_TARGET", &["split-pane", "-t", "main", "--direction", "vertical", "--shell", "sh"]),
        ("INVALID_TARGET", &["respawn-pane", "-t", "main"]),
        ("INVALID_TARGET", &["send-keys", "-t", "tab:t1", "x"]),
        ("INVALID_TARGET", &["list-panes", "--tab", "main"]),
        ("INVALID_TARGET", &["display", "-p", "%paneId", "-t", "main"]),
        ("INVALID_ARGUMENT", &["display", "-p", "%nope"]),
        ("INVALID_ARGUMENT", &["navigate", "-t", "pane:p1", "javascript:alert(1)"]),
        ("INVALID_ARGUMENT", &["open-browser", "-t", "pane:p1", "http://"]),
        ("INVALID_ARGUMENT", &["open-editor", "-t", "pane:p1", ""]),
        ("INVALID_ARGUMENT", &["rename-tab", "-t", "tab:t1", " "]),
        ("INVALID_ARGUMENT", &["resize-pane", "-t", "pane:p1"]),
        ("INVALID_ARGUMENT", &["resize-pane", "-t", "pane:p1", "-x", "100"]),
        ("INVALID_ARGUMENT", &["new-tab", "-n", "a\u{1b}b"]),
        ("INVALID_ARGUMENT", &["new-tab", "--shell", "/nonexistent/sh"]),
    ] {
        refused(&world, code, &[args, &["--device", "desk"]].concat());
    }
    // Callers without the command line are refused by the relay.
    for (code, status, command, args) in [
        ("INVALID_TARGET", 400, "select-tab", json!({"target": "work:1.0"})),
        ("INVALID_ARGUMENT", 400, "navigate", json!({"target": "pane:p1", "url": "file:///etc/passwd"})),
        ("INVALID_ARGUMENT", 400, "nope", json!({})),
    ] {
        let body = json!({"callerDeviceId": "c", "command": command, "args": args, "expectedRevision": 1});
        let answer = world.http("POST", "/v1/devices/desk/rpc", Some(&body));
        let error = answer.json();
        assert_eq!(
            (answer.status, &error["code"], &error["stage"]),
            (status, &json!(code), &json!("relay")),
            "{error}"
        );
    }
    let shell = "bash -c 'exec cat'";
    let running = world.spawn(&[
        "--json",
        "workspace",
        "new-tab",
        "--device",
        "desk",
        "-n",
        "demo",
        "--shell",
        shell,
        "--cwd",
        "/",
    ]);
    let workspace = json!({"deviceId": "desk", "workspaceRevision": 4, "tabs": [], "panes": []});
    // The first request of all is for this command.
    desk.answers("get-workspace", &workspace, 4);
    let pid = running.pid();
    let asked = desk.answers("reserve", &json!({"pane": {"id": "p9"}}), 5);
    assert_eq!(asked["args"], json!({"title": "demo", "shell": shell, "cwd": "/"}), "{asked}");
    assert!(asked["callerProgram"].as_str().unwrap().starts_with(&format!("process {pid} (/")), "{asked}");
    assert!(asked["callerDeviceId"].as_str().unwrap().starts_with("cli_"), "{asked}");
    let content = desk.answers("finalize", &json!({"pane": {"id": "p9"}}), 6)["args"]["contentRef"].clone();
    assert!(content["terminalId"].is_string(), "{content}");
    assert_eq!(running.finish().status, 0);
}

#[test]
fn freshell_keeps_its_files_private_in_its_own_directory() {
    let world = World::with_server();
    let dir = world.path("home/.freshell");
    let ask = |args: &[&str]| run(&mut freshell(&world, &[&["--json"], args].concat()));
    // A state file from before owners and revisions.
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = failed(&ask(&["list-tabs"]), "CONFLICT");
    assert!(refused["message"].as_str().unwrap().contains("chmod 700"), "{refused}");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    let state = dir.join("cli-workspace.json");
    let old = r#"{"activeTabId":"t1","tabs":[{"id":"t1","title":"old","activePaneId":"p2","layout":{"pane":"p2"}}],
                  "panes":[{"id":"p2","tabId":"t1","kind":"picker"}]}"#;
    fs::write(&state, old).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o600)).unwrap();
    let tabs = ask(&["list-tabs"]).json();
    let identity: Value = serde_json::from_str(&fs::read_to_string(dir.join("cli-device.json")).unwrap()).unwrap();
    let own = identity["deviceId"].as_str().unwrap();
    assert_eq!((&tabs["workspaceRevision"], &tabs["tabs"][0]["ownerDeviceId"]), (&json!(1), &json!(own)), "{tabs}");
    assert_eq!(fs::read_to_string(dir.join("cli-workspace.json.before-v1")).unwrap().trim_end(), old);
    // The workspace was published.
    let stale = world.http("GET", &format!("/v1/devices/{own}/workspace?allow_stale=true"), None).json();
    assert_eq!(stale["tabs"][0]["title"], "old", "{stale}");
    // Its id stays.
    assert_eq!(ask(&["device-status"]).json()["deviceId"], own);
    // Tokens.
    assert_eq!(ask(&["auth", "status"]).json()["loggedIn"], false);
    failed(&ask(&["auth", "refresh"]), "UNAUTHORIZED");
    let login = ask(&["auth", "login", "--remote-control"]).json();
    assert_eq!(login["scopes"], json!(["layout-write", "remote-control"]), "{login}");
    let auth = dir.join("cli-auth.json");
    let kept = || -> Value { serde_json::from_str(&fs::read_to_string(&auth).unwrap()).unwrap() };
    let first = kept();
    assert!(!login.to_string().contains(first["token"].as_str().unwrap()));
    ask(&["auth", "refresh"]);
    assert_ne!(kept()["token"], first["token"]);
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["cli-device.json", "cli-auth.json", "cli-workspace.json", "."].map(mode), [0o600, 0o600, 0o600, 0o700]);
    fs::set_permissions(&auth, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = failed(&ask(&["list-tabs"]), "CONFLICT");
    assert_eq!(refused["message"], format!("{0} is open to others (mode 0644): chmod 600 {0}", auth.display()));
    fs::set_permissions(&auth, fs::Permissions::from_mode(0o600)).unwrap();
    // A reused refresh token counts as stolen: the family ends.
    let second = kept();
    fs::write(&auth, serde_json::to_string(&first).unwrap()).unwrap();
    failed(&ask(&["auth", "refresh"]), "UNAUTHORIZED");
    assert!(!auth.exists());
    fs::write(&auth, serde_json::to_string(&second).unwrap()).unwrap();
    fs::set_permissions(&auth, fs::Permissions::from_mode(0o600)).unwrap();
    failed(&ask(&["auth", "refresh"]), "UNAUTHORIZED");
    ask(&["auth", "login"]);
    assert_eq!(ask(&["auth", "logout"]).json()["loggedIn"], false);
    // A file that cannot be read is named and left unchanged.
    fs::write(&state, "{").unwrap();
    let refused = failed(&ask(&["list-tabs"]), "CONFLICT");
    assert!(refused["message"].as_str().unwrap().starts_with(state.to_str().unwrap()), "{refused}");
    assert_eq!(fs::read_to_string(&state).unwrap(), "{");
}

#[test]
fn a_foreground_device_is_online_and_serves_only_callers_it_allows() {
    let world = World::with_server();
    // Two devices: `freshell` has its own files.
    let tab = run(&mut freshell(&world, &["--json", "new-tab", "-n", "theirs"])).json();
    let file = fs::read_to_string(world.path("home/.freshell/cli-device.json")).unwrap();
    let owner = serde_json::from_str::<Value>(&file).unwrap()["deviceId"].as_str().unwrap().to_owned();
    let rename = ["rename-tab", "--device", &owner, "-t", "tab-name:theirs", "ours"];
    let offline = refused(&world, "DEVICE_OFFLINE", &["rename-tab", "--device", &owner, "-t", "tab:t1", "x"]);
    assert_eq!(offline["stage"], "relay");
    let stale = workspace(&world, &["list-tabs", "--device", &owner, "--allow-stale"]);
    assert_eq!((&stale["source"], &stale["ownerOnline"]), (&json!("cache"), &json!(false)), "{stale}");
    assert!(stale["capturedAt"].is_u64() && stale["ownerLastSeenAt"].is_u64());
    refused(&world, "DEVICE_OFFLINE", &["list-tabs", "--device", &owner]);

    let mut device = Background::start(&mut freshell(&world, &["--json", "device", "run"]));
    assert_eq!(serde_json::from_str::<Value>(&device.line().unwrap()).unwrap()["online"], true);
    let live = workspace(&world, &["list-tabs", "--device", &owner]);
    assert_eq!((&live["source"], &live["tabs"][0]["id"]), (&json!("live"), &tab["tab"]["id"]), "{live}");
    let error = refused(&world, "UNAUTHORIZED", &rename);
    assert_eq!(error["stage"], "owner", "{error}");
    run(&mut freshell(&world, &["allow", &own_id(&world)]));
    let renamed = workspace(&world, &rename);
    assert_eq!(renamed["tab"]["title"], "ours", "{renamed}");
    let revision = renamed["appliedRevision"].as_u64().unwrap();
    // Class H over the relay, during the owner's own command.
    let split = format!("pane:{}", id(&tab, "pane"));
    let split = ["split-pane", "--device", &owner, "-t", &split, "--direction", "horizontal", "--shell", "exec cat"];
    let made = workspace(&world, &split);
    assert_eq!(made["appliedRevision"], revision + 2, "{made}");
    assert_eq!(made["pane"]["status"], "ready", "{made}");
    let mine = run(&mut freshell(&world, &["--json", "select-tab", "-t", "tab-index:0"])).json();
    assert_eq!(mine["appliedRevision"], revision + 3);
    let conflict = [&rename[..], &["--expected-revision", "1"]].concat();
    let error = refused(&world, "REVISION_CONFLICT", &conflict);
    assert_eq!(error["details"]["currentRevision"], revision + 3);
    // The owner releases a reservation without a finalize 30 s after it was made; here the state
    // says that it is old.
    let state = world.path("home/.freshell/cli-workspace.json");
    let reserve = json!({"callerDeviceId": own_id(&world), "command": "reserve", "args": {"title": "never"},
                         "expectedRevision": revision + 3, "idempotencyKey": "r"});
    let reserved = world.http("POST", &format!("/v1/devices/{owner}/rpc"), Some(&reserve)).json();
    assert_eq!(reserved["result"]["pane"]["status"], "pending", "{reserved}");
    let text = fs::read_to_string(&state).unwrap();
    let mut aged: Value = serde_json::from_str(&text).unwrap();
    for pane in aged["panes"].as_array_mut().unwrap() {
        pane["updatedAt"] = 1.into();
    }
    fs::write(&state, aged.to_string()).unwrap();
    assert_eq!(workspace(&world, &["list-tabs", "--device", &owner])["tabs"].as_array().unwrap().len(), 1);
    // Its log is in the user's directory of that name, closed to other users.
    let log = world.path("home/.freshell/audit/remote-control.jsonl");
    let lines = audited(&log, 8);
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(lines.iter().any(|line| line["errorCode"] == "UNAUTHORIZED" && line["stage"] == "owner"), "{lines:?}");
    assert!(lines.iter().all(|line| line["targetDeviceId"] == owner.as_str() && line["timestamp"].is_string()));

    // A daemon that goes away is looked for again.
    world.kill_daemon(rustix::process::Signal::KILL);
    eventually("the device is there again", || {
        workspace(&world, &["device-status", "--device", &owner])["online"] == true
    });
    device.close_stdin();
    crate::common::signal(device.pid(), rustix::process::Signal::TERM);
    assert_eq!(device.finish().status, 0);
    eventually("it is told", || workspace(&world, &["device-status", "--device", &owner])["online"] == false);
}

/// A repeated key gets the first response, and ends no program again.
#[test]
fn a_respawn_repeated_with_its_key_restarts_nothing() {
    let world = World::with_server();
    let made = workspace(&world, &["new-tab", "--shell", "exec cat"]);
    let (pane, terminal) = (format!("pane:{}", id(&made, "pane")), made["terminalId"].as_str().unwrap().to_owned());
    let target = terminal.rsplit('/').next().unwrap();
    let pid = || world.tmux(&["display-message", "-p", "-t", target, "#{pane_pid}"]);
    let respawn = ["respawn-pane", "-t", &pane, "--idempotency-key", "k"];
    let before = pid();
    let first = workspace(&world, &respawn);
    let after = pid();
    assert_ne!(before, after);
    let second = workspace(&world, &respawn);
    assert_eq!(first["appliedRevision"], second["appliedRevision"]);
    assert_eq!(pid(), after);
    workspace(&world, &["respawn-pane", "-t", &pane]);
    assert_ne!(pid(), after);
}

/// The times that `list-terminals` reports for each terminal.
#[test]
fn terminals_are_listed_with_their_times() {
    let world = World::with_server();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let begun = now();
    let pane = world.window("printf 'one\\n'; exec cat");
    world.await_output(&pane, "^one");
    let listed = workspace(&world, &["list-terminals"]);
    let terminals = listed["terminals"].as_array().unwrap();
    let found = terminals.iter().find(|one| one["terminalId"].as_str().unwrap().ends_with(&pane)).unwrap();
    let at = |name: &str| found[name].as_u64().unwrap_or_else(|| panic!("{name}: {found}"));
    // The kernel counts in hundredths of a second.
    assert!((begun - 1000..=now() + 1000).contains(&at("createdAt")), "{begun} {found}");
    // And records a terminal's use to within 8 s.
    assert!((begun - 9000..=now() + 1000).contains(&at("lastActivityAt")), "{begun} {found}");
}

#[test]
fn a_page_registers_handles_requests_and_is_replaced_by_a_newer_one() {
    let world = World::with_server();
    // A missing capability is named, and the connection ends.
    let mut old = silent(&world, "old");
    let mut legacy = hello("old");
    legacy["capabilities"].as_object_mut().unwrap().remove("layoutOwnershipV1");
    old.say(&legacy);
    let error = old.next();
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("UNSUPPORTED_CLIENT")));
    assert!(error["message"].as_str().unwrap().contains("layoutOwnershipV1"), "{error}");
    assert_eq!(old.next(), Value::Null);
    let plain = world.http("GET", "/v1/devices/ws", None);
    assert_eq!(plain.status, 426);

    let mut laptop = page(&world, "laptop");
    let mut phone = page(&world, "phone");
    let seen = laptop.next_of("device.presence");
    assert_eq!((&seen["deviceId"], &seen["online"]), (&json!("phone"), &json!(true)));
    laptop.publishes(4);
    // From page to page.
    phone.say(&json!({"type": "layout.rpc.request", "requestId": "r1", "callerDeviceId": "phone",
                      "targetDeviceId": "laptop", "command": "select-tab", "args": {"target": "tab:t1"},
                      "expectedRevision": 4}));
    let request = laptop.answers("select-tab", &json!({"tab": {"id": "t1"}}), 5);
    assert_eq!((&request["callerLabel"], &request["args"]), (&json!("the page phone"), &json!({"target": "tab:t1"})));
    assert_eq!(phone.next_of("layout.rpc.ack")["requestId"], "r1");
    assert_eq!(phone.next_of("layout.rpc.result")["appliedRevision"], 5);
    // A page cannot send requests as another one.
    phone.say(&json!({"type": "layout.rpc.request", "requestId": "r2", "callerDeviceId": "other",
                      "targetDeviceId": "laptop", "command": "get-workspace"}));
    assert_eq!(phone.next_of("layout.rpc.result")["error"]["code"], "UNAUTHORIZED");
    // Newer connections win.
    let mut newer = page(&world, "laptop");
    assert_eq!(laptop.next_of("replaced")["type"], "replaced");
    assert_eq!(laptop.next(), Value::Null);
    // An owner that disconnects after its ack is noticed immediately.
    let asking = world.spawn(&[
        "--json",
        "workspace",
        "kill-tab",
        "--device",
        "laptop",
        "-t",
        "tab:t1",
        "--expected-revision",
        "5",
    ]);
    let request = newer.next_of("layout.rpc.request");
    newer.say(&json!({"type": "layout.rpc.ack", "requestId": request["requestId"]}));
    newer.socket.flush().unwrap();
    drop(newer);
    let error = failed(&asking.finish(), "OWNER_TIMEOUT");
    assert_eq!(error["stage"], "owner");
    let kill = ["kill-tab", "--device", "laptop", "-t", "tab:t1", "--expected-revision", "5"];
    refused(&world, "DEVICE_OFFLINE", &kill);
    let stale = workspace(&world, &["list-panes", "--device", "laptop", "--allow-stale"]);
    assert_eq!((&stale["panes"][0]["id"], &stale["source"]), (&json!("p2"), &json!("cache")));
    // Nothing was kept for its return.
    let mut back = page(&world, "laptop");
    back.say(&json!({"type": "heartbeat"}));
    back.say(&json!({"type": "nothing"}));
    assert_eq!(back.next()["code"], "INVALID_ARGUMENT");
    // A snapshot of ten megabytes: the connection ends, the last snapshot stays.
    let mut large = hello("laptop");
    large["type"] = "layout.snapshot.updated".into();
    large["tabs"] = json!([{"id": "t1", "ownerDeviceId": "laptop", "title": "x".repeat(10 << 20)}]);
    let _ = back.socket.send(Message::text(large.to_string()));
    while !back.next().is_null() {}
    eventually("it is gone", || workspace(&world, &["device-status", "--device", "laptop"])["online"] == false);
    assert_eq!(workspace(&world, &["list-tabs", "--device", "laptop", "--allow-stale"])["workspaceRevision"], 4);
    let lines = audited(&world.path("m.sock.devices/audit/remote-control.jsonl"), 4);
    let told: Vec<_> = lines.iter().map(|line| (&line["command"], &line["result"], &line["errorCode"])).collect();
    assert_eq!(told[0], (&json!("select-tab"), &json!("ok"), &Value::Null), "{lines:?}");
    assert!(told.contains(&(&json!("kill-tab"), &json!("error"), &json!("DEVICE_OFFLINE"))), "{lines:?}");
    // Snapshots are accessible only to the user, also on disk.
    for file in fs::read_dir(world.path("m.sock.devices/snapshots")).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    // A restarted daemon still has them.
    world.kill_daemon(rustix::process::Signal::KILL);
    assert_eq!(workspace(&world, &["list-tabs", "--device", "laptop", "--allow-stale"])["workspaceRevision"], 4);
}

/// Every step of a hybrid command fails once, with a real owner, relay and engine.
#[test]
fn a_failed_hybrid_command_is_undone_or_reports_what_is_left() {
    let world = World::with_server();
    let mut owner = page(&world, "laptop");
    let command = [
        "--json",
        "workspace",
        "split-pane",
        "--device",
        "laptop",
        "-t",
        "pane:p1",
        "--direction",
        "vertical",
        "--shell",
        "exec cat",
        "--expected-revision",
        "7",
    ];
    let pane = json!({"pane": {"id": "p9", "status": "pending"}});
    let terminals = || world.panes().len();
    let before = terminals();
    // Step 1: the owner refuses.
    let asking = world.spawn(&command);
    let request = owner.next_of("layout.rpc.request");
    assert_eq!((&request["command"], &request["expectedRevision"]), (&json!("reserve"), &json!(7)));
    let error = json!({"code": "NOT_FOUND", "message": "no pane p1"});
    owner.say(&json!({"type": "layout.rpc.result", "requestId": request["requestId"], "ok": false, "error": error}));
    failed(&asking.finish(), "NOT_FOUND");
    assert_eq!(terminals(), before);
    // Step 1: the owner disconnects before its ack.
    let asking = world.spawn(&command);
    owner.next_of("layout.rpc.request");
    drop(owner);
    assert_eq!(failed(&asking.finish(), "RPC_TIMEOUT")["stage"], "relay");
    assert_eq!(terminals(), before);
    // Step 2: the engine refuses; the owner is requested to release, also if its user made a change
    // in the meantime.
    let mut owner = page(&world, "laptop");
    let mut elsewhere = world.plain_muxtap_command();
    let asking = Background::start(elsewhere.arg("-S").arg(world.path("no/such/t")).args(command));
    owner.answers("reserve", &pane, 8);
    let request = owner.next_of("layout.rpc.request");
    assert_eq!((&request["command"], &request["args"]["pane"]), (&json!("release"), &json!("pane:p9")));
    let error = json!({"code": "REVISION_CONFLICT", "message": "m", "details": {"currentRevision": 12}});
    owner.say(&json!({"type": "layout.rpc.result", "requestId": request["requestId"], "ok": false, "error": error}));
    let again = owner.answers("release", &json!({}), 13);
    assert_eq!(again["expectedRevision"], 12);
    assert_eq!(failed(&asking.finish(), "TMUX_UNAVAILABLE")["stage"], "engine");
    // Step 2 fails, and its undo too: the owner has disconnected.
    let mut elsewhere = world.plain_muxtap_command();
    let asking = Background::start(elsewhere.arg("-S").arg(world.path("no/such/t")).args(command));
    owner.answers("reserve", &pane, 8);
    owner.next_of("layout.rpc.request");
    drop(owner);
    let error = failed(&asking.finish(), "INCONSISTENT_STATE");
    assert_eq!(error["details"]["paneId"], "p9", "{error}");
    // Step 3: the owner disconnects before it finalizes. The terminal lives, and is named.
    let mut owner = page(&world, "laptop");
    let asking = world.spawn(&command);
    owner.answers("reserve", &pane, 8);
    assert_eq!(owner.next_of("layout.rpc.request")["command"], "finalize");
    drop(owner);
    let error = failed(&asking.finish(), "INCONSISTENT_STATE");
    let terminal = error["details"]["terminalId"].as_str().unwrap().to_owned();
    let lives = || world.panes().iter().any(|pane| pane == pane_of(&terminal));
    assert!(lives(), "{error}");
    let kill = error["details"]["kill"].as_str().unwrap().to_owned();
    workspace(&world, &kill.split(' ').collect::<Vec<_>>());
    assert!(!lives());
    // The daemon is killed between step 1 and step 3: the new terminal is named.
    let mut owner = page(&world, "laptop");
    let asking = world.spawn(&command);
    owner.answers("reserve", &pane, 8);
    assert_eq!(owner.next_of("layout.rpc.request")["command"], "finalize");
    world.kill_daemon(rustix::process::Signal::KILL);
    let error = failed(&asking.finish(), "INCONSISTENT_STATE");
    let terminal = error["details"]["terminalId"].as_str().unwrap();
    assert!(world.panes().iter().any(|pane| pane == pane_of(terminal)), "{error}");
}
