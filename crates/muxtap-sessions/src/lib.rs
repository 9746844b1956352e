//! Agent sessions: coding agents that the daemon starts and owns, and exchanges ACP messages with.
//! `docs/agent-sessions.md` describes them.
//!
//! `turns` decides the outcome of each prompt, without I/O. `session` is the state that callers and
//! the agent change. `owner` is the task that reads from the agent and ends it. All of it runs on a
//! thread of its own: an agent's output, even a line of many megabytes, does not delay the engine.

mod acp;
mod consent;
mod elicitation;
mod elsewhere;
mod guard;
mod lines;
mod owner;
mod process;
mod questions;
mod ring;
mod session;
mod setup;
mod stored;
mod terminals;
mod text;
mod turns;
mod wait;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use muxtap_engine::{Lineage, agent_marks};
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc, oneshot, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    elsewhere::Elsewhere,
    guard::run_if_guard,
    stored::{HeldSessions, PreparedSessions, accepted_elsewhere},
};
use self::{
    guard::Guard,
    owner::{Reader, Writer},
    process::Agent,
    session::{About, Purpose, Session},
    stored::{Asks, Phase, taken_over},
    terminals::Terminals,
    wait::Waiting,
};
use muxtap_engine::{Caller, Engine, Principal, Server};

use muxtap_api::{
    AgentAnswerRequest, AgentEarlierList, AgentEarlierRequest, AgentEventEntry, AgentEventsAnswer, AgentEventsQuery,
    AgentGap, AgentQuestion, AgentSessionInfo, AgentSessionPatch, AgentSessionRequest, AgentWaitAnswer,
    AgentWaitRequest, Error, ErrorCode, EventCursor, PromptAnswer, PromptOutcome, PromptRequest, Result, SessionName,
    Tier,
};
use muxtap_base::below::Below;

/// The maximum number of running sessions.
const OPEN_SESSIONS: usize = 32;
/// The maximum number of listed sessions that have ended; their events stay readable.
const ENDED_SESSIONS: usize = 32;
/// The maximum size of a prompt, in bytes.
const PROMPT_BYTES: usize = 1 << 20;
/// The maximum number of environment variables that a caller may pass to an agent.
const MOST_VARIABLES: usize = 256;
/// The default timeout of a prompt, from when it is accepted.
const PROMPT_LIMIT: Duration = Duration::from_secs(3600);
/// The maximum number of concurrent waits.
const OPEN_WAITS: usize = 256;
/// The default number of events in a page; below, the maximum.
const PAGE_EVENTS: usize = 256;
const MOST_PAGE_EVENTS: usize = 1024;
/// The maximum time that a page of events waits for its first event.
const MOST_PAGE_WAIT: Duration = Duration::from_secs(60);
/// How long agents may take to end when the daemon stops.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// The name of the configured default provider.
pub(crate) const DEFAULT_PROVIDER: &str = "sdk";

/// A provider: an agent as the configuration names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    /// The provider's name.
    pub name: String,
    /// The command that speaks ACP on stdin and stdout, as words.
    pub command: Vec<String>,
    /// Whether `sdk` means this provider.
    pub is_default: bool,
}

/// The agent sessions of a daemon; clones share them.
#[derive(Clone, Default)]
pub struct AgentSessions {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for AgentSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentSessions").field("providers", &self.inner.providers).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Inner {
    providers: Vec<Provider>,
    elsewhere: Elsewhere,
    /// The process that ends the agents if this one is killed.
    guard: Option<OnceLock<Option<Guard>>>,
    /// Whether the sessions go on in this process.
    phase: watch::Sender<Phase>,
    all: Mutex<Vec<Arc<Session>>>,
    /// The number of sessions that are being opened.
    opening: AtomicUsize,
    /// Notified when one of them is open, or failed.
    opened: Notify,
    /// The earlier sessions that are being resumed.
    resuming: Mutex<Vec<SessionName>>,
    waits: AtomicUsize,
    /// The runtime of the thread that serves agents.
    thread: Mutex<Option<Handle>>,
    tasks: TaskTracker,
}

/// A count that is decremented on drop.
struct Counted(Arc<Inner>, fn(&Inner) -> &AtomicUsize);

impl Counted {
    /// Increments the count. `None`: it is `most` already.
    fn up(inner: &Arc<Inner>, of: fn(&Inner) -> &AtomicUsize, most: usize) -> Option<Self> {
        let counted = Self(inner.clone(), of);
        (of(inner).fetch_add(1, Ordering::SeqCst) < most).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, Ordering::SeqCst);
        self.0.opened.notify_waiters();
    }
}

/// Exclusive permission to resume an earlier session.
struct Resuming(Arc<Inner>, SessionName);

impl Resuming {
    /// Reserves a session. Error: `CONFLICT` if it is being resumed already.
    fn new(inner: &Arc<Inner>, name: SessionName) -> Result<Self> {
        let mut names = inner.resuming.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(&name) {
            return Err(Error::new(ErrorCode::Conflict, format!("{name} is already being opened; send to it then")));
        }
        names.push(name.clone());
        drop(names);
        Ok(Self(inner.clone(), name))
    }
}

impl Drop for Resuming {
    fn drop(&mut self) {
        self.0.resuming.lock().unwrap_or_else(PoisonError::into_inner).retain(|name| *name != self.1);
    }
}

impl AgentSessions {
    /// Creates the sessions of a daemon with these providers; questions are shown `elsewhere` too.
    ///
    /// The running program must be muxtap itself, since the guard is started from it.
    pub fn new(providers: Vec<Provider>, elsewhere: Elsewhere) -> Self {
        Self { inner: Arc::new(Inner { providers, elsewhere, guard: Some(OnceLock::new()), ..Inner::default() }) }
    }

    /// Returns the prefix of the agents' marks. The first call starts the guard.
    fn marks(&self) -> &str {
        let Some(guard) = &self.inner.guard else { return "" };
        let marks = agent_marks();
        guard.get_or_init(|| {
            let started = Guard::start(marks);
            started
                .inspect_err(|error| tracing::warn!("agents outlive a killed daemon: cannot start a guard: {error}"))
                .ok()
        });
        marks
    }

    /// Returns whether no agent runs.
    pub fn is_idle(&self) -> bool {
        self.inner.opening.load(Ordering::SeqCst) == 0 && self.all().iter().all(|session| session.gone.is_cancelled())
    }

    /// Waits until no session is being opened.
    async fn none_begins(&self) {
        loop {
            let mut opened = std::pin::pin!(self.inner.opened.notified());
            // Before the look: one that is open in between counts.
            opened.as_mut().enable();
            if self.inner.opening.load(Ordering::SeqCst) == 0 {
                return;
            }
            opened.await;
        }
    }

    /// Starts an agent and opens a session, within a minute. The agent's terminals are panes of
    /// this server.
    ///
    /// The session lasts until it is killed, the agent exits, or the daemon ends. `caller`: the calling
    /// process, where known.
    ///
    /// Errors: `INVALID_ARGUMENT`; `CONFLICT` for an agent that cannot be started or opens no
    /// session, and for a session that is open already; `RESOURCE_LIMIT`; `READ_ONLY`; `UNAUTHORIZED`
    /// for a mode, as in [`Self::set`].
    pub async fn create(
        &self,
        server: &Server,
        request: AgentSessionRequest,
        caller: Option<&Lineage>,
    ) -> Result<AgentSessionInfo> {
        let engine = server.engine().clone();
        engine.authorize(Tier::Create)?;
        if request.prompt.is_some() {
            engine.authorize(Tier::Input)?;
        }
        check_here(server)?;
        if request.mode.is_some() {
            self.check_mode(&engine, &request.provider, caller)?;
        }
        let sessions = self.clone();
        let (at, caller) = (server.clone(), engine.clone());
        let (handle, provider) = (self.thread(&engine)?, request.provider.clone());
        // If the caller disconnects, the opening still completes or fails as a whole.
        let opened = handle.spawn(async move { sessions.open(&at, request).await }).await;
        let opened = opened.unwrap_or_else(|_| Err(Error::unavailable("muxtap is stopping")));
        let about = opened.as_ref().map_or_else(|_| format!("session:{provider}:"), |info| info.session.to_string());
        let result = opened.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok");
        caller.record_about("agent-create", &about, result);
        opened
    }

    /// Checks whether a caller may start an agent in a mode, and records a refusal. `caller`: the calling
    /// process, where known.
    ///
    /// Errors: `UNAUTHORIZED` for an agent, and for a caller with only a token; `READ_ONLY`.
    pub fn check_mode(&self, engine: &Engine, provider: &str, caller: Option<&Lineage>) -> Result<()> {
        engine.authorize(Tier::Create)?;
        let is_own = self.all().iter().any(|session| session.is_own(caller));
        session::check_person(engine, caller, is_own.then_some("an agent of this muxtap")).inspect_err(|error| {
            engine.record_about("agent-create", &format!("session:{provider}:"), error.code.as_str());
        })
    }

    /// Starts an agent that lists its own sessions, within a minute, and ends it again.
    ///
    /// Errors: as for [`Self::create`]; `CONFLICT` for an agent that lists none.
    pub async fn earlier(&self, server: &Server, request: AgentEarlierRequest) -> Result<AgentEarlierList> {
        let engine = server.engine().clone();
        engine.authorize(Tier::Create)?;
        check_here(server)?;
        let AgentEarlierRequest { provider, cwd, all, auth, env } = request;
        let request = AgentSessionRequest { provider, cwd, auth, env, ..AgentSessionRequest::default() };
        let sessions = self.clone();
        let (at, handle) = (server.clone(), self.thread(&engine)?);
        let about = format!("session:{}:", request.provider);
        let listed = handle.spawn(async move {
            let (session, _, _) = sessions.start(&at, &request, Some(Purpose::List { all })).await?;
            let earlier = session.earlier();
            session.kill.cancel();
            session.gone.cancelled().await;
            Ok(earlier)
        });
        let listed = listed.await.unwrap_or_else(|_| Err(Error::unavailable("muxtap is stopping")));
        let result = listed.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok");
        engine.record_about("agent-list", &about, result);
        listed
    }

    async fn open(&self, server: &Server, request: AgentSessionRequest) -> Result<AgentSessionInfo> {
        check_text("prompt", request.prompt.as_deref().unwrap_or_default())?;
        let (session, opening, resuming) = self.start(server, &request, None).await?;
        if let Err(error) = self.enlist(&session) {
            session.kill.cancel();
            session.gone.cancelled().await;
            return Err(error);
        }
        drop(resuming);
        if let Some(prompt) = request.prompt {
            let accepted = session.first_prompt(prompt, PROMPT_LIMIT);
            let result = accepted.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok");
            server.engine().record_about("agent-prompt", &session.name().to_string(), result);
            accepted?;
        }
        // Last: until then no other daemon takes the session over.
        drop(opening);
        Ok(session.info())
    }

    /// Starts an agent, and returns once it has its session open, or has listed its sessions.
    /// `purpose`: without one, the request's.
    async fn start(
        &self,
        server: &Server,
        request: &AgentSessionRequest,
        purpose: Option<Purpose>,
    ) -> Result<(Arc<Session>, Counted, Option<Resuming>)> {
        let engine = server.engine().clone();
        let provider = self.provider(&request.provider)?.clone();
        let resume = request.resume.as_deref().map(|given| earlier(&provider.name, given)).transpose()?;
        check_environment(&request.env)?;
        let cwd = PathBuf::from(&request.cwd);
        if !cwd.is_absolute() {
            return Err(Error::invalid(format!("cwd: not an absolute path: {:?}", request.cwd)));
        }
        let below = Below::open(&cwd).map_err(|error| Error::invalid(format!("cwd: {}: {error}", request.cwd)))?;
        let too_many = || {
            Error::new(ErrorCode::ResourceLimit, format!("too many agent sessions: at most {OPEN_SESSIONS} can run"))
        };
        let opening = Counted::up(&self.inner, |inner| &inner.opening, OPEN_SESSIONS).ok_or_else(too_many)?;
        // After it counts: another daemon takes it over, or it does not begin.
        if *self.inner.phase.borrow() != Phase::Here {
            return Err(taken_over());
        }
        let running = self.all().iter().filter(|session| !session.gone.is_cancelled()).count();
        if running + self.inner.opening.load(Ordering::SeqCst) > OPEN_SESSIONS {
            return Err(too_many());
        }
        let mut resuming = None;
        if let Some(id) = &resume {
            // Two agent processes would write to the stored state of one session.
            let name = SessionName { provider: provider.name.clone(), id: id.clone() };
            Self::check_not_running(&self.all(), &name)?;
            resuming = Some(Resuming::new(&self.inner, name)?);
        }
        let (agent, stdin, stderr) = Agent::start(&provider.command, &cwd, &request.env, self.marks())?;
        let who = format!("{} process {}", provider.name, agent.pid());
        let own = engine.with_caller(Caller { face: "agent", who, principal: engine.caller().principal.clone() });
        let home = format!("agent-{}-{}", provider.name, agent.pid());
        let home: String = home.chars().map(|letter| if matches!(letter, '.' | ':') { '-' } else { letter }).collect();
        let terminals = Terminals::new(server.called_by(own.caller().clone()), home);
        let about = About {
            provider: provider.name,
            cwd,
            purpose: purpose.unwrap_or_else(|| resume.map_or(Purpose::New, Purpose::Resume)),
            auth: request.auth.clone(),
            mode: request.mode.clone(),
            engine: own,
            terminals: Arc::new(terminals),
            below: Arc::new(below),
            elsewhere: self.inner.elsewhere.clone(),
        };
        let (outgoing, lines) = mpsc::channel(owner::OUTGOING_LINES);
        let (sender, opened) = oneshot::channel();
        let (asks, (reads, writes)) = Asks::new();
        let at = (self.inner.phase.subscribe(), asks);
        let session = Arc::new(Session::new(about, agent.pid(), outgoing, at, sender));
        let tail = Arc::new(Mutex::new(Vec::new()));
        let tail_end = CancellationToken::new();
        let tasks = &self.inner.tasks;
        let (kept, ended, gone) = (tail.clone(), tail_end.clone(), session.gone.clone());
        let left = session.left.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = process::keep_tail(stderr, &kept, gone) => ended.cancel(),
                () = left.cancelled() => {}
            }
        });
        tasks.spawn(owner::write(Writer::new(session.clone(), stdin, lines, writes), session.kill.clone()));
        let reader = Reader::new(agent, reads);
        tasks.spawn(owner::run(session.clone(), reader, Vec::new(), (tail, tail_end), tasks.clone()));
        let opened = opened.await.unwrap_or_else(|_| Err(Error::unavailable("muxtap is stopping")));
        if let Err(error) = opened {
            session.kill.cancel();
            session.gone.cancelled().await;
            return Err(error);
        }
        Ok((session, opening, resuming))
    }

    /// Adds a session to the list. Error: `CONFLICT` if one with its name is running.
    fn enlist(&self, session: &Arc<Session>) -> Result<()> {
        let mut all = self.all();
        let name = session.name();
        Self::check_not_running(&all, &name)?;
        // An ended session with this name is replaced.
        all.retain(|other| other.name() != name);
        let ended = |other: &Arc<Session>| other.gone.is_cancelled();
        while all.iter().filter(|other| ended(other)).count() > ENDED_SESSIONS {
            if let Some(oldest) = all.iter().position(ended) {
                all.remove(oldest);
            }
        }
        all.push(session.clone());
        Ok(())
    }

    fn check_not_running(all: &[Arc<Session>], name: &SessionName) -> Result<()> {
        if all.iter().any(|other| other.name() == *name && !other.gone.is_cancelled()) {
            return Err(Error::new(ErrorCode::Conflict, format!("{name} is already running; send to it")));
        }
        Ok(())
    }

    /// Ends every agent; the daemon does so while tmux is still connected, which closes their
    /// terminals.
    pub async fn stop(&self) {
        let all = self.all().clone();
        for session in &all {
            session.ending("");
        }
        // Each agent may close its session first, all at once.
        futures_util::future::join_all(all.iter().map(|session| session.close())).await;
        for session in &all {
            session.kill.cancel();
        }
        let gone = futures_util::future::join_all(all.iter().map(|session| session.gone.cancelled()));
        if tokio::time::timeout(STOP_LIMIT, gone).await.is_err() {
            tracing::warn!("timeout: not all agents have ended");
        }
        // The questions are closed; their posts in the chat are deleted.
        let posts = &self.inner.elsewhere.posts;
        posts.close();
        if tokio::time::timeout(STOP_LIMIT, posts.wait()).await.is_err() {
            tracing::warn!("timeout: not all posts about questions were deleted");
        }
    }

    /// Lists the running sessions and the last ended ones, the oldest first. Error: `READ_ONLY`.
    pub fn list(&self, engine: &Engine, provider: Option<&str>) -> Result<Vec<AgentSessionInfo>> {
        engine.authorize(Tier::Read)?;
        let fits = |session: &&Arc<Session>| provider.is_none_or(|provider| session.about.provider == provider);
        Ok(self.all().iter().filter(fits).map(|session| session.info()).collect())
    }

    /// Returns a session's entry in the list. Errors: `NOT_FOUND`, `INVALID_TARGET`, `READ_ONLY`.
    pub fn get(&self, engine: &Engine, name: &str) -> Result<AgentSessionInfo> {
        engine.authorize(Tier::Read)?;
        Ok(self.find(name)?.info())
    }

    /// Sends a prompt to a session, which runs it after the earlier ones; with `wait`, returns when
    /// it has its outcome.
    ///
    /// Errors: `NOT_FOUND`, `CONFLICT` for a session that has ended, `RESOURCE_LIMIT`, `READ_ONLY`.
    pub async fn prompt(&self, engine: &Engine, name: &str, request: PromptRequest) -> Result<PromptAnswer> {
        self.prompt_accepted(engine, name, request, |_| {}).await
    }

    /// Sends a prompt as [`Self::prompt`] does. Before it waits, it calls `accepted` with the prompt's
    /// number: if another daemon takes over meanwhile, that one has the outcome.
    pub async fn prompt_accepted(
        &self,
        engine: &Engine,
        name: &str,
        request: PromptRequest,
        accepted_as: impl FnOnce(&PromptAnswer) + Send,
    ) -> Result<PromptAnswer> {
        engine.authorize(Tier::Input)?;
        let session = self.find(name)?;
        check_text("text", &request.text)?;
        if request.text.is_empty() {
            return Err(Error::invalid("text: empty"));
        }
        let timeout = request.timeout_ms.map_or(PROMPT_LIMIT, Duration::from_millis);
        if timeout > wait::MOST_TIME || timeout.is_zero() {
            return Err(Error::invalid(format!("timeout_ms: expected 1 to {}", wait::MOST_TIME.as_millis())));
        }
        let counted = if request.wait { Some(self.counted_wait()?) } else { None };
        let accepted = session.prompt(request.text, timeout);
        let result = accepted.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok");
        engine.record_about("agent-prompt", &session.name().to_string(), result);
        let (prompt, cursor) = accepted?;
        let mut answer = PromptAnswer::new(session.name(), Some(prompt), cursor);
        if request.wait {
            accepted_as(&answer);
            let outcome = session.outcome(prompt).await;
            let (outcome, error) = outcome.map_err(|_| accepted_elsewhere(prompt, Some(cursor)))?;
            (answer.outcome, answer.error) = (Some(outcome), error);
        }
        drop(counted);
        Ok(answer)
    }

    /// Cancels the running prompt, and no other; returns its number. Errors: `NOT_FOUND`,
    /// `READ_ONLY`.
    pub fn interrupt(&self, engine: &Engine, name: &str) -> Result<PromptAnswer> {
        engine.authorize(Tier::Input)?;
        let session = self.find(name)?;
        let (prompt, cursor) = session.interrupt()?;
        engine.record_about("agent-interrupt", &session.name().to_string(), "ok");
        Ok(PromptAnswer::new(session.name(), prompt, cursor))
    }

    /// Ends an agent and everything that it started, and returns once they have ended.
    ///
    /// Open prompts get their outcomes at once. A session that has ended already is unchanged.
    /// Errors: `NOT_FOUND`, `READ_ONLY`.
    pub async fn kill(&self, engine: &Engine, name: &str) -> Result<AgentSessionInfo> {
        engine.authorize(Tier::Kill)?;
        let session = self.find(name)?;
        let (thread, closing) = (self.thread(engine)?, session.clone());
        session.begin_end()?;
        engine.record_about("agent-kill", &session.name().to_string(), "ok");
        // The agent is ended even if the caller disconnects meanwhile.
        thread.spawn(async move {
            closing.close().await;
            closing.kill.cancel();
        });
        session.gone.cancelled().await;
        Ok(session.info())
    }

    /// Sets a session's mode and options. `caller`: the calling process, where known.
    ///
    /// Errors: `NOT_FOUND`; `INVALID_ARGUMENT`; `CONFLICT` if the agent rejects it or has ended;
    /// `READ_ONLY`; `UNAUTHORIZED` for an agent, and for a caller with only a token: a mode can end all
    /// questions to a person.
    pub async fn set(
        &self,
        engine: &Engine,
        name: &str,
        patch: &AgentSessionPatch,
        caller: Option<&Lineage>,
    ) -> Result<AgentSessionInfo> {
        let session = self.checked_set(engine, name, patch, caller)?;
        let set = session.set(patch).await;
        let result = set.as_ref().map_or_else(|error| error.code.as_str(), |()| "ok");
        engine.record_about("agent-set", &session.name().to_string(), result);
        set?;
        Ok(session.info())
    }

    /// Checks whether a caller may set a session's mode and options, as [`Self::set`] does, and records a
    /// refusal: a request that is rejected anyway needs no question to a person.
    ///
    /// Errors: `NOT_FOUND`; `INVALID_ARGUMENT`; `READ_ONLY`; `UNAUTHORIZED`.
    pub fn check_set(
        &self,
        engine: &Engine,
        name: &str,
        patch: &AgentSessionPatch,
        caller: Option<&Lineage>,
    ) -> Result<()> {
        self.checked_set(engine, name, patch, caller).map(drop)
    }

    fn checked_set(
        &self,
        engine: &Engine,
        name: &str,
        patch: &AgentSessionPatch,
        caller: Option<&Lineage>,
    ) -> Result<Arc<Session>> {
        engine.authorize(Tier::Input)?;
        let session = self.find(name)?;
        if patch.mode.is_none() && patch.options.is_empty() {
            return Err(Error::invalid("expected mode or options"));
        }
        session.check_person(engine, caller).inspect_err(|error| {
            engine.record_about("agent-set", &session.name().to_string(), error.code.as_str());
        })?;
        Ok(session)
    }

    /// Lists the open permission questions. Errors: `NOT_FOUND`, `READ_ONLY`.
    pub fn questions(&self, engine: &Engine, name: &str) -> Result<Vec<AgentQuestion>> {
        engine.authorize(Tier::Read)?;
        Ok(self.find(name)?.questions())
    }

    /// Answers a permission question; the first answer counts. `answerer`: the answering process,
    /// where known.
    ///
    /// Errors: `NOT_FOUND`; `CONFLICT` for an answered question; `INVALID_ARGUMENT`; `READ_ONLY`;
    /// `UNAUTHORIZED` for the agent itself.
    pub fn answer(
        &self,
        engine: &Engine,
        name: &str,
        question: &str,
        answer: &AgentAnswerRequest,
        answerer: Option<&Lineage>,
    ) -> Result<()> {
        engine.authorize(Tier::Input)?;
        self.find(name)?.answer_for(engine, question, answer, answerer)
    }

    /// Rejects the answer of a caller with only a token, and records it.
    ///
    /// Errors: `UNAUTHORIZED`, always; `NOT_FOUND`; `READ_ONLY`.
    pub fn refuse_token(&self, engine: &Engine, name: &str, question: &str) -> Result<()> {
        let caller = Caller { principal: Principal::Token, ..engine.caller().clone() };
        self.answer(&engine.with_caller(caller), name, question, &AgentAnswerRequest::default(), None)
    }

    /// Returns a page of a session's events. Errors: `NOT_FOUND`, `INVALID_ARGUMENT`, `READ_ONLY`.
    pub async fn events(&self, engine: &Engine, name: &str, query: &AgentEventsQuery) -> Result<AgentEventsAnswer> {
        let mut reader = self.attach(engine, name, query.since.as_deref())?;
        let most = query.limit.map_or(PAGE_EVENTS, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if !(1..=MOST_PAGE_EVENTS).contains(&most) {
            return Err(Error::invalid(format!("limit: expected 1 to {MOST_PAGE_EVENTS}")));
        }
        let wait = query.wait_ms.map_or(Duration::ZERO, Duration::from_millis);
        if wait > MOST_PAGE_WAIT {
            return Err(Error::invalid(format!("wait_ms: expected at most {}", MOST_PAGE_WAIT.as_millis())));
        }
        let counted = if wait.is_zero() { None } else { Some(self.counted_wait()?) };
        let (end, left) = (engine.end(), reader.session.left.clone());
        tokio::select! {
            () = reader.more() => {}
            () = left.cancelled() => return Err(taken_over()),
            () = tokio::time::sleep(wait) => {}
            () = end.cancelled() => {}
        }
        drop(counted);
        Ok(reader.page(most))
    }

    /// Starts to follow a session's events. Errors: `NOT_FOUND`, `INVALID_ARGUMENT`, `READ_ONLY`.
    pub fn attach(&self, engine: &Engine, name: &str, since: Option<&str>) -> Result<EventReader> {
        engine.authorize(Tier::Read)?;
        let session = self.find(name)?;
        let (at, gap) = session.resolve(since, "start")?;
        Ok(EventReader { changes: session.changes(), session, at, gap, page: Vec::new().into_iter() })
    }

    /// Waits until every condition of the request is met.
    ///
    /// Errors: `NOT_FOUND`, `INVALID_ARGUMENT`, `RESOURCE_LIMIT`, `READ_ONLY`, `TMUX_UNAVAILABLE`
    /// if the daemon stops.
    pub async fn wait(&self, engine: &Engine, name: &str, request: &AgentWaitRequest) -> Result<AgentWaitAnswer> {
        engine.authorize(Tier::Read)?;
        let session = self.find(name)?;
        let _counted = self.counted_wait()?;
        let waiting = Waiting::begin(&session, request, engine).await?;
        let end = engine.end();
        tokio::select! {
            // First: the session is not this daemon's any more.
            biased;
            () = session.left.cancelled() => Err(taken_over()),
            answer = waiting.run(&session) => Ok(answer),
            () = end.cancelled() => Err(Error::unavailable("muxtap is stopping")),
        }
    }

    /// Waits for an accepted prompt's outcome. Errors: `NOT_FOUND`; `TMUX_UNAVAILABLE` if another daemon has
    /// taken over, whose events have it.
    pub async fn outcome(&self, name: &str, prompt: u64) -> Result<(PromptOutcome, Option<String>)> {
        self.find(name)?.outcome(prompt).await
    }

    /// Waits until a permission question is closed. Errors: `NOT_FOUND`; `TMUX_UNAVAILABLE` if another
    /// daemon has taken over.
    pub async fn question_over(&self, name: &str, question: &str) -> Result<()> {
        let session = self.find(name)?;
        let mut changes = session.changes();
        while session.questions().iter().any(|open| open.id == question) {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    break;
                },
                () = session.left.cancelled() => return Err(taken_over()),
            }
        }
        Ok(())
    }

    fn counted_wait(&self) -> Result<Counted> {
        let too_many =
            || Error::new(ErrorCode::ResourceLimit, format!("too many open waits for agents: at most {OPEN_WAITS}"));
        Counted::up(&self.inner, |inner| &inner.waits, OPEN_WAITS).ok_or_else(too_many)
    }

    fn find(&self, name: &str) -> Result<Arc<Session>> {
        let mut name: SessionName = name.parse()?;
        if name.provider == DEFAULT_PROVIDER {
            name.provider.clone_from(&self.provider(DEFAULT_PROVIDER)?.name);
        }
        let found = self.all().iter().find(|session| session.name() == name).cloned();
        found.ok_or_else(|| Error::not_found(format!("unknown session {name}; see the list of agent sessions")))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.inner.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the provider with this name.
    fn provider(&self, name: &str) -> Result<&Provider> {
        let providers = &self.inner.providers;
        let found = match name {
            DEFAULT_PROVIDER => providers.iter().find(|provider| provider.is_default),
            name => providers.iter().find(|provider| provider.name == name),
        };
        found.ok_or_else(|| {
            let known: Vec<_> = providers.iter().map(|provider| provider.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Error::invalid(format!("provider: {name:?} is not configured as [agent.{name}]; known providers: {known}"))
        })
    }

    /// Returns the runtime of the thread that serves agents.
    ///
    /// The thread starts with the first session, and ends with the engine once the last agent has
    /// ended.
    fn thread(&self, engine: &Engine) -> Result<Handle> {
        let mut thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*thread {
            return Ok(handle.clone());
        }
        if engine.is_stopping() {
            return Err(Error::unavailable("muxtap is stopping"));
        }
        let failed = |error: std::io::Error| Error::internal(format!("agent sessions: cannot start a thread: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build();
        let runtime = runtime.map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, tasks) = (engine.end(), self.inner.tasks.clone());
        let run = move || {
            runtime.block_on(async {
                end.cancelled().await;
                tasks.close();
                tasks.wait().await;
            });
            // A file operation that hangs must not keep the daemon running.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("agent-sessions".into()).spawn(run).map_err(failed)?;
        let (end, tasks) = (engine.end(), self.inner.tasks.clone());
        engine.spawn(async move {
            end.cancelled().await;
            tasks.wait().await;
        });
        *thread = Some(handle.clone());
        Ok(handle)
    }
}

/// A reader of a session's events, at its own pace. Events that were dropped before it read them
/// are a gap.
pub struct EventReader {
    session: Arc<Session>,
    at: u64,
    gap: Option<AgentGap>,
    changes: watch::Receiver<u64>,
    page: std::vec::IntoIter<AgentEventEntry>,
}

impl EventReader {
    /// Returns the cursor behind the last event that was read.
    pub fn cursor(&self) -> EventCursor {
        self.session.read(self.at, 0).0.cursor
    }

    /// Returns the next event, once there is one. `None`: all events were read, and the agent has ended, or
    /// another daemon has taken over.
    ///
    /// Cancel safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<AgentEventEntry> {
        loop {
            if let Some(next) = self.page.next() {
                return Some(next);
            }
            let AgentEventsAnswer { mut events, gap, ended, more, .. } = self.page(PAGE_EVENTS);
            if let Some(first) = events.first_mut() {
                first.gap = gap;
                self.page = events.into_iter();
                continue;
            }
            if ended && !more {
                return None;
            }
            tokio::select! {
                changed = self.changes.changed() => changed.ok()?,
                () = self.session.left.cancelled() => return None,
            }
        }
    }

    /// Waits until there are unread events, or the agent has ended.
    async fn more(&mut self) {
        loop {
            let (page, _) = self.session.read(self.at, 0);
            if page.more || page.ended || self.changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn page(&mut self, most: usize) -> AgentEventsAnswer {
        let (mut answer, end) = self.session.read(self.at, most);
        self.at = end;
        answer.gap = self.gap.take().or(answer.gap);
        answer
    }
}

/// Returns the agent's id of an earlier session, from that id or a session's name.
fn earlier(provider: &str, given: &str) -> Result<String> {
    let id = match given.strip_prefix("session:").map(|_| given.parse::<SessionName>()).transpose()? {
        Some(name) if name.provider != provider => {
            return Err(Error::invalid(format!(
                "resume: {given} is a session of {}, not of {provider}",
                name.provider
            )));
        }
        Some(name) => name.id,
        None => given.to_owned(),
    };
    if SessionName::is_part(&id) { Ok(id) } else { Err(Error::invalid(format!("resume: invalid session id {id:?}"))) }
}

/// Error: `INVALID_ARGUMENT` for the server of another host.
fn check_here(server: &Server) -> Result<()> {
    if server.socket().is_absolute() {
        return Ok(());
    }
    Err(Error::invalid("socket: an agent and its terminals run on this host"))
}

fn check_text(field: &str, text: &str) -> Result<()> {
    if text.len() > PROMPT_BYTES {
        let message = format!("{field}: {} bytes; at most {PROMPT_BYTES}", text.len());
        return Err(Error::new(ErrorCode::ResourceLimit, message));
    }
    Ok(())
}

fn check_environment(env: &BTreeMap<String, String>) -> Result<()> {
    let is_odd =
        |(name, value): &(&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    if let Some((name, _)) = env.iter().find(is_odd) {
        return Err(Error::invalid(format!("env: invalid variable name {name:?}, or NUL in its value")));
    }
    if env.len() > MOST_VARIABLES {
        return Err(Error::invalid(format!("env: too many variables; at most {MOST_VARIABLES}")));
    }
    Ok(())
}

/// Adds the built-in providers that the configuration does not name, and marks the default.
///
/// The default is the provider that is configured so, or else the first configured one, or else the
/// first built-in one.
pub fn with_built_in(mut configured: Vec<Provider>) -> Vec<Provider> {
    let chosen = configured.iter().any(|provider| provider.is_default);
    for (name, command) in BUILT_IN {
        if configured.iter().all(|provider| provider.name != name) {
            configured.push(Provider { name: name.into(), command: vec![command.into()], is_default: false });
        }
    }
    if !chosen && let Some(first) = configured.first_mut() {
        first.is_default = true;
    }
    configured
}

/// The built-in agents, and the names under which they install themselves.
const BUILT_IN: [(&str, &str); 2] = [("claude", "claude-agent-acp"), ("codex", "codex-acp")];
