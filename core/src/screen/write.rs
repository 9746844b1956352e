//! Printing: where a character goes, what it overwrites, when a line wraps.

use super::{
    cell::{CLUSTER_BYTES, Cell, Cluster, append_text},
    grid::Grid,
    row::Row,
    style::{Colour, Style, StyleId, Styles, attribute},
    terminal::Terminal,
    utf8::Decoded,
};
use crate::width;

/// Joins two characters into one.
pub(super) const JOINER: char = '\u{200d}';

/// Letters of flags, and skin tones: from 3.4 on they join what stands before them.
const FLAGS: std::ops::RangeInclusive<char> = '\u{1f1e6}'..='\u{1f1ff}';
const TONES: std::ops::RangeInclusive<char> = '\u{1f3fb}'..='\u{1f3ff}';

/// Whether the character takes a skin tone and is wide from 3.4 on, whatever the C library says.
fn is_hand(character: char) -> bool {
    matches!(
        character,
        '\u{261d}'
            | '\u{26f9}'
            | '\u{270c}'
            | '\u{270d}'
            | '\u{1f3cb}'
            | '\u{1f3cc}'
            | '\u{1f574}'
            | '\u{1f575}'
            | '\u{1f590}'
            | '\u{1faf7}'
            | '\u{1faf8}'
    )
}

/// Asks for the picture of a character.
const SELECTOR: char = '\u{fe0f}';

/// Returns the width of a cell once this character has joined it; `None` if it is of no kind that
/// does. `zero`: it has no width of its own.
pub(super) fn joined_width(text: &[u8], width: u8, character: char, zero: bool) -> Option<u8> {
    let selector = character == SELECTOR;
    let zero = zero || selector || character == JOINER;
    let modifier = is_modifier(character);
    if !zero {
        let joined = text.ends_with(JOINER.encode_utf8(&mut [0; 4]).as_bytes());
        if modifier && text.len() < 2 || !modifier && !joined {
            return None;
        }
    }
    Some(if width == 1 && (selector || (modifier && !zero)) { 2 } else { width })
}

/// Whether it joins the character before it.
fn is_modifier(character: char) -> bool {
    FLAGS.contains(&character) || TONES.contains(&character)
}

/// Characters that a REP prints at most where tmux has no limit.
const REPEAT_LIMIT: u32 = 1 << 16;

impl Terminal {
    /// Prints a run of printable ASCII.
    pub(super) fn print(&mut self, text: &[u8]) {
        self.utf8.reset();
        self.last = text.last().copied().map(char::from);
        let line_drawing = self.line_drawing();
        self.mark_line_drawing(false);
        let style = self.style(line_drawing);
        if line_drawing || !self.modes.wrap || self.modes.insert {
            for byte in text {
                if std::mem::take(&mut self.joined) {
                    self.combine(JOINER);
                    self.combine(char::from(*byte));
                } else {
                    self.print_cell(Cell::ascii(*byte, style), 1);
                }
            }
            return;
        }
        let columns = self.columns();
        let mut rest = text;
        while !rest.is_empty() {
            if self.x >= columns {
                self.run = None;
                self.line_feed(true, Colour::DEFAULT);
                self.set_cursor(Some(0), None);
            }
            let (now, later) = rest.split_at(rest.len().min((columns - self.x) as usize));
            self.print_run(now, style);
            rest = later;
        }
    }

    /// Whether the character set in use is line drawing.
    fn line_drawing(&self) -> bool {
        if self.pen.shifted { self.pen.g1 } else { self.pen.g0 }
    }

    /// Keeps in the pen, or not, that what it writes is line drawing: a REP leaves it so for
    /// characters beyond ASCII.
    fn mark_line_drawing(&mut self, on: bool) {
        if self.pen.style.has(attribute::CHARSET) != on {
            self.change_style(|style| style.attributes ^= attribute::CHARSET);
        }
    }

    /// Prints a run that fits in the line.
    fn print_run(&mut self, text: &[u8], style: StyleId) {
        let (x, columns) = (self.x, self.columns());
        let Some(row) = self.grid.row_mut(self.y) else { return };
        if x != 0 && row.get(x).is_padding() {
            let mut left = x;
            while left > 0 && row.get(left).is_padding() {
                row.set(left, columns, Cell::SPACE);
                left -= 1;
            }
            // A wide character in the first column is left as it is.
            if left > 0 && row.get(left).width() > 1 {
                row.set(left, columns, Cell::SPACE);
            }
        }
        let mut run = self.run.filter(|run| run.end == x).unwrap_or_else(|| row.run(x));
        run.end += text.len() as u32;
        row.set_run(run, columns, text, style);
        self.run = Some(run);
        self.x += text.len() as u32;
        let mut right = self.x;
        while right < columns && row.get(right).is_padding() {
            row.set(right, columns, Cell::SPACE);
            right += 1;
        }
    }

    /// Takes a byte of a character of more than one.
    pub(super) fn top_bit(&mut self, byte: u8) {
        self.last = None;
        match self.utf8.take(byte) {
            Some(Decoded::Character(character)) => self.print_character(character),
            Some(Decoded::Beyond(bytes)) if self.rules.keeps_unknown_characters => self.print_beyond(&bytes),
            Some(Decoded::Beyond(_)) | None => {}
        }
    }

    /// Prints what would be a character beyond U+10FFFF: the C library takes it for one, without a
    /// width.
    fn print_beyond(&mut self, bytes: &[u8]) {
        let Some(cluster) = Cluster::new(bytes) else { return };
        let index = self.clusters().add(cluster);
        let style = self.style(false);
        self.print_cell(Cell::cluster(index, 1, style), 1);
        self.sweep();
    }

    /// Prints a character beyond ASCII.
    pub(super) fn print_character(&mut self, character: char) {
        self.last = self.rules.repeats_any_character.then_some(character);
        let Some(width) = self.width(character) else { return };
        if self.rules.joins_by_kind {
            if !self.join_by_kind(character, width == 0) {
                let style = self.style(false);
                self.print_cell(Cell::character(character, width, style), u32::from(width));
            }
            return;
        }
        // A joiner waits for what it joins.
        if character == JOINER {
            self.joined = true;
            return;
        }
        let joined = std::mem::take(&mut self.joined);
        if joined {
            self.combine(JOINER);
        }
        if joined || width == 0 {
            self.combine(character);
            return;
        }
        let style = self.style(false);
        self.print_cell(Cell::character(character, width, style), u32::from(width));
    }

    /// Returns the columns that a character takes; `None` for one that is dropped.
    pub(super) fn width(&self, character: char) -> Option<u8> {
        match width::of(u32::from(character)) {
            2 => Some(2),
            _ if self.rules.joins_by_kind && (FLAGS.contains(&character) || is_hand(character)) => Some(2),
            width @ 0.. => Some(width.unsigned_abs()),
            // C1 controls have no width there.
            _ => self.rules.keeps_unknown_characters.then_some(u8::from(character > '\u{9f}')),
        }
    }

    /// Adds a character to the cell left of the cursor.
    fn combine(&mut self, character: char) {
        let mut at = self.x;
        let (base, at) = loop {
            let Some(left) = at.checked_sub(1) else { return };
            at = left;
            let cell = self.grid.get(at, self.y);
            if !cell.is_padding() {
                break (cell, at);
            }
        };
        let mut text = Vec::with_capacity(CLUSTER_BYTES + 4);
        append_text(base, &self.grid.clusters, &mut text);
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        let Some(cluster) = Cluster::new(&text) else { return };
        let index = self.clusters().add(cluster);
        self.grid.set(at, self.y, Cell::cluster(index, base.width() as u8, base.style()));
        self.sweep();
    }

    /// Adds a character to the cell before the cursor if it is of a kind that joins; false if it
    /// stands for itself.
    fn join_by_kind(&mut self, character: char, zero: bool) -> bool {
        let zero = zero || character == SELECTOR || character == JOINER;
        let (Some(before), Some(row)) = (self.x.checked_sub(1), self.grid.row(self.y)) else { return zero };
        let at = if before > 0 && row.get(before).is_padding() { before - 1 } else { before };
        let base = row.get(at);
        if base.is_padding() || base.width() != self.x - at {
            return zero;
        }
        // Nearly every character stands for itself, which is seen without collecting the text
        // before it.
        if !zero && !is_modifier(character) && !base.ends_in(JOINER, &self.grid.clusters) {
            return false;
        }
        let mut text = Vec::with_capacity(2 * CLUSTER_BYTES);
        append_text(base, &self.grid.clusters, &mut text);
        let Some(width) = joined_width(&text, base.width() as u8, character, zero) else { return false };
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        let Some(cluster) = Cluster::new(&text) else { return false };
        let index = self.clusters().add(cluster);
        let widened = u32::from(width) > base.width();
        self.grid.set(at, self.y, Cell::cluster(index, width, base.style()));
        if widened {
            self.grid.set(at + 1, self.y, Cell::PADDING);
        }
        // Also where it does not move: a resize may have left it far behind the margin.
        self.set_cursor(Some(self.x + u32::from(widened)), None);
        self.sweep();
        true
    }

    /// Prints a cell, in any mode.
    pub(super) fn print_cell(&mut self, cell: Cell, width: u32) {
        let columns = self.columns();
        // Where a character is wider than the screen the sum wraps round, and so the line does not.
        let fits = columns.wrapping_sub(width);
        if !self.modes.wrap && width > 1 && (width > columns || (self.x != columns && self.x > fits)) {
            return;
        }
        if self.modes.insert {
            self.grid.insert_cells(self.x, self.y, width, Colour::DEFAULT);
        }
        if self.modes.wrap && self.x > fits {
            self.line_feed(true, Colour::DEFAULT);
            self.set_cursor(Some(0), None);
        }
        if self.x > fits || self.y >= self.height() {
            return;
        }
        let (x, y) = (self.x, self.y);
        let Grid { rows, styles, changes, .. } = &mut self.grid;
        let Some(row) = rows.get_mut(y as usize) else { return };
        let cut = row.cut_wide(x, width, columns);
        let stands = width < 2 && !self.modes.insert && !cut && looks_written(row, x, cell, styles);
        if cut || !stands {
            changes.mark(y as usize);
        }
        if !stands {
            row.set_wide(x, width, columns, cell);
        }
        let last = u32::from(!self.modes.wrap);
        if x <= columns.wrapping_sub(last).wrapping_sub(width) {
            self.set_cursor(Some(x + width), None);
        } else {
            self.set_cursor(Some(columns - last), None);
        }
    }

    /// Repeats the last character: REP.
    pub(super) fn repeat(&mut self, count: u32) {
        // Behind the margin, where only a resize can put the cursor, tmux knows no limit.
        let count = count.min(self.columns().wrapping_sub(self.x)).min(REPEAT_LIMIT);
        let Some(character) = self.last else { return };
        let marked = self.rules.repeats_any_character && self.line_drawing();
        self.mark_line_drawing(marked);
        for _ in 0..count {
            match u8::try_from(character) {
                Ok(byte) if byte.is_ascii() => self.print(&[byte]),
                _ => self.print_character(character),
            }
        }
        self.mark_line_drawing(marked);
    }
}

/// Whether tmux takes a cell for what stands in that column already, and does not write it: not
/// even what is used changes then. It does not look at the colour of underlines.
fn looks_written(row: &Row, column: u32, cell: Cell, styles: &Styles) -> bool {
    let plain = |style: StyleId| Style { underline: Style::DEFAULT.underline, link: 0, ..styles.get(style) };
    if column >= row.size() {
        let linked = styles.get(cell.style()).link != 0;
        return cell.as_ascii() == Some(b' ') && plain(cell.style()) == Style::DEFAULT && !linked;
    }
    let here = row.get(column);
    if here.as_ascii().is_none() || here.as_ascii() != cell.as_ascii() || here.is_cleared() || here.is_padding() {
        return false;
    }
    let old = styles.get(here.style());
    let small = old.attributes < 0x100 && old.foreground.0 < 0x100 && old.background.0 < 0x100;
    small && plain(here.style()) == old && plain(cell.style()) == old
}
