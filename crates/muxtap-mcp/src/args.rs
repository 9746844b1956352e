//! The arguments of each tool. A model reads their doc comments.
//!
//! A tool takes every field of its request. Rare fields are not in its schema, which every model
//! reads (`#[schema(ignore)]`); docs/mcp.md and the error for an unknown argument list them.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use muxtap_api::{Error, EventKind, Operation, ReadFormat, Result, ScreenFormat, StatusIs, decode};
use rmcp::model::JsonObject;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, DeserializeOwned, IntoDeserializer as _, SeqAccess, Visitor},
};
use serde_json::Value;
use utoipa::ToSchema;

use super::{accepted::fields_of, synonyms};

/// Parses a tool's arguments. The error names the field, the expected and the given value.
pub(super) fn parse<T: DeserializeOwned>(mut arguments: JsonObject) -> Result<T> {
    synonyms::rename(&mut arguments, fields_of::<T>())?;
    synonyms::check(&arguments, fields_of::<T>())?;
    decode::from_value("arguments", &Value::Object(arguments))
}

/// Reads a list, or a single item as a list of one. Models also write a list as a text of JSON,
/// `"[\"a\", \"b\"]"`, which would be a regex that matches nearly everything.
pub(super) fn one_or_many<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> std::result::Result<Vec<T>, D::Error> {
    struct OneOrMany<T>(PhantomData<T>);

    impl<'de, T: DeserializeOwned> Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a list of strings")
        }

        fn visit_str<E: de::Error>(self, one: &str) -> std::result::Result<Vec<T>, E> {
            match one.trim_start().starts_with('[').then(|| serde_json::from_str(one)) {
                Some(Ok(many)) => Ok(many),
                _ => T::deserialize(one.into_deserializer()).map(|one| vec![one]),
            }
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Vec<T>, A::Error> {
            let mut many = Vec::new();
            while let Some(item) = items.next_element()? {
                many.push(item);
            }
            Ok(many)
        }
    }

    deserializer.deserialize_any(OneOrMany(PhantomData))
}

/// Reads a word, or a whole number as a word.
fn number_or_word<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<String>, D::Error> {
    struct NumberOrWord;

    impl Visitor<'_> for NumberOrWord {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number or a string")
        }

        fn visit_str<E>(self, word: &str) -> std::result::Result<Option<String>, E> {
            Ok(Some(word.to_owned()))
        }

        fn visit_i64<E>(self, number: i64) -> std::result::Result<Option<String>, E> {
            Ok(Some(number.to_string()))
        }

        fn visit_u64<E>(self, number: u64) -> std::result::Result<Option<String>, E> {
            Ok(Some(number.to_string()))
        }
    }

    deserializer.deserialize_any(NumberOrWord)
}

/// Arguments of `list`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Default panes
    #[serde(default)]
    pub what: ListKind,
    /// A session, window or pane; names may contain *
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Commands: at most this many, the latest (default 20)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub n: Option<u64>,
    /// Commands: only failed ones
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub failed: bool,
    /// Commands: only those whose line matches this regex
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub grep: Option<String>,
    /// Commands: only those that ended after at least this many milliseconds
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub over_ms: Option<u64>,
    /// Also the default servers of all other hosts
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub everywhere: bool,
    /// tmux server, of every tool: a name (-L), or a followed one's path
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// What to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListKind {
    /// Sessions.
    Sessions,
    /// Windows.
    Windows,
    /// Panes.
    #[default]
    Panes,
    /// Coding agents.
    Agents,
    /// Commands that ran in a pane.
    Commands,
}

/// Arguments of `capture_pane`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the JSON that callers write")]
pub struct Capture {
    /// %3, session:window.pane, or a session (its active pane)
    #[serde(alias = "pane")]
    pub target: String,
    /// Lines of history too
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<u32>,
    /// Keep colors
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escapes: bool,
    /// Join wrapped lines
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub join: bool,
    /// First line, as for `capture-pane -S`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub start: Option<String>,
    /// Last line, as for `capture-pane -E`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub end: Option<String>,
    /// Keep trailing spaces
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub trailing: bool,
    /// Compare with tmux's own capture
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub verify: bool,
    /// Default 4000
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// Arguments of `read_since`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// A pane
    #[serde(alias = "pane")]
    pub target: String,
    /// A cursor, lines:N, start, now, or input: the last one (default)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Of a command: number, -1, last-failed
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "number_or_word")]
    pub command: Option<String>,
    /// Wait for output, at most 50000
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// End here: a cursor or a time
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub until: Option<String>,
    /// text, ansi or raw (base64)
    #[serde(default)]
    #[schema(ignore)]
    pub format: ReadFormat,
    /// Most raw bytes of the page
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub max_bytes: Option<u64>,
    /// Page from the beginning (default: the last 4000)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// Arguments of `wait_for`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
// Reasons: each is a field of the JSON that callers write.
#[allow(clippy::struct_excessive_bools)]
pub struct Wait {
    /// Panes
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_many",
        alias = "target",
        alias = "pane",
        alias = "targets"
    )]
    pub panes: Vec<String>,
    /// Regexes on output, all; typed echo does not count
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many", alias = "pattern")]
    pub patterns: Vec<String>,
    /// Regexes on the screen
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub screen: Vec<String>,
    /// Regexes no longer on the screen
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub gone: Vec<String>,
    /// Regexes that fail the wait
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub fail: Vec<String>,
    /// No output for this long
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable_ms: Option<u64>,
    /// Then no output for this long
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub settle_ms: Option<u64>,
    /// A shell's prompt rests
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompt: bool,
    /// The bell rang
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub bell: bool,
    /// A command ended
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub command: bool,
    /// A command ended with this status, or (!0) any other
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub status: Option<StatusIs>,
    /// Regex on the title
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The process ended
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exit: bool,
    /// Every pane (default: any)
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// As in `read_since`; or screen
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Default 30000
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Return at once with the wait's id
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub detach: bool,
    /// Continue this wait
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// Arguments of `run`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// A pane
    #[serde(skip_serializing_if = "Option::is_none", alias = "pane")]
    pub target: Option<String>,
    /// One or more lines of shell
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Continue a pending or timed-out run
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Default 30000; the command continues
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Clear text typed at the prompt
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clear_line: bool,
    /// How long the pane's program may take to end
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub prompt_ms: Option<u64>,
    /// Default 4000
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
    /// Even your own pane
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// Arguments of `send_keys`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// A pane
    #[serde(alias = "pane")]
    pub target: String,
    /// Typed literally
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Keys by tmux's names: C-c, Enter, Up
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub keys: Vec<String>,
    /// Bytes in hexadecimal, instead of text and keys
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub hex: Option<String>,
    /// Key or label of an agent's answer, with its question's id
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The question it answers
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    /// Then press Enter
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub submit: bool,
    /// Bracketed paste
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paste: bool,
    /// Even your own pane
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// Arguments of `create`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the JSON that callers write")]
pub struct Create {
    /// Default session
    #[serde(default)]
    pub what: CreateKind,
    /// Session of a new window, or pane to split
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Of the session or window
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Shell command line (default: a shell)
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    #[schema(value_type = Option<String>)]
    pub command: Vec<String>,
    /// Working directory
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Keep an ended pane
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// Start the shell with muxtap's shell integration
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub shell_integration: Option<bool>,
    /// Split side by side
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub horizontal: bool,
    /// Name of a new session's window
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub window_name: Option<String>,
    /// Columns of a new session
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub width: Option<u16>,
    /// Rows of a new session
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub height: Option<u16>,
    /// Return an existing session of that name
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub or_existing: bool,
    /// Index of a new window
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub index: Option<u32>,
    /// Put a new pane left or above
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub before: bool,
    /// Give a new pane the window's whole height or width
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub full: bool,
    /// Size of a new pane: cells, or a percentage: `30%`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub size: Option<String>,
    /// Select the new window or pane
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub select: bool,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

impl Create {
    /// Returns the operation of the call.
    pub(super) const fn operation(&self) -> Operation {
        match self.what {
            CreateKind::Session => Operation::NewSession,
            CreateKind::Window => Operation::NewWindow,
            CreateKind::Pane => Operation::SplitWindow,
        }
    }

    /// Error: `INVALID_ARGUMENT` for an argument that this kind does not take.
    pub(super) fn check(&self) -> Result<()> {
        use CreateKind::{Pane, Session, Window};
        let given: [(&str, bool, &[CreateKind]); 9] = [
            ("window_name", self.window_name.is_some(), &[Session]),
            ("width", self.width.is_some(), &[Session]),
            ("height", self.height.is_some(), &[Session]),
            ("or_existing", self.or_existing, &[Session]),
            ("index", self.index.is_some(), &[Window]),
            ("before", self.before, &[Pane]),
            ("full", self.full, &[Pane]),
            ("size", self.size.is_some(), &[Pane]),
            ("select", self.select, &[Window, Pane]),
        ];
        match given.iter().find(|(_, given, of)| *given && !of.contains(&self.what)) {
            Some((name, ..)) => {
                let what = format!("{:?}", self.what).to_lowercase();
                Err(Error::invalid(format!("{name}: not supported for a new {what}")))
            }
            None => Ok(()),
        }
    }
}

/// What to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CreateKind {
    /// A session.
    #[default]
    Session,
    /// A window.
    Window,
    /// A pane.
    Pane,
}

/// Arguments of `kill`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// %3, @1, $0, session, session:window or session:window.pane
    pub target: String,
    /// If the target is ambiguous
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<TargetKind>,
    /// Even your own
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// What to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// A pane.
    Pane,
    /// A window.
    Window,
    /// A session.
    Session,
}

/// Arguments of `rename`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// As for kill
    pub target: String,
    /// New name
    pub name: Option<String>,
    /// "" removes
    pub labels: Option<BTreeMap<String, String>>,
    /// As in list
    pub server: Option<String>,
}

/// Arguments of `resize`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// A pane or window
    pub target: String,
    /// Columns
    pub width: Option<u16>,
    /// Rows
    pub height: Option<u16>,
    /// false: unzoom
    pub zoom: Option<bool>,
    /// tiled, even-horizontal, main-vertical …
    pub layout: Option<String>,
    /// As in list
    pub server: Option<String>,
}

/// Arguments of `select`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// A window or pane
    pub target: String,
    /// Leave copy mode instead
    #[serde(default)]
    pub leave_mode: bool,
    /// As in list
    pub server: Option<String>,
}

/// Arguments of `respawn`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Respawn {
    /// A pane
    #[serde(alias = "pane")]
    pub target: String,
    /// Instead of what ran before
    #[serde(default, deserialize_with = "one_or_many")]
    #[schema(value_type = Option<String>)]
    pub command: Vec<String>,
    /// End the running program first
    #[serde(default)]
    pub kill: bool,
    /// Working directory
    #[schema(ignore)]
    pub cwd: Option<String>,
    /// Variables
    #[serde(default)]
    #[schema(ignore)]
    pub env: BTreeMap<String, String>,
    /// Keep the pane after its program ends
    #[serde(default)]
    #[schema(ignore)]
    pub keep: bool,
    /// Start the shell with muxtap's shell integration
    #[schema(ignore)]
    pub shell_integration: Option<bool>,
    /// As in list
    pub server: Option<String>,
}

/// Any of these changes, as one call; also the arguments of `change`, the earlier tool for all.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the JSON that callers write")]
pub struct Change {
    /// As for kill
    pub target: String,
    /// New name, or title of a pane
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of a pane or session; "" removes one
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Columns
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u16>,
    /// Rows
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u16>,
    /// Layout of a window: tiled, even-horizontal, main-vertical …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Make it the current window, or active pane
    #[serde(default, skip_serializing_if = "std::ops::Not::not", alias = "focus")]
    pub select: bool,
    /// Zoom the pane; false: unzoom
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zoom: Option<bool>,
    /// Leave copy mode
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave_mode: bool,
    /// Restart the pane's program
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub respawn: bool,
    /// With respawn: this shell command line
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    #[schema(value_type = Option<String>)]
    pub command: Vec<String>,
    /// With respawn: working directory
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub cwd: Option<String>,
    /// With respawn: variables
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(ignore)]
    pub env: BTreeMap<String, String>,
    /// With respawn: keep the pane after its program ends
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    pub keep: bool,
    /// With respawn: start the shell with muxtap's shell integration
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub shell_integration: Option<bool>,
    /// With respawn: end the running program first
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kill: bool,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

impl Change {
    /// Returns the operation of the call.
    pub(super) const fn operation(&self) -> Operation {
        if self.kill { Operation::Respawn { kill: true } } else { Operation::ChangePane }
    }
}

impl From<Rename> for Change {
    fn from(Rename { target, name, labels, server }: Rename) -> Self {
        Self { target, name, labels, server, ..Self::default() }
    }
}

impl From<Resize> for Change {
    fn from(Resize { target, width, height, zoom, layout, server }: Resize) -> Self {
        Self { target, width, height, layout, zoom, server, ..Self::default() }
    }
}

impl From<Select> for Change {
    fn from(Select { target, leave_mode, server }: Select) -> Self {
        Self { target, leave_mode, select: !leave_mode, server, ..Self::default() }
    }
}

impl From<Respawn> for Change {
    fn from(args: Respawn) -> Self {
        let Respawn { target, command, kill, cwd, env, keep, shell_integration, server } = args;
        Self { target, respawn: true, command, kill, cwd, env, keep, shell_integration, server, ..Self::default() }
    }
}

/// Arguments of `search`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Regex
    pub pattern: String,
    /// Only these; names may contain *
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many", alias = "target")]
    pub targets: Vec<String>,
    /// Default 50, the last ones
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lines: Option<usize>,
    /// Lines before and after each
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// Default 0: the latest; 1: earlier
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<usize>,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// Arguments of `watch`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Only these; names may contain *
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many", alias = "target")]
    pub targets: Vec<String>,
    /// Of the last result: no gap (default: now)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// Default 10000, at most 50000
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Event types, as of GET /v1/events
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    #[schema(ignore)]
    pub types: Vec<EventKind>,
    /// Form of output: text, ansi or raw (base64)
    #[serde(default)]
    #[schema(ignore)]
    pub format: ReadFormat,
    /// With type `screen`: rows, text or ansi
    #[serde(default)]
    #[schema(ignore)]
    pub screen: ScreenFormat,
    /// Begin the panes' output here
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub since: Option<String>,
    /// As in list
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused<T: DeserializeOwned>(arguments: &Value) -> String {
        let error = parse::<T>(arguments.as_object().unwrap().clone()).err();
        error.unwrap_or_else(|| panic!("it was taken: {arguments}")).message
    }

    #[test]
    fn what_is_wrong_is_said_in_plain_words() {
        for (message, says) in [
            (refused::<Capture>(&json!({})), "target: required field is missing"),
            (refused::<Capture>(&json!({"target": null})), "target: expected a string, got null"),
            (refused::<Capture>(&json!({"target": 3})), "target: expected a string, got 3"),
            (
                refused::<Capture>(&json!({"target": "%0", "history": 5_000_000_000_u64})),
                "history: expected a whole number from 0 to 4294967295, got 5000000000",
            ),
            (
                refused::<Read>(&json!({"target": "%0", "wait_ms": "soon"})),
                r#"wait_ms: expected a whole number, 0 or more, got "soon""#,
            ),
            (
                refused::<Read>(&json!({"target": "%0", "max_chars": -1})),
                "max_chars: expected a whole number, 0 or more, got -1",
            ),
            (refused::<Wait>(&json!({"patterns": 7})), "patterns: expected a string or a list of strings, got 7"),
            (refused::<Wait>(&json!({"patterns": null})), "patterns: expected a string or a list of strings, got null"),
            (refused::<Wait>(&json!({"patterns": ["a", {}]})), "patterns[1]: expected a string, got an object"),
            (refused::<Wait>(&json!({"prompt": "yes"})), r#"prompt: expected true or false, got "yes""#),
            (
                refused::<List>(&json!({"what": "pane"})),
                r#"what: expected one of sessions, windows, panes, agents, commands, got "pane""#,
            ),
            (
                refused::<List>(&json!({"what": 1})),
                "what: expected one of sessions, windows, panes, agents, commands, got 1",
            ),
            (refused::<Create>(&json!({"env": {"A": 1}})), "env.A: expected a string, got 1"),
            (refused::<Create>(&json!({"env": ["A=1"]})), "env: expected an object, got a list"),
            (
                refused::<Resize>(&json!({"target": "a", "width": 70_000})),
                "width: expected a whole number from 0 to 65535, got 70000",
            ),
            (refused::<Kill>(&json!({"target": "a", "force": 1})), "force: expected true or false, got 1"),
            (refused::<Search>(&json!({"targets": "a"})), "pattern: required field is missing"),
            (refused::<Watch>(&json!({"resume": 5})), "resume: expected a string, got 5"),
            (refused::<Run>(&json!({"target": "a", "pane": "b"})), "target: duplicate field"),
        ] {
            assert_eq!(message, says);
        }
        let message = refused::<Send>(&json!({"target": "%0", "txt": "ls"}));
        assert!(message.starts_with("txt: no such field (did you mean `text`?); valid fields: "), "{message}");
    }

    #[test]
    fn a_list_may_be_written_as_a_text_of_json() {
        let read = |patterns: &str| {
            let arguments = json!({"panes": "a", "patterns": patterns});
            parse::<Wait>(arguments.as_object().unwrap().clone()).unwrap().patterns
        };
        assert_eq!(read(r#"["server ready", "done"]"#), ["server ready", "done"]);
        assert_eq!(read(r#" ["a"]"#), ["a"]);
        // Regexes.
        for one in ["[abc]", r#"["a]"#, "[1, 2]", r#"["a"]+"#, "ready"] {
            assert_eq!(read(one), [one]);
        }
        let types = |types: Value| parse::<Watch>(json!({"types": types}).as_object().unwrap().clone()).unwrap().types;
        assert_eq!(types(json!(r#"["output", "screen"]"#)), types(json!(["output", "screen"])));
        assert_eq!(types(json!("output")), types(json!(["output"])));
    }

    #[test]
    fn a_list_may_be_one_item_and_what_may_be_left_out_may_be_null() {
        let arguments = json!({"panes": "a", "patterns": ["b", "c"], "since": null, "timeout_ms": null});
        let wait: Wait = parse(arguments.as_object().unwrap().clone()).unwrap();
        assert_eq!((wait.panes, wait.patterns), (vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]));
        assert_eq!((wait.since, wait.timeout_ms), (None, None));
    }
}
