//! Agents in panes: their kind and their state.

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An agent's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// It works.
    Working,
    /// It waits for permission to do something.
    Permission,
    /// It waits for an answer to a question.
    Question,
    /// It waits for its user.
    Idle,
    /// It reports an error.
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
    /// The name of the rule that applied; `none` if no rule did, `process` if the agent's process
    /// ended.
    pub rule: String,
    /// The rows of the screen that matched the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<AgentRow>,
    /// The title, if it matched the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// An agent in a pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentInfo {
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
    /// Why the user's own rules are not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules_error: Option<String>,
}
