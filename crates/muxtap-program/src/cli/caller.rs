//! A command's environment: its tmux server, its own pane, its daemon.

use std::{collections::BTreeMap, path::PathBuf};

use muxtap_tmux::{Address, DEFAULT_SOCKET, Environment, ServerChoice, check_name};

use super::{
    client::{self, Client},
    output,
    remote::Remote,
};

use crate::{
    api::{AddHostAnswer, AddHostRequest, Error, ErrorCode, Result},
    config::paths::{self, Paths},
    daemon::start,
    protocol::ids::PaneId,
};

/// A request's destination, as far as its target shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This host.
    Here,
    /// Another host, or a target with `/` in its name.
    PerhapsElsewhere,
}

/// The environment of one call of the program.
pub(super) struct Caller {
    /// The daemon's files.
    pub(super) paths: Paths,
    /// The tmux server's socket, absolute.
    pub(super) server: PathBuf,
    /// The directory of named tmux sockets, if usable.
    pub(super) sockets: Option<PathBuf>,
    /// The pane in which the program runs and that pane's server socket, independent of `server`.
    pub(super) runs_in: Option<(String, String)>,
    /// Whether results are printed as JSON.
    pub(super) json: bool,
    /// Whether to start the daemon if it is not running.
    starts_daemon: bool,
    /// Whether `-S` or `-L` named the server.
    pub(super) server_is_named: bool,
    /// The pane in which the program runs, if it belongs to `server`.
    own_pane: Option<String>,
    /// The daemon, if it is on another machine, and the token for it. `server` is then a path or a
    /// name of that machine; empty: its daemon's default.
    pub(super) remote: Option<(Remote, String)>,
}

impl Caller {
    pub(super) fn new(choice: &ServerChoice, json: bool) -> Result<Self> {
        let environment = Environment { var: &|name| std::env::var_os(name), uid: paths::uid() };
        let server = environment.resolve(choice)?;
        let own_pane = environment.own_pane(&server).filter(|pane| pane.parse::<PaneId>().is_ok());
        Ok(Self {
            paths: Paths::from_env()?,
            server,
            sockets: environment.socket_dir().ok(),
            runs_in: environment.runs_in(),
            json,
            starts_daemon: true,
            server_is_named: choice.path.is_some() || choice.name.is_some(),
            own_pane,
            remote: None,
        })
    }

    /// Returns a copy for a daemon of another machine. `-S` and `-L` then name a server of that
    /// machine.
    pub(super) fn on_machine(&self, remote: Remote, token: String) -> Self {
        let in_sockets = self.sockets.as_deref().is_some_and(|dir| self.server.parent() == Some(dir));
        let server = match self.server.file_name() {
            _ if !self.server_is_named => PathBuf::new(),
            Some(name) if in_sockets => PathBuf::from(name),
            _ => self.server.clone(),
        };
        Self { remote: Some((remote, token)), server_is_named: self.server_is_named, ..self.on_server(server) }
    }

    /// Returns whether the tmux server is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.remote.is_none() && self.server.is_absolute()
    }

    /// Returns a copy for another daemon and another tmux server.
    pub(super) fn with_private(&self, paths: Paths, server: PathBuf) -> Self {
        Self {
            paths,
            server,
            sockets: self.sockets.clone(),
            runs_in: None,
            json: self.json,
            starts_daemon: self.starts_daemon,
            server_is_named: true,
            own_pane: None,
            remote: self.remote.clone(),
        }
    }

    /// Returns a copy for another tmux server.
    pub(super) fn on_server(&self, server: PathBuf) -> Self {
        self.with_private(self.paths.clone(), server)
    }

    /// Returns a copy that uses only a running daemon: a command that continues after `stop` must
    /// not start the next daemon.
    pub(super) fn without_start(&self) -> Self {
        Self {
            starts_daemon: false,
            server_is_named: self.server_is_named,
            runs_in: self.runs_in.clone(),
            own_pane: self.own_pane.clone(),
            ..self.on_server(self.server.clone())
        }
    }

    /// Makes the daemon reach a remote host by a command, and selects that host's tmux server.
    pub(super) async fn reach(&mut self, via: String, peer: bool, choice: &ServerChoice) -> Result<()> {
        let socket = match choice {
            ServerChoice { path: Some(path), .. } => path.to_str(),
            ServerChoice { name: Some(name), .. } => name.to_str(),
            _ => Some(DEFAULT_SOCKET),
        };
        let socket =
            socket.ok_or_else(|| Error::invalid("the name of a server on a remote host must be valid UTF-8"))?;
        let request = AddHostRequest { via, peer: (!peer).then_some(false), ..AddHostRequest::default() };
        let added: AddHostAnswer = self.client().await?.post("/v1/hosts", &request).await?;
        let address = PathBuf::from(format!("{}/{socket}", added.name));
        Address::parse(&address)?;
        (self.server, self.server_is_named, self.own_pane) = (address, true, None);
        Ok(())
    }

    /// Returns the query of each request.
    pub(super) fn query(&self) -> Result<String> {
        client::query_of(&self.server, self.own_pane.as_deref())
    }

    /// Connects to the daemon; starts it if it is not running.
    pub(super) async fn client(&self) -> Result<Client> {
        if let Some((remote, token)) = &self.remote {
            return self.at(remote, token).await;
        }
        if !self.starts_daemon {
            let gone = || Error::unavailable("the muxtap daemon has exited");
            return Ok(self.running().await?.ok_or_else(gone)?.comparing_versions());
        }
        let stream = start::connect_or_start(&self.paths, &mut |warning| output::note(warning))?;
        Ok(Client::new(stream, &self.paths, &self.server, self.own_pane.as_deref()).await?.comparing_versions())
    }

    /// Connects to a daemon of another machine.
    async fn at(&self, remote: &Remote, token: &str) -> Result<Client> {
        let client = Client::remote(remote, &self.paths, &self.server).await?;
        Ok(client.with_bearer(token.to_owned()).comparing_versions())
    }

    /// Waits until a daemon replaces a lost one; starts one unless a supervisor does. With a
    /// supervisor this takes seconds, and does not block other futures.
    pub(super) async fn reconnect(&self) -> Result<()> {
        if self.remote.is_some() {
            return Ok(());
        }
        let paths = self.paths.clone();
        let connect = move || start::connect_or_start(&paths, &mut |warning| output::note(warning)).map(drop);
        let connected = tokio::task::spawn_blocking(connect).await;
        connected.unwrap_or_else(|error| Err(Error::internal(error.to_string())))
    }

    /// Connects to the daemon's socket without HTTP; starts the daemon if it is not running.
    pub(super) fn stream(&self) -> Result<std::os::unix::net::UnixStream> {
        start::connect_or_start(&self.paths, &mut |warning| output::note(warning))
    }

    /// Connects to the daemon. `None`: no daemon is running.
    pub(super) async fn running(&self) -> Result<Option<Client>> {
        if let Some((remote, token)) = &self.remote {
            return self.at(remote, token).await.map(Some);
        }
        match start::connect(&self.paths)? {
            Some(stream) => {
                let client = Client::new(stream, &self.paths, &self.server, self.own_pane.as_deref()).await?;
                Ok(Some(client.without_start()))
            }
            None => Ok(None),
        }
    }

    /// Returns the place of a target.
    pub(super) fn place(&self, target: Option<&str>) -> Place {
        let names_host = target.and_then(host_of).is_some();
        if self.server.is_absolute() && !names_host { Place::Here } else { Place::PerhapsElsewhere }
    }

    /// Returns the given target, else the caller's own pane, as tmux's commands do.
    pub(super) fn target(&self, named: Option<String>) -> Result<String> {
        named.or_else(|| self.own_pane.clone()).ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidTarget,
                format!(
                    "missing -t: this command does not run in a pane of the tmux server {}; `muxtap list-panes` lists \
                     the panes",
                    self.server.display()
                ),
            )
        })
    }
}

/// Returns the host that a target names, if it may name one.
pub(super) fn host_of(target: &str) -> Option<&str> {
    target.split_once('/').map(|(host, _)| host).filter(|host| check_name(host).is_ok())
}

/// Returns this process's environment variables that are valid UTF-8.
pub(super) fn whole_environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
