//! Attacks that no other file of this folder makes: `docs/security.md` names the test of each
//! claim.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    common::{World, run},
    mcp::Client,
    subscribers::Sse,
};

const NOBODY: u32 = 65534;

/// Runs a program as another user by `setpriv`; only root can.
fn as_nobody(world: &World, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = world.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).current_dir("/");
    command
}

/// Returns whether this test can act as another user; gives that user access to the world's
/// directory.
fn opened_to_nobody(world: &World) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o711)).unwrap();
    } else {
        println!("not tested: only root can play another user");
    }
    is_root
}

/// Even if the socket's mode was widened, the kernel reports the connecting user.
#[test]
fn another_user_gets_no_response_even_from_a_world_writable_socket() {
    let world = World::with_server();
    if !opened_to_nobody(&world) {
        return;
    }
    assert_eq!(world.sessions(), ["main"]);
    fs::set_permissions(world.daemon_socket(), fs::Permissions::from_mode(0o666)).unwrap();
    let socket = world.daemon_socket();
    let asks = |mut command: Command| {
        run(command
            .args(["-sS", "--max-time", "20", "--unix-socket"])
            .arg(&socket)
            .args(["http://localhost/health", "http://localhost/v1/status"]))
    };
    let own = asks(world.command("curl"));
    assert!(own.status == 0 && own.text().contains("pid"), "the attack itself works: {own:?}");
    let theirs = asks(as_nobody(&world, "curl"));
    assert!(theirs.status != 0 && theirs.stdout.is_empty(), "{theirs:?}");
    let log = fs::read_to_string(format!("{}.log", socket.display())).unwrap();
    assert!(log.contains("refused a connection") && log.contains(&NOBODY.to_string()), "{log}");
    assert_eq!(world.sessions(), ["main"]);
}

/// A program that listens on the socket of its first argument and speaks tmux's protocol to every
/// client: it sends each message that could make a client run a command, open a file, hang up its
/// parent or stop itself. It writes the number of received bytes and connections to the file of its
/// second argument.
const HOSTILE_SERVER: &str = r#"
import os, socket, struct, sys, threading
path, notes, mark = sys.argv[1:4]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chmod(path, 0o666)
listener.listen(64)
def message(kind, data=b""):
    return struct.pack("=IHHII", kind, 16 + len(data), 0, 8, os.getpid()) + data
run = b"touch " + mark.encode() + b"\0"
script = os.path.dirname(path).encode() + b"/shell\0"
opened = struct.pack("=iii", 1, -1, os.O_WRONLY) + mark.encode() + b"\0"
orders = {
    "shell": message(209, script),
    "exec": message(207) + message(217, run + b"/bin/sh\0") + message(204),
    "lock": message(207) + message(206, run),
    "write": message(303, opened) + message(304, struct.pack("=i", 1) + b"theirs"),
    "read": message(300, struct.pack("=ii", 1, -1) + b"/etc/hostname\0"),
    "hang-up": message(207) + message(202, b"x\0") + message(204),
    "stop": message(207) + message(214),
}
def serve(one):
    came = 0
    try:
        while True:
            got = one.recv(65536)
            if not got:
                break
            if not came:
                one.sendall(orders[order])
            came += len(got)
            note(f"bytes {came}")
            # What a file that is read would come in (MSG_READ).
            if struct.pack("=I", 301) in got:
                open(mark, "w").close()
    except OSError:
        pass
    one.close()
def note(text):
    with open(notes, "a") as file:
        file.write(text + "\n")
order = sys.argv[4]
print("ready", flush=True)
while True:
    one, _ = listener.accept()
    note("connection")
    threading.Thread(target=serve, args=(one,), daemon=True).start()
"#;

/// The system's Python, which another user may run too.
const PYTHON: &str = "/usr/bin/python3";

/// A hostile server on a socket in its own directory.
struct HostileServer {
    socket: std::path::PathBuf,
    notes: std::path::PathBuf,
    mark: std::path::PathBuf,
    _process: crate::common::Background,
}

impl HostileServer {
    /// Starts a hostile server as another user, or (`theirs` is false) as this one.
    fn start(world: &World, theirs: bool, order: &str) -> Self {
        let folder = world.path(&format!("{}-{order}", if theirs { "theirs" } else { "own" }));
        fs::create_dir(&folder).unwrap();
        let [socket, notes, mark, script, shell] =
            ["s", "notes", "mark", "server.py", "shell"].map(|name| folder.join(name));
        fs::write(&script, HOSTILE_SERVER).unwrap();
        fs::write(&shell, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = if theirs { as_nobody(world, PYTHON) } else { world.command(PYTHON) };
        if theirs {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
            // A file that the victim creates becomes visible.
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        }
        command.arg(&script).arg(&socket).arg(&notes).arg(&mark).arg(order);
        let mut process = crate::common::Background::start(&mut command);
        process.line_where("it listens", |line| line == "ready");
        Self { socket, notes, mark, _process: process }
    }

    fn notes(&self) -> String {
        fs::read_to_string(&self.notes).unwrap_or_default()
    }
}

/// S1: another user listens on a socket and replies like tmux. Whichever caller and interface names
/// that socket, the server is not sent a byte.
#[test]
#[cfg(target_os = "linux")]
fn another_users_server_is_not_contacted_whichever_caller_names_it() {
    let world = World::with_server();
    if !opened_to_nobody(&world) {
        return;
    }
    let server = HostileServer::start(&world, true, "shell");
    let path = server.socket.to_str().unwrap();
    // Requests of callers other than the user do not even reach it.
    let (addr, cookie) = crate::page::log_in(&world, &["--read-only"]);
    let path_in_query = path.replace('/', "%2F");
    for route in ["panes", "sessions", "status", "environment", "panes/main/capture", "events"] {
        let asked = format!("/v1/{route}?socket={path_in_query}");
        let (answer, head) = crate::page::ask(&addr, "GET", &asked, &[&cookie], "");
        assert!(matches!(answer.status, 401 | 403) || route == "status", "{route}: {head}");
    }
    let token = world.ok(&["token"]);
    for (method, route, body) in [
        ("GET", "panes", ""),
        ("POST", "sessions", r#"{"name":"x"}"#),
        ("POST", "waits", r#"{"panes":["main"],"patterns":["x"]}"#),
        ("POST", "recordings", r#"{"pane":"main"}"#),
    ] {
        let asked = format!("/v1/{route}?socket={path_in_query}");
        let bearer = format!("authorization: Bearer {token}");
        let (answer, head) = crate::page::ask(&addr, method, &asked, &[&bearer], body);
        assert_eq!(answer.status, 401, "{method} {route}: {head}");
    }
    let mut client = Client::new(&world);
    for tool in ["list", "capture_pane", "create", "wait_for"] {
        let arguments =
            json!({"server": path, "target": "main", "panes": ["main"], "patterns": ["x"], "what": "session"});
        let answer = client.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        assert!(answer["result"]["isError"] == true || !answer["error"].is_null(), "{tool}: {answer}");
    }
    assert_eq!(server.notes(), "", "nobody has reached it");
    // The user may name any path; then the kernel reports the owner.
    for command in ["list-panes", "list-sessions", "doctor", "new-session"] {
        let asked = run(world.plain_muxtap_command().arg("--json").arg("-S").arg(path).arg(command));
        if command != "doctor" {
            let error = asked.error();
            assert_eq!(error["code"], "TMUX_UNAVAILABLE", "{asked:?}");
            assert_eq!(error["details"]["owner"], NOBODY, "{asked:?}");
            assert!(error["message"].as_str().unwrap().contains("foreign_servers"), "{asked:?}");
        }
    }
    assert!(!server.notes().contains("bytes"), "{}", server.notes());
    assert!(!server.mark.exists());
    // The daemon still works.
    assert_eq!(world.sessions(), ["main"]);
}

/// S1: a server that the configuration names is used, and runs nothing.
#[test]
#[cfg(target_os = "linux")]
fn a_configured_server_of_another_user_runs_nothing() {
    let mut world = World::new();
    if !opened_to_nobody(&world) {
        return;
    }
    let server = HostileServer::start(&world, true, "exec");
    let path = server.socket.to_str().unwrap().to_owned();
    // A secret in the daemon's own environment.
    world.set("API_KEY", "secret");
    for wrong in [format!("{}:{path}", NOBODY - 1), path.clone(), format!("{NOBODY}:relative")] {
        let asked =
            run(world.plain_muxtap_command().env("MUXTAP_FOREIGN_SERVERS", &wrong).args(["-S", &path, "list-panes"]));
        assert!(asked.status != 0 && !server.notes().contains("bytes"), "{wrong}: {asked:?}");
        world.muxtap(&["stop"]);
    }
    world.set("MUXTAP_FOREIGN_SERVERS", format!("{NOBODY}:{path}"));
    let asked = run(world.plain_muxtap_command().arg("--json").arg("-S").arg(&path).arg("list-panes"));
    assert_eq!(asked.error()["code"], "TMUX_UNAVAILABLE", "{asked:?}");
    assert!(server.notes().contains("bytes"), "it was spoken to: {}", server.notes());
    assert!(!server.mark.exists());
}

/// S1: a server of this user's that is not tmux: no message makes a client of muxtap's run, write
/// or end anything.
#[test]
#[cfg(target_os = "linux")]
fn no_server_can_make_a_client_run_or_write_anything() {
    let world = World::with_server();
    assert_eq!(world.sessions(), ["main"]);
    for order in ["shell", "exec", "lock", "write", "read", "hang-up", "stop"] {
        let server = HostileServer::start(&world, false, order);
        let asked = run(world.plain_muxtap_command().arg("--json").arg("-S").arg(&server.socket).arg("list-panes"));
        assert_eq!(asked.error()["code"], "TMUX_UNAVAILABLE", "{order}: {asked:?}");
        assert!(server.notes().contains("bytes"), "the attack itself works: {}", server.notes());
        assert!(!server.mark.exists(), "{order}");
        // The client's parent is the daemon.
        assert_eq!(world.sessions(), ["main"], "{order}");
    }
}

/// S1: a plain tmux does what muxtap's clients do not, so the attack itself works.
#[test]
#[cfg(target_os = "linux")]
fn a_plain_tmux_client_obeys_a_hostile_server() {
    let world = World::new();
    for order in ["shell", "exec", "lock", "write", "read"] {
        let server = HostileServer::start(&world, false, order);
        let mut client =
            crate::common::Background::start(world.tmux_command(&server.socket).args(["-C", "list-sessions"]));
        crate::common::eventually("it has obeyed", || server.mark.exists());
        client.close_stdin();
        client.kill();
    }
}

/// S1: a tmux that muxtap runs has the environment it needs, and nothing else of the daemon's.
#[test]
#[cfg(target_os = "linux")]
fn a_tmux_that_muxtap_runs_has_a_clean_environment() {
    let mut world = World::with_server();
    world.set("API_KEY", "secret");
    world.set("SSH_AUTH_SOCK", "/daemons/agent");
    world.ok(&["read", "-t", "main"]);
    let daemon = world.daemon_pid().unwrap();
    let environment = |pid: u32| fs::read(format!("/proc/{pid}/environ")).unwrap();
    let has = |environment: &[u8], name: &str| {
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(format!("{name}=").as_bytes()))
    };
    assert!(has(&environment(daemon), "API_KEY"), "the attack itself works");
    let clients: Vec<u32> =
        world.tmux(&["list-clients", "-F", "#{client_pid}"]).lines().map(|pid| pid.parse().unwrap()).collect();
    assert!(!clients.is_empty());
    for client in clients {
        let environment = environment(client);
        assert!(has(&environment, "PATH") && !has(&environment, "API_KEY") && !has(&environment, "SSH_AUTH_SOCK"));
    }
    // A server that muxtap starts for a caller without its own environment, as over HTTP.
    let socket = world.path("fresh");
    world.also_end(&socket);
    let path = format!("/v1/sessions?socket={}", socket.to_str().unwrap().replace('/', "%2F"));
    assert_eq!(world.http("POST", &path, Some(&json!({"name": "fresh"}))).status, 200);
    let global = world.tmux_at(&socket, &["show-environment", "-g"]);
    assert!(global.contains("PATH=") && !global.contains("API_KEY"), "{global}");
    // A session gets the variables that its server takes from its caller.
    world.tmux(&["set-option", "-g", "update-environment", "SSH_AUTH_SOCK"]);
    world.tmux(&["set-option", "-ga", "update-environment", "WAYLAND_*"]);
    let made = run(world
        .muxtap_command(&["new-session", "-s", "mine"])
        .env("SSH_AUTH_SOCK", "/mine/agent")
        .env("WAYLAND_DISPLAY", "wayland-7")
        .env("OTHER_KEY", "secret"));
    assert_eq!(made.status, 0, "{made:?}");
    let mine = world.tmux(&["show-environment", "-t", "mine"]);
    assert!(mine.contains("SSH_AUTH_SOCK=/mine/agent") && mine.contains("WAYLAND_DISPLAY=wayland-7"), "{mine}");
    assert!(!mine.contains("KEY"), "{mine}");
}

/// S1: no server is started in a place where another user could put one first.
#[test]
#[cfg(target_os = "linux")]
fn no_server_is_started_in_a_folder_that_others_can_write() {
    let world = World::new();
    let folder = world.path("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let socket = folder.join("s");
    let made = run(world.plain_muxtap_command().arg("--json").arg("-S").arg(&socket).arg("new-session"));
    let error = made.error();
    assert_eq!(error["code"], "TMUX_UNAVAILABLE", "{made:?}");
    assert!(error["message"].as_str().unwrap().contains("can be written by others"), "{made:?}");
    assert!(!socket.exists());
    // A server that its user started in such a place is this user's, and is followed.
    world.tmux_at(&socket, &["new-session", "-d", "-s", "own"]);
    let listed = run(world.plain_muxtap_command().arg("-S").arg(&socket).arg("list-sessions"));
    assert!(listed.status == 0 && listed.text().contains("own"), "{listed:?}");
    // In a sticky directory such as /tmp, other users cannot replace the user's files.
    let sticky = world.path("sticky");
    fs::create_dir(&sticky).unwrap();
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).unwrap();
    let socket = sticky.join("s");
    world.also_end(&socket);
    let made = run(world.plain_muxtap_command().arg("-S").arg(&socket).args(["new-session", "-s", "own"]));
    assert_eq!(made.status, 0, "{made:?}");
    assert_eq!(world.tmux_at(&socket, &["list-sessions", "-F", "#{session_name}"]).lines().last(), Some("own"));
}

/// S9: the connection itself tells whose daemon responds: the socket's file may have become another
/// user's in the meantime.
#[test]
#[cfg(target_os = "linux")]
fn another_users_daemon_behind_the_users_own_socket_file_is_refused() {
    let mut world = World::new();
    if !opened_to_nobody(&world) {
        return;
    }
    let server = HostileServer::start(&world, true, "stop");
    let folder = world.path("sticky");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
    let socket = folder.join("s");
    fs::rename(&server.socket, &socket).unwrap();
    chown(&socket, Some(0), Some(0)).unwrap();
    world.set("MUXTAP_SOCKET", socket.to_str().unwrap());
    world.set("API_KEY", "secret");
    for command in ["mcp", "list-panes", "status", "stdio"] {
        let asked = run(world.plain_muxtap_command().arg(command));
        assert!(asked.status != 0 && asked.stderr.contains("belongs to user 65534"), "{command}: {asked:?}");
    }
    assert!(!server.notes().contains("bytes"), "{}", server.notes());
    // The world's end looks for its own daemon.
    world.set("MUXTAP_SOCKET", world.path("m.sock").to_str().unwrap());
}

/// S6: output that a reader received is not withheld from the user.
#[test]
fn output_matched_by_a_reader_still_matches_the_users_wait() {
    let world = World::with_server();
    let (addr, cookie) = crate::page::log_in(&world, &["--read-only"]);
    let (value, own) = (cookie.strip_prefix("cookie: ").unwrap(), format!("http://{addr}"));
    world.ok(&["send-keys", "-t", "main", "printf 'DO''NE\\n'", "Enter"]);
    let mut page = crate::page::open(&addr, &[("cookie", value), ("origin", &own)]).ok().unwrap();
    let arguments = json!({"panes": ["main"], "patterns": ["^DONE"], "since": "start", "server": world.socket()});
    page.say(&json!({"type": "call", "id": 1, "tool": "wait_for", "arguments": arguments}));
    let told = page.next_of("result");
    assert_eq!(told["result"]["answer"]["outcome"], "matched", "{told}");
    assert_eq!(world.ok(&["wait-for", "-t", "main", "-p", "^DONE", "-T", "20"]), "DONE");
}

/// S6: a wait is ended by its caller, or by a caller who may end programs.
#[test]
fn a_read_only_caller_cannot_end_another_callers_wait() {
    let world = World::with_server();
    let (addr, cookie) = crate::page::log_in(&world, &["--read-only"]);
    let value = cookie.strip_prefix("cookie: ").unwrap();
    let mut wait = world.spawn(&["wait-for", "-t", "main", "-p", "^never$", "-T", "50"]);
    let listed = || {
        let waits = crate::page::ask(&addr, "GET", "/v1/waits", &[&cookie], "").0.json();
        waits["waits"][0]["id"].as_str().map(str::to_owned)
    };
    crate::common::eventually("the wait is open", || listed().is_some());
    let id = listed().unwrap();
    let origin = format!("origin: http://{addr}");
    let (answer, head) = crate::page::ask(&addr, "DELETE", &format!("/v1/waits/{id}"), &[&cookie, &origin], "");
    assert_eq!(answer.status, 403, "{head}");
    // By following the wait and disconnecting.
    let own = format!("http://{addr}");
    let mut page = crate::page::open(&addr, &[("cookie", value), ("origin", &own)]).ok().unwrap();
    page.say(&json!({"type": "call", "id": 1, "tool": "wait_for", "arguments": {"id": id}}));
    page.say(&json!({"type": "call", "id": 2, "tool": "list", "arguments": {}}));
    page.next_of("result");
    drop(page);
    let mut client = Client::new(&world);
    client.begin("tools/call", &json!({"name": "wait_for", "arguments": {"id": id}}));
    client.call("list", &json!({}));
    drop(client);
    crate::common::eventually("both have gone", || world.metric("muxtap_waits_active") == 1);
    assert_eq!(listed(), Some(id.clone()), "it goes on");
    // A wait of the page's own ends with the page.
    let mut page = crate::page::open(&addr, &[("cookie", value), ("origin", &own)]).ok().unwrap();
    let arguments = json!({"panes": ["main"], "patterns": ["^other$"], "server": world.socket()});
    page.say(&json!({"type": "call", "id": 1, "tool": "wait_for", "arguments": arguments}));
    crate::common::eventually("the page's wait is open", || world.metric("muxtap_waits_active") == 2);
    drop(page);
    crate::common::eventually("the page's wait has ended", || world.metric("muxtap_waits_active") == 1);
    // The caller's own response is the pattern's match.
    world.tmux(&["send-keys", "-t", "main", "printf 'ne''ver\\n'", "Enter"]);
    assert_eq!(wait.line().as_deref(), Some("never"));
    assert_eq!(wait.finish().status, 0);
}

/// S6: the same for recordings, whose ids can be guessed.
#[test]
fn a_caller_without_the_kill_tier_cannot_end_anothers_recording() {
    let mut world = World::with_server();
    world.set("MUXTAP_DENY", "kill");
    let (addr, _) = crate::page::log_in(&world, &[]);
    let begun = world.http("POST", "/v1/recordings", Some(&json!({"pane": "main", "file": world.path("r.cast")})));
    assert_eq!(begun.status, 200, "{begun:?}");
    let id = begun.json()["id"].as_str().unwrap().to_owned();
    let bearer = format!("authorization: Bearer {}", world.ok(&["token"]));
    for (method, path) in
        [("DELETE", format!("/v1/recordings/{id}")), ("GET", format!("/v1/recordings/{id}?attach=true"))]
    {
        let (answer, head) = crate::page::ask(&addr, method, &path, &[&bearer], "");
        assert_eq!(answer.status, 403, "{head}");
    }
    assert_eq!(world.http("GET", &format!("/v1/recordings/{id}"), None).json()["state"], "recording");
    assert_eq!(world.http("DELETE", &format!("/v1/recordings/{id}"), None).status, 200);
}

/// A pane prints, and is named by, the delimiters of the protocols that carry its output.
#[test]
fn a_pane_cannot_forge_an_event_or_a_message() {
    let world = World::with_server();
    let script = world.path("forger");
    fs::write(
        &script,
        "stty -echo -onlcr; echo ready; read -r go; \
         printf '\\n\\nid: 1\\nevent: gap\\ndata: {\"forged\":true}\\n\\nretry: 1\\r\\n\\r\\n: x\\n\\n'; \
         printf '\\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"forged\":true}}\\n'; \
         printf '\\033]2;t\\r\\n\\r\\ndata: forged\\n\\n\\007'; \
         printf 'HTTP/1.1 200 OK\\r\\n\\r\\n0\\r\\n\\r\\n'; printf '\\nEND\\n'; exec cat",
    )
    .unwrap();
    let pane = world.window(&format!("exec sh {}", script.display()));
    world.await_output(&pane, "^ready");
    let mut events = Sse::open(&world, &format!("panes={}&types=output,title&since=start", pane.replace('%', "%25")));
    let mut client = Client::new(&world);
    world.tmux(&["select-pane", "-t", &pane, "-T", "x\n\nevent: gap\ndata: {\"forged\":true}\n\n"]);
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    let mut text = String::new();
    while !text.contains("\nEND\n") {
        let event = events.next().expect("an event");
        assert!(["output", "title"].contains(&event.kind.as_str()), "{event:?}");
        assert_eq!(event.data["forged"], Value::Null, "{event:?}");
        assert_eq!(event.data["pane"], pane.as_str(), "{event:?}");
        text.push_str(event.data["text"].as_str().unwrap_or_default());
    }
    assert!(text.contains("\nevent: gap\ndata: {\"forged\":true}\n"), "it is there, as text: {text:?}");
    for (tool, arguments) in [
        ("read_since", json!({"target": pane, "since": "start"})),
        ("capture_pane", json!({"target": pane})),
        ("list", json!({})),
        ("search", json!({"pattern": "forged"})),
    ] {
        // A message that is not a response to this call, or is invalid JSON, fails here.
        let answer = client.call(tool, &arguments);
        assert_eq!(answer["forged"], Value::Null, "{tool}: {answer}");
    }
}
