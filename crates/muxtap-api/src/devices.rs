//! Devices, their workspaces and their sessions: requests and responses. `docs/devices.md`
//! describes them.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceType {
    /// A page.
    Browser,
    /// A command line.
    Cli,
}

impl DeviceType {
    /// Returns the word used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Browser => "browser",
            Self::Cli => "cli",
        }
    }
}

/// Whether other devices may change a device's workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemoteControl {
    /// No: the relay rejects the request.
    Never,
    /// The device decides about each caller.
    #[default]
    Ask,
    /// Yes.
    Always,
}

/// A device that the relay knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceInfo {
    /// Its id.
    pub device_id: String,
    /// Its name, for people.
    pub device_label: String,
    /// Its kind.
    pub device_type: DeviceType,
    /// Whether it is connected and responds.
    pub online: bool,
    /// When it was last active, in milliseconds since 1970.
    pub last_seen_at: u64,
    /// The revision of its workspace that it last reported.
    pub workspace_revision: u64,
}

/// The response to `GET /v1/devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceList {
    /// The devices, by their ids.
    pub devices: Vec<DeviceInfo>,
}

/// The query of `GET /v1/devices/{id}/workspace`: reads a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct WorkspaceQuery {
    /// If the device is not connected or does not accept the request in time, return what it last
    /// published.
    #[serde(default)]
    pub allow_stale: bool,
}

/// The source of a response about a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceSource {
    /// The device replied.
    Live,
    /// The device published it earlier, and is not connected or did not accept the request.
    Cache,
}

/// A workspace, and how current it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceAnswer {
    /// The device that owns it.
    pub device_id: String,
    /// Its revision.
    pub workspace_revision: u64,
    /// The active tab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_tab_id: Option<String>,
    /// The tabs, as the owner reports them.
    #[schema(value_type = Vec<Object>)]
    pub tabs: Vec<serde_json::Value>,
    /// The panes of all tabs, as the owner reports them.
    #[schema(value_type = Vec<Object>)]
    pub panes: Vec<serde_json::Value>,
    /// The source of this workspace.
    pub source: WorkspaceSource,
    /// When the device created it, in milliseconds since 1970.
    pub captured_at: u64,
    /// Whether the device is connected.
    pub owner_online: bool,
    /// When the device was last active, in milliseconds since 1970.
    pub owner_last_seen_at: u64,
}

/// `PUT /v1/devices/{id}/workspace`: publishes the workspace of a device without a socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublishRequest {
    /// The device's name.
    pub device_label: String,
    /// Its kind.
    pub device_type: DeviceType,
    /// The snapshot: `deviceId`, `workspaceRevision`, `tabs`, `panes`, `capturedAt`.
    #[schema(value_type = Object)]
    pub snapshot: serde_json::Value,
}

/// A request to the owner of a workspace: `POST /v1/devices/{id}/rpc`, or `layout.rpc.request`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RpcRequest {
    /// `layout.rpc.request`; may be omitted over HTTP.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The request's id; over HTTP it is generated if absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// The requesting device.
    pub caller_device_id: String,
    /// The device that owns the workspace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_device_id: String,
    /// The command: `new-tab`, `split-pane` and so on, or `get-workspace`.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub args: serde_json::Value,
    /// The workspace's revision that the caller saw; required for every change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<u64>,
    /// The key under which the owner remembers the response; required for commands that create
    /// something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How long the owner may take, in milliseconds (default 10,000; at most 60,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// An owner's response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RpcResponse {
    /// The request's id.
    pub request_id: String,
    /// Always true.
    pub ok: bool,
    /// The owner's result.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub result: serde_json::Value,
    /// The workspace's revision that includes the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_revision: Option<u64>,
}

/// A scope of a device's token, in addition to its own workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceScope {
    /// Publish and change the device's own workspace; every token has it.
    LayoutWrite,
    /// Request changes on other devices.
    RemoteControl,
    /// Use all other routes: terminals, waits and so on.
    Terminals,
}

/// The request of `POST /api/device-sessions`: logs a device in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceSessionRequest {
    /// The device.
    pub device_id: String,
    /// Its name.
    pub device_label: String,
    /// Its kind.
    pub device_type: DeviceType,
    /// The scopes of the token, in addition to the device's own workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<DeviceScope>,
}

/// The request of `POST /api/device-sessions/refresh`: renews a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefreshRequest {
    /// The refresh token; valid once.
    pub refresh_token: String,
}

/// A device's session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceSession {
    /// The device that the session belongs to.
    pub device_id: String,
    /// The token, for `Authorization: Bearer`.
    pub token: String,
    /// The token for the next session.
    pub refresh_token: String,
    /// When the token expires, in milliseconds since 1970.
    pub expires_at: u64,
    /// The scopes of the token.
    pub scopes: Vec<DeviceScope>,
}

impl std::fmt::Debug for DeviceSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the tokens.
        f.debug_struct("DeviceSession").field("device_id", &self.device_id).finish_non_exhaustive()
    }
}
