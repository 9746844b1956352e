//! Agent sessions, stored for the daemon that replaces this one (`docs/upgrade.md`).
//!
//! Each session stops reading from its agent between two reads, and writing to it between two writes.
//! The next daemon continues with the same pipes, from the same bytes. The agent does not notice.

mod path;

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap_api::{Error, ErrorCode, EventCursor, Result};
use muxtap_core::stored;
use muxtap_engine::{Engine, agent_marks, continue_agent_marks};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

pub(super) use self::path::StoredPath;
use super::{
    AgentSessions,
    guard::Guard,
    owner::{self, Reader, Writer},
    process::{self, Agent, AgentDescriptors, StoredProcess},
    session::{HeldSession, Session, StoredSession},
};

/// The version of the stored sessions. A change of any stored type is a new version.
const VERSION: u32 = 2;
/// The longest that sessions may take to come to rest.
const HOLD_LIMIT: Duration = Duration::from_secs(2);

/// Whether sessions go on in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// They do.
    #[default]
    Here,
    /// They are being handed over: no caller changes them.
    Held,
    /// Another daemon continues them.
    Left,
}

/// Returns the error for a caller whose request changes a session while another daemon takes over.
pub(super) fn taken_over() -> Error {
    Error::unavailable("another muxtap daemon takes over: send the request again")
}

/// Returns the error for a caller that awaits the outcome of an accepted prompt, if another daemon has
/// taken over: the caller must not send it again. `cursor`: the place before the prompt.
pub fn accepted_elsewhere(prompt: u64, cursor: Option<EventCursor>) -> Error {
    let since = cursor.map(|cursor| format!(" since {cursor}")).unwrap_or_default();
    Error::unavailable(format!(
        "another muxtap daemon has taken over; prompt {prompt} was accepted: its outcome is among the events of the \
         session{since}"
    ))
}

/// The state of the reader of an agent that is no longer read.
pub(super) struct StoppedReader {
    pub(super) process: StoredProcess,
    pub(super) descriptors: AgentDescriptors,
    /// The unfinished line, and whether the rest of an overlong one is being skipped.
    pub(super) open: Vec<u8>,
    pub(super) skipping: bool,
    /// When the agent closed its output.
    pub(super) closed: Option<Instant>,
}

/// The lines that wait for an agent to which nothing more is written.
pub(super) struct StoppedWriter {
    pub(super) stdin: OwnedFd,
    pub(super) lines: Vec<Vec<u8>>,
    /// The number of the first line's bytes that are written.
    pub(super) written: usize,
}

/// A request to stop.
pub(super) type Ask<T> = oneshot::Sender<std::io::Result<T>>;

/// Asks the tasks of an agent to stop.
#[derive(Debug)]
pub(super) struct Asks {
    reader: mpsc::Sender<Ask<StoppedReader>>,
    writer: mpsc::Sender<Ask<StoppedWriter>>,
}

/// The other end of [`Asks`].
pub(super) type Asked = (mpsc::Receiver<Ask<StoppedReader>>, mpsc::Receiver<Ask<StoppedWriter>>);

impl Asks {
    pub(super) fn new() -> (Self, Asked) {
        let ((reader, reads), (writer, writes)) = (mpsc::channel(1), mpsc::channel(1));
        (Self { reader, writer }, (reads, writes))
    }

    /// Stops reading from the agent, between two reads. `None`: the agent ends.
    pub(super) async fn stop_reader(&self) -> Option<StoppedReader> {
        ask(&self.reader).await
    }

    /// Stops writing to the agent, between two writes. `None`: the agent ends.
    pub(super) async fn stop_writer(&self) -> Option<StoppedWriter> {
        ask(&self.writer).await
    }
}

async fn ask<T>(asks: &mpsc::Sender<Ask<T>>) -> Option<T> {
    let (sender, stopped) = oneshot::channel();
    asks.send(sender).await.ok()?;
    stopped.await.ok()?.inspect_err(|error| tracing::warn!("cannot duplicate the pipes of an agent: {error}")).ok()
}

/// Waits until the session goes on, or its agent must be ended. Answers further requests to stop
/// meanwhile. Returns whether another daemon continues the session: one that was not handed over goes on
/// here when the others have left.
pub(super) async fn until_decided<T>(
    session: &Session,
    asks: &mut mpsc::Receiver<Ask<T>>,
    store: impl Fn() -> std::io::Result<T>,
) -> bool {
    let mut phase = session.phase();
    loop {
        tokio::select! {
            biased;
            () = session.left.cancelled() => break,
            () = session.kill.cancelled() => break,
            Some(ask) = asks.recv() => drop(ask.send(store())),
            _ = phase.wait_for(|phase| *phase != Phase::Held) => break,
        }
    }
    // A session leaves before the phase says so.
    session.left.is_cancelled()
}

/// The header before the sessions. Its form is the same in every version.
#[derive(Debug, Serialize, Deserialize)]
struct Beginning {
    version: u32,
    /// Whether no agent runs: then nothing is lost if the rest cannot be read.
    is_idle: bool,
}

/// All sessions. The descriptors are the guard's, if there is one, and then those of each session.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSessions {
    /// See [`agent_marks`].
    marks: String,
    has_guard: bool,
    all: Vec<StoredEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredEntry {
    name: String,
    /// See [`StoredSession`].
    state: String,
    /// `None`: it has ended.
    agent: Option<StoredAgent>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredAgent {
    process: StoredProcess,
    #[serde(with = "stored::bytes")]
    open: Vec<u8>,
    skipping: bool,
    #[serde(with = "muxtap_base::age")]
    closed: Option<Instant>,
    lines: Vec<Bytes>,
    written: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Bytes(#[serde(with = "stored::bytes")] Vec<u8>);

/// Sessions that were read completely.
#[derive(Default)]
pub struct PreparedSessions {
    guard: Option<OwnedFd>,
    all: Vec<PreparedEntry>,
    /// The agents of sessions that cannot be continued.
    lost: Vec<(StoredAgent, Descriptors)>,
}

struct PreparedEntry {
    session: StoredSession,
    root: OwnedFd,
    agent: Option<(StoredAgent, Descriptors)>,
}

/// The descriptors of an agent.
struct Descriptors {
    stdin: OwnedFd,
    agent: AgentDescriptors,
}

impl PreparedSessions {
    /// Reads stored sessions, with their descriptors, and continues with the marks of their agents. Begins
    /// nothing.
    ///
    /// Error: `CONFLICT` if this program cannot continue one of them. With `force` that one ends. Ended
    /// ones that cannot be read are left out.
    pub fn read(bytes: &[u8], descriptors: Vec<OwnedFd>, force: bool) -> Result<Self> {
        let broken = |error: postcard::Error| unreadable(&error.to_string());
        let (Beginning { version, is_idle }, rest) = postcard::take_from_bytes(bytes).map_err(broken)?;
        let StoredSessions { marks, has_guard, all } = match StoredSessions::read(version, rest) {
            // The guard, whose pipe is among the descriptors, ends the agents.
            Err(error) if force || is_idle => {
                tracing::warn!("{}", error.message);
                return Ok(Self::default());
            }
            stored => stored?,
        };
        let mut descriptors = descriptors.into_iter();
        let missing = || unreadable("a descriptor is missing");
        let guard = if has_guard { Some(descriptors.next().ok_or_else(missing)?) } else { None };
        if !continue_agent_marks(&marks) {
            let why = "agents of the daemon would not be recognized: this one has started agents";
            if !force {
                return Err(unreadable(why));
            }
            tracing::error!("{why}");
        }
        let mut prepared = Self { guard, all: Vec::new(), lost: Vec::new() };
        for StoredEntry { name, state, agent } in all {
            let agent = match agent {
                Some(agent) => Some((agent, Descriptors::next(&mut descriptors).ok_or_else(missing)?)),
                None => None,
            };
            let root = descriptors.next().ok_or_else(missing)?;
            match (serde_json::from_str::<StoredSession>(&state), agent) {
                (Ok(session), agent) => prepared.all.push(PreparedEntry { session, root, agent }),
                (Err(error), None) => tracing::warn!("{name}, which has ended, is left out of the list: {error}"),
                (Err(error), Some(agent)) if force => {
                    tracing::warn!("cannot continue {name}: {error}");
                    prepared.lost.push(agent);
                }
                (Err(error), Some(_)) => {
                    let message = format!("cannot continue agent session {name}: {error}");
                    return Err(Error::new(ErrorCode::Conflict, message));
                }
            }
        }
        if descriptors.next().is_some() {
            return Err(unreadable("a descriptor is left over"));
        }
        Ok(prepared)
    }
}

impl Descriptors {
    fn next(from: &mut impl Iterator<Item = OwnedFd>) -> Option<Self> {
        let stdin = from.next()?;
        let agent = AgentDescriptors { stdout: from.next()?, stderr: from.next()?, process: from.next()? };
        Some(Self { stdin, agent })
    }
}

impl StoredSessions {
    fn read(version: u32, bytes: &[u8]) -> Result<Self> {
        let broken = |error: postcard::Error| unreadable(&error.to_string());
        if version != VERSION {
            return Err(unreadable(&format!("their form has version {version}, and this program reads {VERSION}")));
        }
        let (stored, rest) = postcard::take_from_bytes(bytes).map_err(broken)?;
        if rest.is_empty() { Ok(stored) } else { Err(unreadable("bytes are left over")) }
    }
}

fn unreadable(why: &str) -> Error {
    Error::new(ErrorCode::Conflict, format!("the agent sessions of the daemon cannot be read: {why}"))
}

fn cannot_be_handed_over(open: &[String]) -> Error {
    let message = format!(
        "sessions cannot be handed over: {}; try again, or upgrade with --force, which ends them",
        open.join(", ")
    );
    Error::new(ErrorCode::Conflict, message)
}

/// The sessions are being handed over. Dropped, they go on here.
#[must_use]
pub struct HeldSessions {
    sessions: AgentSessions,
    /// Those that the other daemon continues.
    handed: Vec<Arc<Session>>,
}

impl HeldSessions {
    /// Leaves the sessions to the daemon that has their state. Those that were not handed over are still
    /// to be stopped.
    pub fn leave(self) {
        let inner = &self.sessions.inner;
        // Before the phase, by which the tasks of the others go on.
        for session in &self.handed {
            session.leave();
        }
        inner.phase.send_replace(Phase::Left);
        if let Some(Some(guard)) = inner.guard.as_ref().and_then(|guard| guard.get()) {
            guard.leave();
        }
        self.sessions.all().retain(|session| !self.handed.iter().any(|handed| Arc::ptr_eq(handed, session)));
    }
}

impl Drop for HeldSessions {
    fn drop(&mut self) {
        self.sessions.inner.phase.send_if_modified(|phase| {
            let is_held = *phase == Phase::Held;
            if is_held {
                *phase = Phase::Here;
            }
            is_held
        });
    }
}

impl AgentSessions {
    /// Stops all sessions for another daemon, and returns them with their descriptors.
    ///
    /// Error: `CONFLICT` if one does not come to rest in time, with its name. With `force` that one is not
    /// handed over, and ends with this daemon.
    pub async fn hold(&self, force: bool) -> Result<(HeldSessions, Vec<u8>, Vec<OwnedFd>)> {
        // First: no caller changes a session from here on.
        self.inner.phase.send_replace(Phase::Held);
        let mut held = HeldSessions { sessions: self.clone(), handed: Vec::new() };
        let mut open = Vec::new();
        if tokio::time::timeout(HOLD_LIMIT, self.none_begins()).await.is_err() {
            open.push("an agent session is being opened".to_owned());
            if !force {
                return Err(cannot_be_handed_over(&open));
            }
        }
        // A limit of their own: one that begins takes no time from those that run.
        let until = tokio::time::Instant::now() + HOLD_LIMIT;
        let all = self.all().clone();
        let stopped = futures_util::future::join_all(all.iter().map(|session| session.hold(until))).await;
        let (mut entries, mut descriptors) = (Vec::new(), Vec::new());
        let guard = self.inner.guard.as_ref().and_then(|guard| guard.get()?.as_ref()?.pipe());
        let cannot = |error: &dyn std::fmt::Display| {
            Error::internal(format!("cannot store the agent sessions for the next daemon: {error}"))
        };
        descriptors.extend(guard.transpose().map_err(|error| cannot(&error))?);
        let has_guard = !descriptors.is_empty();
        for (session, stopped) in all.into_iter().zip(stopped) {
            let name = session.name().to_string();
            match stopped {
                Ok(stopped) => {
                    entries.push(StoredEntry::of(name, stopped, &mut descriptors));
                    held.handed.push(session);
                }
                Err(why) => open.push(format!("agent session {name} {why}")),
            }
        }
        if !open.is_empty() && !force {
            return Err(cannot_be_handed_over(&open));
        }
        for open in open {
            tracing::warn!("not handed over: {open}");
        }
        let stored = StoredSessions { marks: agent_marks().to_owned(), has_guard, all: entries };
        let is_idle = stored.all.iter().all(|entry| entry.agent.is_none());
        let beginning = Beginning { version: VERSION, is_idle };
        let bytes = postcard::to_allocvec(&(beginning, stored)).map_err(|error| cannot(&error))?;
        Ok((held, bytes, descriptors))
    }

    /// Continues the sessions of another daemon. Must be called before anything is served: until then a
    /// process that an agent has started is not recognized.
    pub fn restore(&self, engine: &Engine, prepared: PreparedSessions) {
        let PreparedSessions { guard, all, lost } = prepared;
        if let (Some(pipe), Some(own)) = (guard, &self.inner.guard) {
            let _ = own.set(Some(Guard::continued(pipe)));
        }
        if all.is_empty() && lost.is_empty() {
            return;
        }
        let thread = match self.thread(engine) {
            Ok(thread) => thread,
            // The guard ends agents only with this daemon.
            Err(error) => {
                tracing::error!("the agents of the earlier daemon end: {error}");
                let of_sessions = all.into_iter().filter_map(|entry| entry.agent);
                return lost.into_iter().chain(of_sessions).for_each(|(agent, _)| Agent::end_marked(agent.process));
            }
        };
        // The pipes belong to its runtime.
        let _entered = thread.enter();
        for (agent, descriptors) in lost {
            self.end_lost(agent, descriptors, &thread);
        }
        for entry in all {
            let name = entry.session.name().clone();
            if let Err(error) = self.restore_one(engine, entry, &thread) {
                tracing::error!("cannot continue {name}: {error}");
            }
        }
    }

    fn restore_one(&self, engine: &Engine, entry: PreparedEntry, thread: &Handle) -> Result<()> {
        let PreparedEntry { mut session, root, agent } = entry;
        let awaited = session.take_awaited();
        let (outgoing, lines) = mpsc::channel(owner::OUTGOING_LINES);
        let (asks, asked) = Asks::new();
        let waiting: VecDeque<Vec<u8>> =
            agent.iter().flat_map(|(agent, _)| &agent.lines).map(|Bytes(line)| line.clone()).collect();
        let unread = waiting.iter().map(Vec::len).sum();
        let elsewhere = self.inner.elsewhere.clone();
        let phase = self.inner.phase.subscribe();
        let restored = Session::restored(session, root, engine, elsewhere, (outgoing, unread), (phase, asks));
        let session = match (restored, agent) {
            (Ok(session), None) => {
                self.all().push(Arc::new(session));
                return Ok(());
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some((agent, descriptors))) => {
                self.end_lost(agent, descriptors, thread);
                return Err(error);
            }
            (Ok(session), Some(agent)) => (Arc::new(session), agent),
        };
        let (session, (agent, descriptors)) = session;
        let StoredAgent { process, open, skipping, closed, lines: _, written } = agent;
        let continued = Agent::continued(process.clone(), descriptors.stdin, descriptors.agent);
        let (agent, stdin, stderr) = continued.map_err(|error| {
            Agent::end_marked(process);
            Error::internal(error.to_string())
        })?;
        self.all().push(session.clone());
        session.show_again();
        let tasks = &self.inner.tasks;
        let (gone, left) = (session.gone.clone(), session.left.clone());
        // Nothing asks for it any more: the agent is ready. It must be read.
        let drain = async move {
            let tail = std::sync::Mutex::default();
            tokio::select! {
                () = process::keep_tail(stderr, &tail, gone) => {}
                () = left.cancelled() => {}
            }
        };
        tasks.spawn_on(drain, thread);
        let (reads, writes) = asked;
        let writer = Writer::continued(session.clone(), stdin, lines, writes, (waiting, written));
        tasks.spawn_on(owner::write(writer, session.kill.clone()), thread);
        let reader = Reader::continued(agent, reads, (open, skipping, closed));
        let (tail, tail_end) = (Arc::default(), CancellationToken::new());
        tasks.spawn_on(owner::run(session, reader, awaited, (tail, tail_end), tasks.clone()), thread);
        Ok(())
    }

    /// Ends an agent whose session cannot be continued.
    fn end_lost(&self, agent: StoredAgent, descriptors: Descriptors, thread: &Handle) {
        match Agent::continued(agent.process.clone(), descriptors.stdin, descriptors.agent) {
            Ok((agent, ..)) => drop(self.inner.tasks.spawn_on(agent.end(None), thread)),
            Err(error) => {
                tracing::error!("cannot end an agent of the earlier daemon by its process: {error}");
                Agent::end_marked(agent.process);
            }
        }
    }
}

impl StoredEntry {
    fn of(name: String, held: HeldSession, descriptors: &mut Vec<OwnedFd>) -> Self {
        let HeldSession { state, root, agent } = held;
        let agent = agent.map(|(reader, writer)| {
            let StoppedReader { process, descriptors: own, open, skipping, closed } = reader;
            let StoppedWriter { stdin, lines, written } = writer;
            descriptors.extend([stdin, own.stdout, own.stderr, own.process]);
            let lines = lines.into_iter().map(Bytes).collect();
            StoredAgent { process, open, skipping, closed, lines, written }
        });
        descriptors.push(root);
        Self { name, state, agent }
    }
}

#[cfg(test)]
mod tests;
