//! Lines as runs of equal style, for drawing.

use super::{
    Screen,
    cell::{Cell, append_text},
    history::Reader,
    packed::Packed,
    style::{Colour, Style, attribute},
};

/// A line as runs. It is a buffer: reading another line into it reuses its memory.
#[derive(Clone, Debug, Default)]
pub struct RowRuns {
    text: String,
    spans: Vec<Span>,
    /// Whether the line continues in the next one.
    pub wrapped: bool,
    /// The columns of the previous wide character or tab that may still follow, and whether it is a
    /// tab.
    covered: u32,
    in_tab: bool,
}

/// The kind of a run's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// Printable ASCII, one column each.
    Ascii,
    /// Other characters, one column each.
    Narrow,
    /// One wide character, or several characters in one place.
    Cluster,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    /// The end of its text.
    end: usize,
    columns: u32,
    kind: RunKind,
    style: Style,
}

/// A run: text of one style.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run<'a> {
    /// The text, without control characters.
    pub text: &'a str,
    /// The total number of columns.
    pub columns: u32,
    /// The kind of its content.
    pub kind: RunKind,
    /// The style; line drawing is already converted to characters. [`Screen::link`] resolves the
    /// link.
    pub style: Style,
}

impl RowRuns {
    /// Returns the runs from left to right, without blanks at the line's end.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let mut start = 0;
        self.spans.iter().map(move |span| {
            let text = self.text.get(start..span.end).unwrap_or_default();
            start = span.end;
            Run { text, columns: span.columns, kind: span.kind, style: span.style }
        })
    }

    fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        self.wrapped = false;
        (self.covered, self.in_tab) = (0, false);
    }

    fn add(&mut self, text: &str, kind: RunKind, style: Style) {
        self.text.push_str(text);
        let end = self.text.len();
        if let Some(last) = self.spans.last_mut()
            && kind != RunKind::Cluster
            && last.kind == kind
            && last.style == style
        {
            (last.end, last.columns) = (end, last.columns + 1);
            return;
        }
        self.spans.push(Span { end, columns: 1, kind, style });
    }

    /// Adds a cell that is not a right half.
    fn cell(&mut self, text: &[u8], width: u32, style: Style) {
        self.covered = width.saturating_sub(1);
        self.in_tab = text == b"\t";
        let drawing = style.has(attribute::CHARSET);
        let style = Style { attributes: style.attributes & !attribute::CHARSET, ..style };
        match text {
            b"\t" | b"" => self.add(" ", RunKind::Ascii, style),
            [byte] if drawing && drawn(*byte).is_some() => {
                self.add(drawn(*byte).unwrap_or_default(), RunKind::Narrow, style);
            }
            [byte @ 0x20..=0x7e] => self.add(char::from(*byte).encode_utf8(&mut [0; 4]), RunKind::Ascii, style),
            _ => {
                let text = std::str::from_utf8(text).unwrap_or("\u{fffd}");
                let (mut characters, controls) = (text.chars(), text.contains(char::is_control));
                let alone = characters.next().is_some() && characters.next().is_none();
                let kind = if alone && width <= 1 { RunKind::Narrow } else { RunKind::Cluster };
                if controls {
                    self.add("\u{fffd}", kind, style);
                } else {
                    self.add(text, kind, style);
                }
            }
        }
    }

    /// Adds a right half: that of the character before it, or a leftover one, which is blank.
    fn half(&mut self, style: Style) {
        if self.covered == 0 {
            self.add(" ", RunKind::Ascii, Style::erased(style.background));
            return;
        }
        self.covered -= 1;
        let last = self.spans.last().map(|last| last.style).unwrap_or_default();
        if self.in_tab {
            self.add(" ", RunKind::Ascii, last);
        } else if let Some(last) = self.spans.last_mut() {
            last.columns += 1;
        }
    }

    fn finish(&mut self) {
        while let Some(last) = self.spans.last_mut()
            && last.kind == RunKind::Ascii
            && is_invisible(&last.style)
        {
            let (end, columns) = (last.end, last.columns);
            let start = end.saturating_sub(columns as usize);
            let text = self.text.get(start..end).unwrap_or_default();
            let kept = text.trim_end_matches(' ').len();
            self.text.truncate(start + kept);
            if kept > 0 {
                (last.end, last.columns) = (start + kept, kept as u32);
                return;
            }
            self.spans.pop();
        }
    }
}

/// Returns whether a blank in this style is invisible.
fn is_invisible(style: &Style) -> bool {
    let seen = attribute::UNDERLINES | attribute::REVERSE | attribute::STRIKE | attribute::OVERLINE;
    style.background.is_default() && !style.has(seen) && style.link == 0
}

/// Returns the character that a byte of DEC's line drawing represents.
fn drawn(byte: u8) -> Option<&'static str> {
    const FIRST: u8 = b'`';
    const DRAWN: [&str; 31] = [
        "◆", "▒", "␉", "␌", "␍", "␊", "°", "±", "␤", "␋", "┘", "┐", "┌", "└", "┼", "⎺", "⎻", "─", "⎼", "⎽", "├", "┤",
        "┴", "┬", "│", "≤", "≥", "π", "≠", "£", "·",
    ];
    DRAWN.get(usize::from(byte.checked_sub(FIRST)?)).copied()
}

impl Screen {
    /// Reads a visible row. Returns whether the row exists.
    pub fn read_row(&self, row: u16, into: &mut RowRuns) -> bool {
        into.clear();
        let grid = &self.terminal.grid;
        let Some(row) = grid.rows.get(usize::from(row)) else { return false };
        let (mut id, mut style) = (0, Style::DEFAULT);
        let mut text = Vec::with_capacity(32);
        for cell in row.cells.iter().take(grid.columns as usize) {
            if cell.style() != id {
                (id, style) = (cell.style(), known(grid.styles.get(cell.style())));
            }
            if cell.is_padding() {
                into.half(style);
                continue;
            }
            text.clear();
            append_text(*cell, &grid.clusters, &mut text);
            into.cell(&text, width(*cell), style);
        }
        into.wrapped = row.wrapped;
        into.finish();
        true
    }

    /// Returns a reader of the history's lines.
    pub fn history(&self) -> HistoryLines<'_> {
        let grid = &self.terminal.grid;
        HistoryLines { reader: grid.history.reader(), first: grid.history.first(), columns: grid.columns }
    }

    /// Returns the number of the oldest line of the history. Numbers increase from 0 as lines
    /// scroll away, and a line keeps its number until it is dropped; a resize may change it.
    pub fn history_start(&self) -> u64 {
        self.terminal.grid.history.first()
    }

    /// Returns the number of the line with the cursor, as [`Screen::history_start`] counts lines;
    /// `None` on the alternate screen.
    pub fn cursor_line(&self) -> Option<u64> {
        let line = self.history_start() + u64::from(self.history_size()) + u64::from(self.cursor().row);
        (!self.alternate()).then_some(line)
    }

    /// Returns the address of a link by the number in a style; `None` if it is no longer known.
    pub fn link(&self, number: u32) -> Option<&str> {
        self.terminal.links.get(number)
    }
}

/// Reads lines of a screen's history. Lines in order cost the least: the history is compressed in
/// blocks.
#[derive(Debug)]
pub struct HistoryLines<'a> {
    reader: Reader<'a>,
    /// The number of the oldest line.
    first: u64,
    columns: u32,
}

impl HistoryLines<'_> {
    /// Reads a line by its number ([`Screen::history_start`]). Returns whether the line exists.
    pub fn read(&mut self, number: u64, into: &mut RowRuns) -> bool {
        into.clear();
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(line) = at.and_then(|at| self.reader.get(at)) else { return false };
        read_packed(&line, self.columns, into);
        true
    }
}

fn read_packed(line: &Packed<'_>, columns: u32, into: &mut RowRuns) {
    let mut left = columns;
    for run in line.runs() {
        let style = known(run.style);
        run.each_cell(|text, width, pair| {
            let taken = if pair { 2 } else { 1 };
            if left < taken {
                left = 0;
                return;
            }
            left -= taken;
            match text {
                Some(text) => into.cell(text, width, style),
                None => into.half(style),
            }
            if pair {
                into.half(style);
            }
        });
    }
    into.wrapped = line.wrapped();
    into.finish();
}

/// Returns a style for drawing: unknown parts become the terminal's own.
fn known(style: Style) -> Style {
    let background = if style.background.is_default() { Colour::DEFAULT } else { style.background };
    Style { background, ..style.shown() }
}

/// Returns the number of columns that a cell's character needs.
fn width(cell: Cell) -> u32 {
    cell.width().max(1)
}
