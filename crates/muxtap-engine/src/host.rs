//! One followed tmux server, as the engine sees it: its panes, live and ended.

mod compress;
mod resync;
mod strings;
mod usage;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use muxtap_api::{Cursor, Epoch, Event, GapReason, Result, Size};
use muxtap_base::metrics;
use muxtap_core::{protocol::ids::PaneId, screen::Rules};
use muxtap_tmux::{
    DiscardOutput, Exit, LinkState, Observer, OutputSink, Proc, Seed, Seeding, ServerIdentity, ServerLink, Subject,
    Topology, Value, is_absent,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    CommandChange, CommandEvent, PaneState, Shared,
    agents::registry::AgentRegistry,
    limits,
    pane::{MemoryDelta, PaneMetadata, PushOutcome},
};

/// Callbacks for what happens in a pane. The host calls them without knowing the parts behind them,
/// which query the host for more.
#[derive(Clone, Copy)]
pub(super) struct PaneHooks {
    /// Called when the pane was seeded for the first time and is followed.
    pub(super) followed: fn(&Arc<Host>, &Arc<PaneState>),
    /// Called when the pane's wrapped command has ended and all of its output has arrived.
    pub(super) command_ended: fn(&Arc<Host>, &Arc<PaneState>, Exit),
    /// Called when the pane's process has ended.
    pub(super) process_ended: fn(&Arc<Host>, &Arc<PaneState>, Exit),
}

/// A followed tmux server.
pub struct Host {
    socket: PathBuf,
    server: OnceLock<ServerLink>,
    shared: Weak<Shared>,
    panes: DashMap<PaneId, Arc<PaneState>>,
    ended: Mutex<Vec<Arc<PaneState>>>,
    epoch: Mutex<Epoch>,
    /// The agents in the server's panes.
    pub(super) agents: AgentRegistry,
    hooks: PaneHooks,
    /// The drawing rules of the running version of tmux.
    rules: Mutex<Option<Rules>>,
    /// The fingerprint of the topology that subscribers know.
    published: AtomicU64,
    /// When a caller last requested this server.
    asked: Mutex<Instant>,
    /// Live panes of an earlier engine that no listing has shown yet.
    restored: Mutex<Vec<PaneId>>,
    /// Panes that were captured without being followed, and when.
    looks: Mutex<HashMap<PaneId, Instant>>,
    /// The turn of a caller that changes labels.
    label_turn: Semaphore,
    /// Ends the link to the server.
    cancel: CancellationToken,
}

impl Host {
    pub(super) fn new(socket: &Path, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            socket: socket.to_owned(),
            server: OnceLock::new(),
            shared: Arc::downgrade(shared),
            panes: DashMap::new(),
            ended: Mutex::default(),
            epoch: Mutex::new(Epoch { server: 0, engine: shared.nonce }),
            agents: AgentRegistry::default(),
            hooks: shared.hooks,
            rules: Mutex::default(),
            published: AtomicU64::new(0),
            asked: Mutex::new(Instant::now()),
            restored: Mutex::default(),
            looks: Mutex::default(),
            label_turn: Semaphore::new(1),
            cancel: shared.cancel.child_token(),
        })
    }

    pub(super) fn label_turn(&self) -> &Semaphore {
        &self.label_turn
    }

    /// Adds the panes of an earlier engine, before the link to the server exists. `server`: the epoch
    /// of the server process. `are_carried`: that engine's control clients carry them on.
    pub(super) fn restore(
        &self,
        server: u64,
        live: Vec<Arc<PaneState>>,
        ended: Vec<Arc<PaneState>>,
        are_carried: bool,
    ) {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner).server = server;
        let held: usize = live.iter().chain(&ended).map(|pane| pane.held_bytes()).sum();
        self.charge(MemoryDelta { before: 0, after: held });
        *self.restored.lock().unwrap_or_else(PoisonError::into_inner) = live.iter().map(|pane| pane.id()).collect();
        for pane in live {
            if !are_carried {
                // What the pane prints from now on is not drawn.
                pane.suspend_screen();
            }
            self.panes.insert(pane.id(), pane);
            metrics::PANES.increment(1.0);
        }
        *self.ended() = ended;
    }

    /// Does for restored panes what is done for panes that are seeded. The link to the server exists.
    pub(super) fn begin_restored(self: &Arc<Self>) {
        for pane in self.panes() {
            self.watch_string(&pane);
            (self.hooks.followed)(self, &pane);
            if self.server().is_following(pane.id()) && pane.lock().screen().is_stale() {
                self.resync(&pane);
            }
            self.compress_at_rest(&pane);
        }
    }

    /// Returns whether a pane is one of this server, live or ended: its memory is counted.
    fn has(&self, pane: &Arc<PaneState>) -> bool {
        self.live_pane(pane.id()).is_some_and(|live| Arc::ptr_eq(&live, pane))
            || self.ended().iter().any(|ended| Arc::ptr_eq(ended, pane))
    }

    fn has_restored(&self) -> bool {
        !self.restored.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Ends restored panes that the server does not have any more. Other panes are ended by the link,
    /// which has followed them.
    fn end_lost_panes(&self, topology: &Topology) {
        let restored = std::mem::take(&mut *self.restored.lock().unwrap_or_else(PoisonError::into_inner));
        let lost = restored.into_iter().filter(|id| topology.pane(*id).is_none());
        for pane in lost.filter_map(|id| self.live_pane(id)) {
            self.mark_exited(&pane, Exit::default());
            self.retire(&pane);
        }
    }

    pub(super) fn set_server(&self, server: ServerLink) {
        // Set once, by the caller that created this host.
        let _ = self.server.set(server);
    }

    /// Returns the link to the server.
    #[allow(
        clippy::expect_used,
        clippy::missing_panics_doc,
        reason = "`Engine::host` sets it before anyone else sees the host"
    )]
    pub fn server(&self) -> &ServerLink {
        self.server.get().expect("a host has a server before it is handed out")
    }

    /// Runs `look` on the probe's thread, where it may block, for the process in `metadata`.
    /// Returns `None` if the result is not known in time (`ProcessProbe::run`). The server must be
    /// on this machine.
    pub(super) async fn probe<T: Send + 'static>(
        &self,
        metadata: PaneMetadata,
        look: impl FnOnce(&Proc, &PaneMetadata) -> T + Send + 'static,
    ) -> Option<T> {
        self.shared()?.probe.run(Subject::Process(metadata.pid), move |proc| look(proc, &metadata)).await
    }

    /// Returns the token that ends the link to the server.
    pub(super) fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Records a caller's request for this server.
    pub(super) fn touch(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn last_asked(&self) -> Instant {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the host can be dropped without losing anything: no server runs on its
    /// socket, no pane is readable any more, and only the caller holds the host (requests, waits
    /// and subscriptions each do).
    pub(super) fn is_idle(self: &Arc<Self>) -> bool {
        let down = matches!(self.server().state(), LinkState::Down { .. });
        down && Arc::strong_count(self) == 1 && self.panes.is_empty() && self.ended().is_empty()
    }

    /// Returns the path of the server's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the engine; `None` while it is shutting down.
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade()
    }

    /// Returns the epoch that ties cursors to this server process and this engine.
    pub fn epoch(&self) -> Epoch {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the drawing rules of the running version of tmux; `None` before the server was
    /// reached.
    pub(super) fn rules(&self) -> Option<Rules> {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of panes that are followed, or were until they went unused.
    pub fn pane_count(&self) -> usize {
        self.panes.len()
    }

    /// Returns the number of bytes in the rings.
    pub fn ring_bytes(&self) -> u64 {
        self.panes.iter().map(|pane| pane.ring_len() as u64).sum()
    }

    /// Returns a live pane.
    pub fn live_pane(&self, id: PaneId) -> Option<Arc<PaneState>> {
        self.panes.get(&id).map(|pane| pane.clone())
    }

    /// Returns a pane that is live, or has ended and is still readable. Excludes panes of an
    /// earlier server, since ids begin anew with each server.
    pub fn pane(&self, id: PaneId) -> Option<Arc<PaneState>> {
        self.live_pane(id).or_else(|| self.find_ended(|pane| pane.id() == id && !self.is_earlier(pane)))
    }

    /// Returns the last pane with this id of an earlier server on this socket.
    pub(super) fn earlier_pane(&self, id: PaneId) -> Option<Arc<PaneState>> {
        self.find_ended(|pane| pane.id() == id && self.is_earlier(pane))
    }

    /// Returns the ended pane of an earlier server to whose stream a cursor points.
    pub(super) fn earlier_pane_of(&self, cursor: &Cursor) -> Option<Arc<PaneState>> {
        self.find_ended(|pane| pane.id() == cursor.pane && pane.epoch() == cursor.epoch && self.is_earlier(pane))
    }

    /// Returns whether a pane belongs to an earlier server on this socket.
    pub(super) fn is_earlier(&self, pane: &PaneState) -> bool {
        pane.epoch().server != self.epoch().server
    }

    fn find_ended(&self, fits: impl Fn(&PaneState) -> bool) -> Option<Arc<PaneState>> {
        self.ended().iter().rev().find(|pane| fits(pane)).cloned()
    }

    /// Returns every live pane.
    pub fn panes(&self) -> Vec<Arc<PaneState>> {
        self.panes.iter().map(|pane| pane.clone()).collect()
    }

    /// Returns panes that ended and are still readable, oldest first.
    pub fn ended_panes(&self) -> Vec<Arc<PaneState>> {
        self.ended().clone()
    }

    /// Drops panes that ended more than [`limits::KEEP`] ago. Returns when the next one is due.
    pub fn drop_ended(&self, now: Instant) -> Option<Instant> {
        let mut ended = self.ended();
        ended.retain(|pane| pane.ended_at().is_none_or(|at| now.duration_since(at) < limits::KEEP));
        ended.iter().filter_map(|pane| pane.ended_at()).min().map(|at| at + limits::KEEP)
    }

    /// Follows a pane's output until the pane has been unused for a while. Returns the pane as soon
    /// as it is seeded.
    ///
    /// Error: `NOT_FOUND` if there is no such pane.
    pub(super) async fn follow(&self, link: &ServerLink, id: PaneId) -> Result<Option<Arc<PaneState>>> {
        if let Some(pane) = self.live_pane(id).filter(|pane| pane.exit().is_some() || link.touch(id)) {
            return Ok(Some(pane));
        }
        link.cover(id).await?;
        if let Some(shared) = self.shared() {
            // The janitor learns that this use will end.
            shared.retired.notify_one();
        }
        Ok(self.pane(id))
    }

    /// Leaves the sessions of panes whose last use was `keep` ago. Returns when the next one is
    /// due.
    pub(super) fn leave_unused(&self, keep: Duration) -> Option<Instant> {
        let in_use = |id: PaneId| self.live_pane(id).is_some_and(|pane| pane.is_in_use());
        self.server().leave_unused(keep, &in_use)
    }

    /// Returns whether this capture of a pane is the first for a while, which needs no client in
    /// its session.
    pub(super) fn looks_once(&self, id: PaneId) -> bool {
        let Some(keep) = self.shared().map(|shared| shared.options.follow_for) else { return false };
        if self.server().is_following(id) {
            return false;
        }
        let now = Instant::now();
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.retain(|_, at| now.duration_since(*at) < keep);
        looks.insert(id, now).is_none()
    }

    fn ended(&self) -> MutexGuard<'_, Vec<Arc<PaneState>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves a pane from the live ones to the ended ones.
    fn retire(&self, pane: &Arc<PaneState>) {
        if self.panes.remove_if(&pane.id(), |_, there| Arc::ptr_eq(there, pane)).is_some() {
            let mut ended = self.ended();
            ended.push(pane.clone());
            let over = ended.len().saturating_sub(limits::ENDED_PANES);
            let dropped: Vec<_> = ended.drain(..over).collect();
            drop(ended);
            metrics::PANES.decrement(1.0);
            pane.mark_retired();
            for pane in dropped {
                if let Some(shared) = self.shared() {
                    shared.charge(pane.held_bytes(), 0);
                }
            }
            if let Some(shared) = self.shared() {
                shared.retired.notify_one();
            }
        }
    }

    fn end_all(&self) {
        for pane in self.panes() {
            self.mark_exited(&pane, Exit::default());
            self.retire(&pane);
        }
    }

    fn mark_exited(&self, pane: &PaneState, exit: Exit) {
        if let Some(memory) = pane.mark_exited(exit) {
            self.charge(memory);
            self.publish_commands(pane);
            self.publish(exit_event(pane, exit));
        }
    }

    /// Handles the end of a wrapped command, all of whose output has arrived.
    pub(super) fn wrapped_command_ended(self: &Arc<Self>, pane: &Arc<PaneState>, status: i32) {
        let exit = Exit { status: Some(status), signal: None };
        if pane.mark_command_ended(exit) {
            self.publish_commands(pane);
            self.publish(exit_event(pane, exit));
        }
        (self.hooks.command_ended)(self, pane, exit);
    }

    pub(super) fn publish(&self, event: Event) {
        if let Some(shared) = self.shared() {
            // There may be no receiver.
            let _ = shared.events.send((self.socket.as_path().into(), event));
        }
    }

    /// Publishes what changed in a pane's commands.
    fn publish_commands(&self, pane: &PaneState) {
        // Taken even without a receiver: a later one must not get them.
        let changes = pane.take_command_changes().into_iter();
        let Some(shared) = self.shared().filter(|shared| shared.command_events.receiver_count() > 0) else { return };
        let socket: Arc<Path> = self.socket.as_path().into();
        for change in changes.filter_map(|(change, command)| CommandChange::of(change, command)) {
            let event = CommandEvent { socket: socket.clone(), pane: pane.id(), change };
            // The last receiver may have gone just now.
            let _ = shared.command_events.send(Arc::new(event));
        }
    }

    pub(super) fn charge(&self, memory: MemoryDelta) {
        if memory.before != memory.after
            && let Some(shared) = self.shared()
        {
            shared.charge(memory.before, memory.after);
        }
    }
}

fn exit_event(pane: &PaneState, exit: Exit) -> Event {
    Event::PaneExited { pane: pane.id(), exit_status: exit.status, exit_signal: exit.signal }
}

impl Host {
    fn identified(&self, identity: &ServerIdentity) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Some(Rules::for_version(identity.version));
        let server = identity.epoch();
        let changed = {
            let mut epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut epoch.server, server) != server
        };
        if changed {
            self.end_all();
        }
    }

    /// Returns the sink for the output of a pane.
    fn sink(self: &Arc<Self>, pane: &Arc<PaneState>, generation: u64) -> Arc<dyn OutputSink> {
        Arc::new(PaneOutput { host: Arc::downgrade(self), pane: pane.clone(), generation })
    }

    /// Does the follow-up work after output was appended to a pane.
    fn pushed(self: &Arc<Self>, pane: &Arc<PaneState>, pushed: PushOutcome) {
        self.charge(pushed.memory);
        if pushed.staleness.is_some() {
            self.resync(pane);
        } else if pushed.is_unsure {
            self.resync_unsure(pane);
        }
        if let Some(due) = pushed.string_due {
            self.give_up_string_at(pane, due);
        }
        if pushed.has_command_changes {
            self.publish_commands(pane);
        }
        if pushed.is_compressible {
            self.compress_at_rest(pane);
        }
        if let Some(status) = pushed.wrapper_exit {
            self.wrapped_command_ended(pane, status);
        }
    }

    fn sized(self: &Arc<Self>, pane: PaneId, size: Size) {
        if let Some(pane) = self.panes.get(&pane) {
            let (needs_resync, memory) = pane.resize(size);
            self.charge(memory);
            self.compress_at_rest(&pane);
            if needs_resync {
                self.resync(&pane);
            }
        }
    }

    /// Applies a pane's seed. Returns the sink for the pane's output, or `None` while the engine is
    /// shutting down.
    fn seeded(self: &Arc<Self>, id: PaneId, seed: &Seed, why: Seeding) -> Option<Arc<dyn OutputSink>> {
        let known = self.panes.get(&id).map(|pane| pane.clone());
        let generation = known.as_ref().map(|pane| pane.begin_generation());
        let pane = match (known, why) {
            (Some(pane), Seeding::First) => {
                self.charge(pane.seed_after_gap(seed, self.rules(), GapReason::Reconnected));
                self.watch_string(&pane);
                pane
            }
            (Some(pane), Seeding::Again(reason)) => {
                self.charge(pane.seed_after_gap(seed, self.rules(), reason));
                self.watch_string(&pane);
                pane
            }
            (Some(pane), Seeding::Last) => {
                self.charge(pane.seed_last(seed, self.rules()));
                pane
            }
            (None, _) => {
                let shared = self.shared()?;
                let pane = PaneState::new(id, self.epoch(), shared.options.ring_bytes);
                if let Some(row) = self.server.get().and_then(|server| server.topology().pane(id).cloned()) {
                    // The pane's screen comes with the seed.
                    let _ = pane.update_metadata(&row);
                }
                self.charge(pane.seed_first(seed, self.rules()));
                self.watch_string(&pane);
                self.panes.insert(id, pane.clone());
                (self.hooks.followed)(self, &pane);
                metrics::PANES.increment(1.0);
                // Describing a pane costs more than following it, and there is usually no
                // subscriber.
                if shared.events.receiver_count() > 0 {
                    self.publish(Event::PaneOpened { pane: Box::new(self.info_of(id)) });
                }
                pane
            }
        };
        // A seed may have marks.
        self.publish_commands(&pane);
        self.compress_at_rest(&pane);
        Some(self.sink(&pane, generation.unwrap_or_default()))
    }

    fn topology(self: &Arc<Self>, topology: &Topology) {
        self.end_lost_panes(topology);
        for row in &topology.panes {
            let Some(pane) = self.panes.get(&row.id) else { continue };
            let update = pane.update_metadata(row);
            self.charge(update.memory);
            if update.needs_resync {
                self.resync(&pane);
            }
            if update.retitled {
                self.publish(Event::Title { pane: row.id, title: row.title.clone() });
            }
        }
        // Called after every listing. Without this comparison, a subscriber that lists after each
        // change would go on forever.
        let fingerprint = topology.fingerprint();
        if self.published.swap(fingerprint, Ordering::Relaxed) != fingerprint {
            self.publish(Event::Topology { socket: self.socket.display().to_string() });
        }
    }

    fn value(self: &Arc<Self>, id: PaneId, value: Value) {
        if let Some(pane) = self.panes.get(&id) {
            if let Value::Title(title) = &value
                && pane.title() != *title
            {
                self.publish(Event::Title { pane: id, title: title.clone() });
            }
            if let Some(when) = pane.set_value(value) {
                self.resync_when(&pane, when);
            }
        }
    }

    fn moved(self: &Arc<Self>, id: PaneId, seed: &Seed, output: &[u8]) -> Option<Arc<dyn OutputSink>> {
        let pane = self.live_pane(id)?;
        let generation = pane.begin_generation();
        let pushed = pane.resume(seed, self.rules(), output)?;
        self.pushed(&pane, pushed);
        Some(self.sink(&pane, generation))
    }

    fn continued(self: &Arc<Self>, id: PaneId) -> Option<Arc<dyn OutputSink>> {
        let pane = self.live_pane(id)?;
        let generation = pane.generation();
        Some(self.sink(&pane, generation))
    }

    fn restarted(self: &Arc<Self>, id: PaneId, ran: bool) {
        let Some(pane) = self.panes.get(&id).map(|pane| pane.clone()) else { return };
        let (needs_resync, memory) = pane.restart(ran);
        self.charge(memory);
        self.publish_commands(&pane);
        if needs_resync {
            self.resync(&pane);
        }
    }

    fn exited(self: &Arc<Self>, id: PaneId, exit: Exit) {
        let Some(pane) = self.panes.get(&id).map(|pane| pane.clone()) else { return };
        self.mark_exited(&pane, exit);
        (self.hooks.process_ended)(self, &pane, exit);
    }

    fn closed(&self, id: PaneId) {
        if let Some(pane) = self.panes.get(&id).map(|pane| pane.clone()) {
            self.retire(&pane);
        }
    }

    fn link(&self, link: &LinkState) {
        let state = match link {
            LinkState::Connecting => return,
            LinkState::Connected(_) => {
                if let Some(shared) = self.shared() {
                    shared.links.send_modify(|links| *links += 1);
                }
                "connected"
            }
            LinkState::Down { ended: true, .. } => {
                self.end_all();
                "gone"
            }
            // The server ended before this engine had reached it.
            LinkState::Down { error, .. } if self.has_restored() && is_absent(error) => {
                self.end_lost_panes(&Topology::default());
                "gone"
            }
            LinkState::Down { .. } => "absent",
        };
        self.publish(Event::Server { socket: self.socket.display().to_string(), state: state.into() });
    }
}

/// Receives a pane's output. The link to the server holds this sink, and the host holds the link,
/// so the sink has no strong reference to the host.
struct PaneOutput {
    host: Weak<Host>,
    pane: Arc<PaneState>,
    generation: u64,
}

impl OutputSink for PaneOutput {
    fn output(&self, data: &[u8]) {
        if let Some(host) = self.host.upgrade()
            && let Some(pushed) = self.pane.push(self.generation, data)
        {
            host.pushed(&self.pane, pushed);
        }
    }

    fn needs_all(&self) -> bool {
        self.pane.awaits_marks()
    }
}

/// Receives the events of the server's link. The link must hold no strong reference to the host.
pub(super) struct Reports(pub(super) Weak<Host>);

impl Observer for Reports {
    fn identified(&self, identity: &ServerIdentity) {
        self.0.upgrade().inspect(|host| host.identified(identity));
    }
    fn seeded(&self, pane: PaneId, seed: Seed, why: Seeding) -> Arc<dyn OutputSink> {
        let sink = self.0.upgrade().and_then(|host| host.seeded(pane, &seed, why));
        sink.unwrap_or_else(|| Arc::new(DiscardOutput))
    }
    fn moved(&self, pane: PaneId, seed: &Seed, output: &[u8]) -> Option<Arc<dyn OutputSink>> {
        self.0.upgrade()?.moved(pane, seed, output)
    }
    fn continued(&self, pane: PaneId) -> Option<Arc<dyn OutputSink>> {
        self.0.upgrade()?.continued(pane)
    }
    fn restarted(&self, pane: PaneId, ran: bool) {
        self.0.upgrade().inspect(|host| host.restarted(pane, ran));
    }
    fn sized(&self, pane: PaneId, size: Size) {
        self.0.upgrade().inspect(|host| host.sized(pane, size));
    }
    fn unfollowed(&self, pane: PaneId) {
        if let Some(host) = self.0.upgrade()
            && let Some(pane) = host.live_pane(pane)
        {
            pane.suspend_screen();
        }
    }
    fn held(&self, pane: PaneId) {
        if let Some(host) = self.0.upgrade()
            && let Some(pane) = host.live_pane(pane)
        {
            pane.hold_screen();
        }
    }
    fn topology(&self, topology: &Topology) {
        self.0.upgrade().inspect(|host| host.topology(topology));
    }
    fn value(&self, pane: PaneId, value: Value) {
        if let Some(host) = self.0.upgrade() {
            host.value(pane, value);
        }
    }
    fn exited(&self, pane: PaneId, exit: Exit) {
        self.0.upgrade().inspect(|host| host.exited(pane, exit));
    }
    fn closed(&self, pane: PaneId) {
        self.0.upgrade().inspect(|host| host.closed(pane));
    }
    fn link(&self, link: &LinkState) {
        self.0.upgrade().inspect(|host| host.link(link));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use muxtap_core::protocol::version::Version;

    use super::*;

    use crate::{
        Engine, Options,
        pane::managed::{ExitWrapper, ManagedPane, OnExit},
    };

    /// The budget counts bytes by whatever way they enter a ring.
    #[tokio::test]
    async fn the_budget_counts_every_byte_that_is_kept() {
        let engine = Engine::new(Options::default());
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        let counted = || {
            let held: usize = host.panes().iter().map(|pane| pane.held_bytes()).sum();
            (engine.shared.held_bytes.load(Ordering::Relaxed), held)
        };
        let seed = |text: &str| Seed { text: text.into(), ..Seed::default() };
        let sink = host.seeded(PaneId(1), &seed("one\r\n"), Seeding::First).unwrap();
        assert_eq!(counted(), (5, 5));
        sink.output(b"two\r\n");
        assert_eq!(counted(), (10, 10));
        host.seeded(PaneId(1), &seed("one\r\ntwo\r\nthree\r\n"), Seeding::Again(GapReason::Paused));
        assert_eq!(counted(), (17, 17));
        host.seeded(PaneId(1), &seed("one\r\ntwo\r\nthree\r\nfour\r\n"), Seeding::Last);
        assert_eq!(counted(), (23, 23));
        // A pane that has gone accepts no more output: its memory is only subtracted from now on.
        let pane = host.live_pane(PaneId(1)).unwrap();
        host.closed(PaneId(1));
        sink.output(b"late\r\n");
        assert_eq!((counted().0, pane.held_bytes()), (23, 23));
    }

    /// Ids of panes begin anew with each server.
    #[tokio::test]
    async fn output_of_an_earlier_server_reaches_no_pane_of_the_next_one() {
        let engine = Engine::new(Options::default());
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        let server = |pid| ServerIdentity { pid, started: 1, version: Version::parse(b"3.8").unwrap() };
        let seed = Seed { text: b"one\r\n"[..].into(), ..Seed::default() };
        host.identified(&server(1));
        let earlier = host.seeded(PaneId(1), &seed, Seeding::First).unwrap();
        host.identified(&server(2));
        let sink = host.seeded(PaneId(1), &seed, Seeding::First).unwrap();
        earlier.output(b"late\r\n");
        sink.output(b"two\r\n");
        let ends = |pane: Arc<PaneState>| pane.end_offset();
        assert_eq!((ends(host.earlier_pane(PaneId(1)).unwrap()), ends(host.live_pane(PaneId(1)).unwrap())), (5, 10));
    }

    /// Output under way is part of the other connection's seed or of that connection's own output.
    #[tokio::test]
    async fn output_that_was_under_way_before_a_seed_is_dropped() {
        let engine = Engine::new(Options::default());
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        let seed = |text: &str| Seed { text: text.into(), ..Seed::default() };
        let before = host.seeded(PaneId(1), &seed("one\r\n"), Seeding::First).unwrap();
        let after = host.seeded(PaneId(1), &seed("one\r\ntwo\r\n"), Seeding::Again(GapReason::Reconnected)).unwrap();
        let seeded = host.live_pane(PaneId(1)).unwrap().end_offset();
        before.output(b"two\r\n");
        assert_eq!(host.live_pane(PaneId(1)).unwrap().end_offset(), seeded);
        after.output(b"three\r\n");
        assert_eq!(host.live_pane(PaneId(1)).unwrap().end_offset(), seeded + 7);
    }

    #[tokio::test]
    async fn what_takes_output_keeps_no_host() {
        let engine = Engine::new(Options::default());
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        let sink = host.seeded(PaneId(1), &Seed::default(), Seeding::First).unwrap();
        let observer = Reports(Arc::downgrade(&host));
        drop(host);
        assert!(observer.0.upgrade().is_none());
        sink.output(b"late");
        observer.seeded(PaneId(1), Seed::default(), Seeding::First).output(b"later");
        assert!(observer.moved(PaneId(1), &Seed::default(), b"").is_none());
    }

    /// tmux shows a pane as dead before it knows how the process ended.
    #[tokio::test]
    async fn a_pane_that_is_first_seen_dead_ends_when_its_status_is_known() {
        let engine = Engine::new(Options::default());
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        let dead = Seed { text: b"last\r\n"[..].into(), dead: true, ..Seed::default() };
        host.seeded(PaneId(1), &dead, Seeding::First);
        let pane = host.live_pane(PaneId(1)).unwrap();
        assert_eq!(pane.exit(), None);
        host.exited(PaneId(1), Exit { status: Some(3), signal: None });
        assert_eq!(pane.exit().unwrap().status, Some(3));
        // A pane that had died before is reported as ended at once.
        host.seeded(PaneId(2), &Seed { exit_status: Some(4), ..dead }, Seeding::First);
        assert_eq!(host.live_pane(PaneId(2)).unwrap().exit().unwrap().status, Some(4));
    }

    /// A command may end, and a string begin, in output of the connection to which the pane was
    /// moved.
    #[tokio::test]
    async fn what_is_handed_over_is_output_like_any_other() {
        let engine = Engine::new(Options::default());
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        let seed = |text: &str| Seed { text: text.into(), ..Seed::default() };
        host.seeded(PaneId(1), &seed("one\r\n"), Seeding::First);
        let pane = host.panes().pop().unwrap();
        pane.register_nonce("f00");
        let wrapper = Some(ExitWrapper::of("f00".into()));
        pane.set_managed(ManagedPane { on_exit: OnExit::Keep, before: None, wrapper, launch: None, shell_nonce: None });
        let output = b"two\r\n\x1b]7717;f00;x;3\x07\x1b]2;a title";
        let then = Seed { pending: b"\x1b]2;a title"[..].into(), ..seed("one\r\ntwo\r\n") };
        let pushed = pane.resume(&then, None, output).unwrap();
        assert_eq!(pushed.wrapper_exit, Some(3));
        assert!(pushed.string_due.is_some());
    }
}
