//! Starting a tmux server, with a hub as its first session.

use std::{collections::BTreeMap, os::unix::fs::DirBuilderExt as _, path::PathBuf};

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

/// Makes the folder of tmux's default sockets (`tmux-UID`), as tmux does where it is told a name and not a path. Whether that worked
/// shows when the server is started.
pub fn make_folder(spec: &ServerSpec) {
    let folder = spec.socket.parent().filter(|_| spec.is_local());
    let name = format!("tmux-{}", rustix::process::getuid().as_raw());
    if let Some(folder) = folder.filter(|folder| folder.file_name().is_some_and(|last| *last == *name)) {
        let _ = std::fs::DirBuilder::new().mode(0o700).create(folder);
    }
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
