//! Responses that callers receive.

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{CommandInfo, Cursor, Gap, HostInfo, Labels};

/// A size in columns and rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionInfo {
    /// Its id, such as `$0`.
    pub id: String,
    /// The host that the session is on, if not the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its name.
    pub name: String,
    /// The number of its windows.
    pub windows: u32,
    /// The number of attached clients, without muxtap's own.
    pub attached: u32,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// When it was last active, in seconds since 1970.
    pub activity: u64,
    /// Its own labels, which its panes inherit.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A window, as one session shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowInfo {
    /// Its id, such as `@1`.
    pub id: String,
    /// The host that the window is on, if not the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The session's id.
    pub session_id: String,
    /// The session's name.
    pub session: String,
    /// Its index in that session.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is that session's current window.
    pub active: bool,
    /// The number of its panes.
    pub panes: u32,
    /// tmux's layout string.
    pub layout: String,
    /// Its size.
    pub size: Size,
}

/// A pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaneInfo {
    /// Its id, such as `%3`.
    pub id: PaneId,
    /// The host that the pane is on, if not the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// A session that shows it.
    pub session: String,
    /// The session's id.
    pub session_id: String,
    /// Its window's id.
    pub window_id: String,
    /// Its window's index in that session.
    pub window_index: u32,
    /// Its window's name.
    pub window: String,
    /// Its index in the window.
    pub index: u32,
    /// Whether it is the window's active pane.
    pub active: bool,
    /// Its title.
    pub title: String,
    /// The command that runs in it, as tmux names it.
    pub command: String,
    /// Its working directory.
    pub path: String,
    /// Its labels: its own, and those of its session with other keys.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The process that tmux started in it.
    pub pid: u32,
    /// Its size.
    pub size: Size,
    /// Whether its process has ended.
    pub dead: bool,
    /// Whether the pane belonged to an earlier tmux server on this socket. Its id may now be
    /// another pane's; its output is read with its own cursor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier_server: bool,
    /// The exit status, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The signal that ended it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
    /// The end of its output so far; an empty string if the pane is not followed yet.
    #[serde(default, with = "optional_cursor")]
    #[schema(value_type = String)]
    pub cursor: Option<Cursor>,
}

impl PaneInfo {
    /// Returns a pane of which only the id is known.
    pub fn of(id: PaneId) -> Self {
        Self {
            id,
            host: None,
            session: String::new(),
            session_id: String::new(),
            window_id: String::new(),
            window_index: 0,
            window: String::new(),
            index: 0,
            active: false,
            title: String::new(),
            command: String::new(),
            path: String::new(),
            labels: Labels::default(),
            pid: 0,
            size: Size::default(),
            dead: false,
            earlier_server: false,
            exit_status: None,
            exit_signal: None,
            cursor: None,
        }
    }
}

/// An optional cursor as a string that may be empty.
mod optional_cursor {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    use super::Cursor;

    #[allow(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub fn serialize<S: Serializer>(cursor: &Option<Cursor>, serializer: S) -> Result<S::Ok, S::Error> {
        match cursor {
            Some(cursor) => serializer.collect_str(cursor),
            None => serializer.serialize_str(""),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cursor>, D::Error> {
        match &*Cow::<'de, str>::deserialize(deserializer)? {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|error: crate::Error| D::Error::custom(error.message)),
        }
    }
}

/// The response of the format routes: tmux's output, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FormatAnswer {
    /// The lines, in tmux's order; a list has at least one for each entry.
    pub lines: Vec<String>,
}

/// The response to `GET /v1/sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionList {
    /// The sessions, in tmux's order.
    pub sessions: Vec<SessionInfo>,
    /// The hosts that returned nothing, if all hosts were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<HostInfo>,
}
/// The response to `GET /v1/windows`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowList {
    /// The windows, in tmux's order; a window linked into several sessions is listed once for each.
    pub windows: Vec<WindowInfo>,
    /// The hosts that returned nothing, if all hosts were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<HostInfo>,
}
/// The response to `GET /v1/panes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaneList {
    /// The panes, in tmux's order, each once. Ended panes that can still be read come last.
    pub panes: Vec<PaneInfo>,
    /// The hosts that returned nothing, if all hosts were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<HostInfo>,
}

/// The source of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CaptureSource {
    /// The local screen model.
    Model,
    /// tmux, over the open connection.
    Tmux,
    /// The retained copy of a pane that has ended.
    Kept,
}

impl CaptureSource {
    /// Returns the word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Tmux => "tmux",
            Self::Kept => "kept",
        }
    }
}

/// The response to a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaptureAnswer {
    /// The pane.
    pub pane: PaneId,
    /// The output of `tmux capture-pane -p`.
    pub text: String,
    /// The source of the text.
    pub source: CaptureSource,
    /// The pane's size.
    pub size: Size,
    /// The end of the output that the capture shows.
    pub cursor: Cursor,
    /// The comparison with tmux's own capture, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
}

/// The comparison of a capture from memory with tmux's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verified {
    /// Whether the two are the same, byte for byte.
    pub same: bool,
    /// The number of the first line that differs, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The first line that differs, in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The first line that differs, in tmux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux: Option<String>,
}

/// The response to a read since a cursor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadAnswer {
    /// The pane.
    pub pane: PaneId,
    /// The text (formats `text` and `ansi`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes, base64 (format `raw`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Where the next read continues.
    pub cursor: Cursor,
    /// Whether more output is available: read again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The output that is missing before this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// The command whose output was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Box<CommandInfo>>,
    /// Whether the pane's process has ended and this is its last output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exited: bool,
    /// The exit status, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The signal that ended it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
}

/// Observations of a verified submit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmitSeen {
    /// Whether the text's echo was seen before Enter was pressed.
    pub echoed: bool,
    /// Whether the pane printed something after Enter.
    pub changed: bool,
}

/// The response to an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputAnswer {
    /// The pane.
    pub pane: PaneId,
    /// The end of the output just before the input arrived.
    pub cursor: Cursor,
    /// With `submit`: what was observed; else null.
    #[serde(default)]
    pub submit: Option<SubmitSeen>,
}

/// How `run` determined the end of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunMethod {
    /// A mark that was typed with the command.
    Sentinel,
}

/// The response to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunAnswer {
    /// The pane.
    pub pane: PaneId,
    /// The command's output.
    pub output: String,
    /// Its exit status; absent if the shell ended with the command and the status is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The end of its output.
    pub cursor: Cursor,
    /// Whether the beginning of the output was dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Whether the shell ended with the command; then tmux may have dropped the end of the output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shell_ended: bool,
    /// How the command's end was determined.
    pub method: RunMethod,
}

/// The response to `GET /v1/servers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerList {
    /// The followed tmux servers, and requested sockets without a running server; by socket.
    pub servers: Vec<ServerStatus>,
}

/// The response to a request that creates a session, window or pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedAnswer {
    /// The new pane.
    pub pane: PaneId,
    /// Its window.
    pub window: String,
    /// Its session.
    pub session: String,
    /// The session's name.
    pub session_name: String,
    /// The beginning of its stream.
    pub cursor: Cursor,
}

/// The response to a request that has no other result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoneAnswer {
    /// Always true: a failure is an error.
    pub ok: bool,
}

/// `POST /v1/upgrade`: lets another daemon take over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// The program to start, by its absolute path. Default: the path of the daemon's own program, where
    /// a new version may be by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// End what cannot be handed over: recordings, agent sessions, and requests that stay open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// The response to `POST /v1/upgrade`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeAnswer {
    /// The process id of the daemon that has taken over.
    pub pid: u32,
}

/// The response to `GET /v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusAnswer {
    /// muxtap's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// How long the daemon has run, in seconds.
    pub uptime_s: u64,
    /// The socket that the daemon listens on.
    pub socket: String,
    /// Further addresses that the daemon listens on, with their scheme.
    #[serde(default)]
    pub http: Vec<String>,
    /// Its log file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The tmux servers that the daemon follows.
    pub servers: Vec<ServerStatus>,
    /// The number of open waits.
    pub waits: u64,
    /// Problems of the daemon itself, and the way out: its log cannot be written, it is out of file
    /// descriptors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The daemon's settings, and the source of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigAnswer {
    /// The configuration file that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// All settings.
    pub settings: Vec<Setting>,
}

/// One setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    /// Its name.
    pub key: String,
    /// The value in force: a string, a boolean, a list of strings, or null.
    pub value: serde_json::Value,
    /// The source: `default`, a file's path, a variable (`$MUXTAP_TMUX`) or a flag (`--tmux`).
    pub source: String,
}

/// The environment as the daemon sees it: the one it was started in, not the caller's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentAnswer {
    /// Its `PATH`, which it searches for tmux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its `TMUX_TMPDIR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux_tmpdir: Option<String>,
    /// The directory that it searches for tmux servers by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_dir: Option<String>,
    /// The tmux program that starts servers.
    pub program: TmuxProgram,
    /// The files that the daemon read at its start, and those that it looked for in vain.
    #[serde(default)]
    pub files: Vec<ConfigFile>,
    /// The running tmux servers among the followed ones and the one that `socket` names.
    pub servers: Vec<ServerProgram>,
}

/// A tmux program, as a process finds it in its environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TmuxProgram {
    /// The value of the setting `tmux`.
    pub name: String,
    /// The program's file; absent if it was not found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A file that a daemon reads at its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigFile {
    /// The file.
    pub path: String,
    /// Whether it existed and was read.
    pub read: bool,
    /// Whether it has changed since: edited, created or removed.
    pub changed: bool,
}

/// A running tmux server, and the program that connects to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerProgram {
    /// Its socket.
    pub socket: String,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The program that connects to it.
    pub program: String,
    /// Whether that is the program that the server itself runs.
    pub own: bool,
    /// Options of the server by which a person may notice muxtap while a pane is in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noticed: Vec<String>,
    /// Why the server cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One tmux server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Its socket.
    pub socket: String,
    /// Its state: `connected`, `connecting`, `gone` or `absent`.
    pub state: String,
    /// Its process, while connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its tmux version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How the server is followed: `used`, `sessions` or `hub` (`docs/unnoticed.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<String>,
    /// The number of attached control clients.
    pub clients: u32,
    /// The number of sessions, without muxtap's own.
    pub sessions: u32,
    /// The number of followed panes.
    pub panes: u32,
    /// The number of bytes in their rings.
    pub ring_bytes: u64,
    /// Why it is not connected; if it is, what is wrong with its socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
