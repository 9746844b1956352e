//! The screen as a player shows it, to find secrets whose pieces a program places side by side.
//!
//! Each held character is drawn with a color of its own, its number, so that the model tells where
//! it has gone: through scrolling, insertions, margins. The output's own styles are left out.

use muxtap_api::Size;
use muxtap_core::{
    protocol::version::Version,
    screen::{Changes, RowRuns, Rules, RunKind, Screen, Settings},
};

use serde::{Deserialize, Serialize};

use super::nfa::{Nfa, Search};

/// Numbers of characters wrap here: a color has 24 bits.
pub(super) const NUMBERS: u64 = 1 << 24;

/// A model of the screen.
#[derive(Debug)]
pub(super) struct Shown {
    screen: Screen,
    row: RowRuns,
    /// Whether the next character without a number needs the default color.
    is_numbered: bool,
    /// The secrets found, and the text before the cursor that may become one.
    pub(super) found: Vec<Found>,
    /// The rows that changed since the last [`Shown::look`].
    pending: Changes,
    /// Whether each row may have changed since it was searched.
    fresh: Vec<bool>,
    /// The number of cells searched since the last [`Shown::look`].
    searched: usize,
    /// The number of all cells searched.
    #[cfg(test)]
    pub(super) steps: usize,
}

/// A model of the screen, stored for the daemon that replaces this one. Rows that may have changed are
/// looked at again there.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredShown {
    screen: Screen,
    is_numbered: bool,
}

/// The number of cells of wrapped lines that are searched between two [`Shown::look`]s. After them
/// only the cursor's row is searched, and all lines at the end.
const MOST_CELLS: usize = 256 * 1024;

/// The number of a character that belongs to a secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) number: u64,
    /// Whether the secret is complete.
    pub(super) is_whole: bool,
}

/// A character in a row.
struct Cell {
    character: char,
    number: Option<u64>,
}

fn size_of(size: Size) -> muxtap_core::screen::Size {
    muxtap_core::screen::Size { columns: size.width.max(1), rows: size.height.max(1) }
}

impl Shown {
    pub(super) fn new(size: Size) -> Self {
        let newest = Rules::for_version(Version { major: 3, minor: 6, suffix: None, is_preview: false });
        let settings = Settings { history_limit: 0, ..Settings::default() };
        Self::of(Screen::new(size_of(size), newest, settings), false)
    }

    pub(super) fn store(&self) -> StoredShown {
        StoredShown { screen: self.screen.clone(), is_numbered: self.is_numbered }
    }

    pub(super) fn restore(stored: StoredShown) -> Self {
        Self { pending: Changes::everything(), ..Self::of(stored.screen, stored.is_numbered) }
    }

    fn of(screen: Screen, is_numbered: bool) -> Self {
        Self {
            screen,
            row: RowRuns::default(),
            is_numbered,
            found: Vec::new(),
            pending: Changes::default(),
            fresh: Vec::new(),
            searched: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    pub(super) fn resize(&mut self, size: Size) {
        self.screen.resize(size_of(size));
    }

    /// Draws the character with this number.
    pub(super) fn character(&mut self, number: u64, bytes: &[u8]) {
        let [_, red, green, blue] = ((number % NUMBERS) as u32).to_be_bytes();
        self.screen.feed(format!("\x1b[38;2;{red};{green};{blue}m").as_bytes());
        self.screen.feed(bytes);
        self.is_numbered = true;
    }

    /// Draws text, or moves the cursor.
    pub(super) fn other(&mut self, bytes: &[u8]) {
        if std::mem::take(&mut self.is_numbered) {
            self.screen.feed(b"\x1b[m");
        }
        if !matches!(bytes, [0x1b, b'[', .., b'm']) {
            self.screen.feed(bytes);
        }
    }

    /// Returns whether the cursor is in the last row.
    pub(super) fn is_at_bottom(&self) -> bool {
        self.screen.cursor().row + 1 >= u32::from(self.screen.size().rows)
    }

    /// Looks for secrets in the cursor's line.
    pub(super) fn look_at_cursor(&mut self, nfa: &Nfa) {
        // A row that has not changed since it was searched holds no other secrets.
        let changes = self.screen.take_changes();
        if !changes.is_empty() {
            self.fresh.resize(usize::from(self.screen.size().rows), true);
            let rows = (0..).zip(&mut self.fresh);
            rows.for_each(|(row, is_fresh)| *is_fresh |= changes.row(row));
            self.pending.merge(&changes);
        }
        let row = u16::try_from(self.screen.cursor().row).unwrap_or_default();
        if self.fresh.get(usize::from(row)).is_none_or(|is_fresh| *is_fresh) {
            self.look_at(nfa, row);
        }
    }

    /// Looks for secrets in all lines that have changed since the last call.
    pub(super) fn look(&mut self, nfa: &Nfa) {
        let mut changes = std::mem::take(&mut self.pending);
        changes.merge(&self.screen.take_changes());
        // The text before the cursor is looked at once more.
        self.fresh.clear();
        self.fresh.resize(usize::from(self.screen.size().rows), true);
        self.searched = 0;
        let mut row = 0;
        while row < self.screen.size().rows {
            row = if changes.row(row) { self.look_at(nfa, row) } else { row + 1 };
        }
    }

    /// Looks for secrets in the line with this row. Returns the row after it.
    fn look_at(&mut self, nfa: &Nfa, row: u16) -> u16 {
        let mut first = row;
        let is_bounded = self.searched > MOST_CELLS;
        while !is_bounded && first > 0 && self.screen.read_row(first - 1, &mut self.row) && self.row.wrapped {
            first -= 1;
        }
        let (mut cells, mut next, mut before_cursor) = (Vec::new(), first, None);
        let cursor = self.screen.cursor();
        while self.screen.read_row(next, &mut self.row) {
            let mut column = 0;
            for run in self.row.runs() {
                let number = run.style.foreground.as_rgb().map(|[r, g, b]| u64::from(u32::from_be_bytes([0, r, g, b])));
                let each = if run.kind == RunKind::Cluster { run.columns } else { 1 };
                for (at, character) in run.text.chars().enumerate() {
                    if u32::from(next) == cursor.row && column >= cursor.column && before_cursor.is_none() {
                        before_cursor = Some(cells.len());
                    }
                    // A cluster is searched by its first character.
                    if run.kind != RunKind::Cluster || at == 0 {
                        cells.push(Cell { character, number });
                        column += each;
                    }
                }
            }
            if u32::from(next) == cursor.row {
                before_cursor = before_cursor.or(Some(cells.len()));
                let blanks = cursor.column.saturating_sub(column);
                if blanks > 0 && !self.row.wrapped {
                    cells.extend((0..blanks).map(|_| Cell { character: ' ', number: None }));
                    before_cursor = Some(cells.len());
                }
            }
            next += 1;
            if is_bounded || !self.row.wrapped {
                break;
            }
        }
        let rows = usize::from(first)..usize::from(next);
        self.fresh.get_mut(rows).unwrap_or_default().fill(false);
        self.searched += cells.len();
        #[cfg(test)]
        {
            self.steps += cells.len();
        }
        self.search(nfa, &cells, before_cursor);
        next.max(row + 1)
    }

    fn search(&mut self, nfa: &Nfa, cells: &[Cell], before_cursor: Option<usize>) {
        let (mut search, mut matches) = (Search::default(), Vec::new());
        let mut open = None;
        for (at, cell) in cells.iter().enumerate() {
            if before_cursor == Some(at) {
                open = Some(search.open_from(at));
            }
            search.step(nfa, cell.character, at, &mut matches);
        }
        let end = before_cursor.unwrap_or(0);
        let open = open.unwrap_or_else(|| if end == cells.len() { search.open_from(end) } else { end });
        let ranges = matches.into_iter().map(|range| (range, true)).chain([((open, end), false)]);
        for ((from, to), is_whole) in ranges {
            let numbers = cells.get(from..to).unwrap_or_default().iter().filter_map(|cell| cell.number);
            self.found.extend(numbers.map(|number| Found { number, is_whole }));
        }
    }
}
