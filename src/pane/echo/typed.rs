//! What was typed, line by line.

/// Typed lines that are expected to be echoed, over all inputs.
pub(super) const LINES: usize = 256;
/// Characters of one typed line that are compared.
const LINE_CHARS: usize = 4096;

/// A typed line.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) text: String,
    /// Enter was typed behind it.
    pub(super) entered: bool,
    /// Which input it belongs to.
    pub(super) input: u64,
    /// How many lines of its input came before it.
    pub(super) number: usize,
    /// The kernel echoes.
    pub(super) tty_echo: bool,
    /// What stood before the cursor when it was typed.
    pub(super) prompt: String,
    /// It is expected on the line that is being printed, from this cell on; the stream's end when it was typed.
    pub(super) anchor: Option<(usize, u64)>,
    /// The kernel has echoed it, while no prompt was there: an editing program may do so again.
    pub(super) again: bool,
}

/// The lines of typed text as an editor or the kernel would show them, and whether each was ended by Enter.
pub(super) fn typed_lines(text: &[u8]) -> Vec<(String, bool)> {
    let text =
        String::from_utf8_lossy(text).replace("\u{1b}[200~", "").replace("\u{1b}[201~", "").replace("\r\n", "\n");
    let mut lines = Vec::new();
    for line in text.split_inclusive(['\r', '\n']).take(LINES) {
        let entered = line.ends_with(['\r', '\n']);
        let shown =
            line.split(|character: char| character.is_control() && character != '\t').next().unwrap_or_default();
        lines.push((shown.chars().take(LINE_CHARS).collect(), entered));
    }
    lines
}

/// How many characters a text has without the blanks at its end.
pub(super) fn trimmed_len(text: impl Iterator<Item = char>) -> usize {
    text.enumerate().filter(|(_, character)| !character.is_whitespace()).last().map_or(0, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_text_is_cut_into_lines_as_they_will_be_shown() {
        let lines = |text: &str| typed_lines(text.as_bytes());
        let line = |text: &str, entered| (text.to_owned(), entered);
        assert_eq!(lines("a b\r"), [line("a b", true)]);
        assert_eq!(lines("a\nb\tc"), [line("a", true), line("b\tc", false)]);
        assert_eq!(lines("a\r\nb"), [line("a", true), line("b", false)]);
        assert_eq!(lines("a\u{3}b"), [line("a", false)], "a control character is a key, not text");
        assert_eq!(lines("\u{1b}[200~a\u{1b}[201~"), [line("a", false)], "a bracketed paste is its text");
    }
}
