//! Waits: latched, streaming, resumable.
//!
//! A wait puts a [`Watcher`] into each of its panes. The task that reads the connection latches
//! predicates as their bytes arrive. A driver task sleeps until the next time at which a deadline
//! could matter (a quiet period, the timeout) and does not wake before. After the wait has ended,
//! only its result remains, for ten minutes, under the wait's id.

mod attach;
mod awaited;
mod budget;
mod core;
mod driver;
mod earlier;
mod kept;
mod on_screen;
#[cfg(test)]
mod orders;
mod registry;
mod report;
mod result;
mod spec;
mod stored;
mod watcher;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use muxtap_base::spans;
use tokio::time::Instant;
use tracing::field::Empty;

use self::{
    attach::StartState,
    core::Core,
    registry::{Wait, WaitGuard},
    report::report,
    spec::Spec,
};

use muxtap_api::{Error, ErrorCode, KeptWait, Result, Since, Tier, WaitAnswer, WaitInfo, WaitOutcome, WaitRequest};

use super::{Engine, Principal, Server, deadline::Deadline, limits, pane::PaneUse, query::scope::is_pattern};

pub(super) use budget::Budget;
pub use budget::Charge;
pub use kept::UNKNOWN_OUTCOME;
pub(super) use registry::HeldWaits;
pub use registry::Waits;
pub(super) use spec::duration;
#[cfg(test)]
pub(super) use stored::tests::stored_as_json;
pub(super) use stored::{CompiledPatterns, PreparedWaits, StoredPatterns, StoredWaits};

/// The allowed lengths of a key that a caller makes.
const KEY_LENGTHS: std::ops::RangeInclusive<usize> = 16..=64;

/// Returns the id of a wait that a caller begins under a key of its own.
///
/// Error: `INVALID_ARGUMENT` for a malformed key. An id gives access to the result, so it must be
/// as hard to guess as the ids that muxtap makes.
pub fn id_of_key(key: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if KEY_LENGTHS.contains(&key.len()) && key.bytes().all(is_plain) {
        return Ok(format!("w-{key}"));
    }
    let (least, most) = KEY_LENGTHS.into_inner();
    Err(Error::invalid(format!("Idempotency-Key: expected {least} to {most} random letters, digits, `-` and `_`")))
}

/// The error's text for a timeout before the wait could begin.
const NOT_BEGUN: &str = "the wait had not begun";

impl Engine {
    /// Returns the answer of an ended wait. An answer to a read-only caller does not mark the match
    /// as answered: the user's own wait for the same pattern still finds it.
    fn told(&self, result: &Arc<result::WaitResult>) -> WaitAnswer {
        if self.reads_only { result.answer() } else { result.acknowledge() }
    }

    /// Checks a request and compiles its patterns.
    async fn spec(&self, request: &WaitRequest, requested_at: Instant) -> Result<Spec> {
        let WaitRequest { patterns, fail, screen, gone, title, .. } = request;
        let texts = patterns.iter().chain(fail).chain(screen).chain(gone).chain(title).map(String::as_str);
        let (request, budget, caller) = (request.clone(), self.shared.waits.budget.clone(), self.caller().clone());
        let known = budget.known(&request);
        // Patterns that are compiled already cost no time.
        let texts: Vec<_> = if known.is_all { Vec::new() } else { texts.collect() };
        let compile = move || {
            let mut spec = Spec { requested_at, ..Spec::with(&request, &known)? };
            spec.compiled = budget.share(spec.compiled, &caller)?;
            Ok(spec)
        };
        self.compile(texts, compile).await
    }

    /// Charges the caller for an open item of this many bytes, until the value is dropped.
    ///
    /// Error: `RESOURCE_LIMIT`.
    pub fn charge_open(&self, bytes: usize) -> Result<Charge> {
        self.shared.waits.budget.charge(self.caller(), bytes)
    }

    /// Returns a wait's state, after waiting at most `timeout_ms` for its end.
    pub async fn wait_result(&self, id: &str, timeout_ms: Option<u64>) -> Result<WaitAnswer> {
        self.authorize(Tier::Read)?;
        let timeout = duration("timeout_ms", timeout_ms, limits::POLL_LONGEST)?.unwrap_or(Duration::ZERO);
        let core = match self.known_wait(id) {
            Ok(Wait::Open(core, _)) => core,
            Ok(Wait::Ended(result)) => return Ok(self.told(&result)),
            // Another daemon may have taken over since the caller learned the id.
            Err(_) => {
                if let Some(lost) = self.shared.waits.lost(id) {
                    return Err(lost);
                }
                let kept = self.shared.waits.kept.result(id).await;
                return kept.map_err(|error| if self.waits_have_left() { registry::taken_over() } else { error });
            }
        };
        // This timeout is not a failure: the answer says that the wait continues. The same holds if
        // another daemon continues it.
        tokio::select! {
            biased;
            () = self.shared.waits.left(&core) => return Ok(report(&core).0),
            () = core.over() => {}
            () = tokio::time::sleep(timeout) => {}
        }
        if core.is_over() { Ok(self.told(&self.result(&core).await)) } else { Ok(report(&core).0) }
    }

    /// Returns a wait whose server the caller may know. Error: `NOT_FOUND`.
    fn known_wait(&self, id: &str) -> Result<Wait> {
        let wait = self.shared.waits.get(id)?;
        match &wait {
            Wait::Open(core, _) if !self.may_know(core.host.socket()) => Err(registry::unknown(id)),
            // Its server is not stored. Ids cannot be guessed, and no list shows this one to a caller that
            // may not know the server.
            _ => Ok(wait),
        }
    }

    /// Cancels a wait. An ended wait keeps its result.
    ///
    /// Error: `READ_ONLY` for another caller's wait.
    pub async fn cancel_wait(&self, id: &str) -> Result<WaitAnswer> {
        self.authorize(Tier::Read)?;
        match self.known_wait(id) {
            Ok(Wait::Open(core, owner)) => {
                self.check_owner(&owner.principal, &format!("wait {id}"))?;
                core.finish(WaitOutcome::Cancelled, None);
                Ok(self.told(&self.result(&core).await))
            }
            Ok(Wait::Ended(result)) => Ok(self.told(&result)),
            Err(_) => match self.shared.waits.lost(id) {
                Some(lost) => Err(lost),
                None => self.shared.waits.kept.result(id).await,
            },
        }
    }

    /// Notes that the caller of a wait leaves it: its result is kept in a file, and outlives the engine.
    ///
    /// Error: why it will not; the wait continues.
    pub async fn keep_result(&self, id: &str) -> std::result::Result<(), String> {
        let waits = &self.shared.waits;
        let Ok(wait) = waits.get(id) else { return Ok(()) };
        waits.kept.begin(id, self.caller(), waits.open_ids()).await?;
        let result = match wait {
            Wait::Open(core, _) if core.is_over() => self.result(&core).await,
            Wait::Open(..) => return Ok(()),
            Wait::Ended(result) => result,
        };
        // It may have been stored before it was noted.
        waits.kept.end(id, || result.answer()).await;
        Ok(())
    }

    /// Lists the ended waits whose results are kept, the latest first; to a member of the fleet its own.
    pub async fn kept_waits(&self) -> Result<Vec<KeptWait>> {
        self.authorize(Tier::Read)?;
        let waits = &self.shared.waits;
        let mut kept = waits.kept.list(waits.ids()).await;
        if let Principal::Fleet(_) = self.caller().principal {
            // The servers of the others are not stored: they may be on other hosts.
            kept.retain(|wait| waits.kept.is_of(&wait.id, self.caller()));
        }
        Ok(kept)
    }
}

impl Engine {
    /// Returns the open waits that another daemon could not continue.
    #[doc(hidden)]
    pub fn bound_waits(&self) -> Vec<WaitInfo> {
        self.shared.waits.bound()
    }

    /// Returns whether another daemon continues the waits.
    pub fn waits_have_left(&self) -> bool {
        self.shared.waits.have_left()
    }

    /// Cancels a wait without listeners, if it is the caller's own.
    pub fn abandon_wait(&self, id: &str) {
        if let Ok(Wait::Open(core, owner)) = self.shared.waits.get(id)
            && self.owns(&owner.principal)
        {
            core.finish(WaitOutcome::Cancelled, None);
        }
    }
}

impl Server {
    /// Carries out a wait request. A detached wait returns at once. A wait that has begun continues
    /// without its caller: its result can be requested by the wait's id.
    pub(crate) async fn await_request(&self, request: &WaitRequest) -> Result<WaitAnswer> {
        self.await_again(request, None, None).await
    }

    /// Carries out a wait request, or continues the wait with this id if it has begun.
    ///
    /// `id` comes from [`id_of_key`]: a repeated request with the same id begins no second wait.
    /// `hold` is how long to wait for the end of a detached wait nevertheless. If another daemon
    /// takes over, a wait that has begun is `pending`.
    pub async fn await_again(
        &self,
        request: &WaitRequest,
        id: Option<String>,
        hold: Option<Duration>,
    ) -> Result<WaitAnswer> {
        self.await_begun(request, id, hold, |_| {}).await
    }

    /// Carries out a wait request as [`Self::await_again`] does. `begun` gets the id of the open wait.
    #[doc(hidden)]
    pub async fn await_begun(
        &self,
        request: &WaitRequest,
        id: Option<String>,
        hold: Option<Duration>,
        begun: impl FnOnce(&str),
    ) -> Result<WaitAnswer> {
        let span = tracing::info_span!(target: spans::TARGET, "wait", muxtap.outcome = Empty);
        let outcome = |done: &Result<WaitAnswer>| match done {
            Ok(answer) => answer.outcome.as_str(),
            Err(error) => error.code.as_str(),
        };
        spans::within(span, self.awaited(request, id, hold, begun), outcome).await
    }

    async fn awaited(
        &self,
        request: &WaitRequest,
        id: Option<String>,
        hold: Option<Duration>,
        begun: impl FnOnce(&str),
    ) -> Result<WaitAnswer> {
        let core = match id {
            None => self.begin(request, None).await?,
            Some(id) => {
                self.engine.authorize(Tier::Read)?;
                // A wait that was about to begin under this id has begun or failed by this turn.
                let _turn = self.engine.shared.waits.turn(&id).await;
                match self.engine.shared.waits.get(&id) {
                    Ok(Wait::Open(core, _)) => core,
                    Ok(Wait::Ended(result)) => return Ok(self.engine.told(&result)),
                    Err(_) => match self.engine.shared.waits.kept.result_of_key(&id).await {
                        Some(answer) => return Ok(answer),
                        None => self.begin(request, Some(id)).await?,
                    },
                }
            }
        };
        begun(&core.id);
        if request.detach && !core.is_over() {
            if let Some(hold) = hold {
                // If the wait continues, that is not a failure.
                let _ = tokio::time::timeout(hold.min(limits::POLL_LONGEST), self.over_or_left(&core)).await;
            }
            if !core.is_over() {
                return Ok(report(&core).0);
            }
        }
        // A caller that holds a future ends the wait by dropping it; a caller behind a connection
        // may request the result again.
        let _dropped = self.bound.is_some().then(|| CancelOnDrop(core.clone()));
        self.over_or_left(&core).await;
        if core.is_over() { Ok(self.engine.told(&self.engine.result(&core).await)) } else { Ok(report(&core).0) }
    }

    /// Resolves when the wait has ended, or when another daemon continues it.
    async fn over_or_left(&self, core: &Core) {
        tokio::select! {
            biased;
            () = self.engine.shared.waits.left(core) => {}
            () = core.over() => {}
        }
    }

    /// Begins a wait that ends when the returned value is dropped.
    pub async fn begin_wait(&self, request: &WaitRequest) -> Result<OwnedWait> {
        let core = self.begin(request, None).await?;
        Ok(OwnedWait { engine: self.engine.clone(), core: CancelOnDrop(core) })
    }

    /// Begins a wait, and leaves it to the engine. Without an `id`, the wait gets a new one.
    ///
    /// Error: `TMUX_UNAVAILABLE` if another daemon takes over before the wait has begun.
    async fn begin(&self, request: &WaitRequest, id: Option<String>) -> Result<Arc<Core>> {
        // A wait that has begun is returned: until then, the waits cannot leave.
        self.engine.shared.waits.unless_left(Box::pin(self.begin_here(request, id))).await
    }

    async fn begin_here(&self, request: &WaitRequest, id: Option<String>) -> Result<Arc<Core>> {
        let host = &self.host;
        self.engine.authorize(Tier::Read)?;
        let requested_at = Instant::now();
        let deadline = Deadline::new(requested_at, spec::timeout(request)?);
        // The panes' positions are recorded while the patterns compile: output printed meanwhile
        // belongs to the wait.
        let (spec, starts) = tokio::try_join!(
            self.engine.spec(request, requested_at),
            deadline.before(NOT_BEGUN, self.start_states(request))
        )?;
        // Held across awaits: a wait that is handed over has all its watchers.
        let _begins = deadline.before(NOT_BEGUN, self.engine.shared.waits.begins()).await?;
        let panes: Vec<_> = starts.iter().map(|start| start.pane.clone()).collect();
        let charge = self.engine.shared.waits.budget.charge(self.engine.caller(), spec.memory(panes.len()))?;
        // A wait of handles ends with its caller, who lives in this process.
        let continued = self.bound.is_none().then(|| request.clone());
        let make = |new: String| Core::new(id.unwrap_or(new), host.clone(), spec, panes, continued);
        let guard = WaitGuard::new(&self.engine, make)?;
        let core = guard.core().clone();
        let in_use = core.spec.needs_tmux().then(|| core.panes.iter().map(PaneUse::begin).collect::<Vec<_>>());
        // If the caller leaves during this, the wait has not begun, and dropping the guard closes
        // it.
        let attached = async {
            if in_use.is_some() {
                join_all(core.panes.iter().map(|pane| host.confirm_values(pane))).await;
            }
            self.attach(&core, &starts).await
        };
        deadline.before(NOT_BEGUN, attached).await?;
        let server = self.clone();
        self.engine.shared.tasks.spawn(async move { run(&server, guard, (in_use, charge)).await });
        Ok(core)
    }

    /// Resolves the targets of a wait to panes, each once, with their current positions. For a wait
    /// of handles, `bound` has the panes in the order of the targets.
    async fn start_states(&self, request: &WaitRequest) -> Result<Vec<StartState>> {
        let mut panes: Vec<StartState> = Vec::new();
        // The check of the request rejects more.
        for (at, target) in request.panes.iter().enumerate().take(limits::WAIT_PANES) {
            let meant = match self.bound.as_ref().and_then(|bound| bound.get(at)) {
                // Handles on panes of two servers may have the same id.
                Some(pane) => vec![self.check_seen(pane).await?],
                // A wait for an exit also covers panes that have ended.
                None if is_pattern(target) => self.fitting(target, request.exit).await?,
                None => vec![self.resolve_seen(target).await?],
            };
            for pane in meant {
                if !panes.iter().any(|known| Arc::ptr_eq(&known.pane, &pane)) {
                    panes.push(StartState::of(pane));
                }
            }
        }
        if panes.len() > limits::WAIT_PANES {
            let (fit, most) = (panes.len(), limits::WAIT_PANES);
            let message = format!("{fit} panes match; a wait accepts at most {most}: name fewer of them");
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        }
        Ok(panes)
    }
}

/// Runs a wait that has its watchers, until its end or until another daemon continues it.
async fn run(server: &Server, mut guard: WaitGuard, held: (Option<Vec<PaneUse>>, Charge)) {
    driver::drive(server, guard.core()).await;
    drop(held);
    if guard.has_left() {
        return;
    }
    // The caller's next wait must not be counted together with this one.
    guard.release_slot();
    // Respond before cleaning up: freeing the wait means hundreds of small deallocations.
    tokio::task::yield_now().await;
    guard.store_result().await;
}

/// A wait that has begun. Dropping it cancels the wait, unless the wait has ended.
pub struct OwnedWait {
    engine: Engine,
    core: CancelOnDrop,
}

impl OwnedWait {
    /// Returns the wait's id.
    pub fn id(&self) -> &str {
        &self.core.0.id
    }

    /// Cancels the wait, unless it has ended.
    pub fn cancel(&self) {
        self.core.0.finish(WaitOutcome::Cancelled, None);
    }

    /// Waits for the end of the wait and returns its result. Pending for ever once another daemon
    /// continues the wait.
    pub async fn result(&self) -> WaitAnswer {
        tokio::select! {
            biased;
            () = self.engine.shared.waits.left(&self.core.0) => std::future::pending().await,
            () = self.core.0.over() => {}
        }
        self.engine.told(&self.engine.result(&self.core.0).await)
    }
}

/// Cancels a wait on drop, unless the wait has ended.
struct CancelOnDrop(Arc<Core>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.finish(WaitOutcome::Cancelled, None);
    }
}

/// Returns whether a wait begins with the text on the screen.
fn starts_on_screen(spec: &Spec) -> bool {
    spec.since == Since::Screen
}
