//! `result`: how a wait in the background ended.

use std::time::{Duration, Instant};

use clap::{Args, builder::NonEmptyStringValueParser};

use super::{duration, print, status};
use crate::{
    api::{Result, WaitAnswer, WaitOutcome},
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
  muxtap result $id --cancel")]
pub(in crate::cli) struct WaitResult {
    /// The id that `wait-for --background` printed
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: String,
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
        if self.cancel {
            let path = format!("/v1/waits/{}", url::encode(&self.id));
            let answer: WaitAnswer = caller.client().await?.delete(&path).await?;
            print(&answer, caller.json)?;
            return Ok(0);
        }
        let answer = self.ended(caller).await?;
        if answer.outcome == WaitOutcome::Pending && !caller.json {
            output::note(&format!("wait {} has not ended", self.id));
            return Ok(EXIT_TIMEOUT);
        }
        print(&answer, caller.json)?;
        Ok(status(&answer, self.propagate))
    }

    /// Returns the answer of the wait; `pending`: it has not ended in time.
    async fn ended(&self, caller: &Caller) -> Result<WaitAnswer> {
        let begun = Instant::now();
        let path = format!("/v1/waits/{}", url::encode(&self.id));
        let mut client = caller.client().await?;
        loop {
            let left = self.timeout.map(|timeout| Duration::from_millis(timeout).saturating_sub(begun.elapsed()));
            let poll = left.unwrap_or(POLL).min(POLL);
            let answer: WaitAnswer = client.get(&path, &[("timeout_ms", poll.as_millis().to_string())]).await?;
            if answer.outcome != WaitOutcome::Pending || left.is_some_and(|left| left <= poll) {
                return Ok(answer);
            }
        }
    }
}
