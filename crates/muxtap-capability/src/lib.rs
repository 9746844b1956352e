//! The tmux capability of an assistant's sandbox: seven actions on one session, on this host, in a
//! container or on another host (`docs/capability.md`).
//!
//! It calls the engine by its handles and knows no interface. Interfaces pass a request as JSON or
//! as a tag and print the response.

mod actions;
mod answer;
mod places;
mod request;
mod tags;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;
use muxtap_api::{Cursor, Error, ErrorCode, Result, Tier};
use muxtap_core::protocol::ids::PaneId;
use muxtap_engine::{DEFAULT_SOCKET, Engine, Server, Transport};
use serde::{Deserialize, Serialize};
use tokio::sync::RwLock;
use utoipa::{IntoParams, ToSchema};

pub use answer::CapabilityAnswer;
pub use request::{Action, CapabilityRequest, parse_text};
pub use tags::{Fields, Requests};

/// The default container.
pub const DEFAULT_CONTAINER: &str = "coachartie-sandbox";
/// The environment variable that names the container.
pub const CONTAINER_VARIABLE: &str = "SANDBOX_CONTAINER_NAME";
/// The most lines of history that a request can set.
pub const MOST_HISTORY: u32 = 10_000_000;
/// The number of panes whose last read is remembered.
const REMEMBERED_READS: usize = 4096;

/// The location of the capability's session, and its settings at creation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct CapabilitySettings {
    /// The tmux server: a path, a name or `HOST/NAME`. Absent: the one in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The container (default: `SANDBOX_CONTAINER_NAME` of the daemon, else `coachartie-sandbox`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The session (default `artie`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The directory of new panes (default `/workspace`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Lines of history of each pane (default 10,000; at most 10,000,000).
    #[param(maximum = 10_000_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_limit: Option<u32>,
}

impl CapabilitySettings {
    fn session(&self) -> &str {
        self.session.as_deref().unwrap_or("artie")
    }

    fn cwd(&self) -> &str {
        self.cwd.as_deref().unwrap_or("/workspace")
    }

    fn history_limit(&self) -> u32 {
        self.history_limit.unwrap_or(10_000)
    }
}

/// The capability of one engine; clones share it. It remembers the position of the last read of
/// each pane.
#[derive(Clone, Debug, Default)]
pub struct Capability {
    /// Locks of sessions, by server and name. Creating a session locks it for writing, looking for
    /// it locks it for reading, so no caller sees a half-created session. A hanging server delays
    /// only its own callers.
    making: Arc<Mutex<HashMap<(PathBuf, String), SessionLock>>>,
    /// Locks of the addresses in sessions, held while new ones are assigned.
    placing: Arc<Mutex<HashMap<(PathBuf, String), PlaceLock>>>,
    reads: Arc<Mutex<Reads>>,
}

/// The lock of a session.
type SessionLock = Arc<RwLock<()>>;
/// The lock of a session's addresses.
type PlaceLock = Arc<tokio::sync::Mutex<()>>;

/// The last reads of panes, by server and pane.
#[derive(Debug, Default)]
struct Reads {
    panes: HashMap<(PathBuf, PaneId), (u64, PaneReads)>,
    /// The number of reads; each pane's last one is stored with its number.
    count: u64,
}

/// The last read of a pane; locked during the next one, so that each byte is returned once.
type PaneReads = Arc<tokio::sync::Mutex<Option<LastRead>>>;

/// The position where the last read of a pane ended.
#[derive(Clone, Copy, Debug)]
struct LastRead {
    cursor: Cursor,
    /// The number of lines returned so far.
    lines: u64,
    /// Whether the output returned last ended within a line.
    is_open: bool,
}

impl Capability {
    /// Carries out a request. Errors are returned as responses too. `may_add`: whether the caller
    /// may name an unknown container, which makes muxtap run a command for it.
    pub fn run<'a>(
        &'a self,
        engine: &'a Engine,
        settings: &'a CapabilitySettings,
        may_add: bool,
        request: Result<CapabilityRequest, CapabilityAnswer>,
    ) -> BoxFuture<'a, CapabilityAnswer> {
        Box::pin(self.run_here(engine, settings, may_add, request))
    }

    async fn run_here(
        &self,
        engine: &Engine,
        settings: &CapabilitySettings,
        may_add: bool,
        request: Result<CapabilityRequest, CapabilityAnswer>,
    ) -> CapabilityAnswer {
        let request = match request {
            Ok(request) => request,
            Err(refused) => return refused,
        };
        let server = match server(engine, settings, may_add).await {
            Ok(server) => server,
            Err(error) => return CapabilityAnswer::of_error(&error),
        };
        let call = actions::Call { capability: self.clone(), server, settings: settings.clone() };
        call.run(request).await.unwrap_or_else(|refused| refused)
    }

    /// Returns the lock of a session.
    fn session_lock(&self, server: &Server, session: &str) -> SessionLock {
        lock_of(&self.making, server, session)
    }

    /// Returns the lock of a session's addresses.
    fn place_lock(&self, server: &Server, session: &str) -> PlaceLock {
        lock_of(&self.placing, server, session)
    }

    /// Returns the last read of a pane.
    fn reads_of(&self, server: &Server, pane: PaneId) -> PaneReads {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.of((server.socket().to_owned(), pane))
    }
}

fn lock_of<T: Default>(locks: &Mutex<HashMap<(PathBuf, String), Arc<T>>>, server: &Server, session: &str) -> Arc<T> {
    let mut locks = locks.lock().unwrap_or_else(PoisonError::into_inner);
    // Removes locks without a holder.
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    locks.entry((server.socket().to_owned(), session.to_owned())).or_default().clone()
}

impl Reads {
    fn of(&mut self, pane: (PathBuf, PaneId)) -> PaneReads {
        if !self.panes.contains_key(&pane) && self.panes.len() >= REMEMBERED_READS {
            // Forgets the pane that was read least recently; its next read returns its last lines.
            let idle = self.panes.iter().filter(|(_, (_, reads))| Arc::strong_count(reads) == 1);
            if let Some(oldest) = idle.min_by_key(|(_, (number, _))| *number).map(|(pane, _)| pane.clone()) {
                self.panes.remove(&oldest);
            }
        }
        self.count += 1;
        let (number, reads) = self.panes.entry(pane).or_default();
        *number = self.count;
        reads.clone()
    }
}

/// Returns the server that the settings name. A container is reached by docker, or by podman if
/// docker is missing.
async fn server(engine: &Engine, settings: &CapabilitySettings, may_add: bool) -> Result<Server> {
    if let Some(socket) = &settings.socket {
        return engine.server_named(Some(socket));
    }
    let named = settings.container.clone().or_else(|| std::env::var(CONTAINER_VARIABLE).ok());
    let container = named.filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT_CONTAINER.into());
    if !engine.reaches_container(&container)? {
        engine.authorize(Tier::Create)?;
        if !may_add {
            let message = format!(
                "unknown container {container}; add [host.{container}] to config.toml, or send the request over the \
                 daemon's Unix socket"
            );
            return Err(Error::new(ErrorCode::Unauthorized, message));
        }
        let look = || ["docker", "podman"].into_iter().find(|name| is_installed(name)).unwrap_or("docker");
        let runtime = tokio::task::spawn_blocking(look).await.unwrap_or("docker");
        let words = [runtime, "exec", "-i", &container].map(str::to_owned).to_vec();
        engine.add_transport(Transport::new(&container, words, "tmux")?)?;
    }
    engine.server_named(Some(&format!("{container}/{DEFAULT_SOCKET}")))
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

impl From<Error> for CapabilityAnswer {
    fn from(error: Error) -> Self {
        Self::of_error(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_panes_the_oldest_read_is_forgotten() {
        let mut reads = Reads::default();
        let pane = |number: usize| (PathBuf::from("/s"), PaneId(u32::try_from(number).unwrap()));
        let cursor = Cursor { epoch: muxtap_api::Epoch::default(), pane: PaneId(0), offset: 7 };
        for number in 0..REMEMBERED_READS {
            *reads.of(pane(number)).try_lock().unwrap() = Some(LastRead { cursor, lines: 1, is_open: false });
        }
        let is_known = |reads: &mut Reads, number| reads.of(pane(number)).try_lock().unwrap().is_some();
        assert!(is_known(&mut reads, 0));
        reads.of(pane(REMEMBERED_READS));
        assert_eq!(reads.panes.len(), REMEMBERED_READS);
        assert!(is_known(&mut reads, 0) && is_known(&mut reads, 2), "others stay");
        assert!(!reads.panes.contains_key(&pane(1)));
    }
}
