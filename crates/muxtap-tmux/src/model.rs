//! The model of a server, and the actions that follow from it.
//!
//! [`Model::follow`] compares what tmux lists with what is covered and returns [`Action`]s; it
//! performs none of them, so that it can run under a lock and be tested without a server.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use muxtap_api::{Error, Size};
use muxtap_base::{clock::jittered, metrics};
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::{PaneId, SessionId, WindowId},
    layout::Layout,
};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Connection, Lost},
    flood::Floods,
    followed::{Carriers, EndWatch, FollowedPane, PaneAction, SeedAttempts},
    launch::StartServer,
    link::{FIRST_PAUSE, LONGEST_PAUSE, ServerIdentity},
    pauses::Pauses,
    rest::RestState,
    topology::{PaneRow, SessionRow, Topology},
    values::{self, Reads},
};

/// A guest that is thrown out sooner than this after its attach waits at least this long before it
/// returns.
const SHORT_STAY: Duration = Duration::from_secs(1);
/// Windows that one line subscribes to: tmux runs a line as a whole, and other clients wait
/// meanwhile.
const SUBSCRIBED_AT_ONCE: usize = 64;

/// A control client and what it covers.
pub struct Covering {
    pub(super) connection: Option<Connection>,
    /// The session it is attached to.
    pub(super) session: Option<SessionId>,
    /// Resolved when it is attached, or when the attach is known to have failed.
    pub(super) ready: Option<oneshot::Sender<Result<(), Error>>>,
    /// Counts the client as attached, once it is.
    pub(super) attached: Option<metrics::AttachedClient>,
    /// The hub's own window, if its session is this muxtap's hub.
    pub(super) hub: Option<WindowId>,
    /// Whether it comes through a door (`door.rs`): the session in which it is first seen is not
    /// its own.
    pub(super) by_door: bool,
    /// Whether it only visits sessions and carries no output.
    pub(super) visitor: bool,
    /// Whether it is leaving.
    pub(super) let_go: bool,
    since: Instant,
}

impl Covering {
    pub(super) fn new(session: Option<SessionId>, ready: oneshot::Sender<Result<(), Error>>) -> Self {
        Self {
            connection: None,
            session,
            ready: Some(ready),
            attached: None,
            hub: None,
            by_door: false,
            visitor: false,
            let_go: false,
            since: Instant::now(),
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        self.attached.is_some() && !self.visitor && self.connection.as_ref().is_some_and(Connection::is_open)
    }
}

/// The state of reading the model.
#[derive(Default)]
pub struct Refresh {
    pub(super) running: bool,
    /// The connection that the query was sent on.
    pub(super) by: Option<Connection>,
    pub(super) again: bool,
    /// Served by the run in progress.
    pub(super) now: Vec<oneshot::Sender<Result<Arc<Topology>, Lost>>>,
    /// Served by the run after it.
    pub(super) next: Vec<oneshot::Sender<Result<Arc<Topology>, Lost>>>,
}

/// The model of a server: its clients, sessions, windows and panes.
#[derive(Default)]
pub struct Model {
    pub(super) topology: Arc<Topology>,
    pub(super) covering: BTreeMap<u64, Covering>,
    pub(super) next_connection: u64,
    /// Callers that want a server to be started; if none runs, it is started for the first of them.
    pub(super) starts: Vec<Arc<StartServer>>,
    pub(super) refresh: Refresh,
    pub(super) identity: Option<ServerIdentity>,
    /// The treatment of panes that flood: the configured one, if the server's version needs it.
    pub(super) floods: Floods,
    /// What is in use, and whether the server is at rest while nothing is.
    pub(super) rest: RestState,
    /// The place at which a user's session last linked each window.
    homes: HashMap<WindowId, (SessionId, u32)>,
    /// Whether the tmux program is not too old.
    pub(super) program_checked: bool,
    /// Whether the server behind the present connections is known to be `identity`. Before that no
    /// pane is followed, since it would be dropped again if the server were a different one.
    pub(super) greeted: bool,
    pub(super) panes: BTreeMap<PaneId, FollowedPane>,
    /// Windows of whose panes tmux pushes values, and the connection on which it does.
    pub(super) subscribed: BTreeMap<WindowId, u64>,
    /// The connection on which each window's values can be pushed.
    window_carriers: BTreeMap<WindowId, u64>,
    /// Panes with a use of facts that only tmux knows.
    used: HashSet<PaneId>,
    /// Sessions to which a guest is about to attach, and the number of the attempt.
    attaching: HashMap<SessionId, u64>,
    attaches: u64,
    /// The error of the last attempt to attach a guest; `None` if it succeeded.
    pub(super) attach_error: Option<Error>,
    /// Numbers the reads of panes' content.
    pub(super) attempts: SeedAttempts,
    /// Connections that served at the last complete listing.
    pub(super) served: HashSet<u64>,
    /// Pauses that muxtap requested.
    pub(super) pauses: Pauses,
    /// Sessions whose guest could not attach or was thrown out at once, and the wait before the
    /// next one.
    put_off: HashMap<SessionId, Duration>,
    /// Whether users' sessions were seen: when the last one goes, the hub goes too.
    populated: bool,
}

/// An action that is carried out once the model's lock is released.
pub enum Action {
    /// An action for a pane.
    Pane(PaneId, PaneAction),
    /// Attach a guest after a pause; the number of the attempt.
    Attach(SessionId, u64, Duration),
    /// Send a command whose reply does not matter.
    Send(Connection, CommandLine),
    /// Let a guest leave: without it its session would have ended.
    Leave(Connection),
    /// Watch the process of a pane.
    Watch(PaneId, u32, CancellationToken),
    /// Check a pane whose process seems to have ended.
    CheckEnd(PaneId),
    /// Report a pane's end.
    Gone(PaneId),
}

impl Model {
    /// Returns the connection that has served longest, preferably one that is not silent.
    pub(super) fn any(&self) -> Option<Connection> {
        let serving = self.covering.values().filter(|covering| covering.is_serving());
        let serving = serving.filter_map(|covering| covering.connection.as_ref());
        serving.min_by_key(|connection| (connection.is_silent(), connection.id())).cloned()
    }

    /// Returns the connection that carries the pane's output.
    pub(super) fn owner(&self, pane: PaneId) -> Option<Connection> {
        let owner = self.panes.get(&pane)?.owner()?;
        self.covering.get(&owner).filter(|covering| covering.is_serving())?.connection.clone()
    }

    /// Returns the panes of a window whose sizes a new layout changes, if this connection carries
    /// them.
    pub(super) fn resized(&self, connection: u64, window: WindowId, layout: &[u8]) -> Vec<(PaneId, Size)> {
        let Ok(layout) = Layout::parse(layout) else { return Vec::new() };
        let known = self.topology.windows.iter().find(|row| row.id == window);
        let before = known.and_then(|row| Layout::parse(row.layout.as_bytes()).ok());
        let carried = |pane: PaneId| self.panes.get(&pane).is_some_and(|followed| followed.owner() == Some(connection));
        layout
            .leaves()
            .filter(|(pane, _)| carried(*pane))
            .filter_map(|(pane, cell)| {
                let row = self.topology.pane(pane)?;
                // A border that shows a status takes a line of the cell (`pane-border-status`).
                let cell_before = before.as_ref().and_then(|before| before.leaves().find(|(known, _)| *known == pane));
                let border =
                    cell_before.map_or(0, |(_, before)| before.h.saturating_sub(row.size.height.into()).min(1));
                let size = Size {
                    width: u16::try_from(cell.w).ok()?,
                    height: u16::try_from(cell.h.saturating_sub(border)).ok()?,
                };
                Some((pane, size))
            })
            .collect()
    }

    /// Records a server that was reached. Drops all that is known of a different server.
    pub(super) fn recognize(&mut self, identity: &ServerIdentity) {
        let same = self.identity.as_ref().is_some_and(|known| known.epoch() == identity.epoch());
        self.identity = Some(identity.clone());
        if !same {
            self.forget_panes();
        }
    }

    /// Drops all that is known of panes.
    pub(super) fn forget_panes(&mut self) {
        for followed in self.panes.values() {
            followed.watch.cancel();
        }
        self.panes.clear();
        self.subscribed.clear();
        self.window_carriers.clear();
        self.used.clear();
        self.rest.wanted.clear();
        self.rest.sessions.clear();
        self.rest.visited = false;
        self.homes.clear();
        self.pauses.clear();
        self.attaching.clear();
        self.put_off.clear();
        self.populated = false;
        self.topology = Arc::default();
    }

    /// Forgets a connection that has gone. Returns the resulting actions for the panes whose output
    /// it carried.
    pub(super) fn drop_connection(&mut self, id: u64, why: Error) -> Vec<Action> {
        let Some(covering) = self.covering.remove(&id) else { return Vec::new() };
        let mut actions = Vec::new();
        for (pane, followed) in &mut self.panes {
            actions.extend(followed.lost(id).into_iter().map(|step| Action::Pane(*pane, step)));
        }
        self.subscribed.retain(|_, connection| *connection != id);
        self.pauses.forget(id);
        if self.refresh.by.as_ref().is_some_and(|by| by.id() == id) {
            // An observer that panicked during the listing has ended the listing without a report.
            (self.refresh.running, self.refresh.by) = (false, None);
        }
        if let Some(ready) = covering.ready {
            let _ = ready.send(Err(why));
        }
        let stayed = covering.attached.is_some().then(|| covering.since.elapsed());
        if stayed.is_some() {
            self.greeted &= self.covering.values().any(Covering::is_serving);
        }
        // A client that was leaving anyway was not thrown out.
        let Some(session) = covering.session.filter(|_| !covering.let_go) else { return actions };
        match stayed {
            None => self.put_off(session, FIRST_PAUSE),
            Some(stay) if stay < SHORT_STAY => self.put_off(session, SHORT_STAY),
            Some(_) => drop(self.put_off.remove(&session)),
        }
        actions
    }

    /// Makes the next guest of a session wait: longer each time, and at least `least`.
    pub(super) fn put_off(&mut self, session: SessionId, least: Duration) {
        let pause = self.put_off.entry(session).or_default();
        *pause = (*pause * 2).min(LONGEST_PAUSE).max(least);
    }

    /// Compares what tmux lists with what is covered.
    pub(super) fn follow(&mut self, local: bool, reads: Reads, rests: bool) -> Vec<Action> {
        let topology = self.topology.clone();
        let mut actions = Vec::new();
        let hub = self.covering.iter().find(|(_, covering)| covering.hub.is_some() && covering.is_serving());
        let hub =
            hub.and_then(|(id, covering)| Some((*id, covering.connection.clone()?, covering.session?, covering.hub?)));
        match hub {
            Some((_, connection, session, own)) => self.follow_with_hub(&connection, session, own, &mut actions),
            None if rests => {
                let used = self.used_sessions();
                self.follow_as_guest(Some(&used), &mut actions);
            }
            None => self.follow_as_guest(None, &mut actions),
        }
        let hub = hub_owner(&self.covering);
        self.follow_panes(&topology, hub, local, rests, &mut actions);
        self.follow_values(reads, &mut actions);
        actions
    }

    /// Returns the sessions that should have a guest: for each pane in use one that shows it,
    /// preferably one with a guest, and those whose used panes have closed since.
    fn used_sessions(&mut self) -> HashSet<SessionId> {
        let users = |session: &SessionId| self.topology.session(*session).is_some_and(|row| !row.hub);
        if self.rest.wants_all > 0 {
            return self.topology.sessions.iter().map(|row| row.id).filter(users).collect();
        }
        let links = self.topology.links();
        let has_guest: HashSet<_> = self.covering.values().filter_map(|covering| covering.session).collect();
        self.rest.sessions.retain(|session, _| self.topology.session(*session).is_some());
        let mut used = HashSet::new();
        for (row, at) in self.topology.panes.iter().filter_map(|row| Some((row, *self.rest.wanted.get(&row.id)?))) {
            let mut sessions: Vec<_> =
                links.get(&row.window).into_iter().flatten().copied().filter(|session| users(session)).collect();
            sessions.sort_by_key(|session| (!used.contains(session), !has_guest.contains(session), *session));
            if let Some(session) = sessions.first() {
                used.insert(*session);
                let last = self.rest.sessions.entry(*session).or_insert(at);
                *last = at.max(*last);
            }
        }
        used.extend(self.rest.sessions.keys());
        used
    }

    /// Returns whether every session that shows a pane is about to end, since only clients of
    /// muxtap's are attached to it.
    pub(super) fn ends_with_its_session(&self, pane: PaneId) -> bool {
        let Some(window) = self.topology.pane(pane).map(|row| row.window) else { return false };
        let over = self.ending_sessions();
        let mut places = self.topology.windows.iter().filter(|row| row.id == window);
        !over.is_empty() && places.all(|row| over.contains(&row.session))
    }

    /// Returns the sessions that end with their last client and have only clients of muxtap's; all
    /// sessions of a server that ends with its last client.
    fn ending_sessions(&self) -> HashSet<SessionId> {
        let ours: HashSet<_> =
            self.covering.values().filter_map(|covering| Some(covering.connection.as_ref()?.name())).collect();
        let others = |session: &SessionRow| session.clients.iter().any(|client| !ours.contains(client.as_str()));
        // `exit-unattached`: the last client was not muxtap's.
        let is_over = self.rest.visited && self.topology.exits_unattached && !self.topology.sessions.iter().any(others);
        let over = self.topology.sessions.iter().filter(|row| {
            let ends = is_over || row.transient && !others(row);
            ends && !row.hub
        });
        over.map(|row| row.id).collect()
    }

    /// Returns whether a user's client is attached.
    fn is_visited(&self) -> bool {
        let ours: HashSet<_> =
            self.covering.values().filter_map(|covering| Some(covering.connection.as_ref()?.name())).collect();
        let mut clients = self.topology.sessions.iter().flat_map(|row| &row.clients);
        clients.any(|client| !ours.contains(client.as_str()))
    }

    /// Gives every session a guest, or only those in `used`, while the session would exist without
    /// one.
    fn follow_as_guest(&mut self, used: Option<&HashSet<SessionId>>, actions: &mut Vec<Action>) {
        self.put_off.retain(|session, _| self.topology.session(*session).is_some());
        let over = self.ending_sessions();
        self.rest.visited |= self.is_visited();
        let goes = |covering: &&mut Covering| {
            let unused = |id| used.is_some_and(|used| !used.contains(&id));
            covering.session.is_some_and(|id| over.contains(&id) || unused(id))
        };
        for covering in self.covering.values_mut().filter(goes) {
            if !std::mem::replace(&mut covering.let_go, true) {
                actions.extend(covering.connection.clone().map(Action::Leave));
            }
        }
        let covered: HashSet<_> = self.covering.values().filter_map(|covering| covering.session).collect();
        let wanted = |session: &&SessionRow| {
            !session.hub
                && !covered.contains(&session.id)
                && !over.contains(&session.id)
                && used.is_none_or(|used| used.contains(&session.id))
        };
        // By activity, so that the default session usually stays the default (F35). Activity is in
        // seconds: ties go by id.
        let mut wanted: Vec<_> = self.topology.sessions.iter().filter(wanted).collect();
        wanted.sort_by_key(|session| (session.activity, session.id));
        for session in wanted {
            if !self.attaching.contains_key(&session.id) {
                self.attaches += 1;
                self.attaching.insert(session.id, self.attaches);
                let pause = self.put_off.get(&session.id).copied().unwrap_or_default();
                actions.push(Action::Attach(session.id, self.attaches, jittered(pause)));
            }
        }
    }

    /// Links every window into the hub. Closes windows that only hubs hold (F5), and the hub itself
    /// when nothing else is left.
    fn follow_with_hub(&mut self, connection: &Connection, hub: SessionId, own: WindowId, actions: &mut Vec<Action>) {
        let hubs = self.topology.hubs();
        let target = format!("{hub}:");
        let mut links: Vec<_> = self.topology.links().into_iter().collect();
        links.sort_by_key(|(window, _)| *window);
        for (window, sessions) in links {
            let window_name = window.to_string();
            if sessions.iter().all(|session| hubs.contains(session)) {
                if window != own && sessions.contains(&hub) {
                    // Without the hub tmux would have refused to unlink the window's only place.
                    let home = self.homes.get(&window).filter(|home| self.is_free(**home));
                    let command = match home {
                        Some((home, index)) => {
                            let link = Command::new("link-window").flag("-d").opt("-s", &window_name);
                            link.opt("-t", format!("{home}:{index}"))
                        }
                        None => Command::new("kill-window").opt("-t", &window_name),
                    };
                    actions.push(Action::Send(connection.clone(), CommandLine::of([command])));
                }
            } else if !sessions.contains(&hub) {
                let link = Command::new("link-window").flag("-d").opt("-s", &window_name).opt("-t", &target);
                actions.push(Action::Send(connection.clone(), CommandLine::of([link])));
            }
        }
        let placed = self.topology.windows.iter().filter(|row| !hubs.contains(&row.session));
        let placed: Vec<_> = placed.map(|row| (row.id, (row.session, row.index))).collect();
        // A window that is being linked back keeps its place until it is linked.
        self.homes.retain(|window, _| self.topology.windows.iter().any(|row| row.id == *window));
        self.homes.extend(placed);
        let users = self.topology.sessions.iter().any(|session| !session.hub);
        if self.populated && !users {
            let kill = Command::new("kill-session").opt("-t", hub.to_string());
            actions.push(Action::Send(connection.clone(), CommandLine::of([kill])));
        }
        self.populated |= users;
    }

    /// Returns whether a session exists and has no window at this index. If it has another window
    /// at the index, that one replaced the window before (`-k`).
    fn is_free(&self, (session, index): (SessionId, u32)) -> bool {
        let mut there = self.topology.windows.iter().filter(|row| row.session == session);
        self.topology.session(session).is_some() && !there.any(|row| row.index == index)
    }

    fn follow_panes(
        &mut self,
        topology: &Topology,
        hub: Option<u64>,
        local: bool,
        rests: bool,
        actions: &mut Vec<Action>,
    ) {
        let hubs = topology.hubs();
        let links = topology.links();
        let carriers: HashMap<SessionId, u64> = self
            .covering
            .iter()
            // Until the server is identified, this connection may belong to a different one.
            .filter(|(_, covering)| covering.is_serving() && self.greeted)
            .filter_map(|(id, covering)| Some((covering.session?, *id)))
            .collect();
        let serving: HashSet<u64> = carriers.values().copied().chain(hub).collect();
        let mut listed = HashSet::new();
        self.window_carriers.clear();
        for row in &topology.panes {
            let sessions = links.get(&row.window).map_or(&[][..], Vec::as_slice);
            // A window that is being linked back has not gone.
            let comes_home = self.homes.get(&row.window).is_some_and(|home| self.is_free(*home));
            if sessions.iter().all(|session| hubs.contains(session)) && !comes_home {
                continue;
            }
            listed.insert(row.id);
            let mut by: Vec<u64> = sessions.iter().filter_map(|session| carriers.get(session)).copied().collect();
            by.extend(hub.filter(|hub| !by.contains(hub)));
            let candidate = hub.or_else(|| by.iter().min().copied());
            let subscribed = self.subscribed.get(&row.window).copied().filter(|id| by.contains(id));
            if let Some(by) = subscribed.or(candidate) {
                self.window_carriers.insert(row.window, by);
            }
            let is_followed =
                !by.is_empty() || self.panes.contains_key(&row.id) || self.rest.wanted.contains_key(&row.id);
            if rests && !is_followed {
                continue;
            }
            let stood = |id: u64| serving.contains(&id) && self.served.contains(&id);
            let followed = self.panes.entry(row.id).or_default();
            let carried = Carriers { by, candidate, stood: &stood };
            follow_pane(row, followed, carried, &mut self.attempts, local, actions);
        }
        self.served = serving;
        self.used.retain(|pane| listed.contains(pane));
        for (pane, followed) in &mut self.panes {
            if !listed.contains(pane) && !std::mem::replace(&mut followed.leaving, true) {
                actions.push(Action::Gone(*pane));
            }
        }
    }

    /// Subscribes to the values of exactly the windows of which only tmux reports them, each on its
    /// connection.
    fn follow_values(&mut self, reads: Reads, actions: &mut Vec<Action>) {
        let told = |row: &&PaneRow| reads == Reads::All || self.only_tmux_tells(row);
        let windows: HashSet<WindowId> = self.topology.panes.iter().filter(told).map(|row| row.window).collect();
        let wanted = self.window_carriers.iter().filter(|(window, _)| windows.contains(window));
        let wanted = wanted.map(|(window, by)| (*window, *by)).collect();
        for (by, commands) in resubscribe(&mut self.subscribed, &wanted, reads) {
            let connection = self.covering.get(&by).and_then(|covering| covering.connection.clone());
            let Some(connection) = connection else { continue };
            let lines = commands.chunks(SUBSCRIBED_AT_ONCE).map(|commands| CommandLine::of(commands.iter().cloned()));
            actions.extend(lines.map(|line| Action::Send(connection.clone(), line)));
        }
    }

    /// Returns whether something of this pane matters now that only tmux can report: its title and
    /// place while they are used, an end that it has not noticed yet, or a program started in a
    /// dead pane.
    fn only_tmux_tells(&self, row: &PaneRow) -> bool {
        row.dead
            || self.used.contains(&row.id)
            || self.panes.get(&row.id).is_some_and(|pane| pane.end_watch == EndWatch::Tmux)
    }

    /// Records a use of the facts of a pane that only tmux knows.
    pub(super) fn use_values(&mut self, pane: PaneId, reads: Reads) -> Vec<Action> {
        let mut actions = Vec::new();
        self.used.insert(pane);
        // A loop over all windows would be slow: a subscription may begin to use a thousand panes.
        if let Some(window) = self.topology.pane(pane).map(|row| row.window)
            && !self.subscribed.contains_key(&window)
            && let Some(by) = self.window_carriers.get(&window)
            && let Some(connection) = self.covering.get(by).and_then(|covering| covering.connection.clone())
        {
            self.subscribed.insert(window, *by);
            actions.push(Action::Send(connection, CommandLine::of([values::subscribe(window, reads)])));
        }
        actions
    }

    /// Records that the last such use has ended.
    pub(super) fn leave_values(&mut self, pane: PaneId, reads: Reads) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.used.remove(&pane) {
            self.follow_values(reads, &mut actions);
        }
        actions
    }

    /// Records that only tmux can report the end of a pane's process.
    pub(super) fn leave_end_to_tmux(&mut self, pane: PaneId, reads: Reads) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(followed) = self.panes.get_mut(&pane).filter(|followed| !followed.has_ended()) {
            followed.end_watch = EndWatch::Tmux;
            self.follow_values(reads, &mut actions);
        }
        actions
    }

    /// Returns whether this attempt to attach is still valid: the server is the one on which the
    /// session was seen.
    pub(super) fn is_attaching(&self, session: SessionId, attempt: u64) -> bool {
        self.attaching.get(&session) == Some(&attempt)
    }

    /// Records that an attempt to attach is over.
    pub(super) fn attached(&mut self, session: SessionId, attempt: u64) {
        if self.is_attaching(session, attempt) {
            self.attaching.remove(&session);
        }
    }

    /// Returns the client that has this session, or is about to.
    pub(super) fn guest_of(&self, session: SessionId) -> Option<&Covering> {
        self.covering.values().find(|covering| covering.session == Some(session) && !covering.visitor)
    }

    /// Returns whether tmux pushes the window's values on this connection.
    pub(super) fn is_subscribed(&self, window: WindowId, connection: u64) -> bool {
        self.subscribed.get(&window) == Some(&connection)
    }
}

/// Updates a pane's state from tmux's listing of it.
fn follow_pane(
    row: &PaneRow,
    followed: &mut FollowedPane,
    carried: Carriers<'_>,
    attempts: &mut SeedAttempts,
    local: bool,
    actions: &mut Vec<Action>,
) {
    followed.leaving = false;
    let mut steps = followed.listed(carried, attempts);
    if row.dead {
        if followed.is_known() && !followed.has_ended() {
            actions.push(Action::CheckEnd(row.id));
        }
    } else if followed.shows(row.pid) {
        // A new pane, or one whose program was started anew (`respawn-pane`).
        followed.watch.cancel();
        followed.watch = CancellationToken::new();
        if local {
            actions.push(Action::Watch(row.id, row.pid, followed.watch.clone()));
        }
        steps.extend(followed.restarted(false, attempts));
    }
    actions.extend(steps.into_iter().map(|step| Action::Pane(row.id, step)));
}

/// Returns the commands for each connection that subscribe to exactly these windows.
fn resubscribe(
    subscribed: &mut BTreeMap<WindowId, u64>,
    wanted: &BTreeMap<WindowId, u64>,
    reads: Reads,
) -> BTreeMap<u64, Vec<Command>> {
    let mut commands: BTreeMap<u64, Vec<Command>> = BTreeMap::new();
    subscribed.retain(|window, by| {
        let stays = wanted.get(window) == Some(by);
        if !stays {
            commands.entry(*by).or_default().push(values::unsubscribe(*window));
        }
        stays
    });
    for (window, by) in wanted {
        if subscribed.insert(*window, *by).is_none() {
            commands.entry(*by).or_default().push(values::subscribe(*window, reads));
        }
    }
    commands
}

fn hub_owner(covering: &BTreeMap<u64, Covering>) -> Option<u64> {
    covering.iter().find(|(_, covering)| covering.hub.is_some() && covering.is_serving()).map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::SessionRow;

    const SESSION: SessionId = SessionId(0);

    fn model() -> Model {
        let session = SessionRow {
            id: SESSION,
            name: "main".into(),
            created: 0,
            activity: 0,
            attached: 0,
            clients: Vec::new(),
            transient: false,
            hub: false,
            labels: muxtap_api::Labels::default(),
        };
        let topology = Topology { sessions: vec![session], ..Topology::default() };
        Model { topology: Arc::new(topology), ..Model::default() }
    }

    /// Returns the wait before the next guest.
    fn pause(model: &mut Model) -> Duration {
        let actions = model.follow(false, Reads::All, false);
        model.attaching.clear();
        match actions.as_slice() {
            [Action::Attach(SESSION, _, pause)] => *pause,
            _ => panic!("the session needs a guest"),
        }
    }

    fn guest(model: &mut Model, stay: Option<Duration>) {
        let mut covering = Covering::new(Some(SESSION), oneshot::channel().0);
        if let Some(stay) = stay {
            covering.attached = Some(metrics::AttachedClient::count());
            covering.since = Instant::now().checked_sub(stay).unwrap();
        }
        model.covering.insert(7, covering);
        model.drop_connection(7, Error::unavailable("it left"));
    }

    #[test]
    fn each_window_is_subscribed_to_on_one_connection() {
        let asked = |commands: &BTreeMap<u64, Vec<Command>>| -> Vec<(u64, String)> {
            let lines = commands.iter().flat_map(|(by, commands)| commands.iter().map(|command| (*by, command)));
            let text = |command: &Command| String::from_utf8(command.clone().line().unwrap()).unwrap();
            lines.map(|(by, command)| (by, text(command).split(':').next().unwrap().trim().to_owned())).collect()
        };
        let subscribe = |by, window| (by, format!("refresh-clien -B \"muxtap-@{window}"));
        let unsubscribe = |by, window| (by, format!("refresh-clien -B muxtap-@{window}"));
        let mut subscribed = BTreeMap::new();
        let mut wanted = BTreeMap::from([(WindowId(1), 7), (WindowId(2), 7), (WindowId(3), 8)]);
        let first = resubscribe(&mut subscribed, &wanted, Reads::All);
        assert_eq!(asked(&first), [subscribe(7, 1), subscribe(7, 2), subscribe(8, 3)]);
        assert!(resubscribe(&mut subscribed, &wanted, Reads::All).is_empty(), "once");
        wanted.remove(&WindowId(1));
        wanted.insert(WindowId(2), 8);
        let moved = resubscribe(&mut subscribed, &wanted, Reads::All);
        assert_eq!(asked(&moved), [unsubscribe(7, 1), unsubscribe(7, 2), subscribe(8, 2)]);
        assert_eq!(subscribed, BTreeMap::from([(WindowId(2), 8), (WindowId(3), 8)]));
    }

    #[test]
    fn a_guest_that_cannot_attach_is_tried_again_with_longer_and_longer_pauses() {
        let mut model = model();
        assert_eq!(pause(&mut model), Duration::ZERO);
        let mut least = FIRST_PAUSE / 2;
        for _ in 0..20 {
            guest(&mut model, None);
            let pause = pause(&mut model);
            assert!(least <= pause && pause <= LONGEST_PAUSE, "{pause:?}");
            least = (least * 2).min(LONGEST_PAUSE / 2);
        }
        guest(&mut model, Some(Duration::from_secs(2)));
        assert_eq!(pause(&mut model), Duration::ZERO, "one that stayed comes back at once");
        guest(&mut model, Some(Duration::ZERO));
        assert!(pause(&mut model) >= SHORT_STAY / 2, "one that was thrown out at once does not");
        model.topology = Arc::default();
        assert!(model.follow(false, Reads::All, false).is_empty());
        assert!(model.put_off.is_empty(), "a session that has gone is forgotten");
    }
}
