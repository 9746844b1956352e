//! One session: its state, which callers and the agent change, and the events that report changes.

mod calls;
mod opening;
mod stored;

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    process::ExitStatus,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use muxtap_api::{
    AgentAnswerRequest, AgentEarlierList, AgentEvent, AgentEventEntry, AgentEventsAnswer, AgentGap, AgentPlanEntry,
    AgentQuestion, AgentSessionInfo, AgentSessionStatus, AgentUsage, Error, ErrorCode, EventCursor, PermissionOption,
    PromptOutcome, Result, SessionName, SessionOption, Tier,
};
use muxtap_approvals::consent::title;
use muxtap_base::{below::Below, clock, nonce, spans};
use muxtap_engine::{Caller, Engine, Lineage, Principal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{Span, field::Empty};

use self::opening::refused;
pub(super) use self::stored::{HeldSession, StoredSession};
use super::{
    acp,
    consent::{self, Calls},
    elicitation,
    elsewhere::{Elsewhere, Shown},
    questions::{Chosen, Questions, Subject, is_id},
    ring::Ring,
    setup::{Abilities, Controls},
    stored::{Asks, Phase, accepted_elsewhere},
    terminals::Terminals,
    turns::{Action, Millis, Reply, Turns},
};

/// The maximum number of a session's queued prompts.
pub(super) const QUEUED_PROMPTS: usize = 64;
/// How long an agent may take to get ready for its first prompt.
pub(super) const START_LIMIT: Duration = Duration::from_secs(60);
/// How long an agent may take to end an interrupted prompt, which is `cancelled` afterwards.
pub(super) const CANCEL_LIMIT: Duration = Duration::from_secs(10);
/// How long a permission question waits for its answer; then it is denied.
pub(super) const QUESTION_LIMIT: Duration = Duration::from_secs(300);
/// How long an agent may run on after it closed its output or its input.
pub(super) const CLOSED_LIMIT: Duration = Duration::from_secs(1);
/// The number of malformed messages at which an agent is ended.
pub(super) const MOST_FAULTS: u64 = 1000;
/// The maximum number of bytes that wait for the agent to read them.
pub(super) const OUTGOING_BYTES: usize = 32 << 20;
/// The number of a session's outcomes that are remembered for later waits.
const KEPT_OUTCOMES: usize = 1024;
/// The way out for a caller whose token does not permit an answer.
pub(super) const WHERE_TO_ANSWER: &str =
    "use `muxtap agent-session answer` or `muxtap approvals` on the Unix socket, or the page of `muxtap open`";
/// The number of the first request to an agent, `initialize`; the one that opens the session
/// follows.
const FIRST_REQUEST: u64 = 1;

pub(super) struct Session {
    /// The facts that are known from the beginning.
    pub(super) about: About,
    /// The session's name, once the agent has sent its id.
    name: OnceLock<SessionName>,
    state: Mutex<State>,
    /// The questions that are shown elsewhere too.
    shown: Shown,
    /// Notified of every event.
    changed: watch::Sender<u64>,
    /// Lines for the agent.
    outgoing: mpsc::Sender<Vec<u8>>,
    /// The number of bytes in the waiting lines.
    unread: AtomicUsize,
    /// Notified when a deadline may have moved closer.
    pub(super) wake: Notify,
    /// Cancelled to end the agent.
    pub(super) kill: CancellationToken,
    /// Cancelled when the agent and everything that it started have ended.
    pub(super) gone: CancellationToken,
    /// Whether another daemon continues the session.
    phase: watch::Receiver<Phase>,
    /// Cancelled when another daemon does.
    pub(super) left: CancellationToken,
    /// Stops the tasks of the agent for another daemon.
    asks: Asks,
    /// Notified when something is finished that prevents a handover.
    rest: Notify,
    begun: Instant,
}

/// Facts about a session that are known from the beginning.
pub(super) struct About {
    pub(super) provider: String,
    pub(super) cwd: PathBuf,
    /// What the agent is started for.
    pub(super) purpose: Purpose,
    /// The agent's login to use first.
    pub(super) auth: Option<String>,
    /// The mode to start in.
    pub(super) mode: Option<String>,
    pub(super) engine: Engine,
    pub(super) terminals: Arc<Terminals>,
    pub(super) below: Arc<Below>,
    /// The other places that show the session's questions.
    pub(super) elsewhere: Elsewhere,
}

/// What an agent is started for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A new session.
    New,
    /// An earlier session, by its id.
    Resume(String),
    /// A list of its sessions, in its directory or all.
    List { all: bool },
}

#[derive(Debug)]
struct State {
    ring: Ring,
    turns: Turns,
    questions: Questions,
    /// The agent's requests that are being served, by the ids that it gave them.
    served: Vec<Served>,
    /// The descriptions of the last tool calls.
    calls: Calls,
    /// The pending requests to the agent.
    asked: HashMap<u64, Asked>,
    /// Notified when the session is open, or has failed to open.
    opened: Option<oneshot::Sender<Result<()>>>,
    outcomes: BTreeMap<u64, (PromptOutcome, Option<String>)>,
    /// The spans of the prompts without an outcome.
    spans: BTreeMap<u64, Span>,
    /// The responses that callers wait for, by their requests.
    waiting: HashMap<u64, oneshot::Sender<Result<Value>>>,
    /// The number of callers that set the mode or an option.
    setting: usize,
    /// The agent's optional methods.
    able: Abilities,
    /// The modes and options.
    controls: Controls,
    title: Option<String>,
    plan: Vec<AgentPlanEntry>,
    usage: Option<AgentUsage>,
    /// The agent's own sessions, and the number of pages that were read of them.
    earlier: AgentEarlierList,
    pages: usize,
    pid: Option<u32>,
    faults: u64,
    created_ms: u64,
    updated_ms: u64,
    last_event: Instant,
    /// Whether the session accepts no more prompts.
    ending: bool,
    /// Whether the last event has been sent.
    ended: bool,
    exit: Option<(Option<i32>, Option<i32>)>,
    error: Option<String>,
    events: u64,
}

/// A request of the agent that is being served.
#[derive(Debug)]
struct Served {
    id: Box<RawValue>,
    /// Cancelled when the agent withdraws it.
    stop: CancellationToken,
    /// The terminal whose end it awaits: another daemon can do that from the beginning.
    terminal: Option<String>,
}

impl Served {
    /// Returns whether another daemon can serve the request.
    fn can_begin_anew(&self) -> bool {
        self.terminal.is_some() && !self.stop.is_cancelled()
    }
}

/// A pending request to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Asked {
    Initialize,
    Authenticate,
    Open,
    List,
    Mode,
    Prompt,
    Call,
}

/// Why a caller does not stand for a person.
enum NotAPerson {
    /// An agent started the process: this one (`it`), or another one.
    Agent(&'static str),
    Token,
}

/// The state that waits check besides events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glance {
    /// Whether no prompt runs or is queued.
    pub(super) idle: bool,
    /// Whether the last event has been sent.
    pub(super) ended: bool,
    /// Whether a permission question is open.
    pub(super) asking: bool,
    /// When the last event came.
    pub(super) last_event: Instant,
}

impl Session {
    /// Creates the session of an agent; `outgoing` takes the lines for it.
    ///
    /// `opened` is notified when the session is open, or has failed to open.
    pub(super) fn new(
        about: About,
        pid: u32,
        outgoing: mpsc::Sender<Vec<u8>>,
        (phase, asks): (watch::Receiver<Phase>, Asks),
        opened: oneshot::Sender<Result<()>>,
    ) -> Self {
        let (now, now_ms) = (Instant::now(), clock::now_ms());
        let state = State {
            ring: Ring::new(nonce::number()),
            turns: Turns::new(FIRST_REQUEST),
            questions: Questions::default(),
            served: Vec::new(),
            calls: Calls::default(),
            asked: HashMap::new(),
            opened: Some(opened),
            outcomes: BTreeMap::new(),
            spans: BTreeMap::new(),
            waiting: HashMap::new(),
            setting: 0,
            able: Abilities::default(),
            controls: Controls::default(),
            title: None,
            plan: Vec::new(),
            usage: None,
            earlier: AgentEarlierList::default(),
            pages: 0,
            pid: Some(pid),
            faults: 0,
            created_ms: now_ms,
            updated_ms: now_ms,
            last_event: now,
            ending: false,
            ended: false,
            exit: None,
            error: None,
            events: 0,
        };
        let mut state = state;
        state.asked.insert(FIRST_REQUEST, Asked::Initialize);
        let session = Self {
            about,
            name: OnceLock::new(),
            state: Mutex::new(state),
            shown: Shown::default(),
            changed: watch::Sender::new(0),
            outgoing,
            unread: AtomicUsize::new(0),
            wake: Notify::new(),
            kill: CancellationToken::new(),
            gone: CancellationToken::new(),
            phase,
            left: CancellationToken::new(),
            asks,
            rest: Notify::new(),
            begun: now,
        };
        let params = json!({
            "protocolVersion": acp::PROTOCOL_VERSION,
            "clientCapabilities": {
                "fs": { "readTextFile": true, "writeTextFile": true },
                "terminal": true,
                "auth": { "terminal": false },
                "session": { "configOptions": { "boolean": {} } },
                "elicitation": { "form": {}, "url": {} },
            },
            "clientInfo": { "name": "muxtap", "title": "muxtap", "version": env!("CARGO_PKG_VERSION") },
        });
        session.send(&mut session.lock(), acp::request(FIRST_REQUEST, "initialize", &params));
        session
    }

    /// Returns the session's name; its id is empty until the session is open.
    pub(super) fn name(&self) -> SessionName {
        let unnamed = || SessionName { provider: self.about.provider.clone(), id: String::new() };
        self.name.get().cloned().unwrap_or_else(unnamed)
    }

    /// Returns whether the opening is over, successful or not.
    pub(super) fn is_open(&self) -> bool {
        self.lock().opened.is_none()
    }

    /// Returns the milliseconds since the session started.
    pub(super) fn now(&self) -> Millis {
        millis(self.begun.elapsed())
    }

    /// Returns a channel that is notified of every event.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a line for the agent. An agent that does not read is ended.
    ///
    /// Called with the state locked: lines keep the order of the changes that they report.
    fn send(&self, state: &mut State, line: Vec<u8>) {
        let bytes = line.len();
        let unread = self.unread.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let is_full = match self.outgoing.try_send(line) {
            // The task that owns the agent detects a closed channel.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => unread > OUTGOING_BYTES,
            Err(mpsc::error::TrySendError::Full(_)) => true,
        };
        if is_full {
            state.error.get_or_insert_with(|| "the agent does not read its input".into());
            self.kill.cancel();
        }
    }

    /// Notes that the agent has read this many bytes.
    pub(super) fn taken(&self, bytes: usize) {
        self.unread.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Ends the agent for this reason.
    pub(super) fn fail(&self, why: &str) {
        let mut state = self.lock();
        if !state.ending {
            state.error.get_or_insert_with(|| why.to_owned());
        }
        self.kill.cancel();
    }

    /// Carries out the actions of a change to the prompts, announces it, and unlocks the state.
    fn finish(&self, mut state: MutexGuard<'_, State>, actions: Vec<Action>) {
        let id = self.name.get().map(|name| name.id.clone()).unwrap_or_default();
        for action in actions {
            match action {
                Action::Send { prompt, request, text } => {
                    state.asked.insert(request, Asked::Prompt);
                    let mut params = json!({ "sessionId": id, "prompt": [{ "type": "text", "text": text }] });
                    let parent = state.spans.get(&prompt).and_then(spans::traceparent);
                    if let (Some(parent), Some(params)) = (parent, params.as_object_mut()) {
                        params.insert("_meta".into(), json!({ "traceparent": parent }));
                    }
                    self.send(&mut state, acp::request(request, "session/prompt", &params));
                    state.event(AgentEvent::Started { prompt });
                }
                Action::Cancel => {
                    let cancel = acp::notification("session/cancel", &json!({ "sessionId": id }));
                    self.send(&mut state, cancel);
                    let cancelled = state.questions.cancel("interrupt");
                    self.answered(&mut state, &cancelled);
                }
                Action::Outcome { prompt, outcome, error } => {
                    if let Some(span) = state.spans.remove(&prompt) {
                        span.record("muxtap.outcome", outcome.as_str());
                    }
                    state.outcomes.insert(prompt, (outcome, error.clone()));
                    if state.outcomes.len() > KEPT_OUTCOMES {
                        state.outcomes.pop_first();
                    }
                    state.event(AgentEvent::Outcome { prompt, outcome, error });
                }
            }
        }
        self.announce(state);
    }

    /// Announces answers, and sends them to the agent.
    fn answered(&self, state: &mut State, chosen: &[Chosen]) {
        for chosen in chosen {
            self.shown.remove(&chosen.question);
            let result = if chosen.withdrawn { Err(acp::withdrawn()) } else { Ok(chosen.result.clone()) };
            self.send(state, acp::reply(&chosen.request, result));
            state.event(AgentEvent::Answered {
                question: chosen.question.clone(),
                allowed: chosen.allowed,
                option: chosen.option.clone(),
                by: chosen.by.clone(),
            });
        }
    }

    /// Wakes the readers of events, and the task that keeps the deadlines.
    fn announce(&self, state: MutexGuard<'_, State>) {
        let events = state.events;
        drop(state);
        let changed = self.changed.send_if_modified(|seen| {
            let more = *seen < events;
            *seen = events.max(*seen);
            more
        });
        if changed {
            self.wake.notify_one();
        }
    }

    /// Adds an event.
    pub(super) fn event(&self, event: AgentEvent) {
        let mut state = self.lock();
        state.event(event);
        self.announce(state);
    }

    /// Accepts a prompt. Returns its number and the cursor before it. Errors: `CONFLICT`,
    /// `RESOURCE_LIMIT`; `TMUX_UNAVAILABLE` while another daemon takes over.
    pub(super) fn prompt(&self, text: String, timeout: Duration) -> Result<(u64, EventCursor)> {
        let state = self.lock();
        self.check_here()?;
        self.accept(state, text, timeout)
    }

    /// Accepts the prompt with which a session begins: until then no other daemon takes it over. Errors:
    /// `CONFLICT`.
    pub(super) fn first_prompt(&self, text: String, timeout: Duration) -> Result<(u64, EventCursor)> {
        self.accept(self.lock(), text, timeout)
    }

    fn accept(&self, mut state: MutexGuard<'_, State>, text: String, timeout: Duration) -> Result<(u64, EventCursor)> {
        let deadline = self.now().saturating_add(millis(timeout));
        if state.ending {
            return Err(Error::new(ErrorCode::Conflict, format!("{} has ended", self.name())));
        }
        let (cursor, mut actions) = (state.ring.end(), Vec::new());
        let Some(prompt) = state.turns.push(text.clone(), deadline, QUEUED_PROMPTS, &mut actions) else {
            let message = format!("too many prompts: at most {QUEUED_PROMPTS} can be queued");
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        };
        state.spans.insert(prompt, self.span());
        state.event(AgentEvent::Prompt { prompt, text: acp::cut(text, acp::EVENT_TEXT_BYTES) });
        self.finish(state, actions);
        // The prompt's deadline may be the next one.
        self.wake.notify_one();
        Ok((prompt, cursor))
    }

    /// Begins the span of a prompt, from its request to its outcome.
    fn span(&self) -> Span {
        tracing::info_span!(
            target: spans::TARGET,
            "prompt",
            otel.name = "invoke_agent",
            gen_ai.operation.name = "invoke_agent",
            gen_ai.agent.name = self.about.provider,
            muxtap.outcome = Empty,
        )
    }

    /// Waits for an accepted prompt's outcome. Error: `TMUX_UNAVAILABLE` if another daemon has taken over.
    pub(super) async fn outcome(&self, prompt: u64) -> Result<(PromptOutcome, Option<String>)> {
        let mut changes = self.changes();
        loop {
            if let Some(outcome) = self.lock().outcomes.get(&prompt) {
                return Ok(outcome.clone());
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return Ok((PromptOutcome::AgentExited, None));
                },
                () = self.left.cancelled() => return Err(accepted_elsewhere(prompt, None)),
            }
        }
    }

    /// Cancels the running prompt. Returns its number, and the cursor at the time of the request.
    ///
    /// Error: `TMUX_UNAVAILABLE` while another daemon takes over.
    pub(super) fn interrupt(&self) -> Result<(Option<u64>, EventCursor)> {
        let (limit, mut actions) = (self.now() + millis(CANCEL_LIMIT), Vec::new());
        let mut state = self.lock();
        self.check_here()?;
        let cursor = state.ring.end();
        let prompt = state.turns.interrupt(limit, &mut actions);
        self.finish(state, actions);
        self.wake.notify_one();
        Ok((prompt, cursor))
    }

    /// Answers a permission question. Returns the chosen option and whether it allows the request.
    ///
    /// Errors: `NOT_FOUND`, `CONFLICT`, `INVALID_ARGUMENT`; `TMUX_UNAVAILABLE` while another daemon takes
    /// over.
    pub(super) fn answer(
        &self,
        question: &str,
        answer: &AgentAnswerRequest,
        by: &str,
    ) -> Result<(Option<String>, bool)> {
        let mut state = self.lock();
        self.check_here()?;
        let chosen = state.questions.answer(question, answer, by)?;
        let result = (chosen.option.clone(), chosen.allowed);
        self.answered(&mut state, &[chosen]);
        self.announce(state);
        Ok(result)
    }

    /// Answers a permission question for a caller, and records it. `answerer`: the answering
    /// process, where known.
    ///
    /// Errors: as [`Session::answer`]'s; `READ_ONLY`; `UNAUTHORIZED` if the answerer is the agent
    /// or was started by an agent of this daemon, or if the caller has only a token, because an
    /// agent can read that.
    pub(super) fn answer_for(
        &self,
        engine: &Engine,
        question: &str,
        answer: &AgentAnswerRequest,
        answerer: Option<&Lineage>,
    ) -> Result<()> {
        engine.authorize(Tier::Input)?;
        let Caller { face, who, principal } = engine.caller();
        let by = match principal.login() {
            Some(login) => format!("{face} {who} ({login})"),
            None => format!("{face} {who}"),
        };
        let asked = || format!("question {question} was asked by the agent {}", self.name());
        let answered = match self.not_a_person(engine, answerer) {
            Some(NotAPerson::Agent(whose)) => {
                let why = format!("{}, and this answer comes from a process that {whose} started", asked());
                Err(Error::new(ErrorCode::Unauthorized, why))
            }
            Some(NotAPerson::Token) => {
                let why = format!("{}; a token is not enough to answer it: {WHERE_TO_ANSWER}", asked());
                Err(Error::new(ErrorCode::Unauthorized, why))
            }
            None => self.answer(question, answer, by.trim()),
        };
        let result = match &answered {
            Ok((option, allowed)) => answer_said(option.as_deref(), *allowed),
            Err(error) => error.code.as_str().to_owned(),
        };
        engine.record_about("agent-permission", &self.name().to_string(), &result);
        answered.map(drop)
    }

    /// Returns why a caller does not stand for a person: a process that an agent started, or a caller
    /// with only a token, which an agent can read. `caller`: the calling process, where known.
    fn not_a_person(&self, engine: &Engine, caller: Option<&Lineage>) -> Option<NotAPerson> {
        not_a_person(engine, caller, self.is_own(caller))
    }

    /// Returns whether this session's agent, or one of its terminals, started a process.
    pub(super) fn is_own(&self, process: Option<&Lineage>) -> bool {
        let agent = self.lock().pid;
        process
            .is_some_and(|process| agent.into_iter().chain(self.about.terminals.pids()).any(|pid| process.has_pid(pid)))
    }

    /// Checks whether a caller may change the mode or an option, which can end the agent's questions.
    ///
    /// Error: `UNAUTHORIZED`, as for an answer.
    pub(super) fn check_person(&self, engine: &Engine, caller: Option<&Lineage>) -> Result<()> {
        check_person(engine, caller, self.is_own(caller).then_some("this agent"))
    }

    /// Returns the agent's own sessions, once they are listed.
    pub(super) fn earlier(&self) -> AgentEarlierList {
        self.lock().earlier.clone()
    }

    /// Returns the open questions.
    pub(super) fn questions(&self) -> Vec<AgentQuestion> {
        self.lock().questions.open()
    }

    /// Decides what is due now.
    pub(super) fn tick(&self) {
        let (now, mut actions) = (self.now(), Vec::new());
        let mut state = self.lock();
        if state.opened.is_some() && now >= millis(START_LIMIT) {
            let seconds = START_LIMIT.as_secs();
            state.error.get_or_insert_with(|| format!("the agent was not ready within {seconds} s"));
            self.kill.cancel();
        }
        let denied = state.questions.due(now);
        for chosen in &denied {
            self.about.engine.record_about("agent-permission", &self.name().to_string(), &said(chosen));
        }
        self.answered(&mut state, &denied);
        state.turns.tick(now, &mut actions);
        self.finish(state, actions);
    }

    /// Returns the time until [`Session::tick`] is due.
    pub(super) fn next_tick(&self) -> Option<Duration> {
        let state = self.lock();
        let start = state.opened.is_some().then(|| millis(START_LIMIT));
        let next = [state.turns.next_deadline(), state.questions.next_deadline(), start].into_iter().flatten().min()?;
        Some(Duration::from_millis(next.saturating_sub(self.now())))
    }

    /// Notes a malformed message.
    pub(super) fn fault(&self, message: &str) {
        let mut state = self.lock();
        state.faults += 1;
        let too_many = state.faults >= MOST_FAULTS;
        state.event(AgentEvent::Fault { message: message.to_owned() });
        self.announce(state);
        if too_many {
            self.fail("the agent does not speak the protocol");
        }
    }

    /// Handles a notification of the agent.
    pub(super) fn notified(&self, method: &str, mut params: Value) {
        if method == "$/cancel_request" {
            return self.withdraw(params.get("requestId").unwrap_or(&Value::Null));
        }
        if method != "session/update" {
            return;
        }
        let of = params.get("sessionId").and_then(Value::as_str);
        // Until the session is open, its id is unknown.
        if self.name.get().is_some_and(|name| of.is_some_and(|of| of != name.id)) {
            return;
        }
        let Some(update) = params.get_mut("update").map(Value::take) else {
            return self.fault("an update without content");
        };
        let mut state = self.lock();
        state.calls.note(&update);
        let event = acp::event(update);
        state.take(event);
        self.announce(state);
    }

    /// Closes the question of a request that the agent withdraws, or stops serving the request. A
    /// request that has its response stays as it is.
    fn withdraw(&self, request: &Value) {
        let mut state = self.lock();
        if let Some(chosen) = state.questions.withdraw(request) {
            self.answered(&mut state, &[chosen]);
        }
        for served in state.served.iter().filter(|served| is_id(&served.id, request)) {
            served.stop.cancel();
        }
        self.announce(state);
    }

    /// Notes that a request of the agent is being served. Returns a token that is cancelled when the agent
    /// withdraws the request. `terminal`: the one whose end it awaits.
    pub(super) fn serving(&self, request: &RawValue, terminal: Option<String>) -> CancellationToken {
        let stop = CancellationToken::new();
        self.lock().served.push(Served { id: request.to_owned(), stop: stop.clone(), terminal });
        stop
    }

    /// Sends the response to a request of the agent, and notes that it was served. While the session is
    /// being handed over, a request that another daemon can serve from the beginning waits: if that daemon
    /// takes over, it responds, and this one does not.
    pub(super) async fn served(&self, request: &RawValue, result: Result<Value, (i64, String)>) {
        let mut phase = self.phase.clone();
        loop {
            {
                let mut state = self.lock();
                let at = state.served.iter().position(|served| served.id.get() == request.get());
                let can_wait = at.and_then(|at| state.served.get(at)).is_some_and(Served::can_begin_anew);
                let is_held = *self.phase.borrow() == Phase::Held;
                // A session leaves before the phase says so.
                if can_wait && self.left.is_cancelled() {
                    return;
                }
                if !can_wait || !is_held {
                    if let Some(at) = at {
                        state.served.swap_remove(at);
                    }
                    self.send(&mut state, acp::reply(request, result));
                    break;
                }
            }
            if phase.wait_for(|phase| *phase != Phase::Held).await.is_err() {
                return;
            }
        }
        self.rest.notify_waiters();
    }

    /// Returns who asks a question of this session, as muxtap knows it.
    fn asks_as(&self, pid: Option<u32>) -> String {
        let process = pid.map_or_else(String::new, |pid| format!(", process {pid}"));
        format!("the agent {}{process}, in {}", self.name(), title(&self.about.cwd.display().to_string()))
    }

    /// Opens a permission question of the agent, or cancels it if it cannot be opened.
    pub(super) fn ask(self: &Arc<Self>, request: Box<RawValue>, params: Value) {
        let Ok(permission) = serde_json::from_value::<acp::PermissionRequest>(params) else {
            let error = (acp::WRONG_PARAMS, "session/request_permission: options are missing".to_owned());
            return self.reply(&request, Err(error));
        };
        let closed = |state: &State| state.ending || !state.questions.has_room();
        let mut state = self.lock();
        if closed(&state) {
            return self.send(&mut state, acp::reply(&request, Ok(acp::permission(None))));
        }
        let known = state.calls.known(permission.tool_call());
        drop(state);
        // An agent's call can be large; others can use the session while it is described.
        let call = known.complete(permission.tool_call());
        let (title, detail) = consent::described(&call);
        let kind = call.get("kind").and_then(Value::as_str).map(|kind| acp::cut(kind.to_owned(), 64));
        let about = AgentQuestion { kind, detail: Some(detail), ..question(title, permission.into_options()) };
        self.open_question(request, about, Subject::Permission);
    }

    /// Opens a question of the agent with a form or a URL, or cancels it if it cannot be opened.
    pub(super) fn elicit(self: &Arc<Self>, request: Box<RawValue>, params: &Value) {
        let of = params.get("sessionId").and_then(Value::as_str);
        // A question about a login, before the session is open, reaches no person: the session has no
        // name yet.
        if self.name.get().is_none() || self.lock().ending {
            return self.reply(&request, Ok(elicitation::answer(None, None)));
        }
        let asked = match elicitation::Elicitation::parse(params) {
            Ok(asked) if of.is_none_or(|of| of == self.name().id) => asked,
            Ok(_) => return self.reply(&request, Err((acp::WRONG_PARAMS, "unknown sessionId".into()))),
            Err(why) => return self.reply(&request, Err((acp::WRONG_PARAMS, format!("elicitation/create: {why}")))),
        };
        let elicitation::Elicitation { title, detail, url, form } = asked;
        let kind = if url.is_some() { "url" } else { "form" };
        let about = AgentQuestion {
            kind: Some(kind.into()),
            detail: Some(detail),
            url,
            form,
            ..question(title, elicitation::Elicitation::options())
        };
        self.open_question(request, about, Subject::Elicitation);
    }

    /// Opens a question, or cancels it if no more can be open; shows it elsewhere too.
    fn open_question(self: &Arc<Self>, request: Box<RawValue>, about: AgentQuestion, subject: Subject) {
        let mut state = self.lock();
        if state.ending || !state.questions.has_room() {
            let canceled = match subject {
                Subject::Permission => acp::permission(None),
                Subject::Elicitation => elicitation::answer(None, None),
            };
            return self.send(&mut state, acp::reply(&request, Ok(canceled)));
        }
        let deadline = self.now() + millis(QUESTION_LIMIT);
        let question = AgentQuestion {
            id: state.questions.next_id(),
            asked_by: self.asks_as(state.pid),
            deadline_ms: clock::now_ms() + millis(QUESTION_LIMIT),
            ..about
        };
        state.questions.ask(question.clone(), subject, request, deadline);
        state.event(AgentEvent::Question { question: question.clone() });
        self.announce(state);
        self.shown.show(self, &question, QUESTION_LIMIT);
        // An answer that came before `show` found nothing to remove.
        if self.questions().iter().all(|open| open.id != question.id) {
            self.shown.remove(&question.id);
        }
    }

    /// Sends the response to a request of the agent.
    pub(super) fn reply(&self, request: &RawValue, result: Result<Value, (i64, String)>) {
        self.send(&mut self.lock(), acp::reply(request, result));
    }

    /// Handles the agent's response to a request.
    pub(super) fn replied(&self, to: u64, result: Result<Value, acp::RpcError>) {
        let mut state = self.lock();
        let Some(asked) = state.asked.remove(&to) else {
            drop(state);
            return self.fault("a reply without a request, or a second reply");
        };
        let step = match (asked, result) {
            (Asked::Prompt, result) => {
                let reply = match result {
                    Ok(result) => match acp::outcome(&result) {
                        Some(outcome) => Reply::Stop(outcome),
                        None => Reply::Error("the agent ended the turn for an unknown reason".into()),
                    },
                    Err(error) => Reply::Error(error.text()),
                };
                let mut actions = Vec::new();
                if !state.turns.reply(to, reply, &mut actions) {
                    state.event(AgentEvent::Fault { message: "a late reply".into() });
                }
                return self.finish(state, actions);
            }
            (Asked::Call, result) => {
                let result = result.map_err(|error| refused(asked, &error, &state.able));
                if let Some(waiting) = state.waiting.remove(&to) {
                    let _ = waiting.send(result);
                }
                return;
            }
            (Asked::Initialize, Ok(result)) => self.initialized(&mut state, &result),
            (Asked::Authenticate, Ok(_)) => self.open_session(&mut state),
            (Asked::Open, Ok(result)) => self.take_session(&mut state, &result),
            (Asked::List, Ok(result)) => Ok(self.take_list(&mut state, &result)),
            (Asked::Mode, Ok(result)) => {
                state.controls.take(&result);
                if let Some(mode) = self.about.mode.as_ref().filter(|_| !state.controls.has_mode_of(&result)) {
                    state.controls.set_mode(mode);
                }
                Ok(None)
            }
            (asked, Err(error)) => Err(refused(asked, &error, &state.able)),
        };
        match step {
            Ok(Some(line)) => self.send(&mut state, line),
            Ok(None) => {
                let mut actions = Vec::new();
                state.turns.opened(&mut actions);
                if let Some(opened) = state.opened.take() {
                    let _ = opened.send(Ok(()));
                }
                self.finish(state, actions);
            }
            Err(error) => {
                state.error.get_or_insert(error.message.clone());
                if let Some(opened) = state.opened.take() {
                    let _ = opened.send(Err(error));
                }
                self.kill.cancel();
            }
        }
    }

    /// Gives every open prompt its outcome: the agent has ended, or is being ended.
    pub(super) fn ending(&self, why_not_open: &str) {
        self.end_prompts(self.lock(), why_not_open);
    }

    /// Gives every open prompt its outcome: a caller ends the agent. Error: `TMUX_UNAVAILABLE` while
    /// another daemon takes over.
    pub(super) fn begin_end(&self) -> Result<()> {
        let state = self.lock();
        self.check_here()?;
        self.end_prompts(state, "");
        Ok(())
    }

    fn end_prompts(&self, mut state: MutexGuard<'_, State>, why_not_open: &str) {
        let mut actions = Vec::new();
        state.ending = true;
        state.turns.end(&mut actions);
        if let Some(opened) = state.opened.take() {
            let reason = state.error.clone().unwrap_or_else(|| "the agent ended before it was ready".into());
            let _ = opened.send(Err(Error::new(ErrorCode::Conflict, format!("{reason}{why_not_open}"))));
        }
        let withdrawn = state.questions.cancel("end");
        self.answered(&mut state, &withdrawn);
        self.finish(state, actions);
    }

    /// Notes how the agent has ended, in the last event.
    pub(super) fn ended(&self, status: Option<ExitStatus>) {
        use std::os::unix::process::ExitStatusExt as _;
        let (code, signal) = status.map_or((None, None), |status| (status.code(), status.signal()));
        let mut state = self.lock();
        (state.pid, state.exit) = (None, Some((code, signal)));
        let error = state.error.clone();
        state.event(AgentEvent::Exited { exit_status: code, exit_signal: signal, error });
        state.ended = true;
        self.announce(state);
        self.gone.cancel();
    }

    /// Returns the session's entry in the list.
    pub(super) fn info(&self) -> AgentSessionInfo {
        let terminals = self.about.terminals.list();
        let state = self.lock();
        let questions = state.questions.open();
        let status = if state.ending {
            AgentSessionStatus::Ended
        } else if !questions.is_empty() {
            AgentSessionStatus::Asking
        } else if state.turns.running().is_some() {
            AgentSessionStatus::Running
        } else if state.turns.is_overdue() {
            AgentSessionStatus::Unresponsive
        } else {
            AgentSessionStatus::Idle
        };
        let (exit_status, exit_signal) = state.exit.unwrap_or_default();
        let name = self.name();
        AgentSessionInfo {
            provider: name.provider.clone(),
            session_id: name.id.clone(),
            session: name,
            status,
            cwd: self.about.cwd.display().to_string(),
            mode: state.controls.mode.clone(),
            modes: state.controls.modes.clone(),
            options: state.controls.options.clone(),
            title: state.title.clone(),
            plan: state.plan.clone(),
            usage: state.usage.clone(),
            pid: state.pid,
            running: state.turns.running(),
            queued: state.turns.queued() as u64,
            questions,
            terminals,
            cursor: state.ring.end(),
            created_ms: state.created_ms,
            updated_ms: state.updated_ms,
            exit_status,
            exit_signal,
            error: state.error.clone(),
        }
    }

    /// Returns the state that waits check.
    pub(super) fn glance(&self) -> Glance {
        let state = self.lock();
        let idle = state.turns.is_idle() || state.ending;
        let asking = !state.questions.open().is_empty();
        Glance { idle, ended: state.ended, asking, last_event: state.last_event }
    }

    /// Returns the offset that a word or cursor means, and the gap before it.
    pub(super) fn resolve(&self, since: Option<&str>, default: &str) -> Result<(u64, Option<AgentGap>)> {
        self.lock().ring.resolve(since, default)
    }

    /// Returns at most this many events from an offset on, and the offset behind them.
    pub(super) fn read(&self, from: u64, most: usize) -> (AgentEventsAnswer, u64) {
        let state = self.lock();
        let (kept, end, gap) = state.ring.read(from, most);
        let first = end - kept.len() as u64;
        let name = self.name();
        let entries = kept.into_iter().zip(first + 1..).map(|(kept, behind)| {
            AgentEventEntry::new(name.clone(), state.ring.cursor(behind), kept.at_ms, kept.event)
        });
        let more = end < state.ring.end().offset;
        let mut answer = AgentEventsAnswer::new(entries.collect(), state.ring.cursor(end), more, state.ended);
        answer.gap = gap;
        (answer, end)
    }
}

impl State {
    /// Takes what an update of the agent changes, and adds its event.
    fn take(&mut self, event: AgentEvent) {
        match &event {
            AgentEvent::Mode { mode } => drop(self.controls.set_mode(mode)),
            AgentEvent::Options { options } => return self.take_options(options.clone()),
            AgentEvent::Plan { entries } => self.plan.clone_from(entries),
            AgentEvent::Usage { usage } => self.usage = Some(usage.clone()),
            AgentEvent::Title { title } => self.title.clone_from(title),
            _ => {}
        }
        self.event(event);
    }

    /// Takes all options of the session, and adds the events of what has changed.
    fn take_options(&mut self, options: Vec<SessionOption>) {
        if self.controls.options != options {
            self.event(AgentEvent::Options { options: options.clone() });
        }
        if self.controls.set_options(options)
            && let Some(mode) = self.controls.mode.clone()
        {
            self.event(AgentEvent::Mode { mode });
        }
    }

    fn event(&mut self, event: AgentEvent) {
        if self.ended {
            return;
        }
        (self.updated_ms, self.last_event) = (clock::now_ms(), Instant::now());
        self.events += 1;
        self.ring.push(self.updated_ms, event);
    }
}

/// Returns why a caller does not stand for a person. `is_own`: the session's agent started the calling
/// process.
fn not_a_person(engine: &Engine, caller: Option<&Lineage>, is_own: bool) -> Option<NotAPerson> {
    if is_own {
        Some(NotAPerson::Agent("it"))
    } else if caller.is_some_and(Lineage::is_agents) {
        Some(NotAPerson::Agent("an agent of this muxtap"))
    } else if matches!(engine.caller().principal, Principal::Token | Principal::Device(_)) {
        Some(NotAPerson::Token)
    } else {
        None
    }
}

/// Checks whether a caller may choose the mode or an option, which can end an agent's questions.
///
/// `own`: the agent that is known to have started the calling process.
///
/// Error: `UNAUTHORIZED`, as for an answer.
pub(super) fn check_person(engine: &Engine, caller: Option<&Lineage>, own: Option<&str>) -> Result<()> {
    let what = "the mode and the options decide what an agent asks a person";
    let why = match not_a_person(engine, caller, own.is_some()) {
        None => return Ok(()),
        Some(NotAPerson::Agent(whose)) => {
            let whose = own.unwrap_or(whose);
            format!("{what}, and this request comes from a process that {whose} started")
        }
        Some(NotAPerson::Token) => {
            format!("{what}, and a token is not enough to change them: use the Unix socket, or the user's page")
        }
    };
    Err(Error::new(ErrorCode::Unauthorized, why))
}

/// Begins a question; its id and its deadline follow when it is opened.
fn question(title: String, options: Vec<PermissionOption>) -> AgentQuestion {
    AgentQuestion::new(String::new(), title, options, 0)
}

/// Formats an answer for the audit log.
fn said(chosen: &Chosen) -> String {
    answer_said(chosen.option.as_deref(), chosen.allowed)
}

/// Formats an answer for the audit log.
fn answer_said(option: Option<&str>, allowed: bool) -> String {
    format!("{}:{}", if allowed { "allowed" } else { "denied" }, option.unwrap_or("cancelled"))
}

/// Converts a duration to whole milliseconds.
pub(super) fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
