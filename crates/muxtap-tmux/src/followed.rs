//! One pane, as control clients follow it: a state machine that takes events and returns actions.
//!
//! A pane is unowned (no connection carries it), seeding (its content is requested), following (its
//! output is passed on) or ended. A live pane with an owner whose content is not requested has no
//! state: every way to an owner leads through [`Flow::Seeding`], and every way into that state
//! returns [`PaneAction::Seed`] or a pause after which it is requested again.
//!
//! Nor does a pane that is followed without a sink have a state: [`Flow::Following`] holds the sink
//! that the observer returned for the content.

use std::{fmt, sync::Arc, time::Duration};

use muxtap_api::GapReason;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    OutputSink, Seeding,
    flood::{Allowance, Relapses},
    link::{FIRST_PAUSE, LONGEST_PAUSE},
    values::Values,
};

/// Maximum number of bytes of a pane's output that are held until its content is known: output
/// ahead of a seed, or over another connection than the owner's. If more comes, all held output is
/// dropped, and the pane is seeded again with a gap.
pub(super) const HELD_BYTES: usize = 1024 * 1024;

/// Numbers the seedings of all panes of a server, so that replies to old ones are recognized.
#[derive(Default)]
pub struct SeedAttempts(u64);

impl SeedAttempts {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// The observer's end of one pane's output. Two sinks are equal if they are the same object.
#[derive(Clone)]
pub struct Sink(pub(super) Arc<dyn OutputSink>);

impl Sink {
    /// Passes output on.
    pub fn output(&self, data: &[u8]) {
        self.0.output(data);
    }

    /// Returns whether the pane must not be held.
    pub fn needs_all(&self) -> bool {
        self.0.needs_all()
    }
}

/// The route of a pane's output while one connection carries it and the pane is followed.
#[derive(Debug)]
pub struct Route {
    pub(super) sink: Sink,
    /// What the pane may print before it is held.
    pub(super) allowance: Arc<Allowance>,
}

impl Route {
    fn new(sink: Sink, allowance: &Arc<Allowance>) -> Arc<Self> {
        Arc::new(Self { sink, allowance: allowance.clone() })
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.sink == other.sink
    }
}

impl Eq for Route {}

impl PartialEq for Sink {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Sink {}

impl fmt::Debug for Sink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sink")
    }
}

/// A pane that is followed.
pub struct FollowedPane {
    flow: Flow,
    /// Whether its content was read before: the next seed is joined with that.
    known: bool,
    /// The connections that carried it when it was last listed.
    carriers: Vec<u64>,
    /// The connections that no longer carry it, on which it is paused. tmux would otherwise keep
    /// all its output for them, and send it if the pane came back (N60).
    parked: Vec<u64>,
    /// The connections on which it is paused because it floods ([`super::flood`]), including those
    /// that do not carry it, to which it may be moved.
    held: Vec<u64>,
    /// The number of holds so far.
    holds: u64,
    /// What it may print before it is held.
    pub(super) allowance: Arc<Allowance>,
    /// Its previous holds.
    pub(super) relapses: Relapses,
    /// The process that runs in it, or ran in it last. Its end is watched while it runs.
    pid: u32,
    /// Ends the watch.
    pub(super) watch: CancellationToken,
    /// Whether it is not listed any more, and about to be reported as gone.
    pub(super) leaving: bool,
    /// How muxtap detects the end of its process.
    pub(super) end_watch: EndWatch,
    /// The values that tmux pushed last.
    pub(super) values: Option<Values>,
    /// Resolved when it is followed, dropped when it ends.
    waiters: Vec<oneshot::Sender<()>>,
    /// Resolved when its process has ended, dropped when it is gone.
    ends: Vec<oneshot::Sender<()>>,
}

/// The ways to detect the end of a pane's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndWatch {
    /// The kernel reports it.
    Kernel,
    /// The process has gone, or seems to have; a query to tmux is pending.
    Checking,
    /// Only tmux can report it: the process has gone, or cannot be watched, and tmux shows the pane
    /// alive.
    Tmux,
}

/// Where a pane's output comes from, and where it goes.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    /// No connection carries it.
    Unowned,
    /// Its owner has gone since the last listing. A session ends with its last window, and its
    /// client with it: the pane may have been moved to another session before.
    Orphaned { ahead: Option<AheadOutput> },
    /// Its content is requested; output is in the reply or follows it (C2).
    Seeding(SeedRequest),
    /// Its output is passed on.
    Following {
        owner: u64,
        /// Where it goes. No other place holds the route: the owner's draining task takes its
        /// cached route as current while the route exists ([`super::routes`]).
        route: Arc<Route>,
        /// Output over a connection that did not carry the pane when it was last listed: the pane
        /// has been moved to a session of it, or linked into one.
        ahead: Option<AheadOutput>,
    },
    /// Its process has ended, and all its output was reported. It may remain on the server and be
    /// respawned.
    Ended {
        owner: Option<u64>,
        /// Where the output of the next program in the pane goes. `None` if the end came while the
        /// pane was not followed, until its last seed ([`FollowedPane::seeded_last`]).
        sink: Option<Sink>,
        /// Whether the owner has carried it since before the end: later output then continues what
        /// was reported.
        carried_throughout: bool,
    },
}

/// A pane's content is being read.
#[derive(Debug, PartialEq, Eq)]
struct SeedRequest {
    owner: u64,
    attempt: u64,
    why: SeedReason,
    phase: Phase,
    /// How often tmux refused the content.
    refusals: u32,
}

/// The reason why a pane's content is read.
#[derive(Debug, PartialEq, Eq)]
enum SeedReason {
    /// Seen for the first time.
    First,
    /// Output may have been lost.
    Again(GapReason),
    /// Moved from one connection to another while both existed; with the output that has come over
    /// the new one so far.
    Moved(HeldOutput),
}

/// The stages in which a pane's content is read.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// A single line was sent. Output since then may or may not be in its reply.
    Quick { noisy: bool },
    /// The pane printed meanwhile, so it is being paused; output that this drops is in the reply to
    /// the next query.
    Pausing,
    /// The line was sent that reads the paused pane and ends the pause; later output follows its
    /// reply.
    Paused { early: HeldOutput },
    /// The observer gets the content, and returns where the following output goes.
    Delivering,
    /// tmux refused; the query is repeated after a pause.
    Refused,
}

/// Output that is held back, up to [`HELD_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldOutput {
    bytes: Vec<u8>,
    overflowed: bool,
}

impl HeldOutput {
    fn push(&mut self, data: &[u8]) {
        if self.overflowed {
            return;
        }
        if self.bytes.len() + data.len() > HELD_BYTES {
            *self = Self { bytes: Vec::new(), overflowed: true };
        } else {
            self.bytes.extend_from_slice(data);
        }
    }

    /// Returns all of the output; `None` if more than [`HELD_BYTES`] came.
    pub fn complete(self) -> Option<Vec<u8>> {
        (!self.overflowed).then_some(self.bytes)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct AheadOutput {
    from: u64,
    held: HeldOutput,
}

/// An action to be carried out for a pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaneAction {
    /// Query its content; the number of the attempt.
    Seed(u64),
    /// Pause it, then query its content; the number of the attempt.
    PauseAndSeed(u64),
    /// Report that its output is not followed from now on.
    Unfollowed,
    /// Pause it on this connection, which no longer carries it.
    Park(u64),
    /// End that pause on this connection, which carries it again. Output from then on is new.
    Unpark(u64),
    /// Report that another program has begun in it, at exactly this point of its stream.
    Restarted,
}

/// The fate of a piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputAction {
    /// Passed on.
    Passed(Arc<Route>),
    /// Dropped, or held back.
    Dropped,
    /// Another program has begun in the pane: reported first, then the output is passed on.
    Restarted(Sink),
    /// Dropped, or held back; the pane may be elsewhere or another program may have begun, so tmux
    /// is queried for a listing.
    Unsure,
}

/// The consequence of the reply to a seed's query.
#[derive(Debug, PartialEq, Eq)]
pub enum SeedOutcome {
    /// The reply belongs to an attempt that is over.
    Void,
    /// The pane printed meanwhile: it is paused and queried again.
    Pause,
    /// The content is passed on, then the output that came ahead of it; then
    /// [`FollowedPane::follow`].
    Deliver(Seeding, HeldOutput),
    /// The output that came over the new connection is compared with the content. If it continues
    /// the stream: [`FollowedPane::follow`].
    Compare(Vec<u8>),
}

/// Where a pane is carried, as of a listing.
pub struct Carriers<'a> {
    /// The connections that carry it.
    pub by: Vec<u64>,
    /// The connection to take its output from if it needs a new owner.
    pub candidate: Option<u64>,
    /// Whether a connection serves now, and also served at the last complete listing.
    pub stood: &'a dyn Fn(u64) -> bool,
}

impl Default for FollowedPane {
    fn default() -> Self {
        Self {
            flow: Flow::Unowned,
            known: false,
            carriers: Vec::new(),
            parked: Vec::new(),
            held: Vec::new(),
            holds: 0,
            allowance: Arc::default(),
            relapses: Relapses::default(),
            pid: 0,
            watch: CancellationToken::new(),
            leaving: false,
            end_watch: EndWatch::Kernel,
            values: None,
            waiters: Vec::new(),
            ends: Vec::new(),
        }
    }
}

/// How a pane is followed, for another process that continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredPane {
    pid: u32,
    carriers: Vec<u64>,
    parked: Vec<u64>,
    flow: StoredFlow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum StoredFlow {
    /// Its output is passed on.
    Following { owner: u64 },
    /// Its process has ended, and all its output was reported.
    Ended { owner: Option<u64>, carried_throughout: bool },
    /// Something is under way: it is read again.
    Again,
}

impl StoredPane {
    /// Returns whether it is read again.
    pub(super) fn is_read_again(&self) -> bool {
        self.flow == StoredFlow::Again
    }

    /// Restores the pane, whose output goes to `sink`.
    pub(super) fn followed(&self, sink: Sink) -> FollowedPane {
        let Self { pid, carriers, parked, flow } = self.clone();
        let pane = FollowedPane { known: true, pid, carriers, parked, ..FollowedPane::default() };
        let flow = match flow {
            StoredFlow::Following { owner } => {
                Flow::Following { owner, route: Route::new(sink, &pane.allowance), ahead: None }
            }
            StoredFlow::Ended { owner, carried_throughout } => {
                Flow::Ended { owner, sink: Some(sink), carried_throughout }
            }
            StoredFlow::Again => Flow::Unowned,
        };
        FollowedPane { flow, ..pane }
    }

    /// Returns the process whose end is to be watched.
    pub(super) fn watched(&self) -> Option<u32> {
        Some(self.pid).filter(|pid| *pid != 0 && matches!(self.flow, StoredFlow::Following { .. }))
    }
}

impl FollowedPane {
    /// Returns how it is followed.
    pub(super) fn stored(&self) -> StoredPane {
        let is_plain = self.held.is_empty() && !self.leaving && self.end_watch == EndWatch::Kernel;
        let flow = match &self.flow {
            Flow::Following { owner, ahead: None, .. } if is_plain => StoredFlow::Following { owner: *owner },
            Flow::Ended { owner, sink: Some(_), carried_throughout } if is_plain => {
                StoredFlow::Ended { owner: *owner, carried_throughout: *carried_throughout }
            }
            _ => StoredFlow::Again,
        };
        StoredPane { pid: self.pid, carriers: self.carriers.clone(), parked: self.parked.clone(), flow }
    }

    /// Returns the connection that its output is taken from (C1).
    pub fn owner(&self) -> Option<u64> {
        match &self.flow {
            Flow::Unowned | Flow::Orphaned { .. } => None,
            Flow::Seeding(asking) => Some(asking.owner),
            Flow::Following { owner, .. } => Some(*owner),
            Flow::Ended { owner, .. } => *owner,
        }
    }

    /// Returns the connections that carried it when it was last listed, and its owner.
    pub fn carriers(&self) -> impl Iterator<Item = u64> + '_ {
        let owner = self.owner();
        owner.into_iter().chain(self.carriers.iter().copied().filter(move |id| Some(*id) != owner))
    }

    /// Returns whether it should stay paused on this connection.
    pub fn stays_paused(&self, connection: u64) -> bool {
        self.parked.contains(&connection) || self.held.contains(&connection)
    }

    /// Returns whether it floods and is paused on this connection.
    pub fn is_held_on(&self, connection: u64) -> bool {
        self.held.contains(&connection)
    }

    /// Returns whether it floods and is paused on the connection that its output is taken from.
    pub fn is_held(&self) -> bool {
        self.owner().is_some_and(|owner| self.held.contains(&owner))
    }

    /// Returns whether it floods and is paused on any connection.
    pub fn is_held_anywhere(&self) -> bool {
        !self.held.is_empty()
    }

    /// Records that it floods: it should be paused, read and left paused. Returns the actions, and
    /// the number of the hold if a new watch should begin; `None` if the pane is not followed at
    /// this moment.
    pub fn hold(&mut self, attempts: &mut SeedAttempts) -> Option<(Vec<PaneAction>, Option<u64>)> {
        let Flow::Following { owner, .. } = self.flow else { return None };
        // A pane that is already held but flows is paused again.
        let is_new = self.held.is_empty();
        if !self.held.contains(&owner) {
            self.held.push(owner);
        }
        self.relapses.held(Instant::now());
        self.holds += u64::from(is_new);
        Some((self.pause_and_read(owner, attempts), is_new.then_some(self.holds)))
    }

    /// Returns those of the connections on which a hold should begin too.
    pub fn hold_on_others(&mut self, connections: impl Iterator<Item = u64>) -> Vec<u64> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let others: Vec<u64> = connections.filter(|id| !self.held.contains(id)).collect();
        self.held.extend(&others);
        others
    }

    /// Returns whether the hold of this number is still in effect.
    pub fn goes_on_being_held(&self, hold: u64) -> bool {
        self.is_held_anywhere() && self.holds == hold
    }

    /// Returns whether its content was requested on this connection, without a pause.
    pub fn is_asked_on(&self, connection: u64) -> bool {
        matches!(&self.flow, Flow::Seeding(SeedRequest { owner, phase: Phase::Quick { .. }, .. }) if *owner == connection)
    }

    /// Returns whether a line that ends a pause itself was sent on this connection, or is about to
    /// be.
    pub fn is_being_paused(&self, connection: u64) -> bool {
        let Flow::Seeding(SeedRequest { owner, phase, .. }) = &self.flow else { return false };
        *owner == connection && matches!(phase, Phase::Pausing | Phase::Paused { .. })
    }

    /// Records that its hold should end. Returns the actions.
    pub fn let_go(&mut self, attempts: &mut SeedAttempts) -> Vec<PaneAction> {
        let owner = self.owner().filter(|owner| self.held.contains(owner));
        let mut steps = self.no_longer_held();
        match (owner, &self.flow) {
            (None, _) => {}
            (Some(owner), Flow::Ended { .. }) => steps.push(PaneAction::Unpark(owner)),
            (Some(owner), _) => steps.extend(self.pause_and_read(owner, attempts)),
        }
        steps
    }

    /// Records that its hold has ended. Returns the actions on connections other than the owner: it
    /// flows on those that carry it, and stays paused on the others, since tmux would otherwise
    /// keep its output for them (N60).
    fn no_longer_held(&mut self) -> Vec<PaneAction> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        self.relapses.let_go(now);
        self.allowance.let_go(now);
        let (owner, held) = (self.owner(), std::mem::take(&mut self.held));
        let others = held.into_iter().filter(|id| Some(*id) != owner && !self.parked.contains(id));
        let (carry_it, do_not): (Vec<u64>, Vec<u64>) = others.partition(|id| self.carriers.contains(id));
        self.parked.extend(&do_not);
        let flow = carry_it.into_iter().map(PaneAction::Unpark);
        flow.chain(do_not.into_iter().map(PaneAction::Park)).collect()
    }

    /// Begins to read it again, with a pause at the beginning.
    fn pause_and_read(&mut self, owner: u64, attempts: &mut SeedAttempts) -> Vec<PaneAction> {
        let (attempt, why) = (attempts.next(), self.again(GapReason::Paused));
        self.flow = Flow::Seeding(SeedRequest { owner, attempt, why, phase: Phase::Pausing, refusals: 0 });
        vec![PaneAction::Unfollowed, PaneAction::PauseAndSeed(attempt)]
    }

    /// Returns whether its process has ended and the end was reported.
    pub fn has_ended(&self) -> bool {
        matches!(self.flow, Flow::Ended { .. })
    }

    /// Returns whether its content is being read.
    pub fn is_seeding(&self) -> bool {
        matches!(self.flow, Flow::Seeding(_))
    }

    /// Returns whether its content was ever read.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Resolves when it is followed or has ended; `None` if it already is or has.
    pub fn wait(&mut self) -> Option<oneshot::Receiver<()>> {
        if matches!(self.flow, Flow::Following { .. } | Flow::Ended { .. }) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.waiters.push(sender);
        Some(receiver)
    }

    /// Resolves when its process has ended; `None` if it already has.
    pub fn wait_for_end(&mut self) -> Option<oneshot::Receiver<()>> {
        if self.has_ended() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.ends.push(sender);
        Some(receiver)
    }

    /// Records that tmux lists the pane, and which connections carry it.
    pub fn listed(&mut self, carried: Carriers<'_>, attempts: &mut SeedAttempts) -> Vec<PaneAction> {
        let Carriers { by, candidate, stood } = carried;
        let stays = |owner: u64| by.contains(&owner);
        let mut steps = self.park(&by);
        steps.extend(match &mut self.flow {
            Flow::Following { owner, ahead, .. } if stays(*owner) => {
                // It is linked into a session of that connection too, which sends its output a
                // second time from now on.
                *ahead = None;
                Vec::new()
            }
            Flow::Seeding(asking) if stays(asking.owner) => Vec::new(),
            Flow::Ended { owner: Some(owner), .. } if stays(*owner) => Vec::new(),
            Flow::Ended { owner, carried_throughout, .. } => {
                (*owner, *carried_throughout) = (candidate, false);
                Vec::new()
            }
            Flow::Unowned | Flow::Orphaned { .. } | Flow::Seeding(_) | Flow::Following { .. } => match candidate {
                Some(candidate) => {
                    let why = self.why_after_a_move(candidate, stood);
                    self.begin(candidate, why, attempts)
                }
                None => self.disown(),
            },
        });
        self.carriers = by;
        steps
    }

    /// Parks it on the connections that no longer carry it, and ends that on those that carry it
    /// again.
    fn park(&mut self, by: &[u64]) -> Vec<PaneAction> {
        let Self { parked, carriers, .. } = self;
        let (back, away) = parked.iter().partition(|id| by.contains(id));
        *parked = away;
        let left: Vec<u64> = carriers.iter().copied().filter(|id| !by.contains(id)).collect();
        parked.extend(&left);
        let back: Vec<u64> = back;
        back.into_iter().map(PaneAction::Unpark).chain(left.into_iter().map(PaneAction::Park)).collect()
    }

    /// Returns the reason why the content is read when the pane comes to another owner.
    fn why_after_a_move(&mut self, to: u64, stood: &dyn Fn(u64) -> bool) -> SeedReason {
        if self.is_held_anywhere() {
            // No connection has the output of the time in between.
            return self.again(GapReason::Paused);
        }
        let ahead = match &mut self.flow {
            Flow::Following { owner, ahead, .. } if stood(*owner) => Some(ahead.take()),
            // All that the connection sent had arrived before the connection ended.
            Flow::Orphaned { ahead } => Some(ahead.take()),
            _ => None,
        };
        match ahead.filter(|_| stood(to)) {
            Some(ahead) => match ahead {
                None => SeedReason::Moved(HeldOutput::default()),
                Some(AheadOutput { from, held }) if from == to => SeedReason::Moved(held),
                Some(_) => SeedReason::Again(GapReason::Reconnected),
            },
            None => self.again(GapReason::Reconnected),
        }
    }

    fn again(&self, reason: GapReason) -> SeedReason {
        if self.known { SeedReason::Again(reason) } else { SeedReason::First }
    }

    fn begin(&mut self, owner: u64, why: SeedReason, attempts: &mut SeedAttempts) -> Vec<PaneAction> {
        if !self.held.is_empty() && !self.held.contains(&owner) {
            // It floods on the new owner too.
            self.held.push(owner);
            return self.pause_and_read(owner, attempts);
        }
        let attempt = attempts.next();
        self.flow =
            Flow::Seeding(SeedRequest { owner, attempt, why, phase: Phase::Quick { noisy: false }, refusals: 0 });
        vec![PaneAction::Unfollowed, PaneAction::Seed(attempt)]
    }

    fn disown(&mut self) -> Vec<PaneAction> {
        match std::mem::replace(&mut self.flow, Flow::Unowned) {
            Flow::Unowned | Flow::Orphaned { .. } => Vec::new(),
            _ => vec![PaneAction::Unfollowed],
        }
    }

    /// Records that a connection has gone.
    pub fn lost(&mut self, connection: u64) -> Vec<PaneAction> {
        self.carriers.retain(|id| *id != connection);
        self.parked.retain(|id| *id != connection);
        let was_held = self.is_held();
        self.held.retain(|id| *id != connection);
        if let Flow::Following { ahead, .. } | Flow::Orphaned { ahead } = &mut self.flow
            && ahead.as_ref().is_some_and(|ahead| ahead.from == connection)
        {
            *ahead = None;
        }
        if self.owner() != Some(connection) {
            return Vec::new();
        }
        if let Flow::Ended { owner, carried_throughout, .. } = &mut self.flow {
            (*owner, *carried_throughout) = (None, false);
            return Vec::new();
        }
        if let Flow::Following { ahead, .. } = &mut self.flow
            && !was_held
        {
            self.flow = Flow::Orphaned { ahead: ahead.take() };
            return vec![PaneAction::Unfollowed];
        }
        self.disown()
    }

    /// Takes output that came over a connection.
    pub fn output(&mut self, connection: u64, data: &[u8]) -> OutputAction {
        match &mut self.flow {
            Flow::Following { owner, route, .. } if *owner == connection => OutputAction::Passed(route.clone()),
            Flow::Following { ahead, .. } | Flow::Orphaned { ahead } => {
                // On a connection where it is parked, output is from before its pause.
                if !self.carriers.contains(&connection) && !self.parked.contains(&connection) {
                    let is_news = ahead.is_none();
                    let ahead =
                        ahead.get_or_insert_with(|| AheadOutput { from: connection, held: HeldOutput::default() });
                    if ahead.from == connection {
                        ahead.held.push(data);
                    } else {
                        // Two connections have its output; the order of the two parts is unknown.
                        *ahead =
                            AheadOutput { from: connection, held: HeldOutput { bytes: Vec::new(), overflowed: true } };
                    }
                    // The pane may have been moved by a `swap-window`, which is announced to no
                    // client (N80).
                    if is_news {
                        return OutputAction::Unsure;
                    }
                }
                OutputAction::Dropped
            }
            Flow::Seeding(asking) if asking.owner == connection => {
                match (&mut asking.phase, &mut asking.why) {
                    (Phase::Quick { .. }, SeedReason::Moved(held)) => held.push(data),
                    (Phase::Quick { noisy }, _) => *noisy = true,
                    (Phase::Paused { early }, _) => early.push(data),
                    // No output comes during the delivery, which runs in the task that reads the
                    // connection.
                    (Phase::Pausing | Phase::Refused | Phase::Delivering, _) => {}
                }
                OutputAction::Dropped
            }
            Flow::Ended { owner, sink, carried_throughout } if *owner == Some(connection) => {
                match sink.take_if(|_| *carried_throughout) {
                    // All output of the last program had arrived before its end was reported (C3).
                    Some(sink) => {
                        let route = Route::new(sink.clone(), &self.allowance);
                        self.flow = Flow::Following { owner: connection, route, ahead: None };
                        OutputAction::Restarted(sink)
                    }
                    None => OutputAction::Unsure,
                }
            }
            Flow::Unowned | Flow::Seeding(_) | Flow::Ended { .. } => OutputAction::Dropped,
        }
    }

    /// Records that output may have been lost.
    pub fn reseed(&mut self, reason: GapReason, attempts: &mut SeedAttempts) -> Vec<PaneAction> {
        match &mut self.flow {
            Flow::Unowned => Vec::new(),
            Flow::Orphaned { .. } => self.disown(),
            Flow::Seeding(SeedRequest { owner, .. }) | Flow::Following { owner, .. } => {
                let owner = *owner;
                let why = self.again(reason);
                self.begin(owner, why, attempts)
            }
            Flow::Ended { carried_throughout, .. } => {
                *carried_throughout = false;
                Vec::new()
            }
        }
    }

    /// Records which process a listing shows alive. Returns whether it is a different one.
    pub fn shows(&mut self, pid: u32) -> bool {
        let is_new = self.is_another(pid);
        if is_new {
            self.pid = pid;
            self.end_watch = EndWatch::Kernel;
        }
        is_new
    }

    /// Returns whether this is another process than the one that runs in it, or ran in it last. A
    /// pid of 0 counts as the same process: it has just ended (N62).
    pub fn is_another(&self, pid: u32) -> bool {
        pid != 0 && pid != self.pid
    }

    /// Records that another program runs in the pane. `here`: the owner has carried all output of
    /// that program.
    pub fn restarted(&mut self, here: bool, attempts: &mut SeedAttempts) -> Vec<PaneAction> {
        // The respawn has ended the owner's pause.
        let mut steps = if here { self.no_longer_held() } else { Vec::new() };
        let Flow::Ended { owner, sink, carried_throughout } = &mut self.flow else { return steps };
        steps.push(PaneAction::Restarted);
        match (*owner, sink.take_if(|_| *carried_throughout || here)) {
            (None, _) => self.flow = Flow::Unowned,
            (Some(owner), Some(sink)) => {
                let route = Route::new(sink, &self.allowance);
                self.flow = Flow::Following { owner, route, ahead: None };
            }
            (Some(owner), None) => {
                let why = self.again(GapReason::Reconnected);
                steps.extend(self.begin(owner, why, attempts));
            }
        }
        steps
    }

    /// Records that the pane's process has ended and that all its output was passed on; `by` is the
    /// connection and `pid` the process that tmux reported, if it did. Returns whether that is
    /// news.
    pub fn ended(&mut self, by: Option<u64>, pid: Option<u32>) -> bool {
        self.watch.cancel();
        self.end_watch = EndWatch::Kernel;
        // A program may start and end between two listings. A listing that was requested over
        // another connection may still show it alive, and must not be taken for a restart.
        self.pid = pid.filter(|pid| *pid != 0).unwrap_or(self.pid);
        self.waiters.clear();
        for waiter in self.ends.drain(..) {
            let _ = waiter.send(());
        }
        if self.has_ended() {
            return false;
        }
        let owner = self.owner();
        // The content of a held pane is read again when a new program is put into it.
        let carried_throughout = owner.is_some() && owner == by && !self.is_held();
        let sink = match std::mem::replace(&mut self.flow, Flow::Unowned) {
            Flow::Following { route, .. } => Some(route.sink.clone()),
            _ => None,
        };
        self.flow = Flow::Ended { owner, sink, carried_throughout };
        self.known = true;
        true
    }

    /// Records where the output of the next program in the ended pane goes. `sink` is what the
    /// observer returned for the pane's last content.
    pub fn seeded_last(&mut self, last: Sink) {
        if let Flow::Ended { sink, .. } = &mut self.flow {
            *sink = Some(last);
        }
    }

    /// Returns the read of this attempt, if it is still in progress.
    fn asking(&mut self, attempt: u64) -> Option<&mut SeedRequest> {
        match &mut self.flow {
            Flow::Seeding(asking) if asking.attempt == attempt => Some(asking),
            _ => None,
        }
    }

    /// Returns the connection that an attempt is requested on, if the attempt is still in progress.
    pub fn is_asked(&mut self, attempt: u64) -> Option<u64> {
        self.asking(attempt).map(|asking| asking.owner)
    }

    /// Records that the content of an attempt has arrived.
    pub fn answered(&mut self, attempt: u64) -> SeedOutcome {
        let Some(asking) = self.asking(attempt) else { return SeedOutcome::Void };
        let (noisy, early) = match &mut asking.phase {
            Phase::Quick { noisy } => (*noisy, HeldOutput::default()),
            Phase::Paused { early } => (false, std::mem::take(early)),
            Phase::Pausing | Phase::Refused | Phase::Delivering => return SeedOutcome::Void,
        };
        if noisy {
            asking.phase = Phase::Pausing;
            return SeedOutcome::Pause;
        }
        let why = match &asking.why {
            SeedReason::First => Seeding::First,
            SeedReason::Again(reason) => Seeding::Again(*reason),
            SeedReason::Moved(held) => match held.clone().complete() {
                Some(output) => return SeedOutcome::Compare(output),
                None => return self.not_handed_over(attempt),
            },
        };
        asking.phase = Phase::Delivering;
        self.known = true;
        SeedOutcome::Deliver(why, early)
    }

    /// Records that the observer has the content of an attempt, or that the output of the new
    /// connection continues the stream; later output goes to this sink. Returns the channels of
    /// those that wait for the pane to be followed; dropping them wakes the waiters.
    pub fn follow(&mut self, attempt: u64, sink: Sink) -> Vec<oneshot::Sender<()>> {
        let Some(SeedRequest { owner, .. }) = self.asking(attempt) else { return Vec::new() };
        let owner = *owner;
        self.flow = Flow::Following { owner, route: Route::new(sink, &self.allowance), ahead: None };
        self.take_waiters()
    }

    /// Records that the output of the new connection does not continue the stream, or that this
    /// cannot be known: the pane is paused and read with a gap.
    pub fn not_handed_over(&mut self, attempt: u64) -> SeedOutcome {
        let Some(asking) = self.asking(attempt) else { return SeedOutcome::Void };
        (asking.why, asking.phase) = (SeedReason::Again(GapReason::Reconnected), Phase::Pausing);
        SeedOutcome::Pause
    }

    /// Records that tmux has paused the pane for an attempt. Returns whether the attempt is still
    /// in progress.
    pub fn paused(&mut self, attempt: u64) -> bool {
        let asking = self.asking(attempt).filter(|asking| asking.phase == Phase::Pausing);
        asking.map(|asking| asking.phase = Phase::Paused { early: HeldOutput::default() }).is_some()
    }

    /// Records that tmux refused the content, or that it was unreadable. Returns the next attempt
    /// and the pause before it.
    pub fn refused(&mut self, attempt: u64, attempts: &mut SeedAttempts) -> Option<(u64, Duration)> {
        let asking = self.asking(attempt)?;
        let pause = FIRST_PAUSE.saturating_mul(1 << asking.refusals.min(10)).min(LONGEST_PAUSE);
        asking.refusals += 1;
        asking.attempt = attempts.next();
        asking.phase = Phase::Refused;
        if matches!(asking.why, SeedReason::Moved(_)) {
            asking.why = SeedReason::Again(GapReason::Reconnected);
        }
        Some((asking.attempt, pause))
    }

    /// Records that the pause of a refused attempt is over. Returns whether to make the attempt.
    pub fn retry(&mut self, attempt: u64) -> bool {
        let asking = self.asking(attempt).filter(|asking| asking.phase == Phase::Refused);
        asking.map(|asking| asking.phase = Phase::Quick { noisy: false }).is_some()
    }

    /// Takes the channels of those that wait for the pane to be followed; dropping them wakes the
    /// waiters.
    pub fn take_waiters(&mut self) -> Vec<oneshot::Sender<()>> {
        std::mem::take(&mut self.waiters)
    }
}

#[cfg(test)]
mod tests;
