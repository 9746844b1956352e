//! `completions`.

use clap::Args;
use clap_complete::Shell;

use super::{Outcome, output};
use crate::cli::complete;

/// Print shell completions
///
/// Completions for bash, zsh and fish offer commands, options, and existing sessions, windows and
/// panes: each TAB queries the daemon, if one is running. elvish and PowerShell complete only
/// commands and options.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  eval \"$(muxtap completions bash)\"            in this shell, or in ~/.bashrc; zsh the same
  mkdir -p ~/.local/share/bash-completion/completions
  muxtap completions bash > ~/.local/share/bash-completion/completions/muxtap
  muxtap completions zsh > \"${fpath[1]}/_muxtap\"
  muxtap completions fish > ~/.config/fish/completions/muxtap.fish")]
pub(in crate::cli) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints a script that queries the program, else a static one from the argument tree.
    pub(in crate::cli) fn run(self, mut tree: clap::Command) -> Outcome {
        if let Some(script) = complete::script(self.shell) {
            output::print_raw(script)?;
            return Ok(0);
        }
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut tree, "muxtap", &mut script);
        output::print_raw(script)?;
        Ok(0)
    }
}
