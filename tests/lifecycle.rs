//! How the daemon, the tmux server and what is in it come and go.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by panicking"
)]

mod common;

use common::World;

#[test]
fn a_session_where_no_server_runs() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "work"]);
    assert_eq!(world.sessions(), ["work"]);
    assert_eq!(world.panes(), [pane]);
}

#[test]
fn a_server_that_is_there_is_followed() {
    let world = World::with_server();
    assert_eq!(world.sessions(), ["main"]);
    world.tmux(&["send-keys", "-t", "main", "echo he''llo", "Enter"]);
    world.await_output("main", "^hello");
}
