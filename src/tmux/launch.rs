//! Starting a tmux server, with a hub as its first session.

use std::{collections::BTreeMap, os::unix::fs::DirBuilderExt as _, path::PathBuf, time::Duration};

use super::program::{CallOutput, ServerSpec};
use crate::api::Result;

/// Client flags: never resize anything (F6), and let tmux drop a backlog older than a minute rather
/// than grow for ever (F11).
pub const FLAGS: &str = "ignore-size,pause-after=60";
/// The command of a hub's own window: reads its terminal, prints nothing and ends with it.
pub const PLACEHOLDER: &str = "exec cat >/dev/null";

/// Variables with tokens that last, which no agent gets and no terminal that a device makes.
const SECRET_VARIABLES: [&str; 3] = ["AUTH_TOKEN", "MUXTAP_TOKEN", "PLATFORM_TOKEN"];

/// Returns whether a variable of this name holds a token that lasts.
pub fn is_secret(name: &str) -> bool {
    SECRET_VARIABLES.contains(&name)
}

/// The environment and directory of a caller for whom a tmux server is started, as if the caller
/// had started it.
#[derive(Clone, Debug, Default)]
pub struct StartServer {
    /// The environment; absent: this process's.
    pub env: Option<BTreeMap<String, String>>,
    /// The directory.
    pub cwd: Option<PathBuf>,
}

/// Time for which a hub that was made for a new server is kept without a client.
const ORPHANED: Duration = Duration::from_secs(15);

/// Starts the server with the session that is to be its hub, made first so that it never is the
/// most recently active one (F33).
///
/// The client that starts a server is connected to it from the beginning. As a control client it
/// would be half introduced there while other clients may already make sessions (F36), so it is a
/// plain one: the hub is attached to afterwards, as on any server. If that does not happen the hub
/// ends by itself.
pub async fn start(spec: &ServerSpec, start: &StartServer, hub: &str) -> Result<CallOutput> {
    // `run-shell` expands its formats at once, and this one is to be expanded then (N87).
    let end = format!("if-shell -F -t ={hub}: '##{{session_attached}}' '' 'kill-session -t ={hub}'");
    let make = ["new-session", "-d", "-E", "-s", hub, "-n", "muxtap", PLACEHOLDER];
    let orphaned = ORPHANED.as_secs().to_string();
    let args = [&make[..], &[";", "run-shell", "-b", "-d", &orphaned, "-C", &end]].concat();
    let mut call = spec.command(args.iter().copied());
    let command = &mut call.command;
    // A server elsewhere has the environment of its own host.
    let start = if spec.is_local() { start } else { &StartServer::default() };
    if let Some(env) = &start.env {
        command.env_clear();
        command.envs(env.iter().filter(|(name, _)| !matches!(name.as_str(), "TMUX" | "TMUX_PANE")));
    }
    // A token that lasts (docs/devices.md) is no business of what runs in the panes.
    command.env_remove("AUTH_TOKEN");
    if start.env.is_none() {
        // Nor are the daemon's own ones.
        for name in SECRET_VARIABLES {
            command.env_remove(name);
        }
    }
    if let Some(cwd) = start.cwd.as_ref().filter(|cwd| cwd.is_dir()) {
        command.current_dir(cwd);
    }
    spec.run(call, &args).await
}

/// Makes the directory of sockets that have names, as tmux does for `-L` but not for `-S`: where no
/// tmux ever ran it is missing.
pub fn make_socket_dir(spec: &ServerSpec) {
    let own = format!("tmux-{}", rustix::process::getuid().as_raw());
    if spec.is_local()
        && let Some(dir) = spec.socket.parent().filter(|dir| dir.file_name().is_some_and(|name| *name == *own))
    {
        // If it cannot be made tmux says what is wrong with it.
        let _ = std::fs::DirBuilder::new().mode(0o700).create(dir);
    }
}
