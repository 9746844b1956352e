//! The state of the terminal: the grid, the cursor, the pen and the modes.

use std::hash::{Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

use super::{
    Settings, Size, Trouble,
    cell::{Cell, Clusters},
    grid::Grid,
    links::Links,
    modes::{InputModes, Shape},
    row::{Row, Run},
    rules::Rules,
    style::{Colour, Style, StyleId, WordHasher, attribute},
    utf8::Utf8,
};

/// The pen: the style of the next character, and the character sets.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Pen {
    pub(super) style: Style,
    /// The style if all the state that the seed omitted were different: parts that the program has
    /// set since are equal in both. `None`: the style is known.
    pub(super) other: Option<Style>,
    pub(super) sets: Sets,
    /// Whether the pen was restored from a saved one: cells with its style may have been written
    /// with another pen.
    pub(super) restored: bool,
}

impl Pen {
    /// Returns a pen whose state is entirely unknown.
    pub(super) fn untold(rules: Rules) -> Self {
        // Only a REP leaves line drawing in the pen.
        let charset = if rules.repeats_any_character { 0 } else { attribute::CHARSET };
        let other = Style {
            attributes: attribute::UNTOLD - 1 - charset,
            foreground: Colour::UNTOLD,
            background: Colour::UNTOLD,
            underline: Colour::UNTOLD,
            link: if rules.keeps_links { u32::MAX } else { 0 },
        };
        Self { style: Style::DEFAULT, other: Some(other), sets: Sets::untold(), restored: false }
    }

    /// Returns the style of cells that are written while a part of the pen is unknown. The link
    /// identifies the pen: pens with equal known parts can still differ.
    fn unsure_style(&self) -> Style {
        let mut hasher = WordHasher::default();
        (self.other, self.sets.untold, self.sets.shifted, self.sets.g0, self.sets.g1).hash(&mut hasher);
        let mark = hasher.finish() as u32 | 1;
        Style { attributes: self.style.attributes | attribute::UNTOLD, link: mark, ..self.style }
    }
}

/// The character sets: whether each is line drawing, and which of them is in use.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that tmux keeps apart")]
pub(super) struct Sets {
    pub(super) g0: bool,
    pub(super) g1: bool,
    /// Whether G1 is in use.
    pub(super) shifted: bool,
    /// The parts of these three that no seed reported, as bits.
    untold: u8,
    /// Whether the set in use is line drawing, where that is known but not which set it is.
    active: Option<bool>,
}

impl Sets {
    const SETS: [u8; 2] = [1, 2];
    const SHIFT: u8 = 4;

    /// Returns sets whose state is entirely unknown.
    fn untold() -> Self {
        Self { untold: Self::SHIFT | Self::SETS[0] | Self::SETS[1], ..Self::default() }
    }

    /// Returns whether the set in use is line drawing; `None` if unknown.
    #[inline]
    pub(super) fn drawing(self) -> Option<bool> {
        if self.untold == 0 { Some(self.used()) } else { self.drawing_as_told() }
    }

    fn used(self) -> bool {
        if self.shifted { self.g1 } else { self.g0 }
    }

    #[cold]
    fn drawing_as_told(self) -> Option<bool> {
        let [g0, g1] = Self::SETS;
        let needs = match self.untold & Self::SHIFT {
            0 if self.shifted => g1,
            0 => g0,
            _ if self.g0 == self.g1 => g0 | g1,
            _ => Self::SHIFT,
        };
        if self.untold & needs == 0 { Some(self.used()) } else { self.active }
    }

    /// Selects G0 or G1: SI, SO.
    pub(super) fn shift(&mut self, on: bool) {
        self.shifted = on;
        self.untold &= !Self::SHIFT;
        self.active = None;
    }

    /// Makes G0 or G1 line drawing, or ASCII.
    pub(super) fn set(&mut self, g1: bool, drawing: bool) {
        let [first, second] = Self::SETS;
        if g1 {
            self.g1 = drawing;
            self.untold &= !second;
        } else {
            self.g0 = drawing;
            self.untold &= !first;
        }
        self.active = None;
    }

    /// Records whether the set in use is line drawing.
    fn learn(&mut self, drawing: bool) {
        if self.untold & Self::SHIFT == 0 {
            self.set(self.shifted, drawing);
        } else {
            self.active = Some(drawing);
        }
    }
}

/// The state that DECSC saves.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct SavedCursor {
    pub(super) pen: Pen,
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) origin: bool,
    /// Whether no seed reported its position.
    pub(super) untold: bool,
}

/// The main screen while the alternate screen is shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SavedScreen {
    pub(super) rows: Vec<Row>,
    pub(super) columns: u32,
    pub(super) keeps: bool,
    /// Whether it came with a seed, which does not report which of its rows continue.
    pub(super) seeded: bool,
}

/// The modes that matter to the grid or to a reader.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is one mode of the terminal")]
pub(super) struct Modes {
    pub(super) wrap: bool,
    pub(super) insert: bool,
    pub(super) origin: bool,
    pub(super) cursor: bool,
    /// The modes that matter only to input.
    pub(super) input: InputModes,
}

impl Default for Modes {
    fn default() -> Self {
        Self { wrap: true, insert: false, origin: false, cursor: true, input: InputModes::default() }
    }
}

/// The value of [`Terminal::last`] if no seed reported it. The real character, which is unassigned,
/// is also treated as unknown.
pub(super) const UNTOLD_LAST: char = char::MAX;

/// A terminal as tmux emulates it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Terminal {
    pub(super) rules: Rules,
    pub(super) settings: Settings,
    pub(super) grid: Grid,
    pub(super) saved: Option<SavedScreen>,
    /// The cursor's position when the alternate screen was entered.
    pub(super) saved_cursor: Option<(u32, u32)>,
    pub(super) saved_style: Style,
    /// The counterpart of `saved_style`, like [`Pen::other`].
    pub(super) saved_other: Option<Style>,
    /// The cursor's column; the width of the screen if the next character wraps.
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) upper: u32,
    pub(super) lower: u32,
    /// Whether each column has a tab stop.
    tabs: Vec<bool>,
    pub(super) modes: Modes,
    pub(super) pen: Pen,
    pub(super) decsc: SavedCursor,
    /// The run of ASCII that is being printed, at the cursor.
    pub(super) run: Option<Run>,
    /// The numbers of the pen's style: without and with line drawing, and where that is unknown.
    styles: [Option<StyleId>; 3],
    /// The character that REP repeats; [`UNTOLD_LAST`] if unknown.
    pub(super) last: Option<char>,
    pub(super) utf8: Utf8,
    /// Whether the next character joins the one before the cursor.
    pub(super) joined: bool,
    pub(super) title: String,
    pub(super) shape: Shape,
    pub(super) links: Links,
    /// Whether a character of uncertain width was printed.
    pub(super) unsure_width: bool,
    /// The reason for which this terminal may differ from tmux's.
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
            saved_other: None,
            x: 0,
            y: 0,
            upper: 0,
            lower: rows - 1,
            tabs: Vec::new(),
            modes: Modes::default(),
            pen: Pen::default(),
            decsc: SavedCursor::default(),
            styles: [None; 3],
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
        match self.pen.other {
            Some(other) if other.background != self.pen.style.background => Colour::UNTOLD,
            _ => self.pen.style.background,
        }
    }

    /// Returns whether a multi-byte character has begun and is not complete.
    pub(super) fn in_character(&self) -> bool {
        self.utf8.started()
    }

    /// Changes the style of the next characters.
    pub(super) fn set_style(&mut self, style: Style) {
        self.pen.other = None;
        self.change_style(|old| *old = style);
    }

    /// Changes the pen's style in place: making a style and comparing it with the pen's takes
    /// longer than looking up its number again.
    pub(super) fn change_style(&mut self, change: impl Fn(&mut Style)) {
        change(&mut self.pen.style);
        if let Some(other) = &mut self.pen.other {
            change(other);
            if *other == self.pen.style {
                self.pen.other = None;
            }
        }
        self.styles = [None; 3];
        self.sweep();
    }

    /// Frees the styles and clusters that no cell uses, when there are many.
    #[inline]
    pub(super) fn sweep(&mut self) {
        if self.grid.is_sweep_due() {
            let kept = self.styles.map(Option::unwrap_or_default);
            self.grid.sweep(&kept, self.saved.as_ref().map(|saved| &saved.rows[..]));
        }
    }

    /// Returns the right half of a wide character of this style.
    pub(super) fn padding(&mut self, style: StyleId) -> Cell {
        if self.rules.colours_padding && style != 0 {
            let cut = self.grid.styles.get(style).cut();
            return Cell::padding(self.grid.styles.intern(cut));
        }
        if self.rules.short_padding { Cell::PADDING } else { Cell::PADDING.lengthened() }
    }

    /// Returns the number of the pen's style.
    pub(super) fn style(&mut self, line_drawing: bool) -> StyleId {
        self.numbered(usize::from(line_drawing))
    }

    /// Returns the number of the pen's style for an unknown character set.
    pub(super) fn unsure_style(&mut self) -> StyleId {
        self.numbered(2)
    }

    fn numbered(&mut self, at: usize) -> StyleId {
        let style = self.pen.style;
        let Some(known) = self.styles.get_mut(at) else { return 0 };
        if let Some(id) = known {
            return *id;
        }
        let set = if at == 1 { attribute::CHARSET } else { 0 };
        let unsure = at == 2 || self.pen.other.is_some();
        let style = if unsure { self.pen.unsure_style() } else { style };
        self.grid.unsure |= unsure;
        let id = self.grid.styles.intern(Style { attributes: style.attributes | set, ..style });
        *known = Some(id);
        id
    }

    /// Records that the text of the cursor's row is uncertain.
    #[cold]
    pub(super) fn doubt_row(&mut self) {
        self.grid.unsure = true;
        if let Some(row) = self.grid.row_mut(self.y) {
            row.doubtful = true;
        }
    }

    pub(super) fn clusters(&mut self) -> &mut Clusters {
        &mut self.grid.clusters
    }

    // Resets the tab stops.

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

    /// Resets the pen, the character sets and the state that DECSC saved to those of a new pane, as
    /// tmux does when it resets its parser. The knowledge of the saved origin mode stays.
    pub(super) fn forget_looks(&mut self) {
        self.run = None;
        self.set_style(Style::DEFAULT);
        self.pen = Pen::default();
        let SavedCursor { origin, untold, .. } = self.decsc;
        self.decsc = SavedCursor { origin, untold, ..SavedCursor::default() };
        self.last = None;
    }

    /// Records that the pen, the saved pens, the state that DECSC saved and the character that REP
    /// repeats are unknown.
    pub(super) fn forget_pen(&mut self) {
        let pen = Pen::untold(self.rules);
        self.set_style(pen.style);
        self.pen = pen;
        (self.saved_style, self.saved_other) = (pen.style, pen.other);
        self.decsc = SavedCursor { pen, untold: true, ..SavedCursor::default() };
        self.last = Some(UNTOLD_LAST);
    }

    /// Takes over a half-read character and, with `pen`, the pen, the pen of the main screen, the
    /// state that DECSC saved and the character that REP repeats.
    pub(super) fn take_stream_state(&mut self, before: &Self, pen: bool) {
        self.utf8 = before.utf8;
        if pen {
            self.set_style(before.pen.style);
            self.pen = before.pen;
            (self.saved_style, self.saved_other) = (before.saved_style, before.saved_other);
            self.decsc = before.decsc;
            self.last = before.last;
            self.learn_pen(before);
        }
    }

    /// Determines the pen where the stream does not show it: from the style that tmux reports for a
    /// cell that was written with it. `before` shows the same screen.
    fn learn_pen(&mut self, before: &Self) {
        let pen = before.pen;
        self.pen.restored = false;
        let (looks, knows_set) = (pen.other.is_some(), pen.sets.drawing().is_some());
        if !looks && knows_set || pen.restored || (before.x, before.y) != (self.x, self.y) {
            return;
        }
        let Some(id) = before.grid.styles.find(pen.unsure_style()) else { return };
        let rows = before.grid.rows.iter().zip(&self.grid.rows).filter(|(ours, _)| !ours.doubtful);
        let cells = rows.flat_map(|(ours, theirs)| ours.cells.iter().zip(&theirs.cells));
        // All of these cells were written with this pen, or with an equal one.
        let written = cells.filter(|(ours, _)| ours.style() == id && !ours.is_cleared() && !ours.is_padding());
        let (mut told, mut same, mut ascii) = (None, true, true);
        for (ours, theirs) in written {
            same &= ours.as_ascii() == theirs.as_ascii();
            ascii &= ours.as_ascii().is_some();
            told = Some(theirs.style());
        }
        let Some(style) = told.filter(|_| same).map(|id| self.grid.styles.get(id)) else { return };
        if looks {
            self.set_style(Style { attributes: style.attributes & !attribute::CHARSET, ..style });
        }
        if !knows_set && ascii {
            self.pen.sets.learn(style.has(attribute::CHARSET));
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
        self.saved = Some(SavedScreen { rows, columns: self.columns(), keeps: self.grid.keeps, seeded: false });
        if cursor {
            self.saved_cursor = Some((self.x, self.y));
        }
        self.saved_style = self.pen.style;
        self.saved_other = self.pen.other;
        self.grid.erase(0, 0, self.columns(), self.height(), Colour::DEFAULT);
        self.grid.keeps = false;
        self.grid.changes.alternate = true;
    }

    /// Leaves the alternate screen.
    pub(super) fn alternate_off(&mut self, cursor: bool) {
        if !self.settings.alternate_screen {
            return;
        }
        let (columns, height) = (self.columns(), self.height());
        if let Some(saved) = &self.saved {
            let (saved_columns, saved_height) = (saved.columns, saved.rows.len() as u32);
            // If lines are reflowed on the way, lines that no longer fit stay in the history.
            self.resize(saved_columns, saved_height, self.rules.reflows_alternate);
        }
        if cursor && let Some((x, y)) = self.saved_cursor {
            (self.x, self.y) = (x, y);
            self.set_style(self.saved_style);
            self.pen.other = self.saved_other;
            self.pen.restored = true;
        }
        if let Some(saved) = self.saved.take() {
            self.grid.rows = saved.rows.into();
            self.grid.changes.mark_all();
            self.grid.changes.alternate = true;
            self.grid.keeps = saved.keeps;
            if saved.seeded {
                self.trouble = Some(Trouble::Untold);
            }
            self.resize(columns, height, true);
        }
        self.x = self.x.min(self.columns() - 1);
        self.y = self.y.min(self.height() - 1);
    }

    /// Fills the screen with E: DECALN.
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

    /// Sets the title, if it is printable UTF-8.
    pub(super) fn set_title(&mut self, title: &[u8]) {
        let Ok(title) = std::str::from_utf8(title) else { return };
        if self.title != title {
            // Not into the old title's memory, which can be 1 MiB.
            drop(std::mem::replace(&mut self.title, title.into()));
            self.grid.changes.title = true;
        }
    }
}
