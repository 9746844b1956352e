//! The places of an echo: on the line that is being printed, where the cursor was when the text was
//! typed, or after a prompt.

use super::{
    EchoFilter,
    line::Line,
    typed::{Expected, trimmed_len},
};

/// The number of bytes below which a typed line is not searched for at the end of a line of output.
const SHORT: usize = 4;

/// An expected echo that a line shows, partly or completely.
#[derive(Debug)]
pub(super) struct Shown {
    /// The range of typed lines that make up the echo.
    pub(super) lines: std::ops::Range<usize>,
    /// The raw offset at which the echo begins.
    pub(super) typed: u64,
    /// The cell after the part of the echo that is shown.
    pub(super) end_cell: usize,
    pub(super) complete: bool,
    /// Whether only Enter may finish the line, and it is certain that this is an echo.
    pub(super) anchored: bool,
}

impl EchoFilter {
    /// Returns the expected text, partial or complete, on the line that is being printed.
    pub(super) fn shown(&self, line: &Line) -> Option<Shown> {
        // While a shell redraws, either the whole line or the part before the cursor counts.
        let ends = [line.len(), line.cursor().min(line.len())];
        let anchored = ends.into_iter().find_map(|end| self.anchored(line, end));
        anchored.or_else(|| ends.into_iter().find_map(|end| self.placed(line, end)))
    }

    /// Returns the longest echo that begins at the cursor's position when the text was typed.
    pub(super) fn anchored(&self, line: &Line, end: usize) -> Option<Shown> {
        let mut best: Option<Shown> = None;
        for (first, expected) in self.expected.iter().enumerate() {
            let Some((cell, mark)) = expected.anchor else { continue };
            let none_yet = end <= cell;
            if none_yet && !expected.prompt.starts_with(&line.text(0..end)) {
                // The text was not typed after this line: a progress bar has moved on.
                continue;
            }
            if end < cell {
                // The cursor is before the echo: the line is being redrawn.
                let lines = first..first + 1;
                best = best.or(Some(Shown { lines, typed: mark, end_cell: end, complete: false, anchored: true }));
                continue;
            }
            // Input that was typed in pieces forms one line.
            for last in first..self.expected.len() {
                let pieces = self.expected.range(first..=last);
                let joined = pieces
                    .clone()
                    .zip(pieces.clone().skip(1))
                    .all(|(piece, next)| !piece.entered && next.anchor.is_some());
                if !joined {
                    break;
                }
                let text = || pieces.clone().flat_map(|piece| piece.text.chars());
                let followed = line.follow(cell, end, text());
                let complete = followed.characters >= trimmed_len(text());
                let whole_line = followed.cell >= end || line.is_blank_from(followed.cell);
                if !complete && !whole_line {
                    continue;
                }
                let shown =
                    Shown { lines: first..last + 1, typed: mark, end_cell: followed.cell, complete, anchored: true };
                if complete || best.is_none() {
                    best = Some(shown);
                }
            }
        }
        best
    }

    /// Returns an echo at any other place: the line ends with it, or with its beginning.
    fn placed(&self, line: &Line, end: usize) -> Option<Shown> {
        let text = line.text(0..end);
        let text = text.trim_end();
        if text.is_empty() {
            return None;
        }
        let mut partial = None;
        for (index, expected) in self.expected.iter().enumerate() {
            let lines = index..index + 1;
            let shown = |prompt: &str, complete| {
                let cell = line.follow(0, end, prompt.chars()).cell;
                Shown { lines: lines.clone(), typed: line.first_of(cell), end_cell: end, complete, anchored: false }
            };
            let wanted = expected.text.trim_end();
            if let Some(before) = text.strip_suffix(wanted)
                && self.may_stand_behind(expected, before)
            {
                return Some(shown(before, true));
            }
            if partial.is_none() {
                let before = endings_that_begin(text, wanted).into_iter().filter_map(|cut| text.get(..cut));
                let mut before = before.filter(|before| before.is_empty() || before.ends_with(' '));
                let before = before.find(|before| self.may_stand_behind(expected, before));
                partial = before.map(|before| shown(before, false));
            }
        }
        partial
    }

    /// Returns the expected text at the end of a finished line, without examining most lines of a
    /// flood.
    pub(super) fn placed_at_end(&self, line: &Line) -> Option<Shown> {
        let last = line.last_character()?;
        let ends_alike = |expected: &Expected| expected.text.trim_end().ends_with(last);
        let looked_at = line.is_full() || self.expected.iter().any(ends_alike);
        if looked_at { self.placed(line, line.len()) } else { None }
    }

    /// Returns whether the echo of a typed line may come after this text on a line.
    fn may_stand_behind(&self, expected: &Expected, before: &str) -> bool {
        let after_echo = expected.number > 0 && self.follows_echo;
        if expected.again {
            // No program read the line where it was typed; a program that prints its own prompt
            // once more together with output is not a shell.
            return before != expected.prompt && self.is_prompt(before);
        }
        if before.trim().is_empty() {
            return (expected.tty_echo && before.is_empty()) || after_echo;
        }
        (expected.tty_echo && expected.text.trim().len() >= SHORT)
            || (before == expected.prompt && ends_in_sigil(before))
            || (after_echo && before.ends_with("> "))
            || (expected.number > 0 && before.trim_end() == "...")
            || self.is_prompt(before)
    }

    /// Returns whether a text is a prompt: a known one, one like it, or, before any is known, one
    /// that looks like a shell's.
    fn is_prompt(&self, text: &str) -> bool {
        if text.trim().is_empty() {
            return false;
        }
        if self.prompts.is_empty() {
            return ends_in_sigil(text);
        }
        let tail = |text: &str| text.chars().rev().take(2).collect::<String>();
        // The directory, the time or an exit status in a prompt changes from line to line.
        let alike = |known: &String| known == text || (ends_in_sigil(text) && tail(known) == tail(text));
        self.prompts.iter().any(alike)
    }

    /// Returns whether a text above the line that is being printed may be an echo. The kernel
    /// echoes at the cursor; a shell that edits a line may redraw anything, a program with an
    /// unknown prompt only the typed text.
    pub(super) fn is_drawn_anew(&self, text: &str) -> bool {
        let text = text.trim();
        let shows = |expected: &Expected| {
            let wanted = expected.text.trim();
            wanted.contains(text) || text.contains(wanted) || !endings_that_begin(text, wanted).is_empty()
        };
        self.expected.iter().any(|expected| !expected.tty_echo && (self.is_edited(expected) || shows(expected)))
    }

    /// Returns whether a shell edits a typed line; a shell prints nothing else on its line.
    pub(super) fn is_edited(&self, expected: &Expected) -> bool {
        !expected.tty_echo && (self.is_prompt(&expected.prompt) || ends_in_sigil(&expected.prompt))
    }
}

/// Returns the starts of the endings of `text` with which `wanted` begins, the longest first.
/// Examines each byte of either about twice (Knuth, Morris and Pratt), however much both repeat
/// themselves.
fn endings_that_begin(text: &str, wanted: &str) -> Vec<usize> {
    let wanted = wanted.as_bytes();
    // For each n, the length of the longest ending of the first n + 1 bytes that is also their
    // beginning.
    let mut borders: Vec<usize> = Vec::with_capacity(wanted.len());
    let step = |borders: &[usize], mut length: usize, byte: u8| {
        while length > 0 && wanted.get(length) != Some(&byte) {
            length = borders.get(length - 1).copied().unwrap_or_default();
        }
        length + usize::from(wanted.get(length) == Some(&byte))
    };
    for byte in wanted {
        let border = borders.last().map_or(0, |last| step(&borders, *last, *byte));
        borders.push(border);
    }
    let tail = text.as_bytes().get(text.len().saturating_sub(wanted.len())..).unwrap_or_default();
    let longest = tail.iter().fold(0, |length, byte| step(&borders, length, *byte));
    let next = |length: &usize| borders.get(length.checked_sub(1)?).copied();
    let lengths = std::iter::successors(Some(longest), next).take_while(|length| *length > 0);
    lengths.map(|length| text.len() - length).collect()
}

/// Returns whether a text ends like a prompt of a shell or REPL.
fn ends_in_sigil(text: &str) -> bool {
    let Some(prompt) = text.strip_suffix(' ') else { return false };
    match prompt.chars().next_back() {
        Some('$' | '%' | '❯' | '➜' | 'λ' | '»') => true,
        // Alone, these characters begin a quotation or a heading.
        Some('>' | '#') => prompt.len() > 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_that_begin_what_is_wanted_are_found_longest_first() {
        assert_eq!(endings_that_begin("$ ls -l", "ls -la"), [2, 6]);
        assert_eq!(endings_that_begin("x x x", "x x x x"), [0, 2, 4]);
        assert_eq!(endings_that_begin("> äö", "äöü"), [2]);
        assert!(endings_that_begin("abc", "d").is_empty() && endings_that_begin("", "d").is_empty());
        assert_eq!(endings_that_begin("no ab", "ab"), [3], "all of it too");
    }

    proptest::proptest! {
        /// The result is the same as from examining each ending.
        #[test]
        fn endings_are_those_with_which_it_begins(text in "[ab ]{0,24}", wanted in "[ab ]{0,12}") {
            let each = (0..text.len()).filter(|cut| text.get(*cut..).is_some_and(|ending| wanted.starts_with(ending)));
            proptest::prop_assert_eq!(endings_that_begin(&text, &wanted), each.collect::<Vec<_>>());
        }
    }
}
