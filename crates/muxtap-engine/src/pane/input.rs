//! Input that muxtap types in a pane: its records, and the requests that have a pane to themselves.

use std::time::Instant;

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::{protocol::ids::PaneId, stream::render};

use super::{LockedPane, PaneState};

/// Records of what muxtap typed in a pane, and what it knows of the pane's prompt.
#[derive(Default)]
pub(super) struct Input {
    /// The stream's end when muxtap last sent input, and the time.
    last: Option<(u64, Instant)>,
    /// The request that types several keys in the pane and reads the pane in between; one at a
    /// time.
    typing: Option<Typing>,
    /// A prompt known to be the shell's primary prompt, not its prompt for the rest of a command.
    prompt: Option<String>,
    /// The nonce of the mark that begins the output of the command line being typed.
    run_nonce: String,
}

impl Input {
    /// Returns the nonce of the mark that begins the output of the command line being typed.
    pub(super) fn run_nonce(&self) -> &str {
        &self.run_nonce
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

    /// Records that a command line is being typed from now on. A mark with this nonce begins its
    /// output. Returns the stream's end.
    pub(crate) fn begin_command_line(&self, nonce: &str) -> u64 {
        let mut locked = self.lock();
        let mark = locked.output.ring.end();
        nonce.clone_into(&mut locked.input.run_nonce);
        locked.output.echo.command_line_begins(mark);
        mark
    }

    /// Records a prompt that is known to be the shell's primary prompt.
    pub(crate) fn set_primary_prompt(&self, prompt: String) {
        self.lock().input.prompt = Some(prompt);
    }

    /// Returns whether this prompt is known to be the shell's primary prompt.
    pub(crate) fn is_primary_prompt(&self, prompt: &str) -> bool {
        self.lock().input.prompt.as_deref() == Some(prompt)
    }
}

impl LockedPane {
    /// Releases the pane that a request had claimed.
    pub(crate) fn end_typing(&mut self) {
        self.input.typing = None;
    }

    /// Records that no command line is being typed.
    pub(crate) fn end_command_line(&mut self) {
        self.output.echo.command_line_ends(None);
    }

    /// Returns where `since: input` begins and the time: at muxtap's last input, or where muxtap
    /// created or respawned the pane, whichever is later.
    pub(crate) fn since_input(&self) -> Option<(u64, Instant)> {
        self.input.last.max(self.process.started())
    }
}
