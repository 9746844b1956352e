//! A line of the grid: its touched cells, the number of used ones, and whether it continues in the
//! next line.

use serde::{Deserialize, Serialize};

use super::{cell::Cell, rules::Rules, style::Styles};

/// A line. Cells after the end of `cells` were never touched; `used` counts up to the last one that
/// was written or moved.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one thing that tmux knows of a line, or a seed does not tell"
)]
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    /// The number of cells up to the last written one: those that a capture prints.
    pub(super) used: u32,
    /// The number of last cells that may not exist in tmux, depending on where its reads ended.
    /// They are untouched.
    pub(super) slack: u32,
    /// Whether the text continues in the next line.
    pub(super) wrapped: bool,
    /// Whether a cell of the line was ever long: in other lines, tmux does not look for wide
    /// characters, whose right halves reflow can leave behind.
    pub(super) extended: bool,
    /// Whether it has cells whose widths a seed did not report: tabs, wide characters, marks.
    pub(super) guessed: bool,
    /// Whether a guessed line changed since: its present text is uncertain.
    pub(super) doubtful: bool,
    /// Whether the number of existing cells is unknown: some were erased with a background that no
    /// seed reported.
    pub(super) unsure_end: bool,
    /// Whether it is unknown if the text continues in the next line.
    pub(super) unsure_wrap: bool,
}

/// A run of ASCII that is being printed, and the line's size before it. tmux makes cells exist for
/// the part of a run that it has read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// The column at which the run began.
    start: u32,
    /// The column at which the run ends so far.
    pub(super) end: u32,
    /// The minimum and maximum number of cells that existed.
    least: u32,
    most: u32,
}

/// Makes the blanks that remain of wide characters that are cut.
pub(super) struct Blanks<'a> {
    pub(super) rules: &'a Rules,
    pub(super) styles: &'a mut Styles,
}

impl Blanks<'_> {
    /// Returns the blank that replaces a cell.
    fn of(&mut self, cell: Cell) -> Cell {
        if self.rules.colours_padding && cell.style() != 0 {
            let left = self.styles.get(cell.style()).cut();
            return Cell::ascii(b' ', self.styles.intern(left));
        }
        Cell::SPACE
    }
}

/// Returns the number of existing cells after a request for `wanted`: lines grow in steps.
fn grown(size: u32, wanted: u32, columns: u32) -> u32 {
    match wanted {
        _ if wanted <= size => size,
        _ if wanted < columns / 4 => columns / 4,
        _ if wanted < columns / 2 => columns / 2,
        _ => columns.max(wanted),
    }
}

impl Row {
    /// Returns the number of existing cells.
    pub(super) fn size(&self) -> u32 {
        self.cells.len() as u32
    }

    /// Returns the cells up to the last one that was touched, or erased with a background.
    pub(super) fn touched(&self) -> &[Cell] {
        let (used, unused) = self.cells.split_at(self.cells.len().min(self.used as usize));
        // The cells after the used ones are nearly always untouched; testing that takes less time
        // than a search from the end.
        let blank = Cell::are_cleared(unused);
        let cells = if blank { used } else { &self.cells };
        // Cells after them that were erased with an unknown background are covered by `unsure_end`.
        let unused = cells.get(used.len()..).unwrap_or_default();
        let is_touched = |cell: &Cell| *cell != Cell::CLEARED && *cell != Cell::UNTOLD;
        let length = match unused.iter().rposition(is_touched) {
            Some(last) => used.len() + last + 1,
            None => used.iter().rposition(|cell| *cell != Cell::CLEARED).map_or(0, |last| last + 1),
        };
        cells.get(..length).unwrap_or_default()
    }

    /// Returns the cell in a column; an untouched one is cleared.
    pub(super) fn get(&self, column: u32) -> Cell {
        self.cells.get(column as usize).copied().unwrap_or(Cell::CLEARED)
    }

    /// Makes the first `wanted` cells exist. Grows in tmux's steps, to give the line tmux's number
    /// of cells.
    pub(super) fn expand(&mut self, wanted: u32, columns: u32, fill: Cell) {
        if wanted <= self.size() - self.slack {
            return;
        }
        self.resize(grown(self.size() - self.slack, wanted, columns), grown(self.size(), wanted, columns), fill);
    }

    /// Makes the larger of two numbers of cells exist; the difference becomes `slack`.
    fn resize(&mut self, one: u32, other: u32, fill: Cell) {
        let most = one.max(other);
        if most > self.size() {
            self.cells.resize(most as usize, fill);
        }
        self.slack = self.size() - one.min(other);
    }

    /// Returns the run that begins in a column.
    pub(super) fn run(&self, column: u32) -> Run {
        Run { start: column, end: column, least: self.size() - self.slack, most: self.size() }
    }

    /// Writes a cell: it and all cells before it become used.
    pub(super) fn set(&mut self, column: u32, columns: u32, cell: Cell) {
        self.expand(column + 1, columns, Cell::CLEARED);
        if let Some(slot) = self.cells.get_mut(column as usize) {
            *slot = cell.over(*slot);
        }
        self.doubtful |= self.guessed;
        self.extended |= cell.is_long();
        self.used = self.used.max(column + 1);
    }

    /// Writes a cell and the right half of a wide character.
    #[inline]
    pub(super) fn set_wide(&mut self, column: u32, width: u32, columns: u32, cell: Cell, padding: Cell) {
        let end = column + width.max(1);
        if width > 2 {
            // tmux writes the right halves first, one by one.
            for step in column + 2..end {
                self.expand(step, columns, Cell::CLEARED);
            }
        }
        self.expand(end, columns, Cell::CLEARED);
        match self.cells.get_mut(column as usize..end as usize) {
            Some([only]) => *only = cell.over(*only),
            Some([left, right]) => (*left, *right) = (cell.over(*left), padding.over(*right)),
            Some([first, rest @ ..]) => {
                *first = cell.over(*first);
                for slot in rest {
                    *slot = padding.over(*slot);
                }
            }
            _ => {}
        }
        self.doubtful |= self.guessed;
        self.extended |= cell.is_long();
        self.used = self.used.max(end);
    }

    /// Blanks the remains of wide characters that are about to be partly overwritten; false if
    /// there are none.
    #[inline]
    pub(super) fn cut_wide(&mut self, column: u32, width: u32, columns: u32, blanks: &mut Blanks<'_>) -> bool {
        if !self.extended {
            return false;
        }
        let here = self.get(column);
        let behind = column + width;
        let reaches = width != 1 || here.width() != 1;
        if here.is_padding() || reaches && behind < columns && self.get(behind).is_padding() {
            self.cut(here, column, width, columns, blanks);
            return true;
        }
        false
    }

    #[cold]
    fn cut(&mut self, here: Cell, column: u32, width: u32, columns: u32, blanks: &mut Blanks<'_>) {
        if here.is_padding() {
            let mut left = column;
            while left > 0 && self.get(left).is_padding() {
                self.blank(left, columns, blanks);
                left -= 1;
            }
            self.blank(left, columns, blanks);
        }
        if width != 1 || here.width() != 1 || here.is_padding() {
            let tab = here.is_tab() && blanks.rules.splits_tabs;
            let mut right = column + width;
            while right < columns && self.get(right).is_padding() {
                if tab {
                    self.set(right, columns, Cell::tab(1, here.style()));
                } else {
                    self.blank(right, columns, blanks);
                }
                right += 1;
            }
        }
    }

    /// Blanks a part of a wide character.
    fn blank(&mut self, column: u32, columns: u32, blanks: &mut Blanks<'_>) {
        let blank = blanks.of(self.get(column));
        self.set(column, columns, blank);
    }

    /// Blanks the remains of a wide character in whose middle text begins.
    #[inline]
    pub(super) fn cut_before(&mut self, column: u32, columns: u32, blanks: &mut Blanks<'_>) {
        if column > 0 && self.get(column).is_padding() {
            self.cut_middle(column, columns, blanks);
        }
    }

    #[cold]
    fn cut_middle(&mut self, column: u32, columns: u32, blanks: &mut Blanks<'_>) {
        let mut left = column;
        while left > 0 && self.get(left).is_padding() {
            self.blank(left, columns, blanks);
            left -= 1;
        }
        let first = self.get(left);
        let first_column = left > 0 || blanks.rules.cuts_first_column;
        if first_column && first.width() > 1 || first.is_padding() && blanks.rules.cuts_orphans {
            self.blank(left, columns, blanks);
        }
    }

    /// Blanks the right halves after a text.
    #[inline]
    pub(super) fn cut_after(&mut self, column: u32, columns: u32, blanks: &mut Blanks<'_>) {
        let mut right = column;
        while right < columns && self.get(right).is_padding() {
            self.blank(right, columns, blanks);
            right += 1;
        }
    }

    /// Writes a run of ASCII.
    #[cfg(test)]
    pub(super) fn set_ascii(&mut self, column: u32, columns: u32, text: &[u8], style: u32) {
        let mut run = self.run(column);
        run.end += text.len() as u32;
        self.set_run(run, columns, text, style);
    }

    /// Writes the end of a run.
    pub(super) fn set_run(&mut self, run: Run, columns: u32, text: &[u8], style: u32) {
        let Run { start, end, least, most } = run;
        let column = end - text.len() as u32;
        // If a run ends exactly at a step, reading it at once makes the next step exist, and
        // reading it in parts does not.
        let (quarter, half) = (columns / 4, columns / 2);
        let cut_after = match end {
            _ if end == quarter => start.max(least),
            _ if end == half => start.max(least).max(quarter.saturating_sub(1)),
            _ => end,
        };
        let low = if cut_after + 1 < end { end } else { grown(least, end, columns) };
        let others = [grown(least, end, columns), grown(most, end, columns)];
        self.resize(low.min(others[1]), others[0].max(others[1]), Cell::CLEARED);
        let empty = Cell::ascii(0, style);
        if let Some(slots) = self.cells.get_mut(column as usize..end as usize) {
            // Reading the previous content takes a tenth of the time of plain lines.
            if self.extended {
                for (slot, byte) in slots.iter_mut().zip(text) {
                    *slot = empty.with_byte(*byte).over(*slot);
                }
            } else {
                for (slot, byte) in slots.iter_mut().zip(text) {
                    *slot = empty.with_byte(*byte);
                }
            }
        }
        self.doubtful |= self.guessed;
        self.extended |= empty.is_long();
        self.used = self.used.max(end);
    }

    /// Erases cells; `fill` replaces them. After the line's end, only a background leaves a trace.
    /// `in_place`: cells stay in their long form.
    pub(super) fn erase(&mut self, column: u32, count: u32, columns: u32, fill: Cell, in_place: bool) {
        let mut end = column.saturating_add(count);
        if fill == Cell::CLEARED {
            // No cells exist after the end.
            end = end.min(self.size().min(columns));
        }
        if column >= end {
            return;
        }
        if fill != Cell::CLEARED {
            self.expand(end, columns, Cell::CLEARED);
        }
        if let Some(slots) = self.cells.get_mut(column as usize..end as usize) {
            if in_place {
                for slot in slots {
                    *slot = fill.over(*slot);
                }
            } else {
                slots.fill(fill);
            }
        }
        self.doubtful |= self.guessed;
        self.unsure_end |= fill == Cell::UNTOLD;
        self.extended |= fill.is_long();
    }

    /// Moves cells within the line and erases their former places.
    pub(super) fn shift(&mut self, to: u32, from: u32, count: u32, columns: u32, fill: Cell) {
        if count == 0 || to == from {
            return;
        }
        self.expand(from + count, columns, Cell::CLEARED);
        self.expand(to + count, columns, Cell::CLEARED);
        self.cells.copy_within(from as usize..(from + count) as usize, to as usize);
        self.used = self.used.max(to + count);
        let (start, end) = if to > from { (from, to.min(from + count)) } else { (from.max(to + count), from + count) };
        if let Some(slots) = self.cells.get_mut(start as usize..end as usize) {
            slots.fill(fill);
        }
        self.doubtful |= self.guessed;
        self.unsure_end |= fill == Cell::UNTOLD;
        self.extended |= fill.is_long();
    }

    /// Turns the line into an untouched one, or into one that is erased with a background across
    /// the screen.
    pub(super) fn clear(&mut self, columns: u32, fill: Cell) {
        self.cells.clear();
        self.slack = 0;
        self.used = 0;
        self.wrapped = false;
        (self.guessed, self.doubtful) = (false, false);
        (self.unsure_end, self.unsure_wrap) = (fill == Cell::UNTOLD, false);
        self.extended = fill.is_long();
        if fill != Cell::CLEARED {
            self.cells.resize(columns as usize, fill);
        }
    }

    /// Treats the plain blanks at the end as cells that were never written. One cell stays used: an
    /// unwritten line has no cells.
    pub(super) fn leave_end_unused(&mut self) {
        let last =
            self.cells.iter().rposition(|cell| cell.is_padding() || cell.as_ascii() != Some(b' ') || cell.style() != 0);
        self.used = last.map_or(1, |last| last as u32 + 1).min(self.size());
        if let Some(unused) = self.cells.get_mut(self.used as usize..) {
            unused.fill(Cell::CLEARED);
        }
    }

    /// Frees the capacity that a wider screen needed.
    pub(super) fn shrink(&mut self, columns: u32) {
        if self.cells.capacity() > columns as usize * 2 + 16 {
            self.cells.shrink_to((columns as usize).max(self.cells.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Cell = Cell::ascii(b'x', 0);

    #[test]
    fn erased_cells_do_not_count_as_used() {
        let mut row = Row::default();
        row.erase(0, 5, 10, Cell::CLEARED, false);
        assert_eq!((row.size(), row.used), (0, 0));
        row.erase(0, 5, 10, Cell::erased(3), false);
        assert_eq!((row.size(), row.used), (10, 0));
        row.set(6, 10, X);
        assert_eq!(row.used, 7);
        row.erase(6, 1, 10, Cell::CLEARED, false);
        assert_eq!(row.used, 7);
    }

    #[test]
    fn lines_exist_in_quarters() {
        let mut row = Row::default();
        row.set(0, 80, X);
        assert_eq!(row.size(), 20);
        row.set(20, 80, X);
        assert_eq!(row.size(), 40);
        row.set(40, 80, X);
        assert_eq!(row.size(), 80);
    }

    #[test]
    fn how_far_a_line_exists_may_depend_on_reads() {
        let mut row = Row::default();
        let run = row.run(0);
        row.set_run(Run { end: 15, ..run }, 80, &[b'x'; 15], 0);
        assert_eq!((row.size(), row.slack), (20, 0));
        row.set_run(Run { end: 20, ..run }, 80, &[b'x'; 5], 0);
        assert_eq!((row.size(), row.slack), (40, 20));
        row.set_run(Run { end: 21, ..run }, 80, &[b'x'; 1], 0);
        assert_eq!((row.size(), row.slack), (40, 0));
        row.set_ascii(21, 80, &[b'x'; 19], 0);
        assert_eq!((row.size(), row.slack), (40, 0));
        let mut row = Row::default();
        row.set_ascii(0, 80, &[b'x'; 20], 0);
        row.set(39, 80, X);
        assert_eq!((row.size(), row.slack), (80, 40));
    }

    #[test]
    fn blanks_at_the_end_can_be_left_unused() {
        let mut row = Row::default();
        row.set_ascii(0, 80, b"a b  ", 0);
        row.leave_end_unused();
        assert_eq!((row.used, row.size(), row.get(3)), (3, 20, Cell::CLEARED));
        let mut wide = Row::default();
        wide.set_wide(0, 2, 80, Cell::character('漢', 2, 0), Cell::PADDING);
        wide.leave_end_unused();
        assert_eq!((wide.used, wide.get(1)), (2, Cell::PADDING));
        let mut blank = Row::default();
        blank.set_ascii(0, 80, b"   ", 0);
        blank.leave_end_unused();
        assert_eq!((blank.used, blank.size()), (1, 20));
        blank.clear(80, Cell::CLEARED);
        blank.leave_end_unused();
        assert_eq!(blank.used, 0);
    }

    #[test]
    fn a_shift_leaves_erased_cells_behind() {
        let mut row = Row::default();
        row.set_ascii(0, 8, b"abcd", 0);
        row.shift(2, 0, 4, 8, Cell::CLEARED);
        let text: Vec<_> = (0..8).filter_map(|at| row.get(at).as_ascii()).collect();
        assert_eq!(text, b"  abcd  ");
        row.shift(0, 2, 4, 8, Cell::CLEARED);
        let text: Vec<_> = (0..8).filter_map(|at| row.get(at).as_ascii()).collect();
        assert_eq!((text, row.used), (b"abcd    ".to_vec(), 6));
    }
}
