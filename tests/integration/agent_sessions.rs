//! Agent sessions with a scripted agent (`tests/fixtures/acp_agent.py`), which can misbehave in
//! ways that a real one should not. `scripts/acp-agents` runs turns of real agents.

mod bounds;
mod protocol;
mod questions;
mod rules;
mod upgrades;

use std::{
    collections::BTreeMap,
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{ProcessEnd, World, eventually, is_alive, signal},
    mcp::Client,
    subscribers::Sse,
};

/// Creates a world whose configuration has the scripted agent as its default.
fn world() -> World {
    let world = World::new();
    configure(&world, "");
    world
}

pub fn configure(world: &World, more: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/acp_agent.py");
    fs::create_dir_all(world.path("home/muxtap")).unwrap();
    let text = format!("{more}[agent.scripted]\ncommand = [\"python3\", \"-B\", \"{script}\"]\ndefault = true\n");
    fs::write(world.path("home/muxtap/config.toml"), text).unwrap();
}

/// A session, as its caller sees it.
struct Session<'a> {
    world: &'a World,
    name: String,
    pid: u32,
}

impl<'a> Session<'a> {
    fn new(world: &'a World) -> Self {
        Self::with(world, &json!({}))
    }

    fn with(world: &'a World, more: &Value) -> Self {
        let answer = Self::ask(world, more);
        let name = answer["session"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        Self { world, name, pid: u32::try_from(answer["pid"].as_u64().unwrap()).unwrap() }
    }

    fn ask(world: &World, more: &Value) -> Value {
        let mut request = json!({"provider": "sdk", "cwd": world.path("work")});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        // The command starts the daemon.
        world.ok(&["agent-session", "list"]);
        world.http("POST", &format!("/v1/agent-sessions{}", world.query()), Some(&request)).json()
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/agent-sessions/{}{rest}", self.name)
    }

    fn post(&self, rest: &str, body: &Value) -> Value {
        self.world.http("POST", &self.path(rest), Some(body)).json()
    }

    fn get(&self, rest: &str) -> Value {
        self.world.http("GET", &self.path(rest), None).json()
    }

    /// Sends a prompt without waiting for its outcome; returns its number.
    fn send(&self, text: &str) -> u64 {
        let sent = self.post("/prompts", &json!({"text": text}));
        sent["prompt"].as_u64().unwrap_or_else(|| panic!("{sent}"))
    }

    /// Sends a prompt and waits for its outcome.
    fn outcome(&self, text: &str) -> String {
        let answer = self.post("/prompts", &json!({"text": text, "wait": true}));
        answer["outcome"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn wait(&self, body: &Value) -> Value {
        self.post("/wait", body)
    }

    fn events(&self, query: &str) -> Vec<Value> {
        let page = self.get(&format!("/events?limit=1024&{query}"));
        page["events"].as_array().unwrap_or_else(|| panic!("{page}")).clone()
    }

    /// Returns the outcomes of its prompts so far. Each prompt has at most one.
    fn outcomes(&self) -> BTreeMap<u64, String> {
        let mut outcomes = BTreeMap::new();
        for entry in self.events("") {
            let event = &entry["event"];
            if event["type"] == "outcome" {
                let word = event["outcome"].as_str().unwrap().to_owned();
                let second = outcomes.insert(event["prompt"].as_u64().unwrap(), word);
                assert_eq!(second, None, "{event}");
            }
        }
        outcomes
    }

    /// Returns what the agent has said since its last prompt.
    fn said(&self) -> String {
        let events = self.events("since=prompt");
        let messages = events.iter().filter(|entry| entry["event"]["type"] == "message");
        messages.map(|entry| entry["event"]["text"].as_str().unwrap()).collect()
    }

    fn kinds(&self, query: &str) -> Vec<String> {
        self.events(query).iter().map(|entry| entry["event"]["type"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits for the next permission question; returns its id.
    fn question(&self) -> String {
        let waited = self.wait(&json!({"question": true}));
        assert_eq!(waited["outcome"], "asking", "{waited}");
        waited["questions"][0]["id"].as_str().unwrap().to_owned()
    }

    fn kill(&self) -> Value {
        self.world.http("DELETE", &self.path(""), None).json()
    }
}

#[test]
fn a_workspace_offers_the_agent_session_commands() {
    let world = world();
    let name = world.ok(&["workspace", "session-create", "--env", "ACP_ID=first", "say hello"]);
    assert_eq!(name, "session:scripted:first");
    world.ok(&["workspace", "session-wait", "--target", &name, "-p", "hello", "--idle"]);
    assert!(world.ok(&["workspace", "session-send", "--target", &name, "--wait", "say again"]).contains("end_turn"));
    let listed = world.json(&["workspace", "session-list", "--provider", "scripted"]);
    let first = &listed["sessions"][0];
    assert_eq!((&first["session"], &first["sessionId"]), (&json!(name), &json!("first")), "{listed}");
    assert!(first["updatedAt"].is_u64() && first["createdAt"].is_u64() && first["updated_ms"].is_null(), "{listed}");
    // `wait-for` accepts a session as well, with the conditions of both kinds.
    world.ok(&["workspace", "wait-for", "--target", &name, "-p", "again", "--stable", "0.1", "-T", "40"]);
    let refused = |code: &str, args: &[&str]| {
        let answer = world.muxtap(&[&["--json", "workspace"], args].concat());
        assert_eq!(
            (answer.json()["code"].as_str(), answer.status),
            (Some(code), if code == "TIMEOUT" { 124 } else { 1 })
        );
        answer.json()["message"].as_str().unwrap().to_owned()
    };
    refused("TIMEOUT", &["wait-for", "--target", &name, "-p", "never", "-T", "0.1"]);
    refused("INVALID_ARGUMENT", &["wait-for", "--target", &name]);
    refused("INVALID_ARGUMENT", &["wait-for", "--target", &name, "--prompt"]);
    refused("NOT_FOUND", &["wait-for", "--target", "session:scripted:nobody", "--exit"]);
    // There is no shorthand, and an invalid form is reported with the valid ones.
    for wrong in ["scripted:first", "first", "session:scripted", "terminal:%1"] {
        for command in ["session-kill", "session-interrupt", "session-attach", "session-wait"] {
            let message = refused("INVALID_TARGET", &[command, "--target", wrong]);
            assert!(message.contains("session:PROVIDER:ID"), "{message}");
        }
        refused("INVALID_TARGET", &["session-send", "--target", wrong, "x"]);
    }
    world.ok(&["workspace", "session-interrupt", "--target", &name]);
    world.ok(&["workspace", "session-kill", "--target", &name]);
    assert!(world.ok(&["workspace", "session-attach", "--target", &name, "--since", "start"]).contains("again"));
}

#[test]
fn a_session_works_from_creation_to_its_end() {
    let world = world();
    let name = world.ok(&["agent-session", "create", "--env", "ACP_ID=first", "say hello\nthink hm\ntool ls"]);
    assert_eq!(name, "session:scripted:first");
    world.ok(&["agent-session", "wait", "-t", &name, "--idle"]);
    let sent = world.ok(&[
        "agent-session",
        "send",
        "-t",
        "scripted:first",
        "--wait",
        "say one\nsay  more\nnewline\ntool make",
    ]);
    assert_eq!(sent, "one more\n* make in_progress\noutput of make\n= end_turn");
    let list = world.json(&["agent-session", "list", "--provider", "scripted"]);
    assert_eq!(
        (&list["sessions"][0]["status"], &list["sessions"][0]["mode"]),
        (&"idle".into(), &"careful".into()),
        "{list}"
    );
    assert!(world.ok(&["agent-session", "list"]).contains("session:scripted:first  idle    0"));
    let session = Session { world: &world, name: name.clone(), pid: 0 };
    let kinds = session.kinds("since=start");
    assert_eq!(kinds[..6], ["prompt", "started", "message", "thought", "tool", "tool"], "{kinds:?}");

    // Reading in pages of one, with cursors, gives the same events, and so does the stream from any
    // cursor.
    let (mut cursor, mut pages) = ("start".to_owned(), Vec::new());
    loop {
        let page = session.get(&format!("/events?since={cursor}&limit=1"));
        pages.extend(page["events"].as_array().unwrap().clone());
        cursor = page["cursor"].as_str().unwrap().to_owned();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(pages, session.events("since=start"));
    let mut stream = Sse::of(&world, &session.path("/stream?since=start"), None).unwrap();
    let streamed: Vec<_> = pages.iter().map(|_| stream.next().unwrap().data).collect();
    assert_eq!(streamed, pages);
    let third = pages[2]["cursor"].as_str().unwrap();
    let mut resumed = Sse::of(&world, &session.path("/stream"), Some(third)).unwrap();
    assert_eq!(resumed.next().unwrap().data, pages[3]);

    // A read that waits returns when an event happens.
    let attached = world.spawn(&["agent-session", "attach", "-t", &name, "--since", "now"]);
    assert_eq!(session.outcome("say again"), "end_turn");
    assert_eq!(session.get(&format!("/events?since={cursor}&wait_ms=20000"))["events"][0]["event"]["type"], "prompt");
    let ended = session.kill();
    assert_eq!((&ended["status"], &ended["exit_signal"]), (&"ended".into(), &15.into()), "{ended}");
    let last = loop {
        let event = stream.next().expect("it ends with the agent");
        if event.data["event"]["type"] == "exited" {
            break stream.next();
        }
    };
    assert!(last.is_none(), "nothing follows: {last:?}");
    let attached = attached.finish();
    assert!(attached.status == 0 && attached.text().ends_with("= ended (signal 15)\n"), "{attached:?}");
    let gone = world.error("CONFLICT", &["agent-session", "send", "-t", &name, "say x"]);
    assert!(gone.contains("has ended"), "{gone}");
    world.error("NOT_FOUND", &["agent-session", "send", "-t", "session:scripted:other", "say x"]);

    // The agent's own memory of the session continues under the same name.
    let again = world.ok(&["agent-session", "create", "--provider", "scripted", "--resume", &name, "--mode", "bold"]);
    assert_eq!(again, name);
    let info = session.get("");
    assert_eq!((&info["mode"], &info["status"]), (&"bold".into(), &"idle".into()), "{info}");
    assert_eq!(session.kinds("")[..2], ["user", "message"]);
    let old = session.get(&format!("/events?since={cursor}"));
    assert_eq!(old["gap"]["reason"], "muxtap-restarted", "a cursor of the earlier agent: {old}");
}

#[test]
fn a_session_that_fails_to_start_reports_why_and_leaves_nothing() {
    let world = world();
    for (start, code, words) in [
        ("exit", "CONFLICT", "no licence for today"),
        ("version", "CONFLICT", "unsupported ACP version"),
        ("login", "CONFLICT", "log in with its own program"),
        ("odd-id", "CONFLICT", "an unusable session id"),
    ] {
        let error = Session::ask(&world, &json!({"env": {"ACP_START": start}}));
        assert!(error["code"] == code && error["message"].as_str().unwrap().contains(words), "{start}: {error}");
    }
    let wrong = |more: Value, code: &str| {
        let error = Session::ask(&world, &more);
        assert_eq!(error["code"], code, "{more}: {error}");
    };
    wrong(json!({"mode": "none"}), "CONFLICT");
    wrong(json!({"resume": "x", "env": {"ACP_START": "no-load"}}), "CONFLICT");
    wrong(json!({"resume": "session:claude:x"}), "INVALID_ARGUMENT");
    wrong(json!({"provider": "nobody"}), "INVALID_ARGUMENT");
    wrong(json!({"cwd": "work"}), "INVALID_ARGUMENT");
    wrong(json!({"cwd": world.path("nowhere")}), "INVALID_ARGUMENT");
    wrong(json!({"env": {"A=B": "x"}}), "INVALID_ARGUMENT");
    wrong(json!({"odd": 1}), "INVALID_ARGUMENT");
    // The program does not exist.
    wrong(json!({"provider": "claude", "env": {"PATH": "/nowhere"}}), "CONFLICT");
    let first = Session::with(&world, &json!({"env": {"ACP_ID": "same"}}));
    wrong(json!({"env": {"ACP_ID": "same"}}), "CONFLICT");
    wrong(json!({"resume": first.name}), "CONFLICT");
    let list = world.json(&["agent-session", "list"]);
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");
    let left = world.processes();
    assert_eq!(left.iter().filter(|(_, line)| line.contains("acp_agent")).count(), 1, "{left:?}");
}

#[test]
fn protocol_faults_end_in_outcomes() {
    let world = world();
    let session = Session::new(&world);
    assert_eq!(session.outcome("garbage\nsay after"), "end_turn");
    let faults = session.kinds("since=prompt").iter().filter(|kind| *kind == "fault").count();
    assert_eq!((faults, session.said().as_str()), (6, "after"));
    assert_eq!(session.outcome("twice\nsay more"), "end_turn");
    assert_eq!(session.outcome("odd-method"), "end_turn");
    assert!(session.said().contains("unknown method"));
    for (reason, outcome) in [
        ("refusal", "refusal"),
        ("max_tokens", "max_tokens"),
        ("max_turn_requests", "max_turns"),
        ("cancelled", "cancelled"),
        ("odd", "failed"),
    ] {
        assert_eq!(session.outcome(&format!("stop {reason}")), outcome);
    }
    let failed = session.post("/prompts", &json!({"text": "error no model", "wait": true}));
    assert_eq!((&failed["outcome"], &failed["error"]), (&"failed".into(), &"Internal error: no model".into()));
    // With 64 MiB in one line, an update is left out, and a line that a caller waits for ends the
    // agent.
    assert_eq!(session.outcome("long-update\nsay after"), "end_turn");
    assert_eq!(session.said(), "after");
    assert_eq!(session.outcome("long-reply"), "agent_exited");
    assert!(session.get("")["error"].as_str().unwrap().contains("too long"));

    for (prompt, status) in [("exit 5", json!(5)), ("half", json!(0)), ("close-output", Value::Null)] {
        let session = Session::new(&world);
        // The first prompt waits, so that none ends before all are sent.
        let first = session.send("wait");
        let second = session.send(&format!("say x\n{prompt}"));
        let queued = session.send("say never");
        session.post("/interrupt", &json!({}));
        let waited = session.wait(&json!({"exit": true, "idle": true}));
        assert_eq!(waited["outcome"], "matched", "{prompt}: {waited}");
        let exited = "agent_exited".to_owned();
        let expected = [(first, "cancelled".to_owned()), (second, exited.clone()), (queued, exited)];
        assert_eq!(session.outcomes(), BTreeMap::from(expected), "{prompt}");
        assert_eq!(session.get("")["exit_status"], status, "{prompt}");
        assert_eq!(session.kinds("").last().unwrap(), "exited", "{prompt}");
    }
    // What was said before the end counts.
    let session = Session::new(&world);
    assert_eq!(session.outcome("say x\nreply-and-exit"), "end_turn");
    let waited = session.wait(&json!({"patterns": ["never"]}));
    assert_eq!(waited["outcome"], "ended", "{waited}");
}

#[test]
fn prompts_run_in_order_and_an_interrupt_ends_only_the_running_one() {
    let world = world();
    let session = Session::new(&world);
    let (first, second) = (session.send("say one\nnewline\nwait"), session.send("say two\nwait"));
    assert_eq!(session.wait(&json!({"patterns": ["^one$"], "since": "start"}))["outcome"], "matched");
    let info = session.get("");
    assert_eq!((&info["running"], &info["queued"]), (&first.into(), &1.into()), "{info}");
    assert_eq!(session.post("/interrupt", &json!({}))["prompt"], first);
    assert_eq!(session.wait(&json!({"patterns": ["two"], "since": "start"}))["outcome"], "matched");
    assert_eq!(session.outcomes(), BTreeMap::from([(first, "cancelled".into())]));
    world.ok(&["agent-session", "interrupt", "-t", &session.name]);
    session.wait(&json!({"idle": true}));
    assert_eq!(session.outcomes().get(&second), Some(&"cancelled".to_owned()));
    assert_eq!(session.post("/interrupt", &json!({}))["prompt"], Value::Null);

    // The prompt times out: the agent is notified, and what it says of the prompt later comes too
    // late.
    let late = session.post("/prompts", &json!({"text": "wait", "timeout_ms": 50, "wait": true}));
    assert_eq!(late["outcome"], "timeout", "{late}");
    assert_eq!(session.outcome("say next"), "end_turn");
    assert!(session.events("").iter().any(|entry| entry["event"]["message"] == "a late reply"));

    // The agent hangs: the prompt behind is never sent, and each has its outcome.
    let hung = session.post("/prompts", &json!({"text": "hang", "timeout_ms": 50, "wait": true}));
    assert_eq!(hung["outcome"], "timeout");
    assert_eq!(session.get("")["status"], "unresponsive");
    let behind = session.post("/prompts", &json!({"text": "say x", "timeout_ms": 50, "wait": true}));
    assert_eq!(behind["outcome"], "timeout");
    let started: Vec<_> =
        session.events("").iter().filter(|entry| entry["event"]["type"] == "started").cloned().collect();
    assert!(started.iter().all(|entry| entry["event"]["prompt"] != behind["prompt"]), "{started:?}");
    let waits = world.spawn(&["agent-session", "send", "-t", &session.name, "--wait", "say y"]);
    eventually("it is queued", || session.get("")["queued"] == 1);
    session.kill();
    let answer = waits.finish();
    assert!(answer.status == 1 && answer.text().contains("agent_exited"), "{answer:?}");
}

#[test]
fn wait_conditions_match_past_and_future_events_and_stay_met() {
    let world = world();
    let session = Session::new(&world);
    session.send("say first li\nsay ne\nnewline\nsay 3 passed");
    session.wait(&json!({"idle": true}));
    // The text came before the wait, and in pieces.
    let waited = session.wait(&json!({"patterns": ["^first line$", r"(\d+) passed$"], "idle": true, "stable_ms": 20}));
    assert_eq!(waited["outcome"], "matched", "{waited}");
    assert_eq!(waited["conditions"][1]["captures"], json!(["3 passed", "3"]));
    let printed = world.ok(&["agent-session", "wait", "-t", &session.name, "-p", "pass.*", "--since", "start"]);
    assert_eq!(printed, "3 passed");
    // Future output: the pattern stays met while the agent is busy, until it is idle.
    session.send("say begun\nwait");
    let wait = world.spawn(&["agent-session", "wait", "-t", &session.name, "-p", "begun", "--idle"]);
    let timeout =
        world.muxtap(&["--json", "agent-session", "wait", "-t", &session.name, "-p", "begun", "--idle", "-T", "0.2"]);
    assert_eq!(timeout.status, 124, "{timeout:?}");
    let details = &timeout.error()["details"];
    assert_eq!((&details["conditions"][0]["met"], &details["conditions"][1]["met"]), (&true.into(), &false.into()));
    session.post("/interrupt", &json!({}));
    assert_eq!(wait.finish().status, 0);
    assert_eq!(world.muxtap(&["agent-session", "wait", "-t", &session.name, "--exit", "-T", "0.1"]).status, 124);
    world.error("INVALID_ARGUMENT", &["agent-session", "wait", "-t", &session.name]);
    world.error("INVALID_ARGUMENT", &["agent-session", "wait", "-t", &session.name, "-p", "("]);
    let exit = world.spawn(&["agent-session", "wait", "-t", &session.name, "--exit", "-T", "60"]);
    let never = world.spawn(&["agent-session", "wait", "-t", &session.name, "-p", "never", "-T", "60"]);
    session.kill();
    assert_eq!((exit.finish().status, never.finish().status), (0, 3));

    // More events than are kept: a reader that was disconnected gets the number of events it has
    // missed.
    let session = Session::new(&world);
    let cursor = session.get("")["cursor"].as_str().unwrap().to_owned();
    assert_eq!(session.outcome("flood 5000"), "end_turn");
    let page = session.get(&format!("/events?since={cursor}&limit=1"));
    assert_eq!((&page["gap"]["reason"], &page["gap"]["events"]), (&"trimmed".into(), &(5003 - 4096).into()), "{page}");
}

#[test]
fn a_permission_question_accepts_only_the_first_answer() {
    let mut world = world();
    world.set("MUXTAP_AUDIT", "true");
    let session = Session::new(&world);
    let answer = |id: &str, body: Value| session.post(&format!("/questions/{id}"), &body);
    // Answered over HTTP, by an option of the question.
    session.send("ask build");
    let id = session.question();
    let listed = session.get("/questions");
    assert_eq!(
        (&listed["questions"][0]["title"], &listed["questions"][0]["detail"]),
        (&"build".into(), &"command: rm -r build".into())
    );
    assert_eq!(session.get("")["status"], "asking");
    assert_eq!(answer(&id, json!({"option": "maybe"}))["code"], "INVALID_ARGUMENT");
    assert_eq!(answer(&id, json!({"option": "always"}))["ok"], true);
    let second = answer(&id, json!({"allow": false}));
    assert!(second["code"] == "CONFLICT" && second["message"].as_str().unwrap().contains("unix"), "{second}");
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected always\n");
    // Answered by a command.
    session.send("ask build");
    let id = session.question();
    world.ok(&["agent-session", "answer", "-t", &session.name, &id, "--deny"]);
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected no\n");
    world.error("CONFLICT", &["agent-session", "answer", "-t", &session.name, &id, "--allow"]);
    // Answered by an interrupt: the agent is notified that the question is cancelled.
    session.send("ask build");
    let waited = world.muxtap(&["agent-session", "wait", "-t", &session.name, "--idle", "--question"]);
    assert!(waited.status == 4 && waited.stderr.contains("build"), "{waited:?}");
    session.post("/interrupt", &json!({}));
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "cancelled -\n");
    // Answered by the person who uses an MCP client, not by the model.
    let mut client = Client::able(world.spawn(&["mcp", "--tools", "sessions"]), &json!({"elicitation": {}}));
    let sent = client.call("agent_session", &json!({"action": "send", "session": session.name, "text": "ask build"}));
    assert_eq!(sent["outcome"], "pending", "{sent}");
    let id = sent["questions"][0]["id"].as_str().unwrap();
    let arguments = json!({"action": "answer", "session": session.name, "question": id, "allow": true});
    let call = client.begin("tools/call", &json!({"name": "agent_session", "arguments": arguments}));
    let asked = client.message();
    let shown = asked["params"]["message"].as_str().unwrap();
    assert!(asked["method"] == "elicitation/create" && shown.contains("rm -r build"), "{asked}");
    client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}));
    assert_eq!(client.answer(call)["result"]["isError"], false);
    let waited = client.call("agent_session", &json!({"action": "wait", "session": session.name}));
    assert_eq!((&waited["outcome"], &waited["text"]), (&"matched".into(), &"selected no\n".into()), "{waited}");
    // The events and the audit log name the answerer.
    let answered: Vec<_> =
        session.events("").into_iter().filter(|entry| entry["event"]["type"] == "answered").collect();
    let by: Vec<_> =
        answered.iter().map(|entry| entry["event"]["by"].as_str().unwrap().split(' ').next().unwrap()).collect();
    assert_eq!(by, ["unix", "unix", "interrupt", "mcp"]);
    session.send("ask build");
    session.question();
    session.kill();
    assert_eq!(session.get("/questions")["questions"], json!([]));
    world.ok(&["stop"]);
    let log = fs::read_to_string(world.path("m.sock.audit.jsonl")).unwrap();
    let told: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let results: Vec<_> = told
        .iter()
        .filter(|entry| entry["action"] == "agent-permission" && entry["target"] == session.name.as_str())
        .map(|entry| entry["result"].as_str().unwrap())
        .collect();
    assert_eq!(results, ["INVALID_ARGUMENT", "allowed:always", "CONFLICT", "denied:no", "CONFLICT", "denied:no"]);
}

#[test]
fn at_a_terminal_attach_asks_its_user() {
    let world = World::with_server();
    configure(&world, "");
    let session = Session::new(&world);
    let bin = std::env::var("MUXTAP_TEST_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_muxtap").into());
    let pane = world.window(&format!("{bin} agent-session attach -t {}; exec cat", session.name));
    session.send("ask build");
    world.await_output(&pane, r"\? q1: build");
    world.ok(&["send-keys", "-t", &pane, "y", "Enter"]);
    world.await_output(&pane, "selected yes");
    session.kill();
    world.await_output(&pane, r"= ended");
}

/// An agent's text while a question is open looks like another question, below fifty empty rows:
/// its reader's answer then shows the open question again and allows nothing.
#[test]
fn an_agents_text_does_not_stand_for_a_question() {
    let world = World::with_server();
    configure(&world, "");
    let session = Session::new(&world);
    let bin = std::env::var("MUXTAP_TEST_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_muxtap").into());
    let pane = world.window(&format!("{bin} agent-session attach -t {}; exec cat", session.name));
    session.send("ask-and-say everything");
    world.await_output(&pane, r"\? q1: everything");
    world.await_output(&pane, r"^\| \? q1: ls -la$");
    world.await_output(&pane, r"^\|   Always / Yes / No \(y, n\)$");
    world.ok(&["send-keys", "-t", &pane, "y", "Enter"]);
    world.await_output(&pane, "q1 was not shown last");
    assert_eq!(session.get("/questions")["questions"].as_array().unwrap().len(), 1);
    let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
    let rows: Vec<_> = shown.lines().filter(|row| row.starts_with("? ")).collect();
    assert_eq!(rows, ["? q1: everything"], "{shown}");
    // Now the open question is the last thing on the screen.
    world.ok(&["send-keys", "-t", &pane, "y", "Enter"]);
    world.await_output(&pane, "selected yes");
    session.kill();
}

#[test]
fn an_agent_reads_and_writes_only_below_its_directory() {
    let world = world();
    let session = Session::new(&world);
    let at = |name: &str| world.path(name).display().to_string();
    fs::write(world.path("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", world.path("work/out")).unwrap();
    assert_eq!(session.outcome(&format!("write {} one two", at("work/new/a.txt"))), "end_turn");
    assert_eq!(session.said(), "{}\n");
    assert_eq!(fs::read_to_string(world.path("work/new/a.txt")).unwrap(), "one two");
    session.outcome(&format!("read {}", at("work/new/a.txt")));
    assert_eq!(session.said(), "{\"content\": \"one two\"}\n");
    for path in ["secret", "work/out", "work/../secret", "work/new"] {
        session.outcome(&format!("read {}\nwrite {} x", at(path), at(path)));
        assert_eq!(session.said().matches("{\"error\"").count(), 2, "{path}: {}", session.said());
    }
    assert_eq!(fs::read_to_string(world.path("secret")).unwrap(), "secret");
}

#[test]
fn an_agents_terminals_are_panes_like_any_other() {
    let world = world();
    let session = Session::new(&world);
    assert_eq!(session.outcome("run echo $GIVEN; pwd; exit 3\nrun seq 3"), "end_turn");
    let said = session.said();
    assert!(
        said.contains("\"exitCode\": 3") && said.contains(&format!("by env\\n{}", world.path("work").display())),
        "{said}"
    );
    assert!(said.contains("1\\n2\\n3\\n"), "{said}");
    // An agent's terminals can be listed, waited for and captured.
    session.outcome("open echo here I am; exec cat");
    let terminals = session.get("")["terminals"].clone();
    let pane = terminals[2]["pane"].as_str().unwrap_or_else(|| panic!("{terminals}")).to_owned();
    world.await_output(&pane, "^here I am");
    assert!(world.ok(&["capture-pane", "-t", &pane]).starts_with("here I am"));
    assert_eq!(session.outcome("run-and-kill exec sleep 1000"), "end_turn");
    let said = session.said();
    assert!(said.lines().count() == 2 && said.contains("unknown terminal"), "{said}");
    // They are closed with the session, and nothing else is.
    let other = world.ok(&["new-session", "-s", "mine"]);
    session.kill();
    assert_eq!(world.panes(), [other]);
}

/// A tmux that creates a terminal and then stops responding: no second one is created, and the
/// agent learns where the first one is.
#[test]
fn a_terminal_of_which_nobody_knows_is_named_and_not_made_twice() {
    let world = world();
    let session = Session::new(&world);
    assert_eq!(session.outcome("open exec cat"), "end_turn");
    let home = world.sessions()[0].clone();
    // The server itself reads the file before it sends its reply, and hangs until the file is written.
    let file = world.path("hangs");
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    world.tmux(&["set-hook", "-g", "window-linked", &format!("source-file '{}'", file.display())]);
    session.send("run exec cat");
    let said = session.wait(&json!({"patterns": ["error"], "timeout_ms": 50_000}));
    // Without a reader this is an error.
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    drop(rustix::fs::open(&file, flags, rustix::fs::Mode::empty()).unwrap());
    assert_eq!(said["outcome"], "matched", "{said}");
    let said = session.said();
    assert!(said.contains("unknown whether") && said.contains(&home), "{said} {home}");
    world.tmux(&["set-hook", "-gu", "window-linked"]);
    crate::common::eventually("it goes on", || world.muxtap(&["list-panes"]).status == 0);
    assert_eq!(world.sessions(), std::slice::from_ref(&home));
    let panes = world.tmux(&["list-panes", "-s", "-t", &home, "-F", "#{pane_id}"]);
    assert!(panes.lines().count() <= 2, "{panes}");
}

#[test]
fn no_process_that_an_agent_started_outlives_it() {
    let mut world = world();
    world.set("AUTH_TOKEN", "secret");
    world.set("PLATFORM_TOKEN", "secret");
    let child = |session: &Session| {
        assert_eq!(session.outcome("spawn"), "end_turn");
        session.said().trim().rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    // Terminals do not outlive a session that is killed, an agent that dies, or a daemon that
    // stops.
    let killed = Session::new(&world);
    let left = child(&killed);
    assert!(is_alive(left));
    killed.kill();
    assert!(!is_alive(left) && !is_alive(killed.pid));
    let died = Session::new(&world);
    let left = ProcessEnd::of(child(&died));
    signal(died.pid, Signal::KILL);
    left.wait();
    assert_eq!(died.wait(&json!({"exit": true}))["outcome"], "matched");
    assert_eq!(died.get("")["exit_signal"], 9);
    let stays = Session::new(&world);
    let left = ProcessEnd::of(child(&stays));
    // Its environment has none of muxtap's tokens, and not the daemon's place in tmux (`TMUX`).
    stays.outcome("env");
    let environment: Vec<(String, String)> = serde_json::from_str(&stays.said()).unwrap();
    let private = |name: &str| {
        name.starts_with("MUXTAP_") && name != "MUXTAP_AGENT_SESSION"
            || matches!(name, "AUTH_TOKEN" | "PLATFORM_TOKEN" | "TMUX")
    };
    assert!(environment.len() > 5 && !environment.iter().any(|(name, _)| private(name)), "{environment:?}");
    assert_eq!(stays.outcome("open exec sleep 1000"), "end_turn");
    let other = world.ok(&["new-session", "-s", "mine"]);
    world.ok(&["stop"]);
    left.wait();
    assert!(!is_alive(stays.pid));
    assert_eq!(world.tmux(&["list-panes", "-a", "-F", "#{pane_id}"]), other, "its terminals neither");
}

/// A few kills by default, as many as `MUXTAP_KILLS` gives (`MUXTAP_KILLS=1000`); prints its
/// measurements.
#[test]
fn every_prompt_has_an_outcome_if_agents_are_killed_at_random_moments() {
    let world = world();
    let kills: u32 = std::env::var("MUXTAP_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(24);
    let mut random = muxtap_random(u64::from(std::process::id()));
    let (mut late, mut kinds) = (Vec::new(), BTreeMap::<String, u32>::new());
    for _ in 0..kills {
        let session = Session::new(&world);
        let prompts: Vec<_> = (0..3)
            .map(|_| session.send(["flood 300", "say x\nwait", "ask x", "tool x\nflood 20", "spawn\nhang"][random(5)]))
            .collect();
        (0..random(16)).for_each(|_| drop(session.get("")));
        let end = ProcessEnd::of(session.pid);
        signal(session.pid, Signal::KILL);
        end.wait();
        let at = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        let waited = session.wait(&json!({"exit": true, "idle": true}));
        assert_eq!(waited["outcome"], "matched", "{waited}");
        let outcomes = session.outcomes();
        assert_eq!(outcomes.keys().copied().collect::<Vec<_>>(), prompts, "{outcomes:?}");
        for entry in session.events("").iter().filter(|entry| entry["event"]["outcome"] == "agent_exited") {
            late.push(entry["at_ms"].as_u64().unwrap().saturating_sub(at));
        }
        for outcome in outcomes.into_values() {
            *kinds.entry(outcome).or_default() += 1;
        }
    }
    late.sort_unstable();
    let of = |part: usize| late[(late.len() - 1) * part / 100];
    println!("{kills} kills: {kinds:?}; ms from exit to outcome: median {}, p99 {}, most {}", of(50), of(99), of(100));
    assert!(kinds.contains_key("agent_exited"));
    if kills >= 1000 {
        assert!(of(99) < 10, "ms: {late:?}");
    }
}

/// Returns pseudorandom numbers below a limit.
fn muxtap_random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

#[test]
fn another_coding_agent_is_a_tool_for_agents() {
    let world = world();
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "sessions"]));
    let mut ask = |arguments: Value| client.call("agent_session", &arguments);
    let made =
        ask(json!({"action": "create", "provider": "sdk", "cwd": world.path("work"), "text": "say hello\ntool ls"}));
    assert_eq!((&made["outcome"], &made["prompt"]), (&"end_turn".into(), &1.into()), "{made}");
    let said = made["text"].as_str().unwrap();
    assert!(said.starts_with("hello\n[tool ls in_progress]") && said.contains("output of ls"), "{said}");
    let name = made["session"].as_str().unwrap();
    let sent = ask(json!({"action": "send", "session": name, "text": "say x\nnewline\nwait", "wait_ms": 0}));
    assert_eq!(sent["outcome"], "pending");
    let waited = ask(json!({"action": "wait", "session": name, "patterns": "^x$"}));
    assert_eq!((&waited["outcome"], &waited["text"]), (&"matched".into(), &"x\n".into()), "{waited}");
    assert_eq!(ask(json!({"action": "interrupt", "session": name}))["prompt"], 2);
    assert_eq!(ask(json!({"action": "wait", "session": name}))["outcome"], "matched");
    let read = ask(json!({"action": "read", "session": name, "since": waited["cursor"]}));
    assert_eq!(read["text"], "", "{read}");
    // If no person can be asked, the model answers itself.
    let sent = ask(json!({"action": "send", "session": name, "text": "ask build"}));
    let question = sent["questions"][0]["id"].as_str().unwrap();
    ask(json!({"action": "answer", "session": name, "question": question, "option": "yes"}));
    assert_eq!(ask(json!({"action": "wait", "session": name}))["text"], "selected yes\n");
    assert_eq!(ask(json!({}))["sessions"][0]["session"], name);
    ask(json!({"action": "kill", "session": name}));
    client.fails("CONFLICT", "agent_session", &json!({"action": "send", "session": name, "text": "x"}));
    client.fails("INVALID_ARGUMENT", "agent_session", &json!({"action": "send", "text": "x"}));
}

#[test]
fn a_read_only_daemon_starts_no_agent() {
    let mut world = world();
    world.set("MUXTAP_READ_ONLY", "true");
    world.error("READ_ONLY", &["agent-session", "create"]);
    assert_eq!(world.json(&["agent-session", "list"])["sessions"], json!([]));
    world.error("READ_ONLY", &["agent-session", "send", "-t", "scripted:x", "y"]);
}
