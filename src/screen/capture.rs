//! What `tmux capture-pane -p` prints.

use super::{
    cell::{Cell, append_text},
    packed::Packed,
    row::Row,
    rules::Rules,
    style::{Colour, Style, attribute},
    terminal::Terminal,
};

/// A line of `-S` or `-E`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Line {
    /// Nothing given: the top of the screen as a start, its bottom as an end.
    #[default]
    Default,
    /// `-`: the first line of the history as a start, the bottom of the screen as an end.
    Edge,
    /// 0 is the top of the screen; negative ones are in the history.
    At(i32),
}

/// What to print, as the flags of `capture-pane`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// `-S`.
    pub start: Line,
    /// `-E`.
    pub end: Line,
    /// `-J`: lines that wrapped are one; trailing spaces are kept.
    pub join: bool,
    /// `-e`: escape sequences for how it looks.
    pub escapes: bool,
    /// `-N`: trailing spaces are kept.
    pub trailing: bool,
}

/// A line, wherever it is kept.
enum Source<'a> {
    Row(&'a Row),
    Packed(Packed<'a>),
}

/// Prints lines.
struct Printer<'a> {
    terminal: &'a Terminal,
    options: CaptureOptions,
    /// How the last cell looked; it is carried from line to line.
    last: Style,
    out: Vec<u8>,
    /// tmux may print something else.
    unknown: bool,
}

impl Terminal {
    /// The lines that the options ask for.
    pub(super) fn capture(&self, options: CaptureOptions) -> Vec<u8> {
        self.printed(options).out
    }

    /// The same, if tmux prints that for certain.
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
        let mut printer = Printer { terminal: self, options, last: Style::DEFAULT, out: Vec::new(), unknown: false };
        for packed in self.grid.history.iter_from(top).take((bottom + 1).saturating_sub(top)) {
            printer.line(&Source::Packed(packed));
        }
        let (from, to) = (top.saturating_sub(history), (bottom + 1).saturating_sub(history));
        for row in self.grid.rows.range(from.min(to)..to) {
            printer.line(&Source::Row(row));
        }
        printer
    }
}

impl Printer<'_> {
    fn line(&mut self, source: &Source<'_>) {
        let start = self.out.len();
        let wrapped = match source {
            Source::Row(row) => {
                self.row(row);
                row.wrapped
            }
            Source::Packed(packed) => {
                self.packed(packed);
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
        let (styles, clusters) = (&self.terminal.grid.styles, &self.terminal.grid.clusters);
        let end = self.end(row.used, row.size());
        let used = row.cells.iter().copied().chain(std::iter::repeat(Cell::CLEARED)).take(end as usize);
        let sure = row.size() - row.slack;
        let mut style = None;
        for (at, cell) in used.enumerate() {
            if at as u32 == sure {
                self.slack(row.size(), row.slack, end - sure);
            }
            if cell.is_padding() {
                continue;
            }
            if self.options.escapes && style != Some(cell.style()) {
                style = Some(cell.style());
                self.look(&styles.get(cell.style()));
            }
            append_text(cell, clusters, &mut self.out);
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

    /// The last cells of a line may not exist. They are spaces, and `left` cells are to be printed: with `-N`, or where the style
    /// changes for the first of them, it can be seen.
    fn slack(&mut self, size: u32, slack: u32, left: u32) {
        let printed = size.min(self.terminal.columns()).saturating_sub(size - slack);
        if self.untouched() && printed > 0 {
            let first = left == printed && self.last != Style::DEFAULT;
            self.unknown |= self.options.trailing || (self.options.escapes && first);
        }
    }

    /// Cells are printed that nobody wrote.
    fn untouched(&self) -> bool {
        self.terminal.rules.prints_untouched_cells && !self.options.join
    }

    /// Cells of a line that are printed.
    fn end(&self, used: u32, size: u32) -> u32 {
        if self.untouched() { size } else { used }.min(self.terminal.columns())
    }

    /// What turns the last look into this one.
    fn look(&mut self, style: &Style) {
        self.unknown |= style.link != 0;
        if self.last != *style {
            change(&self.last, style, self.terminal.rules, &mut self.out);
            self.last = *style;
        }
    }
}

/// Removes spaces from the end of a line.
fn trim(out: &mut Vec<u8>, start: usize) {
    let spaces = out.get(start..).unwrap_or_default().iter().rev().take_while(|byte| **byte == b' ').count();
    out.truncate(out.len() - spaces);
}

/// Attributes and the codes that set them, in the order in which they are printed.
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

/// Numbers between `CSI` and `m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Codes {
    list: [u8; 5],
    length: usize,
}

impl Codes {
    fn of(codes: &[u8]) -> Self {
        let mut list = [0; 5];
        list.iter_mut().zip(codes).for_each(|(slot, code)| *slot = *code);
        Self { list, length: codes.len().min(5) }
    }

    fn as_slice(&self) -> &[u8] {
        self.list.get(..self.length).unwrap_or_default()
    }

    fn print(&self, out: &mut Vec<u8>) {
        for (at, code) in self.as_slice().iter().enumerate() {
            out.extend_from_slice(if at == 0 { b"\x1b[" } else { b";" });
            decimal(*code, out);
        }
        out.push(b'm');
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

/// A colour before and after, and what sets it.
type Target = (Colour, Colour, fn(Colour) -> Codes);

/// Prints what turns one look into another.
fn change(from: &Style, to: &Style, rules: Rules, out: &mut Vec<u8>) {
    let mut set = from.attributes;
    let start = out.len();
    let removed = CODES.iter().any(|(bit, _)| from.has(*bit) && !to.has(*bit));
    let reset = removed || (from.underline != Colour::NONE && to.underline == Colour::NONE);
    if reset {
        out.extend_from_slice(b"\x1b[0");
        set &= attribute::CHARSET;
    }
    for (bit, code) in CODES {
        if to.has(bit) && set & bit == 0 {
            out.extend_from_slice(if out.len() == start { b"\x1b[" } else { b";" });
            // Codes above 9 are printed as two parts: 4:3 is an underline, 5:3 an overline.
            if code >= 10 {
                out.extend_from_slice(&[b'0' + code / 10, b':']);
            }
            out.push(b'0' + code % 10);
        }
    }
    if out.len() > start {
        out.push(b'm');
    }
    let targets: [Target; 3] = [
        (from.foreground, to.foreground, foreground),
        (from.background, to.background, background),
        (from.underline, to.underline, underline),
    ];
    for (old, new, codes) in targets {
        if reset || old != new {
            let codes = codes(new);
            let known = reset && rules.resets_colours && matches!(codes.as_slice(), [39 | 49]);
            if codes.length > 0 && !known {
                codes.print(out);
            }
        }
    }
    if to.has(attribute::CHARSET) && set & attribute::CHARSET == 0 {
        out.push(0x0e);
    }
    if !to.has(attribute::CHARSET) && set & attribute::CHARSET != 0 {
        out.push(0x0f);
    }
}

fn extended(first: u8, colour: Colour) -> Option<Codes> {
    if let Some(index) = colour.as_palette() {
        return Some(Codes::of(&[first, 5, index]));
    }
    let [red, green, blue] = colour.as_rgb()?;
    Some(Codes::of(&[first, 2, red, green, blue]))
}

fn foreground(colour: Colour) -> Codes {
    extended(38, colour).unwrap_or_else(|| match colour.0 as u8 {
        index @ 0..=7 => Codes::of(&[index + 30]),
        8 => Codes::of(&[39]),
        bright @ 90..=97 => Codes::of(&[bright]),
        _ => Codes::default(),
    })
}

fn background(colour: Colour) -> Codes {
    extended(48, colour).unwrap_or_else(|| match colour.0 as u8 {
        index @ 0..=7 => Codes::of(&[index + 40]),
        8 => Codes::of(&[49]),
        bright @ 90..=97 => Codes::of(&[bright + 10]),
        _ => Codes::default(),
    })
}

fn underline(colour: Colour) -> Codes {
    extended(58, colour).unwrap_or_default()
}
