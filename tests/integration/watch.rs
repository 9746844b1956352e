//! `--watch`: lists and the status, printed again on every change.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    common::{Background, Stopped, World, eventually, names, signal},
    subscribers::Sse,
};

/// Reads lines of JSON until one matches.
fn json_where(watch: &mut Background, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let line = watch.line_where(what, |line| fits(&serde_json::from_str(line).unwrap()));
    serde_json::from_str(&line).unwrap()
}

fn interrupted(watch: Background) {
    signal(watch.pid(), Signal::INT);
    let answer = watch.finish();
    assert_eq!(answer.status, 130, "{answer:?}");
}

#[test]
fn lists_are_printed_when_they_change() {
    let world = World::with_server();
    let mut sessions = world.spawn(&["--json", "list-sessions", "--watch"]);
    let mut windows = world.spawn(&["--json", "list-windows", "-w", "-t", "main"]);
    let mut panes = world.spawn(&["--json", "list-panes", "--watch"]);
    let is = |field: &'static str, name: &'static str| {
        move |list: &Value| {
            let list = list.as_object().unwrap().values().next().unwrap();
            names(list, field).contains(&name.to_owned())
        }
    };
    json_where(&mut sessions, "the first list", is("name", "main"));
    json_where(&mut windows, "the first list", is("session", "main"));
    json_where(&mut panes, "the first list", is("session", "main"));
    world.tmux(&["new-window", "-d", "-n", "built", "exec cat"]);
    json_where(&mut windows, "a window", is("name", "built"));
    json_where(&mut panes, "its pane", is("window", "built"));
    world.tmux(&["rename-window", "-t", "main:built", "other"]);
    json_where(&mut windows, "its name", is("name", "other"));
    world.session("second");
    json_where(&mut sessions, "a session", is("name", "second"));
    // No event reports a pane's program, but a change of it is printed.
    world.tmux(&["send-keys", "-t", "main:0", "exec sh -c 'echo on; exec cat'", "Enter"]);
    json_where(&mut panes, "another program", |list| {
        list["panes"].as_array().unwrap().iter().filter(|pane| pane["command"] == "cat").count() == 2
    });
    world.tmux(&["kill-session", "-t", "second"]);
    json_where(&mut sessions, "one session", |list| list["sessions"].as_array().unwrap().len() == 1);
    for watch in [sessions, windows, panes] {
        interrupted(watch);
    }
}

#[test]
fn a_watch_outlives_a_daemon_that_is_killed_and_ends_with_one_that_is_stopped() {
    let world = World::with_server();
    let mut watch = world.spawn(&["--json", "list-windows", "--watch"]);
    json_where(&mut watch, "the first list", |list| list["windows"].as_array().unwrap().len() == 1);
    world.kill_daemon(Signal::KILL);
    world.tmux(&["new-window", "-d", "-n", "new", "cat"]);
    json_where(&mut watch, "what came meanwhile", |list| list["windows"].as_array().unwrap().len() == 2);
    world.tmux(&["kill-window", "-t", ":new"]);
    json_where(&mut watch, "what came then", |list| list["windows"].as_array().unwrap().len() == 1);
    world.ok(&["stop"]);
    let answer = watch.finish();
    assert_eq!(answer.status, 1, "{answer:?}");
    assert!(answer.stderr.contains("continuing with another one") && answer.stderr.contains("has ended"), "{answer:?}");
}

#[test]
fn a_server_that_goes_and_comes_back_is_followed_on() {
    let world = World::with_server();
    let mut watch = world.spawn(&["list-sessions", "--watch"]);
    watch.line_where("the list", |line| line.contains("main"));
    world.tmux(&["kill-server"]);
    // The watch requests the list again, and what has gone is absent then.
    let is_lost = |state: &Value| state == "gone" || state == "absent";
    eventually("it has gone", || is_lost(&world.json(&["status"])["servers"][0]["state"]));
    world.session("back");
    watch.line_where("the next list", |line| line.contains("back"));
    interrupted(watch);
}

#[test]
fn the_status_is_printed_when_servers_and_waits_come_and_go() {
    let world = World::with_server();
    let none = world.muxtap(&["status", "--watch"]);
    assert_eq!(none.status, 1, "{none:?}");
    assert!(!world.daemon_socket().exists(), "it starts none");
    let pane = names(&world.json(&["list-panes"])["panes"], "id").remove(0);
    let mut watch = world.spawn(&["--json", "status", "--watch"]);
    json_where(&mut watch, "the server", |status| status["servers"][0]["sessions"] == 1);
    // The second form of the command runs in `muxtapd`.
    for more in [&[] as &[&str], &["--on-end", "true"]] {
        let wait = world.spawn(&[&["wait-for", "-t", &pane, "-p", "never", "-T", "60"], more].concat());
        json_where(&mut watch, "a wait", |status| status["waits"] == 1);
        signal(wait.pid(), Signal::INT);
        assert_eq!(wait.finish().status, 130);
        json_where(&mut watch, "no wait", |status| status["waits"] == 0);
    }
    world.session("second");
    json_where(&mut watch, "a session", |status| status["servers"][0]["sessions"] == 2);
    // Waits for another daemon, and starts none.
    let first = world.daemon_pid().unwrap();
    world.kill_daemon(Signal::KILL);
    assert_eq!(world.daemon_pid(), None);
    world.sessions();
    json_where(&mut watch, "another daemon", |status| status["pid"] != first);
    world.ok(&["stop"]);
    assert_eq!(watch.finish().status, 1);
}

/// A client that lists on every change must not cause the next change.
#[test]
fn a_listing_that_finds_nothing_new_is_no_event() {
    let world = World::with_server();
    // A name that follows the program changes at any time.
    world.tmux(&["set-option", "-g", "automatic-rename", "off", ";", "rename-window", "-t", "main:0", "first"]);
    let pane = world.window("stty -echo; echo ready; read -r line; printf '\\a'; exec cat");
    world.await_output(&pane, "^ready");
    world.json(&["list-panes"]);
    let mut events = Sse::open(&world, "types=topology,bell");
    for _ in 0..3 {
        for list in ["list-sessions", "list-windows", "list-panes"] {
            world.json(&[list]);
        }
    }
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    // The stream's first block is not an event.
    let first = std::iter::from_fn(|| events.next()).find(|event| !event.kind.is_empty()).unwrap();
    assert_eq!(first.kind, "bell", "{first:?}");
}

/// Creates a pane of a second server that runs this, with this many columns and rows.
pub fn terminal(world: &World, columns: &str, rows: &str, line: &str) -> String {
    let socket = world.path("outer");
    // Ctrl-C is for the program alone.
    let line = format!("trap : INT; {line}; echo \"status $?\"; exec cat");
    let made = ["new-session", "-d", "-s", "outer", "-x", columns, "-y", rows, "-P", "-F", "#{pane_id}", &line];
    let pane = world.tmux_at(&socket, &made);
    // 3.2a makes it 80 columns wide (N91).
    world.tmux_at(&socket, &["resize-window", "-t", &pane, "-x", columns, "-y", rows]);
    pane
}

/// Waits until a pane of the second server matches this.
pub fn shows(world: &World, pane: &str, pattern: &str) {
    let socket = world.path("outer").display().to_string();
    let args = ["-S", &socket, "wait-for", "-t", pane, "--screen", pattern, "-T", "30"];
    let answer = crate::common::run(world.plain_muxtap_command().args(args));
    assert_eq!(answer.status, 0, "{pattern}: {answer:?}\n{}", screen(world, pane));
}

/// Presses keys in a pane of the second server.
pub fn press(world: &World, pane: &str, keys: &[&str]) {
    world.tmux_at(&world.path("outer"), &[&["send-keys", "-t", pane], keys].concat());
}

pub fn screen(world: &World, pane: &str) -> String {
    world.tmux_at(&world.path("outer"), &["capture-pane", "-p", "-t", pane])
}

/// Asks tmux about a pane of the second server.
pub fn told(world: &World, pane: &str, format: &str) -> String {
    world.tmux_at(&world.path("outer"), &["display-message", "-p", "-t", pane, format])
}

/// Returns the line that runs muxtap for the world's own server.
pub fn line(world: &World, words: &str) -> String {
    let program = world.plain_muxtap_command().get_program().to_string_lossy().into_owned();
    format!("{program} -S {} {words}", world.socket().display())
}

#[test]
fn on_a_terminal_a_table_is_drawn_in_place() {
    let world = World::with_server();
    world.sessions();
    let pane = terminal(&world, "60", "6", &line(&world, "list-windows --watch"));
    shows(&world, &pane, "ACTIVE\n@0 .* main:0");
    world.tmux(&["rename-window", "-t", "main:0", "another name"]);
    shows(&world, &pane, "another name");
    assert_eq!(screen(&world, &pane).lines().filter(|line| line.contains("main:0")).count(), 1);
    assert_eq!(told(&world, &pane, "#{alternate_on}#{cursor_flag}"), "10");
    // More than fits, and another size.
    for _ in 0..8 {
        world.tmux(&["new-window", "-d", "cat"]);
    }
    shows(&world, &pane, "… 5 more lines");
    world.tmux_at(&world.path("outer"), &["resize-window", "-t", &pane, "-x", "20", "-y", "20"]);
    shows(&world, &pane, "main:8");
    world.tmux_at(&world.path("outer"), &["resize-window", "-t", &pane, "-x", "1", "-y", "1"]);
    eventually("it is tiny", || told(&world, &pane, "#{pane_width}x#{pane_height}") == "1x1");
    world.tmux_at(&world.path("outer"), &["resize-window", "-t", &pane, "-x", "60", "-y", "12"]);
    shows(&world, &pane, "main:8");
    press(&world, &pane, &["C-c"]);
    shows(&world, &pane, "status 130");
    assert_eq!(told(&world, &pane, "#{alternate_on}#{cursor_flag}"), "01");
    assert!(!screen(&world, &pane).contains("main:0"));
}

/// After any kind of end the terminal is restored: typed text is echoed.
#[test]
fn the_terminal_is_given_back() {
    for (name, how, status) in [("TERM", Signal::TERM, "143"), ("HUP", Signal::HUP, "129")] {
        let world = World::with_server();
        let pane = terminal(&world, "60", "10", &line(&world, "list-sessions --watch"));
        shows(&world, &pane, "main");
        let is_watch = |line: &str| line.contains("list-sessions --watch") && !line.contains("status");
        let watch = world.processes().into_iter().find(|(_, line)| is_watch(line));
        signal(watch.unwrap().0, how);
        shows(&world, &pane, &format!("status {status}"));
        assert_eq!(told(&world, &pane, "#{alternate_on}#{cursor_flag}"), "01", "{name}");
        press(&world, &pane, &["typed", "Enter"]);
        // Echoed, and printed by cat.
        shows(&world, &pane, "typed\ntyped");
    }
}

/// Signals are handled from the start, even if the daemon hangs: otherwise only SIGKILL would end
/// it.
#[test]
fn ctrl_c_ends_it_while_the_daemon_hangs() {
    let world = World::with_server();
    world.sessions();
    let _stopped = Stopped::new(world.daemon_pid().unwrap());
    for args in [&["status", "--watch"][..], &["list-panes", "--watch"], &["list-sessions", "-w"]] {
        let watching = world.spawn(args);
        let handled = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", watching.pid())).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
            u64::from_str_radix(caught, 16).unwrap() & 0b10 != 0
        };
        eventually("it handles SIGINT", handled);
        signal(watching.pid(), Signal::INT);
        let ended = watching.finish();
        assert_eq!(ended.status, 130, "{args:?}: {ended:?}");
    }
}
