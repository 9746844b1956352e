//! `search`.

use clap::Args;

use super::{Caller, Outcome, output};

use crate::{api::ToolCallAnswer, cli::EXIT_ERROR};

/// Search the retained output of panes
///
/// Prints each matching line as grep does: pane, number of the line among the retained ones, line. Of
/// many matches it prints the last ones of each pane.
///
/// Exit status: 0 a line matches; 1 no line matches.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap search 'error|FAILED'                   in all panes
  muxtap search -i -C 2 error -t 'work:*'        without regard to case, with two lines around")]
pub(in crate::cli) struct Search {
    /// The regex (Rust's syntax)
    #[arg(value_name = "REGEX", allow_hyphen_values = true)]
    pattern: String,
    /// Search only these panes; names may contain `*`; repeatable (default: all)
    #[arg(short = 't', value_name = "TARGET")]
    targets: Vec<String>,
    /// Ignore case
    #[arg(short = 'i', long)]
    ignore_case: bool,
    /// Print this many lines before and after each match
    #[arg(short = 'C', long, value_name = "LINES", default_value_t = 0,
          value_parser = clap::value_parser!(u64).range(..=20))]
    context: u64,
    /// Print at most this many matching lines, the last ones
    #[arg(short = 'm', long, value_name = "LINES", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    max_lines: u64,
}

impl Search {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let pattern = if self.ignore_case { format!("(?i){}", self.pattern) } else { self.pattern };
        let arguments = serde_json::json!({
            "pattern": pattern,
            "targets": self.targets,
            "context": self.context,
            "max_lines": self.max_lines,
            "server": caller.server,
        });
        let found: ToolCallAnswer = caller.client().await?.post("/v1/tools/search", &arguments).await?;
        let number = |field: &str| found.answer.get(field).and_then(serde_json::Value::as_u64).unwrap_or_default();
        let (matches, shown) = (number("matches"), found.answer.get("lines").and_then(|lines| lines.as_array()));
        if caller.json {
            output::print_json(&found.answer)?;
        } else {
            // The first line has the counts, the last one a page: arguments of the tool.
            let lines = found.text.lines().skip(1).filter(|line| !line.starts_with("[page: "));
            output::print(lines.flat_map(|line| [line, "\n"]).collect::<String>())?;
            let shown = shown.map_or(0, Vec::len) as u64;
            if shown < matches {
                output::note(&format!("{shown} of {matches} matching lines; -m prints more"));
            }
        }
        Ok(if matches > 0 { 0 } else { EXIT_ERROR })
    }
}
