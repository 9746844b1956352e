//! What is typed at a shell's prompt. The line editor is asked: a character is typed, the cursor sent to both ends of what is typed, and
//! where it goes says how much there is. Where the terminal itself collects the line it is asked to print that again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Engine, Host, Pane,
    shell::{self, Reader, Resting, Shell},
};
use crate::{
    api::{Error, ErrorCode, Result},
    protocol::command::{Command, CommandLine},
    stream::width::columns,
    tmux::Request,
};

/// A line editor has drawn all it will when it printed nothing for this long.
const CALM: Duration = Duration::from_millis(150);
/// How long a shell may take to show that a key arrived.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a line that somebody else types on is looked at again.
const LOOKS: u32 = 3;

/// The character that is typed to see where it goes. In no shell does it expand what stands before it.
const PROBE: &[u8] = b":";
const BACKSPACE: &[u8] = b"\x7f";
const ESCAPE: &[u8] = b"\x1b";
const INTERRUPT: &[u8] = b"\x03";
const LEFT: &[u8] = b"\x02";
const RIGHT: &[u8] = b"\x06";
/// What a line editor with vi's keys shows of Ctrl-A.
const SHOWN_CTRL_A: &str = "^A";
/// Has bash's line editor expand its prompt for the rest of a command (`shell-expand-line`). It is an
/// argument of the `:` before it: Enter, should somebody press it meanwhile, does nothing.
const BASH_PS2: &[u8] = b" \"${PS2@P}\"\x1b\x05\x05";
/// Goes up in zsh's line editor: at the start of a line to the start of the one above.
const ZSH_UP: &[u8] = &[0x01; 32];
/// Goes down again, to the end of the last line.
const ZSH_DOWN: &[u8] = &[0x05; 32];
/// Makes a terminal in cooked mode print once more what is typed (`VREPRINT`, termios(3)).
const REPRINT: &[u8] = b"\x12";

/// A pane's cursor and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Column of the cursor, from 0.
    pub(super) x: u16,
    /// Row of the cursor, from 0.
    pub(super) y: u16,
    /// Columns of the pane.
    pub(super) width: u16,
    height: u16,
}

impl Spot {
    /// Cells from `other` to this, along the lines.
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
pub(super) struct EmptyPrompt {
    /// Where the cursor stands.
    pub(super) cursor: Spot,
    /// Removes what was typed to find out, and all that somebody types in the moment in which the
    /// terminal has their keys and tmux has not yet seen them.
    pub(super) clear: Vec<u8>,
    /// The column at which a command line begins.
    pub(super) column: u16,
    /// How many rows above that the prompt ends, and in which column.
    pub(super) above: (u16, u16),
    /// A line editor has the line, and with its usual keys.
    pub(super) editor: Option<Keymap>,
    /// The last row of the prompt as it shows, where a line editor has the line.
    pub(super) text: String,
}

/// Which keys a line editor obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keymap {
    /// As emacs does.
    Emacs,
    /// As vi does, inserting.
    Vi,
}

impl Keymap {
    /// Removes the question, and what somebody types behind it. The question goes by Backspace, which
    /// keeps it out of what Ctrl-Y brings back; the rest is there for Ctrl-Y.
    fn clear(self) -> Vec<u8> {
        match self {
            Self::Emacs => b"\x7f\x01\x0b".to_vec(),
            // zsh's takes nothing back that was there before it began to insert.
            Self::Vi => b"\x1b0Di".to_vec(),
        }
    }
}

/// What was found at a prompt.
enum Found {
    Empty(EmptyPrompt),
    /// Something is typed.
    Typed(String),
    /// The shell waits for the rest of a command, with this prompt.
    Continued(String),
    /// A prompt that may be the shell's own, or one for the rest of a command.
    Unsure(String),
    /// It does not show what is typed.
    Unknown,
    /// Somebody else typed meanwhile, and the question was taken back.
    Disturbed,
}

/// Where the cursor went.
struct Settled {
    spot: Spot,
    /// Where it was to go.
    met: bool,
}

/// A shell whose prompt is looked at.
pub(super) struct Prompt<'a> {
    pub(super) engine: &'a Engine,
    pub(super) host: &'a Arc<Host>,
    pub(super) pane: &'a Arc<Pane>,
    pub(super) reader: Reader,
}

impl Prompt<'_> {
    /// Returns the prompt if nothing is typed there; `clear` makes it so. The error says what is typed.
    pub(super) async fn empty(&self, clear: bool) -> Result<EmptyPrompt> {
        for look in 0..LOOKS {
            let found = if self.reader.canonical { self.ask_terminal().await? } else { self.ask_editor().await? };
            let abandon = match found {
                Found::Empty(prompt) => return Ok(prompt),
                Found::Disturbed if look + 1 < LOOKS => continue,
                Found::Typed(_) => look > 0,
                Found::Continued(_) | Found::Unsure(_) | Found::Unknown | Found::Disturbed => true,
            };
            if !clear || look + 1 == LOOKS {
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
                // What a shell shows then is its own prompt.
                let prompt = self.row(spot.y, spot.x).await?;
                self.pane.lock().prompt = Some(prompt);
            }
        }
        Err(self.refusal(&Found::Unknown))
    }

    /// Takes back what [`Prompt::empty`] typed, when somebody has typed behind it. Nothing is deleted but the question
    /// itself: the line may be another one by now, and Ctrl-D at an empty one would end the shell.
    pub(super) async fn take_back(&self, prompt: &EmptyPrompt) -> Result<()> {
        match prompt.editor {
            None => Ok(()),
            Some(keymap) => self.remove_question(keymap).await,
        }
    }

    /// Removes the question from the beginning or the end of the line, if it stands there.
    async fn remove_question(&self, keymap: Keymap) -> Result<()> {
        if !matches!(shell::resting(self.host, self.pane.about()).await, Resting::Shell(_)) {
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

    /// Moves the cursor to a spot on the line, and returns whether it is there. A key goes over one character, which takes
    /// one cell, two or more: where it went is looked at after each.
    async fn go_to(&self, target: Spot, from: Spot, left: &[u8], right: &[u8]) -> Result<bool> {
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

    fn refusal(&self, found: &Found) -> Error {
        let pane = self.pane.id();
        let (message, typed) = match found {
            Found::Typed(text) => (
                format!("`{text}` is typed at the prompt of pane {pane} already, and would be run with the command"),
                Some(text),
            ),
            Found::Continued(prompt) => {
                (format!("the shell in pane {pane} waits for the rest of a command (its prompt is `{prompt}`)"), None)
            }
            Found::Unsure(prompt) => (
                format!(
                    "whether the shell in pane {pane} waits for the rest of a command cannot be told by its prompt `{prompt}`"
                ),
                None,
            ),
            Found::Empty(_) | Found::Unknown | Found::Disturbed => (
                format!("whether something is typed at the prompt of pane {pane} cannot be told: it does not show"),
                None,
            ),
        };
        let message =
            format!("{message}; nothing was run: run it or clear it, or let run clear it (--clear-line, clear_line)");
        Error::new(ErrorCode::Conflict, message).with_details(serde_json::json!({ "typed": typed }))
    }

    async fn ask_editor(&self) -> Result<Found> {
        let found = self.ask_line().await?;
        let Found::Empty(prompt) = &found else { return Ok(found) };
        if self.pane.lock().prompt.as_ref() == Some(&prompt.text) {
            return Ok(found);
        }
        if (self.reader.shell, prompt.editor) != (Shell::Bash, Some(Keymap::Emacs)) {
            return Ok(found);
        }
        let found = self.ask_bash(prompt).await?;
        if let Found::Empty(prompt) = &found {
            self.pane.lock().prompt = Some(prompt.text.clone());
        }
        Ok(found)
    }

    /// Whether bash waits for the rest of a command: its line editor expands `PS2` (N71).
    async fn ask_bash(&self, prompt: &EmptyPrompt) -> Result<Found> {
        let end = self.press(BASH_PS2, |_| false).await?.spot;
        let cells = usize::try_from(end.cells_from(prompt.cursor)).unwrap_or_default();
        let shown = self.text_from(prompt.cursor, cells).await?;
        let continuation = plain(&shown);
        // Forward, so that what somebody types behind it stays.
        let delete = [b"\x01".as_slice(), RIGHT, &vec![0x04; continuation.typed], b"\x05"].concat();
        if !self.press(&delete, |spot| spot == prompt.cursor).await?.met {
            self.remove_question(Keymap::Emacs).await?;
            return Ok(Found::Disturbed);
        }
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        if dense(&continuation.text) == dense(&prompt.text) {
            self.press(&Keymap::Emacs.clear(), |spot| spot.cells_from(prompt.cursor) == -1).await?;
            return Ok(Found::Continued(prompt.text.clone()));
        }
        Ok(Found::Empty(prompt.clone()))
    }

    async fn ask_line(&self) -> Result<Found> {
        let before = self.spot().await?;
        let typed = self.press(PROBE, |spot| spot.cells_from(before) == 1).await?.spot;
        if typed == before {
            // It may show later, or be read without being shown.
            self.press(BACKSPACE, |_| false).await?;
            return Ok(Found::Unknown);
        }
        let mut keymap = Keymap::Emacs;
        let mut start = self.press(self.to_start(), |spot| typed.cells_from(spot) == 1).await?;
        let mut end = if start.spot.cells_from(typed) > 0 {
            let shown = usize::try_from(start.spot.cells_from(typed)).unwrap_or_default();
            if shown != SHOWN_CTRL_A.len() || self.text_from(typed, shown).await? != SHOWN_CTRL_A {
                self.remove_question(Keymap::Emacs).await?;
                return Ok(Found::Disturbed);
            }
            // It was taken as a character. That is vi's way.
            keymap = Keymap::Vi;
            self.press(BACKSPACE, |spot| spot == typed).await?;
            // Escape goes one to the left by itself: what is waited for is that nothing moves any more.
            start = self.press(&[ESCAPE, b"0"].concat(), |_| false).await?;
            start.met = typed.cells_from(start.spot) == 1;
            self.press(b"A", |spot| spot == typed).await?
        } else {
            let mut end = self.press(self.to_end(), |spot| spot == typed).await?;
            if self.reader.shell == Shell::Fish && end.spot == start.spot {
                // Escape was a key of its own: fish's vi mode, which goes over all lines by other keys.
                keymap = Keymap::Vi;
                start = self.press(b"gg0", |_| false).await?;
                // Nothing is printed where it stands there already.
                start.met = typed.cells_from(start.spot) == 1;
                // Behind the last character. `A` and `a` would accept what fish suggests there.
                end = self.press(b"Gi", |spot| spot == typed).await?;
            }
            end
        };
        if self.reader.shell == Shell::Zsh && keymap == Keymap::Emacs && start.met && start.spot.x == 0 {
            // No prompt stands before it: it may be one line of several.
            let up = self.press(ZSH_UP, |spot| spot != start.spot).await?.spot;
            if up != start.spot {
                start = Settled { spot: up, met: false };
                end = self.press(ZSH_DOWN, |spot| spot == typed).await?;
            }
        }
        let prompt = self.row(start.spot.y, start.spot.x).await?;
        if start.met && end.met {
            if self.reader.shell.is_continuation(&prompt) {
                self.press(&keymap.clear(), |spot| spot == start.spot).await?;
                return Ok(Found::Continued(prompt));
            }
            let Spot { x, .. } = start.spot;
            return Ok(Found::Empty(EmptyPrompt {
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
                // At the end this goes to the last character.
                let last = self.press(ESCAPE, |_| false).await?.spot;
                let question = Spot { x: typed.x.saturating_sub(1), ..typed };
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
            return Ok(Found::Unknown);
        }
        self.text_from(start.spot, left + right).await.map(Found::Typed)
    }

    /// A terminal that collects the line shows it once more. Nothing else tells what was typed while
    /// something ran: its echo stands above the prompt.
    async fn ask_terminal(&self) -> Result<Found> {
        if self.reader.kill == 0 {
            return Ok(Found::Unknown);
        }
        let before = self.prompt_shown().await?;
        let prompt = self.row(before.y, before.x).await?;
        if self.reader.shell.is_continuation(&prompt) {
            return Ok(Found::Continued(prompt));
        }
        let is_usual = prompt.ends_with("$ ") || prompt.ends_with("# ");
        if !is_usual && self.pane.lock().prompt.as_ref() != Some(&prompt) {
            // It, or what is typed behind it: the question tells.
            let (spot, met) = self.reprint(before).await?;
            let text = self.row(spot.y, spot.x).await?;
            return Ok(if met || text.is_empty() { Found::Unsure(prompt) } else { Found::Typed(text) });
        }
        let (after, met) = self.reprint(before).await?;
        if met {
            return Ok(Found::Empty(EmptyPrompt {
                cursor: after,
                clear: vec![self.reader.kill],
                column: 0,
                above: (1, before.x),
                editor: None,
                text: String::new(),
            }));
        }
        if after == before {
            return Ok(Found::Unknown);
        }
        self.row(after.y, after.x).await.map(Found::Typed)
    }

    /// Makes the terminal print once more what is typed. Returns where the cursor then is, and whether
    /// nothing stands before it on a row of its own.
    async fn reprint(&self, before: Spot) -> Result<(Spot, bool)> {
        let line_below = |spot: Spot| spot.x == 0 && (spot.y == before.y + 1 || before.is_lowest());
        let after = self.press(REPRINT, line_below).await?;
        Ok((after.spot, after.met))
    }

    /// Returns where the cursor is once a prompt stands before it. A shell without a line editor does
    /// not tell when it waits for a line, and prints its prompt a moment after a command has ended.
    async fn prompt_shown(&self) -> Result<Spot> {
        let mut changes = self.pane.changes();
        let give_up = Instant::now() + PATIENCE;
        loop {
            changes.borrow_and_update();
            let spot = self.spot().await?;
            if spot.x > 0 || Instant::now() >= give_up {
                return Ok(spot);
            }
            tokio::select! {
                () = tokio::time::sleep_until(give_up.into()) => {}
                changed = changes.changed() => if changed.is_err() { return Err(self.ended()) },
            }
        }
    }

    /// The key that goes to the start of all that is typed: in fish that can be several lines.
    fn to_start(&self) -> &'static [u8] {
        if self.reader.shell == Shell::Fish { b"\x1b<" } else { b"\x01" }
    }

    fn to_end(&self) -> &'static [u8] {
        if self.reader.shell == Shell::Fish { b"\x1b>" } else { b"\x05" }
    }

    /// Presses keys, and returns where the cursor then is: as soon as that is where it was to go, or when nothing moves any more.
    async fn press(&self, keys: &[u8], is_there: impl Fn(Spot) -> bool) -> Result<Settled> {
        let mut changes = self.pane.changes();
        let (begin, sent) = (self.pane.lock().ring.end(), Instant::now());
        self.engine.press(self.host, self.pane, keys).await?;
        loop {
            changes.borrow_and_update();
            let due = {
                let state = self.pane.lock();
                if state.exit.is_some() {
                    return Err(self.ended());
                }
                if state.ring.end() > begin { Some(state.last_output + CALM) } else { None }
            };
            if due.is_some() {
                let spot = self.spot().await?;
                if is_there(spot) {
                    return Ok(Settled { spot, met: true });
                }
            }
            let due = due.unwrap_or(sent + PATIENCE);
            if Instant::now() >= due {
                return Ok(Settled { spot: self.spot().await?, met: false });
            }
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Whether this prompt stands where the cursor is, with nothing behind it.
    pub(super) async fn is_back(&self, prompt: &str) -> Result<bool> {
        let Spot { x, y, .. } = self.spot().await?;
        Ok(!prompt.trim().is_empty() && self.row(y, x).await? == prompt)
    }

    fn ended(&self) -> Error {
        Error::new(ErrorCode::Conflict, format!("the process in pane {} has ended; nothing was run", self.pane.id()))
    }

    /// Where the cursor is by tmux's word, which is ahead of what has come here.
    async fn spot(&self) -> Result<Spot> {
        let question = || {
            let ask = Command::new("display-message").flag("-p").opt("-t", self.pane.id().to_string());
            let format = "#{cursor_x} #{cursor_y} #{pane_width} #{pane_height}";
            Request::Plain(CommandLine::of([ask.format(format)]))
        };
        let answer = self.host.server().read(Some(self.pane.id()), question).await?;
        let answer = answer.ok().and_then(|bodies| {
            let text = String::from_utf8_lossy(bodies.first()?).into_owned();
            let mut numbers = text.split_whitespace().map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some(Spot { x: next()?, y: next()?, width: next().filter(|width| *width > 0)?, height: next()? })
        });
        answer.ok_or_else(|| Error::not_found(format!("pane {} is no longer there", self.pane.id())))
    }

    /// The first cells of a row.
    async fn row(&self, y: u16, cells: u16) -> Result<String> {
        self.text_from(Spot { x: 0, y, width: 0, height: 0 }, usize::from(cells)).await
    }

    /// So many cells, from one on, over the ends of rows.
    async fn text_from(&self, from: Spot, cells: usize) -> Result<String> {
        let rows = if from.width == 0 { 0 } else { (usize::from(from.x) + cells) / usize::from(from.width) };
        let last = usize::from(from.y) + rows;
        let question = || {
            let ask = Command::new("capture-pane").flag("-p").flag("-N").opt("-t", self.pane.id().to_string());
            Request::Framed(vec![ask.opt("-S", from.y.to_string()).opt("-E", last.to_string())])
        };
        let answer = self.host.server().read(Some(self.pane.id()), question).await?;
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
struct Plain {
    /// The text, without what only colours it.
    text: String,
    /// How many characters the line has.
    typed: usize,
}

/// Reads a text in which a line editor shows a control character as two (`^[`).
fn plain(shown: &str) -> Plain {
    let mut text = String::new();
    let mut typed = 0;
    let mut characters = shown.chars().peekable();
    while let Some(character) = characters.next() {
        typed += 1;
        let control = characters.next_if(|next| character == '^' && matches!(next, '@'..='_'));
        match control {
            None => text.push(character),
            // Only the last row is before the cursor.
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
    Plain { text, typed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_colours_a_prompt_is_no_part_of_it() {
        let Plain { text, typed } = plain("first^J^A^[[1;31m^Bmore: ^A^[[0m^B");
        assert_eq!((text.as_str(), typed), ("more: ", "first\n\u{1}\u{1b}[1;31m\u{2}more: \u{1}\u{1b}[0m\u{2}".len()));
        assert_eq!(plain("a^b").typed, 3);
    }
}
