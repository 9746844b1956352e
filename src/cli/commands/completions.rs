//! `completions`.

use clap::Args;
use clap_complete::Shell;

use super::{Outcome, output};

/// Print a shell's completions
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap completions bash > ~/.local/share/bash-completion/completions/muxtap
  muxtap completions zsh > \"${fpath[1]}/_muxtap\"
  muxtap completions fish > ~/.config/fish/completions/muxtap.fish")]
pub(in crate::cli) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints them for this tree of commands.
    pub(in crate::cli) fn run(self, mut tree: clap::Command) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut tree, "muxtap", &mut script);
        output::print_raw(script)?;
        Ok(0)
    }
}
