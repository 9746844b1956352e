//! MCP over stdio, as a client sees it line by line: responses, errors, and what outlives a call.
//!
//! `scripts/mcp-sdk` tests the same with the official Python SDK.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use crate::common::{Background, World, eventually, run};
use serde_json::{Value, json};

/// A client after its handshake.
pub struct Client {
    process: Background,
    next: u64,
    /// Notifications that arrived while a response was awaited.
    told: Vec<Value>,
}

impl Client {
    pub fn new(world: &World) -> Self {
        Self::started(world.spawn(&["mcp"]))
    }

    pub fn started(process: Background) -> Self {
        Self::able(process, &json!({}))
    }

    /// Creates a client with these capabilities.
    pub fn able(process: Background, capabilities: &Value) -> Self {
        let mut client = Self { process, next: 0, told: Vec::new() };
        let about = json!({"name": "test", "version": "1"});
        let hello = client.ask(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": about}),
        );
        assert_eq!(hello["result"]["serverInfo"]["name"], "muxtap", "{hello}");
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    pub fn say(&mut self, message: &Value) {
        self.raw(&message.to_string());
    }

    fn raw(&mut self, line: &str) {
        writeln!(self.process.stdin(), "{line}").unwrap();
        self.process.stdin().flush().unwrap();
    }

    /// Sends a request and leaves its response for later.
    pub fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    pub fn message(&mut self) -> Value {
        let line = self.process.line().expect("it goes on");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"))
    }

    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.message();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.told.push(message);
        }
    }

    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// Calls a tool, which must succeed. Returns its result as JSON, as a program requests it.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask("tools/call", &structured(tool, arguments));
        assert_eq!(answer["result"]["isError"], false, "{tool} {arguments}: {answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// Calls a tool, which must succeed. Returns its text.
    pub fn says(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        assert_eq!(answer["result"]["isError"], false, "{tool} {arguments}: {answer}");
        assert!(answer["result"].get("structuredContent").is_none(), "{tool}: a model would see it instead: {answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Calls a tool, which must fail with this code.
    pub fn fails(&mut self, code: &str, tool: &str, arguments: &Value) -> String {
        let answer = self.ask("tools/call", &structured(tool, arguments));
        assert_eq!(answer["result"]["isError"], true, "{tool} {arguments}: {answer}");
        assert_eq!(answer["result"]["structuredContent"]["code"], code, "{tool} {arguments}: {answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

/// Returns the parameters of a call whose result is also JSON.
pub fn structured(tool: &str, arguments: &Value) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": {"muxtap/structured": true}})
}

/// Clients show a model the structured content instead of the text, several times as long.
#[test]
fn results_are_text_alone_unless_structured_content_is_requested() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let listed = client.ask("tools/list", &json!({}))["result"].clone();
    assert!(!listed.to_string().contains("outputSchema"), "{listed}");
    let with_schemas = client.ask("tools/list", &json!({"_meta": {"muxtap/structured": true}}))["result"].clone();
    assert!(with_schemas["tools"].as_array().unwrap().iter().all(|tool| tool["outputSchema"].is_object()));
    // With the schemas, each result of the session has structured content, until it lists without them.
    let listed = client.ask("tools/call", &json!({"name": "list", "arguments": {}}))["result"].clone();
    assert_eq!(listed["structuredContent"]["panes"][0]["id"], "%0", "{listed}");
    client.ask("tools/list", &json!({}));
    let pane = client.says("list", &json!({}));
    assert!(pane.starts_with("%0 main:0.0 ") && pane.lines().count() == 1, "{pane}");
    assert!(pane.contains(" (active)") && pane.contains(", title "), "{pane}");
    // A failure, too.
    let failed =
        client.ask("tools/call", &json!({"name": "kill", "arguments": {"target": "absent"}}))["result"].clone();
    assert!(failed.get("structuredContent").is_none() && failed["isError"] == true, "{failed}");
    assert!(failed["content"][0]["text"].as_str().unwrap().starts_with("NOT_FOUND: "), "{failed}");
    // The token that the next call needs is in the text.
    let watched = client.says("watch", &json!({"wait_ms": 0}));
    let resume = watched.rsplit_once("[resume ").and_then(|(_, token)| token.strip_suffix(']')).unwrap();
    world.tmux(&["new-window", "-d", "-t", "main:", "cat"]);
    let watched = client.says("watch", &json!({"resume": resume, "wait_ms": 20_000}));
    assert!(watched.contains("%1: pane-opened, ") && watched.contains("[resume "), "{watched}");
}

#[test]
fn without_a_tmux_server_nothing_is_listed() {
    let world = World::new();
    let mut client = Client::new(&world);
    for what in ["panes", "windows", "sessions", "agents"] {
        let text = client.says("list", &json!({"what": what}));
        assert!(
            text.contains("no tmux server runs on") && text.contains("create (what: session) starts one"),
            "{text}"
        );
        assert_eq!(client.call("list", &json!({"what": what})), json!({what: []}));
    }
    client.fails("TMUX_UNAVAILABLE", "list", &json!({"what": "commands", "target": "%0"}));
    client.fails("TMUX_UNAVAILABLE", "capture_pane", &json!({"target": "%0"}));
}

#[test]
fn every_tool_does_what_it_says() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let listed = client.ask("tools/list", &json!({}))["result"].clone();
    assert!(listed.to_string().len() < 8_300, "{} bytes", listed.to_string().len());
    assert_eq!(client.call("list", &json!({}))["panes"][0]["id"], "%0");
    assert_eq!(client.call("list", &json!({"what": "sessions", "target": "ma*"}))["sessions"][0]["name"], "main");
    assert_eq!(client.call("list", &json!({"what": "windows", "target": "other"}))["windows"], json!([]));
    // The first pane's id names neither a session nor a window.
    for (what, target) in [("windows", "%0"), ("sessions", "%0"), ("sessions", "@0")] {
        assert_eq!(client.call("list", &json!({"what": what, "target": target}))[what], json!([]), "{target}");
    }
    let ran =
        client.call("run", &json!({"target": "main", "command": "seq 3; exit_with() { return $1; }; exit_with 4"}));
    assert_eq!((&ran["output"], &ran["exit_status"]), (&"1\n2\n3\n".into(), &4.into()));
    // Text typed before the shell prints its prompt would be before the prompt.
    client.call("wait_for", &json!({"panes": "main", "prompt": true}));
    let sent = client.call("send_keys", &json!({"target": "main", "text": "echo se''nt", "keys": ["Enter"]}));
    let waited = client.call("wait_for", &json!({"panes": "main", "patterns": "^sent$"}));
    assert_eq!(waited["outcome"], "matched", "{waited}");
    let read = client.call("read_since", &json!({"target": "main", "since": sent["cursor"]}));
    assert!(read["text"].as_str().unwrap().contains("sent\n"), "{read}");
    assert_eq!(client.call("read_since", &json!({"target": "%0", "since": read["cursor"]}))["text"], "");
    assert!(client.call("capture_pane", &json!({"target": "%0"}))["text"].as_str().unwrap().contains("sent"));
    let found = client.call("search", &json!({"pattern": "^sent$"}));
    assert_eq!((&found["matches"], &found["lines"][0]["pane"]), (&1.into(), &"%0".into()), "{found}");
    let watch = client.call("watch", &json!({"wait_ms": 0}));
    let made = client
        .call("create", &json!({"what": "window", "target": "main", "name": "logs", "command": "echo made; exec cat"}));
    let pane = made["pane"].as_str().unwrap().to_owned();
    client.call("wait_for", &json!({"panes": [pane], "patterns": ["made"], "since": "start"}));
    let happened = client.call("watch", &json!({"resume": watch["resume"], "wait_ms": 20_000}));
    assert!(happened["events"].as_array().unwrap().iter().any(|event| event["type"] == "pane-opened"), "{happened}");
    client.call("rename", &json!({"target": "main:logs", "name": "other"}));
    assert_eq!(client.call("list", &json!({"target": "main:other"}))["panes"][0]["id"], pane.as_str());
    client.call("rename", &json!({"target": pane, "labels": {"role": "build", "team": "a"}}));
    client.call("rename", &json!({"target": "main", "labels": "{\"of\": \"session\"}"}));
    client.call("rename", &json!({"target": pane, "labels": {"team": ""}}));
    let labeled = client.call("list", &json!({"target": "{role=build}"}))["panes"][0].clone();
    assert_eq!((&labeled["id"], &labeled["labels"]), (&json!(pane), &json!({"role": "build", "of": "session"})));
    client.fails("INVALID_ARGUMENT", "rename", &json!({"target": pane}));
    client.fails("INVALID_ARGUMENT", "rename", &json!({"target": pane, "labels": {"Role": "x"}}));
    client.fails("INVALID_ARGUMENT", "rename", &json!({"target": "main:other", "labels": {"role": "x"}}));
    assert_eq!(client.call("list", &json!({"what": "agents"}))["agents"], json!([]));
    client.call("kill", &json!({"target": pane}));
    assert!(client.fails("NOT_FOUND", "kill", &json!({"target": "nobody"})).contains("list shows what is there"));
    client.fails("INVALID_ARGUMENT", "run", &json!({"target": "main"}));
    client.fails("INVALID_ARGUMENT", "capture_pane", &json!({"target": "main", "colour": true}));
    client.process.close_stdin();
    assert_eq!(client.process.line(), None, "nothing but answers stands on stdout");
}

#[test]
fn a_wait_ends_when_it_is_cancelled_and_when_its_client_goes() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let wait =
        json!({"name": "wait_for", "arguments": {"panes": ["main"], "patterns": ["never"], "timeout_ms": 60_000}});
    let id = client.begin("tools/call", &wait);
    eventually("it is open", || world.json(&["status"])["waits"] == 1);
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    eventually("it is cancelled", || world.json(&["status"])["waits"] == 0);

    let id = client.begin("tools/call", &wait);
    eventually("it is open", || world.json(&["status"])["waits"] == 1);
    assert!(id > 0);
    client.process.kill();
    // Its client has disconnected: the wait was not cancelled, but its result can no longer be
    // requested.
    eventually("it is closed", || world.json(&["status"])["waits"] == 0);
}

#[test]
fn a_wait_that_is_pending_goes_on_for_whoever_has_its_id() {
    let mut world = World::with_server();
    world.set("MUXTAP_MCP_HOLD", "1");
    let mut client = Client::new(&world);
    let wait = json!({"panes": ["main"], "patterns": ["^later$"], "since": "now", "timeout_ms": 60_000});
    let answer = client.call("wait_for", &wait);
    assert_eq!(answer["outcome"], "pending", "{answer}");
    client.process.kill();
    assert_eq!(world.json(&["status"])["waits"], 1, "its wait has not");
    // The output comes while no call waits.
    world.tmux(&["send-keys", "-t", "main", "echo la''ter", "Enter"]);
    eventually("it is over", || world.json(&["status"])["waits"] == 0);
    let answer = Client::new(&world).call("wait_for", &json!({"id": answer["id"]}));
    assert_eq!(
        (&answer["outcome"], &answer["predicates"][0]["line"]),
        (&"matched".into(), &"later".into()),
        "{answer}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_wait_is_pending_after_an_upgrade_and_goes_on() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let wait = json!({"panes": ["main"], "patterns": ["^later$"], "since": "now", "timeout_ms": 300_000});
    let call = client.begin("tools/call", &json!({"name": "wait_for", "arguments": wait}));
    eventually("it is open", || world.json(&["status"])["waits"] == 1);
    world.ok(&["upgrade"]);
    let answer = client.answer(call);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("pending: "), "{answer}");
    let id = text.split('"').nth(1).unwrap();
    world.tmux(&["send-keys", "-t", "main", "echo la''ter", "Enter"]);
    let answer = Client::new(&world).call("wait_for", &json!({"id": id}));
    assert_eq!((&answer["outcome"], &answer["id"]), (&"matched".into(), &id.into()), "{answer}");
    // Its client has gone with the session: the result is kept for whoever has the id.
    world.ok(&["stop"]);
    assert_eq!(world.json(&["result", id])["outcome"], "matched");
}

#[test]
fn what_is_to_go_from_the_screen_is_waited_for() {
    let world = World::with_server();
    let pane = world.window("printf building; read -r go; printf '\\033[2J\\033[Hdone'; exec cat");
    world.await_output(&pane, "building");
    let mut client = Client::new(&world);
    let wait = json!({"panes": [pane], "gone": ["building"], "timeout_ms": 60_000});
    let asked = client.begin("tools/call", &structured("wait_for", &wait));
    eventually("it waits", || world.json(&["status"])["waits"] == 1);
    world.ok(&["send-keys", "-t", &pane, "Enter"]);
    let answer = client.answer(asked);
    let answer = &answer["result"]["structuredContent"];
    assert_eq!((&answer["outcome"], &answer["predicates"][0]["kind"]), (&"matched".into(), &"gone".into()), "{answer}");
}

#[test]
fn where_the_client_runs_is_spared() {
    let world = World::with_server();
    let hello = world.ok(&["list-panes"]);
    assert!(hello.contains("%0"));
    let mut command = world.muxtap_command(&["mcp"]);
    command.env("TMUX", format!("{},1,0", world.socket().display())).env("TMUX_PANE", "%0");
    let mut client = Client::started(Background::start(&mut command));
    for (tool, arguments) in [
        ("send_keys", json!({"target": "main", "text": "x"})),
        ("run", json!({"target": "%0", "command": "true"})),
        ("kill", json!({"target": "%0"})),
        ("kill", json!({"target": "main"})),
        ("kill", json!({"target": "@0"})),
    ] {
        assert!(client.fails("CONFLICT", tool, &arguments).contains("force"), "{tool}");
    }
    client.call("send_keys", &json!({"target": "main", "text": "x", "force": true}));
    assert_eq!(world.sessions(), ["main"]);
    // The same server under another name is the same.
    let folder = world.path(&format!("run/tmux-{}", rustix::process::getuid().as_raw()));
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(world.socket(), folder.join("another-name")).unwrap();
    let arguments = json!({"target": "%0", "server": "another-name"});
    assert!(client.fails("CONFLICT", "kill", &arguments).contains("force"));
    assert_eq!(world.panes(), ["%0"]);
}

#[test]
fn a_pane_that_is_killed_leaves_its_neighbour() {
    let world = World::with_server();
    world.tmux(&["split-window", "-d", "-t", "main:", "cat"]);
    let mut client = Client::new(&world);
    client.call("kill", &json!({"target": "%1"}));
    eventually("one is left", || world.panes() == ["%0"]);
    world.tmux(&["split-window", "-d", "-t", "main:", "cat"]);
    client.call("kill", &json!({"target": "main:0.1", "what": "pane"}));
    eventually("one is left", || world.panes() == ["%0"]);
}

#[test]
fn a_pane_that_never_rests_is_told_of_all_the_same() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let watch = client.call("watch", &json!({"wait_ms": 0}));
    world.window("while :; do echo on and on; sleep 0.1; done");
    let told = |event: &Value| event["text"].as_str().is_some_and(|text| text.contains("on and on"));
    let mut happened = watch;
    // The opening event may be reported alone.
    while !happened["events"].as_array().unwrap().iter().any(told) {
        happened = client.call("watch", &json!({"resume": happened["resume"], "wait_ms": 20_000}));
    }
}

#[test]
fn a_confirmation_shows_everything_that_will_be_typed() {
    let mut world = World::with_server();
    world.set("MUXTAP_CONFIRM", "input");
    let mut client = Client::able(world.spawn(&["mcp"]), &json!({"elicitation": {}}));
    let typed = json!({"target": "main", "keys": ["C-c", "Up", "Enter"]});
    let id = client.begin("tools/call", &structured("send_keys", &typed));
    let asked = client.message();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let shown = asked["params"]["message"].as_str().unwrap();
    assert!(["main", "C-c", "Up", "Enter"].iter().all(|part| shown.contains(part)), "{shown}");
    client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}));
    let answer = client.answer(id);
    assert_eq!(answer["result"]["structuredContent"]["code"], "READ_ONLY", "{answer}");
}

#[test]
fn a_daemon_that_ends_is_named() {
    let world = World::with_server();
    for how in [rustix::process::Signal::KILL, rustix::process::Signal::TERM] {
        let mut client = Client::new(&world);
        assert_eq!(client.call("list", &json!({}))["panes"][0]["id"], "%0");
        world.kill_daemon(how);
        assert_eq!(client.process.line(), None, "it ends by itself");
        let ended = client.process.finish();
        assert_eq!(ended.status, 1, "{how:?}: {ended:?}");
        assert!(ended.stderr.contains("the daemon has ended"), "{how:?}: {ended:?}");
    }
    // A process whose client leaves ends properly.
    let mut client = Client::new(&world);
    assert_eq!(client.call("list", &json!({}))["panes"][0]["id"], "%0");
    client.process.close_stdin();
    assert_eq!(client.process.finish().status, 0);
}

/// With sockets, as Node starts its children.
#[test]
fn a_client_that_gives_sockets_is_served_too() {
    let world = World::with_server();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = world.muxtap_command(&["mcp"]);
    command.stdin(OwnedFd::from(theirs.try_clone().unwrap())).stdout(OwnedFd::from(theirs));
    let mut child = command.spawn().unwrap();
    // The command holds the other end as well.
    drop(command);
    let about = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about});
    writeln!(ours, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})).unwrap();
    let mut lines = BufReader::new(ours.try_clone().unwrap()).lines();
    let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(answer["result"]["serverInfo"]["name"], "muxtap", "{answer}");
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(lines.next().is_none(), "nothing but answers, and then the end");
}

#[test]
fn what_is_no_pipe_is_passed_on() {
    let world = World::with_server();
    let (asked, told) = (world.path("asked"), world.path("told"));
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list", "arguments": {}}}),
    ];
    std::fs::write(&asked, lines.map(|line| line.to_string() + "\n").concat()).unwrap();
    let muxtap = world.muxtap_command(&["mcp"]);
    let mut command = world.command("sh");
    command.args(["-c", r#"asked=$1 told=$2; shift 2; exec "$@" < "$asked" > "$told""#, "sh"]).args([&asked, &told]);
    let ended = run(command.arg(muxtap.get_program()).args(muxtap.get_args()));
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let told = std::fs::read_to_string(told).unwrap();
    let answers: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers[0]["result"]["serverInfo"]["name"], "muxtap", "{told}");
    assert_eq!(answers.last().unwrap()["id"], 2, "{told}");
}

#[test]
fn whoever_listed_before_there_was_a_server_hears_of_it() {
    let world = World::new();
    let mut client = Client::new(&world);
    let listed = client.ask("resources/list", &json!({}))["result"]["resources"].clone();
    assert!(!listed.to_string().contains("tmux://pane/"), "{listed}");
    world.session("late");
    let told = client.message();
    assert_eq!(told["method"], "notifications/resources/list_changed", "{told}");
    let listed = client.ask("resources/list", &json!({}))["result"]["resources"].clone();
    assert!(listed.to_string().contains("tmux://pane/%0"), "{listed}");
}

#[test]
fn resources_are_listed_read_and_followed() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let listed = client.ask("resources/list", &json!({}))["result"]["resources"].clone();
    assert!(listed.as_array().unwrap().iter().any(|one| one["uri"] == "tmux://pane/%0"), "{listed}");
    // Each list is an object, like the response of the HTTP route with its name.
    for (list, field, first) in [("panes", "id", "%0"), ("sessions", "name", "main")] {
        let uri = format!("tmux://{list}");
        let read = client.ask("resources/read", &json!({"uri": uri}))["result"]["contents"][0].clone();
        let read: Value = serde_json::from_str(read["text"].as_str().unwrap()).unwrap();
        assert_eq!(read[list][0][field], first, "{read}");
    }
    let missing = client.ask("resources/read", &json!({"uri": "tmux://nothing"}));
    assert!(missing["error"]["message"].as_str().unwrap().contains("tmux://panes"), "{missing}");
    client.ask("resources/subscribe", &json!({"uri": "tmux://pane/%0"}));
    world.tmux(&["send-keys", "-t", "%0", "echo changed", "Enter"]);
    let told = client.message();
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (&"notifications/resources/updated".into(), &"tmux://pane/%0".into())
    );
    let completed = client.ask(
        "completion/complete",
        &json!({"ref": {"type": "ref/prompt", "name": "debug_pane"}, "argument": {"name": "target", "value": "ma"}}),
    );
    assert_eq!(completed["result"]["completion"]["values"][0], "main", "{completed}");
    let prompt = client.ask("prompts/get", &json!({"name": "debug_pane", "arguments": {"target": "main:0"}}));
    assert!(prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("main:0"), "{prompt}");
}

#[test]
fn what_is_no_message_is_answered_and_survived() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    for line in ["{", "[]", "null", "\"x\"", "{\"jsonrpc\":\"2.0\"}", "\u{1}\u{2}", ""] {
        client.raw(line);
    }
    assert_eq!(client.ask("no/such/method", &json!({}))["error"]["code"], -32601);
    let unknown = client.ask("tools/call", &json!({"name": "rm_rf", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let huge = "x".repeat(2_000_000);
    client.fails("INVALID_ARGUMENT", "run", &json!({"target": "main", "command": huge}));
    assert_eq!(client.call("list", &json!({}))["panes"][0]["id"], "%0");
}

#[test]
fn mcp_applies_tiers_and_confirmation() {
    let mut world = World::with_server();
    world.set("MUXTAP_DENY", "kill");
    world.set("MUXTAP_CONFIRM", "input");
    let mut client = Client::new(&world);
    client.fails("READ_ONLY", "kill", &json!({"target": "main"}));
    // This client cannot ask a person.
    assert!(client.fails("READ_ONLY", "run", &json!({"target": "main", "command": "true"})).contains("confirmed"));
    client.call("create", &json!({"what": "window", "target": "main", "command": "cat"}));
    let log = std::fs::read_to_string(world.path("m.sock.audit.jsonl")).unwrap();
    assert!(log.lines().any(|line| line.contains(r#""face":"mcp""#) && line.contains("READ_ONLY")), "{log}");
}

#[test]
fn the_supervisors_tool_alone() {
    let world = World::with_server();
    let missing = run(&mut world.muxtap_command(&["mcp", "--tools", "manage-tmux-sessions"]));
    assert_eq!((missing.status, missing.stderr.trim()), (1, "Missing required env var: PLATFORM_URL"));
    let mut command = world.muxtap_command(&["mcp", "--tools", "manage-tmux-sessions"]);
    for name in ["PLATFORM_URL", "PLATFORM_TOKEN", "PLATFORM_CHANNEL_ID", "PLATFORM_THREAD_ID", "PLATFORM_BOT_ID"] {
        command.env(name, "x");
    }
    let mut client = Client::started(Background::start(&mut command));
    let listed = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["name"]), (1, &"manage_tmux_sessions".into()));
    let mut says = |arguments: Value| {
        let answer = client.ask("tools/call", &json!({"name": "manage_tmux_sessions", "arguments": arguments}));
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(says(json!({"action": "list"})), "No Claude sessions found across 1 tmux panes.");
    assert_eq!(says(json!({"action": "capture"})), "Error: target is required for capture");
    assert_eq!(
        says(json!({"action": "kill", "target": "nobody"})),
        "Error: session 'nobody' not found (cleaned up store)"
    );
    client.process.close_stdin();
    assert_eq!(client.process.line(), None);
}

/// The supervisor's tool is offered where it was chosen, or a chat for its questions is configured;
/// a name that a client knows from before still works.
#[test]
fn tools_are_offered_where_they_are_configured() {
    let mut world = World::with_server();
    world.ok(&["list-panes"]);
    let offered = |command: &mut std::process::Command| {
        let mut client = Client::started(Background::start(command));
        let listed = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
        let names = listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), client)
    };
    let supervisor = "manage_tmux_sessions".to_owned();
    let (names, mut client) = offered(&mut world.muxtap_command(&["mcp"]));
    for name in ["kill", "rename", "resize", "select", "respawn"] {
        assert!(names.iter().any(|offered| offered == name), "{name}: {names:?}");
    }
    assert!(!names.contains(&supervisor) && !names.contains(&"change".to_owned()), "{names:?}");
    client.call("change", &json!({"target": "main", "name": "renamed"}));
    assert_eq!(world.sessions(), ["renamed"]);
    assert!(client.says(&supervisor, &json!({"action": "list"})).starts_with("No Claude sessions"));
    let (names, mut client) = offered(&mut world.muxtap_command(&["mcp", "--tools", "record,manage-tmux-sessions"]));
    assert_eq!(names, ["record".to_owned(), supervisor.clone()]);
    // Other sets do not have the native tools, nor their earlier names.
    for name in ["list", "change"] {
        let refused = client.ask("tools/call", &json!({"name": name, "arguments": {}}));
        assert!(refused["error"].is_object(), "{refused}");
    }
    for name in ["PLATFORM_URL", "PLATFORM_TOKEN", "PLATFORM_CHANNEL_ID", "PLATFORM_THREAD_ID", "PLATFORM_BOT_ID"] {
        world.set(name, "x");
    }
    let (names, _client) = offered(&mut world.muxtap_command(&["mcp"]));
    assert!(names.contains(&supervisor), "{names:?}");
}

/// Every tool gets each argument with an impossible value: the error names the argument, and has
/// none of serde's terms.
#[test]
fn wrong_arguments_are_told_in_plain_words_by_every_tool() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let tools = client.ask("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().clone();
    assert!(tools.len() > 10);
    let is_plain = |message: &str| {
        let jargon = ["invalid type", "invalid value", "missing field", "unknown field", "unknown variant", "untagged"];
        let jargon =
            jargon.into_iter().chain(["u64", "usize", "u16", "u32", "struct ", "sequence", "boolean", "at line"]);
        let found: Vec<_> = jargon.filter(|word| message.contains(word)).collect();
        assert!(found.is_empty(), "{found:?}: {message}");
    };
    let mut tried = 0;
    for tool in &tools {
        let name = tool["name"].as_str().unwrap();
        let schema = &tool["inputSchema"];
        let needed: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
        let with = |field: &str, value: Value| {
            let mut arguments: serde_json::Map<_, _> =
                needed.iter().map(|name| (name.as_str().unwrap().to_owned(), json!("x"))).collect();
            arguments.insert(field.to_owned(), value);
            Value::Object(arguments)
        };
        for field in schema["properties"].as_object().unwrap().keys() {
            // No argument is a list of numbers, nor an object of objects.
            for wrong in [json!([[1]]), json!({"a": {}}), json!(-1.5)] {
                let message = client.fails("INVALID_ARGUMENT", name, &with(field, wrong.clone()));
                is_plain(&message);
                assert!(
                    message.contains(&format!("{field}: expected"))
                        || message.contains(&format!("{field}[0]: expected"))
                        || message.contains(&format!("{field}.a: expected")),
                    "{name} {field} {wrong}: {message}"
                );
                tried += 1;
            }
            let misspelt = format!("{field}z");
            let message = client.fails("INVALID_ARGUMENT", name, &with(&misspelt, json!("x")));
            let refused = format!("{misspelt}: no such field (did you mean `");
            assert!(message.contains(&refused), "{name} {field}: {message}");
        }
        for field in &needed {
            let field = field.as_str().unwrap();
            let null = client.fails("INVALID_ARGUMENT", name, &with(field, Value::Null));
            assert!(null.contains(&format!("{field}: expected ")) && null.contains("got null"), "{name}: {null}");
            let mut without = with("x", Value::Null);
            without.as_object_mut().unwrap().retain(|name, _| name != "x" && name != field);
            let missing = client.fails("INVALID_ARGUMENT", name, &without);
            assert!(missing.contains(": required field is missing"), "{name}: {missing}");
        }
    }
    assert!(tried > 150, "{tried}");
    // Arguments of this tool are read leniently (`docs/manage-tmux-sessions.md`).
    let said = client.ask("tools/call", &json!({"name": "manage_tmux_sessions", "arguments": {"action": ["list"]}}));
    is_plain(&said.to_string());
    // An out-of-range value is reported with the range.
    for (tool, arguments, says) in [
        (
            "resize",
            json!({"target": "main", "width": 65_536}),
            "width: expected a whole number from 0 to 65535, got 65536",
        ),
        ("search", json!({"pattern": "x", "page": 1001}), "page: at most 1000"),
        ("wait_for", json!({"panes": "main", "patterns": "x", "timeout_ms": 86_400_001}), "timeout_ms"),
        ("capture_pane", json!({"target": "main", "history": 1e12}), "history: expected a whole number from 0 to "),
    ] {
        let message = client.fails("INVALID_ARGUMENT", tool, &arguments);
        assert!(message.contains(says), "{tool} {arguments}: {message}");
        is_plain(&message);
    }
}

/// A daemon's own directory is `/`.
#[test]
fn a_session_that_is_made_over_http_without_a_directory_begins_in_the_home_directory() {
    let world = World::new();
    // It starts the daemon.
    Client::new(&world).says("list", &json!({}));
    // The first one starts the tmux server.
    for name in ["first", "second"] {
        let request = json!({"name": name, "command": ["cat"]});
        let made = world.http("POST", &format!("/v1/sessions{}", world.query()), Some(&request)).json();
        let pane = made["pane"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let home = world.path("home");
        eventually("it is there", || {
            let listed = world.http("GET", &format!("/v1/panes{}", world.query()), None).json();
            let panes = listed["panes"].as_array().unwrap().clone();
            panes.iter().any(|one| one["id"] == pane.as_str() && one["path"] == home.to_str().unwrap())
        });
    }
}
