//! Printing: the place of a character, the cells that it overwrites, and wrapping.

use super::{
    Trouble,
    cell::{CLUSTER_BYTES, Cell, Cluster, append_text},
    grid::Grid,
    join::{self, JOINER, Joined},
    row::{Blanks, Row},
    rules::Rules,
    style::{Colour, Style, StyleId, Styles, attribute},
    terminal::{Terminal, UNTOLD_LAST},
    utf8::Decoded,
};
use crate::width;

/// The maximum number of characters that a REP prints where tmux has no limit.
const REPEAT_LIMIT: u32 = 1 << 16;

impl Terminal {
    /// Prints a run of printable ASCII.
    pub(crate) fn print(&mut self, text: &[u8]) {
        self.end_character();
        self.last = text.last().copied().map(char::from);
        let Some(line_drawing) = self.pen.sets.drawing() else { return self.print_in_unsure_set(text) };
        self.mark_line_drawing(false);
        let style = self.style(line_drawing);
        if line_drawing || !self.modes.wrap || self.modes.insert {
            for byte in text {
                if *byte == b' ' && !line_drawing && self.pen.other.is_some() {
                    // Whether a blank is written depends on its style.
                    self.doubt_row();
                }
                if std::mem::take(&mut self.joined) {
                    self.trouble = Some(Trouble::Reads);
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

    /// Prints a run of printable ASCII when it is unknown whether that is line drawing. tmux prints
    /// line drawing cell by cell, which may change the number of existing cells.
    #[cold]
    fn print_in_unsure_set(&mut self, text: &[u8]) {
        self.mark_line_drawing(false);
        if std::mem::take(&mut self.joined) {
            self.trouble = Some(Trouble::Reads);
        }
        let style = self.unsure_style();
        for byte in text {
            if [self.x, self.x + 1].iter().any(|x| self.grid.get(*x, self.y).is_padding()) {
                // Wide characters are cut differently as well.
                self.doubt_row();
            }
            self.print_cell(Cell::ascii(*byte, style), 1);
            if let Some(row) = self.grid.row_mut(self.y) {
                row.unsure_end = true;
                row.doubtful |= *byte == b' ' && (!self.modes.wrap || self.modes.insert);
            }
        }
    }

    /// Records in the pen whether it writes line drawing: after a REP, this also applies to
    /// characters beyond ASCII.
    fn mark_line_drawing(&mut self, on: bool) {
        let differs = |style: Style| style.has(attribute::CHARSET) != on;
        if differs(self.pen.style) || self.pen.other.is_some_and(differs) {
            let set = if on { attribute::CHARSET } else { 0 };
            self.change_style(|style| style.attributes = style.attributes & !attribute::CHARSET | set);
        }
    }

    /// Prints a run that fits into the line.
    fn print_run(&mut self, text: &[u8], style: StyleId) {
        let (x, columns) = (self.x, self.columns());
        self.grid.changes.mark(self.y as usize);
        let Self { rules, grid: Grid { rows, styles, .. }, .. } = self;
        let Some(row) = rows.get_mut(self.y as usize) else { return };
        let mut blanks = Blanks { rules, styles };
        row.cut_before(x, columns, &mut blanks);
        let mut run = self.run.filter(|run| run.end == x).unwrap_or_else(|| row.run(x));
        run.end += text.len() as u32;
        row.set_run(run, columns, text, style);
        self.run = Some(run);
        self.x += text.len() as u32;
        row.cut_after(self.x, columns, &mut blanks);
    }

    /// Processes a byte of a multi-byte character.
    pub(super) fn top_bit(&mut self, byte: u8) {
        self.last = None;
        match self.utf8.take(byte) {
            Some(Decoded::Character(character)) => self.print_character(character),
            Some(Decoded::Beyond(bytes)) if self.rules.keeps_unknown_characters => self.print_beyond(&bytes),
            Some(Decoded::Beyond(_) | Decoded::Invalid) => self.print_invalid(),
            None => {}
        }
    }

    /// Ends an incomplete character.
    pub(super) fn end_character(&mut self) {
        if self.utf8.started() {
            self.utf8.reset();
            self.print_invalid();
        }
    }

    /// Prints the replacement for invalid bytes, in versions that have one.
    fn print_invalid(&mut self) {
        if self.rules.prints_invalid {
            self.print_character(char::REPLACEMENT_CHARACTER);
            self.last = None;
        }
    }

    /// Prints a would-be character beyond U+10FFFF: the C library accepts it as a character without
    /// a width.
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
        self.note_width(character);
        let Some(width) = self.width(character) else { return };
        if self.rules.joins_by_kind {
            if !self.join(character, width == 0) {
                let style = self.style(false);
                self.print_cell(Cell::character(character, width, style), u32::from(width));
            }
            return;
        }
        // A joiner waits for the character that it joins.
        if character == JOINER && self.rules.joiners_wait {
            self.joined = true;
            return;
        }
        let joined = std::mem::take(&mut self.joined);
        if joined {
            // tmux forgot the joiner if its read ended there, which nothing shows.
            self.trouble = Some(Trouble::Reads);
            self.combine(JOINER);
        }
        if joined || width == 0 {
            self.combine(character);
            return;
        }
        let style = self.style(false);
        self.print_cell(Cell::character(character, width, style), u32::from(width));
    }

    /// Prints the first of these characters beyond ASCII that join no others, up to the line's end, and
    /// returns their length in bytes. One by one, Chinese text takes half again the number of
    /// instructions.
    #[inline]
    pub(super) fn print_characters(&mut self, mut characters: impl Iterator<Item = char>) -> usize {
        let columns = self.columns();
        let usual = self.modes.wrap && !self.modes.insert && !self.joined && columns > 1;
        if !usual {
            return 0;
        }
        let mut lone = || characters.next().and_then(|character| Some((character, lone_width(character)?)));
        let Some((mut character, mut width)) = lone() else { return 0 };
        let joins = |(_, base): (u32, Cell)| base.ends_in(JOINER, &self.grid.clusters);
        if self.rules.joins_by_kind && (self.base().is_some_and(joins) || self.may_follow_joiner()) {
            return 0;
        }
        if self.x > columns - width {
            self.line_feed(true, Colour::DEFAULT);
            self.set_cursor(Some(0), None);
        }
        let style = self.style(false);
        let padding = self.padding(style);
        self.grid.changes.mark(self.y as usize);
        let Self { rules, grid: Grid { rows, styles, .. }, .. } = self;
        let Some(row) = rows.get_mut(self.y as usize) else { return 0 };
        let mut blanks = Blanks { rules, styles };
        let mut used = 0;
        while self.x + width <= columns {
            row.cut_wide(self.x, width, columns, &mut blanks);
            row.set_wide(self.x, width, columns, Cell::character(character, width as u8, style), padding);
            self.last = rules.repeats_any_character.then_some(character);
            self.x += width;
            used += character.len_utf8();
            let Some(next) = lone() else { break };
            (character, width) = next;
        }
        used
    }

    /// Records a character whose width may differ in tmux.
    pub(super) fn note_width(&mut self, character: char) {
        if self.settings.younger_widths && width::is_young(u32::from(character)) {
            self.unsure_width = true;
        }
    }

    /// Returns the number of columns of a character; `None` for one that is dropped.
    pub(super) fn width(&self, character: char) -> Option<u8> {
        match width::of(u32::from(character)) {
            2 => Some(2),
            _ if self.rules.joins_by_kind && join::is_hand(character) => Some(2),
            _ if self.rules.wide_flags && join::FLAGS.contains(&character) => Some(2),
            width @ 0.. => Some(width.unsigned_abs()),
            _ => {
                let wide = character > '\u{9f}' || self.rules.widens_controls;
                self.rules.keeps_unknown_characters.then_some(u8::from(wide))
            }
        }
    }

    /// Adds a character to the cell left of the cursor.
    fn combine(&mut self, character: char) {
        if self.grid.row(self.y).is_some_and(|row| row.guessed) {
            self.doubt_row();
        }
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
        let limit = self.rules.cluster_bytes();
        let Some(cluster) = Cluster::new(&text).filter(|_| text.len() <= limit) else { return };
        let index = self.clusters().add(cluster);
        self.grid.set(at, self.y, Cell::cluster(index, base.width() as u8, base.style()));
        self.sweep();
    }

    /// Adds a character to the cell before the cursor if it joins that cell; returns false if it
    /// does not.
    fn join(&mut self, character: char, zero: bool) -> bool {
        if self.rules.joins_by_pair && character == join::FILLER {
            return true;
        }
        let zero = zero || character == join::SELECTOR || character == JOINER;
        let is_guessed = self.grid.row(self.y).is_some_and(|row| row.guessed);
        if is_guessed && (zero || join::may_join(character) || self.may_follow_joiner()) {
            // The result, and the cursor's position, depend on a cell that may differ.
            self.trouble = Some(Trouble::Untold);
        }
        let Some((at, base)) = self.base() else { return zero };
        // Nearly every character joins no other, which is detectable without collecting the text
        // before it.
        if !zero && !join::may_join(character) && !base.ends_in(JOINER, &self.grid.clusters) {
            return false;
        }
        let mut text = Vec::with_capacity(2 * CLUSTER_BYTES);
        append_text(base, &self.grid.clusters, &mut text);
        let wide = match join::joined(&text, base.width() as u8, character, zero, self.rules) {
            Joined::Alone => return false,
            Joined::Dropped => return true,
            Joined::With { wide } => wide && (character != join::SELECTOR || self.settings.wide_selectors),
        };
        let mut bytes = [0; 4];
        let character = character.encode_utf8(&mut bytes).as_bytes();
        self.extend(at, base, text, character, wide) || zero && self.rules.drops_what_has_no_room
    }

    /// Returns whether a joiner may be before the cursor: a seed did not report the widths of the
    /// cells there.
    fn may_follow_joiner(&self) -> bool {
        let Some(row) = self.grid.row(self.y).filter(|row| row.guessed) else { return false };
        (self.x.saturating_sub(3)..self.x).any(|x| row.get(x).ends_in(JOINER, &self.grid.clusters))
    }

    /// Returns the cell before the cursor that a character can join.
    fn base(&self) -> Option<(u32, Cell)> {
        let (before, row) = (self.x.checked_sub(1)?, self.grid.row(self.y)?);
        let at = if before > 0 && row.get(before).is_padding() { before - 1 } else { before };
        let base = row.get(at);
        (!base.is_padding() && base.width() == self.x - at).then_some((at, base))
    }

    /// Adds bytes to a cell's text and makes it wide if requested; false if they do not fit.
    fn extend(&mut self, at: u32, base: Cell, mut text: Vec<u8>, more: &[u8], wide: bool) -> bool {
        let limit = self.rules.cluster_bytes();
        let held = if base.is_tab() { base.width() as usize } else { text.len() };
        text.extend_from_slice(more);
        if held + more.len() > limit {
            return false;
        }
        let mut width = base.width();
        let widened = width == 1 && wide;
        width += u32::from(widened);
        let cell = if base.is_tab() {
            // The cell stays a tab.
            Cell::tab(width, base.style())
        } else {
            if text.len() == 32 {
                // tmux counts the bytes in five bits: all of them are lost, and the sixth bit
                // becomes part of the width.
                text.clear();
                width += u32::from(width == 1);
            }
            let Some(cluster) = Cluster::new(&text) else { return false };
            Cell::cluster(self.clusters().add(cluster), width as u8, base.style())
        };
        self.grid.set(at, self.y, cell);
        if widened {
            let padding = self.padding(base.style());
            self.grid.set(at + 1 + u32::from(self.rules.widens_too_far), self.y, padding);
        }
        let columns = if widened { 2 } else { self.x - at };
        let right = match self.columns().checked_sub(at) {
            Some(right) => right,
            None if self.rules.sees_outside => u32::MAX,
            None => 0,
        };
        let inside = at + columns <= self.columns();
        if self.rules.moves_where_visible && !self.settings.alone && (!inside || widened && self.rules.widens_by_layout)
        {
            self.trouble = Some(Trouble::Layout);
        }
        if !self.rules.moves_where_visible || inside || right >= columns {
            // Also if the cursor does not move: a resize may have left it far beyond the margin.
            self.set_cursor(Some(self.x + u32::from(widened)), None);
        }
        self.sweep();
        true
    }

    /// Prints a tab that covers `width` blanks, in the style of the first.
    pub(super) fn print_tab(&mut self, width: u32) {
        let style = self.grid.get(self.x, self.y).style();
        if width > 1
            && let Some((at, base)) = self.base()
            && base.ends_in(JOINER, &self.grid.clusters)
        {
            let mut text = Vec::with_capacity(2 * CLUSTER_BYTES);
            append_text(base, &self.grid.clusters, &mut text);
            if self.extend(at, base, text, &vec![b' '; width as usize], false) {
                return;
            }
        }
        self.print_cell(Cell::tab(width, style), width);
    }

    /// Prints a cell, in any mode.
    pub(super) fn print_cell(&mut self, cell: Cell, width: u32) {
        let columns = self.columns();
        // If a character is wider than the screen, the subtraction wraps around, and so the line
        // does not.
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
        let padding = if width > 1 { self.padding(cell.style()) } else { Cell::PADDING };
        let Self { rules, grid: Grid { rows, styles, changes, .. }, .. } = self;
        let Some(row) = rows.get_mut(y as usize) else { return };
        let cut = row.cut_wide(x, width, columns, &mut Blanks { rules, styles });
        let stands = width < 2 && !self.modes.insert && !cut && looks_written(row, x, cell, styles, rules);
        if cut || !stands {
            changes.mark(y as usize);
        }
        if !stands {
            row.set_wide(x, width, columns, cell, padding);
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
        // Beyond the margin, where only a resize can put the cursor, tmux has no limit.
        let count = count.min(self.columns().wrapping_sub(self.x)).min(REPEAT_LIMIT);
        let Some(character) = self.last else { return };
        let set = self.pen.sets.drawing();
        if character == UNTOLD_LAST || self.rules.repeats_any_character && set.is_none() {
            self.trouble = Some(Trouble::Untold);
            return;
        }
        let marked = self.rules.repeats_any_character && set == Some(true);
        if marked && self.rules.repeats_line_drawing_by_build {
            self.trouble = Some(Trouble::Build);
        }
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

/// Returns the width of a character beyond ASCII for which all versions agree and which never joins
/// another: letters of most languages, and line drawing.
fn lone_width(character: char) -> Option<u32> {
    match character {
        '\u{a0}'..='\u{ac}' | '\u{ae}'..='\u{2ff}' | '\u{3a3}'..='\u{482}' | '\u{2500}'..='\u{25fc}' => Some(1),
        '\u{3001}'..='\u{3029}'
        | '\u{3041}'..='\u{3096}'
        | '\u{30a0}'..='\u{30ff}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{ff01}'..='\u{ff60}' => Some(2),
        _ => None,
    }
}

/// Returns whether tmux treats a cell as already present in that column and does not write it: then
/// even the number of used cells stays unchanged. tmux ignores the color of underlines here.
fn looks_written(row: &Row, column: u32, cell: Cell, styles: &Styles, rules: &Rules) -> bool {
    let plain = |style: StyleId| Style { underline: Style::DEFAULT.underline, link: 0, ..styles.get(style) };
    if column >= row.size() {
        let linked = styles.get(cell.style()).link != 0;
        return cell.as_ascii() == Some(b' ') && plain(cell.style()) == Style::DEFAULT && !linked;
    }
    let here = row.get(column);
    if here.is_long() || rules.only_long_cells || here.as_ascii() != cell.as_ascii() || here.is_cleared() {
        return false;
    }
    let old = styles.get(here.style());
    let indexed = old.foreground.0 < 0x100 && old.background.0 < 0x100;
    indexed && !here.is_padding() && plain(cell.style()) == old
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        protocol::version::Version,
        screen::{Settings, Size},
    };

    #[test]
    fn what_stands_for_itself_does_so_in_every_version() {
        for version in ["3.2a", "3.3a", "3.4", "3.5a", "3.6b", "3.7c", "3.8"] {
            let rules = Rules::for_version(Version::parse(version.as_bytes()).unwrap());
            let terminal = Terminal::new(Size { columns: 2, rows: 1 }, rules, Settings::default());
            for character in '\u{80}'..=char::MAX {
                let Some(width) = lone_width(character) else { continue };
                assert_eq!(terminal.width(character).map(u32::from), Some(width), "{character:?}");
                let joins = join::may_join(character) || [join::SELECTOR, JOINER, join::FILLER].contains(&character);
                assert!(!joins && !width::is_young(u32::from(character)), "{character:?}");
            }
        }
    }
}
