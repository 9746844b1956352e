//! Recordings: requests and states. `docs/recordings.md` describes them.

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Cursor;

/// The form of a recording's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    /// asciicast v2, which asciinema 2 and 3 and all of their players play.
    #[default]
    V2,
    /// asciicast v3, as asciinema 3 writes it.
    V3,
    /// The text alone, line by line.
    Text,
}

/// The request of `POST /v1/recordings`: starts a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordRequest {
    /// The pane.
    pub pane: String,
    /// Begin here: `now` (default), `start` (everything retained), `input`, `lines:N`, how long ago
    /// (`90s`, `10m`), or a cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Record into this one file, which is created: a name in the recordings directory, or, over
    /// the Unix socket, an absolute path. The recording ends at a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Record into files in this directory, an absolute path; only over the Unix socket. Without
    /// `dir` and `file`: into the recordings directory. At a limit the next file begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The maximum number of bytes in a file, at least 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The maximum duration of a file in milliseconds, at least 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// Regexes of secrets, replaced by `*` before anything is written; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
    /// Also record what muxtap types. What a terminal does not echo is never recorded.
    #[serde(default)]
    pub input: bool,
    /// The form of the files.
    #[serde(default)]
    pub format: RecordFormat,
    /// End the recording unless `GET /v1/recordings/{id}?attach=true` comes within ten seconds.
    #[serde(default)]
    pub attend: bool,
}

/// The state of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecordState {
    /// The recording continues.
    #[default]
    Recording,
    /// The recording was stopped, or the connection that was attached to it ended.
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
    /// Whether it continues, or why it has ended.
    pub state: RecordState,
    /// The files, in order; the last 1000.
    pub files: Vec<String>,
    /// The number of bytes written to all files.
    pub bytes: u64,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The end of the recorded output of the pane.
    pub cursor: Cursor,
    /// The number of places with missing output.
    pub gaps: u64,
    /// The number of characters, and strings such as titles, that were replaced.
    pub redacted: u64,
    /// The pane's exit status, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The response to `GET /v1/recordings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordingList {
    /// The active and the ended recordings, oldest first.
    pub recordings: Vec<RecordingInfo>,
}

/// The query of `GET /v1/recordings/{id}`: returns a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct RecordingQuery {
    /// Respond when the recording has ended, and end it if this connection ends first.
    #[serde(default)]
    pub attach: bool,
}

/// The query of `GET /v1/panes/{pane}/alis`: opens a live stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct AlisQuery {
    /// A regex of secrets, replaced by `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redact: Option<String>,
}
