//! Typing a line at an empty prompt, and removing it again.

use std::time::Duration;

use muxtap_api::Result;
use tokio::time::Instant;

use super::{BACKSPACE, CursorPosition, EmptyPrompt, INTERRUPT, Prompt};
use crate::input::{self, command_line::TypedLine};

/// How long a shell that has shown nothing of a typed line may take to begin, beyond [`super::PATIENCE`].
const ECHO_PATIENCE: Duration = Duration::from_secs(4);

/// How the terminal shows a line that was typed.
pub(crate) enum Shown {
    /// The line is shown, with the cursor behind it.
    AsTyped(CursorPosition),
    /// The line was not typed: the cursor had moved.
    Moved,
    /// Something else is shown.
    Otherwise,
    /// Nothing is shown: the terminal or the line editor does not echo.
    Nothing,
    /// Another program prints all the time.
    Noise,
}

impl Prompt<'_> {
    /// Types a line at an empty prompt, without Enter, if the cursor is still there. Returns what is
    /// shown of it.
    ///
    /// `has_begun`: whether the line was entered meanwhile, and runs.
    pub(crate) async fn type_line(
        &self,
        prompt: &EmptyPrompt,
        line: &TypedLine,
        has_begun: impl Fn() -> bool,
    ) -> Result<Shown> {
        if !self.is_same_shell().await {
            return Ok(Shown::Moved);
        }
        let begin = self.pane.lock().ring().end();
        let keys = [prompt.clear.as_slice(), line.keys.as_bytes()].concat();
        let typed = input::prepare_unechoed(self.pane, &keys)?;
        if self.server.send_if(self.pane, typed, Some(prompt.cursor)).await?.is_none() {
            return Ok(Shown::Moved);
        }
        let cells = line.shown.len();
        let width = u64::from(prompt.cursor.width.max(1));
        let column = (u64::from(prompt.column) + cells as u64) % width;
        let is_there = |spot: CursorPosition| u64::from(spot.x) == column;
        let is_known = |spot: CursorPosition| is_there(spot) || has_begun();
        let mut moved = self.come_to_once_read(begin, is_known).await?;
        // On a full machine the shell may not have drawn the keys yet that it has read.
        let give_up = Instant::now() + ECHO_PATIENCE;
        while self.pane.lock().ring().end() == begin && Instant::now() < give_up {
            moved = self.come_to(begin, is_known).await?;
        }
        for is_last in [false, true] {
            let at = u64::from(moved.spot.y) * width + u64::from(moved.spot.x);
            // In a small pane, the beginning of the line has left the screen.
            let visible = at.min(cells as u64);
            let (start, visible) = (at - visible, usize::try_from(visible).unwrap_or_default());
            let (x, y) = (u16::try_from(start % width), u16::try_from(start / width));
            let start = CursorPosition { x: x.unwrap_or_default(), y: y.unwrap_or_default(), ..moved.spot };
            let is_whole = visible == cells;
            let expected = line.shown.get(cells - visible..).unwrap_or_default();
            if is_there(moved.spot)
                && (start.x == prompt.column || !is_whole)
                && self.text_from(start, visible).await? == expected
            {
                return Ok(Shown::AsTyped(moved.spot));
            }
            if !is_last {
                // It may have been shown in part.
                moved = self.come_to(begin, |_| has_begun()).await?;
            }
        }
        Ok(match self.pane.lock().ring().end() == begin {
            true => Shown::Nothing,
            false if moved.noisy => Shown::Noise,
            false => Shown::Otherwise,
        })
    }

    /// Interrupts the line editor, which drops the line. Returns whether it printed its prompt again.
    pub(crate) async fn interrupt_line(&self) -> Result<bool> {
        if !self.is_same_shell().await {
            return Ok(false);
        }
        let begin = self.pane.lock().ring().end();
        let spot = self.press(INTERRUPT, |_| false).await?.spot;
        Ok(spot.x > 0 && self.pane.lock().ring().end() > begin && self.is_same_shell().await)
    }

    /// Removes a line that is still shown, although it was entered. Returns whether it was shown.
    pub(crate) async fn remove_left_line(&self, line: &TypedLine) -> Result<bool> {
        let spot = self.spot().await?;
        let shown = self.text_before(spot, line.shown.len()).await?;
        let is_left = shown.trim_end_matches(['#', ' ']).ends_with(&line.ending);
        if is_left {
            self.remove_line(line).await?;
        }
        Ok(is_left)
    }

    /// Removes a line that was typed and is shown otherwise, or that a user typed into.
    pub(crate) async fn remove_line(&self, line: &TypedLine) -> Result<()> {
        if !self.is_same_shell().await {
            // The line was run: keys would go to the program.
            return Ok(());
        }
        let spot = self.spot().await?;
        let keys = if self.text_before(spot, line.shown.len()).await? == line.shown {
            // Deletes no text that was there before.
            BACKSPACE.repeat(line.shown.len())
        } else {
            b"\x05\x15".to_vec()
        };
        let spot = self.press(&keys, |_| false).await?.spot;
        let left = self.text_before(spot, line.shown.len()).await?;
        if left.contains(&line.ending) && self.is_same_shell().await {
            self.press(INTERRUPT, |_| false).await?;
        }
        Ok(())
    }
}
