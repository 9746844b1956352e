//! The engine: the one API that feature crates and interfaces call.
//!
//! An [`Engine`] follows any number of tmux servers. It is a cheap handle; all clones are the same
//! engine. Requests are served from memory wherever that is exact, and over the open connection
//! otherwise. No lock is held across an await anywhere in this crate.

pub mod activity;
pub mod agents;
pub mod audit;
mod audit_scope;
mod authority;
mod blocking;
mod change;
mod changes;
mod compile;
mod deadline;
pub mod elsewhere;
pub mod environment;
mod events;
mod handles;
pub mod handover;
mod host;
mod input;
mod janitor;
mod labels;
pub mod limits;
mod options;
mod pane;
mod query;
#[cfg(test)]
mod replay;
pub mod several;
pub mod shell_integration;
mod spawn;
pub mod sync;
mod wait;

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muxtap_api::{Error, ErrorCode, Event, ServerStatus, WaitInfo};
use muxtap_base::nonce;
use muxtap_tmux::{
    Address, LinkState, OwnProgram, Proc, ProcessProbe, ServerLink, ServerSpec, SocketFile, same_socket,
};
use tokio::time::Instant;
use tokio::{runtime::Handle, sync::broadcast};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use api::{Result, Since};
pub use audit_scope::RecordElsewhere;
pub use authority::{Caller, Principal};
pub use changes::{Changes, PaneChanges};
pub use elsewhere::FleetHosts;
pub use events::{Delivery, Subscription};
pub use handles::{Capture, Events, Follow, Output, Pane, Read, RequestFuture, Run, Server, Spawn, Wait, WaitHandle};
pub use handles::{CommandChange, CommandEvent, CommandOutput};
pub use handles::{PaneLook, PaneWatch, ValueList, WindowFit};
pub use host::Host;
use host::{PaneHooks, Reports};
pub use input::shell::RESTORED;
pub use input::{
    check_keys,
    runs::{RunGuard, RunReport, RunText},
    unhex,
};
#[doc(no_inline)]
pub use muxtap_api as api;
// Feature crates do not depend on muxtap-tmux: what they need of it is re-exported.
pub use muxtap_tmux::{
    AGENT_MARK, CoverageMode, DEFAULT_SOCKET, Exit, HUB_MARK, HUB_NAME, Lineage, ProcessId, Program, Request, Subject,
    Transport, agent_marks, continue_agent_marks, is_absent, is_secret,
};
pub use options::Options;
pub use pane::{PaneCommand, PaneState, Revision};
pub use query::scope::{Names, Scopes, is_pattern};
pub use query::targets::{Selector, SessionPart, Target, find_pane, find_session, find_window, is_number, is_selector};
pub use spawn::create::{literal, made_pane, perhaps_made};
pub use spawn::unmanaged::{UnmanagedPlace, UnmanagedSpawn};
pub use wait::Charge;
use wait::Waits;
pub use wait::{OwnedWait, UNKNOWN_OUTCOME, id_of_key};

/// A handle on an engine, the first thing that a program creates.
///
/// All clones are the same engine. An engine follows any number of tmux servers, each from the
/// first request for it ([`Engine::server`]).
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    caller: Arc<Caller>,
    /// Whether this handle belongs to a read-only caller.
    reads_only: bool,
    /// The only tier that this handle's caller has; `None`: those that muxtap allows.
    only: Option<muxtap_api::Tier>,
}

/// State shared by all handles of one engine.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// The rules that recognize agents: those of the options, until others replace them.
    agent_rules: tokio::sync::watch::Sender<Arc<agents::Rules>>,
    hosts: Mutex<HashMap<PathBuf, Arc<Host>>>,
    /// The transports to other hosts.
    transports: elsewhere::Transports,
    pub(crate) waits: Waits,
    /// Runs that outlive the call that started them.
    runs: input::runs::Runs,
    /// Events of all servers, each with its server's socket.
    pub(crate) events: broadcast::Sender<(Arc<Path>, Event)>,
    /// Changes of commands, directories and progress, and notifications. A channel of its own: a
    /// program that floods it displaces no other event.
    pub(crate) command_events: broadcast::Sender<Arc<CommandEvent>>,
    /// How many connections to servers were made so far, on all servers together.
    links: tokio::sync::watch::Sender<u64>,
    /// Sends notes of muxtap's activity in panes.
    activity: broadcast::Sender<Arc<activity::Activity>>,
    pub(crate) cancel: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Cancelled before `cancel`: work that must not be left half done finishes first.
    leaving: CancellationToken,
    works: TaskTracker,
    /// Wakes the janitor: a pane or result was retired and is dropped later, a use began and ends
    /// later, or the memory budget is exceeded.
    pub(crate) retired: tokio::sync::Notify,
    /// The permit to search the output from before a wait that timed out.
    pub(crate) earlier_search: Arc<tokio::sync::Semaphore>,
    /// The turn to compress a pane's history.
    pub(crate) compressing: Arc<tokio::sync::Semaphore>,
    /// Reads processes and terminals, which may hang.
    pub(crate) probe: ProcessProbe,
    compile_queue: compile::CompileQueue,
    /// Positions at which readers of events can resume.
    trails: Arc<events::Trails>,
    /// Bytes held for all panes: output and screens.
    pub(crate) held_bytes: std::sync::atomic::AtomicUsize,
    /// Ties cursors to this engine.
    nonce: u64,
    /// Callbacks for what happens in the panes of every server.
    hooks: PaneHooks,
    /// The runtime in which the engine was started.
    runtime: Handle,
    started: Instant,
}

/// What an engine continues.
struct Past {
    /// Ties cursors to this engine, and to those that it continues.
    nonce: u64,
    trails: events::Trails,
    /// The memory of its waits, of which some may be continued.
    budget: Arc<wait::Budget>,
}

impl Default for Past {
    fn default() -> Self {
        Self { nonce: u64::from(nonce::number() as u32), trails: events::Trails::default(), budget: Arc::default() }
    }
}

/// The parts of the engine that are notified of what happens in panes.
const HOOKS: PaneHooks = PaneHooks {
    followed: agents::follow,
    command_ended: spawn::managed::release_wrapper,
    process_ended: spawn::managed::process_ended,
};

impl Engine {
    /// Starts an engine that follows nothing yet. It runs until [`Engine::stop`] or the end of its
    /// runtime; dropping the handles does not stop it.
    ///
    /// The runtime needs I/O and time (`enable_all`). Error: `CONFLICT` outside a tokio runtime.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example() -> muxtap::Result<()> {
    /// let engine = muxtap::Engine::start(muxtap::Options::default())?;
    /// // … and before the program ends, so that tmux is left as it was found:
    /// engine.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(options: Options) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::new(ErrorCode::Conflict, format!("an engine must be started within a tokio runtime: {error}"))
        })?;
        Ok(Self::within(runtime, options, ProcessProbe::default(), Past::default()))
    }

    /// Creates an engine that follows nothing yet. Must be called within a tokio runtime.
    pub fn new(options: Options) -> Self {
        Self::with_probe(options, ProcessProbe::default())
    }

    fn with_probe(options: Options, probe: ProcessProbe) -> Self {
        Self::within(Handle::current(), options, probe, Past::default())
    }

    fn within(runtime: Handle, options: Options, probe: ProcessProbe, past: Past) -> Self {
        let shared = Arc::new(Shared {
            transports: elsewhere::Transports::of(&options.transports),
            waits: Waits::keeping(options.wait_results.as_deref(), past.budget),
            agent_rules: tokio::sync::watch::Sender::new(options.agents.clone()),
            options,
            hosts: Mutex::default(),
            runs: input::runs::Runs::default(),
            events: broadcast::Sender::new(1024),
            command_events: broadcast::Sender::new(1024),
            links: tokio::sync::watch::Sender::new(0),
            activity: activity::channel(),
            cancel: CancellationToken::new(),
            tasks: TaskTracker::new(),
            leaving: CancellationToken::new(),
            works: TaskTracker::new(),
            retired: tokio::sync::Notify::new(),
            earlier_search: Arc::new(tokio::sync::Semaphore::new(1)),
            compressing: Arc::new(tokio::sync::Semaphore::new(1)),
            probe,
            compile_queue: compile::CompileQueue::default(),
            trails: Arc::new(past.trails),
            held_bytes: std::sync::atomic::AtomicUsize::new(0),
            nonce: past.nonce,
            hooks: HOOKS,
            runtime,
            started: Instant::now(),
        });
        shared.tasks.spawn(janitor::run(shared.clone()));
        Self::of(shared)
    }

    /// Returns a handle for the engine's own work.
    fn of(shared: Arc<Shared>) -> Self {
        Self { shared, caller: Arc::default(), reads_only: false, only: None }
    }

    /// Returns the server with this address, which is followed from now on.
    fn host(&self, socket: &Path) -> Result<Arc<Host>> {
        let address = Address::parse(socket)?;
        let socket = &*address.path();
        let program = self.program_for(address)?;
        if self.shared.cancel.is_cancelled() {
            return Err(Error::unavailable("muxtap is stopping"));
        }
        let mut hosts = self.hosts();
        if let Some(host) = find_host(&hosts, socket, socket.is_absolute()) {
            host.touch();
            return Ok(host.clone());
        }
        forget_idle(&mut hosts);
        let host = Host::new(socket, &self.shared);
        self.follow(&host, program);
        hosts.insert(socket.to_owned(), host.clone());
        Ok(host)
    }

    /// Follows the server of a host.
    fn follow(&self, host: &Arc<Host>, program: Program) {
        let server = ServerLink::follow(
            self.server_spec(host, program),
            Arc::new(Reports(Arc::downgrade(host))),
            host.cancel().clone(),
            &self.shared.tasks,
        );
        host.set_server(server);
    }

    /// Returns how the server of a host is reached.
    fn server_spec(&self, host: &Host, program: Program) -> ServerSpec {
        ServerSpec {
            program,
            socket: host.socket().to_owned(),
            coverage: self.shared.options.coverage,
            floods: self.shared.options.floods,
            file: SocketFile::default(),
            own: OwnProgram::default(),
        }
    }

    /// Returns the followed servers that run and that the caller may know, in the order of their
    /// sockets.
    fn followed(&self) -> Vec<Arc<Host>> {
        let mut followed = self.followed_by_caller();
        followed.retain(|host| !matches!(host.server().state(), LinkState::Down { .. }));
        followed
    }

    /// Returns the servers that the caller may know ([`Engine::may_know`]), in the order of their
    /// sockets.
    fn followed_by_caller(&self) -> Vec<Arc<Host>> {
        let mut known: Vec<_> = self.hosts().values().filter(|host| self.may_know(host.socket())).cloned().collect();
        known.sort_by(|a, b| a.socket().cmp(b.socket()));
        known
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<Host>>> {
        self.shared.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the runtime in which the engine was started.
    pub fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    /// Returns the token that is cancelled when the engine ends.
    pub fn end(&self) -> CancellationToken {
        self.shared.cancel.clone()
    }

    /// Spawns a task that ends by itself when the engine ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.spawn(task);
    }

    /// Spawns work that must not be left half done on a server. [`Engine::stop`] waits for the
    /// task, up to [`limits::WORKS`]; the task watches [`Engine::leaving`].
    pub fn spawn_work(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.shared.works.track_future(task);
        self.shared.tasks.spawn(task);
    }

    /// Resolves when the engine begins to stop. Servers are still followed then.
    pub async fn leaving(&self) {
        self.shared.leaving.cancelled().await;
    }

    /// Checks that the engine is not about to stop. Error: `TMUX_UNAVAILABLE`.
    pub fn check_staying(&self) -> Result<()> {
        if self.shared.leaving.is_cancelled() { Err(Error::unavailable("muxtap is stopping")) } else { Ok(()) }
    }

    /// Runs `look` on the probe's thread, where it may block ([`ProcessProbe::run`]).
    pub async fn probe<T: Send + 'static>(
        &self,
        subject: Subject,
        look: impl FnOnce(&Proc) -> T + Send + 'static,
    ) -> Option<T> {
        self.shared.probe.run(subject, look).await
    }

    /// Returns the process with this id and its ancestors, with the root processes of followed
    /// panes marked among them. `None` if the process is unknown.
    pub async fn lineage(&self, pid: Option<i32>) -> Option<Lineage> {
        let pid = u32::try_from(pid?).ok().filter(|pid| *pid > 0)?;
        let local = self.followed().into_iter().filter(|host| host.server().spec().is_local());
        let panes: HashSet<u32> = local
            .flat_map(|host| host.server().topology().panes.iter().map(|pane| pane.pid).collect::<Vec<_>>())
            .collect();
        self.probe(Subject::Process(pid), move |proc| proc.lineage_of(pid, &panes)).await.flatten()
    }

    /// Returns the seconds since the engine was created.
    pub fn uptime_s(&self) -> u64 {
        self.shared.started.elapsed().as_secs()
    }

    /// Returns the number of open waits.
    pub fn open_waits(&self) -> u64 {
        self.shared.waits.open() as u64
    }

    /// Returns each followed server that the caller may know, and its state.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(engine: muxtap::Engine) {
    /// for server in engine.servers() {
    ///     println!("{} is {}, {} panes", server.socket, server.state, server.panes);
    /// }
    /// # }
    /// ```
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.followed_by_caller().iter().map(|host| status(host)).collect()
    }

    /// Returns whether nothing would be lost without this engine: no server is followed, no pane is
    /// readable, and no wait or subscription is open.
    pub fn is_idle(&self) -> bool {
        self.hosts().values().all(Host::is_idle)
    }

    /// Returns each open wait on servers that the caller may know: its condition, its panes and its
    /// deadline.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(engine: muxtap::Engine) {
    /// for wait in engine.waits() {
    ///     println!("{} waits on {:?}", wait.id, wait.panes);
    /// }
    /// # }
    /// ```
    pub fn waits(&self) -> Vec<WaitInfo> {
        let mut waits = self.shared.waits.list();
        waits.retain(|wait| self.may_know(Path::new(&wait.socket)));
        waits
    }

    /// Stops the engine: leaves every server, and waits until nothing of muxtap is left there.
    ///
    /// Open waits end as cancelled. Afterwards, requests that need tmux fail with
    /// `TMUX_UNAVAILABLE`; output that was printed can still be read.
    pub async fn stop(&self) {
        self.shared.waits.cancel_all();
        self.shared.leaving.cancel();
        self.shared.works.close();
        // A server that does not reply delays the end by `limits::WORKS` at most.
        let _ = tokio::time::timeout(limits::WORKS, self.shared.works.wait()).await;
        let hosts: Vec<_> = self.hosts().values().cloned().collect();
        let released = hosts.iter().map(|host| host.release_panes());
        // A server that does not reply delays the end by `limits::RELEASE` at most.
        let _ = tokio::time::timeout(limits::RELEASE, futures_util::future::join_all(released)).await;
        self.shared.cancel.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Returns whether the engine is stopping.
    pub fn is_stopping(&self) -> bool {
        self.shared.cancel.is_cancelled()
    }

    /// Resolves when the engine is stopping.
    pub async fn stopping(&self) {
        self.shared.cancel.cancelled().await;
    }
}

/// Finds the host of a socket by any of its paths, since one server is followed once. Paths on
/// another machine (`local` is false) are compared as text.
fn find_host<'a>(hosts: &'a HashMap<PathBuf, Arc<Host>>, socket: &Path, local: bool) -> Option<&'a Arc<Host>> {
    let named = hosts.get(socket);
    let is_followed = |host: &Host| !matches!(host.server().state(), LinkState::Down { .. });
    // The path that callers use all the time costs no look at the file system.
    if !local || named.is_some_and(|host| is_followed(host)) {
        return named;
    }
    let same = |host: &&Arc<Host>| host.socket().is_absolute() && same_socket(host.socket(), socket);
    // A path on which no server ran so far may have become a link meanwhile.
    let followed = hosts.values().filter(|host| is_followed(host)).find(same);
    followed.or(named).or_else(|| hosts.values().find(same))
}

/// Forgets sockets without a server, except the ones requested last: a mistyped socket costs a
/// watch of its directory.
fn forget_idle(hosts: &mut HashMap<PathBuf, Arc<Host>>) {
    let idle = hosts.values().filter(|host| host.is_idle());
    let mut idle: Vec<_> = idle.map(|host| (host.last_asked(), host.socket().to_owned())).collect();
    idle.sort();
    // Leaves room for one more.
    let surplus = (idle.len() + 1).saturating_sub(limits::IDLE_HOSTS);
    for (_, socket) in idle.into_iter().take(surplus) {
        if let Some(host) = hosts.remove(&socket) {
            host.cancel().cancel();
        }
    }
}

fn status(host: &Host) -> ServerStatus {
    let topology = host.server().topology().without_hubs();
    let clients = host.server().clients();
    let mut pid = None;
    let (state, version, error) = match host.server().state() {
        LinkState::Connecting => ("connecting", None, None),
        LinkState::Connected(identity) => {
            let spec = host.server().spec();
            let gone = spec.is_local() && !spec.file.is_named(host.socket());
            let message = format!(
                "its socket's file is gone: tmux itself does not find this server, but muxtap does; `kill -USR1 {}` \
                 makes tmux create the file again",
                identity.pid
            );
            pid = Some(identity.pid);
            ("connected", Some(identity.version.to_string()), gone.then_some(message))
        }
        LinkState::Down { error, ended: true, .. } => ("gone", None, Some(error.message)),
        LinkState::Down { error, ended: false, .. } => ("absent", None, Some(error.message)),
    };
    ServerStatus {
        socket: host.socket().display().to_string(),
        state: state.into(),
        pid,
        version,
        coverage: pid.map(|_| host.server().coverage().into()),
        clients,
        sessions: topology.sessions.len() as u32,
        panes: host.pane_count() as u32,
        ring_bytes: host.ring_bytes(),
        error,
    }
}
