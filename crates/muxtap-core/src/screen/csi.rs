//! Executing control characters, escapes and control sequences.

use super::{
    Trouble,
    modes::Shape,
    params::Params,
    style::Style,
    terminal::{Pen, SavedCursor, Terminal},
};

impl Terminal {
    /// Executes a control character.
    pub(super) fn control(&mut self, byte: u8) {
        self.end_character();
        self.last = None;
        match byte {
            0x07 => self.grid.changes.bells = self.grid.changes.bells.saturating_add(1),
            0x08 => self.backspace(),
            0x09 => self.tab(),
            0x0a..=0x0c => self.line_feed(false, self.background()),
            0x0d => self.carriage_return(),
            0x0e => self.pen.sets.shift(true),
            0x0f => self.pen.sets.shift(false),
            _ => {}
        }
    }

    /// Executes `ESC`, intermediates and a final byte.
    pub(super) fn escape(&mut self, intermediates: &[u8], last: u8) {
        match (intermediates, last) {
            (b"(", b'0') => self.pen.sets.set(false, true),
            (b"(", b'B') => self.pen.sets.set(false, false),
            (b")", b'0') => self.pen.sets.set(true, true),
            (b")", b'B') => self.pen.sets.set(true, false),
            (b"", b'7') => self.keep_cursor(),
            (b"", b'8') => self.restore_cursor(),
            (b"#", b'8') => self.alignment_test(),
            (b"", b'D') => self.line_feed(false, self.background()),
            (b"", b'E') => {
                self.carriage_return();
                self.line_feed(false, self.background());
            }
            (b"", b'H') => {
                if self.x < self.columns() {
                    self.set_tab(self.x, true);
                }
            }
            (b"", b'M') => self.reverse_index(),
            (b"", b'c') => self.reset(),
            (b"", b'=') => self.modes.input.keypad = true,
            (b"", b'>') => self.modes.input.keypad = false,
            (b"", b'\\') => {}
            _ => return,
        }
        self.last = None;
    }

    /// Saves the cursor: DECSC and SCP.
    fn keep_cursor(&mut self) {
        self.decsc = SavedCursor { pen: self.pen, x: self.x, y: self.y, origin: self.modes.origin, untold: false };
    }

    /// Restores the cursor: DECRC and RCP.
    fn restore_cursor(&mut self) {
        let saved = self.decsc;
        if saved.untold {
            self.trouble = Some(Trouble::Untold);
        }
        self.set_style(saved.pen.style);
        self.pen = Pen { restored: true, ..saved.pen };
        self.modes.origin = saved.origin;
        self.move_cursor(Some(saved.x), Some(saved.y), false);
    }

    /// Executes `CSI`, parameters, intermediates and a final byte.
    pub(super) fn control_sequence(&mut self, params: Params<'_>, intermediates: &[u8], last: u8) {
        // A count or a place, 1 if absent; a parameter with colons has no effect.
        let number = |at, default| params.get(at, 1, default).map(i32::unsigned_abs);
        match (intermediates, last) {
            (b"", b'@'..=b'G' | b'L' | b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`' | b'b' | b'd') => {
                if let Some(n) = number(0, 1) {
                    self.counted(last, n);
                }
            }
            (b"", b'H' | b'f') => {
                if let (Some(y), Some(x)) = (number(0, 1), number(1, 1)) {
                    self.move_cursor(Some(x - 1), Some(y - 1), true);
                }
            }
            (b"", b'J') => self.erase_display(params),
            (b"", b'K') => match params.get(0, 0, 0) {
                Some(0) => self.clear_to_line_end(),
                Some(1) => self.clear_to_line_start(),
                Some(2) => self.clear_line(self.background()),
                _ => {}
            },
            (b"", b'g') => match params.get(0, 0, 0) {
                Some(0) if self.x < self.columns() => self.set_tab(self.x, false),
                Some(3) => self.clear_tabs(),
                _ => {}
            },
            (b"", b'h') => self.modes(params, true),
            (b"", b'l') => self.modes(params, false),
            (b"?", b'h') => self.private_modes(params, true),
            (b"?", b'l') => self.private_modes(params, false),
            (b"", b'm') => self.select_graphics(params),
            (b"", b'r') => {
                let height = self.height().cast_signed();
                if let (Some(upper), Some(lower)) = (number(0, 1), number(1, height)) {
                    self.scroll_region(upper - 1, lower - 1);
                }
            }
            (b"", b's') => self.keep_cursor(),
            (b"", b'u') => self.restore_cursor(),
            (b"", b'c' | b'n' | b't') | (b">", b'c' | b'm' | b'n' | b'q') | (b"?", b'S' | b'n') => {}
            (b" ", b'q') => {
                if let Some((shape, blinks)) = params.get(0, 0, 0).and_then(Shape::asked) {
                    self.shape = shape;
                    self.modes.input.blinks = blinks.unwrap_or(self.modes.input.blinks);
                }
            }
            _ => return,
        }
        self.last = None;
    }

    /// Executes a sequence that repeats one action `n` times, or that names a place.
    fn counted(&mut self, last: u8, n: u32) {
        match last {
            b'@' => self.insert_characters(n),
            b'A' => self.cursor_up(n),
            b'B' => self.cursor_down(n),
            b'C' => self.cursor_right(n),
            b'D' => self.cursor_left(n),
            b'E' => {
                self.carriage_return();
                self.cursor_down(n);
            }
            b'F' => {
                self.carriage_return();
                self.cursor_up(n);
            }
            b'G' | b'`' => self.move_cursor(Some(n - 1), None, true),
            b'L' => self.insert_lines(n),
            b'M' => self.delete_lines(n),
            b'P' => self.delete_characters(n),
            b'S' => self.scroll_up(n),
            b'T' => self.scroll_down(n),
            b'X' => self.erase_characters(n),
            b'Z' => self.back_tab(n),
            b'b' => self.repeat(n),
            b'd' => self.move_cursor(None, Some(n - 1), true),
            _ => {}
        }
    }

    fn erase_display(&mut self, params: Params<'_>) {
        match params.get(0, 0, 0) {
            Some(0) => self.clear_to_screen_end(),
            Some(1) => self.clear_to_screen_start(),
            Some(2) => self.clear_screen(self.background()),
            Some(3) if params.get(1, 0, 0) == Some(0) => self.grid.clear_history(),
            _ => {}
        }
    }

    fn modes(&mut self, params: Params<'_>, on: bool) {
        for at in 0..params.len() {
            if params.get(at, 0, -1) == Some(4) {
                self.modes.insert = on;
            }
        }
    }

    fn private_modes(&mut self, params: Params<'_>, on: bool) {
        for at in 0..params.len() {
            match params.get(at, 0, -1) {
                Some(3) => {
                    self.move_cursor(Some(0), Some(0), true);
                    self.clear_screen(self.background());
                }
                Some(6) => {
                    self.modes.origin = on;
                    self.move_cursor(Some(0), Some(0), true);
                }
                Some(7) => self.modes.wrap = on,
                Some(25) => self.modes.cursor = on,
                Some(mode @ (47 | 1047 | 1049)) => {
                    if on {
                        self.alternate_on(mode == 1049);
                    } else {
                        self.alternate_off(mode == 1049);
                    }
                }
                Some(mode) => self.modes.input.set(mode, on),
                None => {}
            }
        }
    }

    /// Executes an OSC, given its text: the number and the arguments.
    pub(super) fn osc(&mut self, text: &[u8]) {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = text.split_at(digits);
        let rest = rest.strip_prefix(b";").unwrap_or(rest);
        match super::params::number(number).filter(|_| digits > 0) {
            Some(0 | 2) => self.set_title(rest),
            Some(8) if self.rules.keeps_links => self.hyperlink(rest),
            _ => {}
        }
    }

    /// Executes OSC 8: a link begins, or ends if the address is empty.
    fn hyperlink(&mut self, text: &[u8]) {
        let Some(end) = text.iter().position(|byte| *byte == b';') else { return };
        let (parameters, address) = text.split_at(end);
        let ids =
            parameters.split(|byte| *byte == b':').filter(|part| part.len() > 3 && part.starts_with(b"id=")).count();
        if ids < 2 {
            let link = address.get(1..).filter(|address| !address.is_empty());
            let link = link.map_or(0, |address| self.links.number(address));
            self.change_style(|style| style.link = link);
        }
    }

    /// Sets style and colors: SGR.
    fn select_graphics(&mut self, params: Params<'_>) {
        self.change_style(|style| {
            if params.len() == 0 {
                *style = Style { link: style.link, ..Style::DEFAULT };
            }
            super::sgr::apply(style, params);
        });
    }
}
