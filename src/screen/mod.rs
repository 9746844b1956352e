//! What tmux's grid holds, from a pane's output alone: `capture-pane` answered from memory.
//!
//! This floor is pure like [`crate::pane`]: no sockets, no clocks, no tasks. It follows tmux's own grid, not a terminal
//! in general: `docs/screen.md` has the invariants (S1…) and what was measured.

mod capture;
mod cell;
mod changes;
mod csi;
mod cursor;
mod erase;
mod grid;
mod history;
mod packed;
mod params;
mod parser;
mod resize;
mod row;
pub mod rules;
pub mod seed;
mod sgr;
pub mod style;
mod terminal;
mod utf8;
mod width;
mod width_table;
mod write;

pub use capture::{CaptureOptions, Line};
pub use changes::Changes;
pub use rules::Rules;
pub use seed::Seed;

use parser::Parser;
use terminal::Terminal;

/// Columns and rows; at least one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a row.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// tmux's options that change what the grid holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `history-limit` as it was when the pane was made: lines; 0 keeps none.
    pub history_limit: u32,
    /// `scroll-on-clear`: what is cleared goes into history.
    pub scroll_on_clear: bool,
    /// `alternate-screen`: programs may use it.
    pub alternate_screen: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { history_limit: 2000, scroll_on_clear: true, alternate_screen: true }
    }
}

/// Where the cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// From the left, from 0; as many as there are columns when the next character wraps.
    pub column: u32,
    /// From the top, from 0.
    pub row: u32,
    /// It is shown.
    pub visible: bool,
}

/// What cannot be followed exactly from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The program began an OSC, DCS or the like and did not end it; tmux gives up on it after five seconds, and what
    /// follows is text then. Over as soon as the string ends.
    OpenString,
    /// A resize moved the cursor where tmux's own arithmetic leaves the grid. Lasts until the screen is made anew.
    CursorLost,
}

/// A pane's grid as tmux has it.
#[derive(Clone, Debug)]
pub struct Screen {
    parser: Parser,
    terminal: Terminal,
}

impl Screen {
    /// An empty one, as of a new pane.
    pub fn new(size: Size, rules: Rules, settings: Settings) -> Self {
        Self { parser: Parser::default(), terminal: Terminal::new(size, rules, settings) }
    }

    /// One that holds what tmux answered to [`seed::question`]. `None` if the answer makes no sense.
    pub fn from_seed(seed: &Seed, rules: Rules, settings: Settings) -> Option<Self> {
        let mut screen = Self::new(seed.size(), rules, Settings { history_limit: seed.history_limit, ..settings });
        seed.fill(&mut screen.terminal)?;
        screen.feed(&seed.pending);
        screen.take_changes();
        Some(screen)
    }

    /// Takes output of the pane. How it is cut into pieces changes nothing.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.parser.feed(bytes, &mut self.terminal);
    }

    /// tmux has read all that was fed so far before it read what comes: the pane rested, or a command's reply came.
    ///
    /// It forgets at the end of each read that a joiner (U+200D) came last, and the stream does not tell where reads
    /// ended. Without this call a joiner joins however late the next character comes.
    pub fn read_ended(&mut self) {
        self.terminal.joined = false;
    }

    /// The pane has another size from here on.
    pub fn resize(&mut self, size: Size) {
        self.read_ended();
        let reflow = self.terminal.saved.is_none();
        self.terminal.resize(u32::from(size.columns), u32::from(size.rows), reflow);
    }

    /// `clear-history`.
    pub fn clear_history(&mut self) {
        self.terminal.grid.clear_history();
    }

    /// `send-keys -R`.
    pub fn reset(&mut self) {
        self.read_ended();
        self.terminal.reset();
        self.parser = Parser::default();
    }

    /// What `tmux capture-pane -p` prints, byte for byte.
    pub fn capture(&self, options: &CaptureOptions) -> Vec<u8> {
        self.terminal.capture(*options)
    }

    /// Where the cursor is.
    pub fn cursor(&self) -> Cursor {
        Cursor { column: self.terminal.x, row: self.terminal.y, visible: self.terminal.modes.cursor }
    }

    /// Lines in the history (`#{history_size}`).
    pub fn history_size(&self) -> u32 {
        self.terminal.grid.history.len() as u32
    }

    /// Columns and rows.
    pub fn size(&self) -> Size {
        Size { columns: self.terminal.columns() as u16, rows: self.terminal.height() as u16 }
    }

    /// The alternate screen is shown.
    pub fn alternate(&self) -> bool {
        self.terminal.saved.is_some()
    }

    /// The title that the program set.
    pub fn title(&self) -> &str {
        &self.terminal.title
    }

    /// A visible row as text, without spaces at its end.
    pub fn row_text(&self, row: u16) -> String {
        let line = Line::At(i32::from(row));
        let options = CaptureOptions { start: line, end: line, ..CaptureOptions::default() };
        if u32::from(row) >= self.terminal.height() {
            return String::new();
        }
        let mut text = self.capture(&options);
        text.pop();
        String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        let saved = self.terminal.saved.as_ref().map_or(0, |saved| {
            saved.rows.iter().map(|row| row.cells.capacity() * size_of::<cell::Cell>() + size_of::<row::Row>()).sum()
        });
        size_of::<Self>() + self.terminal.grid.memory() + saved + self.parser.memory() + self.terminal.title.capacity()
    }

    /// What changed since this was last called.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.terminal.grid.changes)
    }

    /// What, if anything, keeps this from being what tmux has. If it lasts, seed anew.
    pub fn trusted(&self) -> Result<(), Trouble> {
        match self.terminal.trouble {
            Some(trouble) => Err(trouble),
            None if self.parser.in_string() => Err(Trouble::OpenString),
            None => Ok(()),
        }
    }

    /// No escape sequence or character is half read.
    pub fn at_rest(&self) -> bool {
        self.parser.at_rest() && !self.terminal.in_character()
    }
}
