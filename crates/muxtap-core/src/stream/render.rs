//! The text of a read: the pane's lines after the bytes were printed.
//!
//! Lines stay in the order in which they were printed. Within a line, cursor movements are applied:
//! a progress bar is one line. A movement to another line only ends the line: output of a
//! full-screen program becomes readable pieces and not a picture (`capture-pane` gives the
//! picture). Columns are counted without the pane's width: a line that wraps on the screen is one
//! line of text.

use super::{
    decoder::TextDecoder,
    ring::{Chunk, Ring},
    text::{Control, TextSink},
    width::columns,
};

/// The maximum number of columns of a line that is rewritten in place; a longer one becomes several
/// lines.
pub const MAX_COLUMNS: usize = 64 * 1024;
/// The number of bytes before the end of a stream in which its unfinished line is searched.
const RESTING_BYTES: u64 = 8 * 1024;
/// The number of blanks that cursor movements may produce for each raw byte.
const BLANKS: u64 = 8;
/// A further column of a wide character or tab.
const SPACER: char = '\0';

/// Renders a decoder's events as text.
///
/// `\r\n` and `\n` end a line; a lone `\r`, `\x08`, and the CSI sequences C, D, G, K, J (to the
/// end), P, X, `@` and b act within it; A, B, E, F, H, f, d, a clearing J and a full reset end it
/// unless it is empty. Tabs stay tabs.
#[derive(Debug, Default)]
pub struct TextRenderer {
    /// The lines before the current one, and the current one while it has only text.
    out: Vec<u8>,
    /// The start of the current line in `out`.
    line: usize,
    /// The raw offset at which the current line begins.
    line_offset: u64,
    /// Whether a `\r` was read: the next event decides whether it ends the line or returns to its
    /// start.
    returned: bool,
    edit: Option<Edit>,
    /// The raw offset of the first control.
    began: Option<u64>,
}

/// A line that is rewritten in place, by columns.
#[derive(Debug, Default)]
struct Edit {
    cells: Vec<char>,
    column: usize,
}

/// The line that has begun and has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestingLine {
    /// The text.
    pub text: String,
    /// The number of its characters before the cursor.
    pub cursor: usize,
    /// The raw offset at which it begins, where known.
    pub start: Option<u64>,
}

impl From<String> for RestingLine {
    /// Makes a resting line with the cursor at the end.
    fn from(text: String) -> Self {
        Self { cursor: text.chars().count(), text, start: None }
    }
}

impl From<&str> for RestingLine {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl TextRenderer {
    /// Returns the text of all events.
    pub fn finish(mut self) -> String {
        self.settle();
        into_string(self.out)
    }

    /// Returns the last line of all events.
    pub fn into_resting_line(mut self) -> RestingLine {
        let before = match &self.edit {
            Some(edit) => {
                let shown = edit.cells.iter().take(edit.column).filter(|cell| **cell != SPACER).count();
                Some(shown + edit.column.saturating_sub(edit.cells.len()))
            }
            None if self.returned => Some(0),
            None => None,
        };
        self.settle();
        let text = into_string(self.out.split_off(self.line));
        let cursor = before.unwrap_or_else(|| text.chars().count());
        RestingLine { text, cursor, start: Some(self.line_offset) }
    }

    /// Writes the current line to `out` in its present form.
    fn settle(&mut self) {
        if let Some(edit) = self.edit.take() {
            let text: String = edit.cells.into_iter().filter(|cell| *cell != SPACER).collect();
            self.out.extend_from_slice(text.as_bytes());
        }
        self.returned = false;
    }

    fn end_line(&mut self, next: u64) {
        self.settle();
        self.out.push(b'\n');
        self.line = self.out.len();
        self.line_offset = next;
    }

    /// Moves the cursor off the line.
    fn leave_line(&mut self, offset: u64) {
        self.settle();
        if self.out.len() > self.line {
            self.end_line(offset);
        }
    }

    /// Returns the line as cells, with the cursor at its place.
    fn edit(&mut self) -> &mut Edit {
        let edit = self.edit.take().unwrap_or_else(|| {
            let mut edit = Edit::default();
            for character in String::from_utf8_lossy(self.out.get(self.line..).unwrap_or_default()).chars() {
                edit.put(character);
            }
            if edit.cells.len() > MAX_COLUMNS {
                self.out.push(b'\n');
                self.line = self.out.len();
                edit = Edit::default();
            } else {
                self.out.truncate(self.line);
            }
            if std::mem::take(&mut self.returned) {
                edit.column = 0;
            }
            edit
        });
        self.edit.insert(edit)
    }

    fn csi(&mut self, offset: u64, last: u8, first: u16) {
        let count = usize::from(first.max(1));
        // A few bytes can move the cursor far to the right: without a bound, a small stream becomes
        // a text that fills the memory.
        let reach = if matches!(last, b'C' | b'G' | b'@' | b'b') { self.reach(offset) } else { 0 };
        match last {
            b'K' | b'J' if first == 0 => match &mut self.edit {
                Some(edit) => edit.truncate(),
                // The whole line is dropped, as a progress bar does at each step.
                None if self.returned => {
                    self.out.truncate(self.line);
                    self.returned = false;
                }
                None => {}
            },
            b'K' => self.edit().erase(first),
            // Clears only the scrollback.
            b'J' if first == 3 => {}
            b'A' | b'B' | b'E' | b'F' | b'H' | b'f' | b'd' | b'J' => self.leave_line(offset),
            b'C' => {
                let edit = self.edit();
                edit.column = (edit.column + count).min(reach.max(edit.column));
            }
            b'D' => {
                let edit = self.edit();
                edit.column = edit.column.saturating_sub(count);
            }
            b'G' => self.edit().column = (count - 1).min(reach),
            b'P' => self.edit().delete(count),
            b'@' => self.edit().insert(count, reach),
            b'X' => self.edit().blank(count),
            b'b' => self.repeat(offset, count, reach),
            _ => {}
        }
    }

    /// Returns the column up to which blanks may be written in the current line.
    fn reach(&mut self, offset: u64) -> usize {
        let began = *self.began.get_or_insert(offset);
        let allowed = (offset - began.min(offset)).saturating_mul(BLANKS) as usize + MAX_COLUMNS;
        let cells = self.edit().cells.len();
        (cells + allowed.saturating_sub(self.out.len() + cells)).min(MAX_COLUMNS)
    }

    /// Repeats the character before the cursor: REP.
    fn repeat(&mut self, offset: u64, count: usize, reach: usize) {
        let edit = self.edit();
        let before = edit.cells.get(..edit.column).unwrap_or_default();
        let Some(character) = before.iter().rev().copied().find(|cell| *cell != SPACER) else { return };
        let text = character.to_string().repeat(count.min(reach.saturating_sub(edit.column)));
        self.text(offset, text.as_bytes());
    }
}

impl TextSink for TextRenderer {
    fn text(&mut self, offset: u64, text: &[u8]) {
        if !self.returned && self.edit.is_none() {
            self.out.extend_from_slice(text);
            return;
        }
        for character in String::from_utf8_lossy(text).chars() {
            let edit = self.edit();
            if edit.column >= MAX_COLUMNS {
                self.end_line(offset);
            }
            self.edit().put(character);
        }
    }

    fn control(&mut self, offset: u64, control: Control) {
        match control {
            Control::LineFeed => self.end_line(offset + 1),
            Control::CarriageReturn => match &mut self.edit {
                Some(edit) => edit.column = 0,
                None => self.returned = self.out.len() > self.line,
            },
            Control::Backspace => {
                if self.edit.is_some() || self.out.len() > self.line {
                    let edit = self.edit();
                    edit.column = edit.column.saturating_sub(1);
                }
            }
            Control::Csi(last, first, _) => self.csi(offset, last, first),
            Control::Reset => self.leave_line(offset),
        }
    }
}

impl Edit {
    fn put(&mut self, character: char) {
        if character == '\t' {
            let stop = self.column / 8 * 8 + 8;
            if self.column >= self.cells.len() {
                self.pad();
                self.cells.push('\t');
                self.cells.resize(stop, SPACER);
            }
            self.column = stop;
            return;
        }
        let width = columns(character);
        self.pad();
        let end = self.column + width;
        if self.column < self.cells.len() {
            self.part(self.column);
            self.part(end);
        }
        if self.cells.len() < end {
            self.cells.resize(end, ' ');
        }
        for (index, cell) in self.cells.iter_mut().skip(self.column).take(width).enumerate() {
            *cell = if index == 0 { character } else { SPACER };
        }
        self.column = end;
    }

    /// Extends the line with blanks to the cursor.
    fn pad(&mut self) {
        if self.cells.len() < self.column {
            self.cells.resize(self.column, ' ');
        }
    }

    /// Replaces a character on both sides of a column's left edge by blanks.
    fn part(&mut self, column: usize) {
        if self.cells.get(column) != Some(&SPACER) {
            return;
        }
        let before = self.cells.iter().take(column).rev().take_while(|cell| **cell == SPACER).count();
        let after = self.cells.iter().skip(column).take_while(|cell| **cell == SPACER).count();
        for cell in self.cells.iter_mut().skip(column.saturating_sub(before + 1)).take(before + 1 + after) {
            *cell = ' ';
        }
    }

    fn truncate(&mut self) {
        self.part(self.column);
        self.cells.truncate(self.column);
    }

    /// Erases in the line: CSI 1 K and CSI 2 K.
    fn erase(&mut self, mode: u16) {
        match mode {
            1 => {
                self.part(self.column + 1);
                let end = (self.column + 1).min(self.cells.len());
                self.cells.iter_mut().take(end).for_each(|cell| *cell = ' ');
            }
            2 => self.cells.clear(),
            _ => {}
        }
    }

    fn delete(&mut self, count: usize) {
        let len = self.cells.len();
        let (from, to) = (self.column.min(len), (self.column + count).min(len));
        self.part(from);
        self.part(to);
        self.cells.drain(from..to);
    }

    fn insert(&mut self, count: usize, reach: usize) {
        if self.column < self.cells.len() {
            self.part(self.column);
            let count = count.min(reach.saturating_sub(self.cells.len()));
            self.cells.splice(self.column..self.column, std::iter::repeat_n(' ', count));
        }
    }

    fn blank(&mut self, count: usize) {
        if self.column + count >= self.cells.len() {
            return self.truncate();
        }
        self.part(self.column);
        self.part(self.column + count);
        self.cells.iter_mut().skip(self.column).take(count).for_each(|cell| *cell = ' ');
    }
}

fn into_string(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns the text of a ring's retained bytes between two offsets.
///
/// A read that begins or ends inside a line returns only that part of the line.
pub fn render_text(ring: &Ring, from: u64, to: u64) -> String {
    let mut renderer = TextRenderer::default();
    ring.decode_from(from, to, &mut renderer);
    renderer.finish()
}

/// Returns the text of a chunk. Consecutive chunks together give the text of one chunk of all
/// bytes, except for lines that are rewritten in place: where a chunk ends between a lone `\r` and
/// the rewrite, both versions of the line appear.
pub fn render_chunk(chunk: &Chunk) -> String {
    let mut renderer = TextRenderer::default();
    chunk.decode(&mut renderer);
    renderer.finish()
}

/// The beginning of a text: whole lines, up to a given total number of characters.
///
/// A longer first line is cut where possible; one that is rewritten in place is returned whole. The
/// end of a first line that just fits is not counted.
#[derive(Debug)]
pub struct TextHead {
    renderer: TextRenderer,
    /// The maximum number of characters.
    most: usize,
    /// The number of characters of the finished lines.
    chars: usize,
    /// The number of characters of the unfinished line, while it has only text.
    line_chars: usize,
    /// The length of the text that fits, and the raw offset at which the rest begins.
    fits: Option<(usize, u64)>,
    full: bool,
}

impl TextHead {
    /// Makes a head of at most `most` characters.
    pub fn new(most: usize) -> Self {
        Self { renderer: TextRenderer::default(), most: most.max(1), chars: 0, line_chars: 0, fits: None, full: false }
    }

    /// Returns the text, and the raw offset at which the rest begins; `None` where all of it fits.
    pub fn finish(mut self) -> (String, Option<u64>) {
        if !self.full {
            self.renderer.settle();
            let line = char_count(self.renderer.out.get(self.renderer.line..).unwrap_or_default());
            if self.chars + line <= self.most || self.fits.is_none() {
                return (into_string(self.renderer.out), None);
            }
        }
        let Some((len, offset)) = self.fits else { return (into_string(self.renderer.out), None) };
        self.renderer.out.truncate(len);
        (into_string(self.renderer.out), Some(offset))
    }

    /// Counts the lines that have ended since `line`.
    fn count_from(&mut self, line: usize) {
        let end = self.renderer.line;
        if end == line {
            return;
        }
        self.chars += char_count(self.renderer.out.get(line..end).unwrap_or_default());
        self.line_chars = char_count(self.renderer.out.get(end..).unwrap_or_default());
        self.full = self.chars >= self.most;
        if self.chars <= self.most || self.fits.is_none() {
            self.fits = Some((end, self.renderer.line_offset));
        }
    }
}

impl TextSink for TextHead {
    fn text(&mut self, offset: u64, text: &[u8]) {
        if self.full {
            return;
        }
        let line = self.renderer.line;
        let plain = !self.renderer.returned && self.renderer.edit.is_none();
        let count = char_count(text);
        let left = self.most.saturating_sub(self.chars + self.line_chars);
        if !plain || count <= left {
            self.line_chars += count;
            self.renderer.text(offset, text);
            return self.count_from(line);
        }
        self.full = true;
        if self.fits.is_none() {
            let at = String::from_utf8_lossy(text).char_indices().nth(left).map_or(text.len(), |(at, _)| at);
            self.renderer.text(offset, text.get(..at).unwrap_or_default());
            self.fits = Some((self.renderer.out.len(), offset + at as u64));
        }
    }

    fn control(&mut self, offset: u64, control: Control) {
        if self.full {
            return;
        }
        let (line, length) = (self.renderer.line, self.renderer.out.len());
        self.renderer.control(offset, control);
        if self.renderer.line == line && self.renderer.out.len() < length && self.renderer.edit.is_none() {
            // The line was erased.
            self.line_chars = char_count(self.renderer.out.get(line..).unwrap_or_default());
        }
        self.count_from(line);
    }
}

/// Returns the last characters of a text, at most `most`, and the number of characters before them:
/// whole lines, unless one is longer than that.
pub fn text_end(text: &str, most: usize) -> (&str, usize) {
    let count = text.chars().count();
    if count <= most {
        return (text, 0);
    }
    let at = text.char_indices().nth(count - most).map_or(text.len(), |(at, _)| at);
    let end = text.get(at..).unwrap_or_default();
    let end = end.split_once('\n').filter(|(_, whole)| !whole.is_empty()).map_or(end, |(_, whole)| whole);
    (end, count - end.chars().count())
}

/// Returns the number of characters of valid UTF-8.
fn char_count(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

/// Returns the rendered text of complete output, without a ring.
pub fn render_bytes(bytes: &[u8]) -> String {
    let mut renderer = TextRenderer::default();
    TextDecoder::default().feed(0, bytes, &mut renderer);
    renderer.finish()
}

/// Returns the line at the end of a ring that has begun and has not ended: usually the prompt. Of a
/// line of more than 8 KiB, only the end.
pub fn resting_line(ring: &Ring) -> RestingLine {
    let from = ring.end().saturating_sub(RESTING_BYTES).max(ring.start());
    let mut renderer = TextRenderer { line_offset: from, ..TextRenderer::default() };
    ring.decode_from(from, ring.end(), &mut renderer);
    renderer.into_resting_line()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stream::{decoder::tests::terminal_bytes, ring::Reading, text::NullSink};

    fn render(bytes: &str) -> String {
        render_bytes(bytes.as_bytes())
    }

    /// Reads a ring in pages of `most` characters.
    fn pages(ring: &Ring, most: usize) -> Vec<String> {
        let (mut pages, mut from) = (Vec::new(), ring.start());
        loop {
            let mut head = TextHead::new(most);
            ring.decode_from(from, ring.end(), &mut head);
            let (page, rest) = head.finish();
            pages.push(page);
            let Some(rest) = rest else { return pages };
            assert!(rest > from, "no page is empty for ever: {pages:?}");
            from = rest;
        }
    }

    #[test]
    fn pages_of_whole_lines_are_together_the_whole() {
        let lines: Vec<_> = (0..500).map(|number| format!("\x1b[32mline\x1b[0m {number} ä\r\n")).collect();
        let lines = lines.concat();
        let long = "ü".repeat(1000);
        for (bytes, most) in
            [(lines.clone(), 100), (lines.clone(), 1), (long.clone(), 7), (format!("{lines}{long}\r\n{lines}"), 300)]
        {
            let ring = ring(bytes.as_bytes());
            let pages = pages(&ring, most);
            assert_eq!(pages.concat(), render_text(&ring, 0, ring.end()));
            // The end of a line that just fits is not counted.
            assert!(pages.iter().all(|page| page.chars().count() <= most + 1), "{most}");
        }
        let first = pages(&ring(lines.as_bytes()), 100).remove(0);
        assert!(first.ends_with('\n') && first.chars().count() > 85, "{first:?}");
        // A line that is rewritten in place is returned whole, and once.
        let bar: Vec<_> = (0..50).map(|number| format!("\r{number} of 50 are done")).collect();
        let ring = ring(format!("a\r\n{}\r\nend\r\n", bar.concat()).as_bytes());
        assert_eq!(pages(&ring, 20), ["a\n49 of 50 are done\n", "end\n"]);
        let erased: Vec<_> = (0..50).map(|number| format!("\r\x1b[K{number} of 50 are done")).collect();
        let erased = self::ring(format!("a\r\n{}\r\nend\r\n", erased.concat()).as_bytes());
        assert_eq!(pages(&erased, 20), ["a\n49 of 50 are done\n", "end\n"]);
        assert_eq!(pages(&ring, 19), ["a\n", "49 of 50 are done\n", "end\n"]);
    }
    fn ring(bytes: &[u8]) -> Ring {
        let mut ring = Ring::new(1 << 20);
        ring.push(bytes, &mut NullSink);
        ring
    }

    #[test]
    fn both_line_ends_are_one() {
        assert_eq!(render("a\r\nb\nc\r\r\nd"), "a\nb\nc\nd");
    }

    #[test]
    fn a_progress_bar_is_one_line() {
        assert_eq!(render("10 %\r50 %\r100 %\r\ndone\r\n"), "100 %\ndone\n");
        assert_eq!(render("working\r\u{1b}[Kok\r\n"), "ok\n");
        assert_eq!(render("working\r\u{1b}[2Kok"), "ok");
        assert_eq!(render("abc\rX"), "Xbc");
        assert_eq!(render("abc\x08\x08X\x08\x08\x08\x08Y"), "YXc");
    }

    #[test]
    fn the_cursor_is_obeyed_within_a_line() {
        assert_eq!(render("abcd\u{1b}[2DX"), "abXd");
        assert_eq!(render("ab\u{1b}[3Cc"), "ab   c");
        assert_eq!(render("abcd\u{1b}[2GX"), "aXcd");
        assert_eq!(render("abcd\u{1b}[2G\u{1b}[2P"), "ad");
        assert_eq!(render("abcd\u{1b}[2G\u{1b}[2@"), "a  bcd");
        assert_eq!(render("abcd\u{1b}[2G\u{1b}[2X"), "a  d");
        assert_eq!(render("abcd\u{1b}[2G\u{1b}[X\u{1b}[K"), "a");
        assert_eq!(render("abcd\u{1b}[2G\u{1b}[1K"), "  cd");
        assert_eq!(render("-\u{1b}[3b"), "----");
    }

    #[test]
    fn wide_characters_take_two_columns_and_tabs_as_many_as_are_left() {
        assert_eq!(render("\u{65e5}x\x08\x08\x08ab"), "abx");
        assert_eq!(render("\u{65e5}x\x08\x08b"), " bx");
        assert_eq!(render("a\tb\x08\x08c"), "a      cb");
        assert_eq!(render("a\tb\rX"), "X\tb");
    }

    #[test]
    fn colours_and_charsets_leave_the_text() {
        assert_eq!(render("\u{1b}[1;32mok\u{1b}[m\u{1b}(B\x0f!"), "ok!");
    }

    #[test]
    fn a_movement_to_another_line_ends_the_line_unless_it_is_empty() {
        assert_eq!(render("\u{1b}[H\u{1b}[2Jone\u{1b}[2;1Htwo\u{1b}[3;1H\u{1b}[Kthree"), "one\ntwo\nthree");
        assert_eq!(render("a\u{1b}[Ab\u{1b}cc"), "a\nb\nc");
        assert_eq!(render("ab\r\u{1b}[Jc"), "c", "erasing to the end stays on the line");
    }

    #[test]
    fn a_return_at_the_end_is_not_applied_yet() {
        assert_eq!(render("abc\r"), "abc");
        let ring = ring(b"abc\r\ndef");
        assert_eq!(render_text(&ring, 0, 4) + &render_text(&ring, 4, 8), "abc\ndef");
    }

    #[test]
    fn the_resting_line_knows_its_cursor_and_where_it_begins() {
        let line = resting_line(&ring(b"out\r\n\x1b[1mhost\x1b[0m% \x1b[K"));
        assert_eq!(line, RestingLine { text: "host% ".into(), cursor: 6, start: Some(5) });
        let line = resting_line(&ring(b"\r$           12:00\r\x1b[2C"));
        assert_eq!((line.text.as_str(), line.cursor), ("$           12:00", 2));
        assert_eq!(resting_line(&ring(b"out\r\n")), RestingLine { text: String::new(), cursor: 0, start: Some(5) });
    }

    /// S11.
    #[test]
    fn a_few_bytes_render_to_a_bounded_amount_of_text() {
        let text = render(&"\u{1b}[65535Cx\n".repeat(10_000));
        assert!(text.len() < 4 << 20, "{}", text.len());
        let text = render(&"x\u{1b}[65535b\n".repeat(10_000));
        assert!(text.len() < 4 << 20, "{}", text.len());
        let long = format!("{}\rX", "y".repeat(MAX_COLUMNS + 1));
        assert!(render(&long).ends_with("y\nX"));
    }

    proptest! {
        /// S8: consecutive reads together give the same text as one read.
        #[test]
        fn consecutive_reads_render_the_same_text_as_one_read(
            lines in "([ -~\u{e9}\u{65e5}]{0,8}(\n|\r\n)){0,12}[ -~]{0,5}",
            most in 1..20_u64,
        ) {
            let ring = ring(lines.as_bytes());
            let (mut parts, mut from, mut more) = (String::new(), 0, true);
            while more {
                let chunk = ring.read(from, Reading { most, whole_sequences: true, at_end: true });
                parts += &render_chunk(&chunk);
                (from, more) = (chunk.end, chunk.more);
            }
            prop_assert_eq!(&parts, &render_text(&ring, 0, ring.end()));
            prop_assert_eq!(parts, lines.replace("\r\n", "\n"));
        }

        #[test]
        fn any_bytes_become_text_without_controls(bytes in terminal_bytes()) {
            let text = render_bytes(&bytes);
            let controls = |character: char| character < ' ' && character != '\n' && character != '\t';
            prop_assert!(!text.contains(controls), "{:?}", text);
            let line = resting_line(&ring(&bytes)).text;
            prop_assert_eq!(text.rsplit('\n').next().unwrap_or_default(), line);
        }

        /// A line that is printed only once is rendered without cells; the result must be the same.
        #[test]
        fn both_ways_to_render_a_line_agree(line in "[ -~\u{e9}\u{65e5}\t]{0,40}") {
            prop_assert_eq!(render(&format!("{line}\x1b[D\x1b[C")), line.clone());
        }
    }
}
