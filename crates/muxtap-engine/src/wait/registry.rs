//! The registry of waits: open waits, and the results of ended ones.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, hash_map::RandomState},
    hash::BuildHasher,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use muxtap_api::{Error, ErrorCode, Result, WaitInfo, WaitOutcome};
use muxtap_base::metrics;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, watch};
use tokio::time::Instant;

use super::{budget::Budget, core::Core, kept::KeptWaits, result::WaitResult};

use crate::{Caller, Engine, activity::Deed, limits};

/// All waits whose results can be requested.
#[derive(Default)]
pub struct Waits {
    all: DashMap<String, Wait>,
    ended: Mutex<Ended>,
    /// The waits of an earlier daemon that could not be continued, and why.
    lost: Mutex<BTreeMap<String, Error>>,
    open: AtomicUsize,
    /// The number of open waits of each caller.
    of_callers: DashMap<Caller, usize>,
    /// Waits that are about to begin under an id from their caller.
    beginning: DashMap<String, Arc<tokio::sync::Mutex<()>>>,
    next: AtomicU64,
    secret: RandomState,
    /// The memory budget of all open waits.
    pub(super) budget: Arc<Budget>,
    /// A counter of waits that began or ended.
    changes: watch::Sender<u64>,
    /// Results that outlive the engine.
    pub(super) kept: KeptWaits,
    /// Whether the waits go on here.
    phase: watch::Sender<Phase>,
    /// Read while a wait begins: from before it is registered until it has its watchers. Written
    /// while the waits are handed over, so each wait is either in the state or has not begun.
    beginnings: Arc<RwLock<()>>,
}

/// Whether waits go on in this engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Here,
    /// They are being handed over: nothing that only time decides happens.
    Held,
    /// Another engine continues them.
    Left,
}

/// The waits are being handed over. Dropped, they go on here.
#[must_use]
pub(crate) struct HeldWaits {
    engine: Engine,
    /// No wait begins meanwhile.
    _none_begins: OwnedRwLockWriteGuard<()>,
}

impl Drop for HeldWaits {
    fn drop(&mut self) {
        let back = |phase: &mut Phase| std::mem::replace(phase, Phase::Here) == Phase::Held;
        self.engine.shared.waits.phase.send_if_modified(|phase| *phase == Phase::Held && back(phase));
    }
}

impl HeldWaits {
    /// Leaves the waits to another engine, which has their state. Waits whose callers live in this
    /// process end as cancelled.
    pub(crate) fn leave(self) {
        let waits = &self.engine.shared.waits;
        let open: Vec<_> = waits.open_cores().collect();
        for core in open.iter().filter(|core| core.request.is_none()) {
            core.finish(WaitOutcome::Cancelled, None);
        }
        waits.phase.send_replace(Phase::Left);
        for core in open.iter().filter(|core| core.request.is_some()) {
            // The other engine stores its result, and answers for it.
            waits.kept.leave(&core.id);
            waits.all.remove(&core.id);
        }
    }
}

/// The error for a request that only the engine that has taken over can carry out.
pub(super) fn taken_over() -> Error {
    Error::unavailable("another muxtap daemon has taken over: send the request again")
}

/// A registered wait.
#[derive(Clone)]
pub(super) enum Wait {
    Open(Arc<Core>, Arc<Caller>),
    Ended(Arc<WaitResult>),
}

/// The waits that have ended, in the order of their ends.
#[derive(Default)]
struct Ended {
    queue: VecDeque<(Instant, String, usize)>,
    /// The bytes of their results.
    bytes: usize,
}

impl Waits {
    /// Creates a registry that keeps results of waits without callers in this folder.
    pub(crate) fn keeping(folder: Option<&Path>, budget: Arc<Budget>) -> Self {
        Self { kept: KeptWaits::in_folder(folder), budget, ..Self::default() }
    }

    /// Holds the waits while they are handed over, and lets none begin.
    ///
    /// Error: `CONFLICT` if one that begins has not begun within `limit`.
    pub(crate) async fn hold(engine: &Engine, limit: Duration) -> Result<HeldWaits> {
        let waits = &engine.shared.waits;
        let none_begins = tokio::time::timeout(limit, waits.beginnings.clone().write_owned()).await;
        let none_begins = none_begins.map_err(|_| {
            Error::new(ErrorCode::Conflict, "a wait is beginning, and its tmux server does not reply; try again")
        })?;
        waits.phase.send_replace(Phase::Held);
        Ok(HeldWaits { engine: engine.clone(), _none_begins: none_begins })
    }

    /// Lets a wait begin until the returned value is dropped, once no handover is under way.
    ///
    /// Error: `TMUX_UNAVAILABLE` if another engine has taken over.
    pub(super) async fn begins(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let begins = self.beginnings.read().await;
        if self.have_left() { Err(taken_over()) } else { Ok(begins) }
    }

    /// Carries out what needs this engine. Error: another engine has taken over meanwhile.
    pub(super) async fn unless_left<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut phase = self.phase.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as `self`.
            _ = phase.wait_for(|phase| *phase == Phase::Left) => Err(taken_over()),
            done = work => done,
        }
    }

    /// Resolves when waits go on here: at once, unless they are being handed over.
    pub(super) async fn going_on(&self) {
        // The sender lives as long as `self`.
        let _ = self.phase.subscribe().wait_for(|phase| *phase == Phase::Here).await;
    }

    /// Resolves when another engine continues this wait.
    pub(super) async fn left(&self, core: &Core) {
        let _ = self.phase.subscribe().wait_for(|phase| *phase == Phase::Left && core.request.is_some()).await;
    }

    /// Returns whether another engine continues the waits.
    pub fn have_left(&self) -> bool {
        *self.phase.borrow() == Phase::Left
    }

    /// Returns all waits, with their ids.
    pub(super) fn registered(&self) -> Vec<(String, Wait)> {
        self.all.iter().map(|wait| (wait.key().clone(), wait.clone())).collect()
    }

    /// Returns the open waits.
    pub(super) fn open_cores(&self) -> impl Iterator<Item = Arc<Core>> {
        self.all.iter().filter_map(|wait| match &*wait {
            Wait::Open(core, _) => Some(core.clone()),
            Wait::Ended(_) => None,
        })
    }

    /// Lists the open waits that another engine could not continue.
    pub fn bound(&self) -> Vec<WaitInfo> {
        let bound = self.all.iter().filter_map(|wait| match &*wait {
            Wait::Open(core, caller) if core.request.is_none() && !core.is_over() => Some(core.info(caller)),
            _ => None,
        });
        bound.collect()
    }

    /// Returns the number of open waits.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Lists the open waits, the oldest first.
    pub fn list(&self) -> Vec<WaitInfo> {
        let open = |wait: &Wait| match wait {
            Wait::Open(core, caller) if !core.is_over() => Some((core.clone(), caller.clone())),
            _ => None,
        };
        let mut open: Vec<_> = self.all.iter().filter_map(|wait| open(&wait)).collect();
        open.sort_by_key(|(core, _)| core.requested_at);
        open.iter().map(|(core, caller)| core.info(caller)).collect()
    }

    /// Returns the ids of the open waits.
    pub(super) fn open_ids(&self) -> BTreeSet<String> {
        let open = self.all.iter().filter(|wait| matches!(**wait, Wait::Open(..)));
        open.map(|wait| wait.key().clone()).collect()
    }

    /// Returns the ids of all waits, open and ended.
    pub(super) fn ids(&self) -> BTreeSet<String> {
        self.all.iter().map(|wait| wait.key().clone()).collect()
    }

    /// Returns a counter that changes whenever a wait has begun or ended.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Cancels all open waits.
    pub fn cancel_all(&self) {
        let all: Vec<_> = self.all.iter().map(|wait| wait.clone()).collect();
        for wait in all {
            if let Wait::Open(core, _) = wait {
                core.finish(WaitOutcome::Cancelled, None);
            }
        }
    }

    /// Drops results that are older than [`limits::KEEP`]. Returns when the next one is due.
    pub fn drop_expired(&self, now: Instant) -> Option<Instant> {
        let mut ended = self.ended();
        while ended.queue.front().is_some_and(|(at, ..)| *at + limits::KEEP <= now) {
            self.drop_first(&mut ended);
        }
        ended.queue.front().map(|(at, ..)| *at + limits::KEEP)
    }

    pub(super) fn get(&self, id: &str) -> Result<Wait> {
        self.all.get(id).map(|wait| wait.clone()).ok_or_else(|| unknown(id))
    }

    /// Notes why a wait of an earlier daemon ended without a result.
    pub(super) fn lose(&self, id: String, why: Error) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(id, why);
    }

    /// Returns why a wait of an earlier daemon ended without a result, if it did.
    pub(super) fn lost(&self, id: &str) -> Option<Error> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Waits until no other caller is beginning a wait with this id, and blocks others until the
    /// turn is dropped.
    pub(super) async fn turn(&self, id: &str) -> Turn<'_> {
        let begins = self.beginning.entry(id.to_owned()).or_default().clone();
        // Before the lock is awaited: the entry must be removed if the caller leaves meanwhile.
        let mut turn = Turn { waits: self, id: id.to_owned(), held: None };
        turn.held = Some(begins.lock_owned().await);
        turn
    }

    /// Replaces an open wait by its result, and drops the oldest results beyond the limits.
    fn store(&self, id: &str, result: Arc<WaitResult>) {
        self.store_at(Instant::now(), id, result);
    }

    pub(super) fn store_at(&self, at: Instant, id: &str, result: Arc<WaitResult>) {
        let weight = result.weight();
        let mut ended = self.ended();
        self.all.insert(id.to_owned(), Wait::Ended(result));
        ended.queue.push_back((at, id.to_owned(), weight));
        ended.bytes += weight;
        while ended.queue.len() > limits::ENDED_WAITS || ended.bytes > limits::ENDED_BYTES {
            self.drop_first(&mut ended);
        }
    }

    fn drop_first(&self, ended: &mut Ended) {
        if let Some((_, id, weight)) = ended.queue.pop_front() {
            self.all.remove(&id);
            ended.bytes -= weight;
        }
    }

    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an id that cannot be guessed: a wait's result may contain a pane's output.
    fn new_id(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("w{number}-{:012x}", self.secret.hash_one(number) >> 16)
    }
}

/// Builds the error for the id of no wait.
pub(super) fn unknown(id: &str) -> Error {
    Error::not_found(format!("no wait {id}; a result is kept for {} minutes", limits::KEEP.as_secs() / 60))
}

/// The right to begin the wait with an id.
pub(super) struct Turn<'a> {
    waits: &'a Waits,
    id: String,
    held: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held = None;
        // Removes the entry only with the last holder: callers that wait for their turn hold it
        // too.
        self.waits.beginning.remove_if(&self.id, |_, begins| Arc::strong_count(begins) == 1);
    }
}

/// An open wait. Dropping the guard, at any await, closes the wait.
pub(super) struct WaitGuard {
    engine: Engine,
    core: Arc<Core>,
    /// Whether the wait's watchers are in the panes.
    attached: bool,
    /// Whether the wait counts as open.
    holds_slot: bool,
    stored: bool,
}

impl WaitGuard {
    /// Opens a wait.
    ///
    /// Error: `RESOURCE_LIMIT` if too many waits are open, in total or of this caller.
    pub(super) fn new(engine: &Engine, make: impl FnOnce(String) -> Arc<Core>) -> Result<Self> {
        let waits = &engine.shared.waits;
        if waits.open.fetch_add(1, Ordering::Relaxed) >= limits::OPEN_WAITS {
            waits.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::new(
                ErrorCode::ResourceLimit,
                format!("{} waits are open, which is the limit", limits::OPEN_WAITS),
            ));
        }
        let mut own = waits.of_callers.entry(engine.caller().counted()).or_default();
        if *own >= limits::CALLER_WAITS {
            drop(own);
            waits.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::new(
                ErrorCode::ResourceLimit,
                format!("this caller has {} waits open, which is the limit for one caller", limits::CALLER_WAITS),
            ));
        }
        *own += 1;
        drop(own);
        Ok(Self::registered(engine, make(waits.new_id())))
    }

    /// Continues a wait of another engine, which has counted it.
    pub(super) fn continued(engine: &Engine, core: Arc<Core>) -> Self {
        let waits = &engine.shared.waits;
        waits.open.fetch_add(1, Ordering::Relaxed);
        *waits.of_callers.entry(engine.caller().counted()).or_default() += 1;
        Self::registered(engine, core)
    }

    fn registered(engine: &Engine, core: Arc<Core>) -> Self {
        let waits = &engine.shared.waits;
        metrics::WAITS_ACTIVE.increment(1.0);
        waits.all.insert(core.id.clone(), Wait::Open(core.clone(), engine.caller.clone()));
        waits.changes.send_modify(|count| *count += 1);
        Self { engine: engine.clone(), core, attached: true, holds_slot: true, stored: false }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Releases the wait's slot among the open waits, once.
    pub(super) fn release_slot(&mut self) {
        if !std::mem::take(&mut self.holds_slot) {
            return;
        }
        let waits = &self.engine.shared.waits;
        waits.open.fetch_sub(1, Ordering::Relaxed);
        waits.of_callers.remove_if_mut(&self.engine.caller().counted(), |_, own| {
            *own = own.saturating_sub(1);
            *own == 0
        });
        metrics::WAITS_ACTIVE.decrement(1.0);
        waits.changes.send_modify(|count| *count += 1);
    }

    /// Returns whether another engine continues the wait.
    pub(super) fn has_left(&self) -> bool {
        self.core.request.is_some() && self.engine.shared.waits.have_left()
    }

    /// Replaces an ended wait by its result, and frees everything else.
    pub(super) async fn store_result(mut self) {
        self.note_end();
        self.detach();
        let result = self.engine.result(&self.core).await;
        let waits = &self.engine.shared.waits;
        waits.store(&self.core.id, result.clone());
        self.stored = true;
        waits.kept.end(&self.core.id, || result.answer()).await;
        self.engine.shared.retired.notify_one();
    }

    /// Records the wait's end for the pane that decided it, or else for all panes.
    fn note_end(&self) {
        let Some(end) = self.core.lock().end else { return };
        let patterns = || self.core.spec.predicates.iter().filter_map(|predicate| predicate.text.clone()).collect();
        for (at, pane) in self.core.panes.iter().enumerate() {
            if end.pane.is_none_or(|decided| decided == at) {
                self.engine.note_activity(pane, end.at.into_std(), || Deed::Waited(end.outcome, patterns()));
            }
        }
    }

    /// Ends the wait and removes its watchers from the panes.
    fn detach(&mut self) {
        if !std::mem::take(&mut self.attached) {
            return;
        }
        if !self.has_left() {
            self.core.finish(WaitOutcome::Cancelled, None);
        }
        for pane in &self.core.panes {
            pane.lock().remove_watchers(&self.core.id);
        }
        self.release_slot();
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.detach();
        if !self.stored {
            self.engine.shared.waits.all.remove(&self.core.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use muxtap_api::{Epoch, WaitRequest};
    use muxtap_core::protocol::ids::PaneId;

    use super::*;

    use crate::{
        Host, Options, PaneState, Server,
        wait::{attach::StartState, spec::Spec},
    };

    fn request(pattern: &str) -> WaitRequest {
        WaitRequest { panes: vec!["%1".into()], patterns: vec![pattern.to_owned()], ..WaitRequest::default() }
    }

    fn open(engine: &Engine, pane: &Arc<PaneState>, pattern: &str) -> WaitGuard {
        open_for(engine, pane, &request(pattern))
    }

    fn open_for(engine: &Engine, pane: &Arc<PaneState>, request: &WaitRequest) -> WaitGuard {
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        let spec = Spec::new(request).unwrap();
        WaitGuard::new(engine, |id| Core::new(id, host, spec, vec![pane.clone()], Some(request.clone()))).unwrap()
    }

    fn server(engine: &Engine, guard: &WaitGuard) -> Server {
        Server::of(engine.clone(), guard.core.host.clone())
    }

    fn pane() -> Arc<PaneState> {
        PaneState::new(PaneId(1), Epoch { server: 1, engine: 1 }, 1000)
    }

    async fn attached(engine: &Engine, pane: &Arc<PaneState>, pattern: &str) -> WaitGuard {
        let guard = open(engine, pane, pattern);
        let starts: Vec<_> = guard.core.panes.iter().cloned().map(StartState::of).collect();
        server(engine, &guard).attach(&guard.core, &starts).await.unwrap();
        guard
    }

    /// Between the request and the watchers, patterns compile and other tasks run.
    #[tokio::test]
    async fn output_between_a_wait_request_and_its_watchers_belongs_to_the_wait() {
        let engine = Engine::new(Options::default());
        for since in ["now", "input"] {
            let pane = pane();
            let _ = pane.push(0, b"DONE before\r\n");
            let starts = [StartState::of(pane.clone())];
            let _ = pane.push(0, b"DONE while it compiles\r\n");
            pane.record_input("x", false);
            let request = WaitRequest { since: Some(since.into()), ..request("DONE.*") };
            let guard = open_for(&engine, &pane, &request);
            server(&engine, &guard).attach(&guard.core, &starts).await.unwrap();
            let latch = guard.core.lock().panes[0].latches[0].clone().expect("it is there already");
            assert_eq!((latch.line.as_deref(), latch.before), (Some("DONE while it compiles"), false), "{since}");
        }
        // More output was printed than is retained: the wait reports a gap.
        let pane = pane();
        let starts = [StartState::of(pane.clone())];
        let _ = pane.push(0, &b"line\r\n".repeat(20_000));
        let guard = open_for(&engine, &pane, &WaitRequest { since: Some("now".into()), ..request("DONE") });
        server(&engine, &guard).attach(&guard.core, &starts).await.unwrap();
        assert_eq!(guard.core.lock().panes[0].gap.map(|gap| gap.reason), Some(muxtap_api::GapReason::Trimmed));
    }

    #[tokio::test]
    async fn an_ended_wait_keeps_its_answer_and_nothing_else() {
        let engine = Engine::new(Options::default());
        let pane = pane();
        let guard = attached(&engine, &pane, "DO(NE)").await;
        let (id, core) = (guard.core.id.clone(), Arc::downgrade(&guard.core));
        let _ = pane.push(0, b"DONE\r\n");
        guard.store_result().await;
        assert!(core.upgrade().is_none(), "patterns and panes are let go of");
        assert_eq!(engine.open_waits(), 0);
        assert_eq!(pane.lock().last_match_end("DO(NE)"), None, "no response has contained it yet");
        for _ in 0..2 {
            let answer = engine.wait_result(&id, None).await.unwrap();
            assert_eq!(answer.outcome, WaitOutcome::Matched);
            assert_eq!(answer.predicates[0].captures[1].as_deref(), Some("NE"));
        }
        assert_eq!(pane.lock().last_match_end("DO(NE)"), Some(4));
        assert_eq!(engine.cancel_wait(&id).await.unwrap().outcome, WaitOutcome::Matched);
        let left = Arc::downgrade(&pane);
        drop(pane);
        assert!(left.upgrade().is_none(), "an answer does not keep its pane");
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_leaves_nothing() {
        let engine = Engine::new(Options::default());
        let pane = pane();
        let guard = attached(&engine, &pane, "x").await;
        let id = guard.core.id.clone();
        assert_eq!((engine.open_waits(), pane.lock().watcher_count()), (1, 1));
        drop(guard);
        assert_eq!((engine.open_waits(), pane.lock().watcher_count()), (0, 0));
        assert!(engine.wait_result(&id, None).await.is_err());
    }

    #[tokio::test]
    async fn answers_are_bounded_in_number_and_bytes() {
        let engine = Engine::new(Options::default());
        let pane = pane();
        let waits = &engine.shared.waits;
        let short = engine.result(&open(&engine, &pane, "x").core).await;
        for number in 0..=limits::ENDED_WAITS {
            waits.store(&format!("short{number}"), short.clone());
        }
        assert_eq!((waits.all.len(), waits.ended().queue.len()), (limits::ENDED_WAITS, limits::ENDED_WAITS));
        assert!(waits.get("short0").is_err() && waits.get("short1").is_ok(), "the oldest goes");
        let long = engine.result(&open(&engine, &pane, &"x".repeat(60_000)).core).await;
        for number in 0..=limits::ENDED_BYTES / 60_000 {
            waits.store(&format!("long{number}"), long.clone());
        }
        let ended = waits.ended();
        assert!(ended.bytes <= limits::ENDED_BYTES && waits.all.len() == ended.queue.len());
        let sum: usize = ended.queue.iter().map(|(_, _, weight)| weight).sum();
        assert_eq!(sum, ended.bytes);
        drop(ended);
        assert_eq!(waits.drop_expired(Instant::now() + limits::KEEP + Duration::from_secs(1)), None);
        assert_eq!((waits.all.len(), waits.ended().bytes), (0, 0));
    }
}
