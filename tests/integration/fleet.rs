//! Hosts of a fleet: daemons that reach each other over a real NATS server.

#[path = "../../crates/muxtap-fleet/tests/nats/mod.rs"]
pub mod nats;

use std::fs;

use serde_json::{Value, json};

use self::nats::Nats;
use crate::{
    common::{Background, World, eventually},
    hosts::{call, ok},
    mcp::Client,
    places::Proxy,
};

/// How often the link is cut in the test that always runs.
const CUTS: u64 = 5;

/// Creates a host, or a caller if it offers nothing, without a daemon.
pub fn member(url: &str, name: &str, offer: &str) -> World {
    let mut world = World::new();
    world.also_end(world.path(&format!("run/tmux-{}/default", rustix::process::getuid().as_raw())));
    world.set("MUXTAP_FLEET", url);
    world.set("MUXTAP_FLEET_NAME", name);
    world.set("MUXTAP_FLEET_OFFER", offer);
    world.set("MUXTAP_FLEET_LABELS", "role=test,eu");
    world.set("MUXTAP_MCP_HOLD", "1");
    world
}

/// Starts a host's daemon, with a pane that counts to each number that it reads. Returns the pane's
/// id there.
pub fn counting(far: &World) -> String {
    let counts = "stty -echo; echo ready; while read -r n; do seq \"$n\"; echo \"end $n\"; done";
    let pane = ok(far, &["new-session", "-s", "work", "--", "sh", "-c", counts]);
    ok(far, &["wait-for", "-t", &pane, "-p", "^ready", "-T", "30"]);
    pane
}

fn hosts(world: &World) -> Value {
    world.http("GET", "/v1/hosts", None).json()["hosts"].clone()
}

/// Waits until `world` knows a host.
pub fn meet(world: &World, name: &str) {
    // Starts the daemon.
    ok(world, &["hosts"]);
    eventually("the host is known", || hosts(world).to_string().contains(&format!("\"name\":{name:?}")));
}

#[test]
fn every_interface_uses_a_host_of_the_fleet() {
    let nats = Nats::start("");
    let far = member(&nats.url(), "far", "read,input,create,kill");
    let near = member(&nats.url(), "near", "");
    let id = counting(&far);
    meet(&near, "far");
    let pane = format!("far/{id}");
    let host = hosts(&near)[0].clone();
    let fleet = json!({"labels": ["role=test", "eu"], "offer": ["read", "input", "create", "kill"],
        "version": env!("CARGO_PKG_VERSION")});
    assert_eq!((&host["fleet"], &host["configured"]), (&fleet, &json!(false)), "{host}");
    // The command line.
    assert!(ok(&near, &["list-panes", "-t", "far/work"]).contains(&pane));
    let cursor = ok(&near, &["cursor", "-t", &pane]);
    ok(&near, &["send-keys", "-t", &pane, "3", "Enter"]);
    ok(&near, &["wait-for", "-t", &pane, "-p", "end 3", "--since", "start", "-T", "30"]);
    assert!(ok(&near, &["capture-pane", "-t", &pane]).contains("1\n2\n3\nend 3"));
    assert_eq!(ok(&near, &["read", "-t", &pane, "--since", &cursor]), "1\n2\n3\nend 3");
    let shell = ok(&near, &["new-window", "-t", "far/work", "--", "sh"]);
    assert!(shell.starts_with("far/%"), "{shell}");
    ok(&near, &["wait-for", "-t", &shell, "--prompt", "-T", "30"]);
    let ran = call(&near, &["run", "-t", &shell, "echo over there; exit_with() { return 3; }; exit_with"]);
    assert_eq!((ran.status, ran.text().trim()), (3, "over there"), "{ran:?}");
    // HTTP.
    let waits = json!({ "panes": [pane], "patterns": ["end 3"], "since": "start" });
    let waited = near.http("POST", "/v1/waits", Some(&waits)).json();
    assert_eq!(waited["outcome"], "matched", "{waited}");
    assert!(waited["id"].as_str().unwrap().starts_with("far/w"), "{waited}");
    let all = near.http("GET", "/v1/panes?everywhere=true", None).json();
    assert!(all["panes"].to_string().contains("\"host\":\"far\""), "{all}");
    // Agents.
    let mut client = Client::started(near.spawn(&["mcp"]));
    client.call("send_keys", &json!({ "target": pane, "text": "4", "keys": ["Enter"] }));
    let waited = client.call("wait_for", &json!({ "panes": [pane], "patterns": ["end 4"], "since": "start" }));
    assert_eq!(waited["outcome"], "matched", "{waited}");
    let read = client.call("read_since", &json!({ "target": pane, "since": "start" }));
    assert!(read["text"].as_str().unwrap().contains("end 4"), "{read}");
    let created = client.call("create", &json!({ "what": "window", "target": "far/work", "command": "sh" }));
    let made = created["pane"].as_str().unwrap().to_owned();
    assert!(made.starts_with("far/%"), "{created}");
    let mut ran = client.call("run", &json!({ "target": made, "command": "echo by an agent; (exit 4)" }));
    while ran["outcome"] == "pending" {
        ran = client.call("run", &json!({ "id": ran["id"] }));
    }
    assert_eq!((&ran["outcome"], &ran["exit_status"]), (&json!("ended"), &json!(4)), "{ran}");
    assert!(ran["output"].as_str().unwrap().contains("by an agent"), "{ran}");
    client.call("kill", &json!({ "target": made, "what": "pane" }));
    let is_listed = || ok(&near, &["list-panes", "-t", "far/work"]).lines().any(|line| line.starts_with(&made));
    eventually("the pane is gone", || !is_listed());
    ok(&near, &["kill-pane", "-t", &shell]);
    // What needs the host's tmux itself says so.
    let refused = call(&near, &["record", "-t", &pane]);
    assert!(refused.status != 0 && refused.stderr.contains("a fleet carries requests to its muxtap"), "{refused:?}");
    // The host's audit log names the member.
    let audit = fs::read_to_string(audit_file(&far)).unwrap();
    let mut entries = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let entry = entries.rfind(|entry| entry["face"] == "fleet").expect(&audit);
    assert_eq!((&entry["who"], &entry["action"]), (&json!("near"), &json!("kill-pane")), "{audit}");
}

pub(crate) fn audit_file(world: &World) -> std::path::PathBuf {
    let settings = world.json(&["config"])["settings"].clone();
    let file = settings.as_array().unwrap().iter().find(|setting| setting["key"] == "audit_file").unwrap();
    file["value"].as_str().unwrap().into()
}

#[test]
fn a_member_does_no_more_than_the_host_offers() {
    let nats = Nats::start("");
    let far = member(&nats.url(), "far", "read");
    let near = member(&nats.url(), "near", "");
    let id = counting(&far);
    meet(&near, "far");
    let pane = format!("far/{id}");
    assert!(ok(&near, &["capture-pane", "-t", &pane]).contains("ready"));
    let refused = call(&near, &["--json", "send-keys", "-t", &pane, "5", "Enter"]).error();
    assert_eq!(refused["code"], "READ_ONLY", "{refused}");
    assert_eq!(refused["message"], "host far: it does not offer `input` to the fleet, only: read", "{refused}");
    // A format can run a program.
    let format = "#(touch ran)";
    let refused = call(&near, &["--json", "display-message", "-p", format, "-t", &pane]).error();
    assert_eq!(refused["code"], "READ_ONLY", "{refused}");
    // Nor does it use other hosts by way of this one.
    ok(&far, &["--via", "box=env", "hosts"]);
    let refused = call(&near, &["--json", "capture-pane", "-t", &format!("far/box/{id}")]).error();
    assert_eq!(refused["code"], "UNAUTHORIZED", "{refused}");
    // The caller's own restrictions come first.
    assert!(!ok(&far, &["read", "-t", &id, "--since", "start"]).contains("end 5"));
    // The near host offers nothing, so it is no host.
    assert_eq!(hosts(&far).as_array().unwrap().iter().filter(|host| host["name"] == "near").count(), 0);
}

#[test]
fn an_absent_host_is_told_at_once_and_its_return_is_noticed() {
    let nats = Nats::start("");
    let far = member(&nats.url(), "far", "read");
    let near = member(&nats.url(), "near", "");
    let id = counting(&far);
    meet(&near, "far");
    let pane = format!("far/{id}");
    ok(&near, &["capture-pane", "-t", &pane]);
    far.muxtap(&["stop"]);
    let absent = || call(&near, &["--json", "capture-pane", "-t", &pane]);
    eventually("it is known to be absent", || {
        let absent = absent();
        absent.status != 0
            && absent.error()["message"] == "host far: its daemon is not connected to the fleet, or offers nothing"
    });
    // Starts its daemon again.
    ok(&far, &["list-panes"]);
    eventually("it is there again", || absent().status == 0);
}

#[test]
fn a_fleet_that_cannot_be_reached_is_a_warning() {
    let mut nats = Nats::start("");
    nats.stop();
    let far = member(&nats.url(), "far", "read");
    far.json(&["hosts"]);
    let url = nats.url();
    let is_warned = || far.json(&["status"])["warnings"].to_string().contains(&url);
    eventually("a warning", is_warned);
    nats.restart();
    eventually("no warning", || !is_warned());
}

#[test]
fn an_error_about_a_fleets_setting_names_it() {
    for (name, value, expected) in [
        ("MUXTAP_FLEET", "4222", "[fleet] url: "),
        ("MUXTAP_FLEET", "", "[fleet] has no url"),
        ("MUXTAP_FLEET_NAME", "a.b", "[fleet] name: "),
        ("MUXTAP_FLEET_CREDENTIALS", "/nowhere/x.nk", "[fleet] credentials: /nowhere/x.nk"),
        ("MUXTAP_FLEET_OFFER", "all", "fleet_offer"),
    ] {
        let mut wrong = member("nats://127.0.0.1:1", "far", "read");
        wrong.set(name, value);
        let refused = wrong.muxtap(&["serve"]);
        assert!(refused.status != 0 && refused.stderr.contains(expected), "{name}={value}: {refused:?}");
    }
}

/// A host's daemon is replaced while a member waits and reads: no byte is lost, and the wait ends.
#[test]
fn an_upgrade_of_a_host_loses_no_byte_and_no_wait() {
    let nats = Nats::start("");
    let far = member(&nats.url(), "far", "read");
    let near = member(&nats.url(), "near", "");
    let id = counting(&far);
    meet(&near, "far");
    let pane = format!("far/{id}");
    let limit = std::time::Duration::from_secs(240);
    let in_background = |args: &[&str]| Background::start_with(near.plain_muxtap_command().args(args), limit);
    let waiting = in_background(&["wait-for", "-t", &pane, "-p", "end 203", "-T", "200"]);
    let mut tail = in_background(&["tail", "-f", "-t", &pane, "--since", "start"]);
    tail.line_where("its beginning", |line| line == "ready");
    eventually("it waits there", || far.json(&["status"])["waits"] == 1);
    for number in 201..=203 {
        let before = far.json(&["status"])["pid"].clone();
        ok(&far, &["send-keys", "-t", &id, &number.to_string(), "Enter"]);
        let pid = far.json(&["upgrade"])["pid"].clone();
        assert_ne!(pid, before, "another process");
        for counted in 1..=number {
            assert_eq!(tail.line(), Some(counted.to_string()), "{number}");
        }
        assert_eq!(tail.line(), Some(format!("end {number}")));
    }
    assert_eq!(waiting.finish().status, 0);
    // It is a host as before.
    eventually("it is there again", || call(&near, &["capture-pane", "-t", &pane]).status == 0);
}

/// A pane prints while links break: no byte is lost or doubled, and an open wait survives.
fn cut_often(cuts: u64) {
    let nats = Nats::start("");
    let proxy = Proxy::before(nats.port());
    let far = member(&nats.url(), "far", "read,input");
    let near = member(&format!("nats://127.0.0.1:{}", proxy.port), "near", "");
    let id = counting(&far);
    meet(&near, "far");
    let pane = format!("far/{id}");
    let cursor = ok(&near, &["cursor", "-t", &pane]);
    let limit = std::time::Duration::from_secs(60 + 20 * cuts);
    let in_background = |args: &[&str]| Background::start_with(near.plain_muxtap_command().args(args), limit);
    let last = 200 + cuts;
    let waiting = in_background(&["wait-for", "-t", &pane, "-p", &format!("end {last}"), "-T", "3000"]);
    let mut tail = in_background(&["tail", "-f", "-t", &pane, "--since", "start"]);
    tail.line_where("its beginning", |line| line == "ready");
    eventually("it waits there", || far.json(&["status"])["waits"] == 1);
    let mut read = Vec::new();
    let mut since = cursor;
    for cut in 1..=cuts {
        let number = 200 + cut;
        // Before, while and after the pane prints.
        if cut % 3 == 0 {
            proxy.cut();
        }
        ok(&far, &["send-keys", "-t", &id, &number.to_string(), "Enter"]);
        if cut % 3 == 1 {
            proxy.cut();
        }
        ok(&far, &["wait-for", "-t", &id, "-p", &format!("end {number}"), "--since", "start", "-T", "60"]);
        if cut % 3 == 2 {
            proxy.cut();
        }
        proxy.mend();
        for counted in 1..=number {
            assert_eq!(tail.line(), Some(counted.to_string()), "cut {cut}");
        }
        assert_eq!(tail.line(), Some(format!("end {number}")));
        // While there is no link a request fails at once.
        let mut more = Value::Null;
        eventually("the link is there again", || {
            let answer = call(&near, &["--json", "read", "-t", &pane, "--since", &since]);
            more = if answer.status == 0 { answer.json() } else { Value::Null };
            answer.status == 0
        });
        assert_eq!(more["gap"], Value::Null, "{more}");
        more["cursor"].as_str().unwrap().clone_into(&mut since);
        read.push(more["text"].as_str().unwrap().to_owned());
    }
    let counted =
        (1..=cuts).flat_map(|cut| (1..=200 + cut).map(|it| it.to_string()).chain([format!("end {}", 200 + cut)]));
    assert_eq!(read.concat().lines().map(str::to_owned).collect::<Vec<_>>(), counted.collect::<Vec<_>>());
    assert_eq!(waiting.finish().status, 0);
}

#[test]
fn links_that_break_lose_no_byte_and_no_wait() {
    cut_often(CUTS);
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_cuts_lose_no_byte_and_no_wait() {
    cut_often(100);
}

#[test]
fn a_nats_server_that_restarts_ends_no_wait() {
    let mut nats = Nats::start("");
    let far = member(&nats.url(), "far", "read");
    let near = member(&nats.url(), "near", "");
    let id = counting(&far);
    meet(&near, "far");
    let waiting = Background::start(near.plain_muxtap_command().args([
        "wait-for",
        "-t",
        &format!("far/{id}"),
        "-p",
        "end 7",
        "-T",
        "55",
    ]));
    eventually("it waits there", || far.json(&["status"])["waits"] == 1);
    nats.stop();
    ok(&far, &["send-keys", "-t", &id, "7", "Enter"]);
    ok(&far, &["wait-for", "-t", &id, "-p", "end 7", "--since", "start", "-T", "30"]);
    nats.restart();
    assert_eq!(waiting.finish().status, 0);
}
