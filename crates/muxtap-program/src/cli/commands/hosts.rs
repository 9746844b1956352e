//! `hosts`.

use clap::{Args, Subcommand};

use super::{
    Caller, Outcome,
    output::{self, Table},
    path_of,
};

use crate::api::{DoneAnswer, HostInfo, HostList, HostState, HostsQuery, PeerState};

/// List remote hosts; forget one
///
/// Hosts are those of the configuration and those that `--via` added. They are known until the daemon
/// exits, and lists show them.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap hosts
  muxtap hosts --look                            try those that are not connected
  muxtap hosts forget box                        after a typo in --via")]
pub(in crate::cli) struct Hosts {
    /// Try hosts that are not connected now; takes up to 20 s
    #[arg(long)]
    look: bool,
    #[command(subcommand)]
    word: Option<HostsCommand>,
}

#[derive(Debug, Subcommand)]
enum HostsCommand {
    /// Forget a host that --via added; its tmux servers stay as they are
    Forget {
        /// The host's name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl Hosts {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let mut client = caller.client().await?;
        if let Some(HostsCommand::Forget { name }) = self.word {
            let done: DoneAnswer = client.delete(&path_of("hosts", &name)).await?;
            if caller.json {
                output::print_json(&done)?;
            }
            return Ok(0);
        }
        let list: HostList = client.get("/v1/hosts", &HostsQuery { look: self.look }).await?;
        if caller.json {
            output::print_json(&list)?;
            return Ok(0);
        }
        let mut table = Table::new(&["NAME", "STATE", "MUXTAP", "FROM", "COMMAND OR LABELS", "ERROR"]);
        for host in list.hosts {
            let muxtap = muxtap_of(&host);
            let from = match &host.fleet {
                Some(_) => "fleet",
                None if host.configured => "config.toml",
                None => "--via",
            };
            let reached_by = match &host.fleet {
                Some(fleet) => fleet.labels.join(" "),
                None => host.command,
            };
            let state = state(host.state).to_owned();
            table.row(&[host.name, state, muxtap, from.to_owned(), reached_by, host.error.unwrap_or_default()]);
        }
        output::print(table.render())?;
        Ok(0)
    }
}

fn state(state: HostState) -> &'static str {
    match state {
        HostState::Unasked => "not tried",
        HostState::Connecting => "connecting",
        HostState::Connected => "connected",
        HostState::Down => "unreachable",
    }
}

/// Returns the version of the host's muxtap that is used, if there is one.
fn muxtap_of(host: &HostInfo) -> String {
    if let Some(fleet) = &host.fleet {
        return fleet.version.clone();
    }
    let used = host.peer.as_ref().filter(|peer| peer.state == PeerState::Connected);
    used.and_then(|peer| peer.version.clone()).unwrap_or_default()
}
