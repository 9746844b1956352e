//! A daemon that serves requests, until it is stopped or another one has taken over.

use std::{pin::pin, sync::Arc, time::Duration};

use muxtap_engine::Engine;
use muxtap_http as http;
use muxtap_net as net;
use muxtap_page::Pages;
use muxtap_rooms::Rooms;
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    Daemon, OpenDoors, Port, STOP_LIMIT, activation, endpoints, log, pages, rooms,
    start::{self, ClaimGuard},
    surroundings,
    upgrade::{Beside, Doors, Handover, Held, Left, Predecessor},
};
use crate::api::{Error, Result, UpgradeAnswer};

/// The signals that end the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// Whether SIGHUP does not count: the terminal of the command that started the daemon is gone.
    background: bool,
}

impl Signals {
    fn listen(background: bool) -> Result<Self> {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        let [Ok(terminate), Ok(interrupt), Ok(hangup)] = signals else {
            return Err(Error::internal("cannot listen for signals"));
        };
        Ok(Self { terminate, interrupt, hangup, background })
    }

    /// Resolves when any of the signals arrives.
    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv(), if !self.background => {}
        }
    }
}

/// The outcome of a handover, and the caller that waits for it.
type HandedOver = (Left, oneshot::Sender<Result<UpgradeAnswer>>);

/// A daemon that serves requests.
pub(super) struct Serving<'a> {
    daemon: &'a Daemon<'a>,
    engine: Engine,
    rooms: Arc<Rooms>,
    pages: Pages,
    app: http::App,
    router: http::Router,
    writers: Handle,
    /// The tasks that accept connections.
    served: JoinSet<()>,
    open: net::OpenConnections,
    /// Ends those tasks and their connections.
    stop: CancellationToken,
}

impl<'a> Serving<'a> {
    /// Serves requests until the daemon is stopped, or another one has taken over and nothing is relayed
    /// to it any more.
    ///
    /// `beside`: what the daemon from which this one took over had beside its engine.
    pub(super) async fn run(
        daemon: &'a Daemon<'a>,
        (engine, beside): (Engine, Option<Beside>),
        doors: OpenDoors,
        writers: Handle,
    ) -> Result<()> {
        let OpenDoors { guard, mut doors, local, ports } = doors;
        let mut signals = Signals::listen(daemon.background)?;
        // A daemon that was started on purpose, or that must be reachable on a port, stays.
        #[cfg(not(feature = "fleet"))]
        let offers = false;
        #[cfg(feature = "fleet")]
        let offers = daemon.settings.fleet.as_ref().is_some_and(|fleet| !fleet.offer.is_empty());
        let is_kept = !daemon.background || offers || ports.iter().any(|port| !port.is_page);
        let idle_end = daemon.settings.idle_end.filter(|_| !is_kept);
        let mut serving = Self::new(daemon, engine, &ports, writers);
        #[cfg(feature = "fleet")]
        let has_taken_over = beside.is_some();
        if let Some(Beside { pages, mcp_sessions, recordings, sessions }) = beside {
            // First: nothing was read yet, since no task of this thread has run, and recordings miss no event.
            serving.rooms.recordings.restore(&serving.engine, recordings);
            serving.rooms.sessions.restore(&serving.engine, sessions);
            serving.pages.restore(&serving.engine, pages);
            serving.app.restore_mcp_sessions(mcp_sessions);
        }
        // Before anything is served: a page needs a port if none was configured.
        let wanted_ports = serving.pages.open_requests();
        for port in ports {
            serving.open_port(port);
        }
        serving.serve(net::Listener::Unix(local), serving.router.clone(), net::Limits::LOCAL);
        tracing::info!("muxtap {} listening on {}", env!("CARGO_PKG_VERSION"), daemon.paths.socket.display());
        #[cfg(feature = "fleet")]
        if let Some(settings) = &daemon.settings.fleet {
            let log = daemon.settings.audit.as_deref();
            match super::fleet::join(settings, log, &serving.app, &serving.rooms.peers, &serving.engine) {
                // The daemon before has left everything to this one, which must not end now.
                Err(error) if has_taken_over => super::fleet::stay_outside(&error, &serving.rooms.peers),
                joined => joined?,
            }
        }
        if daemon.background {
            start::report_ready(log::problem().as_deref());
        } else {
            for (is_page, port) in &doors.ports {
                activation::store(*is_page, port).await;
            }
        }
        if let Some(handed_over) = serving.until_end(&mut signals, idle_end, wanted_ports, &mut doors, &guard).await? {
            serving.leave(handed_over, doors, guard, &mut signals).await;
        } else {
            serving.end().await;
            drop(guard);
        }
        Ok(())
    }

    fn new(daemon: &'a Daemon<'a>, engine: Engine, ports: &[Port], writers: Handle) -> Self {
        let Daemon { settings, paths, .. } = *daemon;
        let rooms = Arc::new(rooms(settings, paths, &engine));
        let pages = pages(settings, paths, &engine);
        if let Some(file) = settings.agents_file.clone() {
            engine.spawn(super::rules::keep_current(engine.clone(), file));
        }
        let about = http::DaemonInfo {
            socket: paths.socket.display().to_string(),
            http: ports.iter().map(|port| port.url.clone()).collect(),
            log: log::is_stderr(&paths.log).then(|| paths.log.display().to_string()),
            problem: Some(log::problem),
            config: settings.answer(),
            files: settings.files().to_vec(),
            rooms: rooms.clone(),
            agents: surroundings(settings),
            page: pages.clone(),
        };
        let app = http::App::with_streams(engine.clone(), about, http::Streams::new(writers.clone(), &engine));
        let router = http::daemon_router(app.clone());
        Self {
            daemon,
            engine,
            rooms,
            pages,
            app,
            router,
            writers,
            served: JoinSet::new(),
            open: net::OpenConnections::default(),
            stop: CancellationToken::new(),
        }
    }

    fn serve(&mut self, listener: net::Listener, router: http::Router, limits: net::Limits) {
        let (writers, open, stop) = (self.writers.clone(), self.open.clone(), self.stop.clone());
        self.served.spawn(net::serve(listener, router, limits, writers, open, stop));
    }

    fn open_port(&mut self, mut port: Port) {
        tracing::info!("listening on {}", port.url);
        port.guard.sessions = Some(self.rooms.devices.sessions.clone());
        port.guard.pages = Some(self.pages.sessions.clone());
        let router = http::with_guard(self.router.clone(), port.guard);
        self.serve(port.listener, router, net::Limits::TCP);
    }

    /// Opens a port for a page; none was configured. Returns its URL.
    async fn open_page(&mut self, doors: &mut Doors) -> Result<String> {
        let endpoint = endpoints::bind_loopback(self.daemon.settings)?;
        let port = doors.open(true, endpoint).map_err(|error| self.daemon.cannot_serve(&error))?;
        let url = port.url.clone();
        self.open_port(port);
        if let Some((_, port)) = doors.ports.last().filter(|_| !self.daemon.background) {
            activation::store(true, port).await;
        }
        Ok(url)
    }

    /// Waits until the daemon has to end: `None`, or because another one has taken over.
    async fn until_end(
        &mut self,
        signals: &mut Signals,
        idle_end: Option<Duration>,
        mut wanted_ports: mpsc::Receiver<oneshot::Sender<Result<String>>>,
        doors: &mut Doors,
        guard: &ClaimGuard,
    ) -> Result<Option<HandedOver>> {
        let background = self.daemon.background;
        let (app, open, engine, rooms) = (self.app.clone(), self.open.clone(), self.engine.clone(), self.rooms.clone());
        // Further requests to replace the daemon fail when it has ended, so that their callers do not hang.
        let Some(mut replacements) = app.replacing().take_asked() else {
            return Err(Error::internal("the daemon is served twice"));
        };
        let mut notifications = pin!(activation::keep_notified());
        let mut idle =
            pin!(idle(|| engine.is_idle() && rooms.sessions.is_idle() && rooms.when.is_idle(), &open, idle_end));
        loop {
            tokio::select! {
                () = app.stop_asked() => return Ok(None),
                () = signals.any() => return Ok(None),
                () = &mut idle => {
                    tracing::info!("exiting: idle");
                    return Ok(None);
                }
                Some(answer) = wanted_ports.recv() => drop(answer.send(self.open_page(doors).await)),
                Some(replacement) = replacements.recv() => {
                    let mut handed_over = pin!(self.hand_over(replacement, signals, doors, guard));
                    let ended = loop {
                        tokio::select! {
                            ended = &mut handed_over => break ended,
                            // The handover waits for this request to end.
                            Some(answer) = wanted_ports.recv() => drop(answer.send(Err(no_port_meanwhile()))),
                            () = &mut notifications, if !background => {}
                        }
                    };
                    if let Some(ended) = ended {
                        return Ok(ended);
                    }
                }
                () = &mut notifications, if !background => {}
            }
        }
    }

    /// Lets another daemon take over. `None`: it has not, and this one continues. `Some(None)`: this one
    /// was stopped meanwhile.
    async fn hand_over(
        &self,
        replacement: http::Replacement,
        signals: &mut Signals,
        doors: &Doors,
        guard: &ClaimGuard,
    ) -> Option<Option<HandedOver>> {
        let http::Replacement { by, force, caller, answer } = replacement;
        let Daemon { program, background, .. } = *self.daemon;
        let (engine, app, rooms, open) = (&self.engine, &self.app, self.rooms.as_ref(), &self.open);
        let pages = &self.pages;
        let predecessor = Predecessor { engine, app, rooms, pages, open, program, background };
        // From here on only the outcome counts: a handover is never left half done.
        let stop = CancellationToken::new();
        let mut handed_over = pin!(predecessor.hand_over(by, Handover { force, doors, guard, stop: &stop }));
        let handed_over = loop {
            tokio::select! {
                biased;
                () = app.stop_asked(), if !stop.is_cancelled() => stop.cancel(),
                () = signals.any() => stop.cancel(),
                handed_over = &mut handed_over => break handed_over,
            }
        };
        match handed_over {
            Ok(left) => {
                // Before the caller knows, and before this engine leaves its log.
                caller.record_about("upgrade", &left.by, "ok");
                if stop.is_cancelled() {
                    left.process.terminate();
                }
                return Some(Some((left, answer)));
            }
            Err(error) => drop(answer.send(Err(error))),
        }
        stop.is_cancelled().then_some(None)
    }

    /// Leaves everything to the daemon that has taken over, and passes on to it what is open here.
    async fn leave(mut self, (left, answer): HandedOver, doors: Doors, guard: ClaimGuard, signals: &mut Signals) {
        let Left { engine, held: Held { requests, pages: _pages, recordings, sessions }, pid, .. } = left;
        // The next daemon watches for its own rules now. What fired here is carried out here.
        self.rooms.when.leave();
        recordings.leave();
        sessions.leave();
        requests.pass_on();
        // Both before this engine ends: its requests are those of the next daemon from now on.
        self.open.leave_listeners();
        guard.leave();
        drop(doors);
        // The caller may have gone.
        let _ = answer.send(Ok(UpgradeAnswer { pid }));
        let relayed = async {
            // First: with the engine ends the thread that ends agents and deletes posts about questions.
            if tokio::time::timeout(STOP_LIMIT, self.rooms.sessions.stop()).await.is_err() {
                tracing::warn!("timeout while ending the agent sessions that were not handed over");
            }
            if tokio::time::timeout(STOP_LIMIT, engine.leave()).await.is_err() {
                tracing::warn!("timeout while leaving tmux to process {pid}");
            }
            self.pages.end().await;
            self.until_served().await;
            self.rooms.when.stop().await;
        };
        tokio::select! {
            () = relayed => {}
            () = signals.any() => {}
        }
    }

    /// Ends everything: the daemon was stopped.
    async fn end(mut self) {
        if !self.daemon.background {
            activation::stopping().await;
        }
        tracing::info!("stopping");
        self.rooms.when.stop().await;
        self.rooms.sessions.stop().await;
        self.pages.end().await;
        // Open waits and streams end with the engine; then their connections do.
        if tokio::time::timeout(STOP_LIMIT, self.engine.stop()).await.is_err() {
            tracing::warn!("timeout while detaching from tmux");
        }
        self.until_served().await;
    }

    /// Lets connections and streams end, and waits for that.
    async fn until_served(&mut self) {
        self.stop.cancel();
        let served = async { while self.served.join_next().await.is_some() {} };
        tokio::join!(self.app.streams().ended(), served);
    }
}

fn no_port_meanwhile() -> Error {
    Error::unavailable("another muxtap daemon takes over: send the request again")
}

/// Resolves when nothing is followed and no connection was open for this long. `None`: never.
async fn idle(is_idle: impl Fn() -> bool, open: &net::OpenConnections, long: Option<Duration>) {
    let Some(long) = long else { return std::future::pending().await };
    loop {
        open.none_for(long).await;
        if is_idle() {
            return;
        }
    }
}
