//! Recordings and snapshots of other hosts, and doctor's report for each failure.

use std::{fs, os::unix::fs::PermissionsExt as _};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{ANSWERS, Background, World, eventually, run, signal},
    hosts::{call, configure, ok, place_for_a_server, started},
    places::{Proxy, Sshd},
    record::{cast, last_frame, last_text},
    snapshots::{quiet_server, rich, shape},
};

#[test]
fn a_remote_recording_shows_what_tmux_shows_and_the_gap_of_a_broken_link() {
    let world = World::new();
    let Some(sshd) = started(&world) else { return };
    let proxy = Proxy::before(sshd.port());
    configure(&world, &[("far", &sshd.via_proxy("user", &proxy))]);
    let socket = place_for_a_server(&world);
    let size = ["-x", "80", "-y", "24"];
    let made = ["new-session", "-d", "-s", "work", "-P", "-F", "far/#{pane_id}"];
    let pane = world.tmux_at(&socket, &[&made[..], &size, &[ANSWERS]].concat());
    ok(&world, &["wait-for", "-t", &pane, "-p", "^ready", "--since", "start", "-T", "30"]);
    let id = pane.strip_prefix("far/").unwrap();
    let shown = |flags: &[&str]| world.tmux_at(&socket, &[&["capture-pane", "-p", "-t", id], flags].concat());
    let record = |name: &str| {
        let recording = Background::start(world.plain_muxtap_command().args(["record", "-t", &pane, "-o", name]));
        eventually("it records", || world.path("work").join(name).exists());
        recording
    };
    let ends = |recording: Background| {
        signal(recording.pid(), Signal::INT);
        assert_eq!(recording.finish().status, 130);
    };
    let (whole, cut) = (record("whole.cast"), record("far.cast"));
    let file = world.path("work/far.cast");
    let line = |text: &str| {
        ok(&world, &["send-keys", "-t", &pane, text, "Enter"]);
        ok(&world, &["wait-for", "-t", &pane, "-p", &format!("got {text}$"), "-T", "30"]);
        let said = format!("got {text}");
        let has_it = |name: &str| fs::read_to_string(world.path("work").join(name)).unwrap().contains(&said);
        let written = || has_it("far.cast") && (text != "one" || has_it("whole.cast"));
        eventually("it is recorded", written);
    };
    line("one");
    ends(whole);
    let before = cast(&world.path("work/whole.cast"));
    assert_eq!(last_frame(&before).trim_end(), shown(&["-e"]).trim_end());
    assert_eq!(last_text(&before).join("\n").trim_end(), shown(&[]).trim_end());
    proxy.cut();
    eventually("the link is known to be lost", || world.json(&["status"])["servers"][0]["state"] != "connected");
    // Before 3.7 a server may end when others are notified while a control client leaves it (N26).
    eventually("the client has left", || world.tmux_at(&socket, &["list-clients"]).is_empty());
    // The new screen cannot be joined to earlier output.
    world.tmux_at(&socket, &["send-keys", "-R", "-t", id, ";", "clear-history", "-t", id]);
    world.tmux_at(&socket, &["send-keys", "-t", id, "unheard", "Enter"]);
    eventually("it is shown", || world.tmux_at(&socket, &["capture-pane", "-p", "-t", id]).contains("got unheard"));
    proxy.mend();
    eventually("it is reached again", || world.json(&["status"])["servers"][0]["state"] == "connected");
    line("two");
    // Includes what was cleared in the meantime.
    let is_drawn = || last_text(&cast(&file)).join("\n").trim_end() == shown(&[]).trim_end();
    eventually("the screen is drawn anew behind the gap", is_drawn);
    ends(cut);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.lines().any(|line| line.contains("\"m\"") && line.contains("(reconnected)")), "{text}");
    let after = cast(&file);
    assert!(shown(&[]).contains("got unheard"));
    assert_eq!(last_frame(&after).trim_end(), shown(&["-e"]).trim_end());
    assert_eq!(last_text(&after).join("\n").trim_end(), shown(&[]).trim_end());
}

#[test]
fn a_session_of_one_host_is_restored_on_that_host_and_on_another() {
    let world = World::new();
    // Commands that stand in for hosts: they have their own sockets.
    configure(&world, &[("far", "env A=1"), ("other", "env A=2")]);
    quiet_server(&world);
    rich(&world);
    let far = format!("far/{}", world.socket().display());
    let beside = world.path("beside");
    let other = format!("other/{}", beside.display());
    // Labels and variables of another host's sessions would need --run (docs/snapshots.md).
    for session in ["b work", "c shares"] {
        world.tmux(&["set-option", "-u", "-t", session, "@muxtap_session_labels"]);
    }
    world.tmux(&["set-option", "-pu", "-t", "b work:9.0", "@muxtap_labels"]);
    let of = ["-t", "b work", "-t", "c shares", "-t", "d links"];
    let save = |name: &str, server: &str| {
        ok(&world, &[&["snapshot", "save", name, "-L", server][..], &of].concat());
        shape(&world, name)
    };
    let restore = |server: &str| {
        let answer = ok(&world, &["--json", "snapshot", "restore", "all", "-L", server]);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (&answer["notes"], &answer["sessions"]),
            (&json!([]), &json!(["b work", "c shares", "d links"])),
            "{answer}"
        );
    };
    let before = save("all", &far);
    assert_eq!(before["windows"].as_array().unwrap().len(), 3, "{before}");
    world.tmux_at(&beside, &["new-session", "-d", "-s", "stays", "cat"]);
    restore(&other);
    assert_eq!(save("there", &other), before);
    assert!(world.tmux_at(&beside, &["list-sessions", "-F", "#{session_name}"]).contains("stays"));
    world.tmux(&["kill-server"]);
    eventually("the server has gone", || run(world.tmux_command(world.socket()).arg("ls")).status != 0);
    restore(&far);
    assert_eq!(save("again", &far), before);
}

#[test]
fn doctor_reports_each_reason_and_its_fix() {
    let world = World::new();
    let lines = "PasswordAuthentication yes\nKbdInteractiveAuthentication yes\nPermitRootLogin yes\n";
    let Some(sshd) = Sshd::start_with(world.dir(), &[], lines) else { return };
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let docker = world.path("docker");
    // docker's own error text.
    let says = "#!/bin/sh\ncase $3 in\nnone) echo 'Error response from daemon: No such container: none' >&2 ;;\n\
                stopped) echo 'Error response from daemon: container 1 is not running' >&2 ;;\n\
                away) echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2 ;;\n\
                bare) echo 'OCI runtime exec failed: exec: \"tmux\": executable file not found in $PATH' >&2 ;;\n\
                old) case \"$*\" in *-V*) echo 'tmux 3.1c'; exit 0 ;; esac; echo 'no server running on /t' >&2 ;;\n\
                esac\nexit 1\n";
    fs::write(&docker, says).unwrap();
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    let container = |name: &str| format!("{} exec -i {name}", docker.display());
    let changed = sshd.via("user", None).replace("/known ", "/changed ");
    fs::write(world.path("ssh/changed"), "").unwrap();
    // A user's own setting that makes ssh prompt.
    let asks = sshd.via("stranger", None).replace("ssh ", "ssh -o BatchMode=no ");
    let table = [
        ("closed", sshd.via("user", Some(closed)), "it cannot be reached", "true` work?"),
        ("changed", changed, "its key is unknown on this machine, or has changed", "once by hand"),
        ("stranger", sshd.via("stranger", None), "it asks for a password", "set up a key or an agent"),
        ("asks", asks, "it asks for a password", "set up a key or an agent"),
        ("none", container("none"), "there is no such container", "start it, or correct the name"),
        ("stopped", container("stopped"), "its container is not running", "start it"),
        ("away", container("away"), "the container runtime does not respond", "true` work?"),
        ("bare", container("bare"), "it has no tmux", "install tmux 3.2a or later there"),
        ("old", container("old"), "its tmux is too old", "install tmux 3.2a or later there"),
        ("absent", "/nowhere/docker exec -i absent".into(), "cannot run `/nowhere/docker", ""),
    ];
    let hosts: Vec<_> = table.iter().map(|(name, via, ..)| (*name, via.as_str())).collect();
    configure(&world, &hosts);
    let doctor = call(&world, &["--json", "doctor"]);
    assert_eq!(doctor.status, 0, "the rest is ready: {doctor:?}");
    let checks = doctor.json()["checks"].clone();
    for (name, _, what, hint) in &table {
        let said = checks.as_array().unwrap().iter().filter_map(|check| check["message"].as_str());
        let begin = format!("host {name}: ");
        let said: Vec<_> = said.filter(|message| message.contains(&begin)).collect();
        assert!(said.len() == 1 && said[0].contains(what) && said[0].contains(hint), "{name}: {said:?}\n{checks}");
    }
}
