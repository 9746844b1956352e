//! muxtap as a library: the examples, run like a reader would, and the handles.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use muxtap::{
    Engine, ErrorCode, Options, Pane, Server, Since,
    api::{Event, EventKind, GapReason, Tiers, WaitOutcome},
};

use crate::common::{Answer, Background, LIMIT, World, eventually, run, tmux_program};

/// Builds the command of an example, which Cargo builds beside the tests. It finds the tmux under
/// test as `tmux`.
fn example(world: &World, name: &str) -> Command {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_muxtap")).with_file_name("examples").join(name);
    let bin = world.path("example-bin");
    if std::fs::create_dir(&bin).is_ok() {
        let tmux = world.command("sh").args(["-c", "command -v \"$0\"", &tmux_program()]).output().unwrap().stdout;
        let tmux = String::from_utf8(tmux).unwrap();
        std::os::unix::fs::symlink(tmux.trim_end(), bin.join("tmux")).unwrap();
    }
    let mut command = world.command(program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(bin).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).unwrap());
    command
}

fn ran(command: &mut Command) -> Answer {
    let answer = run(command);
    assert_eq!(answer.status, 0, "{}", answer.stderr);
    answer
}

#[test]
fn follow_prints_a_pane_to_its_end() {
    let world = World::with_server();
    world.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    let pane = world.window("echo ready; read line; printf 'first\\nlast\\n'; exit 3");
    let mut follow = Background::start(example(&world, "follow").arg(world.socket()).arg(&pane));
    follow.line_where("what was there", |line| line == "ready");
    world.tmux(&["send-keys", "-t", &pane, "go", "Enter"]);
    follow.line_where("the last line", |line| line == "last");
    let answer = follow.finish();
    assert!(answer.stderr.contains("ended with Some(3)"), "{answer:?}");
}

#[test]
fn wait_prints_what_a_regex_captured_and_not_the_echo() {
    let world = World::with_server();
    let pane = world.window("cat");
    let mut command = example(&world, "wait");
    command.arg(world.socket()).args([&pane, "17 passed", r"(\d+) passed"]);
    let printed = ran(&mut command).text();
    assert!(printed.contains("Matched") && printed.contains("1: 17"), "{printed}");
}

#[test]
fn run_gives_output_and_status_of_each_command() {
    let world = World::with_server();
    let mut command = example(&world, "run");
    command.arg(world.socket()).args(["echo one two", "(exit 7)"]);
    let printed = ran(&mut command).text();
    assert_eq!(printed, "one two\n[exit status 0]\n[exit status 7]\n");
}

/// The page shows the example's own lines and their output.
#[test]
fn five_things_are_what_the_page_says() {
    let page = include_str!("../../docs/for-rust.md");
    let source = include_str!("../../examples/five.rs");
    // Fences open and close in turn.
    let blocks: Vec<(&str, &str)> =
        page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect();
    let of = |fence: &str| -> Vec<&str> {
        blocks.iter().filter(|(kind, _)| *kind == fence).map(|(_, text)| *text).collect()
    };
    let shown = of("rust");
    assert_eq!(shown.len(), 6);
    for line in shown.iter().flat_map(|block| block.lines()) {
        assert!(source.lines().any(|of_source| of_source.trim() == line.trim()), "{line}");
    }
    let world = World::new();
    let printed = ran(example(&world, "five").arg(world.socket())).text();
    assert_eq!(printed, of("").concat());
}

#[test]
fn capture_shows_a_recorded_stream() {
    let world = World::new();
    let file = world.path("typescript");
    std::fs::write(&file, b"gone\x1b[2J\x1b[H\x1b[31mred\x1b[m and plain\r\n\xe6\x97\xa5\xe6\x9c\xac").unwrap();
    let printed = ran(example(&world, "capture").arg(file)).text();
    assert_eq!(printed.lines().take(3).collect::<Vec<_>>(), ["gone", "\x1b[31mred\x1b[39m and plain", "日本"]);
}

#[test]
fn control_mode_says_what_tmux_prints() {
    let world = World::with_server();
    let script = format!(
        "echo 'list-sessions -F \"name #{{session_name}}\"' | {} -S {} -C attach-session | {}",
        tmux_program(),
        world.socket().display(),
        std::path::Path::new(env!("CARGO_BIN_EXE_muxtap")).with_file_name("examples").join("control_mode").display()
    );
    let printed = ran(world.command("sh").args(["-c", &script])).text();
    assert!(printed.contains("name ") && printed.contains("Exit"), "{printed}");
}

#[test]
fn serve_answers_under_its_own_path_and_lets_nobody_type() {
    let world = World::with_server();
    let pane = world.window("echo here; cat");
    let mut server = Background::start(example(&world, "serve").arg("127.0.0.1:0").arg(world.socket()));
    let url = server.line_where("its address", |line| line.starts_with("http://"));
    let ask = |path: &str, more: &[&str]| {
        let url = format!("{url}{path}?socket={}", world.socket().display());
        ran(Command::new("curl").args(["--silent", "--show-error", &url]).args(more)).text()
    };
    assert!(ask("/", &[]).starts_with("an application"));
    // Callers may name no other server.
    let other = ran(Command::new("curl").args(["--silent", &format!("{url}/tmux/v1/panes?socket=/tmp/other")])).text();
    assert!(other.contains("UNAUTHORIZED"), "{other}");
    let target = pane.replace('%', "%25");
    assert!(ask(&format!("/tmux/v1/panes/{target}/capture"), &[]).contains("here"));
    let typed = ask(
        &format!("/tmux/v1/panes/{target}/input"),
        &["--header", "content-type: application/json", "--data", r#"{"text":"no"}"#],
    );
    assert!(typed.contains("READ_ONLY"), "{typed}");
    // The daemon's own data is missing.
    assert!(!ask("/tmux/v1/status", &[]).contains("uptime_s"));
    server.kill();
}

async fn engine(world: &World) -> (Engine, Server) {
    let engine = Engine::start(Options::default().tmux(tmux_program())).unwrap();
    let server = engine.server(world.socket()).await.unwrap();
    (engine, server)
}

async fn cat(world: &World, server: &Server) -> Pane {
    server.pane(&world.window("cat")).await.unwrap()
}

#[tokio::test]
async fn what_is_sent_is_waited_for_and_read_from_its_cursor() {
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let pane = cat(&world, &server).await;
    pane.send_keys(["before", "Enter"]).await.unwrap();
    pane.wait().pattern("before").unwrap().await.unwrap();
    let sent = pane.send_keys(["3 passed", "Enter"]).await.unwrap();
    let hit = pane.wait().pattern(r"(\d+) passed").unwrap().fail("error:").unwrap().since(sent.cursor).await.unwrap();
    assert_eq!(hit.outcome, WaitOutcome::Matched);
    assert_eq!(hit.captures().get(1), Some(&Some("3".to_owned())));
    let output = pane.read().since(sent.cursor).await.unwrap();
    assert!(output.text().contains("3 passed") && !output.text().contains("before"), "{output:?}");
    assert_eq!(pane.read().since(output.cursor).await.unwrap().bytes(), b"");
    assert!(pane.capture().await.unwrap().text.contains("3 passed"));
    engine.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_said_where_it_is_written() {
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let pane = cat(&world, &server).await;
    let error = pane.wait().pattern("(").unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    assert!(error.message.contains("pattern"), "{}", error.message);
    assert_eq!(pane.wait().await.unwrap_err().code, ErrorCode::InvalidArgument);
    assert_eq!(server.pane("%999").await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(engine.server("relative").await.unwrap_err().code, ErrorCode::InvalidArgument);
    assert_eq!(engine.server(world.path("nobody")).await.unwrap_err().code, ErrorCode::TmuxUnavailable);
    assert_eq!(pane.read().at_most(0).await.unwrap_err().code, ErrorCode::InvalidArgument);
    engine.stop().await;
    assert_eq!(engine.server(world.socket()).await.unwrap_err().code, ErrorCode::TmuxUnavailable);
}

#[test]
fn an_engine_outside_of_a_runtime_is_an_error() {
    assert_eq!(Engine::start(Options::default()).err().unwrap().code, ErrorCode::Conflict);
}

#[test]
fn a_router_is_made_outside_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = runtime.block_on(async { Engine::start(Options::default()).unwrap() });
    let _router = muxtap::http::router(&engine);
    runtime.block_on(engine.stop());
}

/// The routes of an embedding program, which nests them, know the same parameters as the daemon's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_router_rejects_what_the_daemon_rejects() {
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let pane = cat(&world, &server).await;
    let app = axum::Router::new().nest("/tmux/{user}", muxtap::http::router(&engine));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let ask = async |path: String| {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let socket =
        percent_encoding::utf8_percent_encode(world.socket().to_str().unwrap(), percent_encoding::NON_ALPHANUMERIC);
    let output = format!("/tmux/ann/v1/panes/{}/output?socket={socket}", pane.id().to_string().replace('%', "%25"));
    for (query, status, says) in [
        ("&since=start", "200", ""),
        ("&sinse=start", "400", "sinse: no such parameter (did you mean `since`?)"),
        ("&no_such=1", "400", "no_such: no such parameter"),
    ] {
        let answer = ask(format!("{output}{query}")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(says), "{query}: {answer}");
    }
    let unknown = ask(format!("/tmux/ann/v1/panes?socket={socket}&tagets=x")).await;
    assert!(unknown.contains("tagets: no such parameter"), "{unknown}");
    // A program is not sent to a shell.
    let missing = ask(format!("/tmux/ann/v1/panes/nosuch/capture?socket={socket}")).await;
    assert!(missing.contains("`GET /v1/panes` lists what is there") && !missing.contains("`muxtap "), "{missing}");
    serving.abort();
    engine.stop().await;
}

/// A stream loses nothing if its reader gives up a call, and ends with the pane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_followed_is_a_stream() {
    use futures_util::StreamExt as _;
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let pane = server.pane(&world.window("read -r go; echo one; read -r go; echo two; read -r go")).await.unwrap();
    let mut follow = std::pin::pin!(pane.follow().since(Since::Start).map(|output| output.unwrap()));
    // Given up before there is any output.
    assert!(futures_util::poll!(follow.next()).is_pending());
    pane.send_keys(["Enter"]).await.unwrap();
    let mut text = String::new();
    while !text.contains("one") {
        text.push_str(&follow.next().await.unwrap().text());
    }
    pane.send_keys(["Enter"]).await.unwrap();
    while !text.contains("two") {
        text.push_str(&follow.next().await.unwrap().text());
    }
    pane.send_keys(["Enter"]).await.unwrap();
    let rest: Vec<_> = follow.collect().await;
    assert!(rest.last().unwrap().exit.is_some());
    engine.stop().await;
}

#[tokio::test]
async fn what_is_not_allowed_is_refused() {
    let world = World::with_server();
    let engine = Engine::start(Options::default().tmux(tmux_program()).allow(Tiers::READ_ONLY)).unwrap();
    let server = engine.server(world.socket()).await.unwrap();
    let pane = cat(&world, &server).await;
    assert_eq!(pane.type_text("x").await.unwrap_err().code, ErrorCode::ReadOnly);
    assert_eq!(pane.kill().await.unwrap_err().code, ErrorCode::ReadOnly);
    assert_eq!(pane.split().await.unwrap_err().code, ErrorCode::ReadOnly);
    engine.stop().await;
}

/// tmux numbers the panes of each server from 0.
// The engine runs while the test waits for tmux.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_handle_never_means_another_servers_pane() {
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let pane = server.pane("%0").await.unwrap();
    let cursor = pane.cursor();
    pane.wait().exit().start().await.unwrap();
    world.tmux(&["kill-server"]);
    eventually("another server, once the first has gone", || {
        run(world.tmux_command(world.socket()).args(["new-session", "-d", "cat"])).status == 0
    });
    let new = async {
        loop {
            if let Ok(new) = server.pane("%0").await
                && new.cursor().epoch != cursor.epoch
            {
                return new;
            }
            tokio::task::yield_now().await;
        }
    };
    let new = tokio::time::timeout(LIMIT, new).await.unwrap();
    new.type_text("for the new one").await.unwrap();
    for error in [
        pane.type_text("x").await.unwrap_err(),
        pane.kill().await.unwrap_err(),
        pane.restart().await.unwrap_err(),
        pane.split().await.unwrap_err(),
        pane.run("true").await.unwrap_err(),
    ] {
        assert_eq!(error.code, ErrorCode::NotFound, "{error}");
    }
    let seen = pane.capture().await.map(|answer| answer.text).unwrap_or_default();
    assert!(!seen.contains("for the new one"), "{seen}");
    assert_eq!(pane.wait().bell().await.unwrap().outcome, WaitOutcome::Ended);
    // One wait on both: each handle means its own pane, although tmux gave both the same id.
    let both = server.wait([&new, &pane]).exit().await.unwrap();
    assert_eq!((both.outcome, both.predicates.len()), (WaitOutcome::Matched, 2));
    let latched: Vec<_> = both.predicates.iter().map(|one| one.latched).collect();
    assert_eq!(latched, [false, true], "{both:?}");
    let info = pane.info();
    assert!(info.earlier_server && info.dead);
    // Contains the first pane's output, and none of the new one's.
    let rest = pane.read().since(Since::Start).await.unwrap();
    assert!(!rest.text().contains("for the new one"), "{rest:?}");
    // A loss may follow it.
    let end = pane.read().since(rest.cursor).await.unwrap();
    assert_eq!((end.exit.is_some(), end.text().as_str()), (true, ""), "{end:?}");
    assert_eq!(end.gap.unwrap().reason, GapReason::ProcessEnded);
    let mut follow = pane.follow();
    assert!(follow.next().await.unwrap().unwrap().exit.is_some());
    assert!(follow.next().await.unwrap().is_none());
    engine.stop().await;
}

/// The same at the moment one server ends and another begins: input reaches only the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_while_one_server_takes_the_place_of_another() {
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let pane = server.pane("%0").await.unwrap();
    let typed = Arc::new(AtomicU64::new(0));
    let typing = tokio::spawn({
        let typed = typed.clone();
        async move {
            loop {
                match pane.type_text("x").await {
                    Ok(_) => drop(typed.fetch_add(1, Ordering::Relaxed)),
                    Err(error) if error.code == ErrorCode::NotFound => return error.message,
                    // Between the two.
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        }
    });
    eventually("some of it was typed", || typed.load(Ordering::Relaxed) > 0);
    world.tmux(&["kill-server"]);
    eventually("another server, once the first has gone", || {
        run(world.tmux_command(world.socket()).args(["new-session", "-d", "stty -echo; exec cat"])).status == 0
    });
    let refused = tokio::time::timeout(LIMIT, typing).await.unwrap().unwrap();
    assert!(refused.contains("ended with the tmux server"), "{refused}");
    eventually("it reads lines", || {
        world.tmux(&["display-message", "-p", "-t", "%0", "#{pane_current_command}"]) == "cat"
    });
    world.tmux(&["send-keys", "-t", "%0", "only this", "Enter"]);
    eventually("what was typed by hand", || world.tmux(&["capture-pane", "-p", "-t", "%0"]).contains("only this"));
    assert_eq!(world.tmux(&["capture-pane", "-p", "-t", "%0"]).trim(), "only this");
    engine.stop().await;
}

/// A caller that keeps reading or respawning a pane means the first server's pane too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_or_restarts_the_pane_of_the_next_server() {
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let pane = server.pane("%0").await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let asked = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let looking = tokio::spawn({
        let (pane, over, asked) = (pane.clone(), over.clone(), asked[0].clone());
        async move {
            while !over.load(Ordering::Relaxed) {
                if let Ok(seen) = pane.capture().await {
                    assert!(!seen.text.contains("the new one"), "{seen:?}");
                }
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let restarting = tokio::spawn({
        let (pane, over, asked) = (pane.clone(), over.clone(), asked[1].clone());
        async move {
            while !over.load(Ordering::Relaxed) {
                let _ = pane.restart().await;
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let both_again = || {
        let before = asked.each_ref().map(|count| count.load(Ordering::Relaxed));
        eventually("both have asked since", || {
            asked.iter().zip(before).all(|(count, before)| count.load(Ordering::Relaxed) > before + 1)
        });
    };
    both_again();
    world.tmux(&["kill-server"]);
    let new = "echo the new one; exec cat";
    eventually("another server, once the first has gone", || {
        run(world.tmux_command(world.socket()).args(["new-session", "-d", new])).status == 0
    });
    let process = || world.tmux(&["display-message", "-p", "-t", "%0", "#{pane_pid}"]);
    let first = process();
    eventually("it is followed", || pane.info().earlier_server);
    both_again();
    assert_eq!(process(), first, "it was restarted");
    over.store(true, Ordering::Relaxed);
    looking.await.unwrap();
    restarting.await.unwrap();
    engine.stop().await;
}

/// A server ends with its last session.
// The engine runs while the test waits for tmux.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_panes_exit_is_known_even_if_the_server_exits_with_it() {
    let world = World::new();
    let engine = Engine::start(Options::default().tmux(tmux_program())).unwrap();
    let server = engine.server_at(world.socket()).unwrap();
    let pane = server.new_session().command(["sh", "-c", "echo last words; exit 7"]).await.unwrap();
    let mut follow = pane.follow();
    while follow.next().await.unwrap().is_some_and(|output| output.exit.is_none()) {}
    eventually("the server has gone", || !matches!(&*engine.servers()[0].state, "connected" | "connecting"));
    let ended = pane.wait().exit().await.unwrap();
    assert_eq!((ended.outcome, ended.exit_status), (WaitOutcome::Matched, Some(7)), "{ended:?}");
    assert!(pane.capture().await.unwrap().text.contains("last words"));
    assert_eq!(pane.info().exit_status, Some(7));
    engine.stop().await;
}

#[tokio::test]
async fn a_command_is_made_followed_and_its_end_told() {
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let mut events = server.events([EventKind::PaneExited]).await.unwrap();
    let pane =
        server.new_session().name("made").env("WHO", "me").command(["sh", "-c", "echo \"it is $WHO\"; exit 4"]).keep();
    let pane = pane.await.unwrap();
    let mut follow = pane.follow().since(Since::Start);
    let mut text = String::new();
    let mut exit = None;
    while let Some(output) = follow.next().await.unwrap() {
        text.push_str(&output.text());
        exit = output.exit;
    }
    assert_eq!((text.as_str(), exit.unwrap().status), ("it is me\n", Some(4)));
    assert!(follow.next().await.unwrap().is_none());
    let event = events.next().await.unwrap();
    assert!(
        matches!(event, Some(Event::PaneExited { pane: id, exit_status: Some(4), .. }) if id == pane.id()),
        "{event:?}"
    );
    let wrong = [
        server.new_session().beside().await.unwrap_err(),
        server.new_session().select().await.unwrap_err(),
        server.new_window("made").size(80, 24).await.unwrap_err(),
        pane.split().name("x").await.unwrap_err(),
    ];
    assert!(wrong.iter().all(|error| error.code == ErrorCode::InvalidArgument), "{wrong:?}");
    let beside = server.pane("made").await.unwrap().split().beside().size(20, 0).command(["cat"]).await.unwrap();
    let window = server.new_window("made").name("other").shell_command("cat").await.unwrap();
    assert_eq!((beside.info().window, window.info().window.as_str()), (pane.info().window, "other"));
    assert_eq!(beside.info().size.width, 20);
    beside.kill().await.unwrap();
    engine.stop().await;
}

#[tokio::test]
async fn a_wait_that_was_started_gives_its_result_later() {
    let world = World::with_server();
    let (engine, server) = engine(&world).await;
    let (one, other) = (cat(&world, &server).await, cat(&world, &server).await);
    let both = server.wait([&one, &other]).pattern("ready").unwrap().all_panes().start().await.unwrap();
    one.submit("ready").await.unwrap();
    other.paste("ready\n").await.unwrap();
    assert_eq!(both.result().await.unwrap().outcome, WaitOutcome::Matched);
    let gone = one.wait().gone("ready").unwrap().start().await.unwrap();
    one.submit("\u{1b}[2J").await.unwrap();
    assert_eq!(gone.result().await.unwrap().outcome, WaitOutcome::Matched);
    let never = one.wait().pattern("never").unwrap().timeout(Duration::from_secs(3600)).start().await.unwrap();
    let open = engine.waits();
    let [wait] = open.as_slice() else { panic!("{open:?}") };
    assert_eq!((wait.panes.as_slice(), wait.until_ms - wait.since_ms), ([one.id()].as_slice(), 3_600_000));
    assert_eq!((wait.conditions[0].pattern.as_deref(), wait.face.as_str()), (Some("never"), "engine"));
    assert_eq!(engine.server_named(None).unwrap().socket(), world.socket(), "the only one that is followed");
    assert_eq!(never.cancel().await.unwrap().outcome, WaitOutcome::Cancelled);
    assert!(engine.waits().is_empty());
    engine.stop().await;
}
