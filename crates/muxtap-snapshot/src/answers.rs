//! Requests and answers about snapshots, layouts and groups: the same fields on every face.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use super::import::ImportFormat;
use muxtap_api::{Cursor, InputRequest};
use muxtap_core::protocol::ids::PaneId;

/// `POST /v1/snapshots`: keeps sessions as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveRequest {
    /// The snapshot's name.
    pub name: String,
    /// Only these sessions. Default: all of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// Lines of each pane's history and screen to keep (default 0; at most 10,000).
    #[serde(default)]
    pub history: u32,
    /// Names of variables of the sessions' environment to keep, with `*` for any run of characters.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Take the place of a snapshot of that name.
    #[serde(default)]
    pub replace: bool,
}

/// `PUT /v1/snapshots/{name}`: keeps another program's file as a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// The file's text, JSON or YAML.
    pub text: String,
    /// Whose file it is. Default: its keys tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ImportFormat>,
    /// Take the place of a snapshot of that name.
    #[serde(default)]
    pub replace: bool,
}

/// A snapshot that was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SavedAnswer {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: String,
    /// Its sessions.
    pub sessions: Vec<String>,
    /// How many windows it has.
    pub windows: u64,
    /// How many panes it has.
    pub panes: u64,
    /// Notes of what was not kept as it is.
    pub notes: Vec<String>,
    /// Of an import: what a restore with `run` would set, start and type, a line each (at most 100, then how many
    /// more). Without `run` it does none of that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
}

/// A snapshot in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// When it was saved (RFC 3339); empty where it was imported.
    pub saved: String,
    /// Whether it was saved here and is as it was then: a restore without `run` sets its variables.
    #[serde(default)]
    pub saved_here: bool,
    /// Its sessions.
    pub sessions: Vec<String>,
    /// How many windows it has.
    pub windows: u64,
    /// How many panes it has.
    pub panes: u64,
    /// Why it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `GET /v1/snapshots`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// The snapshots, by name.
    pub snapshots: Vec<SnapshotInfo>,
}

/// `GET /v1/snapshots/{name}`: in which form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct ShowQuery {
    /// Only this session, as a file of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With `session`: have tmuxp type the programs of its panes, too.
    pub run: bool,
}

/// `POST /v1/snapshots/{name}/restore`: makes sessions of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestoreRequest {
    /// Only these sessions of it. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// The new session's name; where there are several, each is called `NAME-ITS OWN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Start the programs of panes again, type the lines of imported files, and set the variables of a snapshot that
    /// was not saved here.
    pub run: bool,
    /// The caller's whole environment; used only where a tmux server must be started for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller_env: Option<BTreeMap<String, String>>,
}

/// Sessions that were made from a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreAnswer {
    /// Their names.
    pub sessions: Vec<String>,
    /// How many windows were made.
    pub windows: u64,
    /// How many panes were made.
    pub panes: u64,
    /// Notes of what is not as it was saved.
    pub notes: Vec<String>,
    /// Variables that were not set: without `run` those of a snapshot that was not saved here are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutVariables>,
}

/// Variables of a session that a restore did not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOutVariables {
    /// The session that was made without them.
    pub session: String,
    /// Their names.
    pub variables: Vec<String>,
}

/// `GET /v1/snapshots/{name}/diff`: with what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct DiffQuery {
    /// Another snapshot. Default: the sessions of that name as they are now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
}

/// `GET /v1/snapshots/{name}/diff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffAnswer {
    /// The differences; empty: there is none.
    pub differences: Vec<Difference>,
}

/// One thing that differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Where: `work`, `work:1` or `work:1.0`.
    pub place: String,
    /// The thing that differs.
    pub field: String,
    /// Its value in the snapshot.
    pub from: String,
    /// Its value in the other one.
    pub to: String,
}

/// `POST /v1/layouts`: keeps a window's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutRequest {
    /// The layout's name.
    pub name: String,
    /// The window.
    pub window: String,
    /// Take the place of a layout of that name.
    #[serde(default)]
    pub replace: bool,
}

/// `POST /v1/layouts/{name}/restore`: gives a window a layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutRestoreRequest {
    /// The window. It has as many panes as the layout.
    pub window: String,
    /// Give the window the size that it was saved with, too. Default: it keeps its own.
    #[serde(default)]
    pub size: bool,
}

/// A layout that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayoutAnswer {
    /// Its name.
    pub name: String,
    /// tmux's text of it, with panes numbered from 0.
    pub layout: String,
    /// How many panes it has.
    pub panes: u64,
    /// Columns of the window.
    pub width: u32,
    /// Rows of the window.
    pub height: u32,
}

/// `GET /v1/layouts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayoutList {
    /// The layouts, by name.
    pub layouts: Vec<LayoutAnswer>,
}

/// `PUT /v1/groups/{name}`: says which panes a group has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRequest {
    /// Its panes: targets, also with a `*`. A window or a session means its active pane.
    pub targets: Vec<String>,
    /// Have tmux send what is typed at a terminal into one of them to the others in its window
    /// (`synchronize-panes`). Default: only what is sent to the group goes to all.
    #[serde(default)]
    pub synchronize: bool,
}

/// A group of panes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupAnswer {
    /// Its name; `%NAME` is its target.
    pub name: String,
    /// Its panes.
    #[schema(value_type = Vec<String>)]
    pub panes: Vec<PaneId>,
    /// Those of them that are there no more.
    #[schema(value_type = Vec<String>)]
    pub gone: Vec<PaneId>,
    /// Whether tmux synchronizes them.
    pub synchronize: bool,
}

/// `GET /v1/groups`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupList {
    /// The groups of the server, by name.
    pub groups: Vec<GroupAnswer>,
}

/// `POST /v1/groups/{name}/input`: what is typed into all of its panes.
pub type GroupInput = InputRequest;

/// Input that went to all panes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupInputAnswer {
    /// Each pane, with the cursor just before its input.
    pub panes: Vec<PaneInput>,
}

/// Input that went to one pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaneInput {
    /// The pane.
    #[schema(value_type = String)]
    pub pane: PaneId,
    /// The cursor just before the input.
    #[schema(value_type = String)]
    pub cursor: Cursor,
    /// With `submit`: whether the pane printed something since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
}
