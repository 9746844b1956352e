//! Waits that cost their caller no turns: MCP's tasks, calls that are held for long, and kept results.
//!
//! `scripts/mcp-tasks` and `scripts/agents-waits` test the same with real clients.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Background, World, eventually},
    mcp::Client,
};

/// Creates a client that takes tasks.
fn with_tasks(world: &World) -> Client {
    Client::able(world.spawn(&["mcp"]), &json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}))
}

/// Begins a wait, which becomes a task. Returns the task's id.
fn task(client: &mut Client, tool: &str, arguments: &Value) -> String {
    let made = client.ask("tools/call", &json!({"name": tool, "arguments": arguments}))["result"].clone();
    assert_eq!((&made["resultType"], &made["status"]), (&json!("task"), &json!("working")), "{made}");
    assert!(made["ttlMs"].as_u64() > Some(3_600_000) && made["createdAt"].as_str().unwrap().ends_with('Z'), "{made}");
    made["taskId"].as_str().unwrap().to_owned()
}

/// Requests a task's state until it has ended.
fn ended(client: &mut Client, task: &str) -> Value {
    loop {
        let state = client.ask("tasks/get", &json!({"taskId": task}))["result"].clone();
        if state["status"] != "working" {
            return state;
        }
        assert!(state.get("result").is_none(), "{state}");
    }
}

fn said(state: &Value) -> &str {
    state["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {state}"))
}

/// Creates a pane that prints its input again, and returns its id.
fn cat(world: &World) -> String {
    world.window("stty -echo; echo up; exec cat");
    world.await_output("%1", "up");
    "%1".to_owned()
}

fn never(pane: &str) -> Value {
    json!({"panes": pane, "patterns": "^never$", "timeout_ms": 3_600_000})
}

#[test]
fn a_wait_is_a_task_for_a_client_that_takes_tasks() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut client = with_tasks(&world);
    let wait = json!({"panes": pane, "patterns": "^(\\d+) passed$", "timeout_ms": 3_600_000});
    let id = task(&mut client, "wait_for", &wait);
    // The request is held until the wait ends.
    let asked = client.begin("tasks/get", &json!({"taskId": id}));
    world.tmux(&["send-keys", "-t", &pane, "41 passed", "Enter"]);
    let mut state = client.answer(asked)["result"].clone();
    if state["status"] == "working" {
        state = ended(&mut client, &id);
    }
    assert_eq!((&state["status"], &state["resultType"]), (&json!("completed"), &json!("complete")), "{state}");
    assert!(said(&state).starts_with("matched in %1 ") && said(&state).contains("41 passed"), "{state}");
    assert!(state["result"].get("structuredContent").is_none(), "a model would see it instead: {state}");
    // It stays so, for another client, too.
    let again = ended(&mut with_tasks(&world), &id);
    assert_eq!(said(&again), said(&state));
    // Not for a client that was not offered the tool.
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let mut without = Client::able(world.spawn(&["mcp", "--tools", "sessions"]), &tasks);
    for method in ["tasks/get", "tasks/cancel"] {
        let refused = without.ask(method, &json!({"taskId": id}));
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
    // What has happened already is no task, and neither is a call that asks for an id.
    let answer = client.says("wait_for", &json!({"panes": pane, "patterns": "41 passed", "since": "screen"}));
    assert!(answer.starts_with("matched"), "{answer}");
    let answer = client.says("wait_for", &json!({"panes": pane, "patterns": "^never$", "detach": true}));
    assert!(answer.starts_with("pending: call wait_for with id"), "{answer}");
}

#[test]
fn a_client_that_does_not_announce_tasks_gets_none() {
    let mut world = World::with_server();
    world.set("MUXTAP_MCP_HOLD", "1");
    let pane = cat(&world);
    let mut client = Client::new(&world);
    assert!(client.says("wait_for", &never(&pane)).starts_with("pending: call wait_for with id"));
    let refused = client.ask("tasks/get", &json!({"taskId": "wait_for.1.0.w"}));
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let unknown = client.ask("tasks/list", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "the extension has no list: {unknown}");
}

#[test]
fn a_task_is_cancelled_with_its_wait() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut client = with_tasks(&world);
    let id = task(&mut client, "wait_for", &never(&pane));
    let asked = client.begin("tasks/get", &json!({"taskId": id}));
    let cancelled = client.ask("tasks/cancel", &json!({"taskId": id}));
    assert_eq!(cancelled["result"]["resultType"], "complete", "{cancelled}");
    let state = client.answer(asked)["result"].clone();
    assert_eq!(state["status"], "cancelled", "{state}");
    assert_eq!(world.json(&["result", "--list"])["waits"], json!([]));
    for method in ["tasks/get", "tasks/cancel"] {
        for id in ["", "x", "kill.1.0.w", "wait_for.1.0.w-none", "run.1.0.r9-none", "wait_for.1.0.../../etc/passwd"] {
            let refused = client.ask(method, &json!({"taskId": id}));
            assert_eq!(refused["error"]["code"], -32602, "{method} {id}: {refused}");
        }
    }
}

/// A match that no response has contained is still found by a later wait.
#[test]
fn a_match_of_a_task_that_was_cancelled_is_still_found() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut client = with_tasks(&world);
    let mut other = Client::new(&world);
    let wait = json!({"panes": pane, "patterns": "^kept$", "timeout_ms": 3_600_000});
    let id = task(&mut client, "wait_for", &wait);
    other.says("send_keys", &json!({"target": pane, "text": "kept", "submit": true}));
    let is_kept = |kept: &Value| kept.as_array().unwrap().iter().any(|one| one["line"] == "kept");
    eventually("the wait has ended", || is_kept(&world.json(&["result", "--list"])["kept"]));
    assert_eq!(client.ask("tasks/cancel", &json!({"taskId": id}))["result"]["resultType"], "complete");
    // By default a wait begins at the last input.
    let answer = other.says("wait_for", &wait);
    assert!(answer.starts_with("matched"), "{answer}");
}

/// A request for a task's state that its client gives up does not end the wait.
#[test]
fn a_task_outlives_requests_and_clients() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut client = with_tasks(&world);
    let id = task(&mut client, "wait_for", &never(&pane));
    let asked = client.begin("tasks/get", &json!({"taskId": id}));
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": asked}}));
    client.ask("ping", &json!({}));
    client.begin("tasks/get", &json!({"taskId": id}));
    drop(client);
    let mut next = with_tasks(&world);
    assert_eq!(world.json(&["result", "--list"])["waits"].as_array().unwrap().len(), 1);
    world.tmux(&["send-keys", "-t", &pane, "never", "Enter"]);
    assert!(said(&ended(&mut next, &id)).starts_with("matched"));
}

#[test]
fn a_tasks_result_outlives_the_daemon_and_a_lost_wait_has_failed() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut client = with_tasks(&world);
    let wait = json!({"panes": pane, "patterns": "^kept$", "timeout_ms": 3_600_000});
    let (kept, lost) = (task(&mut client, "wait_for", &wait), task(&mut client, "wait_for", &never(&pane)));
    world.tmux(&["send-keys", "-t", &pane, "kept", "Enter"]);
    let results = || world.json(&["result", "--list"])["kept"].clone();
    eventually("the result is in a file", || results()[0]["line"] == "kept");
    drop(client);
    world.kill_daemon(Signal::KILL);
    let mut client = with_tasks(&world);
    assert!(said(&ended(&mut client, &kept)).contains("kept"));
    let state = ended(&mut client, &lost);
    assert_eq!(state["status"], "failed", "{state}");
    assert!(state["error"]["message"].as_str().unwrap().contains("is unknown"), "{state}");
    let listed = world.ok(&["result", "--list"]);
    let states: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(states, ["matched", "unknown"], "{listed}");
}

#[test]
fn a_run_is_a_task_with_the_commands_output() {
    let world = World::with_server();
    let mut client = with_tasks(&world);
    // Not by the client with tasks: this wait would become one on a slow machine.
    Client::new(&world).says("wait_for", &json!({"panes": "main", "prompt": true, "since": "start"}));
    let go = world.path("go");
    let until = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let run = json!({"target": "main", "command": format!("{until}; echo done; (exit 4)"), "timeout_ms": 600_000});
    let id = task(&mut client, "run", &run);
    // The end of the watch is not that of the command.
    client.ask("tasks/cancel", &json!({"taskId": id}));
    fs::write(&go, "").unwrap();
    let state = ended(&mut client, &id);
    assert_eq!((said(&state), &state["result"]["isError"]), ("done\n[exit status 4]", &json!(false)), "{state}");
    // A run that times out has ended, for good. The command is continued by another task.
    fs::remove_file(&go).unwrap();
    // A machine that is too slow for a timeout gets a longer one.
    let id = (0..8).find_map(|slower| {
        let run = json!({"target": "main", "command": format!("{until}; echo late"), "timeout_ms": 2_000 << slower});
        let made = client.ask("tools/call", &json!({"name": "run", "arguments": run}))["result"].clone();
        let id = made["taskId"].as_str().map(str::to_owned);
        if id.is_none() {
            fs::write(&go, "").unwrap();
            Client::new(&world).says("wait_for", &json!({"panes": "main", "prompt": true}));
            fs::remove_file(&go).unwrap();
        }
        id
    });
    let id = id.expect("a task");
    // Whichever client asks.
    let state = ended(&mut client, &id);
    for client in [&mut client, &mut with_tasks(&world)] {
        let again = ended(client, &id);
        assert!(said(&again).starts_with("TIMEOUT: ") && again["result"]["isError"] == true, "{again}");
    }
    let run = said(&state).split("id: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    let next = task(&mut client, "run", &json!({"id": run}));
    fs::write(&go, "").unwrap();
    let state = ended(&mut client, &next);
    assert_eq!(said(&state), "late\n[exit status 0]");
    assert!(state["ttlMs"].as_u64() < Some(3_600_000), "it is kept for ten minutes: {state}");
    let again = ended(&mut with_tasks(&world), &id);
    assert!(said(&again).starts_with("TIMEOUT: "), "also after the command's end: {again}");
}

/// `--hold` is of one client, whatever the daemon's setting is.
#[test]
fn a_client_whose_calls_may_be_long_waits_in_one_call() {
    let mut world = World::with_server();
    world.set("MUXTAP_MCP_HOLD", "1");
    let pane = cat(&world);
    let mut client = Client::started(world.spawn(&["mcp", "--hold", "2h"]));
    let wait = json!({"name": "wait_for", "arguments": never(&pane)});
    let asked = client.begin("tools/call", &wait);
    // Another client's call is over after a second; this one's is held.
    let mut other = Client::new(&world);
    for _ in 0..2 {
        assert!(other.says("wait_for", &never(&pane)).starts_with("pending"));
    }
    world.tmux(&["send-keys", "-t", &pane, "never", "Enter"]);
    let answer = client.answer(asked);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("matched"), "{answer}");
}

#[test]
fn open_waits_and_kept_results_are_listed() {
    let world = World::with_server();
    let pane = cat(&world);
    let leave = |pattern: &str| world.ok(&["wait-for", "-t", &pane, "-p", pattern, "--background"]).trim().to_owned();
    let (first, open) = (leave("^first$"), leave("^never$"));
    world.tmux(&["send-keys", "-t", &pane, "first", "Enter"]);
    world.ok(&["result", &first]);
    let mut listed = String::new();
    eventually("the result is in a file", || {
        listed = world.ok(&["result", "--list"]);
        listed.contains(&first)
    });
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["ID", "STATE", "PANES", "AGE", "WHAT"]);
    assert_eq!((&rows[1][..3], &rows[1][4..]), (&[&*open, "open", "%1"][..], &["pattern", "^never$"][..]), "{listed}");
    assert_eq!((&rows[2][..3], rows[2][4]), (&[&*first, "matched", "%1"][..], "first"), "{listed}");
    assert_eq!(rows.len(), 3, "{listed}");
    // Over HTTP only on request.
    assert_eq!(world.http("GET", "/v1/waits", None).json().get("kept"), None);
    let listed = world.http("GET", "/v1/waits?kept=true", None).json();
    assert_eq!((&listed["waits"][0]["id"], &listed["kept"][0]["id"]), (&json!(open), &json!(first)), "{listed}");
    world.error("INVALID_ARGUMENT", &["result", "--list", &first]);
}

/// Where a result cannot be kept, its caller learns so at once, and the wait goes on.
#[test]
fn a_result_that_cannot_be_kept_is_announced() {
    let mut world = World::with_server();
    let pane = cat(&world);
    world.set("MUXTAP_MCP_HOLD", "1");
    world.kill_daemon(Signal::TERM);
    // As on a full disk, nothing can be written there.
    fs::write(format!("{}.waits", world.daemon_socket().display()), "").unwrap();
    let left = world.muxtap(&["wait-for", "-t", &pane, "-p", "^never$", "--background"]);
    let id = left.text().trim().to_owned();
    assert_eq!(left.status, 0, "{left:?}");
    assert!(left.stderr.contains("the result of this wait will not outlive the daemon: "), "{left:?}");
    let answer = Client::new(&world).says("wait_for", &json!({"id": id}));
    assert!(answer.starts_with("pending: ") && answer.contains("will not outlive this daemon: "), "{answer}");
    world.tmux(&["send-keys", "-t", &pane, "never", "Enter"]);
    assert_eq!(world.ok(&["result", &id]).trim(), "never");
}

/// Requests that are held for one task all get responses when it ends.
#[test]
fn many_requests_for_one_task_are_answered() {
    let world = World::with_server();
    let pane = cat(&world);
    let mut client = Client::able(
        Background::start(&mut world.muxtap_command(&["mcp"])),
        &json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
    );
    let id = task(&mut client, "wait_for", &never(&pane));
    let asked: Vec<u64> = (0..50).map(|_| client.begin("tasks/get", &json!({"taskId": id}))).collect();
    client.ask("tasks/cancel", &json!({"taskId": id}));
    let mut left: std::collections::BTreeSet<u64> = asked.into_iter().collect();
    while !left.is_empty() {
        let answer = client.message();
        assert!(left.remove(&answer["id"].as_u64().unwrap()), "{answer}");
        assert!(matches!(answer["result"]["status"].as_str(), Some("cancelled" | "working")), "{answer}");
    }
}

/// `result` waits in the daemon: it does not ask again and again.
#[test]
fn the_result_of_a_wait_is_awaited_in_one_request() {
    let world = World::with_server();
    let pane = cat(&world);
    let left = world.ok(&["wait-for", "-t", &pane, "-p", "^never$", "--background"]);
    let waiting = world.spawn(&["result", left.trim()]);
    let requests = || {
        let text = String::from_utf8(world.http("GET", "/metrics", None).body).unwrap();
        let of_route = |line: &&str| line.contains("_count{") && line.contains("route=\"/v1/waits/{id}\"");
        text.lines().filter(of_route).filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
    };
    // The wait's timeout is a day: a request that ends before the wait would be followed by others.
    assert_eq!(world.ok(&["result", "--list"]).lines().count(), 2);
    let before = requests();
    world.tmux(&["send-keys", "-t", &pane, "never", "Enter"]);
    assert_eq!(waiting.finish().text(), "never\n");
    assert!(before <= 1 && requests() <= before + 1, "{before} requests, then {}", requests());
}
