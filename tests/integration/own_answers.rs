//! A process that asks a person cannot answer its own question.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::{Value, json};

use crate::{
    common::{World, eventually},
    subscribers::Sse,
};

/// Speaks MCP with muxtap, requests a session, and tries to answer its own question in every way.
const ASKER: &str = r#"
mkfifo in
$MUXTAP mcp < in > out &
exec 3> in
say() { printf '%s\n' "$1" >&3; }
say '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}'
say '{"jsonrpc":"2.0","method":"notifications/initialized"}'
say '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"manage_tmux_sessions","arguments":{"action":"spawn","prompt":"p","name":"evil"}}}'
read -r go
id=$(cat id)
try() { "$@" > said 2>&1; echo "tried $? $(tr '\n' ' ' < said)"; }
try $MUXTAP approvals approve $id
try setsid -w $MUXTAP approvals approve $id
try sh -c "$MUXTAP approvals approve $id; exit \$?"
try curl -sS --fail-with-body --unix-socket $MUXTAP_SOCKET -H 'content-type: application/json' \
    -d '{"answer":"approved"}' http://localhost/v1/approvals/$id
try $MUXTAP approvals deny $id
echo all tried
exec cat
"#;

fn audit(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(format!("{}.audit.jsonl", world.daemon_socket().display())).unwrap_or_default();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["action"] == "approval").collect()
}

#[test]
fn a_program_in_a_pane_cannot_answer_its_own_question_but_another_pane_can() {
    let mut world = World::new();
    let programs = world.path("programs");
    fs::create_dir(&programs).unwrap();
    fs::write(programs.join("claude"), "#!/bin/sh\nexec cat\n").unwrap();
    fs::set_permissions(programs.join("claude"), fs::Permissions::from_mode(0o755)).unwrap();
    world.set("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
    world.session("main");
    // A person watches.
    world.ok(&["list-panes"]);
    let mut watch = Sse::of(&world, "/v1/approvals/events", None).unwrap();
    watch.find("it watches", |_| true);
    let muxtap = world.plain_muxtap_command().get_program().to_str().unwrap().to_owned();
    let muxtap = format!("{muxtap} -S {}", world.socket().display());
    let script = world.path("asker");
    fs::write(&script, ASKER).unwrap();
    let folder = world.path("work").display().to_string();
    let socket = world.daemon_socket().display().to_string();
    let asks = format!("cd {folder}; MUXTAP='{muxtap}' MUXTAP_SOCKET={socket} exec sh {}", script.display());
    let asker = world.window(&asks);
    world.ok(&["list-panes"]);
    let mut asked = Value::Null;
    eventually("it is asked", || {
        asked = world.json(&["approvals"])["approvals"][0].clone();
        asked.is_object()
    });
    assert_eq!(asked["name"], "evil", "{asked}");
    let id = asked["id"].as_str().unwrap();
    fs::write(world.path("work").join("id"), id).unwrap();
    world.tmux(&["send-keys", "-t", &asker, "Enter"]);
    world.await_output(&asker, "^all tried");
    let said = world.read_all(&asker);
    let tried: Vec<&str> = said.split("tried ").skip(1).collect();
    assert_eq!(tried.len(), 5, "{said}");
    for one in &tried {
        assert!(!one.starts_with('0') && one.contains("was asked by process"), "{said}");
    }
    let refused: Vec<Value> = audit(&world);
    assert_eq!(refused.len(), 5, "{refused:?}");
    assert!(refused.iter().all(|entry| entry["result"] == "UNAUTHORIZED" && entry["face"] == "unix"), "{refused:?}");
    assert_eq!(world.json(&["approvals"])["approvals"][0]["id"], asked["id"]);
    assert!(!world.sessions().contains(&"evil".to_owned()));

    // A person approves in another pane.
    let other =
        world.window(&format!("MUXTAP_SOCKET={socket} {muxtap} approvals approve {id}; echo said $?; exec cat"));
    world.await_output(&other, "^said 0");
    eventually("it is spawned", || world.sessions().contains(&"evil".to_owned()));
    let answered = audit(&world).pop().unwrap();
    let who = answered["who"].as_str().unwrap();
    assert!(who.starts_with("process ") && answered["result"] == "approved: the process is known", "{answered}");
    assert_eq!(answered["target"], format!("{id} session evil"));
    drop(watch);
}

/// Over HTTP on the daemon's socket, the process that called the tool counts as the asker too.
#[test]
fn an_mcp_caller_over_http_cannot_answer_its_own_question() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let mut watch = Sse::of(&world, "/v1/approvals/events", None).unwrap();
    watch.find("it watches", |_| true);
    let asker = world.path("asker");
    fs::write(
        &asker,
        r#"
post() { curl -sS -N --max-time 60 --unix-socket "$MUXTAP_SOCKET" -H 'content-type: application/json' \
    -H 'accept: application/json, text/event-stream' "$@" http://localhost/mcp; }
post -D head -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}' > first
session=$(tr -d '\r' < head | sed -n 's/^[Mm]cp-[Ss]ession-[Ii]d: //p')
post -H "mcp-session-id: $session" -d '{"jsonrpc":"2.0","method":"notifications/initialized"}'
post -H "mcp-session-id: $session" -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"manage_tmux_sessions","arguments":{"action":"spawn","prompt":"p","name":"evil"}}}' > second &
read -r id
curl -sS --unix-socket "$MUXTAP_SOCKET" -H 'content-type: application/json' -d '{"answer":"approved"}' "http://localhost/v1/approvals/$id"
echo; echo all tried
exec cat
"#,
    )
    .unwrap();
    let socket = world.daemon_socket().display().to_string();
    let pane = world.window(&format!(
        "cd {}; MUXTAP_SOCKET={socket} exec sh {}",
        world.path("work").display(),
        asker.display()
    ));
    world.ok(&["list-panes"]);
    let mut asked = json!([]);
    eventually("it is asked", || {
        asked = world.json(&["approvals"])["approvals"].clone();
        asked[0].is_object()
    });
    world.tmux(&["send-keys", "-t", &pane, asked[0]["id"].as_str().unwrap(), "Enter"]);
    world.await_output(&pane, "^all tried");
    let said = world.read_all(&pane);
    assert!(said.contains("UNAUTHORIZED"), "{said}");
    assert_eq!(world.json(&["approvals"])["approvals"], asked);
    drop(watch);
}
