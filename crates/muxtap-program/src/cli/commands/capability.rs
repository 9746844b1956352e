//! `capability`: requests of the tmux capability on stdin, responses on stdout.

use std::{
    io::{BufRead as _, stdin},
    time::Duration,
};

use clap::Args;
use muxtap_capability::{CONTAINER_VARIABLE, CapabilityAnswer, CapabilitySettings, Fields, MOST_HISTORY, Requests};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Caller, Outcome, output};

use crate::{
    api::Error,
    cli::{client::Client, url},
};

/// Serve tmux actions to an assistant's sandbox
///
/// A request on stdin is a line with a JSON object, or a tag, which may span lines; comments are
/// skipped. Each response is one line of JSON on stdout. After a malformed request, nothing is run
/// until the line that its response suggests is sent. The session is in a container, or on the server
/// of --local, -L, -S or --via.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  echo '{\"action\":\"init\"}' | muxtap capability
  echo '<capability name=\"tmux\" action=\"read\" since=\"true\" />' | muxtap capability --container web
  muxtap capability --local --cwd . < requests")]
pub(in crate::cli) struct CapabilityArgs {
    /// Use this container (default: `SANDBOX_CONTAINER_NAME`, else `coachartie-sandbox`)
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    container: Option<String>,
    /// Use this host's tmux server, as other commands do
    #[arg(long)]
    local: bool,
    /// Use this session, created if missing
    #[arg(long, value_name = "NAME", default_value = "artie")]
    session: String,
    /// Working directory of new panes (default: /workspace; with --local the caller's)
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Keep this many lines of history for each pane
    #[arg(long, value_name = "LINES", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_HISTORY)))]
    history_limit: u32,
}

/// The number of lines read ahead.
const AHEAD: usize = 64;
/// How long an unfinished tag waits for its next line.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

impl CapabilityArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let named = self.local || caller.server_is_named;
        let cwd = match self.cwd {
            Some(dir) if self.local => Some(absolute(&dir)?),
            Some(dir) => Some(dir),
            None if self.local => Some(absolute(".")?),
            None => None,
        };
        let container = self.container.or_else(|| std::env::var(CONTAINER_VARIABLE).ok());
        let settings = CapabilitySettings {
            // The connection itself selects the server.
            socket: None,
            container: container.filter(|name| !named && !name.is_empty()),
            session: Some(self.session),
            cwd,
            history_limit: Some(self.history_limit),
        };
        let path = format!("/v1/capability?{}", url::query(&settings));
        let mut daemon = Daemon { caller, named, client: None };
        daemon.client().await?;
        let (lines, mut requests) = mpsc::channel(AHEAD);
        // A separate thread: a read of stdin cannot be cancelled.
        std::thread::spawn(move || {
            for line in stdin().lock().split(b'\n') {
                if lines.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        let mut asked = Requests::default();
        loop {
            let limit = if asked.is_open() { OPEN_LIMIT } else { Duration::MAX };
            // The sender of an unfinished tag may be waiting for a response.
            let (line, ends) = match tokio::time::timeout(limit, requests.recv()).await {
                Ok(Some(line)) => (Some(line), false),
                Ok(None) => (None, true),
                Err(_) => (None, false),
            };
            let is_whole = line.is_none();
            let line = line.transpose().map_err(|error| Error::internal(format!("stdin: {error}")))?;
            if let Some(line) = line {
                asked.feed_bytes(line);
            }
            daemon.answer_all(&path, &mut asked, is_whole).await?;
            if ends {
                return Ok(0);
            }
        }
    }
}

/// The daemon, possibly a different one for each line.
struct Daemon<'a> {
    caller: &'a Caller,
    /// Whether the command line names a server.
    named: bool,
    client: Option<Client>,
}

impl Daemon<'_> {
    async fn client(&mut self) -> Result<&mut Client, Error> {
        let open = self.client.take().filter(|client| !client.is_closed());
        let client = if let Some(client) = open {
            client
        } else {
            let mut client = self.caller.client().await?;
            if !self.named {
                client.forget_server();
            }
            client
        };
        Ok(self.client.insert(client))
    }

    /// Prints the response to each complete request; `is_end`: also to an unfinished one.
    async fn answer_all(&mut self, path: &str, asked: &mut Requests, is_end: bool) -> Result<(), output::Failure> {
        while let Some(fields) = asked.next(is_end) {
            output::print_json(&self.answer(path, fields).await)?;
        }
        Ok(())
    }

    /// Sends a request, once.
    async fn answer(&mut self, path: &str, fields: Fields) -> CapabilityAnswer {
        let fields = match fields {
            Ok(fields) => Value::Object(fields),
            Err(refused) => return refused,
        };
        let answer = match self.client().await {
            Ok(client) => client.post(path, &fields).await,
            Err(error) => Err(error),
        };
        if answer.is_err() {
            // The next request gets its own connection.
            self.client = None;
        }
        answer.unwrap_or_else(CapabilityAnswer::from)
    }
}

fn absolute(dir: &str) -> Result<String, Error> {
    let path = std::path::absolute(dir).map_err(|error| Error::invalid(format!("--cwd {dir}: {error}")))?;
    path.into_os_string().into_string().map_err(|_| Error::invalid(format!("--cwd {dir}: not valid UTF-8")))
}
