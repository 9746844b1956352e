//! What people meet in their first hour: examples of the help, misspelled flags and names, wrong
//! values.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio};

use serde_json::{Value, json};

use crate::{
    common::{Answer, Background, World, eventually, run, tmux_program},
    hosts::{call, configure},
    readme::reader,
};

/// Builds a shell's command for a line as a person types it.
fn typed(world: &World, line: &str) -> std::process::Command {
    let mut command = world.command("bash");
    command.args(["-c", line]).stdin(Stdio::null());
    command
}

#[test]
fn the_first_examples_of_the_help_work_as_they_are() {
    let world = reader();
    let make = world.path("bin/make");
    fs::write(&make, "#!/bin/sh\necho PASS\n").unwrap();
    fs::set_permissions(&make, fs::Permissions::from_mode(0o755)).unwrap();
    // The server is older than the examples: its first pane has ended.
    for line in ["new-session -s first", "new-session -s second", "kill-session -t first"] {
        assert_eq!(run(&mut typed(&world, &format!("muxtap {line}"))).status, 0, "{line}");
    }
    // A login shell sets its own PATH.
    fs::write(world.path("home/.bash_profile"), format!("PATH={}:$PATH\n", world.path("bin").display())).unwrap();
    let help = run(&mut typed(&world, "muxtap --help")).text();
    let examples: Vec<&str> = help.split("Examples:\n").nth(1).unwrap().lines().take(5).map(str::trim).collect();
    for example in examples {
        // The comment.
        let line = example.split("  ").next().unwrap();
        if line.starts_with("muxtap tail -f") {
            let mut tail = Background::start(&mut typed(&world, line));
            run(&mut typed(&world, "muxtap send-keys -t work 'echo followed' Enter"));
            tail.line_where("the output is followed", |line| line.contains("followed"));
            tail.kill();
            continue;
        }
        let answer = run(&mut typed(&world, line));
        assert_eq!(answer.status, 0, "{line}: {answer:?}");
    }
}

/// One mistake has one status, wherever it is found, and with `--json` each error is one object.
#[test]
fn an_invalid_argument_is_status_2_and_one_object_with_json() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    for line in [
        "list-panes --nope",
        "nope",
        "run",
        "snapshot",
        "wait-for -t main",
        "wait-for -t main -p [",
        "wait-for -t main -p a -T soon",
        "tail --grep [ main",
        "tail -n abc main",
        "tail -f --grep [ main",
        "commands -t main --grep [",
        "read -t main --since never",
        "read -t main --max-bytes 99G",
        "events --types nope",
        "new-session -s x -e =1",
        "send-keys -t main -H 1",
        "serve --log-level loud",
        "serve --allow nope",
        "list-panes -S /etc/passwd",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let plain = world.muxtap(&words);
        assert!(plain.status == 2 && !plain.stderr.is_empty() && plain.text().is_empty(), "{line}: {plain:?}");
        let mut lines = vec![[&["--json"], &words[..]].concat()];
        // What follows keys is typed.
        if !line.starts_with("send-keys") {
            lines.push([&words[..], &["--json"]].concat());
        }
        for words in lines {
            let answer = world.muxtap(&words);
            assert!(answer.status == 2 && answer.text().is_empty(), "{words:?}: {answer:?}");
            assert_eq!(answer.stderr.lines().count(), 1, "{words:?}: {answer:?}");
            let error = answer.error();
            assert_eq!(error["code"], "INVALID_ARGUMENT", "{words:?}: {error}");
        }
    }
    // Behind `--` the words are a command's.
    let answer = world.muxtap(&["list-panes", "--nope", "--", "--json"]);
    assert!(answer.status == 2 && answer.stderr.starts_with("error: "), "{answer:?}");
}

#[test]
fn an_error_names_the_flag_that_was_typed() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    for (line, says) in [
        ("wait-for -t main -p ok -p [", "muxtap: -p `[`"),
        ("wait-for -t main -p ok --fail [", "muxtap: --fail `[`"),
        ("wait-for -t main --screen [", "muxtap: --screen `[`"),
        ("wait-for -t main --title [", "muxtap: --title `[`"),
        ("wait-for -t main -p ok --since never", "muxtap: --since: "),
        ("read -t main --since never", "muxtap: --since: "),
        ("read -t main --max-bytes 99G", "muxtap: --max-bytes: "),
        ("events --types nope", "muxtap: --types: "),
        ("commands -t main --grep [", "muxtap: --grep: "),
        ("record -t main --redact [", "muxtap: --redact: "),
        ("new-session -s x -c relative/", "muxtap: -c relative/: "),
        ("split-window -t main -l wide", "muxtap: -l: "),
    ] {
        let answer = world.muxtap(&line.split(' ').collect::<Vec<_>>());
        assert!(answer.status == 2 && answer.stderr.starts_with(says), "{line}: {answer:?}");
        let error = world.error("INVALID_ARGUMENT", &line.split(' ').collect::<Vec<_>>());
        assert!(error.starts_with(says.trim_start_matches("muxtap: ")), "{line}: {error}");
    }
}

#[test]
fn a_file_that_is_not_a_socket_is_named_as_one() {
    let world = World::with_server();
    let file = world.path("notes");
    fs::write(&file, "mine").unwrap();
    for path in [file.to_str().unwrap(), "/tmp"] {
        let kind = if path == "/tmp" { "a folder" } else { "a file" };
        for args in
            [&["list-panes"][..], &["new-session"], &["has-session", "-t", "x"], &["wait-for", "-t", "x", "-p", "y"]]
        {
            let answer = run(world.plain_muxtap_command().args(["-S", path]).args(args));
            let says = format!("muxtap: -S: {path} is {kind}, not a socket of tmux\n");
            assert_eq!((answer.stderr.as_str(), answer.status), (says.as_str(), 2), "{args:?}");
        }
        let doctor = run(world.plain_muxtap_command().args(["-S", path, "doctor"]));
        assert!(doctor.text().contains("is not a socket") && !doctor.text().contains("rm "), "{doctor:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_target_that_does_not_exist_is_named_as_it_was_given() {
    let world = World::with_server();
    for args in [
        &["capture-pane"][..],
        &["read"],
        &["send-keys", "x"],
        &["list-panes"],
        &["list-sessions"],
        &["has-session"],
        &["kill-window"],
        &["wait-for", "-p", "x"],
        &["tail"],
        &["commands"],
        &["new-window"],
        &["split-window"],
        &["display-message", "-p"],
    ] {
        let (command, rest) = args.split_first().unwrap();
        let message = world.error("NOT_FOUND", &[&[command, "-t", "nosuch"], rest].concat());
        assert!(message.contains("`nosuch`"), "{args:?}: {message}");
    }
}

#[test]
fn an_unknown_host_names_the_flag_of_the_server() {
    let world = World::new();
    let answer = call(&world, &["-L", "nohost/", "list-panes"]);
    assert!(answer.status == 2 && answer.stderr.starts_with("muxtap: -L: unknown host nohost"), "{answer:?}");
}

/// A level that `tracing` takes for the name of a module would end the log silently.
#[test]
fn a_log_level_is_known_or_refused() {
    let mut world = World::with_server();
    world.set("MUXTAP_LOG", "loud");
    let message = world.error("INVALID_ARGUMENT", &["list-panes"]);
    assert!(message.contains("log_level (from $MUXTAP_LOG): \"loud\": expected one of off, error, warn"), "{message}");
    world.set("MUXTAP_LOG", "warning");
    world.ok(&["list-panes"]);
}

/// Returns the methods of every route in the OpenAPI document.
fn routes(document: &Value) -> Vec<(String, String, Value)> {
    let members = |value: &Value| value.as_object().unwrap().clone();
    let paths = members(&document["paths"]).into_iter();
    paths
        .flat_map(|(path, methods)| {
            members(&methods).into_iter().map(move |(method, operation)| (path.clone(), method, operation))
        })
        .collect()
}

#[test]
fn every_query_and_body_rejects_an_unknown_name() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let document = world.http("GET", "/openapi.json", None).json();
    // A browser's own paths may have any query. The capability's and a tool's own errors differ.
    let any_query = ["/", "/page/{file}"];
    let own_errors = ["/v1/capability", "/v1/tools/{name}"];
    let (mut queries, mut bodies) = (0, 0);
    for (path, method, operation) in routes(&document) {
        let place = path.replace(['{', '}'], "");
        let method = method.to_uppercase();
        if !any_query.contains(&path.as_str()) {
            let answer = world.http(&method, &format!("{place}{}&no_such=1", world.query()), Some(&json!({})));
            assert_eq!(answer.status, 400, "{method} {path}: {answer:?}");
            let message = answer.json()["message"].as_str().unwrap().to_owned();
            assert!(message.starts_with("no_such: no such parameter; "), "{method} {path}: {message}");
            queries += 1;
        }
        if !operation["requestBody"].is_null() && !own_errors.contains(&path.as_str()) {
            let answer = world.http(&method, &format!("{place}{}", world.query()), Some(&json!({"no_such": 1})));
            assert_eq!(answer.status, 400, "{method} {path}: {answer:?}");
            let message = answer.json()["message"].as_str().unwrap().to_owned();
            assert!(message.starts_with("no_such: no such field"), "{method} {path}: {message}");
            bodies += 1;
        }
    }
    assert!(queries > 60 && bodies > 20, "{queries} {bodies}");
    assert_eq!(world.sessions(), ["main"]);
}

#[test]
fn a_misspelled_name_is_answered_with_the_nearest_one() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    for (method, path, body, says) in [
        ("GET", "/v1/panes/main/output", None, "sinse: no such parameter (did you mean `since`?)"),
        (
            "POST",
            "/v1/windows",
            Some(json!({"session": "main", "cmd": ["make"]})),
            "cmd: no such field (did you mean `command`?); valid fields: session, index, name, select, command, cwd",
        ),
        ("POST", "/v1/sessions", Some(json!({"nmae": "x"})), "nmae: no such field (did you mean `name`?)"),
        ("POST", "/v1/panes", Some(json!({"pane": "main", "full": 1})), "full: expected true or false, got 1"),
        (
            "PATCH",
            "/v1/panes/main",
            Some(json!({"respawn": {"kil": true}})),
            "respawn.kil: no such field (did you mean `kill`?)",
        ),
    ] {
        let more = if method == "GET" { "&sinse=start" } else { "" };
        let answer = world.http(method, &format!("{path}{}{more}", world.query()), body.as_ref());
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && message.starts_with(says), "{method} {path}: {answer:?}");
    }
    assert_eq!(world.panes().len(), 1);
}

#[test]
fn a_proxy_is_asked_not_to_collect_events() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    for path in ["/v1/events", "/v1/status/events", "/v1/approvals/events"] {
        let mut stream = world.http_send("GET", &format!("{path}{}", world.query()), None);
        let mut head = String::new();
        while !head.contains("\r\n\r\n") {
            let mut byte = [0];
            std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
            head.push(char::from(byte[0]));
        }
        assert!(head.contains("text/event-stream") && head.contains("x-accel-buffering: no\r\n"), "{path}: {head}");
    }
}

#[test]
fn an_mcp_session_ends_with_204() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let accept = "accept: application/json, text/event-stream\r\n";
    let about = json!({"name": "test", "version": "1"});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}});
    let begun = crate::common::Http::read(world.http_send_with(accept, "POST", "/mcp", Some(&hello)));
    let id = begun.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let headers = format!("{accept}mcp-session-id: {id}\r\n");
    let ended = crate::common::Http::read(world.http_send_with(&headers, "DELETE", "/mcp", None));
    assert_eq!((ended.status, ended.body.as_slice()), (204, &[][..]), "{ended:?}");
}

#[test]
fn a_host_that_was_added_by_mistake_can_be_forgotten() {
    let world = World::new();
    world.also_end(world.path(&format!("run/tmux-{}/default", rustix::process::getuid().as_raw())));
    configure(&world, &[("fixed", "sh fixed")]);
    assert_eq!(call(&world, &["new-session", "-s", "here"]).status, 0);
    assert_eq!(call(&world, &["--via", "sh typo", "list-panes"]).status, 1);
    // Each list names it, and how to get rid of it.
    let listed = call(&world, &["list-panes"]);
    assert!(listed.status == 0 && listed.stderr.contains("`muxtap hosts forget typo`"), "{listed:?}");
    assert!(!listed.stderr.contains("forget fixed"), "{listed:?}");
    let hosts = call(&world, &["hosts"]).text();
    let row = |name: &str| hosts.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("typo").contains("--via") && row("typo").contains("sh typo"), "{hosts}");
    assert!(row("fixed").contains("config.toml"), "{hosts}");
    assert_eq!(call(&world, &["hosts", "forget", "typo"]).status, 0);
    let listed = call(&world, &["list-panes"]);
    assert!(!listed.stderr.contains("typo"), "{listed:?}");
    assert!(!call(&world, &["hosts"]).text().contains("typo"));
    for (name, code) in [("typo", "NOT_FOUND"), ("fixed", "CONFLICT")] {
        let refused = call(&world, &["--json", "hosts", "forget", name]);
        assert_eq!((refused.status, &refused.error()["code"]), (1, &json!(code)), "{refused:?}");
    }
    // A name is free again.
    assert_eq!(call(&world, &["--via", "typo=sh other", "list-panes"]).status, 1);
    assert!(call(&world, &["hosts"]).text().contains("sh other"));
}

#[test]
fn a_daemon_that_does_not_find_tmux_names_its_own_path() {
    let mut world = reader();
    let path = world.path("bin").display().to_string();
    let with_tmux = format!("{path}:{}", std::env::var("PATH").unwrap());
    world.set("MUXTAP_TMUX", "");
    world.set("PATH", "/nowhere/at/all");
    let muxtapd = |world: &World, args: &[&str]| run(world.plain_muxtap_command().args(args));
    let first = muxtapd(&world, &["new-session"]);
    assert_eq!(first.status, 1, "{first:?}");
    // A good shell: the daemon still has the other PATH.
    world.set("PATH", with_tmux);
    let second = muxtapd(&world, &["new-session"]);
    for says in ["PATH=/nowhere/at/all", "`muxtap stop`"] {
        assert!(second.status == 1 && second.stderr.contains(says), "{second:?}");
    }
    assert_eq!(muxtapd(&world, &["stop"]).status, 0);
    let third = muxtapd(&world, &["new-session"]);
    assert_eq!(third.status, 0, "{third:?}");
}

#[test]
fn an_existing_session_is_found_by_the_name_that_tmux_has_changed() {
    let world = World::with_server();
    let mut sessions = 1;
    for name in ["a.b", "a:c", "t\tab", "back\\slash", "plain"] {
        let answers = [(); 2].map(|()| world.muxtap(&["new-session", "-A", "-s", name]));
        // From 3.5 on, tmux refuses a tab.
        if answers[0].stderr.contains("invalid session name") {
            continue;
        }
        assert_eq!((answers[0].status, answers[0].text()), (0, answers[1].text()), "{name:?}: {answers:?}");
        sessions += 1;
    }
    assert!(sessions >= 5 && world.sessions().len() == sessions, "{sessions}");
}

#[test]
fn a_read_at_a_terminal_ends_with_a_line_end() {
    let world = World::with_server();
    let pane = world.window("printf 'no end'; exec cat");
    world.await_output(&pane, "no end");
    let read = world.muxtap_command(&["read", "-t", &pane, "--since", "start"]);
    let words = std::iter::once(read.get_program()).chain(read.get_args());
    let line = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ");
    let shell = world.window(&format!("{line}; echo after; exec cat"));
    world.await_output(&shell, "after");
    assert_eq!(world.ok(&["capture-pane", "-t", &shell]).trim_end(), "no end\nafter");
    // What is not for a terminal stays exact.
    assert_eq!(world.read_all(&pane), "no end");
}

#[test]
fn one_pane_and_one_window_can_be_requested() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let pane = world.ok(&["split-window", "-t", "main"]);
    let get = |path: &str| {
        let answer = world.http("GET", &format!("/v1/{path}{}", world.query()), None);
        (answer.status, answer.json())
    };
    let listed = |kind: &str| get(kind).1[kind].clone();
    let id = pane.trim_start_matches('%');
    for path in [format!("panes/%25{id}"), format!("panes/{id}"), "panes/main:0.1".to_owned()] {
        let (status, one) = get(&path);
        assert_eq!((status, &one["id"]), (200, &json!(pane)), "{path}: {one}");
    }
    assert_eq!(get("panes/main").1["active"], true);
    assert_eq!(get("windows/main").1, listed("windows")[0]);
    assert_eq!(get("windows/@0").1, listed("windows")[0]);
    for path in ["panes/nosuch", "panes/%2599", "windows/nosuch", "windows/@9"] {
        let (status, error) = get(path);
        assert_eq!((status, &error["code"]), (404, &json!("NOT_FOUND")), "{path}: {error}");
    }
}

#[test]
fn a_tail_skips_lines_and_emphasizes_matches() {
    let world = World::with_server();
    let pane = world.window("printf 'one ERROR\nDEBUG two\nthree\n'; exec cat");
    world.await_output(&pane, "three");
    let tail = |flags: &[&str]| world.muxtap(&[&["tail", "-t", &pane], flags].concat()).text();
    assert_eq!(tail(&["--exclude", "DEBUG|ERROR"]), "three\n");
    assert_eq!(tail(&["--grep", "e", "--exclude", "ERROR"]), "three\n");
    assert_eq!(
        tail(&["--highlight", "ERR.R", "--color", "always"]),
        "one \u{1b}[1;31mERROR\u{1b}[0m\nDEBUG two\nthree\n"
    );
    assert_eq!(tail(&["--highlight", "ERR.R"]), "one ERROR\nDEBUG two\nthree\n");
    assert_eq!(world.muxtap(&["tail", "-t", &pane, "--highlight", "x", "--ansi"]).status, 2);
}

#[test]
fn all_panes_are_searched() {
    let world = World::with_server();
    let one = world.window("printf 'before\nan Error\nafter\n'; exec cat");
    let two = world.window("seq 1 60 | sed 's/^/error /'; exec cat");
    world.await_output(&one, "after");
    world.await_output(&two, "error 60");
    let found = world.muxtap(&["search", "-t", &one, "-i", "-C", "1", "ERROR"]);
    let lines = format!("{one}-1- before\n{one}:2: an Error\n{one}-3- after\n");
    assert_eq!((found.status, found.text(), found.stderr.as_str()), (0, lines, ""));
    // All panes; of many matches the last ones.
    let found = world.muxtap(&["search", "-i", "error", "-m", "4"]);
    assert!(found.text().contains(&format!("{one}:2: an Error\n")), "{found:?}");
    assert!(found.text().contains(&format!("{two}:60: error 60\n")), "{found:?}");
    assert!(found.stderr.contains("3 of 61 matching lines"), "{found:?}");
    assert_eq!(world.json(&["search", "-t", &two, "error 7$"])["lines"][0]["number"], 7);
    let none = world.muxtap(&["search", "no such line"]);
    assert_eq!((none.status, none.text().as_str(), none.stderr.as_str()), (1, "", ""));
    let wrong = world.muxtap(&["search", "["]);
    assert!(wrong.status == 2 && wrong.stderr.starts_with("muxtap: REGEX: "), "{wrong:?}");
    assert_eq!(world.muxtap(&["search", "x", "-t", "nosuch"]).status, 1);
}

#[test]
fn events_have_the_ids_after_which_they_continue() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let mut events = world.spawn(&["events", "--types", "pane-opened"]);
    let opened = |events: &mut Background| -> Value { serde_json::from_str(&events.line().unwrap()).unwrap() };
    world.muxtap(&["status"]);
    let next = || world.ok(&["new-window", "-t", "main"]);
    crate::common::eventually("the stream is open", || world.metric("muxtap_streams") == 1);
    let (first, second) = (next(), next());
    let seen = opened(&mut events);
    assert_eq!(seen["pane"]["id"], json!(first), "{seen}");
    events.kill();
    let resume = seen["resume"].as_str().unwrap();
    let mut events = world.spawn(&["events", "--types", "pane-opened", "--resume", resume]);
    assert_eq!(opened(&mut events)["pane"]["id"], json!(second));
    events.kill();
}

#[test]
fn a_stop_names_whose_waits_it_ends() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    let wait = world.spawn(&["wait-for", "-t", "main", "-p", "never", "-T", "60"]);
    crate::common::eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    let stopped = world.muxtap(&["stop"]);
    assert!(stopped.stderr.contains(&format!("ends a wait of process {}", wait.pid())), "{stopped:?}");
    assert!(stopped.stderr.contains("%0 on "), "{stopped:?}");
    wait.finish();
}

/// The lines of the README's installation that need no source.
#[test]
fn the_installed_completions_have_their_folder() {
    let world = reader();
    let readme = include_str!("../../README.md");
    let lines = readme.lines().filter(|line| line.contains("bash-completion/completions"));
    let script = lines.collect::<Vec<_>>().join("\n");
    let answer: Answer = run(&mut typed(&world, &script));
    assert_eq!((answer.status, answer.stderr.as_str()), (0, ""), "{answer:?}");
    let file = world.path("home/.local/share/bash-completion/completions/muxtap");
    assert!(fs::read_to_string(file).unwrap().contains("complete"), "{script}");
}

/// Returns the command line that starts muxtap in a pane, as in a terminal outside of tmux.
fn outside(world: &World, args: &str) -> String {
    let program = world.plain_muxtap_command().get_program().to_str().unwrap().to_owned();
    let socket = world.path("m.sock");
    let tmux = format!("MUXTAP_SOCKET={} MUXTAP_TMUX={}", socket.display(), tmux_program());
    format!("env -u TMUX -u TMUX_PANE {tmux} {program} -S {} {args}", world.socket().display())
}

#[test]
fn a_terminal_is_attached_and_a_script_gets_the_command() {
    let world = World::with_server();
    world.ok(&["new-session", "-s", "other", "--", "cat"]);
    let pane = world.ok(&["new-window", "-t", "other", "-n", "logs", "--", "cat"]);
    let ids = world.tmux(&["display-message", "-p", "-t", &pane, "#{session_id}:#{window_id}.#{pane_id}"]);
    let attach = format!("{} -S {} attach-session", tmux_program(), world.socket().display());
    // Without a terminal.
    assert_eq!(world.ok(&["attach", "-t", "other:logs"]), format!("{attach} -t '{ids}'"));
    assert_eq!(world.ok(&["attach-session"]), attach);
    let words = world.json(&["attach", "-t", &pane]);
    let expected = [tmux_program().as_str(), "-S", world.socket().to_str().unwrap(), "attach-session", "-t", &ids]
        .map(str::to_owned);
    assert_eq!(words["command"], json!(expected), "{words}");
    world.error("NOT_FOUND", &["attach", "-t", "nosuch"]);
    // In a pane of this server, and in one of another.
    for (socket, says) in [
        (world.socket().display().to_string(), format!("tmux switch-client -t '{ids}'")),
        ("/tmp/other/default".to_owned(), "another tmux server".to_owned()),
    ] {
        let mut inside = world.muxtap_command(&["attach", "-t", "other:logs"]);
        inside.env("TMUX", format!("{socket},1,0")).env("TMUX_PANE", "%0");
        let refused = run(&mut inside);
        assert!(refused.status == 1 && refused.stderr.contains(&says), "{refused:?}");
        assert!(refused.stderr.contains("switch-client") && refused.text().is_empty(), "{refused:?}");
    }
    // At a terminal: tmux takes the place of the program.
    let clients = || world.tmux(&["list-clients", "-F", "#{session_name} #{window_name} #{client_control_mode}"]);
    world.window(&outside(&world, "attach -t other:logs"));
    eventually("the terminal is attached", || clients().lines().any(|line| line == "other logs 0"));
}

#[test]
fn a_session_on_a_host_is_attached_by_its_command() {
    let world = World::new();
    // Stands in for another host: another directory of sockets.
    let via = format!("env TMUX_TMPDIR={}", world.dir().display());
    configure(&world, &[("far", &via), ("fixed", "sh fixed")]);
    world.also_end(world.path(&format!("tmux-{}/default", rustix::process::getuid().as_raw())));
    let place = "#{session_id}:#{window_id}.#{pane_id}";
    let made = call(&world, &["new-session", "-L", "far/", "-s", "work", "-P", "-F", place, "--", "cat"]);
    let expected = format!("{via} {} attach-session -t '{}'\n", tmux_program(), made.text().trim());
    // Also in a pane of tmux: the other server is not nested in it.
    for args in [&["attach", "-t", "far/work"][..], &["attach", "-L", "far/", "-t", "work"]] {
        let mut inside = world.plain_muxtap_command();
        inside.args(args).env("TMUX", "/tmp/other/default,1,0").env("TMUX_PANE", "%0");
        let line = run(&mut inside);
        assert_eq!(line.text(), expected, "{args:?}: {line:?}");
    }
    let unreachable = call(&world, &["attach", "-t", "fixed/work"]);
    assert!(unreachable.status == 1 && unreachable.stderr.contains("fixed"), "{unreachable:?}");
}

/// `run --color`: the colors that the command printed, and nothing else that it printed.
#[test]
fn a_run_prints_colors_where_they_are_wanted() {
    let world = World::with_server();
    let run_it = |color: &[&str], line: &str| {
        run(&mut world.muxtap_command(&[&["run", "-t", "main"], color, &["--", line]].concat())).text()
    };
    let red = "printf '\\033[31mred\\033[0m\\033]0;title\\007 plain\\n'";
    for color in [&[][..], &["--color", "auto"], &["--color", "never"]] {
        assert_eq!(run_it(color, red), "red plain\n", "{color:?}");
    }
    assert_eq!(run_it(&["--color", "always"], red), "\x1b[31mred\x1b[0m plain\n");
    // Colors end with the output, and a line that is redrawn is text.
    assert_eq!(run_it(&["--color=always"], "printf '\\033[1;32mok\\n'"), "\x1b[1;32mok\n\x1b[0m");
    assert_eq!(run_it(&["--color=always"], "printf '\\033[31m10%%\\r\\033[32m100%%\\n'"), "100%\n");
    let pane = run(&mut world.muxtap_command(&["run", "--new-window", "-t", "main", "--color=always", "--", red]));
    assert_eq!(pane.text(), "\x1b[31mred\x1b[0m plain\n");
    let answer = world.json(&["run", "-t", "main", "--", red]);
    assert_eq!(answer["output"], "red plain\n");
    let refused = world.muxtap(&["run", "-t", "main", "--color", "sometimes", "--", "true"]);
    assert!(refused.status == 2 && refused.stderr.contains("always"), "{refused:?}");
}

/// One object for each pane, with the same fields, whatever the target and the flags are.
#[test]
fn send_keys_has_one_json_shape() {
    let world = World::with_server();
    for _ in 0..2 {
        world.ok(&["new-window", "-t", "main", "-n", "same", "--", "cat"]);
    }
    world.ok(&["group", "set", "both", "main:*"]);
    for (args, panes) in [
        (&["-t", "%1", "x"][..], 1),
        (&["-t", "%1", "--submit", "x"], 1),
        (&["-t", "%1", "--paste", "x"], 1),
        (&["-t", "%1", "-l", "x"], 1),
        (&["-t", "%1", "-H", "78"], 1),
        (&["-t", "main:*", "x"], 3),
        (&["-t", "%both", "x"], 3),
        (&["-t", "%both", "--submit", "x"], 3),
    ] {
        let answer = world.ok(&[&["--json", "send-keys"], args].concat());
        let objects: Vec<Value> = answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), panes, "{args:?}: {answer}");
        for object in objects {
            let fields: Vec<&String> = object.as_object().unwrap().keys().collect();
            assert_eq!(fields, ["cursor", "pane", "submit"], "{args:?}: {object}");
            assert_eq!(object["submit"].is_object(), args.contains(&"--submit"), "{args:?}: {object}");
        }
    }
}

/// The next step in an error is a route for a program over HTTP, and a command for a person at a shell.
#[test]
fn an_error_names_what_its_caller_can_do() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    for (path, args, route, command) in [
        (
            "/v1/panes/nosuch/capture",
            &["capture-pane", "-t", "nosuch"][..],
            "`GET /v1/panes` lists what is there",
            "`muxtap list-panes` shows what is there",
        ),
        ("/v1/panes/nosuch%2Fx/capture", &["capture-pane", "-t", "nosuch/x"], "`GET /v1/", "`muxtap "),
    ] {
        let answer = world.http("GET", &format!("{path}{}", world.query()), None).json();
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(route) && !message.contains("`muxtap "), "{message}");
        let said = world.muxtap(args).stderr;
        assert!(said.contains(command) && !said.contains("/v1/"), "{said}");
    }
}
