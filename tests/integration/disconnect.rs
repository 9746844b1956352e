//! Callers that disconnect in the middle of a request: nothing is left half done, and nothing is
//! held for a gone caller.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use crate::common::{Stopped, World, eventually, run, tmux_program};
use serde_json::json;

fn waits(world: &World) -> u64 {
    world.http("GET", "/v1/status", None).json()["waits"].as_u64().unwrap()
}

/// Waits until the daemon has noticed a disconnection: it handles events in order, so a response
/// means that it has.
fn noticed(world: &World) {
    for _ in 0..3 {
        assert_eq!(world.http("GET", "/health", None).status, 200);
    }
}

/// Makes muxtap run a tmux that, before each call with `word` among its words, creates `asked` and
/// waits for the file `go`.
fn slow_tmux(world: &mut World, word: &str) -> (PathBuf, PathBuf) {
    let (slow, asked, go) = (world.path("slow-tmux"), world.path("asked"), world.path("go"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *{word}*) : > {}; until [ -e {} ]; do sleep 0.02; done;; esac\nexec {} \"$@\"\n",
        asked.display(),
        go.display(),
        tmux_program()
    );
    fs::write(&slow, script).unwrap();
    fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
    world.set("MUXTAP_TMUX", slow.display().to_string());
    world.set("MUXTAP_OWN_TMUX", "false");
    (asked, go)
}

#[test]
fn a_wait_that_could_not_begin_before_its_caller_left_is_closed() {
    let world = World::with_server();
    // A string that has not ended: the screen is unknown without asking tmux.
    let open = "printf 'ready\\033]2;a title without an end'; exec cat";
    let pane = world.window(open);
    world.await_output(&pane, "^ready");
    let panes = world.panes();
    let stopped = Stopped::new(world.server_pid());
    let request = json!({"panes": [pane], "patterns": ["x"], "since": "screen", "timeout_ms": 40_000});
    let client = world.http_send("POST", &format!("/v1/waits{}", world.query()), Some(&request));
    eventually("the wait looks at the screen", || waits(&world) == 1);
    drop(client);
    eventually("its place is free again", || waits(&world) == 0);
    assert_eq!(world.metric("muxtap_waits_active"), 0);
    drop(stopped);
    assert_eq!(world.panes(), panes);
}

#[test]
fn what_is_being_made_when_its_caller_leaves_is_made_to_the_end() {
    let mut world = World::with_server();
    // The client that creates the session waits for `go`.
    let (asked, go) = slow_tmux(&mut world, "new-sessio");
    assert_eq!(world.sessions(), ["main"]);
    let done = world.path("done");
    let command = format!("echo ran > {}; exec cat", done.display());
    let request = json!({"name": "made", "command": [command]});
    let client = world.http_send("POST", &format!("/v1/sessions{}", world.query()), Some(&request));
    eventually("tmux is asked", || asked.exists());
    drop(client);
    noticed(&world);
    fs::write(&go, "").unwrap();
    eventually("the command took the placeholder's place", || done.exists());
    assert_eq!(world.sessions(), ["made", "main"]);
}

/// Text to be pasted into a pane that has just ended is not left on the server, where every client
/// could see it.
#[test]
fn a_paste_that_fails_leaves_no_buffer() {
    let world = World::with_server();
    let pane = world.ok(&["new-window", "-t", "main", "--", "exec cat"]);
    let number = pane.trim_start_matches('%');
    let stopped = Stopped::new(world.server_pid());
    let asked = || world.metric("muxtap_tmux_commands_total");
    let before = asked();
    let kill = world.http_send("DELETE", &format!("/v1/panes/{number}{}", world.query()), None);
    eventually("tmux is asked to end the pane", || asked() > before);
    // The request uses the pane's last known state; its turn comes after the pane's end.
    let request = json!({"text": "secret ".repeat(100_000)});
    let paste = world.http_send("POST", &format!("/v1/panes/{number}/input{}", world.query()), Some(&request));
    noticed(&world);
    drop(stopped);
    for mut answer in [kill, paste] {
        std::io::Read::read_to_end(&mut answer, &mut Vec::new()).unwrap();
    }
    eventually("no buffer is left", || world.tmux(&["list-buffers", "-F", "#{buffer_name}"]).is_empty());
}

#[test]
fn no_server_is_started_for_a_caller_that_left() {
    let mut world = World::new();
    let (asked, go) = slow_tmux(&mut world, "-V");
    fs::write(&go, "").unwrap();
    // The tmux program is identified once for each server.
    let other = world.path("other");
    let asked_of_other = run(world.plain_muxtap_command().arg("--json").arg("-S").arg(other).arg("list-panes"));
    assert_eq!(asked_of_other.error()["code"], "TMUX_UNAVAILABLE");
    fs::remove_file(&go).unwrap();
    fs::remove_file(&asked).unwrap();
    let path = format!("/v1/sessions{}", world.query());
    let client = world.http_send("POST", &path, Some(&json!({"name": "made"})));
    eventually("a server is looked for", || asked.exists());
    drop(client);
    noticed(&world);
    fs::write(&go, "").unwrap();
    // The response comes once that check has ended.
    assert_eq!(world.http("GET", &path, None).json()["code"], "TMUX_UNAVAILABLE");
    assert!(!world.socket().exists(), "no server was started");
}
