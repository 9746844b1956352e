//! Input that muxtap types in a pane: its records, and the requests that have a pane to themselves.

use tokio::time::Instant;

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::{protocol::ids::PaneId, stream::render};

use serde::{Deserialize, Serialize};

use super::{LockedPane, PaneState};
use crate::{
    input::{
        command_line::TypedLine,
        shell::{MarkedShell, ShellId},
    },
    limits,
};

/// Switches bracketed paste on: bash and fish begin to edit a line with it, zsh does so after its prompt.
const EDITS: &[u8] = b"\x1b[?2004h";
/// What a terminal that collects the line shows of Ctrl-R, before it prints the typed text again.
const REPRINTED: &[u8] = b"^R\r\n";

/// Records of what muxtap typed in a pane, and what it knows of the pane's prompt.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Input {
    /// The stream's end when muxtap last sent input, and the time.
    #[serde(with = "muxtap_base::age")]
    last: Option<(u64, Instant)>,
    /// The request that types several keys in the pane and reads the pane in between; one at a
    /// time.
    #[serde(skip)]
    typing: Option<Typing>,
    /// A prompt known to be a shell's primary prompt, not its prompt for the rest of a command, and that shell.
    prompt: Option<(ShellId, String)>,
    /// The stream's end when the last `run` had ended: the shell's prompt follows.
    #[serde(skip)]
    run_end: Option<u64>,
    /// The nonce of the mark that begins the output of the command line being typed.
    run_nonce: String,
    /// The command that this line runs.
    run_command: String,
    /// The caller's key of the run whose command was typed and has not ended.
    typed_run: Option<String>,
}

impl Input {
    /// Returns the nonce of the mark that begins the output of the command line being typed.
    pub(super) fn run_nonce(&self) -> &str {
        &self.run_nonce
    }

    /// Returns the command that the line being typed runs.
    pub(super) fn run_command(&self) -> &str {
        &self.run_command
    }

    /// Returns whether a request has the pane to itself.
    pub(super) fn is_exclusive(&self) -> bool {
        self.typing.is_some()
    }
}

/// A request that has a pane to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Typing {
    /// A `run`.
    Run,
    /// An answer to an agent's question.
    Answer,
}

impl Typing {
    /// Returns the error for another request that wants the pane.
    fn refusal(self, pane: PaneId) -> Error {
        let message = match self {
            Self::Run => format!("another run is under way in pane {pane}"),
            Self::Answer => format!("an agent's question is being answered in pane {pane}"),
        };
        Error::new(ErrorCode::Conflict, message)
    }
}

/// An input that was recorded before it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputRecord {
    /// The stream's end at that time, before the input.
    pub(crate) mark: u64,
    at: Instant,
    /// The input before this one.
    before: Option<(u64, Instant)>,
    /// The number of this input in the echo filter.
    input: u64,
}

impl PaneState {
    /// Records an input that is about to be sent. The echo and the program's reaction come after
    /// the returned mark (the stream's end).
    pub(crate) fn record_input(&self, text: &str, tty_echo: bool) -> InputRecord {
        let mut locked = self.lock();
        let LockedPane { output, input, metadata, .. } = &mut *locked;
        let mark = output.ring.end();
        let at = Instant::now();
        let before = input.last.replace((mark, at));
        let line = render::resting_line(&output.ring);
        let columns = metadata.size.width.max(1);
        output.echo.typed(mark, text.as_bytes(), line, columns, tty_echo);
        InputRecord { mark, at, before, input: output.echo.last_input() }
    }

    /// Returns whether the program requested marks around a paste, as far as is known.
    pub(crate) fn brackets_pastes(&self) -> bool {
        self.lock().screen().last().is_some_and(|screen| screen.modes().bracketed_paste)
    }

    /// Takes back the record of an input that was not sent.
    pub(crate) fn retract_input(&self, record: &InputRecord) {
        let mut locked = self.lock();
        if locked.input.last == Some((record.mark, record.at)) {
            locked.input.last = record.before;
        }
        locked.output.echo.not_typed(record.input);
    }

    /// Claims the pane for a request that types several keys and reads the pane in between, until
    /// [`LockedPane::end_typing`].
    ///
    /// Error: `CONFLICT` while another request has the pane.
    pub(crate) fn begin_typing(&self, what: Typing) -> Result<()> {
        let typing = &mut self.lock().input.typing;
        if let Some(other) = typing {
            return Err(other.refusal(self.id));
        }
        *typing = Some(what);
        Ok(())
    }

    /// Records that a command line is being typed from now on, which runs `command`. A mark with this
    /// nonce begins its output. Text is held back until the line has ended. Returns the stream's end.
    pub(crate) fn begin_command_line(&self, nonce: &str, line: &TypedLine, command: &str) -> u64 {
        let mut locked = self.lock();
        nonce.clone_into(&mut locked.input.run_nonce);
        command.clone_into(&mut locked.input.run_command);
        locked.output.begin_command_line(line)
    }

    /// Records that the command of a run was typed, under the caller's key.
    pub(crate) fn set_typed_run(&self, key: Option<String>) {
        self.lock().input.typed_run = key;
    }

    /// Returns whether the command of the run with this key was typed and has not ended.
    pub(crate) fn is_typed_run(&self, key: &str) -> bool {
        self.lock().input.typed_run.as_deref() == Some(key)
    }

    /// Records a prompt that is known to be this shell's primary prompt.
    pub(crate) fn set_primary_prompt(&self, shell: ShellId, prompt: String) {
        self.lock().input.prompt = Some((shell, prompt));
    }

    /// Returns this shell's primary prompt, if it is known. Another shell in the pane has its own.
    pub(crate) fn primary_prompt(&self, shell: ShellId) -> Option<String> {
        let locked = self.lock();
        locked.input.prompt.as_ref().filter(|(known, _)| *known == shell).map(|(_, prompt)| prompt.clone())
    }

    /// Records where a `run` has ended in the stream.
    pub(crate) fn set_run_end(&self, offset: u64) {
        self.lock().input.run_end = Some(offset);
    }

    /// Returns the last line that the shell has printed since a `run` ended, and since its line editor began: its
    /// prompt and what is typed there, without output that precedes them in their row. `by_editor`: whether the line
    /// editor begins before it prints the prompt; zsh's begins after it.
    pub(crate) fn lines_of_shell(&self, by_editor: bool) -> Vec<String> {
        let locked = self.lock();
        let ring = &locked.output.ring;
        let end = ring.end();
        let from = end.saturating_sub(limits::LAST_LINE_BYTES).max(ring.start());
        let editor = memchr::memmem::rfind(&ring.bytes(from, end), EDITS).map(|at| from + at as u64);
        let begins =
            [editor.filter(|_| by_editor), locked.input.run_end.filter(|at| *at >= from)].into_iter().flatten();
        let last_line = |text: String| text.rsplit('\n').next().unwrap_or_default().to_owned();
        begins.map(|at| last_line(render::render_text(ring, at, end))).collect()
    }

    /// Returns whether a trusted shell waits for a line, and nothing was shown since its prompt.
    pub(crate) fn is_trusted_line_empty(&self) -> bool {
        let locked = self.lock();
        locked
            .output
            .commands
            .log
            .open_line()
            .is_some_and(|line| line.is_trusted && locked.shows_nothing_since(line.start))
    }

    /// Returns whether a shell that marks its prompts waits for a line, and nothing was shown since its prompt.
    pub(crate) fn is_marked_line_empty(&self) -> bool {
        let locked = self.lock();
        locked.output.commands.log.open_line().is_some_and(|line| locked.shows_nothing_since(line.start))
    }

    /// Returns what is shown since the prompt of a shell that marks its prompts and waits for a line.
    pub(crate) fn marked_line(&self) -> Option<String> {
        let locked = self.lock();
        let start = locked.output.commands.log.open_line()?.start;
        let ring = &locked.output.ring;
        (start >= ring.start()).then(|| render::render_text(ring, start, ring.end()).trim().to_owned())
    }

    /// Returns the shell that waits for a line, by its marks: it may be behind another terminal (ssh, `sudo -i`), where
    /// the kernel does not show it. A line that was entered is followed by a line end, also if text leaves it out.
    pub(crate) fn marked_shell(&self) -> Option<MarkedShell> {
        let locked = self.lock();
        let line = locked.output.commands.log.open_line()?;
        let ring = &locked.output.ring;
        let shell = MarkedShell::reported(line.shell?)?;
        let is_entered = line.start < ring.start() || {
            let shown = ring.bytes(line.start, ring.end());
            // `run` asks at an empty line only.
            let entered = if shell.has_editor { None } else { shown.strip_prefix(REPRINTED) };
            memchr::memchr(b'\n', entered.unwrap_or(&shown)).is_some()
        };
        (!is_entered).then_some(shell)
    }

    /// Returns whether zsh's line editor waits for a line and nothing was shown since its prompt: it
    /// switches bracketed paste on just after the prompt.
    pub(crate) fn is_zsh_line_empty(&self) -> bool {
        let locked = self.lock();
        let ring = &locked.output.ring;
        let (from, end) = (ring.end().saturating_sub(limits::LAST_LINE_BYTES).max(ring.start()), ring.end());
        let bytes = ring.bytes(from, end);
        let Some(at) = memchr::memmem::rfind(&bytes, EDITS) else { return false };
        let after = at + EDITS.len();
        !bytes.iter().skip(after).any(|byte| *byte == b'\n')
            && render::render_text(ring, from + after as u64, end).trim().is_empty()
    }

    /// Holds no text back any more, although a line is being typed.
    pub(crate) fn show_held_text(&self) {
        let mut locked = self.lock();
        if locked.output.ring.held().is_some() {
            locked.output.ring.show();
            self.notify_changed(locked);
        }
    }

    /// Stops holding text back for a line that is being typed. `is_removed`: the line was removed
    /// again.
    pub(crate) fn end_command_line(&self, is_removed: bool) {
        let mut locked = self.lock();
        locked.output.forget_command_line(is_removed);
        self.notify_changed(locked);
    }
}

impl LockedPane {
    /// Returns whether no text came since this offset.
    fn shows_nothing_since(&self, start: u64) -> bool {
        let ring = &self.output.ring;
        start >= ring.start() && render::render_text(ring, start, ring.end()).trim().is_empty()
    }

    /// Releases the pane that a request had claimed.
    pub(crate) fn end_typing(&mut self) {
        self.input.typing = None;
    }

    /// Returns where `since: input` begins and the time: at muxtap's last input, or where muxtap
    /// created or respawned the pane, whichever is later.
    pub(crate) fn since_input(&self) -> Option<(u64, Instant)> {
        self.input.last.max(self.process.started())
    }
}
