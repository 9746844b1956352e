//! A line as a few bytes: its text and runs of style.
//!
//! The format is `flags`, the number of used cells and of existing cells, then runs until the end.
//! A run is a tag (its kind; whether a style comes first; its number of cells if that is small),
//! the style, the number, and the content of the cells. Numbers are written with seven bits a byte.

use super::{
    cell::{Cell, Cluster, Clusters, append_text},
    row::Row,
    style::{Colour, Style, StyleId, Styles},
};

/// In the first byte: the text continues in the next line.
pub(super) const WRAPPED: u8 = 1;
/// In the first byte: it is unknown whether the text continues.
pub(super) const UNSURE_WRAP: u8 = 64;
/// In the first byte: fewer cells may exist.
const SLACK: u8 = 2;
/// In the first byte: a cell was long.
const EXTENDED: u8 = 4;
/// In the first byte: the line has tabs whose widths are guesses.
const GUESSED: u8 = 8;
/// In the first byte: the line also changed since.
const DOUBTFUL: u8 = 16;

/// In the first byte: the number of existing cells is unknown.
const UNSURE_END: u8 = 32;

/// A run with one byte a cell.
const ASCII: u8 = 0;
/// A run with one character a cell.
const NARROW: u8 = 1;
/// A run with a character and its padding: two cells, counted as one.
const WIDE: u8 = 2;
/// A run without text.
const CLEARED: u8 = 3;
/// A run of right halves alone.
const PADDING: u8 = 4;
/// A run of any other cells: for each cell its width, its length and its text.
const OTHER: u8 = 5;
/// A tab, without the cells after it; its number is its width.
const TAB: u8 = 6;
/// Not a run: the cells of the next run are in tmux's long form, which their content does not
/// require.
const LONG: u8 = 7;
const KIND: u8 = 7;
const STYLED: u8 = 8;
const COUNT_SHIFT: u8 = 4;

/// Writes a number with seven bits a byte; the last byte has a clear top bit.
pub(super) fn put(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Reads a number that [`put`] wrote; 0 at the end.
pub(super) fn take(bytes: &mut &[u8]) -> u32 {
    let mut number = 0;
    let mut shift = 0;
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u32::from(byte & 0x7f) << shift;
        if *byte < 0x80 || shift >= 28 {
            break;
        }
        shift += 7;
    }
    number
}

/// The parts of a style that follow.
mod part {
    pub(super) const ATTRIBUTES: u8 = 1;
    pub(super) const FOREGROUND: u8 = 2;
    pub(super) const BACKGROUND: u8 = 4;
    pub(super) const UNDERLINE: u8 = 8;
    pub(super) const LINK: u8 = 16;
}

/// Writes a color in few bytes: the flags become its lowest bits, which makes indexed colors one or
/// two bytes long.
fn put_colour(colour: Colour, out: &mut Vec<u8>) {
    put((colour.0 & 0x00ff_ffff) << 2 | colour.0 >> 24 & 3, out);
}

fn take_colour(bytes: &mut &[u8]) -> Colour {
    let packed = take(bytes);
    Colour(packed >> 2 | (packed & 3) << 24)
}

fn put_style(style: &Style, out: &mut Vec<u8>) {
    let default = Style::DEFAULT;
    let mut parts = 0;
    let mut part = |differs: bool, bit: u8| parts |= if differs { bit } else { 0 };
    part(style.attributes != 0, part::ATTRIBUTES);
    part(style.foreground != default.foreground, part::FOREGROUND);
    part(style.background != default.background, part::BACKGROUND);
    part(style.underline != default.underline, part::UNDERLINE);
    part(style.link != 0, part::LINK);
    out.push(parts);
    if parts & part::ATTRIBUTES != 0 {
        put(u32::from(style.attributes), out);
    }
    if parts & part::FOREGROUND != 0 {
        put_colour(style.foreground, out);
    }
    if parts & part::BACKGROUND != 0 {
        put_colour(style.background, out);
    }
    if parts & part::UNDERLINE != 0 {
        put_colour(style.underline, out);
    }
    if parts & part::LINK != 0 {
        put(style.link, out);
    }
}

fn take_style(bytes: &mut &[u8]) -> Style {
    let mut style = Style::DEFAULT;
    let Some((parts, rest)) = bytes.split_first() else { return style };
    *bytes = rest;
    if parts & part::ATTRIBUTES != 0 {
        style.attributes = take(bytes) as u16;
    }
    if parts & part::FOREGROUND != 0 {
        style.foreground = take_colour(bytes);
    }
    if parts & part::BACKGROUND != 0 {
        style.background = take_colour(bytes);
    }
    if parts & part::UNDERLINE != 0 {
        style.underline = take_colour(bytes);
    }
    if parts & part::LINK != 0 {
        style.link = take(bytes);
    }
    style
}

/// Returns the kind of run to which a cell belongs.
fn kind(cell: Cell, next: Option<Cell>) -> u8 {
    if cell.is_padding() {
        return PADDING;
    }
    if cell.is_cleared() {
        return CLEARED;
    }
    match (cell.is_cluster(), cell.width()) {
        (false, 1) if cell.as_ascii().is_some() => ASCII,
        (false, 1) => NARROW,
        _ if cell.is_tab() => TAB,
        (false, 2) if next.is_some_and(|next| next.is_padding() && next.style() == 0) => WIDE,
        _ => OTHER,
    }
}

/// Counts the cells at the start that are of this kind and look like the first.
fn run_length(first: Cell, cells: &[Cell], kind: u8) -> usize {
    match kind {
        ASCII => first.ascii_run(cells),
        WIDE => {
            let wide = |cell: Cell| cell.look() == first.look() && !cell.is_cluster() && !cell.is_tab();
            let (pairs, _) = cells.as_chunks::<2>();
            let half = pairs.first().map(|[_, padding]| *padding);
            2 * pairs.iter().take_while(|[cell, padding]| wide(*cell) && Some(*padding) == half).count()
        }
        TAB => 1,
        _ => {
            let next = |at: usize| cells.get(at + 1).copied();
            let same = |at: usize, cell: Cell| {
                cell.look() == first.look() && cell.is_long() == first.is_long() && self::kind(cell, next(at)) == kind
            };
            cells.iter().enumerate().take_while(|(at, cell)| same(*at, **cell)).count()
        }
    }
}

/// Appends a line.
pub(super) fn pack(row: &Row, styles: &Styles, clusters: &Clusters, out: &mut Vec<u8>) {
    // Untouched cells after the last touched one are rebuilt on demand.
    let mut cells = row.touched();
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let unsure = flag(row.unsure_end, UNSURE_END) | flag(row.unsure_wrap, UNSURE_WRAP);
    let seeded = flag(row.guessed, GUESSED) | flag(row.doubtful, DOUBTFUL) | unsure;
    out.push(flag(row.wrapped, WRAPPED) | flag(row.slack > 0, SLACK) | flag(row.extended, EXTENDED) | seeded);
    put(row.used, out);
    put(row.size(), out);
    if row.slack > 0 {
        put(row.slack, out);
    }
    let mut style: StyleId = 0;
    while let Some(first) = cells.first().copied() {
        let kind = kind(first, cells.get(1).copied());
        let (run, rest) = cells.split_at(run_length(first, cells, kind).clamp(1, cells.len()));
        cells = rest;
        let count = match kind {
            WIDE => run.len() / 2,
            TAB => first.width() as usize,
            _ => run.len(),
        };
        let lengthened = match kind {
            WIDE => run.get(1).is_some_and(|padding| padding.is_long()),
            _ => first.is_long() && !first.copied().is_long(),
        };
        if lengthened {
            out.push(LONG);
        }
        let mut tag = kind;
        let background = kind == PADDING && first.style() != 0;
        if background || first.style() != style && kind != PADDING {
            tag |= STYLED;
        }
        if count < 16 {
            tag |= (count as u8) << COUNT_SHIFT;
        }
        out.push(tag);
        if tag & STYLED != 0 {
            if !background {
                style = first.style();
            }
            put_style(&styles.get(first.style()), out);
        }
        if count >= 16 {
            put(count as u32, out);
        }
        match kind {
            ASCII => Cell::append_ascii(run, out),
            CLEARED | PADDING | TAB => {}
            _ => put_text(run, kind, clusters, out),
        }
    }
}

/// Appends the content of cells that are not ASCII.
fn put_text(run: &[Cell], kind: u8, clusters: &Clusters, out: &mut Vec<u8>) {
    for cell in run {
        if kind != OTHER {
            append_text(*cell, clusters, out);
            continue;
        }
        let place = out.len();
        out.push(0);
        append_text(*cell, clusters, out);
        let length = (out.len() - place - 1) as u8;
        if let Some(slot) = out.get_mut(place) {
            *slot = length << 2 | cell.width() as u8;
        }
    }
}

/// A run of a packed line.
pub(super) struct Run<'a> {
    kind: u8,
    /// Whether the cells are long without need, or the right halves of wide ones are.
    long: bool,
    /// The style of its cells.
    pub(super) style: Style,
    /// The number of cells; for wide characters, the number of characters.
    count: u32,
    text: &'a [u8],
}

impl Run<'_> {
    /// Returns whether the run has no text: right halves of wide characters, by themselves.
    pub(super) fn is_padding(&self) -> bool {
        self.kind == PADDING
    }

    /// Returns the number of columns that the run occupies.
    pub(super) fn columns(&self) -> u32 {
        match self.kind {
            WIDE => self.count * 2,
            TAB => 1,
            _ => self.count,
        }
    }

    /// Appends the text of its first `columns` columns.
    pub(super) fn append_text(&self, columns: u32, out: &mut Vec<u8>) {
        match self.kind {
            ASCII => out.extend_from_slice(self.text.get(..columns as usize).unwrap_or(self.text)),
            CLEARED => out.resize(out.len() + columns.min(self.count) as usize, b' '),
            PADDING => {}
            TAB => out.push(b'\t'),
            _ if columns >= self.columns() && self.kind != OTHER => out.extend_from_slice(self.text),
            _ => {
                let mut column = 0;
                self.cells(|text, width, _| {
                    if column < columns {
                        out.extend_from_slice(text);
                    }
                    column += if self.kind == WIDE { width } else { 1 };
                });
            }
        }
    }

    /// Calls `each` for each cell with its text (`None` for the right half of a wide character),
    /// its preferred number of columns, and whether its right half is included and gets no call of
    /// its own.
    pub(super) fn each_cell(&self, mut each: impl FnMut(Option<&[u8]>, u32, bool)) {
        self.cells(|text, width, kind| match kind {
            PADDING => each(None, 0, false),
            kind => each(Some(text), width.max(1), kind == WIDE),
        });
    }

    /// Calls `each` with the text and width of each cell that has text.
    pub(super) fn cells(&self, mut each: impl FnMut(&[u8], u32, u8)) {
        if self.kind == TAB {
            each(b"\t", self.count, TAB);
            return;
        }
        let mut text = self.text;
        for _ in 0..self.count {
            let (length, width) = match self.kind {
                ASCII => (1, 1),
                NARROW => (char_length(text), 1),
                WIDE => (char_length(text), 2),
                CLEARED => {
                    each(b" ", 1, CLEARED);
                    continue;
                }
                OTHER => {
                    let Some((head, rest)) = text.split_first() else { return };
                    text = rest;
                    (usize::from(head >> 2), u32::from(head & 3))
                }
                _ => {
                    each(b"", 0, PADDING);
                    continue;
                }
            };
            let Some((cell, rest)) = text.split_at_checked(length) else { return };
            each(cell, width, self.kind);
            text = rest;
        }
    }
}

/// Returns the number of bytes of the character at the start.
fn char_length(text: &[u8]) -> usize {
    match text.first() {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    }
}

/// A packed line for reading.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a> {
    flags: u8,
    /// The number of cells up to the last written one.
    pub(super) used: u32,
    /// The number of cells that exist.
    pub(super) size: u32,
    /// The number of last cells that may not exist.
    pub(super) slack: u32,
    runs: &'a [u8],
}

impl<'a> Packed<'a> {
    pub(super) fn read(mut bytes: &'a [u8]) -> Self {
        let Some((flags, rest)) = bytes.split_first() else {
            return Self { flags: 0, used: 0, size: 0, slack: 0, runs: &[] };
        };
        bytes = rest;
        let used = take(&mut bytes);
        let size = take(&mut bytes);
        let slack = if flags & SLACK != 0 { take(&mut bytes) } else { 0 };
        Self { flags: *flags, used, size, slack, runs: bytes }
    }

    /// Returns whether the line's text is uncertain.
    pub(super) fn doubtful(&self) -> bool {
        self.flags & DOUBTFUL != 0
    }

    /// Returns whether the number of existing cells is unknown.
    pub(super) fn unsure_end(&self) -> bool {
        self.flags & UNSURE_END != 0
    }

    /// Returns whether it is unknown if the text continues in the next line.
    pub(super) fn unsure_wrap(&self) -> bool {
        self.flags & UNSURE_WRAP != 0
    }

    pub(super) fn wrapped(&self) -> bool {
        self.flags & WRAPPED != 0
    }

    /// Returns the runs of style, in order.
    pub(super) fn runs(&self) -> Runs<'a> {
        Runs { bytes: self.runs, style: Style::DEFAULT }
    }

    /// Returns the unpacked line.
    pub(super) fn unpack(&self, styles: &mut Styles, clusters: &mut Clusters) -> Row {
        let has = |flag: u8| self.flags & flag != 0;
        let mut row = Row {
            cells: Vec::new(),
            used: self.used,
            slack: self.slack,
            wrapped: has(WRAPPED),
            extended: has(EXTENDED),
            guessed: has(GUESSED),
            doubtful: has(DOUBTFUL),
            unsure_end: has(UNSURE_END),
            unsure_wrap: has(UNSURE_WRAP),
        };
        for run in self.runs() {
            let style = styles.intern(run.style);
            let kept = |cell: Cell| if run.long { cell.lengthened() } else { cell };
            if run.kind == ASCII {
                row.cells.extend(run.text.iter().map(|byte| kept(Cell::ascii(*byte, style))));
                continue;
            }
            run.cells(|text, width, kind| match kind {
                CLEARED => row.cells.push(kept(Cell::erased(style))),
                PADDING => row.cells.push(kept(Cell::padding(style))),
                TAB => row.cells.push(Cell::tab(width, style)),
                _ => {
                    row.cells.push(cell(text, width as u8, style, clusters));
                    if kind == WIDE {
                        row.cells.push(kept(Cell::PADDING));
                    }
                }
            });
        }
        if row.size() < self.size {
            row.cells.resize(self.size as usize, Cell::CLEARED);
        }
        row
    }
}

/// Makes a cell from its text.
pub(super) fn cell(text: &[u8], width: u8, style: StyleId, clusters: &mut Clusters) -> Cell {
    let single = std::str::from_utf8(text).ok().and_then(|text| {
        let mut characters = text.chars();
        characters.next().filter(|_| characters.next().is_none())
    });
    match single {
        Some(character) => Cell::character(character, width, style),
        None => match Cluster::new(text) {
            Some(cluster) => Cell::cluster(clusters.add(cluster), width, style),
            None => Cell::SPACE,
        },
    }
}

/// The runs of a packed line.
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    style: Style,
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        let (mut tag, mut rest) = self.bytes.split_first()?;
        let long = *tag == LONG;
        if long {
            (tag, rest) = rest.split_first()?;
        }
        self.bytes = rest;
        let kind = tag & KIND;
        let mut background = Style::DEFAULT;
        if tag & STYLED != 0 {
            let style = take_style(&mut self.bytes);
            if kind == PADDING {
                background = style;
            } else {
                self.style = style;
            }
        }
        let count = match tag >> COUNT_SHIFT {
            0 => take(&mut self.bytes),
            small => u32::from(small),
        };
        let length = match kind {
            ASCII => count as usize,
            NARROW | WIDE => {
                let mut length = 0;
                for _ in 0..count {
                    length += char_length(self.bytes.get(length..).unwrap_or_default());
                }
                length
            }
            OTHER => {
                let mut length = 0;
                for _ in 0..count {
                    length += 1 + self.bytes.get(length).map_or(0, |head| usize::from(head >> 2));
                }
                length
            }
            _ => 0,
        };
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        let style = if kind == PADDING { background } else { self.style };
        Some(Run { kind, long, style, count, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(row: &Row, styles: &mut Styles, clusters: &mut Clusters) -> usize {
        let mut bytes = Vec::new();
        pack(row, styles, clusters, &mut bytes);
        let back = Packed::read(&bytes).unpack(styles, clusters);
        assert_eq!((back.used, back.slack, back.wrapped), (row.used, row.slack, row.wrapped));
        assert_eq!(back.cells.is_empty(), row.cells.is_empty());
        for column in 0..row.size() {
            let (was, is) = (row.get(column), back.get(column));
            let mut texts = (Vec::new(), Vec::new());
            append_text(was, clusters, &mut texts.0);
            append_text(is, clusters, &mut texts.1);
            assert_eq!(texts.0, texts.1);
            assert_eq!((was.look(), was.is_long()), (is.look(), is.is_long()));
        }
        bytes.len()
    }

    #[test]
    fn a_packed_line_unpacks_unchanged() {
        let (mut styles, mut clusters) = (Styles::default(), Clusters::default());
        let red = styles.intern(Style { foreground: Colour::rgb(1, 2, 3), attributes: 0x3fff, ..Style::DEFAULT });
        let blue = styles.intern(Style::erased(Colour::palette(200)));
        let cluster = clusters.add(Cluster::new("e\u{301}".as_bytes()).unwrap());
        let mut row = Row::default();
        assert_eq!(round_trip(&row, &mut styles, &mut clusters), 3);
        row.wrapped = true;
        row.set_ascii(0, 80, b"plain text of some length", 0);
        assert!(round_trip(&row, &mut styles, &mut clusters) < 32);
        row.slack = 3;
        row.set_ascii(30, 80, b"red", red);
        row.set(33, 80, Cell::character('漢', 2, red));
        row.set(34, 80, Cell::PADDING);
        row.set(35, 80, Cell::character('─', 1, 0));
        row.set(36, 80, Cell::cluster(cluster, 1, red));
        row.set(37, 80, Cell::PADDING);
        row.set(38, 80, Cell::character('字', 2, 0));
        row.set(39, 80, Cell::SPACE);
        row.set_wide(40, 3, 80, Cell::tab(3, red), Cell::PADDING);
        row.set_wide(43, 2, 80, Cell::character('漢', 2, red), Cell::padding(blue));
        row.set_wide(45, 2, 80, Cell::character('漢', 2, red), Cell::PADDING.lengthened());
        row.set(47, 80, Cell::SPACE.lengthened());
        row.erase(50, 30, 80, Cell::erased(blue), false);
        round_trip(&row, &mut styles, &mut clusters);
        row.used = 10;
        round_trip(&row, &mut styles, &mut clusters);
    }
}
