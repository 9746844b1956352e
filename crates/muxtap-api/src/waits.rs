//! Responses about waits: how they ended, and what satisfied each predicate.

use std::{collections::BTreeMap, fmt};

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{CommandInfo, Cursor, Gap, HostInfo, WaitMode};

/// How a wait ended, or that it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitOutcome {
    /// The wait continues (the response with `detach`, or to a request for the result that timed
    /// out).
    Pending,
    /// All predicates were satisfied.
    Matched,
    /// A `fail` pattern matched.
    Failed,
    /// The pane ended first.
    Ended,
    /// The timeout expired.
    Timeout,
    /// The wait was cancelled.
    Cancelled,
}

impl WaitOutcome {
    /// Returns the word used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Matched => "matched",
            Self::Failed => "failed",
            Self::Ended => "ended",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The kinds of predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PredicateKind {
    /// A regex on the output text.
    Pattern,
    /// A regex on the screen.
    Screen,
    /// A regex that no longer matches anything on the screen.
    Gone,
    /// No output for a while.
    Stable,
    /// The process ended.
    Exit,
    /// A shell's prompt rests.
    Prompt,
    /// The bell rang.
    Bell,
    /// A command ended.
    Command,
    /// The title matched.
    Title,
    /// A regex that fails the wait.
    Fail,
}

/// The last match of a pattern in output before the point from which a timed-out wait counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StandsBefore {
    /// The line with the match.
    pub line: String,
    /// The raw offset at which the match begins, if it is in the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The `since` that counts the match: `screen` if it is on the screen, else `start`.
    pub since: String,
}

/// One predicate of a wait on one pane, and what satisfied it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PredicateReport {
    /// Its kind.
    pub kind: PredicateKind,
    /// The pane it watches.
    pub pane: PaneId,
    /// In a wait on several hosts: the host that the pane is on, if not the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The regex, if the kind has one. For `command`: the wanted status, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Whether it was satisfied.
    pub latched: bool,
    /// The raw offset at which the match begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The line in which it matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The whole match, then the groups; a group that did not participate is null.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<Option<String>>,
    /// Named groups.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub groups: BTreeMap<String, String>,
    /// When it was satisfied: milliseconds after the wait's request (0 if it already was).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<f64>,
    /// Whether the output that satisfied it was printed before the wait's request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
    /// For a `pattern` of a wait that timed out: its match before the wait began to count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_before: Option<StandsBefore>,
    /// For `prompt`: `osc133` or `rule`. For a `command` that did not end: `unmarked` if the pane's
    /// shell has marked no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// For `exit`: the pane's exit status, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// For `exit`: the signal that ended the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
    /// For `command`: the command that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Box<CommandInfo>>,
}

/// The response to a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitAnswer {
    /// The wait's id; its result can be requested again for ten minutes.
    pub id: String,
    /// How the wait ended.
    pub outcome: WaitOutcome,
    /// The pane that decided the wait (absent while pending, on a timeout over several panes, and
    /// for `all`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pane: Option<PaneId>,
    /// In a wait on several hosts: the host that this pane is on, if not the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Each predicate on each pane.
    pub predicates: Vec<PredicateReport>,
    /// Where to continue reading: after the last match on the pane that decided the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// The duration in milliseconds.
    pub duration_ms: f64,
    /// Output that was missing during the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// On a timeout: the last lines of the screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<String>,
    /// The exit status, if the pane ended and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The signal, if one ended the pane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
    /// With `pending`: why the result of the wait will not outlive the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
    /// In a wait on several hosts: those on which it did not begin, or whose state is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<HostInfo>,
}

impl PredicateReport {
    /// Returns the pane in the form that can be used as a target: `%3`, `HOST/%3`.
    pub fn named_pane(&self) -> String {
        named(self.host.as_deref(), self.pane)
    }
}

/// Returns a pane in the form that can be used as a target.
fn named(host: Option<&str>, pane: PaneId) -> String {
    host.map_or_else(|| pane.to_string(), |host| format!("{host}/{pane}"))
}

impl WaitAnswer {
    /// Returns the pane that decided the wait, in the form that can be used as a target.
    pub fn named_pane(&self) -> Option<String> {
        self.pane.map(|pane| named(self.host.as_deref(), pane))
    }

    /// Returns what the first pattern matched: the whole match, then its groups; empty if no
    /// pattern has matched.
    pub fn captures(&self) -> &[Option<String>] {
        let latched = self.predicates.iter().find(|report| !report.captures.is_empty());
        latched.map_or(&[], |report| report.captures.as_slice())
    }
}

/// A condition of an open wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitCondition {
    /// Its kind.
    pub kind: PredicateKind,
    /// The regex, if the kind has one. For `command`: the wanted status, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

impl fmt::Display for WaitCondition {
    /// Writes the kind, and the regex if there is one: `pattern passed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = serde_json::to_value(self.kind).ok();
        f.write_str(kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default())?;
        self.pattern.as_ref().map_or(Ok(()), |pattern| write!(f, " {pattern}"))
    }
}

/// An open wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitInfo {
    /// Its id.
    pub id: String,
    /// The tmux server's socket.
    pub socket: String,
    /// The panes that it watches.
    pub panes: Vec<PaneId>,
    /// Whether one pane or every pane must satisfy it.
    pub mode: WaitMode,
    /// Its conditions; those of the kind `fail` end it as failed.
    pub conditions: Vec<WaitCondition>,
    /// When it was requested, in milliseconds since 1970.
    pub since_ms: u64,
    /// When its timeout expires, in milliseconds since 1970.
    pub until_ms: u64,
    /// The interface that its caller uses: `unix`, `http`, `mcp`, or `engine` inside an embedding
    /// program.
    pub face: String,
    /// The caller's process or address; empty if unknown.
    pub who: String,
}

/// The response to `GET /v1/waits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitList {
    /// The open waits, oldest first.
    pub waits: Vec<WaitInfo>,
    /// With `kept`: the ended waits whose results are kept, latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptWait>,
}

/// An ended wait whose result is kept in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptWait {
    /// Its id.
    pub id: String,
    /// How it ended. Absent: unknown, because its daemon was killed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<WaitOutcome>,
    /// The pane that decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pane: Option<PaneId>,
    /// The first line that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// When it ended, in milliseconds since 1970. With an unknown outcome: when it was noted.
    pub ended_ms: u64,
}

/// The query of `GET /v1/waits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct WaitListQuery {
    /// Also list ended waits whose results are kept.
    pub kept: bool,
}
