//! Agents in panes: their kind and their state.

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::HostInfo;

/// An agent's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// The agent works.
    Working,
    /// The agent waits for permission to do something.
    Permission,
    /// The agent waits for an answer to a question.
    Question,
    /// The agent waits for its user.
    Idle,
    /// The agent reports an error.
    Errored,
    /// Its process has ended.
    Ended,
}

impl AgentState {
    /// Returns the word used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Permission => "permission",
            Self::Question => "question",
            Self::Idle => "idle",
            Self::Errored => "errored",
            Self::Ended => "ended",
        }
    }
}

/// An answer that an agent offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentOption {
    /// The number or letter that selects it, as shown on the screen, else its place in the list,
    /// from 1.
    pub key: String,
    /// Its text.
    pub label: String,
    /// The text under it: a description, or the rest of a long label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether the cursor is on it.
    pub selected: bool,
    /// Whether the screen shows the key.
    #[serde(skip)]
    pub key_shown: bool,
}

impl AgentOption {
    /// Returns whether a single key gives this answer.
    pub fn has_own_key(&self) -> bool {
        self.key_shown && self.key.chars().count() == 1
    }
}

/// A row of a screen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentRow {
    /// Its number from the top, from 0.
    pub row: u16,
    /// The text that it showed.
    pub text: String,
}

/// The evidence for an agent's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentEvidence {
    /// The name of the rule that applied; `none` if no rule did, `report` if the agent reported the
    /// state, `process` if its process ended.
    pub rule: String,
    /// The rows of the screen that matched the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<AgentRow>,
    /// The title, if it matched the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The source whose report was joined with the screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How the report and the screen were joined: the name of a line of the table in
    /// `docs/agent-reports.md`. Absent without a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<String>,
    /// The agent's own description of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The agent's own id of its session, as it reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// An agent in a pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentInfo {
    /// The host that the pane is on, if not the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The pane.
    pub pane: PaneId,
    /// A session that shows it.
    pub session: String,
    /// The session's id.
    #[serde(default)]
    pub session_id: String,
    /// Its window's id.
    #[serde(default)]
    pub window_id: String,
    /// Its window's index in that session.
    pub window_index: u32,
    /// Its window's name.
    pub window: String,
    /// Its index in the window.
    pub index: u32,
    /// The tmux server's socket.
    pub socket: String,
    /// The id of the agent's rules: `claude`, `codex` …
    pub agent: String,
    /// Its name for people.
    pub name: String,
    /// Its version, once its screen has shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether its version is newer than any by whose screens the rules were tested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untested: bool,
    /// Its process; absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its state.
    pub state: AgentState,
    /// When this state began, in milliseconds since 1970.
    pub since_ms: u64,
    /// The open question (`permission` and `question`), with its subject: the text of the dialog
    /// above the answers, line by line. `…` marks omitted text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The id of this question, if it offers answers: another question, and the same one asked
    /// again, gets another id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    /// The answers that it offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<AgentOption>,
    /// The evidence for its state.
    pub evidence: AgentEvidence,
}

/// The response to `GET /v1/agents`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentList {
    /// Agents whose process is alive, by pane; then those that ended in the last ten minutes.
    pub agents: Vec<AgentInfo>,
    /// Why the user's own rules are not in force. In a list of several hosts: this daemon's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules_error: Option<String>,
    /// The hosts that returned nothing, if several were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<HostInfo>,
}

/// A state that an agent reports about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportAgentRequest {
    /// The state; not `ended`, which is known from the kernel alone.
    pub state: AgentState,
    /// The name of the reporter: 1 to 32 lower-case letters, digits and hyphens.
    pub source: String,
    /// A number that grows with each report of a source: the newest counts. One past the daemon's
    /// monotonic clock, in microseconds, counts as the time of arrival.
    pub seq: u64,
    /// A line that describes the agent's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The agent's question; only with `permission` and `question`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The answers that it offers; only with `permission` and `question`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The agent's own id of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether the caller names its own pane, and must be a process of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inside: bool,
}

/// The response to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportAgentAnswer {
    /// The pane.
    pub pane: PaneId,
    /// Whether the report is stored; false if a newer one of the same source is known.
    pub accepted: bool,
    /// The process to which the report belongs, if it is known. The report ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// A report compared with the screens since it arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportPhase {
    /// The screen has not shown the reported state yet.
    #[default]
    Fresh,
    /// The screen has shown the reported state.
    Confirmed,
    /// The screen has contradicted the report since: it no longer counts.
    Spent,
}

/// A report that is known of a pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentReport {
    /// The reporter's name.
    pub source: String,
    /// The number of the report.
    pub seq: u64,
    /// The reported state.
    pub state: AgentState,
    /// The process to which it belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The time of arrival, in milliseconds since 1970.
    pub at_ms: u64,
    /// The comparison with the screens since then.
    pub phase: ReportPhase,
    /// Whether it is the report that is joined with the screen: the last one of the agent's process.
    pub counts: bool,
    /// The agent's own description of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The agent's own id of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// A state by an agent's screen alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentScreen {
    /// The state.
    pub state: AgentState,
    /// The evidence.
    pub evidence: AgentEvidence,
}

/// A rule of an agent, tried on the current screen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentRuleTried {
    /// The rule's name.
    pub rule: String,
    /// The state that it means.
    pub state: AgentState,
    /// Its priority: of the rules that apply, the one with the highest decides.
    pub priority: i32,
    /// Whether it applies.
    pub applies: bool,
}

/// A process on a pane's terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentProcess {
    /// Its id.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// The id of the agent that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Why an agent is in its state: everything that was considered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentExplanation {
    /// The pane.
    pub pane: PaneId,
    /// The agent with its state; absent if none is known in the pane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentInfo>,
    /// The state by the screen alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<AgentScreen>,
    /// The reports of living processes, newest first.
    pub reports: Vec<AgentReport>,
    /// The agent's rules in the order in which they are tried. The bell is not considered.
    pub rules: Vec<AgentRuleTried>,
    /// The processes on the pane's terminal; empty if the system does not list them.
    pub processes: Vec<AgentProcess>,
}
