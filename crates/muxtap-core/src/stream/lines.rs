//! The lines that a pane prints, without escape sequences.

use super::{
    decoder::TextDecoder,
    text::{Control, TextSink},
};

/// Splits a pane's output into lines.
///
/// A line ends at a line feed, and where it is rewritten: at text after a `\r`, and where the cursor
/// moves to another line. So each state of a progress bar is a line. Backspaces, movements to the left
/// and erasures change the line that is being printed. The output may come in any pieces.
#[derive(Debug)]
pub struct LineReader {
    decoder: TextDecoder,
    line: Line,
}

/// The line that is being printed.
#[derive(Debug)]
struct Line {
    text: String,
    place: Place,
    most: usize,
}

/// Where the next text of a line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At its end.
    End,
    /// At its beginning.
    Beginning,
    /// This many characters before its end.
    Left(u16),
}

impl LineReader {
    /// Makes a reader that keeps the first `most` bytes of each line.
    pub fn new(most: usize) -> Self {
        Self { decoder: TextDecoder::default(), line: Line { text: String::new(), place: Place::End, most } }
    }

    /// Reads the next output. Appends each line that ends in it to `ended`, with a `\n` after it. Returns whether
    /// the output prints something: escape sequences alone do not.
    pub fn feed(&mut self, output: &[u8], ended: &mut String) -> bool {
        let mut sink = Sink { line: &mut self.line, ended, prints: false };
        self.decoder.feed(0, output, &mut sink);
        sink.prints
    }

    /// Returns the line that is being printed.
    pub fn line(&self) -> &str {
        &self.line.text
    }

    /// Forgets the line that is being printed.
    pub fn end_line(&mut self) {
        self.line.clear();
    }

    /// Forgets the line and an open escape sequence: output is missing here.
    pub fn reset(&mut self) {
        self.line.clear();
        self.decoder.reset();
    }
}

impl Line {
    fn clear(&mut self) {
        self.text.clear();
        self.place = Place::End;
    }

    fn end(&mut self, ended: &mut String) {
        ended.push_str(&self.text);
        ended.push('\n');
        self.clear();
    }

    fn print(&mut self, text: &str) {
        self.cut();
        let free = self.most.saturating_sub(self.text.len());
        if text.len() <= free {
            self.text.push_str(text);
        } else {
            let fitting = (0..=free).rev().find_map(|end| text.get(..end));
            self.text.push_str(fitting.unwrap_or_default());
        }
    }

    fn left(&mut self, columns: u16) {
        match &mut self.place {
            Place::Beginning => {}
            Place::Left(left) => *left = left.saturating_add(columns),
            Place::End => self.place = Place::Left(columns),
        }
    }

    /// Drops what the next text replaces.
    fn cut(&mut self) {
        if let Place::Left(columns) = self.place {
            let kept = self.text.char_indices().rev().nth(columns.saturating_sub(1).into()).map_or(0, |(at, _)| at);
            self.text.truncate(kept);
        }
        if self.place != Place::Beginning || self.text.is_empty() {
            self.place = Place::End;
        }
    }
}

/// Receives the decoder's events for a [`LineReader`].
struct Sink<'a> {
    line: &'a mut Line,
    ended: &'a mut String,
    prints: bool,
}

impl TextSink for Sink<'_> {
    fn text(&mut self, _offset: u64, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        self.prints = true;
        if self.line.place == Place::Beginning && !self.line.text.is_empty() {
            self.line.end(self.ended);
        }
        match std::str::from_utf8(text) {
            Ok(text) => self.line.print(text),
            Err(_) => self.line.print(&String::from_utf8_lossy(text)),
        }
    }

    fn control(&mut self, _offset: u64, control: Control) {
        match control {
            Control::LineFeed => {
                self.prints = true;
                self.line.end(self.ended);
            }
            Control::CarriageReturn => self.line.place = Place::Beginning,
            Control::Backspace => self.line.left(1),
            Control::Csi(b'D', columns, _) => self.line.left(columns.max(1)),
            Control::Csi(b'K', 0, _) => self.line.cut(),
            Control::Csi(b'A' | b'B' | b'E' | b'F' | b'H' | b'f' | b'd' | b'e', ..)
            | Control::Csi(b'J', 2.., _)
            | Control::Reset => {
                if !self.line.text.is_empty() {
                    self.line.end(self.ended);
                }
                self.line.place = Place::End;
            }
            Control::Csi(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ended lines, and the one that is being printed.
    fn read(pieces: &[&str]) -> (String, String) {
        let (mut reader, mut ended) = (LineReader::new(8), String::new());
        for piece in pieces {
            reader.feed(piece.as_bytes(), &mut ended);
        }
        (ended, reader.line().to_owned())
    }

    #[test]
    fn a_line_ends_at_a_line_feed_and_where_it_is_rewritten() {
        for (output, ended, line) in [
            ("a\r\nb", "a\n", "b"),
            ("\n\n", "\n\n", ""),
            ("1%\r2%\r\n", "1%\n2%\n", ""),
            ("1%\r\u{1b}[K2%", "1%\n", "2%"),
            ("ab\u{1b}[2;1Hcd", "ab\n", "cd"),
            ("abc\u{8}\u{8}x", "", "ax"),
            ("abc\u{1b}[2D\u{1b}[Kx", "", "ax"),
            ("\u{1b}[31mred\u{1b}[0m\n", "red\n", ""),
            ("123456789\n", "12345678\n", ""),
            // Six bytes fit, and the third character does not.
            ("ab\u{20ac}\u{20ac}\u{20ac}", "", "ab\u{20ac}\u{20ac}"),
        ] {
            assert_eq!(read(&[output]), (ended.to_owned(), line.to_owned()), "{output:?}");
            let characters: Vec<_> = output.chars().map(String::from).collect();
            let pieces: Vec<_> = characters.iter().map(String::as_str).collect();
            assert_eq!(read(&pieces), (ended.to_owned(), line.to_owned()), "{output:?} in pieces");
        }
    }

    #[test]
    fn escape_sequences_alone_print_nothing() {
        let (mut reader, mut ended) = (LineReader::new(8), String::new());
        assert!(!reader.feed(b"\x1b[1m\x1b[2;2H\r", &mut ended));
        assert!(reader.feed(b"x", &mut ended) && reader.feed(b"\n", &mut ended));
    }

    #[test]
    fn what_was_open_before_missing_output_is_forgotten() {
        let (mut reader, mut ended) = (LineReader::new(8), String::new());
        reader.feed(b"ab\x1b[3", &mut ended);
        reader.reset();
        reader.feed(b"4mc\n", &mut ended);
        assert_eq!(ended, "4mc\n");
    }
}
