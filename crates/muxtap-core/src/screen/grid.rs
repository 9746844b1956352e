//! The visible lines and the history, and the operations that move lines.
//!
//! Rows count from the top of the screen. The model includes the effect of a moved row on the wrap
//! flag of the line above it: that flag decides which lines are joined.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{
    cell::{Cell, Clusters, Glyph},
    changes::Changes,
    history::History,
    packed,
    row::Row,
    rules::Rules,
    style::{Colour, Style, StyleId, Styles, place},
};

/// The lines of a screen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that is kept or not known")]
pub(super) struct Grid {
    pub(super) columns: u32,
    pub(super) rows: VecDeque<Row>,
    pub(super) history: History,
    /// The number of lines that scrolled away and come back when the screen grows.
    pub(super) scrolled: u32,
    /// The maximum number of lines of history; 0 keeps none.
    pub(super) limit: u32,
    /// Whether lines that scroll away are kept: false on the alternate screen.
    pub(super) keeps: bool,
    /// Whether erased cells stay in their long form.
    erases_in_place: bool,
    /// Whether cells that were printed or erased since the seed may differ in tmux.
    pub(super) unsure: bool,
    /// Whether the grid came with a seed.
    pub(super) seeded: bool,
    /// Whether a row has cells whose widths a seed did not report.
    pub(super) guesses: bool,
    pub(super) styles: Styles,
    pub(super) clusters: Clusters,
    pub(super) changes: Changes,
}

impl Grid {
    pub(super) fn new(columns: u32, height: u32, limit: u32, rules: Rules) -> Self {
        Self {
            columns,
            rows: (0..height).map(|_| Row::default()).collect(),
            history: History::default(),
            scrolled: 0,
            limit,
            keeps: limit != 0,
            erases_in_place: rules.erases_in_place,
            unsure: false,
            seeded: false,
            guesses: false,
            styles: Styles::default(),
            clusters: Clusters::default(),
            changes: Changes::default(),
        }
    }

    pub(super) fn height(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Returns an erased cell with this background.
    pub(super) fn fill(&mut self, background: Colour) -> Cell {
        if background == Colour::UNTOLD {
            self.unsure = true;
            Cell::UNTOLD
        } else if background.is_default() {
            Cell::CLEARED
        } else {
            Cell::erased(self.styles.intern(Style::erased(background)))
        }
    }

    pub(super) fn row(&self, y: u32) -> Option<&Row> {
        self.rows.get(y as usize)
    }

    pub(super) fn row_mut(&mut self, y: u32) -> Option<&mut Row> {
        self.changes.mark(y as usize);
        self.rows.get_mut(y as usize)
    }

    pub(super) fn get(&self, x: u32, y: u32) -> Cell {
        self.row(y).map_or(Cell::CLEARED, |row| row.get(x))
    }

    pub(super) fn set(&mut self, x: u32, y: u32, cell: Cell) {
        let columns = self.columns;
        if let Some(row) = self.row_mut(y) {
            row.set(x, columns, cell);
        }
    }

    /// Clears the wrap flag of the line above this one.
    fn unwrap_above(&mut self, y: u32) {
        match y.checked_sub(1) {
            Some(above) => {
                if let Some(row) = self.rows.get_mut(above as usize) {
                    (row.wrapped, row.unsure_wrap) = (false, false);
                }
            }
            None => self.history.unwrap_last(),
        }
    }

    /// Erases a rectangle.
    pub(super) fn erase(&mut self, x: u32, y: u32, width: u32, height: u32, background: Colour) {
        if width == 0 || height == 0 {
            return;
        }
        if x == 0 && width == self.columns {
            self.erase_lines(y, height, background);
            return;
        }
        let (fill, columns, in_place) = (self.fill(background), self.columns, self.erases_in_place);
        for y in y..y.saturating_add(height).min(self.height()) {
            if let Some(row) = self.row_mut(y) {
                row.erase(x, width, columns, fill, in_place);
            }
        }
    }

    /// Erases whole lines.
    pub(super) fn erase_lines(&mut self, y: u32, count: u32, background: Colour) {
        if count == 0 || y >= self.height() {
            return;
        }
        let (fill, columns) = (self.fill(background), self.columns);
        for y in y..y.saturating_add(count).min(self.height()) {
            if let Some(row) = self.row_mut(y) {
                row.clear(columns, fill);
            }
        }
        self.unwrap_above(y);
    }

    /// Moves lines. The replaced lines are lost; erased lines take the place of those that moved
    /// away.
    pub(super) fn move_lines(&mut self, to: u32, from: u32, count: u32, background: Colour) {
        let height = self.height();
        if count == 0 || to == from || from + count > height || to + count > height {
            return;
        }
        self.unwrap_above(to);
        let fill = self.fill(background);
        // Swapping is moving: the lines that end up at the other end are erased below.
        if to < from {
            (0..count).for_each(|at| self.rows.swap((to + at) as usize, (from + at) as usize));
        } else {
            (0..count).rev().for_each(|at| self.rows.swap((to + at) as usize, (from + at) as usize));
        }
        for y in to.min(from)..to.max(from) + count {
            self.changes.mark(y as usize);
        }
        for y in from..from + count {
            if (y < to || y >= to + count)
                && let Some(row) = self.rows.get_mut(y as usize)
            {
                row.clear(self.columns, fill);
            }
        }
        if from < to || from >= to + count {
            self.unwrap_above(from);
        }
    }

    /// Scrolls a region up by a line; its top line becomes history, wherever the region begins.
    pub(super) fn scroll_up(&mut self, upper: u32, lower: u32, background: Colour) {
        if !self.keeps {
            self.move_lines(upper, upper + 1, lower - upper, background);
            return;
        }
        self.trim_history();
        let fill = self.fill(background);
        let Self { rows, history, styles, clusters, unsure, .. } = self;
        let Some(row) = rows.get(upper as usize) else { return };
        *unsure |= row.doubtful;
        history.push(|out| packed::pack(row, styles, clusters, out));
        if upper == 0 && lower + 1 == rows.len() as u32 {
            // The usual case: no row moves.
            rows.rotate_left(1);
        } else if let Some(row) = rows.remove(upper as usize) {
            rows.insert(lower as usize, row);
        }
        if let Some(row) = rows.get_mut(lower as usize) {
            row.clear(self.columns, fill);
            row.shrink(self.columns);
        }
        self.scrolled += 1;
        if upper == 0 {
            self.changes.mark_all();
        } else {
            (upper..=lower).for_each(|y| self.changes.mark(y as usize));
        }
    }

    /// Appends a line to the history.
    pub(super) fn keep(&mut self, row: &Row) {
        let Self { history, styles, clusters, .. } = self;
        history.push(|out| packed::pack(row, styles, clusters, out));
    }

    /// Removes the newest line of history and returns it.
    pub(super) fn take_back(&mut self) -> Option<Row> {
        let Self { history, styles, clusters, .. } = self;
        history.pop(|line| line.unpack(styles, clusters))
    }

    /// Scrolls a region down by a line.
    pub(super) fn scroll_down(&mut self, upper: u32, lower: u32, background: Colour) {
        self.move_lines(upper + 1, upper, lower - upper, background);
    }

    /// Drops the oldest tenth of the history at once when the limit is reached.
    fn trim_history(&mut self) {
        let size = self.history.len() as u32;
        if size == 0 || size < self.limit {
            return;
        }
        let oldest = (self.limit / 10).max(1).min(size);
        self.history.drop_oldest(oldest as usize);
        self.scrolled = self.scrolled.min(size - oldest);
    }

    /// Returns whether the last used line is unknown: in 3.2a a seed does not distinguish blanks
    /// that were written from those that were erased.
    pub(super) fn is_last_line_unsure(&self, rules: Rules) -> bool {
        let is_blank = |row: &Row| row.cells.iter().all(|cell| cell.as_ascii() == Some(b' ') && !cell.is_padding());
        let unsure = self.rows.iter().rev().take_while(|row| is_blank(row));
        self.seeded && rules.joins_untouched_cells && unsure.map(|row| row.used).any(|used| used > 0)
    }

    /// Moves the lines up to the last used one into the history and erases the rest.
    pub(super) fn clear_into_history(&mut self, background: Colour) {
        let height = self.height();
        let last = self.rows.iter().rposition(|row| row.used != 0).map_or(0, |last| last as u32 + 1);
        if last == 0 {
            self.erase(0, 0, self.columns, height, background);
            return;
        }
        for _ in 0..last {
            self.scroll_up(0, height - 1, background);
        }
        if last < height {
            self.erase(0, 0, self.columns, height - last, background);
        }
        self.scrolled = 0;
    }

    pub(super) fn clear_history(&mut self) {
        self.history.clear();
        self.scrolled = 0;
    }

    /// Inserts lines; lines that leave the screen at the bottom are lost.
    pub(super) fn insert_lines(&mut self, y: u32, count: u32, background: Colour) {
        self.move_lines(y + count, y, self.height() - y - count, background);
    }

    /// Inserts lines in a region.
    pub(super) fn insert_lines_in(&mut self, lower: u32, y: u32, count: u32, background: Colour) {
        let moved = lower + 1 - y - count;
        self.move_lines(lower + 1 - moved, y, moved, background);
        self.erase_between(y, moved, count, background);
    }

    /// Deletes lines; erased lines enter at the bottom.
    pub(super) fn delete_lines(&mut self, y: u32, count: u32, background: Colour) {
        let height = self.height();
        self.move_lines(y, y + count, height - y - count, background);
        self.erase(0, height - count, self.columns, count, background);
    }

    /// Deletes lines in a region.
    pub(super) fn delete_lines_in(&mut self, lower: u32, y: u32, count: u32, background: Colour) {
        let moved = lower + 1 - y - count;
        self.move_lines(y, y + count, moved, background);
        self.erase_between(y, moved, count, background);
    }

    /// Erases the lines from `moved` to `count` below `y`; if there are none, the line above still
    /// loses its wrap flag.
    fn erase_between(&mut self, y: u32, moved: u32, count: u32, background: Colour) {
        match count.cmp(&moved) {
            std::cmp::Ordering::Greater => self.erase(0, y + moved, self.columns, count - moved, background),
            std::cmp::Ordering::Less => self.unwrap_above(y + moved),
            std::cmp::Ordering::Equal => {}
        }
    }

    /// Inserts erased cells and moves the others right; in the last column, only erases the cell.
    pub(super) fn insert_cells(&mut self, x: u32, y: u32, count: u32, background: Colour) {
        let columns = self.columns;
        if x + 1 >= columns {
            self.erase(x, y, 1, 1, background);
            return;
        }
        let fill = self.fill(background);
        let Some(count_left) = columns.checked_sub(x + count) else { return };
        if let Some(row) = self.row_mut(y) {
            row.shift(x + count, x, count_left, columns, fill);
        }
    }

    /// Removes cells; erased cells enter at the right.
    pub(super) fn delete_cells(&mut self, x: u32, y: u32, count: u32, background: Colour) {
        let (fill, columns) = (self.fill(background), self.columns);
        let Some(left) = columns.checked_sub(x + count) else { return };
        if let Some(row) = self.row_mut(y) {
            row.shift(x, x + count, left, columns, fill);
        }
        self.erase(columns - count, y, count, 1, background);
    }

    /// Returns whether the number of styles or clusters calls for a sweep.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.styles.is_sweep_due() || self.clusters.is_sweep_due()
    }

    /// Frees the styles and clusters that no cell uses.
    pub(super) fn sweep(&mut self, also: &[StyleId], saved: Option<&[Row]>) {
        let (styles_due, clusters_due) = (self.styles.is_sweep_due(), self.clusters.is_sweep_due());
        let mut styles = vec![false; self.styles.numbers()];
        let mut clusters = vec![false; self.clusters.len()];
        let mut mark = |style: StyleId| {
            if let Some(used) = styles.get_mut(place(style)) {
                *used = true;
            }
        };
        for style in also {
            mark(*style);
        }
        for cell in self.rows.iter().chain(saved.into_iter().flatten()).flat_map(|row| &row.cells) {
            mark(cell.style());
            if let Glyph::Cluster(index) = cell.glyph()
                && let Some(used) = clusters.get_mut(index as usize)
            {
                *used = true;
            }
        }
        if styles_due {
            self.styles.sweep(&styles);
        }
        if clusters_due {
            self.clusters.sweep(&clusters);
        }
    }

    /// Returns the number of bytes held.
    pub(super) fn memory(&self) -> usize {
        let rows: usize = self.rows.iter().map(|row| row.cells.capacity() * size_of::<Cell>() + size_of::<Row>()).sum();
        rows + self.history.memory() + self.styles.memory() + self.clusters.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::version::Version;

    fn rules() -> Rules {
        Rules::for_version(Version::parse(b"3.3a").unwrap())
    }

    fn grid(limit: u32) -> Grid {
        let mut grid = Grid::new(4, 4, limit, rules());
        for y in 0..4 {
            grid.set(0, y, Cell::ascii(b'a' + y as u8, 0));
            grid.rows[y as usize].wrapped = true;
        }
        grid
    }

    fn letters(grid: &Grid) -> String {
        grid.rows.iter().map(|row| row.get(0).as_ascii().map_or('?', char::from)).collect()
    }

    fn wraps(grid: &Grid) -> String {
        grid.rows.iter().map(|row| if row.wrapped { 'w' } else { '-' }).collect()
    }

    #[test]
    fn a_region_scrolls_its_top_line_into_history_wherever_it_begins() {
        let mut grid = grid(100);
        grid.scroll_up(1, 2, Colour::DEFAULT);
        assert_eq!((letters(&grid).as_str(), grid.history.len()), ("ac d", 1));
        assert_eq!(wraps(&grid), "ww-w");
    }

    #[test]
    fn without_history_the_line_above_loses_its_wrap() {
        let mut grid = grid(0);
        grid.scroll_up(1, 2, Colour::DEFAULT);
        assert_eq!((letters(&grid).as_str(), grid.history.len()), ("ac d", 0));
        assert_eq!(wraps(&grid), "---w");
    }

    #[test]
    fn lines_move_down_and_up() {
        let mut grid = grid(0);
        grid.scroll_down(0, 3, Colour::DEFAULT);
        assert_eq!(letters(&grid), " abc");
        grid.delete_lines(0, 2, Colour::DEFAULT);
        assert_eq!(letters(&grid), "bc  ");
        grid.insert_lines_in(2, 0, 1, Colour::DEFAULT);
        assert_eq!(letters(&grid), " bc ");
    }

    #[test]
    fn at_the_history_limit_the_oldest_tenth_is_dropped() {
        let mut grid = Grid::new(4, 2, 20, rules());
        for _ in 0..20 {
            grid.scroll_up(0, 1, Colour::DEFAULT);
        }
        assert_eq!(grid.history.len(), 20);
        grid.scroll_up(0, 1, Colour::DEFAULT);
        assert_eq!(grid.history.len(), 19);
    }
}
