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

/// Prints codes between `CSI` and `m`.
fn print(out: &mut Vec<u8>, codes: &[String]) {
    out.extend_from_slice(b"\x1b[");
    out.extend_from_slice(codes.join(";").as_bytes());
    out.push(b'm');
}

/// Prints what turns one look into another.
fn change(from: &Style, to: &Style, rules: Rules, out: &mut Vec<u8>) {
    let mut set = from.attributes;
    let mut codes = Vec::new();
    let removed = CODES.iter().any(|(bit, _)| from.has(*bit) && !to.has(*bit));
    let reset = removed || (from.underline != Colour::NONE && to.underline == Colour::NONE);
    if reset {
        codes.push("0".to_owned());
        set &= attribute::CHARSET;
    }
    for (bit, code) in CODES {
        if to.has(bit) && set & bit == 0 {
            // Codes above 9 are printed as two parts: 4:3 is an underline, 5:3 an overline.
            codes.push(if code < 10 { code.to_string() } else { format!("{}:{}", code / 10, code % 10) });
        }
    }
    if !codes.is_empty() {
        print(out, &codes);
    }
    let targets = [
        (foreground(from.foreground), foreground(to.foreground)),
        (background(from.background), background(to.background)),
        (underline(from.underline), underline(to.underline)),
    ];
    for (old, new) in targets {
        let known = reset && rules.resets_colours && matches!(new.first().map(String::as_str), Some("39" | "49"));
        if !new.is_empty() && (reset || old != new) && !known {
            print(out, &new);
        }
    }
    if to.has(attribute::CHARSET) && set & attribute::CHARSET == 0 {
        out.push(0x0e);
    }
    if !to.has(attribute::CHARSET) && set & attribute::CHARSET != 0 {
        out.push(0x0f);
    }
}

fn extended(first: &str, colour: Colour) -> Option<Vec<String>> {
    if let Some(index) = colour.as_palette() {
        return Some([first, "5", &index.to_string()].map(str::to_owned).into());
    }
    let [red, green, blue] = colour.as_rgb()?.map(|part| part.to_string());
    Some(vec![first.to_owned(), "2".to_owned(), red, green, blue])
}

fn foreground(colour: Colour) -> Vec<String> {
    extended("38", colour).unwrap_or_else(|| match colour.0 {
        index @ 0..=7 => vec![(index + 30).to_string()],
        8 => vec!["39".to_owned()],
        bright @ 90..=97 => vec![bright.to_string()],
        _ => Vec::new(),
    })
}

fn background(colour: Colour) -> Vec<String> {
    extended("48", colour).unwrap_or_else(|| match colour.0 {
        index @ 0..=7 => vec![(index + 40).to_string()],
        8 => vec!["49".to_owned()],
        bright @ 90..=97 => vec![(bright + 10).to_string()],
        _ => Vec::new(),
    })
}

fn underline(colour: Colour) -> Vec<String> {
    extended("58", colour).unwrap_or_default()
}
