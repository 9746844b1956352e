//! A shell's prompt: whether it is empty, and typing a line at it.
//!
//! `look` finds out by marks and the screen, and types nothing; `terminal` asks the terminal where the shell has no
//! line editor; `line` types.

mod line;
mod look;
mod terminal;

pub(crate) use line::Shown;

use std::{sync::Arc, time::Duration};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::{
    protocol::command::{Command, CommandLine},
    stream::width::columns,
};
use muxtap_tmux::Request;
use tokio::time::Instant;

use crate::{
    PaneState, Server,
    input::shell::{self, ForegroundState, IdleShell},
};

/// How long a line editor prints nothing after it has drawn everything.
const CALM: Duration = Duration::from_millis(150);
/// How long a shell may take to show that a key arrived.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait for the end of output that follows keys: another program may print all the time.
const NOISE: Duration = Duration::from_secs(2);
/// How long a shell may take to read typed keys: its line editor may run a command, or the machine is busy.
const UNREAD: Duration = Duration::from_secs(15);
/// How often a shell is examined that does not wait for a line.
const LOOK: Duration = Duration::from_millis(20);
/// How often a line is examined again on which a user types.
const ATTEMPTS: u32 = 3;

const BACKSPACE: &[u8] = b"\x7f";
const INTERRUPT: &[u8] = b"\x03";

/// A pane's cursor and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CursorPosition {
    /// Column of the cursor, from 0.
    pub(crate) x: u16,
    /// Row of the cursor, from 0.
    pub(crate) y: u16,
    /// Columns of the pane.
    pub(crate) width: u16,
    height: u16,
}

impl CursorPosition {
    fn is_lowest(self) -> bool {
        self.y + 1 >= self.height
    }
}

/// A prompt at which nothing is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EmptyPrompt {
    /// The cursor's position.
    pub(crate) cursor: CursorPosition,
    /// Keys that come before the line: they make a line editor with vi keys insert text; without a line editor, they
    /// remove any text that a user types while the terminal has the keys but tmux has not yet seen them.
    pub(crate) clear: Vec<u8>,
    /// The column at which a command line begins.
    pub(crate) column: u16,
    /// How many rows above that column the prompt ends, and in which column.
    pub(crate) above: (u16, u16),
    /// Whether the shell has a line editor; otherwise, the terminal collects the line.
    pub(crate) has_editor: bool,
    /// The last row of the prompt as shown, if a line editor has the line.
    pub(crate) text: String,
}

impl EmptyPrompt {
    /// Returns the number of rows from the row in which the prompt ends to the row below a line of
    /// this many cells.
    pub(crate) fn rows_below(&self, cells: usize) -> usize {
        usize::from(self.above.0) + (usize::from(self.column) + cells) / usize::from(self.cursor.width.max(1)) + 1
    }

    /// Returns whether a line of this many cells ends where a row ends: the cursor may be in that row
    /// or in the next one.
    pub(crate) fn fills_row(&self, cells: usize) -> bool {
        (usize::from(self.column) + cells).is_multiple_of(usize::from(self.cursor.width.max(1)))
    }
}

/// The state of a prompt: empty, or why not.
enum PromptState {
    Empty(EmptyPrompt),
    /// This text is typed.
    Typed(String),
    /// The shell waits for the rest of a command, with this prompt.
    Continued(String),
    /// This row, up to the cursor, does not tell.
    Unknown(String),
    /// The shell asks something else than for a command.
    Question(String),
    /// The screen changed meanwhile.
    Disturbed,
    /// Another program or shell has the terminal now.
    Gone,
}

/// The cursor's position after keys.
struct CursorMove {
    spot: CursorPosition,
    /// Whether this is the expected position.
    reached: bool,
    /// Whether output still followed when the wait for its end was over.
    noisy: bool,
}

/// A shell's prompt under examination.
pub(crate) struct Prompt<'a> {
    pub(crate) server: &'a Server,
    pub(crate) pane: &'a Arc<PaneState>,
    pub(crate) reader: IdleShell,
}

impl Prompt<'_> {
    /// Returns the prompt if nothing is typed at it; `clear` clears it first. `None` if another program or shell has
    /// the terminal now: a line was entered, or the shell has started another one. The error shows the typed text.
    pub(crate) async fn empty(&self, clear: bool) -> Result<Option<EmptyPrompt>> {
        for attempt in 0..ATTEMPTS {
            let Some(now) = self.now().await else { return Ok(None) };
            let found = if now.reader.canonical { now.ask_terminal().await? } else { now.look().await? };
            let kill = now.reader.keys.kill;
            let abandon = match found {
                PromptState::Empty(prompt) => return Ok(Some(prompt)),
                PromptState::Gone => return Ok(None),
                PromptState::Disturbed if attempt + 1 < ATTEMPTS => continue,
                PromptState::Typed(_) => attempt > 0 || now.reader.canonical && kill.is_none(),
                PromptState::Question(_)
                | PromptState::Continued(_)
                | PromptState::Unknown(_)
                | PromptState::Disturbed => true,
            };
            if !clear || attempt + 1 == ATTEMPTS {
                return Err(self.refusal(&found));
            }
            let keys = match kill.as_slice() {
                _ if abandon => INTERRUPT,
                kill if now.reader.canonical => kill,
                _ => b"\x05\x15",
            };
            let Some(CursorMove { spot, .. }) = self.ask(keys, |_| false).await? else { return Ok(None) };
            if abandon && self.is_same_shell().await {
                // After an interrupt, the shell shows its primary prompt.
                let prompt = self.row(spot.y, spot.x).await?;
                self.pane.set_primary_prompt(self.reader.id(), prompt);
            }
        }
        Err(self.refusal(&PromptState::Unknown(String::new())))
    }

    fn refusal(&self, found: &PromptState) -> Error {
        let pane = self.pane.id();
        let (message, typed) = match found {
            PromptState::Typed(text) => (
                format!("the prompt of pane {pane} already contains `{text}`, which would run with the command"),
                Some(text),
            ),
            PromptState::Continued(prompt) => (
                format!("the shell in pane {pane} is waiting for the rest of a command (its prompt is `{prompt}`)"),
                None,
            ),
            PromptState::Question(prompt) => {
                (format!("the shell in pane {pane} waits for the answer to `{}`", prompt.trim()), None)
            }
            PromptState::Unknown(row) if !row.trim().is_empty() => {
                let integration = "the shell integration of muxtap marks prompts";
                (format!("cannot tell whether `{row}` in pane {pane} is an empty prompt ({integration})"), None)
            }
            PromptState::Empty(_) | PromptState::Unknown(_) | PromptState::Disturbed | PromptState::Gone => {
                (format!("cannot tell whether the prompt of pane {pane} contains text: it is not visible"), None)
            }
        };
        let message =
            format!("{message}; nothing was run: run it or clear it, or let run clear it (--clear-line, clear_line)");
        Error::new(ErrorCode::Conflict, message).with_details(serde_json::json!({ "typed": typed }))
    }

    /// Returns whether this is known to be the shell's primary prompt.
    fn is_primary_prompt(&self, prompt: &str) -> bool {
        self.pane.primary_prompt(self.reader.id()).as_deref() == Some(prompt)
    }

    /// Returns whether this is the shell that was found. The kind is compared, too: shells behind another terminal have
    /// no pid here, and `exec zsh` keeps it.
    fn is_reader(&self, shell: &IdleShell) -> bool {
        shell.id() == self.reader.id() && shell.shell == self.reader.shell
    }

    /// Returns whether the shell that was found waits for a line. Behind another terminal, its marks tell.
    pub(crate) async fn is_same_shell(&self) -> bool {
        match shell::waiting_shell(&self.server.host, self.pane).await {
            ForegroundState::Shell(shell) => self.is_reader(&shell),
            ForegroundState::Busy(_) | ForegroundState::Question(_) | ForegroundState::Other(_) => false,
        }
    }

    /// Returns this prompt with the terminal's settings of now: a shell that starts switches its line editor on
    /// later. `None` if another shell has the terminal.
    async fn now(&self) -> Option<Self> {
        let reader = match shell::waiting_shell(&self.server.host, self.pane).await {
            ForegroundState::Shell(shell) if self.is_reader(&shell) => shell,
            ForegroundState::Shell(_) => return None,
            ForegroundState::Busy(_) | ForegroundState::Question(_) | ForegroundState::Other(_) => self.reader,
        };
        Some(Self { reader, ..*self })
    }

    /// Returns whether tmux replied and has the pane.
    pub(crate) async fn replies(&self) -> bool {
        self.spot().await.is_ok()
    }

    /// Returns whether the cursor is directly after the prompt, at which nothing is typed.
    pub(crate) async fn is_empty_again(&self, prompt: &EmptyPrompt) -> Result<bool> {
        let spot = self.spot().await?;
        Ok(spot.x == prompt.column && self.row(spot.y, spot.x).await? == prompt.text)
    }

    /// Presses keys for the terminal or the line editor. `None` if a user has entered the line: then they would go
    /// to the program that it runs.
    async fn ask(&self, keys: &[u8], is_there: impl Fn(CursorPosition) -> bool) -> Result<Option<CursorMove>> {
        let give_up = Instant::now() + PATIENCE;
        while !self.is_same_shell().await {
            if Instant::now() >= give_up || self.now().await.is_none() {
                return Ok(None);
            }
            tokio::time::sleep(LOOK).await;
        }
        let begin = self.pane.lock().ring().end();
        self.server.press(self.pane, keys).await?;
        self.come_to_once_read(begin, is_there).await.map(Some)
    }

    /// Like [`Self::come_to`], but waits longer while the shell has not read its keys.
    async fn come_to_once_read(&self, begin: u64, is_there: impl Fn(CursorPosition) -> bool) -> Result<CursorMove> {
        let give_up = Instant::now() + UNREAD;
        loop {
            let moved = self.come_to(begin, &is_there).await?;
            let is_silent = self.pane.lock().ring().end() == begin;
            if moved.reached || !is_silent || Instant::now() >= give_up || !self.has_unread_keys().await {
                return Ok(moved);
            }
        }
    }

    /// Presses keys. Returns the cursor's position once it is as expected, or once nothing moves
    /// any more.
    async fn press(&self, keys: &[u8], is_there: impl Fn(CursorPosition) -> bool) -> Result<CursorMove> {
        let begin = self.pane.lock().ring().end();
        self.server.press(self.pane, keys).await?;
        self.come_to(begin, is_there).await
    }

    /// Returns the cursor's position once it is as expected, or once no more output follows a given
    /// offset of the stream.
    async fn come_to(&self, begin: u64, is_there: impl Fn(CursorPosition) -> bool) -> Result<CursorMove> {
        let mut changes = self.pane.changes();
        let sent = Instant::now();
        loop {
            changes.borrow_and_update();
            let due = {
                let locked = self.pane.lock();
                if locked.exit().is_some() {
                    return Err(self.ended());
                }
                if locked.ring().end() > begin { Some(locked.last_output() + CALM) } else { None }
            };
            if due.is_some() {
                let spot = self.spot().await?;
                if is_there(spot) {
                    return Ok(CursorMove { spot, reached: true, noisy: false });
                }
            }
            let latest = sent + NOISE;
            let due = due.unwrap_or(sent + PATIENCE);
            let now = Instant::now();
            if now >= due || now >= latest {
                return Ok(CursorMove { spot: self.spot().await?, reached: false, noisy: now < due });
            }
            tokio::select! {
                () = tokio::time::sleep_until(due.min(latest)) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Returns whether the shell has not yet read what was typed.
    async fn has_unread_keys(&self) -> bool {
        let host = &self.server.host;
        if !host.server().spec().is_local() {
            return false;
        }
        let unread = host.probe(self.pane.metadata(), |proc, metadata| proc.has_unread_input(&metadata.tty)).await;
        unread.unwrap_or(false) && self.is_same_shell().await
    }

    /// Returns whether the cursor is directly after this prompt.
    pub(crate) async fn is_back(&self, prompt: &str) -> Result<bool> {
        let CursorPosition { x, y, .. } = self.spot().await?;
        Ok(!prompt.trim().is_empty() && self.row(y, x).await? == prompt)
    }

    fn ended(&self) -> Error {
        Error::new(ErrorCode::Conflict, format!("the process in pane {} has ended; nothing was run", self.pane.id()))
    }

    /// Returns the cursor's position in tmux, which is ahead of the output that has arrived in
    /// muxtap.
    async fn spot(&self) -> Result<CursorPosition> {
        let question = || {
            let ask = Command::new("display-message").flag("-p").opt("-t", self.pane.id().to_string());
            let format = "#{cursor_x} #{cursor_y} #{pane_width} #{pane_height}";
            Request::Plain(CommandLine::of([ask.format(format)]))
        };
        let answer = self.server.link().read(Some(self.pane.id()), question).await?;
        let answer = answer.ok().and_then(|bodies| {
            let text = String::from_utf8_lossy(bodies.first()?).into_owned();
            let mut numbers = text.split_whitespace().map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some(CursorPosition { x: next()?, y: next()?, width: next().filter(|width| *width > 0)?, height: next()? })
        });
        answer.ok_or_else(|| Error::not_found(format!("pane {} no longer exists", self.pane.id())))
    }

    /// Returns the first cells of a row.
    async fn row(&self, y: u16, cells: u16) -> Result<String> {
        self.text_from(CursorPosition { x: 0, y, width: 0, height: 0 }, usize::from(cells)).await
    }

    /// Returns rows as `capture-pane` prints them with this flag.
    async fn captured(&self, first: u16, last: usize, flag: &'static str) -> Result<String> {
        let question = || {
            let ask = Command::new("capture-pane").flag("-p").flag(flag).opt("-t", self.pane.id().to_string());
            Request::Framed(vec![ask.opt("-S", first.to_string()).opt("-E", last.to_string())])
        };
        let answer = self.server.link().read(Some(self.pane.id()), question).await?;
        let text = answer.ok().and_then(|parts| parts.into_iter().next()).unwrap_or_default();
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the text of this many cells before a position, across the ends of rows.
    async fn text_before(&self, spot: CursorPosition, cells: usize) -> Result<String> {
        let width = u64::from(spot.width.max(1));
        let at = u64::from(spot.y) * width + u64::from(spot.x);
        let cells = at.min(cells as u64);
        let (x, y) = (u16::try_from((at - cells) % width), u16::try_from((at - cells) / width));
        let start = CursorPosition { x: x.unwrap_or_default(), y: y.unwrap_or_default(), ..spot };
        self.text_from(start, usize::try_from(cells).unwrap_or_default()).await
    }

    /// Returns the text of this many cells from a position on, across the ends of rows.
    async fn text_from(&self, from: CursorPosition, cells: usize) -> Result<String> {
        let rows = if from.width == 0 { 0 } else { (usize::from(from.x) + cells) / usize::from(from.width) };
        let text = self.captured(from.y, usize::from(from.y) + rows, "-N").await?;
        let mut all = String::new();
        for row in text.lines() {
            let taken: usize = row.chars().map(columns).sum();
            all.push_str(row);
            all.extend(std::iter::repeat_n(' ', usize::from(from.width).saturating_sub(taken)));
        }
        let mut column = 0;
        let within = all.chars().filter(|character| {
            let at = column;
            column += columns(*character);
            (usize::from(from.x)..usize::from(from.x) + cells).contains(&at)
        });
        Ok(within.collect())
    }
}
