//! Finding out what is typed at a shell's prompt, by querying the line editor.
//!
//! A probe character (the *question* in names here) is typed and the cursor is sent to both ends of
//! the input: its positions show how much is typed. If the terminal itself collects the line, it is
//! made to print that line again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::{
    protocol::command::{Command, CommandLine},
    stream::width::columns,
};
use muxtap_tmux::Request;

use crate::{
    PaneState, Server,
    input::shell::{self, ForegroundState, IdleShell, Shell},
};

/// How long a line editor prints nothing after it has drawn everything.
const CALM: Duration = Duration::from_millis(150);
/// How long a shell may take to show that a key arrived.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a line is examined again on which a user types.
const ATTEMPTS: u32 = 3;

/// The probe: the character that is typed to see where it appears. In no shell does it expand the
/// text before it.
const PROBE: &[u8] = b":";
const BACKSPACE: &[u8] = b"\x7f";
const ESCAPE: &[u8] = b"\x1b";
const INTERRUPT: &[u8] = b"\x03";
const LEFT: &[u8] = b"\x02";
const RIGHT: &[u8] = b"\x06";
/// Ctrl-A as shown by a line editor with vi keys.
const SHOWN_CTRL_A: &str = "^A";
/// Makes bash's line editor expand its continuation prompt (`shell-expand-line`). The text is an
/// argument of the `:` before it, so Enter does nothing if a user presses it meanwhile.
const BASH_PS2: &[u8] = b" \"${PS2@P}\"\x1b\x05\x05";
/// Moves up in zsh's line editor: from the start of a line to the start of the line above.
const ZSH_UP: &[u8] = &[0x01; 32];
/// Moves down again, to the end of the last line.
const ZSH_DOWN: &[u8] = &[0x05; 32];
/// Makes a terminal in cooked mode print the typed line again (`VREPRINT`, termios(3)).
const REPRINT: &[u8] = b"\x12";

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
    /// Returns the number of cells from `other` to this position, along the lines.
    fn cells_from(self, other: Self) -> i64 {
        let at = |spot: Self| i64::from(spot.y) * i64::from(spot.width) + i64::from(spot.x);
        at(self) - at(other)
    }

    fn is_lowest(self) -> bool {
        self.y + 1 >= self.height
    }
}

/// A prompt at which nothing is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EmptyPrompt {
    /// The cursor's position.
    pub(crate) cursor: CursorPosition,
    /// Keys that remove the probe, and any text that a user types while the terminal has the keys
    /// but tmux has not yet seen them.
    pub(crate) clear: Vec<u8>,
    /// The column at which a command line begins.
    pub(crate) column: u16,
    /// How many rows above that column the prompt ends, and in which column.
    pub(crate) above: (u16, u16),
    /// The keymap of the line editor; `None` if the terminal collects the line.
    pub(crate) editor: Option<Keymap>,
    /// The last row of the prompt as shown, if a line editor has the line.
    pub(crate) text: String,
}

/// The keymap of a line editor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keymap {
    /// Emacs keys.
    Emacs,
    /// Vi keys, in insert mode.
    Vi,
}

impl Keymap {
    /// Returns the keys that remove the probe and text that a user types after it. Backspace
    /// removes the probe, which keeps it out of the text that Ctrl-Y restores; Ctrl-Y restores the
    /// rest.
    fn clear(self) -> Vec<u8> {
        match self {
            Self::Emacs => b"\x7f\x01\x0b".to_vec(),
            // zsh's vi mode deletes no text that was there before insert mode began.
            Self::Vi => b"\x1b0Di".to_vec(),
        }
    }
}

/// The state of a prompt: empty, or why not.
enum PromptState {
    Empty(EmptyPrompt),
    /// This text is typed.
    Typed(String),
    /// The shell waits for the rest of a command, with this prompt.
    Continued(String),
    /// The prompt may be the shell's primary prompt or a continuation prompt.
    Unsure(String),
    /// The line does not show what is typed.
    Unknown,
    /// A user typed meanwhile, and the probe was removed.
    Disturbed,
}

/// The cursor's position after keys.
struct CursorMove {
    spot: CursorPosition,
    /// Whether this is the expected position.
    reached: bool,
}

/// A shell's prompt under examination.
pub(crate) struct Prompt<'a> {
    pub(crate) server: &'a Server,
    pub(crate) pane: &'a Arc<PaneState>,
    pub(crate) reader: IdleShell,
}

impl Prompt<'_> {
    /// Returns the prompt if nothing is typed at it; `clear` clears it first. The error shows the
    /// typed text.
    pub(crate) async fn empty(&self, clear: bool) -> Result<EmptyPrompt> {
        for attempt in 0..ATTEMPTS {
            let found = if self.reader.canonical { self.ask_terminal().await? } else { self.ask_editor().await? };
            let abandon = match found {
                PromptState::Empty(prompt) => return Ok(prompt),
                PromptState::Disturbed if attempt + 1 < ATTEMPTS => continue,
                PromptState::Typed(_) => attempt > 0,
                PromptState::Continued(_) | PromptState::Unsure(_) | PromptState::Unknown | PromptState::Disturbed => {
                    true
                }
            };
            if !clear || attempt + 1 == ATTEMPTS {
                return Err(self.refusal(&found));
            }
            let kill = [self.reader.kill];
            let keys = match (abandon, self.reader.canonical) {
                (true, _) => INTERRUPT,
                (false, true) => &kill,
                (false, false) => b"\x05\x15",
            };
            let spot = self.press(keys, |_| false).await?.spot;
            if abandon && self.reader.canonical {
                // After an interrupt, the shell shows its primary prompt.
                let prompt = self.row(spot.y, spot.x).await?;
                self.pane.set_primary_prompt(prompt);
            }
        }
        Err(self.refusal(&PromptState::Unknown))
    }

    /// Removes what [`Prompt::empty`] typed, if a user has typed after it. Deletes nothing but the
    /// probe: the line may be another one by now, and Ctrl-D at an empty line would end the shell.
    pub(crate) async fn undo(&self, prompt: &EmptyPrompt) -> Result<()> {
        match prompt.editor {
            None => Ok(()),
            Some(keymap) => self.remove_question(keymap).await,
        }
    }

    /// Removes the probe from the beginning or the end of the line, if it is there.
    async fn remove_question(&self, keymap: Keymap) -> Result<()> {
        if !matches!(shell::foreground_state(&self.server.host, self.pane.metadata()).await, ForegroundState::Shell(_))
        {
            // The line was run: keys would go to the program.
            return Ok(());
        }
        let (to_start, to_end) = match keymap {
            Keymap::Emacs => (self.to_start(), self.to_end()),
            Keymap::Vi => (b"\x1b0".as_slice(), b"A".as_slice()),
        };
        let start = self.press(to_start, |_| false).await?.spot;
        let at_start = self.text_from(start, 1).await?.as_bytes() == PROBE;
        if at_start {
            let keys = match keymap {
                Keymap::Emacs => [RIGHT, BACKSPACE].concat(),
                Keymap::Vi => b"x".to_vec(),
            };
            self.press(&keys, |_| false).await?;
        }
        let end = self.press(to_end, |_| false).await?.spot;
        let typed = usize::try_from(end.cells_from(start)).unwrap_or_default();
        if !at_start && typed > 0 && self.text_from(start, typed).await?.as_bytes().ends_with(PROBE) {
            self.press(BACKSPACE, |_| false).await?;
        }
        Ok(())
    }

    /// Moves the cursor to a position on the line. Returns whether it arrived. A key moves over one
    /// character, which takes one cell, two or more, so the position is read again after each key.
    async fn go_to(&self, target: CursorPosition, from: CursorPosition, left: &[u8], right: &[u8]) -> Result<bool> {
        let mut here = from;
        let most = 2 * here.cells_from(target).unsigned_abs() + 4;
        for _ in 0..most {
            let keys = match here.cells_from(target) {
                0 => return Ok(true),
                1.. => left,
                _ => right,
            };
            let before = here;
            here = self.press(keys, |spot| spot != before).await?.spot;
            if here == before {
                break;
            }
        }
        Ok(here == target)
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
            PromptState::Unsure(prompt) => (
                format!(
                    "cannot tell by its prompt `{prompt}` whether the shell in pane {pane} is waiting for the rest \
                     of a command"
                ),
                None,
            ),
            PromptState::Empty(_) | PromptState::Unknown | PromptState::Disturbed => {
                (format!("cannot tell whether the prompt of pane {pane} contains text: it is not visible"), None)
            }
        };
        let message =
            format!("{message}; nothing was run: run it or clear it, or let run clear it (--clear-line, clear_line)");
        Error::new(ErrorCode::Conflict, message).with_details(serde_json::json!({ "typed": typed }))
    }

    async fn ask_editor(&self) -> Result<PromptState> {
        let found = self.ask_line().await?;
        let PromptState::Empty(prompt) = &found else { return Ok(found) };
        if self.pane.is_primary_prompt(&prompt.text) {
            return Ok(found);
        }
        if (self.reader.shell, prompt.editor) != (Shell::Bash, Some(Keymap::Emacs)) {
            return Ok(found);
        }
        let found = self.ask_bash(prompt).await?;
        if let PromptState::Empty(prompt) = &found {
            self.pane.set_primary_prompt(prompt.text.clone());
        }
        Ok(found)
    }

    /// Finds out whether bash waits for the rest of a command: its line editor expands `PS2` (N71).
    async fn ask_bash(&self, prompt: &EmptyPrompt) -> Result<PromptState> {
        let end = self.press(BASH_PS2, |_| false).await?.spot;
        let cells = usize::try_from(end.cells_from(prompt.cursor)).unwrap_or_default();
        let shown = self.text_from(prompt.cursor, cells).await?;
        let continuation = parse_shown(&shown);
        // Deletes forward, so text that a user types after it stays.
        let delete = [b"\x01".as_slice(), RIGHT, &vec![0x04; continuation.typed], b"\x05"].concat();
        if !self.press(&delete, |spot| spot == prompt.cursor).await?.reached {
            self.remove_question(Keymap::Emacs).await?;
            return Ok(PromptState::Disturbed);
        }
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        if dense(&continuation.text) == dense(&prompt.text) {
            self.press(&Keymap::Emacs.clear(), |spot| spot.cells_from(prompt.cursor) == -1).await?;
            return Ok(PromptState::Continued(prompt.text.clone()));
        }
        Ok(PromptState::Empty(prompt.clone()))
    }

    async fn ask_line(&self) -> Result<PromptState> {
        let before = self.spot().await?;
        let typed = self.press(PROBE, |spot| spot.cells_from(before) == 1).await?.spot;
        if typed == before {
            // The probe may be shown later, or be read without being shown.
            self.press(BACKSPACE, |_| false).await?;
            return Ok(PromptState::Unknown);
        }
        let mut keymap = Keymap::Emacs;
        let mut start = self.press(self.to_start(), |spot| typed.cells_from(spot) == 1).await?;
        let mut end = if start.spot.cells_from(typed) > 0 {
            let shown = usize::try_from(start.spot.cells_from(typed)).unwrap_or_default();
            if shown != SHOWN_CTRL_A.len() || self.text_from(typed, shown).await? != SHOWN_CTRL_A {
                self.remove_question(Keymap::Emacs).await?;
                return Ok(PromptState::Disturbed);
            }
            // Ctrl-A was inserted as a character, as in vi mode.
            keymap = Keymap::Vi;
            self.press(BACKSPACE, |spot| spot == typed).await?;
            // Escape moves one cell to the left by itself: wait until nothing moves any more.
            start = self.press(&[ESCAPE, b"0"].concat(), |_| false).await?;
            start.reached = typed.cells_from(start.spot) == 1;
            self.press(b"A", |spot| spot == typed).await?
        } else {
            let mut end = self.press(self.to_end(), |spot| spot == typed).await?;
            if self.reader.shell == Shell::Fish && end.spot == start.spot {
                // Escape was a separate key: this is fish's vi mode, which has other keys to move
                // over all lines.
                keymap = Keymap::Vi;
                start = self.press(b"gg0", |_| false).await?;
                // Nothing is printed if the cursor is there already.
                start.reached = typed.cells_from(start.spot) == 1;
                // To the position after the last character. `A` and `a` would accept fish's
                // suggestion there.
                end = self.press(b"Gi", |spot| spot == typed).await?;
            }
            end
        };
        if self.reader.shell == Shell::Zsh && keymap == Keymap::Emacs && start.reached && start.spot.x == 0 {
            // The line has no prompt before it: it may be one line of several.
            let up = self.press(ZSH_UP, |spot| spot != start.spot).await?.spot;
            if up != start.spot {
                start = CursorMove { spot: up, reached: false };
                end = self.press(ZSH_DOWN, |spot| spot == typed).await?;
            }
        }
        let prompt = self.row(start.spot.y, start.spot.x).await?;
        if start.reached && end.reached {
            if self.reader.shell.is_continuation(&prompt) {
                self.press(&keymap.clear(), |spot| spot == start.spot).await?;
                return Ok(PromptState::Continued(prompt));
            }
            let CursorPosition { x, .. } = start.spot;
            return Ok(PromptState::Empty(EmptyPrompt {
                cursor: typed,
                clear: keymap.clear(),
                column: x,
                above: (0, x),
                editor: Some(keymap),
                text: prompt,
            }));
        }
        let cells = |cells: i64| usize::try_from(cells).unwrap_or_default();
        let (left, right) = (cells(typed.cells_from(start.spot) - 1), cells(end.spot.cells_from(typed)));
        let is_back = match keymap {
            Keymap::Emacs => self.go_to(typed, end.spot, LEFT, RIGHT).await?,
            Keymap::Vi => {
                let last = self.escape(end.spot).await?;
                let question = CursorPosition { x: typed.x.saturating_sub(1), ..typed };
                self.go_to(question, last, b"h", b"l").await?
            }
        };
        if is_back {
            let keys = match keymap {
                Keymap::Emacs => BACKSPACE,
                Keymap::Vi if right == 0 => b"xa",
                Keymap::Vi => b"xi",
            };
            self.press(keys, |_| false).await?;
        }
        if left + right == 0 {
            return Ok(PromptState::Unknown);
        }
        self.text_from(start.spot, left + right).await.map(PromptState::Typed)
    }

    /// Makes a terminal that collects the line show it again. This is the only way to see text that
    /// was typed while a program ran: its echo is above the prompt.
    async fn ask_terminal(&self) -> Result<PromptState> {
        if self.reader.kill == 0 {
            return Ok(PromptState::Unknown);
        }
        let (before, prompt) = self.prompt_shown().await?;
        if self.reader.shell.is_continuation(&prompt) {
            return Ok(PromptState::Continued(prompt));
        }
        if !self.is_own_prompt(&prompt) {
            // The row is the prompt alone, or has typed text after it: the reprint decides.
            let (spot, reached) = self.reprint(before).await?;
            let text = self.row(spot.y, spot.x).await?;
            return Ok(if reached || text.is_empty() { PromptState::Unsure(prompt) } else { PromptState::Typed(text) });
        }
        let (after, reached) = self.reprint(before).await?;
        if reached {
            return Ok(PromptState::Empty(EmptyPrompt {
                cursor: after,
                clear: vec![self.reader.kill],
                column: 0,
                above: (1, before.x),
                editor: None,
                text: String::new(),
            }));
        }
        if after == before {
            return Ok(PromptState::Unknown);
        }
        self.row(after.y, after.x).await.map(PromptState::Typed)
    }

    /// Makes the terminal print the typed line again. Returns the cursor's position afterwards, and
    /// whether it is at the beginning of a row of its own.
    async fn reprint(&self, before: CursorPosition) -> Result<(CursorPosition, bool)> {
        let line_below = |spot: CursorPosition| spot.x == 0 && (spot.y == before.y + 1 || before.is_lowest());
        let after = self.press(REPRINT, line_below).await?;
        Ok((after.spot, after.reached))
    }

    /// Returns whether this is the primary prompt of a shell without a line editor.
    fn is_own_prompt(&self, prompt: &str) -> bool {
        prompt.ends_with("$ ") || prompt.ends_with("# ") || self.pane.is_primary_prompt(prompt)
    }

    /// Returns the cursor's position once a prompt precedes it, and the row up to there; after a
    /// timeout also without a prompt.
    ///
    /// A shell without a line editor gives no sign when it waits for a line. It prints its prompt a
    /// moment after a command has ended, after the command's last output.
    async fn prompt_shown(&self) -> Result<(CursorPosition, String)> {
        let mut changes = self.pane.changes();
        let give_up = Instant::now() + PATIENCE;
        loop {
            changes.borrow_and_update();
            let spot = self.spot().await?;
            let row = self.row(spot.y, spot.x).await?;
            let is_prompt = self.is_own_prompt(&row) || self.reader.shell.is_continuation(&row);
            if is_prompt || Instant::now() >= give_up {
                return Ok((spot, row));
            }
            tokio::select! {
                () = tokio::time::sleep_until(give_up.into()) => {}
                changed = changes.changed() => if changed.is_err() { return Err(self.ended()) },
            }
        }
    }

    /// Returns the key that moves to the start of the input, which in fish can be several lines.
    fn to_start(&self) -> &'static [u8] {
        if self.reader.shell == Shell::Fish { b"\x1b<" } else { b"\x01" }
    }

    fn to_end(&self) -> &'static [u8] {
        if self.reader.shell == Shell::Fish { b"\x1b>" } else { b"\x05" }
    }

    /// Presses Escape at the end of a line, which moves to the last character. Returns the cursor's
    /// position once the shell has read the key: a letter that follows too soon would form one key
    /// with it, such as Alt-h, by which fish shows a manual page.
    async fn escape(&self, end: CursorPosition) -> Result<CursorPosition> {
        let spot = self.press(ESCAPE, |_| false).await?.spot;
        if spot != end {
            return Ok(spot);
        }
        // The output belonged to the keys before it, or the last line is empty.
        let begin = self.pane.lock().ring().end();
        let moved = self.come_to(begin, |spot| spot != end).await?;
        if moved.reached { Ok(self.come_to(begin, |_| false).await?.spot) } else { Ok(moved.spot) }
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
                    return Ok(CursorMove { spot, reached: true });
                }
            }
            let due = due.unwrap_or(sent + PATIENCE);
            if Instant::now() >= due {
                return Ok(CursorMove { spot: self.spot().await?, reached: false });
            }
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                _ = changes.changed() => {}
            }
        }
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

    /// Returns the text of this many cells from a position on, across the ends of rows.
    async fn text_from(&self, from: CursorPosition, cells: usize) -> Result<String> {
        let rows = if from.width == 0 { 0 } else { (usize::from(from.x) + cells) / usize::from(from.width) };
        let last = usize::from(from.y) + rows;
        let question = || {
            let ask = Command::new("capture-pane").flag("-p").flag("-N").opt("-t", self.pane.id().to_string());
            Request::Framed(vec![ask.opt("-S", from.y.to_string()).opt("-E", last.to_string())])
        };
        let answer = self.server.link().read(Some(self.pane.id()), question).await?;
        let text = answer.ok().and_then(|parts| parts.into_iter().next()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
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

/// A text as a line editor shows it.
struct ShownText {
    /// The text, without colors.
    text: String,
    /// The number of characters of the line.
    typed: usize,
}

/// Parses a text in which a line editor shows a control character as two (`^[`).
fn parse_shown(shown: &str) -> ShownText {
    let mut text = String::new();
    let mut typed = 0;
    let mut characters = shown.chars().peekable();
    while let Some(character) = characters.next() {
        typed += 1;
        let control = characters.next_if(|next| character == '^' && matches!(next, '@'..='_'));
        match control {
            None => text.push(character),
            // Only the last row precedes the cursor.
            Some('J') => text.clear(),
            Some('[') if characters.next_if_eq(&'[').is_some() => {
                typed += 1;
                for parameter in characters.by_ref() {
                    typed += 1;
                    if matches!(parameter, '@'..='~') {
                        break;
                    }
                }
            }
            Some(_) => {}
        }
    }
    ShownText { text, typed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_colours_a_prompt_is_no_part_of_it() {
        let ShownText { text, typed } = parse_shown("first^J^A^[[1;31m^Bmore: ^A^[[0m^B");
        assert_eq!((text.as_str(), typed), ("more: ", "first\n\u{1}\u{1b}[1;31m\u{2}more: \u{1}\u{1b}[0m\u{2}".len()));
        assert_eq!(parse_shown("a^b").typed, 3);
    }
}
