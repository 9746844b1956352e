//! Typing the command of a run: its turn in the pane, and the line.
//!
//! A person may press Enter at any moment. So a line that was not entered counts as not run only
//! once the shell cannot run it any more: its file is removed first, then the shell is examined.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::nonce;
use muxtap_core::protocol::command::{Command, CommandLine};
use muxtap_tmux::Request;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::{BEGINNING, TYPED, command_marks};
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

/// How often the command is typed again after a user typed meanwhile, another shell came, or zsh's line
/// editor showed another line.
pub(super) const ATTEMPTS: u32 = 3;

/// A command that was typed.
pub(super) struct Typed {
    pub(super) prompt: EmptyPrompt,
    pub(super) line: TypedLine,
    /// The stream's end just before.
    pub(super) mark: u64,
    /// The file that the shell reads.
    pub(super) file: Option<RunFile>,
}

/// How often a shell is examined that prints nothing.
const LOOK: Duration = Duration::from_millis(50);

/// Whether a line was entered.
pub(super) enum Entered {
    Yes,
    /// A user typed before it, and nothing was typed.
    Moved,
    /// A user entered it.
    ByUser,
    /// The line was removed, and does not run.
    Removed(Removal),
    /// The line was typed, and may run.
    Unknown,
}

/// Why a line that was typed was removed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// A user typed after it.
    Disturbed,
    /// The line editor showed another line.
    Otherwise,
    /// The line editor does not echo.
    Unseen,
    /// Another program prints all the time.
    Noise,
    /// The caller has left, or its timeout has expired.
    Unwanted,
}

/// What became of a line that was typed and not entered.
pub(super) enum Fate {
    /// A user entered it.
    Begun,
    /// The shell waits for a line and has not begun the command.
    NotBegun,
    Unknown,
}

/// The steps of typing a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// Nothing of the command was typed.
    #[default]
    Before,
    /// The line may be typed. A user may enter it.
    Typed,
    /// Enter may be pressed.
    Entered,
}

/// How far the typing of a command has come: known to the task that types, and to the request that
/// waits for it. One of them decides first.
#[derive(Default)]
struct Progress(Mutex<ProgressState>);

#[derive(Default)]
struct ProgressState {
    step: Step,
    is_unwanted: bool,
    /// Whether nothing waits for the task that types.
    is_deserted: bool,
    file: Option<RunFile>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a step, unless the command is no longer wanted. Returns whether it was taken.
    fn step(&self, step: Step) -> bool {
        let mut state = self.lock();
        if !state.is_unwanted {
            state.step = step;
        }
        !state.is_unwanted
    }

    /// Begins to type a line that reads this file.
    fn begin_line(&self, file: Option<RunFile>) -> bool {
        self.lock().file = file;
        self.step(Step::Typed)
    }

    /// Removes the file: a shell that has not read it yet never runs the command.
    fn remove_file(&self) {
        let file = self.lock().file.take();
        drop(file);
    }

    fn is_deserted(&self) -> bool {
        self.lock().is_deserted
    }

    fn take_file(&self) -> Option<RunFile> {
        self.lock().file.take()
    }

    /// Records that no caller waits any more. Nothing is typed or entered from now on; a line that is
    /// typed no longer finds its file. Returns the last step that was taken.
    fn leave(&self) -> Step {
        let mut state = self.lock();
        state.is_unwanted = true;
        if state.step != Step::Entered {
            drop(state.file.take());
        }
        state.step
    }
}

/// Records that the caller has left when it is dropped.
struct Caller(Arc<Progress>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.leave();
        self.0.lock().is_deserted = true;
    }
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
    /// `None` if another program or shell has the terminal by now, and nothing was typed.
    pub(super) async fn type_in_time(&self, pending: PendingCommand, deadline: Deadline) -> Result<Option<Typed>> {
        let host = &self.host;
        let pane = pending.exclusive.pane.clone();
        let caller = Caller(Arc::default());
        let progress = caller.0.clone();
        let server = self.clone();
        let mut task = self.engine.shared.tasks.spawn(async move {
            tokio::select! {
                typed = server.type_command(&pending, &progress) => {
                    if let Ok(Some(typed)) = &typed && progress.is_deserted() {
                        // Enter was pressed: the shell must find the file.
                        server.until_begun(&pending, typed).await;
                    }
                    typed
                }
                () = server.engine.stopping() => Err(Error::unavailable("muxtap is stopping")),
            }
        });
        let failed = |_| Err(Error::internal("the command could not be typed"));
        if let Ok(typed) = tokio::time::timeout_at(deadline.at(), &mut task).await {
            return typed.unwrap_or_else(failed);
        }
        let reached = caller.0.leave();
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
            Ok(Ok(_)) if reached == Step::Before => Err(too_late(&pane)),
            Ok(Ok(_)) => Err(unknown(ErrorCode::Timeout, "the timeout expired while the command was typed", &pane)),
            _ => deadline.before(TYPED, std::future::pending()).await,
        }
    }

    /// Waits until the shell has begun a command that was entered, which takes it a moment.
    async fn until_begun(&self, pending: &PendingCommand, typed: &Typed) {
        let PendingCommand { exclusive, .. } = pending;
        let begun = async {
            let mut changes = exclusive.pane.changes();
            while command_marks(&exclusive.pane, &exclusive.nonce).begin.is_none() && changes.changed().await.is_ok() {}
        };
        if typed.file.is_some() {
            let _ = tokio::time::timeout(BEGINNING, begun).await;
        }
    }

    /// Types the command at an empty prompt. `None` if another program or shell has the terminal by now.
    async fn type_command(&self, pending: &PendingCommand, progress: &Progress) -> Result<Option<Typed>> {
        let PendingCommand { exclusive, reader, command, clear } = pending;
        let (pane, nonce) = (&exclusive.pane, &exclusive.nonce);
        let prompt = Prompt { server: self, pane, reader: *reader };
        let mut forgets = true;
        let mut why = "a person is typing at the prompt";
        for _ in 0..ATTEMPTS {
            let Some(empty) = prompt.empty(*clear).await? else { return Ok(None) };
            let file = if reader.reads_files { RunFile::place() } else { None };
            let line = match &file {
                Some(file) => Ok(reader.shell.source_line(file.path(), forgets)),
                None => reader.shell.typed_line(command, nonce, &empty),
            };
            let line = line?.padded(&empty);
            if let Some(file) = &file {
                let erasure = Erasure::of(&line, &empty);
                let written = file.write(&run_script::script(reader.shell, command, nonce, file.path(), &erasure));
                if let Err(error) = written {
                    return Err(Error::internal(format!("cannot write {}: {error}; nothing was run", file.path())));
                }
            }
            if !progress.begin_line(file) {
                return Err(too_late(pane));
            }
            let mark = pane.begin_command_line(nonce, &line, command);
            let attempt = Attempt { prompt: &prompt, empty: &empty, line: &line, nonce, progress };
            let sent = attempt.enter().await;
            if matches!(sent, Ok(Entered::Yes | Entered::ByUser)) {
                return Ok(Some(Typed { prompt: empty, line, mark, file: progress.take_file() }));
            }
            progress.remove_file();
            pane.end_command_line(matches!(sent, Ok(Entered::Removed(_))));
            match sent? {
                Entered::Yes | Entered::ByUser | Entered::Moved => {}
                Entered::Unknown => {
                    return Err(unknown(
                        ErrorCode::InconsistentState,
                        "the typed line was not seen to be removed",
                        pane,
                    ));
                }
                Entered::Removed(Removal::Unwanted) => return Err(too_late(pane)),
                Entered::Removed(Removal::Disturbed) => break,
                Entered::Removed(Removal::Otherwise) => {
                    forgets = false;
                    why = "the line editor shows something else than what was typed";
                }
                Entered::Removed(Removal::Noise) => {
                    why = "other output keeps arriving";
                    break;
                }
                Entered::Removed(Removal::Unseen) => {
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
}

/// A line at an empty prompt, which is typed and entered, or removed again.
struct Attempt<'a> {
    prompt: &'a Prompt<'a>,
    empty: &'a EmptyPrompt,
    line: &'a TypedLine,
    nonce: &'a str,
    progress: &'a Progress,
}

impl Attempt<'_> {
    /// Types a line and enters it, if nothing else was typed meanwhile and the caller is there.
    async fn enter(&self) -> Result<Entered> {
        let Self { prompt, empty, line, nonce, progress } = *self;
        let (server, pane) = (prompt.server, prompt.pane);
        // Behind another terminal, keys may be under way that tmux has not shown yet: the line is compared first.
        if !empty.has_editor && !prompt.reader.is_marked {
            let keys = [empty.clear.as_slice(), line.keys.as_bytes(), b"\r"].concat();
            let typed = input::prepare_unechoed(pane, &keys)?;
            if !progress.step(Step::Entered) {
                // The reprint has left the cursor below the prompt: an empty line prints another one.
                let keys = input::prepare_unechoed(pane, &[empty.clear.as_slice(), b"\r"].concat())?;
                let _ = server.send_if(pane, keys, Some(empty.cursor)).await?;
                return Ok(Entered::Removed(Removal::Unwanted));
            }
            // tmux itself checks that no user has typed since.
            let sent = server.send_if(pane, typed, Some(empty.cursor)).await?;
            return Ok(if sent.is_some() { Entered::Yes } else { Entered::Moved });
        }
        let shown = prompt.type_line(empty, line, || command_marks(pane, nonce).begin.is_some()).await;
        let (why, failed) = match shown {
            Ok(Shown::Moved) => return Ok(Entered::Moved),
            Ok(Shown::Nothing) => (Removal::Unseen, None),
            Ok(Shown::Otherwise) => (Removal::Otherwise, None),
            Ok(Shown::Noise) => (Removal::Noise, None),
            Ok(Shown::AsTyped(cursor)) => {
                let enter = input::prepare_unechoed(pane, b"\r")?;
                // The last look: from here on, only the cursor's position is compared, by tmux itself.
                // Behind another terminal, a line of several rows looks as if it were entered.
                if !prompt.reader.is_marked && !prompt.is_same_shell().await {
                    (Removal::Disturbed, None)
                } else if !progress.step(Step::Entered) {
                    (Removal::Unwanted, None)
                } else if server.send_if(pane, enter, Some(cursor)).await?.is_some() {
                    return Ok(Entered::Yes);
                } else {
                    progress.step(Step::Typed);
                    (Removal::Disturbed, None)
                }
            }
            Err(error) => (Removal::Disturbed, Some(error)),
        };
        let removed = self.remove_line(why).await;
        match (removed, failed) {
            (Ok(Entered::Removed(_)), Some(error)) => Err(error),
            (Err(_), _) => Ok(Entered::Unknown),
            (Ok(entered), _) => Ok(entered),
        }
    }

    /// Removes a line that was typed and not entered. A user may have entered it.
    async fn remove_line(&self, why: Removal) -> Result<Entered> {
        let Self { prompt, empty, line, nonce, progress } = *self;
        let has_file = line.reads_file;
        progress.remove_file();
        match fate(prompt, nonce).await {
            Fate::Begun => return Ok(Entered::ByUser),
            Fate::Unknown => return Ok(Entered::Unknown),
            Fate::NotBegun => {}
        }
        prompt.remove_line(line).await?;
        // A line that holds the command itself must be seen to be gone.
        let is_gone = has_file
            || why != Removal::Unseen && prompt.is_empty_again(empty).await?
            || prompt.interrupt_line().await?;
        match fate(prompt, nonce).await {
            Fate::Begun => Ok(Entered::ByUser),
            Fate::NotBegun if is_gone => Ok(Entered::Removed(why)),
            Fate::NotBegun | Fate::Unknown => Ok(Entered::Unknown),
        }
    }
}

/// Returns what became of a line that was typed and not entered.
pub(super) async fn fate(prompt: &Prompt<'_>, nonce: &str) -> Fate {
    let pane = prompt.pane;
    let is_begun = || command_marks(pane, nonce).begin.is_some();
    let mut changes = pane.changes();
    let give_up = Instant::now() + BEGINNING;
    loop {
        changes.borrow_and_update();
        if is_begun() {
            return Fate::Begun;
        }
        if prompt.is_same_shell().await {
            // Output that the shell printed before has arrived once tmux has replied twice.
            let is_known = prompt.replies().await && prompt.replies().await;
            if is_begun() {
                return Fate::Begun;
            }
            if is_known && prompt.is_same_shell().await {
                return Fate::NotBegun;
            }
        }
        if pane.exit().is_some() || Instant::now() >= give_up {
            return if is_begun() { Fate::Begun } else { Fate::Unknown };
        }
        let _ = tokio::time::timeout(LOOK, changes.changed()).await;
    }
}

fn too_late(pane: &PaneState) -> Error {
    let message =
        format!("the timeout expired before the prompt of pane {} was known to be empty; nothing was run", pane.id());
    Error::new(ErrorCode::Timeout, message).at_stage("prompt")
}

/// The error for a command that may run, or have run.
fn unknown(code: ErrorCode, what: &str, pane: &PaneState) -> Error {
    let message = format!("{what} in pane {}, and whether the command ran is not known", pane.id());
    Error::new(code, message).at_stage("typed")
}
