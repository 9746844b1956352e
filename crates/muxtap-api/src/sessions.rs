//! Agent sessions: what is asked of a coding agent, and what it does. `docs/agent-sessions.md` describes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{EventCursor, GapReason, SessionName};

/// `POST /v1/agent-sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSessionRequest {
    /// The provider: a name of the configuration, or `sdk` for its default.
    pub provider: String,
    /// The directory in which the agent works, an absolute path.
    pub cwd: String,
    /// The first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Go on with this earlier session of the agent (`session/load`), by its id or its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// The mode to begin in, as the agent calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Variables of the agent's environment, besides the daemon's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The state of an agent session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentSessionStatus {
    /// No prompt runs.
    #[default]
    Idle,
    /// A prompt runs.
    Running,
    /// A permission question waits for its answer.
    Asking,
    /// A prompt has its outcome, but the agent has not replied yet: the next one waits for that.
    Unresponsive,
    /// The agent has ended.
    Ended,
}

/// An agent session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentSessionInfo {
    /// Its name, `session:PROVIDER:ID`.
    pub session: SessionName,
    /// The provider.
    pub provider: String,
    /// The agent's id of the session.
    pub session_id: String,
    /// Its state.
    pub status: AgentSessionStatus,
    /// The directory in which it works.
    pub cwd: String,
    /// The mode, where the agent has said which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The agent's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The prompt that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// How many prompts wait for their turn.
    pub queued: u64,
    /// The permission questions that wait for an answer.
    #[serde(default)]
    pub questions: Vec<AgentQuestion>,
    /// The panes of the agent's terminals, `%3`, and their server's socket.
    #[serde(default)]
    pub terminals: Vec<AgentTerminal>,
    /// The end of its events.
    pub cursor: EventCursor,
    /// When it began, in milliseconds since 1970.
    pub created_ms: u64,
    /// When something last happened, in milliseconds since 1970.
    pub updated_ms: u64,
    /// The agent's exit status, where it has ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
    /// Why muxtap ended it, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A terminal that an agent has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentTerminal {
    /// The agent's id of it.
    pub id: String,
    /// Its pane.
    pub pane: muxtap_core::protocol::ids::PaneId,
    /// The pane's tmux server.
    pub socket: String,
}

impl AgentTerminal {
    /// A terminal with this id, in this pane of this server.
    pub fn new(id: String, pane: muxtap_core::protocol::ids::PaneId, socket: String) -> Self {
        Self { id, pane, socket }
    }
}

/// Which sessions are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct AgentSessionsQuery {
    /// Only those of this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

/// Answers `GET /v1/agent-sessions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentSessionList {
    /// Those that run and the last ones that have ended, the oldest first.
    pub sessions: Vec<AgentSessionInfo>,
}

/// `POST /v1/agent-sessions/{id}/prompts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptRequest {
    /// The text.
    pub text: String,
    /// Its outcome is `timeout` after this long from now (default one hour; at most a day).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Answer when it has its outcome, not when it is queued.
    #[serde(default)]
    pub wait: bool,
}

/// How a prompt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptOutcome {
    /// The agent has finished.
    EndTurn,
    /// The agent refused.
    Refusal,
    /// The model's tokens were used up.
    MaxTokens,
    /// The turns that a prompt may have were used up.
    MaxTurns,
    /// Interrupted.
    Cancelled,
    /// The agent ended, or was killed.
    AgentExited,
    /// The time ran out.
    Timeout,
    /// The agent answered with an error, which says why.
    Failed,
}

impl PromptOutcome {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::Refusal => "refusal",
            Self::MaxTokens => "max_tokens",
            Self::MaxTurns => "max_turns",
            Self::Cancelled => "cancelled",
            Self::AgentExited => "agent_exited",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
        }
    }
}

/// Answers a prompt, and an interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptAnswer {
    /// The session.
    pub session: SessionName,
    /// The prompt's number in the session; absent where an interrupt found none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<u64>,
    /// The place among the events just before the prompt.
    pub cursor: EventCursor,
    /// Its outcome, where that was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<PromptOutcome>,
    /// The agent's message in words, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PromptAnswer {
    /// An answer about a session, with the place at which it was given.
    pub fn new(session: SessionName, prompt: Option<u64>, cursor: EventCursor) -> Self {
        Self { session, prompt, cursor, outcome: None, error: None }
    }
}

/// A permission question of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentQuestion {
    /// Its id in the session.
    pub id: String,
    /// The agent's words for what it wants to do.
    pub title: String,
    /// The kind of the tool (`edit`, `execute` …), where the agent said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The command or the input, as far as it is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The answers it takes.
    pub options: Vec<PermissionOption>,
    /// When it counts as denied, in milliseconds since 1970.
    pub deadline_ms: u64,
}

impl AgentQuestion {
    /// A question with these answers, denied at this time.
    pub fn new(id: String, title: String, options: Vec<PermissionOption>, deadline_ms: u64) -> Self {
        Self { id, title, kind: None, detail: None, options, deadline_ms }
    }

    /// Returns the option that a plain yes or no means: once before always.
    pub fn plain_option(&self, allow: bool) -> Option<&PermissionOption> {
        let kinds = if allow { ["allow_once", "allow_always"] } else { ["reject_once", "reject_always"] };
        kinds.iter().find_map(|kind| self.options.iter().find(|option| option.kind == *kind))
    }
}

/// An answer that a question takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionOption {
    /// Its id.
    pub id: String,
    /// Its label.
    pub name: String,
    /// `allow_once`, `allow_always`, `reject_once` or `reject_always`.
    pub kind: String,
}

impl PermissionOption {
    /// Returns whether it allows what is asked.
    pub fn allows(&self) -> bool {
        self.kind.starts_with("allow")
    }
}

/// Answers `GET /v1/agent-sessions/{id}/questions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentQuestionList {
    /// The questions that wait for an answer, the oldest first.
    pub questions: Vec<AgentQuestion>,
}

/// `POST /v1/agent-sessions/{id}/questions/{question}`: one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentAnswerRequest {
    /// The id of an option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// Yes or no: the option that says so once, or else always; a no without an option cancels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<bool>,
}

/// Something that happened in an agent session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum AgentEvent {
    /// A prompt was accepted.
    Prompt {
        /// Its number.
        prompt: u64,
        /// The text.
        text: String,
    },
    /// A prompt was given to the agent.
    Started {
        /// Its number.
        prompt: u64,
    },
    /// A prompt has ended.
    Outcome {
        /// Its number.
        prompt: u64,
        /// How.
        outcome: PromptOutcome,
        /// The agent's error, where it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A part of the agent's message.
    Message {
        /// The text.
        text: String,
    },
    /// A part of the agent's thoughts.
    Thought {
        /// The text.
        text: String,
    },
    /// A part of an earlier prompt, where a session goes on.
    User {
        /// The text.
        text: String,
    },
    /// A tool is called, or something is new about it.
    Tool {
        /// The call's id.
        id: String,
        /// Its title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The tool's kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// `pending`, `in_progress`, `completed` or `failed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        /// The text of its content.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
    /// The mode is another one.
    Mode {
        /// The mode.
        mode: String,
    },
    /// An update of another kind, as the agent gave it.
    Update {
        /// The update; of one that is long only its kind and its length.
        #[schema(value_type = Object)]
        update: Value,
    },
    /// A permission question was asked.
    Question {
        /// The question.
        question: AgentQuestion,
    },
    /// A permission question has its answer.
    Answered {
        /// The question's id.
        question: String,
        /// Whether it was allowed.
        allowed: bool,
        /// The option that was chosen; absent: cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        option: Option<String>,
        /// The face and the caller that answered; `deadline`, `interrupt` or `end` where none did.
        by: String,
    },
    /// A terminal was made.
    Terminal {
        /// The terminal.
        terminal: AgentTerminal,
    },
    /// The agent said something that is not the protocol.
    Fault {
        /// The fault, in words.
        message: String,
    },
    /// The agent has ended; nothing follows.
    Exited {
        /// Its exit status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_status: Option<i32>,
        /// The signal that ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_signal: Option<i32>,
        /// Why muxtap ended it, where it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

/// An event and its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentEventEntry {
    /// The session.
    pub session: SessionName,
    /// The place just behind it: a reader that gives it goes on after this event.
    pub cursor: EventCursor,
    /// When it happened, in milliseconds since 1970.
    pub at_ms: u64,
    /// Events are missing just before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<AgentGap>,
    /// The event.
    pub event: AgentEvent,
}

impl AgentEventEntry {
    /// An event of a session, with the place behind it and its time.
    pub fn new(session: SessionName, cursor: EventCursor, at_ms: u64, event: AgentEvent) -> Self {
        Self { session, cursor, at_ms, gap: None, event }
    }
}

/// Events that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentGap {
    /// Why.
    pub reason: GapReason,
    /// How many, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
}

impl AgentGap {
    /// A gap of so many events, for a reason.
    pub const fn new(reason: GapReason, events: Option<u64>) -> Self {
        Self { reason, events }
    }
}

/// `GET /v1/agent-sessions/{id}/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct AgentEventsQuery {
    /// Begin here: `start` (default), `now`, `prompt` (the last one), or a cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// At most so many (default 256, at most 1024).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Where there is nothing new, wait this long for it (default 0, at most 60,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// Answers `GET /v1/agent-sessions/{id}/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentEventsAnswer {
    /// The events.
    pub events: Vec<AgentEventEntry>,
    /// Where to go on.
    pub cursor: EventCursor,
    /// Whether there are more already.
    pub more: bool,
    /// Events are missing before the first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<AgentGap>,
    /// Whether the agent has ended: after the last of these nothing follows.
    pub ended: bool,
}

impl AgentEventsAnswer {
    /// A page of events, and where to go on.
    pub fn new(events: Vec<AgentEventEntry>, cursor: EventCursor, more: bool, ended: bool) -> Self {
        Self { events, cursor, more, gap: None, ended }
    }
}

/// `POST /v1/agent-sessions/{id}/wait`: conditions that must all come true; each stays so once it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentWaitRequest {
    /// Regexes on lines of what the agent says and its tools show; each must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// Nothing happened for this long, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_ms: Option<u64>,
    /// The agent ended.
    #[serde(default)]
    pub exit: bool,
    /// No prompt runs or is queued.
    #[serde(default)]
    pub idle: bool,
    /// Answer also when a permission question is open: the outcome is `asking` then.
    #[serde(default)]
    pub question: bool,
    /// Where patterns begin: `prompt` (default: the last one), `start`, `now`, or a cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Give up after this long (default 30,000; at most 86,400,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// How a wait for an agent session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentWaitOutcome {
    /// All conditions came true.
    Matched,
    /// The agent ended first.
    Ended,
    /// A permission question is open, which was to be told.
    Asking,
    /// The time ran out.
    Timeout,
}

/// A condition of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentCondition {
    /// `pattern`, `stable`, `exit` or `idle`.
    pub kind: String,
    /// The regex, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Whether it came true.
    pub met: bool,
    /// The line that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The text that matched, and then its groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<Option<String>>,
}

impl AgentCondition {
    /// A condition of a kind that has not come true yet.
    pub fn new(kind: &str, pattern: Option<String>) -> Self {
        Self { kind: kind.into(), pattern, met: false, line: None, captures: Vec::new() }
    }
}

/// Answers a wait for an agent session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentWaitAnswer {
    /// The session.
    pub session: SessionName,
    /// How it ended.
    pub outcome: AgentWaitOutcome,
    /// Each condition.
    pub conditions: Vec<AgentCondition>,
    /// The place up to which it has read.
    pub cursor: EventCursor,
    /// Events are missing in what it read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<AgentGap>,
    /// The questions that wait for an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<AgentQuestion>,
}

impl AgentWaitAnswer {
    /// An answer that says how a wait ended and what came true.
    pub fn new(
        session: SessionName,
        outcome: AgentWaitOutcome,
        conditions: Vec<AgentCondition>,
        cursor: EventCursor,
    ) -> Self {
        Self { session, outcome, conditions, cursor, gap: None, questions: Vec::new() }
    }
}
