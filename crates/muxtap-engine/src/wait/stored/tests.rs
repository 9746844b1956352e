use std::time::Duration;

use futures_util::poll;
use muxtap_api::{ErrorCode, StatusIs, WaitMode, WaitOutcome};
use serde_json::Value;

use super::*;
use crate::{
    Options,
    handover::Prepared,
    wait::{attach::StartState, report::report},
};

const RING: usize = 64 * 1024;
/// The limit of what does not take long.
const LONG: Duration = Duration::from_secs(300);
const SOCKET: &str = "/nowhere/default";

fn options() -> Options {
    Options { ring_bytes: RING, ..Options::default() }
}

/// An engine with a server that has these panes.
struct World {
    engine: Engine,
    host: Arc<Host>,
    panes: Vec<Arc<PaneState>>,
}

impl World {
    fn new() -> Self {
        let engine = Engine::new(options());
        let host = Host::new(Path::new(SOCKET), &engine.shared);
        let panes: Vec<_> =
            (1..=2).map(|id| PaneState::new(PaneId(id), Epoch { server: 7, engine: 9 }, RING)).collect();
        host.restore(7, panes.clone(), Vec::new(), true);
        engine.hosts().insert(SOCKET.into(), host.clone());
        Self { engine, host, panes }
    }

    /// Returns what another process continues.
    fn continued(&self) -> Self {
        let state = self.engine.store().unwrap();
        let engine = Prepared::read(options(), &state, Vec::new()).unwrap().start();
        let host = engine.hosts().get(Path::new(SOCKET)).unwrap().clone();
        let panes = self.panes.iter().map(|pane| host.pane(pane.id()).unwrap()).collect();
        Self { engine, host, panes }
    }

    /// Begins a wait on all panes.
    async fn wait(&self, request: WaitRequest) -> WaitGuard {
        let request = WaitRequest { panes: vec!["%1".into(), "%2".into()], ..request };
        let spec = self.engine.spec(&request, Instant::now()).await.unwrap();
        let (host, panes) = (self.host.clone(), self.panes.clone());
        let make = |id| Core::new(id, host.clone(), spec, panes, Some(request.clone()));
        let guard = WaitGuard::new(&self.engine, make).unwrap();
        let starts: Vec<_> = self.panes.iter().cloned().map(StartState::of).collect();
        Server::of(self.engine.clone(), self.host.clone()).attach(guard.core(), &starts).await.unwrap();
        guard
    }

    fn core(&self, id: &str) -> Arc<Core> {
        match self.engine.shared.waits.get(id).unwrap() {
            Wait::Open(core, _) => core,
            Wait::Ended(_) => panic!("{id} has ended"),
        }
    }
}

/// Returns all that a caller learns of a wait, without times.
fn known(core: &Core) -> Value {
    let mut answer = report(core).0;
    answer.duration_ms = 0.0;
    for one in &mut answer.predicates {
        one.after_ms = one.after_ms.map(|_| 0.0);
    }
    let mut known = serde_json::to_value(answer).unwrap();
    // When a command's end was read.
    for one in known["predicates"].as_array_mut().unwrap() {
        if let Some(command) = one["command"].as_object_mut() {
            command.retain(|name, _| !name.ends_with("_ms"));
        }
    }
    known
}

/// Output in which every kind of condition is satisfied, and the first pattern twice.
const OUTPUT: &str = "\x1b]133;A\x07$ \x1b]133;B\x07make\r\n\x1b]133;C\x07caf\u{e9}: 12 passed\r\n\x07error: no such\r\n\
                      \x1b]133;D;2\x07\x1b]133;A\x07$ \x1b]133;B\x07";

fn requests() -> Vec<WaitRequest> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let one = |text: &str| WaitRequest { patterns: texts(&[text]), ..WaitRequest::default() };
    let mut requests = vec![
        one(r"^\w+: (?P<passed>\d+) passed$"),
        one(r"(?s)\A.*such"),
        one(r"e(?s).*\$ $"),
        WaitRequest { patterns: texts(&["never", "12"]), fail: texts(&["err.*:"]), ..one("") },
        WaitRequest { patterns: texts(&[r"\bno\b", "passed"]), mode: WaitMode::All, ..one("") },
        WaitRequest { patterns: Vec::new(), prompt: true, bell: true, ..one("") },
        WaitRequest { patterns: Vec::new(), command: true, ..one("") },
        WaitRequest { patterns: texts(&["such"]), status: Some("!0".parse::<StatusIs>().unwrap()), ..one("") },
        WaitRequest { settle_ms: Some(60_000), ..one("12") },
        WaitRequest { stable_ms: Some(60_000), exit: true, ..one("12") },
    ];
    for request in &mut requests {
        request.since = Some("now".into());
        request.timeout_ms = Some(600_000);
    }
    requests
}

/// Returns the stored form of waits with a value in as many places as possible.
pub(crate) async fn stored_as_json() -> Value {
    let world = World::new();
    let mut guards = Vec::new();
    for request in requests() {
        guards.push(world.wait(request).await);
    }
    guards[1].core().update_pane(0, |on_pane| {
        on_pane.gap = Some(muxtap_api::Gap::new(muxtap_api::GapReason::Paused, Some(3)));
    });
    let _ = world.panes[0].push(0, &OUTPUT.as_bytes()[..40]);
    let _ = world.panes[1].mark_exited(muxtap_tmux::Exit { status: Some(3), signal: None });
    let _ = world.panes[0].push(0, &OUTPUT.as_bytes()[40..]);
    guards.pop().unwrap().store_result().await;
    guards.swap_remove(0).store_result().await;
    let waits = world.engine.shared.waits.store_all().unwrap();
    let watchers = waits.open.iter().flat_map(|wait| &wait.watchers).flatten();
    let watchers = watchers.map(|Bytes(bytes)| postcard::from_bytes::<StoredWatcher>(bytes).unwrap());
    let watchers: Vec<_> = watchers.map(|watcher| serde_json::to_value(watcher).unwrap()).collect();
    serde_json::to_value((&waits, watchers)).unwrap()
}

/// T19.
#[tokio::test]
async fn waits_go_on_from_the_byte_at_which_they_stopped() {
    for request in requests() {
        // Both panes print the same; the second one later.
        for cut in (0..=OUTPUT.len()).step_by(3) {
            let world = World::new();
            let wait = world.wait(request.clone()).await;
            let (before, after) = OUTPUT.as_bytes().split_at(cut);
            let _ = world.panes[0].push(0, before);
            let next = world.continued();
            let id = &wait.core().id;
            assert_eq!(known(&next.core(id)), known(wait.core()), "{request:?} at {cut}");
            for world in [&world, &next] {
                let _ = world.panes[0].push(0, after);
                world.panes.iter().for_each(|pane| pane.lock().rest_watchers());
                let _ = world.panes[1].push(0, OUTPUT.as_bytes());
                world.panes.iter().for_each(|pane| pane.lock().rest_watchers());
            }
            assert_eq!(known(&next.core(id)), known(wait.core()), "{request:?} at {cut}");
            let (old, new) = (wait.core().lock(), next.core(id));
            let new = new.lock();
            for (old, new) in old.panes.iter().zip(&new.panes) {
                assert_eq!(
                    (&old.from, old.request_offset, old.wants_rest),
                    (&new.from, new.request_offset, new.wants_rest)
                );
                assert_eq!(
                    (old.complete.is_some(), old.quiet_since.is_some()),
                    (new.complete.is_some(), new.quiet_since.is_some())
                );
            }
        }
    }
}

#[tokio::test]
async fn a_wait_on_a_title_goes_on() {
    let world = World::new();
    let wait = world.wait(WaitRequest { title: Some("t(.)tle".into()), ..WaitRequest::default() }).await;
    let next = world.continued();
    for world in [&world, &next] {
        assert!(!world.core(&wait.core().id).is_over());
        let _ = world.panes[0].push(0, b"\x1b]2;title\x07");
    }
    assert_eq!(known(&next.core(&wait.core().id)), known(wait.core()));
    assert_eq!(known(wait.core())["outcome"], "matched");
}

#[tokio::test]
async fn a_wait_that_has_ended_answers_the_same_and_marks_its_match_once() {
    let world = World::new();
    let wait = world.wait(WaitRequest { patterns: vec!["DONE".into()], ..WaitRequest::default() }).await;
    let id = wait.core().id.clone();
    let _ = world.panes[1].push(0, b"DONE\r\n");
    // It is over, and its result is not stored yet.
    assert_eq!(known(&world.continued().core(&id))["outcome"], "matched");
    wait.store_result().await;
    let next = world.continued();
    let third = next.continued();
    for world in [next, third] {
        assert_eq!(world.panes[1].lock().last_match_end("DONE"), None, "no response has contained it yet");
        let answer = world.engine.wait_result(&id, None).await.unwrap();
        assert_eq!((answer.outcome, answer.pane), (WaitOutcome::Matched, Some(PaneId(2))));
        assert_eq!(world.panes[1].lock().last_match_end("DONE"), Some(4));
        assert!(world.continued().panes[1].lock().last_match_end("DONE").is_some());
    }
}

#[tokio::test]
async fn a_pane_that_ended_long_ago_is_kept_for_its_wait() {
    let mut world = World::new();
    // The janitor has dropped it.
    world.panes[0] = PaneState::new(PaneId(5), Epoch { server: 7, engine: 9 }, RING);
    let wait = world.wait(WaitRequest { patterns: vec!["DONE".into()], ..WaitRequest::default() }).await;
    let _ = world.panes[0].mark_exited(muxtap_tmux::Exit { status: Some(3), signal: None });
    let next = world.continued();
    assert_eq!(known(&next.core(&wait.core().id)), known(wait.core()));
    let _ = next.panes[1].push(0, b"DONE\r\n");
    assert_eq!(known(&next.core(&wait.core().id))["outcome"], "matched");
}

/// T20.
#[tokio::test]
async fn time_ends_no_wait_while_it_is_handed_over() {
    let world = World::new();
    let wait =
        world.wait(WaitRequest { patterns: vec!["never".into()], timeout_ms: Some(0), ..WaitRequest::default() }).await;
    let core = wait.core().clone();
    let held = Waits::hold(&world.engine, LONG).await.unwrap();
    let server = Server::of(world.engine.clone(), world.host.clone());
    let charge = world.engine.charge_open(0).unwrap();
    let running = tokio::spawn(async move { run(&server, wait, (None, charge)).await });
    // Its timeout has passed.
    tokio::time::sleep_until(Instant::now() + Duration::from_millis(20)).await;
    assert!(!core.is_over());
    // The handover fails: it goes on here.
    drop(held);
    running.await.unwrap();
    assert_eq!(world.engine.wait_result(&core.id, None).await.unwrap().outcome, WaitOutcome::Timeout);
}

#[tokio::test]
async fn waits_that_left_are_not_this_engines_any_more() {
    let world = World::new();
    let wait = world.wait(WaitRequest { patterns: vec!["DONE".into()], ..WaitRequest::default() }).await;
    let core = wait.core().clone();
    let (engine, id) = (world.engine.clone(), core.id.clone());
    let asking = tokio::spawn(async move { engine.wait_result(&id, Some(300_000)).await });
    tokio::task::yield_now().await;
    Waits::hold(&world.engine, LONG).await.unwrap().leave();
    // Its caller asks the next daemon.
    assert_eq!(asking.await.unwrap().unwrap().outcome, WaitOutcome::Pending);
    assert!(world.engine.wait_result(&core.id, None).await.is_err() && world.engine.waits().is_empty());
    drop(wait);
    assert!(!core.is_over(), "it was not cancelled");
    assert_eq!((world.engine.open_waits(), world.panes[0].lock().watcher_count()), (0, 0));
}

#[tokio::test]
async fn a_wait_belongs_to_its_caller_afterwards_and_to_no_other_session() {
    let world = World::new();
    let agent = crate::Principal::agent(Some(Path::new("/s")));
    let caller = Caller { face: "mcp", who: "http".into(), principal: agent.clone() };
    let mine = World {
        engine: world.engine.with_caller(caller.clone()),
        host: world.host.clone(),
        panes: world.panes.clone(),
    };
    let wait = mine.wait(WaitRequest { patterns: vec!["x".into()], ..WaitRequest::default() }).await;
    let next = world.continued();
    let id = wait.core().id.clone();
    let other =
        next.engine.with_caller(Caller { face: "mcp", who: "http".into(), principal: crate::Principal::agent(None) });
    other.abandon_wait(&id);
    assert!(!next.core(&id).is_over());
    next.engine.with_caller(caller).abandon_wait(&id);
    assert!(next.core(&id).is_over());
    let mut stored = StoredCaller::of(&Caller { face: "mcp", who: String::new(), principal: agent });
    // In another process, whose numbers begin anew, none is given twice.
    let earlier = u64::MAX / 2;
    stored.set_session(earlier);
    assert!(stored.restored().is_some());
    let crate::Principal::Agent { session, .. } = crate::Principal::agent(None) else { panic!("an agent") };
    assert!(session > earlier, "{session}");
}

/// T43.
#[tokio::test]
async fn a_wait_that_cannot_be_continued_prevents_the_handover_or_ends_with_the_reason() {
    let world = World::new();
    let request = || WaitRequest { patterns: vec!["one".into()], timeout_ms: Some(600_000), ..WaitRequest::default() };
    let (broken, other) = (world.wait(request()).await, world.wait(request()).await);
    let ids = [broken.core().id.clone(), other.core().id.clone()];
    let panes = [(PathBuf::from(SOCKET), world.panes.clone())];
    let stored = || {
        let mut waits = world.engine.shared.waits.store_all().unwrap();
        let wait = waits.open.iter_mut().find(|wait| wait.id == ids[0]).unwrap();
        // As if the next program had other limits.
        let panes = vec!["%1".into(), "%2".into()];
        let other = WaitRequest { patterns: vec!["one(".into()], panes, ..request() };
        wait.request = serde_json::to_string(&other).unwrap();
        waits
    };
    let refused = stored().prepare(&Arc::default(), &panes, false).err().unwrap();
    assert!(refused.message.contains(&ids[0]) && refused.message.contains("--force"), "{refused}");
    let mut prepared = stored().prepare(&Arc::default(), &panes, true).unwrap();
    let next = World::new();
    prepared.register_ended(&next.engine);
    let begun: Vec<_> = prepared.continue_on(&next.engine, &next.host).into_iter().map(ContinuedWait::begin).collect();
    assert_eq!(begun.len(), 1);
    assert!(!next.core(&ids[1]).is_over());
    let ended = next.engine.wait_result(&ids[0], None).await.unwrap_err();
    let named = [ids[0].as_str(), "force", "patterns[0]"];
    assert!(ended.code == ErrorCode::Conflict && named.iter().all(|part| ended.message.contains(part)), "{ended}");
    assert_eq!(next.engine.cancel_wait(&ids[0]).await.unwrap_err(), ended);
}

/// A wait is in the state that is handed over, with its watchers, or begins afterwards.
#[tokio::test]
async fn no_wait_begins_while_waits_are_handed_over() {
    let world = World::new();
    let waits = &world.engine.shared.waits;
    // One that is beginning is awaited.
    let begins = waits.begins().await.unwrap();
    let late = Waits::hold(&world.engine, Duration::ZERO).await.err().unwrap();
    assert_eq!(late.code, ErrorCode::Conflict);
    let mut hold = std::pin::pin!(Waits::hold(&world.engine, LONG));
    assert!(poll!(&mut hold).is_pending());
    drop(begins);
    let held = hold.await.unwrap();
    // A later one begins if the handover fails.
    let mut next = std::pin::pin!(waits.begins());
    assert!(poll!(&mut next).is_pending());
    drop(held);
    drop(next.await.unwrap());
    assert!(waits.unless_left(async { Ok(()) }).await.is_ok());
    // If it succeeds, its caller sends it again.
    let held = Waits::hold(&world.engine, LONG).await.unwrap();
    let mut next = std::pin::pin!(waits.begins());
    let mut slow = std::pin::pin!(waits.unless_left(std::future::pending::<Result<()>>()));
    assert!(poll!(&mut next).is_pending() && poll!(&mut slow).is_pending());
    held.leave();
    for error in [next.await.err().unwrap(), slow.await.unwrap_err()] {
        assert_eq!(error.code, ErrorCode::TmuxUnavailable);
        assert!(error.message.contains("send the request again"), "{error}");
    }
}

/// A caller that stays for the end of its wait is released with it: its response comes from the next
/// daemon.
#[tokio::test]
async fn a_caller_that_awaits_a_wait_learns_that_it_left() {
    let world = World::new();
    let wait = world.wait(WaitRequest { patterns: vec!["DONE".into()], ..WaitRequest::default() }).await;
    let id = wait.core().id.clone();
    let server = Server::of(world.engine.clone(), world.host.clone());
    let asking = tokio::spawn(async move { server.await_again(&WaitRequest::default(), Some(id), None).await });
    tokio::task::yield_now().await;
    Waits::hold(&world.engine, LONG).await.unwrap().leave();
    let answer = asking.await.unwrap().unwrap();
    assert_eq!((answer.outcome, &answer.id), (WaitOutcome::Pending, &wait.core().id));
    let error = world.engine.wait_result(&answer.id, None).await.unwrap_err();
    assert!(error.message.contains("another muxtap daemon"), "{error}");
}

/// T5: the stored form has the number of a variant, not its name, which the shape of a state does not
/// show. A change of an order here is a new `STATE_VERSION`.
#[test]
fn the_order_of_stored_variants_stays() {
    use crate::{Principal, wait::core::PromptRule};
    use WaitOutcome::{Cancelled, Ended, Failed, Matched, Pending, Timeout};

    fn check<T: Serialize>(variants: &[T]) {
        for (number, variant) in (0_u8..).zip(variants) {
            let bytes = postcard::to_allocvec(variant).unwrap();
            assert_eq!(bytes[0], number, "{} {number}", std::any::type_name::<T>());
        }
    }
    check(&[Pending, Matched, Failed, Ended, Timeout, Cancelled]);
    check(&[PromptRule::Marks, PromptRule::Line]);
    let principals = [
        Principal::Engine,
        Principal::User(1),
        Principal::Token,
        Principal::Page("p".into()),
        Principal::Device("d".into()),
        Principal::agent(None),
        Principal::Guest,
    ];
    let principals = principals.map(|principal| {
        let stored = StoredCaller::of(&Caller { face: "", who: String::new(), principal });
        // After the two empty texts.
        postcard::to_allocvec(&stored).unwrap()[2]
    });
    assert_eq!(principals, [0, 1, 2, 3, 4, 5, 6]);
}
