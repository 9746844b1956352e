//! A command's environment: its tmux server, its own pane, its daemon.

use std::{collections::BTreeMap, path::PathBuf};

use muxtap_tmux::{Address, DEFAULT_SOCKET, Environment, ServerChoice, check_name};

use super::{
    client::{self, Client},
    output,
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
        })
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
        if !self.starts_daemon {
            let gone = || Error::unavailable("the muxtap daemon has exited");
            return Ok(self.running().await?.ok_or_else(gone)?.comparing_versions());
        }
        let stream = start::connect_or_start(&self.paths, &mut |warning| output::note(warning))?;
        Ok(Client::new(stream, &self.paths, &self.server, self.own_pane.as_deref()).await?.comparing_versions())
    }

    /// Waits until a daemon replaces a lost one; starts one unless a supervisor does. With a
    /// supervisor this takes seconds, and does not block other futures.
    pub(super) async fn reconnect(&self) -> Result<()> {
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
        let names_host = |target: &str| target.split_once('/').is_some_and(|(host, _)| check_name(host).is_ok());
        if self.server.is_absolute() && !target.is_some_and(names_host) { Place::Here } else { Place::PerhapsElsewhere }
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

/// Returns this process's environment variables that are valid UTF-8.
pub(super) fn whole_environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
