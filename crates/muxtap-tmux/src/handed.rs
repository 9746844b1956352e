//! A server's control clients, handed over to another process (`docs/upgrade.md`).
//!
//! The clients stay attached. The process that hands them over stops reading at the beginning of a
//! line ([`ServerLink::pause`]); the other one continues with the bytes that were read and not parsed,
//! and then with the pipes ([`ServerLink::continued`]). What is printed in between waits in the pipes.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, PoisonError},
    time::Duration,
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::metrics;
use muxtap_core::protocol::{
    command::CommandLine,
    ids::{PaneId, SessionId, WindowId},
    version::Version,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Observer, ServerIdentity, ServerLink,
    attach::keep_hub,
    connection::{ClientDescriptors, Connection, Lost, Opened, PausedConnection, Request, StoredClient},
    coverage::Inner,
    followed::{Sink, StoredPane},
    link::NoLink,
    model::{Action, Covering, Model},
    program::ServerSpec,
    seeding::pane_flow_command,
};

/// A link whose clients are not read and get no requests. When dropped, it continues.
pub struct PausedLink {
    state: StoredLink,
    descriptors: Vec<OwnedFd>,
    connections: Vec<PausedConnection>,
    still: Still,
}

/// A link that another process has paused, before its clients are read.
pub struct ContinuedLink {
    inner: Arc<Inner>,
    /// The clients with their numbers, sessions and hub's windows.
    opened: Vec<(u64, Opened, u32, Option<u32>)>,
    /// Panes that have to be read again.
    read_again: Vec<PaneId>,
}

/// What another process needs for continuing a link, without the descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredLink {
    pid: u32,
    started: u64,
    version: String,
    next_connection: u64,
    clients: Vec<StoredCovering>,
    panes: Vec<(u32, StoredPane)>,
    /// Panes in use, and how long ago each was used last.
    wanted: Vec<(u32, Duration)>,
    sessions: Vec<(u32, Duration)>,
    /// Windows of whose panes tmux pushes values, and the connection on which it does.
    subscribed: Vec<(u32, u64)>,
    visited: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredCovering {
    client: StoredClient,
    /// The number of the client's descriptors.
    descriptors: usize,
    session: u32,
    hub: Option<u32>,
}

/// Keeps clients from arriving and leaving, and changes from being sent, until it is dropped.
struct Still {
    inner: Arc<Inner>,
    /// How many of the permits it has, in their order.
    taken: usize,
}

impl Still {
    async fn begin(inner: &Arc<Inner>) -> Self {
        let mut still = Self { inner: inner.clone(), taken: 0 };
        for permits in permits(inner) {
            // No semaphore of these is ever closed.
            if let Ok(permit) = permits.acquire().await {
                permit.forget();
                still.taken += 1;
            }
        }
        still
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        for permits in permits(&self.inner).into_iter().take(self.taken) {
            permits.add_permits(1);
        }
    }
}

fn permits(inner: &Inner) -> [&Semaphore; 3] {
    [&inner.guests, &inner.arrivals, &inner.turns]
}

impl PausedLink {
    /// Returns what another process needs for continuing.
    pub fn state(&self) -> &StoredLink {
        &self.state
    }

    /// Takes the descriptors for that, in their order.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// Continues after another process may have read from the clients: they are replaced, with a gap in
    /// their panes.
    pub fn replace_clients(self) {
        let inner = self.still.inner.clone();
        let doubted: Vec<_> =
            inner.lock().covering.values().filter_map(|covering| covering.connection.clone()).collect();
        for connection in doubted {
            connection.give_up(Lost::Ended);
        }
    }

    /// Leaves the clients to another process, and ends the link here.
    pub fn leave(self) {
        let inner = &self.still.inner;
        // Ended first: the loss of the clients is no reason to attach others.
        inner.cancel.cancel();
        inner.lock().covering.clear();
        for connection in self.connections {
            connection.leave();
        }
    }
}

impl StoredLink {
    /// Returns the number of descriptors that belong to it.
    pub fn descriptors(&self) -> usize {
        self.clients.iter().map(|client| client.descriptors).sum()
    }

    fn identity(&self) -> Option<ServerIdentity> {
        let version = Version::parse(self.version.as_bytes()).ok()?;
        Some(ServerIdentity { pid: self.pid, started: self.started, version })
    }
}

impl ServerLink {
    /// Waits until each control client was read up to a moment at which nothing more was in its pipe; for
    /// `limit` at most. Nothing stops, and nothing is asked. A pause right afterwards takes less time: what
    /// it waits for does not come behind output that was not read yet.
    pub async fn catch_up(&self, limit: Duration) {
        let serving = self.inner().serving();
        let caught_up = futures_util::future::join_all(serving.iter().map(Connection::caught_up));
        // A server that prints faster than this process reads prevents nothing.
        let _ = tokio::time::timeout(limit, caught_up).await;
    }

    /// Stops reading from all control clients and sending to them, at the beginning of a line of each.
    /// `None`: no client is attached.
    ///
    /// Error: a client could not be stopped within `limit`, because tmux does not reply. Everything
    /// continues then.
    pub async fn pause(&self, limit: Duration) -> Result<Option<PausedLink>> {
        let inner = self.inner();
        let paused = tokio::time::timeout(limit, async {
            let still = Still::begin(inner).await;
            let paused = futures_util::future::join_all(inner.serving().iter().map(Connection::pause)).await;
            paused.into_iter().collect::<Result<Vec<_>>>().map(|connections| (still, connections))
        });
        let (still, mut connections) = paused.await.map_err(|_| {
            let socket = inner.spec.socket.display();
            Error::unavailable(format!(
                "the tmux server on {socket} has not finished what it was asked within {} s; is it stopped or \
                 overloaded?",
                limit.as_secs_f32()
            ))
        })??;
        if connections.is_empty() {
            return Ok(None);
        }
        let descriptors = connections.iter_mut().flat_map(|paused| std::mem::take(&mut paused.descriptors)).collect();
        let state = inner.lock().stored(&connections);
        let state = state.ok_or_else(|| {
            Error::new(ErrorCode::Conflict, format!("a client of {} is leaving; retry", inner.spec.socket.display()))
        })?;
        Ok(Some(PausedLink { state, descriptors, connections, still }))
    }

    /// Continues a link that another process has paused. Its clients are not read before
    /// [`ContinuedLink::begin`]. Error: a descriptor is missing or not what it should be; then nothing
    /// has begun.
    pub fn continued(
        spec: ServerSpec,
        observer: Arc<dyn Observer>,
        cancel: CancellationToken,
        tasks: &TaskTracker,
        stored: StoredLink,
        descriptors: Vec<OwnedFd>,
    ) -> Result<ContinuedLink> {
        let broken = |why: String| Error::internal(format!("a link to tmux cannot be continued: {why}"));
        let identity = stored.identity().ok_or_else(|| broken(format!("unknown version {}", stored.version)))?;
        let inner = Inner::new(spec, observer, cancel, tasks.clone());
        let mut descriptors = descriptors.into_iter();
        let mut opened = Vec::new();
        for StoredCovering { client, descriptors: count, session, hub } in stored.clients {
            let own: ClientDescriptors = descriptors.by_ref().take(count).collect();
            let id = client.id;
            let client = Opened::continued(client, own, tasks).map_err(|error| broken(error.to_string()))?;
            opened.push((id, client, session, hub));
        }
        inner.identified(&identity);
        let read_again = inner.follow_again(&stored.panes);
        {
            let mut model = inner.lock();
            let now = Instant::now();
            let at = |age: Duration| now.checked_sub(age).unwrap_or(now);
            model.rest.wanted = stored.wanted.iter().map(|(pane, age)| (PaneId(*pane), at(*age))).collect();
            model.rest.sessions =
                stored.sessions.iter().map(|(session, age)| (SessionId(*session), at(*age))).collect();
            model.rest.visited = stored.visited;
            model.subscribed = stored.subscribed.iter().map(|(window, by)| (WindowId(*window), *by)).collect();
            model.next_connection = stored.next_connection;
            model.served = opened.iter().map(|(id, ..)| *id).collect();
            for (id, _, session, hub) in &opened {
                let (ready, _) = oneshot::channel();
                let mut covering = Covering::new(Some(SessionId(*session)), ready);
                covering.ready = None;
                covering.attached = Some(metrics::AttachedClient::count());
                covering.hub = hub.map(WindowId);
                model.covering.insert(*id, covering);
            }
        }
        *inner.continued.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
        Ok(ContinuedLink { inner, opened, read_again })
    }
}

impl ContinuedLink {
    /// Returns the link.
    pub fn link(&self) -> ServerLink {
        ServerLink::of(self.inner.clone())
    }

    /// Reads the clients from now on.
    pub fn begin(self) {
        let Self { inner, opened, read_again } = self;
        for (id, client, session, hub) in opened {
            let connection = Connection::continued(id, client, inner.clone(), &inner.tasks);
            if let Some(covering) = inner.lock().covering.get_mut(&id) {
                covering.connection = Some(connection.clone());
            }
            // A pane that was paused flows again before it is read.
            for pane in &read_again {
                let flow = CommandLine::of([pane_flow_command(*pane, "continue")]);
                connection.submit(Request::Plain(flow), |_| {});
            }
            if hub.is_some() {
                inner.tasks.spawn(keep_hub(connection, SessionId(session), inner.cancel.clone()));
            }
        }
        ServerLink::keep(inner);
    }
}

impl Model {
    /// Returns what another process needs for continuing with these connections; `None` if one of them
    /// is not a client that serves any more.
    fn stored(&self, connections: &[PausedConnection]) -> Option<StoredLink> {
        let identity = self.identity.as_ref()?;
        let now = Instant::now();
        let clients = connections.iter().map(|paused| {
            let covering = self.covering.get(&paused.stored.id).filter(|covering| !covering.let_go)?;
            Some(StoredCovering {
                client: paused.stored.clone(),
                descriptors: paused.descriptor_count,
                session: covering.session?.0,
                hub: covering.hub.map(|window| window.0),
            })
        });
        let age = |at: &Instant| now.saturating_duration_since(*at);
        let mut panes: Vec<_> = self.panes.iter().map(|(pane, followed)| (pane.0, followed.stored())).collect();
        panes.sort_by_key(|(pane, _)| *pane);
        Some(StoredLink {
            pid: identity.pid,
            started: identity.started,
            version: identity.version.to_string(),
            next_connection: self.next_connection,
            clients: clients.collect::<Option<_>>()?,
            panes,
            wanted: self.rest.wanted.iter().map(|(pane, at)| (pane.0, age(at))).collect(),
            sessions: self.rest.sessions.iter().map(|(session, at)| (session.0, age(at))).collect(),
            subscribed: self.subscribed.iter().map(|(window, by)| (window.0, *by)).collect(),
            visited: self.rest.visited,
        })
    }
}

impl Inner {
    /// Returns the connections that can be paused.
    fn serving(&self) -> Vec<Connection> {
        let model = self.lock();
        let serving = model.covering.values().filter(|covering| covering.is_serving());
        serving.filter_map(|covering| covering.connection.clone()).collect()
    }

    /// Continues to follow panes. Returns those that have to be read again.
    fn follow_again(self: &Arc<Self>, stored: &[(u32, StoredPane)]) -> Vec<PaneId> {
        let mut read_again = Vec::new();
        let mut watched = Vec::new();
        for (pane, stored) in stored {
            let pane = PaneId(*pane);
            let sink = self.observer.continued(pane).filter(|_| !stored.is_read_again());
            let Some(sink) = sink else {
                self.observer.unfollowed(pane);
                read_again.push(pane);
                continue;
            };
            let followed = stored.followed(Sink(sink));
            let watch = stored.watched().map(|pid| (pane, pid, followed.watch.clone()));
            watched.extend(watch.filter(|_| self.spec.is_local()));
            self.lock().panes.insert(pane, followed);
        }
        self.carry_out(watched.into_iter().map(|(pane, pid, watch)| Action::Watch(pane, pid, watch)).collect());
        read_again
    }

    /// Finds the server, or continues with the clients that another process has handed over.
    pub(super) async fn connect_or_continue(self: &Arc<Self>) -> Result<ServerIdentity, NoLink> {
        let continued = self.continued.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(identity) = continued else { return self.connect().await };
        if self.spec.is_local() {
            self.spec.file.review(&self.spec.socket);
            self.spec.find_own_program().await;
            self.spec.file.hold(&self.spec.socket, identity.pid);
        }
        match self.fresh().await {
            Ok(_) => Ok(identity),
            Err(lost) => Err(NoLink::Failed(lost.into())),
        }
    }
}
