//! Requests for several hosts: in a fleet over a real NATS server, and over local peers.

use serde_json::{Value, json};

use crate::{
    agents::put,
    common::{Background, Http, World, eventually},
    fleet::{counting, meet, member, nats::Nats},
    hosts::{call, ok},
    mcp::Client,
    peers::Far,
    places::Proxy,
};

/// Hosts with a pane each that counts, and a caller that knows them.
struct Scene {
    hosts: Vec<(&'static str, World, String)>,
    near: World,
    _nats: Nats,
}

impl Scene {
    fn new(hosts: &[(&'static str, &str)]) -> (Self, Proxy) {
        let nats = Nats::start("");
        let proxy = Proxy::before(nats.port());
        let near = member(&format!("nats://127.0.0.1:{}", proxy.port), "near", "");
        let hosts = hosts.iter().map(|(name, offer)| {
            let host = member(&nats.url(), name, offer);
            let pane = counting(&host);
            (*name, host, pane)
        });
        let scene = Self { hosts: hosts.collect(), near, _nats: nats };
        for (name, ..) in &scene.hosts {
            meet(&scene.near, name);
        }
        (scene, proxy)
    }

    fn host(&self, name: &str) -> &World {
        &self.hosts.iter().find(|host| host.0 == name).unwrap().1
    }

    /// Returns the pane of a host as a target.
    fn pane(&self, name: &str) -> String {
        format!("{name}/{}", self.hosts.iter().find(|host| host.0 == name).unwrap().2)
    }

    /// Lets the pane of a host count, without the caller.
    fn count(&self, name: &str, number: &str) {
        ok(self.host(name), &["send-keys", "-t", "work", number, "Enter"]);
    }

    fn await_waits(&self, names: &[&str], number: usize) {
        for name in names {
            eventually(&format!("{number} waits on {name}"), || open_waits(self.host(name)) == number);
        }
    }
}

fn open_waits(world: &World) -> usize {
    world.http("GET", "/v1/waits", None).json()["waits"].as_array().unwrap().len()
}

fn names(hosts: &Value) -> Vec<&str> {
    hosts.as_array().into_iter().flatten().map(|host| host["name"].as_str().unwrap()).collect()
}

/// Returns the hosts of a wait's predicates.
fn of_predicates(answer: &Value) -> Vec<&str> {
    answer["predicates"].as_array().unwrap().iter().map(|one| one["host"].as_str().unwrap_or("")).collect()
}

fn wait(world: &World, wait: &Value) -> Value {
    world.http("POST", "/v1/waits", Some(wait)).json()
}

/// Returns a wait for all panes `work` of the hosts `web-*`.
fn wait_on_both(pattern: &str, mode: &str) -> Value {
    json!({"panes": ["web-*/work"], "patterns": [pattern], "mode": mode, "since": "start", "timeout_ms": 100_000})
}

const WEB: [(&str, &str); 2] = [("web-1", "read,input,create"), ("web-2", "read,input,create")];

#[test]
fn patterns_and_selectors_name_panes_of_several_hosts() {
    let (scene, _proxy) = Scene::new(&[WEB[0], WEB[1], ("db", "read,input,create")]);
    let near = &scene.near;
    let [web_1, web_2, db] = ["web-1", "web-2", "db"].map(|name| scene.pane(name));
    ok(near, &["label", "-t", &web_2, "role=build"]);
    ok(near, &["label", "-t", &db, "role=build"]);
    let listed = |targets: &str| {
        let list: Value = serde_json::from_str(&ok(near, &["--json", "list-panes", "-t", targets])).unwrap();
        let mut panes: Vec<_> = list["panes"].as_array().unwrap().iter().map(named).collect();
        panes.sort();
        panes
    };
    assert_eq!(listed("web-*/work"), [web_1.clone(), web_2.clone()]);
    assert_eq!(listed("*/{role=build}"), [db.clone(), web_2.clone()]);
    assert_eq!(listed("*/{role=build,role!=x}"), [db.clone(), web_2.clone()]);
    assert!(ok(near, &["list-sessions", "-t", "web-*/work"]).contains("web-1/$"));
    let listed = near.http("GET", "/v1/windows?targets=web-1%2Fwork,db%2Fwork", None).json();
    assert_eq!(listed["windows"].as_array().unwrap().len(), 2, "{listed}");
    // Agents.
    let mut client = Client::started(near.spawn(&["mcp"]));
    let listed = client.call("list", &json!({ "target": "web-*/work" }));
    let ids: Vec<_> = listed["panes"].as_array().unwrap().iter().map(|pane| pane["id"].clone()).collect();
    assert_eq!(ids, [json!(web_1), json!(web_2)], "{listed}");
    // Several panes are typed into, and waited for.
    ok(near, &["send-keys", "-t", "web-*/work", "5", "Enter"]);
    ok(near, &["wait-for", "-t", "web-*/work", "--all", "-p", "end 5", "--since", "start", "-T", "60"]);
    assert!(!ok(scene.host("db"), &["read", "-t", "work", "--since", "start"]).contains("end 5"));
    // A pattern names hosts, and means one pane nowhere.
    let refused = call(near, &["--json", "capture-pane", "-t", "web-*/work"]).error();
    assert_eq!(refused["code"], "INVALID_ARGUMENT", "{refused}");
    let refused = call(near, &["--json", "wait-for", "-t", "mail-*/work", "-p", "x"]).error();
    assert_eq!(refused["code"], "NOT_FOUND", "{refused}");
    let refused = call(near, &["--json", "wait-for", "-t", "*/nowhere:", "-p", "x"]).error();
    assert_eq!(refused["code"], "NOT_FOUND", "{refused}");
    // A host that is named must have what is named there.
    let refused = call(near, &["--json", "wait-for", "-t", "db/nowhere:", "-t", "web-1/work", "-p", "x"]).error();
    assert_eq!(refused["code"], "NOT_FOUND", "{refused}");
    scene.await_waits(&["web-1", "web-2", "db"], 0);
}

#[test]
fn agents_of_several_hosts_are_listed_together() {
    let (scene, _proxy) = Scene::new(&[WEB[0], WEB[1], ("web-3", "input"), ("db", "read")]);
    let near = &scene.near;
    let hosts = ["db", "web-1", "web-2"];
    let panes = hosts.map(|name| {
        let host = scene.host(name);
        let muxtap = host.plain_muxtap_command().get_program().to_str().unwrap().to_owned();
        let program = host.path("mytool");
        put(&program, &format!("#!/bin/sh\n{muxtap} report-agent --source mytool --state working\nread -r line\n"));
        let pane = ok(host, &["new-session", "-s", "agent", "--", program.to_str().unwrap()]);
        eventually("the agent is known there", || ok(host, &["agents"]).contains("working"));
        format!("{name}/{pane}")
    });
    let agents = |targets: &str| near.http("GET", &format!("/v1/agents?targets={targets}"), None).json();
    let of = |list: &Value| {
        let named = |agent: &Value| format!("{}/{}", agent["host"].as_str().unwrap(), agent["pane"].as_str().unwrap());
        list["agents"].as_array().unwrap().iter().map(named).collect::<Vec<_>>()
    };
    // One of them does not offer the list.
    let list = agents("web-*%2Fagent");
    assert_eq!(of(&list), panes[1..], "{list}");
    assert_eq!(names(&list["unreachable"]), ["web-3"], "{list}");
    assert_eq!(of(&agents("*%2F")), panes);
    // A host that has nothing of what a pattern names is left out.
    assert_eq!(of(&agents("d*%2Fnowhere:,web-1%2Fagent")), panes[1..2]);
    // The command line and agents name each pane with its host.
    let printed = call(near, &["agents", "-t", "web-*/agent"]);
    assert!(panes[1..].iter().all(|pane| printed.text().contains(pane)), "{printed:?}");
    assert!(printed.status == 0 && printed.stderr.contains("web-3"), "{printed:?}");
    let mut client = Client::started(near.spawn(&["mcp"]));
    let listed = client.call("list", &json!({ "what": "agents", "target": "*/agent" }));
    let ids: Vec<_> = listed["agents"].as_array().unwrap().iter().map(|agent| agent["pane"].clone()).collect();
    assert_eq!(ids, panes.map(Value::from), "{listed}");
    let everywhere = client.call("list", &json!({ "what": "agents", "everywhere": true }));
    assert_eq!(everywhere["agents"].as_array().unwrap().len(), 3, "{everywhere}");
}

#[test]
fn commands_of_several_hosts_are_listed_with_their_hosts() {
    let (scene, _proxy) = Scene::new(&[WEB[0], WEB[1], ("web-3", "input")]);
    let near = &scene.near;
    for name in ["web-1", "web-2"] {
        // A command that ends with this status, as the marks of a shell report it.
        let marks = "printf '\\033]133;A\\007$ \\033]133;B\\007\\033]133;C\\007out\\n\\033]133;D;3\\007'";
        let host = scene.host(name);
        let shell = format!("read -r go; {marks}; echo marked; exec cat");
        ok(host, &["new-session", "-s", "marked", "--", "sh", "-c", &shell]);
        ok(host, &["read", "-t", "marked", "--since", "start"]);
        ok(host, &["send-keys", "-t", "marked", "go", "Enter"]);
        ok(host, &["wait-for", "-t", "marked", "-p", "^marked", "--since", "start", "-T", "60"]);
    }
    let listed = |targets: &[&str]| call(near, &[&["--json", "commands"], targets].concat());
    let of = |printed: &str| {
        let answers = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        answers.map(|one| (one["host"].clone(), one["commands"][0]["status"].clone())).collect::<Vec<_>>()
    };
    let both = ["web-1", "web-2"].map(|name| (json!(name), json!(3)));
    // One does not offer it: the others are listed, and the status says that not all were.
    let some = listed(&["-t", "web-*/marked"]);
    assert_eq!((of(&some.text()), some.status), (both.to_vec(), 1), "{some:?}");
    assert!(some.stderr.contains("web-3"), "{some:?}");
    let named = listed(&["-t", "web-1/marked", "-t", "web-2/marked"]);
    assert_eq!((of(&named.text()), named.status), (both.to_vec(), 0), "{named:?}");
    // A pane that is not there leaves the other one.
    let missing = listed(&["-t", "web-1/nowhere:", "-t", "web-2/marked"]);
    assert_eq!((of(&missing.text()), missing.status), (both[1..].to_vec(), 1), "{missing:?}");
    assert!(missing.stderr.contains("web-1/nowhere:"), "{missing:?}");
    let table = call(near, &["commands", "-t", "web-*/marked"]).text();
    assert!(["web-1/%", "web-2/%"].iter().all(|pane| table.contains(pane)), "{table}");
}

fn named(pane: &Value) -> String {
    format!("{}/{}", pane["host"].as_str().unwrap(), pane["id"].as_str().unwrap())
}

#[test]
fn a_wait_on_several_hosts_ends_on_all_when_it_is_decided() {
    let (scene, _proxy) = Scene::new(&WEB);
    let near = &scene.near;
    let hosts = ["web-1", "web-2"];
    let asked = wait_on_both;
    // HTTP: the second host decides.
    let held = near.http_send("POST", "/v1/waits", Some(&asked("end 7", "any")));
    scene.await_waits(&hosts, 1);
    scene.count("web-2", "7");
    let answer = Http::read(held).json();
    let pane = format!("{}/{}", answer["host"].as_str().unwrap(), answer["pane"].as_str().unwrap());
    assert_eq!((&answer["outcome"], pane), (&json!("matched"), scene.pane("web-2")), "{answer}");
    assert_eq!(of_predicates(&answer), hosts, "{answer}");
    scene.await_waits(&hosts, 0);
    // The command line: both hosts.
    let args = ["wait-for", "-t", "web-*/work", "--all", "-p", "end 8", "--since", "start", "-T", "100"];
    let waiting = Background::start(near.plain_muxtap_command().args(args));
    scene.await_waits(&hosts, 1);
    scene.count("web-1", "8");
    scene.await_waits(&["web-1"], 0);
    assert_eq!(open_waits(scene.host("web-2")), 1);
    scene.count("web-2", "8");
    assert_eq!(waiting.finish().status, 0);
    // An agent, whose calls are held for a second.
    let mut client = Client::started(near.spawn(&["mcp"]));
    let panes = json!({ "panes": [scene.pane("web-1"), scene.pane("web-2")], "patterns": ["end 9"], "since": "start",
        "timeout_ms": 100_000 });
    let mut waited = client.call("wait_for", &panes);
    assert_eq!(waited["outcome"], "pending", "{waited}");
    scene.count("web-2", "9");
    while waited["outcome"] == "pending" {
        waited = client.call("wait_for", &json!({ "id": waited["id"] }));
    }
    assert_eq!((&waited["outcome"], &waited["pane"]), (&json!("matched"), &json!(scene.pane("web-2"))), "{waited}");
    scene.await_waits(&hosts, 0);
    // One that is left, asked for by its id, and cancelled.
    let mut left = asked("end 10", "all");
    left["detach"] = json!(true);
    let begun = wait(near, &left);
    assert_eq!(begun["outcome"], "pending", "{begun}");
    let path = format!("/v1/waits/{}", begun["id"].as_str().unwrap().replace('/', "%2F").replace('+', "%2B"));
    scene.count("web-1", "10");
    scene.await_waits(&["web-1"], 0);
    let looked = near.http("GET", &path, None).json();
    let latched = |answer: &Value| {
        let predicates = answer["predicates"].as_array().unwrap().clone();
        predicates.iter().map(|one| one["latched"] == true).collect::<Vec<_>>()
    };
    assert_eq!((&looked["outcome"], latched(&looked)), (&json!("pending"), vec![true, false]), "{looked}");
    let cancelled = near.http("DELETE", &path, None).json();
    assert_eq!(cancelled["outcome"], "cancelled", "{cancelled}");
    scene.await_waits(&hosts, 0);
    // One that a request awaits ends by its key, as Ctrl-C ends it.
    let key = "0123456789abcdef";
    let headers = format!("idempotency-key: {key}\r\n");
    let held = near.http_send_with(&headers, "POST", "/v1/waits", Some(&asked("never", "any")));
    scene.await_waits(&hosts, 1);
    near.http("DELETE", &format!("/v1/waits/w-{key}"), None);
    assert_eq!(Http::read(held).json()["outcome"], "cancelled");
    scene.await_waits(&hosts, 0);
}

#[test]
fn a_wait_on_several_hosts_outlives_a_lost_link() {
    let (scene, proxy) = Scene::new(&WEB);
    let asked = wait_on_both("end 11", "all");
    let held = scene.near.http_send("POST", "/v1/waits", Some(&asked));
    scene.await_waits(&["web-1", "web-2"], 1);
    proxy.cut();
    for name in ["web-1", "web-2"] {
        scene.count(name, "11");
        ok(scene.host(name), &["wait-for", "-t", "work", "-p", "end 11", "--since", "start", "-T", "60"]);
    }
    proxy.mend();
    let answer = Http::read(held).json();
    assert_eq!((&answer["outcome"], &answer["unreachable"]), (&json!("matched"), &Value::Null), "{answer}");
    assert_eq!(of_predicates(&answer), ["web-1", "web-2"], "{answer}");
}

/// The next daemon knows no host before it has joined. Until then a target with a host does not mean
/// a session of this host.
#[test]
fn hosts_are_known_right_after_a_start_and_an_upgrade() {
    let (scene, _proxy) = Scene::new(&WEB);
    let near = &scene.near;
    // This host has a session whose name begins like the hosts'.
    ok(near, &["new-session", "-s", "web-1/work", "--", "cat"]);
    let args = ["wait-for", "-t", "web-*/work", "-p", "end 12", "--since", "start", "-T", "100"];
    let waiting = Background::start(near.plain_muxtap_command().args(args));
    scene.await_waits(&["web-1", "web-2"], 1);
    ok(near, &["upgrade"]);
    scene.count("web-2", "12");
    let waited = waiting.finish();
    assert_eq!(waited.status, 0, "{waited:?}");
    scene.await_waits(&["web-1", "web-2"], 0);
    for targets in ["web-*/work", "web-1/work"] {
        ok(near, &["stop"]);
        // Starts a daemon.
        ok(near, &["send-keys", "-t", targets, "13", "Enter"]);
    }
    assert_eq!(ok(near, &["capture-pane", "-t", "=web-1/work:"]).trim(), "");
    ok(scene.host("web-1"), &["wait-for", "-t", "work", "-p", "end 13", "--since", "start", "-T", "60"]);
}

#[test]
fn a_host_that_takes_no_part_is_named() {
    // One does not offer what the requests need, another is absent.
    let (scene, _proxy) = Scene::new(&[("web-1", "read,input"), ("web-2", "input"), ("web-3", "read,input")]);
    let near = &scene.near;
    scene.host("web-3").muxtap(&["stop"]);
    let asked = |mode: &str| wait_on_both("ready", mode);
    eventually("it is known to be absent", || {
        let list = near.http("GET", "/v1/panes?targets=web-*%2Fwork", None).json();
        list["panes"].as_array().unwrap().len() == 1 && names(&list["unreachable"]) == ["web-2", "web-3"]
    });
    let answer = wait(near, &asked("any"));
    assert_eq!((&answer["outcome"], &answer["host"]), (&json!("matched"), &json!("web-1")), "{answer}");
    // Not all of them can match.
    let refused = wait(near, &asked("all"));
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("web-2") || message.contains("web-3"), "{refused}");
    scene.await_waits(&["web-1", "web-2"], 0);
    // The others get the input, and the status says that not all did.
    let sent = call(near, &["send-keys", "-t", "web-*/work", "6", "Enter"]);
    assert!(sent.status == 1 && sent.stderr.contains("web-3"), "{sent:?}");
    ok(near, &["wait-for", "-t", "web-1/work", "-p", "end 6", "--since", "start", "-T", "60"]);
    // A wait that no host decides names them when it ends.
    let mut never = asked("any");
    (never["patterns"], never["timeout_ms"]) = (json!(["never"]), json!(1));
    let answer = wait(near, &never);
    assert_eq!(answer["outcome"], "timeout", "{answer}");
    assert_eq!(names(&answer["unreachable"]), ["web-2", "web-3"], "{answer}");
}

#[test]
fn local_peers_and_this_host_are_waited_for_together() {
    let world = World::with_server();
    let (first, second) = (Far::new(), Far::new());
    Far::configure_all(&world, &[("far-1", &first), ("far-2", &second)], "env");
    for far in [&first, &second] {
        counting(&far.world);
    }
    let own = world.window("echo here-it-is; exec cat");
    // Starts the daemon.
    ok(&world, &["hosts"]);
    let waits = |panes: &[&str], pattern: &str| {
        let asked = json!({"panes": panes, "patterns": [pattern], "mode": "all", "since": "start"});
        world.http("POST", &format!("/v1/waits{}", world.query()), Some(&asked)).json()
    };
    let answer = waits(&[&own, "far-*/work"], "ready|here-it-is");
    assert_eq!(answer["outcome"], "matched", "{answer}");
    assert_eq!(of_predicates(&answer), ["", "far-1", "far-2"], "{answer}");
    assert_eq!(world.http("GET", "/v1/waits", None).json()["waits"], json!([]));
}
