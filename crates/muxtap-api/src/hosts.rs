//! Other hosts: how each is reached, and why not.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Whether the hosts are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct HostsQuery {
    /// Look now at those that are not reached: a command is run there, and no client attached. It takes up to 20 s.
    #[serde(default)]
    pub look: bool,
}

/// `GET /v1/hosts`: the hosts whose tmux servers can be named, besides this one.
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
    /// The command that runs programs there, as for a shell.
    pub command: String,
    /// The state of the way to it.
    pub state: HostState,
    /// Its servers that are followed or were asked for, by their addresses.
    #[serde(default)]
    pub servers: Vec<String>,
    /// The muxtap over there, where it was looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerInfo>,
    /// Why it was not reached the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Unreachable>,
    /// The reason in words, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The muxtap of another host: where it is there, its daemon answers for the tmux servers there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerInfo {
    /// Whether it is there.
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
    /// There is none that can be used.
    Absent,
    /// Not reached now; whether it is there was known before, or is not known.
    Down,
}

/// The state of the way to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// Nobody has asked for it yet, so nothing was run.
    Unasked,
    /// An attempt is under way.
    Connecting,
    /// A server there is followed.
    Connected,
    /// Not reached, or no server runs there.
    Down,
}

/// A reason why a host cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unreachable {
    /// There is no connection to it, or its command cannot be run here.
    NoConnection,
    /// Its host key is not known, or is another one now.
    HostKey,
    /// A password is asked for, or no key that there is taken.
    Login,
    /// There is no container of that name.
    NoContainer,
    /// The container does not run.
    ContainerStopped,
    /// The container runtime does not answer, or is not installed here.
    NoRuntime,
    /// No tmux is there.
    NoTmux,
    /// The tmux there is too old.
    TooOld,
}

/// `POST /v1/hosts`: makes another host's tmux servers reachable until the daemon ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddHostRequest {
    /// The command that runs programs there: `ssh box`, `docker exec -i web`; `NAME=COMMAND` names the host, too.
    pub via: String,
    /// Its name in targets. Default: the command's last word, without a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tmux program there. Default: `tmux`, or where a login shell there finds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmux: Option<String>,
    /// Whether the muxtap over there answers where there is one (default true).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<bool>,
}

/// `POST /v1/tools/{name}`: the answer of a tool of MCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCallAnswer {
    /// Its text for a model.
    pub text: String,
    /// The answer as JSON, by the tool's output schema.
    #[schema(value_type = Object)]
    pub answer: serde_json::Value,
}

/// The answer to [`AddHostRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddHostAnswer {
    /// The host's name in targets.
    pub name: String,
}
