//! Invalid or hostile input, and missing parts: a clear error or a clean degradation, nothing lost,
//! nothing left behind.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use crate::common::{Background, World, eventually};
use serde_json::json;

fn made(world: &World, program: &str) -> String {
    world.window(program)
}

/// Writes a script to the world's directory.
fn script(world: &World, name: &str, text: &str) -> PathBuf {
    let path = world.path(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// F13: a pane's output is part of replies. A pane that knows the protocol must not be able to
/// write into another pane's stream, nor end a reply early.
#[test]
fn a_pane_that_forges_protocol_lines_reaches_no_other_pane() {
    let world = World::with_server();
    let victim = made(&world, "stty -echo; echo ready; exec cat");
    world.await_output(&victim, "^ready");
    // Guards with all numbers that can come up soon, then output of the victim, closed windows, an
    // exit.
    let forger = script(
        &world,
        "forger",
        &format!(
            "#!/bin/sh\nnow=$(date +%s)\nstty -onlcr\nwhile :; do\n  for t in $now $((now+1)) $((now+2)); do for n in $(seq 1 400); do\n    \
             printf '%%end %s %s 1\\n%%output %{victim} FORGED\\\\015\\\\012\\n%%window-close @0\\n%%begin %s %s 1\\n' $t $n $t $n\n  \
             done; done\n  printf '%%exit\\n%%output %{victim} FORGED\\n%%sessions-changed\\n'\n  now=$(date +%s)\ndone\n"
        ),
    );
    let forger = made(&world, &forger.display().to_string());
    world.await_output(&forger, "FORGED");
    // The same in titles and in a path, which lists and subscriptions carry.
    let place = world.path(&format!("work/x\n%output {victim} FORGED\n%end 1 1 1\n%exit"));
    fs::create_dir(&place).unwrap();
    world.tmux(&["new-window", "-d", "-c", place.to_str().unwrap(), "exec cat"]);
    world.tmux(&["select-pane", "-t", &forger, "-T", &format!("t\n%output {victim} FORGED\n%exit")]);
    world.tmux(&["set-option", "-g", "allow-rename", "on"]);
    for turn in 0..20 {
        world.muxtap(&["capture-pane", "-t", &forger, "-S", "-"]);
        world.muxtap(&["capture-pane", "-e", "-J", "-t", &forger]);
        let panes = world.json(&["list-panes"]);
        assert_eq!(panes["panes"].as_array().unwrap().len(), 4, "{panes}");
        world.tmux(&["send-keys", "-l", "-t", &victim, &format!("turn {turn}\n")]);
        world.await_output(&victim, &format!("^turn {turn}$"));
    }
    let wanted: String =
        std::iter::once("ready\n".into()).chain((0..20).map(|turn| format!("turn {turn}\n"))).collect();
    assert_eq!(world.read_all(&victim), wanted);
    let listed = world.json(&["list-panes"]);
    let path = place.file_name().unwrap().to_str().unwrap();
    let paths: Vec<_> = listed["panes"].as_array().unwrap().iter().filter_map(|pane| pane["path"].as_str()).collect();
    // Unchanged, or with its control characters made harmless; never truncated.
    assert!(paths.iter().any(|told| told.ends_with(path) || told.ends_with(&path.replace('\n', "?"))), "{paths:?}");
}

/// tmux expands a list of panes for the subscriptions: a program's title must not be taken for a
/// part of it.
#[test]
fn a_title_that_looks_like_a_format_is_reported_unchanged() {
    let world = World::with_server();
    let pane = made(&world, "printf '\\033]2;a,b} #{pid} #[x] %%%% ; \u{e9}\\007'; exec cat");
    let title = || world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_title}"]);
    let told = |pattern: &str| {
        world.ok(&["wait-for", "-t", &pane, "--title", pattern, "--since", "start", "-T", "20"]);
        let listed = world.json(&["list-panes", "-t", &pane]);
        listed["panes"][0]["title"].as_str().unwrap().to_owned()
    };
    assert_eq!(told("^a,b\\} #\\{pid\\} #\\[x\\] %% ; \u{e9}$"), "a,b} #{pid} #[x] %% ; \u{e9}");
    // Set without a byte of output.
    world.tmux(&["select-pane", "-t", &pane, "-T", "c,d} ##{pid}"]);
    assert_eq!(told("^c,d\\} #\\{pid\\}$"), "c,d} #{pid}");
    assert_eq!(title(), "c,d} #{pid}");
}

/// A fake tmux stands in for an old one, which is not available everywhere.
#[test]
fn a_tmux_that_is_too_old_missing_or_no_program_is_named() {
    let mut world = World::new();
    let old = script(
        &world,
        "old-tmux",
        "#!/bin/sh\nfor a; do [ \"$a\" = -V ] && echo 'tmux 3.1c' && exit 0; done\necho 'unknown option' >&2\nexit 1\n",
    );
    world.set("MUXTAP_TMUX", old.display().to_string());
    let said = world.error("TMUX_UNAVAILABLE", &["new-session"]);
    assert!(said.contains("3.1c") && said.contains("3.2a"), "{said}");
    world.ok(&["stop"]);
    world.set("MUXTAP_TMUX", world.path("no-such-tmux").display().to_string());
    let said = world.error("TMUX_UNAVAILABLE", &["new-session"]);
    assert!(said.contains("no-such-tmux") && said.contains("install tmux"), "{said}");
    world.ok(&["stop"]);
    let plain = world.path("plain-file");
    fs::write(&plain, "not a program").unwrap();
    world.set("MUXTAP_TMUX", plain.display().to_string());
    let said = world.error("TMUX_UNAVAILABLE", &["new-session"]);
    assert!(said.contains("plain-file") && said.contains("not executable"), "{said}");
    let doctor = world.muxtap(&["doctor"]);
    assert_eq!(doctor.status, 1, "{doctor:?}");
    assert!(doctor.text().contains("plain-file"), "{doctor:?}");
}

/// `setpriv` runs a program as another user; only root can.
#[test]
fn another_users_tmux_socket_is_refused_with_an_explanation() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody else's socket can be made here");
        return;
    }
    let world = World::with_server();
    let home = world.path("nobody");
    for name in ["", "run", "work"] {
        fs::create_dir_all(home.join(name)).unwrap();
        std::os::unix::fs::chown(home.join(name), Some(65534), Some(65534)).unwrap();
    }
    fs::set_permissions(home.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o711)).unwrap();
    let binary = world.path("muxtap");
    // One file that contains both programs.
    fs::copy(world.muxtapd(), &binary).unwrap();
    let nobody = |args: &[&str]| {
        let mut command = world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).current_dir(&home);
        for (name, value) in
            [("MUXTAP_SOCKET", "run/m.sock"), ("HOME", ""), ("XDG_STATE_HOME", ""), ("XDG_RUNTIME_DIR", "run")]
        {
            command.env(name, home.join(value));
        }
        crate::common::run(command.args(["--json", "-S"]).arg(world.socket()).args(args))
    };
    let refused = nobody(&["list-sessions"]);
    let stopped = nobody(&["stop"]);
    assert_eq!((refused.status, &refused.error()["code"]), (1, &"TMUX_UNAVAILABLE".into()), "{refused:?}");
    assert!(refused.stderr.contains("another user"), "{refused:?}");
    assert_eq!(stopped.status, 0, "{stopped:?}");
    // A command also refuses another user's daemon.
    assert_eq!(world.sessions(), ["main"]);
    let mut command = world.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).current_dir(&home);
    let refused = crate::common::run(command.args(["--json", "list-sessions"]));
    assert_eq!(refused.status, 1, "{refused:?}");
}

/// `/dev/full` fails every write with ENOSPC.
#[test]
fn a_full_disk_under_the_log_stops_nothing() {
    let world = World::with_server();
    std::os::unix::fs::symlink("/dev/full", world.path("m.sock.log")).unwrap();
    assert_eq!(world.sessions(), ["main"]);
    world.tmux(&["send-keys", "-t", "main", "echo he''llo", "Enter"]);
    // A slow shell may have printed its prompt only after the line was typed.
    world.await_output("main", "hello");
    world.ok(&["stop"]);
}

#[test]
fn a_wait_whose_client_has_gone_is_answered_to_who_asks_again() {
    let world = World::with_server();
    let pane = made(&world, "stty -echo; echo ready; exec cat");
    world.await_output(&pane, "^ready");
    let body = json!({"panes": [pane], "patterns": ["^come$"], "timeout_ms": 40000, "detach": true});
    let asked = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&body)).json();
    let id = asked["id"].as_str().unwrap().to_owned();
    assert_eq!(asked["outcome"], "pending");
    // A second client follows the wait and disconnects in the middle.
    drop(world.http_send("GET", &format!("/v1/waits/{id}?timeout_ms=30000"), None));
    // So does a client that waits without an id, by being killed.
    let killed = world.spawn(&["wait-for", "-t", &pane, "-p", "^come$", "-T", "40"]);
    eventually("both waits are open", || world.json(&["status"])["waits"] == 2);
    killed.kill();
    world.tmux(&["send-keys", "-l", "-t", &pane, "come\n"]);
    let answer = world.http("GET", &format!("/v1/waits/{id}?timeout_ms=20000"), None).json();
    assert_eq!((&answer["outcome"], &answer["predicates"][0]["line"]), (&"matched".into(), &"come".into()), "{answer}");
    // Requested again: the wait's result is kept.
    let again = world.http("GET", &format!("/v1/waits/{id}"), None).json();
    assert_eq!(again["outcome"], "matched");
    eventually("no wait is left open", || world.json(&["status"])["waits"] == 0);
    assert_eq!(world.http("GET", "/v1/waits/w0-nonsense", None).json()["code"], "NOT_FOUND");
}

#[test]
fn targets_that_look_like_commands_are_targets() {
    let world = World::with_server();
    let server = world.server_pid();
    let marker = world.path("work/injected");
    let run = format!("run-shell 'touch {}'", marker.display());
    for target in [
        "%0; kill-server".to_owned(),
        "main; kill-server".to_owned(),
        "main\nkill-server".to_owned(),
        "%0 ; ".to_owned() + &run,
        format!("#({run})"),
        format!("main:{{{run}}}"),
        "$(touch injected)".to_owned(),
        "`touch injected`".to_owned(),
        "main'; kill-server; '".to_owned(),
        "=main; kill-server".to_owned(),
        "{last}".to_owned(),
        "-t".to_owned(),
        "..".to_owned(),
        "%99999999999999999999".to_owned(),
    ] {
        for command in [&["read"][..], &["capture-pane"], &["kill-session"], &["kill-pane"], &["send-keys", "x"]] {
            let (name, rest) = command.split_first().unwrap();
            let answer = world.muxtap(&[&["--json", name, &format!("-t{target}")], rest].concat());
            assert_eq!(answer.status, 1, "{name} {target:?}: {answer:?}");
            let code = answer.error()["code"].as_str().unwrap().to_owned();
            assert!(["NOT_FOUND", "INVALID_TARGET"].contains(&code.as_str()), "{name} {target:?}: {answer:?}");
        }
    }
    // Names are not taken for commands or formats either.
    for name in ["a; kill-server", "#(touch injected)", "$(touch injected)", "#{pid}", "'\"\\"] {
        let made = world.muxtap(&["new-window", "-t", "main", "-n", name]);
        assert!(made.status == 0 || made.stderr.contains("tmux:"), "{name}: {made:?}");
    }
    let windows = world.tmux(&["list-windows", "-t", "main", "-F", "#{window_name}"]);
    assert!(windows.contains("a; kill-server") && windows.contains("#{pid}"), "{windows}");
    assert_eq!(world.server_pid(), server);
    assert!(!marker.exists());
    assert!(world.sessions() == ["main"]);
}

#[test]
fn two_windows_of_one_name_are_ambiguous_and_listed() {
    let world = World::with_server();
    let one = world.tmux(&["new-window", "-d", "-n", "twin", "-P", "-F", "#{window_id}", "exec cat"]);
    let two = world.tmux(&["new-window", "-d", "-n", "twin", "-P", "-F", "#{window_id}", "exec cat"]);
    let answer = world.muxtap(&["--json", "kill-window", "-t", "main:twin"]);
    let error = answer.error();
    assert_eq!((&error["code"], &error["details"]["candidates"]), (&"AMBIGUOUS_TARGET".into(), &json!([one, two])));
    assert!(world.tmux(&["list-windows", "-F", "#{window_id}"]).contains(&one));
    world.error("NOT_FOUND", &["read", "-t", "main:twi"]);
}

#[test]
fn invalid_and_huge_regexes_are_rejected_and_none_backtracks() {
    let world = World::with_server();
    world.error("INVALID_ARGUMENT", &["wait-for", "-t", "main", "-p", "(unclosed"]);
    world.error("INVALID_ARGUMENT", &["wait-for", "-t", "main", "-p", r"(\w{1000}){1000}"]);
    world.error("INVALID_ARGUMENT", &["wait-for", "-t", "main", "-p", &"a".repeat(100_000)]);
    let nothing = json!({"panes": ["main"]});
    assert_eq!(
        world.http("POST", &format!("/v1/waits{}", world.query()), Some(&nothing)).json()["code"],
        "INVALID_ARGUMENT"
    );
    let pane = made(&world, "read -r go; head -c 300000 /dev/zero | tr '\\0' a; echo; echo END; exec cat");
    let slow = world.spawn(&["wait-for", "-t", &pane, "-p", "(a*)*b", "-T", "30", "--fail", "^END"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    assert_eq!(slow.finish().status, 3);
}

#[test]
fn invalid_requests_get_an_error_response() {
    let world = World::with_server();
    assert_eq!(world.sessions(), ["main"]);
    let panes = format!("/v1/panes/0/input{}", world.query());
    for (method, path, body, status) in [
        ("GET", "/v1/nothing".to_owned(), None, 404),
        ("GET", "/v1/panes?socket=".to_owned(), None, 400),
        ("PUT", "/v1/panes".to_owned(), None, 405),
        ("GET", "/v1/panes?socket=sub/relative".to_owned(), None, 400),
        ("POST", panes.clone(), Some(json!({"text": "a", "hex": "61"})), 400),
        ("POST", panes.clone(), Some(json!({})), 400),
        ("POST", panes.clone(), Some(json!({"hex": "zz"})), 400),
        ("POST", panes, Some(json!({"surprise": 1})), 400),
    ] {
        let answer = world.http(method, &path, body.as_ref());
        assert_eq!(answer.status, status, "{method} {path} {body:?}: {:?}", String::from_utf8_lossy(&answer.body));
        assert!(answer.json()["code"].is_string(), "{path}");
    }
    // Not HTTP at all.
    let mut stream = std::os::unix::net::UnixStream::connect(world.daemon_socket()).unwrap();
    std::io::Write::write_all(&mut stream, b"\0\xff%begin\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    assert_eq!(world.sessions(), ["main"]);
}

/// Terms of the libraries that parse requests: they mean nothing to users who do not know them.
const LIBRARY_WORDS: [&str; 12] = [
    "invalid type:",
    "invalid value",
    "invalid length",
    "invalid digit",
    "at line 1 column",
    "missing field `",
    "unknown field",
    "unknown variant",
    "expected struct",
    "did not match any variant",
    "deserialize",
    "provided string was not",
];

#[test]
fn a_wrong_request_is_told_its_field_what_is_expected_and_what_was_given() {
    let world = World::with_server();
    assert_eq!(world.sessions(), ["main"]);
    let ask = |method: &str, path: &str, kind: &str, body: &str| {
        let (route, query) = path.split_once('?').unwrap_or((path, ""));
        let path = format!("{route}{}&{query}", world.query());
        let mut stream = std::os::unix::net::UnixStream::connect(world.daemon_socket()).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: m\r\nconnection: close\r\n{kind}");
        let length = body.len();
        // In one piece: a request that is refused for its head gets a response, and the connection
        // is closed, before its body came.
        stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let error: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {answer}"));
        assert!(head.starts_with("HTTP/1.1 400 "), "{method} {path}: {answer}");
        assert_eq!(error["code"], if route.contains('%') { "INVALID_TARGET" } else { "INVALID_ARGUMENT" }, "{error}");
        error["message"].as_str().unwrap().to_owned()
    };
    let json = "content-type: application/json\r\n";
    for (method, path, body, says) in [
        ("POST", "/v1/panes/0/input", r#"{"keys":"Enter"}"#, r#"keys: expected a list, got "Enter""#),
        ("POST", "/v1/panes/0/input", r#"{"text":["x"]}"#, "text: expected a string, got a list"),
        (
            "POST",
            "/v1/panes/0/input",
            r#"{"kyes":["x"]}"#,
            "kyes: no such field (did you mean `keys`?); valid fields: keys, text, ",
        ),
        ("POST", "/v1/panes/0/input", r#"{"text":"x","paste":"yes"}"#, r#"paste: expected true or false, got "yes""#),
        ("POST", "/v1/panes/0/run", "{}", "command: required field is missing"),
        ("POST", "/v1/panes/0/run", r#"{"command":7}"#, "command: expected a string, got 7"),
        ("POST", "/v1/panes/0/run", r#"{"command":"true","timeout_ms":"5s"}"#, "timeout_ms: expected a whole number"),
        ("POST", "/v1/waits", r#"{"panes":"%0"}"#, r#"panes: expected a list, got "%0""#),
        ("POST", "/v1/waits", r#"{"patterns":["x"]}"#, "panes: required field is missing"),
        ("POST", "/v1/waits", r#"{"panes":["%0"],"patterns":[{}]}"#, "patterns[0]: expected a string, got an object"),
        ("POST", "/v1/waits", r#"{"panes":["%0"],"mode":"each"}"#, r#"mode: expected one of any, all, got "each""#),
        ("POST", "/v1/waits", r#"{"panes":["%0"],"timeout_ms":-1}"#, "timeout_ms: expected a whole number, 0 or more"),
        ("POST", "/v1/waits", r#"{"panes":["%0"],"panes":[]}"#, "panes: duplicate field"),
        ("POST", "/v1/sessions", r#"{"command":"make"}"#, r#"command: expected a list, got "make""#),
        ("POST", "/v1/sessions", r#"{"width":100000}"#, "width: expected a whole number from 0 to 65535, got 100000"),
        ("POST", "/v1/windows", r#"{"session":"main","env":{"A":1}}"#, "env.A: expected a string, got 1"),
        ("POST", "/v1/windows", "{}", "session: required field is missing"),
        ("POST", "/v1/panes", r#"{"pane":0}"#, "pane: expected a string, got 0"),
        ("PATCH", "/v1/panes/0", r#"{"respawn":{"command":[1]}}"#, "respawn.command[0]: expected a string, got 1"),
        ("PATCH", "/v1/windows/0", r#"{"title":"x"}"#, "title: no such field; valid fields: name, "),
        ("PATCH", "/v1/sessions/main", "[]", "body: expected an object, got a list"),
        ("POST", "/v1/approvals/3fa9c1", r#"{"answer":"yes"}"#, "answer: expected one of approved, denied"),
        ("POST", "/v1/waits", "", "body: expected a JSON object, got nothing"),
        ("POST", "/v1/waits", "{\"panes\"", "body: incomplete JSON"),
        ("POST", "/v1/waits", "panes=%0", r#"body: invalid JSON at line 1, byte 1: "panes=%0""#),
        ("GET", "/v1/panes?from=5", "", r#"from: expected an id (% and a number), got "5""#),
        ("GET", "/v1/panes/0/capture?join=maybe", "", r#"join: expected true or false, got "maybe""#),
        ("GET", "/v1/panes/0/output?format=xml", "", r#"format: expected one of text, ansi, raw, got "xml""#),
        ("GET", "/v1/panes/0/output?wait_ms=soon", "", r#"wait_ms: expected a whole number, 0 or more, got "soon""#),
        ("GET", "/v1/panes/0/output?max_bytes=", "", r#"max_bytes: expected a whole number, 0 or more, got """#),
        ("GET", "/v1/panes?socket=/twice", "", "socket: duplicate field"),
        ("GET", "/v1/waits/w0?timeout_ms=1.5", "", "timeout_ms: expected a whole number"),
        ("GET", "/v1/events?format=xml", "", "format: expected one of text, ansi, raw"),
        ("GET", "/v1/events?types=noise", "", r#"types: unknown event type "noise"; expected one of "#),
        ("GET", "/v1/panes/%ff/capture", "", "expected percent-encoded UTF-8"),
    ] {
        let message = ask(method, path, json, body);
        assert!(message.contains(says), "{method} {path} {body}: {message}");
        let words = LIBRARY_WORDS.into_iter().find(|words| message.to_lowercase().contains(words));
        assert_eq!(words, None, "{method} {path} {body}: {message}");
    }
    assert_eq!(
        ask("POST", "/v1/waits", "content-type: text/plain\r\n", "{}"),
        r#"content-type: expected application/json, got "text/plain""#
    );
    assert_eq!(ask("POST", "/v1/waits", "", "{}"), "content-type: expected application/json, got none");
}

#[test]
fn input_over_the_limit_is_rejected_as_a_whole() {
    let world = World::with_server();
    let pane = made(&world, "stty -echo; echo ready; exec cat");
    world.await_output(&pane, "^ready");
    let sent = world.muxtap_with_stdin(&["--json", "send-keys", "-t", &pane, "-l", "-"], &vec![b'x'; 17 * 1024 * 1024]);
    assert_eq!(sent.status, 1, "{sent:?}");
    let code = sent.error()["code"].clone();
    assert!(code == "RESOURCE_LIMIT" || code == "INVALID_ARGUMENT", "{sent:?}");
    world.tmux(&["send-keys", "-l", "-t", &pane, "next\n"]);
    world.await_output(&pane, "^next$");
}

#[test]
fn a_daemon_that_is_stopped_ends_the_waits_of_its_clients() {
    let world = World::with_server();
    assert_eq!(world.sessions(), ["main"]);
    let mut waits: Vec<Background> = Vec::new();
    for _ in 0..3 {
        waits.push(world.spawn(&["--json", "wait-for", "-t", "main", "-p", "never", "-T", "40"]));
    }
    eventually("the waits are open", || world.json(&["status"])["waits"] == 3);
    world.ok(&["stop"]);
    for wait in waits {
        let answer = wait.finish();
        assert_ne!(answer.status, 0, "{answer:?}");
        assert_ne!(answer.status, 124, "{answer:?}");
    }
}
