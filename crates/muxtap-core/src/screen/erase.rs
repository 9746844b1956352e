//! Erasing, inserting and deleting.

use super::{Trouble, row::Row, style::Colour, terminal::Terminal};

impl Terminal {
    /// Clears the line: EL 2.
    pub(super) fn clear_line(&mut self, background: Colour) {
        // An untouched line stays unchanged, and so does the wrap flag of the line above it.
        let is_empty = |row: &Row| row.used == 0 && (row.unsure_end || background == Colour::UNTOLD);
        if self.grid.row(self.y).is_some_and(is_empty) {
            return self.clear_unsure_line(background);
        }
        if self.grid.row(self.y).is_none_or(|row| row.cells.is_empty()) && background.is_default() {
            self.grid.fill(background);
            return;
        }
        self.grid.erase(0, self.y, self.columns(), 1, background);
    }

    /// Clears a line for which it is unknown whether it is untouched, or will be.
    #[cold]
    fn clear_unsure_line(&mut self, background: Colour) {
        let is_wrapped = |y| self.grid.row(y).is_some_and(|row| row.wrapped || row.unsure_wrap);
        match self.y.checked_sub(1) {
            Some(above) if is_wrapped(above) => {
                self.grid.erase(0, self.y, self.columns(), 1, background);
                if let Some(row) = self.grid.row_mut(above) {
                    row.unsure_wrap = true;
                }
                self.grid.unsure = true;
            }
            Some(_) => self.grid.erase(0, self.y, self.columns(), 1, background),
            None => {
                // No other record shows whether the newest line of history continues.
                if self.grid.history.last().is_some_and(|last| last.wrapped()) {
                    self.trouble = Some(Trouble::Untold);
                }
                self.grid.erase(0, self.y, self.columns(), 1, background);
            }
        }
    }

    /// Clears to the line's end: EL 0.
    pub(super) fn clear_to_line_end(&mut self) {
        let background = self.background();
        match self.x {
            0 => self.clear_line(background),
            x if x < self.columns() => self.grid.erase(x, self.y, self.columns() - x, 1, background),
            _ => {}
        }
    }

    /// Clears to the line's start: EL 1.
    pub(super) fn clear_to_line_start(&mut self) {
        let background = self.background();
        if self.x + 1 >= self.columns() {
            self.clear_line(background);
        } else {
            self.grid.erase(0, self.y, self.x + 1, 1, background);
        }
    }

    /// Clears to the screen's end: ED 0. From the top left corner, the lines go into history.
    pub(super) fn clear_to_screen_end(&mut self) {
        let (background, columns, height) = (self.background(), self.columns(), self.height());
        if self.x == 0 && self.y == 0 && self.grid.keeps && self.settings.scroll_on_clear {
            self.clear_into_history(background);
            return;
        }
        if self.x < columns {
            self.grid.erase(self.x, self.y, columns - self.x, 1, background);
        }
        self.grid.erase(0, self.y + 1, columns, height - self.y - 1, background);
    }

    fn clear_into_history(&mut self, background: Colour) {
        if self.grid.is_last_line_unsure(self.rules) {
            self.trouble = Some(Trouble::Untold);
        }
        self.grid.clear_into_history(background);
    }

    /// Clears to the screen's start: ED 1.
    pub(super) fn clear_to_screen_start(&mut self) {
        let (background, columns) = (self.background(), self.columns());
        self.grid.erase(0, 0, columns, self.y, background);
        self.grid.erase(0, self.y, (self.x + 1).min(columns), 1, background);
    }

    /// Clears the screen: ED 2. The lines go into history.
    pub(super) fn clear_screen(&mut self, background: Colour) {
        if self.grid.keeps && self.settings.scroll_on_clear {
            self.clear_into_history(background);
        } else {
            self.grid.erase(0, 0, self.columns(), self.height(), background);
        }
    }

    /// Inserts blank characters: ICH.
    pub(super) fn insert_characters(&mut self, count: u32) {
        if let Some(count) = self.cells_right(count) {
            self.grid.insert_cells(self.x, self.y, count, self.background());
        }
    }

    /// Deletes characters: DCH.
    pub(super) fn delete_characters(&mut self, count: u32) {
        if let Some(count) = self.cells_right(count) {
            self.grid.delete_cells(self.x, self.y, count, self.background());
        }
    }

    /// Erases characters: ECH.
    pub(super) fn erase_characters(&mut self, count: u32) {
        if let Some(count) = self.cells_right(count) {
            self.grid.erase(self.x, self.y, count, 1, self.background());
        }
    }

    /// Returns a count limited by the line's end; `None` after it.
    fn cells_right(&self, count: u32) -> Option<u32> {
        let right = self.columns().saturating_sub(self.x);
        (right > 0).then(|| count.max(1).min(right))
    }

    /// Inserts lines: IL. Also acts outside of the scroll region, down to the bottom.
    pub(super) fn insert_lines(&mut self, count: u32) {
        let background = self.background();
        if self.y < self.upper || self.y > self.lower {
            self.grid.insert_lines(self.y, count.max(1).min(self.height() - self.y), background);
        } else {
            let count = count.max(1).min(self.lower + 1 - self.y);
            self.grid.insert_lines_in(self.lower, self.y, count, background);
        }
    }

    /// Deletes lines: DL. Also acts outside of the scroll region, down to the bottom.
    pub(super) fn delete_lines(&mut self, count: u32) {
        let background = self.background();
        if self.y < self.upper || self.y > self.lower {
            self.grid.delete_lines(self.y, count.max(1).min(self.height() - self.y), background);
        } else {
            let count = count.max(1).min(self.lower + 1 - self.y);
            self.grid.delete_lines_in(self.lower, self.y, count, background);
        }
    }
}
