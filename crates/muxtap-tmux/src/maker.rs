//! Commands that create something: each is run by a client of its own.
//!
//! A user's hooks on what is created (`after-new-window`, `after-split-window`,
//! `after-new-session`) run in the queue of the client that created it. A hook that waits for the
//! user (`command-prompt`, `confirm-before`, a menu, `wait-for`) would block all later requests of
//! a control client, and a prompt would be shown to that client, which never answers. A plain
//! client that is attached to no session is treated like a script's: tmux prints what was created
//! at once, before the hooks, and shows their prompts to the user. The client stays until the hooks
//! are done.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use muxtap_api::{Error, Result};
use muxtap_base::metrics;
use muxtap_core::protocol::command::{Command, CommandLine};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::{
    connection::{ANSWER_LIMIT, Answer, Connection, Lost, Request, SILENCE_LIMIT},
    coverage::Inner,
    program::{Client, ServerSpec},
};

/// The longest that a client stays for hooks that wait.
const HOOK_LIMIT: Duration = Duration::from_secs(600);
/// The maximum number of clients that stay for hooks at the same time; a further one leaves when it
/// has printed what it created, and what a user answers to its hook is lost.
const WAITING_CLIENTS: usize = 32;
/// The longest command in bytes that a plain client can send: tmux's messages have 16 KiB.
const COMMAND_BYTES: usize = 12 * 1024;
/// Bytes of an error message that are read.
const ERROR_BYTES: u64 = 4096;

impl Inner {
    /// Runs a command that creates something and prints it in one line, and returns that line; an
    /// error message of tmux is the inner error. `command` gets the directory of `connection`'s
    /// session: a command of that client would begin in it, while no caller chose the daemon's own.
    pub(super) async fn make(
        self: &Arc<Self>,
        connection: &Connection,
        command: impl FnOnce(&[u8]) -> Command,
    ) -> Result<std::result::Result<String, String>> {
        // A server that does not reply must not get a command that creates something.
        let question = Command::new("display-message").flag("-p").format("#{session_path}");
        let answer = connection.ask(Request::Framed(vec![question])).await;
        let parts = answer.map_err(|_| Lost::Unsent.of_change("this"))?.map_err(Error::unavailable)?;
        let path = parts.first().and_then(|path| path.strip_suffix(b"\n")).unwrap_or_default();
        let command = command(path);
        self.make_by(command, async |command| {
            let answer = connection.ask(Request::Plain(CommandLine::of([command]))).await;
            answer.map_err(|lost| lost.of_change("this"))
        })
        .await
    }

    /// Runs such a command on a server at rest, in the directory of the session that tmux takes for
    /// the best.
    pub(super) async fn make_at_rest(
        self: &Arc<Self>,
        command: impl FnOnce(&[u8]) -> Command,
    ) -> Result<std::result::Result<String, String>> {
        let question = Command::new("display-message").flag("-p").format("#{session_path}");
        // A server that does not reply must not get a command that creates something.
        let parts = self.ask_plainly(&[question], SILENCE_LIMIT).await?.map_err(Error::unavailable)?;
        let path = parts.first().and_then(|path| path.strip_suffix(b"\n")).unwrap_or_default();
        let ask = async |command| self.ask_at_rest(Request::Plain(CommandLine::of([command]))).await;
        self.make_by(command(path), ask).await
    }

    /// Runs the command by a client of its own; by `ask` if that is not possible.
    async fn make_by(
        self: &Arc<Self>,
        command: Command,
        ask: impl AsyncFnOnce(Command) -> Result<Answer>,
    ) -> Result<std::result::Result<String, String>> {
        let words = match command.words() {
            Ok(words) => words,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let length: usize = words.iter().map(|word| word.len() + 1).sum();
        if self.spec.is_local() && length <= COMMAND_BYTES {
            return self.make_by_client(words).await;
        }
        // On another host a client is a connection. Without a frame the reply comes before the
        // hooks, too: a line of ids and a name, which holds no line end.
        let answer = ask(command).await?;
        let text = |bodies: Vec<bytes::Bytes>| bodies.first().map(|body| String::from_utf8_lossy(body).into_owned());
        Ok(answer.map(|bodies| text(bodies).unwrap_or_default()))
    }

    async fn make_by_client(self: &Arc<Self>, words: Vec<Vec<u8>>) -> Result<std::result::Result<String, String>> {
        let client = self.spec.plain_client(words.into_iter().map(OsString::from_vec));
        let Client { mut command, relay, program: _program } =
            client.map_err(|error| ServerSpec::cannot_relay(&error))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        metrics::PROCESS_SPAWNS.increment(1);
        let mut client = command.spawn().map_err(|error| self.spec.cannot_run(&error))?;
        let relay = relay.map(|relay| self.tasks.spawn(relay.run()));
        let gone = || Error::internal("a tmux client has no output pipe");
        let mut stdout = BufReader::new(client.stdout.take().ok_or_else(gone)?);
        let mut stderr = client.stderr.take().ok_or_else(gone)?.take(ERROR_BYTES);
        let mut line = Vec::new();
        let printed = tokio::time::timeout(ANSWER_LIMIT, stdout.read_until(b'\n', &mut line)).await;
        if printed.is_err() {
            return Err(Lost::Unanswered.of_change("this"));
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.is_empty() {
            let mut said = String::new();
            let ended = async {
                let _ = stderr.read_to_string(&mut said).await;
                client.wait().await
            };
            let _ = tokio::time::timeout(ANSWER_LIMIT, ended).await;
            if let Some(relay) = relay {
                // One that gave up has ended.
                relay.abort();
                if let Ok(Err(error)) = relay.await {
                    let mut error = Error::from(error);
                    error.message =
                        format!("cannot reach the tmux server on {}: {}", self.spec.socket.display(), error.message);
                    return Err(error);
                }
            }
            let said = said.trim();
            return Ok(Err(if said.is_empty() { "it printed nothing".into() } else { said.into() }));
        }
        let is_full = WAITING.fetch_add(1, Ordering::Relaxed) >= WAITING_CLIENTS;
        let this = self.clone();
        self.tasks.spawn(async move {
            let mut rest = [0; 1024];
            let stays = async {
                // The output of hooks is of no interest, but a client that cannot write it would
                // leave.
                while stdout.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                client.wait().await
            };
            if !is_full {
                tokio::select! {
                    _ = tokio::time::timeout(HOOK_LIMIT, stays) => {}
                    () = this.cancel.cancelled() => {}
                }
            }
            WAITING.fetch_sub(1, Ordering::Relaxed);
            // The client is killed with its handle.
        });
        Ok(Ok(line))
    }
}

/// Clients that have printed what they created and have not left.
static WAITING: AtomicUsize = AtomicUsize::new(0);
