//! `read`.

use std::io::{self, IsTerminal as _};

use base64::Engine as _;
use clap::{Args, ValueEnum as _};

use super::{Caller, Outcome, command_list::note_incomplete, duration, output, path_named, since, url};
use crate::{
    api::{Cursor, Error, ReadAnswer, ReadFormat, ReadRequest, Result},
    cli::{
        client::Client,
        exchange::exchange,
        one_request::{Ask, OneRequest},
        output::Failure,
        quick::Words,
    },
};

/// The format of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Escapes removed, carriage returns and backspaces applied.
    #[default]
    Text,
    /// Text with its escape sequences.
    Ansi,
    /// The bytes as they came (base64 in JSON).
    Raw,
}

impl From<Format> for ReadFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Text => Self::Text,
            Format::Ansi => Self::Ansi,
            Format::Raw => Self::Raw,
        }
    }
}

/// The longest long poll, in milliseconds.
const MAX_WAIT_MS: u64 = 300_000;

/// Print a pane's output since a point
///
/// With --json the response has a cursor, where the next read continues exactly: no byte twice, and
/// the response's gap says why bytes are missing. Without --json prints all output, and notes a gap
/// on stderr.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap read -t work                            since the last send-keys
  muxtap read -t work --since start              all retained output
  muxtap read -t work --command last-failed      what the last failing command printed
  muxtap read -t work --since \"$cursor\" --wait 10 --json")]
pub(in crate::cli) struct Read {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// Begin here: a cursor from an earlier response, `input` (after muxtap's last input, or since
    /// muxtap created the pane; else all retained output), `start` (all retained output), `now`,
    /// `lines:N`, or a time ago (`90s`, `10m`)
    #[arg(long, value_name = "CURSOR|input|start|now|TIME", default_value = "input", value_parser = since)]
    since: String,
    /// End here: a cursor, or a time ago; not with --wait
    #[arg(long, value_name = "CURSOR|TIME", conflicts_with = "wait", value_parser = since)]
    until: Option<String>,
    /// Print only the output of this command: its number in `muxtap commands`, -1 (the last one; in
    /// the caller's own pane that is `muxtap read` itself, -2 the one before it) or `last-failed`
    #[arg(
        long,
        value_name = "NUMBER|last-failed",
        allow_negative_numbers = true,
        conflicts_with_all = ["until", "wait"]
    )]
    command: Option<String>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Wait this long if there is no new output (at most 300s)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    wait: Option<u64>,
    /// Print at most this many bytes, units K and M; the rest is left for the next read (default:
    /// 256K with --json, else no limit)
    #[arg(long, value_name = "BYTES", value_parser = crate::config::bytes)]
    max_bytes: Option<u64>,
}

/// Print a pane's current cursor
///
/// `read --since`, `wait-for --since` and `tail --since` continue there: with all later output.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  here=$(muxtap cursor -t work); make; muxtap read -t work --since \"$here\"")]
pub(in crate::cli) struct CursorOf {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
}

impl CursorOf {
    /// Parses the words of a plain command line.
    pub(in crate::cli) fn plain(words: &mut Words) -> Self {
        Self { target: words.value('t') }
    }
}

impl OneRequest for CursorOf {
    type Answer = ReadAnswer;

    fn ask(&self, caller: &Caller) -> Result<Ask> {
        let path = format!("{}/output", path_named("panes", &caller.target(self.target.clone())?)?);
        let request = ReadRequest { since: Some("now".to_owned()), ..ReadRequest::default() };
        Ok(Ask::get(url::with_query(&path, &request)))
    }

    fn print(&self, caller: &Caller, answer: &ReadAnswer) -> Outcome {
        if caller.json {
            output::print_json(&serde_json::json!({ "pane": answer.pane, "cursor": answer.cursor }))?;
        } else {
            output::print(format!("{}\n", answer.cursor))?;
        }
        Ok(0)
    }
}

impl Read {
    /// Returns what the words of a plain command line say. `None`: a value is invalid.
    pub(in crate::cli) fn plain(words: &mut Words) -> Option<Self> {
        let mut place = |word: &str| words.long_value(word).map(|value| since(&value)).transpose().ok();
        let (begin, until) = (place("since")?, place("until")?);
        let format = words.long_value("format");
        Some(Self {
            target: words.value('t'),
            since: begin.unwrap_or_else(|| "input".to_owned()),
            until,
            command: None,
            format: format.map_or(Some(Format::default()), |format| Format::from_str(&format, false).ok())?,
            wait: None,
            max_bytes: words.long_value("max-bytes").map(|bytes| crate::config::bytes(&bytes)).transpose().ok()?,
        })
    }

    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.wait.is_some()
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let (path, mut request) = self.request(caller)?;
        let mut client = caller.client().await?;
        loop {
            let answer = read(&mut client, &path, &request).await?;
            match self.print(caller, &answer)? {
                Some(next) => request.since = Some(next),
                None => return Ok(0),
            }
            // A later command may be the last one by now.
            request.command = answer.command.map(|command| command.number.to_string());
        }
    }

    /// Reads without a runtime. `None`: nothing was printed, and [`Read::run`] is needed.
    pub(in crate::cli) fn run_at_once(&self, caller: &Caller) -> Option<Outcome> {
        let (path, mut request) = match self.request(caller) {
            Ok(request) => request,
            Err(error) => return Some(Err(error.into())),
        };
        let mut printed = false;
        loop {
            let answer = match exchange(caller, &Ask::get(url::with_query(&path, &request))) {
                Some(reply) => reply.and_then(|reply| reply.read::<ReadAnswer>()),
                None if printed => Err(Error::unavailable(format!(
                    "the muxtap daemon ended before all output was read; `--since {}` continues; its log is {}",
                    request.since.as_deref().unwrap_or_default(),
                    caller.paths.log.display()
                ))),
                None => return None,
            };
            match answer.map_err(Failure::from).and_then(|answer| self.print(caller, &answer)) {
                Ok(Some(next)) => request.since = Some(next),
                Ok(None) => return Some(Ok(0)),
                Err(error) => return Some(Err(error)),
            }
            printed = true;
        }
    }

    fn request(&self, caller: &Caller) -> Result<(String, ReadRequest)> {
        let path = format!("{}/output", path_named("panes", &caller.target(self.target.clone())?)?);
        // A command's output begins where the command does.
        let has_begin = self.command.is_none() || self.since != "input";
        let request = ReadRequest {
            since: has_begin.then(|| self.since.clone()),
            until: self.until.clone(),
            format: self.format.into(),
            max_bytes: self.max_bytes,
            wait_ms: self.wait.map(|wait| wait.min(MAX_WAIT_MS)),
            command: self.command.clone(),
        };
        Ok((path, request))
    }

    /// Prints a response. Returns where the next request begins, if the response was not the last.
    fn print(&self, caller: &Caller, answer: &ReadAnswer) -> std::result::Result<Option<String>, Failure> {
        if caller.json {
            output::print_json(answer)?;
            return Ok(None);
        }
        if let Some(gap) = answer.gap {
            output::note_gap(answer.pane, gap);
        }
        match (self.format, &answer.text) {
            (Format::Text, Some(text)) => output::print(text)?,
            (_, text) => output::print_raw(payload(text.as_deref(), answer.data.as_deref())?)?,
        }
        // The shell's prompt begins on a line of its own; what is not for a terminal stays exact.
        let is_open = answer.text.as_ref().is_some_and(|text| !text.is_empty() && !text.ends_with('\n'));
        if is_open && !answer.more && io::stdout().is_terminal() {
            output::print("\n")?;
        }
        if let Some(command) = answer.command.as_ref().filter(|_| !answer.more) {
            note_incomplete(command, answer.gap.is_some());
        }
        Ok((answer.more && self.max_bytes.is_none()).then(|| answer.cursor.to_string()))
    }
}

/// Reads a pane's output. Retries a read that waits with another daemon only if the response would
/// be the same: only a cursor defines the position and the missing output for every daemon.
async fn read(client: &mut Client, path: &str, request: &ReadRequest) -> Result<ReadAnswer> {
    let is_exact = |since: &String| since == "start" || since.parse::<Cursor>().is_ok();
    if request.wait_ms.is_none() || request.since.as_ref().is_some_and(is_exact) {
        return client.get(path, request).await;
    }
    client.get_from_same_daemon(path, request).await.map_err(|lost| {
        let mut error = Error::from(lost);
        error.message.push_str("; the read has ended: --since start returns what the pane printed meanwhile");
        error
    })?
}

/// Returns the bytes of a response's or event's text or data.
pub(super) fn payload(text: Option<&str>, data: Option<&str>) -> Result<Vec<u8>> {
    match (text, data) {
        (Some(text), _) => Ok(text.as_bytes().to_vec()),
        (None, Some(data)) => base64::engine::general_purpose::STANDARD
            .decode(data)
            .map_err(|error| Error::internal(format!("the daemon's response is not valid base64: {error}"))),
        (None, None) => Ok(Vec::new()),
    }
}
