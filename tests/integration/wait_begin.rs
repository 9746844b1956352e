//! The beginning of a wait, earlier output, and what the response says about it.

use serde_json::{Value, json};

use crate::common::{World, run};

/// Prints `ready` and then its input.
const READY: &str = "echo ready; exec cat";

/// Returns a wait's whole response and exit status.
fn waited(world: &World, args: &[&str]) -> (Value, i32) {
    let answer = world.muxtap(&[&["--json", "wait-for"], args].concat());
    assert!([0, 3, 124].contains(&answer.status), "{args:?}: {answer:?}");
    (answer.json(), answer.status)
}

/// Returns when the pane shows this text, without using muxtap's waits.
fn shows(world: &World, pane: &str, text: &str) {
    crate::common::eventually(&format!("{pane} shows {text}"), || {
        world.tmux(&["capture-pane", "-p", "-t", pane]).lines().any(|line| line == text)
    });
}

fn since(world: &World, pane: &str) -> String {
    world.json(&["read", "-t", pane])["text"].as_str().unwrap().to_owned()
}

#[test]
fn on_a_pane_that_muxtap_made_nothing_is_missed() {
    let world = World::new();
    let first = world.ok(&["new-session", "-s", "work", "--", "sh", "-c", READY]);
    let makes: [&[&str]; 3] = [&["new-window", "-t", "work"], &["split-window", "-t", "work"], &["new-session"]];
    let made = makes.iter().map(|make| world.ok(&[make, &["--", "sh", "-c", READY][..]].concat()));
    for pane in std::iter::once(first).chain(made).collect::<Vec<_>>() {
        shows(&world, &pane, "ready");
        assert_eq!(since(&world, &pane), "ready\n");
        let (answer, status) = waited(&world, &["-t", &pane, "-p", "^ready$", "-T", "20"]);
        let hit = &answer["predicates"][0];
        assert_eq!((status, &hit["before"], &hit["after_ms"]), (0, &true.into(), &0.0.into()), "{answer}");
        // A wait has matched the line already; reads are not affected.
        let (answer, status) = waited(&world, &["-t", &pane, "-p", "^ready$", "-T", "0.2"]);
        assert_eq!((status, &answer["outcome"]), (124, &"timeout".into()), "{answer}");
        assert_eq!(since(&world, &pane), "ready\n");
        // After the pane's first input a wait begins at that input.
        world.ok(&["send-keys", "-t", &pane, "more", "Enter"]);
        let (answer, status) = waited(&world, &["-t", &pane, "-p", "r[e]ady", "-T", "0.2"]);
        assert_eq!(status, 124, "{answer}");
        assert_eq!(waited(&world, &["-t", &pane, "-p", "^more$", "-T", "20"]).1, 0);
        assert_eq!(since(&world, &pane), "more\nmore\n");
        // A respawned program begins anew.
        world.ok(&["respawn-pane", "-k", "-t", &pane, "--", "sh", "-c", "echo anew; exec cat"]);
        shows(&world, &pane, "anew");
        assert!(since(&world, &pane).ends_with("anew\n") && !since(&world, &pane).contains("more"));
        let (answer, status) = waited(&world, &["-t", &pane, "-p", "^anew$", "-T", "20"]);
        assert_eq!((status, &answer["predicates"][0]["before"]), (0, &true.into()), "{answer}");
        assert_eq!(waited(&world, &["-t", &pane, "-p", "^(ready|more)$", "-T", "0.2"]).1, 124);
    }
    // A prompt too: the shell may have printed it long ago.
    let shell = world.ok(&["new-window", "-t", "work"]);
    let prompt = || world.tmux(&["capture-pane", "-p", "-t", &shell]);
    crate::common::eventually("the shell shows its prompt", || prompt().contains(['$', '#']));
    let (answer, status) = waited(&world, &["-t", &shell, "--stable", "0.1", "-p", "[$#] $", "-T", "20"]);
    assert_eq!(status, 0, "{answer}");
}

#[test]
fn a_pane_of_others_without_input_begins_now_and_the_answer_says_what_stood_there() {
    let world = World::with_server();
    let pane = world.window("echo one ready; exec cat");
    // Followed from here on.
    world.await_output(&pane, "one r[e]ady");
    assert_eq!(since(&world, &pane), "one ready\n", "a read begins with what is kept");
    let (answer, status) = waited(&world, &["-t", &pane, "-p", "ready", "-p", "nothing", "-T", "0.2"]);
    assert_eq!(status, 124, "{answer}");
    let [ready, nothing] = answer["predicates"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    let stands = &ready["stands_before"];
    assert_eq!((&stands["line"], &stands["offset"]), (&"one ready".into(), &4.into()), "{answer}");
    assert_eq!(nothing.get("stands_before"), None, "{answer}");
    // A wait with the `since` of the response counts it.
    let counted = stands["since"].as_str().unwrap();
    let followed = world.http("GET", &format!("/v1/panes/{}/capture{}", pane.replace('%', ""), world.query()), None);
    let expected = if followed.json()["source"] == "model" { "screen" } else { "start" };
    assert_eq!(counted, expected, "{answer}");
    assert_eq!(waited(&world, &["-t", &pane, "-p", "ready", "--since", counted, "-T", "20"]).1, 0);
    let told = world.muxtap(&["wait-for", "-t", &pane, "-p", "ready", "-T", "0.2"]);
    let expected = format!("(it was there before the wait: `one ready`; --since {counted} counts it)");
    assert!(told.stderr.contains(&expected), "{told:?}");
    // The last such line counts; when it has left the screen, it is in the output.
    let many = (0..40).map(|n| format!("line {n}\n")).collect::<String>();
    std::fs::write(world.path("work/many"), format!("two ready\n{many}")).unwrap();
    world.tmux(&["respawn-pane", "-k", "-t", &pane, "cat many; exec cat"]);
    shows(&world, &pane, "line 39");
    world.await_output(&pane, "line 39");
    let (answer, _) = waited(&world, &["-t", &pane, "-p", "rea[d]y", "-T", "0.2"]);
    let stands = &answer["predicates"][0]["stands_before"];
    assert_eq!((&stands["line"], &stands["since"]), (&"two ready".into(), &"start".into()), "{answer}");
    // With several panes each has its own result.
    let body = json!({"panes": [pane, "main:0"], "patterns": ["rea[d]y"], "timeout_ms": 200});
    let answer = world.http("POST", &format!("/v1/waits{}", world.query()), Some(&body)).json();
    assert_eq!(answer["outcome"], "timeout");
    assert_eq!(answer["predicates"][0]["stands_before"]["line"], "two ready", "{answer}");
    assert_eq!(answer["predicates"][1].get("stands_before"), None, "{answer}");
}

#[test]
fn what_was_typed_and_what_came_in_time_is_not_said_to_stand_there() {
    let world = World::new();
    let pane = world.ok(&["new-session", "--", "cat"]);
    // Only its echo; `cat` prints a line when it ends.
    world.ok(&["send-keys", "-t", &pane, "word"]);
    shows(&world, &pane, "word");
    let (answer, status) = waited(&world, &["-t", &pane, "-p", "word", "--since", "now", "-T", "0.2"]);
    assert_eq!((status, answer["predicates"][0].get("stands_before")), (124, None), "{answer}");
    // Of two predicates, the satisfied one has no such note.
    world.ok(&["send-keys", "-t", &pane, "Enter"]);
    let (answer, _) = waited(&world, &["-t", &pane, "-p", "^word$", "-p", "never", "-T", "0.5"]);
    assert_eq!(answer["predicates"][0]["latched"], true, "{answer}");
    assert_eq!(answer["predicates"][0].get("stands_before"), None, "{answer}");
}

#[test]
fn what_stood_on_the_screen_was_there_before() {
    let world = World::with_server();
    let pane = world.window("echo ready; exec cat");
    world.await_output(&pane, "r[e]ady");
    let (answer, status) = waited(&world, &["-t", &pane, "-p", "^ready$", "--since", "screen", "-T", "20"]);
    let hit = &answer["predicates"][0];
    assert_eq!((status, &hit["before"], &hit["after_ms"]), (0, &true.into(), &0.0.into()), "{answer}");
    // Later output was not on the screen.
    let waiting = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "^later$", "--since", "screen", "-T", "20"]);
    crate::common::eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    world.tmux(&["send-keys", "-t", &pane, "later", "Enter"]);
    let answer = waiting.finish().json();
    let hit = &answer["predicates"][0];
    assert_eq!(hit.get("before"), None, "{answer}");
    assert!(hit["after_ms"].as_f64().unwrap() > 0.0, "{answer}");
    // A bell between an input and the wait rang before the wait.
    world.ok(&["send-keys", "-t", &pane, "-H", "07", "0a"]);
    crate::common::eventually("it rang", || world.read_all(&pane).ends_with("\n\n"));
    let (answer, _) = waited(&world, &["-t", &pane, "--bell", "-T", "20"]);
    let hit = &answer["predicates"][0];
    assert_eq!((&hit["before"], &hit["after_ms"]), (&true.into(), &0.0.into()), "{answer}");
}

/// A ring of many megabytes, full of matches, does not delay the response.
#[test]
fn a_timeout_is_answered_however_much_stands_there() {
    let mut world = World::new();
    world.set("MUXTAP_RING_BYTES", "64M");
    world.session("main");
    let flood = "yes 'é ready or not, here I come' | head -c 20000000; echo; echo end; exec cat";
    let pane = world.window(flood);
    world.await_output(&pane, "^end$");
    let args =
        ["--json", "wait-for", "-t", &pane, "-p", "e", "-p", r"(?s)\bready.{1,200}zzz", "-p", r"\w+", "-T", "0.1"];
    let answer = run(&mut world.muxtap_command(&args));
    assert_eq!(answer.status, 124, "{answer:?}");
    assert_eq!(answer.json()["predicates"][1].get("stands_before"), None, "{answer:?}");
}
