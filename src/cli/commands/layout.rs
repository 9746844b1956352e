//! `layout`.

use clap::{Args, Subcommand};
use muxtap_snapshot::answers::{LayoutAnswer, LayoutList, LayoutRequest, LayoutRestoreRequest};

use super::{
    Caller, Outcome,
    output::{self, Table},
    path_of,
};

use crate::api::DoneAnswer;

const PATH: &str = "/v1/layouts";

/// Keep a window's layout by name, and give it to windows
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap layout save three -t work:1
  muxtap layout restore three -t other:2")]
pub(in crate::cli) struct LayoutArgs {
    #[command(subcommand)]
    word: LayoutCommand,
}

#[derive(Debug, Subcommand)]
enum LayoutCommand {
    /// Keep a window's layout
    Save {
        /// The layout's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The window (default: the one this runs in)
        #[arg(short = 't', value_name = "WINDOW")]
        target: Option<String>,
        /// Take the place of a layout of that name
        #[arg(long)]
        replace: bool,
    },
    /// List the layouts
    List,
    /// Give a window a layout; it has as many panes
    Restore {
        /// The layout's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The window (default: the one this runs in)
        #[arg(short = 't', value_name = "WINDOW")]
        target: Option<String>,
        /// Give it the size that was saved, too (default: it keeps its own)
        #[arg(long)]
        size: bool,
    },
    /// Remove a layout
    Remove {
        /// The layout's name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl LayoutArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let mut client = caller.client().await?;
        match self.word {
            LayoutCommand::Save { name, target, replace } => {
                let window = caller.target(target)?;
                let saved: LayoutAnswer = client.post(PATH, &LayoutRequest { name, window, replace }).await?;
                if caller.json {
                    output::print_json(&saved)?;
                } else {
                    output::print(format!("{}: {} panes\n", saved.name, saved.panes))?;
                }
            }
            LayoutCommand::List => {
                let list: LayoutList = client.get(PATH, &()).await?;
                if caller.json {
                    output::print_json(&list)?;
                    return Ok(0);
                }
                let mut table = Table::new(&["NAME", "PANES", "SIZE", "LAYOUT"]);
                for one in list.layouts {
                    let size = format!("{}x{}", one.width, one.height);
                    table.row(&[one.name, one.panes.to_string(), size, one.layout]);
                }
                output::print(table.render())?;
            }
            LayoutCommand::Restore { name, target, size } => {
                let request = LayoutRestoreRequest { window: caller.target(target)?, size };
                let path = format!("{}/restore", path_of("layouts", &name));
                let restored: LayoutAnswer = client.post(&path, &request).await?;
                if caller.json {
                    output::print_json(&restored)?;
                }
            }
            LayoutCommand::Remove { name } => {
                let done: DoneAnswer = client.delete(&path_of("layouts", &name)).await?;
                if caller.json {
                    output::print_json(&done)?;
                }
            }
        }
        Ok(0)
    }
}
