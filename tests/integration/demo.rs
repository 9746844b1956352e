//! `muxtap demo`: it works, and does not affect what the user runs.

use std::{fs, os::unix::fs::PermissionsExt as _};

use rustix::process::Signal;

use crate::common::{Background, World, eventually, run, signal};

/// Creates a world with its own directory for temporary files, so that leftovers are seen.
fn world() -> World {
    let mut world = World::new();
    fs::create_dir(world.path("tmp")).unwrap();
    world.set("TMPDIR", world.path("tmp").display().to_string());
    world
}

/// Asserts that nothing of the demo runs or remains; `kept` are processes from before.
fn nothing_is_left(world: &World, kept: &[u32]) {
    let left: Vec<_> = fs::read_dir(world.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    let others =
        || -> Vec<(u32, String)> { world.processes().into_iter().filter(|(pid, _)| !kept.contains(pid)).collect() };
    let starts = ["serve --background", "new-session"];
    let servers: Vec<_> =
        others().into_iter().filter(|(_, line)| starts.iter().any(|start| line.contains(start))).collect();
    assert!(servers.is_empty(), "{servers:?}");
    // The panes' programs end when their terminals close, and a tmux client when its server does;
    // nothing announces either.
    eventually("the builds have ended", || others().is_empty());
}

fn pids(world: &World) -> Vec<u32> {
    world.processes().into_iter().map(|(pid, _)| pid).collect()
}

fn demo(world: &World) -> Background {
    Background::start(world.plain_muxtap_command().arg("demo"))
}

#[test]
fn it_shows_waits_that_end_and_starts_no_daemon_of_the_users() {
    let world = world();
    let answer = demo(&world).finish();
    let text = answer.text();
    assert_eq!((answer.status, answer.stderr.as_str()), (0, ""), "{answer:?}");
    for says in ["parser │ [1/5] cc lexer.c", "server │ DONE server", "docs   │ FAILED docs", "failed (as planned)"]
    {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert_eq!(text.matches(" ms after the pane wrote it").count(), 3, "{text}");
    nothing_is_left(&world, &[]);
    assert!(!world.daemon_socket().exists());
    let json = run(world.plain_muxtap_command().args(["--json", "demo"])).json();
    assert_eq!(json["waits"].as_array().unwrap().len(), 3, "{json}");
    nothing_is_left(&world, &[]);
}

#[test]
fn the_users_daemon_configuration_and_tmux_do_not_notice() {
    let mut world = world();
    world.session("main");
    world.sessions();
    let daemon = world.daemon_pid();
    let kept = pids(&world);
    let (status, files) = (world.json(&["status"])["servers"].clone(), names_in(&world));
    // None of these changes the demo: it reads and runs none of them.
    let traces = ["home/tmux-conf-was-read", "home/profile-was-read"].map(|name| world.path(name));
    fs::write(world.path("home/.tmux.conf"), format!("run-shell 'touch {}'\n", traces[0].display())).unwrap();
    fs::write(world.path("home/.profile"), format!("touch {}\n", traces[1].display())).unwrap();
    fs::create_dir_all(world.path("home/tmux")).unwrap();
    fs::copy(world.path("home/.tmux.conf"), world.path("home/tmux/tmux.conf")).unwrap();
    world.set("MUXTAP_CONFIG", world.path("no-such-file.toml").display().to_string());
    world.set("MUXTAP_READ_ONLY", "true");
    world.set("MUXTAP_HTTP", "192.0.2.1:1");
    world.set("SHELL", "/no/such/shell");
    let answer = demo(&world).finish();
    assert_eq!(answer.status, 0, "{answer:?}");
    nothing_is_left(&world, &kept);
    assert!(traces.iter().all(|trace| !trace.exists()), "{traces:?}");
    world.set("MUXTAP_CONFIG", "");
    assert_eq!(world.daemon_pid(), daemon);
    let now = world.json(&["status"])["servers"].clone();
    let of = |servers: &serde_json::Value| crate::common::names(servers, "socket");
    assert_eq!(of(&now), of(&status));
    let new: Vec<_> = names_in(&world).into_iter().filter(|name| !files.contains(name)).collect();
    assert_eq!(new, [""; 0]);
}

/// Returns the files beside the daemon's socket and log.
fn names_in(world: &World) -> Vec<String> {
    let entries = [world.dir().to_owned(), world.path("state"), world.path("run")]
        .into_iter()
        .flat_map(|dir| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path().display().to_string()));
    entries.collect()
}

#[test]
fn it_leaves_nothing_when_it_is_interrupted() {
    for (by, how) in [(Signal::INT, 0), (Signal::TERM, 0), (Signal::HUP, 1), (Signal::INT, 2)] {
        let world = world();
        let mut demo = demo(&world);
        match how {
            // In the middle.
            0 => drop(demo.line_where("a build's first step", |line| line.contains("[1/"))),
            // Just after the start.
            1 => drop(demo.line()),
            // Possibly before its daemon runs.
            _ => eventually("its directory is there", || fs::read_dir(world.path("tmp")).unwrap().next().is_some()),
        }
        signal(demo.pid(), by);
        let answer = demo.finish();
        assert_eq!(answer.status, 130, "{by:?}: {answer:?}");
        nothing_is_left(&world, &[]);
    }
}

#[test]
fn it_leaves_nothing_when_it_fails() {
    let mut world = world();
    // The reader closes early.
    let piped = run(world.command("sh").args(["-c", &format!("{} demo | head -n 1", bin())]));
    assert!(piped.text().contains("Three builds") && piped.stderr.is_empty(), "{piped:?}");
    // The process that `sh` runs has ended, and those that it started too.
    eventually("the demo has ended", || !world.processes().iter().any(|(_, line)| line.contains("demo")));
    nothing_is_left(&world, &[]);
    let broken = world.path("broken-tmux");
    fs::write(&broken, "#!/bin/sh\ncase $* in *-V*) echo tmux 3.4;; *) echo no luck >&2; exit 1;; esac\n").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    for tmux in ["/nowhere/tmux", broken.to_str().unwrap()] {
        world.set("MUXTAP_TMUX", tmux);
        let answer = demo(&world).finish();
        assert!(answer.status == 1 && answer.stderr.contains("tmux"), "{answer:?}");
        nothing_is_left(&world, &[]);
    }
    // It has a place for its files, or reports that it has none.
    world.set("TMPDIR", world.path("no-such-directory").display().to_string());
    let answer = demo(&world).finish();
    assert!(answer.status == 1 && answer.stderr.contains("no-such-directory"), "{answer:?}");
}

fn bin() -> String {
    std::env::var("MUXTAP_TEST_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_muxtap").into())
}
