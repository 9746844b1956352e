//! Agents in panes: which, and what they do.

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An agent's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// Works.
    Working,
    /// Waits for permission to do something.
    Permission,
    /// Waits for an answer to a question.
    Question,
    /// Waits for its user.
    Idle,
    /// Says that something went wrong.
    Errored,
    /// Its process has ended.
    Ended,
}

impl AgentState {
    /// The word on the wire.
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

/// One of the answers that an agent offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentOption {
    /// The number or letter that chooses it, as it stands on the screen, else its place in the
    /// list, from 1.
    pub key: String,
    /// Its text.
    pub label: String,
    /// The text under it: a description, or the rest of a long label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The cursor stands on it.
    pub selected: bool,
    /// Whether the key stands on the screen.
    #[serde(skip)]
    pub key_shown: bool,
}

impl AgentOption {
    /// Returns whether one key gives this answer.
    pub fn has_own_key(&self) -> bool {
        self.key_shown && self.key.chars().count() == 1
    }
}

/// A row of a screen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentRow {
    /// Which, from the top, from 0.
    pub row: u16,
    /// The text that it showed.
    pub text: String,
}

/// Why an agent is taken to be in a state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentEvidence {
    /// The name of the rule that applied; `none` where none did, `process` where its process ended.
    pub rule: String,
    /// The rows of the screen that fitted it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<AgentRow>,
    /// The title, where that fitted it.
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
    /// Which agent, by its rules' id: `claude`, `codex` …
    pub agent: String,
    /// The name that people use.
    pub name: String,
    /// Its process; none where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its state.
    pub state: AgentState,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// The question that it asks (`permission` and `question`), with what it is about: the text of its dialog above the
    /// answers, line by line. `…` stands for what is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Names this question, where it offers answers: another one, and the same one asked again, has
    /// another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    /// The answers that it offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<AgentOption>,
    /// Why it is taken to be so.
    pub evidence: AgentEvidence,
}

/// Answers `GET /v1/agents`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentList {
    /// Those whose process lives, by pane; then those that ended in the last ten minutes.
    pub agents: Vec<AgentInfo>,
    /// Why the user's own rules are not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules_error: Option<String>,
}
