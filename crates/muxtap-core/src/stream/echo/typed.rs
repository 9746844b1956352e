//! Typed text, split into lines.

use serde::{Deserialize, Serialize};

/// The number of typed lines, over all inputs, whose echo is expected.
pub(super) const LINES: usize = 256;
/// The number of characters of one typed line that are compared.
const LINE_CHARS: usize = 4096;
/// The number of bytes of the marks around a bracketed paste.
const BRACKETS: usize = 12;

/// A typed line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Expected {
    pub(super) text: String,
    /// Whether Enter was typed after the line.
    pub(super) entered: bool,
    /// The number of the input to which the line belongs.
    pub(super) input: u64,
    /// The number of lines before it in its input.
    pub(super) number: usize,
    /// Whether the kernel echoes.
    pub(super) tty_echo: bool,
    /// The text before the cursor when the line was typed.
    pub(super) prompt: String,
    /// The cell at which the line is expected on the line that is being printed, and the stream's
    /// end when it was typed.
    pub(super) anchor: Option<(usize, u64)>,
    /// Whether the kernel has echoed the line while no prompt was present: an editing program may
    /// echo it again.
    pub(super) again: bool,
}

/// The last lines of a typed text.
pub(super) struct Typed {
    /// The number in the text of the first of these lines: above 0 where the text has more lines
    /// than the maximum.
    pub(super) first: usize,
    /// The lines, each as an editor or the kernel would show it, and whether Enter ended it.
    pub(super) lines: Vec<(String, bool)>,
}

/// Returns the last lines of a typed text. Of 16 MiB, only the part that is kept is examined.
pub(super) fn typed_lines(text: &[u8]) -> Typed {
    let mut lines = Vec::new();
    let mut rest = text;
    while lines.len() < LINES && !rest.is_empty() {
        let line_end = match rest {
            [.., b'\r', b'\n'] => 2,
            [.., b'\r' | b'\n'] => 1,
            _ => 0,
        };
        let (before, _) = rest.split_at(rest.len() - line_end);
        let start = memchr::memrchr2(b'\r', b'\n', before).map_or(0, |at| at + 1);
        let (before, line) = before.split_at(start);
        lines.push((shown(line), line_end > 0));
        rest = before;
    }
    lines.reverse();
    Typed { first: usize::from(!rest.is_empty()) * LINES, lines }
}

/// Returns a typed line up to its first key that is not a character.
fn shown(line: &[u8]) -> String {
    // The longest character has four bytes.
    let line = line.get(..4 * LINE_CHARS + BRACKETS).unwrap_or(line);
    let line = String::from_utf8_lossy(line).replace("\u{1b}[200~", "").replace("\u{1b}[201~", "");
    line.chars().take_while(|character| !character.is_control() || *character == '\t').take(LINE_CHARS).collect()
}

/// Returns the length of a text in characters, without the blanks at its end.
pub(super) fn trimmed_len(text: impl Iterator<Item = char>) -> usize {
    text.enumerate().filter(|(_, character)| !character.is_whitespace()).last().map_or(0, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_text_is_cut_into_lines_as_they_will_be_shown() {
        let lines = |text: &str| typed_lines(text.as_bytes()).lines;
        let line = |text: &str, entered| (text.to_owned(), entered);
        assert_eq!(lines("a b\r"), [line("a b", true)]);
        assert_eq!(lines("a\nb\tc"), [line("a", true), line("b\tc", false)]);
        assert_eq!(lines("a\r\nb"), [line("a", true), line("b", false)]);
        assert_eq!(lines("a\u{3}b"), [line("a", false)], "a control character is a key, not text");
        assert_eq!(lines("\u{1b}[200~a\u{1b}[201~"), [line("a", false)], "a bracketed paste is its text");
        assert_eq!(lines("a\r\r"), [line("a", true), line("", true)]);
        assert_eq!(lines("\ra"), [line("", true), line("a", false)]);
        assert_eq!(lines(""), []);
    }

    #[test]
    fn of_a_long_text_the_last_lines_are_kept() {
        let text = (0..1000).fold(String::new(), |text, number| text + &format!("{number}\r"));
        let Typed { first, lines } = typed_lines(text.as_bytes());
        assert!(first > 0 && lines.len() == LINES);
        assert_eq!(lines.last(), Some(&("999".to_owned(), true)));
        let long = typed_lines("é".repeat(10_000).as_bytes());
        assert_eq!((long.first, long.lines), (0, vec![("é".repeat(LINE_CHARS), false)]));
    }
}
