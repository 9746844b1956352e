//! Permission questions, wherever people are asked: each has one answer.

use serde_json::{Value, json};

use super::{Session, world};
use crate::{common::eventually, mcp::Client, subscribers::Sse, supervise::standin::Mattermost};

fn last_answer(session: &Session) -> Value {
    let events = session.events("");
    events.into_iter().rfind(|entry| entry["event"]["type"] == "answered").unwrap()["event"].clone()
}

/// `muxtap approvals` has them, and knows that they were answered elsewhere.
#[test]
fn among_approvals_it_is_shown_and_answered_once() {
    let world = world();
    let session = Session::new(&world);
    let open = || world.http("GET", "/v1/approvals", None).json()["approvals"].clone();
    let mut lists = Sse::of(&world, "/v1/approvals/events", None).unwrap();
    session.send("ask build");
    let question = session.question();
    let shown = open();
    let first = &shown[0];
    assert_eq!((&first["kind"], &first["name"]), (&json!("permission"), &json!("build")), "{shown}");
    assert_eq!(first["prompt"], "rm -r build\nyes: Yes (allow_once)\nno: No (reject_once)", "{shown}");
    assert_eq!((&first["session"], &first["pid"]), (&json!(session.name), &json!(session.pid)));
    let id = first["id"].as_str().unwrap().to_owned();
    lists.find("the question", |event| event.data.to_string().contains(&id));
    let listed = world.ok(&["approvals"]);
    assert!(listed.contains(&id) && listed.contains("permission of"), "{listed}");
    // A yes is for this once, though the question takes an `always` too.
    world.ok(&["approvals", "approve", &id]);
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected yes\n");
    assert_eq!(open(), json!([]));
    let second = session.post(&format!("/questions/{question}"), &json!({"allow": false}));
    assert_eq!(second["code"], "CONFLICT", "{second}");
    world.error("NOT_FOUND", &["approvals", "deny", &id]);
    // Answered there it is gone here.
    session.send("ask build");
    let question = session.question();
    let id = open()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(session.post(&format!("/questions/{question}"), &json!({"allow": false}))["ok"], true);
    assert_eq!(open(), json!([]));
    world.error("NOT_FOUND", &["approvals", "approve", &id]);
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected no\n");
    // With its session it goes, too.
    session.send("ask build");
    session.question();
    session.kill();
    assert_eq!(open(), json!([]));
}

/// In a stand-in for Mattermost's server.
#[tokio::test(flavor = "multi_thread")]
async fn in_mattermost_it_is_posted_and_answered_once() {
    let chat = Mattermost::start().await;
    let mut world = world();
    for (name, value) in [
        ("PLATFORM_URL", chat.url().as_str()),
        ("PLATFORM_TOKEN", "the-token"),
        ("PLATFORM_CHANNEL_ID", "channel"),
        ("PLATFORM_THREAD_ID", "thread"),
        ("PLATFORM_BOT_ID", "bot"),
        ("ALLOWED_USERS", "ann"),
    ] {
        world.set(name, value);
    }
    let session = Session::new(&world);
    session.send("ask build");
    let question = session.question();
    chat.asked("WS", 1).await;
    let message = chat.calls()[0].body["message"].as_str().unwrap().to_owned();
    for part in
        [":lock: **Permission Request**", &session.name, "    build\n", "    rm -r build\n", "yes: Yes (allow_once)"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    // Who may not answer does not; nor does the bot.
    chat.react("id-eve", "post1", "-1");
    chat.react("bot", "post1", "-1");
    chat.react("id-ann", "post1", "+1");
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected yes\n");
    chat.asked("DELETE /posts/post1", 1).await;
    assert_eq!(last_answer(&session)["by"], "mattermost");
    let second = session.post(&format!("/questions/{question}"), &json!({"allow": false}));
    assert!(second["code"] == "CONFLICT" && second["message"].as_str().unwrap().contains("mattermost"), "{second}");
    // Answered elsewhere: the post goes, and nothing that is said of it counts.
    session.send("ask build");
    let question = session.question();
    chat.asked("WS", 2).await;
    assert_eq!(session.post(&format!("/questions/{question}"), &json!({"option": "always"}))["ok"], true);
    chat.asked("DELETE /posts/post2", 1).await;
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected always\n");
    // A no.
    session.send("ask build");
    session.question();
    chat.asked("WS", 3).await;
    chat.react("id-ann", "post3", "-1");
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected no\n");
    // A daemon that stops takes its posts along.
    session.send("ask build");
    session.question();
    chat.asked("WS", 4).await;
    world.ok(&["stop"]);
    assert!(chat.posts().is_empty(), "{:?}", chat.words());
}

/// A yes of a person's is a yes to what was shown, and a client that asks people is asked.
#[test]
fn a_models_choice_is_shown_to_the_person_and_a_failed_question_is_no_yes() {
    let world = world();
    let session = Session::new(&world);
    let mut client = Client::able(world.spawn(&["mcp", "--tools", "sessions"]), &json!({"elicitation": {}}));
    let mut asked = |arguments: Value, answer: Value| {
        session.send("ask build");
        let id = session.question();
        let mut arguments = arguments;
        arguments["action"] = "answer".into();
        arguments["session"] = json!(session.name);
        arguments["question"] = json!(id);
        let call = client.begin("tools/call", &json!({"name": "agent_session", "arguments": arguments}));
        let question = client.message();
        let mut said = json!({"jsonrpc": "2.0", "id": question["id"]});
        said.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        client.say(&said);
        let answered = client.answer(call);
        (question["params"]["message"].as_str().unwrap().to_owned(), answered, id)
    };
    let accept = json!({"result": {"action": "accept", "content": {}}});
    // The option that the model chose stands there, with its kind.
    let (shown, ..) = asked(json!({"option": "always"}), accept.clone());
    assert!(shown.contains("Always (allow_always)"), "{shown}");
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected always\n");
    // Where none was shown a yes is for this once.
    let (shown, ..) = asked(json!({"allow": true}), accept);
    assert!(!shown.contains("allow_always"), "{shown}");
    session.wait(&json!({"idle": true}));
    assert_eq!(session.said(), "selected yes\n");
    // A client that cannot ask just now: the model's own yes does not count.
    let error = json!({"error": {"code": -32603, "message": "no window"}});
    let (_, answered, id) = asked(json!({"allow": true}), error);
    assert_eq!(answered["result"]["isError"], true, "{answered}");
    assert_eq!(session.get("/questions")["questions"][0]["id"], json!(id));
    eventually("the question stays", || session.get("")["status"] == "asking");
    session.kill();
}
