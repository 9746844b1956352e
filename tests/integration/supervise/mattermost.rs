//! Questions to a human in Mattermost: the post, valid answers, and the cleanup. M1 to M4 are in
//! `crates/muxtap-approvals/src/mattermost/mod.rs`.

use std::{sync::Arc, time::Duration};

use muxtap::approvals;
use serde_json::json;

use super::{Plan, Stage, platform, standin::Mattermost};
use crate::common::World;

const UNREACHABLE: &str = "Error: spawn confirmation failed (could not post or connect to Mattermost)";
const DENIED: &str = "Spawn denied by user.";
const OPENING: [&str; 5] =
    ["POST /posts", "POST /reactions", "POST /reactions", "POST /reactions", "WS authentication_challenge"];

fn plan(chat: &Mattermost, allowed: &[&str]) -> Plan {
    let confirm = approvals::Mattermost::new(platform(chat.url(), allowed));
    Plan { confirm: vec![Arc::new(confirm)], ..Plan::default() }
}

/// Calls `spawn` in a separate task, so that the test can act as the human meanwhile.
fn spawning(stage: &Stage, arguments: serde_json::Value) -> tokio::task::JoinHandle<String> {
    let supervisor = stage.supervisor.clone();
    tokio::spawn(async move { supervisor.call(arguments.as_object().unwrap().clone()).await })
}

fn one() -> serde_json::Value {
    json!({ "action": "spawn", "prompt": "do it", "name": "one" })
}

fn sessions(stage: &Stage) -> String {
    stage.world.tmux(&["list-sessions", "-F", "#{session_name}"])
}

/// M1, M2.
#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_the_good_case_are_these_in_this_order() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::new(), plan(&chat, &[]));
    let dir = stage.world.path("work").display().to_string();
    let spawning =
        spawning(&stage, json!({ "action": "spawn", "prompt": "say 'hi'; $HOME;", "name": "one", "working_dir": dir }));
    chat.asked("WS", 1).await;
    chat.react("ann", "post1", "+1");
    let answer = spawning.await.unwrap();
    assert_eq!(answer, format!("Spawned tmux session `one`.\n- Prompt: say 'hi'; $HOME;\n- Dir: {dir}"));
    let calls = chat.calls();
    assert_eq!(chat.words(), [&OPENING[..], &["DELETE /posts/post1"]].concat());
    let message = format!(
        ":rocket: **Spawn Request**\nClaude wants to spawn session `one`\n- **Prompt:** say 'hi'; $HOME;\n- **Dir:** \
         {dir}\nReact: :+1: approve | :-1: deny"
    );
    assert_eq!(calls[0].body, json!({ "channel_id": "channel", "message": message, "root_id": "thread" }));
    for (call, emoji) in calls[1..4].iter().zip(["+1", "white_check_mark", "-1"]) {
        assert_eq!(call.body, json!({ "user_id": "bot", "post_id": "post1", "emoji_name": emoji }));
    }
    let challenge = json!({ "seq": 1, "action": "authentication_challenge", "data": { "token": "the-token" } });
    assert_eq!(calls[4].body, challenge);
    assert!(calls.iter().filter(|call| !call.what.starts_with("WS")).all(|call| call.token == "Bearer the-token"));
    stage.shows("one", "told: say 'hi'; $HOME;");
    stage.shows("one", &format!("in {dir}"));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_mark_approves_too_and_thumbs_down_denies() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    let first = spawning(&stage, one());
    chat.asked("WS", 1).await;
    chat.react("ann", "post1", "-1");
    assert_eq!(first.await.unwrap(), DENIED);
    assert_eq!(sessions(&stage), "main");
    assert!(!stage.store_path().exists());
    let second = spawning(&stage, one());
    chat.asked("WS", 2).await;
    chat.react("ann", "post2", "white_check_mark");
    assert!(second.await.unwrap().starts_with("Spawned tmux session `one`.\n"));
    assert_eq!(sessions(&stage), "main\none");
    assert!(chat.posts().is_empty());
    stage.end().await;
}

/// M4.
#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_answer_does_and_only_about_this_post() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &["ann", "bob"]));
    let spawning = spawning(&stage, one());
    chat.asked("WS", 1).await;
    chat.react("id-ann", "another-post", "+1");
    chat.react("bot", "post1", "+1");
    chat.react("id-eve", "post1", "+1");
    chat.react("id-ann", "post1", "eyes");
    chat.react("id-eve", "post1", "white_check_mark");
    chat.react("../posts", "post1", "+1");
    chat.react("id-ann", "post1", "-1");
    assert_eq!(spawning.await.unwrap(), DENIED);
    let users = ["GET /users/id-eve", "GET /users/id-ann"];
    assert_eq!(chat.words(), [&OPENING[..], &users, &["DELETE /posts/post1"]].concat());
    assert_eq!(sessions(&stage), "main");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_who_somebody_is_where_anyone_may() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    let spawning = spawning(&stage, one());
    chat.asked("WS", 1).await;
    chat.react("ann", "post1", "thinking");
    chat.react("ann", "post1", "-1");
    assert_eq!(spawning.await.unwrap(), DENIED);
    assert!(!chat.words().iter().any(|call| call.contains("/users/")));
    stage.end().await;
}

/// M2.
#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_denies_and_the_post_goes() {
    let chat = Mattermost::start().await;
    let stage =
        Stage::new(World::with_server(), Plan { answer_timeout: Duration::from_millis(600), ..plan(&chat, &[]) });
    assert_eq!(stage.call(one()).await, DENIED);
    assert_eq!(chat.words(), [&OPENING[..], &["DELETE /posts/post1"]].concat());
    assert_eq!(sessions(&stage), "main");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_fails_is_said_and_nothing_is_left() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    chat.instead("POST /posts", 500, None);
    assert_eq!(stage.call(one()).await, UNREACHABLE);
    assert_eq!(chat.words(), ["POST /posts"]);
    stage.end().await;
    for url in ["http://127.0.0.1:1", "not an address"] {
        let confirm = approvals::Mattermost::new(platform(url.into(), &[]));
        let stage = Stage::new(World::with_server(), Plan { confirm: vec![Arc::new(confirm)], ..Plan::default() });
        assert_eq!(stage.call(one()).await, UNREACHABLE);
        stage.end().await;
    }
}

/// M2.
#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_that_never_opens_is_said_and_the_post_goes() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    chat.close(true);
    assert_eq!(stage.call(one()).await, UNREACHABLE);
    assert!(chat.posts().is_empty());
    let words = chat.words();
    assert_eq!(
        (words[..4].to_vec(), words.last().map(String::as_str)),
        (OPENING[..4].iter().map(|w| (*w).to_owned()).collect(), Some("DELETE /posts/post1"))
    );
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_is_said_at_once() {
    let chat = Mattermost::start().await;
    let platform = approvals::Platform { token: "wrong".into(), ..platform(chat.url(), &[]) };
    let confirm = approvals::Mattermost::new(platform);
    let stage = Stage::new(World::with_server(), Plan { confirm: vec![Arc::new(confirm)], ..Plan::default() });
    assert_eq!(stage.call(one()).await, UNREACHABLE);
    assert_eq!(chat.words(), [&OPENING[..], &["DELETE /posts/post1"]].concat());
    stage.end().await;
}

/// M3.
#[tokio::test(flavor = "multi_thread")]
async fn a_reaction_while_the_websocket_was_lost_is_found() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &["ann"]));
    let spawning = spawning(&stage, one());
    chat.asked("WS authentication_challenge", 1).await;
    chat.close(true);
    chat.cut();
    chat.asked("WS turned away", 1).await;
    chat.react_unseen("id-eve", "post1", "-1");
    chat.react_unseen("id-ann", "post1", "+1");
    chat.close(false);
    assert!(spawning.await.unwrap().starts_with("Spawned tmux session `one`."));
    let found = ["GET /posts/post1/reactions", "GET /users/id-eve", "GET /users/id-ann", "DELETE /posts/post1"];
    // The WebSocket that reconnects authenticates during these requests.
    let words: Vec<_> = chat.words().into_iter().filter(|word| !word.starts_with("WS ")).collect();
    assert_eq!(words[words.len() - 4..], found);
    stage.end().await;
}

/// M3.
#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_that_came_back_goes_on_telling() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    let spawning = spawning(&stage, one());
    for time in 1..=3 {
        chat.asked("WS authentication_challenge", time).await;
        chat.asked("GET /posts/post1/reactions", time - 1).await;
        chat.cut();
    }
    chat.asked("GET /posts/post1/reactions", 3).await;
    chat.react("ann", "post1", "+1");
    assert!(spawning.await.unwrap().starts_with("Spawned tmux session `one`."));
    assert!(chat.posts().is_empty());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_is_waited_out() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &["ann"]));
    for call in ["POST /posts", "POST /reactions", "GET /users", "DELETE /posts"] {
        chat.instead(call, 429, Some("0.1"));
    }
    let spawning = spawning(&stage, one());
    chat.asked("WS", 1).await;
    chat.react("id-ann", "post1", "+1");
    assert!(spawning.await.unwrap().starts_with("Spawned tmux session `one`."));
    let expected = [
        &["POST /posts", "POST /posts", "POST /reactions"][..],
        &OPENING[1..],
        &["GET /users/id-ann", "GET /users/id-ann", "DELETE /posts/post1", "DELETE /posts/post1"],
    ];
    assert_eq!(chat.words(), expected.concat());
    assert!(chat.posts().is_empty());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_the_wait_for_a_rate_limit() {
    let chat = Mattermost::start().await;
    let stage =
        Stage::new(World::with_server(), Plan { answer_timeout: Duration::from_millis(300), ..plan(&chat, &[]) });
    chat.instead("POST /posts", 429, Some("60"));
    assert_eq!(stage.call(one()).await, UNREACHABLE);
    assert_eq!(chat.words(), ["POST /posts"]);
    stage.end().await;
}

/// M2.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_goes_away_takes_the_post_along() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    let spawning = spawning(&stage, one());
    chat.asked("WS", 1).await;
    spawning.abort();
    chat.asked("DELETE /posts/post1", 1).await;
    assert!(chat.posts().is_empty());
    assert_eq!(sessions(&stage), "main");
    stage.end().await;
}

/// M2. A process does the same on SIGTERM.
#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_stops_takes_the_posts_along() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    let both = [spawning(&stage, one()), spawning(&stage, json!({ "action": "spawn", "prompt": "p", "name": "two" }))];
    chat.asked("WS", 2).await;
    stage.supervisor.stop().await;
    assert!(chat.posts().is_empty(), "stop waits for the deletions");
    for spawning in both {
        assert_eq!(spawning.await.unwrap(), DENIED);
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_fails_is_tried_again() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    chat.instead("DELETE /posts", 500, None);
    let spawning = spawning(&stage, one());
    chat.asked("WS", 1).await;
    chat.react("ann", "post1", "-1");
    assert_eq!(spawning.await.unwrap(), DENIED);
    assert!(chat.posts().is_empty());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_questions_at_once_are_two_posts() {
    let chat = Mattermost::start().await;
    let stage = Stage::new(World::with_server(), plan(&chat, &[]));
    let first = spawning(&stage, one());
    chat.asked("POST /posts", 1).await;
    let second = spawning(&stage, json!({ "action": "spawn", "prompt": "p", "name": "two" }));
    chat.asked("WS", 2).await;
    chat.react("ann", "post2", "+1");
    assert!(second.await.unwrap().starts_with("Spawned tmux session `two`."));
    assert_eq!(chat.posts(), ["post1"]);
    chat.react("ann", "post1", "-1");
    assert_eq!(first.await.unwrap(), DENIED);
    stage.end().await;
}
