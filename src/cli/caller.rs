//! The surroundings of a command: its tmux server, its own pane, its daemon.

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

/// Where a request goes, as far as its words tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To this host.
    Here,
    /// To another one, or to what has a `/` in its name.
    PerhapsElsewhere,
}

/// The surroundings of one call of the program.
pub(super) struct Caller {
    /// The daemon's files.
    pub(super) paths: Paths,
    /// The tmux server's socket, absolute.
    pub(super) server: PathBuf,
    /// The directory of the tmux sockets that have names, where it can be used.
    pub(super) sockets: Option<PathBuf>,
    /// The pane this runs in and its server's socket, whatever server is meant.
    pub(super) runs_in: Option<(String, String)>,
    /// Whether answers are printed as JSON.
    pub(super) json: bool,
    /// Whether a daemon is started where none runs.
    starts_daemon: bool,
    /// Whether `-S` or `-L` named the server.
    pub(super) server_is_named: bool,
    /// The pane this runs in, when it is one of the server `server`.
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

    /// Returns a copy that asks only a daemon that runs: what goes on with one that was stopped must
    /// not start the next one.
    pub(super) fn without_start(&self) -> Self {
        Self {
            starts_daemon: false,
            server_is_named: self.server_is_named,
            runs_in: self.runs_in.clone(),
            own_pane: self.own_pane.clone(),
            ..self.on_server(self.server.clone())
        }
    }

    /// Has the daemon reach another host by a command, and means the tmux server there from now on.
    pub(super) async fn reach(&mut self, via: String, peer: bool, choice: &ServerChoice) -> Result<()> {
        let socket = match choice {
            ServerChoice { path: Some(path), .. } => path.to_str(),
            ServerChoice { name: Some(name), .. } => name.to_str(),
            _ => Some(DEFAULT_SOCKET),
        };
        let socket = socket.ok_or_else(|| Error::invalid("the name of a server on another host must be UTF-8"))?;
        let request = AddHostRequest { via, peer: (!peer).then_some(false), ..AddHostRequest::default() };
        let added: AddHostAnswer = self.client().await?.post("/v1/hosts", &request).await?;
        let address = PathBuf::from(format!("{}/{socket}", added.name));
        Address::parse(&address)?;
        (self.server, self.server_is_named, self.own_pane) = (address, true, None);
        Ok(())
    }

    /// Returns the query that each request has.
    pub(super) fn query(&self) -> Result<String> {
        client::query_of(&self.server, self.own_pane.as_deref())
    }

    /// Connects to the daemon; starts it when none runs.
    pub(super) async fn client(&self) -> Result<Client> {
        if !self.starts_daemon {
            let gone = || Error::unavailable("the muxtap daemon has gone");
            return Ok(self.running().await?.ok_or_else(gone)?.comparing_versions());
        }
        let stream = start::connect_or_start(&self.paths, &mut |warning| output::note(warning))?;
        Ok(Client::new(stream, &self.paths, &self.server, self.own_pane.as_deref()).await?.comparing_versions())
    }

    /// Waits until a daemon is ready in the place of one that was lost, and starts one where no
    /// supervisor does. It takes seconds where a supervisor may; other futures can be awaited
    /// meanwhile.
    pub(super) async fn reconnect(&self) -> Result<()> {
        let paths = self.paths.clone();
        let connect = move || start::connect_or_start(&paths, &mut |warning| output::note(warning)).map(drop);
        let connected = tokio::task::spawn_blocking(connect).await;
        connected.unwrap_or_else(|error| Err(Error::internal(error.to_string())))
    }

    /// Connects to the daemon's socket without speaking HTTP; starts the daemon when none runs.
    pub(super) fn stream(&self) -> Result<std::os::unix::net::UnixStream> {
        start::connect_or_start(&self.paths, &mut |warning| output::note(warning))
    }

    /// Connects to the daemon. `None`: none runs.
    pub(super) async fn running(&self) -> Result<Option<Client>> {
        match start::connect(&self.paths)? {
            Some(stream) => {
                let client = Client::new(stream, &self.paths, &self.server, self.own_pane.as_deref()).await?;
                Ok(Some(client.without_start()))
            }
            None => Ok(None),
        }
    }

    /// Returns where what a target names may be.
    pub(super) fn place(&self, target: Option<&str>) -> Place {
        let names_host = |target: &str| target.split_once('/').is_some_and(|(host, _)| check_name(host).is_ok());
        if self.server.is_absolute() && !target.is_some_and(names_host) { Place::Here } else { Place::PerhapsElsewhere }
    }

    /// Returns the target that was named, else the pane this runs in, as tmux's commands do.
    pub(super) fn target(&self, named: Option<String>) -> Result<String> {
        named.or_else(|| self.own_pane.clone()).ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidTarget,
                format!(
                    "say which with -t: this does not run in a pane of the tmux server {}; `muxtap list-panes` shows \
                     what is there",
                    self.server.display()
                ),
            )
        })
    }
}

/// Returns this process's environment, as far as it is text.
pub(super) fn whole_environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
