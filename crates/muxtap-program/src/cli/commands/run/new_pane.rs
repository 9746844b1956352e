//! `run --new-pane`, `run --new-window`: a command in a new pane, which closes afterwards.

use std::time::Instant;

use clap::Args;
use muxtap_base::nonce;
use muxtap_core::stream::colors;

use super::{DEFAULT_MS, ignore_closed_pipe, interruptible, interrupts, print_output};
use crate::{
    api::{
        CreatedAnswer, Cursor, Error, Gap, GapReason, NewWindowRequest, PredicateKind, ReadAnswer, ReadFormat,
        ReadRequest, Result, SplitRequest, WaitAnswer, WaitOutcome, WaitRequest,
    },
    cli::{
        EXIT_ERROR, EXIT_INTERRUPTED, EXIT_TIMEOUT,
        client::Client,
        commands::{Caller, Outcome, create::Spawn, output, path_of, variable},
    },
    protocol::ids::PaneId,
};

/// A new pane or window for the command.
#[derive(Debug, Args)]
pub(in crate::cli) struct Place {
    /// Run in a new pane beside the pane of -t (default: the caller's); the pane closes afterwards
    #[arg(long)]
    new_pane: bool,
    /// Run in a new background window of the session of -t (default: the caller's)
    #[arg(long, conflicts_with = "new_pane")]
    new_window: bool,
    /// Working directory of the new pane (default: the caller's)
    #[arg(short = 'c', value_name = "DIR")]
    cwd: Option<String>,
    /// Set an environment variable of the new pane; repeatable
    #[arg(short = 'e', value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Keep the new pane when the command has ended
    #[arg(long)]
    keep: bool,
}

/// The result of a command in a new pane, as `--json` prints it.
#[derive(serde::Serialize)]
struct Answer {
    pane: PaneId,
    output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_status: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_signal: Option<i32>,
    duration_ms: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    #[serde(skip)]
    gap: Option<Gap>,
    /// The command continues, after a timeout, or after an interrupt that left it running.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    running: bool,
}

impl Place {
    /// Checks that a new pane's options are used only with one. Returns whether a new pane is requested.
    pub(super) fn wanted(&self) -> Result<bool> {
        let wanted = self.new_pane || self.new_window;
        if !wanted && (self.cwd.is_some() || !self.env.is_empty() || self.keep) {
            return Err(Error::invalid(
                "-c, -e and --keep require --new-pane or --new-window: an existing shell has its own directory and \
                 variables",
            ));
        }
        Ok(wanted)
    }

    /// Creates the pane, waits for the command's end, prints its output. Returns its status.
    pub(super) async fn run(
        self,
        caller: &Caller,
        target: Option<String>,
        timeout_ms: Option<u64>,
        colors: bool,
        command: Vec<String>,
    ) -> Outcome {
        let begun = Instant::now();
        let mut client = caller.client().await?;
        // Ctrl-C during the pane's creation is meant for its command.
        let (mut interrupts, mut interrupted) = (interrupts()?, false);
        let CreatedAnswer { pane, cursor, .. } = self.make(caller, &mut client, target, command).await?;
        let wait = WaitRequest {
            panes: vec![pane.to_string()],
            exit: true,
            since: Some("start".to_owned()),
            timeout_ms: Some(timeout_ms.unwrap_or(DEFAULT_MS)),
            ..WaitRequest::default()
        };
        let end = until_end(&mut client, &wait, pane);
        let waited = interruptible(caller, (&pane.to_string(), None), &mut interrupts, &mut interrupted, end).await?;
        let waited = waited.transpose()?;
        if waited.as_ref().is_some_and(|answer| answer.outcome == WaitOutcome::Cancelled) {
            return Err(unknown_end(pane, Error::unavailable("the wait for its end was cancelled")).into());
        }
        // The first connection may be in the middle of a request.
        let (output, gap) = tokio::select! {
            printed = printed(caller, cursor, colors) => printed?,
            _ = interrupts.recv() => {
                output::note(&format!("output not read: use `muxtap read -t {pane} --since start`"));
                return Ok(EXIT_INTERRUPTED);
            }
        };
        let ended = waited.as_ref().filter(|answer| answer.outcome == WaitOutcome::Matched);
        let exit = ended.and_then(|answer| answer.predicates.iter().find(|report| report.kind == PredicateKind::Exit));
        let answer = Answer {
            pane,
            output,
            exit_status: exit.and_then(|exit| exit.exit_status),
            exit_signal: exit.and_then(|exit| exit.exit_signal),
            duration_ms: begun.elapsed().as_millis() as u64,
            truncated: gap.is_some(),
            gap,
            running: ended.is_none(),
        };
        answer.print(caller, colors)?;
        Ok(answer.status(interrupted))
    }

    async fn make(
        self,
        caller: &Caller,
        client: &mut Client,
        target: Option<String>,
        command: Vec<String>,
    ) -> Result<CreatedAnswer> {
        let target = caller.target(target)?;
        let spawn =
            Spawn { cwd: self.cwd, env: self.env, keep: self.keep, command }.request(true, caller.place(None))?;
        if self.new_window {
            let request = NewWindowRequest { session: target, spawn, ..NewWindowRequest::default() };
            client.post("/v1/windows", &request).await
        } else {
            let request = SplitRequest { pane: target, spawn, ..SplitRequest::default() };
            client.post("/v1/panes", &request).await
        }
    }
}

impl Answer {
    fn print(&self, caller: &Caller, colors: bool) -> Result<(), output::Failure> {
        if caller.json {
            return ignore_closed_pipe(output::print_json(self));
        }
        match self.gap {
            Some(Gap { reason: GapReason::Trimmed, .. }) => {
                output::note("the beginning of the output is missing: it was longer than the retained output");
            }
            Some(gap) => output::note_gap(self.pane, gap),
            None => {}
        }
        print_output(&self.output, colors)?;
        if self.running {
            output::note(&format!("the command continues in pane {}", self.pane));
        }
        Ok(())
    }

    fn status(&self, interrupted: bool) -> u8 {
        match output::exit_code(self.exit_status, self.exit_signal) {
            Some(status) => status,
            None if interrupted => EXIT_INTERRUPTED,
            None if self.running => EXIT_TIMEOUT,
            None => {
                output::note("the exit status is unknown");
                EXIT_ERROR
            }
        }
    }
}

/// Waits for the end of a pane's process.
async fn until_end(client: &mut Client, wait: &WaitRequest, pane: PaneId) -> Result<WaitAnswer> {
    let answer = client.wait(&nonce::hex64(), wait).await.unwrap_or_else(|lost| Err(lost.into()));
    answer.map_err(|error| unknown_end(pane, error))
}

/// Builds the error for a command that was started and whose end is unknown.
fn unknown_end(pane: PaneId, mut error: Error) -> Error {
    error.message = format!(
        "{}; unknown how the command in pane {pane} ended, or whether it continues: check with `muxtap \
         list-panes` and `muxtap read -t {pane} --since start`",
        error.message
    );
    error
}

/// Reads a pane's retained output since its beginning. Returns the output and its first gap. Starts
/// no daemon: a new one does not have the output.
async fn printed(caller: &Caller, beginning: Cursor, colors: bool) -> Result<(String, Option<Gap>)> {
    let pane = beginning.pane;
    let gone = || unknown_end(pane, Error::unavailable("the muxtap daemon has exited"));
    let mut client = caller.running().await?.ok_or_else(gone)?;
    let path = format!("{}/output", path_of("panes", &pane.to_string()));
    let mut request = ReadRequest { since: Some("now".to_owned()), ..ReadRequest::default() };
    let end: ReadAnswer = client.get_from_same_daemon(&path, &request).await.map_err(|_| gone())??;
    (request.since, request.until) = (Some(beginning.to_string()), Some(end.cursor.to_string()));
    let mut whole = async |format: ReadFormat| -> Result<(String, Option<Gap>)> {
        let (mut text, mut gap) = (String::new(), None);
        let mut request = ReadRequest { format, ..request.clone() };
        loop {
            let answer: ReadAnswer = client.get_from_same_daemon(&path, &request).await.map_err(|_| gone())??;
            gap = gap.or(answer.gap);
            text.push_str(answer.text.as_deref().unwrap_or_default());
            if !answer.more {
                return Ok((text, gap));
            }
            request.since = Some(answer.cursor.to_string());
        }
    };
    let (text, gap) = whole(ReadFormat::Text).await?;
    let colored = if colors { colors::colored(whole(ReadFormat::Ansi).await?.0.as_bytes(), &text) } else { None };
    Ok((colored.unwrap_or(text), gap))
}
