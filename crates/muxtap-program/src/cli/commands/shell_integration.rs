//! `shell-integration`.

use clap::{Args, ValueEnum};

use muxtap_engine::shell_integration::ShellKind;

use super::{Outcome, output};

/// Print lines that make a shell mark its commands
///
/// In tmux, the shell then prints where a prompt and a command's output begin, the command line, its
/// exit status and the directory (OSC 133 and OSC 7). dash, busybox ash, mksh and ksh93 mark only
/// prompts and the directory, no commands. Outside of tmux nothing changes. This command only
/// prints: it changes no file and no running shell.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  eval \"$(muxtap shell-integration bash)\"      at the end of ~/.bashrc
  eval \"$(muxtap shell-integration zsh)\"       at the end of ~/.zshrc
  muxtap shell-integration fish | source       in ~/.config/fish/config.fish
  eval \"$(muxtap shell-integration sh)\"        in the file that $ENV names: dash, busybox ash, mksh, ksh
  mkdir ($nu.data-dir | path join vendor autoload)                                              once, in nushell
  muxtap shell-integration nu | save -f ($nu.data-dir | path join vendor autoload muxtap.nu)    once, in nushell")]
pub(in crate::cli) struct ShellIntegration {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// A shell that has an integration.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Sh,
    Nu,
}

impl ShellIntegration {
    pub(in crate::cli) fn run(self) -> Outcome {
        output::print_raw(self.shell.script())?;
        Ok(0)
    }
}

impl Shell {
    fn script(self) -> &'static str {
        let kind = match self {
            Self::Bash => ShellKind::Bash,
            Self::Zsh => ShellKind::Zsh,
            Self::Fish => ShellKind::Fish,
            Self::Sh => ShellKind::Posix,
            Self::Nu => ShellKind::Nu,
        };
        kind.script()
    }
}
