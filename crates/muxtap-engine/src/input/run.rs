//! `run`: types a command into an idle shell, and returns exactly its output and its exit status.

mod typing;

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use muxtap_api::{Error, ErrorCode, Operation, ReadFormat, Result, RunAnswer, RunMethod, RunRequest};
use muxtap_base::spans;
use muxtap_core::stream::{colors, render};
use muxtap_tmux::death;
use tokio::time::Instant;
use tracing::field::Empty;

use typing::{ATTEMPTS, ExclusiveRun, Fate, PendingCommand, Typed, fate};

use crate::{
    Host, PaneState, Server,
    audit_scope::AuditScope,
    deadline::Deadline,
    input::{
        command_line::TypedLine,
        prompt::{EmptyPrompt, Prompt},
        run_file::RunFile,
        shell::{self, ForegroundState, IdleShell},
    },
    limits,
    wait::duration,
};

/// How long a program in the pane may take to end, unless the request says otherwise.
const PROMPT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a new shell may take to print its first prompt.
const SHELL_START: Duration = Duration::from_secs(5);
/// How soon a starting shell is examined again if it printed nothing.
const SHELL_LOOK: Duration = Duration::from_millis(20);
/// How long a pane with another program is examined at that interval after output: a shell prints
/// its prompt a moment before it waits for a line.
const PROMPT_LOOKS: Duration = Duration::from_secs(1);

/// How long an idle shell may take to begin the typed command.
const BEGINNING: Duration = Duration::from_secs(2);
/// How long tmux may take to report the end of a pane whose shell has ended, if another shell may go on there.
const EXIT_KNOWN: Duration = Duration::from_secs(1);
/// The same for the pane's own process, whose end tmux always reports.
const PANE_EXIT_KNOWN: Duration = Duration::from_secs(10);
/// The shortest interval between checks for changes without output.
const CALM: Duration = Duration::from_millis(100);
/// Characters of a pane's output that an error shows.
const SEEN: usize = 500;

/// Why the wait for a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The command has ended.
    Command,
    /// The shell has ended.
    Shell,
    /// The shell waits for a line and has not begun the command.
    NotBegun,
    /// The shell waits for a line, and will not begin the command any more.
    NotRun,
    /// The shell has begun the command, and waits for a line without having ended it.
    Abandoned,
    /// The timeout has expired.
    Timeout,
}

/// Error texts for a timeout before tmux replied.
const NOT_TYPED: &str = "nothing was typed";
const TYPED: &str = "the command was not seen to run, and whether it was or will be typed is not known";

/// Returns a run's deadline.
pub(super) fn run_deadline(request: &RunRequest) -> Result<Deadline> {
    let timeout = duration("timeout_ms", request.timeout_ms, limits::WAIT_LONGEST)?.unwrap_or(limits::WAIT_DEFAULT);
    Ok(Deadline::new(Instant::now(), timeout))
}

/// The place of a command's output, from the marks that the shell printed.
#[derive(Clone, Copy)]
struct CommandMarks {
    begin: Option<u64>,
    /// The command's length, as the shell reports it.
    length: Option<usize>,
    end: Option<(u64, Option<i32>)>,
    exit: Option<muxtap_tmux::Exit>,
}

impl Server {
    /// Runs a command in the idle shell of a pane.
    ///
    /// Error: `TIMEOUT`, whose `details` have `output` and `cursor`; the command continues.
    pub fn run<'a>(&'a self, target: &'a str, request: &'a RunRequest) -> BoxFuture<'a, Result<RunAnswer>> {
        Box::pin(self.run_here(target, request))
    }

    async fn run_here(&self, target: &str, request: &RunRequest) -> Result<RunAnswer> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::Run, host, target)?.input(|| request.command.as_bytes().to_vec());
        let span = tracing::info_span!(target: spans::TARGET, "run", muxtap.outcome = Empty);
        let work = async {
            let deadline = run_deadline(request)?;
            let run = self.start_run(target, request, deadline, &audit).await?;
            let end = tokio::select! {
                end = tokio::time::timeout(deadline.remaining(), run.until_end(self)) => end.unwrap_or(RunEnd::Timeout),
                () = self.engine.stopping() => RunEnd::Timeout,
            };
            run.answer(end).await
        };
        let outcome = |done: &Result<RunAnswer>| done.as_ref().map_or_else(|error| error.code.as_str(), |_| "ended");
        let done = spans::within(span, work, outcome).await;
        audit.finish(done)
    }

    /// Types a command into the idle shell of a pane.
    pub(super) async fn start_run(
        &self,
        target: &str,
        request: &RunRequest,
        deadline: Deadline,
        audit: &AuditScope<'_>,
    ) -> Result<StartedRun> {
        let command = request.command.trim_end_matches('\n');
        if command.trim().is_empty() {
            return Err(Error::invalid("command: it is empty"));
        }
        if command.len() > limits::COMMAND_BYTES || command.contains('\0') {
            return Err(Error::invalid(format!("command: at most {} bytes, without NUL", limits::COMMAND_BYTES)));
        }
        let patience = duration("prompt_ms", request.prompt_ms, limits::WAIT_LONGEST)?.unwrap_or(PROMPT_PATIENCE);
        let begun = Instant::now();
        let pane = deadline.before(NOT_TYPED, self.resolve_pane(target)).await?;
        audit.resolved(pane.id());
        let exclusive = Arc::new(ExclusiveRun::claim(&pane, deadline).await?);
        // The command's marks appear only in the output.
        deadline.before(NOT_TYPED, self.host.server_of(&pane).let_flow(pane.id())).await?;
        let mut attempts = ATTEMPTS;
        let (reader, typed) = loop {
            let reader = self.wait_for_idle_shell(&pane, deadline, patience).await?;
            let pending = PendingCommand {
                exclusive: exclusive.clone(),
                reader,
                command: command.to_owned(),
                clear: request.clear_line,
            };
            if let Some(typed) = self.type_in_time(pending, deadline).await? {
                break (reader, typed);
            }
            // The shell ran something, or started another shell, while run looked at its prompt.
            attempts -= 1;
            if attempts == 0 {
                let message = format!(
                    "the program in the foreground of pane {} changed each time run looked at the prompt; nothing \
                     was run",
                    pane.id()
                );
                return Err(Error::new(ErrorCode::Conflict, message));
            }
        };
        let Typed { prompt, line, mark, file } = typed;
        pane.set_typed_run(request.key.clone());
        let lengths = [command.len(), command.chars().count()];
        Ok(StartedRun {
            host: self.host.clone(),
            exclusive,
            reader,
            prompt,
            line,
            mark,
            lengths,
            escapes: request.escapes,
            begun,
            deadline,
            file: Mutex::new(file),
        })
    }

    /// Returns the idle shell of the pane. Waits for a shell that is starting, and for at most
    /// `patience` for the end of the program that runs in it.
    async fn wait_for_idle_shell(
        &self,
        pane: &Arc<PaneState>,
        deadline: Deadline,
        patience: Duration,
    ) -> Result<IdleShell> {
        let host = &self.host;
        deadline.before(NOT_TYPED, host.server().fresh()).await?;
        let mut changes = pane.changes();
        let (begun, mut busy) = (Instant::now(), None);
        let mut changed = begun;
        let mut runs = None;
        let rests = async {
            loop {
                changes.borrow_and_update();
                let occupied = match shell::waiting_shell(host, pane).await {
                    ForegroundState::Shell(reader) => return Ok(reader),
                    ForegroundState::Busy(name) => {
                        if busy.get_or_insert_with(Instant::now).elapsed() >= SHELL_START {
                            return Err(Refusal::Occupied(running(&name)));
                        }
                        None
                    }
                    ForegroundState::Other(name) if shell::UNSUPPORTED.contains(&name.as_str()) => {
                        return Err(Refusal::Never(format!("`{name}` is a shell in which run cannot run commands")));
                    }
                    ForegroundState::Other(name) => Some(running(&name)),
                    ForegroundState::Question(shell) => Some(format!("`{shell}` waits for the answer to a question")),
                };
                let looks = match occupied {
                    None => true,
                    Some(what) => {
                        if begun.elapsed() >= patience {
                            return Err(Refusal::Occupied(what));
                        }
                        (busy, runs) = (None, Some(what));
                        changed.elapsed() < PROMPT_LOOKS
                    }
                };
                // A starting shell may print its prompt before it takes over the terminal, and no
                // event announces that. Another program's changes show in its output.
                let left = patience.saturating_sub(begun.elapsed());
                let pause = if looks { SHELL_LOOK } else { left };
                match tokio::time::timeout(pause, changes.changed()).await {
                    Ok(Err(_)) => return Err(Refusal::Occupied(running("nothing"))),
                    Ok(Ok(())) => changed = Instant::now(),
                    Err(_) => {}
                }
            }
        };
        let refused = |refusal: Refusal| {
            let (what, stage) = match refusal {
                Refusal::Occupied(what) => (what, Some("occupied")),
                Refusal::Never(what) => (what, None),
            };
            let message =
                format!("no idle shell in pane {}: {what}; use send-keys and wait-for, or another pane", pane.id());
            let error = Error::new(ErrorCode::Conflict, message);
            match stage {
                Some(stage) => error.at_stage(stage),
                None => error,
            }
        };
        match tokio::time::timeout(deadline.remaining(), rests).await {
            Ok(Ok(reader)) => Ok(reader),
            Ok(Err(refusal)) => Err(refused(refusal)),
            Err(_) => Err(refused(Refusal::Occupied(runs.unwrap_or_else(|| running(&pane.metadata().command))))),
        }
    }
}

/// Why no command can be run in a pane.
enum Refusal {
    /// A program runs there, which may end.
    Occupied(String),
    /// No wait would change it.
    Never(String),
}

/// Says that a program runs.
fn running(name: &str) -> String {
    let what = format!("`{name}` is running");
    if shell::CARRIERS.contains(&name) {
        format!("{what}, and no shell behind it marks its prompts by the shell integration of muxtap")
    } else {
        what
    }
}

/// A command that was typed, and the known facts about it.
pub(super) struct StartedRun {
    host: Arc<Host>,
    exclusive: Arc<ExclusiveRun>,
    reader: IdleShell,
    /// The prompt at which the command was typed.
    prompt: EmptyPrompt,
    /// The line that was typed.
    line: TypedLine,
    /// The stream's end just before the command was typed.
    mark: u64,
    /// The command's length in bytes and in characters: shells report either.
    lengths: [usize; 2],
    /// Whether the answer keeps the output's colors.
    escapes: bool,
    begun: Instant,
    deadline: Deadline,
    /// The file that the shell reads; removed with the run.
    file: Mutex<Option<RunFile>>,
}

impl StartedRun {
    pub(super) fn pane(&self) -> &Arc<PaneState> {
        &self.exclusive.pane
    }

    fn marks(&self) -> CommandMarks {
        command_marks(self.pane(), &self.exclusive.nonce)
    }

    /// Lets other callers run a command in the pane: the timeout of this one has expired, and it is
    /// still watched.
    pub(super) fn release(&self) {
        self.exclusive.release();
    }

    /// Waits for the command's end, however it ended.
    pub(super) async fn until_end(&self, server: &Server) -> RunEnd {
        let running = RunningCommand { server, pane: self.pane(), reader: self.reader, prompt: &self.prompt };
        loop {
            let end = running.until_end(&|| self.marks()).await;
            if end != RunEnd::NotBegun {
                return end;
            }
            self.remove_file();
            let prompt = Prompt { server, pane: self.pane(), reader: self.reader };
            match fate(&prompt, &self.exclusive.nonce).await {
                Fate::Begun => {}
                Fate::Unknown => return RunEnd::NotBegun,
                Fate::NotBegun => {
                    // Enter was ignored, as with `stty igncr`.
                    let is_removed = prompt.remove_left_line(&self.line).await.unwrap_or(false);
                    self.pane().end_command_line(is_removed);
                    return if self.line.reads_file && is_removed { RunEnd::NotRun } else { RunEnd::NotBegun };
                }
            }
        }
    }

    /// Removes the file: a shell that has not read it yet never runs the command.
    fn remove_file(&self) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(file);
    }

    /// Returns where the retained part of the command's output begins, where the output ends, and
    /// whether its beginning was dropped.
    pub(super) fn extent(&self) -> Option<(u64, u64, bool)> {
        let found = self.marks();
        let locked = self.pane().lock();
        let (begin, end) = (found.begin?, found.end.map_or_else(|| locked.ring().end(), |(end, _)| end));
        let from = begin.max(locked.ring().start());
        Some((from, end.max(from), from > begin))
    }

    /// Returns the time since the run was requested.
    pub(super) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Describes why a command does not end, for an error message: the program in the foreground,
    /// and the line at which it waits.
    pub(super) async fn what_waits(&self, output: &str) -> String {
        let runs = match shell::foreground_state(&self.host, self.pane().metadata()).await {
            ForegroundState::Other(what) if !what.is_empty() => format!(": `{what}` runs there"),
            _ => String::new(),
        };
        match output.rsplit('\n').next().map(str::trim).filter(|line| !line.is_empty()) {
            Some(line) => format!("{runs}, and its last line is `{line}`"),
            None => runs,
        }
    }

    /// Returns the answer of an ended run.
    pub(super) async fn answer(&self, end: RunEnd) -> Result<RunAnswer> {
        let pane = self.pane();
        if self.marks().begin.is_none() {
            // The answer must be true afterwards, too: a shell that has not read the file never will.
            self.remove_file();
        }
        let found = self.marks();
        let (output, end_offset, truncated) = output(pane, &found, self.escapes);
        let details = || {
            let status = found.exit.and_then(|exit| exit.status);
            let cursor = pane.cursor(end_offset).to_string();
            let shell_ended = end == RunEnd::Shell;
            serde_json::json!({ "output": output, "cursor": cursor, "shell_ended": shell_ended, "exit_status": status })
        };
        if let Some((end, _)) = found.end {
            pane.set_run_end(end);
        }
        // The shell runs something other than the command.
        let altered = found.length.is_some_and(|length| !self.lengths.contains(&length));
        if altered || found.begin.is_none() {
            let typed = recent_output(pane, self.mark);
            let (code, what) = match end {
                _ if altered => (ErrorCode::InconsistentState, "the shell received something other than the command"),
                RunEnd::Shell | RunEnd::Command | RunEnd::Abandoned => {
                    (ErrorCode::Conflict, "the shell has ended, and whether it ran the command is not known,")
                }
                RunEnd::Timeout => (ErrorCode::Timeout, "the shell did not begin the command in time"),
                RunEnd::NotRun => (
                    ErrorCode::InconsistentState,
                    "the shell did not begin the command, and nothing was run (`stty sane` helps if it ignores Enter)",
                ),
                RunEnd::NotBegun => (
                    ErrorCode::InconsistentState,
                    "the command was not seen to begin, and whether it ran is not known,",
                ),
            };
            let message = format!("{what} in pane {}; output since then: {typed:?}", pane.id());
            return Err(Error::new(code, message).at_stage("typed").with_details(details()));
        }
        if end == RunEnd::Timeout {
            let message = format!(
                "the command did not end within {} ms; it continues in pane {}{}",
                self.deadline.given().as_millis(),
                pane.id(),
                self.what_waits(&output).await
            );
            return Err(Error::new(ErrorCode::Timeout, message).at_stage("running").with_details(details()));
        }
        if end == RunEnd::Abandoned {
            let message = format!(
                "the command was interrupted in pane {}: the shell waits for a command again and reported no status",
                pane.id()
            );
            return Err(Error::new(ErrorCode::InconsistentState, message).at_stage("running").with_details(details()));
        }
        // Behind another terminal, the status of the pane's process is not that of the shell.
        let exit = found.exit.filter(|_| !self.reader.is_marked);
        let status = found.end.map_or_else(|| exit.and_then(|exit| exit.status), |(_, status)| status);
        Ok(RunAnswer {
            pane: pane.id(),
            output,
            exit_status: status,
            duration_ms: self.begun.elapsed().as_millis() as u64,
            cursor: pane.cursor(end_offset),
            truncated,
            shell_ended: found.end.is_none(),
            method: RunMethod::Sentinel,
        })
    }
}

/// A command that was typed into a shell.
struct RunningCommand<'a> {
    server: &'a Server,
    pane: &'a Arc<PaneState>,
    reader: IdleShell,
    /// The prompt at which the command was typed.
    prompt: &'a EmptyPrompt,
}

impl RunningCommand<'_> {
    /// Waits until the command or its shell has ended, or the shell waits for a line without having
    /// begun the command.
    async fn until_end(&self, find: &impl Fn() -> CommandMarks) -> RunEnd {
        let mut changes = self.pane.changes();
        let sent = Instant::now();
        let mut shell = pin!(self.shell_ended());
        let mut shell_ended = None;
        let is_panes = self.reader.pid == Some(self.pane.metadata().pid);
        let exit_known = if is_panes { PANE_EXIT_KNOWN } else { EXIT_KNOWN };
        // A check can find the shell between two states: the next one follows after twice the quiet
        // time.
        let mut quiet_since = sent;
        let mut quiet = BEGINNING;
        loop {
            changes.borrow_and_update();
            let found = find();
            if found.end.is_some() {
                return RunEnd::Command;
            }
            if found.exit.is_some() {
                return RunEnd::Shell;
            }
            // A shell that has ended prints nothing more; tmux reports its status when it closes
            // the pane.
            if shell_ended.is_some_and(|at: Instant| at.elapsed() >= exit_known) {
                // On a full machine its last output may still be under way: it arrives before tmux's reply.
                let prompt = Prompt { server: self.server, pane: self.pane, reader: self.reader };
                prompt.replies().await;
                return if find().end.is_some() { RunEnd::Command } else { RunEnd::Shell };
            }
            let last_output = self.pane.lock().last_output().max(sent);
            if quiet_since != last_output {
                (quiet_since, quiet) = (last_output, BEGINNING);
            }
            let unbegun = found.begin.is_none() && shell_ended.is_none();
            // Only the prompt shows that the shell waits for a line and runs nothing of its own.
            let abandonable = found.begin.is_some() && shell_ended.is_none() && !self.prompt.text.trim().is_empty();
            if unbegun && sent.elapsed() >= BEGINNING {
                // A hook of the shell takes long: other output is not held back for it.
                self.pane.show_held_text();
            }
            let looks = (unbegun || abandonable) && quiet_since.elapsed() >= quiet;
            if looks {
                quiet = if unbegun { quiet } else { 2 * quiet };
            }
            if looks && self.reader.is_marked && self.has_left().await {
                return RunEnd::Shell;
            }
            if looks && self.is_idle().await {
                // Marks that arrived meanwhile count.
                let is_back = abandonable && self.is_prompt_back().await;
                let now = find();
                if unbegun && now.begin.is_none() {
                    return RunEnd::NotBegun;
                }
                if is_back && now.end.is_none() && self.pane.lock().last_output().max(sent) == quiet_since {
                    return RunEnd::Abandoned;
                }
            }
            let due = shell_ended.map_or(quiet_since + quiet, |at| at + exit_known).max(Instant::now() + CALM);
            let waits = shell_ended.is_some() || unbegun || abandonable;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return RunEnd::Shell },
                () = &mut shell, if shell_ended.is_none() => shell_ended = Some(Instant::now()),
                () = tokio::time::sleep_until(due), if waits => {}
            }
        }
    }

    /// Waits for the end of the shell's process, if that can be known.
    async fn shell_ended(&self) {
        let local = self.server.link().spec().is_local();
        match self.reader.pid.filter(|_| local).and_then(death::watch) {
            Some(ended) => ended.await,
            None => std::future::pending().await,
        }
    }

    /// Returns whether the prompt at which the command was typed is shown again.
    async fn is_prompt_back(&self) -> bool {
        let prompt = Prompt { server: self.server, pane: self.pane, reader: self.reader };
        prompt.is_back(&self.prompt.text).await.unwrap_or(false)
    }

    /// Returns whether the shell behind another terminal has given way to the one outside.
    async fn has_left(&self) -> bool {
        let waiting = shell::waiting_shell(&self.server.host, self.pane).await;
        matches!(waiting, ForegroundState::Shell(IdleShell { is_marked: false, .. }))
    }

    /// Returns whether the shell waits for a line.
    async fn is_idle(&self) -> bool {
        matches!(
            shell::waiting_shell(&self.server.host, self.pane).await,
            ForegroundState::Shell(IdleShell { pid, .. }) if pid == self.reader.pid
        )
    }
}

/// Returns the end of the pane's output since an offset, for an error message.
fn recent_output(pane: &PaneState, since: u64) -> String {
    let locked = pane.lock();
    let text = render::render_text(locked.ring(), since.max(locked.ring().start()), locked.ring().end());
    let skipped = text.chars().count().saturating_sub(SEEN);
    text.chars().skip(skipped).collect()
}

/// Returns the marks with this nonce that the typed line made the shell print.
fn command_marks(pane: &PaneState, nonce: &str) -> CommandMarks {
    let locked = pane.lock();
    let marks = locked.shell_marks().marks(nonce).unwrap_or_default();
    CommandMarks { begin: marks.begin, length: marks.length, end: marks.end, exit: locked.exit() }
}

/// Returns the output between the marks, its end, and whether its beginning was dropped.
fn output(pane: &PaneState, found: &CommandMarks, escapes: bool) -> (String, u64, bool) {
    let locked = pane.lock();
    let end = found.end.map_or_else(|| locked.ring().end(), |(end, _)| end);
    let Some(begin) = found.begin else { return (String::new(), end, false) };
    let from = begin.max(locked.ring().start());
    let redrawable = locked.redrawable(begin, end);
    let text = render::render_text(locked.ring(), from, end);
    let colored = (escapes && end > from).then(|| {
        let chunk = locked.ring().read(from, locked.reading(end - from, ReadFormat::Ansi));
        (chunk.end == end).then(|| colors::colored(&chunk.shown(), &text))?
    });
    drop(locked);
    let text = redrawable.and_then(|output| output.text()).or(colored.flatten()).unwrap_or(text);
    (text, end, from > begin)
}
