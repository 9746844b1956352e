//! Starting a tmux server, with a hub as its first session.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    attach::{FLAGS, PLACEHOLDER},
    program::ServerSpec,
};

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
