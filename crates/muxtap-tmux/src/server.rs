//! One tmux server: found, followed, lost and found again.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::clock::jittered;
use muxtap_core::protocol::{command::Command, ids::PaneId};
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit, oneshot};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Observer,
    connection::{ANSWER_LIMIT, Answer, Connection, Lost, Request},
    coverage::Inner,
    death,
    discovery::{self, SessionWatcher},
    followed::FollowedPane,
    launch::StartServer,
    link::{self, FIRST_PAUSE, LONGEST_PAUSE, LinkState, NoLink, ServerIdentity, replaced},
    model::Model,
    program::{CoverageMode, ServerSpec},
    topology::Topology,
    values::Reads,
};

/// Time that a caller waits until control clients are attached.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// A link that lasted no longer than this is made again after a pause.
const SHORT_LINK: Duration = Duration::from_secs(1);
/// The number of tries of a query whose connection is lost.
const TRIES: u32 = 8;

/// A handle to one server; clones are the same server.
#[derive(Clone)]
pub struct ServerLink {
    inner: Arc<Inner>,
    /// The epoch of the only server process that requests may go to ([`ServerIdentity::epoch`]);
    /// `None`: any.
    only: Option<u64>,
}

impl ServerLink {
    /// Follows the server that `spec` names, until `cancel`. Tasks run in `tasks`. `observer` is
    /// notified of events.
    pub fn follow(
        spec: ServerSpec,
        observer: Arc<dyn Observer>,
        cancel: CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        Self::keep(Inner::new(spec, observer, cancel, tasks.clone()))
    }

    /// Keeps the link of a server from now on.
    pub(super) fn keep(inner: Arc<Inner>) -> Self {
        inner.tasks.spawn(keep_link(inner.clone()));
        Self::of(inner)
    }

    /// Returns the shared state.
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Returns a handle to a server; no task supervises its link.
    pub(super) fn of(inner: Arc<Inner>) -> Self {
        Self { inner, only: None }
    }

    /// Returns a handle whose requests go to the server process of this epoch only: another one on
    /// the socket has other panes of the same ids. With another process requests fail with
    /// `NOT_FOUND`.
    pub fn only(&self, epoch: u64) -> Self {
        Self { inner: self.inner.clone(), only: Some(epoch) }
    }

    /// Returns the connection that carries `pane`, or else any connection, of the server that this
    /// handle may use.
    fn connection_of(&self, pane: Option<PaneId>) -> Option<Connection> {
        let model = self.inner.lock();
        // Before the first client after a rest has identified its server, no request is sent over
        // it.
        if !model.is_of(self.only) || model.rest.active && !model.greeted {
            return None;
        }
        pane.and_then(|pane| model.owner(pane)).or_else(|| model.any())
    }

    /// Returns the error for a missing connection to the server that this handle may use.
    fn no_connection(&self) -> Error {
        let is_another = {
            let model = self.inner.lock();
            (model.greeted || model.rest.active) && model.identity.is_some() && !model.is_of(self.only)
        };
        if is_another { link::ended_with_server(&self.inner.spec.socket) } else { Lost::Ended.into() }
    }

    /// Returns the socket and program by which the server is reached.
    pub fn spec(&self) -> &ServerSpec {
        &self.inner.spec
    }

    /// Returns the state of the link.
    pub fn state(&self) -> LinkState {
        self.inner.link.borrow().clone()
    }

    /// Waits until control clients are attached, `CONNECT_LIMIT` at most. If they are not, an
    /// attempt is made now; its failure is the error.
    pub async fn connected(&self) -> Result<ServerIdentity> {
        // The first attempt at another host takes seconds; its failure is no older than the link.
        self.connected_in_time(!self.inner.spec.is_local()).await
    }

    async fn connected_in_time(&self, takes_first: bool) -> Result<ServerIdentity> {
        tokio::time::timeout(CONNECT_LIMIT, self.connected_at_last(takes_first)).await.unwrap_or_else(|_| {
            Err(Error::unavailable(format!(
                "the tmux server on {} could not be followed within {} s; muxtap keeps trying: retry later",
                self.inner.spec.socket.display(),
                CONNECT_LIMIT.as_secs()
            )))
        })
    }

    /// `takes_first`: whether the link's first attempt counts, if it is still being made.
    async fn connected_at_last(&self, takes_first: bool) -> Result<ServerIdentity> {
        let mut link = self.inner.link.subscribe();
        let mut asked_at = None;
        let mut waited = false;
        loop {
            let state = link.borrow_and_update().clone();
            match state {
                // The link's state changes a moment after the last client has gone; until then no
                // request can be sent.
                LinkState::Connected(identity) if self.inner.is_reached() => {
                    let is_asked = self.only.is_none_or(|only| only == identity.epoch());
                    return if is_asked { Ok(identity) } else { Err(link::ended_with_server(&self.inner.spec.socket)) };
                }
                LinkState::Connected(_) | LinkState::Connecting => {}
                LinkState::Down { error, attempts, .. } => {
                    // A server that did not reply to an attempt that had begun before would not
                    // reply to one that begins now.
                    let is_first = attempts == 1 && asked_at.is_none() && error.code == ErrorCode::TmuxUnavailable;
                    let counts = waited && (takes_first && is_first || link::is_unanswered(&error));
                    if counts || asked_at.is_some_and(|before| attempts > before) {
                        return Err(error);
                    }
                    asked_at = asked_at.or(Some(attempts));
                    self.inner.kick.notify_one();
                }
            }
            waited = true;
            tokio::select! {
                changed = link.changed() => if changed.is_err() { return Err(stopping()) },
                () = self.inner.cancel.cancelled() => return Err(stopping()),
            }
        }
    }

    /// Resolves when control clients are attached and the server replies. Makes no attempt of its
    /// own: a server that starts is noticed by the link.
    pub async fn reached(&self) {
        let mut link = self.inner.link.subscribe();
        // The sender lives as long as `self`.
        let _ = link.wait_for(|link| matches!(link, LinkState::Connected(_))).await;
        if let Some(connection) = self.inner.connection_of(None) {
            connection.speaks().await;
        }
    }

    /// Waits like [`ServerLink::connected`], but starts the server if none runs.
    async fn connected_or_started(&self, start: StartServer) -> Result<ServerIdentity> {
        let asked = Arc::new(start);
        self.inner.lock().starts.push(asked.clone());
        let _asked = StartOrder { inner: &self.inner, start: asked };
        // An attempt that had begun before may not know the order.
        self.connected_in_time(false).await
    }

    /// Sends a request over the connection that carries `pane`'s output (any, if that is not
    /// known), so that the reply is in order with the output; `done` is called in the task that
    /// reads the connection, or with an error if tmux does not reply in time.
    pub fn submit(
        &self,
        pane: Option<PaneId>,
        request: Request,
        done: impl FnOnce(Result<Answer, Lost>) + Send + 'static,
    ) {
        match self.connection_of(pane) {
            Some(connection) => connection.submit_in_time(request, done),
            None if self.rests_here() => {
                let inner = self.inner.clone();
                self.inner.tasks.spawn(async move {
                    // A command without a reply may have run.
                    done(inner.ask_at_rest(request).await.map_err(|_| Lost::Unanswered));
                });
            }
            None => done(Err(Lost::Ended)),
        }
    }

    /// Sends a change for which no caller waits but which should be made at last, even by a tmux
    /// that does not reply now; in its turn, when tmux has read the changes before it.
    pub fn change_at_last(&self, pane: Option<PaneId>, request: Request) {
        let send = move |server: &Self, turn: Option<OwnedSemaphorePermit>| match server.connection_of(pane) {
            Some(connection) => connection.submit_change(request, false, turn, |_| {}),
            None => server.submit(pane, request, |_| {}),
        };
        if !self.changes_take_turns() {
            return send(self, None);
        }
        let turns = self.inner.turns.clone();
        if let Ok(turn) = turns.clone().try_acquire_owned() {
            return send(self, Some(turn));
        }
        let server = self.clone();
        self.inner.tasks.spawn(async move {
            tokio::select! {
                // The semaphore is never closed.
                turn = turns.acquire_owned() => if let Ok(turn) = turn { send(&server, Some(turn)) },
                () = server.inner.cancel.cancelled() => {}
            }
        });
    }

    /// Sends a request for which no caller waits but which should be carried out at last, even by a
    /// tmux that does not reply now.
    pub fn submit_at_last(&self, pane: Option<PaneId>, request: Request) {
        match self.connection_of(pane) {
            Some(connection) => connection.submit(request, |_| {}),
            None => self.submit(pane, request, |_| {}),
        }
    }

    /// Ends the hold of a pane that flooded, before input whose complete output is needed.
    pub async fn let_flow(&self, pane: PaneId) -> Result<()> {
        if self.inner.lock().panes.get(&pane).is_some_and(FollowedPane::is_held) {
            self.inner.let_go_of(pane);
            self.inner.cover(pane).await?;
        }
        Ok(())
    }

    /// Returns whether plain clients query the server that this handle may use now.
    fn rests_here(&self) -> bool {
        let model = self.inner.lock();
        model.rest.active && model.is_of(self.only)
    }

    /// Sends a query, which changes nothing; it is repeated if the connection is lost meanwhile,
    /// but not if tmux does not reply.
    pub async fn read(&self, pane: Option<PaneId>, mut request: impl FnMut() -> Request) -> Result<Answer> {
        let mut tries = 0;
        loop {
            self.connected().await?;
            let lost = match self.connection_of(pane) {
                Some(connection) => match connection.ask(request()).await {
                    Ok(answer) => return Ok(answer),
                    Err(lost) => lost,
                },
                None if self.rests_here() => return self.inner.ask_at_rest(request()).await,
                None => Lost::Ended,
            };
            tries += 1;
            if tries == TRIES || lost != Lost::Ended {
                return Err(lost.into());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends a change of the server, when tmux has read the changes before it (`Inner::turns`). It
    /// is never sent twice: if the connection is lost meanwhile, its result is unknown.
    pub async fn write(&self, pane: Option<PaneId>, request: Request) -> Result<Answer> {
        self.connected().await?;
        let _arrived = self.arrived().await;
        let turn = if self.changes_take_turns() { Some(self.turn(pane).await?) } else { None };
        // A guest leaves with its session, and with the last use of it: the result of a change
        // would be unknown.
        if self.rests_here() && pane.is_none_or(|pane| self.inner.lock().owner(pane).is_none()) {
            let unknown = |error: Error| {
                if link::is_unanswered(&error) { unknown_outcome(Lost::Unanswered) } else { error }
            };
            return self.inner.ask_at_rest(request).await.map_err(unknown);
        }
        let connection = self.connection_of(pane).ok_or_else(|| self.no_connection())?;
        let (sender, receiver) = oneshot::channel();
        connection.submit_change(request, true, turn, move |answer| {
            // The caller may have given up.
            let _ = sender.send(answer);
        });
        receiver.await.unwrap_or(Err(Lost::Ended)).map_err(unknown_outcome)
    }

    /// Creates something by a command that prints what it created in one line, and returns that
    /// line. No hook of the user's blocks it, nor other requests (`maker`). `command` gets the
    /// directory in which it should begin if the user names none, as raw bytes. Takes a turn like
    /// [`Self::write`].
    ///
    /// `start`: how a server is started for it if none runs; `None`: none is started.
    pub async fn make(
        &self,
        start: Option<StartServer>,
        command: impl FnOnce(&[u8]) -> Command,
    ) -> Result<std::result::Result<String, String>> {
        match start {
            Some(start) if self.inner.spec.rests() => match self.connected().await {
                Err(error) if link::is_absent(&error) => {
                    let made = self.inner.start_at_rest(&start, &command(b"")).await?;
                    if made.is_ok() {
                        self.connected().await?;
                    }
                    let text = |parts: Vec<Bytes>| {
                        let line = parts.first().map(|part| String::from_utf8_lossy(part).into_owned());
                        line.unwrap_or_default()
                    };
                    return Ok(made.map(text));
                }
                connected => connected?,
            },
            Some(start) => self.connected_or_started(start).await?,
            None => self.connected().await?,
        };
        let _arrived = self.arrived().await;
        let _turn = if self.changes_take_turns() { Some(self.turn(None).await?) } else { None };
        if self.rests_here() {
            return self.inner.make_at_rest(command).await;
        }
        let connection = self.connection_of(None).ok_or_else(|| self.no_connection())?;
        self.inner.make(&connection, command).await
    }

    /// Waits for a client that is arriving on a server on another host, and blocks further
    /// arrivals: no relay is on that host, and a server before 3.7 may crash when it notifies a
    /// client that has half arrived (F36).
    async fn arrived(&self) -> Option<SemaphorePermit<'_>> {
        if self.inner.spec.is_local() {
            return None;
        }
        tokio::time::timeout(ANSWER_LIMIT, self.inner.arrivals.acquire()).await.ok()?.ok()
    }

    /// Returns whether changes that this server reads together may crash it.
    fn changes_take_turns(&self) -> bool {
        let model = self.inner.lock();
        model.identity.as_ref().is_none_or(|identity| identity.version.dies_of_changes_at_once())
    }

    /// Awaits the turn for a change while other changes get theirs; fails when none did for `ANSWER_LIMIT`, and with a
    /// silent server.
    async fn turn(&self, pane: Option<PaneId>) -> Result<OwnedSemaphorePermit> {
        let given = &self.inner.turns_given;
        let mut turn = pin!(self.inner.turns.clone().acquire_owned());
        let mut limit = Duration::ZERO;
        loop {
            let before = given.load(Ordering::Relaxed);
            // The semaphore is never closed.
            if let Ok(Ok(turn)) = tokio::time::timeout(limit, &mut turn).await {
                given.fetch_add(1, Ordering::Relaxed);
                return Ok(turn);
            }
            if self.connection_of(pane).is_some_and(|connection| connection.is_silent()) {
                return Err(unknown_outcome(Lost::Unsent));
            }
            if limit == ANSWER_LIMIT && given.load(Ordering::Relaxed) == before {
                break;
            }
            limit = ANSWER_LIMIT;
        }
        let why = format!(
            "another change to this tmux server has been in progress for {} s, and tmux before 3.8 accepts one at a \
             time; this one was not sent and will not be: retry",
            ANSWER_LIMIT.as_secs(),
        );
        Err(Error::unavailable(why).with_details(serde_json::json!({ "sent": false })))
    }

    /// Returns the model as of now, always read for this call. If the connection is lost meanwhile
    /// it is read again.
    pub fn fresh(&self) -> BoxFuture<'_, Result<Arc<Topology>>> {
        Box::pin(self.fresh_here())
    }

    async fn fresh_here(&self) -> Result<Arc<Topology>> {
        let mut tries = 1;
        loop {
            self.connected().await?;
            if self.connection_of(None).is_none() && self.rests_here() {
                match self.inner.fresh_at_rest().await {
                    Err(error) if tries < TRIES && !self.inner.is_at_rest() => {
                        tracing::debug!("looking for the server again: {error}");
                        tries += 1;
                    }
                    answer => return answer,
                }
                continue;
            }
            match self.inner.fresh().await {
                Err(Lost::Ended) if tries < TRIES => tries += 1,
                answer => return answer.map_err(Error::from),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the model as it was last read.
    pub fn topology(&self) -> Arc<Topology> {
        self.inner.lock().topology.clone()
    }

    /// Makes sure that the pane's output is followed, and the pane is seeded, before it returns.
    pub async fn cover(&self, pane: PaneId) -> Result<()> {
        self.inner.want(pane);
        self.fresh().await?;
        self.inner.cover(pane).await
    }

    /// Records a use of a pane that is known. Returns whether its output is followed.
    pub fn touch(&self, pane: PaneId) -> bool {
        self.inner.want(pane);
        !self.inner.spec.rests() || self.inner.lock().owner(pane).is_some()
    }

    /// Returns whether a pane's output is followed, without counting as a use.
    pub fn is_following(&self, pane: PaneId) -> bool {
        !self.inner.spec.rests() || self.inner.lock().owner(pane).is_some()
    }

    /// Ends the uses that are `keep` old, except those of panes still `in_use`: their sessions are
    /// followed no longer. Returns when the next one is due.
    pub fn leave_unused(&self, keep: Duration, in_use: &dyn Fn(PaneId) -> bool) -> Option<Instant> {
        if !self.inner.spec.rests() {
            return None;
        }
        let (left, due) = self.inner.lock().unwant(keep, in_use);
        if left {
            self.inner.refresh();
        }
        due
    }

    /// Follows all panes of the server, including panes to come, until the guard is dropped; then
    /// `ended` is called.
    pub fn follow_all(&self, ended: impl FnOnce() + Send + Sync + 'static) -> FollowAll {
        self.inner.lock().rest.wants_all += 1;
        if self.inner.spec.rests() {
            self.inner.refresh();
        }
        FollowAll { inner: self.inner.clone(), ended: Some(Box::new(ended)) }
    }

    /// Waits until all panes that are listed are followed and seeded.
    pub async fn cover_all(&self) -> Result<()> {
        // Known panes are attached to with the same listing.
        for row in &self.topology().without_hubs().panes {
            self.inner.want(row.id);
        }
        let topology = self.fresh().await?.without_hubs();
        let unknown = topology.panes.iter().filter(|row| self.inner.want(row.id)).count();
        if unknown > 0 {
            self.fresh().await?;
        }
        let covered = topology.panes.iter().map(|row| self.inner.cover(row.id));
        // A pane that goes meanwhile is not awaited.
        futures_util::future::join_all(covered).await;
        Ok(())
    }

    /// Starts another program in a pane, by `commands`, of which the first is a `respawn-pane`; the
    /// pane is paused meanwhile (F19, N12). `done` is called in the task that reads the pane's
    /// connection, at the reply's place in the stream, with whether the respawn succeeded.
    pub async fn respawn(
        &self,
        pane: PaneId,
        commands: Vec<Command>,
        done: impl FnOnce(bool) + Send + 'static,
    ) -> Result<std::result::Result<(), String>> {
        self.connected().await?;
        if self.connection_of(None).is_none() {
            return Err(self.no_connection());
        }
        self.inner.respawn(self.only, pane, commands, true, done).await.map_err(|lost| lost.of_change("the respawn"))
    }

    /// Replaces a placeholder by a program, by `commands`, one of which is a `respawn-pane`. The
    /// pane is paused meanwhile as for [`Self::respawn`]: text typed into a placeholder is echoed,
    /// so it may have printed (N81).
    pub async fn begin(&self, pane: PaneId, commands: Vec<Command>) -> Result<std::result::Result<(), String>> {
        self.connected().await?;
        if self.connection_of(None).is_none() {
            return Err(self.no_connection());
        }
        self.inner.respawn(self.only, pane, commands, false, |_| {}).await.map_err(unknown_outcome)
    }

    /// Returns when the pane's process has ended, the pane is gone, or `limit` has passed.
    pub async fn ended(&self, pane: PaneId, limit: Duration) {
        let end = self.inner.lock().panes.get_mut(&pane).and_then(FollowedPane::wait_for_end);
        if let Some(end) = end {
            let _ = tokio::time::timeout(limit, end).await;
        }
    }

    /// Returns whether tmux has to be queried for facts that it alone knows of a pane before they
    /// are used. On other systems, and on other machines, tmux pushes them all the time.
    pub fn asks_for_values(&self) -> bool {
        self.inner.spec.reads() == Reads::TmuxAlone
    }

    /// Queries tmux for facts that it alone knows of a pane, and has them pushed from now on. The
    /// observer gets the reply; then `done` is called with whether one came.
    pub fn use_values(&self, pane: PaneId, done: impl FnOnce(bool) + Send + 'static) {
        let actions = self.inner.lock().use_values(pane, self.inner.spec.reads());
        self.inner.carry_out(actions);
        self.inner.ask_values(pane, done);
    }

    /// Ends that push of a pane's facts.
    pub fn leave_values(&self, pane: PaneId) {
        let actions = self.inner.lock().leave_values(pane, self.inner.spec.reads());
        self.inner.carry_out(actions);
    }

    /// Returns the sessions to which one of muxtap's clients is attached.
    pub fn attached_sessions(&self) -> std::collections::HashSet<muxtap_core::protocol::ids::SessionId> {
        self.inner.lock().covering.values().filter_map(|covering| covering.session).collect()
    }

    /// Returns the number of attached control clients.
    pub fn clients(&self) -> u32 {
        self.inner.lock().covering.values().filter(|covering| covering.attached.is_some()).count() as u32
    }

    /// Returns whether a hub carries the server's panes.
    pub fn has_hub(&self) -> bool {
        self.inner.lock().covering.values().any(|covering| covering.hub.is_some())
    }

    /// Returns the name of the server's coverage mode, as configured.
    pub fn coverage(&self) -> &'static str {
        match self.inner.spec.coverage {
            CoverageMode::Used if self.inner.spec.rests() => "used",
            CoverageMode::Hub => "hub",
            CoverageMode::Used | CoverageMode::Sessions => "sessions",
        }
    }
}

/// A use of all panes of a server, until it is dropped.
pub struct FollowAll {
    inner: Arc<Inner>,
    ended: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Drop for FollowAll {
    fn drop(&mut self) {
        {
            let mut model = self.inner.lock();
            model.rest.wants_all -= 1;
            if model.rest.wants_all == 0 && self.inner.spec.rests() {
                // Each pane stays followed like one that was used just now.
                let listed: Vec<_> = model.topology.panes.iter().map(|row| row.id).collect();
                for pane in listed {
                    model.want(pane);
                }
            }
        }
        if let Some(ended) = self.ended.take() {
            ended();
        }
    }
}

/// A caller's order to start a server. Its drop withdraws the order, so a caller that goes away
/// leaves none behind.
struct StartOrder<'a> {
    inner: &'a Inner,
    start: Arc<StartServer>,
}

impl Drop for StartOrder<'_> {
    fn drop(&mut self) {
        self.inner.lock().starts.retain(|start| !Arc::ptr_eq(start, &self.start));
    }
}

fn unknown_outcome(lost: Lost) -> Error {
    lost.of_change("this")
}

pub(super) fn stopping() -> Error {
    Error::unavailable("muxtap is stopping")
}

/// Keeps the link for the life of the engine. A panic in the task that keeps it ends all clients,
/// and the link begins again.
async fn keep_link(inner: Arc<Inner>) {
    let attempts = AtomicU64::new(0);
    while AssertUnwindSafe(supervise(inner.clone(), &attempts)).catch_unwind().await.is_err() {
        tracing::error!("a bug in muxtap: the link to {} panicked; reconnecting", inner.spec.socket.display());
        let _ = AssertUnwindSafe(inner.close_all()).catch_unwind().await;
        let error = Error::internal("the link to tmux failed because of a bug in muxtap; muxtap is reconnecting");
        inner.link.send_replace(LinkState::Down { error, ended: false, attempts: attempts.load(Ordering::Relaxed) });
        tokio::select! {
            () = tokio::time::sleep(jittered(LONGEST_PAUSE)) => {}
            () = inner.kick.notified() => {}
            () = inner.cancel.cancelled() => {}
        }
    }
}

/// Resolves when a server's process has ended; never if the process is not known.
async fn process_ended(pid: Option<u32>) {
    match pid.and_then(death::watch) {
        Some(ended) => ended.await,
        None => std::future::pending().await,
    }
}

async fn supervise(inner: Arc<Inner>, count: &AtomicU64) {
    let mut attempts = count.load(Ordering::Relaxed);
    let mut pause = FIRST_PAUSE;
    let mut followed: Option<ServerIdentity> = None;
    // A server whose process has ended, though it may not have been reaped yet.
    let mut dead = None;
    while !inner.cancel.is_cancelled() {
        inner.set_link(LinkState::Connecting);
        attempts = count.fetch_add(1, Ordering::Relaxed) + 1;
        let attempt = tokio::select! {
            attempt = inner.connect_or_continue() => attempt,
            () = inner.cancel.cancelled() => break,
        };
        match attempt {
            Ok(identity) => {
                let server = identity.pid;
                followed = Some(identity.clone());
                let since = Instant::now();
                inner.set_link(LinkState::Connected(identity));
                let other = tokio::select! {
                    () = inner.link_ended(server) => None,
                    other = discovery::wait_for_replacement(&inner.spec.socket, &inner.spec.file, server),
                        if inner.spec.is_local() => Some(other),
                    () = inner.cancel.cancelled() => break,
                };
                if let Some(other) = other {
                    followed = None;
                    inner.leave(server, other, attempts).await;
                    continue;
                }
                if since.elapsed() > SHORT_LINK {
                    pause = FIRST_PAUSE;
                    continue;
                }
                // The cause of such a quick end may recur, except for a server that ended itself:
                // the next one is a different server, and may be queried at once.
                tokio::select! {
                    () = process_ended(Some(server).filter(|_| inner.spec.is_local())) => pause = FIRST_PAUSE,
                    () = tokio::time::sleep(jittered(pause)) => {
                        let socket = inner.spec.socket.display();
                        tracing::debug!("the link to {socket} was short-lived: paused before the next attempt");
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    () = inner.cancel.cancelled() => {}
                }
            }
            Err(no_link) => {
                // Clients that attached before the attempt failed would otherwise stay.
                inner.close_all().await;
                let (error, absent, hubs) = match no_link {
                    NoLink::Absent(error) => (error, true, None),
                    NoLink::Empty(error, hubs) => (error, false, Some(hubs)),
                    NoLink::Failed(error) => (error, false, None),
                };
                let ended = followed.as_ref().is_some_and(|identity| {
                    if hubs.is_some() {
                        // The process runs on, but nothing that was followed is left.
                        true
                    } else if inner.spec.is_local() {
                        dead == Some(identity.pid) || !death::is_alive(identity.pid)
                    } else {
                        absent
                    }
                });
                if ended {
                    followed = None;
                    inner.forget();
                }
                let retry = !absent && hubs.is_none() && (followed.is_some() || attempts > 1);
                inner.set_link(LinkState::Down { error, ended, attempts });
                // A server that no longer replies may still be exiting.
                let leaving =
                    followed.as_ref().filter(|_| absent && inner.spec.is_local()).map(|identity| identity.pid);
                let mut watcher = match hubs {
                    Some(_) => SessionWatcher::start(&inner.spec, &inner.tasks).await,
                    None => None,
                };
                let session = async {
                    let changed = match &mut watcher {
                        Some(watcher) => watcher.changed(hubs.as_deref().unwrap_or_default()).await,
                        None => false,
                    };
                    if !changed {
                        tokio::time::sleep(jittered(pause)).await;
                    }
                };
                tokio::select! {
                    () = inner.kick.notified() => {}
                    () = inner.cancel.cancelled() => {}
                    () = process_ended(leaving) => dead = leaving,
                    () = discovery::wait_for_socket(&inner.spec.socket), if absent && inner.spec.is_local() => {}
                    () = session, if hubs.is_some() => pause = (pause * 2).min(LONGEST_PAUSE),
                    () = tokio::time::sleep(jittered(pause)), if retry => pause = (pause * 2).min(LONGEST_PAUSE),
                }
                if let Some(watcher) = watcher {
                    watcher.stop().await;
                }
            }
        }
    }
    inner.close_all().await;
    inner.set_link(LinkState::Down { error: stopping(), ended: false, attempts });
}

impl Model {
    /// Returns whether the connections lead to the server process of this epoch. `None`: to any
    /// process.
    pub(super) fn is_of(&self, only: Option<u64>) -> bool {
        only.is_none_or(|only| {
            (self.greeted || self.rest.active) && self.identity.as_ref().is_some_and(|known| known.epoch() == only)
        })
    }
}

impl Inner {
    /// Detaches from a server that another one has replaced on the socket. The socket's name means
    /// the new one from now on, and the two must not be mixed.
    async fn leave(&self, server: u32, other: u32, attempts: u64) {
        tracing::warn!("{} is tmux server {other} now, not {server}", self.spec.socket.display());
        self.close_all().await;
        self.forget();
        self.spec.file.release();
        self.set_link(LinkState::Down { error: replaced(&self.spec.socket, other), ended: true, attempts });
    }

    fn set_link(&self, link: LinkState) {
        self.observer.link(&link);
        self.link.send_replace(link);
    }
}
