//! Agent sessions go on in the daemon that takes over (`docs/upgrade.md`).
#![cfg(target_os = "linux")]

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Session, world};
use crate::{
    common::{Http, ProcessEnd, World, eventually},
    subscribers::Sse,
    upgrade_record::leaves_after,
};

/// Upgrades, and returns the process that has taken over.
fn upgrade(world: &World) -> u32 {
    let before = world.daemon_pid();
    world.ok(&["upgrade"]);
    let after = world.daemon_pid();
    assert!(after.is_some() && after != before, "{before:?} {after:?}");
    after.unwrap()
}

/// Checks that the agent has counted from 0, each number once, and returns how far.
fn counted(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let (last, counted) = lines.split_last().unwrap();
    let wrong = counted.iter().enumerate().find(|(at, line)| **line != format!("line {at}"));
    assert_eq!(wrong, None);
    assert_eq!(*last, format!("{} lines", counted.len()));
    counted.len()
}

/// Waits until the agent has counted this far in its last prompt.
fn await_line(session: &Session, line: usize) {
    let waited = session.wait(&json!({"patterns": [format!("line {line}$")], "timeout_ms": 300_000}));
    assert_eq!(waited["outcome"], "matched", "{waited}");
}

/// T50, T55.
#[test]
fn an_idle_session_goes_on_over_three_upgrades() {
    let world = world();
    let session = Session::new(&world);
    assert_eq!(session.outcome("say hello\ntool ls\nspawn"), "end_turn");
    let child = session.said().trim().rsplit(' ').next().unwrap().parse::<u32>().unwrap();
    let page = session.get("/events?since=start&limit=1024");
    let ended = Session::with(&world, &json!({"env": {"ACP_ID": "over"}}));
    assert_eq!(ended.outcome("say x"), "end_turn");
    let ended_info = ended.kill();
    for _ in 0..3 {
        upgrade(&world);
        assert_eq!(session.get("/events?since=start&limit=1024"), page);
    }
    assert_eq!(ended.get(""), ended_info);
    assert_eq!(ended.events("").len(), 5, "its events can be read");
    let info = session.get("");
    assert_eq!((&info["status"], info["pid"].as_u64()), (&"idle".into(), Some(session.pid.into())), "{info}");
    assert_eq!(session.outcome("say again"), "end_turn");
    let after = session.get(&format!("/events?since={}", page["cursor"].as_str().unwrap()));
    assert_eq!((&after["gap"], &after["events"][0]["event"]["prompt"]), (&Value::Null, &json!(2)), "{after}");
    assert_eq!(session.said(), "again");
    // A further agent of the daemon that has taken over.
    let next = Session::new(&world);
    assert_eq!(next.outcome("say next"), "end_turn");
    let (agent, child, next) = (ProcessEnd::of(session.pid), ProcessEnd::of(child), ProcessEnd::of(next.pid));
    let killed = session.kill();
    assert_eq!((&killed["status"], &killed["exit_signal"]), (&"ended".into(), &Value::Null), "{killed}");
    agent.wait();
    child.wait();
    world.ok(&["stop"]);
    next.wait();
}

/// T55: the guard of the first daemon serves the last one.
#[test]
fn a_daemon_that_is_killed_after_an_upgrade_leaves_no_agent() {
    let world = world();
    let session = Session::new(&world);
    assert_eq!(session.outcome("spawn"), "end_turn");
    let child = session.said().trim().rsplit(' ').next().unwrap().parse::<u32>().unwrap();
    upgrade(&world);
    upgrade(&world);
    assert_eq!(session.outcome("say x"), "end_turn");
    let (agent, child) = (ProcessEnd::of(session.pid), ProcessEnd::of(child));
    world.kill_daemon(Signal::KILL);
    agent.wait();
    child.wait();
}

/// T50, T51, T54.
#[test]
fn a_turn_that_streams_while_the_daemon_is_replaced_has_each_event_once() {
    let world = world();
    let session = Session::new(&world);
    let done = world.path("done");
    let prompt = session.send(&format!("until {}\nsay over", done.display()));
    let queued = session.send("say queued");
    for round in 1..4 {
        await_line(&session, 5 * round);
        upgrade(&world);
    }
    await_line(&session, 40);
    fs::write(&done, "").unwrap();
    assert_eq!(session.wait(&json!({"idle": true, "timeout_ms": 300_000}))["outcome"], "matched");
    let events = session.events("since=start");
    let text: String = events
        .iter()
        .filter(|entry| entry["event"]["type"] == "message")
        .map(|entry| entry["event"]["text"].as_str().unwrap())
        .collect();
    assert!(counted(text.strip_suffix("overqueued").unwrap()) > 40);
    assert_eq!(session.outcomes(), [(prompt, "end_turn".to_owned()), (queued, "end_turn".to_owned())].into());
    assert!(!session.kinds("since=start").contains(&"fault".to_owned()));
    session.kill();
}

/// T52, T53, T58.
#[test]
fn questions_and_requests_that_are_open_are_answered_after_an_upgrade() {
    let world = world();
    let session = Session::new(&world);
    let first = session.send("ask build");
    let question = session.question();
    let before = session.get("/questions");
    let open = || world.http("GET", "/v1/approvals", None).json()["approvals"].as_array().unwrap().len();
    let shown = open();
    upgrade(&world);
    assert_eq!(session.get("/questions"), before);
    assert_eq!((open(), shown), (1, 1), "it is shown once");
    let answer = session.post(&format!("/questions/{question}"), &json!({"option": "yes"}));
    assert_eq!(answer["ok"], true, "{answer}");
    let again = session.post(&format!("/questions/{question}"), &json!({"option": "no"}));
    assert_eq!(again["code"], "CONFLICT", "{again}");
    assert_eq!(session.wait(&json!({"idle": true}))["outcome"], "matched");
    assert_eq!((session.outcomes()[&first].as_str(), session.said().as_str()), ("end_turn", "selected yes\n"));
    // A terminal's end, of which the agent is waiting.
    let done = world.path("done");
    session.send(&format!("run while [ ! -e {} ]; do sleep 0.05; done; echo $GIVEN; exit 3", done.display()));
    eventually("it has a terminal", || !session.get("")["terminals"].as_array().unwrap().is_empty());
    upgrade(&world);
    fs::write(&done, "").unwrap();
    assert_eq!(session.wait(&json!({"idle": true}))["outcome"], "matched");
    let said = session.said();
    assert!(said.contains("by env") && said.contains("\"exitCode\": 3"), "{said}");
    session.kill();
}

/// T54: the agent has read half of a line.
#[test]
fn a_line_that_is_half_written_is_completed_by_the_next_daemon() {
    let world = world();
    let session = Session::new(&world);
    let (big, flag) = (world.path("work/big"), world.path("flag"));
    fs::write(&big, "x".repeat(1 << 20)).unwrap();
    session.send(&format!("read-late {} {}", big.display(), flag.display()));
    assert_eq!(session.wait(&json!({"patterns": ["asked"]}))["outcome"], "matched");
    upgrade(&world);
    upgrade(&world);
    fs::write(&flag, "").unwrap();
    assert_eq!(session.wait(&json!({"idle": true}))["outcome"], "matched");
    assert_eq!(session.said(), format!("asked\n{}\n", 1 << 20));
    session.kill();
}

#[test]
fn an_agent_that_ends_while_the_daemon_is_replaced_has_one_end() {
    let world = world();
    for round in 0..3 {
        let session = Session::new(&world);
        let done = world.path(&format!("done-{round}"));
        let prompt = session.send(&format!("until {}\nexit 5", done.display()));
        await_line(&session, 5);
        match round {
            // Before, at some moment of it, and after.
            0 => fs::write(&done, "").unwrap(),
            1 => {
                let upgrading = world.spawn(&["upgrade"]);
                fs::write(&done, "").unwrap();
                assert_eq!(upgrading.finish().status, 0);
            }
            _ => {}
        }
        upgrade(&world);
        fs::write(&done, "").unwrap();
        assert_eq!(session.wait(&json!({"exit": true}))["outcome"], "matched");
        assert_eq!(session.outcomes(), [(prompt, "agent_exited".to_owned())].into(), "{round}");
        let kinds = session.kinds("since=start");
        assert_eq!(kinds.iter().filter(|kind| *kind == "exited").count(), 1, "{kinds:?}");
        counted(&session.said());
    }
    assert!(!world.processes().iter().any(|(_, line)| line.contains("acp_agent")));
}

/// T56.
#[test]
fn a_session_goes_on_if_the_next_daemon_does_not_take_over() {
    let world = world();
    let session = Session::new(&world);
    let done = world.path("done");
    session.send(&format!("until {}", done.display()));
    let pid = world.daemon_pid();
    let mut stream = Sse::of(&world, &session.path("/stream?since=start"), None).unwrap();
    for (round, (name, last)) in [("before", ""), ("after", "files; say 04; msg >/dev/null")].into_iter().enumerate() {
        await_line(&session, 5 * (round + 1));
        let answer = world.muxtap(&["upgrade", "--program", &leaves_after(&world, name, last)]);
        assert!(answer.stderr.contains("exit status: 7"), "{answer:?}");
        assert_eq!(world.daemon_pid(), pid);
    }
    await_line(&session, 40);
    fs::write(&done, "").unwrap();
    assert_eq!(session.wait(&json!({"idle": true}))["outcome"], "matched");
    assert!(counted(&session.said()) > 40);
    let mut said = String::new();
    loop {
        let event = stream.next().unwrap().data["event"].clone();
        match event["type"].as_str().unwrap() {
            "message" => said.push_str(event["text"].as_str().unwrap()),
            "outcome" => break,
            _ => {}
        }
    }
    counted(&said);
    session.kill();
}

/// T59.
#[test]
fn followers_and_callers_that_wait_get_the_rest_through_the_replaced_daemon() {
    let world = world();
    let session = Session::new(&world);
    let done = world.path("done");
    let text = format!("until {}\nask build", done.display());
    let prompt = world.http_send("POST", &session.path("/prompts"), Some(&json!({"text": text, "wait": true})));
    await_line(&session, 3);
    let condition = json!({"question": true, "timeout_ms": 300_000});
    let waits = world.http_send("POST", &session.path("/wait"), Some(&condition));
    let attached = world.spawn(&["agent-session", "attach", "-t", &session.name, "--since", "start"]);
    let mut stream = Sse::of(&world, &session.path("/stream?since=start"), None).unwrap();
    upgrade(&world);
    await_line(&session, 10);
    upgrade(&world);
    await_line(&session, 20);
    fs::write(&done, "").unwrap();
    assert_eq!(Http::read(waits).json()["outcome"], "asking");
    let question = session.question();
    assert_eq!(session.post(&format!("/questions/{question}"), &json!({"option": "no"}))["ok"], true);
    let answer = Http::read(prompt).json();
    assert_eq!((&answer["outcome"], &answer["prompt"]), (&"end_turn".into(), &json!(1)), "{answer}");
    session.kill();
    let mut streamed = Vec::new();
    while let Some(event) = stream.next() {
        streamed.push(event.data);
    }
    assert_eq!(streamed, session.events("since=start"));
    let attached = attached.finish();
    let lines = attached.text().lines().filter(|line| line.contains("line ")).count();
    let text = attached.text();
    assert!(attached.status == 0 && text.contains("= ended"), "{attached:?}");
    let expected =
        streamed.iter().filter(|entry| entry["event"]["text"].as_str().is_some_and(|text| text.starts_with("line ")));
    assert_eq!(lines, expected.count());
}

/// T58: a process of the agent whose parents have gone is known by its mark alone.
#[test]
fn no_agent_answers_its_own_question_after_an_upgrade() {
    let world = world();
    let session = Session::new(&world);
    upgrade(&world);
    let (out, flag) = (world.path("out"), world.path("flag"));
    let program = world.plain_muxtap_command().get_program().to_str().unwrap().to_owned();
    let muxtap = format!("MUXTAP_SOCKET={} {program} agent-session", world.daemon_socket().display());
    let tries = [format!("set -t {} --mode bold", session.name), format!("answer -t {} --allow q1", session.name)];
    let tries: Vec<_> = tries.iter().map(|arguments| format!("{muxtap} {arguments}")).collect();
    let waits = format!("while [ ! -e {} ]; do sleep 0.05; done", flag.display());
    let line = format!("({waits}; {}; echo over) > {} 2>&1 &", tries.join("; "), out.display());
    assert_eq!(session.outcome(&format!("background {line}")), "end_turn");
    session.send("ask build");
    assert_eq!(session.question(), "q1");
    fs::write(&flag, "").unwrap();
    eventually("it has tried", || fs::read_to_string(&out).is_ok_and(|said| said.ends_with("over\n")));
    let said = fs::read_to_string(&out).unwrap();
    assert_eq!(said.matches("an agent of this muxtap started").count(), 2, "{said}");
    assert_eq!((session.question().as_str(), &session.get("")["mode"]), ("q1", &"careful".into()));
    session.kill();
}
