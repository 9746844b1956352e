//! Erasing, inserting and deleting.

use super::{style::Colour, terminal::Terminal};

impl Terminal {
    /// Clears the line: EL 2.
    pub(super) fn clear_line(&mut self, background: Colour) {
        // An untouched line is left alone, with the wrap flag of the one above it.
        if self.grid.row(self.y).is_none_or(|row| row.cells.is_empty()) && background.is_default() {
            self.grid.fill(background);
            return;
        }
        self.grid.erase(0, self.y, self.columns(), 1, background);
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

    /// Clears to the screen's end: ED 0. From the top left corner on the lines go into history.
    pub(super) fn clear_to_screen_end(&mut self) {
        let (background, columns, height) = (self.background(), self.columns(), self.height());
        if self.x == 0 && self.y == 0 && self.grid.keeps && self.settings.scroll_on_clear {
            self.grid.clear_into_history(background);
            return;
        }
        if self.x < columns {
            self.grid.erase(self.x, self.y, columns - self.x, 1, background);
        }
        self.grid.erase(0, self.y + 1, columns, height - self.y - 1, background);
    }

    /// Clears to the screen's start: ED 1.
    pub(super) fn clear_to_screen_start(&mut self) {
        let (background, columns) = (self.background(), self.columns());
        self.grid.erase(0, 0, columns, self.y, background);
        self.grid.erase(0, self.y, (self.x + 1).min(columns), 1, background);
    }

    /// Clears the screen, ED 2: the lines go into history.
    pub(super) fn clear_screen(&mut self, background: Colour) {
        if self.grid.keeps && self.settings.scroll_on_clear {
            self.grid.clear_into_history(background);
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

    /// Returns a count bounded by the line's end; `None` behind it.
    fn cells_right(&self, count: u32) -> Option<u32> {
        let right = self.columns().saturating_sub(self.x);
        (right > 0).then(|| count.max(1).min(right))
    }

    /// Inserts lines: IL. It acts outside of the scroll region too, down to the bottom.
    pub(super) fn insert_lines(&mut self, count: u32) {
        let background = self.background();
        if self.y < self.upper || self.y > self.lower {
            self.grid.insert_lines(self.y, count.max(1).min(self.height() - self.y), background);
        } else {
            let count = count.max(1).min(self.lower + 1 - self.y);
            self.grid.insert_lines_in(self.lower, self.y, count, background);
        }
    }

    /// Deletes lines: DL; likewise.
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
