//! Limits of agent sessions, and what remains of one that is killed.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Session, world};
use crate::common::{ProcessEnd, eventually};

#[test]
fn a_first_prompt_needs_the_input_tier() {
    let mut world = world();
    world.set("MUXTAP_DENY", "input");
    let refused = Session::ask(&world, &json!({"prompt": "say hello"}));
    assert_eq!(refused["code"], "READ_ONLY", "{refused}");
    assert_eq!(world.json(&["agent-session", "list"])["sessions"], json!([]));
    let session = Session::new(&world);
    assert_eq!(session.post("/prompts", &json!({"text": "say x"}))["code"], "READ_ONLY");
    session.kill();
}

/// Its own terminals are closed with it, regardless of the callers' tier.
#[test]
fn an_agents_terminals_close_with_it_even_if_no_caller_may_kill() {
    let mut world = world();
    world.set("MUXTAP_DENY", "kill");
    let session = Session::new(&world);
    session.outcome("open exec sleep 1000");
    let other = world.ok(&["new-session", "-s", "mine"]);
    assert_eq!(world.panes().len(), 2);
    assert_eq!(session.post("/prompts", &json!({"text": "exit 0"}))["prompt"], 2);
    assert_eq!(session.wait(&json!({"exit": true}))["outcome"], "matched");
    assert_eq!(world.panes(), [other]);
}

#[test]
fn only_one_of_two_concurrent_resumes_of_a_session_succeeds() {
    let world = world();
    // The first agent stays silent, so its session keeps opening while it lives.
    let first = json!({"resume": "once", "env": {"ACP_START": "silent"}});
    std::thread::scope(|scope| {
        let first = scope.spawn(|| Session::ask(&world, &first));
        let agents = || {
            let all = world.processes().into_iter();
            all.filter(|(_, command)| command.contains("acp_agent.py")).map(|(pid, _)| pid).collect::<Vec<_>>()
        };
        eventually("the first one begins", || agents().len() == 1);
        let second = Session::ask(&world, &json!({"resume": "once"}));
        assert_eq!(second["code"], "CONFLICT", "{second}");
        assert!(second["message"].as_str().unwrap().contains("being opened"), "{second}");
        let left = agents();
        assert_eq!(left.len(), 1, "no second agent was started");
        crate::common::signal(left[0], Signal::KILL);
        assert_eq!(first.join().unwrap()["code"], "CONFLICT");
    });
    // The name is free now.
    Session::with(&world, &json!({"resume": "once"})).kill();
}

/// SIGKILL leaves a daemon no time; another process ends what remains.
#[test]
fn a_daemon_that_is_killed_leaves_no_agent() {
    let world = world();
    let session = Session::new(&world);
    assert_eq!(session.outcome("spawn"), "end_turn");
    let child = session.said().trim().rsplit(' ').next().unwrap().parse::<u32>().unwrap();
    // An agent that no longer reads its input.
    session.send("deaf");
    eventually("it is deaf", || session.get("")["status"] == "running");
    let (agent, child) = (ProcessEnd::of(session.pid), ProcessEnd::of(child));
    world.kill_daemon(Signal::KILL);
    agent.wait();
    child.wait();
    assert_eq!(world.json(&["agent-session", "list"])["sessions"], Value::Array(Vec::new()));
}
