//! Resizing: lines that move into history or come back, and lines that are split or joined.

use super::{cell::Cell, row::Row, style::Colour, terminal::Terminal};

impl Terminal {
    /// Changes the size. With `reflow`, lines are split and joined if the width changes.
    pub(super) fn resize(&mut self, columns: u32, height: u32, reflow: bool) {
        let (columns, height) = (columns.max(1), height.max(1));
        let same_width = columns == self.columns();
        if !same_width {
            self.grid.columns = columns;
            self.reset_tabs();
        }
        // The cursor's line, counted from the oldest one.
        let mut line = self.grid.history.len() as u32 + self.y;
        if height != self.height() {
            self.resize_height(height, &mut line);
        }
        if reflow && !same_width {
            self.reflow(&mut line);
        }
        let history = self.grid.history.len() as u32;
        if let Some(y) = line.checked_sub(history) {
            self.y = y.min(self.height() - 1);
        } else {
            (self.x, self.y) = (0, 0);
        }
        self.grid.changes.size = true;
        self.grid.changes.mark_all();
        self.sweep();
    }

    fn resize_height(&mut self, height: u32, line: &mut u32) {
        let before = self.height();
        if height < before {
            let mut needed = before - height;
            // A cursor that was restored from a larger screen is below the last row: tmux's
            // arithmetic wraps, too.
            let below = before.wrapping_sub(1).wrapping_sub(self.y).min(needed);
            if below > 0 {
                self.grid.delete_lines(before - below, below, Colour::DEFAULT);
            }
            needed -= below;
            self.grid.rows.truncate((before - below) as usize);
            if self.grid.keeps {
                self.grid.scrolled += needed;
                for _ in 0..needed {
                    if let Some(row) = self.grid.rows.pop_front() {
                        self.grid.keep(&row);
                    }
                }
            } else if needed > 0 {
                let above = self.y.min(needed);
                if above > 0 {
                    self.grid.delete_lines(0, above, Colour::DEFAULT);
                    *line -= above;
                }
                self.grid.rows.truncate(height as usize);
            }
        } else {
            let mut needed = height - before;
            if self.grid.keeps {
                let back = self.grid.scrolled.min(needed);
                for _ in 0..back {
                    if let Some(row) = self.grid.take_back() {
                        self.grid.rows.push_front(row);
                        self.grid.scrolled -= 1;
                        needed -= 1;
                    }
                }
            }
            self.grid.rows.extend((0..needed).map(|_| Row::default()));
        }
        self.upper = 0;
        self.lower = height - 1;
    }

    fn reflow(&mut self, line: &mut u32) {
        let height = self.height() as usize;
        let mut lines: Vec<Row> = Vec::with_capacity(self.grid.history.len() + height);
        {
            let super::grid::Grid { history, styles, clusters, .. } = &mut self.grid;
            let mut reader = history.reader();
            for line in 0..history.len() {
                lines.extend(reader.get(line).map(|packed| packed.unpack(styles, clusters)));
            }
        }
        lines.extend(std::mem::take(&mut self.grid.rows));
        let (mut x, mut y) = unwrapped(&lines, self.x, *line);
        let short_padding = self.rules.short_padding;
        let scrolled = self.grid.scrolled;
        let mut reflow = Reflow { columns: self.columns(), short_padding, lines, target: Vec::new(), scrolled };
        reflow.run();
        let Reflow { mut target, scrolled, .. } = reflow;
        while target.len() < height {
            target.push(Row::default());
        }
        let kept = target.len() - height;
        if !wrapped(&target, &mut x, &mut y) {
            self.trouble = Some(super::Trouble::CursorLost);
        }
        self.x = x;
        *line = y;
        let rows = target.split_off(kept);
        self.grid.history.clear();
        for row in &target {
            self.grid.keep(row);
        }
        self.grid.rows = rows.into();
        self.grid.scrolled = scrolled.min(kept as u32);
    }
}

/// Converts a column and a line to the column in a joined line and that line's number. After the
/// last used cell, there is no column.
fn unwrapped(lines: &[Row], x: u32, line: u32) -> (u32, u32) {
    let (mut column, mut number) = (0_u32, 0);
    for row in lines.iter().take(line as usize) {
        if row.wrapped {
            column += row.used;
        } else {
            column = 0;
            number += 1;
        }
    }
    let behind = lines.get(line as usize).is_none_or(|row| x >= row.used);
    (if behind { u32::MAX } else { column + x }, number)
}

/// Converts such a place back to other lines. Returns false if the last line is marked as
/// continuing: there tmux leaves the grid.
fn wrapped(lines: &[Row], x: &mut u32, y: &mut u32) -> bool {
    let last = lines.len().saturating_sub(1);
    let (mut number, mut at) = (0, 0);
    while at < last && number != *y {
        if lines.get(at).is_some_and(|row| !row.wrapped) {
            number += 1;
        }
        at += 1;
    }
    let mut inside = true;
    let mut goes_on = |at: usize, over: bool| {
        let wrapped = over && lines.get(at).is_some_and(|row| row.wrapped);
        inside &= !wrapped || at < last;
        wrapped && at < last
    };
    let used = |at: usize| lines.get(at).map_or(0, |row| row.used);
    if *x == u32::MAX {
        while goes_on(at, true) {
            at += 1;
        }
        *x = used(at);
    } else {
        while goes_on(at, *x >= used(at)) {
            *x -= used(at);
            at += 1;
        }
    }
    *y = at as u32;
    inside
}

/// The state of lines during a reflow to another width.
struct Reflow {
    columns: u32,
    /// Whether right halves that are short cells count as a column.
    short_padding: bool,
    /// The remaining old lines; used lines are skipped.
    lines: Vec<Row>,
    target: Vec<Row>,
    scrolled: u32,
}

impl Reflow {
    fn run(&mut self) {
        let mut dead = vec![false; self.lines.len()];
        for at in 0..self.lines.len() {
            if dead.get(at).copied().unwrap_or_default() {
                continue;
            }
            let Some(row) = self.lines.get(at) else { break };
            let (mut width, mut split) = (0, 0);
            for column in 0..row.used {
                let cell = self.width(row.get(column));
                if split == 0 && width + cell > self.columns {
                    split = column;
                }
                width += cell;
            }
            let goes_on = row.wrapped;
            if width > self.columns {
                self.split(at, split, &mut dead);
            } else if width < self.columns && goes_on {
                self.join(at, width, false, &mut dead);
            } else {
                let row = self.take(at);
                self.target.push(row);
            }
        }
    }

    /// Returns the number of columns that a cell counts as.
    fn width(&self, cell: Cell) -> u32 {
        if self.short_padding && cell.is_padding() && !cell.is_long() { 1 } else { cell.width() }
    }

    /// Returns a cell in the form in which it is copied to another line.
    fn copied(&self, cell: Cell) -> Cell {
        let copied = cell.copied();
        if cell.is_padding() && !self.short_padding { copied.lengthened() } else { copied }
    }

    fn take(&mut self, at: usize) -> Row {
        self.lines.get_mut(at).map(std::mem::take).unwrap_or_default()
    }

    /// Splits a line that is too long into several.
    fn split(&mut self, at: usize, split: u32, dead: &mut [bool]) {
        let row = self.take(at);
        let goes_on = row.wrapped;
        let mut first = Row {
            cells: row.cells.get(..split as usize).unwrap_or_default().to_vec(),
            used: split,
            wrapped: true,
            slack: 0,
            extended: row.extended,
            guessed: row.guessed,
            doubtful: row.doubtful,
            unsure_end: row.unsure_end,
            unsure_wrap: false,
        };
        first.cells.shrink_to_fit();
        let before = self.target.len();
        self.target.push(first);
        let (guessed, doubtful, unsure_end) = (row.guessed, row.doubtful, row.unsure_end);
        let fresh = || Row { guessed, doubtful, unsure_end, ..Row::default() };
        let mut line = fresh();
        let (mut width, mut column) = (0, 0);
        for from in split..row.used {
            let cell = row.get(from);
            if width + self.width(cell) > self.columns {
                line.wrapped = true;
                self.target.push(std::mem::replace(&mut line, fresh()));
                (width, column) = (0, 0);
            }
            width += self.width(cell);
            line.set(column, self.columns, self.copied(cell));
            column += 1;
        }
        (line.wrapped, line.unsure_wrap) = (goes_on, row.unsure_wrap);
        self.target.push(line);
        let lines = self.target.len() - before;
        if at as u32 <= self.scrolled {
            self.scrolled += lines as u32 - 1;
        }
        if width < self.columns && goes_on {
            self.join(at, width, true, dead);
        }
    }

    /// Joins a continuing line with the part of the next lines that fits.
    fn join(&mut self, at: usize, mut width: u32, already: bool, dead: &mut [bool]) {
        if !already {
            let row = self.take(at);
            self.target.push(row);
        }
        let to = self.target.len() - 1;
        let Some(mut target) = self.target.pop() else { return };
        let mut column = target.used;
        let (mut lines, mut wanted, mut goes_on) = (0, 0, true);
        // The last line from which cells were taken.
        let mut from = None;
        while let Some(row) = self.lines.get(at + 1 + lines) {
            if !row.wrapped {
                goes_on = false;
            }
            if row.used == 0 {
                if !goes_on {
                    break;
                }
                lines += 1;
                continue;
            }
            if width + self.width(row.get(0)) > self.columns {
                break;
            }
            from = Some(at + 1 + lines);
            wanted = 0;
            while wanted < row.used {
                let cell = row.get(wanted);
                if wanted > 0 && width + self.width(cell) > self.columns {
                    break;
                }
                width += self.width(cell);
                target.set(column, self.columns, self.copied(cell));
                column += 1;
                wanted += 1;
            }
            lines += 1;
            if !goes_on || wanted != row.used || width == self.columns {
                break;
            }
        }
        let Some(last) = from.filter(|_| lines > 0).and_then(|from| self.lines.get_mut(from)) else {
            self.target.push(target);
            return;
        };
        let left = last.used - wanted;
        if left != 0 {
            last.cells.drain(..wanted as usize);
            last.cells.truncate(left as usize);
            (last.used, last.slack) = (left, 0);
            lines -= 1;
        } else if !goes_on {
            target.wrapped = false;
        }
        self.target.push(target);
        for line in at + 1..at + 1 + lines {
            if let Some(dead) = dead.get_mut(line) {
                *dead = true;
            }
            self.take(line);
        }
        let (to, lines) = (to as u32, lines as u32);
        if self.scrolled > to + lines {
            self.scrolled -= lines;
        } else if self.scrolled > to {
            self.scrolled = to;
        }
    }
}
