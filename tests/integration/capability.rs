//! The tmux capability, in a real container and on this host: the examples of its first contract,
//! its errors, and `since`.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Background, World, eventually, signal, tmux_program},
    container::Container,
    mcp::{Client, structured},
};

/// A running `muxtap capability`, used line by line.
struct Capability {
    process: Background,
}

impl Capability {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut command = world.plain_muxtap_command();
        command.arg("capability").args(args);
        // Requests of 40 MiB take long on a busy machine.
        Self { process: Background::start_with(&mut command, 5 * crate::common::LIMIT) }
    }

    fn ask(&mut self, line: &str) -> Value {
        use std::io::Write as _;
        writeln!(self.process.stdin(), "{line}").unwrap();
        serde_json::from_str(&self.process.line().unwrap()).unwrap()
    }

    /// Sends a text; returns this many responses.
    fn say(&mut self, text: &str, responses: usize) -> Vec<Value> {
        use std::io::Write as _;
        self.process.stdin().write_all(text.as_bytes()).unwrap();
        (0..responses).map(|_| serde_json::from_str(&self.process.line().unwrap()).unwrap()).collect()
    }

    fn done(&mut self, line: &str) -> Value {
        let answer = self.ask(line);
        assert_eq!(answer["success"], true, "{line}: {answer}");
        assert!(answer.get("error").is_none() && answer.get("suggestion").is_none(), "{answer}");
        answer["data"].clone()
    }

    fn refused(&mut self, line: &str) -> (String, String) {
        let answer = self.ask(line);
        assert_eq!(answer["success"], false, "{line}: {answer}");
        let text = |field: &str| answer[field].as_str().unwrap_or_else(|| panic!("{line}: {answer}")).to_owned();
        (text("error"), text("suggestion"))
    }

    /// Reads a pane until its output contains this text.
    fn read_until(&mut self, pane: &str, text: &str) -> Value {
        let mut read = Value::Null;
        eventually(text, || {
            read = self.done(&format!(r#"<capability name="tmux" action="read" pane="{pane}" lines="50" />"#));
            read["output"].as_str().unwrap().contains(text)
        });
        read
    }
}

/// Creates a container in which npm and git are commands that print, and a capability in it.
fn sandbox(world: &mut World) -> (Container, Capability) {
    let container = Container::start(world.dir(), Some(&tmux_program()));
    world.set("PATH", container.path());
    world.set("SANDBOX_CONTAINER_NAME", container.name.clone());
    for (name, line) in
        [("npm", "echo \"npm $*\"; for i in 1 2 3; do echo \"step $i\"; done"), ("git", "mkdir -p repo; echo cloned")]
    {
        let program = world.path("root").join("bin").join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{line}\n")).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let capability = Capability::start(world, &[]);
    (container, capability)
}

#[test]
fn the_documented_examples_work_in_a_container() {
    let mut world = World::new();
    let (_container, mut tmux) = sandbox(&mut world);
    // Example 1: tests in the background.
    let init = tmux.done(r#"<capability name="tmux" action="init" />"#);
    assert_eq!(
        init,
        json!({ "session": "artie", "windows": [{ "id": 0, "name": "workspace", "panes": 1 }], "active_pane": "0.0" })
    );
    let sent = tmux.done(r#"<capability name="tmux" action="send" pane="0.0" command="npm test -- --watch" />"#);
    assert_eq!((&sent["pane"], &sent["command"]), (&json!("0.0"), &json!("npm test -- --watch")));
    assert!(sent["sent_at"].as_str().unwrap().ends_with('Z'), "{sent}");
    let read = tmux.read_until("0.0", "step 3");
    assert_eq!(read["pane"], "0.0");
    assert!(read["cursor_position"].is_string() && read["has_more"].is_boolean(), "{read}");
    assert_eq!(read["lines_captured"], read["output"].as_str().unwrap().lines().count());
    // Example 2: several processes.
    let split = tmux.done(r#"<capability name="tmux" action="split" window="0" direction="horizontal" />"#);
    assert_eq!((&split["pane"], &split["window"], &split["title"]), (&json!("0.1"), &json!(0), &json!("New pane")));
    tmux.done(r#"<capability name="tmux" action="send" pane="0.0" command="npm run dev" />"#);
    tmux.done(r#"<capability name="tmux" action="send" pane="0.1" command="tail -f /var/log/app.log" />"#);
    tmux.read_until("0.0", "npm run dev");
    tmux.read_until("0.1", "tail");
    // Example 3: a project's window.
    let window = tmux.done(r#"<capability name="tmux" action="window" name="myproject" />"#);
    assert_eq!(window, json!({ "window": 1, "name": "myproject", "pane": "1.0" }));
    let clone = "git clone https://github.com/user/repo &amp;&amp; cd repo";
    tmux.done(&format!(r#"<capability name="tmux" action="send" pane="1.0" command="{clone}" />"#));
    tmux.read_until("1.0", "cloned");
    let split = tmux.done(r#"<capability name="tmux" action="split" window="1" direction="vertical" />"#);
    assert_eq!(split["pane"], "1.1");
    tmux.done(r#"<capability name="tmux" action="send" pane="1.1" command="npm install &amp;&amp; npm run dev" />"#);
    tmux.read_until("1.1", "npm run dev\nstep 1");
    // Example 4: new output, each line once.
    tmux.done(r#"{"action":"send","pane":"1.1","command":"npm run build"}"#);
    let mut seen =
        tmux.read_until("1.1", "npm run build\nstep 1\nstep 2\nstep 3")["output"].as_str().unwrap().to_owned();
    tmux.done(
        r#"{"action":"send","pane":"1.1","command":"for i in 1 2 3 4 5 6 7 8 9; do echo new-$i-; done; echo end"}"#,
    );
    eventually("the end", || {
        let read = tmux.done(r#"<capability name="tmux" action="read" pane="1.1" since="true" />"#);
        seen.push('\n');
        seen.push_str(read["output"].as_str().unwrap());
        seen.contains("\nend")
    });
    for number in 1..10 {
        assert_eq!(seen.matches(&format!("new-{number}-")).count(), 1, "{seen}");
    }
    // The list shows all of it.
    let list = tmux.done(r#"<capability name="tmux" action="list" />"#);
    assert_eq!(list["session"], "artie");
    let windows = list["windows"].as_array().unwrap();
    assert_eq!(windows.iter().map(|window| &window["name"]).collect::<Vec<_>>(), ["workspace", "myproject"]);
    let first = &windows[0]["panes"][0];
    assert_eq!((&first["id"], &first["title"], &first["cwd"]), (&json!("0.0"), &json!("main"), &json!("/workspace")));
    assert!(first["active"].is_boolean() && first["running"].is_string(), "{first}");
    // Killing panes and windows.
    assert_eq!(
        tmux.done(r#"<capability name="tmux" action="kill" pane="0.1" />"#),
        json!({ "killed": "0.1", "type": "pane" })
    );
    assert_eq!(
        tmux.done(r#"<capability name="tmux" action="kill" window="1" />"#),
        json!({ "killed": "1", "type": "window" })
    );
    let (error, suggestion) = tmux.refused(r#"<capability name="tmux" action="kill" pane="0.0" />"#);
    assert!(error.contains("last") && suggestion.contains("action="), "{error} / {suggestion}");
    let list = tmux.done(r#"{"action":"list"}"#);
    assert_eq!(list["windows"].as_array().unwrap().len(), 1, "{list}");
}

#[test]
fn the_contracts_own_text_works_unchanged() {
    let mut world = World::new();
    let (_container, mut tmux) = sandbox(&mut world);
    // Examples 1 to 3 and the text of its integration tests, to the letter.
    let text = r#"
```xml
<!-- Initialize tmux -->
<capability name="tmux" action="init" />

<!-- Start test suite -->
<capability name="tmux" action="send"
  pane="0.0"
  command="npm test -- --watch" />

<!-- Check output after 5 seconds -->
<capability name="tmux" action="read"
  pane="0.0"
  lines="50" />
```
<!-- Create monitoring panes -->
<capability name="tmux" action="split"
  window="0"
  direction="horizontal" />

<!-- Read both -->
<capability name="tmux" action="read" pane="0.0" />
<capability name="tmux" action="read" pane="0.1" />

<capability name="tmux" action="window"
  name="myproject" />

<!-- Clone repo in new window -->
<capability name="tmux" action="send"
  pane="1.0"
  command="git clone https://github.com/user/repo && cd repo" />
<capability name="tmux" action="kill" pane="0.1" /> <capability name="tmux" action="list" />
"#;
    let answers = tmux.say(text, 9);
    let datum = |number: usize, field: &str| answers[number]["data"][field].clone();
    assert!(answers.iter().all(|answer| answer["success"] == true), "{answers:?}");
    assert_eq!(datum(1, "command"), "npm test -- --watch");
    assert_eq!((datum(3, "pane"), datum(5, "pane"), datum(6, "pane")), (json!("0.1"), json!("0.1"), json!("1.0")));
    assert_eq!(datum(7, "command"), "git clone https://github.com/user/repo && cd repo");
    // The last line has two tags.
    let answers = tmux.say("<capability action='read'/>\n", 2);
    assert_eq!(answers[0]["data"]["windows"][0]["panes"].as_array().unwrap().len(), 1, "{answers:?}");
    tmux.read_until("1.0", "cloned");
    // Nothing behind a malformed tag is carried out, and no attribute of it is used.
    let text = "<capability action='kill' pane='1.0' <capability action='read' pane='0.0'/>\n\
                <capability action=\"send\" command=\"echo \"a\"\"/>\n<capability action='kill'\n{\"action\":\"list\"}\n";
    let answers = tmux.say(text, 5);
    assert!(answers.iter().all(|answer| answer["success"] == false), "{answers:?}");
    let suggestion = answers[4]["suggestion"].as_str().unwrap();
    let resume = suggestion.find('<').and_then(|at| suggestion.get(at..=suggestion.find("/>")? + 1)).unwrap();
    let answers = tmux.say(&format!("{resume}\n{{\"action\":\"list\"}}\n"), 2);
    assert_eq!(answers[0]["data"]["resumed"], true, "{answers:?}");
    assert_eq!(answers[1]["data"]["windows"].as_array().unwrap().len(), 2, "{answers:?}");
}

#[test]
fn an_unfinished_tag_is_rejected() {
    let world = World::with_server();
    world.session("artie");
    let socket = world.socket().display().to_string();
    let mut tmux = Capability::start(&world, &["-S", &socket]);
    // Its sender waits for a response.
    let (error, _) = tmux.refused("<capability name=\"tmux\" action=\"list");
    assert!(error.contains("Invalid tag"), "{error}");
    // The lines that come after the pause may belong to its value.
    let (error, suggestion) = tmux.refused(r#"{"action":"kill","pane":"0.0"}"#);
    assert!(error.contains("Not run"), "{error}");
    let resume = suggestion.find('<').and_then(|at| suggestion.get(at..=suggestion.find("/>")? + 1)).unwrap();
    assert_eq!(tmux.done(resume), json!({ "resumed": true }));
    tmux.done(r#"{"action":"list"}"#);
    tmux.say("<capability action='list'", 0);
    tmux.process.close_stdin();
    let answer: Value = serde_json::from_str(&tmux.process.line().unwrap()).unwrap();
    assert_eq!(answer["success"], false);
    assert_eq!(tmux.process.finish().status, 0);
}

#[test]
fn addresses_hold_whatever_tmux_renumbers() {
    let world = World::with_server();
    world.tmux(&["set-option", "-g", "base-index", "1"]);
    world.tmux(&["set-option", "-g", "pane-base-index", "1"]);
    world.tmux(&["set-option", "-g", "renumber-windows", "on"]);
    world.session("artie");
    world.tmux(&["new-window", "-d", "-t", "artie:", "cat"]);
    world.tmux(&["split-window", "-d", "-t", "artie:2", "cat"]);
    let socket = world.socket().display().to_string();
    let dir = world.dir().display().to_string();
    let mut tmux = Capability::start(&world, &["-S", &socket, "--cwd", &dir]);
    let ids = |list: &Value| -> Vec<String> {
        let windows = list["windows"].as_array().unwrap();
        let panes = windows.iter().flat_map(|window| window["panes"].as_array().unwrap());
        panes.map(|pane| pane["id"].as_str().unwrap().to_owned()).collect()
    };
    // A session that was made before.
    assert_eq!(ids(&tmux.done(r#"{"action":"list"}"#)), ["0.0", "1.0", "1.1"]);
    tmux.done(r#"{"action":"send","command":"true"}"#);
    let split = json!({ "action": "split", "window": 1, "direction": "vertical" }).to_string();
    assert_eq!(tmux.done(&split)["pane"], "1.2");
    assert_eq!(
        tmux.done(r#"{"action":"window","name":"third"}"#),
        json!({ "window": 2, "name": "third", "pane": "2.0" })
    );
    let mark = |tmux: &mut Capability, pane: &str, text: &str| {
        tmux.done(&json!({ "action": "send", "pane": pane, "command": format!("echo {text}") }).to_string());
        tmux.read_until(pane, text);
    };
    mark(&mut tmux, "1.2", "here-is-1.2");
    mark(&mut tmux, "2.0", "here-is-2.0");
    // tmux renumbers panes, and now windows too.
    tmux.done(r#"{"action":"kill","pane":"1.0"}"#);
    tmux.done(r#"{"action":"kill","window":0}"#);
    assert_eq!(ids(&tmux.done(r#"{"action":"list"}"#)), ["1.1", "1.2", "2.0"]);
    world.tmux(&["swap-window", "-d", "-s", "artie:1", "-t", "artie:2"]);
    world.tmux(&["swap-pane", "-d", "-U", "-t", "artie:2.2"]);
    tmux.read_until("1.2", "here-is-1.2");
    tmux.read_until("2.0", "here-is-2.0");
    assert_eq!(tmux.refused(r#"{"action":"read"}"#).0, "Pane 0.0 not found");
    // A daemon that starts later knows them, and a new one takes no other's.
    world.ok(&["stop"]);
    tmux.read_until("2.0", "here-is-2.0");
    let window = tmux.done(r#"{"action":"window"}"#);
    assert_eq!((&window["window"], &window["pane"]), (&json!(0), &json!("0.0")));
}

#[test]
fn a_directory_that_a_container_lacks_is_an_error_and_running_is_the_command_line() {
    let mut world = World::new();
    let (_container, mut tmux) = sandbox(&mut world);
    tmux.done(r#"{"action":"init"}"#);
    for request in [
        json!({ "action": "split", "direction": "vertical", "cwd": "/nowhere" }),
        json!({ "action": "window", "cwd": "/nowhere" }),
        json!({ "action": "window", "cwd": "/etc/passwd" }),
    ] {
        let (error, _) = tmux.refused(&request.to_string());
        assert_eq!(error, format!("No such directory: {}", request["cwd"].as_str().unwrap()));
    }
    let list = tmux.done(r#"{"action":"list"}"#);
    assert_eq!(list["windows"].as_array().unwrap().len(), 1, "{list}");
    let pane = list["windows"][0]["panes"][0].clone();
    assert!(!pane["running"].as_str().unwrap().contains(' '), "a shell that waits: {pane}");
    let dir = world.path("root").join("workspace/a b");
    std::fs::create_dir(&dir).unwrap();
    tmux.done(&json!({ "action": "send", "command": "sleep 300" }).to_string());
    eventually("it runs", || {
        let list = tmux.done(r#"{"action":"list"}"#);
        list["windows"][0]["panes"][0]["running"] == "sleep 300"
    });
}

#[test]
fn a_half_printed_line_is_marked_and_counted_once() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; while read -r line; do eval \"$line\"; done");
    world.await_output(&pane, "^ready");
    let place = world.tmux(&["display-message", "-p", "-t", &pane, "#{window_index}.#{pane_index}"]);
    let path = format!("/v1/capability{}&session=main", world.query());
    let read = || {
        let request = json!({ "action": "read", "pane": place, "since": true });
        world.http("POST", &path, Some(&request)).json()["data"].clone()
    };
    let print = |text: &str, until: &str| {
        world.tmux(&["send-keys", "-t", &pane, &format!("printf '{text}'"), "Enter"]);
        world.ok(&["wait-for", "-t", &pane, "-p", until, "--since", "start", "-T", "30"]);
    };
    let first = read();
    assert_eq!((&first["output"], &first["last_line_open"]), (&json!("ready"), &Value::Null));
    print("Passed: 1", "Passed: 1");
    let half = read();
    assert_eq!((&half["output"], &half["last_line_open"]), (&json!("Passed: 1"), &json!(true)));
    assert_eq!((&half["cursor_position"], &half["first_line_continues"]), (&json!("2"), &Value::Null));
    print("2\\nAge: ", "Age: ");
    let rest = read();
    assert_eq!((&rest["output"], &rest["first_line_continues"]), (&json!("2\nAge: "), &json!(true)));
    assert_eq!((&rest["cursor_position"], &rest["last_line_open"]), (&json!("3"), &json!(true)));
    print("\\nover\\n", "over");
    let end = read();
    assert_eq!((&end["output"], &end["cursor_position"]), (&json!("over"), &json!("4")));
    assert_eq!((&end["first_line_continues"], &end["last_line_open"]), (&Value::Null, &Value::Null));
}

#[test]
fn an_open_line_is_marked_in_the_first_read_too() {
    let world = World::with_server();
    let pane = world.window("stty -echo; printf 'first\\nAge: '; exec cat");
    eventually("it has printed", || world.tmux(&["capture-pane", "-p", "-t", &pane]).contains("Age:"));
    let place = world.tmux(&["display-message", "-p", "-t", &pane, "#{window_index}.#{pane_index}"]);
    let path = format!("/v1/capability{}&session=main", world.query());
    let read = || {
        let request = json!({ "action": "read", "pane": place, "since": true });
        world.http("POST", &path, Some(&request)).json()["data"].clone()
    };
    world.ok(&["list-sessions"]);
    // The capture's own cursor says so, whether or not the screen is followed.
    let first = read();
    assert_eq!((&first["output"], &first["last_line_open"]), (&json!("first\nAge: "), &json!(true)), "{first}");
    world.tmux(&["send-keys", "-t", &pane, "42", "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "42", "--since", "start", "-T", "30"]);
    let rest = read();
    assert_eq!((&rest["output"], &rest["first_line_continues"]), (&json!("42"), &json!(true)), "{rest}");
    assert_eq!((&rest["cursor_position"], &rest["last_line_open"]), (&json!("2"), &Value::Null), "{rest}");
}

#[test]
fn a_request_that_is_none_is_a_response_and_a_tools_failure_is_an_error() {
    let world = World::with_server();
    world.session("artie");
    world.ok(&["list-panes"]);
    let path = format!("/v1/capability{}", world.query());
    for body in [json!([]), json!("list"), json!({ "tag": "x" }), json!({ "actoin": "list" })] {
        let answer = world.http("POST", &path, Some(&body));
        assert_eq!((answer.status, &answer.json()["success"]), (200, &json!(false)), "{answer:?}");
        assert!(answer.json()["suggestion"].is_string(), "{answer:?}");
    }
    let tags = json!({ "tag": "<capability action='kill' pane='0.0'/>\n<capability action='list'/>" });
    let answer = world.http("POST", &path, Some(&tags)).json();
    assert!(answer["error"].as_str().unwrap().contains("more than one request"), "{answer}");
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "capability"]));
    let call = |client: &mut Client, action: &str| {
        let call = json!({ "name": "tmux", "arguments": { "action": action, "pane": "7.7" } });
        client.ask("tools/call", &call)["result"]["isError"] == true
    };
    assert!(call(&mut client, "dance") && call(&mut client, "read"));
    assert!(!call(&mut client, "list"));
}

#[test]
fn the_documented_errors_carry_their_suggestions() {
    let mut world = World::new();
    let (container, mut tmux) = sandbox(&mut world);
    // Before any `init`.
    assert_eq!(
        tmux.refused(r#"{"action":"read","pane":"0.5"}"#),
        ("Pane 0.5 not found".into(), "Use action='list' to see available panes".into())
    );
    assert_eq!(tmux.refused(r#"{"action":"dance"}"#).0, "Unknown tmux action: dance");
    assert_eq!(tmux.refused(r#"{"action":"send"}"#).0, "Missing required parameter \"command\"");
    assert_eq!(tmux.refused(r#"{"action":"split"}"#).0, "Missing required parameter \"direction\"");
    for pane in ["x", "0", "0.0.0", "-1.0", "0.99999999999"] {
        let refused = tmux.refused(&json!({ "action": "kill", "pane": pane }).to_string());
        assert_eq!(refused.0, format!("Pane {pane} not found"));
    }
    tmux.refused("no JSON");
    tmux.refused("<capability/>");
    container.stop();
    eventually("it is noticed", || {
        let (error, suggestion) = tmux.refused(r#"{"action":"list"}"#);
        error == "Sandbox container not running" && suggestion == "Start container: docker-compose up -d sandbox"
    });
}

#[test]
fn the_capability_works_on_the_local_host_and_over_http() {
    let mut world = World::new();
    // C-l needs a line editor.
    world.set("SHELL", "/bin/bash");
    world.session("main");
    let dir = world.path("work").display().to_string();
    let socket = world.socket().display().to_string();
    let mut tmux =
        Capability::start(&world, &["-S", &socket, "--session", "robot", "--cwd", &dir, "--history-limit", "5000"]);
    let init = tmux.done(r#"{"action":"init"}"#);
    assert_eq!((&init["session"], &init["active_pane"]), (&json!("robot"), &json!("0.0")));
    // A second `init` returns the same.
    assert_eq!(tmux.done(r#"{"action":"init"}"#), init);
    assert_eq!(world.sessions(), ["main", "robot"]);
    let asked = |format: &str| world.tmux(&["display-message", "-p", "-t", "robot:0.0", format]);
    assert_eq!(asked("#{history_limit} #{pane_current_path}"), format!("5000 {dir}"));
    assert_eq!(asked("#{@PANE_TITLE} #{@PANE_CWD}"), format!("main {dir}"));
    assert!(asked("#{@PANE_CREATED}").ends_with('Z'));
    // Each pane's programs have the title too.
    let split = tmux.done(r#"{"action":"split","direction":"vertical","title":"50% & #{pane_id}"}"#);
    assert_eq!(split, json!({ "pane": "0.1", "window": 0, "title": "50% & #{pane_id}", "cwd": dir }));
    tmux.done(r#"{"action":"send","pane":"0.1","command":"echo \"<$PANE_TITLE|$PANE_CWD>\"","clear":true}"#);
    tmux.read_until("0.1", &["<50% & #{pane_id}|", &dir, ">"].concat());
    assert_eq!(world.tmux(&["display-message", "-p", "-t", "robot:0.1", "#{pane_title}"]), "50% & #{pane_id}");
    let created = world.tmux(&["display-message", "-p", "-t", "robot:0.1", "#{@PANE_CREATED}"]);
    tmux.done(r#"{"action":"send","pane":"0.1","command":"echo \"made-${PANE_CREATED%T*}\""}"#);
    tmux.read_until("0.1", &format!("made-{}\n", &created[..10]));
    // Over HTTP the session is the same.
    let path = format!("/v1/capability{}&session=robot", world.query());
    let list = world.http("POST", &path, Some(&json!({ "action": "list" }))).json();
    assert_eq!(list["data"]["windows"][0]["panes"][1]["title"], "50% & #{pane_id}", "{list}");
    let tag = world.http("POST", &path, Some(&json!({ "tag": "<capability name=\"tmux\" action=\"nap\"/>" }))).json();
    assert_eq!(tag["error"], "Unknown tmux action: nap");
    // A missing directory is an error, and not silently the home directory.
    let (error, _) = tmux.refused(r#"{"action":"window","cwd":"/nowhere/at/all"}"#);
    assert!(error.contains("/nowhere/at/all"), "{error}");
    // The server's other session is unchanged.
    assert_eq!(world.tmux(&["list-windows", "-t", "main", "-F", "#{window_index}"]), "0");
}

#[test]
fn since_is_exact_while_a_pane_floods() {
    let world = World::with_server();
    let dir = world.path("work").display().to_string();
    let socket = world.socket().display().to_string();
    let mut tmux = Capability::start(&world, &["-S", &socket, "--cwd", &dir]);
    tmux.done(r#"{"action":"read"}"#);
    tmux.done(r#"{"action":"send","command":"stty -echo; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo n$i.; done; echo all-$((1+1))"}"#);
    let mut seen = String::new();
    eventually("all of it", || {
        let read = tmux.done(r#"{"action":"read","since":true}"#);
        seen.push_str(read["output"].as_str().unwrap());
        seen.push('\n');
        seen.contains("all-2")
    });
    let joined: String = seen.chars().filter(|c| *c != '\n').collect();
    for number in 1..=3000 {
        assert_eq!(joined.matches(&format!("n{number}.")).count(), 1, "line {number}");
    }
}

/// Calls the tool. Returns its response, also one that reports an error.
fn called(client: &mut Client, arguments: &Value) -> Value {
    let answer = client.ask("tools/call", &structured("tmux", arguments));
    answer["result"]["structuredContent"].clone()
}

/// Adds a host with this command, for example one that never responds.
fn add_host(world: &World, name: &str, via: &str) {
    // Starts the daemon.
    world.ok(&["list-panes"]);
    let added = world.http("POST", "/v1/hosts", Some(&json!({ "name": name, "via": via, "peer": false })));
    assert_eq!(added.status, 200, "{added:?}");
}

#[test]
fn a_pane_never_leads_out_of_the_sandbox() {
    let world = World::with_server();
    world.session("artie");
    add_host(&world, "prod", "env");
    let path = format!("/v1/capability{}", world.query());
    let missing = "Pane prod/0.0 not found";
    for action in ["send", "read", "kill"] {
        let request = json!({ "action": action, "command": "echo typed", "pane": "prod/0.0" });
        let answer = world.http("POST", &path, Some(&request)).json();
        assert_eq!((&answer["success"], &answer["error"]), (&json!(false), &json!(missing)), "{answer}");
    }
    // A window, a session of the query, and a tag.
    let tag = json!({ "tag": "<capability name='tmux' action='send' command='echo typed' pane='prod/0.0' />" });
    assert_eq!(world.http("POST", &path, Some(&tag)).json()["error"], missing);
    let other = world.http("POST", &format!("{path}&session=prod/artie"), Some(&json!({ "action": "list" })));
    assert!(other.json()["error"].as_str().is_some_and(|why| !why.contains("host prod")), "{other:?}");
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "capability"]));
    let answer = called(&mut client, &json!({ "action": "send", "pane": "prod/0.0", "command": "echo typed" }));
    assert_eq!((&answer["success"], &answer["error"]), (&json!(false), &json!(missing)), "{answer}");
    assert!(!world.tmux(&["capture-pane", "-p", "-t", "artie"]).contains("typed"));
}

#[test]
fn a_host_with_the_containers_name_is_not_mistaken_for_it() {
    let world = World::with_server();
    world.session("artie");
    add_host(&world, "web", "false");
    let path = "/v1/capability?container=web";
    let answer = world.http("POST", path, Some(&json!({ "action": "list" }))).json();
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("is not the container web") && error.contains("`false`"), "{answer}");
    // An explicitly named server is used.
    let answer = world.http("POST", "/v1/capability?socket=web/default", Some(&json!({ "action": "list" }))).json();
    assert!(!answer["error"].as_str().unwrap_or_default().contains("is not the container"), "{answer}");
}

#[test]
fn every_line_gets_a_response_even_if_it_is_invalid_or_the_daemon_dies() {
    use std::io::Write as _;
    let world = World::with_server();
    world.session("artie");
    let socket = world.socket().display().to_string();
    let mut tmux = Capability::start(&world, &["-S", &socket]);
    tmux.done(r#"{"action":"list"}"#);
    tmux.process.stdin().write_all(b"{\"action\":\"\xff\"}\n").unwrap();
    let refused: Value = serde_json::from_str(&tmux.process.line().unwrap()).unwrap();
    assert!(refused["error"].as_str().unwrap().contains("UTF-8"), "{refused}");
    // More than the daemon accepts as a request.
    let large = json!({ "action": "send", "command": "x".repeat(40 << 20) }).to_string();
    tmux.refused(&large);
    tmux.done(r#"{"action":"list"}"#);
    world.ok(&["stop"]);
    tmux.done(r#"{"action":"list"}"#);
    tmux.refused("no JSON");
    // The daemon is killed in the middle.
    let pid = world.daemon_pid().unwrap();
    signal(pid, Signal::STOP);
    writeln!(tmux.process.stdin(), r#"{{"action":"list"}}"#).unwrap();
    signal(pid, Signal::KILL);
    tmux.process.line().unwrap();
    tmux.done(r#"{"action":"list"}"#);
    tmux.process.close_stdin();
    assert_eq!(tmux.process.finish().status, 0);
}

#[test]
fn a_hanging_server_delays_no_other_sandbox() {
    let world = World::with_server();
    world.session("artie");
    add_host(&world, "hangs", "sh -c 'exec sleep 1000' sh");
    for _ in 0..2 {
        drop(world.http_send("POST", "/v1/capability?socket=hangs/default", Some(&json!({ "action": "read" }))));
    }
    let hanging: Vec<_> = ["read", "list", "init"]
        .map(|action| {
            world.http_send("POST", "/v1/capability?socket=hangs/default", Some(&json!({ "action": action })))
        })
        .into();
    let pane = world.tmux(&["display-message", "-p", "-t", "artie", "#{window_index}.#{pane_index}"]);
    for action in ["read", "list", "init", "send"] {
        let request = json!({ "action": action, "pane": pane, "command": "true" });
        let answer = world.http("POST", &format!("/v1/capability{}", world.query()), Some(&request)).json();
        assert_eq!(answer["success"], true, "{answer}");
    }
    // These got responses before the hanging requests.
    for mut hangs in &hanging {
        hangs.set_nonblocking(true).unwrap();
        let read = std::io::Read::read(&mut hangs, &mut [0; 1]);
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    drop(hanging);
}

#[test]
fn on_this_host_it_begins_where_it_is_called() {
    let mut world = World::new();
    // The server that any command would use here.
    world.set("TMUX", format!("{},1,0", world.socket().display()));
    world.session("main");
    let mut tmux = Capability::start(&world, &["--local"]);
    assert_eq!(tmux.done(r#"{"action":"init"}"#)["session"], "artie");
    assert_eq!(world.sessions(), ["artie", "main"]);
    let list = tmux.done(r#"{"action":"list"}"#);
    assert_eq!(list["windows"][0]["panes"][0]["cwd"], json!(world.path("work").display().to_string()), "{list}");
}

#[test]
fn all_begins_anew_and_more_is_said() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; while read -r line; do eval \"$line\"; done");
    world.await_output(&pane, "^ready");
    let place = world.tmux(&["display-message", "-p", "-t", &pane, "#{window_index}.#{pane_index}"]);
    let path = format!("/v1/capability{}&session=main", world.query());
    let ask = |mut request: Value| {
        request["pane"] = json!(place);
        let answer = world.http("POST", &path, Some(&request)).json();
        assert_eq!(answer["success"], true, "{answer}");
        answer["data"].clone()
    };
    ask(json!({ "action": "read" }));
    // More than one response can hold.
    ask(json!({ "action": "send", "command": "seq 1 60000; echo end-$((1+1))" }));
    world.ok(&["wait-for", "-t", &pane, "-p", "^end-2", "--since", "start", "-T", "30"]);
    let first = ask(json!({ "action": "read", "since": true }));
    assert_eq!(first["has_more"], true);
    assert!(first["output"].as_str().unwrap().starts_with("1\n2\n"));
    // Afterwards `since` skips what it has not returned yet.
    let all = ask(json!({ "action": "read", "since": true, "all": true }));
    assert!(all["output"].as_str().unwrap().ends_with("60000\nend-2"));
    assert_eq!((&all["has_more"], &all["cursor_position"]), (&json!(false), &json!(all["lines_captured"].to_string())));
    let next = ask(json!({ "action": "read", "since": true }));
    assert_eq!((&next["output"], &next["has_more"]), (&json!(""), &json!(false)));
    let after = |position: &Value| position.as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(after(&next["cursor_position"]), after(&all["cursor_position"]));
}

#[test]
fn concurrent_readers_never_get_the_same_output() {
    const LINES: usize = 100_000;
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; while read -r line; do eval \"$line\"; done");
    world.await_output(&pane, "^ready");
    let place = world.tmux(&["display-message", "-p", "-t", &pane, "#{window_index}.#{pane_index}"]);
    let path = format!("/v1/capability{}&session=main", world.query());
    let read = || {
        let request = json!({ "action": "read", "pane": place, "since": true });
        let answer = world.http("POST", &path, Some(&request)).json();
        answer["data"]["output"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    read();
    // Enough for several responses.
    world.tmux(&["send-keys", "-t", &pane, &format!("seq 1 {LINES}; echo over"), "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^over", "--since", "start", "-T", "30"]);
    let all: Vec<String> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..6).map(|_| scope.spawn(read)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let mut numbers: Vec<usize> =
        all.iter().flat_map(|text| text.lines()).filter_map(|line| line.parse().ok()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=LINES).collect::<Vec<_>>());
}

#[test]
fn a_wrapped_line_counts_as_one() {
    let world = World::with_server();
    let pane =
        world.window("stty -echo; for n in $(seq 1 60); do printf 'line %d %0300d\\n' $n 0; done; exec sleep 1000");
    world.await_output(&pane, "line 60 0+$");
    let place = world.tmux(&["display-message", "-p", "-t", &pane, "#{window_index}.#{pane_index}"]);
    let path = format!("/v1/capability{}&session=main", world.query());
    let read = |lines: u32| {
        let request = json!({ "action": "read", "pane": place, "lines": lines });
        world.http("POST", &path, Some(&request)).json()["data"].clone()
    };
    for (lines, given, more) in [(40, 40, true), (59, 59, true), (60, 60, false), (100, 60, false), (1, 1, true)] {
        let data = read(lines);
        assert_eq!((&data["lines_captured"], &data["has_more"]), (&json!(given), &json!(more)), "{lines}: {data}");
        let first = format!("line {} 0", 61 - given);
        assert!(data["output"].as_str().unwrap().starts_with(&first), "{lines}: {data}");
    }
}

#[test]
fn agents_have_it_as_a_tool_where_they_ask_for_it() {
    let world = World::with_server();
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "capability"]));
    let listed = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
    assert_eq!(listed.as_array().unwrap().iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), ["tmux"]);
    // The server of the command line, and not a container.
    let made = called(&mut client, &json!({ "action": "window", "name": "mine", "cwd": world.dir() }));
    assert_eq!(made["error"], "No such directory: /workspace", "the session's own: {made}");
    // An existing session with that name is used unchanged.
    world.session("artie");
    let made = client.call("tmux", &json!({ "action": "window", "name": "mine", "cwd": world.dir() }));
    assert_eq!((&made["success"], &made["data"]["name"]), (&json!(true), &json!("mine")), "{made}");
    assert_eq!(world.sessions(), ["artie", "main"]);
    // No other tool is offered, so no other can be called.
    let unknown = client.ask("tools/call", &json!({ "name": "list", "arguments": {} }));
    assert!(unknown["error"]["message"].as_str().unwrap().contains("tmux"), "{unknown}");
}

#[test]
fn a_person_is_asked_before_it_types_where_that_is_configured() {
    let mut world = World::new();
    world.set("MUXTAP_CONFIRM", "input,kill");
    world.session("artie");
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "capability"]));
    let pane = world.tmux(&["display-message", "-p", "-t", "artie", "#{window_index}.#{pane_index}"]);
    // This client cannot ask a person.
    client.fails("READ_ONLY", "tmux", &json!({ "action": "send", "pane": pane, "command": "echo typed" }));
    client.fails("READ_ONLY", "tmux", &json!({ "action": "kill", "pane": pane }));
    let read = client.call("tmux", &json!({ "action": "read", "pane": pane }));
    assert!(!read["data"]["output"].as_str().unwrap().contains("typed"), "{read}");
}

#[test]
fn the_default_container_is_the_assistants_own() {
    for (named, container) in [(None, "coachartie-sandbox"), (Some(""), "coachartie-sandbox"), (Some("box"), "box")] {
        let mut world = World::new();
        let bin = world.path("bin");
        std::fs::create_dir(&bin).unwrap();
        let docker = bin.join("docker");
        std::fs::write(&docker, "#!/bin/sh\necho \"$@\" >>\"$HOME/asked\"\nexit 1\n").unwrap();
        std::fs::set_permissions(&docker, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        world.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
        if let Some(named) = named {
            world.set("SANDBOX_CONTAINER_NAME", named);
        }
        Capability::start(&world, &[]).refused(r#"{"action":"list"}"#);
        let asked = std::fs::read_to_string(world.path("home/asked")).unwrap();
        assert!(asked.lines().all(|line| line.starts_with(&format!("exec -i {container} "))), "{named:?}: {asked}");
        assert_eq!(world.http("GET", "/v1/hosts", None).json()["hosts"][0]["name"], container);
    }
}

#[test]
fn since_reports_output_that_is_no_longer_kept() {
    let mut world = World::new();
    world.set("MUXTAP_RING_BYTES", "65536");
    world.session("main");
    let pane = world.window("stty -echo; echo ready; while read -r line; do eval \"$line\"; done");
    world.await_output(&pane, "^ready");
    let place = world.tmux(&["display-message", "-p", "-t", &pane, "#{window_index}.#{pane_index}"]);
    let path = format!("/v1/capability{}&session=main", world.query());
    let read = || {
        let request = json!({ "action": "read", "pane": place, "since": true });
        world.http("POST", &path, Some(&request)).json()["data"].clone()
    };
    assert_eq!(read().get("missing_before"), None);
    world.tmux(&["send-keys", "-t", &pane, "seq 1 60000; echo over", "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^over", "--since", "start", "-T", "30"]);
    let after = read();
    assert_eq!(after["missing_before"], "trimmed", "{after}");
    assert!(!after["output"].as_str().unwrap().starts_with("1\n2\n"), "{after}");
    while read()["has_more"] == true {}
    assert_eq!(read().get("missing_before"), None);
}
