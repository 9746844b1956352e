//! Starting a tmux server, with a hub as its first session.

use std::{collections::BTreeMap, os::unix::fs::DirBuilderExt as _, path::PathBuf};

use super::program::ServerSpec;

/// Client flags: never resize anything (F6), and let tmux drop a backlog older than a minute rather than grow for ever (F11).
pub const FLAGS: &str = "ignore-size,pause-after=60";
/// What a hub's own window runs: it reads its terminal, prints nothing and ends with it.
pub const PLACEHOLDER: &str = "exec cat >/dev/null";

/// For whom a tmux server is started: it gets its environment and directory, as if the caller had started it.
#[derive(Clone, Debug, Default)]
pub struct StartServer {
    /// The environment; absent: this process's.
    pub env: Option<BTreeMap<String, String>>,
    /// The directory.
    pub cwd: Option<PathBuf>,
}

/// The command that starts the server and its hub, made first so that it never is the most recently active one (F33).
pub fn command(spec: &ServerSpec, start: &StartServer, hub: &str) -> tokio::process::Command {
    let mut command = spec.client(["-C", "new-session", "-E", "-f", FLAGS, "-s", hub, "-n", "muxtap", PLACEHOLDER]);
    if let Some(env) = &start.env {
        command.env_clear();
        command.envs(env.iter().filter(|(name, _)| !matches!(name.as_str(), "TMUX" | "TMUX_PANE")));
    }
    if let Some(cwd) = start.cwd.as_ref().filter(|cwd| cwd.is_dir()) {
        command.current_dir(cwd);
    }
    command
}

/// Makes the directory of sockets that have names, as tmux does for `-L` but not for `-S`: where no tmux ever ran it is missing.
pub fn make_socket_dir(spec: &ServerSpec) {
    let own = format!("tmux-{}", rustix::process::getuid().as_raw());
    if spec.is_local()
        && let Some(dir) = spec.socket.parent().filter(|dir| dir.file_name().is_some_and(|name| *name == *own))
    {
        // If it cannot be made tmux says what is wrong with it.
        let _ = std::fs::DirBuilder::new().mode(0o700).create(dir);
    }
}
