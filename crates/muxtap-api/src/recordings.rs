//! Recordings: what is asked for, and what became of it. `docs/recordings.md` describes them.

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Cursor;

/// The form of a recording's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    /// asciicast v3, as asciinema 3 writes it.
    #[default]
    V3,
    /// asciicast v2, as asciinema 2 plays it.
    V2,
    /// The text alone, line by line.
    Text,
}

/// `POST /v1/recordings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordRequest {
    /// The pane.
    pub pane: String,
    /// Begin here: `now` (default), `start` (all that is kept), `input`, `lines:N`, how long ago
    /// (`90s`, `10m`), or a cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Record into this one file, which is made: a name in the directory of recordings, or, over the
    /// Unix socket, an absolute path. At a limit the recording ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Record into files in this directory, an absolute path; only over the Unix socket. Absent, and
    /// no `file`: into the directory of recordings. At a limit the next file begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Bytes of a file, at least 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Milliseconds of a file, at least 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// Regexes of secrets, which are replaced by `*` before anything is written; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
    /// Record what muxtap types, too. What a terminal does not echo is never recorded.
    #[serde(default)]
    pub input: bool,
    /// The form of the files.
    #[serde(default)]
    pub format: RecordFormat,
    /// End it unless `GET /v1/recordings/{id}?attach=true` comes within ten seconds.
    #[serde(default)]
    pub attend: bool,
}

/// The state of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecordState {
    /// Going on.
    #[default]
    Recording,
    /// Stopped, or whoever waited for it has gone.
    Stopped,
    /// The pane's program has ended.
    PaneEnded,
    /// A limit was reached.
    Limit,
    /// A file could not be written; `error` says why.
    Failed,
    /// The daemon was stopped.
    DaemonStopped,
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordingInfo {
    /// Its id.
    pub id: String,
    /// The pane.
    pub pane: PaneId,
    /// Its tmux server's socket.
    pub socket: String,
    /// The form of the files.
    pub format: RecordFormat,
    /// Whether it goes on, or why it has ended.
    pub state: RecordState,
    /// The files, in their order; the last 1000 of them.
    pub files: Vec<String>,
    /// Bytes written to all of them.
    pub bytes: u64,
    /// When it was begun, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The end of the pane's output that was taken.
    pub cursor: Cursor,
    /// Places where output is missing.
    pub gaps: u64,
    /// Characters, and strings such as titles, that were replaced.
    pub redacted: u64,
    /// The pane's exit status, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answers `GET /v1/recordings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordingList {
    /// Those that go on and those that have ended, the oldest first.
    pub recordings: Vec<RecordingInfo>,
}

/// `GET /v1/recordings/{id}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct RecordingQuery {
    /// Answer when it has ended, and end it when this connection ends first.
    #[serde(default)]
    pub attach: bool,
}

/// `GET /v1/panes/{pane}/alis`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct AlisQuery {
    /// A regex of secrets, which are replaced by `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redact: Option<String>,
}
