//! `capture-pane`.

use clap::Args;

use super::{Caller, Outcome, output, path_named, url};
use crate::{
    api::{CaptureAnswer, CaptureRequest, Error},
    cli::{
        EXIT_ERROR,
        one_request::{Ask, OneRequest},
        quick::Words,
    },
};

/// Print a pane's screen
///
/// Prints the output of `tmux capture-pane -p` byte for byte, except for characters that control a
/// terminal (C1, bidirectional marks), which only -e keeps; -p is implied. After the command -S is
/// the first line, as in tmux; for the server's socket use -S before the command, or --socket-path.
// Reasons: each is a flag of the command line, and so a switch by nature.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap capture-pane -t work
  muxtap capture-pane -t work:1 -S - -J          with the whole history, wrapped lines joined")]
pub(in crate::cli) struct CapturePane {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// First line: 0 is the first visible line, negative numbers count into the history, `-` is the
    /// start of the history
    #[arg(short = 'S', value_name = "START", allow_hyphen_values = true)]
    pub(in crate::cli) start: Option<String>,
    /// Last line, counted in the same way; `-` is the last visible line
    #[arg(short = 'E', value_name = "END", allow_hyphen_values = true)]
    pub(in crate::cli) end: Option<String>,
    /// Join wrapped lines and keep trailing spaces
    #[arg(short = 'J')]
    join: bool,
    /// Keep colors and attributes, as escape sequences
    #[arg(short = 'e')]
    escapes: bool,
    /// Keep trailing spaces
    #[arg(short = 'N')]
    trailing: bool,
    /// Compare with tmux, and report the first line that differs from muxtap's memory (exit status
    /// 1)
    #[arg(long)]
    verify: bool,
    /// Print to stdout; the default, as in tmux
    #[arg(short = 'p')]
    print: bool,
}

impl CapturePane {
    /// Parses the words of a plain command line.
    pub(in crate::cli) fn plain(words: &mut Words) -> Self {
        Self {
            target: words.value('t'),
            start: words.value('S'),
            end: words.value('E'),
            join: words.has('J'),
            escapes: words.has('e'),
            trailing: words.has('N'),
            verify: words.has_long("verify"),
            print: words.has('p'),
        }
    }
}

impl OneRequest for CapturePane {
    type Answer = CaptureAnswer;

    fn ask(&self, caller: &Caller) -> Result<Ask, Error> {
        let target = caller.target(self.target.clone())?;
        let request = CaptureRequest {
            start: self.start.clone(),
            end: self.end.clone(),
            join: self.join,
            escapes: self.escapes,
            trailing: self.trailing,
            verify: self.verify,
        };
        Ok(Ask::get(url::with_query(&format!("{}/capture", path_named("panes", &target)?), &request)))
    }

    fn print(&self, caller: &Caller, answer: &CaptureAnswer) -> Outcome {
        if caller.json {
            output::print_json(answer)?;
        } else if self.escapes {
            output::print_raw(&answer.text)?;
        } else {
            output::print(&answer.text)?;
        }
        let Some(verified) = answer.verified.as_ref().filter(|verified| !verified.same) else { return Ok(0) };
        if !caller.json {
            output::note(&format!(
                "line {} differs: memory has {:?}, tmux has {:?}",
                verified.line.unwrap_or_default(),
                verified.model.as_deref().unwrap_or_default(),
                verified.tmux.as_deref().unwrap_or_default()
            ));
        }
        Ok(EXIT_ERROR)
    }
}
