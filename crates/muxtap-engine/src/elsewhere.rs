//! Servers on other hosts: the command that reaches each host, and the hosts that targets name.

mod fleet;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all, stream};
use muxtap_api::{
    Error, ErrorCode, FleetHost, HostInfo, HostState, Result, ServerQuery, TargetField, Unreachable, is_host_pattern,
};
use muxtap_tmux::{
    Address, CoverageMode, DEFAULT_SOCKET, Floods, LinkState, OwnProgram, Program, ServerSpec, SocketFile, Transport,
    is_absent,
};

use tokio::sync::watch;

pub use self::fleet::FleetHosts;
use super::{Engine, Host, Principal, Server};

/// The hosts that targets can name.
#[derive(Debug, Default)]
pub(crate) struct Transports {
    known: Mutex<BTreeMap<String, Arc<Transport>>>,
    fleet: watch::Sender<FleetHosts>,
}

/// How long a request that names a host waits until the daemon has joined its fleet.
const JOIN_LIMIT: Duration = Duration::from_secs(5);

/// The most other hosts that can be known.
const MOST_HOSTS: usize = 256;

/// The most hosts of a fleet that can be known.
const MOST_IN_FLEET: usize = 4096;

/// How long a list over all hosts waits for one of them.
pub(super) const LIST_LIMIT: Duration = Duration::from_secs(3);

/// The most hosts that a list over all hosts asks at once.
pub(super) const ASKED_AT_ONCE: usize = 32;

impl Transports {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Transport>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the set of configured hosts.
    pub(super) fn of(transports: &[Arc<Transport>]) -> Self {
        let named = transports.iter().map(|transport| (transport.name().to_owned(), transport.clone()));
        Self { known: Mutex::new(named.collect()), ..Self::default() }
    }

    /// Adds a host. Error: `CONFLICT` if the name belongs to another host.
    fn add(&self, transport: Transport) -> Result<()> {
        let mut hosts = self.lock();
        match hosts.get(transport.name()) {
            Some(known) if known.is_same(&transport) => {}
            Some(known) => {
                return Err(Error::new(
                    ErrorCode::Conflict,
                    format!(
                        "host {} is already reached by `{}`; choose another name, as in --via NAME=COMMAND",
                        known.name(),
                        known.prefix()
                    ),
                ));
            }
            None if hosts.values().filter(|known| known.is_in_fleet() == transport.is_in_fleet()).count()
                >= (if transport.is_in_fleet() { MOST_IN_FLEET } else { MOST_HOSTS }) =>
            {
                let most = if transport.is_in_fleet() { MOST_IN_FLEET } else { MOST_HOSTS };
                let message = format!("too many hosts: {most} are known already");
                return Err(Error::new(ErrorCode::ResourceLimit, message));
            }
            None => drop(hosts.insert(transport.name().to_owned(), Arc::new(transport))),
        }
        Ok(())
    }

    /// Returns whether no target can name a host, now or later.
    pub(super) fn is_empty(&self) -> bool {
        *self.fleet.borrow() == FleetHosts::None && self.lock().is_empty()
    }

    /// Returns the names of all hosts.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.lock().keys().cloned().collect()
    }

    fn get(&self, name: &str) -> Option<Arc<Transport>> {
        self.lock().get(name).cloned()
    }

    /// Splits `HOST/TARGET` if the host is known. tmux allows a `/` in names, so any other word
    /// before a `/` is part of the target.
    fn split<'t>(&self, target: &'t str) -> Option<(String, &'t str)> {
        let (host, rest) = target.split_once('/')?;
        self.lock().contains_key(host).then(|| (host.to_owned(), rest))
    }
}

impl Engine {
    /// Makes the tmux servers of another host reachable, by a command that runs programs there,
    /// such as `["ssh", "box"]` or `["docker", "exec", "-i", "web"]`.
    ///
    /// Nothing is run yet. The host's default server is `server_at("box/")`; others are `box/NAME`
    /// (`tmux -L`) and `box//PATH` (`tmux -S`).
    ///
    /// Errors: `INVALID_ARGUMENT` for an unusable name or command, `CONFLICT` if the name belongs
    /// to another host.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(engine: muxtap::Engine) -> muxtap::Result<()> {
    /// engine.add_host("box", ["ssh", "me@box"])?;
    /// let pane = engine.server("box/").await?.pane("work").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_host(&self, name: &str, command: impl IntoIterator<Item = impl Into<String>>) -> Result<()> {
        let words = command.into_iter().map(Into::into).collect();
        self.add_transport(Transport::new(name, words, "tmux")?)
    }

    /// Adds a host by its transport.
    pub fn add_transport(&self, transport: Transport) -> Result<()> {
        self.shared.transports.add(transport)
    }

    /// Forgets a host that was added while the engine runs, and leaves its servers. They stay as they
    /// are.
    ///
    /// Errors: `NOT_FOUND` for an unknown host; `CONFLICT` for a configured one, and while a request, a
    /// wait or a stream uses one of its servers.
    pub async fn forget_host(&self, name: &str) -> Result<()> {
        if self.is_configured(name) {
            let message = format!("host {name} is configured: remove [host.{name}] from config.toml");
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        let left = {
            let (mut hosts, mut transports) = (self.hosts(), self.shared.transports.lock());
            if !transports.contains_key(name) {
                return Err(Error::not_found(format!("no host {name}; `muxtap hosts` lists the hosts")));
            }
            let sockets: Vec<_> = hosts.keys().filter(|socket| is_on(socket, name)).cloned().collect();
            if hosts.values().any(|host| is_on(host.socket(), name) && Arc::strong_count(host) > 1) {
                let message = format!("host {name} is in use: end the waits and streams that use its panes first");
                return Err(Error::new(ErrorCode::Conflict, message));
            }
            transports.remove(name);
            sockets.iter().filter_map(|socket| hosts.remove(socket)).collect::<Vec<_>>()
        };
        for host in left {
            host.release_panes().await;
            host.cancel().cancel();
        }
        Ok(())
    }

    /// Returns whether the host was there when the engine was created.
    fn is_configured(&self, name: &str) -> bool {
        self.shared.options.transports.iter().any(|transport| transport.name() == name)
    }

    /// Returns the program that connects to the server with this address.
    pub(super) fn program_for(&self, address: Address<'_>) -> Result<Program> {
        let options = &self.shared.options;
        let Address::Elsewhere(host, _) = address else { return Ok(options.program.clone()) };
        let transport = self.transport(host)?;
        if transport.is_in_fleet() {
            let message = format!(
                "host {host}: a fleet carries requests to its muxtap, not to its tmux; this one needs the host's tmux \
                 (docs/fleet.md)"
            );
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        let limit = options.program.limit;
        Ok(Program { transport: Some(transport), own: false, config: None, limit, ..options.program.clone() })
    }

    /// Returns the transport to a host. Errors: `INVALID_ARGUMENT` if no host has this name,
    /// `TMUX_UNAVAILABLE` if one may have it when the fleet is joined, `UNAUTHORIZED` for a member of the
    /// fleet: what it may do on this host opens no way to others.
    pub fn transport(&self, host: &str) -> Result<Arc<Transport>> {
        if let Principal::Fleet(_) = self.caller().principal {
            return Err(unknown_host(host));
        }
        self.shared.transports.get(host).ok_or_else(|| {
            if self.shared.transports.may_join(host) {
                return fleet::unjoined(host);
            }
            let known: Vec<_> = self.shared.transports.lock().keys().cloned().collect();
            let known =
                if known.is_empty() { "none is configured".into() } else { format!("known: {}", known.join(", ")) };
            Error::invalid(format!(
                "socket: unknown host {host} in {host}/… ({known}); expected an absolute path, a name as for \
                 `tmux -L`, or HOST/NAME (docs/hosts.md)"
            ))
        })
    }

    /// Takes the host out of a request's targets, such as `NAME/%3`, and selects that host's server.
    /// `visit`: passes each field that names targets to its argument. Returns the host that the
    /// request is for; `None`: this one.
    ///
    /// Errors: `INVALID_ARGUMENT` if the targets name several places, `TMUX_UNAVAILABLE` if one may name a
    /// host of a fleet that is not joined yet.
    pub fn place(
        &self,
        at: &mut ServerQuery,
        visit: impl FnOnce(&mut dyn FnMut(TargetField<'_>)),
    ) -> Result<Option<String>> {
        if self.shared.transports.is_empty() {
            return Ok(None);
        }
        let mut named = NamedHosts::default();
        visit(&mut |field| match field {
            TargetField::One(target) => self.take_host(target, &mut named),
            TargetField::Listed(targets) if targets.contains('/') => {
                let mut items: Vec<String> = muxtap_api::items(targets).map(str::to_owned).collect();
                for item in &mut items {
                    self.take_host(item, &mut named);
                }
                *targets = items.join(",");
            }
            TargetField::Listed(targets) => named.local |= !targets.is_empty(),
        });
        let Some(host) = named.one()? else {
            let host = at.socket.as_deref().and_then(|socket| socket.split_once('/')).map(|(host, _)| host.to_owned());
            return Ok(host.filter(|host| !host.is_empty()));
        };
        if at.socket.as_ref().is_none_or(|socket| !is_on(socket.as_ref(), &host)) {
            *at = ServerQuery { socket: Some(default_server(&host)), from: None };
        }
        Ok(Some(host))
    }

    /// Removes the host from a target and adds it to `named`.
    fn take_host(&self, target: &mut String, named: &mut NamedHosts) {
        if let Some((host, rest)) = self.shared.transports.split(target) {
            *target = rest.to_owned();
            named.hosts.push(host);
        } else {
            named.local |= !target.is_empty();
            let host = target.split_once('/').map(|(host, _)| host).filter(|host| is_host_pattern(host));
            named.pattern = named.pattern.take().or_else(|| host.map(|_| target.clone()));
            named.unjoined = named.unjoined.take().or_else(|| self.shared.transports.check_joined(target).err());
        }
    }

    /// Returns whether a host with this name is known and is the container of that name. Error:
    /// `CONFLICT` if the name belongs to another host.
    pub fn reaches_container(&self, container: &str) -> Result<bool> {
        let Some(transport) = self.shared.transports.get(container) else { return Ok(false) };
        if transport.is_container(container) {
            return Ok(true);
        }
        let message = format!(
            "the host {container} is reached by `{}`, which is not the container {container}; name the server itself \
             (-L {container}/) if it is meant",
            transport.prefix()
        );
        Err(Error::new(ErrorCode::Conflict, message))
    }

    /// Adds to the error that tmux does not respond that its server is on another host: the link or the
    /// container may be the cause.
    pub fn explained_of(&self, host: &str, mut error: Error) -> Error {
        let is_named = error.details.as_ref().is_some_and(|details| details.get("host").is_some());
        if muxtap_tmux::is_unanswered(&error)
            && !is_named
            && let Some(transport) = self.shared.transports.get(host)
        {
            let prefix = transport.prefix();
            error.message = format!(
                "{} It is on the host {host}, and its link may be stalled: does `{prefix} true` work?",
                error.message
            );
        }
        error
    }

    /// Examines each host that is not connected, without attaching to it. Returns all hosts with
    /// what was found.
    pub async fn look_elsewhere(&self) -> Vec<HostInfo> {
        let looks = self.hosts_elsewhere().into_iter().map(|host| async {
            if host.state == HostState::Connected {
                return host;
            }
            let address = PathBuf::from(default_server(&host.name));
            let program = Address::parse(&address).and_then(|address| self.program_for(address));
            match program {
                Ok(program) => look_at(host, program, address).await,
                Err(_) => host,
            }
        });
        join_all(looks).await
    }

    /// Lists items of `server`, by `list`, and of the default servers of all other hosts, by `there`.
    /// Also returns the hosts that gave no list, without those of a fleet that do not offer it to this
    /// caller. A host of which `server` is one is not listed twice.
    pub async fn list_everywhere<T, H, F>(
        &self,
        server: Server,
        list: impl Fn(Server) -> H,
        there: impl Fn(String) -> F,
    ) -> Result<(Vec<T>, Vec<HostInfo>)>
    where
        H: Future<Output = Result<Vec<T>>>,
        F: Future<Output = Result<Vec<T>>>,
    {
        let mut hosts = self.hosts_elsewhere();
        hosts.retain(|host| !is_on(server.socket(), &host.name));
        let each = hosts.into_iter().map(|mut host| async {
            let listed = async {
                // A host that was unreachable lately is retried by itself, and when a request names
                // it.
                if host.state == HostState::Down {
                    return Err(Error::unavailable(host.error.clone().unwrap_or_default()));
                }
                there(host.name.clone()).await
            };
            let late = || Err(Error::unavailable(format!("host {}: it has not replied yet", host.name)));
            match tokio::time::timeout(LIST_LIMIT, listed).await.unwrap_or_else(|_| late()) {
                Ok(items) => Ok(items),
                // The host is there, and has nothing for this caller.
                Err(error)
                    if host.fleet.is_some() && matches!(error.code, ErrorCode::Unauthorized | ErrorCode::ReadOnly) =>
                {
                    Ok(Vec::new())
                }
                Err(error) => {
                    host.error = Some(error.message);
                    Err(host)
                }
            }
        });
        let there = stream::iter(each).buffered(ASKED_AT_ONCE).collect::<Vec<_>>();
        let (here, there) = tokio::join!(list(server), there);
        let mut unreachable = Vec::new();
        let mut items = Vec::new();
        for listed in there {
            match listed {
                Ok(listed) => items.extend(listed),
                Err(host) => unreachable.push(host),
            }
        }
        match here {
            Ok(mut listed) => {
                listed.extend(items);
                Ok((listed, unreachable))
            }
            // Servers run on other hosts, but not on this one.
            Err(error) if !items.is_empty() && is_absent(&error) => Ok((items, unreachable)),
            Err(mut error) => {
                // The server that the caller wants may be on a host that gave no list.
                for host in &unreachable {
                    error.message = format!("{}; {}", error.message, host.error.as_deref().unwrap_or(&host.name));
                }
                Err(error)
            }
        }
    }

    /// Returns each known host with its state; no host to a member of the fleet.
    pub fn hosts_elsewhere(&self) -> Vec<HostInfo> {
        if let Principal::Fleet(_) = self.caller().principal {
            return Vec::new();
        }
        let transports: Vec<_> = self.shared.transports.lock().values().cloned().collect();
        let followed: Vec<_> = self.hosts().values().cloned().collect();
        let info = |transport: &Arc<Transport>| HostInfo {
            configured: self.is_configured(transport.name()),
            ..host_info(transport, &followed)
        };
        transports.iter().map(info).collect()
    }
}

/// Examines a host and returns what was found.
async fn look_at(mut host: HostInfo, program: Program, address: PathBuf) -> HostInfo {
    let (file, own) = (SocketFile::default(), OwnProgram::default());
    let (coverage, floods) = (CoverageMode::default(), Floods::default());
    let spec = ServerSpec { program, socket: address, coverage, floods, file, own };
    host.error = None;
    host.reason = None;
    match spec.look_elsewhere().await {
        Ok(true) => host.state = HostState::Unasked,
        Ok(false) => {
            host.state = HostState::Unasked;
            host.error = Some(format!("no tmux server runs there; `muxtap -L {}/ new-session` starts one", host.name));
        }
        Err(error) => {
            host.state = HostState::Down;
            host.reason = reason_of(&error);
            host.error = Some(error.message);
        }
    }
    host
}

/// Examines hosts, for a process without an engine.
pub async fn look_at_hosts(transports: Vec<Transport>) -> Vec<HostInfo> {
    let looks = transports.into_iter().map(|transport| {
        let transport = Arc::new(transport);
        let host = host_info(&transport, &[]);
        let address = PathBuf::from(default_server(transport.name()));
        look_at(host, Program { transport: Some(transport), own: false, ..Program::default() }, address)
    });
    join_all(looks).await
}

fn reason_of(error: &Error) -> Option<Unreachable> {
    let reason = error.details.as_ref().and_then(|details| details.get("reason"));
    reason.and_then(|reason| serde_json::from_value(reason.clone()).ok())
}

/// The hosts that the targets of one request name.
#[derive(Default)]
struct NamedHosts {
    hosts: Vec<String>,
    /// Whether one of the targets names no host.
    local: bool,
    /// A target that may be on several hosts.
    pattern: Option<String>,
    /// The error for a target that may be on a host that is not known yet.
    unjoined: Option<Error>,
}

impl NamedHosts {
    /// Returns the only host. Errors: as for [`Engine::place`].
    fn one(mut self) -> Result<Option<String>> {
        if let Some(target) = self.pattern {
            let message = format!(
                "{target}: this request is for one host, and the target may name several; expected a host's name \
                 before the `/`, or `={target}` for a session of this host"
            );
            return Err(Error::invalid(message));
        }
        if let Some(error) = self.unjoined {
            return Err(error);
        }
        let Some(host) = self.hosts.pop() else { return Ok(None) };
        if self.local || self.hosts.iter().any(|other| *other != host) {
            return Err(Error::invalid(format!("a request is for one host: not all of these targets are on {host}")));
        }
        Ok(Some(host))
    }
}

/// Returns the error for a member of the fleet that names a host.
pub(super) fn unknown_host(host: &str) -> Error {
    let message = format!("host {host}: a member of the fleet can use this host only, not others by way of it");
    Error::new(ErrorCode::Unauthorized, message)
}

/// Returns whether an address names a server on `host`.
pub fn is_on(address: &Path, host: &str) -> bool {
    matches!(Address::parse(address), Ok(Address::Elsewhere(other, _)) if other == host)
}

/// Returns the address of a host's default server.
pub fn default_server(host: &str) -> String {
    format!("{host}/{DEFAULT_SOCKET}")
}

fn host_info(transport: &Transport, followed: &[Arc<Host>]) -> HostInfo {
    let mut info = HostInfo {
        name: transport.name().into(),
        command: transport.prefix(),
        configured: true,
        state: HostState::Unasked,
        servers: Vec::new(),
        fleet: transport.is_in_fleet().then(FleetHost::default),
        peer: None,
        reason: None,
        error: None,
    };
    for host in followed.iter().filter(|host| is_on(host.socket(), transport.name())) {
        info.servers.push(host.socket().display().to_string());
        match host.server().state() {
            LinkState::Connected(_) => info.state = HostState::Connected,
            LinkState::Connecting if info.state == HostState::Unasked => info.state = HostState::Connecting,
            LinkState::Down { error, .. } if info.state != HostState::Connected => {
                info.state = HostState::Down;
                info.reason = reason_of(&error);
                info.error = Some(error.message);
            }
            _ => {}
        }
    }
    info.servers.sort();
    info
}

impl Server {
    /// Returns the name of the host on which the server runs, or `None` for this machine.
    pub fn host_name(&self) -> Option<&str> {
        host_of(self.socket())
    }
}

/// Returns the name of the host of a server's address, or `None` for this machine.
pub(crate) fn host_of(socket: &Path) -> Option<&str> {
    match Address::parse(socket) {
        Ok(Address::Elsewhere(host, _)) => Some(host),
        _ => None,
    }
}
