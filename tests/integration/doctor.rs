//! `muxtap doctor`: reports what the daemon sees, and reports readiness only if the next command
//! works.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;

use crate::common::{Answer, World, run, tmux_program};

/// Returns the checks with this name, as JSON.
fn checks(world: &World, name: &str) -> Vec<Value> {
    let answer = world.muxtap(&["--json", "doctor"]);
    let report = answer.json();
    assert_eq!(report["ok"] == true, answer.status == 0, "{report}");
    report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == name).cloned().collect()
}

fn messages(world: &World, name: &str, status: &str) -> Vec<String> {
    let checks = checks(world, name);
    checks.iter().filter(|check| check["status"] == status).map(|check| check["message"].to_string()).collect()
}

/// Returns a separate `PATH` for the world, on which the tmux under test is called `tmux`.
fn path_with_tmux(world: &World) -> String {
    let bin = world.path("bin");
    let found = run(world.command("sh").args(["-c", &format!("command -v {}", tmux_program())])).text();
    script(&bin.join("tmux"), &format!("exec {} \"$@\"", found.trim()));
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns whether doctor reports readiness, and asserts that the next command then succeeds.
fn is_ready(world: &World, first: &[&str]) -> (bool, Answer) {
    let doctor = world.muxtap(&["doctor"]);
    let ready = doctor.text().contains("muxtap is ready");
    assert_eq!(ready, doctor.status == 0, "{doctor:?}");
    let first = world.muxtap(first);
    assert_eq!(ready, first.status == 0, "{}\n{first:?}", doctor.text());
    (ready, doctor)
}

/// Returns everything below a directory, with the times of changes.
fn tree(folder: &Path) -> Vec<(String, std::time::SystemTime)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let found = entry.metadata().unwrap();
        all.push((entry.path().display().to_string(), found.modified().unwrap()));
        if found.is_dir() {
            all.extend(tree(&entry.path()));
        }
    }
    all.sort();
    all
}

#[test]
fn a_daemon_that_finds_no_tmux_is_not_ready_whatever_this_shell_finds() {
    let mut world = World::new();
    let path = path_with_tmux(&world);
    world.set("MUXTAP_TMUX", "");
    world.set("PATH", "/nowhere/at/all");
    assert_ne!(world.muxtap(&["ls"]).status, 0, "it starts the daemon");
    assert!(world.daemon_pid().is_some());
    world.set("PATH", path);
    let (ready, doctor) = is_ready(&world, &["new-session", "-s", "work", "cat"]);
    let text = doctor.text();
    assert!(!ready && text.contains("/nowhere/at/all") && text.contains("muxtap stop"), "{text}");
    let tmux = checks(&world, "tmux");
    assert_eq!(tmux[0]["status"], "problem", "{tmux:?}");
    assert!(tmux[0]["fix"].to_string().contains("bin/tmux"), "{tmux:?}");
    // The suggested remedy works.
    world.ok(&["stop"]);
    assert!(is_ready(&world, &["new-session", "-s", "work", "cat"]).0);
    assert!(is_ready(&world, &["ls"]).0);
}

#[test]
fn a_daemon_with_a_tmux_is_ready_and_a_shell_without_one_is_told() {
    let mut world = World::new();
    let path = path_with_tmux(&world);
    world.set("MUXTAP_TMUX", "");
    world.set("PATH", path.clone());
    world.ok(&["new-session", "-s", "work", "cat"]);
    world.set("PATH", "/nowhere/at/all");
    let (ready, doctor) = is_ready(&world, &["new-window", "-t", "work", "cat"]);
    assert!(ready, "{doctor:?}");
    let notes = messages(&world, "tmux", "warning");
    assert!(notes.len() == 1 && notes[0].contains("only the daemon has one"), "{notes:?}");
    // Without the daemon, this shell's settings count.
    world.ok(&["stop"]);
    let doctor = world.muxtap(&["doctor"]);
    assert!(doctor.status == 1 && doctor.text().contains("/nowhere/at/all"), "{doctor:?}");
    // Restored, since the world ends its server with it.
    world.set("PATH", path);
}

#[test]
fn without_a_daemon_it_looks_for_one_and_leaves_no_trace() {
    let mut world = World::with_server();
    // It uses its own socket, which was in this directory and is gone.
    let runtime = world.path("run").display().to_string();
    let tree = |folder: &Path| tree(folder).into_iter().filter(|(path, _)| *path != runtime).collect::<Vec<_>>();
    let before = tree(world.dir());
    let clients = || world.tmux(&["list-clients", "-F", "#{client_name}"]);
    for _ in 0..2 {
        let answer = world.muxtap(&["doctor"]);
        assert_eq!(answer.status, 0, "{answer:?}");
        assert!(answer.text().contains("not running; the first command starts it"), "{answer:?}");
    }
    assert_eq!(clients(), "");
    assert_eq!(tree(world.dir()), before);
    // The program may be named only in the configuration.
    let named = world.path("named-tmux");
    let set = |world: &World, tmux: &str| {
        fs::create_dir_all(world.path("home/muxtap")).unwrap();
        fs::write(world.path("home/muxtap/config.toml"), format!("tmux = \"{tmux}\"\n")).unwrap();
    };
    world.set("MUXTAP_TMUX", "");
    set(&world, named.to_str().unwrap());
    let answer = world.muxtap(&["doctor"]);
    assert!(answer.status == 1 && answer.text().contains("named-tmux"), "{answer:?}");
    let found = run(world.command("sh").args(["-c", &format!("command -v {}", tmux_program())])).text();
    script(&named, &format!("exec {} \"$@\"", found.trim()));
    assert_eq!(world.muxtap(&["doctor"]).status, 0);
}

#[test]
fn a_server_that_refuses_the_program_is_a_problem_before_and_after_the_daemon_meets_it() {
    let mut world = World::with_server();
    // As N85 describes for a 3.3a client and a 3.7c server.
    script(
        &world.path("bin/other-tmux"),
        "case $* in -V) echo tmux 3.3a;; *) echo server exited unexpectedly >&2; exit 1;; esac",
    );
    world.set("MUXTAP_TMUX", world.path("bin/other-tmux").display().to_string());
    world.set("MUXTAP_OWN_TMUX", "false");
    for daemon in [false, true] {
        assert_eq!(world.daemon_pid().is_some(), daemon);
        let doctor = world.muxtap(&["doctor"]);
        let text = doctor.text();
        assert!(doctor.status == 1 && !text.contains("is ready"), "{text}");
        for word in ["3.3a", "server exited unexpectedly", "other-tmux", "own_tmux"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        if !daemon {
            let _starts = world.command(env!("CARGO_BIN_EXE_muxtap")).args(["-L", "none", "ls"]).output().unwrap();
        }
    }
    // Another server than the requested one does not affect readiness.
    let other = world.path("other");
    let answer = run(world.plain_muxtap_command().arg("-S").arg(&other).arg("doctor"));
    assert_eq!(answer.status, 0, "{answer:?}");
}

/// A server that runs another version than the configured one, if one is installed.
#[test]
#[cfg(target_os = "linux")]
fn a_server_of_another_version_is_told_with_its_program() {
    let folder = std::env::var_os("MUXTAP_TMUX_DIR").map(std::path::PathBuf::from);
    let Some(newer) = folder.map(|folder| folder.join("bin/tmux-3.7c")).filter(|newer| newer.exists()) else {
        println!("not tested: no tmux-3.7c in MUXTAP_TMUX_DIR");
        return;
    };
    let mut world = World::new();
    let mut start = world.command(&newer);
    start.arg("-S").arg(world.socket()).args(["-f", "/dev/null", "new-session", "-d", "-s", "main"]);
    assert!(start.status().unwrap().success());
    for own in ["true", "false"] {
        world.set("MUXTAP_OWN_TMUX", own);
        let (ready, doctor) = is_ready(&world, &["ls"]);
        let text = doctor.text();
        assert!(text.contains("3.7c"), "{text}");
        assert!(ready || own == "false", "{text}");
        let again = is_ready(&world, &["ls"]);
        assert_eq!(again.0, ready, "{}", again.1.text());
        world.ok(&["stop"]);
    }
    let mut end = world.command(&newer);
    assert!(end.arg("-S").arg(world.socket()).arg("kill-server").status().unwrap().success());
}

#[test]
fn files_and_variables_that_the_daemon_did_not_read_are_named() {
    let mut world = World::with_server();
    let file = world.path("home/muxtap/config.toml");
    let notes = |world: &World| messages(world, "config", "warning");
    world.sessions();
    assert_eq!(notes(&world), [""; 0]);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "ring_bytes = \"2M\"\n").unwrap();
    let made = notes(&world);
    assert!(made.len() == 1 && made[0].contains("config.toml was created after the daemon's start"), "{made:?}");
    world.ok(&["stop"]);
    world.sessions();
    assert_eq!(notes(&world), [""; 0]);
    fs::write(&file, "ring_bytes = \"3M\"\n").unwrap();
    let changed = notes(&world);
    assert!(changed.len() == 1 && changed[0].contains("config.toml has changed since"), "{changed:?}");
    assert_eq!(world.muxtap(&["doctor"]).status, 0, "the daemon goes on as it is");
    // A daemon started now would fail.
    fs::write(&file, "ring_bytes = \"three\"\n").unwrap();
    assert_eq!(world.muxtap(&["doctor"]).status, 1);
    fs::remove_file(&file).unwrap();
    assert!(notes(&world)[0].contains("has changed since"), "it is gone");

    // A file in another place, and a variable, of this shell only.
    world.ok(&["stop"]);
    world.sessions();
    let other = world.path("other.toml");
    fs::write(&other, "").unwrap();
    world.set("MUXTAP_CONFIG", other.display().to_string());
    world.set("MUXTAP_DENY", "kill");
    let told = notes(&world);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("has not read") && told[0].contains("other.toml"), "{told:?}");
    assert!(told[1].contains("MUXTAP_DENY") && told[1].contains("kill"), "{told:?}");
}

#[test]
fn another_directory_of_sockets_is_named_for_who_gives_no_path() {
    let mut world = World::with_server();
    world.sessions();
    assert_eq!(messages(&world, "tmux sockets", "warning"), [""; 0]);
    fs::create_dir(world.path("elsewhere")).unwrap();
    world.set("TMUX_TMPDIR", world.path("elsewhere").display().to_string());
    let told = messages(&world, "tmux sockets", "warning");
    assert!(told.len() == 1 && told[0].contains("/run") && told[0].contains("/elsewhere"), "{told:?}");
    assert!(world.ok(&["doctor"]).contains("TMUX_TMPDIR="), "the daemon's");
}

#[test]
fn programs_are_told_what_the_daemon_sees_and_nothing_is_followed_for_it() {
    let world = World::with_server();
    // Starts the daemon, and follows no running server.
    let _starts = run(world.plain_muxtap_command().args(["-L", "none", "ls"]));
    let answer = world.http("GET", &format!("/v1/environment{}", world.query()), None);
    assert_eq!(answer.status, 200, "{answer:?}");
    let seen = answer.json();
    assert_eq!(seen["path"], std::env::var("PATH").unwrap(), "{seen}");
    assert_eq!(seen["tmux_tmpdir"], world.path("run").to_str().unwrap(), "{seen}");
    assert_eq!(seen["program"]["name"], tmux_program(), "{seen}");
    assert!(seen["program"]["version"].is_string() && seen["program"]["error"].is_null(), "{seen}");
    assert_eq!(seen["files"][0]["read"], false, "{seen}");
    let server = &seen["servers"][0];
    assert_eq!(server["socket"], world.socket().to_str().unwrap(), "{seen}");
    assert!(server["version"].is_string() && server["error"].is_null(), "{seen}");
    assert_eq!(world.tmux(&["list-clients"]), "");
    let followed = world.json(&["status"])["servers"].clone();
    let connected = followed.as_array().unwrap().iter().filter(|server| server["state"] == "connected").count();
    assert_eq!(connected, 0, "{followed}");
    // A followed server gives the same facts.
    world.sessions();
    let again = world.http("GET", "/v1/environment", None).json();
    let of = |seen: &Value, field: &str| seen["servers"][0][field].clone();
    for field in ["socket", "pid", "version", "own"] {
        assert_eq!(of(&again, field), of(&seen, field), "{field}: {again}");
    }
    let wrong = world.http("GET", "/v1/environment?socket=a%2Fb", None);
    assert_eq!((wrong.status, &wrong.json()["code"]), (400, &"INVALID_ARGUMENT".into()));
}

#[test]
fn an_audit_key_that_others_may_read_is_a_problem_where_the_log_was_chosen() {
    let mut world = World::with_server();
    let (log, key) = (world.path("audit.jsonl"), world.path("audit.jsonl.key"));
    world.set("MUXTAP_AUDIT_FILE", log.to_str().unwrap());
    fs::write(&key, "ab".repeat(32)).unwrap();
    let allow = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    allow(0o640);
    let (ready, doctor) = is_ready(&world, &["list-panes"]);
    assert!(!ready && doctor.text().contains("is open to others"), "{doctor:?}");
    allow(0o600);
    assert!(is_ready(&world, &["list-panes"]).0);
}

#[test]
fn a_port_that_no_daemon_could_open_is_a_problem() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    for (address, says) in [(busy.as_str(), "cannot listen"), ("0.0.0.0:0", "other machines")] {
        let mut world = World::with_server();
        world.set("MUXTAP_HTTP", address);
        let (ready, doctor) = is_ready(&world, &["list-panes"]);
        assert!(!ready && doctor.text().contains(says), "{doctor:?}");
        world.set("MUXTAP_HTTP", "127.0.0.1:0");
        assert!(is_ready(&world, &["list-panes"]).0);
    }
}

#[test]
fn a_token_that_others_may_read_is_a_problem() {
    let mut world = World::with_server();
    world.set("MUXTAP_HTTP", "127.0.0.1:0");
    let token = world.path("token");
    world.set("MUXTAP_TOKEN_FILE", token.to_str().unwrap());
    fs::write(&token, "t".repeat(43)).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!is_ready(&world, &["list-panes"]).0);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(is_ready(&world, &["list-panes"]).0);
}
