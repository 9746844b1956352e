//! Asking a line editor, or the terminal, what is typed.
//!
//! A probe character (the *question* in names here) is typed and the cursor is sent to both ends of
//! the input: its positions show how much is typed. If the terminal itself collects the line, it is
//! made to print that line again.

use std::time::Instant;

use muxtap_api::Result;

use super::{
    BACKSPACE, CursorMove, CursorPosition, EmptyPrompt, Keymap, PATIENCE, Prompt, PromptState,
    look::{is_question, output_before},
};
use crate::input::shell::Shell;

/// The probe: the character that is typed to see where it appears. In no shell does it expand the
/// text before it.
const PROBE: &[u8] = b":";
const ESCAPE: &[u8] = b"\x1b";
const LEFT: &[u8] = b"\x02";
const RIGHT: &[u8] = b"\x06";
/// Ctrl-A as shown by a line editor with vi keys.
const SHOWN_CTRL_A: &str = "^A";
/// Makes bash's line editor expand its continuation prompt (`shell-expand-line`). The text is an
/// argument of the `:` before it, so Enter does nothing if a user presses it meanwhile. Expansion
/// removes quotes: it has others for what is left, which a user's text and Enter may follow.
const BASH_PS2: &[u8] = b" \\'\"${PS2@P}\"\\'\x1b\x05\x05";
/// Moves up in zsh's line editor: from the start of a line to the start of the line above.
const ZSH_UP: &[u8] = &[0x01; 32];
/// Moves down again, to the end of the last line.
const ZSH_DOWN: &[u8] = &[0x05; 32];
/// Makes a terminal in cooked mode print the typed line again (`VREPRINT`, termios(3)).
const REPRINT: &[u8] = b"\x12";

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

impl Prompt<'_> {
    /// Removes what [`Prompt::empty`] typed, if a user has typed after it. Deletes nothing but the
    /// probe: the line may be another one by now, and Ctrl-D at an empty line would end the shell.
    pub(crate) async fn undo(&self, prompt: &EmptyPrompt) -> Result<()> {
        match prompt.probed {
            None => Ok(()),
            Some(keymap) => self.remove_question(keymap).await,
        }
    }

    /// Removes the probe from the beginning or the end of the line, if it is there.
    async fn remove_question(&self, keymap: Keymap) -> Result<()> {
        if !self.is_at_prompt().await {
            // The line was run: keys would go to the program.
            return Ok(());
        }
        let (to_start, to_end) = match keymap {
            Keymap::Emacs => (self.to_start(), self.to_end()),
            Keymap::Vi => (b"\x1b0".as_slice(), b"A".as_slice()),
        };
        let start = self.ask(to_start, |_| false).await?.spot;
        let at_start = self.text_from(start, 1).await?.as_bytes() == PROBE;
        if at_start {
            let keys = match keymap {
                Keymap::Emacs => [RIGHT, BACKSPACE].concat(),
                Keymap::Vi => b"x".to_vec(),
            };
            self.ask(&keys, |_| false).await?;
        }
        let end = self.ask(to_end, |_| false).await?.spot;
        let typed = usize::try_from(end.cells_from(start)).unwrap_or_default();
        if !at_start && typed > 0 && self.text_from(start, typed).await?.as_bytes().ends_with(PROBE) {
            self.ask(BACKSPACE, |_| false).await?;
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
            here = self.ask(keys, |spot| spot != before).await?.spot;
            let moved = here.cells_from(before);
            if moved == 0 {
                break;
            }
            if (keys == left) == (moved > 0) {
                // The line is another one, and the key was inserted into it.
                self.ask(BACKSPACE, |spot| spot == before).await?;
                return Ok(false);
            }
        }
        Ok(here == target)
    }

    pub(super) async fn ask_editor(&self) -> Result<PromptState> {
        let found = self.ask_line().await?;
        let PromptState::Empty(prompt) = &found else { return Ok(found) };
        let known = self.pane.primary_prompt(self.reader.id());
        if known.is_some_and(|known| known == prompt.text || output_before(&prompt.text, &known).is_some()) {
            return Ok(found);
        }
        if (self.reader.shell, prompt.probed) != (Shell::Bash, Some(Keymap::Emacs)) {
            return Ok(found);
        }
        let found = self.ask_bash(prompt).await?;
        if let PromptState::Empty(prompt) = &found {
            self.pane.set_primary_prompt(self.reader.id(), prompt.text.clone());
        }
        Ok(found)
    }

    /// Finds out whether bash waits for the rest of a command: its line editor expands `PS2` (N71).
    async fn ask_bash(&self, prompt: &EmptyPrompt) -> Result<PromptState> {
        let end = self.ask(BASH_PS2, |_| false).await?.spot;
        let cells = usize::try_from(end.cells_from(prompt.cursor)).unwrap_or_default();
        let shown = self.text_from(prompt.cursor, cells).await?;
        let continuation = parse_shown(&shown);
        // Text that a user types after it stays. If a user has entered the line, all this does nothing: the next line
        // is empty, and no key is Ctrl-D.
        let (right, delete) = (RIGHT.repeat(1 + continuation.typed), BACKSPACE.repeat(continuation.typed));
        let delete = [b"\x01".as_slice(), &right, &delete, b"\x05"].concat();
        if !self.ask(&delete, |spot| spot == prompt.cursor).await?.reached {
            self.remove_question(Keymap::Emacs).await?;
            return Ok(PromptState::Disturbed);
        }
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        let shown = continuation.text.trim_start();
        let shown = shown.strip_prefix('\'').unwrap_or(shown);
        if dense(shown.strip_suffix('\'').unwrap_or(shown)) == dense(&prompt.text) {
            self.ask(&Keymap::Emacs.clear(), |spot| spot.cells_from(prompt.cursor) == -1).await?;
            return Ok(PromptState::Continued(prompt.text.clone()));
        }
        Ok(PromptState::Empty(prompt.clone()))
    }

    async fn ask_line(&self) -> Result<PromptState> {
        let before = self.spot().await?;
        // Also an Enter that a user pressed just before shows within that time.
        let CursorMove { spot: typed, noisy, .. } = self.ask(PROBE, |_| false).await?;
        if typed == before || noisy {
            // The probe may be shown later, be read without being shown, or be shown among other output.
            self.ask(BACKSPACE, |_| false).await?;
            return Ok(PromptState::Unknown);
        }
        let mut keymap = Keymap::Emacs;
        let mut start = self.ask(self.to_start(), |spot| typed.cells_from(spot) == 1).await?;
        let mut end = if start.spot.cells_from(typed) > 0 {
            let shown = usize::try_from(start.spot.cells_from(typed)).unwrap_or_default();
            if shown != SHOWN_CTRL_A.len() || self.text_from(typed, shown).await? != SHOWN_CTRL_A {
                self.remove_question(Keymap::Emacs).await?;
                return Ok(PromptState::Disturbed);
            }
            // Ctrl-A was inserted as a character, as in vi mode.
            keymap = Keymap::Vi;
            self.ask(BACKSPACE, |spot| spot == typed).await?;
            // Escape moves one cell to the left by itself: wait until nothing moves any more.
            start = self.ask(&[ESCAPE, b"0"].concat(), |_| false).await?;
            start.reached = typed.cells_from(start.spot) == 1;
            self.ask(b"A", |spot| spot == typed).await?
        } else {
            let mut end = self.ask(self.to_end(), |spot| spot == typed).await?;
            if self.reader.shell == Shell::Fish && end.spot == start.spot {
                if self.text_before(typed, PROBE.len()).await?.as_bytes() != PROBE {
                    // A user has entered the line.
                    return Ok(PromptState::Disturbed);
                }
                // Escape was a separate key: this is fish's vi mode, which has other keys to move
                // over all lines.
                keymap = Keymap::Vi;
                start = self.ask(b"gg0", |_| false).await?;
                // Nothing is printed if the cursor is there already.
                start.reached = typed.cells_from(start.spot) == 1;
                // To the position after the last character. `A` and `a` would accept fish's
                // suggestion there.
                end = self.ask(b"Gi", |spot| spot == typed).await?;
            }
            end
        };
        if self.reader.shell == Shell::Zsh && keymap == Keymap::Emacs && start.reached && start.spot.x == 0 {
            // The line has no prompt before it: it may be one line of several.
            let up = self.ask(ZSH_UP, |spot| spot != start.spot).await?.spot;
            // Those keys have moved to the start of the line, too.
            end = self.ask(ZSH_DOWN, |spot| spot == typed).await?;
            if up != start.spot {
                start = CursorMove { spot: up, reached: false, noisy: false };
            }
        }
        let prompt = self.row(start.spot.y, start.spot.x).await?;
        if start.reached && end.reached {
            if self.reader.shell.is_continuation(&prompt) {
                self.ask(&keymap.clear(), |spot| spot == start.spot).await?;
                return Ok(PromptState::Continued(prompt));
            }
            let CursorPosition { x, .. } = start.spot;
            return Ok(PromptState::Empty(EmptyPrompt {
                cursor: typed,
                clear: keymap.clear(),
                column: x,
                above: (0, x),
                has_editor: true,
                probed: Some(keymap),
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
            self.ask(keys, |_| false).await?;
        }
        if left + right == 0 {
            return Ok(PromptState::Unknown);
        }
        self.text_from(start.spot, left + right).await.map(PromptState::Typed)
    }

    /// Makes a terminal that collects the line show it again. This is the only way to see text that
    /// was typed while a program ran: its echo is above the prompt.
    pub(super) async fn ask_terminal(&self) -> Result<PromptState> {
        if self.reader.kill == 0 {
            return Ok(PromptState::Unknown);
        }
        let (before, prompt) = self.prompt_shown().await?;
        if self.reader.shell.is_continuation(&prompt) {
            return Ok(PromptState::Continued(prompt));
        }
        if is_question(&prompt) {
            return Ok(PromptState::Question(prompt));
        }
        if !self.now().await.reader.canonical {
            // The shell has switched its line editor on, which has another meaning for the key.
            return Ok(PromptState::Disturbed);
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
                has_editor: false,
                probed: None,
                text: prompt,
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
        let after = self.ask(REPRINT, line_below).await?;
        Ok((after.spot, after.reached))
    }

    /// Returns whether this is the primary prompt of a shell without a line editor.
    fn is_own_prompt(&self, prompt: &str) -> bool {
        prompt.ends_with("$ ") || prompt.ends_with("# ") || self.is_primary_prompt(prompt)
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
        let spot = self.ask(ESCAPE, |_| false).await?.spot;
        if spot != end {
            return Ok(spot);
        }
        // The output belonged to the keys before it, or the last line is empty.
        let begin = self.pane.lock().ring().end();
        let moved = self.come_to(begin, |spot| spot != end).await?;
        if moved.reached { Ok(self.come_to(begin, |_| false).await?.spot) } else { Ok(moved.spot) }
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
