//! `muxtap fleet` with a real nats-server: from nothing to two hosts. What the files permit is
//! tested in `crates/muxtap-fleet/tests/admin.rs`.

use std::{
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
};

use crate::{
    common::{World, eventually, is_installed},
    fleet::audit_file,
};

/// A server that is killed at the end.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn five_commands_make_a_fleet_of_two_hosts() {
    if !is_installed("nats-server") {
        return;
    }
    let world = World::new();
    let dir = world.path("fleet");
    let (folder, port) =
        (dir.to_str().unwrap(), TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port());
    let listen = format!("127.0.0.1:{port}");
    let next = world.ok(&["fleet", "init", folder, "--listen", &listen, "--host-name", "localhost"]);
    assert!(
        next.contains(&format!("nats-server -c {folder}/nats.conf")) && next.contains("fleet doctor --dir"),
        "{next}"
    );
    let mut command = Command::new("nats-server");
    command.arg("-c").arg(dir.join("nats.conf")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Server(command.spawn().unwrap());
    eventually("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let report = world.ok(&["fleet", "doctor", "--dir", folder]);
    assert!(report.contains("The fleet is ready."), "{report}");

    let added = world.muxtap(&["fleet", "add", "web-1", "--offer", "read,input", "--dir", folder]);
    assert_eq!(
        added.text(),
        format!(
            "[fleet]\nurl = \"tls://localhost:{port}\"\nname = \"web-1\"\ncredentials = \"fleet.nk\"\n\
             tls_ca = \"fleet-ca.pem\"\noffer = [\"read\", \"input\"]\n"
        )
    );
    assert!(added.stderr.contains("members/web-1.nk") && added.stderr.contains("--signal reload="), "{added:?}");
    let added = world.json(&["fleet", "add", "web-2", "--offer", "read", "--use", "read", "--dir", folder, "--json"]);
    let seed = added["seed_file"].as_str().unwrap();
    let text = std::fs::read_to_string(seed).unwrap();
    assert!(text.starts_with("SU") && !added.to_string().contains(text.trim()), "a seed is only in its file");
    assert_eq!(std::fs::metadata(seed).unwrap().permissions().mode() & 0o777, 0o600);

    let members = |status: serde_json::Value| {
        let names =
            status["members"].as_array().unwrap().iter().map(|member| member["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(members(world.json(&["fleet", "status", "--dir", folder, "--json"])), ["admin", "web-1", "web-2"]);
    let table = world.ok(&["fleet", "status", "--dir", folder]);
    assert!(
        table.lines().any(|line| line.starts_with("web-1") && line.contains("read,input") && line.contains(" no")),
        "{table}"
    );

    // The server has not read the new members yet.
    let report = world.muxtap(&["fleet", "doctor", "--dir", folder]);
    assert!(report.status == 1 && report.text().contains("rejects the credentials of member `web-1`"), "{report:?}");
    assert!(Command::new("nats-server").arg(format!("--signal=reload={folder}/nats.pid")).status().unwrap().success());
    eventually("the server reads them", || world.muxtap(&["fleet", "doctor", "--dir", folder]).status == 0);

    world.ok(&["fleet", "revoke", "web-1", "--dir", folder]);
    assert_eq!(members(world.json(&["fleet", "status", "--dir", folder, "--json"])), ["admin", "web-2"]);
    assert!(!world.daemon_socket().exists(), "no daemon was started");
}

/// The lines of a daemon, and of the next one that has taken over, are in the copy as they are in the file.
#[test]
fn a_daemons_audit_log_is_copied_also_over_an_upgrade() {
    if !is_installed("nats-server") {
        return;
    }
    let mut world = World::new();
    let dir = world.path("fleet");
    let (folder, port) =
        (dir.to_str().unwrap(), TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port());
    world.ok(&["fleet", "init", folder, "--listen", &format!("127.0.0.1:{port}"), "--host-name", "localhost"]);
    let error = world.error("INVALID_ARGUMENT", &["fleet", "audit", "--dir", folder]);
    assert!(error.contains("no member was added with --audit"), "{error}");
    let added = world.ok(&["fleet", "add", "web-1", "--audit", "--dir", folder]);
    assert!(added.contains("audit = true"), "{added}");
    let mut command = Command::new("nats-server");
    command.arg("-c").arg(dir.join("nats.conf")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Server(command.spawn().unwrap());
    eventually("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let copy = |world: &World, name: &[&str]| world.ok(&[&["fleet", "audit", "--dir", folder], name].concat());
    assert_eq!(copy(&world, &[]), "");
    world.set("MUXTAP_FLEET", format!("tls://localhost:{port}"));
    world.set("MUXTAP_FLEET_NAME", "web-1");
    world.set("MUXTAP_FLEET_CREDENTIALS", dir.join("members/web-1.nk").to_str().unwrap());
    world.set("MUXTAP_FLEET_TLS_CA", dir.join("tls/ca.pem").to_str().unwrap());
    world.set("MUXTAP_FLEET_AUDIT", "true");
    let pane = world.ok(&["new-session", "-s", "main", "--", "cat"]);
    let log = audit_file(&world);
    let is_complete = |world: &World, actions: usize| {
        let all = std::fs::read_to_string(&log).unwrap();
        all.matches("\"action\":\"input\"").count() == actions && copy(world, &["web-1"]) == all.trim_end()
    };
    world.ok(&["send-keys", "-t", &pane, "one", "Enter"]);
    eventually("the copy is complete", || is_complete(&world, 1));
    world.ok(&["upgrade"]);
    world.ok(&["send-keys", "-t", &pane, "two", "Enter"]);
    eventually("the copy of both daemons is complete", || is_complete(&world, 2));
    let all = copy(&world, &[]);
    assert!(all.lines().all(|line| line.starts_with("{\"host\":\"web-1\",\"at\":")), "{all}");
}

#[test]
fn bad_input_changes_nothing() {
    if !is_installed("nats-server") {
        return;
    }
    let world = World::new();
    let dir = world.path("fleet");
    let folder = dir.to_str().unwrap();
    for args in [
        &["fleet", "init", folder, "--listen", "localhost"][..],
        &["fleet", "init", folder, "--listen", "127.0.0.1:0"],
        &["fleet", "init", folder, "--host-name", "a b"],
        &["fleet", "add", "web-1", "--offer", "all", "--dir", folder],
    ] {
        let answer = world.muxtap(args);
        assert_eq!(answer.status, 2, "{answer:?}");
    }
    assert!(!dir.exists());
    let error = world.error("NOT_FOUND", &["fleet", "status", "--dir", folder]);
    assert!(error.contains("no fleet in"), "{error}");
    world.ok(&["fleet", "init", folder, "--listen", "127.0.0.1:4222", "--host-name", "localhost"]);
    let before = std::fs::read(dir.join("members.conf")).unwrap();
    let error = world.error("INVALID_ARGUMENT", &["fleet", "add", "web-1", "--dir", folder]);
    assert!(error.contains("no permissions for member `web-1`"), "{error}");
    world.error("INVALID_ARGUMENT", &["fleet", "add", "a.b", "--use", "read", "--dir", folder]);
    world.error("NOT_FOUND", &["fleet", "revoke", "web-9", "--dir", folder]);
    world.error("CONFLICT", &["fleet", "init", folder]);
    assert_eq!(std::fs::read(dir.join("members.conf")).unwrap(), before);
}
