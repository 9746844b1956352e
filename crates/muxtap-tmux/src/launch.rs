//! Starts a tmux server, with a hub as its first session.

use std::{collections::BTreeMap, os::unix::fs::DirBuilderExt as _, path::PathBuf, time::Duration};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::protocol::names::spelled;

use super::{
    program::{CallOutput, ServerSpec},
    surroundings,
};

/// Client flags: never resize anything (F6), and let tmux drop a backlog older than a minute
/// instead of letting it grow forever (F11).
pub const FLAGS: &str = "ignore-size,pause-after=60";
/// The same for a server that a respawn of a pane with a backlog may crash (N98): the backlog is
/// dropped soon.
pub const FLAGS_OF_THE_FRAIL: &str = "ignore-size,pause-after=2";
/// The command of a hub's own window: reads its terminal, prints nothing and ends with it.
pub const PLACEHOLDER: &str = "exec cat >/dev/null";

/// Variables with long-lived tokens, which agents and terminals created by devices never get.
const SECRET_VARIABLES: [&str; 4] = ["AUTH_TOKEN", "MUXTAP_TOKEN", "PLATFORM_TOKEN", "TMUX_BRIDGE_TOKEN"];

/// Returns whether a variable of this name holds a long-lived token.
pub fn is_secret(name: &str) -> bool {
    SECRET_VARIABLES.contains(&name)
}

/// The environment and directory of a caller for whom a tmux server is started, as if the caller
/// had started it.
#[derive(Clone, Debug, Default)]
pub struct StartServer {
    /// The environment; if absent, the variables of this process's environment that tmux needs.
    pub env: Option<BTreeMap<String, String>>,
    /// The directory.
    pub cwd: Option<PathBuf>,
}

/// Time for which a hub that was created with a new server is kept without a client.
const ORPHANED: Duration = Duration::from_secs(15);

/// Starts the server with the session that becomes its hub, created first so that it never is the
/// most recently active one (F33).
///
/// The client that starts a server is connected to it from the beginning. As a control client it
/// would be half introduced to the server while other clients may already create sessions (F36), so
/// it is a plain one: a control client attaches to the hub afterward, as on any server. If that
/// does not happen the hub ends by itself.
pub async fn start_with_hub(spec: &ServerSpec, by: &StartServer, hub: &str) -> Result<CallOutput> {
    // `run-shell` expands its formats at once; this one must be expanded when it runs (N87).
    let [is_orphaned, kill] = ["if-shell", "kill-session"].map(spelled);
    let end = format!("{is_orphaned} -F -t ={hub}: '##{{session_attached}}' '' '{kill} -t ={hub}'");
    let make = ["new-session", "-d", "-E", "-s", hub, "-n", "muxtap", PLACEHOLDER];
    let orphaned = ORPHANED.as_secs().to_string();
    // As a global option it would end the hub with this client.
    let stay = [";", "set-option", "-t", &format!("={hub}:"), "destroy-unattached", "off"];
    let args = [&make[..], &stay, &[";", "run-shell", "-b", "-d", &orphaned, "-C", &end]].concat();
    start(spec, by, &args).await
}

/// Runs the tmux that starts a server, as if the caller had run it.
pub async fn start(spec: &ServerSpec, start: &StartServer, args: &[&str]) -> Result<CallOutput> {
    let mut call = spec.starting(args.iter().copied())?;
    let command = &mut call.command;
    // A server on another host has the environment of its own host.
    let start = if spec.is_local() { start } else { &StartServer::default() };
    if let Some(env) = &start.env {
        surroundings::set(command, env.iter().map(|(name, value)| (name.into(), value.into())));
    }
    // Programs in the panes do not need a long-lived token (docs/devices.md).
    command.env_remove("AUTH_TOKEN");
    if let Some(cwd) = start.cwd.as_ref().filter(|cwd| cwd.is_dir()) {
        command.current_dir(cwd);
    }
    spec.run(call, args).await
}

/// Checks the value of `destroy-unattached` of a server on which a session is to be created. Error:
/// `CONFLICT` for a value that destroys a session without an attached client at once.
pub fn keeps_sessions(value: &str) -> Result<()> {
    let value = value.trim();
    // `keep-last` destroys a session only if it is in a group with others.
    if !matches!(value, "on" | "1" | "keep-group") {
        return Ok(());
    }
    let why = format!(
        "no session was created: `destroy-unattached` is {value} on this tmux server, which destroys a session without \
         an attached client at once; `tmux set-option -g destroy-unattached off` keeps it"
    );
    Err(Error::new(ErrorCode::Conflict, why))
}

/// Creates the directory of named sockets, as tmux does for `-L` but not for `-S`: it is missing
/// until tmux has run.
pub fn make_socket_dir(spec: &ServerSpec) {
    let own = format!("tmux-{}", rustix::process::getuid().as_raw());
    if spec.is_local()
        && let Some(dir) = spec.socket.parent().filter(|dir| dir.file_name().is_some_and(|name| *name == *own))
    {
        // If it cannot be created, tmux reports why.
        let _ = std::fs::DirBuilder::new().mode(0o700).create(dir);
    }
}
