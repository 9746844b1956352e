//! The places where an echo may stand: on the line that is being printed, where the cursor stood
//! when it was typed, or behind a prompt.

use super::{
    EchoFilter,
    line::Line,
    typed::{Expected, trimmed_len},
};

/// A typed line of fewer bytes is not looked for at the end of a line of output.
const SHORT: usize = 4;

/// An expected echo that a line shows, in part or whole.
#[derive(Debug)]
pub(super) struct Shown {
    /// Which typed lines make it up.
    pub(super) lines: std::ops::Range<usize>,
    /// The raw offset at which it begins.
    pub(super) typed: u64,
    /// The cell behind what is shown of it.
    pub(super) end_cell: usize,
    pub(super) complete: bool,
    /// Whether the line may only be finished by Enter, and it is certain that an echo stands here.
    pub(super) anchored: bool,
}

impl EchoFilter {
    /// Returns the expected text that stands, in part or whole, on the line that is being printed.
    pub(super) fn shown(&self, line: &Line) -> Option<Shown> {
        // While a shell redraws, what counts is either all that stands there or what stands before
        // the cursor.
        let ends = [line.len(), line.cursor().min(line.len())];
        let anchored = ends.into_iter().find_map(|end| self.anchored(line, end));
        anchored.or_else(|| ends.into_iter().find_map(|end| self.placed(line, end)))
    }

    /// Returns the longest echo that begins where the cursor stood when it was typed.
    pub(super) fn anchored(&self, line: &Line, end: usize) -> Option<Shown> {
        let mut best: Option<Shown> = None;
        for (first, expected) in self.expected.iter().enumerate() {
            let Some((cell, mark)) = expected.anchor else { continue };
            let none_yet = end <= cell;
            if none_yet && !expected.prompt.starts_with(&line.text(0..end)) {
                // The line is not the one behind which it was typed any more: a progress bar has
                // moved on.
                continue;
            }
            if end < cell {
                // The cursor is before it: the line is being drawn anew.
                let lines = first..first + 1;
                best = best.or(Some(Shown { lines, typed: mark, end_cell: end, complete: false, anchored: true }));
                continue;
            }
            // Input that came in pieces is one line.
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

    /// Returns an echo anywhere else: the line ends with it, or with its beginning.
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

    /// Returns where a line that has ended shows expected text, without a look at most lines of a
    /// flood.
    pub(super) fn placed_at_end(&self, line: &Line) -> Option<Shown> {
        let last = line.last_character()?;
        let ends_alike = |expected: &Expected| expected.text.trim_end().ends_with(last);
        let looked_at = line.is_full() || self.expected.iter().any(ends_alike);
        if looked_at { self.placed(line, line.len()) } else { None }
    }

    /// Whether the echo of a typed line may follow this text on a line.
    fn may_stand_behind(&self, expected: &Expected, before: &str) -> bool {
        let after_echo = expected.number > 0 && self.follows_echo;
        if expected.again {
            // Where it was typed no program read it; a program that shows a prompt of its own once
            // more with the answer is not a shell.
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

    /// Whether this text is a prompt: one that was seen, one like it, or, where none was seen yet,
    /// one that looks like a shell's.
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

    /// Whether a text above the line that is being printed may be an echo. The kernel echoes at the
    /// cursor; a shell that edits a line draws anew what it likes, a program with an unknown prompt
    /// what was typed.
    pub(super) fn is_drawn_anew(&self, text: &str) -> bool {
        let text = text.trim();
        let shows = |expected: &Expected| {
            let wanted = expected.text.trim();
            wanted.contains(text) || text.contains(wanted) || !endings_that_begin(text, wanted).is_empty()
        };
        self.expected.iter().any(|expected| !expected.tty_echo && (self.is_edited(expected) || shows(expected)))
    }

    /// Whether a typed line is edited by a shell, which prints nothing else on its line.
    pub(super) fn is_edited(&self, expected: &Expected) -> bool {
        !expected.tty_echo && (self.is_prompt(&expected.prompt) || ends_in_sigil(&expected.prompt))
    }
}

/// Returns where the endings of `text` begin that `wanted` begins with, the longest first. Looks at
/// each byte of either about twice (Knuth, Morris and Pratt), however much both repeat themselves.
fn endings_that_begin(text: &str, wanted: &str) -> Vec<usize> {
    let wanted = wanted.as_bytes();
    // How long the longest ending of the first n + 1 bytes is with which they also begin.
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

/// Whether a text ends as shells' and REPLs' prompts do.
fn ends_in_sigil(text: &str) -> bool {
    let Some(prompt) = text.strip_suffix(' ') else { return false };
    match prompt.chars().next_back() {
        Some('$' | '%' | '❯' | '➜' | 'λ' | '»') => true,
        // Alone they begin a quotation or a heading.
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
        /// The result is the one of looking at each ending.
        #[test]
        fn endings_are_those_with_which_it_begins(text in "[ab ]{0,24}", wanted in "[ab ]{0,12}") {
            let each = (0..text.len()).filter(|cut| text.get(*cut..).is_some_and(|ending| wanted.starts_with(ending)));
            proptest::prop_assert_eq!(endings_that_begin(&text, &wanted), each.collect::<Vec<_>>());
        }
    }
}
