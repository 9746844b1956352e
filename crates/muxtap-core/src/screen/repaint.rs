//! A screen as the bytes that draw it on an empty terminal of the same size.

use std::io::Write as _;

use super::{
    Screen, capture,
    cell::append_text,
    parser::Parser,
    style::Style,
    terminal::{Pen, Sets, Terminal},
};

impl Screen {
    /// Returns output that shows this screen on a terminal of the same size, whatever that showed
    /// before: the rows with their styles, the main screen behind the alternate one, the margins,
    /// tab stops, modes, the title, the saved cursor, the pen and the cursor.
    ///
    /// The output contains neither history nor hyperlinks, nor features that only tmux has: a tab
    /// as a unit, and a wide character whose right half was overwritten. A half-read sequence or
    /// character ([`Screen::at_rest`]) is not repeated.
    pub fn repaint(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.alternate() {
            let mut main = self.clone();
            main.parser = Parser::default();
            main.terminal.alternate_off(true);
            main.terminal.repaint(&mut out);
            out.extend_from_slice(b"\x1b[?1049h");
        } else {
            out.extend_from_slice(b"\x1b[?1049l");
        }
        self.terminal.repaint(&mut out);
        if !self.terminal.title.is_empty() {
            print(&mut out, format_args!("\x1b]2;{}\x1b\\", self.terminal.title));
        }
        out
    }
}

impl Terminal {
    fn repaint(&self, out: &mut Vec<u8>) {
        // Captures write line drawing as G1.
        out.extend_from_slice(b"\x1b[0m\x0f\x1b(B\x1b)0\x1b[r\x1b[?6l\x1b[4l\x1b[?7h\x1b[H\x1b[2J");
        let mut joined = false;
        for y in 0..self.height() {
            let goes_on = self.is_full(y) && self.grid.rows.get(y as usize).is_some_and(|row| row.wrapped);
            let row = self.row_bytes(y, goes_on);
            let blank = row.iter().all(|byte| *byte == b' ');
            if !blank {
                // A row that continues in the next one is printed over the edge: a reader of the
                // text then finds it in one piece.
                if !joined {
                    print(out, format_args!("\x1b[{};1H", y + 1));
                }
                out.extend_from_slice(b"\x1b[0m\x0f");
                out.extend_from_slice(&row);
            }
            joined = !blank && goes_on;
        }
        out.extend_from_slice(b"\x1b[0m\x0f");
        self.repaint_tabs(out);
        if self.upper != 0 || self.lower + 1 != self.height() {
            print(out, format_args!("\x1b[{};{}r", self.upper + 1, self.lower + 1));
        }
        self.repaint_place(out, self.decsc.x, self.decsc.y, self.decsc.origin);
        self.repaint_pen(out, &self.decsc.pen);
        out.extend_from_slice(b"\x1b7\x1b[0m\x0f\x1b(B\x1b)0");
        if self.x >= self.columns() {
            // The next character wraps: only printing the row's last character produces that state.
            let full = self.is_full(self.y);
            self.repaint_place(out, if full { 0 } else { self.columns() - 1 }, self.y, self.modes.origin);
            out.extend(if full { self.row_bytes(self.y, true) } else { b" ".to_vec() });
            out.extend_from_slice(b"\x1b[0m\x0f");
        } else {
            self.repaint_place(out, self.x, self.y, self.modes.origin);
        }
        self.repaint_pen(out, &self.pen);
        if !self.modes.wrap {
            out.extend_from_slice(b"\x1b[?7l");
        }
        if self.modes.insert {
            out.extend_from_slice(b"\x1b[4h");
        }
        out.extend_from_slice(if self.modes.cursor { b"\x1b[?25h" } else { b"\x1b[?25l" });
    }

    /// Returns the bytes that draw a row's cells up to the last visible one, on a terminal without
    /// a style. A tab becomes blanks, since a tab would only move the cursor. A later character
    /// over one of them leaves the others unchanged, whereas tmux clears them. `whole` includes
    /// blanks at the end.
    fn row_bytes(&self, y: u32, whole: bool) -> Vec<u8> {
        let Some(row) = self.grid.rows.get(y as usize) else { return Vec::new() };
        let columns = self.columns() as usize;
        let cells = row.cells.get(..columns.min(row.cells.len())).unwrap_or_default();
        let mut out = Vec::with_capacity(cells.len());
        let (mut shown, mut last, mut in_tab, mut covered) = (0, Style::DEFAULT, false, 0_u32);
        for (column, cell) in cells.iter().enumerate() {
            if cell.is_padding() {
                // The right half of a wide character is printed with it; a leftover right half is
                // blank.
                if in_tab || covered == 0 {
                    out.push(b' ');
                    shown = if in_tab { out.len() } else { shown };
                }
                covered = covered.saturating_sub(1);
                continue;
            }
            if covered > 0 {
                // The right half of the wide character before this cell was overwritten.
                print(&mut out, format_args!("\x1b[{}G", column + 1));
            }
            covered = cell.width().saturating_sub(1);
            let style = Style { link: 0, ..self.grid.styles.get(cell.style()).shown() };
            if style != last {
                capture::change(&last, &style, self.rules, &mut out);
                last = style;
            }
            let start = out.len();
            append_text(*cell, &self.grid.clusters, &mut out);
            in_tab = out.get(start..) == Some(b"\t");
            if in_tab {
                out.truncate(start);
                out.push(b' ');
            }
            if out.get(start..) != Some(b" ") || style != Style::DEFAULT || in_tab {
                shown = out.len();
            }
        }
        if !whole {
            out.truncate(shown);
        }
        out
    }

    /// Returns whether a row has a cell in every column.
    fn is_full(&self, y: u32) -> bool {
        self.grid.rows.get(y as usize).is_some_and(|row| row.cells.len() >= self.columns() as usize)
    }

    fn repaint_tabs(&self, out: &mut Vec<u8>) {
        if (0..self.columns()).all(|column| self.is_tab(column) == (column > 0 && column % 8 == 0)) {
            return;
        }
        out.extend_from_slice(b"\x1b[3g");
        for column in (0..self.columns()).filter(|column| self.is_tab(*column)) {
            print(out, format_args!("\x1b[1;{}H\x1bH", column + 1));
        }
    }

    /// Moves the cursor. In origin mode, rows count from the upper margin.
    fn repaint_place(&self, out: &mut Vec<u8>, x: u32, y: u32, origin: bool) {
        let (mode, top) = if origin { ('h', self.upper) } else { ('l', 0) };
        print(out, format_args!("\x1b[?6{mode}\x1b[{};{}H", y.saturating_sub(top) + 1, x + 1));
    }

    fn repaint_pen(&self, out: &mut Vec<u8>, pen: &Pen) {
        capture::change(&Style::DEFAULT, &Style { link: 0, ..pen.style }, self.rules, out);
        let Sets { g0, g1, shifted, .. } = pen.sets;
        out.extend_from_slice(if g0 { b"\x1b(0" } else { b"\x1b(B" });
        out.extend_from_slice(if g1 { b"\x1b)0" } else { b"\x1b)B" });
        out.push(if shifted { 0x0e } else { 0x0f });
    }
}

fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        protocol::version::Version,
        screen::{
            Rules, Settings, Size,
            cell::{Cell, append_text},
        },
    };

    fn empty(version: &str) -> Screen {
        let rules = Rules::for_version(Version::parse(version.as_bytes()).unwrap());
        Screen::new(Size { columns: 10, rows: 4 }, rules, Settings::default())
    }

    type Shown = (Vec<(Vec<u8>, Style)>, crate::screen::Cursor, bool, String);

    /// Returns everything visible, column by column, and the state that later output depends on.
    fn shown(screen: &Screen) -> Shown {
        let grid = &screen.terminal.grid;
        let mut cells = Vec::new();
        for row in &grid.rows {
            let mut tab = None;
            for column in 0..10 {
                let cell = row.cells.get(column).copied().unwrap_or(Cell::CLEARED);
                let (mut text, style) = (Vec::new(), grid.styles.get(cell.style()));
                append_text(cell, &grid.clusters, &mut text);
                cells.push(match tab {
                    Some(style) if cell.is_padding() => (b" ".to_vec(), style),
                    _ if cell.is_padding() => (b" ".to_vec(), Style::DEFAULT),
                    _ if text == b"\t" => (b" ".to_vec(), *tab.insert(style)),
                    _ => {
                        tab = None;
                        (text, style)
                    }
                });
            }
        }
        (cells, screen.cursor(), screen.alternate(), screen.title().to_owned())
    }

    /// Draws a screen on another one, and continues with both.
    fn check(output: &[u8], then: &[u8]) {
        for version in ["3.2a", "3.4", "3.6a"] {
            let mut screen = empty(version);
            screen.feed(output);
            let mut copy = empty(version);
            copy.feed(b"\x1b[31;7mrubbish\x1b[2;3r\x1b[?6h\x1b(0\x1b[4h");
            copy.feed(&screen.repaint());
            let drawn = screen.repaint();
            assert_eq!(shown(&copy), shown(&screen), "{version}: {} {}", output.escape_ascii(), drawn.escape_ascii());
            screen.feed(then);
            copy.feed(then);
            let (copy, screen) = (shown(&copy), shown(&screen));
            assert_eq!(copy, screen, "{version}: {} then {}", output.escape_ascii(), then.escape_ascii());
        }
    }

    #[test]
    fn a_repaint_shows_the_same_and_goes_on_the_same() {
        let then = b"x\r\ny\tz\x1b8w\n\n\n\x1b[?1049lm";
        for output in [
            &b""[..],
            b"plain\r\n\x1b[1;31mred \x1b[42mback\x1b[0m\r\n",
            b"0123456789",
            b"\x1b[33m0123456789",
            b"0123456789abcdef",
            b"\x1b[4;1H0123456789",
            "\u{4e16}\u{754c}\u{4e16}\u{754c}\u{4e16}".as_bytes(),
            "a\u{301}e".as_bytes(),
            b"\x1b(0lqk\x1b(B\x1b)0\x0exx",
            b"\x1b[2;3r\x1b[?6h\x1b[2;2Ha",
            b"\x1b[2;5H\x1b[1m\x1b7\x1b[0m\x1b[3;3H",
            b"\x1b[?7l\x1b[4hab",
            b"\x1b[3g\x1b[1;4H\x1bHa",
            b"main\x1b[?1049h\x1b[2;2Halt\x1b[?25l",
            b"\x1b]2;a title\x07text",
            b"\x1b[44m\x1b[2J\x1b[2;2Hx\x1b[K",
            b"\x1b[1;44m0123456789\x1b[1J",
        ] {
            check(output, then);
        }
    }

    #[test]
    fn a_wrapped_line_is_drawn_in_one_piece() {
        let mut screen = empty("3.4");
        screen.feed(b"pass: 0123456789");
        let drawn = String::from_utf8(screen.repaint()).unwrap();
        assert!(drawn.contains("pass: 0123\x1b[0m\x0f456789"), "{drawn:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_drawn_as_it_was(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "bc ", "0123456789", "\r\n", "\n", "\r", "\x08", "\x1b[31m", "\x1b[0m", "\x1b[1;44m",
                    "\x1b[2;3H", "\x1b[K", "\x1b[1J", "\x1b[L", "\x1b[M", "\x1b[P", "\x1b[2@", "\x1b[?1049h",
                    "\x1b[?1049l", "\x1b7", "\x1b8", "\x1b[2;3r", "\x1b[r", "\x1bM", "\x1b(0", "\x1b(B",
                ]),
                0..40,
            ),
        ) {
            check(pieces.concat().as_bytes(), b"next\r\n\x1b8saved");
        }
    }
}
