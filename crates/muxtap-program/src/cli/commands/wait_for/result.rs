//! `result`: how a wait in the background ended.

use std::time::{Duration, Instant};

use clap::{Args, builder::NonEmptyStringValueParser};
use muxtap_base::{clock::now_ms, plain};
use serde_json::json;

use super::{duration, outcome, print, status};
use crate::{
    api::{Result, WaitAnswer, WaitList, WaitListQuery, WaitOutcome},
    cli::{
        EXIT_TIMEOUT,
        commands::{Caller, Outcome, output},
        url,
    },
};

/// The longest time that one request waits for the end.
const POLL: Duration = Duration::from_secs(300);

/// Print how a wait in the background ended
///
/// Waits for the end of a wait that `wait-for --background` has begun, and prints what `wait-for`
/// would have printed, with its exit status. A result is kept for 24 hours, also over a restart of
/// the daemon. If the daemon was killed before the wait ended, the outcome is unknown, and the
/// error says so.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  id=$(muxtap wait-for -t build -p 'PASS|FAIL' --background)
  muxtap result $id                              wait for the end of it
  muxtap result $id -T 0                         ask whether it has ended: status 124 if not
  muxtap result $id --cancel
  muxtap result --list                           which waits are open, and which results are kept")]
pub(in crate::cli) struct WaitResult {
    /// The id that `wait-for --background` printed
    #[arg(value_name = "ID", required_unless_present = "list", value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// List the open waits, and the ended ones whose results are kept
    #[arg(long, conflicts_with_all = ["id", "timeout", "propagate", "cancel"])]
    list: bool,
    /// Stop waiting for the end after this long, with exit status 124: seconds, or `90s`, `10m`
    /// (default: the wait's own timeout)
    #[arg(short = 'T', long, value_name = "TIME", value_parser = duration)]
    timeout: Option<u64>,
    /// If the end of a process or command was waited for, return its status (128+N after signal N)
    #[arg(long)]
    propagate: bool,
    /// Cancel the wait, unless it has ended, and print how it ended
    #[arg(long, conflicts_with_all = ["timeout", "propagate"])]
    cancel: bool,
}

impl WaitResult {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let Some(id) = &self.id else { return list(caller).await };
        let path = format!("/v1/waits/{}", url::encode(id));
        if self.cancel {
            let answer: WaitAnswer = caller.client().await?.delete(&path).await?;
            print(&answer, caller.json)?;
            return Ok(0);
        }
        let answer = self.ended(caller, &path).await?;
        if answer.outcome == WaitOutcome::Pending && !caller.json {
            output::note(&format!("wait {id} has not ended"));
            return Ok(EXIT_TIMEOUT);
        }
        print(&answer, caller.json)?;
        Ok(status(&answer, self.propagate))
    }

    /// Returns the answer of the wait; `pending`: it has not ended in time.
    async fn ended(&self, caller: &Caller, path: &str) -> Result<WaitAnswer> {
        let begun = Instant::now();
        let mut client = caller.client().await?;
        loop {
            let left = self.timeout.map(|timeout| Duration::from_millis(timeout).saturating_sub(begun.elapsed()));
            let poll = left.unwrap_or(POLL).min(POLL);
            let answer: WaitAnswer = client.get(path, &json!({ "timeout_ms": poll.as_millis() as u64 })).await?;
            if answer.outcome != WaitOutcome::Pending || left.is_some_and(|left| left <= poll) {
                return Ok(answer);
            }
        }
    }
}

/// Prints a row for each wait: the open ones, then the ended ones, latest first.
async fn list(caller: &Caller) -> Outcome {
    let listed: WaitList = caller.client().await?.get("/v1/waits", &WaitListQuery { kept: true }).await?;
    if caller.json {
        output::print_json(&listed)?;
        return Ok(0);
    }
    let mut table = output::Table::new(&["ID", "STATE", "PANES", "AGE", "WHAT"]);
    let age = |at_ms: u64| output::short_duration(now_ms().saturating_sub(at_ms) / 1000);
    for wait in &listed.waits {
        let panes: Vec<String> = wait.panes.iter().map(ToString::to_string).collect();
        let conditions: Vec<String> = wait.conditions.iter().map(ToString::to_string).collect();
        let what = plain::name(&conditions.join(", ")).into_owned();
        table.row(&[wait.id.clone(), "open".to_owned(), panes.join(","), age(wait.since_ms), what]);
    }
    for wait in &listed.kept {
        let state = wait.outcome.map_or("unknown", outcome).to_owned();
        let pane = wait.pane.map(|pane| pane.to_string()).unwrap_or_default();
        let line = plain::name(wait.line.as_deref().unwrap_or_default()).into_owned();
        table.row(&[wait.id.clone(), state, pane, age(wait.ended_ms), line]);
    }
    output::print(table.render())?;
    Ok(0)
}
