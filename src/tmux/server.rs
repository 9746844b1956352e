//! One tmux server: found, followed, lost and found again.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
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
    program::ServerSpec,
    topology::Topology,
    values::Reads,
};
use crate::{
    api::{Error, Result},
    clock::jittered,
    protocol::{command::Command, ids::PaneId},
};

/// Time that a caller waits for control clients to be attached.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// A link that stood no longer than this is made anew after a pause.
const SHORT_LINK: Duration = Duration::from_secs(1);
/// Tries of a question whose connection is lost.
const TRIES: u32 = 8;

/// A handle to one server; clones are the same server.
#[derive(Clone)]
pub struct ServerLink {
    inner: Arc<Inner>,
    /// The one server process that is asked ([`ServerIdentity::epoch`]); `None`: whichever runs.
    only: Option<u64>,
}

impl ServerLink {
    /// Follows the server that `spec` names, until `cancel`. Tasks run in `tasks`. `observer` is
    /// notified of what happens.
    pub fn follow(
        spec: ServerSpec,
        observer: Arc<dyn Observer>,
        cancel: CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let inner = Inner::new(spec, observer, cancel, tasks.clone());
        tasks.spawn(keep_link(inner.clone()));
        Self { inner, only: None }
    }

    /// Returns a handle to a server whose clients a test plays; no task supervises its link.
    #[cfg(test)]
    pub(super) fn of(inner: Arc<Inner>) -> Self {
        Self { inner, only: None }
    }

    /// Returns a handle that asks the server process of this epoch and no other: another one on the
    /// socket has other panes of the same ids. What is asked of it then is `NOT_FOUND`.
    pub fn only(&self, epoch: u64) -> Self {
        Self { inner: self.inner.clone(), only: Some(epoch) }
    }

    /// Returns the connection that carries `pane`, else any, of the server that this handle may ask.
    fn connection_of(&self, pane: Option<PaneId>) -> Option<Connection> {
        let model = self.inner.lock();
        if !model.is_of(self.only) {
            return None;
        }
        pane.and_then(|pane| model.owner(pane)).or_else(|| model.any())
    }

    /// Returns the error where there is no connection to the server that this handle may ask.
    fn no_connection(&self) -> Error {
        let is_another = {
            let model = self.inner.lock();
            model.greeted && model.identity.is_some() && !model.is_of(self.only)
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
        tokio::time::timeout(CONNECT_LIMIT, self.connected_at_last()).await.unwrap_or_else(|_| {
            Err(Error::unavailable(format!(
                "the tmux server on {} could not be followed within {} s; it is still tried: ask again",
                self.inner.spec.socket.display(),
                CONNECT_LIMIT.as_secs()
            )))
        })
    }

    async fn connected_at_last(&self) -> Result<ServerIdentity> {
        let mut link = self.inner.link.subscribe();
        let mut asked_at = None;
        let mut waited = false;
        loop {
            let state = link.borrow_and_update().clone();
            match state {
                // The link's state changes a moment after the last client has gone; until then
                // nothing can be asked.
                LinkState::Connected(identity) if self.inner.is_reached() => {
                    let is_asked = self.only.is_none_or(|only| only == identity.epoch());
                    return if is_asked { Ok(identity) } else { Err(link::ended_with_server(&self.inner.spec.socket)) };
                }
                LinkState::Connected(_) | LinkState::Connecting => {}
                LinkState::Down { error, attempts, .. } => {
                    // A server that did not answer an attempt that had begun before would not
                    // answer one that begins now.
                    if asked_at.is_some_and(|before| attempts > before) || waited && link::is_unanswered(&error) {
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

    /// Resolves when control clients are attached and the server answers. Nothing is tried for it:
    /// a server that begins is noticed by itself.
    pub async fn reached(&self) {
        let mut link = self.inner.link.subscribe();
        // The sender lives as long as `self`.
        let _ = link.wait_for(|link| matches!(link, LinkState::Connected(_))).await;
        if let Some(connection) = self.inner.connection_of(None) {
            connection.speaks().await;
        }
    }

    /// Like [`ServerLink::connected`], but starts the server where none runs.
    pub async fn connected_or_started(&self, start: StartServer) -> Result<ServerIdentity> {
        let asked = Arc::new(start);
        self.inner.lock().starts.push(asked.clone());
        let _asked = StartOrder { inner: &self.inner, start: asked };
        self.connected().await
    }

    /// Asks tmux over the connection that carries `pane`'s output (any, if that is not known), so
    /// that the reply stands in order with it; `done` is called in the task that reads the
    /// connection, or with an error when tmux does not answer in time.
    pub fn submit(
        &self,
        pane: Option<PaneId>,
        request: Request,
        done: impl FnOnce(Result<Answer, Lost>) + Send + 'static,
    ) {
        match self.connection_of(pane) {
            Some(connection) => connection.submit_in_time(request, done),
            None => done(Err(Lost::Ended)),
        }
    }

    /// Sends a change for which no caller waits but which is to be done at last, even by a tmux
    /// that does not answer now; when tmux has read the changes before it.
    pub fn change_at_last(&self, pane: Option<PaneId>, request: Request) {
        let send = move |server: &Self, turn: Option<OwnedSemaphorePermit>| {
            if let Some(connection) = server.connection_of(pane) {
                connection.submit_change(request, false, turn, |_| {});
            }
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
                // Nobody closes it.
                turn = turns.acquire_owned() => if let Ok(turn) = turn { send(&server, Some(turn)) },
                () = server.inner.cancel.cancelled() => {}
            }
        });
    }

    /// Sends a request for which no caller waits but which is to be done at last, even by a tmux
    /// that does not answer now.
    pub fn submit_at_last(&self, pane: Option<PaneId>, request: Request) {
        if let Some(connection) = self.connection_of(pane) {
            connection.submit(request, |_| {});
        }
    }

    /// Asks something that changes nothing; it is asked again when the connection is lost
    /// meanwhile, but not when tmux does not answer.
    pub async fn read(&self, pane: Option<PaneId>, mut request: impl FnMut() -> Request) -> Result<Answer> {
        let mut tries = 0;
        loop {
            self.connected().await?;
            let lost = match self.connection_of(pane) {
                Some(connection) => match connection.ask(request()).await {
                    Ok(answer) => return Ok(answer),
                    Err(lost) => lost,
                },
                None => Lost::Ended,
            };
            tries += 1;
            if tries == TRIES || lost != Lost::Ended {
                return Err(lost.into());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Asks something that changes the server, when tmux has read the changes before
    /// it ([`Inner::turns`]). It is never asked twice: when the connection is lost meanwhile, it is not
    /// known whether it was done.
    pub async fn write(&self, pane: Option<PaneId>, request: Request) -> Result<Answer> {
        self.connected().await?;
        let turn = if self.changes_take_turns() { Some(self.turn(pane).await?) } else { None };
        let connection = self.connection_of(pane).ok_or_else(|| self.no_connection())?;
        let (sender, receiver) = oneshot::channel();
        connection.submit_change(request, true, turn, move |answer| {
            // The caller may have given up.
            let _ = sender.send(answer);
        });
        receiver.await.unwrap_or(Err(Lost::Ended)).map_err(unknown_outcome)
    }

    /// Whether this server may die of changes that it reads together.
    fn changes_take_turns(&self) -> bool {
        let model = self.inner.lock();
        model.identity.as_ref().is_none_or(|identity| identity.version.dies_of_changes_at_once())
    }

    /// Awaits the turn to ask for a change, `ANSWER_LIMIT` at most; not with a server that is silent.
    async fn turn(&self, pane: Option<PaneId>) -> Result<OwnedSemaphorePermit> {
        let turns = self.inner.turns.clone();
        if let Ok(turn) = turns.clone().try_acquire_owned() {
            return Ok(turn);
        }
        if self.connection_of(pane).is_some_and(|connection| connection.is_silent()) {
            return Err(unknown_outcome(Lost::Unsent));
        }
        // Nobody closes it.
        if let Ok(Ok(turn)) = tokio::time::timeout(ANSWER_LIMIT, turns.acquire_owned()).await {
            return Ok(turn);
        }
        let why = format!(
            "other changes of this tmux server are under way since {} s, and tmux before 3.8 takes one at a time; this one was \
             not sent and will not be: ask again",
            ANSWER_LIMIT.as_secs(),
        );
        Err(Error::unavailable(why).with_details(serde_json::json!({ "sent": false })))
    }

    /// Returns the model as of now, always read anew. When the connection is lost meanwhile it is
    /// read again.
    pub async fn fresh(&self) -> Result<Arc<Topology>> {
        let mut tries = 1;
        loop {
            self.connected().await?;
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
        self.fresh().await?;
        self.inner.cover(pane).await
    }

    /// Starts another program in a pane, by `commands`, of which the first is a `respawn-pane`; the
    /// pane is paused meanwhile (F19, N12). `done` is called in the task that reads the pane's
    /// connection, where the answer stands in the stream, with whether it was done.
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

    /// Puts a program in the place of a placeholder, by `commands`, one of which is a
    /// `respawn-pane`. The pane is paused meanwhile as for [`Self::respawn`]: what is typed into a
    /// placeholder is echoed, so it may have printed (N81).
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

    /// Whether tmux has to be asked for what it alone knows of a pane before that is used. On other
    /// systems, and on other machines, tmux pushes it all the time.
    pub fn asks_for_values(&self) -> bool {
        self.inner.spec.reads() == Reads::TmuxAlone
    }

    /// Asks tmux for what it alone knows of a pane, and has it pushed from now on. The observer is
    /// given the answer; then `done` is called with whether there was one.
    pub fn use_values(&self, pane: PaneId, done: impl FnOnce(bool) + Send + 'static) {
        let actions = self.inner.lock().use_values(pane, self.inner.spec.reads());
        self.inner.carry_out(actions);
        self.inner.ask_values(pane, done);
    }

    /// Has tmux push it no longer.
    pub fn leave_values(&self, pane: PaneId) {
        let actions = self.inner.lock().leave_values(pane, self.inner.spec.reads());
        self.inner.carry_out(actions);
    }

    /// Returns the sessions to which one of muxtap's clients is attached.
    pub fn attached_sessions(&self) -> std::collections::HashSet<crate::protocol::ids::SessionId> {
        self.inner.lock().covering.values().filter_map(|covering| covering.session).collect()
    }

    /// Returns how many control clients are attached, and whether one of them is a hub's.
    pub fn clients(&self) -> (u32, bool) {
        let model = self.inner.lock();
        let clients = model.covering.values().filter(|covering| covering.attached.is_some()).count();
        (clients as u32, model.covering.values().any(|covering| covering.hub.is_some()))
    }
}

/// A caller's order to start a server. Its drop withdraws the order, so that a caller that goes
/// away leaves none behind.
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

/// Keeps the link for the life of the engine. A panic in what keeps it ends all clients, and it is
/// begun anew.
async fn keep_link(inner: Arc<Inner>) {
    let attempts = AtomicU64::new(0);
    while AssertUnwindSafe(supervise(inner.clone(), &attempts)).catch_unwind().await.is_err() {
        tracing::error!("a defect of muxtap: the link to {} failed and is made anew", inner.spec.socket.display());
        let _ = AssertUnwindSafe(inner.close_all()).catch_unwind().await;
        let error = Error::internal("the link to tmux failed, a defect of muxtap; it is made anew");
        inner.link.send_replace(LinkState::Down { error, ended: false, attempts: attempts.load(Ordering::Relaxed) });
        tokio::select! {
            () = tokio::time::sleep(jittered(LONGEST_PAUSE)) => {}
            () = inner.kick.notified() => {}
            () = inner.cancel.cancelled() => {}
        }
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
            attempt = inner.connect() => attempt,
            () = inner.cancel.cancelled() => break,
        };
        match attempt {
            Ok(identity) => {
                let server = identity.pid;
                followed = Some(identity.clone());
                let since = Instant::now();
                inner.set_link(LinkState::Connected(identity));
                let other = tokio::select! {
                    () = inner.all_lost() => None,
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
                // Whatever ended it so soon may do so again.
                tokio::select! {
                    () = tokio::time::sleep(jittered(pause)) => {}
                    () = inner.cancel.cancelled() => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(no_link) => {
                // Clients that did attach before the attempt failed would otherwise stay.
                inner.close_all().await;
                let (error, absent, hubs) = match no_link {
                    NoLink::Absent(error) => (error, true, None),
                    NoLink::Empty(error, hubs) => (error, false, Some(hubs)),
                    NoLink::Failed(error) => (error, false, None),
                };
                let ended = followed.as_ref().is_some_and(|identity| {
                    if hubs.is_some() {
                        // It goes on, but nothing that was followed is left.
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
                // A server that does not answer any more may still be on its way out.
                let leaving =
                    followed.as_ref().filter(|_| absent && inner.spec.is_local()).map(|identity| identity.pid);
                let leaves = async {
                    match leaving.and_then(death::watch) {
                        Some(leaves) => leaves.await,
                        None => std::future::pending().await,
                    }
                };
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
                    () = leaves => dead = leaving,
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
    /// Returns whether the connections lead to the server process of this epoch. `None`: to any.
    pub(super) fn is_of(&self, only: Option<u64>) -> bool {
        only.is_none_or(|only| self.greeted && self.identity.as_ref().is_some_and(|known| known.epoch() == only))
    }
}

impl Inner {
    /// Detaches from a server in whose place another one answers. The socket's name means the other
    /// one from now on, and nothing of the two is to be mixed.
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
