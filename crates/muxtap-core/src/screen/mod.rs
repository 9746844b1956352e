//! The screen model: the content of tmux's grid, from a pane's output alone, which answers
//! `capture-pane` from memory.
//!
//! This module is pure like [`crate::stream`]: no sockets, no clocks, no tasks. It follows tmux's
//! own grid, not a terminal in general. `docs/screen.md` lists the invariants (S1…) and the
//! measurements.

mod capture;
mod cell;
mod changes;
mod csi;
mod cursor;
mod erase;
mod grid;
mod history;
mod join;
mod links;
mod modes;
mod packed;
mod params;
mod parser;
mod redrawn;
mod repaint;
mod resize;
mod row;
pub mod rules;
mod runs;
pub mod seed;
mod sgr;
pub mod style;
mod terminal;
mod utf8;
mod write;

pub use capture::{CaptureOptions, Line};
pub use changes::Changes;
pub use modes::{KeptModes, Modes, Mouse};
pub use redrawn::redrawn;
pub use rules::{Proof, Rules};
pub use runs::{HistoryLines, RowRuns, Run, RunKind};
pub use seed::Seed;

use serde::{Deserialize, Serialize};

pub(crate) use params::{NO_NUMBERS, read as read_params};
pub(crate) use terminal::Terminal;

use parser::Parser;

/// The size of a screen: at least one column and one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// The number of characters in a row.
    pub columns: u16,
    /// The number of rows.
    pub rows: u16,
}

/// tmux's options that affect the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is one option")]
pub struct Settings {
    /// `history-limit` at the pane's creation: lines; 0 keeps none.
    pub history_limit: u32,
    /// `scroll-on-clear`: cleared lines go into history.
    pub scroll_on_clear: bool,
    /// `alternate-screen`: programs may use it.
    pub alternate_screen: bool,
    /// `variation-selector-always-wide`: U+FE0F widens the character before it. From 3.6 on.
    pub wide_selectors: bool,
    /// Whether `codepoint-widths` is set, or tmux counts columns by other tables: then no capture
    /// is known.
    pub other_widths: bool,
    /// Whether tmux counts columns by a later Unicode than this crate: captures are not known after
    /// a character whose width may differ there.
    pub younger_widths: bool,
    /// Whether the pane is the only one in its window.
    pub alone: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            history_limit: 2000,
            scroll_on_clear: true,
            alternate_screen: true,
            wide_selectors: true,
            other_widths: false,
            younger_widths: false,
            alone: true,
        }
    }
}

/// The cursor, in tmux's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The column, counted from 0 at the left; the number of columns if the next character wraps.
    pub column: u32,
    /// The row, counted from 0 at the top.
    pub row: u32,
    /// Whether the cursor is visible.
    pub visible: bool,
}

/// A reason for which the model cannot follow the screen exactly from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// The program began an OSC, DCS or the like and did not end it; tmux gives up on it after five
    /// seconds, and treats the bytes after it as text. This reason ends with the string, or with
    /// [`Screen::give_up`].
    OpenString,
    /// A resize moved the cursor to a place where tmux's own arithmetic leaves the grid. Lasts
    /// until the screen is rebuilt.
    CursorLost,
    /// The program drew a sixel image. The cursor's new place depends on the size of the client's
    /// characters. Lasts until the screen is rebuilt.
    Image,
    /// The program repeated line drawing (REP), in which builds of 3.5 differ. Lasts until the
    /// screen is rebuilt.
    Build,
    /// A character became wide, and the cursor's new place depends on the panes beside this one.
    /// Lasts until the screen is rebuilt.
    Layout,
    /// A joiner (U+200D) joined the next character in 3.3, which forgets the joiner at the end of a
    /// read; the stream does not show where reads end. Lasts until the screen is rebuilt.
    Reads,
    /// The program relied on state that no seed reports: the character that REP repeats, the state
    /// that DECSC saved, the start of a character of which only the end arrived, a main screen that
    /// was hidden. Lasts until the screen is rebuilt.
    Untold,
}

/// A model of a pane's grid in tmux.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Screen {
    parser: Parser,
    terminal: Terminal,
    /// Whether no output came since the seed: the first bytes may be the end of a character.
    seeded: bool,
}

impl Screen {
    /// Makes an empty screen, like that of a new pane.
    pub fn new(size: Size, rules: Rules, settings: Settings) -> Self {
        Self { parser: Parser::default(), terminal: Terminal::new(size, rules, settings), seeded: false }
    }

    /// Makes a screen from tmux's replies to [`seed::question`]; `None` if the replies are not
    /// consistent.
    pub fn from_seed(seed: &Seed, rules: Rules, settings: Settings) -> Option<Self> {
        let mut screen = Self::new(seed.size(), rules, seed.settings(settings));
        seed.fill(&mut screen.terminal)?;
        screen.feed(&seed.pending);
        screen.take_changes();
        screen.seeded = seed.pending.is_empty();
        Some(screen)
    }

    /// Applies the modes that tmux reported. A mode that tmux does not report is taken from
    /// `before` if it was not reset since; otherwise it is that of a new pane.
    pub fn take_modes(&mut self, seed: &Seed, before: Option<KeptModes>) {
        seed.keep_modes(&mut self.terminal, before.unwrap_or_default());
    }

    /// Returns the modes to pass to [`Screen::take_modes`].
    pub fn kept_modes(&self) -> KeptModes {
        KeptModes { input: self.terminal.modes.input, shape: self.terminal.shape }
    }

    /// Takes over the state that a seed omits and the stream showed: a half-read character, and, if
    /// nothing can have reset it, the pen. `before` is the screen that was fed with the stream so
    /// far.
    pub fn take_stream_state(&mut self, before: &Screen, pen: bool) {
        self.terminal.take_stream_state(&before.terminal, pen);
        // The stream shows whether a character has begun.
        self.seeded &= before.seeded;
    }

    /// Takes over the parser's state from `before`: the stream shows whether a sequence is open.
    /// tmux still reports a string that it has given up.
    pub fn take_parser(&mut self, before: &Self) {
        self.parser = before.parser.clone();
    }

    /// Gives the history's lines the numbers from a screen with a history of the same length.
    pub fn take_numbers(&mut self, before: &Self) {
        self.terminal.grid.history.take_numbers(&before.terminal.grid.history);
    }

    /// Processes output of the pane. How the output is split into pieces changes nothing.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.seeded {
            self.begin(bytes);
        }
        self.parser.feed(bytes, &mut self.terminal);
    }

    /// Returns the terminal if nothing is open and no first output after a seed is expected.
    #[inline]
    pub(crate) fn terminal_at_rest(&mut self) -> Option<&mut Terminal> {
        (!self.seeded && self.at_rest()).then_some(&mut self.terminal)
    }

    /// Executes an OSC that arrived complete, while the terminal is at rest.
    pub(crate) fn take_osc(&mut self, text: &[u8]) {
        self.parser.whole_osc(text, &mut self.terminal);
    }

    /// Processes the first output after a seed. If it begins in the middle of a character, tmux has
    /// read the start of that character and does not report it.
    #[cold]
    fn begin(&mut self, bytes: &[u8]) {
        let is_end = |byte: &u8| (0x80..=0xbf).contains(byte);
        // Another seed may fall into the same character.
        self.seeded = bytes.iter().all(is_end);
        if bytes.first().is_some_and(is_end) {
            self.terminal.trouble = Some(Trouble::Untold);
        }
    }

    /// Returns whether this output, the first after a seed, begins in the middle of a character.
    /// tmux has read the start of that character and does not report it.
    pub fn begins_within_character(&self, output: &[u8]) -> bool {
        self.seeded && matches!(output.first(), Some(0x80..=0xbf))
    }

    /// Returns whether cells that were printed or erased since the seed may differ in tmux, because
    /// the seed omitted state that affects them. Another seed resolves this.
    pub fn is_unsure(&self) -> bool {
        let grid = &self.terminal.grid;
        grid.unsure || grid.guesses && grid.rows.iter().any(|row| row.doubtful)
    }

    /// Records that state which a seed omits may have changed without the stream: the pen, the
    /// character sets, the state that DECSC saved.
    pub fn forget_pen(&mut self) {
        self.terminal.forget_pen();
    }

    /// Records that tmux read all bytes so far before any later ones: the pane rested, or a
    /// command's reply arrived.
    ///
    /// At the end of each read, tmux forgets that a joiner (U+200D) came last, and the stream does
    /// not show where reads ended. Without this call, a joiner joins the next character even if
    /// that comes much later.
    pub fn read_ended(&mut self) {
        self.terminal.run = None;
        self.terminal.joined = false;
    }

    /// Returns the number of the open string: another number means another string.
    pub fn open_string(&self) -> Option<u64> {
        self.parser.string()
    }

    /// Gives up an open string, as tmux does five seconds after it began, between two reads: the
    /// string so far has no effect, the pen becomes that of a new pane, and the next bytes are
    /// text. Returns whether a string was open.
    pub fn give_up(&mut self) -> bool {
        self.parser.give_up(&mut self.terminal)
    }

    /// Resizes the pane from here on.
    pub fn resize(&mut self, size: Size) {
        self.read_ended();
        let reflow = self.terminal.saved.is_none();
        self.terminal.resize(u32::from(size.columns), u32::from(size.rows), reflow);
    }

    /// Clears the history, as `clear-history` does.
    pub fn clear_history(&mut self) {
        self.terminal.grid.clear_history();
    }

    /// Resets the terminal, as `send-keys -R` does.
    pub fn reset(&mut self) {
        self.read_ended();
        self.terminal.reset();
        self.parser = Parser::default();
    }

    /// Returns the exact bytes that `tmux capture-pane -p` prints.
    pub fn capture(&self, options: &CaptureOptions) -> Vec<u8> {
        self.terminal.capture(*options)
    }

    /// Returns the capture if it is certain. From 3.4 on, only tmux can print hyperlinks under `-e`
    /// (it keeps some thousands for all panes together), and how many cells of a line exist can
    /// depend on where its reads ended.
    pub fn known(&self, options: &CaptureOptions) -> Option<Vec<u8>> {
        self.terminal.known(*options)
    }

    /// Returns the cursor.
    pub fn cursor(&self) -> Cursor {
        Cursor { column: self.terminal.x, row: self.terminal.y, visible: self.terminal.modes.cursor }
    }

    /// Returns the number of lines in the history (`#{history_size}`).
    pub fn history_size(&self) -> u32 {
        self.terminal.grid.history.len() as u32
    }

    /// Returns the size.
    pub fn size(&self) -> Size {
        Size { columns: self.terminal.columns() as u16, rows: self.terminal.height() as u16 }
    }

    /// Returns whether the alternate screen is shown.
    pub fn alternate(&self) -> bool {
        self.terminal.saved.is_some()
    }

    /// Returns the modes of the terminal.
    pub fn modes(&self) -> Modes {
        let (modes, input) = (&self.terminal.modes, &self.terminal.modes.input);
        Modes {
            cursor: modes.cursor,
            alternate: self.alternate(),
            mouse: input.mouse,
            sgr_mouse: input.sgr_mouse,
            utf8_mouse: input.utf8_mouse,
            cursor_keys: input.cursor_keys,
            keypad: input.keypad,
            bracketed_paste: input.bracketed_paste,
            focus: input.focus,
            cursor_shape: self.terminal.shape.number(input.blinks),
        }
    }

    /// Returns the title that the program set.
    pub fn title(&self) -> &str {
        &self.terminal.title
    }

    /// Returns the text of a visible row, without trailing spaces.
    pub fn row_text(&self, row: u16) -> String {
        self.row(row, false)
    }

    /// Returns a visible row as `capture-pane -p` prints it alone, or `capture-pane -p -e` with
    /// `escapes`, without the line end.
    pub fn row(&self, row: u16, escapes: bool) -> String {
        let line = Line::At(i32::from(row));
        let options = CaptureOptions { start: line, end: line, escapes, ..CaptureOptions::default() };
        if u32::from(row) >= self.terminal.height() {
            return String::new();
        }
        let mut text = self.capture(&options);
        text.pop();
        String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Returns the text of the visible rows, each with its position. Rows that wrapped are joined,
    /// at the position of the first. Trailing spaces of several joined rows may stay.
    pub fn joined_rows(&self) -> Vec<(u16, String)> {
        let height = self.size().rows;
        let mut lines = Vec::new();
        let mut first = 0;
        for row in 0..height {
            if row + 1 < height && self.is_wrapped(row) {
                continue;
            }
            lines.push((first, if first == row { self.row_text(row) } else { self.joined(first, row) }));
            first = row + 1;
        }
        lines
    }

    fn joined(&self, first: u16, last: u16) -> String {
        let line = |row: u16| Line::At(i32::from(row));
        let options = CaptureOptions { start: line(first), end: line(last), join: true, ..CaptureOptions::default() };
        let mut text = self.capture(&options);
        text.pop_if(|last| *last == b'\n');
        String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Returns whether the text of a visible row reached the last column and continues in the next
    /// row.
    fn is_wrapped(&self, row: u16) -> bool {
        // A row that was shortened keeps its flag. A wide character can leave the last column
        // empty.
        let reaches_end = |row: &row::Row| row.touched().len() as u32 + 1 >= self.terminal.columns();
        self.terminal.grid.rows.get(usize::from(row)).is_some_and(|row| row.wrapped && reaches_end(row))
    }

    /// Returns whether the first visible row continues a text that begins in the history.
    pub fn starts_within_line(&self) -> bool {
        !self.alternate() && self.terminal.grid.history.last().is_some_and(|last| last.wrapped())
    }

    /// Returns whether a part of the history can be compressed.
    pub fn is_compressible(&self) -> bool {
        self.terminal.grid.history.is_compressible()
    }

    /// Compresses a part of the history, at most half a millisecond's work; what it holds stays the
    /// same. Returns whether more is left. For a pane at rest: it takes about as long as drawing the
    /// lines.
    pub fn compress_next(&mut self) -> bool {
        self.terminal.grid.history.compress_next()
    }

    /// Returns the approximate number of bytes held.
    pub fn memory(&self) -> usize {
        let saved = self.terminal.saved.as_ref().map_or(0, |saved| {
            saved.rows.iter().map(|row| row.cells.capacity() * size_of::<cell::Cell>() + size_of::<row::Row>()).sum()
        });
        size_of::<Self>()
            + self.terminal.grid.memory()
            + saved
            + self.parser.memory()
            + self.terminal.title.capacity()
            + self.terminal.links.memory()
    }

    /// Returns the changes since the last call, and clears them.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.terminal.grid.changes)
    }

    /// Checks that the screen follows tmux's. The error is the reason for which it may differ; if
    /// that lasts, seed again.
    pub fn trusted(&self) -> Result<(), Trouble> {
        match self.terminal.trouble {
            Some(trouble) => Err(trouble),
            None if self.parser.in_string() => Err(Trouble::OpenString),
            None => Ok(()),
        }
    }

    /// Returns whether no escape sequence or character is half read.
    pub fn at_rest(&self) -> bool {
        self.parser.at_rest() && !self.terminal.in_character()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::version::Version;
    use proptest::prelude::*;

    fn screen(columns: u16, rows: u16) -> Screen {
        screen_of("3.3a", columns, rows)
    }

    fn screen_of(version: &str, columns: u16, rows: u16) -> Screen {
        let rules = Rules::for_version(Version::parse(version.as_bytes()).unwrap());
        Screen::new(Size { columns, rows }, rules, Settings::default())
    }

    fn all(screen: &Screen, join: bool, escapes: bool) -> String {
        let options = CaptureOptions { start: Line::Edge, join, escapes, ..CaptureOptions::default() };
        screen.capture(&options).escape_ascii().to_string()
    }

    #[test]
    fn lines_of_a_capture_are_clamped_to_what_is_there() {
        let mut screen = screen(10, 2);
        screen.feed(b"1\r\n2\r\n3\r\n4");
        let lines = |start, end| {
            let options = CaptureOptions { start, end, ..CaptureOptions::default() };
            String::from_utf8(screen.capture(&options)).unwrap()
        };
        assert_eq!(lines(Line::Default, Line::Default), "3\n4\n");
        assert_eq!(lines(Line::Edge, Line::Edge), "1\n2\n3\n4\n");
        assert_eq!(lines(Line::At(-1), Line::At(0)), "2\n3\n");
        assert_eq!(lines(Line::At(1), Line::At(-1)), "2\n3\n4\n");
        assert_eq!(lines(Line::At(i32::MIN), Line::At(i32::MAX)), "1\n2\n3\n4\n");
        assert_eq!(lines(Line::At(9), Line::At(9)), "4\n");
    }

    #[test]
    fn rows_that_wrapped_are_one() {
        let mut screen = screen(6, 4);
        let row = |place: u16, text: &str| (place, text.to_owned());
        screen.feed("ab  \u{6f22}\u{6f22}\u{2500}\u{2500}\r\nnext".as_bytes());
        assert_eq!(screen.joined_rows(), [row(0, "ab  \u{6f22}\u{6f22}\u{2500}\u{2500}"), row(2, "next"), row(3, "")]);
        // A row that only fills the width, and one that was shortened afterwards, end there.
        screen.feed(b"\x1b[2J\x1b[Habcdef\r\nghijklm\x1b[2;4H\x1b[K");
        assert_eq!(screen.joined_rows(), [row(0, "abcdef"), row(1, "ghi"), row(2, "m"), row(3, "")]);
        assert!(!screen.starts_within_line());
        screen.feed(b"\x1b[2J\x1b[4;1Habcdefgh\r\n\n\n");
        assert_eq!(screen.joined_rows()[0], row(0, "gh"));
        assert!(screen.starts_within_line());
    }

    #[test]
    fn changed_rows_are_reported_once() {
        let mut screen = screen(10, 5);
        screen.feed(b"a\x1b[4;2Hb\x07\x1b]2;name\x07");
        let changes = screen.take_changes();
        assert_eq!([0, 1, 2, 3, 4].map(|row| changes.row(row)), [true, false, false, true, false]);
        assert_eq!((changes.bells, changes.title, screen.title()), (1, true, "name"));
        assert!(screen.take_changes().is_empty());
        screen.feed(b"\x1b[5;1H\n");
        assert!(screen.take_changes().all());
        assert_eq!(screen.row_text(2), " b");
    }

    #[test]
    fn modes_are_those_that_tmux_keeps() {
        let mut screen = screen(10, 2);
        let plain = screen.modes();
        assert_eq!((plain.cursor, plain.mouse.number(), plain.cursor_shape), (true, 0, 0));
        screen.feed(b"\x1b[?1;1002;1005;1006;2004;1004h\x1b=\x1b[3 q\x1b[?25l\x1b[?1049h");
        let modes = screen.modes();
        assert_eq!((modes.mouse, modes.sgr_mouse, modes.utf8_mouse), (Mouse::Drags, true, true));
        assert!(modes.cursor_keys && modes.keypad && modes.bracketed_paste && modes.focus && modes.alternate);
        assert_eq!((modes.cursor, modes.cursor_shape), (false, 3));
        // Each kind of report replaces the others, and resetting any kind ends all. DECSTR has no
        // effect.
        screen.feed(b"\x1b[?1000h\x1b[!p");
        assert_eq!(screen.modes().mouse, Mouse::Buttons);
        screen.feed(b"\x1b[?1001l\x1b[?1001h\x1b>\x1b[9 q");
        assert_eq!((screen.modes().mouse, screen.modes().keypad, screen.modes().cursor_shape), (Mouse::Off, false, 3));
        // RIS resets everything but the shape; whether the shape blinks is a mode.
        screen.feed(b"\x1bc");
        let reset = screen.modes();
        assert_eq!(Modes { cursor_shape: 4, alternate: true, ..plain }, reset);
        screen.feed(b"\x1b[ q");
        assert_eq!(screen.modes().cursor_shape, 0);
    }

    fn runs(screen: &Screen, read: impl FnOnce(&mut RowRuns) -> bool) -> String {
        let mut row = RowRuns::default();
        assert!(read(&mut row));
        let runs = row.runs().map(|run| {
            let link = screen.link(run.style.link).map(|link| format!("@{link}")).unwrap_or_default();
            let colour = if run.style.background.is_default() { "" } else { "#" };
            format!("{}:{}{colour}{link}", run.text, run.columns)
        });
        runs.collect::<Vec<_>>().join("|") + if row.wrapped { "+" } else { "" }
    }

    #[test]
    fn a_row_is_runs_of_text_that_looks_the_same() {
        let mut screen = screen_of("3.6b", 20, 8);
        screen.feed("plain \x1b[41mred \x1b[m  \r\na漢bé─e\u{301}x\r\n\x1b(0lqk\x1b(B|\r\n".as_bytes());
        screen.feed(b"\x1b]8;id=1;http://x/\x1b\\li\x1b]8;;\x1b\\nk\r\na\tb\r\n01234567890123456789more\x1b[44m\x1b[K");
        let row = |y: u16| runs(&screen, |row| screen.read_row(y, row));
        assert_eq!(row(0), "plain :6|red :4#");
        assert_eq!(row(1), "a:1|漢:2|b:1|é─:2|e\u{301}:1|x:1");
        assert_eq!(row(2), "┌─┐:3||:1");
        assert_eq!(row(3), "li:2@http://x/|nk:2");
        assert_eq!(row(4), "a       b:9");
        assert_eq!(row(5), "01234567890123456789:20+");
        assert_eq!(row(6), "more:4|                :16#");
        assert!(!screen.read_row(8, &mut RowRuns::default()));
        // A half that was overwritten.
        screen.feed("\x1b[8;1H\x1b[m漢\x1b[8;2HX".as_bytes());
        assert_eq!(runs(&screen, |row| screen.read_row(7, row)), " X:2");
    }

    #[test]
    fn lines_of_the_history_read_as_they_did_on_the_screen() {
        for version in ["3.3a", "3.6b"] {
            let mut screen = screen_of(version, 12, 4);
            let text = "plain\r\n\x1b[41mred \x1b[m  x\r\na漢bé─e\u{301}\t|\r\n\x1b(0lqk\x1b(B 01234567";
            screen.feed(text.as_bytes());
            let rows: Vec<_> = (0..4).map(|y| runs(&screen, |row| screen.read_row(y, row))).collect();
            screen.feed(b"\r\n\r\n\r\n\r\n");
            let lines: Vec<_> = (0..4).map(|at| runs(&screen, |row| screen.history().read(at, row))).collect();
            assert_eq!(lines, rows, "{version}");
            assert_eq!((screen.history_start(), screen.history_size()), (0, 4));
            screen.clear_history();
            assert_eq!((screen.history_start(), screen.history_size()), (4, 0));
            assert!(!screen.history().read(3, &mut RowRuns::default()));
            // The same screen from a seed: without numbers.
            let mut seeded = screen_of(version, 12, 4);
            for screen in [&mut screen, &mut seeded] {
                screen.feed(b"\x1b[H\x1b[Jone\r\ntwo\r\n\r\n\r\n\r\n");
            }
            assert_eq!((screen.history_size(), seeded.history_size()), (2, 2));
            seeded.take_numbers(&screen);
            assert_eq!(seeded.history_start(), 4);
            assert_eq!(runs(&seeded, |row| seeded.history().read(5, row)), "two:3");
        }
    }

    proptest! {
        /// Runs match a capture, column by column, and contain no control characters.
        #[test]
        fn runs_read_as_captures_do(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "bc ", "0123456789", "\r\n", "\n", "\x08", "\x1b[31m", "\x1b[0m", "\x1b[44m", "\x1b[2;3H",
                    "\x1b[K", "\x1b[1J", "\x1b[L", "\x1b[P", "\x1b[2@", "\x1bM", "漢字", "é", "\u{301}", "😀", "─", "\x07",
                ]),
                0..60,
            ),
        ) {
            let mut screen = screen_of("3.4", 10, 4);
            screen.feed(pieces.concat().as_bytes());
            let mut row = RowRuns::default();
            for y in 0..4 {
                prop_assert!(screen.read_row(y, &mut row));
                let text: String = row.runs().map(|run| run.text).collect();
                let columns: u32 = row.runs().map(|run| run.columns).sum();
                prop_assert!(columns <= 10 && !text.contains(char::is_control));
                for run in row.runs() {
                    let counted = run.text.chars().count() as u32;
                    let ascii = run.text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
                    prop_assert_eq!(ascii, run.kind == RunKind::Ascii);
                    prop_assert!(run.kind == RunKind::Cluster || run.columns == counted);
                }
                // Leftover halves are blanks in runs, and empty in captures.
                let (ours, theirs) = (text.replace(' ', ""), screen.row_text(y).replace(' ', ""));
                prop_assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn a_string_that_does_not_end_is_not_trusted() {
        let mut screen = screen(10, 2);
        screen.feed(b"\x1bP");
        screen.feed(b"qxyz");
        assert_eq!(screen.trusted(), Err(Trouble::OpenString));
        screen.feed(b"\x1b\\");
        assert_eq!(screen.trusted(), Ok(()));
    }

    #[test]
    fn a_string_that_is_given_up_is_followed_by_plain_text() {
        for string in ["\x1b]2;t", "\x1bPq", "\x1bPq\x1b", "\x1b_a", "\x1bkn", "\x1bXs", "\x1b^p"] {
            let mut screen = screen(10, 2);
            screen.feed(b"\x1b[31m\x1b(0a");
            screen.feed(string.as_bytes());
            assert!(screen.give_up() && !screen.give_up(), "{string:?}");
            assert_eq!(screen.trusted(), Ok(()));
            screen.feed(b"q\x07");
            assert_eq!(all(&screen, false, true), r"\x1b[31m\x0ea\x1b[39m\x0fq\n\n", "{string:?}");
            assert_eq!(screen.title(), "");
        }
        let mut screen = screen(10, 2);
        screen.feed(b"\x1b[31");
        assert!(!screen.give_up(), "a sequence has no end of its time");
        screen.feed(b"mx");
        assert_eq!(all(&screen, false, true), r"\x1b[31mx\n\n");
    }

    #[test]
    fn an_image_is_not_trusted_where_images_are_drawn() {
        for (version, trusted) in [("3.3a", Ok(())), ("3.5a", Err(Trouble::Image))] {
            let mut screen = screen_of(version, 10, 2);
            screen.feed(b"\x1bP1$tx\x1b\\");
            assert_eq!(screen.trusted(), Ok(()));
            screen.feed(b"\x1bP$qm\x1b\\text");
            assert_eq!(screen.trusted(), trusted, "{version}");
        }
    }

    #[test]
    fn a_capture_that_memory_cannot_know_is_left_to_tmux() {
        let styled = CaptureOptions { escapes: true, ..CaptureOptions::default() };
        let whole = CaptureOptions { trailing: true, ..CaptureOptions::default() };
        let mut links = screen_of("3.5a", 80, 3);
        links.feed(b"text\r\n\x1b]8;;http://x/\x07link\x1b]8;;\x07 more");
        assert_eq!(links.known(&styled), None);
        assert!(links.known(&CaptureOptions { end: Line::At(0), ..styled }).is_some());
        assert!(links.known(&whole).is_some());
        // A quarter of the columns: whether tmux read it at once decides whether the next cells
        // exist.
        let mut quarter = screen_of("3.5a", 80, 3);
        quarter.feed(b"\x1b[31mtwenty  characters!!");
        assert_eq!((quarter.known(&styled), quarter.known(&whole)), (None, None));
        assert!(quarter.known(&CaptureOptions { join: true, ..styled }).is_some());
        assert!(quarter.known(&CaptureOptions::default()).is_some());
        // Anything but text ends a run: the cells existed before the second run began.
        let mut two_runs = screen_of("3.5a", 80, 3);
        two_runs.feed(b"\x1b[31mtwenty cha\x1b[1mracters!!?");
        assert!(two_runs.known(&styled).is_some());
        quarter.feed(b"\r\n\r\n\r\n\r\n");
        assert_eq!(quarter.known(&CaptureOptions { start: Line::Edge, ..styled }), None);
        quarter.clear_history();
        assert!(quarter.known(&CaptureOptions { start: Line::Edge, ..styled }).is_some());
    }

    #[test]
    fn a_title_is_as_long_as_tmux_keeps_it() {
        let mut screen = screen(10, 2);
        let mut set = |length: usize| {
            screen.feed(&[b"\x1b]2;", &vec![b'x'; length][..], b"\x07"].concat());
            (screen.title().len(), screen.memory() < 10_000)
        };
        assert_eq!(set((1 << 20) - 3), (1_048_573, false));
        assert_eq!(set((1 << 20) - 2), (1_048_573, false));
        assert_eq!(set(5), (5, true));
    }

    #[test]
    fn a_joiner_waits_until_tmux_is_known_to_have_read_it() {
        let mut joined = screen(10, 2);
        joined.feed("a\u{200d}".as_bytes());
        let mut apart = joined.clone();
        apart.read_ended();
        joined.feed("é".as_bytes());
        apart.feed("é".as_bytes());
        assert_eq!((joined.cursor().column, apart.cursor().column), (1, 2));
        // Nothing shows whether the read ended in between.
        assert_eq!((joined.trusted(), apart.trusted()), (Err(Trouble::Reads), Ok(())));
        let mut later = screen_of("3.5a", 10, 2);
        later.feed("a\u{200d}é".as_bytes());
        assert_eq!(later.trusted(), Ok(()), "from 3.4 on what stands before it decides");
    }

    #[test]
    fn a_full_history_stays_small() {
        let mut screen = screen(80, 24);
        for line in 0..20_000 {
            screen.feed(format!("   \x1b[32mCompiling\x1b[0m crate-number-{line} v1.2.3 (/some/path)\r\n").as_bytes());
        }
        assert_eq!(screen.history_size(), 1901 + (20_000 - 23 - 1901) % 100);
        assert!(screen.memory() < 400_000, "{}", screen.memory());
    }

    #[test]
    fn a_compressed_history_is_a_third_and_is_captured_unchanged() {
        let settings = Settings { history_limit: 10_000, ..Settings::default() };
        let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
        let mut screen = Screen::new(Size { columns: 80, rows: 24 }, rules, settings);
        for line in 0..12_000_u32 {
            let hash = line.wrapping_mul(0x9e37_79b9);
            screen.feed(
                format!("\x1b[32mok\x1b[0m {hash:08x} src/case-{}.rs: took {} ms\r\n", line % 97, hash % 1000)
                    .as_bytes(),
            );
        }
        let all = CaptureOptions { start: Line::Edge, escapes: true, ..CaptureOptions::default() };
        let (before, captured) = (screen.memory(), screen.capture(&all));
        assert!(screen.is_compressible());
        while screen.compress_next() {}
        assert!(!screen.is_compressible());
        assert!(3 * screen.memory() < before + before / 4, "{} of {before}", screen.memory());
        assert!(screen.capture(&all) == captured);
        // A resize reads all lines, and joins and splits them.
        screen.resize(Size { columns: 40, rows: 24 });
        screen.resize(Size { columns: 80, rows: 24 });
        assert!(screen.capture(&all) == captured);
    }

    #[test]
    fn unused_interned_styles_and_clusters_are_freed() {
        let mut screen = screen(20, 4);
        for n in 0..200_000_u32 {
            let [red, green, blue, _] = n.to_le_bytes();
            screen.feed(format!("\x1b[48;2;{red};{green};{blue}m\x1b[2Ke\u{301}").as_bytes());
        }
        screen.clear_history();
        assert!(screen.memory() < 1_000_000, "{}", screen.memory());
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(
            pieces in proptest::collection::vec("[ -~]{0,9}|\\x1b\\[[0-9;:?]{0,6}[@-~]|\\x1b[ -~]|[\r\n\t\x08\x0e\x0f]|\
                 [漢😀é\u{301}\u{200d}]|\\x1b\\][0-9];[a-z]{0,4}\x07", 0..40),
            cuts in proptest::collection::vec(1_usize..9, 1..40),
            columns in 1_u16..30,
            rows in 1_u16..8,
        ) {
            let bytes = pieces.concat().into_bytes();
            let (mut whole, mut parts) = (screen(columns, rows), screen(columns, rows));
            whole.feed(&bytes);
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, after) = rest.split_at((*cut).min(rest.len()));
                parts.feed(part);
                rest = after;
            }
            prop_assert_eq!(all(&whole, false, true), all(&parts, false, true));
            prop_assert_eq!(all(&whole, true, false), all(&parts, true, false));
            prop_assert_eq!(whole.cursor(), parts.cursor());
        }

        /// Characters whose bytes arrive separately take the slower path, one by one.
        #[test]
        fn characters_at_once_are_what_they_are_one_by_one(
            pieces in proptest::collection::vec(
                "[漢字あ한é─、ｘ]{1,9}|[a-c]{1,3}|[😀👍\u{301}\u{200d}\u{fe0f}\u{1f1e9}]|[\r\n\t\x08\x0e\x0f]|\
                 \\x1b\\[[0-9;]{0,3}[GHKPXbhlm@]|\\x1b\\[[47][hl]|\\x1b\\[\\?7[hl]|\\x1b\\[4[0-7]m|\\x1b[()][0B]", 0..40),
            version in proptest::sample::select(&["3.2a", "3.3a", "3.4", "3.5a", "3.6b", "3.7c", "3.8"]),
            columns in 1_u16..30,
            rows in 1_u16..4,
        ) {
            let (mut whole, mut parts) = (screen_of(version, columns, rows), screen_of(version, columns, rows));
            let bytes = pieces.concat().into_bytes();
            whole.feed(&bytes);
            bytes.chunks(1).for_each(|byte| parts.feed(byte));
            for (escapes, trailing, join) in [(false, true, false), (true, false, false), (true, true, true)] {
                let start = Line::Edge;
                let options = CaptureOptions { start, join, escapes, trailing, ..CaptureOptions::default() };
                prop_assert_eq!(whole.capture(&options), parts.capture(&options));
                prop_assert_eq!(whole.known(&options), parts.known(&options));
            }
            prop_assert_eq!(whole.cursor(), parts.cursor());
            prop_assert_eq!(whole.take_changes(), parts.take_changes());
        }
    }
}
