//! Requests and responses about snapshots, layouts and groups: the same fields on every interface.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use super::import::ImportFormat;
use muxtap_api::{Fields, InputAnswer, InputRequest, TargetField};
use muxtap_core::protocol::ids::PaneId;

/// `POST /v1/snapshots`: saves sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveRequest {
    /// The snapshot's name.
    pub name: String,
    /// Only these sessions. Default: all of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// Lines of each pane's history and screen to save (default 0; at most 10,000).
    #[serde(default)]
    pub history: u32,
    /// Names of session environment variables to save, with `*` for any characters. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Replace an existing snapshot of that name.
    #[serde(default)]
    pub replace: bool,
}

/// `PUT /v1/snapshots/{name}`: imports another program's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// The file's text, JSON or YAML.
    pub text: String,
    /// Its program. Default: by its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ImportFormat>,
    /// Replace an existing snapshot of that name.
    #[serde(default)]
    pub replace: bool,
}

/// A stored snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SavedAnswer {
    /// The name.
    pub name: String,
    /// The file.
    pub path: String,
    /// The sessions.
    pub sessions: Vec<String>,
    /// The number of windows.
    pub windows: u64,
    /// The number of panes.
    pub panes: u64,
    /// What was not saved unchanged.
    pub notes: Vec<String>,
    /// For an import: what a restore with `run` would set, start and type, one line each (at most
    /// 100, then a count). Without `run` none of it happens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
}

/// A snapshot in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotInfo {
    /// The name.
    pub name: String,
    /// When it was saved (RFC 3339); empty for an import.
    pub saved: String,
    /// Whether it was saved here and not changed since: a restore without `run` sets its variables.
    #[serde(default)]
    pub saved_here: bool,
    /// The sessions.
    pub sessions: Vec<String>,
    /// The number of windows.
    pub windows: u64,
    /// The number of panes.
    pub panes: u64,
    /// Why it is unreadable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `GET /v1/snapshots`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// The snapshots, by name.
    pub snapshots: Vec<SnapshotInfo>,
}

/// `GET /v1/snapshots/{name}`: the form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct ShowQuery {
    /// Only this session, as a separate file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With `session`: tmuxp types the programs of its panes too.
    pub run: bool,
}

/// `POST /v1/snapshots/{name}/restore`: restores sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestoreRequest {
    /// Only these sessions. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// The new session's name; of several, each is called `NAME-ITS OWN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Start the panes' programs, type the lines of imported files, and set the variables and labels
    /// of a snapshot that was not saved here.
    pub run: bool,
    /// The caller's whole environment; used only to start a tmux server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller_env: Option<BTreeMap<String, String>>,
}

/// Restored sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreAnswer {
    /// The names.
    pub sessions: Vec<String>,
    /// The number of windows made.
    pub windows: u64,
    /// The number of panes made.
    pub panes: u64,
    /// Differences from the snapshot.
    pub notes: Vec<String>,
    /// Values that were not set: without `run`, the variables and labels of a snapshot that was not saved here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// Variables and labels of a session that a restore did not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// The session without them.
    pub session: String,
    /// The names of the variables.
    pub variables: Vec<String>,
    /// The keys of the labels of the session and its panes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// `GET /v1/snapshots/{name}/diff`: query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct DiffQuery {
    /// Another snapshot. Default: the current sessions of those names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
}

/// `GET /v1/snapshots/{name}/diff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffAnswer {
    /// The differences; empty if none.
    pub differences: Vec<Difference>,
}

/// One difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Where: `work`, `work:1` or `work:1.0`.
    pub place: String,
    /// The field that differs.
    pub field: String,
    /// The value in the snapshot.
    pub from: String,
    /// The other side's value.
    pub to: String,
}

/// `POST /v1/layouts`: saves a window's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutRequest {
    /// The layout's name.
    pub name: String,
    /// The window.
    pub window: String,
    /// Replace an existing layout of that name.
    #[serde(default)]
    pub replace: bool,
}

/// `POST /v1/layouts/{name}/restore`: applies a layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutRestoreRequest {
    /// The window; it needs as many panes.
    pub window: String,
    /// Also set the saved window size. Default: the window keeps its own.
    #[serde(default)]
    pub size: bool,
}

/// A stored layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayoutAnswer {
    /// The name.
    pub name: String,
    /// tmux's layout text, panes numbered from 0.
    pub layout: String,
    /// The number of panes.
    pub panes: u64,
    /// The window's columns.
    pub width: u32,
    /// The window's rows.
    pub height: u32,
}

/// `GET /v1/layouts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayoutList {
    /// The layouts, by name.
    pub layouts: Vec<LayoutAnswer>,
}

/// `PUT /v1/groups/{name}`: sets a group's panes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRequest {
    /// The panes: targets, also with `*`. A window or a session means its active pane.
    pub targets: Vec<String>,
    /// Have tmux send what is typed at a terminal into one pane to the others in its window
    /// (`synchronize-panes`). Default: only input to the group goes to all.
    #[serde(default)]
    pub synchronize: bool,
}

/// A group of panes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupAnswer {
    /// The name; `%NAME` is its target, or `HOST/%NAME`.
    pub name: String,
    /// The host of its panes, if it is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The panes.
    #[schema(value_type = Vec<String>)]
    pub panes: Vec<PaneId>,
    /// Those that no longer exist.
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

/// `POST /v1/groups/{name}/input`: the input for all of its panes.
pub type GroupInput = InputRequest;

/// Input sent to all panes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupInputAnswer {
    /// Each pane, with the cursor just before its input.
    pub panes: Vec<InputAnswer>,
}

impl Fields for SaveRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_each(&mut self.sessions, visit);
    }
}

impl Fields for RestoreRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_each(&mut self.sessions, visit);
    }
}

impl Fields for DiffQuery {}

impl Fields for LayoutRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        visit(TargetField::One(&mut self.window));
    }
}

impl Fields for LayoutRestoreRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        visit(TargetField::One(&mut self.window));
    }
}

impl Fields for GroupRequest {
    fn visit_targets(&mut self, visit: &mut dyn FnMut(TargetField<'_>)) {
        TargetField::visit_each(&mut self.targets, visit);
    }
}
