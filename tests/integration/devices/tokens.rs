//! Tokens over time, and access to the socket and the files.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest as _};

use super::{Page, failed, hello, own_id, page, workspace};
use crate::{
    common::{Answer, Background, LIMIT, World, eventually, run, signal},
    http_port::{asked, token},
};

/// Starts a daemon with a TCP port; returns it and the port's address.
fn serving(world: &World) -> (Background, String) {
    let mut command = world.plain_muxtap_command();
    let daemon = Background::start(command.args(["serve", "--http", "127.0.0.1:0"]));
    eventually("the daemon answers", || world.daemon_pid().is_some());
    let status = world.http("GET", "/v1/status", None).json();
    (daemon, status["http"][0].as_str().unwrap().split("://").nth(1).unwrap().to_owned())
}

/// Opens a device's connection over TCP with its token. Returns it, and the first response.
fn open(addr: &str, token: &str, device: &str) -> (Page<TcpStream>, Value) {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut request = format!("ws://{addr}/v1/devices/ws").into_client_request().unwrap();
    let bearer = format!("muxtap, bearer.{token}").parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", bearer);
    let (socket, _) = tungstenite::client::client(request, stream).unwrap();
    let mut page = Page { socket, id: device.into() };
    page.say(&hello(device));
    let first = page.next();
    (page, first)
}

/// The token of the environment, its devices, and the expiry of a device's token while it is
/// connected.
#[test]
fn auth_token_logs_devices_in_over_tcp_and_their_connections_end_with_their_tokens() {
    let mut world = World::with_server();
    let bootstrap = "bootstrap-0123456789abcdef";
    world.set("AUTH_TOKEN", bootstrap);
    let (daemon, addr) = serving(&world);
    let login = json!({"deviceId": "laptop", "deviceLabel": "l", "deviceType": "browser", "scopes": ["terminals"]});
    assert_eq!(asked(&addr, "another", "POST", "/api/device-sessions", Some(&login)).status, 401);
    let session = asked(&addr, bootstrap, "POST", "/api/device-sessions", Some(&login));
    assert_eq!(session.status, 200, "{session:?}");
    let session = session.json();
    let token = session["token"].as_str().unwrap();
    assert_eq!(asked(&addr, token, "GET", "/v1/devices", None).status, 200);
    assert_eq!(open(&addr, token, "laptop").1["type"], "welcome");
    world.ok(&["stop"]);
    drop(daemon.finish());
    // The daemon's file says that the quarter of an hour is nearly over.
    let file = world.path("m.sock.devices/sessions.json");
    let mut kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    kept[0]["tokenEnds"] = (now + 10_000).into();
    fs::write(&file, kept.to_string()).unwrap();
    let (_daemon, addr) = serving(&world);
    let (mut laptop, welcome) = open(&addr, token, "laptop");
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    // What the token opened ends with it: a stream of events that would continue, and a wait.
    let get = |path: &String| {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    // Devices can name only known servers.
    world.sessions();
    let query = world.query();
    let mut opened = [format!("/v1/events{query}"), format!("/v1/panes/%250/output{query}&since=now&wait_ms=25000")]
        .each_ref()
        .map(get);
    // It sends nothing, and is notified of the expiry.
    let told = laptop.next_of("error");
    assert_eq!(told["code"], "UNAUTHORIZED", "{told}");
    assert!(told["message"].as_str().unwrap().contains("refresh"), "{told}");
    assert_eq!(laptop.next(), Value::Null);
    assert_eq!(asked(&addr, token, "GET", "/v1/devices", None).status, 401);
    let ends = opened.each_mut().map(|stream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(ends[0].starts_with("HTTP/1.1 200") && ends[0].contains("event-stream"), "{}", ends[0]);
    assert!(ends[1].starts_with("HTTP/1.1 401") && ends[1].contains("refresh"), "{}", ends[1]);
    // It reconnects with the next token. The refresh token alone is enough, with or without the expired
    // one, and a wrong one is not.
    let refresh = json!({"refreshToken": session["refreshToken"]});
    let renew = |token: &str, body: &Value| asked(&addr, token, "POST", "/api/device-sessions/refresh", Some(body));
    assert_eq!(renew("", &json!({"refreshToken": token})).status, 401);
    assert_eq!(renew("", &json!({"refreshToken": "wrong"})).status, 401);
    let next = renew(token, &refresh).json();
    let refresh = json!({"refreshToken": next["refreshToken"]});
    let next = renew("", &refresh).json();
    assert_eq!(open(&addr, next["token"].as_str().unwrap(), "laptop").1["type"], "welcome");
}

/// D11, the specification's 12.1: after a login, a command line uses the daemon of another machine by
/// its own tokens, which it renews, and nothing of this machine.
#[test]
fn a_command_line_uses_another_machines_daemon_by_its_own_tokens() {
    let there = World::with_server();
    let (_daemon, addr) = serving(&there);
    // Devices can name only known servers.
    there.sessions();
    let mut here = World::new();
    let program = here.plain_muxtap_command().get_program().to_owned();
    let link = here.path("freshell");
    std::os::unix::fs::symlink(program, &link).unwrap();
    let server = there.socket().display().to_string();
    let ask = |world: &World, args: &[&str]| {
        let mut command = world.command(&link);
        run(command.args(["-S", &server, "--json"]).args(args))
    };
    let done = |world: &World, args: &[&str]| {
        let answer = ask(world, args);
        assert_eq!(answer.status, 0, "{args:?}: {answer:?}");
        answer.json()
    };
    let url = format!("http://{addr}");
    let login = ["auth", "login", "--url", &url, "--terminals", "--remote-control"];
    here.set("AUTH_TOKEN", "");
    let missing = failed(&ask(&here, &login), "UNAUTHORIZED");
    assert!(missing["message"].as_str().unwrap().contains("AUTH_TOKEN"), "{missing}");
    here.set("AUTH_TOKEN", "wrong-wrong-wrong-wrong");
    failed(&ask(&here, &login), "UNAUTHORIZED");
    here.set("AUTH_TOKEN", token(&there));
    failed(&ask(&here, &["auth", "login", "--url", "not-a-url"]), "INVALID_ARGUMENT");
    assert_eq!(done(&here, &login)["url"], url.as_str());
    // From here on only the device's own tokens are used.
    here.set("AUTH_TOKEN", "");
    let made = done(&here, &["new-tab", "-n", "far", "--shell", "stty -echo; echo ready; exec cat"]);
    let terminal = format!("terminal:{}", made["terminalId"].as_str().unwrap());
    assert_eq!(terminal, format!("terminal:{server}/{}", super::pane_of(&terminal)));
    assert!(there.panes().iter().any(|pane| pane == super::pane_of(&terminal)));
    done(&here, &["wait-for", "-t", &terminal, "-p", "^ready", "-T", "40"]);
    done(&here, &["send-keys", "-t", &format!("pane:{}", super::id(&made, "pane")), "over there", "Enter"]);
    done(&here, &["wait-for", "-t", &terminal, "-p", "^over there", "-T", "40"]);
    let shown = done(&here, &["capture-pane", "-t", &terminal]);
    assert!(shown["text"].as_str().unwrap().contains("over there"), "{shown}");
    let listed = done(&here, &["list-terminals"])["terminals"].clone();
    assert!(
        listed.as_array().unwrap().iter().any(|one| terminal.ends_with(one["terminalId"].as_str().unwrap())),
        "{listed}"
    );
    failed(&ask(&here, &["new-tab", "--shell", "/nonexistent/sh"]), "INVALID_ARGUMENT");
    // Its workspace is published there, and another device of that machine is changed from here.
    let own = made["tab"]["ownerDeviceId"].as_str().unwrap().to_owned();
    let stale = there.http("GET", &format!("/v1/devices/{own}/workspace?allow_stale=true"), None).json();
    assert_eq!(stale["tabs"][0]["title"], "far", "{stale}");
    let mut desk = page(&there, "desk");
    let asking = Background::start(here.command(&link).args([
        "-S",
        &server,
        "select-tab",
        "--device",
        "desk",
        "-t",
        "tab:t1",
        "--expected-revision",
        "1",
    ]));
    let request = desk.answers("select-tab", &json!({}), 2);
    assert_eq!(request["callerProgram"], "a device that has logged in over TCP", "{request}");
    assert_eq!(asking.finish().status, 0);
    // This device is available to that machine.
    let serving =
        Background::start(here.command(&link).args(["-S", &server, "device", "run", "--remote-control", "always"]));
    let info = || there.http("GET", &format!("/v1/devices/{own}"), None).json();
    eventually("the device is online there", || info()["online"] == true);
    drop(serving);
    // An expired token is renewed by the refresh token alone.
    let file = here.path("home/.freshell/cli-auth.json");
    let kept = || -> Value { serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap() };
    let before = kept();
    let mut expired = before.clone();
    expired["expiresAt"] = 1.into();
    fs::write(&file, expired.to_string()).unwrap();
    assert!(done(&here, &["list-devices"])["devices"].to_string().contains(&own));
    assert_ne!(kept()["token"], before["token"]);
    assert_eq!(kept()["url"], url.as_str());
    // Concurrent commands renew it once.
    let mut expired = kept();
    expired["expiresAt"] = 1.into();
    fs::write(&file, expired.to_string()).unwrap();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| ask(&here, &["list-devices"]).status)).collect();
        assert!(all.into_iter().all(|one| one.join().unwrap() == 0));
    });
    // A token that is rejected before its end is renewed, by every kind of command.
    for command in
        [&["list-terminals"][..], &["capture-pane", "-t", &terminal], &["list-devices"], &["new-tab", "--shell", "cat"]]
    {
        let mut rejected = kept();
        rejected["token"] = "rejected-rejected-rejected".into();
        fs::write(&file, rejected.to_string()).unwrap();
        done(&here, command);
        assert_ne!(kept()["token"], rejected["token"], "{command:?}");
    }
    // A response may take longer than a daemon that stands still has.
    let late = ask(&here, &["wait-for", "-t", &terminal, "-p", "never", "-T", "12"]);
    assert_eq!(late.status, 124, "{late:?}");
    let pid = there.daemon_pid().unwrap();
    signal(pid, Signal::STOP);
    let begun = std::time::Instant::now();
    let late = failed(&ask(&here, &["list-terminals"]), "TMUX_UNAVAILABLE");
    signal(pid, Signal::CONT);
    assert!(late["message"].as_str().unwrap().contains("timeout: 10 s"), "{late}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    // No daemon of this machine was started, and none is used until the logout.
    assert!(here.daemon_pid().is_none());
    assert_eq!(done(&here, &["auth", "logout"])["loggedIn"], false);
    let old = before["token"].as_str().unwrap();
    assert_eq!(asked(&addr, old, "GET", "/v1/devices", None).status, 401);
    // Without the scope for terminals the error says so.
    here.set("AUTH_TOKEN", token(&there));
    done(&here, &["auth", "login", "--url", &url]);
    let refused = failed(&ask(&here, &["list-terminals"]), "UNAUTHORIZED");
    assert!(refused["message"].as_str().unwrap().contains("scope: terminals"), "{refused}");
    // A daemon that is not there is named.
    there.ok(&["stop"]);
    let gone = failed(&ask(&here, &["list-devices"]), "TMUX_UNAVAILABLE");
    assert!(gone["message"].as_str().unwrap().contains(&url), "{gone}");
}

/// A command uses the daemon A while another command logs in to the daemon B; then A rejects the token.
#[test]
fn a_daemon_never_gets_the_tokens_of_another_one() {
    let other = World::with_server();
    let (_daemon, addr) = serving(&other);
    // Devices can name only known servers.
    other.sessions();
    let mut here = World::new();
    let link = here.path("freshell");
    std::os::unix::fs::symlink(here.plain_muxtap_command().get_program(), &link).unwrap();
    let server = other.socket().display().to_string();
    let command = |world: &World, args: &[&str]| {
        let mut command = world.command(&link);
        command.args(["-S", &server, "--json"]).args(args);
        command
    };
    here.set("AUTH_TOKEN", token(&other));
    let login = run(&mut command(&here, &["auth", "login", "--url", &format!("http://{addr}")]));
    assert_eq!(login.status, 0, "{login:?}");
    here.set("AUTH_TOKEN", "");
    let file = here.path("home/.freshell/cli-auth.json");
    let of_b: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    // Stands in for A: it sees each request.
    let a = TcpListener::bind("127.0.0.1:0").unwrap();
    let request = |stream: &mut TcpStream| {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            text.extend(byte);
        }
        String::from_utf8(text).unwrap()
    };
    let mut of_a = of_b.clone();
    of_a["url"] = format!("http://{}", a.local_addr().unwrap()).into();
    of_a["token"] = "the-token-of-a".into();
    fs::write(&file, of_a.to_string()).unwrap();
    let asking = Background::start(&mut command(&here, &["list-devices"]));
    let (mut stream, _) = a.accept().unwrap();
    assert!(request(&mut stream).contains("the-token-of-a"));
    fs::write(&file, of_b.to_string()).unwrap();
    let refused = json!({"code": "UNAUTHORIZED", "message": "missing or invalid token"}).to_string();
    let head =
        format!("HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: {}", refused.len());
    write!(stream, "{head}\r\nconnection: close\r\n\r\n{refused}").unwrap();
    failed(&asking.finish(), "UNAUTHORIZED");
    a.set_nonblocking(true).unwrap();
    while let Ok((mut again, _)) = a.accept() {
        let again = request(&mut again);
        assert!(!again.contains(of_b["token"].as_str().unwrap()), "{again}");
    }
    // The tokens of B are as they were, and are used for B.
    assert_eq!(serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap(), of_b);
    let listed = run(&mut command(&here, &["list-devices"]));
    assert_eq!(listed.status, 0, "{listed:?}");
}

/// Each gets tokens that work: those of the first refresh.
#[test]
fn concurrent_refreshes_do_not_revoke_the_family() {
    let world = World::with_server();
    workspace(&world, &["auth", "login"]);
    std::thread::scope(|scope| {
        let refreshes: Vec<_> = (0..6).map(|_| scope.spawn(|| workspace(&world, &["auth", "refresh"]))).collect();
        for refreshed in refreshes {
            assert_eq!(refreshed.join().unwrap()["loggedIn"], true);
        }
    });
    assert_eq!(workspace(&world, &["auth", "refresh"])["loggedIn"], true);
    assert_eq!(workspace(&world, &["auth", "status"])["expired"], false);
}

/// A token expires after a quarter of an hour; its refresh token does not, unless it is revoked.
#[test]
fn a_logout_ends_a_session_whose_token_has_expired() {
    let world = World::with_server();
    workspace(&world, &["auth", "login"]);
    let file = world.path("m.sock.devices/cli-auth.json");
    let kept: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    world.ok(&["stop"]);
    // The daemon's file says that the quarter of an hour is over.
    let file = world.path("m.sock.devices/sessions.json");
    let mut sessions: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    sessions[0]["tokenEnds"] = 1.into();
    fs::write(&file, sessions.to_string()).unwrap();
    assert_eq!(workspace(&world, &["auth", "logout"])["loggedIn"], false);
    assert!(!world.path("m.sock.devices/cli-auth.json").exists());
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), "[]");
    let body = json!({"refreshToken": kept["refreshToken"]});
    assert_eq!(world.http("POST", "/api/device-sessions/refresh", Some(&body)).status, 401);
    // A session whose tokens have all expired is forgotten.
    workspace(&world, &["auth", "login"]);
    fs::write(&file, "[]").unwrap();
    world.kill_daemon(rustix::process::Signal::KILL);
    assert_eq!(workspace(&world, &["auth", "logout"])["loggedIn"], false);
}

/// Runs the program as another user. `None`: this test cannot change its user.
fn as_another(world: &World, program: &Path, args: &[&str]) -> Answer {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent").current_dir("/");
    command.env("MUXTAP_SOCKET", world.daemon_socket()).uid(65534).gid(65534);
    run(&mut command)
}

/// Another Unix user has access to neither the socket nor the files, although every directory above
/// is open.
#[test]
fn another_user_of_the_machine_is_kept_out() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: another_user_of_the_machine_is_kept_out needs root, to become another user");
        return;
    }
    let world = World::with_server();
    workspace(&world, &["new-tab", "--shell", "exec cat"]);
    workspace(&world, &["auth", "login"]);
    let mut laptop = page(&world, "laptop");
    laptop.publishes(2);
    eventually("it is published", || {
        workspace(&world, &["device-status", "--device", "laptop"])["online"] == true
            && fs::read_dir(world.path("m.sock.devices/snapshots")).is_ok_and(|files| files.count() == 2)
    });
    let own = own_id(&world);
    let inside = ["sessions.json", "cli-auth.json", "cli-workspace.json", "cli-device.json"];
    let files = inside.map(|name| world.path("m.sock.devices").join(name));
    // All directories above are open, so that only muxtap's own modes and its check of the caller
    // protect.
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(world.dir(), 0o755);
    open(&world.daemon_socket(), 0o777);
    let program = world.path("their-muxtap");
    fs::copy(world.plain_muxtap_command().get_program(), &program).unwrap();
    open(&program, 0o755);
    let head = |path: &Path| as_another(&world, Path::new("/usr/bin/head"), &["-c1", path.to_str().unwrap()]);
    assert_eq!(head(&program).status, 0, "the other user exists and reaches the folder");
    for path in &files {
        let read = head(path);
        assert!(read.status != 0 && read.stdout.is_empty(), "{}: {read:?}", path.display());
    }
    let asked = as_another(&world, &program, &["--json", "list-panes"]);
    assert!(asked.status != 0 && asked.stdout.is_empty(), "{asked:?}");
    // The program checked the socket's owner and sent nothing; another program connects.
    let socket = world.daemon_socket();
    let calls = ["-sS", "--max-time", "20", "--unix-socket", socket.to_str().unwrap(), "http://localhost/health"];
    let called = as_another(&world, Path::new("/usr/bin/curl"), &calls);
    assert!(called.status != 0 && called.stdout.is_empty(), "{called:?}");
    eventually("its connection is refused", || {
        fs::read_to_string(world.path("m.sock.log")).unwrap().contains("refused a connection from")
    });
    // The owner is still served.
    assert_eq!(own_id(&world), own);
    failed(&world.muxtap(&["--json", "workspace", "device-status", "--device", "nobody"]), "NOT_FOUND");
    open(world.dir(), 0o700);
}
