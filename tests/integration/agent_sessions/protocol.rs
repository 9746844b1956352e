//! What ACP has beyond prompts and permissions: logins, earlier sessions, message ids, plans, modes,
//! options, usage, forms and URLs.

use std::fs;

use rustix::process::Signal;

use serde_json::{Value, json};

use super::{Session, world};
use crate::{
    common::{World, eventually, is_alive, signal},
    mcp::Client,
};

/// The environment of an agent that has all of it; `more` is added.
fn new_env(world: &World, more: &Value) -> Value {
    let mut env = json!({"ACP_NEW": "1", "ACP_CLOSED": world.path("closed")});
    env.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "env": env })
}

#[test]
fn an_agent_is_told_what_the_client_can_do() {
    let world = world();
    let session = Session::new(&world);
    assert_eq!(session.outcome("client"), "end_turn");
    let said: Value = serde_json::from_str(session.said().trim()).unwrap();
    assert_eq!((&said["protocolVersion"], &said["clientInfo"]["name"]), (&json!(1), &json!("muxtap")), "{said}");
    assert_eq!(
        said["clientCapabilities"],
        json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true, "auth": {"terminal": false},
            "session": {"configOptions": {"boolean": {}}}, "elicitation": {"form": {}, "url": {}}})
    );
    // A missing file and a missing terminal have the protocol's own code, and others have not.
    fs::write(world.path("secret"), "secret").unwrap();
    let at = |name: &str| world.path(name).display().to_string();
    for (line, code) in [
        (format!("read {}", at("work/missing")), -32002),
        (format!("read {}", at("work/no/such/file")), -32002),
        (format!("read {}", at("secret")), -32603),
        (format!("read {}", at("none")), -32603),
    ] {
        session.outcome(&line);
        assert!(session.said().contains(&format!("\"code\": {code}")), "{line}: {}", session.said());
    }
    // A signal has its name, and there is no exit code beside it; a killed terminal has neither.
    session.outcome("run-and-kill exec sleep 1000");
    let said = session.said();
    let (ended, after) = said.split_once('\n').unwrap();
    let ended: Value = serde_json::from_str(ended).unwrap();
    assert_eq!(ended["exitCode"], Value::Null, "{ended}");
    assert!(after.contains("\"code\": -32002"), "{after}");
    session.outcome("run kill -KILL $$");
    let said: Value = serde_json::from_str(session.said().trim()).unwrap();
    // A shell that waits for the program reports the signal as 128 and its number.
    let either = [json!({"exitCode": null, "signal": "SIGKILL"}), json!({"exitCode": 137, "signal": null})];
    assert!(either.contains(&said[0]), "{said}");
    session.outcome("run exit 3");
    let said: Value = serde_json::from_str(session.said().trim()).unwrap();
    assert_eq!(said[0], json!({"exitCode": 3, "signal": null}));
    assert_eq!(said[1]["exitStatus"], said[0]);
}

#[test]
fn a_login_is_named_by_the_error_and_used_if_the_caller_names_it() {
    let world = world();
    let with = |auth: Option<&str>| {
        let mut request = new_env(&world, &json!({"ACP_START": "login"}));
        request["auth"] = json!(auth);
        Session::ask(&world, &request)
    };
    let refused = |auth: Option<&str>, words: &[&str]| {
        let error = with(auth);
        let message = error["message"].as_str().unwrap_or_else(|| panic!("{error}")).to_owned();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    refused(None, &["requires a login", "\"key\" (An API key)", "\"shell\" (A shell; in a terminal)", "`auth`"]);
    refused(Some("shell"), &["in a terminal"]);
    refused(Some("none"), &["unknown login", "An API key"]);
    assert_eq!(with(Some("key"))["status"], "idle");
    assert_eq!(world.json(&["agent-session", "list"])["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn an_agents_own_sessions_are_listed_resumed_without_their_messages_and_closed() {
    let world = world();
    let env = format!("ACP_CLOSED={}", world.path("closed").display());
    let given = ["--env", "ACP_NEW=1", "--env", &env];
    world.ok(&["agent-session", "list"]);
    let cwd = world.path("work").display().to_string();
    let listed = world.json(&[&["agent-session", "earlier", "--cwd", &cwd][..], &given].concat());
    let ids: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|one| one["session_id"].clone()).collect();
    assert_eq!(ids, ["old-0", "old-1", "old-2"], "{listed}");
    let first = &listed["sessions"][0];
    assert_eq!((&first["cwd"], &first["updated_at"]), (&json!(cwd), &json!("2026-11-01T00:00:00Z")), "{listed}");
    let all = world.ok(&[&["agent-session", "earlier", "--all", "--cwd", &cwd][..], &given].concat());
    assert!(all.lines().count() == 4 && all.contains("/elsewhere") && all.contains("old-2"), "{all}");
    // The agent that listed them is gone, and is no session.
    assert_eq!(world.json(&["agent-session", "list"])["sessions"], json!([]));
    assert!(world.processes().iter().all(|(_, line)| !line.contains("acp_agent")));
    world.error("CONFLICT", &["agent-session", "earlier", "--cwd", &cwd]);

    let mut request = new_env(&world, &json!({}));
    request["resume"] = "old-1".into();
    let session = Session::with(&world, &request);
    assert!(session.name.ends_with(":old-1") && session.kinds("").is_empty(), "{:?}", session.kinds(""));
    session.kill();
    assert_eq!(fs::read_to_string(world.path("closed")).unwrap(), "old-1");
    // An agent that does not reply to this is ended all the same.
    fs::remove_file(world.path("closed")).unwrap();
    let session = Session::with(&world, &new_env(&world, &json!({"ACP_START": "hang-at-close"})));
    let prompt = session.send("wait");
    assert_eq!(session.kill()["status"], "ended");
    assert!(world.path("closed").exists());
    assert_eq!(session.outcomes()[&prompt], "agent_exited");
}

/// A caller that disconnects while the agent closes its session has ended the agent all the same.
#[test]
fn a_kill_whose_caller_disconnects_ends_the_agent() {
    let mut world = world();
    world.set("MUXTAP_AUDIT", "true");
    let session = Session::with(&world, &new_env(&world, &json!({"ACP_START": "hang-at-close"})));
    let caller = world.spawn(&["agent-session", "kill", "-t", &session.name]);
    eventually("the agent is asked to close its session", || world.path("closed").exists());
    signal(caller.pid(), Signal::KILL);
    drop(caller);
    eventually("the agent is gone", || !is_alive(session.pid));
    assert_eq!(session.wait(&json!({"exit": true}))["outcome"], "matched");
    world.ok(&["stop"]);
    let audit = fs::read_to_string(world.path("m.sock.audit.jsonl")).unwrap();
    assert_eq!(audit.lines().filter(|line| line.contains("\"agent-kill\"")).count(), 1, "{audit}");
}

#[test]
fn parts_with_one_id_are_one_message_and_another_id_is_another() {
    let world = world();
    let session = Session::new(&world);
    session.outcome("part m1 one\npart m1 two\npart m2 three\ntool ls\npart m2 four");
    let ids: Vec<_> = session
        .events("since=prompt")
        .iter()
        .filter(|entry| entry["event"]["type"] == "message")
        .map(|entry| entry["event"]["message_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["m1", "m1", "m2", "m2"]);
    let waited = session.wait(&json!({"patterns": ["^onetwo$", "^threefour$"], "timeout_ms": 20_000}));
    assert_eq!(waited["outcome"], "matched", "{waited}");
    let sent = world.ok(&["agent-session", "send", "-t", &session.name, "--wait", "part a one\npart b two"]);
    assert_eq!(sent, "one\ntwo\n= end_turn");
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "sessions"]));
    let read = client.call("agent_session", &json!({"action": "read", "session": session.name}));
    assert_eq!(read["text"], "one\ntwo", "{read}");
}

#[test]
fn plans_usage_titles_modes_and_options_are_events_and_in_the_session() {
    let world = world();
    let session = Session::with(&world, &new_env(&world, &json!({})));
    let info = session.get("");
    assert_eq!((&info["mode"], &info["modes"][1]["id"]), (&json!("careful"), &json!("bold")), "{info}");
    assert_eq!(info["options"][2], json!({"id": "fast", "name": "Fast", "value": "false"}));
    let plan = json!([{"content": "look", "priority": "high", "status": "completed"},
                      {"content": "mend", "priority": "low", "status": "pending"}]);
    let usage = json!({"used": 50, "size": 200, "cost": {"amount": 0.25, "currency": "USD"}});
    let lines = [
        json!({"what": "plan", "entries": plan}),
        json!({"what": "usage_update", "used": 50, "size": 200, "cost": usage["cost"]}),
        json!({"what": "session_info_update", "title": "The\ntests"}),
        json!({"what": "available_commands_update", "availableCommands": []}),
    ];
    session.outcome(&lines.map(|line| format!("update {line}")).join("\n"));
    let kinds = session.kinds("since=prompt");
    assert_eq!(kinds[2..6], ["plan", "usage", "title", "update"], "{kinds:?}");
    let info = session.get("");
    assert_eq!((&info["plan"], &info["usage"]), (&plan, &usage), "{info}");
    assert!(!info["title"].as_str().unwrap().contains('\n'), "{info}");

    let set = |args: &[&str]| {
        let set = world.json(&[&["agent-session", "set", "-t", &session.name], args].concat());
        (set["mode"].clone(), set["options"][1]["value"].clone(), set["options"][2]["value"].clone())
    };
    assert_eq!(set(&["--mode", "bold"]), ("bold".into(), "small".into(), "false".into()));
    assert_eq!(
        set(&["--option", "model=large", "--option", "fast=true"]),
        ("bold".into(), "large".into(), "true".into())
    );
    let wrong = world.error("INVALID_ARGUMENT", &["agent-session", "set", "-t", &session.name, "--mode", "odd"]);
    assert!(wrong.contains("expected one of careful, bold"), "{wrong}");
    world.error("INVALID_ARGUMENT", &["agent-session", "set", "-t", &session.name, "--option", "none=x"]);
    let kinds = session.kinds("since=prompt");
    assert_eq!(kinds[kinds.len() - 4..], ["options", "mode", "options", "options"], "{kinds:?}");
    // The agent changes its mode by itself.
    session.outcome(r#"update {"what": "current_mode_update", "currentModeId": "careful"}"#);
    assert_eq!(session.get("")["mode"], "careful");
    // A model's request is confirmed by nobody here: the setting `confirm` decides.
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "sessions"]));
    let set = client.call(
        "agent_session",
        &json!({"action": "set", "session": session.name, "mode": "bold", "option": "model=small"}),
    );
    assert_eq!(
        (&set["sessions"][0]["mode"], &set["sessions"][0]["options"][1]["value"]),
        (&json!("bold"), &json!("small")),
        "{set}"
    );
    // A client with a person asks the person.
    let mut able = Client::able(world.spawn(&["mcp", "--tools", "sessions"]), &json!({"elicitation": {}}));
    let arguments = json!({"action": "set", "session": session.name, "mode": "careful"});
    let call = able.begin("tools/call", &json!({"name": "agent_session", "arguments": arguments}));
    let asked = able.message();
    assert!(asked["params"]["message"].as_str().unwrap().contains("mode \"careful\""), "{asked}");
    able.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}));
    assert_eq!(able.answer(call)["result"]["isError"], true);
    assert_eq!(session.get("")["mode"], "bold");
    // A request that is rejected anyway is no question: the first message is the response.
    for arguments in [
        json!({"action": "set", "session": "session:scripted:none", "mode": "careful"}),
        json!({"action": "set", "session": session.name}),
    ] {
        let call = able.begin("tools/call", &json!({"name": "agent_session", "arguments": arguments}));
        let answer = able.message();
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(call), &json!(true)), "{answer}");
    }
    // So does a session that begins in a mode.
    let arguments = json!({"action": "create", "provider": "sdk", "cwd": world.path("work"), "resume": "old-1",
        "mode": "bold", "env": {"ACP_NEW": "1"}});
    let call = able.begin("tools/call", &json!({"name": "agent_session", "arguments": arguments}));
    let asked = able.message();
    let question = asked["params"]["message"].as_str().unwrap_or_else(|| panic!("no question: {asked}"));
    assert!(question.contains("mode \"bold\"") && question.contains("old-1"), "{asked}");
    able.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}}));
    assert_eq!(able.answer(call)["result"]["isError"], true);
    assert_eq!(world.json(&["agent-session", "list"])["sessions"].as_array().unwrap().len(), 1);
    let listed = client.call(
        "agent_session",
        &json!({"action": "earlier", "provider": "sdk", "cwd": world.path("work"), "env": {"ACP_NEW": "1"}}),
    );
    assert_eq!(listed["earlier"][2]["session_id"], "old-2", "{listed}");
}

/// A process that an agent started cannot end its own questions by another mode, nor answer a form.
#[test]
fn an_agent_sets_no_mode_and_fills_in_no_form() {
    let world = world();
    let session = Session::with(&world, &new_env(&world, &json!({})));
    let program = world.plain_muxtap_command().get_program().to_str().unwrap().to_owned();
    let muxtap = format!("MUXTAP_SOCKET={} {program}", world.daemon_socket().display());
    session.outcome(&format!("run {muxtap} agent-session set -t {} --mode bold 2>&1; true", session.name));
    let said = session.said();
    assert!(said.contains("this agent started") || said.contains("an agent of this muxtap started"), "{said}");
    assert_eq!(session.get("")["mode"], "careful");
    // Nor does it continue another session in another mode.
    let resume = format!("--provider scripted --cwd {} --resume old-1", world.path("work").display());
    session.outcome(&format!("run {muxtap} agent-session create {resume} --mode bold 2>&1; true"));
    let said = session.said();
    assert!(said.contains("an agent of this muxtap started"), "{said}");
    assert_eq!(world.json(&["agent-session", "list"])["sessions"].as_array().unwrap().len(), 1);
}

const FORM: &str = r#"{"mode": "form", "message": "Which port?", "requestedSchema": {"type": "object",
    "properties": {"port": {"type": "integer", "minimum": 1}, "color": {"type": "string", "enum": ["red", "blue"],
    "default": "red"}}, "required": ["port"]}}"#;

#[test]
fn a_form_and_a_url_are_questions_to_the_person() {
    let world = world();
    let session = Session::new(&world);
    let form = format!("elicit {}", FORM.replace('\n', " "));
    let answered = || -> Value {
        session.wait(&json!({"idle": true}));
        serde_json::from_str(session.said().trim()).unwrap()
    };
    session.send(&form);
    let id = session.question();
    let question = session.get("/questions")["questions"][0].clone();
    assert_eq!((&question["kind"], &question["form"][1]["name"]), (&json!("form"), &json!("port")), "{question}");
    let detail = question["detail"].as_str().unwrap();
    assert!(
        detail.contains("Which port?") && detail.contains("field port") && detail.contains("no password"),
        "{detail}"
    );
    // A yes needs the required value; a wrong value answers nothing.
    let answer = |args: &[&str]| world.muxtap(&[&["agent-session", "answer", "-t", &session.name], args].concat());
    assert_eq!(answer(&["--allow", &id]).status, 2);
    assert_eq!(answer(&["--allow", "--field", "port=0", &id]).status, 2);
    assert_eq!(answer(&["--deny", "--field", "port=1", &id]).status, 2);
    assert_eq!(answer(&["--allow", "--field", "port=80", &id]).status, 0);
    assert_eq!(answered(), json!({"action": "accept", "content": {"port": 80, "color": "red"}}));

    session.send(&form);
    let id = session.question();
    assert_eq!(answer(&["--option", "decline", &id]).status, 0);
    assert_eq!(answered(), json!({"action": "decline"}));
    session.send(&form);
    session.question();
    session.post("/interrupt", &json!({}));
    assert_eq!(answered(), json!({"action": "cancel"}));

    // A URL: its real host is shown, and muxtap opens nothing. It is answered in approvals.
    session.send(r#"elicit {"mode": "url", "elicitationId": "e", "message": "Log in", "url": "https://bank.example@evil.example/x"}"#);
    let id = session.question();
    let question = session.get("/questions")["questions"][0].clone();
    assert_eq!(question["url"], "https://bank.example@evil.example/x", "{question}");
    assert!(question["detail"].as_str().unwrap().contains("opens: evil.example\n"), "{question}");
    let open = world.json(&["approvals"]);
    let approval = &open["approvals"][0];
    assert!(approval["prompt"].as_str().unwrap().contains("opens: evil.example"), "{open}");
    world.ok(&["approvals", "approve", approval["id"].as_str().unwrap()]);
    assert_eq!(answered(), json!({"action": "accept"}));
    assert_ne!(id, "");

    // What cannot be shown is no question.
    for wrong in [
        r#"{"mode": "url", "elicitationId": "e", "message": "x", "url": "javascript:alert(1)"}"#,
        r#"{"mode": "hologram", "message": "x"}"#,
        r#"{"mode": "form", "message": "x", "requestedSchema": {"properties": {"x": {"type": "color"}}}}"#,
    ] {
        assert_eq!(session.outcome(&format!("elicit {wrong}")), "end_turn");
        assert_eq!(answered()["code"], -32602, "{wrong}");
    }

    // The person of an MCP client sees the values that a model gives.
    let mut client = Client::able(world.spawn(&["mcp", "--tools", "sessions"]), &json!({"elicitation": {}}));
    let sent = client.call("agent_session", &json!({"action": "send", "session": session.name, "text": form}));
    let id = sent["questions"][0]["id"].as_str().unwrap_or_else(|| panic!("{sent}"));
    let arguments =
        json!({"action": "answer", "session": session.name, "question": id, "allow": true, "content": {"port": 8080}});
    let call = client.begin("tools/call", &json!({"name": "agent_session", "arguments": arguments}));
    let asked = client.message();
    let shown = asked["params"]["message"].as_str().unwrap();
    assert!(shown.contains("port = 8080") && shown.contains("Which port?"), "{asked}");
    let consent = json!({"action": "accept", "content": {}});
    client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": consent}));
    let done = client.answer(call);
    assert_eq!(done["result"]["isError"], false, "{done}");
    assert_eq!(answered(), json!({"action": "accept", "content": {"port": 8080, "color": "red"}}));
}
