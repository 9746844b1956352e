//! Commands that make something: each is run by a client of its own.
//!
//! A user's hooks on what is made (`after-new-window`, `after-split-window`, `after-new-session`)
//! run in the queue of the client that made it. One that waits for the user (`command-prompt`,
//! `confirm-before`, a menu, `wait-for`) would hold back all that a control client asks from then
//! on, and a prompt would be shown to that client, where it is never answered. A plain client that
//! is attached nowhere is treated as one of a script: tmux prints what was made at once, before the
//! hooks, and shows their prompts to the user. The client stays until they are through.

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
/// Clients that stay so at once; a further one leaves when it has printed what it made, and what a
/// user answers to its hook is lost.
const WAITING_CLIENTS: usize = 32;
/// Bytes of a command that a plain client can send: tmux's messages have 16 KiB.
const COMMAND_BYTES: usize = 12 * 1024;
/// Bytes of an error message that are read.
const ERROR_BYTES: u64 = 4096;

impl Inner {
    /// Runs a command that makes something and prints it in one line, which is the answer; an error
    /// message of tmux is the inner error. `command` is given the directory of `connection`'s session:
    /// there a command of that client would begin, and the daemon's own is nobody's choice.
    pub(super) async fn make(
        self: &Arc<Self>,
        connection: &Connection,
        command: impl FnOnce(&[u8]) -> Command,
    ) -> Result<std::result::Result<String, String>> {
        // A server that does not answer is not asked to make anything.
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

    /// Runs such a command on a server at rest, where the directory is that of the session which tmux takes for the
    /// best.
    pub(super) async fn make_at_rest(
        self: &Arc<Self>,
        command: impl FnOnce(&[u8]) -> Command,
    ) -> Result<std::result::Result<String, String>> {
        let question = Command::new("display-message").flag("-p").format("#{session_path}");
        // A server that does not answer is not asked to make anything.
        let parts = self.ask_plainly(&[question], SILENCE_LIMIT).await?.map_err(Error::unavailable)?;
        let path = parts.first().and_then(|path| path.strip_suffix(b"\n")).unwrap_or_default();
        let ask = async |command| self.ask_at_rest(Request::Plain(CommandLine::of([command]))).await;
        self.make_by(command(path), ask).await
    }

    /// Runs the command by a client of its own; by `ask` where that cannot be.
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
        // Elsewhere a client is a connection. Without a frame the answer comes before the hooks, too: a line
        // of ids and a name, which holds no line end.
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
        let gone = || Error::internal("a client of tmux has no output");
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
            if let Some(relay) = relay.filter(tokio::task::JoinHandle::is_finished)
                && let Ok(Err(error)) = relay.await
            {
                let socket = self.spec.socket.display();
                return Err(Error::unavailable(format!("cannot reach the tmux server on {socket}: {error}")));
            }
            let said = said.trim();
            return Ok(Err(if said.is_empty() { "it printed nothing".into() } else { said.into() }));
        }
        let is_full = WAITING.fetch_add(1, Ordering::Relaxed) >= WAITING_CLIENTS;
        let this = self.clone();
        self.tasks.spawn(async move {
            let mut rest = [0; 1024];
            let stays = async {
                // What hooks print is of no interest, but a client that cannot write it would leave.
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

/// Clients that have printed what they made and have not left.
static WAITING: AtomicUsize = AtomicUsize::new(0);
