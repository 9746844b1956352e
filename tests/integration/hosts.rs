//! Servers on other hosts: in a real container, and behind a real sshd on loopback.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{Answer, Background, World, eventually, run, signal, tmux_program},
    container::Container,
    http_port::{asked, token},
    mcp::Client,
    places::{Proxy, Sshd},
    subscribers::Ws,
};

/// Writes a configuration that names hosts.
pub fn configure(world: &World, hosts: &[(&str, &str)]) {
    let folder = world.path("home/muxtap");
    fs::create_dir_all(&folder).unwrap();
    let tables = hosts.iter().map(|(name, via)| {
        let tmux = if via.starts_with("ssh") || via.starts_with("env") {
            format!("tmux = {:?}\n", tmux_program())
        } else {
            String::new()
        };
        format!("[host.{name}]\nvia = {via:?}\n{tmux}")
    });
    fs::write(folder.join("config.toml"), tables.collect::<String>()).unwrap();
}

/// Starts an sshd whose tmux servers are this world's.
pub fn started(world: &World) -> Option<Sshd> {
    Sshd::start(world.dir(), &[("TMUX_TMPDIR", world.dir().to_str().unwrap())])
}

/// Creates the place for a default server that muxtap does not start, which ends with the world.
pub fn place_for_a_server(world: &World) -> PathBuf {
    let socket = world.path(&format!("tmux-{}/default", rustix::process::getuid().as_raw()));
    world.also_end(&socket);
    fs::create_dir(socket.parent().unwrap()).unwrap();
    fs::set_permissions(socket.parent().unwrap(), PermissionsExt::from_mode(0o700)).unwrap();
    socket
}

/// Calls muxtap without naming a server; it must succeed. Returns its output.
pub fn ok(world: &World, args: &[&str]) -> String {
    let answer = call(world, args);
    assert_eq!(answer.status, 0, "muxtap {args:?}: {answer:?}");
    answer.text().trim_end_matches('\n').to_owned()
}

pub fn call(world: &World, args: &[&str]) -> Answer {
    run(world.plain_muxtap_command().args(args))
}

/// Calls muxtap with `--json`; it must fail. Returns the error's code, message and reason.
fn error(world: &World, args: &[&str]) -> (String, String, String) {
    let answer = call(world, &[&["--json"], args].concat());
    let error = answer.error();
    let status = if error["code"] == "INVALID_ARGUMENT" { 2 } else { 1 };
    assert_eq!(answer.status, status, "muxtap {args:?}: {answer:?}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&error["code"]), text(&error["message"]), text(&error["details"]["reason"]))
}

#[test]
fn a_container_is_used_like_the_local_host() {
    let world = World::with_server();
    let container = Container::start(world.dir(), Some(&tmux_program()));
    let name = &container.name;
    configure(&world, &[(name, &container.via())]);
    let at = |target: &str| format!("{name}/{target}");
    // The container's default server is started.
    let pane = ok(&world, &["new-session", "-L", &at(""), "-s", "work", "-n", "first", "--", "sh"]);
    assert!(pane.starts_with(&at("%")), "{pane}");
    ok(&world, &["send-keys", "-t", &pane, "echo it is $((40 + 2)); pwd", "Enter"]);
    ok(&world, &["wait-for", "-t", &pane, "-p", "it is 42", "-T", "30"]);
    let shown = ok(&world, &["capture-pane", "-t", &at("work:first")]);
    assert!(shown.contains("it is 42"), "{shown}");
    assert!(ok(&world, &["read", "-t", &pane, "--since", "start"]).contains("it is 42"));
    // One list of everything, whose ids can be used as targets.
    let list: Value = serde_json::from_str(&ok(&world, &["--json", "list-panes"])).unwrap();
    let hosts: Vec<_> = list["panes"].as_array().unwrap().iter().map(|pane| &pane["host"]).collect();
    assert_eq!(hosts, [&json!(name)], "no server runs here: {list}");
    let path = format!("/v1/panes{}&everywhere=true", world.query());
    let list = world.http("GET", &path, None).json();
    let hosts: Vec<_> = list["panes"].as_array().unwrap().iter().map(|pane| &pane["host"]).collect();
    assert_eq!(hosts, [&Value::Null, &json!(name)], "{list}");
    // An agent lists everything, too (no server is the default one here), and can use the ids.
    let everywhere = |what: &str| {
        let arguments = json!({ "everywhere": true, "what": what });
        world.http("POST", "/v1/tools/list", Some(&arguments)).json()
    };
    let panes = everywhere("panes");
    let ids: Vec<_> = panes["answer"]["panes"].as_array().unwrap().iter().map(|pane| &pane["id"]).collect();
    assert_eq!(ids, [&json!(pane)], "{panes}");
    assert!(panes["text"].as_str().unwrap().starts_with(&format!("{pane} work:0.0")), "{panes}");
    for what in ["sessions", "windows"] {
        assert_eq!(everywhere(what)["answer"][what].as_array().unwrap().len(), 1, "{what}");
    }
    assert_eq!(everywhere("agents")["answer"]["agents"], json!([]));
    assert_eq!(everywhere("commands")["code"], "INVALID_ARGUMENT");
    let table = ok(&world, &["list-panes"]);
    assert!(table.contains(&pane) && table.lines().count() == 2, "{table}");
    assert!(ok(&world, &["list-windows"]).contains("work:0"), "windows of all hosts");
    // A second window, by its session's name; and HTTP.
    let second = ok(&world, &["new-window", "-t", &at("work"), "--", "cat"]);
    assert!(second.starts_with(&at("%")), "{second}");
    let path = format!(
        "/v1/panes/{}/input{}",
        second.replace('/', "%2F").replace('%', "%25").replace("%252F", "%2F"),
        world.query()
    );
    let sent = world.http("POST", &path, Some(&json!({ "text": "over HTTP\n" })));
    assert_eq!(sent.status, 200, "{:?}", sent.json());
    let waits = json!({ "panes": [second], "patterns": ["over HTTP"], "timeout_ms": 30_000, "since": "start" });
    let waited = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&waits)).json();
    assert_eq!(waited["outcome"], "matched", "{waited}");
    // The local server is unchanged.
    assert_eq!(world.sessions(), ["main"]);
    ok(&world, &["kill-session", "-t", &at("work")]);
    let (code, ..) = error(&world, &["list-panes", "-t", &at("work")]);
    assert!(code == "NOT_FOUND" || code == "TMUX_UNAVAILABLE", "{code}");
}

#[test]
fn the_reason_that_a_container_is_unreachable_is_reported() {
    let world = World::new();
    let container = Container::start(world.dir(), None);
    let missing = container.via().replace(&container.name, "box-of-nobody");
    configure(
        &world,
        &[("bare", &container.via()), ("nobody", &missing), ("norun", "muxtap-knows-no-such-program -i x")],
    );
    let reason = |target: &str, says: &str| {
        let (_, message, reason) = error(&world, &["list-panes", "-L", target]);
        assert!(message.contains(says), "{target}: {message}");
        reason
    };
    assert_eq!(reason("bare/", "has no tmux"), "no-tmux");
    reason("norun/", "cannot run");
    assert_eq!(reason("nobody/", "no such container"), "no-container");
    reason("stranger/", "known: bare, nobody, norun");
    // Doctor lists all of them, and reports that the others are ready.
    let doctor = call(&world, &["doctor"]);
    assert!(doctor.status == 0 && doctor.text().contains("has no tmux"), "{doctor:?}");
    container.stop();
    assert_eq!(reason("bare/", "container is not running"), "container-stopped");
    let doctor = call(&world, &["doctor"]);
    assert!(doctor.status == 0 && doctor.text().contains("container is not running"), "{doctor:?}");
}

#[test]
fn waits_end_when_their_container_stops() {
    let world = World::new();
    let container = Container::start(world.dir(), Some(&tmux_program()));
    configure(&world, &[("box", &container.via())]);
    let pane = ok(&world, &["new-session", "-L", "box/", "-s", "work", "--", "sh", "-c", "echo before; exec cat"]);
    ok(&world, &["wait-for", "-t", &pane, "-p", "before", "-T", "30"]);
    let waiting =
        Background::start(world.plain_muxtap_command().args(["wait-for", "-t", &pane, "-p", "never", "-T", "60"]));
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    container.stop();
    let waited = waiting.finish();
    assert!(waited.status != 0 && waited.status != 124, "{waited:?}");
    // Its earlier output is still available.
    assert!(ok(&world, &["read", "-t", &pane, "--since", "start"]).contains("before"));
}

#[test]
fn a_paused_container_is_reported_as_paused() {
    let world = World::new();
    let container = Container::start(world.dir(), Some(&tmux_program()));
    configure(&world, &[("box", &container.via())]);
    container.pause();
    for line in [&["list-sessions", "-L", "box/"][..], &["new-session", "-L", "box/", "-d"]] {
        let (_, message, reason) = error(&world, line);
        assert_eq!(reason, "container-stopped", "{message}");
        assert!(message.contains("its container is paused") && message.contains("unpause it"), "{message}");
    }
    assert!(ok(&world, &["hosts"]).contains("its container is paused"));
    let doctor = call(&world, &["doctor"]);
    assert!(doctor.text().contains("its container is paused"), "{doctor:?}");
    container.unpause();
    eventually("the container is used again", || {
        call(&world, &["new-session", "-L", "box/", "-s", "work", "--", "cat"]).status == 0
    });
    if container.is_real() {
        // A client that is attached falls silent; a new one cannot be run.
        let width = ["--json", "display-message", "-t", "box/work", "-p", "#{pane_width} #{history_limit}"];
        assert_eq!(call(&world, &width).status, 0);
        container.pause();
        let first = call(&world, &width).error();
        assert!(first["message"].as_str().unwrap().contains("host box"), "{first}");
        eventually("the reason is known", || {
            let answer = call(&world, &width);
            answer.status != 0 && answer.error()["message"].as_str().unwrap().contains("its container is paused")
        });
        container.unpause();
        eventually("it is used again", || call(&world, &width).status == 0);
    }
}

/// Writes a stand-in for ssh that reports each program that it runs, and then calls `lines`.
fn reporting(world: &World, lines: &str) -> String {
    let script = world.path("bin/via");
    program(
        &script,
        &format!("echo \"$*\" >>{0}/ran\n{lines}\nexec env TMUX_TMPDIR={0} \"$@\"", world.dir().display()),
    );
    format!("env -u TMUX {}", script.display())
}

#[test]
fn the_first_contact_with_a_host_asks_for_its_sessions_once() {
    for has_server in [true, false] {
        let world = World::with_server();
        let socket = place_for_a_server(&world);
        if has_server {
            world.tmux_at(&socket, &["new-session", "-d", "-s", "work", "cat"]);
        }
        configure(&world, &[("box", &reporting(&world, ""))]);
        let answer = call(&world, &["list-sessions", "-L", "box/"]);
        assert_eq!(answer.status == 0, has_server, "{answer:?}");
        let ran = fs::read_to_string(world.path("ran")).unwrap();
        let lists = ran.lines().filter(|line| line.contains("list-sessio")).count();
        assert_eq!(lists, 1, "{ran}");
    }
}

#[test]
fn a_stalled_link_has_a_limit_of_its_own() {
    let world = World::with_server();
    configure(&world, &[("box", "sh -c 'exec sleep 1000' sh")]);
    let begun = std::time::Instant::now();
    let (_, message, reason) = error(&world, &["list-sessions", "-L", "box/"]);
    assert!(message.contains("host box: no reply over its link within 20 s"), "{message}");
    assert_eq!(reason, "no-connection");
    // Not the sum of several limits.
    assert!(begun.elapsed() < Duration::from_secs(28), "{:?}", begun.elapsed());
    assert!(ok(&world, &["hosts"]).contains("no reply over its link"));
}

#[test]
fn a_connection_that_stalls_is_reported_with_its_host_and_replaced() {
    let world = World::with_server();
    let socket = place_for_a_server(&world);
    world.tmux_at(&socket, &["new-session", "-d", "-s", "work", "cat"]);
    // What stalls is the way to the client: tmux itself reads a client's input.
    let clients = world.path("clients");
    let stalls = format!(
        "case \" $* \" in *' -C '*) sh -c 'echo $$ >>{}; exec cat' | env TMUX_TMPDIR={} \"$@\"; exit;; esac",
        clients.display(),
        world.dir().display()
    );
    let via = reporting(&world, &stalls);
    configure(&world, &[("box", &via)]);
    let width = ["display-message", "-t", "box/work", "-p", "#{pane_width} #{history_limit}"];
    let first = ok(&world, &width);
    let stalled = fs::read_to_string(&clients).unwrap();
    for client in stalled.lines() {
        signal(client.parse().unwrap(), Signal::STOP);
    }
    let begun = std::time::Instant::now();
    let (_, message, _) = error(&world, &width);
    assert!(message.contains("tmux does not respond") && message.contains("host box"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(18), "{:?}", begun.elapsed());
    eventually("another connection is used", || {
        let answer = call(&world, &width);
        answer.status == 0 && answer.text().trim() == first
    });
    for client in stalled.lines() {
        signal(client.parse().unwrap(), Signal::KILL);
    }
    world.ok(&["stop"]);
    // This stand-in, other than ssh, keeps a client whose output is not read (N94).
    for client in world.tmux_at(&socket, &["list-clients", "-F", "#{client_pid}"]).lines() {
        signal(client.parse().unwrap(), Signal::KILL);
    }
    eventually("all clients have left", || world.tmux_at(&socket, &["list-clients"]).is_empty());
}

#[test]
fn twenty_hosts_are_contacted_at_once_and_a_slow_one_delays_none() {
    let world = World::with_server();
    let socket = place_for_a_server(&world);
    world.tmux_at(&socket, &["new-session", "-d", "-s", "work", "cat"]);
    let begun = world.path("begun");
    fs::create_dir(&begun).unwrap();
    let script = world.path("bin/via");
    // Each goes on when all have begun: hosts that were contacted one after the other never would.
    let waits = format!(
        "host=$1; shift; touch {0}/$host\n[ $host = slow ] && exec sleep 1000\n\
         while [ $(ls {0} | wc -l) -lt 20 ]; do sleep 0.1; done\nexec env TMUX_TMPDIR={1} \"$@\"",
        begun.display(),
        world.dir().display()
    );
    program(&script, &waits);
    let names: Vec<String> = (1..20).map(|number| format!("h{number}")).chain(["slow".to_owned()]).collect();
    let vias: Vec<_> = names.iter().map(|name| format!("env -u TMUX {} {name}", script.display())).collect();
    let hosts: Vec<_> = names.iter().zip(&vias).map(|(name, via)| (name.as_str(), via.as_str())).collect();
    configure(&world, &hosts);
    world.ok(&["list-panes"]);
    let path = format!("/v1/panes{}&everywhere=true", world.query());
    eventually("all but the slow one are listed", || {
        let list = world.http("GET", &path, None).json();
        list["panes"].as_array().unwrap().len() == 20 && list["unreachable"].as_array().unwrap().len() == 1
    });
}

#[test]
fn a_tmux_that_is_too_old_is_reported() {
    let world = World::new();
    // Stands in for a tmux before 3.2a, which no current archive has.
    let old = world.path("old");
    let says = "case \"$*\" in *-V*) echo 'tmux 3.1c' ;; *\"$RUNS\"*) printf '1700000000 $0  work\\ndefault $0 3.1c\\n' ;; \
                *) echo 'no server running on /tmp/tmux-0/default' >&2; exit 1 ;; esac";
    fs::write(&old, says).unwrap();
    let via = |runs: &str| format!("env RUNS={runs} sh {}", old.display());
    configure(&world, &[("runs", &via("list-sessio")), ("rests", &via("nothing"))]);
    let (_, message, reason) = error(&world, &["list-panes", "-L", "runs/"]);
    assert!(reason == "too-old" && message.contains("3.1c"), "{reason}: {message}");
    // A server would have to be started first.
    let (_, message, reason) = error(&world, &["new-session", "-L", "rests/"]);
    assert!(reason == "too-old" && message.contains("3.1c"), "{reason}: {message}");
    world.ok(&["stop"]);
    let doctor = call(&world, &["doctor"]);
    assert_eq!(doctor.text().matches("its tmux is too old (version 3.1c)").count(), 2, "{doctor:?}");
}

/// Stands in for a container runtime that leaves programs running when its caller dies: a control
/// client's input stays open, and its output is not read.
const LEAVES_CLIENTS: &str = "case \" $* \" in *' -C '*) ;; *) exec \"$@\" ;; esac
mkfifo \"$DIR/in.$$\"
sleep 600 3<>\"$DIR/in.$$\" >/dev/null & echo $! >>\"$DIR/holders\"
\"$@\" <\"$DIR/in.$$\" | { trap '' PIPE; cat; exec cat >/dev/null; } &
exec cat >\"$DIR/in.$$\"
";

#[test]
fn a_client_that_a_killed_daemon_left_on_a_host_is_detached() {
    let world = World::new();
    let script = world.path("runtime");
    fs::write(&script, LEAVES_CLIENTS).unwrap();
    let dir = world.dir().display();
    configure(&world, &[("far", &format!("env DIR={dir} TMUX_TMPDIR={dir} sh {}", script.display()))]);
    let socket = place_for_a_server(&world);
    for session in ["one", "two"] {
        world.tmux_at(&socket, &["new-session", "-d", "-s", session, "echo ready; exec cat"]);
    }
    let clients = || {
        let listed = world.tmux_at(&socket, &["list-clients", "-F", "#{client_name}"]);
        listed.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    ok(&world, &["wait-for", "-t", "far/one", "-p", "ready", "--since", "start", "-T", "30"]);
    eventually("each session has its client", || clients().len() == 2);
    let left = clients();
    world.kill_daemon(rustix::process::Signal::KILL);
    assert_eq!(clients(), left, "the stand-in ends nothing");
    ok(&world, &["wait-for", "-t", "far/two", "-p", "ready", "--since", "start", "-T", "30"]);
    eventually("the clients that were left have gone", || {
        let now = clients();
        now.len() == 2 && !now.iter().any(|client| left.contains(client))
    });
    for holder in fs::read_to_string(world.path("holders")).unwrap().lines() {
        run(std::process::Command::new("kill").arg(holder));
    }
}

#[test]
fn eleven_sessions_over_ssh_are_followed() {
    let world = World::new();
    let Some(sshd) = started(&world) else { return };
    let proxy = Proxy::before(sshd.port());
    configure(&world, &[("far", &sshd.via_proxy("user", &proxy))]);
    let socket = place_for_a_server(&world);
    // Not created by muxtap: each session has its own client, and sshd allows ten to a connection.
    for number in 0..11 {
        world.tmux_at(&socket, &["new-session", "-d", "-s", &format!("s{number}"), "echo ready; exec cat"]);
    }
    for number in 0..11 {
        let target = format!("far/s{number}");
        ok(&world, &["send-keys", "-t", &target, &format!("line {number}"), "Enter"]);
        ok(&world, &["wait-for", "-t", &target, "-p", &format!("line {number}"), "--since", "start", "-T", "30"]);
    }
    let status = world.json(&["status"]);
    let far = &status["servers"].as_array().unwrap().iter().find(|server| server["socket"] == "far/default").unwrap();
    assert_eq!((&far["clients"], &far["coverage"]), (&json!(11), &json!("sessions")), "{far}");
    // Each client has its own connection; all questions share one.
    assert_eq!(proxy.connections(), 12);
}

#[test]
fn a_list_over_a_slow_link_does_not_wait_for_every_session() {
    let world = World::new();
    let Some(sshd) = started(&world) else { return };
    // 100 ms each way: a connection takes seconds.
    let proxy = Proxy::delaying(sshd.port(), Duration::from_millis(100));
    configure(&world, &[("far", &sshd.via_proxy("user", &proxy))]);
    let socket = place_for_a_server(&world);
    for number in 0..6 {
        world.tmux_at(&socket, &["new-session", "-d", "-s", &format!("s{number}"), "echo ready; exec cat"]);
    }
    let list: Value = serde_json::from_str(&ok(&world, &["--json", "list-panes", "-L", "far/"])).unwrap();
    assert_eq!(list["panes"].as_array().unwrap().len(), 6);
    // One connection for questions and one for each session.
    let connections = proxy.connections();
    assert!(connections < 7, "the list waited for {connections} connections");
    for target in ["far/s5", "far/s0"] {
        ok(&world, &["send-keys", "-t", target, "typed", "Enter"]);
        ok(&world, &["wait-for", "-t", target, "-p", "typed", "--since", "start", "-T", "60"]);
    }
    assert_eq!(proxy.connections(), 7);
}

#[test]
fn a_hanging_host_delays_no_other_request() {
    let world = World::with_server();
    let Some(sshd) = started(&world) else { return };
    // It accepts connections and stays silent.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let via = sshd.via("user", Some(silent.local_addr().unwrap().port())).replace("ssh ", "ssh -o ConnectTimeout=1 ");
    configure(&world, &[("silent", &via)]);
    world.ok(&["list-panes"]);
    let list = world.http("GET", &format!("/v1/panes{}&everywhere=true", world.query()), None).json();
    assert_eq!(list["panes"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["unreachable"][0]["name"], "silent", "{list}");
    let (_, message, reason) = error(&world, &["list-panes", "-L", "silent/"]);
    assert_eq!(reason, "no-connection", "{message}");
    // The other servers still work.
    world.ok(&["send-keys", "-t", "main", "echo $((40 + 2))", "Enter"]);
    world.await_output("main", "42");
}

#[test]
fn the_reason_that_an_ssh_host_is_unreachable_is_reported() {
    let world = World::new();
    let Some(sshd) = started(&world) else { return };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    configure(
        &world,
        &[
            ("closed", &sshd.via("user", Some(closed))),
            ("stranger", &sshd.via("stranger", None)),
            ("far", &sshd.via("user", None)),
            ("changed", &sshd.via("user", None)),
            ("uninstalled", "/nowhere/docker exec -i web"),
            ("mistyped", "/nowhere/shs box"),
        ],
    );
    let reason = |host: &str| error(&world, &["list-panes", "-L", &format!("{host}/")]).2;
    assert_eq!(reason("closed"), "no-connection");
    assert_eq!(reason("stranger"), "login");
    assert_eq!(reason("uninstalled"), "no-runtime");
    assert_eq!(reason("mistyped"), "no-connection");
    let (_, absent, _) = error(&world, &["list-panes", "-L", "far/"]);
    assert!(absent.contains("no tmux server runs on far/default"), "{absent}");
    sshd.know("other");
    assert_eq!(reason("changed"), "host-key");
}

/// Writes a program.
fn program(path: &std::path::Path, lines: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn what_startup_files_print_without_a_line_end_is_skipped() {
    let world = World::with_server();
    place_for_a_server(&world);
    let ssh = world.path("bin/ssh");
    program(
        &ssh,
        "for last; do :; done\nprintf '\\033]0;box\\007Welcome to 17 $3 default %%begin'\nexec sh -c \"$last\"",
    );
    let via = format!("env -u TMUX TMUX_TMPDIR={} {} box", world.dir().display(), ssh.display());
    configure(&world, &[("box", &via)]);
    let pane = ok(&world, &["new-session", "-L", "box/", "-s", "work", "--", "sh"]);
    assert_eq!(ok(&world, &["list-sessions", "-L", "box/"]).lines().count(), 2, "a head and one session");
    ok(&world, &["send-keys", "-t", &pane, "echo it is $((40 + 2))", "Enter"]);
    ok(&world, &["wait-for", "-t", &pane, "-p", "it is 42", "-T", "30"]);
    let hosts = world.http("GET", "/v1/hosts", None).json();
    assert_eq!((&hosts["hosts"][0]["state"], &hosts["hosts"][0]["error"]), (&json!("connected"), &Value::Null));
}

#[test]
fn a_program_of_another_version_than_the_hosts_server_is_named_with_the_way_out() {
    let world = World::with_server();
    let tmux = world.path("bin/old-tmux");
    program(
        &tmux,
        "for w; do [ $w = -V ] && echo tmux 3.2a && exit; done\necho server exited unexpectedly >&2; exit 1",
    );
    let folder = world.path("home/muxtap");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), format!("[host.box]\nvia = \"env\"\ntmux = {tmux:?}\n")).unwrap();
    let (_, message, _) = error(&world, &["list-sessions", "-L", "box/"]);
    assert!(message.contains("old-tmux on the host box is version 3.2a"), "{message}");
    assert!(message.contains("set `tmux` in [host.box]"), "{message}");
}

#[test]
fn a_list_without_a_local_server_names_the_hosts_that_are_down() {
    let world = World::new();
    place_for_a_server(&world);
    configure(&world, &[("down", "false")]);
    let (_, message, _) = error(&world, &["list-sessions"]);
    assert!(message.contains("no tmux server runs") && message.contains("`false` failed"), "{message}");
}

#[test]
fn a_group_can_be_on_another_host() {
    let world = World::with_server();
    place_for_a_server(&world);
    let via = format!("env -u TMUX TMUX_TMPDIR={}", world.dir().display());
    configure(&world, &[("box", &via)]);
    let one = ok(&world, &["new-session", "-L", "box/", "-s", "work", "--", "cat"]);
    let two = ok(&world, &["split-window", "-t", &one, "--", "cat"]);
    let set = ok(&world, &["group", "set", "web", &one, &two]);
    assert_eq!(set, format!("box/%web: {one} {two}"));
    ok(&world, &["send-keys", "-t", "box/%web", "to both", "Enter"]);
    for pane in [&one, &two] {
        ok(&world, &["wait-for", "-t", pane, "-p", "to both", "-T", "30"]);
    }
    assert!(ok(&world, &["group", "list", "-L", "box/"]).contains("box/%web"));
    let (code, message, _) = error(&world, &["send-keys", "-t", "box/%other", "x"]);
    assert_eq!(code, "NOT_FOUND");
    assert!(message.contains("HOST/%other"), "{message}");
    ok(&world, &["group", "remove", "box/web"]);
    assert_eq!(error(&world, &["send-keys", "-t", "box/%web", "x"]).0, "NOT_FOUND");
    // A global option means the same before and behind the command.
    for line in [["--via", "false", "list-panes", "--no-peer"], ["--no-peer", "list-panes", "--via", "false"]] {
        let (code, message, _) = error(&world, &line);
        assert_eq!(code, "TMUX_UNAVAILABLE", "{line:?}: {message}");
    }
    assert_eq!(call(&world, &["list-panes", "--no-peer"]).status, 2);
}

#[test]
fn labels_select_panes_of_another_host() {
    let world = World::with_server();
    place_for_a_server(&world);
    let via = format!("env -u TMUX TMUX_TMPDIR={}", world.dir().display());
    configure(&world, &[("box", &via)]);
    let one = ok(&world, &["new-session", "-L", "box/", "-s", "work", "--", "cat"]);
    let two = ok(&world, &["split-window", "-t", &one, "--", "cat"]);
    ok(&world, &["label", "-t", &one, "role=build", "dir=a/b"]);
    assert_eq!(ok(&world, &["label", "-t", "box/{role=build,dir=a/b}"]), "dir=a/b\nrole=build");
    let listed = world.json(&["list-panes", "-t", "box/{role=build}"]);
    assert_eq!(listed["panes"].as_array().unwrap().len(), 1, "{listed}");
    ok(&world, &["send-keys", "-t", "box/{dir=a/*}", "to one", "Enter"]);
    ok(&world, &["wait-for", "-t", "box/{role=build,dir!=x}", "-p", "to one", "-T", "30"]);
    assert!(!ok(&world, &["capture-pane", "-p", "-t", &two]).contains("to one"));
    let (code, message, _) = error(&world, &["capture-pane", "-p", "-t", "box/{role=*,role=none}"]);
    assert_eq!(code, "NOT_FOUND", "{message}");
}

#[test]
fn a_broken_link_is_reported_as_a_gap() {
    let world = World::new();
    let Some(sshd) = started(&world) else { return };
    let proxy = Proxy::before(sshd.port());
    configure(&world, &[("far", &sshd.via_proxy("user", &proxy))]);
    // Not created by muxtap, so that none of it ends with the link.
    let socket = place_for_a_server(&world);
    let made = ["new-session", "-d", "-s", "work", "-P", "-F", "far/#{pane_id}", crate::common::ANSWERS];
    let pane = world.tmux_at(&socket, &made);
    ok(&world, &["wait-for", "-t", &pane, "-p", "^ready", "--since", "start", "-T", "30"]);
    let line = |text: &str| {
        ok(&world, &["send-keys", "-t", &pane, text, "Enter"]);
        ok(&world, &["wait-for", "-t", &pane, "-p", &format!("got {text}$"), "-T", "30"]);
    };
    line("one");
    let cursor = ok(&world, &["cursor", "-t", &pane]);
    proxy.cut();
    eventually("the link is known to be lost", || world.json(&["status"])["servers"][0]["state"] != "connected");
    // Before 3.7 a server may end when others are notified while a control client leaves it (N26).
    eventually("the client has left", || world.tmux_at(&socket, &["list-clients"]).is_empty());
    // The pane prints while no client is attached.
    let id = pane.strip_prefix("far/").unwrap();
    world.tmux_at(&socket, &["send-keys", "-t", id, "unheard", "Enter"]);
    proxy.mend();
    eventually("it is reached again", || world.json(&["status"])["servers"][0]["state"] == "connected");
    line("two");
    let read = ok(&world, &["--json", "read", "-t", &pane, "--since", &cursor]);
    let rest = ok(&world, &["--json", "read", "-t", &pane, "--since", "start"]);
    let all = format!("{read}{rest}");
    assert!(
        all.contains("\"gap\"") || all.contains("got unheard"),
        "either the gap is named or nothing is missing: {all}"
    );
    assert!(ok(&world, &["capture-pane", "-t", &pane]).contains("got unheard"));
}

/// A server that writes to a client when its link is cut would keep the client forever (N94).
#[test]
fn a_link_broken_during_a_flood_leaves_no_client_and_the_server_can_exit() {
    let world = World::new();
    let Some(sshd) = started(&world) else { return };
    let proxy = Proxy::before(sshd.port());
    configure(&world, &[("far", &sshd.via_proxy("user", &proxy))]);
    let socket = place_for_a_server(&world);
    world.tmux_at(&socket, &["new-session", "-d", "-s", "work", "exec yes flood"]);
    let clients = || world.tmux_at(&socket, &["list-clients", "-F", "#{client_name}"]);
    let mut before = Vec::new();
    for round in 0..3 {
        ok(&world, &["wait-for", "-t", "far/work", "-p", "^flood", "-T", "30"]);
        before.push(clients());
        proxy.cut();
        eventually("the client has left", || clients().is_empty());
        proxy.mend();
        eventually("it is reached again", || world.json(&["status"])["servers"][0]["state"] == "connected");
        assert!(!before.contains(&clients()), "round {round}");
    }
    world.ok(&["stop"]);
    eventually("the last client has left", || clients().is_empty());
    let server = world.tmux_at(&socket, &["display-message", "-p", "#{pid}"]).parse().unwrap();
    world.tmux_at(&socket, &["kill-server"]);
    eventually("the server has ended", || !crate::common::is_alive(server));
    let ours = |(_, line): &(u32, String)| line.contains("muxtap-client");
    eventually("nothing is left of the clients", || !world.processes().iter().any(ours));
}

/// The connections stay open but carry nothing any more.
#[test]
fn a_silent_link_is_reestablished_with_a_gap_and_its_wait_continues() {
    let world = World::new();
    let Some(sshd) = started(&world) else { return };
    let proxy = Proxy::before(sshd.port());
    // ssh alone needs a minute to notice.
    let via = sshd.via_proxy("user", &proxy).replace("ssh ", "ssh -o ServerAliveInterval=1 ");
    configure(&world, &[("far", &via)]);
    let socket = place_for_a_server(&world);
    let made = ["new-session", "-d", "-s", "work", "-P", "-F", "far/#{pane_id}", crate::common::ANSWERS];
    let pane = world.tmux_at(&socket, &made);
    ok(&world, &["wait-for", "-t", &pane, "-p", "^ready", "--since", "start", "-T", "30"]);
    let command = ["wait-for", "-t", &pane, "-p", "got later", "-T", "55"];
    let waiting = Background::start(world.plain_muxtap_command().args(command));
    eventually("it waits", || world.json(&["status"])["waits"] == 1);
    let cursor = ok(&world, &["cursor", "-t", &pane]);
    let connections = proxy.connections();
    let silent = proxy.silence();
    let id = pane.strip_prefix("far/").unwrap();
    world.tmux_at(&socket, &["send-keys", "-t", id, "unheard", "Enter"]);
    eventually("the link is known to be lost", || world.json(&["status"])["servers"][0]["state"] != "connected");
    eventually("it is reached again", || world.json(&["status"])["servers"][0]["state"] == "connected");
    assert!(proxy.connections() > connections, "by another connection");
    assert!(ok(&world, &["capture-pane", "-t", &pane]).contains("got unheard"));
    ok(&world, &["send-keys", "-t", &pane, "later", "Enter"]);
    assert_eq!(waiting.finish().status, 0);
    let read = ok(&world, &["--json", "read", "-t", &pane, "--since", &cursor]);
    assert!(
        read.contains("\"reconnected\"") || read.contains("got unheard"),
        "the gap is named, or nothing is missing: {read}"
    );
    // The silent connections end. Nothing is printed meanwhile: the client would stay forever
    // (N94).
    silent.store(false, std::sync::atomic::Ordering::SeqCst);
    eventually("the lost client has left", || world.tmux_at(&socket, &["list-clients"]).lines().count() == 1);
}

#[test]
fn a_host_can_be_added_by_its_command_but_not_over_tcp() {
    let mut world = World::new();
    world.set("MUXTAP_HTTP", "127.0.0.1:0");
    // Stands in for another host: another directory of sockets.
    let via = format!("far=env TMUX_TMPDIR={}", world.dir().display());
    let socket = world.path(&format!("tmux-{}/default", rustix::process::getuid().as_raw()));
    world.also_end(&socket);
    let pane = ok(&world, &["--via", &via, "new-session", "-s", "work"]);
    assert!(pane.starts_with("far/%"), "{pane}");
    assert!(ok(&world, &["list-panes", "-t", "far/work"]).contains(&pane));
    let (code, taken, _) = error(&world, &["--via", "far=ssh box", "list-panes"]);
    assert!(code == "CONFLICT" && taken.contains("another name"), "{taken}");
    for (wrong, says) in [("ssh ''", "no name"), ("docker exec box", "-i"), ("ssh 'box", "quote")] {
        let (_, refused, _) = error(&world, &["--via", wrong, "list-panes"]);
        assert!(refused.contains(says), "{wrong}: {refused}");
    }
    // A name with a slash that does not begin with a host's name is a session's.
    world.session("api/v1");
    assert!(world.ok(&["list-panes", "-t", "api/v1"]).contains("api/v1:0.0"));
    let status = world.json(&["status"]);
    let addr = status["http"][0].as_str().unwrap().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let refused = asked(&addr, &token(&world), "POST", "/v1/hosts", Some(&json!({ "via": "ssh box" })));
    assert_eq!(refused.status, 401, "{:?}", refused.json());
    // The capability refuses it too.
    let asked =
        asked(&addr, &token(&world), "POST", "/v1/capability?container=web", Some(&json!({ "action": "list" })));
    let refused = asked.json();
    assert!(
        refused["success"] == false && refused["error"].as_str().unwrap().contains("unknown container"),
        "{refused}"
    );
    assert_eq!(world.http("GET", "/v1/hosts", None).json()["hosts"].as_array().unwrap().len(), 1);
    // A wait takes panes of several hosts, an event stream those of one.
    let mixed = json!({ "panes": [pane, "%0"], "bell": true, "timeout_ms": 1 });
    let waited = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&mixed)).json();
    assert_eq!((&waited["outcome"], &waited["predicates"][0]["host"]), (&json!("timeout"), &json!("far")), "{waited}");
    let encoded = pane.replace('%', "%25").replace('/', "%2F");
    let refused = world.http("GET", &format!("/v1/events{}&panes={encoded},%250", world.query()), None);
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("INVALID_ARGUMENT")), "{:?}", refused.json());
    assert!(world.json(&["status"])["servers"].to_string().contains("far/default"));
    for named in ["socket=far%2F", "targets=far%2Fwork"] {
        let refused = world.http("GET", &format!("/v1/panes?everywhere=true&{named}"), None);
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("INVALID_ARGUMENT")), "{named}");
    }
    // Messages over the WebSocket name hosts, too.
    let mut socket = Ws::open(&world);
    let begun = socket.subscribe(1, &json!({"panes": ["far/work:*"], "types": ["output"]}));
    assert_eq!(begun["panes"], json!([pane.trim_start_matches("far/")]));
    socket.ok(&json!({"op": "input", "id": 2, "pane": pane, "text": "echo far"}));
    let mixed = json!({"op": "wait", "id": 3, "panes": [pane, "%0"], "bell": true});
    socket.error(&mixed, "INVALID_ARGUMENT");
}

#[test]
fn agents_name_another_host_and_get_ids_that_they_can_use_again() {
    let world = World::with_server();
    // Stands in for another host: another directory of sockets.
    configure(&world, &[("far", &format!("env TMUX_TMPDIR={}", world.dir().display()))]);
    world.also_end(world.path(&format!("tmux-{}/default", rustix::process::getuid().as_raw())));
    ok(&world, &["new-session", "-L", "far/", "-s", "work", "--", "cat"]);
    let mut client = Client::started(world.spawn(&["mcp"]));
    let listed = client.call("list", &json!({ "target": "far/work" }));
    let pane = listed["panes"][0]["id"].as_str().unwrap().to_owned();
    assert!(pane.starts_with("far/%"), "{listed}");
    client.call("send_keys", &json!({ "target": pane, "text": "over there", "keys": ["Enter"] }));
    let waited = client.call("wait_for", &json!({ "panes": [pane], "patterns": ["over there"], "since": "start" }));
    assert_eq!((&waited["outcome"], &waited["pane"]), (&json!("matched"), &json!(pane)), "{waited}");
    assert!(client.says("capture_pane", &json!({ "target": pane })).contains("far/%3"), "the text says how to name it");
    let waited = client.call("wait_for", &json!({ "panes": [pane, "%0"], "bell": true, "timeout_ms": 1 }));
    assert_eq!((&waited["outcome"], &waited["predicates"][0]["pane"]), (&json!("timeout"), &json!(pane)), "{waited}");
    // This host's server has a pane with that number, which was not the target.
    assert!(!world.tmux(&["capture-pane", "-p", "-t", "main"]).contains("over there"));
}
