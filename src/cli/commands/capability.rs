//! `capability`: requests of the tmux capability on stdin, responses on stdout.

use std::io::{BufRead as _, stdin};

use clap::Args;
use muxtap_capability::{CONTAINER_VARIABLE, CapabilityAnswer, CapabilitySettings, MOST_HISTORY};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Caller, Outcome, output};

use crate::{
    api::Error,
    cli::{client::Client, url},
};

/// Serve tmux actions to an assistant's sandbox
///
/// Each line of stdin is a request, a JSON object or a tag; each response is one line of JSON on
/// stdout. The session is in a container, or on the server of --local, -L, -S or --via.
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
        while let Some(line) = requests.recv().await {
            let line = line.map_err(|error| Error::internal(format!("stdin: {error}")))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let answer = match std::str::from_utf8(&line) {
                Ok(line) => daemon.ask(&path, &body(line)).await,
                Err(_) => Err(Error::invalid("The request is not valid UTF-8")),
            };
            output::print_json(&answer.unwrap_or_else(CapabilityAnswer::from))?;
        }
        Ok(0)
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

    /// Sends a request, once.
    async fn ask(&mut self, path: &str, body: &Value) -> Result<CapabilityAnswer, Error> {
        let answer = self.client().await?.post(path, body).await;
        if answer.is_err() {
            // The next line gets its own connection.
            self.client = None;
        }
        answer
    }
}

/// Returns the request body for a line: an object unchanged, anything else as a string for the
/// daemon to parse or reject.
fn body(line: &str) -> Value {
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ => json!({ "tag": line }),
    }
}

fn absolute(dir: &str) -> Result<String, Error> {
    let path = std::path::absolute(dir).map_err(|error| Error::invalid(format!("--cwd {dir}: {error}")))?;
    path.into_os_string().into_string().map_err(|_| Error::invalid(format!("--cwd {dir}: not valid UTF-8")))
}
