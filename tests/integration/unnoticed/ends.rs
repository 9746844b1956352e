//! What ends when a person leaves or ends something.

use super::scene::{Scene, comes};
use crate::common::{eventually, is_alive};

/// Returns whether the server lives across two calls. Between two calls a server that is about to
/// exit has no client.
fn lives(scene: &Scene) -> bool {
    (0..8).all(|_| scene.try_tmux(&["show-options", "-s", "exit-empty"]).status == 0)
}

pub fn exit_unattached(scene: &Scene) -> String {
    scene.session("main", "exec cat");
    let person = scene.attach("main");
    scene.tmux(&["set-option", "-s", "exit-unattached", "on"]);
    let server = scene.world.server_pid();
    scene.follow("main");
    scene.tmux(&["detach-client", "-t", &person.tty]);
    if comes(|| !is_alive(server)) { "the server has ended" } else { "the server lives" }.into()
}

pub fn exit_empty(scene: &Scene) -> String {
    scene.session("main", "exec cat");
    let server = scene.world.server_pid();
    scene.follow("main");
    scene.tmux(&["kill-session", "-t", "main"]);
    if comes(|| !is_alive(server)) { "the server has ended" } else { "the server lives" }.into()
}

pub fn exit_empty_off(scene: &Scene) -> String {
    scene.session("main", "exec cat");
    scene.tmux(&["set-option", "-s", "exit-empty", "off"]);
    scene.follow("main");
    scene.tmux(&["kill-session", "-t", "main"]);
    let empty = comes(|| scene.sessions().is_empty());
    format!("empty: {empty}, lives: {}", lives(scene))
}

pub fn destroy_unattached(scene: &Scene) -> String {
    if ["3.3a", "3.5a"].contains(&super::table::version_under_test()) {
        return "not tried: the server may crash, without muxtap too".into();
    }
    scene.session("main", "exec cat");
    scene.session("other", "exec cat");
    let person = scene.attach("main");
    scene.tmux(&["set-option", "-t", "main", "destroy-unattached", "on"]);
    scene.follow("main");
    scene.tmux(&["detach-client", "-t", &person.tty]);
    eventually("the person is out", || person.is_out());
    format!("main ends: {}", comes(|| !scene.sessions().contains("main")))
}

pub fn kill_session(scene: &Scene) -> String {
    scene.session("main", "exec cat");
    let pane = scene.session("away", "exec cat");
    let pid = scene.tmux(&["display-message", "-p", "-t", &pane, "#{pane_pid}"]).parse().unwrap();
    scene.follow("away");
    scene.tmux(&["kill-session", "-t", "away"]);
    format!("its program ends: {}", comes(|| !is_alive(pid)))
}

/// Returns the place of a person after the end of their session `m`, with this option.
fn after_the_end(scene: &Scene, value: &str, used: &str) -> String {
    scene.session("m", "exec cat");
    if scene.try_tmux(&["set-option", "-t", "m", "detach-on-destroy", value]).status != 0 {
        scene.tmux(&["kill-session", "-t", "m"]);
        return format!("{value}: unknown");
    }
    let person = scene.attach("m");
    scene.follow(used);
    scene.tmux(&["kill-session", "-t", "m"]);
    eventually("the person is elsewhere", || {
        person.is_out() || person.session().is_some_and(|session| !session.is_empty() && session != "m")
    });
    let place = person.place();
    if !person.is_out() {
        scene.tmux(&["detach-client", "-t", &person.tty]);
        eventually("the person is out", || person.is_out());
    }
    format!("{value}: {place}")
}

pub fn detach_on_destroy(scene: &Scene) -> String {
    for name in ["a", "z"] {
        scene.session(name, "exec cat");
    }
    ["on", "off", "previous", "next"].map(|value| after_the_end(scene, value, "m")).join(", ")
}

pub fn no_detached(scene: &Scene) -> String {
    scene.session("free", "exec cat");
    after_the_end(scene, "no-detached", "free")
}
