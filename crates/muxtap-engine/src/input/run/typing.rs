//! Typing the command of a run: its turn in the pane, and the line.

use std::sync::{Arc, Mutex, PoisonError};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::nonce;
use muxtap_core::protocol::command::{Command, CommandLine};
use muxtap_tmux::Request;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::TYPED;
use crate::{
    PaneState, Server,
    deadline::Deadline,
    input::{
        self,
        command_line::TypedLine,
        prompt::{EmptyPrompt, Prompt, Shown},
        run_file::RunFile,
        run_script::{self, Erasure},
        shell::IdleShell,
    },
    limits,
    pane::Typing,
};

/// How often the command is typed again after a user typed meanwhile, or zsh's line editor showed
/// another line.
const ATTEMPTS: u32 = 3;

/// A command that was typed: at this prompt, after this offset, and the file that the shell reads.
pub(super) type Typed = (EmptyPrompt, u64, Option<RunFile>);

/// Whether a line was entered.
pub(super) enum Entered {
    Yes,
    /// A user typed before it.
    Moved,
    /// A user typed after it; the line was removed.
    Disturbed,
    /// The line editor showed another line, which was removed.
    Otherwise,
    /// The line editor does not echo.
    Unseen,
}

/// A command to type.
pub(super) struct PendingCommand {
    pub(super) exclusive: Arc<ExclusiveRun>,
    pub(super) reader: IdleShell,
    pub(super) command: String,
    pub(super) clear: bool,
}

/// A pane's permit for one `run` at a time. Its nonce is registered meanwhile.
pub(super) struct ExclusiveRun {
    pub(super) pane: Arc<PaneState>,
    pub(super) nonce: String,
    /// The turn in the pane's queue; `None` once it was released: the command is watched, and another
    /// may be run.
    pub(super) turn: Mutex<Option<OwnedSemaphorePermit>>,
}

impl ExclusiveRun {
    /// Waits for the runs that came before, and claims the pane.
    pub(super) async fn claim(pane: &Arc<PaneState>, deadline: Deadline) -> Result<Self> {
        let turn = tokio::time::timeout(deadline.remaining(), pane.run_turns().acquire_owned()).await;
        let turn = match turn {
            Ok(Ok(turn)) => turn,
            // Nothing closes the queue.
            Ok(Err(_)) => return Err(Error::internal("the queue of runs is closed")),
            Err(_) => {
                let message = format!(
                    "another run is under way in pane {}, and did not end within {} ms; nothing was typed: allow more \
                     time, or use another pane",
                    pane.id(),
                    deadline.given().as_millis()
                );
                return Err(Error::new(ErrorCode::Timeout, message).at_stage("queued"));
            }
        };
        pane.begin_typing(Typing::Run)?;
        let nonce = nonce::hex64();
        pane.register_nonce(&nonce);
        Ok(Self { pane: pane.clone(), nonce, turn: Mutex::new(Some(turn)) })
    }

    /// Releases the permit. The command's marks are still read.
    pub(super) fn release(&self) {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        if turn.is_some() {
            self.pane.set_typed_run(None);
            self.pane.lock().end_typing();
            self.pane.end_command_line(false);
        }
    }
}

impl Drop for ExclusiveRun {
    fn drop(&mut self) {
        self.release();
        self.pane.unregister_nonce(&self.nonce);
    }
}

impl Server {
    /// Types the command in a task of its own: a caller that leaves must not leave a probe on the
    /// line. Without a caller, or after its timeout, the command is no longer typed.
    pub(super) async fn type_in_time(&self, pending: PendingCommand, deadline: Deadline) -> Result<Typed> {
        let host = &self.host;
        let pane = pending.exclusive.pane.clone();
        let wanted = CancellationToken::new();
        let gone = wanted.clone();
        let _left = wanted.clone().drop_guard();
        let server = self.clone();
        let mut task = self.engine.shared.tasks.spawn(async move {
            tokio::select! {
                typed = server.type_command(&pending, &gone) => typed,
                () = server.engine.stopping() => Err(Error::unavailable("muxtap is stopping")),
            }
        });
        let failed = |_| Err(Error::internal("the command could not be typed"));
        if let Ok(typed) = tokio::time::timeout_at(deadline.at().into(), &mut task).await {
            return typed.unwrap_or_else(failed);
        }
        wanted.cancel();
        if let Ok(typed) = tokio::time::timeout(limits::ANSWER_GRACE, &mut task).await {
            return typed.unwrap_or_else(failed);
        }
        let question = || {
            let ask = Command::new("display-message").flag("-p").opt("-t", pane.id().to_string());
            Request::Plain(CommandLine::of([ask.format("#{pane_id}")]))
        };
        let own = host.server_of(&pane);
        let asked = own.read(Some(pane.id()), question);
        match tokio::time::timeout(limits::ANSWER_GRACE, asked).await {
            Ok(Ok(_)) => Err(too_late(&pane)),
            _ => deadline.before(TYPED, std::future::pending()).await,
        }
    }

    /// Types the command at an empty prompt. Returns the prompt, the stream's end just before, and the
    /// file that the shell reads.
    async fn type_command(&self, pending: &PendingCommand, gone: &CancellationToken) -> Result<Typed> {
        let PendingCommand { exclusive, reader, command, clear } = pending;
        let (pane, nonce) = (&exclusive.pane, &exclusive.nonce);
        let prompt = Prompt { server: self, pane, reader: *reader };
        let mut forgets = true;
        let mut why = "a person is typing at the prompt";
        for _ in 0..ATTEMPTS {
            let empty = prompt.empty(*clear).await?;
            if gone.is_cancelled() {
                prompt.undo(&empty).await?;
                return Err(too_late(pane));
            }
            let file = if reader.reads_files { RunFile::place() } else { None };
            let line = match &file {
                Some(file) => Ok(reader.shell.source_line(file.path(), forgets)),
                None => reader.shell.typed_line(command, nonce, &empty),
            };
            let line = match line {
                Ok(line) => line.padded(&empty),
                Err(error) => {
                    prompt.undo(&empty).await?;
                    return Err(error);
                }
            };
            if let Some(file) = &file {
                let erasure = Erasure::of(&line, &empty);
                let written = file.write(&run_script::script(reader.shell, command, nonce, file.path(), &erasure));
                if let Err(error) = written {
                    prompt.undo(&empty).await?;
                    return Err(Error::internal(format!("cannot write {}: {error}; nothing was run", file.path())));
                }
            }
            let mark = pane.begin_command_line(nonce, &line, command);
            let sent = self.enter(&prompt, &empty, &line).await;
            if matches!(sent, Ok(Entered::Yes)) {
                return Ok((empty, mark, file));
            }
            let is_removed = matches!(sent, Ok(Entered::Otherwise | Entered::Disturbed | Entered::Unseen));
            pane.end_command_line(is_removed);
            match sent? {
                Entered::Yes => {}
                Entered::Moved => prompt.undo(&empty).await?,
                Entered::Otherwise => {
                    forgets = false;
                    why = "the line editor shows something else than what was typed";
                }
                Entered::Disturbed => break,
                Entered::Unseen => {
                    return Err(Error::new(
                        ErrorCode::Conflict,
                        format!(
                            "the shell in pane {} does not show what is typed; nothing was run: type `stty sane` \
                             there, or use another pane",
                            pane.id()
                        ),
                    ));
                }
            }
        }
        Err(Error::new(ErrorCode::Conflict, format!("{why} in pane {}; nothing was run", pane.id())))
    }

    /// Types a line and enters it, if nothing else was typed meanwhile.
    async fn enter(&self, prompt: &Prompt<'_>, empty: &EmptyPrompt, line: &TypedLine) -> Result<Entered> {
        let pane = prompt.pane;
        if !empty.has_editor {
            let keys = [empty.clear.as_slice(), line.keys.as_bytes(), b"\r"].concat();
            let typed = input::prepare_unechoed(pane, &keys)?;
            // tmux itself checks that no user has typed since.
            let sent = self.send_if(pane, typed, Some(empty.cursor)).await?;
            return Ok(if sent.is_some() { Entered::Yes } else { Entered::Moved });
        }
        match prompt.type_line(empty, line).await? {
            Shown::Moved => return Ok(Entered::Moved),
            Shown::Nothing => {
                prompt.remove_line(line).await?;
                return Ok(Entered::Unseen);
            }
            Shown::Otherwise => {
                prompt.remove_line(line).await?;
                return Ok(Entered::Otherwise);
            }
            Shown::AsTyped(cursor) => {
                let enter = input::prepare_unechoed(pane, b"\r")?;
                if self.send_if(pane, enter, Some(cursor)).await?.is_some() {
                    return Ok(Entered::Yes);
                }
            }
        }
        prompt.remove_line(line).await?;
        Ok(Entered::Disturbed)
    }
}

fn too_late(pane: &PaneState) -> Error {
    let message =
        format!("the timeout expired before the prompt of pane {} was known to be empty; nothing was run", pane.id());
    Error::new(ErrorCode::Timeout, message).at_stage("prompt")
}
