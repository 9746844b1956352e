//! Every row of the contract's table but `spawn`.

use serde_json::json;

use super::{Plan, Stage};
use crate::common::World;

const ACTIONS: &str = "list, capture, status, approve, deny, send_input, spawn, kill";
const WITH_TARGET: [&str; 6] = ["capture", "status", "approve", "deny", "send_input", "kill"];

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_said() {
    let stage = Stage::new(World::with_server(), Plan::default());
    for none in [json!({}), json!({ "action": null }), json!({ "action": "" })] {
        assert_eq!(stage.call(none).await, format!("Error: action is required ({ACTIONS})"));
    }
    let unknown = stage.call(json!({ "action": "explode" })).await;
    assert_eq!(unknown, format!("Error: unknown action 'explode'. Valid: {ACTIONS}"));
    for action in WITH_TARGET {
        for arguments in [json!({ "action": action }), json!({ "action": action, "target": "" })] {
            assert_eq!(stage.call(arguments).await, format!("Error: target is required for {action}"));
        }
    }
    let without = stage.call(json!({ "action": "send_input", "target": "main" })).await;
    assert_eq!(without, "Error: text is required for send_input");
    let blank = stage.call(json!({ "action": "spawn", "prompt": " \n" })).await;
    assert_eq!(blank, "Error: prompt is required for spawn");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tmux_every_action_says_so() {
    let stage = Stage::new(World::new(), Plan { tmux: "tmux-that-is-not-there".into(), ..Plan::default() });
    for action in ACTIONS.split(", ") {
        assert_eq!(stage.call(json!({ "action": action })).await, "Error: tmux is not available", "{action}");
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_nothing_is_found() {
    let stage = Stage::new(World::new(), Plan::default());
    assert_eq!(stage.call(json!({ "action": "list" })).await, "No tmux sessions running.");
    for action in ["capture", "status", "approve", "deny"] {
        assert_eq!(stage.action(action, "a:0.0").await, "Error: session/pane 'a:0.0' not found", "{action}");
    }
    let sent = stage.call(json!({ "action": "send_input", "target": "a", "text": "x" })).await;
    assert_eq!(sent, "Error: session/pane 'a' not found");
    assert_eq!(stage.action("kill", "a").await, "Error: session 'a' not found (cleaned up store)");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_there_is_not_found() {
    let stage = Stage::new(World::with_server(), Plan::default());
    for target in ["nope", "mai", "main:7", "main:0.7", "%99", "@99", "$99", "a\nb", ":", "main:nope.0"] {
        for action in ["capture", "status", "approve", "deny"] {
            let answer = stage.action(action, target).await;
            assert_eq!(answer, format!("Error: session/pane '{target}' not found"), "{action}");
        }
        let answer = stage.call(json!({ "action": "send_input", "target": target, "text": "x" })).await;
        assert_eq!(answer, format!("Error: session/pane '{target}' not found"));
        let answer = stage.action("kill", target).await;
        assert_eq!(answer, format!("Error: session '{target}' not found (cleaned up store)"));
    }
    assert_eq!(stage.world.tmux(&["list-sessions", "-F", "#{session_name}"]), "main");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pane_that_has_gone_is_not_found_by_its_number() {
    let stage = Stage::new(World::with_server(), Plan::default());
    let pane = stage.world.window("sleep 1000");
    let there = stage.action("capture", &pane).await;
    assert_eq!(there, format!("**`{pane}` output (last 100 lines):**\n```\n\n```"));
    stage.world.tmux(&["kill-pane", "-t", &pane]);
    for action in ["capture", "status", "approve", "deny"] {
        assert_eq!(stage.action(action, &pane).await, format!("Error: session/pane '{pane}' not found"), "{action}");
    }
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_tells_where_claude_runs_and_what_it_does() {
    let stage = Stage::new(World::with_server(), Plan::default());
    stage.world.window("sleep 1000");
    let none = stage.call(json!({ "action": "list" })).await;
    assert_eq!(none, "No Claude sessions found across 2 tmux panes.");
    let dir = stage.world.path("work").display().to_string();
    for session in ["asks", "rests", "works"] {
        stage.claude(session, &dir);
    }
    stage.world.tmux(&["send-keys", "-t", "asks", "ask", "Enter"]);
    stage.shows("asks", "Do you want to proceed?");
    stage.world.tmux(&["send-keys", "-t", "works", "work", "Enter"]);
    stage.shows("works", "esc to interrupt");
    // Not in its terminal's foreground, and not the pane's own process.
    let background = format!("{} again </dev/tty & exec sleep 1000", stage.world.path("bin/claude").display());
    stage.world.tmux(&["new-session", "-d", "-s", "zz", "-c", "/", &background]);
    stage.shows("zz", "told: again");
    let listed = stage.call(json!({ "action": "list" })).await;
    assert_eq!(
        listed,
        "**Claude Sessions (4):**\n\n- `asks:0.0` — work (Waiting for permission)\n- `rests:0.0` — work (Idle)\n- `works:0.0` — \
         work (Active)\n- `zz:0.0` — / (Idle)"
    );
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn capture_gives_the_last_lines_and_status_a_label() {
    let stage = Stage::new(World::new(), Plan::default());
    stage.world.tmux(&[
        "new-session",
        "-d",
        "-s",
        "s",
        "-x",
        "80",
        "-y",
        "10",
        "seq 1 30; printf 'the end'; exec sleep 1000",
    ]);
    stage.shows("s", "the end");
    let lines = |from: u32| (from..=30).map(|n| format!("{n}\n")).collect::<String>();
    let whole = stage.action("capture", "s:0.0").await;
    assert_eq!(whole, format!("**`s:0.0` output (last 100 lines):**\n```\n{}the end\n```", lines(1)));
    let three = stage.call(json!({ "action": "capture", "target": "s", "lines": 3 })).await;
    assert_eq!(three, "**`s` output (last 3 lines):**\n```\n29\n30\nthe end\n```");
    let one = stage.call(json!({ "action": "capture", "target": "s", "lines": -5 })).await;
    assert_eq!(one, "**`s` output (last 1 lines):**\n```\nthe end\n```");
    let most = stage.call(json!({ "action": "capture", "target": "s", "lines": 1e18 })).await;
    assert!(most.ends_with(&format!("lines):**\n```\n{}the end\n```", lines(1))), "{most}");
    let status = stage.action("status", "s").await;
    assert_eq!(status, format!("**`s` status: Idle**\n```\n{}the end\n```", lines(1)));
    stage.claude("c", "/");
    stage.world.tmux(&["send-keys", "-t", "c", "ask", "Enter"]);
    stage.shows("c", "Do you want to proceed?");
    let status = stage.action("status", "c:0.0").await;
    let head = "**`c:0.0` status: Waiting for permission**\n```\n";
    assert!(status.starts_with(head) && status.ends_with("Do you want to proceed?\n> 1. Yes\n```"), "{status}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_screen_is_an_empty_block() {
    let stage = Stage::new(World::new(), Plan::default());
    stage.world.tmux(&["new-session", "-d", "-s", "s", "sleep 1000"]);
    assert_eq!(stage.action("capture", "s").await, "**`s` output (last 100 lines):**\n```\n\n```");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approve_is_enter_and_deny_is_escape() {
    let stage = Stage::new(World::new(), Plan::default());
    stage.claude("c", "/");
    assert_eq!(stage.action("approve", "c:0.0").await, "Approved permission on `c:0.0`.");
    stage.shows("c", "got <>");
    assert_eq!(stage.action("deny", "c").await, "Denied permission on `c`.");
    stage.shows("c", "^[");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_arrives_to_the_letter_with_enter_behind_it() {
    let stage = Stage::new(World::new(), Plan::default());
    stage.claude("c", "/");
    for text in ["plain", "ends with;", ";", "Enter", "-t x", "#{pane_id} $HOME `id` 'q\" \\;", "grüße 日本"] {
        let sent = stage.call(json!({ "action": "send_input", "target": "c", "text": text })).await;
        assert_eq!(sent, format!("Sent to `c`: `{text}`"));
        stage.shows("c", &format!("got <{text}>"));
    }
    let sent = stage.call(json!({ "action": "send_input", "target": "c:0.0", "text": "" })).await;
    assert_eq!(sent, "Sent to `c:0.0`: ``");
    stage.shows("c", "got <>");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_a_sessions_name() {
    let stage = Stage::new(World::with_server(), Plan::default());
    stage.claude("7", "/");
    let sent = stage.call(json!({ "action": "send_input", "target": "7", "text": "x" })).await;
    assert_eq!(sent, "Sent to `7`: `x`");
    stage.shows("7", "got <x>");
    // There is a pane %0, but no session 0.
    assert_eq!(stage.action("capture", "0").await, "Error: session/pane '0' not found");
    assert_eq!(stage.action("kill", "0").await, "Error: session '0' not found (cleaned up store)");
    assert_eq!(stage.action("kill", "7").await, "Killed tmux session `7`.");
    assert_eq!(stage.world.tmux(&["list-sessions", "-F", "#{session_name}"]), "main");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_ends_the_session_and_the_last_one_too() {
    let stage = Stage::new(World::with_server(), Plan::default());
    stage.world.session("other");
    stage.world.session("third");
    assert_eq!(stage.action("kill", "other").await, "Killed tmux session `other`.");
    assert_eq!(stage.action("kill", "third:0.0").await, "Killed tmux session `third:0.0`.");
    assert_eq!(stage.world.tmux(&["list-sessions", "-F", "#{session_name}"]), "main");
    assert_eq!(stage.action("kill", "main").await, "Killed tmux session `main`.");
    assert_eq!(stage.action("kill", "main").await, "Error: session 'main' not found (cleaned up store)");
    assert_eq!(stage.call(json!({ "action": "list" })).await, "No tmux sessions running.");
    stage.end().await;
}
