//! Guests: on a server that muxtap did not start, muxtap is not noticed while it is attached, and
//! leaves nothing behind.

use std::path::{Path, PathBuf};

use crate::common::{Background, Stopped, World, eventually, tmux_program};
use rustix::process::Signal;

/// Everything that a user can query from a tmux server, except what muxtap's own control clients
/// add while attached.
#[derive(Debug, PartialEq)]
struct Picture(Vec<(String, String)>);

/// Takes the picture of a server. `daemon`: the process of a running muxtap, whose clients (its
/// children) are left out, and with them the count of attached clients.
fn picture(world: &World, daemon: Option<u32>) -> Picture {
    let mut asked: Vec<(String, String)> = Vec::new();
    let mut ask = |args: &[&str]| {
        let answer = world.tmux(args);
        asked.push((args.join(" "), answer.clone()));
        answer
    };
    let attached = if daemon.is_some() { "" } else { " #{session_attached}" };
    let sessions = "#{session_id} #{session_name} #{session_windows} #{session_group} #{session_created}";
    let sessions = ask(&["list-sessions", "-F", &format!("{sessions}{attached}")]);
    ask(&[
        "list-windows",
        "-a",
        "-F",
        "#{session_name} #{window_id} #{window_index} #{window_name} #{window_layout} #{window_width}x#{window_height} \
         #{window_flags} #{window_linked} #{window_last_flag}",
    ]);
    ask(&[
        "list-panes",
        "-a",
        "-F",
        "#{pane_id} #{pane_width}x#{pane_height} #{pane_active} #{pane_pid} #{pane_mode} #{pane_title} #{pane_dead} \
         #{history_size} #{cursor_x},#{cursor_y} #{pane_pipe} #{pane_synchronized}",
    ]);
    for scope in [["show-options", "-s"], ["show-options", "-g"], ["show-options", "-gw"], ["show-hooks", "-g"]] {
        ask(&scope);
    }
    ask(&["show-hooks", "-gw"]);
    ask(&["show-environment", "-g"]);
    for session in sessions.lines().map(|line| line.split(' ').next().unwrap()) {
        ask(&["show-options", "-t", session]);
        ask(&["show-environment", "-t", session]);
        ask(&["show-hooks", "-t", session]);
    }
    let windows = world.tmux(&["list-windows", "-a", "-F", "#{window_id}"]);
    for window in windows.lines() {
        ask(&["show-options", "-w", "-t", window]);
        ask(&["show-options", "-p", "-t", window]);
    }
    ask(&["list-buffers"]);
    ask(&["list-keys"]);
    // The defaults: the meaning of a command without a target.
    ask(&["display-message", "-p", "#S:#I.#P #{session_id}"]);
    let clients = world.tmux(&[
        "list-clients",
        "-F",
        "#{client_pid} #{client_session} #{client_width}x#{client_height} #{client_flags}",
    ]);
    let clients: Vec<&str> = clients
        .lines()
        .filter(|line| daemon.is_none_or(|daemon| parent(line.split(' ').next().unwrap()) != daemon))
        .collect();
    asked.push(("clients".into(), clients.join("\n")));
    // As if inside the pane %0.
    let mut inside = world.command(crate::common::tmux_program());
    inside.env("TMUX", format!("{},{},0", world.socket().display(), world.server_pid())).env("TMUX_PANE", "%0");
    let inside = crate::common::run(inside.args(["display-message", "-p", "#S:#I.#P"]));
    asked.push(("inside %0".into(), inside.text()));
    Picture(asked)
}

fn parent(pid: &str) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn assert_same(before: &Picture, after: &Picture, when: &str) {
    for (one, other) in before.0.iter().zip(&after.0) {
        assert_eq!(one, other, "{when}");
    }
    assert_eq!(before.0.len(), after.0.len(), "{when}");
}

/// Returns the place of a new window without a target, and removes that window.
fn new_window_goes_to(world: &World) -> String {
    let made = world.tmux(&["new-window", "-d", "-P", "-F", "#{session_name} #{window_id}"]);
    let (session, window) = made.split_once(' ').unwrap();
    world.tmux(&["kill-window", "-t", window]);
    session.to_owned()
}

/// Creates four sessions that were used in another order than created; one grouped, one window
/// linked twice, splits, a user's hook and options, a user's client with its own size.
fn busy_server() -> (World, Background) {
    let world = World::with_server().with_coverage("sessions");
    // A window's name would follow its program, at times that are not announced.
    world.tmux(&["set-option", "-g", "automatic-rename", "off"]);
    for name in ["a", "b", "c"] {
        world.session(name);
    }
    world.tmux(&["split-window", "-d", "-h", "-t", "a", "exec cat"]);
    world.tmux(&["split-window", "-d", "-v", "-t", "a", "exec cat"]);
    world.tmux(&["new-window", "-d", "-t", "b:", "-n", "two", "exec cat"]);
    world.tmux(&["link-window", "-d", "-s", "b:two", "-t", "c:"]);
    world.tmux(&["new-session", "-d", "-t", "a", "-s", "grouped"]);
    world.tmux(&["set-option", "-g", "status-left", "mine"]);
    world.tmux(&["set-option", "-t", "b", "detach-on-destroy", "off"]);
    world.tmux(&["set-hook", "-g", "alert-bell", "display-message bell"]);
    world.tmux(&["set-environment", "-t", "a", "SSH_AUTH_SOCK", "/of/the/user"]);
    world.tmux(&["set-environment", "-g", "MINE", "1"]);
    world.tmux(&["set-buffer", "-b", "mine", "text"]);
    // `b` was used last, before it `a`.
    let mut user = Background::start(world.tmux_command(world.socket()).args(["-C", "attach-session", "-t", "main"]));
    // Before that, 3.3a replies that there is no such client.
    user.line_where("the client is attached", |line| line.starts_with("%session-changed"));
    for visit in ["refresh-client -C 100x30", "switch-client -t c", "switch-client -t a", "switch-client -t b"] {
        // tmux resizes a client's window after it has handled all its requests: so one request at a
        // time, each with a check of its result.
        use std::io::Write as _;
        writeln!(user.stdin(), "{visit}").unwrap();
        // Not announced to a control client, so polled.
        eventually("the window has the client's size", || {
            writeln!(user.stdin(), "display-message -p 'width #{{window_width}}'").unwrap();
            user.line_where("the width", |line| line.starts_with("width ")) == "width 100"
        });
    }
    (world, user)
}

/// Follows everything, in each way that changes nothing.
fn follow(world: &World) -> u32 {
    assert_eq!(world.sessions(), ["a", "b", "c", "grouped", "main"]);
    for pane in world.panes() {
        world.muxtap(&["read", "-t", &pane, "--since", "start"]);
        let theirs = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        assert_eq!(world.ok(&["capture-pane", "-t", &pane]), theirs);
        let waited = world.muxtap(&["wait-for", "-t", &pane, "-p", "nothing says this", "-T", "0.01"]);
        assert_eq!(waited.status, 124, "{waited:?}");
    }
    world.daemon_pid().unwrap()
}

fn leaves_as_it_was(end: impl FnOnce(&World)) {
    let (world, mut user) = busy_server();
    let before = picture(&world, None);
    // With a daemon's id the picture leaves out what cannot be compared while muxtap runs.
    let before_without_counts = picture(&world, Some(0));
    let home = new_window_goes_to(&world);
    let pid = follow(&world);
    assert_same(&before_without_counts, &picture(&world, Some(pid)), "while muxtap follows");
    assert_eq!(new_window_goes_to(&world), home, "while muxtap follows");
    end(&world);
    // tmux notices a client's end when it reads the client's socket, which is not announced.
    eventually("muxtap's clients are gone", || {
        world.tmux(&["list-clients", "-F", "#{client_pid}"]).lines().collect::<Vec<_>>() == [user.pid().to_string()]
    });
    assert_same(&before, &picture(&world, None), "after muxtap");
    assert_eq!(new_window_goes_to(&world), home, "after muxtap");
    // The user's client is still attached and works.
    {
        use std::io::Write as _;
        user.stdin().write_all(b"display-message -p 'still here'\n").unwrap();
    }
    user.line_where("an answer", |line| line == "still here");
    // The tmux under test may itself be in a directory with that name: `DIR/bin/tmux-3.8`, with its
    // libraries beside `bin`.
    let tmux = PathBuf::from(tmux_program());
    let dir = tmux.parent().and_then(Path::parent).map(|dir| dir.display().to_string()).filter(|dir| dir.len() > 1);
    let is_ours = |line: &str| dir.iter().fold(line.to_owned(), |line, dir| line.replace(dir, "")).contains("muxtap");
    let left: Vec<_> = world.processes().into_iter().filter(|(_, line)| is_ours(line)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A session with `destroy-unattached` ends with its last client, and a guest does not count as
/// one.
#[test]
fn a_session_that_ends_with_its_last_client_does_so_under_a_guest() {
    let world = World::with_server().with_coverage("sessions");
    world.session("brief");
    let mut user = Background::start(world.tmux_command(world.socket()).args(["-C", "attach-session", "-t", "brief"]));
    user.line_where("the client is attached", |line| line.starts_with("%session-changed"));
    world.tmux(&["set-option", "-t", "brief", "destroy-unattached", "on"]);
    let follows = |world: &World| world.ok(&["read", "-t", "brief", "--since", "start"]);
    follows(&world);
    assert_eq!(world.tmux(&["display-message", "-p", "-t", "brief", "#{session_attached}"]).trim(), "2");
    let server = world.server_pid();
    {
        use std::io::Write as _;
        user.stdin().write_all(b"detach-client\n").unwrap();
    }
    let ended = || {
        let listed = world.muxtap(&["--json", "list-sessions"]);
        listed.status == 0 && !crate::common::names(&listed.json()["sessions"], "name").contains(&"brief".to_owned())
    };
    eventually("the session has ended", || !crate::common::is_alive(server) || ended());
    if !crate::common::is_alive(server) {
        // Before 3.8 a session that ends so can take the server with it (N26), regardless of its
        // last client.
        let version = crate::common::run(std::process::Command::new(crate::common::tmux_program()).arg("-V")).text();
        assert!(!version.contains("3.8"), "{version} crashed");
        eprintln!("{} crashed: not tested", version.trim());
        world.may_crash();
        return;
    }
    // The other sessions are followed as before.
    assert_eq!(world.sessions(), ["main"]);
    world.ok(&["read", "-t", "main", "--since", "start"]);
}

#[test]
fn nobody_notices_it_and_stop_leaves_the_server_as_it_was() {
    leaves_as_it_was(|world| {
        world.ok(&["stop"]);
    });
}

#[test]
fn sigterm_leaves_the_server_as_it_was() {
    leaves_as_it_was(|world| world.kill_daemon(Signal::TERM));
}

#[test]
fn sigkill_leaves_the_server_as_it_was() {
    leaves_as_it_was(|world| world.kill_daemon(Signal::KILL));
}

#[test]
fn a_guest_does_not_keep_a_server_alive() {
    let world = World::with_server().with_coverage("sessions");
    assert_eq!(world.sessions(), ["main"]);
    let server = world.server_pid();
    world.tmux(&["kill-session", "-t", "main"]);
    eventually("the server has ended", || !crate::common::is_alive(server));
    // Its clients notice the end a moment later.
    eventually("muxtap knows", || world.muxtap(&["list-sessions"]).stderr.contains("no tmux server runs"));
}

/// N25: a server that cannot write pending output to a client does not release it by itself.
#[test]
fn a_daemon_killed_during_a_flood_leaves_no_client_behind() {
    let world = World::with_server().with_coverage("sessions");
    let pane = world.window("while :; do echo a flood that does not end by itself; done");
    world.await_output(&pane, "^a flood");
    world.kill_daemon(Signal::KILL);
    eventually("its clients are gone", || world.tmux(&["list-clients"]).is_empty());
    // The same for an orderly end: a client that does not leave by itself is killed, and stays in
    // the list.
    world.await_output(&pane, "^a flood");
    world.ok(&["stop"]);
    assert_eq!(world.tmux(&["list-clients"]), "");
}

/// N30: servers before 3.7 die of a half-attached client while sessions come and go.
#[test]
fn the_server_survives_concurrent_creation_and_killing_of_sessions() {
    let world = World::with_server().with_coverage("sessions");
    world.ok(&["list-panes"]);
    let server = world.server_pid();
    std::thread::scope(|scope| {
        for maker in 0..6 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..5 {
                    let name = format!("made-{maker}-{round}");
                    world.ok(&["new-session", "-s", &name, "cat"]);
                    world.ok(&["kill-session", "-t", &name]);
                }
            });
        }
    });
    assert_eq!(world.server_pid(), server);
    assert_eq!(world.sessions(), ["main"]);
}

/// N31: older servers die of some subscriptions when a client's session has ended and the client is
/// slow to leave.
#[test]
fn a_client_that_is_slow_to_leave_its_ended_session_does_no_harm() {
    let world = World::with_server().with_coverage("sessions");
    let brief = world.session("brief");
    world.await_output(&brief, ".");
    let server = world.server_pid();
    let client = world.tmux(&["list-clients", "-t", "brief", "-F", "#{client_pid}"]).parse().unwrap();
    let stopped = Stopped::new(client);
    world.tmux(&["kill-session", "-t", "brief"]);
    // tmux checks subscriptions once a second.
    world.tmux(&["run-shell", "-d", "2", ":"]);
    drop(stopped);
    assert_eq!(world.server_pid(), server);
    assert_eq!(world.sessions(), ["main"]);
}

/// Sessions created one after the other by plain tmux, as scripts and programs that restore
/// sessions do.
#[test]
fn a_script_that_makes_many_sessions_finds_its_server_alive() {
    let world = World::with_server().with_coverage("sessions");
    world.ok(&["list-panes"]);
    let server = world.server_pid();
    for round in 0..3 {
        let made: Vec<_> = (0..20).map(|number| world.session(&format!("s{round}-{number}"))).collect();
        for pane in &made {
            world.await_output(pane, ".");
        }
    }
    assert_eq!(world.server_pid(), server);
    assert_eq!(world.sessions().len(), 61);
}

/// While a guest attaches, the last client can end with its session, and its way back leads to the
/// same new session.
#[test]
fn a_session_that_takes_the_place_of_the_only_one_has_one_guest() {
    let world = World::with_server().with_coverage("sessions");
    world.ok(&["list-panes"]);
    world.tmux(&["new-session", "-d", "-s", "next"]);
    assert_eq!(world.sessions(), ["main", "next"]);
    world.tmux(&["kill-session", "-t", "main"]);
    world.await_output("next", ".");
    // Its guest comes after any other that was attaching.
    let later = world.session("later");
    world.await_output(&later, ".");
    assert_eq!(world.tmux(&["list-clients", "-F", "#{session_name}"]).lines().collect::<Vec<_>>(), ["next", "later"]);
}
