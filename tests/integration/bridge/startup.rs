//! The startup of a bridge, and the reasons to refuse it.

use std::{os::unix::fs::PermissionsExt as _, process::Command};

use serde_json::json;

use crate::common::{Answer, World, run};

use super::{Bridge, command};

#[test]
fn the_lines_that_it_prints() {
    let world = World::new();
    let mut bridge = Bridge::new(&world);
    let url = format!("http://127.0.0.1:{}", bridge.port);
    assert_eq!(
        bridge.lines,
        [
            format!("tmux bridge listening on {url}"),
            "mode: tmux".into(),
            format!("health: {url}/health"),
            format!("endpoint: {url}/v1/tmux"),
            "allowed origins: https://localhost:3000, https://pi-for-excel.vercel.app".into(),
        ]
    );
    assert_eq!(bridge.process.line().unwrap(), format!("tmux socket: {}", world.socket().display()));
    let mut bridge =
        Bridge::with(&world, &[("TMUX_BRIDGE_TOKEN", "s3cret"), ("ALLOWED_ORIGINS", "a,b"), ("HOST", "localhost")]);
    assert_eq!(bridge.lines[0], format!("tmux bridge listening on http://localhost:{}", bridge.port));
    assert_eq!(bridge.lines[4], "allowed origins: a, b");
    let auth = bridge.process.line().unwrap();
    assert!(auth.contains("auth") && !auth.contains("s3cret"), "{auth}");
    assert!(bridge.process.line().unwrap().starts_with("tmux socket: "));
    let stopped = bridge.stop();
    assert_eq!((stopped.status, stopped.stdout), (0, Vec::new()));
}

#[test]
fn the_socket_stands_where_the_environment_says() {
    let world = World::new();
    let at = |name: &str| world.path(name).display().to_string();
    let own = |vars: &[(&str, &str)]| {
        let mut own = command(&world, &[]);
        own.env_remove("TMUX_BRIDGE_SOCKET_PATH").envs(vars.iter().copied());
        own
    };
    let socket_of = |bridge: &mut Bridge<'_>| {
        let line = bridge.process.line().unwrap();
        line.strip_prefix("tmux socket: ").unwrap().to_owned()
    };
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;

    let mut bridge = Bridge::start(&world, own(&[("TMPDIR", &at("state"))]).arg("--http"));
    assert_eq!(socket_of(&mut bridge), at("state/pi-for-excel-tmux-bridge/tmux.sock"));
    assert_eq!(mode("state/pi-for-excel-tmux-bridge"), 0o700);
    bridge.ok(&json!({"action": "create_session", "session": "a"}));
    world.also_end(at("state/pi-for-excel-tmux-bridge/tmux.sock"));
    drop(bridge);

    let mut bridge = Bridge::start(&world, &mut own(&[("TMUX_BRIDGE_SOCKET_DIR", &at("deep/er"))]));
    assert_eq!(socket_of(&mut bridge), at("deep/er/tmux.sock"));
    assert_eq!(mode("deep/er"), 0o700);
    drop(bridge);

    let vars = [("TMUX_BRIDGE_SOCKET_DIR", at("x")), ("TMUX_BRIDGE_SOCKET_PATH", at("y/z.sock"))];
    let vars = vars.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut bridge = Bridge::start(&world, &mut own(&vars));
    assert_eq!(socket_of(&mut bridge), at("y/z.sock"));
    assert_eq!((mode("x"), mode("y")), (0o700, 0o700));
}

fn refused(command: &mut Command) -> Answer {
    let answer = run(command);
    assert_eq!((answer.status, answer.text().as_str()), (1, ""), "{answer:?}");
    answer
}

#[test]
fn what_keeps_it_from_beginning_is_said_on_stderr_with_status_1() {
    let world = World::new();
    let empty = world.path("home").display().to_string();
    let says = |vars: &[(&str, &str)], args: &[&str], message: &str| {
        let answer = refused(command(&world, vars).args(args));
        assert!(answer.stderr.contains(message), "{vars:?} {args:?}: {}", answer.stderr);
    };
    for mode in ["real", "tmux2", "stub,tmux", " "] {
        says(&[("TMUX_BRIDGE_MODE", mode)], &[], "TMUX_BRIDGE_MODE");
    }
    says(&[], &["--https", "--http"], "--https and --http");
    for port in ["x", "-1", "70000"] {
        says(&[("PORT", port)], &[], "PORT");
    }
    let missing = "Failed to initialize tmux backend: tmux binary not available: ";
    says(&[("PATH", &empty), ("MUXTAP_TMUX", "")], &[], missing);
    says(&[("MUXTAP_TMUX", "/nonexistent/tmux")], &[], missing);
    says(&[("MUXTAP_TMUX", "false")], &[], missing);
    says(
        &[("HOST", "no.such.host.invalid"), ("TMUX_BRIDGE_MODE", "stub")],
        &[],
        "cannot listen on no.such.host.invalid",
    );
    let files = "HTTPS requested but key.pem/cert.pem not found";
    says(&[("PI_FOR_EXCEL_CERT_DIR", &empty)], &["--https"], files);
    says(&[("PI_FOR_EXCEL_CERT_DIR", "/nonexistent"), ("HTTPS", "1"), ("TMUX_BRIDGE_MODE", "stub")], &[], files);
    says(&[("PI_FOR_EXCEL_KEY_PATH", "/nonexistent"), ("HTTPS", "true")], &[], files);
    says(&[("PI_FOR_EXCEL_CERT_PATH", "/nonexistent")], &["--https"], files);
    // Not a certificate.
    for name in ["key.pem", "cert.pem"] {
        std::fs::write(world.path("state").join(name), "no").unwrap();
    }
    says(&[("PI_FOR_EXCEL_CERT_DIR", &world.path("state").display().to_string())], &["--https"], "cert.pem");
    // Without --https the files are not read.
    let vars = [("PI_FOR_EXCEL_CERT_DIR", "/nonexistent"), ("TMUX_BRIDGE_MODE", "stub")];
    assert_eq!(Bridge::with(&world, &vars).stop().status, 0);
    let mut plain =
        command(&world, &[("HTTPS", "1"), ("PI_FOR_EXCEL_CERT_DIR", "/nonexistent"), ("TMUX_BRIDGE_MODE", "stub")]);
    assert!(Bridge::start(&world, plain.arg("--http")).lines[0].contains("http://"));
}

#[test]
fn an_old_tmux_and_a_tmux_that_does_not_answer_are_refused() {
    let world = World::new();
    let script = world.path("tmux");
    let set = |text: &str| {
        std::fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let vars = [("MUXTAP_TMUX", script.to_str().unwrap()), ("TMUX_BRIDGE_COMMAND_TIMEOUT_MS", "500")];
    set("echo tmux 3.1");
    assert!(refused(&mut command(&world, &vars)).stderr.contains("3.2a or later"));
    set("exec sleep 60");
    assert!(refused(&mut command(&world, &vars)).stderr.contains("500 ms"));
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let world = World::new();
    let bridge = Bridge::stub(&world);
    let port = bridge.port.to_string();
    let second = refused(&mut command(&world, &[("PORT", &port), ("TMUX_BRIDGE_MODE", "stub")]));
    assert!(second.stderr.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{}", second.stderr);
}

/// tmux does not read the user's configuration.
#[test]
fn tmux_is_started_without_a_configuration() {
    let world = World::new();
    let config = "set -g status off\nset -g default-command 'echo FROM-CONFIG; exec cat'\nset -g base-index 7\n";
    std::fs::write(world.path("home/.tmux.conf"), config).unwrap();
    std::fs::create_dir_all(world.path("home/tmux")).unwrap();
    std::fs::write(world.path("home/tmux/tmux.conf"), config).unwrap();
    let bridge = Bridge::new(&world);
    bridge.ok(&json!({"action": "create_session", "session": "a"}));
    assert_eq!(world.tmux(&["show-options", "-gv", "base-index"]), "0");
    assert!(!bridge.screen("a").contains("FROM-CONFIG"));
}
