//! The hub: on a server that muxtap started, one client follows everything from muxtap's own
//! session. Users do not notice it.

use std::os::unix::fs::PermissionsExt as _;

use crate::common::{Background, ProcessEnd, World, eventually, is_alive};
use rustix::process::Signal;

fn tmux_sessions(world: &World) -> Vec<String> {
    world.tmux(&["list-sessions", "-F", "#S"]).lines().map(str::to_owned).collect()
}

fn users(world: &World) -> Vec<String> {
    tmux_sessions(world).into_iter().filter(|name| !name.starts_with("_muxtap")).collect()
}

fn hubs(world: &World) -> usize {
    tmux_sessions(world).len() - users(world).len()
}

/// Starts a daemon in the foreground that uses a hub on every server.
fn serve_with_hub(world: &World) -> Background {
    let process = Background::start(world.plain_muxtap_command().args(["serve", "--coverage", "hub"]));
    // Its listening is not announced to the test.
    eventually("the daemon answers", || world.daemon_pid() == Some(process.pid()));
    process
}

#[test]
fn one_client_follows_the_whole_server_and_is_in_no_listing() {
    let world = World::new().with_coverage("hub");
    let pane = world.ok(&["new-session", "-s", "one", "--", "echo first; exec cat"]);
    let other = world.ok(&["new-session", "-s", "two", "--", "echo second; exec cat"]);
    world.await_output(&pane, "^first");
    world.await_output(&other, "^second");
    assert_eq!(world.sessions(), ["one", "two"]);
    assert_eq!(world.panes(), [pane, other]);
    let windows = crate::common::names(&world.json(&["list-windows"])["windows"], "session");
    assert_eq!(windows, ["one", "two"]);
    assert_eq!(hubs(&world), 1);
    assert_eq!(world.tmux(&["list-clients", "-F", "#{client_control_mode}"]), "1");
    let status = world.json(&["status"]);
    assert_eq!((&status["servers"][0]["coverage"], &status["servers"][0]["clients"]), (&"hub".into(), &1.into()));
}

/// A hub without clients ends by itself after 15 s, and only such a one (N87).
#[test]
fn a_hub_is_kept_while_it_has_its_client() {
    let world = World::new().with_coverage("hub");
    let pane = world.ok(&["new-session", "-s", "one", "--", "exec cat"]);
    let before = (tmux_sessions(&world), world.tmux(&["list-clients", "-F", "#{client_name}"]));
    // By tmux's own clock, started after muxtap's request.
    world.tmux(&["run-shell", "-d", "15.5", ":"]);
    assert_eq!((tmux_sessions(&world), world.tmux(&["list-clients", "-F", "#{client_name}"])), before);
    let read = world.json(&["read", "-t", &pane, "--since", "start"]);
    assert_eq!(read["gap"], serde_json::Value::Null, "{read}");
}

#[test]
fn a_hub_that_nobody_attaches_to_ends_with_its_server() {
    let mut world = World::new().with_coverage("hub");
    let program = crate::common::tmux_program();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' attach-sessio '*|*' kill-sessio '*|*' -C new-sessio '*) exit 1;; esac\nexec {program} \"$@\"\n"
    );
    std::fs::write(world.path("tmux"), script).unwrap();
    std::fs::set_permissions(world.path("tmux"), std::fs::Permissions::from_mode(0o755)).unwrap();
    world.set("MUXTAP_TMUX", world.path("tmux").display().to_string());
    world.set("MUXTAP_OWN_TMUX", "false");
    let refused = world.muxtap(&["new-session", "-s", "one"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert_eq!(hubs(&world), 1);
    let server = ProcessEnd::of(world.server_pid());
    server.wait();
}

#[test]
fn a_command_without_a_target_never_means_the_hub() {
    let world = World::new().with_coverage("hub");
    world.ok(&["new-session", "-s", "one"]);
    assert_eq!(world.tmux(&["display-message", "-p", "#S"]), "one");
    world.ok(&["new-session", "-s", "two"]);
    assert_eq!(world.tmux(&["display-message", "-p", "#S"]), "two");
    assert_eq!(world.tmux(&["new-window", "-d", "-P", "-F", "#S"]), "two");
    // From inside a pane whose window is linked into the hub as well.
    let inside = |pane: &str| {
        let mut inside = world.command(crate::common::tmux_program());
        inside.env("TMUX", format!("{},{},0", world.socket().display(), world.server_pid())).env("TMUX_PANE", pane);
        crate::common::run(inside.args(["display-message", "-p", "#S"])).text()
    };
    let panes = world.tmux(&["list-panes", "-a", "-F", "#{pane_id} #{session_name}"]);
    for line in panes.lines().filter(|line| !line.contains("_muxtap")) {
        let (pane, session) = line.split_once(' ').unwrap();
        assert_eq!(inside(pane).trim(), session, "{pane}");
    }
}

#[test]
fn what_plain_tmux_makes_there_is_followed() {
    let world = World::new().with_coverage("hub");
    world.ok(&["new-session", "-s", "one"]);
    let session = world.tmux(&["new-session", "-d", "-s", "two", "-P", "-F", "#{pane_id}", "echo in two; exec cat"]);
    let window = world.tmux(&["new-window", "-d", "-t", "one:", "-P", "-F", "#{pane_id}", "echo in window; exec cat"]);
    let split = world.tmux(&["split-window", "-d", "-t", "one:", "-P", "-F", "#{pane_id}", "echo in split; exec cat"]);
    for (pane, text) in [(session, "^in two"), (window, "^in window"), (split, "^in split")] {
        world.await_output(&pane, text);
        world.ok(&["send-keys", "-t", &pane, "typed", "Enter"]);
        world.ok(&["wait-for", "-t", &pane, "--since", "start", "-p", "typed\n?typed|typed", "-T", "20"]);
    }
}

#[test]
fn a_users_kill_session_ends_its_windows() {
    let world = World::new().with_coverage("hub");
    world.ok(&["new-session", "-s", "stays"]);
    let pane = world.ok(&["new-session", "-s", "goes", "--", "exec cat"]);
    let pid = world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_pid}"]);
    let wait = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "never", "-T", "40"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    world.tmux(&["kill-session", "-t", "goes"]);
    let ended = wait.finish();
    assert_eq!((ended.status, &ended.json()["outcome"]), (3, &"ended".into()), "{ended:?}");
    eventually("its program has ended", || !is_alive(pid.parse().unwrap()));
    assert_eq!(world.sessions(), ["stays"]);
    assert_eq!(users(&world), ["stays"]);
    let windows = world.tmux(&["list-windows", "-a", "-F", "#{window_id}"]);
    let mut windows: Vec<_> = windows.lines().collect();
    windows.sort_unstable();
    windows.dedup();
    assert_eq!(windows.len(), 2, "the hub's own and the one that stays: {windows:?}");
}

#[test]
fn a_window_that_is_linked_twice_outlives_one_of_its_sessions() {
    let world = World::new().with_coverage("hub");
    let pane = world.ok(&["new-session", "-s", "one", "--", "exec cat"]);
    world.ok(&["new-session", "-s", "two"]);
    world.tmux(&["link-window", "-d", "-s", "one:0", "-t", "two:"]);
    world.tmux(&["kill-session", "-t", "one"]);
    world.ok(&["send-keys", "-t", &pane, "still", "Enter"]);
    world.await_output(&pane, "^still");
    assert_eq!(world.sessions(), ["two"]);
}

#[test]
fn the_server_ends_with_its_last_user_session() {
    for how in ["kill-session", "exit"] {
        let world = World::new().with_coverage("hub");
        let pane = world.ok(&["new-session", "-s", "one"]);
        let server = world.server_pid();
        if how == "exit" {
            world.ok(&["send-keys", "-t", &pane, "exit", "Enter"]);
        } else {
            world.tmux(&["kill-session", "-t", "one"]);
        }
        eventually("the server has ended", || !is_alive(server));
        // Until muxtap's client has noticed the end, requests get an error.
        eventually("muxtap knows", || world.muxtap(&["list-sessions"]).stderr.contains("no tmux server runs"));
        // A new server can follow on the same socket.
        world.ok(&["new-session", "-s", "again"]);
        assert_eq!(world.sessions(), ["again"], "{how}");
    }
}

#[test]
fn a_killed_daemons_hub_ends_and_the_next_daemon_creates_another() {
    let world = World::new().with_coverage("hub");
    let pane = world.ok(&["new-session", "-s", "one", "--", "exec cat"]);
    world.ok(&["send-keys", "-t", &pane, "before", "Enter"]);
    world.await_output(&pane, "^before");
    world.kill_daemon(Signal::KILL);
    eventually("the hub is gone", || tmux_sessions(&world) == ["one"]);
    world.await_output(&pane, "^before");
    assert_eq!(hubs(&world), 1, "the server is remembered as muxtap's own");
    assert_eq!(world.tmux(&["display-message", "-p", "#S"]), "one");
    world.ok(&["send-keys", "-t", &pane, "after", "Enter"]);
    world.await_output(&pane, "^after");
    world.ok(&["stop"]);
    assert_eq!(tmux_sessions(&world), ["one"]);
}

#[test]
fn a_hub_on_a_server_that_was_found_leaves_its_defaults_and_is_gone_afterwards() {
    let world = World::new().with_coverage("hub");
    for name in ["a", "b", "c"] {
        world.session(name);
    }
    // `b` was used last.
    let mut visitor = Background::start(world.tmux_command(world.socket()).args(["-C", "attach-session", "-t", "b"]));
    visitor.line_where("the attach", |line| line.starts_with("%session-changed"));
    visitor.close_stdin();
    visitor.finish();
    let default = |world: &World| world.tmux(&["display-message", "-p", "#S"]);
    let all = |world: &World| {
        let mut all = String::new();
        for args in
            [&["show-options", "-s"][..], &["show-options", "-g"], &["show-options", "-gw"], &["show-hooks", "-g"]]
        {
            all += &world.tmux(args);
        }
        all += &world.tmux(&["list-windows", "-a", "-F", "#S #{window_id} #{window_layout} #{window_linked}"]);
        all
    };
    let (home, before) = (default(&world), all(&world));
    assert_eq!(home, "b");
    for how in [Signal::TERM, Signal::KILL] {
        let daemon = serve_with_hub(&world);
        assert_eq!(world.sessions(), ["a", "b", "c"]);
        assert_eq!(hubs(&world), 1);
        assert_eq!(
            world.metric("muxtap_control_clients"),
            1,
            "the client that visited the sessions is not counted any more"
        );
        assert_eq!(default(&world), home);
        world.tmux(&["send-keys", "-t", "c", "echo he''llo", "Enter"]);
        world.await_output("c", "hello");
        let pid = daemon.pid();
        crate::common::signal(pid, how);
        daemon.finish();
        eventually("the hub is gone", || hubs(&world) == 0);
        assert_eq!(default(&world), home);
        assert_eq!(all(&world), before);
    }
}

/// Without the hub, tmux refuses to unlink a window's only place: with it the window comes back
/// (G8).
#[test]
fn a_window_that_a_person_unlinks_is_linked_back_and_what_runs_in_it_lives() {
    let world = World::new().with_coverage("hub");
    let pane = world.ok(&["new-session", "-s", "one", "--", "exec cat"]);
    let other = world.ok(&["new-window", "-t", "one", "--", "exec cat"]);
    let pid = world.tmux(&["display-message", "-p", "-t", &other, "#{pane_pid}"]);
    eventually("the hub holds both", || {
        world.tmux(&["display-message", "-p", "-t", &other, "#{window_linked_sessions}"]) == "2"
    });
    world.tmux(&["unlink-window", "-t", "one:1"]);
    eventually("it is back in its place", || {
        let listed = world.tmux(&["list-panes", "-s", "-t", "one", "-F", "#{window_index} #{pane_id} #{pane_pid}"]);
        listed.lines().any(|line| line == format!("1 {other} {pid}"))
    });
    assert_eq!(world.panes(), [pane, other]);
}

/// A hanging daemon sends nothing to tmux any more; then tmux itself ends the hub, and the windows
/// that only the hub held.
#[test]
fn a_hub_whose_daemon_hangs_holds_nothing_alive() {
    let world = World::new().with_coverage("hub");
    world.ok(&["new-session", "-s", "one", "--", "exec cat"]);
    eventually("the hub holds the window", || {
        world.tmux(&["display-message", "-p", "-t", "one", "#{window_linked_sessions}"]) == "2"
    });
    let program = world.tmux(&["display-message", "-p", "-t", "one", "#{pane_pid}"]);
    let program = ProcessEnd::of(program.parse().unwrap());
    let daemon = crate::common::Stopped::new(world.daemon_pid().unwrap());
    world.tmux(&["kill-session", "-t", "one"]);
    program.wait();
    drop(daemon);
}
