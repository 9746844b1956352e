//! `group`.

use clap::{Args, Subcommand};
use muxtap_snapshot::answers::{GroupAnswer, GroupList, GroupRequest};

use super::{
    Caller, Outcome,
    output::{self, Table},
    path_of,
};

use crate::api::DoneAnswer;

/// Name groups of panes that get the same input
///
/// `send-keys -t %NAME` types into all panes of the group, or reports those that did not get the
/// input. A group belongs to its tmux server and ends with the server.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap group set web %3 %4 'front-*'
  muxtap send-keys -t %web 'git pull' Enter
  muxtap group set web %3 %4 --synchronize       also send a person's typing to both")]
pub(in crate::cli) struct GroupArgs {
    #[command(subcommand)]
    word: GroupCommand,
}

#[derive(Debug, Subcommand)]
enum GroupCommand {
    /// Set the panes of a group, in place of earlier ones
    Set {
        /// The group's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The group's panes; `*` in a name selects all current matches
        #[arg(value_name = "TARGET", required = true)]
        targets: Vec<String>,
        /// Set tmux's synchronize-panes for these panes
        #[arg(long)]
        synchronize: bool,
    },
    /// List groups
    List,
    /// Remove a group; its panes stay
    Remove {
        /// The group's name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl GroupArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let mut client = caller.client().await?;
        match self.word {
            GroupCommand::Set { name, targets, synchronize } => {
                let path = path_of("groups", &name);
                let set: GroupAnswer = client.put(&path, &GroupRequest { targets, synchronize }).await?;
                if caller.json {
                    output::print_json(&set)?;
                } else {
                    output::print(format!("{}: {}\n", target(&set), ids(&set, &set.panes)))?;
                }
            }
            GroupCommand::List => {
                let list: GroupList = client.get("/v1/groups", &()).await?;
                if caller.json {
                    output::print_json(&list)?;
                    return Ok(0);
                }
                let mut table = Table::new(&["NAME", "PANES", "GONE", "SYNCHRONIZED"]);
                for one in list.groups {
                    let synchronized = if one.synchronize { "yes" } else { "no" };
                    let [panes, gone] = [&one.panes, &one.gone].map(|panes| ids(&one, panes));
                    table.row(&[target(&one), panes, gone, synchronized.to_owned()]);
                }
                output::print(table.render())?;
            }
            GroupCommand::Remove { name } => {
                let done: DoneAnswer = client.delete(&path_of("groups", &name)).await?;
                if caller.json {
                    output::print_json(&done)?;
                }
            }
        }
        Ok(0)
    }
}

/// Returns the host in front of what a group names.
fn place(group: &GroupAnswer) -> String {
    group.host.as_ref().map(|host| format!("{host}/")).unwrap_or_default()
}

/// Returns the target that means all panes of a group.
fn target(group: &GroupAnswer) -> String {
    format!("{}%{}", place(group), group.name)
}

fn ids(group: &GroupAnswer, panes: &[crate::protocol::ids::PaneId]) -> String {
    let place = place(group);
    panes.iter().map(|pane| format!("{place}{pane}")).collect::<Vec<_>>().join(" ")
}
