//! Replaces secrets in a terminal's output before it is stored or shown.
//!
//! Patterns match the text of a line as printed: escape sequences between its characters,
//! backspaces and carriage returns are applied, however the output is split into chunks. If the
//! cursor moves elsewhere, they also match each line as the screen then shows it ([`shown`]). Each
//! character of a match becomes as many `*` as it has columns: the screen keeps its shape. Text
//! that may still become a match is held back.

mod nfa;
mod shown;
mod stored;
mod tokens;

use std::{collections::VecDeque, time::Duration};

use muxtap_api::{Result, Size};
use muxtap_core::width;
use muxtap_engine::Engine;
use serde::{Deserialize, Serialize};

use self::{
    nfa::{Nfa, Search},
    shown::{NUMBERS, Shown},
    tokens::{Token, Tokens},
};

pub(crate) use stored::StoredRedactor;

/// The maximum size of held output, in bytes; beyond it, the oldest is written unchanged.
pub(crate) const HELD_BYTES: usize = 64 * 1024;
/// How long output is held back while its pane rests.
pub(crate) const HELD_TIME: Duration = Duration::from_secs(5);
/// The maximum number of columns of a line; after them another line begins.
pub(crate) const LINE_COLUMNS: usize = 16 * 1024;

/// Compiled patterns of secrets; clones share them.
#[derive(Clone, Debug)]
pub struct Secrets {
    nfa: std::sync::Arc<Nfa>,
    /// The patterns, from which another daemon compiles the same.
    patterns: std::sync::Arc<[String]>,
}

impl Secrets {
    /// Compiles regexes. Error: `INVALID_ARGUMENT` for one that is invalid, too large, or matches
    /// the empty text.
    pub(crate) fn new(patterns: &[String]) -> Result<Self> {
        Ok(Self { nfa: std::sync::Arc::new(Nfa::new(patterns)?), patterns: patterns.into() })
    }

    /// Returns the patterns.
    pub(crate) fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Compiles regexes without blocking other tasks. Errors: as `Secrets::new`, and
    /// `RESOURCE_LIMIT`.
    pub async fn compile(engine: &Engine, patterns: Vec<String>) -> Result<Self> {
        let texts = patterns.clone();
        engine.compile(texts.iter().map(String::as_str), move || Self::new(&patterns)).await
    }

    /// Replaces the secrets in a complete text.
    pub(crate) fn replace(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let (mut search, mut found, mut secret) = (Search::default(), Vec::new(), Ranges::default());
            for (at, character) in line.chars().enumerate() {
                search.step(&self.nfa, character, at, &mut found);
                found.drain(..).for_each(|range| secret.add(range));
            }
            for (at, character) in line.chars().enumerate() {
                if secret.holds(at) {
                    (0..width::of_text(character.encode_utf8(&mut [0; 4]))).for_each(|_| out.push('*'));
                } else {
                    out.push(character);
                }
            }
        }
        out
    }
}

/// Ranges in the order of their ends; ranges that touch are merged.
#[derive(Debug, Default)]
struct Ranges(Vec<(usize, usize)>);

impl Ranges {
    /// Adds a range that ends no earlier than those before it.
    fn add(&mut self, (mut from, mut to): (usize, usize)) {
        while let Some((first, end)) = self.0.pop_if(|(_, end)| *end >= from) {
            (from, to) = (from.min(first), to.max(end));
        }
        self.0.push((from, to));
    }

    fn holds(&self, place: usize) -> bool {
        let next = self.0.partition_point(|(_, end)| *end <= place);
        self.0.get(next).is_some_and(|(from, _)| *from <= place)
    }
}

/// A piece of output, and when it was printed.
pub(crate) type Piece = (Duration, Vec<u8>);

/// Held output: a character and its place, or bytes that print none.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Held {
    at: Duration,
    /// The number of its line, and its first column in it; `None` for bytes that print nothing.
    place: Option<(u64, usize)>,
    columns: usize,
    secret: bool,
    /// Whether the shown line may still make a secret of it.
    open: bool,
    bytes: Vec<u8>,
}

/// The redaction of one stream of output.
#[derive(Debug)]
pub(crate) struct Redactor {
    secrets: Secrets,
    tokens: Tokens,
    held: VecDeque<Held>,
    held_bytes: usize,
    line: Line,
    search: Search,
    /// The number of columns of the line that were searched.
    searched: usize,
    /// Whether the line has changed in the searched part.
    changed: bool,
    /// The last match in the line, while characters are appended to it: those after the match are
    /// not marked yet.
    marked: Option<(usize, usize)>,
    /// The terminal's columns.
    columns: usize,
    /// The screen; `None`: the text is shown on no screen.
    shown: Option<Box<Shown>>,
    /// The number of the first held item.
    first: u64,
    /// Whether the cursor's row may show other text than that of the line.
    apart: bool,
    /// Whether lines that have ended are held too, up to the end of this piece of output.
    defers: bool,
    /// The number of replaced characters.
    replaced: u64,
    out: Vec<Piece>,
}

/// The current line: the characters of its columns. A wide one is followed by an empty column.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Line {
    number: u64,
    cells: Vec<Option<char>>,
    /// The column of the next character; it counts on where a line wraps.
    column: usize,
    /// Whether a character was printed last: at the edge, the cursor is then still in its row.
    printed: bool,
}

impl Redactor {
    /// Creates a redactor for a terminal of this size.
    pub(crate) fn new(secrets: Secrets, size: Size) -> Self {
        Self { shown: Some(Box::new(Shown::new(size))), ..Self::for_text(secrets, size.width) }
    }

    /// Creates a redactor for text that is shown on no screen, with this many columns.
    pub(crate) fn for_text(secrets: Secrets, columns: u16) -> Self {
        Self {
            secrets,
            tokens: Tokens::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            line: Line::default(),
            search: Search::default(),
            searched: 0,
            changed: false,
            marked: None,
            columns: usize::from(columns.max(1)),
            shown: None,
            first: 0,
            apart: false,
            defers: false,
            replaced: 0,
            out: Vec::new(),
        }
    }

    /// Starts in a line that already shows text, at this column: the text may be the beginning of a
    /// secret.
    pub(crate) fn begin_in_line(&mut self, cells: Vec<Option<char>>, column: usize) {
        let number = self.line.number + 1;
        let printed = column > 0 && column.is_multiple_of(self.columns);
        self.line = Line { number, cells, column: column.min(LINE_COLUMNS), printed };
        self.line.cells.truncate(LINE_COLUMNS);
        self.changed = true;
        self.look();
    }

    /// Sets the terminal's size from here on.
    pub(crate) fn resize(&mut self, size: Size) {
        self.columns = usize::from(size.width.max(1));
        if let Some(shown) = &mut self.shown {
            shown.resize(size);
        }
    }

    /// Returns the number of replaced characters.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Drops a string that tmux gave up (N57).
    pub(crate) fn give_up(&mut self) {
        self.tokens.give_up();
    }

    /// Returns whether [`Redactor::flush`] would return held output.
    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty() || self.tokens.is_open()
    }

    /// Processes output. Returns what can be written of it and of the held output.
    pub(crate) fn feed(&mut self, at: Duration, bytes: &[u8]) -> Vec<Piece> {
        let mut rest = bytes;
        let moves = self.apart || !self.tokens.is_ground() || tokens::moves(bytes);
        self.defers = moves && self.shown.is_some();
        while !rest.is_empty() {
            if !self.defers
                && self.tokens.is_ground()
                && self.held.is_empty()
                && self.search.is_empty()
                && self.is_at_end()
            {
                let plain = self.plain_run(rest);
                if plain > 0 {
                    let (run, behind) = rest.split_at(plain.min(rest.len()));
                    self.skip_plain(at, run);
                    rest = behind;
                    continue;
                }
            }
            let mut tokens = std::mem::take(&mut self.tokens);
            let (token, behind) = tokens.next(rest);
            self.tokens = tokens;
            rest = behind;
            match token {
                Some(token) => self.take(at, token),
                None => break,
            }
        }
        self.look();
        self.look_at_screen();
        self.release();
        std::mem::take(&mut self.out)
    }

    /// Returns all held output, because the output ends or rests here.
    pub(crate) fn flush(&mut self, at: Duration) -> Vec<Piece> {
        self.look();
        self.look_at_screen();
        self.release_until(self.held.len());
        let open = self.tokens.take_open();
        if !open.is_empty() {
            self.emit(at, &open);
        }
        std::mem::take(&mut self.out)
    }

    /// Returns whether the next character comes after all others of its line, and those were
    /// searched.
    fn is_at_end(&self) -> bool {
        !self.changed && self.line.column == self.line.cells.len() && self.searched == self.line.cells.len()
    }

    /// Returns the length of the text at the start of `bytes` in which no secret can begin.
    fn plain_run(&self, bytes: &[u8]) -> usize {
        let room = LINE_COLUMNS.saturating_sub(self.line.column);
        let plain = |byte: &&u8| (b' '..=b'~').contains(*byte) && !self.secrets.nfa.begins(**byte);
        bytes.iter().take(room).take_while(plain).count()
    }

    fn skip_plain(&mut self, at: Duration, run: &[u8]) {
        self.line.cells.extend(run.iter().map(|byte| Some(char::from(*byte))));
        self.line.column = self.line.cells.len();
        self.searched = self.line.column;
        self.line.printed = true;
        if let Some(shown) = &mut self.shown {
            shown.other(run);
        }
        self.emit(at, run);
    }

    fn take(&mut self, at: Duration, token: Token) {
        match token {
            Token::Character(character, bytes) => self.print(at, character, bytes),
            Token::Control(byte) => {
                self.show(&[byte]);
                self.control(byte);
                self.hold(at, None, 0, vec![byte]);
            }
            Token::Sequence(bytes) => {
                self.show(&bytes);
                let number = self.line.number;
                self.sequence(&bytes);
                self.apart |= self.line.number != number;
                self.hold(at, None, 0, bytes);
            }
            Token::Text(bytes) => {
                let before = String::from_utf8_lossy(&bytes).into_owned();
                let text = self.secrets.replace(&before);
                self.replaced += u64::from(text != before);
                self.hold(at, None, 0, if text == before { bytes } else { text.into_bytes() });
            }
        }
        if self.held_bytes > HELD_BYTES {
            self.look();
            self.look_at_screen();
            self.release_until(self.held.len());
        }
    }

    /// Moves the cursor on the screen, or changes what it shows, after a look at the cursor's line.
    fn show(&mut self, bytes: &[u8]) {
        let Some(shown) = &mut self.shown else { return };
        let is_end = matches!(bytes, [b'\n' | 0x0b | 0x0c]);
        if self.defers && (is_end || matches!(bytes, [0x1b, ..]) && bytes.last() != Some(&b'm')) {
            shown.look_at_cursor(&self.secrets.nfa);
        }
        // A row that comes from below is empty.
        self.apart &= !(is_end && shown.is_at_bottom());
        shown.other(bytes);
        self.mark_found(false);
    }

    /// Looks for secrets in the lines that the screen shows, unless each is the text of a line.
    fn look_at_screen(&mut self) {
        if !self.defers {
            return;
        }
        if let Some(shown) = &mut self.shown {
            shown.look(&self.secrets.nfa);
            shown.look_at_cursor(&self.secrets.nfa);
        }
        self.held.iter_mut().for_each(|held| held.open = false);
        self.mark_found(true);
    }

    /// Marks the held characters that the screen shows in secrets; `opens`: also those that may
    /// become some.
    fn mark_found(&mut self, opens: bool) {
        let first = self.first % NUMBERS;
        let found = self.shown.iter_mut().flat_map(|shown| shown.found.drain(..));
        for found in found {
            let index = (found.number + NUMBERS - first) % NUMBERS;
            let held = usize::try_from(index).ok().and_then(|index| self.held.get_mut(index));
            if let Some(held) = held.filter(|held| held.place.is_some()) {
                held.secret |= found.is_whole;
                held.open |= opens && !found.is_whole;
            }
        }
    }

    fn print(&mut self, at: Duration, character: char, bytes: Vec<u8>) {
        let columns = width::of_text(character.encode_utf8(&mut [0; 4]));
        let number = self.first + self.held.len() as u64;
        if let Some(shown) = &mut self.shown {
            if columns == 0 { shown.other(&bytes) } else { shown.character(number, &bytes) }
        }
        if columns == 0 {
            // Part of the character before it, and not of the searched text.
            let place = self.line.column.checked_sub(1).map(|column| (self.line.number, column));
            return self.hold(at, place, 0, bytes);
        }
        if self.line.column + columns > LINE_COLUMNS {
            self.end_line(0);
        }
        let Line { number, column, .. } = self.line;
        let appended = self.is_at_end();
        let end = column + columns;
        if self.line.cells.len() < end {
            self.line.cells.resize(end, Some(' '));
        }
        for (offset, cell) in self.line.cells.iter_mut().skip(column).take(columns).enumerate() {
            *cell = (offset == 0).then_some(character);
        }
        (self.line.column, self.line.printed) = (end, true);
        self.hold(at, Some((number, column)), columns, bytes);
        if appended {
            let mut found = Vec::new();
            self.search.step(&self.secrets.nfa, character, column, &mut found);
            self.searched = end;
            for range in found {
                self.mark_appended(range);
            }
        } else {
            self.changed = true;
        }
    }

    /// Applies a control character to the line.
    fn control(&mut self, byte: u8) {
        match byte {
            b'\n' | 0x0b | 0x0c => {
                let column = self.line.column;
                self.end_line(column % self.columns);
            }
            b'\r' => {
                self.look();
                self.line.column = self.row_start();
            }
            0x08 => {
                self.look();
                self.line.column = self.line.column.saturating_sub(1).max(self.row_start());
            }
            b'\t' => {
                let column = self.line.column;
                let end = (column / 8 + 1) * 8;
                self.move_to(end.min(self.row_start() + self.columns - 1).max(column));
            }
            _ => return,
        }
        self.line.printed = false;
    }

    /// Returns the column in which the cursor's row begins.
    fn row_start(&self) -> usize {
        let column = self.line.column - usize::from(self.line.printed && self.line.column > 0);
        column - column % self.columns
    }

    /// Applies an escape sequence to the line.
    fn sequence(&mut self, bytes: &[u8]) {
        let Some(body) = bytes.strip_prefix(b"\x1b[") else {
            // Character sets and keypad modes do not move the cursor.
            if !matches!(bytes, [0x1b, b'(' | b')' | b'*' | b'+' | b'=' | b'>' | b'#', ..] | [0x1b, b'7']) {
                self.end_line(0);
            }
            return;
        };
        let Some((last, parameters)) = body.split_last() else { return };
        let text = String::from_utf8_lossy(parameters).into_owned();
        let mut numbers = text.split(';').map(|number| number.parse::<usize>().unwrap_or(0).min(LINE_COLUMNS));
        let first = numbers.next().unwrap_or(0);
        let count = first.max(1);
        let column = self.line.column;
        match last {
            // Styles, modes, reports, the cursor's shape.
            b'm' | b'n' | b'c' | b'q' | b't' | b'u' | b's' => return,
            b'h' | b'l' if !matches!(text.as_str(), "?1049" | "?1047" | "?47") => return,
            b'C' => {
                let edge = self.row_start() + self.columns - 1;
                self.move_to((column + count).min(edge.max(column)));
            }
            b'D' => {
                self.look();
                self.line.column = column.saturating_sub(count).max(self.row_start());
            }
            b'G' | b'`' => self.move_to(self.row_start() + count - 1),
            b'K' if first == 0 => {
                self.look();
                self.line.cells.truncate(column);
                self.changed = true;
            }
            b'K' | b'X' => {
                self.look();
                let end = if *last == b'X' { column + count } else { column + 1 };
                let from = if *last == b'X' { column } else { self.row_start() };
                let cells = self.line.cells.iter_mut().enumerate();
                cells.filter(|(at, _)| (from..end).contains(at)).for_each(|(_, cell)| *cell = Some(' '));
                self.changed = true;
            }
            b'@' | b'P' => {
                self.look();
                self.shift(*last == b'@', column, count);
                self.changed = true;
            }
            b'H' | b'f' => {
                let column = numbers.next().unwrap_or(0).max(1) - 1;
                self.end_line(column);
            }
            b'A' | b'B' | b'd' | b'e' => self.end_line(column % self.columns),
            _ => self.end_line(0),
        }
        self.line.printed = false;
    }

    /// Moves the cursor in its line.
    fn move_to(&mut self, column: usize) {
        if column < self.line.column {
            self.look();
        }
        let column = column.min(LINE_COLUMNS);
        if column > self.line.cells.len() {
            self.line.cells.resize(column, Some(' '));
            self.changed = true;
        }
        self.line.column = column;
    }

    /// Inserts or removes columns; held output after them moves along.
    fn shift(&mut self, inserts: bool, column: usize, count: usize) {
        let cells = &mut self.line.cells;
        let at = column.min(cells.len());
        if inserts {
            cells.splice(at..at, std::iter::repeat_n(Some(' '), count));
            cells.truncate(LINE_COLUMNS);
        } else {
            cells.drain(at..(at + count).min(cells.len()));
        }
        let number = self.line.number;
        for (line, place) in self.held.iter_mut().filter_map(|held| held.place.as_mut()) {
            if *line == number && *place >= column {
                *place = if inserts { *place + count } else { place.saturating_sub(count).max(column) };
            }
        }
    }

    /// Ends the line, and all matches in it. The next one begins in this column.
    fn end_line(&mut self, column: usize) {
        self.look();
        if !self.defers {
            self.release_until(self.held.len());
        }
        let number = self.line.number + 1;
        self.line.cells.clear();
        self.line.cells.resize(column.min(LINE_COLUMNS), Some(' '));
        (self.line.number, self.line.column, self.line.printed) = (number, self.line.cells.len(), false);
        self.search = Search::default();
        self.searched = 0;
        self.marked = None;
        self.changed = self.line.column > 0;
    }

    /// Searches the whole line again if it has changed.
    fn look(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let (mut search, mut found, mut ranges) = (Search::default(), Vec::new(), Ranges::default());
        let mut open_at_cursor = None;
        for (column, cell) in self.line.cells.iter().enumerate() {
            if column == self.line.column {
                open_at_cursor = Some(search.clone());
            }
            if let Some(character) = cell {
                search.step(&self.secrets.nfa, *character, column, &mut found);
                found.drain(..).for_each(|range| ranges.add(range));
            }
        }
        self.mark(&ranges);
        // The next output is printed at the cursor, and may continue the text before it.
        self.search = open_at_cursor.unwrap_or(search);
        self.searched = self.line.column.min(self.line.cells.len());
    }

    /// Marks all held characters of the current line in these columns.
    fn mark(&mut self, found: &Ranges) {
        let number = self.line.number;
        self.marked = None;
        if found.0.is_empty() {
            return;
        }
        for held in &mut self.held {
            held.secret |= held.place.is_some_and(|(line, column)| line == number && found.holds(column));
        }
    }

    /// Marks a match that ends with the last character. A continued match does not go through all
    /// held output again.
    fn mark_appended(&mut self, (from, to): (usize, usize)) {
        match self.marked {
            Some((first, end)) if (first..=end).contains(&from) => {
                let number = self.line.number;
                // All output since then is at the end.
                for held in self.held.iter_mut().rev() {
                    match held.place {
                        Some((line, column)) if line == number && column >= end => held.secret = true,
                        Some(_) => break,
                        None => {}
                    }
                }
                self.marked = Some((first, to));
            }
            _ => {
                self.mark(&Ranges(vec![(from, to)]));
                self.marked = Some((from, to));
            }
        }
    }

    fn hold(&mut self, at: Duration, place: Option<(u64, usize)>, columns: usize, bytes: Vec<u8>) {
        self.held_bytes += bytes.len();
        self.held.push_back(Held { at, place, columns, secret: false, open: false, bytes });
    }

    /// Writes the held output that can no longer become a match.
    fn release(&mut self) {
        let number = self.line.number;
        let from = self.search.open_from(self.line.column);
        let is_open = |held: &Held| held.place.is_some_and(|(line, column)| line == number && column >= from);
        // A complete secret can be written, whatever continues it.
        let keep = self.held.iter().position(|held| (held.open || is_open(held)) && !held.secret);
        self.release_until(keep.unwrap_or(self.held.len()));
    }

    fn release_until(&mut self, end: usize) {
        self.first += end as u64;
        for held in self.held.drain(..end).collect::<Vec<_>>() {
            self.held_bytes -= held.bytes.len();
            if held.secret {
                self.replaced += 1;
                let stars = vec![b'*'; held.columns];
                self.emit(held.at, &stars);
            } else {
                self.emit(held.at, &held.bytes);
            }
        }
    }

    fn emit(&mut self, at: Duration, bytes: &[u8]) {
        match self.out.last_mut() {
            Some((last, piece)) if *last == at => piece.extend_from_slice(bytes),
            _ => self.out.push((at, bytes.to_vec())),
        }
    }
}

#[cfg(test)]
mod tests;
