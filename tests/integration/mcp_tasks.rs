//! Tasks of an agent: for each, the call that a model makes first, through the program and a real
//! tmux. The call works, or its error names the right tool and argument.
//!
//! `docs/mcp.md` lists them.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::{Value, json};

use crate::{
    common::{World, eventually},
    mcp::Client,
};

fn text<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().unwrap_or_else(|| panic!("no {field}: {answer}"))
}

/// Creates a client, and returns the pane of the world's session, in which a shell is idle.
fn stage(world: &World) -> (Client, Value) {
    let mut client = Client::new(world);
    let prompt = client.call("wait_for", &json!({"panes": "main", "prompt": true, "since": "start"}));
    assert_eq!(prompt["outcome"], "matched", "{prompt}");
    (client, json!("main"))
}

#[test]
fn a_build_that_fails() {
    let world = World::with_server();
    let (mut client, pane) = stage(&world);
    let build = json!({"target": pane, "command": "echo compiling; echo 'error: no such crate' >&2; (exit 101)"});
    let said = client.says("run", &build);
    assert!(said.contains("error: no such crate\n") && said.ends_with("[exit status 101]"), "{said}");
}

#[test]
fn a_command_for_a_repl() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    world.window("printf '>>> '; while read -r line; do echo \"got $line\"; printf '>>> '; done");
    let sent = client.call("send_keys", &json!({"target": "%1", "text": "6 * 7", "submit": true}));
    assert_eq!(sent["submit"]["changed"], true, "{sent}");
    let said = client.says("wait_for", &json!({"panes": "%1", "patterns": "^got (.*)$"}));
    assert!(said.contains("%1 pattern /^got (.*)$/: got 6 * 7"), "{said}");
    // The error for a pane without a shell names the right tool.
    let error = client.fails("CONFLICT", "run", &json!({"target": "%1", "command": "6 * 7"}));
    assert!(error.contains("send_keys") && error.contains("wait_for") && !error.contains("send-keys"), "{error}");
}

#[test]
fn tests_in_five_panes() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let mut panes = Vec::new();
    for number in 0..5 {
        let command = format!("echo suite {number}; read -r go; exit {number}");
        let made = json!({"what": "window", "target": "main", "command": command, "keep": true});
        panes.push(text(&client.call("create", &made), "pane").to_owned());
    }
    for pane in &panes {
        client.call("send_keys", &json!({"target": pane, "keys": "Enter"}));
    }
    let ended = client.call("wait_for", &json!({"panes": panes, "exit": true, "all": true}));
    assert_eq!(ended["outcome"], "matched", "{ended}");
    let listed = client.says("list", &json!({"target": "main"}));
    for (number, pane) in panes.iter().enumerate() {
        let line = listed.lines().find(|line| line.starts_with(&format!("{pane} ")));
        assert!(line.is_some_and(|line| line.contains(&format!("(ended with {number})"))), "{listed}");
    }
}

#[test]
fn a_question_with_yes_or_no() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    world.window("printf 'Remove it? [y/N] '; read -r answer; echo \"answer: $answer\"; exec cat");
    let asked = client.call("wait_for", &json!({"panes": "%1", "patterns": "\\[y/N\\] $", "since": "start"}));
    assert_eq!(asked["outcome"], "matched", "{asked}");
    client.call("send_keys", &json!({"target": "%1", "keys": ["y", "Enter"]}));
    assert_eq!(client.call("wait_for", &json!({"panes": "%1", "patterns": "^answer: y$"}))["outcome"], "matched");
}

/// Asks twice, with the same words for different commands. Arrows move its cursor.
const CLAUDE: &str = r#"#!/usr/bin/env bash
stty -echo -icanon
ask() {
    at=1
    while :; do
        printf -v screen '\033[2J\033[H Bash command\n\n   %s\n\n Do you want to proceed?\n' "$1"
        number=0
        for label in Yes "Yes, and don't ask again" 'No, and tell Claude what to do differently (esc)'; do
            number=$((number + 1))
            if [ $number = $at ]; then mark='❯'; else mark=' '; fi
            printf -v row ' %s %d. %s\n' "$mark" $number "$label"
            screen+=$row
        done
        printf %s "$screen"
        IFS= read -rsn1 key
        case $key in
            $'\033') read -rsn2 key; case $key in '[A') at=$((at - 1)) ;; '[B') at=$((at + 1)) ;; esac ;;
            '') echo "$1: $at" >>"$HOME/answers"; return ;;
        esac
    done
}
ask 'rm -rf build'
ask 'rm -rf /'
printf '\033[2J\033[Hall is done\n> \n'
exec cat
"#;

/// Asks until any key arrives; a person answers at that moment.
const HASTY: &str = r#"#!/usr/bin/env bash
stty -echo -icanon
printf '\033[2J\033[H Bash command\n\n   rm -rf build\n\n Do you want to proceed?\n ❯ 1. Yes\n   2. No (esc)\n'
IFS= read -rsn3 key
printf '\033[2J\033[Hanswered at its own terminal\n> \n'
while IFS= read -rsn1 key; do echo "a key too many" >>"$HOME/answers"; done
"#;

/// Creates a world whose session runs such an agent.
fn with_agent(name: &str, script: &str) -> World {
    let mut world = World::new();
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join(name), script).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    world.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    world.tmux(&["new-session", "-d", "-s", "main", "-x", "100", "-y", "30", &format!("exec {name}")]);
    world
}

/// Returns the agent's question, if it differs from this one.
fn question(client: &mut Client, other: &str) -> Value {
    let mut asked = Value::Null;
    eventually("a question stands there", || {
        asked = client.call("list", &json!({"what": "agents"}))["agents"][0].clone();
        asked["state"] == "permission" && asked["question_id"].as_str() != Some(other)
    });
    asked
}

#[test]
fn an_agent_that_reads_a_line() {
    let ask = "printf \"Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: \"";
    let world = with_agent("aider", &format!("#!/bin/sh\n{ask}; read -r line; echo \"answer: $line\"; exec cat\n"));
    let mut client = Client::new(&world);
    let asked = question(&mut client, "");
    let given = json!({"target": "main", "answer": "N", "question_id": asked["question_id"]});
    assert_eq!(client.call("send_keys", &given)["taken"], true);
    assert_eq!(client.call("wait_for", &json!({"panes": "main", "patterns": "answer: N"}))["outcome"], "matched");
}

#[test]
fn an_agent_whose_answers_cannot_be_chosen() {
    let dialog =
        "  ┃  △ Permission required\\n  ┃\\n  ┃   Allow once   Allow always   Reject     ⇆ select  enter confirm";
    let world = with_agent("opencode", &format!("#!/bin/sh\nprintf '{dialog}'; read -r line\n"));
    let mut client = Client::new(&world);
    let asked = question(&mut client, "");
    let given = json!({"target": "main", "answer": "Reject", "question_id": asked["question_id"]});
    let error = client.fails("CONFLICT", "send_keys", &given);
    assert!(error.contains("no key was pressed") && error.contains("send_keys (keys)"), "{error}");
}

#[test]
fn another_agents_dialogs_are_listed_and_answered_by_question_id() {
    let world = with_agent("claude", CLAUDE);
    let mut client = Client::new(&world);
    let first = question(&mut client, "");
    let said = client.says("list", &json!({"what": "agents"}));
    assert!(said.contains("\n  | rm -rf build\n  | Do you want to proceed?\n"), "{said}");
    assert!(said.contains("> 1: Yes\n") && said.contains("3: No, and tell Claude"), "{said}");
    let id = text(&first, "question_id").to_owned();
    assert!(said.contains(&format!("question_id: \"{id}\"")), "{said}");
    let answer = |answer: &str, id: &str| json!({"target": "main", "answer": answer, "question_id": id});
    let error = client.fails("INVALID_ARGUMENT", "send_keys", &answer("perhaps", &id));
    assert!(error.contains("1: Yes; 2: Yes, and don't ask again; 3: No"), "{error}");
    let error = client.fails("INVALID_ARGUMENT", "send_keys", &json!({"target": "main", "answer": "1"}));
    assert!(error.contains("question_id") && error.contains("list"), "{error}");
    let given = client.call("send_keys", &answer("2", &id));
    assert_eq!((&given["answered"], &given["taken"]), (&"Yes, and don't ask again".into(), &true.into()), "{given}");
    assert_eq!(fs::read_to_string(world.path("home/answers")).unwrap(), "rm -rf build: 2\n");
    // The next question has the same words for another command, and is a different one.
    let second = question(&mut client, &id);
    for (asked, command) in [(&first, "rm -rf build"), (&second, "rm -rf /")] {
        assert_eq!(asked["question"], format!("Bash command\n{command}\nDo you want to proceed?"));
    }
    let error = client.fails("CONFLICT", "send_keys", &answer("1", &id));
    assert!(error.contains("another question") && error.contains(text(&second, "question_id")), "{error}");
    let given = client.call("send_keys", &answer("no", text(&second, "question_id")));
    assert_eq!(given["taken"], true, "{given}");
    assert_eq!(fs::read_to_string(world.path("home/answers")).unwrap(), "rm -rf build: 2\nrm -rf /: 3\n");
    assert!(client.fails("CONFLICT", "send_keys", &answer("1", &id)).contains("shows no question"));
}

/// A question that disappears before Enter was pressed was answered by a person.
#[test]
fn a_dialog_that_another_caller_answers_meanwhile() {
    let world = with_agent("claude", HASTY);
    let mut client = Client::new(&world);
    let asked = question(&mut client, "");
    let given = json!({"target": "main", "answer": "2", "question_id": asked["question_id"]});
    let error = client.fails("CONFLICT", "send_keys", &given);
    assert!(error.contains("Enter was not pressed"), "{error}");
    assert!(!world.path("home/answers").exists(), "no key came behind the first");
}

/// dash does not report that a command was interrupted. The pane is not blocked for others because
/// of it.
#[test]
fn a_pane_after_a_command_that_was_interrupted() {
    let world = World::with_server();
    let (mut client, pane) = stage(&world);
    let long = json!({"target": pane, "command": "echo first; sleep 1000", "timeout_ms": 5000});
    let error = client.fails("TIMEOUT", "run", &long);
    assert!(error.contains("first"), "{error}");
    client.call("send_keys", &json!({"target": pane, "keys": ["C-c"]}));
    assert_eq!(client.says("run", &json!({"target": pane, "command": "echo next"})), "next\n[exit status 0]");
}

#[test]
fn a_command_that_takes_longer_than_its_time() {
    let world = World::with_server();
    let (mut client, pane) = stage(&world);
    let go = world.path("go");
    let command = format!("echo first; until [ -e {} ]; do sleep 0.05; done; echo last; (exit 5)", go.display());
    let error = client.fails("TIMEOUT", "run", &json!({"target": pane, "command": command, "timeout_ms": 5000}));
    assert!(error.contains("within 5000 ms") && error.contains("first\n") && error.contains("C-c"), "{error}");
    let id = error.split("id: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    // The call times out once.
    let pending = client.call("run", &json!({"id": id, "timeout_ms": 100}));
    assert_eq!((&pending["outcome"], &pending["output"]), (&"pending".into(), &"first\n".into()), "{pending}");
    fs::write(&go, "").unwrap();
    let said = client.says("run", &json!({"id": id}));
    assert_eq!(said, "first\nlast\n[exit status 5]");
    // A repeated call gets the same result.
    assert_eq!(client.call("run", &json!({"id": id}))["exit_status"], 5);
    let error = client.fails("NOT_FOUND", "run", &json!({"id": "r99-nothing"}));
    assert!(error.contains("10 minutes"), "{error}");
}

#[test]
fn a_command_that_takes_longer_than_a_call() {
    let mut world = World::with_server();
    // A call has this much time on a slow machine.
    world.set("MUXTAP_MCP_HOLD", "6");
    let (mut client, pane) = stage(&world);
    let go = world.path("go");
    let command = format!("echo first; until [ -e {} ]; do sleep 0.05; done; echo last", go.display());
    let pending = client.call("run", &json!({"target": pane, "command": command, "timeout_ms": 600_000}));
    assert_eq!((&pending["outcome"], &pending["exit_status"]), (&"pending".into(), &Value::Null), "{pending}");
    // Another client may use its id, and another run waits for its turn.
    let mut other = Client::new(&world);
    let late = json!({"target": pane, "command": "echo never", "timeout_ms": 500});
    let error = other.fails("TIMEOUT", "run", &late);
    assert!(error.contains("another run is under way"), "{error}");
    fs::write(&go, "").unwrap();
    let ended = other.call("run", &json!({"id": pending["id"]}));
    assert_eq!((&ended["output"], &ended["exit_status"]), (&"first\nlast\n".into(), &0.into()), "{ended}");
    assert_eq!(other.call("run", &json!({"target": pane, "command": "echo next"}))["output"], "next\n");
}

/// Reads on until there is no more.
fn pages(client: &mut Client, pane: &str, since: &str, max_chars: usize) -> Vec<String> {
    let (mut pages, mut since) = (Vec::new(), since.to_owned());
    loop {
        let read = client.call("read_since", &json!({"target": pane, "since": since, "max_chars": max_chars}));
        pages.push(text(&read, "text").to_owned());
        text(&read, "cursor").clone_into(&mut since);
        if read["more"] != true {
            return pages;
        }
    }
}

#[test]
fn a_hundred_kilobytes_of_output() {
    let world = World::with_server();
    let (mut client, pane) = stage(&world);
    let command = "i=0; while [ $i -lt 2500 ]; do echo \"line $i of an output that is long\"; i=$((i+1)); done";
    let whole: String = (0..2500).map(|number| format!("line {number} of an output that is long\n")).collect();
    let ran = client.call("run", &json!({"target": pane, "command": command, "max_chars": 4000}));
    assert_eq!((&ran["more"], &ran["exit_status"]), (&true.into(), &0.into()), "{ran}");
    let (head, tail) = (text(&ran, "output"), text(&ran, "tail"));
    assert!(head.len() <= 1000 && whole.starts_with(head) && whole.ends_with(tail) && tail.len() <= 3000, "{ran}");
    assert_eq!(ran["cut"], whole.len() - head.len() - tail.len());
    let read = pages(&mut client, "main", text(&ran, "cursor"), 7000);
    assert!(read.len() > 12 && read.iter().all(|page| page.len() <= 7001), "{}", read.len());
    assert!((head.to_owned() + &read.concat()).starts_with(&whole), "nothing is lost, and nothing told twice");
    // A read from the beginning gives the same, in whole lines.
    let read = pages(&mut client, "main", "start", 16_000);
    assert!(read.concat().contains(&whole));
    assert!(read.iter().rev().skip(1).all(|page| page.ends_with('\n')));
    // Without a size a read gives the end, and says how to read the rest.
    let end = client.call("read_since", &json!({"target": pane, "since": ran["cursor"]}));
    let shown = text(&end, "text");
    assert!(shown.len() <= 4000 && shown.starts_with("line "), "{end}");
    assert!(shown.contains("line 2499 of an output that is long\n") && end["more"].is_null(), "{end}");
    let rest = pages(&mut client, "main", text(&end, "cut_since"), 16_000).concat();
    assert!((head.to_owned() + &rest).starts_with(&whole) && rest.ends_with(shown), "the rest is all of it");
    let cut = usize::try_from(end["cut"].as_u64().unwrap()).unwrap();
    assert_eq!(cut + shown.chars().count(), rest.chars().count());
    let said = client.says("read_since", &json!({"target": pane, "since": ran["cursor"]}));
    let way = format!("read_since with since: {}, max_chars: 16000", end["cut_since"]);
    assert!(said.lines().next().unwrap().contains(&way) && said.len() < 4300, "{said}");
    let captured = client.says("capture_pane", &json!({"target": "main", "history": 1000}));
    assert!(captured.lines().next().unwrap().contains("before this; max_chars: "), "{captured}");
    assert!(captured.contains("line 2499 ") && captured.len() < 4300, "{captured}");
    let said = client.says("run", &json!({"target": pane, "command": command}));
    assert!(said.contains("line 2499 ") && said.contains("max_chars: 16000") && said.len() < 4300, "{said}");
    let said = client.says("read_since", &json!({"target": "main", "since": "start", "max_chars": 500}));
    assert!(said.lines().last().unwrap().contains("more is available: call read_since"), "{said}");
}

#[test]
fn a_server_that_must_be_up() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let command = "echo starting; read -r go; echo 'Listening on :8080'; exec cat";
    let made = client.call("create", &json!({"name": "web", "command": command}));
    client.call("send_keys", &json!({"target": made["pane"], "keys": ["Enter"]}));
    let wait = json!({"panes": "web", "patterns": "Listening on :(\\d+)", "fail": "EADDRINUSE", "settle_ms": 50});
    let up = client.call("wait_for", &wait);
    assert_eq!((&up["outcome"], &up["predicates"][0]["captures"][1]), (&"matched".into(), &"8080".into()), "{up}");
    // When the wait is repeated, the line has been on the screen all along, and the response says
    // so.
    let again = json!({"panes": "web", "patterns": "Listening", "since": "now", "timeout_ms": 300});
    let said = client.says("wait_for", &again);
    assert!(said.contains("timeout in ") && said.contains("(since: screen counts it): Listening on :8080"), "{said}");
}

#[test]
fn the_tail_of_a_log() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    world.window("seq 500; printf 'ready '; exec sed -u 's/^/got /'");
    client.call("wait_for", &json!({"panes": "%1", "patterns": "ready ", "since": "start"}));
    let mut read = client.call("read_since", &json!({"target": "%1", "since": "lines:3"}));
    assert_eq!(text(&read, "text"), "499\n500\nready ");
    client.call("send_keys", &json!({"target": "%1", "text": "new", "keys": ["Enter"]}));
    // A read returns as soon as there is output, perhaps a part of a line at first.
    let mut came = String::new();
    while !came.contains("got new") {
        read = client.call("read_since", &json!({"target": "%1", "since": read["cursor"], "wait_ms": 20_000}));
        assert_ne!(text(&read, "text"), "", "{read}");
        came += text(&read, "text");
    }
    assert!(came.starts_with("new\n"), "{came}");
}

#[test]
fn a_running_program_is_stopped() {
    let world = World::with_server();
    let (mut client, pane) = stage(&world);
    // The program itself says that it runs: a signal between a shell's fork and exec is lost.
    let program = "sh -c \"echo be''gun; exec cat\"";
    client.call("send_keys", &json!({"target": pane, "text": program, "keys": ["Enter"]}));
    let begun = client.call("wait_for", &json!({"panes": pane, "patterns": "begun"}));
    assert_eq!(begun["outcome"], "matched", "{begun}");
    // A key named like in other programs: nothing is typed, and the error has the right name.
    let error = client.fails("INVALID_ARGUMENT", "send_keys", &json!({"target": pane, "keys": ["Ctrl+C"]}));
    assert!(error.contains("\"C-c\"") && error.contains("nothing was typed"), "{error}");
    let sent = client.call("send_keys", &json!({"target": pane, "keys": ["C-c"]}));
    let stopped = client.call("wait_for", &json!({"panes": pane, "prompt": true}));
    assert_eq!(stopped["outcome"], "matched", "{stopped}");
    let read = client.call("read_since", &json!({"target": pane, "since": sent["cursor"]}));
    assert!(text(&read, "text").starts_with("^C"), "{read}");
}

#[test]
fn an_editor_is_left() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    // Stands in for an editor, as far as its keys: it ends with Escape and :q!
    let editor = "stty raw -echo; printf 'INSERT'; key=$(dd bs=1 count=1 2>/dev/null); stty sane; printf 'normal'; \
                  read -r line; echo \"left with $line\"; exec cat";
    world.window(editor);
    client.call("wait_for", &json!({"panes": "%1", "screen": "INSERT", "since": "start"}));
    let error =
        client.fails("INVALID_ARGUMENT", "send_keys", &json!({"target": "%1", "keys": ["ESC", ":q!", "<Enter>"]}));
    assert!(error.contains("unknown key \"ESC\"; write \"Escape\""), "{error}");
    let error =
        client.fails("INVALID_ARGUMENT", "send_keys", &json!({"target": "%1", "keys": ["Escape", ":q!", "Enter"]}));
    assert!(error.contains("unknown key \":q!\"; put it into `text`"), "{error}");
    client.call("send_keys", &json!({"target": "%1", "keys": "Escape"}));
    client.call("wait_for", &json!({"panes": "%1", "patterns": "normal"}));
    client.call("send_keys", &json!({"target": "%1", "text": ":q!", "keys": ["Enter"]}));
    assert_eq!(client.call("wait_for", &json!({"panes": "%1", "patterns": "left with :q!"}))["outcome"], "matched");
}

#[test]
fn a_pager_that_waits() {
    let world = World::with_server();
    let (mut client, pane) = stage(&world);
    let pager = "printf 'page 1\\n(END)'; read -r key; echo";
    let error = client.fails("TIMEOUT", "run", &json!({"target": pane, "command": pager, "timeout_ms": 5000}));
    assert!(error.contains("page 1\n(END)") && error.contains("send_keys"), "{error}");
    let id = error.split("id: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
    client.call("send_keys", &json!({"target": pane, "keys": ["q", "Enter"]}));
    assert_eq!(client.call("run", &json!({"id": id}))["exit_status"], 0);
}

#[test]
fn two_windows_are_compared() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    for (name, value) in [("old", "timeout = 30"), ("new", "timeout = 60")] {
        let command = format!("echo '{value}'; exec cat");
        let made =
            client.call("create", &json!({"what": "window", "target": "main", "name": name, "command": command}));
        client.call("wait_for", &json!({"panes": made["pane"], "patterns": "timeout"}));
    }
    let mut shown = |window: &str| {
        let shown = client.call("capture_pane", &json!({"target": format!("main:{window}")}));
        text(&shown, "text").to_owned()
    };
    assert_eq!((shown("old").as_str(), shown("new").as_str()), ("timeout = 30", "timeout = 60"));
    // The panes are side by side for a person who watches.
    client.call("select", &json!({"target": "main:new"}));
    let active = client.call("list", &json!({"what": "windows"}))["windows"].clone();
    let active: Vec<_> = active.as_array().unwrap().iter().filter(|window| window["active"] == true).collect();
    assert_eq!((active.len(), &active[0]["name"]), (1, &"new".into()), "{active:?}");
}

#[test]
fn a_command_whose_pane_ends() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let made = client
        .call("create", &json!({"what": "window", "target": "main", "command": "read -r go; exit 7", "keep": true}));
    client.call("send_keys", &json!({"target": made["pane"], "keys": ["Enter"]}));
    let said = client.says("wait_for", &json!({"panes": made["pane"], "patterns": "never"}));
    assert!(said.starts_with(&format!("the pane ended first in {} ", text(&made, "pane"))), "{said}");
    assert!(said.contains("exit status 7") && said.contains("pattern /never/: not yet"), "{said}");
    // Restarting the program is a change of the pane.
    let error = client.fails("CONFLICT", "send_keys", &json!({"target": made["pane"], "keys": ["Enter"]}));
    assert!(error.contains("respawn starts one"), "{error}");
    let again = json!({"target": made["pane"], "command": "echo again; exec cat"});
    client.call("respawn", &again);
    assert_eq!(client.call("wait_for", &json!({"panes": made["pane"], "patterns": "^again$"}))["outcome"], "matched");
    let error = client.fails("CONFLICT", "respawn", &again);
    assert!(error.contains("kill: true"), "{error}");
}

#[test]
fn an_unknown_pane() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    for (tool, arguments) in [
        ("capture_pane", json!({"target": "build"})),
        ("read_since", json!({"target": "%77"})),
        ("wait_for", json!({"panes": ["main:7"], "prompt": true})),
        ("run", json!({"target": "nobody", "command": "true"})),
        ("send_keys", json!({"target": "nobody", "keys": ["Enter"]})),
    ] {
        let error = client.fails("NOT_FOUND", tool, &arguments);
        assert!(error.contains("list shows what is there") && !error.contains("muxtap list-panes"), "{tool}: {error}");
    }
}

#[test]
fn a_cursor_that_is_stale() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let cursor = client.call("read_since", &json!({"target": "main", "since": "now"}))["cursor"].clone();
    let error = client.fails("INVALID_ARGUMENT", "read_since", &json!({"target": "main", "since": "c1.12.34"}));
    assert!(error.contains("since") || error.contains("cursor"), "{error}");
    drop(client);
    world.kill_daemon(rustix::process::Signal::TERM);
    let mut client = Client::new(&world);
    let said = client.says("read_since", &json!({"target": "main", "since": cursor}));
    assert!(said.starts_with("[output is missing here: muxtap-restarted]\n"), "{said}");
}

#[test]
fn a_regex_that_is_wrong() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let error = client.fails("INVALID_ARGUMENT", "wait_for", &json!({"panes": "main", "patterns": ["ok", "(done"]}));
    assert!(error.contains("patterns[1]"), "{error}");
    let error = client.fails("INVALID_ARGUMENT", "search", &json!({"pattern": "[a-"}));
    assert!(error.contains("pattern: "), "{error}");
}

#[test]
fn a_key_that_is_misspelt() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    world.window("stty -echo; echo ready; exec cat -v");
    client.call("wait_for", &json!({"panes": "%1", "patterns": "ready", "since": "start"}));
    for (wrong, right) in
        [("Ctrl+C", "C-c"), ("Return", "Enter"), ("<Enter>", "Enter"), ("ctrl-c", "C-c"), ("ESC", "Escape")]
    {
        let error =
            client.fails("INVALID_ARGUMENT", "send_keys", &json!({"target": "%1", "text": "x", "keys": [wrong]}));
        assert!(error.contains(&format!("write \"{right}\"")), "{wrong}: {error}");
    }
    // One string is one key; several keys are a list.
    let error = client.fails("INVALID_ARGUMENT", "send_keys", &json!({"target": "%1", "keys": "C-a Enter"}));
    assert!(error.contains(r#"["C-a","Enter"]"#), "{error}");
    client.call("send_keys", &json!({"target": "%1", "keys": "Enter"}));
    let read = client.call("read_since", &json!({"target": "%1", "wait_ms": 20_000}));
    assert_eq!(text(&read, "text"), "\n", "nothing else was typed");
}

#[test]
fn a_session_is_made_and_closed() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let made = client.call("create", &json!({"name": "scratch", "command": "exec cat"}));
    assert_eq!(text(&made, "session_name"), "scratch");
    let error = client.fails("CONFLICT", "create", &json!({"name": "scratch"}));
    assert!(error.contains("scratch"), "{error}");
    client.call("kill", &json!({"target": "scratch"}));
    eventually("it has gone", || world.sessions() == ["main"]);
}

#[test]
fn the_history_is_searched() {
    let world = World::with_server();
    let (mut client, pane) = stage(&world);
    let command = "for i in 1 2 3 4 5; do echo \"before $i\"; echo \"error $i\"; echo \"after $i\"; done";
    client.call("run", &json!({"target": pane, "command": command}));
    let found = client.call("search", &json!({"pattern": "^error", "max_lines": 2, "context": 1}));
    let lines = |found: &Value| -> Vec<String> {
        found["lines"].as_array().unwrap().iter().map(|line| text(line, "line").to_owned()).collect()
    };
    assert_eq!((&found["matches"], lines(&found).join(",")), (&5.into(), "error 4,error 5".into()), "{found}");
    assert_eq!(
        (&found["lines"][0]["before"][0], &found["lines"][0]["after"][0]),
        (&"before 4".into(), &"after 4".into())
    );
    let older = client.call("search", &json!({"pattern": "^error", "max_lines": 2, "page": found["next_page"]}));
    assert_eq!(lines(&older).join(","), "error 2,error 3");
    let oldest = client.call("search", &json!({"pattern": "^error", "max_lines": 2, "page": older["next_page"]}));
    assert_eq!((lines(&oldest).join(","), &oldest["next_page"]), ("error 1".into(), &Value::Null));
}

#[test]
fn a_pane_is_zoomed_and_leaves_copy_mode() {
    let world = World::with_server();
    world.tmux(&["split-window", "-d", "-t", "main:", "cat"]);
    let mut client = Client::new(&world);
    let flags = |format: &str| world.tmux(&["display-message", "-p", "-t", "%1", format]);
    for _ in 0..2 {
        // The earlier tool for all changes.
        client.call("change", &json!({"target": "%1", "select": true, "zoom": true}));
        assert_eq!(flags("#{pane_active}#{window_zoomed_flag}"), "11");
    }
    client.call("resize", &json!({"target": "%0", "zoom": true}));
    assert_eq!(flags("#{pane_active}#{window_zoomed_flag}"), "01");
    for _ in 0..2 {
        client.call("resize", &json!({"target": "%0", "zoom": false}));
        assert_eq!(flags("#{window_zoomed_flag}"), "0");
    }
    world.tmux(&["copy-mode", "-t", "%1"]);
    let error = client.fails("CONFLICT", "send_keys", &json!({"target": "%1", "keys": ["Up"]}));
    assert!(error.contains("copy-mode"), "{error}");
    for _ in 0..2 {
        client.call("select", &json!({"target": "%1", "leave_mode": true}));
        assert_eq!(flags("#{pane_in_mode}"), "0");
    }
}

#[test]
fn bells_and_titles_are_waited_for() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    world.window("read -r go; printf '\\033]2;finished\\007'; printf '\\a'; exec cat");
    client.call("send_keys", &json!({"target": "%1", "keys": ["Enter"]}));
    let waited = client.says("wait_for", &json!({"panes": "%1", "bell": true, "title": "^fin"}));
    assert!(waited.starts_with("matched in %1") && waited.contains("%1 bell: yes\n"), "{waited}");
}

#[test]
fn the_documentation_lists_these_tasks() {
    let docs = include_str!("../../docs/mcp.md");
    let section = docs.split("## Tasks\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let listed = section.lines().filter_map(|line| line.split('`').nth(1).filter(|_| line.starts_with("| ")));
    let mut listed: Vec<_> = listed.collect();
    listed.sort_unstable();
    let source = include_str!("mcp_tasks.rs");
    let tests = source.split("#[test]\nfn ").skip(1).filter_map(|test| test.split('(').next());
    let mut tests: Vec<_> = tests.filter(|name| !name.starts_with("the_documentation")).collect();
    tests.sort_unstable();
    assert_eq!(listed, tests);
    assert!(tests.len() >= 20);
}
