//! `stdio`: relays stdin and stdout to the daemon, for the muxtap of another host.

use clap::Args;

use super::{Caller, Outcome};
use crate::{
    api::Error,
    cli::relay::{Ended, Upgraded},
    http::peer::UPGRADE,
    tmux::PEER_GREETING,
};

/// Serve the muxtap of another host on stdin and stdout
///
/// The muxtap of another host runs it here: `ssh HOST muxtap stdio`. It carries the daemon's own HTTP, many
/// requests at once, so that what is followed here outlives that link. Whoever can run it is this user, and
/// may all that the daemon allows.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap --via 'ssh me@box' list-panes      runs it on box, where muxtap is installed there
  ssh me@box muxtap stdio </dev/null        does it answer?")]
pub(in crate::cli) struct Stdio {}

impl Stdio {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let daemon = Upgraded::open(caller.stream()?, "/v1/peer", UPGRADE).await?;
        let greeting = format!("{PEER_GREETING}{}\n", daemon.version);
        match daemon.relay(b"", greeting.as_bytes()).await? {
            Ended::Client => Ok(0),
            Ended::Daemon => Err(Error::unavailable("the daemon has ended").into()),
        }
    }
}
