//! The environment of a process that follows tmux servers, seen by the process: the report of
//! `muxtap doctor`.

use std::{env, path::Path, sync::Arc};

use futures_util::future::join_all;
use muxtap_api::{EnvironmentAnswer, Result, ServerProgram};
use muxtap_tmux::{
    CoverageMode, Floods, LinkState, OwnProgram, Program, ServerSpec, SocketFile, is_absent, same_socket,
};

use super::{Engine, Host, handles::socket_dir};

/// Returns this process's view of its environment. Of the servers, only the one on `socket` is
/// examined.
pub async fn environment(program: &Program, socket: Option<&Path>) -> EnvironmentAnswer {
    let text = |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    EnvironmentAnswer {
        path: text("PATH"),
        tmux_tmpdir: text("TMUX_TMPDIR").filter(|dir| !dir.is_empty()),
        socket_dir: socket_dir().ok().map(|dir| dir.display().to_string()),
        program: program.examine().await,
        files: Vec::new(),
        servers: match socket {
            Some(socket) => examine(program, socket).await.into_iter().collect(),
            None => Vec::new(),
        },
    }
}

async fn examine(program: &Program, socket: &Path) -> Option<ServerProgram> {
    let spec = ServerSpec {
        program: program.clone(),
        socket: socket.to_owned(),
        coverage: CoverageMode::default(),
        floods: Floods::default(),
        file: SocketFile::default(),
        own: OwnProgram::default(),
    };
    spec.examine().await
}

impl Engine {
    /// Returns this process's view of its environment: the tmux program, the followed servers, and
    /// the server that `named` gives by path or name. No further server is followed for it.
    pub async fn environment(&self, named: Option<&str>) -> Result<EnvironmentAnswer> {
        let named = named.map(|named| self.socket_named(named)).transpose()?;
        let hosts: Vec<Arc<Host>> = self.hosts().values().cloned().collect();
        let other = named.filter(|socket| !hosts.iter().any(|host| same_socket(host.socket(), socket)));
        let looks = join_all(hosts.iter().map(|host| examine_followed(host)));
        let (mut answer, followed) = tokio::join!(environment(&self.shared.options.program, other.as_deref()), looks);
        answer.servers.extend(followed.into_iter().flatten());
        answer.servers.sort_by(|one, other| one.socket.cmp(&other.socket));
        Ok(answer)
    }
}

/// Returns the program that connects to a followed or requested server; `None` if no server runs.
async fn examine_followed(host: &Host) -> Option<ServerProgram> {
    let spec = host.server().spec();
    match host.server().state() {
        LinkState::Connected(identity) => {
            let noticed = spec.noticed().await;
            let found = spec.spoken_to_by(Some(identity.pid));
            Some(ServerProgram { version: Some(identity.version.to_string()), noticed, ..found })
        }
        LinkState::Connecting => spec.examine().await,
        LinkState::Down { error, ended, .. } => {
            let mut found = spec.examine().await?;
            // The server accepts plain clients, but no control client.
            let refused = !ended && !is_absent(&error);
            found.error = found.error.or(refused.then_some(error.message));
            Some(found)
        }
    }
}
