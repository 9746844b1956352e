//! `spawn`: its checks in their order, names, directories, windows.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::future::BoxFuture;
use muxtap::{
    api::Tiers,
    approvals::{Confirm, Decision, Question, Request},
};
use serde_json::json;

use super::{Plan, Stage};
use crate::common::World;

/// A human with a fixed answer, who records the questions.
struct Human {
    says: Decision,
    asked: Mutex<Vec<Request>>,
    count: AtomicUsize,
}

impl Human {
    fn who_says(says: Decision) -> Arc<Self> {
        Arc::new(Self { says, asked: Mutex::default(), count: AtomicUsize::new(0) })
    }

    fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

impl Confirm for Human {
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision> {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.asked.lock().unwrap().push(question.request);
        Box::pin(async move { self.says.clone() })
    }
}

/// Another client takes the name, or ends the session, before the answer.
struct Slow(Arc<Human>, Vec<String>, std::path::PathBuf);
impl Confirm for Slow {
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision> {
        let mut tmux = std::process::Command::new(crate::common::tmux_program());
        assert!(tmux.arg("-S").arg(&self.2).args(&self.1).status().unwrap().success());
        self.0.clone().ask(question)
    }
}

fn plan(human: &Arc<Human>) -> Plan {
    Plan { confirm: vec![human.clone()], ..Plan::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checks_come_in_their_order_and_before_anybody_is_asked() {
    let human = Human::who_says(Decision::Approved);
    let stage = Stage::new(World::with_server(), plan(&human));
    for (arguments, answer) in [
        (json!({ "working_dir": "/nope", "name": "a.b", "session": "nope" }), "Error: prompt is required for spawn"),
        (
            json!({ "prompt": "p", "working_dir": "/nope", "name": "a.b", "session": "nope" }),
            "Error: directory '/nope' not found",
        ),
        (json!({ "prompt": "p", "working_dir": "/dev/null" }), "Error: directory '/dev/null' not found"),
        (json!({ "prompt": "p", "name": "a.b", "session": "nope" }), "Error: session 'nope' not found"),
        (json!({ "prompt": "p", "session": "mai" }), "Error: session 'mai' not found"),
        (
            json!({ "prompt": "p", "name": "a.b" }),
            "Error: session name 'a.b' cannot contain '.' or ':' (tmux target delimiters)",
        ),
        (
            json!({ "prompt": "p", "name": "a:b" }),
            "Error: session name 'a:b' cannot contain '.' or ':' (tmux target delimiters)",
        ),
        (json!({ "prompt": "p", "name": "main" }), "Error: session 'main' already exists"),
    ] {
        let mut arguments = arguments;
        arguments["action"] = json!("spawn");
        assert_eq!(stage.call(arguments).await, answer);
    }
    assert!(human.asked().is_empty());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_name_and_a_directory_both_are_made_up_and_kept() {
    let human = Human::who_says(Decision::Approved);
    let stage = Stage::new(World::new(), plan(&human));
    let answer = stage.call(json!({ "action": "spawn", "prompt": "two\nlines \\ ';", "working_dir": "" })).await;
    let asked = human.asked().remove(0);
    let pattern = regex::Regex::new("^earl-[0-9]{14}-[0-9a-f]{4}$").unwrap();
    assert!(pattern.is_match(&asked.name), "{asked:?}");
    assert_eq!((asked.directory, asked.session), (None, None));
    let dir = stage.world.path("work").display().to_string();
    assert_eq!(answer, format!("Spawned tmux session `{}`.\n- Prompt: two\nlines \\ ';\n- Dir: {dir}", asked.name));
    stage.shows(&asked.name, &format!("in {dir}\ntold: two\nlines \\ ';"));
    let store = stage.store();
    let entry = &store[&asked.name];
    assert_eq!(entry["name"], json!(asked.name));
    assert_eq!((&entry["channel_id"], &entry["thread_id"]), (&json!("channel"), &json!("thread")));
    assert_eq!((&entry["prompt"], &entry["working_dir"]), (&json!("two\nlines \\ ';"), &json!(dir)));
    let made = regex::Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$").unwrap();
    assert!(made.is_match(entry["created_at"].as_str().unwrap()), "{entry}");
    // The session is plain tmux's: nothing of muxtap is in between, and the server has no hub.
    assert!(
        stage
            .world
            .tmux(&["display-message", "-p", "-t", &format!("={}:", asked.name), "#{pane_start_command}"])
            .contains("claude 'two")
    );
    assert_eq!(stage.world.tmux(&["list-sessions", "-F", "#{session_name}"]), asked.name);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_spawned_can_be_supervised_and_killed() {
    let human = Human::who_says(Decision::Approved);
    let stage = Stage::new(World::new(), plan(&human));
    stage.call(json!({ "action": "spawn", "prompt": "p", "name": "worker" })).await;
    stage.shows("worker", "told: p");
    let listed = stage.call(json!({ "action": "list" })).await;
    assert_eq!(listed, "**Claude Sessions (1):**\n\n- `worker:0.0` — work (Idle)");
    let sent = stage.call(json!({ "action": "send_input", "target": "worker:0.0", "text": "x;" })).await;
    assert_eq!(sent, "Sent to `worker:0.0`: `x;`");
    stage.shows("worker", "got <x;>");
    assert_eq!(stage.action("kill", "worker").await, "Killed tmux session `worker`.");
    assert_eq!(stage.store(), json!({}));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_added_to_a_session() {
    let human = Human::who_says(Decision::Approved);
    let stage = Stage::new(World::with_server(), plan(&human));
    stage.world.session("main2");
    let answer = stage
        .call(json!({ "action": "spawn", "prompt": "p", "name": "a.b;", "session": "main", "working_dir": "../home" }))
        .await;
    assert_eq!(answer, "Spawned tmux window in `main` `a.b;`.\n- Prompt: p\n- Dir: ../home");
    let asked = human.asked().remove(0);
    assert_eq!((asked.session.as_deref(), asked.directory.as_deref()), (Some("main"), Some("../home")));
    let windows = stage.world.tmux(&["list-windows", "-a", "-F", "#{session_name} #{window_name} #{window_active}"]);
    assert!(windows.contains("main a.b; 0") && !windows.contains("main2 a.b;"), "{windows}");
    assert_eq!(stage.store()["a.b;"]["working_dir"], json!("../home"));
    let listed = stage.call(json!({ "action": "list" })).await;
    assert_eq!(listed, "**Claude Sessions (1):**\n\n- `main:1.0` — home (Idle)");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_taken_while_the_human_thought_is_said() {
    let human = Human::who_says(Decision::Approved);
    let world = World::with_server();
    world.session("other");
    let slow = |line: &str| -> Arc<dyn Confirm> {
        let words = line.split(' ').map(str::to_owned).collect();
        Arc::new(Slow(human.clone(), words, world.socket().to_owned()))
    };
    let (takes, kills) = (slow("new-session -d -s late"), slow("kill-session -t other"));
    let stage = Stage::new(world, Plan::default());
    let call = |arguments: serde_json::Value, way: Arc<dyn Confirm>| {
        let supervisor = stage.supervisor.clone();
        async move { supervisor.call_asking(arguments.as_object().unwrap().clone(), &[way]).await }
    };
    let late = call(json!({ "action": "spawn", "prompt": "p", "name": "late" }), takes).await;
    assert_eq!(late, "Error: session 'late' already exists");
    let gone = call(json!({ "action": "spawn", "prompt": "p", "session": "other" }), kills).await;
    assert_eq!(gone, "Error: session 'other' not found");
    assert!(!stage.store_path().exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_way_that_can_ask_decides() {
    let cannot = Human::who_says(Decision::Unavailable("Error: no way".into()));
    let no = Human::who_says(Decision::Denied);
    let yes = Human::who_says(Decision::Approved);
    let plan = Plan { confirm: vec![cannot.clone(), no.clone(), yes.clone()], ..Plan::default() };
    let stage = Stage::new(World::with_server(), plan);
    assert_eq!(stage.call(json!({ "action": "spawn", "prompt": "p" })).await, "Spawn denied by user.");
    assert_eq!([&cannot, &no, &yes].map(|human| human.count.load(Ordering::SeqCst)), [1, 1, 0]);
    stage.end().await;
    let stage = Stage::new(World::with_server(), Plan { confirm: vec![cannot], ..Plan::default() });
    assert_eq!(stage.call(json!({ "action": "spawn", "prompt": "p" })).await, "Error: no way");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_be_asked_spawn_is_refused() {
    let stage = Stage::new(World::with_server(), Plan::default());
    let refused = stage.call(json!({ "action": "spawn", "prompt": "p" })).await;
    assert!(
        refused.starts_with("Error: spawn needs a human's approval, and there is no way to ask one: set PLATFORM_URL")
    );
    assert_eq!(stage.world.tmux(&["list-sessions", "-F", "#{session_name}"]), "main");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_error_of_tmux_is_told_as_it_is() {
    let human = Human::who_says(Decision::Approved);
    let stage = Stage::new(World::with_server(), plan(&human));
    let refused = stage.call(json!({ "action": "spawn", "prompt": "p".repeat(100_000), "name": "long" })).await;
    assert!(refused.starts_with("Error: tmux command failed: "), "{refused}");
    assert!(!stage.store_path().exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_about_what_is_not_allowed() {
    let human = Human::who_says(Decision::Approved);
    let stage = Stage::new(World::with_server(), Plan { allowed: Tiers::READ_ONLY, ..plan(&human) });
    let refused = stage.call(json!({ "action": "spawn", "prompt": "p" })).await;
    assert!(refused.starts_with("Error: this muxtap does not allow `create`"), "{refused}");
    assert!(human.asked().is_empty());
    let refused = stage.action("kill", "main").await;
    assert!(refused.starts_with("Error: this muxtap does not allow `kill`"), "{refused}");
    stage.end().await;
}

/// Up to 3.7c tmux exits with 0 if it cannot create its socket, and no session exists.
#[tokio::test(flavor = "multi_thread")]
async fn spawned_is_said_of_what_is_there_and_of_nothing_else() {
    let human = Human::who_says(Decision::Approved);
    let world = World::new();
    let socket = world.path("missing/t");
    let stage = Stage::new(world, Plan { socket: Some(socket.clone()), ..plan(&human) });
    let answer = stage.call(json!({ "action": "spawn", "prompt": "p", "name": "one" })).await;
    assert!(answer.starts_with("Error: tmux command failed: "), "{answer}");
    assert!(answer.contains("No such file or directory"), "{answer}");
    assert!(!stage.store_path().exists() || stage.store() == json!({}), "nothing is kept of what is not there");
    assert!(!socket.exists());
    stage.end().await;
    // Creates the directory of named sockets, as tmux does for `-L`.
    let world = World::new();
    let folder = world.path("run").join(format!("tmux-{}", rustix::process::getuid().as_raw()));
    let socket = folder.join("default");
    world.also_end(&socket);
    let stage = Stage::new(world, Plan { socket: Some(socket.clone()), ..plan(&human) });
    let answer = stage.call(json!({ "action": "spawn", "prompt": "p", "name": "one" })).await;
    assert!(answer.starts_with("Spawned tmux session `one`."), "{answer}");
    assert_eq!(stage.world.tmux_at(&socket, &["list-sessions", "-F", "#{session_name}"]), "one");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    stage.end().await;
}
