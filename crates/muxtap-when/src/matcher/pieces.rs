//! The parts of a pane's output that lines consist of.

use muxtap_core::stream::text::{Control, TextSink};

/// A part of a pane's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// `\n`.
    LineFeed,
    /// `\r`: what follows, unless it is a line feed, rewrites the line.
    Return,
    /// The cursor moves left in the line, by this many columns.
    Left(u16),
    /// The line is erased from the cursor on.
    Erase,
    /// The cursor moves to another line, or the screen is cleared.
    Elsewhere,
}

/// Where the next text of a line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At its end.
    End,
    /// At its beginning.
    Beginning,
    /// This many characters before its end.
    Left(u16),
}

/// Collects the pieces of a text.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<Piece>);

impl Pieces {
    /// Returns whether something was printed.
    pub(super) fn has_text(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Text(_) | Piece::LineFeed))
    }
}

impl IntoIterator for Pieces {
    type Item = Piece;
    type IntoIter = std::vec::IntoIter<Piece>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl TextSink for Pieces {
    fn text(&mut self, _offset: u64, text: &[u8]) {
        if !text.is_empty() {
            self.0.push(Piece::Text(String::from_utf8_lossy(text).into_owned()));
        }
    }

    fn control(&mut self, _offset: u64, control: Control) {
        let piece = match control {
            Control::LineFeed => Piece::LineFeed,
            Control::CarriageReturn => Piece::Return,
            Control::Backspace => Piece::Left(1),
            Control::Csi(b'D', columns, _) => Piece::Left(columns.max(1)),
            Control::Csi(b'K', 0, _) => Piece::Erase,
            Control::Csi(b'A' | b'B' | b'E' | b'F' | b'H' | b'f' | b'd' | b'e', ..)
            | Control::Csi(b'J', 2.., _)
            | Control::Reset => Piece::Elsewhere,
            Control::Csi(..) => return,
        };
        self.0.push(piece);
    }
}
