//! A screen from tmux's report, in the middle of a pane's life.
//!
//! tmux reports the lines with their styles, which of them continue, the cursor, the modes, the
//! region and the tab stops. It does not report the current pen, the state that DECSC saved, the
//! character sets, the character that REP repeats, which lines of the hidden main screen continue,
//! a half-read character, and which cells were only erased: those are unknown until the program
//! sets them (`docs/screen.md`).

use std::fmt::Write as _;

use bytes::Bytes;
use memchr::{memchr, memmem};

use super::{
    Rules, Settings, Size,
    cell::{CLUSTER_BYTES, Cell},
    join::{self, Joined},
    modes::{InputModes, KeptModes, Mouse, Shape},
    packed::cell,
    params::{Param, ParamBuffer, RawParams},
    row::Row,
    sgr,
    style::{Style, attribute},
    terminal::{Pen, SavedCursor, SavedScreen, Terminal, UNTOLD_LAST},
};
use crate::protocol::{command::Command, ids::PaneId};

/// The state of a pane as tmux reports it in one command line (F3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one mode that tmux tells")]
pub struct Seed {
    /// `#{history_limit}`, in lines.
    pub history_limit: u32,
    /// An escape sequence that has begun and not ended.
    pub pending: Bytes,
    /// Joined lines with styles: `capture-pane -e -J -S -`.
    joined: Bytes,
    /// Rows with their used cells: `capture-pane -e -N -S -`, from 3.4 on with `-T`.
    rows: Bytes,
    /// The main screen's rows while the alternate screen is shown.
    main: Bytes,
    /// From 3.4 on, both again, including the cells that exist and are not used.
    whole: Option<[Bytes; 2]>,
    columns: u16,
    height: u16,
    history: u32,
    cursor: (u32, u32),
    alternate: bool,
    saved_cursor: Option<(u32, u32)>,
    region: (u32, u32),
    insert: bool,
    origin: bool,
    wrap: bool,
    visible: bool,
    tabs: Vec<u32>,
    scroll_on_clear: Option<bool>,
    alternate_screen: Option<bool>,
    wide_selectors: Option<bool>,
    other_widths: bool,
    alone: bool,
    input: InputModes,
    /// Whether a paste is bracketed (reported from 3.7 on), and the cursor's shape (from 3.6 on).
    /// While tmux shows one of its own modes, it would report those of that mode; the formats are
    /// empty then.
    paste: Option<bool>,
    shape: Option<Shape>,
    /// The widths of the [`COMMON`] and [`YOUNG`] characters, one digit each.
    widths: Vec<u8>,
}

/// The formats of the third command. The text's seed (`muxtap_tmux::seed`) reads by position the
/// first ten (the tenth is the pane's width), the version and the last; `|` keeps the places of
/// empty ones. The last one may contain any text.
const FORMAT: &str = "#{cursor_x}|#{cursor_y}|#{history_size}|#{pane_height}|#{alternate_on}|#{pane_dead}|\
                      #{pane_dead_status}|#{pane_dead_signal}|#{pane_pid}|#{pane_width}|#{history_limit}|\
                      #{alternate_saved_x}|#{alternate_saved_y}|#{scroll_region_upper}|#{scroll_region_lower}|\
                      #{insert_flag}|#{origin_flag}|#{wrap_flag}|#{cursor_flag}|#{pane_tabs}|\
                      #{scroll-on-clear}|#{alternate-screen}|#{variation-selector-always-wide}|\
                      #{?codepoint-widths,1,0}|#{window_panes}|\
                      #{mouse_standard_flag},#{mouse_button_flag},#{mouse_all_flag},#{mouse_sgr_flag},\
                      #{mouse_utf8_flag},#{keypad_cursor_flag},#{keypad_flag},\
                      #{?pane_in_mode,,#{bracket_paste_flag}},#{?pane_in_mode,,#{cursor_shape}},\
                      #{?pane_in_mode,,#{cursor_blinking}}|";
/// The formats after the widths.
const FORMAT_END: &str = "|#{version}|#{?pane_dead,#{E:remain-on-exit-format},}";

/// The characters whose widths are requested: those on which the usual libraries agree, and those
/// that are new, or wide, in a later Unicode than this crate's.
const COMMON: [char; 8] = ['é', '─', '漢', '😀', '\u{301}', '\u{200b}', '\u{1160}', '\u{e000}'];
const YOUNG: [char; 6] = ['\u{2630}', '\u{268a}', '\u{1f6dc}', '\u{1fae8}', '\u{1fae9}', '\u{1facd}'];

/// Returns the formats of the third command.
fn format(rules: Option<Rules>) -> String {
    let mut format = FORMAT.to_owned();
    if rules.is_some_and(|rules| rules.widths_can_be_asked) {
        for character in COMMON.iter().chain(&YOUNG) {
            let _ = write!(format, "#{{w;l:{character}}}");
        }
    }
    format + FORMAT_END
}

/// Returns the commands whose framed replies [`parse`] reads, with the `\n` that ends their last
/// line. Send them as one request, which makes them atomic (F3).
///
/// The first three also serve a seed of the pane's text: lines joined with their styles, the
/// pending sequence, and formats that begin with those of the text's seed. If the version is not
/// known yet, the commands work with any version, but from 3.4 on a screen from their replies
/// treats cells that were only erased as used.
pub fn question(pane: PaneId, rules: Option<Rules>) -> Vec<Command> {
    let target = pane.to_string();
    let capture = || Command::new("capture-pane").flag("-p");
    let rows = || capture().flag("-e").flag("-N").opt("-S", "-").opt("-t", &target);
    let main = || capture().flag("-e").flag("-N").flag("-a").flag("-q").opt("-t", &target);
    let mut question = vec![
        capture().flag("-e").flag("-J").opt("-S", "-").opt("-t", &target),
        capture().flag("-P").opt("-t", &target),
        Command::new("display-message").flag("-p").opt("-t", &target).format(format(rules)),
    ];
    if rules.is_some_and(|rules| rules.prints_untouched_cells && !rules.joins_untouched_cells) {
        question.extend([rows().flag("-T"), main().flag("-T")]);
    }
    question.extend([rows(), main()]);
    question
}

/// Returns the commands whose framed replies [`parse_shown`] reads: the pane's visible content,
/// without its history and the main screen behind an alternate one. Send them as one request, like
/// those of [`question`].
pub fn question_shown(pane: PaneId, rules: Option<Rules>) -> Vec<Command> {
    let target = pane.to_string();
    let capture = || Command::new("capture-pane").flag("-p");
    vec![
        capture().flag("-e").flag("-J").opt("-t", &target),
        capture().flag("-P").opt("-t", &target),
        Command::new("display-message").flag("-p").opt("-t", &target).format(format(rules)),
        capture().flag("-e").flag("-N").opt("-t", &target),
    ]
}

/// Parses the replies to [`question_shown`]: the seed of a screen without history, and the number
/// of lines in the history.
pub fn parse_shown(parts: &[Bytes]) -> Option<(Seed, u32)> {
    let [joined, pending, fields, rows] = parts else { return None };
    let parts = [joined, pending, fields, rows, &Bytes::new()].map(Clone::clone);
    let seed = parse(&parts)?;
    let history = seed.history;
    Some((Seed { history: 0, ..seed }, history))
}

/// Parses the replies to [`question`], in its order; `None` if they are not such replies.
pub fn parse(parts: &[Bytes]) -> Option<Seed> {
    let ([joined, pending, fields, rows, main], whole) = match parts {
        [joined, pending, fields, rows, main, whole @ ..] => {
            let whole = match whole {
                [] => None,
                [rows, main] => Some([rows.clone(), main.clone()]),
                _ => return None,
            };
            ([joined, pending, fields, rows, main], whole)
        }
        _ => return None,
    };
    let fields = std::str::from_utf8(fields).ok()?.trim_end();
    let fields: Vec<&str> = fields.split('|').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
    let small = |at: usize| number(at).and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    let flag = |at: usize| number(at) == Some(1);
    let option = |at: usize| option_of(fields.get(at));
    let modes: Vec<&str> = fields.get(25).map_or_else(Vec::new, |modes| modes.split(',').collect());
    let mode = |at: usize| option_of(modes.get(at)) == Some(true);
    let input = InputModes {
        mouse: match () {
            () if mode(2) => Mouse::Moves,
            () if mode(1) => Mouse::Drags,
            () if mode(0) => Mouse::Buttons,
            () => Mouse::Off,
        },
        sgr_mouse: mode(3),
        utf8_mouse: mode(4),
        cursor_keys: mode(5),
        keypad: mode(6),
        bracketed_paste: mode(7),
        focus: false,
        blinks: mode(9),
    };
    let saved = |at: usize| number(at).filter(|number| *number != u32::MAX);
    Some(Seed {
        history_limit: number(10)?,
        pending: pending.iter().copied().filter(|byte| *byte >= 0x20 || *byte == 0x1b).collect(),
        joined: joined.clone(),
        rows: rows.clone(),
        main: main.clone(),
        whole,
        columns: small(9)?,
        height: small(3)?,
        history: number(2)?,
        cursor: (number(0)?, number(1)?),
        alternate: flag(4),
        saved_cursor: saved(11).zip(saved(12)),
        region: (number(13)?, number(14)?),
        insert: flag(15),
        origin: flag(16),
        wrap: flag(17),
        visible: flag(18),
        tabs: fields.get(19)?.split(',').filter_map(|stop| stop.parse().ok()).collect(),
        scroll_on_clear: option(20),
        alternate_screen: option(21),
        wide_selectors: option(22),
        other_widths: flag(23),
        alone: number(24) == Some(1),
        input,
        paste: option_of(modes.get(7)),
        shape: modes.get(8).and_then(|shape| match *shape {
            "default" => Some(Shape::Default),
            "block" => Some(Shape::Block),
            "underline" => Some(Shape::Underline),
            "bar" => Some(Shape::Bar),
            _ => None,
        }),
        widths: fields.get(26).map_or(&[][..], |field| field.as_bytes()).to_vec(),
    })
}

/// Parses a flag or an option. One that this tmux does not have is empty.
fn option_of(field: Option<&&str>) -> Option<bool> {
    match field? {
        &"1" | &"on" => Some(true),
        &"0" | &"off" => Some(false),
        _ => None,
    }
}

impl Seed {
    /// Returns the size.
    pub fn size(&self) -> Size {
        Size { columns: self.columns, rows: self.height }
    }

    /// Returns the options that tmux reported; the others come from `settings`.
    pub(super) fn settings(&self, settings: Settings) -> Settings {
        Settings {
            history_limit: self.history_limit,
            scroll_on_clear: self.scroll_on_clear.unwrap_or(settings.scroll_on_clear),
            alternate_screen: self.alternate_screen.unwrap_or(settings.alternate_screen),
            wide_selectors: self.wide_selectors.unwrap_or(settings.wide_selectors),
            other_widths: self.other_widths,
            younger_widths: false,
            alone: self.alone,
        }
    }

    /// Records whether tmux's library counts columns by other tables than this crate.
    fn compare_widths(&self, terminal: &mut Terminal) {
        let differs = |character: char, width: u8| match terminal.width(character) {
            Some(ours) => width != b'0' + ours,
            // A dropped character has no width in tmux.
            None => width == b'2',
        };
        let Some((common, young)) = self.widths.split_at_checked(COMMON.len()) else { return };
        let common = COMMON.iter().zip(common).any(|(character, width)| differs(*character, *width));
        let young = YOUNG.iter().zip(young).any(|(character, width)| differs(*character, *width));
        terminal.settings.other_widths |= common;
        terminal.settings.younger_widths = young;
    }

    /// Restores the modes that tmux does not report from `before`, if the reported ones are
    /// unchanged: then no reset came in between.
    pub(super) fn keep_modes(&self, terminal: &mut Terminal, before: KeptModes) {
        let KeptModes { input: modes, shape } = before;
        let untold = InputModes {
            focus: modes.focus,
            bracketed_paste: self.paste.unwrap_or(modes.bracketed_paste),
            blinks: if self.shape.is_some() { self.input.blinks } else { modes.blinks },
            ..self.input
        };
        let told = InputModes { bracketed_paste: modes.bracketed_paste, blinks: modes.blinks, ..untold };
        if told == modes && self.paste.is_none_or(|paste| paste == modes.bracketed_paste) {
            terminal.modes.input = untold;
            terminal.shape = self.shape.unwrap_or(shape);
        } else {
            terminal.modes.input = self.input;
            terminal.shape = self.shape.unwrap_or_default();
        }
    }

    pub(super) fn fill(&self, terminal: &mut Terminal) -> Option<()> {
        self.compare_widths(terminal);
        let height = usize::from(self.height);
        let total = self.history as usize + height;
        let [whole, whole_main] = match &self.whole {
            Some(whole) => whole.each_ref().map(|text| Some(&text[..])),
            None => [None; 2],
        };
        let mut rows = Lines::new(&self.rows, whole);
        let mut wraps = Wraps::new(&self.joined);
        let mut visible = Vec::with_capacity(height);
        terminal.set_tabs(self.tabs.iter().copied());
        for number in 0..total {
            let (line, mut row) = rows.next(terminal)?;
            (row.wrapped, row.unsure_wrap) = wraps.next(line, rows.rest);
            if terminal.rules.joins_untouched_cells && !row.wrapped {
                row.leave_end_unused();
            }
            if number < self.history as usize {
                terminal.grid.keep(&row);
                terminal.sweep();
            } else {
                visible.push(row);
            }
        }
        if self.alternate {
            let mut main = Lines::new(&self.main, whole_main);
            let rows = (0..height).map(|_| main.next(terminal).map(|(_, row)| row).unwrap_or_default()).collect();
            let keeps = terminal.grid.keeps;
            terminal.saved = Some(SavedScreen { rows, columns: u32::from(self.columns), keeps, seeded: true });
            terminal.grid.keeps = false;
        }
        // tmux restores it whether or not the alternate screen is on.
        terminal.saved_cursor = self.saved_cursor;
        terminal.grid.seeded = true;
        terminal.grid.guesses = visible.iter().any(|row| row.guessed);
        self.forget_untold(terminal, &mut visible);
        terminal.grid.rows = visible.into();
        terminal.grid.scrolled = self.history;
        (terminal.x, terminal.y) = (self.cursor.0, self.cursor.1.min(u32::from(self.height) - 1));
        let last = u32::from(self.height) - 1;
        (terminal.upper, terminal.lower) = (self.region.0.min(last), self.region.1.min(last));
        if terminal.upper > terminal.lower {
            return None;
        }
        terminal.modes.insert = self.insert;
        terminal.modes.origin = self.origin;
        terminal.modes.wrap = self.wrap;
        terminal.modes.cursor = self.visible;
        terminal.modes.input = self.input;
        terminal.shape = self.shape.unwrap_or_default();
        Some(())
    }

    /// Records the state that tmux did not report.
    fn forget_untold(&self, terminal: &mut Terminal, visible: &mut [Row]) {
        let rules = terminal.rules;
        let pen = Pen::untold(rules);
        terminal.pen = pen;
        terminal.decsc = SavedCursor { pen, untold: true, ..SavedCursor::default() };
        (terminal.saved_style, terminal.saved_other) = (pen.style, pen.other);
        terminal.last = Some(UNTOLD_LAST);
        if let Some(last) = visible.last_mut() {
            last.unsure_wrap = true;
        }
        if self.whole.is_none() && !rules.prints_untouched_cells {
            // After the used cells, some may have been erased with a background.
            for row in visible {
                row.cells.resize(row.cells.len().max(usize::from(self.columns)), Cell::UNTOLD);
                row.unsure_end = true;
            }
        }
    }
}

/// Returns the first line and the text after it.
fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b'\n', text).and_then(|end| text.split_at_checked(end)) {
        Some((line, rest)) => (line, rest.get(1..).unwrap_or_default()),
        None => (text, &[]),
    }
}

/// Determines which rows continue in the next one: the joined lines are the rows without the line
/// ends between them.
struct Wraps<'a> {
    joined: &'a [u8],
    lost: bool,
    /// Whether this row continues, or one of the empty ones above it.
    unsure: bool,
}

impl<'a> Wraps<'a> {
    fn new(joined: &'a [u8]) -> Self {
        Self { joined, lost: false, unsure: false }
    }

    /// Returns whether a row continues, and whether that is a guess; `rows` are those after it.
    fn next(&mut self, line: &[u8], rows: &[u8]) -> (bool, bool) {
        let Some(rest) = self.joined.strip_prefix(line).filter(|_| !self.lost) else {
            self.lost = true;
            return (false, true);
        };
        self.joined = rest;
        self.unsure &= line.is_empty();
        let ends = |text: &[u8]| text.iter().take_while(|byte| **byte == b'\n').count();
        match rest.split_first() {
            None => (false, self.unsure),
            Some((b'\n', after)) => {
                // If empty rows follow, one line end too few shows that some row continues: this
                // one, or an empty one. tmux prints both cases alike.
                if ends(rest) <= ends(rows) {
                    self.unsure = true;
                    return (true, true);
                }
                self.joined = after;
                (false, self.unsure)
            }
            Some(_) => (true, false),
        }
    }
}

/// The lines of a capture one by one, and the same lines with the cells that exist and are not
/// used.
struct Lines<'a> {
    rest: &'a [u8],
    reader: Reader,
    whole: Option<(&'a [u8], Reader)>,
}

impl<'a> Lines<'a> {
    fn new(rest: &'a [u8], whole: Option<&'a [u8]>) -> Self {
        Self { rest, reader: Reader::default(), whole: whole.map(|text| (text, Reader::default())) }
    }

    /// Returns the next line and its row; `None` after the last.
    fn next(&mut self, terminal: &mut Terminal) -> Option<(&'a [u8], Row)> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, after) = split_line(self.rest);
        self.rest = after;
        let mut row = self.reader.row(terminal, line);
        if let Some((rest, reader)) = &mut self.whole {
            let (line, after) = split_line(rest);
            *rest = after;
            let whole = reader.row(terminal, line);
            let unused = whole.cells.get(row.cells.len()..).unwrap_or_default();
            row.cells.extend(unused.iter().map(|cell| Cell::erased(cell.style())));
            row.doubtful |= whole.doubtful;
            row.extended |= whole.extended;
        }
        Some((line, row))
    }
}

/// Parses lines with escape sequences, as `capture-pane -e` prints them.
#[derive(Default)]
struct Reader {
    style: Style,
    line_drawing: bool,
    /// Whether a link ended, if more follows in this line. At a line's end, tmux prints that in any
    /// case.
    unlinked: bool,
}

impl Reader {
    fn row(&mut self, terminal: &mut Terminal, line: &[u8]) -> Row {
        let mut row = Row::default();
        self.unlinked = false;
        let mut rest = line;
        let mut id = self.id(terminal);
        let mut joined = false;
        while let Some(&byte) = rest.first() {
            if self.unlinked && byte != 0x1b {
                self.unlinked = false;
                self.style.link = 0;
                id = self.id(terminal);
            }
            let run = rest.iter().position(|byte| !(0x20..0x7f).contains(byte)).unwrap_or(rest.len());
            if run > 0 {
                let (text, after) = rest.split_at(run);
                row.cells.extend(text.iter().map(|byte| Cell::ascii(*byte, id)));
                rest = after;
                joined = false;
                continue;
            }
            match byte {
                0x1b => {
                    rest = self.escape(terminal, rest.get(1..).unwrap_or_default());
                    id = self.id(terminal);
                }
                b'\t' => {
                    let column = row.size();
                    let last = terminal.columns().saturating_sub(1);
                    let stop = (column + 1..last).find(|at| terminal.is_tab(*at)).unwrap_or(last);
                    let width = stop.saturating_sub(column).clamp(1, 32);
                    row.cells.push(Cell::tab(width, id));
                    let padding = terminal.padding(id);
                    row.cells.resize((column + width) as usize, padding);
                    row.guessed = true;
                    rest = rest.get(1..).unwrap_or_default();
                    joined = false;
                }
                0x0e | 0x0f => {
                    self.line_drawing = byte == 0x0e;
                    id = self.id(terminal);
                    rest = rest.get(1..).unwrap_or_default();
                }
                _ => {
                    let length = character_length(rest);
                    let (text, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
                    rest = after;
                    joined = character(terminal, &mut row, text, id, joined);
                }
            }
        }
        row.used = row.size();
        row.extended = row.cells.iter().any(|cell| cell.is_long());
        // A line that extends past the screen has tabs that are narrower.
        row.doubtful = row.used > terminal.columns();
        // tmux reports neither the position of cut wide characters nor the number of cells of
        // marks.
        row.guessed |= row.cells.iter().any(|cell| cell.is_padding() || cell.is_cluster() || cell.width() != 1);
        row
    }

    fn id(&self, terminal: &mut Terminal) -> u32 {
        let set = if self.line_drawing { attribute::CHARSET } else { 0 };
        terminal.grid.styles.intern(Style { attributes: self.style.attributes | set, ..self.style })
    }

    /// Parses a sequence after its `ESC` and returns the text after it.
    fn escape<'b>(&mut self, terminal: &mut Terminal, text: &'b [u8]) -> &'b [u8] {
        if let Some(link) = text.strip_prefix(b"]8;") {
            let end = memmem::find(link, b"\x1b\\").unwrap_or(link.len());
            let said = link.get(..end).unwrap_or_default();
            self.unlinked = said == b";";
            if !self.unlinked {
                let address = memchr(b';', said).and_then(|at| said.get(at + 1..)).unwrap_or_default();
                self.style.link = terminal.links.number(address);
            }
            return link.get(end + 2..).unwrap_or_default();
        }
        let Some(sequence) = text.strip_prefix(b"[") else { return text.get(1..).unwrap_or_default() };
        let end = sequence.iter().position(|byte| (0x40..0x7f).contains(byte)).unwrap_or(sequence.len());
        let (params, rest) = sequence.split_at_checked(end).unwrap_or((sequence, &[]));
        let mut collected = RawParams::default();
        for byte in params {
            collected.param(*byte);
        }
        let mut room = ParamBuffer::default();
        if rest.first() == Some(&b'm')
            && let Some(params) = collected.split(&mut room)
        {
            if params.len() == 0 {
                self.style = Style { link: self.style.link, ..Style::DEFAULT };
            }
            sgr::apply(&mut self.style, params);
            // tmux prints an overline's 53 in two parts, but does not parse that form itself.
            if (0..params.len()).any(|at| params.at(at) == Param::Parts(b"5:3")) {
                self.style.attributes |= attribute::OVERLINE;
            }
        }
        rest.get(1..).unwrap_or_default()
    }
}

/// Adds a character; returns true if the next one joins it in any case.
fn character(terminal: &mut Terminal, row: &mut Row, text: &[u8], style: u32, joined: bool) -> bool {
    let Some(character) = std::str::from_utf8(text).ok().and_then(|text| text.chars().next()) else {
        // A would-be character beyond U+10FFFF is kept from 3.4 on.
        row.cells.push(cell(text, 1, style, terminal.clusters()));
        return joined;
    };
    let rules = terminal.rules;
    let by_kind = rules.joins_by_kind;
    let joiner = character == join::JOINER;
    terminal.note_width(character);
    let width = terminal.width(character).unwrap_or_default();
    let before = row.cells.iter_mut().rfind(|cell| !cell.is_padding());
    if width == 0 && before.as_ref().is_some_and(|before| before.style() != style) {
        // A mark that did not fit into a cluster: a joined one looks like the cluster.
        row.cells.push(cell(text, 0, style, terminal.clusters()));
        return false;
    }
    if let Some(slot) = before {
        let mut whole = Vec::with_capacity(CLUSTER_BYTES + 4);
        super::cell::append_text(*slot, &terminal.grid.clusters, &mut whole);
        let before = slot.width() as u8;
        let together = if by_kind {
            let zero = width == 0 || joiner || character == join::SELECTOR;
            let selects = character != join::SELECTOR || terminal.settings.wide_selectors;
            match join::joined(&whole, before, character, zero, rules) {
                Joined::With { wide } => Some(if wide && selects { 2 } else { before }),
                Joined::Alone | Joined::Dropped => None,
            }
        } else {
            (joined || joiner || width == 0).then_some(before)
        };
        whole.extend_from_slice(text);
        if let Some(width) = together.filter(|_| whole.len() <= rules.cluster_bytes()) {
            *slot = cell(&whole, width, slot.style(), terminal.clusters());
            if width > before {
                row.cells.push(terminal.padding(style));
            }
            return joiner && rules.joiners_wait;
        }
        if width == 0 && together.is_some() && by_kind && !rules.drops_what_has_no_room {
            // A mark that did not fit into the cluster is a cell of its own.
            row.cells.push(cell(text, 0, style, terminal.clusters()));
            return false;
        }
    }
    if width == 0 {
        return false;
    }
    row.cells.push(Cell::character(character, width, style));
    if width == 2 {
        row.cells.push(terminal.padding(style));
    }
    false
}

/// Returns the number of bytes of the character at the start.
fn character_length(text: &[u8]) -> usize {
    match text.first() {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{CaptureOptions, Line, Rules, Screen, Settings, Trouble},
        *,
    };
    use crate::protocol::version::Version;

    /// Returns the replies that tmux would send about a screen.
    fn answers(screen: &Screen, columns: u16, height: u16) -> Vec<Bytes> {
        let all = CaptureOptions { start: Line::Edge, escapes: true, ..CaptureOptions::default() };
        let cursor = screen.cursor();
        let history = screen.history_size();
        let (saved_x, saved_y) = screen.terminal.saved_cursor.unwrap_or((u32::MAX, u32::MAX));
        let fields = format!(
            "{}|{}|{history}|{height}|0|0|||7|{columns}|2000|{saved_x}|{saved_y}|0|{}|0|0|1|1|8,16\n",
            cursor.column,
            cursor.row,
            height - 1
        );
        [
            screen.capture(&CaptureOptions { join: true, ..all }),
            b"\x1b[3\n".to_vec(),
            fields.into_bytes(),
            screen.capture(&CaptureOptions { trailing: true, ..all }),
            b"\n".to_vec(),
        ]
        .map(Bytes::from)
        .into()
    }

    #[test]
    fn a_screen_is_restored_from_its_seed() {
        let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
        let mut screen = Screen::new(Size { columns: 20, rows: 4 }, rules, Settings::default());
        screen
            .feed("plain\r\n\x1b[31;4:3mred\x1b[0m  \x1b[53mover\x1b[m\r\n漢字e\u{301}\x1b(0lqk\x1b(B\r\n".as_bytes());
        screen.feed(b"a line that is longer than the screen is wide\r\nlast");
        let mut again =
            Screen::from_seed(&parse(&answers(&screen, 20, 4)).unwrap(), rules, Settings::default()).unwrap();
        for (join, escapes, trailing) in [(false, false, false), (true, true, false), (false, true, true)] {
            let options = CaptureOptions { start: Line::Edge, join, escapes, trailing, ..CaptureOptions::default() };
            assert_eq!(
                again.capture(&options).escape_ascii().to_string(),
                screen.capture(&options).escape_ascii().to_string()
            );
        }
        assert_eq!((again.cursor(), again.history_size()), (screen.cursor(), screen.history_size()));
        assert!(!again.at_rest());
        again.feed(b"1mX");
        screen.feed(b"\x1b[31mX");
        let styled = CaptureOptions { escapes: true, ..CaptureOptions::default() };
        assert_eq!(again.capture(&styled), screen.capture(&styled));
    }

    /// tmux moves the cursor to where the alternate screen was once entered, also if it is not on.
    #[test]
    fn what_leaving_the_alternate_screen_restores_comes_back() {
        let rules = Rules::for_version(Version::parse(b"3.5a").unwrap());
        let mut screen = Screen::new(Size { columns: 12, rows: 3 }, rules, Settings::default());
        screen.feed(b"\x1b[3;5H\x1b[44m\x1b[?1049h\x1b[?1049l\x1b[m\x1b[Hhome");
        let mut again =
            Screen::from_seed(&parse(&answers(&screen, 12, 3)).unwrap(), rules, Settings::default()).unwrap();
        let mut informed = again.clone();
        informed.take_stream_state(&screen, true);
        for screen in [&mut screen, &mut again, &mut informed] {
            screen.feed(b"\x1b[?1049lX");
        }
        let plain = CaptureOptions::default();
        assert_eq!(screen.capture(&plain).escape_ascii().to_string(), r"home\n\n    X\n");
        assert_eq!(again.capture(&plain), screen.capture(&plain));
        let styled = CaptureOptions { escapes: true, ..plain };
        assert_eq!(informed.known(&styled), screen.known(&styled));
        assert!(screen.known(&styled).is_some());
        // The seed does not tell its color.
        assert!(again.is_unsure() && !informed.is_unsure());
    }

    /// A row that wrapped when the screen was narrower.
    #[test]
    fn a_row_that_goes_on_and_is_not_full_comes_back() {
        let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
        let settings = Settings { history_limit: 0, ..Settings::default() };
        let mut screen = Screen::new(Size { columns: 1, rows: 1 }, rules, settings);
        screen.feed(b"*s");
        screen.resize(Size { columns: 8, rows: 4 });
        let again = Screen::from_seed(&parse(&answers(&screen, 8, 4)).unwrap(), rules, Settings::default()).unwrap();
        let joined = CaptureOptions { join: true, ..CaptureOptions::default() };
        assert_eq!(screen.capture(&joined).escape_ascii().to_string(), r"s\n\n\n");
        assert_eq!(again.capture(&joined), screen.capture(&joined));
    }

    #[test]
    fn cells_that_are_not_used_come_back_too() {
        let rules = Rules::for_version(Version::parse(b"3.5a").unwrap());
        let fields = "2|1|0|2|0|0|||7|8|2000|4294967295|4294967295|0|1|0|0|1|1|\n";
        let parts = [
            "a\x1b[41mb\n\x1b[49m\x1b]8;;x\x1b\\li\x1b]8;;\x1b\\\n",
            "\n",
            fields,
            "a\x1b[41mb\n\x1b[49m\x1b]8;;x\x1b\\li\x1b]8;;\x1b\\\n",
            "\n",
            "a\x1b[41mb      \n\x1b[49m\x1b]8;;x\x1b\\li\x1b]8;;\x1b\\  \n",
            "\n",
        ];
        let seed = parse(&parts.map(|part| Bytes::copy_from_slice(part.as_bytes()))).unwrap();
        let screen = Screen::from_seed(&seed, rules, Settings::default()).unwrap();
        let line = |number, escapes, join, trailing| {
            let line = Line::At(number);
            let options = CaptureOptions { start: line, end: line, escapes, join, trailing };
            screen.known(&options).map(|text| text.escape_ascii().to_string())
        };
        assert_eq!(line(0, true, false, false).as_deref(), Some("a\\x1b[41mb\\n"));
        assert_eq!(line(0, false, false, true).as_deref(), Some("ab      \\n"));
        assert_eq!(line(0, false, true, false).as_deref(), Some("ab\\n"));
        assert_eq!(line(1, true, false, false), None);
        assert_eq!(line(1, false, false, true).as_deref(), Some("li  \\n"));
    }

    #[test]
    fn where_the_pen_is_not_known_cells_may_exist() {
        let rules = Rules::for_version(Version::parse(b"3.5a").unwrap());
        let seeded = |text: &str, x: u32, output: &str| {
            let fields = format!("{x}|0|0|2|0|0|||7|20|2000|4294967295|4294967295|0|1|0|0|1|1|\n");
            let parts = [text, "\n", &fields, text, "\n", text, "\n"];
            let seed = parse(&parts.map(|part| Bytes::copy_from_slice(part.as_bytes()))).unwrap();
            let mut screen = Screen::from_seed(&seed, rules, Settings::default()).unwrap();
            // The character sets are reported; without them, the number of existing cells is
            // unknown as well.
            screen.feed(b"\x1b(B\x0f");
            screen.feed(output.as_bytes());
            let whole = CaptureOptions { trailing: true, ..CaptureOptions::default() };
            (screen.known(&CaptureOptions::default()).is_some(), screen.known(&whole).is_some())
        };
        assert_eq!(seeded("a    \n\n", 1, "b"), (true, true));
        assert_eq!(seeded("a    \n\n", 1, "b\r\n\nc"), (true, false), "a line came in");
        assert_eq!(seeded("a    \n\n", 1, "\x1b[K"), (true, false));
        assert_eq!(seeded("a    \n\n", 1, "\x1b[1mb\r\n\nc"), (true, false));
        assert_eq!(seeded("a    \n\n", 1, "\x1b[1;49mb\r\n\nc"), (true, true));
        assert_eq!(seeded("a    \n\n", 1, "\x1b[mb\r\n\nc"), (true, true));
        assert_eq!(seeded("a    \n\n", 1, "\x1b[m\x1b8\x1b[2J"), (true, false), "what DECSC kept");
        assert_eq!(seeded("\n\n", 0, "b\r\n\nc"), (true, false), "a colour is set before what it is for");
    }

    /// Returns a screen of two rows as a version of tmux reports it, with its cursor after the
    /// text.
    fn reported(version: &str, text: &str, column: u32) -> Screen {
        let rules = Rules::for_version(Version::parse(version.as_bytes()).unwrap());
        let fields = format!("{column}|0|0|2|0|0|||7|20|2000|4294967295|4294967295|0|1|0|0|1|1||\n");
        let text = format!("{text}\n\n");
        let whole = rules.prints_untouched_cells && !rules.joins_untouched_cells;
        let parts =
            [&text, "\n", &fields, &text, "\n", &text, "\n"].map(|part| Bytes::copy_from_slice(part.as_bytes()));
        let count = if whole { 7 } else { 5 };
        Screen::from_seed(&parse(&parts[..count]).unwrap(), rules, Settings::default()).unwrap()
    }

    fn styled(screen: &Screen) -> Option<String> {
        let options = CaptureOptions { escapes: true, ..CaptureOptions::default() };
        screen.known(&options).map(|text| text.escape_ascii().to_string())
    }

    #[test]
    fn state_missing_from_a_seed_is_unknown_until_it_is_set() {
        for version in ["3.2a", "3.3a", "3.4", "3.5a", "3.6b", "3.7c", "3.8"] {
            let after = |output: &str| {
                let mut screen = reported(version, "ab", 2);
                assert_eq!(styled(&screen).as_deref(), Some("ab\\n\\n"), "{version}");
                screen.feed(output.as_bytes());
                let plain = screen.known(&CaptureOptions::default());
                assert_eq!(plain.as_deref(), Some(&b"abc\n\n"[..]), "{version} {output:?}");
                assert_eq!(screen.trusted(), Ok(()));
                styled(&screen).is_some()
            };
            // From 3.4 on the pen has a link, which SGR 0 does not end.
            let link = "\x1b]8;;\x07";
            assert!(!after("c"), "{version}");
            assert!(after(&format!("{link}\x1b[m\x0f\x1b(Bc")), "{version}");
            assert!(after(&format!("{link}\x0f\x1b(B\x1b[39;49;59;22;23;24;25;27;28;29;55mc")), "{version}");
            assert!(after(&format!("{link}\x1b[m\x1b(B\x1b)Bc")), "both sets are the same: {version}");
            assert!(!after(&format!("{link}\x1b[m\x1b(Bc")), "which set is in use: {version}");
            assert!(!after(&format!("{link}\x1b[m\x0fc")), "what G0 is: {version}");
            assert!(!after(&format!("{link}\x1b[1;31;44m\x0f\x1b(Bc")), "the other attributes: {version}");
            assert_eq!(after("\x1b[m\x0f\x1b(Bc"), ["3.2a", "3.3a"].contains(&version), "{version}");
        }
    }

    #[test]
    fn cells_behind_the_used_ones_may_have_been_erased_with_a_background_in_3_3() {
        let mut screen = reported("3.3a", "ab", 2);
        screen.feed(b"\x1b[m\x0f\x1b(B\x1b[1;5Hc");
        assert_eq!(styled(&screen), None);
        screen.feed(b"\x1b[1;3H  ");
        assert!(styled(&screen).is_some_and(|text| text.starts_with("ab  c")));
    }

    #[test]
    fn a_line_with_cells_of_unknown_widths_is_not_known_once_it_changes() {
        for text in ["漢b", "e\u{301}b"] {
            let mut screen = reported("3.3a", text, 3);
            assert!(screen.known(&CaptureOptions::default()).is_some());
            screen.feed(b"\x1b[2;1Hx");
            assert!(screen.known(&CaptureOptions::default()).is_some(), "another line");
            screen.feed(b"\x1b[1;4Hx");
            assert!(screen.known(&CaptureOptions::default()).is_none() && screen.is_unsure());
            screen.feed(b"\x1b[2K");
            assert!(screen.known(&CaptureOptions::default()).is_some());
        }
    }

    #[test]
    fn what_goes_on_from_what_no_seed_tells_is_not_trusted() {
        for output in ["\x1b[2b", "\x1b8", "\x1b[u"] {
            let mut screen = reported("3.5a", "ab", 2);
            screen.feed(output.as_bytes());
            assert_eq!(screen.trusted(), Err(Trouble::Untold), "{output:?}");
        }
        for cut in [&b"\xa9"[..], b"\x82\xac", b"\x9f\x98\x80x"] {
            let mut screen = reported("3.5a", "ab", 2);
            assert!(screen.begins_within_character(cut));
            screen.feed(cut);
            assert_eq!(screen.trusted(), Err(Trouble::Untold), "{cut:?}");
        }
    }

    #[test]
    fn what_another_library_counts_otherwise_is_not_known() {
        let asks = |version: Option<&str>| {
            let rules = version.map(|version| Rules::for_version(Version::parse(version.as_bytes()).unwrap()));
            format(rules).contains("#{w;l:漢}")
        };
        assert!(asks(Some("3.4")));
        // 3.3a never returns from a character without a width.
        assert!(!asks(Some("3.3a")) && !asks(None));
        let rules = Rules::for_version(Version::parse(b"3.5a").unwrap());
        let known = |widths: &str, output: &str| {
            let fields = format!("0|0|0|2|0|0|||7|8|2000|||0|1|0|0|1|1||||||1||{widths}|3.5a|\n");
            let parts = ["\n\n", "\n", &fields, "\n\n", "\n", "\n\n", "\n"];
            let seed = parse(&parts.map(|part| Bytes::copy_from_slice(part.as_bytes()))).unwrap();
            let mut screen = Screen::from_seed(&seed, rules, Settings::default()).unwrap();
            screen.feed(output.as_bytes());
            screen.known(&CaptureOptions::default()).is_some()
        };
        assert!(known("11220001111111", "\u{2630}\u{1fae9}"));
        assert!(known("", "\u{2630}"));
        assert!(known("11220001221122", "é漢"), "a later Unicode");
        assert!(!known("11220001221122", "\u{1fae9}"));
        assert!(!known("11120001111111", ""), "another library");
    }

    #[test]
    fn modes_are_restored_as_far_as_tmux_reports_them() {
        let rules = Rules::for_version(Version::parse(b"3.5a").unwrap());
        let seeded = |modes: &str| {
            let fields = format!("0|0|0|2|0|0|||7|8|2000|||0|1|0|0|1|1||||||1|{modes}||3.5a|\n");
            let parts = ["\n\n", "\n", &fields, "\n\n", "\n", "\n\n", "\n"];
            parse(&parts.map(|part| Bytes::copy_from_slice(part.as_bytes()))).unwrap()
        };
        let screen = |modes: &str| Screen::from_seed(&seeded(modes), rules, Settings::default()).unwrap();
        let modes = screen("0,0,1,1,0,1,0,1,bar,1").modes();
        assert_eq!((modes.mouse.number(), modes.sgr_mouse, modes.cursor_keys, modes.keypad), (1003, true, true, false));
        assert_eq!((modes.bracketed_paste, modes.cursor_shape, modes.focus), (true, 5, false));
        assert_eq!(screen("1,0,0,0,0,0,0,,,").modes().mouse.number(), 1000);
        assert_eq!(screen("").modes(), Screen::new(screen("").size(), rules, Settings::default()).modes());
        // Modes that a later reply omits stay, unless the reported ones show that all were reset.
        let mut before = screen("");
        before.feed(b"\x1b[?1;2004;1004h\x1b[4 q");
        let after = |modes: &str| {
            let mut screen = before.clone();
            screen.take_modes(&seeded(modes), Some(before.kept_modes()));
            screen.modes()
        };
        let same = after("0,0,0,0,0,1,0,,,");
        assert_eq!((same.cursor_keys, same.bracketed_paste, same.focus, same.cursor_shape), (true, true, true, 4));
        let reset = after("0,0,0,0,0,0,0,,,");
        assert_eq!(
            (reset.cursor_keys, reset.bracketed_paste, reset.focus, reset.cursor_shape),
            (false, false, false, 0)
        );
        assert!(!after("0,0,0,0,0,1,0,0,,").bracketed_paste);
    }

    #[test]
    fn an_answer_that_is_something_else_is_none() {
        assert_eq!(parse(&[]), None);
        let parts = ["", "", "1|2", "", ""].map(|part| Bytes::copy_from_slice(part.as_bytes()));
        assert_eq!(parse(&parts), None);
    }
}
