//! The line that is being printed, as the pane shows it: wrapped at the pane's width and redrawn in
//! place.
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "positions are bounded by MAX_CELLS on both sides"
)]

use std::{collections::VecDeque, ops::Range};

use serde::{Deserialize, Serialize};

use crate::stream::{text::Control, width::columns};

/// The maximum number of cells of one line; a longer line is never an echo.
const MAX_CELLS: usize = 16 * 1024;
/// The number of places above a line that are remembered: redrawing a line goes there and back.
const MAX_ABOVE: usize = 64;
/// The second column of a wide character.
const SPACER: char = '\0';

/// A cell of the line. Offsets count from the line's start.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cell {
    character: char,
    /// The offset at which it was first printed since it was blank.
    first: u32,
    /// The offset at which it was last printed.
    last: u32,
}

const BLANK: Cell = Cell { character: ' ', first: 0, last: 0 };

/// The part of a text that a line's cells show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatchedText {
    /// The number of the text's characters in the cells.
    pub(super) characters: usize,
    /// The index of the first cell after them.
    pub(super) cell: usize,
}

/// A piece of text in a row above a line.
#[derive(Debug, Serialize, Deserialize)]
struct Above {
    /// The raw offsets at which it was printed.
    printed: Range<u64>,
    text: String,
}

/// A line and the rows into which it wraps. Cells are numbered continuously through the rows: a
/// position's row is `position / columns`. Rows above the line, which shells visit to redraw a
/// prompt or an edit of several lines, have negative positions and contain no cells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    /// The raw offset of the line's first byte.
    pub(super) start: u64,
    columns: usize,
    cells: Vec<Cell>,
    position: i64,
    /// Whether the last column was printed and the cursor is still after it (tmux: `cx == sx`).
    pending: bool,
    /// Whether the line is too long, or the cursor moved to an unknown place.
    pub(super) lost: bool,
    /// The number of lines that may still be drawn above the line's place before it was restarted
    /// ([`Line::begin_above`]).
    pub(super) lines_above: usize,
    /// The text that was printed in rows above the line.
    above: VecDeque<Above>,
    /// The raw offset from which the line is drawn in its row.
    drawn: u64,
}

impl Line {
    pub(super) fn new(start: u64, columns: u16) -> Self {
        let columns = if columns == 0 { 80 } else { usize::from(columns) };
        Self {
            start,
            columns,
            cells: Vec::new(),
            position: 0,
            pending: false,
            lost: false,
            lines_above: 0,
            above: VecDeque::new(),
            drawn: start,
        }
    }

    /// Begins the next line; the column stays the same, as after a line feed.
    pub(super) fn next(&mut self, start: u64) {
        let column = self.column();
        self.position = column as i64;
        self.pending = column == self.columns;
        if self.lines_above == 0 {
            self.start = start;
            self.above.clear();
        } else {
            let text = self.text(0..self.cells.len());
            self.note_above(self.drawn..start, &text);
        }
        self.cells.clear();
        self.drawn = start;
        self.lost = false;
        self.lines_above = self.lines_above.saturating_sub(1);
    }

    /// Restarts the line in the cursor's row, which is above it: everything from there on was
    /// erased. Text that was printed on the line before still belongs to it.
    pub(super) fn begin_above(&mut self, drawn: u64) {
        let rows = usize::try_from(-self.row()).unwrap_or_default();
        self.lines_above += rows;
        let column = self.column();
        self.cells.clear();
        self.position = column as i64;
        self.pending = column == self.columns;
        self.drawn = drawn;
    }

    /// Returns whether the cursor is in a row above the line.
    pub(super) fn is_above(&self) -> bool {
        !self.lost && self.row() < 0
    }

    /// Returns the text that contains this raw offset, if it is in a row above the line.
    pub(super) fn above(&self, offset: u64) -> Option<&str> {
        let above = self.above.iter().find(|above| above.printed.contains(&offset))?;
        Some(&above.text)
    }

    fn note_above(&mut self, printed: Range<u64>, text: &str) {
        match self.above.back_mut() {
            Some(last) if last.printed.end == printed.start => {
                last.printed.end = printed.end;
                if last.text.len() <= MAX_CELLS {
                    last.text.push_str(text);
                }
            }
            _ => self.above.push_back(Above { printed, text: text.to_owned() }),
        }
        if self.above.len() > MAX_ABOVE {
            self.above.pop_front();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }
    /// Returns the index of the cell at the cursor; 0 above the line.
    pub(super) fn cursor(&self) -> usize {
        usize::try_from(self.position).unwrap_or(0)
    }
    /// Fills the line with text that was printed before, with the cursor after `cursor` of its
    /// characters.
    pub(super) fn place(&mut self, text: &str, cursor: usize) {
        let cut = text.char_indices().nth(cursor).map_or(text.len(), |(at, _)| at);
        let (before, after) = text.split_at_checked(cut).unwrap_or((text, ""));
        self.print(self.start, before.as_bytes());
        let (position, pending) = (self.position, self.pending);
        self.print(self.start, after.as_bytes());
        (self.position, self.pending) = (position, pending);
    }
    pub(super) fn columns(&self) -> usize {
        self.columns
    }
    /// Returns the last character that is not blank.
    pub(super) fn last_character(&self) -> Option<char> {
        let mut shown = self.cells.iter().rev().map(|cell| cell.character);
        shown.find(|character| *character != SPACER && !character.is_whitespace())
    }
    /// Returns whether the line fills its rows to the margin.
    pub(super) fn is_full(&self) -> bool {
        !self.cells.is_empty() && self.cells.len().is_multiple_of(self.columns)
    }
    /// Returns whether the cursor is in the last row.
    pub(super) fn in_last_row(&self) -> bool {
        let last = self.cells.len().saturating_sub(1) / self.columns;
        self.row() >= last as i64
    }

    /// Returns the characters of a range of cells.
    pub(super) fn text(&self, cells: Range<usize>) -> String {
        let range = cells.start.min(self.cells.len())..cells.end.min(self.cells.len());
        let cells = self.cells.get(range).unwrap_or_default();
        cells.iter().map(|cell| cell.character).filter(|character| *character != SPACER).collect()
    }

    /// Returns whether all cells from `cell` on are blank.
    pub(super) fn is_blank_from(&self, cell: usize) -> bool {
        self.cells.iter().skip(cell).all(|cell| cell.character == ' ')
    }

    /// Returns the part of `text` that the cells from `from` up to `to` show.
    pub(super) fn follow(&self, from: usize, to: usize, text: impl Iterator<Item = char>) -> MatchedText {
        let mut followed = MatchedText { characters: 0, cell: from };
        let to = to.min(self.cells.len());
        let at = |cell: usize| self.cells.get(cell).filter(|_| cell < to).map(|cell| cell.character);
        for wanted in text {
            while at(followed.cell) == Some(SPACER) {
                followed.cell += 1;
            }
            if wanted == '\t' {
                let stop = (followed.cell / 8 + 1) * 8;
                let blanks = (followed.cell..stop).take_while(|cell| at(*cell) == Some(' ')).count();
                if blanks == 0 {
                    break;
                }
                followed.cell += blanks;
            } else {
                let at_margin = (followed.cell + 1).is_multiple_of(self.columns);
                let wide_next = at(followed.cell + 1).is_some_and(|next| columns(next) == 2);
                if at(followed.cell) == Some(' ') && wanted != ' ' && at_margin && wide_next {
                    // A wide character did not fit into this cell.
                    followed.cell += 1;
                }
                if at(followed.cell) != Some(wanted) {
                    break;
                }
                followed.cell += 1;
            }
            followed.characters += 1;
        }
        while at(followed.cell) == Some(SPACER) {
            followed.cell += 1;
        }
        followed
    }

    /// Returns the raw offset at which a cell was first printed.
    pub(super) fn first_of(&self, cell: usize) -> u64 {
        self.start + self.cells.get(cell).map_or(0, |cell| u64::from(cell.first))
    }
    /// Returns the raw offset after the last byte that was printed in a range of cells.
    pub(super) fn end_of(&self, cells: Range<usize>) -> u64 {
        let cells = self.cells.iter().take(cells.end).skip(cells.start);
        let last = cells.filter(|cell| cell.character != SPACER).max_by_key(|cell| cell.last);
        self.start + last.map_or(0, |cell| u64::from(cell.last) + cell.character.len_utf8() as u64)
    }
    /// Returns the raw offsets, in order, at which the nonblank cells from `cell` on were last
    /// printed.
    pub(super) fn printed_from(&self, cell: usize) -> Vec<u64> {
        let cells = self.cells.iter().skip(cell).filter(|cell| !matches!(cell.character, ' ' | SPACER));
        let mut printed: Vec<_> = cells.map(|cell| self.start + u64::from(cell.last)).collect();
        printed.sort_unstable();
        printed
    }

    pub(super) fn print(&mut self, offset: u64, text: &[u8]) {
        if self.lost || text.is_empty() {
            return;
        }
        if self.is_above() {
            self.note_above(offset..offset + text.len() as u64, &String::from_utf8_lossy(text));
        }
        let at = offset.saturating_sub(self.start).min(u64::from(u32::MAX)) as u32;
        if text.is_ascii() && self.position == self.cells.len() as i64 && !text.contains(&b'\t') {
            let cells =
                text.iter().zip(at..).map(|(byte, at)| Cell { character: char::from(*byte), first: at, last: at });
            self.cells.extend(cells);
            self.position = self.cells.len() as i64;
            self.pending = self.cells.len().is_multiple_of(self.columns);
        } else {
            for (index, character) in String::from_utf8_lossy(text).char_indices() {
                self.put(at.saturating_add(index as u32), character);
            }
        }
        self.lost = self.cells.len() > MAX_CELLS;
    }

    fn put(&mut self, at: u32, character: char) {
        let per_row = self.columns as i64;
        if character == '\t' {
            let column = self.column() as i64;
            let stop = (column / 8 * 8 + 8).min(per_row - 1);
            self.position += (stop - column).max(0);
            return;
        }
        self.pending = false;
        let width = columns(character) as i64;
        let column = self.position.rem_euclid(per_row);
        if column + width > per_row && width <= per_row {
            self.position += per_row - column;
        }
        for (index, character) in [character, SPACER].into_iter().take(width as usize).enumerate() {
            let Ok(cell) = usize::try_from(self.position + index as i64) else { continue };
            if cell > MAX_CELLS {
                self.lost = true;
                return;
            }
            if self.cells.len() <= cell {
                self.cells.resize(cell + 1, BLANK);
            }
            if let Some(cell) = self.cells.get_mut(cell) {
                let first = if cell.character == ' ' { at } else { cell.first };
                *cell = Cell { character, first, last: at };
            }
        }
        self.position += width;
        self.pending = self.position.rem_euclid(per_row) == 0;
    }

    /// Executes a control that does not end the line.
    pub(super) fn control(&mut self, control: Control) {
        match control {
            Control::LineFeed => self.down(1),
            Control::CarriageReturn => self.move_to_column(0),
            Control::Backspace => self.left(1, true),
            Control::Csi(last, first, _) => self.csi(last, first),
            Control::Reset => self.lost = true,
        }
    }

    fn csi(&mut self, last: u8, first: u16) {
        let count = i64::from(first.max(1));
        match last {
            b'A' => self.down(-count),
            b'B' => self.down(count),
            b'C' => {
                let right = self.columns.saturating_sub(self.column() + 1) as i64;
                self.position += right.min(count);
            }
            b'D' => self.left(count, false),
            b'E' | b'F' => {
                self.move_to_column(0);
                self.down(if last == b'E' { count } else { -count });
            }
            b'G' => self.move_to_column((count - 1).min(self.columns as i64 - 1)),
            b'H' | b'f' | b'd' => self.lost = true,
            b'J' if first == 0 => self.cells.truncate(self.cursor()),
            b'J' if first == 2 => self.lost = true,
            b'K' => {
                let (row, cursor) = (self.row_cells(), self.cursor());
                match first {
                    0 if self.pending => {}
                    0 => self.blank(cursor..row.end),
                    1 => self.blank(row.start..cursor + 1),
                    _ => self.blank(row),
                }
            }
            b'X' => self.blank(self.cursor()..(self.cursor() + count as usize).min(self.row_cells().end)),
            b'P' | b'@' => self.shift(last == b'@', count as usize),
            _ => {}
        }
    }

    fn row(&self) -> i64 {
        (self.position - i64::from(self.pending)).div_euclid(self.columns as i64)
    }
    fn column(&self) -> usize {
        if self.pending { self.columns } else { self.position.rem_euclid(self.columns as i64) as usize }
    }
    /// Returns the cells of the cursor's row; an empty range above the line.
    fn row_cells(&self) -> Range<usize> {
        match usize::try_from(self.row()) {
            Ok(row) => row * self.columns..(row + 1) * self.columns,
            Err(_) => 0..0,
        }
    }
    fn move_to_column(&mut self, column: i64) {
        self.position = self.row() * self.columns as i64 + column;
        self.pending = false;
    }
    fn down(&mut self, rows: i64) {
        if self.pending && rows < 0 {
            self.position -= 1;
            self.pending = false;
        }
        self.position = (self.position + rows * self.columns as i64).clamp(-(MAX_CELLS as i64), MAX_CELLS as i64);
    }
    fn left(&mut self, count: i64, wraps: bool) {
        let column = self.column() as i64;
        // Only a backspace moves back over a wrapped margin.
        let most = if wraps && column == 0 && self.position > 0 { 1 } else { column };
        self.position -= count.min(most);
        self.pending = false;
    }

    fn blank(&mut self, cells: Range<usize>) {
        if self.row() < 0 {
            return;
        }
        if cells.end >= self.cells.len() {
            self.cells.truncate(cells.start);
        } else {
            self.cells.iter_mut().take(cells.end).skip(cells.start).for_each(|cell| *cell = BLANK);
        }
    }

    /// Inserts or deletes characters in the cursor's row.
    fn shift(&mut self, insert: bool, count: usize) {
        let (row, cursor) = (self.row_cells(), self.cursor());
        let end = row.end.min(self.cells.len());
        let Some(cells) = self.cells.get_mut(cursor..end) else { return };
        let count = count.min(cells.len());
        if insert {
            cells.rotate_right(count);
            cells.iter_mut().take(count).for_each(|cell| *cell = BLANK);
        } else {
            cells.rotate_left(count);
            cells.iter_mut().rev().take(count).for_each(|cell| *cell = BLANK);
        }
    }
}
