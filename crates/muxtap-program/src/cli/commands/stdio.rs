//! `stdio`: hands stdin and stdout over to the daemon, for the muxtap of another host. Relays them if
//! they are neither pipes nor sockets.

use std::os::fd::AsFd as _;

use clap::Args;
use muxtap_net::handed;
use muxtap_tmux::PEER_GREETING;
use rustix::fs::OFlags;

use super::{Caller, Outcome, output};

use crate::{
    api::{
        Error,
        wire::{self, HAND_OVER, PEER_PROTOCOL},
    },
    cli::{
        client::DAEMON_ENDED,
        relay::{Ended, Upgraded},
    },
};

/// Serve another host's muxtap over stdin and stdout
///
/// The other host's muxtap runs this command: `ssh HOST muxtap stdio`. stdin and stdout carry
/// the daemon's own HTTP, many requests at once; the daemon's memory outlives the link. A caller
/// acts as this user, with all that the daemon allows.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap --via 'ssh me@box' list-panes      runs `muxtap stdio` on box if muxtap is installed there
  ssh me@box muxtap stdio </dev/null        test whether it works")]
pub(in crate::cli) struct Stdio {}

impl Stdio {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let stdio = handed::own(std::io::stdin().as_fd(), OFlags::RDONLY)
            .zip(handed::own(std::io::stdout().as_fd(), OFlags::WRONLY));
        let offer = stdio.is_some().then_some((wire::PEER, HAND_OVER));
        let daemon = Upgraded::open(caller.stream()?, "/v1/peer", PEER_PROTOCOL, offer).await?;
        // Its capabilities follow its version; the local environment is irrelevant to the other host.
        let (taken, can): (Vec<_>, Vec<_>) = daemon.header(wire::PEER).partition(|can| *can == HAND_OVER);
        let words: Vec<_> = daemon.header(wire::VERSION).chain(can).collect();
        let greeting = format!("{PEER_GREETING}{}\n", words.join(" "));
        // An older daemon does not accept them.
        let stdio = stdio.filter(|_| !taken.is_empty());
        let ended = match stdio {
            Some(stdio) => {
                output::print_raw(greeting)?;
                daemon.hand_over(stdio).await?
            }
            None => daemon.relay(b"", greeting.as_bytes()).await?,
        };
        match ended {
            Ended::Client => Ok(0),
            Ended::Daemon => Err(Error::unavailable(DAEMON_ENDED).into()),
        }
    }
}
