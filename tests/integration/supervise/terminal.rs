//! Questions to a human at a terminal: `muxtap approvals`.

use std::{io::Write as _, sync::Arc, time::Duration};

use muxtap::{
    Engine, Options,
    approvals::{Terminal, approvals::Approvals},
    daemon,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Plan, Stage};
use crate::common::{Background, World, eventually, signal};

/// The daemon's routes, which `muxtap approvals` calls, in this process.
struct Daemon {
    approvals: Approvals,
    engine: Engine,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Daemon {
    fn start(world: &World) -> Self {
        let (approvals, engine) = (Approvals::default(), Engine::start(Options::default()).unwrap());
        let listener = tokio::net::UnixListener::bind(world.path("m.sock")).unwrap();
        // A daemon writes its lock file when it listens, which wakes clients that wait for one.
        std::fs::write(world.path("m.sock.lock"), "\n").unwrap();
        let stop = CancellationToken::new();
        let served = daemon::serve_routes(listener, engine.clone(), approvals.clone(), stop.clone());
        let served = tokio::spawn(served);
        Self { approvals, engine, stop, served }
    }

    /// Stops the daemon like `muxtap stop` does.
    async fn stop(self, world: &World) {
        self.engine.stop().await;
        self.stop.cancel();
        self.served.await.unwrap();
        std::fs::remove_file(world.path("m.sock")).unwrap();
    }
}

fn stage(always: bool, answer_timeout: Duration) -> (Stage, Daemon) {
    let world = World::with_server();
    let daemon = Daemon::start(&world);
    let confirm = Arc::new(Terminal::new(daemon.approvals.clone(), always));
    (Stage::new(world, Plan { confirm: vec![confirm], answer_timeout, ..Plan::default() }), daemon)
}

async fn end(stage: Stage, daemon: Daemon) {
    daemon.stop(&stage.world).await;
    stage.end().await;
}

const LONG: Duration = Duration::from_secs(3600);

fn spawning(stage: &Stage, prompt: &str) -> tokio::task::JoinHandle<String> {
    let supervisor = stage.supervisor.clone();
    let arguments = json!({ "action": "spawn", "prompt": prompt, "name": "one", "working_dir": "/" });
    tokio::spawn(async move { supervisor.call(arguments.as_object().unwrap().clone()).await })
}

/// Returns the one open question.
fn question(stage: &Stage) -> serde_json::Value {
    let mut found = json!(null);
    eventually("a question", || {
        found = stage.world.json(&["approvals"])["approvals"][0].clone();
        found.is_object()
    });
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_listed_and_answered_by_its_name() {
    let (stage, daemon) = stage(true, LONG);
    assert_eq!(stage.world.ok(&["approvals"]), "No questions are open.");
    for (word, answer) in
        [("deny", "Spawn denied by user."), ("approve", "Spawned tmux session `one`.\n- Prompt: p\n- Dir: /")]
    {
        let spawning = spawning(&stage, "p");
        let question = question(&stage);
        let id = question["id"].as_str().unwrap();
        assert_eq!(
            (&question["kind"], &question["name"], &question["working_dir"]),
            (&json!("session"), &json!("one"), &json!("/"))
        );
        assert!(stage.world.ok(&["approvals"]).contains(id));
        stage.world.ok(&["approvals", word, id]);
        assert_eq!(spawning.await.unwrap(), answer);
        let again = stage.world.muxtap(&["--json", "approvals", "approve", id]);
        assert_eq!((again.status, &again.error()["code"]), (1, &json!("NOT_FOUND")));
    }
    stage.shows("one", "told: p");
    end(stage, daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_is_asked_and_where_nobody_does_spawn_is_refused() {
    let (stage, daemon) = stage(false, LONG);
    let refused = spawning(&stage, "p").await.unwrap();
    assert!(refused.starts_with("Error: spawn needs a human's approval, and no human watches"), "{refused}");
    let mut watch = Background::start(&mut stage.world.muxtap_command(&["approvals", "--watch"]));
    eventually("somebody watches", || daemon.approvals.is_watched());
    let spawned = spawning(&stage, "do\n\x1b]0;evil\x07it");
    let head = watch.line_where("the question", |line| line.contains("session one, until "));
    let id = head.split_whitespace().next().unwrap().to_owned();
    let asked_by = watch.line().unwrap();
    assert!(asked_by.starts_with("  asked by: "), "{asked_by}");
    assert_eq!(watch.line().as_deref(), Some("  dir: /"));
    assert_eq!(watch.line().as_deref(), Some("  | do"));
    assert_eq!(watch.line().as_deref(), Some("  | \\u{1b}]0;evil\\u{7}it"));
    assert_eq!(watch.line(), Some(format!("  y {id} or n {id}?")));
    writeln!(watch.stdin(), "y").unwrap();
    assert_eq!(watch.line(), Some(format!("{id} approved")));
    assert!(spawned.await.unwrap().starts_with("Spawned tmux session `one`."));
    watch.kill();
    eventually("nobody watches", || !daemon.approvals.is_watched());
    end(stage, daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_goes_with_its_deadline_its_caller_and_its_process() {
    let (stage, daemon) = stage(true, Duration::from_millis(400));
    assert_eq!(spawning(&stage, "p").await.unwrap(), "Spawn denied by user.");
    assert_eq!(stage.world.ok(&["approvals"]), "No questions are open.");
    end(stage, daemon).await;

    let (stage, daemon) = self::stage(true, LONG);
    let spawned = spawning(&stage, "p");
    question(&stage);
    spawned.abort();
    eventually("it is withdrawn", || stage.world.ok(&["approvals"]) == "No questions are open.");
    let spawned = spawning(&stage, "p");
    question(&stage);
    stage.supervisor.stop().await;
    assert_eq!(stage.world.ok(&["approvals"]), "No questions are open.");
    assert_eq!(spawned.await.unwrap(), "Spawn denied by user.");
    end(stage, daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_winds_down_is_not_asked_again_and_again() {
    let (stage, daemon) = stage(false, LONG);
    let watch = Background::start(&mut stage.world.muxtap_command(&["approvals", "--watch"]));
    eventually("somebody watches", || daemon.approvals.is_watched());
    // It still responds, but its streams have ended.
    daemon.engine.stop().await;
    eventually("the stream ends", || !daemon.approvals.is_watched());
    for _ in 0..3 {
        let refused = stage.world.muxtap(&["--json", "approvals", "--watch"]);
        assert_eq!((refused.status, &refused.error()["code"]), (1, &json!("TMUX_UNAVAILABLE")));
    }
    daemon.stop(&stage.world).await;
    let daemon = Daemon::start(&stage.world);
    eventually("it goes on", || daemon.approvals.is_watched());
    signal(watch.pid(), rustix::process::Signal::TERM);
    let notes = watch.finish().stderr;
    assert_eq!(notes.lines().count(), 1, "{notes}");
    end(stage, daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_goes_on_with_the_next_daemon() {
    let (stage, daemon) = stage(false, LONG);
    let watch = Background::start(&mut stage.world.muxtap_command(&["approvals", "--watch"]));
    eventually("somebody watches", || daemon.approvals.is_watched());
    daemon.stop(&stage.world).await;
    let daemon = Daemon::start(&stage.world);
    eventually("it goes on", || daemon.approvals.is_watched());
    watch.kill();
    end(stage, daemon).await;
}
