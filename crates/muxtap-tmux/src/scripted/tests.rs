//! Connection, coverage and server against a tmux that the test plays.

use std::time::Instant as WallClock;

use muxtap_api::{Error, ErrorCode};
use muxtap_core::protocol::command::{Command, CommandLine};
use tokio::time::{Instant, sleep};

use super::*;
use crate::{
    Lost, Request,
    connection::{ANSWER_LIMIT, BACKLOG_LIMIT, SILENCE_LIMIT},
    model::{Action, Model},
    values::Reads,
};

const SESSION: SessionId = SessionId(0);
const PANE: PaneId = PaneId(1);
/// Two ticks of the connection's watch.
const SOON: Duration = Duration::from_secs(1);

/// Starts a server with one guest and one pane, seeded.
async fn one_pane() -> (Scripted, Wire) {
    one_pane_of(Scripted::start()).await
}

async fn one_pane_of(server: Scripted) -> (Scripted, Wire) {
    let mut wire = server.guest(SESSION);
    server.kick();
    wire.list(&[row(0, 0, 1)]).await;
    wire.seed("hello").await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "seeded %1 First hello"]);
    let subscribed = wire.accept().await;
    assert!(subscribed[0].starts_with("refresh-client -B"), "{subscribed:?}");
    (server, wire)
}

fn question() -> Request {
    Request::Framed(vec![Command::new("show-options").flag("-g")])
}

fn change(name: &str) -> Request {
    Request::Plain(CommandLine::of([Command::new("rename-session").arg(name)]))
}

async fn read(server: ServerLink) -> Result<super::super::Answer, Error> {
    server.read(None, question).await
}

async fn write(server: ServerLink, name: &str) -> Result<super::super::Answer, Error> {
    server.write(None, change(name)).await
}

fn unavailable<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    let error = answer.unwrap_err();
    assert_eq!(error.code, ErrorCode::TmuxUnavailable, "{error:?}");
    error.message
}

#[tokio::test(start_paused = true)]
async fn a_pane_is_listed_seeded_and_followed() {
    let (server, mut wire) = one_pane().await;
    wire.say("%output %1 there");
    assert_eq!(server.told(1).await, ["output %1 there"]);
    drop(wire);
    assert_eq!(server.told(1).await, ["unfollowed %1"]);
}

#[tokio::test(start_paused = true)]
async fn tmux_looks_at_a_window_only_while_a_pane_of_it_is_used() {
    let (server, mut wire) = one_pane().await;
    let carry_out = |act: &dyn Fn(&mut Model) -> Vec<Action>| {
        let actions = act(&mut server.inner.lock());
        server.inner.carry_out(actions);
    };
    let (begins, ends) = ("refresh-client -B \"muxtap-@0:@0:", "refresh-client -B muxtap-@0");
    carry_out(&|model| model.follow(false, Reads::TmuxAlone, false));
    assert_eq!(wire.accept().await, [ends], "nobody uses it");
    carry_out(&|model| model.use_values(PANE, Reads::TmuxAlone));
    assert!(wire.accept().await[0].starts_with(begins));
    for again in [Model::use_values, Model::leave_values] {
        carry_out(&|model| model.follow(false, Reads::TmuxAlone, false));
        carry_out(&|model| again(model, PANE, Reads::TmuxAlone));
    }
    assert_eq!(wire.accept().await, [ends], "once, by the one that left it");
    carry_out(&|model| model.leave_end_to_tmux(PANE, Reads::TmuxAlone));
    assert!(wire.accept().await[0].starts_with(begins), "nothing else tells its end");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_never_comes_is_an_error_in_time_and_the_connection_goes_on_where_it_was() {
    let (server, mut wire) = one_pane().await;
    let begun = Instant::now();
    let reader = tokio::spawn(read(server.server.clone()));
    let asked = wire.request().await;
    let message = unavailable(reader.await.unwrap());
    assert!(message.starts_with("tmux does not respond"), "{message}");
    assert!(begun.elapsed() <= SILENCE_LIMIT + SOON, "{:?}", begun.elapsed());

    let begun = Instant::now();
    let refused = server.server.write(None, change("b")).await;
    assert_eq!(refused.as_ref().unwrap_err().details, Some(serde_json::json!({ "sent": false })));
    assert!(unavailable(refused).contains("was not sent"));
    assert_eq!(begun.elapsed(), Duration::ZERO, "the next caller need not find it out again");

    // The server continues: nothing was lost, and the late reply is not given to another request.
    let reached = tokio::spawn({
        let server = server.server.clone();
        async move { server.reached().await }
    });
    sleep(10 * SOON).await;
    assert!(!reached.is_finished());
    wire.answer(&asked, &["late"]);
    reached.await.unwrap();
    assert_eq!(wire.accept().await, ["display-message -p \"\""]);
    wire.say("%output %1 there");
    assert_eq!(server.told(1).await, ["output %1 there"], "its pane was followed all the time");
    let reader = tokio::spawn(read(server.server.clone()));
    let asked = wire.request().await;
    assert_eq!(asked.commands(), ["show-options -g"]);
    wire.answer(&asked, &["new"]);
    assert_eq!(reader.await.unwrap().unwrap().unwrap(), ["new\n"]);
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn commands_that_tmux_has_not_read_are_withdrawn() {
    let (server, mut wire) = one_pane().await;
    // A server that stops in the middle of a line: the rest of that line should follow.
    let long = "x".repeat(20_000);
    let half = tokio::spawn({
        let (server, long) = (server.server.clone(), long.clone());
        async move { write(server, &long).await }
    });
    wire.bite().await;
    let (one, two) = (tokio::spawn(write(server.server.clone(), "one")), tokio::spawn(read(server.server.clone())));
    let model = tokio::spawn({
        let server = server.server.clone();
        async move { server.fresh().await.map(drop) }
    });
    let half = half.await.unwrap();
    assert_eq!(half.as_ref().unwrap_err().details, Some(serde_json::json!({ "sent": true })));
    assert!(unavailable(half).contains("not known"));
    assert!(unavailable(one.await.unwrap()).contains("was not sent"));
    unavailable(two.await.unwrap());
    unavailable(model.await.unwrap());

    // Of the callers' requests only the line that was begun runs; the model is read all the same.
    let asked = wire.request().await;
    assert_eq!(asked.commands(), [format!("rename-session {long}")]);
    wire.answer(&asked, &[]);
    wire.list(&[row(0, 0, 1)]).await;
    assert_eq!(wire.accept().await, ["display-message -p \"\""]);
    wire.say("%output %1 there");
    assert_eq!(server.told(1).await, ["output %1 there"]);
    let reader = tokio::spawn(read(server.server.clone()));
    let asked = wire.request().await;
    wire.answer(&asked, &["new"]);
    assert_eq!(reader.await.unwrap().unwrap().unwrap(), ["new\n"], "frames are matched with what was really sent");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_prints_and_answers_nothing_is_given_up() {
    let (server, mut wire) = one_pane().await;
    let begun = Instant::now();
    let reader = tokio::spawn(read(server.server.clone()));
    while !reader.is_finished() {
        wire.say("%output %1 .");
        sleep(Duration::from_millis(700)).await;
    }
    unavailable(reader.await.unwrap());
    assert!(begun.elapsed() > SILENCE_LIMIT + SOON, "what prints is not silent");
    assert!(begun.elapsed() <= ANSWER_LIMIT + SOON, "{:?}", begun.elapsed());
    wire.connection.closed().await;
    assert_eq!(server.told_besides().last().map(String::as_str), Some("unfollowed %1"));
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_dropped_while_its_server_responds_to_others() {
    let (server, wire) = one_pane_of(Scripted::with_program("true")).await;
    // In real time: a process is started for it.
    tokio::time::resume();
    let begun = WallClock::now();
    unavailable(read(server.server.clone()).await);
    wire.connection.closed().await;
    assert!(begun.elapsed() < SILENCE_LIMIT + 4 * SOON, "{:?}", begun.elapsed());
    assert_eq!(server.told(1).await, ["unfollowed %1"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_connection_is_not_considered_dead() {
    let (server, mut wire) = one_pane().await;
    let readers: Vec<_> = (0..6).map(|_| tokio::spawn(read(server.server.clone()))).collect();
    for _ in 0..6 {
        let asked = wire.request().await;
        sleep(Duration::from_secs(4)).await;
        wire.answer(&asked, &["x"]);
    }
    let mut answered = Vec::new();
    for reader in readers {
        answered.push(reader.await.unwrap().is_ok());
    }
    assert_eq!(answered, [true, true, true, false, false, false], "those who waited too long were told so");
    sleep(SOON).await;
    assert!(wire.connection.is_open() && !wire.connection.is_silent());
    assert!(server.told_besides().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_as_long_as_other_changes_get_their_turns() {
    let (server, mut wire) = one_pane().await;
    // 3.8 does not need turns.
    if let Some(identity) = &mut server.inner.lock().identity {
        identity.version = Version::parse(b"3.7").unwrap();
    }
    let begun = Instant::now();
    let changes: Vec<_> = (0..12).map(|_| tokio::spawn(write(server.server.clone(), "a"))).collect();
    for change in changes {
        let asked = wire.request().await;
        sleep(Duration::from_secs(4)).await;
        wire.answer(&asked, &[]);
        change.await.unwrap().unwrap().unwrap();
    }
    assert!(begun.elapsed() > 3 * ANSWER_LIMIT, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_queue_towards_tmux_is_bounded() {
    let (server, wire) = one_pane().await;
    let refused = Arc::new(Mutex::new(Vec::new()));
    let line = "x".repeat(1 << 20);
    for number in 0..70 {
        let refused = refused.clone();
        server.server.submit(None, change(&line), move |answer| refused.lock().unwrap().push((number, answer)));
    }
    let all = refused.lock().unwrap().clone();
    let numbers: Vec<_> = all.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [65, 66, 67, 68, 69], "64 MiB wait, and what came on top of them");
    assert!(all.iter().all(|(_, answer)| *answer == Err(Lost::Unsent)));
    drop(wire);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_with_requests_in_flight_answers_them() {
    let (server, mut first) = one_pane().await;
    let mut second = server.guest(SessionId(7));
    let writer = tokio::spawn(write(server.server.clone(), "b"));
    first.request().await;
    let reader = tokio::spawn(read(server.server.clone()));
    first.request().await;
    drop(first);
    let changed = writer.await.unwrap();
    assert_eq!(changed.as_ref().unwrap_err().details, Some(serde_json::json!({ "sent": true })));
    assert!(unavailable(changed).contains("not known"), "it may have been done, so it is not asked twice");
    // A query changes nothing and is repeated over the other one. The model is read on it, too.
    let mut answered = false;
    while !answered {
        let asked = second.request().await;
        answered = asked.commands() == ["show-options -g"];
        second.answer(&asked, if answered { &["x"] } else { &[] });
    }
    assert_eq!(reader.await.unwrap().unwrap().unwrap(), ["x\n"]);
}

#[tokio::test(start_paused = true)]
async fn a_window_in_two_sessions_goes_on_over_the_other_guest() {
    let server = Scripted::start();
    let mut first = server.guest(SessionId(0));
    let mut second = server.guest(SessionId(1));
    let rows = || [row(0, 0, 1), row(1, 0, 1).with("window_index", "5")];
    server.kick();
    first.list(&rows()).await;
    first.seed("hello").await;
    first.accept().await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "seeded %1 First hello"]);
    // Both carry it; the output of one is used (C1).
    second.say("%output %1 twice");
    first.say("%output %1 twice");
    assert_eq!(server.told(1).await, ["output %1 twice"]);
    drop(first);
    second.list(&[row(1, 0, 1)]).await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "unfollowed %1"]);
    second.say("%output %1 before");
    second.seed("hello twice before").await;
    second.accept().await;
    // Output that came ahead over this connection is compared with the pane's content.
    second.say("%output %1 after");
    let told = server.told(2).await;
    assert_eq!(told, ["moved %1 \"hello twice before\" \"before\"", "output %1 after"]);
    assert!(server.told_besides().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_nobody_asked_for_is_ended_and_the_pane_is_seeded_anew() {
    let (server, mut wire) = one_pane().await;
    wire.say("%pause %1");
    assert_eq!(wire.accept().await, ["refresh-client -A \"%1:continue\""]);
    wire.seed("hello and more").await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "seeded %1 Again(Paused) hello and more"]);
}

#[tokio::test(start_paused = true)]
async fn a_placeholder_is_paused_while_its_program_takes_its_place() {
    let (server, mut wire) = one_pane().await;
    let begin = tokio::spawn({
        let server = server.server.clone();
        async move { server.begin(PANE, vec![Command::new("respawn-pane").flag("-k")]).await }
    });
    let pause = |how: &str| format!("refresh-client -A \"%1:{how}\"");
    assert_eq!(wire.accept().await, [pause("pause"), "respawn-pane -k".into(), pause("continue")]);
    begin.await.unwrap().unwrap().unwrap();
    wire.say("%output %1 there");
    assert_eq!(server.told(1).await, ["output %1 there"], "no gap: what a placeholder printed is of no interest");
}

#[tokio::test(start_paused = true)]
async fn a_respawn_while_the_pane_is_being_paused_for_its_seed_doubles_nothing() {
    let (server, mut wire) = one_pane().await;
    wire.say("%pause %1");
    wire.accept().await;
    let asked = wire.request().await;
    wire.say("%output %1 noise");
    wire.answer_seed(&asked, "hello noise");
    let pause = wire.request().await;
    assert_eq!(pause.commands(), ["refresh-client -A \"%1:pause\""]);
    let respawn = tokio::spawn({
        let server = server.server.clone();
        async move { server.respawn(PANE, vec![Command::new("respawn-pane").flag("-k")], |_| {}).await }
    });
    let respawned = wire.request().await;
    wire.answer(&pause, &[]);
    let late = wire.request().await;
    wire.answer(&respawned, &["", "", ""]);
    respawn.await.unwrap().unwrap().unwrap();
    wire.say("%output %1 new");
    wire.answer_seed(&late, "hello noise new");
    // That content contains what has come as output. It is not used; the pane printed, so it is
    // paused and read again.
    wire.seed("hello noise new").await;
    assert_eq!(wire.accept().await, ["refresh-client -A \"%1:pause\""]);
    wire.seed("hello noise new").await;
    wire.say("%output %1 !");
    let told = server.told(5).await;
    assert_eq!(told[..2], ["unfollowed %1", "restarted %1, another one ran"]);
    assert_eq!(told[2..], ["unfollowed %1", "seeded %1 Again(Paused) hello noise new", "output %1 !"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_does_not_wait_for_a_pane_whose_seed_is_refused() {
    let server = Scripted::start();
    let mut wire = server.guest(SESSION);
    let begun = Instant::now();
    let cover = tokio::spawn({
        let server = server.server.clone();
        async move { server.cover(PANE).await }
    });
    wire.list(&[row(0, 0, 1)]).await;
    let asked = wire.request().await;
    wire.refuse(&asked, "no space for it");
    unavailable(cover.await.unwrap());
    assert!(begun.elapsed() <= ANSWER_LIMIT + SOON, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_ends_the_connection_and_nothing_else() {
    let (server, mut wire) = one_pane().await;
    let writer = tokio::spawn(write(server.server.clone(), "b"));
    wire.request().await;
    wire.say("%output %1 PANIC");
    assert!(unavailable(writer.await.unwrap()).contains("was lost"), "what was open is answered");
    wire.connection.closed().await;
    assert_eq!(server.told(1).await, ["unfollowed %1"]);
    // The next client of the session works as usual.
    let mut next = server.guest(SESSION);
    server.kick();
    next.list(&[row(0, 0, 1)]).await;
    next.seed("hello PAN").await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "seeded %1 Again(Reconnected) hello PAN"]);
    let reader = tokio::spawn(read(server.server.clone()));
    next.accept().await;
    let asked = next.request().await;
    next.answer(&asked, &["x"]);
    assert_eq!(reader.await.unwrap().unwrap().unwrap(), ["x\n"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_during_a_listing_does_not_end_the_listings() {
    let server = Scripted::start();
    let mut wire = server.guest(SESSION);
    server.observer.fails_at_unfollowed.store(true, Ordering::Relaxed);
    server.kick();
    wire.list(&[row(0, 0, 1), row(0, 1, 2)]).await;
    wire.connection.closed().await;
    let told = server.told_besides();
    assert!(told.iter().any(|line| line == "unfollowed %2"), "the other pane was notified: {told:?}");
    let mut next = server.guest(SESSION);
    let cover = tokio::spawn({
        let server = server.server.clone();
        async move { server.cover(PANE).await }
    });
    next.list(&[row(0, 0, 1)]).await;
    next.seed("hello").await;
    cover.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_only_behind_a_flood_is_kept() {
    let (server, mut wire) = one_pane().await;
    let reader = tokio::spawn(read(server.server.clone()));
    let asked = wire.request().await;
    let begun = Instant::now();
    while begun.elapsed() < 3 * ANSWER_LIMIT {
        wire.say("%extended-output %1 20000 : old\n%extended-output %1 3 : new");
        sleep(Duration::from_millis(400)).await;
    }
    unavailable(reader.await.unwrap());
    wire.answer(&asked, &["late"]);
    let reader = tokio::spawn(read(server.server.clone()));
    let asked = wire.request().await;
    wire.answer(&asked, &["x"]);
    assert_eq!(reader.await.unwrap().unwrap().unwrap(), ["x\n"]);
    // A connection whose output stays old is given up at last.
    let reader = tokio::spawn(read(server.server.clone()));
    let begun = Instant::now();
    while wire.connection.is_open() {
        assert!(begun.elapsed() <= BACKLOG_LIMIT + SOON, "{:?}", begun.elapsed());
        wire.say("%extended-output %1 20000 : old");
        sleep(Duration::from_millis(400)).await;
    }
    unavailable(reader.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_ends_the_connection_and_the_others_are_answered() {
    let (server, mut wire) = one_pane().await;
    server.server.submit(None, change("a"), |_| panic!("as a callback never should"));
    let writer = tokio::spawn(write(server.server.clone(), "b"));
    let asked = wire.request().await;
    wire.request().await;
    wire.answer(&asked, &[]);
    assert!(unavailable(writer.await.unwrap()).contains("was lost"));
    wire.connection.closed().await;
    assert_eq!(server.told(1).await, ["unfollowed %1"]);
}

#[tokio::test]
async fn a_link_whose_task_panics_is_restarted() {
    let told = Arc::new(RecordingObserver::default());
    told.fails_at_link.store(true, Ordering::Relaxed);
    let program = Program { tmux: "/nonexistent/tmux".into(), ..Program::default() };
    let spec = ServerSpec {
        program,
        socket: "/nowhere".into(),
        coverage: CoverageMode::Sessions,
        floods: Floods::Hold,
        file: SocketFile::default(),
        own: OwnProgram::default(),
    };
    let (cancel, tasks) = (CancellationToken::new(), TaskTracker::new());
    let server = ServerLink::follow(spec, told.clone(), cancel.clone(), &tasks);
    let answered = tokio::time::timeout(SILENCE_LIMIT, server.connected()).await.expect("nobody hangs");
    assert!(answered.unwrap_err().message.contains("cannot run"), "it was tried anew");
    assert!(!told.fails_at_link.load(Ordering::Relaxed));
    cancel.cancel();
    tasks.close();
    tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_for_whom_a_pane_is_covered_does_not_notice_a_connection_that_ends() {
    let server = Scripted::start();
    let mut first = server.guest(SESSION);
    let cover = tokio::spawn({
        let server = server.server.clone();
        async move { server.cover(PANE).await }
    });
    let asked = first.request().await;
    assert!(asked.commands()[0].starts_with("list-panes"), "{asked:?}");
    // The connection dies with its session, and it was the only one.
    let connection = first.connection.clone();
    drop(first);
    connection.closed().await;
    sleep(SOON).await;
    assert!(!cover.is_finished(), "{:?}", cover.await);
    let mut next = server.guest(SessionId(7));
    server.inner.link.send_modify(|_| {});
    next.list(&[row(7, 0, 1)]).await;
    next.seed("hello").await;
    cover.await.unwrap().unwrap();
}

/// The last client goes with its session, and a pending guest attaches before the link has noticed:
/// the server has to be identified again, and until then callers wait.
#[tokio::test(start_paused = true)]
async fn a_guest_that_attaches_just_as_the_last_client_goes_does_not_hide_that() {
    let server = Scripted::start();
    let first = server.guest(SESSION);
    let mut lost = std::pin::pin!(server.inner.all_lost());
    assert!(tokio::time::timeout(SOON, lost.as_mut()).await.is_err());
    let connection = first.connection.clone();
    drop(first);
    connection.closed().await;
    let _next = server.arrived(SessionId(7));
    let asker = tokio::spawn({
        let server = server.server.clone();
        async move { server.fresh().await.map(drop) }
    });
    sleep(SOON).await;
    assert!(!asker.is_finished(), "{:?}", asker.await);
    assert!(tokio::time::timeout(SOON, lost).await.is_ok(), "the link begins anew");
}

/// Another server on the socket has other panes of the same ids.
#[tokio::test(start_paused = true)]
async fn a_handle_on_one_server_process_asks_no_other_one() {
    let (server, mut wire) = one_pane().await;
    let here = server.server.connected().await.unwrap().epoch();
    let (own, other) = (server.server.only(here), server.server.only(here + 1));
    let respawn = || vec![Command::new("respawn-pane").flag("-k").opt("-t", PANE.to_string())];
    for error in [
        read(other.clone()).await.unwrap_err(),
        write(other.clone(), "a").await.unwrap_err(),
        other.respawn(PANE, respawn(), |_| {}).await.unwrap_err(),
        other.begin(PANE, respawn()).await.unwrap_err(),
        other.connected().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.code, ErrorCode::NotFound, "{error:?}");
    }
    let (lost, answer) = tokio::sync::oneshot::channel();
    other.submit(Some(PANE), change("b"), |answer| drop(lost.send(answer)));
    assert_eq!(answer.await.unwrap(), Err(Lost::Ended));
    other.submit_at_last(Some(PANE), change("c"));
    // Nothing of the earlier requests was sent: this is the first.
    let writer = tokio::spawn(async move { write(own, "d").await });
    let asked = wire.accept().await;
    assert_eq!(asked, ["rename-session d"]);
    writer.await.unwrap().unwrap().unwrap();
    // A connection whose server is not known may lead to another one.
    server.inner.lock().greeted = false;
    let own = server.server.only(here);
    let (lost, answer) = tokio::sync::oneshot::channel();
    own.submit(Some(PANE), change("e"), |answer| drop(lost.send(answer)));
    assert_eq!(answer.await.unwrap(), Err(Lost::Ended));
}

/// A server may be killed right after the client that was to become its hub has attached.
#[tokio::test(start_paused = true)]
async fn a_client_that_ends_before_it_is_a_hub_is_no_defect() {
    let server = Scripted::start();
    let wire = server.arrived(SESSION);
    let connection = wire.connection.clone();
    drop(wire);
    connection.closed().await;
    let error = server.inner.become_hub(&connection).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::TmuxUnavailable, "{error:?}");
}

/// The fields of a stored link with one client and one pane.
const STORED_FIELDS: &str = "clients(client(begun head id name pid) descriptors hub session) next_connection \
                             panes(carriers flow(Following(owner)) parked pid) pid sessions started subscribed version \
                             visited wanted";

/// Returns the names of all fields.
fn fields(value: &serde_json::Value) -> String {
    let parts: Vec<String> = match value {
        serde_json::Value::Object(fields) => {
            let named = |(name, value): (&String, &serde_json::Value)| match self::fields(value) {
                inner if inner.is_empty() => name.clone(),
                inner => format!("{name}({inner})"),
            };
            fields.iter().map(named).collect()
        }
        serde_json::Value::Array(items) => items.iter().map(self::fields).filter(|inner| !inner.is_empty()).collect(),
        _ => Vec::new(),
    };
    parts.join(" ")
}

/// T7, T8: a paused client is stopped when what was asked has its reply; what comes and what is asked
/// meanwhile waits.
#[tokio::test(start_paused = true)]
async fn a_paused_client_waits_with_what_comes_and_what_is_asked_and_goes_on() {
    let (server, mut wire) = one_pane().await;
    let asked = tokio::spawn(read(server.server.clone()));
    let before = wire.request().await;
    let link = server.server.clone();
    let pausing = tokio::spawn(async move { link.pause(LIMIT).await });
    sleep(SOON).await;
    assert!(!pausing.is_finished(), "a request has no reply yet");
    wire.say("%output %1 one");
    assert_eq!(server.told(1).await, ["output %1 one"]);
    let later = tokio::spawn(read(server.server.clone()));
    wire.answer(&before, &["on"]);
    let paused = pausing.await.unwrap().unwrap().unwrap();
    assert!(asked.await.unwrap().is_ok());
    assert_eq!(paused.state().descriptors(), 2);
    // T5: with other fields, raise `STATE_VERSION` of the engine's `handover.rs`.
    let stored = serde_json::to_value(paused.state()).unwrap();
    assert_eq!(fields(&stored), STORED_FIELDS);
    wire.say("%output %1 two");
    sleep(SOON * 20).await;
    assert!(!later.is_finished());
    assert_eq!(server.told_besides(), [""; 0]);
    drop(paused);
    assert_eq!(server.told(1).await, ["output %1 two"]);
    let after = wire.request().await;
    wire.answer(&after, &["off"]);
    assert!(later.await.unwrap().is_ok());
}

/// T8.
#[tokio::test(start_paused = true)]
async fn a_server_that_sends_no_reply_cannot_be_paused_and_loses_nothing() {
    let (server, mut wire) = one_pane().await;
    let asked = tokio::spawn(read(server.server.clone()));
    let before = wire.request().await;
    let refused = server.server.pause(SOON).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::TmuxUnavailable);
    assert!(refused.message.contains("far/nowhere"), "{refused}");
    wire.say("%output %1 one");
    assert_eq!(server.told(1).await, ["output %1 one"]);
    wire.answer(&before, &["on"]);
    assert!(asked.await.unwrap().is_ok());
    // Requests are sent again, and clients can arrive.
    let later = tokio::spawn(read(server.server.clone()));
    let after = wire.request().await;
    wire.answer(&after, &["off"]);
    assert!(later.await.unwrap().is_ok());
    assert!(server.inner.guests.try_acquire().is_ok() && server.inner.arrivals.try_acquire().is_ok());
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_a_pane_floods() {
    const LINES: usize = 1024;
    let (server, mut wire) = one_pane().await;
    // All of it is in the pipe before any is read.
    for _ in 0..LINES {
        wire.say("%output %1 x");
    }
    let (mut all, mut turns) = (0, 0);
    while all < LINES {
        tokio::task::yield_now().await;
        let some = server.told_besides().len();
        turns += usize::from(some > 0);
        all += some;
    }
    // Each line counts for more than 128 bytes, and 32 KiB are handed over in a row.
    assert!(turns >= LINES * 128 / (32 * 1024), "{turns} turns of another task");
}

/// Nothing is asked for it: a server that does not reply can be paused as before.
#[tokio::test(start_paused = true)]
async fn a_client_has_caught_up_when_all_that_came_was_read() {
    const LINES: usize = 1024;
    let (server, mut wire) = one_pane().await;
    server.server.catch_up(LIMIT).await;
    for _ in 0..LINES {
        wire.say("%output %1 x");
    }
    server.server.catch_up(LIMIT).await;
    assert_eq!(server.told_besides().len(), LINES);
    let begun = Instant::now();
    assert!(server.server.pause(LIMIT).await.unwrap().is_some());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
