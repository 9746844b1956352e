//! muxtap on both sides: a remote host whose own daemon answers for its tmux servers.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    common::{Background, Http, World, eventually, run},
    hosts::{call, ok},
    mcp::{Client, structured},
    places::{Proxy, Sshd},
};

/// A remote host: a separate home, tmux servers and a daemon.
pub struct Far {
    pub world: World,
    muxtap: PathBuf,
}

impl Far {
    pub fn new() -> Self {
        // Its responses to agents' waiting calls come soon.
        Self::holding("1")
    }

    /// Creates a host that holds agents' calls for this many seconds.
    fn holding(seconds: &str) -> Self {
        let mut world = World::new();
        world.set("MUXTAP_MCP_HOLD", seconds);
        world.also_end(world.path(&format!("run/tmux-{}/default", rustix::process::getuid().as_raw())));
        let muxtap = world.path("muxtap");
        let command = world.plain_muxtap_command();
        let env: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some(format!("{}='{}'", name.to_str()?, value?.to_str()?)))
            .collect();
        let line = format!("#!/bin/sh\nexec env -i {} '{}' \"$@\"\n", env.join(" "), command.get_program().display());
        fs::write(&muxtap, line).unwrap();
        fs::set_permissions(&muxtap, fs::Permissions::from_mode(0o755)).unwrap();
        Self { world, muxtap }
    }

    /// Writes a configuration by which `world` reaches it as `far`.
    pub fn configure(&self, world: &World, via: &str) {
        Self::configure_all(world, &[("far", self)], via);
    }

    /// Writes a configuration by which `world` reaches hosts under these names.
    pub fn configure_all(world: &World, hosts: &[(&str, &Self)], via: &str) {
        let folder = world.path("home/muxtap");
        fs::create_dir_all(&folder).unwrap();
        let table = |(name, host): &(&str, &Self)| {
            format!("[host.{name}]\nvia = {via:?}\nmuxtap = {:?}\n", host.muxtap.display().to_string())
        };
        fs::write(folder.join("config.toml"), hosts.iter().map(table).collect::<String>()).unwrap();
    }
}

/// Creates a session on the host with a pane that counts to each number that it reads.
pub fn counting(world: &World) -> String {
    let counts = "stty -echo; echo ready; while read -r n; do seq \"$n\"; echo \"end $n\"; done";
    let pane = ok(world, &["new-session", "-L", "far/", "-s", "work", "--", "sh", "-c", counts]);
    assert!(pane.starts_with("far/%"), "{pane}");
    ok(world, &["wait-for", "-t", &pane, "-p", "^ready", "-T", "30"]);
    pane
}

/// Returns the id in a text that says how to continue.
fn quoted_id(text: &str) -> String {
    text.rsplit_once("id: \"").and_then(|(_, rest)| rest.split_once('"')).map(|(id, _)| id.to_owned()).expect(text)
}

fn hosts(world: &World) -> Value {
    world.http("GET", "/v1/hosts", None).json()["hosts"].clone()
}

#[test]
fn a_remote_muxtap_serves_its_host() {
    let mut world = World::with_server();
    world.set("MT_ONLY_HERE", "a secret");
    let far = Far::new();
    far.configure(&world, "env");
    let pane = counting(&world);
    assert_eq!(hosts(&world)[0]["peer"]["state"], "connected", "{}", hosts(&world));
    // Requests to this daemon are handled by the remote one, and no client of this daemon is
    // attached.
    let id = pane.strip_prefix("far/").unwrap();
    assert_eq!(names(&far.world, "list-panes", "panes", "id"), [id]);
    assert!(!world.json(&["status"])["servers"].to_string().contains("far"));
    ok(&world, &["send-keys", "-t", &pane, "3", "Enter"]);
    let waited = ok(&world, &["--json", "wait-for", "-t", &pane, "-p", "end 3", "-T", "30"]);
    let waited: Value = serde_json::from_str(&waited).unwrap();
    let wait = waited["id"].as_str().unwrap().to_owned();
    assert!(wait.starts_with("far/w"), "{waited}");
    let path = format!("/v1/waits/{}", wait.replace('/', "%2F"));
    assert_eq!(world.http("GET", &path, None).json()["outcome"], "matched");
    assert!(ok(&world, &["capture-pane", "-t", &pane]).contains("1\n2\n3\nend 3"));
    // In one list with local panes, named so that the id can be used as a target.
    let list = world.http("GET", &format!("/v1/panes{}&everywhere=true", world.query()), None).json();
    let places: Vec<_> = list["panes"].as_array().unwrap().iter().map(|pane| &pane["host"]).collect();
    assert_eq!(places, [&Value::Null, &json!("far")], "{list}");
    assert!(ok(&world, &["list-panes"]).contains(&pane));
    // A wait that is held by its caller's connection, and one that fails.
    let waits = json!({ "panes": [pane], "patterns": ["end 3"], "since": "start" });
    let waited = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&waits)).json();
    assert_eq!(waited["outcome"], "matched", "{waited}");
    let wrong = world.http("GET", "/v1/panes/far%2F%2599/capture", None);
    assert_eq!((wrong.status, &wrong.json()["code"]), (404, &json!("NOT_FOUND")));
    // A run in a shell, with its status.
    let shell = ok(&world, &["new-window", "-t", "far/work", "--", "sh"]);
    ok(&world, &["wait-for", "-t", &shell, "--prompt", "-T", "30"]);
    let ran = call(&world, &["run", "-t", &shell, "echo over there; exit_with() { return 3; }; exit_with"]);
    assert_eq!((ran.status, ran.text().trim()), (3, "over there"), "{ran:?}");
    // The caller's environment is not sent.
    assert_eq!(ok(&world, &["run", "-t", &shell, "echo \"${MT_ONLY_HERE-none}\""]), "none");
    ok(&world, &["kill-pane", "-t", &shell]);
    let (name, version) = ("far", env!("CARGO_PKG_VERSION"));
    let doctor = call(&world, &["doctor"]).text();
    assert!(doctor.contains(&format!("{name}, with its muxtap {version}")), "{doctor}");
    // Nothing of a dead daemon is left on the remote host.
    let links = || far.world.processes().iter().filter(|(_, line)| line.contains(" stdio")).count();
    assert_eq!(links(), 1, "{:?}", far.world.processes());
    world.kill_daemon(rustix::process::Signal::KILL);
    eventually("the link's process has ended", || links() == 0);
    assert!(names(&far.world, "list-panes", "panes", "id").contains(&id.to_owned()));
}

#[test]
fn agents_use_a_host_through_its_muxtap() {
    let mut world = World::with_server();
    let far = Far::new();
    far.configure(&world, "env");
    let pane = counting(&world);
    let mut client = Client::started(world.spawn(&["mcp"]));
    let listed = client.call("list", &json!({ "target": "far/work" }));
    assert_eq!(listed["panes"][0]["id"], pane, "{listed}");
    client.call("send_keys", &json!({ "target": pane, "text": "4", "keys": ["Enter"] }));
    let waited = client.call("wait_for", &json!({ "panes": [pane], "patterns": ["end 4"] }));
    assert_eq!((&waited["outcome"], &waited["pane"]), (&json!("matched"), &json!(pane)), "{waited}");
    let read = client.call("read_since", &json!({ "target": pane, "since": "start" }));
    assert!(read["text"].as_str().unwrap().contains("end 4"), "{read}");
    client.call("send_keys", &json!({ "target": pane, "text": "2", "keys": ["Enter"] }));
    let more = client.call("read_since", &json!({ "target": pane, "since": read["cursor"], "wait_ms": 5000 }));
    assert!(more["text"].as_str().unwrap().contains('1'), "{more}");
    // A pending wait can be requested by its id.
    let asked = json!({ "panes": [pane], "patterns": ["end 6"], "timeout_ms": 60_000 });
    let pending = client.call("wait_for", &asked);
    assert_eq!(pending["outcome"], "pending", "{pending}");
    client.call("send_keys", &json!({ "target": pane, "text": "6", "keys": ["Enter"] }));
    let waited = client.call("wait_for", &json!({ "id": pending["id"] }));
    assert_eq!((&waited["outcome"], &waited["id"]), (&json!("matched"), &pending["id"]), "{waited}");
    // What a model reads names the pending wait as this host knows it.
    let asked = json!({ "panes": [pane], "patterns": ["end 7"], "timeout_ms": 60_000 });
    let pending = client.says("wait_for", &asked);
    let id = quoted_id(&pending);
    assert!(id.starts_with("far/") && pending.starts_with("pending: call wait_for with id: "), "{pending}");
    client.call("send_keys", &json!({ "target": pane, "text": "7", "keys": ["Enter"] }));
    let waited = client.says("wait_for", &json!({ "id": id }));
    assert!(waited.starts_with("matched in %") && waited.contains("(on host far: "), "{waited}");
    // Also a run, pending or timed out: in its result and in its error.
    let shell = ok(&world, &["new-window", "-t", "far/work", "--", "sh"]);
    ok(&world, &["wait-for", "-t", &shell, "--prompt", "-T", "30"]);
    let pending = client.says("run", &json!({ "target": shell, "command": "read answer; echo $answer" }));
    let id = quoted_id(&pending);
    assert!(id.starts_with("far/") && pending.starts_with("[pending after "), "{pending}");
    client.call("send_keys", &json!({ "target": shell, "text": "done", "keys": ["Enter"] }));
    let ran = client.says("run", &json!({ "id": id }));
    assert!(ran.contains("done\n[exit status 0]\n(on host far: "), "{ran}");
    let asked = json!({ "target": shell, "command": "read answer; echo $answer", "timeout_ms": 300 });
    let late = client.ask("tools/call", &structured("run", &asked))["result"].clone();
    let (error, text) = (&late["structuredContent"], late["content"][0]["text"].as_str().unwrap());
    let id = error["details"]["id"].as_str().unwrap();
    assert!(id.starts_with("far/") && error["message"].as_str().unwrap().contains(&format!("id: {id:?}")), "{late}");
    assert!(text.ends_with(&format!("[still running: call run with id: {id:?}]")), "{text}");
    assert!(text.lines().next().unwrap().ends_with("(on host far: its ids are far/%3, far/@1, far/$0 here)"), "{text}");
    client.call("send_keys", &json!({ "target": shell, "text": "late", "keys": ["Enter"] }));
    assert!(client.says("run", &json!({ "id": id })).contains("late\n[exit status 0]"));
    client.fails("NOT_FOUND", "capture_pane", &json!({ "target": "far/%99" }));
    // A remote path is the user's to choose, not the agent's.
    client.fails("UNAUTHORIZED", "list", &json!({ "server": "far//tmp/theirs" }));
    // A local restriction also applies to remote hosts.
    world.muxtap(&["stop"]);
    world.set("MUXTAP_READ_ONLY", "true");
    assert!(ok(&world, &["capture-pane", "-t", &pane]).contains("end 4"));
    let refused = call(&world, &["--json", "send-keys", "-t", &pane, "5", "Enter"]);
    assert_eq!(refused.error()["code"], "READ_ONLY", "{refused:?}");
    // A format can run a program.
    let ran = far.world.path("ran");
    let format = format!("#(touch {})", ran.display());
    for asks in [&["display-message", "-p", &format, "-t", &pane][..], &["list-panes", "-F", &format, "-t", &pane]] {
        let refused = call(&world, &[&["--json"], asks].concat());
        assert_eq!(refused.error()["code"], "READ_ONLY", "{refused:?}");
    }
    assert!(!ran.exists());
    let mut client = Client::started(world.spawn(&["mcp"]));
    client.fails("READ_ONLY", "send_keys", &json!({ "target": pane, "text": "5" }));
    // A client that names each field does not request a result by id.
    client.fails("READ_ONLY", "run", &json!({ "target": pane, "command": "5", "id": null }));
    assert!(!ok(&world, &["read", "-t", &pane, "--since", "start"]).contains("end 5"));
}

/// A task's id names the host, so that any client of this daemon finds the wait there.
#[test]
fn a_task_on_a_host_is_fetched_and_cancelled_through_it() {
    let world = World::with_server();
    let far = Far::new();
    far.configure(&world, "env");
    let pane = counting(&world);
    let client = || Client::able(world.spawn(&["mcp"]), &json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    let begin = |client: &mut Client, pattern: &str| {
        let wait = json!({"panes": pane, "patterns": pattern, "timeout_ms": 3_600_000});
        let made = client.ask("tools/call", &json!({"name": "wait_for", "arguments": wait}))["result"].clone();
        let id = made["taskId"].as_str().unwrap_or_else(|| panic!("no task: {made}")).to_owned();
        assert!(id.contains(".far/"), "{id}");
        id
    };
    let ended = |client: &mut Client, id: &str| loop {
        let state = client.ask("tasks/get", &json!({"taskId": id}))["result"].clone();
        if state["status"] != "working" {
            break state;
        }
    };
    let mut first = client();
    let (fetched, cancelled) = (begin(&mut first, "^end 6$"), begin(&mut first, "^never$"));
    // The client leaves while a request is held.
    first.begin("tasks/get", &json!({"taskId": fetched}));
    drop(first);
    let mut next = client();
    ok(&world, &["send-keys", "-t", &pane, "6", "Enter"]);
    let state = ended(&mut next, &fetched);
    assert!(state["result"]["content"][0]["text"].as_str().unwrap().starts_with("matched"), "{state}");
    next.ask("tasks/cancel", &json!({"taskId": cancelled}));
    assert_eq!(ended(&mut next, &cancelled)["status"], "cancelled");
    assert_eq!(far.world.http("GET", "/v1/waits", None).json()["waits"], json!([]));
    let unknown = next.ask("tasks/get", &json!({"taskId": "wait_for.1.0.far/w-none"}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[test]
fn a_broken_link_loses_no_byte() {
    let world = World::new();
    let Some(sshd) = Sshd::start(world.dir(), &[]) else { return };
    let proxy = Proxy::before(sshd.port());
    let far = Far::holding("60");
    far.configure(&world, &sshd.via_proxy("user", &proxy));
    let pane = counting(&world);
    let mut client = Client::started(world.spawn(&["mcp"]));
    let cursor = ok(&world, &["cursor", "-t", &pane]);
    let in_background = |args: &[&str]| Background::start(world.plain_muxtap_command().args(args));
    let waiting = in_background(&["wait-for", "-t", &pane, "-p", "end 3000", "-T", "60"]);
    let mut tail = in_background(&["tail", "-f", "-t", &pane, "--since", "start"]);
    tail.line_where("its beginning", |line| line == "ready");
    let held = json!({ "panes": [pane], "patterns": ["end 3000"], "timeout_ms": 60_000 });
    let held = world.http_send("POST", &format!("/v1/waits{}", world.query()), Some(&held));
    let asked = json!({ "panes": [pane], "patterns": ["end 3000"], "timeout_ms": 60_000 });
    let called = client.begin("tools/call", &structured("wait_for", &asked));
    eventually("all wait there", || far.world.json(&["status"])["waits"] == 3);
    proxy.cut();
    eventually("the link is known to be lost", || hosts(&world)[0]["peer"]["state"] == "down");
    // The pane prints while no link exists; requests meanwhile get the reason.
    let id = pane.strip_prefix("far/").unwrap();
    far.ok(&["send-keys", "-t", id, "3000", "Enter"]);
    far.ok(&["wait-for", "-t", id, "-p", "end 3000", "--since", "start", "-T", "60"]);
    let failed = call(&world, &["--json", "capture-pane", "-t", &pane]);
    assert_eq!(failed.error()["code"], "TMUX_UNAVAILABLE", "{failed:?}");
    proxy.mend();
    assert_eq!(waiting.finish().status, 0);
    assert!(read_to_end(held).contains("\"outcome\":\"matched\""));
    // An agent's call that had no id yet when the link was lost.
    let waited = client.answer(called);
    let waited = &waited["result"]["structuredContent"];
    assert_eq!((&waited["outcome"], &waited["pane"]), (&json!("matched"), &json!(pane)), "{waited}");
    // A cancelled wait ends on the remote host too.
    let asked = json!({ "panes": [pane], "patterns": ["never"], "timeout_ms": 60_000 });
    let called = client.begin("tools/call", &json!({ "name": "wait_for", "arguments": asked }));
    eventually("it waits there", || far.world.json(&["status"])["waits"] == 1);
    let cancel = json!({ "requestId": called, "reason": "enough" });
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }));
    eventually("it has ended there", || far.world.json(&["status"])["waits"] == 0);
    for number in 1..=3000 {
        assert_eq!(tail.line(), Some(number.to_string()));
    }
    assert_eq!(tail.line().as_deref(), Some("end 3000"));
    let read = ok(&world, &["--json", "read", "-t", &pane, "--since", &cursor]);
    let read: Value = serde_json::from_str(&read).unwrap();
    let lines: Vec<_> = read["text"].as_str().unwrap().lines().map(str::to_owned).collect();
    let counted: Vec<_> = (1..=3000).map(|number| number.to_string()).chain(["end 3000".into()]).collect();
    assert_eq!((lines, &read["gap"]), (counted, &Value::Null));
}

/// The connections stay open but carry nothing any more.
#[test]
fn a_silent_link_is_reestablished_and_loses_no_byte() {
    let world = World::new();
    let Some(sshd) = Sshd::start(world.dir(), &[]) else { return };
    let proxy = Proxy::before(sshd.port());
    let far = Far::new();
    far.configure(&world, &sshd.via_proxy("user", &proxy));
    let pane = counting(&world);
    let in_background = |args: &[&str]| Background::start(world.plain_muxtap_command().args(args));
    let waiting = in_background(&["wait-for", "-t", &pane, "-p", "end 3000", "-T", "55"]);
    let mut tail = in_background(&["tail", "-f", "-t", &pane, "--since", "start"]);
    tail.line_where("its beginning", |line| line == "ready");
    eventually("it waits there", || far.world.json(&["status"])["waits"] == 1);
    let connections = proxy.connections();
    let _silent = proxy.silence();
    let id = pane.strip_prefix("far/").unwrap();
    far.ok(&["send-keys", "-t", id, "3000", "Enter"]);
    // The wait ends when the link is restored, after 30 s; a test that hangs ends after 60.
    assert_eq!(waiting.finish().status, 0);
    assert!(proxy.connections() > connections, "by another connection");
    for number in 1..=3000 {
        assert_eq!(tail.line(), Some(number.to_string()));
    }
    assert_eq!(tail.line().as_deref(), Some("end 3000"));
    drop(tail);
    // The silent connections end on the remote host as well.
    proxy.cut();
}

/// A network that stalls for a moment.
#[test]
fn a_link_that_stalls_goes_on_and_holds_up_no_list() {
    let world = World::with_server();
    let Some(sshd) = Sshd::start(world.dir(), &[]) else { return };
    let proxy = Proxy::before(sshd.port());
    let far = Far::new();
    far.configure(&world, &sshd.via_proxy("user", &proxy));
    let pane = counting(&world);
    let command = ["wait-for", "-t", &pane, "-p", "end 40", "-T", "55"];
    let waiting = Background::start(world.plain_muxtap_command().args(command));
    eventually("it waits there", || far.world.json(&["status"])["waits"] == 1);
    let list = || world.http("GET", &format!("/v1/panes{}&everywhere=true", world.query()), None).json();
    assert_eq!(list()["panes"].as_array().unwrap().len(), 2);
    let connections = proxy.connections();
    let stall = proxy.silence();
    far.ok(&["send-keys", "-t", pane.strip_prefix("far/").unwrap(), "40", "Enter"]);
    let listed = list();
    assert_eq!(listed["panes"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["unreachable"][0]["name"], "far", "{listed}");
    stall.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(waiting.finish().status, 0);
    assert_eq!(list()["panes"].as_array().unwrap().len(), 2);
    assert_eq!(proxy.connections(), connections, "by the same connection");
}

/// Returns the pipe behind one of a process's descriptors.
#[cfg(target_os = "linux")]
fn pipe_of(pid: u32, descriptor: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap()
}

#[cfg(target_os = "linux")]
fn holds(pid: u32, pipe: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    descriptors.filter_map(|each| fs::read_link(each.path()).ok()).any(|to| to == pipe)
}

/// No process is between the remote daemon and the link.
#[test]
#[cfg(target_os = "linux")]
fn stdio_hands_its_pipes_to_the_daemon() {
    let world = World::new();
    let begin = || {
        let mut stdio = world.spawn(&["stdio"]);
        let greeting = stdio.line().unwrap();
        assert!(greeting.starts_with(&format!("muxtap-peer 1 {}", env!("CARGO_PKG_VERSION"))), "{greeting}");
        let pipes = [0, 1].map(|descriptor| pipe_of(stdio.pid(), descriptor));
        let daemon = world.daemon_pid().unwrap();
        eventually("the daemon has them", || pipes.iter().all(|pipe| holds(daemon, pipe)));
        (stdio, pipes, daemon)
    };
    let gone = |daemon: u32, pipes: &[PathBuf]| {
        eventually("the daemon has let go of them", || !pipes.iter().any(|pipe| holds(daemon, pipe)));
    };
    // The other side disconnects.
    let (stdio, pipes, daemon) = begin();
    assert_eq!(stdio.finish().status, 0);
    gone(daemon, &pipes);
    // Its process is killed.
    let (stdio, pipes, daemon) = begin();
    stdio.kill();
    gone(daemon, &pipes);
    // The daemon stops.
    let (mut stdio, ..) = begin();
    world.ok(&["stop"]);
    while stdio.line().is_some() {}
    assert_eq!(stdio.finish().status, 1);
    // A descriptor other than a pipe is relayed.
    let mut relayed = world.muxtap_command(&["stdio"]);
    let answer = run(relayed.stdin(fs::File::open("/dev/null").unwrap()));
    assert!(answer.status == 0 && answer.stdout.starts_with(b"muxtap-peer 1 "), "{answer:?}");
}

#[test]
fn a_wait_that_is_retried_with_its_key_is_the_same_wait() {
    let world = World::with_server();
    let pane = world.window("stty -echo; echo ready; while read -r line; do echo \"<$line>\"; done");
    world.await_output(&pane, "^ready");
    let path = format!("/v1/waits{}", world.query());
    let ask = |headers: &str, pattern: &str, detach: bool| {
        let wait =
            json!({ "panes": [pane], "patterns": [pattern], "since": "now", "timeout_ms": 60_000, "detach": detach });
        world.http_send_with(headers, "POST", &path, Some(&wait))
    };
    let key = "idempotency-key: 0123456789abcdef\r\n";
    // Several at once, as over a link that was restored before the first request had failed.
    let all: Vec<_> = (0..4).map(|_| ask(key, "<a>", true)).collect();
    for one in all {
        let answer = Http::read(one).json();
        assert_eq!((&answer["id"], &answer["outcome"]), (&json!("w-0123456789abcdef"), &json!("pending")), "{answer}");
    }
    assert_eq!(world.json(&["status"])["waits"], 1);
    // A request that is held, although it is detached.
    let held = ask(&format!("{key}prefer: wait=60\r\n"), "<a>", true);
    crate::common::type_line(&world, &pane, "a");
    assert_eq!(Http::read(held).json()["outcome"], "matched");
    assert_eq!(Http::read(ask(key, "<a>", false)).json()["outcome"], "matched");
    // Held for no time, and without a key.
    let other = Http::read(ask("prefer: wait=0\r\n", "<b>", true)).json();
    assert_eq!(other["outcome"], "pending", "{other}");
    assert!(other["id"] != "w-0123456789abcdef");
    let refused = Http::read(ask("idempotency-key: short\r\n", "<a>", true));
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("INVALID_ARGUMENT")));
}

#[test]
fn a_host_without_muxtap_is_used_through_its_tmux() {
    let far = Far::new();
    // Created last, so that it ends first: its daemon looks for the far server again as soon as
    // that has gone.
    let world = World::new();
    // A remote shell does not find muxtap.
    let env = format!("env TMUX_TMPDIR={} HOME={1} PATH=/usr/bin:/bin", far.world.path("run").display(), "/nowhere");
    let folder = world.path("home/muxtap");
    fs::create_dir_all(&folder).unwrap();
    let tmux = crate::common::tmux_program();
    let hosts_file = format!(
        "[host.bare]\nvia = {env:?}\ntmux = {tmux:?}\n[host.never]\nvia = {env:?}\ntmux = {tmux:?}\npeer = false\n\
         [host.broken]\nvia = {env:?}\ntmux = {tmux:?}\nmuxtap = \"/bin/false\"\n"
    );
    fs::write(folder.join("config.toml"), hosts_file).unwrap();
    let pane = ok(&world, &["new-session", "-L", "bare/", "-s", "work", "--", "cat"]);
    let id = pane.strip_prefix("bare/").unwrap();
    for host in ["never", "broken"] {
        ok(&world, &["send-keys", "-t", &format!("{host}/{id}"), host, "Enter"]);
    }
    ok(&world, &["wait-for", "-t", &pane, "-p", "broken", "--since", "start", "-T", "30"]);
    // The same for hosts named on a command line. The result of their tmux does not matter.
    for (host, more) in [("asked", &["--no-peer"][..]), ("found", &[])] {
        let mut command = world.plain_muxtap_command();
        command.arg("--via").arg(format!("{host}={env}")).args(more).arg("list-panes");
        crate::common::run(&mut command);
    }
    let found: Vec<_> = hosts(&world)
        .as_array()
        .unwrap()
        .iter()
        .map(|host| (host["name"].clone(), host["peer"]["state"].clone()))
        .collect();
    let absent = json!("absent");
    let expected = [
        ("asked", Value::Null),
        ("bare", absent.clone()),
        ("broken", absent.clone()),
        ("found", absent),
        ("never", Value::Null),
    ];
    assert_eq!(found, expected.map(|(name, state)| (json!(name), state)));
    assert!(!Path::new("/nowhere").exists());
    // Before 3.8 a server may die if many clients leave at once (N92).
    far.world.end_servers();
}

impl Far {
    fn ok(&self, args: &[&str]) -> String {
        ok(&self.world, args)
    }
}

fn names(world: &World, command: &str, list: &str, field: &str) -> Vec<String> {
    let listed: Value = serde_json::from_str(&ok(world, &["--json", command])).unwrap();
    crate::common::names(&listed[list], field)
}

fn read_to_end(mut stream: impl std::io::Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
