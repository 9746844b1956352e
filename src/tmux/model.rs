//! What is known of a server, and what follows from it.
//!
//! [`Model::follow`] compares what tmux lists with what is covered and answers with [`Action`]s; it does nothing by itself, so that
//! it can run under a lock and be tested without a server.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    Seeding,
    connection::Connection,
    launch::StartServer,
    server::ServerIdentity,
    topology::{PaneRow, Topology},
};
use crate::{
    api::GapReason,
    protocol::{
        command::{Command, CommandLine},
        ids::{PaneId, SessionId, WindowId},
    },
};

/// A guest that is thrown out sooner than this after it attached waits as long before it comes back.
const SHORT_STAY: Duration = Duration::from_secs(1);

/// What a control client covers.
pub struct Covering {
    pub(super) connection: Option<Connection>,
    /// The session it is attached to.
    pub(super) session: Option<SessionId>,
    /// Resolved when it is attached.
    pub(super) ready: Option<oneshot::Sender<Result<(), String>>>,
    /// Its session is this muxtap's hub, and this is the hub's own window.
    pub(super) hub: Option<WindowId>,
    /// It only visits sessions and carries no output.
    pub(super) visitor: bool,
    since: Instant,
}

impl Covering {
    pub(super) fn new(session: Option<SessionId>, ready: oneshot::Sender<Result<(), String>>) -> Self {
        Self { connection: None, session, ready: Some(ready), hub: None, visitor: false, since: Instant::now() }
    }

    pub(super) fn is_serving(&self) -> bool {
        self.ready.is_none() && !self.visitor && self.connection.as_ref().is_some_and(Connection::is_open)
    }
}

/// What is known of a pane that is followed.
// Reasons: each is a fact of its own; as one state they would be twelve.
#[allow(clippy::struct_excessive_bools)]
pub struct Followed {
    /// The connection its output is taken from.
    pub(super) owner: Option<u64>,
    /// Its output is passed on.
    pub(super) seeded: bool,
    /// It had been seeded before.
    pub(super) known: bool,
    /// Which of its seedings is under way; the answer to an older one is void.
    pub(super) seeding: u64,
    /// Output came while its seed was awaited.
    pub(super) noisy: bool,
    /// Output that came after its seed was taken but ahead of the seed.
    pub(super) early: Option<Vec<u8>>,
    /// The process whose end is watched.
    pub(super) pid: u32,
    /// Ends the watch.
    pub(super) watch: CancellationToken,
    /// Its end was told.
    pub(super) exited: bool,
    /// It is no longer listed and its end is about to be told.
    leaving: bool,
    /// Resolved when it is seeded, dropped when it ends.
    pub(super) waiters: Vec<oneshot::Sender<()>>,
}

/// The state of reading the model.
#[derive(Default)]
pub struct Refresh {
    pub(super) running: bool,
    pub(super) again: bool,
    /// Served by the run that is under way.
    pub(super) now: Vec<oneshot::Sender<Arc<Topology>>>,
    /// Served by the run after it.
    pub(super) next: Vec<oneshot::Sender<Arc<Topology>>>,
}

/// What is known of a server.
#[derive(Default)]
pub struct Model {
    pub(super) topology: Arc<Topology>,
    pub(super) covering: HashMap<u64, Covering>,
    pub(super) next_connection: u64,
    /// Callers for the first of whom a server is to be started if none runs.
    pub(super) starts: Vec<Arc<StartServer>>,
    pub(super) refresh: Refresh,
    pub(super) identity: Option<ServerIdentity>,
    /// The tmux program is not too old.
    pub(super) program_checked: bool,
    /// The server behind the present connections is known to be `identity`; before that nothing is followed, since it would be dropped
    /// again if it were another server.
    pub(super) greeted: bool,
    pub(super) panes: HashMap<PaneId, Followed>,
    /// Sessions to which a guest is about to attach.
    pub(super) attaching: HashSet<SessionId>,
    /// Panes that are about to be paused by a command of ours that also ends the pause.
    pub(super) expected_pauses: HashSet<PaneId>,
    /// Sessions whose guest was thrown out at once.
    short_stays: HashSet<SessionId>,
    /// Users' sessions were seen: when the last one goes, the hub goes too.
    populated: bool,
}

/// What is to be done once the model's lock is released.
pub enum Action {
    /// Read the pane's content.
    Seed(PaneId, Seeding),
    /// Attach a guest after a pause.
    Attach(SessionId, Duration),
    /// Send a command whose reply does not matter.
    Send(Connection, CommandLine),
    /// Watch the process of a pane.
    Watch(PaneId, u32, CancellationToken),
    /// Look at a pane whose process seems to have ended.
    Look(PaneId),
    /// Tell a pane's end.
    Gone(PaneId),
}

impl Model {
    /// The connection that has served longest.
    pub(super) fn any(&self) -> Option<Connection> {
        let serving = self.covering.iter().filter(|(_, covering)| covering.is_serving());
        serving.min_by_key(|(id, _)| **id).and_then(|(_, covering)| covering.connection.clone())
    }

    /// The connection that carries the pane's output.
    pub(super) fn owner(&self, pane: PaneId) -> Option<Connection> {
        let owner = self.panes.get(&pane)?.owner?;
        self.covering.get(&owner).filter(|covering| covering.is_serving())?.connection.clone()
    }

    /// Drops all that was known of panes.
    pub(super) fn forget_panes(&mut self) {
        for followed in self.panes.values() {
            followed.watch.cancel();
        }
        self.panes.clear();
        self.expected_pauses.clear();
        self.attaching.clear();
        self.short_stays.clear();
        self.populated = false;
        self.topology = Arc::default();
    }

    /// A connection has gone. Answers whether it had been serving.
    pub(super) fn drop_connection(&mut self, id: u64, why: &str) -> bool {
        let Some(covering) = self.covering.remove(&id) else { return false };
        for followed in self.panes.values_mut().filter(|followed| followed.owner == Some(id)) {
            followed.owner = None;
            followed.seeded = false;
        }
        // Whoever asked for a pause over it will not be answered.
        self.expected_pauses.clear();
        if let Some(ready) = covering.ready {
            let _ = ready.send(Err(if why.is_empty() { "it left at once".into() } else { why.into() }));
            return false;
        }
        self.greeted &= self.covering.values().any(Covering::is_serving);
        if let Some(session) = covering.session.filter(|_| covering.since.elapsed() < SHORT_STAY) {
            self.short_stays.insert(session);
        }
        true
    }

    /// Compares what tmux lists with what is covered.
    pub(super) fn follow(&mut self, local: bool) -> Vec<Action> {
        let topology = self.topology.clone();
        let mut actions = Vec::new();
        let hub = self.covering.iter().find(|(_, covering)| covering.hub.is_some() && covering.is_serving());
        let hub =
            hub.and_then(|(id, covering)| Some((*id, covering.connection.clone()?, covering.session?, covering.hub?)));
        match hub {
            Some((_, connection, session, own)) => self.follow_with_hub(&connection, session, own, &mut actions),
            None => self.follow_as_guest(&mut actions),
        }
        let hub = hub_owner(&self.covering);
        self.follow_panes(&topology, hub, local, &mut actions);
        actions
    }

    /// Every session has a guest.
    fn follow_as_guest(&mut self, actions: &mut Vec<Action>) {
        let covered: HashSet<_> = self.covering.values().filter_map(|covering| covering.session).collect();
        for session in self.topology.sessions.iter().filter(|session| !session.hub && !covered.contains(&session.id)) {
            if self.attaching.insert(session.id) {
                let pause = if self.short_stays.remove(&session.id) { SHORT_STAY } else { Duration::ZERO };
                actions.push(Action::Attach(session.id, pause));
            }
        }
    }

    /// Every window is linked into the hub; what only hubs hold is closed (F5), the hub itself too when nothing else is left.
    fn follow_with_hub(&mut self, connection: &Connection, hub: SessionId, own: WindowId, actions: &mut Vec<Action>) {
        let hubs = self.topology.hubs();
        let target = format!("{hub}:");
        let mut links: Vec<_> = self.topology.links().into_iter().collect();
        links.sort_by_key(|(window, _)| *window);
        for (window, sessions) in links {
            let window_name = window.to_string();
            if sessions.iter().all(|session| hubs.contains(session)) {
                if window != own && sessions.contains(&hub) {
                    let kill = Command::new("kill-window").opt("-t", &window_name);
                    actions.push(Action::Send(connection.clone(), CommandLine::of([kill])));
                }
            } else if !sessions.contains(&hub) {
                let link = Command::new("link-window").flag("-d").opt("-s", &window_name).opt("-t", &target);
                actions.push(Action::Send(connection.clone(), CommandLine::of([link])));
            }
        }
        let users = self.topology.sessions.iter().any(|session| !session.hub);
        if self.populated && !users {
            let kill = Command::new("kill-session").opt("-t", hub.to_string());
            actions.push(Action::Send(connection.clone(), CommandLine::of([kill])));
        }
        self.populated |= users;
    }

    fn follow_panes(&mut self, topology: &Topology, hub: Option<u64>, local: bool, actions: &mut Vec<Action>) {
        let hubs = topology.hubs();
        let links = topology.links();
        let carriers: HashMap<SessionId, u64> = self
            .covering
            .iter()
            .filter(|(_, covering)| covering.is_serving())
            .filter_map(|(id, covering)| Some((covering.session?, *id)))
            .collect();
        let mut listed = HashSet::new();
        for row in &topology.panes {
            let sessions = links.get(&row.window).map_or(&[][..], Vec::as_slice);
            if sessions.iter().all(|session| hubs.contains(session)) {
                continue;
            }
            listed.insert(row.id);
            let carries =
                |id: u64| Some(id) == hub || sessions.iter().any(|session| carriers.get(session) == Some(&id));
            let candidate = hub.or_else(|| sessions.iter().filter_map(|session| carriers.get(session)).min().copied());
            self.follow_pane(row, carries, candidate, local, actions);
        }
        for (pane, followed) in &mut self.panes {
            if !listed.contains(pane) && !std::mem::replace(&mut followed.leaving, true) {
                actions.push(Action::Gone(*pane));
            }
        }
    }

    fn follow_pane(
        &mut self,
        row: &PaneRow,
        carries: impl Fn(u64) -> bool,
        candidate: Option<u64>,
        local: bool,
        actions: &mut Vec<Action>,
    ) {
        let followed = self.panes.entry(row.id).or_insert_with(|| Followed {
            owner: None,
            seeded: false,
            known: false,
            seeding: 0,
            noisy: false,
            early: None,
            pid: 0,
            watch: CancellationToken::new(),
            exited: false,
            leaving: false,
            waiters: Vec::new(),
        });
        followed.leaving = false;
        if !followed.owner.is_some_and(carries) {
            followed.owner = candidate;
            followed.seeded = false;
            if candidate.is_some() && !followed.exited {
                let why = if followed.known { Seeding::Again(GapReason::Reconnected) } else { Seeding::First };
                actions.push(Action::Seed(row.id, why));
            }
        }
        if row.dead {
            if followed.known && !followed.exited {
                actions.push(Action::Look(row.id));
            }
        } else if row.pid != followed.pid {
            // A new pane, or one whose program was started anew (`respawn-pane`).
            followed.exited = false;
            followed.pid = row.pid;
            followed.watch.cancel();
            followed.watch = CancellationToken::new();
            if local {
                actions.push(Action::Watch(row.id, row.pid, followed.watch.clone()));
            }
        }
    }
}

fn hub_owner(covering: &HashMap<u64, Covering>) -> Option<u64> {
    covering.iter().find(|(_, covering)| covering.hub.is_some() && covering.is_serving()).map(|(id, _)| *id)
}
