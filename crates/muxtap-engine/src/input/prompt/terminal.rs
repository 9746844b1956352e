//! Asking a terminal that collects the line what is typed, where the shell has no line editor.

use tokio::time::Instant;

use muxtap_api::Result;

use super::{BACKSPACE, CursorPosition, EmptyPrompt, PATIENCE, Prompt, PromptState, look};

impl Prompt<'_> {
    /// Makes a terminal that collects the line show it again. This is the only way to see text that
    /// was typed while a program ran: its echo is above the prompt.
    pub(super) async fn ask_terminal(&self) -> Result<PromptState> {
        let (before, prompt) = self.prompt_shown().await?;
        let kill = self.reader.keys.kill;
        // A key that the terminal does not know would be typed text.
        let Some(reprint) = self.reader.keys.reprint.filter(|_| self.reader.is_marked || kill.is_some()) else {
            return Ok(PromptState::Unknown(prompt));
        };
        if self.reader.shell.is_continuation(&prompt) {
            return Ok(PromptState::Continued(prompt));
        }
        if look::is_question(&prompt) {
            return Ok(PromptState::Question(prompt));
        }
        match self.now().await {
            None => return Ok(PromptState::Gone),
            // The shell has switched its line editor on, which has another meaning for the key.
            Some(now) if !now.reader.canonical => return Ok(PromptState::Disturbed),
            Some(_) => {}
        }
        let is_empty =
            if self.reader.is_marked { self.pane.is_marked_line_empty() } else { self.is_own_prompt(&prompt) };
        if !is_empty {
            return Ok(look::typed_or_unknown(&prompt, ""));
        }
        let Some((mut after, mut reached)) = self.reprint(before, reprint).await? else {
            return Ok(PromptState::Gone);
        };
        if reached && self.reader.is_marked {
            // Behind another terminal, the line may arrive after its beginning.
            self.until_calm().await;
            let spot = self.spot().await?;
            reached = spot == after;
            after = spot;
        }
        if reached {
            return Ok(PromptState::Empty(EmptyPrompt {
                cursor: after,
                clear: kill.into_iter().collect(),
                column: 0,
                above: (1, before.x),
                has_editor: false,
                text: prompt,
            }));
        }
        if after == before {
            return Ok(PromptState::Unknown(prompt));
        }
        if self.reader.is_marked && after == (CursorPosition { x: before.x + 2, ..before }) {
            // The terminal has another key for that, or none, and shows this one (`^R`).
            let erased = self.ask(BACKSPACE, |spot| spot == before).await?;
            if erased.is_some_and(|erased| erased.reached) {
                return Ok(PromptState::Unknown(prompt));
            }
        }
        self.row(after.y, after.x).await.map(PromptState::Typed)
    }

    /// Makes the terminal print the typed line again. Returns the cursor's position afterwards, and whether it is at
    /// the beginning of a row of its own. `None` if another program has the terminal. `key`: its
    /// `VREPRINT` (termios(3)).
    async fn reprint(&self, before: CursorPosition, key: u8) -> Result<Option<(CursorPosition, bool)>> {
        let line_below = |spot: CursorPosition| spot.x == 0 && (spot.y == before.y + 1 || before.is_lowest());
        let after = self.ask(&[key], line_below).await?;
        Ok(after.map(|after| (after.spot, after.reached)))
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
                () = tokio::time::sleep_until(give_up) => {}
                changed = changes.changed() => if changed.is_err() { return Err(self.ended()) },
            }
        }
    }
}
