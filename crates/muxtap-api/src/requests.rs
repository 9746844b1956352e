//! Requests that callers send.

use std::collections::BTreeMap;

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{StatusIs, streams::items};

/// Selects the tmux server; on every route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct ServerQuery {
    /// The tmux server: its name as for `tmux -L`, or the absolute path of its socket (over TCP: of
    /// a server that is followed, configured, or in the directory of the user's tmux sockets).
    /// Absent: the only followed server, else the one named `default` of the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The caller's own pane, by its id: targets such as `:2`, `.1` and `+` count from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub from: Option<PaneId>,
}

/// Selects the entries of a list, and whether it includes other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct ListAllQuery {
    /// Only what these targets name, separated by commas: a pane, or everything in a window or a
    /// session; a `*` in a name stands for any characters. Default: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<String>,
    /// Also list the default servers of all other hosts; `unreachable` lists the hosts that
    /// returned nothing.
    #[serde(default)]
    pub everywhere: bool,
}

/// Selects the entries of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only what these targets name, separated by commas: a pane, or everything in a window or a
    /// session; a `*` in a name stands for any characters. Default: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<String>,
}

impl ListQuery {
    /// Returns the targets, one by one.
    pub fn items(&self) -> Vec<String> {
        listed(self.targets.as_deref())
    }
}

impl ListAllQuery {
    /// Returns the targets, one by one.
    pub fn items(&self) -> Vec<String> {
        listed(self.targets.as_deref())
    }
}

fn listed(targets: Option<&str>) -> Vec<String> {
    items(targets.unwrap_or_default()).map(str::to_owned).collect()
}

impl SpawnRequest {
    /// Removes the caller's directory, which means nothing on another host, and the caller's
    /// environment, which stays on its own.
    pub(crate) fn remove_caller(&mut self) {
        (self.caller_cwd, self.caller_env) = (None, None);
    }
}

/// `GET /v1/panes/{pane}/format`: expands a format for one pane, as `display-message -p` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct FormatQuery {
    /// The format, as in FORMATS of tmux's manual page: `#{pane_current_path}`.
    pub format: String,
}

/// `GET /v1/format`: expands a format for each session, window or pane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct FormatListQuery {
    /// The kind of the listed items.
    pub each: Listed,
    /// The format, as in FORMATS of tmux's manual page: `#{session_name} #{session_windows}`.
    pub format: String,
    /// As for the list itself: only what these targets name, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<String>,
}

/// The items that tmux lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Listed {
    /// Sessions.
    Sessions,
    /// Windows, once for each session that links them.
    Windows,
    /// Panes that have not ended.
    #[default]
    Panes,
}

/// `GET /v1/panes/{pane}/capture`: captures a pane, as `tmux capture-pane -p` does.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct CaptureRequest {
    /// First line as for `-S`: 0 is the first visible line, negative counts into history, `-` is
    /// the start of history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Last line as for `-E`; `-` is the last visible line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Join wrapped lines and keep trailing spaces (`-J`).
    #[serde(default)]
    pub join: bool,
    /// Keep colors and attributes as escape sequences (`-e`).
    #[serde(default)]
    pub escapes: bool,
    /// Keep trailing spaces (`-N`).
    #[serde(default)]
    pub trailing: bool,
    /// Capture from memory, also query tmux, and compare the two. The pane must rest meanwhile.
    #[serde(default)]
    pub verify: bool,
}

/// The form in which a read returns output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReadFormat {
    /// Escapes removed, `\r` and backspaces applied, `\n` line ends.
    #[default]
    Text,
    /// Text with its original escape sequences, as (lossy) UTF-8.
    Ansi,
    /// The original bytes, base64 in JSON (`data`).
    Raw,
}

/// `GET /v1/panes/{pane}/output`: reads output since a point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct ReadRequest {
    /// A cursor, or `input` (default: muxtap's last input, or where muxtap created or respawned the
    /// pane; else `start`), `start`, `now`, `lines:N` (the last N retained lines), how long ago the
    /// output was printed, with a unit (`90s`, `10m`, `1h30m`), or `@` and seconds since 1970; both
    /// times are accurate to about a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// End here: a cursor or a time, as for `since`. Not with `wait_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The form of the output.
    #[serde(default)]
    pub format: ReadFormat,
    /// The maximum number of raw bytes (default 262,144; at most 8 MiB); the next read returns the
    /// rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// If nothing is new, wait this long for output (long poll; at most 300,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Only the output of this command: its number, `-1` (the last one; `-2` is the one before it) or
    /// `last-failed`. `since` is then a cursor within it (default: its beginning). Not with `until` or
    /// `wait_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// `POST /v1/panes/{pane}/input`: types into a pane. Exactly one of `keys`, `text` and `hex`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InputRequest {
    /// Keys by tmux's names (`C-c`, `Enter`, `Up`); anything else is typed as text, as `tmux
    /// send-keys` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// Text, typed literally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes in hexadecimal, white space allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
    /// With `text`: paste it (bracketed if the program requested that) instead of typing it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paste: bool,
    /// Then press Enter in a way that terminal programs accept as Enter, and check that something
    /// happened. Several lines are one message to a program that enabled bracketed paste.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub submit: bool,
    /// Only for the command of the run with this key: `CONFLICT` while it was not typed, and after its
    /// end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// `POST /v1/panes/{pane}/run`: runs a command in a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The command, one or more lines.
    pub command: String,
    /// Keep the output's colors, as escape sequences. Output that moves the cursor has none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escapes: bool,
    /// The timeout in milliseconds (default 30,000; at most 86,400,000). The command continues
    /// after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Clear text typed at the prompt; without this, typed text is a `CONFLICT`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clear_line: bool,
    /// How long a program in the pane may take to end before it is a `CONFLICT` (default 1000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_ms: Option<u64>,
    /// A name that the caller makes for this run, for input that is meant for it (`run` of an input).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Whether one pane or all panes must satisfy a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitMode {
    /// The first pane that satisfies all predicates ends the wait.
    #[default]
    Any,
    /// Every pane must satisfy all predicates.
    All,
}

/// `POST /v1/waits`. At least one predicate: patterns, screen, gone, `stable_ms`, exit, prompt,
/// bell or title. All of them must be satisfied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
// Reasons: each is a field of the JSON that callers write.
#[allow(clippy::struct_excessive_bools)]
pub struct WaitRequest {
    /// Targets; at least one, at most 256.
    pub panes: Vec<String>,
    /// One or all of the panes.
    #[serde(default)]
    pub mode: WaitMode,
    /// Regexes on the output text; each must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// Regexes on the rendered screen; each must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub screen: Vec<String>,
    /// Regexes that no longer match anything on the rendered screen, now or later; each must be
    /// gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// No output for this long, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_ms: Option<u64>,
    /// The pane's process has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exit: bool,
    /// A shell's prompt rests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompt: bool,
    /// The bell rang.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bell: bool,
    /// A command ended: the one that runs; else the one that muxtap's last input started; else the
    /// next. Only in panes whose shell marks its commands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub command: bool,
    /// A command ended with this status (`0`) or with any other (`!0`); commands that end otherwise
    /// are passed over. Implies `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "!0")]
    pub status: Option<StatusIs>,
    /// The title matches this regex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Regexes that end the wait as failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fail: Vec<String>,
    /// Where to begin: `input` (default: muxtap's last input, where muxtap created or respawned the
    /// pane, or the last match of the same pattern, whichever is last; else now), `now`, `start`,
    /// `screen`, or a cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// After all predicates are satisfied: no output for this much longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle_ms: Option<u64>,
    /// The timeout in milliseconds (default 30,000; at most 86,400,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Respond at once with the wait's id; its result is at `GET /v1/waits/{id}`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detach: bool,
}

/// Reads a request and its [`SpawnRequest`] from one object: serde cannot reject an unknown field of
/// a type that has a flattened part.
macro_rules! read_with_spawn {
    ($fields:ident => $request:ident { $($(#[$attribute:meta])* $field:ident: $kind:ty,)* }) => {
        /// The fields as they are written, side by side.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $fields {
            $($(#[$attribute])* $field: $kind,)*
            command: Option<Vec<String>>,
            cwd: Option<String>,
            caller_cwd: Option<String>,
            #[serde(default)]
            env: BTreeMap<String, String>,
            #[serde(default)]
            keep: bool,
            caller_env: Option<BTreeMap<String, String>>,
            shell_integration: Option<bool>,
        }

        impl From<$fields> for $request {
            fn from(fields: $fields) -> Self {
                let $fields { $($field,)* command, cwd, caller_cwd, env, keep, caller_env, shell_integration } = fields;
                let spawn = SpawnRequest { command, cwd, caller_cwd, env, keep, caller_env, shell_integration };
                Self { $($field,)* spawn }
            }
        }
    };
}

read_with_spawn! {
    NewSessionFields => NewSessionRequest {
        name: Option<String>,
        window_name: Option<String>,
        width: Option<u16>,
        height: Option<u16>,
        #[serde(default)]
        or_existing: bool,
    }
}

read_with_spawn! {
    NewWindowFields => NewWindowRequest {
        session: String,
        index: Option<u32>,
        name: Option<String>,
        #[serde(default)]
        select: bool,
    }
}

read_with_spawn! {
    SplitFields => SplitRequest {
        pane: String,
        #[serde(default)]
        horizontal: bool,
        #[serde(default)]
        before: bool,
        #[serde(default)]
        full: bool,
        size: Option<String>,
        #[serde(default)]
        select: bool,
    }
}

read_with_spawn! {
    RespawnFields => RespawnRequest {
        #[serde(default)]
        kill: bool,
    }
}

/// The request of `POST /v1/sessions`: creates a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(from = "NewSessionFields")]
pub struct NewSessionRequest {
    /// The session's name; absent: tmux numbers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its window's name; absent: tmux names it after the running program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_name: Option<String>,
    /// The program in its pane; absent: the shell.
    #[serde(flatten)]
    pub spawn: SpawnRequest,
    /// Columns (default 80).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u16>,
    /// Rows (default 24).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u16>,
    /// If a session of that name exists, return its active pane and create nothing (`-A`); default:
    /// that is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_existing: bool,
}

/// The program to start in a pane, and its environment; common to sessions, windows, splits and
/// respawns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpawnRequest {
    /// The program and its arguments; a single item is a shell command line, as for tmux. Absent:
    /// the shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The caller's own directory, used if `cwd` is absent; it means nothing on another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_cwd: Option<String>,
    /// Environment variables set in the pane, over the session's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Keep the pane after its process has ended (tmux's `remain-on-exit`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// The caller's whole environment; used only if the request starts a tmux server, and for the
    /// variables that tmux's `update-environment` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_env: Option<BTreeMap<String, String>>,
    /// Start the shell with muxtap's shell integration, so that it marks its commands; absent: as the
    /// setting `shell_integration` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_integration: Option<bool>,
}

/// The request of `POST /v1/windows`: creates a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(from = "NewWindowFields")]
pub struct NewWindowRequest {
    /// The session to create the window in.
    pub session: String,
    /// Its index in the session, which must be free; absent: the first free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The window's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The program that runs in it.
    #[serde(flatten)]
    pub spawn: SpawnRequest,
    /// Make it the session's current window (default: the focus does not change).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub select: bool,
}

/// `POST /v1/panes`: splits a pane.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(from = "SplitFields")]
pub struct SplitRequest {
    /// The pane to split.
    pub pane: String,
    /// Side by side (`-h`); default: one above the other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub horizontal: bool,
    /// The new pane comes first: to the left, or above (`-b`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
    /// The new pane takes the window's whole height or width (`-f`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// The new pane's size in cells, or a percentage, such as `30%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The program that runs in it.
    #[serde(flatten)]
    pub spawn: SpawnRequest,
    /// Make it the active pane (default: the focus does not change).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub select: bool,
}

/// `PATCH /v1/sessions/{id}`, `/v1/windows/{id}` and `/v1/panes/{id}`: changes what the given
/// fields name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchRequest {
    /// A new name (sessions and windows) or title (panes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A layout: a name (`tiled`, `even-horizontal` …) or a layout string (windows).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Columns (windows and panes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u16>,
    /// Rows (windows and panes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u16>,
    /// Restart the pane's program, or start another one (panes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub respawn: Option<RespawnRequest>,
    /// Make it its session's current window or its window's active pane.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub select: bool,
    /// Zoom the pane to fill its window, or unzoom it (panes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zoom: Option<bool>,
    /// Leave copy mode and tmux's other modes (panes).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave_mode: bool,
    /// Labels to set, by their keys; an empty value removes a label (panes and sessions).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Options of a respawn, as for `tmux respawn-pane`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(from = "RespawnFields")]
pub struct RespawnRequest {
    /// End the running program first (`-k`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kill: bool,
    /// The program to run; absent: the previous one.
    #[serde(flatten)]
    pub spawn: SpawnRequest,
}

/// The first line of a connection of `muxtap mcp`: describes the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpHello {
    /// The socket of the selected tmux server.
    pub server: String,
    /// The caller's own pane, and its server's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pane: Option<(String, String)>,
    /// Its working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// The directory of its user's named tmux sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<String>,
    /// Whether `-L`, `-S` or `--via` named the server: the capability then uses that server, and no
    /// container.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub server_is_named: bool,
    /// The sets of tools that the client is offered; absent: the native one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSet>,
    /// The time for which a call is held, in milliseconds; absent: the daemon's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<u64>,
}

/// A set of MCP tools. Each costs a model some of its attention, so only the native set is offered
/// to every client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolSet {
    /// The tools that every client is offered.
    Native,
    /// Snapshots, layouts and groups.
    Snapshot,
    /// The tool `record`.
    Record,
    /// The tool `tmux`, the capability.
    Capability,
    /// The tools `devices` and `workspace`.
    Devices,
    /// The tool `agent_session`.
    Sessions,
    /// The tool `manage_tmux_sessions`.
    ManageTmuxSessions,
}
