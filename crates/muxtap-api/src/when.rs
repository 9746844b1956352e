//! Rules: their conditions, their actions, and their firings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{AgentState, ProgressState, StatusIs};

/// A rule: one condition, the panes in which it counts, and at least one action. The same fields as
/// `[[when]]` of the configuration. Times are texts: `500ms`, `10s`, `5m`, `1h30m`; at most a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WhenRule {
    /// Its name: letters, digits, `-`, `_` and `.`, at most 64.
    pub name: String,
    /// Condition: a line of the output matches this regex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Condition: a row of the screen begins to match this regex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<String>,
    /// Condition: a command ends, according to the shell's marks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub command: bool,
    /// Condition: the pane's agent enters this state, or asks another question in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentState>,
    /// Condition: a program's progress enters this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressState>,
    /// Condition: a program shows a notification whose title or text matches this regex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<String>,
    /// Condition: the pane's process ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// Condition: the pane has printed, and then nothing for this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<String>,
    /// With `command` or `ended`: only with this exit status (`2`), or with any other (`!0`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub status: Option<StatusIs>,
    /// With `command`: only if it ran longer than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer: Option<String>,
    /// Patterns of panes, in which `*` matches any characters: `SESSION:WINDOW`, or a session's name, a
    /// window's name, a pane's title or id. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub panes: Vec<String>,
    /// Only in panes whose labels match all of these: `KEY=VALUE` or `KEY!=VALUE`; `*` in a value matches
    /// any characters. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Only in panes with one of these agents (`claude`, `codex` …). Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Only on these hosts; `local` is this machine. Empty: this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The shortest time between two firings in one pane (default `10s`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// Action: run this program with these arguments, without a shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// How long the program of `run` may take (default `30s`, at most `1h`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Action: send an HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<WhenPost>,
    /// Action: show a desktop notification.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub notify: bool,
    /// Action: set these labels of the pane; an empty value removes a label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub label: BTreeMap<String, String>,
    /// Action: type this text into the pane; a newline at its end presses Enter.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_text: Option<String>,
    /// With `type`: type into this target of the same server instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
}

/// An HTTP request of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WhenPost {
    /// The URL, or where it is read.
    pub url: WhenText,
    /// The form of the body. Default: the facts as one JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<WhenPreset>,
    /// The body as JSON, in whose texts `{session}` stands for that fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub template: Option<serde_json::Value>,
    /// Further headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, WhenText>,
    /// With the preset `ntfy`: the URL of the page (scheme, host and port) for the phone. A
    /// push about an agent's question has a button that opens the question there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
}

/// A text, or the place where the daemon reads it each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum WhenText {
    /// The text.
    Plain(String),
    /// A place where a secret is kept.
    Kept(WhenSecret),
}

/// A secret that the daemon reads whenever it is needed: `env` or `file`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WhenSecret {
    /// A variable of the daemon's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// A file that only the user may read; its first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Text before the secret, such as `Bearer ` with its space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

/// A form of a body that a service expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenPreset {
    /// ntfy; the URL ends with the topic.
    Ntfy,
    /// An incoming webhook of Slack.
    Slack,
    /// An incoming webhook of Mattermost.
    Mattermost,
}

/// `GET /v1/when`: the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhenList {
    /// The rules: those of the configuration, then the added ones.
    pub rules: Vec<WhenInfo>,
    /// The tmux servers that are watched now for these rules, by their sockets.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Why rules are not in effect, if they are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A rule and its counts since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhenInfo {
    /// The rule, without what may be a secret: paths of URLs, headers; for a caller other than the user
    /// also arguments and typed text.
    pub rule: WhenRule,
    /// Whether the configuration has it. Others were added, and can be removed.
    pub configured: bool,
    /// How often it fired.
    pub fired: u64,
    /// How often it did not fire because of `every`.
    pub held: u64,
    /// How often it did not fire because a rule had typed what it saw.
    pub own: u64,
    /// How many firings were dropped because too many were waiting, or the journal could not be written.
    pub lost: u64,
    /// How many firings failed.
    pub failed: u64,
    /// When it fired last, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
    /// The last error of an action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `GET /v1/when-log`: which firings are returned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct WhenLogQuery {
    /// The maximum number, the latest ones (default 100, at most 10,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// Only firings of this rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// `GET /v1/when-log`: the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhenLog {
    /// The firings, oldest first.
    pub firings: Vec<WhenFiring>,
}

/// The state of a firing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WhenState {
    /// Its actions are being carried out, or it waits for its turn.
    #[default]
    Running,
    /// All actions were carried out.
    Done,
    /// An action failed.
    Failed,
    /// The daemon ended before the actions' end: whether they were carried out is not known.
    NotKnown,
    /// It was dropped: too many were waiting.
    Lost,
}

impl WhenState {
    /// Returns the word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::NotKnown => "not known",
            Self::Lost => "lost",
        }
    }
}

/// A firing of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhenFiring {
    /// Its id.
    pub id: String,
    /// The rule's name.
    pub rule: String,
    /// When it began, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its state.
    pub state: WhenState,
    /// The condition's kind: `output`, `screen`, `command` …
    pub kind: String,
    /// The tmux server's socket.
    pub server: String,
    /// The pane.
    pub pane: String,
    /// Its session and window.
    pub place: String,
    /// What was seen, shortened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// How long the actions took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// The result of each action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
}
