//! The state behind the bytes: the grid, the cursor, the pen and the modes.

use super::{
    Settings, Size, Trouble,
    cell::{Cell, Clusters},
    grid::Grid,
    links::Links,
    modes::{InputModes, Shape},
    row::{Row, Run},
    rules::Rules,
    style::{Colour, Style, StyleId, attribute},
    utf8::Utf8,
};

/// The pen: how the next character looks, and which character set is meant.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that tmux keeps apart, or a seed does not tell")]
pub(super) struct Pen {
    pub(super) style: Style,
    /// Whether G1 is in use.
    pub(super) shifted: bool,
    /// Whether G0 is line drawing.
    pub(super) g0: bool,
    /// Whether G1 is line drawing.
    pub(super) g1: bool,
    /// Whether the background is not known: the program set it before the screen was seeded, and
    /// neither set nor reset it since.
    pub(super) untold: bool,
}

/// The state that DECSC saves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SavedCursor {
    pub(super) pen: Pen,
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) origin: bool,
}

/// The main screen while the alternate one is shown.
#[derive(Clone, Debug)]
pub(super) struct SavedScreen {
    pub(super) rows: Vec<Row>,
    pub(super) columns: u32,
    pub(super) keeps: bool,
}

/// Modes that matter to the grid or to a reader.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one mode of the terminal")]
pub(super) struct Modes {
    pub(super) wrap: bool,
    pub(super) insert: bool,
    pub(super) origin: bool,
    pub(super) cursor: bool,
    /// Those that matter to input alone.
    pub(super) input: InputModes,
}

impl Default for Modes {
    fn default() -> Self {
        Self { wrap: true, insert: false, origin: false, cursor: true, input: InputModes::default() }
    }
}

/// A terminal as tmux emulates it.
#[derive(Clone, Debug)]
pub(super) struct Terminal {
    pub(super) rules: Rules,
    pub(super) settings: Settings,
    pub(super) grid: Grid,
    pub(super) saved: Option<SavedScreen>,
    /// Where the cursor was when the alternate screen was entered.
    pub(super) saved_cursor: Option<(u32, u32)>,
    pub(super) saved_style: Style,
    /// Whether the background in it is not known.
    pub(super) saved_untold: bool,
    /// The cursor's column; the width of the screen when the next character wraps.
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) upper: u32,
    pub(super) lower: u32,
    /// Columns with a tab stop.
    tabs: Vec<bool>,
    pub(super) modes: Modes,
    pub(super) pen: Pen,
    pub(super) decsc: SavedCursor,
    /// The run of ASCII that is being printed, at the cursor.
    pub(super) run: Option<Run>,
    /// The pen's style as a number, without and with line drawing.
    styles: [Option<StyleId>; 2],
    /// The character that REP repeats.
    pub(super) last: Option<char>,
    pub(super) utf8: Utf8,
    /// Whether the next character joins the one before the cursor.
    pub(super) joined: bool,
    pub(super) title: String,
    pub(super) shape: Shape,
    pub(super) links: Links,
    /// Whether there was a character whose width is not certain.
    pub(super) unsure_width: bool,
    /// The reason why this may differ from what tmux has.
    pub(super) trouble: Option<Trouble>,
}

impl Terminal {
    pub(super) fn new(size: Size, rules: Rules, settings: Settings) -> Self {
        let (columns, rows) = (u32::from(size.columns.max(1)), u32::from(size.rows.max(1)));
        let mut terminal = Self {
            rules,
            settings,
            grid: Grid::new(columns, rows, settings.history_limit, rules),
            saved: None,
            saved_cursor: None,
            saved_style: Style::DEFAULT,
            saved_untold: false,
            x: 0,
            y: 0,
            upper: 0,
            lower: rows - 1,
            tabs: Vec::new(),
            modes: Modes::default(),
            pen: Pen::default(),
            decsc: SavedCursor::default(),
            styles: [None; 2],
            run: None,
            last: None,
            utf8: Utf8::default(),
            joined: false,
            title: String::new(),
            shape: Shape::default(),
            links: Links::default(),
            unsure_width: false,
            trouble: None,
        };
        terminal.reset_tabs();
        terminal
    }

    pub(super) fn columns(&self) -> u32 {
        self.grid.columns
    }

    pub(super) fn height(&self) -> u32 {
        self.grid.height()
    }

    pub(super) fn background(&self) -> Colour {
        if self.pen.untold { Colour::UNTOLD } else { self.pen.style.background }
    }

    /// Whether a byte of a multi-byte character has been read, and more are to come.
    pub(super) fn in_character(&self) -> bool {
        self.utf8.started()
    }

    /// Changes how the next characters look.
    pub(super) fn set_style(&mut self, style: Style) {
        self.change_style(|old| *old = style);
    }

    /// Changes the pen's style in place: to make a style and compare it with the pen's takes longer
    /// than to look up its number again.
    pub(super) fn change_style(&mut self, change: impl FnOnce(&mut Style)) {
        change(&mut self.pen.style);
        self.styles = [None; 2];
        self.sweep();
    }

    /// Frees styles and clusters that no cell has, when there are many.
    #[inline]
    pub(super) fn sweep(&mut self) {
        if self.grid.is_sweep_due() {
            let kept = self.styles.map(Option::unwrap_or_default);
            self.grid.sweep(&kept, self.saved.as_ref().map(|saved| &saved.rows[..]));
        }
    }

    /// Returns the right half of a wide character that looks so.
    pub(super) fn padding(&mut self, style: StyleId) -> Cell {
        if self.rules.colours_padding && style != 0 {
            let background = self.grid.styles.get(style).background;
            return Cell::padding(self.grid.styles.intern(Style::erased(background)));
        }
        if self.rules.short_padding { Cell::PADDING } else { Cell::PADDING.lengthened() }
    }

    /// Returns the number of the pen's style.
    pub(super) fn style(&mut self, line_drawing: bool) -> StyleId {
        let style = self.pen.style;
        let Some(known) = self.styles.get_mut(usize::from(line_drawing)) else { return 0 };
        if let Some(id) = known {
            return *id;
        }
        let set = if line_drawing { attribute::CHARSET } else { 0 };
        let id = self.grid.styles.intern(Style { attributes: style.attributes | set, ..style });
        *known = Some(id);
        id
    }

    pub(super) fn clusters(&mut self) -> &mut Clusters {
        &mut self.grid.clusters
    }

    // Tab stops.

    pub(super) fn reset_tabs(&mut self) {
        self.tabs = (0..self.columns()).map(|column| column > 0 && column % 8 == 0).collect();
    }

    pub(super) fn set_tabs(&mut self, stops: impl IntoIterator<Item = u32>) {
        self.tabs.fill(false);
        stops.into_iter().for_each(|column| self.set_tab(column, true));
    }

    pub(super) fn set_tab(&mut self, column: u32, on: bool) {
        if let Some(stop) = self.tabs.get_mut(column as usize) {
            *stop = on;
        }
    }

    pub(super) fn clear_tabs(&mut self) {
        self.tabs.fill(false);
    }

    pub(super) fn is_tab(&self, column: u32) -> bool {
        self.tabs.get(column as usize).copied().unwrap_or_default()
    }

    /// Makes the pen, the character sets and what DECSC kept those of a new pane, as tmux does when
    /// it resets its parser. It goes on knowing whether the origin was kept.
    pub(super) fn forget_looks(&mut self) {
        self.run = None;
        self.set_style(Style::DEFAULT);
        self.pen = Pen::default();
        self.decsc = SavedCursor { origin: self.decsc.origin, ..SavedCursor::default() };
        self.last = None;
    }

    /// Takes a half-read character, and the pen with what DECSC kept and REP repeats.
    pub(super) fn take_stream_state(&mut self, before: &Self, pen: bool) {
        self.utf8 = before.utf8;
        if pen {
            self.set_style(before.pen.style);
            self.pen = before.pen;
            self.decsc = before.decsc;
            self.last = before.last;
        }
    }

    /// Resets the terminal: RIS, and `send-keys -R`.
    pub(super) fn reset(&mut self) {
        self.set_style(Style::DEFAULT);
        self.pen = Pen::default();
        self.decsc = SavedCursor::default();
        self.last = None;
        self.reset_tabs();
        self.scroll_region(0, self.height() - 1);
        self.modes = Modes::default();
        self.clear_screen(Colour::DEFAULT);
        self.set_cursor(Some(0), Some(0));
    }

    /// Enters the alternate screen.
    pub(super) fn alternate_on(&mut self, cursor: bool) {
        if !self.settings.alternate_screen || self.saved.is_some() {
            return;
        }
        let rows = self.grid.rows.iter().cloned().collect();
        self.saved = Some(SavedScreen { rows, columns: self.columns(), keeps: self.grid.keeps });
        if cursor {
            self.saved_cursor = Some((self.x, self.y));
        }
        self.saved_style = self.pen.style;
        self.saved_untold = self.pen.untold;
        self.grid.erase(0, 0, self.columns(), self.height(), Colour::DEFAULT);
        self.grid.keeps = false;
        self.grid.changes.alternate = true;
    }

    /// Leaves it.
    pub(super) fn alternate_off(&mut self, cursor: bool) {
        if !self.settings.alternate_screen {
            return;
        }
        let (columns, height) = (self.columns(), self.height());
        if let Some(saved) = &self.saved {
            let (saved_columns, saved_height) = (saved.columns, saved.rows.len() as u32);
            // Where lines are reflowed on the way, what does not fit any more stays in the history.
            self.resize(saved_columns, saved_height, self.rules.reflows_alternate);
        }
        if cursor && let Some((x, y)) = self.saved_cursor {
            (self.x, self.y) = (x, y);
            self.set_style(self.saved_style);
            self.pen.untold = self.saved_untold;
        }
        if let Some(saved) = self.saved.take() {
            self.grid.rows = saved.rows.into();
            self.grid.changes.mark_all();
            self.grid.changes.alternate = true;
            self.grid.keeps = saved.keeps;
            self.resize(columns, height, true);
        }
        self.x = self.x.min(self.columns() - 1);
        self.y = self.y.min(self.height() - 1);
    }

    /// Fills the screen with E.
    pub(super) fn alignment_test(&mut self) {
        self.upper = 0;
        self.lower = self.height() - 1;
        self.set_cursor(Some(0), Some(0));
        for y in 0..self.height() {
            for x in 0..self.columns() {
                self.grid.set(x, y, Cell::ascii(b'E', 0));
            }
        }
    }

    /// Sets the title, if it is UTF-8 that can be printed.
    pub(super) fn set_title(&mut self, title: &[u8]) {
        let Ok(title) = std::str::from_utf8(title) else { return };
        if self.title != title {
            // Not into the room of the old one, which can be 1 MiB.
            drop(std::mem::replace(&mut self.title, title.into()));
            self.grid.changes.title = true;
        }
    }
}
