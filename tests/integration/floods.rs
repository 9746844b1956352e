//! Panes that print megabytes a second, on servers that a user's respawn of such a pane could end
//! (N98).

use muxtap::protocol::version::Version;

use crate::common::{Stopped, World, eventually};

/// Returns the number of respawns: `MUXTAP_TEST_RESPAWNS` for the long run.
fn respawns(few: usize) -> usize {
    std::env::var("MUXTAP_TEST_RESPAWNS").map_or(few, |count| count.parse().unwrap())
}

/// Returns whether this tmux dies of a respawn with a client that lags; muxtap then holds flooding
/// panes.
fn holds(world: &World) -> bool {
    let version = world.tmux(&["display-message", "-p", "#{version}"]);
    Version::parse(version.as_bytes()).unwrap().dies_of_respawns()
}

fn held(world: &World) -> u64 {
    world.metric("muxtap_floods_held_total")
}

/// Returns the number of readings of held panes.
fn readings(world: &World) -> u64 {
    world.metric("muxtap_gaps_total{reason=\"paused\"}")
}

/// Creates a window whose pane floods, is followed, and is held if this tmux needs it.
fn flooding(world: &World, command: &str) -> String {
    // The daemon starts with the first command.
    world.ok(&["list-panes"]);
    let before = held(world);
    let pane = world.window(command);
    world.ok(&["wait-for", "-t", &pane, "-p", "^y$", "--since", "start", "-T", "60"]);
    if holds(world) {
        eventually("it is held", || held(world) > before);
    }
    pane
}

#[test]
fn a_users_respawn_of_a_flooding_pane_does_not_crash_the_server() {
    let world = World::with_server();
    let pane = flooding(&world, "yes");
    for count in 0..respawns(12) {
        world.tmux(&["respawn-pane", "-k", "-t", &pane, "yes"]);
        let pid = world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_pid} #{pane_dead}"]);
        assert!(pid.ends_with(" 0"), "respawn {count}: {pid}");
    }
    // Output after the flood is followed again.
    world.tmux(&["respawn-pane", "-k", "-t", &pane, "echo; echo it is quiet; exec cat"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^it is quiet$", "--since", "start", "-T", "60"]);
    world.ok(&["send-keys", "-t", &pane, "followed again", "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^followed again$", "--since", "start", "-T", "60"]);
}

#[test]
fn a_flooding_pane_that_was_moved_or_has_ended_is_respawned_safely() {
    let world = World::with_server();
    world.session("other");
    let pane = flooding(&world, "yes");
    world.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    for count in 0..respawns(3) {
        // Keeps the pane in use, regardless of the number of rounds.
        world.ok(&["capture-pane", "-t", &pane]);
        world.tmux(&["join-pane", "-d", "-s", &pane, "-t", if count % 2 == 0 { "other:" } else { "main:" }]);
        world.tmux(&["respawn-pane", "-k", "-t", &pane, "yes"]);
        let ends = "yes | head -c 4000000";
        world.tmux(&["respawn-pane", "-k", "-t", &pane, ends]);
        let dead = || world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_dead}"]) == "1";
        eventually("its process has ended", dead);
        let before = (held(&world), readings(&world));
        world.tmux(&["respawn-pane", "-t", &pane, "yes"]);
        assert_eq!(world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_dead}"]), "0");
        // Later holds are longer and outlast the process; then reading continues. The first reading
        // may have begun before the respawn.
        if holds(&world) {
            eventually("it is held", || held(&world) > before.0 || readings(&world) > before.1 + 1);
        }
    }
    world.tmux(&["respawn-pane", "-k", "-t", &pane, "echo; echo it is quiet; exec cat"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^it is quiet$", "--since", "start", "-T", "60"]);
}

/// While the daemon is stopped, as in a debugger, no process reads tmux's output.
#[test]
fn a_persons_respawn_while_muxtap_hangs_ends_no_server() {
    let world = World::with_server();
    let pane = flooding(&world, "yes");
    for count in 0..respawns(12) {
        let stopped = Stopped::new(world.daemon_pid().unwrap());
        world.tmux(&["respawn-pane", "-k", "-t", &pane, "yes"]);
        world.tmux(&["respawn-pane", "-k", "-t", &pane, "yes"]);
        let pid = world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_pid} #{pane_dead}"]);
        assert!(pid.ends_with(" 0"), "respawn {count}: {pid}");
        drop(stopped);
        world.ok(&["list-panes"]);
    }
    world.tmux(&["respawn-pane", "-k", "-t", &pane, "echo; echo it is quiet; exec cat"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^it is quiet$", "--since", "start", "-T", "60"]);
}

#[test]
fn the_end_of_a_flood_is_seen_and_what_was_not_followed_is_a_gap() {
    let world = World::with_server();
    let pane = world.window("exec sh");
    world.ok(&["wait-for", "-t", &pane, "--prompt", "-T", "60"]);
    world.tmux(&[
        "send-keys",
        "-t",
        &pane,
        "yes a line of a flood | head -c 20000000; echo; echo over and out",
        "Enter",
    ]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^over and out$", "--since", "start", "-T", "120"]);
    let gaps = readings(&world);
    assert_eq!(gaps > 0, holds(&world), "{gaps}");
    assert_eq!(held(&world) > 0, holds(&world));
    // Output is complete from here on.
    let answer = world.json(&["run", "-t", &pane, "-T", "60", "seq 1 500"]);
    assert_eq!(answer["output"].as_str().unwrap().lines().count(), 500, "{answer}");
}

#[test]
fn a_run_that_floods_is_followed_to_its_end() {
    let world = World::with_server();
    let pane = world.window("exec sh");
    let answer = world.muxtap(&["--json", "run", "-t", &pane, "-T", "120", "yes | head -c 10000000; (exit 3)"]);
    assert_eq!(answer.json()["exit_status"], 3, "{answer:?}");
    assert_eq!(held(&world), 0);
}

#[test]
fn what_is_made_to_flood_tells_its_exit_status() {
    let world = World::with_server();
    let pane = world.ok(&["new-window", "-t", "main:", "--keep", "--", "sh", "-c", "yes | head -c 10000000; exit 5"]);
    world.ok(&["wait-for", "-t", &pane, "--exit", "-T", "120"]);
    assert_eq!(world.muxtap(&["wait-for", "-t", &pane, "--exit", "--propagate"]).status, 5);
}

#[test]
fn who_wants_all_of_a_flood_says_so() {
    let mut world = World::with_server();
    world.set("MUXTAP_FLOODS", "follow");
    let pane = world.window("seq 1 1500000; exec cat");
    world.ok(&["wait-for", "-t", &pane, "-p", "^1500000$", "--since", "start", "-T", "120"]);
    assert_eq!(held(&world), 0);
}

#[test]
fn a_pane_that_floods_is_not_quiet() {
    let world = World::with_server();
    let pane = flooding(&world, "yes");
    let quiet = world.muxtap(&["wait-for", "-t", &pane, "--stable", "0.3", "-T", "3"]);
    assert_eq!(quiet.status, 124, "{quiet:?}");
    world.tmux(&["respawn-pane", "-k", "-t", &pane, "exec cat"]);
    world.ok(&["wait-for", "-t", &pane, "--stable", "0.3", "-T", "60"]);
}

#[test]
fn what_tmux_kept_of_a_flood_that_ends_is_read() {
    let world = World::with_server();
    world.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    let pane = world.window("seq 1 2000000");
    world.ok(&["wait-for", "-t", &pane, "--exit", "-T", "120"]);
    assert_eq!(held(&world) > 0, holds(&world));
    // tmux itself drops unread output when a process ends (F9).
    let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
    let last = shown.lines().rfind(|line| line.parse::<u32>().is_ok()).unwrap();
    world.ok(&["wait-for", "-t", &pane, "-p", &format!("^{last}$"), "--since", "start"]);
}
