//! Lists, windows, and the screen, as a person sees them.

use super::scene::{Scene, Terminal};
use crate::common::{eventually, run};

/// Creates a person in `main`, which has two windows, and a session `away`, a pane of which muxtap
/// uses.
fn two_sessions(scene: &Scene) -> Terminal<'_> {
    scene.session("main", "exec cat");
    scene.window("main", "two", "exec cat");
    scene.session("away", "exec cat");
    let person = scene.attach("main");
    scene.follow("away");
    person
}

pub fn choose_tree(scene: &Scene) -> String {
    let person = two_sessions(scene);
    scene.tmux(&["choose-tree", "-s", "-N", "-t", "main:"]);
    eventually("the tree is shown", || person.screen().contains("main:") && person.screen().contains("away:"));
    person.screen().lines().filter(|line| line.contains(": ")).map(|line| format!("{}\n", line.trim_end())).collect()
}

pub fn sessions(scene: &Scene) -> String {
    let _person = two_sessions(scene);
    let listed = scene.tmux(&["list-sessions"]);
    // Without the times.
    let without = |line: &str| match (line.split_once(" (created "), line.split_once(')')) {
        (Some((before, _)), Some((_, after))) => format!("{before}{after}\n"),
        _ => format!("{line}\n"),
    };
    listed.lines().map(without).collect()
}

pub fn panes(scene: &Scene) -> String {
    let _person = two_sessions(scene);
    let format =
        "#{session_name}:#{window_index}.#{pane_index}: [#{pane_width}x#{pane_height}] #{pane_id} #{pane_active}";
    scene.tmux(&["list-panes", "-a", "-F", format])
}

pub fn clients(scene: &Scene) -> String {
    let _person = two_sessions(scene);
    scene.tmux(&["list-clients", "-F", "#{client_session}"])
}

pub fn status_line(scene: &Scene) -> String {
    scene.session("main", "exec cat");
    scene.window("main", "two", "exec cat");
    scene.tmux(&["set-option", "-g", "status-right", "#{client_session} #{session_windows}"]);
    let person = scene.attach("main");
    scene.follow("main");
    // The line is redrawn.
    scene.tmux(&["rename-window", "-t", "main:two", "second"]);
    eventually("the new name is shown", || person.screen().contains("second"));
    person.screen().lines().last().unwrap().to_owned()
}

pub fn configuration_errors(scene: &Scene) -> String {
    let file = scene.world.path("tmux.conf");
    let sessions = ["main", "away"].map(|name| format!("new-session -d -s {name} -n one -x 80 -y 24 'exec cat'\n"));
    std::fs::write(&file, format!("set-option -g no-such-option on\n{}", sessions.concat())).unwrap();
    let mut start = scene.world.command(crate::common::tmux_program());
    let start = run(start.arg("-u").arg("-f").arg(&file).arg("-S").arg(scene.world.socket()).arg("start-server"));
    assert_eq!(start.status, 0, "{start:?}");
    eventually("the sessions are made", || scene.sessions() == "away main");
    scene.follow("away");
    let person = scene.attach("main");
    let modes =
        scene.tmux(&["list-panes", "-a", "-f", "#{?#{m:_muxtap*,#{session_name}},0,1}", "-F", "#S:#{pane_mode}"]);
    let shown = person.screen().contains("no-such-option");
    format!("shown to the person: {shown}, {}", modes.replace('\n', " "))
}

pub fn unlink_window(scene: &Scene) -> String {
    let _person = two_sessions(scene);
    let unlinked = scene.try_tmux(&["unlink-window", "-t", "main:two"]);
    format!("{} {}", unlinked.status, unlinked.stderr)
}

pub fn sizes(scene: &Scene) -> String {
    let person = two_sessions(scene);
    scene.tmux(&["new-session", "-d", "-s", "wide", "-n", "one", "-x", "120", "-y", "40", "exec cat"]);
    scene.follow("wide");
    person.resize("90", "20");
    let width = || scene.tmux(&["display-message", "-p", "-t", "main:", "#{window_width}"]);
    eventually("the window has the terminal's width", || width() == "90");
    let format = "#{window_width}x#{window_height}";
    ["main", "away", "wide"].map(|session| scene.tmux(&["list-windows", "-t", session, "-F", format])).join("; ")
}

pub fn next_session(scene: &Scene) -> String {
    let _person = two_sessions(scene);
    scene.leave();
    scene.tmux(&["new-session", "-d", "-P", "-F", "#{session_name} #{session_id} #{window_id} #{pane_id}", "exec cat"])
}

pub fn next_session_with_hooks(scene: &Scene) -> String {
    scene.session("first", "exec cat");
    scene.tmux(&["set-hook", "-g", "client-attached", "set-option -g -a @any x"]);
    next_session(scene)
}
