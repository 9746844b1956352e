//! Agent sessions: requests to a coding agent, and its events. `docs/agent-sessions.md` describes
//! them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{EventCursor, GapReason, SessionName};

/// The request of `POST /v1/agent-sessions`: starts an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSessionRequest {
    /// The provider: a name from the configuration, or `sdk` for its default.
    pub provider: String,
    /// The directory in which the agent works, an absolute path.
    pub cwd: String,
    /// The first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The earlier session of the agent to continue, by its id or its name: without its earlier messages
    /// if the agent can (`session/resume`), else with them (`session/load`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// The initial mode, as the agent names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The agent's own login to use first, by its id: the error of an agent that requires a login names
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// Environment variables for the agent, in addition to the daemon's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The request of `PATCH /v1/agent-sessions/{id}`: sets a session's mode and options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSessionPatch {
    /// The mode: one of the session's `modes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The session's `options` to set, by their ids; `true` or `false` for an option that is on or off.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// The request of `POST /v1/agent-sessions/earlier`: starts an agent that lists its own sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentEarlierRequest {
    /// The provider: a name from the configuration, or `sdk` for its default.
    pub provider: String,
    /// The directory whose sessions are listed, an absolute path.
    pub cwd: String,
    /// List the sessions of all directories.
    #[serde(default)]
    pub all: bool,
    /// The agent's own login to use first, as in `POST /v1/agent-sessions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// Environment variables for the agent, in addition to the daemon's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// A session that an agent has stored, as the agent describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentEarlier {
    /// The agent's id of the session: `resume` continues it.
    pub session_id: String,
    /// Its directory.
    pub cwd: String,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When it was last used, in the agent's words (ISO 8601).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
}

/// The response to `POST /v1/agent-sessions/earlier`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentEarlierList {
    /// The sessions, in the agent's order.
    pub sessions: Vec<AgentEarlier>,
    /// Whether the agent has more than are listed.
    pub more: bool,
}

/// Something that a session offers to choose: a mode, or a value of an option.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentChoice {
    /// Its id.
    pub id: String,
    /// Its label.
    pub name: String,
    /// The meaning of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An option of a session, such as its model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionOption {
    /// Its id.
    pub id: String,
    /// Its label.
    pub name: String,
    /// Its purpose: `mode`, `model`, `thought_level`, or another word of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Its value; `true` or `false` for an option that is on or off.
    pub value: String,
    /// The possible values; empty for an option that is on or off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<AgentChoice>,
}

/// A step of an agent's plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentPlanEntry {
    /// The task of the step.
    pub content: String,
    /// Its priority: `high`, `medium` or `low`.
    pub priority: String,
    /// Its status: `pending`, `in_progress` or `completed`.
    pub status: String,
}

/// The use of a session's context, and its cost so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentUsage {
    /// The tokens in the model's context.
    pub used: u64,
    /// The size of the context, in tokens.
    pub size: u64,
    /// The cost of the whole session, if the agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<AgentCost>,
}

/// An amount of money.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentCost {
    /// The amount.
    pub amount: f64,
    /// The currency, by its ISO 4217 code.
    pub currency: String,
}

/// The state of an agent session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentSessionStatus {
    /// No prompt is running.
    #[default]
    Idle,
    /// A prompt is running.
    Running,
    /// A permission question is open.
    Asking,
    /// A prompt has its outcome, but the agent has not replied yet; the next prompt waits for the
    /// reply.
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
    /// The mode, if the agent has reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The modes that the session can have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<AgentChoice>,
    /// The session's options, such as its model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<SessionOption>,
    /// The agent's own title for the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The agent's plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<AgentPlanEntry>,
    /// The use of the context, and the cost, if the agent has reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<AgentUsage>,
    /// The agent's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The running prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// The number of queued prompts.
    pub queued: u64,
    /// The open permission questions.
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
    /// The agent's exit status, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The signal that ended the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
    /// Why muxtap ended the agent, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A terminal that an agent has created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentTerminal {
    /// The agent's id for it.
    pub id: String,
    /// Its pane.
    pub pane: muxtap_core::protocol::ids::PaneId,
    /// The pane's tmux server.
    pub socket: String,
}

impl AgentTerminal {
    /// Creates a terminal with this id, in this pane of this server.
    pub fn new(id: String, pane: muxtap_core::protocol::ids::PaneId, socket: String) -> Self {
        Self { id, pane, socket }
    }
}

/// Selects the sessions that are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct AgentSessionsQuery {
    /// Only sessions of this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

/// The response to `GET /v1/agent-sessions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentSessionList {
    /// The running sessions and the last ended ones, oldest first.
    pub sessions: Vec<AgentSessionInfo>,
}

/// The request of `POST /v1/agent-sessions/{id}/prompts`: queues a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptRequest {
    /// The text.
    pub text: String,
    /// The outcome is `timeout` after this long from now (default one hour; at most a day).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Respond when the prompt has its outcome, not when it is queued.
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
    /// The model's tokens are used up.
    MaxTokens,
    /// The turns that a prompt may have are used up.
    MaxTurns,
    /// The prompt was interrupted.
    Cancelled,
    /// The agent ended, or was killed.
    AgentExited,
    /// The timeout expired.
    Timeout,
    /// The agent replied with an error, which says why.
    Failed,
}

impl PromptOutcome {
    /// Returns the word used on the wire.
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

/// The response to a prompt, and to an interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptAnswer {
    /// The session.
    pub session: SessionName,
    /// The prompt's number in the session; absent if an interrupt found no prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<u64>,
    /// The position in the events just before the prompt.
    pub cursor: EventCursor,
    /// Its outcome, if the request waited for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<PromptOutcome>,
    /// The agent's error message, if the prompt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PromptAnswer {
    /// Creates a response about a session at this position.
    pub fn new(session: SessionName, prompt: Option<u64>, cursor: EventCursor) -> Self {
        Self { session, prompt, cursor, outcome: None, error: None }
    }
}

/// A question of an agent to a person: for permission, for information (a form), or to open a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentQuestion {
    /// Its id in the session.
    pub id: String,
    /// The agent's own title for what it wants to do. A person is never shown the title alone.
    pub title: String,
    /// The asker, as known to muxtap: the agent, its session, its process and its directory.
    #[serde(default)]
    pub asked_by: String,
    /// The kind of the tool (`edit`, `execute` …), if the agent reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The effect of a yes, as rows of `LABEL: TEXT`: the command, its directory, the URL, the paths, the
    /// changes, and the rest of the input. Control characters are written as numbers; a text that is
    /// too long lacks its middle, and says how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The URL that the person is asked to open. muxtap never opens it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The fields that the person is asked to fill in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub form: Vec<FormField>,
    /// The answers that it accepts. A form and a URL have `accept`, `decline` and `cancel`.
    pub options: Vec<PermissionOption>,
    /// When it is denied by default, or a form or URL canceled, in milliseconds since 1970.
    pub deadline_ms: u64,
}

impl AgentQuestion {
    /// Creates a question with these answers that is denied by default at this time.
    pub fn new(id: String, title: String, options: Vec<PermissionOption>, deadline_ms: u64) -> Self {
        let (url, form) = (None, Vec::new());
        Self { id, title, asked_by: String::new(), kind: None, detail: None, url, form, options, deadline_ms }
    }

    /// Returns the option that a plain yes or no selects: once before always.
    pub fn plain_option(&self, allow: bool) -> Option<&PermissionOption> {
        let kinds = if allow { ["allow_once", "allow_always"] } else { ["reject_once", "reject_always"] };
        kinds.iter().find_map(|kind| self.options.iter().find(|option| option.kind == *kind))
    }
}

/// A field of a form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FormField {
    /// Its name.
    pub name: String,
    /// The kind of its value: `string`, `number`, `integer`, `boolean`, or `array` for a list of `choices`.
    pub kind: String,
    /// Its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The purpose of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether a value is needed.
    pub required: bool,
    /// The value if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub default: Option<Value>,
    /// The possible values; empty if any value is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<AgentChoice>,
    /// The least number, length or count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub min: Option<serde_json::Number>,
    /// The greatest number, length or count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub max: Option<serde_json::Number>,
    /// The format of a text: `email`, `uri`, `date` or `date-time`. The agent checks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// A regex for a text. The agent checks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

/// An answer that a question accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionOption {
    /// Its id.
    pub id: String,
    /// Its label.
    pub name: String,
    /// Its kind: `allow_once`, `allow_always`, `reject_once` or `reject_always`.
    pub kind: String,
}

impl PermissionOption {
    /// Returns whether the option allows the request.
    pub fn allows(&self) -> bool {
        self.kind.starts_with("allow")
    }
}

/// The response to `GET /v1/agent-sessions/{id}/questions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentQuestionList {
    /// The open questions, oldest first.
    pub questions: Vec<AgentQuestion>,
}

/// `POST /v1/agent-sessions/{id}/questions/{question}`: `option` or `allow`, and a form's `content`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentAnswerRequest {
    /// The id of an option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// Yes or no: selects the option for once, else the one for always; a no without such an option
    /// cancels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<bool>,
    /// The values of a form's fields, for `accept` or a yes; a field that is missing has its default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object)]
    pub content: BTreeMap<String, Value>,
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
    /// A prompt was sent to the agent.
    Started {
        /// Its number.
        prompt: u64,
    },
    /// A prompt has ended.
    Outcome {
        /// Its number.
        prompt: u64,
        /// The outcome.
        outcome: PromptOutcome,
        /// The agent's error, if the prompt failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A part of the agent's message.
    Message {
        /// The text.
        text: String,
        /// The agent's id of the message: parts with one id are one message, and another id begins
        /// another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
    },
    /// A part of the agent's thoughts.
    Thought {
        /// The text.
        text: String,
        /// The agent's id of the message: parts with one id are one message, and another id begins
        /// another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
    },
    /// A part of an earlier prompt, when a session is continued.
    User {
        /// The text.
        text: String,
        /// The agent's id of the message: parts with one id are one message, and another id begins
        /// another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
    },
    /// A tool is called, or its call has news.
    Tool {
        /// The call's id.
        id: String,
        /// Its title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The tool's kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// Its status: `pending`, `in_progress`, `completed` or `failed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
        /// The text of its content.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
    /// The mode has changed.
    Mode {
        /// The mode.
        mode: String,
    },
    /// The session's options, or their values, have changed.
    Options {
        /// All options.
        options: Vec<SessionOption>,
    },
    /// The agent has a plan, which replaces an earlier one.
    Plan {
        /// Its steps; of a very long plan only the first ones.
        entries: Vec<AgentPlanEntry>,
    },
    /// The use of the context, or the cost, has changed.
    Usage {
        /// The current figures.
        usage: AgentUsage,
    },
    /// The agent has given the session a title.
    Title {
        /// The title; absent if the agent has removed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
    },
    /// An update of another kind, as the agent sent it.
    Update {
        /// The update; a long one is reduced to its kind and its length.
        #[schema(value_type = Object)]
        update: Value,
    },
    /// A permission question was opened.
    Question {
        /// The question.
        question: AgentQuestion,
    },
    /// A permission question was answered.
    Answered {
        /// The question's id.
        question: String,
        /// Whether the request was allowed.
        allowed: bool,
        /// The selected option; absent if cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        option: Option<String>,
        /// The interface and the caller that answered; otherwise `deadline`, `interrupt`, `end`, or
        /// `agent` if the agent withdrew the question.
        by: String,
    },
    /// A terminal was created.
    Terminal {
        /// The terminal.
        terminal: AgentTerminal,
    },
    /// The agent sent something that violates the protocol.
    Fault {
        /// A description of the fault.
        message: String,
    },
    /// The agent has ended; no event follows.
    Exited {
        /// Its exit status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_status: Option<i32>,
        /// The signal that ended the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_signal: Option<i32>,
        /// Why muxtap ended the agent, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

/// An event and its position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentEventEntry {
    /// The session.
    pub session: SessionName,
    /// The position just after the event: a read from here continues after it.
    pub cursor: EventCursor,
    /// When it happened, in milliseconds since 1970.
    pub at_ms: u64,
    /// The events that are missing just before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<AgentGap>,
    /// The event.
    pub event: AgentEvent,
}

impl AgentEventEntry {
    /// Creates an entry for an event of a session, with the position after it and its time.
    pub fn new(session: SessionName, cursor: EventCursor, at_ms: u64, event: AgentEvent) -> Self {
        Self { session, cursor, at_ms, gap: None, event }
    }
}

/// Missing events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentGap {
    /// Why they are missing.
    pub reason: GapReason,
    /// Their number, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
}

impl AgentGap {
    /// Creates a gap of this many events, for a reason.
    pub const fn new(reason: GapReason, events: Option<u64>) -> Self {
        Self { reason, events }
    }
}

/// The query of `GET /v1/agent-sessions/{id}/events`: reads events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct AgentEventsQuery {
    /// Begin here: `start` (default), `now`, `prompt` (the last one), or a cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The maximum number of events (default 256, at most 1024).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// If nothing is new, wait this long for an event (default 0, at most 60,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// The response to `GET /v1/agent-sessions/{id}/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentEventsAnswer {
    /// The events.
    pub events: Vec<AgentEventEntry>,
    /// Where to continue reading.
    pub cursor: EventCursor,
    /// Whether more events are available.
    pub more: bool,
    /// The events that are missing before the first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<AgentGap>,
    /// Whether the agent has ended: no event follows the last of these.
    pub ended: bool,
}

impl AgentEventsAnswer {
    /// Creates a page of events, with the position at which to continue.
    pub fn new(events: Vec<AgentEventEntry>, cursor: EventCursor, more: bool, ended: bool) -> Self {
        Self { events, cursor, more, gap: None, ended }
    }
}

/// `POST /v1/agent-sessions/{id}/wait`: conditions that must all be met; a condition once met stays
/// met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentWaitRequest {
    /// Regexes on lines of the agent's messages and its tools' content; each must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// No event for this long, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_ms: Option<u64>,
    /// The agent has ended.
    #[serde(default)]
    pub exit: bool,
    /// No prompt is running or queued.
    #[serde(default)]
    pub idle: bool,
    /// Also respond when a permission question is open, with the outcome `asking`.
    #[serde(default)]
    pub question: bool,
    /// Where patterns begin: `prompt` (default: the last one), `start`, `now`, or a cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The timeout in milliseconds (default 30,000; at most 86,400,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// How a wait for an agent session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentWaitOutcome {
    /// All conditions were met.
    Matched,
    /// The agent ended first.
    Ended,
    /// A permission question is open, and `question` was set.
    Asking,
    /// The timeout expired.
    Timeout,
}

/// A condition of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentCondition {
    /// Its kind: `pattern`, `stable`, `exit` or `idle`.
    pub kind: String,
    /// The regex of a `pattern`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Whether it was met.
    pub met: bool,
    /// The line that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The text that matched, then its groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<Option<String>>,
}

impl AgentCondition {
    /// Creates a condition of a kind that is not met yet.
    pub fn new(kind: &str, pattern: Option<String>) -> Self {
        Self { kind: kind.into(), pattern, met: false, line: None, captures: Vec::new() }
    }
}

/// The response to a wait for an agent session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentWaitAnswer {
    /// The session.
    pub session: SessionName,
    /// How the wait ended.
    pub outcome: AgentWaitOutcome,
    /// Each condition.
    pub conditions: Vec<AgentCondition>,
    /// The position up to which the wait has read.
    pub cursor: EventCursor,
    /// Events that were missing during the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<AgentGap>,
    /// The open questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<AgentQuestion>,
}

impl AgentWaitAnswer {
    /// Creates a response that says how a wait ended and what was met.
    pub fn new(
        session: SessionName,
        outcome: AgentWaitOutcome,
        conditions: Vec<AgentCondition>,
        cursor: EventCursor,
    ) -> Self {
        Self { session, outcome, conditions, cursor, gap: None, questions: Vec::new() }
    }
}
