//! A command in a new pane or window.

use serde_json::Value;

use crate::common::{World, eventually, signal};

#[test]
fn a_command_has_a_pane_of_its_own_which_goes_with_it() {
    let world = World::with_server();
    let before = world.panes();
    let args = ["run", "--new-pane", "-t", "%0", "-e", "WHO=me", "--", "sh", "-c", "seq 3; echo $WHO; pwd; exit 7"];
    let ran = world.muxtap(&args);
    let here = world.path("work");
    assert_eq!(
        (ran.status, ran.text().as_str()),
        (7, format!("1\n2\n3\nme\n{}\n", here.display()).as_str()),
        "{ran:?}"
    );
    assert_eq!(world.panes(), before, "nothing stays");
    // One word is a shell command line, which options may follow; -c is its directory.
    let window = world.json(&["run", "--json", "--new-window", "-t", "main:", "-c", "/", "pwd | tr / x"]);
    assert_eq!((&window["output"], &window["exit_status"]), (&"x\n".into(), &0.into()), "{window}");
    assert_eq!(world.panes(), before, "nothing stays");
    assert_eq!(world.muxtap(&["run", "--new-window", "-t", "main:", "kill -TERM $$"]).status, 128 + 15);
    // Long output is complete.
    let much = world.muxtap(&["run", "--new-window", "-t", "main:", "seq 100000"]);
    assert_eq!((much.status, much.text().lines().count()), (0, 100_000));
}

#[test]
fn a_command_in_its_own_pane_that_takes_too_long_goes_on() {
    let world = World::with_server();
    let ran = world.muxtap(&["run", "--new-pane", "-t", "%0", "-T", "2", "echo begun; exec cat"]);
    assert_eq!((ran.status, ran.text().as_str()), (124, "begun\n"), "{ran:?}");
    let pane = world.panes().into_iter().find(|pane| pane != "%0").unwrap();
    assert!(ran.stderr.contains(&format!("the command continues in pane {pane}")), "{}", ran.stderr);
    world.ok(&["send-keys", "-t", &pane, "C-d"]);
    world.ok(&["wait-for", "-t", &pane, "--exit", "--since", "start", "-T", "30"]);
}

#[test]
fn ctrl_c_reaches_a_command_in_its_own_pane() {
    let world = World::with_server();
    let script = "trap 'echo told; exit 9' INT; echo begun; while :; do sleep 0.1; done";
    let run = world.spawn(&["run", "--new-pane", "-t", "%0", "-T", "60", script]);
    eventually("a pane that has begun", || {
        let pane = world.panes().into_iter().find(|pane| pane != "%0");
        pane.is_some_and(|pane| world.ok(&["read", "-t", &pane, "--since", "start"]).contains("begun"))
    });
    signal(run.pid(), rustix::process::Signal::INT);
    let ran = run.finish();
    assert_eq!((ran.status, ran.text().as_str()), (9, "begun\n^Ctold\n"), "{ran:?}");
}

#[test]
fn a_pane_of_its_own_may_stay_and_needs_a_place() {
    let world = World::with_server();
    assert_eq!(world.muxtap(&["run", "--new-pane", "--keep", "-t", "%0", "echo stays"]).text(), "stays\n");
    let list: Value = world.json(&["list-panes", "--json"]);
    let kept = list["panes"].as_array().unwrap().iter().find(|pane| pane["id"] != "%0").unwrap();
    assert_eq!(kept["dead"], true, "{kept}");
    for (args, said) in [
        (&["run", "-t", "%0", "-c", "/", "--", "true", "x"][..], "--new-pane or --new-window"),
        (&["run", "--new-pane", "--clear-line", "-t", "%0", "true"], "no typed text"),
        (&["run", "--new-pane", "true"], "-t"),
        (&["run", "--new-pane", "-t", "%77", "true"], "%77"),
        (&["run", "--new-pane", "-t", "%0", "-c", "/nowhere", "true"], "/nowhere"),
    ] {
        let wrong = world.muxtap(args);
        assert!(matches!(wrong.status, 1 | 2) && wrong.stderr.contains(said), "{args:?}: {wrong:?}");
    }
}

#[test]
fn a_daemon_that_is_stopped_leaves_the_command_and_says_where_it_is() {
    let world = World::with_server();
    let run = world.spawn(&["run", "--new-pane", "-t", "%0", "-T", "60", "echo begun; exec cat"]);
    eventually("a pane of its own", || world.panes().len() == 2);
    let pane = world.panes().into_iter().find(|pane| pane != "%0").unwrap();
    eventually("it is waited for", || world.metric("muxtap_waits_active") == 1);
    world.ok(&["stop"]);
    let ran = run.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stderr.contains(&format!("unknown how the command in pane {pane} ended")), "{ran:?}");
    assert!(world.daemon_pid().is_none(), "none is started after one that was stopped");
    assert!(world.tmux(&["list-panes", "-a", "-F", "#{pane_id}"]).contains(&pane));
}
