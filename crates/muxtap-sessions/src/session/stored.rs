//! A session, stored for the daemon that replaces this one (`docs/upgrade.md`).

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicUsize},
    time::{Duration, Instant},
};

use muxtap_api::{AgentEarlierList, AgentPlanEntry, AgentUsage, PromptOutcome, Result, SessionName};
use muxtap_base::below::Below;
use muxtap_engine::{Caller, Engine, handover::StoredPrincipal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{About, Asked, Purpose, Served, Session, State};
use crate::{
    consent::Calls,
    elsewhere::{Elsewhere, Shown},
    questions::Questions,
    ring::Ring,
    setup::{Abilities, Controls},
    stored::{Asks, Phase, StoppedReader, StoppedWriter, StoredPath, taken_over},
    terminals::{StoredTerminals, Terminals},
    turns::Turns,
};

/// A session, without its agent's process. As JSON: the events and the agent's messages have no other
/// form.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    name: SessionName,
    cwd: StoredPath,
    /// The directory's paths, as given and without links.
    below: [StoredPath; 2],
    /// For whom the agent acts.
    who: String,
    principal: StoredPrincipal,
    terminals: StoredTerminals,
    #[serde(with = "muxtap_base::age")]
    begun: Instant,
    ring: Ring,
    turns: Turns,
    questions: Questions,
    /// The agent's requests that await the end of a terminal.
    awaited: Vec<(Box<RawValue>, String)>,
    calls: Calls,
    asked: BTreeMap<u64, Asked>,
    outcomes: BTreeMap<u64, (PromptOutcome, Option<String>)>,
    able: Abilities,
    controls: Controls,
    title: Option<String>,
    plan: Vec<AgentPlanEntry>,
    usage: Option<AgentUsage>,
    pid: Option<u32>,
    faults: u64,
    created_ms: u64,
    updated_ms: u64,
    #[serde(with = "muxtap_base::age")]
    last_event: Instant,
    /// Whether the agent has ended.
    ended: bool,
    exit: Option<(Option<i32>, Option<i32>)>,
    error: Option<String>,
    events: u64,
}

/// A session that has stopped for another daemon.
pub(crate) struct HeldSession {
    /// The session as JSON.
    pub(crate) state: String,
    /// Its directory.
    pub(crate) root: OwnedFd,
    /// Its agent. `None`: it has ended.
    pub(crate) agent: Option<(StoppedReader, StoppedWriter)>,
}

impl StoredSession {
    /// Returns the session's name.
    pub(crate) fn name(&self) -> &SessionName {
        &self.name
    }

    /// Takes the agent's requests that await the end of a terminal.
    pub(crate) fn take_awaited(&mut self) -> Vec<(Box<RawValue>, String)> {
        std::mem::take(&mut self.awaited)
    }
}

impl Session {
    /// Checks that no other daemon takes over, or has. The state must be locked: what is stored has each
    /// change as a whole.
    pub(super) fn check_here(&self) -> Result<()> {
        if *self.phase.borrow() == Phase::Here { Ok(()) } else { Err(taken_over()) }
    }

    /// Stops the session for another daemon. What it does goes on with this one's phase.
    ///
    /// Error: why it does not stop in time.
    pub(crate) async fn hold(&self, until: tokio::time::Instant) -> std::result::Result<HeldSession, String> {
        let stopped = async {
            // Callers change nothing any more, but the agent may have to reply to what they have set.
            self.until(|state| state.setting == 0 && !state.ending).await;
            let reader = self.asks.stop_reader().await?;
            // The agent asks for nothing more.
            self.until(|state| state.served.iter().all(Served::can_begin_anew)).await;
            Some((reader, self.asks.stop_writer().await?))
        };
        let agent = tokio::select! {
            biased;
            () = self.gone.cancelled() => None,
            stopped = tokio::time::timeout_at(until, stopped) => match stopped {
                Ok(Some(stopped)) => Some(stopped),
                // A task of the agent has ended: the agent ends, too.
                Ok(None) => {
                    let gone = tokio::time::timeout_at(until, self.gone.cancelled()).await;
                    gone.map(|()| None).map_err(|_| self.busy())?
                }
                Err(_) => return Err(self.busy()),
            }
        };
        let cannot = |error: &dyn std::fmt::Display| format!("cannot be stored: {error}");
        let (root, below) = self.about.below.parts().map_err(|error| cannot(&error))?;
        let state = serde_json::to_string(&self.store(below)).map_err(|error| cannot(&error))?;
        Ok(HeldSession { state, root, agent })
    }

    /// Waits until this is so.
    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let mut notified = std::pin::pin!(self.rest.notified());
            // Before the look: what is finished in between counts.
            notified.as_mut().enable();
            if is_so(&self.lock()) {
                return;
            }
            notified.await;
        }
    }

    /// Returns what prevents the session from being handed over.
    fn busy(&self) -> String {
        let state = self.lock();
        let why = if state.ending {
            "is being ended"
        } else if state.setting > 0 {
            "has not replied to a change of its mode or options"
        } else if state.served.iter().all(Served::can_begin_anew) {
            "does not come to rest"
        } else {
            "waits for a file or a terminal"
        };
        why.to_owned()
    }

    fn store(&self, below: [PathBuf; 2]) -> StoredSession {
        let terminals = self.about.terminals.store();
        let caller = self.about.engine.caller();
        let state = self.lock();
        let awaited = state.served.iter().filter_map(|served| Some((served.id.clone(), served.terminal.clone()?)));
        StoredSession {
            name: self.name(),
            cwd: self.about.cwd.clone().into(),
            below: below.map(StoredPath::from),
            who: caller.who.clone(),
            principal: StoredPrincipal::of(&caller.principal),
            terminals,
            begun: self.begun,
            ring: state.ring.clone(),
            turns: state.turns.clone(),
            questions: state.questions.clone(),
            awaited: awaited.collect(),
            calls: state.calls.clone(),
            asked: state.asked.iter().map(|(request, asked)| (*request, *asked)).collect(),
            outcomes: state.outcomes.clone(),
            able: state.able.clone(),
            controls: state.controls.clone(),
            title: state.title.clone(),
            plan: state.plan.clone(),
            usage: state.usage.clone(),
            pid: state.pid,
            faults: state.faults,
            created_ms: state.created_ms,
            updated_ms: state.updated_ms,
            last_event: state.last_event,
            ended: state.ended,
            exit: state.exit,
            error: state.error.clone(),
            events: state.events,
        }
    }

    /// Continues a session of another daemon. `unread`: the bytes that wait for the agent.
    ///
    /// Error: this engine does not have its server.
    pub(crate) fn restored(
        stored: StoredSession,
        root: OwnedFd,
        engine: &Engine,
        elsewhere: Elsewhere,
        (outgoing, unread): (mpsc::Sender<Vec<u8>>, usize),
        (phase, asks): (watch::Receiver<Phase>, Asks),
    ) -> Result<Self> {
        let principal = stored.principal.restored();
        let engine = engine.with_caller(Caller { face: "agent", who: stored.who, principal });
        let terminals = Terminals::restore(stored.terminals, &engine)?;
        let about = About {
            provider: stored.name.provider.clone(),
            cwd: stored.cwd.into(),
            // The session is open.
            purpose: Purpose::New,
            auth: None,
            mode: None,
            engine,
            terminals: Arc::new(terminals),
            below: Arc::new(Below::of(root, stored.below.map(PathBuf::from))),
            elsewhere,
        };
        let state = State {
            ring: stored.ring,
            turns: stored.turns,
            questions: stored.questions,
            served: Vec::new(),
            calls: stored.calls,
            asked: stored.asked.into_iter().collect(),
            opened: None,
            outcomes: stored.outcomes,
            spans: BTreeMap::new(),
            waiting: HashMap::new(),
            setting: 0,
            able: stored.able,
            controls: stored.controls,
            title: stored.title,
            plan: stored.plan,
            usage: stored.usage,
            earlier: AgentEarlierList::default(),
            pages: 0,
            pid: stored.pid,
            faults: stored.faults,
            created_ms: stored.created_ms,
            updated_ms: stored.updated_ms,
            last_event: stored.last_event,
            ending: stored.ended,
            ended: stored.ended,
            exit: stored.exit,
            error: stored.error,
            events: stored.events,
        };
        let gone = CancellationToken::new();
        if stored.ended {
            gone.cancel();
        }
        Ok(Self {
            about,
            name: OnceLock::from(stored.name),
            changed: watch::Sender::new(state.events),
            state: Mutex::new(state),
            shown: Shown::default(),
            outgoing,
            unread: AtomicUsize::new(unread),
            wake: Notify::new(),
            kill: CancellationToken::new(),
            gone,
            phase,
            left: CancellationToken::new(),
            asks,
            rest: Notify::new(),
            begun: stored.begun,
        })
    }

    /// Shows the open questions where questions are shown, for the time that is left.
    pub(crate) fn show_again(self: &Arc<Self>) {
        let (open, now) = (self.lock().questions.due_at(), self.now());
        for (question, deadline) in open {
            self.shown.show(self, &question, Duration::from_millis(deadline.saturating_sub(now)));
        }
    }

    /// Leaves the session to another daemon.
    pub(crate) fn leave(&self) {
        self.left.cancel();
        self.shown.clear();
    }

    /// Returns whether a caller sets the mode or an option.
    #[cfg(test)]
    pub(crate) fn is_being_set(&self) -> bool {
        self.lock().setting > 0
    }

    /// Returns the phase of the session.
    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }
}
