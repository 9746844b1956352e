//! The handle of a tmux server.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use muxtap_api::{Error, Event, EventKind, Result, SubscribeRequest};
use muxtap_core::protocol::ids::PaneId;
use muxtap_tmux::{Address, Environment, FollowAll, ServerChoice, ServerLink, same_socket};
use rustix::net::SocketAddrUnix;
use tokio::sync::broadcast;

use super::{Events, Pane, Spawn, Wait, spawn::SpawnKind};

use crate::{Caller, Engine, Host, PaneState};

/// A handle on a tmux server that an engine follows.
///
/// The handle is cheap to clone; clones mean the same server. The engine follows the server for as
/// long as it runs, with or without a handle. If the server ends and another one starts on its
/// socket, requests go to the new server, whereas a [`Pane`] belongs to the server that had it.
///
/// ```no_run
/// # use muxtap_engine as muxtap;
/// # async fn example() -> muxtap::Result<()> {
/// let engine = muxtap::Engine::start(muxtap::Options::default())?;
/// let server = engine.server("/tmp/tmux-1000/default").await?;
/// for pane in server.panes().await? {
///     println!("{} runs {}", pane.id, pane.command);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server {
    pub(crate) engine: Engine,
    pub(crate) host: Arc<Host>,
    /// The panes that ids mean in a request of a handle, so that an id never means another server's
    /// pane.
    pub(crate) bound: Option<Arc<[Arc<PaneState>]>>,
    /// The caller's own pane, to which targets are relative.
    pub(crate) from: Option<PaneId>,
}

impl Engine {
    /// Returns the server on the socket at this absolute path, once it is followed: from then on
    /// its panes can be read and waited for.
    ///
    /// Errors: `INVALID_ARGUMENT` for a path that is not absolute, `TMUX_UNAVAILABLE` if no server
    /// runs on the socket, or one that muxtap does not support ([`Engine::server_at`] accepts a
    /// server that does not run yet).
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(engine: muxtap::Engine) -> muxtap::Result<()> {
    /// let server = engine.server("/tmp/tmux-1000/default").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn server(&self, socket: impl AsRef<Path>) -> Result<Server> {
        let server = self.server_at(socket.as_ref())?;
        server.link().fresh().await?;
        Ok(server)
    }

    /// Returns the server on the socket at this absolute path, running or not, and follows it from
    /// now on. [`Server::new_session`] can then start it.
    ///
    /// Error: `INVALID_ARGUMENT` for a path that is not absolute.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(engine: muxtap::Engine) -> muxtap::Result<()> {
    /// let server = engine.server_at("/tmp/tmux-1000/fresh".as_ref())?;
    /// let pane = server.new_session().name("work").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn server_at(&self, socket: &Path) -> Result<Server> {
        Ok(Server::of(self.clone(), self.host(socket)?))
    }

    /// Returns the running servers that the engine follows, ordered by socket.
    pub fn followed_servers(&self) -> Vec<Server> {
        self.followed().into_iter().map(|host| Server::of(self.clone(), host)).collect()
    }

    /// Returns the pane with this key ([`Pane::key`]), live or ended and still readable.
    pub fn pane_of_key(&self, key: &str) -> Option<Pane> {
        let id = PaneId(key.rsplit('.').next()?.parse().ok()?);
        let hosts: Vec<_> = self.hosts().values().cloned().collect();
        hosts.into_iter().find_map(|host| {
            let ended = host.ended_panes().into_iter().rev().filter(|pane| pane.id() == id);
            let panes: Vec<_> = host.live_pane(id).into_iter().chain(ended).collect();
            let server = Server::of(self.clone(), host);
            panes.into_iter().map(|pane| Pane::of(server.clone(), pane)).find(|pane| pane.key() == key)
        })
    }

    /// Returns the server that a caller names, by the absolute path of its socket or by its name
    /// for `tmux -L`. Without a name: the only followed server, if there is exactly one; else the
    /// server named `default`, whatever `$TMUX` contains. The server need not run yet, and is
    /// followed from now on.
    ///
    /// Error: `INVALID_ARGUMENT` for any other word, and without a name if several servers are
    /// followed and none of them is the default one.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(engine: muxtap::Engine) -> muxtap::Result<()> {
    /// let pane = engine.server_named(Some("build"))?.pane("main").await?;
    /// let only = engine.server_named(None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn server_named(&self, socket: Option<&str>) -> Result<Server> {
        match socket {
            Some(word) => self.server_at(&self.socket_named(word)?),
            None => self.only_or_default_server(),
        }
    }

    /// Returns the path of the socket that a caller names. Follows nothing.
    pub fn socket_named(&self, word: &str) -> Result<PathBuf> {
        let invalid = |message: String| Err(Error::invalid(format!("socket: {message}")));
        if word.is_empty() {
            return invalid("it is empty; leave it out, or give the path or the name of a tmux socket".into());
        }
        let path = match word {
            _ if word.starts_with('/') => PathBuf::from(word),
            _ if word.contains('/') => {
                let Ok(address) = Address::parse(Path::new(word)) else {
                    return invalid(format!("{word:?} is neither an absolute path nor HOST/NAME of another host"));
                };
                if let Address::Elsewhere(host, _) = address {
                    self.transport(host)?;
                }
                address.path()
            }
            "." | ".." => {
                return invalid(format!(
                    "{word:?} is neither an absolute path nor a name as for `tmux -L`, which has no /"
                ));
            }
            _ => socket_dir()?.join(word),
        };
        // On remote hosts their own systems decide.
        let local = path.is_absolute();
        if path.as_os_str().as_bytes().contains(&0) || local && SocketAddrUnix::new(&path).is_err() {
            let length = path.as_os_str().len();
            return invalid(format!(
                "a path of {length} bytes is not a valid socket path; it must be shorter (107 bytes on Linux) and have \
                 no NUL"
            ));
        }
        self.check_server(&path)?;
        Ok(path)
    }

    /// Returns the server for a caller that names none.
    fn only_or_default_server(&self) -> Result<Server> {
        let followed = self.followed();
        if let [only] = followed.as_slice() {
            only.touch();
            return Ok(Server::of(self.clone(), only.clone()));
        }
        let default = socket_dir()?.join("default");
        if followed.is_empty() || followed.iter().any(|host| same_socket(host.socket(), &default)) {
            return self.server_at(&default);
        }
        let sockets: Vec<_> = followed.iter().map(|host| host.socket().display().to_string()).collect();
        let message = format!("socket: several tmux servers are followed; choose one of {}", sockets.join(", "));
        Err(Error::invalid(message).with_details(serde_json::json!({ "candidates": sockets })))
    }
}

/// Returns the directory of this user's named tmux sockets.
pub(crate) fn socket_dir() -> Result<PathBuf> {
    environment(&|name| std::env::var_os(name)).socket_dir()
}

/// Returns this process's environment.
fn environment(var: &dyn Fn(&str) -> Option<OsString>) -> Environment<'_> {
    Environment { var, uid: rustix::process::getuid().as_raw() }
}

impl Server {
    /// Returns the server that `tmux` without `-L` and `-S` would use in this process: the server
    /// of `$TMUX`, else the one named `default` in `$TMUX_TMPDIR` or `/tmp`. The server need not
    /// run yet ([`Server::new_session`]).
    ///
    /// Error: `INVALID_ARGUMENT` if there is no directory for tmux's sockets.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(engine: muxtap::Engine) -> muxtap::Result<()> {
    /// let server = muxtap::Server::for_environment(&engine)?;
    /// println!("{}", server.socket().display());
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_environment(engine: &Engine) -> Result<Self> {
        engine.server_at(&environment(&|name| std::env::var_os(name)).resolve(&ServerChoice::default())?)
    }

    pub(crate) fn of(engine: Engine, host: Arc<Host>) -> Self {
        Self { engine, host, bound: None, from: None }
    }

    /// Returns the engine's own state of the server.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Returns the link to the server.
    pub fn link(&self) -> &ServerLink {
        self.host.server()
    }

    /// Returns the engine that follows the server.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the path of the server's socket.
    pub fn socket(&self) -> &Path {
        self.host.socket()
    }

    /// Returns the pane that a target names: an id or a text (`%3`, `work:1.0`, `work:build`,
    /// `work`). A window or a session means its active pane.
    ///
    /// Errors: `INVALID_TARGET`, `NOT_FOUND`, `AMBIGUOUS_TARGET`, `TMUX_UNAVAILABLE`.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// let pane = server.pane("work:build").await?;
    /// println!("{}", pane.id());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pane(&self, target: impl ToString + Send) -> Result<Pane> {
        let target = target.to_string();
        Ok(Pane::of(self.clone(), self.resolve_pane(&target).await?))
    }

    /// Returns the events of all servers from now on, each with its server's socket. Events that
    /// only a pane's reader can find are left out: output, screens, bells, gaps, ends.
    pub fn announcements(&self) -> broadcast::Receiver<(Arc<Path>, Event)> {
        self.engine.shared.events.subscribe()
    }

    /// Returns this server for a caller in one of its panes: `:2`, `.1` and `+` are relative to
    /// that pane.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server, own: muxtap::Pane) -> muxtap::Result<()> {
    /// let beside = server.seen_from(own.id()).pane("+").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn seen_from(&self, pane: PaneId) -> Self {
        Self { from: Some(pane), ..self.clone() }
    }

    /// Follows all panes of the server, including future ones, until the guard is dropped.
    pub fn follow_all(&self) -> FollowAll {
        let shared = Arc::downgrade(&self.engine.shared);
        // After that, the janitor has an end of use to schedule.
        self.link().follow_all(move || {
            if let Some(shared) = shared.upgrade() {
                shared.retired.notify_one();
            }
        })
    }

    /// Returns the live pane with this id.
    pub fn live_pane(&self, id: PaneId) -> Option<Pane> {
        self.host.live_pane(id).map(|pane| Pane::of(self.clone(), pane))
    }

    /// Returns this server for a caller, to which its requests are attributed in limits and in the
    /// audit log.
    pub fn called_by(&self, caller: Caller) -> Self {
        Self { engine: self.engine.with_caller(caller), ..self.clone() }
    }

    /// Returns this server for requests of handles on these panes.
    pub(super) fn bound_to(&self, panes: impl IntoIterator<Item = Arc<PaneState>>) -> Self {
        Self { bound: Some(panes.into_iter().collect()), ..self.clone() }
    }

    /// Prepares a wait on several panes of this server: for the first that satisfies it, or for all
    /// ([`Wait::all_panes`]). A pane of another server is an `INVALID_ARGUMENT`.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// let (front, back) = (server.pane("web:front").await?, server.pane("web:back").await?);
    /// let ready = server.wait([&front, &back]).pattern("listening on")?.all_panes().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait<'a>(&self, panes: impl IntoIterator<Item = &'a Pane>) -> Wait {
        Wait::on(self.clone(), panes.into_iter().cloned().collect())
    }

    /// Subscribes to events of these kinds. Without kinds: to all except output and screens.
    ///
    /// Error: `TMUX_UNAVAILABLE`.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// use muxtap::api::{Event, EventKind};
    ///
    /// let mut events = server.events([EventKind::PaneOpened, EventKind::PaneExited]).await?;
    /// while let Some(event) = events.next().await? {
    ///     if let Event::PaneExited { pane, exit_status, .. } = event {
    ///         println!("{pane} ended with {exit_status:?}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn events(&self, kinds: impl IntoIterator<Item = EventKind>) -> Result<Events> {
        let request = SubscribeRequest { types: kinds.into_iter().collect(), ..SubscribeRequest::default() };
        Ok(Events::of(self.subscribe(&request).await?))
    }

    /// Prepares a new session. If no server runs, one is started, with this process's environment.
    /// In a session of a running server, only the variables of tmux's `update-environment`
    /// (`DISPLAY`, `SSH_AUTH_SOCK` …) come from this process.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// let pane = server.new_session().name("work").command(["make", "test"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new_session(&self) -> Spawn {
        Spawn::new(self.clone(), SpawnKind::Session)
    }

    /// Prepares a new window in a session. The session's current window stays current.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// let pane = server.new_window("work").name("build").keep().shell_command("make -j8").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new_window(&self, session: impl Into<String>) -> Spawn {
        Spawn::new(self.clone(), SpawnKind::Window(session.into()))
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("socket", &self.socket()).finish_non_exhaustive()
    }
}
