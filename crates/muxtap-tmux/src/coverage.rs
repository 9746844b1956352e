//! Which connection carries which pane, and the consequences of tmux's announcements.
//!
//! Invariants (numbered in `docs/control-clients.md`): C1 a pane's bytes come from one connection
//! at a time, its owner; C2 output of a pane that is not seeded is dropped, since the pending seed
//! contains it; C3 a pane's end is reported after its last output.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use muxtap_api::{Error, ErrorCode, Labels, Result};
use muxtap_base::metrics;
use muxtap_core::protocol::{
    codec::Event,
    ids::{PaneId, SessionId},
    notification::{Notification, Subscription},
};
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Observer,
    connection::{ANSWER_LIMIT, Answer, Connection, LEAVE_LIMIT, Lost, Receiver, Request},
    death,
    flood::Floods,
    link::{self, LinkState, ServerIdentity},
    model::{Action, Covering, Model, Refresh},
    program::ServerSpec,
    rest::Listings,
    routes::Routes,
    topology::{self, Topology},
    values::{self, Values},
};

/// The shared state of a [`ServerLink`](super::ServerLink).
pub struct Inner {
    pub(super) spec: ServerSpec,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) cancel: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) link: watch::Sender<LinkState>,
    pub(super) kick: Notify,
    lost: Notify,
    /// A single permit: clients arrive one at a time.
    pub(super) arrivals: Semaphore,
    /// A single permit, taken before `arrivals`: at most one client queues for an arrival, so a
    /// change waits for one arrival at most.
    pub(super) guests: Semaphore,
    /// A single permit: clients leave one at a time. A session that ends with its last client
    /// (`destroy-unattached`) can crash servers before 3.8 when another control client leaves at
    /// that moment (N26).
    departures: Semaphore,
    /// A single permit: changes are sent one at a time. Servers before 3.8 crash when a session
    /// ends within the step that changed its current window (N92), as by two `kill-window`s that
    /// are read together.
    pub(super) turns: Arc<Semaphore>,
    /// How many changes got their turn after they had asked for it.
    pub(super) turns_given: AtomicU64,
    model: Mutex<Model>,
    /// Whether a task is finding out why a connection is silent.
    pub(super) judging: AtomicBool,
    /// Listings by plain clients.
    pub(super) listings: Listings,
    /// The server whose clients another process has handed over, until its link begins.
    pub(super) continued: Mutex<Option<ServerIdentity>>,
}

impl Inner {
    pub(super) fn new(
        spec: ServerSpec,
        observer: Arc<dyn Observer>,
        cancel: CancellationToken,
        tasks: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            spec,
            observer,
            cancel,
            tasks,
            link: link::link_channel(),
            kick: Notify::new(),
            lost: Notify::new(),
            arrivals: Semaphore::new(1),
            guests: Semaphore::new(1),
            departures: Semaphore::new(1),
            turns: Arc::new(Semaphore::new(1)),
            turns_given: AtomicU64::new(0),
            model: Mutex::default(),
            judging: AtomicBool::new(false),
            listings: Listings::default(),
            continued: Mutex::default(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection that carries `pane`, or else any connection.
    pub(super) fn connection_of(&self, pane: Option<PaneId>) -> Option<Connection> {
        let model = self.lock();
        pane.and_then(|pane| model.owner(pane)).or_else(|| model.any())
    }

    /// Records that a server was reached. Drops all that is known of a different server.
    pub(super) fn identified(&self, identity: &ServerIdentity) {
        {
            let mut model = self.lock();
            model.recognize(identity);
            let holds = self.spec.holds_floods(identity.version);
            model.floods = if holds { Floods::Hold } else { Floods::Follow };
            model.greeted = true;
            model.rest.active = self.spec.rests();
        }
        self.observer.identified(identity);
    }

    /// Records that the server has ended, and drops all that is known of it.
    pub(super) fn forget(&self) {
        let mut model = self.lock();
        model.identity = None;
        model.rest.active = false;
        model.forget_panes();
    }

    /// Returns whether the server was reached and can be queried.
    pub(super) fn is_reached(&self) -> bool {
        let model = self.lock();
        model.rest.active || model.greeted && model.covering.values().any(Covering::is_serving)
    }

    /// Wakes the waiters for the loss of all clients.
    pub(super) fn announce_loss(&self) {
        self.lost.notify_waiters();
        self.lost.notify_one();
    }

    /// Resolves when there was a moment without an attached client. A guest that attached just
    /// after it does not change that: which server it is attached to is not known yet.
    pub(super) async fn all_lost(&self) {
        loop {
            let lost = self.lost.notified();
            if !self.is_reached() {
                return;
            }
            lost.await;
        }
    }

    /// Lets all clients leave and waits until they have left.
    pub(super) async fn close_all(&self) {
        let connections: Vec<_> =
            self.lock().covering.values().filter_map(|covering| covering.connection.clone()).collect();
        let mut hangs = false;
        for connection in connections {
            if hangs {
                connection.give_up(Lost::Ended);
            }
            let begun = Instant::now();
            self.depart(&connection).await;
            // A server that does not let one client go is stopped, and lets no other go.
            hangs |= begun.elapsed() >= LEAVE_LIMIT;
        }
    }

    /// Lets a client leave, in a task of its own.
    fn let_go(self: &Arc<Self>, connection: Connection) {
        let this = self.clone();
        self.tasks.spawn(async move { this.depart(&connection).await });
    }

    /// Lets a client leave while no other one does, and waits for it up to a limit.
    async fn depart(&self, connection: &Connection) {
        let _departure = tokio::time::timeout(DEPARTURE, self.departures.acquire()).await;
        let session = {
            let mut model = self.lock();
            let covering = model.covering.get_mut(&connection.id()).filter(|covering| covering.is_serving());
            covering.filter(|covering| covering.hub.is_none()).and_then(|covering| {
                // tmux moves the client to the door.
                covering.let_go = true;
                covering.session
            })
        };
        match session.filter(|_| self.spec.rests() && !connection.is_silent()) {
            Some(session) if self.leave_by_door(connection, session).await => connection.give_up(Lost::Ended),
            _ => connection.close(),
        }
        connection.closed().await;
    }

    /// Returns the model, as read after this call.
    pub(super) async fn fresh(self: &Arc<Self>) -> Result<Arc<Topology>, Lost> {
        let (sender, receiver) = oneshot::channel();
        let started = {
            let mut model = self.lock();
            if model.refresh.by.as_ref().or(model.any().as_ref()).is_some_and(Connection::is_silent) {
                return Err(Lost::Unsent);
            }
            if model.refresh.running {
                model.refresh.again = true;
                model.refresh.next.push(sender);
                false
            } else {
                model.refresh.now.push(sender);
                true
            }
        };
        if started {
            self.refresh();
        }
        match tokio::time::timeout(ANSWER_LIMIT, receiver).await {
            Ok(Ok(topology)) => topology,
            // The connection ended or became silent.
            Ok(Err(_)) => Err(Lost::Ended),
            Err(_) => Err(Lost::Unanswered),
        }
    }

    /// Reads the model; if a read is in progress, once more after it.
    pub(super) fn refresh(self: &Arc<Self>) {
        let connection = {
            let mut model = self.lock();
            if model.refresh.running {
                model.refresh.again = true;
                return;
            }
            if !model.greeted && model.rest.active {
                drop(model);
                return self.refresh_at_rest();
            }
            if !model.greeted {
                // The waiters get the error that the connection was lost.
                model.refresh = Refresh::default();
                return;
            }
            let Some(connection) = model.any() else {
                model.refresh = Refresh::default();
                return;
            };
            model.refresh.running = true;
            model.refresh.by = Some(connection.clone());
            connection
        };
        let (command, separator) = topology::question();
        let this = self.clone();
        connection.submit(Request::Framed(vec![command]), move |answer| this.refreshed(answer, &separator));
    }

    fn refreshed(self: &Arc<Self>, answer: Result<Answer, Lost>, separator: &str) {
        let lost = answer.is_err();
        let mut unreadable = false;
        let actions = {
            let mut model = self.lock();
            match answer {
                Ok(Ok(parts)) => {
                    let octal = model.identity.as_ref().is_some_and(|known| known.version.lists_are_octal_encoded());
                    let topology = Topology::parse(parts.first().map_or(&[], |body| body), separator, octal);
                    // The client itself has a session, and thus a pane.
                    unreadable = topology.panes.is_empty();
                    if unreadable {
                        Vec::new()
                    } else {
                        model.topology = Arc::new(topology);
                        model.follow(self.spec.is_local(), self.spec.reads(), self.spec.rests())
                    }
                }
                Ok(Err(message)) => {
                    tracing::warn!("tmux refused to list its panes: {message}");
                    unreadable = true;
                    Vec::new()
                }
                Err(_) => Vec::new(),
            }
        };
        self.carry_out(actions);
        let (topology, waiters, again) = {
            let mut model = self.lock();
            let refresh = &mut model.refresh;
            refresh.running = false;
            refresh.by = None;
            // If the connection was lost, another one serves the waiters.
            let waiters = if lost { Vec::new() } else { std::mem::take(&mut refresh.now) };
            let again = std::mem::take(&mut refresh.again) || lost;
            if again {
                let next = std::mem::take(&mut refresh.next);
                refresh.now.extend(next);
            }
            (model.topology.clone(), waiters, again)
        };
        if !lost && !unreadable {
            self.observer.topology(&topology);
        }
        for waiter in waiters {
            let _ = waiter.send(if unreadable { Err(Lost::Unreadable("list-panes")) } else { Ok(topology.clone()) });
        }
        if again {
            self.refresh();
        }
    }

    /// Takes the topology that a plain client listed.
    pub(super) fn listed(self: &Arc<Self>, topology: Topology) {
        let (topology, actions) = {
            let mut model = self.lock();
            model.topology = Arc::new(topology);
            let actions = model.follow(self.spec.is_local(), self.spec.reads(), self.spec.rests());
            (model.topology.clone(), actions)
        };
        self.carry_out(actions);
        self.observer.topology(&topology);
    }

    /// Waits until a pane that was listed is followed and seeded.
    pub(super) async fn cover(self: &Arc<Self>, pane: PaneId) -> Result<()> {
        let covered = async {
            let mut was_there = false;
            loop {
                let receiver = {
                    let mut model = self.lock();
                    let owner = model.owner(pane);
                    if owner.is_none() && model.ends_with_its_session(pane) {
                        return Err(Error::new(
                            ErrorCode::Conflict,
                            format!(
                                "pane {pane} cannot be followed: its session has no client and ends without one, \
                                 because `destroy-unattached` is on; attach a client, or set the option to off"
                            ),
                        ));
                    }
                    match model.panes.get_mut(&pane) {
                        Some(followed) => match followed.wait() {
                            None => return Ok(()),
                            Some(_) if owner.is_some_and(|owner| owner.is_silent()) => {
                                return Err(Lost::Unanswered.into());
                            }
                            Some(receiver) => receiver,
                        },
                        None if was_there => return Ok(()),
                        None => return Err(Error::not_found(format!("pane {pane} ended before it could be followed"))),
                    }
                };
                was_there = true;
                // The sender is dropped when the pane is seeded, when it goes and when its
                // connection becomes silent.
                let _ = receiver.await;
            }
        };
        let limit = if self.spec.is_local() { COVER_LIMIT } else { COVER_LIMIT_ELSEWHERE };
        tokio::time::timeout(limit, covered).await.unwrap_or_else(|_| {
            let cause = self.lock().attach_error.clone();
            let (code, why) = cause.map_or((ErrorCode::TmuxUnavailable, String::new()), |cause| {
                (cause.code, format!(" ({})", cause.message))
            });
            let seconds = limit.as_secs();
            let message = format!(
                "pane {pane} could not be followed within {seconds} s: no control client could join its \
                 session{why}; ask again"
            );
            Err(Error::new(code, message))
        })
    }

    /// Carries out all actions. If an observer panics, the others are carried out all the same, and
    /// then the panic is resumed.
    pub(super) fn carry_out(self: &Arc<Self>, actions: Vec<Action>) {
        let mut failure = None;
        for action in actions {
            let carried_out = std::panic::catch_unwind(AssertUnwindSafe(|| self.carry_out_one(action)));
            failure = failure.or(carried_out.err());
        }
        if let Some(panic) = failure {
            std::panic::resume_unwind(panic);
        }
    }

    fn carry_out_one(self: &Arc<Self>, action: Action) {
        match action {
            Action::Pane(pane, step) => self.step(pane, step),
            Action::Send(connection, line) => connection.submit(Request::Plain(line), |answer| {
                if let Ok(Err(message)) = answer {
                    tracing::debug!("tmux refused: {message}");
                }
            }),
            Action::Attach(session, attempt, pause) => {
                let this = self.clone();
                self.tasks.spawn(async move {
                    let attaching = AssertUnwindSafe(this.attach_later(session, attempt, pause));
                    let result = attaching.catch_unwind().await;
                    if this.cancel.is_cancelled() {
                        return;
                    }
                    {
                        let mut model = this.lock();
                        model.attached(session, attempt);
                        model.attach_error = result.as_ref().ok().and_then(|result| result.clone().err());
                    }
                    match result {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::info!("cannot attach to session {session}: {error}"),
                        Err(_) => tracing::error!("a bug in muxtap: attaching to session {session} panicked"),
                    }
                    // A failed attach is retried after a pause, as long as the session exists.
                    this.refresh();
                });
            }
            Action::Watch(pane, pid, cancel) => {
                let Some(ended) = death::watch(pid) else {
                    // Too many descriptors are open, or this system has no descriptors for
                    // processes.
                    self.leave_end_to_tmux(pane);
                    return;
                };
                let this = self.clone();
                self.tasks.spawn(async move {
                    tokio::select! {
                        () = ended => {
                            this.check_end(pane);
                            // A pane that no client carries is only listed.
                            if this.connection_of(None).is_none() {
                                this.refresh();
                            }
                        }
                        () = cancel.cancelled() => {}
                        // A pane that lives on must not keep muxtap from leaving.
                        () = this.cancel.cancelled() => {}
                    }
                });
            }
            Action::Leave(connection) => self.let_go(connection),
            Action::Gone(pane) => self.gone(pane),
            Action::CheckEnd(pane) => self.check_end(pane),
        }
    }

    /// Takes the values that tmux pushed for a window's panes.
    fn pushed(self: &Arc<Self>, connection: &Connection, subscription: &Subscription) {
        if values::is_return(&subscription.name) {
            self.refresh();
            return;
        }
        for (pane, values) in values::parse(&subscription.name, &subscription.value) {
            let before = {
                let mut model = self.lock();
                let subscribed = subscription.window.is_some_and(|window| model.is_subscribed(window, connection.id()));
                let Some(followed) = model.panes.get_mut(&pane).filter(|_| subscribed) else { continue };
                followed.values.replace(values.clone())
            };
            let was_dead = before.as_ref().is_some_and(|before| before.dead);
            if values.dead && !was_dead {
                self.check_end(pane);
            } else if was_dead && !values.dead || self.has_other_labels(pane, before.as_ref(), &values) {
                self.refresh();
            }
            for value in values.news(before.as_ref()) {
                self.observer.value(pane, value);
            }
        }
    }

    /// Returns whether a pane was labeled since it was listed. The listing is the only source of labels.
    fn has_other_labels(&self, pane: PaneId, before: Option<&Values>, now: &Values) -> bool {
        before.is_none_or(|before| before.labels != now.labels)
            && self.lock().topology.pane(pane).is_some_and(|row| row.own_labels != Labels::parse(&now.labels))
    }

    /// Queries tmux for facts that it alone knows of a pane. The observer gets them at the reply's
    /// place among the pane's output; then `done` is called, also if no reply comes.
    pub(super) fn ask_values(self: &Arc<Self>, pane: PaneId, done: impl FnOnce(bool) + Send + 'static) {
        let Some(connection) = self.connection_of(Some(pane)) else { return done(false) };
        let this = self.clone();
        connection.submit_in_time(Request::Framed(values::question(pane)), move |answer| {
            let known = if let Ok(Ok(parts)) = answer { values::answer(&parts) } else { Vec::new() };
            let is_known = !known.is_empty();
            for value in known {
                this.observer.value(pane, value);
            }
            done(is_known);
        });
    }

    fn notified(self: &Arc<Self>, connection: &Connection, notification: Notification) {
        match notification {
            Notification::SessionChanged { session, .. } => self.session_changed(connection, session),
            Notification::Pause(pane) => self.was_paused(connection, pane),
            Notification::SubscriptionChanged(subscription) => self.pushed(connection, &subscription),
            Notification::SessionsChanged
            // Only muxtap's client may be left in a session.
            | Notification::ClientDetached { .. }
            | Notification::SessionRenamed { .. }
            | Notification::SessionWindowChanged { .. }
            | Notification::WindowAdd(_)
            | Notification::WindowClose(_)
            | Notification::WindowRenamed { .. }
            | Notification::WindowPaneChanged { .. }
            | Notification::UnlinkedWindowAdd(_)
            | Notification::UnlinkedWindowClose(_)
            | Notification::UnlinkedWindowRenamed { .. } => self.refresh(),
            Notification::LayoutChange { window, layout, visible, .. } => {
                // A change is announced on every connection; the size matters at its place among
                // the pane's output.
                let sizes = self.lock().resized(connection.id(), window, visible.as_deref().unwrap_or(&layout));
                for (pane, size) in sizes {
                    self.observer.sized(pane, size);
                }
                self.refresh();
            }
            Notification::Unknown(_) => metrics::LINES_UNKNOWN.increment(1),
            _ => {}
        }
    }

    /// Records the session of a client. The first time: the client is attached. Later: tmux moved
    /// it, which only happens when its own session was destroyed.
    pub(super) fn session_changed(self: &Arc<Self>, connection: &Connection, session: SessionId) {
        let (by_door, arrives, moved) = {
            let mut model = self.lock();
            let Some(covering) = model.covering.get_mut(&connection.id()) else { return };
            let moved = !covering.visitor && !covering.let_go && covering.session != Some(session);
            (std::mem::take(&mut covering.by_door), covering.ready.is_some(), moved)
        };
        let leaves = match arrives {
            // The session is the door.
            true if by_door => return self.confirm_session(connection),
            true => self.arrived(connection, Some(session)),
            false => moved,
        };
        if leaves {
            self.let_go(connection.clone());
        }
    }

    /// Records in which session a client has arrived. Returns whether it should leave: a client
    /// attached by name may have been given another session if its own ended meanwhile.
    pub(super) fn arrived(self: &Arc<Self>, connection: &Connection, session: Option<SessionId>) -> bool {
        let mut model = self.lock();
        let Some(covering) = model.covering.get_mut(&connection.id()) else { return false };
        let Some(ready) = covering.ready.take() else { return false };
        let moved = session.is_none() || covering.session.is_some_and(|wanted| Some(wanted) != session);
        if !moved {
            covering.session = session;
            covering.attached = Some(metrics::AttachedClient::count());
        }
        let _ = ready.send(if moved { Err(Error::unavailable("its session is gone")) } else { Ok(()) });
        drop(model);
        self.hold_on_arrival();
        moved
    }
}

/// Time that a request waits until its pane is followed.
const COVER_LIMIT: Duration = Duration::from_secs(15);
/// The same limit on another host, where each session's client is a connection and they attach one
/// at a time.
const COVER_LIMIT_ELSEWHERE: Duration = Duration::from_secs(60);
/// Time that a leaving client waits for the one before it.
const DEPARTURE: Duration = Duration::from_millis(500);

impl Receiver for Inner {
    fn event(self: &Arc<Self>, connection: &Connection, event: Event, routes: &mut Routes) {
        match event {
            Event::Output { pane, data, age_ms } => {
                metrics::OUTPUT_BYTES.increment(data.len() as u64);
                self.output(connection, pane, &data, age_ms.unwrap_or_default(), routes);
            }
            Event::Notification(notification) => {
                self.notified(connection, notification);
            }
            Event::OtherBlock { ok: false, body, .. } => {
                // A failed attach is reported in a block that belongs to no request.
                let ready = self.lock().covering.get_mut(&connection.id()).and_then(|covering| covering.ready.take());
                if let Some(ready) = ready {
                    let _ = ready.send(Err(Error::unavailable(String::from_utf8_lossy(&body).trim())));
                    connection.close();
                }
            }
            Event::Stray(_) => metrics::LINES_UNKNOWN.increment(1),
            _ => {}
        }
    }

    fn silent(self: &Arc<Self>, connection: &Connection) {
        self.fell_silent(connection.id());
    }

    fn closed(self: &Arc<Self>, connection: &Connection, why: Error) {
        let actions = self.lock().drop_connection(connection.id(), why);
        self.announce_loss();
        if std::panic::catch_unwind(AssertUnwindSafe(|| self.carry_out(actions))).is_err() {
            tracing::error!("a bug in muxtap: the observer of a pane panicked");
        }
        self.refresh();
    }
}
