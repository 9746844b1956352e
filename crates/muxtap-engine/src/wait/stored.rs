//! Waits, stored for the daemon that replaces this one (`docs/upgrade.md`).
//!
//! A wait is stored with its request, from which its patterns are compiled again, and with all that
//! happened to it: what latched, where each search stands, since when it is quiet. So the next daemon
//! continues it from the byte at which this one stopped. Its id, deadline and caller stay. Results of
//! ended waits are stored for the rest of the time for which they are kept.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use muxtap_api::{Epoch, Error, Result, WaitAnswer, WaitRequest};
use muxtap_core::{
    protocol::ids::PaneId,
    stored,
    stream::matcher::{Matcher, StoredMatcher},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    awaited::AwaitedCommand,
    budget::{Budget, Charge, Compiled},
    core::{Core, End, PaneProgress, Progress},
    registry::{Wait, WaitGuard, Waits},
    result::WaitResult,
    run,
    spec::Spec,
    watcher::Watcher,
};
use crate::{Caller, Engine, Host, PaneState, Server, authority::StoredCaller, pane::PaneUse};

/// All waits.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredWaits {
    open: Vec<StoredWait>,
    ended: Vec<StoredResult>,
}

/// A pane: its id, and its epoch (server, engine).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredPane(u32, (u64, u64));

impl StoredPane {
    fn of(pane: &PaneState) -> Self {
        let Epoch { server, engine } = pane.epoch();
        Self(pane.id().0, (server, engine))
    }

    fn find(self, panes: &[Arc<PaneState>]) -> Option<Arc<PaneState>> {
        let Self(id, (server, engine)) = self;
        let epoch = Epoch { server, engine };
        panes.iter().find(|pane| pane.id() == PaneId(id) && pane.epoch() == epoch).cloned()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredWait {
    id: String,
    caller: StoredCaller,
    #[serde(with = "stored::bytes")]
    socket: Vec<u8>,
    /// As JSON: its form omits fields.
    request: String,
    #[serde(with = "muxtap_base::age")]
    requested_at: Instant,
    panes: Vec<StoredPane>,
    progress: Vec<PaneProgress>,
    /// For each pane; `None`: the pane is not watched any more.
    watchers: Vec<Option<Bytes>>,
    end: Option<End>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Bytes(#[serde(with = "stored::bytes")] Vec<u8>);

/// A wait's search in one pane.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredWatcher {
    pub(super) matcher: Option<StoredMatcher>,
    pub(super) start: u64,
    pub(super) wants_bell: bool,
    pub(super) wants_prompt: bool,
    /// The number of the awaited command.
    pub(super) command: Option<u64>,
    pub(super) open_screens: Vec<usize>,
    pub(super) screen_missed: bool,
}

/// The result of an ended wait.
#[derive(Debug, Serialize, Deserialize)]
struct StoredResult {
    id: String,
    #[serde(with = "muxtap_base::age")]
    ended: Instant,
    /// As JSON: its form omits fields.
    answer: String,
    /// The matches to mark when the answer is acknowledged; `None`: it was.
    matches: Option<Vec<StoredMatches>>,
}

/// A pane, and where each pattern's match in it ends.
type StoredMatches = (StoredPane, Vec<(String, u64)>);

/// The texts from which a wait's patterns are compiled before the wait itself is handed over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredPatterns {
    id: String,
    caller: StoredCaller,
    /// As in the wait.
    request: String,
}

/// Patterns that were compiled before the waits for them are read, and the budget of both.
#[derive(Default)]
pub(crate) struct CompiledPatterns {
    budget: Arc<Budget>,
    of_waits: HashMap<String, Vec<Arc<Compiled>>>,
}

impl StoredPatterns {
    /// Returns the id of their wait.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl CompiledPatterns {
    /// Compiles a wait's patterns. An error is reported when the wait is read, if it is still open then.
    pub(crate) fn compile(&mut self, stored: StoredPatterns) {
        let StoredPatterns { id, caller, request } = stored;
        let Ok(request) = serde_json::from_str::<WaitRequest>(&request) else { return };
        let Some(caller) = caller.restored() else { return };
        let spec = Spec::with(&request, &self.budget.known(&request));
        if let Ok(compiled) = spec.and_then(|spec| self.budget.share(spec.compiled, &caller)) {
            self.of_waits.insert(id, compiled);
        }
    }

    /// Forgets the patterns of waits that have ended, and returns the budget.
    pub(crate) fn only_for(&mut self, waits: &StoredWaits) -> Arc<Budget> {
        let open: HashSet<_> = waits.open.iter().map(|wait| &*wait.id).collect();
        self.of_waits.retain(|id, _| open.contains(&**id));
        self.budget.clone()
    }
}

/// A wait that was read completely.
pub(crate) struct PreparedWait {
    id: String,
    caller: Caller,
    socket: PathBuf,
    spec: Spec,
    request: WaitRequest,
    charge: Charge,
    panes: Vec<Arc<PaneState>>,
    progress: Progress,
    watchers: Vec<Option<PreparedWatcher>>,
}

/// A wait's search in one pane that was read completely.
pub(super) struct PreparedWatcher {
    pub(super) stored: StoredWatcher,
    pub(super) matcher: Option<Matcher>,
    pub(super) command: Option<AwaitedCommand>,
}

/// The waits of a state that was read completely.
#[derive(Default)]
pub(crate) struct PreparedWaits {
    open: Vec<PreparedWait>,
    ended: Vec<(String, Instant, Arc<WaitResult>)>,
    /// The waits that end because they cannot be continued, and why.
    lost: Vec<(String, Error)>,
}

impl Waits {
    /// Returns the waits to store: all but those whose callers live in this process.
    pub(crate) fn store_all(&self) -> Result<StoredWaits> {
        let (mut open, mut ended) = (Vec::new(), Vec::new());
        let unable = |id: &str, error: &dyn std::fmt::Display| {
            Error::internal(format!("cannot store wait {id} for the next daemon: {error}"))
        };
        for (id, wait) in self.registered() {
            match wait {
                Wait::Open(core, caller) => {
                    let Some(request) = &core.request else { continue };
                    open.push(StoredWait::of(&core, &caller, request).map_err(|error| unable(&id, &error))?);
                }
                Wait::Ended(result) => {
                    ended.push(StoredResult::of(&id, &result).map_err(|error| unable(&id, &error))?);
                }
            }
        }
        // In order: their own, and one in which equal states have equal bytes.
        open.sort_by(|a, b| (a.requested_at, &a.id).cmp(&(b.requested_at, &b.id)));
        ended.sort_by(|a, b| (a.ended, &a.id).cmp(&(b.ended, &b.id)));
        Ok(StoredWaits { open, ended })
    }

    /// Returns what the patterns of the waits to store are compiled from.
    pub(crate) fn store_patterns(&self) -> Vec<StoredPatterns> {
        let open = self.registered().into_iter().filter_map(|(id, wait)| match wait {
            Wait::Open(core, caller) => {
                let request = serde_json::to_string(core.request.as_ref()?).ok()?;
                Some(StoredPatterns { id, caller: StoredCaller::of(&caller), request })
            }
            Wait::Ended(_) => None,
        });
        open.collect()
    }

    /// Returns the panes of this host that open waits hold.
    pub(crate) fn panes_of<'a>(&self, host: &'a Arc<Host>) -> impl Iterator<Item = Arc<PaneState>> + use<'_, 'a> {
        let own = self.open_cores().filter(|core| core.request.is_some() && Arc::ptr_eq(&core.host, host));
        own.flat_map(|core| core.panes.clone())
    }
}

/// What can be stored.
type Stored<T> = std::result::Result<T, Box<dyn std::error::Error>>;

impl StoredWait {
    fn of(core: &Core, caller: &Caller, request: &WaitRequest) -> Stored<Self> {
        // A watcher first: what happens later is in the progress as well.
        let watcher = |pane: &Arc<PaneState>| pane.lock().store_watcher(&core.id).transpose();
        let watchers = core.panes.iter().map(|pane| Ok(watcher(pane)?.map(Bytes)));
        let watchers = watchers.collect::<postcard::Result<_>>()?;
        let progress = core.lock();
        // A prompt that is examined now is examined again.
        let tried = |on_pane: &PaneProgress| PaneProgress { prompt_tried_at: None, ..on_pane.clone() };
        Ok(Self {
            id: core.id.clone(),
            caller: StoredCaller::of(caller),
            socket: core.host.socket().as_os_str().as_bytes().to_vec(),
            request: serde_json::to_string(request)?,
            requested_at: core.requested_at,
            panes: core.panes.iter().map(|pane| StoredPane::of(pane)).collect(),
            progress: progress.panes.iter().map(tried).collect(),
            watchers,
            end: progress.end,
        })
    }

    /// Compiles the wait's patterns and finds its panes. Begins nothing.
    fn prepare(self, budget: &Arc<Budget>, panes: &[Arc<PaneState>]) -> Result<PreparedWait> {
        let missing = || Error::invalid("a part of it is missing");
        let request: WaitRequest =
            serde_json::from_str(&self.request).map_err(|error| Error::invalid(error.to_string()))?;
        let caller = self.caller.restored().ok_or_else(missing)?;
        let mut spec = Spec { requested_at: self.requested_at, ..Spec::with(&request, &budget.known(&request))? };
        spec.compiled = budget.share(spec.compiled, &caller)?;
        let panes: Option<Vec<_>> = self.panes.iter().map(|pane| pane.find(panes)).collect();
        let panes = panes.ok_or_else(missing)?;
        let are_fit = self.progress.iter().all(|on_pane| on_pane.latches.len() == spec.predicates.len());
        if !are_fit || [self.progress.len(), self.watchers.len()] != [panes.len(); 2] {
            return Err(missing());
        }
        let watchers = self
            .watchers
            .into_iter()
            .map(|watcher| watcher.map(|Bytes(bytes)| PreparedWatcher::read(&bytes, &spec)).transpose());
        Ok(PreparedWait {
            watchers: watchers.collect::<Result<_>>()?,
            charge: budget.charge(&caller, spec.memory(panes.len()))?,
            id: self.id,
            caller,
            socket: path_of(&self.socket),
            spec,
            request,
            panes,
            progress: Progress { panes: self.progress, end: self.end },
        })
    }
}

fn path_of(socket: &[u8]) -> PathBuf {
    OsStr::from_bytes(socket).into()
}

impl PreparedWatcher {
    fn read(bytes: &[u8], spec: &Spec) -> Result<Self> {
        let mut stored: StoredWatcher =
            postcard::from_bytes(bytes).map_err(|error| Error::invalid(error.to_string()))?;
        let matcher = match (&spec.set, stored.matcher.take()) {
            (Some(set), Some(matcher)) => Some(Matcher::restore(set.clone(), matcher)?),
            (None, None) => None,
            _ => return Err(Error::invalid("its patterns differ")),
        };
        let command = stored.command.map(|number| AwaitedCommand::numbered(number, spec.status));
        Ok(Self { stored, matcher, command })
    }
}

impl StoredResult {
    fn of(id: &str, result: &WaitResult) -> serde_json::Result<Self> {
        let matches = result.matches();
        let matches = matches.as_ref().map(|matches| {
            let panes =
                matches.iter().filter_map(|(pane, ends)| Some((StoredPane::of(&*pane.upgrade()?), ends.clone())));
            panes.collect()
        });
        let answer = serde_json::to_string(&result.answer())?;
        Ok(Self { id: id.to_owned(), ended: result.ended(), answer, matches })
    }

    fn restored(self, panes: &[Arc<PaneState>]) -> serde_json::Result<(String, Instant, Arc<WaitResult>)> {
        let answer: WaitAnswer = serde_json::from_str(&self.answer)?;
        let matches = self.matches.map(|matches| {
            let panes = matches.into_iter().filter_map(|(pane, ends)| Some((Arc::downgrade(&pane.find(panes)?), ends)));
            panes.collect()
        });
        Ok((self.id, self.ended, Arc::new(WaitResult::restored(answer, self.ended, matches))))
    }
}

impl StoredWaits {
    /// Returns about how many bytes they have: those of the searches and of the results.
    pub(crate) fn bytes(&self) -> usize {
        let searches = self.open.iter().flat_map(|wait| &wait.watchers).flatten();
        searches.map(|Bytes(bytes)| bytes.len()).chain(self.ended.iter().map(|result| result.answer.len())).sum()
    }

    /// Reads all waits. `force`: a wait that cannot be continued ends. Error: one cannot be continued; the
    /// message names it.
    pub(crate) fn prepare(
        self,
        budget: &Arc<Budget>,
        panes: &[(PathBuf, Vec<Arc<PaneState>>)],
        force: bool,
    ) -> Result<PreparedWaits> {
        let of_server = |socket: &Path| {
            let own = panes.iter().find(|(known, _)| known == socket);
            own.map_or(&[][..], |(_, panes)| panes)
        };
        let all: Vec<_> = panes.iter().flat_map(|(_, panes)| panes).cloned().collect();
        let (mut open, mut lost) = (Vec::new(), Vec::new());
        for wait in self.open {
            let (id, panes) = (wait.id.clone(), of_server(&path_of(&wait.socket)));
            match wait.prepare(budget, panes) {
                Ok(wait) => open.push(wait),
                Err(error) if force => {
                    let why = error.message;
                    let message = format!(
                        "wait {id} has ended: the daemon was replaced by force, and the new one cannot continue it: {why}"
                    );
                    lost.push((id, Error::new(muxtap_api::ErrorCode::Conflict, message)));
                }
                Err(error) => {
                    let why = error.message;
                    let message = format!(
                        "cannot continue wait {id}: {why}; cancel the wait and upgrade again, or upgrade with --force, \
                         which ends it"
                    );
                    return Err(Error::new(muxtap_api::ErrorCode::Conflict, message));
                }
            }
        }
        let ended = self.ended.into_iter().map(|result| {
            let id = result.id.clone();
            result
                .restored(&all)
                .map_err(|error| Error::internal(format!("cannot read the result of wait {id}: {error}")))
        });
        Ok(PreparedWaits { open, ended: ended.collect::<Result<_>>()?, lost })
    }
}

/// A wait that is continued and has its watchers, and not its driver.
pub(crate) struct ContinuedWait {
    server: Server,
    guard: WaitGuard,
    in_use: Option<Vec<PaneUse>>,
    charge: Charge,
    is_left: bool,
}

impl ContinuedWait {
    /// Begins what time decides. The link to the server exists.
    pub(crate) fn begin(self) {
        let Self { server, guard, in_use, charge, is_left } = self;
        let tasks = server.engine.shared.tasks.clone();
        tasks.spawn(async move {
            if is_left {
                // Its caller may have been connected to the other daemon.
                let waits = &server.engine.shared.waits;
                // A failure is in the log.
                let _ = waits.kept.begin(&guard.core().id, server.engine.caller(), waits.open_ids()).await;
            }
            run(&server, guard, (in_use, charge)).await;
        });
    }
}

impl PreparedWaits {
    /// Registers the results of ended waits, and those that end now.
    pub(crate) fn register_ended(&mut self, engine: &Engine) {
        for (id, error) in self.lost.drain(..) {
            tracing::warn!("{error}");
            engine.shared.waits.lose(id, error);
        }
        for (id, at, result) in self.ended.drain(..) {
            engine.shared.waits.store_at(at, &id, result);
        }
    }

    /// Continues the waits of a host, before anything more is read from its panes.
    pub(crate) fn continue_on(&mut self, engine: &Engine, host: &Arc<Host>) -> Vec<ContinuedWait> {
        let own = self.open.extract_if(.., |wait| wait.socket == host.socket());
        own.map(|wait| wait.continued(engine, host)).collect()
    }

    /// Ends the waits that are left: nothing follows their servers any more.
    pub(crate) fn cancel_others(&mut self, engine: &Engine) {
        for wait in std::mem::take(&mut self.open) {
            tracing::warn!(
                "wait {} ends: its server {} is not in the settings any more",
                wait.id,
                wait.socket.display()
            );
            let host = Host::new(&wait.socket, &engine.shared);
            let wait = wait.continued(engine, &host);
            wait.guard.core().finish(muxtap_api::WaitOutcome::Cancelled, None);
            wait.begin();
        }
    }
}

impl PreparedWait {
    fn continued(self, engine: &Engine, host: &Arc<Host>) -> ContinuedWait {
        let Self { id, caller, spec, request, charge, panes, progress, watchers, .. } = self;
        let (engine, is_left) = (engine.with_caller(caller), request.detach);
        let core = Core::within(id, host.clone(), spec, panes, Some(request), progress);
        let guard = WaitGuard::continued(&engine, core.clone());
        let in_use = core.spec.needs_tmux().then(|| core.panes.iter().map(PaneUse::begin).collect());
        for (at, (pane, watcher)) in core.panes.iter().zip(watchers).enumerate() {
            let Some(prepared) = watcher else { continue };
            let watcher = Watcher::continued(&core, at, prepared);
            let mut locked = pane.lock();
            // The pane may have ended after it was stored, and before the wait was.
            match locked.exit() {
                Some(exit) => core.pane_ended(at, exit),
                None => locked.add_watcher(Box::new(watcher)),
            }
        }
        ContinuedWait { server: Server::of(engine, host.clone()), guard, in_use, charge, is_left }
    }
}

#[cfg(test)]
pub(crate) mod tests;
