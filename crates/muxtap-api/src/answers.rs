//! The answers that callers receive.

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Cursor, Gap, HostInfo, WaitMode};

/// Columns and rows.
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
    /// `$0`.
    pub id: String,
    /// The host on which it is, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its name.
    pub name: String,
    /// How many windows it has.
    pub windows: u32,
    /// How many clients are attached, muxtap's own left out.
    pub attached: u32,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// When it was last active, seconds since 1970.
    pub activity: u64,
}

/// A window, as one session shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowInfo {
    /// `@1`.
    pub id: String,
    /// The host on which it is, where that is another one.
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
    /// How many panes it has.
    pub panes: u32,
    /// tmux's layout string.
    pub layout: String,
    /// Its size.
    pub size: Size,
}

/// A pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaneInfo {
    /// `%3`.
    pub id: PaneId,
    /// The host on which it is, where that is another one.
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
    /// The process tmux started in it.
    pub pid: u32,
    /// Its size.
    pub size: Size,
    /// Its process has ended.
    pub dead: bool,
    /// A tmux server that ran there before had it. Its id may be another pane's by now: what it
    /// printed is read by a cursor of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier_server: bool,
    /// With which status, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// By which signal, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
    /// The end of its output so far; an empty text where it is not followed yet.
    #[serde(default, with = "optional_cursor")]
    #[schema(value_type = String)]
    pub cursor: Option<Cursor>,
}

impl PaneInfo {
    /// A pane of which nothing but its id is known.
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

/// A cursor that may be missing, as a text that may be empty.
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

/// Answer of the formats: what tmux prints, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FormatAnswer {
    /// The lines; of a list at least one for each entry, in tmux's order.
    pub lines: Vec<String>,
}

/// Answers `GET /v1/sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionList {
    /// In tmux's order.
    pub sessions: Vec<SessionInfo>,
    /// The other hosts that gave nothing, where all were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<HostInfo>,
}
/// Answers `GET /v1/windows`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowList {
    /// In tmux's order; a window that several sessions link stands once for each.
    pub windows: Vec<WindowInfo>,
    /// The other hosts that gave nothing, where all were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<HostInfo>,
}
/// Answers `GET /v1/panes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaneList {
    /// In tmux's order; each pane once. Ended panes that are still readable come last.
    pub panes: Vec<PaneInfo>,
    /// The other hosts that gave nothing, where all were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<HostInfo>,
}

/// Where a capture came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CaptureSource {
    /// The local screen model.
    Model,
    /// tmux, over the open connection.
    Tmux,
    /// The copy kept of a pane that has ended.
    Kept,
}

impl CaptureSource {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Tmux => "tmux",
            Self::Kept => "kept",
        }
    }
}

/// Answers a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaptureAnswer {
    /// The pane.
    pub pane: PaneId,
    /// The text that `tmux capture-pane -p` prints.
    pub text: String,
    /// Where it came from.
    pub source: CaptureSource,
    /// The pane's size.
    pub size: Size,
    /// The end of the output that the capture shows.
    pub cursor: Cursor,
    /// How it compares with what tmux has, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
}

/// How a capture from memory compares with tmux's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verified {
    /// They are the same, byte for byte.
    pub same: bool,
    /// The first line that differs, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The line that memory has there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The line that tmux has there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux: Option<String>,
}

/// Answers a since-read.
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
    /// Where the next read goes on.
    pub cursor: Cursor,
    /// More is there already: read again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Something is missing before this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// The pane's process has ended and this is the last of its output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exited: bool,
    /// With which status, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// By which signal, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
}

/// Observations of a verified submit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmitSeen {
    /// The text's echo was seen before Enter was pressed.
    pub echoed: bool,
    /// The pane printed something after Enter.
    pub changed: bool,
}

/// Answers an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputAnswer {
    /// The pane.
    pub pane: PaneId,
    /// The end of the output just before the input arrived.
    pub cursor: Cursor,
    /// With `submit`: what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit: Option<SubmitSeen>,
}

/// How `run` knew where the output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunMethod {
    /// A mark that was typed with the command.
    Sentinel,
}

/// Answers a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunAnswer {
    /// The pane.
    pub pane: PaneId,
    /// The command's output.
    pub output: String,
    /// Its exit status; absent where the shell ended with it and nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The end of its output.
    pub cursor: Cursor,
    /// The beginning of the output was dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The shell ended with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shell_ended: bool,
    /// How its end was known.
    pub method: RunMethod,
}

/// How a wait ended, or that it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitOutcome {
    /// The wait goes on (an answer to `detach`, or to a look that timed out).
    Pending,
    /// All predicates were satisfied.
    Matched,
    /// A `fail` pattern matched.
    Failed,
    /// The pane ended first.
    Ended,
    /// The time ran out.
    Timeout,
    /// The wait was cancelled.
    Cancelled,
}

/// The kinds of predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PredicateKind {
    /// A regex on the output text.
    Pattern,
    /// A regex on the screen.
    Screen,
    /// A regex that nothing on the screen matches any more.
    Gone,
    /// Quiet.
    Stable,
    /// The process ended.
    Exit,
    /// A prompt rests.
    Prompt,
    /// The bell rang.
    Bell,
    /// The title matched.
    Title,
    /// A regex that fails the wait.
    Fail,
}

/// Where a pattern stood that was waited for in vain: before the wait began to count. The last such
/// place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StandsBefore {
    /// The line in which it matches.
    pub line: String,
    /// The raw offset at which the match begins, where it stands in the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The `since` that counts it: `screen` where it is on the screen, else `start`.
    pub since: String,
}

/// One predicate of a wait on one pane, and what satisfied it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PredicateReport {
    /// Which kind.
    pub kind: PredicateKind,
    /// The pane it watches.
    pub pane: PaneId,
    /// The regex, where it has one.
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
    /// The whole match, then the groups; a group that took no part is null.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<Option<String>>,
    /// Named groups.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub groups: std::collections::BTreeMap<String, String>,
    /// When it was satisfied: milliseconds after the wait was asked (0 when it already was).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<f64>,
    /// The output that satisfied it had been printed before the wait was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
    /// For a `pattern` of a wait that timed out: it stood there before the wait began to count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_before: Option<StandsBefore>,
    /// For `prompt`: `osc133` or `rule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// For `exit`: the pane's exit status, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// For `exit`: the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
}

/// Answers a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitAnswer {
    /// The wait's id; its result can be asked for again for ten minutes.
    pub id: String,
    /// How it ended.
    pub outcome: WaitOutcome,
    /// The pane that decided it (absent while pending, on a timeout over several panes, and for
    /// `all`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pane: Option<PaneId>,
    /// Each predicate on each pane.
    pub predicates: Vec<PredicateReport>,
    /// Where to go on reading: after the last match on the pane that decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
    /// Output was missing while it watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// On a timeout: the last lines of the screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<String>,
    /// The exit status, where the pane ended and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The signal, where the pane ended by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
}

impl WaitAnswer {
    /// Returns what the first pattern matched: the whole match, then its groups; nothing where no
    /// pattern has matched.
    pub fn captures(&self) -> &[Option<String>] {
        let latched = self.predicates.iter().find(|report| !report.captures.is_empty());
        latched.map_or(&[], |report| report.captures.as_slice())
    }
}

/// A condition of an open wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitCondition {
    /// Which kind.
    pub kind: PredicateKind,
    /// The regex, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
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
    /// When it was asked for, in milliseconds since 1970.
    pub since_ms: u64,
    /// When its time is up, in milliseconds since 1970.
    pub until_ms: u64,
    /// The way by which its caller came: `unix`, `http`, `mcp`, or `engine` within a program of one's own.
    pub face: String,
    /// The caller's process or address; empty where it is not known.
    pub who: String,
}

/// Answers `GET /v1/waits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitList {
    /// The open waits, the oldest first.
    pub waits: Vec<WaitInfo>,
}

/// Answers `GET /v1/servers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerList {
    /// The tmux servers that are followed, and sockets that were asked for on which none runs; by socket.
    pub servers: Vec<ServerStatus>,
}

/// Answers what makes a session, window or pane.
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
    /// Its stream's beginning.
    pub cursor: Cursor,
}

/// Answers what has nothing else to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoneAnswer {
    /// Always true: what failed is an error.
    pub ok: bool,
}

/// Answers `GET /v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusAnswer {
    /// muxtap's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// How long it has run, in seconds.
    pub uptime_s: u64,
    /// The socket it answers on.
    pub socket: String,
    /// The addresses it answers on besides, with their scheme.
    #[serde(default)]
    pub http: Vec<String>,
    /// Its log file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The tmux servers it follows.
    pub servers: Vec<ServerStatus>,
    /// Waits that are open.
    pub waits: u64,
    /// Faults of the daemon itself, and what to do: its log cannot be written, it is out of file
    /// descriptors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The daemon's settings, and where they came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigAnswer {
    /// The configuration file that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Every setting there is.
    pub settings: Vec<Setting>,
}

/// One setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    /// Its name.
    pub key: String,
    /// The value in force: a text, true or false, a list of texts, or null.
    pub value: serde_json::Value,
    /// Where it came from: `default`, a file's path, a variable (`$MUXTAP_TMUX`) or a flag
    /// (`--tmux`).
    pub source: String,
}

/// The daemon's view of what it needs: the surroundings that it was started in, not the caller's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentAnswer {
    /// Its `PATH`, in which it looks for tmux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its `TMUX_TMPDIR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux_tmpdir: Option<String>,
    /// The directory in which it looks for tmux servers by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_dir: Option<String>,
    /// The tmux program that it starts servers with.
    pub program: TmuxProgram,
    /// The files that it read when it began, and those that it looked for and that were not there.
    #[serde(default)]
    pub files: Vec<ConfigFile>,
    /// The tmux servers that run, of those that it follows and the one that `socket` names.
    pub servers: Vec<ServerProgram>,
}

/// A tmux program, as a process finds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TmuxProgram {
    /// The value of the setting `tmux`.
    pub name: String,
    /// The file that this is; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A file that is read when a daemon begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConfigFile {
    /// The file.
    pub path: String,
    /// Whether it was there.
    pub read: bool,
    /// Whether it is another one since: changed, made or removed.
    pub changed: bool,
}

/// A running tmux server, and the program that speaks to it.
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
    /// The program that speaks to it.
    pub program: String,
    /// Whether that is the server's own one.
    pub own: bool,
    /// What is set on the server by which a person may notice muxtap while a pane is in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noticed: Vec<String>,
    /// Why it cannot be spoken to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One tmux server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Its socket.
    pub socket: String,
    /// `connected`, `connecting`, `gone` or `absent`.
    pub state: String,
    /// Its process, while it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its tmux version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How the server is followed: `used`, `sessions` or `hub` (`docs/unnoticed.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<String>,
    /// Control clients that are attached.
    pub clients: u32,
    /// Sessions, without muxtap's own.
    pub sessions: u32,
    /// Panes that are followed.
    pub panes: u32,
    /// Bytes their rings hold.
    pub ring_bytes: u64,
    /// Why it is not connected; or, where it is, what is wrong with its socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
