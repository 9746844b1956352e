//! Several tmux servers at once, and the one that a command means.

use std::path::{Path, PathBuf};

use crate::common::{Answer, World, eventually, run};

fn muxtap(world: &World, args: &[&str]) -> Answer {
    run(world.plain_muxtap_command().args(args))
}

fn sessions(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 0, "{answer:?}");
    crate::common::names(&answer.json()["sessions"], "name")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn one_daemon_follows_several_servers_and_keeps_them_apart() {
    let world = World::new();
    let sockets: Vec<PathBuf> = (0..4).map(|number| world.path(&format!("s{number}"))).collect();
    for (number, socket) in sockets.iter().enumerate() {
        world.tmux_at(
            socket,
            &["new-session", "-d", "-s", &format!("on{number}"), &format!("echo hello {number}; exec cat")],
        );
    }
    for (number, socket) in sockets.iter().enumerate() {
        assert_eq!(sessions(&muxtap(&world, &["--json", "-S", text(socket), "ls"])), [format!("on{number}")]);
        // The same pane id on each server.
        let wanted = format!("^hello {number}$");
        let found = muxtap(&world, &["-S", text(socket), "wait-for", "-t", "%0", "-p", &wanted, "--since", "start"]);
        assert_eq!(found.status, 0, "{found:?}");
    }
    // A cursor of one server is invalid on another: the response says so, and contains nothing of
    // the other server.
    let read = |socket: &Path, since: &str| {
        muxtap(&world, &["--json", "-S", text(socket), "read", "-t", "%0", "--since", since]).json()
    };
    let cursor = read(&sockets[0], "start")["cursor"].as_str().unwrap().to_owned();
    let answer = muxtap(&world, &["--json", "-S", text(&sockets[1]), "read", "-t", "%0", "--since", &cursor]);
    if answer.status == 0 {
        let answer = answer.json();
        assert_eq!((&answer["gap"]["reason"], &answer["text"]), (&"server-restarted".into(), &"hello 1\n".into()));
    } else {
        assert_eq!(answer.error()["code"], "INVALID_ARGUMENT", "{answer:?}");
    }
    // One of them ends; the others are unchanged.
    world.tmux_at(&sockets[2], &["kill-server"]);
    let gone = muxtap(&world, &["--json", "-S", text(&sockets[2]), "ls"]);
    assert_eq!(gone.error()["code"], "TMUX_UNAVAILABLE", "{gone:?}");
    assert_eq!(sessions(&muxtap(&world, &["--json", "-S", text(&sockets[3]), "ls"])), ["on3"]);
}

#[test]
fn names_directories_and_the_pane_it_runs_in_pick_the_server_as_in_tmux() {
    let mut world = World::new();
    let uid = rustix::process::getuid().as_raw();
    let base = std::fs::canonicalize(world.path("run")).unwrap().join(format!("tmux-{uid}"));
    // `-L`, in TMUX_TMPDIR.
    let named = base.join("named");
    world.also_end(&named);
    let made = muxtap(&world, &["-L", "named", "new-session", "-s", "by-name"]);
    assert_eq!(made.status, 0, "{made:?}");
    assert!(named.exists(), "tmux's own place for it");
    assert_eq!(sessions(&muxtap(&world, &["--json", "-L", "named", "ls"])), ["by-name"]);
    assert_eq!(sessions(&muxtap(&world, &["--json", "-S", text(&named), "ls"])), ["by-name"]);
    // Plain tmux finds it by the same name.
    let theirs = run(world.command(crate::common::tmux_program()).args(["-L", "named", "list-sessions", "-F", "#S"]));
    assert!(theirs.text().contains("by-name"), "{theirs:?}");
    // The default server.
    let default = base.join("default");
    world.also_end(&default);
    world.tmux_at(&default, &["new-session", "-d", "-s", "by-default"]);
    assert_eq!(sessions(&muxtap(&world, &["--json", "ls"])), ["by-default"]);
    // Another directory, requested through the same daemon.
    let pid = world.daemon_pid();
    std::fs::create_dir(world.path("other")).unwrap();
    world.set("TMUX_TMPDIR", world.path("other").display().to_string());
    let other = std::fs::canonicalize(world.path("other")).unwrap().join(format!("tmux-{uid}/default"));
    world.also_end(&other);
    let made = muxtap(&world, &["new-session", "-s", "elsewhere"]);
    assert_eq!(made.status, 0, "{made:?}");
    assert_eq!(sessions(&muxtap(&world, &["--json", "ls"])), ["elsewhere"]);
    assert_eq!(world.daemon_pid(), pid);
    // Inside a pane: that server, and that pane by default.
    world.set("TMUX", format!("{},1,0", named.display()));
    assert_eq!(sessions(&muxtap(&world, &["--json", "ls"])), ["by-name"]);
    let mut inside = world.plain_muxtap_command();
    let pane = world.tmux_at(&named, &["list-panes", "-t", "by-name:", "-F", "#{pane_id}"]);
    let inside = run(inside.env("TMUX_PANE", &pane).args(["--json", "capture-pane"]));
    assert_eq!(inside.json()["pane"], pane, "{inside:?}");
}

#[test]
fn a_server_is_started_with_its_callers_environment_and_directory() {
    let mut world = World::new();
    // The daemon is started by another command.
    let status = muxtap(&world, &["-S", text(&world.path("nobody")), "ls"]);
    assert_eq!(status.status, 1);
    let pid = world.daemon_pid();
    assert!(pid.is_some());
    world.set("CALLER_SAYS", "hello from the caller");
    let pane = world.ok(&["new-session", "-s", "mine", "--", "echo \"$CALLER_SAYS in $PWD\"; exec cat"]);
    world.await_output(&pane, "^hello from the caller in .*/work$");
    assert_eq!(world.daemon_pid(), pid);
}

/// Returns the panes' sessions on the server that a query names.
fn sessions_by(world: &World, query: &str) -> Vec<String> {
    let answer = world.http("GET", &format!("/v1/panes{query}"), None);
    assert_eq!(answer.status, 200, "{query}: {:?}", String::from_utf8_lossy(&answer.body));
    crate::common::names(&answer.json()["panes"], "session")
}

#[test]
fn a_request_that_names_no_server_means_the_only_one_or_the_default() {
    let world = World::with_server();
    assert_eq!(world.sessions(), ["main"]);
    assert_eq!(sessions_by(&world, ""), ["main"], "the only one that is followed");
    // By their names, like `tmux -L`.
    let folder = world.path("run").join(format!("tmux-{}", rustix::process::getuid().as_raw()));
    let start = |name: &str| {
        world.also_end(folder.join(name));
        let args = ["-f/dev/null", "-L", name, "new-session", "-d", "-s", name];
        assert_eq!(run(world.command(crate::common::tmux_program()).args(args)).status, 0);
    };
    start("other");
    assert_eq!(sessions_by(&world, "?socket=other"), ["other"]);
    assert_eq!(sessions_by(&world, &world.query()), ["main"]);
    let refused = |query: &str| {
        let answer = world.http("GET", &format!("/v1/panes{query}"), None);
        assert_eq!((answer.status, &answer.json()["code"]), (400, &"INVALID_ARGUMENT".into()), "{query}");
        answer.json()
    };
    // Two are followed, and neither is the default one.
    let error = refused("");
    let both = [folder.join("other"), world.socket().to_owned()];
    let both: std::collections::BTreeSet<_> = both.iter().map(|socket| text(socket)).collect();
    let told = error["details"]["candidates"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(both, told, "{error}");
    assert!(both.iter().all(|socket| error["message"].as_str().unwrap().contains(socket)), "{error}");
    start("default");
    assert_eq!(sessions_by(&world, "?socket=default"), ["default"]);
    assert_eq!(sessions_by(&world, ""), ["default"]);
    // The same over a WebSocket, whose own request named one.
    let mut ws = crate::subscribers::Ws::open(&world);
    let panes = |ws: &mut crate::subscribers::Ws, socket: serde_json::Value| {
        let request = serde_json::json!({"id": 1, "op": "subscribe", "socket": socket, "types": ["bell"]});
        let followed = ws.ok(&request)["panes"].clone();
        ws.ok(&serde_json::json!({"id": 1, "op": "unsubscribe"}));
        followed
    };
    assert_eq!(panes(&mut ws, serde_json::Value::Null), panes(&mut ws, text(world.socket()).into()));
    assert_eq!(panes(&mut ws, "other".into()).as_array().unwrap().len(), 1);
    for (query, says) in [
        ("?socket=", "it is empty"),
        ("?socket=sub/s", "unknown host sub"),
        ("?socket=..", "neither an absolute path nor a name"),
        ("?socket=a%00b", "not a valid socket path"),
        (&format!("?socket=/tmp/{}", "x".repeat(200)), "a path of 205 bytes is not a valid socket path"),
    ] {
        let message = refused(query)["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("socket: ") && message.contains(says), "{query}: {message}");
    }
    let absent = world.http("GET", "/v1/panes?socket=nobody", None).json();
    assert_eq!(absent["code"], "TMUX_UNAVAILABLE", "{absent}");
}

/// Like `/tmp` and `/private/tmp` on macOS.
#[test]
fn two_paths_to_one_server_are_one_server_with_one_client() {
    use std::os::unix::fs::symlink;
    let world = World::with_server();
    let (link, folder) = (world.path("link"), world.path("folder"));
    symlink(world.socket(), &link).unwrap();
    symlink(world.dir(), &folder).unwrap();
    let query = |socket: &Path| format!("?socket={}", text(socket));
    assert_eq!(sessions(&muxtap(&world, &["--json", "-S", text(&link), "ls"])), ["main"]);
    for socket in [world.socket(), &link, &folder.join("t"), &world.dir().join("run/../t")] {
        assert_eq!(sessions_by(&world, &query(socket)), ["main"], "{}", socket.display());
    }
    let servers = || world.json(&["status"])["servers"].as_array().unwrap().clone();
    let known = servers();
    assert_eq!((known.len(), &known[0]["clients"]), (1, &0.into()), "{known:?}");
    assert_eq!(known[0]["socket"], text(&link), "the path by which it was asked for first");
    for socket in [world.socket(), &link] {
        muxtap(&world, &["-S", text(socket), "read", "-t", "main"]);
    }
    assert_eq!(world.tmux(&["list-clients", "-F", "#{client_control_mode}"]), "1");
    // No server runs yet; the link leads nowhere.
    let (late, late_link) = (world.path("late"), world.path("late-link"));
    symlink(&late, &late_link).unwrap();
    for socket in [&late_link, &folder.join("late"), &late] {
        let absent = world.http("GET", &format!("/v1/panes{}", query(socket)), None).json();
        assert_eq!(absent["code"], "TMUX_UNAVAILABLE", "{absent}");
    }
    assert_eq!(servers().len(), 2);
    world.tmux_at(&late, &["new-session", "-d", "-s", "late"]);
    for socket in [&late, &late_link, &folder.join("late")] {
        eventually("it is found", || world.http("GET", &format!("/v1/panes{}", query(socket)), None).status == 200);
        assert_eq!(sessions_by(&world, &query(socket)), ["late"], "{}", socket.display());
    }
    assert_eq!(servers().len(), 2);
    assert_eq!(world.tmux_at(&late, &["list-clients", "-F", "#{client_control_mode}"]), "", "nothing is in use");
}

#[test]
fn servers_and_open_waits_are_listed() {
    let world = World::with_server();
    let pane = world.panes().remove(0);
    let servers = world.http("GET", "/v1/servers", None).json();
    let server = &servers["servers"][0];
    assert_eq!(server["socket"], text(world.socket()), "{servers}");
    assert_eq!(server["pid"], world.server_pid(), "{servers}");
    assert_eq!((&server["state"], &server["coverage"]), (&"connected".into(), &"used".into()), "{servers}");
    assert!(server["version"].is_string() && server["clients"] == 0, "{servers}");

    let waits = || world.http("GET", "/v1/waits", None).json()["waits"].as_array().unwrap().clone();
    assert!(waits().is_empty());
    let request = serde_json::json!({
        "panes": [pane], "patterns": ["never"], "fail": ["bad"], "exit": true, "mode": "all", "timeout_ms": 60_000,
        "detach": true
    });
    let begun = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&request)).json();
    let id = begun["id"].as_str().unwrap();
    let open = waits();
    let [wait] = open.as_slice() else { panic!("{open:?}") };
    assert_eq!((&wait["id"], &wait["panes"]), (&id.into(), &serde_json::json!([pane])), "{wait}");
    assert_eq!((&wait["socket"], &wait["mode"]), (&text(world.socket()).into(), &"all".into()), "{wait}");
    let conditions = serde_json::json!([
        {"kind": "pattern", "pattern": "never"}, {"kind": "exit"}, {"kind": "fail", "pattern": "bad"}
    ]);
    assert_eq!(wait["conditions"], conditions, "{wait}");
    let (since, until) = (wait["since_ms"].as_u64().unwrap(), wait["until_ms"].as_u64().unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(u128::from(since) <= now && now - u128::from(since) < 60_000 && until - since == 60_000, "{wait}");
    let own = format!("process {}", std::process::id());
    assert_eq!((&wait["face"], &wait["who"]), (&"unix".into(), &own.as_str().into()), "{wait}");
    world.http("DELETE", &format!("/v1/waits/{id}"), None);
    assert!(waits().is_empty());
}

/// A socket without a server is watched, which costs a descriptor: a caller that names many of them
/// must not use up all descriptors.
#[test]
fn sockets_that_nobody_listens_on_are_forgotten() {
    let world = World::with_server();
    let pane = world.panes().remove(0);
    let waiting = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "never", "-T", "40"]);
    crate::common::eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    let pid = world.daemon_pid().unwrap();
    let descriptors = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let ask = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let path = format!("/v1/panes?socket={}", text(&world.path(&format!("no{number}"))));
            assert_eq!(world.http("GET", &path, None).json()["code"], "TMUX_UNAVAILABLE");
        }
    };
    let servers = || world.http("GET", "/v1/status", None).json()["servers"].as_array().unwrap().clone();
    ask(0..20);
    let (known, open) = (servers().len(), descriptors());
    ask(20..60);
    assert_eq!(servers().len(), known);
    assert!(known <= 17, "{known}");
    crate::common::eventually("their watches end", || descriptors() <= open + 2);
    let left = servers();
    assert!(left.iter().any(|server| server["socket"] == text(world.socket()) && server["state"] == "connected"));
    assert!(left.iter().any(|server| server["socket"] == text(&world.path("no59"))), "the last one is still watched");
    assert_eq!(world.json(&["status"])["waits"], 1);
    world.tmux(&["kill-server"]);
    assert_eq!(waiting.finish().status, 3);
}

/// Every server has a pane %0: events of one are not reported to subscribers of another.
#[test]
fn who_listens_to_one_server_hears_nothing_of_another() {
    let world = World::with_server();
    let other = world.path("other");
    world.tmux_at(&other, &["new-session", "-d", "-s", "build", "sh"]);
    let on_other = |args: &[&str]| run(world.plain_muxtap_command().arg("-S").arg(&other).args(args));
    assert_eq!(on_other(&["list-panes"]).status, 0);
    world.ok(&["list-panes"]);
    let mut events = world.spawn(&["--json", "events"]);
    eventually("it listens", || world.metric("muxtap_streams") == 1);
    world.ok(&["new-session", "-s", "begin", "--", "cat"]);
    events.line_where("the first session", |line| line.contains("pane-opened") && line.contains("begin"));
    assert_eq!(on_other(&["new-window", "-t", "build", "--", "cat"]).status, 0);
    world.tmux_at(&other, &["select-pane", "-t", "%0", "-T", "a title elsewhere"]);
    world.ok(&["new-session", "-s", "end", "--", "cat"]);
    let mut heard = Vec::new();
    events.line_where("the last session", |line| {
        heard.push(line.to_owned());
        line.contains("pane-opened") && line.contains("\"end\"")
    });
    assert!(heard.iter().all(|line| !line.contains("build") && !line.contains("elsewhere")), "{heard:?}");
}

/// Returns the program that a server of this user runs, if it is tmux itself and not a loader with
/// tmux as its argument.
#[cfg(target_os = "linux")]
fn tmux_binary() -> Option<std::path::PathBuf> {
    let world = World::with_server();
    let pid = world.tmux(&["display-message", "-p", "#{pid}"]);
    let file = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let is_tmux = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tmux"));
    if !is_tmux {
        println!("not tested: {} is run by {}", crate::common::tmux_program(), file.display());
    }
    is_tmux.then_some(file)
}

/// As after an upgrade: the server's program has been removed, and `PATH` finds a different one.
#[test]
#[cfg(target_os = "linux")]
fn each_server_is_contacted_with_its_own_tmux_program() {
    let Some(binary) = tmux_binary() else { return };
    let mut world = World::new();
    let own = world.path("tmux-of-old");
    std::fs::copy(binary, &own).unwrap();
    let start = ["-f", "/dev/null", "new-session", "-d", "-s", "main"];
    let mut server = world.command(own.display().to_string());
    assert!(server.arg("-S").arg(world.socket()).args(start).status().unwrap().success());
    std::fs::remove_file(&own).unwrap();
    world.set("MUXTAP_TMUX", world.path("no-such-tmux").display().to_string());
    assert_eq!(world.sessions(), ["main"]);
    let pane = world.json(&["list-panes"])["panes"][0]["id"].as_str().unwrap().to_owned();
    world.ok(&["run", "-t", &pane, "--", "echo", "spoken"]);
    // Only if that is configured.
    world.ok(&["stop"]);
    world.set("MUXTAP_OWN_TMUX", "false");
    let said = world.error("TMUX_UNAVAILABLE", &["list-panes"]);
    assert!(said.contains("no-such-tmux"), "{said}");
}

/// A server of a version that the configured tmux does not understand, if one is installed.
#[test]
#[cfg(target_os = "linux")]
fn where_program_and_server_differ_both_are_named() {
    let folder = std::env::var_os("MUXTAP_TMUX_DIR").map(std::path::PathBuf::from);
    let Some(newer) = folder.map(|folder| folder.join("bin/tmux-3.7c")).filter(|newer| newer.exists()) else {
        println!("not tested: no tmux-3.7c in MUXTAP_TMUX_DIR");
        return;
    };
    let mut world = World::new();
    let socket = world.socket().to_owned();
    let call = |args: &[&str]| world.command(newer.display().to_string()).arg("-S").arg(&socket).args(args).status();
    assert!(call(&["-f", "/dev/null", "new-session", "-d", "-s", "main"]).unwrap().success());
    assert_eq!(world.sessions(), ["main"], "by its own program");
    world.ok(&["stop"]);
    world.set("MUXTAP_OWN_TMUX", "false");
    let asked = world.muxtap(&["--json", "list-panes"]);
    let mut end = world.command(newer.display().to_string());
    assert!(end.arg("-S").arg(&socket).arg("kill-server").status().unwrap().success());
    // Some versions understand each other.
    if asked.status != 0 {
        let said = asked.error()["message"].to_string();
        let program = crate::common::run(world.command(crate::common::tmux_program()).arg("-V"));
        let version = program.text().trim().trim_start_matches("tmux ").to_owned();
        assert!(said.contains(&version) && said.contains("tmux-3.7c") && said.contains("MUXTAP_TMUX"), "{said}");
    }
}
