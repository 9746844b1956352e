//! Control clients on other hosts that a killed daemon has left behind.
//!
//! A process that a container's runtime has started can outlive the program that requested it. Then
//! its tmux client stays attached: it keeps a hub, and the server keeps its output. So clients on
//! other hosts identify themselves by their `TERM`, which a control client has no other use for,
//! and the next daemon of the same socket detaches the clients that its predecessors have left.

use std::{os::unix::fs::MetadataExt as _, path::Path, sync::Arc, time::Duration};

use muxtap_base::nonce;
use muxtap_core::protocol::command::Command;
use sha2::{Digest as _, Sha256};

use super::{
    connection::{Connection, Request},
    coverage::Inner,
};

/// The file in which Linux keeps a number that changes with each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The maximum number of queries for whether a detached client has left, and the pause between
/// them. tmux reports that to clients of other sessions only, and not to all of those.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The name of one daemon's control clients on other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientName {
    /// The part of the name that daemons of one socket share, from one boot to the next.
    daemon: Arc<str>,
    /// The whole name.
    whole: Arc<str>,
}

impl ClientName {
    /// Builds the name for the daemon on this socket, of which only one exists at a time. `None`: a
    /// restart of this machine could not be detected, so other daemons could be meant.
    pub fn of_daemon(socket: &Path) -> Option<Self> {
        let boot = std::fs::read(BOOT_ID).ok()?;
        // Containers of one machine share its boot, and may have sockets of one name.
        let place = std::fs::metadata(socket.parent()?).ok()?;
        let mut hash = Sha256::new();
        hash.update(&boot);
        hash.update(place.dev().to_le_bytes());
        hash.update(place.ino().to_le_bytes());
        hash.update(rustix::process::getuid().as_raw().to_le_bytes());
        hash.update(socket.as_os_str().as_encoded_bytes());
        let number = hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        let daemon = format!("muxtap-{number:016x}-");
        let whole = format!("{daemon}{}", nonce::hex32());
        Some(Self { daemon: daemon.into(), whole: whole.into() })
    }

    /// Returns the name as the `TERM` of a client.
    pub(super) fn term(&self) -> &str {
        &self.whole
    }

    /// Returns whether a client with this `TERM` belongs to an earlier daemon of this socket.
    fn left(&self, term: &str) -> bool {
        term.starts_with(&*self.daemon) && term != &*self.whole
    }
}

impl Inner {
    /// Detaches the clients that earlier daemons of this socket have left on the server, one at a
    /// time: several that leave at once can crash a server (N26).
    pub(super) async fn sweep(&self, connection: &Connection) {
        let Some(name) = self.spec.program.name.as_ref().filter(|_| !self.spec.is_local()) else { return };
        for client in left_by(connection, name).await {
            tracing::info!("detaching {}: left behind by a daemon that was killed", client.escape_debug());
            let detach = Command::new("detach-client").opt("-t", &client);
            if !matches!(connection.ask(Request::Framed(vec![detach])).await, Ok(Ok(_))) {
                return;
            }
            let mut looks = 0;
            while left_by(connection, name).await.contains(&client) {
                looks += 1;
                if looks == LOOKS {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Returns the names of the clients that earlier daemons have left.
async fn left_by(connection: &Connection, name: &ClientName) -> Vec<String> {
    let list = Command::new("list-clients").opt("-F", "#{client_control_mode} #{client_termname} #{client_name}");
    let Ok(Ok(answer)) = connection.ask(Request::Framed(vec![list])).await else { return Vec::new() };
    let text = answer.first().map(|body| String::from_utf8_lossy(body).into_owned()).unwrap_or_default();
    let clients = text.lines().filter_map(|line| {
        let (term, client) = line.strip_prefix("1 ")?.split_once(' ')?;
        name.left(term).then(|| client.to_owned())
    });
    clients.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_daemon_knows_what_its_predecessors_left_and_nothing_else() {
        let name = |socket: &str| ClientName::of_daemon(Path::new(socket)).unwrap();
        let (mine, before, other) = (name("/tmp/a"), name("/tmp/a"), name("/tmp/b"));
        assert!(mine.left(before.term()));
        assert!(!mine.left(mine.term()) && !mine.left(other.term()) && !mine.left("screen-256color"));
    }
}
