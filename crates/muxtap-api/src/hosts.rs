//! Remote hosts: how each is reached, and why one is not.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Tier;

/// Whether unconnected hosts are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct HostsQuery {
    /// Try unconnected hosts now: this runs a command on each and attaches no client. It takes up
    /// to 20 s.
    #[serde(default)]
    pub look: bool,
}

/// `GET /v1/hosts`: the remote hosts whose tmux servers can be named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostList {
    /// The hosts, by their names.
    pub hosts: Vec<HostInfo>,
}

/// A host that is reached by a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostInfo {
    /// Its name, as in the target `NAME/%3`.
    pub name: String,
    /// The command that runs programs on it, as for a shell.
    pub command: String,
    /// Whether the daemon's configuration has it. Others can be forgotten.
    #[serde(default)]
    pub configured: bool,
    /// The state of the connection to it.
    pub state: HostState,
    /// Its followed or requested servers, by their addresses.
    #[serde(default)]
    pub servers: Vec<String>,
    /// The description that the host publishes in the fleet; `null` if a command reaches the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetHost>,
    /// The host's own muxtap, if it was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerInfo>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Unreachable>,
    /// The reason in words, and the way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A host of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetHost {
    /// Words that describe it.
    pub labels: Vec<String>,
    /// The tiers that it offers.
    pub offer: Vec<Tier>,
    /// The version of its muxtap.
    pub version: String,
}

/// The muxtap on a remote host: if it is installed, its daemon handles requests for the host's tmux
/// servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerInfo {
    /// The state of the link to it.
    pub state: PeerState,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The state of the link to another host's muxtap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// An attempt is under way.
    Connecting,
    /// The link is up.
    Connected,
    /// No usable muxtap is installed.
    Absent,
    /// Not reached now; whether muxtap is installed may be known from before.
    Down,
}

/// The state of the connection to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// No caller has requested the host yet, so no command was run.
    Unasked,
    /// An attempt is under way.
    Connecting,
    /// A server on it is followed.
    Connected,
    /// Not reached, or no server runs on it.
    Down,
}

/// A reason why a host cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unreachable {
    /// The connection failed, or the command cannot be run on this host.
    NoConnection,
    /// The host key is unknown or has changed.
    HostKey,
    /// The host requires a password, or accepts none of the keys.
    Login,
    /// No container has that name.
    NoContainer,
    /// The container is not running.
    ContainerStopped,
    /// The container runtime does not respond, or is not installed on this host.
    NoRuntime,
    /// The host has no tmux.
    NoTmux,
    /// The host's tmux is too old.
    TooOld,
}

/// `POST /v1/hosts`: makes a remote host's tmux servers reachable until the daemon exits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddHostRequest {
    /// The command that runs programs on the host: `ssh box`, `docker exec -i web`; `NAME=COMMAND`
    /// also names the host.
    pub via: String,
    /// Its name in targets. Default: the command's last word, without a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tmux program on the host. Default: `tmux`, or the one that a login shell on it finds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux: Option<String>,
    /// Whether the host's own muxtap handles requests, if it has one (default true).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<bool>,
}

/// `POST /v1/tools/{name}`: the result of an MCP tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCallAnswer {
    /// The text for a model.
    pub text: String,
    /// The result as JSON, by the tool's output schema.
    #[schema(value_type = Object)]
    pub answer: serde_json::Value,
}

/// The response to [`AddHostRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddHostAnswer {
    /// The host's name in targets.
    pub name: String,
}
