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

/// Save and restore window layouts
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
    /// Save a window's layout
    Save {
        /// The layout's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The window (default: the caller's)
        #[arg(short = 't', value_name = "WINDOW")]
        target: Option<String>,
        /// Replace a layout of that name
        #[arg(long)]
        replace: bool,
    },
    /// List layouts
    List,
    /// Apply a layout to a window with as many panes
    Restore {
        /// The layout's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The window (default: the caller's)
        #[arg(short = 't', value_name = "WINDOW")]
        target: Option<String>,
        /// Also restore the saved size (default: the window keeps its own)
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
