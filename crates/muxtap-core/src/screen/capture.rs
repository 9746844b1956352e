//! Captures: the output of `tmux capture-pane -p`.

use super::{
    cell::{Cell, append_text},
    packed::Packed,
    row::Row,
    rules::Rules,
    style::{Colour, Style, attribute},
    terminal::Terminal,
};

/// A line number of `-S` or `-E`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Line {
    /// Not given: the top of the screen as a start, its bottom as an end.
    #[default]
    Default,
    /// `-`: the first line of the history as a start, the bottom of the screen as an end.
    Edge,
    /// A line number: 0 is the top of the screen; negative lines are in the history.
    At(i32),
}

/// The options of a capture, like the flags of `capture-pane`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// `-S`: the first line.
    pub start: Line,
    /// `-E`: the last line.
    pub end: Line,
    /// `-J`: wrapped lines are joined; trailing spaces are kept.
    pub join: bool,
    /// `-e`: escape sequences for the styles are included.
    pub escapes: bool,
    /// `-N`: trailing spaces are kept.
    pub trailing: bool,
}

/// A line of the screen or of the history.
enum Source<'a> {
    Row(&'a Row),
    Packed(Packed<'a>),
}

/// Prints lines.
struct Printer<'a> {
    terminal: &'a Terminal,
    options: CaptureOptions,
    /// The style of the last cell, which carries over from line to line.
    last: Style,
    out: Vec<u8>,
    /// Whether tmux may print something else.
    unknown: bool,
    /// Whether the output reveals how many cells of a line exist.
    shows_ends: bool,
    /// Whether it is unknown if the last line continues.
    unsure_wrap: bool,
}

impl Terminal {
    /// Returns the lines that the options select.
    pub(super) fn capture(&self, options: CaptureOptions) -> Vec<u8> {
        self.printed(options).out
    }

    /// Returns the capture, if it is certain that tmux prints the same.
    pub(super) fn known(&self, options: CaptureOptions) -> Option<Vec<u8>> {
        let printed = self.printed(options);
        (!printed.unknown).then_some(printed.out)
    }

    fn printed(&self, options: CaptureOptions) -> Printer<'_> {
        let history = self.grid.history.len();
        let last = history + self.height() as usize - 1;
        let line = |line: Line, default: usize, edge: usize| match line {
            Line::Default => default,
            Line::Edge => edge,
            Line::At(at @ ..0) => history.saturating_sub(at.unsigned_abs() as usize),
            Line::At(at) => (history + at.unsigned_abs() as usize).min(last),
        };
        let top = line(options.start, history, 0);
        let bottom = line(options.end, last, last);
        let (top, bottom) = (top.min(bottom), top.max(bottom));
        let (from, to) = (top.saturating_sub(history), (bottom + 1).saturating_sub(history));
        let out = Vec::with_capacity(to.saturating_sub(from) * (self.columns() as usize + 1));
        let ends = if options.join { self.rules.joins_untouched_cells } else { options.escapes };
        let shows_ends = self.rules.prints_untouched_cells && (options.trailing || ends);
        let unknown = self.settings.other_widths || self.unsure_width;
        let mut printer =
            Printer { terminal: self, options, last: Style::DEFAULT, out, unknown, shows_ends, unsure_wrap: false };
        let mut reader = self.grid.history.reader();
        for line in top..history.min(bottom + 1) {
            let Some(packed) = reader.get(line) else { break };
            printer.line(&Source::Packed(packed));
        }
        for row in self.grid.rows.range(from.min(to)..to) {
            printer.line(&Source::Row(row));
        }
        printer
    }
}

impl Printer<'_> {
    fn line(&mut self, source: &Source<'_>) {
        let start = self.out.len();
        // tmux does not print whether the last line of a capture continues.
        self.unknown |= self.unsure_wrap && self.options.join;
        let wrapped = match source {
            Source::Row(row) => {
                self.row(row);
                self.unknown |= row.doubtful || self.shows_ends && row.unsure_end;
                self.unsure_wrap = row.unsure_wrap;
                row.wrapped
            }
            Source::Packed(packed) => {
                self.packed(packed);
                self.unknown |= packed.doubtful() || self.shows_ends && packed.unsure_end();
                self.unsure_wrap = packed.unsure_wrap();
                packed.wrapped()
            }
        };
        if !self.options.join && !self.options.trailing {
            trim(&mut self.out, start);
        }
        if !(self.options.join && wrapped) {
            self.out.push(b'\n');
        }
    }

    fn row(&mut self, row: &Row) {
        let end = self.end(row.used, row.size()) as usize;
        let cells = row.cells.get(..end).unwrap_or(&row.cells);
        let sure = row.cells.len() - row.slack as usize;
        let (sure, unsure) = cells.split_at(cells.len().min(sure));
        self.cells(sure);
        if !unsure.is_empty() {
            self.slack(row.size(), row.slack, unsure.len() as u32);
            self.cells(unsure);
        }
        for _ in cells.len()..end {
            self.cells(&[Cell::CLEARED]);
        }
    }

    fn cells(&mut self, mut cells: &[Cell]) {
        let (styles, clusters) = (&self.terminal.grid.styles, &self.terminal.grid.clusters);
        let mut style = None;
        while let Some((first, more)) = cells.split_first() {
            if first.is_padding() {
                cells = more;
                continue;
            }
            if self.options.escapes && style != Some(first.style()) {
                style = Some(first.style());
                self.look(&styles.get(first.style()));
            }
            if first.as_ascii().is_some() {
                let (run, rest) = cells.split_at(first.ascii_run(cells));
                Cell::append_ascii(run, &mut self.out);
                cells = rest;
            } else {
                append_text(*first, clusters, &mut self.out);
                cells = more;
            }
        }
    }

    fn packed(&mut self, packed: &Packed<'_>) {
        let mut left = self.end(packed.used, packed.size);
        for run in packed.runs() {
            if left == 0 {
                break;
            }
            if self.options.escapes && !run.is_padding() {
                self.look(&run.style);
            }
            run.append_text(left, &mut self.out);
            left = left.saturating_sub(run.columns());
        }
        self.slack(packed.size, packed.slack, left);
        if left > 0 {
            if self.options.escapes {
                self.look(&Style::DEFAULT);
            }
            self.out.resize(self.out.len() + left as usize, b' ');
        }
    }

    /// Prints the last cells of a line, which may not exist in tmux. They are spaces, and `left`
    /// cells are still to be printed: the difference is visible with `-N`, or where the style
    /// changes at the first of them.
    fn slack(&mut self, size: u32, slack: u32, left: u32) {
        let printed = size.min(self.terminal.columns()).saturating_sub(size - slack);
        if self.untouched() && printed > 0 {
            let first = left == printed && self.last != Style::DEFAULT;
            self.unknown |= self.options.trailing || self.options.join || (self.options.escapes && first);
        }
    }

    /// Returns whether cells that were never written are printed.
    fn untouched(&self) -> bool {
        let rules = self.terminal.rules;
        rules.prints_untouched_cells && (rules.joins_untouched_cells || !self.options.join)
    }

    /// Returns the number of a line's cells that are printed.
    fn end(&self, used: u32, size: u32) -> u32 {
        if self.untouched() { size } else { used }.min(self.terminal.columns())
    }

    /// Prints the sequences that change the last style to this one.
    fn look(&mut self, style: &Style) {
        self.unknown |= style.link != 0 || style.has(attribute::UNTOLD);
        let style = style.shown();
        if self.last != style {
            change(&self.last, &style, self.terminal.rules, &mut self.out);
            self.last = style;
        }
    }
}

/// Removes spaces from the end of a line.
fn trim(out: &mut Vec<u8>, start: usize) {
    let spaces = out.get(start..).unwrap_or_default().iter().rev().take_while(|byte| **byte == b' ').count();
    out.truncate(out.len() - spaces);
}

/// The attributes and the codes that set them, in the order in which they are printed.
const CODES: [(u16, u8); 13] = [
    (attribute::BRIGHT, 1),
    (attribute::DIM, 2),
    (attribute::ITALICS, 3),
    (attribute::UNDERLINE, 4),
    (attribute::BLINK, 5),
    (attribute::REVERSE, 7),
    (attribute::HIDDEN, 8),
    (attribute::STRIKE, 9),
    (attribute::UNDERLINE_2, 42),
    (attribute::UNDERLINE_3, 43),
    (attribute::UNDERLINE_4, 44),
    (attribute::UNDERLINE_5, 45),
    (attribute::OVERLINE, 53),
];

/// Prints the sequences that change one style to another.
pub(super) fn change(from: &Style, to: &Style, rules: Rules, out: &mut Vec<u8>) {
    let underlines = rules.prints_underline_colours;
    let removed = from.attributes & !to.attributes & !attribute::CHARSET;
    let reset = removed != 0 || (underlines && from.underline != Colour::NONE && to.underline == Colour::NONE);
    let kept = if reset { attribute::CHARSET } else { !0 };
    let added = to.attributes & !(from.attributes & kept);
    if reset || added & !attribute::CHARSET != 0 {
        set_attributes(reset, added, out);
    }
    // A reset includes the colors, and from 3.4 on default ones are not set again.
    let is_left_out = |colour: Colour| rules.resets_colours && colour.is_default();
    let changes = |old: Colour, new: Colour| if reset { !is_left_out(new) } else { old != new };
    if changes(from.foreground, to.foreground) {
        set_colour(&FOREGROUND, to.foreground, out);
    }
    if changes(from.background, to.background) {
        set_colour(&BACKGROUND, to.background, out);
    }
    if underlines && (reset || from.underline != to.underline) {
        set_extended(UNDERLINE, to.underline, out);
    }
    match (from.has(attribute::CHARSET), to.has(attribute::CHARSET)) {
        (false, true) => out.push(0x0e),
        (true, false) => out.push(0x0f),
        _ => {}
    }
}

/// Prints one sequence: a reset if necessary, and the attributes that are added.
fn set_attributes(reset: bool, added: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x1b[");
    if reset {
        out.extend_from_slice(b"0;");
    }
    for (bit, code) in CODES {
        if added & bit != 0 {
            // Codes above 9 are printed as two parts: 4:3 is an underline, 5:3 an overline.
            if code >= 10 {
                out.extend_from_slice(&[b'0' + code / 10, b':']);
            }
            out.extend_from_slice(&[b'0' + code % 10, b';']);
        }
    }
    if let Some(last) = out.last_mut() {
        *last = b'm';
    }
}

/// The codes of one of the three kinds of color.
struct Layer {
    /// The base of the codes for the 8 colors; 9 more is the default.
    base: u8,
    /// The base for tmux's numbers of bright colors.
    bright: u8,
    extended: u8,
}

const FOREGROUND: Layer = Layer { base: 30, bright: 0, extended: 38 };
const BACKGROUND: Layer = Layer { base: 40, bright: 10, extended: 48 };
const UNDERLINE: u8 = 58;

fn set_colour(layer: &Layer, colour: Colour, out: &mut Vec<u8>) {
    if set_extended(layer.extended, colour, out) {
        return;
    }
    match colour.0 as u8 {
        index @ 0..=7 => set([layer.base + index], out),
        8 => set([layer.base + 9], out),
        bright @ 90..=97 => set([layer.bright + bright], out),
        _ => {}
    }
}

/// Sets a color of the 256 or an RGB color; false for any other color.
fn set_extended(code: u8, colour: Colour, out: &mut Vec<u8>) -> bool {
    if let Some(index) = colour.as_palette() {
        set([code, 5, index], out);
    } else if let Some([red, green, blue]) = colour.as_rgb() {
        set([code, 2, red, green, blue], out);
    } else {
        return false;
    }
    true
}

/// Prints one sequence with these numbers.
fn set<const COUNT: usize>(codes: [u8; COUNT], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x1b[");
    for code in codes {
        decimal(code, out);
        out.push(b';');
    }
    if let Some(last) = out.last_mut() {
        *last = b'm';
    }
}

fn decimal(number: u8, out: &mut Vec<u8>) {
    if number >= 100 {
        out.push(b'0' + number / 100);
    }
    if number >= 10 {
        out.push(b'0' + number / 10 % 10);
    }
    out.push(b'0' + number % 10);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::version::Version;

    fn changed(from: Style, to: Style, version: &str) -> String {
        let mut out = Vec::new();
        change(&from, &to, Rules::for_version(Version::parse(version.as_bytes()).unwrap()), &mut out);
        out.escape_ascii().to_string()
    }

    #[test]
    fn what_is_added_is_set_and_what_is_removed_resets_all() {
        let plain = Style::DEFAULT;
        let bold = Style { attributes: attribute::BRIGHT | attribute::UNDERLINE_3, ..plain };
        let red = Style { foreground: Colour(1), background: Colour::palette(100), ..bold };
        let line = Style { attributes: attribute::BRIGHT | attribute::CHARSET, background: Colour(93), ..red };
        assert_eq!(changed(plain, bold, "3.3a"), r"\x1b[1;4:3m");
        assert_eq!(changed(bold, red, "3.3a"), r"\x1b[31m\x1b[48;5;100m");
        assert_eq!(changed(red, line, "3.3a"), r"\x1b[0;1m\x1b[31m\x1b[103m\x0e");
        assert_eq!(changed(line, plain, "3.3a"), r"\x1b[0m\x1b[39m\x1b[49m\x0f");
        assert_eq!(changed(line, plain, "3.5a"), r"\x1b[0m\x0f");
        let underlined = Style { underline: Colour::rgb(0, 10, 255), ..plain };
        assert_eq!(changed(plain, underlined, "3.3a"), r"\x1b[58;2;0;10;255m");
        assert_eq!(changed(underlined, plain, "3.5a"), r"\x1b[0m");
    }
}
