//! Cursor movements, and the scrolling that they cause.

use super::{
    Trouble,
    cell::Cell,
    style::{Colour, Style, attribute},
    terminal::Terminal,
};

/// The maximum number of columns of a tab that is kept as a tab.
const TAB_COLUMNS: u32 = 32;

impl Terminal {
    /// Moves the cursor. The column after the last one is valid: the next character wraps there.
    pub(super) fn set_cursor(&mut self, x: Option<u32>, y: Option<u32>) {
        if let Some(x) = x {
            self.x = if x > self.columns() { self.columns() - 1 } else { x };
        }
        if let Some(y) = y {
            self.y = y.min(self.height() - 1);
        }
    }

    /// Moves the cursor as CUP does: inside the screen, and relative to the region's top if
    /// `origin` and that mode are set.
    pub(super) fn move_cursor(&mut self, x: Option<u32>, y: Option<u32>, origin: bool) {
        let y = y.map(|y| match () {
            () if !origin || !self.modes.origin => y,
            () if y > self.lower - self.upper => self.lower,
            () => y + self.upper,
        });
        self.set_cursor(x.map(|x| x.min(self.columns() - 1)), y.map(|y| y.min(self.height() - 1)));
    }

    /// Moves down a line: LF, IND and wrapping.
    pub(super) fn line_feed(&mut self, wrapped: bool, background: Colour) {
        if wrapped && let Some(row) = self.grid.row_mut(self.y) {
            (row.wrapped, row.unsure_wrap) = (true, false);
        }
        if self.y == self.lower {
            self.grid.scroll_up(self.upper, self.lower, background);
        } else if self.y + 1 < self.height() {
            self.y += 1;
        }
    }

    /// Moves up a line: RI.
    pub(super) fn reverse_index(&mut self) {
        if self.y == self.upper {
            self.grid.scroll_down(self.upper, self.lower, self.background());
        } else if self.y > 0 {
            self.y -= 1;
        }
    }

    pub(super) fn carriage_return(&mut self) {
        self.x = 0;
    }

    /// Moves back: BS. At the start of a line, moves to the end of the line above if that one
    /// wrapped.
    pub(super) fn backspace(&mut self) {
        if self.x > 0 {
            self.set_cursor(Some(self.x - 1), None);
        } else if let Some(above) = self.y.checked_sub(1)
            && self.grid.row(above).is_some_and(|row| row.wrapped || row.unsure_wrap)
        {
            if self.grid.row(above).is_some_and(|row| row.unsure_wrap) {
                self.trouble = Some(Trouble::Untold);
            }
            self.y = above;
            self.x = self.columns() - 1;
        }
    }

    /// Moves to the next tab stop: HT.
    pub(super) fn tab(&mut self) {
        let last = self.columns() - 1;
        if self.x >= last {
            return;
        }
        let mut to = self.x + 1;
        while to < last && !self.is_tab(to) {
            to += 1;
        }
        let width = to - self.x;
        let is_kept = self.rules.keeps_tabs && width <= TAB_COLUMNS && self.are_blank(width);
        if self.rules.keeps_tabs && width <= TAB_COLUMNS && self.may_look_same(width) {
            self.doubt_row();
        }
        if is_kept {
            self.print_tab(width);
        } else {
            self.x = to;
        }
    }

    /// Returns whether the cells from the cursor on are blanks that look the same.
    fn are_blank(&self, columns: u32) -> bool {
        let Some(row) = self.grid.row(self.y) else { return false };
        let first = row.get(self.x);
        let look = |cell: Cell| Style { underline: Colour::NONE, ..self.grid.styles.get(cell.style()) };
        (self.x..self.x + columns).all(|x| {
            let cell = row.get(x);
            let blank = cell.as_ascii() == Some(b' ') && !cell.is_padding() || cell.is_tab() && cell.width() == 1;
            let same = cell.style() == first.style() || look(cell) == look(first);
            blank && same && cell.is_tab() == first.is_tab()
        })
    }

    /// Returns whether the cells from the cursor on look different here but may look the same in
    /// tmux: the style of some of them is unknown.
    fn may_look_same(&self, columns: u32) -> bool {
        let Some(row) = self.grid.row(self.y) else { return false };
        let first = row.get(self.x).style();
        let mut cells = (self.x..self.x + columns).map(|x| row.get(x));
        let is_untold = |cell: Cell| self.grid.styles.get(cell.style()).has(attribute::UNTOLD);
        cells.clone().any(|cell| cell.style() != first)
            && cells.clone().any(is_untold)
            && cells.all(|cell| cell.as_ascii() == Some(b' ') || cell.is_tab())
    }

    /// Moves back by tab stops: CBT.
    pub(super) fn back_tab(&mut self, count: u32) {
        self.x = self.x.min(self.columns() - 1);
        for _ in 0..count {
            if self.x == 0 {
                break;
            }
            self.x -= 1;
            while self.x > 0 && !self.is_tab(self.x) {
                self.x -= 1;
            }
        }
    }

    /// Moves back to the last column from the column after it. (A resize can leave the cursor far
    /// beyond it.)
    fn leave_margin(&mut self) {
        self.x = self.x.min(self.columns() - 1);
    }

    pub(super) fn cursor_up(&mut self, count: u32) {
        let most = if self.y < self.upper { self.y } else { self.y - self.upper };
        self.leave_margin();
        self.y -= count.max(1).min(most);
    }

    pub(super) fn cursor_down(&mut self, count: u32) {
        let most = if self.y > self.lower { self.height() - 1 - self.y } else { self.lower - self.y };
        self.leave_margin();
        self.y += count.max(1).min(most);
    }

    pub(super) fn cursor_right(&mut self, count: u32) {
        // Beyond the last column there is no limit, and a cursor that is too far right returns to
        // the last column.
        self.x = match (self.columns() - 1).checked_sub(self.x) {
            Some(most) => self.x + count.max(1).min(most),
            None => self.columns() - 1,
        };
    }

    pub(super) fn cursor_left(&mut self, count: u32) {
        let x = self.x - count.max(1).min(self.x);
        self.set_cursor(Some(x), None);
    }

    /// Sets the scroll region: DECSTBM. A region has at least two lines.
    pub(super) fn scroll_region(&mut self, upper: u32, lower: u32) {
        let last = self.height() - 1;
        let (upper, lower) = (upper.min(last), lower.min(last));
        if upper >= lower {
            return;
        }
        self.set_cursor(Some(0), Some(0));
        (self.upper, self.lower) = (upper, lower);
    }

    /// Scrolls up: SU.
    pub(super) fn scroll_up(&mut self, lines: u32) {
        for _ in 0..lines.max(1).min(self.lower - self.upper + 1) {
            self.grid.scroll_up(self.upper, self.lower, self.background());
        }
    }

    /// Scrolls down: SD.
    pub(super) fn scroll_down(&mut self, lines: u32) {
        for _ in 0..lines.max(1).min(self.lower - self.upper + 1) {
            self.grid.scroll_down(self.upper, self.lower, self.background());
        }
    }
}
