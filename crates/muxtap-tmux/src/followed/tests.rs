//! Tables: events of a pane, and the resulting states. Connections are numbers; actions and the
//! fates of output are values.

use futures_util::FutureExt as _;

use muxtap_core::protocol::ids::PaneId;

use super::*;

use crate::routes::Routes;

const O: u64 = 1;
const PID: u32 = 4711;
const N: u64 = 2;

/// A pane with its counter, and all that it requested.
struct World {
    pane: FollowedPane,
    attempts: SeedAttempts,
    /// The sink that the observer returned for the last content.
    sink: Sink,
}

impl Default for World {
    fn default() -> Self {
        Self { pane: FollowedPane::default(), attempts: SeedAttempts::default(), sink: new_sink() }
    }
}

/// Returns a sink that equals no other one.
fn new_sink() -> Sink {
    struct Numbered(#[expect(dead_code, reason = "two of no size could be at one place")] u8);
    impl OutputSink for Numbered {
        fn output(&self, _: &[u8]) {}
    }
    Sink(Arc::new(Numbered(0)))
}

impl World {
    /// Has tmux list the pane as carried by these connections, all of which existed before.
    fn listed(&mut self, by: &[u64]) -> Vec<PaneAction> {
        self.listed_when(by, &|_| true)
    }

    fn listed_when(&mut self, by: &[u64], stood: &dyn Fn(u64) -> bool) -> Vec<PaneAction> {
        let carried = Carriers { by: by.to_vec(), candidate: by.iter().min().copied(), stood };
        self.pane.listed(carried, &mut self.attempts)
    }

    fn attempt(&self) -> u64 {
        self.attempts.0
    }

    /// Delivers the content of the attempt in progress.
    fn answered(&mut self) -> SeedOutcome {
        self.pane.answered(self.attempts.0)
    }

    /// Lets the observer take the content, and the output that follows.
    fn follow(&mut self) -> Vec<oneshot::Sender<()>> {
        self.sink = new_sink();
        self.pane.follow(self.attempts.0, self.sink.clone())
    }

    /// Ends the process while `O` carries it; the observer gets the remaining output.
    fn end(&mut self) -> bool {
        let is_news = self.pane.ended(Some(O), Some(PID));
        self.sink = new_sink();
        self.pane.seeded_last(self.sink.clone());
        is_news
    }

    /// Returns the route to that sink.
    fn route(&self) -> Arc<Route> {
        Route::new(self.sink.clone(), &self.pane.allowance)
    }

    fn passed(&self) -> OutputAction {
        OutputAction::Passed(self.route())
    }

    /// Makes a pane that is followed on `O`.
    fn following() -> Self {
        let mut world = Self::default();
        world.listed(&[O]);
        assert_eq!(world.answered(), SeedOutcome::Deliver(Seeding::First, HeldOutput::default()));
        world.follow();
        world
    }

    /// Makes a pane whose process ended while `O` carried it.
    fn ended() -> Self {
        let mut world = Self::following();
        assert!(world.end());
        world
    }

    fn restarted(&mut self, here: bool) -> Vec<PaneAction> {
        self.pane.restarted(here, &mut self.attempts)
    }

    fn is_following(&self, on: u64) -> bool {
        matches!(&self.pane.flow, Flow::Following { owner, .. } if *owner == on)
    }
}

fn seeded(attempt: u64) -> Vec<PaneAction> {
    vec![PaneAction::Unfollowed, PaneAction::Seed(attempt)]
}

/// Returns the actions of a seeding, for a pane that has left these connections.
fn seeded_away(from: &[u64], attempt: u64) -> Vec<PaneAction> {
    from.iter().map(|id| PaneAction::Park(*id)).chain(seeded(attempt)).collect()
}

fn held(bytes: &[u8]) -> HeldOutput {
    HeldOutput { bytes: bytes.to_vec(), overflowed: false }
}

const AGAIN: Seeding = Seeding::Again(GapReason::Reconnected);

#[test]
fn whoever_comes_to_an_owner_is_seeded() {
    // The initial state, the present carriers, and the connection on which a seed is requested, if
    // any.
    type Case = (&'static str, fn() -> World, &'static [u64], Option<u64>);
    let cases: [Case; 9] = [
        ("new", World::default, &[O], Some(O)),
        ("new, of nobody", World::default, &[], None),
        ("two carry it: the one that has served longest", World::default, &[N, O], Some(O)),
        ("it stays where it is", World::following, &[O, N], None),
        ("moved", World::following, &[N], Some(N)),
        ("nobody carries it any more", World::following, &[], None),
        (
            "its seed was awaited elsewhere",
            || {
                let mut world = World::default();
                world.listed(&[O]);
                world
            },
            &[N],
            Some(N),
        ),
        (
            "its seed is awaited",
            || {
                let mut world = World::default();
                world.listed(&[O]);
                world
            },
            &[O],
            None,
        ),
        ("ended: it prints nothing", World::ended, &[N], None),
    ];
    for (what, world, by, owner) in cases {
        let mut world = world();
        let steps = world.listed(by);
        let asked = steps.iter().any(|step| *step == PaneAction::Seed(world.attempt()));
        assert_eq!(asked, owner.is_some(), "{what}: {steps:?}");
        if let Some(owner) = owner {
            let attempt = world.attempt();
            assert_eq!(world.pane.is_asked(attempt), Some(owner), "{what}");
            assert!(world.pane.wait().is_some(), "{what}");
        }
    }
}

/// The defect that this state machine was written for: a pane that is kept when dead, carried by
/// another connection, then respawned.
#[test]
fn a_dead_pane_that_changed_its_connection_is_seeded_when_it_is_respawned() {
    type Change = (&'static str, fn(&mut World));
    let changes: [Change; 3] = [
        ("move-window", |world| assert_eq!(world.listed(&[N]), [PaneAction::Park(O)])),
        ("attach -d, and back", |world| {
            assert_eq!(world.pane.lost(O), []);
            assert_eq!(world.listed(&[]), []);
            assert_eq!(world.listed(&[N]), []);
        }),
        ("back before it was listed", |world| {
            assert_eq!(world.pane.lost(O), []);
            assert_eq!(world.listed(&[N]), []);
        }),
    ];
    for (what, change) in changes {
        let mut world = World::ended();
        change(&mut world);
        assert_eq!(world.pane.owner(), Some(N), "{what}");
        // The output may have been in transit when the process ended.
        assert_eq!(world.pane.output(N, b"x"), OutputAction::Unsure, "{what}");
        let steps = world.restarted(false);
        assert_eq!(steps, [&[PaneAction::Restarted][..], &seeded(world.attempt())].concat(), "{what}");
        assert_eq!(world.answered(), SeedOutcome::Deliver(AGAIN, HeldOutput::default()), "{what}");
        world.follow();
        assert_eq!(world.pane.output(N, b"y"), world.passed(), "{what}");
    }
}

#[test]
fn a_dead_pane_without_a_connection_is_seeded_when_it_is_respawned_and_gets_one() {
    let mut world = World::ended();
    world.pane.lost(O);
    assert_eq!(world.restarted(false), [PaneAction::Restarted]);
    assert!(!world.pane.has_ended());
    let steps = world.listed(&[N]);
    assert_eq!(steps, seeded(world.attempt()));
}

#[test]
fn a_listing_that_comes_late_does_not_revive_what_has_ended() {
    let mut world = World::following();
    assert!(world.pane.shows(PID), "a first program");
    // The next program starts and ends on the owner's connection; a listing over another one was
    // requested in between.
    assert!(world.pane.ended(Some(O), Some(PID + 1)));
    assert!(!world.pane.shows(PID + 1), "it is the one that has ended");
    assert!(!world.pane.shows(0), "one that has just ended has no number");
    assert!(world.pane.shows(PID + 2), "another one is not");
}

#[test]
fn a_respawn_that_its_owner_carries_is_told_where_it_begins() {
    let mut world = World::ended();
    assert_eq!(world.pane.output(N, b"x"), OutputAction::Dropped);
    let restarted = OutputAction::Restarted(world.sink.clone());
    assert_eq!(world.pane.output(O, b"x"), restarted, "what it prints first comes ahead of any listing");
    assert_eq!(world.pane.output(O, b"y"), world.passed());
    assert_eq!(world.restarted(false), [], "once");

    let mut world = World::ended();
    assert_eq!(world.restarted(false), [PaneAction::Restarted], "a listing tells");
    assert!(world.is_following(O));

    // muxtap's own respawn, on the connection that the pane came to after its end.
    let mut world = World::ended();
    world.listed(&[N]);
    assert_eq!(world.restarted(true), [PaneAction::Restarted]);
    assert!(world.is_following(N));
    assert_eq!(world.pane.output(N, b"x"), world.passed());
}

/// A pane whose process ended during its first seed: the sink of its output is known with the last
/// seed.
#[test]
fn a_pane_that_ended_before_it_was_seeded_goes_on_after_its_last_seed() {
    let unseeded = || {
        let mut world = World::default();
        world.listed(&[O]);
        world
    };
    let mut world = unseeded();
    assert!(world.end());
    assert_eq!(world.pane.output(O, b"x"), OutputAction::Restarted(world.sink.clone()));

    let mut world = unseeded();
    world.pane.ended(Some(O), Some(PID));
    assert_eq!(world.pane.output(O, b"x"), OutputAction::Unsure, "tmux is asked what it is");
    let steps = world.restarted(true);
    assert_eq!(steps, [&[PaneAction::Restarted][..], &seeded(world.attempt())].concat(), "and it is read");
}

#[test]
fn the_end_is_told_once() {
    let mut world = World::following();
    let end = world.pane.wait_for_end().unwrap();
    assert!(world.pane.ended(Some(O), Some(PID)) && !world.pane.ended(Some(O), Some(PID)));
    assert!(end.now_or_never().is_some_and(|end| end.is_ok()));
    assert!(world.pane.wait_for_end().is_none() && world.pane.wait().is_none());
    // Reported by a connection that is no longer the owner: how much the new one has of it is
    // unknown.
    let mut world = World::following();
    world.listed(&[N]);
    world.pane.ended(Some(O), Some(PID));
    assert_eq!(world.pane.output(N, b"x"), OutputAction::Unsure);
}

#[test]
fn output_around_a_seed() {
    let mut world = World::default();
    assert_eq!(world.pane.output(O, b"x"), OutputAction::Dropped);
    world.listed(&[O]);
    assert_eq!(world.pane.output(N, b"x"), OutputAction::Dropped, "of another connection");
    assert_eq!(world.answered(), SeedOutcome::Deliver(Seeding::First, HeldOutput::default()), "C1");

    let mut world = World::default();
    world.listed(&[O]);
    assert_eq!(world.pane.output(O, b"x"), OutputAction::Dropped);
    assert_eq!(world.answered(), SeedOutcome::Pause, "N27");
    assert_eq!(world.pane.output(O, b"dropped by the pause"), OutputAction::Dropped);
    assert_eq!(world.answered(), SeedOutcome::Void, "it is not asked yet");
    let attempt = world.attempt();
    assert!(world.pane.paused(attempt) && !world.pane.paused(attempt));
    assert_eq!(world.pane.output(O, b"ear"), OutputAction::Dropped);
    assert_eq!(world.pane.output(O, b"ly"), OutputAction::Dropped);
    assert_eq!(world.answered(), SeedOutcome::Deliver(Seeding::First, held(b"early")));
    world.follow();
    assert_eq!(world.pane.output(O, b"x"), world.passed());
}

#[test]
fn what_happens_while_a_seed_is_delivered() {
    type Change = (&'static str, fn(&mut World));
    let changes: [Change; 4] = [
        ("it is moved", |world| drop(world.listed(&[N]))),
        ("its connection goes", |world| drop(world.pane.lost(O))),
        ("output may have been lost", |world| drop(world.pane.reseed(GapReason::Paused, &mut world.attempts))),
        ("it ends", |world| assert!(world.pane.ended(Some(O), Some(PID)))),
    ];
    for (what, change) in changes {
        let mut world = World::default();
        world.listed(&[O]);
        world.answered();
        assert!(world.pane.wait().is_some(), "{what}: it is not followed yet");
        let attempt = world.attempt();
        change(&mut world);
        world.pane.follow(attempt, new_sink());
        assert!(!matches!(world.pane.flow, Flow::Following { .. }), "{what}: this sink is for what went before");
    }
}

#[test]
fn what_comes_early_is_bounded() {
    let mut world = World::default();
    world.listed(&[O]);
    world.pane.output(O, b"x");
    world.answered();
    let attempt = world.attempt();
    world.pane.paused(attempt);
    for _ in 0..HELD_BYTES / 1024 {
        world.pane.output(O, &[b'x'; 1024]);
    }
    let Flow::Seeding(SeedRequest { phase: Phase::Paused { early }, .. }) = &world.pane.flow else { panic!() };
    assert_eq!(early.bytes.len(), HELD_BYTES);
    world.pane.output(O, b"y");
    world.pane.output(O, b"z");
    let SeedOutcome::Deliver(Seeding::First, early) = world.answered() else { panic!() };
    assert_eq!((early.bytes.capacity(), early.complete()), (0, None));
    // So it is read again.
    let steps = world.pane.reseed(GapReason::Paused, &mut world.attempts);
    assert_eq!(steps, seeded(world.attempt()));
    assert_eq!(world.answered(), SeedOutcome::Deliver(Seeding::Again(GapReason::Paused), HeldOutput::default()));
}

#[test]
fn an_answer_to_an_old_attempt_is_void() {
    let mut world = World::default();
    world.listed(&[O]);
    let old = world.attempt();
    world.listed(&[N]);
    assert_eq!(world.pane.answered(old), SeedOutcome::Void);
    assert_eq!(world.pane.refused(old, &mut world.attempts), None);
    assert!(!world.pane.paused(old) && !world.pane.retry(old));
    assert_eq!(world.answered(), SeedOutcome::Deliver(Seeding::First, HeldOutput::default()));
    assert_eq!(world.answered(), SeedOutcome::Void, "once");
    world.pane.lost(N);
    assert_eq!(world.answered(), SeedOutcome::Void);
}

#[test]
fn a_refused_seed_is_asked_for_again_with_longer_and_longer_pauses() {
    let mut world = World::default();
    world.listed(&[O]);
    let mut least = FIRST_PAUSE;
    for _ in 0..40 {
        let attempt = world.attempt();
        let (next, pause) = world.pane.refused(attempt, &mut world.attempts).unwrap();
        assert_eq!((next, pause), (attempt + 1, least));
        least = (least * 2).min(LONGEST_PAUSE);
        assert_eq!(world.listed(&[O]), [], "a listing does not make it sooner");
        assert!(world.pane.retry(next) && !world.pane.retry(next));
    }
    assert_eq!(least, LONGEST_PAUSE);
    world.pane.output(O, b"x");
    assert_eq!(world.answered(), SeedOutcome::Pause, "as ever");
    // Another connection is another chance at once.
    let steps = world.listed(&[N]);
    assert_eq!(steps, seeded_away(&[O], world.attempt()));
    let attempt = world.attempt();
    assert_eq!(world.pane.refused(attempt, &mut world.attempts).map(|(_, pause)| pause), Some(FIRST_PAUSE));
}

#[test]
fn a_pane_that_is_moved_goes_on_with_what_came_over_the_new_connection() {
    let mut world = World::following();
    assert_eq!(world.pane.output(N, b"ah"), OutputAction::Unsure, "before anything is listed: where is it?");
    assert_eq!(world.pane.output(N, b"ead"), OutputAction::Dropped, "that was asked already");
    let steps = world.listed(&[N]);
    assert_eq!(steps, seeded_away(&[O], world.attempt()));
    assert_eq!(world.pane.output(N, b" of the seed"), OutputAction::Dropped);
    assert_eq!(world.pane.output(O, b"late"), OutputAction::Dropped);
    assert_eq!(world.answered(), SeedOutcome::Compare(b"ahead of the seed".to_vec()));
    world.follow();
    assert!(world.is_following(N));
    assert_eq!(world.pane.output(N, b"x"), world.passed());

    let mut world = World::following();
    world.listed(&[N]);
    assert_eq!(world.answered(), SeedOutcome::Compare(Vec::new()), "it was quiet");
    let attempt = world.attempt();
    assert_eq!(world.pane.not_handed_over(attempt), SeedOutcome::Pause, "but the two differ");
    assert!(world.pane.paused(attempt));
    assert_eq!(world.answered(), SeedOutcome::Deliver(AGAIN, HeldOutput::default()));
}

/// The last window of a session is moved: the session ends, and its client with it.
#[test]
fn a_pane_whose_owner_went_with_its_session_goes_on_where_it_was_moved() {
    type Order = (&'static str, &'static [u8], fn(&mut World));
    let orders: [Order; 3] = [
        ("quiet", b"", |world| {
            assert_eq!(world.pane.lost(O), [PaneAction::Unfollowed]);
        }),
        ("it printed before the client went", b"ahead", |world| {
            world.pane.output(N, b"ahead");
            world.pane.lost(O);
        }),
        ("and after", b"ahead", |world| {
            world.pane.output(N, b"ah");
            world.pane.lost(O);
            assert_eq!(world.pane.output(N, b"ead"), OutputAction::Dropped);
        }),
    ];
    for (what, ahead, order) in orders {
        let mut world = World::following();
        order(&mut world);
        assert_eq!(world.pane.owner(), None, "{what}");
        let steps = world.listed(&[N]);
        assert_eq!(steps, seeded(world.attempt()), "{what}");
        assert_eq!(world.answered(), SeedOutcome::Compare(ahead.to_vec()), "{what}");
    }
}

/// tmux keeps a pane's output for a client whose session it was moved out of, and sends it when the
/// pane is back (N60).
#[test]
fn a_pane_is_paused_where_it_is_not_carried_any_more() {
    let mut world = World::following();
    let steps = world.listed(&[N]);
    assert_eq!(steps, seeded_away(&[O], world.attempt()));
    assert!(world.pane.stays_paused(O) && !world.pane.stays_paused(N));
    world.answered();
    world.follow();
    assert_eq!(world.listed(&[N]), [], "once");
    assert_eq!(world.pane.output(O, b"kept"), OutputAction::Dropped);
    let steps = world.listed(&[O]);
    let attempt = world.attempt();
    assert_eq!(steps, [PaneAction::Unpark(O), PaneAction::Park(N), PaneAction::Unfollowed, PaneAction::Seed(attempt)]);
    assert_eq!(world.answered(), SeedOutcome::Compare(Vec::new()), "what came before its pause is from before");
    world.follow();
    // Linked back into a session of the connection that it is parked on, it flows on it again.
    assert_eq!(world.listed(&[O, N]), [PaneAction::Unpark(N)]);
    assert_eq!(world.listed(&[O]), [PaneAction::Park(N)]);
    world.pane.lost(N);
    assert!(!world.pane.stays_paused(N), "nothing is kept for one that has gone");
    // A pane that has ended is about to be respawned.
    let mut world = World::ended();
    assert_eq!(world.listed(&[N]), [PaneAction::Park(O)]);
}

#[test]
fn a_move_that_nobody_has_seen_whole_has_a_gap() {
    type Move = (&'static str, fn(&mut World) -> Vec<PaneAction>);
    let moves: [Move; 7] = [
        ("its client was thrown out, and another one came", |world| {
            world.pane.lost(O);
            world.listed_when(&[N], &|id| id != N)
        }),
        ("nobody carried it", |world| {
            world.pane.lost(O);
            world.listed(&[]);
            world.listed(&[N])
        }),
        ("its client went while it was read for another gap", |world| {
            world.pane.reseed(GapReason::Paused, &mut world.attempts);
            world.pane.lost(O);
            world.listed(&[N])
        }),
        ("it is not there any more", |world| world.listed_when(&[N], &|id| id != O)),
        ("the new one has come since", |world| world.listed_when(&[N], &|id| id != N)),
        ("it was at a third one", |world| {
            world.pane.output(3, b"x");
            world.listed(&[N])
        }),
        ("it was at two others", |world| {
            world.pane.output(3, b"x");
            world.pane.output(N, b"x");
            world.listed(&[N])
        }),
    ];
    for (what, change) in moves {
        let mut world = World::following();
        let steps = change(&mut world);
        assert!(steps.contains(&PaneAction::Seed(world.attempt())), "{what}");
        let attempt = world.attempt();
        let answered = match world.answered() {
            SeedOutcome::Pause => {
                assert!(world.pane.paused(attempt), "{what}");
                world.answered()
            }
            answered => answered,
        };
        assert_eq!(answered, SeedOutcome::Deliver(AGAIN, HeldOutput::default()), "{what}");
    }
}

#[test]
fn a_window_that_is_linked_elsewhere_too_is_held_for_nobody() {
    let mut world = World::following();
    world.pane.output(N, b"twice");
    assert_eq!(world.listed(&[O, N]), []);
    for _ in 0..3 {
        assert_eq!(world.pane.output(N, b"twice"), OutputAction::Dropped);
    }
    assert_eq!(world.pane.flow, Flow::Following { owner: O, route: world.route(), ahead: None });
    assert_eq!(world.pane.carriers().collect::<Vec<_>>(), [O, N]);
}

/// A draining task that caches the route passes output on without reading the state.
#[test]
fn a_route_that_is_remembered_ends_with_the_state() {
    type Change = fn(&mut World);
    let changes: [(&str, Change); 7] = [
        ("it is carried elsewhere", |world| drop(world.listed(&[N]))),
        ("it is not listed", |world| drop(world.listed(&[]))),
        ("its connection goes", |world| drop(world.pane.lost(O))),
        ("output may have been lost", |world| drop(world.pane.reseed(GapReason::Paused, &mut world.attempts))),
        ("it floods", |world| drop(world.pane.hold(&mut world.attempts))),
        ("it ends", |world| assert!(world.pane.ended(Some(O), Some(PID)))),
        ("the server is another one", |world| world.pane = FollowedPane::default()),
    ];
    for (what, change) in changes {
        let mut world = World::following();
        let OutputAction::Passed(route) = world.pane.output(O, b"x") else { panic!("{what}: it is followed") };
        let mut routes = Routes::default();
        routes.remember(PaneId(1), &route, true);
        drop(route);
        assert_eq!(routes.find(PaneId(1)), Some((world.route(), true)), "{what}");
        world.listed(&[O, N]);
        assert!(routes.find(PaneId(1)).is_some(), "{what}: it stays followed on its owner");
        change(&mut world);
        assert!(routes.find(PaneId(1)).is_none(), "{what}");
    }
}

#[test]
fn routes_that_have_ended_make_room() {
    let mut routes = Routes::default();
    for pane in 0..10_000 {
        let world = World::following();
        routes.remember(PaneId(pane), &world.route(), false);
    }
    assert!(routes.len() < 10, "{}", routes.len());
}

#[test]
fn a_pause_is_followed_by_a_seed_with_a_gap() {
    let mut world = World::following();
    let steps = world.pane.reseed(GapReason::Paused, &mut world.attempts);
    assert_eq!(steps, seeded(world.attempt()));
    assert_eq!(world.answered(), SeedOutcome::Deliver(Seeding::Again(GapReason::Paused), HeldOutput::default()));
    // A pane that is not known yet has no stream that could have a gap.
    let mut world = World::default();
    world.listed(&[O]);
    world.pane.reseed(GapReason::Paused, &mut world.attempts);
    assert_eq!(world.answered(), SeedOutcome::Deliver(Seeding::First, HeldOutput::default()));
    // A dead pane prints nothing; what is put into it later is read.
    let mut world = World::ended();
    assert_eq!(world.pane.reseed(GapReason::Paused, &mut world.attempts), []);
    let steps = world.restarted(false);
    assert_eq!(steps, [&[PaneAction::Restarted][..], &seeded(world.attempt())].concat());
}

#[test]
fn who_waits_for_it_is_served_when_it_is_followed_or_has_ended() {
    let mut world = World::default();
    let first = world.pane.wait().unwrap();
    world.listed(&[O]);
    world.answered();
    drop(world.follow());
    assert!(first.now_or_never().is_some() && world.pane.wait().is_none());
    let mut world = World::default();
    let second = world.pane.wait().unwrap();
    world.pane.ended(None, None);
    assert!(second.now_or_never().is_some());
}

fn paused_and_seeded(attempt: u64) -> Vec<PaneAction> {
    vec![PaneAction::Unfollowed, PaneAction::PauseAndSeed(attempt)]
}

/// Makes a pane that floods, held on `O` and read.
fn held_pane() -> World {
    let mut world = World::following();
    let steps = world.pane.hold(&mut world.attempts);
    assert_eq!(steps, Some((paused_and_seeded(world.attempt()), Some(1))));
    assert_eq!(world.pane.hold(&mut world.attempts), None, "it is being read");
    let attempt = world.attempt();
    assert!(world.pane.paused(attempt));
    let again = Seeding::Again(GapReason::Paused);
    assert_eq!(world.answered(), SeedOutcome::Deliver(again, HeldOutput::default()));
    world.follow();
    assert!(world.pane.is_held() && world.is_following(O) && world.pane.stays_paused(O));
    world
}

#[test]
fn one_that_floods_stays_paused_until_it_is_let_go() {
    let mut world = held_pane();
    assert_eq!(world.pane.reseed(GapReason::Paused, &mut world.attempts), seeded(world.attempt()));
    world.answered();
    world.follow();
    assert!(world.pane.is_held() && world.pane.goes_on_being_held(1));
    let steps = world.pane.let_go(&mut world.attempts);
    assert_eq!(steps, paused_and_seeded(world.attempt()));
    assert!(!world.pane.is_held() && !world.pane.stays_paused(O) && !world.pane.goes_on_being_held(1));
    assert_eq!(world.pane.let_go(&mut world.attempts), []);
    let attempt = world.attempt();
    assert!(world.pane.is_being_paused(O) && world.pane.paused(attempt) && world.pane.is_being_paused(O));
    world.answered();
    world.follow();
    assert!(!world.pane.is_being_paused(O));
    // Another hold has another number, and a pane that flows in spite of its hold is paused again.
    let steps = world.pane.hold(&mut world.attempts);
    assert_eq!(steps, Some((paused_and_seeded(world.attempt()), Some(2))));
    assert!(world.pane.goes_on_being_held(2) && !world.pane.goes_on_being_held(1));
    let attempt = world.attempt();
    world.pane.paused(attempt);
    world.answered();
    world.follow();
    let steps = world.pane.hold(&mut world.attempts);
    assert_eq!(steps, Some((paused_and_seeded(world.attempt()), None)));
}

#[test]
fn it_is_paused_wherever_it_is_carried_and_flows_where_it_comes_to_others() {
    let mut world = held_pane();
    assert_eq!(world.listed(&[O, N]), []);
    assert_eq!(world.pane.hold_on_others([O, N].into_iter()), [N]);
    assert!(world.pane.hold_on_others([O, N].into_iter()).is_empty(), "once");
    // It is held on the connection that continues it; its output in between is missing.
    assert_eq!(world.pane.lost(O), [PaneAction::Unfollowed]);
    assert_eq!(world.listed(&[N]), seeded(world.attempt()));
    assert!(world.pane.is_held());
    let again = Seeding::Again(GapReason::Paused);
    assert_eq!(world.answered(), SeedOutcome::Deliver(again, HeldOutput::default()));
    let steps = world.pane.let_go(&mut world.attempts);
    assert_eq!(steps, paused_and_seeded(world.attempt()));
    // A pane that is moved is held on the new connection too.
    let mut world = held_pane();
    let steps = world.listed(&[N]);
    assert_eq!(steps, [vec![PaneAction::Park(O)], paused_and_seeded(world.attempt())].concat());
    assert!(world.pane.is_held());
    // Nor is it paused again on a connection where it was paused in advance.
    let mut world = held_pane();
    world.pane.hold_on_others([O, N].into_iter());
    world.listed(&[N]);
    assert!(world.pane.is_held());
    assert_eq!(world.answered(), SeedOutcome::Deliver(again, HeldOutput::default()));
    let steps = world.pane.let_go(&mut world.attempts);
    assert_eq!(steps, paused_and_seeded(world.attempt()));
    assert!(world.pane.stays_paused(O), "it is not carried there");
    // The holds on the other connections end as well.
    let mut world = held_pane();
    world.listed(&[O, N]);
    world.pane.hold_on_others([O, N].into_iter());
    let steps = world.pane.let_go(&mut world.attempts);
    assert_eq!(steps, [vec![PaneAction::Unpark(N)], paused_and_seeded(world.attempt())].concat());
    // It stays paused on connections that do not carry it: tmux would keep its output for them.
    let mut world = held_pane();
    world.pane.hold_on_others([O, N].into_iter());
    let steps = world.pane.let_go(&mut world.attempts);
    assert_eq!(steps.first(), Some(&PaneAction::Park(N)));
    assert!(world.pane.stays_paused(N));
}

#[test]
fn one_that_ended_while_it_was_held_is_read_when_it_is_respawned() {
    let mut world = held_pane();
    assert!(world.end());
    assert_eq!(world.pane.output(O, b"more"), OutputAction::Unsure);
    let steps = world.restarted(false);
    assert_eq!(steps, [vec![PaneAction::Restarted], seeded(world.attempt())].concat());
    assert!(world.pane.is_held(), "the new program may flood too");
    let mut world = held_pane();
    assert!(world.end());
    assert_eq!(world.pane.let_go(&mut world.attempts), [PaneAction::Unpark(O)]);
    // A program that muxtap starts in a pane that was not held has the full allowance.
    let mut world = World::following();
    assert_eq!(world.restarted(true), []);
    assert!(!world.pane.allowance.is_exceeded_by(1 << 20, 1, Instant::now()));
    // The respawn's own line has ended the pause.
    let mut world = held_pane();
    world.listed(&[O, N]);
    world.pane.hold_on_others([O, N].into_iter());
    assert_eq!(world.restarted(true), [PaneAction::Unpark(N)]);
    assert!(!world.pane.is_held() && !world.pane.goes_on_being_held(1));
}
